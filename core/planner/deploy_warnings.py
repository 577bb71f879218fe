"""Warnings about the tables of a deploy: states, seams, old inputs, multiplied rows, and readers that would fail."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from core.changes.kinds import ChangeKind
from core.lineage.column_usage import column_reference_lines
from core.lineage.table_graph import reach
from core.model.actions import FORKS, Action, Strategy
from core.model.evidence import Edit, EditKind
from core.model.names import TableName, physical_name
from core.model.states import State, WantedState
from core.model.table_formats import table_format
from core.plan.descriptions import evidence_words
from core.plan.request import COMMITTED
from core.planner.column_widening import notice_of_ended_readers, refuse_unfit_reader
from core.planner.decision_model import DeployWalk, DownstreamOutcome, TableDecision
from core.planner.requested_tables import alter_ends_query_of, is_at_rest, stale_bindings
from core.planner.rewrite_in_place import rows_that_stay
from core.planner.start_positions import epoch_of
from core.planner.warning_and_refusal_kinds import JoinCause, PlanRefusalKind, PlanWarningKind
from core.project.model import Compatibility, Table
from core.project.resources import PoolClass
from core.sql.metadata_columns import METADATA_NAMES
from core.sql.statement import describe_log_start
from core.text.sentence import Fact

if TYPE_CHECKING:
    from core.observed.time_left import TimeLeft

_CONTINUES = FORKS | {Strategy.SEAM}
"""Strategies by which a new version continues from the position of the old version."""

_SHOWN = frozenset({State.FAILED, State.DEGRADED, State.UNKNOWN, State.COMPLETED})


def add_warnings(walk: DeployWalk, table: TableName) -> None:
    """Warn about a table's state and decision; refuse a decision that its readers or earlier rows rule out."""
    found, seen = walk.found, walk.context.observed.deployment(table)
    decision = found.by_table[table]
    if decision.change.confirmed is False:
        found.warn(table, PlanWarningKind.NOT_CONFIRMED.of(evidence=evidence_words(decision.change.evidence[0])))
    for edit in decision.change.evidence if decision.action is not Action.REBUILD else ():
        if isinstance(edit, Edit) and edit.kind in (EditKind.PINNED, EditKind.SECRET_PINNED):
            found.warn(table, PlanWarningKind.CONFIGURATION_PINNED.of(evidence=evidence_words(edit)))
    if decision.action in (Action.KEEP, Action.RECORD) or walk.context.observed.is_external(table):
        if is_at_rest(walk, table):
            found.warn(table, PlanWarningKind.STAYS_STOPPED.of())
            _warn_of_position(walk, table)
        return
    _warn_of_pool(walk, table)
    if decision.action in (Action.RESUME, Action.RESTART) or decision.strategy in _CONTINUES:
        _warn_of_position(walk, table)
    if decision.action in (Action.START, Action.REBUILD):
        _warn_of_rows_before(walk, table, decision)
        _warn_of_changes(walk, table)
        _warn_of_topics_started_later(walk, table, decision)
        _warn_of_deleted_start(walk, table, decision)
    _warn_of_skipped_messages(walk, table)
    _check_topic(walk, table, decision)
    _warn_of_readers_of_deleted_versions(walk, table)
    if decision.action is Action.START:
        return
    if decision.action is Action.RESTART and decision.change.kind.definition.alters_table and seen.rows_before:
        found.refuse(table, PlanRefusalKind.POINTER_SERVES_EARLIER_ROWS.of(version=seen.version))
    if seen.state in _SHOWN:
        found.warn(table, _what_becomes(decision, seen.state).of(state=seen.state))
    elif seen.state == State.STOPPED and seen.wanted == WantedState.STOPPED:
        found.warn(table, PlanWarningKind.STARTS_STOPPED.of())
    if decision.action is Action.RESUME:
        for binding in stale_bindings(walk.context.observed, walk.context.bindings, table):
            found.warn(table, PlanWarningKind.READS_OLD.of(version=physical_name(binding.parent, binding.version)))
    kinds = _kinds(walk, table, decision) if decision.action is Action.RESTART else frozenset()
    if ChangeKind.WATERMARK_DELAY in kinds:
        found.warn(table, PlanWarningKind.WINDOWS_STAY_CLOSED.of())
    if decision.action is Action.RESTART and seen.begins_where:
        where = " and ".join(map(describe_log_start, seen.begins_where))
        found.warn(table, PlanWarningKind.ROWS_STAY_MISSING.of(where=where))
    if decision.strategy in (Strategy.FORK, Strategy.CHAIN) and _is_cloned(walk, table):
        found.warn(table, PlanWarningKind.CLONED.of(base=physical_name(table, seen.version)))
    if decision.strategy == Strategy.SEAM:
        found.warn(table, PlanWarningKind.SEAM.of())
    elif decision.keeps_rows:
        stay = rows_that_stay(walk.context, walk.context.declared.tables[table])
        found.warn(table, PlanWarningKind.REWRITTEN_IN_PLACE.of(rows=stay))
    elif decision.lowered:
        found.warn(table, PlanWarningKind.MEANINGS_MIXED.of())
    declared = walk.context.declared.tables.get(table)
    stateful = declared is not None and declared.parsed is not None and declared.parsed.stateful
    if ChangeKind.STATIC_SIDE in kinds and stateful:
        found.warn(table, PlanWarningKind.OLD_STATIC_SIDE.of())
    if decision.action in (Action.REBUILD, Action.RESTART):
        if not decision.change.kind.definition.same_statement:
            warn_of_multiplied_rows(walk, table)
        _check_readers(walk, table, decision, kinds)


