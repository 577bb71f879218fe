"""A column that takes a wider type in place, and the consequences for its readers, on real SQL."""

from dataclasses import replace

import pytest

from core.model.names import TableName as T
from core.model.reasons import Reason
from core.model.states import State, WantedState
from core.observed.planner_input import ObservedDeployment
from core.plan.descriptions import change_words
from core.plan.model import Plan, PlanNode
from core.plan.request import PlanRequest
from core.planner.planner import make_plan
from core.project.model import Project
from core.project_reader.loader import read_project
from tests.core.planner.test_upstream_and_downstream import Pair, runs
from tests.core.project_reader.test_loader import MANIFEST
from tests.support.domain_builders import actions, evidence_of, steps

SRC = "CREATE TABLE src (id BIGINT, v BIGINT, p DECIMAL(20,6), ts TIMESTAMP) USING json LOCATION 'in'"
COLUMNS = "id BIGINT, v {}, p DECIMAL(10,2), ts TIMESTAMP"
A = f"CREATE TABLE a ({COLUMNS.format('INT')}) USING delta", "INSERT INTO a SELECT id, v, p, ts FROM STREAM src"
WIDE = A[0].replace("v INT", "v BIGINT"), A[1]
DELAY = "STREAM a WATERMARK ts DELAY OF INTERVAL 1 MINUTE"


def reader(columns: str, select: str, using: str = "delta") -> Pair:
    return f"CREATE TABLE b ({columns}) USING {using}", f"INSERT INTO b {select}"


PASSES = reader("id BIGINT, v INT", "SELECT id, v FROM STREAM a")
TAKES = reader("id BIGINT, v BIGINT", "SELECT id, v FROM STREAM a")
OTHER = reader("id BIGINT, p DECIMAL(10,2)", "SELECT id, p FROM STREAM a")
ON_FILES = reader("id BIGINT, v INT", "SELECT id, v FROM STREAM a", "parquet")
COUNTS = reader("k BIGINT, n BIGINT", f"SELECT id AS k, count(*) AS n FROM {DELAY} GROUP BY id, window(ts, '1 minute')")
SUMS = reader("k BIGINT, n BIGINT", f"SELECT id AS k, sum(v) AS n FROM {DELAY} GROUP BY id, window(ts, '1 minute')")
BY_V = reader("k BIGINT, n BIGINT", f"SELECT v AS k, count(*) AS n FROM {DELAY} GROUP BY v, window(ts, '1 minute')")
DISTINCT = reader("id BIGINT", f"SELECT id FROM (SELECT DISTINCT * FROM {DELAY})")


def declared(a: Pair, b: Pair, *, product: str = "p") -> Project:
    found, problems = read_project(
        {
            "headgate.yml": MANIFEST + "connectors: {delta: {}}\n",
            "pipelines/sources/p/src/sql-scripts/ddl.src.sql": SRC,
            "pipelines/facts/p/a/sql-scripts/ddl.a.sql": a[0],
            **({"pipelines/facts/p/a/sql-scripts/dml.a.sql": a[1]} if a[1] else {}),
            f"pipelines/facts/{product}/b/sql-scripts/ddl.b.sql": b[0],
            f"pipelines/facts/{product}/b/sql-scripts/dml.b.sql": b[1],
        }
    )
    assert found is not None, problems
    return found


def with_static_side(a: Pair, b: Pair) -> Project:
    """Declare a static side filled by a statement, which is a Problem today but may still be deployed."""
    found = declared((f"{SRC.replace('src', 'a').replace('in', 'of_a')}", ""), b)
    return replace(found, tables={**found.tables, T("a"): declared(a, OTHER).tables[T("a")]})


def planned(now: Project, *, before: Pair, tables: tuple[str, ...] = ("a",), **b: object) -> Plan:
    observed = {name: replace(each, version=1, highest_version=1) for name, each in runs(a=A, b=before).items()}
    observed[T("src")] = ObservedDeployment("running")
    observed[T("b")] = replace(observed[T("b")], **b)  # type: ignore[arg-type]  # Fields by name.
    return make_plan(now, "dev", observed, PlanRequest(tables=tuple(map(T, tables))))


def node(plan: Plan, table: str) -> PlanNode:
    (found,) = [each for each in plan.nodes if each.table == table]
    return found


