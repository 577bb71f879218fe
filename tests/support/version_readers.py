"""Readers with the columns of one version of a table over the rows of another, on real Spark.

The rows of each version are written once, with a row of large values and one in which every column that may be NULL is
NULL; a table that is altered is a copy of their files. Readers that should succeed are united in one query, which is
divided if it fails; each of the others has a query of its own. What a reader should get is computed by casts of the
rows themselves, without the files.
"""

import re
import shutil
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pyspark.errors import PySparkException
from schema_readers import VALUES, alterations, castable, leaves, missing

from core.changes.schema_compatibility import ReadResult
from core.sql.kafka_topics import row_expressions
from core.sql.statement import TableDdl
from core.sql.tokens.data_types import element_type, fields_of, key_type
from core.sql.written_topics import message_expressions

Row = tuple[str | None, ...]
Rows = tuple[Row, ...]
"""Rows as the readers get them: bytes of the text of each value, as hexadecimal digits, in a fixed order."""
TOGETHER = 20
"""Number of readers in one query, and of tables in one script."""
AT_ONCE = 3
"""Number of requests that the server handles at the same time."""


@dataclass
class VersionReaders:
    """The rows of versions in one folder, in one format, and tables over them in one session."""

    spark: Any
    folder: str
    format: str
    _name: str = field(default_factory=lambda: f"v{uuid.uuid4().hex[:8]}")

    def __post_init__(self) -> None:
        # Each read of a Delta table would otherwise be 50 tasks.
        self.spark.conf.set("spark.databricks.delta.snapshotPartitions", "1")

    def write(self, versions: Mapping[Any, TableDdl]) -> dict[Any, str]:
        """Create a table with the columns of each version and its rows; return the names by the same keys."""
        names = {key: f"{self._name}_rows{n}" for n, key in enumerate(versions)}
        self._declare([self._table(names[key], ddl, self.place(names[key])) for key, ddl in versions.items()])

        def insert(key: Any) -> None:
            rows = rows_of(versions[key])
            written = f"SELECT {message_expressions(versions[key])[0]} FROM ({rows})" if self.messages else rows
            self.spark.sql(f"INSERT INTO {names[key]} {written}")

        with ThreadPoolExecutor(AT_ONCE) as threads:
            list(threads.map(insert, versions))
        return names

    def place(self, table: str) -> str:
        """Return the folder of a table that was written."""
        return f"{self.folder}/{table}"

    def copy(self, tables: Mapping[Any, str]) -> dict[Any, str]:
        """Copy Delta tables with their files; return the names of the copies by the same keys."""
        names = {key: f"{self._name}_copy{n}" for n, key in enumerate(tables)}
        for key, table in tables.items():
            shutil.copytree(self.place(table), self.place(names[key]))
        self._declare([f"CREATE TABLE {name} USING delta LOCATION '{self.place(name)}'" for name in names.values()])
        return names

    def stream_into(self, declared: TableDdl, tables: Mapping[Any, str]) -> dict[Any, str]:
        """Write all columns of each table, as a statement with a star does, into a table that is declared as given.

        Returns the names of the tables written, by the same keys, without those whose stream fails. Files of Parquet
        have the columns of the input, whatever is declared.
        """
        names = {key: f"{self._name}_{declared.format}_stars{n}" for n, key in enumerate(tables)}
        self._declare([self._table(name, declared, self.place(name)) for name in names.values()])

        def writes(key: Any) -> bool:
            frame = self.spark.sql(f"SELECT * FROM STREAM {tables[key]}")
            writer = frame.writeStream.format(declared.format).trigger(availableNow=True)
            writer = writer.option("checkpointLocation", f"{self.place(names[key])}_checkpoint")
            try:
                writer.toTable(names[key]).awaitTermination()
            except PySparkException:
                return False
            return True

        with ThreadPoolExecutor(AT_ONCE) as threads:
            return {key: names[key] for key, done in zip(tables, threads.map(writes, tables), strict=True) if done}

    @property
    def messages(self) -> bool:
        """True if the rows are the values of messages, which are kept in a folder of texts instead of a topic."""
        return self.format == "kafka"

    def source(self, reader: TableDdl, table: str) -> str:
        """Return what a reader with its own columns has after FROM: the table, or its messages as rows."""
        if not self.messages:
            return table
        steps, values = row_expressions(reader)
        found = f"SELECT value, 0 AS offset, 0 AS partition, 't' AS topic FROM {table}"
        for step in steps:
            found = f"SELECT *, {step} FROM ({found})"
        return f"(SELECT {', '.join(values)} FROM ({found}))"

    def over(self, tables: Mapping[Any, tuple[TableDdl, str]]) -> dict[Any, str]:
        """Declare tables with the columns of readers over the files of others; return their names by the same keys."""
        names = {key: f"{self._name}_over{n}" for n, key in enumerate(tables)}
        self._declare([self._table(names[key], ddl, self.place(rows)) for key, (ddl, rows) in tables.items()])
        return names

    def alter(self, tables: Mapping[Any, tuple[str, TableDdl, TableDdl]]) -> set[Any]:
        """Give tables, by (table, old, new), the new columns in place; return the keys for which Spark refuses that."""

        def refuses(about: tuple[str, TableDdl, TableDdl]) -> bool:
            table, old, new = about
            try:
                for edit in alterations(old, new):
                    self.spark.sql(f"ALTER TABLE {table} {edit}")
            except PySparkException:
                return True
            return False

        with ThreadPoolExecutor(AT_ONCE) as threads:
            return {key for key, refused in zip(tables, threads.map(refuses, tables.values()), strict=True) if refused}

    def _declare(self, scripts: Sequence[str]) -> None:
        for n in range(0, len(scripts), TOGETHER):
            self.spark.sql(f"BEGIN {'; '.join(scripts[n : n + TOGETHER])}; END")

    def _table(self, name: str, ddl: TableDdl, place: str) -> str:
        if self.messages:
            return f"CREATE TABLE {name} (value STRING) USING text LOCATION '{place}'"
        by = f"PARTITIONED BY ({', '.join(ddl.partitioning)})" if ddl.partitioning else ""
        wider = "TBLPROPERTIES ('delta.enableTypeWidening'='true')" if ddl.format == "delta" else ""
        return f"CREATE TABLE {name} ({declaration(ddl)}) USING {ddl.format} {by} LOCATION '{place}' {wider}"

    def right(self, rows: TableDdl, readers: Mapping[Any, Sequence["Wanted"]]) -> dict[Any, Rows | None]:
        """Return, by label, the rows that readers should get of what a version has written.

        None if there are no such rows: a value does not fit, or a column that is NOT NULL for the reader is NULL.
        """
        # The fields of messages have no other case.
        same = str if self.messages else str.lower
        there = {same(leaf): kind for leaf, kind in leaves(rows.columns)}
        pairs = sorted({(same(each.leaf), each.type) for wanted in readers.values() for each in wanted})
        values = []
        for n, (leaf, kind) in enumerate(pairs):
            was, within = there.get(leaf), any(_inside(leaf, each) or _inside(each, leaf) for each in there)
            if within or (was is not None and not _comparable(was, kind)):
                values.append(f"'' AS v{n}, false AS ok{n}")
            elif was is None:
                values.append(f"{text_of(missing(leaf, kind))} AS v{n}, true AS ok{n}")
            else:
                values.append(f"{text_of(f'try_cast({leaf} AS {kind})')} AS v{n}, {_fits(leaf, was, kind)} AS ok{n}")
        found = self.spark.sql(f"SELECT {', '.join(values)} FROM ({rows_of(rows)})").collect()
        at = {pair: n for n, pair in enumerate(pairs)}
        numbers = {label: [at[same(each.leaf), each.type] for each in wanted] for label, wanted in readers.items()}
        return {label: _right(wanted, found, numbers[label]) for label, wanted in readers.items()}

    def outcomes(
        self, texts: Mapping[Any, str], right: Mapping[Any, Rows | None], *, runs: Callable[[Any], bool]
    ) -> dict[Any, ReadResult]:
        """Run each reader in a batch and, unless that fails, in a stream; return the result that is worse.

        By label, `texts` are the SELECTs of the readers and `right` the rows that each should get. `runs` selects the
        readers that should end without an error; it decides only which of them share a query.
        """
        found = dict.fromkeys(texts, ReadResult.READS)
        for ask in (self._batch, self._stream):
            left = {texts[label]: runs(label) for label, seen in found.items() if seen is ReadResult.READS}
            joint, apart = ([text for text, joins in left.items() if joins is each] for each in (True, False))
            groups = [joint[n : n + TOGETHER] for n in range(0, len(joint), TOGETHER)] + [[text] for text in apart]
            got: dict[str, Rows | None] = {}
            with ThreadPoolExecutor(AT_ONCE) as threads:
                for rows in threads.map(partial(_divided, ask), groups):
                    got |= rows
            for label in found:
                if (text := texts[label]) in got and found[label] is ReadResult.READS:
                    found[label] = _result(got[text], right[label])
        return found

    def _batch(self, texts: Sequence[str]) -> dict[str, Rows]:
        return _by_text(texts, self.spark.sql(_united(texts)).collect())

    def _stream(self, texts: Sequence[str]) -> dict[str, Rows]:
        name = f"s{uuid.uuid4().hex}"
        frame = self.spark.sql(_united([_READ.sub("FROM STREAM ", text) for text in texts]))
        query = frame.writeStream.format("memory").queryName(name).trigger(availableNow=True).start()
        query.awaitTermination()
        rows = self.spark.table(name).collect()
        self.spark.sql(f"DROP VIEW {name}")
        return _by_text(texts, rows)


