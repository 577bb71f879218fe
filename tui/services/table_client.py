"""The client of a child process that reads and writes rows of tables, and reads positions of statements."""

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from core.integration_tests.positions import Position
from core.model.names import TableName
from core.project.model import Pool
from core.statement_tests.case import Row, TypedColumns
from core.statement_tests.typed_values import decoded_value, encoded_value
from tui.agent_client.spark_side_process import SparkSideProcess

RUNNER = "pipelines.integration_tests"

CALL_S = 120.0
"""Longest time for an answer, in seconds, after which the child process is killed."""

END_S = 20.0


@dataclass(frozen=True, slots=True)
class SparkServer:
    """The address of a running Spark server, and what is needed to connect to it."""

    url: str
    token: str = field(default="", repr=False)
    """The token of a local server; empty if there is none."""
    pool: Pool | None = None
    """The declaration of a server that others manage, with the reference to its token; None for a local server."""

    @property
    def security(self) -> dict[str, Any]:
        """How connections are secured, as keys of `pool` in headgate.yml."""
        if self.pool is None:
            return {}
        token = {"token": self.pool.token.text} if self.pool.token is not None else {}
        return token | {"tls": self.pool.tls} | ({"ca": self.pool.ca} if self.pool.ca else {})


class TableClient:
    """Reads and writes rows through a Spark server. The child process starts at once and imports Spark meanwhile.

    Every method may raise HeadgateError. Not thread-safe.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._child = SparkSideProcess(RUNNER, environ=environ, task="reads tables", end_s=END_S)
        self._in_step = True

    @property
    def in_step(self) -> bool:
        """False if the last request failed or was interrupted, so that its answer may still be on its way."""
        return self._in_step

    def use_server(self, server: SparkServer) -> None:
        """Open a session on a Spark server, unless it is open already."""
        self._ask("server", url=server.url, token=server.token, security=server.security)

    def write(self, ddl: str, folder: str, columns: TypedColumns, rows: Iterable[Row]) -> None:
        """Append rows to an external table, in the format of its declaration; they appear at once, in one file.

        Rows of a table over topics become messages of its first topic, and `folder` is not used.
        """
        self._ask("write", ddl=ddl, folder=folder, rows=[_encoded(row, columns) for row in rows])

    def rows(self, name: str, columns: TypedColumns) -> tuple[Row, ...]:
        """Return the rows of a table or view, given its name in the catalog; at most MOST_FOUND + 1."""
        return _decoded(self._ask("rows", name=name, columns=[list(each) for each in columns])["rows"], columns)

    def messages(self, ddl: str, columns: TypedColumns) -> tuple[Row, ...]:
        """Return the messages of topics as rows, given the declaration of a table with these columns over them."""
        return _decoded(self._ask("messages", ddl=ddl)["rows"], columns)

    def existing_topics(self, locations: Iterable[str], prefix: str) -> tuple[str, ...]:
        """Return the topics with a prefix in the clusters of some locations."""
        return tuple(self._ask("existing_topics", locations=list(locations), prefix=prefix)["topics"])

    def create_topics(self, locations: Iterable[str], partitions: Mapping[str, int]) -> None:
        """Create the topics of some locations, each with a number of partitions that is 1 unless it is given."""
        self._ask("create_topics", locations=list(locations), partitions=dict(partitions))

    def partition_counts(self, locations: Iterable[str]) -> dict[tuple[str, str], int]:
        """Return the number of partitions of each existing topic of some locations, by location and topic."""
        found = self._ask("partition_counts", locations=list(locations))["counts"]
        return {(location, topic): count for location, topic, count in found}

    def delete_topics(self, locations: Iterable[str], prefix: str) -> tuple[str, ...]:
        """Delete all topics with a prefix in the clusters of some locations, and return those that are left."""
        return tuple(self._ask("delete_topics", locations=list(locations), prefix=prefix)["topics"])

    def columns_in_files(self, format: str, folder: str) -> dict[str, str]:
        """Return the columns that occur in the files of a table, with their types; the table must have a file."""
        return dict(self._ask("columns", format=format, folder=folder)["columns"])

    def positions(self, statements: Sequence[Mapping[str, Any]]) -> dict[TableName, Position]:
        """Return the position of each statement, given as table, version, checkpoint, sources and stateful."""
        found = self._ask("positions", statements=list(statements))["positions"]
        return {TableName(each["table"]): Position(**each) for each in found}

    def names(self, prefix: str) -> tuple[str, ...]:
        """Return the names of tables and views in the catalog that begin with a prefix."""
        return tuple(self._ask("names", prefix=prefix)["names"])

    def release(self, session_id: str) -> None:
        """Release a session on the server, which ends the queries in it."""
        self._ask("release", session_id=session_id)

    def close(self) -> None:
        """End the child process, which first releases its session."""
        self._child.end()

    def _ask(self, op: str, **arguments: Any) -> dict[str, Any]:
        alarm = threading.Timer(CALL_S, self._child.kill)
        alarm.start()
        self._in_step = False
        try:
            self._child.send({"op": op, **arguments})
            answer = self._child.answer()
            self._in_step = True
            return answer
        finally:
            alarm.cancel()


def _encoded(row: Row, columns: TypedColumns) -> list[str | None]:
    return [encoded_value(value, kind) for value, (_, kind) in zip(row, columns, strict=True)]


def _decoded(found: Iterable[Iterable[str | None]], columns: TypedColumns) -> tuple[Row, ...]:
    return tuple(
        tuple(decoded_value(text, kind) for text, (_, kind) in zip(row, columns, strict=True)) for row in found
    )
