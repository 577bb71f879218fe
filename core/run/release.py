"""Releases: the progress of runs that replace versions, derived from plan, steps and registry.

A release is never stored; the state of its run is authoritative.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from core.model.actions import Action, StepKind
from core.model.names import TableName, physical_name
from core.model.states import State, WantedState
from core.observed.planner_input import Seconds
from core.observed.versions import Deployment, Measurement, slowest_part
from core.plan.model import Plan, PlanNode, Step
from core.plan.predictions import step_ends
from core.run.model import SATISFIED, RunState, StepState
from core.run.records import MigrationTicket, RunRow, StepRow, open_tickets
from core.run.stopped_statement_sentences import left_running, left_running_words
from core.text.sentence import Sentence, sentence_of
from core.text.wording import counted


class ReleaseState(StrEnum):
    """The state of a release."""

    PREPARING = "preparing"
    HYDRATING = "hydrating"
    VALIDATING = "validating"
    READY = "ready"
    HELD = "held"
    SWAPPING = "swapping"
    HALTED = "halted"
    """The run has not swapped yet, and no agent is alive to continue it."""
    OBSERVING = "observing"
    RETIRING = "retiring"
    DONE = "done"
    ABORTED = "aborted"
    ROLLING_BACK = "rolling back"
    ROLLED_BACK = "rolled back"
    REPLACED = "replaced"
    NEEDS_YOU = "needs you"


OPEN_STATES = frozenset(ReleaseState) - {
    ReleaseState.DONE, ReleaseState.ABORTED, ReleaseState.ROLLED_BACK, ReleaseState.REPLACED,
}  # fmt: skip
"""States in which a release is in progress or waits."""

_STATE_BY_STEP: Mapping[StepKind, ReleaseState] = {
    StepKind.SWAP: ReleaseState.SWAPPING,
    StepKind.HOLD: ReleaseState.HELD,
    StepKind.CATCH_UP: ReleaseState.HYDRATING,
    StepKind.START: ReleaseState.HYDRATING,
    StepKind.REWRITE: ReleaseState.HYDRATING,
    StepKind.RESUME: ReleaseState.HYDRATING,
    StepKind.VALIDATE: ReleaseState.VALIDATING,
}
"""The release state by kind of the open step; if several steps are open, the first matching entry decides.

A release whose first versions are compared while others catch up is still hydrating.
"""

_CARRIED_OUT = frozenset({
    ReleaseState.PREPARING, ReleaseState.HYDRATING, ReleaseState.VALIDATING, ReleaseState.READY, ReleaseState.HELD,
    ReleaseState.SWAPPING, ReleaseState.ROLLING_BACK,
})  # fmt: skip
"""States in which the agent performs the steps of the run."""

_BEGUN = frozenset({StepState.WAITS, StepState.RUNNING})
"""States of a started swap step in which some pointers may have moved; a retried swap waits again."""

_REPLACES = frozenset({Action.REBUILD, Action.ROLLBACK})


Version = tuple[TableName, int]


UNMEASURED = Measurement(TableName(""), 0, 0.0, trend="")
"""Figures of a version before its first measurement."""


@dataclass(frozen=True, slots=True)
class ReleaseSide:
    """The old or the new version of a table in a release."""

    version: int
    state: str
    """The observed state; `absent` if the files are gone or in the trash."""
    runs: bool
    """True if the desired state is `running`."""
    stops_at: float | None
    """When the query will be stopped, in epoch seconds; None if no stop is scheduled."""
    figures: Measurement = UNMEASURED

    @property
    def slowest(self) -> str:
        """Longest phase of the version's last batch; empty if unknown."""
        return slowest_part(self.figures.durations)


@dataclass(frozen=True, slots=True)
class ReleasePair:
    """The old and the new version of one table in a release."""

    table: TableName
    old: ReleaseSide
    new: ReleaseSide
    serves: int
    """The version behind the pointer; 0 if there is no pointer."""
    gate: str
    """State of the new version's catch-up step; empty if the plan has no such step."""
    note: str
    """Note of the new version's catch-up step."""
    checks: str
    """State of the step that compares both versions; empty if there is none or the comparison was skipped."""
    found: str
    """Findings of the comparison, from the note of its step."""
    lacks: str
    """Why the old version cannot serve again; empty if it can."""
    gate_at: float | None = None
    """When the new version caught up, in epoch seconds; None before that."""


