"""The gate of a rebuild: what opens it, what fails it, and that clocks and restarts do not affect it."""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from domain_builders import plan, project, table

from core.model.errors import LedgerUnavailable
from core.model.names import TableName
from core.model.states import State
from core.observed.versions import Deployment, Measurement
from core.project.revision import RevisionTexts
from pipelines.agent.runs.catch_up_gate import FALLING_S, LAG_ROWS, POLLS, SILENT_S, UNKNOWN_S, CatchUpGate, GateReading
from pipelines.agent.runs.step_executor import joined_whole

T = TableName("orders")


def version(
    number: int, state: State = State.RUNNING, *, active: bool = False, trigger: str = "5 seconds"
) -> Deployment:
    return Deployment(
        table=T, version=number, product="p", layer="fact", owner="", revision="r", texts=RevisionTexts(),
        compiled="", compiled_ddl="", columns=(), format="parquet", folder="", checkpoint="", checkpoint_id="",
        trigger=trigger, mode="append", stateful=False, wanted="running", state=state, state_since=0.0, active=active,
        bindings=(),
    )  # fmt: skip


@dataclass
class FakeAgent:
    """A ledger with the latest measurements, and two clocks. The wall clock can be set."""

    wall: float = 1_800_000_000.0
    passed: float = 5_000.0
    green: Deployment = field(default_factory=lambda: version(2))
    blue: Deployment | None = field(default_factory=lambda: version(1, active=True))
    measured: dict[int, Measurement] = field(default_factory=dict)
    locked: bool = False
    gate: CatchUpGate = field(init=False)

    def __post_init__(self) -> None:
        self.gate = CatchUpGate(opened_at=self.passed)

    @property
    def ledger(self) -> "FakeAgent":
        return self

    def clock(self) -> float:
        return self.wall

    def monotonic(self) -> float:
        return self.passed

    def measurements(self) -> list[Measurement]:
        if self.locked:
            raise LedgerUnavailable("the ledger is locked")
        return list(self.measured.values())

    def versions(self, table: TableName) -> list[Deployment]:
        return self.deployments()

    def deployments(self) -> list[Deployment]:
        return [self.green, *([self.blue] if self.blue else [])]

    def wait(self, seconds: float) -> None:
        self.passed += seconds
        self.wall += seconds

    def measure(self, number: int = 2, **figures: Any) -> None:
        self.measured[number] = Measurement(T, number, self.wall, **({"batch": 7, "lag_files": 0} | figures))

    def check(self) -> GateReading:
        return self.gate.check(self, self.green)  # type: ignore[arg-type]  # What a gate needs of the agent's context.

    def looks(self, times: int, **figures: Any) -> GateReading:
        """Measure and look `times` times, five seconds apart."""
        for _ in range(times):
            self.wait(5)
            self.measure(**figures)
            reading = self.check()
        return reading


@pytest.fixture
def agent() -> FakeAgent:
    made = FakeAgent()
    assert made.check() == GateReading(False, "waiting for the first measurement")
    return made


BEHIND = {"lag_files": 40, "lag_rows": 90_000, "behind_s": 900.0}


def test_a_gate_opens_after_the_required_number_of_good_measurements(agent: FakeAgent) -> None:
    assert agent.looks(POLLS - 1) == GateReading(False, f"lag 0 files, {POLLS - 1} of {POLLS} checks within the limit")
    assert agent.looks(1) == GateReading(True, "caught up: lag 0 files")


def test_an_opening_gate_reports_the_watermark(agent: FakeAgent) -> None:
    found = agent.looks(POLLS, watermark="2026-01-01T00:00:00Z")
    assert found == GateReading(True, "caught up: lag 0 files, watermark 2026-01-01T00:00:00Z")


def test_a_lag_is_shown_with_the_limit_of_its_gate(agent: FakeAgent) -> None:
    late = {"lag_files": 4, "lag_rows": 1_676, "rows_total": 1_000_000}
    assert agent.looks(1, **late, behind_s=90.0).note.startswith(
        "lag 1,676 rows, 90 s behind, limit 100 rows or 25 s, 0"
    )
    agent.measure(1, lag_files=9, lag_rows=4_546)
    assert agent.looks(POLLS, **late, behind_s=90.0).note == (
        "caught up: lag 1,676 rows, 90 s behind, limit 5,000 rows or 25 s"
    )
    assert agent.looks(1, lag_files=4, behind_s=90.0).note.startswith("lag 4 files, 90 s behind, limit 25 s, 0 of 3")
    closed = CatchUpGate.why_closed(agent, agent.green)  # type: ignore[arg-type]  # As `FakeAgent.check`.
    assert closed == "lag 4 files, 90 s behind, limit 25 s"


