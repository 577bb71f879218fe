"""Paths of an environment, as console, agent and pool compute them; this module creates nothing on disk."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

PARSE_CACHE_FILE = "facts-1.db"
"""File name of the parse cache; must change with the layout of the cache's tables."""

JOB_LOGS = "jobs"
"""Name of the folder, in an environment's home, with a log for each query that is a job, such as `orders@v3.log`."""
JOB_BUILDS = "job-builds"
"""Name of the folder, in an environment's home, in which each build of a job has a temporary folder."""

GIVEN_TOKEN = "given.token"
"""Name of the file, in an environment's home, with the token for a server that the agent does not manage."""


POOLS = "pools"
"""Name of the folder, in the home of an environment with several pools, in which each pool has a folder of its own."""


@dataclass(frozen=True, slots=True)
class PoolPaths:
    """The absolute paths of the files of one pool."""

    home: str
    """Folder of the server's record, token, lock and log: the home of the environment, or below its folder `pools`."""

    @property
    def log(self) -> str:
        return f"{self.home}/pool.log"

    @property
    def record(self) -> str:
        return f"{self.home}/pool.json"


@dataclass(frozen=True, slots=True)
class EnvironmentPaths:
    """The absolute paths of an environment's files and folders."""

    home: str
    """Home folder, `<root>/<project>-<hash of the project id>/<env>`, with mode 2750."""
    socket: str
    owner: int
    """User id of the agent; a socket that belongs to another user is not the agent's."""

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
        return self.of_pool("").log

    @property
    def pool_file(self) -> str:
        return self.of_pool("").record

    def of_pool(self, place: str) -> "PoolPaths":
        """Return the paths of a pool; `place` is its name among several, and empty for the pool of one."""
        return PoolPaths(f"{self.home}/{POOLS}/{place}" if place else self.home)

    @property
    def job_builds(self) -> str:
        return f"{self.home}/{JOB_BUILDS}"

    @property
    def job_logs(self) -> str:
        return f"{self.home}/{JOB_LOGS}"

    @property
    def emergency(self) -> str:
        """Path of the emergency journal: intents that could not be stored in the ledger, one JSON object per line."""
        return f"{self.home}/emergency.jsonl"


def environment_home(environ: Mapping[str, str], *, project: str, project_id: str, environment: str) -> str:
    """Return an environment's home folder, derived from environment variables; symbolic links are not resolved."""
    return str(_root(environ) / f"{project}-{_digest(project_id, 8)}" / environment)


def ephemeral_root(environ: Mapping[str, str]) -> str:
    """Return the folder in which each ephemeral environment of a user has a folder of its own."""
    return str(_root(environ) / "ephemeral")


def cluster_root(environ: Mapping[str, str]) -> str:
    """Return the folder of a user's standalone cluster, which all projects share."""
    return str(_root(environ) / "cluster")


def _root(environ: Mapping[str, str]) -> PurePosixPath:
    state = environ.get("XDG_STATE_HOME") or str(PurePosixPath(environ.get("HOME") or "/") / ".local/state")
    return PurePosixPath(environ.get("HEADGATE_HOME") or PurePosixPath(state) / "headgate")


def environment_paths(home: str, owner: int) -> EnvironmentPaths:
    """Return the paths of an environment, given its home folder and the agent's user id.

    `home` must be an absolute path with links resolved. All processes must spell the path identically, because the
    socket's path contains a hash of it.
    """
    # A short hashed path, because the home may exceed the maximum length of a socket's path.
    return EnvironmentPaths(home=home, socket=f"/tmp/headgate-{owner}/{_digest(home, 12)}.sock", owner=owner)


def job_packages(home: str) -> str:
    """Return the folder with the environments of packages that jobs in Python need; all projects share it.

    `home` is the home of an environment of any project.
    """
    return str(PurePosixPath(home).parent.parent / "python")


def sibling_ledger(home: str, environment: str) -> str:
    """Return the path of the ledger of another environment of the same project; `home` is this environment's home."""
    return str(PurePosixPath(home).parent / environment / "ledger.db")


def parse_cache_path(environ: Mapping[str, str], *, project: str, project_id: str) -> str:
    """Return the path of a project's parse cache, below HEADGATE_HOME or, if that is not set, the user's cache folder.

    The path is empty if neither folder is known; no cache is used then.
    """
    root = _cache_root(environ)
    return str(PurePosixPath(root) / f"{project}-{_digest(project_id, 8)}" / PARSE_CACHE_FILE) if root else ""


def manifest_cache_path(environ: Mapping[str, str], uid: int, *, folder: str) -> str:
    """Return the path of a user's cached copy of the headgate.yml in a folder; empty if no cache folder is known."""
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