@dataclass(frozen=True, slots=True)
class Release:
    """A release: the progress of a run that replaces versions of tables."""

    run: str
    plan: str
    actor: str
    state: ReleaseState
    since: float
    """When the release entered its current state, in epoch seconds."""
    pairs: tuple[ReleasePair, ...]
    left: Seconds | None
    """Predicted remaining time, without a hold; None if it is unknown or the run is not running."""
    serves: bool
    """True if at least one of the new versions still serves."""
    note: str
    """Note of the step at which the run waits or failed; may be empty."""
    blocked: Sentence | None
    """Why the release cannot be rolled back; None if it can."""
    old_until: float | None
    """Earliest scheduled stop of a replaced version, in epoch seconds; until then, a rollback takes only seconds.

    None before the swap, or if any replaced version is stopped or has no scheduled stop.
    """
    tickets: tuple[MigrationTicket, ...] = ()
    """Open tickets of readers of the replaced versions."""

    @property
    def rollback(self) -> str:
        """Command that rolls the release back; empty if a rollback is not possible."""
        return "" if self.blocked else f"headgate rollback {self.run}"

    @property
    def is_open(self) -> bool:
        """True if the release is still in progress or waiting."""
        return self.state in OPEN_STATES


def replaced_nodes(plan: Plan) -> tuple[PlanNode, ...]:
    """Return the nodes of a plan that replace a version with another; a run without such nodes is not a release."""
    return tuple(node for node in plan.nodes if node.action in _REPLACES and node.version != node.from_version)


def release_of(
    plan: Plan,
    run: RunRow,
    versions: Iterable[Deployment],
    figures: Iterable[Measurement],
    *,
    now: float,
    tickets: Iterable[MigrationTicket] = (),
    rolled_back_by: str = "",
    uncompared: Collection[TableName] = (),
) -> Release | None:
    """Return the release that a run carries out; None if the run replaces no version.

    `rolled_back_by` is the open run that rolls the release back; `uncompared` are tables whose comparison was skipped.
    """
    nodes = replaced_nodes(plan)
    if not nodes:
        return None
    known = {(one.table, one.version): one for one in versions}
    serving = {table: version for (table, version), one in known.items() if one.active and not one.deleted}
    measured = {(one.table, one.version): one for one in figures}
    old = {node.table: node.from_version for node in nodes}
    gates, checks = (_by_version(run, kind) for kind in (StepKind.CATCH_UP, StepKind.VALIDATE))
    pairs = []
    for node in sorted(nodes, key=lambda node: node.table):
        before, after = (node.table, node.from_version), (node.table, node.version)
        gate, check = gates.get(_key(node)), checks.get(_key(node))
        pairs.append(
            ReleasePair(
                table=node.table,
                old=_side(before, known.get(before), measured.get(before), now),
                new=_side(after, known.get(after), measured.get(after), now),
                serves=serving.get(node.table, 0),
                gate=gate.state if gate else "",
                note=gate.note if gate else "",
                checks=_state_of_check(check, uncompared),
                found=check.note if check else "",
                lacks=_lacks(known.get(before), known, old),
                gate_at=gate.ended_at if gate and gate.state == StepState.DONE else None,
            )
        )
    state, since, note = _standing(plan, run, pairs, known)
    swapped = _has_swapped(run, pairs, known)
    serves = swapped and _serves(run, pairs, known)
    soaks = [pair.old.stops_at for pair in pairs if pair.old.runs and pair.old.stops_at is not None]
    replaced = {physical_name(pair.table, pair.old.version) for pair in pairs}
    return Release(
        run=run.id,
        plan=plan.hash,
        actor=run.actor,
        state=state,
        since=since,
        pairs=tuple(pairs),
        left=time_left(plan.steps, run.steps, now) if run.state == RunState.RUNNING else None,
        serves=serves,
        note=note,
        blocked=_why_no_rollback(plan, run, pairs, serves if swapped else None, rolled_back_by),
        old_until=min(soaks) if swapped and len(soaks) == len(pairs) else None,
        tickets=tuple(ticket for ticket in open_tickets(tickets, known.values()) if ticket.old in replaced),
    )


def halted_release(release: Release) -> Release:
    """Return a release as it is while no agent is alive, which halts it unless it has swapped or ended."""
    if release.state not in _CARRIED_OUT:
        return release
    return replace(release, state=ReleaseState.HALTED, left=None, note="")


