"""Relations and their columns, with the table columns on which each column depends.

Names are in lower case, because Spark ignores case. A column that another column uses is never modified again.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from core.model.names import TableName
from core.sql.lineage.model import ColumnOrigin, InputKind, LineageCondition, LineageInput, LineageStep
from core.sql.parsing.star_expansion import LeftOut
from core.sql.tokens.data_types import field_type, fields_of
from core.text.sentence import Sentence

Origins = dict[ColumnOrigin, frozenset[str]]
"""Maps each origin to the paths of the struct fields that are read; the path "" is the whole column."""

_WHOLE = frozenset({""})


@dataclass(slots=True, eq=False)
class RelationColumn:
    """A column of a table, CTE or subquery, or an expression that has no name yet."""

    name: str
    values: Origins = field(default_factory=dict)
    conditions: Origins = field(default_factory=dict)
    expression: str = ""
    label: str = ""
    """Name of the column as a step of lineage; empty for a table's column or an unnamed expression."""
    uses: tuple["RelationColumn", ...] = ()
    kind: str = ""
    """Spark's type of the column; empty if unknown."""
    fields: dict[str, "RelationColumn"] = field(default_factory=dict)
    """Fields of a struct that the query itself constructs, by name."""
    plain: bool = False
    """Whether this is an unchanged column or field, whose fields are therefore fields of the original column."""
    branches: tuple["RelationColumn", ...] = ()
    """The column at the same position in each UNION branch; empty unless the column comes from a UNION."""
    offset: int = 0


@dataclass(slots=True, eq=False)
class RelationCondition:
    """A condition that decides which rows exist; it is mutable while lineage is traced."""

    clause: str
    item: RelationColumn

    def value(self) -> LineageCondition:
        """Return the condition as a frozen `LineageCondition`."""
        steps = _steps(self.item)
        inputs = tuple(_input(self.item, at, InputKind.CONDITION, steps) for at in sorted(all_origins(self.item)))
        return LineageCondition(self.clause, self.item.expression, inputs, self.item.offset)


@dataclass(slots=True)
class Relation:
    """The known columns of a source in FROM or of a query, and the conditions that decide which rows it has."""

    items: list[RelationColumn]
    row_conditions: dict[RelationCondition, None] = field(default_factory=dict)
    """The conditions on the relation's rows, in text order."""
    tables: dict[TableName, None] = field(default_factory=dict)
    """The tables from whose rows the relation is made."""
    incomplete_because: Sentence | None = None
    """Why the relation may have more columns than are known; None if all are known."""
    shown: str = ""
    """Qualifier of the relation's columns for display."""
    written: str = ""
    """Alias or name of the source as written, in lower case."""
    hidden: tuple[RelationColumn, ...] = ()
    """Columns that a query can name although `*` does not include them."""
    _by_name: dict[str, list[RelationColumn]] = field(default_factory=dict)

    def named(self, name: str) -> list[RelationColumn]:
        """Return the columns named `name`; hidden columns are returned only if no other column has that name."""
        if not self._by_name:
            for item in self.items:
                self._by_name.setdefault(item.name, []).append(item)
        return self._by_name.get(name) or [item for item in self.hidden if item.name == name]


@dataclass(slots=True)
class JoinSide:
    """The sources of a SELECT that have been joined so far, and the column names that they make visible."""

    relations: dict[str, Relation] = field(default_factory=dict)
    """The joined relations, by alias."""
    visible: list[tuple[str, RelationColumn]] = field(default_factory=list)
    """Columns that `*` and unqualified names can reach, each with its source's alias, or `""` if merged by USING."""
    named: dict[str, RelationColumn] = field(default_factory=dict)
    """Columns that Spark adds: `window` after grouping by a time window, and earlier aliases of the same SELECT."""
    _by_name: dict[str, list[tuple[str, RelationColumn]]] = field(default_factory=dict)

    def row_conditions(self) -> dict[RelationCondition, None]:
        """Return the conditions on the rows of all joined sources."""
        return {each: None for relation in self.relations.values() for each in relation.row_conditions}

    def tables(self) -> dict[TableName, None]:
        """Return the tables from whose rows the joined sources are made."""
        return {table: None for relation in self.relations.values() for table in relation.tables}

    def by_unqualified_name(self, name: str) -> list[tuple[str, RelationColumn]]:
        """Return the columns to which an unqualified name may refer, each with its source's alias."""
        if not self._by_name:
            for alias, item in self.visible:
                self._by_name.setdefault(item.name, []).append((alias, item))
        hidden = ((alias, item) for alias, each in self.relations.items() for item in each.hidden)
        return self._by_name.get(name) or [(alias, item) for alias, item in hidden if item.name == name]

    def starred(self, relation: Relation) -> list[RelationColumn]:
        """Return a source's columns in the order that `t.*` has in Spark 4.2.0.

        Columns hidden by USING or NATURAL come first, then merged columns, then all others.
        """
        visible = {id(item) for _, item in self.visible}
        merged = {id(item): number for number, (alias, item) in enumerate(self.visible) if not alias}
        keys = {item.name: number for number, (alias, item) in enumerate(self.visible) if not alias}

        def position(item: RelationColumn) -> tuple[int, int]:
            if id(item) not in visible:
                return 0, keys.get(item.name, 0)
            return (1, merged[id(item)]) if id(item) in merged else (2, 0)

        return sorted(relation.items, key=position)

    def incomplete_because(self) -> Sentence | None:
        """Return why an unqualified name may refer to an unknown column; None if all columns are known."""
        return next(filter(None, (each.incomplete_because for each in self.relations.values())), None)


