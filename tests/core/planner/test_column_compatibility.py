"""Edits of a table's columns under each compatibility mode, and the readers that make a plan refuse them."""

from dataclasses import replace

import pytest

from core.model.names import TableName as T
from core.observed.planner_input import ObservedDeployment, OpenTicket
from core.observed.versions import Binding
from core.plan.model import Plan
from core.plan.request import PlanRequest
from core.planner.planner import make_plan
from core.project.model import Compatibility, Project
from core.project.revision import RevisionTexts
from core.project_reader.loader import read_project
from tests.core.project_reader.test_loader import MANIFEST
from tests.support.domain_builders import steps

SRC = "CREATE TABLE src (id BIGINT, v INT, note STRING, must STRING NOT NULL) USING json LOCATION 'in'"
OLD = "id BIGINT, v INT, note STRING, must STRING NOT NULL"
READER = "INSERT INTO b\nSELECT id,\n  v\nFROM STREAM a"


def project(
    columns: str = OLD,
    yml: str = "",
    *,
    more: str = "",
    reader: str = READER,
    using: str = "parquet",
    own: str = "id BIGINT, v BIGINT",
    own_yml: str = "",
) -> Project:
    names = ", ".join(part.split()[0] for part in columns.split(", "))
    known = ", ".join(
        name if name in OLD else f"CAST(NULL AS {part.split()[1]}) AS {name}"
        for name, part in zip(names.split(", "), columns.split(", "), strict=True)
    )
    lines = columns.replace(", ", ",\n")
    found, problems = read_project(
        {
            "headgate.yml": MANIFEST + "connectors: {delta: {}}\n" + more,
            "pipelines/sources/p/src/sql-scripts/ddl.src.sql": SRC,
            "pipelines/facts/p/a/sql-scripts/ddl.a.sql": f"CREATE TABLE a (\n{lines}\n) USING {using}",
            "pipelines/facts/p/a/sql-scripts/dml.a.sql": f"INSERT INTO a SELECT {known} FROM STREAM src",
            "pipelines/facts/p/a/a.yml": yml,
            "pipelines/facts/q/b/sql-scripts/ddl.b.sql": f"CREATE TABLE b ({own})"
            + f" USING {using}" * ("USING" not in own),
            "pipelines/facts/q/b/b.yml": own_yml,
            "pipelines/facts/q/b/sql-scripts/dml.b.sql": reader,
        }
    )
    assert found is not None, problems
    return found


def texts(declared: Project, table: str) -> RevisionTexts:
    from core.project_reader.revision_reader import revision_of

    return revision_of(declared.tables[T(table)]).texts


def planned(
    now: Project,
    before: Project | None = None,
    *,
    read: int = 1,
    serving: int = 1,
    children: str = "product",
    **known: object,
) -> Plan:
    """Plan `a`, of which version `serving` serves and version `read` is read by `b`."""
    before = before or project(yml="")
    observed = {
        T("src"): ObservedDeployment("running"),
        T("a"): ObservedDeployment(
            "running", deployed=texts(before, "a"), version=serving, highest_version=serving, pointer=f"a__v{serving}",
            bindings=(Binding(T("src"), 0, True),),
        ),
        T("b"): ObservedDeployment(
            "running", deployed=texts(before, "b"), version=1, highest_version=1, pointer="b__v1",
            bindings=(Binding(T("a"), read, True),),
        ),
    }  # fmt: skip
    observed[T("a")] = replace(observed[T("a")], **known)  # type: ignore[arg-type]  # Fields by name.
    return make_plan(now, "dev", observed, PlanRequest(tables=(T("a"),), children=children))


def refused(plan: Plan) -> set[str]:
    return {
        f"{r.fields['direction']} {r.fields['conflict']['kind']}" for r in plan.refusals if r.kind == "incompatible"
    }  # type: ignore[index]


