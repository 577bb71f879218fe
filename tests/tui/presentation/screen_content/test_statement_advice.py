"""The verdict distinguishes faults from trends, and gives the age of a starved statement's data."""

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from core.model.names import TableName as T
from core.observed.time_left import DAY_S, Bound, Left, TimeLeft, lost
from core.text.sentence import Fact
from state.ledger_snapshot import StatementDetails
from tests.terminal.in_memory_backend import FakeBackend
from tests.terminal.pizzeria_values import NOW
from tui.presentation.screen_content.statement_advice import advise
from tui.presentation.screen_content.statement_detail import error_lines
from tui.presentation.screen_content.statement_rows import RowContext
from tui.presentation.styling.styled_text import Tone, plain
from tui.presentation.styling.theme import UNICODE
from tui.presentation.view.ledger_view import make_ledger_view


def verdict(why: str = "", sources: tuple[dict[str, object], ...] = (), **fields: object) -> tuple[str, Tone]:
    backend = FakeBackend()
    backend.change("till", at=NOW, **fields)
    view = make_ledger_view(backend.current)
    till = view.statements["till"]
    known = till.line.measurement
    assert known is not None
    return advise(till, replace(known, fault_why=why, sources=sources), view, RowContext(UNICODE, NOW))


def test_a_growing_lag_alone_is_no_alarm_and_time_beyond_the_objective_is() -> None:
    words, tone = verdict(trend="growing", rate_rows_s=2.0)
    assert words.startswith("Input arrives faster") and tone is Tone.CHANGING
    words, tone = verdict("6m behind, the objective is 1m", trend="growing", rate_rows_s=2.0, fault="behind")
    assert "longer than its objective: 6m behind, the objective is 1m. Input arrives faster" in words
    assert tone is Tone.BAD


def late_verdict(**fields: object) -> str:
    backend = FakeBackend()
    backend.change("till", at=NOW, trend="draining", fault="behind")
    view = make_ledger_view(backend.current)
    till = view.statements["till"]
    assert till.line.measurement is not None
    figures = {"fault_why": "4m 21s behind, the objective is 1m", "objective_s": 60.0} | fields
    return advise(till, replace(till.line.measurement, **figures), view, RowContext(UNICODE, NOW))[0]  # type: ignore[arg-type]  # Fields of the caller.


def test_the_reason_of_a_missed_objective_is_not_presented_as_newer_than_it_is() -> None:
    why = "4m 21s behind, the objective is 1m"
    assert late_verdict(behind_s=261.0).startswith(f"Behind for longer than its objective: {why}. It is catching up")
    assert late_verdict(behind_s=32.0).startswith(
        f"Until a moment ago, it was behind for longer than its objective: {why}. Now it is 32s behind. It is catching"
    )
    assert late_verdict(behind_s=None).startswith(f"Behind for longer than its objective when last measured: {why}.")


def test_a_statement_that_went_down_with_its_environment_was_not_stopped_on_purpose() -> None:
    assert verdict(state="stopped", wanted="stopped")[0].startswith("It was stopped on purpose")
    words, tone = verdict(state="stopped", wanted="running", trend="unknown")
    assert words == "It is wanted running: it starts where it left off as soon as the pool is up."
    assert tone is Tone.CHANGING


def test_a_failed_job_is_corrected_in_its_code() -> None:
    assert "if the cause is in the SQL, correct the file" in verdict(state="failed", error_class="DIVIDE_BY_ZERO")[0]
    failed = verdict(state="failed", error_class="HEADGATE_JOB_FAILED")[0]
    assert "if the cause is in its code, correct the file and" in failed and "SQL" not in failed


def test_a_statement_behind_its_objective_never_keeps_up() -> None:
    assert "keeps up" in verdict(trend="steady")[0]
    words, tone = verdict(trend="steady", fault="behind")
    assert "keeps up" not in words and tone is Tone.BAD


def test_a_statement_that_cannot_be_started_is_not_said_to_keep_up() -> None:
    for trend in ("steady", "idle", "unknown"):
        words, tone = verdict(state="degraded", trend=trend, error="it waits for products")
        assert words == "It does not run as wanted: it waits for products." and tone is Tone.BAD


