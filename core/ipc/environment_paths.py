"""Where an environment lives: the same places for console, agent and pool, computed and never created here."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

PARSE_CACHE_FILE = "facts-1.db"
"""The fact cache's file; another layout of its tables is another name."""


@dataclass(frozen=True, slots=True)
class EnvironmentPaths:
    """Absolute paths of one environment."""

    home: str
    """`<root>/<project>-<8 hex of the project id>/<env>`, mode 2750."""
    socket: str
    owner: int
    """User id of the agent: whoever else listens at the socket is not it."""

    @property
    def ledger(self) -> str:
        return f"{self.home}/ledger.db"

    @property
    def lock(self) -> str:
        return f"{self.home}/agent.lock"

    @property
    def agent_log(self) -> str:
        return f"{self.home}/agent.log"

    @property
    def pool_log(self) -> str:
        return f"{self.home}/pool.log"

    @property
    def pool_file(self) -> str:
        return f"{self.home}/pool.json"

    @property
    def emergency(self) -> str:
        """Intents that the ledger could not take, one JSON object a line."""
        return f"{self.home}/emergency.jsonl"


def environment_home(environ: Mapping[str, str], *, project: str, project_id: str, environment: str) -> str:
    """Spell an environment's home by the process's environment variables; the caller resolves its links."""
    state = environ.get("XDG_STATE_HOME") or str(PurePosixPath(environ.get("HOME") or "/") / ".local/state")
    root = PurePosixPath(environ.get("HEADGATE_HOME") or PurePosixPath(state) / "headgate")
    return str(root / f"{project}-{_digest(project_id, 8)}" / environment)


def environment_paths(home: str, owner: int) -> EnvironmentPaths:
    """Compute the places of an environment from its home, absolute and without links, and the agent's user id.

    Everybody has to give the same home: by another spelling it would be another environment.
    """
    # A short hashed path, because the home may be deeper than a socket's path may be long.
    return EnvironmentPaths(home=home, socket=f"/tmp/headgate-{owner}/{_digest(home, 12)}.sock", owner=owner)


def parse_cache_path(environ: Mapping[str, str], *, project: str, project_id: str) -> str:
    """Place a project's fact cache: below HEADGATE_HOME where that is set, else below the user's cache folder.

    Empty where neither is known: nothing is kept then.
    """
    root = _cache_root(environ)
    return str(PurePosixPath(root) / f"{project}-{_digest(project_id, 8)}" / PARSE_CACHE_FILE) if root else ""


def manifest_cache_path(environ: Mapping[str, str], uid: int, *, folder: str) -> str:
    """Place what a user has read of the headgate.yml of a project folder; empty where nothing is kept."""
    root = _cache_root(environ)
    return str(PurePosixPath(root) / "manifests" / f"{uid}-{_digest(folder, 16)}") if root else ""


def _cache_root(environ: Mapping[str, str]) -> str:
    root = environ.get("HEADGATE_HOME")
    if root:
        return root
    cache = environ.get("XDG_CACHE_HOME") or (f"{environ['HOME']}/.cache" if environ.get("HOME") else "")
    return f"{cache}/headgate" if cache else ""


def _digest(text: str, length: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:length]
