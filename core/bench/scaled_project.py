"""The files that scale a project along an axis: copies of statements side by side, or a chain of tables after one.

They are added to the project's own files, so everything else reads, plans and runs them like any other table.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from core.model.names import TableName
from core.model.table_formats import table_format
from core.project.model import Project, Script, Table
from core.project.variables import Variable
from core.project_reader.ephemeral_project import source_ddl
from core.project_reader.substitution import substitute_sql
from core.sql.compiler import compile_select
from core.sql.ddl_reader import read_ddl
from core.sql.metadata_columns import without_metadata
from core.sql.statement import TableDdl
from core.sql.statement_reader import read_any
from core.sql.written_topics import with_topic_named
from core.text.escaping import quoted_name
from core.text.sentence import Fact, FactKind


class Axis(StrEnum):
    """What grows from one point to the next."""

    STATEMENTS = "statements"
    """Copies of the chosen statements, side by side, over the same upstream tables."""
    CORES = "cores"
    """Cores of the Spark server."""
    PARTITIONS = "partitions"
    """The setting `spark.sql.shuffle.partitions`."""
    CHAIN = "chain"
    """Tables in a chain after the chosen one, each of which copies the rows of the one before it."""


class NotScaled(FactKind):
    """Why tables cannot be scaled along an axis."""

    JOB = "{table} is a job in Python, which cannot be copied", "name tables whose statements are in SQL"
    TEXT = "the statement of {table} has a form that cannot be copied", "write INSERT INTO before WITH and SELECT"
    KEYED = "{table} replaces rows by key, and the tables of a chain append rows", "begin the chain with another table"
    TOPIC = (
        "{table} writes a topic, which no statement reads under its name",
        "begin the chain with another table",
    )
    MANY = "a chain begins with one table, and {tables} are chosen", "name one of them"
    INVALID = "{table} cannot be added to the project: {why}", "name other tables, or another --axis"


@dataclass(frozen=True, slots=True)
class AddedTables:
    """Tables that are added to a project."""

    texts: Mapping[str, str]
    """Contents of their files by path."""
    tables: tuple[TableName, ...]


def with_copies(
    project: Project, tables: Iterable[TableName], copies: int, variables: Mapping[str, Variable]
) -> AddedTables | Fact[NotScaled]:
    """Return `copies - 1` copies of statements, which read each other wherever the statements do.

    Those in the folders of the statements are copied as well. A copy that writes a topic writes one of its own.
    `variables` are those of the environment.
    """
    folders = {project.tables[name].folder for name in tables}
    chosen = [table for table in project.tables.values() if table.folder in folders and not table.external]
    texts: dict[str, str] = {}
    added: list[TableName] = []
    for number in range(2, copies + 1):
        names = {table.name: _free(project, f"{table.name}_copy{number}") for table in chosen}
        for table in chosen:
            found = _copy(table, names, number, variables)
            if isinstance(found, Fact):
                return found
            texts |= found
            added.append(names[table.name])
    return AddedTables(texts, tuple(added))


def with_chain(project: Project, tables: Iterable[TableName], length: int) -> AddedTables | Fact[NotScaled]:
    """Return `length` tables in a chain after the only one of `tables`, with its format and trigger."""
    names = tuple(tables)
    if len(names) != 1:
        return NotScaled.MANY.of(tables=len(names))
    table = project.tables[names[0]]
    if table.settings.upserts:
        return NotScaled.KEYED.of(table=table.name)
    if table_format(table.parsed_ddl.format).topics:
        return NotScaled.TOPIC.of(table=table.name)
    own = without_metadata(table.parsed_ddl)
    columns = ", ".join(quoted_name(each.name) for each in own.columns)
    texts: dict[str, str] = {}
    added: list[TableName] = []
    for number in range(1, length + 1):
        name, before = _free(project, f"{table.name}_chain{number}"), added[-1] if added else table.name
        folder = f"{table.folder.rpartition('/')[0]}/{name}"
        ddl = TableDdl(name, own.columns, own.format)
        texts[f"{folder}/sql-scripts/ddl.{name}.sql"] = source_ddl(ddl, "")
        select = f"INSERT INTO {name} SELECT {columns} FROM STREAM {quoted_name(before)};\n"
        texts[f"{folder}/sql-scripts/dml.{name}.sql"] = select
        texts[f"{folder}/{name}.yml"] = f"trigger: {table.settings.trigger}\nmetadata: false\n"
        added.append(name)
    return AddedTables(texts, tuple(added))


def _free(project: Project, name: str) -> TableName:
    while name in project.tables or name in project.broken:
        name += "_"
    return TableName(name)


def _copy(
    table: Table, names: Mapping[TableName, TableName], number: int, variables: Mapping[str, Variable]
) -> dict[str, str] | Fact[NotScaled]:
    """Return the files of a copy, whose names are in `names`."""
    assert table.parsed is not None and table.dml is not None, "it is not external"
    if table.parsed.in_python:
        return NotScaled.JOB.of(table=table.name)
    name = names[table.name]
    ddl, _ = read_ddl(_with_values(table.ddl, variables), table.ddl.path)
    text = _with_values(table.dml, variables)
    statements, _ = read_any(text, table.dml.path, every_table_streams=table.settings.reads == "stream")
    at = text.find(statements[0].select) if len(statements) == 1 else -1
    if ddl is None or at < 0:
        return NotScaled.TEXT.of(table=table.name)
    parsed = statements[0]
    physical = {read.table: str(names.get(read.table, read.table)) for read in parsed.reads}
    into = re.compile(rf"(INSERT\s+INTO\s+(?:TABLE\s+)?)`?{re.escape(table.name)}`?", re.IGNORECASE)
    header, found = into.subn(rf"\g<1>{name}", text[:at])
    if not found:
        return NotScaled.TEXT.of(table=table.name)
    folder = f"{table.folder}_copy{number}"
    if table_format(ddl.format).topics:
        ddl = with_topic_named(ddl, lambda topic: f"{topic}_copy{number}")
    files = {
        f"{folder}/sql-scripts/ddl.{name}.sql": source_ddl(replace(ddl, table=name), ""),
        f"{folder}/sql-scripts/dml.{name}.sql": (
            f"{header}{compile_select(parsed, physical)}{text[at + len(parsed.select) :]}"
        ),
    }
    return files | ({f"{folder}/{name}.yml": table.settings_text} if table.settings_text else {})


def _with_values(script: Script, variables: Mapping[str, Variable]) -> str:
    """Return a script as written, with values in place of variables; calls of functions stay calls."""
    return substitute_sql(script.as_written, script.path, variables, []).text
