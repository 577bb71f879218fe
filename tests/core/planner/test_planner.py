"""Plans as text pairs: fixtures/plans/*.plan hold declarations, observations, the request and the whole plan."""

from dataclasses import replace
from pathlib import Path

import pytest

from core.model.actions import Strategy, strategy_lines, typed_strategy
from core.model.errors import UsageError
from core.model.names import TableName as T
from core.observed.planner_input import ObservedDeployment
from core.observed.table_statistics import TableStatistics
from core.observed.versions import Binding
from core.plan.descriptions import step_line
from core.plan.model import Plan
from core.plan.rendering import plan_lines
from core.plan.request import PlanRequest, command_words, parse_choice, parse_choices, parse_start
from core.planner.planner import make_plan
from core.project.model import Project, Settings, Table
from core.sql.ddl_reader import read_ddl
from tests.support.domain_builders import actions, deployed, plan, project, running, steps, table

FIGURES = {
    "rows": "rows", "bytes": "bytes", "rate": "rate_rows_s", "gone": "gone", "earliest": "earliest",
    "state_bytes": "state_bytes",
}  # fmt: skip
"""Names of a table's measured values, by the words that fixtures use for them."""

FIXTURES = sorted((Path(__file__).parents[2] / "fixtures" / "plans").glob("*.plan"))


def read_case(text: str) -> tuple[Project, dict[T, ObservedDeployment], PlanRequest, str]:
    """Read a fixture: `a < src x! product=p stateful` declares a table, `a state=failed` overrides its running state.

    `a rows=800 rate=100` gives its measurements.
    """
    parts: dict[str, list[str]] = {}
    head, _, expected = text.partition("plan:\n")
    for line in head.splitlines():
        if line.endswith(":"):
            lines = parts.setdefault(line[:-1], [])
        elif line.startswith("  "):
            lines.append(line.strip())
        elif line.startswith("request: "):
            parts["request"] = line.split()[1:]
    declared = project(*(_declared(line) for line in parts["declared"]))
    observed = running(declared)
    for line in parts.get("deployed", []):
        name, *words = line.split()
        known = dict(word.split("=") for word in words)
        if known.get("state") == "absent" or name == "nothing":
            for gone in [T(name)] if name != "nothing" else list(observed):
                observed.pop(gone, None)
            continue
        observed[T(name)] = _observed(declared, T(name), known, observed.get(T(name)))
    return declared, observed, _request(parts["request"]), expected


def _declared(line: str):  # type: ignore[no-untyped-def]
    head, _, rest = line.partition("<")
    reads = " ".join(word for word in rest.split() if "=" not in word and word != "stateful")
    named = dict(word.split("=") for word in line.split() if "=" in word)
    owner = named.pop("owner", "")
    return table(head.split()[0], reads, stateful="stateful" in line.split(), settings=Settings(owner=owner), **named)


def _observed(
    declared: Project, name: T, known: dict[str, str], before: ObservedDeployment | None
) -> ObservedDeployment:
    reads = dict(word.split("@") for word in known.pop("reads", "").split(",") if word)
    version = int(known.pop("version", "1"))
    base = before or ObservedDeployment()
    if name in declared.tables:
        base = deployed(declared.tables[name], version=version, bindings={k: int(v) for k, v in reads.items()})
    else:
        bindings = tuple(Binding(T(parent), int(bound), True) for parent, bound in sorted(reads.items()))
        base = ObservedDeployment(
            state="running", version=version, highest_version=version, bindings=bindings, pointer="x"
        )
    if known.get("revision") == "changed":
        base = replace(base, deployed=None)
    if "retained" in known:
        base = replace(base, retained=tuple(int(v) for v in known.pop("retained").split(",")))
    if "checkpoint" in known:
        base = replace(base, checkpoint_ok=known.pop("checkpoint") == "ok")
    if "highest" in known:
        base = replace(base, highest_version=int(known.pop("highest")))
    measured = {FIGURES[word]: float(known.pop(word)) for word in FIGURES if word in known}
    if measured:
        whole = {
            field: value if field in ("rate_rows_s", "earliest") else int(value) for field, value in measured.items()
        }
        base = replace(base, statistics=TableStatistics(**whole))  # type: ignore[arg-type]  # Fields by name.
    return replace(base, **known)


