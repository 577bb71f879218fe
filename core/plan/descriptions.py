"""User-facing text for the nodes, steps and evidence of a plan; only this module turns edits into sentences."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from core.changes.kinds import ChangeKind
from core.model.actions import Action, StepKind, Strategy, typed_strategy
from core.model.evidence import OF_COLUMNS, Edit, EditKind, EditPlace, Evidence, edit_as_json, is_of_rows, reading_order
from core.model.names import TableName, physical_name, query_name
from core.model.reasons import Reason
from core.plan.model import Plan, PlanNode, Step, StrategyOffer, Undo
from core.plan.request import PlanRequest
from core.text.diff import unified_diff
from core.text.wording import counted, duration_range, short_duration, short_number, short_size

GLYPH_BY_ACTION = {
    Action.START: "+",
    Action.RESUME: ">",
    Action.RESTART: "~",
    Action.REBUILD: "^",
    Action.RECORD: ".",
    Action.STOP: "x",
    Action.DELETE: "-",
    Action.ROLLBACK: "<",
    Action.UNDELETE: "+",
    Action.RETIRE: "-",
    Action.OPTIMIZE: "*",
    Action.VACUUM: "-",
    Action.KEEP: "=",
}
"""The character shown before each table of a plan, on every screen and in every printout."""

_CHANGE_BY_REASON = {
    Reason.READS_OLD_VERSION: "upstream moved on",
    Reason.PARENT_REWRITTEN: "upstream rewritten",
    Reason.PARENT_CHAINED: "upstream continues",
    Reason.COLUMNS_ABOVE: "upstream column added",
    Reason.COLUMNS_STOP_READERS: "upstream column added",
    Reason.TYPES_STOP_READERS: "upstream type widened",
    Reason.COLUMNS_IN_STATE: "upstream column added",
    Reason.TYPES_IN_STATE: "upstream type widened",
    Reason.WITH_ITS_SET: "with its statement set",
}
_SPARK = {
    False: "Spark analyses it differently, so it is treated as the most severe change",
    True: "confirmed by Spark",
    None: "not confirmed by Spark",
}
_REPLAYS = frozenset({Action.START, Action.REBUILD})
_NUMBER_AND_UNIT = re.compile(r"(?<=\d)(?=[A-Za-z])")


def promotion_words(request: PlanRequest, table: TableName) -> str:
    """Return from where a plan promotes a table, such as `promoted from dev, plan 7f3a there`; empty if it does not."""
    found = next((each for each in request.promotes if each.table == table), None)
    if found is None:
        return ""
    plan = f", plan {found.plan[:4]} there" if found.plan else ""
    return f"promoted from {request.promoted_from}: revision {found.revision[:8]}{plan}"


def change_words(node: PlanNode) -> str:
    """Return the text of column CHANGE: first an edit that may change the number of rows, then the kind of change."""
    kind, rows, special = node.change, edit_of_rows(node.evidence), _special_change(node)
    words = special if special is not None else kind.definition.label if kind is not None else ""
    if not rows or node.confirmed_by_spark is False:
        return words
    return rows if kind is ChangeKind.FILTER_OR_PROJECTION and special is None else f"{rows}, {words}"


def _special_change(node: PlanNode) -> str | None:
    kind = node.change
    if node.confirmed_by_spark is False:
        return "Spark disagrees"
    if node.reason in (Reason.PARENT_REBUILT, Reason.STATIC_PARENT_REBUILT):
        own = f", {kind.definition.label}" if kind is not None and not kind.definition.follows_from_parent else ""
        return f"upstream re-created{own}"
    if node.reason in _CHANGE_BY_REASON:
        return _CHANGE_BY_REASON[node.reason]
    if node.action is Action.DELETE:
        return "delete requested"
    if node.action in (Action.ROLLBACK, Action.UNDELETE, Action.RETIRE, Action.OPTIMIZE, Action.VACUUM):
        return f"{node.action} requested"
    if node.action is Action.START:
        return "new"
    if not node.classified:
        return "not known"
    if kind is ChangeKind.NONE and node.action in (Action.RESUME, Action.REBUILD):
        return "does not run" if node.action is Action.RESUME else "rebuild requested"
    return None


def action_words(node: PlanNode) -> str:
    """Return the action of a node and its versions, for example `rebuild v3→v4`."""
    if node.action is Action.REBUILD and node.version == node.from_version:
        return f"rewrite v{node.version}"
    if node.action is Action.REBUILD:
        return f"rebuild v{node.from_version}→v{node.version}"
    if node.action is Action.ROLLBACK:
        return f"back v{node.from_version}→v{node.version}"
    if node.action is Action.UNDELETE:
        return f"undelete v{node.version}"
    if node.action is Action.RETIRE:
        return f"retire {', '.join(node.loses)}"
    if (node.action is Action.START and not node.version) or node.reason is Reason.DECLARED_ANEW:
        return "register"
    if node.action is Action.START:
        return f"start v{node.version}"
    return str(node.action)


def reason_words(node: PlanNode) -> str:
    """Return the text of column WHY: a node's evidence or, if it has none, its reason and the tables that caused it."""
    if node.reason in (Reason.PARENT_REBUILT, Reason.STATIC_PARENT_REBUILT):
        kind = "stateful" if node.stateful else "stateless"
        own = own_edits(node.evidence)
        return f"{own}{'; ' if own else ''}{kind}; reads {', '.join(node.because_of)}"
    if node.evidence:
        return "; ".join(evidence_lines(node.evidence))
    return f"{node.reason.words}: {', '.join(node.because_of)}" if node.because_of else str(node.reason.words)


