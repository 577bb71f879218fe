"""Validates a new version before its pointer moves, at a position that both the old and the new version have read.

The comparison runs in its own thread, so that operator commands never wait for it. Its results are recorded in the
ledger, whether or not they block the swap.
"""

import logging
from collections.abc import Callable, Collection
from concurrent.futures import Future
from threading import Thread

from core.model.actions import Action
from core.model.errors import (
    OUTAGES,
    EngineRefused,
    HeadgateError,
    TryAgain,
)
from core.model.names import TableName, query_name, trigger_s
from core.model.states import State
from core.observed.aligned_positions import AlignedPair, Unaligned
from core.observed.versions import Deployment
from core.plan.model import Step
from core.run.model import NOT_COMPARED
from core.run.records import CheckResultRow
from core.run.state_machine import GateOpened, GatePolled, RunEvidence, StepDone, StepFailed
from core.text.sentence import Sentence
from core.text.wording import short_duration
from core.validation.verdicts import BLOCKING, CheckResult, CheckVerdict, blocking_words, row_count_lead
from pipelines.agent.runs.common_positions import GONE_EVERY_S, STRICT_S, find_position, why_never_aligned
from pipelines.agent.runs.differences_explained_by_release import VersionPair
from pipelines.agent.runs.run_context import OpenValidation, RunContext
from pipelines.agent.runs.version_comparison import VersionComparison

ALIGNED_S = 1800.0
"""Longest wait for a common position, in seconds, unless `ALIGNED_TRIGGERS` allows more.

With many small files, batches of both versions rarely match.
"""

ALIGNED_TRIGGERS = 10
"""Longest wait for a common position, in triggers of the slower version, if that is longer than `ALIGNED_S`."""

_TOLD = ("differences", "totals", "kept rows", "duplicates")
"""Checks whose results a step's note summarizes if no check blocks the swap."""

log = logging.getLogger(__name__)


def end_comparisons(run: RunContext, waiting: Collection[int]) -> None:
    """End a run's comparisons, except for the steps whose numbers are in `waiting`."""
    for open_ in (open_ for n, open_ in run.validations.items() if n not in waiting):
        if open_.comparison is not None:
            open_.comparison.end()


def validate(run: RunContext, step: Step) -> RunEvidence:
    """Discard earlier validations of a step, and start waiting for a position that both versions have read."""
    now = run.agent.monotonic()
    end_comparisons(run, run.validations.keys() - {step.n})
    run.validations[step.n] = OpenValidation(now, now)
    return run.restart_stopped_version(step, step.table, step.version) or GateOpened(
        step.n, "waiting for a position that both versions have read"
    )


def look_for_verdict(run: RunContext, step: Step) -> RunEvidence:
    """Check a validation: start the comparison once there is a common position, and evaluate it once it has ended."""
    agent, open_ = run.agent, run.validations[step.n]
    new = agent.ledger.deployment(step.table, step.version)
    if new is None:
        return StepFailed(step.n, f"{query_name(step.table, step.version)} is not in the registry")
    if run.stopped_by_operator(step.table, step.version):
        return StepFailed(step.n, run.stopped_words(step.table, step.version))
    if new.state == State.FAILED:
        return StepFailed(step.n, f"it failed: {new.error_class} {new.error}".strip())
    old = agent.ledger.deployment(step.table, run.nodes[step.table].from_version)
    if open_.work is None:
        why = ""
        try:
            if old is None or old.deleted:
                found: AlignedPair | Unaligned = Unaligned("there is no version to compare with", final=True)
            else:
                strict = agent.monotonic() - open_.opened_at < STRICT_S
                found = find_position(agent, run.compared_versions, old, new, strict=strict)
            if isinstance(found, Unaligned):
                never = Sentence(found.why) if found.final else _why_never(run, old, open_)
                if never is None:
                    return _no_position(run, step, (old, new), open_, found.why)
                why = str(never)
        except TryAgain as error:
            return GatePolled(step.n, f"waits: {error.summary}")
        open_.pair = found if isinstance(found, AlignedPair) else None
        open_.comparison = VersionComparison(agent, run.compared_versions)
        open_.work = _begin(run, open_.comparison, (old, new), open_.pair, why)
    if not open_.work.done():
        return GatePolled(step.n, "comparing")
    return _judged(run, step, (old, new), open_)


