"""The project of an ephemeral environment, as files: some tables with everything upstream, over sources of its own.

Every external table lies in a folder of the environment, in the format of its declaration, or in topics of its own, so
that rows can be written there. Nothing in the project leads to the data of another environment.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from core.model.names import TableName
from core.model.table_formats import table_format
from core.project.model import Project, Table
from core.project_reader.ephemeral_systems import (
    TOPIC_SETTINGS,
    NotReplaced,
    SystemNames,
    as_stand_in,
    fault_of_topics,
    own_topics,
    replaced_topics,
)
from core.project_reader.overlay_project import overlay_manifest
from core.project_reader.paths import jar_path, table_folder
from core.sql.compiler import compile_ddl
from core.sql.statement import TableDdl
from core.text.sentence import Fact, FactKind

TRIGGER = "200 milliseconds"
"""Interval of all statements, unless the declared intervals are kept."""


class NotIsolated(FactKind):
    """Why tables cannot run over sources of their own."""

    NOTHING = "no table is chosen that has a statement", "name a table that has one"


@dataclass(frozen=True, slots=True)
class EphemeralProject:
    """A generated project."""

    texts: Mapping[str, str]
    """Contents by path; headgate.yml is not among them."""
    built: tuple[TableName, ...]
    """Tables with a statement, upstream tables first."""
    sources: Mapping[TableName, str]
    """Absolute folder of each external table in files, into which its rows are written."""
    topics: Mapping[TableName, TableDdl] = field(default_factory=dict)
    """Tables over topics of its own, sources and sinks, each as it is declared here."""
    stand_ins: tuple[TableName, ...] = ()
    """Sources for which files stand, because their rows are in a database; sorted."""
    replaced_topics: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Location and name of the topic that each topic of its own replaces."""


def ephemeral_project(
    project: Project,
    texts: Mapping[str, str],
    tables: Iterable[TableName],
    *,
    data: str,
    systems: SystemNames,
    trigger: str | None = TRIGGER,
) -> EphemeralProject | Fact[NotIsolated] | Fact[NotReplaced]:
    """Generate the project of tables and everything upstream of them, or return why that is impossible.

    Tables in the folder of a chosen table are chosen as well, because they are deployed together. `data` is the
    absolute data folder. `trigger` replaces the interval of every statement; None keeps the declared ones.
    """
    chosen = upstream_of(project, tables)
    built = tuple(name for name in chosen if not project.tables[name].external)
    if not built:
        return NotIsolated.NOTHING.of()
    if (refused := _refusal(project, built)) is not None:
        return refused
    folders = {project.tables[name].folder for name in built}
    called = {script.path for name in built for _, script in project.tables[name].functions}
    called |= {jar_path(path, texts[path]) for path in called}
    found = {path: text for path, text in texts.items() if table_folder(path) in folders or path in called}
    if trigger is not None:
        found = {path: _with_trigger(text, trigger) if path.endswith(".yml") else text for path, text in found.items()}
    external = {name: project.tables[name] for name in chosen if project.tables[name].external}
    every = [project.tables[name] for name in chosen]
    topics, replaced = own_topics(every, systems), replaced_topics(every, systems)
    sources = {name: f"{data}/landing/{name}" for name in external if name not in topics}
    stand_ins = stand_ins_of(project, chosen)
    if topics or stand_ins:
        found = {
            path: _without(text, TOPIC_SETTINGS) if path.endswith(".yml") else text for path, text in found.items()
        }
    for name, table in external.items():
        ddl = topics.get(name) or (as_stand_in(table.parsed_ddl) if name in stand_ins else table.parsed_ddl)
        found[table.ddl.path] = source_ddl(ddl, sources.get(name, ""))
        if table.settings_text:
            dropped = (*TOPIC_SETTINGS, "payload") if name in stand_ins else TOPIC_SETTINGS
            found[f"{table.folder}/{name}.yml"] = _without(table.settings_text, dropped)
    return EphemeralProject(
        dict(sorted(found.items())), built, sources, topics=topics, stand_ins=stand_ins, replaced_topics=replaced
    )


