"""Rollback and undelete, which resume former versions.

A rollback reverses the whole release that created a table's current version, never a part of the release. An undelete
takes a table out of the trash and resumes it from its checkpoint, provided that the table's inputs still exist.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from core.model.actions import Action, Strategy
from core.model.names import TableName, physical_name
from core.model.reasons import Reason
from core.model.states import State
from core.model.table_formats import table_format
from core.observed.planner_input import ObservedDeployment, OtherVersion
from core.observed.versions import Binding
from core.plan.model import LeftBehind, PlanNode, Undo
from core.planner.context import ObservedTables, PlanningContext
from core.planner.decision_model import WarningsAndRefusals
from core.planner.plan_nodes import PlanBody, kept_node, plan_levels, purged_after
from core.planner.plan_steps import StepBuilder
from core.planner.retired_versions import RetiredVersion
from core.planner.scope import PlanScope
from core.planner.warning_and_refusal_kinds import PlanRefusalKind, PlanWarningKind, WayForward
from core.project.revision import RevisionTexts
from core.text.sentence import Fact


@dataclass(slots=True)
class FormerVersions(WarningsAndRefusals):
    """The former versions that a rollback or undelete resumes, with the refusals and warnings recorded so far."""

    by_table: dict[TableName, OtherVersion] = field(default_factory=dict)
    because_of: dict[TableName, TableName] = field(default_factory=dict)
    """For each table that is included because of its release, the requested table of the same release."""


def rollback_body(context: PlanningContext, scope: PlanScope) -> PlanBody:
    """Draft a rollback: former versions resume and catch up, pointers move back, and current versions stop.

    If a table outside the release reads a current version, this version and its inputs keep running.
    """
    found = FormerVersions()
    for table in scope.requested:
        _take_release(context.observed, table, found)
    for table in sorted(found.by_table):
        if _writes_topic(context, table):
            found.refuse(table, PlanRefusalKind.TOPIC_NOT_ROLLED_BACK.of())
    for table in sorted(found.by_table):
        _refuse_what_cannot_go_on(context.observed, table, found)
    nodes, steps = _resumed_nodes_and_steps(context, found, Action.ROLLBACK, Reason.ROLLED_BACK)
    swap = steps.swap(nodes)
    now = {table: context.observed.deployment(table).version for table in found.by_table}
    behind = tuple(_left_behind(context, now))
    under = _read_by_running_versions(context, now, found)
    kept = _kept(context, now, {TableName(left.through) for left in behind})
    levels = plan_levels(context.declared, {t: context.bindings.of(t) for t in now}, now, every_version=False)
    for table in sorted(now, key=lambda table: (-levels[table], table)):
        if table in under and table not in kept:
            found.warn(table, PlanWarningKind.STOPS_AFTER.of(version=now[table], reader=under[table]))
        if table in kept:
            found.warn(table, PlanWarningKind.OUTSIDE_READERS_KEEP.of(version=now[table]))
        else:
            ends, readers = RetiredVersion(table, now[table]), context.bindings.readers(table)
            steps.stop(ends, readers, (swap,) if swap else (), why="the former version serves again")
        name = physical_name(table, now[table])
        found.warn(table, PlanWarningKind.ROWS_IN_OLD_VERSION.of(version=now[table], name=name))
    _warn_of_files(context, found)
    return PlanBody(nodes, steps.all, behind, found.refusals, found.warnings)


def _writes_topic(context: PlanningContext, table: TableName) -> bool:
    old = context.revisions.deployed(table)
    return old is not None and old.parsed is not None and table_format(old.ddl.format).topics


def undelete_body(context: PlanningContext, scope: PlanScope) -> PlanBody:
    """Draft an undelete: restore files, resume statements from their checkpoints, and recreate pointers."""
    found = FormerVersions()
    for table in scope.requested:
        seen = context.observed.deployment(table)
        if context.observed.is_deployed(table):
            found.refuse(table, PlanRefusalKind.STILL_DEPLOYED.of())
        elif seen.in_trash is None:
            found.refuse(table, PlanRefusalKind.NOT_IN_TRASH.of())
        else:
            found.by_table[table] = seen.in_trash
            _warn_of_outlived(table, seen.in_trash, found)
            for source in context.declared.streamed_changes(seen.in_trash.bindings):
                found.warn(table, PlanWarningKind.SLOT_WENT_ON.of(source=source))
    for table in sorted(found.by_table):
        _refuse_what_cannot_go_on(context.observed, table, found)
    nodes, steps = _resumed_nodes_and_steps(context, found, Action.UNDELETE, Reason.UNDELETED)
    _warn_of_files(context, found)
    return PlanBody(nodes, steps.all, (), found.refusals, found.warnings)


def blocked_former_versions(
    former: Mapping[TableName, Iterable[Binding]], then: Callable[[TableName, int], bool]
) -> dict[TableName, tuple[Binding, ...]]:
    """Return the tables whose former version cannot resume, with their bindings to versions that get no more rows.

    `former` maps each table to its former version's bindings; `then` returns True for a version that will get rows.
    """
    lacking = {
        table: tuple(b for b in bindings if b.version and not then(b.parent, b.version))
        for table, bindings in former.items()
    }
    return {table: bindings for table, bindings in lacking.items() if bindings}


def _take_release(observed: ObservedTables, table: TableName, found: FormerVersions) -> None:
    seen = observed.deployment(table)
    if not observed.is_deployed(table):
        kind = PlanRefusalKind.IN_TRASH if seen.in_trash is not None else PlanRefusalKind.NOT_STARTED
        found.refuse(table, kind.of())
    elif observed.is_external(table):
        found.refuse(table, PlanRefusalKind.EXTERNAL.of())
    elif seen.former is None:
        # The first version has no old text.
        way = WayForward.OLD_TEXT.of() if seen.version > 1 else WayForward.DELETE.of(table=table)
        found.refuse(table, PlanRefusalKind.NO_EARLIER_VERSION.of(way=way))
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
        way = WayForward.OLD_TEXT.of() if observed.is_deployed(table) else WayForward.ANEW.of(table=table)
        found.refuse(table, PlanRefusalKind.FORMER_CHECKPOINT_LOST.of(name=name, way=way))
    for binding in former.bindings:
        seen = observed.deployment(binding.parent)
        if (
            binding.parent not in found.by_table
            and observed.is_deployed(binding.parent)
            and seen.state != State.RUNNING
        ):
            found.warn(table, PlanWarningKind.READS_STOPPED.of(parent=binding.parent, state=seen.state))
    lacks = blocked_former_versions({table: former.bindings}, lambda t, v: _is_filled(observed, found, t, v)).get(table)
    if lacks:
        names = tuple(sorted({physical_name(binding.parent, binding.version) for binding in lacks}))
        way = _way_forward(observed, table, lacks, found)
        found.refuse(table, PlanRefusalKind.FORMER_INPUTS_STOPPED.of(name=name, versions=names, way=way))


def _way_forward(
    observed: ObservedTables, table: TableName, lacks: Sequence[Binding], found: FormerVersions
) -> Fact[WayForward]:
    deleted, trash = not observed.is_deployed(table), {b: observed.deployment(b.parent).in_trash for b in lacks}
    if all(b.parent not in found.by_table and v is not None and v.version == b.version for b, v in trash.items()):
        together = {*(binding.parent for binding in lacks), *(found.by_table if deleted else ())}
        return WayForward.UNDELETE.of(tables=tuple(sorted(together)))
    return WayForward.ANEW.of(table=table) if deleted else WayForward.OLD_TEXT.of()


def _is_filled(observed: ObservedTables, found: FormerVersions, table: TableName, version: int) -> bool:
    seen = observed.deployment(table)
    if table in found.by_table:
        return found.by_table[table].version == version
    return observed.is_deployed(table) and version in (seen.version, *seen.retained)


def _left_behind(context: PlanningContext, now: Mapping[TableName, int]) -> Iterator[LeftBehind]:
    for table, version in sorted(now.items()):
        for reader in context.bindings.readers(table):
            if reader not in now and any(
                (b.parent, b.version) == (table, version) for b in context.bindings.of(reader)
            ):
                declared = context.declared.tables.get(reader)
                product, owner = (declared.product, declared.settings.owner) if declared else ("", "")
                yield LeftBehind(reader, product, physical_name(table, version), owner, table)


def _read_by_running_versions(
    context: PlanningContext, now: Mapping[TableName, int], found: FormerVersions
) -> dict[TableName, str]:
    return {
        binding.parent: physical_name(table, version)
        for table in context.observed.tables()
        for version, bindings in context.observed.replaced_versions_kept_running(table)
        if table not in found.by_table or found.by_table[table].version != version
        for binding in bindings
        if now.get(binding.parent) == binding.version
    }


def _kept(context: PlanningContext, now: Mapping[TableName, int], read: set[TableName]) -> set[TableName]:
    """Return the tables whose current version keeps running: those in `read`, and their inputs in the release."""
    waiting, kept = list(read), set(read)
    while waiting:
        for binding in context.bindings.of(waiting.pop()):
            if now.get(binding.parent) == binding.version and binding.parent not in kept:
                kept.add(binding.parent)
                waiting.append(binding.parent)
    return kept


def _resumed_nodes_and_steps(
    context: PlanningContext, found: FormerVersions, action: Action, reason: Reason
) -> tuple[tuple[PlanNode, ...], StepBuilder]:
    nodes, steps = _nodes(context, found, action, reason), StepBuilder()
    for node in nodes:
        existing, to_topic = found.by_table.get(node.table), _writes_topic(context, node.table)
        steps.deploy(node, needs_pointer=False, existing=existing, to_topic=to_topic)
    return nodes, steps


def _nodes(context: PlanningContext, found: FormerVersions, action: Action, reason: Reason) -> tuple[PlanNode, ...]:
    bindings = {table: former.bindings for table, former in found.by_table.items()}
    versions = {table: former.version for table, former in found.by_table.items()}
    read = {b.parent for former in found.by_table.values() for b in former.bindings} - versions.keys()
    for parent in sorted(filter(context.observed.is_deployed, read)):
        bindings[parent], versions[parent] = context.bindings.of(parent), context.observed.deployment(parent).version
    levels = plan_levels(context.declared, bindings, versions, every_version=False)
    nodes = []
    for table in sorted(versions, key=lambda table: (levels[table], table)):
        if table not in found.by_table:
            nodes.append(kept_node(context, table, levels[table]))
            continue
        node, because_of = _node(context, table, found.by_table[table], levels[table]), found.because_of.get(table)
        nodes.append(replace(node, action=action, reason=reason, because_of=(because_of,) if because_of else ()))
    return tuple(nodes)


def _node(context: PlanningContext, table: TableName, former: OtherVersion, level: int) -> PlanNode:
    return replace(
        kept_node(context, table, level),
        strategy=Strategy.IN_PLACE,
        replay_rows=0 if former.running else None,
        version=former.version,
        bindings=former.bindings,
        begins_where=former.begins_where,
        revision=former.revision,
        texts=former.texts,
        old=context.observed.deployment(table).deployed or RevisionTexts(),
        trigger=former.trigger,
    )


def _warn_of_outlived(table: TableName, former: OtherVersion, found: FormerVersions) -> None:
    """Warn that the trash contains only an older version, because the versions that served later are gone."""
    if former.outlived:
        gone = tuple(physical_name(table, version) for version in former.outlived)
        found.warn(table, PlanWarningKind.LATER_VERSIONS_GONE.of(gone=gone, version=former.version))


def _warn_of_files(context: PlanningContext, found: FormerVersions) -> None:
    """Warn about project files that differ from the former SQL, because the next deploy would apply these files."""
    other = tuple(
        table
        for table, former in sorted(found.by_table.items())
        if (declared := context.declared.tables.get(table)) is not None
        and table not in context.declared.project.broken
        and not declared.external
        and context.revisions.declared(table).texts != former.texts
    )
    if other:
        found.warn(TableName(""), PlanWarningKind.FILES_DIFFER.of(tables=other))


UPKEEP_WAYS = {
    "optimize": "nothing to undo: no row changes",
    "vacuum": "no command brings back the files; the newest version keeps all of its rows",
}
"""Why OPTIMIZE and VACUUM have no undo, by verb."""

TO_FORMER = ("rollback", "undelete", "delete")
"""Undo commands that resume former versions or delete tables, without planning the old SQL."""


def undo_by_rollback(context: PlanningContext, nodes: Sequence[PlanNode]) -> Undo | None:
    """Return the rollback that undoes a plan's swap.

    None if the plan has no swap, or if a version that it replaces cannot resume.
    """
    moved = [node for node in nodes if node.action is Action.REBUILD and node.version != node.from_version]
    now = {node.table: context.observed.deployment(node.table) for node in moved}
    if not moved or not all(map(_serves, now.values())) or any(_writes_topic(context, table) for table in now):
        return None
    reads = {table: context.bindings.of(table) for table in now}
    if blocked_former_versions(reads, lambda t, v: context.observed.deployment(t).version == v):
        return None
    words = "what served before goes on from its checkpoint, reads what arrived since, and serves again"
    if minutes := context.declared.environment.soak_min:
        words += f"; it takes seconds for {minutes:g} min after the swap"
    return _undo_by_former_version("rollback", tuple(now), words)


def undos_by_former_versions(context: PlanningContext, verb: str, nodes: Sequence[PlanNode]) -> tuple[Undo, ...]:
    """Return the commands that undo a plan other than a deploy; an entry without a command states the reason."""
    tables = tuple(node.table for node in nodes if node.action is not Action.KEEP)
    seen = {table: context.observed.deployment(table) for table in tables}
    if verb == "retire":
        when = purged_after(context.declared.environment)
        return (Undo.of("", tables, f"no command takes a retired version out of the trash; it is purged {when}"),)
    if verb in UPKEEP_WAYS:
        return (Undo.of("", tables, UPKEEP_WAYS[verb]),)
    if verb == "undelete":
        return (_undo_by_former_version("delete", tables, "in the trash again"),)
    if verb == "rollback" and all(map(_serves, seen.values())):
        return (_undo_by_former_version(verb, tables, "what serves now goes on from its checkpoint and serves again"),)
    if verb == "rollback":
        return (Undo.of("", tables, "what serves now has failed, or has lost a checkpoint"),)
    back = {table: context.bindings.of(table) for table, now in seen.items() if _serves(now)}

    def stays(table: TableName, version: int) -> bool:
        gone = table in seen and table not in back
        return not gone and context.observed.deployment(table).version == version

    while lacking := blocked_former_versions(back, stays):
        back = {table: bindings for table, bindings in back.items() if table not in lacking}
    words = "files and checkpoints come out of the trash, and statements continue from there"
    until = f"until the files are purged, {purged_after(context.declared.environment)}"
    found = [Undo.of("undelete", tuple(sorted(back)), words, until=until)] if back else []
    rest = tuple(table for table in tables if table not in back)
    return (
        *found,
        *([Undo.of("", rest, "a version that failed, never served or lost its inputs cannot resume")] if rest else ()),
    )


def _serves(seen: ObservedDeployment) -> bool:
    """True if a version serves and can resume from its checkpoint. A failed version cannot: it would fail again."""
    return bool(seen.version and seen.pointer and seen.checkpoint_ok and seen.state != State.FAILED)


def _undo_by_former_version(act: str, tables: tuple[TableName, ...], words: str) -> Undo:
    return Undo.of(act, tables, words, until="until another plan changes these tables")
