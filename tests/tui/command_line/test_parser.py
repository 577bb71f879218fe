"""The command line's syntax: each command and subcommand has its own help, and invalid arguments are reported."""

import argparse
import itertools
import shlex
from pathlib import Path

import pytest

from core.model.actions import STRATEGIES
from core.model.errors import UsageError
from tui.command_line import exit_codes
from tui.command_line.arguments import CommandParser
from tui.command_line.command_table import COMMAND_SPECS, CommandSpec, SubcommandSpec
from tui.command_line.parser import COLUMNS, parse_line
from tui.services.help_topics import help_topic, help_topics

Form = tuple[str, CommandSpec | SubcommandSpec]
FORMS: list[Form] = [
    form
    for spec in COMMAND_SPECS
    for form in ((spec.name, spec), *((f"{spec.name} {each.name}", each) for each in spec.subcommands))
]
each_form = pytest.mark.parametrize(("typed", "form"), FORMS, ids=[typed for typed, _ in FORMS])


def read(line: str) -> argparse.Namespace:
    return parse_line(shlex.split(line))


@pytest.mark.parametrize("words", ["plan --help", "plan deploy --help", "help changes"])
def test_every_strategy_is_explained_as_it_is_typed(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_codes.run_command_line(words.split()) == 0
    said = " ".join(capsys.readouterr().out.split())
    for strategy, summary in STRATEGIES.items():
        assert f"{strategy.replace('_', '-')} {summary}" in said


@each_form
def test_every_subcommand_has_its_own_help(
    typed: str, form: CommandSpec | SubcommandSpec, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_codes.run_command_line([*typed.split(), "--help"]) == 0
    said = capsys.readouterr()
    assert said.err == "" and said.out.startswith(f"usage: headgate {typed} [-h]")
    examples = said.out.partition("\nexample:\n")[2]
    assert f"headgate {typed}" in examples
    assert all(line in examples for line in form.example.splitlines())
    assert " ".join(form.summary.split()) in " ".join(said.out.split()) and form.summary.endswith(".")
    assert [line for line in said.out.splitlines() if len(line) > COLUMNS] == []


@each_form
def test_the_manual_has_the_help_of_every_form(
    typed: str, form: CommandSpec | SubcommandSpec, capsys: pytest.CaptureFixture[str]
) -> None:
    exit_codes.run_command_line([*typed.split(), "--help"])
    own = capsys.readouterr().out
    if typed not in help_topics():
        assert exit_codes.run_command_line(["help", *typed.split()]) == 0
        assert capsys.readouterr().out == own


@each_form
def test_every_argument_is_explained(typed: str, form: CommandSpec | SubcommandSpec) -> None:
    parser = CommandParser(add_help=False)
    form.arguments(parser)
    assert [argument.dest for argument in parser._actions if not argument.help] == []


@pytest.mark.parametrize("form", [each for spec in COMMAND_SPECS for each in spec.subcommands], ids=lambda it: it.name)
def test_every_example_of_a_subcommand_uses_it(form: SubcommandSpec) -> None:
    assert all(line.split()[2] == form.name for line in form.example.splitlines())


@each_form
def test_an_argument_that_a_command_does_not_take_is_reported_in_one_sentence(
    typed: str, form: CommandSpec | SubcommandSpec, capsys: pytest.CaptureFixture[str]
) -> None:
    needed = shlex.split(form.example.splitlines()[0].removeprefix("source <(").removesuffix(")"))[1:]
    assert exit_codes.run_command_line([*(word for word in needed if word != "--json"), "--nope"]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith("headgate: headgate ") and "takes no --nope\n" in said.err
    assert "Traceback" not in said.err and len(said.err.splitlines()) == 2


@each_form
def test_every_example_is_in_the_grammar(typed: str, form: CommandSpec | SubcommandSpec) -> None:
    for line in form.example.splitlines():
        words = shlex.split(line.removeprefix("source <(").removesuffix(")"))
        found = parse_line(words[1:])
        assert f"{found.verb} {found.subcommand}".startswith(typed)


def test_no_example_has_an_argument_that_a_shell_interprets(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_codes.run_command_line(["--help"]) == 0
    shown = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  headgate ")]
    examples = [line for _, form in FORMS for line in form.example.splitlines() if not line.startswith("source ")]
    assert shown and examples
    for line in (*shown, *examples):
        words = shlex.shlex(line, posix=True, punctuation_chars=True)
        words.whitespace_split = True
        assert not [word for word in words if set(word) <= set(";<>|&()")], line


@pytest.mark.parametrize("width", ["40", "80", "200"])
def test_no_line_of_the_manual_is_longer_than_80_columns(
    width: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    for words in ([], *([topic] for topic in help_topics())):
        assert exit_codes.run_command_line(["help", *words]) == 0
    assert exit_codes.run_command_line(["--help"]) == 0
    said = capsys.readouterr().out
    assert [line for line in said.splitlines() if len(line) > COLUMNS] == []
    assert all(f"    {spec.name} " in said for spec in COMMAND_SPECS)


def test_a_page_of_the_manual_is_wrapped_without_losing_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    for topic in help_topics():
        assert exit_codes.run_command_line(["help", topic]) == 0
        assert capsys.readouterr().out.split() == help_topic(topic).split()


@pytest.mark.parametrize(
    ("line", "subcommand", "tables"),
    [
        ("plan diff", "deploy", ["diff"]),
        ("plan deploy diff", "deploy", ["diff"]),
        ("plan deploy delete deploy", "deploy", ["delete", "deploy"]),
        ("plan delete diff", "delete", ["diff"]),
        ("plan a diff", "", ["a", "diff"]),
        ("plan -- diff delete", "", ["diff", "delete"]),
        ("plan --children all delete a", "delete", ["a"]),
        ("plan --product diff a", "", ["a"]),
        ("plan --product=diff delete", "delete", []),
        ("plan --product delete --all", "", []),
        ("plan", "", []),
    ],
)
def test_a_table_may_be_named_like_a_subcommand(line: str, subcommand: str, tables: list[str]) -> None:
    if line == "plan diff":
        with pytest.raises(UsageError, match="are required: A, B"):
            read(line)
        return
    found = read(line)
    assert (found.subcommand, found.tables) == (subcommand, tables)


def test_a_subcommand_is_found_after_options() -> None:
    lines = ("--env dev runs skip 7f --step 3", "runs --env dev skip --step 3 7f", "runs --step 3 --env dev skip 7f")
    assert {(found.verb, found.subcommand, found.run, found.step, found.env) for found in map(read, lines)} == {
        ("runs", "skip", "7f", 3, "dev")
    }


@pytest.mark.parametrize(
    ("line", "said", "remedy"),
    [
        ("runs retry 7f --folow", "headgate runs retry takes no --folow", "did you mean --follow?"),
        ("runs pause 7f --step 2", "headgate runs pause takes no --step", "headgate runs pause --help lists"),
        ("ls --prodct=x", "headgate ls takes no --prodct", "did you mean --product?"),
        ("runs rety 7f", "'7f' is an unexpected argument", "did you mean `headgate runs retry`?"),
        ("policy aprove", "'aprove' is an unexpected argument", "did you mean `headgate policy approve`?"),
        ("init tabel clicks", "'clicks' is an unexpected argument", "did you mean `headgate init table`?"),
        ("bench scalability", "'scalability' is an unexpected argument", "did you mean `headgate bench scale`?"),
        ("demo chnage filter", "'filter' is an unexpected argument", "did you mean `headgate demo change`?"),
        ("cluster foo", "'foo' is an unexpected argument", "headgate cluster takes: up, down, status"),
        ("cluster statsu", "'statsu' is an unexpected argument", "did you mean `headgate cluster status`?"),
        ("plan diff a b c", "'c' is an unexpected argument", "headgate plan diff --help shows an example"),
        ("runs retry", "are required: ID", "headgate runs retry --help shows an example"),
        ("runs skip 7f", "are required: --step", "headgate runs skip --help shows an example"),
        ("logs agnet", "'agnet' is not one of agent, pool: did you mean agent?", "headgate logs --help"),
        ("sql x.sql --reads steam", "'steam' is not one of stream, batch: did you mean stream?", "headgate sql --help"),
        ("--projct=x", "headgate takes no --projct", "did you mean --project?"),
        ("--nope", "headgate takes no --nope", "headgate --help lists its options"),
    ],
)
def test_a_mistake_suggests_the_nearest_existing_name(line: str, said: str, remedy: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(line)
    assert said in caught.value.summary and "\n" not in caught.value.summary
    assert caught.value.remedy.startswith(remedy)


def test_a_subcommand_is_recognised_by_its_command(capsys: pytest.CaptureFixture[str]) -> None:
    for spec in (spec for spec in COMMAND_SPECS if spec.subcommands):
        assert exit_codes.run_command_line([spec.name, "--help"]) == 0
        listed = capsys.readouterr().out.partition("with a second word")[2].partition("example:")[0]
        assert all(f"\n  {each.name} " in listed for each in spec.subcommands)


def test_no_two_forms_are_typed_alike() -> None:
    assert not [(a, b) for (a, _), (b, _) in itertools.combinations(FORMS, 2) if a == b]


def test_a_table_called_diff_is_planned(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_codes.run_command_line(["plan", "deploy", "diff", "--offline"]) == 2
    assert "diff" in capsys.readouterr().err
