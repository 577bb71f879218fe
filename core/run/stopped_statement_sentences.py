"""Sentences about stopped statements: the effects of a stop, and stopped serving versions."""

from collections.abc import Collection, Iterable, Sequence

from core.model.actions import StepKind
from core.model.names import TableName, query_name
from core.model.states import WantedState
from core.observed.versions import Deployment, KnownVersion
from core.run.model import SATISFIED
from core.run.records import RunRow


def stopped_serving(versions: Iterable[KnownVersion], tables: Collection[str]) -> tuple[tuple[TableName, int], ...]:
    """Return the serving versions of `tables` whose desired state is stopped, sorted, without external tables."""
    serving = (one for one in versions if one.table in tables and one.active and not one.deleted and one.version)
    return tuple(sorted((one.table, one.version) for one in serving if one.wanted == WantedState.STOPPED))


def stopped_serving_words(stopped: Sequence[tuple[str, int]]) -> str:
    """Return a sentence that names stopped serving versions and the command to start them; empty if there are none."""
    if not stopped:
        return ""
    named = ", ".join(f"{table} v{version}" for table, version in stopped)
    serves, it = ("serves and is", "it") if len(stopped) == 1 else ("serve and are", "them")
    tables = " ".join(dict.fromkeys(table for table, _ in stopped))
    return f"{named} {serves} stopped: headgate start {tables} starts {it}"


def left_running(
    versions: Iterable[Deployment], replaced: Collection[tuple[TableName, int]]
) -> tuple[tuple[TableName, int], ...]:
    """Return replaced versions that still run, have no scheduled stop, and are read only by replaced versions."""
    every = [one for one in versions if not one.deleted]
    live = [one for one in every if one.active or one.wanted == WantedState.RUNNING]
    read = {(b.parent, b.version) for one in live if (one.table, one.version) not in replaced for b in one.bindings}
    found = (one for one in live if not one.active and one.stops_at is None)
    keys = sorted((one.table, one.version) for one in found)
    return tuple(key for key in keys if key in replaced and key not in read)


def left_running_words(left: Sequence[tuple[TableName, int]]) -> str:
    """Return a sentence that names versions left running and the command that stops them; empty if there are none."""
    if not left:
        return ""
    keep, it = ("keeps", "it") if len(left) == 1 else ("keep", "them")
    names = [query_name(*key) for key in left]
    return f"{', '.join(names)} {keep} running, and no stop is scheduled: headgate stop {' '.join(names)} stops {it}"


def staying_words(
    versions: Sequence[Deployment], tables: Collection[str], replaced: Collection[tuple[TableName, int]]
) -> str:
    """Return a sentence about stopped serving versions and replaced versions left running; empty if there are none."""
    rests = stopped_serving_words(stopped_serving(versions, tables))
    return "; ".join(words for words in (rests, left_running_words(left_running(versions, replaced))) if words)


def stop_words(versions: Iterable[KnownVersion], runs: Iterable[RunRow], names: Collection[str]) -> list[str]:
    """Return sentences on the side effects of a stop: other versions that it stops, and runs that it blocks.

    `names` are names of tables, or of single versions such as `orders@v2`.
    """
    every = [one for one in versions if one.table in names and not one.deleted and one.version]
    words = []
    for table in sorted({one.table for one in every if not one.active and one.wanted == WantedState.RUNNING}):
        running = sorted(one.version for one in every if one.table == table and one.wanted == WantedState.RUNNING)
        words.append(f"{table} is stopped in every running version: {', '.join(f'v{number}' for number in running)}")
    return words + [held for run in runs if (held := _held_up(run, names))]


def _held_up(run: RunRow, names: Collection[str]) -> str:
    needed = (step for step in run.steps if step.do not in (StepKind.SOAK, StepKind.STOP))
    named = ((step, (step.table, query_name(TableName(step.table), step.version))) for step in needed)
    about = [(step, name) for step, both in named for name in both if name in names]
    left = any(step.do == StepKind.SWAP and step.state not in SATISFIED for step in run.steps)
    mine = sorted({name for _, name in about})
    if not mine or not (left or any(step.state not in SATISFIED for step, _ in about)):
        return ""
    retry, cancel = (f"headgate runs {act} {run.id}" for act in ("retry", "cancel"))
    return f"run {run.id} needs {', '.join(mine)}: it will fail; then {retry} starts its versions, or {cancel} ends it"
