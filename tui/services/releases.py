"""Releases as commands and console look at them: each a run that replaces versions."""

from typing import TYPE_CHECKING

from core.model.errors import Refused
from core.run.release import Release
from state.releases import plan_of, release_of_run, releases
from tui.agent_client.agent_commands import find_run

if TYPE_CHECKING:
    from state.ledger import LedgerReader

NEWEST = 50
"""Runs that are looked at, besides those that made what serves."""


def list_releases(reader: "LedgerReader", now: float) -> tuple[Release, ...]:
    """Read the newest releases, and every one that still serves or has tickets; newest first."""
    with reader.frame():
        runs = {run.id: run for run in reader.runs(NEWEST)}
        still = {d.served_by for d in reader.deployments() if d.active and d.served_before is not None}
        for served in still | {ticket.run_id for ticket in reader.unclosed_tickets()}:
            older = reader.run(served) if served and served not in runs else None
            if older is not None:
                runs[older.id] = older
        newest = sorted(runs.values(), key=lambda run: (-run.started_at, run.id))
        return releases(reader, newest, now)


def find_release(reader: "LedgerReader", word: str, now: float) -> Release:
    """Find a release by the start of its run's id; raises UsageError, and Refused for a run that replaces nothing."""
    run = find_run(reader, word)
    with reader.frame():
        plan = plan_of(reader, run)
        found = release_of_run(reader, run, plan, now) if plan is not None else None
    if found is None:
        why = "replaces no version" if plan is not None else "has a plan that cannot be read"
        raise Refused(f"run {run.id} {why}: it is no release", remedy="headgate release list")
    return found
