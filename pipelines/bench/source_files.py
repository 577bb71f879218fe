"""Reads sample rows from files, and writes rows as files, in the formats of external file sources."""

import base64
import csv
import io
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from core.bench.replayed_load import INTEGERS, Row
from core.bench.request import BenchSource
from core.model.errors import HeadgateError, UsageError
from core.model.table_formats import table_format
from core.sql.tokens.data_types import element_type, fields_of, key_type
from pipelines.bench import delta_commits
from pipelines.storage.file_sources import is_data

MOST_ROWS = 20_000
"""Number of rows after which reading of a sample ends."""

_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


def read_sample(source: BenchSource, *, most: int = MOST_ROWS) -> tuple[Row, ...]:
    """Return the newest sample rows of a source, at most about `most`, in the order in which they were written.

    Empty if there is no sample. Raises UsageError if a file cannot be read.
    """
    if not source.sample:
        return ()
    found: list[tuple[Row, ...]] = []
    count = 0
    for path, constants in _newest_files(source):
        format = _format_of(path, source)
        try:
            rows = tuple(typed({**row, **constants}, source.columns) for row in _READERS[format](path, source))
        except (OSError, ValueError, TypeError) as error:
            why = " ".join(str(error).split())[:200]
            raise UsageError(f"{path} cannot be read as {format}: {why}", remedy="name another --sample") from error
        found.append(rows)
        count += len(rows)
        if count >= most:
            break
    return tuple(row for rows in reversed(found) for row in rows)


def write_rows(source: BenchSource, name: str, rows: Sequence[Row]) -> str:
    """Write rows to a hidden file in a source's folder; return its path. `show_file` makes it visible to readers.

    For a Delta table, the hidden file is a commit. Raises HeadgateError if it cannot be written.
    """
    hidden = Path(source.folder, f".{name}.{source.format}")
    try:
        Path(source.folder).mkdir(parents=True, exist_ok=True)
        if table_format(source.format).transaction_log:
            return delta_commits.prepare(source, name, rows, _as_parquet)
        hidden.write_bytes(_WRITERS[source.format](rows, source))
    except OSError as error:
        raise HeadgateError(
            f"load cannot be written to {source.folder}: {error.strerror}", remedy="free some disk space"
        ) from error
    return str(hidden)


def show_file(hidden: str) -> str:
    """Make a file of `write_rows` visible to readers; return its path or, for a commit, table and version."""
    if hidden.endswith(delta_commits.ENDING):
        return delta_commits.show(hidden)
    shown = Path(hidden).with_name(Path(hidden).name[1:])
    os.replace(hidden, shown)
    return str(shown)


def _newest_files(source: BenchSource) -> Iterator[tuple[Path, Mapping[str, object]]]:
    """Yield the files of a sample, newest first, each with the values of columns that are not in it."""
    if table_format(source.format).transaction_log and Path(source.sample, "_delta_log").is_dir():
        kinds = dict(source.columns)
        for path, values in delta_commits.newest_files(source.sample):
            yield (
                path,
                {name: None if text is None else _cell(text, kinds.get(name, "")) for name, text in values.items()},
            )
        return
    for path in sorted(_files(source.sample), key=lambda path: (path.stat().st_mtime, path.name), reverse=True):
        yield path, {}


def _files(place: str) -> list[Path]:
    path = Path(place)
    if not path.exists():
        return []
    if path.is_file():
        return [path]
    return [each for each in path.rglob("*") if each.is_file() and is_data(each.name) and not _hidden(each, path)]


def _format_of(path: Path, source: BenchSource) -> str:
    """Return the format of a sample file: that of the source or, if its rows are not in files, that of the ending."""
    if _is_in_files(source):
        return source.format
    ending = path.suffix[1:].lower()
    return ending if ending in _READERS else "json"


def _is_in_files(source: BenchSource) -> bool:
    return source.format in _READERS and not source.stands_in


def _hidden(path: Path, below: Path) -> bool:
    return any(part.startswith(("_", ".")) for part in path.relative_to(below).parts)


def typed(row: Mapping[str, Any], columns: Sequence[tuple[str, str]]) -> Row:
    """Return a row of JSON or CSV with values in place of the texts of times. Raises ValueError for other texts."""
    found = dict(row)
    for name, kind in columns:
        value = row.get(name)
        if isinstance(value, str) and kind in ("timestamp", "timestamp_ntz"):
            found[name] = _moment(value)
        elif isinstance(value, str) and kind == "date":
            found[name] = date.fromisoformat(value[:10])
        elif isinstance(value, datetime) and value.tzinfo is None:
            found[name] = value.replace(tzinfo=UTC)
    return found


def _moment(text: str) -> datetime:
    found = datetime.fromisoformat(text.strip())
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def _json_rows(path: Path, source: BenchSource) -> Iterator[Mapping[str, Any]]:
    text = path.read_text("utf-8")
    if source.options.get("multiline", "").lower() == "true":
        found = json.loads(text)
        yield from found if isinstance(found, list) else [found]
        return
    for line in text.splitlines():
        if line.strip():
            row = json.loads(line)
            if not isinstance(row, dict):
                raise ValueError("a line is no object")
            yield row


