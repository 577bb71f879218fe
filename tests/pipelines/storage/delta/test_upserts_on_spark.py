"""Keyed tables on real Spark: exactly the last row of each key, whatever is repeated, late or refused."""

import hashlib
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from java_class_files import fmt_jar

from core.ports.storage import VersionFolders
from core.sql.registered_functions import JarClass, RegisteredFunction
from pipelines.spark_connect.jar_sessions import StatementQueries
from pipelines.spark_connect.upsert_writers import batch_mark
from pipelines.storage.delta_log import DeltaLog

pytestmark = [pytest.mark.spark, pytest.mark.drill]

EVENTS = "id BIGINT, v STRING, seq BIGINT, gone BOOLEAN"
CDF = "USING delta TBLPROPERTIES ('delta.enableChangeDataFeed'='true')"


def happened(lake: Any, *events: tuple[int | None, str, int | None, bool]) -> None:
    """Commit events, (id, v, seq, gone), as one version of the parent."""
    rows = ", ".join(f"({i or 'NULL'}, '{v}', {'NULL' if s is None else s}, {str(g).lower()})" for i, v, s, g in events)
    lake.sql(f"INSERT INTO {lake.name('p')} VALUES {rows}")


def keyed(lake: Any, **more: str) -> Any:
    """Create a table of events and one of the last event per key; return a function that runs its query once."""
    lake.table("p", EVENTS)
    lake.table("k", EVENTS, CDF)
    upsert = lake.upsert("k", "id", "v", "seq", "gone", **more)
    return lambda: lake.run("k", f"SELECT id, v, seq, gone FROM STREAM {lake.name('p')}", upsert=upsert)


def held(lake: Any) -> dict[int, str]:
    return {int(str(i)): str(v) for i, v in lake.sql(f"SELECT id, v FROM {lake.name('k')}")}


@pytest.mark.long
def test_the_last_row_of_each_key_by_its_sequence_is_kept_and_older_ones_never_come_back(lake: Any) -> None:
    run = keyed(lake, sequence="seq", deletes="gone")
    happened(lake, (1, "a", 1, False), (1, "c", 3, False), (1, "b", 2, False), (2, "x", 1, False), (3, "y", 1, False))
    run()
    assert held(lake) == {1: "c", 2: "x", 3: "y"}
    happened(lake, (1, "late", 2, False), (2, "gone", 5, True), (3, "z", 2, False), (4, "n", 1, False))
    run()
    assert held(lake) == {1: "c", 3: "z", 4: "n"}
    happened(lake, (2, "late", 4, False), (3, "late delete", 1, True))
    run()
    assert held(lake) == {1: "c", 3: "z", 4: "n"}, "neither does a late row bring a deleted key back"
    happened(lake, (2, "back", 6, False))
    run()
    assert held(lake) == {1: "c", 2: "back", 3: "z", 4: "n"}
    query = lake.files.read(lake.checkpoint("k")).id
    assert lake.files.sink_batch(lake.place("k"), format="delta", query=query) == lake.batch("k") == 3


