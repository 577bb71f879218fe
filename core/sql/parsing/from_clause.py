"""Normalises FROM clauses, whatever their brackets, and rejects anything outside Spark's grammar.

Spark 4.2.0 (SqlBaseParser.g4, `relation` and `relationPrimary`) has two kinds of brackets in FROM: around a query, and
around a relation with its joins. Brackets around a relation have no meaning of their own, but turn the relation into a
query if an alias, PIVOT, WATERMARK or TABLESAMPLE follows: `(a JOIN b) AS t` hides `a` and `b` like `(SELECT * FROM a
JOIN b) AS t`. PIVOT and UNPIVOT apply to everything joined so far.

After normalisation, FROM and JOIN are followed by a *source*: a table, a table function, VALUES, LATERAL or a query in
brackets. JOIN may also be followed by a *group*: brackets without an alias around a source with joins of its own. A
SELECT that was made from brackets has `brackets` in its meta.
"""

from typing import Any

from sqlglot import exp

from core.sql.tokens.lexer import SqlDiagnostic

_SOURCES = (exp.Table, exp.Subquery, exp.Values, exp.Lateral)
_DRESSING = ("alias", "pivots", "sample")
"""Clauses that turn preceding brackets into a query.

A WATERMARK is hidden in the alias (`core.sql.parsing.stream_clauses`).
"""
_ALLOWED: dict[type, frozenset[str]] = {
    exp.Table: frozenset(("this", "db", "catalog", "joins", "version", *_DRESSING)),
    exp.Subquery: frozenset(("this", "joins", *_DRESSING)),
    exp.Values: frozenset(("expressions", "joins", *_DRESSING)),
    exp.Lateral: frozenset(("this", "view", "outer", "joins", *_DRESSING)),
    exp.Join: frozenset(("this", "method", "side", "kind", "on", "using", "pivots")),
    exp.Select: frozenset(
        (
            *("with_", "hint", "distinct", "expressions", "into", "from_", "joins", "laterals", "where", "group"),
            *("having", "qualify", "windows", "order", "cluster", "distribute", "sort", "limit", "offset"),
        )
    ),
}
"""The arguments that Spark's grammar allows in each node; sqlglot also accepts clauses of other engines."""
_JOINS = frozenset(
    f"{method}{kind}".strip()
    for method in ("", "NATURAL ")
    for kind in (
        *("", "INNER", "CROSS", "LEFT", "LEFT OUTER", "RIGHT", "RIGHT OUTER", "FULL", "FULL OUTER"),
        *("SEMI", "ANTI", "LEFT SEMI", "LEFT ANTI"),
    )
    if (method, kind) != ("NATURAL ", "CROSS")
)
_LATERAL_JOINS = frozenset(("", "INNER", "CROSS", "LEFT", "LEFT OUTER"))
_WORDS = {
    "locks": "FOR UPDATE",
    "kind": "SELECT AS",
    "operation_modifiers": ("an unknown keyword after SELECT"),
    "when": "AT",
}
"""SQL keywords of the clauses that have another name in sqlglot."""
_SYNTAX = "PARSE_SYNTAX_ERROR"


def shape_from_clauses(tree: Any, *, nested: bool) -> None:
    """Normalise all FROM clauses of a parsed query, in place; raises SqlDiagnostic for anything that Spark rejects.

    `nested` is False if the query contains no other query; a walk through the tree is then skipped.
    """
    _check_query(tree, tree)
    if not nested and isinstance(tree, exp.Select):
        _shape_select(tree)
        return
    for node in reversed(list(tree.find_all(exp.Select, exp.SetOperation, exp.CTE))):
        if isinstance(node, exp.Select):
            _shape_select(node)
        else:
            _check_query(node.this, node)
            if isinstance(node, exp.SetOperation):
                _check_query(node.expression, node)


def is_group(source: Any) -> bool:
    """True if a source is a group: brackets around joined sources. Its joins are in `source.this`."""
    return (
        isinstance(source, exp.Subquery) and isinstance(source.this, _SOURCES) and bool(source.this.args.get("joins"))
    )


def sources_in(tree: Any) -> list[Any]:
    """Return all sources of FROM clauses below a node, at any depth."""
    return list(tree.find_all(*_SOURCES))


def sources_of(source: Any) -> list[Any]:
    """Return the sources that a group joins, from left to right; for any other source, return only the source."""
    if not is_group(source):
        return [source]
    return [source.this, *(each for join in source.this.args["joins"] for each in sources_of(join.this))]


