"""Words of operators to a run, from when they are accepted until the run has carried them out.

A serial is drawn in the transaction that accepts its word, so that of two words the later one has the higher serial.
"""

import sqlite3
from dataclasses import dataclass

from core.model.errors import UsageError
from core.run.model import RunState
from core.run.state_machine import HEARD_IN, OperatorControl
from state.row_mapping import Value
from state.transactions import insert
from state.words import NEWEST_SERIAL


@dataclass(frozen=True, slots=True)
class RunWordRow:
    """An operator's word that its run has not carried out yet."""

    serial: int
    """In the order in which words were accepted; never given twice."""
    act: str
    """As in `core.run.state_machine.OperatorControl`."""
    step: int
    """Number of the step to skip; 0 for every other act."""
    actor: str
    at: float
    statement_serial: int
    """Serial, as in `state.words`, of the newest word on a statement when this one was accepted or said again.

    That word may not be in the ledger yet: a start waits for whoever holds its version.
    """


def control_of(word: RunWordRow) -> OperatorControl:
    """Return a word as a run takes it."""
    return OperatorControl(word.act, word.step, word.actor)


def refuse_unheard(run_id: str, state: str, act: str) -> None:
    """Raise UsageError where a word means nothing to a run that has ended so."""
    if RunState(state) in HEARD_IN[act]:
        return
    remedy = f"headgate runs retry {run_id} goes on with it" if state == RunState.FAILED else "make a new plan"
    raise UsageError(f"run {run_id} is {state}: there is nothing to {act}", remedy=remedy)


def refuse_cancelled(connection: sqlite3.Connection, run_id: str) -> None:
    """Raise UsageError where a cancel waits, after which nothing else is heard."""
    sql = "SELECT actor FROM run_word WHERE run_id = ? AND act = 'cancel'"
    if (found := connection.execute(sql, (run_id,)).fetchone()) is not None:
        raise UsageError(f"run {run_id} is being cancelled by {found[0]}", remedy=f"headgate runs {run_id} shows it")


def keep_word(connection: sqlite3.Connection, run_id: str, word: OperatorControl, at: float, drawn: int = 0) -> None:
    """Write a word inside the caller's transaction; the newest one is not kept twice, and counts as said again.

    `drawn` is the newest serial of a word on a statement, which the ledger may not have yet.
    """
    ((recorded,),) = connection.execute(NEWEST_SERIAL)
    statement_serial = max(recorded, drawn)
    sql = "SELECT act, step, serial FROM run_word WHERE run_id = ? ORDER BY serial DESC LIMIT 1"
    newest = connection.execute(sql, (run_id,)).fetchone()
    if newest is not None and newest[:2] == (word.act, word.n):
        again = "UPDATE run_word SET statement_serial = ? WHERE serial = ?"
        connection.execute(again, (statement_serial, newest[2]))
        return
    refuse_cancelled(connection, run_id)
    record: dict[str, Value] = {"run_id": run_id, "act": word.act, "step": word.n, "actor": word.by, "at": at}
    insert(connection, "run_word", record | {"statement_serial": statement_serial})
