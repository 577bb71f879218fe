"""The parse cache: a separate SQLite file of parse results, keyed by content. Using it never raises an error.

Deleting the file only costs a few seconds. A file that is unreadable, damaged, owned by another user or written by
another version of the parsers is treated as empty. A read-only file is not changed.
"""

import hashlib
import os
import sqlite3
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Set
from importlib.util import find_spec
from pathlib import Path

from core.project_reader.parse_cache import ParseCache
from core.project_reader.project_copy import ReadProject, digest_of, pack_project, unpack_project

READER_VERSIONS_KEPT = 3
"""Number of parser versions whose results are kept.

Keeping several versions prevents checkouts that are used in turn from evicting each other's results.
"""

FEW = 400
"""Number of single look-ups before the whole file is read at once. Small plans need fewer look-ups."""

_WAIT_S = 0.25
"""Longest wait, in seconds, for another process's transaction."""

_PAUSE_S = 5.0
"""Pause, in seconds, before a locked file is read again, since a plan may look up thousands of results."""

_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS reader (version TEXT PRIMARY KEY, used_at REAL NOT NULL) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS fact (version TEXT NOT NULL, key BLOB NOT NULL, crc INTEGER NOT NULL,"
    " body TEXT NOT NULL, PRIMARY KEY (version, key)) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS project (version TEXT PRIMARY KEY, key BLOB NOT NULL, crc INTEGER NOT NULL,"
    " body BLOB NOT NULL)",
)


class ParseCacheFile:
    """The cache file of a project's parse results. Several processes may use the file at the same time."""

    def __init__(self, path: str, version: str | None = None) -> None:
        """Use the file at `path`, which need not exist. An empty path or version disables the cache."""
        self._path = path
        self._version = readers_version() if version is None else version

    def load(self) -> ParseCache:
        """Return a parse cache that reads from the file, or an empty one if the file cannot be read."""
        if not self._version or not _is_ours(self._path):
            return ParseCache()
        return ParseCache(look_up=_StoredFacts(self._path, self._version, self._delete_damaged))

    def save(self, facts: ParseCache, *, whole: bool = True) -> bool:
        """Write the new results in `facts` to the file; return False if nothing was written.

        If a `whole` project was read, results that it did not use are removed once there are many of them.
        """
        fresh = facts.take_fresh()
        used = facts.keys() if whole else None
        return bool(fresh) and self._written(lambda database: self._add(database, fresh, used))

    def load_project(self, texts: Mapping[str, str], environment: str) -> ReadProject | None:
        """Return the stored project that was read from the same contents for an environment; None if there is none."""
        if not self._version or not _is_ours(self._path):
            return None
        try:
            database = _open(self._path, "ro")
            try:
                found = "SELECT crc, body FROM project WHERE version = ? AND key = ?"
                crc, body = database.execute(found, (self._version, digest_of(texts, environment))).fetchone() or (
                    0,
                    None,
                )
            finally:
                database.close()
        except sqlite3.Error as error:
            self._delete_damaged(error)
            return None
        return unpack_project(body, texts) if isinstance(body, bytes) and zlib.crc32(body) == crc else None

    def save_project(self, texts: Mapping[str, str], environment: str, found: ReadProject) -> bool:
        """Store the project that was read from the file contents `texts` for an environment.

        Returns False if it could not be written.
        """
        body = pack_project(found, texts)
        row = (self._version, digest_of(texts, environment), zlib.crc32(body), body)
        put = "INSERT OR REPLACE INTO project VALUES (?, ?, ?, ?)"
        return self._written(lambda database: database.execute(put, row))

    def _written(self, write: Callable[[sqlite3.Connection], object]) -> bool:
        if not self._version or not self._path:
            return False
        try:
            os.makedirs(os.path.dirname(self._path), mode=0o2750, exist_ok=True)
            if os.path.lexists(self._path) and not _is_ours(self._path):
                return False
            self._write(write)
        except sqlite3.Error as error:
            self._delete_damaged(error)
            return False
        except OSError:
            return False
        return True

    def _write(self, write: Callable[[sqlite3.Connection], object]) -> None:
        database = _open(self._path, "rwc")
        try:
            os.chmod(self._path, 0o600)
            # A power cut may lose the latest results without harm; checksums reveal a damaged file.
            database.execute("PRAGMA synchronous = OFF")
            database.execute("BEGIN IMMEDIATE")
            for statement in _SCHEMA:
                database.execute(statement)
            database.execute("INSERT OR REPLACE INTO reader VALUES (?, ?)", (self._version, time.time()))
            write(database)
            database.execute("COMMIT")
        finally:
            database.close()

    def _add(self, database: sqlite3.Connection, fresh: Mapping[bytes, str], used: Set[bytes] | None) -> None:
        rows = ((self._version, key, _crc(body), body) for key, body in sorted(fresh.items()))
        database.executemany("INSERT OR REPLACE INTO fact VALUES (?, ?, ?, ?)", rows)
        self._forget(database, used)

    def _forget(self, database: sqlite3.Connection, used: Set[bytes] | None) -> None:
        """Remove results of old parser versions.

        Results outside `used` are also removed, once they clearly outnumber the used results.
        """
        stale = "version NOT IN (SELECT version FROM reader ORDER BY used_at DESC LIMIT ?)"
        for table in ("fact", "project", "reader"):
            database.execute(f"DELETE FROM {table} WHERE {stale}", (READER_VERSIONS_KEPT,))
        if used is None:
            return
        mine = (self._version,)
        (count,) = database.execute("SELECT count(*) FROM fact WHERE version = ?", mine).fetchone()
        if count > 2 * len(used) + 1000:
            keys = [key for (key,) in database.execute("SELECT key FROM fact WHERE version = ?", mine)]
            gone = ((self._version, key) for key in keys if key not in used)
            database.executemany("DELETE FROM fact WHERE version = ? AND key = ?", gone)

    def _delete_damaged(self, error: sqlite3.Error) -> None:
        if getattr(error, "sqlite_errorname", "") in ("SQLITE_CORRUPT", "SQLITE_NOTADB") and _is_ours(self._path):
            for ending in ("-journal", ""):
                try:
                    os.unlink(self._path + ending)
                except OSError:
                    continue