def _request(words: list[str]) -> PlanRequest:
    found = PlanRequest(verb=words[0])
    rest = iter(words[1:])
    for word in rest:
        match word:
            case "--children":
                found = replace(found, children=next(rest))
            case "--exclude":
                found = replace(found, exclude=tuple(map(T, next(rest).split(","))))
            case "--product":
                found = replace(found, products=(next(rest),))
            case "--rebuild":
                found = replace(found, rebuild=True)
            case "--keep-table":
                found = replace(found, keep_table=True)
            case "--from":
                found = replace(found, start=parse_start(next(rest)))
            case "--strategy":
                found = replace(found, choices=(*found.choices, parse_choice(next(rest))))
            case "everything":
                found = replace(found, everything=True)
            case _:
                found = replace(found, tables=(*found.tables, T(word)))
    return found


@pytest.mark.parametrize("strategy", Strategy)
def test_a_plan_names_a_strategy_as_it_is_typed_and_as_help_names_it(strategy: Strategy) -> None:
    typed = f"a={typed_strategy(strategy)}"
    assert command_words(PlanRequest(tables=(T("a"),), choices=(parse_choice(typed),)))[-1] == typed
    assert "_" not in typed and any(line.startswith(typed[2:]) for line in strategy_lines(76))


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        (("a=carry_ovr",), "there is no strategy 'carry_ovr' (did you mean carry-over?)"),
        (("a=zzz",), "in-place, partial, fork, seeded, carry-over"),
        (("a=in_place", "a=carry-over"), "two strategies are chosen for a: in-place and carry-over"),
    ],
)
def test_an_invalid_choice_is_reported_in_the_terms_of_the_help(chosen: tuple[str, ...], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_choices(chosen)
    assert said in f"{refused.value.summary} ({refused.value.remedy})"


def drawn(found: Plan) -> str:
    """Return the lines of a plan without its hash, followed by its steps."""
    head, *lines = plan_lines(found, 100)
    # A plan that does nothing is not stored, so it shows no hash.
    assert (found.hash[:4] in head) is not bool(found.refusals or found.empty)
    return "\n".join([*lines, *map(step_line, found.steps)]) + "\n"


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_plan_is_as_written(path: Path) -> None:
    declared, observed, request, expected = read_case(path.read_text())
    assert drawn(make_plan(declared, "dev", observed, request)) == expected


def test_the_fixtures_exist() -> None:
    assert len(FIXTURES) > 20


def test_an_unknown_environment_is_a_usage_error_with_the_nearest_name() -> None:
    with pytest.raises(UsageError, match="no environment deb") as caught:
        make_plan(project(src=""), "deb", {}, PlanRequest(everything=True))
    assert caught.value.remedy == "did you mean dev?"


def test_an_unchanged_running_statement_needs_no_step() -> None:
    declared = project(src="", a="src", b="a")
    found = plan(declared, running(declared))
    assert found.empty and not found.destructive and set(actions(found).values()) == {"keep"}


def test_every_step_says_why_in_words() -> None:
    declared = project(src="", a="src", b="a")
    said = [str(step.why) for step in plan(declared, {}, "b").steps if step.do == "start"]
    assert said == ["it is not running and is read by tables of this plan", "it is not deployed yet"]


def test_an_offline_observation_needs_only_the_state() -> None:
    declared = project(src="", a="src", b="a")
    observed = {T("a"): ObservedDeployment(state="running"), T("b"): ObservedDeployment(state="stopped")}
    assert steps(plan(declared, observed, "b")) == ["resume b@1"]


def test_a_statement_that_never_served_gets_its_pointer_when_it_resumes() -> None:
    declared = project(src="", a="src")
    observed = running(declared)
    observed[T("a")] = replace(observed[T("a")], state="failed", pointer="")
    assert steps(plan(declared, observed, "a")) == ["resume a@1", "swap a < 1"]


def test_versions_that_were_used_are_never_used_again() -> None:
    declared = project(src="", a="src")
    assert steps(plan(declared, {T("a"): ObservedDeployment(highest_version=4)}, "a"))[1] == "create a@5 < 1"


def test_a_static_side_is_read_only_once_it_has_caught_up() -> None:
    declared = project(table("src"), table("d", "src"), table("a", "src d!"))
    found = plan(declared, running(declared), "d", rebuild=True)
    assert steps(found) == [
        "create d@2", "start d@2 < 1", "catch_up d@2 < 2", "restart a@1 < 3", "validate d@2 < 3", "swap d < 3,5",
        "stop d@1 < 4,6",
    ]  # fmt: skip
    assert (found.nodes[-1].row, found.nodes[-1].bindings) == (
        "14",
        (Binding(T("d"), 2, False), Binding(T("src"), 0, True)),
    )


def test_a_reader_starts_once_a_static_side_that_starts_with_it_is_complete_and_all_that_fills_it() -> None:
    declared = project(table("src"), table("e", "src"), table("d", "e"), table("b", "src"), table("a", "b d!"))
    found = plan(declared, {}, "a", children="all")
    by_name = {f"{step.do} {step.table}": step for step in found.steps}
    whole_e, whole_d, start_a = by_name["catch_up e"], by_name["catch_up d"], by_name["start a"]
    assert whole_e.after == (by_name["start e"].n,)
    assert whole_d.after == (by_name["start d"].n, whole_e.n)
    assert whole_d.n in start_a.after and "catch_up b" not in by_name


def test_a_static_side_is_waited_for_once_and_one_from_outside_never() -> None:
    declared = project(table("src"), table("x"), table("d", "src"), table("a", "src d! x!"), table("b", "src d!"))
    found = plan(declared, {})
    assert [step.table for step in found.steps if step.do == "catch_up"] == ["d"]
    (whole,) = [step.n for step in found.steps if step.do == "catch_up"]
    assert all(whole in step.after for step in found.steps if step.do == "start" and step.table in "ab")


def test_the_rest_of_a_statement_set_is_deployed_with_it() -> None:
    declared = project(table("src"), table("a", "src", unit="u"), table("b", "src", unit="u"))
    found = plan(declared, {}, "a")
    assert actions(found) == {"src": "start", "a": "start", "b": "start"}
    assert found.nodes[-1].because_of == ("a",)


def test_half_a_statement_set_is_not_deleted() -> None:
    declared = project(table("src"), table("a", "src", unit="u"), table("b", "src", unit="u"))
    found = plan(declared, running(declared), "a", verb="delete")
    assert found.refusals[0].remedy == "delete the set: headgate plan delete a b" and found.empty


def test_a_rate_limit_under_a_watermark_is_not_rebuilt() -> None:
    from core.sql.statement import Watermark

    limited = table("a", "src", stateful=True)
    read = replace(
        limited.parsed.reads[0], options=(("maxFilesPerTrigger", "1"),), watermark=Watermark("ts", "1 minute")
    )  # type: ignore[union-attr]  # `a` has a statement.
    limited = replace(limited, parsed=replace(limited.parsed, reads=(read,)))  # type: ignore[type-var]  # As above.
    declared = project(table("src"), limited)
    found = plan(declared, running(declared), "a", rebuild=True)
    assert [guard.name for guard in found.guards if guard.verdict == "deny"] == ["rates"]
    assert found.refusals and found.empty


def test_the_hash_covers_observations_inside_the_scope_and_nothing_outside() -> None:
    declared = project(src="", a="src", b="src")
    before = plan(declared, running(declared), "a", rebuild=True)
    inside = running(declared, a="degraded")
    outside = {**running(declared), T("b"): replace(running(declared)[T("b")], checkpoint_id="other")}
    assert plan(declared, inside, "a", rebuild=True).hash != before.hash
    assert plan(declared, outside, "a", rebuild=True).hash == before.hash


def test_a_request_says_the_same_in_any_order_and_with_repeats() -> None:
    declared = project(src="", a="src", b="src")
    one = make_plan(declared, "dev", {}, PlanRequest(tables=(T("b"), T("a"), T("b")), children="q, p"))
    assert one.request.tables == ("a", "b") and one.request.children == "p,q"


def test_a_delete_sets_every_version_aside_and_stops_only_those_that_may_run() -> None:
    declared = project(src="", a="src")
    observed = {T("a"): replace(running(declared)[T("a")], version=3, highest_version=3, kept=(1, 2), retained=(2,))}
    assert steps(plan(declared, observed, "a", verb="delete")) == [
        "stop a@3", "stop a@2", "unpoint a@3 < 1,2",
        "tombstone a@3 < 1,2,3", "tombstone a@2 < 1,2,3", "tombstone a@1 < 1,2,3",
    ]  # fmt: skip


def test_an_old_version_that_failed_under_its_reader_ends_with_it_too() -> None:
    declared = project(src="", a="src", b="a")
    observed = running(declared)
    observed[T("a")] = replace(observed[T("a")], version=2, highest_version=2, kept=(1,))
    assert steps(plan(declared, observed, "b"))[-2:] == ["stop b@1 < 5", "stop a@1 < 5,6"]


def test_a_column_added_to_an_external_table_is_altered_and_recorded() -> None:
    before = project(table("src", columns="id bigint"))
    after = project(table("src", columns="id bigint, v string"))
    found = plan(after, running(before), "src")
    assert steps(found) == ["alter src@0", "record src@0 < 1"]


def test_another_change_of_an_external_table_is_refused() -> None:
    before = project(table("src", columns="id bigint"))
    after = project(table("src", columns="id string"))
    found = plan(after, running(before), "src")
    assert [r.summary for r in found.refusals] == ["src is external and changed: column id: bigint → string"]


def on_delta(columns: str, rest: str = "LOCATION 'landing'") -> Table:
    """Return an external table with a log."""
    found = table("src")
    text = f"CREATE TABLE src ({columns}) USING delta {rest}"
    ddl, problems = read_ddl(text, "ddl.src.sql")
    assert ddl is not None, problems
    return replace(found, ddl=replace(found.ddl, text=text), parsed_ddl=ddl)


@pytest.mark.parametrize(
    "after",
    [on_delta("id bigint, v string"), on_delta("id decimal(10,2)"), on_delta("v string"),
     on_delta("id int", "LOCATION 'landing' TBLPROPERTIES ('delta.enableChangeDataFeed'='true')")],
    ids=["added", "another type", "another column", "a property"],
)  # fmt: skip
def test_other_columns_of_an_external_table_with_a_log_are_registered_and_nothing_is_altered(after: Table) -> None:
    before, declared = project(on_delta("id int"), table("a", "src")), project(after, table("a", "src"))
    found = plan(declared, running(before), "src")
    assert steps(found) == ["register src@0"] and not found.refusals
    assert actions(found) == {"src": "restart"}, "what its readers meet others have done before"


def test_an_external_table_whose_log_is_elsewhere_is_a_different_table() -> None:
    before, after = project(on_delta("id int")), project(on_delta("id int", "LOCATION 'lake'"))
    found = plan(after, running(before), "src")
    assert [r.summary for r in found.refusals] == ["src is external and changed: location: landing → lake"]


def test_an_external_table_does_not_become_a_statement() -> None:
    before, after = project(src="", a="src"), project(table("src", "landed"), landed="", a="src")
    found = plan(after, running(before), "src")
    words = "src is registered as external, and has a statement now: its name leads to a table that others write"
    assert [r.summary for r in found.refusals] == [words]
