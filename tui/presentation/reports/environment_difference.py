"""What differs between two environments, table by table, as lines and as JSON."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.model.actions import Action
from core.model.names import TableName
from core.model.states import Fault
from core.observed.versions import StatementLine
from core.plan.descriptions import action_words, change_words
from core.plan.model import PlanNode
from core.text.sentence import Sentence
from core.text.wording import counted, long_duration
from tui.presentation.styling.table_layout import format_table


@dataclass(frozen=True, slots=True)
class TableThere:
    """The serving version of a table in one environment."""

    line: StatementLine
    revision: str
    """Hash of the texts as written, with variables instead of their values."""
    variables: Mapping[str, str]
    """The values of the variables that the texts use."""


@dataclass(frozen=True, slots=True)
class TableInTwo:
    """A table in two environments; a side is None where the table is not deployed."""

    table: TableName
    first: TableThere | None
    second: TableThere | None
    promotion: PlanNode | None
    """What a promotion from the first to the second environment would do; None if unknown, or if it does nothing."""
    refusal: Sentence | None = None
    """Why the promotion is refused; None if it is not."""

    @property
    def differs(self) -> bool:
        """True if the environments run different revisions of the table, or if only one of them runs it.

        Values of variables are meant to differ, so they are no difference.
        """
        return self.first is None or self.second is None or self.first.revision != self.second.revision

    @property
    def values(self) -> dict[str, tuple[str | None, str | None]]:
        """The variables whose values differ, with both values; None if the side does not use the variable."""
        sides = [side.variables if side is not None else {} for side in (self.first, self.second)]
        names = sorted({*sides[0], *sides[1]}) if self.first is not None and self.second is not None else ()
        both = {name: (sides[0].get(name), sides[1].get(name)) for name in names}
        return {name: values for name, values in both.items() if values[0] != values[1]}


def difference_lines(environments: Sequence[str], tables: Iterable[TableInTwo]) -> list[str]:
    """Return a line for each table, below a header with the names of the environments; no line without tables."""
    rows = [(one.table, _place(one.first), _place(one.second), _values(one), _promotion(one)) for one in tables]
    head = ("TABLE", *(name.upper() for name in environments), "VARIABLES", "PROMOTION")
    return format_table(head, rows) if rows else []


def difference_summary(differ: int, same: int, other_values: int) -> str:
    """Return how many tables differ; `other_values` of the `same` run the same revision with other values."""
    words = f"{counted(differ, 'table')} {'differs' if differ == 1 else 'differ'}"
    if not other_values:
        return f"{words}, {same} the same"
    have = "has" if other_values == 1 else "have"
    left = f", {same - other_values} the same" if same > other_values else ""
    return f"{words} in revision, {other_values} {have} the same revision with other values of variables{left}"


def unobserved_words(environment: str) -> str:
    """Return what is not known of an environment without an agent."""
    return f"no agent observes {environment}: its states and lags are those last recorded"


def _values(one: TableInTwo) -> str:
    return ", ".join(f"{name}: {first or '-'} → {second or '-'}" for name, (first, second) in one.values.items()) or "-"


def _place(side: TableThere | None) -> str:
    if side is None:
        return "-"
    line = side.line
    version = f"v{line.version} " if line.version else ""
    fault = line.fault_word if line.fault_word != str(line.state) else ""
    late = line.behind_s is not None and line.behind_s > 0 and not line.external
    behind = f"{long_duration(line.behind_s or 0.0)} behind" if late and fault in ("", Fault.BEHIND) else fault
    missed = ", misses its objective" if fault == Fault.BEHIND else ""
    return f"{version}{side.revision[:8]} {line.state_word}" + (f", {behind}{missed}" if behind else "")


def _promotion(one: TableInTwo) -> str:
    if one.first is None:
        return "stays: a promotion deletes nothing"
    if one.refusal is not None:
        return f"refused: {one.refusal}"
    node = one.promotion
    if node is None or node.action is Action.KEEP:
        return "-" if node is None or not one.differs else "keep"
    return f"{action_words(node)}: {change_words(node)}" if one.second is not None else action_words(node)


def difference_as_json(
    environments: Sequence[str], tables: Iterable[TableInTwo], *, project: str, same: int, other_values: int
) -> dict[str, Any]:
    """Return the comparison in the format `headgate.environments/1`.

    `same` counts the tables that do not differ, and `other_values` those of them whose variables have other values.
    """
    found = [_as_json(environments, one) for one in tables]
    return {
        "format": "headgate.environments/1",
        "project": project,
        "environments": list(environments),
        "differ": sum(one["differs"] for one in found),
        "same": same,
        "other_values": other_values,
        "tables": found,
    }


_SHOWN = ("version", "product", "external", "lag_rows", "behind_s")


def _as_json(environments: Sequence[str], one: TableInTwo) -> dict[str, Any]:
    places = zip(environments, (one.first, one.second), strict=True)
    return {
        "table": one.table,
        "differs": one.differs,
        "in": {name: _side_as_json(side) if side is not None else None for name, side in places},
        "promotion": _promotion_as_json(one),
    }


def _promotion_as_json(one: TableInTwo) -> dict[str, Any] | None:
    node = one.promotion
    if one.refusal is not None:
        return {"action": None, "strategy": None, "row": None, "refused": str(one.refusal)}
    if node is None:
        return None
    return {"action": str(node.action), "strategy": node.strategy or None, "row": node.row or None, "refused": None}


def _side_as_json(side: TableThere) -> dict[str, Any]:
    line = side.line
    shown = {name: getattr(line, name) for name in _SHOWN}
    state = {"state": line.state_word, "fault": line.fault_word or None}
    return {"revision": side.revision, **shown, **state, "variables": dict(side.variables)}
