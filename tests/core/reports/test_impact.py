"""Impact and plan never disagree: over random worlds, over every column of the sample, and in words for people."""

from dataclasses import replace

import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

from core.lineage.column_lineage import LineageTracer
from core.model.actions import Action
from core.model.errors import UsageError
from core.observed.planner_input import PlannerInput
from core.plan.model import Plan
from core.plan.request import PlanRequest
from core.planner.planner import make_plan
from core.project.model import Project, Settings, Table
from core.project_reader.revision_reader import revision_of
from core.reports.impact import Impact, ImpactAnswer, ImpactEffect, ImpactEvent, as_if_running, impact_of
from core.sql.lineage.model import ColumnOrigin
from tests.core.reports.test_inventory import sample
from tests.support.domain_builders import T, deployed, project, running, table
from tests.support.random_worlds import World, worlds


def asked(
    declared: Project, words: str, *, children: str = "", known: PlannerInput | None = None, facts: object = None
) -> Impact:
    name, _, column = words.partition(".")
    root = ColumnOrigin(T(name), column)
    return impact_of(
        declared, "dev", known or PlannerInput(), root, LineageTracer(declared), children=children, parse_cache=facts
    )  # type: ignore[arg-type]  # Facts of a world.


def of(found: Impact, event: ImpactEvent) -> ImpactAnswer:
    return next(answer for answer in found.answers if answer.event is event)


def names(answer: ImpactAnswer, *effects: ImpactEffect) -> set[str]:
    return {str(one.table) for one in answer.reached if one.effect in effects}


def done(plan: Plan, action: Action) -> set[str]:
    return {str(node.table) for node in plan.nodes if node.action is action}


def shown(answer: ImpactAnswer) -> list[str]:
    """Return a line per table: effect, depth, name, the table that leads to it, and the line that names the column."""
    return [
        f"{one.effect} {one.depth} {one.table} < "
        + " ".join(f"{reading.table}{'' if reading.streamed else '!'}" for reading in one.through)
        + (f" @ {one.place}" if one.place else "")
        + (f" -> {' '.join(one.output_columns)}" if one.output_columns else "")
        for one in answer.reached
    ]


CHILDREN = st.sampled_from(["", "none", "product", "all", "kitchen", "crm,web"])


@st.composite
def questions(draw: st.DrawFn) -> tuple[World, str, str]:
    """Draw a world, a table deployed in it, and the option for its readers."""
    world = draw(worlds(60))
    deployed_names = [name for name in world.names() if world.seen(name).state != "absent"]
    assume(deployed_names)
    name = draw(st.sampled_from(deployed_names))
    products = {made.product for made in world.declared.tables.values()}
    children = draw(CHILDREN)
    known = children in ("", "none", "product", "all") or set(children.split(",")) <= products
    return world, name, children if known else "all"


@given(questions())
def test_rebuilt_is_what_a_plan_of_a_rebuild_decides(question: tuple[World, str, str]) -> None:
    world, name, children = question
    answer = of(asked(world.declared, name, children=children, known=PlannerInput(world.observed), facts=world.facts),
                ImpactEvent.REBUILT)  # fmt: skip
    assert answer.request is not None
    if not answer.request.tables:
        event("nothing deployed reads it")
        assert not names(answer, ImpactEffect.REBUILT, ImpactEffect.RESTARTED, ImpactEffect.LEFT_BEHIND)
        return
    request = PlanRequest(tables=answer.request.tables, rebuild=True, children=children or "product")
    plan = world.plan(request)
    event("refused" if answer.refusals else "not refused")
    assert names(answer, ImpactEffect.REBUILT) | {name} == done(plan, Action.REBUILD) | {name}
    assert names(answer, ImpactEffect.RESTARTED) == done(plan, Action.RESTART) - {name}
    moved = {str(node.table) for node in plan.nodes if node.action not in (Action.KEEP, Action.RECORD)}
    assert names(answer, ImpactEffect.LEFT_BEHIND) == {str(left.table) for left in plan.left_behind} - moved
    assert set(answer.refusals) <= set(plan.refusals)


