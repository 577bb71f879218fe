"""The arguments of every command, in the order of `headgate --help`."""

import argparse
import math
from typing import NoReturn

from core.model.errors import UsageError

YEAR_S = 365 * 86400.0
"""The longest wait."""
MOST_RATE = 400.0
"""Orders a second; the feeds write five times as many in a burst."""
MOST_LINES = 1_000_000
"""Lines or rows that one command shows."""


class CommandParser(argparse.ArgumentParser):
    """Raises UsageError where argparse would print and exit, so that `--json` prints errors as JSON."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, remedy=f"{self.prog} --help shows an example")


def _tables(parser: CommandParser, *, many: str = "+", what: str = "tables") -> None:
    parser.add_argument("tables", nargs=many, metavar="TABLE", help=what)


def _confirm(parser: CommandParser) -> None:
    parser.add_argument("--confirm", metavar="TEXT", help="the confirmation text, for use without a terminal")


def _number(text: str, least: float, most: float, what: str) -> float:
    """Read a number within bounds; raises what argparse prints behind the option's name. NaN is in no bounds."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not least <= value <= most:
        raise argparse.ArgumentTypeError(f"{text!r} is not {what} from {least:g} to {most:.0f}")
    return value


def _seconds(text: str) -> float:
    return _number(text, 0, YEAR_S, "a number of seconds")


def _rate(text: str) -> float:
    return _number(text, 0, MOST_RATE, "a number of orders per second")


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above zero")
    return int(_number(text, 1, MOST_LINES, "a whole number"))


def nothing(parser: CommandParser) -> None:
    return


def init(parser: CommandParser) -> None:
    parser.add_argument(
        "words", nargs="*", metavar="NAME | table NAME", help="a new folder, or a table of this project"
    )
    parser.add_argument("--product", help="data product of the new table")
    parser.add_argument("--layer", help="sources, intermediates, dimensions, facts or views")
    parser.add_argument("--reads", metavar="TABLE", help="the table that the new statement streams")


def up(parser: CommandParser) -> None:
    parser.add_argument("--foreground", action="store_true", help="run the agent here, as a service does")


def down(parser: CommandParser) -> None:
    parser.add_argument("--keep-pool", action="store_true", help="stop only the agent; statements keep running")
    parser.add_argument(
        "--purge", action="store_true", help="then list and delete everything that Headgate created here"
    )
    _confirm(parser)


def ls(parser: CommandParser) -> None:
    _tables(parser, many="*", what="only these")
    parser.add_argument("--product", action="append", default=[], help="only this product; may be repeated")
    parser.add_argument("--state", metavar="S,S", help="only these states")
    parser.add_argument("--versions", action="store_true", help="every version, not only the serving one")
    parser.add_argument("--fail-on", metavar="C,C", help="exit 1 when one matches: failed, growing, lag>1k")


def show(parser: CommandParser) -> None:
    parser.add_argument("table", metavar="TABLE")
    parser.add_argument("--sql", action="store_true", help="only the deployed SQL")
    parser.add_argument("--fail-on", metavar="C,C", help="exit 1 when one matches: failed, growing, lag>1k")


def peek(parser: CommandParser) -> None:
    parser.add_argument("table", metavar="TABLE")
    parser.add_argument("-n", "--limit", type=_count, default=20, help="rows (20)")
    parser.add_argument(
        "--version", type=_count, dest="table_version", metavar="N", help="this version instead of the serving one"
    )


def inventory(parser: CommandParser) -> None:
    parser.add_argument("--product", action="append", default=[], help="only this product; may be repeated")
    parser.add_argument("--unused", action="store_true", help="only tables without readers, except facts and views")
    parser.add_argument("--single-reader", action="store_true", help="only tables with exactly one reader")
    parser.add_argument("--cross-product", action="store_true", help="only tables read by another product")


def report(parser: CommandParser) -> None:
    parser.add_argument("table", metavar="TABLE")
    parser.add_argument("--up", action="store_true", help="only upstream")
    parser.add_argument("--down", action="store_true", help="only downstream; default: both")
    parser.add_argument("--depth", type=_count, metavar="N", help="at most this many levels")
    parser.add_argument("--yaml", action="store_true", help="data on stdout as YAML")
    parser.add_argument("--svg", metavar="FILE", help="write an SVG diagram to FILE")


