"""`schema_tracking:` of a table's yml: where it means something, and what is refused with it."""

import re
from collections.abc import Mapping
from dataclasses import replace

from core.model.names import TableName
from core.model.problems import Problem, Where
from core.model.table_formats import table_format
from core.project.model import Table
from core.project_reader.yaml_reader import read_yaml
from core.sql.statement import selects_star

_WRONG = {
    "no stream": (
        "tracks columns, and streams no table on Delta: no other format has a log of them",
        "leave out schema_tracking",
    ),
    "twice": (
        "tracks columns and streams {table} twice, which Spark refuses",
        "stream it once, or leave out schema_tracking",
    ),
    "one place": (
        "tracks columns and streams one table twice, as {table}, which Spark refuses",
        "stream it under one name, once, or leave out schema_tracking",
    ),
    "star": (
        "tracks columns and says *: one that is dropped from what it streams would be NULL from then on",
        "name its columns, or leave out schema_tracking",
    ),
}
"""What stands in the way: summary behind the table's name, and remedy (Delta 4.4.0).

A WITH query that is read several times stands in nobody's way: Spark reads what it streams once.
"""

_FILE = re.compile("^file:/+")
"""How a path may begin as well."""


def with_schema_tracking(tables: dict[TableName, Table], among: Mapping[TableName, Table]) -> dict[TableName, Table]:
    """Return tables of which those alone track columns whose statement can: a project's default holds for no other.

    The formats of what they stream are looked up `among` all.
    """
    return {
        name: replace(table, settings=replace(table.settings, schema_tracking=False))
        if table.settings.schema_tracking and _in_the_way(table, among)[0]
        else table
        for name, table in tables.items()
    }


def check_schema_tracking(
    tables: Mapping[TableName, Table], yml: Mapping[TableName, str], problems: list[Problem]
) -> None:
    """Report each yml that asks to track columns of a statement which cannot."""
    for table in tables.values():
        if "schema_tracking" not in table.settings_text:
            continue
        path = yml.get(table.name, "")
        section = read_yaml(table.settings_text, path, [])
        if section is None or not section.flag("schema_tracking", default=False):
            continue
        what, about = _in_the_way(table, tables)
        if what:
            summary, remedy = _WRONG[what]
            where = Where(path, section.lines["schema_tracking"])
            problems.append(Problem(f"{table.name} {summary.format(table=about)}", remedy, where, table.name))


def _in_the_way(table: Table, among: Mapping[TableName, Table]) -> tuple[str, str]:
    """Return why a statement cannot track columns, a key of `_WRONG`, and of which table; empty where it can."""
    if table.parsed is None:
        return "no stream", table.name
    streams = [
        read.table
        for read in table.parsed.reads
        if read.streaming and (parent := among.get(read.table)) is not None
        if table_format(parent.parsed_ddl.format).transaction_log
    ]
    if not streams:
        return "no stream", table.name
    if twice := [name for name in streams if streams.count(name) > 1]:
        return "twice", twice[0]
    names: dict[str, list[str]] = {}
    for name in streams:
        if place := _FILE.sub("/", among[name].parsed_ddl.location).rstrip("/"):
            names.setdefault(place, []).append(name)
    if one := [each for each in names.values() if len(each) > 1]:
        return "one place", " and ".join(one[0])
    return ("star" if selects_star(table.parsed) else "", table.name)
