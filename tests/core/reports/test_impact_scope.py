"""The part of a project that the plan of one table needs; `test_impact` shows that plans over it are equal."""

from dataclasses import replace

from core.observed.planner_input import ObservedDeployment
from core.observed.versions import Binding
from core.reports.impact import as_if_running
from core.reports.impact_scope import affected_part
from tests.support.domain_builders import T, project, table

DECLARED = project(
    table("src"),
    table("a", "src"),
    table("b", "a side"),
    table("side", "far"),
    table("far"),
    table("c", "b", unit="set"),
    table("d", "away", unit="set"),
    table("away"),
    table("other", "src"),
)


def part(root: str, observed: dict[str, ObservedDeployment] | None = None) -> str:
    found, seen = affected_part(DECLARED, {T(name): one for name, one in (observed or {}).items()}, T(root))
    assert set(seen) <= set(observed or {})
    return " ".join(found.tables)


def test_the_scope_is_everything_below_with_statement_sets_and_everything_above_those() -> None:
    assert part("a") == "a away b c d far side src"
    assert part("other") == "other src"


def test_bound_versions_count_as_read() -> None:
    observed = {str(name): seen for name, seen in as_if_running(DECLARED).items()}
    observed["other"] = replace(observed["other"], bindings=(Binding(T("c"), 1, True),))
    assert "other" in part("a", observed).split()


def test_a_deployment_without_bindings_makes_the_scope_the_whole_project() -> None:
    assert part("other", {"c": ObservedDeployment(state="running")}) == " ".join(DECLARED.tables)


def test_a_pointer_to_another_table_is_considered() -> None:
    observed = {str(name): seen for name, seen in as_if_running(DECLARED).items()}
    observed["far"] = replace(observed["far"], pointer="other__v1")
    assert "far" in part("other", observed).split()
