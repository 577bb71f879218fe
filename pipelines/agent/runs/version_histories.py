"""The batches of versions and of all that they read, from the ledger's bindings and the files of each."""

from core.model.names import query_name
from core.observed.aligned_positions import BatchHistory, Version, VersionHistory
from core.text.sentence import Sentence
from pipelines.agent.context import AgentContext
from pipelines.agent.deployment_compiler import streamed_reads


def why_never_equal(agent: AgentContext, old: Version, new: Version) -> Sentence | None:
    """Explain why a version cannot hold what an older one holds, whatever both have read; None where it can.

    What a stream of changes tells depends on the batches in which its table was written, and on when it began.
    """
    deployed = {(found.table, found.version): found for found in agent.ledger.deployments()}

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
            return Sentence(f"{query_name(*version)} reads the changes of {changes}, which differ with its batches")
    return None


def version_histories(agent: AgentContext, *versions: Version) -> dict[Version, VersionHistory]:
    """Return the histories of versions and of every version of ours that they stream from, at any depth.

    One that is not in the registry has no batch. Raises TryAgain where files cannot be reached.
    """
    deployed = {(found.table, found.version): found for found in agent.ledger.deployments()}
    found: dict[Version, VersionHistory] = {}
    open_ = list(versions)
    while open_:
        version = open_.pop()
        deployment = deployed.get(version)
        if version in found or deployment is None or deployment.external:
            continue
        reads = streamed_reads(deployment)
        bound = {binding.parent: binding.version for binding in deployment.bindings if binding.streamed}
        sources = tuple((read.table, bound.get(read.table, 0)) for read in reads)
        there = bool(deployment.checkpoint) and not deployment.deleted
        history = (
            agent.files.batch_history(deployment.checkpoint, len(sources), deployment.folder)
            if there
            else BatchHistory({}, {})
        )
        found[version] = VersionHistory(sources, history)
        open_ += sources
    return found
