"""Comparison of expected and actual rows as multisets: a row can be missing, unexpected, or equal only in its key."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.statement_tests.case import Row, TypedColumns
from core.statement_tests.typed_values import written_value

MOST_FOUND = 20_000
"""Maximum number of rows read from a statement's output; a case whose statement writes more rows fails."""

SHOWN = 10
"""Maximum number of rows shown for each kind of difference; further rows are only counted."""


@dataclass(frozen=True, slots=True)
class RowDifference:
    """The difference between expected and actual rows; falsy if both are equal as multisets."""

    columns: TypedColumns
    missing: tuple[Row, ...] = ()
    """Rows that were expected but not found."""
    unexpected: tuple[Row, ...] = ()
    """Rows that were found but not expected."""
    differing: tuple[tuple[Row, Row], ...] = ()
    """Pairs of an expected and a found row with the same key and different values."""

    def __bool__(self) -> bool:
        return bool(self.missing or self.unexpected or self.differing)

    def as_json(self) -> dict[str, Any]:
        """Return the number of rows by kind of difference, and the first `SHOWN` rows of each in fixture notation."""
        return {
            "missing": len(self.missing),
            "unexpected": len(self.unexpected),
            "differing": len(self.differing),
            "missing_rows": [self._written(row) for row in self.missing[:SHOWN]],
            "unexpected_rows": [self._written(row) for row in self.unexpected[:SHOWN]],
            "differing_rows": [self._pair(*pair) for pair in self.differing[:SHOWN]],
        }

    def _written(self, row: Row) -> dict[str, str]:
        return {name: written_value(value, kind) for value, (name, kind) in zip(row, self.columns, strict=True)}

    def _pair(self, expected: Row, found: Row) -> dict[str, Any]:
        wanted, got = self._written(expected), self._written(found)
        columns = {name: [wanted[name], got[name]] for name in wanted if wanted[name] != got[name]}
        return {"row": wanted, "columns": columns}


def compare_rows(
    columns: TypedColumns,
    expected: Iterable[Row],
    found: Iterable[Row],
    *,
    key: Sequence[str] = (),
    tolerance: float = 0.0,
) -> RowDifference:
    """Compare expected rows with those found, as multisets.

    Floats may differ by the relative `tolerance`. Unequal rows are paired as differing if their key values are equal
    and are unique on both sides.
    """
    groups: dict[object, list[tuple[tuple[float, ...], Row]]] = {}
    for row in sorted(found, key=_order):
        shape, floats = _split(row)
        groups.setdefault(shape, []).append((floats, row))
    missing = []
    for row in sorted(expected, key=_order):
        shape, floats = _split(row)
        candidates = groups.get(shape, [])
        at = next((i for i, (other, _) in enumerate(candidates) if _close(floats, other, tolerance)), None)
        if at is None:
            missing.append(row)
        else:
            candidates.pop(at)
    unexpected = sorted((row for group in groups.values() for _, row in group), key=_order)
    pairs = _paired(columns, missing, unexpected, key)
    return RowDifference(
        columns,
        tuple(_without(missing, (wanted for wanted, _ in pairs))),
        tuple(_without(unexpected, (got for _, got in pairs))),
        tuple(pairs),
    )


def _paired(
    columns: TypedColumns, missing: Sequence[Row], unexpected: Sequence[Row], key: Sequence[str]
) -> list[tuple[Row, Row]]:
    places = [i for i, (name, _) in enumerate(columns) if name.lower() in key]
    if not places:
        return []
    left, right = _by_key(missing, places), _by_key(unexpected, places)
    return [(rows[0], right[k][0]) for k, rows in left.items() if len(rows) == 1 == len(right.get(k, ()))]


def _by_key(rows: Iterable[Row], places: Sequence[int]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(repr([row[i] for i in places]), []).append(row)
    return found


def _without(rows: Iterable[Row], paired: Iterable[Row]) -> list[Row]:
    gone = {id(row) for row in paired}
    return [row for row in rows if id(row) not in gone]


def _order(row: Row) -> str:
    return repr(row)


def _split(row: Row) -> tuple[object, tuple[float, ...]]:
    """Split a row into the values that must match exactly, with their types, and its floats in order."""
    floats: list[float] = []

    def shape(value: object) -> object:
        if isinstance(value, tuple):
            return tuple(map(shape, value))
        if isinstance(value, float):
            floats.append(value)
            return float
        # Without the type, True would equal 1, and the decimal 1.0 would equal the integer 1.
        return type(value), value

    return shape(row), tuple(floats)


def _close(one: tuple[float, ...], other: tuple[float, ...], tolerance: float) -> bool:
    return all(
        math.isclose(a, b, rel_tol=tolerance) or (math.isnan(a) and math.isnan(b))
        for a, b in zip(one, other, strict=True)
    )


def difference_lines(difference: Mapping[str, Any]) -> Iterator[str]:
    """Yield the rows in the output of `RowDifference.as_json`: missing, not expected, and with other values."""
    for kind in ("missing", "unexpected"):
        for row in difference[f"{kind}_rows"]:
            yield f"{kind:<11}{_row_words(row)}"
        yield from _rest(difference[kind], len(difference[f"{kind}_rows"]), kind)
    for each in difference["differing_rows"]:
        same = {name: value for name, value in each["row"].items() if name not in each["columns"]}
        told = ", ".join(f"{name} {found}, expected {wanted}" for name, (wanted, found) in each["columns"].items())
        yield f"{'different':<11}{_row_words(same)}: {told}"
    yield from _rest(difference["differing"], len(difference["differing_rows"]), "different")


def _row_words(row: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{name}: {value}" for name, value in row.items() if value != "null") + "}"


def _rest(count: int, shown: int, kind: str) -> Iterator[str]:
    if count > shown:
        yield f"{'':<11}… and {count - shown} more {kind}"
