"""The commands typed after `:`. A command named after an action performs that action."""

from collections.abc import Callable, Sequence
from functools import partial
from string import hexdigits

from core.lineage.selectors import is_selector
from core.model.names import query_name
from core.text.wording import did_you_mean
from tui.presentation.interaction.input_line import TAKES_TABLES, names
from tui.presentation.interaction.keymap import ConsoleAction, actions_on_screen
from tui.presentation.screen_content.screen_frame import NOT_PROTECTED, lock_answer, unlock_answer
from tui.presentation.styling.styled_text import Tone
from tui.screens.console_screen import acknowledge
from tui.screens.statement_actions import StatementActionsScreen

OF_A_VERSION = frozenset({"stop", "start", "restart"})
"""Actions that accept a single version of a table, such as `orders@v2`."""

RETAIN = "--retain"
CLOSE = "--close"
FROM = "--from"
ALL = "--all"
TO = "--to"


def run_command(screen: StatementActionsScreen, text: str) -> None:
    """Run a typed command. If it is unknown, list the commands that exist."""
    word, _, rest = text.partition(" ")
    word, rest = {"q": "quit", "q!": "quit", "b": "back"}.get(word, word), rest.strip()
    host = screen.state.host
    match word:
        case "":
            return
        case "quit":
            host.quit()
        case "home" | "tree":
            host.go_home()
        case "st" | "statements":
            host.open_screen("statements", filter_text=rest)
        case "audit" | "log" | "runs" | "pools" | "changes":
            host.open_screen(word)
        case "events" if not rest:
            host.open_screen("events")
        case "help" if rest:
            host.open_screen("help", topic=rest)
        case "plan" if rest:
            _plan(screen, rest)
        case "review":
            _review(screen, rest)
        case "logs":
            screen.state.notify("logs: `headgate logs agent` and `headgate logs pool` print them in a shell")
        case "run":
            _run(screen, rest)
        case "undo":
            _undo(screen, rest or screen.undone_by_default())
        case "optimize":
            plan_and_review(screen, word, tuple(rest.split()) or screen.acted_on())
        case "vacuum":
            _vacuum(screen, rest)
        case "rollback" | "undelete" | "retire":
            named = () if word == "undelete" else screen.rolled_back_by_default()
            plan_and_review(screen, word, tuple(rest.split()) or named)
        case "release":
            _run(screen, rest or _newest_release(screen))
        case "close":
            _close(screen, rest)
        case "ack":
            _acknowledge(screen, rest)
        case "pause" | "cancel" | "retry" | "skip" if rest or screen.screen_name != "run":
            _run(screen, rest, then=word)
        case "unlock":
            _unlock(screen, rest)
        case "lock":
            _lock(screen)
        case "promote" | "drain":
            (_promote if word == "promote" else _drain)(screen, rest.split())
        case "diff":
            _diff(screen, rest.split())
        case "schema":
            _schema(screen, rest.split() or screen.view_targets())
        case "env":
            _env(screen, rest)
        case _:
            _act(screen, word, rest)


def _plan(screen: StatementActionsScreen, rest: str) -> None:
    """Review a submitted plan, given the start of its hash, or plan a deploy of tables."""
    words = tuple(rest.split())
    if len(words) == 1 and screen.state.view.statement(words[0]) is None and set(words[0]) <= set(hexdigits.lower()):
        screen.state.host.open_screen("review", plan_hash=rest)
    else:
        plan_and_review(screen, "deploy", words)


def _review(screen: StatementActionsScreen, rest: str) -> None:
    if rest:
        screen.state.host.open_screen("review", plan_hash=rest)
        return
    mine = [mark for mark in screen.state.view.snapshot.staged if mark.actor == screen.state.identity.user]
    fresh = screen.state.freshness
    if not mine:
        screen.state.notify("review: you have staged nothing: D stages a deploy, X a delete", Tone.CHANGING)
    elif fresh.reason:
        screen.state.notify(f"review: {fresh.reason}", Tone.CHANGING)
    else:
        screen.plan_staged()


def _unlock(screen: StatementActionsScreen, rest: str) -> None:
    length, _, ticket = rest.partition(" ")
    if not ticket.strip():
        missing = "how long, and why" if not length else "why"
        screen.state.notify(f"unlock: say {missing}: :unlock {length or '30m'} TICKET", Tone.CHANGING)
        return
    agent, title = screen.state.backend.agent, screen.state.identity.title

    def unlock() -> str:
        found = agent.unlock(length, ticket)
        if found is None:
            return f"{title} {NOT_PROTECTED}"
        return unlock_answer(title, found.actor, found.seconds, found.until, found.ticket)

    screen.state.host.run_in_thread(unlock, screen.show_answer)


