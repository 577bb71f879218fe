"""Takes over the pools that headgate.yml declares when an agent starts, and refuses to forget one that may still run.

A pool is identified by its place, so that queries are found again whatever the order of the pools. Statements of a pool
that is no longer declared are started in another one, which must not happen while their queries may be alive.
"""

from collections.abc import Collection
from contextlib import nullcontext, suppress
from dataclasses import replace

from core.changes.pinned_settings import pool_at_start, recorded_pool
from core.ipc.environment_paths import EnvironmentPaths
from core.model.errors import LedgerUnavailable, Refused
from core.model.names import query_name
from core.model.states import ALIVE, State
from core.observed.versions import Deployment
from core.planner.pool_load import may_run, settings_of
from core.project.model import Environment, Pool, Settings
from pipelines.local_pool.connect_server import LocalPool
from state.ledger import Ledger
from state.row_types import PoolRow

_MAY_RUN = ALIVE | {State.STOPPING, State.UNKNOWN}


def declare_pools(ledger: Ledger, environment: Environment, places: EnvironmentPaths) -> None:
    """Record the declared pools in the ledger, and move statements of other pools to those that they name now.

    Raises Refused if queries may still run in a pool that is not declared any more, or that has another address, or if
    running statements of such a pool would have to start in a cordoned one. An environment with one pool can give it
    another name or address.
    """
    declared = {environment.place_of(pool): pool for pool in environment.pools}
    deployments = [each for each in ledger.deployments() if not each.external]
    facts = ledger.facts()
    for row in facts.pools:
        if row.declared is None and facts.serves is not None and facts.serves.has_remote_server:
            # An older release recorded only the address.
            row = replace(row, declared=Pool(row.name, facts.serves.pool))
        if row.place not in declared or (row.place and _address(row.declared) != _address(declared[row.place])):
            _refuse_running(row, [each for each in deployments if _is_in(row, each)], environment, places)
    names, cordoned = (
        {pool.name for pool in environment.named_pools},
        {row.name for row in facts.pools if row.cordoned_at},
    )
    moves = [
        (each, each.pool, _pool_instead(environment, settings_of(each.texts.yml), cordoned))
        for each in deployments
        if names and each.pool is not None and each.pool.name not in names
    ]
    for each, former, to in moves:
        if to.name in cordoned and may_run(each):
            _refuse_cordoned(each, former, to)
    for each, former, to in moves:
        ledger.update_deployment(each.table, each.version, pool=pool_at_start(to, former))
    # Last, so that an agent that is killed before has this to do again. On a full disk, an agent whose pools are known
    # starts nevertheless, because a stop does not need the ledger.
    known = [row.place for row in facts.pools] == list(declared)
    with suppress(LedgerUnavailable) if known else nullcontext():
        ledger.declare_pools(list(declared.items()))


def _pool_instead(environment: Environment, settings: Settings, cordoned: Collection[str]) -> Pool:
    """Return the pool that settings name or, if they name none that is declared, the first that is not cordoned."""
    default = environment.pool_of(settings)
    if default.name == settings.pool:
        return default
    choice = (default, *(environment.pools_for(settings) or environment.named_pools))
    return next((pool for pool in choice if pool.name not in cordoned), default)


def _refuse_cordoned(deployment: Deployment, former: Pool, to: Pool) -> None:
    words = f"{query_name(deployment.table, deployment.version)} ran in the pool {former.name}, which headgate.yml no"
    raise Refused(
        f"{words} longer declares, and would start in {to.name}, which takes no new statements",
        remedy=f"put the pool back, headgate up, headgate pool uncordon {to.name}, headgate down, and then edit it",
    )


def _address(pool: Pool | None) -> str:
    return (recorded_pool(pool).url or pool.master or "") if pool is not None else ""


def _is_in(row: PoolRow, deployment: Deployment) -> bool:
    # The one pool of an environment has every statement, whatever its name was.
    return not row.place or (deployment.pool is not None and deployment.pool.name == row.name)


def _refuse_running(
    row: PoolRow, deployments: list[Deployment], environment: Environment, places: EnvironmentPaths
) -> None:
    put_back = f"put the pool back, headgate down --env {environment.name}, and then edit it"
    if row.declared is None or row.declared.url is None:
        pid = LocalPool(places.of_pool(row.place).home, Pool()).pid
        if pid is not None:
            words = f"the server of the pool {row.name} runs (pid {pid}), and headgate.yml no longer declares this pool"
            ends = f"headgate down --env {environment.name} ends it, and statements continue from their checkpoints"
            raise Refused(words, remedy=ends)
        return
    if running := [each for each in deployments if each.state in _MAY_RUN]:
        first = query_name(running[0].table, running[0].version)
        words = (
            f"{first} may run in the pool {row.name} at {row.declared.address}, which headgate.yml no longer declares"
        )
        raise Refused(words, remedy=put_back)