def test_a_statement_that_ended_for_a_transient_reason_names_it_whatever_the_trend() -> None:
    why = "the database does not answer; it ended 2 times in 10 minutes, and the next start follows after 15 s"
    for trend in ("idle", "draining", "growing"):
        ended = {"state": "degraded", "error_class": "HEADGATE_DATABASE_LOST", "error": why}
        assert verdict(trend=trend, **ended) == (f"It does not run as wanted: {why}.", Tone.BAD)


def verdict_over_inputs(faults: Mapping[str, tuple[str, str]], **fields: object) -> tuple[str, Tone]:
    """Return the verdict on a statement over two external inputs, given error class and error of faulty ones."""
    backend = FakeBackend()
    bound = (("landed_payments", 0, True), ("pizzas", 0, False))
    backend.change("till", at=NOW, bound=json.dumps(bound), **fields)
    for table, (error_class, error) in faults.items():
        backend.change(table, error_class=error_class, error=error)
    view = make_ledger_view(backend.current)
    till = view.statements["till"]
    return advise(till, till.line.measurement, view, RowContext(UNICODE, NOW))


def test_an_input_that_cannot_be_read_is_named_whatever_the_trend() -> None:
    why = "pizzas: the database does not answer: Connection refused; check that it runs"
    unread = {"pizzas": ("HEADGATE_INPUT_NOT_READ", why)}
    begun: dict[str, object] = {"trend": "unknown", "state": "starting", "started_at": NOW - 97, "committed_at": None}
    for fields in ({"trend": "idle"}, {"trend": "steady", "lag_rows": 3}, {"trend": "draining"}, begun):
        assert verdict_over_inputs(unread, **fields) == (
            f"Its input pizzas cannot be read: {why}.",
            Tone.BAD,
        )
    words, _ = verdict_over_inputs(unread | {"landed_payments": ("HEADGATE_TABLE_GONE", "it is gone")}, trend="idle")
    assert words == "landed_payments and 1 more input cannot be read: it is gone."
    assert "stopped on purpose" in verdict_over_inputs(unread, state="stopped", wanted="stopped")[0]


@pytest.mark.parametrize("fault", ["HEADGATE_INPUT_NOT_READ", "HEADGATE_TABLE_GONE", "HEADGATE_INPUT_NOT_FILLED"])
def test_readers_of_an_unusable_input_are_at_fault_and_their_errors_name_it(fault: str) -> None:
    backend = FakeBackend()
    bound = (("landed_payments", 0, True), ("pizzas", 0, False))
    backend.change("till", at=NOW, bound=json.dumps(bound), trend="idle", state="running", wanted="running", fault="")
    well = make_ledger_view(backend.current)
    backend.change("pizzas", error_class=fault, error="it does not answer")
    view = make_ledger_view(backend.current, well)
    till = view.statements["till"]
    assert (well.statements["till"].faulty, till.faulty) == (False, True)
    assert view.faults == make_ledger_view(backend.current).faults > well.faults
    shown = [plain(each) for each in error_lines(till, StatementDetails(T("till")), view, RowContext(UNICODE, NOW), 80)]
    assert shown[:2] == [f" NOW  input pizzas  {fault}", "  it does not answer"]
    backend.change("pizzas", error_class="", error="")
    assert make_ledger_view(backend.current, view).faults == well.faults
    backend.change("pizzas", error_class="HEADGATE_NOT_REFRESHED", error="it does not answer")
    assert not make_ledger_view(backend.current, view).statements["till"].faulty, "the last copy is read"


def test_an_input_whose_connector_does_not_run_is_named_whatever_the_trend() -> None:
    why = "task 0 of connector orders at h:8083 is FAILED: no login; correct the cause"
    unfed = {"landed_payments": ("HEADGATE_INPUT_NOT_FILLED", why)}
    for trend in ("idle", "steady", "draining"):
        assert verdict_over_inputs(unfed, trend=trend) == (f"Its input landed_payments is not filled: {why}.", Tone.BAD)


