"""From what is asked to what happens: parents depth-first to the running ones, children breadth-first."""

from dataclasses import dataclass, field, replace

from core.changes import Change
from core.graph import Graph, graph_of
from core.names import TableName, physical_name
from core.plan import Action, Binding, LeftBehind, Refusal, Warned
from core.reasons import BY_ROW, Reason
from core.references import place_of
from core.scope import Scope
from core.situation import Situation
from core.vocabulary import State, Wanted

BEGINS = frozenset({Action.START, Action.RESUME, Action.RESTART, Action.REBUILD})
"""Actions that start a query."""

NEEDS_TEXTS = frozenset({Action.START, Action.REBUILD, Action.RESTART, Action.RECORD})
"""Actions after which the declared texts are the deployed ones."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What happens to one table, before versions and steps."""

    action: Action
    reason: Reason
    change: Change
    because_of: tuple[TableName, ...] = ()


@dataclass(slots=True)
class Decisions:
    """A deploy as it is being decided."""

    by_table: dict[TableName, Decision] = field(default_factory=dict)
    left_behind: list[LeftBehind] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    warnings: list[Warned] = field(default_factory=list)

    def refuse(self, table: TableName, summary: str, remedy: str) -> None:
        self.refusals.append(Refusal(table, summary, remedy))

    def warn(self, table: TableName, summary: str) -> None:
        self.warnings.append(Warned(table, summary))


def decide(situation: Situation, scope: Scope) -> Decisions:
    """Decide what a deploy does to every table it meets."""
    walk = _Walk(situation, scope)
    for table in scope.asked:
        walk.ask(table)
    walk.go_down()
    for table in sorted(walk.found.by_table):
        walk.go_up(table)
    for table in sorted(walk.found.by_table):
        walk.look_around(table)
    return walk.found


