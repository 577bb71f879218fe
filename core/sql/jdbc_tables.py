"""Tables and views of a PostgreSQL database as external tables: the options of their DDL, their location, their rows.

Every batch of a statement that joins such a table reads it again (one SELECT for each reference in the SQL; Spark
4.2.0). With `refresh`, the agent copies the rows into a Delta table on that schedule, and batches read the copy: in
each batch, a running query reads the current version of a Delta table, whereas it would read only the Parquet files
that existed when the query started. SQL cannot declare the columns of a table `USING jdbc`, so each declared column is
cast from the database column of the same name.
"""

import re
from collections.abc import Mapping
from dataclasses import replace

from core.sql.statement import TableDdl
from core.text.escaping import quoted_name
from core.text.secret_masking import masked_address
from core.text.sentence import Fact, FactKind

DRIVER = "org.postgresql.Driver"
_URL, _USER, _TABLE, _REFRESH = "url", "user", "dbtable", "refresh"
_COPY = "copy"
"""Option for the folder of the copy; the agent adds it to the compiled DDL."""
_INTERVAL = re.compile(r"([1-9]\d{0,3}) (second|minute|hour|day)s?\Z", re.ASCII)
_UNIT_S = {"second": 1, "minute": 60, "hour": 3600, "day": 86400}
SHORTEST_REFRESH_S = 10
_TLS = frozenset({"sslmode", "sslrootcert"})
"""URL parameters that Spark's driver and PostgreSQL's own client library have in common."""

_OPTIONS = {
    name.lower(): name
    for name in (
        _URL, _USER, _TABLE, "fetchsize", "queryTimeout", "partitionColumn", "lowerBound", "upperBound",
        "numPartitions", "pushDownPredicate", "preferTimestampNTZ", _REFRESH,
    )
}  # fmt: skip
"""Allowed options by lower-case name: `refresh`, and the options of Spark's JDBC source that concern reading (Spark 4.2
guide, "JDBC To Other Databases")."""
_PORT = "5432"
_SECRET = re.compile(r"password|keytab|secret|token", re.I)
_ADDRESS = re.compile(
    r"jdbc:postgresql://(?P<host>[\w.-]+|\[[\da-fA-F:]+\])(?::(?P<port>\d{1,5}))?/(?P<database>[\w-]+)(?:\?(?P<rest>.*))?\Z",
    re.ASCII,
)
_NAME = re.compile(r"(?:[a-z_][a-z0-9_$]*\.)?[a-z_][a-z0-9_$]*\Z")

_URI = re.compile(
    r"postgres(?:ql)?://(?P<user>[\w.-]+)@(?P<server>[^/@]+)/(?P<database>[\w-]+)/(?P<table>[^/?#]+)\Z", re.A
)


class JdbcFault(FactKind):
    """Why a table in a database cannot be read as declared."""

    NO_URL = (
        "names no database",
        "write OPTIONS (url 'jdbc:postgresql://host:5432/database', user 'reader', dbtable 'public.products')",
    )
    BAD_URL = "has the url {url}", "write jdbc:postgresql://host:5432/database, with one host and no user"
    NO_USER = "names no user of the database", "add user 'reader' to its OPTIONS, and the password to ~/.pgpass"
    NO_TABLE = "names no table of the database", "add dbtable 'schema.table' to its OPTIONS; a view is fine too"
    BAD_TABLE = (
        "has dbtable {table}, which is not schema.table",
        "write lower-case names; for a query, create a view in the database",
    )
    SECRET = (
        "has the secret {option} in its OPTIONS, which the ledger would store",
        "remove it, and put the password into ~/.pgpass of the user who runs the pool",
    )
    UNKNOWN_OPTION = "has the option {option}, which reads nothing", "remove it; options: {known}"
    BAD_REFRESH = "has refresh {refresh}", "write an interval of at least {shortest} seconds, such as '5 minutes'"
    PARTITIONED = "is partitioned", "remove PARTITIONED BY: partitionColumn in OPTIONS splits the reading"


def jdbc_location(options: Mapping[str, str]) -> str:
    """Return the location of a table from its options, `jdbc:postgresql://host:port/database#schema.table`.

    The location is empty if the url or the table is missing or malformed. It never contains connection parameters.
    """
    given = {key.lower(): value for key, value in options.items()}
    address, name = _ADDRESS.match(given.get(_URL, "")), _NAME.match(given.get(_TABLE, ""))
    if address is None or name is None:
        return ""
    server = f"{address['host'].lower()}:{address['port'] or _PORT}"
    return f"jdbc:postgresql://{server}/{address['database']}#{_qualified(given[_TABLE])}"


