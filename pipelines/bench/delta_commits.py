"""Appends rows to a Delta table as commits that are prepared first and become visible at a given moment.

Nobody else writes to the table, and no Spark is needed, so writing load takes no core from the pool and the moment of
a commit is exact.
"""

import json
import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from core.bench.replayed_load import Row
from core.bench.request import BenchSource
from core.model.errors import HeadgateError
from pipelines.storage.delta_log import DataFile, DeltaLog, NoDeltaLog
from pipelines.storage.delta_log_files import commits_in

ENDING = ".commit"
"""Ending of the name of a prepared commit."""

AsParquet = Callable[[Sequence[Row], BenchSource], bytes]
"""Makes a Parquet file of the columns of rows that are not partition columns."""


def prepare(source: BenchSource, name: str, rows: Sequence[Row], as_parquet: AsParquet) -> str:
    """Write rows as data files and a commit that is not in the log yet; return the path of the commit."""
    folder = Path(source.folder)
    actions: list[Mapping[str, Any]] = []
    now_ms = round(datetime.now(UTC).timestamp() * 1000)
    for values, mine in _by_partition(rows, source.partitioning).items():
        path = f"{name}-{uuid.uuid4().hex[:12]}.parquet"
        data = as_parquet(mine, source)
        (folder / path).write_bytes(data)
        add = {
            "path": quote(path),
            "partitionValues": dict(zip(source.partitioning, values, strict=True)),
            "size": len(data),
            "modificationTime": now_ms,
            "dataChange": True,
            "stats": json.dumps({"numRecords": len(mine)}),
        }
        actions.append({"add": add})
    info = {"timestamp": now_ms, "operation": "WRITE", "operationParameters": {"mode": "Append"}}
    hidden = folder / f".{name}{ENDING}"
    hidden.write_text("".join(f"{json.dumps(each)}\n" for each in ({"commitInfo": info}, *actions)), "utf-8")
    return str(hidden)


def show(hidden: str) -> str:
    """Put a prepared commit into the log; return the table's folder with the new version.

    Raises HeadgateError if there is no table.
    """
    folder = os.path.dirname(hidden)
    log = f"{folder}/_delta_log"
    version = max(commits_in(log), default=-1) + 1 if os.path.isdir(log) else 0
    if not version:
        raise HeadgateError(f"there is no Delta table in {folder}", remedy="headgate logs agent")
    while True:
        try:
            # As Delta requires, a commit appears as a whole, and never replaces another one.
            os.link(hidden, f"{log}/{version:020}.json")
            break
        except FileExistsError:
            version += 1
    os.unlink(hidden)
    return f"{folder}@{version}"


def newest_files(folder: str) -> Iterator[tuple[Path, dict[str, str | None]]]:
    """Yield the data files of a Delta table, newest first, each with the values of its partition columns."""
    log = DeltaLog(folder)
    try:
        log.refresh()
    except NoDeltaLog:
        return
    for file in reversed(log.files_at(log.head)):
        yield Path(log.place_of(file)), dict(_partition(file))


def _partition(file: DataFile) -> Iterator[tuple[str, str | None]]:
    # Spark writes the files of a partition into folders such as day=2026-01-01.
    for part in unquote(file.path).split("/")[:-1]:
        name, given, value = part.partition("=")
        if given:
            yield name, None if value == "__HIVE_DEFAULT_PARTITION__" else unquote(value)


def _by_partition(rows: Sequence[Row], columns: Sequence[str]) -> dict[tuple[str | None, ...], list[Row]]:
    found: dict[tuple[str | None, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(_text(row.get(each)) for each in columns), []).append(row)
    return found


def _text(value: object) -> str | None:
    """Return a value as Delta's log has it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    if isinstance(value, date):
        return value.isoformat()
    return None if value is None else str(value)