def test_it_is_widened_in_place_while_its_readers_are_stopped() -> None:
    found = planned(declared(WIDE, TAKES), before=TAKES)
    assert actions(found) == {"src": "keep", "a": "restart", "b": "resume"}
    assert steps(found) == ["alter a@1", "swap a < 1", "restart a@1 < 1,2", "resume b@1 < 1", "swap b < 4"]
    assert found.steps[0].why == "the wider types; what reads it is stopped before, and goes on after"
    assert (evidence_of(node(found, "a")), change_words(node(found, "a"))) == (
        ("column v: int → bigint",),
        "wider column type",
    )
    assert evidence_of(node(found, "b")) == ("Spark would end it when a column of a takes a wider type",)
    assert change_words(node(found, "b")) == "upstream type widened"
    assert found.warnings == () == found.refusals


def test_there_is_no_undo_in_place_and_the_plan_says_so() -> None:
    found = planned(declared(WIDE, TAKES), before=TAKES)
    assert [way.act for way in found.undo] == ["plan undo", "plan undo"]
    words = "rebuild with the old text as a new version; a wider type is not taken back in place"
    assert found.undo[0].words.startswith(words)


def test_a_reader_that_is_widened_with_it_is_altered_too() -> None:
    found = planned(declared(WIDE, TAKES), before=PASSES)
    assert actions(found) == {"src": "keep", "a": "restart", "b": "restart"}
    assert steps(found)[:4] == ["alter a@1", "swap a < 1", "restart a@1 < 1,2", "alter b@1"]
    assert node(found, "b").row == "4b"


@pytest.mark.parametrize("b", [SUMS, BY_V, DISTINCT], ids=["sum", "key", "star"])
@pytest.mark.parametrize("state", [State.RUNNING, State.STOPPED])
def test_a_reader_whose_state_would_hold_it_is_rebuilt(b: Pair, state: State) -> None:
    found = planned(declared(WIDE, b), before=b, state=state, wanted=str(state))
    assert (node(found, "b").action, node(found, "b").row) == ("rebuild", "6a")
    assert "a.v, which becomes bigint" in evidence_of(node(found, "b"))[0]
    assert "Spark does not accept" in evidence_of(node(found, "b"))[0]
    assert "in_place" not in {offer.strategy for offer in node(found, "b").offers}


GROWN = A[0].replace("ts TIMESTAMP", "ts TIMESTAMP, more INT"), A[1].replace("ts FROM", "ts, 1 AS more FROM")
ALL = reader(COLUMNS.format("INT"), f"SELECT DISTINCT * FROM {DELAY}")
ALL_GROWN = reader(f"{COLUMNS.format('INT')}, more INT", ALL[1].removeprefix("INSERT INTO b "))
DOUBLES = reader("k BIGINT, n BIGINT", SUMS[1].removeprefix("INSERT INTO b ").replace("sum(v)", "sum(v * 2)"))


@pytest.mark.parametrize(
    ("before", "now"), [(ALL, ALL), (ALL, ALL_GROWN), (DISTINCT, DISTINCT)], ids=["as it was", "grown with it", "below"]
)
@pytest.mark.parametrize("state", [State.RUNNING, State.STOPPED])
def test_a_reader_whose_state_would_hold_an_added_column_through_a_star_is_rebuilt(
    before: Pair, now: Pair, state: State
) -> None:
    found = planned(declared(GROWN, now), before=before, state=state, wanted=str(state))
    b = node(found, "b")
    assert (b.action, b.reason, b.row) == ("rebuild", Reason.COLUMNS_IN_STATE, "6a")
    assert "b selects" not in str(found.warnings)
    assert any("selects * from a, which gains more: its state would hold them" in each for each in evidence_of(b))
    assert "in_place" not in {offer.strategy for offer in b.offers}


def test_a_statement_whose_table_gets_the_column_later_is_rebuilt_as_well() -> None:
    found = planned(declared(A, ALL_GROWN), before=ALL, tables=("b",))
    b = node(found, "b")
    assert (b.action, b.row) == ("rebuild", "6a") and "* takes more into its state" in evidence_of(b)
    assert "in_place" not in {offer.strategy for offer in b.offers}


