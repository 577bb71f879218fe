"""Derives the expected differences between two versions of a table from edits of its statement and its inputs.

An edit determines which columns may change, and which rows only one version contains. These effects are propagated
along the lineage. All differences without such a cause are unexpected.
"""

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from core.model.names import TableName
from core.sql.comparison.query_edits import aliases_of_both
from core.sql.comparison.row_effects import (
    CommonTotals,
    RowEffect,
    RowSide,
    StatementEffects,
    renamed_predicate,
    row_effects,
)
from core.sql.expression_properties import row_order
from core.sql.lineage.model import InputKind, LineageCondition, LineageOutput, StatementLineage
from core.sql.lineage.statement_lineage import lineage_of
from core.sql.metadata_columns import METADATA_NAMES
from core.sql.statement import Column, ParsedStatement, TableDdl

_VOLATILE = re.compile(
    r"\b(?:(?:rand|randn|random|uuid|shuffle|monotonically_increasing_id|input_file_\w+|spark_partition_id|now|"
    r"unix_timestamp|randstr|uniform)\s*\(\s*\)|(?:rand|randn|shuffle|randstr|uniform)\s*\(|"
    r"current_(?:timestamp|date|time)\b|localtimestamp\b|curdate\b|\w+__py_volatile_[0-9a-f]{8}\()",
    re.I,
)
"""Matches non-deterministic functions; the names of the project's own are those of `core.sql.registered_functions`."""
_FLIPS = re.compile(r"\bANTI\b|\bEXISTS\b|\bIN \(SELECT\b", re.I)
_PLAIN = re.compile(r"(?:`?\w+`?\.)?`?(\w+)`?\Z")


@dataclass(frozen=True, slots=True)
class ExpectedDifferences:
    """The differences that an edit is expected to cause between two versions of a table."""

    added: tuple[str, ...] = ()
    """Columns that only the new version has, in lower case; they are not compared."""
    removed: tuple[str, ...] = ()
    changed: Mapping[str, str] = field(default_factory=dict)
    """Maps each column whose values may differ to the reason for the difference."""
    nulls: frozenset[str] = frozenset()
    """Changed columns that may become NULL."""
    rows: tuple[RowEffect, ...] = ()
    unpairable_because: str = ""
    """Why rows cannot be paired; empty if they can."""
    merged_by: str = ""
    """Why rows that used to differ may become equal; empty if they cannot."""
    volatile: frozenset[str] = frozenset()
    """Non-deterministic columns, which cannot identify rows."""
    keys: tuple[str, ...] = ()
    """Columns that identify the rows of a grouped statement; empty if it is not grouped."""
    sorted: frozenset[str] = frozenset()
    """Columns whose values are lists in arbitrary order."""
    multiplicity_change: str = ""
    """Why the number of copies of a row may change; empty if it must not change."""
    withheld: tuple[tuple[RowSide, str], ...] = ()
    """The version that alone withholds rows until a watermark passes, and its watermark column; empty if none does."""
    totals: CommonTotals | None = None
    """Totals to compare if rows cannot be paired because the versions are grouped differently."""
    rewritten: bool = False
    """Whether rows cannot be paired only because the query was rewritten; most rows should be equal nevertheless."""

    @property
    def is_none(self) -> bool:
        """True if no difference between the versions is expected."""
        known = (
            self.added,
            self.removed,
            self.changed,
            self.rows,
            self.unpairable_because,
            self.sorted,
            self.multiplicity_change,
        )
        return not any(known)


@dataclass(frozen=True, slots=True)
class ComparedStatement:
    """A version's statement and the DDL of its table."""

    parsed: ParsedStatement
    ddl: TableDdl
    metadata: bool = False
    """Whether the table has metadata columns, whose values differ between any two versions."""


