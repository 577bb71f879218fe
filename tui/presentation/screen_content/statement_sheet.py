"""The fact sheet of a statement: everything known about it, as labelled facts.

The inspector, the detail screen and `headgate show` render the same facts at different widths.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.lag.slowness import slowness_of
from core.model.names import TableName, physical_name, query_name
from core.model.states import ALIVE, State, Trend
from core.model.table_formats import table_format
from core.observed.table_statistics import SMALL_FILE, TableStatistics, history_of
from core.observed.versions import Deployment, Measurement, batch_shares
from core.sql.statement import describe_log_start
from core.text.wording import counted
from state.ledger_snapshot import StatementDetails
from tui.presentation.screen_content.statement_advice import advise, error_text, spark_ui_words
from tui.presentation.screen_content.statement_rows import RowContext, age_words
from tui.presentation.styling.styled_text import Line, Span, Tone, left, width_of, wrap, wrap_line
from tui.presentation.styling.theme import STATE_TONES, TREND_TONES, sparkline
from tui.presentation.styling.value_formatting import (
    batch_took,
    clock,
    long_duration,
    long_number,
    rate,
    short_duration,
    short_number,
    short_size,
    utc_moment,
)
from tui.presentation.view.ledger_view import LedgerView, StatementView

if TYPE_CHECKING:
    from core.observed.time_left import TimeLeft

FRESH_S = 60.0
"""Age in seconds from which a table's figures are shown together with their age."""
LABEL = 12
"""Width of a label in cells, including the space around it."""
CURVE, LONGEST_CURVE = 16, 64
ROOMY = 60
"""Minimum width next to the labels at which a pane shows all parts of a fact."""


@dataclass(frozen=True, slots=True)
class SheetFact:
    """A labelled line of a fact sheet."""

    name: str
    parts: tuple[Span, ...]
    """Parts of the fact, most important first. A part is broken only if it is longer than a line."""
    curve: tuple[float | None, ...] | None = None
    """Samples drawn as a curve after the first part, oldest first; None draws no curve."""
    curve_tone: Tone = Tone.ACCENT
    more: tuple[Span, ...] = ()
    """Less important parts, such as long paths, which a pane narrower than `ROOMY` omits."""


def sheet_text(facts: Iterable[SheetFact]) -> list[str]:
    """Format each fact as one line, however long."""
    texts = ((fact.name, *(part.text for part in (*fact.parts, *fact.more))) for fact in facts)
    return [f"{name:<{LABEL}}{'  '.join(filter(None, parts))}" for name, *parts in texts]


def sheet_lines(facts: Iterable[SheetFact], look: RowContext, width: int) -> tuple[Line, ...]:
    """Render facts as lines of `width` cells. Parts that do not fit continue on the next line."""
    lines: list[Line] = []
    for fact in facts:
        name = Span(f" {left(fact.name, LABEL - 1)}", Tone.TITLE if fact.name.isupper() else Tone.DIM)
        for row in _rows(fact, look, width - LABEL):
            lines.append((name, *row))
            name = Span(" " * LABEL)
    return tuple(lines)


def _rows(fact: SheetFact, look: RowContext, width: int) -> Iterator[Line]:
    parts = [part for part in (*fact.parts, *(fact.more if width >= ROOMY else ())) if part.text]
    if fact.curve is not None:
        cells = max(CURVE, min(width - 52, LONGEST_CURVE))
        curve = Span(sparkline(fact.curve, cells, look.glyphs.levels), fact.curve_tone)
        parts[0] = Span(left(parts[0].text, max(8, width_of(parts[0].text))), parts[0].tone)
        parts.insert(1, curve)
    row: list[Span] = []
    for part in parts:
        if row and sum(width_of(span.text) for span in row) + 2 + width_of(part.text) <= width:
            row += [Span("  "), part]
            continue
        if row:
            yield tuple(row)
        torn = any(width_of(word) > width for word in part.text.split())
        *whole, last = wrap_line((part,), width) if torn else wrap(part.text, width, part.tone)
        yield from whole
        row = list(last) if whole else [part]
    if row:
        yield tuple(row)


