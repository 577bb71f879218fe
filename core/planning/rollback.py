"""Back to what served before: the release that made a table's version is taken back in whole, or not at all.

And out of the trash: a deleted table goes on from its checkpoint, where what it reads is still there.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from core.model.actions import Action, Strategy
from core.model.names import TableName, physical_name
from core.model.reasons import Reason
from core.model.states import State
from core.observed.deployment import Binding, FormerVersion, ObservedDeployment
from core.plan.model import PlanNode
from core.planning.context import ObservedTables, PlanningContext
from core.planning.decisions import PlanRemarks
from core.planning.nodes import PlanBody, kept_node, plan_levels
from core.planning.retired_and_orphan_versions import RetiredVersion
from core.planning.scope import PlanScope
from core.planning.steps import StepBuilder
from core.project.revision import RevisionTexts
from core.text.wording import reader_phrase

BY_TEXT = "its old text can be planned as a new version: headgate plan undo PLAN"


@dataclass(slots=True)
class FormerVersions(PlanRemarks):
    """Versions that are to serve again, as they are being decided."""

    by_table: dict[TableName, FormerVersion] = field(default_factory=dict)
    because_of: dict[TableName, TableName] = field(default_factory=dict)
    """For a table that comes along with its release: one that was named."""


def rollback_body(context: PlanningContext, scope: PlanScope) -> PlanBody:
    """Draft a rollback: former versions go on and catch up, all pointers move, and what served until now stops."""
    found = FormerVersions()
    for table in scope.requested:
        _take_release(context.observed, table, found)
    for table in sorted(found.by_table):
        _refuse_what_cannot_go_on(context.observed, table, found)
        _refuse_newer_readers(context, table, found)
    nodes = _nodes(context, found, Action.ROLLBACK, Reason.ROLLED_BACK)
    steps = StepBuilder()
    for node in nodes:
        steps.deploy(node, needs_pointer=False, existing=found.by_table[node.table])
    swap = steps.swap(nodes)
    now = {table: context.observed.deployment(table).version for table in found.by_table}
    levels = plan_levels(context.declared, {t: context.bindings.of(t) for t in now}, now, every_version=False)
    for table in sorted(now, key=lambda table: (-levels[table], table)):
        ends = RetiredVersion(table, now[table])
        steps.stop(ends, context.bindings.readers(table), (swap,) if swap else (), why="what served before it serves")
        kept = physical_name(table, now[table])
        found.warn(
            table, f"what v{now[table]} has written stays in {kept}: headgate peek {table} --version {now[table]}"
        )
    _warn_of_files(context, found)
    return PlanBody(nodes, steps.all, (), found.refusals, found.warnings)


def undelete_body(context: PlanningContext, scope: PlanScope) -> PlanBody:
    """Draft an undelete: files come out of the trash, statements go on from their checkpoints, pointers are back."""
    found = FormerVersions()
    for table in scope.requested:
        seen = context.observed.deployment(table)
        if context.observed.is_deployed(table):
            found.refuse(table, f"{table} is deployed", "only what was deleted is taken out of the trash")
        elif seen.in_trash is None:
            found.refuse(
                table, f"nothing of {table} that has served is in the trash", f"headgate plan {table} starts it anew"
            )
        else:
            found.by_table[table] = seen.in_trash
    for table in sorted(found.by_table):
        _refuse_what_cannot_go_on(context.observed, table, found)
    nodes = _nodes(context, found, Action.UNDELETE, Reason.UNDELETED)
    steps = StepBuilder()
    for node in nodes:
        steps.deploy(node, needs_pointer=True, existing=found.by_table[node.table])
    _warn_of_files(context, found)
    return PlanBody(nodes, steps.all, (), found.refusals, found.warnings)


def why_not_back(
    former: Mapping[TableName, Iterable[Binding]], then: Callable[[TableName, int], bool]
) -> dict[TableName, str]:
    """Return which of some versions could not go on together, with what they lack: `int__v3`.

    `former` holds what each would read; `then` says whether a version of a table from outside of them is still filled.
    """
    return {
        table: physical_name(binding.parent, binding.version)
        for table, bindings in former.items()
        for binding in bindings
        if binding.version and not then(binding.parent, binding.version)
    }


def _take_release(observed: ObservedTables, table: TableName, found: FormerVersions) -> None:
    """Take a table with all that the same run has swapped in and that still serves."""
    seen = observed.deployment(table)
    if not observed.is_deployed(table):
        in_trash = f"headgate undelete {table}" if seen.in_trash is not None else f"headgate plan {table}"
        found.refuse(table, f"{table} is not deployed", in_trash)
    elif observed.is_external(table):
        found.refuse(table, f"{table} is external: others write it", "leave it out")
    elif seen.former is None:
        found.refuse(table, f"{table} has no earlier version that served", BY_TEXT)
    else:
        found.by_table[table] = seen.former
        for other in observed.tables() if seen.served_by else ():
            also = observed.deployment(other)
            if also.served_by == seen.served_by and also.former is not None and other not in found.by_table:
                found.by_table[other] = also.former
                found.because_of[other] = table


def _refuse_what_cannot_go_on(observed: ObservedTables, table: TableName, found: FormerVersions) -> None:
    former = found.by_table[table]
    name = physical_name(table, former.version)
    if not former.checkpoint_ok:
        found.refuse(table, f"the checkpoint of {name} is missing, unreadable or another's", BY_TEXT)
    for binding in former.bindings:
        seen = observed.deployment(binding.parent)
        if (
            binding.parent not in found.by_table
            and observed.is_deployed(binding.parent)
            and seen.state != State.RUNNING
        ):
            found.warn(table, f"reads {binding.parent}, which is {seen.state}: it gets no new rows until that runs")
    lacks = why_not_back({table: former.bindings}, lambda t, v: _is_filled(observed, found, t, v)).get(table)
    if lacks is None:
        return
    parent = lacks.rpartition("__v")[0]
    seen = observed.deployment(TableName(parent))
    together = f"headgate undelete {' '.join(sorted({*found.by_table, parent}))}" if seen.in_trash else BY_TEXT
    found.refuse(table, f"{name} reads {lacks}, which is not filled any more", together)


def _is_filled(observed: ObservedTables, found: FormerVersions, table: TableName, version: int) -> bool:
    """Return whether a version will serve, or runs for others."""
    seen = observed.deployment(table)
    if table in found.by_table:
        return found.by_table[table].version == version
    return observed.is_deployed(table) and version in (seen.version, *seen.retained)


def _refuse_newer_readers(context: PlanningContext, table: TableName, found: FormerVersions) -> None:
    """Refuse where a statement outside of the release reads what would stop."""
    version = context.observed.deployment(table).version
    newer = [
        reader
        for reader in context.bindings.readers(table)
        if reader not in found.by_table
        and any((b.parent, b.version) == (table, version) for b in context.bindings.of(reader))
    ]
    if newer:
        first = newer[0]
        go_first = "rollback" if context.observed.deployment(first).former is not None else "plan delete"
        found.refuse(
            table,
            f"{physical_name(table, version)} would stop: {reader_phrase(newer)}",
            f"first headgate {go_first} {first}; or {BY_TEXT}",
        )


def _nodes(context: PlanningContext, found: FormerVersions, action: Action, reason: Reason) -> tuple[PlanNode, ...]:
    """Return a node for each version, sources first."""
    bindings = {table: former.bindings for table, former in found.by_table.items()}
    versions = {table: former.version for table, former in found.by_table.items()}
    levels = plan_levels(context.declared, bindings, versions, every_version=False)
    nodes = []
    for table in sorted(versions, key=lambda table: (levels[table], table)):
        node, because_of = _node(context, table, found.by_table[table], levels[table]), found.because_of.get(table)
        nodes.append(replace(node, action=action, reason=reason, because_of=(because_of,) if because_of else ()))
    return tuple(nodes)


def _node(context: PlanningContext, table: TableName, former: FormerVersion, level: int) -> PlanNode:
    return replace(
        kept_node(context, table, level),
        strategy=Strategy.IN_PLACE,
        replay_rows=0 if former.running else None,
        version=former.version,
        bindings=former.bindings,
        revision=former.revision,
        texts=former.texts,
        old=context.observed.deployment(table).deployed or RevisionTexts(),
        trigger=former.trigger,
    )


def _warn_of_files(context: PlanningContext, found: FormerVersions) -> None:
    """Warn that files with other texts bring them back."""
    other = [
        table
        for table, former in sorted(found.by_table.items())
        if (declared := context.declared.tables.get(table)) is not None
        and not declared.external
        and context.revisions.declared(table).texts != former.texts
    ]
    if other:
        words = f"the files of {', '.join(other)} hold another text: the next deploy brings it back"
        found.warn(TableName(""), words)


def rolled_back(seen: ObservedDeployment) -> FormerVersion | None:
    """Return what a version is once another one has replaced it; None where none has served."""
    if not (seen.version and seen.pointer and seen.deployed is not None):
        return None
    return FormerVersion(
        seen.version, seen.revision, seen.deployed, seen.bindings, running=False, checkpoint_ok=seen.checkpoint_ok
    )
