"""Drill: stop a statement while the pool is frozen, while the ledger is locked, and while the ledger's disk is full.

Run: python tests/drills/stop_under_faults.py [frozen] [locked] [full]; without arguments, all of them. Takes about four
minutes. `full` mounts a small tmpfs as HEADGATE_HOME and needs root; if it may not mount, it says so and fails.
"""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from drill_process import run_drill
from tiny_project import Tiny, until

FROZEN_S = 60.0
QUIET_S = 5.0
"""Seconds without progress that prove a stop: longer than two triggers of the tiny project."""


def main() -> int:
    words = sys.argv[1:] or list(DRILLS)
    bad = 0
    for word in words:
        root = Path(tempfile.mkdtemp(prefix="headgate-drill-"))
        print(f"== {word}", flush=True)
        try:
            DRILLS[word](root)
            print(f"{word}: ok", flush=True)
        except (AssertionError, OSError, subprocess.SubprocessError) as error:
            print(f"{word}: FAILED: {error}", flush=True)
            bad += 1
        finally:
            shutil.rmtree(root, ignore_errors=True)
    print(f"{bad} of {len(words)} failed")
    return 1 if bad else 0


def frozen(root: Path) -> None:
    """The pool does not answer: this is reported, a stop is sent unconfirmed, and it holds once the pool is back."""
    with_tiny(Tiny(root, {"HEADGATE_MEASURE_S": "1"}), _frozen)


def _frozen(tiny: Tiny) -> None:
    pid = tiny.pool_pid()
    os.kill(pid, signal.SIGSTOP)
    began = time.monotonic()
    try:
        until(lambda: "silent" in tiny.run("ls").stderr, 30, "ls reports that the pool is silent")
        say(f"ls after {time.monotonic() - began:.1f} s: {tiny.run('ls').stderr.strip()}")
        asked = time.monotonic()
        said = tiny.run("stop", "marked", "--confirm", "yes")
        say(f"stop, exit code {said.returncode} after {time.monotonic() - asked:.1f} s: {said.stdout.strip()}")
        assert "sent, not confirmed" in said.stdout, said.stdout + said.stderr
        wait_until(began + FROZEN_S)
    finally:
        os.kill(pid, signal.SIGCONT)
    thawed = time.monotonic()
    until(lambda: tiny.statements()["marked"]["state"] == "stopped", 60, "the stop took effect")
    say(f"stopped {time.monotonic() - thawed:.1f} s after the pool went on")
    assert tiny.pool_pid() == pid, "the pool is the same"
    until(lambda: tiny.statements()["kept"]["state"] == "running", 30, "its sibling runs")
    nothing_moves(tiny)
    goes_on(tiny)


def locked(root: Path) -> None:
    """Another process holds the ledger: a stop is not delayed, and the ledger records it later."""
    with_tiny(Tiny(root, {"HEADGATE_MEASURE_S": "1"}), _locked)


def _locked(tiny: Tiny) -> None:
    holder = sqlite3.connect(tiny.home() / "ledger.db", isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    try:
        stop_through(tiny)
        time.sleep(QUIET_S)  # Meanwhile the agent's rounds meet the lock.
        assert entries(tiny) == 1, f"{entries(tiny)} entries are in the emergency journal"
    finally:
        holder.execute("ROLLBACK")
        holder.close()
    learned(tiny)


def full(root: Path) -> None:
    """The home is on a full disk: a stop works, and the ledger records it once there is space."""
    home = root / "home"
    home.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "none", str(home)], check=True)
    try:
        with_tiny(Tiny(root, {"HEADGATE_MEASURE_S": "1"}), _full)
    finally:
        subprocess.run(["umount", "-l", str(home)], check=True)


def _full(tiny: Tiny) -> None:
    filler = tiny.home() / "filler"
    fill(filler)
    try:
        stop_through(tiny)
        fill(filler)
        row = tiny.statements()["marked"]
        assert (row["state"], row["wanted"]) == ("running", "running"), f"the ledger took it: {row}"
        say(f"the ledger still says {row['state']}, wanted {row['wanted']}")
        say(f"{entries(tiny)} entries reached the emergency journal, the rest is in the agent's memory")
    finally:
        filler.unlink()
    learned(tiny)


def with_tiny(tiny: Tiny, drill: Callable[[Tiny], None]) -> None:
    """Start a tiny project, run a drill on it, and stop the project."""
    tiny.write()
    tiny.land(50)
    try:
        tiny.done("up")
        assert tiny.apply(tiny.plan("--all")).returncode == 0
        until(lambda: len(tiny.ids("marked", 1)) == tiny.landed, 90, "all rows arrived")
        until(lambda: tiny.statements()["marked"]["state"] == "running", 30, "it runs")
        drill(tiny)
    finally:
        tiny.down()


def stop_through(tiny: Tiny) -> None:
    """Stop a statement while the ledger accepts no writes, and prove that its query is gone from Spark."""
    asked = time.monotonic()
    said = tiny.run("stop", "marked", "--confirm", "yes", "--json")
    say(f"stop, exit code {said.returncode} after {time.monotonic() - asked:.1f} s: {' '.join(said.stdout.split())}")
    assert said.returncode == 0, said.stdout + said.stderr
    assert json.loads(said.stdout)["statements"][0]["outcome"] == "stopped", said.stdout
    nothing_moves(tiny)


def nothing_moves(tiny: Tiny) -> None:
    """Land rows and check that the stopped statement does not process them."""
    before = tiny.ids("marked", 1)
    tiny.land(10)
    until(lambda: len(tiny.ids("kept", 1)) == tiny.landed, 60, "its parent processes new rows")
    time.sleep(QUIET_S)  # The absence of an event is not a condition that can be awaited.
    assert tiny.ids("marked", 1) == before, "the stopped statement took rows"


def learned(tiny: Tiny) -> None:
    """Wait until the ledger has recorded the stop, then start the statement again."""
    began = time.monotonic()
    until(lambda: tiny.statements()["marked"]["state"] == "stopped", 60, "the ledger learned of the stop")
    row = tiny.statements()["marked"]
    say(f"the ledger says {row['state']}, wanted {row['wanted']}, after {time.monotonic() - began:.1f} s")
    until(lambda: entries(tiny) == 0, 30, "the emergency journal is empty")
    assert tiny.statements()["marked"]["wanted"] == "stopped"
    goes_on(tiny)


def goes_on(tiny: Tiny) -> None:
    """Start the statement again, and check that the table contains every landed row once."""
    tiny.done("start", "marked", "--confirm", "yes")
    until(lambda: tiny.ids("marked", 1) == list(range(1, tiny.landed + 1)), 60, "every row arrived once")
    say(f"started again: {tiny.landed} landed rows, each once")


def entries(tiny: Tiny) -> int:
    """Count the entries of the emergency journal on disk."""
    path = tiny.home() / "emergency.jsonl"
    return len([line for line in path.read_text().splitlines() if line]) if path.exists() else 0


def fill(path: Path) -> int:
    """Occupy every free byte of a disk, and return how many there were."""
    taken = 0
    with path.open("ab", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            try:
                while written := file.write(b"\0" * size):
                    taken += written
            except OSError:
                continue
    return taken


def wait_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))  # The duration of the freeze is the point of this drill.


def say(line: str) -> None:
    print(f"  {line}", flush=True)


DRILLS: dict[str, Callable[[Path], None]] = {"frozen": frozen, "locked": locked, "full": full}

if __name__ == "__main__":
    run_drill(main)