def statement_sheet(
    statement: StatementView,
    details: StatementDetails,
    view: LedgerView,
    look: RowContext,
    *,
    readers: Sequence[tuple[str, int]] | None = None,
    by_key: bool = True,
) -> tuple[SheetFact, ...]:
    """Return all facts about one version of a table.

    Facts whose `details` have not been read yet are omitted. `readers` are (table, version) pairs, by default the
    view's. With `by_key`, remedies are keys of the console; otherwise, commands.
    """
    row, deployed = statement.line, details.shown
    known = details.measurement or row.measurement
    if readers is None:
        readers = [(name, view.statements[name].version) for name in statement.readers if view.statement(name)]
    about = (Span(row.product), Span(row.layer), Span(f"owner {row.owner}" if row.owner else ""))
    revision = Span(f"revision {row.revision[:8]}", Tone.DIM)
    read_by = [Span(f"{table}@v{version}" if version else table) for table, version in readers]
    facts = [
        _head(statement, look),
        SheetFact("error", (Span(error_text(row), Tone.BAD),)) if row.error else None,
        _copy(row.copied_at, look) if row.copied_at is not None else None,
        SheetFact("product", about, more=() if statement.external else (revision,)),
        SheetFact("read by", tuple(read_by) or (Span("nothing here", Tone.DIM),)),
    ]
    if not statement.external:
        if statement.state is not State.ABSENT:
            verdict, tone = advise(statement, known, view, look, by_key=by_key)
            facts.insert(1, SheetFact("VERDICT", (Span(verdict, tone),)))
        facts.insert(-1, SheetFact("reads", _reads(statement, deployed)))
        facts.append(_writes(statement, deployed, look))
        if deployed is not None and deployed.writes_topic:
            facts.append(SheetFact("delivers", (Span(_delivery(deployed)),)))
        trigger = Span(f"trigger {statement.line.trigger}", Tone.DIM)
        facts += _measured(statement, known, details, look) if known is not None else (SheetFact("batch", (trigger,)),)
        facts.append(_time_left(statement, look.now))
    elif (held := log_held_for(statement, view, look.now)) is not None:
        facts.append(SheetFact("log kept", (Span(held),)))
    # Facts that are read later come last, so that nothing moves when they arrive.
    facts += _contents_facts(details, known, look.now) if deployed is not None else ()
    if deployed is not None and not statement.external:
        facts += _kept(deployed, details.versions)
    if deployed is not None:
        given = (f"{name} = {value}" for name, value in deployed.texts.variables)
        facts.append(SheetFact("variables", tuple(map(Span, given))))
        if not statement.external and deployed.in_python:
            facts.append(SheetFact("written in", (Span("Python"), Span("headgate help jobs", Tone.DIM))))
        facts.append(SheetFact("functions", tuple(Span(name) for name, _ in deployed.texts.functions)))
    if details.promotion is not None:
        from core.plan.descriptions import promotion_words

        facts.append(SheetFact("origin", (Span(promotion_words(details.promotion, details.table)),)))
    return tuple(fact for fact in facts if fact is not None and any(part.text for part in (*fact.parts, *fact.more)))


def _time_left(statement: StatementView, now: float) -> SheetFact:
    left = statement.time_left(now)
    if left is None:
        return SheetFact("time left", ())
    tone = Tone.BAD if left.is_lost else Tone.CHANGING if left.at_risk else Tone.DIM
    return SheetFact("time left", (Span(str(left.amount), tone), Span(str(left.bound), Tone.DIM), Span(_held(left))))


def log_held_for(source: StatementView, view: LedgerView, now: float) -> str | None:
    """Describe how much log a database keeps for a table of changes, and for which version; None if unknown."""
    if not table_format(source.line.format).changes:
        return None
    lefts = (found.time_left(now) for name in source.readers if (found := view.statement(name)) is not None)
    return next((words for left in lefts if left is not None and (words := _held(left))), None)


