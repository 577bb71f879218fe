"""The cluster of a pool as the agent sees it, over a master without Spark."""

import dataclasses
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from fake_master import FakeMaster, application, fake_master, worker

from core.model.errors import EngineRefused, HeadgateError, PoolUnreachable
from core.observed.cluster import ClusterFault
from core.text.sentence import Fact
from pipelines.agent.pool.cluster_watch import TEST_FOLDER, ClusterWatch, require_shared_data
from pipelines.local_pool import standalone_master


@pytest.fixture
def master() -> Iterator[FakeMaster]:
    with fake_master() as found:
        yield found


@dataclass
class Executors:
    """Executors that write to `root`, as if it were the root of their own file system."""

    root: Path = Path("/")
    fails: HeadgateError | None = None
    asked: list[int] = field(default_factory=list)

    def write_from_executors(self, folder: str, files: int, *, seconds: float) -> None:
        self.asked.append(files)
        if self.fails is not None:
            raise self.fails
        place = self.root / folder.lstrip("/")
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        for number in range(files):
            (place / f"part-{number:05}").write_text("")


def test_workers_on_this_machine_are_not_tested(master: FakeMaster, tmp_path: Path) -> None:
    executors = Executors()
    master.workers = [worker(), worker("192.0.2.7", "DEAD")]
    require_shared_data(master.pool, executors, str(tmp_path))
    assert executors.asked == []


def test_workers_elsewhere_must_write_to_the_data_folder(master: FakeMaster, tmp_path: Path) -> None:
    master.workers = [worker("192.0.2.7")]
    data, executors = tmp_path / "data", Executors()
    require_shared_data(master.pool, executors, str(data))
    assert executors.asked == [3] and not list(data.glob(f"{TEST_FOLDER}*"))
    executors.root = tmp_path / "elsewhere"
    with pytest.raises(PoolUnreachable) as raised:
        require_shared_data(master.pool, executors, str(data))
    assert raised.value.summary == (
        f"the workers of {master.master} do not share {data}: 3 of 3 test files are missing"
    )
    assert raised.value.remedy.startswith("mount the folder at the same path on every worker")


@pytest.mark.parametrize("error", [EngineRefused("mkdir failed"), PoolUnreachable("no answer within 60 s")])
def test_workers_that_cannot_write_are_reported(error: HeadgateError, master: FakeMaster, tmp_path: Path) -> None:
    master.workers = [worker("192.0.2.7")]
    ours, of_another = (tmp_path / f"{TEST_FOLDER}_{name}" for name in (master.pool.name, "another"))
    ours.mkdir()
    of_another.mkdir()
    with pytest.raises(PoolUnreachable, match=f"cannot write to {tmp_path}: {error.summary}"):
        require_shared_data(master.pool, Executors(fails=error), str(tmp_path))
    assert not ours.exists() and of_another.exists(), "two pools may test at the same time"


def test_unknown_workers_are_tested(master: FakeMaster, tmp_path: Path) -> None:
    master.body = b""
    executors = Executors()
    require_shared_data(master.pool, executors, str(tmp_path))
    assert executors.asked == [3]


@dataclass
class Watched:
    """A watch over a fake master, and the changes that it reported."""

    master: FakeMaster
    application: str | None = "headgate-1"
    changes: list[ClusterFault | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.watch = ClusterWatch(self.master.pool, lambda: self.application, self._changed)

    def _changed(self, fault: Fact[ClusterFault] | None) -> None:
        self.changes.append(fault.kind if fault is not None else None)

    def rounds(self, count: int) -> list[ClusterFault | None]:
        for _ in range(count):
            self.watch.round()
        return self.changes


@pytest.fixture
def watched(master: FakeMaster) -> Watched:
    master.applications = [application()]
    return Watched(master)


def test_a_fault_is_reported_once_after_two_answers_and_its_end_at_once(watched: Watched) -> None:
    assert watched.rounds(3) == [] and watched.watch.fault is None
    watched.master.workers = [worker(state="DEAD")]
    assert watched.rounds(1) == [] and watched.rounds(3) == [ClusterFault.NO_WORKER]
    assert watched.watch.fault is not None and watched.watch.fault.kind is ClusterFault.NO_WORKER
    watched.master.workers = [worker()]
    assert watched.rounds(1) == [ClusterFault.NO_WORKER, None] and watched.watch.fault is None


def test_a_fault_that_another_one_replaces_is_kept_until_two_answers_agree(watched: Watched) -> None:
    watched.master.workers = [worker(state="DEAD")]
    watched.rounds(2)
    watched.master.workers, watched.master.applications = [worker()], []
    assert watched.rounds(1) == [ClusterFault.NO_WORKER]
    assert watched.rounds(1) == [ClusterFault.NO_WORKER, ClusterFault.FORGOTTEN]


def test_a_server_that_has_not_registered_is_not_missed(watched: Watched) -> None:
    watched.application, watched.master.applications = None, []
    assert watched.rounds(3) == []


def test_a_master_that_is_gone_is_a_fault_and_a_page_that_cannot_be_read_is_none(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched.master.body = b"<html>"
    assert watched.rounds(3) == []
    monkeypatch.setattr(standalone_master, "ANSWERS_S", 0.2)
    gone = dataclasses.replace(watched.master.pool, master="spark://127.0.0.1:1")
    watched.watch = ClusterWatch(gone, lambda: None, watched._changed)
    assert watched.rounds(2) == [ClusterFault.LOST]
