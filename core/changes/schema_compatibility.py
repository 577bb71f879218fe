"""Compatibility of a table's columns in two versions: can readers with the columns of one read rows of the other?

Backward and forward are defined as in Confluent's Schema Registry. What Spark reads, refuses or reads wrongly was
tested on 4.2.0 and Delta 4.4.0 for every pair of the types below (`test_schema_readers.py`), and for every kind of edit
(`test_compatibility_modes.py`); other types must be equal.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from core.model.table_formats import is_wider, table_format
from core.project.model import Compatibility
from core.project.revision import Revision
from core.sql.statement import Column, TableDdl
from core.sql.tokens.data_types import element_type, fields_of, key_type
from core.text.sentence import Fact, FactKind


class Direction(StrEnum):
    """Which rows which readers must be able to read."""

    BACKWARD = "backward"
    """Readers with the new columns read rows of the old version."""
    FORWARD = "forward"
    """Readers with the old columns read rows of the new version."""


class ReadResult(StrEnum):
    """The result of reading values of one type as another type."""

    READS = "reads"
    FAILS = "fails"
    WRONG = "wrong"
    """There is no error, but some values are wrong."""


class Incompatibility(FactKind):
    """An edit of a table's columns that some readers do not survive; the sentence follows the name of the table."""

    ADDED_NOT_NULL = "adds {column} {type} NOT NULL, which is missing in earlier rows"
    BECAME_NOT_NULL = "declares {column} NOT NULL, although earlier rows may contain NULL"
    BECAME_NULLABLE = "no longer declares {column} NOT NULL, so earlier readers may get NULL"
    DROPPED_NOT_NULL = "drops {column} {type} NOT NULL, on which earlier readers rely"
    DROPPED = "drops {column} {type}, whose name Spark can no longer resolve"
    CANNOT_READ = "changes {column} from {was} to {now}: {written} cannot be read as {read}"
    READS_WRONGLY = "changes {column} from {was} to {now}: reading {written} as {read} silently gives wrong values"
    PARTITIONED = "changes its partition columns from {was} to {now}: rows of other partitions are silently not found"
    KEY = "changes its key from {was} to {now}, by which readers identify rows"


@dataclass(frozen=True, slots=True)
class ColumnConflict:
    """An incompatible edit, and the direction that it breaks."""

    column: str
    """Name of the column, or path of a nested field such as `buyer.name`; empty if the edit is about the whole table.
    """
    direction: Direction
    why: Fact[Incompatibility]

    @property
    def for_its_readers_only(self) -> bool:
        """True if the edit affects only readers that name the column; the registry allows it."""
        return self.why.kind is Incompatibility.DROPPED

    @property
    def top_column(self) -> str:
        """Name of the column that is or contains `column`, in lower case."""
        return self.column.partition(".")[0].lower()

    def concerns(self, named: Collection[str]) -> bool:
        """True unless the edit only affects readers that name the column, and it is not among those that they name."""
        return not self.for_its_readers_only or self.top_column in named


@dataclass(frozen=True, slots=True)
class TableColumns:
    """The columns of one version of a table, with everything that determines how Spark reads them."""

    columns: tuple[Column, ...]
    format: str
    partitioning: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    """The columns that identify a row; empty if there is no key, or if it is unknown."""


def columns_of(revision: Revision) -> TableColumns:
    """Return the columns of a revision."""
    return replace(columns_in(revision.ddl), key=tuple(name.lower() for name in revision.settings.key))


def columns_in(ddl: TableDdl) -> TableColumns:
    """Return the columns in a DDL, with an unknown key."""
    plain = (replace(column, comment="") for column in ddl.columns)
    return TableColumns(tuple(plain), ddl.format, tuple(name.lower() for name in ddl.partitioning))


def conflicts(old: TableColumns, new: TableColumns) -> tuple[ColumnConflict, ...]:
    """Return the edits between two versions that break a direction, backward ones first, in the order of the columns.

    A renamed column counts as dropped and added. The order of columns never matters, because Spark reads by name. The
    case of names matters only for topics: a field of JSON or Avro has exactly one name.
    """
    found = [*_backward(old, new), *_forward(old, new)]
    if old.key and new.key and old.key != new.key:
        why = Incompatibility.KEY.of(was=old.key, now=new.key)
        found += [ColumnConflict("", direction, why) for direction in Direction]
    return tuple(sorted(found, key=lambda conflict: list(Direction).index(conflict.direction)))


