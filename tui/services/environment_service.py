"""The operations on one environment that the command line and the console share.

Every method blocks, may be called from any thread, and raises only HeadgateErrors.
"""

import difflib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from core.model.actions import StepKind
from core.model.errors import HeadgateError, InvalidProject, Refused, UsageError
from core.model.names import TableName, parse_statement_name, parse_table_name, split_query
from core.observed.versions import heartbeat_age_s, is_stale, serving_versions
from tui.agent_client import agent_commands
from tui.agent_client.agent_commands import AgentCommands
from tui.agent_client.socket_client import AgentClient
from tui.project_folder import environment_selection
from tui.project_folder.environment_selection import SelectedEnvironment
from tui.project_folder.project_folder_reader import ProjectDeclaration, ProjectReader, parse_sound_tables
from tui.services import deployed_statements
from tui.services.deployed_statements import ProjectDrift

if TYPE_CHECKING:
    from core.lineage.column_lineage import ColumnLineage, LineageTracer
    from core.lineage.selectors import SelectableTables
    from core.observed.planner_input import ObservedDeployment, PlannerInput
    from core.observed.versions import StatementLine
    from core.plan.model import Plan
    from core.plan.request import PlanRequest
    from core.project.model import Project
    from core.project_reader.broken_references import BrokenReferences
    from core.reports.function_uses import FunctionImpact, FunctionUses
    from core.reports.impact import Impact
    from core.reports.inventory import InventoryEntry
    from core.run.records import RunRow
    from core.run.release import Release
    from core.sql.lineage.model import ColumnOrigin
    from state.ledger import LedgerReader
    from state.ledger_snapshot import LedgerSnapshot, SnapshotCache, StatementDetails
    from tui.presentation.reports.schema_history import SchemaHistory
    from tui.services import follow_up_plans
    from tui.services.plan_submission import SubmittedPlan
    from tui.services.pool_drain import PlannedDrain
    from tui.services.promotion import Promotion

_OF_RUNS = ("rollback", "retire")
"""Verbs that accept a run's id in place of the tables that the run swapped in."""


