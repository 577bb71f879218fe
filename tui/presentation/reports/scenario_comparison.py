"""The comparison of the demo's scenarios as a table, as Markdown, and as a picture of bars."""

from collections.abc import Mapping, Sequence
from typing import Any

from tui.presentation.styling.table_layout import format_table
from tui.presentation.styling.theme import Glyphs
from tui.presentation.styling.value_formatting import long_number, short_size

BLOCK_BYTES = 8192
"""Bytes in a block of PostgreSQL."""
BAR = 40

_HEAD = (
    "SCENARIO", "P50", "P99", "STATES", "RIGHT", "LATER", "WRONG", "MISSED", "TWICE", "DB TX", "DB READ", "SLOT",
    "STATEMENTS", "STATE",
)  # fmt: skip
_MEANINGS = (
    "P50, P99: from the commit to the row. STATES: committed revisions of orders. RIGHT: rows that show one as it was",
    "committed; LATER: as the database showed it afterwards; WRONG: as it never did. MISSED: states without a row.",
    "TWICE: repeated rows. DB TX, DB READ: transactions, and blocks read, beyond those of the application alone.",
    "SLOT: the most log that a replication slot kept.",
)


def comparison_lines(found: Sequence[Mapping[str, Any]], glyphs: Glyphs) -> list[str]:
    """Return the table, an explanation of its columns, and the bars. `found` has one measured result per scenario."""
    lines = format_table(_HEAD, [_cells(each) for each in found], right=_HEAD[1:])
    return [*lines, "", *_MEANINGS, "", *_latency_bars(found, glyphs), "", *_correctness_bars(found, glyphs)]


def comparison_markdown(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the table and an explanation of its columns as Markdown."""
    rows = [_HEAD, tuple("---" if name == _HEAD[0] else "---:" for name in _HEAD), *map(_cells, found)]
    return [*(f"| {' | '.join(row)} |" for row in rows), "", *_MEANINGS]


def _cells(each: Mapping[str, Any]) -> tuple[str, ...]:
    counts = (long_number(each[name]) for name in ("states", "right", "later", "wrong", "missed", "twice"))
    return (
        _name(each), _seconds(each["p50_s"]), _seconds(each["p99_s"]), *counts,
        long_number(each["database_transactions"]), short_size(each["database_blocks"] * BLOCK_BYTES),
        short_size(each["slot_bytes"]), str(each["statements"]), short_size(each["state_bytes"] or 0),
    )  # fmt: skip


def _latency_bars(found: Sequence[Mapping[str, Any]], glyphs: Glyphs) -> list[str]:
    """Draw the latencies: the first part of a bar ends at p50, the second at p99."""
    longest = max((each["p99_s"] or 0.0 for each in found), default=0.0) or 1.0
    lines = [f"from the commit to the row: {glyphs.full} p50, {glyphs.rest} p99"]
    for each in found:
        half, whole = (round((each[name] or 0.0) / longest * BAR) for name in ("p50_s", "p99_s"))
        drawn = glyphs.full * half + glyphs.rest * (whole - half)
        lines.append(f"  {each['scenario']}  {drawn:{BAR}}  {_seconds(each['p50_s'])}, {_seconds(each['p99_s'])}")
    return lines


def _correctness_bars(found: Sequence[Mapping[str, Any]], glyphs: Glyphs) -> list[str]:
    """Draw the share of committed states that the table shows exactly as committed."""
    lines = [f"states that the table shows as committed: {glyphs.full}"]
    for each in found:
        states = each["states"] or 1
        full = round(min(each["right"], states) / states * BAR)
        drawn = glyphs.full * full + glyphs.rest * (BAR - full)
        others = f"{each['wrong']} wrong, {each['later']} later, {each['missed']} missed"
        lines.append(f"  {each['scenario']}  {drawn}  {each['right']} of {each['states']}; {others}")
    return lines


def _name(each: Mapping[str, Any]) -> str:
    return f"{each['scenario']} {each['title']}"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"
