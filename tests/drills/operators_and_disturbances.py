"""Drill: operators act on the demo while it is killed, filled, frozen, restored and cloned; then rows are compared.

Run: python tests/drills/operators_and_disturbances.py [ROUNDS [SEED [ROOT]]], as root; about three minutes a round. In
each round a statement is rebuilt, an operator stops, starts, restarts, deletes and deploys at random, a neighbour
fails, and two disturbances happen, each kind in turn; then older state is restored. Afterwards exactly the wanted
statements must run, no run may be open or in doubt, and the audit must be complete. Exits 1 if that does not hold in a
round, or if a table has one row too many or too few at the end.
"""

import json
import random
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from disturbances import LEAF, LIVE, NEIGHBOUR, RESTORED, Disturbance, Disturbed, whole
from drill_process import run_drill
from exact_results import finish
from expected_results import ExpectedRules
from live_project import Impatient, until

RATE = "4"
BACK_S = 240.0
REBUILT = ("fct_kitchen_load", "src_payments", "fct_revenue")
"""Statements that are rebuilt with unchanged texts, so that the expected rows stay the same."""
ACTS = ("stop", "stop", "start", "restart")


class Operator(threading.Thread):
    """A thread that stops, starts, restarts and deletes until told to end; remembers each statement's last command."""

    def __init__(self, demo: Disturbed, seed: int, stopped: set[str]) -> None:
        super().__init__(daemon=True)
        self.demo, self.chance, self.over = demo, random.Random(seed), threading.Event()
        self.stopped = stopped
        self.done: Counter[str] = Counter()

    def run(self) -> None:
        tables = sorted(self.demo.healthy())
        while not self.over.is_set():
            if self.chance.random() < 0.1:
                self.done[f"delete: exit code {self.demo.delete(LEAF).returncode}"] += 1
            else:
                act(self.demo, self.chance.choice(tables), self.chance.choice(ACTS), self.stopped, self.done)
            self.over.wait(self.chance.uniform(0.2, 2.0))


def act(demo: Disturbed, table: str, what: str, stopped: set[str], done: Counter[str]) -> None:
    """Repeat a command until an agent answers, because an agent that died may not have received it."""
    while True:
        said = demo.run(what, table, "--confirm", "yes", "--json")
        found = json.loads(said.stdout or "{}")
        if found.get("error", {}).get("class") != "AgentUnreachable":
            break
        done[f"{what}: no agent, repeated"] += 1
    outcomes = [str(each["outcome"]) for each in found.get("statements", ())] or [f"exit code {said.returncode}"]
    done[f"{what}: {outcomes[0].split(':')[0]}"] += 1
    if what == "stop" and said.returncode in (0, 4):
        # A stop holds even if it is not confirmed.
        stopped.add(table)
    elif what != "stop" and said.returncode == 0:
        stopped.discard(table)


class Deck:
    """A deck of cards: each card is drawn once before any card is drawn again."""

    def __init__(self, cards: dict[str, Disturbance], chance: random.Random) -> None:
        self._cards, self._chance, self._left = cards, chance, list[str]()

    def draw(self) -> tuple[str, Disturbance]:
        """Return the next disturbance with its name."""
        if not self._left:
            self._left = self._chance.sample(list(self._cards), len(self._cards))
        name = self._left.pop()
        return name, self._cards[name]


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 6
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 12
    kept = len(sys.argv) > 3
    root = Path(sys.argv[3]).absolute() if kept else Path(tempfile.mkdtemp(prefix="headgate-drill-"))
    demo, chance = Disturbed(root, {"HEADGATE_MEASURE_S": "1"}), random.Random(seed)
    live, restored = Deck(LIVE, chance), Deck(RESTORED, chance)
    did: Counter[str] = Counter()
    took: list[float] = []
    with demo.disks():
        try:
            demo.begin_on_disks("--rate", RATE)
            demo.add_neighbour()
            bad = sum(not disturb(demo, number + 1, chance, live, restored, did, took) for number in range(rounds))
            demo.remove_neighbour()
            bad += finish(demo, ExpectedRules())
            report(rounds, seed, did, took, bad)
            return 1 if bad else 0
        finally:
            if kept:
                shutil.copytree(demo.home(), root / "home-at-the-end")
            demo.down()
            if not kept:
                shutil.rmtree(root, ignore_errors=True)


