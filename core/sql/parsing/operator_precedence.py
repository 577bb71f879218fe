"""Makes Spark's operator precedence explicit, by adding brackets before sqlglot parses the tokens.

In Spark 4.2.0 (SqlBaseParser.g4, `valueExpression` and `predicate`), `* / % DIV` bind tighter than `+ - ||`, followed
by shifts, `&`, `^`, `|`, and finally all comparisons, which share one level. The operand of IN, LIKE, BETWEEN and IS is
a whole comparison, and these predicates cannot be chained without brackets. COLLATE binds tightest. SQL that sqlglot
groups as Spark does is left unchanged.
"""

from collections.abc import Sequence

from sqlglot import Token, TokenType

from core.sql.parsing.function_names import PREFIX
from core.sql.tokens.lexer import SqlDiagnostic, word_of

_T = TokenType
_LEVELS = {
    **dict.fromkeys((_T.STAR, _T.SLASH, _T.MOD, _T.DIV), 7),
    **dict.fromkeys((_T.PLUS, _T.DASH, _T.DPIPE), 6),
    **{_T.AMP: 4, _T.CARET: 3, _T.PIPE: 2},
    **dict.fromkeys((_T.EQ, _T.NEQ, _T.NULLSAFE_EQ, _T.LT, _T.LTE, _T.GT, _T.GTE), 1),
}
_SHIFT, _WHOLE = 5, 9
_OTHERWISE = frozenset((_T.DPIPE, _T.AMP, _T.CARET, _T.PIPE, _T.COLLATE))
"""Operators whose precedence differs between Spark and sqlglot, except shifts, which consist of two tokens."""
_PREDICATES = frozenset((_T.IN, _T.LIKE, _T.ILIKE, _T.RLIKE, _T.BETWEEN, _T.IS))
_COMPARING = _PREDICATES | {kind for kind, level in _LEVELS.items() if level == 1}
_OPENING = {_T.L_PAREN: _T.R_PAREN, _T.L_BRACKET: _T.R_BRACKET, _T.L_BRACE: _T.R_BRACE}
_JOINS = (_T.JOIN, _T.LEFT, _T.RIGHT, _T.FULL, _T.INNER, _T.CROSS, _T.NATURAL, _T.SEMI, _T.ANTI)
_SEPARATORS = frozenset(
    (
        *(_T.COMMA, _T.ALIAS, _T.SELECT, _T.FROM, _T.WHERE, _T.AND, _T.OR, _T.WHEN, _T.THEN, _T.ELSE, _T.END, _T.ON),
        *(_T.USING, _T.GROUP_BY, _T.ORDER_BY, _T.SORT_BY, _T.CLUSTER_BY, _T.DISTRIBUTE_BY, _T.PARTITION_BY, _T.HAVING),
        *(_T.QUALIFY, _T.LIMIT, _T.OFFSET, _T.WINDOW, _T.UNION, _T.EXCEPT, _T.INTERSECT, _T.ARROW, _T.FARROW, _T.ASC),
        *(_T.DESC, _T.DISTINCT, _T.ALL, _T.LATERAL, _T.VALUES, _T.WITH, _T.ESCAPE, _T.HINT, _T.NOT, *_JOINS),
        *(_T.R_PAREN, _T.R_BRACKET, _T.R_BRACE),
    )
)
_AFTER_CALL = ("OVER", "FILTER", "WITHIN", "IGNORE", "RESPECT", "NULLS", "GROUP")
_SIGNS = (_T.DASH, _T.PLUS, _T.TILDE)
Tokens = list[Token]


def with_precedence(tokens: Tokens) -> Tokens:
    """Add brackets where sqlglot groups operators differently from Spark; raises SqlDiagnostic for invalid SQL."""
    return _Grouping(tokens).all() if _matters(tokens) else tokens


