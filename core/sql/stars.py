"""Stars that stand for columns: what a table that is read gets comes through them without a word in the text."""

import re

from core.sql.statement import ParsedStatement

_STAR = re.compile(r"(?:\b(?:SELECT|DISTINCT|ALL)\s*|(?<!\bcount)\(\s*|,\s*|\.)\*", re.I)
"""In canonical SQL: no product, and no `count(*)`."""


def says_star(parsed: ParsedStatement) -> bool:
    """Return whether a statement takes columns that it does not name, at any level."""
    return _STAR.search(parsed.canonical) is not None
