"""Resolves the sources in FROM to relations with columns.

A source is a table, WITH query, subquery, join, lateral view or table function.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from sqlglot import exp

from core.model.names import TableName, parse_table_name
from core.sql.lineage.column_resolution import ColumnResolver, ResolutionScope, offset_of
from core.sql.lineage.generators_and_pivots import generated_relation, pivoted_relation
from core.sql.lineage.relations import (
    JoinSide,
    Relation,
    RelationColumn,
    RelationCondition,
    joined_sides,
    labelled_column,
    made_column,
    renamed_relation,
    side_of,
    table_column,
)
from core.sql.parsing.canonical_text import sql_of
from core.sql.parsing.from_clause import first_offset, is_group, join_words
from core.sql.parsing.function_names import plain_function_name
from core.sql.parsing.parser import parse_expression
from core.sql.parsing.stream_clauses import HIDDEN, StreamClauses, WatermarkClause
from core.sql.parsing.table_names import NamedRead
from core.sql.statement import CHANGE_COLUMNS
from core.sql.tokens.lexer import open_sql, tokens_of
from core.text.sentence import Sentence

Ctes = Mapping[str, Relation]
Sides = tuple[JoinSide, ...]
METADATA = (
    "struct<file_path:string,file_name:string,file_size:bigint,file_block_start:bigint,file_block_length:bigint,"
    "file_modification_time:timestamp,row_index:bigint>"
)
"""Type of the hidden column `_metadata` of file sources, which `*` omits (Spark 4.2, "File Metadata Column")."""


class FromSources:
    """Resolves the sources in FROM of one statement to relations."""

    def __init__(
        self,
        walk: ColumnResolver,
        query: Callable[[Any, Ctes, Sides, str], Relation],
        text: str,
        *,
        stateful: bool,
        changes: Collection[int],
    ) -> None:
        """Set up the resolution; `changes` are the offsets of the reads that stream a change feed."""
        self.walk = walk
        self._changes = changes
        self._text = text
        self._query = query
        self._stateful = stateful
        self._columns: dict[str, list[RelationColumn] | None] = {}
        self.places: dict[TableName, int] = {}
        """Offset of the first read of each table."""

    def read(self, root: Any, ctes: Ctes, outer: Sides) -> JoinSide:
        """Resolve a single source, or a group of joined sources, to a join side."""
        if is_group(root):
            side = self.read(root.this, ctes, outer)
            for join in root.this.args["joins"]:
                side = self.join(side, join, ctes, outer)
            return side
        side = side_of(root.alias, self._source(root, ctes, outer))
        _hide_alias(root)
        return side

    def _source(self, source: Any, ctes: Ctes, outer: Sides) -> Relation:
        # The display name of the relation may still change when it is joined.
        written = source.meta.get("written") or (source.name if isinstance(source, exp.Table) else "")
        entry: NamedRead | None = source.meta.get("entry")
        if entry is not None:
            relation = self._table(entry)
        elif "cte" in source.meta:
            kept = ctes[source.meta["cte"]]
            relation = Relation(
                [replace(item) for item in kept.items],
                dict(kept.row_conditions),
                kept.tables,
                kept.incomplete_because,
                kept.shown,
            )
            source.set("this", exp.to_identifier(kept.shown))
        elif isinstance(source, exp.Lateral):
            scope = ResolutionScope(outer, "LATERAL", ctes)
            conditions: dict[RelationCondition, None] = {}
            relation = self._generator(source, scope, conditions)
            relation.row_conditions = conditions
        elif isinstance(source, exp.Table):
            scope = ResolutionScope((JoinSide(), *outer), "FROM", ctes)
            relation = generated_relation(source.this, scope, self.walk, _column_aliases(source))
        else:
            relation = self._query(source, ctes, outer, written)
        relation.shown, relation.written = relation.shown or written or "subquery", written
        relation = self._watermarked(source.meta.get("mark") or (entry.mark if entry else None), source, relation, ctes)
        for pivot in source.args.get("pivots") or []:
            relation = pivoted_relation(pivot, relation, ctes, self.walk)
        return renamed_relation(relation, source.args.get("alias"), written)

    def _table(self, entry: NamedRead) -> Relation:
        table = parse_table_name(entry.name)
        self.places[table] = min(entry.start, self.places.get(table, entry.start))
        if table not in self._columns:
            columns = self.walk.columns_of(table)
            known = [table_column(table, column.name, column.type) for column in columns or ()]
            self._columns[table] = known if columns is not None else None
        items = self._columns[table]
        missing = None if items is not None else Sentence(f"no DDL declares {table}")
        hidden = (table_column(table, "_metadata", METADATA),)
        # Copies, because a table that is read twice has two columns of each name.
        own = [replace(item) for item in items or ()]
        return Relation([*own, *self._feed(entry, own)], {}, {table: None}, missing, table, hidden=hidden)

    def _feed(self, entry: NamedRead, known: Iterable[RelationColumn]) -> list[RelationColumn]:
        if entry.start not in self._changes:
            return []
        names = {item.name for item in known}
        table = parse_table_name(entry.name)
        return [table_column(table, each.name, each.type) for each in CHANGE_COLUMNS if each.name not in names]

    def _watermarked(self, mark: StreamClauses | None, source: Any, relation: Relation, ctes: Ctes) -> Relation:
        """Add the column that `WATERMARK expression AS name` defines to a relation.

        In a stateful statement, also record that this column decides which rows are dropped as late.
        """
        if mark is None or mark.watermark is None:
            return relation
        delay: WatermarkClause = mark.watermark
        tree, name = parse_expression(tokens_of(open_sql(delay.text, "")))
        lower_case_names(tree)
        self._set_offsets(tree, mark.end)
        scope = ResolutionScope((side_of("", relation),), "WATERMARK", ctes)
        item = self.walk.resolve_expression(tree, scope)
        if name:
            relation.items = [
                *relation.items,
                labelled_column(made_column(name, [item], item.expression), relation.shown),
            ]
        item.expression = f"{item.expression} DELAY OF {delay.delay}"
        if self._stateful:
            relation.row_conditions[RelationCondition("WATERMARK", item)] = None
        return relation

    def _set_offsets(self, tree: Any, end: int) -> None:
        """Set the offsets of the names in a WATERMARK clause, which was parsed separately from the statement."""
        before = self._text[:end].lower()
        start = before.rfind("watermark")
        for name in tree.find_all(exp.Identifier):
            name.meta["start"] = max(before.find(name.name, start), start)

    def join(self, left: JoinSide, join: Any, ctes: Ctes, outer: Sides) -> JoinSide:
        right = self.read(join.this, ctes, (left, *outer) if isinstance(join.this, exp.Lateral) else outer)
        kind = join_words(join)
        _number_duplicate_names(left, right)
        using = [each.name.lower() for each in join.args.get("using") or []]
        if "NATURAL" in kind:
            theirs = {item.name for _, item in right.visible}
            using = [item.name for _, item in left.visible if item.name in theirs]
        side = joined_sides(left, right, kind, using)
        whole = JoinSide(side.relations, [*left.visible, *right.visible])
        conditions: dict[RelationCondition, None] = {}
        scope = ResolutionScope((whole, *outer), "JOIN", ctes)
        for name in using:
            self._decide_using(name, join, (left, right), conditions)
        add_row_condition("JOIN", join.args.get("on"), scope, self.walk, conditions)
        last = next(reversed(side.relations.values()))
        last.row_conditions = {**last.row_conditions, **conditions}
        return side

    def _decide_using(
        self, name: str, join: Any, sides: tuple[JoinSide, JoinSide], conditions: dict[RelationCondition, None]
    ) -> None:
        offset = next((offset_of(each) for each in join.args.get("using") or [] if each.name.lower() == name), 0)
        pair: list[RelationColumn] = []
        for side in sides:
            found = [item for _, item in side.by_unqualified_name(name)]
            if len(found) != 1:
                why, missing = "it is ambiguous on one side of USING", side.incomplete_because()
                reason = missing or Sentence(why if found else "one side of USING has no such column")
                lacking = () if found or missing is not None else side.relations.values()
                self.walk.record_unresolved(name, reason, "JOIN", offset, lacking)
                continue
            pair += found
            self.walk.record_reference(found[0], offset)
        item = made_column("", pair, f"USING ({name})")
        item.offset = offset
        conditions[RelationCondition("JOIN", item)] = None
        if len(pair) == len(sides):
            self.walk.record_comparison(*pair, equal=True)

    def lateral(self, side: JoinSide, lateral: Any, ctes: Ctes, outer: Sides) -> JoinSide:
        scope = ResolutionScope((side, *outer), "LATERAL VIEW", ctes)
        conditions: dict[RelationCondition, None] = {}
        relation = self._generator(lateral, scope, conditions)
        relation.row_conditions = conditions
        right = side_of(lateral.alias, relation)
        relation.shown = relation.written = lateral.meta.get("written", "")
        return joined_sides(side, right, "", ())

    def _generator(self, lateral: Any, scope: ResolutionScope, conditions: dict[RelationCondition, None]) -> Relation:
        if isinstance(lateral.this, exp.Query):
            return self._query(lateral.this, scope.ctes, scope.sides, lateral.meta.get("written", ""))
        relation = generated_relation(lateral.this, scope, self.walk, _column_aliases(lateral))
        label = lateral.meta.get("written", "")
        for item in relation.items:
            labelled_column(item, label)
        add_explode_condition(lateral.this, relation, scope.within, conditions)
        return relation


def lower_case_names(tree: Any) -> None:
    """Convert all names in a tree to lower case, and keep each source's written alias for display."""
    for node in tree.walk():
        node.comments = None
        if isinstance(node, exp.Identifier):
            node.set("this", str(node.this).lower())
            node.set("quoted", not str(node.this).isidentifier())
        elif isinstance(node, exp.Anonymous) and isinstance(node.this, str):
            node.set("this", plain_function_name(node.this))
        alias = node.args.get("alias")
        if isinstance(alias, exp.TableAlias) and alias.this is not None:
            name = alias.name.lower()
            node.meta["written"] = name.removeprefix(HIDDEN).partition("_")[2] if name.startswith(HIDDEN) else name


