"""What an agent leaves behind: nothing on a server that it does not manage, and no overlay that has expired."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from ledger_rows import deployment_row, external_row

from core.model.errors import EngineRefused, PoolUnreachable
from core.model.names import TableName as T
from core.ports.spark import QueryStart
from core.project.model import Pool
from core.project.naming import Naming, Sources
from core.project.overlay import OVERLAY_FILE, Overlay, overlay_as_text
from pipelines.agent.context import AgentContext, Pools, Uptime
from pipelines.agent.deployment_compiler import EnvironmentLayout
from pipelines.agent.overlay_expiry import RETRY_S, OverlayExpiry
from pipelines.agent.pool.pool_catalog import leave_server
from tests.pipelines.agent.conftest import ScriptedPool

ROWS = (external_row(), deployment_row("a"), deployment_row("a", version=2, active=False, state="stopped"))
NAMES = {"pr_landed", "pr_a__v1", "pr_a__v2"}


@pytest.fixture
def remote(agent: AgentContext, pool: ScriptedPool) -> AgentContext:
    """An agent whose queries run on a server of somebody else's, which has a table of another environment as well."""
    environment = replace(
        agent.layout.environment, pool=Pool("shared", "sc://spark:15002"), naming=Naming(prefix="pr_")
    )
    agent.layout = EnvironmentLayout(agent.layout.data, environment)
    agent.pools = Pools(environment, {"shared": pool})
    pool.tables |= dict.fromkeys((*NAMES, "dev_a__v1"), "table")
    pool.views |= {"pr_a": "pr_a__v1", "dev_a": "dev_a__v1"}
    pool.running["a@v1"] = QueryStart("a@v1", "SELECT 1", "pr_a__v1", "parquet", "/c", "1 second")
    return agent


def test_queries_are_stopped_and_names_stay_unless_the_environment_is_purged(
    remote: AgentContext, pool: ScriptedPool
) -> None:
    assert leave_server(remote, remote.pools.default, ROWS, purge=False) == (frozenset(), "")
    assert pool.running == {} and pool.tables.keys() > NAMES
    assert leave_server(remote, remote.pools.default, ROWS, purge=True) == (frozenset(), "")
    assert (pool.tables.keys(), pool.views) == ({"dev_a__v1"}, {"dev_a": "dev_a__v1"})


def test_external_tables_that_are_shared_stay(remote: AgentContext, pool: ScriptedPool) -> None:
    sources = Sources(Naming(prefix="pr_"), "", "dev")
    remote.layout = replace(remote.layout, environment=replace(remote.layout.environment, sources=sources))
    leave_server(remote, remote.pools.default, ROWS, purge=True)
    assert pool.tables.keys() == {"dev_a__v1", "pr_landed"}


def test_a_query_that_does_not_stop_keeps_its_state_and_its_names(remote: AgentContext, pool: ScriptedPool) -> None:
    pool.refuse_stop["a@v1"] = EngineRefused("it hangs")
    running, stays = leave_server(remote, remote.pools.default, ROWS, purge=True)
    assert running == {(T("a"), 1)} and stays == "a@v1 may still be on shared: it hangs"
    assert pool.tables.keys() > NAMES


def test_a_server_that_cannot_be_reached_keeps_the_names_and_the_agent_ends(
    remote: AgentContext, pool: ScriptedPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable() -> None:
        raise PoolUnreachable("the server does not answer")

    monkeypatch.setattr(pool, "connection_for_stops", unreachable)
    stopped = [replace(each, state="stopped") for each in ROWS]
    running, stays = leave_server(remote, remote.pools.default, stopped, purge=True)
    assert running == frozenset() and stays == "pr_a and 3 more may still be on shared: the server does not answer"


class Purge:
    """A purge in another process, which ends when a test says so."""

    def __init__(self) -> None:
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self.returncode


def test_an_expired_overlay_is_purged_once_and_again_only_after_a_while(
    agent: AgentContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, commands = [1_000.0, 0.0], []
    agent.clock, agent.monotonic = lambda: now[0], lambda: now[1]
    agent.uptime = lambda: Uptime("boot", now[0] - 900.0)
    purge = Purge()

    def begin(command: list[str], **more: object) -> Purge:
        commands.append(command)
        return purge

    monkeypatch.setattr(subprocess, "Popen", begin)
    expiry = OverlayExpiry(agent)
    expiry.round()
    overlay = Overlay("dev", "/h", "/d", "/b", 900.0, "ana", expires_at=1_001.0)
    Path(agent.places.home, OVERLAY_FILE).write_text(overlay_as_text(overlay))
    expiry.round()
    assert commands == []
    now[0] = 1_002.0
    expiry.round()
    expiry.round()
    (command,) = commands
    assert command[-8:] == ["down", "--purge", "--project", agent.folder, "--env", "dev", "--confirm", "p"]
    purge.returncode = 3
    expiry.round()
    assert len(commands) == 1
    assert "was not deleted (exit code 3)" in agent.ledger.events(limit=1)[0].summary
    now[1] = RETRY_S
    expiry.round()
    assert len(commands) == 2


def test_a_clock_that_is_set_forward_ends_no_overlay(agent: AgentContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", lambda *command, **more: pytest.fail(f"purged by {command}"))
    agent.clock, agent.uptime = lambda: 1_000.0, lambda: Uptime("boot", 100.0)
    overlay = Overlay("dev", "/h", "/d", "/b", 900.0, "ana", expires_at=90_000.0)
    Path(agent.places.home, OVERLAY_FILE).write_text(overlay_as_text(overlay))
    expiry = OverlayExpiry(agent)
    expiry.round()
    agent.clock = lambda: 100_000.0
    expiry.round()
