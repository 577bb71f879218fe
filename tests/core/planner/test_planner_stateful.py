"""Plans for stateful statements: which continue from the checkpoint, and what operators must acknowledge."""

import pytest

from core.model.names import TableName as T
from core.observed.planner_input import ObservedDeployment
from core.observed.table_statistics import Headroom
from core.plan.confirmation import confirmation_for_plan
from core.plan.model import Plan
from core.plan.request import PlanRequest
from core.planner.planner import make_plan
from core.project.model import Pool
from core.project.revision import RevisionTexts
from core.project_reader.loader import read_project
from tests.core.project_reader.test_loader import MANIFEST
from tests.support.domain_builders import actions, steps

DDL = "CREATE TABLE a (k STRING, ts TIMESTAMP, s BIGINT) USING parquet"
SRC = "CREATE TABLE src (k STRING, v BIGINT, ts TIMESTAMP) USING json LOCATION 'in'"
DML = (
    "INSERT INTO a SELECT k, window.end AS ts, sum(v) AS s FROM STREAM src WATERMARK ts DELAY OF INTERVAL 1 MINUTE "
    "GROUP BY k, window(ts, '5 minutes')"
)
READER = "INSERT INTO b SELECT DISTINCT k, ts FROM STREAM a WATERMARK ts DELAY OF INTERVAL 1 MINUTE"


def planned(dml: str, ddl: str = DDL, *, old: str = DML, engine: str = "", pool: Pool | None = None) -> Plan:
    """Plan an edit of the running aggregate."""
    found, problems = read_project(
        {
            "headgate.yml": MANIFEST,
            "pipelines/sources/p/src/sql-scripts/ddl.src.sql": SRC,
            "pipelines/sources/p/dim/sql-scripts/ddl.dim.sql": "CREATE TABLE dim (id BIGINT) USING json LOCATION 'dim'",
            "pipelines/facts/p/a/sql-scripts/ddl.a.sql": ddl,
            "pipelines/facts/p/a/sql-scripts/dml.a.sql": dml,
            "pipelines/facts/p/b/sql-scripts/ddl.b.sql": "CREATE TABLE b (k STRING, ts TIMESTAMP) USING parquet",
            "pipelines/facts/p/b/sql-scripts/dml.b.sql": READER,
        }
    )
    assert found is not None, problems
    observed = {
        T("src"): ObservedDeployment("running"),
        T("dim"): ObservedDeployment("running"),
        T("a"): ObservedDeployment(
            "running", deployed=RevisionTexts(DDL, old, "trigger: 10 seconds\n"), engine="4.2.0", pool=pool
        ),
        T("b"): ObservedDeployment("running"),
    }
    return make_plan(found, "dev", observed, PlanRequest(tables=(T("a"),)), headroom=Headroom(engine=engine))


def test_an_edit_above_the_state_restarts_and_warns_readers_that_aggregate_across_it() -> None:
    found = planned(f"{DML} HAVING sum(v) > 3")
    assert (actions(found)["a"], found.nodes[-1].row, steps(found)) == ("restart", "6c", ["restart a@1"])
    assert confirmation_for_plan(found).level == "C1"
    assert [(warned.table, warned.summary) for warned in found.warnings] == [
        ("b", "keeps its state, so its aggregates mix rows from before and after a takes its new text")
    ]


def test_a_column_above_the_state_is_added_before_the_restart() -> None:
    found = planned(DML.replace("AS s", "AS s, sum(v) * 2 AS d"), DDL.replace("s BIGINT", "s BIGINT, d BIGINT"))
    assert steps(found) == ["alter a@1", "restart a@1 < 1", "swap a < 2"]


def test_a_new_column_does_not_hide_the_filter_above_the_state_from_readers_that_aggregate() -> None:
    grown, ddl = DML.replace("AS s", "AS s, sum(v) * 2 AS d"), DDL.replace("s BIGINT", "s BIGINT, d BIGINT")
    across = ("b", "keeps its state, so its aggregates mix rows from before and after a takes its new text")
    found = planned(f"{grown} HAVING sum(v) > 3", ddl)
    assert (found.nodes[-1].row, [(each.table, each.summary) for each in found.warnings]) == ("4", [across])
    assert planned(grown, ddl).warnings == ()


def test_a_new_column_does_not_hide_another_filter_of_a_stateless_statement_from_readers_that_aggregate() -> None:
    old, ddl = "INSERT INTO a SELECT k, ts, v AS s FROM STREAM src", DDL.replace("s BIGINT", "s BIGINT, d BIGINT")
    grown = old.replace("AS s", "AS s, v * 2 AS d")
    across = [("b", "keeps its state, so its aggregates mix rows from before and after a takes its new text")]
    for edited in (f"{grown} WHERE v > 9", grown.replace("v AS s", "v + 1 AS s")):
        found = planned(edited, ddl, old=old)
        assert (found.nodes[-1].row, [(each.table, each.summary) for each in found.warnings]) == ("4", across)
    assert planned(grown, ddl, old=old).warnings == ()


def test_a_newer_spark_does_not_hide_another_watermark_delay_which_must_be_acknowledged() -> None:
    found = planned(DML.replace("1 MINUTE", "2 MINUTES"), engine="4.3.0")
    assert (found.nodes[-1].row, confirmation_for_plan(found).level) == ("13", "C3")
    assert "windows that its old watermark closed stay closed" in found.warnings[0].summary


def test_an_edit_does_not_hide_configuration_that_the_checkpoint_pins() -> None:
    pool = Pool(conf=(("spark.sql.streaming.stateStore.providerClass", "before"),))
    found = planned(f"{DML} HAVING sum(v) > 3", pool=pool)
    assert found.nodes[-1].row == "6c"
    assert [each.kind for each in found.warnings if each.table == "a"] == ["configuration_pinned"]


def test_another_watermark_delay_must_be_acknowledged_by_the_plans_name() -> None:
    found = planned(DML.replace("1 MINUTE", "2 MINUTES"))
    assert (actions(found)["a"], steps(found)) == ("restart", ["restart a@1"])
    assert (confirmation_for_plan(found).level, confirmation_for_plan(found).text) == ("C3", f"dev {found.hash[:4]}")
    assert "windows that its old watermark closed stay closed" in found.warnings[0].summary


def test_qualifiers_are_no_change_where_the_columns_of_all_parents_are_declared() -> None:
    joined = DML.replace("GROUP BY k", "JOIN dim ON dim.id = src.v GROUP BY k")
    named = joined.replace("SELECT k", "SELECT src.k").replace("sum(v)", "sum(src.v)").replace("BY k", "BY src.k")
    other = joined.replace("SELECT k", "SELECT dim.k").replace("BY k", "BY dim.k")
    assert actions(planned(named, old=joined))["a"] == "record"
    assert actions(planned(other, old=joined))["a"] == "rebuild"


@pytest.mark.parametrize(
    "dml",
    [
        DML.replace("sum(", "max("),
        DML.replace(" GROUP", " WHERE v > 3 GROUP"),
        f"{DML} HAVING k = 'x'",
        DML.replace("1 MINUTE", "2 MINUTES").replace("sum(", "max("),
    ],
)
def test_an_edit_of_the_state_or_below_it_rebuilds(dml: str) -> None:
    assert actions(planned(dml)) == {"src": "keep", "a": "rebuild", "b": "rebuild"}