class _StoredFacts:
    """A look-up of stored parse results, which reads the whole file after `FEW` look-ups.

    If the file cannot be read, nothing is found. If another process has locked the file, nothing is found for
    `_PAUSE_S` seconds.
    """

    def __init__(self, path: str, version: str, delete_damaged: Callable[[sqlite3.Error], None]) -> None:
        self._path = path
        self._version = version
        self._delete_damaged = delete_damaged
        self._asked = 0
        self._busy_until = 0.0
        self._database: sqlite3.Connection | None = None
        self._all: dict[bytes, str] | None = None

    def __call__(self, key: bytes) -> str | None:
        if self._all is None:
            if time.monotonic() < self._busy_until:
                return None
            try:
                self._asked += 1
                if self._asked <= FEW:
                    return dict(self._read(" AND key = ?", key)).get(key)
                self._all = dict(self._read(""))
            except sqlite3.Error as error:
                if getattr(error, "sqlite_errorname", "").startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
                    self._busy_until = time.monotonic() + _PAUSE_S
                    return None
                self._all = {}
                self._delete_damaged(error)
            self._database = None
        return self._all.get(key)

    def _read(self, condition: str, *keys: bytes) -> Iterator[tuple[bytes, str]]:
        database = self._database = self._database or _open(self._path, "ro")
        mine = f"SELECT key, crc, body FROM fact WHERE version = ?{condition}"
        for key, crc, body in database.execute(mine, (self._version, *keys)).fetchall():
            if isinstance(body, str) and _crc(body) == crc:
                yield key, body


def readers_version() -> str:
    """Return a digest of the code and libraries that parse source files; empty if they cannot be read."""
    digest = hashlib.sha256(f"{sys.version_info[:3]}".encode())
    try:
        for path in _sources():
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    except OSError:
        return ""
    return digest.hexdigest()[:16]


_PARSER_PACKAGES = ("lineage", "model", "policy", "project", "project_reader", "sql", "text")
"""Packages of core whose code determines parse results."""


def _sources() -> list[Path]:
    core, sqlglot, yaml = find_spec("core"), find_spec("sqlglot"), find_spec("yaml")
    if not (core and core.origin and sqlglot and sqlglot.origin and yaml and yaml.origin):
        raise FileNotFoundError("core, sqlglot or yaml")
    folder = Path(core.origin).parent
    ours = (
        folder / "__init__.py",
        *(path for package in _PARSER_PACKAGES for path in (folder / package).rglob("*.py")),
    )
    return [*sorted(ours), Path(sqlglot.origin).parent / "_version.py", Path(yaml.origin)]


def _open(path: str, mode: str) -> sqlite3.Connection:
    from urllib.parse import quote

    uri = f"file:{quote(os.path.abspath(path))}?mode={mode}"
    return sqlite3.connect(uri, uri=True, timeout=_WAIT_S, isolation_level=None, check_same_thread=False)


def _is_ours(path: str) -> bool:
    """True if this user owns the file. Other files are not trusted, since their content affects plans."""
    try:
        return os.stat(path).st_uid == os.getuid()
    except OSError:
        return False


def _crc(body: str) -> int:
    return zlib.crc32(body.encode("utf-8", "surrogatepass"))
