"""Removes Spark's streaming clauses from the tokens before sqlglot parses them.

Each removed clause is recorded under the offset of the table name to which it belongs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any

from sqlglot import Token, TokenType, exp

from core.sql.parsing.canonical_text import normalise, sql_of
from core.sql.parsing.parser import parse_expression
from core.sql.tokens.lexer import BRACKETS, SqlDiagnostic, closing_bracket, end_of, is_word, key_values, word_of
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
"""Prefix of an alias that refers to the watermark of a source other than `STREAM t`.

It is followed by the watermark's index in `ExtractedClauses.hidden`.
"""
_NOT_AFTER_STREAM_WORDS = """
    AS JOIN LEFT RIGHT FULL INNER CROSS NATURAL SEMI ANTI ON USING
"""
_NOT_AFTER_STREAM = tuple(_NOT_AFTER_STREAM_WORDS.split())
_ENDS_WORDS = """
    WHERE GROUP HAVING ORDER LIMIT OFFSET WINDOW QUALIFY UNION EXCEPT INTERSECT MINUS LATERAL TABLESAMPLE PIVOT
    UNPIVOT SELECT FROM OUTER
"""
_ENDS = (*_ENDS_WORDS.split(), "GROUP BY", "ORDER BY", "SORT BY", "CLUSTER BY", "DISTRIBUTE BY")
_END_WORDS = frozenset(_ENDS)
_TURNING = _END_WORDS - {"LATERAL", "OUTER", "TABLESAMPLE", "PIVOT", "UNPIVOT"}
"""Keywords that end a FROM clause."""
_IN_FROM = _TURNING | {"ON", "USING", "LATERAL", "WITH", "VALUES", "PIVOT", "UNPIVOT"}
"""Keywords in FROM after which tokens have to be read differently."""
_NAMING = ("from", "on")
"""Clauses in which every token must be examined."""
_TURNS = frozenset((TokenType.SELECT, TokenType.TABLE, TokenType.FROM, TokenType.JOIN, TokenType.COMMA, *BRACKETS))
"""Token types that are examined in every clause; outside the clauses in `_NAMING`, other tokens are only copied."""
_LONGEST_TIME = 100


@dataclass(frozen=True, slots=True)
class WatermarkClause:
    """A WATERMARK clause, with its expression and its delay in canonical form."""

    text: str
    """The expression, such as `ts` or `to_timestamp(k) AS z`."""
    name: str
    """The resulting event-time column; empty if the expression has no name."""
    delay: str


@dataclass(frozen=True, slots=True)
class StreamClauses:
    """The streaming clauses of one table name or subquery."""

    streaming: bool = False
    options: tuple[tuple[str, str], ...] = ()
    source_name: str = ""
    watermark: WatermarkClause | None = None
    begin: int = -1
    """Offset of the keyword STREAM; -1 if it is not written."""
    source_end: int = 0
    """Offset after the table with its options and source name."""
    end: int = 0
    """Offset after the last of these clauses, where an alias would follow."""


@dataclass(slots=True)
class ExtractedClauses:
    """The tokens that remain for sqlglot, and the clauses that were removed from them."""

    tokens: list[Token] = field(default_factory=list)
    by_start: dict[int, StreamClauses] = field(default_factory=dict)
    """Clauses by the offset of the last part of the table name to which they belong."""
    hidden: list[StreamClauses] = field(default_factory=list)
    diagnostics: list[SqlDiagnostic] = field(default_factory=list)
    """Mistakes that do not prevent parsing, such as unknown options."""
    connectors: list[tuple[int, bool]] = field(default_factory=list)
    """Offset of each FROM, JOIN or comma in FROM, and whether CROSS precedes it; sqlglot reads commas as CROSS JOIN."""
    named: list[int] = field(default_factory=list)
    """Offsets of names where a table is expected, each of which must be resolved, however sqlglot parses it."""
    with_on: set[int] = field(default_factory=set)
    """Offsets of connectors that are followed by ON, because sqlglot itself adds ON TRUE after LATERAL."""


@dataclass(slots=True)
class _Level:
    """The parser state at one level of brackets: its current clause, and whether a table may come next."""

    clause: str = ""
    selects: bool = False
    expects: bool = False
    joins: bool = False
    """Whether this level is a pair of brackets in FROM in which no query has begun yet."""
    rows: bool = False
    """Whether commas separate rows of VALUES."""
    viewed: bool = False
    """Whether a LATERAL VIEW has followed the sources, so that no join may follow."""
    pivoted: bool = False
    """Whether a PIVOT follows the last source."""
    connector: int = -1
    """Offset of the last FROM, JOIN or comma in FROM at this level."""


def extract_stream_clauses(tokens: Sequence[Token]) -> ExtractedClauses:
    """Remove every STREAM, WITH option, IDENTIFIED BY and WATERMARK; raises SqlDiagnostic for a malformed clause."""
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
    kind, before = tokens[index].token_type, tokens[index - 1] if index else None
    level.expects = False
    if kind is TokenType.SELECT:
        level.clause, level.selects, level.joins, level.viewed = "select", True, False, False
    elif kind is TokenType.FROM:
        # FROM of IS DISTINCT FROM, EXTRACT, TRIM and SUBSTRING begins no clause.
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
    """True if STREAM at `index` is a keyword; raises SqlDiagnostic where Spark misreads a table named stream."""
    after = tokens[index + 1] if index + 1 < len(tokens) else None
    if after is None:
        return False
    if is_word(after, *_NOT_AFTER_STREAM) or is_word(after, *_ENDS):
        # Spark 4.2 reads `FROM stream AS x`, `FROM stream LEFT JOIN y` and `FROM stream WHERE a` as streams of tables
        # called AS, LEFT and WHERE; it tries another reading only if the rest does not parse.
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
    """True if the token WATERMARK begins a clause, rather than being an alias."""
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
            # Repeated WATERMARK: a column may have that name, so search only once.
            if word == "WATERMARK" and at > index + 1 and word_of(tokens[at - 1]) == "WATERMARK":
                return False
    return False


def _take_stream(tokens: Sequence[Token], index: int, marks: ExtractedClauses) -> int:
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
    after = name_end(tokens, index) + 1
    return (
        after + 1 < len(tokens)
        and is_word(tokens[after], "WITH")
        and tokens[after + 1].token_type is TokenType.L_PAREN
        and tokens[index].token_type not in (TokenType.L_PAREN, TokenType.R_PAREN)
    )


def _take_table(tokens: Sequence[Token], index: int, marks: ExtractedClauses) -> int:
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
    """Replace the WATERMARK of a subquery, or of a table without STREAM, with an alias that refers to the watermark.

    Returns the index of the token after the clause and after the alias that follows it, if any.
    """
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


# Collected from the documentation of Spark, Delta, Kafka and Iceberg; deliberately generous and not verified one by
# one. Each option applies to one kind of table, and a statement does not show which kind a table is.
_FILES = (
    "maxFilesPerTrigger maxBytesPerTrigger maxCachedFiles latestFirst maxFileAge fileNameOnly cleanSource "
    "sourceArchiveDir discardCachedInputRatio allowOverwrites pathGlobFilter recursiveFileLookup basePath "
    "modifiedAfter modifiedBefore ignoreMissingFiles ignoreCorruptFiles mergeSchema datetimeRebaseMode "
    "int96RebaseMode mode columnNameOfCorruptRecord dateFormat timestampFormat timestampNTZFormat multiLine "
    "encoding lineSep locale timeZone samplingRatio primitivesAsString prefersDecimal allowComments "
    "allowUnquotedFieldNames allowSingleQuotes allowNumericLeadingZeros allowBackslashEscapingAnyCharacter "
    "allowUnquotedControlChars allowNonNumericNumbers dropFieldIfAllNull singleVariantColumn sep delimiter quote "
    "escape comment header inferSchema enforceSchema ignoreLeadingWhiteSpace ignoreTrailingWhiteSpace nullValue "
    "emptyValue nanValue positiveInf negativeInf maxColumns maxCharsPerColumn unescapedQuoteHandling "
    "charToEscapeQuoteEscaping preferDate wholetext avroSchema ignoreExtension positionalFieldMatching rowTag"
)
_DELTA = (
    "startingVersion startingTimestamp ignoreChanges ignoreDeletes skipChangeCommits excludeRegex failOnDataLoss "
    "readChangeFeed readChangeData withEventTimeOrder allowSourceColumnRename allowSourceColumnDrop "
    "allowSourceColumnTypeChange"
)
_KAFKA = (
    "assign subscribe subscribePattern startingOffsets startingOffsetsByTimestamp startingTimestamp endingOffsets "
    "endingOffsetsByTimestamp endingTimestamp startingOffsetsByTimestampStrategy maxOffsetsPerTrigger "
    "minOffsetsPerTrigger maxTriggerDelay minPartitions maxRecordsPerPartition groupIdPrefix includeHeaders "
    "fetchOffset.numRetries fetchOffset.retryIntervalMs kafkaConsumer.pollTimeoutMs"
)
_OTHERS = (
    "rowsPerSecond rowsPerBatch rampUpTime numPartitions advanceMillisPerBatch includeTimestamp host port path "
    "batchId operatorId storeName joinSide snapshotStartBatchId snapshotPartitionId readChangeFeedStart "
    "changeStartBatchId changeEndBatchId streaming-skip-overwrite-snapshots streaming-skip-delete-snapshots "
    "stream-from-timestamp streaming-max-files-per-micro-batch streaming-max-rows-per-micro-batch"
)
KNOWN = {name.lower(): name for name in f"{_FILES} {_DELTA} {_KAFKA} {_OTHERS}".split()}
"""Known options by name in lower case; Spark ignores the case of option names."""


_TRACKING = frozenset(("schematrackinglocation", "schemalocation", "streamingsourcetrackingid"))
"""Options that Headgate itself sets for the checkpoint of a version (`core.sql.compiler`)."""


def unknown_option(name: str) -> str | None:
    """Return the remedy for an option that no known source accepts; None for a known option.

    An option that only Headgate may set also has a remedy.
    """
    lowered = name.lower()
    if lowered in _TRACKING:
        return (
            "remove it, and write schema_tracking: true in the yml: the location belongs to each version's checkpoint"
        )
    if lowered in KNOWN or lowered.startswith("kafka."):
        return None
    close = get_close_matches(lowered, KNOWN, n=1, cutoff=0.6)
    return f"did you mean {KNOWN[close[0]]}?" if close else "Spark would ignore it silently: remove it"


_OPTION_VALUES = (TokenType.STRING, TokenType.NUMBER)


def options_in(tokens: Sequence[Token], diagnostics: list[SqlDiagnostic]) -> tuple[tuple[str, str], ...]:
    """Parse options as Spark does, such as `'k'='v', a.b = 1, c 2`; add a diagnostic for each unknown option.

    Raises SqlDiagnostic if there are no options, or if a value is an identifier.
    """
    found: list[tuple[str, str]] = []
    if not tokens:
        raise SqlDiagnostic("WITH () contains no options", "write WITH ('name'='value')", -1)
    for token, key, value in key_values(tokens, "option"):
        if value.token_type not in _OPTION_VALUES and not is_word(value, "TRUE", "FALSE"):
            summary, condition = "an option's value cannot be an identifier", "PARSE_SYNTAX_ERROR"
            raise SqlDiagnostic(summary, "write 'name'='value'", value.start, subject=key, condition=condition)
        found.append((key, str(value.text)))
        if (remedy := unknown_option(key)) is not None:
            diagnostics.append(
                SqlDiagnostic(f"{key} is not an option of a streaming read", remedy, token.start, subject=key)
            )
    return tuple(found)


def source_name(token: Token, after: Token | None) -> str:
    """Return the name after IDENTIFIED BY; raises SqlDiagnostic unless it is a single identifier.

    `after` is the token that follows the name.
    """
    if after is not None and after.token_type is TokenType.DOT:
        summary = "a source name has one part"
        raise SqlDiagnostic(summary, "write IDENTIFIED BY name", token.start, condition="PARSE_SYNTAX_ERROR")
    if token.token_type is TokenType.STRING:
        raise SqlDiagnostic(
            "a source name is an identifier, not a string",
            "write IDENTIFIED BY name",
            token.start,
            subject=str(token.text),
            condition="PARSE_SYNTAX_ERROR",
        )
    return str(token.text)


def watermark_at(tokens: Sequence[Token], index: int) -> tuple[WatermarkClause, int]:
    """Parse the clause `WATERMARK expression [AS name] DELAY OF INTERVAL …` at `index`.

    Returns the clause and the index of the token after it. Raises SqlDiagnostic for a malformed clause.
    """
    start = index
    index += 1
    depth, first = 0, index
    while depth or not (is_word(tokens[index], "DELAY") and is_word(tokens[index + 1], "OF")):
        depth += (tokens[index].token_type is TokenType.L_PAREN) - (tokens[index].token_type is TokenType.R_PAREN)
        index += 1
    expression = tokens[first:index]
    index += 2
    if not expression or index >= len(tokens) or not is_word(tokens[index], "INTERVAL"):
        raise SqlDiagnostic(
            "this WATERMARK cannot be parsed",
            "write WATERMARK column DELAY OF INTERVAL 1 MINUTE",
            tokens[start].start,
            subject="WATERMARK",
        )
    delay, index = _interval(tokens, index + 1)
    if not delay:
        raise SqlDiagnostic(
            "this delay cannot be parsed", "write DELAY OF INTERVAL 1 MINUTE", tokens[start].start, subject="WATERMARK"
        )
    tree, name = _column_or_expression(expression)
    if tree.find(exp.Query) is not None:
        remedy = "write a column of the table, or an expression over its columns"
        raise SqlDiagnostic("a query is not allowed in WATERMARK", remedy, tokens[start].start, subject="WATERMARK")
    text = sql_of(normalise(tree))
    if isinstance(tree, exp.Column) and not name:
        name = tree.name
    elif name:
        text = f"{text} AS {name}"
    return WatermarkClause(text, name, delay), index


def _column_or_expression(tokens: Sequence[Token]) -> tuple[Any, str]:
    # A plain column name, the usual case, needs no parser.
    if len(tokens) == 1 and tokens[0].token_type is TokenType.VAR:
        return exp.Column(this=exp.Identifier(this=str(tokens[0].text), quoted=False)), ""
    return parse_expression(tokens)


def _interval(tokens: Sequence[Token], index: int) -> tuple[str, int]:
    """Return an interval as a string such as `1 minute 30 second`, and the index after the interval."""
    words: list[str] = []
    while index + 1 < len(tokens):
        sign = "-" if tokens[index].token_type is TokenType.DASH else ""
        value = index + 1 if sign else index
        if tokens[value].token_type not in (TokenType.NUMBER, TokenType.STRING) or value + 1 >= len(tokens):
            break
        words += [sign + str(tokens[value].text).strip(), str(tokens[value + 1].text).lower().rstrip("s")]
        index = value + 2
        if index + 1 < len(tokens) and is_word(tokens[index], "TO"):
            words += ["to", str(tokens[index + 1].text).lower().rstrip("s")]
            index += 2
    return " ".join(words), index