@given(questions())
def test_dropped_is_what_a_plan_of_a_delete_decides(question: tuple[World, str, str]) -> None:
    world, name, children = question
    answer = of(asked(world.declared, name, children=children, known=PlannerInput(world.observed), facts=world.facts),
                ImpactEvent.DROPPED)  # fmt: skip
    plan = world.plan(PlanRequest(verb="delete", tables=(T(name),), children=children))
    assert names(answer, ImpactEffect.DELETED) == done(plan, Action.DELETE) - {name}
    assert set(answer.refusals) <= set(plan.refusals)
    if any(" is external" in refusal.summary for refusal in answer.refusals):
        event("external")
        return
    read = any(" is read by " in refusal.summary and refusal.table == name for refusal in plan.refusals)
    event("read" if read else "not read")
    refused = (one for one in answer.reached if one.effect is ImpactEffect.REFUSED)
    assert any(name in one.why.removeprefix("reads ").split(", ") for one in refused) == read


def every_column() -> list[str]:
    own = (made for made in sample().tables.values() if not made.external)
    return [f"{made.name}.{column.name}" for made in own for column in made.parsed_ddl.columns]


def without(made: Table, column: str) -> Table:
    """Return a declared table without a column, in DDL and statement."""
    ddl = replace(made.parsed_ddl, columns=tuple(each for each in made.parsed_ddl.columns if each.name != column))
    assert made.parsed is not None
    facts = replace(made.parsed, columns=tuple(each for each in made.parsed.columns if each.name != column))
    return replace(
        made, ddl=replace(made.ddl, text=f"{made.ddl.text}\n-- without {column}"), parsed_ddl=ddl, parsed=facts
    )


@pytest.mark.parametrize("words", every_column())
def test_a_lost_column_is_what_a_plan_of_the_edit_decides(words: str) -> None:
    declared, (name, column) = sample(), words.split(".")
    answer = of(asked(declared, words, children="all"), ImpactEvent.COLUMN_LOST)
    edited = replace(declared, tables={**declared.tables, T(name): without(declared.tables[T(name)], column)})
    texts = {n: revision_of(made).texts for n, made in declared.tables.items()}
    observed = {n: replace(seen, deployed=texts[n]) for n, seen in as_if_running(declared).items()}
    plan = make_plan(edited, "dev", observed, PlanRequest(tables=(T(name),), children="all"))
    told = (refusal.summary for refusal in plan.refusals if "loses column" in refusal.summary)
    readers = {summary.split(", which ")[1].split(" reads at ")[0] for summary in told}
    assert names(answer, ImpactEffect.REFUSED) == readers
    rebuilt = done(plan, Action.REBUILD) - {name}
    assert names(answer, ImpactEffect.REBUILT) <= rebuilt <= names(answer, ImpactEffect.REBUILT, ImpactEffect.REFUSED)
    assert answer.refused == bool(plan.refusals)


def test_a_rebuild_in_the_sample_includes_its_product_and_leaves_others_behind() -> None:
    found = asked(sample(), "int_order_items")
    assert shown(of(found, ImpactEvent.REBUILT)) == [
        "rebuilt 1 int_priced_items < int_order_items",
        "rebuilt 2 fct_revenue < int_priced_items",
        "left behind 1 fct_kitchen_load < int_order_items",
        "left behind 2 vw_busy_windows < fct_kitchen_load",
    ]
    assert [one.why for one in of(found, ImpactEvent.REBUILT).reached][2:] == [
        "stays on int_order_items__v1", "stays on fct_kitchen_load__v1",
    ]  # fmt: skip


def test_a_drop_in_the_sample_is_refused_by_its_readers_and_starves_theirs() -> None:
    answer = of(asked(sample(), "int_order_items"), ImpactEvent.DROPPED)
    assert answer.refused and shown(answer) == [
        "refused 1 fct_kitchen_load < int_order_items",
        "refused 1 int_priced_items < int_order_items",
        "starved 2 fct_revenue < int_priced_items",
        "starved 2 vw_busy_windows < fct_kitchen_load",
    ]


def test_a_lost_column_is_traced_to_its_derived_columns() -> None:
    answer = of(asked(sample(), "pizzas.price_cents", children="all"), ImpactEvent.COLUMN_LOST)
    assert shown(answer) == [
        "refused 1 int_priced_items < pizzas! @ dml.int_priced_items.sql:3 -> price_cents",
        "rebuilt 2 fct_revenue < int_priced_items @ dml.fct_revenue.sql:3 -> revenue_cents",
    ]


