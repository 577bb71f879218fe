"""The OPTIMIZE and VACUUM steps, each performed in its own thread, one after another.

The results are read from the table's log, and are therefore found even if the agent was killed. Both steps can be
repeated safely.
"""

import logging
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from threading import Lock, Thread

from core.model.actions import StepKind
from core.model.errors import OUTAGES, EngineRefused, HeadgateError, Refused, TryAgain
from core.model.events import EventKind
from core.model.names import physical_name, query_name
from core.model.states import State, WantedState
from core.model.table_formats import table_format
from core.observed.versions import Deployment
from core.plan.model import Step
from core.ports.storage import Upkeep
from core.run.state_machine import GateOpened, GatePolled, RunEvidence, StepDone, StepFailed
from core.text.sentence import Sentence
from core.text.wording import counted, long_duration
from pipelines.agent.context import READ_CALL_S, AgentContext
from pipelines.agent.deployment_compiler import streamed_reads, streamed_sources, upsert_of
from pipelines.agent.runs.overlay_readers import StreamReader, readers_among, readers_in_overlays
from pipelines.agent.runs.run_context import OpenUpkeep, RunContext
from pipelines.agent.statements.deployment_lifecycle import pause, refuse_start
from pipelines.agent.statements.transient_failures import disk_error
from pipelines.agent.tables.table_identities import deleted_keys_of

log = logging.getLogger(__name__)

LASTS_S = 6 * 3600.0
"""Maximum duration of an OPTIMIZE or VACUUM, in seconds. After that, its step fails."""

TAKES_S = 3600.0
"""Safety margin, in seconds, of the check for readers, because files may be replaced while a vacuum is running."""

_one_at_a_time = Lock()
"""Serializes OPTIMIZE and VACUUM, because each uses all cores of a pool."""


def start_upkeep(run: RunContext, step: Step) -> RunEvidence:
    """Start the OPTIMIZE or VACUUM of a step, unless the table's log shows that it has already been done."""
    deployment = run.deployed(step)
    if (found := _done(run, step, deployment)) is not None:
        return StepDone(step.n, _words(step, _all_done(run, step, deployment, found)))
    end_upkeep(run, run.upkeep.keys() - {step.n})
    open_ = run.upkeep[step.n] = OpenUpkeep(_tag(run, step))
    name = f"{step.do} {query_name(step.table, step.version)}"
    Thread(target=_work, args=(run, step, open_), name=name, daemon=True).start()
    return GateOpened(step.n, "under way")


def poll_upkeep(run: RunContext, step: Step) -> RunEvidence:
    """Check whether the OPTIMIZE or VACUUM has ended. While the table's log is unreachable, keep waiting."""
    try:
        return _poll_upkeep(run, step)
    except TryAgain as error:
        return GatePolled(step.n, f"waits: {error.summary}")


def _poll_upkeep(run: RunContext, step: Step) -> RunEvidence:
    open_ = run.upkeep[step.n]
    if not open_.work.done():
        return GatePolled(step.n, "under way")
    found = _done(run, step, run.deployed(step))
    try:
        open_.work.result()
    except OUTAGES as error:
        if found is None:
            again = start_upkeep(run, step)
            return GatePolled(step.n, f"begun again: {error.summary}") if isinstance(again, GateOpened) else again
    except HeadgateError as error:
        # Work that an earlier agent began may have ended first and replaced the files that this attempt was using.
        if found is None:
            return StepFailed(step.n, _failure_words(run, step, error))
    _measure(run.agent, run.deployed(step))
    return StepDone(step.n, _words(step, _all_done(run, step, run.deployed(step), found)))


def _failure_words(run: RunContext, step: Step, error: HeadgateError) -> str:
    retry, summary = f"headgate runs retry {run.id[:12]}", " ".join(error.summary.split())
    name = error.error_class if isinstance(error, EngineRefused) else ""
    full = disk_error(run.deployed(step), name, retry)
    remedy = f"; {error.remedy}" if isinstance(error, Refused) and error.remedy else ""
    return full[1] if full else f"{summary}{remedy}; {retry} goes on"


