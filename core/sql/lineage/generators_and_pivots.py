"""Relations produced in FROM by a generator call or a pivot: explode, inline, stack, PIVOT, UNPIVOT.

The names and numbers of columns are those of Spark 4.2.0 (tested; function group generator_funcs, and
analysis/PivotTransformer.scala).
"""

from collections.abc import Mapping
from typing import Any

from sqlglot import exp

from core.model.names import whole_number
from core.sql.lineage.column_resolution import ColumnResolver, ResolutionScope
from core.sql.lineage.relations import (
    Relation,
    RelationColumn,
    RelationCondition,
    add_origins,
    all_origins,
    field_of,
    made_column,
    side_of,
)
from core.sql.parsing.canonical_text import sql_of
from core.sql.parsing.from_clause import first_offset
from core.sql.parsing.function_names import PREFIX
from core.sql.tokens.data_types import element_type, fields_of, key_type
from core.text.sentence import Sentence

ROW_GENERATORS = frozenset(
    ("explode", "explode_outer", "posexplode", "posexplode_outer", "inline", "inline_outer", "stack", "json_tuple")
)


def is_generator(node: Any) -> bool:
    """True if a node calls a generator, which turns a row into any number of rows."""
    return isinstance(node, exp.Anonymous) and str(node.this) in ROW_GENERATORS


def generated_relation(call: Any, scope: ResolutionScope, walk: ColumnResolver, names: tuple[str, ...]) -> Relation:
    """Return the relation that a generator or table function produces.

    `names` are the column aliases, of which there may be fewer than columns.
    """
    function = str(call.this).removesuffix("_outer") if isinstance(call, exp.Anonymous) else ""
    arguments = list(call.expressions) if isinstance(call, exp.Anonymous) else []
    found: list[RelationColumn] = []
    missing: Sentence | None = None
    if function in ("explode", "posexplode") and arguments:
        collection = walk.resolve_expression(arguments[0], scope)
        at = [_part("pos", collection, "int")] if function == "posexplode" else []
        found = [*at, *_exploded(collection, len(names) - len(at))]
    elif function == "inline" and arguments:
        found, missing = _inlined(walk.resolve_expression(arguments[0], scope), len(names))
    elif function == "stack" and arguments:
        found = _stacked(arguments, scope, walk)
    elif function == "range":
        found = [RelationColumn("id", kind="bigint")]
    else:
        whole = walk.resolve_expression(call, scope)
        count = len(arguments) - 1 if function == "json_tuple" else len(names)
        found = [_part(f"c{number}", whole) for number in range(count)]
        missing = None if count else Sentence(f"the columns of {function or 'this call'} are unknown")
    text, offset = sql_of(call), first_offset(call, 0)
    for item in found:
        item.expression, item.offset = text, offset
    for item, name in zip(found, names, strict=False):
        item.name = name
    return Relation(found, incomplete_because=missing)


def _exploded(collection: RelationColumn, count: int) -> list[RelationColumn]:
    element = element_type(collection.kind)
    if collection.kind.startswith("map<") or (not collection.kind and count == 2):
        key = key_type(collection.kind) if collection.kind else ""
        return [_part("key", collection, key), _part("value", collection, element)]
    item = _part("col", collection, element)
    item.plain = collection.plain
    return [item]


def _inlined(collection: RelationColumn, count: int) -> tuple[list[RelationColumn], Sentence | None]:
    """Return the columns of `inline`, and the reason why they are unknown (None if they are known)."""
    fields = fields_of(element_type(collection.kind))
    if not fields:
        found = [_part(f"col{number + 1}", collection) for number in range(count)]
        return found, None if count else Sentence("the columns of inline are unknown")
    items = [(name.lower(), field_of(collection, [name.lower()]), kind) for name, kind in fields]
    return [
        RelationColumn(name, each.values, each.conditions, uses=(each,), kind=kind, plain=each.plain)
        for name, each, kind in items
        if each is not None
    ], None


