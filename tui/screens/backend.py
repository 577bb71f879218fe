"""Sends the console's requests to `tui.services`: slow reads and operator actions, which raise HeadgateErrors.

Requests are made in threads, never on the event loop. A read is repeated only if the data has changed.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from core.model.actions import Action
from core.model.errors import HeadgateError, InvalidProject, Refused, UsageError
from core.model.names import TableName, query_name
from core.model.problems import Problem, Severity, Where
from core.plan.model import Plan
from core.plan.request import PlanRequest
from core.policy.freeze_windows import frozen_until
from core.project.revision import RevisionTexts
from core.run.records import RunRow
from core.run.release import Release
from core.text.wording import counted
from state.ledger_snapshot import StatementDetails
from state.plans import refuse_closed
from state.releases import release_of_run
from state.row_types import ApprovalRow, PlanRow
from tui.agent_client.agent_commands import find_run
from tui.agent_client.agent_process import log_tail
from tui.presentation.screen_content.changes import DELETED, ChangeRow
from tui.presentation.screen_content.lineage_tab import ColumnDetails
from tui.presentation.screen_content.statement_detail import DeclaredDetails, lines_about
from tui.project_folder.environment_selection import environments_started
from tui.project_folder.project_folder_reader import find_sql_file
from tui.services.deployed_statements import history_of, statement_details
from tui.services.plan_submission import find_plan_row, plan_of_row, with_edits

if TYPE_CHECKING:
    from core.observed.spark_work import WorkOfPool
    from core.project.model import Project, Table
    from state.ledger import LedgerReader
    from tui.presentation.reports.table_history import HistoryEntry
    from tui.presentation.view.pools import PoolUse
    from tui.services.environment_service import EnvironmentService

LOG_LINES = 2000
"""Number of lines at the end of each log that are searched for a statement."""
LAGS, MOST_LAGS = 24, 20
"""Maximum number of lag samples shown per new version of a release, and maximum number of such versions."""

HISTORY = 200
"""Maximum number of entries in a table's history."""


@dataclass(frozen=True, slots=True)
class PlanView:
    """A plan, with its row in the ledger and its approvals."""

    plan: Plan
    row: PlanRow
    approvals: tuple[ApprovalRow, ...] = ()
    frozen: str | None = None
    """Description of the policy's current freeze, including its end; None outside a freeze."""


@dataclass(frozen=True, slots=True)
class RunView:
    """A run, with its plan and its release."""

    run: RunRow
    plan: PlanView | None = None
    release: Release | None = None
    """The release of the run; None if the run replaces no versions."""
    lags: Mapping[TableName, tuple[int | None, ...]] = field(default_factory=dict)
    """The last lags of the release's new versions by table, oldest first."""


@dataclass(frozen=True, slots=True)
class ProjectView:
    """The project folder compared with what is deployed. `missing` explains why the folder could not be read."""

    drift: tuple[ChangeRow, ...] = ()
    problems: tuple[Problem, ...] = ()
    """Errors in the project's files; tables without errors are still compared, unless `missing` is set."""
    missing: str = ""
    declared: frozenset[str] = frozenset()
    """All declared tables, including tables whose files have errors; empty if the files could not be read."""


