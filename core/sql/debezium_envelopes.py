"""Debezium's envelopes as rows: how the JSON of a captured change becomes the row after the change, or a fault.

Depending on its settings, Debezium encodes the same value in different ways, and its JSON does not state which. A
column is converted only if its encoding cannot be mistaken for another; any other value is a fault, never a wrong
value. The encodings were recorded from Debezium 3.5.0 on PostgreSQL 18.
"""

from collections.abc import Sequence

from core.sql.statement import Column
from core.text.escaping import quoted_name, quoted_string_literal

METADATA = {
    "_op": ("string", "_change.op"),
    "_sequence": ("bigint", "IF(_change.op = 'r', _change.source.lsn - 9223372036854775807, _change.source.lsn)"),
    "_lsn": ("bigint", "_change.source.lsn"),
    "_xid": ("bigint", "_change.source.txId"),
    "_committed_at": ("timestamp", "timestamp_millis(_change.source.ts_ms)"),
    "_snapshot": ("string", "_change.source.snapshot"),
    "_transaction": ("struct<id:string,total_order:bigint>", "_change.transaction"),
}
"""Columns for the metadata of a change, each with its type and its expression.

`_sequence` orders the changes of a key. Rows of a snapshot come before all others: they have the LSN of the snapshot,
but a transaction that was open at that time has changes with lower LSNs that the snapshot lacks.
"""

_PLAIN = frozenset({"string", "boolean", "tinyint", "smallint", "int", "bigint", "float", "double"})
"""Types whose values JSON represents unambiguously."""
_UNCHANGED = "__debezium_unavailable_value"
_UNCHANGED_BYTES = "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="
_UNCHANGED_UUID = "b68a35a7-17ad-35b3-af2a-ae46edb4545a"
_UNCHANGED_NUMBERS = ",".join(str(ord(letter)) for letter in _UNCHANGED)
"""What Debezium writes for a large value that PostgreSQL did not log because it is unchanged: for text, for bytes, for
an element of uuid[], and for int[] or bigint[]. For arrays of other types, it writes NULL."""
_FULL = "set REPLICA IDENTITY FULL for its table"
_DAYS = (-719162, 2932896)
"""First and last day of Spark's type DATE, in days since 1970-01-01."""


def is_readable(kind: str) -> bool:
    """True if values of a type can be read from Debezium's JSON without mistaking one value for another."""
    element = kind.removeprefix("array<").removesuffix(">")
    return element in _PLAIN or kind in ("date", "timestamp", "timestamp_ntz") or kind.startswith("decimal")


def change_steps(columns: Sequence[Column]) -> tuple[str, ...]:
    """Return the expressions that add `_row` and `_fault` to the columns of Spark's Kafka source.

    Each expression needs a projection of its own, because it refers to the previous ones. `_row` is a struct of the
    given columns: columns of the captured table, and metadata. `_fault` states why a message is not a change of a row;
    it is NULL if the message is such a change. Tombstones must have been removed, but get no fault either, because
    Spark may evaluate a row's expressions before the condition that removes the row (seen with 4.2.0).
    """
    captured = [column for column in columns if column.name.lower() not in METADATA]
    fields = ", ".join([f"{quoted_name(c.name)}: {_read_as(c.type)}" for c in captured] + ["_corrupt: STRING"])
    envelope = (
        f"op: STRING, before: STRING, after: STRUCT<{fields}>, transaction: STRUCT<id: STRING, total_order: BIGINT>, "
        "source: STRUCT<lsn: BIGINT, txId: BIGINT, ts_ms: BIGINT, snapshot: STRING>"
    )
    key = "coalesce(get_json_object(CAST(key AS STRING), '$.payload'), CAST(key AS STRING))"
    parsed, is_wrong = whole_json("value", f"STRUCT<{envelope}, payload: STRUCT<{envelope}>>", "_json")
    parts = ", ".join(f"_json.whole.{name}" for name in ("op", "before", "after", "transaction", "source"))
    row = ", ".join(f"{quoted_string_literal(c.name)}, {_value(c)}" for c in columns)
    faults = " ".join(f"WHEN {when} THEN {quoted_string_literal(fault)}" for when, fault in _faults(captured, is_wrong))
    return (
        f"{parsed} AS _json",
        f"IF(_json.whole.op IS NULL, _json.whole.payload, struct({parts})) AS _change",
        f"IF(_change.op = 'd', {_parsed(key, f'STRUCT<{fields}>')}, _change.after) AS _source",
        f"named_struct({row}) AS _row",
        f"CASE WHEN value IS NULL THEN NULL {faults} END AS _fault",
    )


def whole_json(part: str, kind: str, to: str) -> tuple[str, str]:
    """Return the expression that parses a part of a message as one JSON object, and an SQL condition.

    The condition is true if the part is not one JSON object. The object is the field `whole` of the column `to`.
    `from_json` alone ignores all text after the first object, and parses an empty text to NULL (Spark 4.2.0); inside
    another object, both are errors.
    """
    text = f"""concat('{{"whole":', CAST({part} AS STRING), '}}')"""
    is_wrong = f"({to}._corrupt IS NOT NULL OR ({part} IS NOT NULL AND {to}.whole IS NULL))"
    return _parsed(text, f"whole {kind}, _corrupt STRING"), is_wrong


