"""Compares two versions of a table at one position, and runs the project's checks on the new version.

Only the files of batches up to that position are read, because the tables keep changing.
"""

import secrets
import time
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from threading import Event, Lock, Thread
from typing import Any

from core.model.errors import EngineRefused, HeadgateError, PoolUnreachable, Refused, TryAgain
from core.model.names import TableName
from core.model.problems import Severity
from core.observed.versions import Deployment
from core.ports.spark import FileView
from core.project.model import Settings
from core.project_reader.table_yml import read_settings
from core.sql.analysis_safety import unsafe_for_analysis
from core.sql.comparison.row_effects import RowEffect, RowSide
from core.sql.compiler import compile_select
from core.sql.statement_reader import read_any
from core.validation.comparison_queries import (
    ComparedRows,
    differences_query,
    duplicates_query,
    kept_rows_query,
    profile_query,
    sampling,
)
from core.validation.expected_differences import ExpectedDifferences, without_differences_in
from core.validation.regrouped_totals import totals_query, totals_result
from core.validation.verdicts import (
    BLOCKING,
    CheckResult,
    CheckVerdict,
    RowsLeftOut,
    differences_result,
    duplicates_result,
    kept_rows_result,
    profile_results,
    project_check_result,
    schema_result,
)
from pipelines.agent.context import AgentContext
from pipelines.agent.deployment_compiler import added_columns, column_types
from pipelines.agent.runs.compared_versions import ComparedVersions
from pipelines.agent.runs.differences_explained_by_release import VersionPair, begins_alone, expected_of, starts_first
from pipelines.agent.statements.deployment_lifecycle import written_batch

COMPARED_S = 300.0
"""Time limit of a comparison, in seconds."""

MOST_FILES = 20_000
"""Maximum number of files per version that a comparison reads."""

ENDED_EVERY_S = 0.5
"""Seconds between two checks of whether a comparison was ended, and between two interrupts of its query."""

INTERRUPTED_S = 5.0
"""Deadline, in seconds, of a call that interrupts a query."""

EXAMPLES = 3
"""Maximum number of rows that are read from the result of a project's check."""

MOST_ROWS = 1_000
"""Maximum number of rows that a comparison's query may return. It returns one row for each kind of difference."""

Row = Mapping[str, Any]


_one_at_a_time = Lock()
"""Serializes comparisons, because they use cores that statements need."""


