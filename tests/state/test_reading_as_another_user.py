"""Another user of the same group reads the ledger of a living, exited or killed agent; needs root to switch users."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from state.row_types import EnvironmentRow

NOBODY, GROUP, STRANGERS = 65534, 54321, 54322
ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

AGENT = """
import json, sys
from pathlib import Path
from state.row_types import EnvironmentRow, PoolRow
from state.ledger import create_or_open
ledger = create_or_open(Path(sys.argv[1]), EnvironmentRow(**{**json.loads(sys.argv[2]), "pools": (PoolRow(),)}))
ledger.heartbeat(1.0)
print("ready", flush=True)
for line in sys.stdin:
    ledger.heartbeat(float(line))
    print("done", flush=True)
ledger.close()
"""


READER = """
import os, sys
from pathlib import Path
from core.model.errors import HeadgateError
from state.ledger import LedgerReader
path, group, nobody = sys.argv[1], *map(int, sys.argv[2:])
os.setgroups([group])
os.setresgid(nobody, nobody, nobody)
os.setresuid(nobody, nobody, nobody)
try:
    reader = LedgerReader(Path(path))
    print(reader.facts().agent_seen_at, flush=True)
    for _ in sys.stdin:
        print(reader.facts().agent_seen_at, flush=True)
    reader.close()
except HeadgateError as error:
    print(f"{type(error).__name__}: {error.summary}", flush=True)
"""


@pytest.fixture
def shared() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        os.chown(home, 0, GROUP)
        home.chmod(0o2750)
        yield home / "ledger.db"


class Agent:
    """A process that holds the ledger and writes a heartbeat when told to."""

    def __init__(self, path: Path, facts: EnvironmentRow) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", AGENT, str(path), json.dumps(asdict(facts))],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, umask=0o077,
        )  # fmt: skip
        self._answer()

    def beat(self, at: float) -> None:
        assert self.process.stdin
        self.process.stdin.write(f"{at}\n")
        self.process.stdin.flush()
        self._answer()

    def end(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        assert self.process.wait() == 0

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def _answer(self) -> None:
        assert self.process.stdout and self.process.stdout.readline() in ("ready\n", "done\n")


class OtherUser:
    """A reader that runs as the user nobody, by default in the ledger's group.

    It changes its user only after all imports, because nobody may have no access to Python itself. It is a separate
    process, because gRPC aborts forks of a process that uses it.
    """

    def __init__(self, path: Path, group: int = GROUP) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", READER, str(path), str(group), str(NOBODY)],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.first = self._answer()

    def again(self) -> str:
        assert self._process.stdin
        self._process.stdin.write("again\n")
        self._process.stdin.flush()
        return self._answer()

    def end(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        assert self._process.wait() == 0

    def _answer(self) -> str:
        assert self._process.stdout
        answer = self._process.stdout.readline().strip()
        assert answer, "the reader has ended"
        return answer


def read(path: Path, group: int = GROUP) -> str:
    other = OtherUser(path, group)
    other.end()
    return other.first


def test_other_user_reads_while_the_agent_lives_and_follows_its_writes(shared: Path, facts: EnvironmentRow) -> None:
    agent = Agent(shared, facts)
    other = OtherUser(shared)
    agent.beat(2.0)
    assert (other.first, other.again()) == ("1.0", "2.0")
    other.end()
    agent.end()


def test_other_user_reads_after_the_agent_exited(shared: Path, facts: EnvironmentRow) -> None:
    agent = Agent(shared, facts)
    agent.beat(3.0)
    agent.end()
    assert read(shared) == "3.0"


@pytest.mark.drill
def test_other_user_reads_after_the_agent_was_killed(shared: Path, facts: EnvironmentRow) -> None:
    agent = Agent(shared, facts)
    agent.beat(4.0)
    agent.kill()
    assert Path(f"{shared}-wal").stat().st_size > 0
    assert read(shared) == "4.0"


@pytest.mark.drill
def test_other_user_reads_through_exit_kill_and_a_new_agent(shared: Path, facts: EnvironmentRow) -> None:
    agent = Agent(shared, facts)
    other = OtherUser(shared)
    agent.kill()
    assert other.again() == "1.0"
    agent = Agent(shared, facts)
    agent.beat(5.0)
    assert other.again() == "5.0"
    agent.end()
    assert other.again() == "5.0"
    agent = Agent(shared, facts)
    agent.beat(6.0)
    assert other.again() == "6.0"
    agent.kill()
    other.end()


@pytest.mark.drill
def test_other_user_reads_a_killed_agents_ledger_that_lost_its_index(shared: Path, facts: EnvironmentRow) -> None:
    agent = Agent(shared, facts)
    agent.beat(7.0)
    agent.kill()
    Path(f"{shared}-shm").unlink()
    assert read(shared) == "7.0"


@pytest.mark.drill
def test_a_user_outside_the_group_is_told_so(shared: Path, facts: EnvironmentRow) -> None:
    agent = Agent(shared, facts)
    agent.end()
    assert read(shared, STRANGERS).startswith("LedgerUnavailable")


@pytest.mark.drill
def test_reading_leaves_nothing_behind(shared: Path, facts: EnvironmentRow) -> None:
    agent = Agent(shared, facts)
    agent.kill()
    Path(f"{shared}-shm").unlink()
    before = (
        sorted(file.name for file in shared.parent.iterdir()),
        set(Path(tempfile.gettempdir()).glob("headgate-led*")),
    )
    assert read(shared) == "1.0"
    assert (
        sorted(file.name for file in shared.parent.iterdir()),
        set(Path(tempfile.gettempdir()).glob("headgate-led*")),
    ) == before
