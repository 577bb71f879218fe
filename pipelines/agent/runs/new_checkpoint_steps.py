"""Steps that give a statement a new checkpoint for the same table: `seam` and `rewrite`.

A seam switches the statement to another version of its streamed table. The switch must be exact: at one of the
statement's batches, the new upstream version must have a batch that has read the same input as the old upstream
version. Without such a batch, the step fails. A rewrite writes a keyed table again in place, from the earliest row, and
moves the old checkpoint to the trash. Nothing changes until the ledger records the new checkpoint.
"""

from dataclasses import dataclass

from core.changes.pinned_settings import recorded_pool
from core.model.errors import HeadgateError
from core.model.events import EventKind
from core.model.names import query_name
from core.model.table_formats import table_format
from core.observed.aligned_positions import AlignedPair, Unaligned, Version, newest_aligned
from core.observed.versions import Deployment
from core.plan.model import PlanNode, Step
from core.ports.storage import VersionFolders
from core.run.state_machine import GateOpened, RunEvidence, StepFailed
from pipelines.agent.context import AgentContext
from pipelines.agent.runs.common_positions import version_histories
from pipelines.agent.runs.compared_versions import LedgerVersions
from pipelines.agent.runs.run_context import RunContext
from pipelines.agent.runs.starting_steps import PENDING, begin_moved, take_over_texts
from pipelines.agent.statements.deployment_lifecycle import refuse_unready, stop, written_batch

WAIT_S = 300.0
"""Longest wait for a matching batch, in seconds. Matches recur while both versions keep reading."""


@dataclass(frozen=True, slots=True)
class SeamPlace:
    """A position in a statement's input at which it can switch to another upstream version."""

    batch: int
    """Last batch in which the statement reads the old upstream version."""
    parent: Version
    parent_batch: int
    """Batch of the new upstream version. Rows up to this batch are skipped."""


def seam(run: RunContext, step: Step) -> RunEvidence:
    """Switch a version to the parent version in the plan, on a new checkpoint that skips everything read so far.

    Until one of the new parent's batches matches, the version keeps reading the old parent. After `WAIT_S`, the step
    fails without having changed anything.
    """
    if run.stopped_by_operator(step.table, step.version):
        return StepFailed(step.n, run.stopped_words(step.table, step.version))
    deployment, node = run.deployed(step), run.node(step)
    if is_bound_as_planned(run, step):
        return _begun(run, step)
    place = find_place(run.agent, deployment, node)
    if isinstance(place, Unaligned):
        return _wait(run, step, place.why)
    refuse_unready(run.agent, deployment, stops=run.agent.locks.stops((step.table, step.version)))
    stop(run.agent, deployment)
    run.agent.faults.pass_by(f"seam stop {step.table}")
    try:
        # The statement may have committed more batches before it stopped, so the position is looked up again.
        place = _unless_half_done(run.agent, deployment, find_place(run.agent, deployment, node))
        if isinstance(place, SeamPlace):
            _move(run, step, deployment, place)
    except HeadgateError:
        run.start_as_before(step, deployment)
        raise
    if isinstance(place, Unaligned):
        again = run.start_as_before(step, deployment)
        return again if isinstance(again, StepFailed) else _wait(run, step, place.why)
    return _begun(run, step)


def is_bound_as_planned(run: RunContext, step: Step) -> bool:
    """True if the ledger already records the plan's bindings for the step's version."""
    return {*run.deployed(step).bindings} == {*run.node(step).bindings}


def find_place(agent: AgentContext, deployment: Deployment, node: PlanNode) -> SeamPlace | Unaligned:
    """Find the position at which a version can switch to the upstream version in the plan.

    At this position, the old and the new upstream version have read the same input. Returns Unaligned, with the reason,
    if there is none. Raises TryAgain if files are unreachable.
    """
    key = (deployment.table, deployment.version)
    before, after = (next(b for b in found.bindings if b.streamed) for found in (deployment, node))
    old, new = (before.parent, before.version), (after.parent, after.version)
    histories = version_histories(agent.files, LedgerVersions(agent.ledger).deployed(), key, new)
    batches = histories[key].history.batches
    if old not in histories:
        return Unaligned(f"{query_name(*old)} no longer exists")
    if not batches:
        return Unaligned(f"{query_name(*key)} has committed no batch yet")
    batch = max(batches)
    first, last = histories[old].history.held.get(batches[batch].consumed[0], (0, -1))
    if first > last:
        return Unaligned(f"{query_name(*key)} has read only part of a batch of {query_name(*old)}")
    keeps = {(d.table, d.version) for d in agent.ledger.deployments() if d.stateful}
    # Versions that withhold rows by a watermark must have reached the same watermark as well.
    strict = not keeps.isdisjoint(histories.keys() - {key})
    pair = newest_aligned(histories, old, new, at=range(first, last + 1), strict=strict)
    return SeamPlace(batch, new, pair.green) if isinstance(pair, AlignedPair) else pair


