"""Keywords used as names: Spark 4.2.0 reserves no words, and uses the context to decide whether a word is a name.

The only exception is that a table alias cannot be a word in `STRICT` (SqlBaseParser.g4, `strictNonReserved`). sqlglot's
parser decides by the token alone, so this module turns keywords used as names into identifiers, as if they were in
backticks. A word that begins or joins clauses is read as a name only if nothing else is possible: Spark would read two
columns in `SELECT a, FROM t`, but its author almost certainly added a comma by mistake.
"""

from collections.abc import Sequence
from typing import ClassVar

from sqlglot import Token, TokenType
from sqlglot.dialects.spark import Spark

_NO_KEYWORDS = """
    ALTER CREATE CURRENT_DATE CURRENT_TIMESTAMP CURRENT_USER DESCRIBE DROP GLOB GRANT INSERT ISNULL LOCK MERGE NOTNULL
    OVERLAPS PARTITIONED_BY RETURNING REVOKE ROLLBACK SERDEPROPERTIES SESSION_USER UNCACHE UPDATE XOR
"""
"""Words that are reserved in sqlglot but have no meaning in a Spark query."""
_ANYWHERE = """
    ANTI ANY ASOF CASE CROSS CUBE ELSE END FETCH FOR FULL INNER INTERVAL INTO LATERAL LEFT LIMIT NATURAL OFFSET OUTER
    PIVOT QUALIFY RECURSIVE RIGHT ROLLUP SEMI STRAIGHT_JOIN TABLESAMPLE THEN UNPIVOT USING VALUES WHEN WINDOW
"""
"""Words that are names wherever they do not introduce syntax of their own."""
_OPERATORS = "COLLATE DIV ILIKE LIKE OVER REGEXP RLIKE"
_CLAUSES = """
    ALL AND AS BETWEEN DISTINCT EXCEPT FROM HAVING IN INTERSECT IS JOIN MINUS NOT ON OR SELECT UNION WHERE WITH
"""
"""Words that are names only after AS, next to a dot, or where the next token rules out anything else."""
_LITERALS = ("FALSE", "NULL", "TRUE")
"""Words that are names only in USING, in EXCEPT or next to a dot."""
_NO_ALIAS = "ANTI CROSS EXCEPT FULL INNER INTERSECT JOIN LATERAL LEFT MINUS NATURAL ON RIGHT SEMI UNION USING"
STRICT = frozenset(_NO_ALIAS.split())
"""Words that cannot be table aliases."""
_FREE, _JOINING = frozenset(_ANYWHERE.split()), frozenset(_OPERATORS.split())
KEPT_FROM_NAMES = (_JOINING | frozenset(_CLAUSES.split())) - {"AND", "OR"}
"""Words that need backticks as names in most positions."""
_WORDS = frozenset((*_FREE, *_JOINING, *_CLAUSES.split(), *_LITERALS))


class Tokenizer(Spark.Tokenizer):
    """sqlglot's tokenizer, restricted to the keywords that have a meaning in Spark's queries."""

    KEYWORDS: ClassVar = {
        **{word: kind for word, kind in Spark.Tokenizer.KEYWORDS.items() if word not in _NO_KEYWORDS.split()},
        **{"!>": TokenType.LTE, "!<": TokenType.GTE},
    }


