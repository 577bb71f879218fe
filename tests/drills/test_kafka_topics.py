"""A statement over Kafka topics on a real broker, agent and pool: its rows, its lag, and faults of its topics."""

import json
import os
import signal
import time
from datetime import UTC, datetime
from typing import Any

import pyarrow.parquet as parquet
import pytest
from kafka_broker import Broker, free_port
from tiny_project import Tiny, committed, until

pytestmark = [pytest.mark.spark, pytest.mark.drill]
LANDED = """CREATE TABLE landed (id BIGINT, kind STRING, _partition INT, _offset BIGINT) USING kafka
OPTIONS ('kafka.bootstrap.servers'='{servers}', subscribe='events');"""
OTHERS = {
    "strict": "id BIGINT, _key STRING",
    "lenient": "id BIGINT, _corrupt STRING",
    "absent": "id BIGINT",
}
"""Columns of further topic tables: two over the topic `mixed`, and one over a topic that does not exist."""
KEPT = "CREATE TABLE kept (id BIGINT, kind STRING, part INT, at BIGINT) USING parquet;"
DML = "INSERT INTO kept SELECT id, kind, _partition AS part, _offset AS at FROM STREAM landed;"


@pytest.fixture(scope="module")
def tiny(on_topics: Tiny, broker: Broker) -> Tiny:
    broker.create("events", **{"retention.ms": "7200000"})
    broker.create("mixed")
    broker.produce("mixed", ['{"id": 1}', "not json", None, '{"id": 2}'], partition=0)
    ddl, dml = {"landed": LANDED.format(servers=broker.servers), "kept": KEPT}, {"kept": DML}
    for name, columns in OTHERS.items():
        options = (
            f"'kafka.bootstrap.servers'='{broker.servers}', subscribe='{'absent' if name == 'absent' else 'mixed'}'"
        )
        ddl[f"{name}_in"] = f"CREATE TABLE {name}_in ({columns}) USING kafka OPTIONS ({options});"
        kept = "_corrupt AS kind" if name == "lenient" else "CAST(NULL AS STRING) AS kind"
        ddl[name] = f"CREATE TABLE {name} (id BIGINT, kind STRING) USING parquet;"
        dml[name] = f"INSERT INTO {name} SELECT id, {kept} FROM STREAM {name}_in;"
    on_topics.yml = {"kept": "mirror_offsets: mirror-of-kept\n", "landed": "payload: hidden\n"}
    on_topics.add(ddl, dml)
    send(broker, on_topics, 50)
    assert on_topics.apply(on_topics.plan("kept")).returncode == 0
    return on_topics


def send(broker: Broker, tiny: Tiny, count: int, at: float | None = None) -> None:
    """Send `count` messages with the next ids, and with the time `at`."""
    ids = range(tiny.landed + 1, tiny.landed + count + 1)
    tiny.landed += count
    broker.produce("events", [json.dumps({"id": n, "kind": "ab"[n % 2]}) for n in ids], at=at)


def all_arrived(tiny: Tiny) -> bool:
    return tiny.ids("kept", 1) == list(range(1, tiny.landed + 1))


def lag(tiny: Tiny) -> tuple[object, object, object]:
    row = tiny.statements()["kept"]
    return row["state"], row["lag_rows"], row["lag_exact"]