def _stacked(arguments: list[Any], scope: ResolutionScope, walk: ColumnResolver) -> list[RelationColumn]:
    rows, values = arguments[0], [walk.resolve_expression(each, scope) for each in arguments[1:]]
    count = (whole_number(rows.name) or 1) if isinstance(rows, exp.Literal) else 1
    width = -(-len(values) // count)
    return [made_column(f"col{number}", values[number::width]) for number in range(width)]


def _part(name: str, whole: RelationColumn, kind: str = "") -> RelationColumn:
    return RelationColumn(name, whole.values, whole.conditions, uses=(whole,), kind=kind)


def pivoted_relation(pivot: Any, relation: Relation, ctes: Mapping[str, Relation], walk: ColumnResolver) -> Relation:
    """Return the result of applying PIVOT or UNPIVOT to a relation; record an unsupported form as unresolved."""
    fields = pivot.args.get("fields") or []
    scope = ResolutionScope((side_of("", relation),), "PIVOT", ctes)
    single = len(fields) == 1 and isinstance(fields[0], exp.In)
    if single and pivot.args.get("unpivot"):
        found = _unpivoted(pivot, fields[0], relation, scope, walk)
    elif single and pivot.args.get("columns"):
        found = _pivoted(pivot, fields[0], relation, scope, walk)
    else:
        found = None
    if found is None:
        reason = Sentence("this form of PIVOT or UNPIVOT cannot be traced")
        walk.record_unresolved("PIVOT", reason, "PIVOT", first_offset(pivot, 0))
        found = Relation([], relation.row_conditions, relation.tables, reason)
    found.shown, found.written = relation.shown, relation.written
    return found


def _pivoted(pivot: Any, field: Any, relation: Relation, scope: ResolutionScope, walk: ColumnResolver) -> Relation:
    key = made_column(
        "", [walk.resolve_expression(each, scope) for each in _pivot_columns(field.this)], sql_of(field.this)
    )
    aggregates = [each.unalias() if isinstance(each, exp.Alias) else each for each in pivot.expressions]
    values = [walk.resolve_expression(each, scope) for each in aggregates]
    used = set(all_origins(key)).union(*(all_origins(each) for each in values))
    groups = [item for item in relation.items if not used & set(item.values)]
    items = list(groups)
    for number, column in enumerate(pivot.args.get("columns") or []):
        value = values[number % len(values)]
        item = made_column(column.name.replace(PREFIX, "").lower(), [value], value.expression)
        add_origins(item.conditions, all_origins(key))
        item.label = f"{relation.shown}.{item.name}"
        items.append(item)
    grouping = RelationCondition("PIVOT", made_column("", [*groups, key], key.expression))
    return Relation(items, {**relation.row_conditions, grouping: None}, relation.tables, relation.incomplete_because)


def _pivot_columns(node: Any) -> list[Any]:
    return list(node.expressions) if isinstance(node, exp.Tuple) else [node]


def _unpivoted(
    pivot: Any, field: Any, relation: Relation, scope: ResolutionScope, walk: ColumnResolver
) -> Relation | None:
    if len(pivot.expressions) != 1 or not isinstance(pivot.expressions[0], exp.Identifier):
        return None
    nodes = [each.this if isinstance(each, exp.PivotAlias) else each for each in field.expressions]
    columns = [walk.resolve_expression(node, scope) for node in nodes]
    used = {origin for each in columns for origin in each.values}
    kept = [item for item in relation.items if not used & set(item.values)]
    name = RelationColumn(field.this.name.lower(), expression=", ".join(each.expression for each in columns))
    value = made_column(pivot.expressions[0].name.lower(), columns, name.expression)
    for item in (name, value):
        item.label = f"{relation.shown}.{item.name}"
    # Rows with a null value are dropped, unless INCLUDE NULLS is written.
    conditions = {**relation.row_conditions, RelationCondition("UNPIVOT", value): None}
    return Relation([*kept, name, value], conditions, relation.tables, relation.incomplete_because)