def add_row_condition(
    clause: str, node: Any, scope: ResolutionScope, walk: ColumnResolver, conditions: dict[RelationCondition, None]
) -> None:
    """Record in `conditions` that a clause decides which rows exist.

    A missing clause and the conditions TRUE and FALSE are ignored.
    """
    if node is not None and not isinstance(node, exp.Boolean):
        scope.within = clause
        conditions[RelationCondition(clause, walk.resolve_expression(node, scope))] = None
        if clause in ("JOIN", "WHERE"):
            walk.record_comparisons(node)


def add_explode_condition(
    call: Any, relation: Relation, clause: str, conditions: dict[RelationCondition, None]
) -> None:
    """Record in `conditions` that an exploded collection determines the number of rows."""
    found = made_column("", relation.items, sql_of(call))
    found.offset = first_offset(call, 0)
    conditions[RelationCondition(clause, found)] = None


def _column_aliases(source: Any) -> tuple[str, ...]:
    alias = source.args.get("alias")
    return tuple(each.name.lower() for each in alias.args.get("columns") or []) if alias is not None else ()


def _hide_alias(source: Any) -> None:
    """Replace a source's internal alias with the written alias, or remove it; all names must have been resolved."""
    written = source.meta.get("written", "")
    if isinstance(source, exp.Table) or not written:
        source.set("alias", None)
    else:
        source.args["alias"].set("this", exp.to_identifier(written))


def _number_duplicate_names(left: JoinSide, right: JoinSide) -> None:
    for relation in right.relations.values():
        name, number = relation.shown, 1
        while any(relation.shown == each.shown for each in left.relations.values()):
            number += 1
            relation.shown = f"{name}#{number}"
