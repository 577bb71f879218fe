"""What a purge finds and deletes in a data folder in HDFS: only what certainly belongs to the ledger."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_hdfs import STANDBY, FakeHdfs, fake_hdfs

from pipelines.storage import owned_files
from pipelines.storage.checkpoints import TableCheckpoints
from pipelines.storage.data_folder_records import (
    EnvironmentMark,
    RegistryRecord,
    write_mark,
    write_record,
)
from pipelines.storage.file_store import store_of

Purge = Callable[..., dict[str, Any]]


@pytest.fixture
def hdfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHdfs]:
    (tmp_path / "served").mkdir()
    with fake_hdfs(tmp_path / "served", monkeypatch) as found:
        yield found


@pytest.fixture
def data(hdfs: FakeHdfs) -> str:
    """A data folder with two versions, one of them in the trash, and files of others."""
    data = f"{hdfs.root}/dev"
    write_mark(data, EnvironmentMark("mine", 1, "m", "/home/dev", 3))
    for name in ("a__v1", "p_a__v2.0123abcd"):
        note = {"run": "r", "table": "a", "version": 1 if name == "a__v1" else 2}
        TableCheckpoints("mine").prepare(f"{data}/tables/{name}", note)
        store_of(data).write(f"{data}/tables/{name}/part-0", b"rows")
    TableCheckpoints("mine").prepare(f"{data}/checkpoints/a__v1", {"run": "r", "table": "a", "version": 1})
    TableCheckpoints("mine").set_aside(f"{data}/checkpoints/a__v1", f"{data}/trash/a__v1/checkpoints/a__v1")
    TableCheckpoints("other").prepare(f"{data}/tables/b__v1", {"run": "r", "table": "b", "version": 1})
    TableCheckpoints("mine").prepare(f"{data}/tables/copied", {"run": "r", "table": "a", "version": 1})
    write_record(data, "a@v1", RegistryRecord("mine", 1, {}))
    write_record(data, "b@v1", RegistryRecord("other", 1, {}))
    store_of(data).write(f"{data}/landing/file", b"{}")
    return data


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], data: str) -> Purge:
    def ask(*words: str, ledger: str = "mine") -> dict[str, Any]:
        given = ["owned_files", "--data", data, "--ledger", ledger, "--home", "/home/dev", *words]
        monkeypatch.setattr(sys, "argv", given)
        assert owned_files.main() == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    return ask


def test_a_purge_deletes_what_belongs_to_the_ledger_and_the_mark_last(asked: Purge, data: str, hdfs: FakeHdfs) -> None:
    found = asked()
    assert found["marked"] and {place.removeprefix(data) for place in found["places"]} == {
        "/tables/a__v1",
        "/tables/p_a__v2.0123abcd",
        "/trash/a__v1/checkpoints/a__v1",
        "/_headgate_registry/a@v1.json",
    }
    places = [*found["places"], f"{data}/tables/b__v1", f"{data}/tables/copied", f"{data}/landing/file"]
    assert asked("--delete", *places)["deleted"] == found["places"]
    assert asked() == {"places": [], "marked": True}
    assert asked("--delete", f"{data}/_headgate_world")["deleted"] == [f"{data}/_headgate_world"]
    left = {str(path.relative_to(hdfs.folder)) for path in hdfs.folder.rglob("*") if path.is_file()}
    assert {path for path in left if "_headgate_" not in path and not path.endswith("_headgate.json")} == {
        "dev/landing/file"
    }
    assert not (hdfs.folder / "dev/trash").exists() and (hdfs.folder / "dev/tables/b__v1").is_dir()


def test_without_a_ledger_the_mark_of_the_home_names_it_and_another_ledger_owns_nothing(asked: Purge) -> None:
    assert len(asked(ledger="")["places"]) == 4
    assert asked(ledger="third") == {"places": [], "marked": False}


def test_a_name_node_that_does_not_answer_is_an_error_and_nothing_is_missing(asked: Purge, hdfs: FakeHdfs) -> None:
    hdfs.fault = STANDBY
    assert "cannot be reached" in asked()["error"]["summary"]