EDITS = {
    "added nullable": (f"{OLD}, more STRING", set()),
    "added in the middle": (OLD.replace("note", "more STRING, note"), set()),
    "added NOT NULL": (f"{OLD}, more STRING NOT NULL", {"backward added_not_null"}),
    "dropped, read by nobody": (OLD.replace(", note STRING", ""), set()),
    "dropped NOT NULL": (OLD.replace(", must STRING NOT NULL", ""), {"forward dropped_not_null"}),
    "renamed": (OLD.replace("note", "remark"), set()),
    "widened": (OLD.replace("v INT", "v BIGINT"), {"forward cannot_read"}),
    "narrowed": (OLD.replace("id BIGINT", "id INT"), {"backward cannot_read"}),
    "narrowed unnoticed": (OLD.replace("v INT", "v SMALLINT"), {"backward reads_wrongly"}),
    "another type": (OLD.replace("note STRING", "note DATE"), {"backward cannot_read", "forward cannot_read"}),
    "reordered": (OLD.replace("id BIGINT, v INT", "v INT, id BIGINT"), set()),
    "now NOT NULL": (OLD.replace("note STRING", "note STRING NOT NULL"), {"backward became_not_null"}),
    "now nullable": (OLD.replace(" NOT NULL", ""), {"forward became_nullable"}),
}


@pytest.mark.parametrize("mode", Compatibility)
@pytest.mark.parametrize("edit", EDITS)
def test_a_mode_refuses_the_edits_that_break_its_direction(edit: str, mode: Compatibility) -> None:
    columns, broken = EDITS[edit]
    against = {word for word, counts in (("backward", mode.backward), ("forward", mode.forward)) if counts}
    found = planned(project(columns, f"compatibility: {mode}"))
    assert refused(found) == {conflict for conflict in broken if conflict.split()[0] in against}


def test_without_a_mode_every_edit_is_planned_as_before() -> None:
    for columns, _ in EDITS.values():
        assert not refused(planned(project(columns)))


def test_a_refusal_names_column_rule_mode_version_readers_and_lines() -> None:
    found = planned(project(OLD.replace("v INT", "v STRING"), "compatibility: full\nreaders: [report (bi)]"))
    (first, second) = sorted(str(refusal.summary) for refusal in found.refusals)
    assert first == (
        "a changes v from int to string: int cannot be read as string (pipelines/facts/p/a/sql-scripts/ddl.a.sql:3): "
        "this is not backward compatible with a__v1, read by b (dml.b.sql:3), report; its yml sets compatibility: full"
    )
    assert "string cannot be read as int" in second and "not forward compatible" in second


def test_the_nearest_mode_wins() -> None:
    columns = f"{OLD}, more STRING NOT NULL"
    everywhere = "defaults: {compatibility: backward}\n"
    of_product = everywhere + "products: {p: {compatibility: forward}}\n"
    (refusal,) = planned(project(columns, more=everywhere)).refusals
    assert "for all tables, headgate.yml sets compatibility: backward" in str(refusal.summary)
    assert not refused(planned(project(columns, more=of_product)))
    assert not refused(planned(project(columns, "compatibility: none", more=everywhere)))
    (refusal,) = planned(project(columns, "compatibility: full", more=of_product)).refusals
    assert "its yml sets compatibility: full" in str(refusal.summary)
    dropped = OLD.replace(", must STRING NOT NULL", "")
    (refusal,) = planned(project(dropped, more=of_product)).refusals
    assert "for product p, headgate.yml sets compatibility: forward" in str(refusal.summary)


def test_a_nullable_column_may_be_dropped_only_if_no_reader_names_it() -> None:
    dropped = OLD.replace(", note STRING", "")
    assert refused(planned(project(dropped, "compatibility: forward\nreaders: [report]"))) == {"forward dropped"}
    names_it = "INSERT INTO b\nSELECT id, v FROM STREAM a WHERE note > 'x'"
    found = planned(project(dropped, "compatibility: forward"), project(reader=names_it))
    assert refused(found) == {"forward dropped"}
    assert "read by b (dml.b.sql:2)" in str(found.refusals[0].summary)
    assert not refused(planned(project(dropped, "compatibility: backward\nreaders: [report]")))


