"""Statements that read a column which only the declared parent has, not the version to which a plan binds them."""

from dataclasses import replace
from typing import Any

import pytest

from core.model.names import TableName as T
from core.plan.request import PlanRequest
from core.planner.planner import make_plan
from core.planner.warning_and_refusal_kinds import PlanRefusalKind
from core.project.model import Project
from tests.core.planner.test_upstream_and_downstream import A, declared, runs

RENAMED = (
    "CREATE TABLE a (id BIGINT, at TIMESTAMP) USING parquet",
    "INSERT INTO a SELECT id, ts AS at FROM STREAM src",
)
OLD = "CREATE TABLE b (id BIGINT, t TIMESTAMP) USING parquet", "INSERT INTO b SELECT id, ts AS t FROM STREAM a"
NEW = OLD[0], "INSERT INTO b SELECT id, at AS t FROM STREAM a"


def refused(now: Project, *tables: str, **before: Any) -> list[tuple[str, str, str]]:
    plan = make_plan(now, "dev", runs(**before), PlanRequest(tables=tuple(map(T, tables))))
    assert all(each.kind == PlanRefusalKind.BOUND_VERSION_LACKS.code for each in plan.refusals)
    assert not plan.refusals or plan.steps == ()
    return [(each.table, str(each.summary), str(each.remedy)) for each in plan.refusals]


def test_a_reader_of_a_renamed_column_is_refused_unless_its_parent_is_deployed_with_it() -> None:
    now, lacks = declared(RENAMED, NEW), "b reads at of a, but the plan binds it to a__v1, which lacks at"
    assert refused(now, "b", a=A, b=OLD) == [("b", lacks, "plan both: headgate plan a b")]
    assert refused(now, "b", a=A) == [("b", lacks, "plan both: headgate plan a b")]
    assert refused(now, "a", "b", a=A, b=OLD) == []
    assert refused(now, "a", "b") == []


@pytest.mark.parametrize("reader", [OLD, (OLD[0], "INSERT INTO b SELECT id, ts AS t FROM STREAM a WHERE id > 0")])
def test_a_reader_of_other_columns_is_not_refused(reader: tuple[str, str]) -> None:
    grown = A[0].replace("ts TIMESTAMP", "ts TIMESTAMP, k STRING"), A[1].replace("id, ts", "id, ts, k")
    assert refused(declared(grown, reader), "b", a=A, b=OLD) == []


def test_a_star_reads_the_columns_that_the_bound_version_has() -> None:
    grown = A[0].replace("ts TIMESTAMP", "ts TIMESTAMP, k STRING"), A[1].replace("id, ts", "id, ts, k")
    ddl = "CREATE TABLE b (id BIGINT, ts TIMESTAMP) USING parquet"
    before, edited = ((ddl, f"INSERT INTO b SELECT * FROM STREAM a{more}") for more in ("", " WHERE id > 0"))
    assert refused(declared(grown, edited), "b", a=A, b=before) == []


def test_a_parent_that_the_plan_only_resumes_keeps_its_deployed_columns() -> None:
    stopped = {name: replace(each, wanted="stopped") for name, each in runs(a=A, b=OLD).items() if name == "a"}
    observed = runs(a=A, b=OLD) | {T("a"): replace(stopped[T("a")], state="stopped")}
    plan = make_plan(declared(RENAMED, NEW), "dev", observed, PlanRequest(tables=(T("b"),)))
    assert [each.kind for each in plan.refusals] == [PlanRefusalKind.BOUND_VERSION_LACKS.code]
