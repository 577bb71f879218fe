"""The request for a plan, parsed from the command line and written back as an equivalent command."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from core.model.actions import Strategy, typed_strategy
from core.model.errors import UsageError
from core.model.names import TableName, parse_table_name
from core.project.model import LAYER_FOLDERS, Layer


@dataclass(frozen=True, slots=True)
class StrategyChoice:
    """The operator's strategy for a table; if it is less severe than the default, the plan needs an approval."""

    table: TableName
    strategy: str
    """A value of `Strategy`."""
    at: str = ""
    """Start position: a time, a version or a partition; empty if none is given."""


@dataclass(frozen=True, slots=True)
class PromotedRevision:
    """A revision that a promotion deploys, as it serves in the source environment."""

    table: TableName
    revision: str
    """Hash of the revision's SQL and YAML as written, with variables instead of their values."""
    plan: str = ""
    """Hash of the plan that deployed the revision in the source environment; empty if unknown."""


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """A request for a plan; in normal form, all tuples are sorted, so that equivalent requests are equal."""

    verb: str = "deploy"
    """`deploy`, `delete`, or a verb in BY_NAME."""
    tables: tuple[TableName, ...] = ()
    products: tuple[str, ...] = ()
    layers: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    """Project folders, with forward slashes; a folder stands for every table below it."""
    pipelines: tuple[TableName, ...] = ()
    """Sinks to delete, each with all upstream tables that no other table needs."""
    changed_since: str = ""
    """Git reference; `tables` are then the tables that differ between its commit and the working tree."""
    gone: tuple[TableName, ...] = ()
    """Tables that were declared at `changed_since` and are no longer declared."""
    settings: tuple[str, ...] = ()
    """Keys in headgate.yml that have changed since `changed_since`, without values, such as `pool.memory`."""
    everything: bool = False
    children: str = ""
    """`none`, `product`, `all`, or a sorted, comma-separated list of accepted products.

    Empty means `product` for a deploy, and `none` for a delete.
    """
    exclude: tuple[TableName, ...] = ()
    rebuild: bool = False
    keep_table: bool = False
    """True to refuse any plan that would have to create, alter or swap tables."""
    hold: bool = False
    """True if the run waits before its swap until an operator enters `headgate release swap RUN`."""
    start: str = ""
    """Start position of new and rebuilt statements: `earliest` (the default), `now`, a time, or a version.

    `since:TIME` is a preference instead: it applies to every statement that the plan starts for the first time and that
    can start there, requested or not, and is never a reason to refuse the plan.
    """
    choices: tuple[StrategyChoice, ...] = ()
    """Strategies chosen by the operator, sorted by table."""
    nonce: str = ""
    """Distinguishes plans of equal requests, because each plan can be applied only once; empty offline."""
    continues: str = ""
    """Id of the failed run to continue; the plan reuses the run's orphans or moves them to the trash."""
    retain_h: str = ""
    """Hours for which a vacuum retains files of older versions; empty to use each table's own setting."""
    undoes: str = ""
    """Hash of the executed plan to undo, by deploying the SQL and YAML that it replaced."""
    promoted_from: str = ""
    """Environment whose deployed revisions are promoted; empty unless the plan is a promotion."""
    promotes: tuple[PromotedRevision, ...] = ()
    """The promoted revisions, sorted by table; the plan deploys no other revision."""
    with_parents: bool = False
    """True if `promotes` also contains the parents whose revisions differ between the two environments."""
    drains: str = ""
    """Pool from which the plan moves all statements; applying the plan cordons it. Empty unless the plan is a drain."""
    drains_to: str = ""
    """Pool to which a drain moves them, as typed; empty if Headgate has chosen the pools."""
    lost: bool = False
    """True if whoever applies the drain states that nothing runs in its pool any more, which cannot be asked."""


BY_NAME = ("rollback", "undelete", "retire", "optimize", "vacuum")
"""Verbs that accept tables only by name."""

EARLIEST, NOW = "earliest", "now"
COMMITTED = "committed:"
"""Prefix that distinguishes a commit time from an event time."""
SINCE = "since:"
"""Prefix of a time from which new statements read what has arrived, as far as they can start there."""
CHILDREN = ("none", "product", "all")
"""Values of `--children` that cannot be combined; any other value is a list of products."""

MOST_RETAINED_H = 100 * 365 * 24

_POSITION = re.compile(r"[0-9]{1,18}\Z")
_PLAIN = re.compile(r"[^\x00-\x1f\x7f]{1,200}\Z")


def parse_tables(text: str) -> tuple[TableName, ...]:
    """Parse comma-separated table names; raises BadName for an invalid name."""
    return tuple(parse_table_name(word) for word in text.split(",") if word.strip())


def parse_layer(text: str) -> str:
    """Parse a layer or the name of its folder, such as `fact` or `facts`; raises UsageError for any other text."""
    word = text.strip().lower()
    if word in LAYER_FOLDERS:
        return str(LAYER_FOLDERS[word])
    if word in tuple(Layer):
        return word
    raise UsageError(f"there is no layer {text!r}", remedy=_near(word, Layer) or f"one of {', '.join(Layer)}")


def parse_children(text: str) -> str:
    """Parse `none`, `product`, `all`, or comma-separated products; products are returned sorted and unique.

    Raises UsageError for empty text, or if `none`, `product` or `all` is combined with another value.
    """
    words = sorted({word.strip() for word in text.split(",") if word.strip()})
    if not words:
        raise UsageError("--children is empty", remedy=f"one of {', '.join(CHILDREN)}, or products: --children p1,p2")
    alone = [word for word in words if word in CHILDREN]
    if alone and len(words) > 1:
        raise UsageError(
            f"--children {alone[0]} cannot be combined with other values",
            remedy="give that word alone, or only product names",
        )
    return ",".join(words)