def _warn_of_pool(walk: DeployWalk, table: TableName) -> None:
    """Warn of a promoted statement that names a pool in an environment with one pool, where the name has no effect."""
    here, declared = walk.context.declared.environment, walk.context.declared.tables.get(table)
    wanted = declared.settings.pool if declared is not None else ""
    named = f"class {wanted.name}" if isinstance(wanted, PoolClass) else wanted
    if walk.scope.request.promoted_from and named not in ("", here.pool.name) and not here.named_pools:
        only = PlanWarningKind.POOL_NOT_HERE.of(pool=named, environment=here.name, only=here.pool.name)
        walk.found.warn(table, only)


def _kinds(walk: DeployWalk, table: TableName, decision: TableDecision) -> frozenset[ChangeKind]:
    """Return the kind that decides about a table, and those of its less severe edits, which take effect with it."""
    edited = walk.context.changes.of(table).kind is not ChangeKind.NONE
    return frozenset({decision.change.kind}) | (walk.context.changes.kinds(table) if edited else frozenset())


def _is_cloned(walk: DeployWalk, table: TableName) -> bool:
    declared = walk.context.declared.tables.get(table)
    return declared is not None and table_format(declared.parsed_ddl.format).clones


def _warn_of_rows_before(walk: DeployWalk, table: TableName, decision: TableDecision) -> None:
    """Warn about parents whose earlier rows only the pointer serves, because statements do not read through it."""
    declared = walk.context.declared.tables.get(table)
    if declared is None or declared.parsed is None or decision.strategy in (*FORKS, Strategy.SEEDED):
        return
    for parent in dict.fromkeys(read.table for read in declared.parsed.reads):
        above = walk.found.by_table.get(parent)
        made = above is not None and above.makes_version
        if above.strategy == Strategy.CHAIN if made and above else walk.context.observed.deployment(parent).rows_before:
            walk.found.warn(table, PlanWarningKind.LACKS_EARLIER_ROWS.of(parent=parent))