def expected_differences(
    old: ComparedStatement,
    new: ComparedStatement,
    ddls: Mapping[TableName, TableDdl],
    parents: Mapping[TableName, ExpectedDifferences],
) -> ExpectedDifferences:
    """Return the expected differences between two versions of a table.

    `ddls` contains the DDLs of the new version's inputs, and `parents` the expected differences of those inputs that
    were rebuilt together with the table.
    """
    effects = row_effects(old.parsed.canonical, new.parsed.canonical, aliases_of_both(old.parsed, new.parsed))
    lineage = lineage_of(new.parsed, lambda table: _columns(ddls.get(table)))
    before, after = (tuple(c.name.lower() for c in each.ddl.columns) for each in (old, new))
    reached = _Reached(
        lineage,
        grouped=bool(effects.keys) or _groups(lineage),
        keys=frozenset(effects.keys),
        flips=bool(_FLIPS.search(new.parsed.canonical)),
    )
    reached.edited(effects)
    for column, words in _volatile(lineage):
        reached.add_volatile(column, words)
    for name in sorted(METADATA_NAMES) if old.metadata or new.metadata else ():
        reached.add_volatile(name, f"column {name}: each version writes its own")
    _take_unordered(reached, {c.name.lower(): c.type.lower() for c in new.ddl.columns})
    before_delay, delay = _delays(old.parsed), _delays(new.parsed)
    if before_delay != delay and not _row_by_row(reached, old.parsed, new.parsed):
        reached.rows += [
            RowEffect(side, f"watermark: {before_delay or 'none'} → {delay or 'none'}") for side in RowSide
        ]
    for table in sorted(parents, key=lambda table: (not any(row.from_start for row in parents[table].rows), table)):
        if not parents[table].is_none:
            reached.take(table, parents[table])
    both = [name for name in after if name in before]
    types = {c.name.lower(): c.type for c in old.ddl.columns}
    for one in new.ddl.columns:
        name = one.name.lower()
        if types.get(name, one.type) != one.type:
            reached.touched.add(name)
            reached.changed.setdefault(name, f"column {name}: {types[name]} → {one.type}")
    changed = {name: why for name, why in reached.changed.items() if name in both}
    apart = changed.keys() | (set(before) ^ set(after))
    rows = tuple(_without_predicate_on(apart, row) for row in dict.fromkeys(reached.rows))
    return ExpectedDifferences(
        added=tuple(name for name in after if name not in before),
        removed=tuple(name for name in before if name not in after),
        changed=changed,
        nulls=frozenset(reached.nulls & changed.keys()),
        rows=rows,
        unpairable_because=reached.unpairable_because,
        merged_by=reached.merged_by,
        volatile=frozenset(reached.volatile),
        keys=effects.keys if set(effects.keys) <= {*both} - changed.keys() else (),
        sorted=frozenset(reached.sorted & {*both} - changed.keys()),
        multiplicity_change=reached.multiplicity_change,
        withheld=_withheld(effects.withheld, new.parsed, {*both} - changed.keys()),
        totals=_without_columns(effects.totals, reached.touched),
        rewritten=reached.rewritten and reached.unpairable_because != "" and not reached.grouped,
    )


def excluded_rows_predicate(
    conditions: Sequence[str], new: ComparedStatement, ddls: Mapping[TableName, TableDdl]
) -> str:
    """Return a predicate for the output rows that start conditions of streams exclude.

    A condition has the form `table.column >= …`. The predicate is empty if the output lacks a column of a condition, or
    if the statement groups rows or has several streams.
    """
    lineage = lineage_of(new.parsed, lambda table: _columns(ddls.get(table)))
    if _groups(lineage) or sum(read.streaming for read in new.parsed.reads) != 1:
        return ""
    terms = []
    for table, _, condition in (each.partition(".") for each in conditions):
        terms.append(renamed_predicate(condition, _pass_through(lineage.outputs, TableName(table))))
    return f"NOT coalesce(({' AND '.join(terms)}), false)" if terms and all(terms) else ""


