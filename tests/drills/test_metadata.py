"""Metadata columns on a real agent and pool: kills of the server in a batch, restarts, a release, a switch in place."""

import json
import os
import signal
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest
from tiny_project import Tiny, committed, tiny_that_runs, until

from core.sql.metadata_columns import METADATA_COLUMNS

pytestmark = [pytest.mark.spark, pytest.mark.drill, pytest.mark.long]

DDL = {
    "landed": "CREATE TABLE landed (id BIGINT, kind STRING) USING json LOCATION 'landing';",
    "kept": "CREATE TABLE kept (id BIGINT, kind STRING) USING parquet;",
    "counted": "CREATE TABLE counted (at TIMESTAMP, id BIGINT) USING parquet;",
    "logged": "CREATE TABLE logged (id BIGINT) USING parquet;",
    "latest": "CREATE TABLE latest (id BIGINT, kind STRING) USING parquet;",
    "copied": "CREATE TABLE copied (id BIGINT, kind STRING, __query_id STRING) USING parquet;",
}
WORK = "length(sha2(repeat(concat(kind, id), 4000000), 512)) > 0"
"""A condition that is always true, and takes long enough for a kill in the batch."""
DML = {
    "kept": f"INSERT INTO kept SELECT id, kind FROM STREAM landed WHERE {WORK};",
    "counted": f"""INSERT INTO counted SELECT at, count(*) AS id
FROM STREAM landed WATERMARK timestamp_seconds(id * 10) AS at DELAY OF INTERVAL 1 SECOND
WHERE {WORK} GROUP BY at;""",
    "logged": f"INSERT INTO logged SELECT id FROM STREAM landed WHERE {WORK};",
    "latest": "INSERT INTO latest SELECT id, kind FROM STREAM landed;",
    "copied": "INSERT INTO copied SELECT id, kind, __query_id FROM STREAM kept;",
}
WRITTEN = ("kept", "counted", "logged")
YML = {table: f"metadata: true\ndescription: rows of {table}\n" for table in (*WRITTEN, "latest")}
YML["latest"] += "mode: upsert\nkey: [id]\n"
NAMES = [column.name for column in METADATA_COLUMNS]
Row = dict[str, Any]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiny]:
    tables = ("landed", *WRITTEN, "latest", "copied")
    more: Mapping[str, Any] = {
        "ddl": {table: DDL[table] for table in tables},
        "dml": {table: DML[table] for table in tables if table in DML},
        "yml": YML,
        "formats": {"logged": "delta", "latest": "delta"},
    }
    with tiny_that_runs(tmp_path_factory.mktemp("metadata"), landed=4, **more) as found:
        assert found.apply(found.plan("--all")).returncode == 0
        until(lambda: found.ids("kept", 1) == [1, 2, 3, 4] == found.ids("copied", 1), 90, "the first rows are there")
        yield found


def rows(tiny: Tiny, table: str, version: int = 1) -> list[Row]:
    """Return the committed rows of a version, in the order of their values."""
    folder = tiny.folder / f"data/tables/{table}__v{version}"
    files = tiny._delta_files(folder) if tiny.format_of(table) == "delta" else committed(folder)
    found = [row for file in files for row in parquet.read_table(file).to_pylist()]
    return sorted(({name: _in_utc(value) for name, value in row.items()} for row in found), key=str)


def _in_utc(value: object) -> object:
    # Spark's files have timestamps in UTC without saying so.
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) else value


def checkpoint(tiny: Tiny, table: str) -> Path:
    return tiny.folder / f"data/checkpoints/{table}__v1"


def newest(tiny: Tiny, table: str, part: str) -> int:
    """Return the newest batch in a log of the checkpoint."""
    return max(int(path.name) for path in (checkpoint(tiny, table) / part).iterdir() if path.name.isdigit())


def open_batch(tiny: Tiny, table: str) -> int | None:
    """Return the batch whose offsets are written, and which is not committed; None if there is none."""
    planned = newest(tiny, table, "offsets")
    return planned if planned > newest(tiny, table, "commits") else None


