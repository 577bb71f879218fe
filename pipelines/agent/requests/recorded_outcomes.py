"""What is recorded of a request that was carried out: one word, what came of it, and the entries of the audit."""

import json
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from core.model.act_outcomes import BEGUN, UNCHANGED, UNCONFIRMED, ActOutcome
from core.model.errors import HeadgateError, Refused
from core.model.names import query_name

PARTLY = "partly"
"""Some statements were acted on, and others were refused or failed."""


class RecordedOutcome(NamedTuple):
    """Outcome and detail of a command, as in `CommandRow`."""

    outcome: str
    detail: str
    parts: tuple[tuple[str, str], ...] = ()
    """Subject and outcome of each entry of the audit where they differ; empty where one says it."""


def outcome_of_error(error: HeadgateError) -> RecordedOutcome:
    """Return what is recorded of a request that was refused, or failed."""
    return RecordedOutcome(_word_of_error(error), error.summary)


def outcome_of_answer(op: str, result: dict[str, Any]) -> RecordedOutcome:
    """Return what is recorded of a request that was answered: what has only begun is not done."""
    if each := tuple(ActOutcome.from_json(one) for one in result.get("statements", ())):
        return RecordedOutcome(_word_of_all(each), _detail(each), _parts(each))
    if result.get("changed") is False:
        return RecordedOutcome("unchanged", json.dumps(result, default=str))
    begun = op in ("apply", "run") and result.get("act") != "ack"
    return RecordedOutcome("accepted" if begun else "done", json.dumps(result, default=str))


def _word_of_all(outcomes: Collection[ActOutcome]) -> str:
    words = {_word(outcome) for outcome in outcomes}
    done, not_done = words - {"refused", "failed"}, words & {"refused", "failed"}
    if not_done:
        return PARTLY if done else "failed" if "failed" in not_done else "refused"
    return next(word for word in ("accepted", "done", "unchanged") if word in done)


def _detail(outcomes: Sequence[ActOutcome]) -> str:
    """Write what came of each, first those that were not acted on."""
    worst_first = sorted(outcomes, key=lambda outcome: outcome.error is None)
    return ", ".join(f"{outcome.table} {outcome.words(f'{outcome.took_ms:.0f} ms')}" for outcome in worst_first)


def _parts(outcomes: Collection[ActOutcome]) -> tuple[tuple[str, str], ...]:
    names: dict[str, list[str]] = {}
    for outcome in outcomes:
        names.setdefault(_word(outcome), []).append(query_name(outcome.table, outcome.version))
    return tuple((" ".join(found), word) for word, found in names.items()) if len(names) > 1 else ()


def _word(outcome: ActOutcome) -> str:
    if outcome.error is not None:
        return _word_of_error(outcome.error)
    if outcome.came in UNCHANGED:
        return "unchanged"
    return "accepted" if outcome.came in BEGUN | UNCONFIRMED else "done"


def _word_of_error(error: HeadgateError) -> str:
    return "refused" if isinstance(error, Refused) else "failed"
