"""Drill: operators act on the demo while its agent and its server are killed; then settle and compare every table.

Run: python tests/drills/operators_and_kills.py [ROUNDS [SEED [ROOT]]]. Takes some minutes; ROOT (a new folder) is
kept. In each round an operator stops, starts and restarts statements at random, in the middle of a rebuild,
while the agent or the server is killed with SIGKILL. Afterwards nothing runs that was stopped, and all others run.
Exits 1 when that does not hold, when a run is in doubt, or when one row is too many or too few.
"""

import json
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from drill_process import run_drill
from exact_results import finish
from expected_results import ExpectedRules
from live_project import Impatient, until
from pizzeria_demo import Pizzeria

RATE = "4"
BACK_S = 240.0
REBUILT = ("fct_kitchen_load", "src_payments", "fct_revenue")
"""Statements that are rebuilt with the text that they have: the reference stays what it is."""


class Operator(threading.Thread):
    """Somebody who stops, starts and restarts statements until told to end, and knows the last word on each."""

    def __init__(self, demo: Pizzeria, seed: int) -> None:
        super().__init__(daemon=True)
        self.demo, self.chance, self.over = demo, random.Random(seed), threading.Event()
        self.stopped: set[str] = set()
        self.done: Counter[str] = Counter()

    def run(self) -> None:
        tables = sorted(self.demo.states())
        while not self.over.is_set():
            self._act(self.chance.choice(tables), self.chance.choice(("stop", "stop", "start", "restart")))
            self.over.wait(self.chance.uniform(0.2, 2.0))

    def _act(self, table: str, act: str) -> None:
        """Act until an agent answers: of a command that lost its agent nobody knows whether it was heard."""
        outcomes: list[str] = []
        while not outcomes:
            said = self.demo.run(act, table, "--confirm", "yes", "--json")
            found = json.loads(said.stdout or "{}")
            if found.get("error", {}).get("class") == "AgentUnreachable":
                self.done[f"{act}: no agent, said again"] += 1
                continue
            outcomes = [str(each["outcome"]) for each in found.get("statements", ())] or [
                f"exit code {said.returncode}"
            ]
        self.done[f"{act}: {outcomes[0].split(':')[0]}"] += 1
        if act == "stop" and said.returncode in (0, 4):
            # Also a stop that is not confirmed holds.
            self.stopped.add(table)
        elif act != "stop" and said.returncode == 0:
            self.stopped.discard(table)


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 6
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 12
    kept = len(sys.argv) > 3
    root = Path(sys.argv[3]).absolute() if kept else Path(tempfile.mkdtemp(prefix="headgate-drill-"))
    demo, chance = Pizzeria(root, {"HEADGATE_MEASURE_S": "1"}), random.Random(seed)
    did: Counter[str] = Counter()
    try:
        demo.begin("--rate", RATE)
        bad = sum(not disturb(demo, number + 1, chance, did) for number in range(rounds))
        bad += finish(demo, ExpectedRules())
        print(f"{rounds} rounds with seed {seed}: {bad} things are wrong; {dict(sorted(did.items()))}")
        return 1 if bad else 0
    finally:
        demo.down()
        if not kept:
            shutil.rmtree(root)


def disturb(demo: Pizzeria, number: int, chance: random.Random, did: Counter[str]) -> bool:
    """Rebuild a statement while an operator acts and something is killed; whether what must hold held afterwards."""
    operator = Operator(demo, chance.randrange(2**32))
    table = chance.choice(REBUILT)
    operator.start()
    began = time.monotonic()
    planned = demo.run("plan", table, "--rebuild", "--json")
    run = ""
    if planned.returncode == 0:
        plan = json.loads(planned.stdout)
        applied = demo.run("apply", plan["hash"][:12], "--confirm", demo.confirmation(plan), "--detach", "--json")
        run = str(json.loads(applied.stdout).get("run", "")) if applied.returncode == 0 else ""
        did["runs" if run else f"apply: exit code {applied.returncode}"] += 1
    for _ in range(chance.randint(1, 2)):
        time.sleep(chance.uniform(0.0, 12.0))  # The drawn moment is what is drilled.
        kill(demo, chance.choice(("agent", "server")), did)
    operator.over.set()
    operator.join()
    did.update(operator.done)
    try:
        until(lambda: demo.run("up").returncode == 0, 120, "the agent answers")
        good = end_run(demo, run, did)
        until(lambda: settled(demo, operator.stopped), BACK_S, "what is wanted runs, and nothing else")
    except Impatient as error:
        print(
            f"round {number:2}: {error}; stopped {sorted(operator.stopped)}; {wrong(demo, operator.stopped)}",
            flush=True,
        )
        return False
    back_s = time.monotonic() - began
    for name in sorted(operator.stopped):
        demo.done("start", name, "--confirm", "yes")
    until(demo.all_run, BACK_S, "every statement runs")
    print(
        f"round {number:2}: rebuild of {table}, stopped {sorted(operator.stopped)}, held after {back_s:.0f} s",
        flush=True,
    )
    return good


def kill(demo: Pizzeria, what: str, did: Counter[str]) -> None:
    """Kill the agent or the server; an agent is started again, a server the agent starts again."""
    try:
        os.kill(demo.agent_pid() if what == "agent" else demo.pool_pid(), signal.SIGKILL)
    except (OSError, ValueError, StopIteration):
        did[f"{what} was down already"] += 1
        return
    did[f"kill -9 of the {what}"] += 1
    if what == "agent":
        demo.run("up")


def end_run(demo: Pizzeria, run: str, did: Counter[str]) -> bool:
    """Wait for the round's run; one that failed is cancelled. Whether it came to an end that is written."""
    if not run:
        return True

    def state() -> str:
        # Its exit code is 1 for a run that failed.
        return str(json.loads(demo.run("runs", run, "--json").stdout or "{}").get("state", ""))

    until(lambda: state() in ("done", "failed", "cancelled"), BACK_S, f"run {run} has ended")
    did[f"run {state()}"] += 1
    if state() == "failed":
        demo.done("runs", "cancel", run, "--confirm", run.split("-")[0])
        until(lambda: state() == "cancelled", 60, f"run {run} is cancelled")
    return True


def settled(demo: Pizzeria, stopped: set[str]) -> bool:
    """Return whether exactly what nobody has stopped runs."""
    return not wrong(demo, stopped)


def wrong(demo: Pizzeria, stopped: set[str]) -> dict[str, str]:
    """Return the states that are not as the operators' last words are."""
    return {t: s for t, s in demo.states().items() if s != ("stopped" if t in stopped else "running")}


if __name__ == "__main__":
    run_drill(main)
