"""The history of a table as one timeline: deploys, operator actions, failures, and events of its environment."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from core.model.act_outcomes import CommandOutcome
from core.model.actions import Action, StepKind
from core.model.events import DONE_BY, FAULTY, EventCause, EventKind
from core.model.names import TableName
from core.plan.descriptions import action_words, change_words, evidence_words, is_of_columns, promotion_words
from core.plan.model import Plan
from core.run.model import StepState
from core.run.records import RunRow, StepRow
from core.text.wording import counted
from state.audit_log import op_words
from state.row_types import AuditRow, CommandRow, EventRow
from state.table_records import TableRecords
from tui.presentation.styling.value_formatting import long_duration, moment

ACTS = frozenset({"stop", "start", "restart", "approve", "pause", "resume", "cancel", "retry", "skip"})
"""Operator actions that get an entry.

Planning and applying get no entry, because the entries of the run cover them.
"""
SAME_ACT_S = 10.0
"""Maximum time between a logged command and its audit entry, in seconds."""


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One entry in a table's history, such as a deploy or a failure."""

    at: float
    """When the described event occurred or began, in epoch seconds."""
    kind: str
    """deploy, schema, serves, an action (stop, start, …), failure, missed or met (an objective), state, upstream (of
    an input), or the kind of an event."""
    summary: str
    actor: str = ""
    """User who caused the event; empty if no user did."""
    plan: str = ""
    """Hash of the plan."""
    run: str = ""
    version: int = 0
    """Version of the table; 0 if the entry is not about a particular version."""
    detail: str = ""
    bad: bool = False
    promoted_from: str = ""
    """Environment from which the plan promoted the table; empty if it did not."""


def table_history(records: TableRecords, plans: Mapping[str, Plan], limit: int = 0) -> tuple[HistoryEntry, ...]:
    """Return a table's history, oldest entry first.

    If `limit` is not 0, only the last `limit` entries are returned. `plans` maps hashes to plans; a deploy whose plan
    is missing has no details.
    """
    acts = _acts(records)
    found = [*acts, *(_audited(audit, records) for audit in _without_command(records))]
    for run in records.runs:
        found += _deploys(run, plans.get(run.plan_hash), records.table)
    for event in records.events:
        found += _happened(event)
    found += filter(None, map(_upstream, records.upstream))
    found.sort(key=lambda entry: (entry.at, entry.kind, entry.summary))
    return tuple(found[-limit:])


def _acts(records: TableRecords) -> list[HistoryEntry]:
    return [
        HistoryEntry(
            command.at - (command.took_ms or 0) / 1000, command.op, _outcome(command, records), command.actor,
            run=_run_of(command.subject, records), detail=command.line, bad=command.outcome == CommandOutcome.FAILED,
        )
        for command in records.commands
        if command.op in ACTS
    ]  # fmt: skip


def _without_command(records: TableRecords) -> Iterator[AuditRow]:
    """Yield the audit records of operator actions that no longer have an entry in the command log."""
    times: dict[tuple[str, str, str], list[float]] = {}
    for one in records.commands:
        times.setdefault((one.actor, one.op, one.subject), []).append(one.at)
    for audit in records.audits:
        near = times.get((audit.actor, audit.action, audit.subject), ())
        if audit.action in ACTS and not any(abs(audit.at - at) < SAME_ACT_S for at in near):
            yield audit


def _audited(audit: AuditRow, records: TableRecords) -> HistoryEntry:
    run = _run_of(audit.subject, records)
    return HistoryEntry(
        audit.at,
        audit.action,
        audit.outcome,
        audit.actor,
        audit.plan_hash,
        run,
        bad=audit.outcome == CommandOutcome.FAILED,
    )


def _outcome(command: CommandRow, records: TableRecords) -> str:
    if command.outcome != CommandOutcome.DONE:
        return f"{command.outcome}: {command.detail}" if command.detail else command.outcome
    others = len(command.subject.split()) - 1
    return (
        f"done, with {counted(others, 'other statement')}"
        if others and str(records.table) in command.subject
        else "done"
    )


def _run_of(subject: str, records: TableRecords) -> str:
    return next((run.id for run in records.runs if run.id == subject), "")


