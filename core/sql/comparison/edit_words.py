"""Edits in words, as `query_edits` says them: in which order they are read, and many of them in one line."""

import re
from collections.abc import Iterable, Mapping

_WHERE = r"(?P<where>(?:\w+: )?(?:(?:before|after) the state: )?)"
_NUMBER_OF_ROWS = re.compile(
    _WHERE + r"(?P<what>condition of the join|join|joined|lateral view|UNION branch|UNION|SELECT|DISTINCT|GROUP BY key|"
    r"limit|source(?= (?:added|removed|changed)))\b(?P<rest>.*)",
    re.DOTALL,
)
_VALUES = re.compile(_WHERE + r"(?:filter|HAVING|column)\b")
_HEAD = re.compile(_WHERE + r"(?P<head>[\w ]+ (?:added|removed|changed)): (?P<text>.+)", re.DOTALL)
_VERB = re.compile(r" (added|removed)\b")
_OWN_ALIAS = re.compile(r"\b_[tc][0-9]+\b")
_SAID_TWICE = re.compile(r"\b(\w+) AS \1\b")
_GROUPED = ("aggregate", "window", "session_window")
_JOINS = ("join", "joined", "condition of the join")


def as_written(canonical: str, aliases: Mapping[str, str]) -> str:
    """Return a canonical text with the aliases of its file (`core.sql.parsing.written_aliases`) in place of its own."""
    text = _OWN_ALIAS.sub(lambda found: aliases.get(found[0]) or "subquery", canonical)
    return _SAID_TWICE.sub(r"\1", text)


def place_of_edit(words: str) -> int:
    """Return the place of an edit in a summary: 0 of what may change the number of rows, 1 of filters and values."""
    return 0 if _NUMBER_OF_ROWS.match(words) else 1 if _VALUES.match(words) else 2


def is_of_state(words: str, kind: str) -> bool:
    """Return whether an edit is of what makes a stateful operator: joins, GROUP BY, or what DISTINCT compares."""
    if kind == "deduplicate":
        return words.startswith("column ")
    found = _NUMBER_OF_ROWS.match(words)
    made_by = _JOINS if kind == "stream_join" else ("GROUP BY key",) if kind in _GROUPED else ()
    return found is not None and found["what"] in made_by


def edit_of_rows(evidence: Iterable[str]) -> str:
    """Return the first edit that may change the number of rows in two or three words: `join added`; else nothing."""
    found = next(filter(None, map(_NUMBER_OF_ROWS.match, evidence)), None)
    if found is None or found["what"] == "source":
        return ""
    what, verb = "join" if found["what"] in _JOINS else found["what"], _VERB.match(found["rest"])
    return f"{what} {verb[1] if verb is not None else 'changed'}"


def edits_by_sort(evidence: Iterable[str]) -> tuple[str, ...]:
    """Return edits with those of one sort as one, with their number."""
    found: dict[str, list[str]] = {}
    for words in evidence:
        head = _HEAD.fullmatch(words)
        found.setdefault(f"{head['where']}{head['head']}" if head else words, []).append(head["text"] if head else "")
    return tuple(_sort_of(head, texts) for head, texts in found.items())


def _sort_of(head: str, texts: list[str]) -> str:
    if texts == [""]:
        return head
    return f"{head}{f' ({len(texts)})' if len(texts) > 1 else ''}: {' · '.join(texts)}"
