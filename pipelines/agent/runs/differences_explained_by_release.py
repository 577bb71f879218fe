"""Determines which differences between two versions of a table are explained by a release, and why."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from core.model.names import TableName
from core.observed.aligned_positions import AlignedPair, Version
from core.observed.versions import Deployment
from core.ports.storage import Checkpoints
from core.sql.comparison.row_effects import RowEffect, RowSide
from core.sql.statement import describe_log_start, read_log_start
from core.text.escaping import quoted_name
from core.validation.expected_differences import (
    ComparedStatement,
    ExpectedDifferences,
    excluded_rows_predicate,
    expected_differences,
    with_rows_of_earlier_sql,
)
from pipelines.agent.deployment_compiler import added_columns, parsed_ddl, parsed_statement
from pipelines.agent.runs.compared_versions import ComparedVersions

_LEFT_OUT = re.compile(r"NOT coalesce\((.*), false\)\Z", re.I | re.S)
"""Matches the predicate for rows that a filter drops."""


@dataclass(frozen=True, slots=True)
class VersionPair:
    """Two versions of a table, and a position that both have read, at which they are compared."""

    old: Deployment
    new: Deployment
    at: AlignedPair


def expected_of(files: Checkpoints, versions: ComparedVersions, pair: VersionPair) -> ExpectedDifferences:
    """Return the differences that a release explains, including rows that one version withholds or has dropped."""
    deployed = versions.deployed()
    expected = of_release(files, versions, deployed, pair.old, pair.new)
    # A key has only one row, however late its input was, so with keys a late row cannot equal another row.
    late = [
        replace(row, may_equal_others=not expected.keys)
        for row in (*_withheld(pair), *_dropped(versions, deployed, pair))
    ]
    return replace(expected, rows=(*_nulls_apart(expected.rows), *_not_distinct_yet(pair, expected), *late))


def begins_alone(expected: ExpectedDifferences) -> bool:
    """True if the only expected differences are rows from before the old version's start position.

    The result is False if rows depend on each other, because other rows may then also differ.
    """
    rows = expected.rows
    return (
        bool(rows)
        and all(row.from_start for row in rows)
        and not (expected.unpairable_because or expected.multiplicity_change or expected.keys)
    )


def starts_first(effects: Sequence[RowEffect]) -> tuple[RowEffect, ...]:
    """Return effects with later starts first, so that rows from before a start are not explained by edits alone.

    A start without a predicate also names the edits that may explain the same rows, because it is not known which does.
    """
    starts = []
    for effect in effects:
        if effect.from_start and not effect.predicate:
            edits = [
                each.why for each in effects if each.side is effect.side and not (each.predicate or each.from_start)
            ]
            starts.append(replace(effect, why=" or ".join(dict.fromkeys((effect.why, *edits)))))
    return (*starts, *(effect for effect in effects if effect.predicate or not effect.from_start))


def _nulls_apart(effects: Iterable[RowEffect]) -> Iterator[RowEffect]:
    """Precede a filter's effect with an effect for the rows that it drops because its condition is NULL.

    Such rows are often dropped by mistake, for example by `x <> 1`.
    """
    for effect in effects:
        if condition := _LEFT_OUT.match(effect.predicate):
            yield replace(
                effect, why=f"{effect.why}, whose condition is NULL there", predicate=f"({condition[1]}) IS NULL"
            )
        yield effect


def _not_distinct_yet(pair: VersionPair, expected: ExpectedDifferences) -> Iterator[RowEffect]:
    # DISTINCT withholds rows until the watermark has passed them.
    for side, column in expected.withheld:
        passed = pair.at.green_watermark_ms if side is RowSide.NEW else pair.at.blue_watermark_ms
        other = RowSide.OLD if side is RowSide.NEW else RowSide.NEW
        predicate = f"{quoted_name(column)} >= timestamp_millis({passed})" if column else ""
        yield RowEffect(other, "DISTINCT withholds rows that the watermark has not passed", predicate)


def of_release(
    files: Checkpoints,
    versions: ComparedVersions,
    deployed: Mapping[Version, Deployment],
    old: Deployment,
    new: Deployment,
) -> ExpectedDifferences:
    """Return the differences explained by the edits to a table and to rebuilt tables upstream of it."""
    before = {binding.parent: binding.version for binding in old.bindings}
    parents: dict[TableName, ExpectedDifferences] = {}
    ddls = {}
    for binding in new.bindings:
        now = deployed.get((binding.parent, binding.version))
        was = deployed.get((binding.parent, before.get(binding.parent, binding.version)))
        if now is not None:
            ddls[binding.parent] = parsed_ddl(now)
        if now is not None and was is not None and now.version != was.version:
            parents[binding.parent] = of_release(files, versions, deployed, was, now)
        elif now is not None and was is not None and binding.parent in before and not binding.streamed:
            parents[binding.parent] = _static_side(files, versions, old, now)
    expected = expected_differences(_statement(old), _statement(new), ddls, parents)
    if old.older_rows:
        words = f"{versions.name(old.table, old.version)} holds {old.older_rows}, in any number"
        expected = replace(expected, rows=(*expected.rows, *(RowEffect(side, words) for side in RowSide)))
    for texts in versions.earlier_texts(old.table, old.version):
        before_edit = _statement(replace(old, texts=texts))
        expected = with_rows_of_earlier_sql(expected, expected_differences(before_edit, _statement(new), ddls, {}))
    if (old.begins_where, old.begins_after) == (new.begins_where, new.begins_after):
        return expected
    later, other = (old, new) if old.begins_where or old.begins_after else (new, old)
    where = " and ".join(map(describe_log_start, later.begins_where)) or f"the rows after {later.begins_after}"
    words = f"{versions.name(later.table, later.version)} begins with {where}"
    whole = not (other.begins_where or later.begins_after or other.begins_after)
    filtered = whole and not any(map(read_log_start, later.begins_where))
    predicate = excluded_rows_predicate(later.begins_where, _statement(other), ddls) if filtered else ""
    if predicate:
        side = RowSide.NEW if later is old else RowSide.OLD
        return replace(expected, rows=(*expected.rows, RowEffect(side, words, predicate, from_start=True)))
    # A new version that begins later only lacks rows, if each of its rows comes from one row of a stream.
    window = later is new and not (old.begins_where or old.begins_after) and _reads_row_by_row(new)
    sides = (RowSide.OLD,) if window else tuple(RowSide)
    begins = tuple(RowEffect(side, f"{words}, in any number", from_start=True) for side in sides)
    return replace(expected, rows=(*expected.rows, *begins))


def _static_side(
    files: Checkpoints, versions: ComparedVersions, old: Deployment, side: Deployment
) -> ExpectedDifferences:
    found = files.contents(side.folder, side.stored_as)
    if found is None or found.newest is None or old.started_at is None or found.newest <= old.started_at:
        return ExpectedDifferences()
    why = f"it has changed since {versions.name(old.table, old.version)} was started"
    return ExpectedDifferences(rows=tuple(RowEffect(row_side, why, may_equal_others=False) for row_side in RowSide))


def _reads_row_by_row(deployment: Deployment) -> bool:
    parsed = parsed_statement(deployment)
    return not parsed.stateful and sum(read.streaming for read in parsed.reads) == 1


def _statement(deployment: Deployment) -> ComparedStatement:
    return ComparedStatement(
        parsed_statement(deployment), parsed_ddl(deployment), metadata=bool(added_columns(deployment))
    )


def _withheld(pair: VersionPair) -> tuple[RowEffect, ...]:
    at = pair.at
    if at.same_watermarks:
        return ()
    why = "not yet emitted by the other version, whose watermark is behind"
    sides = [RowSide.OLD] if at.blue_watermark_ms > at.green_watermark_ms else [RowSide.NEW]
    if at.blue_watermark_ms == at.green_watermark_ms:
        sides = [RowSide.OLD, RowSide.NEW]
    return tuple(RowEffect(side, why) for side in sides)


def _dropped(
    versions: ComparedVersions, deployed: Mapping[Version, Deployment], pair: VersionPair
) -> tuple[RowEffect, ...]:
    """Return the differences due to late rows that the old version, or a version upstream of it, has dropped."""
    open_, seen, late = [(pair.old.table, pair.old.version)], set(), []
    while open_:
        version = open_.pop()
        found = deployed.get(version)
        if version in seen or found is None:
            continue
        seen.add(version)
        measured = versions.measurement(*version)
        if measured is not None and measured.dropped_by_watermark:
            late.append(versions.name(*version))
        open_ += [(binding.parent, binding.version) for binding in found.bindings]
    if not late:
        return ()
    why = f"the watermark of {', '.join(sorted(late))} has dropped late rows, which a replay may keep"
    return (RowEffect(RowSide.NEW, why), RowEffect(RowSide.CHANGED, why))
