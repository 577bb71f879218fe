"""Releases on real Spark: one whose differences its edit explains goes through, a faulty one is blocked."""

import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from tiny_project import DML, Tiny, tiny_that_runs, until

pytestmark = [pytest.mark.spark, pytest.mark.drill, pytest.mark.long]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiny]:
    with tiny_that_runs(tmp_path_factory.mktemp("headgate"), landed=50) as found:
        declare(
            found,
            "names",
            "CREATE TABLE names (kind STRING, name STRING) USING json LOCATION 'names'",
            layer="sources",
        )
        (found.folder / "data/names").mkdir()
        rows = [{"kind": "A", "name": "ann"}, {"kind": "A", "name": "abe"}, {"kind": "B", "name": "bea"}]
        (found.folder / "data/names/1.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
        assert found.apply(found.plan("--all")).returncode == 0
        until(lambda: found.ids("marked", 1) == list(range(1, 51)), 90, "all rows are in marked")
        yield found


def declare(tiny: Tiny, table: str, ddl: str, dml: str = "", *, layer: str = "facts") -> None:
    scripts = tiny.folder / f"pipelines/{layer}/p/{table}/sql-scripts"
    scripts.mkdir(parents=True, exist_ok=True)
    (scripts / f"ddl.{table}.sql").write_text(ddl)
    if dml:
        (scripts / f"dml.{table}.sql").write_text(dml)


def results(tiny: Tiny, run: str, table: str) -> dict[str, dict[str, Any]]:
    """Return the recorded results of a comparison, by check."""
    ledger = next(tiny.root.glob("home/**/ledger.db"))
    with closing(sqlite3.connect(f"file:{ledger}?mode=ro", uri=True)) as connection:
        connection.row_factory = sqlite3.Row
        found = connection.execute(
            'SELECT * FROM check_result WHERE run_id LIKE ? AND "table" = ? ORDER BY n', (f"{run}%", table)
        ).fetchall()
    return {row["check"]: {**dict(row), "examples": json.loads(row["examples"])} for row in found}


def last_run(tiny: Tiny) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(tiny.done("runs", "--json"))[0]
    return found


def step(run: dict[str, Any], do: str, table: str) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in run["steps"] if (one["do"], one["table"]) == (do, table))
    return found


def serving(tiny: Tiny, table: str) -> int:
    return int(tiny.statements()[table]["version"])


def test_a_release_expects_the_effects_of_a_new_filter_and_column(tiny: Tiny) -> None:
    tiny.write(kept=DML["kept"].replace("kind FROM", "kind, id * 2 AS twice FROM").replace("id > 0", "id > 5"))
    declare(tiny, "kept", "CREATE TABLE kept (id BIGINT, kind STRING, twice BIGINT) USING parquet")
    found = tiny.apply(tiny.plan("kept", "--rebuild", "--children", "all"))
    assert found.returncode == 0, found.stdout + found.stderr
    run = last_run(tiny)
    kept, marked = results(tiny, run["id"], "kept"), results(tiny, run["id"], "marked")
    assert {name: row["verdict"] for name, row in kept.items()} == {
        "schema": "expected", "differences": "expected", "duplicates": "ok", "rows": "expected", "nulls": "ok",
        "sums": "expected", "profile": "expected",
    }  # fmt: skip
    assert kept["differences"]["summary"] == "5 rows only in the old version: filter changed: id > 0 → id > 5"
    assert marked["differences"]["summary"] == "5 rows only in the old version: kept: filter changed: id > 0 → id > 5"
    assert json.loads(marked["rows"]["counts"]) == {"old": 50, "new": 45}
    assert (serving(tiny, "kept"), serving(tiny, "marked")) == (2, 2)


@pytest.mark.long
def test_a_release_finds_a_common_position_while_rows_land(tiny: Tiny) -> None:
    over = threading.Event()

    def land() -> None:
        while not over.wait(0.4):
            tiny.land(1)

    landing = threading.Thread(target=land)
    landing.start()
    try:
        plan = tiny.plan("kept", "--rebuild", "--children", "all")
        found = tiny.apply(plan)
    finally:
        over.set()
        landing.join()
    assert found.returncode == 0, found.stdout + found.stderr
    run = last_run(tiny)
    for table in ("kept", "marked"):
        one = step(run, "validate", table)
        took = one["ended_at"] - one["started_at"]
        print(f"{table}: {took:.1f} s, {one['note']}")
        assert one["note"] == "equal in 7 checks" and took < 60
    assert results(tiny, run["id"], "marked")["rows"]["old_batch"] > 0