def disturb(
    demo: Disturbed,
    number: int,
    chance: random.Random,
    live: Deck,
    restored: Deck,
    did: Counter[str],
    took: list[float],
) -> bool:
    """Rebuild, act and disturb at once, then restore older state; return whether all rules held after each step."""
    stopped: set[str] = set()
    demo.run("restart", NEIGHBOUR, "--confirm", "yes")
    operator = Operator(demo, chance.randrange(2**32), stopped)
    operator.start()
    begin_rebuild(demo, chance.choice(REBUILT), did)
    names, good = [], True
    for _ in range(2):
        time.sleep(chance.uniform(0.0, 8.0))  # The random moment is the point of this drill.
        name, disturbance = live.draw()
        names.append(name)
        good &= went(demo, chance, name, disturbance, did)
    operator.over.set()
    operator.join()
    did.update(operator.done)
    good &= holds(demo, f"round {number:2}, {' and '.join(names)}", stopped, did, took)
    name, disturbance = restored.draw()
    good &= went(demo, chance, name, disturbance, did)
    for table in sorted(demo.healthy()):
        # An older registry contains older commands, so the operator's last commands are repeated.
        act(demo, table, "stop" if table in stopped else "start", stopped, did)
    good &= holds(demo, f"round {number:2}, {name}", stopped, did, took)
    for table in sorted(stopped):
        act(demo, table, "start", set(), did)
    until(lambda: set(demo.healthy().values()) == {"running"}, BACK_S, "every statement runs")
    return good


def went(demo: Disturbed, chance: random.Random, name: str, disturbance: Disturbance, did: Counter[str]) -> bool:
    """Disturb the demo; return whether all messages and refusals were as expected."""
    did[name] += 1
    try:
        disturbance(demo, chance)
    except AssertionError as error:
        print(f"{name}: {error}", flush=True)
        return False
    return True


def begin_rebuild(demo: Disturbed, table: str, did: Counter[str]) -> None:
    """Plan and apply a rebuild and detach; a disturbed environment may refuse it."""
    planned = demo.run("plan", table, "--rebuild", "--json")
    if planned.returncode == 0:
        plan = json.loads(planned.stdout)
        applied = demo.run("apply", plan["hash"][:12], "--confirm", demo.confirmation(plan), "--detach", "--json")
        did[f"rebuild applied: exit code {applied.returncode}"] += 1
    else:
        did[f"rebuild planned: exit code {planned.returncode}"] += 1


def holds(demo: Disturbed, what: str, stopped: set[str], did: Counter[str], took: list[float]) -> bool:
    """Wait until the rules hold, and print the rules that do not."""
    began = time.monotonic()
    try:
        demo.back()
        end_runs(demo, did)
        if demo.healthy().get(LEAF, "absent") == "absent":
            stopped.discard(LEAF)
            demo.apply(demo.plan(LEAF))
        restart_failed(demo, stopped, did)
        until(lambda: not wrong(demo, stopped), BACK_S, "exactly the wanted statements run")
        bad = whole(demo)
    except Impatient as error:
        bad = [f"{error}: {wrong(demo, stopped)}", *whole(demo)]
    took.append(time.monotonic() - began)
    print(f"{what}: stopped {sorted(stopped)}, {bad or 'held'} after {took[-1]:.0f} s", flush=True)
    return not bad


def end_runs(demo: Disturbed, did: Counter[str]) -> None:
    """Wait for open runs to end, and cancel failed ones that keep their new versions for a retry."""
    for (run,) in demo.ledger("SELECT id FROM run WHERE ended_at IS NULL OR state = 'failed'"):
        name = str(run)

        def state(name: str = name) -> str:
            # The exit code is 1 for a failed run.
            return str(json.loads(demo.run("runs", name, "--json").stdout or "{}").get("state", ""))

        until(lambda state=state: state() in ("done", "failed", "cancelled"), BACK_S, f"run {name} has ended")
        did[f"run {state()}"] += 1
        if state() == "failed":
            demo.done("runs", "cancel", name, "--confirm", name.split("-")[0])
            until(lambda state=state: state() == "cancelled", 60, f"run {name} is cancelled")


def restart_failed(demo: Disturbed, stopped: set[str], did: Counter[str]) -> None:
    """Restart failed statements that report an error, as an operator would: a full disk fails a batch for good."""
    rows = demo.ledger("SELECT \"table\", error FROM deployment WHERE active AND state = 'failed'")
    for table, error in ((str(table), str(error)) for table, error in rows):
        if table not in (NEIGHBOUR, *stopped):
            did[f"failed and restarted: {'no space' if 'space' in error else error[:60] or 'WITHOUT A REASON'}"] += 1
            act(demo, table, "restart", stopped, did)


def wrong(demo: Disturbed, stopped: set[str]) -> dict[str, str]:
    """Return the states that contradict the operators' last commands."""
    return {t: s for t, s in demo.healthy().items() if s != ("stopped" if t in stopped else "running")}


def report(rounds: int, seed: int, did: Counter[str], took: list[float], bad: int) -> None:
    """Print what happened to the demo, how often, and how long recovery took."""
    for what, count in sorted(did.items()):
        print(f"  {count:4} {what}")
    print(f"recovered {len(took)} times: median {statistics.median(took):.0f} s, worst {max(took):.0f} s")
    print(f"{rounds} rounds with seed {seed}: {bad} things are wrong")


if __name__ == "__main__":
    run_drill(main)
