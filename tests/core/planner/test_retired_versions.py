"""Old versions are ended only by the plan that moves their last reader away."""

from dataclasses import replace

from core.plan.request import PlanRequest
from core.planner.planner import make_plan
from tests.support.domain_builders import T, deployed, project, running, table

DECLARED = project(table("src"), table("a", "src"), table("b", "a"), table("elsewhere", "src"))


def test_an_old_version_that_nobody_reads_any_more_does_not_end_by_a_plan_elsewhere() -> None:
    a = replace(deployed(DECLARED.tables[T("a")], version=2), retained=(1,))
    b = replace(deployed(DECLARED.tables[T("b")], version=2, bindings={"a": 2}), retained=(1,))
    seen = {**running(DECLARED), T("a"): a, T("b"): b}
    found = make_plan(DECLARED, "dev", seen, PlanRequest(tables=(T("elsewhere"),), rebuild=True))
    assert {step.table for step in found.steps} == {T("elsewhere")}