class ConsoleBackend:
    """Reads data and requests actions for one environment, in the poller's thread and in worker threads."""

    def __init__(self, service: "EnvironmentService", *, clock: Callable[[], float] = time.time) -> None:
        self._service = service
        self._clock = clock
        self.agent = service.agent
        """Sends actions; only its `confirmation`, which is quick and does no I/O, may be called on the event loop."""
        self.snapshot = service.last_known
        self.close = service.close
        self._plans: dict[str, Plan] = {}
        self._timeline: tuple[object, tuple[HistoryEntry, ...]] | None = None
        self._drift: tuple[object, ProjectView] | None = None
        self.problems_in_files = 0
        """Number of errors in the project's files when these were last read."""

    @property
    def reader(self) -> "LedgerReader":
        """The ledger reader. If the previous reader has been closed, a new one is opened."""
        return self._service.reader

    # The ledger.

    def detail(self, table: str) -> StatementDetails:
        """Read the details of a table's statement. They contain no versions if the table was never deployed."""
        return statement_details(self.reader, TableName(table))

    def history(self, table: str) -> "tuple[HistoryEntry, ...]":
        """Return a table's history, which is reread only after a new command, event or run."""
        now = self._service.snapshot()
        key = (table, now.commands, now.events, now.open_runs)
        if self._timeline is None or self._timeline[0] != key:
            self._timeline = (key, history_of(self.reader, TableName(table), HISTORY, as_it_is=self._service.as_it_is))
        return self._timeline[1]

    def declared(self, table: str, column: str | None = None) -> DeclaredDetails:
        """Read a table's SQL files and, if `column` is given, that column's lineage."""
        try:
            project = self._service.projects.read_sound_tables().project
        except HeadgateError as error:
            return _undeclared(_sentence(error))
        found, broken = project.tables.get(TableName(table)), project.broken.get(TableName(table))
        if broken is not None:
            first = broken.problems[0]
            return _undeclared(f"{first.where}: {first.summary}. {first.remedy}")
        if found is None:
            return _undeclared("the project no longer declares it")
        texts = DeclaredDetails(found.dml.text if found.dml else "", found.ddl.text)
        return texts if column is None else replace(texts, columns=self._columns(found, column))

    def _columns(self, declared: "Table", column: str) -> ColumnDetails:
        names = tuple(each.name for each in declared.parsed_ddl.columns)
        chosen = column if column in names else names[0]
        try:
            up, down = (self._service.lineage(f"{declared.name}.{chosen}", way) for way in ("up", "down"))
        except HeadgateError as error:
            return ColumnDetails(missing=_sentence(error))
        return ColumnDetails(names, chosen, up, down)

    def plan(self, hash_prefix: str) -> PlanView | None:
        """Return the plan whose hash begins with `hash_prefix`, decoded only once; None if no plan or several match."""
        try:
            row = with_edits(find_plan_row(self.reader, hash_prefix), self._service.place)
        except UsageError:
            return None
        if row.hash not in self._plans:
            self._plans[row.hash] = plan_of_row(row)
        reader = self.reader
        policy = reader.recorded_policy()
        frozen = frozen_until(policy.freeze, self._clock()) if policy is not None else None
        return PlanView(self._plans[row.hash], row, reader.approvals(row.hash), frozen)

    def apply(self, plan_hash: str, *, confirm: str) -> str:
        """Execute a plan and return the run's id. Raises Stale if changes, even to files, have outdated the plan."""
        refuse_closed(with_edits(find_plan_row(self.reader, plan_hash), self._service.place), now=self._clock())
        return self.agent.apply(plan_hash, confirm=confirm)

    def run(self, run_id: str) -> RunView | None:
        """Return the run whose id begins with `run_id`, with its plan; None if no run or several match."""
        try:
            row = find_run(self.reader, run_id)
        except UsageError:
            return None
        plan, reader = self.plan(row.plan_hash), self.reader
        if plan is None:
            return RunView(row)
        with reader.frame():
            release = release_of_run(reader, row, plan.plan, self._clock())
            lags = {
                pair.table: tuple(one.lag_rows for one in reader.samples(pair.table, pair.new.version)[-LAGS:])
                for pair in (release.pairs[:MOST_LAGS] if release is not None and release.is_open else ())
            }
            return RunView(row, plan, release, lags)

    def selected(self, words: Sequence[str], *, act: str) -> tuple[str, ...]:
        """Resolve selectors typed after `:`.

        They apply to declared tables if `act` stages a deploy or a hold; otherwise, to deployed tables.
        """
        if act in ("stage_deploy", "stage_hold"):
            return self._service.selected(words, declared=True)
        return self._service.statements_selected(words)

    def sql_file(self, table: str) -> str:
        """Return the path of a table's DML file or, if it has none, of its DDL file.

        Raises UsageError if both are missing.
        """
        return find_sql_file(self._service.place.folder, table)

    def log_lines(self, table: str) -> tuple[str, ...]:
        """Return the agent's and the pool's log lines about a table's statement, oldest first, with stack traces."""
        where, serving = self._service.place.where, self.detail(table).serving
        words = (query_name(serving.table, serving.version), serving.query_id, serving.run_id) if serving else (table,)
        found: list[str] = []
        pools = self.reader.facts().pools
        for path in (where.agent_log, *(where.of_pool(pool.place).log for pool in pools)):
            found += lines_about(log_tail(path, LOG_LINES), words)
        return tuple(found)

    def last_run(self) -> str:
        """Return the id of the latest run; empty if there is no run."""
        return next((run.id for run in self.reader.runs(1)), "")

    def environments(self) -> Mapping[str, bool]:
        """Map each environment of the project to whether it was ever started here, in the order of headgate.yml."""
        return environments_started(self._service.place, self._service.environ)

    def pools(self) -> "tuple[PoolUse, ...]":
        """Return the environment's pools in declared order, with their statements."""
        from tui.presentation.view.pools import pools_with_loads

        now = self._service.snapshot()
        if now.facts is None:
            return ()
        declared = self._service.projects.declared_environment()
        return pools_with_loads(self.reader, now.facts, now.statements, declared=declared)

    def pool_work(self, pool: str) -> "WorkOfPool":
        """Return what a pool really does or, if the agent does not answer, why that is not known."""
        from core.observed.spark_work import WorkOfPool

        try:
            return self.agent.pool_work(pool)
        except HeadgateError as error:
            return WorkOfPool(unread=error.summary)

    # Files.

    def check_files(self) -> None:
        """Read the project's files and update `problems_in_files`; errors in reading them are not raised."""
        try:
            self.problems_in_files = len(self._service.projects.read_sound_tables().project.errors())
        except InvalidProject as error:
            self.problems_in_files = len(error.problems)
        except HeadgateError:
            self.problems_in_files = 0

    def project(self) -> ProjectView:
        """Compare the files with what is deployed. The result is reused until files or deployments change."""
        self.check_files()
        try:
            project = self._service.projects.read_sound_tables().project
            lines = self._service.snapshot().statements
            key = (id(project), tuple((line.table, line.version, line.revision, line.state) for line in lines))
            if self._drift is None or self._drift[0] != key:
                declared = frozenset((*project.tables, *project.broken))
                rows, wrong = self._compare(project)
                self._drift = (key, ProjectView(rows, (*project.errors(), *wrong), declared=declared))
            return self._drift[1]
        except InvalidProject as error:
            return ProjectView(problems=tuple(_problem(one) for one in error.problems), missing=error.summary)
        except HeadgateError as error:
            return ProjectView(missing=_sentence(error))

    def _compare(self, project: "Project") -> tuple[tuple[ChangeRow, ...], tuple[Problem, ...]]:
        """Return the tables that differ or are broken, sorted, and the errors that only planning finds."""
        from core.plan.descriptions import change_words, evidence_lines
        from core.project_reader.revision_reader import revision_of

        found = self._service.drift()
        wanted = tuple(sorted({*found.changed, *found.new}))
        rows: list[ChangeRow] = []
        deployed = {row.table: row for row in self.reader.deployments() if row.active}
        known, request = self._service.planner_input(), PlanRequest(tables=wanted)
        wrong: tuple[Problem, ...] = ()
        try:
            plan = self._service.compute_over(project, known, request) if wanted else None
        except InvalidProject as error:
            plan, wrong = None, tuple(_problem(one) for one in error.problems)
        nodes = {node.table: node for node in plan.nodes} if plan else {}
        refused = {refusal.table: refusal for refusal in plan.refusals} if plan else {}
        for name in wanted:
            node, declared = nodes.get(name), project.tables[name]
            # These are the texts that the planner uses, because it compares settings by meaning, not by spelling.
            new = node.texts if node else revision_of(declared).texts
            problems: tuple[Problem, ...] = ()
            old = deployed[name].texts if name in deployed else RevisionTexts()
            if name in refused:
                change, would, reason = "changed", "refused", f"{refused[name].summary}. {refused[name].remedy}"
            elif node is None:
                change, would, reason = ("changed" if name in deployed else "new"), "?", ""
                problems = tuple(p for p in wrong if p.where and _is_in(p.where.path, declared))
            else:
                below = sum(
                    1 for other in nodes.values() if name in other.because_of and other.action is not Action.KEEP
                )
                would = f"{node.action} + {below}" if below else str(node.action)
                change, reason = (
                    change_words(node),
                    "; ".join(evidence_lines(node.evidence)) or str(node.reason.words),
                )
            row = ChangeRow(name, change, would, reason, old, new, declared.folder, problems=problems)
            rows.append(replace(row, files=files_of(declared)))
        for name in found.deleted:
            reason = (
                "it was deleted, but its files are still there: :undelete restores it from the trash, D deploys it anew"
            )
            rows.append(ChangeRow(name, DELETED, "keep", reason, folder=project.tables[name].folder))
        for name in found.gone:
            rows.append(
                ChangeRow(
                    name,
                    "its files no longer exist",
                    "keep",
                    "X stages its delete",
                    deployed[name].texts,
                    RevisionTexts(),
                )
            )
        for name, broken in project.broken.items():
            change, problems = f"{counted(len(broken.problems), 'problem')} in its files", broken.problems
            rows.append(ChangeRow(name, change, "refused", folder=broken.folder, problems=problems))
        return tuple(sorted(rows, key=lambda one: one.table)), wrong

    # Plans.

    def submit(self, actor: str) -> str:
        """Submit a plan for the tables that a user has staged in this folder, and return the plan's hash.

        Raises Refused if nothing is staged, if both deploys and deletes are staged, or if nothing needs to be done.
        """
        folder = self._service.place.folder
        marks = [mark for mark in self.reader.staged() if mark.actor == actor and mark.folder == folder]
        verbs = {mark.verb for mark in marks}
        if not marks:
            raise Refused("you have staged nothing in this project folder", remedy="D stages a deploy, X a delete")
        if len(verbs - {"hold"}) > 1 or verbs == {"delete", "hold"}:
            raise Refused(
                "both deploys and deletes are staged", remedy="unstage one kind with U: each needs its own plan"
            )
        tables, verb = tuple(sorted(mark.table for mark in marks)), "delete" if "delete" in verbs else "deploy"
        start = self._service.place.start if verb == "deploy" else ""
        submitted = self._service.submit(PlanRequest(verb=verb, tables=tables, hold="hold" in verbs, start=start))
        if submitted.plan.empty:
            raise Refused("nothing to do: the staged tables are deployed as declared", remedy="U unstages them")
        return submitted.plan.hash

    def undo(self, word: str) -> str:
        """Submit the plan that undoes a plan or run, given by a prefix of its hash or id; return the new plan's hash.

        If `word` is empty, the latest run is undone. Raises Refused if there is nothing to undo.
        """
        word = word or self.last_run()
        if not word:
            raise Refused("no plan was executed here yet, so there is nothing to undo", remedy=":changes stages one")
        found = self._service.undo(word, children=None, rebuild=False)
        return self._service.submit(found.request, declared=found.declared).plan.hash

    def close_ticket(self, run: str, reader: str) -> str:
        """Close a reader's ticket for migrating from a version that a run replaced; return a confirmation message."""
        found = find_run(self.reader, run)
        self.agent.close_ticket(found.id, reader)
        return f"run {found.id[:10]}: the ticket of {reader} is closed"

    def submit_plan_by_verb(self, verb: str, words: tuple[str, ...], *, retain: str = "") -> str:
        """Submit a plan that applies a verb such as rollback to tables or a run; return the plan's hash.

        Raises Refused if the plan changes nothing.
        """
        submitted = self._service.submit(self._service.request_by_name(verb, words, retain=retain))
        if submitted.plan.empty:
            raise Refused(
                f"nothing to do: {', '.join(words)} is deployed as declared", remedy="edit the files, then plan again"
            )
        return submitted.plan.hash

    def promote(self, words: tuple[str, ...], source: str) -> str:
        """Submit a plan of the revisions that run in the environment `source`; return the plan's hash.

        `words` are names and selectors of tables there; without any, all tables that differ are promoted. Raises
        Refused if that is none, or if a table would read other revisions of its parents than it does there.
        """
        here = self._service.place.environment
        if source == here:
            raise UsageError(f"{here} cannot be promoted into itself", remedy="name another environment: --from ENV")
        found = self._service.promotion(words, PlanRequest(everything=not words, promoted_from=source))
        submitted = self._service.submit(found.request, declared=found.declared)
        if submitted.plan.empty:
            what = ", ".join(words) or "every table of it"
            raise Refused(f"nothing to do: {here} runs {what} as {source} does", remedy=f":diff {source} compares them")
        return submitted.plan.hash

    def drain(self, pool: str, to: str = "") -> str:
        """Submit a plan that moves all statements of a pool to others, or to the pool `to`; return the plan's hash.

        Raises Refused, with every reason, if the pool cannot be drained.
        """
        found = self._service.drain(PlanRequest(drains=pool, drains_to=to))
        return self._service.submit(found.request, declared=found.declared).plan.hash

    # Reports, as lines of text.

    def environment_diff(self, source: str, words: Sequence[str]) -> tuple[str, ...]:
        """Compare the environment `source` with this one, as `headgate diff --env SOURCE --env THIS` does."""
        from tui.services.environment_comparison import comparison_lines

        return comparison_lines(self._service, source, words)

    def schema(self, table: str) -> tuple[str, ...]:
        """Return the columns of a table in each version and who reads them, as `headgate schema` does."""
        from tui.presentation.reports.schema_history import schema_lines

        return schema_lines(self._service.schema(table), self._clock())

    def continuation(self, run_id: str) -> str:
        """Submit a plan that continues a failed run with edited files.

        Returns the hash of the new plan, or an empty string if no file was edited.
        """
        found = self._service.continuation(run_id)
        if found is None:
            return ""
        if found.submitted.plan.empty:
            raise Refused(f"run {run_id[:10]} has nothing left to do", remedy="what is declared is what is deployed")
        return found.submitted.plan.hash


def files_of(table: "Table") -> tuple[str, ...]:
    """Return the files behind SQL, DDL and settings of a manifest's table; empty for a table with its own folder."""
    if not table.manifest:
        return ()
    return table.manifest, table.ddl.file, f"{table.manifest} and its templates"


def _is_in(path: str, table: "Table") -> bool:
    return path == table.manifest or path.startswith(f"{table.folder}/")


def _sentence(error: HeadgateError) -> str:
    return f"{error.summary}. {error.remedy}".strip()


def _undeclared(why: str) -> DeclaredDetails:
    return DeclaredDetails(missing=why, columns=ColumnDetails(missing=why))


def _problem(one: dict[str, object]) -> Problem:
    where = None
    if one.get("file"):
        where = Where(str(one["file"]), int(str(one.get("line") or 0)), int(str(one.get("column") or 0)))
    severity = Severity.WARNING if one.get("severity") == "warning" else Severity.ERROR
    return Problem(
        str(one.get("summary", "")),
        str(one.get("remedy", "")),
        where,
        str(one.get("subject", "")),
        str(one.get("detail", "")),
        severity,
    )
