"""A picture of the running console as SVG, for the README.

Run: `python -m tui.screens.screenshot FOLDER FILE [WIDTH HEIGHT [KEYS …]]`. The application runs without a terminal
over the environment's own ledger; nothing is sent to an agent.
"""

import asyncio
import getpass
import os
import sys
from pathlib import Path

WAIT_S = 3.0
"""How long the pictured screen may read before the picture is taken."""


async def export(folder: str, target: Path, size: tuple[int, int], keys: tuple[str, ...]) -> None:
    """Open the console over a project folder, press keys, and write what it shows."""
    from tui.presentation.screen_content.banner_footer import ConsoleIdentity
    from tui.project_folder.environment_selection import select_environment
    from tui.screens.application import ConsoleApp
    from tui.screens.backend import ConsoleBackend
    from tui.services.environment_service import EnvironmentService

    bound = select_environment(dict(os.environ), folder)
    service = EnvironmentService(bound, dict(os.environ))
    identity = ConsoleIdentity(bound.project, bound.environment, bound.protected, getpass.getuser())
    environ = {"TERM": "xterm-256color", "LANG": "C.UTF-8", "HEADGATE_THEME": os.environ.get("HEADGATE_THEME", "dark")}
    app = ConsoleApp(ConsoleBackend(service), identity, environ=environ)
    async with app.run_test(size=size) as pilot:
        await pilot.pause(WAIT_S)
        for key in keys:
            await pilot.press(key)
            await pilot.pause(0.3)
        if keys:
            await pilot.pause(WAIT_S)
        target.write_text(app.export_screenshot(title=app.title), encoding="utf-8")
    service.close()


def main(arguments: list[str]) -> int:
    """Read the arguments and export; returns an exit code."""
    if len(arguments) < 2:
        print("usage: python -m tui.screens.screenshot FOLDER FILE [WIDTH HEIGHT [KEYS …]]", file=sys.stderr)
        return 2
    folder, target, *rest = arguments
    size = (int(rest[0]), int(rest[1])) if len(rest) > 1 else (120, 36)
    asyncio.run(export(folder, Path(target), size, tuple(rest[2:])))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
