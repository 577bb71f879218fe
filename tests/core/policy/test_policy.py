"""Policies: what headgate.yml may contain, who has a role, and when nothing is applied."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from core.model.errors import UsageError
from core.model.problems import Problem
from core.policy.freeze_windows import frozen_until, parse_freeze_window
from core.policy.roles_and_rules import ROLES, Policy, differing_rules, policy_as_json, policy_from_json
from core.project_reader.loader import read_project
from core.project_reader.manifest import RULES, declared_policy

MANIFEST = """\
project: p
id: 12345678-1234-1234-1234-123456789012
default_env: dev
environments:
  dev: {data: dev}
  prod:
    protected: true
    policy:
"""

FULL = """\
      plan_expires_h: 2
      max_replay_rows: 100M
      max_replay_h: 6
      disk_factor: 1.5
      max_statements: 40
      max_busy_percent: 80
      max_stopped_percent: 25
      freeze:
        - fri 16:00  -  mon 08:00
        - 2026-12-24 - 2027-01-02
      approve: [rebuild, delete]
      approve_rows: 2_000k
      machine_moves: allow
      hold: true
      roles:
        operate: [alice, "@sre"]
        approve: bob
"""

SQL = "pipelines/facts/p/{0}/sql-scripts/ddl.{0}.sql"


def read(rules: str, **ymls: str) -> tuple[Policy | None, list[Problem]]:
    problems: list[Problem] = []
    texts = {"headgate.yml": MANIFEST + rules}
    for table, yml in ymls.items():
        texts |= {SQL.format(table): "", f"pipelines/facts/p/{table}/{table}.yml": yml}
    return declared_policy(texts, "prod", problems), problems


def test_a_full_policy_is_read() -> None:
    found, problems = read(FULL, b="protect: true\n", a="protect: true\n", c="owner: me\n")
    assert problems == []
    assert found == Policy(
        max_replay_rows=100_000_000,
        max_replay_h=6,
        disk_factor=1.5,
        max_statements=40,
        max_busy_percent=80,
        max_stopped_percent=25,
        freeze=("2026-12-24 - 2027-01-02", "Fri 16:00 - Mon 08:00"),
        approve=("delete", "rebuild"),
        approve_rows=2_000_000,
        roles=(("approve", ("bob",)), ("operate", ("@sre", "alice"))),
        hold=True,
        machine_moves="allow",
        protected=True,
        protected_tables=("a", "b"),  # type: ignore[arg-type]  # Names as they are.
    )
    assert policy_from_json(policy_as_json(found)) == found


@pytest.mark.parametrize(
    ("rules", "line", "summary", "remedy"),
    [
        ("max_replay_row: 5", 9, "max_replay_row is not a known key", "did you mean max_replay_rows?"),
        ("max_replay_rows: 0", 9, "max_replay_rows must be a whole number above 0", "max_replay_rows: 100M"),
        ("max_replay_rows: 5T", 9, "max_replay_rows must be a whole number above 0", "max_replay_rows: 100M"),
        ("max_replay_rows: 1.5M", 9, "max_replay_rows must be a whole number", "max_replay_rows: 100M"),
        ("max_replay_rows: [1]", 9, "max_replay_rows must be one value", "one value"),
        ("max_replay_h: 6h", 9, "max_replay_h must be a number above 0", "max_replay_h: 6"),
        ("disk_factor: 0", 9, "disk_factor must be a number above 0", "disk_factor: 1.3"),
        ("max_statements: many", 9, "max_statements must be a whole number", "max_statements: 40"),
        ("max_busy_percent: 1e9", 9, "max_busy_percent must be a number above 0", "max_busy_percent: 80"),
        ("max_stopped_percent: 101", 9, "max_stopped_percent must be a number above 0, at most 100", "20"),
        ("approve_rows: -1", 9, "approve_rows must be a whole number", "approve_rows: 10M"),
        ("approve: [delete, rebild]", 9, "approve: rebild is not something that can", "did you mean rebuild?"),
        ("approve: [7]", 9, "approve: 7 is not something that can", "one or more of delete, rebuild, swap, all"),
        ("approve: {a: b}", 9, "approve must be a list of values", "approve: [one, two]"),
        ("freeze:\n        - Sat - Sun\n        - Fryday - Mon", 11, "freeze: 'Fryday' is not a day", "days: Mon, Tue"),
        ("freeze: 2026-02-30 - 2026-03-01", 9, "freeze: 2026-02-30 is not a calendar date", "2026-12-24 - 2027-01-02"),
        ("freeze: 2027-01-02 - 2026-12-24", 9, "does not end after it starts", "the earlier point first"),
        ("freeze: [Fri 16:00]", 9, "'Fri 16:00' has a start but no end", "Fri 16:00 - Mon 08:00"),
        ("freeze: [2026-12-24 08:00]", 9, "but no end", "such as Fri 16:00 - Mon 08:00"),
        ("freeze: Fri 16:00 - 2026-12-24", 9, "mixes a day of the week and a date", "write days or dates"),
        ("freeze: Fri 25:00 - Mon", 9, "'Fri 25:00 - Mon' is not a freeze window", "write days or dates"),
        ("freeze: Fri - Sat - Sun", 9, "is not a freeze window", "write days or dates"),
        ("machine_moves: always", 9, "machine_moves must be allow or ask", "machine_moves: allow"),
        ("machine_moves: 1", 9, "machine_moves must be a string", "put it in quotes"),
        ("hold: soon", 9, "hold must be true or false", "write hold: true or hold: false"),
        ("roles: {operator: [a]}", 9, "roles.operator is not a known key", "did you mean operate?"),
        ("roles: {operate: []}", 9, "roles.operate must be a list of logins and @groups",
         "or leave it out to allow everybody"),
        ("roles:\n        approve:\n          - a\n          - b c", 12, "roles.approve: 'b c' is not a login", "@sre"),
        ("roles: [a]", 9, "roles must be a mapping", "indent keys"),
    ],
)  # fmt: skip
def test_an_invalid_rule_is_reported_with_its_position_and_a_remedy(
    rules: str, line: int, summary: str, remedy: str
) -> None:
    _, problems = read(f"      {rules}\n")
    assert problems, "nothing was said"
    assert {problem.where.line for problem in problems if problem.where} == {line}
    assert any(summary in problem.summary and remedy in problem.remedy for problem in problems), problems


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.dates()
    | st.sampled_from(["100M", "1_0k", "0x10", "Fri 16:00 - Mon 08:00", "2026-12-24", "@sre", "delete", "all"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(ROLES) | st.text(max_size=5), inner),
    max_leaves=5,
)  # fmt: skip


@given(st.dictionaries(st.sampled_from(RULES) | st.text(max_size=5), VALUES, max_size=4))
def test_every_text_is_a_policy_or_a_problem_with_its_line(rules: dict[str, Any]) -> None:
    head = yaml.safe_load(MANIFEST)
    head["environments"]["prod"]["policy"] = rules
    problems: list[Problem] = []
    found = declared_policy({"headgate.yml": yaml.safe_dump(head)}, "prod", problems)
    assert all(problem.where and problem.where.line and problem.remedy for problem in problems), problems
    assert found is not None and policy_from_json(json.loads(json.dumps(policy_as_json(found)))) == found
    assert isinstance(frozen_until(found.freeze, at("2026-11-21 12:00")), str | None)


def test_tables_are_protected_as_the_whole_project_says() -> None:
    texts = {
        "headgate.yml": MANIFEST + "      approve: delete\ndefaults: {protect: false}\n",
        SQL.format("a"): "CREATE TABLE a (id BIGINT) USING json LOCATION 'in';",
        "pipelines/facts/p/a/a.yml": "protect: true\n",
    }
    project, problems = read_project(texts)
    assert project is not None, problems
    named = [name for name, table in project.tables.items() if table.settings.protect]
    assert project.environments["prod"].declared_policy(named) == declared_policy(texts, "prod", [])


@pytest.mark.parametrize(
    ("login", "groups", "granted"),
    [("alice", (), True), ("bob", ("sre",), True), ("bob", ("ops",), False), ("sre", (), False), ("@sre", (), False)],
)
def test_a_role_is_a_login_s_or_a_group_s(login: str, groups: tuple[str, ...], granted: bool) -> None:
    policy = Policy(roles=(("operate", ("@sre", "alice")),))
    assert policy.grants("operate", login, frozenset(groups)) is granted
    assert policy.grants("approve", login, frozenset(groups))


def test_operators_and_approvers_may_view() -> None:
    policy = Policy(roles=(("approve", ("bob",)), ("operate", ("@sre", "alice")), ("view", ("vera",))))
    assert policy.holders("view") == ("@sre", "alice", "bob", "vera")
    assert not policy.grants("view", "eve", frozenset())
    assert not policy.grants("operate", "vera", frozenset())
    assert Policy(roles=policy.roles[:2]).holders("view") is None


def test_every_rule_is_in_the_digest() -> None:
    changed: dict[str, Any] = {
        "max_replay_rows": 1, "max_replay_h": 1.0, "disk_factor": 2.0, "max_statements": 3, "max_busy_percent": 4.0,
        "max_stopped_percent": 5.0, "freeze": ("Sun",), "approve": ("all",), "approve_rows": 6,
        "roles": (("operate", ("a",)),), "hold": True, "machine_moves": "allow", "protected": True,
        "protected_tables": ("t",),
    }  # fmt: skip
    assert len({Policy().digest, *(Policy(**{key: value}).digest for key, value in changed.items())}) == 15
    for key, value in changed.items():
        assert differing_rules(Policy(), Policy(**{key: value})) == (key,)
    assert differing_rules(Policy(**changed), Policy()) == tuple(changed)


def at(text: str) -> float:
    return datetime.strptime(text, "%Y-%m-%d %H:%M").replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("window", "now", "until"),
    [
        ("Fri 16:00 - Mon 08:00", "2026-11-20 15:59", ""),
        ("Fri 16:00 - Mon 08:00", "2026-11-20 16:00", "Mon 2026-11-23 08:00"),
        ("Fri 16:00 - Mon 08:00", "2026-11-23 07:59", "Mon 2026-11-23 08:00"),
        ("Fri 16:00 - Mon 08:00", "2026-11-23 08:00", ""),
        ("Sat - Sun", "2026-11-20 23:59", ""),
        ("Sat - Sun", "2026-11-21 00:00", "Mon 2026-11-23 00:00"),
        ("Sun - Mon", "2026-11-24 00:00", ""),
        ("Sun - Mon", "2026-11-23 23:59", "Tue 2026-11-24 00:00"),
        ("wed", "2026-11-25 12:00", "Thu 2026-11-26 00:00"),
        ("2026-12-24 - 2027-01-02", "2026-12-23 23:59", ""),
        ("2026-12-24 - 2027-01-02", "2027-01-02 23:59", "Sun 2027-01-03 00:00"),
        ("2026-12-24 - 2027-01-02", "2027-01-03 00:00", ""),
        ("2026-12-24 18:00 - 2026-12-24 19:30", "2026-12-24 19:00", "Thu 2026-12-24 19:30"),
        ("2026-12-25", "2027-12-25 12:00", ""),
        ("2026-01-01 - 9999-12-31", "2026-11-21 12:00", "Fri 9999-12-31 23:59"),
    ],
)
def test_a_window_holds_from_its_first_minute_to_before_its_last(window: str, now: str, until: str) -> None:
    said = frozen_until((window,), at(now))
    assert said == (f"frozen until {until} UTC ({parse_freeze_window(window).text})" if until else None)


def test_of_several_windows_the_one_that_ends_last_is_named() -> None:
    assert frozen_until(("Sat", "Fri 16:00 - Mon 08:00", "2026-01-01"), at("2026-11-21 10:00")) == (
        "frozen until Mon 2026-11-23 08:00 UTC (Fri 16:00 - Mon 08:00)"
    )


@pytest.mark.parametrize("text", ["", "-", "Fri 16:00 - Fri 16:00", "tomorrow", "Mon 8:00 - Tue 9:00"])
def test_an_invalid_freeze_window_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_freeze_window(text)