def test_a_column_that_only_selects_rows_or_groups_is_used_without_an_output() -> None:
    declared = sample()
    where = of(asked(declared, "int_order_items.status"), ImpactEvent.COLUMN_LOST).reached[0]
    assert (where.effect, where.place, where.output_columns) == (ImpactEffect.REFUSED, "dml.int_priced_items.sql:6", ())
    key = of(asked(declared, "int_priced_items.pizza_name"), ImpactEvent.COLUMN_LOST).reached[0]
    assert (key.table, key.place, key.output_columns) == ("fct_revenue", "dml.fct_revenue.sql:2,5", ("pizza_name",))
    watermark = of(asked(declared, "int_paid_orders.paid_at"), ImpactEvent.COLUMN_LOST).reached[0]
    assert (watermark.effect, watermark.place) == (ImpactEffect.REFUSED, "dml.fct_takings.sql:5,6")


def test_a_reader_of_an_external_table_that_does_not_use_the_column_is_unaffected() -> None:
    c = table("c", "src", columns="note string")
    declared = project(table("src", columns="id bigint,note string"), table("a", "src"), table("b", "a"), c)
    answer = of(asked(declared, "src.note"), ImpactEvent.COLUMN_LOST)
    assert [(one.table, one.effect, one.why) for one in answer.reached] == [
        ("c", ImpactEffect.REFUSED, "reads src.note at dml.c.sql:2"),
        ("a", ImpactEffect.UNAFFECTED, "does not use src.note"),
        ("b", ImpactEffect.UNAFFECTED, "does not use src.note"),
    ]
    assert [refusal.summary for refusal in answer.refusals] == ["src is external: only its writer can change it"]


def test_a_statement_set_is_rebuilt_as_one_and_readers_of_its_other_tables_with_it() -> None:
    declared = project(
        table("src"), table("a", "src"), table("b", "a", unit="set"), table("c", "src", unit="set"), table("d", "c")
    )
    assert shown(of(asked(declared, "a"), ImpactEvent.REBUILT)) == [
        "rebuilt 1 b < a", "rebuilt 1 c < ", "rebuilt 2 d < c",
    ]  # fmt: skip


def test_tables_included_by_a_statement_set_or_an_external_table_say_so() -> None:
    declared = project(table("src"), table("a", "src", unit="set"), table("b", "src", unit="set"))
    (b,) = of(asked(declared, "a"), ImpactEvent.REBUILT).reached
    assert (b.table, b.depth, b.why) == ("b", 0, "one statement set with a")
    assert {one.why for one in of(asked(declared, "src"), ImpactEvent.REBUILT).reached} == {"reads src"}


def test_a_static_reader_is_restarted_and_its_own_readers_continue() -> None:
    declared = project(src="", dim="src", a="src dim!", b="a")
    assert shown(of(asked(declared, "dim"), ImpactEvent.REBUILT)) == ["restarted 1 a < dim!", "unaffected 2 b < a"]


def test_a_stopped_reader_does_not_prevent_a_delete_but_could_not_resume() -> None:
    declared = project(src="", a="src", b="a")
    observed = running(declared)
    observed[T("b")] = replace(observed[T("b")], state="stopped", wanted="stopped")
    answer = of(asked(declared, "a", known=PlannerInput(observed)), ImpactEvent.DROPPED)
    assert not answer.refused
    assert [(one.effect, one.why) for one in answer.reached] == [
        (ImpactEffect.STRANDED, "is stopped and reads a; it could not resume from its checkpoint")
    ]


def test_a_reader_fed_by_a_longer_path_is_starved_as_well() -> None:
    declared = project(src="", a="src", rest="a", x="a", y="x", z="y", both="rest z")
    observed = running(declared)
    observed[T("rest")] = replace(observed[T("rest")], state="stopped", wanted="stopped")
    found = {
        str(one.table): one.effect
        for one in of(asked(declared, "a", known=PlannerInput(observed)), ImpactEvent.DROPPED).reached
    }
    assert found == {"x": "refused", "rest": "stranded", "y": "starved", "z": "starved", "both": "starved"}


