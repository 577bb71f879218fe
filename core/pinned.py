"""Settings of Spark by what a checkpoint makes of them: kept from the first start, free to change, or unknown."""

# What the offset log of a new checkpoint holds (Spark 4.2.0, run; OffsetSeqMetadata.relevantSQLConfs): on a restart
# the old value wins without a word. The format of that log is its own header, and is not changed either.
PINNED = frozenset(
    f"spark.sql.{name}"
    for name in (
        "function.protobufExtensions.enabled",
        "optimizer.pruneFiltersCanPruneStreamingSubplan",
        "shuffle.partitions",
        "streaming.aggregation.stateFormatVersion",
        "streaming.flatMapGroupsWithState.stateFormatVersion",
        "streaming.join.stateFormatVersion",
        "streaming.multipleWatermarkPolicy",
        "streaming.offsetLog.formatVersion",
        "streaming.queryEvolution.enableSourceEvolution",
        "streaming.stateStore.compression.codec",
        "streaming.stateStore.encodingFormat",
        "streaming.stateStore.providerClass",
        "streaming.stateStore.rocksdb.formatVersion",
        "streaming.stateStore.rocksdb.mergeOperatorVersion",
        "streaming.stateStore.rowChecksum.enabled",
        "streaming.statefulOperator.useStrictDistribution",
    )
)

_RESTARTABLE = (
    "spark.executor.", "spark.driver.", "spark.memory.", "spark.cores.", "spark.task.", "spark.scheduler.",
    "spark.ui.", "spark.eventLog.", "spark.metrics.", "spark.network.", "spark.rpc.", "spark.cleaner.",
    "spark.dynamicAllocation.", "spark.sql.adaptive.", "spark.sql.streaming.metricsEnabled",
    "spark.sql.streaming.stopTimeout", "spark.sql.streaming.minBatchesToRetain",
)  # fmt: skip
"""Beginnings of the names of settings that change how fast or where work is done, and no row."""


def is_pinned(key: str) -> bool:
    """Whether a checkpoint keeps the value of its first start."""
    return key in PINNED


def is_restartable(key: str) -> bool:
    """Whether a restart with another value surely gives the same rows."""
    return key.startswith(_RESTARTABLE)
