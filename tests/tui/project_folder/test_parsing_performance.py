"""A first load with two processes yields the same facts, even if no process can be started."""

from collections.abc import Mapping
from typing import Any

import pytest

from core.project_reader.loader import read_project
from core.project_reader.parse_cache import ParseCache, wrong_columns
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
        if "/ddl." in path:
            facts.ddl(text, path)
    return facts.take_fresh()


@pytest.mark.drill
def test_two_processes_find_what_one_finds(texts: Mapping[str, str]) -> None:
    facts = ParseCache()
    parsing_performance.parse_in_two_processes(texts, facts, "dev")
    assert facts.take_fresh() == alone(texts)


def test_known_entries_are_not_read_again(texts: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr("multiprocessing.get_context", never)
    facts = ParseCache(alone(texts))
    parsing_performance.parse_in_two_processes(texts, facts, "dev")
    assert facts.take_fresh() == {}


def test_if_no_process_can_be_started_the_first_reads_everything(
    texts: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr("multiprocessing.get_context", refused)
    parsing_performance.parse_in_two_processes(texts, ParseCache(), "dev")


def test_two_processes_find_the_columns_that_one_finds(texts: Mapping[str, str]) -> None:
    wrong = {
        path: text.replace("kind STRING", "sort STRING") if "LOCATION" in text else text for path, text in texts.items()
    }
    project, _ = read_project(wrong)
    assert project is not None
    two, one = ParseCache(), ParseCache()
    found = wrong_columns(project, project.tables, one)
    ahead = parsing_performance.read_columns_in_two_processes
    assert found and wrong_columns(project, project.tables, two, ahead) == found
    assert two.take_fresh() == one.take_fresh()


def test_columns_that_are_known_start_no_process(texts: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    project, _ = read_project(texts)
    assert project is not None
    facts = ParseCache()
    wrong_columns(project, project.tables, facts)
    monkeypatch.setattr("multiprocessing.get_context", None)
    wrong_columns(project, project.tables, facts, parsing_performance.read_columns_in_two_processes)
