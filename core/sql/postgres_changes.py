"""Changes of a PostgreSQL table, or its logical messages, as external tables: options, address and rows.

Each external table has a logical replication slot, from which its changes are read; the agent adds the slot's name to
the compiled DDL.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from core.sql.jdbc_tables import JdbcFault, connection_parameters, jdbc_fault, jdbc_location
from core.sql.statement import Column, TableDdl
from core.text.escaping import quoted_name, quoted_string_literal
from core.text.sentence import Fact, FactKind

SLOT = "slot"
NEW_SLOT = "a rebuild with --from earliest begins with a new slot; the changes until then are lost"
"""Remedy for a slot that no longer has the changes that a statement needs."""

_PUBLICATION, _MESSAGES, _LIMIT, _TABLE = "publication", "messages", "maxChanges", "dbtable"
_SNAPSHOT, _INITIAL = "snapshot", "initial"
_FAILOVER, _TRUE = "failover", "true"
_OPTIONS = ("url", "user", _TABLE, _MESSAGES, _PUBLICATION, _LIMIT, _SNAPSHOT, _FAILOVER)
_IDENTIFIER = re.compile(r"[a-z_][a-z0-9_]{0,62}\Z")
_PREFIX = re.compile(r"[\x21-\x7e]{1,100}\Z")
_LONGEST_SLOT = 63
_COPIED = {"_op": "string", "_commit_lsn": "bigint", "_lsn": "bigint", "_xid": "bigint"}
_OF_TABLE = {**_COPIED, "_committed_at": "timestamp"}
_OF_MESSAGES = {**{name: kind for name, kind in _OF_TABLE.items() if name != "_op"}, "_prefix": "string"}
"""Columns for the parts of a message, with their types; `_content` is missing, because it may have two types."""
_CONTENT = ("binary", "string")
_AS_TEXT = re.compile(r"(?:array|map|struct|variant|interval)\b", re.I)


class ChangesFault(FactKind):
    """Why changes of a database cannot be read as declared."""

    BOTH = "names a table and messages", "declare two external tables, one with dbtable and one with messages"
    BAD_MESSAGES = "reads messages {prefix}", "write the prefix that pg_logical_emit_message is called with"
    NO_PUBLICATION = (
        "names no publication",
        "add publication 'headgate' to its OPTIONS, and CREATE PUBLICATION headgate FOR TABLE … in the database",
    )
    BAD_PUBLICATION = "has the publication {publication}", "write lower-case letters, digits and _"
    BAD_LIMIT = "has maxChanges {limit}", "write a whole number of at least 1"
    BAD_SNAPSHOT = "has the snapshot {snapshot}", "write snapshot 'initial', or remove it: messages have no rows"
    BAD_FAILOVER = "has failover {failover}", "write failover 'true', or remove it"
    UNKNOWN_OPTION = "has the option {option}, which reads nothing", "remove it; options: {known}"
    UNDERSCORE = "has a column {column}, and names with _ are parts of a change", "rename it, or use one of {known}"
    TYPE = "has {column} {found}", "declare {column} {expected}"
    NO_COLUMNS = "declares no column of the table", "declare the columns to read"
    NO_CONTENT = "declares columns that are no part of a message: {column}", "declare _content, _prefix, _lsn, …"
    PARTITIONED = "is partitioned", "remove PARTITIONED BY: a stream of changes has no partitions"
    TEXT_ONLY = "has {column} {found}", "declare {column} STRING, and parse PostgreSQL's text in the statement"


class ChangesRisk(FactKind):
    """What a statement that reads changes of a database risks; the sentence follows the statement's name."""

    ROWS_TWICE = (
        "has no key, and begins with the rows of {source}: if its first batch is interrupted, changes since then are "
        "in the table twice",
        "give it mode: upsert and a key, or rebuild it after an interruption",
    )
    """An exported snapshot ends with its session (PostgreSQL 18 manual, "Snapshot Synchronization Functions")."""


@dataclass(frozen=True, slots=True)
class ChangeAddress:
    """Where the changes of an external table are read: the connection, the slot, and the table or messages."""

    dsn: str
    """Connection string for PostgreSQL's client library; the string never contains a password."""
    slot: str
    publication: str
    table: str = ""
    """Schema and table, separated by a dot; empty for messages."""
    prefix: str = ""
    snapshot: bool = False
    """Whether a new reader begins with the rows that the table has when the reader starts."""
    failover: bool = False
    """Whether standbys get a copy of the slot."""


