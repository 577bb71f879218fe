"""Table selectors in commands: a name or tag; `+` before it adds upstream tables, `+` after it downstream tables."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from core.lineage.table_graph import distances
from core.model.errors import BadName, UsageError
from core.model.names import TableName, parse_table_name
from core.text.wording import did_you_mean

TAG = "tag:"
FORMS = "write NAME, +NAME, NAME+, 2+NAME+3, or tag:TAG in place of NAME"
_SELECTOR = re.compile(r"(?:(?P<up>[0-9]{0,4})\+)?(?P<what>[^+]+)(?:\+(?P<down>[0-9]{0,4}))?\Z")


@dataclass(frozen=True, slots=True)
class Selector:
    """A parsed selector: the tables to start from, and the number of levels to add in each direction (None for all)."""

    tables: tuple[TableName, ...] = ()
    tag: str = ""
    """Tag of the tables to start from; `tables` is then empty. Empty if the selector names a table."""
    up: int | None = 0
    down: int | None = 0


@dataclass(frozen=True, slots=True)
class SelectableTables:
    """The table graph and the tags to which selectors refer."""

    parents: Callable[[TableName], Iterable[TableName]]
    children: Callable[[TableName], Iterable[TableName]]
    tags: Callable[[], Mapping[str, Iterable[TableName]]]
    """Function that returns the tables of each tag; it is called only if a selector contains a tag."""
    check_tag: Callable[[str], None]
    """Function that raises an error if the tables of a tag cannot be known."""


def is_selector(word: str) -> bool:
    """True if an argument contains `+` or `tag:`, rather than being a plain table name."""
    return "+" in word or word.startswith(TAG)


def parse_selector(word: str) -> Selector:
    """Parse a selector; raises UsageError for a syntax error, and BadName for an invalid table name."""
    found = _SELECTOR.match(word.strip())
    if not found:
        raise UsageError(f"{word!r} is not a selector", remedy=FORMS)
    what = found["what"].strip()
    up, down = (0 if said is None else int(said) if said else None for said in (found["up"], found["down"]))
    if not what.startswith(TAG):
        try:
            return Selector((parse_table_name(what),), up=up, down=down)
        except BadName as error:
            raise BadName(error.summary, remedy=FORMS if ":" in what else error.remedy) from error
    if not what.removeprefix(TAG):
        raise UsageError(f"{word!r} names no tag", remedy=FORMS)
    return Selector(tag=what.removeprefix(TAG), up=up, down=down)


def select_tables(words: Iterable[str], among: SelectableTables) -> tuple[TableName, ...]:
    """Return the tables that match any of the selectors, without duplicates and in the order of the selectors.

    For each selector, the selected tables come first, then upstream tables, then downstream tables. A named table may
    be missing from the graph. Raises UsageError for a tag that no table has, and any error that `among.check_tag`
    raises.
    """
    found: dict[TableName, None] = {}
    for word in words:
        selector = parse_selector(word)
        start = selector.tables or _tagged(selector.tag, among)
        for step, depth in ((among.parents, selector.up), (among.children, selector.down)):
            reached = distances(start, step) if depth != 0 else dict.fromkeys(start, 0)
            found |= dict.fromkeys(table for table, far in reached.items() if depth is None or far <= depth)
    return tuple(found)


def _tagged(tag: str, among: SelectableTables) -> tuple[TableName, ...]:
    among.check_tag(tag)
    known = among.tags()
    if tag not in known:
        tags = (
            did_you_mean(tag, known) or f"tags: {', '.join(sorted(known)) or 'none; add `tags:` to the yml of a table'}"
        )
        raise UsageError(f"no table has the tag {tag!r}", remedy=tags)
    return tuple(sorted(known[tag]))
