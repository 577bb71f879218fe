"""The `:` line: what each command opens or does. Commands with the name of an act are the same act."""

from tui.presentation.interaction.colon_completion import TAKES_TABLES, names
from tui.presentation.interaction.keymap import ConsoleAction, actions_on_screen
from tui.presentation.styling.styled_text import Tone
from tui.screens.console_screen import ConsoleScreen
from tui.screens.statement_actions import StatementActionsScreen


def run_command(page: ConsoleScreen, text: str) -> None:
    """Run what was typed; an unknown command says which there are."""
    word, _, rest = text.partition(" ")
    word, rest = {"q": "quit", "q!": "quit", "b": "back"}.get(word, word), rest.strip()
    host = page.desk.host
    match word:
        case "":
            return
        case "quit":
            host.quit()
        case "home" | "tree":
            host.go_home()
        case "st" | "statements":
            host.go("statements", filter_text=rest)
        case "audit" | "log" | "runs" | "changes":
            host.go(word)
        case "events" if not rest:
            host.go("events")
        case "help" if rest:
            host.go("help", topic=rest)
        case "plan" if rest:
            host.go("review", plan_hash=rest)
        case "review":
            _review(page, rest)
        case "run":
            _run(page, rest)
        case "env":
            _env(page, rest)
        case _:
            _act(page, word, rest)


def _review(page: ConsoleScreen, rest: str) -> None:
    if rest:
        page.desk.host.go("review", plan_hash=rest)
        return
    mine = [mark for mark in page.desk.world.snapshot.staged if mark.actor == page.desk.place.user]
    fresh = page.desk.fresh
    if not mine:
        page.desk.say("review: you have staged nothing: D stages a deploy, X a delete", Tone.CHANGING)
    elif fresh.reason:
        page.desk.say(f"review: {fresh.reason}", Tone.CHANGING)
    else:
        desk = page.desk
        desk.say("planning what is staged", Tone.CHANGING)

        def submitted(result: object) -> None:
            page.arrive("review", f"the plan is ready: :review {str(result)[:12]}", plan_hash=str(result))

        desk.host.perform(lambda: desk.operations.submit(desk.place.user), submitted)


def _env(page: ConsoleScreen, rest: str) -> None:
    desk = page.desk

    def known(result: object) -> None:
        names = tuple(result) if isinstance(result, tuple) else ()
        if rest in names and rest != desk.place.environment:
            desk.host.switch(rest)
        else:
            here = f"this is {desk.place.environment}; " if rest == desk.place.environment else ""
            desk.say(f"env: {here}started here: {', '.join(names)}", Tone.CHANGING)

    desk.host.perform(desk.operations.started_environments, known)


def _run(page: ConsoleScreen, rest: str) -> None:
    runs = page.desk.world.snapshot.open_runs
    if rest:
        page.desk.host.go("run", run_id=rest)
    elif runs:
        page.desk.host.go("run", run_id=runs[0].id)
    else:
        page.desk.host.go("runs")


def _act(page: ConsoleScreen, word: str, rest: str) -> None:
    action = next((one for one in actions_on_screen(page.page_name) if one.typed == word), None)
    if action is None and word in TAKES_TABLES and rest:
        action = next((one for one in actions_on_screen("home") if one.typed == word), None)
    if action is None:
        known = ", ".join(name for name, _ in names(page.page_name))
        page.desk.say(f":{word} is not a command here: {known}", Tone.CHANGING)
        return
    if rest and word in TAKES_TABLES:
        _act_on(page, action, tuple(rest.replace(",", " ").split()))
    else:
        page.do(action, f":{word}")


def _act_on(page: ConsoleScreen, action: ConsoleAction, tables: tuple[str, ...]) -> None:
    """Do an act on named tables instead of those under the cursor."""
    unknown = [name for name in tables if page.desk.world.statement(name) is None]
    if unknown and action.id != "stage_deploy":
        page.desk.say(f"{', '.join(unknown)}: not deployed here", Tone.CHANGING)
    elif isinstance(page, StatementActionsScreen):
        page.named = tables
        try:
            page.do(action, f":{action.typed}")
        finally:
            page.named = ()
