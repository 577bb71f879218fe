"""Ready scenarios: names, what two runs have in common, and the comparison of two runs."""

import pytest
import small_project

from core.integration_tests.repeatability import Repeatability, repeatability
from core.integration_tests.scenarios import Disturbance, Rows, Shown, compared_runs, judged_starts, parse_scenarios
from core.model.errors import UsageError
from core.model.names import TableName as T
from core.project.model import Project
from core.project.naming import Naming
from core.statement_tests.case import Row
from core.statement_tests.request import CaseOutcome

COLUMNS = (("id", "bigint"), ("kind", "string"))
WHOLE = Repeatability(COLUMNS, {}, places=(0, 1))
A: Rows = {T("a"): ((1, "x"), (2, "y")), T("b"): ((1, "x"),)}


def of(**selects: str) -> dict[T, Repeatability]:
    return repeatability(small_project.project(small_project.texts(**selects)), map(T, ("a", "b")))


def test_scenarios_are_given_by_name_and_all_stands_for_every_one() -> None:
    assert parse_scenarios("restart, replay,restart") == (Disturbance.RESTART, Disturbance.REPLAY)
    assert parse_scenarios("all") == tuple(Disturbance)
    for wrong in ("", "restrat", "all,restart"):
        with pytest.raises(UsageError):
            parse_scenarios(wrong)


def test_plain_statements_have_the_same_rows_in_every_run() -> None:
    assert of() == {"a": WHOLE, "b": WHOLE}


def test_a_column_that_is_not_deterministic_is_left_out_also_downstream() -> None:
    found = of(a="SELECT id, uuid() AS kind FROM STREAM landed")
    assert [each.columns for each in found.values()] == [COLUMNS[:1], COLUMNS[:1]]
    assert found[T("b")].projected([(1, "x")]) == ((1,),) and found[T("b")].left_out.keys() == {"kind"}
    assert not found[T("b")].unrepeatable


def test_rows_that_are_chosen_at_random_are_not_compared() -> None:
    found = of(a="SELECT id, kind FROM STREAM landed WHERE rand() < 0.5")
    assert {each.unrepeatable for each in found.values()} == {"rand() decides which rows a has"}
    result = compared_runs("s", A, A, found, after="after it")
    assert (result.outcome, result.fact.kind) == (CaseOutcome.SKIPPED, Shown.UNREPEATABLE)


OVER = "USING kafka OPTIONS ('kafka.bootstrap.servers'='b:9092', {}='{}')"


def over_topics(landed: str, **selects: str) -> Project:
    """Return a project in which `c` writes the topic `made`, and `landed` reads a topic."""
    columns, texts = "(id BIGINT, kind STRING", small_project.texts(**selects)
    texts["headgate.yml"] += "connectors: {kafka: {}}\n"
    side = "pipelines/sources/p/side/sql-scripts/ddl.side.sql"
    texts[side] = f"CREATE TABLE side {columns}) USING json LOCATION 'side';"
    ddl = f"CREATE TABLE landed {columns}, _offset BIGINT) {OVER.format('subscribe', landed)};"
    texts["pipelines/sources/p/landed/sql-scripts/ddl.landed.sql"] = ddl
    texts["pipelines/facts/other/c/sql-scripts/ddl.c.sql"] = (
        f"CREATE TABLE c {columns}) {OVER.format('topic', 'made')};"
    )
    return small_project.project(texts)


def test_offsets_are_compared_unless_rows_are_in_another_order() -> None:
    project = over_topics("orders", a="SELECT _offset AS id, kind FROM STREAM landed")
    for reordered, left_out in ((False, set()), (True, {"id"})):
        found = repeatability(project, map(T, ("a", "b")), reordered=reordered)
        assert [set(each.left_out) for each in found.values()] == [left_out, left_out]
        assert not found[T("b")].unrepeatable


def test_readers_of_messages_that_a_statement_writes_are_not_compared() -> None:
    project = over_topics("dev_made", c="SELECT id, kind FROM STREAM b", b="SELECT id, kind FROM STREAM side")
    found = repeatability(project, map(T, ("b", "c", "a")), base=Naming(prefix="dev_"))
    assert {name: each.unrepeatable for name, each in found.items()} == {
        "b": "", "c": "", "a": "a reads messages of c, which writes them at least once",
    }  # fmt: skip
    found = repeatability(project, map(T, ("b", "c", "a")))
    assert found[T("a")].unrepeatable == "", "without the prefix, it is the topic of another environment"


def test_equal_rows_pass_and_tables_without_rows_are_noted() -> None:
    undisturbed = {**A, T("c"): ()}
    result = compared_runs("s", undisturbed, undisturbed, dict.fromkeys(undisturbed, WHOLE), after="after it")
    assert str(result.fact) == "3 tables with 3 rows are the same after it"
    assert result.passed and result.notes == (Shown.EMPTY.of(table="c"),)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (((1, "x"),), "a differs after it: 1 missing, 0 unexpected, 0 with other values"),
        (((1, "x"), (2, "y"), (2, "y")), "a differs after it: 0 missing, 1 unexpected, 0 with other values"),
    ],
)
def test_a_lost_and_a_doubled_row_are_found_in_the_first_table(rows: tuple[Row, ...], words: str) -> None:
    result = compared_runs("s", A, {T("a"): rows, T("b"): ()}, dict.fromkeys(A, WHOLE), after="after it")
    assert (result.outcome, result.table, str(result.fact)) == (CaseOutcome.FAILED, "a", words)


def test_every_start_with_an_older_checkpoint_must_be_refused() -> None:
    assert judged_starts("s", [T("a"), T("b")], []).passed
    found = judged_starts("s", [T("a")], [T("b")])
    assert (found.outcome, found.table) == (CaseOutcome.FAILED, "b")
    assert judged_starts("s", [], []).outcome is CaseOutcome.SKIPPED