def parse_start(text: str) -> str:
    """Parse a start position: `earliest`, `now`, a time (UTC by default), `committed:TIME`, `since:TIME`, or a version.

    A time is returned in the form `2026-01-02T03:04:05Z`. Raises UsageError for any other text.
    """
    word = text.strip().lower()
    if word in (EARLIEST, NOW):
        return word
    if _POSITION.match(word):
        return str(int(word))
    if position := _position(text.strip(), COMMITTED, SINCE):
        return position
    near = _near(word, (EARLIEST, NOW))
    raise UsageError(
        f"{text!r} is not a start position",
        remedy=near
        or "use earliest, now, a time such as 2026-01-02T03:04Z, committed:TIME, since:TIME, or a version as a whole "
        "number",
    )


def parse_retention(text: str) -> str:
    """Parse a vacuum's retention in whole hours; raises UsageError if it is not a valid number."""
    if not _POSITION.match(text.strip()) or int(text) > MOST_RETAINED_H:
        raise UsageError(f"{text!r} is not a number of hours", remedy="write whole hours: --retain 168 is a week")
    return str(int(text))


def parse_choice(text: str) -> StrategyChoice:
    """Parse `TABLE=STRATEGY` or `TABLE=STRATEGY@POSITION`.

    Raises UsageError for any other form, and for an unknown strategy.
    """
    name, equals, rest = text.partition("=")
    word, mark, at = (part.strip() for part in rest.partition("@"))
    if not equals or not word or (mark and not at):
        raise UsageError(
            f"{text!r} is not a valid --strategy",
            remedy="write TABLE=STRATEGY, or TABLE=STRATEGY@POSITION, for example orders=seam",
        )
    strategy = word.lower().replace("-", "_")
    words = tuple(map(typed_strategy, Strategy))
    if strategy not in tuple(Strategy):
        raise UsageError(
            f"there is no strategy {word!r}",
            remedy=_near(word.lower(), words) or f"one of {', '.join(words)}",
        )
    if not _PLAIN.match(at or "-"):
        raise UsageError(f"{text!r} is not a valid --strategy", remedy="write a time, a version or a partition after @")
    return StrategyChoice(parse_table_name(name), strategy, _position(at, COMMITTED) or at)


def parse_choices(texts: Iterable[str]) -> tuple[StrategyChoice, ...]:
    """Parse `--strategy` options, at most one per table, and return them sorted by table.

    Raises UsageError if two options choose different strategies for a table.
    """
    found: dict[TableName, StrategyChoice] = {}
    for choice in map(parse_choice, texts):
        other = found.setdefault(choice.table, choice)
        if other != choice:
            chosen = [typed_strategy(each.strategy) for each in (other, choice)]
            raise UsageError(
                f"two strategies are chosen for {choice.table}: {' and '.join(chosen)}",
                remedy="choose one",
            )
    return tuple(found[table] for table in sorted(found))


def command_words(request: PlanRequest) -> list[str]:
    """Return the command for a request in normal form as words, for example `plan deploy a --children all`.

    A promotion is `promote a --from dev`; the environment that it is promoted into is an option of every command.

    Tables that were found through a Git reference are given by name, because the reference may later point to another
    commit.
    """
    if request.undoes:
        return ["plan", "undo", request.undoes[:12], *_children(request), *(["--rebuild"] if request.rebuild else [])]
    if request.drains:
        to = ["--to", request.drains_to] if request.drains_to else []
        return ["pool", "drain", request.drains, *to, *(["--lost"] if request.lost else [])]
    words = ["promote"] if request.promoted_from else ["plan", request.verb]
    words += request.tables
    for option, values in (
        ("--product", request.products),
        ("--layer", request.layers),
        ("--dir", request.folders),
        ("--pipeline", request.pipelines),
    ):
        for value in values:
            words += [option, value]
    if request.everything:
        words.append("--all")
    words += _children(request)
    if request.exclude:
        words += ["--exclude", ",".join(request.exclude)]
    words += ["--with-parents"] if request.with_parents else []
    words += ["--rebuild"] if request.rebuild else []
    words += ["--keep-table"] if request.keep_table else []
    words += ["--hold"] if request.hold else []
    words += ["--from", request.promoted_from or request.start] if request.promoted_from or request.start else []
    words += ["--retain", request.retain_h] if request.retain_h else []
    for choice in request.choices:
        at = f"@{choice.at}" if choice.at else ""
        words += ["--strategy", f"{choice.table}={typed_strategy(choice.strategy)}{at}"]
    return words


def request_line(request: PlanRequest) -> str:
    """Return the command for a request in normal form as it is shown: without the word `plan`."""
    words = command_words(request)
    return " ".join(words if request.promoted_from or request.drains else words[1:])


def _children(request: PlanRequest) -> list[str]:
    default = "product" if request.verb == "deploy" else "none"
    return ["--children", request.children] if request.children != default else []


def _near(word: str, known: Iterable[str]) -> str:
    # Imported only after a mistake, because this module loads the YAML reader.
    from core.text.wording import did_you_mean

    return did_you_mean(word, known)


def _position(text: str, *prefixes: str) -> str:
    prefix = next((each for each in prefixes if text.lower().startswith(each)), "")
    moment = _moment(text[len(prefix) :].strip())
    return f"{prefix}{moment}" if moment else ""


def _moment(text: str) -> str:
    """Return a time in UTC; empty if the string is not a time. A number is a version, never a date."""
    if text[4:5] != "-":
        return ""
    try:
        found = datetime.fromisoformat(text)
        return found.replace(tzinfo=found.tzinfo or UTC).astimezone(UTC).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError):
        return ""