@pytest.mark.long
def test_nothing_is_written_after_a_stop_within_a_batch_and_the_next_start_writes_it(lake: Any) -> None:
    lake.table("p", EVENTS)
    lake.table("k", EVENTS, CDF)
    wait = "coalesce(java_method('java.lang.Thread', 'sleep', CASE WHEN id > 5 THEN 4000L ELSE 0L END), '')"
    select = f"SELECT id, concat(v, {wait}) AS v, seq, gone FROM STREAM {lake.name('p')}"
    upsert = lake.upsert("k", "id", "v", "seq", "gone", sequence="seq")
    happened(lake, (1, "a", 1, False))
    query = lake.start("k", select, upsert=upsert)
    lake.until(lambda: lake.batch("k") == 0)
    client, mark, others = lake.session.spark.client, batch_mark(query.name), set[str]()

    def under_way() -> set[str]:
        """Return the session's running operations, except those from before the batch, such as its listener."""
        asked = client._get_operation_statuses().operation_statuses
        return {each.operation_id for each in asked if each.state == 2} - others

    lake.mine()
    others |= under_way()
    happened(lake, (7, "b", 1, False))
    lake.until(lambda: Path(lake.checkpoint("k"), "offsets", "1").exists())
    lake.until(under_way)
    operations = under_way()
    lake.queries.stop(query.name, upserts=True)
    threads = str(lake.sql("SELECT reflect('java.lang.Thread', 'getAllStackTraces')")[0][0])
    assert not [each for each in operations if f"ExecuteThread_opId={each}" in threads], "it could commit"
    assert not lake.sql(f"SHOW VIEWS LIKE '{mark}*'"), "and no other statement over the batch can begin"
    assert set(held(lake)) == {1}
    lake.run("k", select, upsert=upsert)
    assert set(held(lake)) == {1, 7}


def test_the_lag_of_a_keyed_statement_counts_a_batch_until_it_is_committed_and_no_longer(lake: Any) -> None:
    run = keyed(lake, sequence="seq")

    def waits() -> tuple[int | None, int, float | None]:
        (found,) = lake.lag("k", "p")
        return found.rows, found.files, found.oldest_s

    happened(lake, (1, "a", 1, False), (2, "b", 1, False))
    assert waits()[0] == 2
    run()
    assert waits() == (0, 0, None)
    happened(lake, (1, "c", 2, False))
    commits = Path(lake.checkpoint("k"), "commits")
    run()
    assert waits() == (0, 0, None)
    for name in ("1", ".1.crc"):
        (commits / name).unlink(missing_ok=True)
    assert held(lake)[1] == "c" and waits()[0] == 1, "the table has it, and its batch is not recorded"


@pytest.mark.long
def test_an_older_copy_of_the_table_of_deleted_keys_is_reported_even_after_another_batch(lake: Any) -> None:
    run = keyed(lake, sequence="seq", deletes="gone")
    place, copy = f"{lake.place('k')}/deleted", f"{lake.folder}/copy"
    happened(lake, (1, "a", 1, False), (2, "x", 9, True))
    run()
    shutil.copytree(place, copy)
    happened(lake, (1, "gone", 5, True))
    run()
    before = lake.files.log_mark(place)
    shutil.rmtree(place)
    shutil.copytree(copy, place)
    assert lake.files.log_mark(place, before.version).version < before.version
    happened(lake, (1, "late", 2, False), (3, "gone", 5, True))
    run()
    assert 1 in held(lake), "what Spark does by itself: a deleted key is back"
    after = lake.files.log_mark(place, before.version)
    assert (after.id, after.version) == (before.id, before.version) and after.commit != before.commit


def test_a_batch_that_is_written_again_changes_nothing_and_its_readers_hear_of_nothing(lake: Any) -> None:
    run = keyed(lake, sequence="seq", deletes="gone")
    happened(lake, (1, "a", 1, False), (2, "x", 1, False))
    run()
    happened(lake, (1, "b", 2, False), (2, "x", 2, True), (3, "y", 1, False))
    run()
    log = DeltaLog(f"{lake.place('k')}/delta")
    log.refresh()
    before = (held(lake), log.head)
    commits = Path(lake.checkpoint("k"), "commits")
    (commits / "1").unlink()
    (commits / ".1.crc").unlink(missing_ok=True)
    run()
    log.refresh()
    assert held(lake) == before[0] == {1: "b", 3: "y"}
    feed = (
        lake.sql(f"SELECT id FROM table_changes('{lake.name('k')}', {before[1] + 1})") if log.head > before[1] else []
    )
    assert feed == []