def _deploys(run: RunRow, plan: Plan | None, table: TableName) -> Iterator[HistoryEntry]:
    pointers = {step.n: step.tables for step in plan.steps} if plan else {}
    own = [step for step in run.steps if step.table == table or table in pointers.get(step.n, ())]
    if not own:
        return
    node = next((node for node in plan.nodes if node.table == table), None) if plan else None
    began = min((step.started_at for step in own if step.started_at is not None), default=run.started_at)
    words = f"{action_words(node)}: {change_words(node)}" if node else "by a plan that is no longer kept"
    promoted = promotion_words(plan.request, table) if plan else ""
    version = node.version if node else max(step.version for step in own)
    who: dict[str, Any] = {"actor": run.actor, "plan": run.plan_hash, "run": run.id, "version": version}
    if promoted and plan:
        who["promoted_from"] = plan.request.promoted_from
    failed = next((step for step in own if step.state == "failed"), None)
    evidence = map(evidence_words, node.evidence) if node else ()
    detail = failed.note if failed else "; ".join(filter(None, (promoted, *evidence)))
    yield HistoryEntry(
        began, "deploy", f"{words}, {_end(run, own, began)}", detail=detail, bad=failed is not None, **who
    )
    for seen in node.evidence if node else ():
        if is_of_columns(seen):
            yield HistoryEntry(began, "schema", evidence_words(seen), **who)
    # After an edit in place, the swap only makes the pointer show new columns of the version that already serves.
    for step in own if node is None or node.action is not Action.RESTART else ():
        if step.do == StepKind.SWAP and step.state == "done" and step.ended_at is not None:
            yield HistoryEntry(
                step.ended_at, "serves", f"v{version} began to serve", detail=_skipped_validation_notes(own), **who
            )


def _skipped_validation_notes(own: Sequence[StepRow]) -> str:
    skipped = (step for step in own if (step.do, step.state) == (StepKind.VALIDATE, StepState.SKIPPED))
    return "; ".join(step.note for step in skipped)


def _end(run: RunRow, own: Sequence[StepRow], began: float) -> str:
    states = {step.state for step in own}
    for state in ("failed", "cancelled", "blocked"):
        if state in states:
            return state
    if run.ended_at is None or not all(step.ended_at for step in own):
        return run.state
    return f"done in {long_duration(max(step.ended_at or 0.0 for step in own) - began)}"


def _happened(event: EventRow) -> Iterator[HistoryEntry]:
    """Yield two entries for a recurring exception, and none for minor events or events caused by an action or a run."""
    if event.kind == EventKind.RUN:
        return
    if event.kind == EventKind.EXCEPTION:
        if event.count > 1:
            yield HistoryEntry(
                event.first_at,
                "failure",
                f"{event.summary}, the first of {event.count} times",
                version=event.version,
                bad=True,
            )
        again = f", {event.count} times so far" if event.count > 1 else ""
        yield HistoryEntry(
            event.at, "failure", f"{event.summary}{again}", version=event.version, detail=event.detail, bad=True
        )
        return
    if event.kind == EventKind.STATE and (event.cause in DONE_BY or not _matters(event)):
        return
    bad = event.kind == EventKind.MISSED or event.state in FAULTY
    yield HistoryEntry(event.at, event.kind, str(event.summary), version=event.version, detail=event.detail, bad=bad)


def _upstream(event: EventRow) -> HistoryEntry | None:
    bad = event.state in FAULTY and event.before != event.state
    if event.kind != EventKind.STATE or not (bad or event.cause in DONE_BY):
        return None
    return HistoryEntry(event.at, "upstream", f"{event.table}: {event.summary}", detail=event.detail, bad=bad)


def _matters(event: EventRow) -> bool:
    """True if a state change is a fault, or has details and does more than restore the desired state."""
    return event.state in FAULTY or (bool(event.detail) and event.cause != EventCause.WANTED)


def history_lines(entries: Iterable[HistoryEntry], now: float) -> tuple[str, ...]:
    """Format the history, oldest entry first. An entry's explanation is on a separate line below it."""
    lines: list[str] = []
    for entry in entries:
        lines.append(f"{moment(entry.at, now):<13}{op_words(entry.kind):<10}{entry_words(entry)}")
        lines += [f"{'':<23}{words}" for words in entry.detail.splitlines()[:1] if words]
    return tuple(lines)


def entry_words(entry: HistoryEntry) -> str:
    """Describe a history entry: what happened, under which plan, and caused by whom."""
    plan = f"plan {entry.plan[:4]}" if entry.plan else ""
    by = f"by {entry.actor}" if entry.actor else ""
    version = f"v{entry.version} " if entry.version and entry.kind not in ("deploy", "serves", "schema") else ""
    who = ", ".join(filter(None, (plan, by)))
    return version + entry.summary + (f" ({who})" if who else "")


def history_as_json(table: str, entries: Iterable[HistoryEntry]) -> dict[str, Any]:
    """Return a history as JSON, in the format `headgate.history/1`; unknown values are empty or 0.

    Fields may be added to the format, but never changed.
    """
    return {"format": "headgate.history/1", "table": table, "entries": [asdict(entry) for entry in entries]}