def join_words(join: Any) -> str:
    """Return the keywords before JOIN in upper case; empty for a plain JOIN."""
    return " ".join(str(join.args[key]).upper() for key in ("method", "side", "kind") if join.args.get(key))


def joined_by(select: Any) -> tuple[list[Any], list[Any]]:
    """Return the sources of a SELECT from left to right, and all its joins, including those inside groups."""
    from_, waiting = select.args.get("from_"), list(select.args.get("joins") or [])
    sources = [] if from_ is None else sources_of(from_.this)
    joins: list[Any] = []
    while waiting:
        join = waiting.pop(0)
        joins.append(join)
        if is_group(join.this):
            waiting = [*join.this.this.args["joins"], *waiting]
    for join in select.args.get("joins") or []:
        sources += sources_of(join.this)
    return sources, joins


def aliases_of(select: Any) -> frozenset[str]:
    """Return the aliases of a SELECT's sources and LATERAL VIEWs."""
    return frozenset(source.alias for source in [*joined_by(select)[0], *(select.args.get("laterals") or [])])


def first_offset(node: Any, default: int = -1) -> int:
    """Return the offset of the first name below a node, or `default` if no name has an offset."""
    return min((each.meta["start"] for each in node.find_all(exp.Identifier) if "start" in each.meta), default=default)


def _check_query(node: Any, parent: Any) -> None:
    """Raise SqlDiagnostic for anything that is not a query, as in `WITH c AS (t)` or `… UNION ALL (a JOIN b)`."""
    if not (_is_query(node) or isinstance(node, exp.Values)):
        raise SqlDiagnostic(
            "a query is expected here", "write SELECT * FROM <table>", first_offset(parent), condition=_SYNTAX
        )


def _shape_select(select: Any) -> None:
    _check(select)
    limit, distinct = select.args.get("limit"), select.args.get("distinct")
    if limit is not None and not isinstance(limit, exp.Limit):
        raise _refused(limit.key, limit, "write LIMIT")
    if distinct is not None and distinct.args.get("on") is not None:
        raise _refused("DISTINCT ON", select, "write DISTINCT, or GROUP BY with first(…)")
    for lateral in select.args.get("laterals") or []:
        _check_lateral(lateral)
        named = lateral.args.get("alias")
        if not lateral.args.get("view"):
            raise _refused(
                "LATERAL after FROM without a comma", lateral, "write a comma before LATERAL, or LATERAL VIEW"
            )
        if named is None or not (named.name or named.columns):
            remedy = "write LATERAL VIEW explode(…) t AS c"
            raise SqlDiagnostic("LATERAL VIEW has no name", remedy, first_offset(lateral), condition=_SYNTAX)
    from_, joins = select.args.get("from_"), select.args.get("joins") or []
    if from_ is None:
        if joins:
            raise _refused("JOIN without FROM", joins[0], "write SELECT … FROM <table> JOIN …")
        return
    source, joins = _chain(from_.this, joins)
    from_.set("this", source)
    select.set("joins", joins or None)


def _chain(first: Any, joins: list[Any]) -> tuple[Any, list[Any]]:
    """Return the normalised form of a source and its joins; everything before a PIVOT becomes a subquery."""
    source, found = _opened(first)
    for join in joins:
        pivots = _shape_join(join)
        found = [*found, join]
        if pivots:
            source, found = _pivoted(exp.Subquery(this=_select_all(source, found)), pivots), []
    return source, found


def _opened(node: Any) -> tuple[Any, list[Any]]:
    if not isinstance(node, _SOURCES):
        # sqlglot parses FROM FROM (SELECT …) as a query without brackets, and loses the tables that the query reads.
        raise SqlDiagnostic("a table is missing after FROM or JOIN", "write its name, or a query in parentheses", -1)
    _check(node)
    if isinstance(node, exp.Lateral):
        _check_lateral(node)
    elif isinstance(node, exp.Subquery) and not _is_query(node.this):
        source, joins = _chain(node.this, node.this.args.pop("joins", None) or [])
        if not _is_dressed(node):
            return source, joins
        node.set("this", _select_all(source, joins))
        node.this.meta["brackets"] = True
    return _pivoted(node, node.args.pop("pivots", None) or []), []


