"""An agent takes over the declared pools, and refuses to forget one in which something may run."""

import os
from pathlib import Path
from typing import Any, ClassVar

import pytest
from ledger_rows import deployment_row, environment_row

from core.ipc.environment_paths import EnvironmentPaths
from core.model.errors import Refused
from core.model.names import TableName
from core.project.model import Environment, Pool
from core.project.resources import Amounts
from core.project.revision import RevisionTexts
from pipelines.agent.pool import declared_pools
from pipelines.agent.pool.declared_pools import declare_pools
from state.ledger import Ledger, create_or_open

SMALL, LARGE = Pool("small", capacity=Amounts(4)), Pool("large", "sc://big:15002")
TWO = Environment("dev", pool=SMALL, named_pools=(SMALL, LARGE))
ONE = Environment("dev", pool=Pool("local"))


class Server:
    """The server of a place, which runs if a test says so."""

    running: ClassVar[dict[str, int]] = {}

    def __init__(self, home: str, pool: Pool) -> None:
        self.pid = self.running.get(Path(home).name)


@pytest.fixture(autouse=True)
def servers(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    monkeypatch.setattr(declared_pools, "LocalPool", Server)
    monkeypatch.setattr(Server, "running", {})
    return Server.running


@pytest.fixture
def places(tmp_path: Path) -> EnvironmentPaths:
    return EnvironmentPaths(str(tmp_path / "home"), str(tmp_path / "a.sock"), os.getuid())


@pytest.fixture
def ledger(places: EnvironmentPaths) -> Ledger:
    return create_or_open(Path(places.ledger), environment_row())


def put(ledger: Ledger, pool: Pool | None, state: str = "stopped", yml: str = "", **more: Any) -> None:
    texts = RevisionTexts("d", "m", yml)
    ledger.put_deployment(deployment_row(pool=pool, state=state, texts=texts, revision=yml or "r", **more))


def pool_of(ledger: Ledger) -> str:
    found = ledger.deployment(TableName("a"), 1)
    assert found is not None and found.pool is not None
    return found.pool.name


def test_pools_keep_their_sessions_whatever_their_order(ledger: Ledger, places: EnvironmentPaths) -> None:
    declare_pools(ledger, TWO, places)
    ledger.put_pool("large", session_id="s2", generation=3, state="up")
    declare_pools(ledger, Environment("dev", pool=LARGE, named_pools=(LARGE, SMALL)), places)
    first, second = ledger.facts().pools
    assert (first.name, first.session_id, first.generation, second.name) == ("large", "s2", 3, "small")
    assert (second.most, second.declared) == (4, SMALL)


def test_one_pool_keeps_its_session_under_another_name(ledger: Ledger, places: EnvironmentPaths) -> None:
    declare_pools(ledger, Environment("dev", pool=Pool("other", "sc://elsewhere")), places)
    (row,) = ledger.facts().pools
    assert (row.place, row.name, row.session_id) == ("", "other", "s")


def test_statements_of_a_pool_that_is_gone_start_in_the_one_that_they_name(
    ledger: Ledger, places: EnvironmentPaths
) -> None:
    put(ledger, Pool("local"), yml="pool: large\n")
    declare_pools(ledger, TWO, places)
    assert pool_of(ledger) == "large"
    put(ledger, Pool("retired"))
    declare_pools(ledger, TWO, places)
    assert pool_of(ledger) == "small"


def test_statements_of_a_pool_that_is_gone_start_in_no_cordoned_one(ledger: Ledger, places: EnvironmentPaths) -> None:
    declare_pools(ledger, TWO, places)
    ledger.cordon_pool("small", 1.0, "bob")
    put(ledger, Pool("retired"))
    declare_pools(ledger, TWO, places)
    assert pool_of(ledger) == "large"
    classes = Environment("dev", pool=SMALL, named_pools=(SMALL, LARGE, Pool("fast", of_class="fast")))
    put(ledger, Pool("retired"), yml="pool: {class: fast}\n")
    declare_pools(ledger, classes, places)
    assert pool_of(ledger) == "fast"


def test_an_agent_does_not_start_running_statements_in_a_cordoned_pool(
    ledger: Ledger, places: EnvironmentPaths
) -> None:
    declare_pools(ledger, TWO, places)
    for name in ("small", "large"):
        ledger.cordon_pool(name, 1.0, "bob")
    put(ledger, Pool("retired"), wanted="running")
    with pytest.raises(Refused) as refused:
        declare_pools(ledger, TWO, places)
    assert refused.value.summary == (
        "a@v1 ran in the pool retired, which headgate.yml no longer declares, and would start in small, which takes no "
        "new statements"
    )
    assert "headgate pool uncordon small" in refused.value.remedy and pool_of(ledger) == "retired"
    put(ledger, Pool("retired"), wanted="stopped")
    declare_pools(ledger, TWO, places)
    assert pool_of(ledger) == "small"


@pytest.mark.parametrize(("before", "after", "server"), [(ONE, TWO, "home"), (TWO, ONE, "small")])
def test_an_agent_does_not_start_beside_a_server_that_is_not_declared(
    before: Environment, after: Environment, server: str, ledger: Ledger, places: EnvironmentPaths,
    servers: dict[str, int],
) -> None:  # fmt: skip
    declare_pools(ledger, before, places)
    put(ledger, before.pool, "running")
    servers[server] = 4711
    with pytest.raises(Refused, match=r"the server of the pool \w+ runs \(pid 4711\)") as refused:
        declare_pools(ledger, after, places)
    assert "headgate down --env dev" in refused.value.remedy and len(ledger.facts().pools) == len(before.pools)
    servers.clear()
    declare_pools(ledger, after, places)
    assert len(ledger.facts().pools) == len(after.pools)


@pytest.mark.parametrize("now", [(SMALL,), (SMALL, Pool("large", "sc://other:15002"))])
def test_a_remote_pool_is_not_forgotten_while_a_statement_may_run_there(
    now: tuple[Pool, ...], ledger: Ledger, places: EnvironmentPaths
) -> None:
    declare_pools(ledger, TWO, places)
    put(ledger, LARGE, "unknown")
    after = Environment("dev", pool=SMALL, named_pools=now)
    with pytest.raises(Refused, match="a@v1 may run in the pool large at sc://big:15002"):
        declare_pools(ledger, after, places)
    put(ledger, LARGE, "stopped")
    declare_pools(ledger, after, places)
    assert pool_of(ledger) == now[-1].name
