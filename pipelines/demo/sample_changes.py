"""The sample changes of `headgate demo change`: edits to files of the copied project, safe to apply repeatedly."""

import json
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

from core.model.errors import Refused, UsageError
from core.model.table_formats import table_format
from pipelines.demo.sample_copy import MARKER
from pipelines.whole_files import read_object, write_whole

_FORMAT = re.compile(r"^USING (\w+);", re.MULTILINE)
_SALES = "pipelines/intermediates/sales"
_ITEMS = f"{_SALES}/int_order_items/sql-scripts"
_PRICED = f"{_SALES}/int_priced_items/sql-scripts"
_LABELS = "pipelines/facts/kitchen/order_labels"
_LABELS_IN_SQL = """\
-- The printer takes four files at a time: a burst of orders queues here, and drains afterwards.
INSERT INTO order_labels
SELECT id AS order_id, order_time,
  concat_ws(' ', '#', id, channel, concat(size(pizzas), ' pizzas')) AS label,
  sha2(concat_ws('/', id, order_time), 256) AS code
FROM STREAM src_orders WITH ('maxFilesPerTrigger'='4');
"""
_LABELS_IN_PYTHON = '''\
"""The labels of the boxes. The printer takes four files at a time, see `inputs` in order_labels.yml."""

from pyspark.sql import DataFrame, functions as F


def order_labels(src_orders: DataFrame) -> DataFrame:
    pizzas = F.concat(F.size("pizzas"), F.lit(" pizzas"))
    label = F.concat_ws(" ", F.lit("#"), F.col("id").cast("string"), "channel", pizzas)
    code = F.sha2(F.concat_ws("/", F.col("id").cast("string"), F.col("order_time").cast("string")), 256)
    return src_orders.select(F.col("id").alias("order_id"), "order_time", label.alias("label"), code.alias("code"))
'''
_LABELS_INPUT = "inputs: {src_orders: \"STREAM src_orders WITH ('maxFilesPerTrigger'='4')\"}\n"
_LOAD = "pipelines/facts/kitchen/fct_kitchen_load/sql-scripts/dml.fct_kitchen_load.sql"


@dataclass(frozen=True, slots=True)
class TextReplacement:
    """A text replacement in one file. `old` must occur exactly once, unless the replacement was already applied."""

    path: str
    """Path of the file, relative to the project folder."""
    old: str
    new: str
    new_path: str = ""
    """Path to which the file moves, relative to the project folder; empty if it stays where it is."""


@dataclass(frozen=True, slots=True)
class DemoChange:
    """A sample change to one statement, and a description of the plan that it should lead to."""

    table: str
    expected: str
    edits: tuple[TextReplacement, ...]
    expected_with_paused_readers: str = ""
    """Expected plan for table formats whose readers stop at a new column; empty if the change adds no column."""


COMMENT = DemoChange(
    "src_payments",
    "record: the meaning is unchanged, nothing restarts",
    (
        TextReplacement(
            "pipelines/sources/sales/src_payments/sql-scripts/dml.src_payments.sql",
            "-- Every payment once.\n",
            "-- Every payment once; the card reader repeats itself byte for byte.\n",
        ),
    ),
)
COLUMN = DemoChange(
    "int_priced_items",
    "alter the table, restart on the checkpoint, update the pointer: no row is read again",
    (
        TextReplacement(
            f"{_PRICED}/ddl.int_priced_items.sql",
            "  order_time TIMESTAMP\n",
            "  order_time TIMESTAMP,\n  price_band STRING\n",
        ),
        TextReplacement(
            f"{_PRICED}/dml.int_priced_items.sql",
            "p.price_cents, i.order_time\n",
            "p.price_cents, i.order_time,\n  if(p.price_cents >= 1000, 'large', 'small') AS price_band\n",
        ),
    ),
    "stop its readers, alter the table, restart all on their checkpoints, update the pointer: no row is read again",
)
FILTER = DemoChange(
    "fct_kitchen_load",
    "rebuild with its readers: a filter before the count changes what is counted",
    (TextReplacement(_LOAD, "\nGROUP BY ", "\nWHERE status <> 'void'\nGROUP BY "),),
)
WINDOW = DemoChange(
    "fct_revenue",
    "rebuild with its readers: state cannot be reused with another window length",
    (
        TextReplacement(
            "pipelines/facts/sales/fct_revenue/sql-scripts/dml.fct_revenue.sql", "'1 minute'", "'2 minutes'"
        ),
    ),
)
RENAME = DemoChange(
    "int_order_items",
    "an error, and no plan that can be applied: readers still use pizza_id (--with-readers edits them as well)",
    (
        TextReplacement(f"{_ITEMS}/ddl.int_order_items.sql", "  pizza_id INT,\n", "  menu_id INT,\n"),
        TextReplacement(
            f"{_ITEMS}/dml.int_order_items.sql",
            "SELECT id AS order_id, line, pizza_id, status",
            "SELECT id AS order_id, line, menu_id, status",
        ),
        TextReplacement(f"{_ITEMS}/dml.int_order_items.sql", "items AS line, pizza_id;", "items AS line, menu_id;"),
    ),
)
READERS = DemoChange(
    "int_order_items",
    "rebuild with the readers, which keep their own column names",
    (
        TextReplacement(f"{_PRICED}/dml.int_priced_items.sql", " i.pizza_id, p.name", " i.menu_id AS pizza_id, p.name"),
        TextReplacement(f"{_PRICED}/dml.int_priced_items.sql", "ON p.id = i.pizza_id\n", "ON p.id = i.menu_id\n"),
        TextReplacement(_LOAD, "AS window_end, pizza_id, count", "AS window_end, menu_id AS pizza_id, count"),
        TextReplacement(_LOAD, "'30 seconds'), pizza_id;", "'30 seconds'), menu_id;"),
    ),
)
FUNCTION = DemoChange(
    "int_priced_items",
    "restart on the checkpoint: the filter changes, because it calls the function, and rows already written stay",
    (TextReplacement("functions/is_sold.sql", "status <> 'void'", "status NOT IN ('void', 'test')"),),
)
CODE = DemoChange(
    "order_labels",
    "rebuild: what the code keeps as state cannot be known",
    (
        TextReplacement(
            f"{_LABELS}/sql-scripts/dml.order_labels.sql", _LABELS_IN_SQL, _LABELS_IN_PYTHON,
            f"{_LABELS}/sql-scripts/job.order_labels.py",
        ),
        TextReplacement(f"{_LABELS}/order_labels.yml", "tags: [slow]\n", _LABELS_INPUT + "tags: [slow]\n"),
    ),
)  # fmt: skip