class _Walk:
    def __init__(self, situation: Situation, scope: Scope) -> None:
        self._situation = situation
        self._scope = scope
        self._graph: Graph = graph_of(situation.project)
        self.found = Decisions()

    # What is asked for

    def ask(self, table: TableName) -> None:
        """Decide a table that the request names."""
        came_with = self._scope.because_of.get(table)
        because_of = (came_with,) if came_with else ()
        if self._situation.declared(table) is None:
            self.found.refuse(
                table, f"{table} is deployed and no longer declared", "bring its files back, or delete it"
            )
            return
        if self._situation.is_external(table):
            self._put(table, self._external(table, because_of))
            return
        if not self._situation.is_deployed(table):
            self._put(table, Decision(Action.START, Reason.NEW, self._situation.beginning(table), because_of))
            return
        decision = replace(self._deployed(table), because_of=because_of)
        self._put(table, decision)
        if decision.action is Action.REBUILD and not decision.change.classified:
            self.found.warn(table, decision.change.evidence[0])

    def _deployed(self, table: TableName) -> Decision:
        situation, change = self._situation, self._situation.change(table)
        if situation.is_void(table):
            return self._anew(table, Reason.NEW, ())
        stale = self._stale_parents(table)
        if change.action is Action.REBUILD:
            return Decision(Action.REBUILD, BY_ROW[change.row] if change.classified else Reason.UNPROVEN, change)
        if self._scope.request.rebuild:
            return self._asked_rebuild(table, change)
        if stale:
            evidence = tuple(
                f"reads {physical_name(b.parent, b.version)}; {b.parent} is at v{self._version_then(b.parent)}"
                for b in stale
            )
            return Decision(
                Action.REBUILD, Reason.READS_OLD_VERSION, replace(change, evidence=(*change.evidence, *evidence))
            )
        if change.action is Action.RESTART:
            return self._safely(table, Decision(Action.RESTART, BY_ROW[change.row], change))
        if self._is_at_rest(table):
            return Decision(change.action, BY_ROW.get(change.row, Reason.AT_REST), change)
        if not situation.is_running(table):
            reason = BY_ROW.get(change.row, Reason.DORMANT)
            return self._safely(table, Decision(Action.RESUME, reason, change))
        if change.action is Action.RECORD:
            return Decision(Action.RECORD, BY_ROW[change.row], change)
        if not situation.seen(table).checkpoint_ok:
            self.found.warn(table, f"runs, but {Reason.CHECKPOINT_LOST}: it could not be restarted")
        return Decision(Action.KEEP, Reason.UNCHANGED, change)

    def _anew(self, table: TableName, reason: Reason, because_of: tuple[TableName, ...]) -> Decision:
        """Start a table that has a version of other texts which never ran: there is nothing to keep of it."""
        evidence = (f"v{self._situation.seen(table).version} never ran, and its texts have changed",)
        return Decision(Action.START, reason, Change("0", Action.START, evidence), because_of)

    def _is_at_rest(self, table: TableName) -> bool:
        """Whether an operator stopped it and the request does not name it: it is started only where it is read."""
        seen = self._situation.seen(table)
        stopped = seen.state == State.STOPPED and seen.wanted == Wanted.STOPPED
        return stopped and table not in self._scope.request.tables

    def _asked_rebuild(self, table: TableName, change: Change) -> Decision:
        if self._situation.seen(table).checkpoint_ok:
            return Decision(Action.REBUILD, Reason.ASKED, change)
        evidence = (str(Reason.CHECKPOINT_LOST), *change.evidence)
        return Decision(Action.REBUILD, Reason.CHECKPOINT_LOST, Change("0b", Action.REBUILD, evidence))

    def _stale_parents(self, table: TableName) -> tuple[Binding, ...]:
        return tuple(
            binding
            for binding in self._situation.bindings(table)
            if binding.version and binding.version != self._version_then(binding.parent)
        )

    def _version_then(self, parent: TableName) -> int:
        seen = self._situation.seen(parent)
        return seen.version if self._situation.is_deployed(parent) else self._situation.next_version(parent)

    def _safely(self, table: TableName, decision: Decision) -> Decision:
        """Let a statement go on from its checkpoint only if that is still its own (row 0b)."""
        if self._situation.seen(table).checkpoint_ok:
            return decision
        self.found.refuse(
            table,
            f"{table} cannot be started: {Reason.CHECKPOINT_LOST}; Spark would skip rows and report success",
            f"rebuild it: headgate plan deploy {table} --rebuild",
        )
        evidence = (str(Reason.CHECKPOINT_LOST), *decision.change.evidence)
        return Decision(Action.KEEP, Reason.CHECKPOINT_LOST, Change("0b", Action.KEEP, evidence))

    def _external(self, table: TableName, because_of: tuple[TableName, ...]) -> Decision:
        situation = self._situation
        if not situation.is_deployed(table):
            if situation.is_known(table):
                return Decision(Action.KEEP, Reason.LANDS, Change("0", Action.KEEP), because_of)
            return Decision(Action.START, Reason.REGISTERED, Change("0", Action.START), because_of)
        change = situation.change(table)
        if change.row in ("0", "1", "2"):
            reason = BY_ROW.get(change.row, Reason.LANDS)
            return Decision(change.action, reason, change, because_of)
        if change.row == "4":
            return Decision(Action.RESTART, Reason.COLUMNS_ADDED, change, because_of)
        if table in self._scope.asked:
            self.found.refuse(
                table,
                f"{table} is external and changed: {', '.join(change.evidence) or 'not known how'}",
                "declare it under a new name and move its readers there",
            )
        else:
            seen = ", ".join(change.evidence)
            self.found.warn(table, f"is external and changed ({seen}); its registration stays as it is")
        return Decision(Action.KEEP, Reason.LANDS, change, because_of)

    def _put(self, table: TableName, decision: Decision) -> None:
        self.found.by_table[table] = decision
        if decision.change.confirmed is False:
            self.found.warn(table, decision.change.evidence[0])

    # Children

    def go_down(self) -> None:
        """Rebuild the readers of what is rebuilt, breadth-first; those out of scope stay behind."""
        waiting = sorted(t for t, d in self.found.by_table.items() if d.action is Action.REBUILD)
        for table in waiting:
            for child in self._situation.readers(table):
                if self._touch(child, table):
                    waiting.append(child)

    def _touch(self, child: TableName, parent: TableName) -> bool:
        """Take one reader of a rebuilt table along; True when it is newly rebuilt."""
        known = self.found.by_table.get(child)
        if known is not None and known.action is Action.REBUILD:
            causes = tuple(sorted({*known.because_of, parent}))
            self._put(child, replace(known, because_of=causes))
            if known.reason is Reason.STATIC_PARENT_REBUILT and self._streams(child, parent):
                self._put(child, self._rebuilt(child, causes, streamed=True))
            return False
        table = self._situation.declared(child)
        if table is None or table.external or not self._scope.may_touch(child, table.product):
            self._leave(child, parent)
            return False
        causes = tuple(sorted({*(known.because_of if known else ()), parent}))
        self._put(child, self._rebuilt(child, causes, streamed=self._streams(child, parent)))
        return True

    def _rebuilt(self, child: TableName, causes: tuple[TableName, ...], *, streamed: bool) -> Decision:
        change = self._situation.change(child)
        evidence = (*change.evidence, *(f"parent {cause} is re-created" for cause in causes))
        if change.action is Action.REBUILD:
            reason = BY_ROW[change.row] if change.classified else Reason.UNPROVEN
            return Decision(Action.REBUILD, reason, replace(change, evidence=evidence), causes)
        reason = Reason.PARENT_REBUILT if streamed else Reason.STATIC_PARENT_REBUILT
        row = change.row if streamed or change.row != "0" else "14"
        return Decision(Action.REBUILD, reason, replace(change, row=row, evidence=evidence), causes)

    def _streams(self, child: TableName, parent: TableName) -> bool:
        return any(b.parent == parent and b.streamed for b in self._situation.bindings(child))

    def _leave(self, child: TableName, parent: TableName) -> None:
        table = self._situation.declared(child)
        versions = {b.version for b in self._situation.bindings(child) if b.parent == parent}
        self.found.left_behind.extend(
            LeftBehind(
                child,
                table.product if table else "",
                physical_name(parent, version),
                table.settings.owner if table else "",
            )
            for version in sorted(versions)
        )
        if child in self._scope.excluded:
            self.found.warn(child, f"is excluded and stays on the old version of {parent}")
        elif table is None:
            self.found.warn(child, f"is no longer declared and stays on the old version of {parent}")

    # Parents

    def go_up(self, table: TableName) -> None:
        """Start what a decided table needs, depth-first up to the first tables that really run."""
        waiting = [table]
        while waiting:
            child = waiting.pop()
            for parent in reversed(self._parents(child)):
                if parent in self.found.by_table:
                    if self._wake(parent, child):
                        waiting.append(parent)
                    self._add_cause(parent, child)
                elif self._meet(parent, child):
                    waiting.append(parent)

    def _parents(self, table: TableName) -> tuple[TableName, ...]:
        """Give the parents that matter after the plan: declared ones where the new texts will run."""
        action = self.found.by_table[table].action
        if action in (Action.START, Action.REBUILD):
            return tuple(edge.parent for edge in self._graph.parents(table))
        names = {binding.parent for binding in self._situation.bindings(table)}
        if action is Action.RESTART:
            names |= {edge.parent for edge in self._graph.parents(table)}
        return tuple(sorted(names))

    def _wake(self, parent: TableName, child: TableName) -> bool:
        """Start a table that was at rest, because one that begins reads it."""
        known = self.found.by_table[parent]
        begins = self.found.by_table[child].action in BEGINS
        if not begins or known.action not in (Action.KEEP, Action.RECORD) or not self._is_at_rest(parent):
            return False
        if not self._situation.seen(parent).checkpoint_ok and known.change.row == "0b":
            return False
        resumed = Decision(Action.RESUME, Reason.COLD_PARENT, known.change, (child,))
        self._put(parent, self._safely(parent, resumed))
        return True

    def _add_cause(self, parent: TableName, child: TableName) -> None:
        known = self.found.by_table[parent]
        if known.reason in (Reason.COLD_PARENT, Reason.REGISTERED) and parent not in self._scope.asked:
            self._put(parent, replace(known, because_of=tuple(sorted({*known.because_of, child}))))

    def _meet(self, parent: TableName, child: TableName) -> bool:
        """Decide a parent that nothing asked for; True when the walk goes on above it."""
        situation = self._situation
        if parent in self._scope.excluded:
            return self._meet_excluded(parent, child)
        if situation.is_external(parent):
            self._put(parent, self._external(parent, (child,)))
            return False
        if not situation.is_deployed(parent):
            if situation.declared(parent) is None:
                self.found.refuse(child, f"{child} reads {parent}, which is nowhere", f"declare {parent}")
                return False
            self._put(parent, Decision(Action.START, Reason.COLD_PARENT, situation.beginning(parent), (child,)))
            return True
        if situation.declared(parent) is not None and situation.is_void(parent):
            self._put(parent, self._anew(parent, Reason.COLD_PARENT, (child,)))
            return True
        change = situation.change(parent) if situation.declared(parent) else Change("0", Action.KEEP)
        if change.row != "0":
            self.found.warn(parent, "changed on disk, but is not asked for: it stays on its deployed revision")
        if situation.is_running(parent):
            self._put(parent, Decision(Action.KEEP, Reason.SERVES, Change("0", Action.KEEP)))
            return False
        decision = Decision(Action.RESUME, Reason.COLD_PARENT, Change("0", Action.RESUME), (child,))
        self._put(parent, self._safely(parent, decision))
        return True

    def _meet_excluded(self, parent: TableName, child: TableName) -> bool:
        situation = self._situation
        if situation.is_running(parent) or (situation.is_external(parent) and situation.is_known(parent)):
            return False
        if situation.is_deployed(parent):
            self.found.warn(child, f"lacks its parent: {parent} is excluded and {situation.seen(parent).state}")
        else:
            self.found.refuse(
                child,
                f"{child} has nothing to read: {parent} is excluded and not deployed",
                f"leave {parent} in, or exclude {child} too",
            )
        return False

    # What the reviewer should know

    def look_around(self, table: TableName) -> None:
        """Warn of states and seams, and refuse what would break a reader's text."""
        decision, seen = self.found.by_table[table], self._situation.seen(table)
        if decision.action in (Action.KEEP, Action.RECORD) or self._situation.is_external(table):
            if self._is_at_rest(table):
                self.found.warn(table, "was stopped on purpose and stays so: name it to start it")
            return
        if decision.action is Action.START:
            return
        if seen.state in (State.FAILED, State.DEGRADED, State.UNKNOWN, State.COMPLETED):
            rebuilt = decision.action is Action.REBUILD
            does = "is rebuilt beside what is there" if rebuilt else "goes on from its checkpoint"
            self.found.warn(table, f"is {seen.state}; it {does}, nothing of it is destroyed")
        elif seen.state == State.STOPPED and seen.wanted == Wanted.STOPPED:
            self.found.warn(table, "was stopped on purpose; this plan starts it")
        if decision.action is Action.RESUME:
            for binding in self._stale_parents(table):
                self.found.warn(table, f"goes on reading the old {physical_name(binding.parent, binding.version)}")
        if decision.action is Action.RESTART and decision.change.row == "6d":
            self.found.warn(table, "keeps windows that its old watermark closed, and drops rows that come for them")
        if decision.action in (Action.REBUILD, Action.RESTART):
            self._check_readers(table, decision)

    def _check_readers(self, table: TableName, decision: Decision) -> None:
        for column in self._situation.removed_columns(table):
            for name in self._graph.children(table):
                tables = self._situation.project.tables
                place = place_of(column, table, tables[name], tables)
                if place:
                    self.found.refuse(
                        table,
                        f"{table} loses column {column}, which {name} reads at {place}",
                        f"change these lines of {name} in the same plan, or keep {column}",
                    )
        if decision.action is Action.RESTART:
            for name in self._situation.readers(table):
                self._flag_reader(name, table, decision.change.row)

    def _flag_reader(self, reader: TableName, table: TableName, row: str) -> None:
        declared = self._situation.declared(reader)
        if declared is None or declared.facts is None:
            return
        if row in ("3", "6c", "14") and declared.facts.stateful:
            self.found.warn(reader, f"keeps state, and aggregates across the seam in {table}")
        if row == "4" and any(column.name == "*" for column in declared.facts.columns):
            self.found.warn(reader, f"selects * and would write the new column of {table} at its next restart")
