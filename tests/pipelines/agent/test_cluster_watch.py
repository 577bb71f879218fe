"""The cluster of a pool as the agent sees it, over a master without Spark."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from fake_master import FakeMaster, fake_master, worker

from core.model.errors import EngineRefused, HeadgateError, PoolUnreachable
from pipelines.agent.pool.cluster_watch import TEST_FOLDER, require_shared_data


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
    assert executors.asked == [3] and not (data / TEST_FOLDER).exists()
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
    (tmp_path / TEST_FOLDER).mkdir()
    with pytest.raises(PoolUnreachable, match=f"cannot write to {tmp_path}: {error.summary}"):
        require_shared_data(master.pool, Executors(fails=error), str(tmp_path))
    assert not (tmp_path / TEST_FOLDER).exists()


def test_unknown_workers_are_tested(master: FakeMaster, tmp_path: Path) -> None:
    master.body = b""
    executors = Executors()
    require_shared_data(master.pool, executors, str(tmp_path))
    assert executors.asked == [3]
