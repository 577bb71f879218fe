"""Columns of external tables that statements compare, also behind other statements."""

import small_project

from core.lineage.compared_columns import ComparedColumns, compared_columns
from core.model.names import TableName as T

FOLDER = "pipelines/sources/p/{0}/sql-scripts/ddl.{0}.sql"
COLUMNS = {
    "side": "id BIGINT, code STRING, since TIMESTAMP, until TIMESTAMP",
    "landed": "id BIGINT, kind STRING, at TIMESTAMP",
    "spans": "begin_at TIMESTAMP, end_at TIMESTAMP",
}
OWN = "(id BIGINT, kind STRING, at TIMESTAMP)"


def compared(**selects: str) -> ComparedColumns:
    texts = {
        path: text.replace(small_project.COLUMNS, OWN) for path, text in small_project.texts(**selects).items()
    } | {
        FOLDER.format(name): f"CREATE TABLE {name} ({columns}) USING json LOCATION '{name}';"
        for name, columns in COLUMNS.items()
    }
    return compared_columns(small_project.project(texts), map(T, ("landed", "side", "spans", "a", "b", "c")))


def shown(found: ComparedColumns) -> dict[str, str]:
    return {f"{one.table}.{one.column}": f"{first.table}.{first.column}" for one, first in found.joined.items()}


A = "SELECT id, kind, at FROM STREAM landed"
C = "SELECT id, kind, at FROM STREAM a"


def test_a_join_behind_other_statements_is_one_of_their_sources() -> None:
    b = "SELECT a.id, s.code AS kind, a.at FROM STREAM a JOIN side s ON s.code = a.kind"
    assert shown(compared(a=A, b=b, c=C)) == {"landed.kind": "landed.kind", "side.code": "landed.kind"}
    computed = "SELECT id, upper(kind) AS kind, at FROM STREAM landed"
    assert shown(compared(a=computed, b=b, c=C)) == {}


def test_columns_that_are_equated_with_the_same_one_are_in_one_group() -> None:
    b = "SELECT a.id, s.code AS kind, a.at FROM STREAM a JOIN side s ON s.id = a.id JOIN side t ON t.code = s.code"
    assert shown(compared(a=A, b=b, c=C)) == {"landed.id": "landed.id", "side.id": "landed.id"}


def test_the_end_of_an_interval_and_what_is_within_are_known() -> None:
    b = "SELECT s.id, s.code AS kind, s.since AS at FROM STREAM spans p JOIN side s ON {}"
    found = compared(a=A, b=b.format("s.since > p.begin_at AND s.since <= p.end_at"), c=C)
    assert [each.column for each in found.ends] == ["end_at"] and [each.column for each in found.within] == ["since"]
    open_ended = compared(a=A, b=b.format("s.since > p.begin_at AND s.until > p.end_at"), c=C)
    assert not open_ended.ends and not open_ended.within
