"""Lineage over a project: up to landed data, down to every reader, without parsing unrelated statements."""

from typing import Any

import pytest

from core.lineage.column_lineage import DOWNSTREAM, UPSTREAM, ColumnLineage, LineageTracer
from core.lineage.table_graph import table_graph
from core.model.names import TableName as T
from core.project.model import Project
from core.project_reader.loader import read_project
from core.sql.lineage.model import ColumnOrigin, InputKind
from tui.presentation.reports.column_lineage import tree

HEAD = "project: p\nid: 5b0e4a52-9df2-4a52-9c0c-0f6f8d1a2b3c\ndefault_env: dev\nenvironments: {dev: {}}\n"
LANDED = "CREATE TABLE landed (id BIGINT, Kind STRING, amount INT) USING json LOCATION 'in'"
TABLES = {
    "kept": (
        "CREATE TABLE kept (id BIGINT, kind STRING, amount INT) USING parquet",
        "-- A comment first.\nINSERT INTO kept\nSELECT id, kind,\n  amount * 2 AS amount\nFROM STREAM landed\n"
        "WHERE kind <> 'x'",
    ),
    "counted": (
        "CREATE TABLE counted (kind STRING, n BIGINT) USING parquet",
        "INSERT INTO counted SELECT kind, n FROM (SELECT k.kind, size(array(1)) AS n FROM STREAM kept AS k) AS q",
    ),
    "both": (
        "CREATE TABLE both (id BIGINT, word STRING) USING parquet",
        "INSERT INTO both SELECT id, kind AS word FROM STREAM kept UNION ALL SELECT id, kind FROM STREAM landed",
    ),
}


def project(**dml: str) -> Project:
    """Return a project of the tables above; keyword arguments replace statements by table."""
    folder = "pipelines/sources/p/landed/sql-scripts"
    texts = {"headgate.yml": HEAD, f"{folder}/ddl.landed.sql": LANDED}
    for name, (ddl, statement) in TABLES.items():
        folder = f"pipelines/facts/p/{name}/sql-scripts"
        texts[f"{folder}/ddl.{name}.sql"] = ddl
        texts[f"{folder}/dml.{name}.sql"] = dml.get(name, statement)
    found, problems = read_project(texts)
    assert found is not None, problems
    return found


def traced(words: str, direction: str = UPSTREAM, **dml: str) -> ColumnLineage:
    table, _, column = words.partition(".")
    return LineageTracer(project(**dml)).trace(ColumnOrigin(table, column), direction)  # type: ignore[arg-type] (a test's own name)


def shown(found: ColumnLineage) -> list[str]:
    """Return edges as `a.x -> b.y`, conditions with their clause."""
    return [
        f"{edge.source.table}.{edge.source.column or '*'} -> {edge.target.table}.{edge.target.column or '*'}"
        + (f" {edge.clause}" if edge.kind is InputKind.CONDITION else "")
        for edge in found.edges
    ]


def test_a_column_is_traced_to_landed_tables_with_all_row_conditions() -> None:
    found = traced("counted.kind")
    assert shown(found) == [
        "kept.kind -> counted.kind",
        "landed.Kind -> kept.kind",
        "kept.* -> counted.* FROM",
        "landed.Kind -> kept.* WHERE",
        "landed.* -> kept.* FROM",
    ]
    assert [(n.at, n.type, n.landed) for n in found.nodes if n.landed] == [
        (ColumnOrigin("landed", "Kind"), "string", True),
        (ColumnOrigin("landed"), "", True),
    ]


def test_a_column_is_followed_down_through_values_and_through_rows() -> None:
    assert shown(traced("landed.Kind", DOWNSTREAM)) == [
        "landed.Kind -> both.word",
        "landed.Kind -> kept.kind",
        "landed.Kind -> kept.* WHERE",
        "kept.kind -> both.word",
        "kept.kind -> counted.kind",
        "kept.* -> both.* FROM",
        "kept.* -> counted.* FROM",
    ]


def test_an_edge_names_file_line_and_expression() -> None:
    (edge,) = [edge for edge in traced("kept.amount").edges if edge.target.column]
    assert (edge.path, edge.line) == ("pipelines/facts/p/kept/sql-scripts/dml.kept.sql", 4)
    assert edge.expression == "amount * 2"


def test_the_rows_of_a_table_are_read_in_the_line_that_names_it_first() -> None:
    twice = "INSERT INTO both\nSELECT id, kind AS word\nFROM STREAM kept\nUNION ALL\nSELECT id, kind\nFROM STREAM kept"
    found = {edge.target.table: edge.line for edge in traced("both.word", both=twice).edges if edge.clause == "FROM"}
    assert found == {"both": 3, "kept": 5}


def test_steps_inside_a_statement_are_on_the_edge() -> None:
    (edge,) = [edge for edge in traced("counted.kind").edges if edge.target == ColumnOrigin("counted", "kind")]
    assert [(step.name, step.expression) for step in edge.through] == [("q.kind", "kind")]