def test_an_input_that_is_read_despite_its_fault_is_named_after_the_trend() -> None:
    stale = {"pizzas": ("HEADGATE_NOT_REFRESHED", "pizzas was not refreshed: Connection refused")}
    words, tone = verdict_over_inputs(stale, trend="idle")
    assert words == (
        "Nothing waits in its input, and nothing arrives. "
        "Its input pizzas has a fault: pizzas was not refreshed: Connection refused."
    )
    assert tone is Tone.CHANGING


def test_a_statement_without_a_batch_since_its_start_is_not_said_to_keep_up() -> None:
    started = {
        "state": "starting",
        "started_at": NOW - 97,
        "committed_at": None,
        "lag_rows": 315,
        "trigger": "40 seconds",
    }
    words, tone = verdict(trend="unknown", **started)
    assert words == (
        "It is starting: it was started 1m 37s ago and has processed nothing yet, while 315 rows wait. "
        "A first batch may take minutes; look at its errors if it takes longer."
    )
    assert tone is Tone.CHANGING
    for trend in ("growing", "steady", "idle"):
        assert verdict(trend=trend, **started)[0] == words, "what was measured while it was stopped is no verdict"
    words, _ = verdict(trend="unknown", **started | {"state": "running", "lag_rows": 1})
    assert words.startswith("It was started 1m 37s ago and has processed nothing yet, while 1 row waits. A first")
    assert "output or watermark does not advance" in verdict(trend="stalled", **started)[0]


def test_a_statement_started_within_its_trigger_shows_its_start_and_pending_input() -> None:
    started = {"state": "starting", "started_at": NOW - 20, "committed_at": NOW - 60}
    begun = "It is starting: it was started 20s ago and has processed nothing yet"
    assert verdict(trend="growing", trigger="40 seconds", lag_rows=12, **started) == (
        f"{begun}, while 12 rows wait.", Tone.PLAIN
    )  # fmt: skip
    assert verdict(trigger="40 seconds", lag_rows=0, **started)[0] == f"{begun}; nothing waits in its input."
    assert verdict(trigger="40 seconds", lag_rows=None, lag_files=None, **started)[0] == (
        f"{begun}; its pending input is unknown."
    )


def test_an_input_that_does_not_answer_is_named_and_no_missing_batch_is_invented() -> None:
    why = "no broker of a:9092 answers"
    sources = ({"table": "t", "unmeasured": why},)
    silent = {"trend": "unknown", "lag_rows": None, "lag_files": None}
    words, tone = verdict(sources=sources, state="running", started_at=NOW - 250, committed_at=NOW - 9, **silent)
    assert words == f"Its lag is unknown, because {why}." and tone is Tone.CHANGING
    words, _ = verdict(sources=sources, state="running", started_at=NOW - 250, committed_at=None, **silent)
    assert words.endswith(f"has processed nothing yet; its pending input is unknown, because {why}.")


def test_keeping_up_in_long_batches_is_described_in_one_sentence() -> None:
    slow = {"behind_s": 90.0, "batch_ms": 105_000, "trigger": "40 seconds"}
    assert verdict(trend="steady", **slow) == (
        "It keeps up although its newest batch took 105 s on a trigger of 40 seconds: no input has waited for more "
        "than 2m. Nothing to do.",
        Tone.PLAIN,
    )
    assert "the statement is too expensive, or the pool is saturated" in verdict(trend="growing", **slow)[0]


def test_a_constant_backlog_is_not_reported_as_keeping_up() -> None:
    assert verdict(trend="steady", behind_s=20.0)[0] == (
        "It keeps up: no input has waited for more than 30s. Nothing to do."
    )
    words, tone = verdict(trend="steady", behind_s=400.0)
    assert words == "Its input waits, and the backlog neither falls nor rises." and tone is Tone.PLAIN
    assert verdict(trend="idle")[0] == "Nothing waits in its input, and nothing arrives. Nothing to do."


