"""Checks of names and folders that two environments of a project would share without declaring it.

Only what the files declare is compared; the agent checks what exists on a server. Replication slots are not compared,
because their names contain the id of the ledger. Topics, groups and locations have the values of each environment.
"""

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations

from core.model.names import TableName, split_physical
from core.model.problems import Problem, Where
from core.model.table_formats import OVER_TOPICS, table_format
from core.project.data_folder import is_in_hdfs
from core.project.manifest_head import MANIFEST_PATH
from core.project.model import Environment, Table
from core.project.naming import OWN, SHARED
from core.project_reader.settings_checks import streamed_topics

KeyLines = Mapping[str, Mapping[str, int]]
"""The line of each key of an environment in headgate.yml, by environment; the key "" is the environment itself."""

ReadIn = Callable[[Environment, Iterable[Table]], Mapping[TableName, Table]]
"""Returns all tables of the project; the given ones have the values of variables in an environment."""

NAMED = 3
"""Maximum number of names that one Problem lists."""

_SERVER = re.compile(r"sc://(?:[^@/;]*@)?(?P<host>\[[^\]]*\]|[^:/;]*)(?::(?P<port>[0-9]+))?")
_DEFAULT_PORT = "15002"
_PROJECT = "/\0" * 64
"""Stands for the project folder, whose place only the agent knows."""
_OTHER_NAMING = "give one of them another prefix, suffix or database below naming"


def collision_problems(
    environments: Sequence[Environment], lines: KeyLines, tables: Mapping[TableName, Table], read_in: ReadIn
) -> Iterator[Problem]:
    """Yield a Problem for each pair of environments and each kind of thing that both would write or create.

    `environments` are sorted by name. `tables` have the values of one of them. Only pairs on one server are compared by
    the names of their tables, so a project with one environment costs nothing.
    """
    for environment in environments:
        yield from _own_collisions(environment, lines, tables, read_in)
    if len(environments) < 2:
        return
    for one, other in combinations(environments, 2):
        yield from _folder_collisions(one, other, lines)
    by_server: dict[str, list[Environment]] = {}
    for environment in environments:
        for server in _servers(environment):
            by_server.setdefault(server, []).append(environment)
    for server, sharing in by_server.items():
        if len(sharing) > 1:
            created = [(each, _created(each, tables)) for each in sharing]
            for pair in combinations(created, 2):
                yield from _catalog_collisions(*pair, server, lines, tables)
            for one, other in combinations(sharing, 2):
                yield from _location_collisions(one, other, lines, tables, read_in)
    yield from _collisions_on_brokers(environments, lines, tables, read_in)


def _own_collisions(
    environment: Environment, lines: KeyLines, tables: Mapping[TableName, Table], read_in: ReadIn
) -> Iterator[Problem]:
    name, naming, sources = environment.name, environment.naming, environment.sources
    renamed = map(naming.of, tables) if naming.prefix or naming.suffix else ()
    if wrong := [each for each in renamed if split_physical(each.removesuffix("_before"))]:
        words = f"the naming of {name} makes names of versions from names of tables: {_first(wrong)}"
        yield _problem(words, "choose another prefix and suffix", lines, name, "naming")
    external = [each for each in tables.values() if each.external] if sources.of == SHARED else []
    seen = read_in(environment, external) if external else {}
    if relative := [each.name for each in external if each.name in seen and _is_relative(seen[each.name])]:
        words = f"{name} would not share external tables that have a relative LOCATION: {_first(relative)}"
        remedy = "write absolute LOCATIONs, or the name of an environment after sources:"
        yield _problem(words, remedy, lines, name, "sources")
    made = _created(environment, tables) if sources.naming is not None else {}
    for named, table in _borrowed(environment, naming.place, tables):
        if met := made.get(named):
            words = f"in {name}, the external table {table} and the table {met} would both be {named}"
            yield _problem(words, _OTHER_NAMING, lines, name, "naming")