def _held(left: "TimeLeft") -> str:
    if left.held_bytes is None:
        return ""
    by = f"{query_name(TableName(left.held_by), left.held_version)}, which does not run" if left.held_by else ""
    return f"{short_size(left.held_bytes)} of WAL kept{f' for {by}' if by else ''}"


def _head(statement: StatementView, look: RowContext) -> SheetFact:
    if statement.external:
        words = Span("external: written by others, only read by Headgate", Tone.DIM)
        return SheetFact("table", (Span(statement.table, Tone.TITLE), words))
    since = f"{statement.state} {long_duration(look.now - statement.line.state_since)}"
    state = Span(f"{look.glyphs.states[statement.state]} {since}".strip(), STATE_TONES[statement.state])
    is_as_wanted = statement.line.wanted == str(statement.state)
    wanted = Span("" if is_as_wanted else f"wanted {statement.line.wanted}", Tone.DIM)
    restarts = (Span(f"restarts {statement.line.restarts}", Tone.DIM),)
    parts = (Span(f"{statement.table} v{statement.version}", Tone.TITLE), state, wanted)
    return (
        SheetFact("table", (*parts, *restarts)) if statement.line.restarts else SheetFact("table", parts, more=restarts)
    )


def _copy(at: float, look: RowContext) -> SheetFact:
    ago = long_duration(max(0.0, look.now - at))
    return SheetFact("rows", (Span(f"copied from the database {ago} ago"), Span("each batch reads the copy", Tone.DIM)))


def _reads(statement: StatementView, deployed: Deployment | None) -> tuple[Span, ...]:
    bound = deployed.bindings if deployed is not None else statement.parents
    parents = [
        Span(f"{one.parent}{f'__v{one.version}' if one.version else ''} ({'stream' if one.streamed else 'static'})")
        for one in bound
    ]
    begins = [
        Span(f"only {describe_log_start(where)}") for where in (deployed.begins_where if deployed is not None else ())
    ]
    return (*(parents or [Span("nothing", Tone.DIM)]), *begins)


def _writes(statement: StatementView, deployed: Deployment | None, look: RowContext) -> SheetFact:
    name, how, clone, folder = Span(f"{statement.table}__v{statement.version}"), statement.line.format, "", ""
    if deployed is not None:
        # For a keyed table, the recorded mode also contains the version of its writer.
        how = f"{deployed.format}, {'keyed' if deployed.mode.startswith('upsert') else deployed.mode}"
        clone, folder = f"a clone of v{deployed.clone_of}" if deployed.clone_of else "", deployed.folder
    parts = (name, Span(how, Tone.DIM), Span(clone))
    if deployed is not None and deployed.writes_topic:
        return SheetFact("writes", parts)
    if not statement.line.active:
        return SheetFact("writes", (*parts, Span("not serving yet", Tone.DIM)), more=(Span(folder, Tone.DIM),))
    pointer = Span(f"pointer {statement.table} {look.glyphs.arrow} v{statement.version}", Tone.DIM)
    return SheetFact("writes", parts, more=(pointer, Span(folder, Tone.DIM)))


def _delivery(deployed: Deployment) -> str:
    # The parser is loaded only for a statement that writes a topic.
    from core.project.model import Settings
    from core.project_reader.table_yml import read_settings
    from core.sql.ddl_reader import read_ddl
    from core.sql.kafka_topics import topic_place
    from core.sql.written_topics import delivery

    compiled = deployed.compiled_ddl.replace(physical_name(deployed.table, deployed.version), deployed.table, 1)
    ddl, _ = read_ddl(compiled, "")
    topic = topic_place(ddl.location).topics[0] if ddl is not None else "?"
    return str(delivery(topic, read_settings(deployed.texts.yml, "", Settings(), []).key))


