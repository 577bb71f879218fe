"""HDFS over its REST API: addresses, faults of name nodes and data nodes, deadlines, and files read in parts."""

import errno
import os
import socket
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import pyarrow
import pyarrow.parquet as parquet
import pytest
from fake_hdfs import SAFE_MODE, STANDBY, FakeHdfs, fake_hdfs
from spark_files import Consumer, WrittenTable

from core.model.errors import StoreUnreachable
from core.model.names import TableName
from pipelines.storage import hdfs_files, remote_files
from pipelines.storage.checkpoints import TableCheckpoints
from pipelines.storage.file_store import LOCAL, store_of
from pipelines.storage.file_stream_logs import local_path
from pipelines.storage.hdfs_addresses import NameNode, name_nodes
from pipelines.storage.hdfs_files import HdfsFiles
from pipelines.storage.row_counting import parquet_rows

ONE = {"fs.defaultFS": "hdfs://one:8020/", "dfs.namenode.http-address": "0.0.0.0:50070"}
HA = {
    "dfs.ha.namenodes.prod": "nn1, nn2",
    "dfs.namenode.http-address.prod.nn1": "one:9870",
    "dfs.namenode.http-address.prod.nn2": "two:9871",
    "dfs.namenode.https-address.prod.nn1": "one:9470",
    "dfs.namenode.https-address.prod.nn2": "two:9471",
    "fs.defaultFS": "hdfs://prod",
}


@pytest.fixture
def hdfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHdfs]:
    (tmp_path / "served").mkdir()
    with fake_hdfs(tmp_path / "served", monkeypatch) as found:
        yield found


@pytest.mark.parametrize(
    ("authority", "settings", "expected"),
    [
        ("one:8020", {}, [NameNode("one", 9870)]),
        ("one", {}, [NameNode("one", 9870)]),
        ("one:8020", ONE, [NameNode("one", 50070)]),
        ("other:8020", ONE, [NameNode("other", 9870)]),
        (
            "other:8020",
            {"dfs.namenode.rpc-address.b": "other:8020", "dfs.namenode.http-address.b": "web:81"},
            [NameNode("web", 81)],
        ),
        ("prod", HA, [NameNode("one", 9870), NameNode("two", 9871)]),
        ("prod", HA | {"dfs.http.policy": "HTTPS_ONLY"}, [NameNode("one", 9470, True), NameNode("two", 9471, True)]),
    ],
)  # fmt: skip
def test_name_nodes_are_found_as_hadoop_finds_them(
    authority: str, settings: dict[str, str], expected: list[NameNode]
) -> None:
    assert list(name_nodes(authority, settings)) == expected


def test_only_paths_in_hdfs_are_in_its_store_and_one_store_serves_one_hdfs(hdfs: FakeHdfs) -> None:
    assert store_of(f"{hdfs.root}/a") is store_of(f"{hdfs.root}/b/c") is store_of(hdfs.root)
    assert store_of("/a") is store_of("kafka://b/topic") is store_of("file:///a") is LOCAL
    assert local_path("hdfs://one:8020/a%20b/ü%25") == "hdfs://one:8020/a b/ü%"
    assert local_path("kafka://b/a%20b") == "kafka://b/a%20b"


def test_safe_mode_lets_read_and_refuses_writes_with_a_reason(hdfs: FakeHdfs) -> None:
    files, folder = TableCheckpoints("ledger"), f"{hdfs.root}/checkpoints/c"
    files.prepare(folder, {"run": "r"})
    hdfs.fault = SAFE_MODE
    assert files.read(folder) is not None
    with pytest.raises(StoreUnreachable) as refused:
        files.prepare(f"{hdfs.root}/checkpoints/d", {"run": "r"})
    assert "cannot be reached: the name node is in safe mode" in refused.value.summary
    hdfs.fault = None
    files.prepare(f"{hdfs.root}/checkpoints/d", {"run": "r"})


def test_writes_leave_no_more_connections_than_later_reads_use(hdfs: FakeHdfs, monkeypatch: pytest.MonkeyPatch) -> None:
    connect, opened = hdfs_files._connection, list[HTTPConnection]()

    def opening(node: NameNode) -> HTTPConnection:
        opened.append(connect(node))
        return opened[-1]

    monkeypatch.setattr(hdfs_files, "_connection", opening)
    store = store_of(hdfs.root)
    for number in range(3 * hdfs_files.IDLE_CONNECTIONS):
        store.make_folders(f"{hdfs.root}/{number}")
        assert store.is_folder(f"{hdfs.root}/{number}")
    assert sum(each.sock is not None for each in opened) <= hdfs_files.IDLE_CONNECTIONS < len(opened)


