"""Load in topics of the environment: prepared on disk, written at once, and followed by offsets through the statements.

The topics are the environment's own, so nobody else writes to them, and the offsets between two writes are known.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.bench.replayed_load import Row, SourceSample
from core.bench.request import BenchSource
from core.bench.topic_inputs import TopicInputs
from core.model.errors import HeadgateError
from core.model.names import TableName
from pipelines.bench.load_messages import MessageMaker
from pipelines.integration_tests.own_topics import Message, OpenTopics

ENDING = ".messages"
"""Ending of the name of a file with prepared messages."""


@dataclass(slots=True)
class TopicLoad:
    """Messages for the topics of sources, and what statements have written to topics."""

    folder: str
    """Folder for prepared messages."""
    samples: Mapping[TableName, SourceSample] = field(default_factory=dict)
    inputs: TopicInputs = field(default_factory=TopicInputs)
    clock: Callable[[], float] = time.time
    connect: Callable[[str], OpenTopics] = OpenTopics
    _makers: dict[str, MessageMaker] = field(default_factory=dict)
    _open: dict[str, OpenTopics] = field(default_factory=dict)
    _sent: int = 0

    def prepare(self, source: BenchSource, name: str, rows: Sequence[Row]) -> str:
        """Write rows as messages to a file; return its path. Raises HeadgateError if it cannot be written."""
        import pyarrow as arrow
        import pyarrow.parquet as parquet

        maker = self._makers.get(source.folder)
        if maker is None:
            maker = self._makers[source.folder] = MessageMaker(source, self.samples[source.table])
        made = [_as_stored(topic, message) for topic, message in map(maker.message, rows)]
        header = arrow.struct([("key", arrow.string()), ("value", arrow.binary())])
        kinds = {"topic": arrow.string(), "key": arrow.binary(), "value": arrow.binary(), "at": arrow.int64()}
        table = arrow.Table.from_pylist(made, arrow.schema({**kinds, "headers": arrow.list_(header)}))
        path = Path(self.folder, f"{name}-{source.table}{ENDING}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            parquet.write_table(table, path)
        except OSError as error:
            raise HeadgateError(
                f"load cannot be written to {path.parent}: {error.strerror}", remedy="free some disk space"
            ) from error
        return str(path)

    def send(self, source: BenchSource, path: str) -> tuple[str, float]:
        """Write prepared messages to their topics; return the input that they are, and when the writing began."""
        import pyarrow.parquet as parquet

        messages = [(row["topic"], _message(row)) for row in parquet.read_table(path).to_pylist()]
        topics = self._topics(source.folder)
        began = self.clock()
        topics.write(messages)
        self._sent += 1
        input = f"{source.folder}#{self._sent}"
        self.inputs.add(input, topics.ends())
        Path(path).unlink()
        return input, began

    def wrote(self, location: str, batch: int, committed_at: float) -> tuple[str, float] | None:
        """Return the input that a batch of a statement has written to a topic, and when it was visible.

        None if it wrote no message. Batches must be asked for in ascending order. The time is that of the last message,
        by the clock of the writer. A batch begins after the one before was committed, so the messages between two
        commits are those of one batch.
        """
        topics = self._topics(location)
        input = f"{location}@{batch}"
        ends = self.inputs.add(input, topics.ends(int(committed_at * 1000) + 1))
        if not ends:
            return None
        times = topics.times({each: end - 1 for each, end in ends.items()})
        return input, max(times.values()) / 1000 if times else committed_at

    def partitions(self, source: BenchSource) -> int:
        """Return the number of partitions of a source's topics."""
        return len(self._topics(source.folder).ends())

    def _topics(self, location: str) -> OpenTopics:
        found = self._open.get(location)
        if found is None:
            found = self._open[location] = self.connect(location)
        return found


def _as_stored(topic: str, message: Message) -> dict[str, object]:
    key, value, headers, at = message
    listed = None if headers is None else [{"key": name, "value": each} for name, each in headers]
    return {"topic": topic, "key": key, "value": value, "at": at, "headers": listed}


def _message(row: Mapping[str, Any]) -> Message:
    headers = row["headers"]
    listed = None if headers is None else [(each["key"], each["value"]) for each in headers]
    return row["key"], row["value"], listed, row["at"]