CHANGES = {
    "comment": COMMENT, "column": COLUMN, "filter": FILTER, "window": WINDOW, "rename": RENAME, "function": FUNCTION,
    "code": CODE,
}  # fmt: skip
"""The sample changes, by the name that a user types."""


def change_project(folder: str | Path, word: str, *, with_readers: bool = False) -> tuple[DemoChange, tuple[str, ...]]:
    """Apply all edits of a sample change, or none of them; return the change and the paths of the files written.

    No files are written if the change was already applied. Raises UsageError for an unknown change or a folder without
    the sample, and Refused if a file was edited by hand at the place to change.
    """
    if word not in CHANGES:
        raise UsageError(f"{word!r} is not one of the demo's changes", remedy=f"one of: {', '.join(CHANGES)}")
    if with_readers and word != "rename":
        raise UsageError("--with-readers applies only to the change rename", remedy="leave out --with-readers")
    change = CHANGES[word]
    if with_readers:
        change = DemoChange(change.table, READERS.expected, change.edits + READERS.edits)
    root = Path(folder).expanduser()
    files = {edit.path: _located(root, edit) for edit in change.edits}
    texts = {path: _read(root, file) for path, file in files.items()}
    edits = [edit for edit in change.edits if _apply(texts, edit, moved=files[edit.path] != edit.path)]
    if change.expected_with_paused_readers and any(map(_pauses_readers, texts.values())):
        change = replace(change, expected=change.expected_with_paused_readers)
    written = {edit.path: edit.new_path or edit.path for edit in edits}
    for path, target in written.items():
        if target != files[path]:
            _record_as_copied(root, target)
            os.replace(root / files[path], root / target)
        write_whole(root / target, texts[path])
    return change, tuple(written.values())


def _located(root: Path, edit: TextReplacement) -> str:
    return edit.new_path if edit.new_path and (root / edit.new_path).exists() else edit.path


def _pauses_readers(text: str) -> bool:
    found = _FORMAT.search(text)
    return found is not None and table_format(found[1]).added_column_stops_readers


def _read(root: Path, path: str) -> str:
    try:
        return (root / path).read_text()
    except OSError as error:
        raise UsageError(f"{root / path} cannot be read", remedy="give the folder of the demo's copy") from error


def _apply(texts: dict[str, str], edit: TextReplacement, *, moved: bool) -> bool:
    text = texts[edit.path]
    # A file that was moved, but not yet replaced when the process ended, still contains the old text.
    if edit.new in text or (moved and edit.old not in text):
        return False
    if text.count(edit.old) != 1:
        raise Refused(
            f"{edit.path} was edited by hand: {edit.old.strip()!r} is no longer there",
            remedy="make this change by hand, or copy the demo again",
        )
    texts[edit.path] = text.replace(edit.old, edit.new)
    return True


def _record_as_copied(root: Path, path: str) -> None:
    """Add a file to those that a purge of the demo deletes."""
    marker = read_object(root / MARKER) or {}
    if path not in (made := marker.get("made", [])):
        write_whole(root / MARKER, json.dumps(marker | {"made": sorted([*made, path])}) + "\n")
