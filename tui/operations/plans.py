"""Plans: computed here from files and the ledger, submitted to the agent, which computes them again."""

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from core.errors import HeadgateError, LedgerUnavailable, Refused, Stale, UsageError
from core.names import TableName
from core.plan import PLANNER, Observed, Plan, Request
from state.rows import PlanRow
from state.store import Reader
from tui.client import Client
from tui.operations.environments import Place

if TYPE_CHECKING:
    from core.facts import Facts
    from core.opinions import Answer, Question
    from core.project import Project
    from tui.operations.projects import Declaration

OPINION_S = 15.0
"""How long a plan waits for Spark's opinion of its statements."""

_TRIES = 3
_SHORTEST = 4


@dataclass(frozen=True, slots=True)
class Submitted:
    """A plan that the agent has accepted, with the text that executing it asks for."""

    plan: Plan
    expires_at: float
    confirm: str
    """Empty when nothing has to be typed."""
    level: str
    unanswered: str = ""
    """Why Spark was not heard on some of its statements; empty when it was on all."""


def observe(reader: Reader) -> dict[TableName, Observed]:
    """Observe the environment from its ledger by the same function as the agent."""
    from state.observed import observe as observe_deployments

    return observe_deployments(reader.deployments(include_deleted=True))


def observed_from_file(path: str) -> Mapping[TableName, Observed]:
    """Read an `--observed` file (YAML or JSON); raises UsageError, InvalidProject with all Problems."""
    from core.observed import observed_from_text

    try:
        with open(path, encoding="utf-8-sig") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}", remedy="give a YAML or JSON file") from error
    return observed_from_text(text, path)


def compute(
    project: "Project",
    environment: str,
    observed: Mapping[TableName, Observed],
    request: Request,
    facts: "Facts | None" = None,
    *,
    answers: Mapping[str, str] | None = None,
) -> Plan:
    """Compute a plan, without agent, Spark or ledger; what cannot be done is in its refusals.

    `answers` are Spark's to the questions of earlier plans, from the ledger.
    """
    from core.planner import make_plan

    return make_plan(project, environment, observed, request, facts, answers=answers or {})


def refuse(plan: Plan) -> None:
    """Raise Refused when the request cannot be done at all."""
    if plan.refusals:
        first = plan.refusals[0]
        more = f", and {len(plan.refusals) - 1} more" if len(plan.refusals) > 1 else ""
        raise Refused(f"{first.table}: {first.summary}{more}" if first.table else first.summary, remedy=first.remedy)


def submit(
    place: Place,
    client: Client,
    reader: Reader,
    request: Request,
    *,
    declared: "Declaration",
    facts: "Facts",
    line: str,
    asking_s: float = OPINION_S,
) -> Submitted:
    """Compute and hand over to the agent, again when its world moved in between; raises Refused, Stale.

    The agent asks Spark about every new or changed statement first. What it does not answer within `asking_s` is
    planned unconfirmed: planning never fails by Spark.
    """
    from core.plan_json import plan_as_json

    wanted = request if request.nonce else replace(request, nonce=secrets.token_hex(8))

    def planned() -> Plan:
        observed, said = observe(reader), reader.opinions()
        found = compute(declared.project, place.environment, observed, wanted, facts, answers=said)
        refuse(found)
        return found

    plan, unanswered = planned(), ""
    if asking_s > 0 and any(node.for_spark for node in plan.nodes):
        unanswered = _ask_spark(client, reader, plan, declared=declared, facts=facts, seconds=asking_s)
        plan = planned()
    for attempt in range(_TRIES):
        args = {
            "texts": dict(declared.texts),
            "environment": place.environment,
            "request": plan_as_json(plan)["request"],
            "hash": plan.hash,
            "folder": place.folder,
            "planner": PLANNER,
        }
        try:
            answer = client.call("submit_plan", args, line=line)
        except Stale:
            if attempt == _TRIES - 1:
                raise
            plan = planned()
            continue
        return Submitted(
            plan=plan,
            expires_at=float(answer.get("expires_at") or 0.0),
            confirm=str(answer.get("confirm") or ""),
            level=str(answer.get("level") or ""),
            unanswered=unanswered,
        )
    raise AssertionError("the last try returns or raises")


def opinion(
    client: Client, questions: "Sequence[Question]", *, seconds: float
) -> "tuple[tuple[Answer | None, ...], str]":
    """Ask Spark about statements, through the agent; None where it did not say, with one sentence on why."""
    from core.opinions import answer_from_json

    args = {"questions": [question.as_json() for question in questions], "seconds": seconds}
    said = client.call("opinion", args)
    answers = tuple(answer_from_json(each) if each else None for each in said.get("answers") or ())
    return answers, str(said.get("unanswered") or "")


def _ask_spark(
    client: Client, reader: Reader, plan: Plan, *, declared: "Declaration", facts: "Facts", seconds: float
) -> str:
    """Have the agent ask about what a plan acts on, so that its ledger has the answers; gives why some are missing."""
    from core.planner import questions_of

    questions = questions_of(plan, declared.project, observe(reader), facts)
    try:
        return opinion(client, questions, seconds=seconds)[1]
    except HeadgateError as error:
        return error.summary


def find(reader: Reader, hash_prefix: str) -> tuple[PlanRow, Plan]:
    """Find the one submitted plan whose hash begins so; raises UsageError, also when it could be several."""
    # An unset variable in a script gives an empty text, and the newest plan is not what it meant.
    if len(hash_prefix) < _SHORTEST:
        remedy = f"give the first {_SHORTEST} characters of its hash, or more; headgate review lists the plans"
        raise UsageError(f"{hash_prefix!r} is too short to name a plan", remedy=remedy)
    hashes = reader.plan_hashes(hash_prefix)
    if len(hashes) > 1:
        named = ", ".join(found[:12] for found in hashes)
        raise UsageError(f"{hash_prefix} begins several plans: {named}", remedy="give more characters of the hash")
    row = reader.plan(hash_prefix)
    if row is None:
        raise UsageError(f"there is no plan {hash_prefix}", remedy="headgate review lists the plans")
    return row, value(row)


def value(row: PlanRow) -> Plan:
    """Read the plan's body; raises LedgerUnavailable when it cannot be read back."""
    from core.plan_json import plan_from_json

    try:
        body: dict[str, Any] = json.loads(row.body)
        return plan_from_json(body)
    except (ValueError, KeyError) as error:
        raise LedgerUnavailable(f"plan {row.hash[:12]} cannot be read back", remedy="plan again") from error
