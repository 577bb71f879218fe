"""The decision tree of a deploy, with the plan for each path: new, running, changed, state found, state missing.

A job manager asks whether a job is new, whether it is running, whether its configuration or query has changed, and
whether its state exists. The answers here are the same, with one exception: a changed query does not always start with
empty state, and if it does, it writes a new table.
"""

from dataclasses import dataclass

import pytest
from small_project import HEAD

from core.model.actions import StepKind
from core.observed.planner_input import ObservedDeployment
from core.plan.model import Plan
from core.plan.request import PlanRequest
from core.planner.planner import make_plan
from core.project.model import Project
from core.project_reader.loader import read_project
from core.project_reader.revision_reader import revision_of
from tests.support.domain_builders import T, actions


@dataclass(frozen=True)
class Path:
    """One path through the tree, from the root to a leaf."""

    name: str
    action: str
    steps: tuple[StepKind, ...]
    new: bool = False
    running: bool = True
    configured: bool = False
    """True if the configuration changed."""
    edited: bool = False
    """True if the query changed, and with it its state."""
    found: bool = True
    """True if the checkpoint exists and belongs to this statement."""
    refused: str = ""


BESIDE = (StepKind.CREATE, StepKind.START, StepKind.CATCH_UP, StepKind.VALIDATE, StepKind.SWAP, StepKind.STOP)
"""Steps of a new version that is built beside the old one."""


PATHS = (
    Path("new: start with a clean state", "start", (StepKind.CREATE, StepKind.START, StepKind.SWAP), new=True),
    Path("running, nothing changed: do nothing", "keep", ()),
    Path("running, configuration changed: stop, and start from its state", "restart", (StepKind.RESTART,),
         configured=True),
    Path("running, query changed: start with a clean state, beside the old", "rebuild", BESIDE, edited=True),
    Path("running, both changed: as a changed query", "rebuild", BESIDE, edited=True, configured=True),
    Path("running, configuration changed, state missing: an error", "keep", (), configured=True, found=False,
         refused="cannot be started"),
    Path("running, query changed, state missing: a clean start needs none", "rebuild", BESIDE, edited=True,
         found=False),
    Path("not running, nothing changed, state found: start from the latest state", "resume", (StepKind.RESUME,),
         running=False),
    Path("not running, nothing changed, state missing: an error", "keep", (), running=False, found=False,
         refused="cannot be started"),
    Path("not running, configuration changed, state found: start from its state", "restart", (StepKind.RESTART,),
         running=False, configured=True),
    Path("not running, configuration changed, state missing: an error", "keep", (), running=False, configured=True,
         found=False, refused="cannot be started"),
    Path("not running, query changed: start with a clean state, beside the old", "rebuild", BESIDE, running=False,
         edited=True),
    Path("not running, query changed, state missing: a clean start needs none", "rebuild", BESIDE, running=False,
         edited=True, found=False),
)  # fmt: skip


LANDED = "CREATE TABLE landed (id BIGINT, kind STRING, at TIMESTAMP) USING json LOCATION 'in';"
JOB = "CREATE TABLE job (n BIGINT, kind STRING) USING parquet;"
COUNT = """INSERT INTO job
SELECT count(*) AS n, kind FROM STREAM landed WATERMARK at DELAY OF INTERVAL 1 MINUTE
GROUP BY window(at, '{minutes} minutes'), kind;
"""


def declared_with(*, minutes: int, trigger: str) -> Project:
    """Declare `job`, which counts landed rows in windows of `minutes` minutes."""
    found, problems = read_project(
        {
            "headgate.yml": HEAD,
            "pipelines/sources/p/landed/sql-scripts/ddl.landed.sql": LANDED,
            "pipelines/facts/p/job/sql-scripts/ddl.job.sql": JOB,
            "pipelines/facts/p/job/sql-scripts/dml.job.sql": COUNT.format(minutes=minutes),
            "pipelines/facts/p/job/job.yml": f"trigger: {trigger}\n",
        }
    )
    assert found is not None, problems
    return found


def planned(path: Path, *, rebuild: bool = False) -> Plan:
    """Plan `job` in the situation that a path describes."""
    before = declared_with(minutes=5, trigger="10 seconds").tables
    after = declared_with(minutes=10 if path.edited else 5, trigger="1 minute" if path.configured else "10 seconds")
    observed = {T("landed"): ObservedDeployment("running", deployed=revision_of(before[T("landed")]).texts)}
    if not path.new:
        observed[T("job")] = ObservedDeployment(
            "running" if path.running else "failed", deployed=revision_of(before[T("job")]).texts, version=1,
            checkpoint_ok=path.found, pointer="job__v1",
        )  # fmt: skip
    return make_plan(after, "dev", observed, PlanRequest(tables=(T("job"),), rebuild=rebuild))


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_each_path_ends_at_the_leaf_of_the_decision_tree(path: Path) -> None:
    found = planned(path)
    assert actions(found)["job"] == path.action
    assert [step.do for step in found.steps if T("job") in (step.table, *step.tables)] == list(path.steps)
    assert [path.refused in refusal.summary for refusal in found.refusals] == ([True] if path.refused else [])


@pytest.mark.parametrize("path", [path for path in PATHS if path.refused], ids=lambda path: path.name)
def test_an_error_is_no_clean_start_and_names_the_way_out(path: Path) -> None:
    found = planned(path)
    assert found.steps == () and "--rebuild" in found.refusals[0].remedy
    anyway = planned(path, rebuild=True)
    assert actions(anyway)["job"] == "rebuild" and not anyway.refusals


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_a_clean_state_never_meets_the_old_table(path: Path) -> None:
    found = planned(path)
    created = {step.version for step in found.steps if step.do is StepKind.CREATE and step.table == "job"}
    begun = {step.version for step in found.steps if step.do is StepKind.START and step.table == "job"}
    assert begun == created and (path.new or 1 not in begun)
