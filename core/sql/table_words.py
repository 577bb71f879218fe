"""What a word means where a table or a query is expected, before anything is parsed.

`TABLE t` is a query of its own in Spark (SqlBaseParser.g4 of 4.2.0, `queryPrimary`); sqlglot reads a table called so.
"""

from collections.abc import Sequence

from sqlglot import Token, TokenType

from core.sql.lexing import Misread, is_word

_NAMES = (TokenType.IDENTIFIER, TokenType.VAR)
_QUERIES = ("SELECT", "WITH", "VALUES", "LATERAL")
_COMBINING = ("UNION", "EXCEPT", "INTERSECT", "MINUS")
_BEFORE_QUERY = (*_COMBINING, "ALL", "DISTINCT", "AS", "IN", "EXISTS", "FROM", "JOIN", "LATERAL")
FROM_FIRST = ("FROM before SELECT is not read here", "write SELECT … FROM …")


def names_table(tokens: Sequence[Token], index: int) -> bool:
    """Return whether the name of a table stands here, where one may; raise Misread for what hides which one it is."""
    token = tokens[index]
    if is_word(token, "FROM"):
        raise Misread(*FROM_FIRST, token.start, subject="FROM")
    calls = index + 1 < len(tokens) and tokens[index + 1].token_type is TokenType.L_PAREN
    if calls and is_word(token, "IDENTIFIER"):
        raise Misread("IDENTIFIER(…) hides which table is read", "write the table's name", token.start)
    return not calls and is_name(token) and not is_word(token, *_QUERIES)


def is_name(token: Token) -> bool:
    """Return whether a token may be a name: Spark reserves hardly any word."""
    return token.token_type in _NAMES or (
        token.token_type is not TokenType.STRING and (str(token.text)[:1].isalpha() or str(token.text)[:1] == "_")
    )


def begins_query(tokens: Sequence[Token], index: int) -> bool:
    """Return whether a query may begin here, so that TABLE is no name."""
    if index == 0 or is_word(tokens[index - 1], *_COMBINING):
        return True
    if is_word(tokens[index - 1], "ALL", "DISTINCT"):
        return index > 1 and is_word(tokens[index - 2], *_COMBINING)
    return tokens[index - 1].token_type is TokenType.L_PAREN and not _is_argument(tokens, index)


def is_table_query(tokens: Sequence[Token], index: int) -> bool:
    """Return whether the word TABLE here begins the query `TABLE t`; raise Misread for the argument of a function."""
    token, after = tokens[index], tokens[index + 1] if index + 1 < len(tokens) else None
    if after is None or is_word(after, "AS") or not (is_name(after) or after.token_type is TokenType.L_PAREN):
        return False
    if _is_argument(tokens, index):
        remedy = "write the query in FROM, and call the function on its columns"
        raise Misread("a table as the argument of a function is not read here", remedy, token.start, subject="TABLE")
    return after.token_type is not TokenType.L_PAREN and begins_query(tokens, index)


def _is_argument(tokens: Sequence[Token], index: int) -> bool:
    """Return whether the argument of a function begins here."""
    before = tokens[index - 1] if index else None
    if before is None or before.token_type not in (TokenType.L_PAREN, TokenType.COMMA, TokenType.FARROW):
        return False
    opened = index - 1
    depth = 0
    while opened >= 0 and not (depth == 0 and tokens[opened].token_type is TokenType.L_PAREN):
        depth += (tokens[opened].token_type is TokenType.R_PAREN) - (tokens[opened].token_type is TokenType.L_PAREN)
        opened -= 1
    if opened <= 0:
        return False
    calling = tokens[opened - 1]
    return is_name(calling) and not is_word(calling, *_BEFORE_QUERY)
