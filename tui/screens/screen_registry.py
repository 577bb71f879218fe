"""Screens by name: each module is imported when its screen is first opened, so that the first picture comes soon."""

from collections.abc import Mapping
from importlib import import_module
from typing import cast

from tui.screens.console_screen import ConsoleScreen
from tui.screens.console_state import ConsoleState

SCREENS = {
    "statements": ("statements", "StatementsScreen"),
    "detail": ("statement_detail", "DetailScreen"),
    "changes": ("changes", "ChangesScreen"),
    "review": ("review", "ReviewScreen"),
    "run": ("runs", "RunScreen"),
    "runs": ("runs", "RunsScreen"),
    "audit": ("audit_log_events", "AuditScreen"),
    "log": ("audit_log_events", "LogScreen"),
    "events": ("audit_log_events", "EventsScreen"),
    "help": ("help", "HelpScreen"),
}


def make_screen(name: str, desk: ConsoleState, arguments: Mapping[str, object]) -> ConsoleScreen:
    """Make a screen."""
    module, kind = SCREENS[name]
    return cast(ConsoleScreen, getattr(import_module(f"tui.screens.{module}"), kind)(desk, **arguments))
