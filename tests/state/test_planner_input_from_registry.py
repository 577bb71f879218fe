"""What the planner learns about versions that have served: the former version, and the version in the trash."""

from typing import Any

import pytest
from ledger_rows import deployment_row

from core.model.names import TableName
from core.observed.planner_input import ObservedDeployment
from state.planner_input_from_registry import observe

A = TableName("a")


def seen(*versions: dict[str, Any]) -> ObservedDeployment:
    return observe(deployment_row("a", **{"active": False, "started_at": 1.0, **each}) for each in versions)[A]


def test_the_previous_version_is_the_one_the_pointer_served_whatever_its_number() -> None:
    third: dict[str, Any] = {"version": 3, "served_at": 5.0, "wanted": "stopped", "state": "stopped"}
    second: dict[str, Any] = {"version": 2, "active": True, "served_at": 9.0, "served_by": "back", "served_before": 3}
    found = seen({"version": 1, "served_at": 1.0}, second, third)
    assert found.former and (found.former.version, found.former.running, found.served_by) == (3, False, "back")
    assert found.orphan_versions == (), "a version that was rolled back has served"
    assert seen(second, third | {"served_at": None}).orphan_versions[0].version == 3


@pytest.mark.parametrize(
    ("made", "begins"),
    [
        ({}, ()),
        ({"begins_where": ("raw.ts >= 1",)}, ("raw.ts >= 1",)),
        ({"begins_after": "batch 7 of a@v1"}, ("batch 7 of a@v1",)),
        ({"older_rows": "rows from a@v1"}, ("rows from a@v1",)),
    ],
)
def test_an_orphan_not_built_from_all_rows_says_so_and_is_not_used_as_a_full_one(
    made: dict[str, Any], begins: tuple[str, ...]
) -> None:
    (orphan,) = seen({"version": 1, "active": True}, {"version": 2, "served_at": None, **made}).orphan_versions
    assert orphan.begins_where == begins


def test_nothing_is_rolled_back_without_a_previous_version() -> None:
    second: dict[str, Any] = {"version": 2, "active": True, "served_at": 9.0, "served_before": 1}
    assert seen(second, {"version": 1, "served_at": 1.0, "drop_after": 9.0}).former is None
    assert seen(second | {"served_before": None}, {"version": 1}).former is None


def test_a_replaced_version_that_has_failed_counts_while_it_is_kept_running() -> None:
    serving: dict[str, Any] = {"version": 3, "active": True, "served_at": 9.0, "served_before": 2}
    older: dict[str, Any] = {"version": 1, "served_at": 1.0, "state": "failed"}
    assert [one.version for one in seen(serving, older | {"wanted": "running"}).runs_on] == [1]
    assert not seen(serving, older | {"wanted": "stopped"}).runs_on


def test_the_last_serving_version_of_a_deleted_table_is_in_the_trash_until_purged() -> None:
    gone: dict[str, Any] = {"drop_after": 99.0, "trash": "/trash/a", "wanted": "stopped", "state": "absent"}
    versions = [gone | {"version": n, "served_at": at} for n, at in ((1, 1.0), (2, 30.0), (3, None))]
    found = seen(*versions)
    assert found.in_trash and (found.in_trash.version, found.in_trash.drop_after) == (2, 99.0)
    assert (found.state, found.former) == ("absent", None)
    older = seen(versions[0], versions[1] | {"trash": ""}).in_trash
    assert older and (older.version, older.outlived) == (1, (2,)), "a newer one that is purged does not hide it"


def test_versions_in_the_trash_are_ignored_after_their_deadline() -> None:
    gone = deployment_row("a", served_at=1.0, drop_after=99.0, trash="/trash/a", active=False, state="absent")
    assert observe([gone], now=98.0)[A].in_trash and not observe([gone], now=99.0)[A].in_trash
