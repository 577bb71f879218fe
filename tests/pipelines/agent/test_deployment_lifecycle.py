"""What a start records: pool and engine, and the settings that the checkpoint has pinned since the first start."""

from dataclasses import replace

import pytest
from agent_scenarios import put_made
from ledger_rows import deployment_row

from core.model.errors import PoolUnreachable
from core.model.names import TableName
from core.observed.versions import Deployment
from core.project.model import Environment, Pool
from core.project.revision import RevisionTexts
from pipelines.agent.context import AgentContext, Pools
from pipelines.agent.deployment_compiler import EnvironmentLayout
from pipelines.agent.statements.deployment_lifecycle import start
from tests.pipelines.agent.conftest import ScriptedPool, _Analysis

A = TableName("a")
STATE = "spark.sql.streaming.stateStore.providerClass"
FIRST = Pool("small", None, 2, "2g", (("spark.sql.ansi.enabled", "true"), (STATE, "HDFSBacked")))
OTHER = Pool("big", "sc://host:15002/;token=hunter2", 16, "8g", (("spark.sql.ansi.enabled", "false"), (STATE, "Rocks")))


@pytest.fixture
def pending(agent: AgentContext) -> Deployment:
    """A version that has never been started."""
    return put_made(agent, deployment_row(stateful=True, state="pending"))


def started(agent: AgentContext, pool: Pool) -> Deployment:
    """Stop the version if it is running, and start it on a pool."""
    environment = Environment("dev", pool=pool)
    agent.layout = EnvironmentLayout(agent.layout.data, environment)
    agent.pools = Pools(environment, {pool.name: agent.pools.default.client})
    agent.pools.default.connection().queries.stop("a@v1")
    start(agent, agent.ledger.deployment(A, 1), stops=agent.locks.stops((A, 1)))  # type: ignore[arg-type]  # It is there.
    found = agent.ledger.deployment(A, 1)
    assert found is not None
    return found


def test_a_first_start_records_its_pool_and_engine_and_a_restart_elsewhere_what_is_not_pinned(
    agent: AgentContext, pool: ScriptedPool, pending: Deployment
) -> None:
    found = started(agent, FIRST)
    assert (found.pool, found.engine) == (FIRST, "4.2.0")
    pool.engine = "4.3.0"
    found = started(agent, OTHER)
    kept = (("spark.sql.ansi.enabled", "false"), (STATE, "HDFSBacked"))
    assert (found.pool, found.engine) == (Pool("big", "sc://host:15002", 16, "8g", kept), "4.3.0")


def test_only_the_engine_is_known_of_a_version_started_before_this_was_recorded(
    agent: AgentContext, pending: Deployment
) -> None:
    agent.ledger.put_deployment(replace(pending, started_at=5.0))
    found = started(agent, FIRST)
    assert (found.pool, found.engine) == (None, "4.2.0")


def test_an_engine_that_does_not_say_its_version_keeps_no_statement_from_starting(
    agent: AgentContext, pending: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    started(agent, FIRST)

    def silent(_: object) -> str:
        raise PoolUnreachable("no answer")

    monkeypatch.setattr(_Analysis, "engine", silent)
    found = started(agent, FIRST)
    assert (found.state, found.engine) == ("starting", "4.2.0")


@pytest.mark.parametrize(("clause", "columns"), [("", ()), (" PARTITIONED BY (day)", ("day",))])
def test_a_query_gets_the_partitions_of_its_table_from_the_declaration(
    clause: str, columns: tuple[str, ...], agent: AgentContext, pool: ScriptedPool
) -> None:
    ddl = f"(day STRING) USING parquet{clause}"
    found = deployment_row(
        compiled_ddl=f"CREATE TABLE IF NOT EXISTS a__v1 {ddl}", texts=RevisionTexts(f"CREATE TABLE a {ddl}", "", "")
    )
    put_made(agent, found)
    start(agent, found, stops=agent.locks.stops((A, 1)))
    assert pool.running["a@v1"].partitioned_by == columns