def _divided(ask: Callable[[Sequence[str]], dict[str, Rows]], texts: Sequence[str]) -> dict[str, Rows | None]:
    try:
        return dict(ask(texts))
    except PySparkException:
        if len(texts) == 1:
            return {texts[0]: None}
        half = len(texts) // 2
        return {**_divided(ask, texts[:half]), **_divided(ask, texts[half:])}


_READ = re.compile(r"FROM (?=v[0-9a-f]{8}_)")
"""Where a query reads a table, which has the prefix of all names."""


def _united(texts: Sequence[str]) -> str:
    return " UNION ALL ".join(f"SELECT {n} AS reader, {text}" for n, text in enumerate(texts))


def _by_text(texts: Sequence[str], rows: Iterable[Any]) -> dict[str, Rows]:
    found: dict[str, list[Row]] = {text: [] for text in texts}
    for row in rows:
        found[texts[row["reader"]]].append(tuple(row["row"]))
    return {text: tuple(sorted(each, key=str)) for text, each in found.items()}


def _result(got: Rows | None, right: Rows | None) -> ReadResult:
    if got is None:
        return ReadResult.FAILS
    return ReadResult.READS if got == right else ReadResult.WRONG


def _inside(path: str, other: str) -> bool:
    return path.startswith(f"{other}.")


