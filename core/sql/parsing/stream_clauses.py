"""Spark's streaming clauses, taken out of the tokens before sqlglot sees them, kept by the place of the table name."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from sqlglot import Token, TokenType

from core.sql.parsing.read_clauses import WatermarkClause, options_in, source_name, watermark_at
from core.sql.tokens.lexer import BRACKETS, SqlDiagnostic, closing_bracket, end_of, is_word, word_of
from core.sql.tokens.table_name_tokens import (
    FROM_FIRST,
    SELECT_ALL,
    begins_query,
    is_table_query,
    name_end,
    names_table,
    word_at,
)

HIDDEN = "hg_w_"
"""Prefix of the alias that carries a watermark of what is not `STREAM t`; the digits after it index `hidden`."""
_NOT_AFTER_STREAM = (
    "AS",
    "JOIN",
    "LEFT",
    "RIGHT",
    "FULL",
    "INNER",
    "CROSS",
    "NATURAL",
    "SEMI",
    "ANTI",
    "ON",
    "USING",
)
_ENDS = (
    "WHERE",
    "GROUP",
    "GROUP BY",
    "HAVING",
    "ORDER",
    "ORDER BY",
    "SORT BY",
    "CLUSTER BY",
    "DISTRIBUTE BY",
    "LIMIT",
    "OFFSET",
    "WINDOW",
    "QUALIFY",
    "UNION",
    "EXCEPT",
    "INTERSECT",
    "MINUS",
    "LATERAL",
    "TABLESAMPLE",
    "PIVOT",
    "UNPIVOT",
    "SELECT",
    "FROM",
    "OUTER",
)
_END_WORDS = frozenset(_ENDS)
_TURNING = _END_WORDS - {"LATERAL", "OUTER", "TABLESAMPLE", "PIVOT", "UNPIVOT"}
"""Words that end FROM."""
_IN_FROM = _TURNING | {"ON", "USING", "LATERAL", "WITH", "VALUES", "PIVOT", "UNPIVOT"}
"""Words that mean something to who follows the clauses of FROM."""
_NAMING = ("from", "on")
"""Clauses in which every token counts."""
_TURNS = frozenset((TokenType.SELECT, TokenType.TABLE, TokenType.FROM, TokenType.JOIN, TokenType.COMMA, *BRACKETS))
"""What counts in every other clause."""
_LONGEST_TIME = 100
"""Tokens between WATERMARK and DELAY: an expression for the event time."""


@dataclass(frozen=True, slots=True)
class StreamClauses:
    """What stood around one table name, or behind one subquery."""

    streaming: bool = False
    options: tuple[tuple[str, str], ...] = ()
    source_name: str = ""
    watermark: WatermarkClause | None = None
    begin: int = -1
    """Offset of STREAM; -1 where it is not written."""
    source_end: int = 0
    """Offset after the table, its options and its name as a source."""
    end: int = 0
    """Offset after the last clause, where an alias would stand."""


@dataclass(slots=True)
class ExtractedClauses:
    """Tokens that sqlglot can read, and what was taken out of them."""

    tokens: list[Token] = field(default_factory=list)
    by_start: dict[int, StreamClauses] = field(default_factory=dict)
    """By the offset of the last part of the table name."""
    hidden: list[StreamClauses] = field(default_factory=list)
    diagnostics: list[SqlDiagnostic] = field(default_factory=list)
    """What is readable and still wrong: unknown options."""
    connectors: list[tuple[int, bool]] = field(default_factory=list)
    """Offsets of FROM, JOIN and commas in FROM, and whether it is CROSS JOIN: sqlglot takes a comma for one."""
    named: list[int] = field(default_factory=list)
    """Offsets of the names that stand where a table is read: whatever the parser makes of them, each must be read."""
    with_on: set[int] = field(default_factory=set)
    """Offsets of those that an ON follows: sqlglot writes ON TRUE behind LATERAL by itself."""


@dataclass(slots=True)
class _Level:
    """One bracket level of a query: which clause we are in, and whether a table may come next."""

    clause: str = ""
    selects: bool = False
    expects: bool = False
    joins: bool = False
    """Whether these are brackets in FROM that hold no query so far."""
    rows: bool = False
    """Whether a comma separates rows of VALUES."""
    viewed: bool = False
    """Whether a LATERAL VIEW stands behind the sources, with which FROM ends."""
    pivoted: bool = False
    """Whether a PIVOT stands behind the last source."""
    connector: int = -1
    """Offset of the last FROM, JOIN or comma of this level."""


def extract_stream_clauses(tokens: Sequence[Token]) -> ExtractedClauses:
    """Remove every STREAM, WITH options, IDENTIFIED BY and WATERMARK; raise SqlDiagnostic for a broken one."""
    marks, levels, index = ExtractedClauses(), [_Level()], 0
    while index < len(tokens):
        token, level = tokens[index], levels[-1]
        if level.clause not in _NAMING and token.token_type not in _TURNS:
            marks.tokens.append(token)
            index += 1
            continue
        if token.token_type is TokenType.TABLE and is_table_query(tokens, index):
            marks.tokens += [word_at(kind, text, token) for kind, text in SELECT_ALL]
            level.clause, level.selects, level.expects, level.joins = "from", True, True, False
            index += 1
            continue
        if level.expects and is_word(token, "STREAM") and _streams(tokens, index):
            level.expects = False
            index = _take_stream(tokens, index, marks)
            continue
        if level.expects and _has_options(tokens, index):
            level.expects = False
            index = _take_table(tokens, index, marks)
            continue
        if level.clause == "from" and not level.expects and is_word(token, "WATERMARK") and _delays(tokens, index):
            index = _take_hidden(tokens, index, marks)
            continue
        if level.expects and names_table(tokens, index):
            marks.named.append(int(tokens[name_end(tokens, index)].start))
        if token.token_type is TokenType.L_PAREN:
            levels.append(_Level("from", True, True, True) if level.expects else _Level())
            level.expects = False
        elif token.token_type is TokenType.R_PAREN:
            if len(levels) > 1:
                levels.pop()
            levels[-1].expects = False
        else:
            _step(level, tokens, index)
            if level.expects:
                marks.connectors.append((int(token.start), is_word(tokens[index - 1], "CROSS")))
                level.connector = int(token.start)
            elif token.token_type is TokenType.ON:
                marks.with_on.add(level.connector)
        marks.tokens.append(token)
        index += 1
    return marks


def _step(level: _Level, tokens: Sequence[Token], index: int) -> None:
    """Follow the clauses of one bracket level."""
    kind, before = tokens[index].token_type, tokens[index - 1] if index else None
    level.expects = False
    if kind is TokenType.SELECT:
        level.clause, level.selects, level.joins, level.viewed = "select", True, False, False
    elif kind is TokenType.FROM:
        # IS DISTINCT FROM, and FROM inside EXTRACT, TRIM and SUBSTRING, begin no clause.
        compares = is_word(before, "DISTINCT") and index > 1 and is_word(tokens[index - 2], "IS", "NOT")
        if begins_query(tokens, index):
            raise SqlDiagnostic(*FROM_FIRST, tokens[index].start, subject="FROM")
        if level.selects and not compares:
            level.clause, level.expects = "from", True
    elif kind is TokenType.JOIN and level.selects:
        if level.viewed:
            remedy = "write the join before LATERAL VIEW, or use LATERAL in FROM"
            summary = "a join is not allowed after LATERAL VIEW"
            raise SqlDiagnostic(summary, remedy, tokens[index].start, condition="PARSE_SYNTAX_ERROR")
        level.clause, level.expects = "from", True
    elif kind is TokenType.COMMA:
        if level.clause in _NAMING and not level.rows:
            if level.joins:
                remedy, condition = "write CROSS JOIN, or JOIN with ON", "PARSE_SYNTAX_ERROR"
                summary = "a comma is not allowed between tables inside parentheses"
                raise SqlDiagnostic(summary, remedy, tokens[index].start, condition=condition)
            level.clause, level.expects = "from", True
    elif level.clause in _NAMING:
        _step_in_from(level, tokens, index)
    level.pivoted = level.pivoted and not level.expects


def _step_in_from(level: _Level, tokens: Sequence[Token], index: int) -> None:
    word = word_of(tokens[index])
    if word not in _IN_FROM and not level.rows:
        return
    if level.rows and not is_word(tokens[index - 1], "VALUES") and tokens[index - 1].token_type is not TokenType.COMMA:
        level.rows = False
    if word in ("ON", "USING") and level.clause == "from":
        if level.pivoted:
            summary = f"{word} is not allowed after PIVOT, which applies to everything joined before it"
            remedy = "put the pivoted table in parentheses: JOIN (SELECT * FROM t PIVOT (…)) AS p ON …"
            raise SqlDiagnostic(summary, remedy, tokens[index].start, condition="PARSE_SYNTAX_ERROR")
        level.clause = "on"
    elif word in _TURNING or (word == "LATERAL" and is_word(_after(tokens, index), "VIEW")):
        level.clause, level.viewed = "other", level.viewed or word == "LATERAL"
    elif word in ("WITH", "VALUES"):
        level.joins = False
        level.rows = word == "VALUES"
        level.clause = "from" if level.rows else "other"
    elif word in ("PIVOT", "UNPIVOT"):
        level.pivoted = True


def _after(tokens: Sequence[Token], index: int) -> Token | None:
    return tokens[index + 1] if index + 1 < len(tokens) else None


def _streams(tokens: Sequence[Token], index: int) -> bool:
    """Return whether the word STREAM here is the keyword, not a table called stream."""
    after = tokens[index + 1] if index + 1 < len(tokens) else None
    if after is None:
        return False
    if is_word(after, *_NOT_AFTER_STREAM) or is_word(after, *_ENDS):
        # Spark 4.2 reads `FROM stream AS x`, `FROM stream LEFT JOIN y` and `FROM stream WHERE a` as streams of tables
        # called AS, LEFT and WHERE; it goes on trying where the rest of the text makes no sense then.
        raise SqlDiagnostic(
            "Spark reads the word stream here as the keyword STREAM",
            "write the table name in backticks: `stream`",
            tokens[index].start,
            subject="stream",
        )
    if after.token_type is TokenType.L_PAREN:
        return True
    kinds = (TokenType.IDENTIFIER, TokenType.VAR)
    return after.token_type in kinds or str(after.text)[:1].isalpha() or str(after.text)[:1] == "_"


def _delays(tokens: Sequence[Token], index: int) -> bool:
    """Return whether a WATERMARK clause stands here, not an alias of that name."""
    depth = 0
    for at in range(index + 1, min(len(tokens), index + _LONGEST_TIME)):
        kind = tokens[at].token_type
        if kind is TokenType.L_PAREN:
            depth += 1
        elif kind is TokenType.R_PAREN:
            depth -= 1
            if depth < 0:
                return False
        elif depth == 0:
            word = word_of(tokens[at])
            if word == "DELAY" and at + 1 < len(tokens) and is_word(tokens[at + 1], "OF"):
                return True
            if word in _END_WORDS:
                return False
            # The word again and again: a column may have that name, and be looked for once.
            if word == "WATERMARK" and at > index + 1 and word_of(tokens[at - 1]) == "WATERMARK":
                return False
    return False


def _take_stream(tokens: Sequence[Token], index: int, marks: ExtractedClauses) -> int:
    """Remove the STREAM of `STREAM t …` or `STREAM(t) …` and record it; the tokens of the name stay."""
    bracket = tokens[index + 1].token_type is TokenType.L_PAREN
    first = index + 2 if bracket else index + 1
    last = name_end(tokens, first)
    after = last + 1
    closed = not bracket or (after < len(tokens) and tokens[after].token_type is TokenType.R_PAREN)
    if first >= len(tokens) or not names_table(tokens, first) or not closed:
        remedy = "write STREAM t, or STREAM(t)"
        raise SqlDiagnostic("STREAM takes the name of one table", remedy, tokens[index].start, subject="STREAM")
    if is_word(_after(tokens, last), "CHANGES") and not bracket:
        remedy = "read the table itself, or write AS before changes if it is an alias"
        summary = "Spark reads the word CHANGES here as a change feed, which is not supported"
        raise SqlDiagnostic(summary, remedy, tokens[after].start, subject="CHANGES")
    if bracket:
        after += 1
    mark, after = _take_clauses(tokens, after, marks)
    mark = replace(mark, begin=int(tokens[index].start), end=end_of(tokens[after - 1]))
    marks.tokens.extend(tokens[first : last + 1])
    marks.by_start[tokens[last].start] = mark
    if after < len(tokens) and is_word(tokens[after], "TABLESAMPLE"):
        raise SqlDiagnostic("TABLESAMPLE is not allowed on a streaming read", "remove TABLESAMPLE", tokens[after].start)
    if after < len(tokens) and tokens[after].token_type is TokenType.STRING:
        remedy = "write it in backticks"
        raise SqlDiagnostic(
            "an alias is an identifier, not a string", remedy, tokens[after].start, condition="PARSE_SYNTAX_ERROR"
        )
    travels = after < len(tokens) and is_word(tokens[after], "VERSION", "TIMESTAMP", "FOR")
    if travels and is_word(_after(tokens, after), "AS", "VERSION", "TIMESTAMP", "SYSTEM_VERSION", "SYSTEM_TIME"):
        remedy = "write WITH ('startingVersion' = '…') if the table has versions"
        raise SqlDiagnostic(
            "a streaming read cannot time travel", remedy, tokens[after].start, condition="PARSE_SYNTAX_ERROR"
        )
    return after


def _has_options(tokens: Sequence[Token], index: int) -> bool:
    """Return whether a table that is read without STREAM has options."""
    after = name_end(tokens, index) + 1
    return (
        after + 1 < len(tokens)
        and is_word(tokens[after], "WITH")
        and tokens[after + 1].token_type is TokenType.L_PAREN
        and tokens[index].token_type not in (TokenType.L_PAREN, TokenType.R_PAREN)
    )


def _take_table(tokens: Sequence[Token], index: int, marks: ExtractedClauses) -> int:
    """Remove and record the options of `t WITH (…)`; the tokens of the name stay."""
    last = name_end(tokens, index)
    end = closing_bracket(tokens, last + 2)
    options = options_in(tokens[last + 3 : end], marks.diagnostics)
    marks.tokens.extend(tokens[index : last + 1])
    marks.by_start[tokens[last].start] = StreamClauses(
        options=options, source_end=end_of(tokens[end]), end=end_of(tokens[end])
    )
    return end + 1


def _take_clauses(tokens: Sequence[Token], index: int, marks: ExtractedClauses) -> tuple[StreamClauses, int]:
    options: tuple[tuple[str, str], ...] = ()
    name, watermark = "", None
    if index + 1 < len(tokens) and is_word(tokens[index], "WITH") and tokens[index + 1].token_type is TokenType.L_PAREN:
        end = closing_bracket(tokens, index + 1)
        options = options_in(tokens[index + 2 : end], marks.diagnostics)
        index = end + 1
    if index + 2 < len(tokens) and is_word(tokens[index], "IDENTIFIED") and is_word(tokens[index + 1], "BY"):
        name = source_name(tokens[index + 2], _after(tokens, index + 2))
        index += 3
    elif index + 1 < len(tokens) and is_word(tokens[index], "IDENTIFIED BY"):
        name = source_name(tokens[index + 1], _after(tokens, index + 1))
        index += 2
    source_end = end_of(tokens[index - 1])
    if index < len(tokens) and is_word(tokens[index], "WATERMARK") and _delays(tokens, index):
        watermark, index = watermark_at(tokens, index)
    return StreamClauses(True, options, name, watermark, source_end=source_end), index


def _take_hidden(tokens: Sequence[Token], index: int, marks: ExtractedClauses) -> int:
    """Remove the WATERMARK of a subquery or a plain table and record it in the alias, where no position can refer to
    it."""
    start = tokens[index]
    watermark, index = watermark_at(tokens, index)
    end, alias = end_of(tokens[index - 1]), ""
    if index < len(tokens) and tokens[index].token_type is TokenType.ALIAS:
        index += 1
    if index < len(tokens) and _can_be_alias(tokens[index]):
        alias = str(tokens[index].text)
        index += 1
    text = f"{HIDDEN}{len(marks.hidden)}_{alias}"
    marks.hidden.append(StreamClauses(watermark=watermark, end=end))
    for kind, word in ((TokenType.ALIAS, "AS"), (TokenType.IDENTIFIER, text)):
        marks.tokens.append(Token(kind, word, start.line, start.col, start.start, start.end, []))
    return index


def _can_be_alias(token: Token) -> bool:
    if token.token_type is TokenType.IDENTIFIER:
        return True
    return token.token_type is TokenType.VAR and not is_word(token, *_ENDS, *_NOT_AFTER_STREAM)
