"""Checks of names and folders that two environments of a project would share without declaring it.

Only what the files declare is compared; the agent checks what exists on a server. Replication slots are not compared,
because their names contain the id of the ledger. The tables are those of one environment; a topic or group that may
differ in another, because a variable does, is not compared.
"""

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations

from core.model.names import TableName, split_physical
from core.model.problems import Problem, Where
from core.model.table_formats import table_format
from core.project.manifest_head import MANIFEST_PATH
from core.project.model import Environment, Table
from core.project.naming import OWN, SHARED
from core.project_reader.settings_checks import streamed_topics

KeyLines = Mapping[str, Mapping[str, int]]
"""The line of each key of an environment in headgate.yml, by environment; the key "" is the environment itself."""

NAMED = 3
"""Maximum number of names that one Problem lists."""

_SERVER = re.compile(r"sc://(?:[^@/;]*@)?(?P<host>\[[^\]]*\]|[^:/;]*)(?::(?P<port>[0-9]+))?")
_DEFAULT_PORT = "15002"
_OTHER_NAMING = "give one of them another prefix, suffix or database below naming"


def collision_problems(
    environments: Sequence[Environment], lines: KeyLines, tables: Mapping[TableName, Table]
) -> Iterator[Problem]:
    """Yield a Problem for each pair of environments and each kind of thing that both would write or create.

    `environments` are sorted by name. Only pairs on one server are compared by the names of their tables, so a project
    with one environment costs nothing.
    """
    for environment in environments:
        yield from _own_collisions(environment, lines, tables)
    if len(environments) < 2:
        return
    for one, other in combinations(environments, 2):
        yield from _folder_collisions(one, other, lines)
    by_server: dict[str, list[Environment]] = {}
    for environment in environments:
        by_server.setdefault(_server(environment), []).append(environment)
    for server, sharing in by_server.items():
        if server and len(sharing) > 1:
            created = [(each, _created(each, tables)) for each in sharing]
            for pair in combinations(created, 2):
                yield from _catalog_collisions(*pair, server, lines, tables)
    yield from _collisions_on_brokers(environments, lines, tables)


def _own_collisions(environment: Environment, lines: KeyLines, tables: Mapping[TableName, Table]) -> Iterator[Problem]:
    name, naming, sources = environment.name, environment.naming, environment.sources
    if naming.suffix and (wrong := [naming.of(table) for table in tables if split_physical(naming.of(table))]):
        words = f"the suffix of {name} makes names of versions from names of tables: {_first(wrong)}"
        yield _problem(words, "choose another suffix", lines, name, "naming")
    shared = tables.values() if sources.of == SHARED else ()
    if relative := [each.name for each in shared if each.external and _is_relative(each)]:
        words = f"{name} would not share external tables that have a relative LOCATION: {_first(relative)}"
        remedy = "write absolute LOCATIONs, or the name of an environment after sources:"
        yield _problem(words, remedy, lines, name, "sources")
    made = _created(environment, tables) if sources.naming is not None else {}
    for named, table in _borrowed(environment, environment, tables):
        if met := made.get(named):
            words = f"in {name}, the external table {table} and the table {met} would both be {named}"
            yield _problem(words, _OTHER_NAMING, lines, name, "naming")


def _folder_collisions(one: Environment, other: Environment, lines: KeyLines) -> Iterator[Problem]:
    left, right = posixpath.normpath(one.data), posixpath.normpath(other.data)
    remedy = f"write another folder as data: of {other.name}"
    if left == right:
        yield _problem(f"{one.name} and {other.name} have one data folder, {left}", remedy, lines, other.name, "data")
        return
    for outer, inner in ((one, other), (other, one)):
        if _is_inside(posixpath.normpath(inner.data), posixpath.normpath(outer.data)):
            words = f"the data folder {inner.data} of {inner.name} is inside {outer.data}, that of {outer.name}"
            yield _problem(words, remedy, lines, other.name, "data")


def _is_inside(inner: str, outer: str) -> bool:
    # A relative folder lies in the project, whose place only the agent knows.
    return inner.startswith("/" if outer == "/" else f"{outer}/") or (
        outer == "." and not inner.startswith(("/", ".."))
    )


