"""Checks of where external tables of files lie: whether a URI is complete, and whether pools and agent can read it."""

import re
from collections.abc import Set

from core.model.file_stores import LOCAL_FILES, OTHER, READABLE, names_root, scheme_of, store_kind
from core.model.problems import Problem, Severity, Where
from core.model.table_formats import TableFormat, table_format
from core.project.model import Environment, Table
from core.project.server_settings import is_exposed_secret
from core.text.sentence import Fact, FactKind

_PASSWORD = re.compile(r"://[^/\s@]*:[^/\s@]*@|[?&](?:sig|token|password|secret)=", re.IGNORECASE)
"""Matches a user with a password, and the signature of a shared access in a parameter."""
_ESCAPE = re.compile("%[0-9A-Fa-f]{2}")
"""Matches percent escapes in a path.

Delta takes them literally, even in a `file:` URI, and creates a folder of that name for a new table; Spark's catalog
decodes them (tested on Delta 4.4.0).
"""

_BUILT_IN = frozenset({"ftp", "har", "http", "https", "sftp", "swebhdfs", "viewfs", "webhdfs"})
"""Schemes that Headgate does not know, and that Spark reads without further jars (Hadoop 3.5.0)."""

_BRINGS_JARS = frozenset({"spark.jars", "spark.jars.packages", "spark.driver.extraClassPath"})


class LocationFault(FactKind):
    """What is wrong with the LOCATION of an external table of files."""

    PASSWORD = (
        "has a password in its LOCATION",
        "remove it, because the ledger stores it; conf of the pool refers to keys: headgate help environments",
    )
    SECRET_OPTION = (
        "has a secret in its option {option}",
        "remove it, because the ledger stores it; conf of the pool refers to keys: headgate help environments",
    )
    NO_ROOT = "lies at {place}, which is no complete URI in {store}", "write LOCATION '{form}'"
    UNREADABLE_LOG = (
        "lies at {place}, and the log of a table is read from {readable} only",
        "mount it where agent and pool run, and say its path as LOCATION",
    )
    UNKNOWN = (
        "lies at {place}, and the pool has no client for {scheme}://",
        "correct LOCATION, or give the pool the jars of a client: spark.jars in its conf",
    )
    UNMEASURED = (
        "lies at {place}, which Headgate cannot read: the lag of its readers stays unknown",
        "to measure it, mount it where agent and pool run, and write its path as LOCATION",
    )
    NO_CONNECTOR = (
        "lies in {store}, and headgate.yml names no connector {connector}",
        "add connectors: {{{connector}: {{}}}} to headgate.yml; its jars are fetched when the pool starts next",
    )
    NO_CLIENT = (
        "lies in {store}, for which the pool has no client",
        "give the pool the jars of {client}, in the version of its Hadoop: spark.jars in its conf",
    )
    OTHER_JARS = (
        "lies in {store}, which a pool reads only if its own jars have a client for it",
        "add connectors: {{{connector}: {{}}}} to headgate.yml, for pools that Headgate starts",
    )
    ESCAPED = (
        "lies at {place}, and {escape} is a letter to Spark's catalog and three to Delta",
        "rename the folder, or name a link to it that has no such letters",
    )


RISKS = frozenset({LocationFault.UNMEASURED, LocationFault.OTHER_JARS})
"""Faults with which a pool may still read the table."""


def has_only_known_jars(environment: Environment | None) -> bool:
    """True if Headgate starts the server of each pool of an environment, and only connectors give it jars."""
    pools = environment.pools if environment is not None else ()
    return all(pool.url is None and not _BRINGS_JARS & dict(pool.conf).keys() for pool in pools)


def check_location(table: Table, connectors: Set[str], problems: list[Problem], *, jars_known: bool) -> None:
    """Report a LOCATION that is wrong, or at which pools or agent cannot read an external table."""
    ddl, format = table.parsed_ddl, table_format(table.parsed_ddl.format)
    if not (format.external_input and format.has_files):
        return
    secret = next((key for key, value in ddl.options if is_exposed_secret(key, value)), None)
    fault = location_fault(ddl.location, format, connectors, jars_known=jars_known)
    if secret is not None:
        fault = LocationFault.SECRET_OPTION.of(option=secret)
    if fault is not None:
        severity = Severity.WARNING if fault.kind in RISKS else Severity.ERROR
        where = Where(table.ddl.path, ddl.line)
        problems.append(Problem(f"{table.name} {fault}", str(fault.remedy), where, table.name, severity=severity))


def location_fault(
    place: str, format: TableFormat, connectors: Set[str], *, jars_known: bool
) -> Fact[LocationFault] | None:
    """Return what is wrong with a LOCATION; None if pools and agent should be able to read it.

    `connectors` are those of headgate.yml. If `jars_known` is False, a pool may have jars of others as well.
    """
    kind, scheme = store_kind(place), scheme_of(place)
    if _PASSWORD.search(place):
        return LocationFault.PASSWORD.of()
    if kind is OTHER:
        if format.transaction_log:
            return LocationFault.UNREADABLE_LOG.of(place=place, readable=READABLE)
        if jars_known and scheme not in _BUILT_IN:
            return LocationFault.UNKNOWN.of(place=place, scheme=scheme)
        return LocationFault.UNMEASURED.of(place=place)
    if kind is not LOCAL_FILES and not names_root(place):
        return LocationFault.NO_ROOT.of(place=place, store=kind.name, form=kind.form)
    if kind.connector and kind.connector not in connectors:
        found = LocationFault.NO_CONNECTOR if jars_known else LocationFault.OTHER_JARS
        return found.of(store=kind.name, connector=kind.connector)
    if kind.client and jars_known:
        return LocationFault.NO_CLIENT.of(store=kind.name, client=kind.client)
    if format.transaction_log and (escape := _ESCAPE.search(place)):
        return LocationFault.ESCAPED.of(place=place, escape=escape[0])
    return None
