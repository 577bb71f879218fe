"""Measures jobs in Python: `python -m tests.bench.python_jobs [JOBS]`, 5 min.

JOBS jobs with one Python function each, and as many SQL statements that compute the same, read one table on a local
server with two cores. The output gives the seconds of restarts of each kind through the command line, the first ones by
an agent that has built no plan yet, and the memory and CPU of the server and of its Python processes, with the SQL
statements alone and with the jobs too.
"""

import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import psutil

sys.path.append(str(Path(__file__).parents[1] / "support"))

from tiny_project import DDL, Tiny, tiny_that_runs, until

JOBS = 20
RESTARTS = 5
WATCHED_S = 30.0
CODE = """from pyspark.sql.functions import udf


def {name}(landed):
    return landed.select("id", udf(lambda text: text.upper(), "string")("kind").alias("kind"))
"""


def main(jobs: int) -> None:
    root = Path(tempfile.mkdtemp(prefix="headgate-bench-"))
    sql, python = [f"s{n}" for n in range(jobs)], [f"j{n}" for n in range(jobs)]
    ddl = {"landed": DDL["landed"]}
    ddl |= {name: f"CREATE TABLE {name} (id BIGINT, kind STRING) USING parquet;" for name in (*sql, *python)}
    dml = {name: f"INSERT INTO {name} SELECT id, upper(kind) AS kind FROM STREAM landed;" for name in sql}
    for name in python:
        scripts = root / f"tiny/pipelines/facts/p/{name}/sql-scripts"
        scripts.mkdir(parents=True)
        (scripts / f"job.{name}.py").write_text(CODE.format(name=name))
    with tiny_that_runs(root, landed=2, ddl=ddl, dml=dml) as tiny:
        print(f"load average before: {os.getloadavg()[0]:.1f}")
        for names in (sql, python):
            before = time.monotonic()
            done = tiny.apply(tiny.plan(*names))
            assert done.returncode == 0, done.stdout + done.stderr
            tiny.land(2)
            _wait(tiny, names)
            took = time.monotonic() - before
            print(f"{len(names)} of {names[0]}…: deployed, with a first batch each, after {took:.0f} s")
            _watch(tiny)
        # A new agent has built no plan yet.
        os.kill(tiny.agent_pid(), signal.SIGKILL)
        tiny.done("up")
        for said in ("first restart", "another restart"):
            for names in (sql, python):
                seconds = [_timed(tiny, name) for name in names[:RESTARTS]]
                print(f"{said} of {names[0]}…: median {statistics.median(seconds):.2f} s, {sorted(seconds)}")
    print(f"load average after: {os.getloadavg()[0]:.1f}")


def _wait(tiny: Tiny, names: Iterable[str]) -> None:
    for name in names:
        until(lambda name=name: len(tiny.ids(name, 1)) == tiny.landed, 300, f"{name} has all rows")


def _timed(tiny: Tiny, name: str) -> float:
    before = time.monotonic()
    tiny.done("restart", name, "--confirm", "yes")
    return round(time.monotonic() - before, 2)


def _watch(tiny: Tiny) -> None:
    server = psutil.Process(tiny.pool_pid())
    before, processes = _cpu_s(server), server.children(recursive=True)
    tiny.land(2)
    time.sleep(WATCHED_S)
    workers = [each for each in server.children(recursive=True) if each.is_running()]
    memory = sum(each.memory_full_info().uss for each in workers)
    cpu = (_cpu_s(server) - before) / WATCHED_S
    print(
        f"  server {server.memory_info().rss / 1e6:.0f} MB, {len(workers)} Python processes (before {len(processes)}) "
        f"with {memory / 1e6:.0f} MB of their own, {cpu:.2f} cores over {WATCHED_S:.0f} s with one file of rows"
    )


def _cpu_s(server: psutil.Process) -> float:
    every = [server, *server.children(recursive=True)]
    return sum(sum(each.cpu_times()[:2]) for each in every if each.is_running())


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else JOBS)
