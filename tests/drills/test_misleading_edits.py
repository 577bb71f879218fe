"""Deceptive edits, each of which loses, doubles, empties, cuts or shifts rows; a comparison on real Spark must notice.

Correct edits are tried too, and must not be blocked.
"""

from pathlib import Path
from typing import Any

import pytest
from compared_edits import Edit, EditedOnSpark

from pipelines.spark_connect.session import Session

pytestmark = [pytest.mark.spark, pytest.mark.drill, pytest.mark.long]

FLAT = "SELECT id, kind, amount FROM STREAM landed WHERE id >= 0"
FLAT_COLUMNS = "id BIGINT, kind STRING, amount DECIMAL(12,2)"
JOINED = "SELECT l.id, l.kind, r.rate FROM STREAM landed AS l LEFT JOIN rates AS r ON l.kind = r.kind"
JOINED_COLUMNS = "id BIGINT, kind STRING, rate INT"
BY_BOTH = (
    "SELECT kind, window.start AS since, count(*) AS n, sum(amount) AS total, max(price) AS most FROM STREAM landed "
    "WATERMARK ts DELAY OF INTERVAL 1 MINUTE GROUP BY kind, window(ts, '10 minutes')"
)
BOTH_COLUMNS = "kind STRING, since TIMESTAMP, n BIGINT, total DECIMAL(22,2), most DOUBLE"
BY_WINDOW = BY_BOTH.replace("SELECT kind, ", "SELECT ").replace("GROUP BY kind, ", "GROUP BY ")
WINDOW_COLUMNS = BOTH_COLUMNS.replace("kind STRING, ", "")
ORDERED = (
    "SELECT window.start AS since, collect_list(note) AS notes, first(note) AS one, max_by(note, kind) AS top, "
    "count(*) AS n, sum(price) AS total FROM STREAM landed WATERMARK ts DELAY OF INTERVAL 1 MINUTE "
    "GROUP BY window(ts, '10 minutes')"
)
ORDERED_COLUMNS = "since TIMESTAMP, notes ARRAY<STRING>, one STRING, top STRING, n BIGINT, total DOUBLE"
NOTES = "SELECT id, note, kind FROM STREAM landed"
NOTES_COLUMNS = "id BIGINT, note STRING, kind STRING"

ODD = "id % 2 = 1"
TIMED = "SELECT id, kind, ts FROM STREAM landed WATERMARK ts DELAY OF INTERVAL 1 MINUTE WHERE id >= 0"
TIMED_COLUMNS = "id BIGINT, kind STRING, ts TIMESTAMP"
LIT = "SELECT id, note, kind, amount FROM STREAM landed WHERE amount > 10"
WITHOUT_KEY = "SELECT kind, amount, ts FROM STREAM landed"

