"""The log of one statement: complete records, and only its own."""

from tui.presentation.screen_content.statement_detail import MOST_CHARACTERS, MOST_LINES, lines_about, log_lines
from tui.presentation.styling.styled_text import line_width, plain, wrap_lines

LOG = """\
2026-11-21T14:00:00.000Z INFO Other: tills@v1 moved
2026-11-21T14:00:01.000Z ERROR MicroBatchExecution: Query till@v1 [id = 9f2c] terminated with error
org.apache.spark.SparkException: by zero
\tat a.B(C.scala:1)
Caused by: x
2026-11-21T14:00:02.000Z WARN Other: till@v11 is late
2026-11-21 14:00:03,123 INFO Thread-1 run 7c1d ends
  because it was asked to""".splitlines()


def test_a_log_record_is_shown_completely_with_its_stack_trace() -> None:
    assert list(lines_about(LOG, ("till@v1", "", ""))) == LOG[1:5]


def test_ids_of_the_query_count_as_its_name_and_the_last_record_ends_the_log() -> None:
    assert list(lines_about(LOG, ("till@v9", "", "7c1d"))) == LOG[6:]
    assert list(lines_about(LOG, ("", ""))) == []


def deep(causes: int, frames: int, message: str = "by zero") -> list[str]:
    begins = "2026-11-21T14:00:01.000Z ERROR MicroBatchExecution: Query till@v1 terminated"
    found = [begins]
    for cause in range(causes):
        found.append(f"{'Caused by: ' if cause else ''}a.Error{cause}: {message}")
        found.extend(f"\tat a.B{cause}.c{frame}(D.scala:{frame})" for frame in range(frames))
    return found


def test_every_cause_of_a_long_failure_is_shown_and_omitted_lines_are_counted() -> None:
    record = deep(9, 100)
    told = list(lines_about(record, ("till@v1",)))
    assert len(told) <= MOST_LINES + 1
    assert [one for one in told if "a.Error" in one] == [one for one in record if "a.Error" in one]
    assert told[-1].strip() == f"… {len(record) - len(told) + 1} more lines: headgate logs pool has them"


def test_a_failure_with_few_causes_is_shown_down_to_its_last_frame() -> None:
    assert list(lines_about(deep(3, 50), ("till@v1",))) == deep(3, 50)


def test_an_endless_message_is_bounded() -> None:
    told = list(lines_about(deep(4, 3, "x" * 40_000), ("till@v1",)))
    assert sum(map(len, told)) < MOST_CHARACTERS + 200
    assert all(any(f"a.Error{cause}" in one for one in told) for cause in range(4))


def test_secrets_are_masked_in_messages_and_causes() -> None:
    record = deep(2, 1, "cannot connect jdbc:x://ann:hunter2@db/shop?password=hunter2 at host://h:9092/x")
    told = "\n".join(lines_about(record, ("till@v1",)))
    assert "hunter2" not in told
    assert "host://h:9092/x" in told and "://ann:*****@db/shop" in told


def test_no_line_of_a_log_is_wider_than_its_pane_or_moves_the_cursor() -> None:
    rows = wrap_lines(log_lines(["\tat a.b(" + "x" * 300 + ")", "\x1b[31mred\x07"]), 80)
    assert all(line_width(row) <= 80 and plain(row).isprintable() for row in rows)
    assert "".join(plain(row).strip() for row in rows).count("x") == 300
