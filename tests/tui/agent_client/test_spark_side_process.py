"""Child processes that exchange lines of JSON, on real processes."""

import os
import sys
from collections.abc import Callable

import pytest

from core.model.errors import HeadgateError, Refused
from tui.agent_client import os_processes
from tui.agent_client.spark_side_process import SparkSideProcess

Started = Callable[..., SparkSideProcess]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    """Start a script in place of a module of the Spark side."""

    def start(script: str, end_s: float = 20.0) -> SparkSideProcess:
        monkeypatch.setattr(os_processes, "module_command", lambda module: [sys.executable, "-c", script])
        return SparkSideProcess("a.module", environ=os.environ, task="counts", end_s=end_s)

    return start


def test_answers_are_read_until_the_last_and_other_lines_are_skipped(started: Started) -> None:
    child = started("request = input(); print('noise'); print(request); print('{\"n\": 2}'); print('{\"done\": true}')")
    child.send({"n": 1})
    assert list(child.answers()) == [{"n": 1}, {"n": 2}]
    child.end()


def test_an_error_in_an_answer_is_raised_as_it_was(started: Started) -> None:
    child = started("print(input())")
    child.send({"error": Refused("it is closed", remedy="open it").as_json()})
    with pytest.raises(Refused, match="it is closed"):
        child.answer()
    child.end()


def test_a_child_that_ends_is_reported_with_its_last_words(started: Started) -> None:
    child = started("import sys; input(); sys.exit('no memory')")
    child.send({})
    with pytest.raises(HeadgateError, match="the process that counts ended: no memory"):
        child.answer()
    child.end()


def test_a_request_to_a_child_that_has_ended_is_reported_by_the_next_answer(started: Started) -> None:
    child = started("")
    with pytest.raises(HeadgateError, match="ended: it said nothing"):
        child.answer()
    child.send({})
    with pytest.raises(HeadgateError, match="ended: it said nothing"):
        child.answer()
    child.end()


def test_a_child_that_does_not_end_with_its_input_is_killed(started: Started) -> None:
    child = started("print('{\"pid\": %d}' % __import__('os').getpid(), flush=True)\nwhile True: pass", end_s=0.1)
    pid = child.answer()["pid"]
    child.end()
    assert not os_processes.OsProcess(pid, os_processes.started(pid)).alive
