"""The pointer steps: `hold` waits for an operator, `swap` moves pointers after a last check, `unpoint` drops one."""

import logging
from collections.abc import Collection, Iterator, Mapping

from core.model.actions import Action, StepKind
from core.model.errors import Busy, HeadgateError, LedgerUnavailable, PoolUnreachable, TryAgain
from core.model.names import TableName, physical_name, query_name, split_physical
from core.model.states import State, WantedState
from core.plan.model import Step
from core.run.model import StepState
from core.run.records import MigrationTicket
from core.run.state_machine import GateOpened, GatePolled, RunEvidence, StepDone, StepFailed
from pipelines.agent.checked_clock import checked_now
from pipelines.agent.context import WRITE_CALL_S
from pipelines.agent.identity.registry_records import keep_record, record_serving
from pipelines.agent.pool.pointers import move_back, move_forward, put_back
from pipelines.agent.runs.cancelled_run_cleanup import point_to_serving_versions
from pipelines.agent.runs.catch_up_gate import CatchUpGate
from pipelines.agent.runs.run_context import RunContext, overtaken

log = logging.getLogger(__name__)


def swap(run: RunContext, step: Step) -> RunEvidence:
    """Move all pointers of the step, or none if that fails, and record the serving versions."""
    targets = run.versions(step)
    if (not_yet := _not_servable(run, step, targets)) is not None:
        _put_back_moved(run, step)
        return not_yet
    run.half_moved[step.n] = True
    s = move_forward(run.agent, targets)
    run.agent.faults.pass_by("swap record")
    served = _served(run, targets)
    run.agent.ledger.open_tickets(tickets_of(run, dict(targets)))
    run.agent.faults.pass_by("swap commit")
    run.agent.ledger.activate(dict(targets), served=served, by=run.id, at=run.agent.clock())
    _record(run, targets)
    moved = moves_in_words(run, step)
    took = f"{moved}; within {s * 1000:.0f} ms" if len(targets) > 1 else moved
    return StepDone(step.n, took + skipped_comparisons(run, {table for table, _ in targets}))


def skipped_comparisons(run: RunContext, tables: Collection[TableName]) -> str:
    """List the tables whose comparison an operator has skipped, with the reasons; empty if there are none."""
    row = run.agent.ledger.run(run.id)
    skipped = [
        f"; {found.table}: {found.note}"
        for found in (row.steps if row else ())
        if (found.do, found.state) == (StepKind.VALIDATE, StepState.SKIPPED) and found.table in tables
    ]
    return "".join(skipped)


def moves_in_words(run: RunContext, step: Step) -> str:
    """Describe the new version of each pointer or, if a pointer keeps its version, the new columns."""
    moves = [(table, *_move_in_words(run, table, version)) for table, version in run.versions(step)]
    # A step for a single table is displayed next to that table, so the text need not name it.
    if len(moves) == 1:
        return moves[0][2]
    return ", ".join(f"{table} {arrow}{words}" for table, arrow, words in moves)


def _move_in_words(run: RunContext, table: TableName, version: int) -> tuple[str, str]:
    node, name = run.nodes[table], physical_name(table, version)
    if node.from_version == version and node.action in (Action.RESTART, Action.REBUILD):
        return "", f"shows all columns of {name}"
    return "→ ", name


def has_swapped(run: RunContext, step: Step) -> bool:
    """True if the ledger records that this run has put the step's versions into service."""
    found = [run.agent.ledger.deployment(table, version) for table, version in run.versions(step)]
    return all(each is not None and each.active and each.served_by == run.id for each in found)


def abandon_swap(run: RunContext, step: Step) -> None:
    """Abandon an interrupted swap: point its tables back to the versions that serve according to the ledger.

    If the pool is unreachable, the reconciler corrects the pointers later.
    """
    if _has_begun(run, step):
        point_to_serving_versions(run.agent, run.id, (table for table, _ in run.versions(step)))
        run.half_moved[step.n] = False


def _put_back_moved(run: RunContext, step: Step) -> None:
    """Undo a swap that was interrupted by a kill or an unresponsive pool."""
    if not _has_begun(run, step):
        return
    agent, tables = run.agent, {table for table, _ in run.versions(step)}
    put_back(agent, tables)
    serving = {d.table: d.version for d in agent.ledger.deployments() if d.active and d.table in tables}
    agent.ledger.put_served(record_serving(agent, serving, run.id))
    run.half_moved[step.n] = False


def _has_begun(run: RunContext, step: Step) -> bool:
    row = run.agent.ledger.run(run.id)
    tries = next((found.tries for found in row.steps if found.n == step.n), 0) if row else 0
    return run.half_moved.setdefault(step.n, tries > 1)


def _served(run: RunContext, targets: list[tuple[TableName, int]]) -> int:
    # If the record cannot be written, the pointers are moved back.
    try:
        return record_serving(run.agent, dict(targets), run.id)
    except (Busy, LedgerUnavailable, PoolUnreachable):
        raise
    except TryAgain as error:
        why = f"the serving versions could not be recorded: {error.summary}; {move_back(run.agent, targets)}"
        raise TryAgain(why, remedy=error.remedy) from error


def _record(run: RunContext, targets: list[tuple[TableName, int]]) -> None:
    # Rollbacks need these records. `RegistryRecords` later writes those that cannot be written now.
    for key in targets:
        try:
            keep_record(run.agent, *key)
        except HeadgateError as error:
            log.warning("%s is recorded later: %s", query_name(*key), error.summary)