def allowing_modes(
    earlier: Sequence[tuple[TableColumns, bool, Collection[str]]], new: TableColumns
) -> tuple[Compatibility, ...]:
    """Return the modes that allow new columns after those of earlier versions.

    Each version comes with True if it serves or has readers, since the others count only for transitive modes, and with
    the columns that its readers name, in lower case.
    """
    found = {False: set[Direction](), True: set[Direction]()}
    for old, counts, named in earlier:
        broken = {conflict.direction for conflict in conflicts(old, new) if conflict.concerns(named)}
        found[True] |= broken
        found[False] |= broken if counts else set()
    return tuple(
        mode
        for mode in Compatibility
        if not (mode.backward and Direction.BACKWARD in found[mode.transitive])
        and not (mode.forward and Direction.FORWARD in found[mode.transitive])
    )


def _backward(old: TableColumns, new: TableColumns) -> Iterator[ColumnConflict]:
    before = {_name(column, new): column for column in old.columns}
    for column in new.columns:
        was = before.get(_name(column, new))
        if was is None:
            if not column.nullable:
                yield _conflict(Incompatibility.ADDED_NOT_NULL, Direction.BACKWARD, column)
            continue
        if was.nullable and not column.nullable:
            yield _conflict(Incompatibility.BECAME_NOT_NULL, Direction.BACKWARD, column)
        yield from _retyped(was, column, Direction.BACKWARD, old, new)
    yield from _partitioned(old, new, Direction.BACKWARD, rows=old, reader=new)


def _forward(old: TableColumns, new: TableColumns) -> Iterator[ColumnConflict]:
    after = {_name(column, new): column for column in new.columns}
    # A reader of a topic declares the columns itself, so a missing one is NULL.
    by_name = not table_format(new.format).topics
    for column in old.columns:
        now = after.get(_name(column, new))
        if now is None:
            if not column.nullable:
                yield _conflict(Incompatibility.DROPPED_NOT_NULL, Direction.FORWARD, column)
            elif by_name:
                yield _conflict(Incompatibility.DROPPED, Direction.FORWARD, column)
            continue
        if not column.nullable and now.nullable:
            yield _conflict(Incompatibility.BECAME_NULLABLE, Direction.FORWARD, column)
        yield from _retyped(column, now, Direction.FORWARD, old, new)
        dropped = dropped_fields(column.name, column.type, now.type) if by_name else ()
        for path, kind in dropped:
            yield _conflict(Incompatibility.DROPPED, Direction.FORWARD, Column(path, "", kind))
    yield from _partitioned(old, new, Direction.FORWARD, rows=new, reader=old)


def _name(column: Column, new: TableColumns) -> str:
    return column.name if table_format(new.format).topics else column.name.lower()


def _conflict(kind: Incompatibility, direction: Direction, column: Column) -> ColumnConflict:
    return ColumnConflict(column.name, direction, kind.of(column=column.name, type=column.type))


def _retyped(
    was: Column, now: Column, direction: Direction, old: TableColumns, new: TableColumns
) -> Iterator[ColumnConflict]:
    written, read = (was.type, now.type) if direction is Direction.BACKWARD else (now.type, was.type)
    partitions = was.name.lower() in (*old.partitioning, *new.partitioning)
    found = column_reading(written, read, new.format, direction, partitions=partitions)
    if found is not ReadResult.READS:
        kind = Incompatibility.CANNOT_READ if found is ReadResult.FAILS else Incompatibility.READS_WRONGLY
        why = kind.of(column=now.name, was=was.type, now=now.type, written=written, read=read)
        yield ColumnConflict(now.name, direction, why)


def _partitioned(
    old: TableColumns, new: TableColumns, direction: Direction, *, rows: TableColumns, reader: TableColumns
) -> Iterator[ColumnConflict]:
    files = table_format(new.format).has_files and not table_format(new.format).transaction_log
    if files and reader.partitioning and rows.partitioning != reader.partitioning:
        was, now = (", ".join(each.partitioning) or "none" for each in (old, new))
        yield ColumnConflict("", direction, Incompatibility.PARTITIONED.of(was=was, now=now))