class EnvironmentService:
    """Reads the ledger, computes plans and sends commands to the agent, for one environment of a project."""

    def __init__(self, place: SelectedEnvironment, environ: Mapping[str, str]) -> None:
        self.place = place
        self.environ = dict(environ)
        self.projects = ProjectReader(place, environ)
        self._lock = threading.Lock()
        self._cache: tuple[LedgerReader, SnapshotCache] | None = None
        self._killed: tuple[LedgerSnapshot, LedgerSnapshot] | None = None
        """A snapshot whose agent was killed: as read, and with the agent removed."""
        self._tracing = threading.Lock()
        self._tracer: tuple[ProjectDeclaration, LineageTracer] | None = None

    @cached_property
    def client(self) -> AgentClient:
        """The client for the agent's socket; it connects at the first call."""
        from state.migrations import SCHEMA_VERSION

        place, where = self.place, self.place.where
        return AgentClient(where.socket, ledger=SCHEMA_VERSION, title=place.title, owner=where.owner, up=place.up)

    @cached_property
    def agent(self) -> AgentCommands:
        """The commands that can be sent to the agent."""
        return AgentCommands(self.place, self.client)

    # The ledger, read-only. All raise LedgerUnavailable (never started, unreadable) and VersionMismatch.

    @property
    def reader(self) -> "LedgerReader":
        """The ledger's reader. It is opened at the first use."""
        return self._opened()[0]

    def _opened(self) -> "tuple[LedgerReader, SnapshotCache]":
        from state.ledger_snapshot import SnapshotCache

        with self._lock:
            if self._cache is None:
                reader = deployed_statements.open_reader(self.place)
                self._cache = reader, SnapshotCache(reader)
            return self._cache

    def snapshot(self) -> "LedgerSnapshot":
        """Return a snapshot of the environment. The same object is returned until the ledger changes.

        An agent that was killed leaves its pid in the ledger; the snapshot then contains no pid and shows
        the agent's runs as halted.
        """
        found = self._opened()[1].snapshot()
        facts = found.facts
        if facts is None or facts.agent_pid is None:
            return found
        if not is_stale(heartbeat_age_s(facts.agent_seen_at, time.time()), facts.agent_pid):
            return found
        if self._killed is None or self._killed[0] is not found:
            from state.ledger_snapshot import without_agent

            if self.has_agent():
                return found
            self._killed = found, without_agent(found)
        return self._killed[1]

    def has_agent(self) -> bool:
        """True if the environment's agent is alive, even if it does not answer."""
        from tui.agent_client import agent_process

        return agent_process.is_listening(self.client) or agent_process.find_agent_process(self.place) is not None

    def as_it_is(self, run: "RunRow") -> "RunRow":
        """Return a run as recorded or, if no agent is alive to continue it, as halted."""
        from core.run.records import halted

        return run if halted(run) is run or self.has_agent() else halted(run)

    def release_as_it_is(self, release: "Release") -> "Release":
        """Return a release as derived from its run or, if no agent is alive to continue it, as halted."""
        from core.run.release import halted_release

        return release if halted_release(release) is release or self.has_agent() else halted_release(release)

    def last_known(self, previous: "LedgerSnapshot | None") -> "LedgerSnapshot":
        """Return a current snapshot or, if the ledger cannot be read, the previous one with the reason added."""
        from state.ledger_snapshot import LedgerSnapshot

        try:
            return self.snapshot()
        except HeadgateError as error:
            self.close()
            if previous is not None and previous.problem == error.summary:
                return previous
            return replace(previous or LedgerSnapshot(read_at=time.time()), problem=error.summary, remedy=error.remedy)

    def statement(self, name: str) -> "tuple[StatementDetails, LedgerSnapshot]":
        """Return the details of a statement, or of a version such as `orders@v2`, and a snapshot of all statements.

        Both describe the same state of the ledger. Raises UsageError if the statement was never deployed.
        """
        asked = parse_statement_name(name)
        table, version = split_query(asked) or (parse_table_name(asked), None)
        try:
            return deployed_statements.statement_among_all(self.reader, table, version)
        except UsageError:
            if self._is_external(table):
                summary = f"{table} is an external table, and no deployed statement reads it yet"
                raise UsageError(summary, remedy=f"headgate lineage {table} shows what would read it") from None
            raise

    def _is_external(self, table: TableName) -> bool:
        """True if the files declare an external table of this name; False if they cannot be read."""
        try:
            declared = self.projects.read_sound_tables().project.tables.get(table)
        except HeadgateError:
            return False
        return declared is not None and declared.external

    def run(self, id_prefix: str) -> "RunRow":
        """Return the run whose id starts with a prefix. Raises UsageError if no run or several runs match."""
        return agent_commands.find_run(self.reader, id_prefix)

    def request_by_name(
        self,
        verb: str,
        words: Iterable[str],
        observed: "Mapping[TableName, ObservedDeployment] | None" = None,
        *,
        retain: str = "",
    ) -> "PlanRequest":
        """Return a plan request for tables given by name; rollback and retire also accept the id of a run.

        Runs are looked up in the ledger or, unless it is None, in `observed`. Raises BadName for an invalid name,
        UsageError if a run's id is unknown or ambiguous, and Refused if no version that the run swapped in still
        serves.
        """
        from core.plan.request import PlanRequest, parse_retention
        from core.planner.scope import normal_request

        tables: list[TableName] = []
        for word in words:
            if observed is not None:
                tables += _released(verb, word, observed) or [parse_table_name(word)]
                continue
            is_run = verb in _OF_RUNS and not any(line.table == word for line in self.snapshot().statements)
            is_run = is_run and ("-" in word or any(run.id.startswith(word) for run in self.reader.runs()))
            of_run = self._served_by if verb == "rollback" else self._replaced_by
            tables += of_run(word) if is_run else [parse_table_name(word)]
        retain_h = parse_retention(retain) if retain else ""
        return normal_request(PlanRequest(verb=verb, tables=tuple(tables), retain_h=retain_h))

    def _served_by(self, id_prefix: str) -> tuple[TableName, ...]:
        from core.run.model import RunState, StepState

        run = self.run(id_prefix)
        found = tuple(d.table for d in self.reader.deployments() if d.active and d.served_by == run.id)
        if not found and not any(step.do == StepKind.SWAP and step.state == StepState.DONE for step in run.steps):
            is_open = run.state in (RunState.RUNNING, RunState.PAUSED, RunState.FAILED)
            remedy = f"headgate runs cancel {run.id} ends it" if is_open else f"headgate runs {run.id}"
            raise Refused(f"run {run.id} has not swapped in any version", remedy=remedy)
        if not found:
            raise Refused(f"no version that run {run.id} swapped in serves any more", remedy=f"headgate runs {run.id}")
        return found

    def _replaced_by(self, id_prefix: str) -> tuple[TableName, ...]:
        from tui.services.deployed_statements import find_release

        return tuple(pair.table for pair in find_release(self.reader, id_prefix, time.time()).pairs)

    # The project's files. All raise InvalidProject with every Problem, or UsageError if the folder is gone.

    def project(self) -> "Project":
        """Read the project. Files that have not changed are not read again."""
        return self.projects.read().project

    def selected(self, words: Iterable[str], *, declared: bool = False) -> tuple[TableName, ...]:
        """Resolve names and selectors (`+t`, `2+t+`, `tag:x`) to tables.

        Selectors apply to the deployed tables or, if `declared`, to the declared ones. Raises BadName for an invalid
        name, UsageError for an invalid selector, and InvalidProject if files with errors could change the selection.
        """
        deployed = not declared and environment_selection.has_ledger(self.place)
        lines = (lambda: self.snapshot().serving) if deployed else None
        return select_named(words, lines, self.projects.read_sound_tables)

    def statements_selected(self, words: Iterable[str]) -> tuple[TableName, ...]:
        """Resolve names and selectors to the tables of an operator action.

        An external table has no statement, so it is included only if it is given by name. Raises UsageError if only
        external tables are left.
        """
        from core.lineage.selectors import is_selector

        asked = [word.lower() for word in words]
        found = self.selected(asked)
        if not any(map(is_selector, asked)):
            return found
        lines = deployed_statements.named_lines(self.snapshot().serving, found)
        external = {line.table for line in lines if line.external}
        left = tuple(table for table in found if table not in external or table in asked)
        if not left:
            raise UsageError(f"{' '.join(asked)} names only external tables", remedy="Headgate only reads those")
        return left

    def inventory(self, project: "Project") -> "tuple[InventoryEntry, ...]":
        """List all declared or deployed tables, sorted by name, without those whose files have errors.

        Before the first start, no table is deployed.
        """
        from core.reports.inventory import inventory_of

        deployed = self.snapshot().statements if environment_selection.has_ledger(self.place) else ()
        serving = serving_versions(deployed)
        return inventory_of(project, {name: line for name, line in serving.items() if name not in project.broken})

    def function_uses(self, project: "Project") -> "tuple[FunctionUses, ...]":
        """List the functions of a project with the statements that use them; empty if there are none."""
        if not project.functions:
            return ()
        from core.reports.function_uses import function_uses

        deployed = self.reader.deployments() if environment_selection.has_ledger(self.place) else ()
        return function_uses(project, {name: each.texts for name, each in serving_versions(deployed).items()})

    def function_impact(self, word: str) -> "FunctionImpact":
        """Return what another body of the function `word`, written as `name()`, would change.

        Raises UsageError if there is no such function, and InvalidProject if files with errors may use it.
        """
        from core.reports.function_uses import function_impact
        from core.text.wording import did_you_mean

        declared = self.projects.read_sound_tables()
        project, name = declared.project, word.removesuffix("()").lower()
        found = [each for each in self.function_uses(project) if each.function.name == name]
        if project.broken or project.stray:
            broken_references(declared).refuse_readers([TableName(name)])
        if not found:
            known = [f"{each.name}()" for each in project.functions]
            remedy = did_you_mean(f"{name}()", known) or "headgate inventory lists tables and functions"
            raise UsageError(f"there is no function {name}()", remedy=remedy)
        if len(found) > 1:
            places = ", ".join(each.function.script.path for each in found)
            raise UsageError(f"several functions are named {name}: {places}", remedy="rename all but one")
        environment, cache = self.place.environment, self.projects.parse_cache
        return function_impact(project, declared.texts, found[0], environment, cache)

    def drift(self) -> ProjectDrift:
        """Compare the tables whose files have no errors with what is deployed."""
        project = self.projects.read_sound_tables().project
        return deployed_statements.project_drift(project, self.reader.deployments(include_deleted=True))

    def lineage(self, column: str, direction: str) -> "ColumnLineage":
        """Trace a declared `table` or `table.column` upstream or downstream.

        Raises UsageError for any other name, and InvalidProject if files with errors may be part of the lineage.
        """
        from core.lineage.column_lineage import UPSTREAM
        from core.lineage.table_graph import edges_of

        with self._traced() as (declared, tracer):
            references = broken_references(declared)
            references.refuse_broken([_table_named(column)])
            found = tracer.trace(_origin_of(tracer, column), direction)
            tables = {node.at.table for node in found.nodes}
            if direction == UPSTREAM:
                known = declared.project.tables
                references.refuse_broken(
                    {edge.parent for name in tables & known.keys() for edge in edges_of(known[name])}
                )
            else:
                references.refuse_readers(tables)
            return found

    def edited(self, tables: "Iterable[TableName]") -> "tuple[TableName, ...]":
        """Return which of `tables` have a DDL or DML that differs from the deployed one, sorted by name."""
        declared, observed = self.projects.read_sound_tables().project.tables, self.planner_input().observed
        found = []
        for table in sorted(set(tables) & declared.keys() & observed.keys()):
            deployed, ddl, dml = observed[table].deployed, declared[table].ddl, declared[table].dml
            if deployed is not None and (deployed.ddl, deployed.dml) != (ddl.text, dml.text if dml else ""):
                found.append(table)
        return tuple(found)

    def impact(self, words: str, known: "PlannerInput", *, children: str = "") -> "Impact":
        """Return the effects of rebuilding or dropping `table`, or of losing `table.column`.

        Raises UsageError if there is no such table or column, and InvalidProject if files with errors may be affected.
        """
        from core.reports.impact import impact_of
        from core.reports.impact_scope import affected_tables

        with self._traced() as (declared, tracer):
            references, project = broken_references(declared), declared.project
            references.refuse_broken([_table_named(words)])
            root = _root_of(tracer, known.observed, words)
            if project.broken or project.stray:
                affected = affected_tables(project, known.observed, root.table)
                references.refuse_broken(affected)
                references.refuse_readers(affected)
            facts = self.projects.parse_cache
            return impact_of(project, self.place.environment, known, root, tracer, children=children, parse_cache=facts)

    @contextmanager
    def _traced(self) -> "Iterator[tuple[ProjectDeclaration, LineageTracer]]":
        """Yield the project and its lineage tracer, which is shared so that each statement is analysed only once."""
        from core.lineage.column_lineage import LineageTracer

        declared = self.projects.read_sound_tables()
        with self._tracing:
            if self._tracer is None or self._tracer[0] is not declared:
                self._tracer = (declared, LineageTracer(declared.project))
            yield self._tracer

    def planner_input(self) -> "PlannerInput":
        """Return the planner's input from the ledger. It is empty before the environment's first start."""
        from core.observed.planner_input import PlannerInput
        from tui.services.planner_input_reader import planner_input

        return planner_input(self.reader) if environment_selection.has_ledger(self.place) else PlannerInput()

    def compute_over(self, project: "Project", known: "PlannerInput", request: "PlanRequest") -> "Plan":
        """Compute a plan from a project and planner input. Refusals are part of the plan."""
        from tui.services.plan_submission import compute

        found = compute(project, self.place.environment, known, request, self.projects.parse_cache)
        self.projects.save_parse_cache()
        return found

    # Plans: computed here, submitted to the agent.

    def refuse_edited_environment(self, declared: ProjectDeclaration) -> None:
        """Raise Refused, with the line, if headgate.yml differs from what the running agent serves."""
        from core.observed.served_environment import environment_edits
        from core.project.manifest_head import MANIFEST_PATH
        from core.project_reader.manifest import read_manifest

        served, environment = self.reader.facts().serves, declared.project.environments[self.place.environment]
        for edit in environment_edits(served, environment, self.place.data) if served is not None else ():
            place = read_manifest(declared.texts[MANIFEST_PATH], []).place(environment.name, edit.kind.code)
            raise Refused(f"{place}: {edit}", remedy=str(edit.remedy))

    def look_for_inputs(self, plan: "Plan", project: "Project") -> bool:
        """Have the agent look for the topics and folders of a plan; True if the plan must be computed again.

        Raises AgentUnreachable.
        """
        from tui.services.plan_submission import look_for_inputs

        return look_for_inputs(self.client, plan, project)

    def submit(
        self,
        request: "PlanRequest",
        *,
        first: "tuple[Plan, PlannerInput] | None" = None,
        declared: "ProjectDeclaration | None" = None,
        asks_spark: bool = True,
    ) -> "SubmittedPlan":
        """Compute a plan and submit it to the agent.

        If `asks_spark`, Spark analyses the plan's statements before the submission. `first` is a plan that was just
        computed for the same request, together with its input. `declared` replaces the project's files. Raises Refused
        with the plan's first refusal, or if the agent serves another data folder or naming than headgate.yml declares,
        Stale if the plan is outdated when the agent receives it, and InvalidProject if files that the plan needs have
        errors.
        """
        from tui.services.plan_submission import submit

        declared, facts = declared or self.projects.read_sound_tables(), self.projects.parse_cache
        self.refuse_edited_environment(declared)
        line = agent_commands.plan_command(self.place, request)
        with self._source_of(request) as source:
            return submit(
                self.place,
                self.client,
                self.reader,
                request,
                declared=declared,
                facts=facts,
                line=line,
                first=first,
                source=source,
                asks_spark=asks_spark,
            )

    @contextmanager
    def _source_of(
        self, request: "PlanRequest", opened: "LedgerReader | None" = None
    ) -> "Iterator[LedgerReader | None]":
        """Yield the ledger from which a request promotes revisions; None if it promotes none.

        `opened` is that ledger, if the caller has opened it and will close it.
        """
        if opened is not None or not request.promoted_from:
            yield opened
            return
        from tui.services.promotion import open_source_of

        with closing(open_source_of(self.place, self.environ, request.promoted_from)) as source:
            yield source

    def promotion(
        self, words: Iterable[str], asked: "PlanRequest", *, source: "LedgerReader | None" = None
    ) -> "Promotion":
        """Return the promotion that a request describes, with the project for which to plan it.

        `words` are names and selectors of tables that are deployed in the source; `asked` has the rest. `source` is
        the ledger of the source, if the caller has opened it. Raises
        UsageError if there is no such source or table, and Refused if a table would read other revisions of its parents
        than it does in the source.
        """
        from tui.services.promotion import plan_promotion

        declared, facts = self.projects.read_sound_tables(), self.projects.parse_cache
        target = self.reader if environment_selection.has_ledger(self.place) else None
        with self._source_of(asked, source) as there:
            assert there is not None, "a promotion has a source"
            lines = serving_versions(there.statements()).values()
            named = select_named(words, lambda: lines, self.projects.read_sound_tables)
            return plan_promotion(
                replace(asked, tables=named), declared, facts, source=there, target=target, place=self.place
            )

    def drain(self, asked: "PlanRequest") -> "PlannedDrain":
        """Return the drain that a request describes, with the project for which to plan it.

        Raises UsageError for an unknown pool, and Refused with every reason if the pool cannot be drained.
        """
        from tui.services.pool_drain import planned_drain

        declared, facts = self.projects.read_sound_tables(), self.projects.parse_cache
        return planned_drain(asked, declared, facts, reader=self.reader, place=self.place)

    def schema(self, word: str) -> "SchemaHistory":
        """Return the columns of a table in each of its versions. Raises UsageError for an unknown table."""
        from tui.services.table_schemas import schema_history

        table, project = parse_table_name(word), self.projects.read_sound_tables().project
        reader = self.reader if environment_selection.has_ledger(self.place) else None
        return schema_history(reader, project, table, self.projects.parse_cache)

    def undo(self, word: str, *, children: str | None, rebuild: bool) -> "follow_up_plans.PlannedUndo":
        """Return the request that undoes an executed plan or run, and the project for which to plan it.

        Raises UsageError if `word` names no plan or run, and Refused if there is nothing to undo or a table has changed
        since.
        """

        from tui.services import follow_up_plans

        declared, observed = self.projects.read_sound_tables(), self.planner_input().observed
        found = follow_up_plans.find_undo(self.reader, word, declared, observed, children=children, rebuild=rebuild)
        project, problems = parse_sound_tables(self.place, found.declared.texts, self.projects.parse_cache)
        return replace(found, declared=ProjectDeclaration(found.declared.texts, project, problems))

    def continuation(self, run_id: str) -> "follow_up_plans.RunContinuation | None":
        """Submit a plan that continues a failed deployment with the current files.

        Raises Refused if the run is done, cancelled or already continued, and any error that `submit` raises. Returns
        None unless the run is a failed deployment of the files (no undo or promotion), and files of its failed or
        blocked tables, or of tables upstream of these, were edited.
        """
        from tui.services import follow_up_plans
        from tui.services.plan_submission import find_plan_row, plan_of_row

        run = self.run(run_id)
        follow_up_plans.refuse_not_continuable(run)
        row = find_plan_row(self.reader, run.plan_hash)
        plan = plan_of_row(row)
        of_files = plan.request.verb == "deploy" and not (
            plan.request.undoes or plan.request.promoted_from or plan.request.drains
        )
        if run.state != "failed" or not of_files:
            return None
        if follow_up_plans.same_files(row, self.projects.texts()):
            return None
        edits = follow_up_plans.find_edits(plan, run, self.projects.read_sound_tables().project)
        if not edits:
            return None
        return follow_up_plans.RunContinuation(run, edits, self.submit(follow_up_plans.request_of(plan, run)))

    # The agent.

    def refuse_early(self, op: str, act: str = "") -> None:
        """Raise the agent's refusal if this user may not use the agent's command `op` in a read-only environment.

        `act` is what a command `run` would do to the run.
        """
        if not self.place.protected:
            try:
                if not self.snapshot().read_only:
                    return
            except HeadgateError:
                return
        self.agent.refuse_early(op, act)

    def close(self) -> None:
        """Close the ledger. The next use opens it again."""
        with self._lock:
            if self._cache is not None:
                self._cache[0].close()
                self._cache = None

    def wait_for_change(self, version: int, seconds: float) -> int:
        """Wait up to `seconds` for the ledger's data version to differ from `version`; return the current version."""
        ends_at = time.monotonic() + seconds
        while (now := self.reader.data_version()) == version and time.monotonic() < ends_at:
            time.sleep(0.05)
        return now


