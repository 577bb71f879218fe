"""Which columns are still needed at a join and above it: Spark prunes the others before it plans (4.2.0, run).

A name is written `alias.name`, or `name` where its table is not said; `*` and `alias.*` stand for all. Where it is not
certain how far down Spark pushes a condition, its columns count as needed.
"""

from collections.abc import Iterable
from typing import Any

from sqlglot import exp

from core.sql.parsing.canonical_text import and_terms
from core.sql.parsing.from_clause import is_group, sources_of
from core.sql.streaming.relation_properties import RelationProperties

ALL = "*"
Names = frozenset[str]
_OF_SELECT = ("group", "having", "qualify", "laterals", "order", "sort", "cluster")


def needed_at(join: Any, query: Any) -> Names:
    """List the names that are needed at a join of a query; the first question about a query writes all answers down."""
    if "needed" not in join.meta:
        _query(query, frozenset((ALL,)), {})
    return join.meta.get("needed", frozenset())  # type: ignore[no-any-return]  # What meta holds has no type.


def event_times_needed(flow: RelationProperties, needed: Names) -> set[str]:
    """List the columns of one side of a join that carry a watermark and are needed, each once."""
    found = set()
    for each in flow.event_times:
        alias, _, name = each.rpartition(".")
        if each in needed or f"{alias}.*" in needed:
            found.add(each)
        elif flow.merged.get(name, True) and (ALL in needed or name in needed):
            # A bare name is one column: of the two that USING merges, or of the one side that has it.
            found.add(name if name in flow.merged or ALL not in needed else each)
    return found - {name for name in found if any(other.endswith(f".{name}") for other in found)}


def _query(query: Any, needed: Names, parts: dict[str, set[str]]) -> None:
    with_ = query.args.get("with_")
    own = with_.expressions if with_ is not None else []
    parts = parts | {part.alias: set() for part in own}
    if isinstance(query, exp.Subquery):
        _query(query.this, needed, parts)
    elif isinstance(query, exp.SetOperation):
        for side in (query.this, query.expression):
            _query(side, _of_side(query, side, needed), parts)
    elif isinstance(query, exp.Select):
        _select(query, needed, parts)
    for part in reversed(own):
        listed = isinstance(part.args.get("alias"), exp.TableAlias) and part.args["alias"].columns
        _query(part.this, frozenset((ALL,) if listed else parts[part.alias]), parts)


def _of_side(query: Any, side: Any, needed: Names) -> Names:
    """Translate the names of a UNION ALL into those of one side; all of them where columns are compared."""
    first, own = _outputs(query.this), _outputs(side)
    if query.args.get("distinct") or ALL in needed or first is None or own is None or len(first) != len(own):
        return frozenset((ALL,))
    return frozenset(name for name, said in zip(own, first, strict=True) if said in needed)


def _outputs(query: Any) -> list[str] | None:
    while isinstance(query, (exp.SetOperation, exp.Subquery)):
        query = query.this
    names = [str(each.alias_or_name) for each in query.expressions] if isinstance(query, exp.Select) else []
    return None if not names or ALL in names or "" in names else names


def _select(select: Any, needed: Names, parts: dict[str, set[str]]) -> None:
    whole = ALL in needed or select.args.get("distinct") is not None
    names: set[str] = set()
    for each in select.expressions:
        inner = each.unalias()
        if isinstance(inner, exp.Star):
            names |= {ALL} if whole else needed
        elif isinstance(inner, exp.Column) and isinstance(inner.this, exp.Star):
            names |= {f"{inner.table}.*"} if whole else {f"{inner.table}.{name}" for name in needed}
        elif whole or each.alias_or_name in needed or not each.alias_or_name:
            names |= _named([inner])
    names |= _named(each for key in _OF_SELECT for each in _as_list(select.args.get(key)))
    where, from_ = select.args.get("where"), select.args.get("from_")
    if from_ is not None:
        conditions = and_terms(where.this) if where is not None else []
        _joined(from_.this, select.args.get("joins") or [], frozenset(names), conditions, parts)


def _joined(first: Any, joins: list[Any], needed: Names, conditions: list[Any], parts: dict[str, set[str]]) -> None:
    """Walk down a chain of joins.

    `conditions` come from above and are pushed below a join if one side has their columns.
    """
    if any(_is_outer(join) for join in joins):
        needed, conditions = needed | _named(conditions), []
    for index in range(len(joins) - 1, -1, -1):
        join = joins[index]
        left = {each.alias for source in (first, *(other.this for other in joins[:index])) for each in _sources(source)}
        right = {each.alias for each in _sources(join.this)}
        on = join.args.get("on")
        met = [*conditions, *(and_terms(on) if on is not None else [])]
        # ON of an outer join is pushed to the side that may be missing, ON of a semi join to both.
        kept = "" if _is_semi(join) else str(join.side)
        to_left = [each for each in met if kept not in ("LEFT", "FULL") and _only(each, left)]
        to_right = [each for each in met if kept not in ("RIGHT", "FULL") and _only(each, right)]
        staying = [each for each in met if each not in to_left and each not in to_right]
        needed |= _named(staying)
        needed |= {each.name for each in join.args.get("using") or []}
        join.meta["needed"] = needed
        _source(join.this, needed, to_right, parts)
        conditions = to_left
    _source(first, needed, conditions, parts)


def _source(source: Any, needed: Names, conditions: list[Any], parts: dict[str, set[str]]) -> None:
    if is_group(source):
        _joined(source.this, source.this.args["joins"], needed, conditions, parts)
        return
    alias = source.alias
    names = needed | _named(conditions)
    own = {each.removeprefix(f"{alias}.") for each in names if each.startswith(f"{alias}.") or "." not in each}
    if source.args.get("pivots") or (source.args.get("alias") is not None and source.args["alias"].args.get("columns")):
        own = {ALL}
    part = str(source.meta.get("cte", ""))
    if part in parts:
        parts[part] |= own
    elif isinstance(source, exp.Subquery):
        _query(source, frozenset(own), parts)
    elif isinstance(source, exp.Lateral) and isinstance(source.this, exp.Query):
        _query(source.this, frozenset((ALL,)), parts)


def _sources(source: Any) -> list[Any]:
    return list(sources_of(source))


def _is_outer(join: Any) -> bool:
    """Return whether a join keeps rows without a match, or drops those with one:
    no condition moves through it for certain.
    """
    return bool(join.side) or _is_semi(join)


def _is_semi(join: Any) -> bool:
    return str(join.args.get("kind") or "").upper() in ("SEMI", "ANTI")


def _only(term: Any, aliases: set[str]) -> bool:
    """Return whether a condition names columns of these alone, so that Spark pushes it down to them."""
    columns = list(term.find_all(exp.Column))
    return bool(columns) and all(column.table in aliases for column in columns) and term.find(exp.Query) is None


def _named(nodes: Iterable[Any]) -> set[str]:
    columns = (column for node in nodes for column in node.find_all(exp.Column))
    return {f"{column.table}.{column.name}" if column.table else str(column.name) for column in columns}


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value] if isinstance(value, exp.Expression) else []
