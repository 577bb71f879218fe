"""Computes plans from files and ledger, submits them to the agent, and finds submitted plans.

The agent recomputes every submitted plan.
"""

import json
import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from core.model.actions import Action
from core.model.errors import (
    AgentUnreachable,
    HeadgateError,
    InvalidProject,
    LedgerUnavailable,
    Refused,
    Stale,
    UsageError,
)
from core.model.names import TableName
from core.observed.planner_input import PlannerInput
from core.plan.model import PLANNER_VERSION, Plan
from core.plan.request import PlanRequest
from core.project.manifest_head import PLACES
from core.text.wording import counted
from tui.agent_client import agent_process
from tui.agent_client.agent_process import WaitProgress
from tui.agent_client.socket_client import AgentClient
from tui.project_folder.declaring_files import content_unless_read, read_text
from tui.project_folder.environment_selection import SelectedEnvironment
from tui.project_folder.manifest_head_cache import PROJECT_FILE
from tui.project_folder.request_scope import refuse_unknown
from tui.services.planner_input_reader import observe, planner_input, wait_until_statements_observed

if TYPE_CHECKING:
    from core.changes.spark_questions_and_answers import AnalysisAnswer, AnalysisQuestion
    from core.project.model import Project
    from core.project_reader.parse_cache import ParseCache
    from state.ledger import LedgerReader
    from state.row_types import PlanRow
    from tui.project_folder.project_folder_reader import ProjectDeclaration

SPARK_ANALYSIS_S = 15.0
"""Maximum time that planning waits for Spark to analyse the plan's statements, in seconds."""

MEASURING_S = 3.0
"""Maximum time to wait for measurements of costs, in seconds; a folder of thousands of files takes 1 s."""

TOPICS_S = 6.0
"""Maximum time to wait for the brokers of a plan's topics, in seconds; they answer within 0.1 s, or not at all."""

_STARTS_TEXT = frozenset({Action.START, Action.RESTART, Action.REBUILD})
SETTLING_S = 15.0
"""Maximum time to recompute a plan while its input keeps changing, in seconds.

After a pool has started, statements start one by one, and each start may remove a step from the plan.
"""

_TRIES = 3
"""Number of times that a plan is submitted before the agent's refusal, because the plan is stale, is reported."""

_SHORTEST = 4
"""Minimum length of a hash prefix that identifies a plan."""


@dataclass(frozen=True, slots=True)
class SubmittedPlan:
    """A plan that the agent has accepted, with the confirmation required to execute it."""

    plan: Plan
    expires_at: float
    confirm: str
    """The text to type to confirm the execution; empty if nothing has to be typed."""
    level: str
    approved: int = 0
    """Number of approvals by users other than the author."""
    unanswered: str = ""
    """Why Spark did not analyse all statements; empty if it did."""


def compute(
    project: "Project", environment: str, known: PlannerInput, request: PlanRequest, facts: "ParseCache | None" = None
) -> Plan:
    """Compute a plan without using the agent, Spark or the ledger. Refusals are part of the plan.

    Raises InvalidProject if a statement that the plan starts reads a column that does not exist.
    """
    from core.planner.planner import make_plan

    plan = make_plan(
        project,
        environment,
        known.observed,
        request,
        facts,
        answers=known.answers,
        policy=known.policy,
        headroom=known.headroom,
        durations=known.durations,
        source=known.source,
        pools=known.pools,
    )
    _refuse_wrong_columns(plan, project, facts)
    return plan


def _refuse_wrong_columns(plan: Plan, project: "Project", facts: "ParseCache | None") -> None:
    from core.project_reader.parse_cache import ParseCache, wrong_columns
    from tui.project_folder.parsing_performance import read_columns_in_two_processes

    started = [node.table for node in plan.nodes if node.action in _STARTS_TEXT]
    problems = wrong_columns(project, started, facts or ParseCache(), read_columns_in_two_processes)
    if problems:
        raise InvalidProject(
            f"{counted(len(problems), 'column')} that {'is' if len(problems) == 1 else 'are'} read "
            f"{'does' if len(problems) == 1 else 'do'} not exist",
            remedy="correct what is listed, and plan again",
            problems=tuple(problem.as_json() for problem in problems),
        )


def raise_refusals(plan: Plan) -> None:
    """Raise Refused with the first refusal of a plan, if it has any."""
    if plan.refusals:
        first = plan.refusals[0]
        more = f", and {len(plan.refusals) - 1} more" if len(plan.refusals) > 1 else ""
        raise Refused(f"{first.summary}{more}", remedy=str(first.remedy))


