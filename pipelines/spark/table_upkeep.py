"""OPTIMIZE and VACUUM, each in a session of its own: its settings are nobody else's, and by its end all of it ends."""

import threading
import uuid
from contextlib import suppress

from core.model.errors import HeadgateError
from pipelines.spark.session import Session, spark_errors

_CONF = {
    # By default RETAIN is ignored unless it is 0, and nothing says so (Delta 4.4.0).
    "spark.databricks.delta.vacuum.retentionWindowIgnore.enabled": "false",
    # What a pool has for its streams would hold the large files small as well (Delta 4.4.0).
    "spark.sql.files.maxRecordsPerFile": "0",
}

_MARK = "spark.databricks.delta.commitInfo.userMetadata"


class SparkUpkeep:
    """Implements `core.ports.spark.TableUpkeep`."""

    def __init__(self, session: Session) -> None:
        """Open nothing yet; `session` is one of the pool's."""
        self._session = session
        self._open: dict[str, Session] = {}
        self._lock = threading.Lock()

    def optimize(self, table: str, tag: str) -> None:
        """Write the small files of a table into large ones."""
        self._run(f"OPTIMIZE {_named(table)}", tag)

    def vacuum(self, table: str, retain_h: str, tag: str) -> None:
        """Delete the files that only versions from before so many hours hold; empty is as the table says."""
        self._run(f"VACUUM {_named(table)}" + (f" RETAIN {int(retain_h)} HOURS" if retain_h else ""), tag)

    def end(self, tag: str) -> None:
        """End what runs under a tag, on the server too; nothing where there is none."""
        with self._lock:
            session = self._open.get(tag)
        if session is not None:
            with spark_errors():
                session.spark.interruptAll()

    def _run(self, sql: str, tag: str) -> None:
        # By this a table's log says whose work a commit was, whatever the clock says.
        session = self._session.beside(str(uuid.uuid4()), conf={**_CONF, _MARK: tag})
        with self._lock:
            self._open[tag] = session
        try:
            session.attach()
            with spark_errors():
                session.spark.sql(sql).collect()
        finally:
            with self._lock:
                self._open.pop(tag, None)
            # A server that is gone has nothing left to release.
            with suppress(HeadgateError):
                session.release()


def _named(table: str) -> str:
    return f"delta.{_quoted(table)}" if table.startswith("/") else _quoted(table)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
