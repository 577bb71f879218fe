"""Binds statements to physical tables: replaces table names, and adds options and filters to streams.

Everything else in the SQL stays as written.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType

from core.model.names import TableName
from core.sql.parsing.stream_clauses import StreamClauses, extract_stream_clauses
from core.sql.python_jobs import only_inputs
from core.sql.statement import TAKES_CHANGES, LogStart, ParsedStatement, TableDdl, TableRead
from core.sql.tokens.lexer import end_of, open_sql, tokens_of
from core.text.escaping import qualified, quoted_name, quoted_string_literal


def compile_select(
    parsed: ParsedStatement,
    physical: Mapping[TableName, str],
    where: Mapping[TableName, str] = MappingProxyType({}),
    starts: Mapping[TableName, LogStart] = MappingProxyType({}),
) -> str:
    """Return the SELECT with physical table names; raises KeyError if a table is missing from `physical`.

    A table's own name stays valid as a qualifier (`orders.id`), because it is added as an alias. An implied STREAM and
    an implied change feed option are written out. `where` maps a table to a condition that filters its stream before
    the statement processes it. `starts` maps a table to the position at which its stream begins in the first batch.
    """
    edits = [(read.start, read.end, 0, _bound(read, physical[read.table])) for read in parsed.reads]
    edits += [(r.alias_at, r.alias_at, 2, f" AS {r.table}") for r in parsed.reads if r.alias_at is not None]
    marked = bool(where or starts) or any(read.changes_implied for read in parsed.reads)
    clauses = extract_stream_clauses(tokens_of(open_sql(only_inputs(parsed.select), ""))).by_start if marked else {}
    for read in parsed.reads:
        mark = next((each for at, each in clauses.items() if read.start <= at < read.end), StreamClauses())
        begin, end = mark.begin if mark.begin >= 0 else read.start, mark.source_end or read.end
        options = [TAKES_CHANGES] if read.changes_implied else []
        if read.streaming and read.table in starts:
            options.append((starts[read.table].option, starts[read.table].value))
        if options:
            edits.append(_with_options(parsed.select, read, begin, end, tuple(options)))
        if read.streaming and read.table in where:
            edits += [(begin, begin, 0, "(SELECT * FROM "), (end, end, 1, f" WHERE {where[read.table]})")]
    text = parsed.select
    # Edits are applied from the end of the text. At the same offset, the alias follows the condition in the result.
    for start, end, _, replacement in sorted(edits, reverse=True):
        text = text[:start] + replacement + text[end:]
    return text


def compile_ddl(ddl: TableDdl, physical: str, location: str) -> str:
    """Return a `CREATE TABLE IF NOT EXISTS` for a physical table at an absolute location.

    The parts of a qualified name are separated by dots.

    If `location` is empty, Spark manages the table's files and deletes them when the table is dropped.
    """
    columns = ", ".join(_column(each.name, each.type, each.comment, nullable=each.nullable) for each in ddl.columns)
    parts = [f"CREATE TABLE IF NOT EXISTS {qualified(physical, quoted_name)} ({columns})", f"USING {ddl.format}"]
    if ddl.options:
        parts.append(f"OPTIONS ({_pairs(ddl.options)})")
    if ddl.partitioning:
        parts.append(f"PARTITIONED BY ({', '.join(quoted_name(name) for name in ddl.partitioning)})")
    if location:
        parts.append(f"LOCATION {quoted_string_literal(location)}")
    if ddl.comment:
        parts.append(f"COMMENT {quoted_string_literal(ddl.comment)}")
    if ddl.properties:
        parts.append(f"TBLPROPERTIES ({_pairs(ddl.properties)})")
    return " ".join(parts)


def _bound(read: TableRead, physical: str) -> str:
    named = qualified(physical, quoted_name)
    return f"STREAM {named}" if read.implied else named


def _with_options(
    select: str, read: TableRead, begin: int, end: int, added: tuple[tuple[str, str], ...]
) -> tuple[int, int, int, str]:
    """Return the text edit that adds options to a stream, in the stream's WITH clause or in a new one.

    The edit is (start offset, end offset, rank among edits at the same offset, inserted SQL).
    """
    option = _pairs(added)
    if (options := re.search(r"\bWITH\s*\(", select[read.end : end], re.I)) is not None:
        at = read.end + options.end()
        return at, at, 0, f"{option}, "
    in_brackets = "(" in select[begin : read.start]
    at = select.index(")", read.end) + 1 if in_brackets else read.end
    return at, at, 0, f" WITH ({option})"


def _column(name: str, kind: str, comment: str, *, nullable: bool) -> str:
    text = f"{quoted_name(name)} {kind}"
    if not nullable:
        text += " NOT NULL"
    return f"{text} COMMENT {quoted_string_literal(comment)}" if comment else text


def _pairs(pairs: tuple[tuple[str, str], ...]) -> str:
    return ", ".join(f"{quoted_string_literal(key)}={quoted_string_literal(value)}" for key, value in pairs)


# Streams of Delta with schema tracking: Spark stops them once at each schema change, and the next start continues
# after it, even after a rename or drop; without a schema log no start succeeds (Delta 4.4.0).

LOGS = "schemas"
"""Subfolder of a checkpoint for the schema logs of its sources; Delta 4.4.0 accepts no other location."""
_TOLERATED_CHANGES = ("allowSourceColumnRename", "allowSourceColumnDrop", "allowSourceColumnTypeChange")

Options = tuple[tuple[str, str], ...]


def tracking_options(checkpoint: str, ordinal: int) -> Options:
    """Return the options that let a Delta source track its schema and restart after any schema change.

    `checkpoint` is the folder of the checkpoint; `ordinal` is the position of the stream in the SELECT, from 0.
    """
    log = ("schemaTrackingLocation", f"{checkpoint}/{LOGS}/{ordinal}")
    return log, *((name, "always") for name in _TOLERATED_CHANGES)


def with_stream_options(select: str, options: Mapping[int, Options]) -> str:
    """Return a compiled SELECT with `options` inserted before the existing options of its streams.

    `options` maps the ordinal of a stream in the SELECT, from 0, to its new options.
    """
    tokens = tokens_of(open_sql(only_inputs(select), ""))
    streams = sorted((at, mark) for at, mark in extract_stream_clauses(tokens).by_start.items() if mark.streaming)
    ends = {token.start: end_of(token) for token in tokens}
    for ordinal, (at, mark) in reversed(list(enumerate(streams))):
        if not (added := options.get(ordinal)):
            continue
        text = _pairs(added)
        if mark.options:
            offset = select.index("(", ends[at]) + 1
            select = f"{select[:offset]}{text}, {select[offset:]}"
        else:
            offset = select.index(")", ends[at]) + 1 if "(" in select[mark.begin : at] else ends[at]
            select = f"{select[:offset]} WITH ({text}){select[offset:]}"
    return select