def _released(verb: str, word: str, observed: "Mapping[TableName, ObservedDeployment]") -> tuple[TableName, ...]:
    """Return the tables that, according to `observed`, a run swapped in; empty if `word` is not a run's id.

    Raises UsageError if several runs match.
    """
    if verb not in _OF_RUNS or word in observed or not word:
        return ()
    runs = {seen.served_by for seen in observed.values() if seen.served_by and seen.served_by.startswith(word)}
    if len(runs) > 1 and word not in runs:
        raise UsageError(f"{word} matches several runs: {', '.join(sorted(runs))}", remedy="give more of the id")
    named = word if word in runs else next(iter(runs), None)
    return tuple(table for table, seen in sorted(observed.items()) if named is not None and seen.served_by == named)


def broken_references(declared: ProjectDeclaration) -> "BrokenReferences":
    """Return the references from a project's files with errors to its tables."""
    from core.project_reader.broken_references import BrokenReferences

    return BrokenReferences(declared.project, declared.texts)


def select_named(
    words: Iterable[str],
    lines: Callable[[], Iterable["StatementLine"]] | None,
    declared: Callable[[], ProjectDeclaration],
) -> tuple[TableName, ...]:
    """Resolve names and selectors to tables. Files and ledger are read only if there is a selector.

    A selector's levels follow the versions that deployed tables read and, for all other tables, the project's
    statements. Without `lines`, the levels follow the statements alone. Raises BadName for an invalid name, UsageError
    for an invalid selector, and InvalidProject if a tag or, without `lines`, a level may include files with errors.
    """
    from core.lineage.selectors import is_selector, select_tables

    asked = list(words)
    if not any(map(is_selector, asked)):
        return tuple(dict.fromkeys(map(parse_table_name, asked)))
    return select_tables(asked, _among(None if lines is None else list(lines()), declared))


