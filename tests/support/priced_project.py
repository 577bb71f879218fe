"""A project of real SQL with measured deployments, for tests of strategies: `src → a → b (windows) → c`."""

from dataclasses import replace
from typing import Any

from core.model.names import TableName as T
from core.observed.planner_input import ObservedDeployment
from core.observed.table_statistics import TableStatistics
from core.plan.model import Plan, PlanNode, StrategyOffer
from core.plan.request import PlanRequest, StrategyChoice
from core.planner.planner import make_plan
from core.project.model import Project
from core.project.revision import RevisionTexts
from core.project_reader.loader import read_project
from tests.core.project_reader.test_loader import MANIFEST

SRC = "CREATE TABLE src (id BIGINT, k STRING, v BIGINT, ts TIMESTAMP) USING json LOCATION 'in'"
TEXTS = {
    "a": (
        "CREATE TABLE a (id BIGINT, k STRING, v BIGINT, ts TIMESTAMP) USING parquet",
        "INSERT INTO a SELECT id, k, v, ts FROM STREAM src",
    ),
    "b": (
        "CREATE TABLE b (k STRING, ts TIMESTAMP, m BIGINT) USING parquet",
        "INSERT INTO b SELECT k, window.end AS ts, max(v) AS m FROM STREAM a WATERMARK ts DELAY OF INTERVAL 1 MINUTE "
        "GROUP BY k, window(ts, '10 minutes')",
    ),
    "c": ("CREATE TABLE c (k STRING, m BIGINT) USING parquet", "INSERT INTO c SELECT k, m FROM STREAM b"),
}
FIGURES = {
    "src": TableStatistics(rows=1_000, bytes=50_000, earliest=1_767_225_600.0),
    "a": TableStatistics(rows=800, bytes=40_000, gone=0, rate_rows_s=100.0, earliest=1_767_312_000.0),
    "b": TableStatistics(
        rows=80, bytes=4_000, gone=0, rate_rows_s=50.0, state_rows=8, state_bytes=512, earliest=1_767_400_000.0
    ),
    "c": TableStatistics(rows=80, bytes=3_000, gone=0, rate_rows_s=20.0),
}
"""Statistics by table. The oldest file of src is from 2026-01-01, that of a is from 2026-01-02."""


def declared(**edits: str | tuple[str, str]) -> Project:
    """Declare the project, with some statements replaced; a pair replaces DDL and statement."""
    texts = {name: (pair[0], edits[name]) if name in edits else pair for name, pair in TEXTS.items()}
    texts |= {name: pair for name, pair in edits.items() if isinstance(pair, tuple)}  # type: ignore[misc]
    files = {"headgate.yml": MANIFEST, "pipelines/sources/p/src/sql-scripts/ddl.src.sql": SRC}
    for name, (ddl, dml) in texts.items():
        product = "crm" if name == "crm" else "p"
        files[f"pipelines/facts/{product}/{name}/sql-scripts/ddl.{name}.sql"] = ddl
        files[f"pipelines/facts/{product}/{name}/sql-scripts/dml.{name}.sql"] = str(dml)
    found, problems = read_project(files)
    assert found is not None, problems
    return found


def observed(**known: dict[str, Any]) -> dict[T, ObservedDeployment]:
    """Observe all tables as deployed with their original texts, with statistics; `a={...}` overrides fields of a."""
    found = {T("src"): ObservedDeployment("running", statistics=FIGURES["src"])}
    for name, (ddl, dml) in TEXTS.items():
        found[T(name)] = ObservedDeployment(
            "running",
            deployed=RevisionTexts(ddl, dml, "trigger: 10 seconds\n"),
            statistics=FIGURES[name],
            pointer=f"{name}__v1",
        )
    return {name: replace(seen, **known.get(name, {})) for name, seen in found.items()}


def measured(name: str, **figures: Any) -> dict[str, Any]:
    """Return the fields for `observed` that change some of a table's statistics."""
    return {"statistics": replace(FIGURES[name], **figures)}


def planned(
    project: Project, *tables: str, choose: str = "", world: dict[T, ObservedDeployment] | None = None, **request: Any
) -> Plan:
    """Plan a request; `choose` is written as on the command line: `a=partial@2026-01-02 b=seam`."""
    choices = []
    for word in choose.split():
        table, _, rest = word.partition("=")
        strategy, _, at = rest.partition("@")
        choices.append(StrategyChoice(T(table), strategy.replace("-", "_"), at))
    asked = PlanRequest(tables=tuple(map(T, tables)), choices=tuple(choices), **request)
    return make_plan(project, "dev", observed() if world is None else world, asked)


def node_of(found: Plan, table: str) -> PlanNode:
    return next(node for node in found.nodes if node.table == table)


def offered(found: Plan, table: str) -> dict[str, StrategyOffer]:
    """Return the strategies offered for a table, with their offers."""
    return {offer.strategy: offer for offer in node_of(found, table).offers}


def words(found: Plan) -> list[str]:
    """Return the plan's refusals, each followed by its remedy."""
    return [f"{refusal.summary}. {refusal.remedy}" for refusal in found.refusals]
