"""The catalog on real Spark: idempotent calls, pointers altered in place, and up-to-date reads."""

import contextlib
import threading
from pathlib import Path
from typing import Any

import pytest

from core.model.errors import EngineRefused, HeadgateError, PoolUnreachable, TryAgain
from core.ports.spark import CatalogTable, QueryStart
from core.sql.compiler import compile_ddl
from core.sql.ddl_reader import read_ddl
from pipelines.spark_connect.call_deadlines import CircuitState
from pipelines.spark_connect.catalog import SparkTables
from pipelines.spark_connect.session import Session
from pipelines.spark_connect.streaming_queries import SparkQueries

pytestmark = pytest.mark.spark

HEAVY = "SELECT count(*) FROM range(10000000000) AS r WHERE hash(r.id) = 7 AND sqrt(r.id) > 3"
"""A query that takes half a minute on every core: longer than any wait here, yet harmless if it is abandoned."""


def names(ground: Any) -> set[str]:
    """Return the tables and views in the catalog."""
    return {row["tableName"] for row in ground.session.spark.sql("SHOW TABLES").collect()}


def target(ground: Any, view: str) -> str:
    """Return the physical table that a pointer reads."""
    (created,) = ground.session.spark.sql(f"SHOW CREATE TABLE {view}").collect()[0]
    return str(created).rstrip().rpartition(" ")[2].strip("`")


def test_every_call_can_be_repeated(ground: Any) -> None:
    physical = ground.table("t")
    assert ground.table("t") == physical
    view = f"t_{ground.mark}"
    for _ in range(2):
        ground.tables.add_columns(physical, (("c", "INT"), ("a", "BIGINT")))
        ground.tables.point(view, (physical,), ("a", "c"))
    assert {view, physical} <= names(ground)
    assert ground.tables.read(f"SELECT * FROM {view}", 5) == (("a", "c"), ())
    for _ in range(2):
        ground.tables.unpoint(view)
        ground.tables.forget(physical)
    assert not {view, physical} & names(ground)


def test_forgetting_a_table_keeps_its_files_and_refuses_one_in_sparks_warehouse(ground: Any) -> None:
    physical = ground.table("t")
    ground.tables.forget(physical)
    assert (Path(ground.place("t")) / "_headgate_owner").exists()
    managed = f"managed_{ground.mark}"
    with pytest.raises(EngineRefused, match="no LOCATION"):
        ground.tables.create(managed, f"CREATE TABLE {managed} (a INT) USING parquet")
    ground.session.spark.sql(f"CREATE TABLE {managed} (a INT) USING parquet")
    with pytest.raises(EngineRefused, match="would delete its files"):
        ground.tables.forget(managed)


TYPES = (
    "a BIGINT, b STRING, c DECIMAL(10, 2), d STRUCT<x: INT, `Y z`: ARRAY<STRING>>, e MAP<STRING, TIMESTAMP_NTZ>, "
    "f VARCHAR(10), g TIMESTAMP NOT NULL COMMENT 'it''s when', h INTEGER, i DEC, j CHAR(3), k TIMESTAMP_LTZ, l VARIANT"
)


def made(ground: Any, columns: str, folder: str, name: str = "t", **more: str) -> str:
    """Create a table by its compiled DDL and return its name."""
    physical = f"{name}_{ground.mark}__v1"
    declared, problems = read_ddl(
        f"CREATE TABLE {name} ({columns}) USING {more.get('format', 'parquet')} {more.get('clauses', '')}", "ddl"
    )
    assert declared is not None, problems
    ground.tables.create(physical, compile_ddl(declared, physical, f"{ground.folder}/{folder}"))
    return physical


def test_an_existing_table_as_declared_is_accepted_in_any_notation_of_types(ground: Any) -> None:
    for _ in range(2):
        made(ground, TYPES, "one place", clauses="PARTITIONED BY (b) COMMENT 'all' TBLPROPERTIES ('k'='v')")
    plain = made(ground, "a BIGINT, b STRING", "./two//", "plain")
    ground.tables.add_columns(plain, (("later", "INT"),))
    made(ground, "a BIGINT, b STRING", "two", "plain")


