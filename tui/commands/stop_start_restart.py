"""The commands `stop`, `start` and `restart`, which report the outcome for each statement."""

from collections.abc import Iterable

from core.model.act_outcomes import ActOutcome, exit_code_of_all
from core.model.errors import HeadgateError, UsageError
from core.model.names import parse_statement_name, query_name
from core.observed.versions import Deployment, serving_versions
from tui.command_line.context import CommandContext
from tui.services.deployed_statements import not_deployed_error
from tui.services.environment_service import EnvironmentService

EFFECTS = {
    "stop": "Stopping: {tables}. Checkpoints are kept; readers get no new rows.",
    "start": "Starting on their checkpoints: {tables}.",
    "restart": "Stopping and starting on their checkpoints: {tables}.",
}

_UNENDED = (
    "the ledger could not be written: an earlier stop of the table still prevents its other versions from running"
)
_NOT_RECORDED = {
    "stop": "neither ledger nor emergency journal could be written: the change is lost if the agent stops now",
    "start": _UNENDED,
    "restart": _UNENDED,
}
"""Consequence, by command, if the command's action could not be recorded."""


def act(context: CommandContext) -> int:
    """Stop, start or restart statements. The exit code combines their outcomes (`exit_code_of_all`)."""
    verb, operations = context.args.verb, context.operations
    tables = _named(operations, context.args.tables)
    deployed = _deployed(context)
    if deployed is not None:
        _refuse_unknown(tables, deployed)
    context.announce()
    for words in _side_effects(context, deployed, tables) if verb == "stop" else ():
        context.output.say(words)
    needed = operations.agent.confirmation(verb, tables)
    question = EFFECTS[verb].format(tables=", ".join(tables)) + _readers(deployed or (), tables)
    confirm = context.confirm(needed.text, question, op="" if verb == "stop" else verb)
    outcomes = operations.agent.act(verb, tables, confirm=confirm)
    body = {"act": verb, "statements": [outcome.as_json() for outcome in outcomes]}
    context.answer(body, lines=[_line(outcome) for outcome in outcomes])
    for outcome in outcomes:
        if outcome.error is not None and outcome.error.remedy:
            context.output.say(f"{outcome.table}: {outcome.error.remedy}")
    if not all(outcome.recorded for outcome in outcomes):
        context.output.say(
            f"Spark was called, but {_NOT_RECORDED[verb]}\n"
            f"  free space for {context.place.where.home}, then {verb} again"
        )
    return exit_code_of_all(outcomes)


def _deployed(context: CommandContext) -> tuple[Deployment, ...] | None:
    # An unreadable ledger must not prevent the command.
    try:
        return context.operations.reader.deployments()
    except HeadgateError:
        return None


def _side_effects(context: CommandContext, deployed: tuple[Deployment, ...] | None, tables: list[str]) -> Iterable[str]:
    # A stop must work even if the ledger cannot be read.
    from core.run.stopped_statement_sentences import stop_words

    try:
        return stop_words(deployed, context.operations.reader.open_runs(), tables) if deployed else ()
    except HeadgateError:
        return ()


def _named(operations: EnvironmentService, words: list[str]) -> list[str]:
    rest = [word for word in words if "@" not in word]
    tables = set(operations.statements_selected(rest)) if rest else set()
    versions = {parse_statement_name(word) for word in words if "@" in word}
    return sorted({*tables, *(name for name in versions if name.partition("@")[0] not in tables)})


def _refuse_unknown(tables: list[str], deployed: tuple[Deployment, ...]) -> None:
    # Checked before the user has to confirm. The agent checks the rest.
    external: dict[str, bool] = {each.table: each.external for each in deployed}
    for name in tables:
        table, version = name.partition("@")[::2]
        there = [f"{table}@v{each.version}" for each in deployed if version and each.table == table]
        if there and name not in there:
            raise UsageError(f"{name} is not deployed here", remedy=f"there is {', '.join(there)}")
        if table not in external:
            raise not_deployed_error(table, external)
        if external[table]:
            summary = f"{table} is an external table: Headgate runs no statement for it"
            raise UsageError(summary, remedy="headgate ls shows what is deployed")


def _readers(deployed: tuple[Deployment, ...], tables: list[str]) -> str:
    readers = {
        str(d.table)
        for d in serving_versions(deployed).values()
        for b in d.bindings
        if (b.parent in tables or query_name(b.parent, b.version) in tables) and d.table not in tables
    }
    return f"\nRead by: {', '.join(sorted(readers))}." if readers else ""


def _line(outcome: ActOutcome) -> str:
    version = f" v{outcome.version}" if outcome.version else ""
    return f"{outcome.table}{version}: {outcome.sentence(f'{outcome.took_ms:.0f} ms')}"
