"""The files of a table and the log that names them, in words; what was not measured is not told."""

from core.observed.table_statistics import SMALL_FILE, TableStatistics
from core.text.units import long_duration, short_size
from core.text.wording import counted

FRESH_S = 60.0
"""Figures that are younger than this are told without their age."""


def file_words(figures: TableStatistics) -> str:
    """Return size and files, with how many are small where that is known; empty where nothing was measured."""
    if figures.files is None:
        return ""
    words = f"{short_size(figures.bytes or 0)} in {counted(figures.files, 'file')}"
    if not figures.small_files:
        return words
    return f"{words}, {figures.small_files:,} below {short_size(SMALL_FILE)}"


def written_as(format: str, mode: str) -> str:
    """Return how rows come into a table: `delta, keyed`, `parquet, append`; a keyed mode has its writer's number."""
    return f"{format}, {'keyed' if mode.startswith('upsert') else mode}"


def log_words(figures: TableStatistics) -> str:
    """Return how long the log is behind its last checkpoint; empty where there is none, or nothing was measured."""
    if figures.log_entries is None:
        return ""
    size = "size not known" if figures.log_bytes is None else short_size(figures.log_bytes)
    return f"{counted(figures.log_entries, 'version')} since its checkpoint, {size}"


def looked_at_words(figures: TableStatistics, now: float) -> str:
    """Return when a table was looked at, where that is longer ago than a glance; empty where it never was."""
    age_s = 0.0 if figures.at is None else now - figures.at
    return f"as of {long_duration(age_s)} ago" if age_s >= FRESH_S else ""
