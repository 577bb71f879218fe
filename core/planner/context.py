"""The planner's input by subject: declared tables, observed tables, revisions, changes and bindings.

A planning function receives only the subjects that it needs. Results are computed once per table.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType

from core.changes.classification import Change, classify, kinds_between, unproven_change
from core.changes.kinds import ChangeKind
from core.changes.pinned_settings import recorded_pool
from core.changes.spark_cross_check import cross_checked, question_of, with_upgrade_proof
from core.changes.spark_questions_and_answers import AnalysisQuestion, find_answer
from core.lineage.table_graph import TableGraph, edges_of, table_graph
from core.model.actions import Action
from core.model.evidence import Notice
from core.model.names import TableName, physical_name
from core.model.states import State, TableFaultKind
from core.model.table_formats import table_format
from core.observed.planner_input import ObservedDeployment, ObservedPool
from core.observed.table_statistics import TableStatistics
from core.observed.versions import Binding
from core.project.model import Compatibility, Environment, Pool, Project, Table, writers_by_topic
from core.project.revision import Revision, RevisionTexts, removed_columns
from core.project_reader.parse_cache import ParseCache
from core.project_reader.revision_reader import read_revision, revision_of
from core.sql.statement import TableDdl


class DeclaredTables:
    """The tables that a project declares, and the environment to plan for."""

    def __init__(
        self,
        project: Project,
        environment: Environment,
        like: "DeclaredTables | None" = None,
        places: Mapping[TableName, str] = MappingProxyType({}),
    ) -> None:
        self.places = places
        """The pools, by table, of statements for which the planner chooses one; others may be missing."""
        self.project = project
        self.environment = environment
        self._like = like
        self.tables: Mapping[TableName, Table] = project.tables
        """Declared tables by name, without tables that are only deployed."""

    @cached_property
    def graph(self) -> TableGraph:
        """The graph of declared reads, shared with `like` if both projects have the same reads."""
        same = self._like is not None and _read_the_same(self.tables, self._like.tables)
        if same and self._like is not None:
            return self._like.graph
        # Deployed revisions declared in place of broken tables could form a cycle with declared reads.
        sound = {name: table for name, table in self.tables.items() if name not in self.project.broken}
        return table_graph(replace(self.project, tables=sound) if self.project.broken else self.project)

    @cached_property
    def writers_by_topic(self) -> Mapping[tuple[str, str], tuple[TableName, ...]]:
        """The statements that write each topic, by broker and declared name."""
        return writers_by_topic(self.tables)

    def compatibility(self, table: TableName) -> Compatibility:
        """Return the compatibility mode of a table; NONE if it is not declared."""
        declared = self.tables.get(table)
        return self.project.compatibility(declared) if declared is not None else Compatibility.NONE

    def pool_of(self, table: TableName) -> Pool:
        """Return the pool in which a table's statement is to run; the default pool if it is not declared."""
        declared = self.tables.get(table)
        if declared is None:
            return self.environment.pool
        if table in self.places and self.environment.pools_for(declared.settings):
            return next(pool for pool in self.environment.pools if pool.name == self.places[table])
        return self.environment.pool_of(declared.settings)

    def is_gone(self, table: TableName) -> bool:
        """True if no file declares a table, not even one with errors."""
        return table not in self.tables and table not in self.project.broken

    def statement_set(self, name: TableName) -> tuple[TableName, ...]:
        """Return the tables in a table's statement set, including itself, sorted.

        The result is empty if the table is external or undeclared.
        """
        declared = self.tables.get(name)
        return () if declared is None or declared.external else self._statement_sets[declared.folder]

    def streamed_changes(self, bindings: Iterable[Binding]) -> tuple[TableName, ...]:
        """Return the external tables of database changes that a version with these bindings streams."""
        parents = [
            self.tables[each.parent].parsed_ddl for each in bindings if each.streamed and each.parent in self.tables
        ]
        return tuple(ddl.table for ddl in parents if table_format(ddl.format).changes)

    @cached_property
    def _statement_sets(self) -> dict[str, tuple[TableName, ...]]:
        by_folder: dict[str, list[TableName]] = {}
        for name, table in self.tables.items():
            if not table.external:
                by_folder.setdefault(table.folder, []).append(name)
        return {folder: tuple(sorted(names)) for folder, names in by_folder.items()}


