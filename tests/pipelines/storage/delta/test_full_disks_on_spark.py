"""A full disk on real Spark, as reported by keyed and appending statements and by OPTIMIZE; needs root to mount."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from core.model.errors import EngineRefused
from pipelines.spark_connect.error_translation import NO_SPACE

pytestmark = [pytest.mark.spark, pytest.mark.drill]

EVENTS = "id BIGINT, v STRING, seq BIGINT"


@pytest.fixture
def small(lake: Any) -> Iterator[Path]:
    """A disk of 3 MB with the table `k`."""
    lake.files.prepare(lake.place("k"), {"run": "r"})
    place = Path(lake.place("k"), "delta")
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "none", str(place)], check=False).returncode:
        pytest.skip("a disk cannot be mounted here")
    lake.tables.create(lake.name("k"), lake.ddl("k", EVENTS))
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.parametrize(
    "keyed", [pytest.param(True, marks=pytest.mark.long, id="keyed"), pytest.param(False, id="appended")]
)
def test_a_full_disk_is_reported_if_a_statement_or_optimize_fails_because_of_it(
    keyed: bool, lake: Any, small: Path
) -> None:
    lake.table("p", EVENTS)
    upsert = lake.upsert("k", "id", "v", "seq", sequence="seq") if keyed else None

    def run(first: int, rows: int) -> None:
        lake.sql(f"INSERT INTO {lake.name('p')} SELECT id, uuid(), id FROM range({first}, {first + rows})")
        lake.run("k", f"SELECT id, v, seq FROM STREAM {lake.name('p')}", upsert=upsert)

    run(0, 1000)
    run(1000, 1000)
    with (small / "filler").open("wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
        while True:
            file.write(bytes(4096))
    with pytest.raises(AssertionError, match=f"{NO_SPACE} No space left on device"):
        run(5000, 20000)
    with pytest.raises(EngineRefused, match="No space left on device") as told:
        lake.upkeep.optimize(lake.name("k"), "tag")
    assert told.value.error_class == NO_SPACE
    (small / "filler").unlink()
    lake.run("k", f"SELECT id, v, seq FROM STREAM {lake.name('p')}", upsert=upsert)
    assert lake.count("k") == 22000