def _not_servable(run: RunContext, step: Step, targets: list[tuple[TableName, int]]) -> RunEvidence | None:
    """Return why the swap must wait or has failed; None if its pointers may move now.

    Gates may have opened long ago, so they are checked again, unless an operator skipped them. A failed or stopped
    version never serves, even without a gate. Versions that already serve are not checked, because only their columns
    change.
    """
    gates = {(s.table, s.version): s.n for s in run.plan.steps if s.do is StepKind.CATCH_UP}
    row = run.agent.ledger.run(run.id)
    skipped = {s.n for s in row.steps if s.state == StepState.SKIPPED} if row else set()
    for table, version in targets:
        if newer := overtaken(run.agent, run.nodes[table]):
            # A failed run releases its tables until it is retried.
            why = f"{newer} serves meanwhile, which this run was not planned to replace"
            return StepFailed(step.n, f"{why}; no pointer has moved: cancel the run, and plan again")
        name, deployment = query_name(table, version), run.agent.ledger.deployment(table, version)
        if deployment is None:
            return StepFailed(step.n, f"{name} is not in the registry")
        if (table, version) not in gates and deployment.active:
            continue
        if run.stopped_by_operator(table, version):
            return StepFailed(step.n, f"no pointer has moved: {run.stopped_words(table, version)}")
        if deployment.wanted != WantedState.RUNNING:
            return run.restart_stopped_version(step, table, version) or GateOpened(step.n, f"{name} was started again")
        if deployment.state == State.FAILED:
            why = f"{deployment.error_class} {deployment.error}".strip()
            when = "after it had caught up" if (table, version) in gates else "before it served"
            return StepFailed(step.n, f"{name} failed {when}: {why}; no pointer has moved")
        if (
            (table, version) in gates
            and gates[table, version] not in skipped
            and (behind := CatchUpGate.why_closed(run.agent, deployment))
        ):
            return GateOpened(step.n, f"{name} is behind again: {behind}")
    frozen = run.frozen()
    return None if frozen is None else GateOpened(step.n, frozen)


def unpoint(run: RunContext, step: Step) -> RunEvidence:
    """Drop the pointer of a deleted table."""
    if (frozen := run.frozen()) is not None:
        return GateOpened(step.n, frozen)
    pointer = run.agent.layout.pointer_name(step.table)
    run.agent.pools.in_every_catalog(lambda pool: pool.call(WRITE_CALL_S, pool.tables.unpoint, pointer))
    return StepDone(step.n)


def hold(run: RunContext, step: Step) -> RunEvidence:
    """Start waiting for an operator's swap command. Versions that were stopped before a retry are restarted."""
    for table, version in run.versions(step):
        if (failed := run.restart_stopped_version(step, table, version)) is not None:
            return failed
    return GateOpened(step.n, _waits(run))


def check_held_versions(run: RunContext, step: Step) -> RunEvidence:
    """Keep waiting, or fail the step if a held version has failed, was stopped or is missing.

    The swap would leave such a version out.
    """
    for table, version in run.versions(step):
        deployment = run.agent.ledger.deployment(table, version)
        if deployment is None:
            return StepFailed(step.n, f"{query_name(table, version)} is not in the registry")
        if run.stopped_by_operator(table, version):
            return StepFailed(step.n, run.stopped_words(table, version))
        if deployment.wanted == WantedState.STOPPED:
            # Starting the serving version ended the stop of its table, but did not start this version.
            again = f"headgate runs retry {run.id} starts it again"
            return StepFailed(step.n, f"{query_name(table, version)} is stopped, and would not be swapped in; {again}")
        if deployment.state == State.FAILED:
            why = f"{deployment.error_class} {deployment.error}".strip()
            return StepFailed(step.n, f"{query_name(table, version)} failed while it was held: {why}")
    return GatePolled(step.n, _waits(run))


def _waits(run: RunContext) -> str:
    return f"waits for the command: headgate release swap {run.id}"


DAY_S = 86400.0


def tickets_of(run: RunContext, targets: Mapping[TableName, int]) -> tuple[MigrationTicket, ...]:
    """Return a ticket for each reader that keeps reading an old version.

    Readers are statements, and exposures that read the pointer. The deadline is the environment's retention period for
    deleted versions, `drop_after_d`.
    """
    # The clock is checked here, before the ledger transaction that writes the tickets.
    return tuple(_tickets(run, targets, checked_now(run.agent)))


def _tickets(run: RunContext, targets: Mapping[TableName, int], now: float) -> Iterator[MigrationTicket]:
    agent = run.agent
    deadline = now + agent.layout.environment.drop_after_d * DAY_S

    def ticket(
        table: TableName, old: str, reader: str, *, product: str, owner: str, statement: bool
    ) -> MigrationTicket:
        before = split_physical(old)
        measured = agent.ledger.measurement(*before) if before is not None else None
        batch = measured.batch if measured is not None else None
        new = physical_name(table, targets[table])
        return MigrationTicket(
            run.id,
            table,
            reader=reader,
            product=product,
            owner=owner,
            is_statement=statement,
            old=old,
            new=new,
            cut_batch=batch,
            cut_at=now,
            deadline=deadline,
        )

    for left in run.plan.left_behind:
        through = TableName(left.through)
        if left.depth == 1 and through in targets and left.reads != physical_name(through, targets[through]):
            yield ticket(through, left.reads, left.table, product=left.product, owner=left.owner, statement=True)
    topics = {d.table for d in agent.ledger.deployments() if d.writes_topic}
    for one in run.plan.readers:
        # Exposures that read a topic keep reading it.
        if one.table not in topics and one.table in targets and split_physical(one.before) and one.before != one.after:
            yield ticket(one.table, one.before, one.reader, product="", owner=one.owner, statement=False)