def changes_location(options: Mapping[str, str]) -> str:
    """Return `postgresql://host:port/database#schema.table`, or `#messages:PREFIX`; empty if a part is malformed."""
    given = {key.lower(): value for key, value in options.items()}
    messages = given.get(_MESSAGES, "")
    place = jdbc_location({**given, **({_TABLE: "messages"} if messages else {})}).removeprefix("jdbc:")
    return f"{place.partition('#')[0]}#messages:{messages}" if place and messages else place


def changes_fault(ddl: TableDdl) -> Fact[ChangesFault] | Fact[JdbcFault] | None:
    """Return the first fault in a declaration; None if it can be read."""
    if ddl.partitioning:
        return ChangesFault.PARTITIONED.of()
    given = {key.lower(): value for key, value in ddl.options}
    known = {name.lower() for name in _OPTIONS}
    of_jdbc = [(key, value) for key, value in ddl.options if key.lower() in ("url", "user", _TABLE)]
    secrets = [(key, value) for key, value in ddl.options if re.search(r"password|secret|token", key, re.I)]
    if unknown := next((key for key, _ in ddl.options if key.lower() not in known), "") if not secrets else "":
        return ChangesFault.UNKNOWN_OPTION.of(option=unknown, known=_OPTIONS)
    if _MESSAGES in given:
        if _TABLE in given:
            return ChangesFault.BOTH.of()
        of_jdbc.append((_TABLE, "messages"))
    if fault := jdbc_fault(_with_options(ddl, (*of_jdbc, *secrets))):
        return fault
    if _MESSAGES in given and not _PREFIX.match(given[_MESSAGES]):
        return ChangesFault.BAD_MESSAGES.of(prefix=given[_MESSAGES])
    if not (publication := given.get(_PUBLICATION)):
        return ChangesFault.NO_PUBLICATION.of()
    if not _IDENTIFIER.match(publication):
        return ChangesFault.BAD_PUBLICATION.of(publication=publication)
    limit = given.get(_LIMIT.lower(), "1")
    if not re.fullmatch(r"[1-9][0-9]{0,8}", limit, re.ASCII):
        return ChangesFault.BAD_LIMIT.of(limit=limit)
    if (snapshot := given.get(_SNAPSHOT, _INITIAL)) != _INITIAL or (_SNAPSHOT in given and _MESSAGES in given):
        return ChangesFault.BAD_SNAPSHOT.of(snapshot=snapshot)
    if (failover := given.get(_FAILOVER, _TRUE)) != _TRUE:
        return ChangesFault.BAD_FAILOVER.of(failover=failover)
    return _column_fault(ddl, of_messages=_MESSAGES in given)


def _column_fault(ddl: TableDdl, *, of_messages: bool) -> Fact[ChangesFault] | None:
    parts = _OF_MESSAGES if of_messages else _OF_TABLE
    for column in ddl.columns:
        name = column.name.lower()
        if of_messages and name == "_content":
            if column.type not in _CONTENT:
                return ChangesFault.TYPE.of(column=column.name, found=column.type, expected=_CONTENT[0])
        elif name in parts:
            if column.type != parts[name]:
                return ChangesFault.TYPE.of(column=column.name, found=column.type, expected=parts[name])
        elif of_messages:
            return ChangesFault.NO_CONTENT.of(column=column.name)
        elif name.startswith("_"):
            return ChangesFault.UNDERSCORE.of(column=column.name, known=tuple(parts))
        elif _AS_TEXT.match(column.type):
            return ChangesFault.TEXT_ONLY.of(column=column.name, found=column.type)
    if not of_messages and all(column.name.startswith("_") for column in ddl.columns):
        return ChangesFault.NO_COLUMNS.of()
    return None


def begins_with_rows(ddl: TableDdl) -> bool:
    """True if a new reader begins with the rows that the table has when the reader starts."""
    return any(key.lower() == _SNAPSHOT for key, _ in ddl.options)


def slot_name(environment: str, table: str) -> str:
    """Return a valid PostgreSQL name for an external table's replication slot, given the environment's id."""
    name = re.sub(r"[^a-z0-9_]", "_", f"headgate_{environment[:8]}_{table}".lower())
    if len(name) <= _LONGEST_SLOT:
        return name
    digest = hashlib.sha256(table.encode()).hexdigest()[:8]
    return f"{name[: _LONGEST_SLOT - 9]}_{digest}"


