"""Drill: healthy statements of every kind, whose integration tests must pass again and again on one warm server.

Run: python -m tests.drills.integration_flakes [RUNS]; 20 runs if no number is given. A run takes one to three minutes
on two cores. Each failure is printed with its sentence. Exits 1 if a run failed, or if something was left.
"""

import json
import shutil
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from drill_process import run_drill
from tiny_project import Tiny

TIMED = "(id BIGINT, kind STRING, ts TIMESTAMP)"
ROWS = "(id BIGINT, kind STRING)"
GROUPS = "(begins TIMESTAMP, kind STRING, n BIGINT)"
LATE = "WATERMARK ts DELAY OF INTERVAL 5 SECONDS"

SOURCES = {
    "landed": f"{TIMED} USING json LOCATION 'landing'",
    "paid": f"{TIMED} USING json LOCATION 'paid'",
    "from_csv": f"{TIMED} USING csv OPTIONS (header 'true') LOCATION 'csv'",
    "from_orc": f"{ROWS} USING orc LOCATION 'orc'",
    "from_parquet": f"{ROWS} USING parquet LOCATION 'parquet'",
    "from_delta": f"{ROWS} USING delta LOCATION 'delta'",
    "from_text": "(value STRING) USING text LOCATION 'text'",
    "names": "(kind STRING, name STRING) USING csv LOCATION 'names'",
}
"""External tables, as text after their names."""

STATEMENTS = {
    # rows: filters, projections, unions, joins with a static side, and formats
    "filtered": (TIMED, "SELECT id, kind, ts FROM STREAM landed WHERE kind = 'a'"),
    "projected": (ROWS, "SELECT id * 2 AS id, upper(kind) AS kind FROM STREAM landed"),
    "named": (ROWS, "SELECT l.id, n.name AS kind FROM STREAM landed l JOIN names n ON l.kind = n.kind"),
    "united": (ROWS, "SELECT id, kind FROM STREAM from_csv UNION ALL SELECT id, kind FROM STREAM from_orc"),
    "exploded": (ROWS, "SELECT id, one AS kind FROM STREAM from_parquet"
                 " LATERAL VIEW explode(split(kind, '')) e AS one"),
    "lines": (ROWS, "SELECT CAST(length(value) AS BIGINT) AS id, value AS kind FROM STREAM from_text"),
    "chained": (ROWS, "SELECT id, kind FROM STREAM projected WHERE id > 4"),
    "chained_again": (ROWS, "SELECT id, lower(kind) AS kind FROM STREAM chained"),
    "copied": (ROWS, "SELECT id, kind FROM STREAM from_delta"),
    "after_copied": (ROWS, "SELECT id + 100 AS id, kind FROM STREAM copied"),
    # state: windows, sessions, joins of streams, and chains of them
    "windows": (GROUPS, f"SELECT window.start AS begins, kind, count(*) AS n FROM STREAM landed {LATE}"
                " GROUP BY window(ts, '10 seconds'), kind"),
    "sliding": (GROUPS, f"SELECT window.start AS begins, kind, count(*) AS n FROM STREAM from_csv {LATE}"
                " GROUP BY window(ts, '10 seconds', '5 seconds'), kind"),
    "sessions": (GROUPS, f"SELECT session_window.start AS begins, kind, count(*) AS n FROM STREAM landed {LATE}"
                 " GROUP BY session_window(ts, '6 seconds'), kind"),
    "distinct_rows": (TIMED, f"SELECT DISTINCT id, kind, ts FROM STREAM landed {LATE}"),
    "joined": (ROWS, f"SELECT l.id, p.kind FROM STREAM landed {LATE} AS l JOIN STREAM paid {LATE} AS p"
               " ON l.id = p.id AND p.ts BETWEEN l.ts AND l.ts + INTERVAL 5 SECONDS"),
    "not_paid": (ROWS, f"SELECT l.id, p.kind FROM STREAM landed {LATE} AS l LEFT JOIN STREAM paid {LATE} AS p"
                 " ON l.id = p.id AND p.ts BETWEEN l.ts AND l.ts + INTERVAL 5 SECONDS"),
    "windows_of_distinct": (GROUPS, "SELECT window.start AS begins, kind, count(*) AS n"
                            f" FROM STREAM distinct_rows {LATE} GROUP BY window(ts, '10 seconds'), kind"),
    # code: functions and jobs in Python, with and without state
    "shouted": (ROWS, "SELECT id, shout(kind) AS kind FROM STREAM landed"),
    "upper_job": (ROWS, ""),
    "numbered_job": ("(id BIGINT, kind STRING, n BIGINT)", ""),
    "batched_job": (ROWS, ""),
}  # fmt: skip
"""Columns and query by table; the query of a job is in `JOBS`."""