def test_a_new_table_takes_one_call_and_an_existing_one_is_compared(ground: Any) -> None:
    ground.table("warm")
    said: list[str] = []
    run, described = ground.tables._run, ground.tables._described
    ground.tables._run = lambda sql: (said.append(" ".join(sql.split()[:3])), run(sql))
    ground.tables._described = lambda name: (said.append("DESCRIBE"), described(name))[1]
    physical = made(ground, "a BIGINT", "one", "new")
    assert said == [f"CREATE TABLE {physical}"]
    made(ground, "a BIGINT", "one", "new")
    assert said[1:] == ["DESCRIBE"]


def test_tables_and_pointers_that_stand_are_known_from_one_listing_of_each(ground: Any) -> None:
    columns = {
        "plain": "a BIGINT, `b: c` INT NOT NULL COMMENT 'x', d DECIMAL(10, 2), e TIMESTAMP, f BOOLEAN, g SMALLINT",
        "nested": "a STRUCT<x: INT>",
        "varchar": "a VARCHAR(10)",
        "moved": "a BIGINT",
        "another": "a BIGINT",
    }
    physical = {name: made(ground, types, name, name) for name, types in columns.items()}
    view = (f"v_{ground.mark}", (physical["plain"],), ("a",))
    ground.tables.point(*view)
    given = []
    for name, types in {**columns, "another": "a INT"}.items():
        declared, _ = read_ddl(f"CREATE TABLE {name} ({types}) USING parquet", "ddl")
        folder = f"{ground.folder}/{'elsewhere' if name == 'moved' else name}"
        assert declared is not None
        given.append(CatalogTable(physical[name], compile_ddl(declared, physical[name], folder)))
    after = SparkTables(ground.session)
    after._run = after._described = lambda *asked: pytest.fail(f"{asked} was not needed")  # type: ignore[method-assign]
    assert after.create_together(given) == {physical["plain"]}
    assert after.point_together([view, (view[0], (physical["moved"],), ("a",))]) == {view[0]}
    assert after.point_together([(view[0], (physical["moved"],), ("a",))]) == frozenset()


def test_a_table_that_another_client_made_or_dropped_is_made_or_compared_nevertheless(ground: Any) -> None:
    mine, ground.tables = ground.tables, SparkTables(ground.session)
    physical = made(ground, "a BIGINT", "theirs")
    theirs, ground.tables = ground.tables, mine
    with pytest.raises(EngineRefused, match=r"is in the catalog at .*/theirs, not at .*/ours"):
        made(ground, "a BIGINT", "ours")
    theirs.forget(physical)
    made(ground, "a BIGINT", "ours")
    assert mine.read(f"SELECT * FROM {physical}", 1) == (("a",), ())


def test_a_request_that_spark_refuses_leaves_every_table_and_pointer_to_be_made_alone(ground: Any) -> None:
    ground.table("warm")
    theirs, ours = (f"{each}_{ground.mark}__v1" for each in ("theirs", "ours"))
    place = f"{ground.folder}/together"
    ddl = {name: f"CREATE TABLE IF NOT EXISTS {name} (a INT) USING parquet LOCATION '{place}/{name}'"
           for name in (ours, theirs, f"last_{ground.mark}")}  # fmt: skip
    SparkTables(ground.session).create(theirs, ddl[theirs].replace(f"/{theirs}'", "/elsewhere'"))
    tables = [CatalogTable(name, text) for name, text in ddl.items()]
    managed = CatalogTable(f"managed_{ground.mark}", f"CREATE TABLE IF NOT EXISTS managed_{ground.mark} (a INT)")
    parts = CatalogTable(f"parts_{ground.mark}", tables[0].ddl + " PARTITIONED BY (a)")
    with pytest.raises(EngineRefused) as refused:
        ground.tables.create_together([*tables, managed, parts])
    assert refused.value.error_class == "TABLE_OR_VIEW_ALREADY_EXISTS"
    ground.tables.create(ours, ddl[ours])
    with pytest.raises(EngineRefused, match=r"is in the catalog at .*/elsewhere, not at"):
        ground.tables.create(theirs, ddl[theirs])
    assert ground.tables.create_together([*tables, managed, parts]) == {ours, tables[2].name}
    views = [(f"{view}_{ground.mark}", (target,), ("a",)) for view, target in (("v", ours), ("w", "gone"))]
    with pytest.raises(EngineRefused):
        ground.tables.point_together(views)
    ground.tables.point(*views[0])
    assert target(ground, views[0][0]) == ours
    assert names(ground).isdisjoint({managed.name, parts.name, views[1][0]})


