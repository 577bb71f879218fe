"""Compares our analysis of random statements with Spark's, and classifies each difference as safe or dangerous."""

import json
import re
import tempfile
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from random_values import COLUMNS, DDL_TYPES, FIXED, GROWING, SHAPE

from core.changes.spark_cross_check import KIND_IN_SPARK, disagreements
from core.changes.spark_questions_and_answers import (
    AnalysedRevision,
    AnalysedStatement,
    AnalysisAnswer,
    AnalysisQuestion,
    answer_from_json,
)
from core.model.names import TableName
from core.sql.lineage.statement_lineage import lineage_of
from core.sql.statement import Column
from core.sql.statement_reader import read_statements
from pipelines.spark_connect.analysis_over_empty_tables import ScratchDatabases
from pipelines.spark_connect.error_translation import error_class
from pipelines.spark_connect.session import Session

AGREE, REFUSED, STRICTER, UNSAFE, UNTYPED = "agree", "both refuse", "stricter", "unsafe", "refused for names or types"

STRICTER_FOR = {
    "is read both as a stream and as a table": "Spark makes two streams of a table that is read both ways",
    "needs a watermark in append mode": "of several aggregates Spark checks the first; the others grow for ever",
    "a session window that a grouping set leaves out": "it fails with the first row that reaches it",
    "values is not a built-in table function": "VALUES at the head of a join in brackets is not followed",
    "Spark joins the table first": "it depends on the order that Spark finds, which changes with the statement",
    "columns with a watermark, and Spark keeps state by only one": "Spark may prune more than we follow",
    "of two streams needs a condition on event time": "Spark takes any inequality; rows may wait for ever",
    "a watermark cannot be set on top of another": "Spark refuses it with the first batch, though not in every plan",
    "if ON of a semi join names no stream on the left": "Spark loses matches: it keeps no state for them",
    "a WITH query that nothing reads": "Spark drops the part before it plans; a Problem asks to correct or remove it",
    "UNION of a stream and a batch table": "Spark calls a side a stream for a WITH query that nothing reads",
    "more state": "Spark leaves out an aggregate that changes nothing; we count it as state",
    "it is not a struct with known fields": "lineage has no fields of a struct that an aggregate or a call returns",
    "the statement reads no stream": "only a WITH query that nothing reads streams: no row of it is written",
}
"""Reasons why we report a Problem although Spark accepts the statement, by words of the Problem."""

_NAMES_AND_TYPES = re.compile(
    r"^(UNRESOLVED_COLUMN|AMBIGUOUS_|DATATYPE_MISMATCH|MISSING_AGGREGATION|MISSING_GROUP_BY|INCOMPATIBLE_COLUMN_TYPE"
    r"|GROUPING_|UNRESOLVED_USING|INVALID_USAGE_OF_STAR|ASSIGNMENT_ARITY_MISMATCH|MISSING_ATTRIBUTES|COLUMN_ALREADY_EXISTS)"
)
"""Error classes that depend on the columns of every table, which parsing one statement alone cannot know."""

_KIND_OF_RUNNING = {
    "stateStoreSave": "aggregate",
    "sessionWindowStateStoreSaveExec": "session_window",
    "symmetricHashJoin": "stream_join",
    "dedupe": "deduplicate",
    "globalLimit": "limit",
}
"""Stateful operators by their names in a query's progress, with our kinds."""

_TURN_S, _TURNS = 10, 12


@dataclass(frozen=True, slots=True)
class Finding:
    """The comparison of one statement: how our analysis relates to Spark's, and why."""

    outcome: str
    words: str = ""

    @property
    def kind(self) -> str:
        """The kind of difference; a smaller statement must have the same kind to replace this one."""
        return f"{self.outcome} {re.split(r'[:(]', self.words)[0]}"


def compared(text: str, opinion: AnalysedStatement) -> Finding:
    """Compare our analysis of a query with Spark's."""
    found, problems = read_statements(f"INSERT INTO t {text}", "q.sql")
    refusal = opinion.refused
    if problems or len(found) != 1:
        if refusal is not None:
            return Finding(REFUSED, refusal.error_class)
        said = "; ".join(problem.summary for problem in problems) or "it is not one statement"
        return Finding(STRICTER, said)
    if refusal is not None:
        if _NAMES_AND_TYPES.match(refusal.error_class):
            return Finding(UNTYPED, refusal.error_class)
        return Finding(UNSAFE, f"accepted although Spark refuses: {refusal.error_class} {refusal.message[:200]}")
    differences = disagreements(found[0], opinion, found[0].select)
    if not differences:
        lineage, theirs = lineage_of(found[0], _columns_of), [each.name.lower() for each in opinion.columns]
        if lineage.unresolved:
            return Finding(STRICTER, f"{lineage.unresolved[0].name}: {lineage.unresolved[0].reason}")
        ours = [each.name for each in lineage.outputs]
        return Finding(AGREE) if ours == theirs else Finding(UNSAFE, f"Spark returns {theirs}, our lineage has {ours}")
    states = Counter(KIND_IN_SPARK.get(each.kind, each.kind) for each in found[0].operators)
    kept = Counter(each.kind for each in opinion.operators)
    if len(differences) == 1 and states != kept and not kept - states:
        return Finding(STRICTER, f"more state: {differences[0]}")
    return Finding(UNSAFE, "; ".join(map(str, differences)))


