"""Tokens of SQL, and positions in it; every position in a Problem about SQL is computed here."""

import re
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from sqlglot import Token, TokenType
from sqlglot.dialects.spark import Spark
from sqlglot.errors import TokenError

from core.model.problems import Problem, Severity, Where
from core.sql.tokens.keyword_names import Tokenizer, with_names

LONGEST_TEXT = 4_000_000
MOST_TOKENS = 150_000
"""Maximum number of tokens in a file.

Parsing a file with this many tokens takes seconds, and no person or generator writes a larger file.
"""
DEEPEST = 80
"""Maximum number of open brackets; with more, sqlglot's recursion fails, and 10,000 brackets crash the process."""
DEEPEST_TYPE = 24
MOST_BARE_JOINS = 12
"""Maximum number of consecutive joins without ON; each further join doubles the parse time (sqlglot 30.30)."""
MOST_INDEXES = 10_000
"""Maximum number of indexes in `a[0][0]…`: sqlglot recurses for each index, and 70,000 indexes crashed the process."""
_AROUND = 30
PIECES = re.compile(
    r"""--[^\n]*|/\*.*?\*/|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`|(?P<open>['"`]|/\*)""", re.DOTALL
)
_BREAK = re.compile(r"\n")
_SIDE_BY_SIDE = re.compile(r"""['"]['"]""")
"""Matches the boundary between two adjacent string literals, or an empty literal."""
_DIALECT = Spark()
BRACKETS = (TokenType.L_PAREN, TokenType.R_PAREN)
_OPENING = frozenset({TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE})
_CLOSING = frozenset({TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE})


class SqlDiagnostic(Exception):
    """Raised for SQL that cannot be parsed or is not allowed; converted to a Problem inside `core.sql`."""

    def __init__(self, summary: str, remedy: str, offset: int, *, subject: str = "", condition: str = "") -> None:
        """Create the error.

        `offset` is in characters from the start of the SQL; -1 if unknown. `condition` is Spark's error class for the
        SQL; empty if Spark has none.
        """
        super().__init__(summary)
        self.summary = summary
        self.remedy = remedy
        self.offset = offset
        self.subject = subject
        self.condition = condition


@dataclass(frozen=True, slots=True)
class SqlText:
    """The content of an SQL file without a byte-order mark, and the path of the file."""

    path: str
    text: str
    _breaks: "array[int]" = field(default_factory=lambda: array("q"), repr=False, compare=False)
    """-1, then the offsets of all line breaks; cached, because a file may have thousands of positions."""

    def line(self, offset: int) -> int:
        """Return the line, counted from 1, that contains a character offset."""
        if not self._breaks:
            self._breaks.append(-1)
            self._breaks.extend(found.start() for found in _BREAK.finditer(self.text))
        return bisect_left(self._breaks, offset)

    def where(self, offset: int) -> Where:
        """Return the position of a character offset as path, line and column, counted from 1."""
        offset = max(0, min(offset, len(self.text)))
        return Where(self.path, self.line(offset), offset - self.text.rfind("\n", 0, offset))

    def around(self, offset: int, before: str = "") -> str:
        """Quote the line around an offset, with a caret below the offset and `…` where the line is truncated.

        `before` is put before the quoted line. The result is empty if there is nothing to quote.
        """
        offset = max(0, min(offset, len(self.text)))
        start = self.text.rfind("\n", 0, offset) + 1
        end = self.text.find("\n", offset)
        end = len(self.text) if end < 0 else end
        left, right = max(start, offset - _AROUND), min(end, offset + _AROUND)
        lead = before + ("…" if left > start else "") + self.text[left:offset].lstrip()
        margin = "".join(sign if sign == "\t" else " " for sign in lead)
        quoted = lead + self.text[offset:right].rstrip() + ("…" if right < end else "")
        return f"{quoted}\n{margin}^" if quoted.strip() else ""

    def problem(self, misread: SqlDiagnostic, *, severity: Severity = Severity.ERROR) -> Problem:
        """Convert a diagnostic to a Problem that quotes the SQL line, with a caret below the position."""
        detail = self.around(misread.offset, f"[{misread.condition}] " if misread.condition else "")
        return Problem(misread.summary, misread.remedy, self.where(misread.offset), misread.subject, detail, severity)


def open_sql(text: str, path: str) -> SqlText:
    """Remove the byte-order mark from the content of an SQL file, and combine it with the path of the file."""
    return SqlText(path, text.removeprefix("\ufeff"))


def tokens_of(source: SqlText) -> list[Token]:
    """Tokenize SQL; raises SqlDiagnostic for an unclosed string or comment, and for excessive length or depth."""
    if len(source.text) > LONGEST_TEXT:
        raise SqlDiagnostic(f"the text is longer than {LONGEST_TEXT:,} characters", "split it into several files", 0)
    try:
        tokens: list[Token] = Tokenizer(dialect=_DIALECT).tokenize(source.text)
    except TokenError as error:
        raise SqlDiagnostic(
            "the SQL cannot be parsed: a string, a quoted name or a comment is not closed",
            "close what starts here",
            _unclosed(source.text),
        ) from error
    if len(tokens) > MOST_TOKENS:
        summary = f"the text has more than {MOST_TOKENS:,} tokens"
        raise SqlDiagnostic(summary, "split it into several tables, or several files", tokens[MOST_TOKENS].start)
    if _may_be_deep(source.text):
        _check_depth(tokens)
    return with_names(_with_whole_strings(tokens) if _SIDE_BY_SIDE.search(source.text) else tokens)


