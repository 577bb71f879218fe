"""Object stores through Arrow: contents, listings, lag, errors as values, deadlines, and the settings of the pools."""

import errno
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fake_s3 import ACCESS_DENIED, KEY, SECRET, SLOW_DOWN, FakeS3, fake_s3
from live_project import until
from pyarrow import fs
from spark_files import Consumer

from core.model.errors import TryAgain
from core.model.file_stores import StoreFault
from core.model.names import TableName
from core.model.table_formats import format_of_others
from pipelines.storage import object_files, source_lag
from pipelines.storage.checkpoints import TableCheckpoints
from pipelines.storage.file_store import FileStore, missing, store_of
from pipelines.storage.file_stream_logs import local_path
from pipelines.storage.hadoop_settings import hadoop_settings, use_settings_of_pools
from pipelines.storage.object_clients import client_of
from pipelines.storage.object_files import ObjectFiles
from pipelines.storage.remote_files import StoreError

STRANGE = "d/a b%ü#?+&.json"


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeS3]:
    with fake_s3(monkeypatch) as found:
        found.contents = {STRANGE: b"hello", "d/x/y/f.json": b"hi", "d/x/g": b"", "other": b"1"}
        yield found


def fault(call: Callable[[], object]) -> StoreFault:
    with pytest.raises(StoreError) as raised:
        call()
    return raised.value.fault.kind


def test_files_are_read_whole_and_in_parts_under_any_name(s3: FakeS3) -> None:
    store = store_of(f"{s3.root}/d")
    assert store is store_of(f"{s3.root}/other") and store is not store_of("s3a://pond/d")
    assert store.read(f"{s3.root}/{STRANGE}") == b"hello"
    file, about = store.open_with_status(f"{s3.root}/{STRANGE}")
    with file:
        assert file.read() == b"hello" and about == store.stat(f"{s3.root}/{STRANGE}")
    assert (about.st_size, about.st_mtime) == (5, 1e9)
    s3.requests.clear()
    store.open(f"{s3.root}/{STRANGE}").close()
    with pytest.raises(FileNotFoundError):
        store.open(f"{s3.root}/none")
    assert len(s3.requests) == 2 + 1
    assert store.for_arrow(f"{s3.root}/{STRANGE}").read() == b"hello"  # type: ignore[union-attr]  # No path.
    assert local_path("s3a://lake/d/a%20b%25") == "s3a://lake/d/a b%"


def test_prefixes_are_folders_that_may_always_have_changed(s3: FakeS3) -> None:
    store = store_of(s3.root)
    assert sorted((each.name, each.is_dir()) for each in store.entries(f"{s3.root}/d")) == [
        ("a b%ü#?+&.json", False),
        ("x", True),
    ]
    assert store.is_folder(f"{s3.root}/d/x") and store.is_file(f"{s3.root}/other") and store.exists(s3.root)
    assert abs(store.stat(f"{s3.root}/d").st_mtime - time.time()) < 60
    for absent in (f"{s3.root}/none", f"{s3.root}/d/x/y/none", "s3a://pond/d"):
        assert not store_of(absent).exists(absent)
        for call in (store_of(absent).stat, store_of(absent).entries, store_of(absent).read, store_of(absent).below):
            with pytest.raises(FileNotFoundError):
                call(absent)
    with pytest.raises(NotADirectoryError):
        store.entries(f"{s3.root}/other")
    assert missing([f"{s3.root}/other", f"{s3.root}/d/x/none"]) == {f"{s3.root}/d/x/none"}
    with pytest.raises(OSError, match="writes nothing in object stores"):
        store.write(f"{s3.root}/new", b"")


def test_everything_below_a_folder_is_listed_page_by_page_and_no_folder_by_itself(s3: FakeS3) -> None:
    s3.page = 2
    s3.requests.clear()
    view = store_of(s3.root).below(f"{s3.root}/d")
    assert len(s3.requests) == 2
    assert view.is_folder(f"{s3.root}/d/x/y") and not view.is_folder(f"{s3.root}/d/x/g")
    assert [each.path for each in view.entries(f"{s3.root}/d/x/y")] == [f"{s3.root}/d/x/y/f.json"]
    assert view.stat(f"{s3.root}/{STRANGE}").st_size == 5
    assert len(s3.requests) == 2