def _contents_facts(details: StatementDetails, known: Measurement | None, now: float) -> Iterator[SheetFact]:
    deployed, figures = details.shown, details.statistics
    assert deployed is not None, "what holds something is deployed"
    if deployed.external:
        yield SheetFact("lies in", (Span(deployed.folder),))
        yield SheetFact("format", (Span(deployed.format),))
    if deployed.writes_topic:
        return
    rows = known.rows_total if known is not None else None
    yield SheetFact("holds", tuple(map(Span, held_parts(figures, rows, now))))
    if deployed.external:
        yield SheetFact("version", tuple(map(Span, _newest_version(figures, now))))
    if figures.log_entries is not None:
        size = "size not known" if figures.log_bytes is None else short_size(figures.log_bytes)
        length = f"{counted(figures.log_entries, 'version')} since its checkpoint, {size}"
        yield SheetFact("log", (Span(length), Span(_age_words(figures, now))))
    if deployed.external:
        yield SheetFact("id", (Span(deployed.table_id),))


def held_parts(figures: TableStatistics, rows_total: int | None, now: float) -> tuple[str, ...]:
    """Describe the size and age of a table, and the number of its statement's input files that no longer exist."""
    if figures.files is None and rows_total is None:
        gone = "" if figures.at is None else long_duration(now - figures.at)
        return (f"not known: no table was there {gone} ago" if gone else "not measured",)
    rows = figures.rows if rows_total is None else rows_total
    mark = "" if rows is None or rows_total is not None or figures.exact else "~"
    parts = [f"{mark}{'?' if rows is None else short_number(rows)} {'row' if rows == 1 else 'rows'}"]
    if figures.files is not None:
        small = f", {figures.small_files:,} below {short_size(SMALL_FILE)}" if figures.small_files else ""
        parts.append(f"{short_size(figures.bytes or 0)} in {counted(figures.files, 'file')}{small}")
    if figures.earliest is not None:
        parts.append(f"oldest {long_duration(now - figures.earliest)}")
    if figures.gone:
        parts.append(f"{counted(figures.gone, 'file')} it has read no longer exist")
    return (*parts, _age_words(figures, now))


def _newest_version(figures: TableStatistics, now: float) -> tuple[str, ...]:
    found = history_of(figures.log)
    if found is None:
        return ()
    begins = f"the log begins with {found.first}" if found.first else ""
    return (f"{found.last}, committed {long_duration(now - found.last_at)} ago", begins, _age_words(figures, now))


def _age_words(figures: TableStatistics, now: float) -> str:
    age_s = 0.0 if figures.at is None else now - figures.at
    return f"as of {long_duration(age_s)} ago" if age_s >= FRESH_S else ""


