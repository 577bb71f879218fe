"""The differences that a release expects in a table: from its own edit, and from edits above it."""

from dataclasses import replace

from core.model.names import TableName as T
from core.sql.comparison.row_effects import RowSide
from core.sql.ddl_reader import read_ddl
from core.sql.metadata_columns import METADATA_COLUMNS, METADATA_NAMES
from core.sql.statement import TableDdl
from core.sql.statement_reader import read_any
from core.validation.expected_differences import (
    ComparedStatement,
    ExpectedDifferences,
    expected_differences,
    with_rows_of_earlier_sql,
)

A_COLUMNS = "id BIGINT, kind STRING, v BIGINT, ts TIMESTAMP"
A = "SELECT id, kind, v, ts FROM STREAM raw"


def ddl(table: str, columns: str) -> TableDdl:
    found, problems = read_ddl(f"CREATE TABLE {table} ({columns}) USING parquet", "")
    assert found is not None, problems
    return found


def statement(table: str, select: str, columns: str) -> ComparedStatement:
    (parsed,), _ = read_any(f"INSERT INTO {table} {select}", "")
    return ComparedStatement(parsed, ddl(table, columns))


DDLS = {
    T("raw"): ddl("raw", "id BIGINT, kind STRING, v BIGINT, ts TIMESTAMP, status STRING"),
    T("a"): ddl("a", A_COLUMNS),
    T("p"): ddl("p", "id BIGINT, name STRING"),
}


def of_a(new: str, columns: str = A_COLUMNS) -> ExpectedDifferences:
    return expected_differences(statement("a", A, A_COLUMNS), statement("a", new, columns), DDLS, {})


def below(select: str, parent: ExpectedDifferences, columns: str) -> ExpectedDifferences:
    """Return the expected differences for an unchanged reader of a."""
    same = statement("b", select, columns)
    return expected_differences(same, same, DDLS, {T("a"): parent})


def told(found: ExpectedDifferences) -> list[tuple[str, str, str]]:
    return [(row.side.value, row.why, row.predicate) for row in found.rows]


FILTERED = of_a(f"{A} WHERE id > 5")
HIDDEN = of_a(f"{A} WHERE status = 'x'")
EDITED = of_a(A.replace("v,", "nullif(v, 0) AS v,"))


def test_unedited_tables_have_no_expected_differences() -> None:
    assert of_a(A).is_none and below("SELECT id FROM STREAM a", of_a(A), "id BIGINT").is_none


def test_columns_are_compared_by_the_tables_of_both() -> None:
    columns = A_COLUMNS.replace("v BIGINT", "v INT, loud STRING").replace("kind STRING, ", "")
    found = of_a("SELECT id, v, upper(kind) AS loud, ts FROM STREAM raw", columns)
    assert (found.added, found.removed) == (("loud",), ("kind",))
    assert dict(found.changed) == {"v": "column v: bigint → int"}


def test_non_deterministic_columns_are_never_compared() -> None:
    assert set(of_a(A.replace("ts FROM", "current_timestamp() AS ts FROM")).changed) == {"ts"}
    same = statement("b", "SELECT id, uuid() AS u FROM STREAM a", "id BIGINT, u STRING")
    assert dict(expected_differences(same, same, DDLS, {}).changed) == {
        "u": "column u: uuid() is another one each time"
    }


def test_metadata_of_an_input_is_expected_to_differ_in_the_columns_of_its_readers() -> None:
    columns = f"{A_COLUMNS}, {', '.join(f'{each.name} {each.type}' for each in METADATA_COLUMNS)}"
    same = replace(statement("a", A, columns), metadata=True)
    found = expected_differences(same, same, DDLS, {})
    assert set(found.changed) == METADATA_NAMES == found.volatile and not found.rows
    ddls = {**DDLS, T("a"): same.ddl}
    reader = statement("b", "SELECT id, concat('q', __query_id) AS made FROM STREAM a", "id BIGINT, made STRING")
    assert set(expected_differences(reader, reader, ddls, {T("a"): found}).changed) == {"made"}


LISTED = (
    "SELECT kind, collect_list(v) AS vs, first(id) AS one, sort_array(collect_set(v)) AS ordered, "
    "collect_list(map('k', v)) AS maps, count(*) AS n FROM STREAM raw GROUP BY kind"
)
LISTED_COLUMNS = (
    "kind STRING, vs ARRAY<BIGINT>, one BIGINT, ordered ARRAY<BIGINT>, maps ARRAY<MAP<STRING,BIGINT>>, n BIGINT"
)


