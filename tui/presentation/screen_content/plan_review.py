"""The review of a plan: its rows with their reasons, losses, leftover tables and guards."""

from collections.abc import Iterator, Sequence
from itertools import repeat

from core.changes.kinds import ChangeKind
from core.model.actions import Action
from core.plan.descriptions import (
    GLYPH_BY_ACTION,
    act_words,
    edit_of_rows,
    evidence_lines,
    lowered_words,
    offer_lines,
    spark_words,
    values_words,
)
from core.plan.model import Guard, Plan, PlanNode, PlanWarning
from core.plan.rendering import (
    TITLES,
    ColumnWidths,
    guards_by_verdict,
    head_parts,
    loss_sentences,
    node_cells,
    plan_sections,
    request_words,
    table_row,
    undo_sentences,
)
from core.text.sentence import Sentence
from core.text.wording import counted
from state.plans import approvals_of_others
from state.row_types import ApprovalRow, PlanRow
from tui.presentation.screen_content.changes import rule
from tui.presentation.styling.styled_text import EMPTY, Line, Span, Tone, difference, left, line, wrap, wrap_line
from tui.presentation.styling.theme import Glyphs
from tui.presentation.styling.value_formatting import long_duration, moment, short_duration

NAME_AT = 6
"""Number of cells before a table's name, for the level and the sign."""

VERDICT_TONES = {"ok": Tone.GOOD, "warn": Tone.CHANGING, "approve": Tone.CHANGING, "deny": Tone.BAD}

SECTION_TONES = {
    "REFUSED": Tone.BAD,
    "LOSES": Tone.BAD,
    "WARNINGS": Tone.CHANGING,
    "LEFT BEHIND": Tone.CHANGING,
    "READERS": Tone.CHANGING,
    "POOLS": Tone.PLAIN,
    "GUARDS": Tone.PLAIN,
    "UNDO": Tone.PLAIN,
    "SPARK": Tone.DIM,
}
"""Tones of the sections, in the order shown. Each guard has the tone of its verdict."""

TONES = {
    Action.KEEP: Tone.DIM,
    Action.RECORD: Tone.DIM,
    Action.START: Tone.PLAIN,
    Action.RESUME: Tone.PLAIN,
    Action.RESTART: Tone.CHANGING,
    Action.REBUILD: Tone.CHANGING,
    Action.STOP: Tone.CHANGING,
    Action.DELETE: Tone.BAD,
    Action.ROLLBACK: Tone.CHANGING,
    Action.UNDELETE: Tone.PLAIN,
    Action.RETIRE: Tone.BAD,
    Action.OPTIMIZE: Tone.CHANGING,
    Action.VACUUM: Tone.BAD,
}


def heading(
    plan: Plan, row: PlanRow, environment: str, now: float, width: int, *, approvals: Sequence[ApprovalRow] = ()
) -> tuple[Line, ...]:
    """Render a plan's heading: hash, request, author, age, size, expiry, approvals and status."""
    first = line(
        (f" PLAN {plan.hash[:4]}", Tone.TITLE),
        f"  {request_words(plan)}",
        (f"   by {row.author} {short_duration(now - row.created_at)} ago", Tone.DIM),
        f"   {environment}",
    )
    status = state_of_plan(plan, row, now)
    approved = approved_by(row, approvals)
    second = line(
        " " + "   ".join(head_parts(plan)),
        (
            f"   approvals {len(approved)} of {plan.approvals}" if plan.approvals else "",
            Tone.GOOD if len(approved) >= plan.approvals else Tone.CHANGING,
        ),
        (f" ({', '.join(approved)})" if approved else "", Tone.DIM),
        ("   loses data" if any(node.loses for node in plan.nodes) else "", Tone.BAD),
        (f"   {counted(len(plan.warnings), 'warning')}" if plan.warnings else "", Tone.CHANGING),
        ("   single use, ", Tone.DIM),
        (str(status or f"expires {moment(row.expires_at, now)}"), Tone.BAD if status else Tone.DIM),
    )
    return (*wrap_line(first, width), *wrap_line(second, width))


def approved_by(row: PlanRow, approvals: Sequence[ApprovalRow]) -> tuple[str, ...]:
    """Return the logins whose approvals of a plan count: at most one per user id, and not the author's."""
    return tuple(one.login for one in approvals_of_others(row, approvals))


