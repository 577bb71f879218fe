"""The environment from which a plan promotes revisions, as its ledger shows it to console and agent alike."""

import os
import time
from collections.abc import Iterable
from pathlib import Path

from core.model.actions import StepKind
from core.model.errors import Refused, UsageError
from core.model.names import TableName, up_command
from core.model.states import State
from core.observed.planner_input import SourceTable
from core.observed.versions import Deployment, heartbeat_age_s, is_stale, serving_versions
from core.project.revision import written_hash
from core.run.model import StepState
from state.ledger import LedgerReader


def open_source(path: str, environment: str, project_id: str, *, protected: bool = False) -> LedgerReader:
    """Open the ledger of the environment `environment`, which must belong to the project with this id.

    Raises UsageError if there is no such ledger or it belongs to another project or environment, and Refused if it may
    not be read.
    """
    try:
        os.stat(path)
    except PermissionError as error:
        raise Refused(
            f"the ledger of {environment} may not be read: {path}",
            remedy="join the group of its folder, or have its owner promote",
        ) from error
    except OSError as error:
        raise UsageError(
            f"{environment} has never been started on this machine: there is no ledger {path}",
            remedy=f"start it: {up_command(environment, protected=protected)}",
        ) from error
    reader = LedgerReader(Path(path))
    facts = reader.facts()
    if facts is None or (facts.project_id, facts.environment) != (project_id, environment):
        reader.close()
        owner = f"{facts.project} {facts.environment}" if facts is not None else "no environment"
        raise UsageError(
            f"the ledger {path} belongs to {owner}, and not to {environment} of this project",
            remedy="check HEADGATE_HOME, and the id in headgate.yml",
        )
    return reader


def observe_source(reader: LedgerReader) -> dict[TableName, SourceTable]:
    """Return the serving version of every deployed table in an environment, by table."""
    with reader.frame():
        facts, every = reader.facts(), reader.deployments(include_deleted=True)
        faults = {(line.table, line.version): line.fault_word for line in reader.statements()}
        serving = {table: d for table, d in serving_versions(every).items() if not d.deleted}
        uncompared = _uncompared(reader, serving.values())
    observed = facts is not None and not is_stale(heartbeat_age_s(facts.agent_seen_at, time.time()), facts.agent_pid)
    revisions = {(d.table, d.version): written_hash(d.texts) for d in every}
    earlier: dict[TableName, set[str]] = {}
    for (table, _), revision in revisions.items():
        earlier.setdefault(table, set()).add(revision)
    return {
        table: SourceTable(
            revision=revisions[table, d.version],
            version=d.version,
            state=_state(d, observed=observed),
            fault=faults.get((table, d.version), ""),
            compared=table not in uncompared,
            reads=tuple((b.parent, revisions.get((b.parent, b.version), "")) for b in d.bindings),
            earlier=frozenset(earlier[table] - {revisions[table, d.version]}),
            plan=d.plan_hash,
        )
        for table, d in serving.items()
    }


def _state(d: Deployment, *, observed: bool) -> str:
    if d.external:
        return State.RUNNING
    if not d.checkpoint_ok:
        return State.FAILED
    return d.state if observed or d.state in (State.FAILED, State.STOPPED) else State.UNKNOWN


def _uncompared(reader: LedgerReader, serving: Iterable[Deployment]) -> set[TableName]:
    """Return the tables whose serving version replaced another one without a comparison of their rows."""
    found: set[TableName] = set()
    compared_by_run: dict[str, set[tuple[str, int]]] = {}
    for d in serving:
        if d.served_before is None:
            continue
        if d.served_by not in compared_by_run:
            run = reader.run(d.served_by)
            skipped = reader.uncompared_tables(d.served_by)
            compared_by_run[d.served_by] = {
                (step.table, step.version)
                for step in (run.steps if run is not None else ())
                if step.do == StepKind.VALIDATE and step.state == StepState.DONE and step.table not in skipped
            }
        if (d.table, d.version) not in compared_by_run[d.served_by]:
            found.add(d.table)
    return found