def test_order_dependent_columns_are_compared_sorted_or_not_at_all_here_and_downstream() -> None:
    same = statement("a", LISTED, LISTED_COLUMNS)
    found = expected_differences(same, same, DDLS, {})
    assert found.sorted == {"vs"} and found.volatile == {"one", "maps"} and found.keys == ("kind",)
    assert found.changed["one"] == "column one: first(id) depends on the order of rows"
    ddls = DDLS | {T("a"): ddl("a", LISTED_COLUMNS)}
    reader = statement(
        "b",
        "SELECT kind, vs, vs[0] AS head, one FROM STREAM a",
        "kind STRING, vs ARRAY<BIGINT>, head BIGINT, one BIGINT",
    )
    lower = expected_differences(reader, reader, ddls, {T("a"): found})
    assert lower.sorted == {"vs"} and set(lower.changed) == {"head", "one"}
    assert lower.changed["head"] == "a.vs lists values in any order"


def test_duplicates_upstream_duplicate_downstream_rows_and_change_groups() -> None:
    distinct = of_a(A.replace("SELECT", "SELECT DISTINCT").replace("raw", "raw WATERMARK ts DELAY OF INTERVAL 1 DAY"))
    assert distinct.multiplicity_change == "DISTINCT added" and distinct.withheld == ((RowSide.NEW, "ts"),)
    assert below("SELECT id FROM STREAM a", distinct, "id BIGINT").multiplicity_change == "a: DISTINCT added"
    grouped = below("SELECT kind, count(*) AS n FROM STREAM a GROUP BY kind", distinct, "kind STRING, n BIGINT")
    assert (
        not grouped.multiplicity_change
        and dict(grouped.changed)["n"] == "a: DISTINCT added"
        and not grouped.unpairable_because
    )


def test_totals_exclude_columns_that_differ_for_another_reason() -> None:
    by_two = "SELECT kind, id, sum(v) AS s, count(*) AS n FROM STREAM a GROUP BY kind, id"
    old = statement("b", by_two, "kind STRING, id BIGINT, s BIGINT, n BIGINT")
    new = statement("b", by_two.replace("kind, id, ", "kind, ").replace(", id", ""), "kind STRING, s BIGINT, n BIGINT")
    alone, edited = (expected_differences(old, new, DDLS, {T("a"): above}) for above in (ExpectedDifferences(), EDITED))
    assert alone.totals is not None and edited.totals is not None
    assert [total.words for total in alone.totals.totals] == ["sum(v)", "count(*)"]
    assert [total.words for total in edited.totals.totals] == ["count(*)"]


def test_rows_that_a_filter_above_removes_lack_below_by_the_same_predicate() -> None:
    found = below("SELECT id AS key, upper(kind) AS kind FROM STREAM a", FILTERED, "key BIGINT, kind STRING")
    assert told(found) == [("old", "a: filter added: id > 5", "NOT coalesce((`key` > 5), FALSE)")]
    hidden = below("SELECT upper(kind) AS kind FROM STREAM a", FILTERED, "kind STRING")
    assert told(hidden) == [("old", "a: filter added: id > 5", "")] and not hidden.changed


def test_an_edited_column_above_changes_what_derives_from_it_and_nothing_else() -> None:
    found = below("SELECT id, v + 1 AS more, kind FROM STREAM a", EDITED, "id BIGINT, more BIGINT, kind STRING")
    assert dict(found.changed) == {"more": "a.v: column v: v → nullif(v, 0)"} and found.nulls == {"more"}
    filtering = below("SELECT id FROM STREAM a WHERE v > 1", EDITED, "id BIGINT")
    assert [row[0] for row in told(filtering)] == ["old", "new"] and not filtering.changed
    grouping = below("SELECT v, count(*) AS n FROM STREAM a GROUP BY v", EDITED, "v BIGINT, n BIGINT")
    assert grouping.unpairable_because == "a.v: column v: v → nullif(v, 0)"


def test_missing_rows_change_aggregates_unless_whole_groups_are_missing() -> None:
    grouped = "SELECT kind, count(*) AS n FROM STREAM a GROUP BY kind"
    found = below(grouped, FILTERED, "kind STRING, n BIGINT")
    assert dict(found.changed) == {"n": "a: filter added: id > 5"}
    assert told(found) == [("old", "a: filter added: id > 5", "")] and found.keys == ("kind",)
    whole = below(grouped, of_a(f"{A} WHERE kind = 'x'"), "kind STRING, n BIGINT")
    assert not whole.changed and told(whole)[0][2] != ""


