"""Old copies restored under a real agent and Spark: noticed and reported, nothing is started, and no row is lost."""

import json
import os
import shutil
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tiny_project import Tiny, alive, tiny_that_runs, until

pytestmark = [pytest.mark.spark, pytest.mark.drill]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiny]:
    with tiny_that_runs(tmp_path_factory.mktemp("restored"), landed=50) as found:
        assert found.apply(found.plan("--all")).returncode == 0
        until(lambda: whole(found), 90, "all landed rows are in marked")
        yield found


def whole(tiny: Tiny) -> bool:
    """Return whether the last table holds every landed row once."""
    return tiny.ids("marked", 1) == list(range(1, tiny.landed + 1))


def test_a_restored_checkpoint_is_refused_with_both_numbers_and_nothing_is_lost(tiny: Tiny, tmp_path: Path) -> None:
    checkpoint = tiny.folder / "data/checkpoints/kept__v1"
    tiny.done("stop", "kept", "--confirm", "yes")
    shutil.copytree(checkpoint, tmp_path / "older")
    tiny.done("start", "kept", "--confirm", "yes")
    tiny.land(10)
    until(lambda: whole(tiny), 60, "what landed is in marked")
    tiny.done("stop", "kept", "--confirm", "yes")
    checkpoint.rename(tmp_path / "newest")
    shutil.copytree(tmp_path / "older", checkpoint)
    tiny.land(10)
    refused = tiny.run("start", "kept", "--confirm", "yes")
    assert refused.returncode == 3
    assert "is at batch" in refused.stderr and "headgate plan kept --rebuild" in refused.stderr
    shutil.rmtree(checkpoint)
    (tmp_path / "newest").rename(checkpoint)
    tiny.done("start", "kept", "--confirm", "yes")
    until(lambda: whole(tiny), 60, "nothing is lost once the right one is back")


def test_an_older_ledger_starts_nothing_until_it_is_adopted(tiny: Tiny, tmp_path: Path) -> None:
    ledger = tiny.home() / "ledger.db"
    with closing(sqlite3.connect(ledger)) as live, closing(sqlite3.connect(tmp_path / "ledger.db")) as copy:
        live.backup(copy)
    tiny.done("stop", "marked", "--confirm", "yes")
    tiny.land(10)
    tiny.done("down", "--confirm", "")
    lose_ledger(tiny)
    shutil.copyfile(tmp_path / "ledger.db", ledger)
    tiny.done("up")
    until(lambda: "older copy" in tiny.run("doctor").stdout, 30, "the doctor says so")
    refused = tiny.run("start", "marked", "--confirm", "yes")
    assert refused.returncode == 3 and "headgate adopt" in refused.stderr
    assert {row["state"] for row in tiny.statements().values() if not row["external"]} == {"unknown"}
    asked = tiny.run("adopt")
    assert asked.returncode == 3 and "the ledger is an older copy" in asked.stderr
    assert "marked@v1: has a newer record than the ledger, which is used: is at batch" in asked.stderr
    tiny.done("adopt", "--confirm", "dev adopt")
    until(lambda: tiny.statements()["kept"]["state"] == "running", 60, "what is wanted runs again")
    assert tiny.statements()["marked"]["state"] == "stopped", "the stop that came after the copy holds"
    tiny.done("start", "marked", "--confirm", "yes")
    until(lambda: whole(tiny), 60, "every row once")
    owner = json.loads((tiny.folder / "data/checkpoints/kept__v1/_headgate_owner").read_text())
    assert owner["epoch"] == 2


def test_a_restored_pool_file_starts_no_second_server(tiny: Tiny) -> None:
    record, pool = tiny.home() / "pool.json", tiny.pool_pid()
    os.kill(tiny.agent_pid(), signal.SIGKILL)
    kept = record.read_text()
    record.write_text(json.dumps(json.loads(kept) | {"pid": 1, "started": "another boot:1"}))
    said = tiny.run("up").stderr
    until(lambda: f"process {pool} is a server of this home" in tiny.run("doctor").stdout, 60, said)
    assert alive(pool)
    record.write_text(kept)
    until(lambda: tiny.statements()["kept"]["state"] == "running", 60, "the agent finds it again")


def lose_ledger(tiny: Tiny) -> None:
    for path in tiny.home().glob("ledger.db*"):
        path.unlink()


def adopt_lost(tiny: Tiny) -> None:
    """Start an agent over the data folder of a lost ledger, adopt it, and let rows land until all have come through."""
    tiny.done("up")
    until(lambda: "the data folder belongs to ledger" in tiny.run("doctor").stdout, 60, "the doctor says so")
    assert {tiny.statements()[table]["state"] for table in ("kept", "marked")} == {"absent"}
    asked = tiny.run("adopt")
    assert asked.returncode == 3
    for line in ("kept@v1: is not in the ledger, and is registered: continues after batch", "landed@v0: "):
        assert line in asked.stderr
    tiny.land(10)
    tiny.done("adopt", "--confirm", "dev adopt")
    for table in ("kept", "marked"):
        until(lambda table=table: tiny.statements()[table]["state"] == "running", 90, f"{table} goes on")  # type: ignore[misc]  # Bound per turn.
    until(lambda: whole(tiny), 90, "every row once")
    tiny.land(10)
    until(lambda: whole(tiny), 60, "what lands later as well")
    assert tiny.plan("--all")["steps"] == [], "what is deployed is what is declared"


@pytest.mark.long
def test_a_lost_ledger_is_rebuilt_from_the_data_folder(tiny: Tiny) -> None:
    tiny.done("down", "--confirm", "")
    lose_ledger(tiny)
    adopt_lost(tiny)


def test_a_ledger_lost_while_queries_run_is_rebuilt(tiny: Tiny) -> None:
    os.kill(tiny.agent_pid(), signal.SIGKILL)
    lose_ledger(tiny)
    adopt_lost(tiny)