WRONG = [
    Edit("rows are lost beside a filter", FLAT, f"{FLAT} AND id > 10", FLAT_COLUMNS, reads="id <> 200"),
    Edit("a filter empties the table", FLAT, f"{FLAT} AND status = 'OK'", FLAT_COLUMNS),
    Edit("an inner join, and rows with a match are lost", JOINED, JOINED.replace("LEFT JOIN", "JOIN"), JOINED_COLUMNS,
         reads="id <> 3"),
    Edit("a join doubles", JOINED, JOINED.replace("rates", "twice"), JOINED_COLUMNS),
    Edit("a join doubles under a new column", "SELECT id, kind FROM STREAM landed",
         "SELECT l.id, l.kind, t.zone FROM STREAM landed AS l LEFT JOIN twice AS t ON l.kind = t.kind",
         "id BIGINT, kind STRING", "id BIGINT, kind STRING, zone STRING"),
    Edit("a cast makes NULLs", FLAT, FLAT.replace("amount FROM", "try_cast(note AS DECIMAL(12,2)) AS amount FROM"),
         FLAT_COLUMNS),
    Edit("DISTINCT, and half is lost", TIMED, TIMED.replace("SELECT", "SELECT DISTINCT"), TIMED_COLUMNS, reads=ODD),
    Edit("no DISTINCT any more, and half is lost", TIMED.replace("SELECT", "SELECT DISTINCT"), TIMED, TIMED_COLUMNS,
         reads=ODD),
    Edit("a key of the group goes, and half is lost", BY_BOTH, BY_WINDOW, BOTH_COLUMNS, WINDOW_COLUMNS, reads=ODD),
    Edit("a key of the group comes, and NULL keys are lost", BY_WINDOW, BY_BOTH, WINDOW_COLUMNS, BOTH_COLUMNS,
         reads="kind IS NOT NULL"),
    Edit("a key of the group goes, and one late row is lost", BY_BOTH, BY_WINDOW, BOTH_COLUMNS, WINDOW_COLUMNS,
         reads="NOT (id = 17 AND amount = 18.19)"),
    Edit("a lateral view doubles", NOTES, NOTES.replace("landed", "landed LATERAL VIEW explode(array(1, 2)) x AS y"),
         NOTES_COLUMNS),
    Edit("a lateral view of what is never empty, and half is lost", NOTES, NOTES.replace("kind FROM", "kind, y FROM")
         .replace("landed", "landed LATERAL VIEW OUTER explode(tags) x AS y"), NOTES_COLUMNS,
         f"{NOTES_COLUMNS}, y STRING", reads=ODD),
    Edit("a branch of a union doubles", LIT, f"{LIT} UNION ALL {LIT}", "id BIGINT, note STRING, kind STRING, "
         "amount DECIMAL(12,2)"),
    Edit("a branch of a union comes, and others are lost", NOTES, f"{NOTES} UNION ALL SELECT -id AS id, note, kind "
         "FROM STREAM landed", NOTES_COLUMNS, reads=ODD),
    Edit("the structure changes, and most is lost", LIT, f"SELECT x.* FROM ({LIT} UNION ALL {LIT} AND id < 0) AS x "
         "WHERE id % 3 = 0", "id BIGINT, note STRING, kind STRING, amount DECIMAL(12,2)"),
    Edit("floats are added up of less", ORDERED, ORDERED.replace("count(*)", "count(1)"), ORDERED_COLUMNS,
         reads="id <> 9"),
    Edit("lists lack a value", ORDERED, ORDERED.replace("count(*)", "count(1)"), ORDERED_COLUMNS, reads="id <> 300"),
]  # fmt: skip
TOLD = [
    Edit("a filter loses NULLs besides", FLAT, f"{FLAT} AND kind <> 'a'", FLAT_COLUMNS, told="is NULL there"),
    Edit("a filter that no column shows", FLAT, f"{FLAT} AND status = 'ok'", FLAT_COLUMNS, told="may be explained"),
    Edit("an inner join loses what has no match", JOINED, JOINED.replace("LEFT JOIN", "JOIN"), JOINED_COLUMNS,
         told="which drops rows without a match"),
    Edit("decimals are cut", FLAT, FLAT.replace("amount FROM", "CAST(CAST(amount AS INT) AS DECIMAL(12,2)) AS amount "
         "FROM"), FLAT_COLUMNS, told="sums of amount"),
    Edit("times are shifted by an hour", "SELECT id, ts FROM STREAM landed", "SELECT id, ts + INTERVAL 1 HOUR AS ts "
         "FROM STREAM landed", "id BIGINT, ts TIMESTAMP", told="ts: least"),
    Edit("a key of the group goes, and windows are shifted by a zone", BY_BOTH, BY_WINDOW.replace("window(ts",
         "window(from_utc_timestamp(ts, 'Europe/Berlin')"), BOTH_COLUMNS, WINDOW_COLUMNS,
         told="not compared: since"),
    Edit("a lateral view loses rows without values", NOTES, NOTES.replace("landed", "landed LATERAL VIEW explode(tags) "
         "x AS y").replace("kind FROM", "kind, y FROM"), NOTES_COLUMNS, f"{NOTES_COLUMNS}, y STRING",
         told="may be explained"),
]  # fmt: skip
RIGHT = [
    Edit("a filter that a column shows", FLAT, f"{FLAT} AND id > 100", FLAT_COLUMNS),
    Edit("a part of WITH without a change", FLAT,
         "WITH x AS (SELECT * FROM STREAM landed WHERE id >= 0) SELECT id, kind, amount FROM x", FLAT_COLUMNS),
    Edit("a new column by a left join", "SELECT id, kind FROM STREAM landed",
         "SELECT l.id, l.kind, r.rate FROM STREAM landed AS l LEFT JOIN rates AS r ON l.kind = r.kind",
         "id BIGINT, kind STRING", JOINED_COLUMNS),
    Edit("sums of floats, lists and first values in another order", ORDERED, ORDERED.replace("count(*)", "count(1)"),
         ORDERED_COLUMNS),
    Edit("a key of the group goes", BY_BOTH, BY_WINDOW, BOTH_COLUMNS, WINDOW_COLUMNS),
    Edit("a key of the group comes", BY_WINDOW, BY_BOTH, WINDOW_COLUMNS, BOTH_COLUMNS),
    Edit("windows of another size", BY_WINDOW, BY_WINDOW.replace("10 minutes", "5 minutes"), WINDOW_COLUMNS),
    Edit("DISTINCT", TIMED, TIMED.replace("SELECT", "SELECT DISTINCT"), TIMED_COLUMNS),
    Edit("no DISTINCT any more", TIMED.replace("SELECT", "SELECT DISTINCT"), TIMED, TIMED_COLUMNS),
    Edit("strings in upper case", FLAT, FLAT.replace("kind, amount", "upper(kind) AS kind, amount"), FLAT_COLUMNS),
    Edit("a wider decimal", FLAT, FLAT, FLAT_COLUMNS, FLAT_COLUMNS.replace("12,2", "20,4")),
    Edit("an inner join where everything matches", "SELECT id, kind FROM STREAM landed WHERE kind = 'a'",
         "SELECT l.id, l.kind FROM STREAM landed AS l JOIN rates AS r ON l.kind = r.kind WHERE l.kind = 'a'",
         "id BIGINT, kind STRING"),
    Edit("a lateral view of what is there", NOTES, NOTES.replace("id, note, kind", "id, note, kind, y")
         .replace("landed", "landed LATERAL VIEW explode(array('p', 'q')) x AS y"), NOTES_COLUMNS,
         f"{NOTES_COLUMNS}, y STRING"),
    Edit("grouping begins", WITHOUT_KEY, "SELECT kind, sum(amount) AS amount, window.start AS ts FROM STREAM landed "
         "WATERMARK ts DELAY OF INTERVAL 1 MINUTE GROUP BY kind, window(ts, '10 minutes')",
         "kind STRING, amount DECIMAL(22,2), ts TIMESTAMP"),
    Edit("a branch of a union comes", NOTES, f"{NOTES} UNION ALL SELECT -id - 1 AS id, note, kind FROM STREAM landed",
         NOTES_COLUMNS),
]  # fmt: skip