@pytest.mark.parametrize(
    ("columns", "folder", "more", "said"),
    [
        ("a BIGINT, b STRING", "two", {}, "is in the catalog at .*/one, not at .*/two"),
        ("a BIGINT, b INT", "one", {}, "has b string in the catalog, not b int"),
        ("a BIGINT, b STRING, c INT", "one", {}, "has no c int in the catalog"),
        ("a BIGINT, b STRING", "one", {"format": "json"}, "is parquet in the catalog, not json"),
    ],
)
def test_an_existing_but_different_table_is_refused(
    columns: str, folder: str, more: dict[str, str], said: str, ground: Any
) -> None:
    made(ground, "a BIGINT, b STRING", "one")
    with pytest.raises(EngineRefused, match=said) as refused:
        made(ground, columns, folder, **more)
    assert refused.value.error_class == "HEADGATE_OTHER_TABLE" and refused.value.remedy


def test_a_pointer_of_another_home_on_the_same_pool_is_not_moved(ground: Any) -> None:
    view = f"v_{ground.mark}"
    theirs, ours = (made(ground, "a BIGINT", f"{home}/tables/{home}", home) for home in ("theirs", "ours"))
    newer = made(ground, "a BIGINT", "theirs/tables/newer", "newer")
    ground.tables.point(view, (theirs,), ("a",))
    with pytest.raises(EngineRefused, match=r"points to .*theirs.*, which does not belong to this environment"):
        ground.tables.point(view, (ours,), ("a",))
    ground.tables.point(view, (newer,), ("a",))
    assert target(ground, view) == newer


def test_a_pointer_to_a_table_that_is_gone_is_moved(ground: Any) -> None:
    view = f"v_{ground.mark}"
    first, second = (made(ground, "a BIGINT", name, name) for name in ("one", "two"))
    ground.tables.point(view, (first,), ("a",))
    ground.tables.forget(first)
    ground.tables.point(view, (second,), ("a",))
    assert target(ground, view) == second


def test_a_pointer_is_read_back_and_altered_where_it_exists(ground: Any) -> None:
    first, second = ground.table("t"), ground.table("u")
    view = f"v_{ground.mark}"
    ground.tables.point(view, (first,), ("a",))
    assert target(ground, view) == first
    said: list[str] = []
    run = ground.tables._run
    ground.tables._run = lambda sql: (said.append(sql), run(sql))
    ground.tables.point(view, (second,), ("a", "b"))
    assert said == [f"ALTER VIEW `{view}` AS SELECT `a`, `b` FROM `{second}`"]
    assert target(ground, view) == second
    stands, both = (view, (second,), ("a", "b")), (f"w_{ground.mark}", (first, second), ("a",))
    ground.tables.point(*both)
    gone = (f"none_{ground.mark}", (second,), ("a",))
    others = ((view, (first,), ("a", "b")), (view, (second,), ("a",)), (view, (second, first), ("a", "b")), gone)
    assert ground.tables.existing_pointers((stands, both, *others)) == {stands, both}


def test_a_pointer_that_another_client_made_or_dropped_is_set_nevertheless(ground: Any) -> None:
    first, second = ground.table("t"), ground.table("u")
    view, other = f"v_{ground.mark}", SparkTables(ground.session)
    ground.tables.unpoint("none")
    other.point(view, (first,), ("a",))
    ground.tables.point(view, (second,), ("a",))
    assert target(ground, view) == second
    other.unpoint(view)
    ground.tables.point(view, (first,), ("a",))
    assert target(ground, view) == first
    for pointer in (view, f"w_{ground.mark}"):
        with pytest.raises(EngineRefused) as raised:
            ground.tables.point(pointer, ("gone",), ("a",))
        assert raised.value.error_class == "TABLE_OR_VIEW_NOT_FOUND"


def test_a_pointer_serves_the_rows_of_all_its_targets_and_then_of_one(ground: Any) -> None:
    before, own = ground.table("t"), ground.table("u", partitioned="b")
    view = f"v_{ground.mark}"
    for table, value in ((before, 1), (own, 2)):
        ground.session.spark.sql(f"INSERT INTO {table} VALUES ({value}, 'x')")
    ground.tables.point(view, (own,), ("a", "b"))
    ground.tables.point(view, (before, own), ("a", "b"))
    assert sorted(ground.tables.read(f"SELECT a, b FROM {view}", 9)[1]) == [(1, "x"), (2, "x")]
    ground.tables.point(view, (before,), ("a", "b"))
    assert ground.tables.read(f"SELECT a, b FROM {view}", 9)[1] == ((1, "x"),)


