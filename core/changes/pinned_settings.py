"""Spark settings by their effect on a checkpoint: pinned by the query's first start, changeable, or unknown."""

import re
from dataclasses import replace

from core.project.model import Pool
from core.project.resources import UNLIMITED

# Settings in the offset log of a new checkpoint (tested on Spark 4.2.0; OffsetSeqMetadata.relevantSQLConfs): on a
# restart, the old value silently wins. The header of the log records its format, which does not change either.
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
"""Prefixes of settings that affect speed or placement, but never which rows are produced."""

_SECRET = re.compile("(?i)secret|password|token|access[.]?key")


def is_pinned(key: str) -> bool:
    """True if a checkpoint retains the value of this setting from its first start."""
    return key in PINNED


def is_restartable(key: str) -> bool:
    """True if a restart with a different value of this setting produces the same rows."""
    return key.startswith(_RESTARTABLE)


def recorded_pool(pool: Pool) -> Pool:
    """Return a pool as the ledger and plans record it: only settings that can affect rows or state, and no secrets.

    How connections are secured, capacity and class are not recorded either. Pools must be compared in this form. Secret
    names follow Spark's default of `spark.redaction.regex` (Spark 4.2.0).
    """
    url = pool.url.partition(";")[0].rstrip("/") if pool.url else pool.url
    conf = tuple(sorted(pair for pair in pool.conf if _is_recorded(pair[0])))
    return replace(pool, url=url, conf=conf, token=None, tls=False, ca="", capacity=UNLIMITED, of_class="")


def pool_at_start(now: Pool, before: Pool | None) -> Pool:
    """Return the pool to record when a statement starts: the current pool with the checkpoint's pinned settings."""
    kept = recorded_pool(now)
    if before is None:
        return kept
    free = (pair for pair in kept.conf if not is_pinned(pair[0]))
    pinned = (pair for pair in before.conf if is_pinned(pair[0]))
    return replace(kept, conf=tuple(sorted((*free, *pinned))))


def _is_recorded(key: str) -> bool:
    return (is_pinned(key) or key.startswith("spark.sql.")) and not _SECRET.search(key)
