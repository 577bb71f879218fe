"""Why a plan does something to a statement: a closed list, for people; executing never branches on it.

The values are in plan documents, in ledgers and in hashes: they never change. What people read is in `reason_words`.
"""

from collections.abc import Mapping
from enum import StrEnum


class Reason(StrEnum):
    """The reason as plan documents hold it."""

    NEW = "is not deployed yet"
    UNCHANGED = "runs and has not changed"
    SERVES = "is read by the plan and runs"
    LANDS = "is external and known"
    REGISTERED = "is external and not in the catalog yet"
    DECLARED_ANEW = "is external, and other columns or properties are expected of it"
    DORMANT = "does not run; goes on from its checkpoint"
    AT_REST = "was stopped on purpose and is not named"
    COLD_PARENT = "does not run and is read by the plan"
    SAME_MEANING = "says the same in other words"
    DOCUMENTS = "only its description changed"
    IN_PLACE = "keeps no state, so the new text may go on from the checkpoint"
    PACE = "only its trigger or rate changed"
    TRACKING = "only whether it tracks the columns that it streams changed"
    COLUMNS_ADDED = "only columns were added, and none of its state knows them"
    COLUMNS_WIDENED = "only columns take a wider type, and none of its state holds them"
    COLUMNS_CHANGED = "its columns changed, and the old table cannot hold them"
    STATE_CHANGED = "its state would mix old and new, and Spark may not object"
    SOURCES_CHANGED = "its positions in the old sources mean nothing in the new ones"
    ABOVE_STATE = "changed above its state alone, which stays as it is"
    DELAY_CHANGED = "only its watermark's delay changed, and its state stays"
    STATIC_CHANGED = "another table is its static side, and it would keep the old one"
    CONF_PINNED = "its checkpoint keeps the old configuration"
    POOL_CHANGED = "is to run on another pool"
    ENGINE_CHANGED = "is to run on another version of Spark"
    SINK_CHANGED = "its table is written in another way"
    UNPROVEN = "what changed is not known, so it is treated as the worst"
    ASKED = "a rebuild was asked for"
    PARENT_REBUILT = "a parent is re-created; its positions mean nothing in the new table"
    STATIC_PARENT_REBUILT = "a static side is re-created, and it would keep the old one"
    PARENT_REWRITTEN = "a parent is written again by its key, and its state would count the rows twice"
    PARENT_CHAINED = "a parent goes on in a new version; it reads the old one to its end first"
    COLUMNS_ABOVE = "reads a table that gets columns, and uses them"
    COLUMNS_STOP_READERS = "reads a table that gets columns, and would end at once"
    TYPES_STOP_READERS = "reads a table whose columns take a wider type, and would end at once"
    COLUMNS_IN_STATE = "its state holds every column of a parent that gets more"
    TYPES_IN_STATE = "its state holds a column of a parent that takes a wider type"
    WITH_ITS_SET = "belongs to one statement set with a table that is rebuilt"
    READS_OLD_VERSION = "still reads an old version of a parent"
    CHECKPOINT_LOST = "its checkpoint is missing, unreadable or another's"
    DELETED = "its delete was asked for"
    ROLLED_BACK = "what served before serves again"
    UNDELETED = "is taken out of the trash"
    RETIRED = "what it replaced goes into the trash"
    OPTIMIZED = "its small files are to become large ones"
    VACUUMED = "files that it does not hold any more are to be deleted"


STOPPED_MEANWHILE = frozenset({Reason.COLUMNS_STOP_READERS, Reason.TYPES_STOP_READERS})
"""Of what goes on as it was, and only stands still while a table that it reads is altered."""

LOST_CHECKPOINT = "its checkpoint, its table or one that it reads is missing or another's"
"""Why a statement cannot go on, where nobody has said which of them it is."""

