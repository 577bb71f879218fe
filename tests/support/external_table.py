"""A Delta table that another party owns and writes, and that a project reads."""

import hashlib
import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tiny_project import Tiny

from pipelines.spark_connect.session import Session

LANDED = "CREATE TABLE landed (id BIGINT, kind STRING) USING delta LOCATION 'lake/orders';"
"""The table's declaration in the project."""


@dataclass
class Owner:
    """The owner of the table, who writes it in separate sessions on the server that Headgate uses."""

    tiny: Tiny
    rows: int = 0

    @property
    def folder(self) -> Path:
        return self.tiny.folder / "data/lake/orders"

    def sql(self, *texts: str) -> None:
        """Run SQL statements in which {t} is replaced by the table."""
        place = json.loads((self.tiny.home() / "pool.json").read_text())
        token = (self.tiny.home() / "pool.token").read_text()
        session = Session(f"sc://127.0.0.1:{place['port']}", token, str(uuid.uuid4()))
        session.attach()
        for text in texts:
            session.spark.sql(text.format(t=f"delta.`{self.folder}`"))
        session.close()

    def make(self) -> None:
        """Create the table, without rows."""
        self.sql("CREATE TABLE {t} (id BIGINT, kind STRING) USING delta")

    def append(self, rows: int, more: str = "") -> None:
        """Insert `rows` rows with consecutive ids; `more` is SQL for the values of additional columns."""
        self.sql(f"INSERT INTO {{t}} SELECT {self.rows} + 1 + id, 'a'{more} FROM range({rows})")
        self.rows += rows

    def content(self) -> dict[str, str]:
        """Describe every path in the table's folder: type or digest, mode, inode and modification time."""
        found = {}
        for path in sorted((self.folder, *self.folder.rglob("*"))):
            about = path.lstat()
            kind = "folder" if path.is_dir() else hashlib.sha256(path.read_bytes()).hexdigest()
            found[str(path.relative_to(self.folder))] = f"{kind} {about.st_mode:o} {about.st_ino} {about.st_mtime_ns}"
        return found

    @contextmanager
    def nothing_changes(self) -> Iterator[None]:
        """Raise AssertionError if the block changes anything in the table's folder."""
        before = self.content()
        yield
        now = self.content()
        assert now == before, {name: (before.get(name), now.get(name)) for name in {*before, *now}}