class VersionComparison:
    """A read-only comparison of two versions, with a time limit, that runs in its own thread."""

    def __init__(self, agent: AgentContext, versions: ComparedVersions) -> None:
        self._agent = agent
        self._versions = versions
        self._ends_at = 0.0
        self._mark = secrets.token_hex(4)
        self._ended, self._over = Event(), Event()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait until no other comparison is running. Raises TryAgain if this comparison is ended while it waits."""
        try:
            while not _one_at_a_time.acquire(timeout=ENDED_EVERY_S):
                self._go_on()
            try:
                self._go_on()
                self._ends_at = time.monotonic() + COMPARED_S
                yield
            finally:
                _one_at_a_time.release()
        finally:
            self._over.set()

    def end(self) -> None:
        """End the comparison and its query in the pool, without waiting for them to end."""
        if not self._ended.is_set() and not self._over.is_set():
            self._ended.set()
            Thread(target=self._interrupt, name="end of a comparison", daemon=True).start()

    def _interrupt(self) -> None:
        # Interrupts are repeated, because the query may not have started yet.
        while not self._over.is_set():
            # The read may be in any pool that was reachable when it began.
            for each in self._agent.pools.every():
                with suppress(HeadgateError):
                    pool = each.connection()
                    pool.call(INTERRUPTED_S, pool.tables.cancel_reads, self._tag)
            self._over.wait(ENDED_EVERY_S)

    def _go_on(self) -> None:
        if self._ended.is_set():
            raise TryAgain("the comparison was ended")

    @property
    def _tag(self) -> str:
        return f"headgate-compare-{self._mark}"

    def compare(self, pair: VersionPair) -> tuple[CheckResult, ...]:
        """Compare the rows of two versions. Raises TryAgain after the time limit."""
        expected = self._bounded(expected_of(self._agent.files, self._versions, pair), pair)
        left_out = _metadata_of(pair)
        expected = without_differences_in(replace(expected, rows=starts_first(expected.rows)), left_out)
        old_columns, new_columns = (column_types(each.texts, each.table) for each in (pair.old, pair.new))
        schema = schema_result(old_columns, new_columns, expected)
        try:
            files = [self._files(pair.old, pair.at.blue), self._files(pair.new, pair.at.green)]
        except Refused as error:
            return (schema, _unread(error.summary))
        if max(map(len, files)) > MOST_FILES:
            why = f"{max(map(len, files)):,} files, of which at most {MOST_FILES:,} are compared"
            return (schema, _unread(why))
        names = {name.lower() for name, _ in old_columns} - left_out
        both = tuple((name, kind) for name, kind in new_columns if name.lower() in names)
        views = (
            FileView(f"headgate_old_{self._mark}", pair.old.folder, files[0], old_columns, pair.old.format),
            FileView(f"headgate_new_{self._mark}", pair.new.folder, files[1], new_columns, pair.new.format),
        )
        equal = frozenset(name.lower() for name, _ in both) - expected.changed.keys()
        declared = _declared_key(pair.new)
        key = declared if declared and set(declared) <= equal else expected.keys
        # If rows are paired, a duplicated row is reported as a duplicate, whatever values its new columns have.
        told = new_columns if expected.unpairable_because or expected.multiplicity_change else ()
        own = tuple(column for column in told if column[0].lower() not in equal | expected.volatile | left_out)
        lists, distinct = expected.sorted & equal, bool(expected.multiplicity_change)
        rows = ComparedRows(
            views[0].name, views[1].name, columns=both, equal=equal, key=key, own=own, sorted=lists, distinct=distinct
        )
        sides = self._run(profile_query(rows), views)
        counts = [int(side["rows"]) for side in sides] or [0]
        rows = replace(rows, one_in=sampling(min(counts), max(counts)))
        by_side = {side["side"]: int(side["rows"]) for side in sides}
        grown = by_side.get(RowSide.NEW, 0) / max(by_side.get(RowSide.OLD, 0), 1)
        duplicated = self._run(duplicates_query(rows), views)
        duplicates = duplicates_result(rows, duplicated, expected, key == declared != (), grown)
        if expected.unpairable_because:
            words = f"rows cannot be paired: {expected.unpairable_because}"
            differences = CheckResult("differences", CheckVerdict.EXPECTED, words, {"unpaired": 1})
        else:
            found = self._run(differences_query(rows, expected.rows), views)
            differences = differences_result(rows, found, expected.rows, expected)
        totals = self._totals(rows, expected, views)
        doubled = duplicates.verdict in BLOCKING
        empties = not pair.at.same_watermarks or bool(expected.unpairable_because or expected.withheld)
        profile = profile_results(rows, sides, expected, differences, doubled=doubled, empties=empties)
        return (schema, differences, *totals, duplicates, *profile)

    def _bounded(self, expected: ExpectedDifferences, pair: VersionPair) -> ExpectedDifferences:
        """Limit the rows that only the new version may have, if the old one began after a batch of a predecessor.

        The limit is the number of rows that the predecessor wrote up to that batch. There is no limit if rows may
        differ for another reason, or if the predecessor is incomplete or gone.
        """
        batch = pair.old.begins_after_batch
        if batch is None or pair.new.begins_after or pair.new.begins_where or not begins_alone(expected):
            return expected
        found = self._versions.find(pair.old.table, pair.old.begins_after_version)
        if found is None or found.deleted or found.begins_where or found.begins_after or found.older_rows:
            return expected
        try:
            files = self._files(found, batch)
        except (Refused, TryAgain):
            return expected
        view = FileView(
            f"headgate_before_{self._mark}", found.folder, files, column_types(found.texts, found.table), found.format
        )
        counted = self._run(f"SELECT count(*) AS n FROM {view.name}", (view,)) if files else []
        rows = sum(int(row["n"]) for row in counted)
        words = f"{self._name(pair.old)} begins with the rows after {pair.old.begins_after}"
        return replace(expected, rows=(RowEffect(RowSide.NEW, words, most=rows),))

    def _totals(
        self, rows: ComparedRows, expected: ExpectedDifferences, views: Sequence[FileView]
    ) -> tuple[CheckResult, ...]:
        """Compare the totals of versions whose rows cannot be paired. The result is empty if they can be paired.

        If the only reason is that the query was rewritten, count the old rows that are kept instead.
        """
        totals = expected.totals
        if expected.rewritten and rows.equal:
            return (kept_rows_result(self._run(kept_rows_query(rows), views), expected.unpairable_because),)
        if totals is None or not expected.unpairable_because:
            return ()
        if not totals.keys and not totals.totals:
            words = "nothing that both versions have can be added up"
            return (CheckResult("totals", CheckVerdict.EXPECTED, words),)
        found = self._run(totals_query(rows, totals), views)
        return (totals_result(totals, found, expected, [name.lower() for name, _ in rows.columns]),)

    def check(self, new: Deployment, upto: int | None, names: Mapping[TableName, str]) -> tuple[CheckResult, ...]:
        """Run the project's checks on the new version's rows up to batch `upto`, or on all rows if `upto` is None.

        `names` maps the other tables to their catalog names. A check that Spark refuses is reported as failed.
        """
        batch = written_batch(self._agent, new) if upto is None else upto
        columns, unread, found = column_types(new.texts, new.table), "", []
        try:
            files = self._files(new, -1 if batch is None else batch)
        except Refused as error:
            files, unread = (), error.summary
        view = FileView(f"headgate_new_{self._mark}", new.folder, files, columns, new.format)
        for name, sql in _settings(new).checks:
            statements, problems = read_any(sql, "")
            reads = {read.table for each in statements for read in each.reads}
            wrong = next((problem.summary for problem in problems if problem.severity is Severity.ERROR), "")
            if not wrong and new.table not in reads:
                continue
            risk = unsafe_for_analysis(sql)
            unsafe = "" if risk is None else str(risk)
            if refused := wrong or unsafe or _missing(reads, {*names, new.table}) or unread:
                found.append(CheckResult(f"check {name}", CheckVerdict.FAILED, refused))
                continue
            query = compile_select(statements[0], {**names, new.table: view.name})
            try:
                rows = self._run(query, (view,), most=EXAMPLES)
            except EngineRefused as error:
                words = f"{error.error_class} {' '.join(error.summary.split())}".strip()
                found.append(CheckResult(f"check {name}", CheckVerdict.FAILED, words))
                continue
            except TryAgain as error:
                self._go_on()
                if isinstance(error, PoolUnreachable):
                    raise
                # The results of earlier checks are reported as well.
                found.append(CheckResult(f"check {name}", CheckVerdict.FAILED, error.summary))
                continue
            found.append(project_check_result(name, tuple(rows[0]) if rows else (), [tuple(r.values()) for r in rows]))
        return tuple(found)

    def _files(self, deployment: Deployment, upto: int) -> tuple[str, ...]:
        name = self._name(deployment)
        try:
            found = self._agent.files.written_files(deployment.folder, upto)
        except Refused as error:
            raise Refused(f"the files of {name} are not its rows: {error.summary}") from error
        if found is None:
            raise TryAgain(f"the log of {name} does not say any more what its batch {upto} had written")
        return found

    def _name(self, deployment: Deployment) -> str:
        return self._versions.name(deployment.table, deployment.version)

    def _run(self, sql: str, views: Sequence[FileView], *, most: int = MOST_ROWS) -> list[Row]:
        self._go_on()
        left = self._ends_at - time.monotonic()
        if left <= 0:
            raise TryAgain(f"the comparison did not end within {COMPARED_S:.0f} s")
        pool = self._agent.pools.reachable()
        columns, rows = pool.call(left, pool.tables.read_files, sql, most, views, self._tag)
        return [dict(zip(columns, row, strict=True)) for row in rows]


def _unread(why: str) -> CheckResult:
    return CheckResult("differences", CheckVerdict.SKIPPED, why, {"left_out": RowsLeftOut.FAILED.value})


def _settings(deployment: Deployment) -> Settings:
    return read_settings(deployment.texts.yml, f"{deployment.table}.yml", Settings(), [])


def _metadata_of(pair: VersionPair) -> frozenset[str]:
    """Return the metadata columns of two versions, which are not compared."""
    return frozenset(name for each in (pair.old, pair.new) for name, _ in added_columns(each))


def _declared_key(deployment: Deployment) -> tuple[str, ...]:
    return tuple(name.lower() for name in _settings(deployment).key)


def _missing(reads: Iterable[TableName], names: Container[TableName]) -> str:
    gone = sorted(read for read in reads if read not in names)
    return f"it reads {', '.join(gone)}, which does not exist" if gone else ""
