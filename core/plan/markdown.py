"""A plan as Markdown for a change ticket or pull request, within the size limit of a comment."""

import html
import shlex
from collections.abc import Iterator, Sequence

from core.model.actions import Action
from core.plan.confirmation import confirmation_for_plan
from core.plan.descriptions import action_words
from core.plan.model import Plan, PlanNode
from core.plan.rendering import (
    TITLES,
    PlanStanding,
    guard_words,
    guards_by_verdict,
    head_parts,
    node_cells,
    plan_sections,
    request_words,
)
from core.plan.request import command_words
from core.text.diff import unified_diff
from core.text.escaping import escape_markdown
from core.text.markdown_page import COMMENT_LIMIT, NOTE_BYTES, MarkdownPage, fenced, size_in_bytes
from core.text.wording import counted

_TABLE, _LIST = 24_000, 4_000
"""Maximum bytes of the table and of each list; diffs get the remaining bytes."""
_COMMAND = 1_000
"""Maximum length of a command that can be copied, in characters."""


def plan_as_markdown(plan: Plan, standing: PlanStanding | None = None) -> str:
    """Return a plan as Markdown of at most COMMENT_LIMIT bytes: verdict, rows, losses, guards, commands, diffs."""
    known = standing or PlanStanding()
    end = _how_to_apply(plan)
    page = MarkdownPage(COMMENT_LIMIT - size_in_bytes(end))
    named = "" if plan.refusals or plan.empty else f" `{plan.hash[:12]}`"
    page.add(f"### Plan{named}: {escape_markdown(request_words(plan))}", "", *_verdict(plan, known), "")
    rows = [f"| {' | '.join(escape_markdown(cell) for cell in node_cells(node))} |" for node in plan.nodes]
    heading = f"| {' | '.join(TITLES)} |"
    page.add_each(rows, _TABLE, "rows", (heading, "|--:|---|---|---|---|--:|--:|---|"))
    guards = tuple(f"{g.verdict}: {guard_words(g)}" for g in guards_by_verdict(plan))
    for title, sentences in (plan_sections(plan, known.options) | ({"GUARDS": guards} if guards else {})).items():
        listed = [f"- {escape_markdown(sentence)}" for sentence in sentences]
        page.add_each(listed, _LIST, f"under {title.capitalize()}", (f"**{title.capitalize()}**", ""))
    page.lines += end
    left = 0
    page.free -= NOTE_BYTES
    for text in _texts(plan):
        left += not page.add(*text)
    if left:
        page.lines.append(f"_{counted(left, 'text')} left out; {_shown_by(plan)} shows all of them_")
    return "\n".join(page.lines).rstrip() + "\n"


def _verdict(plan: Plan, known: PlanStanding) -> Iterator[str]:
    where = f"{plan.environment.upper()}{' protected' if plan.protected else ''}"
    parts = [where, *head_parts(plan)]
    counts: dict[str, int] = {}
    for node in plan.nodes:
        if node.action is not Action.KEEP and not plan.refusals:
            counts[node.action] = counts.get(node.action, 0) + 1
    parts += [", ".join(f"{count} {action}" for action, count in counts.items())] if counts else []
    if any(node.loses for node in plan.nodes):
        parts.append("loses data")
    if plan.approvals:
        parts.append(f"approvals {known.approved} of {plan.approvals}")
    parts += [f"author {known.author}"] if known.author else []
    parts += [f"expires {known.expires}"] if known.expires else []
    parts += [known.closed] if known.closed else []
    yield f"**{' · '.join(escape_markdown(part) for part in parts)}**"


def _how_to_apply(plan: Plan) -> tuple[str, ...]:
    if plan.refusals or plan.empty:
        return ()
    short, text = plan.hash[:12], confirmation_for_plan(plan).text
    confirm = f" --confirm '{text}'" if text else ""
    commands = [_shown_by(plan)]
    if not plan.request.nonce:
        # The plan was made offline; an agent needs a plan with a nonce.
        return (
            "**To apply**: plan again against the live environment and review that plan",
            "",
            *fenced("sh", commands),
            "",
        )
    commands += [f"headgate approve {short}"] if plan.approvals else []
    commands.append(f"headgate apply {short}{confirm}")
    return ("**To apply**", "", *fenced("sh", commands), "")


def _shown_by(plan: Plan) -> str:
    """Return the command that shows the plan: `review` if an agent may have the plan; if not, the planning command."""
    if plan.request.nonce:
        return f"headgate review {plan.hash[:12]}"
    line = shlex.join(["headgate", *command_words(plan.request), "--env", plan.environment])
    return line if len(line) <= _COMMAND else f"headgate plan {plan.request.verb} … --env {plan.environment}"


def _texts(plan: Plan) -> Iterator[tuple[str, ...]]:
    for node in plan.nodes:
        if node.action in (Action.KEEP, Action.DELETE):
            continue
        before = node.old.shown
        for name, new in node.texts.shown.items():
            old = before[name]
            if old != new and (node.old.ddl or node.action is Action.START):
                yield _collapsible(node, name, unified_diff(old, new))


def _collapsible(node: PlanNode, name: str, lines: Sequence[str]) -> tuple[str, ...]:
    summary = html.escape(f"{node.table}: {name}, {action_words(node)}")
    return (f"<details><summary>{summary}</summary>", "", *fenced("diff", lines), "", "</details>", "")
