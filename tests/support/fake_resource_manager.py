"""A ResourceManager of YARN without YARN: its REST API, with answers of Hadoop 3.4.2."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from answering_server import answering_server

ID = "application_1795900000000_0001"

RUNNING: dict[str, Any] = {
    "id": ID, "user": "root", "name": "cluster", "queue": "root.default", "state": "RUNNING",
    "finalStatus": "UNDEFINED", "progress": 10.0, "diagnostics": "", "applicationType": "SPARK",
    "startedTime": 1795900100000, "finishedTime": 0, "allocatedMB": 3840, "allocatedVCores": 3,
    "runningContainers": 3,
}  # fmt: skip
FINISHED = {
    **RUNNING, "state": "FINISHED", "finalStatus": "SUCCEEDED", "finishedTime": 1795900202000, "allocatedMB": -1,
    "allocatedVCores": -1, "runningContainers": -1,
}  # fmt: skip
KILLED = {**FINISHED, "state": "KILLED", "finalStatus": "KILLED"}
METRICS = {
    "appsSubmitted": 2, "appsRunning": 1, "activeNodes": 2, "lostNodes": 1, "unhealthyNodes": 0,
    "totalVirtualCores": 16, "availableVirtualCores": 13,
}  # fmt: skip


def _not_found(id: str) -> dict[str, Any]:
    return {"RemoteException": {
        "exception": "NotFoundException", "message": f"java.lang.Exception: app with id: {id} not found",
        "javaClassName": "org.apache.hadoop.yarn.webapp.NotFoundException",
    }}  # fmt: skip


@dataclass
class FakeResourceManager:
    """What the ResourceManager reports, and how it answers; both may be changed while it runs."""

    port: int = 0
    applications: list[dict[str, Any]] = field(default_factory=lambda: [RUNNING])
    body: bytes | None = None
    """What it answers instead of a document."""
    status: int = 200
    hangs: threading.Event | None = None
    """If given, answers wait for this event."""

    @property
    def page(self) -> str:
        """URL of the web interface."""
        return f"http://127.0.0.1:{self.port}"

    def answer(self, path: str) -> tuple[int, bytes]:
        """Return the status and the body of the answer to a path."""
        if self.hangs is not None:
            self.hangs.wait(60)
        if self.body is not None or self.status != 200:
            return self.status, self.body or b""
        if path == "/ws/v1/cluster/metrics":
            return 200, json.dumps({"clusterMetrics": METRICS}).encode()
        id = path.removeprefix("/ws/v1/cluster/apps/")
        found = next((each for each in self.applications if each["id"] == id), None)
        return (
            (404, json.dumps(_not_found(id)).encode()) if found is None else (200, json.dumps({"app": found}).encode())
        )


@contextmanager
def fake_resource_manager() -> Iterator[FakeResourceManager]:
    """Yield a ResourceManager on which one application runs."""
    described = FakeResourceManager()
    with answering_server(lambda path, token: described.answer(path)) as described.port:
        try:
            yield described
        finally:
            if described.hangs is not None:
                described.hangs.set()
