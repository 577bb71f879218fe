"""PIVOT and UNPIVOT: the columns that they give, and what they group by (4.2, analysis/PivotTransformer.scala)."""

from collections.abc import Mapping
from typing import Any

from sqlglot import exp

from core.sql.lineage.column_resolution import ColumnResolver, ResolutionScope, first_offset_or_zero
from core.sql.lineage.relations import (
    Relation,
    RelationColumn,
    RowDecision,
    add_origins,
    all_origins,
    made_column,
    side_of,
)
from core.sql.parsing.canonical_text import sql_of
from core.sql.parsing.function_names import PREFIX


def pivoted_relation(pivot: Any, relation: Relation, ctes: Mapping[str, Relation], walk: ColumnResolver) -> Relation:
    """Return the relation behind a PIVOT or UNPIVOT; what is not followed is said."""
    fields = pivot.args.get("fields") or []
    place = ResolutionScope((side_of("", relation),), "PIVOT", ctes)
    single = len(fields) == 1 and isinstance(fields[0], exp.In)
    if single and pivot.args.get("unpivot"):
        found = _unpivoted(pivot, fields[0], relation, place, walk)
    elif single and pivot.args.get("columns"):
        found = _pivoted(pivot, fields[0], relation, place, walk)
    else:
        found = None
    if found is None:
        reason = "this form of PIVOT or UNPIVOT cannot be traced"
        walk.miss("PIVOT", reason, "PIVOT", first_offset_or_zero(pivot))
        found = Relation([], relation.deciding, relation.tables, reason)
    found.shown, found.written = relation.shown, relation.written
    return found


def _pivoted(pivot: Any, field: Any, relation: Relation, place: ResolutionScope, walk: ColumnResolver) -> Relation:
    key = made_column("", [walk.item(each, place) for each in _keys(field.this)], sql_of(field.this))
    aggregates = [each.unalias() if isinstance(each, exp.Alias) else each for each in pivot.expressions]
    values = [walk.item(each, place) for each in aggregates]
    used = set(all_origins(key)).union(*(all_origins(each) for each in values))
    groups = [item for item in relation.items if not used & set(item.values)]
    items = list(groups)
    for number, column in enumerate(pivot.args.get("columns") or []):
        value = values[number % len(values)]
        item = made_column(column.name.replace(PREFIX, "").lower(), [value], value.expression)
        add_origins(item.conditions, all_origins(key))
        item.label = f"{relation.shown}.{item.name}"
        items.append(item)
    grouping = RowDecision("PIVOT", made_column("", [*groups, key], key.expression))
    return Relation(items, {**relation.deciding, grouping: None}, relation.tables, relation.missing)


def _keys(node: Any) -> list[Any]:
    """List the columns of `FOR a` or `FOR (a, b)`."""
    return list(node.expressions) if isinstance(node, exp.Tuple) else [node]


def _unpivoted(
    pivot: Any, field: Any, relation: Relation, place: ResolutionScope, walk: ColumnResolver
) -> Relation | None:
    if len(pivot.expressions) != 1 or not isinstance(pivot.expressions[0], exp.Identifier):
        return None
    nodes = [each.this if isinstance(each, exp.PivotAlias) else each for each in field.expressions]
    columns = [walk.item(node, place) for node in nodes]
    used = {origin for each in columns for origin in each.values}
    kept = [item for item in relation.items if not used & set(item.values)]
    name = RelationColumn(field.this.name.lower(), expression=", ".join(each.expression for each in columns))
    value = made_column(pivot.expressions[0].name.lower(), columns, name.expression)
    for item in (name, value):
        item.label = f"{relation.shown}.{item.name}"
    # Rows whose value is null are left out, unless INCLUDE NULLS is said.
    deciding = {**relation.deciding, RowDecision("UNPIVOT", value): None}
    return Relation([*kept, name, value], deciding, relation.tables, relation.missing)
