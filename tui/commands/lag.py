"""The command `lag`: how far each statement is behind each of its inputs."""

from typing import Any

from core.text.wording import counted
from state.registry import StatementLine
from tui.command_line.context import CommandContext
from tui.command_line.fail_on import parse_conditions
from tui.command_line.output import format_table
from tui.command_line.statement_output import (
    RIGHT,
    behind_text,
    check_fail_on,
    data_age_line,
    lag_text,
    statement_as_json,
    trend_text,
)
from tui.commands.ls import chosen_lines, read_snapshot
from tui.presentation.styling.value_formatting import short_duration, short_number, short_size


def lag(context: CommandContext) -> int:
    """List the lag of every statement, by input."""
    voice = context.voice
    snapshot = read_snapshot(context)
    conditions = parse_conditions(context.args.fail_on)
    lines = [line for line in chosen_lines(context, snapshot) if not line.external]
    measured = {(m.table, m.version): m for m in context.operations.reader.measurements()} if snapshot.facts else {}
    if voice.as_json:
        found = []
        for line in lines:
            measurement = measured.get((line.table, line.version))
            found.append({**statement_as_json(line), "sources": list(measurement.sources) if measurement else []})
        context.document("headgate.lag/1", statements=found)
        return check_fail_on(context, conditions, lines)
    rows = []
    for line in lines:
        rows.append((line.table, "", *_lag_cells(line)))
        measurement = measured.get((line.table, line.version))
        for source in measurement.sources if measurement else ():
            rows.append(("", str(source.get("table", "?")), *_source_cells(source)))
    head = ("TABLE", "INPUT", "BEHIND", "LAG", "FILES", "BYTES", "TREND")
    voice.print(format_table(head, rows, right=RIGHT))
    voice.say(data_age_line(context, snapshot, lines))
    return check_fail_on(context, conditions, lines)


def _lag_cells(line: StatementLine) -> tuple[str, ...]:
    files = "" if line.lag_files is None else str(line.lag_files)
    return (
        behind_text(line),
        lag_text(line),
        files,
        "" if line.lag_bytes is None else short_size(line.lag_bytes),
        trend_text(line),
    )


def _source_cells(source: dict[str, Any]) -> tuple[str, ...]:
    rows = source.get("rows")
    mark = "" if source.get("exact", True) else "~"
    behind = source.get("behind_s")
    return (
        "?" if behind is None else short_duration(behind),
        "?" if rows is None else mark + short_number(rows),
        "" if source.get("files") is None else str(source["files"]),
        "" if source.get("bytes") is None else short_size(source["bytes"]),
        "gone" if source.get("missing") else counted(source["versions"], "version") if source.get("versions") else "",
    )
