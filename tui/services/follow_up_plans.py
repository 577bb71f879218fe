"""Plans that follow an executed plan: its undo, and the continuation of its failed run after files were edited."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from core.model.actions import Action
from core.model.errors import Refused
from core.model.names import TableName
from core.observed.planner_input import ObservedDeployment
from core.plan.descriptions import undo_command
from core.plan.model import Plan, PlanNode
from core.plan.request import PlanRequest, parse_children
from core.planner.broken_files import refuse_broken
from core.planner.undo_plan import edited_nodes, undo_request
from core.project.revision import RevisionTexts, changed_variables, revision_hash
from core.project_reader.functions import function_files
from core.project_reader.table_yml import deployed_yml_as_file, settings_as_text
from core.sql.registered_functions import is_registered
from state.ledger import LedgerReader
from tui.agent_client.agent_commands import find_run
from tui.project_folder.project_folder_reader import ProjectDeclaration
from tui.services.plan_submission import SubmittedPlan, find_plan_row, plan_of_row

if TYPE_CHECKING:
    from core.project.model import Project
    from core.run.records import RunRow
    from state.row_types import PlanRow


@dataclass(frozen=True, slots=True)
class PlannedUndo:
    """The request that undoes a plan, and the project for which that request must be planned."""

    request: PlanRequest
    declared: ProjectDeclaration
    """The project in which the affected tables have their earlier texts. The files on disk are not modified."""


def find_undo(
    reader: LedgerReader,
    word: str,
    declared: ProjectDeclaration,
    observed: Mapping[TableName, ObservedDeployment],
    *,
    children: str | None,
    rebuild: bool,
) -> PlannedUndo:
    """Find the undo of a plan, given the start of the plan's hash or of its run's id.

    No SQL is parsed. Raises UsageError for an unknown plan, InvalidProject if files of its tables have errors, and
    Refused if there is nothing to undo or a table has changed since.
    """
    plan = _executed(reader, word)
    nodes = _to_undo(plan, observed)
    refuse_broken(declared.project, {node.table for node in nodes} & declared.project.broken.keys())
    gone = [node.table for node in nodes if node.table not in declared.project.tables]
    if gone:
        raise Refused(f"{', '.join(gone)} is no longer declared", remedy="restore its files, then undo the plan")
    asked = plan.request if children is None else replace(plan.request, children=parse_children(children))
    request = undo_request(asked, (node.table for node in nodes), plan.hash, rebuild=rebuild)
    return PlannedUndo(request, replace(declared, texts=texts_before(declared, nodes, plan.environment)))


def texts_before(declared: ProjectDeclaration, nodes: Iterable[PlanNode], environment: str) -> dict[str, str]:
    """Return the project's files by path, with the files of the tables in `nodes` as deployed before the plan.

    They have variables again if these have the same values as then, and otherwise the values themselves.
    """
    texts = dict(declared.texts)
    values = {each.name: each.value for each in declared.project.environments[environment].variables}
    for node in nodes:
        table = declared.project.tables[node.table]
        same = all(values.get(name) == value for name, value in node.old.variables)
        before = node.old.as_written if same else node.old
        # Texts with values have the bodies of SQL functions, but only the names of others.
        needed = tuple(each for each in before.functions if same or is_registered(each[1]))
        if needed != tuple((name, script.as_written) for name, script in table.functions):
            for path, text in function_files(table.folder, replace(before, functions=needed)):
                texts.pop(f"{path.rpartition('.')[0]}.{'sql' if path.endswith('.py') else 'py'}", None)
                texts[path] = text
        texts[table.ddl.path] = before.ddl
        path = table.dml.path if table.dml else ""
        if path.endswith(".py") or not before.dml:
            # A deployed job is the text of a DML script, and before it, there may have been SQL.
            texts.pop(path, None)
            path = ""
        if before.dml:
            texts[path or f"{table.folder}/sql-scripts/dml.{table.name}.sql"] = before.dml
        if node.old.yml != settings_as_text(table.settings):
            yml = deployed_yml_as_file(before.yml, declared.project.defaults_of(table.product))
            texts[f"{table.folder}/{table.name}.yml"] = yml
    return texts


def _executed(reader: LedgerReader, word: str) -> Plan:
    """Return the plan with this hash prefix or run id. Raises Refused unless it was executed and its run has ended."""
    row = find_plan_row(reader, find_run(reader, word).plan_hash if "-" in word else word)
    if row.status != "applied":
        raise Refused(
            f"plan {row.hash[:12]} was not executed, so there is nothing to undo", remedy="leave it to expire"
        )
    run = find_run(reader, row.run_id)
    if run.ended_at is None:
        raise Refused(f"run {run.id} has not ended", remedy=f"wait for it, or headgate runs cancel {run.id}")
    return plan_of_row(row)


def _to_undo(plan: Plan, observed: Mapping[TableName, ObservedDeployment]) -> tuple[PlanNode, ...]:
    """Return the nodes of a plan whose new revisions are still deployed.

    Raises Refused if there are none, or if a table of the plan was changed or deleted afterwards.
    """
    short, found = plan.hash[:12], []
    edited = edited_nodes(plan.nodes)
    for node in edited:
        seen = observed.get(node.table, ObservedDeployment()).deployed
        now = revision_hash(seen) if seen is not None else ""
        if now == revision_hash(node.texts):
            found.append(node)
        elif now != revision_hash(node.old):
            what = "was changed again" if seen is not None else "was deleted"
            raise Refused(f"{node.table} {what} since plan {short}", remedy="headgate review lists the later plans")
    if not found:
        stops = [command for way in plan.undo if (command := undo_command(plan, way)) and way.act == "stop"]
        why = "every table already has its earlier text" if edited else "it changed no text"
        raise Refused(f"plan {short} cannot be undone: {why}", remedy=stops[0] if stops else "make a new plan")
    return tuple(found)


ENDED_BADLY = ("failed", "blocked")


@dataclass(frozen=True, slots=True)
class EditedTable:
    """A table whose declared SQL or YAML differs from the plan of the failed run."""

    table: TableName
    before: RevisionTexts
    now: RevisionTexts | None
    """The current SQL and YAML; None if the table is no longer declared."""

    def lines(self) -> tuple[str, ...]:
        """Return a unified diff of each changed file; a single line if the table is no longer declared."""
        from core.plan.descriptions import evidence_words
        from core.text.diff import unified_diff

        if self.now is None:
            return (f"{self.table} is no longer declared",)
        found = [f"{self.table}: {evidence_words(edit)}" for edit in changed_variables(self.before, self.now)]
        before = self.before.shown
        for name, now in self.now.shown.items():
            if changed := unified_diff(before[name], now):
                found += [f"{name}.{self.table}", *(f"  {line}" for line in changed)]
        return tuple(found)


@dataclass(frozen=True, slots=True)
class RunContinuation:
    """The submitted plan that continues a failed run, and the edits made since the run was planned."""

    run: "RunRow"
    edits: tuple[EditedTable, ...]
    submitted: SubmittedPlan


def same_files(row: "PlanRow", texts: Mapping[str, str]) -> bool:
    """True if the project's files are exactly those from which a recorded plan was computed."""
    try:
        return bool(row.texts) and json.loads(row.texts) == dict(texts)
    except ValueError:
        return False


