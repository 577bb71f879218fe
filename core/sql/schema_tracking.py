"""Streams of Delta that keep the columns which they have read: where, and how a statement that is bound says so.

With such a log Spark ends a stream once at each change of columns, and the next start goes on over it, also over a
column that was renamed or dropped; without one no start does (Delta 4.4.0).
"""

from collections.abc import Mapping

from core.sql.parsing.stream_clauses import extract_stream_clauses
from core.sql.tokens.lexer import end_of, open_sql, tokens_of
from core.text.escaping import quoted_string_literal

LOGS = "schemas"
"""Folder of a checkpoint that holds one folder for each source: Spark takes none from elsewhere (Delta 4.4.0)."""
_GOES_ON_OVER = ("allowSourceColumnRename", "allowSourceColumnDrop", "allowSourceColumnTypeChange")

Options = tuple[tuple[str, str], ...]


def tracking_options(checkpoint: str, ordinal: int) -> Options:
    """Return the options with which a source of a query keeps its columns, and goes on over every change of them."""
    log = ("schemaTrackingLocation", f"{checkpoint}/{LOGS}/{ordinal}")
    return log, *((name, "always") for name in _GOES_ON_OVER)


def with_stream_options(select: str, options: Mapping[int, Options]) -> str:
    """Write options into the streams of a compiled SELECT, by ordinal in the order of its text, before their own."""
    tokens = tokens_of(open_sql(select, ""))
    streams = sorted((at, mark) for at, mark in extract_stream_clauses(tokens).by_start.items() if mark.streaming)
    ends = {token.start: end_of(token) for token in tokens}
    for ordinal, (at, mark) in reversed(list(enumerate(streams))):
        if not (added := options.get(ordinal)):
            continue
        text = ", ".join(f"{quoted_string_literal(key)}={quoted_string_literal(value)}" for key, value in added)
        if mark.options:
            place = select.index("(", ends[at]) + 1
            select = f"{select[:place]}{text}, {select[place:]}"
        else:
            place = select.index(")", ends[at]) + 1 if "(" in select[mark.begin : at] else ends[at]
            select = f"{select[:place]} WITH ({text}){select[place:]}"
    return select