@pytest.mark.parametrize(
    ("events", "sequence", "words"),
    # Without a key: test_rows_without_a_key_end_the_statement_with_a_remedy, through an agent, runs in .ci/run.
    [pytest.param([(1, "a", 1, False), (None, "b", 2, False)], "seq", 'HEADGATE_NULL_KEY a row has no key: {"id":null}',
                  marks=pytest.mark.long),
     ([(1, "a", None, False)], "seq", 'HEADGATE_NULL_SEQUENCE a row has no sequence, at the key {"id":1}'),
     ([(1, "a", 1, False), (1, "b", 2, False)], "",
      "HEADGATE_TWO_ROWS_PER_KEY a batch has two rows of one key, and no sequence says which is newer: {\"id\":1}")],
)  # fmt: skip
def test_rows_without_a_valid_key_end_the_statement_with_the_reason_and_nothing_is_written(
    events: list[Any], sequence: str, words: str, lake: Any
) -> None:
    run = keyed(lake, sequence=sequence)
    happened(lake, *events)
    with pytest.raises(AssertionError) as failed:
        run()
    print(failed.value)
    assert words in str(failed.value)
    assert held(lake) == {}


@pytest.mark.long
def test_without_a_sequence_the_later_row_is_kept_even_if_only_a_microsecond_differs(
    lake: Any,
) -> None:
    lake.folder = lake.folder / "[prod] {a}"
    (lake.folder / "tables").mkdir(parents=True)
    columns = "id BIGINT, at TIMESTAMP, local TIMESTAMP_NTZ"
    lake.table("p", columns)
    lake.table("k", columns, CDF)
    upsert = lake.upsert("k", "id", "at", "local")
    for at, local in (("12:00:00.123", "12:00:00"), ("12:00:00.123001", "12:00:00"), ("12:00:00", "12:00:00.000001")):
        rows = f"(1, TIMESTAMP '2026-01-01 {at}'), (2, TIMESTAMP '2026-01-01 12:00:00')"
        select = f"SELECT id, at, TIMESTAMP_NTZ '2026-01-01 {local}' FROM VALUES {rows} t(id, at)"
        lake.sql(f"INSERT INTO {lake.name('p')} {select}")
        lake.run("k", f"SELECT id, at, local FROM STREAM {lake.name('p')}", upsert=upsert)
        there = lake.sql(f"SELECT id, cast(at AS STRING), cast(local AS STRING) FROM {lake.name('k')}")
        assert sorted(there)[0] == (1, f"2026-01-01 {at}", f"2026-01-01 {local}")


@pytest.mark.long
def test_readers_take_changes_exactly_and_a_stream_of_rows_fails(lake: Any) -> None:
    run = keyed(lake, sequence="seq", deletes="gone")
    lake.table("c", "id BIGINT, what STRING")
    happened(lake, (1, "a", 1, False), (2, "x", 1, False))
    run()
    changes = f"SELECT id, _change_type AS what FROM STREAM {lake.name('k')} WITH ('readChangeFeed'='true')"
    lake.run("c", changes)
    happened(lake, (1, "b", 2, False), (2, "x", 2, True))
    run()
    lake.run("c", changes)
    found = sorted(lake.sql(f"SELECT id, what FROM {lake.name('c')}"))
    assert found == [(1, "insert"), (1, "update_postimage"), (1, "update_preimage"), (2, "delete"), (2, "insert")]
    with pytest.raises(AssertionError, match="DELTA_SOURCE_TABLE_IGNORE_CHANGES"):
        lake.table("r", "id BIGINT")
        lake.run("r", f"SELECT id FROM STREAM {lake.name('k')} WITH ('startingVersion'='0')")


def written_again(lake: Any, select: str) -> Any:
    """Restart the query of `k` on its table with the checkpoint of a rewrite; return a function that runs it on."""
    place = lake.checkpoint("k.rewrite.r2")
    lake.files.create_checkpoint_after(VersionFolders(lake.place("k"), place), (), {"run": "r"})
    upsert = replace(lake.upsert("k", "id", "v", "seq", "gone", sequence="seq", deletes="gone"), checkpoint=place)

    def run() -> None:
        lake.run("k", select, checkpoint="k.rewrite.r2", upsert=upsert)

    run()
    return run


