"""Observed states: a requested table and its parents are started, resumed or left alone; nothing is destroyed."""

from dataclasses import replace

import pytest

from core.model.actions import StepKind
from core.model.names import TableName as T
from core.model.reasons import LOST_CHECKPOINT
from core.model.states import State
from core.observed.planner_input import ObservedDeployment
from core.observed.versions import Binding
from core.plan.model import Plan
from tests.support.domain_builders import actions, plan, project, running, steps, table

LOOKED_FOR = "it resumes from its checkpoint, but only if the pool shows that it is not running there"
GOES_ON = "it resumes from its checkpoint, and no data is deleted"
ACTION_AND_WARNING = {
    "pending": ("resume", ""),
    "starting": ("resume", ""),
    "running": ("keep", ""),
    "degraded": ("resume", f"is degraded; {GOES_ON}"),
    "failed": ("resume", f"is failed; {GOES_ON}"),
    "stopping": ("resume", ""),
    "stopped": ("resume", ""),
    "completed": ("resume", f"is completed; {GOES_ON}"),
    "unknown": ("resume", f"is unknown; {LOOKED_FOR}; no data is deleted"),
    "absent": ("start", ""),
}
SHAPES = pytest.mark.parametrize(
    ("stateful", "product"), [(False, "p"), (True, "p"), (False, "q"), (True, "q")], ids=lambda shape: str(shape)
)


def world(state: str, *, stateful: bool, product: str, asked: str, **known: object) -> Plan:
    """Plan one table of src → a → b, where a is in a certain state."""
    declared = project(table("src"), table("a", "src", stateful=stateful, product=product), table("b", "a"))
    observed = running(declared, a=state, b="stopped") if asked == "b" else running(declared, a=state)
    if T("a") in observed:
        observed[T("a")] = replace(observed[T("a")], **known)  # type: ignore[arg-type]  # fields of Observed
    return plan(declared, observed, asked)


def warned(found: Plan, name: str) -> str:
    return "; ".join(each.summary for each in found.warnings if each.table == name)


def test_every_state_is_covered() -> None:
    assert {*ACTION_AND_WARNING} == {str(state) for state in State}


@SHAPES
@pytest.mark.parametrize("asked", ["a", "b"], ids=["asked for", "a parent"])
@pytest.mark.parametrize("state", ACTION_AND_WARNING)
def test_the_state_decides_whether_it_is_started_and_what_is_reported(
    state: str, asked: str, stateful: bool, product: str
) -> None:
    found = world(state, stateful=stateful, product=product, asked=asked)
    assert (actions(found)["a"], warned(found, "a")) == ACTION_AND_WARNING[state]
    assert not {step.do for step in found.steps} & {StepKind.STOP, StepKind.TOMBSTONE, StepKind.UNPOINT}
    assert found.refusals == ()


@SHAPES
@pytest.mark.parametrize("asked", ["a", "b"], ids=["asked for", "a parent"])
@pytest.mark.parametrize("state", [each for each in ACTION_AND_WARNING if each not in ("absent", "running")])
def test_a_version_without_its_own_checkpoint_is_reported_and_not_started(
    state: str, asked: str, stateful: bool, product: str
) -> None:
    found = world(state, stateful=stateful, product=product, asked=asked, checkpoint_ok=False)
    assert actions(found)["a"] == "keep" and found.empty
    (refusal,) = found.refusals
    assert refusal.summary.startswith(f"a cannot be started: {LOST_CHECKPOINT}")
    assert refusal.remedy == "rebuild it: headgate plan a --rebuild"


@SHAPES
def test_a_stopped_parent_is_started_for_its_reader_and_the_plan_says_so(stateful: bool, product: str) -> None:
    found = world("stopped", stateful=stateful, product=product, asked="b", wanted="stopped")
    assert steps(found) == ["resume a@1", "resume b@1 < 1"]
    assert warned(found, "a") == "was stopped on purpose; this plan starts it"


@pytest.mark.parametrize("state", ["failed", "degraded", "completed", "unknown"])
def test_an_unhealthy_child_is_rebuilt_beside_its_present_version(state: str) -> None:
    declared = project(src="", a="src", b="a")
    found = plan(declared, running(declared, b=state), "a", rebuild=True)
    assert warned(found, "b") == f"is {state}; it is rebuilt beside the existing version, and no data is deleted"
    assert actions(found)["b"] == "rebuild"


def test_everything_below_an_excluded_parent_at_rest_is_named() -> None:
    declared = project(src="", a="src", b="a", c="a", d="b")
    found = plan(declared, running(declared, a="failed", b="stopped", c="stopped"), "b", "c", "d", exclude=(T("a"),))
    assert [(each.table, each.summary) for each in found.warnings] == [
        ("b", "gets no rows from a, which is excluded and failed"),
        ("c", "gets no rows from a, which is excluded and failed"),
    ]


@pytest.mark.parametrize("children", ["none", "all"])
@pytest.mark.parametrize("highest", [0, 1])
def test_starting_a_deleted_table_again_warns_about_readers_of_the_deleted_version(highest: int, children: str) -> None:
    declared = project(src="", s1="src", b="s1")
    observed = running(declared)
    observed[T("s1")] = ObservedDeployment(state=State.ABSENT, highest_version=highest)
    observed[T("b")] = replace(observed[T("b")], bindings=(Binding(T("s1"), 1, True),))
    found = plan(declared, observed, "s1", children=children)
    words = "reads s1__v1, which no longer exists: it gets no rows until it is rebuilt"
    assert words in [str(w.summary) for w in found.warnings if w.table == "b"]


def test_a_reader_of_a_deleted_version_is_warned_about_when_an_orphan_of_its_parent_resumes() -> None:
    declared = project(src="", s1="src", b="s1")
    observed = running(declared, s1="stopped")
    observed[T("s1")] = replace(observed[T("s1")], version=2, highest_version=2, begun=False)
    observed[T("b")] = replace(observed[T("b")], bindings=(Binding(T("s1"), 1, True),))
    warned = [w.table for w in plan(declared, observed, "s1").warnings]
    assert warned == ["b"]