DELTA = ("copied", "batched_job")
JOBS = {
    "upper_job": """from pyspark.sql import functions as F


def upper_job(landed):
    return landed.select("id", F.upper("kind").alias("kind"))
""",
    "numbered_job": """from pyspark.sql.streaming import StatefulProcessor


class Numbers(StatefulProcessor):
    def init(self, handle):
        self.n = handle.getValueState("n", "n bigint")

    def handleInputRows(self, key, rows, timers):
        n = self.n.get()[0] if self.n.exists() else 0
        for frame in rows:
            frame = frame.sort_values("id").assign(n=range(n + 1, n + 1 + len(frame)))
            n += len(frame)
            yield frame[["id", "kind", "n"]]
        self.n.update((n,))


def numbered_job(landed):
    return landed.select("id", "kind").groupBy("kind").transformWithStateInPandas(
        Numbers(), "id bigint, kind string, n bigint", "append", "none"
    )
""",
    "batched_job": """def batched_job(landed):
    return landed


def each_batch(batch, batch_id):
    return batch.selectExpr("id", "concat(kind, '!') AS kind")
""",
}
SHOUT = """# CREATE FUNCTION shout(kind STRING)
# RETURNS STRING


def shout(kind):
    return kind.upper() + "!"
"""

MEMORY = "2g"
"""Memory of the server. Spark keeps each stopped query for an hour, here about 2 MB (4.2.0), and a run starts 20."""

