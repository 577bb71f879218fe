"""The options a streaming read may carry; Spark ignores unknown ones without a word, so they are checked here."""

from difflib import get_close_matches

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
    "readChangeFeed readChangeData withEventTimeOrder schemaTrackingLocation schemaLocation "
    "streamingSourceTrackingId allowSourceColumnRename allowSourceColumnDrop allowSourceColumnTypeChange"
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


def unknown_option(name: str) -> str | None:
    """Give a remedy when no source that we know has an option of this name, else None."""
    lowered = name.lower()
    if lowered in KNOWN or lowered.startswith("kafka."):
        return None
    close = get_close_matches(lowered, KNOWN, n=1, cutoff=0.6)
    return f"did you mean {KNOWN[close[0]]}?" if close else "Spark would ignore it silently: remove it"