@pytest.mark.long
def test_a_table_rewritten_in_place_equals_a_rebuilt_one(lake: Any) -> None:
    run = keyed(lake, sequence="seq", deletes="gone")
    happened(lake, (1, "a", 1, False), (2, "x", 4, False), (3, "y", 1, False), (4, "n", 2, True))
    run()
    happened(lake, (1, "b", 3, False), (2, "late", 2, False), (3, "y", 2, True), (3, "z", 3, False), (5, "e", 5, True))
    run()
    upper = f"SELECT id, upper(v) AS v, seq, gone FROM STREAM {lake.name('p')} WITH ('maxFilesPerTrigger'='1')"
    run = written_again(lake, upper)
    lake.table("anew", EVENTS, CDF)
    lake.run("anew", upper, upsert=lake.upsert("anew", "id", "v", "seq", "gone", sequence="seq", deletes="gone"))
    both = [sorted(lake.sql(f"SELECT id, v, seq, gone FROM {lake.name(table)}")) for table in ("k", "anew")]
    assert both[0] == both[1] == [(1, "B", 3, False), (2, "X", 4, False), (3, "Z", 3, False)]
    happened(lake, (4, "late", 1, False), (5, "back", 6, False))
    run()
    assert held(lake) == {1: "B", 2: "X", 3: "Z", 5: "BACK"}, "what was deleted is remembered"


@pytest.mark.long
def test_a_version_that_begins_later_would_bring_a_deleted_key_back(lake: Any) -> None:
    """Therefore, no such version is created beside a serving one: only the latter knows what its rows replace."""
    run = keyed(lake, sequence="seq", deletes="gone")
    happened(lake, (1, "a", 3, False), (2, "x", 1, False), (2, "gone", 5, True))
    run()
    lake.table("later", EVENTS, CDF)
    lake.files.prepare(lake.checkpoint("later"), {"run": "r"})
    folders = VersionFolders(lake.place("later"), lake.checkpoint("later"))
    cut = lake.files.create_checkpoint_after(
        folders, (lake.files.source_position(lake.place("p")),), {"run": "r"}, batch=0
    )
    lake.tables.record_batch(f"{lake.place('later')}/delta", cut.id, 0)
    happened(lake, (1, "late", 2, False), (2, "late", 4, False))
    run()
    upsert = lake.upsert("later", "id", "v", "seq", "gone", sequence="seq", deletes="gone")
    lake.run("later", f"SELECT id, v, seq, gone FROM STREAM {lake.name('p')}", upsert=upsert)
    assert held(lake) == {1: "a"}
    assert dict(lake.sql(f"SELECT id, v FROM {lake.name('later')}")) == {1: "late", 2: "late"}


@pytest.mark.long
def test_rows_of_keys_that_the_new_text_does_not_give_stay_in_a_table_that_is_written_again(lake: Any) -> None:
    run = keyed(lake, sequence="seq", deletes="gone")
    happened(lake, (1, "a", 1, False), (2, "x", 4, False))
    run()
    written_again(lake, f"SELECT id, upper(v) AS v, seq, gone FROM STREAM {lake.name('p')} WHERE id > 1")
    assert held(lake) == {1: "a", 2: "X"}, "which is why such an edit asks for an approval"