def _among(lines: list["StatementLine"] | None, read: Callable[[], ProjectDeclaration]) -> "SelectableTables":
    from core.lineage.selectors import SelectableTables
    from core.lineage.table_graph import TableEdge, TableGraph, edges_of

    served = lines or []
    edges = [TableEdge(bound.parent, line.table, bound.streamed) for line in served for bound in line.bindings]
    deployed = {line.table for line in served}
    try:
        declared = [table for name, table in read().project.tables.items() if name not in deployed]
    except (InvalidProject, UsageError):
        if lines is None:
            raise
        # Acts on deployed tables must work even if the files are invalid.
        declared = []
    graph = TableGraph([*edges, *(edge for table in declared for edge in edges_of(table))], deployed)

    def tags() -> Mapping[str, list[TableName]]:
        found: dict[str, list[TableName]] = {}
        for name, table in read().project.tables.items():
            for tag in table.settings.tags:
                found.setdefault(tag, []).append(name)
        return found

    # Deployed bindings are known whatever the files contain.
    references = broken_references(read()) if lines is None else None

    def parents(table: TableName) -> Iterable[TableName]:
        found = [edge.parent for edge in graph.parents(table)]
        if references is not None:
            references.refuse_broken({table, *found})
        return found

    def children(table: TableName) -> Iterable[TableName]:
        if references is not None:
            references.refuse_broken({table})
            references.refuse_readers({table})
        return graph.children(table)

    return SelectableTables(parents, children, tags, lambda tag: broken_references(read()).refuse_tagged(tag))


