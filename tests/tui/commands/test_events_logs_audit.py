"""Logs: which one is shown, and every line of a followed one, even if it is rotated or truncated meanwhile."""

import os
from pathlib import Path
from typing import Any

import pytest

from tui.command_line import exit_codes
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


JOB = "SELECT * FROM python_job(landed => STREAM landed)\n-- function: a\n-- requirements: []\n-- code:\n-- |x = 1\n"


def said(words: str, capsys: pytest.CaptureFixture[str], code: int) -> str:
    assert exit_codes.run_command_line(words.split()) == code
    found = capsys.readouterr()
    return found.out + found.err


def test_the_log_of_a_job_is_that_of_the_version_named_or_built_last(
    ledger: Any, deployed: Any, place: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    for version in (1, 2):
        ledger.put_deployment(deployed("a", version=version, compiled=JOB))
    ledger.put_deployment(deployed("b"))
    folder = Path(place.where.job_logs)
    assert f"there is no log of a yet ({folder}/a@v2.log)" in said("logs --job a", capsys, 2)
    folder.mkdir()
    for version, at in ((1, 2000), (2, 1000)):
        (folder / f"a@v{version}.log").write_text(f"built v{version}\n\x1b[31mred\n")
        os.utime(folder / f"a@v{version}.log", (at, at))
    assert said("logs --job a", capsys, 0) == "built v1\n\\x1b[31mred\n"
    assert said("logs --job a@v2 -n 2", capsys, 0).startswith("built v2\n")
    assert "what is deployed of b is not a job in Python: v1\n  headgate history b" in said("logs --job b", capsys, 2)
    assert "nowhere has never been deployed here" in said("logs --job nowhere", capsys, 2)
    assert "a@v3 has never been deployed here" in said("logs --job a@v3", capsys, 2)
    assert "--job and pool name two logs" in said("logs pool --job a", capsys, 2)
