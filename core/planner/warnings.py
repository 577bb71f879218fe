"""Warnings about each table of a deploy: states, seams, old inputs, multiplied rows, and readers that would break."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from core.changes.kinds import ChangeKind
from core.lineage.column_usage import column_reference_lines
from core.lineage.table_graph import reach
from core.model.actions import FORKS, Action, Strategy
from core.model.names import TableName, physical_name
from core.model.states import State, WantedState
from core.model.table_formats import table_format
from core.plan.descriptions import evidence_words
from core.planner.column_widening import end_at_change, refuse_unfit_reader
from core.planner.decisions import DeployWalk, DownstreamOutcome, TableDecision
from core.planner.requested_tables import is_at_rest, stale_bindings, would_end
from core.planner.rewrite_in_place import rows_that_stay
from core.project.model import Table
from core.sql.statement import describe_log_start
from core.text.wording import counted

_SHOWN = frozenset({State.FAILED, State.DEGRADED, State.UNKNOWN, State.COMPLETED})


def add_warnings(walk: DeployWalk, table: TableName) -> None:
    """Warn about states and seams of a table, and refuse what would break the text of a reader."""
    found, seen = walk.found, walk.context.observed.deployment(table)
    decision = found.by_table[table]
    if decision.change.confirmed is False:
        found.warn(table, evidence_words(decision.change.evidence[0]))
    if decision.change.kind is ChangeKind.PINNED_CONFIGURATION and decision.action is not Action.REBUILD:
        found.warn(table, f"{evidence_words(decision.change.evidence[0])}; a rebuild would apply it")
    if decision.action in (Action.KEEP, Action.RECORD) or walk.context.observed.is_external(table):
        if is_at_rest(walk, table):
            found.warn(table, "was stopped on purpose and stays stopped; name it to start it")
        return
    if decision.action in (Action.START, Action.REBUILD):
        _warn_of_rows_before(walk, table, decision)
        _warn_of_upserted_parents(walk, table)
    _warn_of_readers_of_deleted_versions(walk, table)
    if decision.action is Action.START:
        return
    if decision.action is Action.RESTART and decision.change.kind.definition.alters_table and seen.rows_before:
        words = f"{table} cannot be altered in place: its pointer serves rows from before v{seen.version} as well"
        found.refuse(table, words, f"rebuild it: headgate plan {table} --rebuild")
    if seen.state in _SHOWN:
        found.warn(table, f"is {seen.state}; {_what_becomes(decision, seen.state)}; nothing of it is destroyed")
    elif seen.state == State.STOPPED and seen.wanted == WantedState.STOPPED:
        found.warn(table, "was stopped on purpose; this plan starts it")
    if decision.action is Action.RESUME:
        for binding in stale_bindings(walk.context.observed, walk.context.bindings, table):
            found.warn(table, f"keeps reading the old {physical_name(binding.parent, binding.version)}")
    if decision.action is Action.RESTART and decision.change.kind is ChangeKind.WATERMARK_DELAY:
        found.warn(table, "keeps windows that its old watermark closed, and drops rows that arrive for them")
    if decision.action is Action.RESTART and seen.begins_where:
        where = " and ".join(map(describe_log_start, seen.begins_where))
        found.warn(table, f"goes on without what it was begun without: it streams only {where}")
    if decision.strategy in (Strategy.FORK, Strategy.CHAIN) and _is_cloned(walk, table):
        base = physical_name(table, seen.version)
        found.warn(table, f"begins with a clone of {base}, whose files hold its rows: that stays as long as the clone")
    if decision.strategy == Strategy.SEAM:
        words = "from the batch at which both upstream versions had read the same; it waits for one, and fails without"
        found.warn(table, f"keeps the rows that the old upstream version made, and adds those of the new one, {words}")
    elif decision.keeps_rows:
        stay = rows_that_stay(walk.context, walk.context.declared.tables[table])
        found.warn(table, f"is rewritten in place: {stay}; a rebuild would not produce them")
    elif decision.lowered:
        found.warn(table, "keeps the rows and state produced by the old text, and adds those of the new text to them")
    declared = walk.context.declared.tables.get(table)
    stateful = declared is not None and declared.parsed is not None and declared.parsed.stateful
    if decision.action is Action.RESTART and decision.change.kind is ChangeKind.STATIC_SIDE and stateful:
        found.warn(table, "keeps state that was built from the old static side")
    if decision.action in (Action.REBUILD, Action.RESTART):
        if not decision.change.kind.definition.same_statement:
            warn_of_multiplied_rows(walk, table)
        _check_readers(walk, table, decision)


def _is_cloned(walk: DeployWalk, table: TableName) -> bool:
    declared = walk.context.declared.tables.get(table)
    return declared is not None and table_format(declared.parsed_ddl.format).clones


def _warn_of_rows_before(walk: DeployWalk, table: TableName, decision: TableDecision) -> None:
    """Warn about parents with earlier rows that only their pointer serves, since statements do not read pointers."""
    declared = walk.context.declared.tables.get(table)
    if declared is None or declared.parsed is None or decision.strategy in (*FORKS, Strategy.SEEDED):
        return
    for parent in dict.fromkeys(read.table for read in declared.parsed.reads):
        above = walk.found.by_table.get(parent)
        made = above is not None and above.makes_version
        if above.strategy == Strategy.CHAIN if made and above else walk.context.observed.deployment(parent).rows_before:
            words = f"gets no row of {parent} from before its newest version, which only the pointer serves"
            walk.found.warn(table, f"{words}; headgate plan {parent} --rebuild has all rows in one")


def _warn_of_upserted_parents(walk: DeployWalk, table: TableName) -> None:
    """Warn whether a stream of an upserted table reads its changes or its first rows, which the text may leave open."""
    tables = walk.context.declared.tables
    declared = tables.get(table)
    for read in declared.parsed.reads if declared is not None and declared.parsed is not None else ():
        parent = tables.get(read.table)
        if read.streaming and parent is not None and parent.settings.upserts and not parent.external:
            taken = "changes" if read.takes_changes else "first rows of each key"
            walk.found.warn(table, f"takes the {taken} of {read.table}, which replaces rows by key")


def _warn_of_readers_of_deleted_versions(walk: DeployWalk, table: TableName) -> None:
    """Warn about deployed readers that are bound to a version of a table which no longer exists."""
    seen = walk.context.observed.deployment(table)
    existing = {seen.version, *seen.kept, *seen.retained, *(orphan.version for orphan in seen.orphan_versions)}
    if not walk.context.observed.is_deployed(table):
        existing = {0}
    for reader in walk.context.bindings.readers(table):
        known = walk.found.by_table.get(reader)
        bound = [b.version for b in walk.context.bindings.of(reader) if b.parent == table]
        if gone := [version for version in bound if version not in existing and (known is None or not known.moves)]:
            names = ", ".join(physical_name(table, version) for version in gone)
            walk.found.warn(reader, f"reads {names}, which no longer exists: it gets no rows until it is rebuilt")


def _what_becomes(decision: TableDecision, state: str) -> str:
    if decision.action is Action.REBUILD:
        return "it is rebuilt beside the existing version"
    if state == State.UNKNOWN:
        return "the pool is checked first, and it resumes from its checkpoint only if it is not running there"
    return "it resumes from its checkpoint"


def _check_readers(walk: DeployWalk, table: TableName, decision: TableDecision) -> None:
    tables = walk.context.declared.tables
    for column in walk.context.changes.removed_columns(table):
        for name in walk.context.declared.graph.children(table):
            place = column_reference_lines(column, table, tables[name], tables)
            if place:
                walk.found.refuse(
                    table,
                    f"{table} loses column {column}, which {name} reads at {place}",
                    f"change these lines of {name} in the same plan, or keep {column}",
                )
    if decision.action is Action.RESTART:
        for name in walk.context.bindings.readers(table):
            _flag_reader(walk, name, table, decision.change.kind)
        if decision.change.kind.definition.alters_table:
            _warn_of_outside_streams(walk, table)


def _flag_reader(walk: DeployWalk, reader: TableName, table: TableName, kind: ChangeKind) -> None:
    declared = walk.context.declared.tables.get(reader)
    if declared is None or declared.parsed is None:
        return
    if kind.definition.leaves_seam and declared.parsed.stateful:
        walk.found.warn(reader, f"keeps state, and aggregates across the point where {table} goes on with its new text")
    known = walk.found.by_table.get(reader)
    if not kind.definition.alters_table:
        return
    if kind is ChangeKind.COLUMN_WIDENED:
        refuse_unfit_reader(walk, reader, table)
    begins = known is not None and known.action in (Action.START, Action.RESTART, Action.REBUILD)
    added = walk.context.changes.added_columns(table)
    takes_all = added and any(column.expression.endswith("*") for column in declared.parsed.columns)
    if takes_all and table_format(declared.parsed_ddl.format).columns_are_fixed:
        _refuse_unfit_star(walk, reader, table)
    elif takes_all and not begins:
        walk.found.warn(reader, f"selects * and will write the new column of {table} after its next restart")
    elif known is None and would_end(walk, reader, table):
        words = f"is not part of this plan, and {end_at_change(walk.context, table)}"
        walk.found.warn(reader, f"{words}: it is stopped for that moment, and goes on with its own text")


def _warn_of_outside_streams(walk: DeployWalk, table: TableName) -> None:
    """Warn about exposures that Spark ends when the table is altered, since Headgate does not start them again."""
    declared = walk.context.declared.tables[table]
    names = sorted({name for name, _ in declared.settings.outside_readers})
    if names and table_format(declared.parsed_ddl.format).added_column_stops_readers:
        widened = walk.context.changes.of(table).kind is ChangeKind.COLUMN_WIDENED
        change = f"a column of {table} takes a wider type" if widened else f"{table} gets a column"
        words = f"Spark ends what streams {table} outside of Headgate when {change}"
        walk.found.warn(table, f"{words}, and it has to be started again there: {', '.join(names)}")


def _refuse_unfit_star(walk: DeployWalk, reader: TableName, table: TableName) -> None:
    """Refuse added columns that a reader's star would write into a table without them."""
    added = walk.context.changes.added_columns(table)
    ddl = walk.context.declared.tables[reader].parsed_ddl
    there = {column.name.lower() for column in ddl.columns}
    known = walk.found.by_table.get(reader)
    makes = known is not None and known.action in (Action.START, Action.RESTART, Action.REBUILD)
    lacking = [column for column in added if column.lower() not in there or not makes]
    if lacking:
        names = ", ".join(lacking)
        summary = f"{reader} selects * from {table}, and its table has no column {names}: every batch would be refused"
        walk.found.refuse(table, summary, f"add {names} to the DDL of {reader} in the same plan, or name its columns")


