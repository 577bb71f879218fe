"""Setting aside what was replaced: every version of a table that has served and does not any more, readers first.

A clone that never served goes as well: the files of what it was cloned from stay as long as it is there.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from shlex import quote

from core.model.actions import Action, StepKind
from core.model.names import TableName, physical_name
from core.model.reasons import Reason
from core.observed.deployment import Binding
from core.plan.model import PlanNode
from core.planner.context import ObservedTables, PlanningContext
from core.planner.decisions import PlanRemarks
from core.planner.plan_nodes import PlanBody, kept_node, plan_levels
from core.planner.plan_steps import StepBuilder
from core.planner.retired_and_orphan_versions import RetiredVersion
from core.planner.scope import PlanScope
from core.sql.log_starts import read_log_start, words_of


@dataclass(slots=True)
class ReplacedVersions(PlanRemarks):
    """Versions that are to go, as they are being decided."""

    by_table: dict[TableName, tuple[int, ...]] = field(default_factory=dict)
    """Newest first."""


def retire_body(context: PlanningContext, scope: PlanScope) -> PlanBody:
    """Draft a retirement: what still runs stops, then files and checkpoints go into the trash until their deadline.

    Refused while anything reads such a version, with who does.
    """
    found = ReplacedVersions()
    for table in scope.requested:
        _take(context.observed, table, found)
    for table in found.by_table:
        _refuse_under_readers(context, table, found)
        _refuse_under_clones(context.observed, table, found)
    serving = {table: context.observed.deployment(table).version for table in found.by_table}
    bindings = {table: context.bindings.of(table) for table in found.by_table}
    levels = plan_levels(context.declared, bindings, serving, every_version=True)
    order = sorted(found.by_table, key=lambda table: (-levels[table], table))
    nodes = tuple(_node(context, table, found.by_table[table], levels[table]) for table in order)
    steps = _steps(context, order, found.by_table)
    for table in order:
        if context.observed.deployment(table).former is not None:
            found.warn(table, "no rollback leads back to what is retired")
        seen = context.observed.deployment(table)
        begins = [f"with {words_of(each)}" if read_log_start(each) else f"WHERE {each}" for each in seen.begins_where]
        begins += [f"after {seen.begins_after}"] if seen.begins_after else []
        if begins and not seen.rows_before:
            where = " and ".join(begins)
            found.warn(table, f"v{seen.version} begins {where}: what was before is in the retired versions alone")
    return PlanBody(nodes, steps.all, (), found.refusals, found.warnings)


def _take(observed: ObservedTables, table: TableName, found: ReplacedVersions) -> None:
    seen = observed.deployment(table)
    # One that is a clone keeps the files of another version, so that it goes although it never served.
    orphans = {orphan.version for orphan in seen.orphan_versions} - {clone for clone, _ in seen.clones}
    replaced = tuple(sorted({*seen.kept} - orphans - {0}, reverse=True))
    if not observed.is_deployed(table):
        found.refuse(table, f"{table} is not deployed", "leave it out")
    elif observed.is_external(table):
        found.refuse(table, f"{table} is external: others write it", "leave it out")
    elif not seen.pointer or not replaced:
        remedy = f"see its versions: headgate show {table}"
        found.refuse(table, f"nothing that {table} replaced is still there", remedy)
    else:
        found.by_table[table] = replaced


def _refuse_under_readers(context: PlanningContext, table: TableName, found: ReplacedVersions) -> None:
    """Refuse what serves on a version that goes, what still runs on it, and an open ticket; warn of ways back."""
    observed = context.observed
    going = {(table, version): physical_name(table, version) for version in found.by_table[table]}
    for reader in context.bindings.readers(table):
        declared = context.declared.tables.get(reader)
        product = f" ({declared.product})" if declared is not None and declared.product else ""
        for reads in _read(context.bindings.of(reader), going):
            remedy = f"move it to what serves: headgate plan {reader}"
            found.refuse(table, f"{reads} is read by {reader}{product}", remedy)
    for other in observed.tables():
        stays = [one for one in observed.runs_on(other) if one[0] not in found.by_table.get(other, ())]
        for version, bindings in stays:
            for reads in _read(bindings, going):
                name = physical_name(other, version)
                found.refuse(table, f"{reads} is read by {name}, which is kept running", f"retire {other} as well")
        former = observed.deployment(other).former
        if former is not None and not former.running and former.version not in found.by_table.get(other, ()):
            for reads in _read(former.bindings, going):
                found.warn(table, f"{other} cannot be rolled back to v{former.version}, which reads {reads}")
    for ticket in observed.deployment(table).tickets:
        if (table, ticket.version) in going:
            closed = f"once it has moved: headgate release close {ticket.run} {quote(ticket.reader)}"
            found.refuse(table, f"{ticket.reader} has an open ticket on {going[table, ticket.version]}", closed)


def _refuse_under_clones(observed: ObservedTables, table: TableName, found: ReplacedVersions) -> None:
    """Refuse what a clone that stays has rows in: it names their files."""
    going = found.by_table[table]
    for clone, base in observed.deployment(table).clones:
        if base in going and clone not in going:
            words = (
                f"{physical_name(table, clone)} is a clone of {physical_name(table, base)}, whose files hold its rows"
            )
            found.refuse(table, words, f"rebuild it first, into files of its own: headgate plan {table} --rebuild")


def _read(bindings: Iterable[Binding], going: Mapping[tuple[TableName, int], str]) -> list[str]:
    """Return the physical tables among those that go which bindings are about."""
    return [going[b.parent, b.version] for b in bindings if (b.parent, b.version) in going]


def _node(context: PlanningContext, table: TableName, versions: tuple[int, ...], level: int) -> PlanNode:
    return replace(
        kept_node(context, table, level),
        action=Action.RETIRE,
        reason=Reason.RETIRED,
        from_version=versions[0],
        loses=tuple(f"v{version}" for version in versions),
    )


def _steps(context: PlanningContext, order: list[TableName], going: Mapping[TableName, tuple[int, ...]]) -> StepBuilder:
    steps, aside = StepBuilder(), dict[TableName, list[int]]()
    for table in order:
        running = context.observed.deployment(table).retained
        for version in going[table]:
            if version in running:
                old = RetiredVersion(table, version)
                steps.stop(old, context.bindings.readers(table), (), why="it was replaced")
    stopped = {(step.table, step.version): step.n for step in steps.all}
    for table in order:
        readers = [n for reader in context.bindings.readers(table) for n in aside.get(reader, ())]
        done: dict[int, int] = {}
        for version in going[table]:
            own = [stopped[table, version]] if (table, version) in stopped else []
            name = physical_name(table, version)
            why = f"{name} and its checkpoint are in the trash"
            clones = (done[c] for c, base in context.observed.deployment(table).clones if base == version and c in done)
            after = (*own, *readers, *clones)
            done[version] = steps.add(StepKind.TOMBSTONE, table, version, after, why=why)
            aside.setdefault(table, []).append(done[version])
    return steps
