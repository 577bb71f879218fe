"""Screens of the audit log, the command log and the event log: read-only records, newest first."""

from collections.abc import Sequence

from textual.widget import Widget

from core.model.names import TableName
from core.text.wording import counted
from state.row_types import CommandRow, EventRow
from tui.presentation.screen_content.audit_log_events import (
    COMMANDS,
    Record,
    audit_columns,
    audit_text,
    command_text,
    event_columns,
    event_text,
    record_row,
)
from tui.presentation.screen_content.changes import rule
from tui.presentation.styling.styled_text import Line, Tone
from tui.presentation.styling.table_layout import header
from tui.screens.console_state import ConsoleState
from tui.screens.table_screen import TableScreen
from tui.widgets.line_widgets import ScrollingLines

MOST_EVENTS = 500
"""Maximum number of events that are read for all tables."""


class RecordsScreen(TableScreen):
    """A list of records, newest first, with the full text of the selected record below it."""

    def __init__(self, state: ConsoleState) -> None:
        super().__init__(state)
        self.records: dict[str, Record] = {}
        self.pane = ScrollingLines(state.painter, id="few")

    def body(self) -> Sequence[Widget]:
        return (self.table, self.pane)

    def receive(self, fetched: object) -> None:
        if isinstance(fetched, tuple):
            self.records = {str(one.id): one for one in fetched}

    def row_ids(self) -> Sequence[str]:
        needle = self.typed.filter_text.lower()
        return [row for row, one in self.records.items() if needle in self.words(one).lower()]

    def words(self, one: Record) -> str:
        """Return the text of a record that a filter searches."""
        if isinstance(one, EventRow):
            return f"{one.table} {one.kind} {one.summary}"
        if isinstance(one, CommandRow):
            return f"{one.actor} {one.op} {one.line} {one.outcome} {one.detail}"
        return f"{one.actor} {one.action} {one.subject} {one.outcome} {one.plan_hash}"

    def text(self, one: Record, width: int) -> tuple[Line, ...]:
        """Return the full text of a record."""
        if isinstance(one, EventRow):
            return event_text(one, width, self.state.clock())
        return command_text(one, width) if isinstance(one, CommandRow) else audit_text(one, width)

    def refresh_body(self) -> None:
        super().refresh_body()
        width = self.pane.size.width
        chosen = self.records.get(self.table.cursor_id or "")
        if width and chosen is not None:
            self.pane.show(
                (
                    rule(f"{self.screen_name} {self.table.cursor_id}", width, self.state.glyphs),
                    *self.text(chosen, width),
                )
            )

    def picture(self, row: str, width: int) -> Line:
        return record_row(self.records[row], width, self.state.clock())

    def is_gone(self, row: str) -> bool:
        return row not in self.records

    def under_cursor(self) -> tuple[str, ...]:
        chosen = self.records.get(self.table.cursor_id or "")
        words = (chosen.table if isinstance(chosen, EventRow) else chosen.subject).split() if chosen else ()
        return tuple(word for word in words if self.state.view.statement(word) is not None)

    def path_and_counts(self) -> tuple[Sequence[str], str]:
        return (self.screen_name,), self.with_below(
            f"{len(self.table.ids)} of {len(self.records)}" if self.was_read else ""
        )

    def copy_text(self) -> str:
        chosen = self.records.get(self.table.cursor_id or "")
        return self.words(chosen) if chosen is not None else ""


class AuditScreen(RecordsScreen):
    """The screen that lists audit entries."""

    screen_name = "audit"

    def head(self, width: int) -> Line:
        return header(audit_columns(width), width)

    def fetch(self) -> object:
        return self.state.backend.reader.audits()

    def copy_line(self) -> str:
        return f"headgate audit --env {self.state.identity.environment}"


class LogScreen(RecordsScreen):
    """The screen that lists logged commands."""

    screen_name = "log"

    def head(self, width: int) -> Line:
        return header(COMMANDS, width)

    def fetch(self) -> object:
        return self.state.backend.reader.commands()

    def copy_line(self) -> str:
        chosen = self.records.get(self.table.cursor_id or "")
        return chosen.line if isinstance(chosen, CommandRow) and chosen.line else super().copy_line()


class EventsScreen(RecordsScreen):
    """The screen that lists events of statements, the pool and runs."""

    screen_name = "events"

    def head(self, width: int) -> Line:
        return header(event_columns(width), width)

    def __init__(self, state: ConsoleState, *, tables: tuple[str, ...] = ()) -> None:
        super().__init__(state)
        self.tables = tables

    def fetch(self) -> object:
        reader = self.state.backend.reader
        if len(self.tables) == 1:
            return reader.events(TableName(self.tables[0]))
        found = reader.events(limit=MOST_EVENTS)
        return tuple(event for event in found if event.table in self.tables) if self.tables else found

    def path_and_counts(self) -> tuple[Sequence[str], str]:
        of = counted(len(self.tables), "table") if self.tables else "all tables"
        return ("events", f"of {of}"), super().path_and_counts()[1]

    def copy_line(self) -> str:
        return f"headgate events --env {self.state.identity.environment}"

    def do_enter_row(self, key: str) -> None:
        chosen = self.records.get(self.table.cursor_id or "")
        if isinstance(chosen, EventRow) and chosen.table:
            self.state.host.open_screen("detail", table=chosen.table, tab="events")
        else:
            self.state.notify("this event does not belong to one statement; the full text is below", Tone.DIM)
