"""Resolves the names in an expression to columns of its query's sources.

Spark tries, in this order (4.2, analysis/ColumnResolutionHelper.scala): a column of the sources, an earlier alias of
the same SELECT, and a column of the outer query. A name before a dot is a source or, if there is no such source, a
struct. A name that cannot be resolved is recorded with the reason.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

from core.model.names import TableName
from core.sql.lineage.model import ColumnComparison, ColumnReference, InputKind, UnresolvedName
from core.sql.lineage.relations import (
    JoinSide,
    Relation,
    RelationColumn,
    add_origins,
    all_origins,
    copied_column,
    excepted_column,
    field_of,
    overlap,
    rows_of,
    without_fields,
)
from core.sql.parsing.canonical_text import and_terms, sql_of
from core.sql.parsing.from_clause import first_offset
from core.sql.parsing.function_names import AGGREGATES, LITERAL_FUNCTIONS
from core.sql.parsing.parser import bare_call
from core.sql.parsing.star_expansion import is_star, left_out, name_parts, qualifiers_of
from core.sql.statement import Column
from core.sql.tokens.data_types import element_type, fields_of
from core.text.sentence import Sentence

TIME_WINDOWS = ("window", "session_window")
WINDOW_TYPE = "struct<start:timestamp,end:timestamp>"
_UNIT_FIRST = frozenset(("dateadd", "date_add", "datediff", "date_diff", "timestampadd", "timestampdiff"))

ColumnsOf = Callable[[TableName], Sequence[Column] | None]
"""Function that returns the columns in a table's DDL; None for a table without a DDL."""


@dataclass(slots=True)
class ResolutionScope:
    """The names to which an expression can refer."""

    sides: tuple[JoinSide, ...]
    """The sources of the SELECT itself, then those of each enclosing query, innermost first."""
    within: str
    """The output column or clause that contains the expression; reported with names that cannot be resolved."""
    ctes: Mapping[str, Relation] = field(default_factory=dict)
    windows: Mapping[str, Any] = field(default_factory=dict)
    """Definitions in the WINDOW clause, by name."""


