"""Spark's analysis of a statement: questions and answers.

An answer can raise the severity of a change, but never lower it: Spark also distinguishes some equal statements.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from core.model.errors import BadName, UsageError
from core.model.names import TableName, parse_table_name


@dataclass(frozen=True, slots=True)
class AnalysedRevision:
    """One revision in the form for Spark, which contains no user data other than names and types."""

    select: str
    """The query alone, with logical names, as `ParsedStatement.select`."""
    tables: tuple[tuple[TableName, str], ...]
    """Name and CREATE TABLE text of every table that it reads, sorted by name."""


@dataclass(frozen=True)
class AnalysisQuestion:
    """A declared statement, with the deployed one if there is any."""

    new: AnalysedRevision
    old: AnalysedRevision | None = None

    @cached_property
    def key(self) -> str:
        """Identity by content: SHA-256 in hex."""
        return hashlib.sha256(json.dumps(self.as_json(), sort_keys=True).encode()).hexdigest()

    def as_json(self) -> dict[str, Any]:
        """Return the question as it goes over the socket; `question_from_json` is the inverse."""
        return {"new": _side_as_json(self.new), "old": _side_as_json(self.old) if self.old else None}


@dataclass(frozen=True, slots=True)
class AnalysedRead:
    """One read of a table by Spark; a table that the statement names twice has two."""

    table: str
    streaming: bool
    source_name: str = ""
    """IDENTIFIED BY, empty when unnamed."""


@dataclass(frozen=True, slots=True)
class AnalysedColumn:
    """An output column as Spark derives it; `type` is Spark's simple string, `decimal(10,2)`."""

    name: str
    type: str
    nullable: bool


@dataclass(frozen=True, slots=True)
class AnalysedOperator:
    """A stateful operator of Spark's physical plan."""

    operator: str
    """Spark's name: StateStoreSave, StreamingSymmetricHashJoin …"""
    kind: str
    """aggregate, session_window, deduplicate, stream_join or limit; for any other operator its own name."""
    keys: tuple[str, ...] = ()
    """Keys as far as the plan shows them; those of both sides in turn for a join."""


@dataclass(frozen=True, slots=True)
class AnalysisRefusal:
    """Why Spark rejects a statement."""

    error_class: str
    """Spark's error class, sometimes `_LEGACY_ERROR_TEMP_…` (ORDER BY; run on 4.2.0); empty without one."""
    message: str


@dataclass(frozen=True, slots=True)
class AnalysedStatement:
    """Spark's answer about one statement; only `refused` is set if the analysis failed."""

    sources: tuple[AnalysedRead, ...] = ()
    columns: tuple[AnalysedColumn, ...] = ()
    operators: tuple[AnalysedOperator, ...] = ()
    """In the order of the physical plan, from the top."""
    refused: AnalysisRefusal | None = None


@dataclass(frozen=True, slots=True)
class AnalysisAnswer:
    """Spark's answer to a question."""

    engine: str
    """Spark's version."""
    new: AnalysedStatement
    old: AnalysedStatement | None = None
    same: bool | None = None
    """True if both statements have the same meaning to Spark; False proves nothing; None without a deployed one."""

    def as_json(self) -> dict[str, Any]:
        """Return the answer as it goes over the socket and into the ledger; `answer_from_json` is the inverse."""
        return asdict(self)


def question_from_json(data: Any) -> AnalysisQuestion:
    """Rebuild a question; raises UsageError for anything else."""
    try:
        old = data.get("old")
        return AnalysisQuestion(_side_from_json(data["new"]), _side_from_json(old) if old else None)
    except (KeyError, TypeError, AttributeError, BadName) as error:
        remedy = "give {new: {select, tables: {name: CREATE TABLE text}}, old: the same or null}"
        raise UsageError(
            f"this is not a valid Spark analysis request: {type(error).__name__} {error}", remedy=remedy
        ) from error


def answer_from_json(data: Mapping[str, Any]) -> AnalysisAnswer:
    """Rebuild an answer; raises KeyError or TypeError for a damaged one."""
    old = data["old"]
    return AnalysisAnswer(
        data["engine"], _analysed_statement(data["new"]), _analysed_statement(old) if old else None, data["same"]
    )


def find_answer(answers: Mapping[str, str], question: AnalysisQuestion | None) -> AnalysisAnswer | None:
    """Return the answer to a question from packed ones by key; None if it is missing or damaged."""
    packed = answers.get(question.key) if question is not None else None
    try:
        return answer_from_json(json.loads(packed)) if packed else None
    except (ValueError, KeyError, TypeError):
        return None


def _side_as_json(side: AnalysedRevision) -> dict[str, Any]:
    return {"select": side.select, "tables": dict(side.tables)}


def _side_from_json(data: Any) -> AnalysedRevision:
    tables = {parse_table_name(str(name)): str(ddl) for name, ddl in data["tables"].items()}
    return AnalysedRevision(str(data["select"]), tuple(sorted(tables.items())))


def _analysed_statement(data: Mapping[str, Any]) -> AnalysedStatement:
    refused = data["refused"]
    return AnalysedStatement(
        sources=tuple(AnalysedRead(**source) for source in data["sources"]),
        columns=tuple(AnalysedColumn(**column) for column in data["columns"]),
        operators=tuple(AnalysedOperator(**{**each, "keys": tuple(each["keys"])}) for each in data["operators"]),
        refused=AnalysisRefusal(**refused) if refused else None,
    )
