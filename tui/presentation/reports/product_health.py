"""The health of data products, aggregated from their statements by product and layer in one pass."""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any

from core.model.states import STATES_WORST_FIRST, State, Trend, counts_for_many, worst_trend
from core.observed.versions import StatementLine
from core.project.model import layer_place
from tui.presentation.styling.theme import parse_state, parse_trend
from tui.presentation.styling.value_formatting import short_duration, short_number

FAILING = frozenset({State.FAILED, State.DEGRADED, State.UNKNOWN})
LONGEST = 100
"""Maximum length of an error on a line."""

HEAD = ("PRODUCT", "STATEMENTS", "STATE", "BEHIND", "LAG", "TREND", "STAGED")
RIGHT = ("STATEMENTS", "BEHIND", "LAG", "STAGED")


@dataclass(frozen=True, slots=True)
class ProductHealth:
    """The aggregated health of a product, or of one layer of it."""

    name: str
    statements: int
    external: int
    """Number of external tables, which are not statements."""
    states: Mapping[State, int]
    """Number of statements by state, worst state first. States without statements are omitted."""
    trend: Trend
    """The worst trend. It is idle only if no statement has pending input."""
    lag_rows: int | None
    """Sum of the known lags; None if no lag is known."""
    lag_unknown: int
    """Number of statements whose lag in rows is unknown."""
    behind_s: float | None
    """Age of the oldest pending input at its measurement, in seconds; 0 if nothing is pending, None if unknown."""
    staged: int
    failing: tuple[StatementLine, ...]
    """Faulty statements, and external tables that differ from their declaration."""
    layers: "tuple[ProductHealth, ...]" = ()
    """The layers of a product, sources first; empty for a layer."""


def health_by_product(
    lines: Iterable[StatementLine], staged: frozenset[str], products: Iterable[str] = ()
) -> tuple[ProductHealth, ...]:
    """Aggregate the health of statements by product and layer; an empty `products` means all products.

    Products are sorted by name. `lines` has one line per table, and `staged` contains the names of staged tables. An
    external table that differs from its declaration counts as failing if a statement in `lines` reads it.
    """
    lines, wanted = tuple(lines), frozenset(products)
    wrong = {line.table for line in lines if line.external and line.error}
    wrong &= {binding.parent for line in lines if wrong for binding in line.bindings}
    found: dict[str, dict[str, list[StatementLine]]] = {}
    for line in lines:
        if not wanted or line.product in wanted:
            found.setdefault(line.product, {}).setdefault(str(line.layer), []).append(line)
    summed = []
    for product in sorted(found):
        by_layer = sorted(found[product].items(), key=lambda item: layer_place(item[0]))
        layers = tuple(_sum(layer, below, staged, wrong) for layer, below in by_layer)
        every = [line for _, below in by_layer for line in below]
        summed.append(_sum(product, every, staged, wrong, layers))
    return tuple(summed)


def rows(found: Iterable[ProductHealth]) -> list[tuple[str, ...]]:
    """Return one row of cells per product, followed by one row for each of its layers."""
    cells = []
    for product in found:
        cells.append(_row(product, product.name))
        cells += [_row(layer, f"  {layer.name}") for layer in product.layers]
    return cells


def failing_rows(found: Iterable[ProductHealth], now: float) -> list[tuple[str, ...]]:
    """Return a row of cells per failing table: its name, version, product, state with duration, and last error."""
    return [
        (
            str(one.table),
            "" if one.external else f"v{one.version}",
            product.name,
            one.state_word if one.external else f"{one.state} {short_duration(now - one.state_since)}",
            _short(one),
        )
        for product in found
        for one in product.failing
    ]


def as_json(health: ProductHealth) -> dict[str, Any]:
    """Return a product or layer as JSON, in the format `headgate.health/1`; fields may be added, but never changed."""
    found: dict[str, Any] = {
        "layer" if not health.layers else "product": health.name,
        "statements": health.statements,
        "external": health.external,
        "states": {str(state): count for state, count in health.states.items()},
        "trend": str(health.trend),
        "lag_rows": health.lag_rows,
        "lag_unknown": health.lag_unknown,
        "behind_s": health.behind_s,
        "oldest_s": health.behind_s,
        "staged": health.staged,
    }
    if health.layers:
        found["failing"] = [
            {
                "table": one.table,
                "layer": one.layer,
                "version": one.version,
                "state": one.state_word,
                "state_since": one.state_since,
                "error_class": one.error_class,
                "error": one.error,
            }
            for one in health.failing
        ]
        found["layers"] = [as_json(layer) for layer in health.layers]
    return found


def _sum(
    name: str,
    lines: Iterable[StatementLine],
    staged: frozenset[str],
    wrong: Set[str],
    layers: tuple[ProductHealth, ...] = (),
) -> ProductHealth:
    states: dict[State, int] = {}
    external = lag = unknown = marked = 0
    trends = set()
    behind: float | None = None
    failing = []
    for line in lines:
        if line.external:
            external += 1
            failing += [line] if line.table in wrong else []
            continue
        state = parse_state(line.state)
        states[state] = states.get(state, 0) + 1
        marked += line.table in staged
        if line.lag_rows is None:
            unknown += 1
        else:
            lag += line.lag_rows
        if line.behind_s is not None:
            behind = max(behind or 0.0, line.behind_s)
        trend = parse_trend(line.trend or "")
        if counts_for_many(trend, state, line.lag_rows):
            trends.add(trend)
        if state in FAILING:
            failing.append(line)
    count = sum(states.values())
    return ProductHealth(
        name=name,
        statements=count,
        external=external,
        states={state: states[state] for state in STATES_WORST_FIRST if state in states},
        trend=worst_trend(trends),
        lag_rows=lag if unknown < count else None,
        lag_unknown=unknown,
        behind_s=behind,
        staged=marked,
        failing=tuple(failing),
        layers=layers,
    )


def _row(health: ProductHealth, name: str) -> tuple[str, ...]:
    if not health.statements:
        return (name, "0", f"{health.external} external", "", "", "", "")
    lag = "?" if health.lag_rows is None else short_number(health.lag_rows) + ("+?" if health.lag_unknown else "")
    return (
        name,
        str(health.statements),
        ", ".join(f"{count} {state}" for state, count in health.states.items()),
        "?" if health.behind_s is None else short_duration(health.behind_s),
        lag,
        str(health.trend),
        str(health.staged or ""),
    )


def _short(failing: StatementLine) -> str:
    said = ": ".join(filter(None, (failing.error_class, " ".join(failing.error.split()))))
    return said if len(said) <= LONGEST else f"{said[: LONGEST - 1]}…"