def _csv_rows(path: Path, source: BenchSource) -> Iterator[Mapping[str, Any]]:
    names = [name for name, _ in source.columns]
    with open(path, newline="", encoding="utf-8") as file:
        lines = csv.reader(file, delimiter=_delimiter(source))
        if _has_header(source):
            names = next(lines, names)
        kinds = dict(source.columns)
        for line in lines:
            yield {name: _cell(value, kinds.get(name, "")) for name, value in zip(names, line, strict=False)}


def _cell(value: str, kind: str) -> object:
    if value == "":
        return None
    if kind in INTEGERS:
        return int(value)
    return float(value) if kind in ("float", "double") else value


def _parquet_rows(path: Path, source: BenchSource) -> Iterable[Mapping[str, Any]]:
    import pyarrow.parquet as parquet

    # read_table() would add columns for folders such as day=2026-01-01.
    return parquet.ParquetFile(path).read().to_pylist()  # type: ignore[no-any-return]  # pyarrow has no types.


def json_line(row: Row, source: BenchSource) -> str:
    """Return a row as a JSON object."""
    plain = {name for name, kind in source.columns if kind == "timestamp_ntz"}
    return json.dumps({name: _text(value, name in plain) for name, value in row.items()}, default=_other)


def _as_json(rows: Sequence[Row], source: BenchSource) -> bytes:
    lines = [json_line(row, source) for row in rows]
    if source.options.get("multiline", "").lower() == "true":
        return f"[{','.join(lines)}]".encode()
    return "".join(f"{line}\n" for line in lines).encode()


def _as_csv(rows: Sequence[Row], source: BenchSource) -> bytes:
    out = io.StringIO()
    plain = {name for name, kind in source.columns if kind == "timestamp_ntz"}
    writer = csv.writer(out, delimiter=_delimiter(source))
    names = [name for name, _ in source.columns]
    if _has_header(source):
        writer.writerow(names)
    for row in rows:
        writer.writerow(["" if row.get(name) is None else _text(row[name], name in plain) for name in names])
    return out.getvalue().encode()


def _as_parquet(rows: Sequence[Row], source: BenchSource) -> bytes:
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    # The log of a Delta table has the values of partition columns, and its files do not.
    columns = [(name, kind) for name, kind in source.columns if name not in source.partitioning]
    schema = arrow.schema([(name, _arrow_type(kind)) for name, kind in columns])
    listed = [{name: _arrow_value(row.get(name), kind) for name, kind in columns} for row in rows]
    out = io.BytesIO()
    parquet.write_table(arrow.Table.from_pylist(listed, schema=schema), out)
    return out.getvalue()


def _arrow_value(value: object, kind: str) -> object:
    if kind == "timestamp_ntz" and isinstance(value, datetime):
        return value.replace(tzinfo=None)
    if kind.startswith("decimal") and isinstance(value, float):
        return Decimal(str(value))
    if kind.startswith("map<") and isinstance(value, dict):
        return list(value.items())
    return base64.b64decode(value) if kind == "binary" and isinstance(value, str) else value


def _text(value: object, naive: bool) -> object:
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f") + ("" if naive else "Z")
    return value.isoformat() if isinstance(value, date) else value


def _other(value: object) -> object:
    if isinstance(value, datetime):
        return _text(value, naive=False)
    return float(value) if isinstance(value, Decimal) else str(value)


def _arrow_type(kind: str) -> Any:
    import pyarrow as arrow

    if kind.startswith("array<"):
        return arrow.list_(_arrow_type(element_type(kind)))
    if kind.startswith("map<"):
        return arrow.map_(_arrow_type(key_type(kind)), _arrow_type(element_type(kind)))
    if kind.startswith("struct<"):
        return arrow.struct([(name, _arrow_type(each)) for name, each in fields_of(kind)])
    if found := _DECIMAL.fullmatch(kind):
        return arrow.decimal128(int(found[1]), int(found[2]))
    simple: dict[str, Callable[[], Any]] = {
        "boolean": arrow.bool_,
        "tinyint": arrow.int8,
        "smallint": arrow.int16,
        "int": arrow.int32,
        "bigint": arrow.int64,
        "float": arrow.float32,
        "double": arrow.float64,
        "date": arrow.date32,
        "binary": arrow.binary,
        "timestamp": lambda: arrow.timestamp("us", tz="UTC"),
        "timestamp_ntz": lambda: arrow.timestamp("us"),
    }
    return simple.get(kind, arrow.string)()


def _delimiter(source: BenchSource) -> str:
    return source.options.get("sep") or source.options.get("delimiter") or ","


def _has_header(source: BenchSource) -> bool:
    return not _is_in_files(source) or source.options.get("header", "").lower() == "true"


_READERS: Mapping[str, Callable[[Path, BenchSource], Iterable[Mapping[str, Any]]]] = {
    "json": _json_rows,
    "csv": _csv_rows,
    "parquet": _parquet_rows,
    "delta": _parquet_rows,
}
_WRITERS: Mapping[str, Callable[[Sequence[Row], BenchSource], bytes]] = {
    "json": _as_json,
    "csv": _as_csv,
    "parquet": _as_parquet,
}
