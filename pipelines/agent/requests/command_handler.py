"""Authorizes and executes the agent's commands, and records them with their outcome."""

import math
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from core.changes.spark_cross_check import proof_key
from core.changes.spark_questions_and_answers import question_from_json
from core.model.act_outcomes import ActOutcome, CommandOutcome
from core.model.errors import EngineRefused, HeadgateError, Refused, UsageError
from core.model.events import EventKind
from core.model.names import parse_statement_name, parse_table_name
from core.model.table_formats import table_format
from core.plan.confirmation import OF_A_RUN, Confirmation, confirmation_for_act
from core.run.model import OperatorControl
from core.run.records import RunRow
from core.run.state_machine import GOES_ON
from core.text.escaping import qualified
from pipelines.agent.context import AgentContext
from pipelines.agent.measurements.table_statistics_collector import TableStatisticsCollector
from pipelines.agent.requests.adoption import Adoption
from pipelines.agent.requests.caller_roles_and_policy import PolicyEnforcement, require_confirmation
from pipelines.agent.requests.command_log import CommandLog, RecordedOutcome, cut, outcome_of_answer, outcome_of_error
from pipelines.agent.requests.comparison_with_base import COMPARE_S, LONGEST_WAIT_S, ComparisonWithBase
from pipelines.agent.requests.run_controls import check_swap, journal_retry, refuse_run_command, why_not_skipped
from pipelines.agent.requests.socket_server import Caller
from pipelines.agent.requests.spark_analysis_cache import SparkAnalysisCache
from pipelines.agent.requests.submitted_plans import SubmittedPlans
from pipelines.agent.runs.run_driver import OpenRuns
from pipelines.agent.statements.statement_control import StatementControl
from pipelines.agent.tables.external_inputs import look_for_inputs, read_from_outside
from pipelines.agent.tables.table_identities import refuse_gone
from state.row_types import StagedRow
from state.runs import refuse_impossible_action

PEEK_ROWS = 1000
"""Maximum number of rows that a peek returns."""

PEEK_S = 30.0

SPARK_ANALYSIS_S = 20.0
"""Default time limit for Spark analysis, in seconds."""

MEASURE_S = 10.0
"""Default time limit for measuring tables, in seconds."""

FOLDER_LIMIT = 4096
"""Maximum length of the path of a project folder, in characters. Linux limits paths to as many bytes."""

TABLES_LIMIT = 10_000
"""Maximum number of tables that a user can have staged at the same time."""

LONGEST_S = 300.0
"""Longest time limit, in seconds, that a caller can request for Spark analysis or measuring."""

_HASH = re.compile(r"[0-9a-f]{64}")
_LONGEST_SHOWN = 300
"""Maximum length of an upgrade test's result in the ledger, in characters."""

_Answer = Callable[[Caller, dict[str, Any], str], dict[str, Any]]
"""Answers a command, given the caller, the arguments and the typed confirmation."""


class _StatementAct(Protocol):
    def __call__(self, names: tuple[str, ...], arrived: float, *, by: str) -> tuple[ActOutcome, ...]: ...


class _End(Protocol):
    def __call__(self, *, pool: bool, purge: bool = False) -> None: ...