def _measured(
    statement: StatementView, known: Measurement, details: StatementDetails, look: RowContext
) -> Iterator[SheetFact]:
    samples, dim = details.samples, Tone.DIM
    lags = tuple(None if one.lag_rows is None else float(one.lag_rows) for one in samples)
    most = max((value for value in lags if value is not None), default=None)
    trend, tone = statement.trend_words(known), TREND_TONES[statement.trend]
    trend = trend if trend.startswith((str(statement.trend), "starting")) else f"{statement.trend}, {trend}"
    of_topics = any(source.get("topics") for source in known.sources)
    wal = sum(size for source in known.sources if isinstance(size := source.get("wal_bytes"), int))
    behind = (
        Span(long_duration(known.behind_s)),
        Span(f"{_counted(known.lag_rows, 'row')}{'' if known.exact else ' (estimate)'}", dim),
        Span("" if of_topics else _counted(known.lag_files, "file"), dim),
        Span(f"{short_size(wal)} of WAL, of all tables" if wal else "", dim),
        Span(f"{look.glyphs.trends[statement.trend]} {trend}".strip(), tone),
        Span(age_words(known, look.now).strip(), dim),
        Span(f"most {short_number(most)} in {short_duration(look.now - samples[0].at)}" if samples else "", dim),
        Span(f"objective {long_duration(known.objective_s)}" if known.objective_s is not None else "", dim),
    )
    yield SheetFact("behind", behind, lags, dim if statement.trend is Trend.IDLE else tone)
    groups = {str(each["group"]): str(each.get("group_fault", "")) for each in known.sources if each.get("group")}
    for group, fault in groups.items():
        mirrored = (
            Span(f"not mirrored: {fault}", Tone.BAD) if fault else Span(f"mirrored to consumer group {group}", dim)
        )
        yield SheetFact("offsets", (mirrored,))
    rates = (Span(f"in {rate(known.in_rows_s)}"), Span(f"out {rate(known.out_rows_s)}"))
    yield SheetFact("rates", rates, tuple(one.in_rows_s for one in samples))
    yield SheetFact("batch", _batch(statement, known), tuple(_float(one.batch_ms) for one in samples))
    held = known.state_rows is not None or statement.line.stateful
    dropped = known.dropped_by_watermark
    yield SheetFact(
        "state",
        (
            Span(_counted(known.state_rows, "row") if held else "none, it is stateless"),
            Span(short_size(known.state_bytes) if held else ""),
            Span(f"watermark {known.watermark[:19] or 'none'}" if held or known.watermark else "", dim),
            Span(f"dropped rows {dropped}" if dropped else "", dim),
        ),
        more=(Span(f"dropped rows {'-' if dropped is None else dropped}" if held and not dropped else "", dim),),
    )
    yield _why_slow(statement, known)
    shares = sorted(batch_shares(known.durations).items(), key=lambda one: -one[1])
    yield SheetFact("bound by", tuple(Span(f"{part} {round(100 * share)}%") for part, share in shares))


def _why_slow(statement: StatementView, known: Measurement) -> SheetFact:
    found = slowness_of(known.slow) if statement.runs and known.slow else None
    parts = (Span(str(found), Tone.CHANGING), Span(str(found.remedy or ""), Tone.DIM)) if found is not None else ()
    return SheetFact("why slow", parts)


def _counted(number: int | None, noun: str) -> str:
    return f"{long_number(number)} {noun}{'' if number == 1 else 's'}"


def _batch(statement: StatementView, known: Measurement) -> tuple[Span, ...]:
    trigger = Span(f"trigger {statement.line.trigger}", Tone.DIM)
    if known.batch is None:
        return (Span(batch_took(known.batch_ms) if known.batch_ms else "none committed yet"), trigger)
    later = "its duration is known from the next one on" if statement.state in ALIVE else ""
    took = later if known.batch_ms is None else batch_took(known.batch_ms)
    number = f"#{long_number(known.batch)}{f' at {clock(known.committed_at)}' if known.committed_at else ''}"
    return (Span(took), Span(number, Tone.DIM), trigger)


def _float(value: float | None) -> float | None:
    return None if value is None else float(value)


def _kept(deployed: Deployment, versions: Iterable[Deployment]) -> Iterator[SheetFact]:
    checkpoint = (Span(f"id {deployed.checkpoint_id or '-'}"), Span(deployed.checkpoint, Tone.DIM))
    created = f"created {utc_moment(deployed.created_at)}" if deployed.created_at else ""
    query = (f"id {deployed.version_id or '-'}", f"version {deployed.version}", created)
    yield SheetFact("query", (), more=tuple(map(Span, query)))
    yield SheetFact("checkpoint", (), more=checkpoint)
    if deployed.pool is not None:
        yield SheetFact("pool", (Span(deployed.pool.name), Span(spark_ui_words(deployed.pool), Tone.DIM)))
    listed = tuple(
        Span(
            f"v{one.version} {one.state}{' serves' if one.active else ''}"
            f"{' deleted' if one.drop_after is not None else ''}"
        )
        for one in versions
    )
    yield SheetFact("versions", listed if len(listed) > 1 else (), more=listed if len(listed) == 1 else ())
