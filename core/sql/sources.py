"""What stands in FROM, as sides of names: tables, parts of WITH, subqueries, joins, lateral views and their like."""

from collections.abc import Callable, Mapping
from typing import Any

from sqlglot import exp

from core.names import parse_table_name
from core.sql.canonical import sql_of
from core.sql.clauses import Delay
from core.sql.from_clause import is_group
from core.sql.functions import plain
from core.sql.generators import generated
from core.sql.lexing import open_source, tokens_of
from core.sql.naming import TableRead
from core.sql.parsing import parse_expression
from core.sql.pivots import pivoted
from core.sql.relations import Deciding, Item, Relation, Side, column_item, joined, labelled, made, renamed, side_of
from core.sql.resolving import Place, Walk, first_offset, offset_of
from core.sql.streams import HIDDEN, Mark

Ctes = Mapping[str, Relation]
Sides = tuple[Side, ...]
METADATA = (
    "struct<file_path:string,file_name:string,file_size:bigint,file_block_start:bigint,file_block_length:bigint,"
    "file_modification_time:timestamp,row_index:bigint>"
)
"""Of the column `_metadata` that every file source has and `*` leaves out (4.2, "File Metadata Column")."""


class Sources:
    """Reads what stands in FROM, in one statement."""

    def __init__(
        self, walk: Walk, query: Callable[[Any, Ctes, Sides, str], Relation], text: str, *, stateful: bool
    ) -> None:
        self.walk = walk
        self._text = text
        self._query = query
        self._stateful = stateful
        self._columns: dict[str, list[Item] | None] = {}

    def read(self, root: Any, ctes: Ctes, outer: Sides) -> Side:
        """Read a source or group."""
        if is_group(root):
            side = self.read(root.this, ctes, outer)
            for join in root.this.args["joins"]:
                side = self.join(side, join, ctes, outer)
            return side
        side = side_of(root.alias, self._source(root, ctes, outer))
        _hide_alias(root)
        return side

    def _source(self, source: Any, ctes: Ctes, outer: Sides) -> Relation:
        """Read one thing in FROM; what it is called for people is settled by who joins it."""
        written = source.meta.get("written") or (source.name if isinstance(source, exp.Table) else "")
        entry: TableRead | None = source.meta.get("entry")
        if entry is not None:
            relation = self._table(entry)
        elif "cte" in source.meta:
            kept = ctes[source.meta["cte"]]
            relation = Relation(kept.items, dict(kept.deciding), kept.tables, kept.missing, kept.shown)
            source.set("this", exp.to_identifier(kept.shown))
        elif isinstance(source, exp.Lateral):
            place = Place(outer, "LATERAL", ctes)
            deciding: dict[Deciding, None] = {}
            relation = self._generator(source, place, deciding)
            relation.deciding = deciding
        elif isinstance(source, exp.Table):
            place = Place((Side(), *outer), "FROM", ctes)
            relation = generated(source.this, place, self.walk, _column_aliases(source))
        else:
            relation = self._query(source, ctes, outer, written)
        relation.shown, relation.written = relation.shown or written or "subquery", written
        relation = self._watermarked(source.meta.get("mark") or (entry.mark if entry else None), source, relation, ctes)
        for pivot in source.args.get("pivots") or []:
            relation = pivoted(pivot, relation, ctes, self.walk)
        return renamed(relation, source.args.get("alias"), written)

    def _table(self, entry: TableRead) -> Relation:
        table = parse_table_name(entry.name)
        if table not in self._columns:
            columns = self.walk.columns_of(table)
            known = [column_item(table, column.name, column.type) for column in columns or ()]
            self._columns[table] = known if columns is not None else None
        items = self._columns[table]
        missing = "" if items is not None else f"no DDL declares {table}"
        hidden = (column_item(table, "_metadata", METADATA),)
        return Relation(list(items or ()), {}, {table: None}, missing, table, hidden=hidden)

    def _watermarked(self, mark: Mark | None, source: Any, relation: Relation, ctes: Ctes) -> Relation:
        """Add the column that `WATERMARK expression AS name` makes; late rows are dropped where state is kept."""
        if mark is None or mark.watermark is None:
            return relation
        delay: Delay = mark.watermark
        tree, name = parse_expression(tokens_of(open_source(delay.text, "")))
        fold_names(tree)
        self._put(tree, mark.end)
        place = Place((side_of("", relation),), "WATERMARK", ctes)
        item = self.walk.item(tree, place)
        if name:
            relation.items = [*relation.items, labelled(made(name, [item], item.expression), relation.shown)]
        item.expression = f"{item.expression} DELAY OF {delay.delay}"
        if self._stateful:
            relation.deciding[Deciding("WATERMARK", item)] = None
        return relation

    def _put(self, tree: Any, end: int) -> None:
        """Give the names of a WATERMARK their places: its own text was read apart from the statement's."""
        before = self._text[:end].lower()
        start = before.rfind("watermark")
        for name in tree.find_all(exp.Identifier):
            name.meta["start"] = max(before.find(name.name, start), start)

    def join(self, left: Side, join: Any, ctes: Ctes, outer: Sides) -> Side:
        right = self.read(join.this, ctes, (left, *outer) if isinstance(join.this, exp.Lateral) else outer)
        kind = " ".join(str(join.args[key]).upper() for key in ("method", "side", "kind") if join.args.get(key))
        _show_apart(left, right)
        using = [each.name.lower() for each in join.args.get("using") or []]
        if "NATURAL" in kind:
            theirs = {item.name for _, item in right.visible}
            using = [item.name for _, item in left.visible if item.name in theirs]
        side = joined(left, right, kind, using)
        whole = Side(side.relations, [*left.visible, *right.visible])
        deciding: dict[Deciding, None] = {}
        place = Place((whole, *outer), "JOIN", ctes)
        for name in using:
            self._decide_using(name, join, (left, right), deciding)
        decide("JOIN", join.args.get("on"), place, self.walk, deciding)
        last = next(reversed(side.relations.values()))
        last.deciding = {**last.deciding, **deciding}
        return side

    def _decide_using(self, name: str, join: Any, sides: tuple[Side, Side], deciding: dict[Deciding, None]) -> None:
        offset = next((offset_of(each) for each in join.args.get("using") or [] if each.name.lower() == name), 0)
        pair: list[Item] = []
        for side in sides:
            found = [item for _, item in side.bare(name)]
            if len(found) != 1:
                reason = "it is ambiguous on a side of USING" if found else "a side of USING has no such column"
                self.walk.miss(name, side.missing() or reason, "JOIN", offset)
                continue
            pair += found
            self.walk.refer(found[0], offset)
        item = made("", pair, f"USING ({name})")
        item.offset = offset
        deciding[Deciding("JOIN", item)] = None

    def lateral(self, side: Side, lateral: Any, ctes: Ctes, outer: Sides) -> Side:
        place = Place((side, *outer), "LATERAL VIEW", ctes)
        deciding: dict[Deciding, None] = {}
        relation = self._generator(lateral, place, deciding)
        relation.deciding = deciding
        right = side_of(lateral.alias, relation)
        relation.shown = relation.written = lateral.meta.get("written", "")
        return joined(side, right, "", ())

    def _generator(self, lateral: Any, place: Place, deciding: dict[Deciding, None]) -> Relation:
        if isinstance(lateral.this, exp.Query):
            return self._query(lateral.this, place.ctes, place.sides, lateral.meta.get("written", ""))
        relation = generated(lateral.this, place, self.walk, _column_aliases(lateral))
        label = lateral.meta.get("written", "")
        for item in relation.items:
            labelled(item, label)
        exploded(lateral.this, relation, place.within, deciding)
        return relation