def test_a_join_that_doubles_rows_is_blocked_and_the_old_version_keeps_serving(tiny: Tiny) -> None:
    tiny.write(
        kept=DML["kept"].replace("kind FROM", "kind, id * 2 AS twice FROM").replace("id > 0", "id > 5"),
        marked="INSERT INTO marked SELECT k.id, upper(k.kind) AS kind, n.name FROM STREAM kept AS k "
        "LEFT JOIN names AS n ON upper(k.kind) = n.kind",
    )
    declare(tiny, "kept", "CREATE TABLE kept (id BIGINT, kind STRING, twice BIGINT) USING parquet")
    declare(tiny, "marked", "CREATE TABLE marked (id BIGINT, kind STRING, name STRING) USING parquet")
    before = serving(tiny, "marked")
    found = tiny.apply(tiny.plan("marked", "--rebuild"))
    assert found.returncode == 1
    run = last_run(tiny)
    failed = step(run, "validate", "marked")
    assert failed["state"] == "failed" and step(run, "swap", "marked")["state"] == "blocked"
    assert "duplicate rows by all columns" in failed["note"] and "only in the new version, unexpected" in failed["note"]
    said = tiny.run("runs", run["id"]).stderr
    assert f"headgate runs skip {run['id']} --step {failed['n']} continues despite it" in said
    (example, *_) = results(tiny, run["id"], "marked")["differences"]["examples"]
    assert example["old"] is None and example["new"]["kind"] == "A"
    shown = tiny.run("release", "diff", run["id"], "marked")
    assert shown.returncode == 1 and "not expected" in shown.stdout, shown.stdout + shown.stderr
    print(shown.stdout)
    assert serving(tiny, "marked") == before
    tiny.land(2)
    until(lambda: tiny.ids("marked", before)[-1] == tiny.landed, 60, "what serves goes on")
    assert tiny.run("runs", "retry", run["id"], "--follow").returncode == 1, "compared again, and blocked again"
    text = run["id"][:4]
    tiny.done("runs", "skip", run["id"], "--step", str(failed["n"]), "--confirm", text)
    until(lambda: last_run(tiny)["state"] == "done", 60, "who has looked may go on")
    assert serving(tiny, "marked") == before + 1
    audit = tiny.done("audit", "--json")
    assert "skip" in audit


def test_a_cast_that_makes_nulls_is_blocked(tiny: Tiny) -> None:
    tiny.write(
        kept=DML["kept"]
        .replace("kind FROM", "kind, try_cast(kind AS BIGINT) AS twice FROM")
        .replace("id > 0", "id > 5"),
        marked="INSERT INTO marked SELECT k.id, upper(k.kind) AS kind, n.name FROM STREAM kept AS k "
        "LEFT JOIN names AS n ON upper(k.kind) = n.kind",
    )
    declare(tiny, "kept", "CREATE TABLE kept (id BIGINT, kind STRING, twice BIGINT) USING parquet")
    declare(tiny, "marked", "CREATE TABLE marked (id BIGINT, kind STRING, name STRING) USING parquet")
    before = serving(tiny, "kept")
    assert tiny.apply(tiny.plan("kept", "--rebuild", "--children", "none")).returncode == 1
    run = last_run(tiny)
    assert f"NULLs of twice: 0 → {tiny.landed - 5}" in step(run, "validate", "kept")["note"]
    assert serving(tiny, "kept") == before
    tiny.done("runs", "cancel", run["id"], "--confirm", run["id"][:4])


def test_a_failing_project_check_blocks_with_its_name(tiny: Tiny) -> None:
    tiny.write(
        kept=DML["kept"].replace("kind FROM", "kind, id * 2 AS twice FROM").replace("id > 0", "id > 5"),
        marked="INSERT INTO marked SELECT k.id, upper(k.kind) AS kind, n.name FROM STREAM kept AS k "
        "LEFT JOIN names AS n ON upper(k.kind) = n.kind",
    )
    declare(tiny, "kept", "CREATE TABLE kept (id BIGINT, kind STRING, twice BIGINT) USING parquet")
    declare(tiny, "marked", "CREATE TABLE marked (id BIGINT, kind STRING, name STRING) USING parquet")
    yml = tiny.folder / "pipelines/facts/p/kept/kept.yml"
    yml.write_text(
        "checks:\n  - {name: all landed, sql: SELECT l.id FROM landed l LEFT ANTI JOIN kept k ON l.id = k.id}\n"
        "  - {name: even, sql: SELECT id FROM kept WHERE twice % 2 = 1}\n"
    )
    before = serving(tiny, "kept")
    assert tiny.apply(tiny.plan("kept", "--rebuild", "--children", "none")).returncode == 1
    run = last_run(tiny)
    note = step(run, "validate", "kept")["note"]
    assert note.startswith("check all landed: it gives rows, such as {") and "even" not in note
    assert results(tiny, run["id"], "kept")["check even"]["verdict"] == "ok"
    assert serving(tiny, "kept") == before
    tiny.done("runs", "cancel", run["id"], "--confirm", run["id"][:4])
