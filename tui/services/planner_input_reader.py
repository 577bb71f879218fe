"""The planner's input, read from the ledger or from an `--observed` document."""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from core.model.errors import InvalidProject, TryAgain
from core.model.names import TableName
from core.model.states import PoolState, State, WantedState
from core.observed.planner_input import ObservedDeployment, PlannerInput
from core.text.wording import counted
from tui.agent_client.agent_process import ProgressCallback, WaitProgress
from tui.project_folder.environment_selection import SelectedEnvironment
from tui.project_folder.user_named_files import read_text

if TYPE_CHECKING:
    from core.observed.versions import StatementLine
    from core.project.model import Project
    from core.project_reader.parse_cache import ParseCache
    from state.ledger import LedgerReader
    from state.row_types import PoolRow

OBSERVED_S = 20.0
"""Maximum time, in seconds, to wait for the agent's first round.

The round takes 1 to 2 s once the pool answers.
"""


SERVER_S = 90.0
"""Maximum time, in seconds, to wait for that round while a server starts, as the agent gives it."""


STARTED_S = 5.0
"""Maximum time, in seconds, to wait for statements that ended with their pool to restart; some never do."""


_LOST = frozenset({State.UNKNOWN, State.STOPPED})
"""States in which a statement that should be running can only be before the agent's first round or between two
sessions."""


_MOST_OBSERVED_MB = 64
"""Maximum size of an observed document, in MB. A document of 10,000 tables has about 4 MB."""


def planner_input(reader: "LedgerReader", source: "LedgerReader | None" = None) -> PlannerInput:
    """Read the planner's input from the ledger, as the agent does; `source` is the ledger of a promotion's source."""
    if source is not None:
        from state.promotion_source import observe_source

        return replace(planner_input(reader), source=observe_source(source))
    from state.planner_input_from_registry import observe_pools

    return PlannerInput(
        observe(reader),
        reader.spark_analyses(),
        reader.headroom(),
        reader.recorded_policy(),
        reader.step_durations(),
        pools=observe_pools(reader.facts()),
    )


def observe(reader: "LedgerReader") -> dict[TableName, ObservedDeployment]:
    """Return the deployments in the ledger as the planner sees them, computed by the agent's own function."""
    from state.overlay_files import versions_read_by_overlays
    from state.planner_input_from_registry import observe as observe_deployments

    return observe_deployments(
        reader.deployments(include_deleted=True),
        reader.table_statistics(),
        reader.taken_versions(),
        reader.table_serials(),
        time.time(),
        tickets=reader.tickets(),
        overlays=versions_read_by_overlays(os.path.dirname(reader.path)),
    )


def wait_until_statements_observed(
    place: SelectedEnvironment,
    reader: "LedgerReader",
    progress: ProgressCallback,
    *,
    seconds: float = OBSERVED_S,
    server_s: float = SERVER_S,
) -> None:
    """Wait until the agent has checked every statement that should be running.

    A new agent does not know what is running until its first round: a plan made before would resume statements that are
    already running. Statements are waited for while their pool is up or starting, because nothing runs without a pool.
    Raises TryAgain after `seconds`, or after `server_s` while a server of theirs starts.
    """
    began = time.monotonic()
    while True:
        lost = _lost_statements(reader)
        if not lost:
            return
        elapsed = time.monotonic() - began
        unknown = {line.table: pool for line, pool in lost if line.state == State.UNKNOWN}
        if not unknown and elapsed > min(seconds, STARTED_S):
            return
        pools = {pool.name: pool for pool in unknown.values()}
        states = " and ".join(
            f"{'the pool' if not pool.place else name} is {pool.state}" for name, pool in pools.items()
        )
        starts = any(pool.state == PoolState.STARTING for pool in pools.values())
        if elapsed > (server_s if starts else seconds):
            raise TryAgain(
                f"not observed yet: {', '.join(list(unknown)[:5])} ({states}); a plan would treat them as stopped "
                "although they may be running",
                remedy=f"plan again once headgate ls shows their states; headgate logs agent {place.options}",
            )
        checks = f"{counted(len(lost), 'statement')}{f', {states}' if starts else ''}"
        progress(WaitProgress("the agent is checking what is running", elapsed, 2.0, checks))
        time.sleep(0.1)


def _lost_statements(reader: "LedgerReader") -> "list[tuple[StatementLine, PoolRow]]":
    """Return the statements that should be running, but are not known to, with their pools, which can be asked."""
    facts = reader.facts()
    lost = [line for line in reader.statements() if line.wanted == WantedState.RUNNING and line.state in _LOST]
    recorded = reader.recorded_pools() if lost and len(facts.pools) > 1 else {}
    found = ((line, facts.pool_of(recorded.get((line.table, line.version), ""))) for line in lost)
    return [(line, pool) for line, pool in found if pool.state.answers]


@dataclass(frozen=True, slots=True)
class ObservedDocument:
    """The parsed contents of an `--observed` file, which is read only once because it may be a pipe."""

    path: str
    text: str
    known: PlannerInput

    def refuse_impossible(
        self,
        project: "Project",
        environment: str,
        observed: Mapping[TableName, ObservedDeployment],
        facts: "ParseCache",
    ) -> None:
        """Raise InvalidProject, with a Problem and a line for each contradiction, if the document is contradictory.

        `observed` contains the document's deployments, completed with SQL and YAML from a git commit.
        """
        from core.observed.document import places_in_text
        from core.planner.contradictory_observations import impossible_observations, with_places

        found = impossible_observations(project, project.environments[environment], observed, facts)
        if found:
            placed = with_places(found, places_in_text(self.text, self.path))
            raise InvalidProject(
                f"the observed document describes an impossible state: {counted(len(placed), 'problem')}",
                remedy="correct what is listed",
                problems=tuple(problem.as_json() for problem in placed),
            )


def read_observed(path: str, environment: str) -> ObservedDocument:
    """Read an `--observed` file (YAML or JSON).

    Raises UsageError if the file cannot be read, and InvalidProject with all Problems if it is invalid.
    """
    from core.observed.document import planner_input_from_text

    text = read_text(path, path, most_mb=_MOST_OBSERVED_MB, remedy="give a YAML or JSON file")
    return ObservedDocument(path, text, planner_input_from_text(text, path, environment))