class CommandHandler:
    """Authorizes, executes and records requests.

    The socket identifies the caller. The agent itself determines the required confirmation.
    """

    def __init__(
        self,
        agent: AgentContext,
        acts: StatementControl,
        runs: OpenRuns,
        table_statistics: TableStatisticsCollector,
        end: _End,
    ) -> None:
        self._agent = agent
        self._table_statistics = table_statistics
        self._runs = runs
        self._end = end
        self._policies = PolicyEnforcement(agent)
        self._plans = SubmittedPlans(agent, runs)
        adoption = Adoption(agent)
        self._comparison = ComparisonWithBase(agent)
        self._analyses = SparkAnalysisCache(agent)
        self._log = CommandLog(agent)
        self.record_repeated = self._log.record_repeated
        self._answer_by_op: dict[str, _Answer] = {
            "status": self._status,
            "stop": partial(self._act_on_statements, "stop", acts.stop),
            "start": partial(self._act_on_statements, "start", acts.start),
            "restart": partial(self._act_on_statements, "restart", acts.restart),
            "submit_plan": self._submit_plan,
            "approve": self._plans.approve,
            "apply": self._plans.apply,
            "run": self._run,
            "close_ticket": self._close_ticket,
            "cordon_pool": self._cordon_pool,
            "stage": self._stage,
            "unstage": self._unstage,
            "peek": self._peek,
            "compare": self._compare,
            "comparison": lambda caller, args, confirm: self._comparison.progress(str(args.get("id", ""))),
            "opinion": self._analyse,
            "upgrade_shown": self._note_upgrade,
            "measure": self._measure,
            "look_for_inputs": self._look_for_inputs,
            "pool_work": self._pool_work,
            "unlock": self._policies.unlock,
            "lock": self._policies.lock,
            "policy_apply": self._policies.apply,
            "policy_approve": self._policies.approve,
            "adoption": lambda caller, args, confirm: adoption.findings(),
            "adopt": lambda caller, args, confirm: adoption.carry_out(confirm),
            "start_pool": self._start_pool,
            "exit": self._exit,
        }

    def handle(self, caller: Caller, request: dict[str, Any]) -> dict[str, Any]:
        """Answer one request. Raises HeadgateError if the agent refuses the request or fails to execute it.

        Every command is authorized. Commands that change something are recorded with their outcome.
        """
        op, args = request.get("op", ""), request.get("args") or {}
        confirm, line = request.get("confirm") or "", request.get("line") or ""
        answer = self._answer_by_op.get(op) if isinstance(op, str) else None
        if answer is None or not (isinstance(args, dict) and isinstance(confirm, str) and isinstance(line, str)):
            raise UsageError(
                f"the agent does not know the command {cut(str(op), 40)!r}", remedy="restart the agent after an upgrade"
            )
        if op in ("status", "peek", "compare", "comparison", "measure", "look_for_inputs", "adoption", "pool_work"):
            self._admit_look(caller, request, args)
            return answer(caller, args, "")
        began = time.monotonic()
        said = RecordedOutcome(CommandOutcome.FAILED, "the agent failed to execute it")
        try:
            self._policies.admit(caller, op, args)
            result = answer(caller, args, confirm)
            said = outcome_of_answer(op, result)
            return result
        except HeadgateError as error:
            said = outcome_of_error(error)
            raise
        finally:
            self._log.note(caller, request, said, int((time.monotonic() - began) * 1000))

    def _admit_look(self, caller: Caller, request: dict[str, Any], args: dict[str, Any]) -> None:
        try:
            self._policies.admit(caller, str(request["op"]), args)
        except Refused as error:
            self._log.note(caller, request, outcome_of_error(error), 0)
            raise

    def _status(self, caller: Caller, args: dict[str, Any], confirm: str) -> dict[str, Any]:
        facts = self._agent.ledger.facts()
        return {
            "actor": caller.name,
            "roles": self._policies.roles(caller),
            "pool": facts.worst_pool.name,
            "pool_state": facts.worst_pool.state,
            "pool_detail": facts.worst_pool.detail,
            "generation": facts.worst_pool.generation,
            "home": self._agent.places.home,
            "folder": self._agent.folder,
            "data_fault": fault.as_json() if (fault := self._agent.identity.fault) is not None else None,
            "refused": self._refused(caller, args),
        }

    def _refused(self, caller: Caller, args: dict[str, Any]) -> dict[str, Any] | None:
        """Return why the command `op` would be refused to the caller, whatever it acts on; None if it would not be."""
        try:
            self._policies.admit(caller, str(args.get("op", "")), args)
        except HeadgateError as error:
            return error.as_json()
        return None

    def _act_on_statements(
        self, verb: str, act: _StatementAct, caller: Caller, args: dict[str, Any], confirm: str
    ) -> dict[str, Any]:
        arrived = time.monotonic()
        outcomes = act(self._confirmed(verb, args, confirm), arrived, by=caller.name)
        return {"statements": [outcome.as_json() for outcome in outcomes]}

    def _confirmed(self, act: str, args: dict[str, Any], confirm: str) -> tuple[str, ...]:
        tables = tuple(sorted({parse_statement_name(str(table)) for table in args.get("tables") or ()}))
        if not tables:
            raise UsageError(f"{act} needs a table", remedy=f"headgate {act} TABLE")
        here = self._agent.layout.environment
        needed = confirmation_for_act(act, tables, here.protected, environment=here.name)
        # The caller's files may already protect the environment and ask for more; that must not fail a stop.
        require_confirmation(needed, confirm, stronger=confirmation_for_act(act, tables, True, environment=here.name))
        return tables

    def _submit_plan(self, caller: Caller, args: dict[str, Any], confirm: str) -> dict[str, Any]:
        return self._plans.submit(caller, args)

    def _run(self, caller: Caller, args: dict[str, Any], confirm: str) -> dict[str, Any]:
        row, act = self._agent.ledger.run(str(args.get("id"))), str(args.get("act", ""))
        if row is None:
            raise UsageError(f"there is no run {args.get('id')!r}", remedy="headgate runs lists them")
        if act not in ("pause", "resume", "cancel", "retry", "skip", "swap", "ack"):
            raise UsageError(f"a run cannot {act!r}", remedy="pause, resume, cancel, retry, skip, swap or ack")
        if act == "ack":
            return self._acknowledge(caller, row)
        refuse_impossible_action(row.id, row.state, act)
        step = _whole(args, "step", 0)
        if act == "skip" and (why := why_not_skipped(self._agent, row, step)):
            raise Refused(
                f"step {step} cannot be skipped: {why}",
                remedy=f"headgate runs retry {row.id}, or headgate runs cancel {row.id}",
            )
        if act in GOES_ON:
            refuse_run_command(self._agent, self._policies, caller, row, OperatorControl(act, step))
        if act == "swap":
            check_swap(self._agent, row, confirm)
        if act in OF_A_RUN:
            require_confirmation(
                confirmation_for_act(act, (row.id,), self._agent.layout.environment.protected), confirm
            )
        if act == "retry" or (act == "skip" and row.state == "failed"):
            # The retry is recorded here rather than by the run, so that a client that follows the run does not see its
            # old end.
            journal_retry(self._agent, row, skipping=step if act == "skip" else 0, by=caller.name)
            self._runs.wake(row.id)
        else:
            self._runs.submit_command(row.id, OperatorControl(act, step, caller.name))
        return {"run": row.id, "act": act}

    def _close_ticket(self, caller: Caller, args: dict[str, Any], confirm: str) -> dict[str, Any]:
        run_id, reader = str(args.get("id")), str(args.get("reader", ""))
        mine = [one for one in self._agent.ledger.tickets(run_id) if one.reader == reader and one.closed_at is None]
        closed = self._agent.ledger.close_ticket(run_id, reader, by=caller.name, at=self._agent.clock())
        for ticket in mine:
            summary = f"{reader} has moved from {ticket.old}: its ticket was closed by {caller.name}"
            self._agent.record_completed_change(EventKind.TICKET, summary, about=(ticket.table, ticket.version))
        return {"run": run_id, "reader": reader, "closed": closed}

    def _cordon_pool(self, caller: Caller, args: dict[str, Any], confirm: str) -> dict[str, Any]:
        """Let a pool take no new statements, or take them again; what is in it goes on."""
        pool, takes_none = self._agent.pools.named(str(args.get("id", ""))), bool(args.get("cordons"))
        if not self._agent.pools.are_several:
            remedy = "stop statements: headgate stop TABLE, or protect the environment: headgate help policy"
            raise Refused("an environment with one pool has no other for new statements", remedy=remedy)
        now = self._agent.clock()
        changed = self._agent.ledger.cordon_pool(pool.name, now if takes_none else None, caller.name)
        if changed:
            said = "takes no new statements" if takes_none else "takes new statements again"
            summary = f"the pool {pool.name} {said}: {'' if takes_none else 'un'}cordoned by {caller.name}"
            self._agent.record_completed_change(EventKind.POOL, summary)
        return {"pool": pool.name, "cordoned": takes_none, "changed": changed}

    def _acknowledge(self, caller: Caller, row: RunRow) -> dict[str, Any]:
        # Consoles no longer show an acknowledged failure in their first line.
        if row.state != "failed":
            raise Refused(f"run {row.id} is {row.state}: only a failed run is acknowledged", remedy="headgate runs")
        self._agent.ledger.acknowledge_run(row.id, caller.name)
        return {"run": row.id, "act": "ack"}

    def _stage(self, caller: Caller, args: dict[str, Any], confirm: str) -> dict[str, Any]:
        tables = [parse_table_name(str(table)) for table in args.get("tables") or ()]
        verb = str(args.get("verb", "deploy"))
        if verb not in ("deploy", "hold", "delete"):
            raise UsageError(f"{verb!r} cannot be staged", remedy="deploy, hold or delete")
        folder = str(args.get("folder", ""))
        if len(folder) > FOLDER_LIMIT or len(tables) > TABLES_LIMIT:
            raise UsageError(
                f"{len(tables):,} tables of a folder with {len(folder):,} characters cannot be staged",
                remedy=f"stage at most {TABLES_LIMIT:,} tables",
            )
        theirs = {(mark.folder, mark.table) for mark in self._agent.ledger.staged() if mark.actor == caller.name}
        if len(theirs | {(folder, table) for table in tables}) > TABLES_LIMIT:
            raise Refused(
                f"{caller.name} has {len(theirs):,} tables staged in all project folders, of at most {TABLES_LIMIT:,}",
                remedy="headgate unstage what is no longer wanted",
            )
        now = self._agent.clock()
        self._agent.ledger.stage(StagedRow(caller.name, folder, table, verb, now) for table in tables)
        return {"staged": tables}

    def _unstage(self, caller: Caller, args: dict[str, Any], confirm: str) -> dict[str, Any]:
        folder = str(args.get("folder", ""))
        asked = {parse_table_name(str(table)) for table in args.get("tables") or ()}
        mine = [mark for mark in self._agent.ledger.staged() if (mark.actor, mark.folder) == (caller.name, folder)]
        there = [mark.table for mark in mine if mark.table in asked]
        self._agent.ledger.unstage(caller.name, folder, there)
        return {"unstaged": there}

    def _pool_work(self, caller: Caller, args: dict[str, Any], confirm: str) -> dict[str, Any]:
        return self._agent.work.of_pool(self._agent.pools.named(str(args.get("pool", ""))).name).as_json()

    def _peek(self, caller: Caller, args: dict[str, Any], confirm: str) -> dict[str, Any]:
        table = parse_table_name(str(args.get("table", "")))
        deployment = self._agent.serving(table)
        if deployment is None:
            raise UsageError(f"{table} is not deployed", remedy="headgate ls shows what is deployed")
        version = _whole(args, "version", deployment.version)
        whole = deployment.active and deployment.before_ddl and not args.get("version")
        name = self._agent.layout.pointer_name(table) if whole else self._agent.layout.catalog_name(table, version)
        limit = max(1, min(_whole(args, "limit", 20), PEEK_ROWS))
        looked_at = self._agent.ledger.deployment(table, version)
        if looked_at is None:
            raise UsageError(
                f"{table} has no version {version}", remedy=f"headgate show {table} lists the versions it has"
            )
        if not table_format(looked_at.format).has_files:
            found = _rows_as_json(name, *read_from_outside(self._agent, looked_at, limit))
            return {**found, "newest_first": table_format(looked_at.format).topics}
        try:
            pool = self._agent.pools.reachable()
            columns, rows = pool.call(PEEK_S, pool.tables.read, f"SELECT * FROM {qualified(name)}", limit)
        except EngineRefused as error:
            refuse_gone(self._agent, looked_at, error)
            raise
        if not rows:
            # If files of a table without a log are missing, Spark returns no rows instead of an error (4.2.0).
            refuse_gone(self._agent, looked_at)
        return _rows_as_json(name, columns, rows)

    def _compare(self, caller: Caller, args: dict[str, Any], confirm: str) -> dict[str, Any]:
        return self._comparison.begin(_seconds(args, COMPARE_S, LONGEST_WAIT_S))

    def _analyse(self, caller: Caller, args: dict[str, Any], confirm: str) -> dict[str, Any]:
        questions = [question_from_json(each) for each in args.get("questions") or ()]
        answers, why = self._analyses.ask(questions, _seconds(args, SPARK_ANALYSIS_S))
        return {"answers": [answer.as_json() if answer else None for answer in answers], "unanswered": why}

    def _note_upgrade(self, caller: Caller, args: dict[str, Any], confirm: str) -> dict[str, Any]:
        # Such a result can only make plans more cautious.
        hashes = str(args.get("old")), str(args.get("new"))
        if not all(_HASH.fullmatch(each) for each in hashes):
            raise UsageError("an upgrade result needs the hashes of two revisions", remedy="headgate test --upgrade")
        shown = cut(str(args.get("shown", "")), _LONGEST_SHOWN)
        self._agent.ledger.put_spark_analysis(proof_key(*hashes), shown, at=self._agent.clock())
        return {"table": str(parse_table_name(str(args.get("table", ""))))}

    def _measure(self, caller: Caller, args: dict[str, Any], confirm: str) -> dict[str, Any]:
        tables = [parse_table_name(str(table)) for table in args.get("tables") or ()]
        measured, unmeasured = self._table_statistics.measure(tables, _seconds(args, MEASURE_S))
        return {"measured": measured, "unmeasured": unmeasured}

    def _look_for_inputs(self, caller: Caller, args: dict[str, Any], confirm: str) -> dict[str, Any]:
        locations = sorted({str(each) for each in args.get("locations") or ()})
        if len(locations) > TABLES_LIMIT or not all(each.startswith("kafka://") for each in locations):
            raise UsageError("these are no locations of topics", remedy="plan again with this version of Headgate")
        folders = sorted({str(each) for each in args.get("folders") or ()})[:TABLES_LIMIT]
        return {"changed": look_for_inputs(self._agent, locations, folders, _seconds(args, MEASURE_S))}

    def _start_pool(self, caller: Caller, args: dict[str, Any], confirm: str) -> dict[str, Any]:
        return {"starting": any([pool.client.start_again() for pool in self._agent.pools.every()])}

    def _exit(self, caller: Caller, args: dict[str, Any], confirm: str) -> dict[str, Any]:
        here = self._agent.layout.environment
        if here.protected:
            require_confirmation(Confirmation("C2", here.name), confirm)
        self._end(pool=bool(args.get("pool", True)), purge=bool(args.get("purge", False)))
        return {"ending": True}


