"""Interprets tokens where a table or query is expected, before parsing.

`TABLE t` is a complete query in Spark 4.2.0 (SqlBaseParser.g4, `queryPrimary`); sqlglot reads it as a table called
TABLE.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import Token, TokenType

from core.sql.tokens.lexer import SqlDiagnostic, is_word, word_of

_NAMES = (TokenType.IDENTIFIER, TokenType.VAR)
_QUERIES = ("SELECT", "WITH", "VALUES", "LATERAL")
_COMBINING = ("UNION", "EXCEPT", "INTERSECT", "MINUS")
_BEHIND_QUERY = (*_COMBINING, "ORDER BY", "SORT BY", "CLUSTER BY", "DISTRIBUTE BY", "LIMIT", "OFFSET", "WINDOW")
_BEFORE = """
    ALL AND ANY AS BETWEEN BY CASE DISTINCT ELSE EXCEPT EXISTS FROM HAVING ILIKE IN INTERSECT IS JOIN LATERAL LIKE LIMIT
    MINUS NOT OFFSET ON OR QUALIFY RLIKE SELECT SET SOME THEN UNION USING VALUES WHEN WHERE
"""
_CLAUSES_BY = ("GROUP BY", "ORDER BY", "SORT BY", "CLUSTER BY", "DISTRIBUTE BY", "PARTITION BY")
_BEFORE_QUERY = frozenset((*_BEFORE.split(), *_CLAUSES_BY))
"""Words after which a bracket does not open the arguments of a function."""
_CLAUSES = frozenset(
    (
        *(TokenType.WHERE, TokenType.GROUP_BY, TokenType.HAVING, TokenType.ORDER_BY, TokenType.LIMIT, TokenType.OFFSET),
        *(TokenType.UNION, TokenType.JOIN, TokenType.ON, TokenType.USING, TokenType.QUALIFY),
    )
)
_NEVER_AFTER = (TokenType.PARAMETER, TokenType.COLON, TokenType.STAR, TokenType.DCOLON, TokenType.L_BRACKET)
"""Tokens that sqlglot ignores after a table name, although Spark does not allow them there."""
FROM_FIRST = ("FROM before SELECT is not supported", "write SELECT … FROM …")


@dataclass(frozen=True, slots=True)
class WrittenName:
    """The name of a table as written, including its database and catalog if given."""

    parts: tuple[Token, ...]

    @property
    def text(self) -> str:
        """All parts of the name in lower case, joined by dots, without backticks."""
        return ".".join(str(part.text) for part in self.parts).lower()

    @property
    def start(self) -> int:
        return int(self.parts[0].start)


SELECT_ALL = ((TokenType.SELECT, "SELECT"), (TokenType.STAR, "*"), (TokenType.FROM, "FROM"))
"""Tokens that replace TABLE in `TABLE t`, and that are inserted before VALUES without a SELECT."""


def name_at(tokens: Sequence[Token], at: int) -> tuple[WrittenName, int]:
    """Parse `[catalog.][database.]table` at index `at`, and return the name and the index after it.

    Raises SqlDiagnostic if there is no table name, or if it is hidden in IDENTIFIER(…).
    """
    first, after = tokens[at], tokens[at + 1] if at + 1 < len(tokens) else None
    if is_word(first, "IDENTIFIER") and after is not None and after.token_type is TokenType.L_PAREN:
        raise SqlDiagnostic("IDENTIFIER(…) hides which table is written", "write the table name", first.start)
    if not is_name(first):
        raise SqlDiagnostic("the table name is missing", "write the table name without quotes", first.start)
    last = name_end(tokens, at)
    return WrittenName(tuple(tokens[at : last + 1 : 2])), last + 1


def word_at(kind: TokenType, text: str, at: Token) -> Token:
    """Return a new token at the position of the existing token `at`."""
    return Token(kind, text, at.line, at.col, at.start, at.end, [])


def names_table(tokens: Sequence[Token], index: int) -> bool:
    """True if a table name begins at `index`.

    Raises SqlDiagnostic if a clause begins there instead, or if the name is hidden in IDENTIFIER(…).
    """
    token = tokens[index]
    if is_word(token, "FROM"):
        raise SqlDiagnostic(*FROM_FIRST, token.start, subject="FROM")
    if token.token_type in _CLAUSES:
        remedy = "write its name, in backticks if it is an SQL keyword"
        raise SqlDiagnostic(
            "a table is missing after FROM or JOIN", remedy, token.start, condition="PARSE_SYNTAX_ERROR"
        )
    calls = index + 1 < len(tokens) and tokens[index + 1].token_type is TokenType.L_PAREN
    if calls and is_word(token, "IDENTIFIER"):
        raise SqlDiagnostic("IDENTIFIER(…) hides which table is read", "write the table name", token.start)
    if calls or not is_name(token) or is_word(token, *_QUERIES):
        return False
    last = name_end(tokens, index)
    if last + 1 < len(tokens) and tokens[last + 1].token_type in _NEVER_AFTER:
        summary = f"{tokens[last + 1].text} is not allowed after a table name"
        raise SqlDiagnostic(
            summary, "write the name in backticks", tokens[last + 1].start, condition="PARSE_SYNTAX_ERROR"
        )
    return True


def name_end(tokens: Sequence[Token], first: int) -> int:
    """Return the index of the last part of a dotted name that begins at `first`."""
    last = first
    while last + 2 < len(tokens) and tokens[last + 1].token_type is TokenType.DOT:
        last += 2
    return last


def is_name(token: Token) -> bool:
    """True if a token can be a name; Spark reserves hardly any words."""
    return token.token_type in _NAMES or (
        token.token_type is not TokenType.STRING and (str(token.text)[:1].isalpha() or str(token.text)[:1] == "_")
    )


def begins_query(tokens: Sequence[Token], index: int) -> bool:
    """True if a query may begin at `index`, in which case TABLE is a keyword there."""
    if index == 0 or is_word(tokens[index - 1], *_COMBINING):
        return True
    if is_word(tokens[index - 1], "ALL", "DISTINCT"):
        return index > 1 and is_word(tokens[index - 2], *_COMBINING)
    if is_word(tokens[index], "FROM"):
        # TRIM is the only function whose arguments may begin with FROM: TRIM (FROM …).
        trims = index > 1 and is_word(tokens[index - 2], "TRIM")
        return tokens[index - 1].token_type is TokenType.L_PAREN and not trims
    return tokens[index - 1].token_type is TokenType.L_PAREN and not _is_argument(tokens, index)


def is_table_query(tokens: Sequence[Token], index: int) -> bool:
    """True if TABLE begins the query `TABLE t`; raises SqlDiagnostic for TABLE as a function argument."""
    token, after = tokens[index], tokens[index + 1] if index + 1 < len(tokens) else None
    if after is None or is_word(after, "AS") or not (is_name(after) or after.token_type is TokenType.L_PAREN):
        return False
    if is_word(after, "STREAM") and index + 2 < len(tokens) and (tokens[index + 2].token_type is TokenType.L_PAREN):
        raise SqlDiagnostic("TABLE takes a name", "write SELECT * FROM STREAM …", after.start, subject="STREAM")
    if _is_argument(tokens, index):
        remedy = "write the query in FROM, and call the function on its columns"
        raise SqlDiagnostic("a table as a function argument is not supported", remedy, token.start, subject="TABLE")
    if after.token_type is TokenType.L_PAREN or not begins_query(tokens, index):
        return False
    behind = tokens[min(name_end(tokens, index + 1) + 1, len(tokens) - 1)]
    return behind.token_type is TokenType.R_PAREN or is_word(behind, *_BEHIND_QUERY) or behind is tokens[-1]


def _is_argument(tokens: Sequence[Token], index: int) -> bool:
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
    return is_name(calling) and word_of(calling) not in _BEFORE_QUERY
