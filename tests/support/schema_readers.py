"""Readers with the columns of one version over rows written with those of another, on real Spark.

Rows are written once for each type; then a reader for each pair of types, or for each edit, is started as a batch and
as a stream. What Spark did is compared with `core.changes.schema_compatibility`.
"""

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException

from core.changes.schema_compatibility import Direction, ReadResult
from core.sql.ddl_reader import read_ddl
from core.sql.statement import Column, TableDdl
from core.sql.tokens.data_types import element_type, fields_of

VALUES = {
    "boolean": ("true", "false"),
    "tinyint": ("1", "127"),
    "smallint": ("1", "32767"),
    "int": ("1", "2147483647", "16777217"),
    "bigint": ("1", "9223372036854775807", "9007199254740993"),
    "float": ("1.5", "3.4028234663852886E38D"),
    "double": ("1.5", "1.7976931348623157E308D", "0.1D"),
    "decimal(5,0)": ("1", "99999"),
    "decimal(9,2)": ("1.25", "9999999.99"),
    "decimal(10,2)": ("1.25", "99999999.99"),
    "decimal(12,2)": ("1.25", "9999999999.99"),
    "decimal(12,4)": ("1.2525", "99999999.9999"),
    "decimal(20,0)": ("1", "99999999999999999999"),
    "string": ("'1'", "'abc'"),
    "binary": ("X'31'", "X'FF00'"),
    "date": ("DATE'2026-01-02'", "DATE'1600-02-29'"),
    # The first is the second of two equal times on a clock that is set back, the second one is skipped.
    "timestamp": ("TIMESTAMP'2026-10-25 01:30:00Z'", "TIMESTAMP'1999-01-02 03:04:05.5'"),
    "timestamp_ntz": ("TIMESTAMP_NTZ'2026-03-29 02:30:00'", "TIMESTAMP_NTZ'1999-01-02 03:04:05.5'"),
}
"""For each type, values as SQL; one of them is the largest or does not fit into similar types."""
ZONE = "Europe/Berlin"
_OTHER = {
    "boolean": "NULL", "string": "'zzz'", "binary": "X'77'", "date": "DATE'2001-01-01'",
    "timestamp": "TIMESTAMP'2001-01-01 00:00:00'", "timestamp_ntz": "TIMESTAMP_NTZ'2001-01-01 00:00:00'",
}  # fmt: skip
"""A value of each type with which a reader compares; 7 for numbers."""


def rows_of(kind: str, column: str = "c") -> str:
    """Return a query with one row per value of a type, and one with NULL."""
    values = (*VALUES[kind], "NULL")
    return " UNION ALL ".join(
        f"SELECT {n} AS id, CAST({value} AS {kind}) AS {column}" for n, value in enumerate(values)
    )


def name_of(kind: str) -> str:
    return kind.translate(str.maketrans("(,", "__", ")"))


_SEVERITY = (ReadResult.READS, ReadResult.FAILS, ReadResult.WRONG)


