"""The catch-up gate of a rebuild, which checks that the new version has caught up and that its replay lost no rows."""

from dataclasses import dataclass

from core.model.names import trigger_s
from core.model.states import State, WantedState
from core.observed.versions import Deployment, Measurement
from core.text.sentence import Sentence
from pipelines.agent.context import AgentContext

POLLS = 3
"""Number of consecutive measurements within the limit that open the gate."""

LAG_ROWS = 100
"""Maximum lag, in rows, of a version that has caught up. For small tables, the limit is a hundredth of their rows."""

SILENT_S = 600.0
"""Seconds with pending input but without a commit before the gate fails."""

UNKNOWN_S = 600.0
"""Seconds with an unknown lag or a missing source before the gate fails."""

FRESH_S = 60.0
"""Maximum age, in seconds, of a measurement that allows a swap. Versions are measured every 5 s."""

FALLING_S = 6 * 3600.0
"""Seconds without a new minimum of the lag before the gate fails."""


@dataclass(frozen=True, slots=True)
class GateReading:
    """Result of one check of a gate: open, failed, or neither, with a note for display."""

    open: bool
    note: str
    failed: bool = False


@dataclass(slots=True)
class CatchUpGate:
    """Counts consecutive measurements in which a new version's lag was within the limit.

    Waiting times are measured with the monotonic clock. Times of measurements are only compared for equality, because
    the wall clock may jump.
    """

    opened_at: float
    """When the wait began, in seconds of `AgentContext.monotonic`."""
    must_read_all_input: bool = False
    """True if the version must have read all its input, because another version joins it as a static side."""
    good: int = 0
    checked: bool = False
    seen_at: float | None = None
    """Time of the last measurement that was checked, in epoch seconds."""
    batch: int | None = None
    moved_at: float = 0.0
    known_at: float = 0.0
    """When the lag was last known, in seconds of `AgentContext.monotonic`."""
    sources_present_at: float = 0.0
    """When all sources were last present, in seconds of `AgentContext.monotonic`."""
    not_stopped_at: float = 0.0
    """Last time at which the version was not stopped, in seconds of `AgentContext.monotonic`."""
    lowest: tuple[str, int] | None = None
    """Unit and value of the lowest lag so far."""
    fell_at: float = 0.0

    def check(self, agent: AgentContext, deployment: Deployment) -> GateReading:
        """Check a version's latest measurement.

        Each measurement counts once, and only if it was made after the wait began.
        """
        now = agent.monotonic()
        measured = {(m.table, m.version): m for m in agent.ledger.measurements()}
        mine = measured.get((deployment.table, deployment.version))
        before, self.checked = self.checked, True
        if why := self._why_cannot_catch_up(deployment, now) or self._why_unmeasurable(mine, now):
            return GateReading(False, str(why), failed=True)
        if mine is None:
            return GateReading(False, "waiting for the first measurement")
        blue = next((d for d in agent.ledger.deployments() if d.table == deployment.table and d.active), None)
        theirs = measured.get((blue.table, blue.version)) if blue else None
        if lost := _lost(mine, theirs, deployment):
            return GateReading(False, str(lost), failed=True)
        if before and mine.at != self.seen_at:
            held = _holds_all(mine) if self.must_read_all_input else _caught_up(mine, theirs, deployment)
            within = held and deployment.state == State.RUNNING
            self.good = self.good + 1 if within else 0
        self.seen_at = mine.at
        if self.good >= POLLS:
            watermark = f", watermark {mine.watermark}" if mine.watermark else ""
            limit = _limit_words(mine, theirs, deployment, must_read_all_input=self.must_read_all_input)
            return GateReading(True, f"caught up: {_behind(mine)}{limit}{watermark}")
        if why := self._stuck(mine, now):
            return GateReading(False, str(why), failed=True)
        if _gone(mine):
            return GateReading(False, _behind(mine))
        limit = _limit_words(mine, theirs, deployment, must_read_all_input=self.must_read_all_input)
        return GateReading(False, f"{_behind(mine)}{limit}, {self.good} of {POLLS} checks within the limit")

    def _why_cannot_catch_up(self, deployment: Deployment, now: float) -> Sentence | None:
        if deployment.state == State.FAILED:
            return Sentence(f"failed: {deployment.error_class} {deployment.error}".strip())
        if deployment.deleted:
            return Sentence("it was deleted")
        if deployment.wanted == WantedState.STOPPED:
            return Sentence("it is wanted stopped")
        if deployment.state != State.STOPPED:
            self.not_stopped_at = now
        is_over = self._is_past(self.not_stopped_at, SILENT_S, now)
        return Sentence(f"it has been stopped for {SILENT_S:.0f} s") if is_over else None

    def _why_unmeasurable(self, mine: Measurement | None, now: float) -> Sentence | None:
        if mine is not None and mine.lag_files is not None:
            self.known_at = now
        if self._is_past(self.known_at, UNKNOWN_S, now):
            why = f", because {mine.why_unmeasured}" if mine and mine.why_unmeasured else "; see headgate logs agent"
            return Sentence(f"its lag could not be measured for {UNKNOWN_S:.0f} s{why}")
        gone = _gone(mine) if mine is not None else ""
        if not gone:
            self.sources_present_at = now
        if gone and self._is_past(self.sources_present_at, UNKNOWN_S, now):
            return Sentence(f"its source {gone} has been missing for {UNKNOWN_S:.0f} s; put it back, or plan again")
        return None

    def _stuck(self, mine: Measurement, now: float) -> Sentence | None:
        if mine.batch != self.batch:
            self.batch, self.moved_at = mine.batch, now
        if self._is_past(self.moved_at, SILENT_S, now) and mine.lag_files:
            return Sentence(f"no batch for {SILENT_S:.0f} s with {_behind(mine)} waiting")
        lag = ("files", mine.lag_files or 0) if mine.lag_rows is None else ("rows", mine.lag_rows)
        if self.lowest is None or lag[0] != self.lowest[0] or lag[1] < self.lowest[1]:
            self.lowest, self.fell_at = lag, now
        unit, lowest = self.lowest
        if lowest and self._is_past(self.fell_at, FALLING_S, now):
            return Sentence(f"its lag has not fallen below {lowest:,} {unit} for {FALLING_S / 3600:.0f} hours")
        return None

    def _is_past(self, since: float, seconds: float, now: float) -> bool:
        return now - max(since, self.opened_at) > seconds

    @staticmethod
    def why_closed(agent: AgentContext, deployment: Deployment) -> Sentence | None:
        """Return why a version must not serve now, according to its latest measurement; None if it may serve."""
        measured = {(m.table, m.version): m for m in agent.ledger.measurements()}
        mine = measured.get((deployment.table, deployment.version))
        blue = next((d for d in agent.ledger.versions(deployment.table) if d.active), None)
        theirs = measured.get((blue.table, blue.version)) if blue else None
        if mine is None:
            return Sentence("it has no measurement")
        if abs(agent.clock() - mine.at) > FRESH_S:
            return Sentence(f"it was not measured for {FRESH_S:.0f} s")
        if deployment.state != State.RUNNING:
            return Sentence(f"it is {deployment.state}")
        late = f"{_behind(mine)}{_limit_words(mine, theirs, deployment)}"
        return _lost(mine, theirs, deployment) or (None if _caught_up(mine, theirs, deployment) else Sentence(late))