def _matters(tokens: Sequence[Token]) -> bool:
    """True if tokens contain chained comparisons, or operators that sqlglot groups differently from Spark."""
    around: list[bool] = []
    compared = between = False
    before = None
    truth = False
    for token in tokens:
        kind = token.token_type
        if truth and kind in _LEVELS:
            return True
        truth = kind in (_T.TRUE, _T.FALSE) and before in (_T.IS, _T.NOT)
        if kind in _OTHERWISE or (kind is before and kind in (_T.LT, _T.GT)):
            return True
        if kind in _COMPARING:
            if compared:
                return True
            compared, between = True, kind is _T.BETWEEN
        elif kind is _T.L_PAREN:
            around.append(compared)
            compared = False
        elif kind is _T.R_PAREN:
            compared = bool(around) and around.pop()
        elif kind is _T.AND and between:
            between = False
        elif kind in _SEPARATORS and not (kind is _T.NOT or before in (_T.IS, _T.NOT, _T.DISTINCT)):
            compared = False
        before = kind
    return False


class _Grouping:
    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = tokens
        self._at = 0

    def all(self) -> Tokens:
        """Consume all tokens, and return them with brackets that make the precedence explicit."""
        found: Tokens = []
        while self._at < len(self._tokens):
            found += self._sequence()
            found += self._take() if self._at < len(self._tokens) else []
        return found

    def _kind(self, ahead: int = 0) -> TokenType | None:
        at = self._at + ahead
        return self._tokens[at].token_type if at < len(self._tokens) else None

    def _word(self) -> str:
        return word_of(self._tokens[self._at]) if self._at < len(self._tokens) else ""

    def _take(self, count: int = 1) -> Tokens:
        self._at += count
        return list(self._tokens[self._at - count : self._at])

    def _sequence(self, *, case: bool = False) -> Tokens:
        """Consume the tokens before the next closing bracket or, with `case`, before the END of a CASE."""
        found: Tokens = []
        while (kind := self._kind()) is not None and kind not in _OPENING.values() and not (case and kind is _T.END):
            separates = kind in _SEPARATORS and not (kind in _JOINS and self._kind(1) is _T.L_PAREN)
            if separates or kind in _PREDICATES or (kind in _LEVELS and kind is not _T.STAR and kind not in _SIGNS):
                found += self._take()
                continue
            start = self._at
            found += self._condition()
            if self._at == start:
                found += self._take()
        return found

    def _condition(self) -> Tokens:
        value, level = self._value(1)
        if not self._is_predicate():
            return value
        found = _bracketed(value) if level == 1 else value
        found += self._take() if self._kind() is _T.NOT else []
        kind = self._kind()
        found += self._take()
        if kind is _T.IN:
            found += self._group() if self._kind() is _T.L_PAREN else []
        elif kind is _T.IS:
            found += self._take() if self._kind() is _T.NOT else []
            if self._kind() is _T.DISTINCT:
                found += [*self._take(2), *self._operand()]
            else:
                found += self._take() if self._kind() not in (None, _T.R_PAREN) else []
        elif kind is _T.BETWEEN:
            found += self._operand()
            found += [*self._take(), *self._operand()] if self._kind() is _T.AND else []
        elif self._word() in ("ANY", "SOME", "ALL") and self._kind(1) is _T.L_PAREN:
            found += [*self._take(), *self._group()]
        else:
            found += self._operand()
            found += self._take(2) if self._kind() is _T.ESCAPE else []
        if self._is_predicate() or self._kind() in _LEVELS:
            raise _refused("a condition on a condition needs brackets", self._tokens[self._at])
        return found

    def _operand(self) -> Tokens:
        value, level = self._value(1)
        return _bracketed(value) if level == 1 else value

    def _is_predicate(self) -> bool:
        return self._kind() in _PREDICATES or (self._kind() is _T.NOT and self._kind(1) in _PREDICATES)

    def _value(self, least: int) -> tuple[Tokens, int]:
        """Consume an operand, and all operators that bind at least as tightly as level `least`, with their operands.

        Returns the consumed tokens with brackets, and the level of the outermost operator.
        """
        left, level = self._unit(), _WHOLE
        while (found := self._operator()) is not None and found[0] >= least:
            own, length = found
            operator = self._take(length)
            if self._kind() is _T.NOT:
                raise _refused("NOT behind an operator needs brackets", self._tokens[self._at])
            right, _ = self._value(own + 1)
            if own == 1 and level == 1:
                left = _bracketed(left)
            if length == 3:
                name, (comma,) = _like(operator[0], _T.VAR, f"{PREFIX}shiftrightunsigned"), operator[:1]
                left = [name, *_bracketed([*left, _like(comma, _T.COMMA, ","), *right])]
            else:
                left = [*left, *operator, *right]
            if own in (_SHIFT, 4, 3, 2) or operator[0].token_type is _T.DPIPE:
                left = left if length == 3 else _bracketed(left)
                level = _WHOLE
            else:
                level = own
        return left, level

    def _operator(self) -> tuple[int, int] | None:
        """Return the level and the token count of the operator at the current position, or None if there is none."""
        kind = self._kind()
        if kind in (_T.LT, _T.GT) and self._kind(1) is kind and self._touches(1):
            unsigned = kind is _T.GT and self._kind(2) is kind and self._touches(2)
            return _SHIFT, 3 if unsigned else 2
        return (_LEVELS[kind], 1) if kind in _LEVELS else None

    def _touches(self, ahead: int) -> bool:
        at = self._at + ahead
        return bool(self._tokens[at - 1].end + 1 == self._tokens[at].start)

    def _unit(self) -> Tokens:
        """Consume an operand, including its signs but not its alias."""
        signs: Tokens = []
        while self._kind() in _SIGNS:
            signs += self._take()
        found: Tokens = []
        while (kind := self._kind()) is not None and self._goes_on(found, kind):
            if kind in _OPENING:
                found += self._group()
            elif kind is _T.CASE and not found:
                found += [*self._take(), *self._sequence(case=True)]
                found += self._take() if self._kind() is _T.END else []
            elif kind is _T.COLLATE:
                found = _bracketed([*found, *self._take(2)])
            elif self._word() in ("ARRAY", "MAP", "STRUCT") and self._kind(1) is _T.LT:
                found += self._type()
            else:
                found += self._take()
        return [*signs, *found]

    def _goes_on(self, found: Tokens, kind: TokenType) -> bool:
        """True if the next token, of type `kind`, belongs to the operand that begins with the tokens `found`."""
        if kind is _T.STAR:
            return not found or found[-1].token_type is _T.DOT
        if kind in (_T.CASE, _T.VALUES) and not found:
            return kind is _T.CASE
        if (kind in _SEPARATORS and not (kind in _JOINS and self._kind(1) is _T.L_PAREN)) or kind in _PREDICATES:
            return False
        if kind in _LEVELS:
            return False
        if not found or found[-1].token_type in (_T.DOT, _T.DCOLON) or kind in (_T.DOT, _T.DCOLON, _T.COLLATE):
            return True
        first = word_of(found[0])
        if kind in _OPENING or first == "INTERVAL":
            return True
        return kind is _T.STRING or self._word() in _AFTER_CALL or word_of(found[-1]) in _AFTER_CALL

    def _group(self) -> Tokens:
        found = [*self._take(), *self._sequence()]
        return [*found, *self._take()] if self._at < len(self._tokens) else found

    def _type(self) -> Tokens:
        found, depth = self._take(), 0
        while self._at < len(self._tokens):
            depth += (self._kind() is _T.LT) - (self._kind() is _T.GT)
            found += self._take()
            if depth == 0:
                break
        return found


def _bracketed(tokens: Tokens) -> Tokens:
    if not tokens:
        return tokens
    return [_like(tokens[0], _T.L_PAREN, "("), *tokens, _like(tokens[-1], _T.R_PAREN, ")")]


def _like(token: Token, kind: TokenType, text: str) -> Token:
    return Token(kind, text, token.line, token.col, token.start, token.end, [])


def _refused(summary: str, token: Token) -> SqlDiagnostic:
    return SqlDiagnostic(summary, "put the first condition in brackets", token.start, condition="PARSE_SYNTAX_ERROR")
