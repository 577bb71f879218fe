"""What can be typed: every command with its arguments, one sentence and an example; nothing is carried out here."""

import argparse
import difflib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from core.errors import UsageError

YEAR_S = 365 * 86400.0
"""The longest wait."""
MOST_RATE = 400.0
"""Orders a second; the feeds write five times as many in a burst."""
MOST_LINES = 1_000_000
"""Lines or rows that one command shows."""


class Parser(argparse.ArgumentParser):
    """Raises UsageError where argparse would print and exit, so that `--json` prints errors as JSON."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, remedy=f"{self.prog} --help has an example")


@dataclass(frozen=True, slots=True)
class Verb:
    """One command of the line."""

    name: str
    group: str
    summary: str
    example: str
    """Complete lines, as they would be typed."""
    runs: str
    """`module:function` below `tui.commands`."""
    arguments: Callable[[Parser], None]
    places: bool = True
    """Whether it takes --project and --env."""


def build() -> Parser:
    """Build the parser of the whole line."""
    shared = _shared()
    parser = Parser(
        prog="headgate",
        description="The operations console for streaming SQL on Apache Spark. Alone, it opens the console.",
        epilog=_overview(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[shared],
        usage="headgate [--project DIR] [--env E] [command] …",
    )
    parser.add_argument("--version", "-V", action="store_true", help="print the version")
    parser.set_defaults(verb=None)
    commands = parser.add_subparsers(dest="verb", metavar="command", parser_class=Parser, help=argparse.SUPPRESS)
    for verb in VERBS:
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


def check_verb(argv: list[str]) -> None:
    """Raise UsageError with the nearest command for a word that is none."""
    word = first_word(argv)
    if word is None or word in BY_NAME:
        return
    near = difflib.get_close_matches(word, list(BY_NAME), n=1, cutoff=0.5)
    remedy = f"did you mean `headgate {near[0]}`?" if near else "headgate --help lists the commands"
    raise UsageError(f"{word!r} is not a command", remedy=remedy)


def first_word(argv: list[str]) -> str | None:
    """Give the command of a line, None for the console's."""
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
    for group in dict.fromkeys(verb.group for verb in VERBS):
        lines.append(f"\n  {group}")
        lines += [f"    {verb.name:<12}{verb.summary}" for verb in VERBS if verb.group == group]
    lines.append(
        "\nexample:\n  headgate demo\n  headgate ls --fail-on failed,lag>1k\n  headgate plan fct_orders --json"
    )
    return "\n".join(lines)


def _shared() -> Parser:
    shared = Parser(add_help=False)
    place = shared.add_argument_group("where")
    none = argparse.SUPPRESS
    place.add_argument(
        "--project", metavar="DIR", default=none, help="project folder; else HEADGATE_PROJECT, else upwards"
    )
    place.add_argument("--env", metavar="E", default=none, help="environment; else HEADGATE_ENV, else default_env")
    shared.add_argument("--json", action="store_true", default=none, help="data on stdout as JSON, errors too")
    return shared


def _tables(parser: Parser, *, many: str = "+", what: str = "tables") -> None:
    parser.add_argument("tables", nargs=many, metavar="TABLE", help=what)


def _confirm(parser: Parser) -> None:
    parser.add_argument(
        "--confirm", metavar="TEXT", help="the text that the confirmation asks for, where nobody can type it"
    )


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
    return _number(text, 0, MOST_RATE, "a number of orders a second")


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above zero")
    return int(_number(text, 1, MOST_LINES, "a whole number"))


def _nothing(parser: Parser) -> None:
    return


def _init(parser: Parser) -> None:
    parser.add_argument(
        "words", nargs="*", metavar="NAME | table NAME", help="a new folder, or a table of this project"
    )
    parser.add_argument("--product", help="data product of the new table")
    parser.add_argument("--layer", help="sources, intermediates, dimensions, facts or views")
    parser.add_argument("--reads", metavar="TABLE", help="the table that the new statement streams")