def with_slot(ddl: TableDdl, slot: str) -> TableDdl:
    """Return a declaration with the name of the slot among its options."""
    return _with_options(ddl, (*ddl.options, (SLOT, slot)))


def change_address(ddl: TableDdl) -> str:
    """Return a declaration's address, including its slot, as a URL for `read_address`."""
    given = {key.lower(): value for key, value in ddl.options}
    connection = connection_parameters(_for_jdbc(ddl))
    host = f"[{connection['host']}]" if ":" in connection["host"] else connection["host"]
    server = f"{quote(connection['user'], safe='')}@{host}:{connection['port']}"
    more = {name: value for name, value in connection.items() if name.startswith("ssl")}
    more |= {_SNAPSHOT: _INITIAL} if begins_with_rows(ddl) else {}
    more |= {_FAILOVER: _TRUE} if _FAILOVER in given else {}
    query = urlencode({**more, SLOT: given[SLOT], _PUBLICATION: given[_PUBLICATION]})
    part = ddl.location.partition("#")[2]
    return f"postgresql://{server}/{connection['dbname']}?{query}#{part}"


def read_address(url: str) -> ChangeAddress:
    """Parse an address made by `change_address`."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    slot, publication = query.pop(SLOT), query.pop(_PUBLICATION)
    snapshot, failover = query.pop(_SNAPSHOT, ""), query.pop(_FAILOVER, "")
    dsn = f"postgresql://{parts.netloc}{parts.path}" + (f"?{urlencode(query)}" if query else "")
    is_messages = parts.fragment.startswith("messages:")
    return ChangeAddress(
        dsn,
        slot,
        publication,
        table="" if is_messages else parts.fragment,
        prefix=parts.fragment.removeprefix("messages:") if is_messages else "",
        snapshot=bool(snapshot),
        failover=bool(failover),
    )


def source_options(ddl: TableDdl) -> dict[str, str]:
    """Return the options of the data source for a declaration with a slot."""
    address = read_address(change_address(ddl))
    found = {"dsn": address.dsn, SLOT: address.slot, _PUBLICATION: address.publication}
    found |= {"table": address.table} if address.table else {"prefix": address.prefix}
    found |= {_SNAPSHOT: _INITIAL} if address.snapshot else {}
    limit = next((value for key, value in ddl.options if key.lower() == _LIMIT.lower()), "")
    return found | ({"maxchanges": limit} if limit else {})


def source_schema(ddl: TableDdl) -> str:
    """Return the data source's column list: values are strings from PostgreSQL, and parts of a change are typed."""
    return ", ".join(dict.fromkeys(f"{quoted_name(name)} {kind}" for name, kind in map(_source_column, ddl.columns)))


def row_columns(ddl: TableDdl) -> tuple[str, ...]:
    """Return the SQL expressions that cast the columns of the data source to the declared types."""
    return tuple(f"{_expression(column)} AS {quoted_name(column.name)}" for column in ddl.columns)


def _source_column(column: Column) -> tuple[str, str]:
    name = column.name.lower()
    if name == "_committed_at":
        return "_committed_us", "bigint"
    return name, "binary" if name == "_content" else (_COPIED | _OF_MESSAGES).get(name, "string")


def _expression(column: Column) -> str:
    name = column.name.lower()
    if name == "_committed_at":
        return "timestamp_micros(_committed_us)"
    value = quoted_name(name)
    if column.type == "binary" and name != "_content":
        # PostgreSQL writes bytes as `\x` and hexadecimal digits.
        wrong = f"raise_error({quoted_string_literal(f'{column.name} is no bytea, and is declared BINARY')})"
        digits = f"IF(startswith({value}, concat(chr(92), 'x')), substring({value}, 3), {wrong})"
        return f"IF({value} IS NULL, NULL, unhex({digits}))"
    if column.type in ("date", "timestamp", "timestamp_ntz"):
        # Spark would ignore BC after a date, and add the current date to a time of day (4.2.0).
        value = f"IF({value} LIKE '%-%-%' AND {value} NOT LIKE '% BC', {value}, concat('? ', {value}))"
    return f"CAST({value} AS {column.type})"


def _for_jdbc(ddl: TableDdl) -> TableDdl:
    return _with_options(ddl, tuple(pair for pair in ddl.options if pair[0].lower() in ("url", "user")))


def _with_options(ddl: TableDdl, options: tuple[tuple[str, str], ...]) -> TableDdl:
    return replace(ddl, options=options)
