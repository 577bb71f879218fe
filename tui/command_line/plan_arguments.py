"""Declares the arguments of commands that change what is deployed: plans, their review, execution, and runs."""

import argparse
from typing import Any

from core.model.actions import strategy_lines
from tui.command_line.arguments import (
    SELECTORS,
    CommandParser,
    confirm,
    count,
    seconds,
)


def _scope(parser: CommandParser, *, children: str, pipeline: bool = True) -> None:
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=f"tables by name; {SELECTORS}")
    many = (
        ("--list", "FILE", "tables or selectors named in a file, one per line; # starts a comment; - is stdin"),
        ("--product", "P", "every table of a product"),
        ("--layer", "L", "every table of a layer: source, intermediate, dimension, fact or view"),
        ("--dir", "DIR", "every table in or below a folder of the project"),
        ("--pipeline", "SINK", "a sink with every upstream table that nothing else needs"),
        ("--exclude", "T,…", "tables to leave out"),
    )
    for option, metavar, what in many:
        told = f"{what}; may be repeated" if pipeline or option != "--pipeline" else argparse.SUPPRESS
        parser.add_argument(option, action="append", default=[], metavar=metavar, help=told)
    parser.add_argument("--all", action="store_true", help="every table of the project")
    parser.add_argument(
        "--children",
        metavar="WHICH",
        help=f"which readers to include: none, product, all, or P1,P2 for these products as well ({children})",
    )


def plan(parser: CommandParser) -> None:
    _scope(parser, children="product", pipeline=False)
    _only_deploys(parser)
    _planned(parser)


def plan_delete(parser: CommandParser) -> None:
    _scope(parser, children="none")
    _only_deploys(parser, told=False)
    _planned(parser)


def plan_undo(parser: CommandParser) -> None:
    parser.add_argument("undone", metavar="PLAN|RUN", help="start of an executed plan's hash, or of its run's id")
    parser.add_argument("--children", metavar="WHICH", help="which readers to include (default: as in that plan)")
    parser.add_argument("--rebuild", action="store_true", help="rebuild what would restart, so that no row stays")
    parser.set_defaults(observed=None)
    _handed_over(parser)


def promote(parser: CommandParser) -> None:
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=f"tables by name; {SELECTORS}")
    parser.add_argument("--from", dest="source", metavar="E", required=True, help="environment in which they run")
    parser.add_argument("--to", dest="target", action=_Target, metavar="E", help="the same as --env")
    parser.add_argument(
        "--product", action="append", default=[], metavar="P", help="every table of a product; may be repeated"
    )
    parser.add_argument("--all", action="store_true", help="every table that is deployed there")
    parser.add_argument(
        "--with-parents", action="store_true", help="and the parents whose revisions differ between both environments"
    )
    parser.add_argument("--exclude", action="append", default=[], metavar="T,…", help="tables to leave out")
    told = "which readers to include: none, product, all, or P1,P2 for these products as well (product)"
    parser.add_argument("--children", metavar="WHICH", help=told)
    parser.add_argument("--rebuild", action="store_true", help="rebuild the promoted tables, changed or not")
    parser.add_argument("--hold", action="store_true", help="let the run wait before its swap")
    parser.add_argument(
        "--strategy",
        action="append",
        default=[],
        metavar="T=WORD[@AT]",
        help="how to deploy one table; may be repeated",
    )
    parser.set_defaults(observed=None)
    _handed_over(parser)


