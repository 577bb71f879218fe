"""Reads the batches of a statement from the logs of its checkpoint and table, as values that can be traced.

An input is the path of a file or, for a Delta table, its folder and version, such as `/data/tables/orders__v1/delta@7`.
Inputs in topics have names of their own (`core.bench.topic_inputs`).
"""

import json
import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from core.bench.batch_trace import Batch
from core.bench.request import BenchStatement
from core.bench.topic_inputs import TopicReading
from core.model.table_formats import table_format
from pipelines.bench.topic_load import TopicLoad
from pipelines.storage.delta_log import CommitsGone, DeltaLog, NoDeltaLog
from pipelines.storage.delta_readers import offset_of
from pipelines.storage.file_sources import TABLE_LOG_FOLDER
from pipelines.storage.file_stream_logs import batch_files, local_path, newest_batch, read_source_log, table_log_batches
from pipelines.storage.file_system import read_json
from pipelines.storage.kafka_offsets import parsed_offsets


@dataclass(frozen=True, slots=True)
class _Written:
    inputs: frozenset[str]
    at: float


@dataclass(slots=True)
class BatchReader:
    """The batches of one statement. Each `refresh` reads only what is new."""

    statement: BenchStatement
    topics: TopicLoad = field(default_factory=lambda: TopicLoad(""))
    batches: list[Batch] = field(default_factory=list)
    """Batches whose rows are visible, in ascending order."""
    _written: dict[int, _Written] = field(default_factory=dict)
    _upto: int = -1
    _seen: int = 0
    """Number of entries of the table's log up to `_upto`."""
    _log: DeltaLog | None = None
    _versions: int = 0
    _query: str = ""
    _offsets: list[str] = field(default_factory=list)
    """Offsets of the newest batch in `batches`, one line for each source."""
    _readings: dict[int, TopicReading] = field(default_factory=dict)
    """For each source over topics, by its ordinal."""

    def refresh(self) -> bool:
        """Read new batches; return True if there are any."""
        newest = newest_batch(f"{self.statement.checkpoint}/commits")
        first = self.batches[-1].number + 1 if self.batches else 0
        if newest is None or newest < first:
            return False
        self._read_written()
        found = False
        for number in range(first, newest + 1):
            with suppress(FileNotFoundError):
                if (batch := self._batch(number)) is None:
                    break
                self.batches.append(batch)
                found = True
        return found

    def _batch(self, number: int) -> Batch | None:
        """Return a batch; None if it has read messages of a batch upstream that still runs."""
        folder = self.statement.checkpoint
        planned, committed = f"{folder}/offsets/{number}", f"{folder}/commits/{number}"
        lines = Path(planned).read_text("utf-8").split("\n")
        started_at, committed_at = os.stat(planned).st_mtime, os.stat(committed).st_mtime
        offsets = lines[2 : 2 + len(self.statement.sources)]
        if self._reads_unknown(offsets):
            return None
        before = self._offsets or ["-"] * len(offsets)
        read = tuple(
            self._read(ordinal, old, new) for ordinal, (old, new) in enumerate(zip(before, offsets, strict=True))
        )
        self._offsets = offsets
        written = self._written.pop(number, None)
        if table_format(self.statement.format).topics:
            sent = self.topics.wrote(self.statement.place, number, committed_at)
            written = _Written(frozenset([sent[0]]), sent[1]) if sent is not None else None
        return Batch(
            number,
            started_at,
            visible_at=written.at if written is not None and written.inputs else committed_at,
            read=read,
            written=written.inputs if written is not None else frozenset(),
            watermark_ms=int(json.loads(lines[1]).get("batchWatermarkMs") or 0),
        )

    def _reads_unknown(self, offsets: list[str]) -> bool:
        over_topics = [table_format(format).topics for _, _, format in self.statement.sources]
        return any(
            topics and self.topics.inputs.unknown(parsed_offsets(line) or {})
            for topics, line in zip(over_topics, offsets, strict=False)
        )

    def _read(self, ordinal: int, old: str, new: str) -> frozenset[str]:
        """Return the inputs of a source between two offsets."""
        if old == new or not new.startswith("{"):
            return frozenset()
        _, place, format = self.statement.sources[ordinal]
        if table_format(format).topics:
            reading = self._readings.setdefault(ordinal, TopicReading(self.topics.inputs))
            return reading.read(parsed_offsets(new) or {})
        if (end := offset_of(new)) is not None:
            begin = offset_of(old)
            # A version whose files are read in several batches counts as read by the last of them.
            first = 0 if begin is None else _next_version(begin.version, begin.index, begin.in_snapshot)
            return frozenset(
                f"{place}@{each}" for each in range(first, _next_version(end.version, end.index, end.in_snapshot))
            )
        after = int(json.loads(old)["logOffset"]) if old.startswith("{") else -1
        log = f"{self.statement.checkpoint}/sources/{ordinal}"
        entries = read_source_log(log, after, int(json.loads(new)["logOffset"]))
        return frozenset(local_path(str(entry["path"])) for entry in entries)

    def _read_written(self) -> None:
        format = table_format(self.statement.format)
        if format.topics:
            return
        if format.transaction_log:
            self._read_delta_log()
            return
        place = f"{self.statement.place}/{TABLE_LOG_FOLDER}"
        with suppress(FileNotFoundError):
            names = batch_files(place)
            for batch, found, whole in table_log_batches(place, self._upto, self._seen):
                entries = list(found)
                paths = [local_path(str(entry["path"])) for entry in entries if entry.get("action", "add") == "add"]
                at = os.stat(f"{place}/{names.get(batch, batch)}").st_mtime
                self._written[batch] = _Written(frozenset(each for each in paths if _has_rows(each)), at)
                self._seen = len(entries) if whole else self._seen + len(entries)
                self._upto = batch

    def _read_delta_log(self) -> None:
        self._log = self._log or DeltaLog(self.statement.place)
        self._query = self._query or str(read_json(f"{self.statement.checkpoint}/metadata").get("id", ""))
        with suppress(NoDeltaLog, CommitsGone, FileNotFoundError):
            self._log.refresh()
            for commit in list(self._log.since(self._versions)):
                self._versions = commit.version + 1
                query, batch = self._log.batch_by_version.get(commit.version, ("", -1))
                if query == self._query and commit.files:
                    at = os.stat(self._log.path(commit.version)).st_mtime
                    self._written[batch] = _Written(frozenset([f"{self.statement.place}@{commit.version}"]), at)


def _next_version(version: int, index: int, in_snapshot: bool) -> int:
    """Return the first version that is not completely read at an offset."""
    return version + 1 if in_snapshot or index >= 0 else version


def _has_rows(path: str) -> bool:
    """True unless a file has no rows: Spark writes one file for a batch without rows (4.2.0)."""
    try:
        if not path.endswith(".parquet"):
            return os.path.getsize(path) > 0
        import pyarrow.parquet as parquet

        return bool(parquet.read_metadata(path).num_rows)
    except OSError:
        return False
