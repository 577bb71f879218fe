"""Recomputes and stores submitted plans, records approvals by other logins, and executes each plan at most once."""

import json
import logging
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from core.ipc.environment_paths import sibling_ledger
from core.model.actions import FORKS, Action
from core.model.errors import InvalidProject, LedgerUnavailable, PoolUnreachable, Refused, Stale, UsageError
from core.model.evidence import Edit, EditKind
from core.model.file_stores import store_kind
from core.model.names import TableName
from core.model.problems import Severity
from core.model.table_formats import table_format
from core.observed.planner_input import ObservedDeployment, SourceTable
from core.plan.codec import canonical_text, plan_as_json, plan_from_json, plan_hash, request_from_json
from core.plan.confirmation import confirmation_for_act, confirmation_for_plan
from core.plan.diff import compare_plans, difference_words
from core.plan.model import PLANNER_VERSION, Plan, PlanNode
from core.plan.preconditions import effects_by_table, moved_since
from core.plan.request import PlanRequest
from core.planner.planner import make_plan
from core.planner.scope import normal_request
from core.planner.strategy_costs import refuse_not_executable
from core.policy.roles_and_rules import Policy
from core.project.connectors import connectors_of
from core.project.manifest_head import MANIFEST_PATH
from core.project.model import Environment, Project
from core.project.unreadable_file import texts_from_json
from core.project_reader.loader import read_sound_tables
from core.project_reader.manifest import read_manifest
from core.project_reader.parse_cache import ParseCache
from core.project_reader.paths import jar_path
from core.run.records import RunRow, StepRow
from core.sql.registered_functions import jar_hash
from core.text.secret_masking import mask_literals
from core.text.wording import counted
from pipelines.agent.context import AgentContext
from pipelines.agent.identity.foreign_names import refuse_edited_environment, refuse_names_of_others
from pipelines.agent.requests.caller_roles_and_policy import require_confirmation
from pipelines.agent.requests.pool_drains import PoolDrains
from pipelines.agent.requests.socket_server import Caller
from pipelines.agent.runs.run_driver import OpenRuns
from pipelines.agent.tables.external_inputs import refuse_unlike_inputs
from pipelines.storage.jar_store import JARS, JarStore
from state.overlay_files import versions_read_by_overlays
from state.planner_input_from_registry import observe, observe_pools
from state.plans import approvals_of_others, local_time, refuse_closed
from state.promotion_source import observe_source, open_source
from state.row_types import ApprovalRow, PlanRow
from state.runs import RunIdTaken, refuse_continued

log = logging.getLogger(__name__)

CLOCKS_APART_S = 60.0
"""Seconds by which a saved plan's creation time may be ahead of the agent's clock."""

NAMED = 3
"""Maximum number of differences that a refusal lists."""


