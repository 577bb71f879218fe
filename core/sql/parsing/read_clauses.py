"""What stands in the clauses of a streaming read: options, the source's name, the watermark and its delay.

Spark ignores an option that it does not know without a word, so options are checked here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from sqlglot import Token, TokenType, exp

from core.sql.parsing.canonical_text import normalise, sql_of
from core.sql.parsing.parser import parse_expression
from core.sql.tokens.lexer import SqlDiagnostic, is_word

# Written from memory of the documentation of Spark, Delta, Kafka and Iceberg, generous on purpose and not checked name
# by name. Each belongs to one kind of table, which the statement alone does not tell.
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
"""Option by its lower-case form: Spark compares option names without case."""


_TRACKING = frozenset(("schematrackinglocation", "schemalocation", "streamingsourcetrackingid"))
"""Options that a start writes, for the checkpoint of its version (`core.sql.compiler`)."""


def unknown_option(name: str) -> str | None:
    """Return a remedy when no source that we know has an option of this name, else None."""
    lowered = name.lower()
    if lowered in _TRACKING:
        return "leave it out, and write schema_tracking: true in its yml: the place is one of each version's checkpoint"
    if lowered in KNOWN or lowered.startswith("kafka."):
        return None
    close = get_close_matches(lowered, KNOWN, n=1, cutoff=0.6)
    return f"did you mean {KNOWN[close[0]]}?" if close else "Spark would ignore it silently: remove it"


_OPTION_VALUES = (TokenType.STRING, TokenType.NUMBER)


@dataclass(frozen=True, slots=True)
class WatermarkClause:
    """A WATERMARK clause; both texts are canonical."""

    text: str
    """`ts`, or `to_timestamp(k) AS z`."""
    name: str
    """The column that carries event time from here on; empty when an expression has no name."""
    delay: str


def options_in(tokens: Sequence[Token], diagnostics: list[SqlDiagnostic]) -> tuple[tuple[str, str], ...]:
    """Read `'k'='v', a.b = 1, c 2`, the forms that Spark takes; unknown ones are added to `diagnostics`."""
    found: list[tuple[str, str]] = []
    index = 0
    if not tokens:
        raise SqlDiagnostic("WITH () contains no options", "write WITH ('name'='value')", -1)
    while index < len(tokens):
        start, key = index, str(tokens[index].text)
        index += 1
        while index + 1 < len(tokens) and tokens[index].token_type is TokenType.DOT:
            key += f".{tokens[index + 1].text}"
            index += 2
        if index < len(tokens) and tokens[index].token_type is TokenType.EQ:
            index += 1
        if index >= len(tokens) or tokens[index].token_type is TokenType.COMMA:
            raise SqlDiagnostic("this option has no value", "write 'name'='value'", tokens[start].start, subject=key)
        if tokens[index].token_type not in _OPTION_VALUES and not is_word(tokens[index], "TRUE", "FALSE"):
            way = "write 'name'='value'"
            condition = "PARSE_SYNTAX_ERROR"
            raise SqlDiagnostic(
                "an option's value cannot be an identifier", way, tokens[index].start, subject=key, condition=condition
            )
        found.append((key, str(tokens[index].text)))
        index += 1
        if (remedy := unknown_option(key)) is not None:
            summary = f"{key} is not an option of a streaming read"
            diagnostics.append(SqlDiagnostic(summary, remedy, tokens[start].start, subject=key))
        if index < len(tokens):
            if tokens[index].token_type is not TokenType.COMMA:
                raise SqlDiagnostic("the options cannot be parsed", "write 'name'='value', …", tokens[index].start)
            index += 1
    return tuple(found)


def source_name(token: Token, after: Token | None) -> str:
    """Read the name behind IDENTIFIED BY; `after` is what follows it."""
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
    """Read `WATERMARK expression [AS name] DELAY OF INTERVAL …`, the index at WATERMARK."""
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
    """Read the event time; nearly always it is a column's name, which needs no parser."""
    if len(tokens) == 1 and tokens[0].token_type is TokenType.VAR:
        return exp.Column(this=exp.Identifier(this=str(tokens[0].text), quoted=False)), ""
    return parse_expression(tokens)


def _interval(tokens: Sequence[Token], index: int) -> tuple[str, int]:
    """Read `1 MINUTE 30 SECONDS` or `'1:30' MINUTE TO SECOND` as `1 minute 30 second`."""
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
