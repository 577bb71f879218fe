"""What differs between two queries, part by part: below what they keep as state, the state, and above it."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from core.changes.kinds import ChangeKind
from core.model.evidence import Edit, EditKind, EditPlace
from core.model.names import TableName
from core.sql.statement import SIMPLIFIED, Operator, ParsedStatement
from core.text.diff import short_diff

RevisionDifference = tuple[ChangeKind, Edit]
"""Kind of change, and the edit."""

_OWN_ALIAS = re.compile(r"\b_[tc][0-9]+\b")
_SAID_TWICE = re.compile(r"\b(\w+) AS \1\b")


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
            yield from ((ChangeKind.STATIC_SIDE, Edit(EditKind.STATIC_SIDE, *pair)) for pair in swapped)
            if not swapped:
                kind = ChangeKind.COLUMN_ADDED if grown else ChangeKind.FILTER_OR_PROJECTION
                yield from _told(kind, old, new, "pre")
        else:
            yield ChangeKind.FILTER_OR_PROJECTION, Edit(EditKind.WATERMARK, _delays(old), _delays(new))
        return
    if old.stateful != new.stateful:
        yield ChangeKind.STATE_CHANGED, Edit(EditKind.STATE, _kinds(old), _kinds(new))
        yield from _told(ChangeKind.STATE_CHANGED, old, new, "canonical")
        return
    said: list[RevisionDifference] = []
    if (old.state, old.operators, _delays(old)) != (new.state, new.operators, _delays(new)):
        said += _state_findings(old, new, grown=grown)
    yield from said
    if old.pre != new.pre:
        before = _told(ChangeKind.CHANGE_BEFORE_STATE, old, new, "pre")
        known = {edit for _, edit in said}
        yield from (
            (kind, edit if edit in known else replace(edit, place=EditPlace.BEFORE_STATE)) for kind, edit in before
        )
    if old.post != new.post:
        kind = ChangeKind.COLUMN_ADDED if grown else ChangeKind.CHANGE_AFTER_STATE
        after = _told(kind, old, new, "post")
        yield from ((kind, replace(edit, place=EditPlace.AFTER_STATE)) for kind, edit in after)


def _meaning(parsed: ParsedStatement) -> tuple[object, ...]:
    return (parsed.pre, parsed.state, parsed.post, parsed.operators, _delays(parsed))


def _clauses(parsed: ParsedStatement) -> tuple[object, ...]:
    return tuple((read.table, read.streaming, read.options, read.source_name) for read in parsed.reads)


def _swapped_static(old: ParsedStatement, new: ParsedStatement) -> tuple[tuple[str, str], ...]:
    """Return the replaced static tables, each with its replacement, if nothing else was edited."""
    before, after = (
        dict.fromkeys(read.table for read in p.reads if not read.streaming and read.table) for p in (old, new)
    )
    gone, come = [t for t in before if t not in after], [t for t in after if t not in before]
    if len(gone) != len(come):
        return ()
    text = old.pre
    for was, now in zip(gone, come, strict=True):
        text = _with_table(text, was, now)
    return tuple(zip(gone, come, strict=True)) if text == new.pre else ()


def _with_table(text: str, was: TableName, now: TableName) -> str:
    """Replace one table name by another in canonical text, where each table precedes its alias."""
    return re.sub(rf"\b(FROM|JOIN|,) {re.escape(was)} AS (_t\d+)\b", rf"\1 {now} AS \2", text)


def _state_findings(old: ParsedStatement, new: ParsedStatement, *, grown: bool) -> Iterator[RevisionDifference]:
    if old.operators == new.operators and old.read_above != new.read_above:
        yield ChangeKind.STATE_CHANGED, Edit(EditKind.AGGREGATES_READ)
        if _delays(old) == _delays(new):
            return
    if old.operators == new.operators and _delays(old) != _delays(new):
        # One restart does not both add columns and change when rows are given up.
        same = _watermarked(old) == _watermarked(new) and not grown
        kind = ChangeKind.WATERMARK_DELAY if same else ChangeKind.STATE_CHANGED
        yield kind, Edit(EditKind.WATERMARK, _waters(old), _waters(new))
        return
    if [operator.kind for operator in old.operators] != [operator.kind for operator in new.operators]:
        yield ChangeKind.STATE_CHANGED, Edit(EditKind.STATE, _kinds(old), _kinds(new))
        return
    found = [
        each for pair in zip(old.operators, new.operators, strict=True) for each in _operator_edits(*pair, old, new)
    ]
    yield from ((ChangeKind.STATE_CHANGED, edit) for edit in found)
    if not found:
        yield from _told(ChangeKind.STATE_CHANGED, old, new, "state")


def _operator_edits(was: Operator, now: Operator, old: ParsedStatement, new: ParsedStatement) -> Iterator[Edit]:
    from core.sql.comparison.query_edits import query_edits
    from core.sql.parsing.written_aliases import aliases_of_both

    aliases = aliases_of_both(old, new)
    sides = tuple(zip((was, now), aliases, strict=True))
    clauses = [edit for edit in query_edits(old.canonical, new.canonical, aliases) if edit.is_of_state(now.kind)]
    yield from clauses
    if was.keys != now.keys and not clauses:
        before, after = (as_written(", ".join(each.keys), names) for each, names in sides)
        yield Edit(EditKind.OPERATOR_KEYS, before, after, now.kind)
    if was.detail == now.detail or (now.kind == "stream_join" and clauses):
        return
    before, after = (as_written(each.detail, names) for each, names in sides)
    parts = list(_parts(before, after, EditKind.OPERATOR, now.kind)) if now.kind == "stream_join" else []
    yield from parts or [Edit(EditKind.OPERATOR, before, after, now.kind)]


def _parts(before: str, after: str, kind: EditKind, of: str = "") -> Iterator[Edit]:
    pairs, more = short_diff(before, after)
    yield from (Edit(kind, was, now, of) for was, now in pairs)
    if more:
        yield Edit(EditKind.MORE_PARTS, after=str(more), of=of)


def _told(kind: ChangeKind, old: ParsedStatement, new: ParsedStatement, part: str) -> Iterator[RevisionDifference]:
    """Return the edits of a part of the canonical text by clause, else by words.

    An edit without a description is still a difference.
    """
    # The parser is loaded only where there is something to say.
    from core.sql.comparison.query_edits import query_edits
    from core.sql.parsing.written_aliases import aliases_of_both

    aliases = aliases_of_both(old, new)
    before, after = getattr(old, part), getattr(new, part)
    edits = query_edits(before, after, aliases)
    plain = (as_written(before, aliases[0]), as_written(after, aliases[1]))
    yield from ((kind, edit) for edit in edits or tuple(_parts(*plain, EditKind.TEXT_PART)) or (_UNTOLD,))


_UNTOLD = Edit(EditKind.MEANING)


def as_written(canonical: str, aliases: Mapping[str, str]) -> str:
    """Return a canonical text with the aliases of its file (`core.sql.parsing.written_aliases`) in place of its own."""
    text = _OWN_ALIAS.sub(lambda found: aliases.get(found[0]) or "subquery", canonical)
    return _SAID_TWICE.sub(r"\1", text)


def _delays(parsed: ParsedStatement) -> str:
    return ", ".join(f"{r.table}.{r.watermark.column} {r.watermark.delay}" for r in parsed.reads if r.watermark)


def _waters(parsed: ParsedStatement) -> str:
    """Return the watermarks as the state names them, those of subqueries included."""
    return ", ".join(parsed.state.partition(SIMPLIFIED)[0].split("; watermark ")[1:]).replace("STREAM ", "")


def _watermarked(parsed: ParsedStatement) -> tuple[tuple[str, str], ...]:
    return tuple((read.table, read.watermark.column) for read in parsed.reads if read.watermark)


def _kinds(parsed: ParsedStatement) -> str:
    return ", ".join(operator.kind for operator in parsed.operators)