class SubmittedPlans:
    """Executes the commands submit, approve and apply.

    A saved plan is submitted with its body and creation time.
    """

    def __init__(self, agent: AgentContext, runs: OpenRuns) -> None:
        self._agent = agent
        self._runs = runs
        self._facts = ParseCache()
        self._drains = PoolDrains(agent)

    def submit(self, caller: Caller, args: Mapping[str, Any]) -> dict[str, Any]:
        """Compute the plan from the caller's files and the agent's observations; store it if its hash is the caller's.

        Raises Stale if the two hashes differ, and Refused if the plan cannot be executed.
        """
        refuse_other_planner(str(args.get("planner", PLANNER_VERSION)))
        wanted = str(args.get("hash", ""))
        saved = self._saved(args, wanted)
        project = self._project(args)
        try:
            request = request_from_json(args.get("request") or {})
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            why = f"this request for a plan cannot be read: {type(error).__name__} {error}"
            raise UsageError(why, remedy="submit it with this version of Headgate") from error
        if request.continues:
            self._refuse_continuing(request)
        declared = project.environments.get(self._agent.layout.environment.name)
        refuse_edited_environment(declared, str(args["texts"][MANIFEST_PATH]), self._agent)
        made_at = self._made_at(args, wanted) if saved else self._agent.clock()
        observed = self._observed()
        chosen = {node.table: node.pool for node in saved.nodes} if saved else _chosen(args)
        plan = self._plan(project, observed, request, self._source(project, request), chosen=chosen)
        if plan.hash != wanted:
            raise (
                _stale_error(saved, plan, observed, self._acts())
                if saved
                else Stale("the environment changed between planning and submitting", remedy="plan again")
            )
        if plan.refusals:
            first = plan.refusals[0]
            raise Refused(str(first.summary), remedy=str(first.remedy))
        refuse_not_executable(plan)
        self._drains.refuse(plan, declared or self._agent.layout.environment)
        self._refuse_without_connector(project, plan, str(args["texts"][MANIFEST_PATH]))
        refuse_unlike_inputs(self._agent, project, plan)
        self._store_jars(project, plan, str(args.get("folder") or ""))
        # The run checks again before its first effect.
        with suppress(PoolUnreachable):
            refuse_names_of_others(self._agent, plan)
        kept = {**args, "texts": _texts_without_secrets(args["texts"], project)}
        return self._keep(caller, plan, kept, made_at, saved=saved is not None)

    def approve(self, caller: Caller, args: Mapping[str, Any], confirm: str) -> dict[str, Any]:
        """Record the caller's approval of a plan.

        Raises Refused if the caller is the plan's author. Approving twice counts as one approval.
        """
        row, plan = self._known(args)
        short = plan.hash[:12]
        refuse_closed(row, now=self._agent.clock())
        if not plan.approvals:
            raise Refused(f"plan {short} needs no approval", remedy=f"headgate apply {short}")
        if caller.may_be(row.author, row.author_uid, row.author_process_uid):
            raise Refused(
                f"plan {short} was submitted by {row.author}; its author cannot approve it",
                remedy="ask another login to approve it, without sudo",
            )
        self._refuse_policy(plan)
        self._refuse_stale(plan, self._observed())
        here = self._agent.layout.environment
        require_confirmation(
            confirmation_for_act("approve", (plan.hash,), here.protected, environment=here.name), confirm
        )
        now = self._agent.clock()
        self._agent.ledger.approve(ApprovalRow(plan.hash, caller.person, caller.name, now, caller.uid))
        return {"hash": plan.hash, "approved": self._approved(row), "approvals": plan.approvals}

    def apply(self, caller: Caller, args: Mapping[str, Any], confirm: str) -> dict[str, Any]:
        """Start a run of the plan. Raises Refused if the plan was applied before or must not be applied now."""
        row, plan = self._known(args)
        if plan.empty:
            raise Refused("this plan changes nothing", remedy="there is nothing to apply")
        now = self._agent.clock()
        refuse_closed(row, now=now)
        self._refuse_policy(plan)
        if plan.request.verb != "rollback" and (until := self._agent.frozen()):
            raise Refused(f"{plan.environment} is {until}: no plan is applied", remedy="apply it after that")
        refuse_not_executable(plan)
        self._refuse_unapproved(row, plan)
        # Announced before the plan is compared, so that every later stop counts as a stop during the run.
        serial = self._agent.locks.announce_start()
        observed, environment = self._observed(), self._declared(row)
        self._refuse_stale(plan, observed)
        self._drains.refuse(plan, environment)
        self._drains.refuse_cordoned(plan)
        self._drains.refuse_full(plan, environment, observed)
        require_confirmation(confirmation_for_plan(plan), confirm)
        return self._begin(caller, plan, now, serial)

    def _begin(self, caller: Caller, plan: Plan, now: float, serial: int) -> dict[str, Any]:
        changed = [node for node in plan.nodes if node.action is not Action.KEEP]
        for table, code in ((node.table, edit.before) for node in changed for edit in _continued_code(node)):
            continued = f"continues the state of the code {code}"
            self._agent.audit(caller.name, STATE_COMPATIBLE, table, plan_hash=plan.hash, outcome=continued)
        self._drains.state_gone(caller.name, plan)
        touched = {node.table for node in changed}
        upstream = {binding.parent for node in changed for binding in node.bindings}
        while True:
            run = _first_record(self._agent.run_id(plan.hash), plan, caller, now, serial)
            with suppress(RunIdTaken):
                self._agent.ledger.apply_plan(plan.hash, run, touched, upstream, now=now, cordons=plan.request.drains)
                break
        self._drains.record(caller.name, plan, run.id)
        self._runs.drive(run.id)
        try:
            self._unstage(caller.name, touched)
        except LedgerUnavailable as error:
            log.warning("the tables of run %s stay staged: %s", run.id, error.summary)
        return {"run": run.id, "steps": len(plan.steps)}

    def _unstage(self, actor: str, tables: Collection[TableName]) -> None:
        for staged in self._agent.ledger.staged():
            if staged.actor == actor and staged.table in tables:
                self._agent.ledger.unstage(staged.actor, staged.folder, (staged.table,))

    # The inputs of a plan.

    def _policy(self) -> Policy | None:
        # Plans use the declared policy until one is recorded.
        return self._agent.ledger.recorded_policy()

    def _observed(self) -> dict[TableName, ObservedDeployment]:
        return observe(
            self._agent.ledger.deployments(include_deleted=True),
            self._agent.ledger.table_statistics(),
            self._agent.ledger.taken_versions(),
            self._agent.ledger.table_serials(),
            self._agent.clock(),
            tickets=self._agent.ledger.tickets(),
            overlays=versions_read_by_overlays(self._agent.places.home),
        )

    def _refuse_without_connector(self, project: Project, plan: Plan, manifest: str) -> None:
        """Raise Refused if a pool was started before headgate.yml named a connector that a table needs."""
        named = {connector.name for connector in read_manifest(manifest, []).connectors}
        loaded = {pool.name: pool.client.connectors() for pool in self._agent.pools.every()}
        names = dict.fromkeys((*plan.order, *(each.parent for node in plan.nodes for each in node.bindings)))
        for table in (project.tables[name] for name in names if name in project.tables):
            format, place = table_format(table.parsed_ddl.format), table.parsed_ddl.location
            for pool, given in loaded.items():
                for connector in connectors_of(format, place):
                    if given is not None and connector in named - {*given}:
                        what = format.name if connector == format.connector else f"in {store_kind(place).name}"
                        which = f"the pool {pool}" if len(loaded) > 1 else "the pool"
                        raise Refused(
                            f"{table.name} is {what}, and {which} was started without the connector {connector}",
                            remedy="headgate down, then headgate up: statements go on from their checkpoints",
                        )

    def _store_jars(self, project: Project, plan: Plan, folder: str) -> None:
        """Copy the jars of the plan's functions from the project, or from another environment, to this one's home.

        Raises Refused if one has another content than when the plan was made.
        """
        home = Path(self._agent.places.home)
        for table in (project.tables[name] for name in plan.order if name in project.tables):
            for _, script in table.functions:
                if sha256 := jar_hash(script.text):
                    path = jar_path(script.path, script.text)
                    sources = [Path(folder, path)] if folder else []
                    sources += home.parent.glob(f"*/{JARS}/{sha256}.jar")
                    JarStore(home / JARS).add(sha256, path, sources)

    def _acts(self) -> dict[TableName, str]:
        return {table: f"{act.what}, {local_time(act.at)}," for table, act in self._agent.ledger.table_acts().items()}

    def _source(self, project: Project, request: PlanRequest) -> dict[TableName, SourceTable]:
        """Read the environment from which a request promotes; the caller's word for its state is not enough."""
        name = request.promoted_from
        if not name:
            return {}
        if name not in project.environments:
            raise UsageError(
                f"{project.name} declares no environment {name!r}", remedy="promote from one that it declares"
            )
        with closing(open_source(sibling_ledger(self._agent.places.home, name), name, project.id)) as reader:
            return observe_source(reader)

    def _plan(
        self,
        project: Project,
        observed: Mapping[TableName, ObservedDeployment],
        request: PlanRequest,
        source: Mapping[TableName, SourceTable],
        *,
        chosen: Mapping[TableName, str],
    ) -> Plan:
        environment = self._agent.layout.environment.name
        answers = self._agent.ledger.spark_analyses()
        plan = make_plan(
            project,
            environment,
            observed,
            request,
            self._facts,
            answers=answers,
            policy=self._policy(),
            headroom=self._agent.ledger.headroom(),
            durations=self._agent.ledger.step_durations(),
            source=source,
            pools=observe_pools(self._agent.ledger.facts()),
            chosen=chosen,
        )
        self._facts.take_fresh()
        return plan

    def _declared(self, row: PlanRow) -> Environment:
        """Return the environment as the files of a plan declare it."""
        here, text = self._agent.layout.environment, json.loads(row.texts or "{}").get(MANIFEST_PATH)
        found = read_manifest(text, []).environment(here.name) if isinstance(text, str) else None
        return found or here

    def _project(self, args: Mapping[str, Any]) -> Project:
        texts = texts_from_json(args.get("texts") or {})
        environment = self._agent.layout.environment.name
        project, problems = read_sound_tables(texts, self._facts, environment=environment)
        if project is None:
            errors = [p for p in problems if p.severity is Severity.ERROR]
            raise InvalidProject(
                f"the project has {counted(len(errors), 'problem')}",
                remedy="correct what is listed; headgate plan --all lists all of them",
                problems=tuple(problem.as_json() for problem in errors),
            )
        if project.id != self._agent.project_id:
            raise Refused("these texts belong to another project than the agent's", remedy="check --project")
        return project

    # A saved plan.

    def _saved(self, args: Mapping[str, Any], wanted: str) -> Plan | None:
        if args.get("plan") is None:
            return None
        saved = plan_from_json(args["plan"])
        refuse_other_planner(saved.planner)
        here = self._agent.layout.environment.name
        if saved.environment != here:
            raise Refused(
                f"this plan was made for {saved.environment}, but this agent serves {here}",
                remedy=f"apply it with --env {saved.environment}",
            )
        if saved.hash != wanted or plan_hash(saved) != wanted:
            raise Refused("the plan was edited: its hash does not match its content", remedy="plan again")
        return saved

    def _made_at(self, args: Mapping[str, Any], wanted: str) -> float:
        made_at, now = args.get("created_at"), self._agent.clock()
        if isinstance(made_at, bool) or not isinstance(made_at, (int, float)):
            raise UsageError(f"{made_at!r} is not a time", remedy="plan again")
        if made_at > now + CLOCKS_APART_S:
            raise Refused(
                f"the plan's creation time is {made_at - now:.0f} s in the future",
                remedy="synchronize the clocks of both machines",
            )
        expires = made_at + self._expires_s
        kept = self._agent.ledger.plan(wanted) or PlanRow(
            wanted, "", author="", created_at=made_at, expires_at=expires, status="open"
        )
        refuse_closed(replace(kept, expires_at=expires), now=now)
        return float(made_at)

    @property
    def _expires_s(self) -> float:
        return self._agent.layout.environment.plan_expires_h * 3600

    def _keep(
        self, caller: Caller, plan: Plan, args: Mapping[str, Any], made_at: float, *, saved: bool
    ) -> dict[str, Any]:
        body, texts = canonical_text(plan_as_json(plan)), json.dumps(args.get("texts") or {})
        expires = made_at + self._expires_s
        asked = plan.request
        of_files = args.get("plan") is None and not (asked.undoes or asked.promoted_from or asked.drains)
        folder = str(args.get("folder") or "") if of_files else ""
        new = PlanRow(
            plan.hash,
            body,
            author=caller.name,
            created_at=made_at,
            expires_at=expires,
            status="open",
            texts=texts,
            author_uid=caller.person,
            author_process_uid=caller.uid,
            folder=folder,
        )
        if plan.empty:
            self._agent.ledger.supersede_others(new, effects_by_table(plan), saved=saved)
        else:
            self._agent.ledger.put_plan(new, effects_by_table(plan), saved=saved)
        row = self._agent.ledger.plan(plan.hash) or new
        needed = confirmation_for_plan(plan)
        return {
            "hash": plan.hash,
            "expires_at": row.expires_at,
            "confirm": needed.text,
            "level": needed.level,
            "approved": self._approved(row),
            "approvals": plan.approvals,
        }

    # Reasons to refuse a plan.

    def _known(self, args: Mapping[str, Any]) -> tuple[PlanRow, Plan]:
        wanted = str(args.get("hash", ""))
        row = self._agent.ledger.plan(wanted)
        if row is None:
            raise UsageError(f"there is no plan {wanted!r}", remedy="headgate review lists the plans")
        plan = plan_from_json(json.loads(row.body))
        refuse_other_planner(plan.planner)
        if plan_hash(plan) != row.hash:
            raise Refused(f"plan {row.hash[:12]} is damaged: its hash does not match its content", remedy="plan again")
        return row, plan

    def _approved(self, row: PlanRow) -> int:
        return len(approvals_of_others(row, self._agent.ledger.approvals(row.hash)))

    def _refuse_unapproved(self, row: PlanRow, plan: Plan) -> None:
        approved = self._approved(row)
        if approved < plan.approvals:
            raise Refused(
                f"approvals {approved} of {plan.approvals}",
                remedy=f"headgate approve {plan.hash[:12]} as another login",
            )

    def _refuse_policy(self, plan: Plan) -> None:
        policy = self._policy()
        if policy is not None and plan.policy != policy.digest:
            raise Stale(f"the policy of {plan.environment} has changed since this plan was made", remedy="plan again")

    def _refuse_stale(self, plan: Plan, observed: Mapping[TableName, ObservedDeployment]) -> None:
        if found := moved_since(plan.preconditions, observed, self._acts()):
            raise Stale(f"the plan is stale: {_first(found)}", remedy="plan again")

    def _refuse_continuing(self, request: PlanRequest) -> None:
        row = self._agent.ledger.run(request.continues)
        if row is None:
            raise UsageError(f"there is no run {request.continues!r}", remedy="headgate runs lists them")
        if row.state != "failed":
            raise Refused(f"run {row.id} is {row.state}: only a failed run can be continued", remedy="plan again")
        refuse_continued(row.id, row.continued_by)
        failed = self._agent.ledger.plan(row.plan_hash)
        before = plan_from_json(json.loads(failed.body)).request if failed else PlanRequest()
        if replace(before, nonce="", continues="") != replace(normal_request(request), nonce="", continues=""):
            raise Refused(f"run {row.id} was made for another request", remedy=f"headgate runs retry {row.id}")


