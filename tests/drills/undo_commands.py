"""Drill: run the command that a plan prints under UNDO, for each kind of change, on a running project.

Run: PYTHONPATH=. python tests/drills/undo_commands.py [FOLDER [WORD…]]. Each edit, or those whose names contain a WORD,
is planned and applied; rows land; the printed command is run and its plan applied; then the original files must have
nothing to deploy. Each line shows the printed command, its effect and seconds, and the rows of the edited table before
the edit, before the undo and after it. Takes ten minutes on two idle cores.
"""

import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from drill_process import run_drill
from live_project import Driven, committed, until

HEAD = """project: undone
id: 5b0e4a52-9df2-4a52-9c0c-0f6f8d1a2b3d
default_env: dev
environments:
  dev:
    pool: {cores: 2, memory: 1g}
defaults: {trigger: 1 second}
"""
INPUT = "CREATE TABLE {0} (id BIGINT, kind STRING, ts TIMESTAMP) USING json LOCATION '{0}';"
COUNTED = """INSERT INTO counted SELECT window.start AS since, count(*) AS n
FROM STREAM landed WATERMARK ts DELAY OF INTERVAL 1 MINUTE
GROUP BY window(ts, '10 minutes');"""
BASE = {
    "ddl.flat": "CREATE TABLE flat (id BIGINT, kind STRING) USING parquet;",
    "dml.flat": "INSERT INTO flat SELECT id, kind FROM STREAM landed WHERE id > 0;",
    "ddl.below": "CREATE TABLE below (id BIGINT, kind STRING) USING parquet;",
    "dml.below": "INSERT INTO below SELECT id, upper(kind) AS kind FROM STREAM flat;",
    "ddl.counted": "CREATE TABLE counted (since TIMESTAMP, n BIGINT) USING parquet;",
    "dml.counted": COUNTED,
}
FLAT = BASE["dml.flat"]
EDITS: tuple[tuple[str, str, Mapping[str, str]], ...] = (
    ("comment", "flat", {"dml.flat": f"-- why\n{FLAT}"}),
    ("description", "flat", {"yml.flat": "owner: lee\n"}),
    ("pace", "flat", {"yml.flat": "trigger: 2 seconds\n"}),
    ("filter", "flat", {"dml.flat": FLAT.replace("id > 0", "id > 10")}),
    ("column added", "flat", {
        "ddl.flat": BASE["ddl.flat"].replace("kind STRING", "kind STRING, twice BIGINT"),
        "dml.flat": FLAT.replace("id, kind", "id, kind, id * 2 AS twice")}),
    ("column retyped", "flat", {
        "ddl.flat": BASE["ddl.flat"].replace("id BIGINT", "id STRING"),
        "dml.flat": FLAT.replace("SELECT id,", "SELECT CAST(id AS STRING) AS id,"),
        "ddl.below": BASE["ddl.below"].replace("id BIGINT", "id STRING")}),
    ("source added", "flat", {
        "dml.flat": FLAT.replace(";", " UNION ALL SELECT id, kind FROM STREAM other;")}),
    ("source replaced", "flat", {"dml.flat": FLAT.replace("landed", "other")}),
    ("table format", "flat", {"ddl.flat": BASE["ddl.flat"].replace(";", " PARTITIONED BY (kind);")}),
    ("output of the state", "counted", {"dml.counted": COUNTED.replace(";", " HAVING count(*) > 1;")}),
    ("watermark", "counted", {"dml.counted": COUNTED.replace("1 MINUTE", "2 MINUTES")}),
    ("input to the state", "counted", {"dml.counted": COUNTED.replace("\nGROUP", "\nWHERE id > 3\nGROUP")}),
    ("state", "counted", {"dml.counted": COUNTED.replace("count(*)", "max(id)")}),
)  # fmt: skip


@dataclass
class World(Driven):
    """A project with the tables landed → flat → below, and landed → counted."""

    landed: int = 0

    @property
    def folder(self) -> Path:
        return self.root / "undone"

    def write(self, edit: Mapping[str, str] = {}) -> None:
        """Write the project's files, some of them edited."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "headgate.yml").write_text(HEAD)
        for name in ("landed", "other"):
            (self.folder / "data" / name).mkdir(parents=True, exist_ok=True)
            self._put(f"pipelines/sources/p/{name}/sql-scripts/ddl.{name}.sql", INPUT.format(name))
        for table in ("flat", "below", "counted"):
            (self.folder / f"pipelines/facts/p/{table}/{table}.yml").unlink(missing_ok=True)
        for name, text in (BASE | edit).items():
            kind, _, table = name.partition(".")
            place = f"pipelines/facts/p/{table}"
            self._put(f"{place}/{table}.yml" if kind == "yml" else f"{place}/sql-scripts/{name}.sql", text)

    def _put(self, path: str, text: str) -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def land(self, count: int) -> None:
        """Land one file, with rows a minute apart."""
        rows = []
        for n in range(self.landed + 1, self.landed + count + 1):
            moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(1_767_225_600 + 60 * n))
            rows.append({"id": n, "kind": "ab"[n % 2], "ts": moment})
        self.landed += count
        hidden = self.folder / "data/landed/.part"
        hidden.write_text("".join(json.dumps(row) + "\n" for row in rows))
        hidden.rename(self.folder / f"data/landed/{self.landed:09}.json")

    def rows(self, table: str) -> int:
        """Return the number of rows in a table's serving version."""
        folder = self.folder / f"data/tables/{table}__v{self.statements()[table]['version']}"
        return sum(parquet.read_metadata(file).num_rows for file in committed(folder))

    def settled(self, table: str) -> int:
        """Return the rows of a table once two counts, three seconds apart, agree."""
        seen: list[int] = []

        def same() -> bool:
            time.sleep(3)
            seen.append(self.rows(table))
            return len(seen) > 1 and seen[-1] == seen[-2]

        until(same, 120, f"{table} has read what landed")
        return seen[-1]

    def carried_out(self, plan: dict[str, Any]) -> float:
        """Apply a plan and return the seconds it took."""
        began = time.monotonic()
        found = self.apply(plan)
        assert found.returncode == 0, found.stdout + found.stderr
        return time.monotonic() - began


