"""What changed of each table between its deployment and its declaration, with Spark's opinion of it."""

from collections.abc import Mapping
from dataclasses import replace

from core.changes.classification import Change, classify, unproven_change
from core.changes.cross_check import cross_checked, question_of
from core.changes.kinds import ChangeKind
from core.changes.pinned_settings import recorded_pool
from core.changes.spark_analysis import AnalysisQuestion, find_answer
from core.model.actions import Action
from core.model.names import TableName
from core.observed.deployment import ObservedDeployment
from core.planning.declared_tables import DeclaredTables
from core.planning.observed_tables import ObservedTables
from core.planning.table_revisions import TableRevisions
from core.project.revision import Revision, removed_columns


class TableChanges:
    """Changes of declared tables, each classified once.

    `answers` are Spark's, packed, by the key of the question; `engine` is the pool's version of Spark, empty where it
    is not known.
    """

    def __init__(
        self,
        declared: DeclaredTables,
        observed: ObservedTables,
        revisions: TableRevisions,
        answers: Mapping[str, str],
        engine: str,
    ) -> None:
        self._declared = declared
        self._observed = observed
        self._revisions = revisions
        self._answers = answers
        self._engine = engine
        self._pool = recorded_pool(declared.environment.pool)
        self._changes: dict[TableName, Change] = {}

    def of(self, table: TableName) -> Change:
        """Compare a declared table with its deployment; only for tables that are both."""
        if table not in self._changes:
            found = self._find(table)
            self._changes[table] = found if found.kind is ChangeKind.NONE else self._cross_checked(table, found)
        return self._changes[table]

    def first_start(self, table: TableName) -> Change:
        """Return what Spark has to say of a declared table that is to start for the first time."""
        return self._cross_checked(table, Change(ChangeKind.NONE, Action.START))

    def question(self, table: TableName) -> AnalysisQuestion | None:
        """Return what Spark can be asked of a declared table: its new SQL, beside the deployed one if there is any."""
        return question_of(
            self._revisions.declared(table),
            self._revisions.deployed(table) if self._observed.is_deployed(table) else None,
            declared=self._declared_ddl,
            deployed=self._deployed_ddl,
        )

    def compared(self, table: TableName) -> tuple[Revision, Revision] | None:
        """Return the deployed and the declared revision with all that is known of both; None where one is not known."""
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
            replace(new, parents=after, pool=self._pool, engine=self._engine),
        )

    def removed_columns(self, table: TableName) -> tuple[str, ...]:
        """Return the deployed columns that the declaration no longer has; nothing where the old texts are unknown."""
        old = self._changed_from(table)
        return removed_columns(old, self._revisions.declared(table)) if old is not None else ()

    def added_columns(self, table: TableName) -> tuple[str, ...]:
        """Return the declared columns that the deployed table does not have; nothing where its texts are unknown."""
        old = self._changed_from(table)
        return removed_columns(self._revisions.declared(table), old) if old is not None else ()

    def _changed_from(self, table: TableName) -> Revision | None:
        """Return the deployed revision of a table that changed; None where nothing did, or it is not known."""
        if self._observed.deployment(table).deployed is None or self.of(table).kind is ChangeKind.NONE:
            return None
        return self._revisions.deployed(table)

    def _find(self, table: TableName) -> Change:
        seen, new = self._observed.deployment(table), self._revisions.declared(table)
        if seen.deployed is None or seen.deployed == new.texts:
            same = seen.deployed is not None or seen.revision in ("", "same") or seen.revision == new.hash
            return (
                self._elsewhere(seen, new)
                if same
                else unproven_change("it changed, and the deployed texts are unknown")
            )
        if new.parsed is not None and not seen.deployed.dml.strip() and seen.version:
            return unproven_change("the deployed statement is unknown")
        compared = self.compared(table)
        return classify(*compared) if compared is not None else unproven_change("the deployed texts cannot be read")

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
            known = deployed and self._observed.deployment(table).deployed is not None
            old, declared = self._revisions.deployed(table) if known else None, self._declared.tables.get(table)
            ddl = old.ddl if old is not None else declared.ddl_facts if declared is not None else None
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
