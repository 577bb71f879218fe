"""An ephemeral environment: one that a command creates for itself, and deletes before it ends.

Everything that it has lies in one folder with its name, below the folder of all environments. A file there records it
before anything else exists, and a lock file there is locked by the command as long as the environment is in use.
"""

import json
from dataclasses import asdict, dataclass, field

from core.model.errors import UsageError
from core.text.sentence import Fact, FactKind

RECORD_FILE = "ephemeral.json"
"""Name of the file with the record."""

LOCK_FILE = "ephemeral.lock"
"""Name of the file that the command keeps locked. Without a lock, nobody uses the environment any more."""

PREFIX = "it_"
"""Beginning of the names of all ephemeral environments."""


@dataclass(frozen=True, slots=True)
class EphemeralRecord:
    """What is known of an ephemeral environment before anything of it exists; no secret is among it."""

    name: str
    project: str = ""
    """Name of the project."""
    branch: str = ""
    """Absolute path of the project folder from which it was generated."""
    base: str = ""
    """The environment whose variables and settings it has."""
    purpose: str = ""
    """The command that created it."""
    created_at: float = 0.0
    """In epoch seconds."""
    created_by: str = ""
    shared_server: str = ""
    """Address of the Spark server of another environment that it uses; empty if it has a server of its own."""
    topics: tuple[str, ...] = ()
    """Locations of topics of its own; secrets in them are references."""

    @property
    def topic_prefix(self) -> str:
        """Beginning of the names of all its topics."""
        return f"{self.name}_"

    def as_text(self) -> str:
        """Return the content of the file."""
        return json.dumps(asdict(self), indent=2) + "\n"


def record_from_text(text: str) -> EphemeralRecord:
    """Read the content of a record's file. Raises UsageError if it is damaged."""
    try:
        found = json.loads(text)
        return EphemeralRecord(**{**found, "topics": tuple(found.get("topics", ()))})
    except (ValueError, TypeError, AttributeError) as error:
        raise UsageError(f"the record is damaged: {error}", remedy="delete its folder by hand") from error


class Remains(FactKind):
    """What an ephemeral environment has left behind."""

    PROCESS = "{process} still runs"
    FOLDER = "{folder} still exists"
    SOCKET = "the socket {path} still exists"
    NAMES = "{names} still in the catalog of {server}"
    TOPICS = "the topics {names} still exist at {servers}; {folder} names them, and the next command deletes them"
    TOPICS_UNKNOWN = (
        "it is unknown whether topics of {environment} still exist at {servers}: {why}; {folder} names them, and the "
        "next command deletes them"
    )
    UNKNOWN = "it is unknown whether names of {environment} are still in the catalog of {server}: {why}"


@dataclass(frozen=True, slots=True)
class Teardown:
    """The end of an ephemeral environment, and what was checked after it."""

    environment: str
    ended: tuple[str, ...]
    """Names and pids of the processes that were ended."""
    folder: str
    """The folder that contained everything."""
    checked_server: str = ""
    """Address of the shared server whose catalog was searched; empty if the environment had a server of its own."""
    left: tuple[Fact[Remains], ...] = field(default=())
    checked_brokers: tuple[str, ...] = ()
    """Brokers whose topics were listed, one entry for each cluster; empty if the environment had no topics."""

    def as_json(self) -> dict[str, object]:
        """Return the object that `--json` prints."""
        return {
            "environment": self.environment,
            "ended": list(self.ended),
            "folder": self.folder,
            "server": self.checked_server or None,
            "brokers": list(self.checked_brokers),
            "left": [each.as_json() for each in self.left],
        }

    def words(self) -> str:
        """Say what was ended and checked or, if anything is left, what."""
        if self.left:
            return f"{self.environment} is not completely gone: {'; '.join(map(str, self.left))}"
        names = f", no name in the catalog of {self.checked_server}" if self.checked_server else ""
        names += "".join(f", no topic at {each}" for each in self.checked_brokers)
        ended = f" (ended {', '.join(self.ended)})" if self.ended else ""
        own = " of its own" if self.checked_server else ""
        return f"{self.environment} is gone: no process{own}, no folder, no socket{names}{ended}"