@pytest.mark.long
def test_a_row_written_by_hand_duplicates_its_key_and_is_reported(lake: Any) -> None:
    run = keyed(lake, sequence="seq", deletes="gone")
    happened(lake, (1, "a", 1, False), (2, "x", 1, True))
    run()
    assert lake.files.written_by_hand(lake.place("k"), "delta") is None
    lake.sql(f"INSERT INTO {lake.name('k')} VALUES (1, 'mine', 1, false)")
    happened(lake, (1, "b", 2, False))
    run()
    assert sorted(lake.sql(f"SELECT id, v FROM {lake.name('k')}")) == [(1, "b"), (1, "b")]
    version, operation = lake.files.written_by_hand(lake.place("k"), "delta")
    (written,) = lake.sql(f"SELECT count(*) FROM {lake.name('k')} VERSION AS OF {version}")
    assert (operation, written) == ("WRITE", (2,))


@pytest.mark.long
def test_three_keyed_statements_that_are_started_at_once_do_not_meet_in_the_views_of_their_session(lake: Any) -> None:
    lake.table("p", EVENTS)
    names = [f"k{n}" for n in range(3)]
    for name in names:
        lake.table(name, EVENTS, CDF)

    def begin(n: int) -> None:
        upsert = lake.upsert(names[n], "id", "v", "seq", "gone", sequence="seq")
        select = f"SELECT id, concat(v, {n}) AS v, seq, gone FROM STREAM {lake.name('p')}"
        lake.start(names[n], select, upsert=upsert)

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(begin, range(3)))
    for at in range(1, 5):
        happened(lake, *((i, f"v{at}-", at, False) for i in range(1, 6)))
    for n, name in enumerate(names):
        wanted = [(i, f"v4-{n}") for i in range(1, 6)]
        lake.until(lambda: sorted(lake.sql(f"SELECT id, v FROM {lake.name(name)}")) == wanted, 90)  # noqa: B023


@pytest.mark.long
def test_an_error_of_a_python_function_ends_a_keyed_statement_with_its_line(lake: Any) -> None:
    lake.table("src")
    lake.table("a")
    lake.insert("src", 3)
    text = "def plain(v):\n    if v == 'v2':\n        raise ValueError('no v2')\n    return v\n"
    function = RegisteredFunction("plain__py_01234567", "string", code=text)
    select = f"SELECT id, plain__py_01234567(v) AS v FROM STREAM {lake.name('src')}"
    query = lake.start("a", select, upsert=lake.upsert("a", "id", "v"), functions=(function,))
    lake.until(lambda: query.name not in lake.mine())
    (ended,) = [each for each in lake.queries.ended() if each.run_id == query.run_id]
    assert (ended.error_class, ended.error) == ("HEADGATE_FUNCTION_FAILED", "plain.py, line 3: ValueError: no v2")
    assert ended.failure is None and lake.count("a") == 0


@pytest.mark.long
def test_a_keyed_statement_calls_a_function_of_a_jar_and_goes_on_with_that_of_another_jar(lake: Any) -> None:
    class Jars:
        def path(self, sha256: str, name: str) -> str:
            return str(lake.folder / f"{sha256}.jar")

    def function(says: str) -> RegisteredFunction:
        content = fmt_jar(says)
        sha256 = hashlib.sha256(content).hexdigest()
        (lake.folder / f"{sha256}.jar").write_bytes(content)
        return RegisteredFunction(f"fmt__jar_{sha256[:8]}", "string", java=JarClass("com.acme.Fmt", "acme.jar", sha256))

    lake.queries = StatementQueries(lake.session, jars=Jars())
    lake.table("src")
    lake.table("a")
    lake.insert("src", 3)
    upsert = lake.upsert("a", "id", "v")
    for says in ("one ", "two "):
        called = function(says)
        assert lake.queries.load_functions([called]) is None
        select = f"SELECT id, {called.name}(v) AS v FROM STREAM {lake.name('src')}"
        query = lake.start("a", select, upsert=upsert, functions=(called,))
        lake.until(lambda: {v[:4] for (v,) in lake.sql(f"SELECT v FROM {lake.name('a')}")} >= {says})  # noqa: B023
        lake.queries.stop(query.name, upserts=True)
        lake.insert("src", 3, at=3)
    assert lake.queries.ended() == ()
