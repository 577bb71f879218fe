"""Why an active query is late: judged by how long nothing was heard of it, and by its batches until then."""

from core.lag.liveness import LivenessSigns, allowed_silence_s, is_catch_up_batch, usual_batch_s, why_not_live
from core.model.errors import EngineRefused, TryAgain
from core.model.names import trigger_s
from core.observed.versions import Deployment
from core.ports.spark import ReportedQuery
from core.ports.storage import CheckpointState
from core.text.sentence import Sentence
from pipelines.agent.context import READ_CALL_S, AgentContext

USUAL_S = 900.0
"""How far back batches tell what is usual."""


def why_late(agent: AgentContext, deployment: Deployment, query: ReportedQuery) -> Sentence | None:
    """Explain why an active query is not running; one that was heard of lately is, and costs nothing to judge."""
    trigger = trigger_s(deployment.trigger)
    if query.silent_s is None or query.silent_s <= allowed_silence_s(trigger):
        return None
    first = query.progress is None
    in_batch = first or _has_planned(agent, deployment)
    if not in_batch:
        try:
            pool = agent.pool.connection()
            query = pool.call(READ_CALL_S, pool.queries.look, query)
        except EngineRefused:
            return None
        in_batch = query.trigger_active
    silent_s = query.silent_s or 0.0
    now = agent.clock()
    samples = agent.ledger.samples(deployment.table, deployment.version, since=now - silent_s - USUAL_S)
    return why_not_live(
        LivenessSigns(
            silent_s=silent_s,
            trigger_s=trigger,
            in_batch=in_batch,
            waits=waits(query),
            usual_s=usual_batch_s(samples),
            patient=first or is_catch_up_batch(samples, now - silent_s),
        )
    )


def readable(agent: AgentContext, deployment: Deployment) -> CheckpointState | None:
    """Read a checkpoint; None also where its place cannot be reached now."""
    try:
        return agent.files.read(deployment.checkpoint)
    except TryAgain:
        return None


def waits(query: ReportedQuery) -> bool:
    """Return whether a query waits for input: one without any never commits a first batch (seen on 4.2.0)."""
    return "waiting for data" in query.message.lower() or "waiting for next trigger" in query.message.lower()


def _has_planned(agent: AgentContext, deployment: Deployment) -> bool:
    """Return whether a batch is planned and not committed; a place that cannot be reached says nothing."""
    found = readable(agent, deployment)
    return found is not None and found.planned is not None and found.planned != found.batch
