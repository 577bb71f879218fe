"""Disturbances that a drill causes in a demo: kills, freezes, locks, full disks, restores, clones and clock jumps.

A disturbance takes a few seconds while operators act, and the environment must recover from it unaided; the agent is up
again afterwards (`Disturbed.back`). A disturbance from `RESTORED` restores older state and then applies the remedy that
Headgate suggests.
"""

import fcntl
import json
import os
import pty
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import termios
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from struct import pack

from live_project import alive, until
from pizzeria_demo import Pizzeria

MOVED_CLOCK = str(Path(__file__).with_name("agent_with_moved_clock.py"))
NEIGHBOUR = "bad_neighbour"
"""A statement without readers that fails at the first order with a number above 300."""
LEAF = "order_labels"
"""A statement without readers, which operators delete and deploy again."""
IDLE = 1_000


@dataclass
class Disturbed(Pizzeria):
    """A demo on two small disks of its own, whose agent's clock can be shifted by writing a file."""

    done_to_it: Counter[str] = field(default_factory=Counter)

    @contextmanager
    def disks(self) -> Iterator[None]:
        """Mount a disk for the home; at the end, unmount it and the disk for checkpoints. Requires root."""
        self._mount(self.root / "home")
        try:
            yield
        finally:
            for place in (self.checkpoints, self.root / "home"):
                subprocess.run(["umount", "-l", str(place)], check=False, capture_output=True)

    def begin_on_disks(self, *words: str) -> None:
        """Start the demo, move its checkpoints to a separate disk, and start the demo again."""
        self.begin(*words)
        self.done("down", "--confirm", "")
        kept = self.root / "checkpoints"
        self.checkpoints.rename(kept)
        self._mount(self.checkpoints)
        shutil.copytree(kept, self.checkpoints, dirs_exist_ok=True)
        shutil.rmtree(kept)
        self.begin(*words)

    def _mount(self, place: Path) -> None:
        place.mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256m", "none", str(place)], check=True)

    @property
    def checkpoints(self) -> Path:
        return self.folder / "data/checkpoints"

    def add_neighbour(self) -> None:
        """Write and deploy a statement that fails after some rows."""
        scripts = self.folder / f"pipelines/facts/kitchen/{NEIGHBOUR}/sql-scripts"
        scripts.mkdir(parents=True)
        (scripts / f"ddl.{NEIGHBOUR}.sql").write_text(f"CREATE TABLE {NEIGHBOUR} (id BIGINT) USING parquet;\n")
        (scripts / f"dml.{NEIGHBOUR}.sql").write_text(
            f"INSERT INTO {NEIGHBOUR}\nSELECT CASE WHEN id > 300 THEN raise_error('a bad neighbour') ELSE id END AS id"
            "\nFROM STREAM src_orders;\n"
        )
        self.apply(self.plan(NEIGHBOUR))

    def remove_neighbour(self) -> None:
        """Delete the failing statement, whatever state it is in."""
        removed = self.delete(NEIGHBOUR)
        assert removed.returncode == 0, removed.stdout + removed.stderr
        shutil.rmtree(self.folder / f"pipelines/facts/kitchen/{NEIGHBOUR}")

    def delete(self, table: str) -> subprocess.CompletedProcess[str]:
        """Delete a table without readers; return the last command's result, which may be a failed plan or review."""
        planned = self.run("plan", "delete", table, "--json")
        if planned.returncode:
            return planned
        plan = json.loads(planned.stdout)
        reviewed = self.run("review", plan["hash"][:12])
        # A disturbance may have happened between plan and review.
        return self.apply(plan) if "--confirm '" in reviewed.stderr else reviewed

    def healthy(self) -> dict[str, str]:
        """Return the states of all statements except the one that is meant to fail."""
        return {table: state for table, state in self.states().items() if table != NEIGHBOUR}

    def up(self) -> bool:
        """Start the agent if none is running; return whether the command succeeded."""
        return self.run("up").returncode == 0

    def up_on_moved_clock(self) -> None:
        """Replace the running agent with one whose clock is shifted by the file `clock`."""
        self.clock.write_text("0")
        self.kill_agent()
        command = [sys.executable, MOVED_CLOCK, str(self.clock), "--project", str(self.folder), "--env", "dev"]
        place = {**os.environ, **self.environ, "HEADGATE_HOME": str(self.root / "home")}
        subprocess.Popen(command, env=place, start_new_session=True)
        until(lambda: self.agent_pid() and alive(self.agent_pid()), 60, "an agent holds the lock")
        self.back()

    def back(self) -> None:
        """Wait until an agent answers."""
        until(self.up, 180, "the agent answers")

    @property
    def clock(self) -> Path:
        """The file that contains the shift of the agent's clock in seconds."""
        return self.root / "clock"

    def kill_agent(self) -> None:
        """Kill the agent, and wait until its process is gone."""
        with suppress(OSError, ValueError, StopIteration):
            pid = self.agent_pid()
            os.kill(pid, signal.SIGKILL)
            until(lambda: not alive(pid), 10, "the agent is dead")

    def ledger(self, sql: str) -> list[tuple[object, ...]]:
        """Query the ledger directly, bypassing the agent."""
        with closing(sqlite3.connect(f"file:{self.home() / 'ledger.db'}?mode=ro", uri=True, timeout=30)) as ledger:
            return list(ledger.execute(sql))


