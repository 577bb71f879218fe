"""Spark's second opinion of a statement: what is asked, what was answered, and where it differs from our reading.

An opinion can raise the severity of a change, never lower it: Spark also calls some statements different that are not.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from core.errors import BadName, UsageError
from core.names import TableName, parse_table_name
from core.sql.values import Column, Parsed

KIND_IN_SPARK = {"window": "aggregate", "deduplicate": "aggregate"}
"""Our kinds that are another one to Spark: a time window is a key, and DISTINCT an aggregate (run on 4.2.0)."""

_LONGEST = 200
"""Characters of a message of Spark's that stand in a plan."""


@dataclass(frozen=True, slots=True)
class Side:
    """One revision as Spark is shown it: nothing of the operator's but names and types."""

    select: str
    """The query alone, with logical names, as `Parsed.select`."""
    tables: tuple[tuple[TableName, str], ...]
    """Name and CREATE TABLE text of every table that it reads, by name."""


@dataclass(frozen=True)
class Question:
    """A statement as declared, and as deployed where it is."""

    new: Side
    old: Side | None = None

    @cached_property
    def key(self) -> str:
        """Identity by content: SHA-256 in hex."""
        return hashlib.sha256(json.dumps(self.as_json(), sort_keys=True).encode()).hexdigest()

    def as_json(self) -> dict[str, Any]:
        """Give the question as it goes over the socket; `question_from_json` is the inverse."""
        return {"new": _side_as_json(self.new), "old": _side_as_json(self.old) if self.old else None}


@dataclass(frozen=True, slots=True)
class Source:
    """One table that Spark reads, as often as the statement names it."""

    table: str
    streaming: bool
    source_name: str = ""
    """IDENTIFIED BY, empty when unnamed."""


@dataclass(frozen=True, slots=True)
class Output:
    """An output column as Spark derives it; `type` is Spark's simple string, `decimal(10,2)`."""

    name: str
    type: str
    nullable: bool


@dataclass(frozen=True, slots=True)
class Kept:
    """A stateful operator of Spark's physical plan."""

    operator: str
    """Spark's name: StateStoreSave, StreamingSymmetricHashJoin …"""
    kind: str
    """aggregate, session_window, deduplicate, stream_join or limit; an operator without such a word, its own name."""
    keys: tuple[str, ...] = ()
    """As far as the text shows them; of a join both sides' in turn."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why Spark would not run it."""

    error_class: str
    """Spark's own, `_LEGACY_ERROR_TEMP_…` where it has no better name (ORDER BY; run on 4.2.0); else empty."""
    message: str


@dataclass(frozen=True, slots=True)
class Opinion:
    """Spark's answer about one side; empty but for `refused` where the analysis failed."""

    sources: tuple[Source, ...] = ()
    columns: tuple[Output, ...] = ()
    operators: tuple[Kept, ...] = ()
    """From the physical plan, in its order: the uppermost first."""
    refused: Refusal | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """Spark's answer to a question."""

    engine: str
    """Spark's version."""
    new: Opinion
    old: Opinion | None = None
    same: bool | None = None
    """True: both sides mean the same to Spark. False proves nothing. None without an old side."""

    def as_json(self) -> dict[str, Any]:
        """Give the answer as it goes over the socket and into the ledger; `answer_from_json` is the inverse."""
        return asdict(self)


def question_from_json(data: Any) -> Question:
    """Rebuild a question; raises UsageError for anything else."""
    try:
        old = data.get("old")
        return Question(_side_from_json(data["new"]), _side_from_json(old) if old else None)
    except (KeyError, TypeError, AttributeError, BadName) as error:
        remedy = "give {new: {select, tables: {name: CREATE TABLE text}}, old: the same or null}"
        raise UsageError(f"this is no question for Spark: {type(error).__name__} {error}", remedy=remedy) from error


def answer_from_json(data: Mapping[str, Any]) -> Answer:
    """Rebuild an answer; raises KeyError or TypeError for what is none."""
    old = data["old"]
    return Answer(data["engine"], _opinion(data["new"]), _opinion(old) if old else None, data["same"])


def answer_known(answers: Mapping[str, str], question: Question | None) -> Answer | None:
    """Find the answer to a question among packed ones, by their key; a damaged one counts as none."""
    packed = answers.get(question.key) if question is not None else None
    try:
        return answer_from_json(json.loads(packed)) if packed else None
    except (ValueError, KeyError, TypeError):
        return None


def disagreements(parsed: Parsed, opinion: Opinion) -> tuple[str, ...]:
    """Say in words where Spark's answer differs from our reading; empty when it does not."""
    return tuple(_disagreements(parsed, opinion))


def _disagreements(parsed: Parsed, opinion: Opinion) -> Iterator[str]:
    if opinion.refused is not None:
        named = f" ({opinion.refused.error_class})" if opinion.refused.error_class else ""
        yield f"it refuses the statement{named}: {_short(opinion.refused.message)}"
        return
    ours = Counter((str(read.table), read.streaming) for read in parsed.reads)
    theirs = Counter((source.table, source.streaming) for source in opinion.sources)
    if ours != theirs:
        yield f"it reads {_sources(theirs)}, we read {_sources(ours)}"
    yield from _column_disagreements(parsed.columns, opinion.columns)
    kinds = Counter(KIND_IN_SPARK.get(operator.kind, operator.kind) for operator in parsed.operators)
    kept = Counter(operator.kind for operator in opinion.operators)
    if kinds != kept:
        yield f"it keeps as state {_kinds(kept)}, we found {_kinds(kinds)}"


def _column_disagreements(ours: tuple[Column, ...], theirs: tuple[Output, ...]) -> Iterator[str]:
    """Compare names by position; a star stands for any number, and an unnamed expression is named by each its way."""
    if not ours or any(column.name == "*" for column in ours):
        return
    if len(ours) != len(theirs):
        yield f"it gives {len(theirs)} columns, we read {len(ours)}"
        return
    for column, output in zip(ours, theirs, strict=True):
        unnamed = column.name == column.expression.lower() and not column.name.isidentifier()
        if not unnamed and column.name.lower() != output.name.lower():
            yield f"it names a column {output.name}, we read {column.name}"


def _sources(found: Counter[tuple[str, bool]]) -> str:
    words = [f"{'STREAM ' if streaming else ''}{table}" for table, streaming in sorted(found.elements())]
    return ", ".join(words) or "no table"


def _kinds(found: Counter[str]) -> str:
    return ", ".join(sorted(found.elements())) or "nothing"


def _short(message: str) -> str:
    return message if len(message) <= _LONGEST else f"{message[: _LONGEST - 1]}…"


def _side_as_json(side: Side) -> dict[str, Any]:
    return {"select": side.select, "tables": dict(side.tables)}


def _side_from_json(data: Any) -> Side:
    tables = {parse_table_name(str(name)): str(ddl) for name, ddl in data["tables"].items()}
    return Side(str(data["select"]), tuple(sorted(tables.items())))


def _opinion(data: Mapping[str, Any]) -> Opinion:
    refused = data["refused"]
    return Opinion(
        sources=tuple(Source(**source) for source in data["sources"]),
        columns=tuple(Output(**column) for column in data["columns"]),
        operators=tuple(Kept(**{**each, "keys": tuple(each["keys"])}) for each in data["operators"]),
        refused=Refusal(**refused) if refused else None,
    )
