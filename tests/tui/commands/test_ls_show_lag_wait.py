"""ls, show, lag, wait, events and audit over a ledger."""

import errno
import json
import os
import sqlite3
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from core.lag.slowness import Slowness, slowness_text
from core.model.errors import UsageError
from core.model.names import TableName
from core.model.states import State, Trend
from core.observed.table_statistics import LogHistory, TableStatistics
from core.observed.versions import Deployment, Measurement, StatementLine
from core.project.revision import RevisionTexts
from state.ledger import LedgerReader
from state.row_types import AuditRow, CommandRow, EventRow
from tests.support.ledger_rows import create_run, plan_of, plan_row, run_row
from tui.command_line import exit_codes
from tui.command_line.statement_output import matching_conditions, parse_conditions, parse_count


@pytest.fixture
def shop(ledger: Any, deployed: Any, measured: Any) -> Any:
    """Both statements are deployed; b has failed and is 1,500 rows behind."""
    ledger.put_deployment(deployed("a"))
    ledger.put_deployment(deployed("b", reads="a", state="failed", error_class="DIVIDE_BY_ZERO", error="by zero"))
    ledger.put_measurements([measured("a"), measured("b", lag_rows=1500, trend="growing", rate_rows_s=2.0)])
    return ledger


def told(words: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> Any:
    """Run a command with --json and return the decoded output."""
    assert exit_codes.run_command_line([*words, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_show_prints_id_version_and_creation_of_each_query(
    ledger: Any, deployed: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    id, at = "6f1c2d3e-0000-4000-8000-0123456789ab", 1_764_066_467.25
    ledger.put_deployment(replace(deployed("a"), active=False, version_id="other", created_at=at - 60))
    ledger.put_deployment(replace(deployed("a"), version=2, version_id=id, created_at=at))
    found = told(["show", "a"], capsys)
    assert found["query"] == {"id": id, "version": 2, "created_at": at}
    assert [each["query"]["id"] for each in found["versions"]] == [id, "other"]
    assert exit_codes.run_command_line(["show", "a"]) == 0
    assert f"query       id {id}  version 2  created 2025-11-25 10:27:47 UTC" in capsys.readouterr().out


def test_ls_lists_what_is_declared_before_anything_was_started(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = told(["ls"], capsys)
    assert [(s["table"], s["state"], s["external"]) for s in found["statements"]] == [
        ("a", "absent", False), ("b", "absent", False), ("landed", "external", True),
    ]  # fmt: skip


def test_ls_shows_state_version_lag_and_trend(shop: Any, capsys: pytest.CaptureFixture[str]) -> None:
    found = {s["table"]: s for s in told(["ls"], capsys)["statements"]}
    keys = ("state", "version", "lag_rows", "trend")
    assert [tuple(found[table][key] for key in keys) for table in ("a", "b")] == [
        ("running", 1, 0, "steady"), ("failed", 1, 1500, "growing"),
    ]  # fmt: skip


@pytest.mark.parametrize("command", ["ls", "lag"])
def test_a_starved_statement_is_marked_once(
    command: str, ledger: Any, deployed: Any, measured: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger.put_deployment(deployed("a"))
    ledger.put_measurements([measured("a", trend="starved", data_age_s=14.0)])
    assert exit_codes.run_command_line([command, "a"]) == 0
    printed = capsys.readouterr().out
    assert "starved 14s" in printed and "starved starved" not in printed


@pytest.mark.parametrize("command", ["ls a", "lag", "show a", "health"])
def test_a_running_statement_that_lacks_an_input_can_be_failed_on(
    command: str, shop: Any, deployed: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*command.split(), "--fail-on", "input"]
    assert exit_codes.run_command_line(words) == 0
    fault = {"error_class": "HEADGATE_INPUT_NOT_READ", "error": "no broker of h:9092 answers"}
    source = {"version": 0, "external": True, "checkpoint": "", "bindings": ()}
    shop.put_deployment(deployed("landed", **source, **fault))
    capsys.readouterr()
    assert exit_codes.run_command_line(words) == 1
    assert "fail-on input: a is running, lag 0; input landed: no broker of h:9092 answers" in capsys.readouterr().err


def test_ls_for_people_has_the_same_on_one_line(shop: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_codes.run_command_line(["ls", "b"]) == 0
    said = capsys.readouterr()
    assert said.out.splitlines()[1].split()[:8] == ["b", "p", "failed", "v1", "?", "1.5k", "growing", "+120/m"]
    assert "shop dev: 0 of 1 statement running" in said.err


def test_a_terminal_of_eighty_columns_gets_short_rows_and_whole_words(
    ledger: Any, deployed: Any, measured: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.put_deployment(deployed("a"))
    draining = replace(measured("a", lag_rows=1500, trend="draining"), eta_s=28.0, behind_s=93.0)
    ledger.put_measurements([draining])
    monkeypatch.setenv("COLUMNS", "76")
    assert exit_codes.run_command_line(["ls", "a"]) == 0
    assert "draining 28s left" in capsys.readouterr().out
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert exit_codes.run_command_line(["ls", "a"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert "  28s left" in rows[1] and max(map(len, rows)) <= 76
    for words in (["impact", "a"], ["show", "a"], ["history", "a"]):
        assert exit_codes.run_command_line(words) == 0
        assert max(map(len, (row for row in capsys.readouterr().out.splitlines() if "/" not in row)), default=0) <= 76


@pytest.mark.parametrize(
    ("condition", "code"),
    [
        ("failed", 1),
        ("lag>1k", 1),
        ("lag>2k", 0),
        ("lag>=1500", 1),
        ("growing", 1),
        ("stalled", 0),
        ("stopped,lag>1", 1),
    ],
)
def test_fail_on_decides_the_exit_code(condition: str, code: int, shop: Any) -> None:
    assert exit_codes.run_command_line(["ls", "--fail-on", condition]) == code
    assert exit_codes.run_command_line(["show", "b", "--fail-on", condition]) == code


def test_filters_choose_by_state_and_product(shop: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert [s["table"] for s in told(["ls", "--state", "failed,stopped"], capsys)["statements"]] == ["b"]
    assert told(["ls", "--product", "other"], capsys)["statements"] == []


def test_an_external_table_that_nothing_reads_yet_is_not_looked_for_among_what_is_deployed(
    ledger: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_codes.run_command_line(["show", "landed"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "landed is an external table, and no deployed statement reads it yet" in said and "not deployed" not in said
    assert "headgate lineage landed" in said and exit_codes.run_command_line(["lineage", "landed"]) == 0


def test_an_unknown_table_names_the_nearest(shop: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_codes.run_command_line(["ls", "lande"]) == 2
    assert "did you mean landed?" in capsys.readouterr().err


def test_a_deleted_current_folder_is_a_usage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert exit_codes.run_command_line(["ls"]) == 2
    assert "the current folder no longer exists" in capsys.readouterr().err


@pytest.mark.parametrize("words", ["ls", "show a", "events", "logs agent", "down", "plan --all --offline"])
def test_a_home_that_is_closed_to_us_is_no_environment_that_was_never_started(
    words: str, shop: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = os.stat

    def closed(path: Any, **options: Any) -> os.stat_result:
        if str(path).endswith(("ledger.db", "agent.log")):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return asked(path, **options)

    monkeypatch.setattr(os, "stat", closed)
    assert exit_codes.run_command_line(words.split()) == 3
    assert "belongs to another user" in capsys.readouterr().err


def test_show_names_parents_readers_and_versions(shop: Any, capsys: pytest.CaptureFixture[str]) -> None:
    found = told(["show", "a"], capsys)
    assert found["parents"] == [{"table": "landed", "version": 0, "streamed": True}]
    assert found["readers"] == [{"table": "b", "version": 1}]
    assert [version["version"] for version in found["versions"]] == [1]


def test_the_sql_of_a_statement_is_shown_without_its_secrets(
    ledger: Any, deployed: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = RevisionTexts("CREATE", "SELECT *\nFROM STREAM t WITH ('api.token' = 'hunter2')", "")
    ledger.put_deployment(deployed("a", texts=texts))
    assert exit_codes.run_command_line(["show", "a", "--sql"]) == 0
    assert capsys.readouterr().out == "SELECT *\nFROM STREAM t WITH ('api.token' = '*****')\n"


def test_show_says_how_long_a_batch_took_as_the_console_does(
    shop: Any, measured: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    for took_ms, words in ((104_684, "104.7 s"), (None, "its duration is known from the next one on")):
        shop.put_measurements([measured("a", batch=3, batch_ms=took_ms, in_rows_s=None, out_rows_s=107.0)])
        assert exit_codes.run_command_line(["show", "a"]) == 0
        shown = capsys.readouterr().out
        assert f"batch       {words}  #3  trigger" in shown
        assert "rates       in -  out 107/s\n" in shown


def test_show_says_why_a_statement_is_slow_while_it_runs(
    shop: Any, measured: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = Slowness.COMMITTING.of(share=71, part_s=2.9, batch_s=4.1)
    shop.put_measurements([measured("a", slow=slowness_text(slow))])
    assert exit_codes.run_command_line(["show", "a"]) == 0
    shown = capsys.readouterr().out
    assert f"why slow    {slow}" in shown and str(slow.remedy) in " ".join(shown.split())
    assert exit_codes.run_command_line(["show", "a", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["slow"] == {**slow.as_json(), "remedy": str(slow.remedy)}
    shop.update_deployment(TableName("a"), 1, state="stopped")
    assert exit_codes.run_command_line(["show", "a"]) == 0
    assert "why slow" not in capsys.readouterr().out


def test_show_gives_the_lag_objective(shop: Any, measured: Any, capsys: pytest.CaptureFixture[str]) -> None:
    shop.put_measurements([measured("a", objective_s=300.0)])
    assert exit_codes.run_command_line(["show", "a"]) == 0
    assert "objective 5m" in capsys.readouterr().out
    assert exit_codes.run_command_line(["show", "a", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["objective_s"] == 300.0


def test_show_wraps_long_lines_also_without_a_terminal(
    shop: Any, deployed: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(300):
        shop.put_deployment(deployed(f"reader_{number}", reads="a"))
    shop.put_deployment(deployed("b", reads="a", state="failed", error_class="X", error="no such column " * 200))
    for table, last in (("a", "reader_299@v1"), ("b", "no such column")):
        assert exit_codes.run_command_line(["show", table]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert max(map(len, lines)) <= 160 and any(last in line for line in lines)
    assert sum(line.count("reader_") for line in lines) == 0 and sum(line.startswith(" " * 12) for line in lines) > 15


def test_show_takes_one_version(shop: Any, deployed: Any, measured: Any, capsys: pytest.CaptureFixture[str]) -> None:
    shop.put_deployment(deployed("a", version=2, active=False, state="starting"))
    shop.put_measurements([measured("a", version=2, lag_rows=77)])
    found = told(["show", "A@v2"], capsys)
    assert (found["version"], found["lag_rows"], found["readers"]) == (2, 77, [])
    assert told(["show", "a@v1"], capsys)["readers"] == [{"table": "b", "version": 1}]
    assert exit_codes.run_command_line(["show", "a@v2"]) == 0
    assert "a v2  starting" in capsys.readouterr().out
    assert exit_codes.run_command_line(["show", "a@v7"]) == 2
    assert "a has no version 7\n  there is a@v1, a@v2" in capsys.readouterr().err
    assert exit_codes.run_command_line(["show", "a@vx"]) == 2
    assert "a version is written TABLE@vN" in capsys.readouterr().err


def test_show_says_from_where_on_a_version_reads(shop: Any, capsys: pytest.CaptureFixture[str]) -> None:
    where = "landed.ts >= TIMESTAMP '2026-01-02T00:00:00Z'"
    shop.update_deployment(TableName("a"), 1, begins_where=(where,))
    assert told(["show", "a"], capsys)["begins_where"] == [where]
    assert exit_codes.run_command_line(["show", "a"]) == 0
    assert f"reads       landed (stream)  only {where}" in capsys.readouterr().out


def test_show_names_the_base_of_a_clone(shop: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert [version["clone_of"] for version in told(["show", "a"], capsys)["versions"]] == [None]
    shop.update_deployment(TableName("a"), 1, clone_of=3)
    assert [version["clone_of"] for version in told(["show", "a"], capsys)["versions"]] == [3]
    assert exit_codes.run_command_line(["show", "a"]) == 0
    assert "append  a clone of v3  " in capsys.readouterr().out


def test_show_is_of_one_moment(shop: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    read = LedgerReader.versions

    def written_meanwhile(reader: LedgerReader, table: TableName) -> tuple[Deployment, ...]:
        found = read(reader, table)
        shop.update_deployment(table, 1, state="failed")
        return found

    monkeypatch.setattr(LedgerReader, "versions", written_meanwhile)
    found = told(["show", "a"], capsys)
    assert (found["state"], found["versions"][0]["state"]) == ("running", "running")


def test_show_gives_the_contents_of_a_table_and_its_missing_files(
    shop: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    at, earliest = time.time() - 301, time.time() - 480
    measured = TableStatistics(at=at, rows=3639, bytes=474_649, files=207, earliest=earliest, gone=25)
    shop.put_table_statistics({(TableName("a"), 1): measured})
    shown = told(["show", "a"], capsys)
    assert (shown["figures"] | {"rows": shown["rows"]}) == asdict(measured)
    assert exit_codes.run_command_line(["show", "a"]) == 0
    assert exit_codes.run_command_line(["show", "b"]) == 0
    holds = [line for line in capsys.readouterr().out.splitlines() if line.startswith("holds")]
    assert [line.split(maxsplit=1)[1] for line in holds] == [
        "3.6k rows  475 kB in 207 files  oldest 8m  25 files it has read no longer exist  as of 5m 1s ago",
        "not measured",
    ]  # fmt: skip


def test_show_says_how_many_files_are_small_and_how_long_the_log_is(
    shop: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = TableStatistics(time.time(), 5, True, 500, 3, small_files=3, log_entries=12, log_bytes=9_000)
    older = replace(figures, log_bytes=None, at=time.time() - 301)
    shop.put_table_statistics({(TableName("a"), 1): figures, (TableName("b"), 1): older})
    for table in "ab":
        assert exit_codes.run_command_line(["show", table]) == 0
    told_lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    assert [line[1] for line in told_lines if line[0] == "log"] == [
        "12 versions since its checkpoint, 9 kB", "12 versions since its checkpoint, size not known  as of 5m 1s ago",
    ]  # fmt: skip
    assert next(line[1] for line in told_lines if line[0] == "holds") == "5 rows  500 B in 3 files, 3 below 16 MB"


def test_wait_returns_once_the_state_is_reached(shop: Any) -> None:
    assert exit_codes.run_command_line(["wait", "a", "--state", "running", "--timeout", "5"]) == 0


def test_wait_for_a_lag_ignores_earlier_measurements(shop: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_codes.run_command_line(["wait", "a", "--lag", "0", "--timeout", "0.2"]) == 1
    assert "not reached within" in capsys.readouterr().err


def test_wait_for_a_lag_ends_with_a_fresh_figure(shop: Any, measured: Any) -> None:
    shop.put_measurements([measured("a", at=1e12)])
    assert exit_codes.run_command_line(["wait", "a", "--lag", "0", "--timeout", "5"]) == 0


def test_wait_gives_up_on_a_failed_statement_at_once(shop: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_codes.run_command_line(["wait", "b", "--timeout", "60"]) == 1
    assert "DIVIDE_BY_ZERO" in capsys.readouterr().err


def test_events_and_audit_are_listed_oldest_first(shop: Any, capsys: pytest.CaptureFixture[str]) -> None:
    for at in (1.0, 2.0):
        shop.add_event(EventRow(id=0, at=at, table="a", version=1, kind="state", summary=f"at {at}"))
        shop.add_audit(AuditRow(id=0, at=at, actor="ana", action="stop", subject=f"a at {at}"))
    assert [event["at"] for event in told(["events", "a"], capsys)] == [1.0, 2.0]
    assert [row["subject"] for row in told(["audit"], capsys)] == ["a at 1.0", "a at 2.0"]


def test_audit_is_verified_and_an_entry_that_was_changed_fails_it(
    shop: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    for subject in ("a", "b"):
        shop.add_audit(AuditRow(id=0, at=1.0, actor="ana", action="stop", subject=subject))
    newest = told(["audit"], capsys)[-1]["hash"]
    whole = {"whole": True, "newest": 2, "hash": newest, "archives": [], "breaks": []}
    assert told(["audit", "--verify"], capsys) == whole
    assert exit_codes.run_command_line(["audit", "--verify"]) == 0
    assert capsys.readouterr().out == f"the audit is whole up to entry 2, {newest}\n"
    with sqlite3.connect(shop.path) as connection:
        connection.execute("DROP TRIGGER audit_is_not_changed")
        connection.execute("UPDATE audit SET actor = 'eve' WHERE id = 1")
    connection.close()
    found = told(["audit", "--verify"], capsys, code=1)
    assert found["breaks"] == [{"first": 1, "last": 1, "kind": "changed", "file": None}]
    assert exit_codes.run_command_line(["audit", "--verify"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "the audit was changed after it was written:",
        "  entry 1 was changed",
    ]


def test_audit_says_where_older_entries_are_and_verifies_them(shop: Any, capsys: pytest.CaptureFixture[str]) -> None:
    for at in (1.0, 2.0, 1e9):
        shop.add_audit(AuditRow(id=0, at=at, actor="ana", action="stop", subject="a"))
    shop.archive_audit(1e9 + 1)
    file = shop.path.parent / "audit-1970.jsonl"
    assert exit_codes.run_command_line(["audit"]) == 0
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 2 and f"entries 1 to 2 are in {file}" in said.err
    assert exit_codes.run_command_line(["audit", "-n", "1"]) == 0
    assert "are in" not in capsys.readouterr().err
    assert told(["audit", "--verify"], capsys)["archives"] == [{"file": "audit-1970.jsonl", "first": 1, "last": 2}]
    assert exit_codes.run_command_line(["audit", "--verify"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == ["  entries 1 to 2 are in audit-1970.jsonl"]
    file.unlink()
    assert exit_codes.run_command_line(["audit", "--verify"]) == 1
    assert "audit-1970.jsonl with entries 1 to 2 is missing" in capsys.readouterr().out


def test_the_audit_names_acts_as_people_type_them(shop: Any, capsys: pytest.CaptureFixture[str]) -> None:
    for action in ("submit_plan", "policy_apply", "exit", "stop"):
        shop.add_audit(AuditRow(id=0, at=1.0, actor="ana", action=action, subject="x"))
    assert exit_codes.run_command_line(["audit"]) == 0
    _, *rows = capsys.readouterr().out.splitlines()
    said = [line.split(" x")[0].split("ana")[1].strip() for line in rows]
    assert said == ["plan", "policy apply", "down", "stop"]


def test_no_column_of_the_audit_runs_into_the_next(shop: Any, capsys: pytest.CaptureFixture[str]) -> None:
    late = "recorded late: the ledger could not be written then"
    shop.add_audit(AuditRow(id=0, at=1.0, actor="a-login-of-many-letters", action="stop", subject="x", outcome=late))
    assert exit_codes.run_command_line(["audit"]) == 0
    head, row = capsys.readouterr().out.splitlines()
    assert head.split() == ["WHEN", "WHO", "DID", "TO", "PLAN", "TYPED", "OUTCOME"]
    assert "a-login-of-many-letters  stop        x  " in row and row.endswith(f"  {late}")


@pytest.mark.parametrize(
    ("text", "rows"), [("0", 0), ("250", 250), ("1k", 1000), ("1.5m", 1_500_000), ("2G", 2 * 10**9)]
)
def test_counts_are_read_as_people_write_them(text: str, rows: int) -> None:
    assert parse_count(text) == rows


@pytest.mark.parametrize("word", ["lag>", "lag<5", "broken", "lag>1q"])
def test_a_condition_that_means_nothing_is_refused(word: str) -> None:
    with pytest.raises(UsageError):
        parse_conditions(word)


@pytest.mark.parametrize("word", [*State, *(trend for trend in Trend if trend not in set(State))])
def test_every_state_and_trend_can_be_failed_on(word: str, shop: Any) -> None:
    assert matching_conditions(parse_conditions(word), _line(word)) == [word]


def _line(word: str) -> StatementLine:
    fields = dict.fromkeys(StatementLine._fields)
    return StatementLine(**(fields | {"state": word, "trend": word}))  # type: ignore[arg-type]  # Only two are read.


def test_history_lists_actions_and_failures_of_one_table_from_its_ledger(
    shop: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    shop.add_command(CommandRow(0, 5.0, "ana", "stop", "a b", "headgate stop a b", "done"))
    shop.add_event(EventRow(0, 3.0, "b", 1, "exception", "DIVIDE_BY_ZERO", "by zero"))
    found = told(["history", "b"], capsys)
    assert (found["format"], found["table"]) == ("headgate.history/1", "b")
    assert [(each["at"], each["kind"], each["actor"]) for each in found["entries"]] == [
        (3.0, "failure", ""), (5.0, "stop", "ana"),
    ]  # fmt: skip
    assert [each["kind"] for each in told(["history", "a", "-n", "1"], capsys)["entries"]] == ["stop"]
    assert exit_codes.run_command_line(["history", "b"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["by", "zero"]
    assert exit_codes.run_command_line(["history", "bb"]) == 2
    assert "did you mean b?" in capsys.readouterr().err


def test_the_audit_of_a_table_holds_its_acts_its_plans_and_its_runs(
    shop: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = plan_of(TableName("b"))
    shop.put_plan(plan_row(plan))
    create_run(shop, run_row(plan.hash, id="7f3a-1"), [TableName("b")], [TableName("a")])
    told_of = {"stop": "a b", "approve": plan.hash[:12], "run": "7f3a-1", "start": "a", "plan": "7777", "restart": "bb"}
    for at, (action, subject) in enumerate(told_of.items()):
        shop.add_audit(AuditRow(id=0, at=float(at), actor="ana", action=action, subject=subject))
    assert [row["action"] for row in told(["audit", "--table", "b"], capsys)] == ["stop", "approve", "run"]
    assert [row["action"] for row in told(["audit", "--table", "a"], capsys)] == ["stop", "start"]
    assert exit_codes.run_command_line(["audit", "--table", "b", "--verify"]) == 2


def test_an_external_table_is_shown_with_its_measurements_and_its_fault(
    shop: Any, deployed: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    now, landed = time.time(), TableName("landed")
    about = {"version": 0, "external": True, "format": "delta", "folder": "/lake/orders", "table_id": "id-1"}
    shop.put_deployment(deployed("landed", **about, bindings=(), checkpoint="", layer="source"))
    history = LogHistory(0, now - 900, ((0, now - 900, 0), (7, now - 125, 1)))
    figures = TableStatistics(now, 1500, True, 9000, 3, now - 900, small_files=3, log=history.as_text())
    shop.put_table_statistics({(landed, 0): figures})
    shop.put_measurements([Measurement(landed, 0, now, rows_total=1500)])

    def printed(*words: str) -> list[str]:
        assert exit_codes.run_command_line([*words]) == 0
        return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]

    assert printed("show", "landed") == [
        "table landed external: written by others, only read by Headgate",
        "product p source",
        "read by a@v1",
        "lies in /lake/orders",
        "format delta",
        "holds 1.5k rows 9 kB in 3 files, 3 below 16 MB oldest 15m",
        "version 7, committed 2m 5s ago",
        "id id-1",
    ]
    assert "landed p external 1.5k" in printed("ls", "landed")
    shown = told(["show", "landed"], capsys)
    assert shown["newest_version"] == {"version": 7, "at": pytest.approx(now - 125), "log_begins_with": 0}
    shop.update_deployment(landed, 0, error="landed has no table: /lake/orders has no _delta_log")
    shop.put_table_statistics({(landed, 0): TableStatistics(at=now - 4, exact=False)})
    shop.put_measurements([Measurement(landed, 0, now)])
    shown_again = printed("show", "landed")
    assert shown_again[1] == "error landed has no table: /lake/orders has no _delta_log"
    assert shown_again[6:] == ["holds not known: no table was there 4s ago", "id id-1"]
    assert "landed p external - !" in printed("ls", "landed")
    (listed,) = told(["ls", "landed"], capsys)["statements"]
    assert (listed["rows"], listed["error"]) == (None, "landed has no table: /lake/orders has no _delta_log")
