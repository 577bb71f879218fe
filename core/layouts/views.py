"""Whether a DDL text declares a view: such a table has no files that a stream could follow."""

import re

_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
_VIEW = re.compile(r"\s*create\s+(?:or\s+replace\s+)?(?:global\s+)?(?:temp(?:orary)?\s+|materialized\s+)?view\b", re.I)


def view_declared_in(text: str) -> int | None:
    """Give the line of CREATE VIEW, None where the text declares something else."""
    plain = _COMMENT.sub(lambda found: re.sub(r"[^\n]", " ", found.group()), text.removeprefix("\ufeff"))
    if not _VIEW.match(plain):
        return None
    return plain.count("\n", 0, len(plain) - len(plain.lstrip())) + 1
