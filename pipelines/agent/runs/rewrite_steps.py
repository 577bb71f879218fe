"""Step effect of a rewrite: a keyed table is written again in place, from the earliest row, on a new checkpoint.

The one that it had is in the trash then. Until the ledger says that it moved, all is as it was.
"""

from core.model.errors import HeadgateError
from core.model.names import query_name
from core.plan.model import Step
from core.ports.storage import VersionFolders
from core.run.state_machine import GateOpened, RunEvidence, StepFailed
from pipelines.agent.deployment_lifecycle import refuse_unready, stop
from pipelines.agent.runs.open_run import OpenRun
from pipelines.agent.runs.starting_steps import PENDING, begin_moved, take_over_texts
from state.row_types import Deployment

_OLDER = "rows that earlier texts wrote"


def rewrite(run: OpenRun, step: Step) -> RunEvidence:
    """Stop a version and start it with the new texts on a checkpoint that has read nothing."""
    if run.stopped_by_operator(step.table, step.version):
        return StepFailed(step.n, run.stopped_words(step.table, step.version))
    deployment, checkpoint = run.deployed(step), run.world.layout.rewrite_folder(step.table, step.version, run.id)
    if deployment.checkpoint != checkpoint:
        refuse_unready(run.world, deployment, stops=run.world.locks.stops((step.table, step.version)))
        stop(run.world, deployment)
        run.world.faults.pass_by(f"rewrite stop {step.table}")
        try:
            _move(run, step, deployment, checkpoint)
        except HeadgateError:
            run.start_as_before(step, deployment)
            raise
    begun = begin_moved(run, step)
    return begun if isinstance(begun, StepFailed) else GateOpened(step.n, PENDING)


def _move(run: OpenRun, step: Step, deployment: Deployment, checkpoint: str) -> None:
    """Make the checkpoint, with a query of its own, then have the ledger say so: in one write with text and writer."""
    world, built = run.world, run.built(step)
    note = {**run.folder_note(deployment), "run": deployment.made_by or run.id, "checkpoint": checkpoint}
    made = world.files.seed(VersionFolders(deployment.folder, checkpoint), (), note)
    world.faults.pass_by(f"rewrite seed {step.table}")
    take_over_texts(
        run,
        step,
        checkpoint=checkpoint,
        checkpoint_id=made.id,
        mode=built.mode,
        stateful=built.stateful,
        begins_where=built.begins_where,
        begins_after="",
        older_rows=_OLDER,
        # What the checkpoint pins is that of its own first start.
        pool=None,
        started_at=None,
    )
    about = (deployment.table, deployment.version)
    world.event("state", f"{query_name(*about)} is written again from the earliest row, by run {run.id}", about=about)
    world.faults.pass_by(f"rewrite move {step.table}")
