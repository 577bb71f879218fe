"""Declares the arguments of the commands that `plan_arguments` does not cover, in the order of `headgate --help`."""

import argparse
import math
import re
from collections.abc import Iterator
from typing import Any, NoReturn

from core.model.errors import UsageError
from core.model.names import whole_number
from core.model.table_formats import WRITTEN
from core.text.wording import did_you_mean

YEAR_S = 365 * 86400.0
"""Longest wait that a user can request, in seconds."""
MOST_RATE = 400.0
"""Maximum rate of the demo, in orders per second. In a burst, the generator writes five times as many."""

MOST_LOAD = 1e7
"""Maximum rate of a benchmark, in rows per second."""

MOST_POINTS = 12
"""Maximum number of points at which scalability is measured."""

SCENARIOS = range(1, 7)
"""Numbers of the demo's scenarios; see `headgate help scenarios`."""
MOST_LINES = 1_000_000
"""Maximum number of lines or rows that a command shows."""


class CommandParser(argparse.ArgumentParser):
    """Raises UsageError instead of exiting, so that `--json` also prints errors as JSON."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, remedy=f"{self.prog} --help shows an example")

    def options(self) -> Iterator[tuple[str, bool]]:
        """Yield (option, whether it takes a value) for every option, including hidden options."""
        return ((option, action.nargs != 0) for option, action in self._option_string_actions.items())


def add_choice(
    parser: CommandParser, name: str, words: tuple[str, ...], *, metavar: str, what: str, default: str = ""
) -> None:
    """Add an argument that accepts only `words`. The error for any other word suggests the most similar of `words`."""

    def read(text: str) -> str:
        if text in words:
            return text
        near = did_you_mean(text, words)
        raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(words)}" + (f": {near}" if near else ""))

    many: dict[str, Any] = {"nargs": "?", "default": default} if default else {}
    parser.add_argument(name, type=read, metavar=metavar, help=f"{', '.join(words)}: {what}", **many)


def parse_number(text: str, least: float, most: float, what: str) -> float:
    """Parse a number from `least` to `most`. Raises ArgumentTypeError for anything else, including NaN."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not least <= value <= most:
        raise argparse.ArgumentTypeError(f"{text!r} is not {what} from {least:g} to {most:.0f}")
    return value


def seconds(text: str) -> float:
    return parse_number(text, 0, YEAR_S, "a number of seconds")


def load_seconds(text: str) -> float:
    return parse_number(text, 1, YEAR_S, "a number of seconds")


def rate(text: str) -> float:
    return parse_number(text, 0, MOST_RATE, "a number of orders per second")


def load_rate(text: str) -> float:
    return parse_number(text, 1, MOST_LOAD, "a number of rows per second")


def percent(text: str) -> float:
    return parse_number(text, 1, 100, "a percentage")


