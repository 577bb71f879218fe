"""Ephemeral environments as files: recorded and locked, refused, found after a kill, and deleted."""

import errno
import json
import os
import signal
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from core.ipc.environment_paths import ephemeral_root
from core.model.errors import HeadgateError, Refused
from core.model.names import TableName as T
from core.model.secret_references import SecretKind, SecretReference
from core.observed.spark_work import ServerHeap, WorkOfPool
from core.project.ephemeral import Remains, Teardown
from core.project.model import Pool
from core.sql.kafka_topics import topic_place
from tui.agent_client import agent_process
from tui.agent_client.agent_commands import AgentCommands
from tui.agent_client.agent_process import WaitProgress
from tui.project_folder.environment_selection import select_environment
from tui.services import ephemeral_environment, ephemeral_teardown, ephemeral_topics
from tui.services.doctor_checks import check_ephemeral
from tui.services.environment_service import EnvironmentService
from tui.services.ephemeral_environment import (
    EphemeralEnvironment,
    EphemeralRequest,
    create_ephemeral_environment,
    running_server,
)
from tui.services.ephemeral_record import abandoned
from tui.services.ephemeral_teardown import end_abandoned
from tui.services.table_client import SparkServer

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
        tear_down = ephemeral_environment.tear_down

        def interrupted(*arguments: Any) -> Teardown:
            signal.raise_signal(signal.SIGINT)
            return tear_down(*arguments)

        monkeypatch.setattr(EphemeralEnvironment, "start", lambda self, progress: None)
        monkeypatch.setattr(ephemeral_environment, "tear_down", interrupted)

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


def test_the_environment_reaches_a_server_of_others_as_the_declared_one_does(operations: EnvironmentService) -> None:
    token = SecretReference(SecretKind.FILE, "/run/secrets/spark")
    declared = Pool("shared", "sc://spark:15002", token=token, tls=True, ca="/etc/spark.pem")
    request = EphemeralRequest((T("b"),), "test", SparkServer("sc://spark:15002", pool=declared))
    found = create_ephemeral_environment(operations, request)
    pool = found.operations.project().environments[found.record.name].pool
    assert (pool.url, pool.token, pool.tls, pool.ca) == (declared.url, token, True, "/etc/spark.pem")
    assert ephemeral_teardown._shared_server(found.folder, found.record) == SparkServer("sc://spark:15002", pool=pool)


def test_protected_environments_and_their_servers_are_not_used(operations: EnvironmentService, folder: Path) -> None:
    with pytest.raises(Refused, match="no server of "):
        running_server(operations, "dev")
    with pytest.raises(Refused, match="is protected"):
        running_server(operations, "prod")
    place = select_environment(operations.environ, str(folder), environment="prod")
    with pytest.raises(Refused, match="not used for tests"):
        create_ephemeral_environment(EnvironmentService(place, operations.environ), REQUEST)
    assert not Path(ephemeral_root(operations.environ)).exists()


