"""Releases as they are listed: what a run swapped in, what it replaced, and the command that takes it back."""

from typing import Any

from ledger_rows import deployment_row

from tui.presentation.reports.releases import release_as_json, release_lines, releases_of

NOW = 1_800_000_000.0


def versions(table: str, **before: Any) -> tuple[Any, ...]:
    known: dict[str, Any] = {"active": False, "version": 1, "wanted": "stopped", "state": "stopped", **before}
    serves = deployment_row(table, version=2, served_by="9f2c-1", served_at=NOW - 60, served_before=1)
    return serves, deployment_row(table, **known)


def test_a_release_names_what_it_replaced_and_its_command() -> None:
    first = deployment_row("first", served_by="9f2c-1", served_at=NOW)
    found = releases_of((*versions("b"), *versions("aa"), first))
    head, *rows = release_lines(found, NOW)
    assert head.startswith("9f2c-1  ") and head.endswith("  2 tables  headgate rollback 9f2c-1")
    assert rows == ["  b   v1 → v2  v1 is stopped", "  aa  v1 → v2  v1 is stopped"]


def test_what_still_runs_goes_back_in_seconds() -> None:
    running: dict[str, Any] = {"wanted": "running", "state": "running", "stops_at": NOW + 600}
    (head, _) = release_lines(releases_of(versions("a", **running)), NOW)
    assert "headgate rollback 9f2c-1, in seconds until " in head
    (head, *_) = release_lines(releases_of((*versions("a", **running), *versions("b"))), NOW)
    assert "seconds" not in head


def test_what_cannot_go_back_is_named() -> None:
    gone = {"drop_after": NOW, "trash": "/t", "state": "absent"}
    (release,) = releases_of((*versions("a", **gone), *versions("b", checkpoint_ok=False)))
    head, *rows = release_lines((release,), NOW)
    assert head.endswith("no rollback: a, b cannot go back") and release_as_json(release)["rollback"] is None
    assert rows == ["  a  v1 → v2  v1 is deleted", "  b  v1 → v2  v1 is stopped, its checkpoint is lost"]


def test_what_was_rolled_back_is_a_release_of_its_own_and_the_newest_is_first() -> None:
    later = deployment_row("c", version=1, served_by="back", served_at=NOW, served_before=2)
    found = releases_of((*versions("a"), later, deployment_row("c", version=2, active=False)))
    assert [(release.run, release.tables[0].before) for release in found] == [("back", 2), ("9f2c-1", 1)]
