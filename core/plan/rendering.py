"""A whole plan as lines: a heading, a row per table, and sections on readers, losses, undo, guards and warnings."""

import shlex
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from core.model.actions import Action, StepKind
from core.model.names import TableName
from core.plan.descriptions import (
    GLYPH_BY_ACTION,
    action_words,
    change_words,
    eta_words,
    range_words,
    reason_words,
    replay_words,
    spark_word,
    spark_words,
    undo_command,
    undo_effect,
    undo_words,
)
from core.plan.model import Exposure, Guard, LeftBehind, Plan, PlanNode
from core.plan.request import command_words
from core.policy.freeze_windows import frozen_until
from core.text.sentence import Sentence
from core.text.wording import counted

WIDE = 120
"""Minimum number of columns at which reasons are shown next to each table instead of below it."""

NAMED = 8
"""Maximum number of tables listed in one sentence."""

UNMEASURED = frozenset(("checkpoint", "views", "readers", "rates"))
"""Guards without a measurement; if they are ok, only their names are shown."""

VERDICTS = ("deny", "approve", "warn", "unknown", "ok")
"""Verdicts, from worst to best."""


@dataclass(frozen=True, slots=True)
class PlanStanding:
    """Facts about a plan that the plan does not store; each is empty if unknown."""

    author: str = ""
    expires: str = ""
    """Expiry as text: a time of day or a date."""
    approved: int = 0
    """Number of logins other than the author that have approved the plan."""
    closed: str = ""
    """Why the plan can no longer be executed, for example `already applied, run 7f3a-1`."""
    options: str = ""
    """Options of the suggested commands, as in `undo_command`."""


@dataclass(frozen=True, slots=True)
class ColumnWidths:
    """Widths of the variable columns, in characters; `why` is 0 if there is no room for the reason."""

    table: int
    change: int
    action: int
    eta: int
    why: int


FIXED = 20
"""Total width of LVL, the sign, REPLAY, UNDO, and all spaces between columns except the one before WHY."""

_WHY = 4
"""Index of the reason in the cells of a row."""

TITLES = ("LVL", "TABLE", "CHANGE", "ACTION", "WHY", "REPLAY", "ETA", "UNDO")


def plan_lines(plan: Plan, width: int, standing: PlanStanding | None = None) -> tuple[str, ...]:
    """Return a plan as lines of at most `width` columns (at least 60), without trailing spaces."""
    width = max(width, 60)
    known = standing or PlanStanding()
    lines = [*head_lines(plan, width, known), *_table(plan, width)]
    for title, sentences in plan_sections(plan, known.options).items():
        lines += _section(title, sentences, width)
    return tuple(line.rstrip() for line in lines)


SECTIONS = ("REFUSED", "LEFT BEHIND", "READERS", "POOLS", "LOSES", "UNDO", "GUARDS", "SPARK", "WARNINGS")
"""Titles of the sections below a plan's table, in order."""


def plan_sections(plan: Plan, options: str = "") -> dict[str, tuple[str, ...]]:
    """Return the sections below the plan's table, by title; empty sections are omitted.

    `options` are those of the suggested commands, as in `undo_command`.
    """
    sections = (
        tuple(f"{r.summary}. {_capitalized(str(r.remedy))}" for r in plan.refusals),
        tuple(map(_left_behind, plan.left_behind)),
        reader_sentences(plan),
        _pool_sentences(plan),
        loss_sentences(plan),
        undo_sentences(plan, options),
        guard_sentences(plan),
        spark_sentences(plan),
        tuple(f"{w.table}: {w.summary}" if w.table else str(w.summary) for w in plan.warnings),
    )
    return {title: sentences for title, sentences in zip(SECTIONS, sections, strict=True) if sentences}


