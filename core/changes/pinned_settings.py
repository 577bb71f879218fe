"""Spark settings by their effect on a checkpoint: pinned at its first start, free to change, or unknown."""

import re
from dataclasses import replace

from core.project.model import Pool

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
"""Prefixes of settings that affect speed or where work runs, but never the rows."""

_SECRET = re.compile("(?i)secret|password|token|access[.]?key")


def is_pinned(key: str) -> bool:
    """Return whether a checkpoint keeps the value of its first start."""
    return key in PINNED


def is_restartable(key: str) -> bool:
    """Return whether a restart with another value produces the same rows."""
    return key.startswith(_RESTARTABLE)


def recorded_pool(pool: Pool) -> Pool:
    """Return a pool as ledger and plans record it: only settings that can change a row or a state, and no secrets.

    Compare pools only in this form. A URL may contain a token (`sc://host:port/;token=T`, guide of Spark Connect);
    secret names follow Spark's default of `spark.redaction.regex` (4.2.0).
    """
    url = pool.url.partition(";")[0].rstrip("/") if pool.url else pool.url
    return replace(pool, url=url, conf=tuple(sorted(pair for pair in pool.conf if _is_recorded(pair[0]))))


def pool_at_start(now: Pool, before: Pool | None) -> Pool:
    """Return the pool to record at a start: the current one, with the pinned settings of the checkpoint."""
    kept = recorded_pool(now)
    if before is None:
        return kept
    free = (pair for pair in kept.conf if not is_pinned(pair[0]))
    pinned = (pair for pair in before.conf if is_pinned(pair[0]))
    return replace(kept, conf=tuple(sorted((*free, *pinned))))


def _is_recorded(key: str) -> bool:
    return (is_pinned(key) or key.startswith("spark.sql.")) and not _SECRET.search(key)
