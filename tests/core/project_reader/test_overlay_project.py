"""The project of an overlay: what differs from the base and what is downstream is built, and the rest is read there."""

from dataclasses import replace

import manifest_project
import pytest
import small_project
from java_class_files import FMT, fmt_jar
from ledger_rows import deployment_row, external_row

from core.model.names import TableName as T
from core.model.problems import Problem
from core.observed.versions import Deployment
from core.policy.roles_and_rules import Policy
from core.project.naming import Naming
from core.project.overlay import Overlay, overlay_as_text, overlay_from_text, overlay_prefix, parse_period
from core.project_reader.jar_files import describe_jar
from core.project_reader.loader import read_project
from core.project_reader.manifest import read_manifest
from core.project_reader.manifest_layout import generated_texts
from core.project_reader.overlay_project import Base, OverlayProject, overlay_manifest, overlay_project
from core.project_reader.revision_reader import revision_of

FILTERED = "SELECT id, kind FROM STREAM landed WHERE id > 3"
KEYED = {"pipelines/facts/p/a/a.yml": "mode: upsert\nkey: [id]\nsequence: id\n"}


def base(texts: dict[str, str], **fields: dict[str, object]) -> Base:
    """Return an environment that runs a project, each statement at version 2."""
    serving: dict[T, Deployment] = {}
    for name, table in small_project.project(texts).tables.items():
        revision = revision_of(table)
        row = external_row if table.external else deployment_row
        known = (
            {"folder": "/lake/landing"} if table.external else {"version": 2, "folder": f"/lake/tables/dev_{name}__v2"}
        )
        known |= {"texts": revision.texts, "revision": revision.hash, "format": table.parsed_ddl.format}
        known |= {"mode": "upsert/1" if table.settings.upserts else "append"}
        serving[name] = row(name, **(known | fields.get(name, {})))
    return Base("dev", Naming(prefix="dev_"), "/data", serving)


def overlay(texts: dict[str, str], over: Base, **more: object) -> OverlayProject:
    return overlay_project(small_project.project(texts), texts, over, more.pop("pinned", {}), **more)  # type: ignore[arg-type]


def test_a_change_is_built_with_everything_downstream_and_inputs_are_external() -> None:
    found = overlay(small_project.texts(b=f"{FILTERED.replace('landed', 'a')}"), base(small_project.texts()))
    assert found.built == (T("b"),) and found.inherited == {T("a"): 2} and found.missing == ()
    ddl = found.texts["pipelines/facts/p/a/sql-scripts/ddl.a.sql"]
    assert ddl == "CREATE TABLE a (id bigint, kind string) USING parquet LOCATION '/lake/tables/dev_a__v2';\n"
    assert "pipelines/facts/p/a/sql-scripts/dml.a.sql" not in found.texts and not any("/c/" in p for p in found.texts)

    found = overlay(small_project.texts(a=FILTERED), base(small_project.texts()))
    assert found.built == ("a", "b", "c") and found.inherited == {}
    assert "LOCATION '/lake/landing'" in found.texts["pipelines/sources/p/landed/sql-scripts/ddl.landed.sql"]


def test_comments_change_nothing_and_a_new_table_is_built() -> None:
    over = base(small_project.texts())
    commented = small_project.texts(b="SELECT id, kind FROM STREAM a -- as declared")
    assert overlay(commented, over).built == ()
    without = Base("dev", over.naming, "/data", {t: d for t, d in over.serving.items() if t != "b"})
    found = overlay(small_project.texts(), without)
    assert found.built == found.missing == ("b",)


def test_the_generated_project_is_valid_and_declares_the_overlay_beside_the_base() -> None:
    texts = small_project.texts(b="SELECT id, upper(kind) AS kind FROM STREAM a")
    found = overlay(texts, base(small_project.texts()))
    manifest = of_overlay(texts["headgate.yml"])
    project, problems = read_project({**found.texts, "headgate.yml": manifest}, environment="pr-1")
    assert project is not None, problems
    assert {name: table.external for name, table in project.tables.items()} == {"a": True, "b": False}
    assert project.environments["dev"].data == "/branch/data"
    assert project.environments["pr-1"].naming.pointer(T("b")) == "pr_1_b"
    assert project.environments["pr-1"].pool == project.environments["dev"].pool


def test_a_changed_function_is_built_in_its_users_and_downstream_with_the_functions_that_they_use() -> None:
    text = "CREATE FUNCTION {name}(kind STRING) RETURNS STRING RETURN concat(kind, '{end}')"
    select = "SELECT id, label(kind) AS kind FROM STREAM a"
    before = {
        "functions/label.sql": text.format(name="label", end=1),
        "functions/unused.sql": text.format(name="unused", end=1),
    }
    over = base({**small_project.texts(b=select), **before})
    texts = {**small_project.texts(b=select), **before, "functions/label.sql": text.format(name="label", end=2)}
    found = overlay(texts, over)
    assert found.built == ("b",) and "functions/unused.sql" not in found.texts
    project, problems = read_project({**found.texts, "headgate.yml": of_overlay(texts["headgate.yml"])})
    assert project is not None, problems
    assert revision_of(project.tables[T("b")]).texts.functions == (("label", texts["functions/label.sql"]),)


