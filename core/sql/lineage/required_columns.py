"""The columns that a statement's tables must have so that all names in the statement can be resolved.

The columns are collected from the tree while a statement is read, so that a first plan can rule out missing columns
without tracing every statement. If the tables have these columns, `lineage_of` reports no missing column; the reverse
does not hold. For less common syntax, the required columns are unknown.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

from core.model.names import TableName
from core.sql.parsing.from_clause import is_group, join_words
from core.sql.parsing.function_names import LITERAL_FUNCTIONS, plain_function_name
from core.sql.parsing.star_expansion import name_parts
from core.sql.parsing.stream_clauses import StreamClauses
from core.sql.parsing.table_names import NamedRead
from core.sql.statement import RequiredColumns
from core.sql.streaming.aggregation import TIME_WINDOWS

_SKIPPED = ("with_", "from_", "joins", "hint", "expressions")
"""Parts of a SELECT that are read separately, or that name no column."""
_AFTER_OUTPUTS = ("group", "having", "qualify", "order")
"""Clauses that may refer to the outputs of the SELECT to which they belong."""
_AT_THE_END = ("order", "sort", "cluster", "distribute", "pivots", "sample", "joins")
_LEAVES = frozenset((exp.Identifier, exp.Literal, exp.Star, exp.Var, exp.Boolean, exp.Null, exp.DataType))
_UNTRACED = (exp.Query, exp.Lambda, exp.Lateral, exp.Values, exp.Pivot, exp.Aliases)


class _Untraced(Exception):
    """Raised for syntax whose required columns only a full lineage analysis can determine."""


@dataclass(frozen=True, slots=True)
class _Source:
    """A source in FROM: the columns that it is certain to have, and the tables whose columns it passes on."""

    names: frozenset[str] = frozenset()
    tables: tuple[TableName, ...] = ()


_Sources = dict[str, _Source]


def required_columns(query: Any) -> RequiredColumns | None:
    """Return the columns that a query requires of its tables; None if only the full lineage can determine them.

    The table names in the query must have been resolved.
    """
    found = _Requirements()
    try:
        found.query(query, {})
    except (_Untraced, RecursionError):
        return None
    return tuple((tables, tuple(sorted(names))) for tables, names in sorted(found.names.items()))


@dataclass(slots=True)
class _Requirements:
    names: dict[tuple[TableName, ...], set[str]] = field(default_factory=dict)
    """Required columns by tables: at least one of the tables must have each of the columns."""

    def query(self, query: Any, ctes: Mapping[str, _Source]) -> _Source:
        with_ = query.args.get("with_")
        if with_ is not None:
            inner = dict(ctes)
            for cte in with_.expressions:
                _refuse_if(cte.args["alias"].args.get("columns"))
                inner[cte.alias] = self.query(cte.this, inner)
            ctes = inner
        if isinstance(query, exp.Select):
            return self._select(query, ctes)
        _refuse_if(any(query.args.get(key) for key in _AT_THE_END))
        if isinstance(query, exp.Subquery):
            return self.query(query.this, ctes)
        _refuse_if(not isinstance(query, exp.SetOperation))
        sides: list[Any] = []
        node = query
        while isinstance(node, exp.SetOperation) and (node is query or not node.args.get("with_")):
            _refuse_if(node.args.get("by_name") or any(node.args.get(key) for key in _AT_THE_END))
            sides.append(node.expression)
            node = node.this
        first = self.query(node, ctes)
        for side in reversed(sides):
            self.query(side, ctes)
        return first

    def _select(self, select: Any, ctes: Mapping[str, _Source]) -> _Source:
        sources: _Sources = {}
        from_ = select.args.get("from_")
        if from_ is not None:
            sources[from_.this.alias] = self._source(from_.this, ctes)
        for join in select.args.get("joins") or []:
            self._join(join, sources, ctes)
        for key, value in select.args.items():
            if key not in _SKIPPED and key not in _AFTER_OUTPUTS:
                self._expressions(value, sources, ())
        named = set(_time_windows(select))
        names: set[str] = set()
        tables: list[TableName] = []
        for each in select.expressions:
            inner = each.unalias() if isinstance(each, exp.Alias) else each
            if isinstance(inner, exp.Star) or (isinstance(inner, exp.Column) and isinstance(inner.this, exp.Star)):
                for source in _starred(inner, sources):
                    names |= source.names
                    tables += source.tables
                continue
            self._expressions(inner, sources, named)
            if isinstance(each, exp.Alias):
                named.add(each.alias.lower())
            if isinstance(each, (exp.Alias, exp.Column, exp.Dot)):
                names.add(each.alias_or_name.lower())
        for key in _AFTER_OUTPUTS:
            self._expressions(select.args.get(key), sources, named)
        return _Source(frozenset(names), tuple(dict.fromkeys(tables)))

    def _source(self, source: Any, ctes: Mapping[str, _Source]) -> _Source:
        alias = source.args.get("alias")
        _refuse_if(
            is_group(source)
            or any(source.args.get(key) for key in ("pivots", "joins"))
            or (alias is not None and alias.args.get("columns"))
        )
        entry: NamedRead | None = source.meta.get("entry")
        mark: StreamClauses | None = source.meta.get("mark") or (entry.mark if entry is not None else None)
        if entry is not None:
            _refuse_if(entry.parts > 1)
            found = _Source(tables=(TableName(entry.name.lower()),))
        elif "cte" in source.meta:
            found = ctes[source.meta["cte"]]
        else:
            _refuse_if(not isinstance(source, exp.Subquery))
            found = self.query(source, ctes)
        if mark is not None and mark.watermark is not None:
            name = mark.watermark.name
            _refuse_if(mark.watermark.text != name or not name.isidentifier())
            self._require(name.lower(), (found,))
        return found

    def _join(self, join: Any, sources: _Sources, ctes: Mapping[str, _Source]) -> None:
        words = join_words(join)
        _refuse_if("NATURAL" in words or "SEMI" in words or "ANTI" in words or join.args.get("pivots"))
        left = tuple(sources.values())
        right = sources[join.this.alias] = self._source(join.this, ctes)
        for each in join.args.get("using") or []:
            _refuse_if(not isinstance(each, exp.Identifier))
            for side in (left, (right,)):
                self._require(each.name.lower(), side)
        self._expressions(join.args.get("on"), sources, ())

    def _expressions(self, given: Any, sources: _Sources, named: Collection[str]) -> None:
        """Record the columns below a node as required, except those in `named`, such as output aliases."""
        waiting = list(given) if isinstance(given, list) else [given]
        while waiting:
            node = waiting.pop()
            kind = node.__class__
            if isinstance(node, exp.Column):
                if isinstance(node.this, exp.Star):
                    _starred(node, sources)
                else:
                    self._column(node, sources, named)
            elif isinstance(node, _UNTRACED):
                raise _Untraced
            elif kind not in _LEAVES and isinstance(node, exp.Expression):
                waiting.extend(node.iter_expressions())

    def _column(self, column: Any, sources: _Sources, named: Collection[str]) -> None:
        parts = name_parts(column) if column.args.get("table") is not None else [column.this]
        first = str(parts[0].name).lower()
        if len(parts) > 1 and first in sources:
            self._require(parts[1].name.lower(), (sources[first],))
        elif not (first in named or (len(parts) == 1 and first in LITERAL_FUNCTIONS)):
            self._require(first, tuple(sources.values()))

    def _require(self, name: str, sources: tuple[_Source, ...]) -> None:
        for source in sources:
            if name in source.names:
                return
        tables = sources[0].tables if len(sources) == 1 else tuple(sorted({t for s in sources for t in s.tables}))
        _refuse_if(not tables)
        self.names.setdefault(tables, set()).add(name)


def _refuse_if(untraced: object) -> None:
    if untraced:
        raise _Untraced


def _starred(star: Any, sources: _Sources) -> Iterator[_Source]:
    if isinstance(star, exp.Star):
        _refuse_if(any(star.args.values()))
        return iter(sources.values())
    parts = [part.name for part in name_parts(star)[:-1]]
    _refuse_if(len(parts) != 1 or parts[0] not in sources or any(star.this.args.values()))
    return iter((sources[parts[0]],))


def _time_windows(select: Any) -> Iterator[str]:
    for node in (select.args.get("group"), *select.expressions):
        for call in node.find_all(exp.Anonymous) if node is not None else ():
            name = plain_function_name(str(call.this))
            if name in TIME_WINDOWS:
                yield name
