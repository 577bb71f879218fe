"""Upserts while agent, server or writer are killed and another actor works; tables are compared with a reference.

`HEADGATE_SEED` repeats a run, `HEADGATE_ROUNDS` makes it longer; each round lands events and breaks one thing.
"""

import json
import os
import random
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet as parquet
import pytest
from tiny_project import Tiny, alive, tiny_that_runs, until

from core.ports.spark import NEWEST_WRITER
from pipelines.storage.delta_log import DeltaLog

pytestmark = [pytest.mark.spark, pytest.mark.drill, pytest.mark.long]

ROUNDS = int(os.environ.get("HEADGATE_ROUNDS", "2"))
SEED = int(os.environ.get("HEADGATE_SEED", "15"))
IDS = range(1, 31)
ARRIVES_S = 150.0

DDL = {
    "landed": "CREATE TABLE landed (id BIGINT, v STRING, seq BIGINT, gone BOOLEAN) USING json LOCATION 'landing';",
    "kept": "CREATE TABLE kept (id BIGINT, v STRING, seq BIGINT, gone BOOLEAN) USING parquet;",
    "marked": "CREATE TABLE marked (id BIGINT, what STRING, seq BIGINT, n BIGINT) USING parquet;",
}
DML = {
    "kept": "INSERT INTO kept SELECT id, v, seq, gone FROM STREAM landed;",
    "marked": """INSERT INTO marked SELECT id, _change_type AS what, seq, _commit_version AS n
FROM STREAM kept WHERE _change_type <> 'update_preimage';""",
}
FILTERS = ("", "\nWHERE seq > 0", "\nWHERE seq >= 1")
"""Filters without effect, so that the statement's text changes and its results do not."""
VICTIMS = ("agent", "server", "writer")
"""Processes killed in turn while a deploy is in progress."""
KEYED = "mode: upsert\nkey: [id]\nsequence: seq\ndeletes: gone\ntags: [compatible]\n"
YML = {"kept": KEYED, "marked": "tags: [tolerant]\n"}

NEWER = """try:
    import pipelines.agent.deployment_compiler as compiler
    import pipelines.spark_connect.upsert_writers as writers
except ImportError:
    pass
else:
    def newest(upsert):
        raise AssertionError("a statement was given a writer that it was not deployed with")

    compiler.NEWEST_WRITER = 99
    writers._WRITERS = {**writers._WRITERS, 99: newest}
"""
"""Start-up code for an agent that has a newer writer."""

Held = dict[int, tuple[str, int]]


@dataclass
class Events:
    """Random events on a few keys, out of order within and across files, and the rows that a table must then hold."""

    chance: random.Random
    newest: int = 0
    late: list[tuple[int, str, int, bool]] = field(default_factory=list)
    last: dict[int, tuple[int, str, bool]] = field(default_factory=dict)
    landed: int = 0

    def land(self, folder: Path, count: int) -> None:
        """Land one file of new events, with some older ones that were held back."""
        rows = []
        for _ in range(count):
            self.newest += 1
            row = (self.chance.choice(IDS), f"v{self.newest}", self.newest, self.chance.random() < 0.15)
            (self.late if self.chance.random() < 0.2 else rows).append(row)
        while self.late and self.chance.random() < 0.5:
            rows.append(self.late.pop(self.chance.randrange(len(self.late))))
        self.write(folder, rows)

    def write(self, folder: Path, rows: list[tuple[int, str, int, bool]]) -> None:
        """Land rows as one file."""
        self.chance.shuffle(rows)
        for i, v, seq, gone in rows:
            self.last[i] = max(self.last.get(i, (0, "", True)), (seq, v, gone))
        self.landed += 1
        names = ("id", "v", "seq", "gone")
        hidden = folder / "data/landing/.part"
        hidden.write_text("".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows))
        hidden.rename(folder / f"data/landing/{self.landed:09}.json")

    def held(self) -> Held:
        """Return the rows that the table must contain."""
        return {i: (v, seq) for i, (seq, v, gone) in self.last.items() if not gone}


@pytest.fixture(scope="module")
def events() -> Events:
    return Events(random.Random(SEED))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory, events: Events) -> Iterator[Tiny]:
    """A project whose statements run and hold a first file of events."""
    with tiny_that_runs(tmp_path_factory.mktemp("keyed"), landed=0, format="delta", ddl=DDL, dml=DML, yml=YML) as found:
        events.land(found.folder, 40)
        applied = found.apply(found.plan("--all"))
        assert applied.returncode == 0, applied.stdout + applied.stderr
        until(lambda: kept(found) == events.held(), ARRIVES_S, "the table holds the first file")
        yield found


def rows_of(tiny: Tiny, table: str, version: int = 1) -> list[Mapping[str, object]]:
    folder = tiny.folder / f"data/tables/{table}__v{version}/delta"
    log = DeltaLog(str(folder))
    log.refresh()
    return [row for file in log.files_at(log.head) for row in parquet.read_table(folder / file.path).to_pylist()]


