"""Columns renamed or dropped by hand, found in the log by physical names, whatever a reader's position."""

import json
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from delta_files import WrittenLog

from pipelines.storage.delta_readers import DeltaOffset
from pipelines.storage.delta_tables import DeltaTables

AND = "only a stream with schema_tracking continues, even if that is reverted"


def field(name: str, kind: Any = "long", *, of: str = "") -> dict[str, Any]:
    """Return a column; `of` is its physical name if that differs."""
    return {
        "name": name,
        "type": kind,
        "nullable": True,
        "metadata": {"delta.columnMapping.physicalName": of} if of else {},
    }


def struct(*fields: Any) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


def why(log: WrittenLog, version: int, *, in_snapshot: bool = False, takes_changes: bool = False) -> str:
    offset = DeltaOffset(log.id, version, -1, in_snapshot)
    fault = DeltaTables(refresh_s=0).fault_behind(offset, f"{log.folder}/delta", takes_changes=takes_changes)
    return fault.why if fault is not None else ""


ADD = pyarrow.struct(
    [
        ("path", pyarrow.string()), ("size", pyarrow.int64()), ("modificationTime", pyarrow.int64()),
        ("stats", pyarrow.string()), ("deletionVector", pyarrow.struct([("cardinality", pyarrow.int64())])),
    ]
)  # fmt: skip
META = pyarrow.struct(
    [
        ("id", pyarrow.string()), ("schemaString", pyarrow.string()),
        ("configuration", pyarrow.map_(pyarrow.string(), pyarrow.string())),
    ]
)  # fmt: skip
TXN = pyarrow.struct([("appId", pyarrow.string()), ("version", pyarrow.int64())])
CHECKPOINT = pyarrow.schema([("add", ADD), ("txn", TXN), ("metaData", META)])
LIST = {"type": "array", "elementType": struct(field("x")), "containsNull": True}
NEW_LIST = {"type": "array", "elementType": struct(field("y", of="x")), "containsNull": True}


@pytest.mark.parametrize(
    ("before", "after", "what"),
    [
        ((field("a"), field("b")), (field("a"), field("c", of="b")), "column b was renamed to c"),
        ((field("a"), field("b")), (field("a"),), "column b was dropped"),
        ((field("a", of="p1"), field("b", of="p2")), (field("b", of="p2"),), "column a was dropped"),
        ((field("s", struct(field("x"))),), (field("s", struct(field("y", of="x"))),), "column s.x was renamed to s.y"),
        ((field("l", LIST),), (field("l", NEW_LIST),), "column l.x was renamed to l.y"),
        ((field("a"),), (field("a", of="a"),), ""),
        ((field("a"),), (field("a"), field("b")), ""),
        ((field("a", "integer"),), (field("a", "long"),), ""),
        ((field("a"), field("b")), (field("b"), field("a")), ""),
    ],
    ids=["renamed", "dropped", "dropped by place", "in a struct", "in a list", "mapped", "added", "wider", "moved"],
)
def test_a_column_is_lost_by_its_logical_or_its_physical_name(
    tmp_path: Path, before: tuple[Any, ...], after: tuple[Any, ...], what: str
) -> None:
    log = WrittenLog(tmp_path / "p")
    log.columns(*before)
    log.commit(1)
    log.columns(*after)
    said = f"has changed since version 3: its {what}; {AND}" if what else ""
    for at in (2, 3):
        assert why(log, at) == why(log, at, takes_changes=True) == said
    assert why(log, 1, in_snapshot=True) == said
    assert why(log, 4) == "", "who has begun behind it reads on"


def test_faults_that_tracking_cannot_survive_are_reported_before_a_lost_column(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path / "p")
    log.columns(field("a"), field("b"))
    (path,) = log.commit(1)
    log.columns(field("a"))
    log.commit(removes=(path,), operation="DELETE")
    assert why(log, 3).startswith("was changed by DELETE in version 4")
    assert why(log, 3, takes_changes=True) == f"has changed since version 3: its column b was dropped; {AND}"


def test_earlier_versions_are_known_from_a_checkpoint_of_the_log(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path / "p")
    log.columns(field("a"), field("b"))
    for _ in range(3):
        log.commit(1)
    log.columns(field("a"))
    before = (log.log / f"{1:020}.json").read_text().splitlines()[1]
    rows = [
        {"add": None, "txn": {"appId": "q", "version": 7}, "metaData": None},
        {
            "add": None,
            "txn": None,
            "metaData": {"id": log.id, "schemaString": json.loads(before)["metaData"]["schemaString"]},
        },
    ]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows, CHECKPOINT), log.log / f"{4:020}.checkpoint.parquet")
    for gone in range(4):
        (log.log / f"{gone:020}.json").unlink()
    assert why(log, 5) == "has changed since version 5: its column b was dropped; " + AND
    (log.log / f"{4:020}.checkpoint.parquet").unlink()
    with pytest.raises(ValueError, match="it begins with version 4, and no usable checkpoint precedes it"):
        why(log, 5)