def count(text: str) -> int:
    if whole_number(text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above zero")
    return int(parse_number(text, 1, MOST_LINES, "a whole number"))


def points(text: str) -> tuple[int, ...]:
    """Read several whole numbers, such as 1,2,4."""
    found = tuple(count(each.strip()) for each in text.split(","))
    if len(found) > MOST_POINTS:
        raise argparse.ArgumentTypeError(f"{len(found)} numbers are given, and at most {MOST_POINTS} are measured")
    return found


def one_point(text: str) -> tuple[int, ...]:
    return (count(text),)


SELECTORS = "+T, 2+T: with upstream, T+, T+3: with downstream, tag:X"
"""Help text on selectors, which select several tables with one word."""


def _tables(parser: CommandParser, *, many: str = "+", what: str = "tables") -> None:
    told = what if many == "?" else f"{what}; {SELECTORS}"
    parser.add_argument("tables", nargs=many, metavar="TABLE", help=told)


def confirm(parser: CommandParser) -> None:
    """Add the option `--confirm`, which confirms an operator action without a terminal."""
    parser.add_argument("--confirm", metavar="TEXT", help="the confirmation text, for use without a terminal")


def nothing(parser: CommandParser) -> None:
    return


def init(parser: CommandParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="a new folder (default: the current one, if empty)")
    parser.add_argument(
        "--from-manifests", metavar="DIR", help="make the current folder a project of the YAML manifests below DIR"
    )


def init_table(parser: CommandParser) -> None:
    # argparse does not break the line of a group.
    parser.usage = (
        "%(prog)s [-h] [--project DIR] [--env E] [--json]\n"
        "         [--product PRODUCT] [--layer LAYER] [--python]\n"
        "         [--reads TABLE | --delta FOLDER | --postgres URI | --kafka URI]\n"
        "         NAME"
    )
    parser.add_argument("name", metavar="NAME", help="the new table")
    parser.add_argument("--product", help="data product of the new table")
    parser.add_argument("--layer", help="sources, intermediates, dimensions, facts or views")
    parser.add_argument("--python", action="store_true", help="with --reads: write a job in Python instead of SQL")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--reads", metavar="TABLE", help="the table that the new statement streams")
    what.add_argument("--delta", metavar="FOLDER", help="declare the external Delta table in FOLDER as an input")
    what.add_argument(
        "--postgres", metavar="URI", help="declare postgresql://user@host:5432/database/schema.table as a static input"
    )
    what.add_argument(
        "--kafka", metavar="URI", help="declare the topic of kafka://host:9092/topic, and a statement that reads it"
    )


def init_function(parser: CommandParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the new function")
    parser.add_argument("--python", action="store_true", help="write it in Python instead of SQL")


def up(parser: CommandParser) -> None:
    parser.add_argument(
        "--foreground",
        action="store_true",
        help="run the agent in the foreground, as a service; the only way in a protected environment",
    )
    parser.add_argument(
        "--from", dest="base", metavar="ENV", help="create --env as an overlay of ENV: it builds only what differs"
    )
    parser.add_argument("--expires", metavar="TIME", help="delete the overlay after 12h, 2d (default), …")
    parser.add_argument("--since", metavar="TIME", help="let the overlay read only the last 90m, 12h, … of the sources")


def down(parser: CommandParser) -> None:
    left = parser.add_mutually_exclusive_group()
    left.add_argument("--keep-pool", action="store_true", help="stop only the agent; statements keep running")
    left.add_argument("--purge", action="store_true", help="then list and delete everything that Headgate created here")
    confirm(parser)


def ls(parser: CommandParser) -> None:
    _tables(parser, many="*", what="only these")
    parser.add_argument("--product", action="append", default=[], help="only this product; may be repeated")
    parser.add_argument("--state", metavar="S,S", help="only these states")
    parser.add_argument("--pool", metavar="NAME", help="only those of this pool, if there are several")
    parser.add_argument("--versions", action="store_true", help="every version, not only the serving one")
    parser.add_argument("--fail-on", metavar="C,C", help="exit 1 when one matches: failed, growing, input, lag>1k")


def show(parser: CommandParser) -> None:
    parser.add_argument("table", metavar="TABLE", help="the statement's table, or one version of it: TABLE@v2")
    parser.add_argument("--sql", action="store_true", help="only the deployed SQL")
    parser.add_argument("--fail-on", metavar="C,C", help="exit 1 when one matches: failed, growing, input, lag>1k")


def peek(parser: CommandParser) -> None:
    parser.add_argument("table", metavar="TABLE", help="the table whose rows to print")
    parser.add_argument("-n", "--limit", type=count, default=20, help="rows (20)")
    parser.add_argument(
        "--version", type=count, dest="table_version", metavar="N", help="this version instead of the serving one"
    )


def inventory(parser: CommandParser) -> None:
    parser.add_argument("--product", action="append", default=[], help="only this product; may be repeated")
    parser.add_argument("--unused", action="store_true", help="only tables without readers, except facts and views")
    parser.add_argument("--single-reader", action="store_true", help="only tables with exactly one reader")
    parser.add_argument("--cross-product", action="store_true", help="only tables read by another product")


def report(parser: CommandParser) -> None:
    parser.add_argument("table", metavar="TABLE", help="the table in the middle")
    parser.add_argument("--up", action="store_true", help="only upstream")
    parser.add_argument("--down", action="store_true", help="only downstream; default: both")
    parser.add_argument("--depth", type=count, metavar="N", help="at most this many levels")
    parser.add_argument("--yaml", action="store_true", help="data on stdout as YAML")
    parser.add_argument("--svg", metavar="FILE", help="write an SVG diagram to FILE")


def health(parser: CommandParser) -> None:
    parser.add_argument("products", nargs="*", metavar="PRODUCT", help="only these")
    parser.add_argument("--fail-on", metavar="C,C", help="exit 1 when one matches: failed, growing, input, lag>1k")


def impact(parser: CommandParser) -> None:
    parser.add_argument("column", metavar="TABLE[.COLUMN]", help="a table, one of its columns, or a FUNCTION()")
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
    what = "print diagram text, for Markdown or for Graphviz"
    add_choice(parser, "--format", ("mermaid", "dot"), metavar="FORM", what=what)
    parser.add_argument("--svg", metavar="FILE", help="write an SVG diagram to FILE")
    parser.add_argument("--html", metavar="FILE", help="write an HTML page with the diagram and tooltips to FILE")


def export(parser: CommandParser) -> None:
    add_choice(
        parser,
        "what",
        ("observed",),
        metavar="WHAT",
        what="input of `plan --observed`: deployed texts, states, table statistics",
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="a .yml, .yaml or .json file; default: YAML on stdout")


def sql(parser: CommandParser) -> None:
    parser.add_argument("file", metavar="FILE|-", help="a file of SQL, REV:path for one in git, or - for stdin")
    what = "how a table without STREAM is read (default: as the project declares)"
    add_choice(parser, "--reads", ("stream", "batch"), metavar="HOW", what=what)
    _spark(parser)


def diff(parser: CommandParser) -> None:
    parser.usage = (
        "%(prog)s [-h] [--project DIR] [--env E] [--json] [--spark] OLD NEW\n"
        "       %(prog)s [-h] [--project DIR] [--json] --env E --env F\n"
        "                     [--product P] [--all] [TABLE ...]"
    )
    sides = "OLD and NEW: files of SQL, REV:path for one in git, or - for stdin; DDL and yml are read from their folder"
    parser.add_argument("names", nargs="*", metavar="OLD NEW | TABLE", help=f"{sides}. TABLE: only these tables")
    parser.add_argument("--product", action="append", default=[], help="only tables of this product; may be repeated")
    parser.add_argument("--all", action="store_true", help="also list the tables that run the same revision in both")
    _spark(parser)


def _spark(parser: CommandParser) -> None:
    parser.add_argument("--spark", action="store_true", help="also ask Spark, through the project's agent")


def test(parser: CommandParser) -> None:
    _tables(parser, many="*", what="only the cases of these tables, or of a FUNCTION()")
    parser.add_argument("--product", action="append", default=[], help="only this product; may be repeated")
    parser.add_argument(
        "--upgrade", action="store_true", help="continue each new text from the checkpoint of its old one"
    )
    parser.add_argument("--since", metavar="REF", help="source of the old texts: a git commit, or deployed (default)")
    _integration(parser)
    parser.add_argument(
        "--scenario",
        metavar="NAMES",
        help="disturb the tables instead: restart, late, schema, upgrade, replay, recovery, or all",
    )
    parser.add_argument(
        "--lateness", type=seconds, metavar="S", help="by how much the rows of the scenario late are late, in seconds"
    )
    parser.add_argument("--junit", metavar="FILE", help="write the results of integration tests as JUnit XML")
    parser.add_argument("--markdown", metavar="FILE", help="write the results of integration tests as Markdown")
    parser.add_argument(
        "--timeout", type=seconds, default=60.0, metavar="S", help="seconds for a case, or for a part of one (60)"
    )


def test_init(parser: CommandParser) -> None:
    parser.add_argument("table", metavar="TABLE", help="the table that gets a first case, or the product")
    _integration(parser)
    parser.add_argument(
        "--timeout", type=seconds, default=60.0, metavar="S", help="seconds for the case, or for a part of it (60)"
    )


def _integration(parser: CommandParser) -> None:
    parser.add_argument(
        "--integration", action="store_true", help="tests of several tables, deployed in an environment of their own"
    )
    parser.add_argument("--pool", metavar="ENV", help="use the running Spark server of this environment")


def _benchmark(parser: CommandParser, *, load: bool = True, sizes: bool = False) -> None:
    _tables(parser, many="*", what="only these tables, with everything upstream (all)")
    parser.add_argument("--product", action="append", default=[], help="only this product; may be repeated")
    parser.add_argument(
        "--sample", action="append", default=[], metavar="[SOURCE=]FILE",
        help="file or folder with rows of a source (its own rows, else made up)",
    )  # fmt: skip
    parser.add_argument("--repeat", type=count, default=1, metavar="N", help="repetitions, to see the spread (1)")
    if load:
        parser.add_argument(
            "--record-bytes", type=points if sizes else one_point, metavar="N,N" if sizes else "N",
            help="size to which records are filled up" + ("; one search for each" if sizes else ""),
        )  # fmt: skip
        parser.add_argument(
            "--window", type=load_seconds, metavar="S", help="seconds of load (4 triggers, at least 20)"
        )
    parser.add_argument("--cores", type=count, metavar="N", help="cores of the server (those of the pool)")
    parser.add_argument("--out", metavar="FILE", help="write the result as JSON")
    parser.add_argument("--svg", metavar="FILE", help="write a picture")


def bench_startup(parser: CommandParser) -> None:
    _benchmark(parser, load=False)


def bench_latency(parser: CommandParser) -> None:
    _benchmark(parser)
    parser.add_argument("--rate", type=load_rate, default=100.0, metavar="N", help="rows per second of the load (100)")
    parser.add_argument("--probes", type=count, default=12, metavar="N", help="probes while nothing else runs (12)")
    parser.add_argument("--probe-rows", type=count, default=100, metavar="N", help="rows of a probe (100)")


def bench_throughput(parser: CommandParser) -> None:
    _benchmark(parser, sizes=True)
    parser.add_argument("--rate", type=load_rate, default=100.0, metavar="N", help="first rate, rows per second (100)")
    parser.add_argument("--most", type=load_rate, default=1e6, metavar="N", help="rate at which it ends (1000000)")
    parser.add_argument(
        "--precision", type=percent, default=15.0, metavar="PERCENT",
        help="distance of the sustained and the failed rate at which it ends (15)",
    )  # fmt: skip


def bench_scale(parser: CommandParser) -> None:
    _benchmark(parser)
    parser.add_argument(
        "--axis", choices=("statements", "cores", "partitions", "chain"), default="statements",
        help="what grows from point to point (statements)",
    )  # fmt: skip
    parser.add_argument("--points", type=points, metavar="N,N", help="points of the axis (1,2,4)")
    parser.add_argument(
        "--measure", choices=("latency", "throughput"),
        help="latency at --rate, or the highest rate (latency; for cores, the highest rate)",
    )  # fmt: skip
    parser.add_argument(
        "--rate", type=load_rate, default=100.0, metavar="N", help="rows per second, or the first rate (100)"
    )
    parser.add_argument(
        "--most", type=load_rate, default=1e6, metavar="N", help="rate at which a search ends (1000000)"
    )
    parser.add_argument(
        "--precision", type=percent, default=15.0, metavar="PERCENT",
        help="distance of the sustained and the failed rate at which a search ends (15)",
    )  # fmt: skip


def bench_compare(parser: CommandParser) -> None:
    what = "two results; with --since, tables, with everything upstream (those that differ)"
    parser.add_argument("words", nargs="*", metavar="FILE|TABLE", help=what)
    parser.add_argument("--since", metavar="REF", help="measure the texts of a git commit against those of the files")
    parser.add_argument("--product", action="append", default=[], help="with --since: this product; may be repeated")
    parser.add_argument(
        "--sample", action="append", default=[], metavar="[SOURCE=]FILE",
        help="file or folder with rows of a source (its own rows, else made up)",
    )  # fmt: skip
    parser.add_argument("--pairs", type=count, default=8, metavar="N", help="with --since: number of pairs (8)")
    parser.add_argument("--rows", type=count, default=20_000, metavar="N", help="with --since: rows of each (20000)")
    parser.add_argument("--cores", type=count, metavar="N", help="cores of the server (those of the pool)")
    parser.add_argument("--out", metavar="FILE", help="with --since: write the result as JSON")
    parser.add_argument("--markdown", action="store_true", help="the table as Markdown")


def bench_show(parser: CommandParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a result")
    parser.add_argument("--svg", metavar="FILE", help="write a picture")


def act(parser: CommandParser) -> None:
    _tables(parser, what="tables, or TABLE@v2 for one version alone")
    confirm(parser)
    parser.add_argument("--yes", action="store_true", help="answer `yes` to a confirmation that asks for no more")


def wait(parser: CommandParser) -> None:
    _tables(parser, many="*", what="tables to wait for (all)")
    parser.add_argument("--lag", metavar="N", help="until the lag is at most N rows, measured from now on")
    parser.add_argument("--state", help="until in this state (running)")
    parser.add_argument("--timeout", type=seconds, default=300.0, metavar="S", help="seconds (300)")


def events(parser: CommandParser) -> None:
    _tables(parser, many="?", what="only this table")
    parser.add_argument("-n", "--limit", type=count, default=50, help="how many (50)")
    parser.add_argument("-f", "--follow", action="store_true", help="keep printing new ones")


def history(parser: CommandParser) -> None:
    parser.add_argument("table", metavar="TABLE", help="the table, deployed now or earlier")
    parser.add_argument("-n", "--limit", type=count, default=50, help="how many (50)")


def schema(parser: CommandParser) -> None:
    parser.add_argument("table", metavar="TABLE", help="the table, deployed or declared")


def pool_show(parser: CommandParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the pool")


def pool_recipe(parser: CommandParser) -> None:
    add_choice(parser, "kind", ("standalone", "yarn", "kubernetes"), metavar="KIND", what="the kind of cluster")
    parser.add_argument("--pool", metavar="NAME", help="whose settings and size are used (the default pool)")
    parser.add_argument("--name", metavar="NAME", help="name of the new pool (the kind)")


def logs(parser: CommandParser) -> None:
    add_choice(parser, "of", ("agent", "pool"), metavar="OF", what="whose log (agent)", default="agent")
    parser.add_argument("pool", metavar="NAME", nargs="?", help="which pool, if there are several (the default one)")
    parser.add_argument("--job", metavar="TABLE", help="what the job in Python of a table, or of TABLE@vN, has printed")
    parser.add_argument("-n", "--limit", type=count, default=50, help="how many lines (50)")
    parser.add_argument("-f", "--follow", action="store_true", help="keep printing new lines")


def audit(parser: CommandParser) -> None:
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--table", metavar="TABLE", help="only entries about this table, its plans and its runs")
    parser.add_argument("-n", "--limit", type=count, default=50, help="how many (50)")
    which.add_argument(
        "--verify", action="store_true", help="check that no entry was changed, removed or inserted; exit code 1 if so"
    )


def unlock(parser: CommandParser) -> None:
    # Otherwise, `-5m` would be taken for an option, and the ticket for the time.
    parser._negative_number_matcher = re.compile(r"-\d\w*\Z")
    parser.add_argument("length", metavar="TIME", help="how long, from 1m to 8h, such as 30m")
    parser.add_argument("ticket", metavar="TICKET", help="why, in a word or a quoted line; the audit log keeps it")


def policy_act(parser: CommandParser) -> None:
    confirm(parser)
    parser.add_argument("--yes", action="store_true", help="answer `yes` to a confirmation that asks for no more")


def backup(parser: CommandParser) -> None:
    parser.add_argument("file", metavar="FILE", help="the file to write; it must not exist yet")


def restore(parser: CommandParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a file that headgate backup wrote")
    confirm(parser)


def doctor(parser: CommandParser) -> None:
    parser.add_argument("--paths", action="store_true", help="print the paths of all files and folders")


def cluster(parser: CommandParser) -> None:
    parser.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="data on stdout as JSON")


def cluster_up(parser: CommandParser) -> None:
    cluster(parser)
    parser.add_argument("--workers", type=count, metavar="N", help="number of workers; at first 1, then as before")
    parser.add_argument("--cores", type=count, metavar="C", help="cores of each worker; at first 2")
    parser.add_argument("--memory", metavar="M", help="memory of each worker for executors; at first 2g")


def demo(parser: CommandParser) -> None:
    demo_folder(parser)
    parser.add_argument("--no-console", action="store_true", help="return once every statement has processed rows")
    parser.add_argument("--rate", type=rate, help="orders per second")
    parser.add_argument(
        "--scenario",
        type=int,
        choices=SCENARIOS,
        metavar="N",
        help="1 to 6: a way from a database to the kitchen; see headgate help scenarios",
    )
    parser.add_argument("--format", choices=WRITTEN, default="", help="how tables are stored; default: parquet")


def demo_compare(parser: CommandParser) -> None:
    what = "where each scenario gets a folder, which is deleted at the end; default: headgate-compare here"
    parser.add_argument("folder", nargs="?", metavar="FOLDER", help=what)
    parser.add_argument("--scenario", type=int, choices=SCENARIOS, action="append", help="only this one; repeatable")
    parser.add_argument("--transactions", type=count, default=400, metavar="N", help="of the application (400)")
    parser.add_argument("--rate", type=rate, default=4.0, help="scenes per second, of some two transactions each (4)")
    parser.add_argument("--seed", type=int, default=7, metavar="N", help="other changes (7)")
    parser.add_argument("--markdown", action="store_true", help="the table as Markdown")
    parser.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="data on stdout as JSON")


def demo_change(parser: CommandParser) -> None:
    parser.add_argument("kind", metavar="KIND", help="comment, column, filter, window, rename, function or code")
    demo_folder(parser)
    parser.add_argument("--with-readers", action="store_true", help="rename: edit the readers as well")


def demo_folder(parser: CommandParser) -> None:
    what = "the demo's folder; default: the one that you are in, else headgate-demo here, or beside the clone inside it"
    parser.add_argument("folder", nargs="?", metavar="FOLDER", help=what)
    parser.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="data on stdout as JSON")


def help(parser: CommandParser) -> None:
    parser.add_argument("topic", nargs="*", metavar="TOPIC", help="a topic or a command; without it, all are listed")


def completion(parser: CommandParser) -> None:
    words = ("bash", "zsh", "tables", "columns", "products")
    add_choice(parser, "shell", words, metavar="WORD", what="a completion script, or the names that it completes")
    parser.add_argument("table", nargs="?", default="", metavar="TABLE", help="the table whose columns to list")
