"""The command `diff` with two environments: what runs in one and not in the other, from both ledgers, read-only."""

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import replace

from core.model.errors import HeadgateError, Refused, UsageError
from core.model.names import TableName, parse_table_name
from core.observed.versions import heartbeat_age_s, is_stale, serving_versions
from core.plan.model import Plan
from core.plan.request import PlanRequest
from core.project.revision import written_hash
from core.text.wording import did_you_mean
from state.ledger import LedgerReader
from tui.command_line.context import CommandContext
from tui.presentation.reports.environment_difference import (
    TableInTwo,
    TableThere,
    difference_as_json,
    difference_lines,
    difference_summary,
)
from tui.services.promotion import deployed_tables, open_source_of

DIFFERS = 10
"""Exit code if a table differs, as that of `plan --exit-code` for a plan with changes."""


def environment_diff(context: CommandContext) -> int:
    """Print the tables that differ between two environments, and what a promotion from the first would do.

    Returns DIFFERS if a table differs, and otherwise 0.
    """
    args, output, place = context.args, context.output, context.place
    names: tuple[str, ...] = args.environments
    if len(names) != 2 or names[0] == names[1] or args.spark:
        remedy = "headgate diff --env E --env F, with tables or --product to compare only these"
        raise UsageError("two different environments can be compared, without --spark", remedy=remedy)
    with ExitStack() as opened:
        readers = [opened.enter_context(closing(open_source_of(place, context.environ, name))) for name in names]
        first, second = map(_tables, readers)
        for name, reader in zip(names, readers, strict=True):
            if _unobserved(reader):
                output.say(f"no agent observes {name}: its states and lags are those last recorded")
    chosen = _chosen(context, first, second)
    plan, unknown = _promotion(context, names[0])
    nodes = {node.table: node for node in plan.nodes} if plan is not None else {}
    refusals = {refusal.table: refusal.summary for refusal in plan.refusals} if plan is not None else {}
    tables = tuple(
        TableInTwo(table, first.get(table), second.get(table), nodes.get(table), refusals.get(table))
        for table in sorted(chosen)
    )
    differing = [table for table in tables if table.differs]
    shown, same = tables if args.all else differing, len(tables) - len(differing)
    valued = sum(bool(table.values) for table in tables if not table.differs)
    if output.as_json:
        output.data(difference_as_json(names, shown, project=place.project, same=same, other_values=valued))
    else:
        output.print(difference_lines(names, shown))
        output.say(difference_summary(len(differing), same, valued) + (" (--all)" if valued and not args.all else ""))
        if unknown is not None and differing:
            output.say(f"what a promotion would do is unknown: {unknown.summary}")
        elif refused := [table for table in differing if table.refusal is not None]:
            which = ",".join(table.table for table in refused)
            output.say(f"headgate promote --all is refused for what is marked; to leave it out: --exclude {which}")
    return DIFFERS if differing else 0


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
    context: CommandContext, first: Mapping[TableName, TableThere], second: Mapping[TableName, TableThere]
) -> Iterator[TableName]:
    named, products = frozenset(map(parse_table_name, context.args.names)), frozenset(context.args.product)
    known = {table: (first.get(table) or second[table]).line.product for table in (*first, *second)}
    for name in sorted(named - known.keys()):
        raise UsageError(
            f"{name} is deployed in neither environment",
            remedy=did_you_mean(name, known) or "headgate ls lists what is deployed",
        )
    for product in sorted(products - set(known.values())):
        raise UsageError(
            f"neither environment has a table of a product {product!r}",
            remedy=did_you_mean(product, set(known.values())) or f"products: {', '.join(sorted(set(known.values())))}",
        )
    return (t for t, product in known.items() if not (named or products) or t in named or product in products)


def _promotion(context: CommandContext, source: str) -> tuple[Plan | None, HeadgateError | None]:
    """Plan the promotion of everything; return the plan or why it cannot be planned."""
    operations = context.operations
    try:
        asked = PlanRequest(everything=True, with_parents=True, children="all", promoted_from=source)
        found = operations.promotion((), asked)
        known = replace(operations.planner_input(), source=found.source)
        return operations.compute_over(found.declared.project, known, found.request), None
    except (Refused, UsageError) as error:
        return None, error
