"""The effects of a change to a table on its readers, as text and as JSON."""

import textwrap
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from core.text.wording import counted
from tui.presentation.reports.table_hierarchy import kept_words

if TYPE_CHECKING:
    from core.model.names import TableName
    from core.reports.impact import Impact, ImpactAnswer, ReachedTable

HEAD = ("EFFECT", "READER", "PRODUCT", "OWNER", "DEPTH", "THROUGH", "KIND", "WHY")
_LEFT_OUT = ((), ("OWNER",), ("OWNER", "KIND"))
"""Sets of columns to omit, tried in turn on a narrow terminal.

After the last set, WHY moves to a separate line.
"""

NARROWEST = 50
"""Minimum width of the WHY column."""

NAMED = 6
"""Maximum number of edited tables to list by name."""

TITLES = {
    "rebuilt": "IF {} WERE REBUILT",
    "dropped": "IF {} WERE DROPPED",
    "column lost": "IF {} WERE LOST",
}


def about(found: "Impact") -> str:
    """Describe whether an impact is based on the deployed tables or only on the declared tables."""
    table = found.root.table
    whose = f"{table} is external: only its owner can rebuild or drop it. " if found.external else ""
    if found.deployed:
        names = ", ".join(found.edited[:NAMED]) + (" and others" if len(found.edited) > NAMED else "")
        other = f"; the files of {names} differ from what is deployed" if found.edited else ""
        return f"{whose}Based on what is deployed of {table} and its readers. Columns are traced in the files{other}."
    return f"{whose}{table} is not deployed: assuming that everything declared is running."


def lines(answer: "ImpactAnswer", found: "Impact", width: int, command: str) -> list[str]:
    """Format the impact of a rebuild, a drop or a lost column: title, refusals, affected tables and outside readers.

    `command` is the command line that plans the change. It is omitted if it is empty or if the plan would be refused.
    """
    name = f"{found.root.table}.{found.root.column}" if found.root.column else str(found.root.table)
    counts: dict[str, int] = {}
    for one in answer.reached:
        counts[one.effect] = counts.get(one.effect, 0) + 1
    summary = ", ".join(f"{count} {effect}" for effect, count in counts.items()) or "nothing reads it"
    verdict = "a plan would be refused; " if answer.refused else ""
    written = textwrap.wrap(f"{TITLES[answer.event].format(name)}: {verdict}{summary}", max(width, 40))
    if command and not answer.refused:
        written.append(f"  {command}")
    for refusal in answer.refusals:
        written += _wrapped(f"refused: {refusal.summary}; {refusal.remedy}", width, "  ")
    written += _readers(answer.reached, width)
    for outside in answer.outside:
        after = f"{outside.before} becomes {outside.after}" if outside.after else f"{outside.before} is dropped"
        owner = f" ({outside.owner})" if outside.owner else ""
        written.append(f"  outside reader: {outside.reader}{owner}, reads {outside.table}: {after}")
    return written


def column_lines(columns: "Mapping[str, Mapping[TableName, str]]", width: int) -> list[str]:
    """Format each column with the tables that use it directly, or `not used`."""
    if not columns:
        return []
    wide = max(map(len, columns))
    written = [f"COLUMNS: {counted(len(columns), 'column')}"]
    for column, uses in columns.items():
        text = f"  {column.ljust(wide)}  " + ("; ".join(f"{t} {place}" for t, place in uses.items()) or "not used")
        written += textwrap.wrap(text, max(width, wide + 40), subsequent_indent=" " * (wide + 4))
    return written