def _no_position(
    run: RunContext, step: Step, versions: tuple[Deployment | None, Deployment], open_: OpenValidation, why: str
) -> RunEvidence:
    slowest_s = max(trigger_s(each.trigger) for each in versions if each is not None)
    most_s = max(ALIGNED_S, ALIGNED_TRIGGERS * slowest_s)
    if run.agent.monotonic() - open_.opened_at > most_s:
        return StepFailed(step.n, f"within {short_duration(most_s)} no position was found that both have read: {why}")
    return GatePolled(step.n, f"no common position yet, for at most {short_duration(most_s)}: {why}")


def _why_never(run: RunContext, old: Deployment | None, open_: OpenValidation) -> Sentence | None:
    if old is None:
        return None
    now = run.agent.monotonic()
    looks = now - open_.looked_at >= GONE_EVERY_S
    why = why_never_aligned(run.agent, run.compared_versions, old, files=looks)
    if looks:
        open_.looked_at = now
    return why


def _begin(
    run: RunContext,
    comparison: VersionComparison,
    versions: tuple[Deployment | None, Deployment],
    pair: AlignedPair | None,
    why: str,
) -> "Future[tuple[CheckResult, ...]]":
    # Without a pair, only the project's checks run, and the comparison is recorded as skipped.
    work: Future[tuple[CheckResult, ...]] = Future()
    old, new = versions

    def found() -> tuple[CheckResult, ...]:
        with comparison.turn():
            results: tuple[CheckResult, ...] = (CheckResult("differences", CheckVerdict.SKIPPED, why),)
            if old is not None and pair is not None:
                results = comparison.compare(VersionPair(old, new, pair))
            return (*results, *comparison.check(new, pair.green if pair else None, _catalog_names(run)))

    Thread(target=_settle, args=(work, found), name=f"validate {new.table}", daemon=True).start()
    return work


def _catalog_names(run: RunContext) -> dict[TableName, str]:
    # A check reads the new versions of rebuilt tables, and the serving versions of all other tables.
    layout = run.agent.layout
    serving = {found.table: found.version for found in run.agent.ledger.deployments() if found.active}
    versions = serving | {table: node.version for table, node in run.nodes.items() if node.action is Action.REBUILD}
    return {table: layout.catalog_name(table, version) for table, version in versions.items()}


def _settle(work: "Future[tuple[CheckResult, ...]]", found: Callable[[], tuple[CheckResult, ...]]) -> None:
    try:
        work.set_result(found())
    except BaseException as error:
        work.set_exception(error)


def _judged(
    run: RunContext, step: Step, versions: tuple[Deployment | None, Deployment], open_: OpenValidation
) -> RunEvidence:
    assert open_.work is not None
    work, open_.work = open_.work, None
    try:
        results = work.result()
    except OUTAGES:
        raise
    except HeadgateError as error:
        lead = f"{error.error_class}: " if isinstance(error, EngineRefused) and error.error_class else ""
        return StepFailed(step.n, f"{lead}{' '.join(error.summary.split())}")
    old, new = versions
    at, pair = run.agent.clock(), open_.pair
    run.agent.ledger.put_check_results(
        run.id,
        step.table,
        [
            CheckResultRow(
                run.id, step.table, n=n, at=at, old_version=old.version if old else 0, new_version=new.version,
                old_batch=pair.blue if pair else None, new_batch=pair.green if pair else None,
                check=result.check, verdict=result.verdict.value, summary=result.summary, counts=dict(result.counts),
                examples=tuple(dict(example) for example in result.examples),
            )
            for n, result in enumerate(results, 1)
        ],
    )  # fmt: skip
    if blocked := blocking_words(results):
        return StepFailed(step.n, blocked)
    return StepDone(step.n, _words(results))


def _words(results: tuple[CheckResult, ...]) -> str:
    assert not any(result.verdict in BLOCKING for result in results)
    skipped = [result.summary for result in results if result.verdict is CheckVerdict.SKIPPED]
    expected = [result for result in results if result.verdict is CheckVerdict.EXPECTED]
    if skipped:
        return f"{NOT_COMPARED}: {'; '.join(skipped)}"
    if not expected:
        return f"equal in {len(results)} checks"
    told = [result for result in expected if result.check in _TOLD]
    others = [result for result in expected if result.check != "rows"]
    words = "; ".join(f"{result.check}: {result.summary}" for result in told or others[:1])
    # Row counts come first: a narrow screen truncates the note, and whoever releases the swap must see them.
    verdict = f"{row_count_lead(results).removesuffix('; ')}, as expected".removeprefix(", ")
    return f"{verdict}: {words}" if words else verdict
