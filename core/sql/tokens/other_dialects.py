"""Constructs of other engines' SQL, found by their words before anything is parsed: what they are, and Spark's way.

Each was refused by Spark 4.2.0 (run), except time travel, which it knows for tables that keep versions.
"""

from collections.abc import Sequence

from sqlglot import Token, TokenType

from core.sql.tokens.lexer import SqlDiagnostic, is_word

_BY_WINDOW = "write GROUP BY window(ts, '5 minutes')"
_FUNCTIONS = {
    "TUMBLE": f"{_BY_WINDOW} over STREAM t WATERMARK ts DELAY OF INTERVAL …",
    "HOP": "write GROUP BY window(ts, '5 minutes', '1 minute'): the length first, then the slide",
    "CUMULATE": f"{_BY_WINDOW}: Spark has no cumulative windows; sum the small ones downstream",
    "SESSION": "write GROUP BY <key>, session_window(ts, '5 minutes')",
    "DESCRIPTOR": f"{_BY_WINDOW}: the time column is its first argument",
    "PROCTIME": "write current_timestamp(), or WATERMARK over a column of the table",
    "UNNEST": "write LATERAL explode(…) AS t(c), or LATERAL VIEW explode(…) t AS c",
    "MATCH_RECOGNIZE": "write a self join with a time range, or collect_list(…) over a window",
}
_WINDOWS = ("TUMBLE", "HOP", "SESSION", "CUMULATE")
_OF_A_WINDOW = ("_START", "_END", "_ROWTIME", "_PROCTIME")
_PHRASES = (
    (("LATERAL", "TABLE"), "write LATERAL explode(…) AS t(c), or LATERAL VIEW explode(…) t AS c"),
    (("EMIT", "CHANGES"), "remove it: a stream writes changes as they happen"),
    (("WATERMARK", "FOR"), "write WATERMARK ts DELAY OF INTERVAL 1 MINUTE after STREAM t in the query"),
)
_NOW = (
    "write a plain JOIN, which reads the table as of the start of the statement; for a temporal join, join two streams"
)


def foreign_construct(tokens: Sequence[Token], index: int) -> SqlDiagnostic | None:
    """Return what is wrong where one of `FOREIGN` stands; None where it is a name or SQL of Spark."""
    word = str(tokens[index].text).upper()
    after = tokens[index + 1 : index + 4]
    calls = word in _CALLED and bool(after) and after[0].token_type is TokenType.L_PAREN
    if calls and not _names_a_table(tokens, index):
        name = next((word.removesuffix(end) for end in _OF_A_WINDOW if word.endswith(end)), word)
        return SqlDiagnostic(f"{word} is not Spark SQL", _FUNCTIONS[name], tokens[index].start, subject=word)
    return _phrase(word, tokens[index], after) if after else None


def statement_set(tokens: Sequence[Token]) -> SqlDiagnostic | None:
    """Report that a file is a statement set of another engine: its BEGIN and END are no statements."""
    # What follows EXECUTE is one token of sqlglot.
    words = " ".join(str(token.text) for token in tokens[:3]).upper().split()[:3]
    if words[1:] != ["STATEMENT", "SET"]:
        return None
    construct = " ".join(words)
    remedy = "write the INSERT statements one after the other in one file, with ; between them, without BEGIN and END"
    return SqlDiagnostic(f"{construct} is not Spark SQL", remedy, tokens[0].start, subject=construct)


def _names_a_table(tokens: Sequence[Token], index: int) -> bool:
    """Return whether a bracket after this word opens the column list of an alias or of a part of WITH."""
    before = tokens[index - 1] if index else None
    return is_word(before, "AS", "WITH", "INTO") or (before is not None and before.token_type is TokenType.DOT)


def _phrase(word: str, token: Token, after: Sequence[Token]) -> SqlDiagnostic | None:
    for words, remedy in _PHRASES:
        if word == words[0] and is_word(after[0], words[1]):
            construct = " ".join(words)
            return SqlDiagnostic(f"{construct} is not Spark SQL", remedy, token.start, subject=construct)
    if word == "FOR" and is_word(after[0], "SYSTEM_TIME") and is_word(after[1] if len(after) > 1 else None, "AS"):
        construct = "FOR SYSTEM_TIME AS OF"
        return SqlDiagnostic(f"{construct} cannot be streamed by Spark", _NOW, token.start, subject=construct)
    return None


_CALLED = frozenset((*_FUNCTIONS, *(f"{name}{end}" for name in _WINDOWS for end in _OF_A_WINDOW)))
FOREIGN = _CALLED | {words[0] for words, _ in _PHRASES} | {"FOR"}
"""Words, in upper case, that may begin a construct of another engine."""
