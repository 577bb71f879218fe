"""Cross-check of SQL files with Spark's analysis, requested through the agent; the SQL need not be deployed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.changes.classification import Change
from core.changes.spark_cross_check import cross_checked, disagreements, question_of
from core.changes.spark_questions_and_answers import AnalysisAnswer, AnalysisQuestion
from core.model.errors import TryAgain
from core.model.evidence import Notice
from core.model.names import TableName
from core.project.revision import Revision, RevisionTexts
from core.sql.statement import ParsedStatement, TableDdl
from core.text.sentence import Fact
from tui.project_folder.sql_sources import SqlSource
from tui.services.environment_service import EnvironmentService
from tui.services.plan_submission import ask_spark

ASKED_S = 20.0
"""Maximum time that Spark may take for all statements of a command, in seconds."""


@dataclass(frozen=True, slots=True)
class StatementCrossCheck:
    """Spark's analysis of a statement, compared with Headgate's own analysis."""

    engine: str
    disagreements: tuple[Fact[Notice], ...]
    """Differences from Headgate's analysis; empty if there are none."""
    answer: AnalysisAnswer

    @property
    def words(self) -> tuple[str, ...]:
        """One line per disagreement, or the single line `agrees`."""
        return tuple(f"disagrees: {found}" for found in self.disagreements) or ("agrees",)

    def as_json(self) -> dict[str, Any]:
        """Return Spark's answer and the disagreements as one JSON object."""
        return self.answer.as_json() | {"disagreements": [found.as_json() for found in self.disagreements]}


def analyse_statements(
    operations: EnvironmentService, source: SqlSource, found: Sequence[ParsedStatement]
) -> tuple[StatementCrossCheck, ...]:
    """Compare Spark's analysis of statements with Headgate's. Raises TryAgain if Spark does not answer."""
    ddl_of = _declared(operations)
    revisions = [
        Revision(parsed.writes, RevisionTexts(dml=source.text), parsed, TableDdl(parsed.writes, (), ""))
        for parsed in found
    ]
    questions = [question_of(revision, None, declared=ddl_of, deployed=ddl_of) for revision in revisions]
    answers = _ask(operations, questions)
    return tuple(
        StatementCrossCheck(answer.engine, disagreements(parsed, answer.new, source.text), answer)
        for parsed, answer in zip(found, answers, strict=True)
    )


def cross_check_changes(
    operations: EnvironmentService,
    changes: Mapping[TableName, Change],
    *,
    old: Mapping[TableName, Revision],
    new: Mapping[TableName, Revision],
) -> dict[TableName, Change]:
    """Return `changes`, checked against Spark's analysis. Raises TryAgain if Spark does not answer.

    A change that does not affect the SQL is not checked and remains unconfirmed.
    """
    ddl_of = _declared(operations)
    only = next(iter(old.values())) if len(old) == len(new) == 1 else None
    pairs = {table: (only or old.get(table), revision) for table, revision in new.items()}
    edited = {table: (was, now) for table, (was, now) in pairs.items() if was is None or _sql(was) != _sql(now)}
    asked = {table: question_of(now, was, declared=ddl_of, deployed=ddl_of) for table, (was, now) in edited.items()}
    answers = dict(zip(asked, _ask(operations, list(asked.values())), strict=True)) if asked else {}
    return {
        table: cross_checked(change, answers.get(table), new=new[table], old=pairs[table][0])
        if table in new
        else change
        for table, change in changes.items()
    }


def _sql(revision: Revision) -> tuple[str, str]:
    return revision.texts.dml, revision.texts.ddl


def _declared(operations: EnvironmentService) -> Any:
    tables = operations.project().tables
    return lambda name: tables[name].ddl.text if name in tables else ""


def _ask(operations: EnvironmentService, questions: Sequence[AnalysisQuestion | None]) -> list[AnalysisAnswer]:
    asked = [question for question in questions if question is not None]
    if len(asked) < len(questions):
        raise TryAgain(
            "Spark cannot be asked: a table that is read is not declared in this project",
            remedy="declare it, or use --project to name the project that declares it",
        )
    answers, why = ask_spark(operations.client, asked, seconds=ASKED_S)
    found = [answer for answer in answers if answer is not None]
    if len(found) < len(asked):
        raise TryAgain(f"Spark did not answer: {why or 'no reason given'}", remedy="run headgate doctor for details")
    return found