def without_differences_in(expected: ExpectedDifferences, names: Set[str]) -> ExpectedDifferences:
    """Return expected differences without those of some columns, which are not compared at all."""
    return replace(
        expected,
        changed={name: why for name, why in expected.changed.items() if name not in names},
        nulls=expected.nulls - names,
        volatile=expected.volatile - names,
    )


def with_rows_of_earlier_sql(expected: ExpectedDifferences, earlier: ExpectedDifferences) -> ExpectedDifferences:
    """Return `expected`, extended for an old version that still has rows from before an in-place edit of its SQL.

    `earlier` are the expected differences between the SQL before that edit and the new version. Rows from before the
    edit have NULL in columns that the edit added.
    """
    lead = "edited in place before: "
    added = {name: f"column {name} was added in place" for name in earlier.added if name not in expected.added}
    changed = {name: f"{lead}{why}" for name, why in earlier.changed.items() if name not in expected.removed} | added
    rows = tuple(replace(row, why=f"{lead}{row.why}") for row in earlier.rows)
    gone = {*changed, *expected.changed}
    return replace(
        expected,
        changed={**changed, **expected.changed},
        nulls=expected.nulls | earlier.nulls | added.keys(),
        rows=tuple(_without_predicate_on(gone, row) for row in (*expected.rows, *rows)),
        unpairable_because=expected.unpairable_because
        or (earlier.unpairable_because and f"{lead}{earlier.unpairable_because}"),
        merged_by=expected.merged_by or (earlier.merged_by and f"{lead}{earlier.merged_by}"),
        keys=expected.keys if not set(expected.keys) & gone else (),
        sorted=expected.sorted - gone,
        multiplicity_change=expected.multiplicity_change
        or (earlier.multiplicity_change and f"{lead}{earlier.multiplicity_change}"),
        totals=None,
    )