def _measure(agent: AgentContext, deployment: Deployment) -> None:
    key = (deployment.table, deployment.version)
    try:
        held = agent.files.contents(deployment.folder, deployment.format)
        history = agent.files.log_history(deployment.folder, deployment.format)
    except HeadgateError as error:
        log.info("%s was not measured: %s", query_name(*key), error.summary)
        return
    if held is not None:
        before = agent.ledger.table_statistics(deployment.table).get(key)
        gone = before.gone if before is not None else None
        agent.ledger.put_table_statistics({key: held.as_statistics(agent.clock(), gone, history)})


def end_upkeep(run: RunContext, waiting: Collection[int]) -> None:
    """Cancel a run's OPTIMIZE and VACUUM operations, except for the steps whose numbers are in `waiting`."""
    for open_ in (open_ for n, open_ in run.upkeep.items() if n not in waiting and not open_.work.done()):
        open_.ended.set()
        # It may be in any pool that was reachable when it began.
        for each in run.agent.pools.every():
            try:
                pool = each.connection()
                pool.call(READ_CALL_S, pool.upkeep.cancel, open_.tag)
            except HeadgateError as error:
                log.info("%s was not ended in the pool %s: %s", open_.tag, each.name, error.summary)


def why_needed(run: RunContext, deployment: Deployment) -> Sentence | None:
    """Return why files that a vacuum would delete are still needed, or None if they are not.

    All streaming readers of the version are checked, including those of overlays, whether running, stopped, replaced or
    in the trash, because they may continue from their checkpoints. Raises Refused if an overlay cannot be checked.
    """
    agent, said = run.agent, run.plan.request.retain_h
    kept_h = agent.files.kept_h(deployment.folder, deployment.format)
    if kept_h is None:
        return Sentence(
            f"how long {query_name(deployment.table, deployment.version)} retains files cannot be read from its log"
        )
    if said and float(said) < kept_h:
        return Sentence(f"its log says that it retains files for {kept_h:g} h, and {said} h are less")
    if clones := agent.ledger.clones(deployment.table, deployment.version):
        return _held_by(agent, clones)
    moment = agent.clock() - float(said or kept_h) * 3600 + TAKES_S
    unread = [words for reader in _readers(agent, deployment) for words in _unread(agent, deployment, reader, moment)]
    return Sentence(f"files that it would delete have not been read yet: {'; '.join(unread)}") if unread else None


def _held_by(agent: AgentContext, clones: Sequence[Deployment]) -> Sentence | None:
    there = [clone for clone in clones if not clone.deleted]
    names = ", ".join(physical_name(clone.table, clone.version) for clone in there or clones)
    if there:
        return Sentence(
            f"{names} holds rows in files of this version; headgate plan retire {there[0].table} sets it aside"
        )
    left_s = max((clone.drop_after or 0.0) for clone in clones) - agent.clock()
    when = f"in {long_duration(left_s)}" if left_s > 0 else "soon"
    return Sentence(f"{names} holds rows in files of this version: it is in the trash, and purged {when}")


def _readers(agent: AgentContext, deployment: Deployment) -> Iterator[StreamReader]:
    own = agent.ledger.deployments(include_deleted=True)
    yield from readers_among(own, (deployment.table, deployment.version), agent.layout.naming)
    yield from readers_in_overlays(agent, deployment)


def _unread(agent: AgentContext, parent: Deployment, found: StreamReader, moment: float) -> Iterator[str]:
    reader = found.statement
    reads = streamed_reads(reader)
    # Only streams of this version matter, so the version stands for every parent.
    every = {(b.parent, b.version): parent for b in reader.bindings}
    for n, source in enumerate(streamed_sources(reader, reads, every)):
        if source[1] != parent.table:
            continue
        version = agent.files.unread_before(found.checkpoint, source, moment, takes_changes=reads[n].takes_changes)
        if version is not None:
            whose = f" of {found.overlay}" if found.overlay else ""
            name = query_name(reader.table, reader.version)
            yield f"{name}{whose} has not read version {version}{_reads_on(reader, found.overlay)}"


