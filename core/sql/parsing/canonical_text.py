"""Canonical SQL of a query: conditions in a fixed order, only the necessary brackets, and names in lower case.

Queries that Spark might distinguish must never become equal: a missed equality costs a restart, but a wrong one
corrupts a table.
"""

import re
from collections.abc import Callable
from functools import cache
from typing import Any

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ErrorLevel

from core.sql.parsing.function_names import plain_function_name
from core.sql.parsing.subquery_inlining import inline_query_names, is_pure, number_aliases
from core.sql.tokens.lexer import SqlDiagnostic

_PLAIN = re.compile(r"[a-z_][a-z0-9_]*\Z")
# Words that sqlglot's Spark does not read as names without backticks; Spark accepts some of them.
_KEYWORDS = """
    all alter and any as between case create cross describe distinct drop else end except false fetch for from glob
    grant having ilike inner insert intersect into join lateral like minus not notnull null on or outer qualify regexp
    returning revoke rlike rollback select serdeproperties tablesample then true uncache union using values when where
    with xor
"""
_RESERVED = frozenset(_KEYWORDS.split())
_OWN_ALIAS = re.compile(r"\b_[tc][0-9]+\b")
_DIALECT = Spark()
_SYMMETRIC = (exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.NullSafeNEQ)
_FLIPPED = {exp.GT: exp.LT, exp.GTE: exp.LTE}
_OPERATORS = (exp.Binary, exp.Unary, exp.Between, exp.In, exp.Interval)
_ATOMS = (exp.Paren, exp.Dot, exp.Kwarg, exp.PropertyEQ)


def sql_of(node: Any) -> str:
    """Return the Spark SQL of a node on one line, without comments; raises SqlDiagnostic if that is impossible."""
    if isinstance(node, exp.Column) and (plain_name := _plain_column(node)):
        return plain_name
    try:
        text: str = _DIALECT.generate(
            node, copy=False, comments=False, normalize_functions=False, unsupported_level=ErrorLevel.IGNORE
        )
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        # Some texts parse into trees that sqlglot cannot write: `QUALIFY (a, b)`.
        raise SqlDiagnostic(
            "the SQL cannot be parsed: a part of it is in a place where Spark does not take it",
            "compare it with a text that works: the last edit is the likely cause",
            -1,
        ) from error
    return text


def _plain_column(column: Any) -> str:
    """Return the SQL of a column written as `a` or `t.a`; empty for any other column.

    About half of all nodes are such columns, for which this function is faster than sqlglot.
    """
    parts = column.args
    this, table = parts.get("this"), parts.get("table")
    if len(parts) > 2 and any(value for key, value in parts.items() if key not in ("this", "table")):
        return ""
    if not isinstance(this, exp.Identifier) or not _needs_no_quotes(this):
        return ""
    if table is None:
        return str(this.this)
    return f"{table.this}.{this.this}" if isinstance(table, exp.Identifier) and _needs_no_quotes(table) else ""


def _needs_no_quotes(name: Any) -> bool:
    return not name.args.get("quoted") and _PLAIN.match(str(name.this)) is not None


def normalise(tree: Any) -> Any:
    """Return a tree in canonical form; its names must have been resolved. The tree is modified where possible."""
    queries = 0
    for node in tree.walk():
        node.comments = None
        kind = node.__class__
        if kind is exp.Select:
            queries += 1
        elif (normaliser := _NORMALISERS.get(kind)) is not None:
            normaliser(node)
    if queries > 1:
        inline_query_names(tree)
    for node in reversed(list(tree.walk())):
        tree = _simplified(node, tree)
    if queries > 1:
        # Sorted terms may contain queries.
        number_aliases(tree)
    return tree


def and_terms(condition: Any) -> list[Any]:
    """Return the terms that a condition combines with AND, in order; empty if the condition is None."""
    found: list[Any] = []
    waiting = [condition] if condition is not None else []
    while waiting:
        node = waiting.pop()
        if isinstance(node, exp.And):
            waiting += [node.expression, node.this]
        elif isinstance(node, exp.Paren):
            waiting.append(node.this)
        else:
            found.append(node)
    return found


def is_plain(name: str) -> bool:
    """True if a lower-case name can be written without backticks."""
    return _PLAIN.match(name) is not None and name not in _RESERVED


def _normalise_function(call: Any) -> None:
    if isinstance(call.this, str):
        call.set("this", plain_function_name(call.this))


def _normalise_argument(named: Any) -> None:
    if isinstance(named.this, exp.Var):
        named.this.set("this", named.this.name.lower())