def _state_of_check(check: StepRow | None, uncompared: Collection[str]) -> str:
    if check is None or (check.state == StepState.DONE and check.table in uncompared):
        return ""
    return check.state


def _by_version(run: RunRow, kind: StepKind) -> dict[tuple[str, int], StepRow]:
    return {(step.table, step.version): step for step in run.steps if step.do == kind}


def _key(node: PlanNode) -> tuple[str, int]:
    return str(node.table), node.version


def _side(key: Version, one: Deployment | None, measured: Measurement | None, now: float) -> ReleaseSide:
    """Return one side of a release; a stop that is overdue is omitted, because readers keep the version running."""
    if one is None or one.deleted:
        return ReleaseSide(key[1], State.ABSENT, runs=False, stops_at=None)
    runs = one.wanted == WantedState.RUNNING
    ends = one.stops_at if one.stops_at is not None and one.stops_at > now else None
    stops_at = ends if runs and not one.active else None
    return ReleaseSide(key[1], one.state, runs, stops_at, measured or UNMEASURED)


def _lacks(one: Deployment | None, known: Mapping[Version, Deployment], old: Mapping[TableName, int]) -> str:
    if one is None or one.deleted:
        return "it is deleted"
    if not one.checkpoint_ok:
        return "its checkpoint or its table is lost"
    if one.state == State.FAILED:
        return "it has failed"
    for binding in one.bindings:
        parent = known.get((binding.parent, binding.version))
        filled = parent is not None and not parent.deleted and (parent.active or parent.wanted == WantedState.RUNNING)
        if binding.version and not filled and old.get(binding.parent) != binding.version:
            return f"it reads {physical_name(binding.parent, binding.version)}, which no longer receives rows"
    return ""


def _has_swapped(run: RunRow, pairs: Sequence[ReleasePair], known: Mapping[Version, Deployment]) -> bool:
    """True if the swap is complete, or if the run has ended and a new version serves."""
    done = any(step.do == StepKind.SWAP and step.state == StepState.DONE for step in run.steps)
    return done or (run.ended_at is not None and _serves(run, pairs, known))


def _serves(run: RunRow, pairs: Sequence[ReleasePair], known: Mapping[Version, Deployment]) -> bool:
    new = (known.get((pair.table, pair.new.version)) for pair in pairs if pair.serves == pair.new.version)
    return any(one is not None and one.served_by in ("", run.id) for one in new)


def _why_no_rollback(
    plan: Plan, run: RunRow, pairs: Sequence[ReleasePair], serves: bool | None, rolled_back_by: str
) -> Sentence | None:
    """Explain why a release cannot be rolled back; None if it can. `serves` is None before the swap."""
    if rolled_back_by:
        return Sentence(f"run {rolled_back_by} is rolling it back")
    if serves is None:
        begun = any(step.do == StepKind.SWAP and step.tries and step.state in _BEGUN for step in run.steps)
        if begun or run.ended_at is not None:
            return Sentence("the swap is not complete" if begun else "nothing has been swapped")
        what = (
            "it is a rollback itself, and no pointer has moved"
            if _goes_back(plan, pairs)
            else "nothing has been swapped"
        )
        return Sentence(f"{what} yet; headgate runs cancel {run.id} ends it")
    if not serves:
        return Sentence("the versions that it swapped in no longer serve")
    lacking = [f"{pair.table} v{pair.old.version}: {pair.lacks}" for pair in pairs if pair.lacks]
    return sentence_of("; ".join(lacking))


