"""Builds the steps of a plan in execution order; each step waits only for those on which it depends."""

from collections.abc import Iterable, Mapping, Sequence

from core.changes.kinds import ChangeKind
from core.model.actions import FORKS, Action, StepKind, Strategy
from core.model.names import TableName, physical_name
from core.model.reasons import Reason
from core.observed.planner_input import OtherVersion
from core.plan.model import PlanNode, Step
from core.planner.retired_versions import RetiredVersion
from core.text.sentence import Sentence

Clones = tuple[tuple[int, int], ...]
"""Pairs (clone, base) of a version and the version from which it was cloned."""

_CAUGHT_UP = "the pointer moves only to a version that has caught up with its inputs"


class StepBuilder:
    """Builds the numbered steps of a plan and their dependencies."""

    def __init__(self) -> None:
        self.all: list[Step] = []
        self._ready: dict[tuple[TableName, int], int] = {}
        """Number of the step after which a version can be read, by version."""
        self._caught_up: dict[tuple[TableName, int], int] = {}
        self._validated: dict[tuple[TableName, int], int] = {}
        self._nodes: dict[tuple[TableName, int], PlanNode] = {}
        self._seams: list[tuple[PlanNode, bool]] = []
        """Nodes that move to another version of a streamed parent, each with True if it needs a pointer."""
        self._stopped: dict[TableName, list[int]] = {}
        self._altered: dict[tuple[TableName, int], int] = {}
        """Number of the ALTER step that pauses readers, by version."""
        self._to_topics: set[TableName] = set()
        """Tables whose statements write to a topic; a topic has no pointer, and its messages are not compared."""
        self._restarted: dict[TableName, int] = {}
        """For each table that keeps its version, the number of the step after which it reads its new inputs."""
        self._after_readers: list[tuple[PlanNode, tuple[int, ...]]] = []
        """Altered nodes that restart after their readers, in topological order, with the steps before the restart."""

    def add(
        self,
        do: StepKind,
        table: TableName,
        version: int,
        after: Iterable[int],
        *,
        why: str | Sentence,
        tables: tuple[TableName, ...] = (),
    ) -> int:
        """Append a step and return its number; numbers start at 1."""
        n = len(self.all) + 1
        self.all.append(Step(n, do, table, version, tuple(sorted(set(after))), why=Sentence(str(why)), tables=tables))
        return n

    def _add(self, do: StepKind, node: PlanNode, after: Iterable[int] = (), *, why: str | Sentence) -> int:
        return self.add(do, node.table, node.version, after, why=why)

    def deploy(
        self,
        node: PlanNode,
        *,
        needs_pointer: bool,
        existing: OtherVersion | None = None,
        pauses_readers: bool = False,
        to_topic: bool = False,
        readers_first: bool = False,
    ) -> None:
        """Add the steps of a node that precede the swap. Call this for the nodes in topological order.

        `existing` is the version to continue with: an orphan of a failed run, or a former version. With
        `pauses_readers`, queries that read the table are stopped while it is altered. With `to_topic`, the statement
        writes to a topic. With `readers_first`, a node that is altered in place restarts in `restart_after_readers`.
        """
        if to_topic:
            self._to_topics.add(node.table)
        self._nodes[node.table, node.version] = node
        match node.action:
            case Action.START if not node.texts.dml:
                self._ready[node.table, 0] = self._add(StepKind.REGISTER, node, why="it is not in the catalog")
            case Action.START:
                self._first(node)
            case Action.REBUILD | Action.ROLLBACK if existing is not None:
                self._adopt(node, existing)
            case Action.UNDELETE:
                self._restore(node)
            case Action.REBUILD if node.strategy == Strategy.KEYED:
                self._rewrite(node, needs_pointer=needs_pointer)
            case Action.REBUILD:
                self._rebuild(node)
            case Action.RESTART if node.reason == Reason.DECLARED_ANEW:
                why = "its declaration is compared with its log or topics"
                self._ready[node.table, 0] = self._add(StepKind.REGISTER, node, why=why)
            case Action.RESTART if node.strategy == Strategy.SEAM:
                self._seams.append((node, needs_pointer))
            case Action.RESTART:
                self._restart(node, needs_pointer=needs_pointer, pauses=pauses_readers, readers_first=readers_first)
            case Action.RESUME:
                self._resume(node, needs_pointer=needs_pointer)
            case Action.RECORD:
                self._record(node)
            case _:
                pass

    def restart_after_readers(self) -> None:
        """Add the restarts of nodes altered in place whose readers restart first, sinks first.

        A reader that restarts between the change of the table and the restart of its statement has the new columns
        before the first row that fills them. Readers that are rebuilt read all rows, whatever the order.
        """
        readers: dict[tuple[TableName, int], list[TableName]] = {}
        for node in self._nodes.values() if self._after_readers else ():
            for binding in node.bindings if node.action is Action.RESTART else ():
                readers.setdefault((binding.parent, binding.version), []).append(node.table)
        for node, before in reversed(self._after_readers):
            first = [self._restarted[reader] for reader in readers.get((node.table, node.version), ())]
            why = f"{node.reason.clause}; its readers have the new columns first" if first else node.reason.clause
            restart = self._restarted[node.table] = self._add(StepKind.RESTART, node, (*before, *first), why=why)
            if node.change is not ChangeKind.COLUMN_WIDENED:
                self._point(node, restart)

    def validate(self, nodes: Sequence[PlanNode]) -> None:
        """Add a step for each rebuilt version that compares it with the serving version after catch-up.

        If a version's strategy leaves out rows, neither this version nor any version that reads it is compared.
        """
        moved = [node for node in nodes if node.action is Action.REBUILD and node.version != node.from_version]
        others: set[TableName] = set()
        for node in moved:
            if node.table in self._to_topics:
                continue
            if node.strategy != Strategy.EARLIEST or others & {binding.parent for binding in node.bindings}:
                others.add(node.table)
                continue
            key = (node.table, node.version)
            beside = physical_name(node.table, node.from_version)
            why = f"compared with {beside} as of one position; takes 5 min at most, a sample above 5 M rows"
            self._validated[key] = self.add(StepKind.VALIDATE, *key, (self._caught_up[key],), why=why)

    def swap(self, nodes: Sequence[PlanNode], *, hold: bool = False) -> int | None:
        """Add one swap step for all nodes that change their version, sinks first; return the step's number.

        Returns None if no node changes its version. With `hold`, the swap waits for an operator once catch-up and
        validation are done.
        """
        moves = (Action.REBUILD, Action.ROLLBACK)
        rebuilt = [n for n in reversed(nodes) if n.action in moves and n.version != n.from_version]
        if not rebuilt:
            return None
        first, tables = rebuilt[0], tuple(node.table for node in rebuilt)
        after = [n for node in rebuilt for n in self._before_swap(node.table, node.version)]
        why = "every version has caught up"
        if hold:
            asked = "nothing is swapped before an operator releases it"
            after = [self.add(StepKind.HOLD, first.table, first.version, after, why=asked, tables=tables)]
            why = "every version has caught up, and an operator released the swap"
        return self.add(StepKind.SWAP, first.table, first.version, after, why=why, tables=tables)

    def _before_swap(self, table: TableName, version: int) -> tuple[int, ...]:
        validated = self._validated.get((table, version))
        return (self._caught_up[table, version], *((validated,) if validated else ()))

    def seams(self, swap: int | None) -> None:
        """Add, after the swap, the steps (seams) that move readers to a new version of a streamed parent."""
        for node, needs_pointer in self._seams:
            read = ((b.parent, b.version) for b in node.bindings)
            caught_up = (self._caught_up[key] for key in read if key in self._caught_up)
            after = (*self._needs(node), *caught_up, *((swap,) if swap else ()))
            n = self._add(StepKind.SEAM, node, after, why=node.reason.clause)
            self._restarted[node.table] = n
            if needs_pointer:
                self._point(node, n)

    def stop(self, old: RetiredVersion, readers: Sequence[TableName], after: Iterable[int], *, why: str) -> None:
        """Add a step that stops an old version once all its readers have stopped or moved to another version."""
        behind = [n for reader in readers for n in self._stopped.get(reader, ())]
        behind += [self._restarted[reader] for reader in readers if reader in self._restarted]
        n = self.add(StepKind.STOP, old.table, old.version, (*after, *behind), why=why)
        self._stopped.setdefault(old.table, []).append(n)

    def soak(self, old: RetiredVersion, swap: int) -> None:
        """Add a step that schedules the stop of an old version, which runs on for a while after the swap (soak)."""
        why = "a rollback takes seconds while it runs"
        self.add(StepKind.SOAK, old.table, old.version, (swap,), why=why)

    def set_aside(self, table: TableName, version: int, swap: int | None) -> None:
        """Add a step that trashes an orphan version after `swap` and after the stops and starts of its table."""
        started = [n for (of, _), n in self._ready.items() if of == table]
        after = (*self._stopped.get(table, ()), *started, *((swap,) if swap else ()))
        why = f"{physical_name(table, version)} is an orphan version, and nothing reads it"
        self.add(StepKind.TOMBSTONE, table, version, after, why=why)

    def delete(
        self,
        nodes: Sequence[PlanNode],
        running: Mapping[TableName, Sequence[int]],
        existing: Mapping[TableName, Sequence[int]],
        readers_of: Mapping[TableName, Sequence[TableName]],
        clones: Mapping[TableName, Clones],
    ) -> None:
        """Add steps that stop statements sinks first, drop the pointers, and move every version to the trash.

        `nodes` must be ordered sinks first. `existing` must list the latest versions first, because a clone must be
        removed before the version from which it was cloned.
        """
        stops = self._stopped
        for node in nodes:
            behind = [n for reader in readers_of[node.table] for n in stops.get(reader, ())]
            for version in running[node.table]:
                n = self.add(StepKind.STOP, node.table, version, behind, why="it is deleted")
                stops.setdefault(node.table, []).append(n)
        why = "batch readers must not find a table that is being deleted"
        pointers = {
            node.table: self.add(StepKind.UNPOINT, node.table, node.from_version, stops[node.table], why=why)
            for node in nodes
        }
        for node in nodes:
            aside: dict[int, int] = {}
            for version in existing[node.table]:
                cloned = (aside[clone] for clone, base in clones[node.table] if base == version and clone in aside)
                after = (pointers[node.table], *stops[node.table], *cloned)
                aside[version] = self.trash(node.table, version, after)

    def trash(self, table: TableName, version: int, after: Iterable[int]) -> int:
        """Add a step that moves a version and its checkpoint to the trash; return its number."""
        why = f"{physical_name(table, version)} and its checkpoint are in the trash"
        return self.add(StepKind.TOMBSTONE, table, version, after, why=why)

    def _needs(self, node: PlanNode) -> tuple[int, ...]:
        """Return the steps after which a node's streamed parents are readable and its static sides complete.

        A node that merely resumes after a parent is altered waits only for that ALTER step.
        """
        found = []
        for binding in node.bindings:
            key = (binding.parent, binding.version)
            goes_on = node.action is Action.RESUME and key in self._altered
            ready = self._altered[key] if goes_on else self._ready.get(key) if binding.streamed else self._complete(key)
            if ready is not None:
                found.append(ready)
        return tuple(found)

    def _complete(self, key: tuple[TableName, int]) -> int | None:
        """Return the step after which a static side is complete; None if it is already complete.

        Adds the missing catch-up steps of the static side and of its upstream tables. External tables, and tables that
        the plan does not change, count as complete.
        """
        ready, node = self._caught_up.get(key, self._ready.get(key)), self._nodes.get(key)
        if ready is None or node is None or not node.version or key in self._caught_up:
            return ready
        above = [self._complete((b.parent, b.version)) for b in node.bindings if b.version]
        self._caught_up[key] = self.add(
            StepKind.CATCH_UP,
            *key,
            (ready, *(n for n in above if n is not None)),
            why="a static side is read as it is when its reader starts: it must hold all its rows by then",
        )
        return self._caught_up[key]

    def _first(self, node: PlanNode) -> None:
        name = physical_name(node.table, node.version)
        self._point(node, self._create(node, why=f"{name} and its checkpoint are new"))

    def _rebuild(self, node: PlanNode) -> None:
        beside = physical_name(node.table, node.from_version)
        self._catch_up(node, (self._create(node, why=f"beside {beside}"),))

    def _create(self, node: PlanNode, *, why: str) -> int:
        """Add the steps that create and start a version; return the step after which it can be read."""
        needs = self._needs(node)
        ready = self._add(StepKind.CREATE, node, needs, why=why)
        if node.strategy in FORKS:
            why = f"it goes on after the newest batch of {physical_name(node.table, node.from_version)}"
            ready = self._add(StepKind.FORK, node, (ready,), why=why)
        elif node.strategy == Strategy.SEEDED:
            ready = self._add(StepKind.SEED, node, (ready,), why="the existing rows count as read")
        return self._make_ready(node, self._add(StepKind.START, node, (ready, *needs), why=node.reason.clause))

    def _make_ready(self, node: PlanNode, n: int) -> int:
        self._ready[node.table, node.version] = n
        return n

    def _rewrite(self, node: PlanNode, *, needs_pointer: bool) -> None:
        why = "on a new checkpoint, from the earliest row, every row is upserted again by its key"
        n = self._restarted[node.table] = self._make_ready(
            node, self._add(StepKind.REWRITE, node, self._needs(node), why=why)
        )
        self._catch_up(node, (n,), why="until then, readers see old and new rows in any order")
        if needs_pointer:
            self._point(node, n)

    def _restore(self, node: PlanNode) -> None:
        name = physical_name(node.table, node.version)
        restore = self._add(StepKind.RESTORE, node, self._needs(node), why=f"{name} and its checkpoint are back")
        resume = self._add(StepKind.RESUME, node, (restore, *self._needs(node)), why=node.reason.clause)
        self._point(node, self._make_ready(node, resume))

    def _adopt(self, node: PlanNode, existing: OtherVersion) -> None:
        before = self._needs(node)
        if not existing.running:
            why = f"{physical_name(node.table, node.version)} already exists"
            before = (self._make_ready(node, self._add(StepKind.RESUME, node, before, why=why)),)
        self._catch_up(node, before)

    def _catch_up(self, node: PlanNode, after: tuple[int, ...], *, why: str = _CAUGHT_UP) -> None:
        read = ((b.parent, b.version) for b in node.bindings)
        above = (self._caught_up[key] for key in read if key in self._caught_up)
        self._caught_up[node.table, node.version] = self._add(StepKind.CATCH_UP, node, (*after, *above), why=why)

    def _restart(self, node: PlanNode, *, needs_pointer: bool, pauses: bool, readers_first: bool) -> None:
        before = self._needs(node)
        alters = node.change is not None and node.change.definition.alters_table
        widened = node.change is ChangeKind.COLUMN_WIDENED
        if alters:
            what = "the wider types; what reads it" if widened else "the added columns; what streams it"
            why = f"{what} is stopped before, and goes on after" if pauses else "the added columns"
            alter = self._add(StepKind.ALTER, node, why=why)
            if pauses:
                self._altered[node.table, node.version] = alter
            # A pointer casts to the types it was created with, and would reject values that need the wider type.
            before = (*before, alter, *((self._point(node, alter),) if widened else ()))
            if readers_first and node.texts.dml:
                self._make_ready(node, alter)
                self._after_readers.append((node, before))
                return
        if not node.texts.dml:
            self._make_ready(node, self._record(node, after=before))
            return
        restart = self._make_ready(node, self._add(StepKind.RESTART, node, before, why=node.reason.clause))
        self._restarted[node.table] = restart
        if not widened and (alters or needs_pointer):
            self._point(node, restart)

    def _resume(self, node: PlanNode, *, needs_pointer: bool) -> None:
        before = self._needs(node)
        if node.change is not None and node.change.definition.is_recorded:
            before = (*before, self._record(node))
        resume = self._make_ready(node, self._add(StepKind.RESUME, node, before, why=node.reason.clause))
        if needs_pointer:
            self._point(node, resume)

    def _record(self, node: PlanNode, *, after: Iterable[int] = ()) -> int:
        return self._add(StepKind.RECORD, node, after, why=node.reason.clause)

    def _point(self, node: PlanNode, after: int) -> int:
        topic = "it is the version that writes its topic"
        why = topic if node.table in self._to_topics else f"batch readers find {node.table} by its pointer"
        return self.add(StepKind.SWAP, node.table, node.version, (after,), why=why, tables=(node.table,))