def dropped_fields(path: str, old: str, new: str) -> Iterator[tuple[str, str]]:
    """Yield the path and type of each nested field that only the old type has; a path ignores arrays and maps."""
    if element_type(old) and element_type(new):
        yield from dropped_fields(path, element_type(old), element_type(new))
    fields = {name.lower(): kind for name, kind in fields_of(new)}
    for name, kind in fields_of(old) if fields else ():
        if name.lower() not in fields:
            yield f"{path}.{name}", kind
        else:
            yield from dropped_fields(f"{path}.{name}", kind, fields[name.lower()])


def column_reading(
    written: str, read: str, format: str, direction: Direction, *, partitions: bool = False
) -> ReadResult:
    """Return what happens if a reader's column has type `read` and the rows were written as type `written`.

    A Parquet file is read as the reader's own type. A Delta table has one type for each column: backward, it is altered
    to `read`; forward, a reader casts `written` to `read`, and compares it with values of that type. With `partitions`,
    the table is partitioned by the column.
    """
    if written == read:
        return ReadResult.READS
    nested = _nested_pairs(written, read)
    if nested is not None:
        found = {column_reading(*pair, format, direction) for pair in nested}
        return next((each for each in (ReadResult.FAILS, ReadResult.WRONG) if each in found), ReadResult.READS)
    properties = table_format(format)
    if properties.transaction_log:
        if direction is Direction.FORWARD:
            return _cast(written, read)
        return ReadResult.READS if not partitions and _is_wider(read, written) else ReadResult.FAILS
    if not properties.conversions_known:
        return ReadResult.FAILS
    return _text_of_folder(written, read) if partitions else _parquet(written, read)


def _nested_pairs(written: str, read: str) -> tuple[tuple[str, str], ...] | None:
    """Return the pairs of types (written, read) inside of two arrays, two maps or two structs; None for other types."""
    if written.startswith("array<") and read.startswith("array<"):
        return ((element_type(written), element_type(read)),)
    if written.startswith("map<") and read.startswith("map<"):
        return (key_type(written), key_type(read)), (element_type(written), element_type(read))
    if written.startswith("struct<") and read.startswith("struct<"):
        there = {name.lower(): kind for name, kind in fields_of(written)}
        return tuple((there[name.lower()], kind) for name, kind in fields_of(read) if name.lower() in there)
    return None


_WHOLE = ("tinyint", "smallint", "int", "bigint")
_FULL_DIGITS = {"tinyint": 2, "smallint": 4, "int": 9, "bigint": 18}
"""Number of digits of which every number fits into a type."""
_MOST_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
"""Number of digits of a type's largest number."""
_EXACT_DIGITS = {"float": 6, "double": 15}
"""Number of decimal digits that a floating-point type keeps."""
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_TEXT = re.compile(r"string|(?:var)?char\((\d+)\)")
_TIMES = ("timestamp", "timestamp_ntz")


def _decimal(kind: str) -> tuple[int, int] | None:
    """Return the digits before and after the point of a decimal type; None for any other type."""
    found = _DECIMAL.fullmatch(kind)
    return (int(found[1]) - int(found[2]), int(found[2])) if found else None


def _is_wider(kind: str, than: str) -> bool:
    """True if Delta can widen a column of type `than` to `kind`, and Parquet reads files of type `than` as `kind`."""
    if is_wider(kind, than) or (kind == "double" and than in ("tinyint", "smallint", "int")):
        return True
    wide, text, before = _decimal(kind), _TEXT.fullmatch(kind), _TEXT.fullmatch(than)
    if wide is not None and than in _WHOLE:
        # Spark counts the digits of a whole number by how it is stored: in 32 or in 64 bits.
        return wide[0] >= (20 if than == "bigint" else 10)
    return bool(text and before and not kind.startswith("char") and _fits(before[1], text[1]))


def _fits(length: str | None, into: str | None) -> bool:
    return into is None or (length is not None and int(length) <= int(into))


