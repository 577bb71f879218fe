"""An environment whose tables and checkpoints are in HDFS, on real Spark and Hadoop, while either of them fails."""

import json
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BytesIO

import pyarrow.parquet as parquet
import pytest
from mini_hdfs import MiniHdfs, mini_hdfs
from tiny_project import DDL, DML, HEAD, Tiny, alive, files_in_log, until

from pipelines.storage.file_store import store_of

pytestmark = [pytest.mark.spark, pytest.mark.drill, pytest.mark.long]

TABLES = DDL | {"summed": "CREATE TABLE summed (kind STRING, n BIGINT) USING delta;"}
STATEMENTS = DML | {"summed": "INSERT INTO summed SELECT kind, id AS n FROM STREAM kept;"}


@dataclass
class InHdfs(Tiny):
    """The tiny project, with a reader that writes Delta, and its data in HDFS."""

    data: str = ""
    first: dict[str, int] = field(default_factory=dict)
    """The first id in a table whose rows do not begin with 1."""

    def write(self, **dml: str) -> None:
        super().write(**dml)
        head = HEAD.replace("  dev:\n", f"  dev:\n    data: {self.data}\n")
        (self.folder / "headgate.yml").write_text(head + self._connectors())

    def land(self, count: int) -> None:
        rows = [{"id": self.landed + n, "kind": "ab"[n % 2]} for n in range(1, count + 1)]
        self.landed += count
        folder = f"{self.data}/landing"
        store_of(folder).make_folders(folder)
        text = "".join(json.dumps(row) + "\n" for row in rows)
        store_of(folder).replace(f"{folder}/{self.landed:09}.json", text.encode())

    def ids(self, table: str, version: int) -> list[int]:
        folder = f"{self.data}/tables/{table}__v{version}"
        column = "n" if table == "summed" else "id"
        found: list[int] = []
        for path in files_in_log(folder, self.format_of(table)):
            content = BytesIO(store_of(path).read(path))
            found += parquet.read_table(content, columns=[column])[column].to_pylist()
        return sorted(found)


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MiniHdfs]:
    with pytest.MonkeyPatch.context() as patch, mini_hdfs(tmp_path_factory.mktemp("hdfs"), patch) as found:
        yield found


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory, hdfs: MiniHdfs) -> Iterator[InHdfs]:
    """Everything deployed, with 200 rows."""
    root = tmp_path_factory.mktemp("in_hdfs")
    found = InHdfs(
        root,
        {"HEADGATE_MEASURE_S": "1"},
        formats={"summed": "delta"},
        ddl=TABLES,
        dml=STATEMENTS,
        data=f"{hdfs.root}/warehouse/dev",
    )
    found.write()
    found.land(200)
    found.done("up")
    try:
        applied = found.apply(found.plan("--all"))
        assert applied.returncode == 0, applied.stdout + applied.stderr
        yield found
    finally:
        found.down()


SOURCES = """SELECT m.sources FROM measurement m JOIN deployment d ON d.id = m.deployment
WHERE d."table" = ? AND d.active = 1"""


UNREACHABLE = "cannot be reached"


def arrived(tiny: InHdfs, *versions: tuple[str, int]) -> bool:
    return all(
        tiny.ids(table, version) == list(range(tiny.first.get(table, 1), tiny.landed + 1))
        for table, version in versions
    )


def lag(tiny: InHdfs, table: str) -> tuple[object, ...]:
    ((found,),) = tiny.ledger(SOURCES, table)
    (source,) = json.loads(str(found))
    return source["rows"], source["files"], source["exact"], source["missing"]


def served(tiny: InHdfs) -> tuple[tuple[str, int], ...]:
    return tuple((table, row["version"]) for table, row in tiny.statements().items() if table != "landed")


def names(folder: str) -> list[str]:
    return sorted(entry.name for entry in store_of(folder).entries(folder))


def restarted(tiny: InHdfs, **environ: str) -> None:
    """Kill the agent, if it lives, and start one with another environment; the pool continues to run."""
    if alive(tiny.agent_pid()):
        os.kill(tiny.agent_pid(), signal.SIGKILL)
        until(lambda: not alive(tiny.agent_pid()), 10, "the agent is dead")
    assert tiny.run("up", **environ).returncode == 0


def carried_out(tiny: InHdfs, *words: str) -> None:
    done = tiny.apply(tiny.plan(*words))
    assert done.returncode == 0, done.stdout + done.stderr


def test_rows_arrive_once_and_the_lag_is_measured(tiny: InHdfs) -> None:
    until(lambda: arrived(tiny, *served(tiny)), 90, "all rows are in all tables")
    tiny.done("stop", "kept", "summed", "--confirm", "2")
    tiny.land(50)
    # The rows of JSON are estimated from the bytes.
    until(lambda: lag(tiny, "kept")[1:] == (1, False, False), 60, "one file waits")
    tiny.done("start", "kept", "--confirm", "yes")
    until(lambda: lag(tiny, "summed")[:2] == (50, 1), 60, "fifty rows wait at the reader that is stopped")
    tiny.done("start", "summed", "--confirm", "yes")
    until(lambda: arrived(tiny, *served(tiny)), 120, "they go on from their checkpoints")
    until(lambda: lag(tiny, "marked") == (0, 0, True, False), 60, "nothing waits")


