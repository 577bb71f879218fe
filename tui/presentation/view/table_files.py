"""The rows and files of a table and the log that names them, in words; what was not measured is said to be so."""

from core.observed.log_history import history_of
from core.observed.table_statistics import SMALL_FILE, TableStatistics
from core.text.units import long_duration, short_number, short_size
from core.text.wording import counted
from state.row_types import Deployment

FRESH_S = 60.0
"""Figures that are younger than this are told without their age."""


def held_parts(figures: TableStatistics, rows_total: int | None, now: float) -> tuple[str, ...]:
    """Describe what a table holds, and what its statement could not read again; its rows as every list has them."""
    if figures.files is None and rows_total is None:
        return ("not measured" if figures.at is None else f"not known: no table was there {_ago(figures.at, now)}",)
    rows = figures.rows if rows_total is None else rows_total
    mark = "" if rows is None or rows_total is not None or figures.exact else "~"
    parts = [f"{mark}{'?' if rows is None else short_number(rows)} {'row' if rows == 1 else 'rows'}"]
    if figures.files is not None:
        parts.append(file_words(figures))
    if figures.earliest is not None:
        parts.append(f"oldest {long_duration(now - figures.earliest)}")
    if figures.gone:
        parts.append(f"{counted(figures.gone, 'file')} it has read no longer exist")
    parts += filter(None, [looked_at_words(figures, now)])
    return tuple(parts)


def newest_version_words(figures: TableStatistics, now: float) -> str:
    """Return the newest version of a table's log, how old it is, and where its log begins; empty without a log."""
    found = history_of(figures.log)
    if found is None:
        return ""
    begins = f"the log begins with {found.first}" if found.first else ""
    said = f"{found.last}, committed {_ago(found.last_at, now)}"
    return ", ".join(filter(None, (said, begins, looked_at_words(figures, now))))


def input_facts(
    deployment: Deployment, figures: TableStatistics, rows_total: int | None, now: float
) -> tuple[tuple[str, str], ...]:
    """Return name and words of what is known of a table that others write; what is not known is left out."""
    facts = (
        ("lies in", deployment.folder),
        ("format", deployment.format),
        ("holds", ", ".join(held_parts(figures, rows_total, now))),
        ("version", newest_version_words(figures, now)),
        ("log", log_words(figures, now)),
        ("id", deployment.table_id),
    )
    return tuple((name, words) for name, words in facts if words)


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


def log_words(figures: TableStatistics, now: float) -> str:
    """Return how long the log was behind its last checkpoint, and when; empty where there is none, or no figure."""
    if figures.log_entries is None:
        return ""
    size = "size not known" if figures.log_bytes is None else short_size(figures.log_bytes)
    said = f"{counted(figures.log_entries, 'version')} since its checkpoint, {size}"
    return "  ".join(filter(None, (said, looked_at_words(figures, now))))


def looked_at_words(figures: TableStatistics, now: float) -> str:
    """Return when a table was looked at, where that is longer ago than a glance; empty where it never was."""
    age_s = 0.0 if figures.at is None else now - figures.at
    return f"as of {long_duration(age_s)} ago" if age_s >= FRESH_S else ""


def _ago(at: float, now: float) -> str:
    return f"{long_duration(now - at)} ago"
