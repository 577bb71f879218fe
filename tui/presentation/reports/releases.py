"""Releases that can be taken back: which run swapped in which versions, and how what they replaced stands."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from core.model.names import TableName
from core.model.states import WantedState
from core.text.wording import counted
from state.row_types import Deployment
from tui.presentation.styling.value_formatting import moment


@dataclass(frozen=True, slots=True)
class ReleasedTable:
    """One table of a release."""

    table: TableName
    before: int
    version: int
    """The version that serves since then."""
    state: str
    """Of the version before: running, stopped, failed, …; absent where it is in the trash or gone."""
    stops_at: float | None
    """When the version before stops by itself, epoch seconds; None where it does not run."""
    checkpoint_ok: bool


@dataclass(frozen=True, slots=True)
class Release:
    """What one run swapped in and still serves."""

    run: str
    at: float
    tables: tuple[ReleasedTable, ...]

    @property
    def blocked(self) -> tuple[TableName, ...]:
        """Return the tables of which the version before cannot go on."""
        return tuple(each.table for each in self.tables if each.state == "absent" or not each.checkpoint_ok)


def releases_of(deployments: Iterable[Deployment]) -> tuple[Release, ...]:
    """Return every release of which a version serves and replaced another one, the newest first."""
    every = tuple(deployments)
    version = {(d.table, d.version): d for d in every}
    by_run: dict[str, list[Deployment]] = {}
    for one in every:
        if one.active and one.served_by and one.served_before is not None:
            by_run.setdefault(one.served_by, []).append(one)
    found = [
        Release(
            run,
            max(one.served_at or 0.0 for one in served),
            tuple(_released(one, version.get((one.table, one.served_before or 0))) for one in served),
        )
        for run, served in by_run.items()
    ]
    return tuple(sorted(found, key=lambda release: (-release.at, release.run)))


def _released(now: Deployment, before: Deployment | None) -> ReleasedTable:
    there = before is not None and not before.deleted
    runs = before is not None and there and before.wanted == WantedState.RUNNING
    return ReleasedTable(
        now.table,
        now.served_before or 0,
        now.version,
        str(before.state) if before is not None and there else "absent",
        before.stops_at if before is not None and runs else None,
        before is not None and there and before.checkpoint_ok,
    )


def release_lines(releases: Iterable[Release], now: float) -> tuple[str, ...]:
    """Write each release with its command, then a line for each table."""
    lines: list[str] = []
    for release in releases:
        swapped = f"{release.run}  {moment(release.at, now)}  {counted(len(release.tables), 'table')}"
        lines.append(f"{swapped}  {_way(release, now)}")
        width = max(len(each.table) for each in release.tables)
        lines += [
            f"  {each.table:{width}}  v{each.before} → v{each.version}  {_stands(each)}" for each in release.tables
        ]
    return tuple(lines)


def _way(release: Release, now: float) -> str:
    if release.blocked:
        return f"no rollback: {', '.join(release.blocked)} cannot go back"
    soaks = [each.stops_at for each in release.tables if each.stops_at is not None]
    seconds = f", in seconds until {moment(min(soaks), now)}" if len(soaks) == len(release.tables) else ""
    return f"headgate rollback {release.run}{seconds}"


def _stands(each: ReleasedTable) -> str:
    if each.state == "absent":
        return f"v{each.before} is deleted"
    lost = "" if each.checkpoint_ok else ", its checkpoint is lost"
    return f"v{each.before} is {each.state}{lost}"


def release_as_json(release: Release) -> dict[str, Any]:
    """Return a release as an object; `rollback` is its command, null where there is no way back."""
    command = None if release.blocked else f"headgate rollback {release.run}"
    return {"run": release.run, "at": release.at, "tables": [asdict(t) for t in release.tables], "rollback": command}