def _up(parser: Parser) -> None:
    parser.add_argument("--foreground", action="store_true", help="run the agent here, as a service does")


def _down(parser: Parser) -> None:
    parser.add_argument("--keep-pool", action="store_true", help="end the agent alone; statements keep running")
    parser.add_argument("--purge", action="store_true", help="afterwards list, then delete what Headgate made here")
    _confirm(parser)


def _ls(parser: Parser) -> None:
    _tables(parser, many="*", what="only these")
    parser.add_argument("--product", action="append", default=[], help="only this product; may be repeated")
    parser.add_argument("--state", metavar="S,S", help="only these states")
    parser.add_argument("--versions", action="store_true", help="every version, not only the one that serves")
    parser.add_argument("--fail-on", metavar="C,C", help="exit 1 when one matches: failed, growing, lag>1k")


def _show(parser: Parser) -> None:
    parser.add_argument("table", metavar="TABLE")
    parser.add_argument("--sql", action="store_true", help="the deployed SQL alone")
    parser.add_argument("--fail-on", metavar="C,C", help="exit 1 when one matches: failed, growing, lag>1k")


def _peek(parser: Parser) -> None:
    parser.add_argument("table", metavar="TABLE")
    parser.add_argument("-n", "--limit", type=_count, default=20, help="rows (20)")
    parser.add_argument(
        "--version", type=_count, dest="table_version", metavar="N", help="another version than the serving"
    )


def _lineage(parser: Parser) -> None:
    parser.add_argument("column", metavar="TABLE[.COLUMN]", help="a column, or all columns of a table")
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--up", action="store_true", help="what it stands on, down to what lands (the default)")
    way.add_argument("--down", action="store_true", help="what stands on it")
    parser.add_argument("--svg", metavar="FILE", help="draw it")
    parser.add_argument("--html", metavar="FILE", help="draw it on a page of its own, with what the mouse points at")


def _scope(parser: Parser) -> None:
    parser.add_argument("tables", nargs="*", metavar="[deploy|delete] TABLE", help="a verb, then tables")
    parser.add_argument("--product", action="append", default=[], help="every table of a product; may be repeated")
    parser.add_argument("--all", action="store_true", help="every table of the project")
    parser.add_argument(
        "--children", choices=("none", "product", "all"), default="product", help="which readers go along"
    )
    parser.add_argument("--exclude", metavar="T,…", default="", help="tables to leave alone")
    parser.add_argument("--rebuild", action="store_true", help="rebuild what is asked for, changed or not")


def _plan(parser: Parser) -> None:
    _scope(parser)
    parser.add_argument("--observed", metavar="FILE", help="what is deployed, from a YAML or JSON file: works offline")
    parser.add_argument("--offline", action="store_true", help="compute only; do not hand it to the agent")
    parser.add_argument("--exit-code", action="store_true", help="0 no change, 10 changes, 11 with loss or approval")


def _sql(parser: Parser) -> None:
    parser.add_argument("file", metavar="FILE|-", help="a file of SQL, REV:path for one in git, or - for stdin")
    parser.add_argument(
        "--reads", choices=("stream", "batch"), help="what a table without STREAM is read as (what the project says)"
    )
    _spark(parser)


def _diff(parser: Parser) -> None:
    side = "a file of SQL, REV:path for one in git, or - for stdin"
    parser.add_argument("old", metavar="OLD", help=f"{side}; its DDL and yml are taken from beside it")
    parser.add_argument("new", metavar="NEW", help="the same")
    _spark(parser)


def _spark(parser: Parser) -> None:
    parser.add_argument("--spark", action="store_true", help="ask Spark as well, through the project's agent")


def _review(parser: Parser) -> None:
    parser.add_argument(
        "hash", nargs="?", metavar="HASH", help="start of a plan's hash; without it, all plans are listed"
    )


def _apply(parser: Parser) -> None:
    parser.add_argument("hash", metavar="HASH", help="start of a submitted plan's hash")
    parser.add_argument("--detach", action="store_true", help="print the run's id and return")
    _confirm(parser)


