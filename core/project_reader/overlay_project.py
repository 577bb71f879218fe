"""The project of an overlay, as files: what a branch changes, what is downstream of it, and what these tables read.

All inputs are external tables in it: tables that the base writes lie in the folder of the version that serves there,
and external tables of the project have the absolute location that they have in the base.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

import yaml

from core.changes.classification import classify
from core.model.actions import Action
from core.model.names import TableName
from core.model.table_formats import table_format
from core.observed.versions import Deployment
from core.project.model import Project, Settings, Table
from core.project.naming import Naming
from core.project_reader.paths import table_folder
from core.project_reader.revision_reader import read_revision, revision_of
from core.project_reader.settings_checks import CHANGES
from core.sql.compiler import compile_ddl
from core.sql.ddl_reader import read_ddl
from core.sql.statement_reader import read_any
from core.text.yaml_writer import as_yaml


@dataclass(frozen=True, slots=True)
class Base:
    """The environment that an overlay reads."""

    name: str
    naming: Naming
    sources_data: str
    """Absolute path of the folder in which relative locations lie, for external tables that it has not registered."""
    serving: Mapping[TableName, Deployment]
    """Its serving versions, without deleted tables."""


@dataclass(frozen=True, slots=True)
class OverlayProject:
    """The generated project."""

    texts: Mapping[str, str]
    """Contents by path; headgate.yml is not among them."""
    built: tuple[TableName, ...]
    """Tables that the overlay builds, sorted."""
    inherited: Mapping[TableName, int]
    """The version in the base of each table that is read there."""
    missing: tuple[TableName, ...]
    """Tables that must be built only because the base does not run them, sorted."""


def overlay_project(
    project: Project,
    texts: Mapping[str, str],
    base: Base,
    pinned: Mapping[TableName, Deployment],
    keeps: Collection[TableName] = (),
) -> OverlayProject:
    """Generate the project of an overlay from a branch.

    `project` and `texts` are the branch, with the variables of the base. `pinned` contains the versions that the
    overlay reads already, which may be older than those that serve, and `keeps` the tables that it has built.
    """
    own = {name: table for name, table in project.tables.items() if not table.external}
    changed = {name for name, table in own.items() if name in keeps or _differs(table, base)}
    missing = {name for name in changed if name not in base.serving or base.serving[name].external}
    built = _with_readers(project, changed)
    needed = {name for table in built for name in _inputs(project.tables[table]) if name in project.tables} - built
    found: dict[str, str] = {}
    folders = {project.tables[name].folder for name in built}
    found.update((path, text) for path, text in texts.items() if table_folder(path) in folders)
    versions = {name: pinned.get(name) or base.serving[name] for name in needed if not project.tables[name].external}
    for name in sorted(needed):
        table = project.tables[name]
        found[table.ddl.path] = (
            _inherited_ddl(name, versions[name], base) if name in versions else _external(table, base)
        )
        if name not in versions and table.settings_text:
            found[f"{table.folder}/{name}.yml"] = table.settings_text
    found.update(_taking_changes(project, built, versions, found))
    return OverlayProject(
        texts=dict(sorted(found.items())),
        built=tuple(sorted(built)),
        inherited={name: each.version for name, each in sorted(versions.items())},
        missing=tuple(sorted(missing)),
    )


def overlay_manifest(text: str, folder: str, overlay: str, base: str, sections: Mapping[str, Any]) -> str:
    """Return the headgate.yml of an overlay: that of the branch, with the overlay added and absolute paths.

    `sections` are settings of the overlay and of the base that replace declared ones. The overlay has the variables,
    pool and objective of the base. `folder` is the project folder of the branch.
    """
    document = yaml.safe_load(text)
    environments = document["environments"]
    for name, each in environments.items():
        environments[name] = {**(each or {}), "data": _absolute(folder, (each or {}).get("data", "data"))}
    kept = {key: environments[base][key] for key in ("pool", "objective", "variables") if key in environments[base]}
    environments[base] |= sections.get(base, {})
    environments[overlay] = {**kept, **sections.get(overlay, {})}
    for connector in (document.get("connectors") or {}).values():
        if connector and connector.get("jars"):
            connector["jars"] = [_absolute(folder, jar) for jar in connector["jars"]]
    return as_yaml(document)


def _absolute(folder: str, path: str) -> str:
    return str(PurePosixPath(folder, path))


def _differs(table: Table, base: Base) -> bool:
    """True if a statement is not what the base runs, apart from comments and descriptions."""
    deployed, declared = base.serving.get(table.name), revision_of(table)
    if deployed is None or deployed.external:
        return True
    if deployed.revision == declared.hash:
        return False
    before = read_revision(table.name, deployed.texts, Settings())
    return before is None or classify(before, declared).action not in (Action.KEEP, Action.RECORD)


def _with_readers(project: Project, changed: Iterable[TableName]) -> set[TableName]:
    """Return the tables with all tables downstream, and all tables in the folders of these."""
    readers: dict[TableName, set[TableName]] = {}
    units: dict[str, set[TableName]] = {}
    for name, table in project.tables.items():
        if not table.external:
            units.setdefault(table.folder, set()).add(name)
            for read in table.parsed.reads if table.parsed else ():
                readers.setdefault(read.table, set()).add(name)
    found: set[TableName] = set()
    waiting = set(changed)
    while waiting:
        name = waiting.pop()
        found.add(name)
        waiting |= (readers.get(name, set()) | units[project.tables[name].folder]) - found
    return found


def _inputs(table: Table) -> Iterator[TableName]:
    """Yield the tables that a statement or one of its checks reads."""
    yield from (read.table for read in table.parsed.reads) if table.parsed else ()
    for _, sql in table.settings.checks:
        yield from (read.table for each in read_any(sql, "")[0] for read in each.reads)


def _inherited_ddl(table: TableName, deployed: Deployment, base: Base) -> str:
    ddl, problems = read_ddl(deployed.texts.ddl, f"ddl.{table}.sql")
    assert ddl is not None, problems
    format = table_format(ddl.format)
    if format.topics:
        from core.sql.written_topics import with_topic_named

        return _statement(compile_ddl(with_topic_named(ddl, base.naming.of), table, ""))
    given = {name.lower() for name, _ in ddl.properties}
    recorded = format.keyed_properties if deployed.mode.startswith("upsert") else ()
    ddl = replace(ddl, properties=(*ddl.properties, *(each for each in recorded if each[0].lower() not in given)))
    return _statement(compile_ddl(ddl, table, format.place_in(deployed.folder)))


def _external(table: Table, base: Base) -> str:
    ddl, known = table.parsed_ddl, base.serving.get(table.name)
    location = ""
    if table_format(ddl.format).has_files:
        location = known.folder if known is not None and known.external else ddl.location_in(base.sources_data)
    return _statement(compile_ddl(ddl, table.name, location))


def _statement(compiled: str) -> str:
    return f"{compiled.replace('CREATE TABLE IF NOT EXISTS', 'CREATE TABLE', 1)};\n"


def _taking_changes(
    project: Project, built: Iterable[TableName], versions: Mapping[TableName, Deployment], texts: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Yield the yml of each statement that takes the changes of a keyed table of the base.

    A stream of an external table takes changes only if the yml demands it.
    """
    for name in built:
        table = project.tables[name]
        if table.settings.reads == CHANGES or not any(each in versions for each in table.settings.changes_of):
            continue
        path = f"{table.folder}/{name}.yml"
        before = texts.get(path, "")
        text = table.settings_text if table.settings_text and not before else before
        yield path, f"{text.rstrip()}\nreads: {CHANGES}\n".lstrip()