def _warn_of_changes(walk: DeployWalk, table: TableName) -> None:
    """Warn that a stream of an upserted table reads either all changes or only the first row of each key.

    The SQL alone may not show which of the two the stream reads. Also warn that changes of a database begin at its
    replication slot.
    """
    tables = walk.context.declared.tables
    declared = tables.get(table)
    for read in declared.parsed.reads if declared is not None and declared.parsed is not None else ():
        parent = tables.get(read.table)
        if read.streaming and parent is not None and table_format(parent.parsed_ddl.format).changes:
            from core.sql.postgres_changes import ChangesRisk, begins_with_rows

            has_rows = begins_with_rows(parent.parsed_ddl)
            begin = PlanWarningKind.CHANGES_FROM_ROWS if has_rows else PlanWarningKind.CHANGES_FROM_SLOT
            walk.found.warn(table, begin.of(source=read.table))
            if has_rows and declared is not None and not declared.settings.upserts:
                risk = ChangesRisk.ROWS_TWICE.of(source=read.table)
                walk.found.warn(table, PlanWarningKind.ROWS_TWICE.of(risk=risk, remedy=risk.remedy))
        if read.streaming and parent is not None and parent.settings.upserts and not parent.external:
            kind = PlanWarningKind.READS_CHANGES if read.takes_changes else PlanWarningKind.READS_FIRST_ROWS
            walk.found.warn(table, kind.of(parent=read.table))


def _warn_of_topics_started_later(walk: DeployWalk, table: TableName, decision: TableDecision) -> None:
    tables = walk.context.declared.tables
    declared = tables.get(table)
    if declared is None or declared.parsed is None or decision.strategy in (*FORKS, Strategy.SEEDED):
        return
    for parent in dict.fromkeys(read.table for read in declared.parsed.reads if read.streaming):
        if parent not in tables or not table_format((ddl := tables[parent].parsed_ddl).format).topics:
            continue
        from core.sql.kafka_topics import start_option

        if (start := start_option(ddl)) is not None:
            option, value = start
            walk.found.warn(table, PlanWarningKind.TOPICS_START_LATER.of(parent=parent, option=option, value=value))


def _check_topic(walk: DeployWalk, table: TableName, decision: TableDecision) -> None:
    """Warn about the delivery guarantee of a written topic; refuse to replace a topic with a table or vice versa."""
    declared = walk.context.declared.tables.get(table)
    if declared is None or declared.external:
        return
    now = declared.parsed_ddl.format
    old = walk.context.revisions.deployed(table) if decision.action is Action.REBUILD else None
    before = old.ddl.format if old is not None else now
    if table_format(before).topics != table_format(now).topics:
        walk.found.refuse(table, PlanRefusalKind.TOPIC_OR_TABLE.of(before=before, after=now))
    elif table_format(now).topics:
        from core.sql.kafka_topics import topics_by_server
        from core.sql.written_topics import delivery

        place = declared.written_topic(walk.context.declared.environment.naming)
        version = walk.context.observed.deployment(table).version
        walk.found.warn(table, PlanWarningKind.DELIVERS.of(delivery=delivery(place, declared.settings.key)))
        by_topic = walk.context.declared.writers_by_topic
        writers = {name for each in topics_by_server(declared.parsed_ddl.location) for name in by_topic[each]}
        if others := tuple(sorted(writers - {table})):
            walk.found.warn(table, PlanWarningKind.WRITTEN_TOGETHER.of(others=others, topic=place))
        if decision.action is Action.REBUILD:
            moved = old is not None and old.ddl.location != declared.parsed_ddl.location
            later = decision.strategy in (*FORKS, Strategy.SEEDED)
            whole = PlanWarningKind.WRITTEN_ELSEWHERE if moved else PlanWarningKind.WRITTEN_AGAIN
            kind = PlanWarningKind.WRITTEN_BY_BOTH if later else whole
            walk.found.warn(table, kind.of(topic=place, version=version))


def _warn_of_position(walk: DeployWalk, table: TableName) -> None:
    """Warn if the position from which a statement continues, now or when it is started later, is at risk or lost."""
    left = _time_left(walk, table)
    if left is None or not left.at_risk:
        return
    if left.is_lost:
        walk.found.warn(table, PlanWarningKind.POSITION_LOST.of(bound=left.bound), drifts=True)
    else:
        said = PlanWarningKind.POSITION_EXPIRES.of(left=str(left.amount), advice=str(left.advice))
        walk.found.warn(table, said, drifts=True)