def _seconds(args: dict[str, Any], default: float, most: float = LONGEST_S) -> float:
    seconds = args.get("seconds", default)
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or math.isnan(seconds):
        raise UsageError(f"{cut(repr(seconds), 40)} is not a number of seconds", remedy="give seconds as a number")
    return min(float(seconds), most)


def _whole(args: dict[str, Any], name: str, default: int) -> int:
    number = args.get(name) or default
    if not isinstance(number, int):
        raise UsageError(f"{name} {cut(repr(number), 40)} is not a whole number", remedy=f"give {name} as a number")
    return number


def _rows_as_json(name: str, columns: Iterable[str], rows: Iterable[Sequence[object]]) -> dict[str, Any]:
    return {"table": name, "columns": list(columns), "rows": [[_plain(cell) for cell in row] for row in rows]}


def _plain(cell: object) -> object:
    """Convert a value to JSON: structs and maps to objects, bytes to hex, and values that JSON lacks to text."""
    if (as_dict := getattr(cell, "asDict", None)) is not None:
        cell = as_dict()
    if isinstance(cell, Mapping):
        return {str(_plain(key)): _plain(value) for key, value in cell.items()}
    if isinstance(cell, list | tuple):
        return [_plain(each) for each in cell]
    if isinstance(cell, bytes | bytearray):
        return f"0x{cell.hex()}"
    # JSON has no NaN and no infinities.
    fits = isinstance(cell, (int, str, bool, type(None))) or (isinstance(cell, float) and math.isfinite(cell))
    return cell if fits else str(cell)