def replay_words(node: PlanNode) -> str:
    """Return the number of rows that a node reads again, for example `81 M`; `?` if unknown, `-` if none."""
    if not _has_cost(node) and node.replay_rows is None:
        return "-"
    return number_and_unit(short_number(node.replay_rows))


def eta_words(node: PlanNode) -> str:
    """Return when the last step of a node ends, counted from the start of the run, for example `< 40 s`.

    `?` if unknown, `-` if the table is kept.
    """
    return "-" if node.action is Action.KEEP else range_words(node)


def range_words(of: PlanNode | Step | Undo | Plan) -> str:
    """Return the predicted duration of a node, step, undo or plan as a range; `?` if unknown."""
    if of.predicted_low_s is None or of.predicted_high_s is None:
        return "?"
    return duration_range(of.predicted_low_s, of.predicted_high_s).replace("up to ", "< ")


def undo_words(node: PlanNode) -> str:
    """Return a node's label for column UNDO: `none` if no command undoes it, `-` if there is nothing to undo."""
    return node.undo or "-"


def undo_command(plan: Plan, way: Undo, options: str = "") -> str:
    """Return the command of an undo, with the placeholder RUN if no agent has the plan; empty if there is none.

    `options` select the environment, such as ` --env stage`; empty if the command needs none.
    """
    if way.act == "rollback":
        return f"headgate rollback {way.tables[0]}{options}"
    if way.act == "pool drain":
        pool = next(node.pool for node in plan.nodes if node.table == way.tables[0])
        return f"headgate pool drain {pool} --to {plan.request.drains}{options}"
    if way.act != "plan undo":
        return f"headgate {way.act} {' '.join(way.tables)}{options}" if way.act else ""
    kept = plan.request.nonce or plan.request.continues
    return f"headgate plan undo {plan.hash[:12] if kept else 'RUN'}{options}"


def undo_effect(way: Undo) -> str:
    """Return what an undo does, including the rows that it reads and its ETA."""
    if way.replay_rows != 0:
        return f"{way.words}; reads {number_and_unit(short_number(way.replay_rows))} rows again, ETA {range_words(way)}"
    eta = f", ETA {range_words(way)}" if way.predicted_high_s is not None else ""
    return f"{way.words}; no row is read again{eta}" if way.act == "plan undo" else str(way.words)


