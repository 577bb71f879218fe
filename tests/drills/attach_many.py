"""Drill: lose the pool under many statements, time its return, stop one meanwhile, freeze the pool, end the agent.

Run: PYTHONPATH=. python tests/drills/attach_many.py [STATEMENTS [FROZEN_S]]. Defaults are 100 statements and 180 s,
which takes about six minutes. The statements read one external table without rows. The drill prints the seconds from
the attachment until every table is in the catalog and until every statement runs again, and those of a stop during the
filling of the catalog. Then the pool is frozen, twenty statements are stopped, the agent's threads are counted, and the
agent is told to end before the pool continues; the next agent must find the twenty stopped. Exits 1 if 100 statements
take more than 10 s, a stop takes more than 3 s, a stop of the frozen pool is reported as a success, the number of
threads does not stay flat, the agent takes more than 2 s to end, or a stop does not hold.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from drill_process import run_drill
from live_project import until
from many_statements import ManyStatements, cpu_s

SECONDS_PER_STATEMENT = 0.1
FLAT_THREADS = 4
"""Additional threads that a frozen pool may cost at any moment."""
END_S = 2.0


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    frozen_s = float(sys.argv[2]) if len(sys.argv) > 2 else 180.0
    root = Path(tempfile.mkdtemp(prefix="headgate-drill-"))
    many = ManyStatements(root)
    try:
        many.write(count)
        many.done("up")
        began = time.monotonic()
        applied = many.apply(many.plan("--all", "--children", "all"))
        assert applied.returncode == 0, applied.stderr[-600:]
        say(f"{count} statements were deployed in {time.monotonic() - began:.0f} s")
        until(lambda: len(many.tables_in("running")) == count, 300, "all statements run")
        return lose_the_pool(many, count) + freeze_the_pool(many, min(20, count - 1), frozen_s)
    finally:
        many.down()
        shutil.rmtree(root, ignore_errors=True)


def lose_the_pool(many: ManyStatements, count: int) -> int:
    """Kill the server, stop one statement as soon as possible, and time the return of the others."""
    before = many.threads(), many.files()
    killed = time.time()
    os.kill(many.pool_pid(), signal.SIGKILL)
    until(lambda: many.pool()[1].startswith("attached"), 120, "the agent is attached to the pool")
    attached, busy, ours = time.time(), cpu_s(many.pool_pid()), cpu_s(many.agent_pid())
    stop = subprocess.Popen(
        [str(Path(sys.executable).with_name("headgate")), "stop", "t0", "--confirm", "yes"],
        cwd=many.folder,
        env={**os.environ, "HEADGATE_HOME": str(many.root / "home")},
        stdout=subprocess.PIPE,
        text=True,
    )
    until(lambda: many.pool()[0] == "up", 300, "the catalog is filled")
    filled = time.time() - attached
    said = stop.communicate(timeout=60)[0].strip()
    stopped = time.time() - attached
    until(lambda: many.started(killed) >= count - 1, 600, "all but the stopped one run again")
    restarted = time.time() - attached
    busy, ours = cpu_s(many.pool_pid()) - busy, cpu_s(many.agent_pid()) - ours
    until(lambda: many.statements()["t0"]["state"] == "stopped", 30, "t0 is stopped")
    say(f"attached {attached - killed:.1f} s after the kill; catalog filled after {filled:.1f} s more, all started "
        f"after {restarted:.1f} s, in which the server used {busy:.1f} s and the agent {ours:.1f} s of two cores; "
        f"`{said}`, answered before {stopped:.1f} s")  # fmt: skip
    say(f"threads and files of the agent: {before} before, {many.threads(), many.files()} after")
    return int(restarted > count * SECONDS_PER_STATEMENT or stop.returncode != 0)


def freeze_the_pool(many: ManyStatements, stops: int, frozen_s: float) -> int:
    """Freeze the server, stop statements, count threads, and end the agent; check that the stops hold afterwards."""
    pid, agent = many.pool_pid(), many.agent_pid()
    before = most = many.threads()
    tables = [f"t{n}" for n in range(1, stops + 1)]
    os.kill(pid, signal.SIGSTOP)
    ends_at = time.monotonic() + frozen_s
    try:
        asked = time.monotonic()
        said = many.run("stop", *tables, "--confirm", str(stops))
        took = time.monotonic() - asked
        while time.monotonic() < ends_at:
            most = max(most, many.threads())
            time.sleep(0.2)  # Threads are counted over a span of time.
        outcomes = sorted({line.split(": ", 1)[1].rsplit(" in ", 1)[0] for line in said.stdout.splitlines()})
        say(f"{stops} stops of a frozen pool: exit code {said.returncode} after {took:.1f} s: {'; '.join(outcomes)}")
        say(f"threads: {before} before, at most {most} while frozen for {frozen_s:.0f} s, {many.threads()} at the end")
        asked = time.monotonic()
        os.kill(agent, signal.SIGTERM)
        until(lambda: not Path(f"/proc/{agent}").exists() or _is_zombie(agent), 30, "the agent ends")
        ended = time.monotonic() - asked
        say(f"the agent ended after {ended:.1f} s")
    finally:
        os.kill(pid, signal.SIGCONT)
    many.done("up")
    until(lambda: many.tables_in("stopped") >= {"t0", *tables}, 60, "the stops hold")
    until(lambda: not many.tables_in("unknown") | many.tables_in("degraded"), 60, "all others are reported as running")
    say(f"afterwards {len(many.tables_in('stopped'))} are stopped and {len(many.tables_in('running'))} run")
    return int(said.returncode != 4 or most > before + FLAT_THREADS or ended > END_S)


def _is_zombie(pid: int) -> bool:
    return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()


def say(line: str) -> None:
    print(f"  {line}", flush=True)


if __name__ == "__main__":
    run_drill(main)
