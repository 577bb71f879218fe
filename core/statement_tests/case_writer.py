"""Generation of a first test case: plausible input rows, and a file with the recorded output."""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

from core.model.names import TableName
from core.project.model import Table
from core.project_reader.paths import TESTS_FOLDER
from core.sql.statement import ParsedStatement
from core.sql.tokens.data_types import element_type, fields_of, key_type
from core.statement_tests.case import Part, Row, StatementCase, TypedColumns
from core.statement_tests.case_reader import columns_of
from core.statement_tests.typed_values import can_be_written, quoted_text, written_value

ROWS = 3
"""Number of rows generated per table in the first part."""

_HEAD = """\
# A first case, by headgate test init: rows made up from the declarations. What stands under expect was RECORDED: it is
# what the statement wrote over these rows, right or wrong. Review each row before you rely on it, and edit freely.
"""
_LATER = "  # Later than everything above, so that the watermark passes and rows that wait for it are written.\n"

_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
_LITERAL = re.compile(r"\b(\w+)\s*(=|<>|!=|\bIN\s*\()\s*('[^'\\]*'(?:\s*,\s*'[^'\\]*')*)", re.IGNORECASE)
_PLAIN = re.compile(r"[a-z_][a-z0-9_]*\Z", re.IGNORECASE)


def first_case_path(table: Table) -> str:
    """Return the path of the generated case for a table's statement."""
    return f"{table.folder}/{TESTS_FOLDER}/{table.name}_recorded.yml"


def first_case(table: Table, tables: Mapping[TableName, Table]) -> StatementCase:
    """Generate rows for each input table, and a later row for each stream if a watermark must pass.

    Rows are numbered in the same way in all tables, so that joins by id find matches. Texts with which the statement
    compares a column are among the column's values.
    """
    parsed = table.parsed
    assert parsed is not None, "an external table has no statement"
    literals = _literals(parsed)
    reads = {read.table: columns_of(tables[read.table]) for read in parsed.reads if read.table in tables}
    parts: list[Part] = [
        {
            name: tuple(_row(columns, number, literals) for number in range(1, ROWS + 1))
            for name, columns in reads.items()
        }
    ]
    streamed = {read.table for read in parsed.reads if read.streaming}
    if any(read.watermark for read in parsed.reads):
        parts.append(
            {name: (_row(columns, ROWS + 1, literals),) for name, columns in reads.items() if name in streamed}
        )
    path = first_case_path(table)
    return StatementCase(f"{table.name}_recorded", path, table.name, tuple(parts))


def written_case(case: StatementCase, rows: Iterable[Row], tables: Mapping[TableName, Table]) -> str:
    """Return the text of a case file with the recorded output rows."""
    table = tables[case.table]
    beside = [each for each in tables.values() if each.folder == table.folder and not each.external]
    named = f"table: {case.table}\n" if len(beside) > 1 else ""
    lines = [_HEAD, named, "given:\n"]
    for number, part in enumerate(case.parts):
        lines.append(_LATER if number else "")
        for place, (name, given) in enumerate(part.items()):
            lines.append(f"  {'- ' if not place else '  '}{name}:\n")
            lines += _written_rows(given, columns_of(tables[name]), " " * 6)
    columns = columns_of(table)
    recorded = sorted(_written_rows(rows, columns, "  "))
    return "".join([*lines, "expect:\n" if recorded else "expect: []\n", *recorded])


def _written_rows(rows: Iterable[Row], columns: TypedColumns, indent: str) -> Iterator[str]:
    for row in rows:
        told = [
            f"{_key(name)}: {written_value(value, kind)}"
            for value, (name, kind) in zip(row, columns, strict=True)
            if value is not None
        ]
        yield f"{indent}- {{{', '.join(told)}}}\n"


def _key(name: str) -> str:
    return name if _PLAIN.match(name) and name.lower() != "null" else quoted_text(name)


def _literals(parsed: ParsedStatement) -> dict[tuple[str, bool], list[str]]:
    """Return the string literals that the statement compares with columns, by (column, whether equality is
    required).
    """
    found: dict[tuple[str, bool], list[str]] = {}
    for name, operator, texts in _LITERAL.findall(parsed.select):
        key = name.lower(), operator not in ("<>", "!=")
        found.setdefault(key, []).extend(re.findall(r"'([^']*)'", texts))
    return found


def _row(columns: TypedColumns, number: int, literals: Mapping[tuple[str, bool], list[str]]) -> Row:
    """Generate one row: every row holds a required literal, and only the last row of the part an excluded one."""
    values: list[object] = []
    for name, kind in columns:
        wanted, ruled_out = (literals.get((name.lower(), equal), []) for equal in (True, False))
        if kind == "string" and (wanted or (ruled_out and number == ROWS)):
            values.append(wanted[(number - 1) % len(wanted)] if wanted else ruled_out[0])
        else:
            values.append(_made_up(name, kind, number) if can_be_written(kind) else None)
    return tuple(values)


def _made_up(name: str, kind: str, number: int) -> object:
    if kind.startswith("array<"):
        return tuple(_made_up(name, element_type(kind), n) for n in range(1, number % 3 + 2))
    if kind.startswith("map<"):
        return ((_made_up("key", key_type(kind), number), _made_up(name, element_type(kind), number)),)
    if kind.startswith("struct<"):
        return tuple(_made_up(field, each, number) for field, each in fields_of(kind))
    if kind.startswith("decimal("):
        precision, scale = (int(part) for part in kind[8:-1].split(","))
        return Decimal(number if precision > scale else 0) + (Decimal(5).scaleb(-scale) if scale else 0)
    if kind.startswith(("string", "char", "varchar")):
        return f"{name} {number}"
    # The last row is of the next day: no watermark waits so long.
    moment = _BEGIN + (timedelta(days=1) if number > ROWS else timedelta(seconds=10 * number))
    values: dict[str, object] = {
        "boolean": number % 2 == 1,
        "float": number + 0.5,
        "double": number + 0.5,
        "date": date(2026, 1, number),
        "timestamp": moment,
        "timestamp_ntz": moment.replace(tzinfo=None),
        "binary": bytes([number]),
    }
    return values.get(kind, number)
