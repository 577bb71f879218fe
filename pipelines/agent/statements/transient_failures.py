"""Decides which statements ended for a transient reason and are restarted automatically.

The reasons are: the writing process in the pool died; another program changed the table during a batch, which was
therefore not committed and succeeds when repeated (Delta 4.4.0); a database that the batch reads was restarted; a
message has a new schema, which the statement learns at its next start; a disk was full. For a full disk, Spark's error
names only the table (Spark 4.2.0), so the folder, its free space and the next step are added to the error.
"""

from dataclasses import dataclass, field

from core.model.errors import SparkFailure
from core.model.names import TableName, query_name
from core.observed.versions import Deployment
from core.ports.spark import ReportedQuery
from core.sql.avro_schemas import NEW_SCHEMA
from core.text.sentence import Sentence
from core.text.wording import short_size
from pipelines.spark_connect.error_translation import BROKERS_LOST, NO_SPACE
from pipelines.storage.file_system import disk_space

PAUSES_S, WITHIN_S = (0.0, 15.0, 60.0, 120.0), 600.0
"""Pauses before the automatic starts of a statement within `WITHIN_S`, all in seconds.

A pool that lacks CPU fails repeatedly: Spark 4.2.0 gives a writer's process 10 s to connect (PythonWorkerFactory).
"""
STARTS = len(PAUSES_S)

CLASSES = {
    SparkFailure.WORKER_DIED: "HEADGATE_WORKER_LOST",
    SparkFailure.WORKER_LATE: "HEADGATE_WORKER_LOST",
    SparkFailure.WRITTEN_MEANWHILE: "HEADGATE_WRITTEN_MEANWHILE",
    SparkFailure.DATABASE_LOST: "HEADGATE_DATABASE_LOST",
    SparkFailure.BROKERS_LOST: BROKERS_LOST,
    SparkFailure.NEW_SCHEMA: NEW_SCHEMA,
}
"""Failures after which a statement is restarted automatically, with the error class of the restart's event."""


@dataclass(slots=True)
class TransientFailures:
    """Counts and limits the automatic restarts of each statement, by monotonic time in seconds."""

    _ended: dict[tuple[TableName, int], list[float]] = field(default_factory=dict)

    _last: dict[tuple[TableName, int], ReportedQuery] = field(default_factory=dict)
    """The last query that ended for a transient reason, by version."""

    def count_restart(self, key: tuple[TableName, int], over: ReportedQuery, now: float) -> str | None:
        """Count an automatic restart and return the error class of its event; None if there must be no restart."""
        if over.failure not in CLASSES or not self.is_left(key, now):
            return None
        self.count(key, now)
        self._last[key] = over
        return CLASSES[over.failure]

    def why_not_yet(self, key: tuple[TableName, int], run_id: str, now: float) -> tuple[str, Sentence] | None:
        """Return why a statement ended and is not restarted yet, with the error class; None once its pause is over.

        The text is the same during the whole pause. The pause applies only to the query run that ended: a later run was
        stopped, or was lost with its session.
        """
        ended, last = self._ended.get(key, ()), self._last.get(key)
        if last is None or last.failure is None or last.run_id != run_id or not ended:
            return None
        if now - ended[-1] >= (pause := PAUSES_S[len(ended) - 1]):
            return None
        times = f"it ended {len(ended)} times in {WITHIN_S / 60:g} minutes"
        why = f"{last.error.rstrip('.')}; " if last.error else ""
        return CLASSES[last.failure], Sentence(f"{why}{times}, and the next start follows after {pause:g} s")

    def is_left(self, key: tuple[TableName, int], now: float) -> bool:
        """True if the statement may be restarted automatically once more."""
        return sum(now - at < WITHIN_S for at in self._ended.get(key, ())) < STARTS

    def count(self, key: tuple[TableName, int], now: float) -> None:
        """Count an automatic restart."""
        self._ended[key] = [*(at for at in self._ended.get(key, ()) if now - at < WITHIN_S), now]


DISK_FULL = "HEADGATE_DISK_FULL"

SCARCE_B = 100_000_000
"""Free bytes below which a disk counts as full after a failed write, provided that less than a tenth of it is free.

The failed task's files are deleted by then, so that some space is free again.
"""

_WRITE_FAILED = "TASK_WRITE_FAILED"


def with_disk(deployment: Deployment, error_class: str, error: str) -> tuple[str, str]:
    """Return the error class and message to record. For a full disk, the message names the folder and a remedy."""
    return disk_error(deployment, error_class, _goes_on(deployment), _restart(deployment)) or (error_class, error)


def disk_error(deployment: Deployment, error_class: str, goes_on: str, restart: str = "") -> tuple[str, str] | None:
    """Return the class and message of an error that is due to a full disk, or None for any other error.

    `goes_on` describes how the statement continues once there is space. If there is space again already, `restart` is
    used instead, unless it is empty.
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
    """True if a statement ended on a full disk and all its disks have space again."""
    if deployment.error_class != DISK_FULL:
        return False
    return all(free >= min(2 * SCARCE_B, total // 5) for free, total, _ in _spaces(deployment))


def _spaces(deployment: Deployment) -> list[tuple[int, int, str]]:
    found = [(*disk_space(folder), folder) for folder in (deployment.folder, deployment.checkpoint) if folder]
    return [(free, total, folder) for free, total, folder in found if free is not None and total is not None]


def _goes_on(deployment: Deployment) -> str:
    if not deployment.active:
        return _restart(deployment)
    often = f"{STARTS} times in {WITHIN_S / 60:g} minutes at most"
    return f"it is restarted automatically, {often}, or by {_restart(deployment)}"


def _restart(deployment: Deployment) -> str:
    name = deployment.table if deployment.active else query_name(deployment.table, deployment.version)
    return f"headgate restart {name}"
