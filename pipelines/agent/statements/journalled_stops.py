"""Stops of the emergency journal: announced when an agent begins, and applied once the ledger takes them."""

import logging
from functools import partial

from core.model.events import EventKind
from core.model.names import whole_number
from core.text.wording import counted
from pipelines.agent.context import AgentContext
from state.emergency_journal import EmergencyJournal, JournalledStop
from state.operator_commands import Word

log = logging.getLogger(__name__)

SERIALS_AHEAD = 1_000_000
"""How far the serials of the journal may be above those of the ledger: stops that could not be recorded."""


def announce_journal(agent: AgentContext, journal: EmergencyJournal) -> None:
    """Announce what an earlier agent could not record, before anybody is answered; new words come after it."""
    recorded = agent.locks.newest_serial()
    for stop in journal.waiting().stops:
        if stop.serial <= recorded + SERIALS_AHEAD:
            agent.locks.count_above(stop.serial)
            agent.locks.stop_waits(stop.names, stop.serial)


def apply_journal(agent: AgentContext, journal: EmergencyJournal) -> None:
    """Record the stops of the journal, each where no later word stands; raises LedgerUnavailable, and they wait on.

    Lines that are no stops are kept beside the journal, and told once.
    """
    if not journal.waits():
        return
    # A ledger that takes nothing is met here, before anything is read.
    agent.ledger.heartbeat(agent.clock())
    with journal.taking() as taken:
        unreadable = taken.unreadable
        for stop in taken.stops:
            if stop.serial > agent.locks.newest_serial():
                # Nobody was given this serial, and no later word would ever count.
                unreadable += (stop.as_line(),)
                continue
            agent.ledger.stop_statements(stop.names, Word(stop.serial, stop.actor, stop.at))
            agent.locks.recorded(stop.names, stop.serial)
            _tell(agent, journal, stop)
            log.info("applied the stop of %s from the emergency journal", ", ".join(stop.names))
        if unreadable:
            _set_aside(agent, journal, unreadable)
        journal.told.clear()


def _tell(agent: AgentContext, journal: EmergencyJournal, stop: JournalledStop) -> None:
    """Record who has stopped what: the agent that was told may have been killed before it could.

    Where the ledger does not take all of it, the stops are applied again; what it has is not recorded again.
    """
    late = "recorded late: the ledger could not be written then"
    for name in stop.names:
        table, _, version = name.partition("@v")
        about = (table, whole_number(version) or 0)
        for row, record in (
            ("event", partial(agent.event, EventKind.STATE, f"the stop by {stop.actor} was {late}", about=about)),
            ("audit", partial(agent.audit, stop.actor, "stop", name, outcome=late)),
        ):
            key = (stop.at, stop.actor, name, row)
            if key not in journal.told:
                record()
                journal.told.add(key)


def _set_aside(agent: AgentContext, journal: EmergencyJournal, lines: tuple[bytes, ...]) -> None:
    kept = journal.unreadable_path.name
    summary = f"{counted(len(lines), 'line')} of the emergency journal cannot be applied: {kept} keeps what was there"
    log.warning("%s", summary)
    agent.event(EventKind.EXCEPTION, summary, detail=repr(lines[0][:200].decode(errors="replace")))
    journal.set_aside(lines)