def planned_at(tiny: Tiny, table: str, batch: int) -> datetime:
    """Return the time in the offsets of a batch."""
    text = (checkpoint(tiny, table) / f"offsets/{batch}").read_text().splitlines()[1]
    return datetime.fromtimestamp(json.loads(text)["batchTimestampMs"] / 1000, UTC)


def shown(tiny: Tiny, table: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(tiny.done("show", table, "--json"))["query"]
    return found


def query_of(row: Row) -> dict[str, Any]:
    created = row["__query_create_timestamp"].timestamp()
    return {"id": row["__query_id"], "version": row["__query_version"], "created_at": created}


def agrees(found: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Return whether a row has the id, version and creation time that `show` prints; a row has milliseconds."""
    same = (found["id"], found["version"]) == (wanted["id"], wanted["version"])
    return same and 0 <= wanted["created_at"] - found["created_at"] < 0.001


@pytest.mark.parametrize("table", WRITTEN)
def test_a_batch_that_is_killed_writes_what_its_first_attempt_would_have_written(tiny: Tiny, table: str) -> None:
    until(lambda: open_batch(tiny, table) is None, 90, "earlier batches are committed")
    before, known = rows(tiny, table), shown(tiny, table)
    # After a batch with rows, a batch without any writes the counts that the new watermark completes.
    batch = newest(tiny, table, "offsets") + (2 if table == "counted" else 1)
    tiny.land(6)
    until(lambda: open_batch(tiny, table) == batch, 120, "the batch is open", every_s=0.002)
    os.kill(tiny.pool_pid(), signal.SIGKILL)
    assert open_batch(tiny, table) == batch, "the batch was committed before the kill"
    at, killed = planned_at(tiny, table, batch), datetime.now(UTC)
    until(lambda: open_batch(tiny, table) != batch, 180, "the batch is repeated")
    assert planned_at(tiny, table, batch) == at
    tiny.land(1)
    until(lambda: len(rows(tiny, table)) > len(before), 120, "rows are written")
    found = [row for row in rows(tiny, table) if row not in before]
    repeated = [row for row in found if row["__create_timestamp"] == at]
    print(f"{table}: batch {batch} planned {at}, killed {killed}: {len(repeated)} rows, {repeated[:1]}")
    assert repeated and all(row["__create_timestamp"] == at < killed for row in repeated)
    assert [row for row in rows(tiny, table) if row in before] == before, "rows before the kill are unchanged"
    assert all(agrees(query_of(row), known) for row in rows(tiny, table)) and shown(tiny, table) == known
    assert {(row["__query_name"], row["__query_description"]) for row in found} == {(table, f"rows of {table}")}


def test_an_edit_of_the_description_restarts_in_place_with_the_same_id(tiny: Tiny) -> None:
    until(lambda: tiny.ids("kept", 1) == list(range(1, tiny.landed + 1)), 90, "the rows before the edit are in kept")
    known, before = shown(tiny, "kept"), rows(tiny, "kept")
    tiny.yml = YML | {"kept": "metadata: true\ndescription: other\n"}
    tiny.write()
    plan = tiny.plan("kept", "--children", "none")
    assert {node["table"]: node["action"] for node in plan["nodes"]}["kept"] == "restart"
    assert tiny.apply(plan).returncode == 0
    tiny.land(2)
    until(lambda: tiny.ids("kept", 1) == list(range(1, tiny.landed + 1)), 90, "all rows are in kept")
    fresh = [row for row in rows(tiny, "kept") if row not in before]
    assert {row["__query_description"] for row in fresh} == {"other"}
    assert shown(tiny, "kept") == known and all(agrees(query_of(row), known) for row in fresh)


def test_a_release_compares_rows_without_metadata_and_the_new_version_has_an_id_of_its_own(tiny: Tiny) -> None:
    old = shown(tiny, "kept")
    found = tiny.apply(tiny.plan("kept", "--rebuild", "--children", "all"))
    assert found.returncode == 0, found.stdout + found.stderr
    run = json.loads(tiny.done("runs", "--json"))[0]
    notes = {step["table"]: step["note"] for step in run["steps"] if step["do"] == "validate"}
    print(notes, rows(tiny, "kept", 2)[:1])
    assert notes["kept"] == "equal in 7 checks"
    verdicts = tiny.ledger('SELECT "table", "check", verdict, summary FROM check_result WHERE run_id = ?', run["id"])
    assert {verdict for table, _, verdict, _ in verdicts if table == "kept"} == {"ok"}
    assert {verdict for table, _, verdict, _ in verdicts if table == "copied"} <= {"ok", "expected"}, verdicts
    new = shown(tiny, "kept")
    assert (new["version"], old["version"]) == (2, 1) and new["id"] != old["id"]
    assert new["created_at"] > old["created_at"]
    assert all(agrees(query_of(row), new) for row in rows(tiny, "kept", 2))
    assert {row["__query_id"] for row in rows(tiny, "copied", 2)} == {new["id"]}


def test_metadata_can_be_switched_on_in_place_and_off_only_by_a_rebuild(tiny: Tiny) -> None:
    tiny.add(
        {"plain": DDL["kept"].replace("kept", "plain")},
        {"plain": "INSERT INTO plain SELECT id, kind FROM STREAM landed;"},
    )
    assert tiny.apply(tiny.plan("plain")).returncode == 0
    until(lambda: tiny.ids("plain", 1) == list(range(1, tiny.landed + 1)), 90, "all rows are in plain")
    last = tiny.landed
    tiny.yml = {**tiny.yml, "plain": "metadata: true\n"}
    tiny.write()
    plan = tiny.plan("plain")
    assert [step["do"] for step in plan["steps"] if step["table"] == "plain"] == ["alter", "restart", "swap"]
    assert tiny.apply(plan).returncode == 0
    tiny.land(3)
    until(lambda: tiny.ids("plain", 1) == list(range(1, tiny.landed + 1)), 90, "new rows are in plain")
    known = shown(tiny, "plain")
    told = {row["id"]: query_of(row) for row in rows(tiny, "plain") if "__query_id" in row}
    assert set(told) == set(range(last + 1, tiny.landed + 1)), "only new rows have them"
    assert all(agrees(each, known) for each in told.values())
    peeked = json.loads(tiny.done("peek", "plain", "-n", "100", "--json"))
    assert all(name in json.dumps(peeked) for name in NAMES), "the pointer has them"
    tiny.yml = {**tiny.yml, "plain": "owner: ana\n"}
    tiny.write()
    assert {node["table"]: node["action"] for node in tiny.plan("plain")["nodes"]}["plain"] == "rebuild"


def test_the_same_rows_are_written_again_if_only_the_commit_is_missing(tiny: Tiny) -> None:
    until(lambda: open_batch(tiny, "plain") is None, 60, "the last batch is committed")
    tiny.done("stop", "plain", "--confirm", "yes")
    before, batch = rows(tiny, "plain"), newest(tiny, "plain", "commits")
    log = tiny.folder / "data/tables/plain__v1/_spark_metadata"
    assert (log / str(batch)).exists(), "the newest batch is in a file of its own"
    for place in (checkpoint(tiny, "plain") / "commits", log):
        (place / str(batch)).unlink()
        (place / f".{batch}.crc").unlink()
    assert rows(tiny, "plain") != before
    tiny.done("start", "plain", "--confirm", "yes")
    until(lambda: rows(tiny, "plain") == before, 90, "the batch is repeated with equal rows")


def test_a_row_that_is_equal_apart_from_metadata_is_not_written_again(tiny: Tiny) -> None:
    wanted = list(range(1, tiny.landed + 1))
    until(lambda: tiny.ids("latest", 1) == wanted, 90, "all rows are in latest")
    before = stored(tiny)
    assert all(agrees(query_of(row), shown(tiny, "latest")) for row in before)
    (tiny.folder / "data/landing/again.json").write_text(json.dumps({"id": 1, "kind": "b"}) + "\n")
    tiny.land(1)
    until(lambda: tiny.ids("latest", 1) == [*wanted, tiny.landed], 90, "the batch is in latest")
    assert [row for row in stored(tiny) if row["id"] in wanted] == before


def stored(tiny: Tiny) -> list[Row]:
    """Return the rows of `latest`, without the columns that only its change feed needs."""
    fields = ("id", "kind", *NAMES)
    return [{name: row[name] for name in fields} for row in rows(tiny, "latest")]
