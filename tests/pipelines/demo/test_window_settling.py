"""`headgate demo settle`: feeds end with complete files, closing events are later than every window, feeds resume."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from expected_results import LATENESS_S_MAX, event_ms, expected_rows, landed_counts

from core.model.errors import Refused, TryAgain
from core.project_reader.loader import read_project
from pipelines.demo import event_generator
from pipelines.demo.data_folder import DemoDataFolder, exclusive_lock, open_folder, read_generator_state, write_events
from pipelines.demo.event_generator import (
    ROUND_MS,
    ROUNDS,
    how_many_rounds,
    stop_feeds,
    write_closing_events,
    write_pending_events,
)
from pipelines.demo.event_simulation import FEEDS, FOLDER, GeneratorState, simulate_second


@pytest.fixture
def folder(tmp_path: Path) -> DemoDataFolder:
    """A folder after a minute of the feeds, long ago."""
    folder = open_folder(tmp_path)
    book = GeneratorState()
    for second in range(60):
        write_events(folder, book, simulate_second(book, 1_700_000_000_000 + 1000 * second, 10))
    return folder


def times(folder: DemoDataFolder, *, closing: bool) -> list[int]:
    rows = ((feed, json.loads(line)) for feed in FEEDS for path in folder.event_files(feed)
            for line in path.read_text().splitlines())  # fmt: skip
    return [event_ms(row, feed) for feed, row in rows if (row["id"] < 0) is closing]


def sample_texts() -> dict[str, str]:
    files = [path for path in FOLDER.rglob("*") if path.suffix in (".yml", ".sql")]
    return {path.relative_to(FOLDER).as_posix(): path.read_text() for path in files}


def test_the_rest_lands_once_and_leaves_nothing_pending(folder: DemoDataFolder) -> None:
    before = landed_counts(folder)["payments"]
    rest = write_pending_events(folder)
    book = read_generator_state(folder)
    assert book and book.pending == []
    assert rest["payments"] > 50
    assert landed_counts(folder)["payments"][0] == before[0] + rest["payments"]
    assert sum(write_pending_events(folder).values()) == 0


def test_a_round_lands_one_event_of_each_feed_far_beyond_the_last_real_one(folder: DemoDataFolder) -> None:
    write_pending_events(folder)
    first, second = write_closing_events(folder), write_closing_events(folder)
    assert first.landed == second.landed == dict.fromkeys(FEEDS, 1)
    assert (first.number, second.number) == (1, 2)
    closing = sorted(times(folder, closing=True))
    assert closing[0] - max(times(folder, closing=False)) >= ROUND_MS
    assert closing[4] - closing[3] >= ROUND_MS - 2_000


def test_the_reference_does_not_change_by_closing_events(folder: DemoDataFolder) -> None:
    write_pending_events(folder)
    before = expected_rows(folder), landed_counts(folder)
    write_closing_events(folder)
    assert (expected_rows(folder), landed_counts(folder)) == before


def test_feeds_after_a_settling_continue_after_its_closing_events(folder: DemoDataFolder) -> None:
    write_pending_events(folder)
    write_closing_events(folder)
    command = [sys.executable, "-m", "pipelines.demo", "--data", str(folder.path), "--hours", "0.0002"]
    done = subprocess.run(command, cwd=Path(__file__).parents[3], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["event_time_ahead_s"] > ROUND_MS // 1000 - 10
    closed = max(times(folder, closing=True))
    new = [at for at in times(folder, closing=False) if at > closed - ROUND_MS // 2]
    assert len(new) > 5
    assert min(new) > closed - LATENESS_S_MAX * 1000


def test_closing_is_refused_while_the_feeds_run(folder: DemoDataFolder) -> None:
    with exclusive_lock(folder), pytest.raises(Refused, match="is already writing events"):
        write_closing_events(folder)


def test_a_generator_that_does_not_end_is_named_with_the_way_out(
    folder: DemoDataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    signals: list[int] = []
    monkeypatch.setattr(event_generator, "lock_holder", lambda _: 4242)
    monkeypatch.setattr(event_generator.os, "kill", lambda pid, number: signals.append(pid))
    with pytest.raises(TryAgain, match="4242"):
        stop_feeds(folder, pause=lambda _: None)
    assert signals == [4242]


def test_stopping_feeds_that_do_not_run_does_nothing(folder: DemoDataFolder) -> None:
    assert stop_feeds(folder, pause=lambda _: pytest.fail("nothing to wait for")) is False


def test_the_sample_needs_a_round_for_each_stateful_statement_of_its_longest_chain_and_one_more() -> None:
    project, problems = read_project(sample_texts())
    assert project is not None, problems
    assert how_many_rounds(project) == ROUNDS
