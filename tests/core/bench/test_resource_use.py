import pytest

from core.bench.resource_use import Part, ProcessReading, Use, use_figures, use_of


def reading(at: float, cpu_s: float, memory: int = 1, *, process: str = "1", started_at: float = 0.0) -> ProcessReading:
    return ProcessReading(Part.SERVER, at, process, started_at, cpu_s, memory)


def test_cpu_is_that_of_the_phase_and_memory_the_highest() -> None:
    found = [reading(10, 100.0, 5), reading(12, 101.0, 9), reading(14, 106.0, 7)]
    assert use_of(Part.SERVER, found, since=10) == Use(cpu=1.5, memory=9)
    assert use_of(Part.AGENT, found, since=10) is None


def test_a_process_that_started_in_the_phase_counts_from_its_start() -> None:
    found = [reading(13, 3.0, started_at=11), reading(20, 10.0, started_at=11)]
    assert use_of(Part.SERVER, found, since=10) == Use(cpu=1.0, memory=1)


def test_a_killed_server_and_the_next_one_are_added() -> None:
    found = [reading(10, 50.0), reading(11, 51.0), reading(20, 4.0, process="2", started_at=12)]
    assert use_of(Part.SERVER, found, since=10) == Use(cpu=0.5, memory=1)


@pytest.mark.parametrize("found", [[], [reading(10, 1.0)], [reading(9, 1.0), reading(10, 2.0)]])
def test_one_reading_says_nothing(found: list[ProcessReading]) -> None:
    assert use_of(Part.SERVER, found, since=10) is None


def test_a_phase_of_less_than_a_second_has_memory_and_no_cpu() -> None:
    found = list(use_figures([reading(10, 0.0, 5), reading(10.5, 0.0, 5)], "load", 1, since=10))
    assert [(str(each.kind), each.value) for each in found] == [("server memory", 5.0)]


def test_figures_have_phase_and_repetition() -> None:
    found = list(use_figures([reading(10, 0.0, 5), reading(12, 1.0, 5)], "load", 2, since=10))
    assert [(str(each.kind), each.phase, each.repetition, each.value) for each in found] == [
        ("server cpu", "load", 2, 0.5), ("server memory", "load", 2, 5.0),
    ]  # fmt: skip
