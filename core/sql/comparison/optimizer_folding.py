"""Decides whether Spark is guaranteed to evaluate all aggregates and columns in an expression.

Spark keeps no state for an unused aggregate, and its optimizer may remove the only expression that uses one: all of
`HAVING count(*) >= count(*) OR sum(v) > 1` is folded away (ConstantFolding, BooleanSimplification,
SimplifyConditionals, PushFoldableIntoBranches, ConstantPropagation, UnwrapCastInBinaryComparison and similar rules in
catalyst/optimizer of Spark 4.2.0). For an expression of an unrecognized form, the answer is no. The script
tests/drills/aggregates_that_spark_drops.py compares these decisions with optimized plans.
"""

from collections.abc import Iterable, Iterator
from itertools import combinations
from typing import Any

from sqlglot import exp

from core.model.names import whole_number
from core.sql.parsing.canonical_text import sql_of
from core.sql.streaming.aggregation import aggregate_function

_NULLABLE_WORDS = """
    sum avg mean min max first first_value last last_value any_value max_by min_by median std stddev stddev_pop
    stddev_samp variance var_pop var_samp bool_and bool_or every some any try_sum try_avg
"""
_NULLABLE = frozenset(_NULLABLE_WORDS.split())
"""Aggregates whose result may be NULL, so that Spark cannot fold `IS NULL` on the result."""
_ARITHMETIC = (
    *(exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.DPipe),
    *(exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor),
)
_ORDERING = (exp.LT, exp.LTE)
"""Ordering comparisons. Canonical SQL contains neither > nor >=."""
_COMPARISONS = (*_ORDERING, exp.EQ, exp.NEQ, exp.NullSafeEQ)
_COALESCING = frozenset(("coalesce", "nvl", "ifnull"))
_CONDITIONAL_WORDS = """
    nvl2 nullif isnull isnotnull isnan nanvl decode equal_null zeroifnull nullifzero rand randn uuid typeof
    assert_true raise_error element_at try_element_at
"""
_CONDITIONAL = frozenset(_CONDITIONAL_WORDS.split())
"""Functions that may not evaluate all their arguments, or for which Spark has simplification rules."""
_LARGEST = 2**31 - 1
"""Largest accepted constant: a larger one may exceed the type of the other side, and Spark folds such a comparison."""


def output_is_whole(node: Any) -> bool:
    """True if Spark is guaranteed to evaluate every aggregate and column in an output expression."""
    node = node.unalias()
    return _value(node) or not _reads(node)


def condition_is_whole(node: Any) -> bool:
    """True if Spark is guaranteed to evaluate every aggregate and column in a condition, because it folds no part."""
    return _condition(list(_terms(node)))


def _is_condition(node: Any) -> bool:
    return isinstance(node, (exp.And, exp.Or, exp.Not, exp.Between, exp.In, exp.Is, *_COMPARISONS))


def _value(node: Any) -> bool:
    if _is_leaf(node):
        return True
    if isinstance(node, (exp.Paren, exp.Neg, exp.TryCast, exp.Cast)):
        return _value(node.this)
    if isinstance(node, exp.Extract):
        return _value(node.expression)
    if isinstance(node, exp.Case):
        branches = [each.args["true"] for each in node.args["ifs"]]
        if node.this is not None:
            return False
        return _branches([each.this for each in node.args["ifs"]], [*branches, node.args.get("default") or exp.Null()])
    if isinstance(node, exp.Anonymous):
        return _call(str(node.this), node.expressions)
    if isinstance(node, _ARITHMETIC):
        return all(_value(each) or _is_constant(each) for each in (node.this, node.expression))
    return _is_condition(node) and _condition(list(_terms(node)))


def _call(name: str, arguments: list[Any]) -> bool:
    if name in ("if", "iff") and len(arguments) == 3:
        return _branches(arguments[:1], arguments[1:])
    if name in _COALESCING:
        # Spark drops the arguments after the first one that cannot be NULL.
        return all(_is_nullable(each) for each in arguments[:-1]) and (
            _is_nullable(arguments[-1]) or _is_constant(arguments[-1])
        )
    if name in _CONDITIONAL or not any(_reads(each) for each in arguments):
        return False
    return all(_value(each) or _is_constant(each) for each in arguments)


def _branches(conditions: list[Any], results: list[Any]) -> bool:
    # Spark may simplify a CASE or IF in which two results are equal.
    texts = {sql_of(each) for each in results}
    known = all(_value(each) or _is_constant(each) or isinstance(each, exp.Null) for each in results)
    if len(texts) < len(results) or not known or not any(_reads(each) for each in results):
        return False
    return _condition([term for each in conditions for term in _terms(each)])