@dataclass
class SchemaReaders:
    """Files and tables in a folder, and readers of them in one session.

    With `streams`, each reader is started as a stream as well.
    """

    spark: Any
    folder: Path
    streams: bool = True
    _written: dict[str, str] = field(default_factory=dict)

    def parquet_of(self, kind: str) -> str:
        """Write a Parquet folder with the values of a type; return its path."""
        if kind not in self._written:
            self._written[kind] = self.write(rows_of(kind), name_of(kind))
        return self._written[kind]

    def write(self, query: str, name: str, *partitioning: str) -> str:
        """Write the rows of a query as Parquet; return the path of the folder."""
        path = f"{self.folder}/{name}"
        self.spark.sql(query).coalesce(1).write.partitionBy(*partitioning).parquet(path)
        return path

    def declared(self, path: str, columns: str, right: Sequence[tuple[Any, ...]] | None) -> ReadResult:
        """Read a Parquet folder with declared columns; `right` are the rows that are right, if any are.

        The worse result of batch and stream is returned.
        """
        found = [self._batch(path, columns, right)]
        if self.streams:
            found.append(self._stream(self.spark.readStream.schema(columns).parquet(path), right))
        return max(found, key=_SEVERITY.index)

    def _batch(self, path: str, columns: str, right: Sequence[tuple[Any, ...]] | None) -> ReadResult:
        return self.outcome(lambda: self._rows(self.spark.read.schema(columns).parquet(path)), right)

    def _stream(self, frame: Any, right: Sequence[tuple[Any, ...]] | None) -> ReadResult:
        name = f"s{uuid.uuid4().hex}"

        def read() -> list[tuple[Any, ...]]:
            query = frame.writeStream.format("memory").queryName(name).trigger(availableNow=True).start()
            query.awaitTermination()
            return self._rows(self.spark.table(name))

        return self.outcome(read, right)

    def query(self, sql: str, right: Sequence[tuple[Any, ...]] | None) -> ReadResult:
        """Run an SQL reader as a batch."""
        return self.outcome(lambda: self._rows(self.spark.sql(sql)), right)

    def done(self, sql: str) -> bool:
        """Return whether Spark accepts a command."""
        try:
            self.spark.sql(sql)
        except PySparkException:
            return False
        return True

    def outcome(self, read: Any, right: Sequence[tuple[Any, ...]] | None) -> ReadResult:
        try:
            return ReadResult.READS if read() == right else ReadResult.WRONG
        except PySparkException:
            return ReadResult.FAILS

    def _rows(self, frame: Any) -> list[tuple[Any, ...]]:
        names = frame.columns
        # Bytes that are no text cannot be sent as a string.
        texts = frame.selectExpr(*(f"hex(CAST(CAST({name} AS STRING) AS BINARY))" for name in names))
        return sorted((tuple(row) for row in texts.collect()), key=str)

    def edited(self, old: TableDdl, new: TableDdl, direction: Direction) -> ReadResult:
        """Start readers of one version over rows of another; return READS only if each of them gets the right rows."""
        rows, reader = (old, new) if direction is Direction.BACKWARD else (new, old)
        found = self._edited_delta(old, new, direction) if new.format == "delta" else self._edited_parquet(rows, reader)
        if direction is Direction.FORWARD:
            found.append(self._by_name(rows, reader))
        return next((each for each in found if each is not ReadResult.READS), ReadResult.READS)

    def _edited_parquet(self, rows: TableDdl, reader: TableDdl) -> list[ReadResult]:
        path = self.write(_rows_of(rows), f"e{uuid.uuid4().hex}")
        source = self.spark.read.schema(_declaration(reader, nulls=True)).parquet(path)
        found = [self.outcome(lambda: self._rows(source.selectExpr(*_selected(reader))), self._right(rows, reader))]
        if self.streams:
            stream = self.spark.readStream.schema(_declaration(reader, nulls=True)).parquet(path)
            found.append(self._stream(stream.selectExpr(*_selected(reader)), self._right(rows, reader)))
        return found

    def _edited_delta(self, old: TableDdl, new: TableDdl, direction: Direction) -> list[ReadResult]:
        if direction is Direction.FORWARD:
            return []
        path = f"{self.folder}/e{uuid.uuid4().hex}"
        self._delta(old, path)
        if not all(self.done(f"ALTER TABLE delta.`{path}` {each}") for each in alterations(old, new)):
            return [ReadResult.FAILS]
        return self._read_delta(path, old, new)

    def _by_name(self, rows: TableDdl, reader: TableDdl) -> ReadResult:
        """Read a table that has the columns of its rows by the names, and as the types, that the reader expects."""
        path = f"{self.folder}/e{uuid.uuid4().hex}"
        if rows.format == "delta":
            self._delta(rows, path)
            return next(
                (e for e in self._read_delta(path, rows, reader) if e is not ReadResult.READS), ReadResult.READS
            )
        self.write(_rows_of(rows), Path(path).name)
        table = self.spark.read.schema(_declaration(rows, nulls=True)).parquet(path)
        return self.outcome(lambda: self._rows(table.selectExpr(*_selected(reader))), self._right(rows, reader))

    def _delta(self, ddl: TableDdl, path: str) -> None:
        by = f"PARTITIONED BY ({', '.join(ddl.partitioning)})" if ddl.partitioning else ""
        widening = "TBLPROPERTIES ('delta.enableTypeWidening'='true')"
        self.spark.sql(f"CREATE TABLE delta.`{path}` ({_declaration(ddl)}) USING delta {by} {widening}")
        self.spark.sql(f"INSERT INTO delta.`{path}` {_rows_of(ddl)}")

    def _read_delta(self, path: str, rows: TableDdl, reader: TableDdl) -> list[ReadResult]:
        right = self._right(rows, reader)
        casts = [f"CAST({leaf} AS {kind}) AS {_alias(leaf)}" for leaf, kind in leaves(reader.columns)]
        found = [self.query(f"SELECT {', '.join(casts)} FROM delta.`{path}`", right)]
        if self.streams:
            try:
                stream = self.spark.readStream.format("delta").load(path).selectExpr(*casts)
                found.append(self._stream(stream, right))
            except PySparkException:
                found.append(ReadResult.FAILS)
        return found

    def _right(self, rows: TableDdl, reader: TableDdl) -> list[tuple[Any, ...]] | None:
        """Return the rows as the reader must get them, as strings; None if a NULL breaks what it expects."""
        there = {leaf.lower() for leaf, _ in leaves(rows.columns)}
        values = [
            f"{leaf if leaf.lower() in there else missing(leaf, kind)} AS {_alias(leaf)}"
            for leaf, kind in leaves(reader.columns)
        ]
        found = self._rows(self.spark.sql(f"SELECT {', '.join(values)} FROM ({_rows_of(rows)})"))
        must = [n for n, (leaf, _) in enumerate(leaves(reader.columns)) if leaf in _not_null(reader)]
        return None if any(row[n] is None for row in found for n in must) else found

    def right_rows(self, kind: str, read: Iterable[str]) -> dict[str, list[tuple[Any, ...]] | None]:
        """Return the right rows, as strings, of the values of a type as other types; None if a type loses some."""
        kinds = tuple(read)
        parts = []
        for n, k in enumerate(kinds):
            cast = f"try_cast(c AS {k})"
            text, back = f"hex(CAST(CAST({cast} AS STRING) AS BINARY))", f"(try_cast({cast} AS {kind}) <=> c)"
            parts.append(f"{text} AS v{n}, {back} AS ok{n}" if castable(kind, k) else f"'' AS v{n}, false AS ok{n}")
        rows = self.spark.sql(
            f"SELECT hex(CAST(CAST(id AS STRING) AS BINARY)) AS id, {', '.join(parts)} FROM ({rows_of(kind)})"
        ).collect()
        return {
            k: sorted(((row["id"], row[f"v{n}"]) for row in rows), key=str)
            if all(row[f"ok{n}"] for row in rows)
            else None
            for n, k in enumerate(kinds)
        }

    def parquet_types(self, written: str, read: Iterable[str]) -> dict[str, ReadResult]:
        """Read a file of one type with a reader for each other type."""
        right, path = self.right_rows(written, read), self.parquet_of(written)
        return {kind: self.declared(path, f"id INT, c {kind}", rows) for kind, rows in right.items()}

    def altered_types(self, written: str, read: Iterable[str]) -> dict[str, ReadResult]:
        """Alter a Delta table of one type to each other type, and read the rows from before."""
        kinds, table = tuple(read), f"delta.`{self.folder}/{name_of(written)}_delta`"
        right = self.right_rows(written, kinds)
        columns = [f"c_{name_of(kind)}" for kind in kinds]
        self.spark.sql(
            f"CREATE TABLE {table} (id INT, {', '.join(f'{each} {written}' for each in columns)}) USING delta "
            "TBLPROPERTIES ('delta.enableTypeWidening'='true')"
        )
        self.spark.sql(f"INSERT INTO {table} SELECT id, {', '.join('c' for _ in columns)} FROM ({rows_of(written)})")
        done = [
            self.done(f"ALTER TABLE {table} ALTER COLUMN {c} TYPE {k}") for c, k in zip(columns, kinds, strict=True)
        ]
        return {
            kind: self.query(f"SELECT id, {column} AS c FROM {table}", right[kind]) if is_done else ReadResult.FAILS
            for kind, column, is_done in zip(kinds, columns, done, strict=True)
        }

    def cast_types(self, written: str, read: Iterable[str]) -> dict[str, ReadResult]:
        """Read a column of one type with an SQL reader that was written for each other type."""
        right = self.right_rows(written, read)
        return {kind: self.query(_typed_reader(kind, f"({rows_of(written)})"), rows) for kind, rows in right.items()}


