"""Rows of a load become the messages that the sample had, in every format of values."""

import base64
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from core.bench.made_up_sample import made_up_sample
from core.bench.replayed_load import ReplayedLoad, Row, SourceSample
from core.bench.request import BenchSource
from core.model.errors import UsageError
from core.model.names import TableName
from core.sql.ddl_reader import read_ddl
from core.sql.kafka_topics import row_expressions, topic_fault
from pipelines.bench import load_messages
from pipelines.bench.load_messages import MessageMaker, sampled_rows
from pipelines.spark_connect.session import Session

S = TableName("s")
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
AT_MS = int(AT.timestamp() * 1000)

Sampled = Callable[..., tuple[Row, ...]]


def source(columns: str, **options: str) -> BenchSource:
    kinds = tuple((name, kind) for name, _, kind in (each.strip().partition(" ") for each in columns.split(";")))
    given = {name.replace("_", "."): value for name, value in options.items()}
    return BenchSource(S, "kafka://b:9092/it_a,it_b", "kafka", kinds, given, "kafka://b:9092/a,b")


@pytest.fixture
def sampled(monkeypatch: pytest.MonkeyPatch) -> Sampled:
    def sample(of: BenchSource, *messages: tuple[Any, Any], topic: str = "a") -> tuple[Row, ...]:
        def newest(location: str, limit: int, decoded: Callable[[str, bytes], str]) -> list[tuple[Any, ...]]:
            encoded = [
                [
                    None if part is None else decoded("", part if isinstance(part, bytes) else part.encode())
                    for part in pair
                ]
                for pair in messages
            ]
            rows = [(topic, 0, n, AT_MS + n, key, {"h": "v"}, value) for n, (key, value) in enumerate(encoded)]
            return rows[::-1]

        monkeypatch.setattr(load_messages, "newest_messages", newest)
        return sampled_rows(of)

    return sample


def made(of: BenchSource, rows: tuple[Row, ...], cycle: int = 0) -> list[tuple[str, Any]]:
    """Return the messages of a cycle of the load."""
    sample = SourceSample(S, of.columns, rows, "")
    maker = MessageMaker(of, sample)
    keys = frozenset({(S, name) for name, kind in of.columns if kind == "bigint"})
    load = ReplayedLoad({S: sample}, keys)
    return [
        maker.message(row) for row in load.rows(S, cycle * len(rows), len(rows), at_s=AT.timestamp() + 60, spread_s=60)
    ]


def test_json_keeps_undeclared_fields_the_topic_and_keys_that_follow_from_a_column(sampled: Sampled) -> None:
    of = source("id bigint; at timestamp")
    values = [json.dumps({"id": n, "at": "2026-01-02T03:04:05Z", "more": [n]}) for n in (1, 2)]
    rows = sampled(of, ("1", values[0]), ("2", values[1]), topic="b")
    assert rows[0]["at"] == AT
    (topic, (key, value, headers, at_ms)), _ = made(of, rows, cycle=1)
    assert (topic, key, headers, at_ms) == ("it_b", b"11", None, None)
    assert json.loads(value) == {"id": 11, "at": "2026-01-02T03:05:05.000000Z", "more": [1]}


def test_parts_of_a_message_are_written_if_they_are_declared(sampled: Sampled) -> None:
    of = source("_value binary; _key string; _timestamp timestamp; _headers array<struct<key:string,value:binary>>",
                value_format="raw")  # fmt: skip
    rows = sampled(of, ("k", b"\xff"), (None, None))
    assert made(of, rows) == [
        ("it_a", (b"k", b"\xff", [("h", b"v")], AT_MS + 60_000)), ("it_a", (None, None, [("h", b"v")], AT_MS + 60_000)),
    ]  # fmt: skip


