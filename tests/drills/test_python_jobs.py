"""Jobs in Python on a real agent and pool: exact results under kills of their process, agent and server, and errors."""

import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest
from shared_servers import server
from tiny_project import Tiny, committed, tiny_that_runs, until

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


RELEASED = {
    "landed": DDL["landed"],
    "counted": "CREATE TABLE counted (id BIGINT, kind STRING, n BIGINT) USING parquet;",
    "tagged": "CREATE TABLE tagged (id BIGINT, kind STRING, n BIGINT) USING parquet;",
}
TAG = "# CREATE FUNCTION tag(kind STRING) RETURNS STRING\n\n\ndef tag(kind: str) -> str:\n    return f'{{kind}}{}'\n"
TAGGED = {"tagged": "INSERT INTO tagged SELECT id, tag(kind) AS kind, n FROM STREAM counted;"}


def released(tiny: Tiny, table: str, version: int) -> set[tuple[int, str, int]]:
    """Return the rows of a version's table; each is there once."""
    files = committed(tiny.folder / f"data/tables/{table}__v{version}")
    found = [tuple(row.values()) for file in files for row in parquet.read_table(file).to_pylist()]
    assert len(set(found)) == len(found)
    return set(found)


def numbered(tiny: Tiny, end: str = "") -> set[tuple[int, str, int]]:
    """Return the rows that jobs and functions make of all rows that have landed."""
    seen = Counter[str]()
    found = set()
    for id, kind in landed(tiny).items():
        seen[kind] += 1
        found.add((id, f"{kind}{end}", seen[kind]))
    return found


@pytest.mark.parametrize("elsewhere", [False, True], ids=["local pool", "pool with a url"])
def test_a_changed_job_is_compared_swapped_and_rolled_back_with_its_state(tmp_path: Path, elsewhere: bool) -> None:
    with ExitStack() as stack:
        tiny = Tiny(tmp_path, {"HEADGATE_MEASURE_S": "1"}, ddl=RELEASED, dml=TAGGED)
        tiny.write()
        if elsewhere:
            place = stack.enter_context(server(tmp_path / "server"))
            manifest = tiny.folder / "headgate.yml"
            (line,) = (each for each in manifest.read_text().splitlines() if "pool:" in each)
            manifest.write_text(manifest.read_text().replace(line, f"    pool: {{name: far, url: '{place.url}'}}"))
        function = tiny.folder / "functions/tag.py"
        function.parent.mkdir()
        function.write_text(TAG.format("1"))
        write_job(tmp_path, "counted", COUNTED)
        tiny.land(6)
        stack.callback(tiny.run, "down", "--confirm", "")
        tiny.done("up")
        done = tiny.apply(tiny.plan("--all"))
        assert done.returncode == 0, done.stdout + done.stderr
        until(lambda: released(tiny, "tagged", 1) == numbered(tiny, "1"), 120, "all rows are there")

        write_job(tmp_path, "counted", COUNTED.replace("n + 1 + len(frame))", "n + 1 + len(frame), 1)"))
        function.write_text(TAG.format("2"))
        done = tiny.apply(tiny.plan("counted", "--children", "all"))
        assert done.returncode == 0, done.stdout + done.stderr
        run = json.loads(tiny.done("runs", "--json"))[0]
        notes = {step["table"]: step["note"] for step in run["steps"] if step["do"] == "validate"}
        print(notes)
        assert notes.keys() == {"counted", "tagged"} and all(note.startswith("as expected") for note in notes.values())
        tiny.land(2)
        until(lambda: released(tiny, "tagged", 2) == numbered(tiny, "2"), 120, "the new versions have all rows")
        assert released(tiny, "counted", 2) == numbered(tiny)

        done = tiny.apply(tiny.plan("rollback", "counted"))
        assert done.returncode == 0, done.stdout + done.stderr
        tiny.land(2)
        until(lambda: released(tiny, "tagged", 1) == numbered(tiny, "1"), 120, "the old versions have all rows")
        assert released(tiny, "counted", 1) == numbered(tiny), "the old version goes on with its own state and code"
        serving = {table: row["version"] for table, row in tiny.statements().items() if row.get("version")}
        assert serving == {"counted": 1, "tagged": 1}