def _folder_collisions(one: Environment, other: Environment, lines: KeyLines) -> Iterator[Problem]:
    left, right = _folder(one), _folder(other)
    remedy = f"write another folder as data: of {other.name}"
    if left == right:
        yield _problem(
            f"{one.name} and {other.name} have one data folder, {_shown(one)}",
            remedy,
            lines,
            other.name,
            "data",
        )
        return
    for outer, inner in ((one, other), (other, one)):
        if _folder(inner).startswith(f"{_folder(outer).rstrip('/')}/"):
            words = f"the data folder {inner.data} of {inner.name} is inside {outer.data}, that of {outer.name}"
            yield _problem(words, remedy, lines, other.name, "data")


def _shown(environment: Environment) -> str:
    return environment.data if is_in_hdfs(environment.data) else posixpath.normpath(environment.data)


def _folder(environment: Environment) -> str:
    """Return the data folder as an absolute path, which is the same for equal folders unless links lead to them."""
    return f"/{posixpath.normpath(posixpath.join(_PROJECT, environment.data)).lstrip('/')}"


def _catalog_collisions(
    left: "_Created", right: "_Created", server: str, lines: KeyLines, tables: Mapping[TableName, Table]
) -> Iterator[Problem]:
    (one, ours), (other, theirs) = left, right
    met: dict[str, tuple[TableName, TableName]] = {}
    if one.naming.place == other.naming.place:
        met = {name: (ours[name], theirs[name]) for name in ours.keys() & theirs.keys()}
    for borrower, (owner, created) in ((one, right), (other, left)):
        for name, table in _borrowed(borrower, owner.naming.place, tables):
            # The same external table is what is shared.
            if (found := created.get(name, table)) != table:
                met[name] = (table, found) if borrower is one else (found, table)
    if one.sources.naming is not None:
        place = one.sources.naming.place
        shared = dict(_borrowed(other, place, tables))
        for name, table in _borrowed(one, place, tables):
            if (found := shared.get(name, table)) != table:
                met[name] = (table, found)
    if met:
        names = [
            name if mine == yours else f"{name} ({mine} of {one.name}, {yours} of {other.name})"
            for name, (mine, yours) in sorted(met.items())
        ]
        words = f"{one.name} and {other.name} would create the same names on {server}: {_first(names)}"
        yield _problem(words, _OTHER_NAMING, lines, other.name, "naming")


def _location_collisions(
    one: Environment, other: Environment, lines: KeyLines, tables: Mapping[TableName, Table], read_in: ReadIn
) -> Iterator[Problem]:
    """Report external tables with one name in the catalog, and with different locations by the values of variables."""
    ours, theirs = (each.sources.naming or each.naming for each in (one, other))
    if (ours.place, ours.of("")) != (theirs.place, theirs.of("")) or {one.sources.of, other.sources.of} == {OWN}:
        return
    external = [each for each in tables.values() if each.external and "${" in each.ddl.as_written]
    left, right = read_in(one, external), read_in(other, external)
    differ = [
        ours.of(name)
        for name in (each.name for each in external if table_format(each.parsed_ddl.format).has_files)
        if name in left and name in right and left[name].parsed_ddl.location != right[name].parsed_ddl.location
    ]
    if differ:
        words = f"{one.name} and {other.name} share external tables that have different LOCATIONs: {_first(differ)}"
        key = "sources" if other.sources.of != OWN else "variables"
        yield _problem(words, "write one LOCATION for both, or sources: own", lines, other.name, key)


_Created = tuple[Environment, Mapping[str, TableName]]
"""An environment, and its names as `_created` returns them."""


def _created(environment: Environment, tables: Mapping[TableName, Table]) -> dict[str, TableName]:
    """Return the names that an environment creates in its database, with their tables."""
    naming, every = environment.naming, environment.sources.of == OWN
    return {naming.of(name): name for name, table in tables.items() if every or not table.external}


