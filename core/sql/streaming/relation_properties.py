"""Streaming properties of a relation, and diagnostics for operations that Spark rejects."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sqlglot import exp

from core.sql.parsing.from_clause import first_offset
from core.sql.parsing.star_expansion import left_out, qualifiers_of
from core.sql.parsing.table_names import NamedRead
from core.sql.statement import Operator
from core.sql.tokens.lexer import SqlDiagnostic

UNSUPPORTED = "_LEGACY_ERROR_TEMP_3102"
"""Error class of Spark's streaming check for cases that have no class of their own (Spark 4.2.0)."""
NO_EQUALITY = "_LEGACY_ERROR_TEMP_1181"
AS_PLANNED = ("", NO_EQUALITY)
"""Error classes that Spark raises only when planning a batch, so never for an unused WITH query (Spark 4.2.0)."""
OUTPUT_MODE = "STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION"


@dataclass(frozen=True, slots=True)
class RelationProperties:
    """Streaming properties of a relation: whether it streams, its stateful operators, and its watermarked columns."""

    streaming: bool = False
    operators: tuple[Operator, ...] = ()
    event_times: frozenset[str] = frozenset()
    """Watermarked columns: plain names in the output of a query, `alias.name` inside a SELECT that reads it."""
    outputs: tuple[str, ...] | None = None
    """Column names in order; None if they are unknown, as for a star or a table."""
    watermarked: bool = False
    """Whether the relation has a watermark at any level, even on a column that the output lacks."""
    static: frozenset[str] = frozenset()
    """Aliases of the SELECT's sources that do not stream; empty outside a SELECT."""
    crossed: bool = False
    """Whether a stream and a table are joined without a condition, so that Spark may reorder joins."""
    merged: Mapping[str, bool] = field(default_factory=dict)
    """For each column that USING or NATURAL merges, by plain name: whether it is watermarked."""


@dataclass(slots=True)
class StreamFindings:
    """The query that is being analysed, with its table reads and the diagnostics found so far."""

    query: Any
    """The whole query, normalised and with resolved names."""
    reads: list[NamedRead] = field(default_factory=list)
    diagnostics: list[SqlDiagnostic] = field(default_factory=list)
    numbering: list[SqlDiagnostic] = field(default_factory=list)
    """Diagnostics for functions that number rows, which Spark rejects anywhere in a streaming statement."""

    def refuse(self, summary: str, remedy: str, node: Any, condition: str = UNSUPPORTED, *, subject: str = "") -> None:
        """Add a diagnostic for a node that Spark rejects.

        `condition` is Spark's error class; empty if Spark has none.
        """
        self.diagnostics.append(refused_by_spark(summary, remedy, node, condition, subject=subject))


def under_alias(flow: RelationProperties, alias: str) -> RelationProperties:
    """Return a relation's properties under an alias, which qualifies its event-time columns."""
    names = frozenset(f"{alias}.{name.rpartition('.')[2]}" for name in flow.event_times)
    return replace(flow, event_times=names, static=frozenset() if flow.streaming else frozenset((alias,)))


def with_column_names(flow: RelationProperties, alias: Any, found: StreamFindings) -> RelationProperties:
    """Return a relation's properties after an alias renames its columns; report a wrong number of names.

    If the order of the columns is unknown, no column of the result is an event-time column.
    """
    columns = [column.name for column in alias.columns] if isinstance(alias, exp.TableAlias) else []
    if not columns:
        return flow
    old = flow.outputs or ()
    if flow.outputs is not None and len(columns) != len(old):
        summary = f"{len(columns)} column aliases are given for {len(old)} columns"
        found.refuse(summary, "name each column once", alias, "ASSIGNMENT_ARITY_MISMATCH")
    events = frozenset(new for new, name in zip(columns, old, strict=False) if name in flow.event_times)
    return replace(flow, event_times=events, outputs=tuple(columns))


def is_event_time(node: Any, flow: RelationProperties) -> bool:
    """True if an expression is a watermarked column, or a time window over one."""
    if isinstance(node, exp.Anonymous) and str(node.this) in ("window", "session_window", "window_time"):
        return bool(node.expressions) and is_event_time(node.expressions[0], flow)
    if not isinstance(node, exp.Column):
        return False
    if node.table:
        return f"{node.table}.{node.name}" in flow.event_times
    return has_watermark(flow, node.name)


def has_watermark(flow: RelationProperties, name: str) -> bool:
    """True if an unqualified column name refers to a watermarked column."""
    if name in flow.merged:
        return flow.merged[name]
    return any(each.rpartition(".")[2] == name for each in flow.event_times)


def starred(flow: RelationProperties, star: Any, aliases: Collection[str]) -> set[str]:
    """Return the names of the event-time columns in a star; `aliases` are the aliases of the SELECT's sources.

    A struct from which EXCEPT removes a field is a new value without a watermark.
    """
    gone = left_out(star, aliases)
    names = {each.column for each in gone if not each.alias}
    qualified = {f"{each.alias}.{each.column}" for each in gone if each.alias}
    kept = {each for each in flow.event_times if each not in qualified and each.rpartition(".")[2] not in names}
    if isinstance(star, exp.Star):
        rest = replace(flow, event_times=frozenset(kept))
        return {name for name in (each.rpartition(".")[2] for each in kept) if has_watermark(rest, name)}
    alias = ".".join(part.name for part in qualifiers_of(star))
    return {name.rpartition(".")[2] for name in kept if name.startswith(f"{alias}.")}


def first_place(node: Any) -> int:
    """Return the offset of a call's name or, for other nodes, of the first name below it; 0 if unknown."""
    own = node.meta.get("start")
    places = (each.meta["start"] for each in node.find_all(exp.Identifier, exp.Anonymous) if "start" in each.meta)
    return int(own if own is not None else min(places, default=0))


def missing_watermark(node: Any, what: str, remedy: str) -> SqlDiagnostic:
    """Return the diagnostic for an operation that needs a watermark in append mode.

    `what` is the operation in the message, such as `DISTINCT`.
    """
    return refused_by_spark(f"{what} over a stream needs a watermark in append mode", remedy, node, OUTPUT_MODE)


def too_many_event_times(node: Any, where: str, times: Iterable[str]) -> SqlDiagnostic:
    """Return the diagnostic for a stateful operator over several watermarked columns.

    Spark itself reports this only when it plans a batch.
    """
    summary = f"{where} has {len(set(times))} columns with a watermark, and Spark keeps state by only one"
    remedy = "keep only one of them, or write the others as an expression: ts + INTERVAL 0 SECONDS AS other_ts"
    return refused_by_spark(summary, remedy, node, "")


def refused_by_spark(
    summary: str, remedy: str, node: Any, condition: str = UNSUPPORTED, *, subject: str = ""
) -> SqlDiagnostic:
    """Return the diagnostic for a node that Spark rejects, located at its first name or, without one, at the statement.

    `condition` is Spark's error class; empty if Spark has none.
    """
    return SqlDiagnostic(summary, remedy, first_offset(node), subject=subject, condition=condition)