def _table_named(words: str) -> TableName:
    """Return the table that `table` or `table.column` names, ignoring case and backticks."""
    return TableName(words.partition(".")[0].strip().strip("`").lower())


def _root_of(tracer: "LineageTracer", observed: "Mapping[TableName, ObservedDeployment]", words: str) -> "ColumnOrigin":
    """Resolve `table` or `table.column`; a table may also be deployed without being declared.

    Raises UsageError if there is no such table or column.
    """
    from core.sql.lineage.model import ColumnOrigin

    name, (_, point, _) = _table_named(words), words.partition(".")
    if name in tracer.tables() or name not in observed:
        return _origin_of(tracer, words)
    if point:
        raise UsageError(
            f"{name} is deployed but no longer declared: its columns are unknown",
            remedy=f"ask about the whole table: {name}",
        )
    return ColumnOrigin(name)


def _origin_of(tracer: "LineageTracer", words: str) -> "ColumnOrigin":
    """Resolve `table` or `table.column` among the declared tables, ignoring case and backticks.

    Raises UsageError if no table or column has that name.
    """
    from core.sql.lineage.model import ColumnOrigin

    table, _, column = (part.strip().strip("`") for part in words.partition("."))
    name = TableName(table.lower())
    if name not in tracer.tables():
        raise _unknown(f"{table or 'a table without a name'} is not declared in this project", name, tracer.tables())
    if not column and "." not in words:
        return ColumnOrigin(name)
    found = tracer.column(name, column)
    if found is None:
        known = [each.name for each in tracer.columns(name)]
        raise _unknown(f"{name} has no column {column or 'without a name'}", column, known)
    return found


def _unknown(summary: str, word: str, known: Iterable[str]) -> UsageError:
    names = list(known)
    near = difflib.get_close_matches(word.lower(), [name.lower() for name in names], n=1)
    spelled = next((name for name in names if near and name.lower() == near[0]), "")
    listed = f"there are {', '.join(names[:12])}{' …' if len(names) > 12 else ''}"
    return UsageError(summary, remedy=f"did you mean {spelled}?" if spelled else listed)