def _runs(parser: Parser) -> None:
    parser.add_argument("words", nargs="*", metavar="[ID] | pause|resume|cancel|retry|skip ID", help="a run, or an act")
    parser.add_argument("--step", type=_count, default=0, help="the step to skip")
    parser.add_argument("-f", "--follow", action="store_true", help="wait until the run ends")
    _confirm(parser)


def _act(parser: Parser) -> None:
    _tables(parser)
    _confirm(parser)
    parser.add_argument("--yes", action="store_true", help="confirm, where `yes` is all that is asked for")


def _delete(parser: Parser) -> None:
    _tables(parser)
    parser.add_argument("--children", choices=("none", "product", "all"), default="none", help="delete readers as well")
    parser.add_argument("--detach", action="store_true", help="print the run's id and return")
    _confirm(parser)


def _wait(parser: Parser) -> None:
    _tables(parser, many="*", what="tables to wait for (all)")
    parser.add_argument("--lag", metavar="N", help="until no more than this many rows wait, measured from now on")
    parser.add_argument("--state", help="until this state (running)")
    parser.add_argument("--timeout", type=_seconds, default=300.0, metavar="S", help="seconds (300)")


def _events(parser: Parser) -> None:
    _tables(parser, many="?", what="only this table")
    parser.add_argument("-n", "--limit", type=_count, default=50, help="how many (50)")
    parser.add_argument("-f", "--follow", action="store_true", help="go on as they happen")


def _logs(parser: Parser) -> None:
    parser.add_argument("of", nargs="?", choices=("agent", "pool", "console"), default="agent")
    parser.add_argument("-n", "--limit", type=_count, default=50, help="how many lines (50)")
    parser.add_argument("-f", "--follow", action="store_true", help="go on as they are written")


def _audit(parser: Parser) -> None:
    parser.add_argument("-n", "--limit", type=_count, default=50, help="how many (50)")


def _doctor(parser: Parser) -> None:
    parser.add_argument("--paths", action="store_true", help="print where everything lies")


def _demo(parser: Parser) -> None:
    parser.add_argument("words", nargs="*", metavar="[FOLDER] | settle | change KIND", help="see the examples")
    parser.add_argument("--no-console", action="store_true", help="return once every statement has processed rows")
    parser.add_argument("--with-readers", action="store_true", help="change rename: edit the readers as well")
    parser.add_argument("--rate", type=_rate, help="orders a second")
    parser.add_argument("--folder", metavar="DIR", help="the demo's folder for settle and change (./headgate-demo)")
    parser.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="data on stdout as JSON")


def _help(parser: Parser) -> None:
    parser.add_argument("topic", nargs="?", metavar="TOPIC")


def _completion(parser: Parser) -> None:
    choices = ("bash", "zsh", "tables", "columns")
    parser.add_argument("shell", choices=choices, help="a script for the shell, or the names that it offers")
    parser.add_argument("table", nargs="?", default="", metavar="TABLE", help="whose columns")


LOOK, CHANGE, ACT, HOUSE = "look", "change", "act now", "environment"

