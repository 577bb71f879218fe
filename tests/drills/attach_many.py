"""Drill: lose the pool under many statements, time its return, stop one meanwhile, freeze the pool, end the agent.

Run: PYTHONPATH=. python tests/drills/attach_many.py [STATEMENTS]. Takes some three minutes with 100. The statements
read one external table without rows. Said are the seconds from the attachment until every table is in the catalog and
until every statement runs again, and those of a stop that came while the catalog was being filled. Then the pool is
frozen, twenty statements are stopped, the agent's threads are counted, and it is told to end. Exits 1 where 100
statements take more than 10 s, a stop more than 3 s, the threads do not stay flat, or the agent more than 2 s to end.
"""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from drill_process import run_drill
from live_project import Driven, until

HEAD = """project: many
id: 2f0e4a52-9df2-4a52-9c0c-0f6f8d1a2b3c
default_env: dev
environments:
  dev:
    pool: {cores: 2, memory: 3g}
defaults: {trigger: 10 seconds}
"""
SECONDS_PER_STATEMENT = 0.1
FLAT_THREADS = 4
"""Threads more than before that a frozen pool may cost at any moment."""
END_S = 2.0


class Many(Driven):
    """Statements t0, t1, … over one external table `landed` without rows."""

    @property
    def folder(self) -> Path:
        return self.root / "many"

    def write(self, count: int) -> None:
        (self.folder / "data/landing").mkdir(parents=True)
        (self.folder / "headgate.yml").write_text(HEAD)
        columns = "(id BIGINT, kind STRING)"
        self._table("sources", "landed", f"CREATE TABLE landed {columns} USING json LOCATION 'landing';", "")
        for n in range(count):
            ddl = f"CREATE TABLE t{n} {columns} USING parquet;"
            self._table("facts", f"t{n}", ddl, f"INSERT INTO t{n} SELECT id, kind FROM STREAM landed WHERE id > {n};")

    def _table(self, layer: str, table: str, ddl: str, dml: str) -> None:
        scripts = self.folder / f"pipelines/{layer}/p/{table}/sql-scripts"
        scripts.mkdir(parents=True)
        (scripts / f"ddl.{table}.sql").write_text(ddl)
        if dml:
            (scripts / f"dml.{table}.sql").write_text(dml)

    def facts(self) -> tuple[str, str]:
        """Return the pool's state and what is said of it."""
        state, detail = self._ledger("SELECT pool_state, pool_detail FROM facts")[0]
        return str(state), str(detail)

    def running(self, since: float) -> int:
        """Count the statements that were started since a moment."""
        sql = "SELECT count(*) FROM deployment WHERE started_at > ? AND state IN ('starting', 'running')"
        return int(self._ledger(sql, since)[0][0])

    def _ledger(self, sql: str, *values: float) -> list[tuple[object, ...]]:
        with closing(sqlite3.connect(f"file:{self.home() / 'ledger.db'}?mode=ro", uri=True)) as ledger:
            return list(ledger.execute(sql, values))

    def threads(self) -> int:
        return len(os.listdir(f"/proc/{self.agent_pid()}/task"))

    def files(self) -> int:
        return len(os.listdir(f"/proc/{self.agent_pid()}/fd"))


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    root = Path(tempfile.mkdtemp(prefix="headgate-drill-"))
    many = Many(root)
    try:
        many.write(count)
        many.done("up")
        began = time.monotonic()
        applied = many.apply(many.plan("--all", "--children", "all"))
        assert applied.returncode == 0, applied.stderr[-600:]
        say(f"{count} statements were deployed in {time.monotonic() - began:.0f} s")
        until(lambda: all(row["state"] == "running" for row in many.statements().values()), 300, "all run")
        return lose_the_pool(many, count) + freeze_the_pool(many, min(20, count))
    finally:
        many.down()
        shutil.rmtree(root, ignore_errors=True)


def lose_the_pool(many: Many, count: int) -> int:
    """Kill the server, stop one statement as soon as that is possible, and time the return of the others."""
    before = many.threads(), many.files()
    killed = time.time()
    os.kill(many.pool_pid(), signal.SIGKILL)
    until(lambda: many.facts()[1].startswith("attached"), 120, "the pool is attached to")
    attached, busy = time.time(), cpu_s(many.pool_pid())
    stop = subprocess.Popen(
        [str(Path(sys.executable).with_name("headgate")), "stop", "t0", "--confirm", "yes"],
        cwd=many.folder,
        env={**os.environ, "HEADGATE_HOME": str(many.root / "home")},
        stdout=subprocess.PIPE,
        text=True,
    )
    until(lambda: many.facts()[0] == "up", 300, "the catalog is filled")
    filled = time.time() - attached
    said = stop.communicate(timeout=60)[0].strip()
    stopped = time.time() - attached
    until(lambda: many.running(killed) >= count - 1, 600, "all but the stopped one run again")
    restarted, busy = time.time() - attached, cpu_s(many.pool_pid()) - busy
    until(lambda: many.statements()["t0"]["state"] == "stopped", 30, "t0 is stopped")
    say(f"attached {attached - killed:.1f} s after the kill; catalog filled after {filled:.1f} s more, all started "
        f"after {restarted:.1f} s, in which the server used {busy:.1f} s of its two cores; `{said}`, answered "
        f"before {stopped:.1f} s")  # fmt: skip
    say(f"threads and files of the agent: {before} before, {many.threads(), many.files()} after")
    return int(restarted > count * SECONDS_PER_STATEMENT or stop.returncode != 0)


def freeze_the_pool(many: Many, stops: int) -> int:
    """Freeze the server, stop some statements, count threads, end the agent."""
    pid, agent = many.pool_pid(), many.agent_pid()
    before, most = many.threads(), 0
    os.kill(pid, signal.SIGSTOP)
    try:
        asked = time.monotonic()
        said = many.run("stop", *(f"t{n}" for n in range(1, stops + 1)), "--confirm", str(stops))
        took = time.monotonic() - asked
        ends_at = time.monotonic() + 20
        while time.monotonic() < ends_at:
            most = max(most, many.threads())
            time.sleep(0.2)  # What is counted is a span of time.
        outcomes = sorted({line.split(": ", 1)[1].rsplit(" in ", 1)[0] for line in said.stdout.splitlines()})
        say(f"{stops} stops of a frozen pool: exit code {said.returncode} after {took:.1f} s: {'; '.join(outcomes)}")
        say(f"threads: {before} before, at most {most} while frozen, {many.threads()} at the end")
        asked = time.monotonic()
        os.kill(agent, signal.SIGTERM)
        until(lambda: not Path(f"/proc/{agent}").exists() or _is_zombie(agent), 30, "the agent ends")
        ended = time.monotonic() - asked
        say(f"the agent ended after {ended:.1f} s")
    finally:
        os.kill(pid, signal.SIGCONT)
    return int(said.returncode != 4 or most > before + FLAT_THREADS or ended > END_S)


def cpu_s(pid: int) -> float:
    """Return the CPU time that a process has used."""
    used = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
    return sum(map(int, used)) / os.sysconf("SC_CLK_TCK")


def _is_zombie(pid: int) -> bool:
    return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()


def say(line: str) -> None:
    print(f"  {line}", flush=True)


if __name__ == "__main__":
    run_drill(main)
