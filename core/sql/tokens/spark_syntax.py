"""Checks a statement's tokens before parsing, where sqlglot is more lenient than Spark's parser.

Spark 4.2.0 was observed to reject each of these constructs, or to read it differently from what its author meant. The
diagnostic for another engine's construct suggests Spark's equivalent.
"""

import re
from collections.abc import Callable, Sequence

from sqlglot import Token, TokenType

from core.sql.tokens.keyword_names import STRICT, opening_bracket
from core.sql.tokens.lexer import PIECES, SqlDiagnostic, SqlText, closing_bracket, end_of, is_word, word_of

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
_CALLED = frozenset((*_FUNCTIONS, *(f"{name}{end}" for name in _WINDOWS for end in _OF_A_WINDOW)))
FOREIGN = _CALLED | {words[0] for words, _ in _PHRASES} | {"FOR"}
"""Words, in upper case, with which a construct of another engine may begin."""

RESERVED = ("hg_w_", "hg_f_")
"""Prefixes of the names that Headgate inserts into SQL before sqlglot parses it."""
_SYNTAX = "PARSE_SYNTAX_ERROR"
_VARIABLE = re.compile(r"\$\{(?:\w+?:)?\S+?\}")
_NOTHING_AFTER = frozenset((TokenType.COMMA, TokenType.R_PAREN, TokenType.FROM, TokenType.DOT))
_NOTHING_BEFORE = frozenset((TokenType.L_PAREN, TokenType.SELECT, TokenType.FROM, TokenType.DISTINCT))
_VALUES = frozenset(
    (
        *(TokenType.VAR, TokenType.IDENTIFIER, TokenType.STRING, TokenType.R_PAREN, TokenType.R_BRACKET),
        *(TokenType.NUMBER, TokenType.END),
    )
)
"""Tokens after which `[` begins an index."""
_WORDS = FOREIGN | {"IDENTIFIER", "APPLY", "TO"}
_UNFINISHED = frozenset(
    (
        *(TokenType.DIV, TokenType.PLUS, TokenType.DASH, TokenType.SLASH, TokenType.MOD, TokenType.EQ, TokenType.NEQ),
        *(TokenType.GT, TokenType.GTE, TokenType.LT, TokenType.LTE, TokenType.AND, TokenType.OR, TokenType.NOT),
        *(TokenType.HINT, TokenType.OVER),
    )
)
"""Tokens that must be followed by an operand."""
_UNITS = ("MICROSECOND", "MILLISECOND", "SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "YEAR")
_COMBINING = ("UNION", "EXCEPT", "INTERSECT", "MINUS")
_COMPARING = ("=", "<", ">", "<=", ">=", "<>", "!=", "==", "<=>", "LIKE", "ILIKE")
_NEGATED = (TokenType.IN, TokenType.LIKE, TokenType.ILIKE, TokenType.RLIKE, TokenType.BETWEEN)
_OPENING = (TokenType.SELECT, TokenType.WITH, TokenType.VALUES, TokenType.FROM)

_COMMENTS = re.compile(r"--[^\r\n]*|/\*")
_IN_HINT = re.compile(r"['\"`]|--|/\*")

_Check = Callable[[Sequence[Token], int], SqlDiagnostic | None]


def check_text(source: SqlText) -> None:
    """Raise SqlDiagnostic for templates, and for SQL that Spark changes before it tokenizes it.

    Outside of Headgate's sessions, Spark replaces `${…}` with the value of a setting. It continues a comment that ends
    with a backslash on the next line.
    """
    text = source.text
    if "${" not in text and "\\\n" not in text and "{#" not in text:
        return
    spans = [(piece.start(), piece.end(), text.startswith("--", piece.start())) for piece in PIECES.finditer(text)]
    for start, end, is_line in spans:
        if is_line and text[end - 1] == "\\":
            remedy = "do not end the comment with a backslash"
            raise SqlDiagnostic("Spark reads the next line as part of this comment", remedy, start, condition="")
    comments = [span for span in spans if span[2] or text.startswith("/*", span[0])]
    for found in _VARIABLE.finditer(text):
        if not any(start <= found.start() < end for start, end, _ in comments):
            summary = f"{found[0]} is not the name of a variable"
            remedy = "write the value, or ${name} with a name of letters, digits and _"
            raise SqlDiagnostic(summary, remedy, found.start(), subject=found[0])
    template = text.find("{#")
    if template >= 0 and not any(start <= template < end for start, end, _ in spans):
        raise SqlDiagnostic("{# … #} is not a Spark comment", "write /* … */", template, condition=_SYNTAX)


def check_syntax(tokens: Sequence[Token], source: SqlText) -> None:
    """Raise SqlDiagnostic at the first token that Spark's parser would reject; do nothing if there is none."""
    kinds = [token.token_type for token in tokens]
    if kinds.count(TokenType.L_PAREN) != kinds.count(TokenType.R_PAREN):
        _check_brackets(tokens)
    for index, kind in enumerate(kinds):
        check = _CHECKS.get(kind)
        misread = check(tokens, index) if check is not None else None
        if misread is not None:
            raise misread
    text = source.text
    if not text.isascii() or "hg_" in text:
        _check_names(tokens)
    if "/*+" in text:
        _check_hints(tokens, text)


def _check_brackets(tokens: Sequence[Token]) -> None:
    opened: list[Token] = []
    for token in tokens:
        if token.token_type is TokenType.L_PAREN:
            opened.append(token)
        elif token.token_type is TokenType.R_PAREN:
            if not opened:
                raise SqlDiagnostic("this bracket was never opened", "remove it", token.start, condition=_SYNTAX)
            opened.pop()
    raise SqlDiagnostic("this bracket is never closed", "close it", opened[-1].start, condition=_SYNTAX)


def _check_names(tokens: Sequence[Token]) -> None:
    for token in tokens:
        text = str(token.text)
        if token.token_type is TokenType.VAR and not text.isascii():
            remedy = f"write it in backticks: `{text}`"
            raise SqlDiagnostic(
                "a name with these characters needs backticks", remedy, token.start, condition="INVALID_IDENTIFIER"
            )
        if text.lower().startswith(RESERVED) and token.token_type is not TokenType.STRING:
            raise SqlDiagnostic(f"names that start with {text[:5]} are reserved", "give it another name", token.start)


def _check_hints(tokens: Sequence[Token], text: str) -> None:
    """Raise SqlDiagnostic for a hint that does not follow SELECT, because sqlglot would skip it like a comment."""
    behind_select = {token.start for token in tokens if token.token_type is TokenType.HINT}
    for piece in PIECES.finditer(text, tokens[0].start):
        if piece.start() > tokens[-1].end and text[tokens[-1].end + 1 : piece.start()].strip():
            return
        if text.startswith("/*+", piece.start()) and piece.start() not in behind_select:
            remedy = "move it after SELECT, or write a comment as /* … */"
            raise SqlDiagnostic("Spark does not accept a hint here", remedy, piece.start(), condition=_SYNTAX)


def check_comments(tokens: Sequence[Token], source: SqlText) -> None:
    """Raise SqlDiagnostic for a comment or hint that ends at a different position in sqlglot than in Spark.

    In Spark, comments nest except for `/*+`, and the contents of a hint are ordinary tokens (tested on Spark 4.2.0).
    """
    text = source.text
    if "/*+" not in text:
        return
    between = zip((0, *map(end_of, tokens)), (*(token.start for token in tokens), len(text)), strict=True)
    for start, end in between:
        opened = next((found.start() for found in _COMMENTS.finditer(text, start, end) if found[0] == "/*"), end)
        if text.find("/*+", opened + 1, end) >= 0:
            summary = "Spark ends a comment with /*+ in it earlier than it looks"
            raise SqlDiagnostic(summary, "remove /*+ from the comment", opened)
    for token in tokens:
        if token.token_type is TokenType.HINT and _IN_HINT.search(str(token.text), 3):
            remedy = "write the hint with plain names, without quotes and comments"
            raise SqlDiagnostic("a hint with quotes or a comment in it is not supported", remedy, token.start)


def _kind(tokens: Sequence[Token], index: int) -> TokenType | None:
    return tokens[index].token_type if 0 <= index < len(tokens) else None


def _refuse(summary: str, remedy: str, token: Token, condition: str = _SYNTAX) -> SqlDiagnostic:
    return SqlDiagnostic(summary, remedy, token.start, condition=condition)


def _word(tokens: Sequence[Token], index: int) -> SqlDiagnostic | None:
    word = str(tokens[index].text).upper()
    if word not in _WORDS:
        return None
    if word == "TO":
        called = is_word(tokens[max(opening_bracket(tokens, index) - 1, 0)], "CEIL", "CEILING", "FLOOR")
        return _refuse("CEIL and FLOOR take no TO", "write date_trunc('…', …)", tokens[index]) if called else None
    if word == "IDENTIFIER" and _kind(tokens, index + 1) is TokenType.L_PAREN:
        return _refuse("IDENTIFIER(…) hides a name", "write the name", tokens[index], "")
    if word == "APPLY" and index and is_word(tokens[index - 1], "CROSS", "OUTER"):
        return _refuse("APPLY is not Spark SQL", "write JOIN LATERAL (…), or LATERAL VIEW", tokens[index])
    return other_engine_diagnostic(tokens, index) if word in FOREIGN else None


def _comma(tokens: Sequence[Token], index: int) -> SqlDiagnostic | None:
    after, before = _kind(tokens, index + 1), _kind(tokens, index - 1)
    if after is TokenType.DOT and _kind(tokens, index + 2) is TokenType.NUMBER:
        return None
    if after is None or after in _NOTHING_AFTER:
        return _refuse("nothing follows this comma", "remove it, or write what follows", tokens[index])
    if before in _NOTHING_BEFORE:
        return _refuse("nothing precedes this comma", "remove it, or write what comes first", tokens[index])
    return None


def _select(tokens: Sequence[Token], index: int) -> SqlDiagnostic | None:
    after = index + (2 if is_word(tokens[min(index + 1, len(tokens) - 1)], "DISTINCT", "ALL") else 1)
    if _kind(tokens, after) in (None, TokenType.FROM, TokenType.R_PAREN):
        return _refuse("nothing is selected", "write SELECT * FROM, or name the columns", tokens[index], "")
    return None


def _from(tokens: Sequence[Token], index: int) -> SqlDiagnostic | None:
    if index and tokens[index - 1].token_type in _UNFINISHED:
        word = str(tokens[index - 1].text).upper()
        return _refuse(f"nothing follows {word}", "write what follows, or remove it", tokens[index - 1])
    if _kind(tokens, index + 1) is TokenType.DOT:
        return _refuse("a part of a table name is missing", "write the whole name", tokens[index + 1])
    return None


def _parameter(tokens: Sequence[Token], index: int) -> SqlDiagnostic | None:
    sign = str(tokens[index].text)
    return _refuse(f"{sign} is not valid here", "write the name in backticks, or write a value", tokens[index])


def _colon(tokens: Sequence[Token], index: int) -> SqlDiagnostic | None:
    before = tokens[index - 1] if index else None
    if before is None or before.end + 1 != tokens[index].start or before.token_type not in _VALUES:
        return None
    if _names_field(tokens, index - 1):
        return None
    remedy = "write variant_get(column, '$.field', 'type')"
    return _refuse("a variant path is not supported", remedy, tokens[index], "")


def _names_field(tokens: Sequence[Token], index: int) -> bool:
    depth = 0
    for at in range(index - 1, -1, -1):
        kind = tokens[at].token_type
        depth += (kind is TokenType.GT) - (kind is TokenType.LT)
        if depth < 0:
            return is_word(tokens[at - 1], "STRUCT")
        if kind in (TokenType.SELECT, TokenType.FROM):
            return False
    return False


def _bracket(tokens: Sequence[Token], index: int) -> SqlDiagnostic | None:
    before = tokens[index - 1] if index else None
    indexes = before is not None and (before.token_type in _VALUES or str(before.text).isidentifier())
    if indexes and not is_word(before, "ARRAY", "SELECT", "BY", "AND", "OR", "NOT", "IN", "WHERE", "THEN", "ELSE"):
        return None
    return _refuse("an array in square brackets is not Spark SQL", "write array(…)", tokens[index])


def _quantified(tokens: Sequence[Token], index: int) -> SqlDiagnostic | None:
    compares = index > 0 and str(tokens[index - 1].text).upper() in _COMPARING
    if compares and _kind(tokens, index + 1) is TokenType.L_PAREN and _kind(tokens, index + 2) in _OPENING:
        word = str(tokens[index].text).upper()
        return _refuse(f"{word} with a query is not Spark SQL", "write IN, EXISTS, or max(…)", tokens[index])
    if compares and _kind(tokens, index + 1) is TokenType.L_PAREN and _kind(tokens, index + 2) is TokenType.R_PAREN:
        return _refuse("LIKE ANY has no patterns", "list the patterns", tokens[index])
    return None


def _in(tokens: Sequence[Token], index: int) -> SqlDiagnostic | None:
    if _kind(tokens, index + 1) is TokenType.L_PAREN and _kind(tokens, index + 2) is TokenType.R_PAREN:
        condition = "INVALID_SQL_SYNTAX.EMPTY_IN_PREDICATE"
        return _refuse("IN () lists no values", "list the values", tokens[index], condition)
    if _kind(tokens, index + 1) in (None, TokenType.COMMA, TokenType.FROM, TokenType.R_PAREN):
        return _refuse("nothing follows IN", "write IN (…), or a name in backticks: `in`", tokens[index], "")
    return None


def _interval(tokens: Sequence[Token], index: int) -> SqlDiagnostic | None:
    if _kind(tokens, index + 1) is TokenType.L_PAREN and _kind(tokens, index + 2) in _OPENING:
        return _refuse(
            "INTERVAL takes a number or a string", "multiply an interval literal by the value", tokens[index]
        )
    value = index + 2
    if _kind(tokens, index + 1) is TokenType.L_PAREN:
        value = closing_bracket(tokens, index + 1) + 1
    computed = _kind(tokens, index + 1) in (TokenType.VAR, TokenType.L_PAREN) and value < len(tokens)
    if computed and word_of(tokens[value]).removesuffix("S") in _UNITS:
        remedy = "multiply an interval literal by the value"
        return _refuse("INTERVAL takes a number or a string", remedy, tokens[index])
    if _kind(tokens, index + 1) is TokenType.STAR:
        return _refuse("nothing follows INTERVAL", "write INTERVAL 1 MINUTE", tokens[index])
    return None


def _not(tokens: Sequence[Token], index: int) -> SqlDiagnostic | None:
    if _kind(tokens, index + 1) is TokenType.NULL and _kind(tokens, index - 1) in _VALUES:
        return _refuse("IS is missing before NOT NULL", "write IS NOT NULL", tokens[index])
    if str(tokens[index].text) == "!" and (
        _kind(tokens, index - 1) is TokenType.IS or _kind(tokens, index + 1) in _NEGATED
    ):
        return _refuse("! is not NOT here", "write NOT", tokens[index])
    if _kind(tokens, index - 1) in _UNFINISHED - {TokenType.AND, TokenType.OR, TokenType.NOT} | {TokenType.STAR}:
        return _refuse("NOT behind an operator needs brackets", "write (NOT …)", tokens[index])
    return None


def _star(tokens: Sequence[Token], index: int) -> SqlDiagnostic | None:
    changing = _kind(tokens, index + 2) is TokenType.L_PAREN
    if changing and is_word(tokens[index + 1], "RENAME", "REPLACE", "EXCLUDE"):
        word = str(tokens[index + 1].text).upper()
        return _refuse(f"* {word} is not Spark SQL", "write * EXCEPT (…), and the other columns", tokens[index])
    return None


def _limit(tokens: Sequence[Token], index: int) -> SqlDiagnostic | None:
    if _kind(tokens, index + 2) is TokenType.COMMA:
        return _refuse("LIMIT takes one number", "write LIMIT n OFFSET m", tokens[index])
    return None


def _offset(tokens: Sequence[Token], index: int) -> SqlDiagnostic | None:
    if _kind(tokens, index + 2) is TokenType.LIMIT:
        return _refuse("LIMIT comes before OFFSET", "write LIMIT n OFFSET m", tokens[index])
    return None


def _alias(tokens: Sequence[Token], index: int) -> SqlDiagnostic | None:
    if _kind(tokens, index + 1) is TokenType.STRING:
        return _refuse("an alias is an identifier, not a string", "write it in backticks", tokens[index + 1])
    if _kind(tokens, index + 1) is TokenType.STAR:
        return _refuse("nothing follows AS", "write a name", tokens[index])
    after = tokens[index + 1] if index + 1 < len(tokens) else None
    if after is None or after.token_type in (TokenType.COMMA, TokenType.R_PAREN, TokenType.FROM):
        return _refuse("nothing follows AS", "write a name", tokens[index], "")
    if is_word(after, *STRICT):
        word = str(after.text).upper()
        return _refuse(f"{word} cannot be the alias of a table", f"write it in backticks: `{after.text}`", after)
    negated = index + 2 < len(tokens) and is_word(after, "NOT") and is_word(tokens[index + 2], "MATERIALIZED")
    if negated or (is_word(after, "MATERIALIZED") and _kind(tokens, index + 2) is TokenType.L_PAREN):
        return _refuse("AS MATERIALIZED is not Spark SQL", "write AS (SELECT …)", tokens[index])
    return None


def _with(tokens: Sequence[Token], index: int) -> SqlDiagnostic | None:
    before = tokens[index - 1] if index else None
    combines = is_word(before, *_COMBINING) or (
        is_word(before, "ALL", "DISTINCT") and index > 1 and is_word(tokens[index - 2], *_COMBINING)
    )
    if combines:
        return _refuse("WITH must come before the whole query", "put this side in parentheses", tokens[index])
    names = (
        before is not None and before.token_type is TokenType.R_PAREN and _kind(tokens, index + 2) is TokenType.ALIAS
    )
    if names:
        return _refuse("WITH follows WITH", "write one WITH, with commas between its queries", tokens[index])
    return None


def _national(tokens: Sequence[Token], index: int) -> SqlDiagnostic | None:
    return _refuse("N'…' is not a Spark string", "write '…'", tokens[index], "UNSUPPORTED_TYPED_LITERAL")


def _hint(tokens: Sequence[Token], index: int) -> SqlDiagnostic | None:
    if _kind(tokens, index - 1) is not TokenType.SELECT:
        return _refuse("Spark does not accept a hint here", "move it after SELECT", tokens[index])
    return None


def _ends(tokens: Sequence[Token], index: int) -> SqlDiagnostic | None:
    after = _kind(tokens, index + 1)
    if after is None or after is TokenType.R_PAREN or after is TokenType.WITH:
        word = str(tokens[index].text).upper()
        return _refuse(f"nothing follows {word}", "write what follows, or remove it", tokens[index])
    return None


def other_engine_diagnostic(tokens: Sequence[Token], index: int) -> SqlDiagnostic | None:
    """Return the diagnostic for another engine's construct that begins at `index`; None if none begins there."""
    word = str(tokens[index].text).upper()
    after = tokens[index + 1 : index + 4]
    calls = word in _CALLED and bool(after) and after[0].token_type is TokenType.L_PAREN
    if calls and not _names_a_table(tokens, index):
        name = next((word.removesuffix(end) for end in _OF_A_WINDOW if word.endswith(end)), word)
        return SqlDiagnostic(f"{word} is not Spark SQL", _FUNCTIONS[name], tokens[index].start, subject=word)
    return _phrase(word, tokens[index], after) if after else None


def statement_set(tokens: Sequence[Token]) -> SqlDiagnostic | None:
    """Return the diagnostic for another engine's statement set at the start of a file; None if there is none."""
    # sqlglot makes one token of everything after EXECUTE.
    words = " ".join(str(token.text) for token in tokens[:3]).upper().split()[:3]
    if words[1:] != ["STATEMENT", "SET"]:
        return None
    construct = " ".join(words)
    remedy = "write the INSERT statements one after the other in one file, with ; between them, without BEGIN and END"
    return SqlDiagnostic(f"{construct} is not Spark SQL", remedy, tokens[0].start, subject=construct)


def _names_a_table(tokens: Sequence[Token], index: int) -> bool:
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


_CHECKS: dict[TokenType, _Check] = {
    TokenType.VAR: _word,
    TokenType.APPLY: _word,
    TokenType.FOR: _word,
    TokenType.LATERAL: _word,
    TokenType.SESSION: _word,
    TokenType.UNNEST: _word,
    TokenType.COMMA: _comma,
    TokenType.SELECT: _select,
    TokenType.FROM: _from,
    TokenType.JOIN: _from,
    TokenType.PARAMETER: _parameter,
    TokenType.COLON: _colon,
    TokenType.L_BRACKET: _bracket,
    TokenType.ANY: _quantified,
    TokenType.ALL: _quantified,
    TokenType.SOME: _quantified,
    TokenType.IN: _in,
    TokenType.INTERVAL: _interval,
    TokenType.NOT: _not,
    TokenType.STAR: _star,
    TokenType.LIMIT: _limit,
    TokenType.OFFSET: _offset,
    TokenType.ALIAS: _alias,
    TokenType.WITH: _with,
    TokenType.NATIONAL_STRING: _national,
    TokenType.HINT: _hint,
    TokenType.ON: _ends,
    TokenType.USING: _ends,
    TokenType.GROUP_BY: _ends,
    TokenType.ORDER_BY: _ends,
    TokenType.WHERE: _ends,
    TokenType.HAVING: _ends,
}
