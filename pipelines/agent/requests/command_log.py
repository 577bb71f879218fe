"""Records of commands: a row of the command log and one of the audit for each, of bounded fields.

What was carried out is never told to have failed because it could not be recorded: it is recorded later.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from core.model.errors import LedgerUnavailable, PoolUnreachable
from core.text.wording import counted
from pipelines.agent.context import AgentContext
from pipelines.agent.requests.recorded_outcomes import RecordedOutcome
from pipelines.agent.requests.repeated_calls import CHANGES_NOTHING, RepeatedCalls
from pipelines.agent.requests.socket_server import Caller
from pipelines.spark import call_deadlines
from state.row_types import AuditRow, CommandRow

log = logging.getLogger(__name__)

NOTE_S = 0.5
"""How long an answer waits for its row in the command log."""

KEPT = 1000
"""Commands that wait for a ledger which takes nothing; the oldest are in the agent's log alone."""


class CommandLog:
    """Writes the records of one agent's commands."""

    def __init__(self, world: AgentContext) -> None:
        self._world = world
        self._repeated = RepeatedCalls(world.monotonic)
        self._unwritten: deque[_Records] = deque(maxlen=KEPT)

    def note(self, caller: Caller, request: dict[str, Any], said: RecordedOutcome, took_ms: int) -> None:
        """Record a request and what came of it; what repeats is counted instead."""
        now, act, subject = self._world.clock(), cut(_act(request), 40), cut(_subject(request), 500)
        repeats = act if request["op"] == "run" and said.outcome not in CHANGES_NOTHING else str(request["op"])
        if not self._repeated.is_stored(caller.name, repeats, said.outcome, subject):
            return
        line, detail = cut(request.get("line") or "", 2000), cut(said.detail, 500)
        plan_hash = cut(str((request.get("args") or {}).get("hash", "")), 64)
        self._record(
            CommandRow(0, now, caller.name, act, subject, line, said.outcome, detail, now, took_ms),
            said.parts,
            plan_hash=plan_hash,
            confirmation=cut(request.get("confirm") or "", 200),
        )

    def tell_repeated(self) -> None:
        """Record what the ledger did not take before, then how many commands were counted without being recorded."""
        while self._unwritten:
            try:
                self._unwritten[0].write()
            except LedgerUnavailable:
                return
            self._unwritten.popleft()
        for alike, count in self._repeated.take_over():
            subject = f"{alike.subject}: {count:,} more within a minute".removeprefix(": ")
            self._record(CommandRow(0, self._world.clock(), alike.caller, alike.op, subject, "", alike.outcome))

    def _record(self, command: CommandRow, parts: tuple[tuple[str, str], ...] = (), **more: str) -> None:
        """Write a command and its entries of the audit; a ledger that is locked or full delays no stop by it."""
        ledger, records = self._world.ledger, _Records(partial(self._world.ledger.add_command, command))
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
    """The records of one command, each written once, by whichever thread comes to it."""

    def __init__(self, first: Callable[[], object]) -> None:
        self._left = deque([first])
        self._lock = threading.Lock()

    def add(self, write: Callable[[], object]) -> None:
        self._left.append(write)

    def write(self) -> None:
        """Write those that are left; raises LedgerUnavailable."""
        with self._lock:
            while self._left:
                self._left[0]()
                self._left.popleft()


def cut(text: str, most: int) -> str:
    """Return a text of at most so many characters; one that is longer says how long it is."""
    if len(text) <= most:
        return text
    end = f"… ({len(text):,} characters)"
    return text[: most - len(end)] + end


def _act(request: dict[str, Any]) -> str:
    """Return the name of the action: for a run command its own word, so that a retry differs from the run."""
    op = str(request.get("op"))
    return str((request.get("args") or {}).get("act") or op) if op == "run" else op


def _subject(request: dict[str, Any]) -> str:
    args = request.get("args") or {}
    tables, questions = args.get("tables") or args.get("table") or (), args.get("questions")
    if isinstance(questions, list):
        return counted(len(questions), "statement")
    named = " ".join(map(str, tables)) if isinstance(tables, list) else str(tables or "")
    return named or str(args.get("hash") or "")[:12] or str(args.get("id") or "")
