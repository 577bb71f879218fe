"""Ephemeral environments as files: recorded and locked, refused, found after a kill, and deleted."""

import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core.ipc.environment_paths import ephemeral_root
from core.model.errors import HeadgateError, Refused
from core.model.names import TableName as T
from core.project.ephemeral import Teardown
from tui.agent_client.agent_process import WaitProgress
from tui.project_folder.environment_selection import select_environment
from tui.services import ephemeral_environment
from tui.services.doctor_checks import check_ephemeral
from tui.services.environment_service import EnvironmentService
from tui.services.ephemeral_environment import (
    EphemeralEnvironment,
    EphemeralRequest,
    SparkServer,
    abandoned,
    create_ephemeral_environment,
    end_abandoned,
    running_server,
)

REQUEST = EphemeralRequest((T("b"),), "headgate test --integration")


def silent(progress: WaitProgress) -> None:
    """Show nothing."""


@pytest.fixture
def operations(folder: Path, tmp_path: Path) -> EnvironmentService:
    environ = {"HEADGATE_HOME": str(tmp_path / "home")}
    return EnvironmentService(select_environment(environ, str(folder), environment="dev"), environ)


def killed(environment: EphemeralEnvironment) -> None:
    """Release the lock as the end of a process does, and leave everything else."""
    os.close(environment._lock)


def test_an_environment_is_recorded_and_deleted_without_a_trace(operations: EnvironmentService) -> None:
    found = create_ephemeral_environment(operations, REQUEST)
    assert found.project.built == ("a", "b") and found.place.environment == found.record.name
    assert not found.place.protected and found.place.where.home.startswith(str(found.folder))
    assert abandoned(operations.environ) == (), "its process lives"
    gone = found.end(silent)
    assert gone.left == () and not Path(ephemeral_root(operations.environ)).exists()


def test_the_next_process_deletes_what_a_killed_one_has_left(operations: EnvironmentService) -> None:
    left, used = (create_ephemeral_environment(operations, REQUEST) for _ in range(2))
    killed(left)
    assert abandoned(operations.environ) == (left.record,)
    (gone,) = end_abandoned(operations.environ, silent)
    assert gone.environment == left.record.name and not gone.left
    assert not left.folder.exists() and used.folder.exists()
    assert abandoned(operations.environ) == ()
    used.end(silent)


def test_doctor_names_what_a_killed_process_has_left(operations: EnvironmentService) -> None:
    assert check_ephemeral(operations.environ) is None
    left = create_ephemeral_environment(operations, REQUEST)
    assert check_ephemeral(operations.environ) is None, "it is used"
    killed(left)
    found = check_ephemeral(operations.environ)
    assert found is not None and found.ok and found.warning and left.record.name in found.summary
    end_abandoned(operations.environ, silent)
    assert check_ephemeral(operations.environ) is None


def test_only_folders_that_were_made_here_are_deleted(operations: EnvironmentService) -> None:
    root = Path(ephemeral_root(operations.environ))
    notes, copied, early = root / "it_notes", root / "it_copy", root / "it_early"
    left = create_ephemeral_environment(operations, REQUEST)
    for folder in (notes, copied, early):
        folder.mkdir()
    (notes / "todo.txt").write_text("remember")
    (copied / "ephemeral.json").write_text(left.record.as_text())
    for name in ("ephemeral.lock", "ephemeral.json"):
        (early / name).touch()
    killed(left)
    gone = end_abandoned(operations.environ, silent)
    assert {each.environment for each in gone} == {left.record.name, "it_early"}, "it_early ended before its record"
    assert sorted(root.iterdir()) == [copied, notes] and [each.name for each in notes.iterdir()] == ["todo.txt"]


def test_a_folder_that_cannot_be_filled_is_deleted_at_once(
    operations: EnvironmentService, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Path, text: str, encoding: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(HeadgateError, match="cannot be written: No space left"):
        create_ephemeral_environment(operations, REQUEST)
    assert not Path(ephemeral_root(operations.environ)).exists()


class Interrupted:
    """Sends the process a signal at every step of an environment, as an impatient user does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.shown: list[str] = []
        self.ended: list[Teardown] = []
        tear_down = ephemeral_environment._tear_down

        def interrupted(*arguments: Any) -> Teardown:
            signal.raise_signal(signal.SIGINT)
            return tear_down(*arguments)

        monkeypatch.setattr(EphemeralEnvironment, "start", lambda self, progress: None)
        monkeypatch.setattr(ephemeral_environment, "_tear_down", interrupted)

    def use(self, operations: EnvironmentService, act: Callable[[], None]) -> None:
        def show(progress: WaitProgress) -> None:
            self.shown.append(progress.what)

        with ephemeral_environment.ephemeral_environment(operations, REQUEST, show, ended=self.ended.append):
            act()


@pytest.mark.parametrize("signals", [0, 1], ids=["during the deletion", "before it, too"])
def test_an_interrupt_does_not_break_off_the_deletion(
    operations: EnvironmentService, monkeypatch: pytest.MonkeyPatch, signals: int
) -> None:
    user, before = Interrupted(monkeypatch), signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        user.use(operations, lambda: [signal.raise_signal(signal.SIGINT) for _ in range(signals)] and None)
    assert [each.left for each in user.ended] == [()]
    assert not Path(ephemeral_root(operations.environ)).exists()
    assert "interrupted; the environment is deleted before the command ends" in user.shown
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_during_the_creation_comes_after_it(
    operations: EnvironmentService, monkeypatch: pytest.MonkeyPatch
) -> None:
    user, create = Interrupted(monkeypatch), ephemeral_environment.create_ephemeral_environment

    def interrupted(*arguments: Any) -> EphemeralEnvironment:
        found = create(*arguments)
        signal.raise_signal(signal.SIGINT)
        return found

    monkeypatch.setattr(ephemeral_environment, "create_ephemeral_environment", interrupted)
    with pytest.raises(KeyboardInterrupt):
        user.use(operations, pytest.fail)
    assert len(user.ended) == 1 and not Path(ephemeral_root(operations.environ)).exists()


def test_the_token_of_a_shared_server_is_neither_in_the_project_nor_in_the_record(
    operations: EnvironmentService,
) -> None:
    request = EphemeralRequest((T("b"),), "test", SparkServer("sc://127.0.0.1:7077", "secret"))
    found = create_ephemeral_environment(operations, request)
    written = "".join(path.read_text() for path in found.folder.rglob("*") if path.is_file())
    assert "sc://127.0.0.1:7077" in written and "secret" not in written and "secret" not in repr(request)
    assert found.folder.stat().st_mode & 0o077 == 0


def test_protected_environments_and_their_servers_are_not_used(operations: EnvironmentService, folder: Path) -> None:
    with pytest.raises(Refused, match="no server of "):
        running_server(operations, "dev")
    with pytest.raises(Refused, match="is protected"):
        running_server(operations, "prod")
    place = select_environment(operations.environ, str(folder), environment="prod")
    with pytest.raises(Refused, match="not used for tests"):
        create_ephemeral_environment(EnvironmentService(place, operations.environ), REQUEST)
    assert not Path(ephemeral_root(operations.environ)).exists()
