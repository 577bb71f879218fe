"""Rows of the tree and of the flat list of statements, with as many columns as fit."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from core.model.states import Fault, State
from core.observed.versions import Measurement, StatementLine
from tui.presentation.styling.styled_text import Line, Span, Tone, left, line, right, shorten, width_of
from tui.presentation.styling.table_layout import TableColumn, table_row, widths
from tui.presentation.styling.theme import STATE_TONES, TREND_TONES, Glyphs, parse_state, parse_trend
from tui.presentation.styling.value_formatting import age, batch_took, rate, short_duration, short_number
from tui.presentation.view.ledger_view import LedgerView, StatementView
from tui.presentation.view.statement_tree import TreeRow, health_of

NAME = TableColumn("name", "TABLE", 0)
STATE = TableColumn("state", "STATE", 10)
VERSION = TableColumn("version", "VER", 4, numeric=True)
BEHIND = TableColumn("behind", "BEHIND", 6, numeric=True)
LAG = TableColumn("lag", "LAG", 5, numeric=True)
TREND = TableColumn("trend", "TREND", 12)
ERRORS = TableColumn("errors", "ERR", 3, numeric=True)
AGE = TableColumn("age", "AGE", 5, numeric=True)
IN = TableColumn("in", "IN/S", 6, numeric=True)
OUT = TableColumn("out", "OUT/S", 6, numeric=True)
BATCH = TableColumn("batch", "BATCH", 7, numeric=True)
ROWS = TableColumn("rows", "ROWS", 6, numeric=True)
PRODUCT = TableColumn("product", "PRODUCT", 10)
LAYER = TableColumn("layer", "LAYER", 12)
OWNER = TableColumn("owner", "OWNER", 12)
TRIGGER = TableColumn("trigger", "TRIGGER", 10)

NARROW_TREE_COLUMNS = (NAME, STATE, BEHIND)
"""Columns of the tree on a wide terminal, where the list next to the tree shows all other columns."""
LIST_COLUMNS = (NAME, STATE, VERSION, BEHIND, LAG, TREND, ERRORS, AGE)
WIDE_COLUMNS = (NAME, STATE, BEHIND, TREND)
MORE_COLUMNS = (IN, OUT, BATCH, ROWS, PRODUCT, LAYER, OWNER, TRIGGER)
"""Columns that are added in this order while they fit."""
_OF_EXTERNAL = frozenset((NAME, STATE, ROWS, PRODUCT, LAYER, OWNER))
"""Columns that apply to external tables."""
_MEASURED = frozenset((BEHIND, LAG, TREND, IN, OUT, BATCH, ROWS))
OLD_S = 60.0
"""Age, in seconds, at which a measurement becomes outdated. Normally statements are measured every few seconds."""
SORTS = ("name", "badness", "state", "behind", "lag", "trend", "errors", "age")
NAME_MINIMUM = 24


def columns_for(width: int, *, wide: bool) -> tuple[TableColumn, ...]:
    """Choose the columns that fit into a width. If `wide`, metrics take precedence over version and age."""
    columns = [*(WIDE_COLUMNS if wide else LIST_COLUMNS)]
    room = width - 1 - sum(column.width + 1 for column in columns) - NAME_MINIMUM
    for column in (*MORE_COLUMNS, *(LIST_COLUMNS if wide else ())):
        if room >= column.width + 1 and column not in columns:
            columns.append(column)
            room -= column.width + 1
    return tuple(columns)


@dataclass(frozen=True, slots=True)
class RowContext:
    """The context for rendering rows: the glyphs, the current time, and whether the data is stale."""

    glyphs: Glyphs
    now: float
    stale: bool = False


def tree_row(entry: TreeRow, columns: Sequence[TableColumn], width: int, look: RowContext, view: LedgerView) -> Line:
    """Render one row of the tree."""
    if entry.statement is None:
        return _branch_row(entry, columns, width, look, view)
    name = _tree_name(entry, look.glyphs)
    if entry.kind == "again":
        dim = line((f"  {name} {look.glyphs.again} above", Tone.DIM))
        return dim
    if entry.kind == "version":
        return _version_row(entry, columns, width, look, view)
    return statement_row(entry.statement, columns, width, look, name=name)


def _tree_name(entry: TreeRow, glyphs: Glyphs) -> str:
    mark = " " if entry.open is None else glyphs.opened if entry.open else glyphs.closed
    return f"{'  ' * entry.depth}{mark} {entry.name}"


def _branch_row(entry: TreeRow, columns: Sequence[TableColumn], width: int, look: RowContext, view: LedgerView) -> Line:
    rollup = health_of(entry, view)
    count = f" ({len(entry.below)})" if entry.open is False else ""
    dim = look.stale or rollup.state is State.RUNNING
    cells = {
        "name": Span(_tree_name(entry, look.glyphs) + count, Tone.TITLE if entry.kind == "product" else Tone.ACCENT),
        "state": Span(rollup.word, Tone.DIM if dim else STATE_TONES[rollup.state]),
    }
    if rollup.statements and (entry.kind == "product" or entry.open is False):
        trend = f"{look.glyphs.trends[rollup.trend]} {rollup.trend}"
        cells["behind"] = Span(_behind_words(rollup.behind_s), Tone.DIM)
        cells["lag"] = Span("" if rollup.lag_rows is None else short_number(rollup.lag_rows), Tone.DIM)
        cells["trend"] = Span(trend, TREND_TONES[rollup.trend])
    if entry.kind == "product" and rollup.errors:
        cells["errors"] = Span(str(rollup.errors), Tone.DIM)
    return table_row(cells, columns, width)


def _version_row(
    entry: TreeRow, columns: Sequence[TableColumn], width: int, look: RowContext, view: LedgerView
) -> Line:
    row = next((row for row in view.others.get(entry.tables[0], ()) if row.version == entry.version), None)
    assert entry.statement is not None
    state = parse_state(row.state) if row else State.ABSENT
    trend = parse_trend(row.trend if row and row.trend else "unknown")
    cells = {
        "name": Span(f"{'  ' * entry.depth}  v{entry.version} {_beside_words(entry, view)}", Tone.DIM),
        "state": Span(f"{look.glyphs.states[state]} {state}", STATE_TONES[state]),
        "version": Span(f"v{entry.version}", Tone.DIM),
        "behind": Span(_behind_words(row.behind_s if row else None), Tone.DIM),
        "lag": Span(short_number(row.lag_rows if row else None), Tone.DIM),
        "trend": Span(f"{look.glyphs.trends[trend]} {trend}", Tone.DIM),
    }
    return table_row(cells, columns, width)


def _beside_words(entry: TreeRow, view: LedgerView) -> str:
    """Describe why a version runs in parallel with the serving one: `coming`, `coming back` or `kept`."""
    assert entry.statement is not None
    table, version, is_newer = entry.tables[0], entry.version, entry.version > entry.statement.version
    pairs = [pair for release in view.snapshot.releases for pair in release.pairs if pair.table == table]
    if any(version == pair.new.version for pair in pairs):
        return "coming" if is_newer else "coming back"
    is_replaced = any(version == pair.old.version for pair in pairs)
    return "coming" if is_newer and not is_replaced else "kept"


def statement_row(
    statement: StatementView, columns: Sequence[TableColumn], width: int, look: RowContext, *, name: str = ""
) -> Line:
    """Render one statement as a row. Unknown values are shown as `?` or `-`."""
    cells: list[Span] = [Span("  ")]
    old = is_old(statement.line, look.now)
    for column, room in zip(columns, widths(columns, width), strict=True):
        if column.id == "name":
            cells.extend(_name_cell(statement, name or statement.table, room, look.glyphs))
        else:
            applies = not statement.external or column in _OF_EXTERNAL or (column is AGE and statement.line.copied_at)
            text, tone = CELLS[column.id](statement, look) if applies else ("", Tone.DIM)
            if (look.stale and tone is not Tone.BAD) or (old and column in _MEASURED):
                tone = Tone.DIM
            cells.append(Span((right if column.numeric else left)(text, room), tone))
        cells.append(Span(" "))
    return tuple(cells)


def is_old(measured: Measurement | StatementLine, now: float) -> bool:
    """True if a measurement is so old that its figures are dimmed."""
    return measured.at is not None and now - measured.at > OLD_S


def age_words(measured: Measurement, now: float) -> str:
    """Return the age of a measurement, to be appended to a line; empty if it is recent."""
    return f"   measured {short_duration(now - (measured.at or now))} ago" if is_old(measured, now) else ""


def _name_cell(statement: StatementView, name: str, room: int, glyphs: Glyphs) -> tuple[Span, ...]:
    badge = badge_of(statement)
    share = f" {glyphs.times}{statement.reader_products} shared" if statement.reader_products > 1 else ""
    space = room - (width_of(badge) + 1 if badge else 0)
    if width_of(name) + len(share) > space:
        share = share.removesuffix(" shared")
    shown = shorten(name, max(space - len(share), 6), glyphs.ellipsis)
    filling = space - width_of(shown) - len(share)
    return (
        Span(shown),
        Span(share, Tone.DIM),
        Span(" " * max(filling, 0)),
        *((Span(" "), Span(badge, Tone.MARK)) if badge else ()),
    )


def badge_of(statement: StatementView) -> str:
    """Return the badge of a staged statement: [D] deploy, [B] hold, [X] delete, [2] if two users staged it."""
    if not statement.staged:
        return ""
    if len(statement.staged) > 1:
        return f"[{len(statement.staged)}]"
    return {"delete": "[X]", "hold": "[B]"}.get(statement.staged[0].verb, "[D]")


def _state(statement: StatementView, look: RowContext) -> tuple[str, Tone]:
    if statement.external:
        mark = look.glyphs.states[State.FAILED] if statement.faulty else look.glyphs.dot
        return f"{mark} external", Tone.BAD if statement.faulty else Tone.DIM
    return f"{look.glyphs.states[statement.state]} {statement.state}", STATE_TONES[statement.state]


def _behind(statement: StatementView, _: RowContext) -> tuple[str, Tone]:
    behind = statement.line.behind_s
    tone = Tone.BAD if statement.line.fault_word == Fault.BEHIND else Tone.PLAIN if behind else Tone.DIM
    return _behind_words(behind), tone


def _behind_words(behind_s: float | None) -> str:
    return "-" if behind_s is None else short_duration(behind_s)


def _lag(statement: StatementView, _: RowContext) -> tuple[str, Tone]:
    mark = "" if statement.line.exact else "~"
    return mark + short_number(statement.lag_rows), Tone.PLAIN if statement.lag_rows else Tone.DIM


def _trend(statement: StatementView, look: RowContext) -> tuple[str, Tone]:
    words = statement.trend_words(statement.line)
    return f"{look.glyphs.trends[statement.trend]} {words}", TREND_TONES[statement.trend]


def _age(statement: StatementView, look: RowContext) -> tuple[str, Tone]:
    """Return the time since the state began or, for an external table with copied rows, since they were copied."""
    return age(look.now - (statement.line.copied_at or statement.line.state_since)), Tone.DIM


def _version(statement: StatementView, _: RowContext) -> tuple[str, Tone]:
    return (f"v{statement.version}" if statement.version else ""), Tone.DIM


def _errors(statement: StatementView, _: RowContext) -> tuple[str, Tone]:
    return str(statement.errors), Tone.BAD if statement.errors else Tone.DIM


def _batch(statement: StatementView, _: RowContext) -> tuple[str, Tone]:
    return batch_took(statement.line.batch_ms), Tone.PLAIN


def _in(statement: StatementView, _: RowContext) -> tuple[str, Tone]:
    return rate(statement.line.in_rows_s, ""), Tone.PLAIN


def _out(statement: StatementView, _: RowContext) -> tuple[str, Tone]:
    return rate(statement.line.out_rows_s, ""), Tone.PLAIN


def _rows(statement: StatementView, _: RowContext) -> tuple[str, Tone]:
    total = statement.line.rows_total
    # Only external tables with a log are measured.
    unknown = "" if statement.external and statement.line.at is None else "-"
    return (unknown if total is None else short_number(total)), Tone.DIM


CELLS: dict[str, Callable[[StatementView, RowContext], tuple[str, Tone]]] = {
    "state": _state,
    "version": _version,
    "behind": _behind,
    "lag": _lag,
    "trend": _trend,
    "errors": _errors,
    "age": _age,
    "in": _in,
    "out": _out,
    "batch": _batch,
    "rows": _rows,
    "product": lambda statement, _: (statement.line.product, Tone.DIM),
    "layer": lambda statement, _: (statement.line.layer, Tone.DIM),
    "owner": lambda statement, _: (statement.line.owner, Tone.DIM),
    "trigger": lambda statement, _: (statement.line.trigger, Tone.DIM),
}

_STATE_ORDER = {
    state: index
    for index, state in enumerate(
        (
            State.FAILED,
            State.DEGRADED,
            State.UNKNOWN,
            State.STARTING,
            State.STOPPING,
            State.PENDING,
            State.RUNNING,
            State.STOPPED,
            State.ABSENT,
            State.COMPLETED,
        )
    )
}
_TREND_WORST = {
    word: index for index, word in enumerate(("stalled", "starved", "growing", "draining", "steady", "idle", "unknown"))
}


def _state_rank(statement: StatementView) -> int:
    """Rank by state, worst first.

    A late running statement counts as degraded; a healthy external table is last.
    """
    if statement.external:
        return _STATE_ORDER[State.FAILED] if statement.faulty else len(_STATE_ORDER)
    is_late = statement.faulty and statement.state is State.RUNNING
    return _STATE_ORDER[State.DEGRADED if is_late else statement.state]


def _badness(statement: StatementView) -> float:
    lag = min(statement.lag_rows or 0, 10**9)
    place = (not statement.faulty) * 1e4 + _state_rank(statement) * 100 + _TREND_WORST[statement.trend]
    return place - lag / 1e10


def sort_key(sort: str) -> Callable[[StatementView], tuple[float, str]]:
    """Return the key function for a sort order, worst first.

    Ties are broken by name, so that the order is stable.
    """
    match sort:
        case "badness":
            return lambda statement: (_badness(statement), statement.table)
        case "state":
            return lambda statement: (_state_rank(statement), statement.table)
        case "behind":
            return lambda statement: (-(statement.line.behind_s or 0.0), statement.table)
        case "lag":
            return lambda statement: (-(statement.lag_rows if statement.lag_rows is not None else -1), statement.table)
        case "trend":
            return lambda statement: (_TREND_WORST[statement.trend], statement.table)
        case "errors":
            return lambda statement: (-statement.errors, statement.table)
        case "age":
            return lambda statement: (-statement.line.state_since, statement.table)
        case _:
            return lambda statement: (0.0, statement.table)