def state_of_plan(plan: Plan, row: PlanRow, now: float, frozen: str | None = None) -> Sentence | None:
    """Explain why a plan cannot be executed; None if it can.

    `frozen` describes the current freeze of plans; None without a freeze.
    """
    if plan.refusals:
        return Sentence(f"refused: {plan.refusals[0].summary}")
    if any(guard.verdict == "deny" for guard in plan.guards):
        return Sentence("a guard denies it")
    if row.status == "applied":
        return Sentence(f"already applied, run {row.run_id[:10]}") if row.run_id else Sentence("already applied")
    if row.superseded_by:
        return Sentence(f"superseded by {row.superseded_by}, {moment(row.superseded_at, now)}: plan again")
    if row.status != "open":
        return Sentence(f"the plan is {row.status}")
    if now > row.expires_at:
        return Sentence(f"expired {long_duration(now - row.expires_at)} ago: plan again")
    if not plan.steps:
        return Sentence("nothing to do: it changes nothing")
    if frozen is not None and plan.request.verb != "rollback":
        return Sentence(f"{plan.environment} is {frozen}: no plan is applied")
    return None


def waits_for(plan: Plan, row: PlanRow, approvals: Sequence[ApprovalRow]) -> Sentence | None:
    """Explain how many approvals a plan still lacks and how to approve it; None if it has enough."""
    approved = len(approved_by(row, approvals))
    if approved >= plan.approvals:
        return None
    return Sentence(
        f"approvals {approved} of {plan.approvals}: press A as another login, or run headgate approve {plan.hash[:4]}"
    )


def not_approvable(
    plan: Plan, row: PlanRow, approvals: Sequence[ApprovalRow], *, user: str, now: float
) -> Sentence | None:
    """Explain why this user cannot approve a plan; None if they can."""
    if closed := state_of_plan(plan, row, now):
        return closed
    if not plan.approvals:
        return Sentence("it needs no approval")
    if row.author == user:
        return Sentence("its author cannot approve it; another login must")
    return Sentence("you have already approved it") if user in approved_by(row, approvals) else None


def columns(widths: ColumnWidths) -> Line:
    """Render the column headings above the plan's rows, as in the printed plan."""
    return line((f" {table_row(TITLES, widths)}", Tone.DIM))


def node_row(node: PlanNode, widths: ColumnWidths) -> Line:
    """Format a row as in the printed plan.

    The row has the tone of the action, or BAD if anything is lost.
    """
    text = f" {table_row(node_cells(node), widths, GLYPH_BY_ACTION[node.action])}".rstrip()
    name, action = NAME_AT, NAME_AT + widths.table + widths.change + 2
    kept = node.action is Action.KEEP
    tone = Tone.BAD if node.loses else TONES[node.action]
    return (
        Span(text[: name - 1], Tone.DIM),
        Span(text[name - 1 : name], tone),
        Span(text[name : name + widths.table], Tone.DIM if kept else Tone.PLAIN),
        Span(text[name + widths.table : action], Tone.DIM),
        Span(text[action : action + widths.action], tone),
        Span(text[action + widths.action :], Tone.DIM),
    )


def why(
    node: PlanNode, width: int, glyphs: Glyphs, *, full: bool, warnings: Sequence[PlanWarning] = ()
) -> tuple[Line, ...]:
    """Explain the planned action of a row: reason, losses and warnings, then evidence and other options."""
    lines: list[Line] = [rule(f"why {node.table}", width, glyphs)]
    kind = edit_of_rows(node.evidence) or (node.change.definition.label if node.change is not None else "")
    cause = f" ({kind}, {node.row})" if node.change not in (None, ChangeKind.NONE) else ""
    lines.extend(wrap(f"{node.reason.words}{cause}", width - 4, Tone.PLAIN, "   "))
    if node.loses:
        lines.extend(wrap(f"LOSES {', '.join(node.loses)}", width - 4, Tone.BAD, "   "))
    for warned in (each for each in warnings if each.table == node.table):
        lines.extend(wrap(f"WARNING {warned.summary}", width - 4, Tone.CHANGING, "   "))
    if node.because_of:
        lines.extend(wrap(f"because of {', '.join(node.because_of)}", width - 4, Tone.DIM, "   "))
    placed = str(node.placed) if node.placed is not None else ""
    for words in (*filter(None, (placed, values_words(node))), *evidence_lines(node.evidence)):
        lines.extend(wrap(words, width - 4, Tone.DIM, "   "))
    if not node.classified:
        lines.append(
            line(("   the change could not be classified completely, so the plan is conservative", Tone.CHANGING))
        )
    if words := spark_words(node):
        lines.append(line((f"   {words}", Tone.BAD if node.confirmed_by_spark is False else Tone.DIM)))
    edits, options = _edits(node, full=full), _options(node, width, full=full)
    # A long diff would push the options, which enter asks for, out of view.
    for part in (options, edits) if full else (edits, options):
        lines.extend(part)
    if node.bindings and node.action is not Action.DELETE:
        reads = ", ".join(f"{one.parent}{f'__v{one.version}' if one.version else ''}" for one in node.bindings)
        lines.extend(wrap(f"reads {reads}", width - 4, Tone.DIM, "   "))
    return tuple(lines)