def _parquet(written: str, read: str) -> ReadResult:
    """Return how Spark reads a Parquet file with another type; it checks how values are stored, not what they mean."""
    if _is_wider(read, written) or (written, read) in (("string", "binary"), ("date", "timestamp_ntz")):
        return ReadResult.READS
    decimal = _decimal(written)
    if _TEXT.fullmatch(written) and _TEXT.fullmatch(read):
        return ReadResult.WRONG
    if written in _TIMES:
        return (
            ReadResult.WRONG if read in _TIMES or (written, read) == ("timestamp_ntz", "bigint") else ReadResult.FAILS
        )
    if (written == "binary" and _TEXT.fullmatch(read)) or (
        read == "binary" and decimal is not None and sum(decimal) > 18
    ):
        return ReadResult.WRONG
    if decimal is not None and sum(decimal) > 9:
        stored = read == "bigint" and sum(decimal) <= 18
        return (ReadResult.READS if decimal[1] == 0 else ReadResult.WRONG) if stored else ReadResult.FAILS
    if written not in ("tinyint", "smallint", "int", "date") and decimal is None:
        return ReadResult.FAILS
    # The value is stored in 32 bits.
    if read not in (*_WHOLE, "double", "date"):
        return ReadResult.FAILS
    exact = decimal is not None and decimal[1] == 0 and read in ("int", "bigint", "double")
    return ReadResult.READS if exact else ReadResult.WRONG


def _text_of_folder(written: str, read: str) -> ReadResult:
    """Return how Spark reads the value of a partition column, which it parses from the name of a folder."""
    whole = written in _WHOLE
    if read == "string" and (whole or written == "date"):
        return ReadResult.READS
    if whole and read == "double":
        return ReadResult.WRONG if written == "bigint" else ReadResult.READS
    if whole and read in _WHOLE and is_wider(read, written):
        return ReadResult.READS
    if (written, read) in (("int", "smallint"), ("int", "tinyint"), ("smallint", "tinyint")):
        # A batch refuses the value, and a stream cuts off its upper bits.
        return ReadResult.WRONG
    decimal = _decimal(read)
    # Spark takes the digits of a whole number for those of an unscaled decimal: 7 is read as 0.07.
    return ReadResult.WRONG if whole and decimal is not None and decimal[1] > 0 else ReadResult.FAILS


def _cast(kind: str, into: str) -> ReadResult:
    """Return what becomes of a value that an SQL reader casts, with Spark's ANSI rules, and compares with others.

    A value that does not fit raises an error; surplus digits are rounded.
    """
    if into == "boolean":
        return ReadResult.WRONG if kind in (*_WHOLE, *_EXACT_DIGITS) or _decimal(kind) else ReadResult.FAILS
    if kind in ("date", *_TIMES) and into in ("date", *_TIMES):
        return ReadResult.READS if kind == "date" else ReadResult.WRONG
    text, was_text = _TEXT.fullmatch(into), _TEXT.fullmatch(kind)
    if kind == "binary" and text:
        return ReadResult.WRONG
    if was_text:
        same = text is not None and _fits(was_text[1], text[1])
        return ReadResult.READS if same or into == "binary" else ReadResult.WRONG if text else ReadResult.FAILS
    if kind in _EXACT_DIGITS and into in _EXACT_DIGITS:
        return ReadResult.READS if into == "double" else ReadResult.WRONG
    digits = (_MOST_DIGITS[kind], 0) if kind in _WHOLE else _decimal(kind)
    return _cast_digits(*digits, kind, into) if digits is not None else ReadResult.FAILS


def _cast_digits(whole: int, fraction: int, kind: str, into: str) -> ReadResult:
    """Return what becomes of a number with so many digits before and after the point."""
    if into in _EXACT_DIGITS:
        return ReadResult.READS if whole + fraction <= _EXACT_DIGITS[into] else ReadResult.WRONG
    decimal = _decimal(into)
    if into in _WHOLE:
        if kind in _WHOLE:
            return ReadResult.READS if is_wider(into, kind) else ReadResult.FAILS
        rounded = ReadResult.WRONG if fraction else ReadResult.READS
        return rounded if whole <= _FULL_DIGITS[into] else ReadResult.FAILS
    if decimal is None or whole > decimal[0]:
        return ReadResult.FAILS
    if fraction <= decimal[1]:
        return ReadResult.READS
    # The largest value is rounded up to one more digit.
    return ReadResult.WRONG if whole < decimal[0] else ReadResult.FAILS
