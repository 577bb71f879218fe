"""Registry records as files: written completely, unchanged by a round trip, and reported by path if broken."""

from pathlib import Path

import pytest

from core.model.errors import TryAgain
from pipelines.storage.data_folder_records import RegistryRecord, read_record, record_names, write_record

RECORD = RegistryRecord("ledger-1", 3, {"texts": '{"ddl":"é"}', "active": True, "created_at": 1.25}, run="7f3a")


def test_a_record_is_read_as_written_and_no_other_file_lies_beside_it(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    assert (read_record(data, "a@v1"), record_names(data)) == (None, ())
    for record in (RegistryRecord("ledger-1", 2, {}, withheld="a secret"), RECORD):
        write_record(data, "a@v1", record)
        assert read_record(data, "a@v1") == record
    write_record(data, "_serving", RECORD)
    assert [path.name for path in sorted(Path(data).rglob("*.json"))] == ["_serving.json", "a@v1.json"]
    assert record_names(data) == ("a@v1",)


@pytest.mark.parametrize("text", ["garbage", "[]", '{"ledger":"l"}', '{"ledger":"l","count":1,"row":{},"more":1}'])
def test_a_broken_record_is_reported_with_its_path(text: str, tmp_path: Path) -> None:
    write_record(str(tmp_path), "a@v1", RECORD)
    path = tmp_path / "_headgate_registry" / "a@v1.json"
    path.write_text(text)
    with pytest.raises(TryAgain, match=f"{path} cannot be read"):
        read_record(str(tmp_path), "a@v1")