_KINDS = frozenset(Tokenizer.KEYWORDS[word] for word in _WORDS if word in Tokenizer.KEYWORDS)
_T = TokenType
_NAMES = (_T.VAR, _T.IDENTIFIER)
_JOIN_WORDS = frozenset((_T.JOIN, _T.LEFT, _T.RIGHT, _T.FULL, _T.INNER, _T.CROSS, _T.NATURAL, _T.SEMI, _T.ANTI))
_NEXT_CLAUSE = frozenset(
    (
        *(_T.FROM, _T.WHERE, _T.GROUP_BY, _T.HAVING, _T.QUALIFY, _T.ORDER_BY, _T.SORT_BY, _T.CLUSTER_BY, _T.LIMIT),
        *(_T.DISTRIBUTE_BY, _T.OFFSET, _T.WINDOW, _T.UNION, _T.EXCEPT, _T.INTERSECT, _T.LATERAL, _T.TABLE_SAMPLE),
        *(_T.PIVOT, _T.UNPIVOT, _T.ON, _T.USING),
    )
)
_AFTER_ALIAS = _NEXT_CLAUSE | _JOIN_WORDS | {_T.COMMA, _T.R_PAREN, _T.ALIAS, _T.SEMICOLON}
_BETWEEN_OPERANDS = frozenset(
    (
        *(_T.EQ, _T.NEQ, _T.NULLSAFE_EQ, _T.LT, _T.LTE, _T.GT, _T.GTE, _T.PLUS, _T.DASH, _T.STAR, _T.SLASH, _T.MOD),
        *(_T.DIV, _T.DPIPE, _T.PIPE, _T.AMP, _T.CARET, _T.AND, _T.OR, _T.LIKE, _T.ILIKE, _T.RLIKE, _T.BETWEEN, _T.IN),
        *(_T.ARROW, _T.FARROW, _T.WHEN, _T.THEN, _T.ELSE, _T.NOT, _T.COMMA, _T.ESCAPE),
    )
)
_AFTER_OPERAND = (
    _AFTER_ALIAS
    | _BETWEEN_OPERANDS
    | {_T.IS, _T.END, _T.ASC, _T.DESC, _T.R_BRACKET, _T.L_BRACKET, _T.DCOLON, _T.COLON, _T.COLLATE, _T.WITH}
)
_BEFORE_OPERAND = (
    (_BETWEEN_OPERANDS | _NEXT_CLAUSE) - {_T.LATERAL, _T.TABLE_SAMPLE, _T.PIVOT, _T.UNPIVOT}
    | {_T.SELECT, _T.DISTINCT, _T.ALL, _T.L_PAREN, _T.L_BRACKET, _T.CASE, _T.PARTITION_BY, _T.WITH, _T.TILDE}
    | {_T.JOIN, _T.TABLE, _T.LT}
)
_BEFORE_CALL = (_BETWEEN_OPERANDS - {_T.IN, _T.ARROW}) | {_T.SELECT, _T.DISTINCT, _T.WHERE, _T.HAVING, _T.ON, _T.CASE}
"""Tokens after which `values(…)` is a function call rather than the rows of VALUES."""
_WORDS_BETWEEN = (_T.DIV, _T.LIKE, _T.ILIKE, _T.RLIKE, _T.BETWEEN, _T.IN, _T.IS, _T.ESCAPE)
_AFTER_TABLE = ("HAVING", "JOIN", "LIMIT", "OFFSET", "QUALIFY", "WHERE")
"""Words before which Spark prefers to read WHERE as a table alias, as in `WHERE limit IN (1)`."""
_NOTHING_ELSE = (_BETWEEN_OPERANDS | {_T.R_PAREN, _T.R_BRACKET, _T.IS, _T.DCOLON}) - {
    *(_T.PLUS, _T.DASH, _T.STAR, _T.NOT, _T.WHEN, _T.ELSE, _T.THEN)
}
"""Tokens that can follow only a value."""
_VALUE_OF_INTERVAL = (_T.NUMBER, _T.STRING, _T.DASH, _T.PLUS, _T.L_PAREN, *_NAMES)


def with_names(tokens: list[Token]) -> list[Token]:
    """Return the tokens, with each keyword that is used as a name replaced by an identifier."""
    found = tokens
    for index, token in enumerate(tokens):
        if token.token_type in _KINDS and token.text.upper() in _WORDS and _is_name(found, index):
            if found is tokens:
                found = list(tokens)
            kind = _T.VAR if token.token_type is _T.VALUES and _kind(tokens, index + 1) is _T.L_PAREN else _T.IDENTIFIER
            found[index] = Token(kind, token.text, token.line, token.col, token.start, token.end, token.comments)
    return found


