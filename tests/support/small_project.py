"""A small project as texts: landed → a → b, and a → c, where c belongs to another product."""

from collections.abc import Mapping

from core.project.model import Project
from core.project_reader.loader import read_project

HEAD = """project: p
id: 5b0e4a52-9df2-4a52-9c0c-0f6f8d1a2b3c
default_env: dev
environments:
  dev: {}
"""

COLUMNS = "(id BIGINT, kind STRING)"


def texts(**changed: str) -> dict[str, str]:
    """Return the project's files by path; a keyword argument replaces the SELECT of the table of that name."""
    selects = {
        "a": "SELECT id, kind FROM STREAM landed",
        "b": "SELECT id, kind FROM STREAM a",
        "c": "SELECT id, kind FROM STREAM a",
    } | changed
    files = {
        "headgate.yml": HEAD,
        "pipelines/sources/p/landed/sql-scripts/ddl.landed.sql": (
            f"CREATE TABLE landed {COLUMNS} USING json LOCATION 'landing';"
        ),
    }
    for table, select in selects.items():
        product = "other" if table == "c" else "p"
        folder = f"pipelines/facts/{product}/{table}/sql-scripts"
        files[f"{folder}/ddl.{table}.sql"] = f"CREATE TABLE {table} {COLUMNS} USING parquet;"
        files[f"{folder}/dml.{table}.sql"] = f"INSERT INTO {table} {select};"
    return files


def on_delta(files: Mapping[str, str]) -> dict[str, str]:
    """Return the files with all tables that are written by statements converted to Delta."""
    found = {path: text.replace("USING parquet", "USING delta") for path, text in files.items()}
    return found | {"headgate.yml": found["headgate.yml"] + "connectors: {delta: {}}\n"}


def project(files: Mapping[str, str]) -> Project:
    """Parse a project from files in which there must be no Problems."""
    found, problems = read_project(files)
    assert found is not None, [problem.as_json() for problem in problems]
    return found