def _catalog_collisions(
    left: "_Created", right: "_Created", server: str, lines: KeyLines, tables: Mapping[TableName, Table]
) -> Iterator[Problem]:
    (one, ours), (other, theirs) = left, right
    met: dict[str, tuple[TableName, TableName]] = {}
    if one.naming.place == other.naming.place:
        met = {name: (ours[name], theirs[name]) for name in ours.keys() & theirs.keys()}
    for borrower, (owner, created) in ((one, right), (other, left)):
        for name, table in _borrowed(borrower, owner, tables):
            # The same external table is what is shared.
            if (found := created.get(name, table)) != table:
                met[name] = (table, found) if borrower is one else (found, table)
    if met:
        names = [
            name if mine == yours else f"{name} ({mine} of {one.name}, {yours} of {other.name})"
            for name, (mine, yours) in sorted(met.items())
        ]
        words = f"{one.name} and {other.name} would create the same names on {server}: {_first(names)}"
        yield _problem(words, _OTHER_NAMING, lines, other.name, "naming")


_Created = tuple[Environment, Mapping[str, TableName]]
"""An environment, and its names as `_created` returns them."""


def _created(environment: Environment, tables: Mapping[TableName, Table]) -> dict[str, TableName]:
    """Return the names that an environment creates in its database, with their tables."""
    naming, every = environment.naming, environment.sources.of == OWN
    return {naming.of(name): name for name, table in tables.items() if every or not table.external}


def _borrowed(
    environment: Environment, owner: Environment, tables: Mapping[TableName, Table]
) -> Iterator[tuple[str, TableName]]:
    """Yield the names of the external tables that an environment shares with others in the database of `owner`."""
    naming = environment.sources.naming
    if naming is not None and naming.place == owner.naming.place:
        for name, table in tables.items():
            if table.external:
                yield naming.of(name), name


_Place = tuple[str, str, tuple[str, ...]]
"""Brokers, name, and the values of the variables that may determine both."""


def _collisions_on_brokers(
    environments: Iterable[Environment], lines: KeyLines, tables: Mapping[TableName, Table]
) -> Iterator[Problem]:
    written = [table for table in tables.values() if table.written_topic()]
    grouped = [table for table in tables.values() if table.settings.mirror_offsets]

    def topics_of(environment: Environment) -> Iterator[_Place]:
        from core.sql.kafka_topics import topic_place

        for table in written:
            servers = topic_place(table.parsed_ddl.location).servers
            yield servers, table.written_topic(environment.naming), _values(environment, table)

    def groups_of(environment: Environment) -> Iterator[_Place]:
        for table in grouped:
            reads = table.parsed.reads if table.parsed is not None else ()
            values = _values(environment, table, *(tables[read.table] for read in reads if read.table in tables))
            for servers, _ in streamed_topics(table, tables):
                yield servers, environment.naming.of(table.settings.mirror_offsets), values

    kinds: tuple[tuple[str, Callable[[Environment], Iterator[_Place]]], ...] = (
        ("write the same topics", topics_of),
        ("commit offsets to the same consumer groups", groups_of),
    )
    for does, places_of in kinds:
        first: dict[_Place, str] = {}
        for environment in environments:
            met: dict[str, list[str]] = {}
            for place in dict.fromkeys(places_of(environment)):
                if (other := first.setdefault(place, environment.name)) != environment.name:
                    met.setdefault(other, []).append(place[1])
            for other, names in met.items():
                words = f"{other} and {environment.name} would {does}: {_first(sorted(names))}"
                remedy = "give one of them another prefix or suffix below naming"
                yield _problem(words, remedy, lines, environment.name, "naming")


def _values(environment: Environment, *tables: Table) -> tuple[str, ...]:
    """Return the values in an environment of the variables that some tables use."""
    used = {name for table in tables for name, _ in table.variables}
    return tuple(variable.value for variable in environment.variables if variable.name in used) if used else ()


def _is_relative(table: Table) -> bool:
    ddl = table.parsed_ddl
    return table_format(ddl.format).has_files and ddl.location_in("") != ddl.location


def _server(environment: Environment) -> str:
    """Return host and port of the server of an environment; empty if the agent starts the server."""
    found = _SERVER.match(environment.pool.url or "")
    return f"{found['host'].lower()}:{found['port'] or _DEFAULT_PORT}" if found else ""


def _first(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _problem(words: str, remedy: str, lines: KeyLines, environment: str, key: str) -> Problem:
    known = lines.get(environment, {})
    return Problem(words, remedy, Where(MANIFEST_PATH, known.get(key, known.get("", 0))), environment)
