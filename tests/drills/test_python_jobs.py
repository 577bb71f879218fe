"""Jobs in Python on a real agent and pool: exact results under kills of their process, agent and server, and errors."""

import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest
from tiny_project import Tiny, tiny_that_runs, until

pytestmark = [pytest.mark.spark, pytest.mark.drill, pytest.mark.long]

DDL = {
    "landed": "CREATE TABLE landed (id BIGINT, kind STRING) USING json LOCATION 'landing';",
    "kept": "CREATE TABLE kept (id BIGINT, kind STRING) USING delta;",
    "counted": "CREATE TABLE counted (id BIGINT, kind STRING, n BIGINT) USING delta;",
    "batched": "CREATE TABLE batched (id BIGINT, kind STRING) USING delta;",
}
DML = {"kept": "INSERT INTO kept SELECT id, kind FROM STREAM landed;"}
COUNTED = '''"""Numbers the rows of each kind."""
from pyspark.sql.streaming import StatefulProcessor


class Numbers(StatefulProcessor):
    def init(self, handle):
        self.n = handle.getValueState("n", "n bigint")

    def handleInputRows(self, key, rows, timers):
        n = self.n.get()[0] if self.n.exists() else 0
        for frame in rows:
            frame = frame.assign(n=range(n + 1, n + 1 + len(frame)))
            n += len(frame)
            yield frame[["id", "kind", "n"]]
        self.n.update((n,))


def counted(landed):
    return landed.groupBy("kind").transformWithStateInPandas(
        Numbers(), "id bigint, kind string, n bigint", "append", "none"
    )
'''
BATCHED = """def batched(landed):
    return landed


def each_batch(batch, batch_id):
    return batch.selectExpr("id", "upper(kind) AS kind")
"""
JOBS = {"counted": COUNTED, "batched": BATCHED}


def write_job(root: Path, table: str, code: str) -> None:
    scripts = root / f"tiny/pipelines/facts/p/{table}/sql-scripts"
    scripts.mkdir(parents=True, exist_ok=True)
    (scripts / f"job.{table}.py").write_text(code)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiny]:
    root = tmp_path_factory.mktemp("jobs")
    for table, code in JOBS.items():
        write_job(root, table, code)
    with tiny_that_runs(root, landed=4, format="delta", ddl=DDL, dml=DML) as found:
        done = found.apply(found.plan("--all"))
        assert done.returncode == 0, done.stdout + done.stderr
        caught_up(found)
        yield found


def rows(tiny: Tiny, table: str) -> list[dict[str, Any]]:
    files = tiny._delta_files(tiny.folder / f"data/tables/{table}__v1")
    return [row for file in files for row in parquet.read_table(file).to_pylist()]


def landed(tiny: Tiny) -> dict[int, str]:
    """Return the kind of each row that has landed, by id and in the order of ids."""
    files = sorted((tiny.folder / "data/landing").glob("*.json"))
    found = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return {row["id"]: row["kind"] for row in found}


def caught_up(tiny: Tiny) -> None:
    """Wait until each table has all rows, and compare them with what a batch over the same rows would give."""
    for table in ("kept", "counted", "batched"):
        until(lambda table=table: len(rows(tiny, table)) >= tiny.landed, 240, f"{table} has all rows")
    kinds = landed(tiny)
    assert tiny.ids("kept", 1) == tiny.ids("counted", 1) == tiny.ids("batched", 1) == [*kinds]
    numbered = {kind: sorted(row["n"] for row in rows(tiny, "counted") if row["kind"] == kind) for kind in "ab"}
    assert numbered == {kind: [*range(1, of + 1)] for kind, of in Counter(kinds.values()).items()}
    assert {row["id"]: row["kind"] for row in rows(tiny, "batched")} == {n: k.upper() for n, k in kinds.items()}


def processes_of_jobs(tiny: Tiny) -> list[int]:
    """Return the processes of this environment's jobs; those of other environments on the machine are not ours."""
    wanted, found = f"job_process.py\0{tiny.home()}/".encode(), []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in place.joinpath("cmdline").read_bytes():
                found.append(int(place.name))
        except OSError:
            continue
    return found


def test_rows_are_exact_after_kills_of_process_agent_and_server_with_a_second_actor(tiny: Tiny) -> None:
    ended, restarted, killed = threading.Event(), Counter[int](), []

    def operator() -> None:
        """Restart both jobs again and again, whatever becomes of it."""
        while not ended.wait(1):
            for table in JOBS:
                restarted[tiny.run("restart", table, "--confirm", "yes").returncode] += 1

    def killer() -> None:
        """Kill every third process of a job."""
        seen: set[int] = set()
        while not ended.wait(0.05):
            for pid in set(processes_of_jobs(tiny)) - seen:
                seen.add(pid)
                if len(seen) % 3 == 0:
                    try:
                        os.kill(pid, signal.SIGKILL)
                        killed.append(pid)
                    except ProcessLookupError:
                        continue

    threads = [threading.Thread(target=each, daemon=True) for each in (operator, killer)]
    for each in threads:
        each.start()
    try:
        for turn in range(6):
            tiny.land(20 + turn)
            time.sleep(2 + turn)
            os.kill(tiny.agent_pid() if turn % 2 else tiny.pool_pid(), signal.SIGKILL)
            tiny.done("up")
            until(lambda: tiny.statements()["kept"]["state"] == "running", 240, "kept runs again")
    finally:
        ended.set()
        for each in threads:
            each.join(180)
    for table in JOBS:
        # A job whose process was killed at an automatic start has failed, and is started by hand.
        until(lambda table=table: tiny.run("start", table).returncode in (0, 3), 240, f"{table} is started")
    tiny.land(5)
    caught_up(tiny)
    print(f"{tiny.landed} rows, 3 kills of the server, 3 of the agent, {len(killed)} of a job's process, {restarted}")
    assert killed and restarted[0]


def test_a_row_on_which_the_code_raises_is_reported_with_its_line(tiny: Tiny) -> None:
    write_job(tiny.root, "batched", BATCHED.replace("    return batch.", "    1 / 0\n    return batch."))
    done = tiny.apply(tiny.plan("batched"))
    said = "HEADGATE_JOB_FAILED: job.batched.py, line 6: ZeroDivisionError: division by zero"
    assert done.returncode == 1 and said in done.stdout + done.stderr, done.stdout + done.stderr
    tiny.land(1)
    caught_up(tiny)