def test_one_row_and_one_file_are_in_the_singular(agent: FakeAgent) -> None:
    assert agent.looks(1, lag_files=1, behind_s=90.0).note.startswith("lag 1 file, 90 s behind, limit 25 s")
    small = {"lag_files": 4, "lag_rows": 2, "rows_total": 190, "behind_s": 90.0}
    assert agent.looks(1, **small).note.startswith("lag 2 rows, 90 s behind, limit 1 row or 25 s")
    assert agent.looks(1, lag_files=1, lag_rows=1, behind_s=90.0).note.startswith("lag 1 row, 90 s behind")


def test_a_limit_of_zero_rows_is_not_shown_beside_the_age_limit(agent: FakeAgent) -> None:
    small = {"lag_files": 4, "lag_rows": 7, "rows_total": 90, "behind_s": 30.0}
    assert agent.looks(1, **small).note.startswith("lag 7 rows, 30 s behind, limit 25 s, 0 of 3")


def test_before_the_first_batch_the_gate_waits_for_it_and_shows_no_limit(agent: FakeAgent) -> None:
    found = agent.looks(1, batch=None, lag_files=4, lag_rows=40, behind_s=9.0)
    assert found.note == f"lag 40 rows, 9 s behind, before its first batch, 0 of {POLLS} checks within the limit"


def test_a_measurement_counts_once_however_often_it_is_read(agent: FakeAgent) -> None:
    agent.looks(1)
    for _ in range(10):
        agent.wait(1)
        assert not agent.check().open
    assert agent.gate.good == 1


def test_measurements_from_before_the_gate_began_do_not_count() -> None:
    agent = FakeAgent()
    agent.measure()
    for _ in range(5):
        assert not agent.check().open
        agent.wait(1)
    assert agent.gate.good == 0
    assert agent.looks(POLLS).open


def test_a_bad_measurement_resets_the_count(agent: FakeAgent) -> None:
    agent.looks(POLLS - 1)
    assert not agent.looks(1, **BEHIND).open
    assert not agent.looks(POLLS - 1).open
    assert agent.looks(1).open


@pytest.mark.parametrize("state", [State.STARTING, State.DEGRADED, State.STOPPED, State.UNKNOWN])
def test_only_what_runs_has_caught_up(state: State, agent: FakeAgent) -> None:
    agent.looks(POLLS - 1)
    agent.green = replace(agent.green, state=state)
    assert not agent.looks(POLLS).open
    agent.green = replace(agent.green, state=State.RUNNING)
    assert not agent.looks(POLLS - 1).open
    assert agent.looks(1).open


def within(**figures: Any) -> bool:
    made = FakeAgent()
    theirs = figures.pop("theirs", None)
    trigger = figures.pop("trigger", "5 seconds")
    made.green = version(2, trigger=trigger)
    if theirs is not None:
        made.measure(1, **theirs)
    made.check()
    return made.looks(POLLS, **figures).open


