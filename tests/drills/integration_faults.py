"""Drill: plant faults in statements, and let the integration test or the scenario that is for each find it.

Run: python -m tests.drills.integration_faults [WORD…], where a word is the kind of a fault, its name, or the test that
is for it. Each fault has a healthy twin, which must pass. All of them run on the server of one environment, except
restarts; the whole takes about half an hour on two cores. Each line says which fault was found by which test. Exits 1
if a fault was not found, or if a healthy statement failed.
"""

import json
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from drill_process import run_drill
from tiny_project import Tiny

COLUMNS = "(id BIGINT, kind STRING, ts TIMESTAMP)"
COUNTED = "(window_start TIMESTAMP, kind STRING, n BIGINT)"
LATE = "WATERMARK ts DELAY OF INTERVAL {delay} SECONDS"
PASS = "SELECT id, kind, ts FROM STREAM landed"
WINDOWS = (
    "SELECT window.start AS window_start, kind, count(*) AS n FROM STREAM {table} "
    + LATE
    + " GROUP BY window(ts, '{length}'), kind"
)
DISTINCT = "SELECT DISTINCT id, kind, ts FROM STREAM {table} " + LATE


@dataclass(frozen=True)
class Planted:
    """A fault in a statement, with the statement as it should be."""

    kind: str
    name: str
    by: str
    """`case`, or the scenario that is for it."""
    healthy: str
    faulty: str
    columns: str = COLUMNS
    options: tuple[str, ...] = ()
    """Options of `headgate test`."""
    given: tuple[tuple[int, ...], ...] = ()
    """Seconds of the rows in each part of a scenario's input; empty for a generated input."""


def windows(delay: int, table: str, length: str = "2 seconds") -> str:
    return WINDOWS.format(delay=delay, table=table, length=length)


def distinct(delay: int, table: str) -> str:
    return DISTINCT.format(delay=delay, table=table)


FAULTS = (
    Planted("lost row", "filtered", "case", PASS, f"{PASS} WHERE id <> 3"),
    Planted("lost row", "null", "case", PASS, f"{PASS} WHERE kind <> 'x'"),
    Planted("lost row", "joined", "case", PASS,
            "SELECT l.id, l.kind, l.ts FROM STREAM landed l JOIN side s ON l.id = s.id WHERE s.id <> 2"),
    Planted("lost row", "limited", "case", PASS, f"{PASS} WHERE ts < TIMESTAMP '2026-01-01 00:00:30'"),
    Planted("doubled row", "union", "case", PASS, f"{PASS} UNION ALL {PASS} WHERE id = 1"),
    Planted("doubled row", "exploded", "case", PASS,
            "SELECT id, kind, ts FROM (SELECT id, kind, ts, explode(array(1, 1)) AS n FROM STREAM landed)"),
    Planted("doubled row", "joined_twice", "case",
            "SELECT l.id, l.kind, l.ts FROM STREAM landed l JOIN side s ON l.id = s.id",
            "SELECT l.id, l.kind, l.ts FROM STREAM landed l JOIN side s ON l.id >= s.id"),
    Planted("wrong value", "shifted", "case", PASS, "SELECT id + 1 AS id, kind, ts FROM STREAM landed"),
    Planted("wrong late row", "windows_0", "late", windows(20, "src"), windows(0, "src"), COUNTED),
    Planted("wrong late row", "windows_1", "late", windows(20, "src"), windows(1, "src"), COUNTED),
    Planted("wrong late row", "windows_hour", "late", windows(20, "src", "1 hour"), windows(5, "src", "1 hour"),
            COUNTED),
    Planted("wrong late row", "windows_alone", "late", windows(20, "landed"), windows(2, "landed"), COUNTED,
            ("--lateness", "15")),
    Planted("wrong late row", "distinct_0", "late", distinct(20, "src"), distinct(0, "src")),
    Planted("wrong late row", "distinct_1", "late", distinct(20, "src"), distinct(1, "src")),
    Planted("schema drift", "struct", "schema", PASS,
            "SELECT id, to_json(struct(*)) AS kind, ts FROM STREAM landed"),
    Planted("schema drift", "star", "schema", PASS, "SELECT * FROM STREAM landed"),
    Planted("schema drift", "hashed", "schema", PASS, "SELECT hash(*) AS id, kind, ts FROM STREAM landed"),
    Planted("slow operator", "sleeping", "case", PASS,
            "SELECT id, sleeper(kind) AS kind, ts FROM STREAM landed"),
    Planted("slow operator", "sleeping_twice", "case", PASS,
            "SELECT id, sleeper(sleeper(kind)) AS kind, ts FROM STREAM landed"),
    Planted("doubled row", "first_twice", "restart", PASS,
            "SELECT id, kind, ts FROM (SELECT id, kind, ts, explode(array_repeat(1, IF(n = 1, 2, 1))) AS copy FROM"
            " (SELECT id, kind, ts, numbered(id) AS n FROM STREAM landed))"),
    Planted("wrong value", "numbered", "restart", PASS, "SELECT numbered(id) AS id, kind, ts FROM STREAM landed"),
    Planted("lost row", "windows_replayed", "replay", windows(20, "landed"), windows(0, "landed"), COUNTED,
            given=((10, 12), (5, 30), (3_600,))),
    Planted("lost row", "distinct_replayed", "replay", distinct(20, "landed"), distinct(1, "landed"),
            given=((10, 12), (5, 30), (3_600,))),
)  # fmt: skip