def _warn_of_deleted_start(walk: DeployWalk, table: TableName, decision: TableDecision) -> None:
    """Warn if Kafka has probably deleted the messages at which a version is to start.

    The retention is known from other statements that read the same topics.
    """
    begins = epoch_of(decision.at.removeprefix(COMMITTED)) if decision.strategy == Strategy.SEEDED else None
    declared = walk.context.declared.tables.get(table)
    if begins is None or declared is None or declared.parsed is None:
        return
    for parent in dict.fromkeys(read.table for read in declared.parsed.reads if read.streaming):
        lefts = (_time_left(walk, reader) for reader in walk.context.bindings.readers(parent))
        kept = [(left.at, left.full_s) for left in lefts if left is not None and left.by_message_age]
        if kept_s := max((kept_s for at, kept_s in kept if kept_s is not None and begins < at - kept_s), default=None):
            said = PlanWarningKind.BEGINS_BEFORE_RETENTION.of(parent=parent, kept_s=kept_s)
            walk.found.warn(table, said, drifts=True)


def _time_left(walk: DeployWalk, table: TableName) -> "TimeLeft | None":
    if not (text := walk.context.observed.statistics(table).time_left):
        return None
    from core.observed.time_left import time_left_of

    return time_left_of(text)


def _warn_of_skipped_messages(walk: DeployWalk, table: TableName) -> None:
    tables = walk.context.declared.tables
    declared = tables.get(table)
    for parent in dict.fromkeys(read.table for read in declared.parsed.reads) if declared and declared.parsed else ():
        if parent not in tables or not table_format((ddl := tables[parent].parsed_ddl).format).topics:
            continue
        from core.sql.kafka_topics import skips_lost_messages

        if skips_lost_messages(ddl):
            walk.found.warn(table, PlanWarningKind.SKIPS_LOST.of(parent=parent))


def _warn_of_readers_of_deleted_versions(walk: DeployWalk, table: TableName) -> None:
    seen = walk.context.observed.deployment(table)
    existing = {seen.version, *seen.kept, *seen.retained, *(orphan.version for orphan in seen.orphan_versions)}
    if not walk.context.observed.is_deployed(table):
        existing = {0}
    for reader in walk.context.bindings.readers(table):
        known = walk.found.by_table.get(reader)
        bound = [b.version for b in walk.context.bindings.of(reader) if b.parent == table]
        if gone := [
            version for version in bound if version not in existing and (known is None or not known.rebinds_streams)
        ]:
            names = tuple(physical_name(table, version) for version in gone)
            walk.found.warn(reader, PlanWarningKind.READS_DELETED.of(versions=names))


def _what_becomes(decision: TableDecision, state: str) -> PlanWarningKind:
    if decision.action is Action.REBUILD:
        return PlanWarningKind.REBUILT_BESIDE
    return PlanWarningKind.POOL_CHECKED if state == State.UNKNOWN else PlanWarningKind.RESUMES


def _check_readers(walk: DeployWalk, table: TableName, decision: TableDecision, kinds: frozenset[ChangeKind]) -> None:
    old = walk.context.revisions.deployed(table)
    mode = walk.context.declared.project.compatibility(walk.context.declared.tables[table])
    if old is not None and (mode is not Compatibility.NONE or old.settings.compatibility):
        # The import loads the parser.
        from core.planner.column_compatibility import refuse_incompatible_columns

        refuse_incompatible_columns(walk, table, old, mode)
    tables = walk.context.declared.tables
    for column in walk.context.changes.removed_columns(table):
        for name in walk.context.declared.graph.children(table):
            place = column_reference_lines(column, table, tables[name], tables)
            if place:
                walk.found.refuse(table, PlanRefusalKind.COLUMN_IS_READ.of(column=column, reader=name, place=place))
    if decision.action is Action.RESTART:
        for name in walk.context.bindings.readers(table):
            _flag_reader(walk, name, table, decision.change.kind, kinds)
        if decision.change.kind.definition.alters_table:
            _warn_of_outside_streams(walk, table)


