"""Runs test cases one after another in a Spark session. A case that fails or hangs does not affect other cases."""

import itertools
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from core.model.errors import JOB_ERRORS, Busy, EngineRefused, HeadgateError
from core.model.names import TableName
from core.ports.spark import never
from core.project.model import Table
from core.sql.analysis_safety import unsafe_for_tests
from core.sql.metadata_columns import without_metadata
from core.sql.python_declarations import registered_functions
from core.sql.python_jobs import FIRST_CODE_LINE
from core.statement_tests.case import Row, StatementCase
from core.statement_tests.comparison import MOST_FOUND, RowDifference, compare_rows
from core.statement_tests.request import CaseOutcome, CaseResult, UpgradeVerdict
from core.statement_tests.upgrade import verdict_of
from core.text.wording import counted
from pipelines.python_jobs.job_builder import JobBuilder
from pipelines.python_jobs.job_environments import JobEnvironments
from pipelines.python_jobs.job_faults import JobFault
from pipelines.spark_connect import call_deadlines
from pipelines.spark_connect.jar_sessions import Jars, StatementQueries
from pipelines.spark_connect.session import Session
from pipelines.statement_tests.stream_trial import StreamTrial, TrialStatement

T = TypeVar("T")

ROOM_B = 1_000_000
"""Free disk space, in bytes, below which an error of Spark is attributed to a full disk."""

STOP_S = 20.0
"""Longest wait, in seconds, for a query to stop after its case has exceeded the time limit."""


class CaseFailed(Exception):
    """Raised if a test case ends before its rows can be compared. The case's name is added to `result` later."""

    def __init__(self, outcome: CaseOutcome, summary: str, *, detail: str = "", verdict: str = "") -> None:
        super().__init__(summary)
        self.result = CaseResult("", "", "", outcome, summary, verdict=verdict, detail=detail)


