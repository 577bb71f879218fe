"""The run screen shows the time left, from the predictions made when the run began."""

from dataclasses import replace

from core.model.actions import StepKind
from core.model.names import TableName
from core.plan.model import Step
from core.run.records import StepRow, halted
from tests.support import ledger_rows
from tui.commands.runs import progress_words, step_table
from tui.presentation.screen_content.runs import heading, run_row, step_columns, step_detail, step_row, step_width
from tui.presentation.screen_content.statement_rows import RowContext
from tui.presentation.styling.styled_text import plain
from tui.presentation.styling.table_layout import header
from tui.presentation.styling.theme import UNICODE
from tui.presentation.styling.value_formatting import clock

START = StepRow(1, "start", "a", 2, "done", predicted_low_s=2.0, predicted_high_s=6.0, started_at=100.0, ended_at=103.0)
GATE = StepRow(2, "catch_up", "a", 2, "gate", predicted_low_s=60.0, predicted_high_s=200.0, started_at=103.0)
SWAP = StepRow(3, "swap", "a", 2, "waits", predicted_low_s=1.0, predicted_high_s=2.0)
PLANNED = (
    Step(1, StepKind.START, TableName("a"), 2, (), ""),
    Step(2, StepKind.CATCH_UP, TableName("a"), 2, (1,), ""),
    Step(3, StepKind.SWAP, TableName("a"), 2, (2,), ""),
)
RUN = ledger_rows.run_row(started_at=100.0, steps=(START, GATE, SWAP))


def shown(now: float, state: str = "running") -> str:
    return plain(heading(replace(RUN, state=state), "dev", now, 120, UNICODE, planned=PLANNED)[0])


def test_the_list_shows_whole_on_80_columns_which_run_a_run_continues() -> None:
    other = "ab12cd34ef-and-more"
    for run, words in (
        (replace(RUN, actor="root", continues=other), "root, continues ab12cd34ef"),
        (replace(RUN, actor="al", continued_by=other), "al, continued by ab12cd34ef"),
    ):
        assert plain(run_row(run, 80, 200.0)).rstrip().endswith(words)


def test_the_heading_says_what_is_left_and_when_it_takes_longer_than_predicted() -> None:
    assert "1m 3s, up to 3 min left" in shown(163.0)
    assert "3.0 s, 1\N{EN DASH}4 min left" in shown(103.0)
    assert "5m, longer than predicted" in shown(400.0) and "left" not in shown(400.0)
    gate_alone = replace(RUN, steps=(START, GATE))
    assert "longer than predicted" in plain(heading(gate_alone, "dev", 400.0, 120, UNICODE, planned=PLANNED[:2])[0])


def test_a_run_whose_steps_are_done_and_that_has_not_said_so_yet_is_not_late() -> None:
    over = replace(RUN, steps=tuple(replace(step, state="done") for step in RUN.steps))
    assert progress_words(over, PLANNED, 400.0) == "3 of 3 steps, all steps are done"
    alone = " ".join(map(plain, heading(halted(RUN), "dev", 400.0, 120, UNICODE, planned=PLANNED, no_agent=True)))
    assert "halted" in alone and "`headgate up`" in alone and "running   " not in alone
    assert "longer" not in plain(heading(over, "dev", 400.0, 120, UNICODE, planned=PLANNED)[0])
    late = replace(RUN, steps=(START, GATE))
    assert progress_words(late, PLANNED[:2], 400.0) == "1 of 2 steps, catch up a, longer than predicted"


def test_a_paused_or_unpredicted_run_shows_no_time_left() -> None:
    assert "left" not in shown(163.0, "paused")
    unknown = replace(RUN, steps=(START, replace(GATE, predicted_low_s=None), SWAP))
    assert "left" not in plain(heading(unknown, "dev", 163.0, 120, UNICODE, planned=PLANNED)[0])


def test_a_step_that_waits_shows_its_range() -> None:
    assert "1\N{EN DASH}2 s" in plain(step_row(SWAP, (2,), (), 120, RowContext(UNICODE, 110.0)))


def test_table_version_and_pointer_target_are_complete_in_eighty_columns() -> None:
    name, look = "int_seated_orders", RowContext(UNICODE, 110.0)
    made = replace(START, table=name, version=1, state="done", note="")
    swapped = replace(SWAP, table=name, version=0, state="done", note=f"{name}__v1")
    assert f"{name} v1 " in plain(step_row(made, (), (), 80, look))
    row = plain(step_row(swapped, (), (), 80, look))
    assert row.rstrip().endswith(f"  {name}__v1") and "…" not in row


def test_a_swap_lists_every_pointer_with_its_target() -> None:
    several, look = "b → b__v2, a → a__v2; within 30 ms", RowContext(UNICODE, 110.0)
    swapped = replace(SWAP, table="b", version=0, state="done", note=several)
    assert plain(step_row(swapped, (), ("b", "a"), 120, look)).rstrip().endswith(several)
    assert step_table([swapped], ())[-1].endswith(several)


def test_an_error_without_room_is_named_by_its_class() -> None:
    failed = replace(START, state="failed", note="USER_RAISED_EXCEPTION: the printer is gone")
    assert plain(step_row(failed, (), (), 80, RowContext(UNICODE, 110.0))).rstrip().endswith("  USER_RAISED_EXCEPTION")


def test_a_failed_step_has_its_first_sentence_in_its_row_and_the_full_text_below() -> None:
    long = "12 rows are only in v2; of the others, " + "and more " * 60 + "at last"
    failed, look = replace(START, state="failed", note=long), RowContext(UNICODE, 110.0)
    assert plain(step_row(failed, (), (), 120, look)).rstrip().endswith("  12 rows are only in v2")
    below = [plain(line) for line in step_detail(failed, "", 80, look)]
    assert max(map(len, below)) <= 80 and below[-2 if "predicted" in below[-1] else -1].endswith("at last")


def test_a_gate_that_has_opened_says_when() -> None:
    done, look = replace(GATE, state="done", note="caught up: lag 0 rows", ended_at=163.0), RowContext(UNICODE, 170.0)
    assert f"caught up at {clock(163.0)}: lag 0 rows" in plain(step_row(done, (), (), 140, look))
    assert any(f"at {clock(163.0)}: lag 0" in plain(line) for line in step_detail(done, "", 80, look))


def test_notes_have_the_room_that_no_step_needs() -> None:
    look = RowContext(UNICODE, 110.0)
    steps = (replace(START, table="a"), replace(GATE, table="a", state="gate", note="lag 81k → 12k, 18 s left, 2 of 3"))
    cells = step_width(steps, {}, 80)
    assert cells < 20 and plain(step_row(steps[1], (), (), 80, look, cells=cells)).rstrip().endswith("2 of 3")
    assert (
        plain(header(step_columns(80, cells), 80)).index("STATE")
        == plain(header(step_columns(80), 80)).index("STATE") - 31 + cells
    )
    assert step_width((replace(START, table="a" * 90),), {}, 80) == 31
    assert "running" in plain(step_row(steps[1], (), (), 80, look)) and "gate" not in plain(
        step_row(steps[1], (), (), 80, look)
    )
