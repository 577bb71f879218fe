"""`release diff`: the results for a run and for one of its tables, its exit code, and invalid arguments."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from core.model.errors import UsageError
from core.model.names import TableName as T
from core.run.records import CheckResultRow, RunRow, StepRow
from tui.commands.release import diff

RUN = RunRow("7f3a-1", "h", "ana", "failed", 1.0, 2.0, (StepRow(4, "validate", "orders", 2, "failed"),))


class Context:
    """The part of the context that the command needs: one run, and the results for its table."""

    def __init__(self, *verdicts: str, table: str = "", as_json: bool = False) -> None:
        self.said: list[Any] = []
        self.args = SimpleNamespace(run="7f3a", table=table)
        found = tuple(
            CheckResultRow("7f3a-1", T("orders"), n, 1.0, 1, 2, 9, 3, "differences", verdict, "words")
            for n, verdict in enumerate(verdicts, 1)
        )
        reader = SimpleNamespace(check_results=lambda run, table: found if table in (None, "orders") else ())
        self.operations = SimpleNamespace(run=lambda prefix: RUN, reader=reader)
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
