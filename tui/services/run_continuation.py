"""Going on from a failed run whose texts were wrong: what was edited since, and the plan that continues the run."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from core.model.actions import Action
from core.model.errors import Refused
from core.model.names import TableName
from core.plan.model import Plan
from core.plan.request import PlanRequest
from core.project.revision import RevisionTexts
from tui.services.plan_submission import SubmittedPlan

if TYPE_CHECKING:
    from core.project.model import Project
    from core.run.records import RunRow
    from state.row_types import PlanRow

ENDED_BADLY = ("failed", "blocked")


@dataclass(frozen=True, slots=True)
class EditedTable:
    """A table whose declared texts are no longer those of the run's plan."""

    table: TableName
    before: RevisionTexts
    now: RevisionTexts | None
    """None for a table that is no longer declared."""

    def lines(self) -> tuple[str, ...]:
        """Return the difference, text by text, as a unified diff."""
        from core.text.diff import unified_diff

        if self.now is None:
            return (f"{self.table} is no longer declared",)
        found: list[str] = []
        for name in ("dml", "ddl", "yml"):
            if changed := unified_diff(getattr(self.before, name), getattr(self.now, name)):
                found += [f"{name}.{self.table}", *(f"  {line}" for line in changed)]
        return tuple(found)


@dataclass(frozen=True, slots=True)
class RunContinuation:
    """The submitted plan that goes on from a failed run, with what was edited since that run was planned."""

    run: "RunRow"
    edits: tuple[EditedTable, ...]
    submitted: SubmittedPlan


def same_files(row: "PlanRow", texts: Mapping[str, str]) -> bool:
    """Return whether the project's files are, letter by letter, those that the plan was made from."""
    try:
        return bool(row.texts) and json.loads(row.texts) == dict(texts)
    except ValueError:
        return False


def find_edits(plan: Plan, run: "RunRow", project: "Project") -> tuple[EditedTable, ...]:
    """List what was edited of the tables of failed and blocked steps, and of what they read inside the plan."""
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
    """Return the request that goes on from a run; the run's id makes its plan another one each time, and only then."""
    return replace(plan.request, nonce="", continues=run.id)


def refuse_running(run: "RunRow") -> None:
    """Raise Refused for a run that did not fail, or that another run goes on from."""
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