def test_a_standby_is_passed_over_and_asked_last_from_then_on(hdfs: FakeHdfs, tmp_path: Path) -> None:
    (tmp_path / "standby").mkdir()
    standby = FakeHdfs(tmp_path / "standby")
    standby.fault = STANDBY
    nodes = [NameNode("127.0.0.1", each.port) for each in (standby, hdfs)]
    files = HdfsFiles("hdfs://prod", nodes, "headgate")
    files.write("hdfs://prod/file", b"content")
    assert files.read("hdfs://prod/file") == b"content"
    assert len(standby.requests) == 1
    standby.stop()


def test_a_name_node_that_is_away_is_asked_again_only_after_a_while(
    hdfs: FakeHdfs, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_of(hdfs.root)
    store.make_folders(f"{hdfs.root}/a")
    hdfs.fault = STANDBY
    with pytest.raises(OSError, match="is on standby"):
        store.stat(f"{hdfs.root}/a")
    hdfs.fault = None
    asked = len(hdfs.requests)
    with pytest.raises(OSError, match="is on standby"):
        store.stat(f"{hdfs.root}/a")
    assert len(hdfs.requests) == asked
    moved = time.monotonic() + hdfs_files.SILENT_S
    monkeypatch.setattr(hdfs_files.time, "monotonic", lambda: moved)
    assert store.is_folder(f"{hdfs.root}/a")


def test_a_name_node_that_does_not_answer_ends_a_call_at_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hdfs_files, "CALL_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        files = HdfsFiles("hdfs://silent", [NameNode("127.0.0.1", port)], "headgate")
        with pytest.raises(OSError, match=f"the name node 127.0.0.1:{port} does not answer in time"):
            files.exists("hdfs://silent/a")
    gone = HdfsFiles("hdfs://gone", [NameNode("127.0.0.1", port)], "headgate")
    with pytest.raises(OSError, match="does not answer: Connection refused"):
        gone.is_folder("hdfs://gone/a")


@pytest.mark.parametrize(
    ("exception", "code"),
    [
        ("AccessControlException", errno.EACCES),
        ("DSQuotaExceededException", errno.EDQUOT),
        ("SomeOtherException", errno.EIO),
    ],
)
def test_a_refusal_has_the_code_and_the_first_line_of_its_reason(hdfs: FakeHdfs, exception: str, code: int) -> None:
    hdfs.fault = (exception, "no, because")
    with pytest.raises(OSError) as refused:
        store_of(hdfs.root).entries(hdfs.root)
    assert (refused.value.errno, refused.value.strerror) == (code, "no, because")


def test_an_error_of_a_data_node_is_no_content(hdfs: FakeHdfs) -> None:
    (hdfs.folder / "file").write_bytes(b"content")
    hdfs.data_fault = ("IOException", "the block is lost")
    with pytest.raises(OSError, match="the block is lost"):
        store_of(hdfs.root).read(f"{hdfs.root}/file")


@pytest.mark.parametrize("content", [b"", b"content"])
def test_a_small_file_is_opened_without_a_question_for_its_size(hdfs: FakeHdfs, content: bytes) -> None:
    (hdfs.folder / "small").write_bytes(content)
    with store_of(hdfs.root).open(f"{hdfs.root}/small") as file:
        assert file.read() == content
    # The name node names the data node, which sends the content.
    assert hdfs.requests == ["OPEN /small"] * 2


def test_of_a_large_file_only_what_is_read_is_fetched(hdfs: FakeHdfs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_files, "WHOLE_BYTES", 1_000)
    content = bytes(range(256)) * 40
    (hdfs.folder / "large").write_bytes(content)
    with store_of(hdfs.root).open(f"{hdfs.root}/large") as file:
        assert file.seek(-100, 2) == len(content) - 100 and file.read() == content[-100:]
        assert file.seek(5) == 5 and file.read(3) == content[5:8]
        file.seek(0)
        assert file.read() == content
    parquet.write_table(pyarrow.table({"id": range(100_000)}), hdfs.folder / "t.parquet", compression="none")
    hdfs.requests.clear()
    assert parquet_rows(f"{hdfs.root}/t.parquet") == 100_000
    assert len(hdfs.requests) <= 5 and hdfs.sent < 100_000


def test_a_lag_round_without_news_asks_a_few_questions_for_each_statement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fake_hdfs(Path("/"), monkeypatch, conf=tmp_path / "conf") as hdfs:
        monkeypatch.setattr(WrittenTable, "root", hdfs.root)
        table, reader = WrittenTable(tmp_path / "t"), Consumer(tmp_path / "c")
        reader.commit(table.write(), table.write())
        table.write()
        for folder in (*tmp_path.rglob("*/"), tmp_path / "t", tmp_path / "c"):
            os.utime(folder, (time.time() - 60,) * 2)
        sources = ((0, TableName("t"), f"{hdfs.root}{tmp_path}/t", "parquet"),)
        files = TableCheckpoints("ledger", refresh_s=0.0)
        for fewest in (30, 6):
            hdfs.requests.clear()
            (found,) = files.lag(f"{hdfs.root}{tmp_path}/c", sources)
            assert (found.files, found.rows, found.missing) == (1, 10, False)
            assert len(hdfs.requests) <= fewest, hdfs.requests
