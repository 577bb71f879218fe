"""Evidence of a plan in words: the one place where edits become sentences."""

from collections.abc import Iterable, Mapping
from typing import Any

from core.model.evidence import OF_COLUMNS, Edit, EditKind, EditPlace, Evidence, edit_as_json, is_of_rows, reading_order

LONGEST_EDIT = 90
"""Characters of one expression before it is cut."""

_PLACES = {
    EditPlace.QUERY: "",
    EditPlace.BEFORE_STATE: "before the state: ",
    EditPlace.AFTER_STATE: "after the state: ",
}

_CLAUSES: Mapping[EditKind, str] = {
    EditKind.UNION: "UNION",
    EditKind.UNION_BRANCH: "UNION branch",
    EditKind.SELECT: "SELECT",
    EditKind.SOURCE: "source",
    EditKind.JOIN: "join",
    EditKind.JOIN_CONDITION: "condition of the join with {of}",
    EditKind.LATERAL_VIEW: "lateral view",
    EditKind.GROUP_KEY: "GROUP BY key",
    EditKind.DISTINCT: "DISTINCT",
    EditKind.LIMIT: "limit",
    EditKind.HINT: "hint",
    EditKind.FILTER: "filter",
    EditKind.HAVING: "HAVING",
}
"""Clauses that come, go and change."""

_CHANGES: Mapping[EditKind, str] = {
    EditKind.JOINED: "joined",
    EditKind.JOIN_TYPE: "join with {of}",
    EditKind.EXPRESSION_ORDER: "columns in another order",
    EditKind.EXPRESSION: "column {columns}",
}
"""Clauses that only change: one text becomes another, both cut."""

_WORDS: Mapping[EditKind, str] = {
    EditKind.MORE_PARTS: "and {after} more",
    EditKind.MEANING: "the meaning of the query changed",
    EditKind.STATIC_SIDE: "static side: {before} → {after}",
    EditKind.WATERMARK: "watermark: {before} → {after}",
    EditKind.STATE: "state: {before} → {after}",
    EditKind.OPERATOR_KEYS: "{of} keys: {before} → {after}",
    EditKind.AGGREGATES_READ: "Spark may keep other aggregates, as it simplifies what reads them",
    EditKind.STAR_INTO_STATE: "* takes {columns} into its state",
    EditKind.STATEMENT_ADDED: "a statement was added",
    EditKind.STATEMENT_REMOVED: "its statement was removed",
    EditKind.COMMENTS: "the text changed",
    EditKind.STREAMED: "streamed sources: {moves}",
    EditKind.STREAMED_ORDER: "the streamed sources are in a different order",
    EditKind.STREAMED_ORDER_UNKNOWN: "the streamed sources may be in a different order behind their WITH",
    EditKind.READ_OPTION: "{of}: {before} → {after}",
    EditKind.COLUMN_REMOVED: "column {columns} was removed",
    EditKind.COLUMN_ADDED: "column {columns}{type} is added",
    EditKind.COLUMN_INSERTED: "column {columns} is added before existing columns",
    EditKind.COLUMN_ADDED_NOT_NULL: "column {columns} is added and may not be null",
    EditKind.COLUMN_TYPE: "column {columns}: {before} → {after}",
    EditKind.KEY_TYPE: (
        "column {columns}: {before} → {after}; a key, a sequence or a partition is not widened in place"
    ),
    EditKind.COLUMN_NOT_NULL: "column {columns} may no longer be null",
    EditKind.COLUMN_NULLABLE: "column {columns} may now be null",
    EditKind.COLUMN_ORDER: "the columns are in a different order",
    EditKind.WRITTEN_TYPE: "column {columns}: {after} is written, and the type of the table's column is unknown",
    EditKind.WRITTEN_TYPE_INTO: "column {columns}: {after} is written to {of}",
    EditKind.CAST_REMOVED: "column {columns}: its cast to {before} was removed, and the type now written is unknown",
    EditKind.SETTING: "{of}: {before} → {after}",
    EditKind.SETTING_CHANGED: "{of} changed",
    EditKind.TRACKED: "schema_tracking: columns of its sources are tracked from now on",
    EditKind.NOT_TRACKED: "schema_tracking: columns of its sources are no longer tracked",
    EditKind.CONFIGURATION: "{of}: {default_before} → {default_after}",
    EditKind.SECRET_CONFIGURATION: "{of}: another value",
    EditKind.PINNED: "{of}: {default_before} → {default_after} will be ignored: the checkpoint keeps the old value",
    EditKind.SECRET_PINNED: "{of}: another value will be ignored: the checkpoint keeps the old value",
    EditKind.ENGINE: "Spark {before} → {after}",
    EditKind.OLDER_ENGINE: "Spark {before} → {after}: an older version may not be able to read the checkpoint",
}

_OPERATORS = {"stream_join": "join of streams", "session_window": "session window"}
_CONTENTS = dict.fromkeys(("aggregate", "window", "session_window"), "aggregates")
"""What people call operators, and what they hold, where that has another name in the state."""


