"""The functions of a project and what a new body of one would change, as lines and as JSON."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from core.text.wording import counted
from tui.presentation.styling.table_layout import format_table

if TYPE_CHECKING:
    from core.reports.function_uses import FunctionImpact, FunctionUser, FunctionUses

MOST_NAMES = 3
"""Maximum number of tables named in a cell."""


def function_lines(found: "Sequence[FunctionUses]") -> list[str]:
    """Return a table of functions, their users, and the tables that still run with another body."""
    rows = [
        (each.function.signature, each.function.script.path, _named(each.tables), _named(each.functions),
         _named(each.older))
        for each in found
    ]  # fmt: skip
    return format_table(("FUNCTION", "FILE", "USED BY", "IN FUNCTIONS", "OTHER BODY IN"), rows)


def function_as_json(uses: "FunctionUses") -> dict[str, Any]:
    """Return a function with its users as JSON."""
    function = uses.function
    return {
        "function": function.name,
        "file": function.script.path,
        "line": function.line,
        "parameters": [{"name": name, "type": kind} for name, kind in function.parameters],
        "returns": function.result,
        "scope": function.scope or None,
        "used_by": list(uses.tables),
        "used_by_functions": list(uses.functions),
        "other_body_in": list(uses.older),
    }


def function_impact_lines(found: "FunctionImpact") -> list[str]:
    """Return what another body of a function would change."""
    uses, function = found.uses, found.uses.function
    lines = [f"{function.signature}  {function.script.path}:{function.line}"]
    if uses.functions:
        lines.append(f"its body is part of the functions {', '.join(uses.functions)}")
    if not found.users:
        return [*lines, "no statement uses it"]
    lines.append(f"another body changes {counted(len(found.users), 'statement')}:")
    rows = [(each.table, ", ".join(each.through) or "itself", _kind(each), str(each.action)) for each in found.users]
    lines += ["", *format_table(("TABLE", "THROUGH", "CHANGE", "ACTION"), rows)]
    if uses.older:
        lines += ["", f"deployed with another declaration of it: {', '.join(uses.older)}"]
    if found.downstream:
        lines += ["", f"downstream: {', '.join(found.downstream)}"]
    named = " ".join(each.table for each in found.users) if len(found.users) <= MOST_NAMES else "--all"
    return [*lines, "", f"edit the file, then headgate plan {named}"]


def function_impact_as_json(found: "FunctionImpact") -> dict[str, Any]:
    """Return what another body of a function would change as JSON."""
    return {
        **function_as_json(found.uses),
        "users": [
            {"table": each.table, "through": list(each.through), "change": str(each.kind), "action": str(each.action)}
            for each in found.users
        ],
        "downstream": list(found.downstream),
    }


def _kind(user: "FunctionUser") -> str:
    return user.kind.definition.label


def _named(names: Iterable[str]) -> str:
    listed = list(names)
    more = len(listed) - MOST_NAMES
    return ", ".join(listed[:MOST_NAMES]) + (f" +{more}" if more > 0 else "")