def pool_drain(parser: CommandParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the pool to empty")
    parser.add_argument("--to", metavar="NAME", help="where its statements go (where most room is left)")
    parser.add_argument("--lost", action="store_true", help="state that nothing runs there, if nobody can be asked")
    parser.set_defaults(observed=None)
    _handed_over(parser)


class _Target(argparse.Action):
    """Stores the environment of `--to` as `target`, and as `env`, which selects it."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        namespace.target = namespace.env = values


def plan_rollback(parser: CommandParser) -> None:
    _released(parser)
    _planned(parser)


def plan_undelete(parser: CommandParser) -> None:
    _deleted(parser)
    _planned(parser)


def _released(parser: CommandParser) -> None:
    told = "a table, which selects its whole release, or the start of a run's id"
    parser.add_argument("tables", nargs="+", metavar="TABLE|RUN", help=told)


def plan_retire(parser: CommandParser) -> None:
    told = "a table whose replaced versions to delete, or the start of a run's id for all tables of that run"
    parser.add_argument("tables", nargs="+", metavar="TABLE|RUN", help=told)
    _planned(parser)


def plan_optimize(parser: CommandParser) -> None:
    _optimized(parser)
    _planned(parser)


def plan_vacuum(parser: CommandParser) -> None:
    _vacuumed(parser)
    _planned(parser)


def _optimized(parser: CommandParser) -> None:
    parser.add_argument("tables", nargs="+", metavar="TABLE", help="Delta tables; the serving version of each")


def _vacuumed(parser: CommandParser) -> None:
    _optimized(parser)
    told = "keep the files that versions of the last HOURS use; default: as set for each table, or 168"
    parser.add_argument("--retain", metavar="HOURS", default="", help=told)


def _deleted(parser: CommandParser) -> None:
    parser.add_argument(
        "tables", nargs="+", metavar="TABLE", help="deleted tables; deleted tables that they read are included"
    )


def plan_diff(parser: CommandParser) -> None:
    parser.add_argument("first", metavar="A", help="start of a plan's hash, or a plan file")
    parser.add_argument("second", metavar="B", help="the plan to compare it with, given the same way")


def _only_deploys(parser: CommandParser, *, told: bool = True) -> None:
    """Add the options that determine how tables are deployed.

    If `told` is false, they are hidden: the command accepts them only to explain why they do not apply.
    """
    options: tuple[tuple[str, str, dict[str, Any]], ...] = (
        ("--changed-since", "every table that differs from a git commit, uncommitted edits included",
         {"metavar": "REF"}),
        ("--rebuild", "rebuild the requested tables, changed or not", {"action": "store_true"}),
        ("--keep-table", "change only statements: no table is created, altered or swapped", {"action": "store_true"}),
        ("--hold", "let the run wait before its swap: headgate release swap RUN", {"action": "store_true"}),
        ("--from", "where to begin reading: earliest, now, a time (UTC), a version (Delta), or since:TIME",
         {"dest": "start", "metavar": "WHERE"}),
        ("--strategy", "how to deploy one table, instead of the default strategy; may be repeated",
         {"action": "append", "default": [], "metavar": "T=WORD[@AT]"}),
    )  # fmt: skip
    for option, what, settings in options:
        parser.add_argument(option, help=what if told else argparse.SUPPRESS, **settings)
    if told:
        parser.add_argument_group("strategies (T=WORD or T=WORD@AT)", "\n".join(strategy_lines(76)))


def _planned(parser: CommandParser) -> None:
    parser.add_argument(
        "--observed", metavar="FILE", help="read what is deployed from a YAML or JSON file, for use offline"
    )
    _handed_over(parser)


def _handed_over(parser: CommandParser) -> None:
    parser.add_argument("--offline", action="store_true", help="only compute the plan; do not submit it to the agent")
    parser.add_argument("--save", metavar="FILE", help="write the plan with its texts, for review, approve and apply")
    _markdown(parser)
    parser.add_argument(
        "--exit-code",
        action="store_true",
        help="exit 0 without changes, 10 with changes, 11 with data loss or approval",
    )


def review(parser: CommandParser) -> None:
    parser.add_argument(
        "plan", nargs="?", metavar="ID|FILE", help="start of a plan's hash, or a plan file; default: list all plans"
    )
    _markdown(parser)


def _markdown(parser: CommandParser) -> None:
    parser.add_argument("--markdown", action="store_true", help="for a change ticket or a pull request")


def approve(parser: CommandParser) -> None:
    parser.add_argument("plan", metavar="ID|FILE", help="start of a submitted plan's hash, or its file")
    confirm(parser)


def apply(parser: CommandParser) -> None:
    parser.add_argument("plan", metavar="ID|FILE", help="start of a submitted plan's hash, or a plan file")
    _executed(parser)


def _executed(parser: CommandParser) -> None:
    parser.add_argument("--detach", action="store_true", help="print the run's id and return")
    confirm(parser)


def runs(parser: CommandParser) -> None:
    parser.add_argument("run", nargs="?", metavar="ID", help="start of a run's id; without it, all are listed")
    _follow(parser)


def run_act(parser: CommandParser) -> None:
    parser.add_argument("run", metavar="ID", help="start of a run's id")


def run_continued(parser: CommandParser) -> None:
    run_act(parser)
    _follow(parser)


def run_confirmed(parser: CommandParser) -> None:
    run_act(parser)
    confirm(parser)


def run_retry(parser: CommandParser) -> None:
    run_continued(parser)
    confirm(parser)


def run_skip(parser: CommandParser) -> None:
    run_confirmed(parser)
    parser.add_argument("--step", type=count, required=True, metavar="N", help="the step to skip, by its number")


def release(parser: CommandParser) -> None:
    parser.add_argument("run", metavar="RUN", help="start of a run's id; headgate release list shows them")


def release_shown(parser: CommandParser) -> None:
    release(parser)
    parser.add_argument("--steps", action="store_true", help="also list each step of its run; --json always does")


def release_diff(parser: CommandParser) -> None:
    told = "start of a run's id; in an overlay, a table to show, or nothing"
    code = "the exit code is 1 if a result is unexpected or a table could not be compared"
    parser.add_argument("run", nargs="?", metavar="RUN", help=f"{told}; {code}")
    parser.add_argument("table", nargs="?", metavar="TABLE", help="only the run's results for this table")
    parser.add_argument("--last", action="store_true", help="show the stored comparison with the base again")
    _markdown(parser)
    parser.add_argument(
        "--timeout",
        type=seconds,
        default=None,
        metavar="S",
        help="wait so long for positions read by both (300)",
    )


def release_executed(parser: CommandParser) -> None:
    release(parser)
    _executed(parser)


def release_close(parser: CommandParser) -> None:
    release(parser)
    parser.add_argument("reader", metavar="READER", help="the reader, as named by headgate release show")


def _follow(parser: CommandParser) -> None:
    parser.add_argument("-f", "--follow", action="store_true", help="wait until the run ends")


def delete(parser: CommandParser) -> None:
    _scope(parser, children="none")
    _executed(parser)


def rollback(parser: CommandParser) -> None:
    _released(parser)
    _executed(parser)


def optimize(parser: CommandParser) -> None:
    _optimized(parser)
    _executed(parser)


def vacuum(parser: CommandParser) -> None:
    _vacuumed(parser)
    _executed(parser)


def undelete(parser: CommandParser) -> None:
    _deleted(parser)
    _executed(parser)