def test_killed_servers_and_agents_lose_and_double_nothing(tiny: InHdfs) -> None:
    tiny.replace_pool()
    tiny.land(20)
    until(lambda: arrived(tiny, *served(tiny)), 180, "the statements were started again")
    restarted(tiny)
    tiny.land(20)
    until(lambda: arrived(tiny, *served(tiny)), 120, "another agent serves them")


def test_a_rebuild_replaces_all_and_a_rollback_returns(tiny: InHdfs) -> None:
    carried_out(tiny, "kept", "--rebuild", "--children", "all")
    assert set(served(tiny)) == {("kept", 2), ("marked", 2), ("summed", 2)}
    tiny.land(10)
    until(lambda: arrived(tiny, *served(tiny)), 90, "all rows are in the new versions")
    carried_out(tiny, "rollback", "kept")
    until(lambda: arrived(tiny, *served(tiny)), 90, "all rows are in the old versions")


@pytest.mark.parametrize("table", ["marked", "summed"])
def test_a_version_that_continues_another_one_survives_a_killed_agent(tiny: InHdfs, table: str) -> None:
    version = dict(served(tiny))[table]
    edited = {"marked": "upper(kind)", "summed": "SELECT kind,"}[table]
    new = {"marked": "lower(kind)", "summed": "SELECT upper(kind) AS kind,"}[table]
    tiny.write(**{table: STATEMENTS[table].replace(edited, new)})
    plan = tiny.plan(table, "--strategy", f"{table}=carry-over")
    restarted(tiny, HEADGATE_FAULT_AT="fork record")
    died = tiny.apply(plan)
    until(lambda: not alive(tiny.agent_pid()), 60, "the agent has died")
    restarted(tiny)
    until(lambda: json.loads(tiny.done("runs", "--json"))[0]["state"] in ("done", "failed"), 120, "the run has ended")
    assert died.returncode != 0 and json.loads(tiny.done("runs", "--json"))[0]["state"] == "done"
    began = tiny.ids(table, version)[-1] + 1
    tiny.land(10)
    newer = dict(served(tiny))[table]
    assert newer > version
    until(lambda: tiny.ids(table, newer)[-1:] == [tiny.landed], 90, "new rows are in the new version")
    # The old version may have read more after the batch that the new one continues from.
    tiny.first[table] = tiny.ids(table, newer)[0]
    assert 1 < tiny.first[table] <= began
    until(lambda: arrived(tiny, *served(tiny)), 90, "no row is missing")


def test_a_deleted_table_is_in_the_trash_and_comes_back(tiny: InHdfs) -> None:
    version = dict(served(tiny))["marked"]
    carried_out(tiny, "delete", "marked")
    assert f"marked__v{version}" in names(f"{tiny.data}/trash")
    assert f"marked__v{version}" not in names(f"{tiny.data}/tables")
    tiny.land(10)
    carried_out(tiny, "undelete", "marked")
    until(lambda: arrived(tiny, *served(tiny)), 90, "it has all rows")


def test_a_name_node_in_safe_mode_refuses_a_deployment_and_loses_nothing(tiny: InHdfs, hdfs: MiniHdfs) -> None:
    hdfs.safe_mode(True)
    try:
        refused = tiny.apply(tiny.plan("marked", "--rebuild"))
    finally:
        hdfs.safe_mode(False)
    assert refused.returncode != 0 and "the name node is in safe" in refused.stdout + refused.stderr
    tiny.land(10)
    until(lambda: arrived(tiny, *served(tiny)), 120, "all rows arrive")


@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_after_a_name_node_was_away_every_row_arrives_once(tiny: InHdfs, hdfs: MiniHdfs, how: str) -> None:
    end, begin = (hdfs.kill, hdfs.start) if how == "killed" else (hdfs.freeze, hdfs.thaw)
    end()
    try:
        until(lambda: UNREACHABLE in str(tiny.run("doctor").stdout), 90, "the data folder is a fault of its own")
        began = time.monotonic()
        assert tiny.run("ls").returncode == 0
        print(how, f"ls takes {time.monotonic() - began:.1f} s", tiny.run("ls").stdout)
    finally:
        begin()
    tiny.land(10)
    # Spark ends queries that cannot write for long, and a failed statement is for an operator to start.
    until(lambda: UNREACHABLE not in str(tiny.run("doctor").stdout), 60, "the data folder is reached")
    for table, row in tiny.statements().items():
        print(table, row["state"], row["error"][:200])
        if row["state"] == "failed":
            tiny.done("start", table, "--confirm", "yes")
    until(lambda: arrived(tiny, *served(tiny)), 180, "all rows arrive")


def test_a_purge_leaves_what_others_have_written(tiny: InHdfs) -> None:
    tiny.done("down", "--purge", "--confirm", "tiny")
    assert names(tiny.data) == ["landing"] and names(f"{tiny.data}/landing")
    assert not list((tiny.root / "home").glob("*/dev/ledger.db"))