def find_edits(plan: Plan, run: "RunRow", project: "Project") -> tuple[EditedTable, ...]:
    """Return the edits of a run's failed or blocked tables, and of all tables upstream of them in the plan."""
    from core.project_reader.revision_reader import revision_of

    found = []
    for node in plan.nodes:
        if node.table not in _concerned(plan, run) or node.action in (Action.KEEP, Action.DELETE):
            continue
        declared = project.tables.get(node.table)
        now = revision_of(declared) if declared is not None else None
        if now is None or now.hash != node.revision:
            found.append(EditedTable(node.table, node.texts, now.texts if now else None))
    return tuple(found)


def request_of(plan: Plan, run: "RunRow") -> PlanRequest:
    """Return the request of a run's plan, changed so that it continues the run.

    It contains the run's id, so that the new plan's hash is unique.
    """
    return replace(plan.request, nonce="", continues=run.id)


def refuse_not_continuable(run: "RunRow") -> None:
    """Raise Refused if a run cannot be continued, because it is done, cancelled or already continued."""
    if run.continued_by:
        raise Refused(
            f"run {run.id} was continued by run {run.continued_by}", remedy=f"headgate runs {run.continued_by}"
        )
    if run.state in ("done", "cancelled"):
        raise Refused(f"run {run.id} is {run.state}", remedy="make a new plan")


def _concerned(plan: Plan, run: "RunRow") -> set[TableName]:
    bad = {step.n for step in run.steps if step.state in ENDED_BADLY}
    waiting = [table for step in plan.steps if step.n in bad for table in (step.table, *step.tables)]
    parents = {node.table: [binding.parent for binding in node.bindings] for node in plan.nodes}
    found: set[TableName] = set()
    while waiting:
        table = waiting.pop()
        if table not in found and table in parents:
            found.add(table)
            waiting += parents[table]
    return found
