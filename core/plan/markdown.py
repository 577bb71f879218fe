"""A plan as Markdown for a change ticket or pull request, within the size limit of a comment."""

import html
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from core.model.actions import Action
from core.plan.confirmation import confirmation_for_plan
from core.plan.descriptions import action_words
from core.plan.model import Plan, PlanNode
from core.plan.rendering import (
    TITLES,
    PlanStanding,
    guards_by_verdict,
    head_parts,
    node_cells,
    plan_sections,
    request_words,
)
from core.plan.request import command_words
from core.text.diff import unified_diff
from core.text.escaping import escape_control_characters, escape_markdown
from core.text.wording import counted

COMMENT_LIMIT = 60_000
"""Maximum size in bytes of UTF-8; GitHub accepts comments of up to 65,536 characters."""

_TABLE, _LIST = 24_000, 4_000
"""Maximum bytes of the table and of each list; diffs get the remaining bytes."""
_COMMAND = 1_000
"""Maximum length of a command that can be copied, in characters."""
_NOTE = 1_200
"""Bytes reserved for the note on omitted content, including the command that the note suggests."""
_TICKS = re.compile(r"`+")


@dataclass(slots=True)
class _Page:
    """A Markdown page of limited size; `free` is the number of bytes that remain."""

    free: int
    lines: list[str] = field(default_factory=list)

    def add(self, *lines: str) -> bool:
        """Add all of the lines, or none if they do not fit; return True if they were added."""
        size = _bytes(lines)
        if size > self.free:
            return False
        self.lines += lines
        self.free -= size
        return True

    def add_each(self, lines: Sequence[str], most: int, what: str, head: Sequence[str]) -> None:
        """Add a heading, the lines that fit into `most` bytes, and a note on how many lines were left out."""
        if not lines:
            return
        room, shown = min(most, self.free) - _bytes(head) - _NOTE, 0
        for line in lines:
            room -= _bytes((line,))
            if room < 0:
                break
            shown += 1
        left = len(lines) - shown
        note = ("", f"_{left} more {what} left out_") if left else ()
        self.add(*head, *lines[:shown], *note, "")


def plan_as_markdown(plan: Plan, standing: PlanStanding | None = None) -> str:
    """Return a plan as Markdown of at most COMMENT_LIMIT bytes: verdict, rows, losses, guards, commands, diffs."""
    known = standing or PlanStanding()
    end = _how_to_apply(plan)
    page = _Page(COMMENT_LIMIT - _bytes(end))
    named = "" if plan.refusals or plan.empty else f" `{plan.hash[:12]}`"
    page.add(f"### Plan{named}: {escape_markdown(request_words(plan))}", "", *_verdict(plan, known), "")
    rows = [f"| {' | '.join(escape_markdown(cell) for cell in node_cells(node))} |" for node in plan.nodes]
    heading = f"| {' | '.join(TITLES)} |"
    page.add_each(rows, _TABLE, "rows", (heading, "|--:|---|---|---|---|--:|--:|---|"))
    guards = tuple(f"{g.verdict}: {g.name}: {g.summary}" for g in guards_by_verdict(plan))
    for title, sentences in (plan_sections(plan) | ({"GUARDS": guards} if guards else {})).items():
        listed = [f"- {escape_markdown(sentence)}" for sentence in sentences]
        page.add_each(listed, _LIST, f"under {title.capitalize()}", (f"**{title.capitalize()}**", ""))
    page.lines += end
    left = 0
    page.free -= _NOTE
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
            *_fenced("sh", commands),
            "",
        )
    commands += [f"headgate approve {short}"] if plan.approvals else []
    commands.append(f"headgate apply {short}{confirm}")
    return ("**To apply**", "", *_fenced("sh", commands), "")


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
        for name in ("dml", "ddl", "yml"):
            old, new = getattr(node.old, name), getattr(node.texts, name)
            if old != new and (node.old.ddl or node.action is Action.START):
                yield _collapsible(node, name, unified_diff(old, new))


def _collapsible(node: PlanNode, name: str, lines: Sequence[str]) -> tuple[str, ...]:
    summary = html.escape(f"{node.table}: {name}, {action_words(node)}")
    return (f"<details><summary>{summary}</summary>", "", *_fenced("diff", lines), "", "</details>", "")


def _fenced(language: str, lines: Iterable[str]) -> tuple[str, ...]:
    """Return the lines in a code block, whose fence is longer than any run of backticks in them."""
    inside = tuple(map(escape_control_characters, lines))
    longest = max((len(run) for line in inside for run in _TICKS.findall(line)), default=0)
    fence = "`" * max(3, longest + 1)
    return (f"{fence}{language}", *inside, fence)


def _bytes(lines: Iterable[str]) -> int:
    return sum(len(line.encode("utf-8", "replace")) + 1 for line in lines)
