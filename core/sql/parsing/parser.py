"""The one door to sqlglot's parser: tokens in, a tree or a SqlDiagnostic out, whatever sqlglot raises."""

import re
from collections.abc import Sequence
from typing import Any

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, SqlglotError

from core.sql.parsing.from_clause import shape_from_clauses
from core.sql.parsing.function_names import with_plain_functions
from core.sql.parsing.operator_precedence import with_precedence
from core.sql.tokens.keyword_names import KEPT_FROM_NAMES
from core.sql.tokens.lexer import SqlDiagnostic, closing_bracket, end_of, word_of
from core.sql.tokens.table_name_tokens import word_at
from core.text.wording import did_you_mean

_DIALECT = Spark()
_FAILURES = (SqlglotError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What sqlglot 30.30 raises for texts that it does not expect, besides ParseError."""
_QUERIES = frozenset((TokenType.SELECT, TokenType.VALUES, TokenType.WITH))
"""Words of which a statement with no query below another has one at the most."""
_CLAUSES = (
    "SELECT",
    "FROM",
    "WHERE",
    "GROUP",
    "HAVING",
    "ORDER",
    "LIMIT",
    "JOIN",
    "UNION",
    "WINDOW",
    "LATERAL",
    "VALUES",
)
"""What a misspelt word may stand for: sqlglot takes it for a name, and stumbles over what follows."""
_FUNCTIONS_BY_NAME: dict[str, type[exp.Expression]] = {
    "current_date": exp.CurrentDate,
    "current_timestamp": exp.CurrentTimestamp,
    "current_user": exp.CurrentUser,
    "session_user": exp.SessionUser,
}
"""Functions that are called without brackets, as sqlglot calls them: to its tokens they are names."""
_QUOTED = 40
"""Characters of a token that are quoted."""
_LAST_EDIT = "compare it with a text that works: the last edit is the likely cause"


def parse_query(tokens: Sequence[Token], text: str) -> Any:
    """Parse one query out of which the streaming clauses were taken, its FROM clauses in one shape.

    `text` is the whole file, for places.
    """
    start, queries, views, calls = tokens[0].start if tokens else 0, 0, False, False
    for token in tokens:
        kind = token.token_type
        calls = calls or (kind is TokenType.VAR and token.text.lower() in _FUNCTIONS_BY_NAME)
        views = views or kind is TokenType.VIEW
        if kind is TokenType.PIPE_GT:
            raise SqlDiagnostic("the pipe syntax |> is not supported", "write SELECT … FROM … WHERE", token.start)
        if kind in _QUERIES:
            queries += 1
    try:
        written = with_precedence(with_plain_functions(_with_named_views(tokens) if views else list(tokens)))
        trees = _DIALECT.parser().parse(written, text)
    except RecursionError as error:
        raise too_deep(start) from error
    except ParseError as error:
        raise _unreadable(error, tokens if text else [], text, start) from error
    except _FAILURES as error:
        raise SqlDiagnostic("the SQL cannot be parsed", _LAST_EDIT, start) from error
    if len(trees) != 1 or not isinstance(trees[0], exp.Query):
        raise SqlDiagnostic("the SELECT cannot be parsed", _LAST_EDIT, start)
    if calls:
        _call_without_brackets(trees[0])
    shape_from_clauses(trees[0], nested=queries > 1)
    return trees[0]


def _call_without_brackets(query: Any) -> None:
    """Put the call of a function where its name alone stands, as Spark does where no column is called so."""
    for name in list(query.find_all(exp.Column)):
        made = _FUNCTIONS_BY_NAME.get(name.name.lower())
        if (
            made is not None
            and not name.table
            and not name.this.args.get("quoted")
            and not isinstance(name.parent, exp.Dot)
        ):
            name.replace(made())


def parse_expression(tokens: Sequence[Token]) -> tuple[Any, str]:
    """Parse `expression [[AS] name]`; returns the expression and the name, empty when there is none."""
    first = tokens[0]
    select = Token(TokenType.SELECT, "SELECT", first.line, first.col, first.start, first.end, [])
    query = parse_query([select, *tokens], "")
    if len(query.expressions) != 1 or sum(value is not None and value != [] for value in query.args.values()) != 1:
        raise SqlDiagnostic(
            "one expression is expected here", "write one expression, without commas or clauses", first.start
        )
    expression = query.expressions[0]
    name = expression.alias.lower() if isinstance(expression, exp.Alias) else ""
    return expression.unalias(), name


def too_deep(offset: int) -> SqlDiagnostic:
    """Report that a text is nested beyond what can be read."""
    return SqlDiagnostic("the SQL is nested too deeply to be read safely", "move the inner parts to WITH", offset)


def _with_named_views(tokens: Sequence[Token]) -> list[Token]:
    """Write the AS that Spark does without before the columns of a LATERAL VIEW: `LATERAL VIEW explode(a) t c`."""
    found = list(tokens)
    for index in range(len(tokens) - 1, 0, -1):
        if tokens[index].token_type is not TokenType.VIEW or tokens[index - 1].token_type is not TokenType.LATERAL:
            continue
        opened = next((at for at in range(index, len(tokens)) if tokens[at].token_type is TokenType.L_PAREN), 0)
        behind = closing_bracket(tokens, opened) + 2 if opened else len(tokens)
        pair = tokens[behind - 1 : behind + 1]
        if len(pair) == 2 and all(each.token_type in (TokenType.VAR, TokenType.IDENTIFIER) for each in pair):
            found.insert(behind, word_at(TokenType.ALIAS, "AS", pair[1]))
    return found


def _unreadable(error: ParseError, tokens: Sequence[Token], text: str, start: int) -> SqlDiagnostic:
    """Report what the parser stumbled over, and what it expected where it says so."""
    first = error.errors[0] if error.errors else {}
    place = (first.get("line"), first.get("col"))
    at = next((index for index, token in enumerate(tokens) if (token.line, token.col) == place), None)
    if at is None:
        return SqlDiagnostic("the SQL cannot be parsed", _LAST_EDIT, start)
    here = f"`{_first_line(text[tokens[at].start : end_of(tokens[at])])}`"
    description = str(first.get("description") or "").partition(" but got ")[0].partition(" for <class")[0]
    expected = re.match("(?:Expected|Expecting) (.+)", description)
    if expected:
        summary = f"expected {expected[1]} at {here}"
    elif description.startswith("Required keyword"):
        # Which of several missing parts sqlglot names depends on the order of a set.
        summary = f"an operand is missing at {here}"
    else:
        summary = f"{here} is not expected here"
    remedy = _misspelt(tokens[max(at - 1, 0) : at + 1])
    remedy = remedy or f"a comma, an operator, a bracket or a keyword is missing or misspelt at {here} or before it"
    words = [str(token.text) for token in tokens[max(at - 1, 0) : at + 1] if word_of(token) in KEPT_FROM_NAMES]
    if words and at + 1 < len(tokens):
        remedy += f"; `{words[0]}` needs backticks as a name"
    return SqlDiagnostic(f"the SQL cannot be parsed: {summary}", remedy, max(start, int(tokens[at].start)))


def _first_line(quoted: str) -> str:
    line, _, more = quoted.partition("\n")
    return f"{line[:_QUOTED]}…" if more or len(line) > _QUOTED else line


def _misspelt(tokens: Sequence[Token]) -> str:
    """Suggest the clause that one of these names is nearly, or half of, the word of; empty where none is."""
    for name in (token.text.upper() for token in tokens if token.token_type is TokenType.VAR):
        if name in ("GROUP", "ORDER"):
            return f"write {name} BY"
        if len(name) > 2 and name not in _CLAUSES and (near := did_you_mean(name, _CLAUSES)):
            return near
    return ""