HOUR, TWO_HOURS = 3_600, 7_200
LANDED = ((1, 1), (2, 3), (3, 6), (4, 8)), ((5, 11), (6, 13), (7, 16), (8, 18)), ((9, HOUR),), ((10, TWO_HOURS),)
"""Id and second of each row, in parts; odd ids have the kind a, even ones b."""
PAID = ((1, 2), (2, 4)), ((4, 9), (5, 13)), ((109, HOUR),), ((110, TWO_HOURS),)
IDS = range(1, 11)
NUMBER = {n: (n + 1) // 2 for n in IDS}


def at(second: int) -> str:
    return f"{datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=second):%Y-%m-%dT%H:%M:%SZ}"


def kind(n: int) -> str:
    return "a" if n % 2 else "b"


def timed(rows: tuple[tuple[int, int], ...]) -> list[dict[str, Any]]:
    return [{"id": n, "kind": kind(n), "ts": at(second)} for n, second in rows]


def plain(ids: Any) -> list[dict[str, Any]]:
    return [{"id": n, "kind": kind(n)} for n in ids]


def groups(*rows: tuple[int, str, int]) -> list[dict[str, Any]]:
    return [{"begins": at(second), "kind": of, "n": n} for second, of, n in rows]


EVERY = [row for part in LANDED for row in timed(part)]
IN_TEN = ((0, "a", 2), (0, "b", 2), (10, "a", 2), (10, "b", 2))
EXPECTED: dict[str, list[dict[str, Any]]] = {
    "filtered": [row for row in EVERY if row["kind"] == "a"],
    "projected": [{"id": n * 2, "kind": kind(n).upper()} for n in IDS],
    "named": [{"id": n, "kind": {"a": "ada", "b": "bob"}[kind(n)]} for n in IDS],
    "united": plain([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 21, 22, 23]),
    "exploded": [{"id": 31, "kind": "x"}, {"id": 31, "kind": "y"}, {"id": 32, "kind": "z"}],
    "lines": [{"id": 5, "kind": "first"}, {"id": 6, "kind": "second"}],
    "chained": [{"id": n * 2, "kind": kind(n).upper()} for n in IDS if n > 2],
    "chained_again": [{"id": n * 2, "kind": kind(n)} for n in IDS if n > 2],
    "copied": plain([41, 42, 43]),
    "after_copied": [{"id": n + 100, "kind": kind(n)} for n in (41, 42, 43)],
    "windows": groups(*IN_TEN, (HOUR, "a", 1)),
    "sliding": groups(
        *((second, of, 1 if second in (-5, 15) else 2) for second in (-5, 0, 5, 10, 15) for of in "ab"),
        (HOUR - 5, "a", 1),
        (HOUR, "a", 1),
    ),
    "sessions": groups((1, "a", 4), (3, "b", 4), (HOUR, "a", 1)),
    "distinct_rows": EVERY[:-1],
    "joined": plain([1, 2, 4, 5]),
    "not_paid": [*plain([1, 2, 4, 5]), *({"id": n} for n in (3, 6, 7, 8, 9))],
    "windows_of_distinct": groups(*IN_TEN),
    "shouted": [{"id": n, "kind": kind(n).upper() + "!"} for n in IDS],
    "upper_job": [{"id": n, "kind": kind(n).upper()} for n in IDS],
    "numbered_job": [{"id": n, "kind": kind(n), "n": NUMBER[n]} for n in IDS],
    "batched_job": [{"id": n, "kind": f"{kind(n)}!"} for n in IDS],
}
CASES = {
    "rows": [*STATEMENTS][:10],
    "state": [*STATEMENTS][10:17],
    "code": [*STATEMENTS][17:],
}


def main() -> int:
    runs = int(sys.argv[1]) if sys.argv[1:] else 20
    root = Path(tempfile.mkdtemp(prefix="headgate-drill-"))
    tiny = Tiny(
        root, {},
        ddl={name: f"CREATE TABLE {name} {text};" for name, text in SOURCES.items()}
        | {name: f"CREATE TABLE {name} {columns} USING parquet;" for name, (columns, _) in STATEMENTS.items()},
        dml={name: f"INSERT INTO {name} {query};" for name, (_, query) in STATEMENTS.items() if query},
        formats=dict.fromkeys((*DELTA, "from_delta"), "delta"),
    )  # fmt: skip
    failed = 0
    try:
        write(tiny)
        tiny.done("up")
        for number in range(1, runs + 1):
            failed += not passes(tiny, number)
    finally:
        tiny.down()
        shutil.rmtree(root)
    print(f"{runs - failed} of {runs} runs passed, each of {len(STATEMENTS)} statements in {len(CASES)} cases")
    return int(failed > 0)


def write(tiny: Tiny) -> None:
    """Write the project with its function, its jobs and its cases."""
    for table, code in JOBS.items():
        scripts = tiny.folder / f"pipelines/facts/p/{table}/sql-scripts"
        scripts.mkdir(parents=True)
        (scripts / f"job.{table}.py").write_text(code)
    tiny.write()
    head = tiny.folder / "headgate.yml"
    head.write_text(head.read_text().replace("memory: 1g", f"memory: {MEMORY}"))
    (tiny.folder / "functions").mkdir()
    (tiny.folder / "functions/shout.py").write_text(SHOUT)
    cases = tiny.folder / "pipelines/facts/p/integration"
    cases.mkdir(parents=True)
    for name, tables in CASES.items():
        expected = {table: EXPECTED[table] for table in tables}
        (cases / f"{name}.yml").write_text(json.dumps({"given": given(name), "expect": expected}))


def given(case: str) -> list[dict[str, Any]]:
    """Return the parts of a case, with rows for those sources that its statements read."""
    parts: list[dict[str, Any]] = [{"landed": timed(part)} for part in LANDED]
    if case == "rows":
        parts[0] |= {"names": [{"kind": "a", "name": "ada"}, {"kind": "b", "name": "bob"}], "from_orc": plain([21, 22])}
        parts[0] |= {"from_parquet": [{"id": 31, "kind": "xy"}], "from_text": [{"value": "first"}]}
        parts[1] |= {"from_orc": plain([23]), "from_delta": plain([41, 42]), "from_text": [{"value": "second"}]}
        parts[2] |= {"from_delta": plain([43]), "from_parquet": [{"id": 32, "kind": "z"}]}
    for part, landed in zip(parts, LANDED, strict=True):
        if case != "code":
            part["from_csv"] = timed(landed)
    if case == "state":
        for part, paid in zip(parts, PAID, strict=True):
            part["paid"] = timed(paid)
    return parts


def passes(tiny: Tiny, number: int) -> bool:
    """Run all cases once, and print what failed or was left."""
    began = time.monotonic()
    done = tiny.run("test", "--integration", "--pool", "dev", "--timeout", "300", "--json")
    took = time.monotonic() - began
    try:
        found = json.loads(done.stdout)
        results = found["results"]
    except (ValueError, KeyError):
        print(f"run {number:>3}: exit code {done.returncode}: {(done.stdout + done.stderr)[-400:]}", flush=True)
        return False
    times = ", ".join(f"{each['name']} {each['took_s']:.0f} s" for each in results)
    passed = bool(found["passed"] and done.returncode == 0)
    print(f"run {number:>3}: {'passed' if passed else 'FAILED'} in {took:.0f} s ({times})", flush=True)
    for each in results:
        if each["outcome"] != "passed":
            print(f"         {each['name']}: {each['fact']['sentence']} {json.dumps(each['difference'])}", flush=True)
    for each in found["environments"]:
        if each["left"]:
            print(f"         left: {each['left']}", flush=True)
    return passed


if __name__ == "__main__":
    run_drill(main)
