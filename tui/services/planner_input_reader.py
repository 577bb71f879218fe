"""The planner's input, read from the ledger or from an `--observed` document."""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from core.model.errors import InvalidProject, TryAgain
from core.model.names import TableName
from core.model.states import State, WantedState
from core.observed.planner_input import ObservedDeployment, PlannerInput
from core.text.wording import counted
from tui.agent_client.agent_process import ProgressCallback, WaitProgress
from tui.project_folder.environment_selection import SelectedEnvironment
from tui.project_folder.user_named_files import read_text

if TYPE_CHECKING:
    from core.project.model import Project
    from core.project_reader.parse_cache import ParseCache
    from state.ledger import LedgerReader

OBSERVED_S = 20.0
"""Maximum time, in seconds, to wait for the agent's first round.

The round takes 1 to 2 s once the pool answers.
"""


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
    place: SelectedEnvironment, reader: "LedgerReader", progress: ProgressCallback, *, seconds: float = OBSERVED_S
) -> None:
    """Wait until the agent has checked every statement that should be running.

    A new agent does not know what is running until its first round: a plan made before would resume statements that are
    already running. Statements are waited for while their pool is up or starting, because nothing runs without a pool.
    Raises TryAgain after `seconds`.
    """
    began = time.monotonic()
    while True:
        facts = reader.facts()
        names = {pool.name for pool in facts.pools if pool.state in ("up", "starting", "degraded")}
        if not names:
            return
        lost = [line for line in reader.statements() if line.wanted == WantedState.RUNNING and line.state in _LOST]
        if len(facts.pools) > 1:
            recorded = reader.recorded_pools()
            lost = [each for each in lost if facts.pool_of(recorded.get((each.table, each.version), "")).name in names]
        if not lost:
            return
        elapsed = time.monotonic() - began
        unknown = [str(line.table) for line in lost if line.state == State.UNKNOWN]
        if not unknown and elapsed > min(seconds, STARTED_S):
            return
        if elapsed > seconds:
            raise TryAgain(
                f"not observed yet: {', '.join(unknown[:5])}; a plan would treat them as stopped "
                "although they may be running",
                remedy=f"plan again once headgate ls shows their states; headgate logs agent {place.options}",
            )
        progress(WaitProgress("the agent is checking what is running", elapsed, 2.0, counted(len(lost), "statement")))
        time.sleep(0.1)


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
