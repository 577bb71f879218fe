"""The project of an overlay: what differs from the base and what is downstream is built, and the rest is read there."""

from dataclasses import replace

import pytest
import small_project
from ledger_rows import deployment_row, external_row

from core.model.names import TableName as T
from core.observed.versions import Deployment
from core.project.naming import Naming
from core.project.overlay import Overlay, overlay_as_text, overlay_from_text, overlay_prefix, parse_period
from core.project_reader.loader import read_project
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
    manifest = overlay_manifest(
        texts["headgate.yml"], "/branch", "pr-1", "dev", {"pr-1": {"data": "/lake.pr-1", "naming": {"prefix": "pr_1_"}}}
    )
    project, problems = read_project({**found.texts, "headgate.yml": manifest}, environment="pr-1")
    assert project is not None, problems
    assert {name: table.external for name, table in project.tables.items()} == {"a": True, "b": False}
    assert project.environments["dev"].data == "/branch/data"
    assert project.environments["pr-1"].naming.pointer(T("b")) == "pr_1_b"
    assert project.environments["pr-1"].pool == project.environments["dev"].pool


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
    assert found.texts["pipelines/facts/p/b/b.yml"] == "reads: changes\n"
    project, problems = read_project(
        {
            **found.texts,
            "headgate.yml": overlay_manifest(branch["headgate.yml"], "/b", "pr", "dev", {"pr": {"data": "/l"}}),
        }
    )
    assert project is not None and project.tables[T("b")].settings.changes_of == ("a",), problems


def test_versions_that_are_read_already_and_tables_that_are_built_already_stay() -> None:
    over, texts = base(small_project.texts()), small_project.texts(b="SELECT id, upper(kind) AS kind FROM STREAM a")
    older = replace(over.serving[T("a")], version=1, folder="/lake/tables/dev_a__v1")
    found = overlay(texts, over, pinned={T("a"): older}, keeps=(T("c"),))
    assert found.inherited == {"a": 1} and found.built == ("b", "c")
    assert "dev_a__v1" in found.texts["pipelines/facts/p/a/sql-scripts/ddl.a.sql"]


def test_the_file_of_an_overlay_is_read_as_written_and_a_damaged_one_is_an_error() -> None:
    written = Overlay("dev", "/h/dev", "/data", "/branch", 1.0, "ana", 9.0, since=0.5, inherited={T("a"): 2})
    assert overlay_from_text(overlay_as_text(written)) == written
    for damaged in ("{", "[]", "{}", '{"inherited": {"a": "x"}}', overlay_as_text(written).replace('"base"', '"b"')):
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


def _statement(table: str, select: str) -> dict[str, str]:
    folder = f"pipelines/facts/{'other' if table == 'c' else 'p'}/{table}/sql-scripts"
    return {f"{folder}/dml.{table}.sql": f"INSERT INTO {table} {select};"}
