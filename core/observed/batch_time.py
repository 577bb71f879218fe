"""Where the time of a batch goes, by what Spark says of its last one."""

from collections.abc import Mapping

_KEYS_BY_PART: Mapping[str, tuple[str, ...]] = {
    "planning": ("queryPlanning",),
    "reading": ("latestOffset", "getBatch"),
    "computing": ("addBatch",),
    "committing": ("walCommit", "commitOffsets", "commitBatch"),
}


def batch_shares(durations_ms: Mapping[str, int]) -> dict[str, float]:
    """Return the share of each part of a batch, between 0 and 1; nothing where nothing is known."""
    sums = {part: sum(durations_ms.get(key, 0) for key in keys) for part, keys in _KEYS_BY_PART.items()}
    total = sum(sums.values())
    return {part: value / total for part, value in sums.items()} if total else {}


def slowest_part(durations_ms: Mapping[str, int]) -> str:
    """Return what a batch spends most of its time on: planning, reading, computing or committing; empty if unknown."""
    shares = batch_shares(durations_ms)
    return max(shares, key=lambda part: shares[part], default="")
