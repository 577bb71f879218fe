"""The commands backup and restore: what they write, ask and refuse."""

import fcntl
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import written
from ledger_rows import deployment_row, environment_row

from core.model.names import TableName
from state.ledger import LedgerReader, create_or_open
from state.row_types import AuditRow
from tui.command_line import exit_codes
from tui.project_folder.environment_selection import SelectedEnvironment


@pytest.fixture
def ledger(place: SelectedEnvironment) -> Iterator[Path]:
    """The ledger of a stopped agent, with one statement."""
    facts = environment_row(project_id=place.project_id, project=place.project, environment=place.environment)
    path = Path(place.where.ledger)
    with create_or_open(path, facts) as opened:
        opened.put_deployment(deployment_row("a"))
    yield path


def statements(ledger: Path) -> list[str]:
    with LedgerReader(ledger) as reader:
        return [line.table for line in reader.statements()]


def change(ledger: Path, place: SelectedEnvironment) -> None:
    facts = environment_row(project_id=place.project_id, project=place.project, environment=place.environment)
    with create_or_open(ledger, facts) as opened:
        opened.put_deployment(deployment_row("later"))


def test_there_and_back(
    ledger: Path, place: SelectedEnvironment, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = written(["backup", "monday.db"], capsys)
    assert found == {
        "file": str(folder / "monday.db"),
        "bytes": (folder / "monday.db").stat().st_size,
        "verified": True,
        "archives": [],
    }
    change(ledger, place)
    back = written(["restore", "monday.db", "--confirm", place.project], capsys)
    assert (statements(ledger), statements(Path(back["kept"])), back["epoch"]) == (["a"], ["a", "later"], 2)
    assert exit_codes.run_command_line(["restore", "monday.db", "--confirm", place.project]) == 0
    said = capsys.readouterr().err
    assert "the environment is now at epoch 3" in said and "the replaced ledger is kept as " in said


def test_archives_of_the_audit_are_named_because_no_backup_holds_them(
    ledger: Path, place: SelectedEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = environment_row(project_id=place.project_id, project=place.project, environment=place.environment)
    with create_or_open(ledger, facts) as opened:
        opened.add_audit(AuditRow(0, 1.0, "ana", "stop", "a"))
        opened.archive_audit(1e9)
    archive = ledger.with_name("audit-1970.jsonl")
    assert exit_codes.run_command_line(["backup", "monday.db"]) == 0
    assert f"it does not contain older audit entries; also copy: {archive}" in capsys.readouterr().err
    assert written(["backup", "tuesday.db"], capsys)["archives"] == [str(archive)]
    act = ["restore", "monday.db", "--confirm", place.project]
    assert exit_codes.run_command_line(act) == 0
    assert "are missing" not in capsys.readouterr().err
    archive.unlink()
    assert exit_codes.run_command_line(act) == 0
    assert f"older audit entries are missing; put copies at: {archive}" in capsys.readouterr().err


def test_a_restore_is_refused_while_an_agent_runs(
    ledger: Path, place: SelectedEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_codes.run_command_line(["backup", "monday.db"]) == 0
    change(ledger, place)
    with open(place.where.lock, "a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write("4711")
        lock.flush()
        assert exit_codes.run_command_line(["restore", "monday.db", "--confirm", place.project]) == 3
    assert "the agent (pid 4711) is running" in capsys.readouterr().err
    assert statements(ledger) == ["a", "later"]


def test_a_restore_asks_and_changes_nothing_without_an_answer(
    ledger: Path, place: SelectedEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_codes.run_command_line(["backup", "monday.db"]) == 0
    change(ledger, place)
    before = sorted(ledger.parent.iterdir())
    assert exit_codes.run_command_line(["restore", "monday.db", "--confirm", "dev"]) == 3
    assert "--confirm 'shop'" in capsys.readouterr().err.replace(place.project, "shop")
    assert statements(ledger) == ["a", "later"]
    assert [path for path in sorted(ledger.parent.iterdir()) if path.name != "agent.lock"] == before


@pytest.mark.parametrize(
    "words", [["backup", "no/such/folder/b.db"], ["restore", "missing.db"], ["restore", "pipelines"]]
)
def test_unwritable_and_unreadable_files_are_reported_without_a_traceback(
    words: list[str], ledger: Path, place: SelectedEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["--confirm", place.project] if words[0] == "restore" else []
    assert exit_codes.run_command_line([*words, *more]) in (1, 3, 4)
    said = capsys.readouterr().err
    assert words[1].split("/")[-1] in said and "unexpected" not in said
    assert statements(ledger) == ["a"]


def test_without_a_ledger_there_is_nothing_to_back_up(
    place: SelectedEnvironment, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_codes.run_command_line(["backup", "monday.db"]) != 0
    assert not list(folder.glob("monday*"))


def test_names_of_tables_are_what_they_were(ledger: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(["backup", "monday.db"], capsys)
    assert statements(folder / "monday.db") == [TableName("a")]
