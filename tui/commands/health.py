"""The command `health`: how each product does. It reads the ledger alone, and never waits for an agent.

It is no option of `ls`: its lines, its data and what it counts are products and layers, not statements.
"""

from core.model.errors import UsageError
from core.run.records import overdue_tickets
from core.text.wording import did_you_mean
from tui.command_line.context import CommandContext
from tui.command_line.output import format_table
from tui.command_line.statement_output import check_fail_on, data_age_line, parse_conditions
from tui.presentation.reports.product_health import HEAD, RIGHT, as_json, failing_rows, health_by_product, rows
from tui.presentation.screen_content.releases import ticket_as_json, ticket_words, verdict


def health(context: CommandContext) -> int:
    """Sum up products and their layers; 1 when `--fail-on` matches a statement of theirs."""
    args, voice = context.args, context.voice
    conditions = parse_conditions(args.fail_on)
    snapshot = context.operations.snapshot()
    known = sorted({line.product for line in snapshot.serving})
    for product in args.products:
        if product not in known:
            raise UsageError(
                f"no table of product {product} is deployed here",
                remedy=did_you_mean(product, known) or f"products: {', '.join(known) or 'none yet'}",
            )
    lines = [line for line in snapshot.serving if not args.products or line.product in args.products]
    staged = frozenset(str(mark.table) for mark in snapshot.staged)
    found = health_by_product(snapshot.serving, staged, args.products)
    late = overdue_tickets(snapshot.tickets, snapshot.read_at)
    if voice.as_json:
        products = [as_json(product) for product in found]
        releases = [{"run": one.run, "state": one.state, "since": one.since} for one in snapshot.releases]
        context.document(
            "headgate.health/1",
            age_s=snapshot.age_s,
            pool_state=snapshot.pool_state,
            products=products,
            releases=releases,
            overdue_tickets=[{"run": one.run_id, **ticket_as_json(one)} for one in late],
        )
    else:
        voice.print(format_table(HEAD, rows(found), right=RIGHT))
        if failing := failing_rows(found, snapshot.read_at):
            voice.print(
                ["", *format_table(("FAILING", "VER", "PRODUCT", "STATE", "LAST ERROR"), failing, right=("VER",))]
            )
        voice.print(f"run {one.run}: {said}" for one in snapshot.releases if (said := verdict(one, snapshot.read_at)))
        voice.print(f"run {one.run_id}: ticket of {ticket_words(one, snapshot.read_at)}" for one in late)
        voice.say(data_age_line(context, snapshot, lines))
    return check_fail_on(context, conditions, lines)