@dataclass(slots=True)
class _Reached:
    lineage: StatementLineage
    grouped: bool
    keys: frozenset[str]
    flips: bool
    """Whether a missing input row may add an output row, as with an anti join."""
    changed: dict[str, str] = field(default_factory=dict)
    nulls: set[str] = field(default_factory=set)
    rows: list[RowEffect] = field(default_factory=list)
    unpairable_because: str = ""
    merged_by: str = ""
    volatile: set[str] = field(default_factory=set)
    sorted: set[str] = field(default_factory=set)
    multiplicity_change: str = ""
    rewritten: bool = False
    touched: set[str] = field(default_factory=set)
    """Columns that change for reasons other than an edit of the expression that computes them."""

    def edited(self, effects: StatementEffects) -> None:
        """Add the effects of an edit to the statement itself."""
        self.changed.update({name: str(why) for name, why in effects.changed.items()})
        self.nulls |= effects.nulls
        edits = (effects.unpairable_because, effects.merged_by, effects.multiplicity_change)
        self.unpairable_because, self.merged_by, self.multiplicity_change = (
            "" if edit is None else str(edit) for edit in edits
        )
        self.rewritten = effects.rewritten
        self.rows += effects.rows
        for name, why in effects.within:
            self.through(name, str(why))

    def take(self, table: TableName, parent: ExpectedDifferences) -> None:
        """Add the differences in the output that an input's expected differences cause."""
        for output in self.lineage.outputs:
            if any(one.origin.table == table and one.origin.column.lower() in parent.volatile for one in output.inputs):
                self.volatile.add(output.name.lower())
        if parent.merged_by and not self.grouped:
            self.merged_by = self.merged_by or f"{table}: {parent.merged_by}"
        if parent.multiplicity_change:
            self.multiplicity_change = self.multiplicity_change or (
                "" if self.grouped else f"{table}: {parent.multiplicity_change}"
            )
            self._groups_differ(f"{table}: {parent.multiplicity_change}")
        for output in self.lineage.outputs:
            read = {one.origin.column.lower() for one in output.inputs if one.origin.table == table} & parent.sorted
            if read and _passed(output, table) in read:
                self.sorted.add(output.name)
            elif read:
                self.add_volatile(output.name, f"{table}.{min(read)} lists values in any order")
        if parent.unpairable_because:
            self.rewritten = parent.rewritten and (self.rewritten or not self.unpairable_because)
            self.unpairable_because = self.unpairable_because or f"{table}: {parent.unpairable_because}"
            return
        # An input that begins later is named before its edits.
        rows = sorted(parent.rows, key=lambda row: not row.from_start)
        for column, why in parent.changed.items():
            self._values(table, column, f"{table}.{column}: {why}", nulls=column in parent.nulls)
        joined = len({one.origin.table for c in self.lineage.conditions for one in c.inputs}) > 1
        for row in rows:
            self._rows(table, row, joined=joined)

    def add_volatile(self, column: str, why: str) -> None:
        """Add a column whose values differ from run to run, and which is therefore not compared."""
        self.touched.add(column)
        self.changed.setdefault(column, why)
        self.nulls.add(column)
        self.volatile.add(column.lower())

    def through(self, column: str, why: str) -> None:
        """Add the effects on the output of an edit to a column of a CTE or subquery."""
        for output in self.lineage.outputs:
            steps = [step.name.rpartition(".")[2].lower() for one in output.inputs for step in one.through]
            if column in steps:
                self.changed.setdefault(output.name, why)
                self.touched.add(output.name)
        for condition in self.lineage.conditions:
            steps = [step.name.rpartition(".")[2].lower() for one in condition.inputs for step in one.through]
            if column in steps:
                self._decides(condition, why)

    def _values(self, table: TableName, column: str, why: str, *, nulls: bool) -> None:
        for output in self.lineage.outputs:
            if any(one.origin.table == table and one.origin.column.lower() == column for one in output.inputs):
                self.changed.setdefault(output.name, why)
                self.touched.add(output.name)
                if nulls:
                    self.nulls.add(output.name)
        for condition in self.lineage.conditions:
            if any(one.origin.table == table and one.origin.column.lower() == column for one in condition.inputs):
                self._decides(condition, why)

    def _decides(self, condition: LineageCondition, why: str) -> None:
        if condition.clause in ("GROUP BY", "DISTINCT"):
            self.unpairable_because = self.unpairable_because or why
            return
        if condition.clause != "FROM":
            self.rows += [RowEffect(side, why) for side in (RowSide.OLD, RowSide.NEW)]
            self._groups_differ(why)

    def _rows(self, table: TableName, row: RowEffect, *, joined: bool) -> None:
        """Add the effects of input rows that exist in only one version or whose values have changed.

        The predicate that selects the rows is kept if the output contains every column that the predicate uses.
        """
        why = f"{table}: {row.why}"
        if row.side is RowSide.CHANGED:
            self.rows.append(RowEffect(row.side, why))
            return
        shown = _pass_through(self.lineage.outputs, table)
        if self.grouped:
            shown = {column: name for column, name in shown.items() if name in self.keys}
        predicate = renamed_predicate(row.predicate, shown)
        self.rows.append(replace(row, why=why, predicate=predicate))
        if self.flips:
            other = RowSide.NEW if row.side is RowSide.OLD else RowSide.OLD
            self.rows.append(RowEffect(other, why))
        if joined:
            for output in self.lineage.outputs:
                if any(one.origin.table == table for one in output.inputs) and output.name not in self.keys:
                    self.changed.setdefault(output.name, why)
                    self.nulls.add(output.name)
        if joined or not predicate:
            self._groups_differ(why)

    def _groups_differ(self, why: str) -> None:
        if self.grouped:
            for output in self.lineage.outputs:
                if output.name not in self.keys:
                    self.changed.setdefault(output.name, why)
                    self.touched.add(output.name)
                    self.nulls.add(output.name)


def _groups(lineage: StatementLineage) -> bool:
    return any(condition.clause == "GROUP BY" for condition in lineage.conditions)


def _pass_through(outputs: tuple[LineageOutput, ...], table: TableName) -> dict[str, str]:
    found: dict[str, str] = {}
    for output in outputs:
        if column := _passed(output, table):
            found.setdefault(column, output.name)
    return found


