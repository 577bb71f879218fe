"""Statements that read external tables in S3, on real Spark, while the server or the store fails.

Takes four minutes on two cores; the first run installs the S3 and fetches 14 MB of jars.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from moto_s3 import MotoS3, moto_s3
from tiny_project import HEAD, Tiny, until

pytestmark = [pytest.mark.spark, pytest.mark.drill, pytest.mark.long]

TABLES = {
    "landed": "CREATE TABLE landed (id BIGINT, kind STRING) USING json LOCATION 's3a://lake/landing';",
    "filed": "CREATE TABLE filed (id BIGINT) USING parquet LOCATION 's3://lake/filed';",
    "logged": "CREATE TABLE logged (id BIGINT) USING delta LOCATION 's3a://lake/logged';",
    "kept": "CREATE TABLE kept (id BIGINT, kind STRING) USING parquet;",
    "taken": "CREATE TABLE taken (id BIGINT) USING parquet;",
    "followed": "CREATE TABLE followed (id BIGINT) USING parquet;",
}
STATEMENTS = {
    "kept": "INSERT INTO kept SELECT id, kind FROM STREAM landed;",
    "taken": "INSERT INTO taken SELECT id FROM STREAM filed;",
    "followed": "INSERT INTO followed SELECT id FROM STREAM logged;",
}
SOURCES = """SELECT m.sources FROM measurement m JOIN deployment d ON d.id = m.deployment
WHERE d."table" = ? AND d.active = 1"""


@dataclass
class OverS3(Tiny):
    """Three statements, which read JSON, Parquet and Delta in one bucket."""

    s3: MotoS3 | None = None
    files: int = 0

    def write(self, **dml: str) -> None:
        super().write(**dml)
        assert self.s3 is not None
        conf = ", ".join(f"{key}: {json.dumps(value)}" for key, value in self.s3.conf)
        head = HEAD.replace("conf: {", f"conf: {{{conf}, ")
        (self.folder / "headgate.yml").write_text(head + self._connectors())

    def land(self, count: int) -> None:
        """Write one file with the same rows to each of the tables."""
        assert self.s3 is not None
        ids = range(self.landed + 1, self.landed + count + 1)
        name, self.landed, self.files = f"{self.files:05}", self.landed + count, self.files + 1
        self.s3.put(f"landing/{name}.json", "".join(f'{{"id":{n},"kind":"a"}}\n' for n in ids).encode())
        content = BytesIO()
        parquet.write_table(pa.table({"id": pa.array(ids, pa.int64())}), content)
        self.s3.put(f"filed/{name}.parquet", content.getvalue())
        self.s3.put(f"logged/{name}.parquet", content.getvalue())
        self.s3.put(f"logged/_delta_log/{self.files - 1:020}.json", self._commit(name, len(content.getvalue()), count))

    def _commit(self, name: str, size: int, count: int) -> bytes:
        stats = json.dumps({"numRecords": count})
        about = {"path": f"{name}.parquet", "partitionValues": {}, "size": size, "modificationTime": 1}
        actions: list[object] = [{"add": about | {"dataChange": True, "stats": stats}}]
        if self.files == 1:
            column = {"name": "id", "type": "long", "nullable": True, "metadata": {}}
            schema = json.dumps({"type": "struct", "fields": [column]})
            format = {"provider": "parquet", "options": {}}
            table = {"id": "0c7e", "format": format, "schemaString": schema, "partitionColumns": []}
            actions.append({"metaData": table | {"configuration": {}, "createdTime": 1}})
            actions.append({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}})
        return "\n".join(map(json.dumps, actions)).encode()


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MotoS3]:
    with pytest.MonkeyPatch.context() as patch, moto_s3(tmp_path_factory.mktemp("s3"), patch) as found:
        yield found


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory, s3: MotoS3) -> Iterator[OverS3]:
    """Everything deployed, with 200 rows in each table."""
    root = tmp_path_factory.mktemp("over_s3")
    found = OverS3(root, {"HEADGATE_MEASURE_S": "1"}, ddl=TABLES, dml=STATEMENTS, s3=s3)
    found.land(200)
    found.write()
    found.done("up")
    try:
        applied = found.apply(found.plan("--all"))
        assert applied.returncode == 0, applied.stdout + applied.stderr
        yield found
    finally:
        found.down()


def arrived(tiny: OverS3) -> bool:
    return all(tiny.ids(table, 1) == list(range(1, tiny.landed + 1)) for table in STATEMENTS)


def lag(tiny: OverS3, table: str) -> tuple[object, ...]:
    ((found,),) = tiny.ledger(SOURCES, table)
    (source,) = json.loads(str(found))
    return source["rows"], source["files"]


def all_read(tiny: OverS3) -> bool:
    return [lag(tiny, table) for table in STATEMENTS] == [(0, 0)] * len(STATEMENTS)


def test_rows_arrive_once_and_the_lag_is_measured(tiny: OverS3) -> None:
    until(lambda: arrived(tiny), 90, "all rows are in all tables")
    tiny.done("stop", *STATEMENTS, "--confirm", "3")
    tiny.land(50)
    until(lambda: [lag(tiny, table)[1] for table in STATEMENTS] == [1, 1, 1], 60, "one file waits at each statement")
    assert lag(tiny, "taken") == lag(tiny, "followed") == (50, 1)
    tiny.done("start", *STATEMENTS, "--confirm", "3")
    until(lambda: arrived(tiny), 120, "they go on from their checkpoints")
    until(lambda: all_read(tiny), 60, "nothing waits")


def test_a_killed_server_loses_and_doubles_nothing(tiny: OverS3) -> None:
    tiny.replace_pool()
    tiny.land(20)
    until(lambda: arrived(tiny), 180, "the statements were started again")
    until(lambda: all_read(tiny), 60, "nothing waits")


@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_after_the_store_was_away_every_row_arrives_once(tiny: OverS3, s3: MotoS3, how: str) -> None:
    end, begin = (s3.kill, s3.start) if how == "killed" else (s3.freeze, s3.thaw)
    end()
    try:
        assert tiny.run("ls").returncode == 0, "the agent goes on"
        tiny.done("stop", "taken", "--confirm", "yes")
    finally:
        begin()
    tiny.land(10)

    def arrived_after_starts() -> bool:
        for table, row in tiny.statements().items():
            if row["state"] in ("failed", "stopped"):
                tiny.done("start", table, "--confirm", "yes")
        return arrived(tiny)

    until(arrived_after_starts, 240, "all rows arrive")
    until(lambda: all_read(tiny), 60, "nothing waits")