def _read_the_same(tables: Mapping[TableName, Table], others: Mapping[TableName, Table]) -> bool:
    return tables is others or (
        tables.keys() == others.keys()
        and all(table is others[name] or edges_of(table) == edges_of(others[name]) for name, table in tables.items())
    )


class ObservedTables:
    """The observed deployments of an environment, with defaults for values that an observation omits."""

    def __init__(self, declared: DeclaredTables, observed: Mapping[TableName, ObservedDeployment]) -> None:
        self._declared = declared
        self.deployments = {table: self._complete(table, observed[table]) for table in sorted(observed)}
        """Observations by table, sorted by name; a deployed statement without an observed version has version 1."""

    def statistics(self, table: TableName) -> TableStatistics:
        """Return the measurements of a table; all of them are None if the table was never measured."""
        return self.deployment(table).statistics or _NOT_MEASURED

    def tables(self) -> tuple[TableName, ...]:
        """Return all declared or deployed tables, sorted by name."""
        deployed = (table for table in self.deployments if self.is_deployed(table))
        return tuple(sorted({*self._declared.tables, *deployed}))

    def known(self) -> set[TableName]:
        """Return all tables that are declared, are deployed or have a version in the trash."""
        return {*self.tables(), *(table for table, seen in self.deployments.items() if seen.in_trash is not None)}

    def deployment(self, table: TableName) -> ObservedDeployment:
        """Return the observed deployment of a table; its state is ABSENT if the table was not observed."""
        return self.deployments.get(table, _ABSENT)

    def replaced_versions_kept_running(self, table: TableName) -> tuple[tuple[int, tuple[Binding, ...]], ...]:
        """Return a table's replaced versions that keep running, including failed ones, with the bindings of each."""
        seen = self.deployment(table)
        former = (seen.former,) if seen.former is not None and seen.former.version in seen.retained else ()
        return tuple((version.version, version.bindings) for version in (*former, *seen.runs_on))

    def is_deployed(self, table: TableName) -> bool:
        """True if a table is deployed, running or not."""
        return self.deployment(table).state != State.ABSENT

    def is_running(self, table: TableName) -> bool:
        """True if the state of a table is RUNNING, rather than degraded, pending or starting."""
        return self.deployment(table).state == State.RUNNING

    def is_external(self, table: TableName) -> bool:
        """True if a table is filled outside Headgate.

        An undeclared table is external if its deployed version is 0.
        """
        declared = self._declared.tables.get(table)
        if declared is not None:
            return declared.external
        return self.is_deployed(table) and self.deployment(table).version == 0

    def was_external(self, table: TableName) -> bool:
        """True if a table is registered as external, and its declaration has a statement now."""
        seen = self.deployment(table)
        texts = seen.deployed if self.is_deployed(table) else None
        registered = texts is not None and bool(texts.ddl.strip()) and not texts.dml.strip()
        return registered and not self.is_external(table)

    def next_version(self, table: TableName) -> int:
        """Return the version number that the table's next start or rebuild would create; 0 for an external table."""
        return 0 if self.is_external(table) else self.deployment(table).highest_version + 1

    def serving_version(self, table: TableName) -> int:
        """Return the serving version of a table or, if it is not deployed, the version that a start would create."""
        seen = self.deployment(table)
        return seen.version if seen.state != State.ABSENT else self.next_version(table)

    def _complete(self, table: TableName, seen: ObservedDeployment) -> ObservedDeployment:
        """Fill in version 1 and its pointer if only a state was observed.

        A checkpoint lost to renamed or dropped columns counts as intact if the table tracks columns.
        """
        declared = self._declared.tables.get(table)
        tracks = declared is not None and declared.settings.schema_tracking
        if tracks and seen.lost_kind == TableFaultKind.STREAM_COLUMNS_CHANGED:
            seen = replace(seen, checkpoint_ok=True, lost="", lost_kind="")
        if seen.state == State.ABSENT or (declared is not None and declared.external) or seen.version:
            highest = max(seen.version, seen.highest_version)
            return seen if seen.highest_version == highest else replace(seen, highest_version=highest)
        texts = seen.deployed
        if texts is not None and not texts.dml.strip() and (declared is None or texts.ddl.strip()):
            return seen
        highest = max(1, seen.highest_version)
        return replace(seen, version=1, highest_version=highest, pointer=seen.pointer or physical_name(table, 1))


_ABSENT = ObservedDeployment()
_NOT_MEASURED = TableStatistics()