def test_every_message_becomes_one_row_and_the_lag_is_exact(tiny: Tiny, broker: Broker) -> None:
    until(lambda: all_arrived(tiny), 60, "the first messages are rows")
    tiny.done("stop", "kept", "--confirm", "yes")
    send(broker, tiny, 120, at=time.time() - 5400)
    until(lambda: lag(tiny) == ("stopped", 120, True), 30, "120 messages wait")
    left = tiny.statements()["kept"]["time_left"]
    assert (left["kind"], left["bound"]["kind"]) == ("limited", "message_age") and 1600 < left["seconds"] <= 1800, left
    (warning,) = [
        each
        for each in json.loads(tiny.run("plan", "kept", "--json").stdout)["warnings"]
        if each["kind"] == "position_expires"
    ]
    assert "its position stays readable for at least 29m" in warning["summary"], warning
    group = "mirror-of-kept"
    until(lambda: sum(broker.committed(group).values()) == tiny.landed - 120, 30, "the group is as far behind")
    shown = " ".join(tiny.done("show", "kept").split())
    assert (
        "Its position is kept for at least 29m" in shown and "--entity-name events --add-config retention.ms=" in shown
    )
    assert "HEADGATE_POSITION_EXPIRES" in tiny.done("events", "kept")
    assert f"mirrored to consumer group {group}" in shown
    assert "120 rows" in shown and "files" not in shown.split("behind ", 1)[1].split("time left")[0]
    tiny.done("start", "kept", "--confirm", "yes")
    until(lambda: all_arrived(tiny), 60, "they are rows")
    found = json.loads(tiny.done("peek", "landed", "-n", "3", "--json"))
    assert found["newest_first"] and len(found["rows"]) == 3
    key, value = (found["rows"][0][found["columns"].index(name)] for name in ("_key", "_value"))
    assert key in ("118", "119") and value.startswith("hidden (")
    until(lambda: lag(tiny) == ("running", 0, True), 30, "nothing waits")
    until(lambda: sum(broker.committed(group).values()) == tiny.landed, 30, "nor for the group")


@pytest.mark.long
def test_a_killed_pool_and_a_killed_broker_lose_and_repeat_nothing(tiny: Tiny, broker: Broker) -> None:
    until(lambda: all_arrived(tiny), 60, "all messages are rows")
    send(broker, tiny, 40)
    tiny.replace_pool()
    send(broker, tiny, 40)
    until(lambda: all_arrived(tiny), 120, "the new pool has read them")
    os.kill(tiny.agent_pid(), signal.SIGKILL)
    tiny.done("up")
    broker.kill()
    until(lambda: lag(tiny)[1] is None, 60, "the lag is unknown while no broker answers")
    broker.start()
    send(broker, tiny, 40)
    until(lambda: all_arrived(tiny), 120, "messages that arrived after the broker are rows")
    until(lambda: lag(tiny)[1] == 0, 60, "the lag is known again")
    broker.kill()
    until(lambda: lag(tiny)[1] is None, 60, "no broker answers the query either")
    (stopped,) = json.loads(tiny.done("stop", "kept", "--confirm", "yes", "--json"))["statements"]
    assert stopped["came"] == "stopped", stopped
    down = tiny.run("start", "kept", "--confirm", "yes")
    assert down.returncode != 0 and f"no broker of {broker.servers} answers" in " ".join(down.stderr.split()), down
    broker.start()
    send(broker, tiny, 40)
    until(lambda: lag(tiny) == ("stopped", 40, True), 60, "the lag is known again")
    tiny.done("start", "kept", "--confirm", "yes")
    until(lambda: all_arrived(tiny), 120, "messages that arrived while it was stopped are rows")


def test_messages_lost_to_retention_refuse_a_start_before_spark_can_damage_the_checkpoint(
    tiny: Tiny, broker: Broker
) -> None:
    until(lambda: all_arrived(tiny), 60, "all messages are rows")
    tiny.done("stop", "kept", "--confirm", "yes")
    ends = {part: max(offsets(tiny, part)) + 1 for part in (0, 1)}
    send(broker, tiny, 20)
    broker.delete_before("events", {0: ends[0] + 3})
    until(lambda: tiny.statements()["kept"]["time_left"]["kind"] == "lost", 30, "the position is known to be lost")
    assert "It cannot continue: 3 messages of events were deleted" in " ".join(tiny.done("show", "kept").split())
    found = json.loads(tiny.run("plan", "kept", "--json").stdout)
    kinds = {each["kind"] for each in (*found["refusals"], *found["warnings"])}
    assert kinds & {"cannot_resume", "position_lost"}, "the first once the agent has compared the topics"
    refused = tiny.run("start", "kept", "--confirm", "yes")
    assert refused.returncode == 3, refused
    assert "has lost 3 unread messages to its retention" in refused.stderr, refused
    rebuilt = tiny.apply(tiny.plan("kept", "--rebuild"))
    assert rebuilt.returncode == 0, rebuilt.stdout + rebuilt.stderr
    until(lambda: tiny.ids("kept", 2)[-1:] == [tiny.landed], 60, "the new version reads what is left")