VERBS = (
    Verb("ls", LOOK, "List statements: state, version, lag, trend.",
         "headgate ls --product kitchen\nheadgate ls --json --fail-on failed,lag>1k", "looking:ls", _ls),
    Verb("show", LOOK, "Show one statement: figures, parents, readers, versions.", "headgate show fct_orders",
         "looking:show", _show),
    Verb("peek", LOOK, "Print some rows of a table.", "headgate peek fct_orders -n 5", "looking:peek", _peek),
    Verb("lag", LOOK, "Show how far behind each input every statement is.", "headgate lag fct_orders",
         "looking:lag", _ls),
    Verb("lineage", LOOK, "Follow a column to what it stands on, or to what it feeds.",
         "headgate lineage fct_revenue.revenue_cents\nheadgate lineage orders.status --down --json\n"
         "headgate lineage fct_revenue --svg lineage.svg", "lineage:lineage", _lineage),
    Verb("wait", LOOK, "Wait until statements are in a state or have caught up.",
         "headgate wait fct_orders --lag 0 --timeout 120\nheadgate wait --state running", "waiting:wait", _wait),
    Verb("events", LOOK, "List state changes and exceptions.", "headgate events fct_orders -n 20",
         "chronicle:events", _events),
    Verb("logs", LOOK, "Print what agent, pool or console wrote.", "headgate logs pool -n 100",
         "chronicle:logs", _logs),
    Verb("audit", LOOK, "List who did what, when, to what.", "headgate audit -n 20", "chronicle:audit", _audit),
    Verb("plan", CHANGE, "Say what a deploy or a delete would do, and hand it to the agent.",
         "headgate plan fct_orders --children all\nheadgate plan delete crm_visits\n"
         "headgate plan --product sales --observed observed.yml --json --exit-code", "planning:plan", _plan),
    Verb("sql", CHANGE, "Say what a statement reads, keeps as state and writes.",
         "headgate sql dml.fct_orders.sql --spark\nheadgate sql - --json\nheadgate sql old.sql --reads stream",
         "sql:sql", _sql),
    Verb("diff", CHANGE, "Say what kind of change an edit is, and what a deploy would do with it.",
         "headgate diff old.sql new.sql\nheadgate diff HEAD:./dml.orders.sql dml.orders.sql --json", "sql:diff", _diff),
    Verb("review", CHANGE, "List plans, or show one in full.", "headgate review\nheadgate review 7f3a",
         "planning:review", _review),
    Verb("apply", CHANGE, "Execute a plan and wait for it.", "headgate apply 7f3a --confirm 'dev 7f3a'",
         "executing:apply", _apply),
    Verb("runs", CHANGE, "List runs, show one, or pause, resume, cancel, retry, skip.",
         "headgate runs\nheadgate runs 7f3a-01c2f --follow\nheadgate runs retry 7f3a-01c2f", "executing:runs", _runs),
    Verb("delete", CHANGE, "Delete tables that nothing reads: plan, review and apply in one.",
         "headgate delete crm_visits", "executing:delete", _delete),
    Verb("stop", ACT, "Stop statements now; their checkpoints stay.", "headgate stop fct_orders --yes",
         "acting:stop", _act),
    Verb("start", ACT, "Start stopped statements on their checkpoints.", "headgate start fct_orders --yes",
         "acting:start", _act),
    Verb("restart", ACT, "Stop and start statements on their checkpoints.", "headgate restart fct_orders --yes",
         "acting:restart", _act),
    Verb("up", HOUSE, "Start the agent and its pool.", "headgate up --env dev", "environment:up", _up),
    Verb("down", HOUSE, "Stop agent, pool and generator; nothing keeps running.",
         "headgate down\nheadgate down --purge --confirm pizzeria", "environment:down", _down),
    Verb("doctor", HOUSE, "Check Java, Python, home, disk, terminal, agent, pool and ledger.", "headgate doctor --json",
         "doctor:doctor", _doctor),
    Verb("demo", HOUSE, "Operate a sample company: the pizzeria.",
         "headgate demo\nheadgate demo ./my-demo --no-console\nheadgate demo settle\nheadgate demo change filter",
         "demo:demo", _demo, places=False),
    Verb("init", HOUSE, "Write a new project, or a new table, that runs.",
         "headgate init pizzeria\nheadgate init table fct_orders --product sales --layer facts --reads src_orders",
         "making:init", _init),
    Verb("help", HOUSE, "Print a topic of the manual.", "headgate help plans", "manual:manual", _help, places=False),
    Verb("completion", HOUSE, "Print the completion of bash or zsh, with table names.",
         "source <(headgate completion bash)", "manual:completion", _completion),
)  # fmt: skip
"""Every command, in the order of `headgate --help`."""

BY_NAME = {verb.name: verb for verb in VERBS}