def statements_of(tokens: Sequence[Token]) -> Iterator[list[Token]]:
    """Yield the tokens of each statement, split at semicolons; empty statements are skipped."""
    found: list[Token] = []
    for token in tokens:
        if token.token_type is TokenType.SEMICOLON:
            if found:
                yield found
            found = []
        else:
            found.append(token)
    if found:
        yield found


def is_word(token: Token | None, *words: str) -> bool:
    """True if an unquoted token is one of `words`, which must be in upper case; False without a token."""
    return token is not None and word_of(token) in words


def word_of(token: Token) -> str:
    """Return a token's text in upper case; empty for a string literal or a name in backticks."""
    kind = token.token_type
    return "" if kind is TokenType.STRING or kind is TokenType.IDENTIFIER else str(token.text).upper()


def closing_bracket(tokens: Sequence[Token], opened: int) -> int:
    """Return the index of the bracket that closes the bracket at `opened`; raises SqlDiagnostic if there is none."""
    depth = 0
    for index in range(opened, len(tokens)):
        kind = tokens[index].token_type
        if kind in _OPENING:
            depth += 1
        elif kind in _CLOSING:
            depth -= 1
            if depth == 0:
                return index
    raise SqlDiagnostic("this bracket is never closed", "close it", tokens[opened].start)


def key_values(tokens: Sequence[Token], what: str) -> Iterator[tuple[Token, str, Token]]:
    """Yield the key token, the key and the value token of each entry in a list such as `'k'='v', a.b = 1, c 2`.

    `what` is the noun for an entry in messages: key or option. Raises SqlDiagnostic for a malformed list.
    """
    index = 0
    while index < len(tokens):
        start, key = tokens[index], str(tokens[index].text)
        index += 1
        while index + 1 < len(tokens) and tokens[index].token_type is TokenType.DOT:
            key, index = f"{key}.{tokens[index + 1].text}", index + 2
        if index < len(tokens) and tokens[index].token_type is TokenType.EQ:
            index += 1
        if index >= len(tokens) or tokens[index].token_type is TokenType.COMMA:
            raise SqlDiagnostic(f"this {what} has no value", "write 'name'='value'", start.start, subject=key)
        yield start, key, tokens[index]
        index += 1
        if index < len(tokens) and tokens[index].token_type is not TokenType.COMMA:
            raise SqlDiagnostic(f"the {what}s cannot be parsed", "write 'name'='value', …", tokens[index].start)
        index += 1


def end_of(token: Token) -> int:
    """Return the offset after the last character of a token."""
    return int(token.end) + 1


def _with_whole_strings(tokens: list[Token]) -> list[Token]:
    """Join the parts of strings such as `'it''s'`.

    sqlglot splits them, but Spark 4 reads them as a single string that contains a quote.
    """
    found: list[Token] = []
    texts: list[str] = []
    for token in tokens:
        last = found[-1] if found else None
        if last is not None and last.token_type is token.token_type is TokenType.STRING and token.start == end_of(last):
            texts.append(str(token.text))
            found[-1] = Token(TokenType.STRING, "", token.line, token.col, last.start, token.end, token.comments)
            continue
        _close_string(found, texts)
        found.append(token)
        texts = [str(token.text)]
    _close_string(found, texts)
    return found


def _close_string(found: list[Token], texts: list[str]) -> None:
    if len(texts) > 1:
        last = found[-1]
        text = "'".join(texts)
        found[-1] = Token(TokenType.STRING, text, last.line, last.col, last.start, last.end, last.comments)


def _unclosed(text: str) -> int:
    """Return the offset of the quote or comment that is never closed; sqlglot does not report where it starts."""
    return next((found.start() for found in PIECES.finditer(text) if found["open"]), 0)


def _may_be_deep(text: str) -> bool:
    # A cheap test: most SQL has too few brackets and joins in total to exceed a limit on nesting.
    return (
        sum(map(text.count, "([{")) > DEEPEST
        or text.count("<") > DEEPEST_TYPE
        or text.upper().count("JOIN") > MOST_BARE_JOINS
    )


def _check_depth(tokens: Sequence[Token]) -> None:
    depth = types = joins = indexes = 0
    before = None
    for token in tokens:
        kind = token.token_type
        if kind is TokenType.L_BRACKET and before is TokenType.R_BRACKET:
            indexes += 1
        before = kind
        if kind in _OPENING:
            depth += 1
        elif kind in _CLOSING:
            depth -= 1
        elif kind is TokenType.LT:
            types += 1
        elif kind is TokenType.GT:
            types = max(0, types - 1)
        elif kind is TokenType.JOIN:
            joins += 1
        elif kind in (TokenType.ON, TokenType.USING, TokenType.CROSS, TokenType.NATURAL):
            joins = 0
        elif kind in (TokenType.SELECT, TokenType.SEMICOLON, TokenType.AND, TokenType.COMMA):
            types = types if kind is TokenType.COMMA else 0
            joins = 0 if kind in (TokenType.SELECT, TokenType.SEMICOLON) else joins
        if depth > DEEPEST or types > DEEPEST_TYPE or joins > MOST_BARE_JOINS or indexes > MOST_INDEXES:
            raise SqlDiagnostic(
                "the SQL is nested too deeply to be read safely",
                "move the inner parts to WITH, or write CROSS JOIN where there is no ON",
                token.start,
            )
