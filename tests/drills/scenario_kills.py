"""Drill: kill -9 a server, the pool or the agent of a scenario at seeded moments, while an operator acts; compare rows.

Run: python tests/drills/scenario_kills.py [SCENARIO [KILLS [SEED [ROOT]]]]. SCENARIO is 5 (slot source) or 6
(Debezium), by default both. Takes two to ten minutes for each; ROOT (a new folder) is kept. Exits 1 if the table of
pizzas to bake lacks a state of an order that was committed, has it twice, or has one that never was. The truth comes
from a trigger in the database, which records each order as its transaction commits it, because a killed database leaves
the application unsure of its last transaction.
"""

import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import psycopg
from drill_process import run_drill
from live_project import Impatient, alive, until
from scenario_folder import ScenarioFolder

from pipelines.demo.scenarios import cluster_of

TABLE = "pizzas_to_bake"
BACK_S = 240.0
MOMENT_S = 12.0
"""A kill comes within this time after rows have arrived again."""
RATE = "4"

AUDIT = """
CREATE TABLE audit (order_id int, revision int, client_name text, table_name text, pizzas json,
  xid xid8 DEFAULT pg_current_xact_id(), PRIMARY KEY (order_id, revision, xid));
CREATE FUNCTION record_order() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
  INSERT INTO audit SELECT order_id, revision, client_name, table_name, pizzas FROM order_enriched
    WHERE order_id = NEW.id ON CONFLICT DO NOTHING;
  RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER audited AFTER INSERT OR UPDATE ON orders DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW WHEN (NEW.id > {newest}) EXECUTE FUNCTION record_order();
"""

Shown = tuple[int, int, str, str, tuple[tuple[str, str], ...]]
"""Order, revision, client, table, and the name and price of each pizza."""


class Operator(threading.Thread):
    """Stops, starts and restarts the statement at random until told to end."""

    def __init__(self, demo: ScenarioFolder, seed: int) -> None:
        super().__init__(daemon=True)
        self.demo, self.chance, self.did = demo, random.Random(seed), Counter[str]()
        self.over, self._calm, self._acting = threading.Event(), threading.Event(), threading.Lock()

    def run(self) -> None:
        while not self.over.is_set():
            with self._acting:
                for act in self.chance.choice((("restart",), ("stop", "start"))):
                    while not (self._calm.is_set() or self.over.is_set() or self.does(act)):
                        self.over.wait(1.0)
            self.over.wait(self.chance.uniform(1.0, 6.0))

    def does(self, act: str) -> bool:
        """Return whether an agent has performed an act; a stop holds even if it is not confirmed."""
        code = self.demo.run(act, TABLE, "--confirm", "yes", "--json").returncode
        self.did[f"{act}: exit code {code}"] += 1
        return code == 0 or (act == "stop" and code == 4)

    @contextmanager
    def calm(self) -> Iterator[None]:
        """Let the operator give up what does not succeed, and do nothing during the block."""
        self._calm.set()
        with self._acting:
            yield
            self._calm.clear()


def main() -> int:
    numbers = [int(sys.argv[1])] if len(sys.argv) > 1 else [5, 6]
    kills = int(sys.argv[2]) if len(sys.argv) > 2 else 10
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 29
    kept = len(sys.argv) > 4
    bad = 0
    for number in numbers:
        root = Path(sys.argv[4]).absolute() if kept else Path(tempfile.mkdtemp(prefix="headgate-drill-"))
        root.mkdir(exist_ok=True)
        root.chmod(0o755)
        demo = ScenarioFolder(root, {"HEADGATE_MEASURE_S": "1"}, number=number)
        try:
            bad += drill(demo, kills, seed)
        finally:
            if demo.folder.is_dir():
                demo.down()
            if not kept:
                shutil.rmtree(root, ignore_errors=True)
    return 1 if bad else 0