def test_a_changed_jar_is_built_in_the_users_of_its_functions_and_lies_beside_their_declarations() -> None:
    select = "SELECT id, fmt(kind) AS kind FROM STREAM a"
    old, new = (describe_jar(fmt_jar(each), "acme.jar", ("com.acme.Fmt",)) for each in ("one", "two"))
    texts = {**small_project.texts(b=select), "functions/fmt.sql": FMT, "functions/acme.jar": new}
    found = overlay(texts, base({**texts, "functions/acme.jar": old}))
    assert found.built == ("b",) and found.texts["functions/acme.jar"] == new
    assert overlay(texts, base(texts)).built == ()


def test_an_overlay_of_a_project_of_manifests_is_one_of_the_usual_layout() -> None:
    texts = generated_texts(manifest_project.files())
    project, _ = read_project(texts)
    assert project is not None
    found = overlay_project(project, texts, Base("dev", Naming(prefix="dev_"), "/data", {}), {})
    assert found.built == ("cheap", "dear")
    read, problems = read_project({**found.texts, "headgate.yml": of_overlay(texts["headgate.yml"])})
    assert read is not None and not problems
    assert {name: table.external for name, table in read.tables.items()} == {
        "cheap": False, "dear": False, "orders": True,
    }  # fmt: skip


def test_a_statement_takes_the_changes_of_a_keyed_table_of_the_base() -> None:
    texts = small_project.on_delta(small_project.texts()) | KEYED
    changes = "SELECT id, kind FROM STREAM a WHERE _change_type = 'insert'"
    over = base({**texts, **_statement("b", changes), **_statement("c", changes)})
    branch = {
        **texts,
        **_statement("b", changes.replace("kind FROM", "upper(kind) AS kind FROM")),
        **_statement("c", changes),
    }
    found = overlay(branch, over)
    assert found.built == ("b",)
    ddl = found.texts["pipelines/facts/p/a/sql-scripts/ddl.a.sql"]
    assert "USING delta" in ddl and "'delta.enableChangeDataFeed'='true'" in ddl and "_v2/" in ddl, ddl
    assert "pipelines/facts/p/b/b.yml" not in found.texts
    assert found.texts["pipelines/facts/p/a/a.yml"] == "mode: upsert\nkey:\n- id\nsequence: id\n"
    project, problems = read_project({**found.texts, "headgate.yml": of_overlay(branch["headgate.yml"])})
    assert project is not None and project.tables[T("b")].settings.changes_of == ("a",), problems


def test_a_stream_beside_that_of_a_keyed_table_means_what_it_means_in_the_base() -> None:
    recorded = {
        "pipelines/sources/p/landed/sql-scripts/ddl.landed.sql": "CREATE TABLE landed (id BIGINT, kind STRING) USING "
        "delta LOCATION 'landing' TBLPROPERTIES ('delta.enableChangeDataFeed'='true');"
    }
    both = "SELECT id, kind FROM STREAM a WHERE _change_type = 'insert' UNION ALL SELECT id, {} FROM STREAM landed"
    texts = (
        small_project.on_delta(small_project.texts())
        | KEYED
        | recorded
        | {"pipelines/facts/p/b/b.yml": "trigger: 5 seconds"}
    )
    other = _statement("c", "SELECT id, kind FROM STREAM landed")
    over = base({**texts, **other, **_statement("b", both.format("kind"))})
    branch = {**texts, **other, **_statement("b", both.format("upper(kind)"))}
    found = overlay(branch, over)
    project, problems = read_project({**found.texts, "headgate.yml": of_overlay(branch["headgate.yml"])})
    assert project is not None, problems
    there = small_project.project(branch).tables[T("b")]
    here = project.tables[T("b")]
    assert here.settings == there.settings and here.settings.changes_of == ("a",)
    assert here.parsed is not None and there.parsed is not None and here.parsed.reads == there.parsed.reads


def test_an_external_table_that_the_branch_declares_elsewhere_is_read_there_and_its_readers_are_built() -> None:
    path = "pipelines/sources/p/landed/sql-scripts/ddl.landed.sql"
    moved = {path: small_project.texts()[path].replace("'landing'", "'elsewhere'")}
    found = overlay(small_project.texts() | moved, base(small_project.texts()))
    assert found.built == ("a", "b", "c") and "LOCATION '/data/elsewhere'" in found.texts[path]


def test_versions_that_are_read_already_and_tables_that_are_built_already_stay() -> None:
    over, texts = base(small_project.texts()), small_project.texts(b="SELECT id, upper(kind) AS kind FROM STREAM a")
    older = replace(over.serving[T("a")], version=1, folder="/lake/tables/dev_a__v1")
    found = overlay(texts, over, pinned={T("a"): older}, keeps=(T("c"),))
    assert found.inherited == {"a": 1} and found.built == ("b", "c")
    assert "dev_a__v1" in found.texts["pipelines/facts/p/a/sql-scripts/ddl.a.sql"]


