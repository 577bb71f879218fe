"""Traces a statement's columns: the table columns on which each output depends, and the conditions on its rows.

Names are resolved by Spark's rules; `core.sql.parsing.table_names` resolves CTEs and aliases. sqlglot's own lineage is
not used: it covers only the SELECT list, ignores conditions and lateral views, and treats unknown or ambiguous names as
leaves.
"""

from typing import Any

from sqlglot import exp

from core.model.names import whole_number
from core.sql.lineage.column_resolution import (
    TIME_WINDOWS,
    ColumnResolver,
    ColumnsOf,
    ResolutionScope,
)
from core.sql.lineage.from_sources import (
    Ctes,
    FromSources,
    Sides,
    add_explode_condition,
    add_row_condition,
    lower_case_names,
)
from core.sql.lineage.generators_and_pivots import generated_relation, is_generator
from core.sql.lineage.model import (
    ColumnOrigin,
    InputKind,
    LineageCondition,
    LineageInput,
    LineageOutput,
    StatementLineage,
    UnresolvedName,
)
from core.sql.lineage.relations import (
    JoinSide,
    Relation,
    RelationColumn,
    RelationCondition,
    copied_column,
    inputs_of,
    labelled_column,
    made_column,
    renamed_relation,
    side_of,
    star_output_column,
    united_column,
)
from core.sql.parsing.canonical_text import sql_of
from core.sql.parsing.from_clause import first_offset
from core.sql.parsing.parser import parse_query
from core.sql.parsing.star_expansion import is_star
from core.sql.parsing.stream_clauses import extract_stream_clauses
from core.sql.parsing.table_names import resolve_table_names
from core.sql.statement import ParsedStatement
from core.sql.streaming.aggregation import aggregates_in
from core.sql.tokens.lexer import SqlDiagnostic, open_sql, tokens_of
from core.text.sentence import Sentence


def lineage_of(parsed: ParsedStatement, columns_of: ColumnsOf) -> StatementLineage:
    """Return the lineage of a parsed statement.

    If the statement cannot be traced, all of its output columns are unresolved. Each reference to a WITH query costs
    time linear in the length of the SQL. Columns of a job in Python are unresolved as well.
    """
    if parsed.in_python:
        unknown = UnresolvedName("*", Sentence("a job in Python computes it"), "*", 0)
        return StatementLineage((), (), (unknown,), ())
    try:
        source = open_sql(parsed.select, "")
        marks = extract_stream_clauses(tokens_of(source))
        query = parse_query(marks.tokens, source.text, bare_calls=False)
        lower_case_names(query)
        resolve_table_names(query, marks)
        changes = frozenset(read.start for read in parsed.reads if read.takes_changes)
        reading = _StatementTracer(columns_of, parsed.select, stateful=parsed.stateful, changes=changes)
        relation = reading.query(query, {}, ())
    except (SqlDiagnostic, RecursionError) as failure:
        reason = failure.summary if isinstance(failure, SqlDiagnostic) else "the SQL is nested too deeply to be traced"
        missed = tuple(UnresolvedName(column.name, Sentence(reason), column.name, 0) for column in parsed.columns)
        return StatementLineage((), (), missed, ())
    walk, places = reading.walk, reading.sources.places
    rows = [
        LineageCondition("FROM", table, (LineageInput(ColumnOrigin(table), InputKind.CONDITION, table),), places[table])
        for table in relation.tables
    ]
    return StatementLineage(
        tuple(
            LineageOutput(
                item.name, item.expression or item.name, inputs_of(item), item.offset, copies=copied_column(item)
            )
            for item in relation.items
        ),
        (*(condition.value() for condition in relation.row_conditions), *rows),
        tuple(sorted(walk.unresolved, key=lambda each: (each.offset, each.within, each.name))),
        tuple(sorted(set(walk.references), key=lambda each: (each.offset, each.origin))),
        tuple(sorted(walk.comparisons)),
    )