def as_json(found: "Impact", commands: "Mapping[str, str]") -> dict[str, Any]:
    """Return an impact in the JSON format `headgate.impact/1`, without project and environment.

    Fields may be added to the format, but never changed.

    `{"table", "column", "external", "basis": "deployed"|"declared", "edited": [table],
    "answers": [{"if": "rebuilt"|"dropped"|"column lost", "plan": command, "refused",
    "refusals": [{"table", "summary", "remedy"}], "readers": [{"table",
    "product", "layer", "owner", "depth", "through": [{"table", "streamed"}], "streamed", "stateful", "keyed", "state",
    "effect", "why", "uses": place, "makes": [column]}], "outside": [{"reader", "owner", "table", "before", "after"}]}],
    "columns": [{"column", "readers": [{"table", "uses": place}]}]}`. Unknown or unrequested values are null.
    """
    return {
        "table": found.root.table,
        "column": found.root.column or None,
        "external": found.external,
        "basis": "deployed" if found.deployed else "declared",
        "edited": list(found.edited),
        "answers": [_answer(answer, found, commands.get(answer.event, "")) for answer in found.answers],
        "columns": [
            {"column": column, "readers": [{"table": table, "uses": place} for table, place in uses.items()]}
            for column, uses in found.columns.items()
        ],
    }


def _answer(answer: "ImpactAnswer", found: "Impact", command: str) -> dict[str, Any]:
    return {
        "if": str(answer.event),
        "plan": command or None,
        "refused": answer.refused,
        "refusals": [{"table": r.table, "summary": r.summary, "remedy": r.remedy} for r in answer.refusals],
        "readers": [_reached(one, deployed=found.deployed) for one in answer.reached],
        "outside": [
            {
                "reader": one.reader,
                "owner": one.owner or None,
                "table": one.table,
                "before": one.before,
                "after": one.after or None,
            }
            for one in answer.outside
        ],
    }


def _reached(one: "ReachedTable", *, deployed: bool) -> dict[str, Any]:
    return {
        "table": one.table,
        "product": one.product or None,
        "layer": one.layer or None,
        "owner": one.owner or None,
        "depth": one.depth,
        "through": [{"table": reading.table, "streamed": reading.streamed} for reading in one.through],
        "streamed": any(reading.streamed for reading in one.through),
        "stateful": one.stateful,
        "keyed": one.keyed,
        "state": one.state if deployed else None,
        "effect": str(one.effect),
        "why": one.why,
        "uses": one.place or None,
        "makes": list(one.output_columns),
    }


def _readers(reached: "Iterable[ReachedTable]", width: int) -> list[str]:
    rows = [HEAD, *(_cells(one) for one in reached)]
    if len(rows) == 1:
        return []
    widths = [max(len(row[at]) for row in rows) for at in range(len(HEAD))]
    for without in _LEFT_OUT:
        kept = [at for at, name in enumerate(HEAD[:-1]) if name not in without]
        room = width - sum(widths[at] + 2 for at in kept) - 2
        if room >= min(widths[-1], NARROWEST):
            return [line for row in rows for line in _beside(_laid(row, kept, widths), row[-1], room)]
    written = []
    for row in rows:
        written.append(_laid(row, kept, widths).rstrip())
        if row is not HEAD:
            written += _wrapped(row[-1], width, "      ")
    return written


def _laid(row: tuple[str, ...], kept: list[int], widths: list[int]) -> str:
    return "  " + "".join(row[at].ljust(widths[at] + 2) for at in kept)


def _beside(line: str, why: str, room: int) -> list[str]:
    first, *more = textwrap.wrap(why, room)
    return [line + first, *(" " * len(line) + text for text in more)]


def _cells(one: "ReachedTable") -> tuple[str, ...]:
    first, *more = one.through or (None,)
    through = "" if first is None else first.table + ("" if first.streamed else " (static)")
    derives = one.place != one.direct
    why = f"{one.why}; reads a value derived from it at {one.place}" if derives else one.why
    return (
        str(one.effect),
        str(one.table),
        one.product or "undeclared",
        one.owner,
        str(one.depth),
        through + (f" +{len(more)}" if more else ""),
        "" if one.stateful is None else kept_words(stateful=one.stateful, keyed=bool(one.keyed)),
        why,
    )


def _wrapped(text: str, width: int, indent: str) -> list[str]:
    return textwrap.wrap(text, max(width, 40), initial_indent=indent, subsequent_indent=indent)
