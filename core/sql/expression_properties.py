"""Properties of an expression: its type, its dependence on row order, and its suitability as a condition."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from core.sql.comparison.query_edits import parsed_expression
from core.sql.parsing.canonical_text import sql_of
from core.sql.parsing.function_names import AGGREGATES, GENERATORS, plain_function_name
from core.sql.parsing.parser import parse_query
from core.sql.streaming.aggregation import aggregate_function
from core.sql.tokens.data_types import read_type
from core.sql.tokens.lexer import SqlDiagnostic, open_sql, tokens_of
from core.text.sentence import Fact, FactKind
from core.text.wording import clipped

_VOLATILE = frozenset({"rand", "randn", "random", "randstr", "uniform", "uuid", "shuffle"})
"""Non-deterministic functions that Spark 4.2.0 accepts in a condition of MERGE, or rejects only at run time."""


class ConditionFault(FactKind):
    """A reason why an expression cannot be a condition on a single row."""

    WINDOW = "{function}() OVER compares rows, but the condition is evaluated for one row"
    AGGREGATE = "{function}() aggregates many rows, but the condition is evaluated for one row"
    GENERATOR = "{function}() turns one row into many"
    VOLATILE = "{function}() returns a different value each time, but a batch that is retried must delete the same rows"
    ALIAS = "{name} is an alias and compares nothing"
    SEVERAL = "it is several expressions"
    LITERAL = "{literal} is neither true nor false"
    COLUMN = "{column} is {type}, which is neither true nor false"


def condition_fault(condition: str, kinds: Mapping[str, str]) -> Fact[ConditionFault] | None:
    """Return why an expression cannot be a condition on a single row; None if no reason is known.

    `kinds` maps columns to types, both in lower case. Raises SqlDiagnostic if the expression cannot be parsed.
    """
    sql = f"SELECT 1 WHERE ({condition}\n)"
    node = parse_query(tokens_of(open_sql(sql, "")), sql).args["where"].this
    return next(filter(None, map(_call_fault, node.find_all(exp.Anonymous))), None) or _type_fault(node, kinds)


def _call_fault(call: Any) -> Fact[ConditionFault] | None:
    name = plain_function_name(str(call.this))
    if isinstance(call.parent, exp.Window):
        return ConditionFault.WINDOW.of(function=name)
    if name in AGGREGATES:
        return ConditionFault.AGGREGATE.of(function=name)
    if name in GENERATORS:
        return ConditionFault.GENERATOR.of(function=name)
    return ConditionFault.VOLATILE.of(function=name) if name in _VOLATILE else None


def _type_fault(node: Any, kinds: Mapping[str, str]) -> Fact[ConditionFault] | None:
    match node:
        case exp.Paren() | exp.Not():
            return _type_fault(node.this, kinds)
        case exp.And() | exp.Or():
            return _type_fault(node.left, kinds) or _type_fault(node.right, kinds)
        case exp.Alias():
            return ConditionFault.ALIAS.of(name=node.alias)
        case exp.Tuple():
            return ConditionFault.SEVERAL.of()
        case exp.Literal():
            return ConditionFault.LITERAL.of(literal=node.sql())
        case exp.Column():
            kind = kinds.get(node.name.lower(), "boolean")
            return None if kind == "boolean" else ConditionFault.COLUMN.of(column=node.name, type=kind)
        case _:
            return None


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
"""Result types of Spark 4.2.0 functions whose type does not depend on their arguments."""
_CONDITIONS = (exp.Predicate, exp.And, exp.Or, exp.Not)


def expression_type(expression: str) -> str:
    """Return Spark's type of a canonical expression, in lower case; empty if it is unknown or depends on a column."""
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
    # Spark treats CHAR and VARCHAR as STRING in expressions.
    try:
        kind, _ = read_type(tokens_of(open_sql(text, "")), 0)
    except (SqlDiagnostic, LookupError):
        return ""
    return "string" if kind.startswith(("char", "varchar")) else kind


def _common(node: Any) -> str:
    if isinstance(node, exp.Case):
        branches = [each.args.get("true") for each in node.args.get("ifs") or []] + [node.args.get("default")]
    else:
        branches = [node.this, *node.expressions]
    types = {_type_of(each) for each in branches if each is not None and not isinstance(each, exp.Null)}
    return types.pop() if len(types) == 1 else ""


_LISTS = frozenset(("array_agg", "collect_list", "collect_set"))
"""Aggregates that return a list whose order depends on the order of the rows."""
_ANY = frozenset(
    (
        *("any_value", "first", "first_value", "last", "last_value", "max_by", "min_by", "mode", "listagg"),
        *("string_agg", "approx_percentile", "percentile_approx", "approx_top_k", "histogram_numeric"),
    )
)
"""Aggregates that return an arbitrary row's value or an approximation, and so depend on the order of the rows."""
_BLIND = frozenset(
    ("array_contains", "array_max", "array_min", "array_size", "array_sort", "cardinality", "size", "sort_array")
)
"""Functions of a list whose result does not depend on the list's order."""
_CLIPPED = 60


@dataclass(frozen=True, slots=True)
class RowOrder:
    """How the value of an expression depends on the order of rows."""

    call: str
    """SQL of the aggregate that depends on the order, at most 60 characters."""
    sorts: bool
    """Whether the value is a list that would be deterministic if it were sorted."""


def row_order(expression: str) -> RowOrder | None:
    """Return how an expression depends on the row order; None if it does not, or if it cannot be parsed."""
    tree = parsed_expression(expression)
    call = _first(tree) if tree is not None else None
    if call is None:
        return None
    whole = aggregate_function(tree)
    return RowOrder(clipped(sql_of(call), _CLIPPED), sorts=whole is not None and _name(whole) in _LISTS)


def _first(node: Any) -> Any:
    """Return the first call whose result depends on the row order; None if there is none.

    Skips WITHIN GROUP and the arguments of functions that ignore the order.
    """
    name = _name(node)
    if isinstance(node, exp.WithinGroup) or name in _BLIND:
        return None
    if name in _LISTS or name in _ANY:
        return node
    return next((found for child in node.iter_expressions() if (found := _first(child)) is not None), None)


def _name(node: Any) -> str:
    return str(node.this).lower() if isinstance(node, exp.Anonymous) else ""
