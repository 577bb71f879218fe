"""The sources of a benchmark: files, topics, and files in place of a database."""

import subprocess
from pathlib import Path

import pytest

from core.model.errors import InvalidProject, Refused
from core.model.names import TableName as T
from pipelines.demo.scenarios import copy_scenario
from tui.project_folder.environment_selection import select_environment
from tui.services.benchmarks import bench_sources, choose_tables, texts_before
from tui.services.environment_service import EnvironmentService

TOPIC = "USING kafka OPTIONS ('kafka.bootstrap.servers'='b:9092', {}, 'value.format'='raw');"
CHANGES = """USING postgres_changes OPTIONS (url 'jdbc:postgresql://db:5432/shop', user 'reader', dbtable 'public.x',
  publication 'p');"""


@pytest.fixture
def operations(folder: Path, tmp_path: Path) -> EnvironmentService:
    manifest = folder / "headgate.yml"
    text = manifest.read_text().replace("    data: data\n", "    data: data\n    naming: {prefix: dev_}\n")
    manifest.write_text(f"{text}connectors: {{kafka: {{}}, postgres: {{}}}}\n")
    environ = {"HEADGATE_HOME": str(tmp_path / "home")}
    return EnvironmentService(select_environment(environ, str(folder), environment="dev"), environ)


def declare(folder: Path, table: str, columns: str, rest: str, layer: str = "sources") -> None:
    scripts = folder / f"pipelines/{layer}/p/{table}/sql-scripts"
    scripts.mkdir(parents=True, exist_ok=True)
    (scripts / f"ddl.{table}.sql").write_text(f"CREATE TABLE {table} ({columns}) {rest}")


def test_a_topic_is_sampled_where_it_is_and_written_in_the_environment(
    folder: Path, operations: EnvironmentService
) -> None:
    declare(folder, "landed", "_value STRING", TOPIC.format("subscribe='in'"))
    (folder / "pipelines/sources/p/a/sql-scripts/dml.a.sql").write_text(
        "INSERT INTO a SELECT 1 AS id, _value AS kind FROM STREAM landed;"
    )
    (source,) = bench_sources(operations, [T("landed")], {T("landed"): "kafka://b:9092/it_1_in"}, {})
    assert (source.folder, source.sample) == ("kafka://b:9092/it_1_in", "kafka://b:9092/in")
    assert (source.format, source.options["value.format"], source.stands_in) == ("kafka", "raw", False)


def test_messages_whose_values_are_hidden_are_not_copied(folder: Path, operations: EnvironmentService) -> None:
    declare(
        folder, "landed", "id BIGINT, kind STRING", TOPIC.replace(", 'value.format'='raw'", "").format("subscribe='in'")
    )
    (folder / "pipelines/sources/p/landed/landed.yml").write_text("payload: hidden\n")
    (source,) = bench_sources(operations, [T("landed")], {T("landed"): "kafka://b:9092/it_1_in"}, {})
    assert source.sample == ""


def test_what_is_joined_with_a_static_side_is_known_of_both(folder: Path, operations: EnvironmentService) -> None:
    declare(folder, "landed", "id BIGINT, kind STRING, begin_at TIMESTAMP, end_at TIMESTAMP", CHANGES)
    declare(folder, "side", "no BIGINT, at TIMESTAMP", "USING csv LOCATION 'side'")
    on = "s.no = l.id AND s.at > l.begin_at AND s.at <= l.end_at"
    (folder / "pipelines/sources/p/a/sql-scripts/dml.a.sql").write_text(
        f"INSERT INTO a SELECT l.id, l.kind FROM STREAM landed l JOIN side s ON {on};"
    )
    tables = choose_tables(operations, ["a"], [])
    assert tables.static == ("side",)
    streamed, static = bench_sources(operations, map(T, ("landed", "side")), {}, {}, tables.compared)
    assert (streamed.joined, streamed.ends, streamed.within) == ((("id", "landed.id"),), ("end_at",), "")
    assert (static.joined, static.ends, static.within) == ((("no", "landed.id"),), (), "at")


