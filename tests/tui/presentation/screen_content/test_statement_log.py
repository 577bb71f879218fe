"""What a log says of one statement: whole records, of that statement alone."""

from tui.presentation.screen_content.statement_log import lines_about

LOG = """\
2026-11-21T14:00:00.000Z INFO Other: tills@v1 moved
2026-11-21T14:00:01.000Z ERROR MicroBatchExecution: Query till@v1 [id = 9f2c] terminated with error
org.apache.spark.SparkException: by zero
\tat a.B(C.scala:1)
Caused by: x
2026-11-21T14:00:02.000Z WARN Other: till@v11 is late
2026-11-21 14:00:03,123 INFO Thread-1 run 7c1d ends
  because it was asked to""".splitlines()


def test_a_record_is_told_whole_with_its_stack_trace() -> None:
    assert list(lines_about(LOG, ("till@v1", "", ""))) == LOG[1:5]


def test_ids_of_the_query_count_as_its_name_and_the_last_record_ends_the_log() -> None:
    assert list(lines_about(LOG, ("till@v9", "", "7c1d"))) == LOG[6:]
    assert list(lines_about(LOG, ("", ""))) == []