def kept(tiny: Tiny, version: int = 1) -> Held:
    found = rows_of(tiny, "kept", version)
    assert len({row["id"] for row in found}) == len(found), "one row for each key"
    return {int(str(row["id"])): (str(row["v"]), int(str(row["seq"]))) for row in found}


def told(tiny: Tiny) -> dict[int, int]:
    """Return each key's latest sequence according to the change feed, and assert that no change occurs twice."""
    found = [(int(str(r["id"])), int(str(r["n"])), str(r["what"]), int(str(r["seq"]))) for r in rows_of(tiny, "marked")]
    assert len({row[:3] for row in found}) == len(found), "no change twice"
    last = {i: (what, seq) for i, _, what, seq in sorted(found, key=lambda row: row[1])}
    return {i: seq for i, (what, seq) in last.items() if what != "delete"}


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    until(lambda: not alive(pid), 10, f"{pid} is dead")


def writers(tiny: Tiny) -> list[int]:
    """Return the processes of the pool's server that run a writer."""
    found = []
    for place in Path("/proc").iterdir():
        if not place.name.isdigit():
            continue
        try:
            parent = int(place.joinpath("stat").read_text().rpartition(")")[2].split()[1])
            words = place.joinpath("cmdline").read_text()
        except OSError:
            continue
        if parent == tiny.pool_pid() and "foreach_batch_worker" in words:
            found.append(int(place.name))
    return found


def deploy(tiny: Tiny, where: str, victim: str) -> None:
    """Deploy another text over the same checkpoint, and kill a victim while its run is open."""
    tiny.write(kept=DML["kept"].replace(";", f"{where};"))
    plan = tiny.plan("kept")
    assert [step["do"] for step in plan["steps"]] == ["restart"], plan["steps"]
    confirm = tiny.confirmation(plan)
    tiny.done("apply", plan["hash"][:12], "--confirm", confirm, "--detach")
    if victim == "agent":
        kill(tiny.agent_pid())
        tiny.done("up")
    else:
        kill(tiny.pool_pid() if victim == "server" else next(iter(writers(tiny)), tiny.pool_pid()))
    newest = "SELECT id, state FROM run ORDER BY started_at DESC LIMIT 1"
    until(lambda: tiny.ledger(newest)[0][1] in ("done", "failed"), ARRIVES_S, f"the deploy has ended, {victim}")
    ((run, state),) = tiny.ledger(newest)
    if state == "failed":
        tiny.done("runs", "retry", str(run), "--confirm", "yes")
        until(lambda: tiny.ledger(newest)[0][1] == "done", ARRIVES_S, "what has failed is done once it is tried again")


def test_no_row_is_lost_stale_or_repeated_whatever_is_killed(tiny: Tiny, events: Events) -> None:
    chance = events.chance
    breaks = ["writer", "server", "restart", "deploy", "agent", "stop"]
    done: dict[str, int] = {}
    for n in range(ROUNDS):
        for _ in range(chance.randint(1, 3)):
            events.land(tiny.folder, chance.randint(5, 40))
        what = breaks[n % len(breaks)]
        done[what] = done.get(what, 0) + 1
        if what == "writer":
            until(lambda: writers(tiny), 60, "a writer runs")
            kill(chance.choice(writers(tiny)))
        elif what == "agent":
            kill(tiny.agent_pid())
            events.land(tiny.folder, 10)
            tiny.done("up")
        elif what == "server":
            until(lambda: writers(tiny), 60, "a writer runs")
            orphans = writers(tiny)
            kill(tiny.pool_pid())
            until(lambda: not any(map(alive, orphans)), 30, "no writer outlives its server")  # noqa: B023
        elif what == "stop":
            tiny.done("stop", "kept", "--confirm", "yes")
            events.land(tiny.folder, 10)
            tiny.done("start", "kept", "--confirm", "yes")
        elif what == "restart":
            until(lambda: writers(tiny), 60, "a writer runs")
            kill(chance.choice(writers(tiny)))
            tiny.done("restart", "kept", "--confirm", "yes")
        else:
            deploy(tiny, FILTERS[done[what] % len(FILTERS)], VICTIMS[(done[what] - 1) % len(VICTIMS)])
        wanted = events.held()
        until(lambda: kept(tiny) == wanted, ARRIVES_S, f"round {n}, {what}: the table is as its input says")  # noqa: B023
    events.write(tiny.folder, events.late)
    wanted = events.held()
    until(lambda: kept(tiny) == wanted, ARRIVES_S, "nor do late rows change what is newer")
    sequences = {i: seq for i, (_, seq) in wanted.items()}
    until(lambda: told(tiny) == sequences, ARRIVES_S, "its reader was told every change")
    lost = [row for row in tiny.ledger("SELECT summary FROM event WHERE summary = 'HEADGATE_WORKER_LOST'")]
    assert len(lost) >= 1, "a writer's death is an event"
    print(f"{events.newest} events, {events.landed} files, {len(wanted)} keys held, breaks {done}: 0 lost, 0 stale")