def lowered_words(node: PlanNode) -> str:
    """Return a clause that warns of a strategy, chosen by the operator, that is less severe than a node's default."""
    if node.strategy == Strategy.KEYED:
        return "rows may stay that a rebuild would not produce"
    return "less severe than the default"


def values_words(node: PlanNode) -> str:
    """Return the variables of a new table, with their values, and its functions; empty for others.

    The evidence of other tables has what changed.
    """
    if node.action is not Action.START:
        return ""
    values = ", ".join(f"{name} = {value}" for name, value in node.texts.variables)
    functions = ", ".join(name for name, _ in node.texts.functions)
    parts = ((values, "variables"), (functions, "functions"))
    return " · ".join(f"{label}: {words}" for words, label in parts if words)


def spark_words(node: PlanNode) -> str:
    """Return a sentence on whether Spark confirmed a node's new or changed statement; empty for other nodes."""
    return _SPARK[node.confirmed_by_spark] if node.for_spark or node.confirmed_by_spark is not None else ""


def spark_word(confirmed: bool | None) -> str:
    """Return the sentence on a statement that Spark confirms (True), contradicts (False) or did not check (None)."""
    return _SPARK[confirmed]


def offer_lines(node: PlanNode, *, every: bool = False) -> tuple[str, ...]:
    """Return a line for each strategy allowed for a node, with costs and losses.

    Without `every`, a strategy that no agent can execute yet is included only if the operator chose it.
    """
    shown = (offer for offer in node.offers if every or offer.executable or offer.strategy == node.strategy)
    return tuple(_offer_line(offer, chosen=offer.strategy == node.strategy) for offer in shown)


def node_why(plan: Plan, table: TableName, options: str = "") -> tuple[str, ...]:
    """Return lines that explain a node: reason, evidence, losses, undo, strategies, warnings, and file diffs.

    `options` are those of the suggested commands, as in `undo_command`.
    """
    node = next((node for node in plan.nodes if node.table == table), None)
    if node is None:
        return (f"{table} is not in this plan",)
    lines = [
        f"{node.table}: {action_words(node)}",
        f"  because {node.reason.clause}",
    ]
    if node.because_of:
        lines.append(f"  because of {', '.join(node.because_of)}")
    lines += [f"  {node.placed}"] if node.placed is not None else []
    lines += [f"  evidence: {evidence_words(seen)}" for seen in node.evidence]
    lines += [f"  {words}" for words in (values_words(node), spark_words(node)) if words]
    if node.lowered:
        lines.append(f"  {lowered_words(node)}; needs an approval")
    if node.at:
        lines.append(f"  starts at {node.at}")
    if node.loses:
        lines.append(f"  loses {', '.join(node.loses)}")
    for way in plan.undo:
        if table in way.tables:
            lines.append(f"  undo: {undo_command(plan, way, options) or 'no way back'}: {undo_effect(way)}")
            lines += [f"  undone {way.until}"] if way.until else []
    shown = offer_lines(node)
    lines += [f"  option {line}" for line in shown]
    if hidden := len(node.offers) - len(shown):
        lines.append(f"  {counted(hidden, 'more option')} not executable yet: --json has all")
    lines += [f"  warning: {warned.summary}" for warned in plan.warnings if warned.table == table]
    before = node.old.shown
    for name, new in node.texts.shown.items():
        old = before[name]
        changed = unified_diff(old, new) if node.action is not Action.DELETE and node.old.ddl else ()
        lines += [f"  {name}.{node.table}", *(f"  {line}" for line in changed)] if changed else []
    return tuple(line.rstrip() for line in lines)


def number_and_unit(text: str) -> str:
    """Insert a space before the unit of a formatted number: `81M` becomes `81 M`."""
    return _NUMBER_AND_UNIT.sub(" ", text)


