"""Comparison of two environments of a project: what runs in one and not in the other, from both ledgers, read-only."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from core.model.errors import HeadgateError, Refused, UsageError
from core.model.names import TableName, parse_table_name
from core.observed.versions import heartbeat_age_s, is_stale, serving_versions
from core.plan.model import Plan
from core.plan.request import PlanRequest
from core.project.revision import written_hash
from core.text.wording import did_you_mean
from state.ledger import LedgerReader
from tui.presentation.reports.environment_difference import (
    TableInTwo,
    TableThere,
    difference_lines,
    difference_summary,
    unobserved_words,
)
from tui.services.promotion import deployed_tables, open_source_of

if TYPE_CHECKING:
    from tui.services.environment_service import EnvironmentService


@dataclass(frozen=True, slots=True)
class EnvironmentComparison:
    """The tables of two environments, and what a promotion from the first to the second would do."""

    tables: tuple[TableInTwo, ...]
    """Sorted by name."""
    unobserved: tuple[str, ...]
    """Environments without an agent, whose states and lags are those last recorded."""
    unknown: HeadgateError | None
    """Why it is unknown what a promotion would do; None if it is known."""

    @property
    def differing(self) -> tuple[TableInTwo, ...]:
        """The tables of which the environments run different revisions, or which only one of them runs."""
        return tuple(table for table in self.tables if table.differs)

    @property
    def other_values(self) -> int:
        """Number of tables with the same revision and other values of variables."""
        return sum(bool(table.values) for table in self.tables if not table.differs)

    def notes(self) -> Iterator[str]:
        """Yield what limits a promotion of everything, as sentences."""
        if self.unknown is not None and self.differing:
            yield f"what a promotion would do is unknown: {self.unknown.summary}"
        elif refused := [table for table in self.differing if table.refusal is not None]:
            which = ",".join(table.table for table in refused)
            yield f"headgate promote --all is refused for what is marked; to leave it out: --exclude {which}"


def compare_environments(
    operations: "EnvironmentService",
    names: tuple[str, str],
    *,
    tables: Sequence[TableName] = (),
    products: Sequence[str] = (),
) -> EnvironmentComparison:
    """Compare two environments; `operations` are those on the second one.

    With `tables` or `products`, only these are compared. Raises UsageError if one of them is in neither environment,
    or if there is no such environment.
    """
    place, environ = operations.place, operations.environ
    with ExitStack() as opened:
        readers = [opened.enter_context(closing(open_source_of(place, environ, name))) for name in names]
        # The promotion reads the same ledgers, and a reader keeps what it has read.
        readers = [readers[0], operations.reader if names[1] == place.environment else readers[1]]
        first, second = map(_tables, readers)
        unobserved = tuple(name for name, reader in zip(names, readers, strict=True) if _unobserved(reader))
        chosen = tuple(_chosen(tables, products, first, second))
        plan, unknown = _promotion(operations, names[0], readers[0])
    nodes = {node.table: node for node in plan.nodes} if plan is not None else {}
    refusals = {refusal.table: refusal.summary for refusal in plan.refusals} if plan is not None else {}
    found = tuple(
        TableInTwo(table, first.get(table), second.get(table), nodes.get(table), refusals.get(table))
        for table in sorted(chosen)
    )
    return EnvironmentComparison(found, unobserved, unknown)


def comparison_lines(operations: "EnvironmentService", source: str, words: Sequence[str]) -> tuple[str, ...]:
    """Compare `source` with the environment of `operations`, for the tables `words` or for all; return lines of text.

    Raises UsageError if `source` is the same environment, or as `compare_environments` does.
    """
    here = operations.place.environment
    if source == here:
        raise UsageError(f"this is {source}", remedy="name another environment: :diff ENV")
    found = compare_environments(operations, (source, here), tables=tuple(map(parse_table_name, words)))
    differing = found.differing
    return (
        *difference_lines((source, here), differing),
        *([""] if differing else []),
        difference_summary(len(differing), len(found.tables) - len(differing), found.other_values),
        *map(unobserved_words, found.unobserved),
        *found.notes(),
    )


def _tables(reader: LedgerReader) -> dict[TableName, TableThere]:
    with reader.frame():
        lines, deployed = serving_versions(reader.statements()), deployed_tables(reader)
    return {
        table: TableThere(lines[table], written_hash(d.texts), dict(d.texts.variables))
        for table, d in deployed.items()
        if table in lines
    }


def _unobserved(reader: LedgerReader) -> bool:
    facts = reader.facts()
    return facts is None or is_stale(heartbeat_age_s(facts.agent_seen_at, time.time()), facts.agent_pid)


def _chosen(
    tables: Sequence[TableName],
    products: Sequence[str],
    first: Mapping[TableName, TableThere],
    second: Mapping[TableName, TableThere],
) -> Iterator[TableName]:
    named, wanted = frozenset(tables), frozenset(products)
    known = {table: (first.get(table) or second[table]).line.product for table in (*first, *second)}
    for name in sorted(named - known.keys()):
        raise UsageError(
            f"{name} is deployed in neither environment",
            remedy=did_you_mean(name, known) or "headgate ls lists what is deployed",
        )
    for product in sorted(wanted - set(known.values())):
        raise UsageError(
            f"neither environment has a table of a product {product!r}",
            remedy=did_you_mean(product, set(known.values())) or f"products: {', '.join(sorted(set(known.values())))}",
        )
    return (t for t, product in known.items() if not (named or wanted) or t in named or product in wanted)


def _promotion(
    operations: "EnvironmentService", source: str, reader: LedgerReader
) -> tuple[Plan | None, HeadgateError | None]:
    """Plan the promotion of everything; return the plan or why it cannot be planned."""
    try:
        asked = PlanRequest(everything=True, with_parents=True, children="all", promoted_from=source)
        found = operations.promotion((), asked, source=reader)
        known = replace(operations.planner_input(), source=found.source)
        return operations.compute_over(found.declared.project, known, found.request), None
    except (Refused, UsageError) as error:
        return None, error