def _flag_reader(
    walk: DeployWalk, reader: TableName, table: TableName, kind: ChangeKind, kinds: frozenset[ChangeKind]
) -> None:
    declared = walk.context.declared.tables.get(reader)
    if declared is None or declared.parsed is None:
        return
    if declared.parsed.stateful and any(each.definition.leaves_seam for each in kinds):
        walk.found.warn(reader, PlanWarningKind.AGGREGATES_ACROSS.of(parent=table))
    known = walk.found.by_table.get(reader)
    if not kind.definition.alters_table:
        return
    if kind is ChangeKind.COLUMN_WIDENED:
        refuse_unfit_reader(walk, reader, table)
    begins = known is not None and known.action in (Action.START, Action.RESTART, Action.REBUILD)
    added = walk.context.changes.added_columns(table)
    if declared.settings.metadata:
        # The reader has metadata columns of its own in place of those that it reads through a star.
        added = tuple(name for name in added if name.lower() not in METADATA_NAMES)
    takes_all = added and any(column.expression.endswith("*") for column in declared.parsed.columns)
    if takes_all and table_format(declared.parsed_ddl.format).columns_are_fixed:
        _refuse_unfit_star(walk, reader, table, added)
    elif takes_all and not begins:
        walk.found.warn(reader, PlanWarningKind.STAR_WRITES.of(parent=table))
    elif known is None and alter_ends_query_of(walk, reader, table):
        walk.found.warn(reader, PlanWarningKind.STOPS_FOR_CHANGE.of(end=notice_of_ended_readers(walk.context, table)))


def _warn_of_outside_streams(walk: DeployWalk, table: TableName) -> None:
    """Warn about streaming exposures that Spark ends when the table is altered; Headgate does not restart them."""
    declared = walk.context.declared.tables[table]
    names = tuple(sorted({name for name, _ in declared.settings.outside_readers}))
    if names and table_format(declared.parsed_ddl.format).added_column_stops_readers:
        widened = walk.context.changes.of(table).kind is ChangeKind.COLUMN_WIDENED
        at_type, at_column = PlanWarningKind.OUTSIDE_STREAMS_END_AT_TYPE, PlanWarningKind.OUTSIDE_STREAMS_END_AT_COLUMN
        walk.found.warn(table, (at_type if widened else at_column).of(readers=names))


def _refuse_unfit_star(walk: DeployWalk, reader: TableName, table: TableName, added: tuple[str, ...]) -> None:
    ddl = walk.context.declared.tables[reader].parsed_ddl
    there = {column.name.lower() for column in ddl.columns}
    known = walk.found.by_table.get(reader)
    makes = known is not None and known.action in (Action.START, Action.RESTART, Action.REBUILD)
    lacking = tuple(column for column in added if column.lower() not in there or not makes)
    if lacking:
        walk.found.refuse(table, PlanRefusalKind.STAR_LACKS_COLUMNS.of(reader=reader, columns=lacking))


_NAMED = 3
"""Maximum number of re-created tables that the warnings about a table list by name."""

_ReadersByTable = Mapping[TableName, Sequence[TableName]]


def warn_of_old_inputs(walk: DeployWalk) -> None:
    """Warn about requested or rebound tables that still read old versions indirectly, through a reader left behind.

    The time is linear in the reads upstream of these tables, for each reader left behind.
    """
    stays: dict[TableName, dict[TableName, str]] = {}
    for left in walk.found.left_behind:
        if left.depth == 1:
            stays.setdefault(TableName(left.through), {})[left.table] = left.reads
    decisions = walk.found.by_table
    meant = {table for table, known in decisions.items() if known.rebinds_streams or table in walk.scope.requested}
    readers = _readers_above(walk, meant) if stays else {}
    facts: dict[TableName, list[Fact[PlanWarningKind]]] = {}
    for parent, versions in sorted(stays.items()):
        between: dict[TableName, list[TableName]] = {}
        for reader in sorted(versions):
            for table in _below(readers, reader) & meant - {*versions}:
                between.setdefault(table, []).append(reader)
        fresh = _below(readers, parent, lambda child, above: _sees_new(walk, child, above)) if between else set()
        for table, found in between.items():
            by = sorted(({parent} | fresh).intersection(_reads_then(walk, table))) if table in fresh else []
            facts.setdefault(table, []).append(_versions_seen(parent, by, tuple(found), versions))
    for table, said in facts.items():
        more = len(said) - _NAMED
        rest = [PlanWarningKind.MORE_OLD_INPUTS.of(parents=more)] if more > 0 else []
        for fact in (*said[:_NAMED], *rest):
            walk.found.warn(table, fact)


