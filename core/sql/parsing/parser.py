"""The only entry to sqlglot's parser; every failure of sqlglot becomes a SqlDiagnostic."""

import re
from collections.abc import Sequence
from typing import Any

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, SqlglotError

from core.sql.parsing.from_clause import shape_from_clauses
from core.sql.parsing.function_names import with_plain_functions
from core.sql.parsing.operator_precedence import with_precedence
from core.sql.tokens.keyword_names import KEPT_FROM_NAMES, opening_bracket
from core.sql.tokens.lexer import SqlDiagnostic, closing_bracket, end_of, is_word, word_of
from core.sql.tokens.table_name_tokens import word_at
from core.text.escaping import quoted_name, quoted_string_literal
from core.text.wording import did_you_mean


class _WithAnyType(Spark):
    """sqlglot's Spark dialect, extended to accept any name as a type.

    A name that is not a type is a placeholder for a type that sqlglot cannot parse.
    """

    SUPPORTS_USER_DEFINED_TYPES = True


_DIALECT, _WITH_ANY_TYPE = Spark(), _WithAnyType()
_HIDDEN_TYPE = "hg_t_"
_UNREAD_TYPES = frozenset(("time", "void", "collate", "not", "comment"))
"""Words in Spark's types that sqlglot rejects or replaces with other words."""
_FAILURES = (SqlglotError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""Exceptions, other than ParseError, that sqlglot 30.30 raises for unexpected input."""
_TYPE_TOKENS = frozenset((TokenType.VAR, TokenType.TIME, TokenType.NULL, TokenType.COLLATE))
_AFTER_TYPE = frozenset((TokenType.GT, TokenType.COMMA, TokenType.L_PAREN))
_QUERIES = frozenset((TokenType.SELECT, TokenType.VALUES, TokenType.WITH))
"""Tokens that start a query; a statement without nested queries contains at most one of them."""
_CLAUSES_WORDS = """
    SELECT FROM WHERE GROUP HAVING ORDER LIMIT JOIN UNION WINDOW LATERAL VALUES
"""
_CLAUSES = tuple(_CLAUSES_WORDS.split())
"""Keywords that may be misspelt, in which case sqlglot reads a name and fails at the token after it."""
_FUNCTIONS_BY_NAME: dict[str, type[exp.Expression]] = {
    "current_date": exp.CurrentDate,
    "current_timestamp": exp.CurrentTimestamp,
    "current_user": exp.CurrentUser,
    "session_user": exp.SessionUser,
}
"""Maps functions called without brackets to sqlglot's classes; the tokenizer yields them as plain names."""
_QUOTED = 40
_LAST_EDIT = "compare it with a text that works: the last edit is the likely cause"


def parse_query(tokens: Sequence[Token], text: str, *, bare_calls: bool = True) -> Any:
    """Parse a query whose streaming clauses have been removed, and normalise its FROM clauses.

    `text` is the content of the file, which error messages quote. With `bare_calls`, a name such as `current_date`
    becomes a call of that function; without it, the name stays a column, because a table may have such a column. Raises
    SqlDiagnostic if the query cannot be parsed.
    """
    start, queries, views, calls = tokens[0].start if tokens else 0, 0, False, False
    casts = clusters = False
    for token in tokens:
        kind = token.token_type
        views = views or kind is TokenType.VIEW
        if kind in _TYPE_TOKENS:
            word = token.text.lower()
            calls = calls or word in _FUNCTIONS_BY_NAME
            casts = casts or word in _UNREAD_TYPES
        casts = casts or kind is TokenType.NEQ
        clusters = clusters or kind is TokenType.CLUSTER_BY
        if kind is TokenType.PIPE_GT:
            raise SqlDiagnostic("the pipe syntax |> is not supported", "write SELECT … FROM … WHERE", token.start)
        if kind in _QUERIES:
            queries += 1
    written, types = _with_hidden_types(tokens) if casts else (list(tokens), [])
    written = _with_named_views(written) if views else written
    written = _with_partitioned_windows(written) if clusters else written
    try:
        trees = (
            (_WITH_ANY_TYPE if types else _DIALECT).parser().parse(with_precedence(with_plain_functions(written)), text)
        )
    except RecursionError as error:
        raise too_deep(start) from error
    except ParseError as error:
        raise _unreadable(error, tokens if text else [], text, start) from error
    except _FAILURES as error:
        raise SqlDiagnostic("the SQL cannot be parsed", _LAST_EDIT, start) from error
    if len(trees) != 1 or not isinstance(trees[0], exp.Query):
        raise SqlDiagnostic("the SELECT cannot be parsed", _LAST_EDIT, start)
    if calls and bare_calls:
        _call_without_brackets(trees[0])
    if types:
        _show_types(trees[0], types)
    shape_from_clauses(trees[0], nested=queries > 1)
    return trees[0]


def _with_hidden_types(tokens: Sequence[Token]) -> tuple[list[Token], list[str]]:
    """Replace cast types that sqlglot cannot parse with placeholders; return the tokens and the replaced types.

    A placeholder's name contains the type's index in the returned list.
    """
    found: list[Token] = []
    types: list[str] = []
    index = 0
    while index < len(tokens):
        token = tokens[index]
        found.append(token)
        index += 1
        if not (
            token.token_type is TokenType.DCOLON or (token.token_type is TokenType.ALIAS and _casts(tokens, index))
        ):
            continue
        end = _type_end(tokens, index)
        held = tokens[index:end]
        if any(_is_unread(held, at) for at in range(len(held))):
            found.append(word_at(TokenType.VAR, f"{_HIDDEN_TYPE}{len(types)}", held[0]))
            types.append(_type_text(held))
            index = end
    return found, types


def _is_unread(held: Sequence[Token], at: int) -> bool:
    """True if a token in a type is a word that sqlglot cannot parse, rather than the name of a struct field."""
    if held[at].token_type is TokenType.NEQ:
        return True
    word = word_of(held[at]).lower()
    if word in ("time", "void"):
        return at + 1 == len(held) or held[at + 1].token_type in _AFTER_TYPE
    return word in _UNREAD_TYPES


def _casts(tokens: Sequence[Token], index: int) -> bool:
    opened = opening_bracket(tokens, index)
    return opened > 0 and is_word(tokens[opened - 1], "CAST", "TRY_CAST")


def _type_end(tokens: Sequence[Token], start: int) -> int:
    index = start + 1
    depth = 0
    while index < len(tokens):
        kind = tokens[index].token_type
        if kind is TokenType.LT:
            depth += 1
        elif kind is TokenType.GT:
            depth -= 1
        elif depth == 0 and kind is TokenType.L_PAREN:
            index = closing_bracket(tokens, index)
        elif depth == 0 and is_word(tokens[index], "COLLATE"):
            index += 1
        elif depth == 0 and kind is not TokenType.NEQ:
            break
        index += 1
    return min(index, len(tokens))


def _type_text(tokens: Sequence[Token]) -> str:
    text = ""
    for token in tokens:
        part = quoted_string_literal(str(token.text)) if token.token_type is TokenType.STRING else token.text.lower()
        part = quoted_name(part) if token.token_type is TokenType.IDENTIFIER else part
        text += f" {part}" if text[-1:].isalnum() and (part[0].isalnum() or part[0] in "'`") else part
    return text


def _show_types(query: Any, types: Sequence[str]) -> None:
    """Replace placeholders with the types for which they stand; raise SqlDiagnostic for a name that is not a type."""
    for node in query.find_all(exp.DataType):
        if node.this is exp.DataType.Type.USERDEFINED:
            name = str(node.args.get("kind") or "")
            if not name.startswith(_HIDDEN_TYPE):
                raise SqlDiagnostic(f"{name} is not a Spark type", "write a type such as string or bigint", -1)
            node.set("kind", types[int(name.removeprefix(_HIDDEN_TYPE))])


def _with_partitioned_windows(tokens: Sequence[Token]) -> list[Token]:
    """Replace `OVER (CLUSTER BY …)` with PARTITION BY, which is equivalent in a window (Spark 4.2.0, `windowSpec`)."""
    pairs = zip([None, *tokens], tokens, strict=False)
    return [
        word_at(TokenType.PARTITION_BY, "PARTITION BY", token)
        if token.token_type is TokenType.CLUSTER_BY and before is not None and before.token_type is TokenType.L_PAREN
        else token
        for before, token in pairs
    ]


def _call_without_brackets(query: Any) -> None:
    for column in list(query.find_all(exp.Column)):
        if (made := bare_call(column)) is not None:
            column.replace(made)


def bare_call(column: Any) -> Any:
    """Return the function call that an unqualified, unquoted column such as `current_date` represents.

    Returns None for any other column.
    """
    made = _FUNCTIONS_BY_NAME.get(column.name.lower())
    if made is None or column.table or column.this.args.get("quoted") or isinstance(column.parent, (exp.Dot, exp.Star)):
        return None
    return made()


def parse_expression(tokens: Sequence[Token]) -> tuple[Any, str]:
    """Parse `expression [[AS] name]`; return the expression and its name, which is empty if there is none.

    Raises SqlDiagnostic for anything else.
    """
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
    """Return the diagnostic for SQL that is nested too deeply."""
    return SqlDiagnostic("the SQL is nested too deeply to be read safely", "move the inner parts to WITH", offset)


def _with_named_views(tokens: Sequence[Token]) -> list[Token]:
    """Insert the optional AS before the column of a LATERAL VIEW, as in `LATERAL VIEW explode(a) t AS c`."""
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
    for name in (token.text.upper() for token in tokens if token.token_type is TokenType.VAR):
        if name in ("GROUP", "ORDER"):
            return f"write {name} BY"
        if len(name) > 2 and name not in _CLAUSES and (near := did_you_mean(name, _CLAUSES)):
            return near
    return ""