def _shape_join(join: Any) -> list[Any]:
    """Normalise the source of a join; return the PIVOTs after it, which apply to everything joined so far."""
    _check(join)
    _check_join(join)
    pivots = join.args.pop("pivots", None) or []
    if isinstance(join.this, _SOURCES):
        if join.this.args.get("joins"):
            remedy = "put the inner join in parentheses: a JOIN (b JOIN c ON …) ON …"
            raise SqlDiagnostic("two join conditions follow each other", remedy, first_offset(join), condition=_SYNTAX)
        pivots = [*(join.this.args.pop("pivots", None) or []), *pivots]
    source, inside = _opened(join.this)
    if inside:
        source.set("joins", inside)
        source = exp.Subquery(this=source)
    join.set("this", source)
    return pivots


def _check_join(join: Any) -> None:
    words = join_words(join)
    if words not in _JOINS:
        raise _refused(f"{words} JOIN", join, "write JOIN … ON …")
    if isinstance(join.this, exp.Lateral) and words not in _LATERAL_JOINS:
        summary, condition = f"{words} JOIN LATERAL is not Spark SQL", "INVALID_LATERAL_JOIN_TYPE"
        raise SqlDiagnostic(summary, "write LEFT JOIN LATERAL", first_offset(join), condition=condition)
    if isinstance(join.this, exp.Lateral) and join.args.get("using"):
        condition = "UNSUPPORTED_FEATURE.LATERAL_JOIN_USING"
        raise SqlDiagnostic("JOIN LATERAL does not take USING", "write ON", first_offset(join), condition=condition)
    if "NATURAL" not in words:
        return
    if join.args.get("using") or join.args.get("on") is not None:
        remedy = "remove the condition: NATURAL joins on the columns with the same name"
        raise SqlDiagnostic("NATURAL JOIN does not take a condition", remedy, first_offset(join), condition=_SYNTAX)
    if "SEMI" in words or "ANTI" in words:
        raise SqlDiagnostic(f"Spark rejects {words} JOIN", "write USING (…)", first_offset(join), condition="")


def _pivoted(source: Any, pivots: list[Any]) -> Any:
    waiting: list[Any] = []
    for pivot in pivots:
        values = [value for each in pivot.args.get("fields") or [] for value in each.expressions]
        if any(isinstance(value, (exp.Select, exp.SetOperation)) for value in values):
            raise SqlDiagnostic(
                "PIVOT does not take a query", "list the values", first_offset(pivot), condition=_SYNTAX
            )
        alias = pivot.args.pop("alias", None)
        waiting.append(pivot)
        source.set("pivots", waiting)
        if alias is not None:
            source, waiting = exp.Subquery(this=_select_all(source, []), alias=alias), []
    return source


def _select_all(source: Any, joins: list[Any]) -> Any:
    select = exp.Select(expressions=[exp.Star()], from_=exp.From(this=source))
    if joins:
        select.set("joins", joins)
    return select


def _is_query(node: Any) -> bool:
    while isinstance(node, exp.Subquery) and not _is_dressed(node) and not node.args.get("joins"):
        node = node.this
    return isinstance(node, (exp.Select, exp.SetOperation))


def _is_dressed(node: Any) -> bool:
    return any(node.args.get(key) for key in _DRESSING)


def _check(node: Any) -> None:
    allowed = _ALLOWED[type(node)]
    for key, value in node.args.items():
        if not value or key in allowed:
            continue
        if key == "laterals":
            remedy = "write it after the parentheses, or (SELECT * FROM … LATERAL VIEW …)"
            summary = "LATERAL VIEW is not allowed inside the parentheses of a join"
            raise SqlDiagnostic(summary, remedy, first_offset(node), condition=_SYNTAX)
        raise _refused(key, node, "write it as Spark SQL, without this clause")


def _check_lateral(lateral: Any) -> None:
    _check(lateral)
    inner = lateral.this
    is_query = isinstance(inner, exp.Subquery) and _is_query(inner) and not lateral.args.get("view")
    if not (is_query or isinstance(inner, exp.Func)):
        remedy = "write LATERAL (SELECT …), or LATERAL with a function such as explode(…)"
        summary = "LATERAL takes a query in parentheses or a function"
        condition = "INVALID_SQL_SYNTAX.LATERAL_WITHOUT_SUBQUERY_OR_TABLE_VALUED_FUNC"
        raise SqlDiagnostic(summary, remedy, first_offset(lateral), condition=condition)


def _refused(what: str, node: Any, remedy: str) -> SqlDiagnostic:
    words = _WORDS.get(what, what).upper().replace("_", " ")
    return SqlDiagnostic(f"this part is not understood: {words}", remedy, first_offset(node), condition=_SYNTAX)