def with_nonce(request: PlanRequest, reader: "LedgerReader | None" = None) -> PlanRequest:
    """Add a nonce to a request, because a plan is identified by its hash and executed only once.

    If an open plan has an equal request, its nonce is reused, so that the same files yield the same plan. A
    continuation needs no nonce, because its request contains a run's id.
    """
    from core.plan.codec import request_from_json
    from core.planner.scope import normal_request

    if request.nonce or request.continues:
        return request
    wanted = normal_request(request)
    for asked in reader.open_requests(time.time()) if reader else ():
        known = request_from_json(asked)
        if replace(known, nonce="") == wanted:
            return replace(request, nonce=known.nonce)
    return replace(request, nonce=secrets.token_hex(8))


def submit(
    place: SelectedEnvironment,
    client: AgentClient,
    reader: "LedgerReader",
    request: PlanRequest,
    *,
    declared: "ProjectDeclaration",
    facts: "ParseCache",
    line: str,
    first: tuple[Plan, PlannerInput] | None = None,
    source: "LedgerReader | None" = None,
    asks_spark: bool = True,
) -> SubmittedPlan:
    """Compute a plan and submit it to the agent, retrying if its input has changed.

    Raises Refused with the plan's first refusal, and Stale if every attempt was outdated. With `asks_spark`, Spark
    first analyses new and changed statements. A statement that is not analysed in time is planned unconfirmed, so
    planning never fails because of Spark. `first` is a plan just computed for the same request, with its input; it
    determines what is analysed and measured. The plan is recomputed only if the results change its input. `source` is
    the ledger from which the request promotes revisions.
    """
    from core.planner.strategy_costs import refuse_not_executable

    if agent_process.is_listening(client):
        wait_until_statements_observed(place, reader, _silent)
    wanted = with_nonce(request, reader)

    def computed(now: PlannerInput) -> Plan:
        refuse_unknown(declared.project, now.observed, wanted)
        return compute(declared.project, place.environment, now, wanted, facts)

    def planned(now: PlannerInput) -> Plan:
        raise_refusals(found := computed(now))
        return found

    def observed() -> PlannerInput:
        return planner_input(reader, source)

    given = first if first is not None and first[0].request == wanted else None
    plan, known = given or _first_plan(client, observed, declared.project, computed)
    raise_refusals(plan)
    unanswered = ""
    refuse_not_executable(plan)
    if asks_spark:
        unanswered = _measure_and_ask(client, reader, plan, declared=declared, facts=facts, seconds=SPARK_ANALYSIS_S)
        now = observed()
        plan = planned(now) if _moved(known, now) else plan
    same, ends_at = 1, time.monotonic() + SETTLING_S
    while True:
        try:
            answer = client.call("submit_plan", _submission(place, plan, declared), line=line)
            return submitted_from(plan, answer, unanswered)
        except Stale:
            if same == _TRIES or time.monotonic() > ends_at:
                raise
            refused, plan = plan.hash, planned(observed())
            same = same + 1 if plan.hash == refused else 1


def _submission(place: SelectedEnvironment, plan: Plan, declared: "ProjectDeclaration") -> dict[str, Any]:
    from core.plan.codec import request_as_json

    return {
        "texts": dict(declared.texts),
        "environment": place.environment,
        "request": request_as_json(plan.request),
        "hash": plan.hash,
        "folder": place.folder,
        "planner": PLANNER_VERSION,
        "pools": {node.table: node.pool for node in plan.nodes if node.pool},
    }


def _first_plan(
    client: AgentClient,
    observed: Callable[[], PlannerInput],
    project: "Project",
    computed: Callable[[PlannerInput], Plan],
) -> tuple[Plan, PlannerInput]:
    """Compute a plan, and again if the agent saw topics or folders that it had not known; return it with its input."""
    plan = computed(known := observed())
    if look_for_inputs(client, plan, project):
        plan = computed(known := observed())
    return plan, known


def submitted_from(plan: Plan, answer: Mapping[str, Any], unanswered: str) -> SubmittedPlan:
    """Combine a plan with the agent's answer to its submission."""
    return SubmittedPlan(
        plan=plan,
        expires_at=float(answer.get("expires_at") or 0.0),
        confirm=str(answer.get("confirm") or ""),
        level=str(answer.get("level") or ""),
        unanswered=unanswered,
        approved=int(answer.get("approved") or 0),
    )


