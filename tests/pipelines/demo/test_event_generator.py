"""The event generator as a process: continuity over restarts, its limits, its control and status files."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from fake_hdfs import SAFE_MODE, fake_hdfs

from core.model.errors import Refused, UsageError
from pipelines.demo.data_folder import (
    DemoDataFolder,
    exclusive_lock,
    lock_holder,
    open_folder,
    read_generator_state,
    write_events,
)
from pipelines.demo.event_generator import Bursts, Feeds, GeneratorLimits, feeds_from_json, generate
from pipelines.demo.event_simulation import FEEDS

ROOMY = 10**12


@dataclass
class Clock:
    """A simulated clock; `each` is called before every second with the elapsed seconds."""

    until: int
    at: float = 1_800_000_000.0
    passed: int = 0
    step: float = 1.0
    each: Callable[[int], None] = field(default=lambda passed: None)

    def now(self) -> float:
        return self.at

    def wait(self, seconds: float) -> bool:
        self.each(self.passed)
        self.at += self.step
        self.passed += 1
        return self.passed >= self.until


@pytest.fixture
def folder(tmp_path: Path) -> DemoDataFolder:
    return open_folder(tmp_path / "data")


def run(folder: DemoDataFolder, clock: Clock, **given: Any) -> dict[str, Any]:
    return generate(folder, clock, **({"free_bytes": lambda _: ROOMY} | given))


def lines(folder: DemoDataFolder, feed: str) -> list[str]:
    return [line for path in folder.event_files(feed) for line in path.read_text().splitlines()]


def log(folder: DemoDataFolder) -> str:
    return folder.log.read_text()


def test_two_folders_with_one_seed_and_one_clock_hold_the_same_bytes(tmp_path: Path) -> None:
    left, right = open_folder(tmp_path / "left"), open_folder(tmp_path / "right")
    run(left, Clock(30))
    run(right, Clock(30))
    names = [path.relative_to(left.path) for feed in FEEDS for path in left.event_files(feed)]
    assert len(names) > 80
    assert all((left.path / name).read_bytes() == (right.path / name).read_bytes() for name in names)


def test_a_stopped_run_and_the_next_land_what_one_run_lands(tmp_path: Path) -> None:
    whole, halves = open_folder(tmp_path / "whole"), open_folder(tmp_path / "halves")
    run(whole, Clock(40), feeds=Feeds(bursts=None))
    run(halves, Clock(15), feeds=Feeds(bursts=None))
    run(halves, Clock(25, at=1_800_000_015.0))
    for feed in FEEDS:
        assert lines(halves, feed) == lines(whole, feed)


def test_the_counts_of_the_status_are_the_lines_of_the_files(folder: DemoDataFolder) -> None:
    run(folder, Clock(20))
    status = run(folder, Clock(20, at=1_800_000_100.0))
    assert status["landed"] == {feed: len(lines(folder, feed)) for feed in FEEDS}
    assert json.loads(folder.status.read_text()) == status


def test_it_stops_after_two_hours_and_says_so(folder: DemoDataFolder) -> None:
    clock = Clock(1_000, step=59.0)
    started = clock.now()
    status = run(folder, clock, feeds=Feeds(bursts=None))
    assert 7200 <= clock.now() - started < 7200 + clock.step
    assert (status["state"], status["stopped_because"]) == ("stopped", "2 hours are over")
    assert "stopped: 2 hours are over" in log(folder)


def test_it_stops_when_the_disk_runs_full_and_lands_nothing_more(folder: DemoDataFolder) -> None:
    free = iter([ROOMY, ROOMY, 5 * 10**9, 5 * 10**9 - 1])
    status = run(folder, Clock(100), free_bytes=lambda _: next(free))
    assert status["stopped_because"] == "less than 5 GB of disk space is free"
    assert len(folder.event_files("orders")) == 3
    assert "5 GB" in log(folder)


def test_a_full_disk_at_the_start_lands_nothing(folder: DemoDataFolder) -> None:
    assert run(folder, Clock(9), limits=GeneratorLimits(free_bytes=ROOMY + 1))["landed"]["orders"] == 0


def test_rates_change_while_it_runs(folder: DemoDataFolder) -> None:
    def each(passed: int) -> None:
        if passed == 10:
            folder.control.write_text('{"rate": 50, "bursts": null}')

    run(folder, Clock(20, each=each), feeds=Feeds(rate=2, bursts=None))
    counts = [len(path.read_text().splitlines()) for path in folder.event_files("orders")]
    assert max(counts[:10]) < 10
    assert min(counts[12:]) >= 50
    assert "feeds changed" in log(folder)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"rate": "many"}', '{"rate": -1}', '{"rate": 1e9}', '{"bursts": 5}',
                                  '{"bursts": {"often": 1}}', '{"rate": NaN}', '{"rate": null}'])  # fmt: skip
def test_a_control_file_without_sense_changes_nothing_and_is_reported(folder: DemoDataFolder, text: str) -> None:
    status = run(folder, Clock(3, each=lambda _: folder.control.write_text(text) and None), feeds=Feeds(5, bursts=None))
    assert status["note"] and "feeds.json" in status["note"]
    assert len(folder.event_files("orders")) == 3


def test_a_control_file_without_sense_is_not_written_over(folder: DemoDataFolder) -> None:
    folder.control.write_text('{"rate": "many"}')
    assert run(folder, Clock(2))["note"]
    assert folder.control.read_text() == '{"rate": "many"}'


def test_paused_feeds_land_nothing_and_say_so(folder: DemoDataFolder) -> None:
    states = []

    def each(passed: int) -> None:
        states.append(json.loads(folder.status.read_text())["state"])
        folder.control.write_text(json.dumps({"rate": 8, "paused": passed in (2, 3), "bursts": None}))

    run(folder, Clock(6, each=each))
    assert states == ["running", "running", "running", "paused", "paused", "running"]
    assert len(folder.event_files("orders")) == 4


def test_bursts_alternate() -> None:
    feeds = Feeds(rate=10, bursts=Bursts(factor=4, on_s=2, off_s=3))
    assert [feeds.rate_at(second) for second in range(7)] == [10, 10, 10, 40, 40, 10, 10]
    assert Feeds(rate=10, paused=True).rate_at(0) == 0


def test_feeds_survive_their_file() -> None:
    for feeds in (Feeds(), Feeds(3.5, True, None), Feeds(1, False, Bursts(2, 5, 5))):
        assert feeds_from_json(json.loads(json.dumps(feeds.as_json()))) == feeds
    assert feeds_from_json({}) == Feeds()


def test_files_appear_complete_by_a_rename_from_a_dot_file(
    folder: DemoDataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    renamed = []

    def replace(source: Path, target: Path) -> None:
        assert source.name.startswith(".") and source.parent == target.parent and not target.exists()
        assert source.read_text().endswith("\n")
        renamed.append(target.name)
        source.rename(target)

    run(folder, Clock(2))
    before = {feed: len(folder.event_files(feed)) for feed in FEEDS}
    book = read_generator_state(folder)
    assert book is not None
    folder.book.unlink()
    monkeypatch.setattr(
        "pipelines.demo.data_folder.os.replace", lambda a, b: replace(a, b) if b.parent.name in FEEDS else None
    )
    write_events(folder, book, {feed: ["{}"] for feed in FEEDS})
    assert len(renamed) == 4
    assert all(len(folder.event_files(feed)) == before[feed] + 1 for feed in FEEDS)


def test_the_book_is_saved_before_a_second_lands_so_that_a_crash_between_repeats_no_id(
    folder: DemoDataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(folder, Clock(3), feeds=Feeds(bursts=None))
    real = os.replace

    def crash(source: Path, target: Path) -> None:
        if target.parent.name in FEEDS:
            raise KeyboardInterrupt
        real(source, target)

    with monkeypatch.context() as patch:
        patch.setattr("pipelines.demo.data_folder.os.replace", crash)
        with pytest.raises(KeyboardInterrupt):
            run(folder, Clock(3, at=1_800_000_010.0))
    run(folder, Clock(10, at=1_800_000_020.0))
    ids = [json.loads(line)["id"] for line in dict.fromkeys(lines(folder, "orders"))]
    assert ids == sorted(set(ids))


def test_a_second_generator_on_one_folder_is_refused_naming_the_first(folder: DemoDataFolder) -> None:
    with exclusive_lock(folder):
        assert lock_holder(folder) == os.getpid()
        with pytest.raises(Refused, match=str(os.getpid())):
            run(folder, Clock(1))
    assert lock_holder(folder) is None


def test_a_foreign_state_file_is_a_usage_error(folder: DemoDataFolder) -> None:
    folder.book.write_text('{"surprise": 1}')
    with pytest.raises(UsageError, match="cannot be read"):
        run(folder, Clock(1))


def test_a_clock_set_back_lets_no_event_time_go_back(folder: DemoDataFolder) -> None:
    run(folder, Clock(5))
    before = read_generator_state(folder)
    run(folder, Clock(5, at=1_700_000_000.0))
    after = read_generator_state(folder)
    assert before and after and after.newest_ms >= before.newest_ms + 4_000


def test_sigterm_ends_the_process_cleanly_with_its_status_on_stdout(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "pipelines.demo", "--data", str(tmp_path), "--rate", "5"],
        cwd=Path(__file__).parents[3], stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        folder = open_folder(tmp_path)
        while not folder.event_files("orders"):
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0
    status = json.loads(output)
    assert (status["pid"], status["state"], status["stopped_because"]) == (process.pid, "stopped", "terminated")
    assert lock_holder(folder) is None


def test_events_land_in_hdfs_beside_the_tables_and_are_tried_again_while_it_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served, local = tmp_path / "served", open_folder(tmp_path / "local")
    served.mkdir()
    notes = []
    with fake_hdfs(served, monkeypatch) as hdfs:
        remote = open_folder(tmp_path / "data", f"{hdfs.root}/shop")

        def break_hdfs(passed: int) -> None:
            hdfs.fault = SAFE_MODE if 2 <= passed < 5 else None
            notes.append(json.loads(remote.status.read_text())["note"])

        told = run(remote, Clock(8, each=break_hdfs), feeds=Feeds(bursts=None))
    assert any("cannot be written, and are tried again" in (note or "") for note in notes) and not notes[-1]
    assert (served / "shop/reference/pizzas/pizzas.json").exists() and not remote.event_files("orders")
    run(local, Clock(5), feeds=Feeds(bursts=None))
    landed = {feed: sum(len(file.read_text().splitlines()) for file in (served / "shop/landing" / feed).iterdir())
              for feed in FEEDS}  # fmt: skip
    assert landed == told["landed"], "nothing is lost, and nothing is written twice"
    first = (served / "shop/landing/orders/orders-000000001.json").read_text()
    assert first == local.event_files("orders")[0].read_text()
