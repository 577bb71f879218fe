"""Review: a plan as it will be executed: rows in order, why, what is lost, what is left behind, what was checked."""

from core.differences import counted
from core.explain import GLYPH_BY_ACTION, UNDO_BY_ACTION, action_words, change_words, spark_words
from core.plan import Action, Node, Plan
from state.rows import PlanRow
from tui.presentation.changes import rule
from tui.presentation.differences import difference, head_of_difference
from tui.presentation.figures import long_span, moment, span
from tui.presentation.glyphs import Glyphs
from tui.presentation.text import EMPTY, Line, Span, Tone, fold, left, line, right, wrap

TONES = {
    Action.KEEP: Tone.DIM,
    Action.RECORD: Tone.DIM,
    Action.START: Tone.PLAIN,
    Action.RESUME: Tone.PLAIN,
    Action.RESTART: Tone.CHANGING,
    Action.REBUILD: Tone.CHANGING,
    Action.STOP: Tone.CHANGING,
    Action.DELETE: Tone.BAD,
}


def heading(plan: Plan, row: PlanRow, environment: str, now: float, width: int) -> tuple[Line, ...]:
    """Write what stands above the rows: hash, author, age; how many, order, expiry, status."""
    first = line(
        (f" PLAN {plan.hash[:4]}", Tone.TITLE),
        (f"   by {row.author} {span(now - row.created_at)} ago", Tone.DIM),
        f"   {environment}",
        ("   single use", Tone.DIM),
    )
    acted = sum(1 for node in plan.nodes if node.action is not Action.KEEP)
    status = state_of_plan(plan, row, now)
    second = line(
        f" {acted} of {counted(len(plan.nodes), 'statement')}",
        (f"   {counted(len(plan.steps), 'step')}   ", Tone.DIM),
        (status or f"expires {moment(row.expires_at, now)}", Tone.BAD if status else Tone.DIM),
    )
    return (*fold(first, width), *fold(second, width))


def state_of_plan(plan: Plan, row: PlanRow, now: float) -> str:
    """Say why a plan cannot be executed; empty when it can."""
    if plan.refusals:
        return f"refused: {plan.refusals[0].summary}"
    if any(guard.verdict == "deny" for guard in plan.guards):
        return "a check denies it"
    if row.status == "applied":
        return f"already applied, run {row.run_id[:10]}" if row.run_id else "already applied"
    if row.status != "open":
        return f"the plan is {row.status}"
    if now > row.expires_at:
        return f"expired {long_span(now - row.expires_at)} ago: plan again"
    if not plan.steps:
        return "nothing to do: it changes nothing"
    return ""


def _widths(width: int) -> tuple[int, int, int]:
    name = 21 if width < 120 else 34
    action, loses = 15, 9 if width < 120 else 30
    return name, action, loses


def columns(width: int) -> Line:
    """Write the heading of the rows."""
    name, action, loses = _widths(width)
    change = max(width - name - action - loses - 19, 10)
    text = "   #  " + left("TABLE", name) + left("CHANGE", change) + left("ACTION", action) + left("LOSES", loses)
    return line((text + right("ETA", 4) + " UNDO", Tone.DIM))


def node_row(number: int, node: Node, width: int) -> Line:
    """Write one row."""
    name, action, loses = _widths(width)
    change = max(width - name - action - loses - 19, 10)
    tone = TONES[node.action]
    lost = "nothing" if not node.loses else node.loses[0] if len(node.loses) == 1 else f"{len(node.loses)} things"
    kept = node.action is Action.KEEP
    return (
        Span("  "),
        Span(right("=" if kept else str(number), 2), Tone.DIM),
        Span(f" {GLYPH_BY_ACTION[node.action] if not kept else ' '}", tone),
        Span(left(node.table, name - 1) + " ", Tone.DIM if kept else Tone.PLAIN),
        Span(left("-" if kept else change_words(node), change - 1) + " ", Tone.DIM),
        Span(left(action_words(node), action), tone),
        Span(left("-" if kept else lost, loses), Tone.BAD if node.loses else Tone.DIM),
        Span(right("-" if node.eta_s is None else span(node.eta_s), 4), Tone.DIM),
        Span(" " + UNDO_BY_ACTION.get(node.action, "-"), Tone.DIM),
    )