def _passed(output: LineageOutput, table: TableName) -> str:
    """Return the input column, in lower case, that an output column copies unchanged; empty if there is none."""
    values = [one for one in output.inputs if one.kind is InputKind.VALUE]
    if len(values) != 1 or len(output.inputs) != 1 or values[0].origin.table != table or values[0].fields:
        return ""
    texts = (output.expression, *(step.expression for step in values[0].through))
    return values[0].origin.column.lower() if all(_PLAIN.match(text) for text in texts) else ""


def _take_unordered(reached: _Reached, types: Mapping[str, str]) -> None:
    """Add columns that depend on row order. Lists are compared after sorting; all other values are not compared.

    A list that contains maps is not compared, because Spark cannot sort maps.
    """
    for output in reached.lineage.outputs:
        texts = (output.expression, *(step.expression for one in output.inputs for step in one.through))
        found = [order for text in texts if (order := row_order(text)) is not None]
        if not found:
            continue
        sorts = all(order.sorts for order in found) and "map<" not in types.get(output.name, "map<")
        if sorts and sum(not _PLAIN.match(text) for text in {*texts}) == 1:
            reached.sorted.add(output.name)
            continue
        reached.add_volatile(output.name, f"column {output.name}: {found[0].call} depends on the order of rows")


def _withheld(side: RowSide | None, parsed: ParsedStatement, shown: Set[str]) -> tuple[tuple[RowSide, str], ...]:
    """Return the version that withholds rows, and the name of its watermark column.

    The name is empty if that column is not compared. The result is empty if no version withholds rows, or if there is
    no watermark.
    """
    columns = [read.watermark.column.lower() for read in parsed.reads if read.watermark]
    return tuple((side, column if column in shown else "") for column in columns[:1]) if side is not None else ()


def _without_columns(totals: CommonTotals | None, apart: Set[str]) -> CommonTotals | None:
    if totals is None:
        return None
    keys = tuple(name for name in totals.keys if name not in apart)
    kept = tuple(total for total in totals.totals if apart.isdisjoint(total.columns))
    return replace(totals, keys=keys, totals=kept)


def _volatile(lineage: StatementLineage) -> list[tuple[str, str]]:
    found = []
    for output in lineage.outputs:
        texts = (output.expression, *(step.expression for one in output.inputs for step in one.through))
        if call := next((match[0] for text in texts if (match := _VOLATILE.search(text))), ""):
            found.append((output.name, f"column {output.name}: {call.rstrip('(')} is another one each time"))
    return found


def rows_chosen_at_random(parsed: ParsedStatement, ddls: Mapping[TableName, TableDdl]) -> str:
    """Return the non-deterministic call in a clause that decides which rows a statement writes; empty if there is none.

    `ddls` contains the DDLs of the statement's inputs.
    """
    conditions = lineage_of(parsed, lambda table: _columns(ddls.get(table))).conditions
    found = (_VOLATILE.search(each.expression) for each in conditions)
    return next((match[0].rstrip("(") for match in found if match), "")


def _without_predicate_on(apart: Set[str], row: RowEffect) -> RowEffect:
    names = {name.lower() for name in re.findall(r"`([^`]+)`", row.predicate)}
    return replace(row, predicate="") if names & apart else row


def _columns(ddl: TableDdl | None) -> tuple[Column, ...] | None:
    return ddl.columns if ddl is not None else None


def _row_by_row(reached: _Reached, *statements: ParsedStatement) -> bool:
    # Watermarks neither drop nor withhold rows if each output row is computed from a single streamed row.
    alone = all(sum(read.streaming for read in each.reads) == 1 for each in statements)
    return alone and not reached.grouped and not any("DISTINCT" in each.canonical.upper() for each in statements)


def _delays(parsed: ParsedStatement) -> str:
    return ", ".join(f"{r.table}.{r.watermark.column} {r.watermark.delay}" for r in parsed.reads if r.watermark)
