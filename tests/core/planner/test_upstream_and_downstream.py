"""The effect of a parent's outcome on its readers, on real SQL."""

from dataclasses import replace

import pytest

from core.model.names import TableName as T
from core.model.reasons import Reason
from core.observed.planner_input import ObservedDeployment
from core.observed.table_statistics import Headroom
from core.plan.model import Plan
from core.plan.request import PlanRequest
from core.planner.planner import make_plan
from core.project.model import Pool, Project
from core.project.revision import RevisionTexts
from core.project_reader.loader import read_project
from core.project_reader.revision_reader import revision_of
from tests.core.project_reader.test_loader import MANIFEST
from tests.support.domain_builders import actions, evidence_of, steps

SRC = "CREATE TABLE src (id BIGINT, k STRING, v BIGINT, ts TIMESTAMP) USING json LOCATION 'in'"
A = "CREATE TABLE a (id BIGINT, ts TIMESTAMP) USING parquet", "INSERT INTO a SELECT id, ts FROM STREAM src"
GROWN = (
    "CREATE TABLE a (id BIGINT, ts TIMESTAMP, k STRING) USING parquet",
    "INSERT INTO a SELECT id, ts, k FROM STREAM src",
)
B = "CREATE TABLE b (id BIGINT) USING parquet", "INSERT INTO b SELECT id FROM STREAM a"
NAMING = "CREATE TABLE b (id BIGINT, k STRING) USING parquet", "INSERT INTO b SELECT id, k FROM STREAM a"
STAR = "CREATE TABLE b (id BIGINT, ts TIMESTAMP) USING parquet", "INSERT INTO b SELECT * FROM STREAM a"
COUNT = (
    "CREATE TABLE b (ts TIMESTAMP, n BIGINT) USING parquet",
    "INSERT INTO b SELECT window.end AS ts, count(*) AS n FROM STREAM a WATERMARK ts DELAY OF INTERVAL 1 MINUTE "
    "GROUP BY window(ts, '5 minutes')",
)
COUNT_BY_K = (
    "CREATE TABLE b (k STRING, ts TIMESTAMP, n BIGINT) USING parquet",
    "INSERT INTO b SELECT k, window.end AS ts, count(*) AS n FROM STREAM a WATERMARK ts DELAY OF INTERVAL 1 MINUTE "
    "GROUP BY k, window(ts, '5 minutes')",
)
DISTINCT = (
    "CREATE TABLE b (id BIGINT, ts TIMESTAMP) USING parquet",
    "INSERT INTO b SELECT DISTINCT * FROM STREAM a WATERMARK ts DELAY OF INTERVAL 1 MINUTE",
)
Pair = tuple[str, str]


def declared(a: Pair, b: Pair, *, product: str = "p") -> Project:
    found, problems = read_project(
        {
            "headgate.yml": MANIFEST,
            "pipelines/sources/p/src/sql-scripts/ddl.src.sql": SRC,
            "pipelines/facts/p/a/sql-scripts/ddl.a.sql": a[0],
            "pipelines/facts/p/a/sql-scripts/dml.a.sql": a[1],
            f"pipelines/facts/{product}/b/sql-scripts/ddl.b.sql": b[0],
            f"pipelines/facts/{product}/b/sql-scripts/dml.b.sql": b[1],
        }
    )
    assert found is not None, problems
    return found


def runs(**tables: Pair) -> dict[T, ObservedDeployment]:
    """Observe src, and pairs of texts as deployed."""
    texts = {T(name): RevisionTexts(ddl, dml, "trigger: 10 seconds\n") for name, (ddl, dml) in tables.items()}
    return {T("src"): ObservedDeployment("running")} | {
        name: ObservedDeployment("running", deployed=each) for name, each in texts.items()
    }


def planned(now: Project, **before: Pair) -> Plan:
    return make_plan(now, "dev", runs(**before), PlanRequest(tables=(T("a"),)))


