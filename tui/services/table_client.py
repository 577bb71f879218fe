"""The client of a child process that reads and writes rows of tables, and reads positions of statements."""

import json
import subprocess
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from core.integration_tests.positions import Position
from core.model.errors import HeadgateError, error_from_json
from core.model.names import TableName
from core.statement_tests.case import Row, TypedColumns
from core.statement_tests.typed_values import decoded_value, encoded_value
from tui.agent_client import os_processes

RUNNER = "pipelines.integration_tests"

CALL_S = 120.0
"""Longest time for an answer, in seconds, after which the child process is killed."""

END_S = 20.0


class TableClient:
    """Reads and writes rows through a Spark server. The child process starts at once and imports Spark meanwhile.

    Every method may raise HeadgateError. Not thread-safe.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._child = subprocess.Popen(
            os_processes.module_command(RUNNER),
            cwd="/",
            env=os_processes.child_environment(environ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # Ctrl-C is handled here; the child ends with its input.
            start_new_session=True,
            umask=0o077,
        )
        self._said: list[str] = []
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def use_server(self, url: str, token: str) -> None:
        """Open a session on a Spark server, unless it is open already."""
        self._ask("server", url=url, token=token)

    def write(self, ddl: str, folder: str, columns: TypedColumns, rows: Iterable[Row]) -> None:
        """Append rows to an external table, in the format of its declaration; they appear at once, in one file."""
        self._ask("write", ddl=ddl, folder=folder, rows=[_encoded(row, columns) for row in rows])

    def rows(self, name: str, columns: TypedColumns) -> tuple[Row, ...]:
        """Return the rows of a table or view, given its name in the catalog; at most MOST_FOUND + 1."""
        found = self._ask("rows", name=name, columns=[list(each) for each in columns])["rows"]
        return tuple(
            tuple(decoded_value(text, kind) for text, (_, kind) in zip(row, columns, strict=True)) for row in found
        )

    def positions(self, statements: Sequence[Mapping[str, Any]]) -> dict[TableName, Position]:
        """Return the position of each statement, given as table, version, checkpoint, sources and stateful."""
        found = self._ask("positions", statements=list(statements))["positions"]
        return {TableName(each["table"]): Position(**each) for each in found}

    def names(self, prefix: str) -> tuple[str, ...]:
        """Return the names of tables and views in the catalog that begin with a prefix."""
        return tuple(self._ask("names", prefix=prefix)["names"])

    def release(self, session_id: str) -> None:
        """Release a session on the server, which ends the queries in it."""
        self._ask("release", session_id=session_id)

    def close(self) -> None:
        """End the child process, which first releases its session."""
        if self._child.stdin is not None:
            with suppress(OSError):
                self._child.stdin.close()
        try:
            self._child.wait(END_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._listener.join(END_S)
        for pipe in (self._child.stdout, self._child.stderr):
            if pipe is not None:
                pipe.close()

    def _listen(self) -> None:
        for line in self._child.stderr or ():
            self._said = [*self._said[-20:], line]

    def _ask(self, op: str, **arguments: Any) -> dict[str, Any]:
        assert self._child.stdin is not None and self._child.stdout is not None, "both are pipes"
        alarm = threading.Timer(CALL_S, self._child.kill)
        alarm.start()
        try:
            with suppress(BrokenPipeError):
                self._child.stdin.write(json.dumps({"op": op, **arguments}) + "\n")
                self._child.stdin.flush()
            line = self._child.stdout.readline()
        finally:
            alarm.cancel()
        if not line:
            self._listener.join(END_S)
            why = next((each.strip() for each in reversed(self._said) if each.strip()), "it said nothing")
            raise HeadgateError(f"the process that reads tables ended: {why}", remedy="headgate doctor")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise error_from_json(answer["error"])
        return answer


def _encoded(row: Row, columns: TypedColumns) -> list[str | None]:
    return [encoded_value(value, kind) for value, (_, kind) in zip(row, columns, strict=True)]
