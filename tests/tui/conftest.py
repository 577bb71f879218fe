"""A project folder, its ledger, and a scripted agent, for tests of commands and operations."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from ledger_rows import environment_row

from core.ipc import framing
from core.model.errors import HeadgateError
from core.model.names import TableName
from core.observed.versions import Binding, Deployment, Measurement
from core.project.revision import RevisionTexts
from state.ledger import Ledger, create_or_open
from state.migrations import SCHEMA_VERSION
from tui.project_folder.environment_selection import SelectedEnvironment, select_environment

MANIFEST = """\
project: shop
id: 5b0e4a52-9df2-4a52-9c0c-0f6f8d1a2b3c
default_env: dev
environments:
  dev:
    data: data
  prod:
    protected: true
    data: prod-data
"""

COLUMNS = "(id BIGINT, kind STRING)"

FILES = {
    "headgate.yml": MANIFEST,
    "pipelines/sources/p/landed/sql-scripts/ddl.landed.sql": f"CREATE TABLE landed {COLUMNS} USING json LOCATION 'in';",
    "pipelines/sources/p/a/sql-scripts/ddl.a.sql": f"CREATE TABLE a {COLUMNS} USING parquet;",
    "pipelines/sources/p/a/sql-scripts/dml.a.sql": "INSERT INTO a SELECT id, kind FROM STREAM landed;",
    "pipelines/facts/p/b/sql-scripts/ddl.b.sql": f"CREATE TABLE b {COLUMNS} USING parquet;",
    "pipelines/facts/p/b/sql-scripts/dml.b.sql": "INSERT INTO b SELECT id, kind FROM STREAM a;",
}


@dataclass
class ScriptedAgent:
    """Answers each operation as scripted: with a result, a refusal, or a function of the request."""

    path: str
    hello: dict[str, Any] = field(
        default_factory=lambda: {"program": "0.1.0", "protocol": framing.PROTOCOL, "ledger": SCHEMA_VERSION, "pid": 1}
    )
    script: dict[str, Any] = field(default_factory=dict)
    heard: list[dict[str, Any]] = field(default_factory=list)
    silent: frozenset[str] = frozenset()
    """Operations that are never answered."""
    released: threading.Event = field(default_factory=threading.Event)

    def serve(self) -> None:
        Path(self.path).parent.mkdir(parents=True, exist_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(self.path)
        self._listener.listen(16)
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self.released.set()
        # Only a shutdown wakes up a thread that is waiting in accept (socket(7)).
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        Path(self.path).unlink(missing_ok=True)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        # An interrupted caller hangs up between two frames.
        with suppress(BrokenPipeError, ConnectionResetError), connection, connection.makefile("rb") as incoming:
            if _read(incoming) is None:
                return
            connection.sendall(framing.encode_frame({"hello": self.hello}))
            request = _read(incoming)
            if request is None:
                return
            self.heard.append(request)
            if request["op"] in self.silent:
                self.released.wait()
                return
            connection.sendall(framing.encode_frame(self._answer(request)))

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        answer = self.script.get(request["op"], {})
        answer = answer(request) if callable(answer) else answer
        if isinstance(answer, HeadgateError):
            return {"id": request["id"], "ok": False, "error": answer.as_json()}
        return {"id": request["id"], "ok": True, "result": answer}


def _read(incoming: Any) -> dict[str, Any] | None:
    header = incoming.read(framing.FRAME_HEADER)
    return (
        framing.decode_frame(incoming.read(framing.frame_length(header)))
        if len(header) == framing.FRAME_HEADER
        else None
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of three tables as the current folder; its home is beside it."""
    root = tmp_path / "shop"
    for path, text in FILES.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    monkeypatch.setenv("HEADGATE_HOME", str(tmp_path / "home"))
    for name in ("HEADGATE_PROJECT", "HEADGATE_ENV"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(root)
    return root


@pytest.fixture
def place(folder: Path, tmp_path: Path) -> SelectedEnvironment:
    return select_environment({"HEADGATE_HOME": str(tmp_path / "home")}, str(folder))


@pytest.fixture
def agent(place: SelectedEnvironment) -> Iterator[ScriptedAgent]:
    """An agent on the environment's socket."""
    scripted = ScriptedAgent(place.where.socket)
    scripted.serve()
    yield scripted
    scripted.close()


@pytest.fixture
def ledger(place: SelectedEnvironment) -> Iterator[Ledger]:
    """The environment's ledger, open for writing, with a living agent."""
    facts = environment_row(
        ledger_id="9f2c", project_id=place.project_id, project=place.project, environment=place.environment,
        agent_pid=1, agent_started_at=1.0,
    )  # fmt: skip
    with create_or_open(Path(place.where.ledger), facts) as opened:
        yield opened


@pytest.fixture
def deployed() -> Callable[..., Deployment]:
    return _deployed


@pytest.fixture
def measured() -> Callable[..., Measurement]:
    return lambda table, **fields: Measurement(
        **({"table": TableName(table), "version": 1, "at": 10.0, "lag_rows": 0, "trend": "steady"} | fields)
    )


def _deployed(table: str, *, reads: str = "landed", **fields: Any) -> Deployment:
    version = 0 if reads == "landed" else 1
    every: dict[str, Any] = dict(
        table=TableName(table), version=1, product="p", layer="fact", owner="", revision="rev", texts=RevisionTexts(),
        compiled="SELECT", compiled_ddl="CREATE", columns=("id", "kind"), format="parquet", folder="/t",
        checkpoint="/c", checkpoint_id="id", trigger="5 seconds", mode="append", stateful=False, wanted="running",
        state="running", state_since=1.0, active=True, bindings=(Binding(TableName(reads), version, True),),
    )  # fmt: skip
    return Deployment(**(every | fields))
