"""Delta streams that track their columns: what ends them, which changes they survive, and exact rows."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from core.model.errors import EngineRefused
from core.model.names import TableName
from core.sql.compiler import tracking_options, with_stream_options
from core.sql.statement import AT_VERSION, LogStart

pytestmark = [pytest.mark.spark, pytest.mark.drill]

MAPPED = "USING delta TBLPROPERTIES ('delta.columnMapping.mode'='name', 'delta.enableTypeWidening'='true')"
KEPT, GOES = "DELTA_STREAMING_METADATA_EVOLUTION", ""


def ends(lake: Any, table: str, select: str) -> str:
    """Let a query read everything available, and return its error class, or ""."""
    query = lake.start(table, select, trigger="available now")
    lake.until(lambda: query.name not in lake.mine())
    return str({each.run_id: each.error_class for each in lake.queries.ended()}.get(query.run_id, ""))


def tracked(lake: Any, table: str, select: str, sources: int = 1) -> str:
    """Return a SELECT with the options that the start of a tracking statement adds to its sources."""
    place = lake.checkpoint(table)
    return with_stream_options(select, {ordinal: tracking_options(place, ordinal) for ordinal in range(sources)})


def rows(lake: Any, table: str) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = lake.sql(f"SELECT id, v FROM {lake.name(table)} ORDER BY id")
    return found


@pytest.mark.long
def test_it_ends_once_at_a_renamed_column_and_continues_with_each_row_once(lake: Any) -> None:
    name = lake.table("p", "id BIGINT, v INT, w INT", MAPPED)
    lake.table("c", "id BIGINT, v BIGINT")
    select = tracked(lake, "c", f"SELECT id, v FROM STREAM {name}")
    lake.sql(f"INSERT INTO {name} VALUES (1, 1, 1)")
    lake.start("c", select, trigger="500 milliseconds")
    lake.until(lambda: lake.batch("c") == 0)
    lake.sql(f"ALTER TABLE {name} RENAME COLUMN w TO x")
    lake.until(lambda: not lake.mine())
    (running,) = [found for found in lake.queries.ended() if found.name == lake.query("c")]
    assert running.error_class == KEPT
    assert running.error == "columns of its input have changed: a start continues past that"
    lake.sql(f"INSERT INTO {name} VALUES (2, 2, 2)")
    assert ends(lake, "c", select) == GOES and rows(lake, "c") == [(1, 1), (2, 2)]
    given = ((0, TableName("p"), lake.place("p"), "delta"),)
    assert lake.files.source_fault(lake.checkpoint("c"), given, tracked=True) is None
    lake.sql(f"ALTER TABLE {name} RENAME COLUMN v TO y")
    assert lake.files.source_fault(lake.checkpoint("c"), given) is not None
    assert lake.files.source_fault(lake.checkpoint("c"), given, tracked=True) is None


@pytest.mark.long
@pytest.mark.parametrize(
    ("alter", "more"),
    [("ADD COLUMN z INT", ", 3"), ("RENAME COLUMN w TO x", ""), ("ALTER COLUMN v TYPE BIGINT", ""),
     ("ALTER COLUMN v COMMENT 'x'", "")],
    ids=["added", "renamed", "widened", "comment"],
)  # fmt: skip
def test_a_stopped_reader_ends_once_at_each_change_even_if_one_without_tracking_continues(
    alter: str, more: str, lake: Any
) -> None:
    name = lake.table("p", "id BIGINT, v INT, w INT", MAPPED)
    selects = {"c": tracked(lake, "c", f"SELECT id, v FROM STREAM {name}"), "plain": f"SELECT id, v FROM STREAM {name}"}
    lake.sql(f"INSERT INTO {name} VALUES (1, 1, 1)")
    for table, select in selects.items():
        lake.table(table, "id BIGINT, v BIGINT")
        assert ends(lake, table, select) == GOES
    lake.sql(f"INSERT INTO {name} VALUES (2, 2, 2)")
    lake.sql(f"ALTER TABLE {name} {alter}")
    lake.sql(f"INSERT INTO {name} VALUES (3, 3, 3{more})")
    found = [ends(lake, "c", selects["c"]) for _ in range(3)]
    assert found == [KEPT, GOES, GOES] and rows(lake, "c") == [(1, 1), (2, 2), (3, 3)]
    plain = ends(lake, "plain", selects["plain"])
    lost = "DELTA_STREAMING_INCOMPATIBLE_SCHEMA_CHANGE_USE_SCHEMA_LOG"
    assert plain == (lost if alter.startswith("RENAME") else GOES)


@pytest.mark.long
def test_a_renamed_column_that_it_reads_fails_its_start_until_its_text_uses_the_new_name(lake: Any) -> None:
    name = lake.table("p", "id BIGINT, v INT", MAPPED)
    lake.table("c", "id BIGINT, v BIGINT")
    select = tracked(lake, "c", f"SELECT id, v FROM STREAM {name}")
    lake.sql(f"INSERT INTO {name} VALUES (1, 1)")
    assert ends(lake, "c", select) == GOES
    lake.sql(f"ALTER TABLE {name} RENAME COLUMN v TO x")
    lake.sql(f"INSERT INTO {name} VALUES (2, 2)")
    assert ends(lake, "c", select) == KEPT
    with pytest.raises(EngineRefused) as refused:
        ends(lake, "c", select)
    assert refused.value.error_class == "UNRESOLVED_COLUMN.WITH_SUGGESTION" and "`x`" in refused.value.summary
    assert ends(lake, "c", select.replace("id, v", "id, x AS v")) == GOES and rows(lake, "c") == [(1, 1), (2, 2)]


@pytest.mark.long
def test_without_the_required_settings_it_never_continues(lake: Any) -> None:
    name = lake.table("p", "id BIGINT, v INT, w INT", MAPPED)
    lake.table("c", "id BIGINT, v BIGINT")
    place = tracking_options(lake.checkpoint("c"), 0)[:1]
    select = with_stream_options(f"SELECT id, v FROM STREAM {name}", {0: place})
    lake.sql(f"INSERT INTO {name} VALUES (1, 1, 1)")
    assert ends(lake, "c", select) == GOES
    lake.sql(f"ALTER TABLE {name} ALTER COLUMN v TYPE BIGINT")
    blocked = "DELTA_STREAMING_CANNOT_CONTINUE_PROCESSING_POST_SCHEMA_EVOLUTION"
    assert [ends(lake, "c", select) for _ in range(3)] == [KEPT, blocked, blocked]
    assert ends(lake, "c", tracked(lake, "c", f"SELECT id, v FROM STREAM {name}")) == GOES


@pytest.mark.long
def test_tracking_can_begin_later_even_behind_a_renamed_column_and_end_again(lake: Any) -> None:
    name = lake.table("p", "id BIGINT, v INT, w INT", MAPPED)
    lake.table("c", "id BIGINT, v BIGINT")
    plain = f"SELECT id, v FROM STREAM {name}"
    select = tracked(lake, "c", plain)
    lake.sql(f"INSERT INTO {name} VALUES (1, 1, 1)")
    assert ends(lake, "c", plain) == GOES
    lake.sql(f"INSERT INTO {name} VALUES (2, 2, 2)")
    lake.sql(f"ALTER TABLE {name} RENAME COLUMN w TO x")
    lake.sql(f"INSERT INTO {name} VALUES (3, 3, 3)")
    assert ends(lake, "c", plain) != GOES
    assert [ends(lake, "c", select) for _ in range(3)] == [KEPT, KEPT, GOES]
    lake.sql(f"INSERT INTO {name} VALUES (4, 4, 4)")
    assert ends(lake, "c", plain) == GOES, "what was renamed lies behind it"
    lake.sql(f"ALTER TABLE {name} ADD COLUMN z INT")
    lake.sql(f"INSERT INTO {name} VALUES (5, 5, 5, 5)")
    assert ends(lake, "c", plain) == GOES
    lake.sql(f"INSERT INTO {name} VALUES (6, 6, 6, 6)")
    assert ends(lake, "c", select) == GOES, "what was kept is older than what was read"
    assert rows(lake, "c") == [(n, n) for n in range(1, 7)]


@pytest.mark.long
def test_each_source_ends_it_once_and_one_table_is_not_streamed_twice(lake: Any) -> None:
    names = [lake.table(table, "id BIGINT, v INT, w INT", MAPPED) for table in ("p", "q")]
    for table in ("c", "d"):
        lake.table(table, "id BIGINT, v BIGINT")
    for n, name in enumerate(names):
        lake.sql(f"INSERT INTO {name} VALUES ({n}, 1, 1)")
    select = " UNION ALL ".join(f"SELECT id, v FROM STREAM {name}" for name in names)
    assert ends(lake, "c", tracked(lake, "c", select, 2)) == GOES
    for n, name in enumerate(names):
        lake.sql(f"ALTER TABLE {name} DROP COLUMN w")
        lake.sql(f"INSERT INTO {name} VALUES ({n + 2}, 1)")
    assert [ends(lake, "c", tracked(lake, "c", select, 2)) for _ in range(3)] == [KEPT, KEPT, GOES]
    assert rows(lake, "c") == [(n, 1) for n in range(4)]
    twice = tracked(lake, "d", select.replace(names[1], names[0]), 2)
    with pytest.raises(EngineRefused) as refused:
        ends(lake, "d", twice)
    assert refused.value.error_class == "DELTA_STREAMING_SCHEMA_LOCATION_CONFLICT"
    assert refused.value.summary.startswith("it streams one Delta table twice")
    away = f"SELECT id, v FROM STREAM {names[0]} WITH ('schemaTrackingLocation'='{lake.folder}/elsewhere')"
    with pytest.raises(EngineRefused) as refused:
        ends(lake, "d", away)
    assert refused.value.error_class == "DELTA_STREAMING_SCHEMA_LOCATION_NOT_UNDER_CHECKPOINT"


@pytest.mark.long
def test_a_copy_of_a_checkpoint_leaves_what_was_kept_behind_and_has_each_row_once(lake: Any) -> None:
    name = lake.table("p", "id BIGINT, v INT, w INT", MAPPED)
    for table in ("c", "early", "within", "whole"):
        lake.table(table, "id BIGINT, v BIGINT")
    select = f"SELECT id, v FROM STREAM {name}"
    lake.sql(f"INSERT INTO {name} VALUES (1, 1, 1)")
    assert ends(lake, "c", tracked(lake, "c", select)) == GOES
    _copy(lake, "early", kept=False)
    lake.sql(f"INSERT INTO {name} VALUES (2, 2, 2)")
    lake.sql(f"ALTER TABLE {name} RENAME COLUMN w TO x")
    lake.sql(f"INSERT INTO {name} VALUES (3, 3, 3)")
    assert ends(lake, "c", tracked(lake, "c", select)) == KEPT
    _copy(lake, "within", kept=False)
    _copy(lake, "whole", kept=True)
    (waits,) = lake.lag("c", "p")
    assert (waits.rows, waits.exact) == (1, True), "it stands at the change itself"
    assert [ends(lake, "early", tracked(lake, "early", select)) for _ in range(3)] == [KEPT, KEPT, GOES]
    assert rows(lake, "early") == [(2, 2), (3, 3)]
    assert ends(lake, "within", tracked(lake, "within", select)) == GOES and rows(lake, "within") == [(3, 3)]
    whole = lake.start("whole", tracked(lake, "whole", select), trigger="available now")
    lake.until(lambda: whole.name not in lake.mine())
    (why,) = [each.error for each in lake.queries.ended() if each.run_id == whole.run_id]
    assert "different from the one persisted" in why, "what is kept names the checkpoint"
    assert ends(lake, "c", tracked(lake, "c", select)) == GOES and rows(lake, "c") == [(1, 1), (2, 2), (3, 3)]


def _copy(lake: Any, table: str, *, kept: bool) -> None:
    """Copy the checkpoint of c for another table, with or without its tracked columns."""
    place = Path(lake.checkpoint(table))
    shutil.copytree(lake.checkpoint("c"), place, ignore=None if kept else shutil.ignore_patterns("schemas"))
    (place / "metadata").write_text(json.dumps({"id": f"00000000-0000-0000-0000-{len(table):012}"}))
    if os.path.exists(place / ".metadata.crc"):
        os.remove(place / ".metadata.crc")


@pytest.mark.long
def test_it_begins_before_a_column_was_renamed_and_is_within_the_files_of_one_version(lake: Any) -> None:
    name = lake.table("p", "id BIGINT, v INT, w INT", MAPPED)
    lake.sql(f"INSERT INTO {name} SELECT id, int(id), 1 FROM range(0, 4, 1, 4)")
    for table in ("begins", "within"):
        lake.table(table, "id BIGINT, v BIGINT")
    within = tracked(lake, "within", f"SELECT id, v FROM STREAM {name} WITH ('maxFilesPerTrigger'='1')")
    lake.start("within", within, trigger="2 seconds")
    lake.until(lambda: lake.batch("within") is not None)
    lake.queries.stop(lake.query("within"))
    lake.sql(f"ALTER TABLE {name} RENAME COLUMN w TO x")
    lake.sql(f"INSERT INTO {name} VALUES (10, 10, 1)")
    begins = tracked(lake, "begins", f"SELECT id, v FROM STREAM {name} WITH ('startingVersion'='1')")
    start = LogStart(TableName("p"), AT_VERSION, "1")
    assert lake.files.why_not_from(lake.place("p"), "delta", start, takes_changes=False)
    assert not lake.files.why_not_from(lake.place("p"), "delta", start, takes_changes=False, tracked=True)
    for table, select in (("begins", begins), ("within", within)):
        found = [ends(lake, table, select) for _ in range(4)]
        assert found[-1] == GOES and set(found) == {KEPT, GOES}, table
        assert rows(lake, table) == [*((n, n) for n in range(4)), (10, 10)], table


@pytest.mark.long
def test_a_star_takes_null_for_a_column_that_is_dropped(lake: Any) -> None:
    name = lake.table("p", "id BIGINT, v BIGINT, w BIGINT", MAPPED)
    lake.table("c", "id BIGINT, v BIGINT, w BIGINT")
    select = tracked(lake, "c", f"SELECT * FROM STREAM {name}")
    lake.sql(f"INSERT INTO {name} VALUES (1, 1, 1)")
    assert ends(lake, "c", select) == GOES
    lake.sql(f"ALTER TABLE {name} DROP COLUMN v")
    lake.sql(f"INSERT INTO {name} VALUES (2, 2)")
    assert [ends(lake, "c", select) for _ in range(2)] == [KEPT, GOES]
    assert rows(lake, "c") == [(1, 1), (2, None)], "which is why it is a Problem"


@pytest.mark.long
def test_a_with_query_that_is_read_several_times_is_one_stream(lake: Any) -> None:
    name = lake.table("p", "id BIGINT, v INT, w INT", MAPPED)
    lake.sql(f"INSERT INTO {name} VALUES (1, 1, 1)")
    within = f"WITH a AS (SELECT id, v FROM STREAM {name}) SELECT"
    texts = {
        "union": f"{within} id, v FROM a UNION ALL SELECT id + 10 AS id, v FROM a",
        "join": f"{within} x.id, y.v FROM a AS x JOIN a AS y ON x.id = y.id",
    }
    selects = {}
    for table, text in texts.items():
        lake.table(table, "id BIGINT, v BIGINT")
        selects[table] = tracked(lake, table, text)
        assert ends(lake, table, selects[table]) == GOES
        offsets = Path(lake.checkpoint(table), "offsets", "0").read_text()
        assert offsets.count("reservoirId") == 1, table
    lake.sql(f"ALTER TABLE {name} RENAME COLUMN w TO x")
    lake.sql(f"INSERT INTO {name} VALUES (2, 2, 2)")
    for table, select in selects.items():
        assert [ends(lake, table, select) for _ in range(2)] == [KEPT, GOES], table
    assert rows(lake, "union") == [(1, 1), (2, 2), (11, 1), (12, 2)] and rows(lake, "join") == [(1, 1), (2, 2)]


@pytest.mark.long
def test_a_reader_of_changes_survives_every_change_of_columns_and_reads_each_change_once(lake: Any) -> None:
    recorded = MAPPED.replace("'name',", "'name', 'delta.enableChangeDataFeed'='true',")
    name = lake.table("p", "id BIGINT, v INT, w INT", recorded)
    for table in ("c", "plain"):
        lake.table(table, "id BIGINT, v BIGINT, change STRING")
    text = f"SELECT id, v, _change_type AS change FROM STREAM {name} WITH ('readChangeFeed'='true')"
    select = tracked(lake, "c", text)
    lake.sql(f"INSERT INTO {name} VALUES (1, 1, 1)")
    assert ends(lake, "c", select) == ends(lake, "plain", text) == GOES
    lake.sql(f"UPDATE {name} SET v = 2")
    for alter, then in (
        ("RENAME COLUMN w TO x", f"INSERT INTO {name} VALUES (2, 2, 2)"),
        ("ADD COLUMN z INT", f"DELETE FROM {name} WHERE id = 1"),
        ("ALTER COLUMN v TYPE BIGINT", f"INSERT INTO {name} VALUES (3, 3, 3, 3)"),
        ("DROP COLUMN x", f"UPDATE {name} SET v = 4 WHERE id = 3"),
    ):
        lake.sql(f"ALTER TABLE {name} {alter}")
        lake.sql(then)
        assert [ends(lake, "c", select) for _ in range(2)] == [KEPT, GOES], alter
    assert lake.sql(f"SELECT id, v, change FROM {lake.name('c')} ORDER BY id, v, change") == [
        (1, 1, "insert"), (1, 1, "update_preimage"), (1, 2, "delete"), (1, 2, "update_postimage"),
        (2, 2, "insert"),
        (3, 3, "insert"), (3, 3, "update_preimage"), (3, 4, "update_postimage"),
    ]  # fmt: skip
    assert ends(lake, "plain", text) == "DELTA_STREAMING_INCOMPATIBLE_SCHEMA_CHANGE_USE_SCHEMA_LOG"
