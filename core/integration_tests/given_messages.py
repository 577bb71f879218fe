"""Rows of cases as messages for a table over topics: SQL expressions that undo the reading of messages."""

from collections.abc import Iterable

from core.sql.debezium_envelopes import METADATA
from core.sql.kafka_topics import ValueFormat, is_field, value_format
from core.sql.statement import Column, TableDdl
from core.sql.written_topics import json_of
from core.text.escaping import quoted_name

MESSAGE = ("key", "value", "headers", "at")
"""The columns of a message: key and value in bytes, headers as a list, and the timestamp in epoch milliseconds."""

_LOCAL = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'"
"""How Debezium writes a time without a zone (`time.precision.mode=isostring`)."""


def given_message_expressions(ddl: TableDdl) -> tuple[str, ...]:
    """Return the SQL expressions that turn rows with a table's columns into messages with the columns `MESSAGE`.

    A row in which `_corrupt` has a text is a message with that text as its value. Parts that the table does not declare
    are NULL. A row without a declared `_timestamp` has the same time in every run.
    """
    names = {column.name.lower(): quoted_name(column.name) for column in ddl.columns}
    fields = [column for column in ddl.columns if is_field(column)]
    key = f"CAST({names['_key']} AS BINARY)" if "_key" in names else "CAST(NULL AS BINARY)"
    given = [f"CAST({names[name]} AS BINARY)" for name in ("_corrupt", "_value") if name in names]
    match value_format(ddl):
        case ValueFormat.RAW:
            value = given[-1] if given else "CAST(NULL AS BINARY)"
        case ValueFormat.DEBEZIUM:
            key = f"coalesce({key}, CAST({json_of(fields, ignoreNullFields='true')} AS BINARY))"
            value = f"coalesce({', '.join([*given, f'CAST({_envelope(names, fields)} AS BINARY)'])})"
        case _:
            value = f"coalesce({', '.join([*given, f'CAST({json_of(fields)} AS BINARY)'])})"
    headers = names.get("_headers", "CAST(NULL AS ARRAY<STRUCT<key: STRING, value: BINARY>>)")
    at = f"coalesce(unix_millis({names['_timestamp']}), 0L)" if "_timestamp" in names else "CAST(NULL AS BIGINT)"
    made = (key, value, headers, at)
    return tuple(f"{expression} AS {name}" for expression, name in zip(made, MESSAGE, strict=True))


def _envelope(names: dict[str, str], fields: Iterable[Column]) -> str:
    """Return the SQL expression of a change as Debezium writes it, with the settings that Headgate reads.

    Without `_op`, a row is an insert. `_sequence` gives the LSN if `_lsn` is not given.
    """
    part = {name: names.get(name, f"CAST(NULL AS {kind})") for name, (kind, _) in METADATA.items()}
    op = f"coalesce({part['_op']}, 'c')"
    # Rows of a snapshot come before all changes, which is in their sequence, but not in their LSN.
    sequence = part["_sequence"]
    lsn = f"coalesce({part['_lsn']}, IF({op} = 'r' AND {sequence} < 0, {sequence} + 9223372036854775807, {sequence}))"
    texts = [Column(each.name, "", "string" if each.type.startswith("decimal") else each.type) for each in fields]
    source = (
        f"named_struct('lsn', {lsn}, 'txId', {part['_xid']}, 'ts_ms', unix_millis({part['_committed_at']}), "
        f"'snapshot', {part['_snapshot']})"
    )
    after = f"IF({op} = 'd', CAST(NULL AS STRING), {json_of(texts, timestampNTZFormat=_LOCAL)})"
    head = f"to_json(named_struct('op', {op}, 'source', {source}, 'transaction', {part['_transaction']}))"
    # An update has the row before it, because Headgate could not tell NULL from a value that was not logged.
    before = f"IF({op} = 'u', '{{}}', 'null')"
    rest = f"""',"before":', {before}, ',"after":', coalesce({after}, 'null'), '}}'"""
    return f"concat(left({head}, length({head}) - 1), {rest})"