def test_a_refusal_does_not_name_a_statement_that_does_not_name_the_dropped_column() -> None:
    found = planned(project(OLD.replace(", note STRING", ""), "compatibility: full\nreaders: [finance report (bi)]"))
    (refusal,) = found.refusals
    assert "compatible with a__v1, read by finance report;" in str(refusal.summary)


V1 = "CREATE TABLE a (id BIGINT, v INT, note STRING, old INT NOT NULL) USING parquet"


def test_versions_without_readers_count_only_for_transitive_modes() -> None:
    new = f"{OLD}, more STRING"
    past = {"replaced_ddl": ((1, V1),), "serving": 2}
    assert not refused(planned(project(new, "compatibility: forward"), read=2, **past))  # type: ignore[arg-type]
    found = planned(project(new, "compatibility: forward_transitive"), read=2, **past)  # type: ignore[arg-type]
    assert refused(found) == {"forward dropped_not_null"}
    assert "a__v1, which no known reader reads" in str(found.refusals[0].summary)


def test_a_version_that_a_reader_is_left_on_counts_for_every_mode() -> None:
    new = f"{OLD}, more STRING"
    found = planned(project(new, "compatibility: forward"), read=1, serving=2, replaced_ddl=((1, V1),))
    assert "a__v1, read by b;" in str(found.refusals[0].summary)
    ticket = OpenTicket("report", 1, "run")
    found = planned(
        project(new, "compatibility: forward"), read=2, serving=2, replaced_ddl=((1, V1),), tickets=(ticket,)
    )
    assert "a__v1, read by report;" in str(found.refusals[0].summary)


def test_a_mode_that_is_lowered_with_the_columns_is_named_in_a_warning() -> None:
    before = project(yml="compatibility: full")
    found = planned(project(f"{OLD}, more STRING NOT NULL", "compatibility: none"), before)
    assert not found.refusals
    assert [str(w.summary) for w in found.warnings if w.kind == "compatibility_lowered"] == [
        "lowers its compatibility from full to none; full would have refused this plan, because a adds more string NOT "
        "NULL, which is missing in earlier rows"
    ]


WITH_N = "id BIGINT, v INT, note STRING, must STRING NOT NULL, n INT"


def in_place(mode: str, using: str, *, children: str = "all") -> list[str]:
    """Plan a column that is added to `a` in place and passed on by b; return the steps."""
    before, yml = project(using=using), f"compatibility: {mode}"
    now = project(WITH_N, yml, using=using)
    passes = project(WITH_N, yml, using=using, reader="INSERT INTO b SELECT id, n AS v FROM STREAM a").tables[T("b")]
    now = replace(now, tables={**now.tables, T("b"): passes})
    return steps(planned(now, before, children=children))


def test_readers_restart_before_the_statement_that_fills_a_new_column_if_the_mode_is_backward() -> None:
    for mode in ("backward", "backward_transitive"):
        assert in_place(mode, "parquet") == ["alter a@1", "restart b@1 < 1", "restart a@1 < 1,2", "swap a < 3"]
        assert in_place(mode, "delta") == ["alter a@1", "restart b@1 < 1", "restart a@1 < 1,2", "swap a < 3"]
        assert in_place(mode, "parquet", children="none") == ["alter a@1", "restart a@1 < 1", "swap a < 2"]


def test_no_other_mode_changes_the_order() -> None:
    for mode in ("none", "forward", "full", "full_transitive"):
        assert in_place(mode, "parquet") == ["alter a@1", "restart a@1 < 1", "swap a < 2", "restart b@1 < 2"]


SHAPES = {
    "one reader": {"b": "a"},
    "two readers": {"b": "a", "c": "a"},
    "a chain": {"b": "a", "c": "b"},
    "a diamond": {"b": "a", "c": "a", "d": "b c"},
}