def actions(plan: Mapping[str, Any]) -> dict[str, str]:
    return {node["table"]: node["action"] for node in plan["nodes"] if node["action"] != "keep"}


def undone(world: World, name: str, table: str, edit: Mapping[str, str]) -> bool:
    """Edit, apply, run the printed command, and print a line; return whether everything went as announced."""
    before = world.settled(table)
    world.write(edit)
    plan = world.plan(table)
    world.carried_out(plan)
    world.land(20)
    between = world.settled(table)
    commands = {way["command"] for way in plan["undo"]}
    said = "; ".join(f"{', '.join(way['tables'])}: {way['words']}" for way in plan["undo"])
    (command,) = commands
    began = time.monotonic()
    back = planned_back(world, command)
    world.carried_out(back)
    seconds = time.monotonic() - began
    after = world.settled(table)
    world.write()
    left = world.plan("flat", "counted", "--offline")
    told = {table for way in plan["undo"] for table in way["tables"]}
    true = not left["steps"] and told == set(actions(back))
    did = ", ".join(f"{table} {action}" for table, action in sorted(actions(back).items()))
    print(f"{name:20} {command:32} {did:34} {seconds:5.1f} s  {before:>5} {between:>5} {after:>5}  "
          f"{'as said' if true else f'WRONG: {actions(left)}'} | {said}", flush=True)  # fmt: skip
    return true


def planned_back(world: World, command: str) -> dict[str, Any]:
    """Plan the printed command; a command that would confirm and execute at once is changed so that it only plans."""
    words = command.split()[1:]
    planned = words if words[0] == "plan" else ["plan", *words]
    found: dict[str, Any] = json.loads(world.done(*planned, "--json"))
    return found


def begun_and_deleted(world: World) -> bool:
    """Delete a table, restore it from the trash, delete it again, start and resume it, each undone as printed."""
    true = True
    plan = world.plan("delete", "below")
    (command,) = {way["command"] for way in plan["undo"]}
    before = world.settled("below")
    world.carried_out(plan)
    world.land(20)
    began = time.monotonic()
    back = planned_back(world, command)
    world.carried_out(back)
    seconds, after = time.monotonic() - began, world.settled("below")
    did = ", ".join(f"{table} {action}" for table, action in actions(back).items())
    true &= after == before + 20
    print(f"{'delete':20} {command:32} {did:34} {seconds:5.1f} s  {before:>5} {'-':>5} {after:>5}", flush=True)
    world.carried_out(world.plan("delete", "below"))
    for name in ("start", "resume"):
        plan = world.plan("below")
        world.carried_out(plan)
        stop = next(way["command"] for way in plan["undo"] if way["act"] == "stop")
        began = time.monotonic()
        world.done(*stop.split()[1:], "--confirm", "yes")
        seconds = time.monotonic() - began
        state = world.statements()["below"]["state"]
        true &= actions(plan)["below"] == name and state == "stopped"
        print(f"{name:20} {stop:32} {state:34} {seconds:5.1f} s", flush=True)
    return true


@contextmanager
def running(root: Path) -> Iterator[World]:
    world = World(root, {"HEADGATE_MEASURE_S": "1"})
    world.write()
    world.land(60)
    world.done("up")
    try:
        world.carried_out(world.plan("--all"))
        yield world
    finally:
        world.down()


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp(prefix="headgate-undo-"))
    root.mkdir(parents=True, exist_ok=True)
    words = sys.argv[2:]
    wrong = 0
    with running(root) as world:
        print(f"{'CHANGE':20} {'UNDO':32} {'DID':34} {'TIME':>7}  ROWS before the edit, before the undo, after it")
        for name, table, edit in EDITS:
            if not words or any(word in name for word in words):
                wrong += not undone(world, name, table, edit)
        if not words:
            wrong += not begun_and_deleted(world)
    print(f"{wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    run_drill(main)
