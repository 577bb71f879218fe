"""Rows and positions of the tables of an ephemeral environment, through a Spark session and through files.

Rows are written as Spark writes them with the options of the table's declaration, so every format is read back equally.
"""

import json
import os
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from core.integration_tests.given_messages import given_message_expressions
from core.integration_tests.positions import Position
from core.model.errors import EngineRefused, HeadgateError, PoolUnreachable, UsageError
from core.model.names import TableName
from core.model.secret_references import secret_reference
from core.model.table_formats import table_format
from core.sql.ddl_reader import read_ddl
from core.sql.kafka_topics import row_expressions, source_options
from core.sql.statement import TableDdl
from core.statement_tests.comparison import MOST_FOUND
from core.statement_tests.typed_values import canonical_value, decoded_value, encoded_value
from core.text.escaping import qualified, quoted_name
from pipelines.integration_tests import own_topics
from pipelines.spark_connect import call_deadlines
from pipelines.spark_connect.pool_token import PoolToken
from pipelines.spark_connect.session import Session, Tls, spark_errors
from pipelines.statement_tests.stream_trial import spark_value, stored_type
from pipelines.storage.checkpoints import TableCheckpoints

CALL_S = 60.0
"""Longest time, in seconds, for one read or write of rows."""

_CONF = {"spark.sql.session.timeZone": "UTC", "spark.sql.adaptive.enabled": "false"}