def drill(demo: ScenarioFolder, kills: int, seed: int) -> int:
    """Kill one process after another, then print and return how many rows are wrong."""
    demo.begin("--rate", RATE)
    record_orders(demo)
    chance, waiting = random.Random(seed), list[str]()
    operator = Operator(demo, seed)
    operator.start()
    for number in range(1, kills + 1):
        if not waiting:
            victims = [*demo.servers(), "pool", "agent"]
            waiting = chance.sample(victims, len(victims))
        kill(demo, operator, number, waiting.pop(), chance.uniform(0, MOMENT_S))
    operator.over.set()
    operator.join()
    until(lambda: operator.does("start"), BACK_S, "the statement is started")
    demo.end_application()
    expected = committed_orders(demo)
    try:
        until(lambda: expected.keys() <= shown(demo).keys(), BACK_S, "every order is in the table", every_s=1.0)
    except Impatient as error:
        print(error, flush=True)
    found = shown(demo)
    newest = min(key[0] for key in expected)
    lost = [key for key in expected if key not in found]
    twice = [key for key, count in found.items() if count > 1]
    never = [key for key in found if key[0] >= newest and key not in expected]
    bad = len(lost) + len(twice) + len(never)
    print(
        f"scenario {demo.number}, {kills} kills with seed {seed}, operator {dict(operator.did)}: "
        f"{len(expected)} states committed, {len(lost)} lost, {len(twice)} twice, {len(never)} never committed",
        *(f"  {what}: {keys[:3]}" for what, keys in (("lost", lost), ("twice", twice), ("never", never)) if keys),
        sep="\n",
        flush=True,
    )
    return bad


def kill(demo: ScenarioFolder, operator: Operator, number: int, victim: str, moment: float) -> None:
    """Kill a process after a moment, start it again as a user would, and wait until rows arrive; raises Impatient."""
    time.sleep(moment)  # A kill at a random moment is the point of this drill.
    pid = {"pool": demo.pool_pid, "agent": demo.agent_pid}.get(victim, lambda: demo.servers()[victim])()
    os.kill(pid, signal.SIGKILL)
    began = time.monotonic()
    until(lambda: not alive(pid), 10, f"{victim} is dead")
    with operator.calm():
        if victim == "agent":
            demo.done("up")
        elif victim != "pool":
            demo.begin("--rate", RATE)
        until(lambda: operator.does("start"), BACK_S, "the statement is started")
        before = demo.count()
        until(lambda: demo.count() > before, BACK_S, f"rows arrive after {victim} was killed")
    print(f"kill {number:2}: {moment:4.1f} s, {victim} {pid}; rows after {time.monotonic() - began:.0f} s", flush=True)


def record_orders(demo: ScenarioFolder) -> None:
    """Let the database record each order that is new from now on, as each transaction commits it."""
    with closing(psycopg.connect(cluster_of(demo.folder).dsn)) as connection:
        # Otherwise, an order that is committed before the trigger exists would be new, but not recorded.
        connection.execute("LOCK TABLE orders IN SHARE ROW EXCLUSIVE MODE")
        (newest,) = connection.execute("SELECT max(id) FROM orders").fetchone() or (0,)
        connection.execute(AUDIT.format(newest=newest).encode())
        connection.commit()


def committed_orders(demo: ScenarioFolder) -> dict[Shown, int]:
    """Return the recorded states of orders."""
    with closing(psycopg.connect(cluster_of(demo.folder).dsn)) as connection:
        rows = connection.execute("SELECT order_id, revision, client_name, table_name, pizzas FROM audit").fetchall()
    names = ("order_id", "revision", "client_name", "table_name", "pizzas")
    return {state(dict(zip(names, row, strict=True))): 1 for row in rows}


def shown(demo: ScenarioFolder) -> Counter[Shown]:
    """Return the states of orders in the table, with how often each is there."""
    return Counter(state(row) for row in demo.tickets())


def state(row: dict[str, Any]) -> Shown:
    pizzas = tuple((str(each["pizza"]), f"{each['price']:.2f}") for each in row["pizzas"] or ())
    return row["order_id"], row["revision"], row["client_name"], row["table_name"], pizzas


if __name__ == "__main__":
    run_drill(main)
