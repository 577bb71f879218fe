"""Stars such as `*` and `t.*`, and the columns that EXCEPT removes from them.

Spark resolves each name in EXCEPT against the columns of the star, and prefers a source to a struct of the same name. A
struct from which EXCEPT removes a field stays a struct (tested on Spark 4.2.0; analysis/unresolved.scala).
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from sqlglot import exp


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A column or struct field that `EXCEPT (…)` removes from a star."""

    alias: str
    """Alias of the source that qualifies the name; empty if the name is unqualified."""
    column: str
    fields: tuple[str, ...] = ()
    """Path of the removed field; empty if the whole column is removed."""
    offset: int = 0
    """Offset of the column's name in the SQL."""


def is_star(node: Any) -> bool:
    """True if a node is `*`, `t.*` or `s.*`, with or without EXCEPT."""
    return isinstance(node, exp.Star) or (isinstance(node, (exp.Column, exp.Dot)) and _star_of(node) is not None)


def qualifiers_of(star: Any) -> tuple[Any, ...]:
    """Return the identifiers before a star, outermost first."""
    return () if isinstance(star, exp.Star) else tuple(name_parts(star)[:-1])


def left_out(star: Any, aliases: Collection[str]) -> tuple[LeftOut, ...]:
    """Return the columns and fields that a star's EXCEPT removes, in text order.

    `aliases` are the aliases of the SELECT's sources.
    """
    own = star if isinstance(star, exp.Star) else _star_of(star)
    found = []
    for name in (own.args.get("except_") or []) if own is not None else []:
        parts = name_parts(name)
        alias = parts.pop(0).name.lower() if len(parts) > 1 and parts[0].name.lower() in aliases else ""
        column, *fields = (part.name.lower() for part in parts)
        found.append(LeftOut(alias, column, tuple(fields), int(parts[0].meta.get("start", 0))))
    return tuple(found)


def name_parts(name: Any) -> list[Any]:
    """Return the parts of a dotted name, outermost first.

    sqlglot nests a name of more than four parts in a Dot.
    """
    if isinstance(name, exp.Dot):
        return [*name_parts(name.this), name.expression]
    return [part for part in (name.args.get(key) for key in ("catalog", "db", "table", "this")) if part is not None]


def _star_of(node: Any) -> Any:
    last = node.expression if isinstance(node, exp.Dot) else node.this
    return last if isinstance(last, exp.Star) else None
