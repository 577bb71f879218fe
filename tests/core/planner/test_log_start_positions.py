"""A version that begins at a position in its parent's log: which rows are kept, read again and left out."""

from dataclasses import replace

import pytest
from domain_builders import actions

from core.model.names import TableName as T
from core.observed.table_statistics import LogHistory, TableStatistics
from core.plan.model import Plan, PlanNode, Retention, RetentionKind
from core.plan.request import PlanRequest, StrategyChoice, parse_choice, parse_start
from core.planner.planner import make_plan
from tests.core.planner.test_allowed_strategies import on_delta, running
from tests.support.domain_builders import evidence_of

EDITED = {"b": "SELECT id, kind FROM STREAM a WHERE id > 7"}
DAY = 1_767_225_600.0
"""2026-01-01T00:00Z, when version 0 was committed; the others follow a minute apart."""
LOG = LogHistory(10, DAY + 600, tuple((n, DAY + 60 * n, n) for n in range(20, 31)))


def begun(at: str, log: LogHistory | None = LOG, *tables: str, **request: object) -> Plan:
    declared = on_delta(*(tables or ("a", "b")), selects=EDITED)
    world = running(on_delta(*(tables or ("a", "b"))))
    seen = TableStatistics(rows=1_000, bytes=9_000, log=log.as_text() if log else "")
    world[T("a")] = replace(world[T("a")], statistics=seen)
    asked = PlanRequest(tables=(T("b"),), choices=(StrategyChoice(T("b"), "partial", at),)) if at else None
    return make_plan(declared, "dev", world, asked or PlanRequest(tables=(T("b"),), **request))  # type: ignore[arg-type]


def of_b(found: Plan) -> PlanNode:
    assert not found.refusals, [refusal.summary for refusal in found.refusals]
    return next(node for node in found.nodes if node.table == "b")


def why(found: Plan) -> str:
    (refusal,) = [each.summary for each in found.refusals if each.table == "b"]
    return refusal.removeprefix("partial cannot be used for b: ")


def test_starting_at_a_log_version_gives_the_rows_read_again_and_left_out() -> None:
    found = begun("25")
    node = of_b(found)
    assert actions(found)["b"] == "rebuild" and node.begins_where == ("a WITH ('startingVersion'='25')",)
    assert evidence_of(node)[-1] == "starts with version 25 of a: earlier rows are not replayed"
    assert (node.replay_rows, node.retention) == (sum(range(25, 31)), Retention(RetentionKind.OK))
    assert node.loses == ("rows from before its start position",)


def test_row_counts_that_the_log_no_longer_holds_are_not_guessed() -> None:
    assert of_b(begun("12")).replay_rows is None and of_b(begun("12")).retention == Retention(RetentionKind.OK)
    assert (of_b(begun("12", None)).replay_rows, of_b(begun("12", None)).retention) == (
        None,
        Retention(RetentionKind.UNKNOWN),
    )


def test_missing_versions_of_a_log_are_reported_before_anything_begins() -> None:
    assert why(begun("3")) == "versions 3 to 9 of a are missing: its log begins with version 10"
    assert why(begun("9")) == "version 9 of a is missing: its log begins with version 10"
    assert why(begun("31")) == "the newest version of a is 30; seeded@now starts with rows that arrive from now on"
    early = why(begun("committed:2026-01-01T00:05:00Z"))
    assert early == ("earlier commits to a are missing: its log begins with version 10 of 2026-01-01 00:10:00 UTC")
    late = why(begun("committed:2026-01-01T00:30:01Z"))
    assert late == (
        "nothing was committed to a since 2026-01-01 00:30:00 UTC; seeded@now starts with rows that arrive from now on"
    )


def test_a_version_begins_with_commits_from_a_time_on() -> None:
    node = of_b(begun("committed:2026-01-01T00:29:00Z"))
    assert node.begins_where == ("a WITH ('startingTimestamp'='2026-01-01T00:29:00Z')",)
    assert node.replay_rows == 29 + 30
    assert evidence_of(node)[-1] == (
        "starts with commits to a from 2026-01-01T00:29:00Z on: earlier rows are not replayed"
    )


def test_from_asks_for_the_same() -> None:
    asked = begun("", LOG, rebuild=True, start="25")
    assert of_b(asked).begins_where == ("a WITH ('startingVersion'='25')",) and of_b(asked).strategy == "partial"


def test_files_have_no_versions() -> None:
    assert why(begun("25", LOG, "b")) == "a has no versions to start at: its format is parquet"


def test_a_rebuilt_upstream_table_has_another_log() -> None:
    declared = on_delta("a", "b")
    request = PlanRequest(tables=(T("a"), T("b")), rebuild=True, choices=(StrategyChoice(T("b"), "partial", "25"),))
    found = make_plan(declared, "dev", running(declared), request)
    assert why(found) == "versions and commit times of a are meaningless in a new version of it"


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("b=partial@12", "12"),
        ("b=partial@committed:2026-01-02T03:04+01:00", "committed:2026-01-02T02:04:00Z"),
        ("b=partial@Committed: 2026-01-02T03:04", "committed:2026-01-02T03:04:00Z"),
    ],
)
def test_a_log_position_is_parsed(text: str, at: str) -> None:
    assert parse_choice(text).at == at
    assert parse_start(text.partition("@")[2]) == at