class _StatementTracer:
    def __init__(self, columns_of: ColumnsOf, text: str, *, stateful: bool, changes: frozenset[int]) -> None:
        self.walk = ColumnResolver(columns_of, self.query)
        self.sources = FromSources(self.walk, self.query, text, stateful=stateful, changes=changes)

    def query(self, query: Any, ctes: Ctes, outer: Sides, label: str = "") -> Relation:
        """Return the relation that a query yields; `label` is the query's name in lineage steps."""
        with_ = query.args.get("with_")
        if with_ is not None:
            inner = dict(ctes)
            for cte in with_.expressions:
                relation = self.query(cte.this, inner, outer, cte.meta["written"])
                relation.shown = cte.meta["written"]
                inner[cte.alias] = renamed_relation(relation, cte.args["alias"], relation.shown)
                cte.args["alias"].this.set("this", cte.meta["written"])
            ctes = inner
        if isinstance(query, exp.Subquery):
            found = self.query(query.this, ctes, outer, label)
        elif isinstance(query, exp.SetOperation):
            found = self._set_operation(query, ctes, outer, label)
        elif isinstance(query, exp.Values):
            found = self._values(query, ctes, outer)
        else:
            found = self._select(query, ctes, outer, label)
        return found

    # Queries.

    def _select(self, select: Any, ctes: Ctes, outer: Sides, label: str) -> Relation:
        from_ = select.args.get("from_")
        side = self.sources.read(from_.this, ctes, outer) if from_ is not None else JoinSide()
        for join in select.args.get("joins") or []:
            side = self.sources.join(side, join, ctes, outer)
        for lateral in select.args.get("laterals") or []:
            side = self.sources.lateral(side, lateral, ctes, outer)
        windows = {str(each.this.name).lower(): each for each in select.args.get("windows") or []}
        scope = ResolutionScope((side, *outer), "", ctes, windows)
        conditions = side.row_conditions()
        add_row_condition("WHERE", _inner(select, "where"), scope, self.walk, conditions)
        self._name_windows(select, scope)
        items, missing = self._outputs(select, scope, label, conditions)
        self._group(select, scope, items, conditions)
        for clause, key in (("HAVING", "having"), ("QUALIFY", "qualify"), ("ORDER BY", "order")):
            add_row_condition(clause, _inner(select, key), scope, self.walk, conditions)
        if select.args.get("distinct") is not None:
            conditions[
                RelationCondition("DISTINCT", made_column("", items, ", ".join(item.name for item in items)))
            ] = None
        return Relation(items, conditions, side.tables(), missing)

    def _name_windows(self, select: Any, scope: ResolutionScope) -> None:
        """Make the struct `window` or `session_window` available in a SELECT that groups by such a time window.

        See analysis/ResolveTimeWindows.scala in Spark 4.2.
        """
        for node in (select.args.get("group"), *select.expressions):
            for call in node.find_all(exp.Anonymous) if node is not None else ():
                name = str(call.this)
                if name in TIME_WINDOWS and name not in scope.sides[0].named:
                    scope.within = "GROUP BY"
                    scope.sides[0].named[name] = self.walk.resolve_expression(call.copy(), scope, name, name)

    def _outputs(
        self, select: Any, scope: ResolutionScope, label: str, conditions: dict[RelationCondition, None]
    ) -> tuple[list[RelationColumn], Sentence | None]:
        side, items = scope.sides[0], []
        missing: Sentence | None = None
        for node in select.expressions:
            inner = node.unalias() if isinstance(node, exp.Alias) else node
            if is_star(inner):
                scope.within = "*"
                before = len(self.walk.unresolved)
                items += [star_output_column(item, label) for _, item in self.walk.starred(inner, scope)]
                missing = missing or (side.incomplete_because() if len(self.walk.unresolved) > before else None)
                continue
            call = inner.this if isinstance(inner, exp.Aliases) else inner
            if is_generator(call):
                names = [each.name.lower() for each in inner.args.get("expressions") or []]
                names = [node.alias.lower()] if isinstance(node, exp.Alias) else names
                names = names if isinstance(inner, exp.Aliases) or isinstance(node, exp.Alias) else []
                scope.within = ", ".join(names) or str(call.this)
                relation = generated_relation(call, scope, self.walk, tuple(names))
                add_explode_condition(call, relation, "SELECT", conditions)
                items += [labelled_column(item, label) for item in relation.items]
                continue
            name = (node.alias_or_name or sql_of(inner)).lower()
            scope.within = name
            items.append(self.walk.resolve_expression(node, scope, name, f"{label}.{name}" if label else name))
            if isinstance(node, exp.Alias):
                side.named.setdefault(name, items[-1])
        return items, missing

    def _group(
        self,
        select: Any,
        scope: ResolutionScope,
        items: list[RelationColumn],
        conditions: dict[RelationCondition, None],
    ) -> None:
        group = select.args.get("group")
        if group is None:
            return
        scope.within = "GROUP BY"
        if group.args.get("all") is not None and not group.expressions:
            keys = zip(items, select.expressions, strict=False)
            found = [item for item, node in keys if not aggregates_in(node)]
            conditions[
                RelationCondition("GROUP BY", made_column("", found, ", ".join(item.name for item in found)))
            ] = None
            return
        waiting = [*group.expressions]
        for key in ("grouping_sets", "cube", "rollup"):
            waiting += group.args.get(key) or []
        while waiting:
            node = waiting.pop(0)
            if isinstance(node, (exp.GroupingSets, exp.Cube, exp.Rollup, exp.Tuple)):
                waiting = [*node.expressions, *waiting]
            elif isinstance(node, exp.Literal) and 0 < (whole_number(node.name) or 0) <= len(items):
                item = items[int(node.name) - 1]
                conditions[RelationCondition("GROUP BY", made_column("", [item], item.expression))] = None
            else:
                add_row_condition("GROUP BY", node, scope, self.walk, conditions)

    def _set_operation(self, query: Any, ctes: Ctes, outer: Sides, label: str) -> Relation:
        sides: list[Any] = []
        node = query
        while isinstance(node, exp.SetOperation) and (node is query or not node.args.get("with_")):
            sides.append(node)
            node = node.this
        found = self.query(node, ctes, outer, label)
        for each in reversed(sides):
            found = self._combined(each, found, self.query(each.expression, ctes, outer, label))
        order = _inner(query, "order")
        if order is not None:
            scope = ResolutionScope((side_of("", found), *outer), "ORDER BY", ctes)
            add_row_condition("ORDER BY", order, scope, self.walk, found.row_conditions)
        return found

    def _combined(self, query: Any, left: Relation, right: Relation) -> Relation:
        word = type(query).__name__.upper()
        conditions = {**left.row_conditions, **right.row_conditions}
        tables = {**left.tables, **right.tables}
        missing = left.incomplete_because or right.incomplete_because
        pairs = list(zip(left.items, right.items, strict=False))
        if query.args.get("by_name"):
            pairs = [(item, other) for item in left.items for other in right.named(item.name)]
        elif len(left.items) != len(right.items) and not missing:
            reason = Sentence(f"its sides have {len(left.items)} and {len(right.items)} columns")
            self.walk.record_unresolved(word, reason, word, first_offset(query.expression, 0))
        if isinstance(query, exp.Union):
            united = {id(item): united_column(item, other) for item, other in pairs}
            items = [united.get(id(item), item) for item in left.items]
        else:
            items = left.items
            both = made_column("", [*left.items, *right.items], word)
            both.offset = first_offset(query.expression, 0)
            conditions[RelationCondition(word, both)] = None
        if isinstance(query, exp.Union) and query.args.get("distinct"):
            conditions[RelationCondition("UNION", made_column("", items, ", ".join(item.name for item in items)))] = (
                None
            )
        return Relation(items, conditions, tables, missing)

    def _values(self, values: Any, ctes: Ctes, outer: Sides) -> Relation:
        rows = [each.expressions if isinstance(each, exp.Tuple) else [each] for each in values.expressions]
        scope = ResolutionScope((JoinSide(), *outer), "VALUES", ctes)
        columns = [
            [self.walk.resolve_expression(cell, scope) for cell in column] for column in zip(*rows, strict=False)
        ]
        return Relation([made_column(f"col{number + 1}", cells) for number, cells in enumerate(columns)])


def _inner(query: Any, key: str) -> Any:
    clause = query.args.get(key)
    return clause.this if isinstance(clause, (exp.Where, exp.Having, exp.Qualify)) else clause
