"""Jars of functions, each stored under the hash of its content, so that what was deployed never changes."""

import hashlib
import os
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path

from core.model.errors import EngineRefused, Refused
from core.project_reader.paths import LARGEST_JAR
from pipelines.storage.file_store import LOCAL
from pipelines.storage.file_system import reachable, read_json, write_json

JARS = "jars"
"""Name of the folder in an environment's home."""
JAR_MISSING = "HEADGATE_JAR_MISSING"
"""Error class of a statement whose jar is not stored."""


class JarFiles:
    """Jars at known paths, such as those of a project."""

    def __init__(self, paths: Mapping[str, str]) -> None:
        """Use the paths of jars by the hashes of their contents."""
        self._paths = paths

    def path(self, sha256: str, name: str) -> str:
        """Return the file of a jar. Raises EngineRefused if its content is not there, or not any more."""
        place = self._paths.get(sha256, "")
        if _hash_of(Path(place)) != sha256:
            raise EngineRefused(f"no file has the content that {name} had", error_class=JAR_MISSING)
        return place


class JarStore:
    """The jars in one folder. A stored jar is never overwritten; a damaged one counts as missing."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, sha256: str, name: str) -> str:
        """Return the file of a jar after comparing its content with its hash. `name` is the jar's name for people.

        Raises EngineRefused if it is missing or damaged.
        """
        place = self._place(sha256)
        if _hash_of(place) != sha256:
            raise EngineRefused(
                f"{name} is missing or damaged: its copy is {place}",
                remedy=f"copy the jar with sha256 {sha256} there, or deploy the table with another one",
                error_class=JAR_MISSING,
            )
        return str(place)

    def has(self, sha256: str) -> bool:
        """True if the jar is stored undamaged. Reads the whole file."""
        return _hash_of(self._place(sha256)) == sha256

    def hashes(self) -> frozenset[str]:
        """Return the hashes of the stored jars, without reading them; none if the folder does not exist."""
        return frozenset(path.stem for path in self._folder.glob("*.jar"))

    def remove(self, sha256: str) -> None:
        """Remove a jar if it is there. Raises TryAgain if that fails."""
        with reachable(str(self._folder)):
            self._place(sha256).unlink(missing_ok=True)

    def add(self, sha256: str, name: str, sources: Iterable[Path]) -> None:
        """Store a jar, unless it is stored already, from the first of several files that has its content.

        `name` is the jar's path for people. The jar is on the disk before this returns, even if the power fails.
        Raises Refused if no file has the content, and TryAgain if the folder cannot be written.
        """
        if self.has(sha256):
            return
        content = next((found for each in sources if (found := _content(each, sha256)) is not None), None)
        if content is None:
            raise Refused(
                f"{name} has changed or cannot be read since this plan was made",
                remedy="plan again, or restore the jar",
            )
        place = self._place(sha256)
        with reachable(str(self._folder)):
            self._folder.mkdir(mode=0o2750, exist_ok=True)
            temporary = self._folder / f".{sha256}.{secrets.token_hex(4)}"
            try:
                with open(temporary, "wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(temporary, place)
            finally:
                temporary.unlink(missing_ok=True)
            LOCAL.sync(str(self._folder))

    def _place(self, sha256: str) -> Path:
        return self._folder / f"{sha256}.jar"


class JarSessionsFile:
    """The ids of the sessions of jars, in a file of an environment's home."""

    def __init__(self, home: Path) -> None:
        self._file = home / "jar-sessions.json"

    def read(self) -> dict[str, str]:
        """Return the ids by the hash of the jar; none before the first write. Raises TryAgain."""
        with reachable(str(self._file.parent)):
            return {str(sha256): str(id) for sha256, id in read_json(str(self._file)).items()}

    def write(self, ids: Mapping[str, str]) -> None:
        """Replace the ids. Raises TryAgain."""
        with reachable(str(self._file.parent)):
            write_json(str(self._file), ids)
            LOCAL.sync(str(self._file.parent))


def _hash_of(place: Path) -> str:
    try:
        with open(place, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""


def _content(place: Path, sha256: str) -> bytes | None:
    try:
        # A path comes from the client, and a pipe would never end.
        if not place.is_file() or place.stat().st_size > LARGEST_JAR:
            return None
        content = place.read_bytes()
    except OSError:
        return None
    return content if hashlib.sha256(content).hexdigest() == sha256 else None