def connection_parameters(ddl: TableDdl) -> dict[str, str]:
    """Return the connection parameters of a valid declaration, by their names in libpq and without a password."""
    given = {key.lower(): value for key, value in ddl.options}
    address = _ADDRESS.match(given[_URL])
    assert address is not None
    rest = (part.partition("=") for part in (address["rest"] or "").split("&"))
    return {
        "host": address["host"].strip("[]"),
        "port": address["port"] or _PORT,
        "dbname": address["database"],
        "user": given[_USER],
        **{name: value for name, _, value in rest if name in _TLS},
    }


def qualified_table(ddl: TableDdl) -> str:
    """Return the name `schema.table` that a valid declaration has in the database."""
    return _qualified(next(value for key, value in ddl.options if key.lower() == _TABLE))


def _qualified(table: str) -> str:
    return table if "." in table else f"public.{table}"


def jdbc_options_of(uri: str) -> dict[str, str] | None:
    """Return the OPTIONS of the table at `postgresql://user@host:port/database/schema.table`.

    Returns None if the URI has another form or contains a password.
    """
    found = _URI.match(uri)
    if found is None:
        return None
    options = {_URL: f"jdbc:postgresql://{found['server']}/{found['database']}", _USER: found["user"]}
    options[_TABLE] = _qualified(found["table"])
    return options if jdbc_location(options) else None


def jdbc_fault(ddl: TableDdl) -> Fact[JdbcFault] | None:
    """Return the first fault in the declaration of a table in a database; None if it can be read."""
    given = {key.lower(): value for key, value in ddl.options}
    for name, _ in ddl.options:
        if _SECRET.search(name):
            return JdbcFault.SECRET.of(option=name)
        if name.lower() not in _OPTIONS:
            return JdbcFault.UNKNOWN_OPTION.of(option=name, known=tuple(_OPTIONS.values()))
    if not given.get(_URL):
        return JdbcFault.NO_URL.of()
    address = _ADDRESS.match(given[_URL])
    if address is None:
        return JdbcFault.BAD_URL.of(url=masked_address(given[_URL]))
    if secret := next((part for part in (address["rest"] or "").split("&") if _SECRET.search(part)), ""):
        return JdbcFault.SECRET.of(option=secret.partition("=")[0])
    if not given.get(_USER):
        return JdbcFault.NO_USER.of()
    if not given.get(_TABLE):
        return JdbcFault.NO_TABLE.of()
    if not _NAME.match(given[_TABLE]):
        return JdbcFault.BAD_TABLE.of(table=given[_TABLE])
    if _REFRESH in given and (refresh_s(ddl) or 0) < SHORTEST_REFRESH_S:
        return JdbcFault.BAD_REFRESH.of(refresh=given[_REFRESH], shortest=SHORTEST_REFRESH_S)
    return JdbcFault.PARTITIONED.of() if ddl.partitioning else None


def refresh_s(ddl: TableDdl) -> int | None:
    """Return the seconds between two copies of the rows; None if each batch reads the database itself."""
    found = _INTERVAL.match(next((value for key, value in ddl.options if key.lower() == _REFRESH), ""))
    return int(found[1]) * _UNIT_S[found[2]] if found else None


def with_copy(ddl: TableDdl, folder: str) -> TableDdl:
    """Return a declaration whose rows are read from the Delta table in `folder`."""
    return replace(ddl, options=(*ddl.options, (_COPY, folder)))


def copy_of(ddl: TableDdl) -> str:
    """Return the folder of the Delta table from which rows are read; empty if the database is read."""
    return dict(ddl.options).get(_COPY, "")


def jdbc_options(ddl: TableDdl) -> dict[str, str]:
    """Return the options for Spark's JDBC source."""
    given = {key.lower(): value for key, value in ddl.options if key.lower() not in (_REFRESH, _COPY)}
    return {_OPTIONS[key]: value for key, value in given.items()} | {"driver": DRIVER}


def jdbc_columns(ddl: TableDdl) -> tuple[str, ...]:
    """Return the SQL expressions of the declared columns, each cast to its declared type.

    Spark pushes filters through a cast to a wider type down to the database (Spark 4.2.0).
    """
    return tuple(f"CAST({quoted_name(c.name)} AS {c.type}) AS {quoted_name(c.name)}" for c in ddl.columns)
