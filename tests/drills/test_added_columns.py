"""A Delta table altered in place on real Spark: its readers pause, nothing is read again, and no reader fails."""

import json
import os
import re
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pyarrow.parquet as parquet
import pytest
from tiny_project import DDL, DML, Tiny, alive, until

pytestmark = [pytest.mark.spark, pytest.mark.drill, pytest.mark.long]

READERS = ("marked", "beside")
TABLES = ("kept", *READERS)
EVENTS = "SELECT summary, detail FROM event"
TOO_LARGE = 5_000_000_000
"""Too large for an INT."""


def ddl(columns: int, short: int = 0) -> Mapping[str, str]:
    """Return the DDL with `columns` more columns in `kept`; column number `short` is still an INT."""
    wide = "".join(f", more{n} {'INT' if n == short else 'BIGINT'}" for n in range(1, columns + 1))
    beside = DDL["marked"].replace("marked", "beside")
    return DDL | {"kept": DDL["kept"].replace("kind STRING", f"kind STRING{wide}"), "beside": beside}


def dml(columns: int) -> Mapping[str, str]:
    wide = "".join(f", id * {n} AS more{n}" for n in range(1, columns + 1))
    beside = "INSERT INTO beside SELECT id, kind FROM STREAM kept WHERE id > 0;"
    return DML | {"kept": DML["kept"].replace("id, kind FROM", f"id, kind{wide} FROM"), "beside": beside}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiny]:
    root = tmp_path_factory.mktemp("columns")
    found = Tiny(root, {"HEADGATE_MEASURE_S": "1"}, format="delta", ddl=ddl(0), dml=dml(0))
    found.write()
    found.land(50)
    found.done("up")
    try:
        assert found.apply(found.plan("--all")).returncode == 0
        until(lambda: arrived(found), 90, "the first rows are everywhere")
        yield found
    finally:
        found.down()


def arrived(tiny: Tiny) -> bool:
    """Return whether each table contains every landed row once."""
    return all(tiny.ids(table, 1) == list(range(1, tiny.landed + 1)) for table in TABLES)


def running(tiny: Tiny) -> bool:
    return all(tiny.statements()[table]["state"] == "running" for table in TABLES)


def widen(tiny: Tiny, columns: int, *, short: int = 0) -> None:
    """Declare `kept` with `columns` more columns."""
    tiny.ddl, tiny.dml = ddl(columns, short), dml(columns)
    tiny.write()


@contextmanager
def landing(tiny: Tiny) -> Iterator[None]:
    """Land rows throughout the block."""
    over = threading.Event()

    def land() -> None:
        while not over.wait(0.2):
            tiny.land(3)

    thread = threading.Thread(target=land)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def values(tiny: Tiny, column: str) -> list[tuple[int, int | None]]:
    """Return (id, value) for each row in the files of `kept`, None where a file lacks the column."""
    rows = []
    for file in tiny._delta_files(tiny.folder / "data/tables/kept__v1"):
        table = parquet.read_table(file)
        found = table[column].to_pylist() if column in table.schema.names else [None] * len(table)
        rows += list(zip(table["id"].to_pylist(), found, strict=True))
    return sorted(rows)


def as_wanted(tiny: Tiny, columns: int) -> None:
    """Wait until all statements run and each table contains each row once; check the newest column and the versions."""
    tiny.land(5)
    until(lambda: arrived(tiny), 90, "every row is in each table once")
    until(lambda: running(tiny), 30, "all statements run")
    filled = [id for id, value in values(tiny, f"more{columns}") if value == columns * id]
    assert tiny.landed in filled and 1 not in filled, "old rows have NULL, new ones the value"
    assert not list((tiny.folder / "data/tables").glob("*__v2"))
    assert "DELTA_SCHEMA_CHANGED" not in json.dumps(tiny.ledger(EVENTS))
    peeked = json.loads(tiny.done("peek", "kept", "-n", "1", "--json"))
    assert f"more{columns}" in json.dumps(peeked)