def test_an_unresolved_name_is_a_gap_at_its_position_and_downstream() -> None:
    broken = "INSERT INTO kept SELECT id, nope AS kind, amount FROM STREAM landed WHERE gone > 1"
    for words in ("kept.kind", "counted.kind", "both.word"):
        gaps = {(gap.at.column, gap.name) for gap in traced(words, kept=broken).gaps}
        assert gaps == {("kind", "nope"), ("", "gone")}
    assert {gap.name for gap in traced("kept.id", kept=broken).gaps} == {"gone"}
    assert {gap.name for gap in traced("landed.amount", DOWNSTREAM, kept=broken).gaps} == {"nope", "gone"}


def test_a_declared_column_that_the_statement_does_not_write_is_a_gap() -> None:
    starred = "INSERT INTO counted SELECT * FROM STREAM kept"
    assert [(gap.at.column, gap.reason) for gap in traced("counted.n", counted=starred).gaps] == [
        ("n", "the statement does not write it")
    ]


def test_a_star_without_some_columns_is_a_valid_statement_and_is_followed() -> None:
    starred = "INSERT INTO counted SELECT * EXCEPT (id, amount), 1 AS n FROM STREAM kept"
    found = traced("counted", counted=starred)
    assert shown(found)[0] == "kept.kind -> counted.kind"
    assert found.gaps == ()


def test_only_statements_on_the_way_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    import core.sql.lineage.statement_lineage as reading

    read: list[str] = []
    original = reading.lineage_of

    def listening(parsed: Any, columns_of: Any) -> Any:
        read.append(parsed.writes)
        return original(parsed, columns_of)

    monkeypatch.setattr(reading, "lineage_of", listening)
    tracer = LineageTracer(project())
    tracer.trace(ColumnOrigin("kept", "id"), UPSTREAM)
    tracer.trace(ColumnOrigin("kept", "kind"), UPSTREAM)
    assert read == ["kept"]


@pytest.mark.parametrize("direction", [UPSTREAM, DOWNSTREAM])
def test_the_lineage_of_a_project_follows_the_edges_of_its_table_graph(direction: str) -> None:
    declared = project()
    tracer, graph = LineageTracer(declared), table_graph(declared)
    for table in tracer.tables():
        for edge in tracer.trace(ColumnOrigin(table), direction).edges:
            assert edge.target.table in graph.children(edge.source.table)


KEYED = {
    "headgate.yml": f"{HEAD}connectors: {{delta: {{}}}}\n",
    "pipelines/sources/p/landed/sql-scripts/ddl.landed.sql": LANDED,
    "pipelines/facts/p/kept/kept.yml": "mode: upsert\nkey: [id]\nsequence: amount\n",
    "pipelines/facts/p/kept/sql-scripts/ddl.kept.sql": TABLES["kept"][0].replace("parquet", "delta"),
    "pipelines/facts/p/kept/sql-scripts/dml.kept.sql": TABLES["kept"][1],
    "pipelines/facts/p/marked/sql-scripts/ddl.marked.sql": (
        "CREATE TABLE marked (id BIGINT, what STRING, n BIGINT, at TIMESTAMP) USING delta"
    ),
    "pipelines/facts/p/marked/sql-scripts/dml.marked.sql": (
        "INSERT INTO marked SELECT id, upper(k._change_type) AS what, _commit_version AS n,\n"
        "_commit_timestamp AS at FROM STREAM kept AS k WHERE _change_type <> 'update_preimage'"
    ),
}


@pytest.mark.parametrize("said", [False, True], ids=["implied", "written"])
def test_change_feed_columns_are_traced_to_the_feed_of_their_table(said: bool) -> None:
    texts = dict(KEYED)
    if said:
        place = "pipelines/facts/p/marked/sql-scripts/dml.marked.sql"
        texts[place] = texts[place].replace("STREAM kept", "STREAM kept WITH ('readChangeFeed'='true')")
    keyed, problems = read_project(texts)
    assert keyed is not None and not problems, problems
    found = LineageTracer(keyed).trace(ColumnOrigin(T("marked")), UPSTREAM)
    assert found.gaps == ()
    assert {"kept._change_type -> marked.what", "kept._commit_version -> marked.n"} < {*shown(found)}
    assert {"kept._commit_timestamp -> marked.at", "kept._change_type -> marked.* WHERE"} < {*shown(found)}
    feed = {str(node.at.column): node.type for node in found.nodes if node.of_feed}
    assert feed == {"_change_type": "string", "_commit_version": "bigint", "_commit_timestamp": "timestamp"}
    down = LineageTracer(keyed).trace(ColumnOrigin(T("kept"), "id"), DOWNSTREAM)
    assert shown(down) == ["kept.id -> marked.id"] and down.gaps == ()


def test_a_stream_of_rows_has_no_columns_of_a_change_feed() -> None:
    found = traced("both.word", both="INSERT INTO both SELECT id, _change_type AS word FROM STREAM kept")
    assert [(gap.name, gap.reason) for gap in found.gaps] == [("_change_type", "no source has such a column")]


def test_the_tree_marks_columns_of_the_change_feed() -> None:
    keyed, _ = read_project(KEYED)
    assert keyed is not None
    rows = tree(LineageTracer(keyed).trace(ColumnOrigin(T("marked"), "n"), UPSTREAM))
    assert [(row.name, row.type, row.place) for row in rows] == [
        ("marked.n", "bigint", "dml.marked.sql:1"),
        ("kept._commit_version", "bigint", "change feed of kept"),
    ]
