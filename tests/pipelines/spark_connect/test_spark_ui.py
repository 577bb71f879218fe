"""The REST API of a server as it is read: few requests, a deadline, and a token that appears in no message."""

import base64
import hashlib
import hmac
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from core.model.errors import PoolUnreachable
from core.observed.spark_work import ServerHeap, executors_of, stage_times
from pipelines.spark_connect import spark_ui
from pipelines.spark_connect.spark_ui import SparkUi, signed_token, ui_key
from tests.core.observed.test_spark_work import EXECUTOR, JOB, STAGE, metrics
from tests.support.fake_spark_ui import FakeSparkUi, fake_spark_ui

SECRET = "s3cret-of-the-ui"


@pytest.fixture
def server() -> Iterator[FakeSparkUi]:
    with fake_spark_ui() as found:
        found.answers = {"/executors": [EXECUTOR], "/jobs": [JOB], "/stages/11": [STAGE], "/stages/12": [STAGE]}
        yield found


def ui_of(server: FakeSparkUi) -> SparkUi:
    return SparkUi(server.url, lambda: SECRET)


def test_executors_are_read_with_the_token_in_a_header(server: FakeSparkUi) -> None:
    assert ui_of(server).executors() == executors_of([EXECUTOR])
    assert server.tokens == {f"Bearer {SECRET}"}


def test_the_heap_is_read_from_the_metrics(server: FakeSparkUi) -> None:
    ui = ui_of(server)
    assert ui.heap() is None, "a server without metrics"
    server.metrics = metrics(5, 10)
    assert ui.heap() == ServerHeap(5, 10)
    server.metrics = {"gauges": None}
    with pytest.raises(PoolUnreachable):
        ui.heap()


def test_the_stages_of_the_latest_batches_are_read_one_by_one(server: FakeSparkUi) -> None:
    older = [JOB | {"description": f"batch = {batch}", "stageIds": [batch]} for batch in (4, 5, 6)]
    server.answers |= {"/jobs": [*older, JOB], "/stages/6": [STAGE]}
    ui = ui_of(server)
    assert ui.stages("r1") == (stage_times([STAGE], 7), stage_times([STAGE], 7), stage_times([STAGE], 6))
    paths = [path.rpartition("local-1")[2].partition("?")[0] for path in server.asked]
    assert paths == ["/api/v1/applications", "/jobs", "/stages/11", "/stages/12", "/stages/6"]
    del server.answers["/stages/12"]
    assert len(ui.stages("r1")) == 2, "a stage that Spark has forgotten"
    assert ui.stages("r9") == ()


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"status": 403}, "refuses the agent"),
        ({"status": 503}, "answers with status 503"),
        ({"body": b"<html>"}, "cannot be read: JSONDecodeError"),
        ({"body": b"[]"}, "is not the REST API of Spark"),
        ({"application": "other"}, "is not the REST API of Spark"),
    ],
)
def test_an_answer_that_is_of_no_use_is_named_without_the_token(
    server: FakeSparkUi, changed: dict[str, Any], words: str
) -> None:
    for name, value in changed.items():
        setattr(server, name, value)
    if server.application == "other":
        server.answers["/executors"] = {"error": "no"}
    with pytest.raises(PoolUnreachable, match=words) as raised:
        ui_of(server).executors()
    assert SECRET not in str(raised.value) and server.url in raised.value.summary


def test_a_late_answer_is_given_up(server: FakeSparkUi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_ui, "ANSWERS_S", 0.05)
    server.hangs = threading.Event()
    with pytest.raises(PoolUnreachable, match=r"gave no answer within 0\.05 s"):
        ui_of(server).executors()


def test_a_server_that_has_taken_the_place_of_another_is_asked_for_its_application(server: FakeSparkUi) -> None:
    ui = ui_of(server)
    ui.executors()
    server.application = "local-2"
    with pytest.raises(PoolUnreachable, match="status 404"):
        ui.executors()
    assert ui.executors() == executors_of([EXECUTOR])


def test_a_token_is_signed_with_a_key_that_does_not_reveal_the_server_s_token() -> None:
    key = ui_key("token")
    head, claims, signature = signed_token(key).split(".")
    decoded = [json.loads(base64.urlsafe_b64decode(part + "==")) for part in (head, claims)]
    assert decoded == [{"alg": "HS256"}, {"sub": "headgate"}]
    expected = hmac.new(key, f"{head}.{claims}".encode(), hashlib.sha256).digest()
    assert base64.urlsafe_b64decode(signature + "==") == expected
    assert len(key) == 32 and b"token" not in key