Disturbance = Callable[[Disturbed, Random], None]


def kill_agent(demo: Disturbed, chance: Random) -> None:
    demo.kill_agent()
    demo.up()


def kill_server(demo: Disturbed, chance: Random) -> None:
    with suppress(OSError, ValueError, StopIteration):
        os.kill(demo.pool_pid(), signal.SIGKILL)


def kill_both(demo: Disturbed, chance: Random) -> None:
    kill_server(demo, chance)
    kill_agent(demo, chance)


def kill_console(demo: Disturbed, chance: Random) -> None:
    """Kill an 80x24 console once it has drawn."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, pack("HHHH", 24, 80, 0, 0))
    console = subprocess.Popen(
        [str(Path(sys.executable).with_name("headgate"))],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=demo.folder,
        env={**os.environ, "HEADGATE_HOME": str(demo.root / "home"), "TERM": "xterm-256color"},
        start_new_session=True,
    )
    os.close(theirs)
    try:
        assert os.read(ours, 65536), "the console draws"
        time.sleep(chance.uniform(0.1, 3.0))  # A kill at a random moment is the point of this drill.
    finally:
        console.kill()
        console.wait()
        os.close(ours)


def freeze_pool(demo: Disturbed, chance: Random) -> None:
    with suppress(OSError, ValueError, StopIteration):
        pid = demo.pool_pid()
        os.kill(pid, signal.SIGSTOP)
        time.sleep(chance.uniform(5.0, 40.0))  # The duration of the freeze.
        os.kill(pid, signal.SIGCONT)


def lock_ledger(demo: Disturbed, chance: Random) -> None:
    with closing(sqlite3.connect(demo.home() / "ledger.db", timeout=30, isolation_level=None)) as ledger:
        ledger.execute("BEGIN IMMEDIATE")
        time.sleep(chance.uniform(2.0, 20.0))  # The duration of the lock.
        ledger.execute("ROLLBACK")


def hold_idle_sockets(demo: Disturbed, chance: Random) -> None:
    """Hold 1,000 silent connections to the agent; those that it refuses are reopened immediately."""
    path = str(next(Path(f"/tmp/headgate-{os.getuid()}").glob("*.sock")))
    held: list[socket.socket] = []
    try:
        for _ in range(IDLE):
            one = socket.socket(socket.AF_UNIX)
            one.settimeout(1.0)
            held.append(one)
            with suppress(OSError):
                one.connect(path)
        time.sleep(5.0)  # The duration for which the connections are held.
    finally:
        for one in held:
            one.close()


def fill_ledgers_disk(demo: Disturbed, chance: Random) -> None:
    _fill(demo.home() / "filler", chance.uniform(3.0, 15.0))


def fill_checkpoints_disk(demo: Disturbed, chance: Random) -> None:
    _fill(demo.checkpoints / "filler", chance.uniform(3.0, 15.0))


def _fill(filler: Path, seconds: float) -> None:
    ends_at = time.monotonic() + seconds
    try:
        with filler.open("wb", buffering=0) as file:
            while time.monotonic() < ends_at:
                with suppress(OSError):
                    while True:
                        file.write(bytes(65536))
                time.sleep(0.2)  # Also fill space that other processes free meanwhile.
    finally:
        filler.unlink(missing_ok=True)


def clock_forward(demo: Disturbed, chance: Random) -> None:
    _move_clock(demo, chance.uniform(1, 40) * 86_400, chance)


def clock_back(demo: Disturbed, chance: Random) -> None:
    _move_clock(demo, -chance.uniform(1, 40) * 3_600, chance)


def _move_clock(demo: Disturbed, by_s: float, chance: Random) -> None:
    """Shift the clock and set it right again; meanwhile nothing may be purged from the trash."""
    demo.up_on_moved_clock()
    before = trash(demo)
    demo.clock.write_text(str(by_s))
    time.sleep(chance.uniform(12.0, 20.0))  # Longer than the agent takes to check its clock and trash.
    demo.clock.write_text("0")
    assert before <= trash(demo), f"purged because of a wrong clock: {before - trash(demo)}"


def trash(demo: Disturbed) -> set[str]:
    """Return the names in the trash folder."""
    place = demo.folder / "data/trash"
    return {path.name for path in place.iterdir()} if place.is_dir() else set()


LIVE: dict[str, Disturbance] = {
    "kill -9 of the agent": kill_agent,
    "kill -9 of the server": kill_server,
    "kill -9 of both": kill_both,
    "kill -9 of a console": kill_console,
    "pool frozen": freeze_pool,
    "ledger locked": lock_ledger,
    f"{IDLE:,} idle sockets": hold_idle_sockets,
    "disk full under the ledger": fill_ledgers_disk,
    "disk full under checkpoints": fill_checkpoints_disk,
    "clock days ahead": clock_forward,
    "clock hours behind": clock_back,
}


def restore_ledger(demo: Disturbed, chance: Random) -> None:
    """Restore a ledger that lacks the operator actions of the last seconds, and adopt it."""
    copy = demo.root / "older.db"
    demo.done("backup", str(copy))
    _time_goes_on(demo)
    demo.kill_agent()
    ledger = demo.home() / "ledger.db"
    for part in ("-wal", "-shm"):
        Path(f"{ledger}{part}").unlink(missing_ok=True)
    shutil.copyfile(copy, ledger)
    copy.unlink()
    _adopt(demo)


def restore_home(demo: Disturbed, chance: Random) -> None:
    """Restore a home that is some seconds old; doctor finds the server unknown to this home, which is then killed."""
    demo.kill_agent()
    kept = demo.root / "older-home"
    shutil.copytree(demo.home(), kept)
    demo.back()
    kill_server(demo, chance)
    _time_goes_on(demo)
    demo.kill_agent()
    home = demo.home()
    shutil.rmtree(home)
    shutil.move(kept, home)
    demo.run("up")
    until(lambda: _other_server(demo), 60, "the server that lived on is named")
    os.kill(_other_server(demo), signal.SIGKILL)
    _adopt(demo)


def _other_server(demo: Disturbed) -> int:
    """Return the process id of the server of another home on this data folder, as the doctor reports it; 0 if none."""
    named = re.search(r"process (\d+) is the server of another home", demo.run("doctor").stdout)
    return int(named[1]) if named else 0


def restore_checkpoint(demo: Disturbed, chance: Random) -> None:
    """Give a statement an older checkpoint: a start is refused with both batch numbers, a rebuild succeeds."""
    table = "fct_kitchen_load"
    for each, state in demo.healthy().items():
        if state == "stopped":
            # A stopped parent would give the statement no batches.
            demo.done("start", each, "--confirm", "yes")
    row = demo.statements()[table]
    checkpoint = demo.checkpoints / f"{table}__v{row['version']}"
    older = demo.root / "older-checkpoint"
    demo.done("stop", table, "--confirm", "yes")
    shutil.copytree(checkpoint, older)
    demo.done("start", table, "--confirm", "yes")
    before = _batch(older)
    until(lambda: _batch(checkpoint) > before + 1, 120, f"{table} has made two batches")
    demo.done("stop", table, "--confirm", "yes")
    shutil.rmtree(checkpoint)
    shutil.move(older, checkpoint)
    refused = demo.run("start", table, "--confirm", "yes")
    assert refused.returncode == 3 and "is at batch" in refused.stderr, refused.stdout + refused.stderr
    rebuilt = demo.apply(demo.plan(table, "--rebuild"))
    assert rebuilt.returncode == 0, rebuilt.stdout + rebuilt.stderr


def clone_host(demo: Disturbed, chance: Random) -> None:
    """Start the agent on a machine with another id, where it must start nothing; then adopt it on its own machine."""
    demo.kill_agent()
    other = demo.root / "machine-id"
    other.write_text(f"{chance.getrandbits(128):032x}\n")
    moved = f"mount --bind {other} /etc/machine-id && exec {Path(sys.executable).with_name('headgate')} up"
    place = {**os.environ, "HEADGATE_HOME": str(demo.root / "home")}
    subprocess.run(["unshare", "--mount", "sh", "-c", moved], cwd=demo.folder, env=place, check=True)
    until(lambda: "this is machine" in demo.run("doctor").stdout, 60, "the other machine is noticed")
    demo.run("adopt", "--confirm", "dev adopt")
    demo.kill_agent()
    _adopt(demo)


def clone_home(demo: Disturbed, chance: Random) -> None:
    """Start a second agent on a copy of the home, over the same data: it must neither start nor end anything."""
    copy = demo.root / "cloned-home"
    shutil.copytree(demo.root / "home", copy, ignore=shutil.ignore_patterns("*.sock"))
    twin = Pizzeria(demo.root, {"HEADGATE_HOME": str(copy)})
    pool = demo.pool_pid()
    try:
        twin.run("up")
        until(lambda: "this home is" in twin.run("doctor").stdout, 60, "the clone is noticed")
        refused = twin.run("restart", "fct_revenue", "--confirm", "yes")
        # The second agent has no pool either, because the first agent's server holds the lock on the data folder.
        assert refused.returncode in (3, 4), refused.stdout + refused.stderr
    finally:
        twin.run("down", "--confirm", "")
        shutil.rmtree(copy)
    assert alive(pool), "the clone has ended the server of another home"
    # The second agent ends the generator, which belongs to the data folder.
    demo.run("demo", str(demo.folder), "--no-console")


RESTORED: dict[str, Disturbance] = {
    "older ledger": restore_ledger,
    "older home": restore_home,
    "older checkpoint": restore_checkpoint,
    "other machine": clone_host,
    "home cloned": clone_home,
}


def _time_goes_on(demo: Disturbed) -> None:
    """Let the environment run long enough for the counts in ledger and data folder to increase."""
    demo.run("restart", "fct_revenue", "--confirm", "yes")
    time.sleep(25.0)


def _adopt(demo: Disturbed) -> None:
    """Wait until the environment is in doubt, check that nothing has been started, and adopt it."""
    demo.back()
    until(lambda: demo.run("adopt").returncode == 3, 60, "something is to be adopted")
    refused = demo.run("restart", "fct_revenue", "--confirm", "yes")
    assert refused.returncode == 3 and "headgate adopt" in refused.stderr, refused.stdout + refused.stderr
    demo.done("adopt", "--confirm", "dev adopt")


def _batch(checkpoint: Path) -> int:
    """Return the newest batch that a checkpoint has committed; -1 if there is none."""
    return max((int(path.name) for path in (checkpoint / "commits").glob("[0-9]*")), default=-1)


def whole(demo: Disturbed) -> list[str]:
    """Return the faults in the ledger once everything is quiet: open runs, steps in doubt, gaps in the audit."""
    bad = []
    verified = demo.run("audit", "--verify")
    if verified.returncode:
        bad.append(f"audit: {verified.stdout}{verified.stderr}")
    steps = "SELECT run_id, n, step.state FROM step JOIN run ON run.id = run_id"
    for run, n, state in demo.ledger(f"{steps} WHERE step.state IN ('running', 'gate') AND run.ended_at NOTNULL"):
        bad.append(f"step {n} of the ended run {run} is {state}")
    for run, state in demo.ledger("SELECT id, state FROM run WHERE ended_at IS NULL"):
        bad.append(f"run {run} is {state} and holds its tables")
    return bad
