"""Statements whose tables are others than they were, while they run: stopped and named before Spark loses a row.

Rows that somebody else writes into a keyed table are said once, and its statement goes on: it never sees them.
"""

import logging
from typing import Any

from core.model.errors import Busy, HeadgateError, Refused, TryAgain
from core.model.names import TableName, physical_name, query_name
from core.model.states import ALIVE, WantedState
from core.model.table_formats import table_format
from core.observed.versions import Deployment
from pipelines.agent.context import AgentContext
from pipelines.agent.deployment_compiler import upserts
from pipelines.agent.statements.deployment_lifecycle import fail, stop
from pipelines.agent.tables.external_inputs import reads_inputs, why_input_unlike
from pipelines.agent.tables.table_identities import keep_deleted_keys, refuse_other_tables

log = logging.getLogger(__name__)

EVERY_S = 30.0
"""Between two comparisons."""

REPLACED, BY_HAND = "HEADGATE_TABLE_REPLACED", "HEADGATE_WRITTEN_BY_HAND"
COLUMNS_CHANGED, ROWS_CHANGED = "HEADGATE_COLUMNS_CHANGED_BY_HAND", "HEADGATE_ROWS_CHANGED_BY_HAND"
LOG_UNREAD = "HEADGATE_LOG_NOT_READ"
"""Of an input whose log cannot be read now, or asks for what is not read here: nobody can say what it holds."""
FILES_GONE, LOG_GONE = "HEADGATE_FILES_DELETED", "HEADGATE_LOG_DELETED"

_OF_TABLES = ("DELTA_", "DIFFERENT_DELTA_TABLE_")
"""How the classes begin of what Spark says where a table is not what it was (Delta 4.4.0)."""
NOT_IN_CATALOG = "its table is not in the pool's catalog"
"""How it begins what is said of a version whose table the catalog has refused."""

_CLASSES = (
    (" has no column ", COLUMNS_CHANGED),
    (".sql declares ", COLUMNS_CHANGED),
    (" is another one since version ", COLUMNS_CHANGED),
    (" was changed by ", ROWS_CHANGED),
    (" lacks files of version ", FILES_GONE),
    (" in its log any more", LOG_GONE),
    (" cannot be read", LOG_UNREAD),
    (" cannot be reached", LOG_UNREAD),
    (" is not there", LOG_UNREAD),
)
"""By what is said of a table, why its statement was stopped; all else is another table in the place of one, or none."""


class ChangedTables:
    """Compares, round by round, what statements that run read and write with what they read and wrote before."""

    def __init__(self, world: AgentContext) -> None:
        self._world = world
        self._said: dict[tuple[TableName, int], int] = {}
        """By deployment the version of its table of which was said that it was written by hand."""

    def round(self) -> None:
        """Stop each statement whose tables are others now, and say which; of keyed ones at rest, who else wrote."""
        for deployment in self._world.ledger.deployments():
            if deployment.deleted:
                continue
            try:
                if deployment.external:
                    self._look_at_input(deployment)
                    continue
                if _runs(deployment):
                    self._compare(deployment)
                if upserts(deployment):
                    self._tell_of_other_writers(deployment)
            except Busy:
                continue
            except HeadgateError as error:
                log.info("%s was not compared: %s", query_name(deployment.table, deployment.version), error.summary)

    def _compare(self, deployment: Deployment) -> None:
        key = (deployment.table, deployment.version)
        # Files are looked at first while nobody is kept from acting on it.
        is_other = _is_other(self._world, deployment)
        if not is_other and not upserts(deployment):
            return
        with self._world.locks.holding(key, by="a comparison of tables", wait_s=0):
            # A run or an operator may have moved, altered or stopped it since it was read.
            found = self._world.ledger.deployment(*key)
            if found is None or not _runs(found):
                return
            if not is_other and found == deployment:
                keep_deleted_keys(self._world, found)
                return
            try:
                refuse_other_tables(self._world, found)
            except Refused as error:
                stop(self._world, found)
                fail(self._world, found, class_of(error.summary), error.sentence)

    def _look_at_input(self, deployment: Deployment) -> None:
        """Record of a table with a log that others write that it is gone, unlike its declaration, or another one."""
        if not table_format(deployment.format).transaction_log:
            return
        key, found = (deployment.table, deployment.version), ""
        try:
            unlike = why_input_unlike(self._world, deployment)
            error = f"{unlike.why}; {unlike.remedy}" if unlike is not None else ""
            found = self._world.files.identity(deployment.folder, deployment.stored_as)
        except TryAgain as why:
            error = why.sentence
        changes: dict[str, Any] = {"table_id": found} if found and found != deployment.table_id else {}
        # What the catalog has refused is said of it already, and taken back by who tries it again.
        if deployment.error != error and not deployment.error.startswith(NOT_IN_CATALOG):
            changes["error"] = error
        if not changes:
            return
        with self._world.locks.holding(key, by="a comparison of tables", wait_s=0):
            if self._world.ledger.deployment(*key) != deployment:
                # A run has registered it again since it was read.
                return
            self._world.ledger.update_deployment(*key, **changes)
        if changes.get("error"):
            self._world.event("exception", class_of(error), about=key, detail=error, fingerprint=class_of(error))
        if deployment.table_id and "table_id" in changes:
            words = f"{deployment.table} was re-created: its id is {found} and was {deployment.table_id}"
            readers = "a statement that streams it is told so, and one of which it is a static side reads the new one"
            self._world.event("exception", REPLACED, about=key, detail=f"{words}; {readers}", fingerprint=found)

    def _tell_of_other_writers(self, deployment: Deployment) -> None:
        key = (deployment.table, deployment.version)
        found = self._world.files.written_by_hand(deployment.folder, deployment.format)
        if found is None or self._said.get(key) == found[0]:
            return
        version, operation = found
        by = f"were written by hand ({operation} in version {version}), not by its statement"
        risk = f"a key may stand there twice, or be gone; headgate plan {deployment.table} --rebuild reads all again"
        words = f"rows of {physical_name(*key)} {by}: {risk}"
        known = self._world.ledger.events_of(deployment.table, "exception")
        if not any((event.version, event.detail) == (deployment.version, words) for event in known):
            self._world.event("exception", BY_HAND, about=key, detail=words, fingerprint=f"{BY_HAND} {version}")
        self._said[key] = version


def why_ended(world: AgentContext, deployment: Deployment, error_class: str) -> tuple[str, str] | None:
    """Return class and sentence of what was done to a table, at which Spark has ended a statement; None where all are
    as they were, or its error is of something else.

    Spark names no table, nor, of a static side that others write and that is gone, what has ended it (Delta 4.4.0).
    """
    if not (error_class.startswith(_OF_TABLES) or reads_inputs(world, deployment)):
        return None
    try:
        refuse_other_tables(world, deployment)
    except Refused as error:
        return class_of(error.summary), error.sentence
    except HeadgateError:
        return None
    return None


def class_of(why: str) -> str:
    """Return the class of what is wrong with a table, by its sentence."""
    return next((found for words, found in _CLASSES if words in why), REPLACED)


def _is_other(world: AgentContext, deployment: Deployment) -> bool:
    try:
        refuse_other_tables(world, deployment)
    except Refused:
        return True
    return False


def _runs(deployment: Deployment) -> bool:
    """Return whether a statement of ours runs and is to."""
    ours = not (deployment.external or deployment.deleted)
    return ours and deployment.wanted == WantedState.RUNNING and deployment.state in ALIVE