def _normalise_frame(window: Any) -> None:
    if window.args.get("kind"):
        window.set("kind", str(window.args["kind"]).upper())


def _normalise_name(name: Any) -> None:
    written, quoted = str(name.this), bool(name.args.get("quoted"))
    text = written.lower()
    if text != written:
        name.set("this", text)
    if quoted is is_plain(text):
        name.set("quoted", not quoted)


def _simplified(node: Any, tree: Any) -> Any:
    """Simplify a node whose children are canonical; return the tree, whose root may be a new node."""
    rule = _rule(node.__class__)
    replacement = None if rule is None else rule(node)
    if replacement is None:
        return tree
    if node is tree:
        replacement.pop()
        return replacement
    node.replace(replacement)
    return tree


@cache
def _rule(kind: type) -> Callable[[Any], Any] | None:
    return next((rule for kinds, rule in _RULES if issubclass(kind, kinds)), None)


def _opened(paren: Any) -> Any:
    return paren.this if _may_open(paren) else None


def _flipped(comparison: Any) -> Any:
    flipped = _FLIPPED[type(comparison)]
    return flipped(this=_wrapped(comparison.expression), expression=_wrapped(comparison.this))


def _oriented(comparison: Any) -> None:
    _wrap_children(comparison)
    left, right = comparison.this, comparison.expression
    if sql_of(right) < sql_of(left):
        comparison.set("this", right)
        comparison.set("expression", left)


def _short_join(join: Any) -> None:
    if join.kind == "INNER" or (join.side and join.kind == "OUTER"):
        join.set("kind", None)


def _short_alias(alias: Any) -> Any:
    says_nothing = isinstance(alias.this, exp.Column) and alias.alias == alias.this.name
    return alias.this if says_nothing and isinstance(alias.parent, exp.Select) else None


def _may_open(paren: Any) -> bool:
    """True if a pair of brackets can be removed; brackets that operators need are added again later."""
    if isinstance(paren.parent, (exp.Dot, exp.Bracket, exp.Cast, exp.Collate)):
        return isinstance(paren.this, (exp.Column, exp.Anonymous, exp.Paren))
    if isinstance(paren.parent, (exp.Any, exp.All)):
        return False
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
    """Flatten and sort a chain of AND or OR; return the new chain, or None if `node` is not its top.

    Deterministic terms that occur twice are merged.
    """
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
    written = [(sql_of(each), each) for each in found]
    # A random term that occurs twice is a different condition.
    once = {text: each for text, each in written if is_pure(each)}
    again = [(text, each) for text, each in written if text not in once]
    ordered = sorted([*once.items(), *again], key=_place)
    if len(ordered) == 1:
        return ordered[0][1]
    result = _wrapped(ordered[0][1])
    for _, each in ordered[1:]:
        result = kind(this=result, expression=_wrapped(each))
    return result


def _place(term: tuple[str, Any]) -> tuple[str, str]:
    """Return the sort key of a term, in which the alias numbers of its subqueries come last.

    The numbers depend on the position of the term.
    """
    text, node = term
    return (_OWN_ALIAS.sub("_t", text) if node.find(exp.Query) is not None else text, text)


def _as_function(node: Any) -> Any:
    if isinstance(node, exp.StrPosition):
        found = [node.args.get("substr"), node.this, node.args.get("position")]
        return exp.Anonymous(this="locate", expressions=[each for each in found if each is not None])
    side = str(node.args.get("position") or "")[:1].lower()
    bare = side in ("l", "t") and node.args.get("expression") is None
    return exp.Anonymous(this="ltrim" if side == "l" else "rtrim", expressions=[node.this]) if bare else None


def _as_it_is(node: Any) -> None:
    """Leave ESCAPE unchanged: `a LIKE b ESCAPE c` cannot be parsed with brackets around the LIKE."""


_NORMALISERS: dict[type, Callable[[Any], None]] = {
    exp.Identifier: _normalise_name,
    exp.Anonymous: _normalise_function,
    exp.Kwarg: _normalise_argument,
    exp.WindowSpec: _normalise_frame,
}
_RULES: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
    (exp.Paren, _opened),
    (tuple(_FLIPPED), _flipped),
    (_SYMMETRIC, _oriented),
    ((exp.And, exp.Or), _sorted_terms),
    (exp.Escape, _as_it_is),
    (_OPERATORS, _wrap_children),
    ((exp.StrPosition, exp.Trim), _as_function),
    (exp.Join, _short_join),
    (exp.Alias, _short_alias),
)
