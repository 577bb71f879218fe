"""Resolves every table name to a CTE or a table, and renames aliases to `_t1`, `_t2` …

Spark's rules (tested on 4.2): among CTEs of the same name, the innermost one applies; a CTE can refer to earlier CTEs
but never to itself; names ignore case; and `STREAM c` silently reads a CTE called c.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from sqlglot import exp

from core.sql.parsing.from_clause import first_offset, joined_by
from core.sql.parsing.function_names import TABLE_FUNCTIONS, plain_function_name
from core.sql.parsing.stream_clauses import HIDDEN, ExtractedClauses, StreamClauses
from core.sql.registered_functions import is_registered_name
from core.sql.tokens.lexer import SqlDiagnostic


@dataclass(frozen=True, slots=True)
class NamedRead:
    """A reference to a table rather than to a CTE."""

    name: str
    mark: StreamClauses
    alias: str
    start: int
    """Offset of the name in the file; `end` is the offset after its last character, including backticks."""
    end: int
    alias_at: int
    """Offset in the file at which an alias could be inserted."""
    parts: int = 1
    """Number of parts in the name, including database and catalog."""
    implied: bool = False
    """Whether the table is streamed although STREAM is not written."""


@dataclass(slots=True)
class TableNames:
    """The table references of a query, collected while its table names are resolved.

    The meta of a node contains what its name was resolved to: `entry` for a table, `cte` for a WITH query.
    """

    marks: ExtractedClauses
    every_table_streams: bool = False
    reads: list[NamedRead] = field(default_factory=list)
    aliases: int = 0
    ctes: int = 0
    unnamed: dict[str, int] = field(default_factory=dict)
    """Maps the new alias of each read that was written without an alias to the start of that read."""
    placed: set[int] = field(default_factory=set)
    """Offsets of all names that were resolved to a table or a WITH query."""
    qualifying: set[int] = field(default_factory=set)
    """Starts of the reads whose table name qualifies a column, so that compiling must add this name as an alias."""

    def alias(self) -> str:
        """Return the next unused alias, such as `_t1`."""
        self.aliases += 1
        return f"_t{self.aliases}"


_ENDS = ("order", "sort", "cluster", "distribute", "limit", "offset")
"""Clauses that apply to a whole set operation, VALUES or query in brackets."""
_UNBOUND = (exp.Placeholder, exp.Parameter, exp.SessionParameter)

AliasScope = dict[str, str]
"""Maps a written alias, in lower case, to the new alias; empty for an alias that outer brackets hide."""


def resolve_table_names(query: Any, marks: ExtractedClauses, *, every_table_streams: bool = False) -> TableNames:
    """Resolve a query's table names and rename its aliases, in place; raises SqlDiagnostic for unsupported reads.

    With `every_table_streams`, a table is streamed even if STREAM is not written.
    """
    names = TableNames(marks, every_table_streams)
    _query(query, {}, [], names)
    names.reads.sort(key=lambda read: read.start)
    return names


def _query(query: Any, ctes: AliasScope, outer: list[AliasScope], names: TableNames) -> None:
    ctes = _with(query, ctes, outer, names)
    _check_limit(query)
    if isinstance(query, exp.Select):
        _select(query, ctes, outer, names)
        return
    if isinstance(query, exp.Subquery):
        _query(query.this, ctes, outer, names)
    elif isinstance(query, exp.SetOperation):
        for side in _sides(query):
            _query(side, ctes, outer, names)
    elif isinstance(query, exp.Values):
        if query.find(exp.Column) is not None:
            condition = "INVALID_INLINE_TABLE.CANNOT_EVALUATE_EXPRESSION_IN_INLINE_TABLE"
            raise SqlDiagnostic(
                "VALUES contains constants, not columns",
                "write SELECT … FROM",
                first_offset(query, 0),
                condition=condition,
            )
        _each_expression(query.expressions, ctes, outer, names)
    _each_expression((query.args.get(key) for key in _ENDS), ctes, outer, names)


def _check_limit(query: Any) -> None:
    for word in ("limit", "offset"):
        clause = query.args.get(word)
        held = clause.find(exp.Query, exp.Column) if clause is not None else None
        if held is not None and held.name.upper() != "ALL":
            condition = "INVALID_LIMIT_LIKE_EXPRESSION.IS_UNFOLDABLE"
            summary = f"{word.upper()} takes a constant"
            raise SqlDiagnostic(
                summary, "write a number", first_offset(held, 0), subject=word.upper(), condition=condition
            )


def _sides(query: Any) -> list[Any]:
    # The outermost set operation is always split, because the caller has read its WITH.
    found: list[Any] = [query.expression]
    query = query.this
    while isinstance(query, exp.SetOperation) and not query.args.get("with_"):
        found.append(query.expression)
        query = query.this
    return [query, *reversed(found)]


def _with(query: Any, ctes: AliasScope, outer: list[AliasScope], names: TableNames) -> AliasScope:
    with_ = query.args.get("with_")
    if with_ is None:
        return ctes
    inner = dict(ctes)
    own: set[str] = set()
    for cte in with_.expressions:
        written = cte.alias.lower()
        if written in own:
            summary, remedy = f"two WITH queries are named {written}", "give each a unique name"
            raise SqlDiagnostic(
                summary, remedy, first_offset(cte, 0), subject=written, condition="DUPLICATED_CTE_NAMES"
            )
        own.add(written)
        if with_.args.get("recursive"):
            raise SqlDiagnostic(
                "a recursive WITH cannot be streamed",
                "write it without RECURSIVE",
                first_offset(cte, 0),
                subject=written,
            )
        _query(cte.this, inner, outer, names)
        cte.meta["written"] = written
        names.ctes += 1
        inner[written] = f"_c{names.ctes}"
        cte.args["alias"].this.set("this", inner[written])
        cte.args["alias"].meta["written"] = written
    return inner


def _select(select: Any, ctes: AliasScope, outer: list[AliasScope], names: TableNames) -> None:
    scope: AliasScope = {}
    if (into := select.args.get("into")) is not None:
        remedy = "write INSERT INTO t SELECT …"
        raise SqlDiagnostic("SELECT … INTO is not Spark SQL", remedy, first_offset(into, 0), subject="INTO")
    sources, joins = joined_by(select)
    for join in joins:
        before = _connector(join, names.marks) if join.kind == "CROSS" or isinstance(join.this, exp.Lateral) else None
        join.meta["comma"] = before is not None and not before[1]
        join.meta["on"] = before is not None and before[0] in names.marks.with_on
    for source in sources:
        _source(source, ctes, outer, scope, names)
    laterals = select.args.get("laterals") or []
    for lateral in laterals:
        _rename(lateral, scope, names)
    if "brackets" in select.meta:
        select.meta["brackets"] = tuple(scope)
    single = len(sources) + len(laterals) == 1
    called = (source.this for source in sources if isinstance(source, exp.Lateral))
    for within in (
        *(each for each in called if not isinstance(each, exp.Query)),
        *(join.args.get("on") for join in joins),
    ):
        _expressions(within, ctes, outer, scope, names, single=False)
    for key, value in select.args.items():
        if key not in ("from_", "joins", "with_"):
            for each in value if isinstance(value, list) else [value]:
                _expressions(each, ctes, outer, scope, names, single=single)


def _connector(join: Any, marks: ExtractedClauses) -> tuple[int, bool] | None:
    """Return the offset of the last FROM, JOIN or comma before a joined name, and whether CROSS precedes it.

    Returns None if there is no such token.
    """
    start = first_offset(join.this, 0)
    return next((each for each in reversed(marks.connectors) if each[0] < start), None)


def _source(source: Any, ctes: AliasScope, outer: list[AliasScope], scope: AliasScope, names: TableNames) -> None:
    if isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier):
        _table(source, ctes, names)
    elif isinstance(source, exp.Table):
        _check_function(source)
        _each_expression([source.this], ctes, outer, names)
    elif isinstance(source, (exp.Subquery, exp.Values)):
        _query(source, ctes, outer, names)
        for hidden in source.this.meta.get("brackets", ()) if isinstance(source.this, exp.Select) else ():
            scope.setdefault(hidden, "")
    elif isinstance(source, exp.Lateral) and isinstance(source.this, exp.Query):
        _query(source.this, ctes, [*outer, scope], names)
    for pivot in source.args.get("pivots") or []:
        _each_expression([*pivot.expressions, *(pivot.args.get("fields") or [])], ctes, outer, names)
    _rename(source, scope, names)


def _table(table: Any, ctes: AliasScope, names: TableNames) -> None:
    identifier = table.this
    start = identifier.meta.get("start")
    before = [part for part in (table.args.get("catalog"), table.args.get("db")) if part is not None]
    if not all(isinstance(part, exp.Identifier) for part in before):
        remedy = "write catalog.database.table, or the table name alone"
        raise SqlDiagnostic("a part of a table name is missing", remedy, start or 0, subject=identifier.name)
    written = identifier.name.lower()
    if start is not None:
        names.placed.add(start)
    mark = names.marks.by_start.get(start, StreamClauses())
    if written in ctes and not before:
        if mark.streaming:
            raise SqlDiagnostic(
                f"STREAM {written} names a WITH query, and Spark silently ignores STREAM there",
                f"write STREAM inside {written}, or rename the WITH query",
                start or 0,
                subject=written,
            )
        table.meta["cte"] = ctes[written]
        return
    if start is None:
        raise SqlDiagnostic(
            f"the position of {written} in the query is unknown", "write the plain table name", 0, subject=written
        )
    alias, end = table.alias, int(identifier.meta["end"]) + 1
    alias_at = mark.end or end
    if alias.startswith(HIDDEN):
        index, _, alias = alias[len(HIDDEN) :].partition("_")
        hidden = names.marks.hidden[int(index)]
        mark, alias_at = replace(mark, watermark=hidden.watermark), hidden.end
    implied = names.every_table_streams and not mark.streaming
    if implied:
        mark = replace(mark, streaming=True)
    elif not mark.streaming and mark.watermark is not None:
        # Spark silently drops a watermark on a table (tested on 4.2.0).
        mark = replace(mark, watermark=None)
    name = ".".join(part.name for part in (*before, identifier))
    start = int((before or [identifier])[0].meta.get("start", start))
    names.reads.append(NamedRead(name, mark, alias, start, end, alias_at, len(before) + 1, implied))
    table.meta["entry"] = names.reads[-1]


def _check_function(table: Any) -> None:
    """Raise SqlDiagnostic for a table function that is not built into Spark, because it may read unknown tables."""
    inner, place = table.this, first_offset(table, 0)
    if isinstance(inner, exp.Dot):
        remedy = "write catalog.database.table, or the table name alone"
        raise SqlDiagnostic(
            "a table name has at most three parts", remedy, place, condition="IDENTIFIER_TOO_MANY_NAME_PARTS"
        )
    name = plain_function_name(inner.name) if isinstance(inner, exp.Anonymous) else type(inner).__name__.lower()
    if name not in TABLE_FUNCTIONS and not is_registered_name(name):
        remedy = "write the tables that it reads, or use a Spark function such as range(10)"
        summary = f"{name} is not a built-in table function of Spark and may read tables that Headgate does not see"
        condition = "UNRESOLVABLE_TABLE_VALUED_FUNCTION"
        raise SqlDiagnostic(summary, remedy, place, subject=name, condition=condition)
    if name == "range" and inner.find(exp.Query) is not None:
        remedy = "write numbers"
        raise SqlDiagnostic(
            "range takes constants, not a query", remedy, place, subject=name, condition="NON_FOLDABLE_ARGUMENT"
        )


def _rename(source: Any, scope: AliasScope, names: TableNames) -> None:
    """Give a source a new alias, and attach the watermark to which its old alias refers."""
    written = source.alias or (source.name if isinstance(source, exp.Table) else "")
    alias = source.args.get("alias")
    if written.startswith(HIDDEN):
        index, _, written = written[len(HIDDEN) :].partition("_")
        if "entry" not in source.meta:
            source.meta["mark"] = names.marks.hidden[int(index)]
        written = written or (source.name if isinstance(source, exp.Table) else "")
    new = names.alias()
    entry: NamedRead | None = source.meta.get("entry")
    if entry is not None and not entry.alias:
        names.unnamed[new] = entry.start
    if written:
        scope[written.lower()] = new
    if entry is not None and not entry.alias:
        parts = entry.name.lower().split(".")
        scope.update({".".join(parts[-count:]): new for count in range(1, entry.parts + 1)})
    if isinstance(source, exp.Table) and "cte" in source.meta:
        source.set("this", exp.to_identifier(source.meta["cte"]))
    if alias is None:
        alias = exp.TableAlias(this=exp.to_identifier(new))
        source.set("alias", alias)
    else:
        alias.set("this", exp.to_identifier(new))
    alias.meta["written"] = written


def _each_expression(nodes: Iterable[Any], ctes: AliasScope, outer: list[AliasScope], names: TableNames) -> None:
    """Resolve the names in expressions that cannot refer to the sources of the query that contains them."""
    for node in nodes:
        _expressions(node, ctes, outer, {}, names, single=True)


def _expressions(
    node: Any, ctes: AliasScope, outer: list[AliasScope], scope: AliasScope, names: TableNames, *, single: bool
) -> None:
    """Rename the qualifiers of columns below a node, and resolve nested queries with `scope` as an outer scope."""
    waiting = [node] if isinstance(node, exp.Expression) else []
    while waiting:
        each = waiting.pop()
        kind = each.__class__
        if kind is exp.Identifier or kind is exp.Literal:
            continue
        if kind is exp.Column:
            _column(each, outer, scope, names, single=single)
            if isinstance(each.this, exp.Identifier):
                continue
        if isinstance(each, exp.Query):
            _query(each, ctes, [*outer, scope], names)
            continue
        if isinstance(each, _UNBOUND):
            summary = "the parameter used here has no value"
            raise SqlDiagnostic(
                summary, "write the value", -1, subject=str(each.name), condition="UNBOUND_SQL_PARAMETER"
            )
        if isinstance(each, exp.Lambda) and each.find(exp.Query) is not None:
            condition = "UNSUPPORTED_SUBQUERY_EXPRESSION_CATEGORY.HIGHER_ORDER_FUNCTION"
            remedy = "join the table, and use its column inside"
            raise SqlDiagnostic(
                "a query is not allowed inside a lambda function", remedy, first_offset(each, 0), condition=condition
            )
        if kind is exp.WindowSpec and any(isinstance(each.args.get(key), exp.Query) for key in ("start", "end")):
            remedy = "write a number"
            raise SqlDiagnostic(
                "a window frame does not take a query",
                remedy,
                first_offset(each, 0),
                condition="_LEGACY_ERROR_TEMP_0064",
            )
        if isinstance(each, exp.Lateral):
            waiting.append(each.this)
        else:
            waiting.extend(each.iter_expressions(reverse=True))


def _column(column: Any, outer: list[AliasScope], scope: AliasScope, names: TableNames, *, single: bool) -> None:
    """Replace the longest known qualifier of a column with the new alias, or remove it if there is a single source."""
    if column.args.get("table") is None:
        return
    parts = [part for part in (column.args.get(key) for key in ("catalog", "db", "table", "this")) if part is not None]
    scopes = (scope, *reversed(outer))
    found, qualifier, count = None, "", 0
    for count in range(len(parts) - 1, 0, -1):
        qualifier = ".".join(part.name.lower() for part in parts[:count])
        found = next((each[qualifier] for each in scopes if qualifier in each), None)
        if found is not None:
            break
    if found is None:
        return
    if not found:
        remedy = f"qualify it with the alias after the parentheses, or drop {qualifier}"
        summary = f"{qualifier} is hidden by the parentheses around it"
        raise SqlDiagnostic(summary, remedy, first_offset(column, 0), subject=qualifier, condition="UNRESOLVED_COLUMN")
    if found in names.unnamed:
        names.qualifying.add(names.unnamed[found])
    after = parts[count:]
    parts = after if single and qualifier in scope else [exp.Identifier(this=found, quoted=False), *after]
    keys = ("this", "table", "db", "catalog")
    for key, part in zip(keys, [*reversed(parts), None, None, None], strict=False):
        if column.args.get(key) is not part:
            column.set(key, part)


def unread_tables(sources: Iterable[Any], names: TableNames, marks: ExtractedClauses) -> Iterator[SqlDiagnostic]:
    """Yield a diagnostic for each table that was resolved neither to a read nor to a WITH query.

    The check is independent of the resolution: it compares the tables in the parsed tree with those in the tokens.
    """
    named = {*marks.named, *marks.by_start}
    # A table that is not among the tokens stems from another engine's syntax: sqlglot joins c in `WHERE a = b, c`.
    lost = named ^ names.placed
    for source in sources:
        if isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier) and not _is_read(source):
            lost.add(int(source.this.meta.get("start", -1)))
    for start in sorted(lost):
        summary = "this part is not understood: it may read a table that Headgate does not see"
        yield SqlDiagnostic(summary, "write the table in FROM or JOIN, or move this part to WITH", start)


def _is_read(table: Any) -> bool:
    return "entry" in table.meta or "cte" in table.meta or table.find_ancestor(exp.Hint) is not None
