"""What a plan may do with tables follows from what their formats can do."""

import small_project
from domain_builders import actions, deployed
from domain_builders import plan as planned

from core.model.names import TableName
from core.observed.deployment import ObservedDeployment
from core.plan.request import PlanRequest, StrategyChoice
from core.planning.planner import make_plan
from core.project.model import Project

T = TableName


def on_delta(*tables: str, **columns: str) -> Project:
    """Declare the small project with some of its tables on Delta; a keyword gives a table's columns."""
    files = small_project.texts()
    for path, text in files.items():
        name = path.rpartition(".sql")[0].rpartition(".")[2]
        if "/ddl." in path and name in tables:
            files[path] = text.replace("USING parquet", "USING delta")
        if "/ddl." in path and name in columns:
            files[path] = files[path].replace("kind STRING", columns[name])
        if "/dml." in path and name in columns:
            files[path] = text.replace("SELECT id, kind", "SELECT id, kind, 1 AS more")
    files["headgate.yml"] += "connectors: {delta: {}}\n"
    return small_project.project(files)


def running(declared: Project) -> dict[TableName, ObservedDeployment]:
    return {name: deployed(table, bindings={"landed": 0, "a": 1}) for name, table in declared.tables.items()}


def test_a_column_that_is_added_to_a_table_on_delta_rebuilds_it_with_its_readers() -> None:
    before = running(on_delta("a", "b", "c"))
    found = planned(on_delta("a", "b", "c", a="kind STRING, more INT"), before)
    assert actions(found)["a"] == actions(found)["b"] == "rebuild"
    (node,) = [node for node in found.nodes if node.table == "a"]
    assert "column more is added, and every reader of the table would stop at once" in " ".join(node.evidence)
    altered = planned(on_delta(a="kind STRING, more INT"), running(on_delta()))
    assert actions(altered)["a"] == "restart"


def test_positions_are_not_set_where_a_table_on_delta_is_written_or_streamed() -> None:
    for tables in (("a",), ("b",)):
        declared = on_delta(*tables)
        choice = StrategyChoice(T("b"), "fork")
        request = PlanRequest(tables=(T("b"),), rebuild=True, choices=(choice,))
        found = make_plan(declared, "dev", running(declared), request)
        (why,) = [refusal.summary for refusal in found.refusals if refusal.table == "b"]
        assert why == f"fork cannot be used for b: positions cannot be set yet in {tables[0]} (delta)"