class TableRevisions:
    """The declared and deployed revisions of tables. `parse_cache` and `like` only avoid parsing the same SQL again."""

    def __init__(
        self,
        declared: DeclaredTables,
        observed: ObservedTables,
        parse_cache: ParseCache,
        like: "TableRevisions | None" = None,
    ) -> None:
        self._declared_tables = declared
        self._observed = observed
        self._parse_cache = parse_cache
        self._like = like
        self._declared: dict[TableName, Revision] = {}
        self._deployed: dict[TableName, Revision | None] = {}

    def declared(self, table: TableName) -> Revision:
        """Return the declared revision of a table; raise KeyError if the table is not declared."""
        if table not in self._declared:
            declared = self._declared_tables.tables[table]
            known = self._like.declared(table) if self._like and self._like.is_declared_object(declared) else None
            self._declared[table] = known or revision_of(declared)
        return self._declared[table]

    def is_declared_object(self, declared: Table) -> bool:
        """True if `declared` is the very object in the project, rather than an equal copy."""
        return self._declared_tables.tables.get(declared.name) is declared

    def deployed(self, table: TableName) -> Revision | None:
        """Return the deployed revision of a table; None if its SQL is unknown or unreadable."""
        if table not in self._deployed:
            self._deployed[table] = self._read_deployed(table)
        return self._deployed[table]

    def of_texts(self, table: TableName, texts: RevisionTexts) -> Revision | None:
        """Return a table's declared or deployed revision if its SQL and YAML are exactly `texts`; None otherwise."""
        declared = table in self._declared_tables.tables
        found = (self.declared(table) if declared else None, self.deployed(table))
        return next((revision for revision in found if revision is not None and revision.texts == texts), None)

    def ddl(self, text: str) -> TableDdl | None:
        """Parse the DDL of a version; None if it is invalid."""
        return self._parse_cache.ddl(text, "")[1]

    def _read_deployed(self, table: TableName) -> Revision | None:
        texts, declared = self._observed.deployment(table).deployed, self._declared_tables.tables.get(table)
        if texts is None:
            return None
        if declared is not None and texts == self.declared(table).texts:
            return self.declared(table)
        if self._like is not None and (known := self._like.of_texts(table, texts)) is not None:
            return known
        if declared is not None and not texts.ddl.strip():
            texts = replace(texts, ddl=declared.ddl.text)
        return read_revision(table, texts, self._declared_tables.project.defaults, self._parse_cache)