@pytest.mark.parametrize("live", [900, 999])
def test_a_server_whose_memory_is_nearly_full_is_not_used(
    live: int, operations: EnvironmentService, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = SparkServer("sc://127.0.0.1:1", "t")
    monkeypatch.setattr(ephemeral_environment, "server_of", lambda place, declared: server)
    assert running_server(operations, "dev") is server, "no agent can be asked"
    work = WorkOfPool(heap=ServerHeap(live, 1000))
    monkeypatch.setattr(AgentCommands, "pool_work", lambda agent, pool: work)
    if live == 900:
        assert running_server(operations, "dev") is server
    else:
        with pytest.raises(Refused, match="memory of the pool's server is nearly full: 999 B"):
            running_server(operations, "dev")


class Brokers:
    """The child process of an environment, for a cluster that may be down; it notes what the record says meanwhile."""

    def __init__(self) -> None:
        self.down = False
        self.there: set[str] = set()
        self.recorded: list[tuple[str, ...]] = []
        self.partitions: dict[str, int] = {}
        self.root = Path()

    def __call__(self, environ: Mapping[str, str]) -> "Brokers":
        # The processes of an environment have its own home.
        self.root = self.root if self.root.name else Path(environ["HEADGATE_HOME"]).parents[1]
        return self

    def existing_topics(self, locations: Iterable[str], prefix: str) -> tuple[str, ...]:
        self._answer()
        return ()

    def partition_counts(self, locations: Iterable[str]) -> dict[tuple[str, str], int]:
        return {("kafka://b:9092/landed", "landed"): 3} if "kafka://b:9092/landed" in locations else {}

    def create_topics(self, locations: Iterable[str], partitions: Mapping[str, int]) -> None:
        self.partitions = dict(partitions)
        (record,) = self.root.glob("it_*/ephemeral.json")
        self.recorded.append(tuple(json.loads(record.read_text())["topics"]))
        self.there |= {topic for each in locations for topic in topic_place(each).topics}

    def delete_topics(self, locations: Iterable[str], prefix: str) -> tuple[str, ...]:
        self._answer()
        assert {topic for each in locations for topic in topic_place(each).topics} >= self.there
        self.there.clear()
        return ()

    def close(self) -> None:
        """End nothing."""

    def _answer(self) -> None:
        if self.down:
            raise Refused("no broker of b:9092 answers: refused", remedy="check that Kafka runs")


@pytest.fixture
def brokers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Brokers:
    ddl = folder / "pipelines/sources/p/landed/sql-scripts/ddl.landed.sql"
    options = "OPTIONS ('kafka.bootstrap.servers'='b:9092', subscribe='landed')"
    ddl.write_text(f"CREATE TABLE landed (id BIGINT, kind STRING) USING kafka {options};")
    manifest = folder / "headgate.yml"
    manifest.write_text(manifest.read_text() + "connectors: {kafka: {}}\n")
    found = Brokers()
    monkeypatch.setattr(ephemeral_environment, "TableClient", found)
    monkeypatch.setattr(ephemeral_topics, "TableClient", found)
    monkeypatch.setattr(agent_process, "make_home", stop_here)
    return found


class Stopped(Exception):
    """Raised where the processes of an environment would be started."""


def stop_here(place: object) -> None:
    raise Stopped


def over_topics(operations: EnvironmentService) -> EphemeralEnvironment:
    return create_ephemeral_environment(operations, REQUEST)


def test_topics_are_recorded_before_they_exist_and_deleted_at_the_end(
    operations: EnvironmentService, brokers: Brokers
) -> None:
    found = over_topics(operations)
    with pytest.raises(Stopped):
        found.start(silent)
    topic = f"{found.record.name}_landed"
    assert brokers.there == {topic} and brokers.recorded == [(f"kafka://b:9092/{topic}",)]
    gone = found.end(silent)
    assert not brokers.there and not gone.left and gone.checked_brokers == ("b:9092",)
    assert "no topic at b:9092" in gone.words() and not found.folder.exists()


def test_topics_have_the_partitions_of_those_that_they_replace_if_that_is_asked_for(
    operations: EnvironmentService, brokers: Brokers
) -> None:
    for keeps in (False, True):
        found = create_ephemeral_environment(operations, replace(REQUEST, keeps_partitions=keeps))
        with pytest.raises(Stopped):
            found.start(silent)
        assert brokers.partitions == ({f"{found.record.name}_landed": 3} if keeps else {})
        found.end(silent)


def test_nothing_starts_and_nothing_is_left_if_no_broker_answers(
    operations: EnvironmentService, brokers: Brokers
) -> None:
    brokers.down, ended = True, list[Teardown]()
    with (
        pytest.raises(Refused, match="no broker of b:9092 answers"),
        ephemeral_environment.ephemeral_environment(operations, REQUEST, silent, ended=ended.append),
    ):
        pytest.fail("it was created")
    assert [each.left for each in ended] == [()] and not Path(ephemeral_root(operations.environ)).exists()


def test_topics_that_could_not_be_deleted_stay_recorded_for_the_next_command(
    operations: EnvironmentService, brokers: Brokers
) -> None:
    found = over_topics(operations)
    with pytest.raises(Stopped):
        found.start(silent)
    brokers.down = True
    gone = found.end(silent)
    assert [each.kind for each in gone.left] == [Remains.TOPICS_UNKNOWN] and brokers.there
    assert sorted(each.name for each in found.folder.iterdir()) == ["ephemeral.json", "ephemeral.lock"]
    assert [each.name for each in abandoned(operations.environ)] == [found.record.name]
    brokers.down = False
    (gone,) = end_abandoned(operations.environ, silent)
    assert not gone.left and not brokers.there and not found.folder.exists()


def test_the_next_command_deletes_the_topics_of_a_killed_one(operations: EnvironmentService, brokers: Brokers) -> None:
    found = over_topics(operations)
    with pytest.raises(Stopped):
        found.start(silent)
    killed(found)
    (gone,) = end_abandoned(operations.environ, silent)
    assert not gone.left and not brokers.there and gone.checked_brokers == ("b:9092",)


@dataclass
class FakeClient:
    """A client of a server that has no name of an environment."""

    in_step: bool = True
    asked: list[str] = field(default_factory=list)

    def use_server(self, server: SparkServer) -> None:
        self.asked.append(f"use {server.url}")

    def names(self, prefix: str) -> tuple[str, ...]:
        self.asked.append("names")
        return ()

    def close(self) -> None:
        self.asked.append("close")


@pytest.mark.parametrize("in_step", [True, False])
def test_the_open_client_looks_for_names_unless_its_last_request_was_broken_off(
    operations: EnvironmentService, monkeypatch: pytest.MonkeyPatch, in_step: bool
) -> None:
    other, used = FakeClient(), FakeClient(in_step)
    monkeypatch.setattr(ephemeral_teardown, "TableClient", lambda environ: other)
    shared = replace(REQUEST, server=SparkServer("sc://127.0.0.1:1", "t"))
    found = create_ephemeral_environment(operations, shared)
    monkeypatch.setattr(found, "_access", used)
    assert found.end(silent).left == () and not found.folder.exists()
    asked = ["use sc://127.0.0.1:1", "names", "close"]
    assert (used.asked[:3], other.asked) == ((asked, []) if in_step else (["close"], asked))