def ask_spark(
    client: AgentClient, questions: "Sequence[AnalysisQuestion]", *, seconds: float
) -> "tuple[tuple[AnalysisAnswer | None, ...], str]":
    """Have Spark analyse statements, through the agent.

    Returns an answer or None for each statement, and why answers are missing; the reason is empty if all statements are
    answered.
    """
    from core.changes.spark_questions_and_answers import answer_from_json

    args = {"questions": [question.as_json() for question in questions], "seconds": seconds}
    said = client.call("opinion", args)
    answers = tuple(answer_from_json(each) if each else None for each in said.get("answers") or ())
    return answers, str(said.get("unanswered") or "")


def find_plan_row(reader: "LedgerReader", hash_prefix: str) -> "PlanRow":
    """Return the submitted plan whose hash starts with a prefix.

    Raises UsageError if no plan or several plans match.
    """
    # An unset variable in a script is empty, and must not mean the newest plan.
    if len(hash_prefix) < _SHORTEST:
        remedy = f"give the first {_SHORTEST} characters of its hash, or more; headgate review lists the plans"
        raise UsageError(f"{hash_prefix!r} is too short to identify a plan", remedy=remedy)
    hashes = reader.plan_hashes(hash_prefix)
    if len(hashes) > 1:
        named = ", ".join(found[:12] for found in hashes)
        raise UsageError(f"{hash_prefix} matches several plans: {named}", remedy="give more characters of the hash")
    row = reader.plan(hashes[0]) if hashes else None
    if row is None:
        raise UsageError(f"there is no plan {hash_prefix}", remedy="headgate review lists the plans")
    return row


def request_of_row(row: "PlanRow") -> tuple[PlanRequest | None, tuple[str, ...]]:
    """Return a plan's request and the tables on which the plan acts, without decoding the rest of the plan.

    Returns None and () if the row cannot be decoded.
    """
    from core.plan.codec import request_from_json

    try:
        body: dict[str, Any] = json.loads(row.body)
        return request_from_json(body["request"]), tuple(map(str, body["order"]))
    except (ValueError, KeyError, TypeError, HeadgateError):
        return None, ()


def plan_of_row(row: "PlanRow") -> Plan:
    """Decode the plan in a row of the ledger. Raises LedgerUnavailable if it cannot be decoded."""
    from core.plan.codec import plan_from_json

    try:
        body: dict[str, Any] = json.loads(row.body)
        return plan_from_json(body)
    except (ValueError, KeyError) as error:
        raise LedgerUnavailable(f"plan {row.hash[:12]} cannot be read back", remedy="plan again") from error


def _moved(before: PlannerInput, now: PlannerInput) -> bool:
    """True if the planner's input has changed in a way that may change the plan.

    The load of disk and pool is ignored, because it changes constantly.
    """

    def weighed(one: PlannerInput) -> tuple[object, ...]:
        engine = one.headroom.engine if one.headroom else ""
        return one.observed, one.answers, one.policy, one.source, engine, one.pools

    return weighed(before) != weighed(now)


def look_for_inputs(client: AgentClient, plan: Plan, project: "Project") -> bool:
    """Have the agent look for the topics and folders of a plan; True if the plan must be computed again.

    All errors but AgentUnreachable are ignored: the plan then says what is unknown.
    """
    if not plan.nodes:
        return False
    from core.planner.planner import folders_of, topics_of

    topics = topics_of(plan, project) if any(guard.name == "topics" for guard in plan.guards) else ()
    folders = folders_of(plan, project)
    if not (topics or folders):
        return False
    args = {"locations": topics, "folders": folders, "seconds": TOPICS_S}
    try:
        return bool(client.call("look_for_inputs", args).get("changed"))
    except AgentUnreachable:
        raise
    except HeadgateError:
        return False


def _tables_to_measure(plan: Plan) -> list[TableName]:
    """Return the tables whose sizes determine a plan's cost: rebuilt tables and the tables from which they stream."""
    found: dict[TableName, None] = {}
    for node in plan.nodes:
        if node.action is Action.REBUILD:
            found |= dict.fromkeys((node.table, *(each.parent for each in node.bindings if each.streamed)))
    return list(found)


def _have_measured(client: AgentClient, tables: Sequence[TableName]) -> None:
    """Have the agent measure tables now instead of within ten minutes.

    All errors but AgentUnreachable are ignored.
    """
    try:
        client.call("measure", {"tables": list(tables), "seconds": MEASURING_S})
    except AgentUnreachable:
        raise
    except HeadgateError:
        return


