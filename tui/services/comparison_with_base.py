"""Has the agent of an overlay compare its tables with those of the base, and reads the stored result."""

import time

from core.model.errors import UsageError
from core.project.overlay import Overlay
from core.reports.base_comparison import BaseComparison, comparison_of
from core.run.records import OVERLAY_COMPARISON
from tui.agent_client.agent_process import ProgressCallback, WaitProgress
from tui.services.environment_service import EnvironmentService

COMPARE_S = 300.0
"""Default time, in seconds, for which positions that both environments have read are waited for."""

_POLL_S = 0.5


def overlay_of(operations: EnvironmentService) -> Overlay:
    """Return what the environment overlays. Raises UsageError if it is no overlay."""
    place = operations.place
    if place.overlay is None:
        raise UsageError(
            f"{place.environment} overlays no other environment, so there is nothing to compare it with",
            remedy="headgate release diff RUN shows the comparison of a release; headgate release list lists the runs",
        )
    return place.overlay


def stored_comparison(operations: EnvironmentService, overlay: Overlay) -> BaseComparison | None:
    """Return the newest finished comparison with the base; None if there is none."""
    rows = operations.reader.check_results(OVERLAY_COMPARISON)
    return comparison_of(operations.place.environment, overlay.base, rows, overlay.since)


def compare_now(
    operations: EnvironmentService, overlay: Overlay, seconds: float, progress: ProgressCallback
) -> BaseComparison | None:
    """Compare with the base, waiting at most `seconds` for positions; None if neither side has a table.

    If a comparison is running, its result is returned. Raises the agent's error if it fails.
    """
    agent, began = operations.agent, time.monotonic()
    id = agent.compare(seconds)
    while (found := agent.comparison(id)).running:
        detail = f"{found.done} of {found.of} tables; {found.about}"
        progress(WaitProgress(f"comparison with {overlay.base}", time.monotonic() - began, 0.0, detail))
        time.sleep(_POLL_S)
    return stored_comparison(operations, overlay)