FUNCTIONS = {
    "sleeper": """# CREATE FUNCTION sleeper(kind STRING)
# RETURNS STRING

import time


def sleeper(kind):
    time.sleep(8)
    return kind
""",
    "numbered": """# CREATE FUNCTION numbered(id BIGINT)
# RETURNS BIGINT

seen = []


def numbered(id):
    seen.append(id)
    return len(seen)
""",
}
"""Functions in Python whose results depend on the time, or on what the process has seen before."""


def main() -> int:
    words = set(sys.argv[1:])
    chosen = [each for each in FAULTS if not words or words & {each.by, each.kind, each.name}]
    root = Path(tempfile.mkdtemp(prefix="headgate-drill-"))
    rows = []
    try:
        project = Project(root)
        project.write(chosen)
        project.tiny.done("up")
        for each in chosen:
            found, why, took = project.test(each, "faulty")
            passed, instead, took_2 = project.test(each, "healthy")
            rows.append((each, found, passed, why if found else instead))
            print(f"{each.kind:<15} {each.name:<13} {each.by:<8} {'FOUND' if found else 'NOT FOUND':<10}"
                  f"{'twin passes' if passed else 'TWIN FAILS':<12}{took:5.0f} {took_2:5.0f} s  {why}"
                  f"{'' if passed else ' | ' + instead}", flush=True)  # fmt: skip
    finally:
        project.tiny.down()
        shutil.rmtree(root)
    found, passed = sum(row[1] for row in rows), sum(row[2] for row in rows)
    print(f"{found} of {len(rows)} faults found, {passed} of {len(rows)} healthy twins passed")
    return int(found < len(rows) or passed < len(rows))


@dataclass
class Project:
    """A project with a faulty and a healthy statement for each fault."""

    root: Path

    def __post_init__(self) -> None:
        side = {
            "landed": f"CREATE TABLE landed {COLUMNS} USING json LOCATION 'landing';",
            "src": f"CREATE TABLE src {COLUMNS} USING parquet;",
            "side": "CREATE TABLE side (id BIGINT) USING json LOCATION 'side';",
        }
        self.tiny = Tiny(self.root, {}, ddl=side, dml={})

    def write(self, chosen: list[Planted]) -> None:
        """Write all statements, and a case for those that a case is to find or that need a certain input."""
        ddl, dml = dict(self.tiny.ddl), {"src": f"INSERT INTO src {PASS} {LATE.format(delay=20)};"}
        for each in chosen:
            for form in ("healthy", "faulty"):
                name = f"{each.name}_{form}"
                ddl[name] = f"CREATE TABLE {name} {each.columns} USING parquet;"
                dml[name] = f"INSERT INTO {name} {getattr(each, form)};"
        self.tiny.add(ddl, dml)
        for name, text in FUNCTIONS.items():
            (self.tiny.folder / "functions").mkdir(exist_ok=True)
            (self.tiny.folder / f"functions/{name}.py").write_text(text)
        cases = self.tiny.folder / "pipelines/facts/p/integration"
        cases.mkdir(parents=True)
        for each in chosen:
            for form in ("healthy", "faulty") if each.by == "case" or each.given else ():
                (cases / f"{each.name}_{form}.yml").write_text(self._case(each, f"{each.name}_{form}"))

    def _case(self, each: Planted, table: str) -> str:
        if each.given:
            start = datetime(2026, 1, 1, tzinfo=UTC)
            parts = [
                ", ".join(f"{{id: {n}, kind: a, ts: {start + timedelta(seconds=n):%Y-%m-%dT%H:%M:%SZ}}}" for n in part)
                for part in each.given
            ]
            rows = "".join(f"  - landed: [{part}]\n" for part in parts)
            return f"given:\n{rows}expect: {{{table}: []}}\n"
        given = [
            {"id": n, "kind": "abx"[n % 3] if n != 5 else None, "ts": f"2026-01-01T00:00:{n * 5:02}Z"}
            for n in range(1, 9)
        ]
        side = "\n    side: [{id: 1}, {id: 2}, {id: 3}, {id: 4}, {id: 5}, {id: 6}, {id: 7}, {id: 8}]"
        with_side = side if "JOIN" in each.healthy + each.faulty else ""
        if with_side and "JOIN" not in getattr(each, table.rpartition("_")[2]):
            with_side = ""
        rows = [json.dumps(row) for row in given]
        within = "within: 25\n" if each.kind == "slow operator" else ""
        return (
            f"given:\n  - landed: [{', '.join(rows[:4])}]{with_side}\n  - landed: [{', '.join(rows[4:])}]\n"
            f"expect: {{{table}: [{', '.join(rows)}]}}\n{within}"
        )

    def test(self, each: Planted, form: str) -> tuple[bool, str, float]:
        """Test a statement; return whether it is as it should be (found, or passed), what was said, and the time."""
        began, table = time.monotonic(), f"{each.name}_{form}"
        scenario = [] if each.by == "case" else ["--scenario", each.by, *each.options]
        done = self.tiny.run("test", "--integration", table, *scenario, "--pool", "dev", "--timeout", "300", "--json")
        took = time.monotonic() - began
        try:
            (result,) = json.loads(done.stdout)["results"]
        except ValueError:
            return False, (done.stderr.strip().splitlines() or ["nothing"])[-1], took
        good = result["outcome"] == ("failed" if form == "faulty" else "passed")
        return good and done.returncode == (1 if form == "faulty" else 0), result["fact"]["sentence"][:150], took


if __name__ == "__main__":
    run_drill(main)
