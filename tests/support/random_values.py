"""Random values and conditions over the columns in scope, of the kind required where they are used.

All tables have the same shape; three of them grow (a, b, c) and two do not (dim, dim2).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from sql_tree import Node

T = TypeVar("T")

GROWING = ("a", "b", "c")
FIXED = ("dim", "dim2")
SHAPE = (("id", "number"), ("k", "string"), ("v", "number"), ("w", "number"), ("name", "string"), ("ts", "time"))
FIELDS = (("fx", "number"), ("fy", "string"))
"""The fields of each struct; statements create structs themselves, since no table has one."""
DDL_TYPES = {"number": "BIGINT", "string": "STRING", "time": "TIMESTAMP", "struct": "STRUCT<fx: BIGINT, fy: STRING>"}
COLUMNS = ", ".join(f"{name} {DDL_TYPES[kind]}" for name, kind in SHAPE)
"""The columns of each table, as CREATE TABLE expects them."""
_AGGREGATES = {
    "number": ("count(*)", "count({number})", "sum({number})", "max({number})", "min({number})"),
    "string": ("max({string})", "min({string})", "first({string})"),
    "time": ("max({time})", "min({time})"),
    "struct": ("max({struct})", "min({struct})"),
}


@dataclass(frozen=True, slots=True)
class Column:
    """A column that an expression can refer to."""

    qualifier: str
    name: str
    kind: str
    """number, string, time or struct."""


Scope = tuple[Column, ...]
Pieces = tuple[Node | str, ...]


class Values:
    """Generates values and aliases for a statement under construction."""

    def __init__(self, random: Random, *, first: int = 0) -> None:
        self._random = random
        self._taken = first

    def _plain_condition(self, scope: Scope, draw: float) -> Node:
        """Return a condition without a subquery, whose form is selected by `draw` (0 to 1)."""
        if draw < 0.3:
            terms = tuple(self._comparison(scope, 1) for _ in range(2))
            both = Node("condition", terms, self._one_of((" AND ", " AND ", " OR ")))
            return Node("condition", ("(", both, ")"), scope=scope)
        if draw < 0.36:
            return Node("condition", ("NOT (", self._comparison(scope, 1), ")"), scope=scope)
        return self._comparison(scope, 1)

    def _comparison(self, scope: Scope, depth: int) -> Node:
        def number() -> Node:
            return self._value("number", scope, depth)

        def string() -> Node:
            return self._value("string", scope, depth)

        sign = self._one_of((" > ", " < ", " >= ", " <> ", " = "))
        makers: tuple[Callable[[], Pieces], ...] = (
            lambda: (number(), sign, self._literal()),
            lambda: (number(), " BETWEEN ", self._literal(), " AND ", self._literal(10, 99)),
            lambda: (number(), " IN (", self._literal(), ", ", self._literal(), ")"),
            lambda: (string(), " IN ('x', 'y')"),
            lambda: (string(), " LIKE '%", self._letter(), "%'"),
            lambda: (string(), self._one_of((" = '", " <> '")), self._letter(), "'"),
            lambda: (string(), " IS NOT NULL"),
            lambda: (self._value("time", scope, 0), " > TIMESTAMP'2026-01-01 12:00:00'"),
        )
        return Node("condition", self._one_of(makers)(), scope=scope)

    def _value(self, kind: str, scope: Scope, depth: int) -> Node:
        """Return a random expression of a kind over the columns in scope."""
        columns = [each for each in scope if each.kind == kind]
        structs = [each for each in scope if each.kind == "struct"]
        if structs and self._chance(0.2):
            columns += [each for each in self._fields(self._one_of(structs), scope) if each.kind == kind]
        if not depth or self._chance(0.5):
            if columns:
                return Node(kind, (self._named(self._one_of(columns), scope),), scope=scope)
            constants = {"number": "7", "string": "'x'", "time": "TIMESTAMP'2026-01-01 12:00:00'"}
            constant = constants.get(kind, "named_struct('fx', 7L, 'fy', 'x')")
            return Node(kind, (constant,), scope=scope)
        makers = {"number": self._number, "string": self._string, "time": self._later, "struct": self._struct}
        return Node(kind, makers[kind](scope, depth - 1), scope=scope)

    def _later(self, scope: Scope, depth: int) -> Pieces:
        return (self._value("time", scope, depth), " + INTERVAL ", self._literal(1, 9), " MINUTES")

    def _number(self, scope: Scope, depth: int) -> Pieces:
        one = self._value("number", scope, depth)
        sign = self._one_of((" + ", " - ", " * "))
        makers: tuple[Callable[[], Pieces], ...] = (
            lambda: ("(", one, sign, self._literal(), ")"),
            lambda: ("coalesce(", one, ", ", self._literal(), ")"),
            lambda: ("CASE WHEN ", self._comparison(scope, 0), " THEN ", one, " ELSE ", self._literal(), " END"),
            lambda: ("length(", self._value("string", scope, depth), ")"),
            lambda: ("abs(", one, ")"),
            lambda: ("CAST(", one, " AS BIGINT)"),
        )
        return self._one_of(makers)()

    def _string(self, scope: Scope, depth: int) -> Pieces:
        one = self._value("string", scope, depth)
        makers: tuple[Callable[[], Pieces], ...] = (
            lambda: ("upper(", one, ")"),
            lambda: ("concat(", one, ", '", self._letter(), "')"),
            lambda: ("CAST(", self._value("number", scope, depth), " AS STRING)"),
            lambda: ("IF(", self._comparison(scope, 0), ", ", one, ", '", self._letter(), "')"),
            lambda: ("coalesce(", one, ", '", self._letter(), "')"),
        )
        return self._one_of(makers)()

    def _struct(self, scope: Scope, depth: int) -> Pieces:
        number, string = (self._value(kind, scope, depth) for kind in ("number", "string"))
        return ("named_struct('fx', CAST(", number, " AS BIGINT), 'fy', ", string, ")")

    def _aggregate(self, kind: str, scope: Scope) -> Node:
        values = {each: str(self._value(each, scope, 1)) for each in DDL_TYPES}
        return Node(f"{kind} aggregate", (self._one_of(_AGGREGATES[kind]).format(**values),), scope=scope)

    def _over(self, kind: str, scope: Scope) -> str:
        inner = self._value("number", scope, 0)
        over = f"OVER (PARTITION BY {self._value('string', scope, 0)} ORDER BY {inner})"
        return {
            "number": f"row_number() {over}",
            "string": f"max('x') {over}",
            "time": f"max(TIMESTAMP'2026-01-01') {over}",
            "struct": f"max(named_struct('fx', 7L, 'fy', 'x')) {over}",
        }[kind]

    def _literal(self, low: int = 0, high: int = 9) -> Node:
        return Node("literal", (str(self._random.randint(low, high)),))

    def _letter(self) -> Node:
        return Node("letter", (self._one_of("wxyz"),))

    def _interval(self) -> Node:
        return Node("interval", (self._one_of(("5 minutes", "10 minutes", "1 hour")),))

    def _fields(self, struct: Column, scope: Scope) -> Scope:
        """Return the fields of a struct column as columns, qualified by a reference to the struct."""
        name = self._named(struct, scope)
        return tuple(Column(name, field, kind) for field, kind in FIELDS)

    def _named(self, column: Column, scope: Scope) -> str:
        """Return a reference to a column; if the name is unique, sometimes without its qualifier."""
        alone = sum(each.name == column.name for each in scope) == 1
        if not column.qualifier or (alone and self._chance(0.25)):
            return column.name
        return f"{column.qualifier}.{column.name}"

    def _alias(self, letter: str) -> str:
        self._taken += 1
        return f"{letter}{self._taken}"

    def _chance(self, share: float) -> bool:
        return self._random.random() < share

    def _one_of(self, things: Sequence[T]) -> T:
        return self._random.choice(things)