@pytest.mark.parametrize("b", [COUNTS, SUMS, DOUBLES], ids=["count", "sum", "product"])
def test_a_reader_whose_state_names_its_columns_continues(b: Pair) -> None:
    assert actions(planned(declared(GROWN, b), before=b))["b"] == "resume"


def test_a_reader_with_it_as_a_static_side_is_stopped_too_and_waits_for_no_row() -> None:
    side = reader("id BIGINT, n BIGINT", "SELECT src.id, src.v AS n FROM STREAM src JOIN a ON a.id = src.id")
    found = planned(with_static_side(WIDE, side), before=side)
    assert (node(found, "b").action, node(found, "b").reason) == ("resume", Reason.TYPES_STOP_READERS)
    assert "resume b@1 < 1" in steps(found) and not [step for step in found.steps if step.do == "catch_up"]
    more = (A[0].replace("ts TIMESTAMP", "ts TIMESTAMP, more INT"), A[1].replace("ts FROM", "ts, 1 AS more FROM"))
    assert "b" not in actions(planned(with_static_side(more, side), before=side))


def test_a_reader_whose_state_does_not_hold_the_column_continues() -> None:
    assert actions(planned(declared(WIDE, COUNTS), before=COUNTS))["b"] == "resume"


def test_a_reader_out_of_scope_whose_state_would_hold_it_refuses_the_plan() -> None:
    found = planned(declared(WIDE, SUMS, product="q"), before=SUMS)
    (refusal,) = found.refusals
    assert refusal.table == "a" and refusal.summary.startswith("b reads a.v, which becomes bigint, at dml.b.sql:1: its")
    assert refusal.remedy == "include b in the plan, which rebuilds it: --children all"


def test_a_reader_at_rest_that_does_not_use_the_column_stays_at_rest() -> None:
    found = planned(declared(WIDE, OTHER), before=OTHER, state=State.STOPPED, wanted=WantedState.STOPPED)
    assert actions(found) == {"src": "keep", "a": "restart"}


def test_files_of_a_reader_would_be_of_two_types_and_refuse_the_plan() -> None:
    found = planned(declared(WIDE, ON_FILES), before=ON_FILES)
    (refusal,) = found.refusals
    words = "b writes a.v, which becomes bigint, into its column v int: its files would have two types"
    assert refusal.summary.startswith(words)
    cast = reader("id BIGINT, v INT", "SELECT id, CAST(v AS INT) AS v FROM STREAM a", "parquet")
    assert not planned(declared(WIDE, cast), before=cast).refusals
    assert not planned(declared(WIDE, OTHER), before=OTHER).refusals


def test_a_narrower_reader_is_warned_of_overflow_and_refused_if_values_would_be_rounded() -> None:
    found = planned(declared(WIDE, PASSES), before=PASSES)
    assert actions(found) == {"src": "keep", "a": "restart", "b": "resume"} and not found.refusals
    assert [(warning.table, warning.summary) for warning in found.warnings] == [
        ("b", "writes a.v, which becomes bigint, into its column v int: a value that does not fit there would end it")
    ]
    finer = (A[0].replace("DECIMAL(10,2)", "DECIMAL(12,4)"), A[1])
    (refusal,) = planned(declared(finer, OTHER), before=OTHER).refusals
    assert refusal.summary.endswith("its column p decimal(10,2): Spark would silently round the values")
    longer = (A[0].replace("DECIMAL(10,2)", "DECIMAL(12,2)"), A[1])
    assert not planned(declared(longer, OTHER), before=OTHER).refusals


def test_a_table_that_gets_a_column_as_well_is_altered_once() -> None:
    both = (WIDE[0].replace("ts TIMESTAMP", "ts TIMESTAMP, more INT"), WIDE[1].replace("ts FROM", "ts, 1 AS more FROM"))
    found = planned(declared(both, TAKES), before=TAKES)
    assert steps(found)[0] == "alter a@1" and node(found, "a").row == "4b"
    star = reader("id BIGINT, v BIGINT, p DECIMAL(10,2), ts TIMESTAMP", "SELECT * FROM STREAM a")
    (refusal,) = planned(declared(both, star), before=star).refusals
    assert "its own table has no column more" in refusal.summary