@pytest.fixture(scope="module")
def edited(session: Session, tmp_path_factory: pytest.TempPathFactory) -> EditedOnSpark:
    folder: Path = tmp_path_factory.mktemp("edits")
    return EditedOnSpark(session, folder)


@pytest.mark.parametrize("edit", WRONG, ids=lambda edit: edit.name)
def test_a_wrong_edit_is_blocked(edit: Edit, edited: EditedOnSpark, capsys: Any) -> None:
    found = edited.judge(edit)
    with capsys.disabled():
        print(f"\n{edit.name} | {'blocked' if found.blocked else 'passes'} | {found.seconds:.1f} s | {found.words}")
    assert found.blocked, found.words


@pytest.mark.parametrize("edit", TOLD, ids=lambda edit: edit.name)
def test_rows_that_an_edit_removes_are_reported_and_pass(edit: Edit, edited: EditedOnSpark, capsys: Any) -> None:
    found = edited.judge(edit)
    with capsys.disabled():
        print(f"\n{edit.name} | {'blocked' if found.blocked else 'passes'} | {found.seconds:.1f} s | {found.words}")
    assert not found.blocked and edit.told in found.words, found.words


@pytest.mark.parametrize("edit", RIGHT, ids=lambda edit: edit.name)
def test_a_correct_edit_is_not_blocked(edit: Edit, edited: EditedOnSpark, capsys: Any) -> None:
    found = edited.judge(edit)
    with capsys.disabled():
        print(f"\n{edit.name} | {'blocked' if found.blocked else 'passes'} | {found.seconds:.1f} s | {found.words}")
    assert not found.blocked, found.words
