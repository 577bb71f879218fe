"""The agent's answers to commands, and the outcomes of its acts, as text; the ledger keeps an answer as JSON."""

import json

from core.model.act_outcomes import ActOutcome


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
    if "steps" in answer:
        return f"run {answer['run']} started"
    return f"plan {answer['hash'][:12]}" if "hash" in answer else ""


def outcome_words(outcome: ActOutcome, unit: str) -> str:
    """Write the outcome of an act on one statement, and how long that act alone took, in `ms` or `s`."""
    return outcome.words(f"{outcome.took_ms:.0f} ms" if unit == "ms" else f"{outcome.took_ms / 1000:.1f} s")