def test_a_table_that_the_base_has_deployed_anew_is_still_compared_with_the_version_that_is_read() -> None:
    texts = small_project.texts(b="SELECT id, upper(kind) AS kind FROM STREAM a")
    older = base(small_project.texts()).serving[T("a")]
    newer = base(small_project.texts(a=FILTERED))
    found = overlay(texts, newer, pinned={T("a"): replace(older, version=1)})
    assert found.built == ("b",) and found.inherited == {"a": 1}


def test_values_of_headgate_yml_stay_as_they_are_written() -> None:
    written = """\
project: p
id: 5b0e4a52-9df2-4a52-9c0c-0f6f8d1a2b3c
default_env: stage
environments:
  dev:
    protected: true
    colour: red
    policy: {drop_after_d: 3, hold: true}
    pool: &pool {cores: 2, conf: {a: on, b: 010, c: 1:30, d: 0.10, e: 1_000}}
    variables: {price: 1.10, flag: "on", long: 123456789012.12345678901}
  stage:
    pool: *pool
    data: other
    variables: {price: 1, flag: "", long: 2}
connectors: {delta: {jars: a/b.jar}}
variables: {price: {type: decimal}, long: {type: decimal}, flag: {type: string}}
"""
    before, after, problems = read_manifest(written, []), None, []
    after = read_manifest(of_overlay(written, data={"dev": "data", "stage": "other"}), problems)
    old, new = ({each.name: each for each in found.environments} for found in (before, after))
    assert [str(problem) for problem in problems] == [] and after.default_env == "pr-1"
    assert (new["pr-1"].pool, new["pr-1"].variables) == (old["dev"].pool, old["dev"].variables)
    assert dict(new["pr-1"].pool.conf) == {"a": "on", "b": "010", "c": "1:30", "d": "0.10", "e": "1_000"}
    assert not new["pr-1"].protected and new["pr-1"].policy == Policy() and new["pr-1"].colour == ""
    assert (new["dev"].data, new["stage"].data, new["pr-1"].data) == ("/branch/data", "/branch/other", "/lake.pr-1")
    assert new["dev"].policy == old["dev"].policy and after.connectors[0].jars == ("/branch/a/b.jar",)


def test_a_data_folder_in_hdfs_is_declared_as_it_is_in_an_overlay() -> None:
    written = "project: p\nid: i\nenvironments: {dev: {data: 'hdfs://one:8020/dev/'}}\n"
    after = read_manifest(of_overlay(written, data={"dev": "hdfs://one:8020/dev/"}), [])
    assert {each.name: each.data for each in after.environments}["dev"] == "hdfs://one:8020/dev"


def test_the_file_of_an_overlay_is_read_as_written_and_a_damaged_one_is_an_error() -> None:
    written = Overlay("dev", "/h/dev", "/data", "/branch", 1.0, "ana", 9.0, since=0.5, inherited={T("a"): 2})
    assert overlay_from_text(overlay_as_text(written)) == written
    text = overlay_as_text(written)
    assert overlay_from_text(text.replace("{", '{"of a later version": 1,', 1)) == written
    for damaged in (
        "{",
        "[]",
        "{}",
        text.replace('"base"', '"b"'),
        text.replace("9.0", '"soon"'),
        text.replace('"ana"', "3"),
    ):
        with pytest.raises(ValueError, match=r".+"):
            overlay_from_text(damaged)


def test_the_prefix_of_an_overlay_follows_from_its_name() -> None:
    assert overlay_prefix("pr-123") == "pr_123_" and overlay_prefix("Feature_X") == "feature_x_"
    for wrong in ("", "1", "a/b", "x" * 40):
        with pytest.raises(Exception, match="cannot name an overlay"):
            overlay_prefix(wrong)
    assert parse_period("90m", "--since") == 5_400.0 and parse_period("2d", "--expires") == 172_800.0
    for text in ("", "2", "0h", "2w", "-1h", "99999d"):
        with pytest.raises(Exception, match="--expires"):
            parse_period(text, "--expires")


def of_overlay(text: str, data: dict[str, str] | None = None) -> str:
    section = {"data": "/lake.pr-1", "naming": {"prefix": "pr_1_"}}
    return overlay_manifest(
        text, folder="/branch", overlay="pr-1", base="dev", data=data or {"dev": "data"}, section=section
    )


def _statement(table: str, select: str) -> dict[str, str]:
    folder = f"pipelines/facts/{'other' if table == 'c' else 'p'}/{table}/sql-scripts"
    return {f"{folder}/dml.{table}.sql": f"INSERT INTO {table} {select};"}


def test_an_overlay_with_one_pool_of_several_spreads_no_statements() -> None:
    text = small_project.HEAD.replace("dev: {}", "dev: {pools: {a: {}, b: {}}, placement: spread}")
    section = {"data": "/lake.pr-1", "naming": {"prefix": "pr_1_"}, "pool": {"name": "a"}}
    found = overlay_manifest(text, folder="/branch", overlay="pr-1", base="dev", data={"dev": "data"}, section=section)
    problems = list[Problem]()
    manifest = read_manifest(found, problems)
    overlay = manifest.environment("pr-1")
    assert not problems and overlay is not None and not overlay.spreads and overlay.pool.name == "a"
