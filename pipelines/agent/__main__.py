"""`python -I -m pipelines.agent --project DIR --env E`: runs the agent of one environment until it is asked to stop."""

import argparse
import fcntl
import logging
import os
import re
import signal
import sys
import time
import uuid
from contextlib import suppress
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import IO

from core.ipc.environment_paths import environment_home, environment_paths
from core.model.errors import HeadgateError, InvalidProject, Refused
from core.model.problems import Problem
from core.project.data_folder import absolute_data_folder
from core.project.manifest_head import MANIFEST_PATH
from core.project.model import Environment
from core.project_reader.manifest import Manifest, read_manifest
from core.project_reader.pool_sections import problems_of_pools
from core.text.escaping import escape_control_characters, escape_surrogates
from core.text.wording import counted
from pipelines.agent.daemon import Agent
from pipelines.agent.deployment_compiler import EnvironmentLayout
from pipelines.agent.identity.foreign_names import refuse_nested_data, refuse_other_naming
from pipelines.agent.pool.declared_pools import declare_pools
from pipelines.agent.requests.caller_roles_and_policy import record_first
from pipelines.storage.checkpoints import TableCheckpoints
from pipelines.storage.data_folder_records import machine_id
from pipelines.storage.hadoop_settings import use_settings_of_pools
from state.ledger import create_or_open
from state.row_types import EnvironmentRow

MOST_BYTES = 8 << 20
KEPT = 3
"""Number of rotated log files: `agent.log.1` (the newest) to `agent.log.3`."""


class AgentLog(RotatingFileHandler):
    """Log file of the agent. Rotation only renames files, so it works even on a full disk."""

    def __init__(self, path: str, *, most_bytes: int = MOST_BYTES) -> None:
        """Open a log file for appending, and rotate it whenever it would exceed `most_bytes` bytes."""
        super().__init__(path, maxBytes=most_bytes, backupCount=KEPT, encoding="utf-8")

    def doRollover(self) -> None:  # The name is logging's.
        """Start a new log file, and redirect stdout and stderr to it if they pointed to the old one."""
        # By descriptor and not by name: the file may have been deleted or replaced.
        before = os.fstat(self.stream.fileno()) if self.stream is not None else None
        super().doRollover()
        for descriptor in (1, 2):
            if self.stream is not None and before is not None and os.path.samestat(os.fstat(descriptor), before):
                os.dup2(self.stream.fileno(), descriptor)


log = logging.getLogger("headgate.agent")

PID_WIDTH = 10
"""Width of the pid field in the lock file, in characters, so that a new pid overwrites an old one completely."""