def side_of(alias: str, relation: Relation) -> JoinSide:
    """Return a join side that consists of a single source."""
    return JoinSide({alias: relation}, [(alias, item) for item in relation.items])


def joined_sides(left: JoinSide, right: JoinSide, kind: str, using: Iterable[str]) -> JoinSide:
    """Return the side that results from joining two sides; `kind` contains the keywords before JOIN.

    The columns in USING are merged and precede all others, as in Spark 4.2.0 (also for NATURAL).
    """
    merged: list[tuple[str, RelationColumn]] = []
    for name in using:
        ours = [item for _, item in left.visible if item.name == name]
        theirs = [item for _, item in right.visible if item.name == name]
        if len(ours) == len(theirs) == 1:
            merged.append(("", _merged(ours[0], theirs[0], kind)))
    gone = {item.name for _, item in merged}
    visible = [
        *merged,
        *(each for each in left.visible if each[1].name not in gone),
        *(each for each in right.visible if each[1].name not in gone and not hides_right(kind)),
    ]
    return JoinSide({**left.relations, **right.relations}, visible)


def hides_right(kind: str) -> bool:
    """True if a join outputs only the columns of its left side, as a SEMI or ANTI join does."""
    return "SEMI" in kind or "ANTI" in kind


def _merged(left: RelationColumn, right: RelationColumn, kind: str) -> RelationColumn:
    if "FULL" not in kind:
        return right if "RIGHT" in kind else left
    text = f"coalesce({left.label or left.name}, {right.label or right.name})"
    return made_column(left.name, (left, right), text)


def made_column(name: str, uses: Iterable[RelationColumn], expression: str = "") -> RelationColumn:
    """Return a new column that has the inputs of all columns in `uses`."""
    found = tuple(uses)
    item = RelationColumn(name, expression=expression, uses=found)
    for each in found:
        add_origins(item.values, each.values)
        add_origins(item.conditions, each.conditions)
    return item


def labelled_column(item: RelationColumn, part: str) -> RelationColumn:
    """Set a column's label to `query.column`, so that lineage shows the query as a step; return the same object."""
    item.label = f"{part}.{item.name}" if part else item.name
    return item


def star_output_column(item: RelationColumn, part: str) -> RelationColumn:
    """Return the output column to which `*` expands a source's column.

    A table's own column is returned unchanged.
    """
    if not item.label:
        return item
    found = RelationColumn(
        item.name, item.values, item.conditions, item.name, uses=(item,), kind=item.kind, plain=item.plain
    )
    found.fields, found.offset = item.fields, item.offset
    return labelled_column(found, part)


def renamed_relation(relation: Relation, alias: Any, part: str) -> Relation:
    """Rename a relation's columns by the column list of its alias, as in `AS t(a, b)`; do nothing without a list."""
    names = [each.name.lower() for each in alias.args.get("columns") or []] if alias is not None else []
    for index, (item, name) in enumerate(zip(list(relation.items), names, strict=False)):
        found = replace(item, name=name)
        relation.items[index] = labelled_column(found, part) if item.label else found
    return relation


def united_column(item: RelationColumn, other: RelationColumn) -> RelationColumn:
    """Add UNION column `other` to the combined column of the earlier branches; return the combined column."""
    united = {
        name: united_column(replace(inner, branches=()), more)
        for (name, inner), more in zip(item.fields.items(), other.fields.values(), strict=False)
    }
    if not item.branches:
        first, item = item, made_column(item.name, [item])
        item.branches, item.uses, item.label, item.kind = (first,), first.uses, first.label, first.kind
        item.expression, item.offset = first.expression or first.name, first.offset
    item.branches, item.uses = (*item.branches, other), (*item.uses, *other.uses)
    add_origins(item.values, other.values)
    add_origins(item.conditions, other.conditions)
    text = other.expression or other.name
    if text not in item.expression.split(" | "):
        item.expression = f"{item.expression} | {text}"
    item.kind = item.kind if item.kind == other.kind else ""
    item.fields = united
    return item


def add_origins(into: Origins, more: Origins) -> None:
    """Add the origins in `more` to `into`; an origin that is in both gets the field paths of both."""
    for origin, paths in more.items():
        known = into.get(origin)
        into[origin] = paths if known is None else known | paths


def all_origins(item: RelationColumn) -> Origins:
    """Return the origins of a column's values and conditions together."""
    found: Origins = dict(item.values)
    add_origins(found, item.conditions)
    return found


def table_column(table: TableName, name: str, kind: str) -> RelationColumn:
    """Return a relation's column that represents a column of a table."""
    return RelationColumn(name.lower(), {ColumnOrigin(table, name): _WHOLE}, kind=kind, plain=True)


