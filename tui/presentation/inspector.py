"""Panes beside and below the tree on a wide terminal: the statement under the cursor, commands, the stage."""

from tui.presentation.figures import clock, long_number, long_span, rate, size, verdict
from tui.presentation.glyphs import STATE_TONES, TREND_TONES
from tui.presentation.rows import Look
from tui.presentation.snapshot import Statement, World
from tui.presentation.text import EMPTY, Line, Tone, line, shorten, wrap


def inspector_lines(statement: Statement | None, world: World, look: Look, width: int) -> tuple[Line, ...]:
    """Write the inspector."""
    if statement is None:
        return ()
    figures = statement.measurement
    row = statement.deployment
    glyphs = look.glyphs
    lines: list[Line] = [line((f" {statement.table}", Tone.TITLE), (f"  v{statement.version}", Tone.DIM)), EMPTY]
    if statement.external:
        lines.append(line((" external: filled by others, never touched here", Tone.DIM)))
    else:
        state = f" {glyphs.states[statement.state]} {statement.state} {long_span(look.now - statement.since)}"
        lines.append(line((state, STATE_TONES[statement.state]), (f"   restarts {row.restarts}", Tone.DIM)))
    if row.error:
        lines.append(EMPTY)
        lines.extend(wrap(f"{row.error_class} {row.error}".strip(), width - 2, Tone.BAD, " ")[:6])
    lines.append(EMPTY)
    if figures is not None:
        words = verdict(statement.trend, figures.rate_rows_s, figures.eta_s)
        lines.append(
            line(
                (" lag     ", Tone.DIM),
                f"{long_number(figures.lag_rows)} rows",
                (f"   {glyphs.trends[statement.trend]} {words}", TREND_TONES[statement.trend]),
            )
        )
        lines.append(
            line((" in      ", Tone.DIM), rate(figures.in_rows_s), ("   out ", Tone.DIM), rate(figures.out_rows_s))
        )
        batch = "-" if figures.batch_ms is None else f"{figures.batch_ms / 1000:.1f} s"
        lines.append(line((" batch   ", Tone.DIM), batch, (f" of a {row.trigger} trigger", Tone.DIM)))
        lines.append(
            line((" state   ", Tone.DIM), f"{long_number(figures.state_rows)} rows  {size(figures.state_bytes)}")
        )
        lines.append(line((" rows    ", Tone.DIM), long_number(figures.rows_total)))
        if figures.watermark:
            lines.append(line((" mark    ", Tone.DIM), figures.watermark[11:19] or figures.watermark))
    lines.append(EMPTY)
    for binding in statement.parents:
        word = "streams" if binding.streamed else "joins"
        lines.append(
            line(
                (f" {word:8}", Tone.DIM),
                f"{binding.parent}",
                (f"  v{binding.version}" if binding.version else "  external", Tone.DIM),
            )
        )
    for reader in statement.readers:
        lines.append(line((" read by ", Tone.DIM), reader))
    lines.append(EMPTY)
    for text in row.texts.dml.strip().splitlines()[:14]:
        lines.append(line((" " + shorten(text, width - 2), Tone.DIM)))
    return tuple(lines)


def event_lines(world: World, look: Look, width: int) -> tuple[Line, ...]:
    """Write the newest commands."""
    lines: list[Line] = [line((" COMMANDS", Tone.DIM))]
    for command in world.snapshot.commands[:20]:
        tone = Tone.BAD if command.outcome in ("refused", "failed") else Tone.PLAIN
        lines.append(
            line(
                (f" {clock(command.at)} ", Tone.DIM),
                (
                    shorten(
                        f"{command.op} {command.subject}: {command.outcome} by {command.actor} {command.detail}",
                        width - 12,
                    ),
                    tone,
                ),
            )
        )
    return tuple(lines)


def changes_lines(world: World, look: Look, width: int) -> tuple[Line, ...]:
    """Write what is staged and which runs are open."""
    lines: list[Line] = [line((" STAGED AND RUNNING", Tone.DIM))]
    for run in world.snapshot.open_runs:
        done = sum(1 for step in run.steps if step.state in ("done", "kept", "skipped"))
        lines.append(
            line(
                (f" run {run.id[:4]} {run.state}", Tone.CHANGING),
                f"  {done} of {len(run.steps)} steps",
                (f"  by {run.actor}", Tone.DIM),
            )
        )
    for mark in world.snapshot.staged:
        lines.append(
            line((f" {mark.verb:7}", Tone.MARK), shorten(mark.table, width - 24), (f"  by {mark.actor}", Tone.DIM))
        )
    if len(lines) == 1:
        lines.append(line((" nothing is staged, no run is open", Tone.DIM)))
    return tuple(lines)
