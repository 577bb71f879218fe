"""What differs between two queries, part by part: below what they keep as state, the state, and above it."""

import re
from collections.abc import Iterator

from core.changes.kinds import ChangeKind
from core.model.names import TableName
from core.sql.comparison.edit_words import as_written, is_of_state
from core.sql.statement import SIMPLIFIED, Operator, ParsedStatement
from core.text.diff import short_diff

RevisionDifference = tuple[ChangeKind, str]
"""Kind of change, and the edit in words."""


def query_differences(old: ParsedStatement, new: ParsedStatement, *, grown: bool) -> Iterator[RevisionDifference]:
    """Compare what is computed; options and names of sources are compared on their own."""
    stateful = old.stateful or new.stateful
    if _meaning(old) == _meaning(new):
        if old.canonical != new.canonical and _clauses(old) == _clauses(new):
            kind = ChangeKind.STATE_CHANGED if stateful else ChangeKind.FILTER_OR_PROJECTION
            yield from _told(kind, old, new, "canonical")
        return
    if not stateful:
        if old.pre != new.pre:
            swapped = _swapped_static(old, new)
            yield from ((ChangeKind.STATIC_SIDE, words) for words in swapped)
            if not swapped:
                kind = ChangeKind.COLUMN_ADDED if grown else ChangeKind.FILTER_OR_PROJECTION
                yield from _told(kind, old, new, "pre")
        else:
            yield ChangeKind.FILTER_OR_PROJECTION, f"watermark: {_delays(old) or 'none'} → {_delays(new) or 'none'}"
        return
    if old.stateful != new.stateful:
        yield ChangeKind.STATE_CHANGED, f"state: {_kinds(old.operators)} → {_kinds(new.operators)}"
        yield from _told(ChangeKind.STATE_CHANGED, old, new, "canonical")
        return
    said: list[RevisionDifference] = []
    if (old.state, old.operators, _delays(old)) != (new.state, new.operators, _delays(new)):
        said += _state_findings(old, new, grown=grown)
    yield from said
    if old.pre != new.pre:
        before = _told(ChangeKind.CHANGE_BEFORE_STATE, old, new, "pre")
        known = {words for _, words in said}
        yield from ((kind, words if words in known else f"before the state: {words}") for kind, words in before)
    if old.post != new.post:
        kind = ChangeKind.COLUMN_ADDED if grown else ChangeKind.CHANGE_AFTER_STATE
        yield from _told(kind, old, new, "post", where="after the state: ")


def _meaning(parsed: ParsedStatement) -> tuple[object, ...]:
    return (parsed.pre, parsed.state, parsed.post, parsed.operators, _delays(parsed))


def _clauses(parsed: ParsedStatement) -> tuple[object, ...]:
    return tuple((read.table, read.streaming, read.options, read.source_name) for read in parsed.reads)


def _swapped_static(old: ParsedStatement, new: ParsedStatement) -> tuple[str, ...]:
    """Return the replaced static tables, if nothing else was edited."""
    before, after = (
        dict.fromkeys(read.table for read in p.reads if not read.streaming and read.table) for p in (old, new)
    )
    gone, come = [t for t in before if t not in after], [t for t in after if t not in before]
    if len(gone) != len(come):
        return ()
    text = old.pre
    for was, now in zip(gone, come, strict=True):
        text = _with_table(text, was, now)
    return tuple(f"static side: {was} → {now}" for was, now in zip(gone, come, strict=True)) if text == new.pre else ()


def _with_table(text: str, was: TableName, now: TableName) -> str:
    """Replace one table name by another in canonical text, where each table precedes its alias."""
    return re.sub(rf"\b(FROM|JOIN|,) {re.escape(was)} AS (_t\d+)\b", rf"\1 {now} AS \2", text)