class LogLines(logging.Formatter):
    """Escapes control characters in messages and tracebacks, so that logged text cannot manipulate a terminal."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = escape_control_characters(record.message)
        return super().formatMessage(record)

    def format(self, record: logging.LogRecord) -> str:
        # Tracebacks contain text from outside as well.
        return "\n".join(map(escape_control_characters, super().format(record).split("\n")))


def main() -> int:
    """Run the agent in this process and return the exit code. The caller must have detached the process."""
    parser = argparse.ArgumentParser(prog="headgate-agent")
    parser.add_argument("--project", required=True)
    parser.add_argument("--env", required=True)
    arguments = parser.parse_args()
    os.umask(0o027)
    try:
        return _serve(Path(arguments.project).resolve(), arguments.env)
    except HeadgateError as error:
        print(f"{error.summary}; {error.remedy}", file=sys.stderr)
        return error.exit_code


def _serve(folder: Path, name: str) -> int:
    manifest, environment = _declared(folder, name)
    use_settings_of_pools(pool.conf for pool in environment.pools)
    data = absolute_data_folder(str(folder), environment.data, os.path.realpath)
    _refuse_undecodable(str(folder), data, *map(os.environ.get, ("HEADGATE_HOME", "XDG_STATE_HOME", "HOME")))
    _refuse_escapes(data)
    refuse_nested_data(data)
    layout = EnvironmentLayout(data, environment, _folder_of_sources(folder, environment))
    home = environment_home(os.environ, project=manifest.name, project_id=manifest.id, environment=environment.name)
    places = environment_paths(os.path.realpath(home), os.getuid())
    os.makedirs(places.home, mode=0o2750, exist_ok=True)
    lock = _lock(places.lock)
    handler = AgentLog(places.agent_log)
    whose = f"{manifest.name}/{environment.name}"
    handler.setFormatter(LogLines(f"%(asctime)s %(levelname)s {whose} %(threadName)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    facts = EnvironmentRow(
        ledger_id=str(uuid.uuid4()), project_id=manifest.id, project=manifest.name, environment=environment.name,
        protected=environment.protected, agent_pid=None, agent_started_at=None, agent_seen_at=None,
    )  # fmt: skip
    with lock, create_or_open(Path(places.ledger), facts) as ledger:
        known = ledger.facts()
        refuse_other_naming(ledger.deployments(include_deleted=True), manifest, environment)
        declare_pools(ledger, environment, places)
        record_first(ledger, str(folder), environment.name, time.time())
        agent = Agent(
            places=places,
            folder=str(folder),
            manifest=manifest,
            layout=layout,
            ledger=ledger,
            files=TableCheckpoints(known.ledger_id, machine=machine_id(), epoch=known.epoch),
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: agent.end(pool=False))
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        log.info("agent %s serves %s %s", os.getpid(), manifest.name, environment.name)
        agent.serve()
        log.info("agent %s ended", os.getpid())
    return 0


def _declared(folder: Path, name: str) -> tuple[Manifest, Environment]:
    try:
        text = (folder / MANIFEST_PATH).read_text()
    except OSError as error:
        raise InvalidProject(
            f"{folder / MANIFEST_PATH} cannot be read: {error.strerror}", remedy="check --project"
        ) from error
    problems: list[Problem] = []
    manifest = read_manifest(text, problems)
    environment = next((e for e in manifest.environments if e.name == name), None)
    if environment is None or not manifest.id or not manifest.name:
        first = (
            f"{problems[0].where}: {problems[0].summary}"
            if problems
            else f"there is no environment {name!r} in headgate.yml"
        )
        raise InvalidProject(first, remedy="correct headgate.yml")
    if wrong := problems_of_pools(text, name):
        # With the values that stand in for invalid ones, statements would run in other pools, or without a token.
        more = f", and {counted(len(wrong) - 1, 'more problem')} of its pools" if len(wrong) > 1 else ""
        raise InvalidProject(f"{wrong[0].where}: {wrong[0].summary}{more}", remedy=wrong[0].remedy)
    return manifest, environment


def _folder_of_sources(project: Path, environment: Environment) -> str:
    """Return the absolute data folder of another environment whose sources this one reads; empty for its own."""
    declared = environment.sources.data
    return absolute_data_folder(str(project), declared, os.path.realpath) if declared else ""


def _refuse_undecodable(*paths: str | None) -> None:
    """Refuse any path that is not valid UTF-8, because the ledger, Spark and JSON cannot store it."""
    for path in paths:
        if path and (shown := escape_surrogates(path)) != path:
            raise InvalidProject(f"{shown} is not UTF-8", remedy="rename it, or use another folder")


def _refuse_escapes(data: str) -> None:
    """Refuse a data folder whose path Spark would misread: Spark 4.2.0 decodes `%20` and treats braces as a glob."""
    if found := re.search("%[0-9A-Fa-f]{2}|[{}]", data):
        raise InvalidProject(
            f"the data folder {data} has {found[0]} in its name, which Spark takes for something else",
            remedy="move the project, or name another folder as data: in headgate.yml",
        )


def _lock(path: str) -> IO[str]:
    """Lock the environment while the returned file is open. Raises Refused if another agent holds the lock."""
    file = open(os.open(path, os.O_RDWR | os.O_CREAT, 0o640), "r+")  # noqa: SIM115  # Held open: the lock lives as long as the file.
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.seek(0)
        holder = file.read().strip() or "unknown"
        file.close()
        raise Refused(
            f"another agent (pid {holder}) serves this environment", remedy="headgate down stops it"
        ) from error
    with suppress(OSError):
        # Written in place, because a full disk accepts no new block. The lock works even without the pid.
        os.pwrite(file.fileno(), f"{os.getpid():<{PID_WIDTH}}".encode("ascii"), 0)
    return file


if __name__ == "__main__":
    sys.exit(main())