def health(parser: CommandParser) -> None:
    parser.add_argument("products", nargs="*", metavar="PRODUCT", help="only these")
    parser.add_argument("--fail-on", metavar="C,C", help="exit 1 when one matches: failed, growing, lag>1k")


def impact(parser: CommandParser) -> None:
    parser.add_argument("column", metavar="TABLE[.COLUMN]", help="a table, or one of its columns")
    parser.add_argument(
        "--children", metavar="WHICH", help="which readers the plan includes (product; none for a delete)"
    )
    parser.add_argument(
        "--observed", metavar="FILE", help="read what is deployed from a YAML or JSON file, for use offline"
    )


def lineage(parser: CommandParser) -> None:
    parser.add_argument("column", metavar="TABLE[.COLUMN]", help="a column, or all columns of a table")
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--up", action="store_true", help="trace upstream to the external inputs (default)")
    way.add_argument("--down", action="store_true", help="trace downstream")
    parser.add_argument("--svg", metavar="FILE", help="write an SVG diagram to FILE")
    parser.add_argument("--html", metavar="FILE", help="write an HTML page with the diagram and tooltips to FILE")


def _scope(parser: CommandParser, *, tables: str, children: str) -> None:
    """Add what says which tables are meant; several together mean all of theirs."""
    parser.add_argument("tables", nargs="*", metavar=tables, help="tables by name")
    many = (
        ("--list", "FILE", "tables named in a file, one per line; # starts a comment; - is stdin"),
        ("--product", "P", "every table of a product"),
        ("--layer", "L", "every table of a layer: source, intermediate, dimension, fact or view"),
        ("--dir", "DIR", "every table in or below a folder of the project"),
        ("--pipeline", "SINK", "delete only: a sink with every upstream table that nothing else needs"),
        ("--exclude", "T,…", "tables to leave out"),
    )
    for option, metavar, what in many:
        parser.add_argument(option, action="append", default=[], metavar=metavar, help=f"{what}; may be repeated")
    parser.add_argument("--all", action="store_true", help="every table of the project")
    parser.add_argument(
        "--children",
        metavar="WHICH",
        help=f"which readers to include: none, product, all, or P1,P2 for these products as well ({children})",
    )


def plan(parser: CommandParser) -> None:
    _scope(parser, tables="[deploy|delete] TABLE | diff A B", children="product; none for a delete")
    parser.add_argument(
        "--changed-since", metavar="REF", help="every table that differs from a git commit, uncommitted edits included"
    )
    parser.add_argument("--rebuild", action="store_true", help="rebuild the requested tables, changed or not")
    parser.add_argument(
        "--keep-table", action="store_true", help="change only statements: no table is created, altered or swapped"
    )
    parser.add_argument(
        "--from", dest="start", metavar="WHERE", help="start reading at earliest, now, a time (UTC) or a position"
    )
    parser.add_argument(
        "--strategy", action="append", default=[], metavar="T=WORD[@AT]",
        help="strategy for one table instead of the default: earliest, partial@TIME, fork, "
        "seeded@POSITION, carry-over, keyed, chain or seam; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--observed", metavar="FILE", help="read what is deployed from a YAML or JSON file, for use offline"
    )
    parser.add_argument("--offline", action="store_true", help="only compute the plan; do not submit it to the agent")
    parser.add_argument("--save", metavar="FILE", help="write the plan with its texts, for review, approve and apply")
    _markdown(parser)
    parser.add_argument(
        "--exit-code",
        action="store_true",
        help="exit 0 without changes, 10 with changes, 11 with data loss or approval",
    )


def export(parser: CommandParser) -> None:
    parser.add_argument(
        "what", choices=("observed",), help="what `plan --observed` reads: deployed texts, states, table statistics"
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="a .yml, .yaml or .json file; default: YAML on stdout")


def sql(parser: CommandParser) -> None:
    parser.add_argument("file", metavar="FILE|-", help="a file of SQL, REV:path for one in git, or - for stdin")
    parser.add_argument(
        "--reads",
        choices=("stream", "batch"),
        help="how a table without STREAM is read (default: as the project declares)",
    )
    _spark(parser)


def diff(parser: CommandParser) -> None:
    side = "a file of SQL, REV:path for one in git, or - for stdin"
    parser.add_argument("old", metavar="OLD", help=f"{side}; its DDL and yml are read from the same folder")
    parser.add_argument("new", metavar="NEW", help="the same")
    _spark(parser)


