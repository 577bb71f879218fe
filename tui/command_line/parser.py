"""What can be typed; nothing is carried out here."""

import argparse
import difflib

from core.model.errors import UsageError
from tui.command_line.arguments import CommandParser
from tui.command_line.command_table import COMMAND_SPECS, SPEC_BY_NAME


def build_parser() -> CommandParser:
    """Build the parser of the whole line."""
    shared = _shared()
    parser = CommandParser(
        prog="headgate",
        description="The operations console for streaming SQL on Apache Spark. Without a "
        "command, it opens the console.",
        epilog=_overview(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[shared],
        usage="headgate [--project DIR] [--env E] [command] …",
    )
    parser.add_argument("--version", "-V", action="store_true", help="print the version")
    parser.set_defaults(verb=None)
    commands = parser.add_subparsers(dest="verb", metavar="command", parser_class=CommandParser, help=argparse.SUPPRESS)
    for verb in COMMAND_SPECS:
        sub = commands.add_parser(
            verb.name,
            prog=f"headgate {verb.name}",
            description=verb.summary,
            epilog="example:\n" + "\n".join(f"  {line}" for line in verb.example.splitlines()),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            parents=[shared] if verb.places else [],
            allow_abbrev=False,
        )
        verb.arguments(sub)
    return parser


def check_command(argv: list[str]) -> None:
    """Raise UsageError with the nearest command for a word that is none."""
    word = command_name(argv)
    if word is None or word in SPEC_BY_NAME:
        return
    near = difflib.get_close_matches(word, list(SPEC_BY_NAME), n=1, cutoff=0.5)
    remedy = f"did you mean `headgate {near[0]}`?" if near else "headgate --help lists the commands"
    raise UsageError(f"{word!r} is not a command", remedy=remedy)


def command_name(argv: list[str]) -> str | None:
    """Return the command of a line, None for the console's."""
    takes_value = ("--project", "--env")
    skip = False
    for word in argv:
        if skip:
            skip = False
        elif word in takes_value:
            skip = True
        elif not word.startswith("-"):
            return word
    return None


def _overview() -> str:
    lines = ["commands:"]
    for group in dict.fromkeys(verb.group for verb in COMMAND_SPECS):
        lines.append(f"\n  {group}")
        lines += [f"    {verb.name:<12}{verb.summary}" for verb in COMMAND_SPECS if verb.group == group]
    lines.append(
        "\nexample:\n  headgate demo\n  headgate ls --fail-on failed,lag>1k\n  headgate plan fct_orders --json"
    )
    return "\n".join(lines)


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
    place.add_argument("--env", metavar="E", default=none, help="environment; default: HEADGATE_ENV, else default_env")
    shared.add_argument(
        "--json", action="store_true", default=none, help="print data on stdout as JSON, including errors"
    )
    return shared