def _terms(node: Any) -> Iterator[Any]:
    if isinstance(node, (exp.And, exp.Or)):
        yield from _terms(node.this)
        yield from _terms(node.expression)
    elif isinstance(node, (exp.Not, exp.Paren)):
        yield from _terms(node.this)
    else:
        yield node


def _condition(terms: list[Any]) -> bool:
    if not all(_term(each) for each in terms):
        return False
    return all(_apart(one, other) for one, other in combinations(terms, 2))


def _apart(one: Any, other: Any) -> bool:
    # Two different bounds on the same expression cannot be combined either.
    if not set(_leaves(one)) & set(_leaves(other)):
        return True
    return isinstance(one, _ORDERING) and isinstance(other, _ORDERING) and set(_sides(one)) != set(_sides(other))


def _term(node: Any) -> bool:
    if isinstance(node, exp.Between):
        return is_read_in_comparisons(node.this) and all(
            _is_ordinary(each) for each in (node.args["low"], node.args["high"])
        )
    if isinstance(node, exp.In):
        listed = node.expressions
        return bool(listed) and is_read_in_comparisons(node.this) and all(_is_whole(each) for each in listed)
    if isinstance(node, exp.Is):
        return _is_nullable(node.this) and isinstance(node.expression, exp.Null)
    if isinstance(node, _COMPARISONS):
        sides = (node.this, node.expression)
        constants = [each for each in sides if not _reads(each)]
        if not constants:
            return all(is_read_in_comparisons(each) for each in sides) and not set(_leaves(sides[0])) & set(
                _leaves(sides[1])
            )
        fits = _is_ordinary if isinstance(node, _ORDERING) else _is_whole
        return len(constants) == 1 and fits(constants[0]) and any(is_read_in_comparisons(each) for each in sides)
    return isinstance(node, exp.Anonymous) and _is_nullable(node)


def is_read_in_comparisons(node: Any) -> bool:
    """True if Spark is guaranteed to evaluate an expression that is one side of a comparison.

    False for casts and branches, because Spark may move them to the other side.
    """
    kinds = (exp.Cast, exp.TryCast, exp.Case)
    if not _reads(node) or not _value(node) or any(isinstance(each, kinds) for each in _above_leaves(node)):
        return False
    named = {str(each.this) for each in _above_leaves(node) if isinstance(each, exp.Anonymous)}
    return not named & {"if", "iff", *_COALESCING}


def _is_constant(node: Any) -> bool:
    while isinstance(node, (exp.Paren, exp.Neg)):
        node = node.this
    return isinstance(node, (exp.Literal, exp.Interval))


def _is_ordinary(node: Any) -> bool:
    """True if values of a constant's type may be both smaller and larger than the constant."""
    while isinstance(node, (exp.Paren, exp.Neg)):
        node = node.this
    if not isinstance(node, exp.Literal):
        return isinstance(node, exp.Interval)
    return bool(node.is_string) or abs(float(node.this)) < _LARGEST


def _is_whole(node: Any) -> bool:
    # A value of another type may be unable to equal the constant, so that Spark folds the comparison.
    while isinstance(node, (exp.Paren, exp.Neg)):
        node = node.this
    return (
        isinstance(node, exp.Literal)
        and _is_ordinary(node)
        and (bool(node.is_string) or whole_number(str(node.this)) is not None)
    )


def _is_nullable(node: Any) -> bool:
    return str(getattr(aggregate_function(node), "this", "")) in _NULLABLE


def _is_leaf(node: Any) -> bool:
    return isinstance(node, exp.Column) or aggregate_function(node) is not None


def _reads(node: Any) -> bool:
    return any(_is_leaf(each) for each in _walked(node))


def _leaves(node: Any) -> Iterator[str]:
    """Yield the SQL of each aggregate in an expression, and of each column outside the aggregates."""
    return (sql_of(each) for each in _walked(node) if _is_leaf(each))


def _above_leaves(node: Any) -> Iterator[Any]:
    return (each for each in _walked(node) if not _is_leaf(each))


def _walked(node: Any) -> Iterable[Any]:
    waiting = [node]
    while waiting:
        each = waiting.pop()
        yield each
        if not _is_leaf(each):
            waiting.extend(each.iter_expressions())


def _sides(node: Any) -> tuple[str, str]:
    return sql_of(node.this), sql_of(node.expression)