def _comparable(was: str, kind: str) -> bool:
    """True if Spark's analyzer accepts casts between two types in both directions."""
    if was == kind:
        return True
    for outer in ("array<", "map<"):
        if was.startswith(outer) or kind.startswith(outer):
            inner = (element_type(was), element_type(kind))
            return was.startswith(outer) and kind.startswith(outer) and _comparable(*inner)
    return castable(*("string" if _LENGTH.search(each) else each for each in (was, kind)))


_LENGTH = re.compile(r"char\((\d+)\)")


def _fits(leaf: str, was: str, kind: str) -> str:
    """Return a condition: a value is the same if it is cast to a type and back, and not too long for the type."""
    same = f"try_cast(try_cast({leaf} AS {kind}) AS {was}) <=> {leaf}" if "map<" not in was else "true"
    length = _LENGTH.search(kind)
    return f"{same} AND coalesce(length({leaf}), 0) <= {length[1]}" if length else same


def _right(wanted: Sequence["Wanted"], found: Sequence[Any], numbers: Sequence[int]) -> Rows | None:
    for row in found:
        if not all(row[f"ok{n}"] for n in numbers):
            return None
        if any(each.required and row[f"v{n}"] is None for each, n in zip(wanted, numbers, strict=True)):
            return None
    return tuple(sorted((tuple(row[f"v{n}"] for n in numbers) for row in found), key=str))


@dataclass(frozen=True)
class Wanted:
    """A column or nested field that a reader selects, and the type that it expects."""

    leaf: str
    type: str
    required: bool
    """True if the reader does not expect NULL."""


def wanted(reader: TableDdl, types: TableDdl | None = None) -> list[Wanted]:
    """Return what a reader of all columns selects; if `types` has a field, its type there is expected."""
    there = {leaf.lower(): kind for leaf, kind in leaves(types.columns if types else ())}
    must = {column.name for column in reader.columns if not column.nullable}
    return [Wanted(leaf, there.get(leaf.lower(), kind), leaf in must) for leaf, kind in leaves(reader.columns)]


def select_of(values: Iterable[str], table: str) -> str:
    """Return the rest of a SELECT that reads expressions as texts from a table."""
    return f"array({', '.join(text_of(each) for each in values)}) AS row FROM {table}"


def text_of(value: str) -> str:
    """Return an expression for the bytes of a value's text; bytes that are no text cannot be sent as a string."""
    return f"hex(CAST(CAST({value} AS STRING) AS BINARY))"


def declaration(ddl: TableDdl, between: str = ", ") -> str:
    """Return the columns as in a DDL."""
    return between.join(f"{c.name} {c.type}{'' if c.nullable else ' NOT NULL'}" for c in ddl.columns)


def rows_of(ddl: TableDdl) -> str:
    """Return a query of three rows; in the last, each column that may be NULL is NULL.

    A struct with a field that is NOT NULL is not NULL either, because Delta would not write it (4.4.0).
    """
    full = [", ".join(f"{_value(c.type, n)} AS {c.name}" for c in ddl.columns) for n in (0, 1)]
    least = ", ".join(
        f"{f'CAST(NULL AS {c.type})' if c.nullable and 'not null' not in c.type else _value(c.type, 1)} AS {c.name}"
        for c in ddl.columns
    )
    return " UNION ALL ".join(f"SELECT {each}" for each in (*full, least))


def _value(kind: str, n: int) -> str:
    if kind.startswith("array<"):
        return f"array({_value(element_type(kind), n)})"
    if kind.startswith("map<"):
        return f"map({_value(key_type(kind), n)}, {_value(element_type(kind), n)})"
    if fields := fields_of(kind):
        return f"named_struct({', '.join(f'{name!r}, {_value(each, n)}' for name, each in fields)})"
    if length := _LENGTH.search(kind):
        return f"left({VALUES['string'][n]}, {length[1]})"
    return f"CAST({VALUES[kind][n]} AS {kind})"
