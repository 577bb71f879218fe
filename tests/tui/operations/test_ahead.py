"""A first load with two processes: the same facts, whoever read them, and none lost where no process can be started."""

from collections.abc import Mapping
from typing import Any

import pytest

from core.facts import Facts
from tests.bench.projects import project_texts
from tui.operations import ahead


@pytest.fixture(scope="module")
def texts() -> Mapping[str, str]:
    return project_texts(ahead.MANY + 200)


def alone(texts: Mapping[str, str]) -> dict[bytes, str]:
    facts = Facts()
    for path, text in texts.items():
        if "/dml." in path:
            facts.statements(text, path)
    return facts.take_fresh()


def test_two_processes_find_what_one_finds(texts: Mapping[str, str]) -> None:
    facts = Facts()
    ahead.read_ahead(texts, facts)
    assert facts.take_fresh() == alone(texts)


def test_what_is_known_is_not_read_again(texts: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr("multiprocessing.get_context", never)
    facts = Facts(alone(texts))
    ahead.read_ahead(texts, facts)
    assert facts.take_fresh() == {}


def test_where_no_process_can_be_started_all_is_left_to_the_first(
    texts: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr("multiprocessing.get_context", refused)
    ahead.read_ahead(texts, Facts())
