"""The results of a comparison's queries on real Spark, judged as a release is."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from core.ports.spark import FileView
from core.sql.comparison.row_effects import RowEffect, RowSide
from core.validation.comparison_queries import ComparedRows, differences_query, duplicates_query, profile_query
from core.validation.expected_differences import ExpectedDifferences
from core.validation.verdicts import CheckResult, differences_result, duplicates_result, profile_results
from pipelines.spark_connect.catalog import SparkTables
from pipelines.spark_connect.session import Session

pytestmark = pytest.mark.spark

COLUMNS = (("id", "bigint"), ("kind", "string"), ("price", "double"), ("tags", "map<string,int>"))
TYPES = pyarrow.schema(
    [("id", pyarrow.int64()), ("kind", pyarrow.string()), ("price", pyarrow.float64()),
     ("tags", pyarrow.map_(pyarrow.string(), pyarrow.int32()))]
)  # fmt: skip
Values = tuple[Any, ...]


def rows(*ids: int, **values: Any) -> list[Values]:
    return [(n, values.get("kind", f"k{n}"), values.get("price", n / 7), [("a", n)]) for n in ids]


class Compared:
    """Two tables of files."""

    def __init__(self, session: Session, folder: Path) -> None:
        self.tables = SparkTables(session)
        self.folder = folder

    def judge(
        self, old: Sequence[Values], new: Sequence[Values], expected: ExpectedDifferences, *, key: tuple[str, ...] = ()
    ) -> dict[str, CheckResult]:
        equal = frozenset(name for name, _ in COLUMNS) - expected.changed.keys()
        views = tuple(self._view(name, found) for name, found in (("cmp_old", old), ("cmp_new", new)))
        compared = ComparedRows("cmp_old", "cmp_new", COLUMNS, equal, key)
        differences = differences_result(
            compared, self._run(differences_query(compared, expected.rows), views), expected.rows, expected
        )
        found = [
            differences,
            duplicates_result(compared, self._run(duplicates_query(compared), views), expected, bool(key)),
            *profile_results(compared, self._run(profile_query(compared), views), expected, differences),
        ]
        return {result.check: result for result in found}

    def _view(self, name: str, found: Sequence[Values]) -> FileView:
        folder = self.folder / f"{name} {len(list(self.folder.iterdir()))}"
        folder.mkdir()
        file = folder / "part-0 % [1]*.parquet"
        pyarrow.parquet.write_table(
            pyarrow.Table.from_pylist([dict(zip(TYPES.names, row, strict=True)) for row in found], TYPES), file
        )
        return FileView(name, str(folder), (str(file),), COLUMNS)

    def _run(self, sql: str, views: tuple[FileView, ...]) -> list[dict[str, Any]]:
        columns, found = self.tables.read_files(sql, 1000, views)
        return [dict(zip(columns, row, strict=True)) for row in found]


@pytest.fixture
def compared(session: Session, tmp_path: Path) -> Compared:
    return Compared(session, tmp_path)


def verdicts(found: dict[str, CheckResult]) -> dict[str, str]:
    return {name: str(result.verdict) for name, result in found.items() if result.verdict != "ok"}


def test_equal_rows_in_any_order_are_equal_nulls_maps_and_sums_of_floats_too(compared: Compared) -> None:
    old = [*rows(1, 2, 3), (None, None, None, None), (4, "d", 0.1 + 0.2, [])]
    new = [(4, "d", 0.3, []), (None, None, None, None), *reversed(rows(1, 2, 3))]
    found = compared.judge(old, new, ExpectedDifferences())
    assert verdicts(found) == {}
    assert found["differences"].summary == "no row differs"
    assert verdicts(compared.judge([], [], ExpectedDifferences())) == {}


def test_doubled_rows_are_unexpected_with_and_without_a_key(compared: Compared) -> None:
    for key in ((), ("id",)):
        found = compared.judge(rows(1, 2, 3), rows(1, 2, 2, 3), ExpectedDifferences(), key=key)
        assert verdicts(found) == dict.fromkeys(("differences", "duplicates", "rows", "sums"), "unexpected")
        assert found["differences"].summary == "1 row only in the new version, unexpected"
        assert found["duplicates"].counts == {"old": 0, "new": 1}


@pytest.mark.drill
def test_with_a_key_a_changed_row_is_one_and_not_two(compared: Compared) -> None:
    found = compared.judge(rows(1, 2), [*rows(1), *rows(2, kind="other")], ExpectedDifferences(), key=("id",))
    assert found["differences"].summary == "1 row with other values, unexpected"
    (example,) = found["differences"].examples
    assert example == {
        "why": "",
        "old": {"id": 2, "kind": "k2", "price": "2.857142857e-01", "tags": {"a": 2}},
        "new": {"id": 2, "kind": "other", "price": "2.857142857e-01", "tags": {"a": 2}},
    }


def test_rows_removed_by_a_filter_are_expected_and_other_missing_rows_are_not(compared: Compared) -> None:
    filtered = ExpectedDifferences(
        rows=(RowEffect(RowSide.OLD, "filter added: id > 2", "NOT coalesce((`id` > 2), false)"),)
    )
    found = compared.judge(rows(1, 2, 3, 4), rows(3, 4), filtered)
    assert set(verdicts(found).values()) == {"expected"}
    assert found["differences"].summary == "2 rows only in the old version: filter added: id > 2"
    found = compared.judge(rows(1, 2, 3, 4), rows(4), filtered)
    assert found["differences"].verdict == found["rows"].verdict == "unexpected"
    assert found["differences"].counts == {"expected": 2, "unexpected": 1, "only_new": 0}
    assert [one["old"]["id"] for one in found["differences"].examples if not one["why"]] == [3]  # type: ignore[index]


@pytest.mark.drill
def test_a_filter_on_a_hidden_column_may_explain_missing_rows_but_not_new_ones(
    compared: Compared,
) -> None:
    hidden = ExpectedDifferences(rows=(RowEffect(RowSide.OLD, "filter added: status = 'x'"),))
    found = compared.judge(rows(1, 2, 3), rows(3), hidden)
    expected = "2 rows only in the old version: filter added: status = 'x' (may be explained)"
    assert (found["differences"].verdict, found["differences"].summary) == ("expected", expected)
    assert compared.judge(rows(1, 2), rows(2, 3), hidden)["differences"].verdict == "unexpected"


@pytest.mark.drill
def test_an_edited_column_is_not_compared_and_its_new_nulls_are_unexpected(compared: Compared) -> None:
    edited = ExpectedDifferences(changed={"price": "column price: a → b"})
    found = compared.judge(rows(1, 2), rows(1, 2, price=9.5), edited)
    assert verdicts(found) == {"sums": "expected", "profile": "expected"}
    found = compared.judge(rows(1, 2), rows(1, 2, price=None), edited)
    assert (found["nulls"].verdict, found["nulls"].summary) == ("unexpected", "NULLs of price: 0 → 2")
    meant = ExpectedDifferences(changed=edited.changed, nulls=frozenset({"price"}))
    assert compared.judge(rows(1, 2), rows(1, 2, price=None), meant)["nulls"].verdict == "expected"
