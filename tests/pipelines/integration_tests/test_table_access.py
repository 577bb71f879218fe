"""Positions of statements, read from checkpoints and from the files of their sources."""

import json
from pathlib import Path
from typing import Any

import pytest

from core.model.errors import PoolUnreachable, UsageError
from pipelines.integration_tests.table_access import TableAccess


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A checkpoint with two batches, of which the second has not ended."""
    found = tmp_path / "checkpoint"
    for name in ("offsets", "commits", "sources/0"):
        (found / name).mkdir(parents=True)
    (found / "metadata").write_text(json.dumps({"id": "q"}))
    (found / "_headgate_owner").write_text(json.dumps({"ledger": "l"}))
    offset = json.dumps({"logOffset": 0})
    for batch, watermark in ((0, 5), (1, 8)):
        (found / f"offsets/{batch}").write_text(f'v1\n{{"batchWatermarkMs":{watermark}}}\n{offset}')
    (found / "commits/0").write_text('v1\n{"nextBatchWatermarkMs":8}')
    return found


def land(folder: Path, name: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text('{"id": 1}\n')


def asked(checkpoint: Path, landing: Path) -> dict[str, Any]:
    sources = [[0, "landed", str(landing), "json"]]
    statement = {"table": "a", "version": 1, "checkpoint": str(checkpoint), "sources": sources, "stateful": True}
    return {"statements": [statement]}


def test_a_position_has_the_batches_and_watermarks_of_the_checkpoint(checkpoint: Path, tmp_path: Path) -> None:
    land(tmp_path / "landing", "1.json")
    (found,) = TableAccess().answer("positions", asked(checkpoint, tmp_path / "landing"))["positions"]
    assert (found["batch"], found["planned"]) == (0, 1)
    assert (found["watermark_ms"], found["next_watermark_ms"], found["stateful"]) == (5, 8, True)


def test_a_file_that_has_just_arrived_is_pending_in_the_next_reading(checkpoint: Path, tmp_path: Path) -> None:
    access, landing = TableAccess(), tmp_path / "landing"
    for count in (1, 2, 3):
        land(landing, f"{count}.json")
        (found,) = access.answer("positions", asked(checkpoint, landing))["positions"]
        assert found["pending"] == count, "no earlier list of files is used"


def test_a_statement_without_a_batch_has_everything_to_read(tmp_path: Path) -> None:
    land(tmp_path / "landing", "1.json")
    (found,) = TableAccess().answer("positions", asked(tmp_path / "none", tmp_path / "landing"))["positions"]
    assert (found["batch"], found["planned"], found["pending"], found["watermark_ms"]) == (None, None, 1, 0)


def test_rows_need_a_server_and_unknown_requests_are_refused() -> None:
    with pytest.raises(PoolUnreachable):
        TableAccess().answer("rows", {"name": "t", "columns": [["id", "int"]]})
    with pytest.raises(UsageError):
        TableAccess().answer("nope", {})