def _reads_on(reader: Deployment, overlay: str) -> str:
    if reader.deleted or (reader.wanted == WantedState.RUNNING and reader.state != State.FAILED):
        return ""
    version = "" if reader.active else f"@v{reader.version}"
    there = f" --env {overlay}" if overlay else ""
    return f" and is {reader.state}: headgate start {reader.table}{version}{there} lets it continue"


def _done(run: RunContext, step: Step, deployment: Deployment) -> Upkeep | None:
    place = table_format(deployment.format).place_in(deployment.folder)
    return run.agent.files.upkeep(place, step.do.upper(), _tag(run, step))


def _all_done(run: RunContext, step: Step, deployment: Deployment, found: Upkeep | None) -> Upkeep | None:
    deleted = _deleted_keys(run, deployment)
    beside = run.agent.files.upkeep(deleted, step.do.upper(), _tag(run, step)) if deleted else None
    return found + beside if found and beside else found or beside


def _deleted_keys(run: RunContext, deployment: Deployment) -> str:
    place = deleted_keys_of(deployment)
    return place if place and run.agent.files.is_there(f"{place}/_delta_log") else ""


def _tag(run: RunContext, step: Step) -> str:
    return f"headgate-{run.id}-{step.n}"


def _words(step: Step, found: Upkeep | None) -> str:
    if found is None:
        return "there was nothing to do"
    if step.do is StepKind.OPTIMIZE:
        return f"{counted(found.files, 'file')} written into {found.made}"
    return f"{counted(found.files, 'file')} deleted"


def _work(run: RunContext, step: Step, open_: OpenUpkeep) -> None:
    try:
        with _one_at_a_time:
            if not open_.ended.is_set():
                _look_after_now(run, step, open_)
        open_.work.set_result(None)
    except BaseException as error:
        open_.work.set_exception(error)


def _look_after_now(run: RunContext, step: Step, open_: OpenUpkeep) -> None:
    agent, deployment = run.agent, run.deployed(step)
    name = agent.layout.catalog_name(step.table, step.version)
    keyed = step.do is StepKind.OPTIMIZE and upsert_of(deployment) is not None
    with _at_rest(run, step) if keyed else nullcontext():
        if step.do is StepKind.VACUUM and (why := why_needed(run, deployment)):
            raise Refused(why)
        pool = agent.pools.reachable()
        agent.faults.pass_by(f"{step.do} begins")
        # The version's own table is maintained last, so its log shows whether both tables are done.
        for table, retain_h in ((_deleted_keys(run, deployment), ""), (name, run.plan.request.retain_h)):
            if open_.ended.is_set():
                # A cancel that arrived while readers were being checked or stopped found nothing to end in the pool.
                return
            if table and step.do is StepKind.OPTIMIZE:
                pool.call(LASTS_S, pool.upkeep.optimize, table, open_.tag)
            elif table:
                pool.call(LASTS_S, pool.upkeep.vacuum, table, retain_h, open_.tag)
        agent.faults.pass_by(f"{step.do} done")


@contextmanager
def _at_rest(run: RunContext, step: Step) -> Iterator[None]:
    """Pause a version's statement: a MERGE fails if its files are being rewritten (Delta 4.4.0).

    The registry still records that the statement should be running, so the reconciler restarts it even if the agent
    dies.
    """
    with run.agent.locks.holding((step.table, step.version), by=f"run {run.id}"):
        found = run.deployed(step)
        if found.wanted == WantedState.RUNNING and found.query_id:
            stops = run.agent.locks.stops((step.table, step.version))
            refuse_start(run.agent, found, stops=stops, cancelled=run.is_cancelled)
            pause(run.agent, found)
            summary = "stopped while its files are rewritten; it continues from its checkpoint"
            run.agent.event(EventKind.STATE, summary, about=(found.table, found.version))
        yield