def head_lines(plan: Plan, width: int, standing: PlanStanding) -> list[str]:
    """Return a plan's heading as lines: request, author, environment, size, expiry and approvals."""
    # The agent does not keep a plan that does nothing, so `apply` would not find the plan by its hash.
    keeps = not (plan.refusals or plan.empty)
    parts = [f"PLAN {plan.hash[:4]}  {request_words(plan)}" if keeps else f"PLAN  {request_words(plan)}"]
    parts += [f"author {standing.author}"] if standing.author else []
    parts += [plan.environment.upper() + (" protected" if plan.protected else ""), *head_parts(plan)]
    parts += ["single use" + (f", expires {standing.expires}" if standing.expires else "")] if keeps else []
    if plan.approvals:
        parts.append(f"approvals {standing.approved} of {plan.approvals}")
    parts += [standing.closed] if standing.closed else []
    lines = [f" {parts[0]}"]
    for part in parts[1:]:
        if len(lines[-1]) + 4 + len(part) <= width:
            lines[-1] += f"    {part}"
        else:
            lines.append(f" {part}")
    return [row for line in lines for row in textwrap.wrap(line, width, subsequent_indent="   ")]


def head_parts(plan: Plan) -> list[str]:
    """Return the size of a plan as separate strings: statements, steps, levels and ETA.

    If the plan is refused or empty, the only string says so.
    """
    if plan.refusals:
        return ["refused: nothing in it can be executed"]
    if plan.empty:
        return ["nothing to do"]
    acted = [node for node in plan.nodes if node.action is not Action.KEEP]
    statements = [node for node in plan.nodes if node.version or node.from_version]
    levels = len({node.level for node in acted})
    changed = sum(node.action is not Action.KEEP for node in statements)
    external = [counted(len(acted) - changed, "external table")] if len(acted) > changed else []
    eta = [f"ETA {range_words(plan)}"] if plan.predicted_high_s is not None else []
    much = f"changes {changed} of {counted(len(statements), 'statement')}"
    held = not plan.request.hold or any(step.do is StepKind.HOLD for step in plan.steps)
    waits = [] if held else [_nothing_held(acted)]
    return [much, *external, counted(len(plan.steps), "step"), counted(levels, "level"), *waits, *eta]


def _nothing_held(acted: Sequence[PlanNode]) -> str:
    if any(node.version and node.action in (Action.RESTART, Action.RECORD) for node in acted):
        return "nothing is held: it goes on in place; --rebuild makes a version to hold"
    return "nothing is held: it replaces no version"


def request_words(plan: Plan) -> str:
    """Return a request as an operator would type it on the command line, without default options."""
    asked = plan.request
    words = command_words(asked)[0 if asked.promoted_from or asked.drains else 1 :]
    if asked.changed_since:
        found = f"({counted(len(asked.tables), 'table')})"
        words[1 : 1 + len(asked.tables)] = ["--changed-since", asked.changed_since, found]
    words += [f"continuing run {asked.continues}"] if asked.continues else []
    return " ".join(words)


def column_widths(nodes: Sequence[PlanNode], width: int) -> ColumnWidths:
    """Return the column widths for a table of `width` characters; names and changes are shortened first."""
    wide = width >= WIDE
    table = max(5, min(max((len(node.table) for node in nodes), default=5), 28 if wide else 18))
    action = max(6, min(max((len(action_words(node)) for node in nodes), default=6), 15))
    eta = max(5, max((len(eta_words(node)) for node in nodes), default=5))
    fixed = FIXED + eta
    change = 24 if wide else min(max(width - fixed - table - action, 12), 30)
    return ColumnWidths(table, change, action, eta, max(width - fixed - 1 - table - action - change, 0) if wide else 0)


def node_cells(node: PlanNode) -> tuple[str, ...]:
    """Return the cells of a node's row, in the order of TITLES."""
    return (
        str(node.level),
        node.table,
        change_words(node),
        action_words(node),
        reason_words(node),
        replay_words(node),
        eta_words(node),
        undo_words(node),
    )


