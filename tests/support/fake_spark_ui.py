"""The REST API of a Spark server without Spark, which answers as told."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from answering_server import answering_server


@dataclass
class FakeSparkUi:
    """What the server answers; it may be changed while it runs."""

    port: int = 0
    application: str = "local-1"
    answers: dict[str, Any] = field(default_factory=dict)
    """Documents by what follows the application in the path, without the query."""
    metrics: dict[str, Any] | None = None
    status: int = 200
    body: bytes | None = None
    """What it answers instead of a document."""
    hangs: threading.Event | None = None
    """If given, answers wait for this event."""
    asked: list[str] = field(default_factory=list)
    tokens: set[str] = field(default_factory=set)

    @property
    def url(self) -> str:
        """URL of the web interface."""
        return f"http://127.0.0.1:{self.port}"

    def answer(self, path: str) -> tuple[int, bytes]:
        """Return the status and the body of an answer."""
        before, _, after = path.partition(f"/api/v1/applications/{self.application}")
        if path == "/metrics/json/":
            found: Any = self.metrics
        elif path == "/api/v1/applications":
            found = [{"id": self.application}]
        else:
            found = self.answers.get(after.partition("?")[0]) if not before else None
        if found is None and self.status == 200:
            return 404, b"no such thing"
        return self.status, json.dumps(found).encode() if self.body is None else self.body


@contextmanager
def fake_spark_ui() -> Iterator[FakeSparkUi]:
    """Yield a server with an application and nothing about it."""
    described = FakeSparkUi()

    def answer(path: str, token: str) -> tuple[int, bytes]:
        described.asked.append(path)
        described.tokens.add(token)
        if described.hangs is not None:
            described.hangs.wait(60)
        return described.answer(path)

    with answering_server(answer) as described.port:
        try:
            yield described
        finally:
            if described.hangs is not None:
                described.hangs.set()