def _state_findings(old: ParsedStatement, new: ParsedStatement, *, grown: bool) -> Iterator[RevisionDifference]:
    if old.operators == new.operators and old.read_above != new.read_above:
        yield ChangeKind.STATE_CHANGED, "Spark may keep other aggregates, as it simplifies what reads them"
        if _delays(old) == _delays(new):
            return
    if old.operators == new.operators and _delays(old) != _delays(new):
        # One restart does not both add columns and change when rows are given up.
        same = _watermarked(old) == _watermarked(new) and not grown
        kind = ChangeKind.WATERMARK_DELAY if same else ChangeKind.STATE_CHANGED
        yield kind, f"watermark: {_waters(old)} → {_waters(new)}"
        return
    if [operator.kind for operator in old.operators] != [operator.kind for operator in new.operators]:
        yield ChangeKind.STATE_CHANGED, f"state: {_kinds(old.operators)} → {_kinds(new.operators)}"
        return
    found = [
        each for pair in zip(old.operators, new.operators, strict=True) for each in _operator_edits(*pair, old, new)
    ]
    yield from ((ChangeKind.STATE_CHANGED, words) for words in found)
    if not found:
        yield from _told(ChangeKind.STATE_CHANGED, old, new, "state")


def _operator_edits(was: Operator, now: Operator, old: ParsedStatement, new: ParsedStatement) -> Iterator[str]:
    from core.sql.comparison.query_edits import query_edits
    from core.sql.parsing.written_aliases import aliases_of_both

    aliases = aliases_of_both(old, new)
    sides = tuple(zip((was, now), aliases, strict=True))
    clauses = [words for words in query_edits(old.canonical, new.canonical, aliases) if is_of_state(words, now.kind)]
    yield from clauses
    if was.keys != now.keys and not clauses:
        before, after = (as_written(", ".join(each.keys) or "none", names) for each, names in sides)
        yield f"{_NAMES.get(now.kind, now.kind)} keys: {before} → {after}"
    if was.detail == now.detail or (now.kind == "stream_join" and clauses):
        return
    before, after = (as_written(each.detail, names) for each, names in sides)
    said = short_diff(before, after) if now.kind == "stream_join" else ()
    name = _AGGREGATES.get(now.kind, _NAMES.get(now.kind, now.kind))
    yield from (f"{name}: {words}" for words in said or (f"{before} → {after}",))


_NAMES = {"stream_join": "join of streams", "session_window": "session window"}
_AGGREGATES = dict.fromkeys(("aggregate", "window", "session_window"), "aggregates")
"""What people call operators that have another name in the state."""


def _told(
    kind: ChangeKind, old: ParsedStatement, new: ParsedStatement, part: str, *, where: str = ""
) -> Iterator[RevisionDifference]:
    """Describe an edit of a part of the canonical text by clause, else by words.

    An edit without a description is still a difference.
    """
    # The parser is loaded only where there is something to say.
    from core.sql.comparison.query_edits import query_edits
    from core.sql.parsing.written_aliases import aliases_of_both

    aliases = aliases_of_both(old, new)
    before, after = getattr(old, part), getattr(new, part)
    said = query_edits(before, after, aliases)
    said = said or short_diff(as_written(before, aliases[0]), as_written(after, aliases[1]))
    yield from ((kind, f"{where}{words}") for words in said or ("the meaning of the query changed",))


def _delays(parsed: ParsedStatement) -> str:
    return ", ".join(f"{r.table}.{r.watermark.column} {r.watermark.delay}" for r in parsed.reads if r.watermark)


def _waters(parsed: ParsedStatement) -> str:
    """Return the watermarks as the state names them, those of subqueries included; for people."""
    return ", ".join(parsed.state.partition(SIMPLIFIED)[0].split("; watermark ")[1:]).replace("STREAM ", "") or "none"


def _watermarked(parsed: ParsedStatement) -> tuple[tuple[str, str], ...]:
    return tuple((read.table, read.watermark.column) for read in parsed.reads if read.watermark)


def _kinds(operators: tuple[Operator, ...]) -> str:
    return ", ".join(operator.kind for operator in operators) or "none"