def as_widened(tiny: Tiny, column: int, last: int) -> None:
    """Wait until all statements run and each table contains each row once; new values must exceed the old type.

    `last` is the id of the last row written before the change.
    """
    tiny.land(5)
    until(lambda: arrived(tiny), 90, "every row is in each table once")
    until(lambda: running(tiny), 30, "all statements run")
    found = dict(values(tiny, f"more{column}"))
    assert (found[last], found[tiny.landed]) == (last * column, tiny.landed + TOO_LARGE), "old rows keep their values"
    assert not list((tiny.folder / "data/tables").glob("*__v2"))
    assert "DELTA_SCHEMA_CHANGED" not in json.dumps(tiny.ledger(EVENTS))
    peeked = json.loads(tiny.done("peek", "kept", "-n", "1000", "--json"))
    numbers = map(int, re.findall(r"\d+", json.dumps(peeked)))
    assert max(numbers) > TOO_LARGE, "its pointer has the wider type too"


def test_a_column_is_added_while_readers_run_and_rows_land(tiny: Tiny) -> None:
    widen(tiny, 1, short=1)
    plan = tiny.plan("kept", "--exclude", "beside")
    assert {node["table"]: node["action"] for node in plan["nodes"]} == {
        "landed": "keep", "kept": "restart", "marked": "resume",
    }  # fmt: skip
    assert "it is stopped for that moment" in json.dumps([w for w in plan["warnings"] if w["table"] == "beside"])
    with landing(tiny):
        found = tiny.apply(plan)
    assert found.returncode == 0, found.stdout + found.stderr
    as_wanted(tiny, 1)


def declare_wider(tiny: Tiny, column: int) -> int:
    """Declare the newest column with a wider type and write large values; return the id of the last row before that."""
    tiny.land(3)
    until(lambda: arrived(tiny), 90, "rows with the old type are there")
    widen(tiny, column)
    tiny.dml = {**tiny.dml, "kept": tiny.dml["kept"].replace(f"id * {column}", f"id + {TOO_LARGE}")}
    tiny.write()
    return tiny.landed


def test_a_column_is_widened_while_readers_run_and_rows_land(tiny: Tiny) -> None:
    last = declare_wider(tiny, 1)
    plan = tiny.plan("kept", "--exclude", "beside")
    about = {node["table"]: (node["action"], node["row"]) for node in plan["nodes"]}
    assert about == {"landed": ("keep", "0"), "kept": ("restart", "4b"), "marked": ("resume", "0")}
    with landing(tiny):
        found = tiny.apply(plan)
    assert found.returncode == 0, found.stdout + found.stderr
    as_widened(tiny, 1, last)


@pytest.mark.parametrize(
    ("columns", "at", "server_too"),
    [(2, "alter stopped", False), (3, "alter done", True)],
    ids=["before the column", "after it, with the server"],
)
def test_adding_a_column_survives_a_killed_agent(tiny: Tiny, columns: int, at: str, server_too: bool) -> None:
    widen(tiny, columns)
    killed_at(tiny, at, server_too=server_too)
    as_wanted(tiny, columns)


def test_widening_a_column_survives_a_killed_agent_and_server(tiny: Tiny) -> None:
    widen(tiny, 4, short=4)
    assert tiny.apply(tiny.plan("kept")).returncode == 0
    last = declare_wider(tiny, 4)
    killed_at(tiny, "alter done", server_too=True)
    as_widened(tiny, 4, last)


def killed_at(tiny: Tiny, at: str, *, server_too: bool) -> None:
    """Plan and apply the declared change with an agent that dies at a point; wait until the next agent ends the run."""
    plan = tiny.plan("kept")
    before = tiny.agent_pid()
    os.kill(before, signal.SIGKILL)
    until(lambda: not alive(before), 10, "the agent is dead")
    tiny.done("up", HEADGATE_FAULT_AT=at)
    until(lambda: running(tiny), 30, "all statements are found running")
    dying = tiny.agent_pid()
    with landing(tiny):
        tiny.apply(plan)
        until(lambda: not alive(dying), 60, "the agent has died at its point")
        if server_too:
            os.kill(tiny.pool_pid(), signal.SIGKILL)
        tiny.done("up")
        until(lambda: json.loads(tiny.done("runs", "--json"))[0]["state"] == "done", 120, "the run has ended")
