"""The one door to sqlglot's parser: tokens in, a tree or a SqlDiagnostic out, whatever sqlglot raises."""

from collections.abc import Sequence
from typing import Any

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, SqlglotError

from core.sql.parsing.from_clause import shape_from_clauses
from core.sql.parsing.function_names import with_plain_functions
from core.sql.tokens.lexer import SqlDiagnostic

_DIALECT = Spark()
_FAILURES = (SqlglotError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What sqlglot 30.30 raises for texts that it does not expect, besides ParseError."""
_QUERIES = frozenset((TokenType.SELECT, TokenType.VALUES, TokenType.WITH))
"""Words of which a statement with no query below another has one at the most."""
_REMEDY = "write valid Spark SQL"


def parse_query(tokens: Sequence[Token], text: str) -> Any:
    """Parse one query out of which the streaming clauses were taken, its FROM clauses in one shape.

    `text` is the whole file, for places.
    """
    start, queries = tokens[0].start if tokens else 0, 0
    for token in tokens:
        kind = token.token_type
        if kind is TokenType.PIPE_GT:
            raise SqlDiagnostic("the pipe syntax |> is not supported", "write SELECT … FROM … WHERE", token.start)
        if kind in _QUERIES:
            queries += 1
    try:
        trees = _DIALECT.parser().parse(with_plain_functions(list(tokens)), text)
    except RecursionError as error:
        raise too_deep(start) from error
    except ParseError as error:
        raise _unreadable(error, tokens if text else [], start) from error
    except _FAILURES as error:
        raise SqlDiagnostic("the SQL cannot be parsed", _REMEDY, start) from error
    if len(trees) != 1 or not isinstance(trees[0], exp.Query):
        raise SqlDiagnostic("the SELECT cannot be parsed", _REMEDY, start)
    shape_from_clauses(trees[0], nested=queries > 1)
    return trees[0]


def parse_expression(tokens: Sequence[Token]) -> tuple[Any, str]:
    """Parse `expression [[AS] name]`; returns the expression and the name, empty when there is none."""
    first = tokens[0]
    select = Token(TokenType.SELECT, "SELECT", first.line, first.col, first.start, first.end, [])
    query = parse_query([select, *tokens], "")
    if len(query.expressions) != 1 or sum(value is not None and value != [] for value in query.args.values()) != 1:
        raise SqlDiagnostic("one expression is expected here", _REMEDY, first.start)
    expression = query.expressions[0]
    name = expression.alias.lower() if isinstance(expression, exp.Alias) else ""
    return expression.unalias(), name


def too_deep(offset: int) -> SqlDiagnostic:
    """Report that a text is nested beyond what can be read."""
    return SqlDiagnostic("the SQL is nested too deeply to be read safely", "move the inner parts to WITH", offset)


def _unreadable(error: ParseError, tokens: Sequence[Token], start: int) -> SqlDiagnostic:
    first = error.errors[0] if error.errors else {}
    description = str(first.get("description") or "it is not Spark SQL").partition(" for <class")[0].rstrip(".")
    if description.startswith("Required keyword"):
        # Which of several missing parts sqlglot names depends on the order of a set.
        description = "an operand is missing"
    place = (first.get("line"), first.get("col"))
    offset = next((int(token.start) for token in tokens if (token.line, token.col) == place), start)
    return SqlDiagnostic(
        f"the SQL cannot be parsed: {description[:1].lower()}{description[1:]}", _REMEDY, max(start, offset)
    )
