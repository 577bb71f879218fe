"""A standalone master without Spark: an address that accepts connections, and a web interface that answers as told."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from answering_server import answering_server

from core.project.model import Pool


def worker(host: str = "127.0.0.1", state: str = "ALIVE", *, cores: int = 2) -> dict[str, Any]:
    """Return an entry of `workers` as a master of Spark 4.2.0 writes it."""
    return {
        "id": f"worker-{host}", "host": host, "port": 7078, "cores": cores, "coresused": 0, "coresfree": cores,
        "memory": 1024, "memoryfree": 1024, "state": state, "lastheartbeat": 1795894002419,
    }  # fmt: skip


def application(name: str = "headgate-1", *, cores: int = 2) -> dict[str, Any]:
    """Return an entry of `activeapps`."""
    return {
        "id": "app-1", "name": name, "state": "RUNNING", "cores": cores, "user": "root", "memoryperexecutor": 768,
        "starttime": 1795946400000, "duration": 3000,
    }  # fmt: skip


def ended_application(id: str, state: str) -> dict[str, Any]:
    """Return an entry of `completedapps`: an application that ended five seconds after its start."""
    return {**application(), "id": id, "state": state, "starttime": 1795946400000, "duration": 5000}


@dataclass
class FakeMaster:
    """What the master reports, and how it answers; both may be changed while it runs."""

    port: int = 0
    status: str = "ALIVE"
    workers: list[dict[str, Any]] = field(default_factory=lambda: [worker()])
    applications: list[dict[str, Any]] = field(default_factory=list)
    ended: list[dict[str, Any]] = field(default_factory=list)
    body: bytes | None = None
    """What the web interface answers instead of the document."""
    hangs: threading.Event | None = None
    """If given, answers wait for this event."""

    @property
    def page(self) -> str:
        """URL of the web interface."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def master(self) -> str:
        """The master's address: the same port, because only its connections matter."""
        return f"spark://127.0.0.1:{self.port}"

    @property
    def pool(self) -> Pool:
        """A pool on this cluster."""
        return Pool("cluster", cores=3, memory="768m", master=self.master, master_ui=self.page)

    def document(self) -> bytes:
        """Return the body of an answer."""
        if self.body is not None:
            return self.body
        found = {"url": self.master, "status": self.status, "workers": self.workers, "activeapps": self.applications}
        found["completedapps"] = self.ended
        return json.dumps(found).encode()


@contextmanager
def fake_master() -> Iterator[FakeMaster]:
    """Yield a master with one worker on this machine."""
    described = FakeMaster()

    def answer(path: str, token: str) -> tuple[int, bytes]:
        if described.hangs is not None:
            described.hangs.wait(60)
        return 200 if path == "/json/" else 404, described.document()

    with answering_server(answer) as described.port:
        try:
            yield described
        finally:
            if described.hangs is not None:
                described.hangs.set()
