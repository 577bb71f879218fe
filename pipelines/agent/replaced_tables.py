"""Statements whose tables are others than they were, while they run: stopped and named before Spark loses a row."""

import logging

from core.model.errors import Busy, HeadgateError
from core.model.names import query_name
from core.model.states import ALIVE, WantedState
from pipelines.agent.context import AgentContext
from pipelines.agent.deployment_lifecycle import fail, stop
from pipelines.agent.table_identities import why_other_table
from state.row_types import Deployment

log = logging.getLogger(__name__)

EVERY_S = 30.0
"""Between two comparisons."""

REPLACED = "HEADGATE_TABLE_REPLACED"


class ReplacedTables:
    """Compares, round by round, what statements that run read and write with what they read and wrote before."""

    def __init__(self, world: AgentContext) -> None:
        self._world = world

    def round(self) -> None:
        """Stop each statement whose tables are others now, and say which."""
        for deployment in self._world.ledger.deployments():
            if deployment.external or deployment.wanted != WantedState.RUNNING or deployment.state not in ALIVE:
                continue
            try:
                self._compare(deployment)
            except Busy:
                continue
            except HeadgateError as error:
                log.info("%s was not compared: %s", query_name(deployment.table, deployment.version), error.summary)

    def _compare(self, deployment: Deployment) -> None:
        if not (why := why_other_table(self._world, deployment)):
            return
        with self._world.locks.holding((deployment.table, deployment.version), by="a comparison of tables", wait_s=0):
            stop(self._world, deployment)
            fail(self._world, deployment, REPLACED, why)
