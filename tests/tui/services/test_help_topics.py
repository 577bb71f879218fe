"""Help pages: all are listed, the command prints them, and everything that they mention exists."""

import re
import shlex
from pathlib import Path

import pytest

from core.model.actions import StepKind
from core.model.problems import Problem
from core.plan.descriptions import act_words
from core.plan.request import parse_choices
from core.planner.rewrite_in_place import COMPATIBLE, TOLERANT
from core.project.model import Settings
from core.project_reader.table_yml import read_settings
from core.run.model import StepState, step_word
from core.sql.statement import CHANGE_COLUMNS
from tui.command_line import exit_codes
from tui.command_line.command_table import COMMAND_SPECS
from tui.command_line.parser import parse_line
from tui.presentation.interaction.help_text import changes_topic
from tui.presentation.interaction.input_line import COMMANDS
from tui.presentation.interaction.keymap import ACTIONS
from tui.services.help_topics import help_topic, help_topics

README = Path(__file__).parents[3] / "README.md"


def test_the_generated_page_is_listed_among_the_written_ones() -> None:
    assert help_topics() == tuple(sorted(help_topics())) and {"changes", "plans", "policy"} <= {*help_topics()}
    assert all(help_topic(name).startswith("# ") for name in help_topics())


def test_the_command_prints_the_page_on_changes(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_codes.run_command_line(["help", "changes"]) == 0
    assert capsys.readouterr().out.split() == changes_topic().split()


def commands_of(page: str) -> list[str]:
    """Return the commands on lines of their own, including continued lines."""
    text = help_topic(page).replace("\\\n", " ")
    return [line.strip() for line in text.splitlines() if line.startswith("    headgate ")]


@pytest.mark.parametrize(("page", "count"), [("keyed", 4), ("delta", 10)])
def test_every_command_on_a_line_of_its_own_can_be_parsed(page: str, count: int) -> None:
    commands = commands_of(page)
    assert len(commands) == count
    for command in commands:
        parse_choices(parse_line(shlex.split(command)[1:]).__dict__.get("strategy") or ())


def mentioned(page: str) -> list[list[str]]:
    """Return the words after `headgate` of every command that a page of the manual, or `README`, mentions."""
    text = README.read_text(encoding="utf-8") if page == "README" else help_topic(page)
    text = text.replace("\\\n", " ")
    found = [*re.findall(r"`headgate ([^`]+)`", text), *re.findall(r"^ *headgate (.+?)(?:  .*)?$", text, re.M)]
    return [words.split() for words in found if not words.startswith(("-", "COMMAND"))]


@pytest.mark.parametrize("page", ["README", *help_topics()])
def test_every_command_option_and_topic_that_the_manual_mentions_exists(
    page: str, capsys: pytest.CaptureFixture[str]
) -> None:
    specs = {spec.name: spec for spec in COMMAND_SPECS}
    for first, *others in mentioned(page):
        assert first in specs, first
        second = others[:1] if others and others[0] in {sub.name for sub in specs[first].subcommands} else []
        assert exit_codes.run_command_line([first, *second, "--help"]) == 0
        options = capsys.readouterr().out
        assert [word for word in others if re.match("--[a-z]", word) and word not in options] == []
        assert first != "help" or others in ([], ["TOPIC"], ["COMMAND"]) or {*others[:1]} <= {*help_topics(), *specs}


def test_every_colon_command_that_the_manual_mentions_exists() -> None:
    known = {command.name for command in COMMANDS} | {action.typed for action in ACTIONS}
    for page in help_topics():
        assert {*re.findall(r"`:([a-z]+)", help_topic(page))} <= known, page


@pytest.mark.parametrize("page", ["keyed", "delta", "variables"])
def test_no_line_of_a_page_is_longer_than_80_columns(page: str) -> None:
    assert max(map(len, help_topic(page).splitlines())) <= 80


def test_the_yml_on_the_page_on_keyed_tables_is_read_without_problems() -> None:
    lines = [line[4:] for line in help_topic("keyed").splitlines() if line.startswith("    ")]
    yml = "\n".join(line for line in lines if line.split(":")[0] in ("mode", "key", "sequence", "deletes"))
    problems: list[Problem] = []
    found = read_settings(yml, "t.yml", Settings(), problems)
    assert not problems
    assert found == Settings(mode="upsert", key=("client_id",), sequence="change_id", deletes="name IS NULL")
    assert {column.name for column in CHANGE_COLUMNS} <= {line.split()[0] for line in lines if line}
    assert all(f"tags: [{tag}]" in help_topic("keyed") for tag in (COMPATIBLE, TOLERANT))


def test_the_page_on_delta_tables_says_how_columns_are_tracked_and_where_that_is_refused() -> None:
    page = help_topic("delta")
    assert "\n    schema_tracking: true\n" in page
    problems: list[Problem] = []
    assert read_settings("schema_tracking: true", "t.yml", Settings(), problems).schema_tracking and not problems
    told = " ".join(page.split())
    assert all(words in told for words in ("no Delta table is streamed", "table is streamed twice", "`SELECT *`"))


def test_each_word_of_a_step_and_of_its_state_is_explained() -> None:
    listed = [line.split("  ")[2] for line in help_topic("plans").splitlines() if line.startswith("    ")]
    assert {act_words(kind) for kind in StepKind} <= {words.strip() for words in listed}
    states = {step_word(state) for state in StepState} - {"failed", "skipped", "cancelled"}
    assert all(f"`{state}`" in help_topic("plans") for state in states)