@pytest.mark.parametrize(
    ("figures", "caught_up"),
    [
        ({"lag_files": None}, False),
        ({"lag_files": None, "lag_rows": 0, "behind_s": 0.0}, False),
        ({"lag_files": 0}, True),
        ({"lag_files": 1, "lag_rows": LAG_ROWS, "rows_total": 100 * LAG_ROWS}, True),
        ({"lag_files": 1, "lag_rows": LAG_ROWS + 1, "rows_total": 1_000_000}, False),
        ({"lag_files": 1, "lag_rows": 80, "rows_total": 7_999}, False),
        ({"lag_files": 1, "lag_rows": 80}, False),
        ({"lag_files": 9, "lag_rows": 90_000, "behind_s": 25.0}, True),
        ({"lag_files": 9, "lag_rows": 90_000, "behind_s": 25.1}, False),
        ({"lag_files": 9, "lag_rows": 90_000, "behind_s": 75.0, "trigger": "30 seconds"}, True),
        ({"lag_files": 9}, False),
        ({**BEHIND, "theirs": {"lag_rows": 82_000}}, True),
        ({**BEHIND, "theirs": {"lag_rows": 81_000}}, False),
        ({**BEHIND, "theirs": {"lag_rows": None}}, False),
        ({**BEHIND, "lag_rows": None, "theirs": {"lag_rows": 82_000}}, False),
        ({"batch": None, "lag_files": 0, "sources": ({"rows": 0},)}, True),
        ({"batch": None, "lag_files": 0, "sources": ({"rows": 0}, {"rows": None})}, False),
        ({"batch": None, "lag_files": 1, "lag_rows": 1, "behind_s": 0.0}, False),
    ],
)
def test_the_limits_within_which_a_version_has_caught_up(figures: dict[str, Any], caught_up: bool) -> None:
    assert within(**figures) is caught_up


def test_a_version_that_serves_itself_has_not_caught_up_because_it_lags_as_it_does() -> None:
    made = FakeAgent(green=version(2, active=True), blue=None)
    made.check()
    assert not made.looks(POLLS, **BEHIND).open
    assert made.looks(POLLS).open


@pytest.mark.parametrize(
    "figures", [{"lag_files": 1, "lag_rows": 1, "rows_total": 1_000_000}, {"lag_files": 1, "behind_s": 0.0}]
)
def test_a_static_side_must_be_complete(figures: dict[str, Any], agent: FakeAgent) -> None:
    agent.gate = CatchUpGate(opened_at=agent.passed, must_read_all_input=True)
    agent.check()
    assert not agent.looks(POLLS + 2, **figures).open
    assert agent.looks(POLLS, lag_files=0).open


@pytest.mark.parametrize(
    ("mine", "theirs", "lost"),
    [
        (1, None, True),
        (1, {"dropped_by_watermark": 0}, True),
        (1, {"dropped_by_watermark": None}, True),
        (1, {"dropped_by_watermark": 3}, False),
        (0, {"dropped_by_watermark": 3}, False),
        (None, None, False),
    ],
)
def test_rows_that_the_watermark_drops_fail_it_unless_the_serving_version_drops_some_too(
    mine: int | None, theirs: dict[str, Any] | None, lost: bool, agent: FakeAgent
) -> None:
    if theirs is not None:
        agent.measure(1, **theirs)
    reading = agent.looks(1, dropped_by_watermark=mine)
    assert (reading.failed, "dropped rows" in reading.note) == (lost, lost)


def test_dropped_rows_fail_a_version_that_nothing_serves_beside(agent: FakeAgent) -> None:
    agent.blue = None
    assert agent.looks(1, dropped_by_watermark=1).failed
    assert not agent.looks(1, dropped_by_watermark=0).failed


def test_dropped_rows_fail_the_gate_even_after_it_has_caught_up(agent: FakeAgent) -> None:
    agent.looks(POLLS - 1)
    assert agent.looks(1, dropped_by_watermark=1).failed


def test_a_version_that_failed_fails_it_with_its_error(agent: FakeAgent) -> None:
    agent.looks(1)
    agent.green = replace(agent.green, state=State.FAILED, error_class="CAST_INVALID_INPUT", error="the value 'two'")
    assert agent.check() == GateReading(False, "failed: CAST_INVALID_INPUT the value 'two'", failed=True)


def test_input_without_a_batch_fails_it_in_the_end(agent: FakeAgent) -> None:
    agent.looks(1, **BEHIND)
    agent.wait(SILENT_S - 5)
    assert not agent.looks(1, **BEHIND).failed
    reading = agent.looks(1, **BEHIND)
    assert reading == GateReading(False, f"no batch for {SILENT_S:.0f} s with lag 90,000 rows waiting", failed=True)


def test_each_batch_begins_the_wait_again(agent: FakeAgent) -> None:
    for batch in range(20):
        agent.wait(SILENT_S - 10)
        assert not agent.looks(1, **BEHIND, batch=batch).failed
    agent.wait(SILENT_S)
    assert agent.looks(1, **BEHIND, batch=19).failed