def test_a_joined_side_that_lacks_rows_may_leave_nulls() -> None:
    select = "SELECT p.id, a.kind FROM STREAM p LEFT JOIN STREAM a ON a.id = p.id"
    found = below(select, HIDDEN, "id BIGINT, kind STRING")
    assert set(found.changed) == {"kind"} and found.nulls == {"kind"}
    assert told(found) == [("old", "a: filter added: status = 'x'", "")]
    anti = below("SELECT p.id FROM STREAM p LEFT ANTI JOIN a ON a.id = p.id", HIDDEN, "id BIGINT")
    assert {side for side, *_ in told(anti)} == {"old", "new"} and not anti.changed


def test_rows_that_cannot_be_paired_upstream_cannot_be_paired_downstream() -> None:
    found = below(
        "SELECT id FROM STREAM a", ExpectedDifferences(unpairable_because="GROUP BY changed: x → y"), "id BIGINT"
    )
    assert found.unpairable_because == "a: GROUP BY changed: x → y"


def test_a_different_query_keeps_most_of_its_rows_unless_grouped_there_or_downstream() -> None:
    other = of_a(A.replace("raw", "raw2"))
    assert other.unpairable_because.startswith("source changed") and other.rewritten
    assert below("SELECT id FROM STREAM a", other, "id BIGINT").rewritten
    assert not below("SELECT id, count(*) AS n FROM STREAM a GROUP BY id", other, "id BIGINT, n BIGINT").rewritten
    grouped = of_a("SELECT 1 AS id, kind, sum(v) AS v, max(ts) AS ts FROM STREAM raw GROUP BY kind")
    assert grouped.unpairable_because.startswith("GROUP BY changed") and not grouped.rewritten


def test_duplicates_from_upstream_appear_downstream_unless_grouped() -> None:
    parent = ExpectedDifferences(unpairable_because="GROUP BY changed: x → y", merged_by="GROUP BY changed: x → y")
    assert below("SELECT id FROM STREAM a", parent, "id BIGINT").merged_by == "a: GROUP BY changed: x → y"
    assert below("SELECT id, count(*) AS n FROM STREAM a GROUP BY id", parent, "id BIGINT, n BIGINT").merged_by == ""


def test_non_deterministic_columns_are_so_downstream_too() -> None:
    parent = of_a(A.replace("kind,", "uuid() AS kind,"))
    assert parent.volatile == {"kind"}
    assert below("SELECT id, kind AS k FROM STREAM a", parent, "id BIGINT, k STRING").volatile == {"k"}


def test_another_watermark_may_keep_or_drop_late_rows() -> None:
    grouped = (
        "SELECT window(ts, '5 minutes').start AS w, count(*) AS n FROM STREAM raw WATERMARK ts DELAY OF INTERVAL {} "
        "GROUP BY window(ts, '5 minutes')"
    )
    columns = "w TIMESTAMP, n BIGINT"
    found = expected_differences(
        statement("a", grouped.format("1 MINUTE"), columns),
        statement("a", grouped.format("9 MINUTES"), columns),
        DDLS,
        {},
    )
    assert {row.side for row in found.rows} == set(RowSide)
    assert found.rows[0].why.startswith("watermark: raw.ts 1 minute → raw.ts 9 minute")


def test_another_watermark_does_nothing_to_rows_that_are_made_one_by_one() -> None:
    watched = f"{A} WATERMARK ts DELAY OF INTERVAL 1 MINUTE"
    assert of_a(watched).is_none
    distinct = watched.replace("SELECT", "SELECT DISTINCT")
    later = statement("a", distinct.replace("1 MINUTE", "9 MINUTES"), A_COLUMNS)
    found = expected_differences(statement("a", distinct, A_COLUMNS), later, DDLS, {})
    assert {row.side for row in found.rows} == set(RowSide)


def test_rows_of_an_earlier_text_differ_as_that_text_does() -> None:
    """The filter was added in place together with a column, so earlier rows remain and have no value in the column."""
    earlier = expected_differences(
        statement("a", A, "id BIGINT, kind STRING, v BIGINT, ts TIMESTAMP"),
        statement("a", f"{A.replace('ts FROM', 'ts, v * 2 AS w FROM')} WHERE id > 5", f"{A_COLUMNS}, w BIGINT"),
        DDLS,
        {},
    )
    found = with_rows_of_earlier_sql(ExpectedDifferences(keys=("id", "w")), earlier)
    assert told(found) == [("old", "edited in place before: filter added: id > 5", "NOT coalesce((`id` > 5), false)")]
    assert dict(found.changed) == {"w": "column w was added in place"}
    assert found.nulls == {"w"} and found.keys == () and not found.added
