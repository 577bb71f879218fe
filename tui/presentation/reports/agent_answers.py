"""What the agent answered to a command, in words: the ledger keeps the answer as JSON."""

import json
from collections.abc import Mapping
from typing import Any

PENDING = ", first batch pending"
"""Of a start that Spark has taken; its own time, not that of its batch, is told."""


def detail_words(detail: str) -> str:
    """Write the detail of a recorded command: an answer in words, empty where it says no more than the command does.

    What is not an answer is the reason why there is none, and stays as it is.
    """
    try:
        answer = json.loads(detail)
    except ValueError:
        return detail
    if not isinstance(answer, dict):
        return detail
    if answer.get("statements"):
        return ", ".join(f"{each.get('table', '?')} {outcome_words(each, 'ms')}" for each in answer["statements"])
    if "steps" in answer:
        return f"run {answer['run']} started"
    return f"plan {answer['hash'][:12]}" if "hash" in answer else ""


def outcome_words(answer: Mapping[str, Any], unit: str) -> str:
    """Write what came of an act on one statement, in `ms` or `s`; how long it took is of the act alone."""
    outcome, millis = str(answer.get("outcome", "sent")), answer.get("ms", answer.get("took_ms"))
    if not isinstance(millis, int | float):
        return outcome
    act, pending = outcome.removesuffix(PENDING), PENDING if outcome.endswith(PENDING) else ""
    took = f"{millis:.0f} ms" if unit == "ms" else f"{millis / 1000:.1f} s"
    return f"{act} in {took}{pending}"