def test_silence_without_input_is_no_failure(agent: FakeAgent) -> None:
    for figures in ({"lag_files": 0}, {"batch": None, "lag_files": 0, "sources": ({"rows": None},)}):
        agent.looks(1, **figures)
        agent.wait(10 * SILENT_S)
        assert not agent.looks(1, **figures).failed


UNMEASURED = GateReading(
    False, f"its lag could not be measured for {UNKNOWN_S:.0f} s; see headgate logs agent", failed=True
)


def test_a_version_that_is_never_measured_fails_it_in_the_end_whatever_the_clock_says() -> None:
    agent = FakeAgent()
    for jump in (86400.0, -86400.0):
        agent.wall += jump
        agent.wait(UNKNOWN_S / 2)
        assert not agent.check().failed
    agent.wait(1)
    assert agent.check() == UNMEASURED


def test_a_lag_that_stays_unknown_fails_the_gate_even_while_batches_are_committed(agent: FakeAgent) -> None:
    agent.looks(1, **BEHIND)
    known_at = agent.passed
    for batch in range(200):
        reading = agent.looks(1, lag_files=None, batch=batch)
        if reading.failed:
            break
        assert reading.note.startswith("lag unknown")
    assert reading == UNMEASURED
    assert UNKNOWN_S < agent.passed - known_at <= UNKNOWN_S + 5


def test_a_lag_that_is_known_in_between_begins_the_wait_again(agent: FakeAgent) -> None:
    for batch in range(4):
        agent.wait(UNKNOWN_S - 10)
        assert not agent.looks(1, **BEHIND, batch=batch).failed
        assert not agent.looks(1, lag_files=None, batch=batch).failed


def test_a_reopened_gate_waits_the_full_time_for_a_measurement() -> None:
    agent = FakeAgent()
    agent.wait(UNKNOWN_S)
    agent.gate = CatchUpGate(opened_at=agent.passed)
    agent.wait(UNKNOWN_S)
    assert not agent.check().failed
    agent.wait(1)
    assert agent.check() == UNMEASURED


@pytest.mark.parametrize("jump", [3600.0, -3600.0, 1e7, -1e7])
def test_setting_the_clock_neither_fails_nor_opens_a_gate(jump: float, agent: FakeAgent) -> None:
    agent.looks(1, **BEHIND)
    agent.wall += jump
    assert not agent.check().failed
    assert not agent.looks(5, **BEHIND).failed
    assert agent.gate.good == 0


@pytest.mark.parametrize("jump", [3600.0, -3600.0])
@pytest.mark.parametrize("after", [0, 1, POLLS - 1])
def test_a_clock_that_is_set_does_not_delay_it(after: int, jump: float, agent: FakeAgent) -> None:
    if after:
        agent.looks(after)
    agent.wall += jump
    assert not agent.check().open
    assert agent.looks(POLLS - after).open


def test_silence_lasts_as_long_as_it_did_whatever_the_clock_says(agent: FakeAgent) -> None:
    agent.looks(1, **BEHIND)
    for jump in (-86400.0, 86400.0, -86400.0):
        agent.wall += jump
        agent.wait(SILENT_S / 3 + 5)
        reading = agent.check()
    assert reading.failed


def test_an_unreadable_ledger_does_not_reset_the_count(agent: FakeAgent) -> None:
    agent.looks(POLLS - 1)
    agent.locked = True
    with pytest.raises(LedgerUnavailable):
        agent.check()
    agent.locked = False
    assert agent.looks(1).open


def test_a_reopened_gate_starts_counting_again(agent: FakeAgent) -> None:
    """This happens after a restart of the agent, because the counts and times of the old gate are lost."""
    agent.looks(POLLS - 1)
    agent.gate = CatchUpGate(opened_at=agent.passed)
    assert not agent.check().open
    assert not agent.looks(POLLS - 1).open
    assert agent.looks(1).open


def test_a_reopened_gate_waits_the_full_time_for_a_batch(agent: FakeAgent) -> None:
    agent.looks(1, **BEHIND)
    agent.wait(SILENT_S - 10)
    agent.gate = CatchUpGate(opened_at=agent.passed)
    agent.check()
    agent.wait(SILENT_S - 10)
    assert not agent.looks(1, **BEHIND).failed
    agent.wait(20)
    assert agent.looks(1, **BEHIND).failed


