"""Which tables of a plan go on getting what a reader that is left behind makes of the old version of a table."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from core.model.actions import Action
from core.model.names import TableName
from core.planning.decisions import DeployWalk, DownstreamOutcome
from core.text.wording import counted

_NAMED = 3
"""Re-created tables that are named for one table below them."""

_ReadersByTable = Mapping[TableName, Sequence[TableName]]


def warn_of_old_inputs(walk: DeployWalk) -> None:
    """Warn of each table that is asked for or begun anew, and that a left-behind reader keeps from what is re-created.

    Linear in the edges above these tables, for each reader that is left behind there.
    """
    stays: dict[TableName, dict[TableName, str]] = {}
    for left in walk.found.left_behind:
        if left.depth == 1:
            stays.setdefault(TableName(left.through), {})[left.table] = left.reads
    decisions = walk.found.by_table
    meant = {table for table, known in decisions.items() if known.moves or table in walk.scope.members}
    readers = _readers_above(walk, meant) if stays else {}
    words: dict[TableName, list[str]] = {}
    for parent, versions in sorted(stays.items()):
        between: dict[TableName, list[TableName]] = {}
        for reader in sorted(versions):
            for table in _below(readers, reader) & meant - {*versions}:
                between.setdefault(table, []).append(reader)
        fresh = _below(readers, parent, lambda child, above: _sees_new(walk, child, above)) if between else set()
        for table, found in between.items():
            by = sorted(({parent} | fresh).intersection(_reads_then(walk, table))) if table in fresh else []
            words.setdefault(table, []).append(_sentence(parent, by, found, versions))
    for table, said in words.items():
        more = len(said) - _NAMED
        rest = [f"gets old rows of {counted(more, 'more table')} in the same way"] if more > 0 else []
        for sentence in (*said[:_NAMED], *rest):
            walk.found.warn(table, sentence)


def _sentence(
    parent: TableName, by: Sequence[TableName], between: Sequence[TableName], versions: Mapping[TableName, str]
) -> str:
    """Describe what is seen of a re-created table; `by` holds what brings the new one, directly or through others."""
    stay = "stays" if len(between) == 1 else "stay"
    old = ", ".join(dict.fromkeys(versions[reader] for reader in between))
    if not by:
        return f"will not see the new {parent}: {', '.join(between)} between them {stay} on {old}"
    new = f"reads the new {parent}" if parent in by else f"sees the new {parent} through {', '.join(by)}"
    return f"{new}, and the old one through {', '.join(between)}, which {stay} on {old}"


def _readers_above(walk: DeployWalk, tables: Iterable[TableName]) -> _ReadersByTable:
    """Return who reads whom after the plan, over everything that the tables stand on."""
    readers: dict[TableName, list[TableName]] = {}
    waiting = sorted(tables)
    known = set(waiting)
    while waiting:
        child = waiting.pop()
        for parent in _reads_then(walk, child):
            readers.setdefault(parent, []).append(child)
            if parent not in known:
                known.add(parent)
                waiting.append(parent)
    return readers


def _reads_then(walk: DeployWalk, table: TableName) -> tuple[TableName, ...]:
    """Return what a table reads after the plan: what is declared where its new text will run."""
    known = walk.found.by_table.get(table)
    begins = known is not None and known.action in (Action.START, Action.REBUILD, Action.RESTART)
    declared = begins and walk.context.declared.tables.get(table) is not None
    bindings = (
        walk.context.bindings.bind(walk.context.revisions.declared(table))
        if declared
        else walk.context.bindings.of(table)
    )
    return tuple(dict.fromkeys(binding.parent for binding in bindings))


def _below(
    readers: _ReadersByTable, start: TableName, follows: Callable[[TableName, TableName], bool] = lambda *_: True
) -> set[TableName]:
    """Return the tables below one, itself not among them, along the edges from a reader to its parent that count."""
    found: set[TableName] = set()
    waiting = [start]
    while waiting:
        parent = waiting.pop()
        new = [child for child in readers.get(parent, ()) if child not in found and follows(child, parent)]
        found.update(new)
        waiting.extend(new)
    return found


def _sees_new(walk: DeployWalk, child: TableName, parent: TableName) -> bool:
    """Return whether a reader then reads what its parent is: a new version only where the plan moves it there."""
    above, known = walk.found.by_table.get(parent), walk.found.by_table.get(child)
    if above is None or above.outcome < DownstreamOutcome.CHAINED:
        return True
    if known is None:
        return False
    static = any(read.parent == parent and not read.streamed for read in walk.context.bindings.of(child))
    return known.moves or (known.action is Action.RESTART and static)