def test_files_stand_for_a_database_of_which_no_sample_is_read(folder: Path, operations: EnvironmentService) -> None:
    declare(folder, "landed", "id BIGINT, kind STRING", CHANGES)
    (source,) = bench_sources(operations, [T("landed")], {T("landed"): "/e/landed"}, {})
    assert (source.format, source.options, source.sample, source.stands_in) == ("parquet", {}, "", True)
    (source,) = bench_sources(operations, [T("landed")], {}, {T("landed"): "/rows.json"})
    assert source.sample == "/rows.json"


def test_what_a_statement_writes_to_a_topic_is_no_source(folder: Path, operations: EnvironmentService) -> None:
    over = TOPIC.replace(", 'value.format'='raw'", "")
    declare(folder, "b", "id BIGINT, kind STRING", over.format("topic='out'"), "facts")
    declare(folder, "back", "id BIGINT, kind STRING", over.format("subscribe='dev_out'"))
    declare(folder, "c", "id BIGINT, kind STRING", "USING parquet;")
    (folder / "pipelines/sources/p/c/sql-scripts/dml.c.sql").write_text(
        "INSERT INTO c SELECT id, kind FROM STREAM back;"
    )
    assert choose_tables(operations, [], []).streamed == ("landed",)
    alone = choose_tables(operations, ["c"], [])
    assert (alone.streamed, alone.topics) == (("back",), {"b:9092": ("dev_out",)})
    declare(folder, "back", "id BIGINT, kind STRING", over.format("subscribe='dev_out,more'"))
    with pytest.raises(Refused, match="back reads several topics, of which b writes one"):
        choose_tables(EnvironmentService(operations.place, operations.environ), [], [])


def test_an_edited_statement_with_an_error_is_not_taken_for_an_unchanged_one(
    folder: Path, operations: EnvironmentService
) -> None:
    for words in (["init", "-q"], ["add", "-A"], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "one"]):
        subprocess.run(["git", "-C", str(folder), *words], check=True)
    (folder / "pipelines/sources/p/a/sql-scripts/dml.a.sql").write_text("INSERT INTO a SELECT upper(kind FROM landed;")
    with pytest.raises(InvalidProject, match="the files that differ from HEAD have 1 problem"):
        texts_before(operations, "HEAD")


@pytest.mark.parametrize(
    ("number", "streamed", "static", "stand_ins", "topics"),
    [
        (1, 1, 5, 5, 0), (2, 1, 1, 1, 0), (3, 1, 1, 2, 0), (4, 1, 0, 0, 1), (5, 1, 0, 1, 0), (6, 5, 0, 0, 5),
    ],
)  # fmt: skip
def test_every_scenario_of_the_demo_can_be_measured(
    tmp_path: Path, number: int, streamed: int, static: int, stand_ins: int, topics: int
) -> None:
    folder = str(copy_scenario(tmp_path / "s", number).folder)
    environ = {"HEADGATE_HOME": str(tmp_path / "home")}
    operations = EnvironmentService(select_environment(environ, folder, environment="dev"), environ)
    found = choose_tables(operations, [], [])
    assert (len(found.streamed), len(found.static), len(found.stand_ins)) == (streamed, static, stand_ins)
    assert sum(map(len, found.topics.values())) == topics
    sources = bench_sources(operations, (*found.streamed, *found.static), {}, {}, found.compared)
    joined = {column for each in sources if each.table in found.static for column, _ in each.joined}
    assert joined == {1: {"id", "table_assignment_id", "client_id", "table_id"}, 3: {"order_id"}}.get(number, set())
    assert [each.table for each in sources if each.within] == {1: ["orders"], 2: ["order_enriched"]}.get(number, [])