def table_row(cells: Sequence[str], widths: ColumnWidths, sign: str = " ") -> str:
    """Return one row of the plan's table, or its header row, as a string."""
    by_title = dict(zip(TITLES, cells, strict=True))
    text = f"{by_title['LVL']:>3} {sign}{_cell(by_title['TABLE'], widths.table)} "
    text += f"{_cell(by_title['CHANGE'], widths.change)} {_cell(by_title['ACTION'], widths.action)} "
    text += f"{_cell(by_title['WHY'], widths.why)} " if widths.why else ""
    return f"{text}{by_title['REPLAY']:>6} {by_title['ETA']:>{widths.eta}} {by_title['UNDO']}"


def node_lines(node: PlanNode, widths: ColumnWidths, width: int) -> list[str]:
    """Return the lines of a node: its row, with the full reason next to it if there is room, otherwise below."""
    cells = list(node_cells(node))
    if not widths.why:
        lines = [table_row(cells, widths, GLYPH_BY_ACTION[node.action])]
        if node.action is not Action.KEEP and (node.evidence or node.because_of):
            lines += _wrapped(reason_words(node), width, " " * 6)
        return lines
    first = next(iter(textwrap.wrap(cells[_WHY], widths.why, break_on_hyphens=False)), "")
    rest = cells[_WHY][len(first) :].strip()
    cells[_WHY] = first
    place = 8 + widths.table + widths.change + widths.action
    return [table_row(cells, widths, GLYPH_BY_ACTION[node.action]), *_wrapped(rest, width, " " * place)]


def reader_sentences(plan: Plan) -> tuple[str, ...]:
    """Return, for each reader outside Headgate, a sentence on how the plan affects it."""
    swapped = {table for step in plan.steps if step.do is StepKind.SWAP for table in step.tables}
    return tuple(_reader(reader, swapped=reader.table in swapped) for reader in plan.readers)


def _reader(reader: Exposure, *, swapped: bool) -> str:
    """Return a sentence on how the plan affects an exposure.

    A swap opens a ticket for the exposure, because the exposure may read a version by its physical name.
    """
    words = f"{reader.reader} (owner {reader.owner})" if reader.owner else reader.reader
    words += f" reads {reader.table}: {reader.before} now, "
    if not reader.after:
        return f"{words}loses it"
    if reader.before == reader.after:
        return f"{words}whose columns are altered"
    words += f"{reader.after} through the pointer"
    if not swapped:
        return words
    close = f"headgate release close RUN {shlex.quote(reader.reader)}"
    return f"{words} after the swap, which opens a ticket: what names {reader.before} itself has to move; then {close}"


def _pool_sentences(plan: Plan) -> tuple[str, ...]:
    """Return why each pool was chosen, in the order of the choices, because each leaves less room for the next."""
    chosen = sorted((n for n in plan.nodes if n.placed and n.placed.kind.is_choice), key=lambda node: node.placed_n)
    return tuple(f"{node.table} {node.placed}" for node in chosen)


def loss_sentences(plan: Plan) -> tuple[str, ...]:
    """Return a sentence for each table that would lose rows or other data, listing the losses."""
    return tuple(f"{node.table}: {', '.join(node.loses)}" for node in plan.nodes if node.loses)


def undo_sentences(plan: Plan, options: str = "") -> tuple[str, ...]:
    """Return each undo command with its deadline, effect and cost, or why some tables cannot be undone."""
    found: dict[str, None] = {}
    for way in plan.undo:
        command = undo_command(plan, way, options)
        if command:
            found[f"{command}  ({way.until})"] = None
        found[f"{'' if command else 'no way back for '}{_named(way.tables)}: {undo_effect(way)}"] = None
    return tuple(found)


def guard_sentences(plan: Plan) -> tuple[str, ...]:
    """Return a sentence for each guard that is not ok, worst verdict first, and one sentence for all that are ok."""
    found = [f"{guard.verdict}  {guard_words(guard)}" for guard in guards_by_verdict(plan) if guard.verdict != "ok"]
    fine = [guard for guard in plan.guards if guard.verdict == "ok"]
    words = [guard_words(guard) for guard in fine if guard.name not in UNMEASURED]
    words += [guard.name for guard in fine if guard.name in UNMEASURED]
    return (*found, *([f"ok  {' · '.join(words)}"] if words else []))