def _lost(mine: Measurement, theirs: Measurement | None, deployment: Deployment) -> Sentence | None:
    """Return a sentence if a new version lacks rows because its replay dropped them as late; None if it does not.

    Dropped rows do not count if the serving version also drops rows, or if the version has served before, which
    involves no replay. Spark counts dropped rows after a partial aggregation, so the number only shows whether there
    were any.
    """
    habit = bool(theirs and theirs.dropped_by_watermark) or deployment.served_at is not None
    if mine.dropped_by_watermark and not habit:
        return Sentence("the watermark dropped rows during the replay; this version lacks them")
    return None


def _gone(measured: Measurement) -> str:
    return ", ".join(str(source.get("table", "")) for source in measured.sources if source.get("missing"))


def _holds_all(mine: Measurement) -> bool:
    # Before the first batch, a lag of 0 counts only if all sources are empty.
    return mine.lag_files == 0 and (mine.batch is not None or all(source.get("rows") == 0 for source in mine.sources))


def _caught_up(mine: Measurement, theirs: Measurement | None, deployment: Deployment) -> bool:
    if mine.lag_files is None or _gone(mine):
        return False
    if mine.batch is None or mine.lag_files == 0:
        return _holds_all(mine)
    rows, age_s = _limits(mine, theirs, deployment)
    # Pending input normally has an age. It has none if its files are newer than a clock that was set back; then only
    # the row count decides.
    young = bool(mine.behind_s and mine.behind_s <= age_s)
    return young or (mine.lag_rows is not None and mine.lag_rows <= rows)


def _limits(mine: Measurement, theirs: Measurement | None, deployment: Deployment) -> tuple[int, float]:
    """Return the limits for a version that has caught up: its lag in rows, and the age of its pending input in seconds.

    The limit on the lag is at least the serving version's lag, if known, plus a margin.
    """
    few = min(LAG_ROWS, (mine.rows_total or 0) // 100)
    # A version that is rewritten in place is its own serving version, so there is nothing to compare it with.
    beside = theirs is not None and theirs.version != mine.version
    like_theirs = int(theirs.lag_rows * 1.1) if theirs and beside and theirs.lag_rows is not None else 0
    return max(few, like_theirs), 2 * trigger_s(deployment.trigger) + 15


def _limit_words(
    mine: Measurement, theirs: Measurement | None, deployment: Deployment, *, must_read_all_input: bool = False
) -> str:
    """Return a suffix for a lag, such as `, 12 s behind, limit 100 rows or 25 s`; empty if no input is pending."""
    if not mine.lag_files:
        return ""
    age = f", {mine.behind_s:,.0f} s behind" if mine.behind_s else ""
    if mine.batch is None:
        return f"{age}, before its first batch"
    if must_read_all_input:
        return f"{age}, limit 0"
    rows, age_s = _limits(mine, theirs, deployment)
    in_rows = f"{_many(rows, 'row')} or " if rows and mine.lag_rows is not None else ""
    return f"{age}, limit {in_rows}{age_s:,.0f} s"


def _behind(measured: Measurement) -> str:
    if gone := _gone(measured):
        return f"its source {gone} is not there"
    if why := measured.why_unmeasured:
        return f"lag unknown, because {why}"
    if measured.lag_rows is None:
        return "lag unknown" if measured.lag_files is None else f"lag {_many(measured.lag_files, 'file')}"
    return f"lag {'' if measured.exact else '≈'}{_many(measured.lag_rows, 'row')}"


def _many(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
