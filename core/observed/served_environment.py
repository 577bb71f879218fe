"""What an agent read of its environment in headgate.yml when it started, and how the file differs from it now.

An agent keeps its data folder and its names for as long as it runs, because everything deployed has them.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from core.model.names import up_command
from core.observed.versions import Deployment
from core.project.model import Environment
from core.project.naming import Naming, Sources
from core.text.sentence import Fact, FactKind

_MADE = re.compile(r"CREATE TABLE IF NOT EXISTS (\S+) \(")
"""Matches the name in a compiled DDL."""

_RESTART = "put it back or, if nothing is deployed, restart the agent: headgate down --env {environment}, {up}"


class EnvironmentEdit(FactKind):
    """An edit of headgate.yml that an environment cannot follow; the code of a kind is the key that was edited."""

    DATA = (
        "the agent of {environment} works in the data folder {runs}, and headgate.yml now declares {declared}",
        _RESTART + ", headgate adopt --env {environment}",
    )
    NAMING = ("the agent of {environment} gives the names {runs}, and headgate.yml now declares {declared}", _RESTART)
    POOLS = (
        "the agent of {environment} has {runs}, and headgate.yml now declares {declared}",
        "put it back, or restart the agent: headgate down --env {environment}, {up}",
    )
    SOURCES = ("the agent of {environment} has sources: {runs}, and headgate.yml now declares {declared}", _RESTART)


class OtherName(FactKind):
    """A name that differs from the one under which a version was deployed; the code is the key that was edited."""

    NAMING = (
        "{table} was deployed as {made}, and headgate.yml now names it {named}",
        "put the old naming back, or declare another environment: what is deployed keeps its names",
    )
    SOURCES = (
        "{table} was registered as {made}, and headgate.yml now names it {named}",
        "put the old sources back, or declare another environment: what is deployed keeps its names",
    )


@dataclass(frozen=True, slots=True)
class ServedEnvironment:
    """The data folder, names and pool with which the newest agent of an environment works or has worked."""

    data: str
    """Absolute path of the data folder."""
    naming: Naming
    sources: Sources
    pool: str = ""
    """The address of the pool without parameters, as in `Pool.address`."""
    declared_data: str = ""
    """The data folder as headgate.yml declared it: relative to the project folder, or absolute."""
    pools: tuple[str, ...] = ()
    """The names of the pools that headgate.yml declares below `pools`; empty for one pool."""

    @property
    def has_remote_server(self) -> bool:
        """True if the pool's server is one that the agent does not manage."""
        return self.pool.startswith("sc://")


def environment_edits(served: ServedEnvironment, declared: Environment, data: str) -> Iterator[Fact[EnvironmentEdit]]:
    """Yield how headgate.yml differs from what an agent serves; `data` is the declared folder as an absolute path.

    The same relative folder is no difference in another checkout of the project.
    """
    up = up_command(declared.name, protected=declared.protected)
    for kind, runs, now in (
        (EnvironmentEdit.DATA, served.data, served.data if declared.data == served.declared_data else data),
        (EnvironmentEdit.NAMING, served.naming.pattern, declared.naming.pattern),
        (EnvironmentEdit.SOURCES, _words(served.sources), _words(declared.sources)),
        (EnvironmentEdit.POOLS, _pools(served.pools), _pools(tuple(pool.name for pool in declared.named_pools))),
    ):
        if runs != now:
            yield kind.of(environment=declared.name, runs=runs, declared=now, up=up)


def other_name(deployments: Iterable[Deployment], declared: Environment) -> Fact[OtherName] | None:
    """Return the first deployed version that headgate.yml now names otherwise; None if it names all as deployed."""
    for each in deployments:
        found = _MADE.match(each.compiled_ddl)
        made, named = found[1].replace("`", "") if found else "", declared.catalog_name(each.table, each.version)
        if made and made != named:
            of_sources = not each.version and declared.sources.naming is not None
            kind = OtherName.SOURCES if of_sources else OtherName.NAMING
            return kind.of(table=each.table, made=made, named=named)
    return None


def _pools(names: tuple[str, ...]) -> str:
    # The first one is the default, so the order matters.
    return f"the pools {', '.join(names)}" if names else "one pool"


def _words(sources: Sources) -> str:
    names = f", named {sources.naming.pattern}" if sources.naming is not None else ""
    return f"{sources.of}{names}" + (f", in {sources.data}" if sources.data else "")