@pytest.mark.parametrize(
    ("before", "after", "action", "row"),
    [
        (B, B, "", ""),
        (B, NAMING, "restart", "4"),
        (STAR, STAR, "restart", "0"),
        (COUNT, COUNT, "", ""),
        (COUNT, COUNT_BY_K, "rebuild", "6a"),
        (DISTINCT, DISTINCT, "rebuild", "6a"),
    ],
    ids=["does not use it", "names it", "star", "counts rows", "groups by it", "distinct star"],
)
def test_an_added_column_of_a_parent_includes_the_readers_that_use_it(
    before: Pair, after: Pair, action: str, row: str
) -> None:
    found = planned(declared(GROWN, after), a=A, b=before)
    assert actions(found)["a"] == "restart"
    assert actions(found).get("b", "") == action
    assert [node.row for node in found.nodes if node.table == "b"] == ([row] if row else [])


def test_a_reader_that_names_the_new_column_restarts_after_its_parent_with_its_own_column() -> None:
    found = planned(declared(GROWN, NAMING), a=A, b=B)
    assert steps(found) == [
        "alter a@1", "restart a@1 < 1", "swap a < 2", "alter b@1", "restart b@1 < 2,4", "swap b < 5",
    ]  # fmt: skip
    assert found.nodes[-1].because_of == ("a",)
    assert evidence_of(found.nodes[-1])[-1] == "reads the added column a.k at dml.b.sql:1"


def test_a_foreign_reader_of_the_new_column_is_named_and_left_alone() -> None:
    found = planned(declared(GROWN, STAR, product="q"), a=A, b=STAR)
    assert "b" not in actions(found)
    assert found.warnings[0].summary == "selects * and will write the new column of a after its next restart"


def test_a_reader_at_rest_is_not_started_for_a_column() -> None:
    observed = runs(a=A, b=STAR)
    observed[T("b")] = replace(observed[T("b")], state="stopped", wanted="stopped")
    found = make_plan(declared(GROWN, STAR), "dev", observed, PlanRequest(tables=(T("a"),)))
    assert "b" not in actions(found)


# Pools and engines.


def on(pool: Pool | None = None, engine: str = "", *, now: str = "", b: Pair = COUNT) -> Plan:
    """Plan b, which was started on a certain pool and engine; the environment's pool is the default one."""
    project = declared(A, b)
    observed = {
        name: ObservedDeployment("running", deployed=revision_of(table).texts, pool=pool, engine=engine)
        for name, table in project.tables.items()
    }
    return make_plan(project, "dev", observed, PlanRequest(tables=(T("b"),)), headroom=Headroom(engine=now))


def test_an_unknown_pool_or_engine_is_no_change() -> None:
    assert on().empty and on(Pool(), "4.2.0").empty and on(now="4.2.0").empty and on(Pool(), "4.2.0", now="4.2.0").empty


def test_a_pool_or_an_engine_that_changed_restarts_on_the_checkpoint() -> None:
    moved, risen = on(Pool("other")), on(Pool(), "4.2.0", now="4.3.0")
    assert [(n.row, n.action) for n in (moved.nodes[-1], risen.nodes[-1])] == [("12", "restart"), ("13", "restart")]
    assert steps(moved) == ["restart b@1"] == steps(risen)
    assert risen.nodes[-1].reason is Reason.ENGINE_CHANGED


def test_an_older_engine_rebuilds() -> None:
    assert actions(on(Pool(), "4.10.0", now="4.9.0"))["b"] == "rebuild"


def test_pinned_configuration_is_reported_as_ignored() -> None:
    found = on(Pool(conf=(("spark.sql.shuffle.partitions", "8"),)))
    assert found.empty and (found.nodes[-1].row, found.nodes[-1].action) == ("11b", "keep")
    assert [warned.summary for warned in found.warnings if warned.table == "b"] == [
        "spark.sql.shuffle.partitions: 8 → its default will be ignored: the checkpoint keeps the old value; "
        "a rebuild would apply it"
    ]
    assert on(Pool(conf=(("spark.sql.shuffle.partitions", "8"),)), b=B).nodes[-1].row != "11b"


def test_a_pool_whose_settings_decide_rows_is_more_than_another_pool() -> None:
    found = on(Pool("other", conf=(("spark.sql.ansi.enabled", "false"),)))
    assert (found.nodes[-1].row, found.nodes[-1].action) == ("6a", "rebuild")