def evidence_words(seen: Evidence) -> str:
    """Return what was seen, in a line."""
    if not isinstance(seen, Edit):
        return str(seen)
    head, text = _parts(seen)
    return f"{head}: {text}" if text else head


def evidence_lines(evidence: Iterable[Evidence]) -> tuple[str, ...]:
    """Return a line for each edit, those of one sort as one line with their number."""
    found: dict[str, list[str]] = {}
    for seen in evidence:
        head, text = _parts(seen) if isinstance(seen, Edit) else (str(seen), "")
        found.setdefault(head, []).extend([text] if text else [])
    return tuple(_sort_of(head, texts) for head, texts in found.items())


def edit_of_rows(evidence: Iterable[Evidence]) -> str:
    """Return the first edit that may change the number of rows in two or three words: `join added`; else nothing."""
    edit = next(filter(is_of_rows, evidence), None)
    if not isinstance(edit, Edit) or edit.kind is EditKind.SOURCE:
        return ""
    what = "join" if edit.joins else "limit" if edit.limits else _CLAUSES[edit.kind]
    changed = edit.kind in _CHANGES or edit.kind not in _CLAUSES or edit.kind is EditKind.JOIN_CONDITION
    return f"{what} {'changed' if changed else _verb(edit)}"


def own_edits(evidence: Iterable[Evidence]) -> str:
    """Return the edits of rows and values in a line: what a statement has of its own beside its upstream tables'."""
    return "; ".join(evidence_lines(seen for seen in evidence if reading_order(seen) < 2))


def evidence_as_json(seen: Evidence) -> dict[str, Any]:
    """Return kind and fields with the sentence beside them; `core.model.evidence.evidence_from_json` is its inverse."""
    return {**edit_as_json(seen), "sentence": evidence_words(seen)} if isinstance(seen, Edit) else seen.as_json()


def is_of_columns(seen: Evidence) -> bool:
    """Return whether it is of a single column of the table."""
    return isinstance(seen, Edit) and seen.kind in OF_COLUMNS and seen.place is EditPlace.QUERY


def _sort_of(head: str, texts: list[str]) -> str:
    if not texts:
        return head
    return f"{head}{f' ({len(texts)})' if len(texts) > 1 else ''}: {' · '.join(texts)}"


def _parts(edit: Edit) -> tuple[str, str]:
    """Return what came, went or changed, and the text of it; everything in the first where edits are never one sort."""
    where = f"{edit.table}: " if edit.table else ""
    where += _PLACES[edit.place]
    columns = ", ".join(edit.columns)
    if edit.kind is EditKind.EXPRESSION and not (edit.before and edit.after):
        text = edit.before or edit.after
        return f"{where}column {_verb(edit)}", cut(text if text == columns else f"{columns} = {text}")
    if edit.kind is EditKind.DISTINCT:
        return f"{where}DISTINCT {_verb(edit)}", ""
    if edit.kind in _CLAUSES:
        head = f"{where}{_CLAUSES[edit.kind].format(of=edit.of)} {_verb(edit)}"
        return head, cut(edit.before or edit.after) if _verb(edit) != "changed" else _change(edit)
    if edit.kind in _CHANGES:
        return f"{where}{_CHANGES[edit.kind].format(of=edit.of, columns=cut(columns))}: {_change(edit)}", ""
    return where + _plain_words(edit, columns), ""


def _plain_words(edit: Edit, columns: str) -> str:
    operator = _OPERATORS.get(edit.of, edit.of)
    if edit.kind in (EditKind.OPERATOR, EditKind.TEXT_PART, EditKind.MORE_PARTS):
        name = _CONTENTS.get(edit.of, operator)
        words = f"and {edit.after} more" if edit.kind is EditKind.MORE_PARTS else _part(edit)
        return f"{name}: {words}" if name else words
    return _WORDS[edit.kind].format(
        before=edit.before or "none",
        after=edit.after or "none",
        default_before=edit.before or "its default",
        default_after=edit.after or "its default",
        of=operator,
        columns=columns,
        type=f" {edit.after}" if edit.after else "",
        moves=" ".join(filter(None, (_moved("-", edit.before), _moved("+", edit.after)))),
    )


def _verb(edit: Edit) -> str:
    return "changed" if edit.before and edit.after else "removed" if edit.before else "added"


def _change(edit: Edit) -> str:
    return f"{cut(edit.before)} → {cut(edit.after)}"


def _part(edit: Edit) -> str:
    if edit.before and edit.after:
        return f"{edit.before} → {edit.after}"
    return f"- {edit.before}" if edit.before else f"+ {edit.after}"


def _moved(sign: str, names: str) -> str:
    return f"{sign} {names.replace(', ', f' {sign} ')}" if names else ""


def cut(text: str) -> str:
    """Return an expression that is not longer than a line."""
    return text if len(text) <= LONGEST_EDIT else f"{text[: LONGEST_EDIT - 1]}…"