@dataclass(slots=True)
class ColumnResolver:
    """Resolves the column names of one statement, and collects column references and unresolved names."""

    columns_of: ColumnsOf
    query: Callable[[Any, Mapping[str, Relation], tuple[JoinSide, ...]], Relation]
    """Function that traces a query that is nested in an expression."""
    unresolved: dict[UnresolvedName, None] = field(default_factory=dict)
    references: list[ColumnReference] = field(default_factory=list)
    comparisons: dict[ColumnComparison, None] = field(default_factory=dict)
    _paths: dict[int, RelationColumn | None] = field(default_factory=dict)
    """The columns at the paths of the statement's tree, by the id of their nodes."""

    def record_unresolved(
        self, name: str, reason: Sentence, within: str, offset: int, lacking: Iterable[Relation] = ()
    ) -> None:
        """Record an unresolved name.

        `lacking` are the relations that were searched; it is empty unless all of their columns are known.
        """
        sources = list(lacking)
        # A column named by Spark, such as `count(1)`, may exist under a name that only Spark knows.
        sure = name.replace(".", "_").isidentifier() and name.lower() not in LITERAL_FUNCTIONS
        tables = dict.fromkeys(each.shown.partition("#")[0] for each in sources) if sure else ()
        known = {item.name for each in sources for item in each.items} if sure else ()
        self.unresolved[
            UnresolvedName(name, reason, within, offset, lacking=tuple(tables), known=tuple(sorted(known)))
        ] = None

    def resolve_expression(self, node: Any, scope: ResolutionScope, name: str = "", label: str = "") -> RelationColumn:
        """Return the column that an expression computes, with the origins of all names in the expression.

        In the column's SQL, names are qualified by tables or WITH queries instead of aliases, for display.
        """
        inner = node.unalias() if isinstance(node, exp.Alias) else node
        if self._is_path(inner):
            path = self._path_item(inner, scope)
            found = _renamed(path, name) if path is not None else RelationColumn(name)
            for index in _indexes(inner):
                self._expression(index, scope, found)
        else:
            found = RelationColumn(name, fields=self._struct_fields(inner, scope))
            self._expression(inner, scope, found)
            if isinstance(inner, exp.Anonymous) and str(inner.this) in TIME_WINDOWS:
                found.kind = WINDOW_TYPE
        found.expression, found.label, found.offset = sql_of(inner), label, first_offset(node, 0)
        return found

    def record_comparisons(self, condition: Any) -> None:
        """Record the comparisons of two columns in a condition that has been resolved."""
        for term in and_terms(condition):
            match term:
                case exp.EQ() | exp.NullSafeEQ():
                    self.record_comparison(self._side(term.this), self._side(term.expression), equal=True)
                case exp.LT() | exp.LTE():
                    self.record_comparison(self._side(term.this), self._side(term.expression), equal=False)
                case exp.GT() | exp.GTE():
                    self.record_comparison(self._side(term.expression), self._side(term.this), equal=False)
                case exp.Between():
                    middle = self._side(term.this)
                    self.record_comparison(self._side(term.args["low"]), middle, equal=False)
                    self.record_comparison(middle, self._side(term.args["high"]), equal=False)

    def record_comparison(self, one: RelationColumn | None, other: RelationColumn | None, *, equal: bool) -> None:
        """Record a comparison, unless a side is no unchanged column of a table."""
        first, second = copied_column(one), copied_column(other)
        if first is not None and second is not None and first != second:
            self.comparisons[ColumnComparison(first, second, equal)] = None

    def _side(self, node: Any) -> RelationColumn | None:
        """Return the column that is a side of a comparison, even if its type is changed by CAST."""
        node = node.unnest()
        return self._paths.get(id(node.this.unnest() if isinstance(node, exp.Cast) else node))

    def _struct_fields(self, node: Any, scope: ResolutionScope) -> dict[str, RelationColumn]:
        if isinstance(node, exp.Struct):
            pairs = [
                (each.this.name, each.expression) if isinstance(each, exp.PropertyEQ) else (each.alias_or_name, each)
                for each in node.expressions
            ]
        elif isinstance(node, exp.Anonymous) and str(node.this) == "named_struct":
            names, values = node.expressions[::2], node.expressions[1::2]
            pairs = [(key.name, value) for key, value in zip(names, values, strict=False)]
        else:
            return {}
        if any(not name or value.is_star for name, value in pairs):
            return {}
        # A copy, because resolving rewrites names in the tree, and the whole expression is resolved again.
        return {name.lower(): self.resolve_expression(value.copy(), scope, name.lower()) for name, value in pairs}

    def _expression(self, node: Any, scope: ResolutionScope, found: RelationColumn) -> None:
        """Add the origins of all names in an expression to `found`.

        This is a loop, not a recursion, because chains of AND or + may be long.
        """
        waiting: list[tuple[Any, InputKind]] = [(node, InputKind.VALUE)]
        while waiting:
            each, kind = waiting.pop()
            if isinstance(each, exp.Query):
                self._subquery(each, scope, found, kind)
            elif is_star(each):
                self._star(each, scope, found, kind)
            elif self._is_path(each):
                item = self._paths[id(each)] = self._path_item(each, scope)
                if item is not None:
                    _use(found, item, kind)
                waiting += [(index, kind) for index in _indexes(each)]
            else:
                waiting += self._children(each, kind, scope, found)

    def _children(
        self, node: Any, kind: InputKind, scope: ResolutionScope, found: RelationColumn
    ) -> list[tuple[Any, InputKind]]:
        """Return a node's children, each with its kind of input, in reverse order because the last is visited first."""
        if _counts_rows(node):
            _add(found, rows_of(scope.sides[0].tables()), kind)
        if isinstance(node, exp.Filter):
            return [(node.expression, InputKind.CONDITION), (node.this, kind)]
        if isinstance(node, exp.Window):
            named = scope.windows.get(str(node.alias).lower())
            # A copy per use of a named window, because resolving rewrites names in the tree.
            over = [*_over(node), *(each.copy() for each in (_over(named) if named is not None else ()))]
            return [*((each, InputKind.CONDITION) for each in over), (node.this, kind)]
        if isinstance(node, exp.Exists) and isinstance(node.this, exp.Query):
            return [(node.this, InputKind.CONDITION)]
        if isinstance(node, exp.Dot):
            return [(node.expression, kind)] if isinstance(node.expression, exp.Func) else [(node.this, kind)]
        if isinstance(node, exp.Anonymous) and _has_unit_first(node):
            return [(each, kind) for each in reversed(node.expressions[1:])]
        if isinstance(node, exp.PropertyEQ):
            return [(node.expression, kind)]
        return [(each, kind) for each in reversed(list(node.iter_expressions()))]

    def _subquery(self, query: Any, scope: ResolutionScope, found: RelationColumn, kind: InputKind) -> None:
        relation = self.query(query, scope.ctes, scope.sides)
        for item in relation.items:
            _use(found, item, kind)
        for condition in relation.row_conditions:
            _use(found, condition.item, InputKind.CONDITION)
        _add(found, rows_of(relation.tables), InputKind.CONDITION)

    def _star(self, star: Any, scope: ResolutionScope, found: RelationColumn, kind: InputKind) -> None:
        parent = star.parent
        if isinstance(parent, exp.Anonymous) and str(parent.this) in AGGREGATES:
            _add(found, rows_of(scope.sides[0].tables()), kind)
            return
        for _, item in self.starred(star, scope):
            _use(found, item, kind)

    def starred(self, star: Any, scope: ResolutionScope) -> list[tuple[str, RelationColumn]]:
        """Return the columns for which `*`, `t.*` or `s.*` stands, without those in EXCEPT.

        Each column is paired with its source's alias; a struct field is paired with `""`.
        """
        side, within = scope.sides[0], scope.within
        parts = list(qualifiers_of(star))
        found: list[tuple[str, RelationColumn]]
        missing: Sentence | None = None
        if not parts:
            found, missing = side.visible, side.incomplete_because()
        elif len(parts) == 1 and parts[0].name in side.relations:
            relation = side.relations[parts[0].name]
            found, missing = [(parts[0].name, item) for item in side.starred(relation)], relation.incomplete_because
        else:
            item = self._resolve(parts, scope)
            names = [name for name, _ in _struct(item)] if item is not None else []
            if item is not None and not names:
                missing = Sentence("it is not a struct with known fields")
            found = [("", inner) for name in names if item is not None and (inner := field_of(item, [name]))]
        if missing is not None:
            self.record_unresolved(
                ".".join([*self._written(parts, scope), "*"]), missing, within, first_offset(star, 0)
            )
        return self._without(star, found, scope, missing=missing is not None)

    def _without(
        self, star: Any, found: list[tuple[str, RelationColumn]], scope: ResolutionScope, *, missing: bool
    ) -> list[tuple[str, RelationColumn]]:
        side, qualifiers = scope.sides[0], qualifiers_of(star)
        # Fields of `s.*` have no source: a name before a dot is a field.
        of_struct = len(qualifiers) > 1 or any(each.name not in side.relations for each in qualifiers)
        sources = {} if of_struct else side.relations
        gone: dict[int, list[tuple[str, ...]]] = {}
        for each in left_out(star, sources):
            item, fields, reason = excepted_column(each, found, sources)
            paths = gone.setdefault(id(item), [])
            if item is not None and any(overlap(fields, path) for path in paths):
                reason = Sentence("EXCEPT names it twice")
            paths.append(fields)
            if reason is not None and not missing:
                source = [sources[each.alias].written] if each.alias else []
                self.record_unresolved(
                    ".".join((*source, each.column, *each.fields)), reason, scope.within, each.offset
                )
            elif item is not None:
                self.record_reference(item, each.offset)
        kept = [(alias, item, gone.get(id(item), [])) for alias, item in found]
        return [
            (alias, without_fields(item, paths) if paths else item) for alias, item, paths in kept if () not in paths
        ]

    def _is_path(self, node: Any) -> bool:
        while isinstance(node, (exp.Dot, exp.Bracket)):
            if isinstance(node, exp.Dot) and not isinstance(node.expression, exp.Identifier):
                return False
            node = node.this
        return isinstance(node, exp.Column) and not isinstance(node.this, exp.Star)

    def _path_item(self, node: Any, scope: ResolutionScope) -> RelationColumn | None:
        """Return the column at a path such as `a.b.c`, `a[0].b` or `m['k']`; None if it cannot be resolved."""
        names: list[Any] = []
        while isinstance(node, (exp.Dot, exp.Bracket)):
            names.append(node.expression if isinstance(node, exp.Dot) else node.expressions[0])
            node = node.this
        return self._resolve([*name_parts(node), *reversed(names)], scope, node)

    def _resolve(self, parts: list[Any], scope: ResolutionScope, column: Any = None) -> RelationColumn | None:
        """Resolve a dotted name to a column, or record it as unresolved.

        Returns None for an unresolved name, and for a function called without brackets, such as `current_date`.
        """
        bare = parts[0].name.lower()
        for depth, side in enumerate(scope.sides):
            relation = side.relations.get(bare) if len(parts) > 1 else None
            if relation is not None:
                found, rest = relation.named(parts[1].name.lower()), parts[2:]
                if not found and relation.incomplete_because is None:
                    # Spark falls back to a struct with the source's name.
                    found, rest = [item for _, item in side.by_unqualified_name(relation.written)], parts[1:]
                missing = relation.incomplete_because
            else:
                found, rest = [item for _, item in side.by_unqualified_name(bare)], parts[1:]
                if not found and bare in side.named:
                    found = [side.named[bare]]
                missing = side.incomplete_because()
            if len({id(item) for item in found}) > 1:
                self._miss(parts, Sentence(f"it is ambiguous: {len(found)} sources have it"), scope)
                return None
            if found:
                item = self._found(found[0], parts, rest, scope)
                if item is not None and column is not None:
                    _show(column, side, outer=depth > 0)
                return item
            if missing is not None or relation is not None:
                if column is not None:
                    _show(column, side, outer=depth > 0)
                lacking = [relation] if relation is not None and missing is None else []
                why = missing or Sentence(f"{relation.shown if relation else ''} has no such column")
                self._miss(parts, why, scope, lacking)
                return None
        if column is not None and len(parts) == 1 and (made := bare_call(column)) is not None:
            column.replace(made)
            return None
        # More than one qualifier may be a catalog and a database.
        around = (each for side in scope.sides for each in side.relations.values()) if len(parts) <= 2 else ()
        self._miss(parts, Sentence("no source has such a column"), scope, around)
        return None

    def record_reference(self, item: RelationColumn, offset: int) -> None:
        """Record a reference to a table's column; columns that the query computes are ignored."""
        if item.plain and not item.label:
            self.references += [ColumnReference(origin, offset) for origin in item.values]

    def _found(
        self, item: RelationColumn, parts: list[Any], rest: list[Any], scope: ResolutionScope
    ) -> RelationColumn | None:
        self.record_reference(item, offset_of(parts[len(parts) - len(rest) - 1]))
        for each in rest:
            if isinstance(each, exp.Identifier) or (isinstance(each, exp.Literal) and each.is_string):
                inner = field_of(item, [each.name.lower()])
                if inner is None:
                    self._miss(parts, Sentence(f"it has no field {each.name}"), scope)
                    return None
                item = inner
            else:
                item = _element(item)
        return item

    def _miss(
        self, parts: Sequence[Any], reason: Sentence, scope: ResolutionScope, lacking: Iterable[Relation] = ()
    ) -> None:
        self.record_unresolved(
            ".".join(self._written(parts, scope)), reason, scope.within, offset_of(parts[-1]), lacking
        )

    def _written(self, parts: Sequence[Any], scope: ResolutionScope) -> list[str]:
        names = [part.name for part in parts]
        for side in scope.sides:
            if names and names[0] in side.relations:
                names[0] = side.relations[names[0]].written
                break
        return names


