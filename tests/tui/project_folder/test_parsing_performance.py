"""A first load with two processes: the same facts, whoever read them, and none lost where no process can be started."""

from collections.abc import Mapping
from typing import Any

import pytest

from core.project_files.parse_cache import ParseCache
from tests.bench.generated_projects import project_texts
from tui.project_folder import parsing_performance


@pytest.fixture(scope="module")
def texts() -> Mapping[str, str]:
    return project_texts(parsing_performance.MANY + 200)


def alone(texts: Mapping[str, str]) -> dict[bytes, str]:
    facts = ParseCache()
    for path, text in texts.items():
        if "/dml." in path:
            facts.statements(text, path)
    return facts.take_fresh()


@pytest.mark.drill
def test_two_processes_find_what_one_finds(texts: Mapping[str, str]) -> None:
    facts = ParseCache()
    parsing_performance.parse_in_two_processes(texts, facts)
    assert facts.take_fresh() == alone(texts)


def test_what_is_known_is_not_read_again(texts: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr("multiprocessing.get_context", never)
    facts = ParseCache(alone(texts))
    parsing_performance.parse_in_two_processes(texts, facts)
    assert facts.take_fresh() == {}


def test_where_no_process_can_be_started_all_is_left_to_the_first(
    texts: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr("multiprocessing.get_context", refused)
    parsing_performance.parse_in_two_processes(texts, ParseCache())