def test_changes_are_written_as_debezium_does_and_deletes_have_their_keys(sampled: Sampled) -> None:
    of = source("id bigint; n decimal(9,2); local timestamp_ntz; _op string; _lsn bigint; _committed_at timestamp",
                value_format="debezium")  # fmt: skip
    about = {"lsn": 7, "txId": 9, "ts_ms": AT_MS, "snapshot": "false"}
    after = {"id": 1, "n": "1.50", "local": "2026-01-02T03:04:05Z"}
    changes: list[dict[str, Any]] = [
        {"op": "r", "before": None, "after": after, "source": about, "transaction": {"id": "x", "total_order": 1}},
        {"payload": {"op": "d", "before": after, "after": None, "source": about}},
        {"op": "t", "source": about},
    ]
    rows = sampled(
        of, *((json.dumps({"payload": {"id": 1}}), json.dumps(each)) for each in changes), ('{"id":1}', None)
    )
    assert len(rows) == 2, "a TRUNCATE and a tombstone are no rows"
    (_, (key, inserted, _, _)), (_, (_, deleted, _, _)) = made(of, rows, cycle=2)
    assert json.loads(key) == {"id": 21}
    assert json.loads(inserted) == {
        "op": "c", "before": None, "after": {"id": 21, "n": "1.50", "local": "2026-01-02T03:05:05.000000Z"},
        "source": {"lsn": 27, "txId": 9, "ts_ms": AT_MS + 60_000, "snapshot": "false"},
        "transaction": {"id": "x", "total_order": 1},
    }  # fmt: skip
    assert json.loads(deleted)["op"] == "d" and json.loads(deleted)["after"] is None


def test_made_up_rows_go_to_all_topics_and_changes_have_keys() -> None:
    of = source("id bigint; n decimal(9,2); _op string", value_format="debezium")
    rows: tuple[Row, ...] = ({"id": 1, "n": 2.5, "_op": "c"}, {"id": 2, "n": None, "_op": "u"})
    messages = made(of, rows)
    assert {topic for topic, _ in messages} == {"it_a", "it_b"}
    assert [json.loads(key) for _, (key, _, _, _) in messages] == [{"id": 1, "n": "2.50"}, {"id": 2}]
    assert json.loads(messages[1][1][1])["before"] == {}


def test_messages_that_cannot_be_read_are_left_out_unless_all_are(sampled: Sampled) -> None:
    of = source("id bigint; at timestamp")
    assert [row["id"] for row in sampled(of, (None, "{"), (None, '{"id": 1}'), (None, '{"at": "x"}'))] == [1]
    assert sampled(of) == ()
    with pytest.raises(UsageError, match="no message of a, b can be read as s declares it"):
        sampled(of, (None, "{"), (None, "[1]"))


def test_a_binary_key_that_is_not_declared_is_kept(sampled: Sampled) -> None:
    of = source("id bigint")
    rows = sampled(of, (b"\xff\x00", '{"id": 1}'))
    assert made(of, rows, cycle=1)[0][1][0] == b"\xff\x00"
    declared = source("id bigint; _key binary")
    rows = sampled(declared, (b"\xff\x00", '{"id": 1}'))
    assert rows[0]["_key"] == base64.b64encode(b"\xff\x00").decode() and made(declared, rows)[0][1][0] == b"\xff\x00"


@pytest.mark.spark
@pytest.mark.drill
@pytest.mark.long
def test_readers_get_the_rows_of_the_load(session: Session) -> None:
    """Made-up rows of every type are read by the expressions of a statement without a fault."""
    columns = "id BIGINT, n DECIMAL(9,2), day DATE, at TIMESTAMP, local TIMESTAMP_NTZ, tags ARRAY<STRING>, ok BOOLEAN"
    for format, more in (("json", ", b BINARY, s STRUCT<x: INT>"), ("debezium", ", _op STRING, _lsn BIGINT")):
        options = f"'kafka.bootstrap.servers'='b:9092', subscribe='t', 'value.format'='{format}'"
        ddl, problems = read_ddl(f"CREATE TABLE k ({columns}{more}) USING kafka OPTIONS ({options})", "ddl")
        assert ddl is not None and topic_fault(ddl) is None, problems
        kinds = tuple((column.name, column.type) for column in ddl.columns)
        of = BenchSource(S, "kafka://b:9092/it_t", "kafka", kinds, {"value.format": format})
        maker = MessageMaker(of, made_up := made_up_sample(S, kinds, {}, event_column="at"))
        made = [maker.message(row)[1] for row in made_up.rows]
        messages = [(n, key, value) for n, (key, value, _, _) in enumerate(made)]
        found: Any = session.spark.createDataFrame(messages, "offset BIGINT, key BINARY, value BINARY")
        found = found.selectExpr("*", "0 AS partition", "'t' AS topic")
        steps, selected = row_expressions(ddl)
        for step in steps:
            found = found.selectExpr("*", step)
        rows = found.selectExpr(*selected).collect()
        assert [row["id"] for row in rows] == [row["id"] for row in made_up.rows]
        assert all(value is not None for row in rows for value in row), format
