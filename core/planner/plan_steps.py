"""Nodes → steps in the order of execution; a step waits for what it needs and for nothing else."""

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
"""Versions of a table, each with the one of which it is a clone."""

_CAUGHT_UP = "the pointer moves only to a version that has caught up with its inputs"


class StepBuilder:
    """Steps as they are numbered, with what later ones wait for."""

    def __init__(self) -> None:
        self.all: list[Step] = []
        self._ready: dict[tuple[TableName, int], int] = {}
        """Step after which a version may be read."""
        self._caught_up: dict[tuple[TableName, int], int] = {}
        self._validated: dict[tuple[TableName, int], int] = {}
        self._nodes: dict[tuple[TableName, int], PlanNode] = {}
        self._seams: list[tuple[PlanNode, bool]] = []
        """Nodes that move to another version of what they stream; whether each lacks its pointer."""
        self._stopped: dict[TableName, list[int]] = {}
        self._altered: dict[tuple[TableName, int], int] = {}
        """Step after which those that stream a version, and were stopped for it, go on."""
        self._restarted: dict[TableName, int] = {}
        """Step after which a table that keeps its version reads what it is to read."""

    def add(
        self,
        do: StepKind,
        table: TableName,
        version: int,
        after: Iterable[int],
        *,
        why: str,
        tables: tuple[TableName, ...] = (),
    ) -> int:
        """Append one step and return its number."""
        n = len(self.all) + 1
        self.all.append(Step(n, do, table, version, tuple(sorted(set(after))), Sentence(why), tables))
        return n

    def deploy(
        self,
        node: PlanNode,
        *,
        needs_pointer: bool,
        existing: OtherVersion | None = None,
        pauses_readers: bool = False,
    ) -> None:
        """Add what one node needs before the swap; nodes come in topological order.

        `pauses_readers` says whether a column cannot be added to its table while anything streams it.

        `existing` is the version that is there already: of a rebuild that a failed run has begun, or one that served.
        """
        self._nodes[node.table, node.version] = node
        match node.action:
            case Action.START if not node.texts.dml:
                self._ready[node.table, 0] = self.add(
                    StepKind.REGISTER, node.table, 0, (), why="it is not in the catalog"
                )
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
                self._ready[node.table, 0] = self.add(
                    StepKind.REGISTER, node.table, 0, (), why="what is declared of it is compared with its log"
                )
            case Action.RESTART if node.strategy == Strategy.SEAM:
                self._seams.append((node, needs_pointer))
            case Action.RESTART:
                self._restart(node, needs_pointer=needs_pointer, pauses_readers=pauses_readers)
            case Action.RESUME:
                self._resume(node, needs_pointer=needs_pointer)
            case Action.RECORD:
                self._record(node)
            case _:
                pass

    def validate(self, nodes: Sequence[PlanNode]) -> None:
        """Compare every version that is built anew from all its rows with the one that serves, once it has caught up.

        What holds other rows by its strategy, or reads from what does, has nothing to be compared with.
        """
        moved = [node for node in nodes if node.action is Action.REBUILD and node.version != node.from_version]
        others: set[TableName] = set()
        for node in moved:
            if node.strategy != Strategy.EARLIEST or others & {binding.parent for binding in node.bindings}:
                others.add(node.table)
                continue
            key = (node.table, node.version)
            beside = physical_name(node.table, node.from_version)
            why = f"compared with {beside} as of one position; takes 5 min at most, a sample above 5 M rows"
            self._validated[key] = self.add(StepKind.VALIDATE, *key, (self._caught_up[key],), why=why)

    def swap(self, nodes: Sequence[PlanNode], *, hold: bool = False) -> int | None:
        """Add the one swap of all nodes that come to another version, sinks first; None where none does.

        With `hold` it waits for a word once every version has caught up and was compared.
        """
        moves = (Action.REBUILD, Action.ROLLBACK)
        rebuilt = [n for n in reversed(nodes) if n.action in moves and n.version != n.from_version]
        if not rebuilt:
            return None
        first, tables = rebuilt[0], tuple(node.table for node in rebuilt)
        after = [n for node in rebuilt for n in self._before_swap(node.table, node.version)]
        why = "every version has caught up"
        if hold:
            asked = "nothing is swapped before somebody gives the word"
            after = [self.add(StepKind.HOLD, first.table, first.version, after, why=asked, tables=tables)]
            why = "every version has caught up, and the word was given"
        return self.add(StepKind.SWAP, first.table, first.version, after, why=why, tables=tables)

    def _before_swap(self, table: TableName, version: int) -> tuple[int, ...]:
        validated = self._validated.get((table, version))
        return (self._caught_up[table, version], *((validated,) if validated else ()))

    def seams(self, swap: int | None) -> None:
        """Add what moves to another version of what it streams: after the swap, which is never taken back."""
        for node, needs_pointer in self._seams:
            read = ((b.parent, b.version) for b in node.bindings)
            caught_up = (self._caught_up[key] for key in read if key in self._caught_up)
            after = (*self._needs(node), *caught_up, *((swap,) if swap else ()))
            n = self.add(StepKind.SEAM, node.table, node.version, after, why=node.reason)
            self._restarted[node.table] = n
            if needs_pointer:
                self._point(node, n)

    def stop(self, old: RetiredVersion, readers: Sequence[TableName], after: Iterable[int], *, why: str) -> None:
        """Stop an old version after the versions of its readers that stop too, and those that read another one."""
        behind = [n for reader in readers for n in self._stopped.get(reader, ())]
        behind += [self._restarted[reader] for reader in readers if reader in self._restarted]
        n = self.add(
            StepKind.STOP,
            old.table,
            old.version,
            (*after, *behind),
            why=why,
        )
        self._stopped.setdefault(old.table, []).append(n)

    def soak(self, old: RetiredVersion, swap: int) -> None:
        """Have an old version run on for a while after the swap; the agent stops it, readers first."""
        why = "a rollback takes seconds while it runs"
        self.add(StepKind.SOAK, old.table, old.version, (swap,), why=why)

    def set_aside(self, table: TableName, version: int, swap: int | None) -> None:
        """Set a version aside that never served, once it is stopped and what replaces it is there."""
        started = [n for (of, _), n in self._ready.items() if of == table]
        self.add(
            StepKind.TOMBSTONE,
            table,
            version,
            (*self._stopped.get(table, ()), *started, *((swap,) if swap else ())),
            why=f"{physical_name(table, version)} is an orphan version, and nothing reads it",
        )

    def delete(
        self,
        nodes: Sequence[PlanNode],
        running: Mapping[TableName, Sequence[int]],
        existing: Mapping[TableName, Sequence[int]],
        readers_of: Mapping[TableName, Sequence[TableName]],
        clones: Mapping[TableName, Clones],
    ) -> None:
        """Add stops sinks to sources, then pointers, then every version that exists; nodes come sinks first.

        `existing` has versions newest first: a clone is newer than what it was cloned from, and goes before it.
        """
        stops = self._stopped
        for node in nodes:
            behind = [n for reader in readers_of[node.table] for n in stops.get(reader, ())]
            for version in running[node.table]:
                n = self.add(
                    StepKind.STOP,
                    node.table,
                    version,
                    behind,
                    why="it is deleted",
                )
                stops.setdefault(node.table, []).append(n)
        pointers = {
            node.table: self.add(
                StepKind.UNPOINT,
                node.table,
                node.from_version,
                stops[node.table],
                why="batch readers must not find a table that is being deleted",
            )
            for node in nodes
        }
        for node in nodes:
            aside: dict[int, int] = {}
            for version in existing[node.table]:
                cloned = (aside[clone] for clone, base in clones[node.table] if base == version and clone in aside)
                aside[version] = self.add(
                    StepKind.TOMBSTONE,
                    node.table,
                    version,
                    (pointers[node.table], *stops[node.table], *cloned),
                    why=f"{physical_name(node.table, version)} and its checkpoint are in the trash",
                )

    def _needs(self, node: PlanNode) -> tuple[int, ...]:
        """Return the steps that make this node's parents readable; a static side must hold its rows already.

        One that goes on as it was waits for no new text, and for no row.
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
        """Return the step after which a static side holds all its rows, with all that fills it; None where it does.

        A table from outside holds what it holds; one that this plan does not touch was complete before.
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
        physical = physical_name(node.table, node.version)
        create = self._create(node, why=f"{physical} and its checkpoint are new")
        self._point(node, self._start(node, self._begun_at(node, create)))

    def _rebuild(self, node: PlanNode) -> None:
        beside = physical_name(node.table, node.from_version)
        create = self._create(node, why=f"beside {beside}")
        self._catch_up(node, (self._start(node, self._begun_at(node, create)),))

    def _begun_at(self, node: PlanNode, create: int) -> int:
        """Add what has a version begin elsewhere than with the earliest row; returns what its start waits for."""
        if node.strategy in FORKS:
            why = f"it goes on after the newest batch of {physical_name(node.table, node.from_version)}"
            return self.add(StepKind.FORK, node.table, node.version, (create,), why=why)
        if node.strategy == Strategy.SEEDED:
            return self.add(StepKind.SEED, node.table, node.version, (create,), why="what is there now counts as read")
        return create

    def _create(self, node: PlanNode, *, why: str) -> int:
        return self.add(StepKind.CREATE, node.table, node.version, self._needs(node), why=why)

    def _start(self, node: PlanNode, *after: int) -> int:
        """Start a version that was created; from then on it may be read."""
        start = self.add(
            StepKind.START,
            node.table,
            node.version,
            (*after, *self._needs(node)),
            why=node.reason,
        )
        self._ready[node.table, node.version] = start
        return start

    def _rewrite(self, node: PlanNode, *, needs_pointer: bool) -> None:
        """Begin again in the same table: each row is upserted by its key."""
        why = "on a new checkpoint, from the earliest row, every row is upserted again by its key"
        n = self.add(StepKind.REWRITE, node.table, node.version, self._needs(node), why=why)
        self._ready[node.table, node.version] = self._restarted[node.table] = n
        self._catch_up(node, (n,), why="until then readers see old and new rows in any order")
        if needs_pointer:
            self._point(node, n)

    def _restore(self, node: PlanNode) -> None:
        """Go on with a version that was in the trash."""
        name = physical_name(node.table, node.version)
        restore = self.add(
            StepKind.RESTORE, node.table, node.version, self._needs(node), why=f"{name} and its checkpoint are back"
        )
        resume = self.add(StepKind.RESUME, node.table, node.version, (restore, *self._needs(node)), why=node.reason)
        self._ready[node.table, node.version] = resume
        self._point(node, resume)

    def _adopt(self, node: PlanNode, existing: OtherVersion) -> None:
        """Go on with a version that a failed run has made from the same texts and parents, or one that served."""
        before = self._needs(node)
        if not existing.running:
            resume = self.add(
                StepKind.RESUME,
                node.table,
                node.version,
                before,
                why=f"{physical_name(node.table, node.version)} already exists",
            )
            self._ready[node.table, node.version] = resume
            before = (resume,)
        self._catch_up(node, before)

    def _catch_up(self, node: PlanNode, after: tuple[int, ...], *, why: str = _CAUGHT_UP) -> None:
        above = [
            self._caught_up[b.parent, b.version] for b in node.bindings if (b.parent, b.version) in self._caught_up
        ]
        self._caught_up[node.table, node.version] = self.add(
            StepKind.CATCH_UP,
            node.table,
            node.version,
            (*after, *above),
            why=why,
        )

    def _restart(self, node: PlanNode, *, needs_pointer: bool, pauses_readers: bool) -> None:
        before = self._needs(node)
        alters = node.change is not None and node.change.definition.alters_table
        widened = node.change is ChangeKind.COLUMN_WIDENED
        if alters:
            what = "the wider types; what reads it" if widened else "the added columns; what streams it"
            why = f"{what} is stopped before, and goes on after" if pauses_readers else "the added columns"
            alter = self.add(StepKind.ALTER, node.table, node.version, (), why=why)
            if pauses_readers:
                self._altered[node.table, node.version] = alter
            # A pointer casts to the types that it was made with, and would refuse what only the wider one holds.
            before = (*before, alter, *((self._point(node, alter),) if widened else ()))
        if not node.texts.dml:
            self._ready[node.table, node.version] = self._record(node, after=before)
            return
        restart = self.add(
            StepKind.RESTART,
            node.table,
            node.version,
            before,
            why=node.reason,
        )
        self._ready[node.table, node.version] = self._restarted[node.table] = restart
        if not widened and (alters or needs_pointer):
            self._point(node, restart)

    def _resume(self, node: PlanNode, *, needs_pointer: bool) -> None:
        before = self._needs(node)
        if node.change is not None and node.change.definition.is_recorded:
            before = (*before, self._record(node))
        resume = self.add(
            StepKind.RESUME,
            node.table,
            node.version,
            before,
            why=node.reason,
        )
        self._ready[node.table, node.version] = resume
        if needs_pointer:
            self._point(node, resume)

    def _record(self, node: PlanNode, *, after: Iterable[int] = ()) -> int:
        return self.add(StepKind.RECORD, node.table, node.version, after, why=node.reason)

    def _point(self, node: PlanNode, after: int) -> int:
        return self.add(
            StepKind.SWAP,
            node.table,
            node.version,
            (after,),
            why=f"batch readers find {node.table} by its pointer",
            tables=(node.table,),
        )
