"""Parses the command line without executing anything.

Every command and subcommand has its own parser. Only the parsers of the command in use are built.

The first word after the command that is neither an option nor an option's value is the subcommand, if the command has a
subcommand of that name. A table called `diff` is therefore planned with `headgate plan deploy diff`: a word after
`deploy` is always a table, and so is everything after `--`.
"""

import argparse
import difflib
import shutil
from collections.abc import Collection
from typing import Any

from core.model.errors import UsageError
from tui.command_line.arguments import CommandParser
from tui.command_line.command_table import COMMAND_SPECS, SPEC_BY_NAME, CommandSpec, SubcommandSpec

COLUMNS = 80
"""Maximum line length of help. On a narrower terminal, lines are wrapped between words where possible."""

ALONE = ""
"""Key of the parser for a command without a subcommand. A user cannot type it as a subcommand."""

_PLACE = ("--project", "--env")


def parse_line(argv: list[str]) -> argparse.Namespace:
    """Parse a command line into `verb` (None opens the console), `subcommand` (may be empty) and arguments.

    Raises UsageError, which suggests the nearest known word, and SystemExit after printing the output of `--help`.
    """
    typed, at = argv, _next_word(argv, 0, _PLACE)
    shared = _shared()
    parser = _parser_alone(shared)
    if at is None:
        forms = {ALONE: parser}
    else:
        spec = _spec(argv[at])
        commands = parser.add_subparsers(dest="verb", parser_class=CommandParser)
        forms = _add_command(commands, spec, shared)
        second = _second_word(argv, at, forms)
        argv = _with_subcommand(argv, at, second, forms) if spec.subcommands else argv
    args, rest = parser.parse_known_args(argv)
    if rest:
        _refuse(rest[0], forms, args.subcommand, "" if at is None or second is None else typed[second])
    return args


def command_name(argv: list[str]) -> str | None:
    """Return the command in a command line; None if the line has no command, which opens the console."""
    at = _next_word(argv, 0, _PLACE)
    return None if at is None else argv[at]


def overview() -> str:
    """Return the help of `headgate`, which lists all commands."""
    return _parser_alone(_shared()).format_help()


def _spec(word: str) -> CommandSpec:
    if word in SPEC_BY_NAME:
        return SPEC_BY_NAME[word]
    near = difflib.get_close_matches(word, list(SPEC_BY_NAME), n=1, cutoff=0.5)
    remedy = f"did you mean `headgate {near[0]}`?" if near else "headgate --help lists the commands"
    raise UsageError(f"{word!r} is not a command", remedy=remedy)


def _next_word(argv: list[str], start: int, takes_value: Collection[str]) -> int | None:
    """Return the index, from `start` on, of the first word that is neither an option nor an option's value, or None."""
    skip = False
    for at, word in enumerate(argv[start:], start):
        if skip:
            skip = False
        elif word == "--":
            return None
        elif word in takes_value:
            skip = True
        elif not word.startswith("-"):
            return at
    return None


def _second_word(argv: list[str], at: int, forms: dict[str, CommandParser]) -> int | None:
    takes_value = {option for form in forms.values() for option, value in form.options() if value}
    return _next_word(argv, at + 1, takes_value)


def _with_subcommand(argv: list[str], at: int, second: int | None, forms: dict[str, CommandParser]) -> list[str]:
    # Argparse expects the subcommand right after its command.
    before, after = argv[: at + 1], argv[at + 1 :]
    if second is None or argv[second] == ALONE or argv[second] not in forms:
        return [*before, ALONE, *after]
    return [*before, argv[second], *argv[at + 1 : second], *argv[second + 1 :]]


def _refuse(word: str, forms: dict[str, CommandParser], subcommand: str, second: str) -> None:
    form = forms[subcommand]
    if word.startswith("-"):
        option = word.partition("=")[0]
        near = difflib.get_close_matches(option, [name for name, _ in form.options()], n=1, cutoff=0.75)
        remedy = f"did you mean {near[0]}?" if near else f"{form.prog} --help lists its options"
        raise UsageError(f"{form.prog} takes no {option}", remedy=remedy)
    names = [name for name in forms if name] if subcommand == ALONE else []
    near = difflib.get_close_matches(second, names, n=1, cutoff=0.5)
    if near:
        remedy = f"did you mean `{forms[near[0]].prog}`?"
    else:
        lists = names and word == second
        remedy = f"{form.prog} takes: {', '.join(names)}" if lists else f"{form.prog} --help shows an example"
    raise UsageError(f"{word!r} is an unexpected argument", remedy=remedy)


