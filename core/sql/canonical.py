"""One text for equal meaning: conditions in one order and orientation, brackets where they matter, names in lower case.

Never unify what might differ for Spark: a missed equality costs a restart, a false one corrupts a table.
"""

import re
from typing import Any

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ErrorLevel

from core.sql.functions import plain
from core.sql.lexing import Misread
from core.sql.unfolding import unfold

_PLAIN = re.compile(r"[a-z_][a-z0-9_]*\Z")
_DIALECT = Spark()
_SYMMETRIC = (exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.NullSafeNEQ)
_FLIPPED = {exp.GT: exp.LT, exp.GTE: exp.LTE}
_OPERATORS = (exp.Binary, exp.Unary, exp.Between, exp.In, exp.Interval)
_ATOMS = (exp.Paren, exp.Dot, exp.Kwarg, exp.PropertyEQ)


def sql_of(node: Any) -> str:
    """Write a node as Spark SQL on one line, without comments; raises Misread for a tree that cannot be written."""
    try:
        text: str = _DIALECT.generate(
            node, copy=False, comments=False, normalize_functions=False, unsupported_level=ErrorLevel.IGNORE
        )
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        # Some texts parse into trees that sqlglot cannot write: `QUALIFY (a, b)`.
        raise Misread("the SQL cannot be read: a part of it makes no sense", "correct it as Spark SQL", -1) from error
    return text


def normalise(tree: Any) -> Any:
    """Bring a whole tree into its canonical form, in place where possible; names must be resolved before."""
    for node in tree.walk():
        node.comments = None
        if isinstance(node, exp.Identifier):
            _fold(node)
        elif isinstance(node, exp.Anonymous) and isinstance(node.this, str):
            node.set("this", plain(node.this))
    if isinstance(tree, exp.Query):
        unfold(tree)
    for node in reversed(list(tree.walk())):
        tree = _simplified(node, tree)
    return tree


def terms(condition: Any) -> list[Any]:
    """Split a condition into its AND terms, in order."""
    found: list[Any] = []
    waiting = [condition]
    while waiting:
        node = waiting.pop()
        if isinstance(node, exp.And):
            waiting += [node.expression, node.this]
        elif isinstance(node, exp.Paren):
            waiting.append(node.this)
        else:
            found.append(node)
    return found


def _fold(name: Any) -> None:
    """Spark's names ignore case; back-ticks stay only where the name needs them."""
    text = str(name.this).lower()
    name.set("this", text)
    name.set("quoted", not _PLAIN.match(text))


def _simplified(node: Any, tree: Any) -> Any:
    """Rewrite one node whose children are canonical already; gives the tree, which may have a new root."""
    replacement: Any = None
    if isinstance(node, exp.Paren):
        replacement = node.this if _may_open(node) else None
    elif type(node) in _FLIPPED:
        replacement = _FLIPPED[type(node)](this=_wrapped(node.expression), expression=_wrapped(node.this))
    elif isinstance(node, _SYMMETRIC):
        _wrap_children(node)
        if sql_of(node.expression) < sql_of(node.this):
            left, right = node.this, node.expression
            node.set("this", right)
            node.set("expression", left)
    elif isinstance(node, (exp.And, exp.Or)):
        replacement = _sorted_terms(node)
    elif isinstance(node, _OPERATORS):
        _wrap_children(node)
    elif isinstance(node, exp.Join):
        # INNER, and OUTER after a side, say nothing.
        if node.kind == "INNER" or (node.side and node.kind == "OUTER"):
            node.set("kind", None)
    elif isinstance(node, exp.Alias) and isinstance(node.this, exp.Column) and node.alias == node.this.name:
        # `x AS x` names what has that name already.
        replacement = node.this if isinstance(node.parent, exp.Select) else None
    if replacement is None:
        return tree
    if node is tree:
        replacement.pop()
        return replacement
    node.replace(replacement)
    return tree


def _may_open(paren: Any) -> bool:
    """Whether brackets carry nothing; operators put them back around their own children."""
    if isinstance(paren.parent, (exp.Dot, exp.Bracket, exp.Cast, exp.Collate)):
        return isinstance(paren.this, (exp.Column, exp.Anonymous, exp.Paren))
    if isinstance(paren.this, exp.Subquery):
        return not isinstance(paren.parent, exp.In)
    return not isinstance(paren.this, (exp.Query, exp.Lambda, exp.Tuple, exp.Table))


def _wrapped(child: Any) -> Any:
    if isinstance(child, _OPERATORS) and not isinstance(child, _ATOMS):
        return exp.Paren(this=child)
    return child


def _wrap_children(node: Any) -> None:
    if isinstance(node, _ATOMS):
        return
    for key, value in list(node.args.items()):
        if isinstance(value, exp.Expression):
            node.set(key, _wrapped(value))


def _sorted_terms(node: Any) -> Any:
    """Flatten a chain of AND (or OR) once, at its top, and sort its terms by text."""
    kind = type(node)
    if isinstance(node.parent, kind) or (isinstance(node.parent, exp.Paren) and isinstance(node.parent.parent, kind)):
        return None
    found: list[Any] = []
    waiting = [node]
    while waiting:
        each = waiting.pop()
        if isinstance(each, kind):
            waiting += [each.expression, each.this]
        elif isinstance(each, exp.Paren) and isinstance(each.this, kind):
            waiting.append(each.this)
        else:
            found.append(each)
    ordered = sorted({sql_of(each): each for each in found}.items())
    if len(ordered) == 1:
        return ordered[0][1]
    result = _wrapped(ordered[0][1])
    for _, each in ordered[1:]:
        result = kind(this=result, expression=_wrapped(each))
    return result