def copied_column(item: RelationColumn | None) -> ColumnOrigin | None:
    """Return the column of a table whose values a column has unchanged; None if it has others."""
    if item is None or not item.plain or len(item.values) != 1:
        return None
    ((origin, paths),) = item.values.items()
    return origin if origin.column and paths == _WHOLE else None


def rows_of(tables: Iterable[TableName]) -> Origins:
    """Return origins that represent the rows of tables."""
    return {ColumnOrigin(table): _WHOLE for table in tables}


def field_of(item: RelationColumn, path: Iterable[str]) -> RelationColumn | None:
    """Return the column for a nested field such as `item.a.b`; None if the field is certain not to exist."""
    for name in path:
        if item.fields:
            inner = item.fields.get(name)
            if inner is None:
                return None
            item = RelationColumn(
                name, inner.values, inner.conditions, uses=(item,), kind=inner.kind, fields=inner.fields
            )
            continue
        kind = field_type(item.kind, name)
        if kind is None:
            return None
        values = item.values
        if item.plain:
            values = {o: frozenset(f"{p}.{name}" if p else name for p in paths) for o, paths in values.items()}
        item = RelationColumn(name, values, item.conditions, uses=(item,), kind=kind, plain=item.plain)
    return item


def excepted_column(
    name: LeftOut, found: Sequence[tuple[str, RelationColumn]], sources: Mapping[str, Relation]
) -> tuple[RelationColumn | None, tuple[str, ...], Sentence | None]:
    """Resolve a name in EXCEPT to a column of the star, the path of the removed field, and an error.

    The path is empty for a whole column, and the error is None on success. A source takes precedence over a struct of
    the same name.
    """
    given, column, fields = [item for _, item in found], name.column, name.fields
    named = [item for item in given if item.name == column]
    if name.alias:
        source = sources[name.alias]
        named = [item for item in source.named(column) if any(item is each for each in given)]
        if not named:
            column, fields = source.written, (column, *fields)
            named = [item for item in given if item.name == column]
    if len(named) != 1:
        return None, fields, Sentence("it is ambiguous" if named else "the star has no such column")
    lacks = fields and field_of(named[0], fields) is None
    return named[0], fields, Sentence("the struct has no such field") if lacks else None


def overlap(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """True if either field path is a prefix of the other; EXCEPT may not contain both."""
    return one[: len(other)] == other[: len(one)]


def without_fields(item: RelationColumn, gone: Iterable[tuple[str, ...]]) -> RelationColumn:
    """Return a struct column without the fields in `gone`, which are lower-case paths within the struct."""
    inner: dict[str, list[tuple[str, ...]]] = {}
    for path in gone:
        inner.setdefault(path[0], []).append(path[1:])
    fields: dict[str, RelationColumn] = {}
    for name in item.fields or (found.lower() for found, _ in fields_of(item.kind)):
        paths, field = inner.get(name, []), field_of(item, [name])
        if field is not None and () not in paths:
            fields[name] = without_fields(field, paths) if paths else field
    made = made_column(item.name, fields.values(), item.name)
    made.fields, made.offset = fields, item.offset
    return made


def inputs_of(item: RelationColumn) -> tuple[LineageInput, ...]:
    """Return the inputs of an output, sorted: values first, then the conditions that are not also values."""
    steps = _steps(item)
    values = [_input(item, origin, InputKind.VALUE, steps) for origin in sorted(item.values)]
    others = sorted(origin for origin in item.conditions if origin not in item.values)
    return (*values, *(_input(item, origin, InputKind.CONDITION, steps) for origin in others))


def _input(
    item: RelationColumn,
    origin: ColumnOrigin,
    kind: InputKind,
    steps: Mapping[ColumnOrigin, Mapping[LineageStep, None]],
) -> LineageInput:
    paths = item.values.get(origin, frozenset()) | item.conditions.get(origin, frozenset())
    fields = () if "" in paths else tuple(sorted(paths))
    return LineageInput(origin, kind, _text(item, origin), fields, tuple(steps.get(origin, ())))


def _text(item: RelationColumn, origin: ColumnOrigin) -> str:
    """Return the expressions of the UNION branches that depend on an origin, joined by ` | `."""
    if not item.branches:
        return item.expression or item.name
    near = [each for each in item.branches if origin in each.values or origin in each.conditions]
    return " | ".join(dict.fromkeys(_text(each, origin) for each in near)) or item.expression


def _steps(item: RelationColumn) -> dict[ColumnOrigin, dict[LineageStep, None]]:
    """Return the lineage steps from a column to each of its origins, nearest to the column first."""
    found: dict[ColumnOrigin, dict[LineageStep, None]] = {}
    seen: set[int] = set()
    waiting = list(item.uses)
    for each in waiting:
        if id(each) in seen:
            continue
        seen.add(id(each))
        if each.label:
            for origin in {**each.values, **each.conditions}:
                found.setdefault(origin, {})[LineageStep(each.label, _text(each, origin))] = None
        waiting.extend(each.uses)
    return found