@pytest.mark.drill
def test_readers_of_a_pointer_never_miss_it_while_it_moves(ground: Any) -> None:
    names = (ground.table("t"), ground.table("u"))
    view = f"v_{ground.mark}"
    ground.tables.point(view, (names[0],), ("a",))
    reader = ground.session.reader()
    reader.attach()
    failures: list[str] = []
    over = threading.Event()

    def read() -> None:
        while not over.is_set():
            try:
                reader.spark.sql(f"SELECT a FROM {view}").collect()
            except Exception as error:
                failures.append(str(error)[:200])

    thread = threading.Thread(target=read)
    thread.start()
    for n in range(40):
        ground.tables.point(view, (names[n % 2],), ("a",))
    over.set()
    thread.join(60)
    reader.close()
    assert failures == []


@pytest.mark.drill
def test_batch_reads_see_each_commit_of_a_stream_by_table_and_by_pointer(ground: Any) -> None:
    physical = ground.table("t")
    view = f"v_{ground.mark}"
    ground.tables.point(view, (physical,), ("a", "b"))
    reader = ground.session.reader()
    reader.attach()
    tables = SparkTables(ground.session, reader)
    ground.start("t", f"SELECT a, b FROM STREAM {ground.source}")
    for n in range(1, 4):
        ground.land(10)
        ground.until(lambda n=n: (ground.files.read(ground.checkpoint("t")).batch or 0) == n - 1 and
                     ground.files.read(ground.checkpoint("t")).batch is not None)  # fmt: skip
        for name in (physical, view):
            assert tables.read(f"SELECT count(*) FROM {name}", 1)[1] == ((10 * n,),), (n, name)
    reader.close()


def test_a_read_gives_at_most_its_limit(ground: Any) -> None:
    assert ground.tables.read("SELECT id AS n FROM range(100) ORDER BY n", 2) == (("n",), ((0,), (1,)))


def test_a_read_beyond_its_deadline_ends_on_the_server_and_disturbs_nobody(ground: Any) -> None:
    reader = ground.session.reader()
    reader.attach()
    tables = SparkTables(ground.session, reader)
    with pytest.raises(TryAgain, match="did not end within") as raised:
        ground.session.call(2, tables.read, HEAVY, 1)
    assert not isinstance(raised.value, PoolUnreachable)
    assert ground.session.breaker.state == CircuitState.CLOSED
    ground.session.call(5, ground.session.ping)
    ground.until(lambda: _running_operations(reader) == 0, 30)
    reader.close()


def test_a_read_is_ended_by_its_tag_and_no_other_one_is(ground: Any) -> None:
    reader = ground.session.reader()
    reader.attach()
    tables = SparkTables(ground.session, reader)
    raised: dict[str, Exception] = {}

    def read(tag: str) -> None:
        try:
            ground.session.call(60, tables.read_files, HEAVY, 1, (), tag)
        except HeadgateError as error:
            raised[tag] = error

    threads = {tag: threading.Thread(target=read, args=(tag,)) for tag in ("headgate-mine", "headgate-other")}
    for thread in threads.values():
        thread.start()
    for tag, thread in threads.items():

        def gone(tag: str = tag, thread: threading.Thread = thread) -> bool:
            tables.cancel_reads(tag)
            return not thread.is_alive()

        ground.until(gone, 20)
        assert isinstance(raised[tag], EngineRefused), raised
        assert tag == "headgate-other" or threads["headgate-other"].is_alive()
    assert _running_operations(reader) == 0
    reader.close()


@pytest.mark.drill
def test_a_read_cancelled_at_its_start_leaves_no_work_on_the_pool(ground: Any) -> None:
    reader = ground.session.reader()
    reader.attach()
    tables = SparkTables(ground.session, reader)

    def read() -> None:
        with contextlib.suppress(HeadgateError):
            tables.read_files(HEAVY, 1, (), "headgate-mine")

    for number in range(15):
        thread = threading.Thread(target=read)
        thread.start()
        thread.join(number * 0.04)
        while thread.is_alive():
            tables.cancel_reads("headgate-mine")
            thread.join(0.02)
        # An abandoned job would occupy every core, so this job would have to wait for it.
        assert ground.session.call(8, tables.read, "SELECT count(*) FROM range(10)", 1)[1] == ((10,),), number
    reader.close()


