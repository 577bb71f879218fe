"""The sample changes of `headgate demo change`: edits to files of the copied project, safe to apply repeatedly."""

import re
from dataclasses import dataclass, replace
from pathlib import Path

from core.model.errors import Refused, UsageError
from core.model.table_formats import table_format
from pipelines.demo.data_folder import write_whole

_FORMAT = re.compile(r"^USING (\w+);", re.MULTILINE)
_SALES = "pipelines/intermediates/sales"
_ITEMS = f"{_SALES}/int_order_items/sql-scripts"
_PRICED = f"{_SALES}/int_priced_items/sql-scripts"
_LOAD = "pipelines/facts/kitchen/fct_kitchen_load/sql-scripts/dml.fct_kitchen_load.sql"


@dataclass(frozen=True, slots=True)
class TextReplacement:
    """A text replacement in one file. `old` must occur exactly once, unless the replacement was already applied."""

    path: str
    """Path of the file, relative to the project folder."""
    old: str
    new: str


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

CHANGES = {"comment": COMMENT, "column": COLUMN, "filter": FILTER, "window": WINDOW, "rename": RENAME}
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
    texts: dict[str, str] = {}
    for edit in change.edits:
        texts.setdefault(edit.path, _read(root, edit.path))
    written = [edit.path for edit in change.edits if _apply(texts, edit)]
    if change.expected_with_paused_readers and any(map(_pauses_readers, texts.values())):
        change = replace(change, expected=change.expected_with_paused_readers)
    for path in dict.fromkeys(written):
        write_whole(root / path, texts[path])
    return change, tuple(dict.fromkeys(written))


def _pauses_readers(text: str) -> bool:
    found = _FORMAT.search(text)
    return found is not None and table_format(found[1]).added_column_stops_readers


def _read(root: Path, path: str) -> str:
    try:
        return (root / path).read_text()
    except OSError as error:
        raise UsageError(f"{root / path} cannot be read", remedy="give the folder of the demo's copy") from error


def _apply(texts: dict[str, str], edit: TextReplacement) -> bool:
    text = texts[edit.path]
    if edit.new in text:
        return False
    if text.count(edit.old) != 1:
        raise Refused(
            f"{edit.path} was edited by hand: {edit.old.strip()!r} is no longer there",
            remedy="make this change by hand, or copy the demo again",
        )
    texts[edit.path] = text.replace(edit.old, edit.new)
    return True
