"""What is declared beside what was observed: the one place that fills in what an offline observation leaves out."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType

from core.changes.classification import Change, classify, unproven_change
from core.changes.cross_check import cross_checked, question_of
from core.changes.kinds import ChangeKind
from core.changes.pinned_settings import recorded_pool
from core.changes.spark_analysis import AnalysisQuestion, find_answer
from core.lineage.table_graph import TableGraph, table_graph
from core.model.actions import Action
from core.model.names import TableName, physical_name
from core.model.states import State
from core.observed.deployment import Binding, ObservedDeployment
from core.project.model import Environment, Project, Table
from core.project.revision import Revision, removed_columns
from core.project_files.parse_cache import ParseCache
from core.project_files.revision_reader import read_revision, revision_of


class PlanningContext:
    """A project and its deployments; answers are computed once per table."""

    def __init__(
        self,
        project: Project,
        environment: Environment,
        observed: Mapping[TableName, ObservedDeployment],
        facts: ParseCache,
        answers: Mapping[str, str] = MappingProxyType({}),
        *,
        engine: str = "",
    ) -> None:
        self.project = project
        self.environment = environment
        self._facts = facts
        self._answers = answers
        self._engine = engine
        self._pool = recorded_pool(environment.pool)
        self._observed = {table: self._complete(table, observed[table]) for table in sorted(observed)}
        self._old: dict[TableName, Revision | None] = {}
        self._new: dict[TableName, Revision] = {}
        self._change: dict[TableName, Change] = {}
        self._bindings: dict[TableName, tuple[Binding, ...]] = {}
        readers: dict[TableName, list[TableName]] = {}
        for table in self._observed:
            for parent in dict.fromkeys(binding.parent for binding in self.bindings(table)):
                readers.setdefault(parent, []).append(table)
        self._readers = {parent: tuple(found) for parent, found in readers.items()}
        self._units: dict[str, list[TableName]] = {}
        for table, declared in project.tables.items():
            if not declared.external:
                self._units.setdefault(declared.folder, []).append(table)

    @cached_property
    def graph(self) -> TableGraph:
        """Who reads whom as declared."""
        return table_graph(self.project)

    def declared(self, table: TableName) -> Table | None:
        """Return the declaration, None for a table that is only deployed."""
        return self.project.tables.get(table)

    def tables(self) -> tuple[TableName, ...]:
        """Return every table that is declared or deployed."""
        return tuple(sorted({*self.project.tables, *(t for t in self._observed if self.is_deployed(t))}))

    def seen(self, table: TableName) -> ObservedDeployment:
        """Return what was observed, versions filled in; absent when it was not."""
        return self._observed.get(table, _ABSENT)

    def is_deployed(self, table: TableName) -> bool:
        """Return whether a version of it exists."""
        return self.seen(table).state != State.ABSENT

    def is_running(self, table: TableName) -> bool:
        """Return whether it really runs: degraded, pending and starting are not enough."""
        return self.seen(table).state == State.RUNNING

    def is_void(self, table: TableName) -> bool:
        """Return whether all there is of a declared table is a version of other texts that never ran and that
        nobody reads.
        """
        seen = self.seen(table)
        if seen.begun or not self.is_deployed(table) or self.readers(table):
            return False
        return self.change(table).action in (Action.RESTART, Action.REBUILD)

    def is_external(self, table: TableName) -> bool:
        """Return whether it is filled by others; a table that is no longer declared is judged by its version."""
        declared = self.declared(table)
        if declared is not None:
            return declared.external
        return self.is_deployed(table) and self.seen(table).version == 0

    def is_known(self, table: TableName) -> bool:
        """Return whether an external table is in the catalog: seen there, or some deployment reads it."""
        return self.is_deployed(table) or bool(self.readers(table))

    def readers(self, table: TableName) -> tuple[TableName, ...]:
        """Return the deployments that are bound to any version of it, by name."""
        return self._readers.get(table, ())

    def bindings(self, table: TableName) -> tuple[Binding, ...]:
        """Return what the serving version reads; without an observation of it, what its texts say."""
        if table not in self._bindings:
            self._bindings[table] = self._find_bindings(table)
        return self._bindings[table]

    def change(self, table: TableName) -> Change:
        """Compare a declared table with its deployment; only for tables that are both."""
        if table not in self._change:
            found = self._find_change(table)
            self._change[table] = found if found.kind is ChangeKind.NONE else self._seconded(table, found)
        return self._change[table]

    def beginning(self, table: TableName) -> Change:
        """Return what Spark has to say of a declared table that is to start for the first time."""
        return self._seconded(table, Change(ChangeKind.NONE, Action.START))

    def question(self, table: TableName) -> AnalysisQuestion | None:
        """Return what Spark can be asked of a declared table: its new SQL, beside the deployed one if there is any."""
        return question_of(
            self.revision(table),
            self.old_revision(table) if self.is_deployed(table) else None,
            declared=lambda name: self.project.tables[name].ddl.text if name in self.project.tables else "",
            deployed=self._deployed_ddl,
        )

    def removed_columns(self, table: TableName) -> tuple[str, ...]:
        """Return the deployed columns that the declaration no longer has; nothing where the old texts are unknown."""
        if self.seen(table).deployed is None or self.change(table).kind is ChangeKind.NONE:
            return ()
        old = self.old_revision(table)
        return removed_columns(old, self.revision(table)) if old is not None else ()

    def added_columns(self, table: TableName) -> tuple[str, ...]:
        """Return the declared columns that the deployed table does not have; nothing where its texts are unknown."""
        if self.seen(table).deployed is None or self.change(table).kind is ChangeKind.NONE:
            return ()
        old = self.old_revision(table)
        return removed_columns(self.revision(table), old) if old is not None else ()

    def unit_of(self, table: TableName) -> tuple[TableName, ...]:
        """Return the tables of the statement set that a declared table belongs to, itself among them; sorted."""
        declared = self.declared(table)
        return tuple(sorted(self._units.get(declared.folder, ()))) if declared is not None else ()

    def revision(self, table: TableName) -> Revision:
        """Return the declared revision."""
        if table not in self._new:
            self._new[table] = revision_of(self.project.tables[table])
        return self._new[table]

    def old_revision(self, table: TableName) -> Revision | None:
        """Return the deployed revision, None where its texts are unknown or unreadable."""
        if table not in self._old:
            texts = self.seen(table).deployed
            self._old[table] = None
            if texts is not None:
                known = self.declared(table)
                if known is not None and texts == self.revision(table).texts:
                    self._old[table] = self.revision(table)
                    return self._old[table]
                if known is not None and not texts.ddl.strip():
                    texts = replace(texts, ddl=known.ddl.text)
                self._old[table] = read_revision(table, texts, self.project.defaults, self._facts)
        return self._old[table]

    def next_version(self, table: TableName) -> int:
        """Return the version that a start or rebuild makes; 0 for an external table."""
        return 0 if self.is_external(table) else self.seen(table).highest_version + 1

    def _complete(self, table: TableName, seen: ObservedDeployment) -> ObservedDeployment:
        """Assume version 1, pointed at, where a document names only the state."""
        declared = self.project.tables.get(table)
        if seen.state == State.ABSENT or (declared is not None and declared.external) or seen.version:
            highest = max(seen.version, seen.highest_version)
            return seen if seen.highest_version == highest else replace(seen, highest_version=highest)
        if declared is None and seen.deployed is not None and not seen.deployed.dml.strip():
            return seen
        highest = max(1, seen.highest_version)
        return replace(seen, version=1, highest_version=highest, pointer=seen.pointer or physical_name(table, 1))

    def _find_bindings(self, table: TableName) -> tuple[Binding, ...]:
        seen = self.seen(table)
        if seen.state == State.ABSENT or seen.bindings:
            return tuple(sorted(seen.bindings, key=_by_parent))
        revision: Revision | None
        if self.declared(table) is None or (
            seen.deployed is not None and not self.change(table).kind.facts.same_statement
        ):
            revision = self.old_revision(table)
        else:
            revision = self.revision(table)
        if revision is None and self.declared(table) is not None:
            revision = self.revision(table)
        return self.bind(revision) if revision is not None else ()

    def bind(self, revision: Revision) -> tuple[Binding, ...]:
        """Bind a revision's reads to the versions that serve now, or will serve first."""
        reads = revision.parsed.reads if revision.parsed is not None else ()
        return tuple(sorted({Binding(r.table, self._serving(r.table), r.streaming) for r in reads}, key=_by_parent))

    def _serving(self, table: TableName) -> int:
        seen = self.seen(table)
        return seen.version if seen.state != State.ABSENT else self.next_version(table)

    def _find_change(self, table: TableName) -> Change:
        seen, new = self.seen(table), self.revision(table)
        if seen.deployed is None or seen.deployed == new.texts:
            same = seen.deployed is not None or seen.revision in ("", "same") or seen.revision == new.hash
            return (
                self._elsewhere(seen, new)
                if same
                else unproven_change("it changed, and the deployed texts are unknown")
            )
        if new.parsed is not None and not seen.deployed.dml.strip() and seen.version:
            return unproven_change("the deployed statement is unknown")
        pair = self.pair(table)
        return classify(*pair) if pair is not None else unproven_change("the deployed texts cannot be read")

    def pair(self, table: TableName) -> tuple[Revision, Revision] | None:
        """Return the deployed and the declared revision with all that is known of both; None where one is not known."""
        seen, old, new = self.seen(table), self.old_revision(table), self.revision(table)
        if old is None:
            return None
        if new.parsed is None:
            return old, new
        before, after = self._parents(old, deployed=True), self._parents(new, deployed=False)
        return (
            replace(old, parents=before, pool=seen.pool, engine=seen.engine),
            replace(new, parents=after, pool=self._pool, engine=self._engine),
        )

    def _elsewhere(self, seen: ObservedDeployment, new: Revision) -> Change:
        """Compare what the same texts run on; what is not known of it is no change."""
        moved = (seen.pool is not None and seen.pool != self._pool) or (
            seen.engine and self._engine and seen.engine != self._engine
        )
        if not moved or new.parsed is None:
            return Change(ChangeKind.NONE, Action.KEEP)
        return classify(
            replace(new, pool=seen.pool, engine=seen.engine), replace(new, pool=self._pool, engine=self._engine)
        )

    def _parents(self, revision: Revision, *, deployed: bool) -> dict[TableName, tuple[str, ...]]:
        """Return the columns of what a revision reads, as far as they are known: as deployed, or as declared."""
        found = {}
        for table in {read.table for read in revision.parsed.reads} if revision.parsed is not None else ():
            known = self.old_revision(table) if deployed and self.seen(table).deployed is not None else None
            declared = self.declared(table)
            ddl = known.ddl if known is not None else declared.ddl_facts if declared is not None else None
            if ddl is not None:
                found[table] = tuple(column.name.lower() for column in ddl.columns)
        return found

    def _seconded(self, table: TableName, change: Change) -> Change:
        if not self._answers:
            return change
        answer = find_answer(self._answers, self.question(table))
        return cross_checked(change, answer, new=self.revision(table), old=self.old_revision(table))

    def _deployed_ddl(self, table: TableName) -> str:
        texts = self.seen(table).deployed
        declared = self.project.tables.get(table)
        return texts.ddl if texts and texts.ddl.strip() else declared.ddl.text if declared else ""


_ABSENT = ObservedDeployment()


def _by_parent(binding: Binding) -> tuple[str, int, bool]:
    return (binding.parent, binding.version, not binding.streamed)
