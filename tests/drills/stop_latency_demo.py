"""Situations of `stop_latency` on the demo: a run waits at its gate, also while batch queries occupy both cores."""

import json
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NoReturn

from live_project import until
from measured_stops import Situation, Stop, client_of, stop
from pizzeria_demo import Pizzeria

from pipelines.spark_connect.session import Session, endless

DEMO_SITUATIONS = {"gate": "a run waits at its gate", "busy": "a run waits, both cores are busy"}
BATCHES = "batch-queries"
WAVE = 13
TWO_TRIGGERS_S = 32.0
"""Seconds to wait for two triggers; the sample's longest trigger interval is 15 s."""
PRINTER = "pipelines/facts/kitchen/order_labels/sql-scripts/dml.order_labels.sql"


def measure_demo(count: int, words: Sequence[str]) -> Iterator[Situation]:
    """Stop `count` times in each situation; after each wave nothing may be committed for two triggers."""
    root = Path(tempfile.mkdtemp(prefix="headgate-drill-"))
    demo = Pizzeria(root)
    try:
        demo.begin()
        run = open_gate(demo)
        for word in words:
            if word == "busy":
                with under_load(demo):
                    yield waves(demo, DEMO_SITUATIONS[word], count, run)
            else:
                yield waves(demo, DEMO_SITUATIONS[word], count, run)
        demo.done("runs", "cancel", run, "--confirm", run[:4])
    finally:
        demo.down()
        shutil.rmtree(root, ignore_errors=True)


def open_gate(demo: Pizzeria) -> str:
    """Begin a rebuild whose gate stays closed, because its statement reads one file in five seconds."""
    script = demo.folder / PRINTER
    shipped = script.read_text()
    script.write_text(shipped.replace("'maxFilesPerTrigger'='4'", "'maxFilesPerTrigger'='1'"))
    plan = demo.plan("order_labels", "--rebuild")
    script.write_text(shipped)
    run = str(client_of(demo).call("apply", {"hash": plan["hash"]}, confirm=plan["submitted"]["confirm"])["run"])
    until(lambda: waits(demo, run), 120, "the rebuild waits at its gate")
    print(f"run {run} waits at its gate", flush=True)
    return run


def waits(demo: Pizzeria, run: str) -> bool:
    """Return whether the run's new version is catching up."""
    found = json.loads(demo.done("runs", run, "--json"))
    return found["state"] == "running" and any(s["do"] == "catch_up" and s["state"] == "gate" for s in found["steps"])


@contextmanager
def under_load(demo: Pizzeria) -> Iterator[None]:
    """Run one batch query after another over both cores, in a separate process."""
    pool = json.loads((demo.home() / "pool.json").read_text())
    token = (demo.home() / "pool.token").read_text()
    drill = Path(__file__).with_name("stop_latency.py")
    command = [sys.executable, str(drill), BATCHES, f"sc://127.0.0.1:{pool['port']}", token]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout
        print(f"load: {child.stdout.readline().strip()}", flush=True)
        try:
            yield
            assert child.poll() is None, "the load ended early"
        finally:
            child.terminate()


def batch_queries(url: str, token: str) -> NoReturn:
    """Run batch queries in a session of its own, forever."""
    session = Session(url, token, str(uuid.uuid4()))
    session.attach()
    print("batch queries of four tasks, a few seconds of both cores each", flush=True)
    with endless():
        while True:
            session.spark.sql("SELECT sum(hash(sha2(cast(id AS STRING), 256))) FROM range(0, 3000000, 1, 4)").collect()


def waves(demo: Pizzeria, name: str, count: int, run: str) -> Situation:
    """Stop in waves of a few statements, prove each wave, and start them again."""
    tables = sorted(set(demo.states()) - {"order_labels"})
    stops: list[Stop] = []
    wrong: list[str] = []
    client = client_of(demo)
    while len(stops) < count:
        wave = [tables[(len(stops) + n) % len(tables)] for n in range(min(WAVE, count - len(stops)))]
        for table in wave:
            until(partial(runs, demo, table), 120, f"{table} runs")
            stops += stop(client, table)
        wrong += prove(demo, wave)
        if not waits(demo, run):
            wrong.append("the run has left its gate")
        for table in reversed(wave):
            client.call("start", {"tables": [table]}, confirm="yes")
        print(f"  {name}: {len(stops)} stops", flush=True)
    return Situation(name, tuple(stops), tuple(wrong))


def runs(demo: Pizzeria, table: str) -> bool:
    return demo.states()[table] == "running"


def prove(demo: Pizzeria, wave: list[str]) -> Iterator[str]:
    """Wait for two triggers; yield a complaint per statement that is not stopped or committed after its stop."""
    rows = demo.statements()
    before = {table: commits(demo, table, int(rows[table]["version"])) for table in wave}
    time.sleep(TWO_TRIGGERS_S)  # The absence of an event is not a condition that can be awaited.
    rows = demo.statements()
    for table in wave:
        after = commits(demo, table, int(rows[table]["version"]))
        if rows[table]["state"] != "stopped" or after != before[table]:
            yield f"{table} is {rows[table]['state']}, its checkpoint went from {before[table]} to {after}"


def commits(demo: Pizzeria, table: str, version: int) -> tuple[int, int]:
    """Return the newest offset and the newest commit of a checkpoint."""
    folder = demo.folder / f"data/checkpoints/{table}__v{version}"
    newest = [max((int(p.name) for p in (folder / log).iterdir() if p.name.isdigit()), default=-1)
              for log in ("offsets", "commits")]  # fmt: skip
    return newest[0], newest[1]
