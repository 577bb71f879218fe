"""What a connector's status says about the topics that it fills; an HTTP server plays Kafka Connect."""

import json
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Event
from typing import Any

import pytest
from kafka_broker import free_port
from pytest_httpserver import HTTPServer

from core.model.states import TableFaultKind
from pipelines.storage import kafka_connect
from pipelines.storage.kafka_connect import fault_of_connector

RUNNING: dict[str, Any] = {"state": "RUNNING", "worker_id": "10.0.0.1:8083"}


def failed(trace: str) -> dict[str, Any]:
    return {"state": "FAILED", "trace": trace, **{"worker_id": "w"}}


def said(server: HTTPServer, answer: Any, status: int = 200) -> tuple[str, str] | None:
    """Return fault and remedy for an answer of the connector `orders`, without the server's address."""
    text = answer if isinstance(answer, str) else json.dumps(answer)
    server.clear()
    server.expect_request("/c/connectors/orders/status").respond_with_data(text, status=status)
    fault = fault_of_connector(server.url_for("/c/connectors/orders"))
    if fault is None:
        return None
    assert fault.kind is TableFaultKind.NOT_FED
    return tuple(each.replace(f"{server.host}:{server.port}", "HERE") for each in (fault.why, fault.remedy))  # type: ignore[return-value]  # Two of two.


def status(connector: dict[str, Any], *tasks: dict[str, Any]) -> dict[str, Any]:
    return {"name": "orders", "connector": connector, "tasks": [{"id": n, **each} for n, each in enumerate(tasks)]}


@pytest.mark.parametrize(
    ("answer", "why", "remedy"),
    [
        (
            status(RUNNING, RUNNING, failed("org.X: login failed, password=hush\n\tat org.Y\n")),
            "task 1 of connector orders at HERE is FAILED: org.X: login failed, password=*****",
            "correct the cause, then POST http://HERE/c/connectors/orders/restart?includeTasks=true",
        ),
        (
            status({"state": "PAUSED"}, {"state": "PAUSED"}, failed("")),
            "task 1 of connector orders at HERE is FAILED",
            "correct the cause, then POST http://HERE/c/connectors/orders/restart?includeTasks=true",
        ),
        (
            status({"state": "PAUSED"}, {"state": "PAUSED"}),
            "connector orders at HERE is PAUSED",
            "resume it: PUT http://HERE/c/connectors/orders/resume",
        ),
        (
            status(RUNNING, {"state": "UNASSIGNED"}),
            "task 0 of connector orders at HERE is UNASSIGNED",
            "it fills its topics again when it is RUNNING",
        ),
        (status(RUNNING), "connector orders at HERE has no task", "see the log of Kafka Connect"),
        (
            status(RUNNING, {"state": "\x1b[31m" + "X" * 99}),
            "task 0 of connector orders at HERE is \\x1b[31m" + "X" * 31 + "…",
            "it fills its topics again when it is RUNNING",
        ),
    ],
)
def test_a_connector_that_does_not_run_is_a_fault(httpserver: HTTPServer, answer: Any, why: str, remedy: str) -> None:
    assert said(httpserver, answer) == (why, remedy)


def test_a_connector_whose_tasks_run_is_no_fault(httpserver: HTTPServer) -> None:
    assert said(httpserver, status(RUNNING, RUNNING, RUNNING)) is None


def test_a_connector_that_does_not_exist_and_another_server_are_faults(httpserver: HTTPServer) -> None:
    assert said(httpserver, {"error_code": 404}, 404) == (
        "there is no connector orders at HERE", "create it, or correct connector in the yml of the table"
    )  # fmt: skip
    for answer, code in (
        ("<html>", 200),
        ("[" * 100_000, 200),
        ("[]", 200),
        ('{"connector": 3, "tasks": 4}', 200),
        ("{}", 503),
    ):
        found = said(httpserver, answer, code)
        assert found is not None and found[0] == f"connector orders at HERE has no status (HTTP {code})"


def test_a_worker_that_does_not_answer_is_a_fault() -> None:
    port = free_port()
    fault = fault_of_connector(f"http://127.0.0.1:{port}/connectors/orders")
    assert fault is not None
    assert fault.sentence == (
        f"Kafka Connect, which runs connector orders at 127.0.0.1:{port}, does not answer: Connection refused; "
        "start it again"
    )


def test_a_worker_whose_answer_arrives_byte_by_byte_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_connect, "ANSWER_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
        ended = Event()
        dripping = pool.submit(_drip, server, ended)
        port = server.getsockname()[1]
        fault = fault_of_connector(f"http://127.0.0.1:{port}/connectors/orders")
        ended.set()
        dripping.result()
    assert fault is not None and fault.why == (
        f"Kafka Connect, which runs connector orders at 127.0.0.1:{port}, does not answer: timed out"
    )


def _drip(server: socket.socket, ended: Event) -> None:
    """Send the head of an answer, then a byte every 0.1 s until the client has given up."""
    with server.accept()[0] as client, suppress(OSError):
        client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while not ended.wait(0.1):
            client.sendall(b" ")