def _parser_alone(shared: CommandParser) -> CommandParser:
    parser = CommandParser(
        prog="headgate",
        description="The operations console for streaming SQL on Apache Spark. Alone, it opens\nthe console.",
        epilog=_commands(),
        formatter_class=_formatter,
        parents=[shared],
        usage="headgate [--project DIR] [--env E] [command] …",
        allow_abbrev=False,
    )
    parser.add_argument("--version", "-V", action="store_true", help="print the version")
    parser.set_defaults(verb=None, subcommand=ALONE)
    return parser


def _add_command(
    commands: "argparse._SubParsersAction[CommandParser]", spec: CommandSpec, shared: CommandParser
) -> dict[str, CommandParser]:
    if not spec.subcommands:
        return {ALONE: _add_form(commands, spec.name, spec, shared, spec)}
    verb = commands.add_parser(spec.name, prog=f"headgate {spec.name}", add_help=False)
    words = verb.add_subparsers(dest="subcommand", parser_class=CommandParser)
    forms = {ALONE: _add_form(words, ALONE, spec, shared, spec)}
    return forms | {each.name: _add_form(words, each.name, each, shared, spec) for each in spec.subcommands}


def _add_form(
    parsers: "argparse._SubParsersAction[CommandParser]",
    word: str,
    form: CommandSpec | SubcommandSpec,
    shared: CommandParser,
    spec: CommandSpec,
) -> CommandParser:
    parser = parsers.add_parser(
        word,
        prog=f"headgate {spec.name}" if form is spec else f"headgate {spec.name} {form.name}",
        description=form.summary,
        epilog=_epilog(form),
        formatter_class=_formatter,
        parents=[shared] if spec.places else [],
        allow_abbrev=False,
    )
    form.arguments(parser)
    return parser


def _epilog(form: CommandSpec | SubcommandSpec) -> str:
    lines = []
    if isinstance(form, CommandSpec) and form.subcommands:
        lines += ["with a second word, each with a --help of its own:"]
        lines += [line for each in form.subcommands for line in _listed(each, indent=2)]
        lines += [""]
    return "\n".join([*lines, "example:", *(f"  {line}" for line in form.example.splitlines())])


def _commands() -> str:
    lines = ["commands:"]
    for group in dict.fromkeys(verb.group for verb in COMMAND_SPECS):
        lines.append(f"\n  {group}")
        lines += [line for verb in COMMAND_SPECS if verb.group == group for line in _listed(verb, indent=4)]
    lines.append(
        "\nexample:\n  headgate demo\n  headgate ls --fail-on 'failed,lag>1k'\n  headgate plan fct_orders --json"
    )
    return "\n".join(lines)


def _listed(form: CommandSpec | SubcommandSpec, *, indent: int) -> list[str]:
    room, lines = COLUMNS - indent - 12, [""]
    for word in form.summary.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > room:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return [f"{' ' * indent}{form.name if not n else '':<12}{line}" for n, line in enumerate(lines)]


def _formatter(prog: str) -> argparse.HelpFormatter:
    return argparse.RawDescriptionHelpFormatter(prog, width=min(shutil.get_terminal_size().columns, COLUMNS + 2) - 2)


def _shared() -> CommandParser:
    shared = CommandParser(add_help=False)
    place = shared.add_argument_group("where")
    none = argparse.SUPPRESS
    place.add_argument(
        "--project",
        metavar="DIR",
        default=none,
        help="project folder; default: HEADGATE_PROJECT, else the nearest one at or above the current folder",
    )
    told = "environment; default: HEADGATE_ENV, else default_env"
    place.add_argument("--env", metavar="E", action=_EachEnvironment, default=none, help=told)
    shared.add_argument(
        "--json", action="store_true", default=none, help="print data on stdout as JSON, including errors"
    )
    return shared


class _EachEnvironment(argparse.Action):
    """Stores the last environment as `env`, and all environments of the line as `environments`.

    One action serves the parsers of the whole line, because argparse gives a command a namespace of its own.
    """

    given: tuple[str, ...] = ()

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        namespace.env = values
        namespace.environments = self.given = (*self.given, values)