def _edits(node: PlanNode, *, full: bool) -> Iterator[Line]:
    for old, new in zip(node.old.shown.values(), node.texts.shown.values(), strict=True):
        if old and new:
            yield from difference(old, new, 50) if full else difference(old, new, 0)[:10]


def _options(node: PlanNode, width: int, *, full: bool) -> Iterator[Line]:
    if node.lowered:
        yield line((f"   {lowered_words(node)}; needs an approval", Tone.CHANGING))
    offers = offer_lines(node, every=full)
    for offer in offers if full else offers[:1]:
        yield from wrap(f"OPTION {offer}", width - 4, Tone.PLAIN if "(chosen" in offer else Tone.DIM, "   ")
    if words := "" if full else _more_offers(node, len(offers)):
        # On a screen of 24 lines, all options would push leftovers and verdicts out of view.
        yield line((f"   {words}: enter", Tone.DIM))


def _more_offers(node: PlanNode, executable: int) -> str:
    more, later = executable - 1, len(node.offers) - executable
    words = [counted(more, "more option")] if more > 0 else []
    words += [f"{counted(later, 'option')} not executable yet"] if later else []
    return ", ".join(words)


def sections_below_rows(plan: Plan, width: int, glyphs: Glyphs) -> tuple[Line, ...]:
    """Render the sections below a plan's rows: refusals, losses, warnings, guards, leftovers, undo, and steps."""
    lines: list[Line] = [EMPTY]
    sections = plan_sections(plan, f" --env {plan.environment}")
    for title in sorted(sections, key=[*SECTION_TONES].index):
        tones = repeat(SECTION_TONES[title]) if title != "GUARDS" else map(_verdict_tone, guards_by_verdict(plan))
        lead = Span(f" {title:<11} ", Tone.DIM)
        for sentence, tone in zip(sections[title], tones, strict=False):
            for row in wrap(sentence, width - 14, tone):
                lines.append((lead, *row))
                lead = Span(" " * 13)
    lines.append(rule("steps", width, glyphs))
    for step in plan.steps:
        after = f"after {', '.join(map(str, step.after))}" if step.after else ""
        what = (
            ", ".join(step.tables) if step.tables else f"{step.table}" + (f" v{step.version}" if step.version else "")
        )
        lines.append(
            line(
                (f"   {step.n:>2} ", Tone.DIM),
                left(act_words(step.do), 10),
                f"{what}  ",
                (f"{after}  " if after else "", Tone.DIM),
                (str(step.why), Tone.DIM),
            )
        )
    return tuple(lines)


def _verdict_tone(guard: Guard) -> Tone:
    return VERDICT_TONES.get(guard.verdict, Tone.PLAIN)


def losses(plan: Plan) -> tuple[str, ...]:
    """Return sentences on what each statement loses and on how to undo the plan; empty if nothing is lost."""
    lost = loss_sentences(plan)
    return (
        (*lost, *(f"undo: {sentence}" for sentence in undo_sentences(plan, f" --env {plan.environment}")))
        if lost
        else ()
    )


def summary_of(plan: Plan) -> str:
    """Summarize a plan in one line: `2 rebuild, 1 restart, 1 delete`."""
    counts: dict[str, int] = {}
    for node in plan.nodes:
        if node.action is not Action.KEEP:
            counts[str(node.action)] = counts.get(str(node.action), 0) + 1
    return ", ".join(f"{count} {action}" for action, count in counts.items()) or "nothing"