def offset_of(part: Any) -> int:
    """Return the offset of a name in the SQL; 0 if it is unknown."""
    return int(part.meta.get("start", 0))


def _renamed(path: RelationColumn, name: str) -> RelationColumn:
    found = RelationColumn(name or path.name, dict(path.values), dict(path.conditions), uses=(path,), kind=path.kind)
    found.plain, found.fields = path.plain, path.fields
    return found


def _over(window: Any) -> list[Any]:
    order = window.args.get("order")
    return [*(window.args.get("partition_by") or []), *([order] if order is not None else [])]


def _use(found: RelationColumn, used: RelationColumn, kind: InputKind) -> None:
    found.uses = (*found.uses, used)
    if kind is InputKind.VALUE:
        add_origins(found.values, used.values)
        add_origins(found.conditions, used.conditions)
    else:
        add_origins(found.conditions, all_origins(used))


def _add(found: RelationColumn, origins: Any, kind: InputKind) -> None:
    add_origins(found.values if kind is InputKind.VALUE else found.conditions, origins)


def _counts_rows(node: Any) -> bool:
    """True if a call depends on the rows but on no column, as `count(1)` and `row_number() OVER …` do."""
    if isinstance(node, exp.Window):
        return node.this.find(exp.Column, exp.Star) is None
    if isinstance(node.parent, exp.WithinGroup):
        return False
    aggregates = isinstance(node, exp.AggFunc) or (isinstance(node, exp.Anonymous) and str(node.this) in AGGREGATES)
    return aggregates and node.find(exp.Column, exp.Star) is None


