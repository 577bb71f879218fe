"""Change kinds, by row of planning.md §3: the reason, words, severity, action and note of each."""

from core.model.actions import Action
from core.model.reasons import Reason

REASON_BY_ROW = {
    "0b": Reason.CHECKPOINT_LOST,
    "1": Reason.SAME_MEANING,
    "2": Reason.DOCUMENTS,
    "3": Reason.IN_PLACE,
    "4": Reason.COLUMNS_ADDED,
    "5": Reason.COLUMNS_CHANGED,
    "6a": Reason.STATE_CHANGED,
    "6b": Reason.STATE_CHANGED,
    "6c": Reason.ABOVE_STATE,
    "6d": Reason.DELAY_CHANGED,
    "7a": Reason.SOURCES_CHANGED,
    "7b": Reason.SOURCES_CHANGED,
    "7c": Reason.SOURCES_CHANGED,
    "8": Reason.SINK_CHANGED,
    "9": Reason.SINK_CHANGED,
    "11a": Reason.PACE,
    "11b": Reason.CONF_PINNED,
    "12": Reason.POOL_CHANGED,
    "13": Reason.ENGINE_CHANGED,
    "14": Reason.STATIC_CHANGED,
}
"""The reason of a change by its row of planning.md §3."""


CHANGE_BY_ROW = {
    "": "",
    "0": "none",
    "0b": "checkpoint lost",
    "1": "comment or format",
    "2": "description",
    "3": "filter or projection",
    "4": "column added",
    "5": "columns changed",
    "6a": "state changed",
    "6b": "change before the state",
    "6c": "change after the state",
    "6d": "watermark delay",
    "7a": "source added or removed",
    "7b": "named source added or removed",
    "7c": "source replaced",
    "8": "table format",
    "9": "output mode or key",
    "11a": "trigger or rate",
    "11b": "pinned configuration",
    "12": "pool",
    "13": "engine",
    "14": "static side",
}
"""The change in two or three words, for the column CHANGE."""


ROWS_BY_SEVERITY = (
    "0", "11b", "1", "2", "11a", "14", "3", "4", "6c", "6d", "13", "12", "7b", "7a", "7c", "9", "8", "5", "6b", "6a",
)  # fmt: skip
"""Rows of planning.md §3 that two revisions can tell apart, mildest first; the most severe one found wins."""


ACTION_BY_ROW = {
    "0": Action.KEEP,
    "11b": Action.KEEP,
    "1": Action.RECORD,
    "2": Action.RECORD,
    "11a": Action.RESTART,
    "14": Action.RESTART,
    "3": Action.RESTART,
    "4": Action.RESTART,
    "6c": Action.RESTART,
    "6d": Action.RESTART,
    "13": Action.RESTART,
    "12": Action.RESTART,
}
"""Every other row is a rebuild."""


NOTE_BY_ROW = {
    "6d": "windows already closed by the old watermark stay closed; this must be acknowledged",
    "7a": "offsets of the remaining sources cannot be carried over to a new checkpoint yet",
    "7b": "Spark can resume only if offsets were tracked by source name from the first start",
    "12": "it is stopped on the old pool, and verified to be stopped, before it starts on the new one",
    "13": "an older Spark version may not be able to read the checkpoint: back it up first",
}
"""What to know of a row besides the edit, above all why it is a rebuild where planning.md §3 has more to offer."""
