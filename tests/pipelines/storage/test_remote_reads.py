"""Reads of remote stores: several at once, and never later because another store does not answer."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Barrier, Event, Lock, current_thread
from typing import Any

import pytest
from delta_files import WrittenLog, commit_batch, offset_line
from fake_hdfs import FakeHdfs, fake_hdfs
from spark_files import Consumer, WrittenTable

from core.model.errors import TryAgain
from core.model.names import TableName
from core.ports.storage import MeasuredFiles, StatementFolders
from pipelines.storage import remote_reads
from pipelines.storage.checkpoints import TableCheckpoints
from pipelines.storage.hdfs_files import HdfsFiles
from pipelines.storage.remote_reads import SILENT_WAIT_S, RemoteReads, Stores
from pipelines.storage.row_counting import RowCounter
from pipelines.storage.source_lag import SourceLags

T, ENDS_S = TableName("t"), 20.0


def stores(*names: str) -> Stores:
    return frozenset(HdfsFiles(name, [], "headgate") for name in names)


A, B = stores("hdfs://a"), stores("hdfs://b")


def test_reads_of_a_store_run_at_once_up_to_the_bound() -> None:
    together, lock, running, most = Barrier(4), Lock(), [0], [0]

    def read() -> str:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        together.wait(ENDS_S)
        with lock:
            running[0] -= 1
        return current_thread().name

    found = RemoteReads(at_once=4, wait_s=ENDS_S).results({n: (A, read) for n in range(12)})
    assert set(found.values()) == {"remote reads"} and most == [4]


def test_an_error_is_the_result_of_its_read_alone() -> None:
    wrong = OSError(5, "the block is lost")

    def fails() -> str:
        raise wrong

    assert RemoteReads().results({"a": (A, fails), "b": (A, lambda: "b")}) == {"a": wrong, "b": "b"}


def test_a_silent_store_delays_no_other_and_is_waited_for_again_once_it_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers, waited = Event(), list[float]()
    wait = remote_reads.wait
    monkeypatch.setattr(remote_reads, "wait", lambda futures, s: waited.append(s) or wait(futures, s))
    reads = RemoteReads(at_once=2, wait_s=0.5)
    asked: dict[int, tuple[Stores, Callable[[], object]]] = {n: (A, lambda: answers.wait(ENDS_S)) for n in range(5)}
    asked[5] = (B, lambda: "b")
    for _ in range(2):
        found = reads.results(asked)
        assert found.pop(5) == "b"
        assert {str(each) for each in found.values()} == {"[Errno 110] no answer within 0.5 s"}
    first, _, second, other = waited
    assert second <= SILENT_WAIT_S < first <= 0.5 and other > 0
    answers.set()
    found = reads.results(asked)
    while set(found.values()) != {True, "b"}:
        found = reads.results(asked)
    waited.clear()
    assert reads.results(asked) == found and waited[0] > SILENT_WAIT_S


@pytest.fixture
def hdfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHdfs]:
    with fake_hdfs(Path("/"), monkeypatch, conf=tmp_path / "conf") as found:
        monkeypatch.setattr(WrittenTable, "root", found.root)
        yield found


def statement(hdfs: FakeHdfs, folder: Path, name: str) -> StatementFolders:
    """A statement in HDFS that has read one of the two files of its own source."""
    table, reader = WrittenTable(folder / f"t_{name}"), Consumer(folder / f"c_{name}")
    reader.commit(table.write())
    table.write()
    source = (0, T, f"{hdfs.root}{table.folder}", "parquet")
    return StatementFolders(f"{hdfs.root}{reader.folder}", (source,), f"{hdfs.root}{folder}/w_{name}", "parquet")


def patient() -> TableCheckpoints:
    """Checkpoints whose reads have time enough on a busy machine."""
    files = TableCheckpoints("ledger", refresh_s=0.0)
    files._lags = SourceLags(counter=RowCounter(budget_s=60), refresh_s=0.0)
    files._remote = RemoteReads(wait_s=ENDS_S)
    return files


def waiting(found: object) -> list[tuple[int, int | None]]:
    assert isinstance(found, MeasuredFiles), found
    return [(lag.files, lag.rows) for lag in found.lag]


def test_statements_in_hdfs_are_measured_at_once(hdfs: FakeHdfs, tmp_path: Path) -> None:
    every = [statement(hdfs, tmp_path, name) for name in "abcd"]
    together, begun = Barrier(len(every)), set[str]()

    def before_answer(path: str) -> None:
        # The first request for each table's log waits for those of all others.
        if "/t_" in path and path.endswith("_spark_metadata") and path not in begun:
            begun.add(path)
            together.wait(ENDS_S)

    hdfs.before_answer = before_answer
    found = patient().measure_ahead(every)
    assert [waiting(found[each.checkpoint]) for each in every] == [[(1, 10)]] * 4 and len(begun) == 4


def test_a_round_after_a_batch_asks_once_for_each_log_and_each_new_file(hdfs: FakeHdfs, tmp_path: Path) -> None:
    table, reader, log = WrittenTable(tmp_path / "t"), Consumer(tmp_path / "c"), WrittenLog(tmp_path / "d")
    read = [table.write(), table.write()]

    def write(batch: int) -> None:
        table.write()
        reader.commit(read[batch])
        log.commit(1)
        commit_batch(tmp_path / "cd", batch, offset_line(log, batch + 1))

    every = [
        StatementFolders(
            f"{hdfs.root}{tmp_path}/{checkpoint}", ((0, T, f"{hdfs.root}{tmp_path}/{name}", format),), "", ""
        )
        for checkpoint, name, format in (("c", "t", "parquet"), ("cd", "d", "delta"))
    ]
    files, found = patient(), list[object]()
    for batch in range(2):
        write(batch)
        hdfs.requests.clear()
        found = list(files.measure_ahead(every).values())
    assert [waiting(each) for each in found] == [[(2, 20)], [(1, 1)]]
    asked = Counter(request for request in hdfs.requests if not request.endswith("parquet"))
    # Name node and data node are asked for each file.
    repeated = {request: n for request, n in asked.items() if n > (2 if request.startswith("OPEN ") else 1)}
    assert repeated == {} and len(asked) <= 25


def test_a_frozen_store_leaves_local_statements_and_other_stores_alone(
    hdfs: FakeHdfs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, thaws = patient(), Event()
    of_hdfs = statement(hdfs, tmp_path, "a")
    assert waiting(files.measure_ahead([of_hdfs])[of_hdfs.checkpoint]) == [(1, 10)]
    files._remote = RemoteReads(wait_s=0.5)
    hdfs.before_answer = lambda path: "/t_a" in path and thaws.wait(ENDS_S)
    try:
        silent = files.measure_ahead([of_hdfs])[of_hdfs.checkpoint]
        assert isinstance(silent, TryAgain) and "cannot be reached: no answer within 0.5 s" in silent.summary
        # Its read still waits, and holds the lock of its source.
        monkeypatch.setattr(WrittenTable, "root", "file://")
        table, reader = WrittenTable(tmp_path / "local"), Consumer(tmp_path / "c_local")
        reader.commit(table.write())
        table.write()
        source: Any = (0, T, str(table.folder), "parquet")
        (lag,) = files.lag(str(reader.folder), (source,))
        assert (lag.files, lag.rows) == (1, 10)
        assert [key for key in files.encoded_lag() if key.startswith("source")] == [f"source parquet {table.folder}"]
    finally:
        thaws.set()
    found = files.measure_ahead([of_hdfs])[of_hdfs.checkpoint]
    while isinstance(found, TryAgain):
        found = files.measure_ahead([of_hdfs])[of_hdfs.checkpoint]
    assert waiting(found) == [(1, 10)]


def test_a_store_that_fails_within_a_first_measurement_leaves_nothing_out_of_the_next(
    hdfs: FakeHdfs, tmp_path: Path
) -> None:
    files, of_hdfs = patient(), statement(hdfs, tmp_path, "a")

    def before_answer(path: str) -> None:
        failed = ("IOException", "the block is lost") if "/sources/0" in path else None
        hdfs.fault = hdfs.fault or failed

    hdfs.before_answer = before_answer
    assert isinstance(files.measure_ahead([of_hdfs])[of_hdfs.checkpoint], TryAgain)
    hdfs.before_answer, hdfs.fault = lambda path: None, None
    assert waiting(files.measure_ahead([of_hdfs])[of_hdfs.checkpoint]) == [(1, 10)]


def test_rows_that_a_store_did_not_give_are_counted_later(hdfs: FakeHdfs, tmp_path: Path) -> None:
    files, of_hdfs = patient(), statement(hdfs, tmp_path, "a")
    hdfs.before_answer = lambda path: setattr(
        hdfs, "fault", ("IOException", "the block is lost") if path.endswith(".parquet") else None
    )
    ((_, rows),) = waiting(files.measure_ahead([of_hdfs])[of_hdfs.checkpoint])
    assert rows is None
    hdfs.before_answer, hdfs.fault = lambda path: None, None
    assert waiting(files.measure_ahead([of_hdfs])[of_hdfs.checkpoint]) == [(1, 10)]