class TableChanges:
    """The changes from deployed to declared revisions, classified once per table.

    `answers` maps question keys to Spark's answers as JSON, and also contains the results of upgrade tests. `engine` is
    the pool's Spark version, empty if unknown; that of each of several pools is in `pools`.
    """

    def __init__(
        self,
        declared: DeclaredTables,
        observed: ObservedTables,
        revisions: TableRevisions,
        answers: Mapping[str, str],
        engine: str,
        *,
        pools: Mapping[str, ObservedPool] = MappingProxyType({}),
    ) -> None:
        self.pools_seen = pools
        """What is known of each of several pools, by name."""
        self._declared = declared
        self._observed = observed
        self._revisions = revisions
        self._answers = answers
        self._engine = engine
        self._pools = {pool.name: recorded_pool(pool) for pool in declared.environment.pools}
        self._changes: dict[TableName, Change] = {}

    def of(self, table: TableName) -> Change:
        """Return the classified change between the deployed and the declared revision of a table."""
        if table not in self._changes:
            found = self._of_known_pool(table, self._find(table))
            if found.kind is not ChangeKind.NONE:
                old, new = self._revisions.deployed(table), self._revisions.declared(table)
                found = with_upgrade_proof(self._cross_checked(table, found), self._answers, old=old, new=new)
            self._changes[table] = found
        return self._changes[table]

    def first_start(self, table: TableName) -> Change:
        """Return the change for a table's first start, including the result of Spark's analysis of its statement."""
        return self._cross_checked(table, Change(ChangeKind.NONE, Action.START))

    def question(self, table: TableName) -> AnalysisQuestion | None:
        """Return the analysis request for a table's declared and deployed SQL; None if there is nothing to analyse."""
        return question_of(
            self._revisions.declared(table),
            self._revisions.deployed(table) if self._observed.is_deployed(table) else None,
            declared=self._declared_ddl,
            deployed=self._deployed_ddl,
        )

    def compared(self, table: TableName) -> tuple[Revision, Revision] | None:
        """Return the deployed and the declared revision of a table; None if the deployed revision is unknown.

        For a statement, both revisions include the parents' columns, the pool and the Spark version.
        """
        seen, old, new = (
            self._observed.deployment(table),
            self._revisions.deployed(table),
            self._revisions.declared(table),
        )
        if old is None:
            return None
        if new.parsed is None:
            return old, new
        before, after = self._parents(old, deployed=True), self._parents(new, deployed=False)
        return (
            replace(old, parents=before, pool=seen.pool, engine=seen.engine),
            replace(new, parents=after, pool=self._pool_of(table), engine=self.engine_of(table)),
        )

    def kinds(self, table: TableName) -> frozenset[ChangeKind]:
        """Return the kinds of all differences of a table; empty if there is none, or the deployed SQL is unknown."""
        compared = self.compared(table)
        return kinds_between(*compared) if compared is not None else frozenset()

    def removed_columns(self, table: TableName) -> tuple[str, ...]:
        """Return the deployed columns that are no longer declared; empty if the deployed SQL is unknown."""
        old = self._changed_from(table)
        return removed_columns(old, self._revisions.declared(table)) if old is not None else ()

    def added_columns(self, table: TableName) -> tuple[str, ...]:
        """Return the declared columns that the deployed table lacks; empty if the deployed SQL is unknown."""
        old = self._changed_from(table)
        return removed_columns(self._revisions.declared(table), old) if old is not None else ()

    def _changed_from(self, table: TableName) -> Revision | None:
        if self._observed.deployment(table).deployed is None or self.of(table).kind is ChangeKind.NONE:
            return None
        return self._revisions.deployed(table)

    def _find(self, table: TableName) -> Change:
        seen, new = self._observed.deployment(table), self._revisions.declared(table)
        if seen.deployed is None or seen.deployed == new.texts:
            same = seen.deployed is not None or seen.revision in ("", "same") or seen.revision == new.hash
            return self._elsewhere(table, seen, new) if same else unproven_change(Notice.TEXTS_UNKNOWN.of())
        if new.parsed is not None and not seen.deployed.dml.strip() and seen.version:
            return unproven_change(Notice.STATEMENT_UNKNOWN.of())
        compared = self.compared(table)
        return classify(*compared) if compared is not None else unproven_change(Notice.TEXTS_UNREADABLE.of())

    def _of_known_pool(self, table: TableName, change: Change) -> Change:
        """Return a change with its evidence about the old pool, which must be declared, or nobody can ask it."""
        old = self._observed.deployment(table).pool
        if change.kind is not ChangeKind.POOL or old is None:
            return change
        environment = self._declared.environment
        known = self._pools.get(old.name) if environment.named_pools else None
        if known is not None and known.url == old.url:
            return change
        gone, stopped = Notice.OLD_POOL_GONE.of(pool=old.name), Notice.STOPPED_ON_OLD_POOL.of()
        return replace(change, evidence=tuple(gone if each == stopped else each for each in change.evidence))

    def engine_of(self, table: TableName) -> str:
        """Return the Spark version of the pool in which a table's statement is declared to run; empty if unknown."""
        if not self._declared.environment.named_pools:
            return self._engine
        known = self.pools_seen.get(self._declared.pool_of(table).name)
        return known.engine if known is not None else ""

    def _pool_of(self, table: TableName) -> Pool:
        return self._pools[self._declared.pool_of(table).name]

    def _elsewhere(self, table: TableName, seen: ObservedDeployment, new: Revision) -> Change:
        """Return the change caused only by a different pool or Spark version. Unknown values count as unchanged."""
        pool, engine = self._pool_of(table), self.engine_of(table)
        moved = (seen.pool is not None and seen.pool != pool) or (seen.engine and engine and seen.engine != engine)
        if not moved or new.parsed is None:
            return Change(ChangeKind.NONE, Action.KEEP)
        return classify(replace(new, pool=seen.pool, engine=seen.engine), replace(new, pool=pool, engine=engine))

    def _parents(self, revision: Revision, *, deployed: bool) -> dict[TableName, tuple[str, ...]]:
        found = {}
        for table in {read.table for read in revision.parsed.reads} if revision.parsed is not None else ():
            known = deployed and self._observed.deployment(table).deployed is not None
            old, declared = self._revisions.deployed(table) if known else None, self._declared.tables.get(table)
            ddl = old.ddl if old is not None else declared.parsed_ddl if declared is not None else None
            if ddl is not None:
                found[table] = tuple(column.name.lower() for column in ddl.columns)
        return found

    def _cross_checked(self, table: TableName, change: Change) -> Change:
        if not self._answers:
            return change
        answer = find_answer(self._answers, self.question(table))
        return cross_checked(change, answer, new=self._revisions.declared(table), old=self._revisions.deployed(table))

    def _declared_ddl(self, table: TableName) -> str:
        declared = self._declared.tables.get(table)
        return declared.ddl.text if declared is not None else ""

    def _deployed_ddl(self, table: TableName) -> str:
        texts = self._observed.deployment(table).deployed
        return texts.ddl if texts is not None and texts.ddl.strip() else self._declared_ddl(table)