def test_a_topic_created_again_with_more_messages_is_refused_though_spark_would_skip_them(
    tiny: Tiny, broker: Broker
) -> None:
    broker.create("renewed", partitions=1)
    broker.produce("renewed", ['{"id": 1}', '{"id": 2}'], partition=0)
    options = f"'kafka.bootstrap.servers'='{broker.servers}', subscribe='renewed'"
    ddl = {"renewed_in": f"CREATE TABLE renewed_in (id BIGINT) USING kafka OPTIONS ({options});"}
    ddl["renewed"] = "CREATE TABLE renewed (id BIGINT) USING parquet;"
    tiny.add(ddl, {"renewed": "INSERT INTO renewed SELECT id FROM STREAM renewed_in;"})
    assert tiny.apply(tiny.plan("renewed")).returncode == 0
    until(lambda: tiny.ids("renewed", 1) == [1, 2], 60, "the messages are rows")
    tiny.done("stop", "renewed", "--confirm", "yes")
    broker.delete("renewed")
    broker.create("renewed", partitions=1)
    broker.produce("renewed", [json.dumps({"id": n}) for n in range(3, 8)], partition=0)
    refused = tiny.run("start", "renewed", "--confirm", "yes")
    assert refused.returncode == 3, refused
    assert "was created again: topic renewed has the id" in refused.stderr, refused
    assert tiny.apply(tiny.plan("renewed", "--rebuild")).returncode == 0
    until(lambda: tiny.ids("renewed", 2) == list(range(3, 8)), 60, "all messages of the new topic are rows")


def test_a_value_that_is_not_json_fails_with_its_offset_and_a_declared_column_keeps_it(
    tiny: Tiny, broker: Broker
) -> None:
    failed = tiny.apply(tiny.plan("strict"))
    assert failed.returncode == 1
    assert "at offset 1 in partition 0 of topic mixed is not JSON" in failed.stdout + failed.stderr, failed
    until(lambda: "declare the topic under another name" in tiny.done("show", "strict"), 30, "the remedy is shown")
    assert tiny.apply(tiny.plan("lenient")).returncode == 0
    rows = [
        row
        for file in committed(tiny.folder / "data/tables/lenient__v1")
        for row in parquet.read_table(file).to_pylist()
    ]
    assert sorted((row["id"] or 0, row["kind"]) for row in rows if row["kind"] is None) == [
        (0, None),
        (1, None),
        (2, None),
    ]
    assert [row for row in rows if row["kind"]] == [{"id": None, "kind": "not json"}]
    broker.produce("mixed", ['{"id": "changed to text"}'], partition=0)
    until(lambda: '{"id": "changed to text"}' in kinds(tiny), 60, "a value of another schema is kept")


def test_a_topic_that_does_not_exist_is_named_before_the_start(tiny: Tiny, broker: Broker) -> None:
    plan = json.loads(tiny.run("plan", "absent", "--json").stdout)
    (denied,) = (guard for guard in plan["guards"] if guard["verdict"] == "deny")
    assert denied["name"] == "topics", denied
    assert f"there is no topic absent at {broker.servers}" in denied["summary"], denied
    assert tiny.ledger("SELECT 1 FROM deployment WHERE \"table\" = 'absent'") == []
    checks = json.loads(tiny.run("doctor", "--json").stdout)["checks"]
    assert [check["ok"] for check in checks if check["name"] == "inputs"] == [False]


def order(n: int) -> dict[str, Any]:
    """Return the value of a message with fields of every kind; `early` is only in some."""
    return {
        "id": n, "customer": {"firstName": f"c{n}", "two words": [n, n + 1]}, "total": n + 0.5, "paid": n % 2 == 0,
        "at": f"2026-01-01T00:00:{n % 60:02}.123456+01:00", "local": "2026-01-01 10:00:00", "day": "2026-02-28",
        "createdAt": 1_767_225_600_000 + n, "big": 2**70 + n, "mixed": n if n % 2 else {"x": [n]}, "nothing": None,
        "lines": [{"sku": f"s{n}", "qty": n}], **({"early": n} if n < 3 else {}),
    }  # fmt: skip


