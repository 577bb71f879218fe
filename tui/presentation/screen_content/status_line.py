"""What the agent answered to an act, as the one line that the console says."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from core.text.wording import counted


def act_answer(verb: str, answers: Iterable[Mapping[str, Any]]) -> str:
    """Write what happened to each statement that was stopped, started or restarted."""
    words = []
    for answer in answers:
        millis = answer.get("ms", answer.get("took_ms"))
        took = f" in {millis / 1000:.1f} s" if isinstance(millis, int | float) else ""
        words.append(f"{answer.get('table', '?')} {answer.get('outcome', 'sent')}{took}")
    return f"{verb}: {', '.join(words) or 'sent'}"


def stage_answer(verb: str, tables: Sequence[str]) -> str:
    """Write what was staged."""
    return f"{verb} staged: {', '.join(tables)}; p shows the stage, enter there plans it"


def unstage_answer(taken: Sequence[str]) -> str:
    """Write what was taken off the stage."""
    words = f"{counted(len(taken), 'table')} off the stage: "
    return words + (", ".join(taken) or "nothing changed: it was staged from another project folder")


def approve_answer(plan_hash: str, approved: int, needed: int) -> str:
    """Write how many approvals a plan has."""
    return f"plan {plan_hash[:4]}: approvals {approved} of {needed}"