def _typed_reader(kind: str, source: str) -> str:
    other = _other(kind)
    return f"SELECT id, CAST(c AS {kind}) AS c FROM {source} WHERE c IS NULL OR c <> {other} OR {other} IS NULL"


def _other(kind: str) -> str:
    return _OTHER.get(kind) or f"CAST(7 AS {kind})"


_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal", "boolean")


def castable(kind: str, into: str) -> bool:
    """True if Spark's analyzer accepts casts in both directions; bytes are no text."""
    numbers = [each.startswith(_NUMBERS) for each in (kind, into)]
    if "binary" in (kind, into):
        return kind == "string"
    times = [each in ("date", "timestamp", "timestamp_ntz") for each in (kind, into)]
    return "string" in (kind, into) or all(numbers) or all(times)


def ddl_of(columns: str, format: str, by: str = "") -> TableDdl:
    """Parse columns as the DDL of a table."""
    found, problems = read_ddl(
        f"CREATE TABLE t ({columns}) USING {format}{f' PARTITIONED BY ({by})' if by else ''}", ""
    )
    assert found is not None, problems
    return found


def _declaration(ddl: TableDdl, *, nulls: bool = False) -> str:
    return ", ".join(f"{c.name} {c.type}{'' if c.nullable or nulls else ' NOT NULL'}" for c in ddl.columns)


