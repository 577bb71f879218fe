"""Records each command in one row of the command log and at least one audit entry, with limited field lengths.

If the ledger is unavailable, a command that was executed does not fail; it is recorded later.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple

from core.model.act_outcomes import ActOutcome, CommandOutcome, outcome_of_all
from core.model.errors import HeadgateError, LedgerUnavailable, PoolUnreachable
from core.model.names import query_name
from core.text.wording import counted, long_duration
from pipelines.agent.context import AgentContext
from pipelines.agent.requests.socket_server import Caller
from pipelines.spark_connect import call_deadlines
from state.row_types import AuditRow, CommandRow


class RecordedOutcome(NamedTuple):
    """The outcome and detail of a command, as stored in a `CommandRow`."""

    outcome: CommandOutcome
    detail: str
    parts: tuple[tuple[str, CommandOutcome], ...] = ()
    """Subject and outcome of each audit entry if the outcomes differ; empty if one audit entry is enough."""


def outcome_of_error(error: HeadgateError) -> RecordedOutcome:
    """Return the outcome to record for a request that was refused or failed."""
    return RecordedOutcome(CommandOutcome.of_error(error), error.summary)


def outcome_of_answer(op: str, result: dict[str, Any]) -> RecordedOutcome:
    """Return the outcome to record for an answered request.

    A command that starts or continues a run is recorded as accepted, not as done.
    """
    if each := tuple(ActOutcome.from_json(one) for one in result.get("statements", ())):
        return RecordedOutcome(outcome_of_all(each), _detail_of_all(each), _parts_of_all(each))
    detail = f"plan {result['hash'][:12]}" if "hash" in result else ""
    if "until" in result:
        end = f"{datetime.fromtimestamp(result['until'], UTC):%Y-%m-%d %H:%M:%S} UTC"
        detail = f"for {long_duration(result['seconds'])}, until {end}"
        return RecordedOutcome(CommandOutcome.DONE, detail, ((f"{result['ticket']}: {detail}", CommandOutcome.DONE),))
    if "steps" in result:
        detail = f"run {result['run']} started"
    if result.get("changed") is False:
        return RecordedOutcome(CommandOutcome.UNCHANGED, detail)
    begun = op in ("apply", "run") and result.get("act") != "ack"
    return RecordedOutcome(CommandOutcome.ACCEPTED if begun else CommandOutcome.DONE, detail)


def _detail_of_all(outcomes: Sequence[ActOutcome]) -> str:
    worst_first = sorted(outcomes, key=lambda outcome: outcome.error is None)
    return ", ".join(f"{outcome.table} {outcome.sentence(f'{outcome.took_ms:.0f} ms')}" for outcome in worst_first)


def _parts_of_all(outcomes: Collection[ActOutcome]) -> tuple[tuple[str, CommandOutcome], ...]:
    names: dict[CommandOutcome, list[str]] = {}
    for outcome in outcomes:
        names.setdefault(outcome.recorded_as, []).append(query_name(outcome.table, outcome.version))
    return tuple((" ".join(found), outcome) for outcome, found in names.items()) if len(names) > 1 else ()


STORED = 10
"""Number of similar commands that are recorded per `WINDOW_S`. All others are only counted."""

WINDOW_S = 60.0

CHANGES_NOTHING = frozenset({CommandOutcome.REFUSED, CommandOutcome.FAILED, CommandOutcome.UNCHANGED})
"""Outcomes of commands that changed nothing. Such commands count as similar even if their subjects differ."""

CHANGES_NO_STATEMENT = frozenset(("stage", "unstage", "opinion", "upgrade_shown"))
"""Commands that do not affect statements. They count as similar even if their subjects differ."""


class Alike(NamedTuple):
    """Properties that similar commands have in common."""

    caller: str
    op: str
    outcome: str
    subject: str = ""
    """Table, run or other subject that the commands changed; empty for `CHANGES_NOTHING` and `CHANGES_NO_STATEMENT`."""


@dataclass(slots=True)
class _Window:
    began: float
    count: int = 0


class RepeatedCalls:
    """Counts similar commands, to limit how many are recorded per minute."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._windows: dict[Alike, _Window] = {}

    def is_stored(self, caller: str, op: str, outcome: str, subject: str) -> bool:
        """Count a command, and return True if it should be recorded."""
        changes = outcome not in CHANGES_NOTHING and op not in CHANGES_NO_STATEMENT
        alike = Alike(caller, op, outcome, subject if changes else "")
        with self._lock:
            window = self._windows.setdefault(alike, _Window(self._monotonic()))
            window.count += 1
            return window.count <= STORED

    def remove_ended_periods(self) -> list[tuple[Alike, int]]:
        """Remove ended counting periods, and return the number of unrecorded commands by group of similar commands.

        Groups whose commands were all recorded are omitted.
        """
        with self._lock:
            now = self._monotonic()
            over = {key: window for key, window in self._windows.items() if now - window.began > WINDOW_S}
            for key in over:
                del self._windows[key]
        return [(key, window.count - STORED) for key, window in over.items() if window.count > STORED]