def frozen_now(plan: Plan, now: float) -> str | None:
    """Return the current freeze of a plan's environment, with its end; None if the plan may be applied at `now`.

    The planner cannot know this, because it has no clock. A rollback is never frozen.
    """
    found = next((guard for guard in plan.guards if guard.name == "freeze"), None)
    windows = found.fields.get("windows") if found is not None and plan.request.verb != "rollback" else None
    return frozen_until(map(str, windows), now) if isinstance(windows, (list, tuple)) else None


def judged_at(plan: Plan, now: float) -> Plan:
    """Return a plan to be shown at `now`: during a freeze, the guard `freeze` denies it."""
    if (frozen := frozen_now(plan, now)) is None:
        return plan
    denied = Guard("freeze", "deny", Sentence(f"{plan.environment} is {frozen}: no plan is applied until then"))
    return replace(plan, guards=tuple(denied if guard.name == "freeze" else guard for guard in plan.guards))


def guards_by_verdict(plan: Plan) -> list[Guard]:
    """Return the guards of a plan, worst verdicts first."""
    return sorted(plan.guards, key=lambda guard: VERDICTS.index(guard.verdict) if guard.verdict in VERDICTS else 0)


def spark_sentences(plan: Plan) -> tuple[str, ...]:
    """Return sentences that list which statements Spark contradicts, confirms, or has not confirmed."""
    tables_by_words: dict[str, list[TableName]] = {spark_word(known): [] for known in (False, True, None)}
    for node in plan.nodes:
        if words := spark_words(node):
            tables_by_words[words].append(node.table)
    return tuple(f"{words}: {_named(tables)}" for words, tables in tables_by_words.items() if tables)


def _left_behind(left: LeftBehind) -> str:
    whose = [f"product {left.product}" if left.product else "not declared"]
    whose += [f"owner {left.owner}"] if left.owner else []
    stays = f"{left.table} ({', '.join(whose)}) stays on {left.reads}"
    if left.depth > 1:
        return f"{stays}, {left.depth} levels downstream of what moves on, through {left.through}"
    return f"{stays}; {left.reads.rpartition('__')[2]} cannot be retired while it does"


def guard_words(guard: Guard) -> str:
    """Return the finding of a guard and, if it demands an approval that the policy can spare, how."""
    spared = f"; {guard.remedy}" if guard.verdict == "approve" and guard.remedy is not None else ""
    return f"{guard.name}: {guard.summary}{spared}"


def _named(tables: Sequence[TableName]) -> str:
    more = f" and {len(tables) - NAMED} more" if len(tables) > NAMED else ""
    return ", ".join(tables[:NAMED]) + more


def _table(plan: Plan, width: int) -> list[str]:
    if not plan.nodes:
        return []
    widths = column_widths(plan.nodes, width)
    lines = [table_row(TITLES, widths)]
    kept = sum(node.action is Action.KEEP for node in plan.nodes)
    folded = kept > NAMED or (plan.request.everything and kept > 0)
    for node in plan.nodes:
        if folded and node.action is Action.KEEP:
            continue
        lines += node_lines(node, widths, width)
    lines += [f"      {counted(kept, 'table')} kept as they are"] if folded else []
    return [_fit(line, width) for line in lines]


def _section(title: str, sentences: Iterable[str], width: int) -> list[str]:
    lines: list[str] = []
    for sentence in sentences:
        lead = f" {title if not lines else '':<11} "
        lines += textwrap.wrap(sentence, width, initial_indent=lead, subsequent_indent=" " * 15, break_on_hyphens=False)
    return lines


def _wrapped(text: str, width: int, indent: str) -> list[str]:
    return textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)


def _cell(text: str, width: int) -> str:
    return f"{_fit(text, width):{width}}"


def _fit(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]