def _borrowed(
    environment: Environment, place: tuple[str, str], tables: Mapping[TableName, Table]
) -> Iterator[tuple[str, TableName]]:
    """Yield the names of the external tables that an environment shares with others, if they are in the database."""
    naming = environment.sources.naming
    if naming is not None and naming.place == place:
        for name, table in tables.items():
            if table.external:
                yield naming.of(name), name


_Place = tuple[str, str]
"""A broker, and the name of a topic or group on its cluster."""


def _collisions_on_brokers(
    environments: Iterable[Environment], lines: KeyLines, tables: Mapping[TableName, Table], read_in: ReadIn
) -> Iterator[Problem]:
    over_topics = [table for table in tables.values() if _may_be_over_topics(table)]
    if not over_topics:
        return
    written = [table for table in over_topics if not table.external]
    grouped = [table for table in tables.values() if _may_commit_offsets(table)]
    declared = [table for table in (over_topics if grouped else written) if "${" in table.ddl.as_written]
    changing = [*declared, *grouped]

    def topics_of(environment: Environment, seen: Mapping[TableName, Table]) -> Iterator[_Place]:
        from core.sql.kafka_topics import topics_by_server

        for table in (seen[each.name] for each in written if each.name in seen):
            if topic := table.written_topic(environment.naming):
                yield from ((server, topic) for server, _ in topics_by_server(table.parsed_ddl.location))

    def groups_of(environment: Environment, seen: Mapping[TableName, Table]) -> Iterator[_Place]:
        for table in (seen[each.name] for each in grouped if each.name in seen):
            if group := table.settings.mirror_offsets:
                yield from ((server, environment.naming.of(group)) for server, _ in streamed_topics(table, seen))

    kinds: tuple[tuple[str, Callable[[Environment, Mapping[TableName, Table]], Iterator[_Place]]], ...] = (
        ("write the same topics", topics_of),
        ("commit offsets to the same consumer groups", groups_of),
    )
    read = [(environment, read_in(environment, changing)) for environment in environments]
    for does, places_of in kinds:
        first: dict[_Place, str] = {}
        for environment, seen in read:
            met: dict[str, set[str]] = {}
            for place in places_of(environment, seen):
                if (other := first.setdefault(place, environment.name)) != environment.name:
                    met.setdefault(other, set()).add(place[1])
            for other, names in met.items():
                words = f"{other} and {environment.name} would {does}: {_first(sorted(names))}"
                remedy = "give one of them another prefix or suffix below naming"
                yield _problem(words, remedy, lines, environment.name, "naming")


def _may_be_over_topics(table: Table) -> bool:
    """True if a table may have topics in an environment; such a DDL names a format over topics."""
    written = table.ddl.as_written.lower() if table.variables else ""
    return table_format(table.parsed_ddl.format).topics or any(name in written for name in OVER_TOPICS)


def _may_commit_offsets(table: Table) -> bool:
    return bool(table.settings.mirror_offsets or (table.variables and "mirror_offsets" in table.settings_text))


def _is_relative(table: Table) -> bool:
    ddl = table.parsed_ddl
    return table_format(ddl.format).has_files and ddl.location_in("") != ddl.location


def _servers(environment: Environment) -> tuple[str, ...]:
    """Return host and port of each server of an environment that the agent does not start, in order."""
    matches = (_SERVER.match(pool.url or "") for pool in environment.pools)
    found = (f"{match['host'].lower()}:{match['port'] or _DEFAULT_PORT}" for match in matches if match)
    return tuple(dict.fromkeys(found))


def _first(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _problem(words: str, remedy: str, lines: KeyLines, environment: str, key: str) -> Problem:
    known = lines.get(environment, {})
    return Problem(words, remedy, Where(MANIFEST_PATH, known.get(key, known.get("", 0))), environment)