class FilesAlone:
    """What Arrow's client of Google does: it lists no folder, and reports a missing one without a code."""

    def get_file_info(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        paths = [path for path in ("lake/d/x/y/f", "lake/d/g") if path.startswith(f"{selector.base_dir}/")]
        if not paths:
            raise OSError(f"No such file or directory '{selector.base_dir}'")
        return [fs.FileInfo(path, fs.FileType.File, mtime=1.0, size=1) for path in paths if selector.recursive]


def test_folders_that_a_client_does_not_list_follow_from_their_files() -> None:
    store = ObjectFiles("gs://lake", FilesAlone)
    view = store.below("gs://lake/d")
    assert view.is_folder("gs://lake/d/x/y") and view.stat("gs://lake/d/g").st_size == 1
    for found in (store.entries("gs://lake/d"), view.entries("gs://lake/d")):
        assert sorted((each.name, each.path, each.is_dir()) for each in found) == [
            ("g", "gs://lake/d/g", False),
            ("x", "gs://lake/d/x", True),
        ]
    with pytest.raises(FileNotFoundError):
        store.below("gs://lake/none")


def lag(s3: FakeS3, consumer: Path, files: TableCheckpoints, format: str = "json") -> tuple[int, int, bool]:
    (found,) = files.lag(str(consumer), ((0, TableName("t"), f"{s3.root}/in", format),))
    return found.files, found.bytes, found.missing


def test_files_that_were_not_read_are_lag_found_by_one_listing(s3: FakeS3, tmp_path: Path) -> None:
    consumer, files = Consumer(tmp_path), TableCheckpoints("ledger", refresh_s=0.0)
    assert lag(s3, tmp_path, files) == (0, 0, True)
    s3.contents |= {f"in/day={day}/part 0.json": b'{"a":1}\n' for day in range(9)} | {"in/_temporary/x": b"1"}
    assert lag(s3, tmp_path, files) == (9, 72, False)
    consumer.commit(*(f"{s3.root}/in/day={day}/part%200.json" for day in range(7)))
    s3.requests.clear()
    assert lag(s3, tmp_path, files) == (2, 16, False)
    assert len(s3.requests) == 1
    late = TableCheckpoints("ledger", refresh_s=0.0)
    assert lag(s3, tmp_path, late) == (2, 16, False)
    s3.contents = {}
    assert lag(s3, tmp_path, files) == (0, 0, True)


def test_a_folder_whose_listing_takes_long_is_listed_less_often_and_its_lag_is_known_meanwhile(
    s3: FakeS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_lag, "SLOW_S", 0.0)
    monkeypatch.setattr(source_lag, "SLOW_RESTS", 1e6)
    consumer, files = Consumer(tmp_path), TableCheckpoints("ledger", refresh_s=0.0)
    s3.contents |= {f"in/{n}.json": b'{"a":1}\n' for n in range(9)}
    assert lag(s3, tmp_path, files) == (9, 72, False)
    s3.requests.clear()
    consumer.commit(f"{s3.root}/in/0.json")
    s3.contents["in/9.json"] = b""
    assert lag(s3, tmp_path, files) == (8, 64, False) and not s3.requests


def test_a_log_of_another_table_with_equally_many_batches_is_noticed(s3: FakeS3, tmp_path: Path) -> None:
    def logged(batch: int, name: str) -> None:
        entry = {"path": f"{s3.root}/in/{name}", "size": 5, "isDir": False, "modificationTime": 1, "action": "add"}
        s3.contents[f"in/_spark_metadata/{batch}"] = f"v1\n{json.dumps(entry)}".encode()
        s3.contents[f"in/{name}"] = b"12345"

    consumer, files = Consumer(tmp_path), TableCheckpoints("ledger", refresh_s=0.0)
    logged(0, "a")
    logged(1, "b")
    consumer.commit(f"{s3.root}/in/a")
    assert lag(s3, tmp_path, files) == (1, 5, False)
    logged(2, "c")
    assert lag(s3, tmp_path, files) == (2, 10, False)
    s3.contents = {}
    for batch, name in enumerate("xyz"):
        logged(batch, name)
    assert lag(s3, tmp_path, files) == (0, 0, True)


def test_the_log_of_a_delta_table_is_read(s3: FakeS3) -> None:
    actions = [
        {"metaData": {"id": "i", "schemaString": '{"type":"struct","fields":[]}', "configuration": {}}},
        {"add": {"path": "p0", "size": 9, "modificationTime": 1, "stats": '{"numRecords":10}'}},
    ]
    s3.contents = {f"t/_delta_log/{0:020}.json": "\n".join(map(json.dumps, actions)).encode()}
    files, delta = TableCheckpoints("ledger"), format_of_others("delta")
    found = files.contents(f"{s3.root}/t", delta)
    assert found is not None and (found.files, found.rows, found.bytes) == (1, 10, 9)
    assert files.identity(f"{s3.root}/t", delta) == "i" and files.columns(f"{s3.root}/t", delta) == {}


@pytest.mark.parametrize(
    ("answer", "code", "kind"),
    [
        (ACCESS_DENIED, errno.EACCES, StoreFault.REFUSED),
        ((403, "SignatureDoesNotMatch"), errno.EACCES, StoreFault.REFUSED),
        ((403, "InvalidAccessKeyId"), errno.EACCES, StoreFault.REFUSED),
        (SLOW_DOWN, errno.EAGAIN, StoreFault.BUSY),
        ((500, "InternalError"), errno.EIO, StoreFault.FAILED),
    ],
)
def test_a_refusal_is_an_error_of_a_closed_kind_in_every_method(
    s3: FakeS3, answer: tuple[int, str], code: int, kind: StoreFault
) -> None:
    store = store_of(s3.root)
    s3.fault = answer
    for call in (store.stat, store.exists, store.is_folder, store.entries, store.below, store.read, store.open):
        with pytest.raises(StoreError) as raised:
            call(f"{s3.root}/d")
        assert (raised.value.errno, raised.value.fault.kind) == (code, kind)
    s3.fault = None
    assert store.exists(f"{s3.root}/d")


def test_a_lag_that_cannot_be_measured_has_the_place_and_the_reason_but_no_secret(s3: FakeS3, tmp_path: Path) -> None:
    Consumer(tmp_path)
    s3.fault = ACCESS_DENIED
    with pytest.raises(TryAgain) as raised:
        lag(s3, tmp_path, TableCheckpoints("ledger"))
    assert raised.value.summary.startswith(f"{s3.root}/in")
    assert "cannot be read: S3 (s3a://lake) refuses the credentials" in raised.value.summary
    assert "the-key" not in str(raised.value) + raised.value.remedy


def test_a_store_that_does_not_answer_ends_each_call_at_its_deadline_and_is_left_alone_for_a_while(
    s3: FakeS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_files, "CALL_S", 0.1)
    monkeypatch.setattr(object_files, "LISTING_S", 0.1)
    monkeypatch.setattr(object_files, "SILENT_S", 0.0)
    store = store_of(s3.root)
    s3.answers.clear()
    for call in (store.stat, store.exists, store.below, store.read):
        assert fault(lambda call=call: call(f"{s3.root}/other")) is StoreFault.SILENT
    # As many calls as may wait do so; no further one is made.
    asked = object_files.MOST_WAITING
    until(lambda: len(s3.requests) == asked, 10, "all calls have arrived")
    assert fault(lambda: store.stat(f"{s3.root}/other")) is StoreFault.SILENT and len(s3.requests) == asked
    s3.answers.set()
    monkeypatch.setattr(object_files, "CALL_S", 10.0)
    until(lambda: answers(store, f"{s3.root}/other"), 10, "the calls that waited have ended, and others are made")
    monkeypatch.setattr(object_files, "SILENT_S", 60.0)
    monkeypatch.setattr(object_files, "CALL_S", 0.1)
    s3.answers.clear()
    asked = len(s3.requests)
    for _ in range(3):
        assert fault(lambda: store.exists(f"{s3.root}/other")) is StoreFault.SILENT
    until(lambda: len(s3.requests) == asked + 1, 10, "one call has arrived")


def answers(store: FileStore, path: str) -> bool:
    try:
        return store.exists(path)
    except StoreError:
        return False


def test_a_store_that_is_not_there_is_unreachable(s3: FakeS3) -> None:
    s3.stop()
    assert fault(lambda: store_of(s3.root).exists(f"{s3.root}/d")) is StoreFault.UNREACHABLE


def test_keys_are_those_of_the_environment_and_are_read_again_after_a_refusal(
    s3: FakeS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_of(s3.root)
    assert store.exists(f"{s3.root}/d") and "Credential=the-key/" in s3.authorizations[-1]
    monkeypatch.setenv(KEY, "renewed")
    s3.fault = ACCESS_DENIED
    assert fault(lambda: store.exists(f"{s3.root}/d")) is StoreFault.REFUSED
    s3.fault = None
    assert store.exists(f"{s3.root}/d") and "Credential=renewed/" in s3.authorizations[-1]
    assert "/eu-west-1/" in s3.authorizations[-1]
    monkeypatch.delenv(SECRET)
    unset = ObjectFiles(s3.root, lambda: client_of(s3.root, hadoop_settings()))
    with pytest.raises(StoreError) as raised:
        unset.exists(f"{s3.root}/d")
    assert raised.value.fault == StoreFault.NO_SECRET.of(store="S3 (s3a://lake)", reference=f"${{env:{SECRET}}}")


def test_a_bucket_may_have_settings_of_its_own_and_the_files_of_hadoop_have_the_others(
    s3: FakeS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {"fs.s3a.endpoint": f"http://127.0.0.1:{s3.port}", "fs.s3a.path.style.access": "true"}
    values |= {"fs.s3a.access.key": f"${{env.{KEY}}}", "fs.s3a.secret.key": f"${{env.{SECRET}}}"}
    lines = (f"<property><name>{name}</name><value>{value}</value></property>" for name, value in values.items())
    (tmp_path / "core-site.xml").write_text(f"<configuration>{''.join(lines)}</configuration>")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    first, second = {"fs.s3a.endpoint.region": "eu-north-1"}, {"fs.s3a.endpoint.region": "never"}
    own = {"fs.s3a.bucket.lake.access.key": "own", "fs.s3a.bucket.pond.access.key": "pond"}
    confs = [tuple((f"spark.hadoop.{key}", value) for key, value in each.items()) for each in (first | own, second)]
    use_settings_of_pools(confs)
    object_files.object_files.cache_clear()
    assert store_of(s3.root).exists(f"{s3.root}/d")
    assert "Credential=own/" in s3.authorizations[-1] and "/eu-north-1/" in s3.authorizations[-1]


@pytest.mark.parametrize(
    "root",
    ["gs://lake", "abfss://lake@account.dfs.core.windows.net", "s3://lake", "abfs://c@a.dfs.core.chinacloudapi.cn"],
)
def test_clients_of_other_stores_are_made_from_settings_without_a_request(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACCOUNT_KEY", "a2V5")
    settings = {
        "fs.gs.auth.type": "UNAUTHENTICATED", "fs.gs.storage.root.url": "http://127.0.0.1:9/",
        "fs.azure.account.key": "${env:ACCOUNT_KEY}", "fs.s3a.endpoint.region": "eu-west-1",
    }  # fmt: skip
    assert client_of(root, settings).type_name in ("gcs", "abfs", "s3")
