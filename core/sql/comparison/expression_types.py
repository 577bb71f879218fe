"""The type that an expression writes, as far as its text alone tells; the types of columns are not known here."""

from typing import Any

from sqlglot import exp

from core.sql.parsing.canonical_text import sql_of
from core.sql.parsing.function_names import plain_function_name
from core.sql.parsing.parser import parse_query
from core.sql.tokens.data_types import read_type
from core.sql.tokens.lexer import SqlDiagnostic, open_sql, tokens_of

_BY_TYPE = {
    "string": "concat_ws date_format format_string from_unixtime get_json_object initcap lower lpad ltrim md5 "
    "regexp_extract regexp_replace replace rpad rtrim sha1 sha2 substr substring to_json translate trim upper",
    "bigint": "count count_if unix_micros unix_millis unix_seconds xxhash64",
    "int": "char_length dayofmonth hash hour instr length minute month quarter second size year",
    "date": "current_date to_date",
    "timestamp": "current_timestamp now timestamp_micros timestamp_millis timestamp_seconds",
    "boolean": "contains endswith isnotnull isnull startswith",
}
_TYPE_OF = {name: kind for kind, names in _BY_TYPE.items() for name in names.split()}
"""Functions of Spark 4.2.0 with one type whatever their arguments."""
_CONDITIONS = (exp.Predicate, exp.And, exp.Or, exp.Not)


def expression_type(expression: str) -> str:
    """Return Spark's type of a canonical expression in lower case, empty where it depends on a column or is unknown."""
    try:
        query = parse_query(tokens_of(open_sql(f"SELECT {expression}", "")), "")
    except (SqlDiagnostic, RecursionError):
        return ""
    return _type_of(query.expressions[0].unalias()) if len(query.expressions) == 1 else ""


def _type_of(node: Any) -> str:
    if isinstance(node, (exp.Cast, exp.TryCast)):
        return _normal(sql_of(node.to))
    if isinstance(node, exp.Paren):
        return _type_of(node.this)
    if isinstance(node, exp.Literal):
        return "string" if node.is_string else ""
    if isinstance(node, exp.Boolean) or (isinstance(node, _CONDITIONS) and not isinstance(node, exp.Case)):
        return "boolean"
    if isinstance(node, exp.Anonymous):
        return _TYPE_OF.get(plain_function_name(str(node.this)), "")
    if isinstance(node, (exp.Case, exp.Coalesce)):
        return _common(node)
    return ""


def _normal(text: str) -> str:
    """Write a type as the DDL has it; the file holds a string for CHAR and VARCHAR."""
    try:
        kind, _ = read_type(tokens_of(open_sql(text, "")), 0)
    except (SqlDiagnostic, LookupError):
        return ""
    return "string" if kind.startswith(("char", "varchar")) else kind


def _common(node: Any) -> str:
    """Return the type that all branches have."""
    if isinstance(node, exp.Case):
        branches = [each.args.get("true") for each in node.args.get("ifs") or []] + [node.args.get("default")]
    else:
        branches = [node.this, *node.expressions]
    types = {_type_of(each) for each in branches if each is not None and not isinstance(each, exp.Null)}
    return types.pop() if len(types) == 1 else ""
