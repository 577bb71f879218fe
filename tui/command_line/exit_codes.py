"""The outermost layer of the command line, which turns every outcome into an exit code and a short message.

A user never sees a traceback.
"""

import argparse
import importlib
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial

from core.model.errors import HeadgateError, UsageError
from core.text.escaping import escape_surrogates
from tui import VERSION
from tui.command_line.command_table import SPEC_BY_NAME
from tui.command_line.context import CommandContext
from tui.command_line.output import CommandOutput, StdoutNotWritten, open_streams, silence_stdout
from tui.command_line.parser import command_name, parse_line

INTERRUPTED = 130

_RUN = "if the run has started, it continues: headgate runs shows it, headgate runs ID --follow follows it"
_ACT = "the command may still complete: headgate ls shows the result, headgate audit who asked"
GOES_ON_BY_COMMAND = {
    "up": "agent and pool keep starting: headgate up waits for them again, headgate down stops them",
    "down": "the shutdown continues: run headgate down again to check that nothing is running",
    "backup": "the file exists only if the backup was complete: run headgate backup again",
    "restore": "the ledger is complete, either the old or the restored one: run headgate restore again, or headgate up",
    "cluster": "what was started keeps running: headgate cluster up goes on, headgate cluster down ends it",
    "demo": "what was started keeps running: headgate demo returns to it, headgate down in its folder stops it",
    "bench": (
        "what was measured is lost. If something of its environment is left, headgate doctor names it, "
        "and the next headgate bench deletes it"
    ),
    "test": (
        "nothing was changed; its Spark server is ended. If something of an environment is left, "
        "headgate doctor names it, and the next headgate test --integration deletes it"
    ),
    "wait": "nothing was changed: headgate ls shows the current state",
    "approve": "the approval may still have been recorded: headgate review ID shows it",
    "runs": "the run continues: headgate runs ID --follow follows it",
    "adopt": "the adoption may still have been recorded: headgate adopt shows what is in doubt",
    "": "an agent that was being started keeps starting: headgate opens the console on it, headgate down stops it",
    **dict.fromkeys(("apply", "delete", "optimize", "release", "rollback", "undelete", "vacuum"), _RUN),
    **dict.fromkeys(("stop", "start", "restart"), _ACT),
}
"""Message after Ctrl-C, by command.

It states what keeps running or may have happened, and how to check.
"""


TAKES_SEVERAL_ENVIRONMENTS = frozenset({None, "diff", "promote"})
"""Commands for which `--env` may name different environments; None opens the console. `promote` refuses them itself."""


def run_command_line(argv: list[str]) -> int:
    """Run a command line and return its exit code.

    0 done, 1 failed, 2 usage error, 3 refused, 4 try again, 130 interrupted.
    """
    open_streams()
    output = CommandOutput(as_json="--json" in argv)
    try:
        code = _ended(argv, output)
        sys.stdout.flush()
        return code
    except StdoutNotWritten as error:
        output.say(f"headgate: {error.summary}\n  {error.remedy}")
        return error.exit_code
    except HeadgateError as error:
        return _quietly(partial(output.fail, error))
    except BrokenPipeError:
        silence_stdout()
        return 0
    except KeyboardInterrupt:
        output.say(f"interrupted; {GOES_ON_BY_COMMAND.get(command_name(argv) or '', 'nothing was changed')}")
        return INTERRUPTED
    except Exception:
        # The outer edge: an unexpected error is our bug, and is reported as one sentence with its place.
        return _quietly(partial(_unexpected, argv, output))


def _ended(argv: list[str], output: CommandOutput) -> int:
    try:
        return _run(argv, output)
    except SystemExit as helped:
        return int(helped.code or 0)


def _run(argv: list[str], output: CommandOutput) -> int:
    # A shell may start background commands with SIGINT ignored, but Ctrl-C must detach.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for word in argv:
        if (shown := escape_surrogates(word)) != word:
            raise UsageError(
                f"the argument {shown} is not UTF-8", remedy="rename the file or folder, or use another one"
            )
    args = parse_line(argv)
    if args.version is True:
        output.print([f"headgate {VERSION}"])
        return 0
    _refuse_several_environments(args)
    name = "console_up_down:console" if args.verb is None else SPEC_BY_NAME[args.verb].runs
    module, _, function = name.partition(":")
    command: Callable[[CommandContext], int] = getattr(importlib.import_module(f"tui.commands.{module}"), function)
    return command(CommandContext(args, output, os.environ))


def _refuse_several_environments(args: argparse.Namespace) -> None:
    """Raise UsageError if a command for one environment is given several: it would ignore all but one."""
    names = tuple(dict.fromkeys(getattr(args, "environments", ())))
    if len(names) > 1 and args.verb not in TAKES_SEVERAL_ENVIRONMENTS:
        named = f"headgate {args.verb} takes one environment, and --env names {', '.join(names)}"
        raise UsageError(named, remedy="give --env once; `headgate --env E --env F` opens several in the console")


def _quietly(say: Callable[[], int]) -> int:
    try:
        return say()
    except (BrokenPipeError, StdoutNotWritten):
        silence_stdout()
        return 1


def _unexpected(argv: list[str], output: CommandOutput) -> int:
    import traceback

    path = os.path.join(tempfile.gettempdir(), f"headgate-{os.getuid()}-error.log")
    text = f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} headgate {VERSION} {argv}\n{traceback.format_exc()}\n"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    except OSError:
        path = "nowhere: the log cannot be written"
    kind = sys.exc_info()[0]
    summary = f"headgate failed unexpectedly ({kind.__name__ if kind else 'unknown'})"
    return output.fail(HeadgateError(summary, remedy=f"details were written to {path}; please report this"))
