"""Delta tables through all of Headgate: rolled back, taken from the trash, and replaced by hand under a statement."""

import json
import re
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny_project import DML, Tiny, tiny_that_runs, until

from pipelines.spark_connect.session import Session

pytestmark = [pytest.mark.spark, pytest.mark.drill]

SOURCES = """SELECT m.sources FROM measurement m JOIN deployment d ON d.id = m.deployment
WHERE d."table" = ? AND d.active = 1"""
ERROR = 'SELECT error FROM deployment WHERE "table" = ? AND active = 1'


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiny]:
    with tiny_that_runs(tmp_path_factory.mktemp("delta"), landed=50, format="delta") as found:
        assert found.apply(found.plan("--all")).returncode == 0
        yield found


def arrived(tiny: Tiny, table: str, version: int) -> bool:
    return tiny.ids(table, version) == list(range(1, tiny.landed + 1))


def rests(tiny: Tiny, table: str) -> bool:
    """Return whether every planned batch of a statement is committed, so that nothing is writing its table."""
    ((place,),) = tiny.ledger('SELECT checkpoint FROM deployment WHERE "table" = ? AND active = 1', table)
    planned, committed = ({n.name for n in (Path(str(place)) / part).glob("[0-9]*")} for part in ("offsets", "commits"))
    return planned == committed


def test_doctor_shows_the_jars_of_the_pool(tiny: Tiny) -> None:
    checks = {check["name"]: check for check in json.loads(tiny.done("doctor", "--json"))["checks"]}
    assert checks["jars"]["ok"] and re.match(r"delta: \d+ jars from ", checks["jars"]["summary"]), checks["jars"]


@pytest.mark.long
def test_a_rebuild_is_undone_by_a_rollback_to_the_version_that_served(tiny: Tiny) -> None:
    until(lambda: arrived(tiny, "marked", 1), 60, "the first rows are in marked")
    tiny.write(kept=DML["kept"].replace("kind FROM", "concat(kind, '!') AS kind FROM"))
    rebuilt = tiny.apply(tiny.plan("kept", "--rebuild"))
    assert rebuilt.returncode == 0, rebuilt.stdout + rebuilt.stderr
    assert arrived(tiny, "kept", 2) and arrived(tiny, "marked", 2)
    back = tiny.apply(tiny.plan("rollback", "kept"))
    assert back.returncode == 0, back.stdout + back.stderr
    tiny.land(10)
    until(lambda: arrived(tiny, "marked", 1), 90, "new rows arrive in the version that serves again")
    tiny.write()


def test_lag_is_shown_in_versions_while_a_statement_is_stopped(tiny: Tiny) -> None:
    until(lambda: arrived(tiny, "marked", 1), 60, "all rows so far were read")
    tiny.done("stop", "marked", "--confirm", "yes")
    for _ in range(2):
        tiny.land(5)
        until(lambda: arrived(tiny, "kept", 1), 60, "kept has read them")

    def waiting() -> bool:
        ((found,),) = tiny.ledger(SOURCES, "marked")
        (source,) = json.loads(str(found))
        return (source["rows"], source["versions"], source["exact"]) == (10, 2, True)

    until(waiting, 30, "two versions with ten rows wait")
    tiny.done("start", "marked", "--confirm", "yes")
    until(lambda: arrived(tiny, "marked", 1), 60, "they were read")


@pytest.mark.long
def test_a_reader_that_tracks_columns_survives_a_dropped_column(tiny: Tiny) -> None:
    until(lambda: arrived(tiny, "marked", 1), 60, "all rows so far were read")
    place = json.loads((tiny.home() / "pool.json").read_text())
    session = Session(f"sc://127.0.0.1:{place['port']}", (tiny.home() / "pool.token").read_text(), str(uuid.uuid4()))
    session.attach()
    session.spark.sql("ALTER TABLE kept__v1 SET TBLPROPERTIES ('delta.columnMapping.mode'='name')")
    drop = ("ALTER TABLE kept__v1 ADD COLUMN more INT", "ALTER TABLE kept__v1 DROP COLUMN more")
    for ddl in drop:
        session.spark.sql(ddl)
    until(lambda: tiny.statements()["marked"]["state"] == "failed", 60, "it ends without")
    tiny.yml = {"marked": "schema_tracking: true\n"}
    tiny.write()
    plan = tiny.plan("marked")
    assert [(node["table"], node["action"], node["row"]) for node in plan["nodes"] if node["action"] != "keep"] == [
        ("marked", "restart", "11c")
    ]
    applied = tiny.apply(plan)
    assert applied.returncode == 0, applied.stdout + applied.stderr
    tiny.land(5)
    until(lambda: arrived(tiny, "marked", 1), 90, "what was there and what came has arrived")
    for ddl in drop:
        session.spark.sql(ddl)
    session.close()
    tiny.land(5)
    until(lambda: arrived(tiny, "marked", 1), 90, "it was started again over each change")
    assert tiny.statements()["marked"]["state"] == "running"


def test_deleted_tables_are_restored_from_the_trash(tiny: Tiny) -> None:
    assert tiny.apply(tiny.plan("delete", "marked")).returncode == 0
    tiny.land(10)
    undone = tiny.apply(tiny.plan("undelete", "marked"))
    assert undone.returncode == 0, undone.stdout + undone.stderr
    until(lambda: arrived(tiny, "marked", 1), 90, "it went on where it was")


def test_a_new_server_does_not_recreate_a_missing_table(tiny: Tiny) -> None:
    tiny.done("stop", "marked", "--confirm", "yes")
    folder = tiny.folder / "data/tables/marked__v1/delta"
    shutil.move(folder, tiny.root / "moved")
    tiny.replace_pool()
    until(lambda: tiny.statements()["kept"]["state"] == "running", 60, "the other statement runs on the new server")
    refused = tiny.run("start", "marked", "--confirm", "yes")
    assert refused.returncode != 0 and "the table of marked@v1 is gone" in refused.stdout + refused.stderr
    assert not folder.exists()
    shutil.move(tiny.root / "moved", folder)
    until(lambda: tiny.run("start", "marked", "--confirm", "yes").returncode == 0, 60, "it starts once it is back")
    tiny.land(5)
    until(lambda: arrived(tiny, "marked", 1), 120, "and has lost nothing")


def test_replacing_a_table_stops_its_statement_with_a_reason(tiny: Tiny) -> None:
    folder = tiny.folder / "data/tables/marked__v1/delta"
    log = folder / "_delta_log" / f"{0:020}.json"
    text = log.read_text()
    until(lambda: rests(tiny, "marked"), 60, "what has arrived is committed")
    shutil.move(folder, tiny.root / "replaced")
    (folder / "_delta_log").mkdir(parents=True)
    lines = [json.loads(line) for line in text.splitlines()]
    for line in lines:
        if "metaData" in line:
            line["metaData"]["id"] = "00000000-0000-0000-0000-000000000000"
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    until(lambda: tiny.statements()["marked"]["state"] == "failed", 60, "the statement is stopped")
    ((error,),) = tiny.ledger(ERROR, "marked")
    assert "was re-created" in str(error) and str(error).endswith("--rebuild, or restore its folder from a backup")