_NAMED = 3
"""Number of re-created tables that are named in the warnings of one table."""

_ReadersByTable = Mapping[TableName, Sequence[TableName]]


def warn_of_old_inputs(walk: DeployWalk) -> None:
    """Warn about requested or moved tables that do not see a re-created table because a reader between is left behind.

    Linear in the edges above these tables, for each reader that is left behind there.
    """
    stays: dict[TableName, dict[TableName, str]] = {}
    for left in walk.found.left_behind:
        if left.depth == 1:
            stays.setdefault(TableName(left.through), {})[left.table] = left.reads
    decisions = walk.found.by_table
    meant = {table for table, known in decisions.items() if known.moves or table in walk.scope.requested}
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
    """Return which versions of a re-created table are seen; `by` are the tables through which the new one is seen."""
    stay = "stays" if len(between) == 1 else "stay"
    old = ", ".join(dict.fromkeys(versions[reader] for reader in between))
    if not by:
        return f"will not see the new {parent}: {', '.join(between)} between them {stay} on {old}"
    new = f"reads the new {parent}" if parent in by else f"sees the new {parent} through {', '.join(by)}"
    return f"{new}, and the old one through {', '.join(between)}, which {stay} on {old}"


def _readers_above(walk: DeployWalk, tables: Iterable[TableName]) -> _ReadersByTable:
    """Return the readers after the plan of everything upstream of some tables."""
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
    """Return the parents of a table after the plan: the declared ones if its new text will run."""
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
) -> frozenset[TableName]:
    """Return the tables below `start`, without itself, along the edges that `follows` accepts."""
    return reach((start,), lambda parent: (child for child in readers.get(parent, ()) if follows(child, parent)))