def test_statements_whose_pool_does_not_answer_are_marked() -> None:
    assert "it is unknown whether the statement runs" in verdict(trend="unknown", state="unknown")[0]
    why = "the server of the pool large has not answered for 16s: no answer within 5 s"
    for trend in ("idle", "steady", "starved"):
        said = verdict(trend=trend, state="unknown", state_since=NOW - 90, error=why)
        assert said == (f"Unknown for 1m 30s whether it runs: {why}.", Tone.CHANGING)


def test_a_starved_statement_shows_the_age_of_its_data() -> None:
    words, tone = verdict(trend="starved", fault="starved", data_age_s=200.0)
    assert "Its newest data is 3m 20s old." in words and tone is Tone.BAD


BY_AGE = Bound.MESSAGE_AGE.of(topic="orders", kept_s=7 * DAY_S, set="alter", raised=9)
HINT = "Kafka deletes messages of orders 7d after their time; raise its retention: alter retention.ms=9"


def left(seconds: float, bound: Fact[Bound] = BY_AGE, **more: object) -> str:
    return TimeLeft(Left.LIMITED, bound, seconds, 7 * DAY_S, at=NOW, **more).as_text()  # type: ignore[arg-type]  # Fields of the caller.


def test_a_stopped_statement_names_the_time_until_its_position_is_lost() -> None:
    stopped = {"state": "stopped", "wanted": "stopped"}
    kept = "It was stopped on purpose; table and checkpoint are kept."
    begins = f"{kept} S starts it where it left off."
    assert verdict(**stopped, time_left=left(3 * DAY_S)) == (begins, Tone.PLAIN)
    words, tone = verdict(**stopped, time_left=left(5 * 3600.0))
    assert (words, tone) == (f"{begins} Its position is kept for at least 5h: {HINT}.", Tone.CHANGING)
    assert verdict(**stopped, time_left=left(0.0))[0] == f"{begins} Its position may be lost any moment now: {HINT}."
    gone = lost(Bound.MESSAGES_GONE, messages=3, topics=("orders",)).as_text()
    words, tone = verdict(**stopped, time_left=gone)
    assert "starts it" not in words and tone is Tone.BAD
    assert words == (
        f"{kept} It cannot continue: 3 messages of orders were deleted before they were read. "
        "headgate plan till --rebuild shows what a rebuild still reads."
    )


def test_a_running_statement_at_risk_has_something_to_do_unless_it_catches_up_in_time() -> None:
    words, tone = verdict(trend="idle", time_left=left(5 * 3600.0))
    assert words.endswith(f"nothing arrives. Its position is kept for at least 5h: {HINT}.") and tone is Tone.CHANGING
    in_time = {"trend": "draining", "time_left": left(5 * 3600.0)}
    assert verdict(**in_time, eta_s=600.0) == ("It is catching up: about 10m left. Nothing to do.", Tone.PLAIN)
    assert HINT in verdict(**in_time, eta_s=6 * 3600.0)[0]


def test_the_log_of_a_database_names_the_version_that_holds_it() -> None:
    slot, big = Bound.SLOT_KEEPS_ALL.of(slot="s"), {"held_bytes": 3_000_000_000, "held_by": "till"}

    def kept(**held: object) -> str:
        return TimeLeft(Left.NEVER, slot, at=NOW, **held).as_text()  # type: ignore[arg-type]  # Fields of the caller.

    stopped = {"state": "stopped", "wanted": "stopped"}
    own = verdict(**stopped, time_left=kept(**big, held_version=1))[0]
    assert own.endswith("where it left off. The database keeps 3 GB of its log for it.")
    former = verdict(trend="idle", time_left=kept(**big, held_version=7))[0]
    assert former.endswith(
        "The database keeps 3 GB of its log for till@v7, which does not run (headgate plan retire till)."
    )
    other = verdict(trend="idle", time_left=kept(**{**big, "held_by": "bills"}, held_version=2))[0]
    assert other.endswith("for bills@v2, which does not run (headgate show bills).")
    for harmless in ({"held_bytes": 16 << 20, "held_by": "till"}, {"held_bytes": 3 << 30}):
        assert "keeps" not in verdict(trend="idle", time_left=kept(**harmless))[0]