def test_a_restarted_version_continues_from_its_batch(agent: FakeAgent) -> None:
    agent.looks(2)
    agent.green = replace(agent.green, state=State.STARTING)
    assert not agent.looks(1, batch=7).open
    agent.green = replace(agent.green, state=State.RUNNING)
    assert not agent.looks(POLLS - 1, batch=8).open
    assert agent.looks(1, batch=9).open


def test_it_judges_its_own_version_alone(agent: FakeAgent) -> None:
    for _ in range(POLLS):
        agent.wait(5)
        agent.measure(1)
        assert agent.check().note == "waiting for the first measurement"


GONE = {"lag_files": 0, "lag_rows": None, "sources": ({"table": "raw_orders", "rows": None, "missing": True},)}


def test_a_source_that_is_gone_is_never_caught_up_and_fails_it_in_the_end(agent: FakeAgent) -> None:
    reading = agent.looks(POLLS + 2, **GONE)
    assert reading == GateReading(False, "its source raw_orders is not there")
    agent.wait(UNKNOWN_S)
    summary = f"its source raw_orders has been missing for {UNKNOWN_S:.0f} s; put it back, or plan again"
    assert agent.looks(1, **GONE) == GateReading(False, summary, failed=True)


def test_a_source_that_returns_restarts_the_wait(agent: FakeAgent) -> None:
    for _ in range(3):
        agent.wait(UNKNOWN_S - 20)
        assert not agent.looks(1, **GONE).failed
        assert not agent.looks(1).failed
    assert agent.looks(POLLS).open


def test_a_source_that_is_gone_keeps_a_pointer_where_it_is(agent: FakeAgent) -> None:
    agent.measure(**GONE)
    closed = CatchUpGate.why_closed(agent, agent.green)  # type: ignore[arg-type]  # What a gate needs of the context.
    assert closed == "its source raw_orders is not there"


def test_a_version_that_stays_stopped_fails_it_in_the_end(agent: FakeAgent) -> None:
    agent.looks(1)
    agent.green = replace(agent.green, state=State.STOPPED)
    assert not agent.looks(1).failed
    agent.wait(SILENT_S)
    assert agent.looks(1) == GateReading(False, f"it has been stopped for {SILENT_S:.0f} s", failed=True)


def test_a_version_that_is_wanted_stopped_or_deleted_fails_it_at_once(agent: FakeAgent) -> None:
    for green, why in (
        (replace(agent.green, wanted="stopped"), "it is wanted stopped"),
        (replace(agent.green, drop_after=1.0), "it was deleted"),
    ):
        agent.green = green
        assert agent.check() == GateReading(False, why, failed=True)


def test_a_lag_that_does_not_fall_fails_it_in_the_end(agent: FakeAgent) -> None:
    reading = agent.looks(1, **BEHIND)
    for batch in range(int(FALLING_S / 605) + 1):
        agent.wait(600)
        assert not reading.failed
        reading = agent.looks(1, **(BEHIND | {"lag_rows": 90_000 + batch % 3, "batch": batch}))
    assert reading == GateReading(False, "its lag has not fallen below 90,000 rows for 6 hours", failed=True)


def test_a_lag_that_falls_slowly_is_waited_for(agent: FakeAgent) -> None:
    for batch in range(200):
        agent.wait(600)
        assert not agent.looks(1, **(BEHIND | {"lag_rows": 90_000 - batch, "batch": batch})).failed


def test_a_static_side_and_everything_that_fills_it_must_be_complete() -> None:
    declared = project(table("src"), table("e", "src"), table("d", "e"), table("b", "src"), table("a", "b d!"))
    whole = {(str(name), number) for name, number in joined_whole(plan(declared, {}))}
    assert whole == {("d", 1), ("e", 1), ("src", 0)}


def test_rows_that_wait_without_an_age_open_no_gate() -> None:
    """Files from before a clock was set back have an age of 0 s."""
    agent = FakeAgent()
    agent.check()
    assert not agent.looks(POLLS + 1, lag_files=400, lag_rows=1_000_000, rows_total=5_000_000, behind_s=0.0).open