def _unless_half_done(
    agent: AgentContext, deployment: Deployment, place: SeamPlace | Unaligned
) -> SeamPlace | Unaligned:
    """Return `place`, or Unaligned if the statement has written a batch to its table without committing it.

    After the seam, the next batch would have the same number, and the table would skip it as a repetition.
    """
    if isinstance(place, Unaligned) or not table_format(deployment.format).transaction_log:
        return place
    written = written_batch(agent, deployment)
    if written is None or written <= place.batch:
        return place
    return Unaligned(f"batch {written} of {query_name(deployment.table, deployment.version)} is written, not committed")


def _move(run: RunContext, step: Step, deployment: Deployment, place: SeamPlace) -> None:
    agent, layout = run.agent, run.agent.layout
    parent = agent.ledger.deployment(*place.parent)
    assert parent is not None, "its history was read"
    checkpoint = layout.seam_folder(deployment.table, deployment.version, place.parent, place.batch)
    folders = VersionFolders(deployment.folder, checkpoint)
    read = agent.files.source_position(parent.folder, place.parent_batch)
    note = {**run.folder_note(deployment), "run": deployment.made_by or run.id, "checkpoint": checkpoint}
    cut = agent.files.create_checkpoint_after(folders, (read,), note, batch=place.batch, like=deployment.checkpoint)
    agent.faults.pass_by(f"seam seed {step.table}")
    before = next(query_name(b.parent, b.version) for b in deployment.bindings if b.streamed)
    take_over_texts(run, step, checkpoint=checkpoint, checkpoint_id=cut.id, older_rows=f"rows from {before}")
    agent.faults.pass_by(f"seam move {step.table}")
    words = f"after batch {place.batch}, on batch {place.parent_batch} of {query_name(*place.parent)}"
    run.continuation_notes[step.n] = f"continues {words}; "
    about = (deployment.table, deployment.version)
    agent.event(EventKind.STATE, f"continues {words}, by run {run.id}", about=about, run=run.id)


def _begun(run: RunContext, step: Step) -> RunEvidence:
    run.waits.pop(step.n, None)
    begun = begin_moved(run, step)
    note = f"{run.continuation_notes.get(step.n, '')}{PENDING}"
    return begun if isinstance(begun, StepFailed) else GateOpened(step.n, note)


def _wait(run: RunContext, step: Step, why: str) -> RunEvidence:
    since = run.waits.setdefault(step.n, run.agent.monotonic())
    if run.agent.monotonic() - since <= WAIT_S:
        return GateOpened(step.n, f"no batch matches yet: {why}")
    del run.waits[step.n]
    ways = "headgate runs retry waits again; a rebuild needs no such batch"
    return StepFailed(step.n, f"no batch matched within {WAIT_S:.0f} s, and nothing has changed: {why}; {ways}")


_OLDER = "rows that earlier texts wrote"


def rewrite(run: RunContext, step: Step) -> RunEvidence:
    """Restart a version with the new SQL on an empty checkpoint, so that it writes its table again."""
    if run.stopped_by_operator(step.table, step.version):
        return StepFailed(step.n, run.stopped_words(step.table, step.version))
    deployment, checkpoint = run.deployed(step), run.agent.layout.rewrite_folder(step.table, step.version, run.id)
    if deployment.checkpoint != checkpoint:
        refuse_unready(run.agent, deployment, stops=run.agent.locks.stops((step.table, step.version)))
        stop(run.agent, deployment)
        run.agent.faults.pass_by(f"rewrite stop {step.table}")
        try:
            _make_checkpoint(run, step, deployment, checkpoint)
        except HeadgateError:
            run.start_as_before(step, deployment)
            raise
    begun = begin_moved(run, step)
    return begun if isinstance(begun, StepFailed) else GateOpened(step.n, PENDING)


def _make_checkpoint(run: RunContext, step: Step, deployment: Deployment, checkpoint: str) -> None:
    agent, planned = run.agent, run.compiled_version(step)
    note = {**run.folder_note(deployment), "run": deployment.made_by or run.id, "checkpoint": checkpoint}
    made = agent.files.create_checkpoint_after(VersionFolders(deployment.folder, checkpoint), (), note)
    agent.faults.pass_by(f"rewrite seed {step.table}")
    take_over_texts(
        run,
        step,
        checkpoint=checkpoint,
        checkpoint_id=made.id,
        mode=planned.mode,
        stateful=planned.stateful,
        begins_where=planned.begins_where,
        begins_after="",
        begins_after_version=0,
        begins_after_batch=None,
        older_rows=_OLDER,
        # The new checkpoint pins the settings of its own first start, in the pool where the statement is.
        pool=planned.pool and recorded_pool(agent.pools.of(deployment).declared),
        started_at=None,
    )
    about = (deployment.table, deployment.version)
    summary = f"{query_name(*about)} is written again from the earliest row, by run {run.id}"
    agent.event(EventKind.STATE, summary, about=about, run=run.id)
    agent.faults.pass_by(f"rewrite move {step.table}")