def _lock(screen: StatementActionsScreen) -> None:
    agent, title = screen.state.backend.agent, screen.state.identity.title

    def lock() -> str:
        ended, protected = agent.lock()
        return lock_answer(title, ended=ended, protected=protected)

    screen.state.host.run_in_thread(lock, screen.show_answer)


def _env(screen: StatementActionsScreen, rest: str) -> None:
    """Open or show an environment, close one, or list all."""
    word, _, named = rest.partition(" ")
    if word == CLOSE:
        screen.state.host.close_environment(named.strip())
    else:
        screen.state.host.open_environment(rest, screen)


def _promote(screen: StatementActionsScreen, words: list[str]) -> None:
    """Plan the revisions that run in another environment, for the one on the screen."""
    usage = "promote: name tables, or all, and where they run: :promote TABLE… --from ENV, :promote --all --from ENV"
    at = words.index(FROM) if FROM in words else len(words)
    source, asked = words[at + 1 : at + 2], (*words[:at], *words[at + 2 :])
    tables = tuple(word for word in asked if word != ALL)
    if not source or bool(tables) == (ALL in asked):
        screen.state.notify(usage, Tone.CHANGING)
        return
    backend, here = screen.state.backend, screen.state.identity.environment
    what = f"the promotion of {', '.join(tables) or 'everything'} from {source[0]} to {here}"
    _planned(screen, lambda: backend.promote(tables, source[0]), "promote", what)


def _drain(screen: StatementActionsScreen, words: list[str]) -> None:
    """Plan to move all statements of a pool to others."""
    to = words[2] if len(words) == 3 and words[1] == TO else ""
    if not words or len(words) != (3 if to else 1):
        screen.state.notify("drain: name a pool: :drain POOL, or :drain POOL --to POOL", Tone.CHANGING)
        return
    backend, pool = screen.state.backend, words[0]
    _planned(screen, lambda: backend.drain(pool, to), "drain", f"the drain of the pool {pool}")


def _diff(screen: StatementActionsScreen, words: Sequence[str]) -> None:
    state = screen.state
    if not words:
        state.notify("diff: name the environment to compare with this one: :diff ENV", Tone.CHANGING)
        return
    here, (source, *tables) = state.identity.environment, words
    state.host.open_screen(
        "report",
        path=("diff", f"{source} and {here}", *tables),
        read=partial(state.backend.environment_diff, source, tables),
        command=" ".join(("headgate diff", *tables, "--env", source, "--env", here)),
    )


def _schema(screen: StatementActionsScreen, words: Sequence[str]) -> None:
    state = screen.state
    if len(words) != 1:
        state.notify("schema: name one table: :schema TABLE", Tone.CHANGING)
        return
    state.host.open_screen(
        "report",
        path=("schema", words[0]),
        read=partial(state.backend.schema, words[0]),
        command=f"headgate schema {words[0]} --env {state.identity.environment}",
    )


def _run(screen: StatementActionsScreen, rest: str, then: str = "") -> None:
    """Open the run whose id is `rest`, and perform the action `then` on its screen.

    If `rest` is empty, open a run in progress or, if there is none, the latest run.
    """
    state = screen.state

    def open_run(run_id: str) -> None:
        if run_id:
            screen.open_when_free("run", f"the run is :run {run_id[:12]}", run_id=run_id, then=then)
        else:
            state.notify("no run yet: nothing was executed here", Tone.CHANGING)

    if rest or state.view.snapshot.open_runs:
        open_run(rest or state.view.snapshot.open_runs[0].id)
    else:
        state.host.run_in_thread(state.backend.last_run, open_run)


def _undo(screen: StatementActionsScreen, word: str) -> None:
    of, backend = word[:12] or "the last run", screen.state.backend
    _planned(screen, lambda: backend.undo(word), "undo", f"the texts from before {of}")


def _vacuum(screen: StatementActionsScreen, rest: str) -> None:
    named, option, hours = rest.partition(RETAIN)
    before, after = named.split(), hours.split()
    if option and not after:
        screen.state.notify(f"vacuum: {RETAIN} needs hours: :vacuum TABLE {RETAIN} 168", Tone.CHANGING)
        return
    words = (*before, *after[1:]) or screen.acted_on()
    plan_and_review(screen, "vacuum", words, retain=after[0] if option else "")


