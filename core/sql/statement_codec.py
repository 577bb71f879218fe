"""Converts parsed statements and DDL to JSON and back.

Fields are stored by position to keep the encoding small, because a command may read thousands of statements. The
encoding is pure ASCII. It contains offsets into the file instead of copied SQL, so decoding it requires the same file
content.
"""

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from core.model.names import TableName
from core.model.problems import Problem, Severity, Where
from core.sql.statement import Column, Operator, ParsedStatement, RequiredColumns, TableDdl, TableRead, Watermark

_dump = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
_load = json.JSONDecoder().raw_decode
_column = lru_cache(4096)(Column)
"""Creates a column, or returns an equal one from a cache: most columns of a project occur in several tables."""


def encode_statements(statements: Sequence[ParsedStatement], problems: Sequence[Problem], text: str) -> str:
    """Encode the statements and Problems that `read_statements` returned for `text`."""
    return _dump([[_statement_out(each, text) for each in statements], [_problem_out(each) for each in problems]])


def decode_statements(packed: str, text: str, path: str) -> tuple[tuple[ParsedStatement, ...], tuple[Problem, ...]]:
    """Decode the statements and Problems that `read_statements(text, path)` would return.

    A damaged encoding raises any error of `json` or of unpacking.
    """
    statements, problems = _load(packed)[0]
    return (
        tuple([_statement_in(each, text) for each in statements]),
        tuple([_problem_in(each, path) for each in problems]),
    )


def encode_ddl(ddl: TableDdl | None, problems: Sequence[Problem]) -> str:
    """Encode the DDL, if any, and the Problems that `read_ddl` returned."""
    return _dump([_ddl_out(ddl) if ddl else None, [_problem_out(each) for each in problems]])


def decode_ddl(packed: str, path: str) -> tuple[TableDdl | None, tuple[Problem, ...]]:
    """Decode the DDL and Problems that `read_ddl(text, path)` would return.

    Raises the same errors as `decode_statements`.
    """
    ddl, problems = _load(packed)[0]
    return _ddl_in(ddl) if ddl else None, tuple([_problem_in(each, path) for each in problems])


def _statement_out(parsed: ParsedStatement, text: str) -> list[Any]:
    """Encode a statement without its verb, which is always INSERT INTO in a pipeline."""
    at = text.find(parsed.select)
    return [
        parsed.writes,
        [at, at + len(parsed.select)] if at >= 0 else parsed.select,
        [_read_out(read) for read in parsed.reads],
        [_column_out(column) for column in parsed.columns],
        [[operator.kind, operator.keys, operator.detail] for operator in parsed.operators],
        parsed.canonical,
        parsed.state,
        0 if parsed.pre == parsed.canonical else parsed.pre,
        parsed.post,
        parsed.line,
        parsed.requires,
    ]


def _statement_in(packed: list[Any], text: str) -> ParsedStatement:
    writes, select, reads, columns, operators, canonical, state, pre, post, line, requires = packed
    return ParsedStatement(
        writes,
        select if isinstance(select, str) else text[select[0] : select[1]],
        tuple([_read_in(*read) for read in reads]),
        tuple([_column(*column) for column in columns]),
        tuple([Operator(kind, tuple(keys), detail) for kind, keys, detail in operators]),
        canonical,
        state,
        canonical if pre == 0 else pre,
        post,
        line,
        requires=_requires(requires) if requires is not None else None,
    )


def _requires(packed: list[list[list[str]]]) -> RequiredColumns:
    return tuple([(tuple(map(TableName, tables)), _names(*columns)) for tables, columns in packed])


@lru_cache(4096)
def _names(*names: str) -> tuple[str, ...]:
    # Cached, because many statements read the same columns.
    return names


def _read_out(read: TableRead) -> list[Any]:
    watermark = [read.watermark.column, read.watermark.delay] if read.watermark else None
    place = [read.start, read.end, read.alias_at]
    implied = [True] if read.implied else []
    return [read.table, read.streaming, read.alias, read.options, read.source_name, watermark, *place, *implied]


def _read_in(
    table: Any, streaming: bool, alias: str, options: list[list[str]], source_name: str, *rest: Any
) -> TableRead:
    watermark, start, end, alias_at, *implied = rest
    return TableRead(
        table,
        streaming,
        alias,
        _pairs(options),
        source_name,
        Watermark(*watermark) if watermark else None,
        start,
        end,
        alias_at,
        bool(implied),
    )


def _column_out(column: Column) -> list[Any]:
    """Encode a column, omitting trailing fields that have default values; most encodings are `[name, expression]`."""
    found = [column.name, column.expression, column.type, column.nullable, column.comment]
    for default in ("", True, ""):
        if found[-1] != default:
            break
        found.pop()
    return found


def _ddl_out(ddl: TableDdl) -> list[Any]:
    columns = [_column_out(column) for column in ddl.columns]
    pairs = [ddl.properties, ddl.options]
    return [ddl.table, columns, ddl.format, ddl.partitioning, ddl.location, *pairs, ddl.comment, ddl.line]


def _ddl_in(packed: list[Any]) -> TableDdl:
    table, columns, kind, partitioning, location, properties, options, comment, line = packed
    return TableDdl(
        table,
        tuple([_column(*column) for column in columns]),
        kind,
        tuple(partitioning),
        location,
        _pairs(properties),
        _pairs(options),
        comment,
        line,
    )


def _problem_out(problem: Problem) -> list[Any]:
    place = [problem.where.line, problem.where.column] if problem.where else None
    return [problem.summary, problem.remedy, place, problem.subject, problem.detail, problem.severity.value]


def _problem_in(packed: list[Any], path: str) -> Problem:
    summary, remedy, place, subject, detail, severity = packed
    where = Where(path, *place) if place else None
    return Problem(summary, remedy, where, subject, detail, Severity(severity))


def _pairs(pairs: list[list[str]]) -> tuple[tuple[str, str], ...]:
    return tuple([(key, value) for key, value in pairs]) if pairs else ()