_WORDS: Mapping[str, str] = {
    Reason.NEW: "is not deployed yet",
    Reason.UNCHANGED: "is running and has not changed",
    Reason.SERVES: "is running and is read by tables of this plan",
    Reason.LANDS: "is external and already registered",
    Reason.REGISTERED: "is external and not registered in the catalog yet",
    Reason.DECLARED_ANEW: "is external, and other columns or properties are expected of it",
    Reason.DORMANT: "is not running, and resumes from its checkpoint",
    Reason.AT_REST: "was stopped on purpose and is not part of the request",
    Reason.COLD_PARENT: "is not running and is read by tables of this plan",
    Reason.SAME_MEANING: "is written differently and means the same",
    Reason.DOCUMENTS: "only its description changed",
    Reason.IN_PLACE: "keeps no state, so the new text can continue from the checkpoint",
    Reason.PACE: "only its trigger or its rate limits changed",
    Reason.TRACKING: "only whether it tracks the columns of its sources changed",
    Reason.COLUMNS_ADDED: "only columns were added, and its state holds none of them",
    Reason.COLUMNS_WIDENED: "only columns take a wider type, which its table takes in place",
    Reason.COLUMNS_CHANGED: "its columns changed, and the old table cannot hold them",
    Reason.STATE_CHANGED: "its state would mix old and new rows, and Spark may not report it",
    Reason.SOURCES_CHANGED: "its offsets in the old sources mean nothing in the new ones",
    Reason.ABOVE_STATE: "only what follows its state changed, and the state stays valid",
    Reason.DELAY_CHANGED: "only the delay of its watermark changed, and the state stays valid",
    Reason.STATIC_CHANGED: "its static side is another table now, and a running query keeps the old one",
    Reason.CONF_PINNED: "its checkpoint pins the old configuration",
    Reason.POOL_CHANGED: "moves to another pool",
    Reason.ENGINE_CHANGED: "moves to another version of Spark",
    Reason.SINK_CHANGED: "its table is written in a different way",
    Reason.UNPROVEN: "what changed is unknown, so it is treated as the most severe change",
    Reason.ASKED: "a rebuild was requested",
    Reason.PARENT_REBUILT: "an upstream table is re-created; old offsets mean nothing in the new one",
    Reason.STATIC_PARENT_REBUILT: "its static side is re-created, and a running query keeps the old one",
    Reason.PARENT_REWRITTEN: "an upstream table is rewritten by its key, and its state would count those rows twice",
    Reason.PARENT_CHAINED: "an upstream table continues in a new version, and the old one is read to its end first",
    Reason.COLUMNS_ABOVE: "reads an upstream table that gets new columns, and uses them",
    Reason.COLUMNS_STOP_READERS: "reads an upstream table that gets new columns, at which Spark would end it",
    Reason.TYPES_STOP_READERS: "reads an upstream table whose columns take a wider type, at which Spark would end it",
    Reason.COLUMNS_IN_STATE: "its state holds every column of an upstream table that gets more",
    Reason.TYPES_IN_STATE: "its state holds a column of an upstream table that takes a wider type",
    Reason.WITH_ITS_SET: "belongs to the same statement set as a table that is rebuilt",
    Reason.READS_OLD_VERSION: "still reads an old version of an upstream table",
    Reason.CHECKPOINT_LOST: "it cannot go on from its checkpoint",
    Reason.DELETED: "its delete was requested",
    Reason.ROLLED_BACK: "the version that served before serves again",
    Reason.UNDELETED: "is taken out of the trash, and resumes from its checkpoint",
    Reason.RETIRED: "what was replaced goes into the trash",
    Reason.OPTIMIZED: "its small files are written into large ones",
    Reason.VACUUMED: "files that only older versions of it hold are deleted",
}
_PREDICATES = frozenset(("is", "was", "keeps", "moves", "reads", "belongs", "still"))
"""First words of those that are said of the statement; the others are sentences of their own."""


def reason_words(reason: str) -> str:
    """Return what people read for a reason; one that an older program wrote is told as it stands."""
    return _WORDS.get(reason, reason)


def because(reason: str) -> str:
    """Return a reason as the clause behind `because`."""
    words = reason_words(reason)
    return f"it {words}" if words.split(" ")[0] in _PREDICATES else words