def _offer_line(offer: StrategyOffer, *, chosen: bool) -> str:
    marks = (["chosen"] if chosen else []) + ([] if offer.executable else ["not executable yet"])
    mark = f" ({', '.join(marks)})" if marks else ""
    parts = [
        f"replays {number_and_unit(short_number(offer.replay_rows))} rows",
        f"reading {number_and_unit(short_duration(offer.eta_s))} at best",
    ]
    parts.append(f"disk {short_size(offer.disk_bytes)}")
    parts.append(f"loses {', '.join(offer.loses)}" if offer.loses else "loses nothing")
    parts += [str(offer.note)] if offer.note else []
    return f"{typed_strategy(offer.strategy)}{mark}: {'; '.join(parts)}"


def _has_cost(node: PlanNode) -> bool:
    return node.action in _REPLAYS and node.version > 0


def step_line(step: Step) -> str:
    """Return a line with a step's number, action, object and prerequisite steps."""
    return f"{step.n:>3} {step_words(step)}" + (f"   needs {', '.join(map(str, step.after))}" if step.after else "")


def step_words(step: Step) -> str:
    """Return the action and object of a step; the object is a physical table, a query or pointers."""
    match step.do:
        case StepKind.SWAP | StepKind.HOLD:
            return f"{act_words(step.do)} {' '.join(step.tables)}"
        case StepKind.CATCH_UP | StepKind.VALIDATE | StepKind.SOAK:
            return f"{act_words(step.do)} {query_name(step.table, step.version)}"
        case StepKind.START | StepKind.RESUME | StepKind.RESTART | StepKind.STOP:
            return f"{act_words(step.do)} {query_name(step.table, step.version)}"
        case StepKind.SEAM | StepKind.REWRITE:
            return f"{act_words(step.do)} {query_name(step.table, step.version)}"
        case (
            StepKind.CREATE
            | StepKind.FORK
            | StepKind.SEED
            | StepKind.ALTER
            | StepKind.TOMBSTONE
            | StepKind.RESTORE
            | StepKind.OPTIMIZE
            | StepKind.VACUUM
        ) if step.version:
            return f"{act_words(step.do)} {physical_name(step.table, step.version)}"
        case _:
            return f"{act_words(step.do)} {step.table}"


def act_words(do: str) -> str:
    """Return the action of a step kind in common database and file terms."""
    return _ACTS.get(do, do.replace("_", " "))


_ACTS: Mapping[str, str] = {StepKind.UNPOINT: "drop view", StepKind.TOMBSTONE: "trash"}


LONGEST_EDIT = 90
"""Maximum length of an expression in characters; a longer expression is truncated."""

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
    EditKind.CODE: "code",
}
"""Clauses that can be added, removed or changed."""

_CHANGES: Mapping[EditKind, str] = {
    EditKind.JOINED: "joined",
    EditKind.JOIN_TYPE: "join with {of}",
    EditKind.EXPRESSION_ORDER: "columns in another order",
    EditKind.EXPRESSION: "column {columns}",
    EditKind.FUNCTION: "function {of}",
}
"""Clauses that can only be changed, never added or removed; the SQL before and after is truncated."""

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
    EditKind.FIELD_NAME: "column {columns}: the field of a message is {after}, and no longer {before}",
    EditKind.COLUMN_ORDER: "the columns are in a different order",
    EditKind.WRITTEN_TYPE: "column {columns}: {after} is written, and the type of the table's column is unknown",
    EditKind.WRITTEN_TYPE_INTO: "column {columns}: {after} is written to {of}",
    EditKind.CAST_REMOVED: "column {columns}: its cast to {before} was removed, and the type now written is unknown",
    EditKind.SETTING: "{of}: {before} → {after}",
    EditKind.SETTING_CHANGED: "{of} changed",
    EditKind.VARIABLE: "variable {of}: {before} → {after}",
    EditKind.CODE_CONTINUES: "state_compatible: the new code continues the state of the code {before}",
    EditKind.CODE_STATE_UNKNOWN: (
        "the new code may not read the state of the old code; if it does, state_compatible: {before} in its yml says so"
    ),
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
"""User-facing names of stateful operators and of their contents, where the state uses other names."""


