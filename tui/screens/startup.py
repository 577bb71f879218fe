"""Starts the console: draws the last known state first, and only then imports everything else."""

import gc
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from tui.presentation.screen_content.screen_frame import ConsoleIdentity, LaterCommands

if TYPE_CHECKING:
    from state.ledger_snapshot import LedgerSnapshot
    from tui.screens.backend import ConsoleBackend
    from tui.screens.environment_tab import OpenedEnvironment


def run_console(
    identity: ConsoleIdentity,
    read_ledger: "Callable[[LedgerSnapshot | None], LedgerSnapshot]",
    open_backend: "Callable[[], ConsoleBackend]",
    *,
    environ: Mapping[str, str] = os.environ,
    read_only: str = "",
    offer_down: Callable[[], object] | None = None,
    later: LaterCommands | None = None,
    open_environment: "Callable[[str], OpenedEnvironment] | None" = None,
    also: Sequence[str] = (),
) -> int:
    """Run the console until the user leaves it; return an exit code.

    The first frame shows the snapshot that `read_ledger` returns; `open_backend` is called once that frame is on
    screen. `read_only` explains why this user may not act; it is empty if this user may. If the user chooses to stop
    everything, `offer_down` is called once the terminal is restored; if `offer_down` is None, that choice is not
    offered. `later` contains the commands to show to a user who leaves. `open_environment` opens another environment of
    the project by its name, in a thread, and raises HeadgateError; the environments `also` are opened once the first
    one is on screen.
    """
    refused = refusal(environ, interactive=sys.stdin.isatty() and sys.stderr.isatty())
    if refused:
        print(f"headgate: {refused}", file=sys.stderr)
        return 2
    from tui.presentation.view.ledger_view import make_ledger_view
    from tui.terminal.first_frame import FirstFrame

    with FirstFrame(environ) as opening:
        # Almost all objects made until then stay alive: traversing them would take a fifth of the time.
        gc.disable()
        try:
            view = make_ledger_view(read_ledger(None))
            opening.draw(identity, view)
        finally:
            gc.freeze()
            gc.enable()
        from tui.screens.application import STOP_ALL, ConsoleApp

        app = ConsoleApp(
            open_backend(),
            identity,
            environ=environ,
            first=view,
            opening=opening,
            read_only=read_only,
            offer_down=offer_down is not None,
            later=later,
            open_environment=open_environment,
            also=also,
        )
        code = app.run(mouse=environ.get("HEADGATE_MOUSE") == "1")
    if code == STOP_ALL and offer_down is not None:
        offer_down()
        return 0
    return code or app.return_code or 0


def refusal(environ: Mapping[str, str], *, interactive: bool) -> str:
    """Explain why the console cannot run here; empty if it can."""
    if not interactive:
        return "the console needs a terminal; commands such as `headgate ls` do not"
    if environ.get("TERM", "") in ("", "dumb", "unknown"):
        return f"the console cannot draw on TERM={environ.get('TERM', '')!r}; `headgate ls` works on any terminal"
    return ""
