"""A PostgreSQL server for tests: the demo's cluster in a folder of its own, which can be killed and restarted."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import psycopg
from live_project import alive, until

from pipelines.demo.servers import PostgresCluster
from pipelines.local_pool.detached_servers import free_port

READER, PASSWORD = "reader", "geheim"
"""The only user who needs a password, and the password; see `password_file`."""
ACCESS = f"""host all {READER} 127.0.0.1/32 scram-sha-256
host all all 127.0.0.1/32 trust
host replication all 127.0.0.1/32 trust"""


class PostgresServer(PostgresCluster):
    """A cluster in a folder that the user `nobody` can enter, because PostgreSQL refuses to run as root."""

    def __init__(self, **settings: str) -> None:
        super().__init__(Path(mkdtemp(prefix="headgate-postgres-")), free_port(), ACCESS, **settings)
        self._process: subprocess.Popen[bytes] | None = None
        self.prepare()

    @property
    def dsn(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def password_file(self, folder: Path) -> Path:
        """Write a file with the reader's password, in the format of PGPASSFILE, for libpq and for Spark's driver."""
        file = folder / "pgpass"
        file.write_text(f"127.0.0.1:{self.port}:*:{READER}:{PASSWORD}\n")
        file.chmod(0o600)
        return file

    def start(self) -> None:
        """Start the server, and wait until it accepts connections."""
        self._process = process = self.spawn()

        def accepts() -> bool:
            assert process.poll() is None, f"exit code {process.returncode}: {self.last_words()}"
            return self.answers()

        until(accepts, 60, "the database answers")

    def kill(self) -> None:
        """Kill the server and all of its processes, and wait for their end; its data is kept."""
        if self._process is None or self._process.poll() is not None:
            return
        server = self._process.pid
        os.kill(server, signal.SIGSTOP)
        # Each is in a group of its own. While one of them lives, the server does not start again.
        processes = [int(pid) for pid in Path(f"/proc/{server}/task/{server}/children").read_text().split()]
        os.kill(server, signal.SIGKILL)
        self._process.wait(30)
        for pid in processes:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until(lambda: not any(map(alive, processes)), 30, "the server's processes have ended")

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements in separate transactions; return the rows of the last statement."""
        rows: list[tuple[Any, ...]] = []
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            for statement in statements:
                cursor = connection.execute(statement.encode())
                rows = cursor.fetchall() if cursor.description else []
        return rows


@contextmanager
def running_postgres(**settings: str) -> Iterator[PostgresServer]:
    """Yield a running server, and remove it at the end."""
    server = PostgresServer(**settings)
    try:
        server.start()
        yield server
    finally:
        server.kill()
        shutil.rmtree(server.folder)