def evidence_words(seen: Evidence) -> str:
    """Return a piece of evidence as one line."""
    if not isinstance(seen, Edit):
        return str(seen)
    head, text = _parts(seen)
    return f"{head}: {text}" if text else head


def evidence_lines(evidence: Iterable[Evidence]) -> tuple[str, ...]:
    """Return evidence as lines; similar edits share a line, which gives their number."""
    found: dict[str, list[str]] = {}
    for seen in evidence:
        head, text = _parts(seen) if isinstance(seen, Edit) else (str(seen), "")
        found.setdefault(head, []).extend([text] if text else [])
    return tuple(_sort_of(head, texts) for head, texts in found.items())


def edit_of_rows(evidence: Iterable[Evidence]) -> str:
    """Return a label for the first edit that may change the number of rows, such as `join added`; empty if none."""
    edit = next(filter(is_of_rows, evidence), None)
    if not isinstance(edit, Edit) or edit.kind is EditKind.SOURCE:
        return ""
    what = "join" if edit.joins else "limit" if edit.limits else _CLAUSES[edit.kind]
    changed = edit.kind in _CHANGES or edit.kind not in _CLAUSES or edit.kind is EditKind.JOIN_CONDITION
    return f"{what} {'changed' if changed else _verb(edit)}"


def own_edits(evidence: Iterable[Evidence]) -> str:
    """Return a statement's own edits that affect rows or values, on one line."""
    return "; ".join(evidence_lines(seen for seen in evidence if reading_order(seen) < 2))


def evidence_as_json(seen: Evidence) -> dict[str, Any]:
    """Return evidence as a JSON object: kind, fields, and a sentence with long expressions truncated.

    `model.evidence.evidence_from_json` reads the object.
    """
    if not isinstance(seen, Edit):
        return seen.as_json()
    if seen.kind in _CLAUSES or seen.kind in _CHANGES:
        seen = replace(seen, before=cut(seen.before), after=cut(seen.after))
    return {**edit_as_json(seen), "sentence": evidence_words(seen)}


def is_of_columns(seen: Evidence) -> bool:
    """True if the evidence is an edit to columns that is neither before nor after a stateful operator."""
    return isinstance(seen, Edit) and seen.kind in OF_COLUMNS and seen.place is EditPlace.QUERY


def _sort_of(head: str, texts: list[str]) -> str:
    if not texts:
        return head
    return f"{head}{f' ({len(texts)})' if len(texts) > 1 else ''}: {' · '.join(texts)}"


def _parts(edit: Edit) -> tuple[str, str]:
    """Return an edit's label and the edited SQL; the SQL is empty for edits that never share a line."""
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
    if edit.kind in _CHANGES and (edit.kind is not EditKind.FUNCTION or (edit.before and edit.after)):
        return f"{where}{_CHANGES[edit.kind].format(of=edit.of, columns=cut(columns))}: {_change(edit)}", ""
    return where + _plain_words(edit, columns), ""


def _plain_words(edit: Edit, columns: str) -> str:
    operator = _OPERATORS.get(edit.of, edit.of)
    if edit.kind in (EditKind.OPERATOR, EditKind.TEXT_PART, EditKind.MORE_PARTS):
        name = _CONTENTS.get(edit.of, operator)
        words = f"and {edit.after} more" if edit.kind is EditKind.MORE_PARTS else _part(edit)
        return f"{name}: {words}" if name else words
    if edit.kind is EditKind.VARIABLE and not edit.before:
        return f"it uses the variable {edit.of}, which is {edit.after}"
    if edit.kind is EditKind.VARIABLE and not edit.after:
        return f"it no longer uses the variable {edit.of}"
    if edit.kind is EditKind.FUNCTION:
        return f"it no longer uses the function {edit.of}" if edit.before else f"it uses the function {edit.of}"
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
    """Truncate an expression to LONGEST_EDIT characters."""
    return text if len(text) <= LONGEST_EDIT else f"{text[: LONGEST_EDIT - 1]}…"
