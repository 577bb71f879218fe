"""Screens by name: each module is imported when its screen is first opened, so that the first picture comes soon."""

from collections.abc import Mapping
from importlib import import_module
from typing import cast

from tui.screens.desk import Desk
from tui.screens.page import Page

SCREENS = {
    "statements": ("statements", "StatementsPage"),
    "detail": ("detail", "DetailPage"),
    "changes": ("changes", "ChangesPage"),
    "review": ("review", "ReviewPage"),
    "run": ("run", "RunPage"),
    "runs": ("runs", "RunsPage"),
    "audit": ("records", "AuditPage"),
    "log": ("records", "LogPage"),
    "events": ("records", "EventsPage"),
    "help": ("helping", "HelpPage"),
}


def make_page(name: str, desk: Desk, arguments: Mapping[str, object]) -> Page:
    """Make a screen."""
    module, kind = SCREENS[name]
    return cast(Page, getattr(import_module(f"tui.screens.{module}"), kind)(desk, **arguments))