STATE_COMPATIBLE = "state_compatible"
"""Action of the audit entry for a declaration that changed code of a job continues the state of older code."""


def _chosen(args: Mapping[str, Any]) -> dict[TableName, str]:
    """Return the pools in which the caller's plan has placed statements, by table."""
    given = args.get("pools")
    return {TableName(str(table)): str(pool) for table, pool in given.items()} if isinstance(given, dict) else {}


def _continued_code(node: PlanNode) -> Iterator[Edit]:
    if node.action is Action.REBUILD and node.strategy not in FORKS:
        # For example, an upgrade test has disproved the declaration.
        return iter(())
    found = (seen for seen in node.evidence if isinstance(seen, Edit))
    return (edit for edit in found if edit.kind is EditKind.CODE_CONTINUES)


def _texts_without_secrets(texts: Mapping[str, str], project: Project) -> dict[str, str]:
    """Return the files of a project, with secrets masked in files that have errors. No plan executes such files.

    A file that passes all checks has no secrets in the places that the checks cover.
    """
    broken = tuple(f"{table.folder}/" for table in project.broken.values())
    stray = {problem.where.path for problem in project.stray if problem.where}
    return {
        path: "\n".join(map(mask_literals, text.split("\n"))) if path.startswith(broken) or path in stray else text
        for path, text in texts.items()
    }


