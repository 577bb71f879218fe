"""Pages of help: all are listed, and the console and the command line read the same text."""

import pytest

from core.model.actions import StepKind
from core.plan.descriptions import act_words
from core.run.model import StepState, step_word
from tui.command_line import exit_codes
from tui.presentation.interaction.changes_topic import changes_topic
from tui.services.help_topics import help_topic, help_topics


def test_the_page_that_is_written_stands_among_the_files() -> None:
    assert help_topics() == tuple(sorted(help_topics())) and {"changes", "plans", "policy"} <= {*help_topics()}
    assert all(help_topic(name).startswith("# ") for name in help_topics())


def test_the_command_prints_the_page_on_changes(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_codes.run_command_line(["help", "changes"]) == 0
    assert capsys.readouterr().out.split() == changes_topic().split()


def test_each_word_of_a_step_and_of_its_state_is_explained() -> None:
    listed = [line.split("  ")[2] for line in help_topic("plans").splitlines() if line.startswith("    ")]
    assert {act_words(kind) for kind in StepKind} <= {words.strip() for words in listed}
    states = {step_word(state) for state in StepState} - {"failed", "skipped", "cancelled"}
    assert all(f"`{state}`" in help_topic("plans") for state in states)