def _spark(parser: CommandParser) -> None:
    parser.add_argument("--spark", action="store_true", help="also ask Spark, through the project's agent")


def review(parser: CommandParser) -> None:
    parser.add_argument(
        "plan", nargs="?", metavar="ID|FILE", help="start of a plan's hash, or a plan file; default: list all plans"
    )
    _markdown(parser)


def _markdown(parser: CommandParser) -> None:
    parser.add_argument("--markdown", action="store_true", help="for a change ticket or a pull request")


def approve(parser: CommandParser) -> None:
    parser.add_argument("plan", metavar="ID|FILE", help="start of a submitted plan's hash, or its file")
    _confirm(parser)


def apply(parser: CommandParser) -> None:
    parser.add_argument("plan", metavar="ID|FILE", help="start of a submitted plan's hash, or a plan file")
    parser.add_argument("--detach", action="store_true", help="print the run's id and return")
    _confirm(parser)


def runs(parser: CommandParser) -> None:
    parser.add_argument(
        "words", nargs="*", metavar="[ID] | pause|resume|cancel|retry|skip ID", help="a run, or a command"
    )
    parser.add_argument("--step", type=_count, default=0, help="the step to skip")
    parser.add_argument("-f", "--follow", action="store_true", help="wait until the run ends")
    _confirm(parser)


def act(parser: CommandParser) -> None:
    _tables(parser)
    _confirm(parser)
    parser.add_argument("--yes", action="store_true", help="answer `yes` to the confirmation, where that is enough")


def delete(parser: CommandParser) -> None:
    _scope(parser, tables="TABLE", children="none")
    parser.add_argument("--detach", action="store_true", help="print the run's id and return")
    _confirm(parser)


def wait(parser: CommandParser) -> None:
    _tables(parser, many="*", what="tables to wait for (all)")
    parser.add_argument("--lag", metavar="N", help="until the lag is at most this many rows, as measured from now on")
    parser.add_argument("--state", help="until in this state (running)")
    parser.add_argument("--timeout", type=_seconds, default=300.0, metavar="S", help="seconds (300)")


def events(parser: CommandParser) -> None:
    _tables(parser, many="?", what="only this table")
    parser.add_argument("-n", "--limit", type=_count, default=50, help="how many (50)")
    parser.add_argument("-f", "--follow", action="store_true", help="keep printing new ones")


def logs(parser: CommandParser) -> None:
    parser.add_argument("of", nargs="?", choices=("agent", "pool", "console"), default="agent")
    parser.add_argument("-n", "--limit", type=_count, default=50, help="how many lines (50)")
    parser.add_argument("-f", "--follow", action="store_true", help="keep printing new lines")


def audit(parser: CommandParser) -> None:
    parser.add_argument("-n", "--limit", type=_count, default=50, help="how many (50)")


def policy(parser: CommandParser) -> None:
    acts = ("show", "apply", "approve")
    parser.add_argument("act", nargs="?", choices=acts, default="show", help="apply: record what the files declare")
    _confirm(parser)
    parser.add_argument("--yes", action="store_true", help="answer `yes` to the confirmation, where that is enough")


def doctor(parser: CommandParser) -> None:
    parser.add_argument("--paths", action="store_true", help="print the paths of all files and folders")


def demo(parser: CommandParser) -> None:
    parser.add_argument("words", nargs="*", metavar="[FOLDER] | settle | change KIND", help="see the examples")
    parser.add_argument("--no-console", action="store_true", help="return once every statement has processed rows")
    parser.add_argument("--with-readers", action="store_true", help="change rename: also edit the readers")
    parser.add_argument("--rate", type=_rate, help="orders per second")
    parser.add_argument("--folder", metavar="DIR", help="the demo's folder for settle and change (./headgate-demo)")
    parser.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="data on stdout as JSON")


def help(parser: CommandParser) -> None:
    parser.add_argument("topic", nargs="?", metavar="TOPIC")


def completion(parser: CommandParser) -> None:
    choices = ("bash", "zsh", "tables", "columns", "products")
    parser.add_argument("shell", choices=choices, help="a completion script, or the names that it completes")
    parser.add_argument("table", nargs="?", default="", metavar="TABLE", help="the table whose columns to list")
