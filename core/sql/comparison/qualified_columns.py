"""Qualifies the columns in canonical SQL, so that queries that differ only in qualifiers become equal.

A column is left as written if its table is uncertain, for example because the columns of a table are unknown.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlglot import exp

from core.model.names import TableName
from core.sql.parsing.canonical_text import normalise, sql_of
from core.sql.parsing.parser import parse_query
from core.sql.parsing.stream_clauses import StreamClauses, extract_stream_clauses
from core.sql.tokens.lexer import SqlDiagnostic, open_sql, tokens_of

ColumnsOf = Mapping[TableName, Sequence[str]]
"""Column names in lower case, by table; a table without an entry has unknown columns."""


def with_qualified_columns(canonical: str, columns: ColumnsOf) -> tuple[object, ...]:
    """Return a comparison key for canonical SQL that is the same whether or not its columns are qualified.

    If the SQL cannot be parsed, the key is the SQL itself.
    """
    try:
        marks = extract_stream_clauses(tokens_of(open_sql(canonical, "")))
        query = parse_query(marks.tokens, canonical)
    except (SqlDiagnostic, RecursionError):
        return (canonical,)
    outputs = {cte.alias: _outputs(cte.this) for cte in query.find_all(exp.CTE)}
    known = {str(table): frozenset(names) for table, names in columns.items()} | outputs
    for select in query.find_all(exp.Select):
        _qualify(select, known)
    clauses = [_clauses(marks.by_start[start]) for start in sorted(marks.by_start)]
    return (sql_of(normalise(query)), *clauses, *(_clauses(mark) for mark in marks.hidden))


def _qualify(select: Any, known: Mapping[str, frozenset[str] | None]) -> None:
    joins = select.args.get("joins") or []
    sources = [join.this for join in joins] + [lateral for lateral in select.args.get("laterals") or []]
    from_ = select.args.get("from_")
    if from_ is None or not sources or any(_hides(join) for join in joins):
        return
    columns_by_alias = {each.alias: _columns(each, known) for each in (from_.this, *sources)}
    if None in columns_by_alias.values() or "" in columns_by_alias:
        return
    outputs = {each.alias for each in select.expressions if isinstance(each, exp.Alias)}
    for column in list(select.find_all(exp.Column)):
        if column.find_ancestor(exp.Select) is not select or isinstance(column.this, exp.Star):
            continue
        first = column.parts[0].name
        if first in columns_by_alias or (first in outputs and column.find_ancestor(exp.Having) is not None):
            continue
        owners = [alias for alias, names in columns_by_alias.items() if names is not None and first in names]
        if len(owners) == 1 and len(column.parts) < 4:
            parts = [exp.to_identifier(owners[0]), *column.parts]
            for key, part in zip(("this", "table", "db", "catalog"), reversed(parts), strict=False):
                column.set(key, part)


def _hides(join: Any) -> bool:
    """True if a join merges columns (NATURAL, USING), or hides the columns of the joined table (SEMI, ANTI)."""
    words = {str(join.args.get(key) or "").upper() for key in ("method", "side", "kind")}
    return bool(join.args.get("using")) or bool(words & {"NATURAL", "SEMI", "ANTI"})


def _columns(source: Any, known: Mapping[str, frozenset[str] | None]) -> frozenset[str] | None:
    listed = source.args["alias"].args.get("columns") if source.args.get("alias") is not None else None
    if listed:
        return frozenset(each.name for each in listed)
    if any(source.args.get(key) for key in ("joins", "laterals", "pivots")):
        return None
    if isinstance(source, exp.Table):
        return known.get(source.name) if source.args.get("db") is None else None
    return _outputs(source.this) if isinstance(source, exp.Subquery) else None


def _outputs(query: Any) -> frozenset[str] | None:
    while isinstance(query, (exp.SetOperation, exp.Subquery)):
        query = query.this
    if not isinstance(query, exp.Select):
        return None
    names = [each.alias_or_name for each in query.expressions if isinstance(each, (exp.Alias, exp.Column))]
    whole = len(names) == len(query.expressions) and "*" not in names
    return frozenset(names) if whole else None


def _clauses(mark: StreamClauses) -> tuple[object, ...]:
    return (mark.streaming, mark.options, mark.source_name, mark.watermark)