def test_a_partitioned_table_is_written_partitioned(ground: Any) -> None:
    physical = ground.table("t", "a BIGINT, b STRING", partitioned="b")
    ground.land(6)
    ground.start("t", f"SELECT a, b FROM STREAM {ground.source}")
    ground.until(lambda: ground.files.read(ground.checkpoint("t")).batch == 0)
    assert sorted(path.name for path in Path(ground.place("t")).glob("b=*")) == ["b=b0", "b=b1", "b=b2"]
    assert ground.count(f"SELECT count(*) FROM {physical} WHERE b = 'b1'") == 2


def test_a_partitioned_table_is_written_partitioned_even_after_another_registration(ground: Any) -> None:
    physical = ground.table("t", "a BIGINT, b STRING", partitioned="b")
    ground.land(6)
    ground.start("t", f"SELECT a, b FROM STREAM {ground.source}")
    ground.until(lambda: ground.count(f"SELECT count(*) FROM {physical}") == 6)
    ground.queries.stop(ground.query("t"))
    ground.tables.forget(physical)
    assert ground.table("t", "a BIGINT, b STRING", partitioned="b") == physical
    ground.land(6)
    ground.start("t", f"SELECT a, b FROM STREAM {ground.source}")
    ground.until(lambda: len(list(Path(ground.place("t"), "_spark_metadata").glob("[0-9]*"))) == 2)
    assert not list(Path(ground.place("t")).glob("*.parquet"))
    assert ground.count(f"SELECT count(*) FROM {physical} WHERE b = 'b1'") == 4
    ground.table("u")
    ground.start("u", f"SELECT a, b FROM STREAM {physical}")
    ground.until(lambda: ground.count(f"SELECT count(*) FROM u_{ground.mark}__v1 WHERE b = 'b1'") == 4)


def _running_operations(session: Session) -> int:
    """Return the number of operations in a session that an interrupt still finds."""
    return len(session.spark.interruptAll())


def test_a_qualified_name_works_in_every_call_and_stays_out_of_the_default_database(ground: Any) -> None:
    database = f"stage_{ground.mark}"
    for _ in range(2):
        ground.tables.create_database(database)
    physical, view = f"{database}.t__v1", f"spark_catalog.{database}.t"
    declared, _ = read_ddl("CREATE TABLE t (a INT) USING parquet", "ddl")
    assert declared is not None
    pointer = (view, (physical,), ("a",))
    for _ in range(2):
        ground.tables.create(physical, compile_ddl(declared, physical, f"{ground.folder}/staged"))
        ground.tables.add_columns(physical, (("b", "INT"),))
        ground.tables.point(*pointer)
    together = CatalogTable(f"{database}.u__v1", compile_ddl(declared, f"{database}.u__v1", f"{ground.folder}/u"))
    assert ground.tables.create_together([together]) == {together.name}
    assert ground.tables.has(physical) and ground.tables.has(view) and not ground.tables.has("t__v1")
    assert ground.tables.existing_pointers([pointer]) == {pointer}
    ground.session.spark.sql(f"INSERT INTO {physical} VALUES (1, 2)")
    assert ground.tables.read(f"SELECT * FROM {view}", 5) == (("a",), ((1,),))
    with pytest.raises(EngineRefused, match="is in the catalog at"):
        ground.tables.create(physical, compile_ddl(declared, physical, f"{ground.folder}/elsewhere"))
    # Other tests use the default database of the same server at the same time.
    assert not {"t", "t__v1", "u__v1"} & names(ground)
    ground.tables.unpoint(view)
    for name in (physical, together.name):
        ground.tables.forget(name)
    ground.session.spark.sql(f"DROP DATABASE {database} RESTRICT")


def test_a_query_shows_its_environment_in_sparks_user_interface_and_is_found_by_its_own_name(ground: Any) -> None:
    queries = SparkQueries(ground.session, "shop/stage")
    source, sink = ground.table("s"), ground.table("o")
    start = QueryStart(
        f"o_{ground.mark}@v1", f"SELECT * FROM STREAM {source}", sink, "parquet", f"{ground.folder}/c", "1 second"
    )
    begun = queries.start(start)
    shown = {query.name for query in ground.session.spark.streams.active}
    assert f"shop/stage/{start.name}" in shown
    assert [query.name for query in queries.active() if query.run_id == begun.run_id] == [start.name]
    queries.stop(start.name)
    assert begun.run_id not in {query.run_id for query in queries.active()}