def _kind(tokens: Sequence[Token], index: int) -> TokenType | None:
    return tokens[index].token_type if 0 <= index < len(tokens) else None


def _is_name(tokens: Sequence[Token], index: int) -> bool:
    word, before, after = tokens[index].text.upper(), _kind(tokens, index - 1), _kind(tokens, index + 1)
    if word in _LITERALS:
        listed = _kind(tokens, opening_bracket(tokens, index) - 1) in (_T.USING, _T.EXCEPT)
        starred = after is _T.DOT and _kind(tokens, index + 2) is _T.STAR
        return listed or starred or before is _T.DOT
    if _beside_dot(tokens, index):
        return True
    if before is _T.ALIAS:
        return _is_alias(tokens, index, word)
    if word == "RECURSIVE" and before is _T.WITH:
        return False
    if after is _T.ALIAS and _kind(tokens, index + 2) is _T.L_PAREN and before in (_T.WITH, _T.COMMA):
        return True
    if before is _T.WHERE and after in (_T.IN, _T.IS) and word in _AFTER_TABLE:
        return False
    if word not in _FREE and word not in _JOINING:
        return before in _BEFORE_OPERAND and after in _NOTHING_ELSE and not _begins(tokens, index, word)
    if word in _JOINING and before is _T.NOT and _kind(tokens, index - 2) not in (None, *_BEFORE_OPERAND):
        # An operand stands before NOT: `a NOT LIKE b`.
        return False
    streams = str(tokens[index - 1].text).upper() in ("STREAM", "WATERMARK")
    if before is None or before in _BEFORE_OPERAND or (streams and word not in STRICT):
        return _is_operand(tokens, index, word)
    return word in _FREE and (after is None or after in _AFTER_ALIAS) and not _closes(tokens, index, word)


def _begins(tokens: Sequence[Token], index: int, word: str) -> bool:
    before, after = _kind(tokens, index - 1), _kind(tokens, index + 1)
    if word in ("AND", "OR") and before in (_T.AND, _T.OR):
        return True
    if word == "NOT":
        return after in _WORDS_BETWEEN
    queries = before in (_T.ALL, _T.DISTINCT, _T.UNION, _T.EXCEPT, _T.INTERSECT)
    return word == "SELECT" and (queries or (before is _T.L_PAREN and after not in (_T.R_PAREN, _T.COMMA)))


def _beside_dot(tokens: Sequence[Token], index: int) -> bool:
    token = tokens[index]
    if _kind(tokens, index - 1) is _T.DOT and tokens[index - 1].end + 1 == token.start:
        return True
    return (
        _kind(tokens, index + 1) is _T.DOT
        and token.end + 1 == tokens[index + 1].start
        and index + 2 < len(tokens)
        and tokens[index + 2].token_type is not _T.NUMBER
    )


def _is_alias(tokens: Sequence[Token], index: int, word: str) -> bool:
    """True if a word after AS is an alias rather than a type or the start of a query."""
    if word in STRICT and _in_from(tokens, index):
        return False
    if word == "NOT" and str(tokens[min(index + 1, len(tokens) - 1)].text).upper() == "MATERIALIZED":
        return False
    if _kind(tokens, index - 2) in (_T.SELECT, _T.COMMA, _T.L_PAREN):
        return False
    after = _kind(tokens, index + 1)
    if word not in _FREE and after is not None and after not in _AFTER_ALIAS and after is not _T.L_PAREN:
        return False
    opened = opening_bracket(tokens, index)
    if opened > 0 and str(tokens[opened - 1].text).upper() in ("CAST", "TRY_CAST"):
        return False
    starts = word in ("SELECT", "WITH", "VALUES", "FROM")
    return not (starts and opened < 0 and str(tokens[0].text).upper() == "CREATE")