def test_a_rebuild_is_compared_by_key_and_its_reader_of_changes_is_not(tiny: Tiny) -> None:
    wanted = kept(tiny)
    tiny.write(kept=DML["kept"].replace("id, v,", "id, upper(v) AS v,"))
    rebuilt = tiny.apply(tiny.plan("kept", "--rebuild"))
    assert rebuilt.returncode == 0, rebuilt.stdout + rebuilt.stderr
    assert kept(tiny, 2) == {i: (v.upper(), seq) for i, (v, seq) in wanted.items()}
    notes = dict(tiny.ledger('SELECT "table", note FROM step WHERE "do" = \'validate\''))
    assert str(notes["kept"]).startswith("as expected: "), notes
    assert "marked@v2 reads the changes of kept" in str(notes["marked"])
    back = tiny.apply(tiny.plan("rollback", "kept"))
    assert back.returncode == 0, back.stdout + back.stderr
    tiny.write()
    assert kept(tiny) == wanted


def test_a_rewrite_in_place_survives_a_killed_agent_and_server(tiny: Tiny) -> None:
    wanted, events = kept(tiny), Events(random.Random(SEED), newest=100_000, landed=1_000)
    tiny.write(kept=DML["kept"].replace("id, v,", "id, upper(v) AS v,"))
    plan = tiny.plan("kept", "--strategy", "kept=keyed")
    assert [step["do"] for step in plan["steps"]] == ["rewrite", "catch_up"]
    confirm = tiny.confirmation(plan)
    kill(tiny.agent_pid())
    tiny.done("up", HEADGATE_FAULT_AT="rewrite move kept")
    agent = tiny.agent_pid()
    tiny.run("apply", plan["hash"][:12], "--confirm", confirm)
    until(lambda: not alive(agent), 60, "the agent has died between the ledger and the start")
    tiny.done("up")
    events.land(tiny.folder, 40)
    kill(tiny.pool_pid())
    events.land(tiny.folder, 40)
    events.write(tiny.folder, events.late)
    wanted |= {i: (v, seq) for i, (seq, v, gone) in events.last.items() if not gone}
    wanted = {i: (v.upper(), seq) for i, (v, seq) in wanted.items() if not events.last.get(i, (0, "", False))[2]}
    until(lambda: kept(tiny) == wanted, ARRIVES_S, "each key as the new text has it")
    until(lambda: tiny.ledger("SELECT state FROM run ORDER BY started_at DESC")[0] == ("done",), 60, "the run is done")
    sequences = {i: seq for i, (_, seq) in wanted.items()}
    until(lambda: told(tiny) == sequences, ARRIVES_S, "its reader was told every change")
    (row,) = tiny.ledger("SELECT version, checkpoint FROM deployment WHERE active AND \"table\" = 'kept'")
    assert row[0] == 1 and ".rewrite." in str(row[1])


def test_an_upgraded_agent_keeps_the_writer_of_each_deployed_statement(tiny: Tiny) -> None:
    """The newer agent has another writer, and the project's files are gone: only the registry knows the right one."""
    newer = tiny.root / "newer"
    newer.mkdir()
    (newer / "sitecustomize.py").write_text(NEWER)
    tiny.done("up")
    files, away = tiny.folder / "pipelines", tiny.root / "away"
    kill(tiny.agent_pid())
    tiny.done("up", PYTHONPATH=str(newer))
    files.rename(away)
    try:
        until(lambda: writers(tiny), 60, "a writer runs")
        before = set(writers(tiny))
        for pid in before:
            kill(pid)
        held, events = kept(tiny), Events(random.Random(SEED), newest=200_000, landed=2_000)
        events.write(tiny.folder, [(900_000, "later", 200_001, False)])
        until(lambda: set(kept(tiny)) == held.keys() | {900_000}, ARRIVES_S, "the older writer goes on")
    finally:
        away.rename(files)
    assert not before & set(writers(tiny))
    assert tiny.ledger("SELECT mode FROM deployment WHERE active AND \"table\" = 'kept'") == [
        (f"upsert/{NEWEST_WRITER}",)
    ]


def test_rows_without_a_key_end_the_statement_with_a_remedy(tiny: Tiny) -> None:
    folder = tiny.folder / "data/landing"
    (folder / ".part").write_text('{"v": "x", "seq": 1000000}\n')
    (folder / ".part").rename(folder / "z-null.json")
    until(lambda: tiny.statements()["kept"]["state"] == "failed", 90, "the statement has failed")
    ((error, error_class),) = tiny.ledger(
        'SELECT error, error_class FROM deployment WHERE active AND "table" = ?', "kept"
    )
    assert error_class == "HEADGATE_NULL_KEY" and str(error).startswith("a row has no key")
    assert "; filter such rows out in its statement, and deploy it" in str(error)