def _sees_new(walk: DeployWalk, child: TableName, parent: TableName) -> bool:
    """Return whether a reader sees its parent's newest version after the plan."""
    above, known = walk.found.by_table.get(parent), walk.found.by_table.get(child)
    if above is None or above.outcome < DownstreamOutcome.CHAINED:
        return True
    if known is None:
        return False
    static = any(read.parent == parent and not read.streamed for read in walk.context.bindings.of(child))
    return known.moves or (known.action is Action.RESTART and static)


_NO_DUPLICATES = re.compile(
    r"\s*select\b.+?\bfrom\s+`?(?P<table>\w+)`?\s+group\s+by\s+(?P<keys>[\w`,\s]+?)\s+"
    r"having\s+count\s*\(\s*(?:\*|1)\s*\)\s*(?:>\s*1|>=\s*2|<>\s*1)\s*;?\s*",
    re.IGNORECASE | re.DOTALL,
)
"""Matches a check that returns a row for each duplicated key."""


def warn_of_multiplied_rows(walk: DeployWalk, table: TableName) -> None:
    """Warn about each edit that may produce more rows per input row, unless a declared key shows that it cannot."""
    compared = walk.context.changes.compared(table)
    if compared is None or compared[0].parsed is None or compared[1].parsed is None:
        return
    old, new = (revision.parsed for revision in compared)
    assert old is not None and new is not None
    if old.canonical == new.canonical:
        return
    # The parser is loaded only where a statement was edited.
    from core.sql.comparison.row_multiplication import row_multipliers

    for found in row_multipliers(old, new, compared[1].parents):
        does = "adds rows" if found.certain else "may multiply rows"
        words = f"{does}: {found.edit}" + (f": {found.detail}" if found.detail else "")
        joined = walk.context.declared.tables.get(TableName(found.table))
        keys = tuple(_declared_keys(joined)) if joined is not None else ()
        if not any(key <= found.equated for key in keys):
            outcome = _what_decides(found.table, found.equated, keys) or found.outcome
            walk.found.warn(table, f"{words}; {outcome}", multiplies_rows=True)


def _what_decides(table: str, equated: frozenset[str], keys: tuple[frozenset[str], ...]) -> str:
    """Return what decides how many rows a join produces per row; empty if no table is joined."""
    if not table:
        return ""
    if keys:
        return f"it does not equate the key of {table}, {' or '.join(', '.join(sorted(key)) for key in keys)}"
    if not equated:
        return f"each row of {table} that meets it makes a row"
    by = ", ".join(sorted(equated))
    return f"as many as {table} has rows for each {by}, and no key of {table} is declared"


def _declared_keys(table: Table) -> Iterator[frozenset[str]]:
    """Yield the sets of columns, in lower case, that are unique by the table's yml."""
    if table.settings.key:
        yield frozenset(name.lower() for name in table.settings.key)
    for _, sql in table.settings.checks:
        found = _NO_DUPLICATES.fullmatch(sql)
        if found is not None and found["table"].lower() == table.name:
            yield frozenset(name.strip(" `\n\t").lower() for name in found["keys"].split(","))