def _standing(
    plan: Plan, run: RunRow, pairs: Sequence[ReleasePair], known: Mapping[Version, Deployment]
) -> tuple[ReleaseState, float, str]:
    back = _goes_back(plan, pairs)
    waits = not run.acknowledged_by or any(pair.new.state != State.ABSENT for pair in pairs)
    if run.state == RunState.FAILED and not run.continued_by and waits:
        bad = next((step for step in run.steps if step.state == StepState.FAILED), None)
        return ReleaseState.NEEDS_YOU, run.ended_at or run.started_at, bad.note if bad else ""
    if _has_swapped(run, pairs, known):
        return _after_the_swap(run, pairs, known)
    if run.state == RunState.CANCELLED or run.state == RunState.FAILED:
        words = f"run {run.continued_by} continues it" if run.continued_by else "nothing was swapped"
        return ReleaseState.ABORTED, run.ended_at or run.started_at, words
    if cut := next((s for s in run.steps if s.do == StepKind.SWAP and s.state == StepState.WAITS and s.tries), None):
        return ReleaseState.SWAPPING, cut.started_at or run.started_at, cut.note
    open_ = {StepKind(step.do): step for step in run.steps if step.state in (StepState.RUNNING, StepState.GATE)}
    found = next((kind for kind in _STATE_BY_STEP if kind in open_), None)
    state = _STATE_BY_STEP[found] if found else _between(run)
    since = open_[found].started_at if found else None
    note = open_[found].note if found else ""
    if back and state not in (ReleaseState.HELD, ReleaseState.SWAPPING):
        state, since = ReleaseState.ROLLING_BACK, run.started_at
    return state, since or run.started_at, note


def _goes_back(plan: Plan, pairs: Sequence[ReleasePair]) -> bool:
    """True if a plan rolls back to older versions; rolling back a rollback returns to newer versions."""
    return plan.request.verb == "rollback" and any(pair.new.version < pair.old.version for pair in pairs)


def _between(run: RunRow) -> ReleaseState:
    """Derive the state before the swap from the finished steps, if no open step determines it."""
    gates = [step.state in SATISFIED for step in run.steps if step.do == StepKind.CATCH_UP]
    if gates and all(gates):
        return ReleaseState.READY
    started = any(step.do in (StepKind.START, StepKind.RESUME) and step.state in SATISFIED for step in run.steps)
    return ReleaseState.HYDRATING if started else ReleaseState.PREPARING


def _after_the_swap(
    run: RunRow, pairs: Sequence[ReleasePair], known: Mapping[Version, Deployment]
) -> tuple[ReleaseState, float, str]:
    swapped = max((s.ended_at or 0.0 for s in run.steps if s.do == StepKind.SWAP), default=0.0) or run.started_at
    if not _serves(run, pairs, known):
        back = all(pair.serves == pair.old.version for pair in pairs)
        serving = (known.get((pair.table, pair.serves)) for pair in pairs)
        since = max((one.served_at or 0.0 for one in serving if one is not None), default=0.0) or swapped
        return ReleaseState.ROLLED_BACK if back else ReleaseState.REPLACED, since, ""
    if run.ended_at is None:
        ending = any(step.do == StepKind.STOP and step.state != StepState.DONE for step in run.steps)
        return ReleaseState.RETIRING if ending else ReleaseState.OBSERVING, swapped, ""
    left = left_running(known.values(), {(pair.table, pair.old.version) for pair in pairs})
    if left and run.state == RunState.CANCELLED:
        return ReleaseState.DONE, run.ended_at, left_running_words(left)
    running = [pair for pair in pairs if pair.old.runs]
    if any(pair.old.stops_at is not None for pair in running):
        words = f"{counted(len(running), 'replaced version')} {'is' if len(running) == 1 else 'are'} still running"
        return ReleaseState.OBSERVING, swapped, words
    return ReleaseState.DONE, run.ended_at, ""


def time_left(steps: Sequence[Step], records: Iterable[StepRow], now: float) -> Seconds | None:
    """Return the predicted remaining time of a run; None if it is unknown, or if no step remains.

    (0, 0) means that an open step takes longer than predicted.
    """
    records = tuple(records)
    if not steps or all(record.state in SATISFIED for record in records):
        return None
    lows, highs, late = {}, {}, False
    unpredicted = {step.n for step in steps if step.do is StepKind.HOLD}
    for record in records:
        if record.state in SATISFIED:
            lows[record.n] = highs[record.n] = 0.0
        elif record.predicted_low_s is not None and record.predicted_high_s is not None:
            begun = record.started_at if record.state in (StepState.RUNNING, StepState.GATE) else None
            left = Seconds(record.predicted_low_s, record.predicted_high_s).less(now - begun if begun else 0.0)
            lows[record.n], highs[record.n] = left.low, left.high
            late |= begun is not None and left.high <= 0 and record.n not in unpredicted
    if late:
        return Seconds(0.0, 0.0)
    if len(highs) < len(steps):
        return None
    return Seconds(*(max(step_ends(steps, found).values(), default=0.0) for found in (lows, highs)))