_FINE = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""Formats in which text files keep microseconds; by default, Spark writes milliseconds."""


class TableAccess:
    """Answers requests about tables. The Spark session is opened at the first request that needs it."""

    def __init__(self) -> None:
        self._session: Session | None = None
        self._server = ("", "")
        # A position proves nothing if it is compared with files that were listed earlier.
        self._files = TableCheckpoints("", refresh_s=0.0)

    def answer(self, op: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """Answer one request. Raises HeadgateError if Spark refuses it or does not answer."""
        match op:
            case "server":
                self._open(str(request["url"]), str(request["token"]), request.get("security", {}))
                return {}
            case "write":
                self._write(str(request["ddl"]), str(request["folder"]), request["rows"])
                return {}
            case "existing_topics":
                return {"topics": own_topics.existing_topics(request["locations"], str(request["prefix"]))}
            case "create_topics":
                own_topics.create_topics(request["locations"], request["partitions"])
                return {}
            case "partition_counts":
                return {"counts": own_topics.partition_counts(request["locations"])}
            case "delete_topics":
                return {"topics": own_topics.delete_topics(request["locations"], str(request["prefix"]))}
            case "messages":
                return {"rows": self._messages(str(request["ddl"]))}
            case "rows":
                return {"rows": self._rows(str(request["name"]), [tuple(each) for each in request["columns"]])}
            case "columns":
                return {"columns": self._columns(str(request["format"]), str(request["folder"]))}
            case "positions":
                return {"positions": [self._position(each).as_json() for each in request["statements"]]}
            case "names":
                return {"names": self._names(str(request["prefix"]))}
            case "release":
                self._release(str(request["session_id"]))
                return {}
        raise UsageError(f"there is no request {op!r}")

    def close(self) -> None:
        """Release the session."""
        if self._session is not None:
            with suppress(HeadgateError):
                call_deadlines.call(CALL_S, self._session.release)
            self._session = None

    def _open(self, url: str, token: str, security: Mapping[str, Any]) -> None:
        if (url, token) == self._server and self._session is not None:
            return
        if self._session is not None:
            # Its server was replaced, and cannot be asked to release anything.
            self._session.close()
        reference = secret_reference(str(security.get("token", "")))
        tls = Tls(str(security.get("ca", ""))) if security.get("tls") else None
        source = token if reference is None else PoolToken(reference)
        self._session = Session(url, source, str(uuid.uuid4()), conf=_CONF, tls=tls)
        self._session.call(CALL_S, self._session.attach)
        self._server = url, token

    @property
    def _open_session(self) -> Session:
        if self._session is None:
            raise PoolUnreachable("no server was given")
        return self._session

    def _write(self, ddl_text: str, folder: str, rows: list[list[str | None]]) -> None:
        ddl, problems = read_ddl(ddl_text, "ddl")
        assert ddl is not None, problems
        kinds = [(column.name, column.type) for column in ddl.columns]
        values = [
            tuple(spark_value(decoded_value(text, kind), kind) for text, (_, kind) in zip(row, kinds, strict=True))
            for row in rows
        ]
        schema = ", ".join(f"{quoted_name(name)} {stored_type(kind)}" for name, kind in kinds)
        if table_format(ddl.format).topics:
            self._send(ddl, values, schema)
            return
        given = {name.lower() for name, _ in ddl.options}
        options = {name: each for name, each in _FINE.items() if name.lower() not in given} | dict(ddl.options)

        def write() -> None:
            frame = self._open_session.spark.createDataFrame(values, schema).coalesce(1)
            writer = frame.write.mode("append").format(ddl.format).options(**options)
            writer.partitionBy(*ddl.partitioning).save(folder)

        self._open_session.call(CALL_S, write)

    def _send(self, ddl: TableDdl, values: list[tuple[Any, ...]], schema: str) -> None:
        def encode() -> Any:
            frame = self._open_session.spark.createDataFrame(values, schema).coalesce(1)
            return frame.selectExpr(*given_message_expressions(ddl)).toArrow()

        encoded = self._open_session.call(CALL_S, encode).to_pylist()
        own_topics.write_messages(ddl.location, own_topics.parsed_messages(encoded))

    def _messages(self, ddl_text: str) -> list[list[str | None]]:
        """Return the messages of topics as rows, in the columns of the table's declaration."""
        ddl, problems = read_ddl(ddl_text, "ddl")
        assert ddl is not None, problems
        parsed, columns = row_expressions(ddl)

        def read() -> Any:
            frame: Any = self._open_session.spark.read.format("kafka").options(**source_options(ddl)).load()
            for step in parsed:
                frame = frame.selectExpr("*", step)
            return frame.selectExpr(*columns).limit(MOST_FOUND + 1).toArrow()

        found = self._open_session.call(CALL_S, read)
        return _encoded(str(ddl.table), found, [(column.name, column.type) for column in ddl.columns])

    def _rows(self, name: str, columns: list[tuple[str, str]]) -> list[list[str | None]]:
        selected = ", ".join(quoted_name(column) for column, _ in columns)

        def read() -> Any:
            frame = self._open_session.spark.sql(f"SELECT {selected} FROM {qualified(name)}")
            return frame.limit(MOST_FOUND + 1).toArrow()

        return _encoded(name, self._open_session.call(CALL_S, read), columns)

    def _columns(self, format: str, folder: str) -> list[list[str]]:
        def read() -> Any:
            return self._open_session.spark.read.format(format).option("mergeSchema", "true").load(folder).schema

        schema = self._open_session.call(CALL_S, read)
        return [[each.name, each.dataType.simpleString()] for each in schema.fields]

    def _position(self, statement: Mapping[str, Any]) -> Position:
        checkpoint = str(statement["checkpoint"])
        sources = tuple((int(n), TableName(t), str(folder), str(form)) for n, t, folder, form in statement["sources"])
        state = self._files.read(checkpoint)
        lag = self._files.lag(checkpoint, sources)
        if (fault := next((each.unmeasured for each in lag if each.unmeasured is not None), None)) is not None:
            raise fault
        batch = state.batch if state is not None else None
        return Position(
            TableName(statement["table"]),
            int(statement["version"]),
            batch=batch,
            planned=state.planned if state is not None else None,
            pending=sum(each.files for each in lag),
            watermark_ms=_metadata(f"{checkpoint}/offsets", batch, "batchWatermarkMs"),
            next_watermark_ms=_metadata(f"{checkpoint}/commits", batch, "nextBatchWatermarkMs"),
            stateful=bool(statement["stateful"]),
            batch_s=_duration_s(checkpoint, batch),
            messages=sum(each.files for each in lag if each.topics),
        )

    def _names(self, prefix: str) -> list[str]:
        session = self._open_session
        with spark_errors():
            shown = session.spark.sql(f"SHOW TABLES LIKE '{prefix}*'").collect()
        return sorted(row["tableName"] for row in shown)

    def _release(self, session_id: str) -> None:
        other = self._open_session.another_session(session_id)
        call_deadlines.call(CALL_S, other.release)


def _duration_s(checkpoint: str, batch: int | None) -> float:
    """Return the time between the beginning and the end of a batch, in seconds; 0 if its files are gone."""
    with suppress(OSError):
        began, ended = (os.stat(f"{checkpoint}/{log}/{batch}").st_mtime for log in ("offsets", "commits"))
        return max(0.0, ended - began)
    return 0.0


def _encoded(name: str, found: Any, columns: list[tuple[str, str]]) -> list[list[str | None]]:
    """Return rows of an Arrow table as texts. Raises EngineRefused if a value cannot be compared."""
    try:
        values = [
            [encoded_value(canonical_value(value, kind), kind) for value in column.to_pylist()]
            for column, (_, kind) in zip(found.columns, columns, strict=True)
        ]
    except (ValueError, OverflowError) as error:
        raise EngineRefused(f"{name} has a value that cannot be compared: {error}") from error
    return [list(row) for row in zip(*values, strict=True)]


def _metadata(log: str, batch: int | None, key: str) -> int:
    """Return a number in the second line of a batch's file, where Spark keeps watermarks; 0 if there is none."""
    if batch is None:
        return 0
    with suppress(OSError, ValueError, IndexError, AttributeError):
        return int(json.loads(Path(log, str(batch)).read_text("utf-8").split("\n")[1]).get(key, 0))
    return 0
