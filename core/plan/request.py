"""A request as it is typed, and back: words → values that are parsed once, and the command that asks for the same."""

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
    """The operator's strategy for one table: more severe than the default freely, less severe with an approval."""

    table: TableName
    strategy: str
    """A word of `Strategy`."""
    at: str = ""
    """Time, version or partition, where the strategy begins at one."""


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """What was asked for; all tuples sorted, so that the same request has the same bytes."""

    verb: str = "deploy"
    """deploy, delete, or one of BY_NAME."""
    tables: tuple[TableName, ...] = ()
    products: tuple[str, ...] = ()
    layers: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    """Folders of the project, with forward slashes: every table below one."""
    pipelines: tuple[TableName, ...] = ()
    """Sinks, each with every table above it that nobody else needs; only deletes name them."""
    changed_since: str = ""
    """Git reference that `tables` was found with: what differs between its commit and the working tree."""
    gone: tuple[TableName, ...] = ()
    """Tables that were declared at `changed_since` and are not any more."""
    settings: tuple[str, ...] = ()
    """Keys of the environment in headgate.yml that differ since then, `pool.memory`, never with a value."""
    everything: bool = False
    children: str = ""
    """none, product, all, or the accepted products, sorted and separated by commas; empty is product for a deploy and
    none for a delete."""
    exclude: tuple[TableName, ...] = ()
    rebuild: bool = False
    keep_table: bool = False
    """Statements only: nothing is created, altered or swapped; refused where the table would be wrong."""
    hold: bool = False
    """Whether the run waits before its swap until somebody gives the word: headgate release swap RUN."""
    start: str = ""
    """Where a new or rebuilt statement begins to read: earliest (the default), now, a time, or a version."""
    choices: tuple[StrategyChoice, ...] = ()
    """What the operator chose instead of the default, sorted by table."""
    nonce: str = ""
    """Makes the same request at another time another plan, because each is applied once; empty offline."""
    continues: str = ""
    """Id of the failed run that this goes on from: what that run has made is used, or set aside."""
    retain_h: str = ""
    """Of a vacuum, for how many hours files of older versions stay; empty for what each table says."""
    undoes: str = ""
    """Hash of the executed plan whose tables are planned with their texts from before it."""


BY_NAME = ("rollback", "undelete", "retire", "optimize", "vacuum")
"""Verbs that take tables by name and nothing else that says which are meant."""

EARLIEST, NOW = "earliest", "now"
COMMITTED = "committed:"
"""Before a time: that at which a table's log got rows, whatever time they tell themselves."""
CHILDREN = ("none", "product", "all")
"""Words of `--children` that stand alone; anything else is a list of products."""

MOST_RETAINED_H = 100 * 365 * 24

_POSITION = re.compile(r"[0-9]{1,18}\Z")
_PLAIN = re.compile(r"[^\x00-\x1f\x7f]{1,200}\Z")


def parse_tables(text: str) -> tuple[TableName, ...]:
    """Read names that are separated by commas; raises BadName."""
    return tuple(parse_table_name(word) for word in text.split(",") if word.strip())


def parse_layer(text: str) -> str:
    """Read a layer, also by its folder's name: `fact` and `facts`; raises UsageError with the nearest one."""
    word = text.strip().lower()
    if word in LAYER_FOLDERS:
        return str(LAYER_FOLDERS[word])
    if word in tuple(Layer):
        return word
    raise UsageError(f"there is no layer {text!r}", remedy=_near(word, Layer) or f"one of {', '.join(Layer)}")


def parse_children(text: str) -> str:
    """Read none, product, all, or products separated by commas: sorted, each once; raises UsageError."""
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
    """Read where to begin: `earliest`, `now`, a time (UTC where it names no zone), `committed:TIME`, or a version.

    A time comes out as `2026-01-02T03:04:05Z`; raises UsageError.
    """
    word = text.strip().lower()
    if word in (EARLIEST, NOW):
        return word
    if _POSITION.match(word):
        return str(int(word))
    if place := _place(text.strip()):
        return place
    near = _near(word, (EARLIEST, NOW))
    raise UsageError(
        f"{text!r} is not a start position",
        remedy=near
        or "use earliest, now, a time such as 2026-01-02T03:04Z, committed:TIME, or a version as a whole number",
    )


def parse_retention(text: str) -> str:
    """Read how long a vacuum retains files, in whole hours; raises UsageError."""
    if not _POSITION.match(text.strip()) or int(text) > MOST_RETAINED_H:
        raise UsageError(f"{text!r} is not a number of hours", remedy="write whole hours: --retain 168 is a week")
    return str(int(text))


def parse_choice(text: str) -> StrategyChoice:
    """Read `TABLE=STRATEGY` or `TABLE=STRATEGY@AT`; raises UsageError, also for a strategy that there is not."""
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
    return StrategyChoice(parse_table_name(name), strategy, _place(at) or at)


def parse_choices(texts: Iterable[str]) -> tuple[StrategyChoice, ...]:
    """Read choices, one for a table; raises UsageError where two differ."""
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
    """Write the words of the command that asks for a normal request: `plan deploy a --children all`.

    Tables that a git reference was asked for are written by name: the reference means another commit tomorrow.
    """
    if request.undoes:
        return ["plan", "undo", request.undoes[:12], *_children(request), *(["--rebuild"] if request.rebuild else [])]
    words = ["plan", request.verb, *request.tables]
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
    words += ["--rebuild"] if request.rebuild else []
    words += ["--keep-table"] if request.keep_table else []
    words += ["--hold"] if request.hold else []
    words += ["--from", request.start] if request.start else []
    words += ["--retain", request.retain_h] if request.retain_h else []
    for choice in request.choices:
        at = f"@{choice.at}" if choice.at else ""
        words += ["--strategy", f"{choice.table}={typed_strategy(choice.strategy)}{at}"]
    return words


def _children(request: PlanRequest) -> list[str]:
    default = "product" if request.verb == "deploy" else "none"
    return ["--children", request.children] if request.children != default else []


def _near(word: str, known: Iterable[str]) -> str:
    # Only a mistake needs it: the reader of YAML comes with it.
    from core.text.wording import did_you_mean

    return did_you_mean(word, known)


def _place(text: str) -> str:
    """Write a time, of rows or of commits, in UTC; empty where the text is none."""
    committed = text[: len(COMMITTED)].lower() == COMMITTED
    moment = _moment(text[len(COMMITTED) :].strip() if committed else text)
    return f"{COMMITTED if committed else ''}{moment}" if moment else ""


def _moment(text: str) -> str:
    """Write a time in UTC; empty where the text is none. Digits alone are a version or a position, never a date."""
    if text[4:5] != "-":
        return ""
    try:
        found = datetime.fromisoformat(text)
        return found.replace(tzinfo=found.tzinfo or UTC).astimezone(UTC).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError):
        return ""