def _columns_of(_: TableName) -> tuple[Column, ...]:
    return tuple(Column(name, DDL_TYPES[kind]) for name, kind in SHAPE)


def reason(finding: Finding) -> str:
    """Return why we are stricter than Spark in this case; empty if no reason is recorded."""
    return next((why for words, why in STRICTER_FOR.items() if words in finding.words), "")


class Asked:
    """Asks Spark about queries over the tables of `random_sql`: for an analysis, or a run over one row per table."""

    def __init__(self, session: Session, folder: Path, name: str = "random_statements") -> None:
        self._session = session
        self._scratch = ScratchDatabases(session, name)
        self._rows = f"one_row_{name}"
        self._tables = tuple(
            (TableName(name), f"CREATE TABLE {name} ({COLUMNS}) USING parquet") for name in sorted(GROWING + FIXED)
        )
        self._folder = folder
        spark = session.spark
        spark.conf.set("spark.sql.shuffle.partitions", "1")
        spark.sql(f"CREATE DATABASE {self._rows}")
        for name in GROWING + FIXED:
            spark.sql(f"CREATE TABLE {self._rows}.{name} ({COLUMNS}) USING parquet")
            spark.sql(f"INSERT INTO {self._rows}.{name} SELECT 1, 'x', 2, 3, 'y', TIMESTAMP'2026-01-01 12:00:00'")

    def opinion(self, text: str) -> AnalysedStatement:
        """Return Spark's analysis of a query, which is planned and checked but not started."""
        return self._scratch.answer(AnalysisQuestion(AnalysedRevision(text, self._tables))).new

    def start(self, text: str) -> tuple[str, Counter[str]]:
        """Run a query over one row per table; return its failure (empty if none) and its stateful operators.

        Some refusals happen only when a batch is planned, so that EXPLAIN does not show them.
        """
        spark = self._session.spark
        spark.sql(f"USE {self._rows}")
        query: Any = None
        try:
            with tempfile.TemporaryDirectory(dir=self._folder) as folder:
                writer = spark.sql(text).writeStream.format("noop").outputMode("append")
                writer = writer.queryName(f"q{uuid.uuid4().hex}").option("checkpointLocation", folder)
                query = writer.trigger(availableNow=True).start()
                return "", Counter(_kept(query))
        except PySparkException as error:
            return f"{error_class(str(error))} {str(error)[:250]}", Counter()
        finally:
            if query is not None:
                query.stop()


class Recorded:
    """Like Asked, but stores answers in a file, so that Spark need not be asked again after a change to our code."""

    def __init__(self, path: Path, asked: Callable[[], Asked]) -> None:
        self._path = path
        self._asked = asked
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        self._known: dict[tuple[str, str], Any] = {(kind, text): said for kind, text, said in map(json.loads, lines)}

    def opinion(self, text: str) -> AnalysedStatement:
        def ask() -> Any:
            return AnalysisAnswer("", self._asked().opinion(text)).as_json()

        return answer_from_json(self._recorded("opinion", text, ask)).new

    def start(self, text: str) -> tuple[str, Counter[str]]:
        def ask() -> Any:
            failure, kept = self._asked().start(text)
            return [failure, dict(kept)]

        failure, kept = self._recorded("start", text, ask)
        return failure, Counter(kept)

    def _recorded(self, kind: str, text: str, ask: Callable[[], Any]) -> Any:
        if (kind, text) not in self._known:
            self._known[kind, text] = said = ask()
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps((kind, text, said)) + "\n")
        return self._known[kind, text]


def read(spark: Asked | Recorded, text: str, *, start: bool) -> Finding:
    """Compare our analysis of a query with Spark's and, if `start`, with a run of the query."""
    finding = compared(text, spark.opinion(text))
    if finding.outcome == STRICTER and not reason(finding):
        failure, _ = spark.start(text)
        return Finding(REFUSED, failure) if failure else finding
    if not start or finding.outcome != AGREE:
        return finding
    failure, kept = spark.start(text)
    if failure:
        return Finding(UNSAFE, f"accepted although its start fails: {failure}")
    (parsed,), _ = read_statements(f"INSERT INTO t {text}", "q.sql")
    ours = Counter(KIND_IN_SPARK.get(each.kind, each.kind) for each in parsed.operators)
    if ours != kept:
        return Finding(UNSAFE, f"a start keeps {sorted(kept.elements())}, we found {sorted(ours.elements())}")
    return Finding(AGREE)


def _kept(query: Any) -> Iterator[str]:
    """Wait for a query to end, and yield the kinds of stateful operators in its progress."""
    for _ in range(_TURNS):
        if query.awaitTermination(_TURN_S):
            break
    else:
        raise TimeoutError("the query does not end")
    for each in json.loads(query.lastProgress.json)["stateOperators"]:
        name = str(each["operatorName"])
        yield _KIND_OF_RUNNING.get(name, name)
