"""The closed list of reasons for the actions of a plan; reasons are displayed, and never decide what is executed."""

from enum import StrEnum

from core.text.sentence import Sentence

_IT = "it "
"""Default subject of a reason's clause, used if the reason's words have no subject."""


class Reason(StrEnum):
    """Why a plan performs an action: a code for plan documents and a sentence for display."""

    NEW = "new", _IT, "is not deployed yet"
    UNCHANGED = "unchanged", _IT, "is running and has not changed"
    SERVES = "serves", _IT, "is running and is read by tables of this plan"
    LANDS = "lands", _IT, "is external and already registered"
    REGISTERED = "registered", _IT, "is external and not registered in the catalog yet"
    DECLARED_ANEW = "declared_anew", _IT, "is external, and its declared columns, options or properties changed"
    DORMANT = "dormant", _IT, "is not running, and resumes from its checkpoint"
    AT_REST = "at_rest", _IT, "was stopped on purpose and is not part of the request"
    COLD_PARENT = "cold_parent", _IT, "is not running and is read by tables of this plan"
    SAME_MEANING = "same_meaning", _IT, "is written differently but means the same"
    DOCUMENTS = "documents", "", "only its description changed"
    IN_PLACE = "in_place", _IT, "keeps no state, so the new text can continue from the checkpoint"
    PACE = "pace", "", "only its trigger or its rate limits changed"
    TRACKING = "tracking", "", "only whether it tracks the columns of its sources changed"
    COLUMNS_ADDED = "columns_added", "", "only columns were added, and its state holds none of them"
    COLUMNS_WIDENED = "columns_widened", "", "only column types were widened, which its table supports in place"
    COLUMNS_CHANGED = "columns_changed", "", "its columns changed, and the old table cannot hold them"
    STATE_CHANGED = "state_changed", "", "its state would mix old and new rows, and Spark may not report it"
    SOURCES_CHANGED = "sources_changed", "", "its offsets in the old sources mean nothing in the new ones"
    ABOVE_STATE = "above_state", "", "only what follows its state changed, and the state stays valid"
    DELAY_CHANGED = "delay_changed", "", "only the delay of its watermark changed, and the state stays valid"
    STATIC_CHANGED = "static_changed", "", "its static side is another table now, and a running query keeps the old one"
    CONF_PINNED = "conf_pinned", "", "its checkpoint pins the old configuration"
    POOL_CHANGED = "pool_changed", _IT, "moves to another pool"
    ENGINE_CHANGED = "engine_changed", _IT, "moves to another version of Spark"
    SINK_CHANGED = "sink_changed", "", "its table is written in a different way"
    UNPROVEN = "unproven", "", "what changed is unknown, so it is treated as the most severe change"
    ASKED = "asked", "", "a rebuild was requested"
    PARENT_REBUILT = "parent_rebuilt", "", "an upstream table is re-created; old offsets mean nothing in the new one"
    STATIC_PARENT_REBUILT = (
        "static_parent_rebuilt",
        "",
        "its static side is re-created, and a running query keeps the old one",
    )
    PARENT_REWRITTEN = (
        "parent_rewritten",
        "",
        "an upstream table is rewritten by its key, and its state would count those rows twice",
    )
    PARENT_CHAINED = (
        "parent_chained",
        "",
        "an upstream table continues in a new version, and the old one is read to its end first",
    )
    COLUMNS_ABOVE = "columns_above", _IT, "reads an upstream table that gets new columns, and uses them"
    COLUMNS_STOP_READERS = (
        "columns_stop_readers",
        _IT,
        "reads an upstream table that gets new columns, and Spark would stop it then",
    )
    TYPES_STOP_READERS = (
        "types_stop_readers",
        _IT,
        "reads an upstream table whose columns are widened, and Spark would stop it then",
    )
    COLUMNS_IN_STATE = "columns_in_state", "", "its state holds every column of an upstream table that gets new ones"
    TYPES_IN_STATE = "types_in_state", "", "its state holds a column of an upstream table that is widened"
    WITH_ITS_SET = "with_its_set", _IT, "belongs to the same statement set as a table that is rebuilt"
    READS_OLD_VERSION = "reads_old_version", _IT, "still reads an old version of an upstream table"
    CHECKPOINT_LOST = "checkpoint_lost", "", "it cannot continue from its checkpoint"
    DELETED = "deleted", "", "its deletion was requested"
    ROLLED_BACK = "rolled_back", "", "the previous version serves again"
    UNDELETED = "undeleted", _IT, "is taken out of the trash, and resumes from its checkpoint"
    RETIRED = "retired", "", "replaced versions are moved to the trash"
    OPTIMIZED = "optimized", "", "its small files are compacted into large ones"
    VACUUMED = "vacuumed", "", "files that only its older versions reference are deleted"

    _subject: str
    words: Sentence

    def __new__(cls, code: str, subject: str = "", words: str = "") -> "Reason":
        member = str.__new__(cls, code)
        member._value_, member._subject, member.words = code, subject, Sentence(words)
        return member

    @property
    def clause(self) -> Sentence:
        """The reason as a clause that can follow `because`."""
        return Sentence(f"{self._subject}{self.words}")


STOPPED_MEANWHILE = frozenset({Reason.COLUMNS_STOP_READERS, Reason.TYPES_STOP_READERS})
"""Reasons for statements that stay unchanged but are paused while an upstream table is altered."""

LOST_CHECKPOINT = "its checkpoint, its table or an input is missing or belongs to another query"
"""Explanation of why a statement cannot continue, used if the agent recorded no precise cause."""