def plan_and_review(screen: StatementActionsScreen, verb: str, words: tuple[str, ...], *, retain: str = "") -> None:
    """Plan a deploy, rollback, undelete, retire, optimize or vacuum of tables, and open the plan for review.

    A rollback or retirement may name a run instead.
    """
    backend = screen.state.backend
    if not words:
        screen.state.notify(f"{verb}: name tables: :{verb} TABLE", Tone.CHANGING)
        return
    _planned(
        screen,
        lambda: backend.submit_plan_by_verb(verb, words, retain=retain),
        verb,
        f"the {verb} of {', '.join(words)}",
    )


def _newest_release(screen: StatementActionsScreen) -> str:
    found = screen.state.view.snapshot.releases
    return next((one.run for one in found if one.state == "held"), found[0].run if found else "")


def _close(screen: StatementActionsScreen, rest: str) -> None:
    """Close the migration ticket of a reader. On a run's screen, the command omits the run id."""
    state, backend = screen.state, screen.state.backend
    run, _, reader = (screen.undone_by_default(), "", rest) if screen.screen_name == "run" else rest.partition(" ")
    if not reader:
        state.notify("close: name run and reader: :close RUN READER", Tone.CHANGING)
    elif reason := state.read_only or state.freshness.reason or state.access.locked:
        state.notify(f"close: {reason}", Tone.CHANGING)
    else:
        state.host.run_in_thread(lambda: backend.close_ticket(run, reader), screen.show_answer)


def _planned(screen: StatementActionsScreen, submit: Callable[[], str], verb: str, what: str) -> None:
    state = screen.state
    if reason := state.read_only or state.freshness.reason:
        state.notify(f"{verb}: {reason}", Tone.CHANGING)
        return

    def review(plan_hash: str) -> None:
        screen.open_when_free("review", f"the plan is ready: :review {plan_hash[:12]}", plan_hash=plan_hash)

    state.host.run_in_thread(submit, review, progress=f"planning {what}")


def _acknowledge(screen: StatementActionsScreen, rest: str) -> None:
    every = [run.id for run in screen.state.view.snapshot.failed_runs]
    failed = [rest] if rest in every else [run_id for run_id in every if run_id.startswith(rest)]
    if rest and len(failed) > 1:
        screen.state.notify(f"ack: {rest} matches several runs: {', '.join(failed)}", Tone.CHANGING)
        return
    if not failed:
        screen.state.notify(f"ack: no failed run {rest or 'waits to be acknowledged'}", Tone.CHANGING)
    for run_id in failed:
        acknowledge(screen.state, run_id, screen.show_answer)


def _act(screen: StatementActionsScreen, word: str, rest: str) -> None:
    action = next((one for one in actions_on_screen(screen.screen_name) if one.typed == word), None)
    if action is None and word in TAKES_TABLES and rest:
        action = next((one for one in actions_on_screen("home") if one.typed == word), None)
    if action is None:
        known = " ".join(name for name, _ in names(screen.screen_name) if len(name) > 1)
        screen.state.notify(f":{word} is unknown: {known}", Tone.CHANGING)
        return
    if rest and word in TAKES_TABLES:
        _select(screen, action, tuple(rest.replace(",", " ").split()))
    else:
        screen.perform_action(action, f":{word}")


def _select(screen: StatementActionsScreen, action: ConsoleAction, words: tuple[str, ...]) -> None:
    if not any(map(is_selector, words)):
        _act_on(screen, action, words)
        return

    def act(tables: tuple[str, ...]) -> None:
        if screen.is_free:
            _act_on(screen, action, tables)

    host, backend = screen.state.host, screen.state.backend
    host.run_in_thread(lambda: backend.selected(words, act=action.id), act)


def _act_on(screen: StatementActionsScreen, action: ConsoleAction, tables: tuple[str, ...]) -> None:
    view = screen.state.view
    versions = {query_name(one.table, one.version) for one in view.snapshot.statements}
    known = versions if action.id in OF_A_VERSION else frozenset()
    unknown = [name for name in tables if view.statement(name) is None and name not in known]
    if unknown and action.id not in ("stage_deploy", "stage_hold"):
        near = did_you_mean(unknown[0], screen.state.view.statements) if len(unknown) == 1 else ""
        words = f"{', '.join(unknown)}: not deployed here{f'; {near}' if near else ''}"
        screen.state.notify(words, Tone.CHANGING)
    else:
        screen.named = tables
        try:
            screen.perform_action(action, f":{action.typed}")
        finally:
            screen.named = ()