def _versions_seen(
    parent: TableName, by: Sequence[TableName], between: tuple[TableName, ...], versions: Mapping[TableName, str]
) -> Fact[PlanWarningKind]:
    """Return the warning about the versions of `parent` that a table reads, directly or indirectly.

    The table reads the new version through the parents in `by`; the readers in `between` still read old versions.
    """
    old = tuple(dict.fromkeys(versions[reader] for reader in between))
    if not by:
        return PlanWarningKind.WILL_NOT_SEE_NEW.of(parent=parent, between=between, old=old)
    if parent in by:
        return PlanWarningKind.READS_NEW_AND_OLD.of(parent=parent, between=between, old=old)
    return PlanWarningKind.SEES_NEW_AND_OLD.of(parent=parent, by=tuple(by), between=between, old=old)


def _readers_above(walk: DeployWalk, tables: Iterable[TableName]) -> _ReadersByTable:
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
    return reach((start,), lambda parent: (child for child in readers.get(parent, ()) if follows(child, parent)))


def _sees_new(walk: DeployWalk, child: TableName, parent: TableName) -> bool:
    above, known = walk.found.by_table.get(parent), walk.found.by_table.get(child)
    if above is None or above.outcome < DownstreamOutcome.CHAINED:
        return True
    if known is None:
        return False
    static = any(read.parent == parent and not read.streamed for read in walk.context.bindings.of(child))
    return known.rebinds_streams or (known.action is Action.RESTART and static)


_NO_DUPLICATES = re.compile(
    r"\s*select\b.+?\bfrom\s+`?(?P<table>\w+)`?\s+group\s+by\s+(?P<keys>[\w`,\s]+?)\s+"
    r"having\s+count\s*\(\s*(?:\*|1)\s*\)\s*(?:>\s*1|>=\s*2|<>\s*1)\s*;?\s*",
    re.IGNORECASE | re.DOTALL,
)
"""Matches a check that returns a row for each duplicated key."""


def warn_of_multiplied_rows(walk: DeployWalk, table: TableName) -> None:
    """Warn about each edit that may produce more rows per input row, unless a declared key makes that impossible."""
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
        kind = PlanWarningKind.ADDS_ROWS if found.certain else PlanWarningKind.MAY_MULTIPLY_ROWS
        edit = found.edit + (f": {found.detail}" if found.detail else "")
        joined = walk.context.declared.tables.get(TableName(found.table))
        keys = tuple(_declared_keys(joined)) if joined is not None else ()
        if not any(key <= found.equated for key in keys):
            cause = _join_cause(found.table, found.equated, keys) or JoinCause.OF_EDIT.of(outcome=found.outcome)
            walk.found.warn(table, kind.of(edit=edit, cause=cause), multiplies_rows=True)


def _join_cause(table: str, equated: frozenset[str], keys: tuple[frozenset[str], ...]) -> Fact[JoinCause] | None:
    if not table:
        return None
    if keys:
        return JoinCause.KEY_NOT_EQUATED.of(joined=table, keys=tuple(", ".join(sorted(key)) for key in keys))
    if not equated:
        return JoinCause.NOTHING_EQUATED.of(joined=table)
    return JoinCause.NO_KEY_DECLARED.of(joined=table, columns=tuple(sorted(equated)))


def _declared_keys(table: Table) -> Iterator[frozenset[str]]:
    """Yield the sets of columns, in lower case, that the YAML declares as unique."""
    if table.settings.key:
        yield frozenset(name.lower() for name in table.settings.key)
    for _, sql in table.settings.checks:
        found = _NO_DUPLICATES.fullmatch(sql)
        if found is not None and found["table"].lower() == table.name:
            yield frozenset(name.strip(" `\n\t").lower() for name in found["keys"].split(","))
