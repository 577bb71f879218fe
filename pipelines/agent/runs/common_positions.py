"""Finds a position that two versions of a table have read, or the reason why there will never be one."""

from collections.abc import Mapping

from core.model.errors import InvalidProject
from core.model.states import State, WantedState
from core.model.table_formats import table_format
from core.observed.aligned_positions import (
    AlignedPair,
    BatchHistory,
    Unaligned,
    Version,
    VersionHistory,
    newest_aligned,
)
from core.observed.versions import Deployment
from core.ports.storage import Checkpoints
from core.text.sentence import Sentence
from pipelines.agent.context import AgentContext
from pipelines.agent.deployment_compiler import streamed_reads, streamed_sources
from pipelines.agent.runs.compared_versions import ComparedVersions
from pipelines.agent.statements.deployment_lifecycle import written_batch

STRICT_S = 60.0
"""Seconds to wait for a position with equal watermarks. After that, different watermarks are accepted."""

GONE_EVERY_S = 30.0
"""Seconds between two checks that the files read by the old version still exist."""

NO_BATCH = AlignedPair(-1, -1)
"""Position of two versions that have no batch."""


def find_position(
    agent: AgentContext, versions: ComparedVersions, old: Deployment, new: Deployment, *, strict: bool
) -> AlignedPair | Unaligned:
    """Return the latest position that both versions have read; `strict` also requires equal watermarks.

    Raises TryAgain if files are unreachable.
    """
    deployed = versions.deployed()
    both: tuple[Version, Version] = (old.table, old.version), (new.table, new.version)
    try:
        if why := why_never_equal(versions, deployed, *both):
            return Unaligned(str(why), final=True, incomparable=True)
        histories = version_histories(agent.files, deployed, *both)
    except InvalidProject as error:
        return Unaligned(error.summary, final=True)
    found = newest_aligned(histories, *both, strict=strict, name=versions.name)
    if found == NO_BATCH and any(written_batch(agent, each) is not None for each in (old, new)):
        # A history that cannot be read also appears empty.
        return Unaligned("it is not known what they had read at their batches")
    return found


def why_never_aligned(
    agent: AgentContext, versions: ComparedVersions, old: Deployment, *, files: bool
) -> Sentence | None:
    """Return why the old version will not reach a position that the new one has read; None if it may.

    `files` also looks for files that the old version has read and that are gone, which takes a listing of the sources.
    """
    name = versions.name(old.table, old.version)
    if old.wanted == WantedState.STOPPED or old.state in (State.FAILED, State.STOPPED):
        return Sentence(f"{name} is {old.state} and has read less")
    if not old.checkpoint_ok:
        return Sentence(f"the checkpoint of {name} does not say what it has read")
    if ended := ended_upstream(versions, old):
        return Sentence(f"{name} has read less, and has stopped reading: {ended}")
    if not files:
        return None
    sources = streamed_sources(old, streamed_reads(old), versions.deployed())
    gone = agent.files.count_missing_inputs(old.checkpoint, sources)
    return Sentence(f"{gone:,} files that {name} has read are no longer there") if gone else None


def ended_upstream(versions: ComparedVersions, deployment: Deployment) -> Sentence | None:
    """Return the failed or stopped upstream version that leaves a caught-up version without input, or None."""
    measured = versions.measurement(deployment.table, deployment.version)
    if measured is None or measured.lag_files != 0:
        return None
    for binding in deployment.bindings:
        parent = versions.find(binding.parent, binding.version) if binding.streamed else None
        if parent is None or parent.external:
            continue
        if parent.state in (State.FAILED, State.STOPPED) and parent.state_since < measured.at:
            return Sentence(f"{versions.name(parent.table, parent.version)} is {parent.state}")
        if ended := ended_upstream(versions, parent):
            return ended
    return None


def why_never_equal(
    versions: ComparedVersions, deployed: Mapping[Version, Deployment], old: Version, new: Version
) -> Sentence | None:
    """Return why a version can never equal an older one, even at the same position, or None if it can.

    A version that reads a change stream never can, because the changes depend on the table's batches and on when the
    stream began. A version that reads a database's changes begins where its own replication slot or snapshot begins.
    """

    def above(version: Version) -> set[Version]:
        found: set[Version] = set()
        open_ = [version]
        while open_:
            each = open_.pop()
            if each in found or each not in deployed:
                continue
            found.add(each)
            open_ += [(binding.parent, binding.version) for binding in deployed[each].bindings if binding.streamed]
        return found

    for version in sorted(above(new) - above(old)):
        changes = next((read.table for read in streamed_reads(deployed[version]) if read.takes_changes), None)
        if changes is not None:
            return Sentence(f"{versions.name(*version)} reads the changes of {changes}, which differ with its batches")
        parents = (deployed.get(source) for source in _sources(deployed[version]))
        slot = next((found.table for found in parents if found and table_format(found.format).changes), None)
        if slot is not None:
            begins = "which do not begin at the same place for all versions"
            return Sentence(f"{versions.name(*version)} reads the changes of a database ({slot}), {begins}")
    return None


def version_histories(
    files: Checkpoints, deployed: Mapping[Version, Deployment], *versions: Version
) -> dict[Version, VersionHistory]:
    """Return the batch histories of versions and of all versions upstream of them, except external tables.

    Versions that are not in `deployed` are omitted, and deleted versions have an empty history. Raises TryAgain if
    files are unreachable.
    """
    found: dict[Version, VersionHistory] = {}
    open_ = list(versions)
    while open_:
        version = open_.pop()
        deployment = deployed.get(version)
        if version in found or deployment is None or deployment.external:
            continue
        sources = _sources(deployment)
        there = bool(deployment.checkpoint) and not deployment.deleted
        history = (
            files.batch_history(deployment.checkpoint, len(sources), deployment.folder)
            if there
            else BatchHistory({}, {})
        )
        found[version] = VersionHistory(sources, history)
        open_ += sources
    return found


def _sources(deployment: Deployment) -> tuple[Version, ...]:
    bound = {binding.parent: binding.version for binding in deployment.bindings if binding.streamed}
    return tuple((read.table, bound.get(read.table, 0)) for read in streamed_reads(deployment))