class CaseRunner:
    """Runs test cases in one session. Every trial run has a separate number (part of its table names) and folder."""

    def __init__(
        self,
        session: Session,
        folder: Path,
        tables: Mapping[TableName, Table],
        *,
        case_s: float,
        numbers: "itertools.count[int] | None" = None,
        packages: JobEnvironments | None = None,
        cancelled: Callable[[], bool] = never,
        jars: Jars | None = None,
    ) -> None:
        """Run cases in a session. Once `cancelled` returns True, the build of a job ends.

        `packages` are the environments of jobs; None if the pool of the tested environment cannot use them.
        """
        self._session = session
        self._jobs = JobBuilder(session, folder / "jobs", packages)
        self._cancelled = cancelled
        self._queries = StatementQueries(session, jars=jars)
        self._folder = folder
        self._tables = tables
        self._case_s = case_s
        self._numbers = numbers or itertools.count(1)
        self._running: tuple[StreamTrial, TrialStatement] | None = None
        self._missed = False

    def run(self, case: StatementCase) -> CaseResult:
        """Run a case's statement on its input rows, and compare the written rows with the expected rows."""
        return self._ended(case, lambda: self._compared(case))

    def upgrade(self, case: StatementCase, old: TrialStatement | None) -> CaseResult:
        """Test the upgrade from `old` after every part of a case but the last, and return the worst result.

        In each test, the old SQL reads the parts before the upgrade, and the new SQL reads the other parts from the
        same checkpoint. `old` is None if the old SQL cannot be parsed.
        """
        return self._ended(case, lambda: self._upgraded(case, old), trials=len(case.parts))

    def record(self, case: StatementCase) -> tuple[Row, ...]:
        """Return the rows that the statement writes for a case's input rows. Raises HeadgateError if it fails."""
        written: list[tuple[Row, ...]] = []

        def look() -> CaseResult:
            written.append(self._all_rows(self._statement(case), case))
            return CaseResult("", "", "", CaseOutcome.PASSED, "")

        result = self._ended(case, look)
        if not written:
            parsed = self._tables[case.table].parsed
            # Errors of jobs already have a remedy, and so has a statement that takes too long.
            has_remedy = self._missed or (parsed is not None and parsed.in_python)
            remedy = "" if has_remedy else "correct the statement, then do this again"
            raise EngineRefused(result.summary, remedy=remedy)
        return written[0]

    def _ended(self, case: StatementCase, judge: Callable[[], CaseResult], *, trials: int = 1) -> CaseResult:
        began, seconds, self._missed = time.monotonic(), self._case_s * trials, False
        try:
            result = call_deadlines.call(seconds, judge)
        except CaseFailed as failed:
            result = failed.result
        except call_deadlines.MissedDeadline:
            self._missed = True
            self._stop()
            summary = f"it did not end within {seconds:.0f} s: --timeout S allows more"
            result = CaseResult("", "", "", CaseOutcome.ERROR, summary)
        except Busy as error:
            result = CaseResult("", "", "", CaseOutcome.ERROR, error.sentence)
        except EngineRefused as error:
            full = shutil.disk_usage(self._folder).free < ROOM_B
            summary = f"there is no room left on the disk of {self._folder}" if full else _refusal(error)
            result = CaseResult("", "", "", CaseOutcome.ERROR, summary)
        finally:
            self._running = None
            shutil.rmtree(self._folder / "trials", ignore_errors=True)
        took = round(time.monotonic() - began, 2)
        return replace(result, path=case.path, table=str(case.table), name=case.name, took_s=took)

    def _compared(self, case: StatementCase) -> CaseResult:
        statement = self._statement(case)
        found = self._all_rows(statement, case)
        difference = compare_rows(statement.columns, case.expected, found, key=case.key, tolerance=case.tolerance)
        if difference:
            return _different(difference, f"it wrote {counted(len(found), 'row')}, {len(case.expected)} expected")
        return CaseResult("", "", "", CaseOutcome.PASSED, counted(len(found), "row"))

    def _all_rows(self, statement: TrialStatement, case: StatementCase) -> tuple[Row, ...]:
        trial = self._trial()
        for name, declared, written in trial.written_types(statement):
            summary = f"{name} is declared as {declared}, and the statement writes {written}"
            raise CaseFailed(CaseOutcome.FAILED, summary)
        for part in case.parts:
            self._step(trial, statement, part)
        return _bounded(trial.rows(statement))

    def _upgraded(self, case: StatementCase, old: TrialStatement | None) -> CaseResult:
        if old is None:
            raise CaseFailed(CaseOutcome.SKIPPED, "the old text cannot be read by this version of Headgate")
        if (why := unsafe_for_tests(old.parsed)) is not None:
            raise CaseFailed(CaseOutcome.SKIPPED, f"the old text is not shown to Spark: {why}")
        if len(case.parts) < 2:
            raise CaseFailed(CaseOutcome.SKIPPED, "it has one part; an upgrade is tried between two")
        unknown = sorted({read.table for read in old.parsed.reads} - set(self._tables))
        if unknown:
            raise CaseFailed(CaseOutcome.SKIPPED, f"the old text reads {unknown[0]}, which is not declared any more")
        new = self._statement(case)
        fresh = self._fresh_rows(new, case)
        worst = CaseResult("", "", "", CaseOutcome.PASSED, "", verdict=UpgradeVerdict.SAFE)
        for cut in range(1, len(case.parts)):
            found = self._upgraded_at(cut, case, (old, new), fresh)
            if found.verdict in (UpgradeVerdict.MIXED, UpgradeVerdict.REFUSED):
                return found
            if found.verdict == UpgradeVerdict.SEAM and worst.verdict == UpgradeVerdict.SAFE:
                worst = found
        return worst

    def _fresh_rows(self, new: TrialStatement, case: StatementCase) -> list[tuple[Row, ...]]:
        trial = self._trial()
        rows = []
        for part in case.parts:
            self._step(trial, new, part)
            rows.append(_bounded(trial.rows(new)))
        return rows

    def _upgraded_at(
        self,
        cut: int,
        case: StatementCase,
        texts: tuple[TrialStatement, TrialStatement],
        fresh: list[tuple[Row, ...]],
    ) -> CaseResult:
        old, new = texts
        trial = self._trial()
        where = "part 1" if cut == 1 else f"parts 1 to {cut}"
        try:
            for part in case.parts[:cut]:
                self._step(trial, old, part)
        except EngineRefused as error:
            raise CaseFailed(
                CaseOutcome.SKIPPED, f"the old text does not run over {where}: {_refusal(error)}"
            ) from error
        try:
            before = trial.rows(new)
            for part in case.parts[cut:]:
                self._step(trial, new, part)
            found = _bounded(trial.rows(new))
        except EngineRefused as error:
            summary = f"after the old text has read {where}, the new one does not go on: {_refusal(error)}"
            raise CaseFailed(CaseOutcome.FAILED, summary, verdict=UpgradeVerdict.REFUSED) from error
        verdict, difference = verdict_of(
            case, new.columns,
            alone=(fresh[cut - 1], fresh[-1]), upgraded=(before, found),
        )  # fmt: skip
        if verdict is UpgradeVerdict.SAFE:
            return CaseResult("", "", "", CaseOutcome.PASSED, "", verdict=verdict)
        what = (
            "what the old text had written differs"
            if verdict is UpgradeVerdict.SEAM
            else ("what the new one wrote from that checkpoint differs")
        )
        return replace(
            _different(difference, f"the old text read {where}; {what} from the new text on everything"),
            verdict=verdict,
        )

    def _statement(self, case: StatementCase) -> TrialStatement:
        table = self._tables[case.table]
        assert table.parsed is not None and table.dml is not None, "a case is about a statement"
        if (why := unsafe_for_tests(table.parsed)) is not None:
            raise CaseFailed(CaseOutcome.ERROR, f"it is not shown to Spark: {why}")
        ddl = without_metadata(table.parsed_ddl) if table.settings.metadata else table.parsed_ddl
        texts = ((name, script.text) for name, script in table.functions)
        functions = registered_functions(table.parsed.select, texts)
        begin, second = (table.dml.at(line) for line in (FIRST_CODE_LINE, FIRST_CODE_LINE + 1))
        if not table.parsed.in_python or second.line != begin.line + 1:
            # Lines of code that YAML has folded are not those of the file.
            return TrialStatement(ddl, table.parsed, functions)
        return TrialStatement(ddl, table.parsed, functions, begin.path, begin.line)

    def _trial(self) -> StreamTrial:
        number = next(self._numbers)
        folder = self._folder / "trials" / str(number)
        return StreamTrial(
            self._session,
            folder,
            number,
            self._tables,
            jobs=self._jobs,
            queries=self._queries,
            cancelled=self._cancelled,
        )

    def _step(self, trial: StreamTrial, statement: TrialStatement, part: Mapping[TableName, tuple[Row, ...]]) -> None:
        self._running = trial, statement
        trial.run(statement, part)

    def _stop(self) -> None:
        # Errors are ignored, because the next call would report them.
        if self._running is not None:
            trial, statement = self._running
            with suppress(HeadgateError):
                call_deadlines.call(STOP_S, trial.stop, statement)


def _bounded(rows: tuple[Row, ...]) -> tuple[Row, ...]:
    if len(rows) > MOST_FOUND:
        raise CaseFailed(CaseOutcome.FAILED, f"it wrote more than {MOST_FOUND} rows, which are not compared")
    return rows


def _different(difference: RowDifference, summary: str) -> CaseResult:
    return CaseResult("", "", "", CaseOutcome.FAILED, summary, difference=difference.as_json())


def _refusal(error: EngineRefused) -> str:
    if error.error_class.startswith(JOB_ERRORS):
        # The log that the other errors do not need is deleted with the folder of the tests.
        return error.summary if error.error_class == JobFault.ENDED.error_class else error.sentence
    named = f" ({error.error_class})" if error.error_class else ""
    return f"Spark refused{named}: {error.summary}" if error.summary else f"Spark refused{named}"
