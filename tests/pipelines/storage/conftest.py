"""Runs the tests of files a second time with a fake of HDFS as the store of all paths."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_hdfs import FakeHdfs

from pipelines.storage import file_store
from pipelines.storage.hdfs_addresses import NameNode
from pipelines.storage.hdfs_files import HdfsFiles

ALSO_IN_HDFS = ("test_checkpoints", "test_data_folder_records")
ALSO_IN_HDFS_LONG = (
    "test_batch_histories", "test_checkpoint_forks", "test_delta_lag", "test_delta_log", "test_log_places",
    "test_source_lag", "test_table_contents",
)  # fmt: skip
"""Those whose tests in HDFS have the mark `long`."""
ONLY_LOCAL = ("full_disk", "another_file_system", "killed_anywhere", "unmounted")
"""Parts of the names of tests about calls of `os`, or about disks."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    module, name = metafunc.module.__name__.rpartition(".")[2], metafunc.function.__name__
    if module not in (*ALSO_IN_HDFS, *ALSO_IN_HDFS_LONG) or any(part in name for part in ONLY_LOCAL):
        return
    marks = [pytest.mark.drill, pytest.mark.long] if module in ALSO_IN_HDFS_LONG else []
    metafunc.parametrize("every_path_in", ["local", pytest.param("hdfs", marks=marks)], indirect=True)


@pytest.fixture(scope="session")
def whole_disk() -> Iterator[FakeHdfs]:
    """An HDFS with the files of this machine."""
    fake = FakeHdfs(Path("/"))
    yield fake
    fake.stop()


@pytest.fixture(autouse=True)
def every_path_in(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read and write all paths of this machine through the store that the parameter names."""
    if getattr(request, "param", "local") == "hdfs":
        fake: FakeHdfs = request.getfixturevalue("whole_disk")
        monkeypatch.setattr(file_store, "LOCAL", HdfsFiles("", [NameNode("127.0.0.1", fake.port)], "headgate"))
