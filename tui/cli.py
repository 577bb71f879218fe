"""Entry point of the command `headgate`: locates Headgate's four packages, then calls `tui.command_line`.

Until all four are found in one folder, only the standard library is imported. Their names are so common that PYTHONPATH
or the current folder may contain another `core`. Such a package must lead to an error message and must never be run.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

from tui import VERSION

PACKAGES = ("core", "state", "pipelines")


def main() -> int:
    """Run the command line of this process, and return the exit code."""
    misplaced = find_misplaced()
    if misplaced:
        print(f"headgate: {misplaced}", file=sys.stderr)
        return 2
    if sys.argv[1:] in (["--version"], ["-V"]):
        print(f"headgate {VERSION}")
        return 0
    try:
        from tui.command_line.exit_codes import run_command_line

        return run_command_line(sys.argv[1:])
    except KeyboardInterrupt:
        # Ctrl-C was pressed before the command had begun or after it had ended.
        return 130


def find_misplaced() -> str:
    """Return an error message for the first package that is missing or misplaced; empty if all are in place."""
    ours = Path(__file__).resolve().parent.parent
    for name in PACKAGES:
        found = find_spec(name)
        origin = found.origin if found else None
        if origin is None:
            return f"the package {name!r} is missing next to {ours / 'tui'}; install headgate again"
        if Path(origin).resolve().parent.parent != ours:
            return (
                f"the package {name!r} would be taken from {Path(origin).parent}, not from {ours / name}; "
                "unset PYTHONPATH, or install headgate in its own virtual environment"
            )
    return ""


if __name__ == "__main__":
    sys.exit(main())