log = logging.getLogger(__name__)

NOTE_S = 0.5
"""Longest time, in seconds, that recording a command may delay the answer to it."""

KEPT = 1000
"""Maximum number of commands kept in memory while the ledger is unavailable.

Older commands are only in the agent's log.
"""


class CommandLog:
    """Writes the command log and the audit entries of commands."""

    def __init__(self, agent: AgentContext) -> None:
        self._agent = agent
        self._repeated = RepeatedCalls(agent.monotonic)
        self._unwritten: deque[_Records] = deque(maxlen=KEPT)

    def note(self, caller: Caller, request: dict[str, Any], said: RecordedOutcome, took_ms: int) -> None:
        """Record a request and its outcome.

        After `STORED` similar requests within a minute, all others are only counted.
        """
        now, act, subject = self._agent.clock(), cut(_act(request), 40), cut(_subject(request), 500)
        repeats = act if request["op"] == "run" and said.outcome not in CHANGES_NOTHING else str(request["op"])
        if not self._repeated.is_stored(caller.name, repeats, said.outcome, subject):
            return
        line, detail = cut(request.get("line") or "", 2000), cut(said.detail, 500)
        plan_hash = cut(str((request.get("args") or {}).get("hash", "")), 64)
        self._record(
            CommandRow(
                0,
                now,
                actor=caller.name,
                op=act,
                subject=subject,
                line=line,
                outcome=said.outcome,
                detail=detail,
                ended_at=now,
                took_ms=took_ms,
            ),
            said.parts,
            plan_hash=plan_hash,
            confirmation=cut(request.get("confirm") or "", 200),
        )

    def record_repeated(self) -> None:
        """Record commands whose recording failed earlier, and the numbers of commands that were only counted."""
        while self._unwritten:
            try:
                self._unwritten[0].write()
            except LedgerUnavailable:
                return
            self._unwritten.popleft()
        for alike, count in self._repeated.remove_ended_periods():
            subject = f"{alike.subject}: {count:,} more within a minute".removeprefix(": ")
            self._record(
                CommandRow(
                    0,
                    self._agent.clock(),
                    actor=alike.caller,
                    op=alike.op,
                    subject=subject,
                    line="",
                    outcome=alike.outcome,
                )
            )

    def _record(self, command: CommandRow, parts: tuple[tuple[str, CommandOutcome], ...] = (), **more: str) -> None:
        # If writing fails or takes longer than NOTE_S, the records are written later.
        ledger, records = self._agent.ledger, _Records(partial(self._agent.ledger.add_command, command))
        for subject, outcome in parts or ((command.subject, command.outcome),):
            entry = AuditRow(0, command.at, command.actor, command.op, cut(subject, 500), outcome=outcome, **more)
            records.add(partial(ledger.add_audit, entry))
        try:
            call_deadlines.call(NOTE_S, records.write)
        except (LedgerUnavailable, PoolUnreachable) as error:
            self._unwritten.append(records)
            log.warning("recorded later: %s %s by %s: %s", command.op, command.subject, command.actor, error.summary)
        except Exception:
            log.exception("not recorded: %s %s by %s", command.op, command.subject, command.actor)


class _Records:
    """Unwritten records of one command. Each record is written only once, even if two threads try to write it."""

    def __init__(self, first: Callable[[], object]) -> None:
        self._left = deque([first])
        self._lock = threading.Lock()

    def add(self, write: Callable[[], object]) -> None:
        self._left.append(write)

    def write(self) -> None:
        with self._lock:
            while self._left:
                self._left[0]()
                self._left.popleft()


def cut(text: str, most: int) -> str:
    """Cut `text` to at most `most` characters. A text that was cut ends with its original length."""
    if len(text) <= most:
        return text
    end = f"… ({len(text):,} characters)"
    return text[: most - len(end)] + end


def _act(request: dict[str, Any]) -> str:
    op = str(request.get("op"))
    if op == "submit_plan" and _promoted_from(request):
        return "promote"
    if op == "cordon_pool" and not (request.get("args") or {}).get("cordons"):
        return "uncordon_pool"
    return str((request.get("args") or {}).get("act") or op) if op == "run" else op


def _subject(request: dict[str, Any]) -> str:
    args = request.get("args") or {}
    tables, questions = args.get("tables") or args.get("table") or (), args.get("questions")
    if isinstance(questions, list):
        return counted(len(questions), "statement")
    named = " ".join(map(str, tables)) if isinstance(tables, list) else str(tables or "")
    if source := _promoted_from(request):
        return f"{str(args.get('hash') or '')[:12]} from {source}"
    return named or str(args.get("hash") or "")[:12] or str(args.get("id") or args.get("ticket") or "")


def _promoted_from(request: dict[str, Any]) -> str:
    """Return the environment from which a submitted plan promotes revisions; empty if it promotes none."""
    asked = (request.get("args") or {}).get("request")
    return str(asked.get("promoted_from") or "") if isinstance(asked, dict) else ""