def _first_record(run_id: str, plan: Plan, caller: Caller, now: float, serial: int) -> RunRow:
    steps = tuple(
        StepRow(
            n=step.n,
            do=step.do.value,
            table=step.table,
            version=step.version,
            state="waits",
            predicted_low_s=step.predicted_low_s,
            predicted_high_s=step.predicted_high_s,
        )
        for step in plan.steps
    )
    return RunRow(
        run_id,
        plan.hash,
        actor=caller.name,
        state="running",
        started_at=now,
        ended_at=None,
        steps=steps,
        continues=plan.request.continues,
        serial=serial,
        predicted_low_s=plan.predicted_low_s,
        predicted_high_s=plan.predicted_high_s,
    )


def refuse_other_planner(planner: str) -> None:
    """Raise Refused if the planner version differs, because the meaning of terms in the plan may have changed."""
    if planner != PLANNER_VERSION:
        raise Refused(
            f"planned by planner version {planner}; this agent has version {PLANNER_VERSION}", remedy="plan again"
        )


def _stale_error(
    saved: Plan, plan: Plan, observed: Mapping[TableName, ObservedDeployment], acts: Mapping[TableName, str]
) -> Stale:
    if found := moved_since(saved.preconditions, observed, acts):
        return Stale(f"the plan is stale: {_first(found)}", remedy="plan again")
    if saved.policy != plan.policy:
        return Stale(f"the policy of {plan.environment} has changed since this plan was made", remedy="plan again")
    words = tuple(difference_words(one) for one in compare_plans(saved, plan) if one.matters)
    return Stale(f"the plan differs from what this agent plans: {_first(words)}", remedy="plan again")


def _first(words: tuple[str, ...]) -> str:
    more = f"; and {len(words) - NAMED} more" if len(words) > NAMED else ""
    return "; ".join(words[:NAMED]) + more