def _parsed(text: str, schema: str) -> str:
    mode = "map('mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', '_corrupt')"
    return f"from_json({text}, {quoted_string_literal(schema)}, {mode})"


def _read_as(kind: str) -> str:
    """Return the type with which a column's JSON is parsed; VARIANT distinguishes numbers from strings."""
    if kind.startswith("decimal"):
        return "variant"
    return "string" if kind in ("date", "timestamp", "timestamp_ntz") else kind


def _value(column: Column) -> str:
    """Return the expression of a column; it is NULL if the value cannot be converted with certainty."""
    if column.name.lower() in METADATA:
        return METADATA[column.name.lower()][1]
    found, kind = f"_source.{quoted_name(column.name)}", column.type
    if kind == "date":
        days = f"try_cast({found} AS INT)"
        iso = f"IF({found} RLIKE '^[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}Z?$', try_cast(left({found}, 10) AS DATE), NULL)"
        return f"IF({days} BETWEEN {_DAYS[0]} AND {_DAYS[1]}, date_from_unix_date({days}), {iso})"
    if kind in ("timestamp", "timestamp_ntz"):
        iso = "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,6})?Z$"
        text = found if kind == "timestamp" else f"left({found}, length({found}) - 1)"
        return f"IF({found} RLIKE '{iso}', try_cast({text} AS {kind}), NULL)"
    if kind.startswith("decimal"):
        text, scale = f"try_variant_get({found}, '$', 'string')", kind.rstrip(")").partition(",")[2].strip() or "0"
        exact = f"schema_of_variant({found}) IN ('STRING', 'BIGINT') AND {text} RLIKE"
        return f"IF({exact} '^-?[0-9]+([.][0-9]{{0,{scale}}}0*)?$', try_cast({text} AS {kind}), NULL)"
    return found


def _faults(columns: Sequence[Column], is_wrong: str) -> list[tuple[str, str]]:
    """Return pairs of an SQL condition on a message and the fault that it implies; the first true condition applies."""
    delete = "_change.op = 'd' AND"
    found = [
        (is_wrong, "is not JSON of the declared columns"),
        ("_change.op IS NULL", "has no envelope of Debezium; value.format='json' reads rows without envelopes"),
        ("_change.op = 't'", "is a TRUNCATE, which deletes rows that it does not name"),
        ("_change.op = 'm'", "is a logical decoding message and no change of a row"),
        ("_change.op NOT IN ('c', 'u', 'd', 'r')", "has an unknown op"),
        (f"{delete} key IS NULL", "is a delete without a key: set a primary key, or message.key.columns of Debezium"),
        (f"{delete} _source._corrupt IS NOT NULL", "is a delete whose key is not JSON of the declared columns"),
        (f"{delete} to_json(_source) = '{{}}'", "is a delete whose key has none of the declared columns"),
        ("_source IS NULL", "has no row after the change"),
    ]
    for column in columns:
        value, name = f"_source.{quoted_name(column.name)}", f"{column.name} {column.type.upper()}"
        if _read_as(column.type) != column.type:
            setting = "decimal.handling.mode=string" if "decimal" in column.type else "time.precision.mode=isostring"
            wrong = f"{value} IS NOT NULL AND _row.{quoted_name(column.name)} IS NULL"
            wrong += f" AND NOT is_variant_null({value})" if "decimal" in column.type else ""
            found.append((wrong, f"has a value that is no {name}; Debezium writes one with {setting}"))
        elif column.type == "string" or column.type not in _PLAIN:
            found.append((_unchanged(value, column.type), f"may lack the large unchanged value of {name}: {_FULL}"))
    return found


def _unchanged(value: str, kind: str) -> str:
    """Return the SQL condition that a value may be unknown, because PostgreSQL did not log a large unchanged value.

    The value is then a placeholder of Debezium, or NULL in an update without `before`. An update has `before` only if
    the table logs all values (REPLICA IDENTITY FULL).
    """
    if kind == "string":
        texts = (_UNCHANGED, _UNCHANGED_BYTES, f'["{_UNCHANGED}"]', f"[{_UNCHANGED_NUMBERS}]", f'["{_UNCHANGED_UUID}"]')
        return f"{value} IN ({', '.join(map(quoted_string_literal, texts))})"
    known = [f"CAST(array({_UNCHANGED_NUMBERS}) AS {kind})"] if kind != "array<boolean>" else []
    known += [f"array('{_UNCHANGED}')", f"array('{_UNCHANGED_UUID}')"] if kind == "array<string>" else []
    null = f"_change.op = 'u' AND _change.before IS NULL AND {value} IS NULL"
    return " OR ".join([null, *(f"{value} = {each}" for each in known)])
