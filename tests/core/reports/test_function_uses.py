"""Who uses a function, and what another body of it would change."""

from core.changes.kinds import ChangeKind
from core.model.actions import Action
from core.model.names import TableName as T
from core.project.model import Project
from core.project.revision import RevisionTexts
from core.project_reader.loader import read_project
from core.project_reader.parse_cache import ParseCache
from core.project_reader.revision_reader import revision_of
from core.reports.function_uses import FunctionUser, function_impact, function_uses

HEAD = "project: s\nid: 12345678-1234-5678-1234-567812345678\ndefault_env: dev\nenvironments: {dev: {}}\n"
VAT = "-- RETURN nothing.\nCREATE FUNCTION vat(x DOUBLE) RETURNS DOUBLE\nRETURN x * 0.2; -- VAT\n"


def texts() -> dict[str, str]:
    found = {
        "headgate.yml": HEAD,
        "pipelines/sources/p/src/sql-scripts/ddl.src.sql": (
            "CREATE TABLE src (id BIGINT, v DOUBLE, ts TIMESTAMP) USING json LOCATION 'i';"
        ),
        "functions/vat.sql": VAT,
        "functions/net.sql": "CREATE FUNCTION net(x DOUBLE) RETURNS DOUBLE RETURN x - vat(x)",
        "functions/unused.sql": "CREATE FUNCTION unused() RETURNS INT RETURN 1",
    }
    for table, select in {
        "a": "SELECT id, vat(v) AS v FROM STREAM src",
        "b": "SELECT id, sum(net(v)) AS v FROM STREAM src WATERMARK ts DELAY OF INTERVAL 1 MINUTE "
        "GROUP BY id, window(ts, '1 minute')",
        "c": "SELECT id, v FROM STREAM a",
    }.items():
        folder = f"pipelines/facts/p/{table}/sql-scripts"
        found[f"{folder}/ddl.{table}.sql"] = f"CREATE TABLE {table} (id BIGINT, v DOUBLE) USING parquet;"
        found[f"{folder}/dml.{table}.sql"] = f"INSERT INTO {table} {select};"
    return found


def project(found: dict[str, str]) -> Project:
    read, problems = read_project(found)
    assert read is not None, problems
    return read


def test_users_are_direct_or_through_functions_and_older_bodies_are_found() -> None:
    read = project(texts())
    older = project({**texts(), "functions/vat.sql": VAT.replace("0.2", "0.1")})
    deployed = {
        T("a"): revision_of(older.tables[T("a")]).texts,
        T("b"): revision_of(read.tables[T("b")]).texts,
        T("c"): RevisionTexts(),
    }
    found = {each.function.name: (each.tables, each.functions, each.older) for each in function_uses(read, deployed)}
    assert found == {
        "net": (("b",), (), ()),
        "unused": ((), (), ()),
        "vat": (("a", "b"), ("net",), ("a",)),
    }


def test_the_impact_of_a_body_has_the_kind_of_change_of_each_user_and_what_is_downstream() -> None:
    read = project(texts())
    uses = {each.function.name: each for each in function_uses(read, {})}
    found = function_impact(read, texts(), uses["vat"], "dev", ParseCache())
    assert found.users == (
        FunctionUser(T("a"), (), ChangeKind.FILTER_OR_PROJECTION, Action.RESTART),
        FunctionUser(T("b"), ("net",), ChangeKind.STATE_CHANGED, Action.REBUILD),
    )
    assert found.downstream == ("c",)
    assert function_impact(read, texts(), uses["unused"], "dev", ParseCache()).users == ()