def stand_ins_of(project: Project, tables: Iterable[TableName]) -> tuple[TableName, ...]:
    """Return the external tables upstream of tables whose rows are in a database, sorted."""
    formats = {name: table_format(project.tables[name].parsed_ddl.format) for name in upstream_of(project, tables)}
    return tuple(sorted(name for name, format in formats.items() if format.database or format.changes))


def source_ddl(ddl: TableDdl, folder: str) -> str:
    """Return the DDL script of an external table that lies in a folder; "" for one over topics."""
    return f"{compile_ddl(ddl, ddl.table, folder).replace('CREATE TABLE IF NOT EXISTS', 'CREATE TABLE', 1)};\n"


def upstream_of(project: Project, tables: Iterable[TableName]) -> tuple[TableName, ...]:
    """Return tables, those in the same folders and everything upstream of all these, upstream tables first."""
    units: dict[str, list[TableName]] = {}
    for name, table in project.tables.items():
        if not table.external:
            units.setdefault(table.folder, []).append(name)
    order: dict[TableName, None] = {}
    waiting = [(name, False) for name in sorted(set(tables), reverse=True)]
    entered: set[TableName] = set()
    while waiting:
        name, upstream_done = waiting.pop()
        if upstream_done:
            order[name] = None
        elif name in project.tables and name not in entered:
            entered.add(name)
            table = project.tables[name]
            waiting += [(other, False) for other in sorted(units.get(table.folder, ()), reverse=True)]
            waiting.append((name, True))
            waiting += [(parent, False) for parent in sorted(_parents(table), reverse=True)]
    return tuple(order)


def ephemeral_manifest(
    text: str,
    *,
    folder: str,
    name: str,
    base: str,
    data: Mapping[str, str],
    pool: Mapping[str, Any],
    trigger: str | None,
) -> str:
    """Return the headgate.yml of an ephemeral environment, which has the variables and settings of `base`.

    `data` contains the data folder of each environment, and that of the ephemeral one as `name`. `pool` is its pool.
    """
    section = {"data": data[name], "naming": {"prefix": f"{name}_"}, "pool": dict(pool)}
    made = overlay_manifest(text, folder=folder, overlay=name, base=base, data=data, section=section)
    return made if trigger is None else _with_trigger(made, trigger, "defaults")


def _refusal(project: Project, built: Iterable[TableName]) -> Fact[NotReplaced] | None:
    for name in built:
        for parent in sorted(_parents(project.tables[name])):
            read = project.tables.get(parent)
            if read is None or not read.external or not table_format(read.parsed_ddl.format).topics:
                continue
            if (fault := fault_of_topics(name, read)) is not None:
                return fault
    return None


def _parents(table: Table) -> set[TableName]:
    return {read.table for read in table.parsed.reads} if table.parsed is not None else set()


def _with_trigger(text: str, trigger: str, section: str = "") -> str:
    """Return a YAML text with another `trigger`, which is added only to a section."""
    root: Any = yaml.compose(text, Loader=yaml.SafeLoader)
    if not isinstance(root, yaml.MappingNode):
        return text
    node: Any = next((value for key, value in root.value if key.value == section), None) if section else root
    value = yaml.ScalarNode("tag:yaml.org,2002:str", trigger)
    if section and not isinstance(node, yaml.MappingNode):
        root.value = [each for each in root.value if each[0].value != section]
        node = yaml.MappingNode("tag:yaml.org,2002:map", [], flow_style=False)
        root.value.append((yaml.ScalarNode("tag:yaml.org,2002:str", section), node))
    kept = [each for each in node.value if each[0].value != "trigger"]
    if not section and len(kept) == len(node.value):
        return text
    node.value = [*kept, (yaml.ScalarNode("tag:yaml.org,2002:str", "trigger"), value)]
    return str(yaml.serialize(root, Dumper=yaml.SafeDumper, allow_unicode=True, width=120))


def _without(text: str, keys: Iterable[str]) -> str:
    """Return a YAML text without some of its keys."""
    if not any(key in text for key in keys):
        return text
    root: Any = yaml.compose(text, Loader=yaml.SafeLoader)
    if not isinstance(root, yaml.MappingNode):
        return text
    root.value = [each for each in root.value if each[0].value not in keys]
    return str(yaml.serialize(root, Dumper=yaml.SafeDumper, allow_unicode=True, width=120))