def fold_names(tree: Any) -> None:
    """Fold names as Spark does, and keep the aliases that resolving replaces: people know them by these."""
    for node in tree.walk():
        node.comments = None
        if isinstance(node, exp.Identifier):
            node.set("this", str(node.this).lower())
            node.set("quoted", not str(node.this).isidentifier())
        elif isinstance(node, exp.Anonymous) and isinstance(node.this, str):
            node.set("this", plain(node.this))
        alias = node.args.get("alias")
        if isinstance(alias, exp.TableAlias) and alias.this is not None:
            name = alias.name.lower()
            node.meta["written"] = name.removeprefix(HIDDEN).partition("_")[2] if name.startswith(HIDDEN) else name


def decide(clause: str, node: Any, place: Place, walk: Walk, deciding: dict[Deciding, None]) -> None:
    """Add what a clause decides, where it is there."""
    if node is not None and not isinstance(node, exp.Boolean):
        place.within = clause
        deciding[Deciding(clause, walk.item(node, place))] = None


def exploded(call: Any, relation: Relation, clause: str, deciding: dict[Deciding, None]) -> None:
    """Add that what is exploded decides how many rows there are."""
    found = made("", relation.items, sql_of(call))
    found.offset = first_offset(call)
    deciding[Deciding(clause, found)] = None


def _column_aliases(source: Any) -> tuple[str, ...]:
    alias = source.args.get("alias")
    return tuple(each.name.lower() for each in alias.args.get("columns") or []) if alias is not None else ()


def _hide_alias(source: Any) -> None:
    """Put back what people know a source by, now that names are found."""
    written = source.meta.get("written", "")
    if isinstance(source, exp.Table) or not written:
        source.set("alias", None)
    else:
        source.args["alias"].set("this", exp.to_identifier(written))


def _show_apart(left: Side, right: Side) -> None:
    """Number sources of one name, so that a text tells them apart whatever their aliases are."""
    for relation in right.relations.values():
        name, number = relation.shown, 1
        while any(relation.shown == each.shown for each in left.relations.values()):
            number += 1
            relation.shown = f"{name}#{number}"
