"""Requests to Spark to analyse a statement, and Spark's answers.

An answer that contradicts Headgate's analysis turns a change into STATE_CHANGED; no answer makes a change less
severe. If Spark merely distinguishes the old statement from the new one, the kind of change stays the same, because
both statements may still have the same meaning.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from core.model.errors import BadName, UsageError
from core.model.names import TableName, parse_table_name
from core.sql.registered_functions import PythonKind, RegisteredFunction, is_registered_name


@dataclass(frozen=True, slots=True)
class AnalysedRevision:
    """A revision in the form sent to Spark; it contains no user data except names and types."""

    select: str
    """The query alone, with logical names, as in `ParsedStatement.select`."""
    tables: tuple[tuple[TableName, str], ...]
    """Name and CREATE TABLE statement of every table that the query reads, sorted by name."""
    functions: tuple[RegisteredFunction, ...] = ()
    """The Python functions that the query calls, without their code, sorted by name."""


@dataclass(frozen=True)
class AnalysisQuestion:
    """A request for Spark to analyse a declared statement and, if there is one, the deployed statement."""

    new: AnalysedRevision
    old: AnalysedRevision | None = None

    @cached_property
    def key(self) -> str:
        """SHA-256 of the question's content, in hex."""
        return hashlib.sha256(json.dumps(self.as_json(), sort_keys=True).encode()).hexdigest()

    def as_json(self) -> dict[str, Any]:
        """Return the question as sent over the socket; `question_from_json` is the inverse."""
        return {"new": _side_as_json(self.new), "old": _side_as_json(self.old) if self.old else None}


@dataclass(frozen=True, slots=True)
class AnalysedRead:
    """One read of a table, as Spark sees it; a table that the statement names twice has two reads."""

    table: str
    streaming: bool
    source_name: str = ""
    """Name given by IDENTIFIED BY; empty if there is none."""


@dataclass(frozen=True, slots=True)
class AnalysedColumn:
    """An output column as Spark derives it; `type` is in Spark's short form, such as `decimal(10,2)`."""

    name: str
    type: str
    nullable: bool


@dataclass(frozen=True, slots=True)
class AnalysedOperator:
    """A stateful operator in Spark's physical plan."""

    operator: str
    """Spark's name of the operator, such as StateStoreSave or StreamingSymmetricHashJoin."""
    kind: str
    """`aggregate`, `session_window`, `deduplicate`, `stream_join` or `limit`; for others, the operator's name."""
    keys: tuple[str, ...] = ()
    """Keys that the physical plan shows; for a join, the keys of one side, then the keys of the other side."""


@dataclass(frozen=True, slots=True)
class AnalysisRefusal:
    """Spark's reason for rejecting a statement."""

    error_class: str
    """Spark's error class, sometimes `_LEGACY_ERROR_TEMP_…` (ORDER BY in Spark 4.2.0); empty if the error has none."""
    message: str


@dataclass(frozen=True, slots=True)
class AnalysedStatement:
    """Spark's answer for a single statement; only `refused` is set if the analysis failed."""

    sources: tuple[AnalysedRead, ...] = ()
    columns: tuple[AnalysedColumn, ...] = ()
    operators: tuple[AnalysedOperator, ...] = ()
    """The stateful operators in the order of the physical plan, from the top."""
    refused: AnalysisRefusal | None = None


@dataclass(frozen=True, slots=True)
class AnalysisAnswer:
    """Spark's answer to an analysis request."""

    engine: str
    """Version of Spark that gave the answer."""
    new: AnalysedStatement
    old: AnalysedStatement | None = None
    same: bool | None = None
    """True if Spark finds both statements equal. False does not prove a difference. None if nothing is deployed."""

    def as_json(self) -> dict[str, Any]:
        """Return the answer as sent over the socket and stored; `answer_from_json` is the inverse."""
        return asdict(self)


def question_from_json(data: Any) -> AnalysisQuestion:
    """Rebuild a request from JSON; raises UsageError if the data is not an analysis request."""
    try:
        old = data.get("old")
        return AnalysisQuestion(_side_from_json(data["new"]), _side_from_json(old) if old else None)
    except (KeyError, TypeError, ValueError, AttributeError, BadName) as error:
        remedy = "give {new: {select, tables: {name: CREATE TABLE text}}, old: the same or null}"
        raise UsageError(
            f"this is not a valid Spark analysis request: {type(error).__name__} {error}", remedy=remedy
        ) from error


def answer_from_json(data: Mapping[str, Any]) -> AnalysisAnswer:
    """Rebuild an answer from JSON; raises KeyError or TypeError if the data is damaged."""
    old = data["old"]
    return AnalysisAnswer(
        data["engine"], _analysed_statement(data["new"]), _analysed_statement(old) if old else None, data["same"]
    )


def find_answer(answers: Mapping[str, str], question: AnalysisQuestion | None) -> AnalysisAnswer | None:
    """Return the answer to a question; None if it is missing or damaged. `answers` maps question keys to JSON."""
    packed = answers.get(question.key) if question is not None else None
    try:
        return answer_from_json(json.loads(packed)) if packed else None
    except (ValueError, KeyError, TypeError):
        return None


def _side_as_json(side: AnalysedRevision) -> dict[str, Any]:
    found: dict[str, Any] = {"select": side.select, "tables": dict(side.tables)}
    if side.functions:
        found["functions"] = {each.name: [each.returns, each.kind, each.deterministic] for each in side.functions}
    return found


def _side_from_json(data: Any) -> AnalysedRevision:
    tables = {parse_table_name(str(name)): str(ddl) for name, ddl in data["tables"].items()}
    functions = tuple(_function(name, about) for name, about in sorted(data.get("functions", {}).items()))
    return AnalysedRevision(str(data["select"]), tuple(sorted(tables.items())), functions)


def _function(name: str, about: Any) -> RegisteredFunction:
    returns, kind, deterministic = about
    if not is_registered_name(name):
        raise ValueError(name)
    return RegisteredFunction(name, str(returns), PythonKind(kind), bool(deterministic))


def _analysed_statement(data: Mapping[str, Any]) -> AnalysedStatement:
    refused = data["refused"]
    return AnalysedStatement(
        sources=tuple(AnalysedRead(**source) for source in data["sources"]),
        columns=tuple(AnalysedColumn(**column) for column in data["columns"]),
        operators=tuple(AnalysedOperator(**{**each, "keys": tuple(each["keys"])}) for each in data["operators"]),
        refused=AnalysisRefusal(**refused) if refused else None,
    )