def test_an_undeployed_table_is_answered_as_if_everything_declared_ran() -> None:
    declared = project(src="", a="src", b="a")
    only = {T("b"): deployed(declared.tables[T("b")])}
    assert not asked(declared, "a", known=PlannerInput(only)).deployed
    assert shown(of(asked(declared, "a", known=PlannerInput(only)), ImpactEvent.REBUILT)) == ["rebuilt 1 b < a"]
    assert asked(declared, "b", known=PlannerInput(only)).deployed


def test_a_reader_that_is_declared_and_not_deployed_is_unaffected() -> None:
    declared = project(src="", a="src", b="a", c="b")
    found = asked(declared, "a", known=PlannerInput(running(declared, "src", "a", "b")))
    assert [(one.table, one.effect, one.why) for one in of(found, ImpactEvent.REBUILT).reached] == [
        ("b", ImpactEffect.REBUILT, of(found, ImpactEvent.REBUILT).reached[0].why),
        ("c", ImpactEffect.UNAFFECTED, "is not deployed"),
    ]


def test_exposures_are_told_of_every_new_name_and_of_a_drop() -> None:
    told = Settings(readers=("dashboard (bi-team)", "export"))
    declared = project(table("src"), table("a", "src"), table("b", "a", settings=told))
    found = asked(declared, "a")
    assert [(o.reader, o.owner, o.before, o.after) for o in of(found, ImpactEvent.REBUILT).outside] == [
        ("dashboard", "bi-team", "b__v1", "b__v2"), ("export", "", "b__v1", "b__v2"),
    ]  # fmt: skip
    plan = make_plan(declared, "dev", as_if_running(declared), PlanRequest(tables=(T("a"),), rebuild=True))
    assert of(found, ImpactEvent.REBUILT).outside == plan.readers
    assert of(found, ImpactEvent.DROPPED).outside == ()
    gone = of(asked(declared, "b"), ImpactEvent.DROPPED).outside
    assert [(o.before, o.after) for o in gone] == [("b__v1", ""), ("b__v1", "")]


def test_each_column_names_its_direct_users() -> None:
    columns = asked(sample(), "int_order_items").columns
    assert {column: sorted(uses) for column, uses in columns.items()} == {
        "order_id": ["int_priced_items"], "line": ["int_priced_items"],
        "pizza_id": ["fct_kitchen_load", "int_priced_items"], "status": ["int_priced_items"],
        "order_time": ["fct_kitchen_load", "int_priced_items"],
    }  # fmt: skip


def test_an_unknown_product_is_a_usage_error_with_a_suggestion_only_if_one_is_close() -> None:
    declared = project(table("src"), table("a", "src"), table("b", "a"), table("x", product="far"))
    with pytest.raises(UsageError, match="there is no product fat"):
        asked(declared, "a", children="fat")
    assert shown(of(asked(declared, "a", children="far"), ImpactEvent.REBUILT)) == ["rebuilt 1 b < a"]


def test_as_if_running_is_what_a_first_deploy_would_leave() -> None:
    declared = project(src="", a="src", b="a src!")
    assert as_if_running(declared)[T("b")].bindings == deployed(declared.tables[T("b")]).bindings


def test_a_position_in_a_file_edited_since_its_deploy_is_marked() -> None:
    declared = project(table("src", columns="id bigint, note string"), c="src")
    edited = table("c", "src", select="SELECT id\nFROM STREAM src\nWHERE note <> ''")
    now = replace(declared, tables={**declared.tables, T("c"): edited})
    (told,) = of(asked(now, "src.note", known=PlannerInput(running(declared))), ImpactEvent.COLUMN_LOST).reached
    assert told.why == "reads src.note at dml.c.sql:4 of the edited file; another text is deployed"
    (told,) = of(asked(now, "src.note", known=PlannerInput(running(now))), ImpactEvent.COLUMN_LOST).reached
    assert told.why == "reads src.note at dml.c.sql:4"


def test_an_answer_names_the_tables_whose_files_differ_from_what_is_deployed() -> None:
    before = project(src="", a="src", b="a", c="src")
    other = table("b", "a", select="SELECT id FROM STREAM a WHERE id > 1")
    now = replace(before, tables={**before.tables, T("b"): other})
    known = PlannerInput(running(before))
    assert asked(now, "src", known=known).edited == ("b",)
    assert asked(now, "b", known=known).edited == ("b",)
    assert asked(now, "c", known=known).edited == asked(before, "src", known=known).edited == ()
