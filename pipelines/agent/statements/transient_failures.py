"""Statements that ended by what the next start may not meet, and are started again by themselves.

The process in the pool that writes has died, somebody else has changed the table that a batch was being written to (of
such a batch nothing was committed, and its next try reads the table as it is then; Delta 4.4.0), or a disk was full:
Spark names only the table where one of its tasks fails (4.2.0), so the error is completed with the folder, what is free
there, and what goes on once there is more.
"""

from dataclasses import dataclass, field

from core.model.names import TableName, query_name
from core.observed.versions import Deployment
from core.ports.spark import ReportedQuery
from core.text.wording import short_size
from pipelines.spark_connect.error_translation import NO_SPACE
from pipelines.storage.file_system import disk_space

PAUSES_S, WITHIN_S = (0.0, 15.0, 60.0, 120.0), 600.0
"""Pause before each automatic start within this time; a pool that is short of CPU fails one after the other.

Spark gives the process of a writer 10 s to connect back (PythonWorkerFactory, 4.2.0).
"""
STARTS = len(PAUSES_S)

_DIED = ("Python worker exited unexpectedly", "Python worker failed to connect back")
"""What Spark says where the process that runs a writer of keyed tables is gone (4.2.0)."""
_CHANGED = ("DELTA_CONCURRENT_", "DELTA_METADATA_CHANGED", "DELTA_PROTOCOL_CHANGED")
"""How the classes begin of what Delta refuses at a commit over files or columns that are others meanwhile (4.4.0)."""

WORKER_LOST, WRITTEN_MEANWHILE = "HEADGATE_WORKER_LOST", "HEADGATE_WRITTEN_MEANWHILE"


@dataclass(slots=True)
class TransientFailures:
    """When each statement has ended so lately, monotonic seconds."""

    _ended: dict[tuple[TableName, int], list[float]] = field(default_factory=dict)

    _run: dict[tuple[TableName, int], str] = field(default_factory=dict)
    """Spark's run id of the query that has ended last."""

    def again(self, key: tuple[TableName, int], over: ReportedQuery, now: float) -> str:
        """Return by what class a statement that ended is to be started again; empty where it has failed."""
        error_class, error = over.error_class, over.error
        died = any(words in error for words in _DIED)
        if not died and not error_class.startswith(_CHANGED):
            return ""
        if not self.is_left(key, now):
            return ""
        self.count(key, now)
        self._run[key] = over.run_id
        return WORKER_LOST if died else WRITTEN_MEANWHILE

    def pause(self, key: tuple[TableName, int], run_id: str, now: float) -> str:
        """Return why a statement is not started again yet; empty once its pause is over. Changes with an end alone.

        A query of a later run has not ended so: it was stopped, or lost with its session.
        """
        ended = self._ended.get(key, ())
        if not ended or self._run.get(key) != run_id or now - ended[-1] >= (pause := PAUSES_S[len(ended) - 1]):
            return ""
        return f"it ended {len(ended)} times in {WITHIN_S / 60:g} minutes: the next start follows after {pause:g} s"

    def is_left(self, key: tuple[TableName, int], now: float) -> bool:
        """Return whether a statement may be started again by itself."""
        return sum(now - at < WITHIN_S for at in self._ended.get(key, ())) < STARTS

    def count(self, key: tuple[TableName, int], now: float) -> None:
        """Count one that was, or is about to be."""
        self._ended[key] = [*(at for at in self._ended.get(key, ()) if now - at < WITHIN_S), now]


DISK_FULL = "HEADGATE_DISK_FULL"

SCARCE_B = 100_000_000
"""Where less is free, or a tenth, a disk counts as full if a write fails: what its task wrote is deleted by then."""

_WRITE_FAILED = "TASK_WRITE_FAILED"


def with_disk(deployment: Deployment, error_class: str, error: str) -> tuple[str, str]:
    """Return class and sentence of an error; of one over a full disk those that name the folder and the remedy."""
    return disk_error(deployment, error_class, _goes_on(deployment), _restart(deployment)) or (error_class, error)


def disk_error(deployment: Deployment, error_class: str, goes_on: str, restart: str = "") -> tuple[str, str] | None:
    """Return class and sentence of an error over a full disk; None for any other.

    `goes_on` is how what has failed goes on once there is space, and `restart` how where there is space already.
    """
    if error_class not in (NO_SPACE, _WRITE_FAILED) or not (spaces := _spaces(deployment)):
        return None
    free, total, folder = min(spaces)
    if free < min(SCARCE_B, total // 10):
        known = f"the disk under {folder} is full: {short_size(free)} free there"
        likely = f"a write failed, and there are only {short_size(free)} free under {folder}"
        words = known if error_class == NO_SPACE else likely
        return DISK_FULL, f"{words}; free space there, then {goes_on}"
    if error_class == _WRITE_FAILED:
        return None
    now = f"{short_size(free)} are free now under {folder}, so look at where the pool keeps temporary files as well"
    return error_class, f"a disk that the pool writes to was full: {now}; then {restart or goes_on}"


def has_space(deployment: Deployment) -> bool:
    """Return whether a statement has ended on a full disk, and there is space again."""
    if deployment.error_class != DISK_FULL:
        return False
    return all(free >= min(2 * SCARCE_B, total // 5) for free, total, _ in _spaces(deployment))


def _spaces(deployment: Deployment) -> list[tuple[int, int, str]]:
    """Return what is free where a statement writes, of how much, and the folder."""
    found = [(*disk_space(folder), folder) for folder in (deployment.folder, deployment.checkpoint) if folder]
    return [(free, total, folder) for free, total, folder in found if free is not None and total is not None]


def _goes_on(deployment: Deployment) -> str:
    if not deployment.active:
        return _restart(deployment)
    often = f"{STARTS} times in {WITHIN_S / 60:g} minutes at most"
    return f"it is started again by itself, {often}, or by {_restart(deployment)}"


def _restart(deployment: Deployment) -> str:
    name = deployment.table if deployment.active else query_name(deployment.table, deployment.version)
    return f"headgate restart {name}"
