"""`release diff`: the results for a run or for an overlay and its base, its exit code, and invalid arguments."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from command_line import written

from core.model.errors import TryAgain, UsageError
from core.model.names import TableName as T
from core.project.overlay import OVERLAY_FILE, Overlay, overlay_as_text
from core.run.records import OVERLAY_COMPARISON, CheckResultRow, RunRow, StepRow
from tui.command_line.exit_codes import run_command_line
from tui.commands.release import diff

RUN = RunRow("7f3a-1", "h", "ana", "failed", 1.0, 2.0, (StepRow(4, "validate", "orders", 2, "failed"),))


class Context:
    """The part of the context that the command needs: one run, and the results for its table."""

    def __init__(self, *verdicts: str, table: str = "", as_json: bool = False) -> None:
        self.said: list[Any] = []
        self.args = SimpleNamespace(run="7f3a", table=table, last=False, markdown=False, timeout=None)
        found = tuple(
            CheckResultRow("7f3a-1", T("orders"), n, 1.0, 1, 2, 9, 3, "differences", verdict, "words")
            for n, verdict in enumerate(verdicts, 1)
        )
        reader = SimpleNamespace(check_results=lambda run, table: found if table in (None, "orders") else ())
        self.operations = SimpleNamespace(run=lambda prefix: RUN, reader=reader, place=SimpleNamespace(overlay=None))
        self.output = SimpleNamespace(as_json=as_json, print=self.said.extend, say=self.said.append)

    def document(self, form: str, **parts: Any) -> None:
        self.said.append((form, parts))


def run(context: Context) -> int:
    return diff(context)  # type: ignore[arg-type]  # Only what it needs.


def test_the_exit_code_is_1_if_something_blocks_the_release() -> None:
    assert run(Context("ok", "expected")) == 0
    blocked = Context("ok", "unexpected", table="orders")
    assert run(blocked) == 1 and "  UNEXPECTED  differences   words" in blocked.said


def test_for_programs_it_has_a_format_and_the_run() -> None:
    asked = Context("failed", as_json=True)
    assert run(asked) == 1
    ((form, parts),) = asked.said
    assert (form, parts["run"], parts["results"][0]["verdict"]) == ("headgate.release_diff/1", "7f3a-1", "failed")


def test_a_skipped_comparison_is_named_before_its_findings() -> None:
    note = "skipped by an operator; before that: comparing"
    row = replace(RUN, steps=(replace(RUN.steps[0], state="skipped", note=note),))
    for verdicts in ((), ("unexpected",)):
        skipped = Context(*verdicts)
        skipped.operations.run = lambda prefix: row
        run(skipped)
        assert skipped.said[0] == f"orders: {note}" and (len(skipped.said) > 1) == bool(verdicts)


def test_a_run_without_findings_says_so_and_an_unrelated_table_is_refused() -> None:
    early = Context()
    assert run(early) == 0 and early.said == ["run 7f3a-1 has compared no rows so far"]
    with pytest.raises(UsageError, match="run 7f3a-1 has no step for pizzas"):
        run(Context(table="pizzas"))


@pytest.fixture
def overlay(ledger: Any, place: Any, agent: Any) -> Any:
    """Make dev an overlay of prod, whose agent compares two tables and finds an unexpected difference."""
    shown = Overlay("prod", "/home/prod", "/data", "/branch", 1.0, "ana", 2.0)
    Path(place.where.home, OVERLAY_FILE).write_text(overlay_as_text(shown))
    answers = iter([{"running": True, "done": 1, "of": 2, "about": "comparing b"}, {"running": False}])

    def end(request: Any) -> dict[str, Any]:
        answer = next(answers)
        if not answer["running"]:
            ledger.put_overlay_comparison(COMPARED)
        return answer

    agent.script |= {"compare": {"id": "c1", "joined": False}, "comparison": end}
    return agent


COMPARED = tuple(
    CheckResultRow(
        OVERLAY_COMPARISON, T(table), n=1, at=5.0, old_version=3, new_version=1, old_batch=7, new_batch=2,
        check="differences", verdict=verdict, summary=summary, counts={}, examples=(),
    )
    for table, verdict, summary in (("a", "ok", "no row differs"), ("b", "unexpected", "2 rows, unexpected"))
)  # fmt: skip


def test_an_overlay_is_compared_with_its_base_and_the_result_is_shown_again(
    overlay: Any, ledger: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line(["release", "diff", "--timeout", "7"]) == 1
    out = capsys.readouterr().out
    assert [request["args"] for request in overlay.heard] == [{"seconds": 7.0}, {"id": "c1"}, {"id": "c1"}]
    lines = out.splitlines()
    verdict = "unexpected: b, of 2 compared tables"
    assert lines[0].startswith("dev compared with prod at ") and lines[0].endswith(verdict)
    assert lines[2:4] == [
        "b@v1 of dev compared with b@v3 of prod", "  UNEXPECTED  differences   2 rows, unexpected",
    ]  # fmt: skip
    assert run_command_line(["release", "diff", "--last"]) == 1
    assert capsys.readouterr().out == out and len(overlay.heard) == 3
    assert run_command_line(["release", "diff", "--last", "--markdown"]) == 1
    assert capsys.readouterr().out.startswith(f"### dev compared with prod: {verdict}\n")
    document = written(["release", "diff", "--last"], capsys, code=1)
    assert (document["format"], document["base"], document["unexpected"]) == (
        "headgate.base_comparison/1",
        "prod",
        ["b"],
    )
    assert [each["table"] for each in document["results"]] == ["a", "b"]
    ledger.put_overlay_comparison(COMPARED[:1])
    assert run_command_line(["release", "diff", "--last"]) == 0


def test_one_table_of_an_overlay_is_shown_and_determines_the_exit_code(
    overlay: Any, ledger: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger.put_overlay_comparison(COMPARED)
    for words, code in ((["a", "--last"], 0), (["b", "--last"], 1), (["a"], 0)):
        assert run_command_line(["release", "diff", *words]) == code
        assert f"{words[0]}@v1 of dev compared with" in (out := capsys.readouterr().out)
        assert out.count(" compared with ") == 2, "one for the verdict, and one for the table"
    assert run_command_line(["release", "diff", "7f3a"]) == 2
    assert "no run" in capsys.readouterr().err


def test_a_table_that_could_not_be_compared_fails_and_one_that_never_can_be_does_not(
    overlay: Any, ledger: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    for reason, code, failed in (("base", 1, ["a"]), ("failed", 1, ["a"]), ("topic", 0, [])):
        skipped = replace(COMPARED[0], verdict="skipped", summary="words", counts={"left_out": reason})
        ledger.put_overlay_comparison((skipped,))
        document = written(["release", "diff", "--last"], capsys, code=code)
        assert (document["failed"], document["not_compared"]) == (failed, {"a": "words"})


def test_columns_that_were_not_compared_are_values_for_programs(
    overlay: Any, ledger: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = {"items": {"kind": "changed", "because": "orders.items: edited"}}
    ledger.put_overlay_comparison((replace(COMPARED[0], counts={"columns_left_out": columns}),))
    assert written(["release", "diff", "--last"], capsys)["columns_not_compared"] == {"a": columns}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--last"], "dev has not been compared with prod yet"),
        (["--json", "--markdown"], "--json and --markdown cannot be combined"),
        (["--last", "--timeout", "3"], "--last compares nothing"),
        (["7f3a", "--last"], "dev has no table 7f3a to compare with prod"),
        (["7f3a", "--markdown"], "dev has no table 7f3a to compare with prod"),
        (["7f3a", "orders", "--last"], "has no run, and shows all tables or one"),
    ],
)
def test_options_that_do_not_fit_are_usage_errors(
    words: list[str], said: str, overlay: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line(["release", "diff", *words]) == 2
    captured = capsys.readouterr()
    assert said in captured.err + captured.out


def test_an_environment_that_is_no_overlay_has_nothing_to_compare_with(
    ledger: Any, place: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line(["release", "diff"]) == 2
    assert "dev overlays no other environment, so there is nothing to compare it with" in capsys.readouterr().err


def test_an_interrupted_comparison_goes_on(
    overlay: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tui.commands.release.compare_now", interrupt)
    assert run_command_line(["release", "diff"]) == 130
    assert "the agent goes on comparing: headgate release diff --last" in capsys.readouterr().err


def test_an_agent_that_dies_meanwhile_shows_no_result(overlay: Any, capsys: pytest.CaptureFixture[str]) -> None:
    overlay.script["comparison"] = TryAgain("the comparison ended without a result, because the agent was restarted")
    assert run_command_line(["release", "diff"]) not in (0, 1, 2)
    captured = capsys.readouterr()
    assert "the agent was restarted" in captured.err and not captured.out
