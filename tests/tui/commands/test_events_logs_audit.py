"""Following a log: every line is shown once, even if the log is rotated or truncated meanwhile."""

import os
from pathlib import Path

import pytest

from tui.commands import events_logs_audit


class Seen(Exception):
    """Raised once the last line that a test waits for has been shown."""


def test_a_followed_log_loses_no_line_where_it_is_rotated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, shown = tmp_path / "agent.log", list[str]()
    log.write_text("before\n")
    asked, rotate = events_logs_audit._is_another, iter([True])

    def rotated(path: str, file: object) -> bool:
        if next(rotate, False):
            with log.open("a") as old:
                old.write("one\ntwo\n")
            os.rename(log, tmp_path / "agent.log.1")
            log.write_text("three\n")
        return asked(path, file)  # type: ignore[arg-type]  # The file of the caller.

    def show(line: str) -> None:
        shown.append(line)
        if line == "three":
            raise Seen

    monkeypatch.setattr(events_logs_audit, "_is_another", rotated)
    with pytest.raises(Seen):
        events_logs_audit._follow_file(str(log), show)
    assert shown == ["one", "two", "three"]
