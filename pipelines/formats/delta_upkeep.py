"""Upkeep of a Delta table: its log since a checkpoint, what OPTIMIZE and VACUUM did, what is still to be read."""

import os
from collections.abc import Mapping

from core.ports.storage import Upkeep
from pipelines.formats.delta_log import CommitsGone, DeltaLog
from pipelines.formats.delta_log_files import commits_in
from pipelines.formats.delta_offsets import DeltaOffset

LOOKED_AT = 1_000
"""Versions behind the last checkpoint that are looked at."""

MARKED = 10_000
"""Newest versions that are looked at: a table may go on while its files are written into others."""


def since_checkpoint(log: DeltaLog) -> tuple[int, int | None]:
    """Return the versions of a log since its last checkpoint and the bytes of their commits.

    The bytes are None where there are more than LOOKED_AT, or one is gone.
    """
    last = max((version for version, _ in log.checkpoints() if version <= log.head), default=-1)
    if log.head - last > LOOKED_AT:
        return log.head - last, None
    try:
        return log.head - last, sum(os.stat(log.path(version)).st_size for version in range(last + 1, log.head + 1))
    except FileNotFoundError:
        return log.head - last, None


def upkeep_of(log: DeltaLog, operation: str, tag: str) -> Upkeep | None:
    """Return what the newest `OPTIMIZE`, or whole `VACUUM`, with a tag has done; None without one.

    It is looked for by its tag, since a clock that was set back puts it before all that was known then.
    """
    try:
        newest = max(commits_in(log.place), default=-1)
    except FileNotFoundError:
        return None
    for version in range(newest, max(-1, newest - MARKED), -1):
        actions = log.read(version)
        if actions is None:
            return None
        if actions.tag != tag:
            continue
        if actions.operation == operation == "OPTIMIZE":
            return Upkeep(len(actions.removed), len(actions.rewritten))
        if actions.operation == f"{operation} END":
            return Upkeep(int(actions.metrics.get("numDeletedFiles", 0)))
    return None


def unread_before(log: DeltaLog, offset: DeltaOffset, moment: float, *, takes_changes: bool) -> int | None:
    """Return the first version that a query has not read and of which a file was replaced before a moment.

    None where there is none, and of another table. Raises CommitsGone where the log does not say what is to be read.
    """
    if log.id != offset.table_id:
        return None
    paths: dict[str, int] = {}
    if offset.in_snapshot:
        paths |= {file.path: offset.version for file in log.files_at(offset.version)[offset.files_read :]}
    for commit in log.since(offset.version + int(offset.in_snapshot)):
        if takes_changes and commit.took_out and commit.at < moment:
            # Its changes lie in files of their own, which go with their time.
            return commit.version
        if commit.files:
            first = offset.files_read if commit.version == offset.version else 0
            paths |= {file.path: commit.version for file in log.added_in(commit.version)[first:]}
    return _first_replaced(log, paths, offset.version, moment)


def _first_replaced(log: DeltaLog, paths: Mapping[str, int], begin: int, moment: float) -> int | None:
    """Return the first version, by file, of which one was taken out by a commit before a moment."""
    found: list[int] = []
    for version in range(max(0, begin), log.head + 1):
        actions = log.read(version)
        if actions is None:
            raise CommitsGone(f"version {version} of {log.folder} is no longer in its log")
        if actions.at is not None and actions.at < moment:
            found += [paths[path] for path in actions.removed if path in paths]
    return min(found, default=None)