class TableBindings:
    """The bindings of deployed tables, by reader and by parent.

    Construction takes time linear in tables and bindings.
    """

    def __init__(
        self, declared: DeclaredTables, observed: ObservedTables, revisions: TableRevisions, changes: TableChanges
    ) -> None:
        self._declared = declared
        self._observed = observed
        self._revisions = revisions
        self._changes = changes
        self._bindings = {table: self._find(table) for table in observed.deployments}
        readers: dict[TableName, list[TableName]] = {}
        for table, bindings in self._bindings.items():
            for parent in dict.fromkeys(binding.parent for binding in bindings):
                readers.setdefault(parent, []).append(table)
        self._readers = {parent: tuple(found) for parent, found in readers.items()}

    def of(self, table: TableName) -> tuple[Binding, ...]:
        """Return the bindings of a table's serving version; they are derived from its SQL if none were observed."""
        return self._bindings.get(table, ())

    def readers(self, table: TableName) -> tuple[TableName, ...]:
        """Return the deployed tables bound to any version of a table, sorted by name."""
        return self._readers.get(table, ())

    def bind(self, revision: Revision) -> tuple[Binding, ...]:
        """Return the bindings of a revision to the serving versions of its parents.

        A parent that is not deployed is bound to the version that its first start would create.
        """
        reads = revision.parsed.reads if revision.parsed is not None else ()
        found = {Binding(read.table, self._observed.serving_version(read.table), read.streaming) for read in reads}
        return tuple(sorted(found, key=by_parent))

    def _find(self, table: TableName) -> tuple[Binding, ...]:
        seen, declared = self._observed.deployment(table), self._declared.tables.get(table) is not None
        if seen.state == State.ABSENT or seen.bindings:
            return tuple(sorted(seen.bindings, key=by_parent))
        other_text = (
            seen.deployed is not None and declared and not self._changes.of(table).kind.definition.same_statement
        )
        revision = self._revisions.deployed(table) if other_text or not declared else None
        if revision is None and declared:
            revision = self._revisions.declared(table)
        return self.bind(revision) if revision is not None else ()


def by_parent(binding: Binding) -> tuple[str, int, bool]:
    """Return the key for sorting bindings by parent, then version, with streamed before static bindings."""
    return (binding.parent, binding.version, not binding.streamed)


@dataclass(frozen=True, slots=True)
class PlanningContext:
    """The declared project and the observed state of an environment, as input of the planner."""

    declared: DeclaredTables
    observed: ObservedTables
    revisions: TableRevisions
    changes: TableChanges
    bindings: TableBindings


def planning_context(
    project: Project,
    environment: Environment,
    observed: Mapping[TableName, ObservedDeployment],
    parse_cache: ParseCache,
    answers: Mapping[str, str] = MappingProxyType({}),
    *,
    engine: str = "",
    pools: Mapping[str, ObservedPool] = MappingProxyType({}),
    places: Mapping[TableName, str] = MappingProxyType({}),
    like: PlanningContext | None = None,
) -> PlanningContext:
    """Return the planning context of a project and its deployments, in time linear in tables and bindings.

    `places` are those of `DeclaredTables`. Parsed revisions are reused from `like`, another context with mostly the
    same SQL.
    """
    declared = DeclaredTables(project, environment, like.declared if like else None, places)
    deployments = ObservedTables(declared, observed)
    revisions = TableRevisions(declared, deployments, parse_cache, like.revisions if like else None)
    changes = TableChanges(declared, deployments, revisions, answers, engine, pools=pools)
    bindings = TableBindings(declared, deployments, revisions, changes)
    return PlanningContext(declared, deployments, revisions, changes, bindings)