def test_init_declares_topics_with_the_columns_of_their_messages(tiny: Tiny, broker: Broker) -> None:
    for topic in ("shop.orders", "shop.nothing", "shop.odd"):
        broker.create(topic)
    broker.produce("shop.odd", ['{"id": 1}', "not json", None], partition=0)
    broker.produce("shop.orders", [json.dumps(order(n)) for n in range(40)])
    before = sorted(tiny.folder.rglob("pipelines/**/*"))
    for place, told in (
        (f"{broker.servers}/shop.absent", "there is no topic shop.absent"),
        (f"{broker.servers}/shop.nothing", "shop.nothing has no messages"),
        (f"{broker.servers}/shop.odd", "shop.odd has 1 of 2 messages that are not JSON objects, such as offset 1"),
        (f"127.0.0.1:{free_port()}/shop.orders", "no broker of 127.0.0.1:"),
        ("shop.orders", "the address names the broker shop.orders, which is not host:port"),
    ):
        refused = tiny.run("init", "table", "orders_in", "--kafka", f"kafka://{place}")
        said = " ".join(refused.stderr.split())
        assert refused.returncode == 2 and told in said, refused
        assert "nothing was written" in said and sorted(tiny.folder.rglob("pipelines/**/*")) == before
    said = tiny.run("init", "table", "orders_in", "--kafka", f"kafka://{broker.servers}/shop.orders")
    assert said.returncode == 0 and "looked at 40 messages" in said.stderr, said
    assert not [group for group in broker.admin.list_consumer_groups().result(30).valid if group.group_id == "headgate"]
    ddl = next(tiny.folder.rglob("ddl.orders_in.sql")).read_text()
    assert "  early BIGINT,  -- in 3 of 40 messages\n" in ddl and "big DECIMAL(38,0),  -- larger than BIGINT" in ddl, (
        ddl
    )
    place = next(tiny.folder.rglob("ddl.orders_in.sql"))
    place.write_text(ddl.replace("  nothing STRING,", "  nothing STRING, misspelt STRING,"))
    done = tiny.apply(tiny.plan("src_orders_in"))
    assert done.returncode == 0, done.stdout + done.stderr
    misspelt = "orders_in declares misspelt, and none of its newest 40 messages has it"
    assert misspelt in " ".join((done.stdout + done.stderr).split()), done
    checks = json.loads(tiny.run("doctor", "--json").stdout)["checks"]
    assert [check["summary"] for check in checks if check["warning"] and check["name"] == "inputs"] == [misspelt]
    until(lambda: tiny.ids("src_orders_in", 1) == list(range(40)), 60, "all messages are rows")
    for row in rows(tiny, "src_orders_in__v1"):
        sent = order(row["id"])
        assert row["customer"] == sent["customer"] and row["lines"] == sent["lines"]
        assert (row["early"], row["nothing"], int(row["big"])) == (sent.get("early"), None, sent["big"])
        assert [row[name] for name in ("total", "paid", "createdAt")] == [
            sent[n] for n in ("total", "paid", "createdAt")
        ]
        assert json.loads(row["mixed"]) == sent["mixed"]
        assert row["at"].replace(tzinfo=UTC) == datetime.fromisoformat(sent["at"])
        assert (str(row["day"]), str(row["local"])) == (sent["day"], sent["local"])


def kinds(tiny: Tiny) -> list[object]:
    """Return the values that the lenient statement has kept."""
    return [row["kind"] for row in rows(tiny, "lenient__v1")]


def offsets(tiny: Tiny, part: int) -> list[int]:
    """Return the offsets of a partition whose messages are rows of the first version."""
    return [row["at"] for row in rows(tiny, "kept__v1") if row["part"] == part]


def rows(tiny: Tiny, table: str) -> list[dict[str, Any]]:
    """Return the rows of a table, as readers in Spark see them."""
    files = committed(tiny.folder / "data/tables" / table)
    return [row for file in files for row in parquet.read_table(file).to_pylist()]