def _is_operand(tokens: Sequence[Token], index: int, word: str) -> bool:
    """True if a word is a name rather than a keyword, at a position where a value or a table is expected."""
    before, after = _kind(tokens, index - 1), _kind(tokens, index + 1)
    if word == "VALUES" and after is _T.L_PAREN and before in _BEFORE_CALL:
        return before is not _T.COMMA or not _in_from(tokens, index)
    if after is _T.L_PAREN or (before is _T.WITH and word in ("CUBE", "ROLLUP")):
        return after is _T.L_PAREN and before is _T.WITH and word not in ("CUBE", "ROLLUP")
    match word:
        case "CASE":
            return after is None or (after in _AFTER_OPERAND and not _has_when(tokens, index))
        case "WHEN" if before is _T.CASE:
            return False
        case "INTERVAL":
            signed = after in (_T.PLUS, _T.DASH)
            return after not in _VALUE_OF_INTERVAL or (signed and _kind(tokens, index + 3) not in _NAMES)
        case "LATERAL" if after in _NAMES:
            return False
        case "VALUES" if after in (_T.PLUS, _T.DASH, _T.CASE, _T.NOT):
            return before in _BETWEEN_OPERANDS and before is not _T.COMMA
    return after is None or after in _AFTER_OPERAND or after in _NAMES


def _closes(tokens: Sequence[Token], index: int, word: str) -> bool:
    """True if a word after a value ends or continues the syntax before it, rather than being an alias."""
    before, after = _kind(tokens, index - 1), _kind(tokens, index + 1)
    if word in STRICT and (after in _JOIN_WORDS or _in_from(tokens, index)):
        return True
    if word == "OUTER" and before in (_T.LEFT, _T.RIGHT, _T.FULL):
        return True
    if word == "ASOF" and after is _T.JOIN:
        return True
    if word == "INTO" and index < 2:
        return True
    if word == "INTERVAL" and str(tokens[index - 1].text).upper() == "OF":
        return True
    return word in ("WHEN", "THEN", "ELSE", "END") and _has_case(tokens, index)


def opening_bracket(tokens: Sequence[Token], index: int) -> int:
    """Return the index of the opening bracket that encloses a token; -1 if there is none."""
    depth = 0
    for at in range(index - 1, -1, -1):
        kind = tokens[at].token_type
        depth += (kind is _T.R_PAREN) - (kind is _T.L_PAREN)
        if depth < 0:
            return at
    return -1


def _in_from(tokens: Sequence[Token], index: int) -> bool:
    depth = 0
    for at in range(index - 1, -1, -1):
        kind = tokens[at].token_type
        depth += (kind is _T.R_PAREN) - (kind is _T.L_PAREN)
        if depth < 0:
            return _kind(tokens, at - 1) in (_T.FROM, _T.JOIN, _T.L_PAREN) or (
                _kind(tokens, at - 1) is _T.COMMA and _in_from(tokens, at - 1)
            )
        if depth == 0 and (kind is _T.JOIN or (kind is _T.FROM and _kind(tokens, at - 1) is not _T.DISTINCT)):
            return True
        if depth == 0 and kind in (_T.SELECT, _T.WHERE, _T.GROUP_BY, _T.ORDER_BY, _T.HAVING):
            return False
    return False


def _has_when(tokens: Sequence[Token], index: int) -> bool:
    depth = 0
    for token in tokens[index + 1 :]:
        kind = token.token_type
        depth += (kind in (_T.L_PAREN, _T.CASE)) - (kind in (_T.R_PAREN, _T.END))
        if depth < 0 or (depth == 0 and kind in (_T.COMMA, _T.FROM)):
            return False
        if depth == 0 and kind is _T.WHEN:
            return True
    return False


def _has_case(tokens: Sequence[Token], index: int) -> bool:
    depth = ends = 0
    for at in range(index - 1, -1, -1):
        kind = tokens[at].token_type
        depth += (kind is _T.R_PAREN) - (kind is _T.L_PAREN)
        if depth < 0:
            return False
        if depth == 0:
            ends += (kind is _T.END) - (kind is _T.CASE)
            if ends < 0:
                return True
    return False