def why(number: int, node: Node, width: int, glyphs: Glyphs, *, full: bool) -> tuple[Line, ...]:
    """Write why a row is done, what it loses and what it reads afterwards."""
    lines: list[Line] = [rule(f"why {number} {node.table}", width, glyphs)]
    cause = f" (row {node.row} of the table of changes)" if node.row else ""
    lines.extend(wrap(f"{node.reason}{cause}", width - 4, Tone.PLAIN, "   "))
    if node.because_of:
        lines.extend(wrap(f"because of {', '.join(node.because_of)}", width - 4, Tone.DIM, "   "))
    for evidence in node.evidence:
        lines.extend(wrap(evidence, width - 4, Tone.DIM, "   "))
    if not node.classified:
        lines.append(line(("   the change is not understood in full: it takes the safe way", Tone.CHANGING)))
    if words := spark_words(node):
        lines.append(line((f"   {words}", Tone.BAD if node.confirmed_by_spark is False else Tone.DIM)))
    for old, new in ((node.old.dml, node.texts.dml), (node.old.ddl, node.texts.ddl), (node.old.yml, node.texts.yml)):
        if old and new:
            lines.extend(difference(old, new, 50) if full else head_of_difference(old, new, 10))
    for loss in node.loses:
        lines.append(line((f"   LOSES {loss}", Tone.BAD)))
    if node.bindings and node.action is not Action.DELETE:
        reads = ", ".join(f"{one.parent}{f'__v{one.version}' if one.version else ''}" for one in node.bindings)
        lines.extend(wrap(f"reads {reads}", width - 4, Tone.DIM, "   "))
    return tuple(lines)


def rest(plan: Plan, width: int, glyphs: Glyphs) -> tuple[Line, ...]:
    """Write what is left behind, refusals, warnings, checks and steps."""
    lines: list[Line] = [EMPTY]
    for refusal in plan.refusals:
        lines.extend(wrap(f"REFUSED  {refusal.table}: {refusal.summary}. {refusal.remedy}", width - 2, Tone.BAD, " "))
    for one in plan.left_behind:
        owner = f", owner {one.owner}" if one.owner else ""
        lines.extend(
            wrap(
                f"LEFT BEHIND  {one.table} ({one.product}{owner}) stays on {one.reads}, "
                "which keeps running while it does",
                width - 2,
                Tone.CHANGING,
                " ",
            )
        )
    for warned in plan.warnings:
        lines.extend(wrap(f"NOTE  {warned.table}: {warned.summary}", width - 2, Tone.CHANGING, " "))
    for guard in plan.guards:
        tone = {"ok": Tone.GOOD, "warn": Tone.CHANGING, "deny": Tone.BAD}.get(guard.verdict, Tone.PLAIN)
        lines.append(line((" CHECK  ", Tone.DIM), (left(guard.verdict, 8), tone), f"{guard.name}: {guard.summary}"))
    lines.append(rule("steps", width, glyphs))
    for step in plan.steps:
        after = f"after {', '.join(map(str, step.after))}" if step.after else ""
        what = (
            ", ".join(step.tables) if step.tables else f"{step.table}" + (f" v{step.version}" if step.version else "")
        )
        lines.append(
            line(
                (f"   {step.n:>2} ", Tone.DIM),
                left(str(step.do).replace("_", " "), 10),
                f"{what}  ",
                (f"{after}  " if after else "", Tone.DIM),
                (step.why, Tone.DIM),
            )
        )
    return tuple(lines)


def losses(plan: Plan) -> tuple[str, ...]:
    """List everything that is lost, by statement."""
    return tuple(f"{node.table}: {loss}" for node in plan.nodes for loss in node.loses)


def summary_of(plan: Plan) -> str:
    """Write what a plan does in one line: `2 rebuild, 1 restart, 1 delete`."""
    counts: dict[str, int] = {}
    for node in plan.nodes:
        if node.action is not Action.KEEP:
            counts[str(node.action)] = counts.get(str(node.action), 0) + 1
    return ", ".join(f"{count} {action}" for action, count in counts.items()) or "nothing"