def _not_null(ddl: TableDdl) -> set[str]:
    return {column.name for column in ddl.columns if not column.nullable}


def leaves(columns: Iterable[Column]) -> list[tuple[str, str]]:
    """Return path and type of each column and nested field; through an array, a path leads to an array of values."""
    return [leaf for column in columns for leaf in _fields(column.name, column.type)]


def _fields(path: str, kind: str) -> list[tuple[str, str]]:
    inner = element_type(kind) if kind.startswith("array<") else kind
    found = [leaf for name, each in fields_of(inner) for leaf in _fields(f"{path}.{name}", each)]
    return [(leaf, f"array<{each}>") for leaf, each in found] if found and inner != kind else found or [(path, kind)]


def missing(leaf: str, kind: str) -> str:
    """Return what a field without values is: NULL, or a NULL for each element of an array."""
    if kind.startswith("array<") and "." in leaf:
        return f"transform({leaf.partition('.')[0]}, x -> CAST(NULL AS {element_type(kind)}))"
    return "NULL"


def _alias(leaf: str) -> str:
    return leaf.replace(".", "_")


def _selected(ddl: TableDdl) -> list[str]:
    return [f"{leaf} AS {_alias(leaf)}" for leaf, _ in leaves(ddl.columns)]


def _rows_of(ddl: TableDdl) -> str:
    """Return a query of two rows; in the second, each column that may be NULL is NULL."""
    full = ", ".join(f"{_value(c.type)} AS {c.name}" for c in ddl.columns)
    least = ", ".join(f"{f'CAST(NULL AS {c.type})' if c.nullable else _value(c.type)} AS {c.name}" for c in ddl.columns)
    return f"SELECT {full} UNION ALL SELECT {least}"


def _value(kind: str) -> str:
    if kind.startswith("array<"):
        return f"array({_value(element_type(kind))})"
    if fields := fields_of(kind):
        return f"named_struct({', '.join(f'{name!r}, {_value(each)}' for name, each in fields)})"
    return f"CAST({VALUES[kind][1]} AS {kind})"


def alterations(old: TableDdl, new: TableDdl) -> Iterator[str]:
    """Yield the edits that give a table the columns of a new version; none is dropped."""
    before = {column.name.lower(): column for column in old.columns}
    for column in new.columns:
        was = before.get(column.name.lower())
        if was is None:
            yield f"ADD COLUMNS ({column.name} {column.type}{'' if column.nullable else ' NOT NULL'})"
            continue
        if was.nullable != column.nullable:
            yield f"ALTER COLUMN {column.name} {'DROP' if column.nullable else 'SET'} NOT NULL"
        then = {leaf.lower(): kind for leaf, kind in _fields(column.name, was.type)}
        for leaf, kind in _fields(column.name, column.type):
            path = leaf.replace(".", ".element.", 1) if column.type.startswith("array<") else leaf
            kind = element_type(kind) if column.type.startswith("array<struct") else kind
            if leaf.lower() not in then:
                yield f"ADD COLUMNS ({path} {kind})"
            elif (known := then[leaf.lower()]) in (kind, f"array<{kind}>"):
                continue
            elif kind.startswith("map<") and known.startswith("map<"):
                yield f"ALTER COLUMN {path}.value TYPE {element_type(kind)}"
            else:
                yield f"ALTER COLUMN {path} TYPE {kind}"
