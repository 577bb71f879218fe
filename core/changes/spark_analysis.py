"""Spark's analysis of a statement: what is asked, and what was answered.

It can raise the severity of a change, never lower it: Spark also calls some statements different that are not.
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
    """One revision as Spark is shown it: nothing of the operator's but names and types."""

    select: str
    """The query alone, with logical names, as `ParsedStatement.select`."""
    tables: tuple[tuple[TableName, str], ...]
    """Name and CREATE TABLE text of every table that it reads, by name."""


@dataclass(frozen=True)
class AnalysisQuestion:
    """A statement as declared, and as deployed where it is."""

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
    """One table that Spark reads, as often as the statement names it."""

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
    """aggregate, session_window, deduplicate, stream_join or limit; an operator without such a word, its own name."""
    keys: tuple[str, ...] = ()
    """As far as the text shows them; of a join both sides' in turn."""


@dataclass(frozen=True, slots=True)
class AnalysisRefusal:
    """Why Spark would not run it."""

    error_class: str
    """Spark's own, `_LEGACY_ERROR_TEMP_…` where it has no better name (ORDER BY; run on 4.2.0); else empty."""
    message: str


@dataclass(frozen=True, slots=True)
class AnalysedStatement:
    """Spark's answer about one side; empty but for `refused` where the analysis failed."""

    sources: tuple[AnalysedRead, ...] = ()
    columns: tuple[AnalysedColumn, ...] = ()
    operators: tuple[AnalysedOperator, ...] = ()
    """From the physical plan, in its order: the uppermost first."""
    refused: AnalysisRefusal | None = None


@dataclass(frozen=True, slots=True)
class AnalysisAnswer:
    """Spark's answer to a question."""

    engine: str
    """Spark's version."""
    new: AnalysedStatement
    old: AnalysedStatement | None = None
    same: bool | None = None
    """True: both sides mean the same to Spark. False proves nothing. None without an old side."""

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
    """Rebuild an answer; raises KeyError or TypeError for what is none."""
    old = data["old"]
    return AnalysisAnswer(
        data["engine"], _analysed_statement(data["new"]), _analysed_statement(old) if old else None, data["same"]
    )


def find_answer(answers: Mapping[str, str], question: AnalysisQuestion | None) -> AnalysisAnswer | None:
    """Find the answer to a question among packed ones, by their key; a damaged one counts as none."""
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
