"""Writes Delta logs and offset files in the layout of Delta 4.4.0, without data files."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

_ADD = pyarrow.struct(
    {
        "path": pyarrow.string(),
        "size": pyarrow.int64(),
        "modificationTime": pyarrow.int64(),
        "stats": pyarrow.string(),
        "deletionVector": pyarrow.struct({"cardinality": pyarrow.int64()}),
    }
)
_TXN = pyarrow.struct({"appId": pyarrow.string(), "version": pyarrow.int64()})
_META = pyarrow.struct(
    {
        "id": pyarrow.string(),
        "configuration": pyarrow.map_(pyarrow.string(), pyarrow.string()),
        "schemaString": pyarrow.string(),
    }
)


class WrittenLog:
    """A table's `_delta_log`. Commits add files with the given numbers of rows, at 100 bytes per row."""

    def __init__(self, folder: Path, id: str = "id-1", configuration: Mapping[str, str] | None = None) -> None:
        self.folder, self.id, self.version = folder, id, -1
        self.log = folder / "delta" / "_delta_log"
        self.log.mkdir(parents=True)
        about = {"id": id, "schemaString": "{}", "configuration": dict(configuration or {})}
        self._write([{"metaData": about}], time.time())

    def commit(
        self,
        *rows: int | None,
        at: float | None = None,
        batch: tuple[str, int] | None = None,
        removes: tuple[str, ...] = (),
        metrics: Mapping[str, str] | None = None,
        operation: str = "",
        parameters: Mapping[str, str] | None = None,
        tag: str = "",
    ) -> list[str]:
        """Commit one file per number of rows (None for a file without statistics), and return the files' paths."""
        paths = [f"part-{self.version + 1}-{n}.parquet" for n in range(len(rows))]
        written = at or time.time()
        actions: list[dict[str, Any]] = [{"txn": {"appId": batch[0], "version": batch[1]}}] if batch else []
        for path, count in zip(paths, rows, strict=True):
            add = {
                "path": path,
                "size": 100 * (count or 1),
                "modificationTime": int(written * 1000),
                "dataChange": True,
            }
            actions.append({"add": add if count is None else add | {"stats": json.dumps({"numRecords": count})}})
        actions += [{"remove": {"path": path, "dataChange": True}} for path in removes]
        self._write(actions, written, metrics, operation, parameters, tag)
        return paths

    def optimize(self, *paths: str, into: int) -> None:
        """Replace files with one file of `into` rows without changing the data, as OPTIMIZE does."""
        add = {"path": f"part-{self.version + 1}-0.parquet", "size": 100 * into, "modificationTime": 0}
        actions = [{"add": add | {"dataChange": False, "stats": json.dumps({"numRecords": into})}}]
        actions += [{"remove": {"path": path, "dataChange": False}} for path in paths]
        self._write(actions, time.time(), operation="OPTIMIZE")

    def columns(self, *fields: Mapping[str, Any], operation: str = "") -> None:
        """Commit a schema with these columns, given as fields in Spark's JSON format."""
        schema = json.dumps({"type": "struct", "fields": list(fields)})
        about = {"id": self.id, "schemaString": schema, "configuration": {}}
        self._write([{"metaData": about}], time.time(), operation=operation)

    def add(self, path: str, *, batch: tuple[str, int], **more: Any) -> None:
        """Add one file with one row; `more` are additional fields of its `add` action."""
        about = {"path": path, "size": 100, "modificationTime": 0, "dataChange": True, "stats": '{"numRecords":1}'}
        self._write([{"txn": {"appId": batch[0], "version": batch[1]}}, {"add": about | more}], time.time())

    def checkpoint(self) -> None:
        """Write a checkpoint of the newest version, as Delta does every tenth version, leaving removed files out."""
        adds: dict[str, Any] = {}
        batches: dict[str, int] = {}
        about: dict[str, Any] = {}
        for version in range(self.version + 1):
            for line in (self.log / f"{version:020}.json").read_text().splitlines():
                action = json.loads(line)
                if "add" in action:
                    adds[action["add"]["path"]] = {"stats": None, "deletionVector": None} | action["add"]
                elif "remove" in action:
                    adds.pop(action["remove"]["path"], None)
                elif "txn" in action:
                    batches[action["txn"]["appId"]] = action["txn"]["version"]
                elif "metaData" in action:
                    about = action["metaData"] | {"configuration": list(action["metaData"]["configuration"].items())}
        rows = [{"add": add} for add in adds.values()]
        rows += [{"txn": {"appId": query, "version": batch}} for query, batch in batches.items()]
        schema = pyarrow.schema({"add": _ADD, "txn": _TXN, "metaData": _META})
        table = pyarrow.Table.from_pylist([*rows, {"metaData": about}], schema=schema)
        pyarrow.parquet.write_table(table, self.log / f"{self.version:020}.checkpoint.parquet")

    def _write(
        self,
        actions: list[dict[str, Any]],
        at: float,
        metrics: Mapping[str, str] | None = None,
        operation: str = "",
        parameters: Mapping[str, str] | None = None,
        tag: str = "",
    ) -> None:
        self.version += 1
        about: dict[str, Any] = {"timestamp": int(at * 1000), "operationMetrics": dict(metrics or {})}
        about |= {"operationParameters": dict(parameters)} if parameters else {}
        about |= {"userMetadata": tag} if tag else {}
        lines = [{"commitInfo": about | ({"operation": operation} if operation else {})}, *actions]
        (self.log / f"{self.version:020}.json").write_text("".join(json.dumps(line) + "\n" for line in lines))


def offset_line(log: WrittenLog, version: int, index: int = -1, *, snapshot: bool = False) -> str:
    """Return a source's line in a batch's offsets file."""
    about = {"sourceVersion": 1, "reservoirId": log.id, "reservoirVersion": version, "index": index}
    return json.dumps(about | {"isStartingVersion": snapshot})


def commit_batch(checkpoint: Path, batch: int, *lines: str) -> None:
    """Write the offsets file of a batch, then commit the batch."""
    for name in ("offsets", "commits"):
        (checkpoint / name).mkdir(parents=True, exist_ok=True)
    (checkpoint / "metadata").write_text('{"id":"q-1"}')
    (checkpoint / "offsets" / str(batch)).write_text("\n".join(["v1", '{"batchWatermarkMs":0}', *lines]))
    (checkpoint / "commits" / str(batch)).write_text("v1\n{}")