def shaped(shape: str, mode: str, using: str, columns: str, select: str) -> Project:
    """Return a project in which `a` is read as the shape says, and every table has the same columns."""
    files = {
        "headgate.yml": MANIFEST + f"connectors: {{delta: {{}}}}\ndefaults: {{compatibility: {mode}}}\n",
        "pipelines/sources/p/src/sql-scripts/ddl.src.sql": SRC.replace("v INT", "n INT"),
    }
    for table, parents in {"a": "src", **SHAPES[shape]}.items():
        query = " UNION ALL ".join(f"SELECT {select} FROM STREAM {parent}" for parent in parents.split())
        scripts = f"pipelines/facts/p/{table}/sql-scripts"
        files[f"{scripts}/ddl.{table}.sql"] = f"CREATE TABLE {table} ({columns}) USING {using}"
        files[f"{scripts}/dml.{table}.sql"] = f"INSERT INTO {table} {query}"
    found, problems = read_project(files)
    assert found is not None, problems
    return found


@pytest.mark.sampled
@pytest.mark.parametrize("mode", Compatibility)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("using", "was", "now"),
    [
        ("parquet", ("id BIGINT", "id"), ("id BIGINT, n INT", "id, n")),
        ("delta", ("id BIGINT", "id"), ("id BIGINT, n INT", "id, n")),
        ("delta", ("id BIGINT, n INT", "id, n"), ("id BIGINT, n BIGINT", "id, n")),
    ],
    ids=["added to Parquet", "added to Delta", "widened"],
)
def test_every_reader_restarts_on_the_side_of_its_source_that_the_mode_gives(
    using: str, was: tuple[str, str], now: tuple[str, str], shape: str, mode: Compatibility
) -> None:
    before, after = shaped(shape, mode, using, *was), shaped(shape, mode, using, *now)
    reads = {"a": "src", **SHAPES[shape]}
    observed = {T("src"): ObservedDeployment("running")}
    for table, parents in reads.items():
        bindings = tuple(Binding(T(each), int(each != "src"), True) for each in parents.split())
        observed[T(table)] = ObservedDeployment(
            "running", deployed=texts(before, table), version=1, highest_version=1, pointer=f"{table}__v1",
            bindings=bindings,
        )  # fmt: skip
    found = make_plan(after, "dev", observed, PlanRequest(tables=tuple(map(T, reads)), children="all"))
    if "n INT" in was[0] and mode.forward:
        assert {str(each.table) for each in found.refusals} == set(reads)
        return
    earlier = {step.n: set(step.after) for step in found.steps}
    for step in found.steps:
        earlier[step.n].update(*(earlier[n] for n in step.after))
    restart = {str(step.table): step.n for step in found.steps if step.do == "restart"}
    alter = {str(step.table): step.n for step in found.steps if step.do == "alter"}
    assert not found.refusals and set(restart) == set(alter) == set(reads)
    for reader, parents in SHAPES[shape].items():
        for parent in parents.split():
            first, then = (reader, parent) if mode.readers_first else (parent, reader)
            assert restart[first] in earlier[restart[then]]
            assert {alter[parent], alter[reader]} <= earlier[restart[reader]]


def test_a_rebuild_has_the_same_order_in_every_mode() -> None:
    dropped = OLD.replace(", note STRING", "")
    every = {mode: steps(planned(project(dropped, f"compatibility: {mode}"))) for mode in Compatibility}
    assert every[Compatibility.NONE] and all(found == every[Compatibility.NONE] for found in every.values())


def test_a_new_mode_alone_is_recorded_without_a_restart() -> None:
    found = planned(project(yml="compatibility: full_transitive"))
    assert [str(node.action) for node in found.nodes if node.table == "a"] == ["record"]