def _show(column: Any, side: JoinSide, *, outer: bool) -> None:
    """Qualify a column by its table or WITH query for display; leave it unqualified if there is only one source."""
    parts = name_parts(column)
    first, several = parts[0].name, outer or len(side.relations) > 1
    if len(parts) > 1 and first in side.relations:
        parts = parts[1:] if not several else [exp.to_identifier(side.relations[first].shown), *parts[1:]]
    elif several and len(parts) < 4:
        alias = next((alias for alias, _ in side.by_unqualified_name(first.lower()) if alias), "")
        parts = [exp.to_identifier(side.relations[alias].shown), *parts] if alias else parts
    for key, part in zip(("this", "table", "db", "catalog"), [*reversed(parts), None, None, None], strict=False):
        column.set(key, part)


def _indexes(node: Any) -> list[Any]:
    found: list[Any] = []
    while isinstance(node, (exp.Dot, exp.Bracket)):
        if isinstance(node, exp.Bracket):
            found += node.expressions
        node = node.this
    return found


def _element(item: RelationColumn) -> RelationColumn:
    return RelationColumn(
        item.name, item.values, item.conditions, uses=(item,), kind=element_type(item.kind), plain=item.plain
    )


def _struct(item: RelationColumn) -> list[tuple[str, object]]:
    return list(item.fields.items()) if item.fields else list(fields_of(item.kind))


def _has_unit_first(node: Any) -> bool:
    """True if the first argument is a time unit, as in `dateadd(DAY, 1, ts)`; sqlglot parses it as a column."""
    return str(node.this) in _UNIT_FIRST and len(node.expressions) == 3 and isinstance(node.expressions[0], exp.Column)
