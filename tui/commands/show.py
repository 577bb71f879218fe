"""The command `show`: everything that is known of one statement, or its SQL."""

from dataclasses import asdict
from typing import Any

from core.model.states import State
from core.observed.log_history import history_of
from core.sql.log_starts import words_of
from core.text.secrets import mask_literals
from state.ledger_snapshot import StatementDetails
from state.row_types import Deployment, Measurement
from tui.command_line.context import CommandContext
from tui.command_line.fail_on import parse_conditions
from tui.command_line.statement_output import check_fail_on, short_or_dash, statement_as_json
from tui.presentation.styling.value_formatting import batch_took, long_duration, rate, short_duration, short_number
from tui.presentation.view.table_files import held_parts, input_facts, log_words, written_as


def show(context: CommandContext) -> int:
    """Show one statement in full; 1 when `--fail-on` matches it."""
    args, voice = context.args, context.voice
    conditions = parse_conditions(args.fail_on)
    found, snapshot = context.operations.statement(args.table)
    serving = found.shown
    assert serving is not None, "what was found has a version"
    if args.sql:
        text = (serving.texts.dml or serving.texts.ddl).replace("\r\n", "\n")
        voice.print(mask_literals(row) for row in text.split("\n"))
        return 0
    listed = snapshot.serving if found.asked is None else snapshot.statements
    lines = [line for line in listed if line.table == found.table and found.asked in (None, line.version)]
    readers = snapshot.readers_of(found.table, found.asked)
    if voice.as_json:
        line: dict[str, Any] = (
            statement_as_json(lines[0]) if lines else {"table": found.table, "state": str(State.ABSENT)}
        )
        if line.get("rows") is None:
            line["rows"] = found.statistics.rows
        voice.data({"format": "headgate.show/1", **line, **_detail_as_json(serving, found.measurement, readers),
                    "newest_version": _newest_version(found.statistics.log),
                    "figures": {name: value for name, value in asdict(found.statistics).items() if name != "rows"},
                    "versions": [_version_as_json(version) for version in found.versions]})  # fmt: skip
        return check_fail_on(context, conditions, lines)
    voice.print(_sheet(found, serving, readers, snapshot.read_at))
    return check_fail_on(context, conditions, lines)


def _detail_as_json(
    serving: Deployment, measured: Measurement | None, readers: tuple[tuple[str, int], ...]
) -> dict[str, Any]:
    return {
        "query_id": serving.query_id,
        "revision": serving.revision,
        "error": serving.error,
        "error_class": serving.error_class,
        "folder": serving.folder,
        "checkpoint": serving.checkpoint,
        "checkpoint_id": serving.checkpoint_id,
        "trigger": serving.trigger,
        "stateful": serving.stateful,
        "parents": [{"table": b.parent, "version": b.version, "streamed": b.streamed} for b in serving.bindings],
        "begins_where": list(serving.begins_where),
        "readers": [{"table": table, "version": version} for table, version in readers],
        "watermark": measured.watermark if measured else None,
        "state_rows": measured.state_rows if measured else None,
        "state_bytes": measured.state_bytes if measured else None,
        "dropped_by_watermark": measured.dropped_by_watermark if measured else None,
        "sources": list(measured.sources) if measured else [],
    }


def _newest_version(log: str) -> dict[str, Any] | None:
    """Return the newest version of a table's log, and where that begins; None of a table without one."""
    found = history_of(log)
    return {"version": found.last, "at": found.last_at, "log_begins_with": found.first} if found else None


def _version_as_json(deployment: Deployment) -> dict[str, Any]:
    return {
        "version": deployment.version,
        "state": str(deployment.state),
        "wanted": str(deployment.wanted),
        "active": deployment.active,
        "created_at": deployment.created_at,
        "plan": deployment.plan_hash[:12],
        "drop_after": deployment.drop_after,
        "stops_at": deployment.stops_at,
        "served_at": deployment.served_at,
        "served_by": deployment.served_by,
        "clone_of": deployment.clone_of or None,
    }


def _error_words(deployment: Deployment) -> str:
    return f"{deployment.error_class}: {deployment.error}" if deployment.error_class else deployment.error


def _batch_words(m: Measurement) -> str:
    """Write the newest committed batch and how long it took, which nobody knows before the first one since a start."""
    if m.batch is None:
        return "none committed yet"
    took = "its duration is known from the next one on" if m.batch_ms is None else batch_took(m.batch_ms)
    return f"{short_number(m.batch)}  {took}"


def _sheet(found: StatementDetails, d: Deployment, readers: tuple[tuple[str, int], ...], now: float) -> list[str]:
    m = found.measurement

    def field(name: str, value: str) -> str:
        return f"{name:<12}{value}"

    reads = ", ".join(
        f"{b.parent}__v{b.version}" + (" (stream)" if b.streamed else " (static)") if b.version
        else f"{b.parent}" + (" (stream)" if b.streamed else " (static)")
        for b in d.bindings
    )  # fmt: skip
    read_by = ", ".join(f"{table}@v{version}" for table, version in readers) or "nothing here"
    product = f"{d.product}  {d.layer}" + (f"  owner {d.owner}" if d.owner else "")
    rows = m.rows_total if m else None
    if d.external:
        return [
            field("table", f"{d.table}  external: others write it, and Headgate only reads it"),
            field("product", product),
            field("read by", read_by),
            *(field(name, words) for name, words in input_facts(d, found.statistics, rows, now)),
            *([field("error", _error_words(d))] if d.error else []),
        ]
    lines = [
        field("table", f"{d.table} v{d.version}  {d.state} {long_duration(now - d.state_since)}  wanted {d.wanted}"),
        field("product", product),
        field("reads", (reads or "nothing") + "".join(f"  only {words_of(where)}" for where in d.begins_where)),
        field("read by", read_by),
        field(
            "writes",
            f"{d.folder}  ({written_as(d.format, d.mode)}{f', a clone of v{d.clone_of}' if d.clone_of else ''})",
        ),
        field("holds", "  ".join(held_parts(found.statistics, rows, now))),
    ]
    if log := log_words(found.statistics, now):
        lines.append(field("log", log))
    lines.append(field("checkpoint", f"{d.checkpoint}  id {d.checkpoint_id or '-'}  trigger {d.trigger}"))
    if d.error:
        lines.append(field("error", _error_words(d)))
    if m:
        lines += [
            field(
                "behind",
                f"{short_duration(m.behind_s)}  {short_or_dash(m.lag_rows)} rows  {short_or_dash(m.lag_files)} files  "
                f"{m.trend}",
            ),
            field("rates", f"in {rate(m.in_rows_s)}  out {rate(m.out_rows_s)}"),
            field("batch", _batch_words(m)),
        ]
        if d.stateful:
            lines.append(field("state", f"{short_or_dash(m.state_rows)} rows  watermark {m.watermark or '-'}"))
    shown = [
        f"v{v.version} {v.state}" + (" serves" if v.active else "") + (" deleted" if v.drop_after is not None else "")
        for v in found.versions
    ]
    lines.append(field("versions", " · ".join(shown)))
    return lines
