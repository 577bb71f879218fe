"""The status line of every screen: a message, what the agent answered to an act, and what stands there without one."""

from collections.abc import Iterable, Sequence

from core.model.act_outcomes import NOT_DONE, ActOutcome, CommandOutcome
from core.plan.descriptions import act_words
from core.run.records import RunRow
from core.text.wording import counted
from state.audit_log import op_words
from state.row_types import CommandRow
from tui.presentation.styling.styled_text import Line, Tone, fit, line, plain, shorten, wrap
from tui.presentation.styling.value_formatting import clock
from tui.presentation.view.ledger_view import Freshness, LedgerView

MESSAGE_LINES, STANDING_LINES = 4, 2
"""Lines that the status line may take: for a message, and for what stands there without one."""
COMMAND_S = 60.0
"""How long the last command stands there; after that it is in the log."""

_BEGINNING = {
    "start": ", first batch pending",
    "restart": ", first batch pending",
    "stop": ", not confirmed by Spark yet",
}
"""Of an act on statements that was accepted, what is still to come."""


def message_lines(
    text: str, at: float | None, tone: Tone, width: int, *, most: int = MESSAGE_LINES
) -> tuple[Line, ...]:
    """Write what happened last, on as many lines as it needs, `most` at most."""
    stamp = f" {clock(at)} " if at is not None else " "
    rows = [plain(row) for row in wrap(text, width - len(stamp) - 1)]
    if len(rows) > most:
        rows[most - 1 :] = [shorten(f"{rows[most - 1]} {rows[most]}", width - len(stamp) - 1)]
    stamps = (stamp, *(" " * len(stamp) for _ in rows[1:]))
    return tuple(fit(line((start, Tone.DIM), (row, tone)), width) for start, row in zip(stamps, rows, strict=True))


def standing_message(view: LedgerView, fresh: Freshness, now: float) -> tuple[str, float | None, Tone]:
    """Return text, time and tone of what stands there without a message: what is wrong, else the last command."""
    snapshot = view.snapshot
    if snapshot.problem:
        return f"{snapshot.problem}. {snapshot.remedy}".strip(), None, Tone.BAD
    if snapshot.facts is not None and not fresh.agent:
        return fresh.reason, None, Tone.CHANGING
    if not snapshot.commands or now - snapshot.commands[0].at > COMMAND_S:
        return "", None, Tone.DIM
    command = snapshot.commands[0]
    tone = Tone.BAD if command.outcome in NOT_DONE else Tone.PLAIN
    took = (
        f" in {command.took_ms / 1000:.1f} s"
        if command.outcome == CommandOutcome.DONE and command.took_ms is not None
        else ""
    )
    detail = f": {command.detail}" if command.detail and tone is Tone.BAD else ""
    words = f"{op_words(command.op)} {command.subject}".strip()
    # What was handed over is a plan to read: nothing of it is done.
    done = "submitted" if (command.op, command.outcome) == ("submit_plan", CommandOutcome.DONE) else command.outcome
    outcome = done + (_started(command) if command.outcome == CommandOutcome.ACCEPTED else "")
    return f"{words}: {outcome}{took}, by {command.actor}{detail}", command.at, tone


def accepted_words(run_id: str) -> str:
    """Return the line for a plan that was accepted; its outcome is reported by its run."""
    return f"accepted, run {run_id} started"


def failure_words(run: RunRow) -> str:
    """Return the line for a run that failed: at which step, why, and how it is opened."""
    step = next((step for step in run.steps if step.state == "failed"), None)
    why = f": {act_words(step.do)} {step.table}: {step.note}" if step else ""
    return f"run {run.id[:10]} failed{why}; :run {run.id[:10]} shows it, :ack acknowledges it"


def _started(command: CommandRow) -> str:
    """Name what an accepted command has begun, as far as the agent's answer says it."""
    return _BEGINNING.get(command.op) or (f", {command.detail}" if command.detail else "")


def act_answer(verb: str, outcomes: Iterable[ActOutcome]) -> str:
    """Write what happened to each statement that was stopped, started or restarted."""
    words = [f"{outcome.table} {outcome.words(f'{outcome.took_ms / 1000:.1f} s')}" for outcome in outcomes]
    return f"{verb}: {', '.join(words) or 'sent'}"


def stage_answer(verb: str, tables: Sequence[str], screen: str, *, unchanged: Sequence[str] = ()) -> str:
    """Write what was staged, what of it is declared as it is deployed, and which key goes on from this screen."""
    same = f" ({', '.join(unchanged)}: unchanged, nothing to do)" if unchanged else ""
    key = "enter plans what is staged" if screen == "changes" else "p shows the stage, enter there plans it"
    return f"{verb} staged: {', '.join(tables)}{same}; {key}"


def unstage_answer(taken: Sequence[str]) -> str:
    """Write what was taken off the stage."""
    words = f"{counted(len(taken), 'table')} off the stage: "
    return words + (", ".join(taken) or "nothing changed: it was staged from another project folder")


def approve_answer(plan_hash: str, approved: int, needed: int) -> str:
    """Write how many approvals a plan has."""
    return f"plan {plan_hash[:4]}: approvals {approved} of {needed}"