@pytest.mark.parametrize(
    ("yml", "more", "problem"),
    [
        ("compatibility: ful", "", "compatibility must be one of none, backward, forward"),
        ("", "products: {p: {compatibility: both}}\n", "products.p.compatibility must be one of"),
        ("", "products: {p: {owner: me}}\n", "products.p.owner is not a known key"),
        ("", "defaults: {compatibility: 3}\n", "defaults.compatibility must be"),
    ],
)
def test_a_mode_that_does_not_exist_is_a_problem(yml: str, more: str, problem: str) -> None:
    with pytest.raises(AssertionError) as raised:
        project(yml=yml, more=more)
    assert problem in str(raised.value)


def test_a_mode_of_a_product_without_tables_is_a_warning() -> None:
    _, problems = read_project({"headgate.yml": MANIFEST + "products:\n  pp: {compatibility: full}\n"})
    assert any("no table has the product pp" in str(problem) for problem in problems), problems


@pytest.mark.parametrize("mode", ["backward", "forward", "full_transitive", "none"])
def test_a_star_into_a_table_that_lacks_a_new_column_and_whose_format_refuses_it_is_broken(mode: str) -> None:
    was, reader = OLD.replace(", must STRING NOT NULL", ""), "INSERT INTO b SELECT * FROM STREAM a"

    def lacking(now: str, *, own: str = was, select: str = reader, using: str = "delta") -> list[str]:
        before = project(was, reader=select, own=f"{own}) USING {using} --")
        found = planned(project(now, f"compatibility: {mode}"), before)
        return [str(each.summary) for each in found.refusals if each.kind == "star_incompatible"]

    said = [
        "b selects * from a, but its own table has no more: every batch over the new version would fail; its yml sets "
        f"compatibility: {mode}"
    ] * (mode in ("forward", "full_transitive"))
    added = f"{was}, more STRING"
    assert lacking(added) == said
    assert lacking(added, using="parquet") == [] == lacking(added, own=f"{was}, more STRING")
    assert lacking(added, select="INSERT INTO b SELECT id, v, note FROM STREAM a") == []


STAR = "INSERT INTO b\nSELECT * FROM STREAM a"
STATEMENTS_WITH_A_STAR = {
    "only passes it on": (STAR, "note STRING", "", True),
    "in a subquery": ("INSERT INTO b SELECT x.* FROM (SELECT * FROM STREAM a) x", "note STRING", "", True),
    "names it as well": (f"{STAR} WHERE note > 'x'", "note STRING", "", False),
    "in an expression": ("INSERT INTO b SELECT id, to_json(struct(*)) AS note FROM STREAM a", "note STRING", "", False),
    "united by position": (f"{STAR} UNION ALL SELECT * FROM STREAM a", "note STRING", "", False),
    "into NOT NULL": (STAR, "note STRING NOT NULL", "", False),
    "into a partition column": (STAR, "note STRING) USING parquet PARTITIONED BY (note", "", False),
    "into a keyed table": (STAR, "note STRING", "mode: upsert\nkey: [id]", False),
    "without a column of its own": (STAR, "v INT", "", True),
}


@pytest.mark.parametrize("statement", STATEMENTS_WITH_A_STAR)
def test_a_star_goes_on_without_a_dropped_column_if_its_own_table_can_be_null(statement: str) -> None:
    sql, column, yml, goes_on = STATEMENTS_WITH_A_STAR[statement]
    using = "delta" if yml else "parquet"
    before = project(reader=sql, own=f"id BIGINT, {column}", own_yml=yml, using=using)
    dropped = OLD.replace(", note STRING", "")
    found = planned(project(dropped, "compatibility: forward", using=using), before)
    assert refused(found) == (set() if goes_on else {"forward dropped"})
    said = "selects * from a, which drops note: it writes NULL there once it reads the new version"
    warned = [(each.table, str(each.summary)) for each in found.warnings if each.kind == "star_writes_null"]
    assert warned == ([("b", said)] if goes_on and column.startswith("note") else [])
