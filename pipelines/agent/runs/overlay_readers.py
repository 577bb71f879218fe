"""Statements that stream a version, in the agent's environment and in overlays, whose ledgers are only read."""

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from core.model.errors import HeadgateError
from core.model.names import TableName
from core.observed.versions import Deployment
from core.project.naming import Naming
from pipelines.agent.context import AgentContext
from pipelines.agent.runs.stop_and_trash_steps import places_of
from state.overlay_files import overlays_reading, unknown_reads
from state.promotion_source import open_source


@dataclass(frozen=True, slots=True)
class StreamReader:
    """A statement that streams a version, whether it is running, stopped, replaced or in the trash."""

    statement: Deployment
    checkpoint: str
    """The current folder of its checkpoint."""
    overlay: str = ""
    """The overlay whose statement it is; empty for the agent's own environment."""


def readers_among(
    deployments: Iterable[Deployment], read: tuple[TableName, int], naming: Naming, *, overlay: str = ""
) -> Iterator[StreamReader]:
    """Yield the statements among the deployments of one environment that stream `read`, a table and version there."""
    for found in deployments:
        streams = any((b.parent, b.version) == read and b.streamed for b in found.bindings)
        if streams and (places := places_of(naming, found)):
            yield StreamReader(found, places[1], overlay)


def readers_in_overlays(agent: AgentContext, version: Deployment) -> Iterator[StreamReader]:
    """Yield the statements of overlays that stream a version. Raises Refused if an overlay cannot be read."""
    for name in overlays_reading(agent.places.home, version.table, version.version):
        ledger = Path(agent.places.home).parent / name / "ledger.db"
        if not ledger.exists():
            # Its agent has never run, so it has no statement.
            continue
        try:
            with closing(open_source(str(ledger), name, agent.project_id)) as reader:
                facts, every = reader.facts(), reader.deployments(include_deleted=True)
        except HeadgateError as error:
            raise unknown_reads(name, error) from error
        naming = facts.serves.naming if facts.serves is not None else agent.layout.naming
        yield from readers_among(every, (version.table, 0), naming, overlay=name)
