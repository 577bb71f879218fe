"""Constructs of other engines' SQL, found by their words before anything is parsed: what they are, and Spark's way.

Each was refused by Spark 4.2.0 (run), except time travel, which it knows for tables that keep versions.
"""

from collections.abc import Sequence
from itertools import pairwise

from sqlglot import Token, TokenType

from core.sql.lexing import BRACKETS, Misread, is_word

_BY_WINDOW = "write GROUP BY window(ts, '5 minutes')"
_FUNCTIONS = {
    "TUMBLE": f"{_BY_WINDOW} over STREAM t WATERMARK ts DELAY OF INTERVAL …",
    "HOP": "write GROUP BY window(ts, '5 minutes', '1 minute'): the length first, then the slide",
    "CUMULATE": f"{_BY_WINDOW}: windows that grow are not there, sum the small ones where they are read",
    "SESSION": "write GROUP BY <key>, session_window(ts, '5 minutes')",
    "DESCRIPTOR": f"{_BY_WINDOW}: the time column is its first argument",
    "PROCTIME": "write current_timestamp(), or WATERMARK over a column of the table",
    "UNNEST": "write LATERAL explode(…) AS t(c), or LATERAL VIEW explode(…) t AS c",
    "MATCH_RECOGNIZE": "write a self join with a range of time, or collect_list(…) over a window",
}
_OF_A_WINDOW = ("_START", "_END", "_ROWTIME", "_PROCTIME")
_PHRASES = (
    (("LATERAL", "TABLE"), "write LATERAL explode(…) AS t(c), or LATERAL VIEW explode(…) t AS c"),
    (("EMIT", "CHANGES"), "remove it: a stream writes its changes"),
    (("WATERMARK", "FOR"), "write WATERMARK ts DELAY OF INTERVAL 1 MINUTE after STREAM t in the query"),
)
_NOW = "write a plain JOIN, which reads the table as it is when the statement starts; by time, join two streams"


def check_dialect(tokens: Sequence[Token]) -> None:
    """Raise Misread for the first construct of another engine's SQL."""
    for index, (token, after) in enumerate(pairwise(tokens)):
        kind, opens = token.token_type, after.token_type is TokenType.L_PAREN
        if kind in _NO_WORDS or (kind is TokenType.VAR and not opens and str(token.text)[:1] not in _FIRST_LETTERS):
            continue
        word = str(token.text).upper()
        if opens and not _names_a_table(tokens, index):
            _check_function(word, token)
        if word in _FIRST_WORDS:
            _check_phrase(word, token, tokens[index + 1 : index + 4])


def statement_set(tokens: Sequence[Token]) -> Misread | None:
    """Say that a file is a statement set of another engine: its BEGIN and END are no statements."""
    # What follows EXECUTE is one token of sqlglot.
    words = " ".join(str(token.text) for token in tokens[:3]).upper().split()[:3]
    if words[1:] != ["STATEMENT", "SET"]:
        return None
    construct = " ".join(words)
    remedy = "write the INSERT statements one after the other in one file, with ; between them, without BEGIN and END"
    return Misread(f"{construct} is not SQL of Spark", remedy, tokens[0].start, subject=construct)


_FIRST_WORDS = frozenset(words[0] for words, _ in _PHRASES) | {"FOR"}
_FIRST_LETTERS = frozenset(letter for word in _FIRST_WORDS for letter in (word[0], word[0].lower()))
_NO_WORDS = frozenset(
    (TokenType.STRING, TokenType.IDENTIFIER, TokenType.COMMA, TokenType.DOT, TokenType.NUMBER, *BRACKETS)
)


def _names_a_table(tokens: Sequence[Token], index: int) -> bool:
    """Whether a bracket after this word opens the column list of an alias or of a part of WITH."""
    before = tokens[index - 1] if index else None
    return is_word(before, "AS", "WITH", "INTO") or (before is not None and before.token_type is TokenType.DOT)


def _check_function(word: str, token: Token) -> None:
    name = next((word.removesuffix(end) for end in _OF_A_WINDOW if word.endswith(end)), word)
    if word in _FUNCTIONS or (name != word and name in ("TUMBLE", "HOP", "SESSION", "CUMULATE")):
        raise Misread(f"{word} is not SQL of Spark", _FUNCTIONS[name], token.start, subject=word)


def _check_phrase(word: str, token: Token, after: Sequence[Token]) -> None:
    for words, remedy in _PHRASES:
        if word == words[0] and is_word(after[0], words[1]):
            construct = " ".join(words)
            raise Misread(f"{construct} is not SQL of Spark", remedy, token.start, subject=construct)
    if word == "FOR" and is_word(after[0], "SYSTEM_TIME") and is_word(after[1] if len(after) > 1 else None, "AS"):
        construct = "FOR SYSTEM_TIME AS OF"
        raise Misread(f"{construct} cannot be streamed by Spark", _NOW, token.start, subject=construct)
