"""The command `show`: prints everything known about one statement, or its SQL."""

from dataclasses import asdict
from typing import Any

from core.lag.slowness import slowness_of
from core.model.states import State
from core.observed.table_statistics import history_of
from core.observed.versions import Deployment, Measurement, StatementLine
from core.text.secret_masking import mask_literals
from state.ledger_snapshot import StatementDetails
from tui.command_line.context import CommandContext
from tui.command_line.statement_output import check_fail_on, parse_conditions, statement_as_json
from tui.presentation.screen_content.statement_rows import RowContext
from tui.presentation.screen_content.statement_sheet import LABEL, sheet_text, statement_sheet
from tui.presentation.styling.theme import WORDS_ALONE
from tui.presentation.view.ledger_view import make_ledger_view, statement_view

LONGEST_LINE = 160
"""Width at which lines are wrapped without a terminal: a statement can have hundreds of readers, or a long error."""


def show(context: CommandContext) -> int:
    """Print a statement's details or SQL. Returns 1 if a `--fail-on` condition matches the statement."""
    args, output = context.args, context.output
    conditions = parse_conditions(args.fail_on)
    found, snapshot = context.operations.statement(args.table)
    serving = found.shown
    assert serving is not None, "what was found has a version"
    if args.sql:
        text = (serving.texts.shown["dml"] or serving.texts.ddl).replace("\r\n", "\n")
        output.print(mask_literals(row) for row in text.split("\n"))
        return 0
    listed = snapshot.serving if found.asked is None else snapshot.statements
    lines = [line for line in listed if line.table == found.table and found.asked in (None, line.version)]
    readers = snapshot.readers_of(found.table, found.asked)
    if output.as_json:
        line: dict[str, Any] = (
            statement_as_json(lines[0]) if lines else {"table": found.table, "state": str(State.ABSENT)}
        )
        if line.get("rows") is None:
            line["rows"] = found.statistics.rows
        output.data({"format": "headgate.show/1", **line, **_detail_as_json(found, readers)})
        return check_fail_on(context, conditions, lines, snapshot.statements)
    view = make_ledger_view(snapshot)
    own = view.statement(found.table)
    if own is None or own.version != serving.version:
        own = statement_view(lines[0] if lines else _deleted(serving), serving.bindings)
    look = RowContext(WORDS_ALONE, snapshot.read_at)
    sheet = statement_sheet(own, found, view, look, readers=readers, by_key=False)
    output.print(sheet_text(sheet), hang=LABEL, most=LONGEST_LINE)
    return check_fail_on(context, conditions, lines, snapshot.statements)


_SHARED_WITH_LINES = (
    "table", "version", "product", "layer", "owner", "state", "state_since", "wanted", "error_class", "error",
    "restarts", "revision", "format", "trigger", "active", "external", "stateful",
)  # fmt: skip
"""Fields that StatementLine shares with Deployment."""


def _deleted(d: Deployment) -> StatementLine:
    # The ledger's snapshot does not include deleted versions.
    return StatementLine(**{name: getattr(d, name) for name in _SHARED_WITH_LINES})


_OF_VERSION = (
    "query_id", "revision", "error", "error_class", "folder", "checkpoint", "checkpoint_id", "trigger", "stateful",
)  # fmt: skip
_MEASURED = ("watermark", "state_rows", "state_bytes", "dropped_by_watermark", "objective_s")


def _detail_as_json(found: StatementDetails, readers: tuple[tuple[str, int], ...]) -> dict[str, Any]:
    serving, measured = found.shown, found.measurement
    assert serving is not None, "what was found has a version"
    promotion = found.promotion
    return {
        **{name: getattr(serving, name) for name in _OF_VERSION},
        "query": _query_as_json(serving),
        "promoted_from": promotion.promoted_from if promotion is not None else None,
        "parents": [{"table": b.parent, "version": b.version, "streamed": b.streamed} for b in serving.bindings],
        "begins_where": list(serving.begins_where),
        "variables": dict(serving.texts.variables),
        "functions": dict(serving.texts.functions),
        "readers": [{"table": table, "version": version} for table, version in readers],
        **{name: getattr(measured, name, None) for name in _MEASURED},
        "slow": _slow_as_json(measured),
        "sources": list(measured.sources) if measured else [],
        "newest_version": _newest_version(found.statistics.log),
        "figures": {name: value for name, value in asdict(found.statistics).items() if name != "rows"},
        "versions": [_version_as_json(version) for version in found.versions],
    }


def _slow_as_json(measured: Measurement | None) -> dict[str, Any] | None:
    if measured is None or not measured.slow:
        return None
    found = slowness_of(measured.slow)
    return {**found.as_json(), "remedy": found.remedy} if found is not None else None


def _newest_version(log: str) -> dict[str, Any] | None:
    found = history_of(log)
    return {"version": found.last, "at": found.last_at, "log_begins_with": found.first} if found else None


_IN_LIST = ("version", "active", "created_at", "drop_after", "stops_at", "served_at", "served_by")


def _query_as_json(deployment: Deployment) -> dict[str, Any]:
    return {"id": deployment.version_id, "version": deployment.version, "created_at": deployment.created_at}


def _version_as_json(deployment: Deployment) -> dict[str, Any]:
    return {name: getattr(deployment, name) for name in _IN_LIST} | {
        "query": _query_as_json(deployment),
        "state": str(deployment.state),
        "wanted": str(deployment.wanted),
        "plan": deployment.plan_hash[:12],
        "clone_of": deployment.clone_of or None,
    }
