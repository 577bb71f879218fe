"""The project of an overlay, as files: what a branch changes, what is downstream of it, and what these tables read.

All inputs are external tables in it: tables that the base writes lie in the folder of the version that serves there,
and external tables of the project have the absolute location that they have in the base.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

import yaml

from core.changes.classification import classify
from core.model.actions import Action
from core.model.names import TableName
from core.model.table_formats import table_format
from core.observed.versions import Deployment
from core.project.data_folder import absolute_data_folder
from core.project.model import Project, Settings, Table
from core.project.naming import Naming
from core.project_reader.paths import jar_path, table_folder
from core.project_reader.revision_reader import read_revision, revision_of
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
    shortened: tuple[TableName, ...] = ()
    """Tables of the base whose earlier rows are in a second table, which the overlay does not read; sorted."""


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
    changed = {name for name, table in project.tables.items() if name in keeps or _differs(table, base, pinned)}
    own = {name for name in changed if not project.tables[name].external}
    missing = {name for name in own if name not in base.serving or base.serving[name].external}
    built = _with_readers(project, changed)
    needed = {name for table in built for name in _inputs(project.tables[table]) if name in project.tables} - built
    found: dict[str, str] = {}
    folders = {project.tables[name].folder for name in built}
    found.update((path, text) for path, text in texts.items() if table_folder(path) in folders)
    # The functions keep their places, because the tables do.
    called = {script.path for name in built for _, script in project.tables[name].functions}
    jars = {jar for path in called if (jar := jar_path(path, texts[path])) in texts}
    found.update((path, texts[path]) for path in sorted(called | jars))
    versions = {name: pinned.get(name) or base.serving[name] for name in needed if not project.tables[name].external}
    for name in sorted(needed):
        table = project.tables[name]
        found[table.ddl.path] = (
            _inherited_ddl(name, versions[name], base) if name in versions else _external(table, base)
        )
        if settings := _keyed_settings(table) if name in versions else table.settings_text:
            found[f"{table.folder}/{name}.yml"] = settings
    return OverlayProject(
        texts=dict(sorted(found.items())),
        built=tuple(sorted(built)),
        inherited={name: each.version for name, each in sorted(versions.items())},
        missing=tuple(sorted(missing)),
        shortened=tuple(sorted(name for name, each in versions.items() if each.before_ddl)),
    )


def overlay_manifest(
    text: str, *, folder: str, overlay: str, base: str, data: Mapping[str, str], section: Mapping[str, Any]
) -> str:
    """Return the headgate.yml of an overlay: that of the branch, with the overlay as its default environment.

    Values stay as they are written. `data` contains the data folder of each environment, whose relative paths are
    resolved against `folder`, the project folder of the branch. The overlay has the settings of the base, except its
    protection, policy, colour and sources, and those in `section`; a `pool` in it replaces several pools.
    """
    root: Any = yaml.compose(text, Loader=yaml.SafeLoader)
    # The generated texts of a project of manifests are files of the usual layout here.
    root.value = [(key, node) for key, node in root.value if key.value not in ("layout", "manifests")]
    environments = _child(root, "environments")
    copies = {}
    for key, node in list(environments.value):
        copies[key.value] = copy = _mapping(node)
        declared = data.get(key.value, "data")
        _set(copy, "data", absolute_data_folder(folder, declared, lambda path: str(PurePosixPath(path))))
        _set(environments, key.value, copy)
    own = _mapping(copies[base])
    dropped = {"colour", "sources", "naming", *(["pools", "placement"] if "pool" in section else [])}
    own.value = [(key, node) for key, node in own.value if key.value not in dropped]
    for key, value in {"protected": False, "policy": {}, **section}.items():
        _set(own, key, value)
    _set(environments, overlay, own)
    _set(root, "default_env", overlay)
    connectors = _child(root, "connectors")
    for _, connector in connectors.value if isinstance(connectors, yaml.MappingNode) else ():
        jars = _child(connector, "jars") if isinstance(connector, yaml.MappingNode) else None
        if jars is not None:
            paths = [jars] if isinstance(jars, yaml.ScalarNode) else jars.value
            _set(connector, "jars", [_absolute(folder, path.value) for path in paths])
    return str(yaml.serialize(root, Dumper=yaml.SafeDumper, allow_unicode=True, width=120))


def _mapping(node: Any) -> Any:
    """Return a copy of a mapping node, because aliases share nodes; an empty one for any other node."""
    entries = [deepcopy(entry) for entry in node.value] if isinstance(node, yaml.MappingNode) else []
    return yaml.MappingNode("tag:yaml.org,2002:map", entries, flow_style=False)


def _child(node: Any, key: str) -> Any:
    return next((value for name, value in node.value if name.value == key), None)


def _set(node: Any, key: str, value: Any) -> None:
    """Set a key of a mapping node to a node or to a plain value."""
    made = value if isinstance(value, yaml.Node) else yaml.compose(as_yaml(value), Loader=yaml.SafeLoader)
    found = next((n for n, (name, _) in enumerate(node.value) if name.value == key), None)
    if found is None:
        node.value.append((yaml.ScalarNode("tag:yaml.org,2002:str", key), made))
    else:
        node.value[found] = (node.value[found][0], made)


def _absolute(folder: str, path: str) -> str:
    return str(PurePosixPath(folder, path))


def _differs(table: Table, base: Base, pinned: Mapping[TableName, Deployment]) -> bool:
    """True if a table is not what the base runs or has registered, apart from comments and descriptions.

    A version that the overlay reads already is compared instead of the one that serves.
    """
    deployed, declared = pinned.get(table.name) or base.serving.get(table.name), revision_of(table)
    if deployed is None or deployed.external is not table.external:
        return not table.external
    if deployed.revision == declared.hash:
        return False
    before = read_revision(table.name, deployed.texts, Settings())
    return before is None or classify(before, declared).action not in (Action.KEEP, Action.RECORD)


def _with_readers(project: Project, changed: Iterable[TableName]) -> set[TableName]:
    """Return the statements among the tables and downstream of them, and all statements in the folders of these."""
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
        unit = set() if project.tables[name].external else units[project.tables[name].folder]
        waiting |= (readers.get(name, set()) | unit) - found
    return {name for name in found if not project.tables[name].external}


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


def _keyed_settings(table: Table) -> str:
    """Return the yml with which streams of an inherited keyed table take its changes; empty for other tables."""
    settings = table.settings
    if not settings.upserts:
        return ""
    keyed = {"mode": settings.mode, "key": list(settings.key), "sequence": settings.sequence}
    return as_yaml({key: value for key, value in keyed.items() if value})


def _external(table: Table, base: Base) -> str:
    ddl, known = table.parsed_ddl, base.serving.get(table.name)
    location = ""
    if table_format(ddl.format).has_files:
        registered = known is not None and known.external and not _differs(table, base, {})
        location = known.folder if known is not None and registered else ddl.location_in(base.sources_data)
    return _statement(compile_ddl(ddl, table.name, location))


def _statement(compiled: str) -> str:
    return f"{compiled.replace('CREATE TABLE IF NOT EXISTS', 'CREATE TABLE', 1)};\n"