def _measure_and_ask(
    client: AgentClient,
    reader: "LedgerReader",
    plan: Plan,
    *,
    declared: "ProjectDeclaration",
    facts: "ParseCache",
    seconds: float,
) -> str:
    """Have the agent measure a plan's tables and Spark analyse its statements; return why any analysis is missing."""
    from core.planner.planner import questions_of

    if tables := _tables_to_measure(plan):
        _have_measured(client, tables)
    if not any(node.for_spark for node in plan.nodes):
        return ""
    questions = questions_of(plan, declared.project, observe(reader), facts)
    try:
        return ask_spark(client, questions, seconds=seconds)[1]
    except AgentUnreachable:
        raise
    except HeadgateError as error:
        return error.summary


def _silent(wait: WaitProgress) -> None:
    return


def with_edits(row: "PlanRow", place: SelectedEnvironment) -> "PlanRow":
    """Return a plan's row, marked as superseded if the plan is open and a file of its tables was edited afterwards.

    Only the folder in which the plan was made is compared, because the plan does not depend on the files of another
    checkout.
    """
    folder = row.folder
    if row.status != "open" or folder != place.folder or not os.path.isfile(os.path.join(folder, PROJECT_FILE)):
        return row
    request, acts = request_of_row(row)
    if request is None or request.verb == "delete":
        return row
    texts: Mapping[str, str] = json.loads(row.texts)
    if PLACES in texts:
        return _with_edited_manifest(row, folder, texts, [*acts, *request.tables])
    for table in dict.fromkeys((*acts, *request.tables)):
        for path in _declaring(TableName(table), texts):
            now, at = _now(folder, path)
            if now != texts.get(path):
                return replace(row, status="superseded", superseded_by=f"an edit of {path}", superseded_at=at)
    return row


def _with_edited_manifest(row: "PlanRow", folder: str, texts: Mapping[str, str], tables: Iterable[str]) -> "PlanRow":
    from core.project_reader.places import read_places
    from tui.project_folder.declaring_files import read_files

    now = read_files(folder).texts
    parts = read_places(texts[PLACES]).parts
    for table in dict.fromkeys(tables):
        declaring = tuple(_declaring(TableName(table), texts))
        for path in declaring:
            if now.get(path) != texts.get(path):
                # A text that is no longer generated may lack any of the files.
                changed = (path,) if path in now else declaring
                behind = {part.path for each in changed for part in parts.get(each, ())} if PLACES in now else set()
                edited, at = _last_edited(folder, behind or {PROJECT_FILE})
                return replace(row, status="superseded", superseded_by=f"an edit of {edited}", superseded_at=at)
    return row


def _last_edited(folder: str, paths: Iterable[str]) -> tuple[str, float | None]:
    """Return which of several files behind one text was edited: one that is gone or, otherwise, the newest."""
    dates = {path: _now(folder, path)[1] for path in sorted(paths)}
    gone = [path for path, at in dates.items() if at is None]
    edited = gone[0] if gone else max(dates, key=lambda path: dates[path] or 0.0)
    return edited, dates[edited]


def _declaring(table: TableName, texts: Mapping[str, str]) -> Iterator[str]:
    """Yield the paths of the files that declare a table, including settings files that do not exist yet."""
    ddl = next((path for path in texts if path.endswith(f"/sql-scripts/ddl.{table}.sql")), "")
    if not ddl:
        return
    scripts = os.path.dirname(ddl)
    folder = os.path.dirname(scripts)
    own = f"{scripts}/dml.{table}.sql"
    yield ddl
    yield from [own] if own in texts else _statements(scripts, texts)
    settings = f"{folder}/{table}.yml"
    yield settings
    if settings not in texts:
        yield f"{folder}/{os.path.basename(folder)}.yml"


def _statements(scripts: str, texts: Iterable[str]) -> list[str]:
    """Return the paths of all DML files in a `sql-scripts` folder. Each file may write several tables."""
    return [path for path in texts if path.startswith(f"{scripts}/dml.")]


def _now(folder: str, path: str) -> tuple[str | None, float | None]:
    """Return a file's content and modification time, as far as they can be read; None if it does not exist."""
    place = os.path.join(folder, path)
    try:
        return read_text(place), os.stat(place).st_mtime
    except FileNotFoundError:
        return None, None
    except (OSError, UnicodeDecodeError) as error:
        return content_unless_read(error), None
