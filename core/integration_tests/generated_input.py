"""Rows for the sources of tables, generated from their declarations, with later rows that close every window."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from core.integration_tests.case_reader import sources_of
from core.lineage.compared_columns import ComparedColumns, compared_columns
from core.model.names import TableName, interval_s
from core.model.table_formats import table_format
from core.project.model import Project, Table
from core.project_reader.ephemeral_project import upstream_of
from core.project_reader.ephemeral_systems import is_assigned
from core.sql.kafka_topics import ValueFormat, value_format
from core.sql.lineage.model import ColumnOrigin
from core.statement_tests.case import Part, Row
from core.statement_tests.case_writer import BEGIN, Literals, literals_in, made_up_row, named_alike
from core.statement_tests.fixture_rows import columns_of

PARTS = 2
ROWS = 4
"""Number of rows of each source in each part."""

_CLOSING = 1
"""Number of rows of each source in a part that closes windows."""

STEP_S = 5.0
"""Seconds between the times of two rows of a source."""

EVER = timedelta(days=36_500)
"""How long an interval of a static side lasts."""

DAY_S = 86_400


def generated_parts(
    project: Project,
    tables: Iterable[TableName],
    *,
    parts: int = PARTS,
    begin: datetime = BEGIN,
    step_s: float = STEP_S,
    between: bool = False,
) -> tuple[Part, ...]:
    """Generate `parts` parts of input for tables and everything upstream, then parts that close their windows.

    Rows are numbered in the same way in all sources, so that joins find matches, also by a time between two others: an
    interval of a stream ends at the time of the next row, and one of a static side never. A statement with state that
    writes a row only once the watermark has passed it also keeps the row that closes windows downstream, so there is
    one closing part for each such statement in a chain; each is at least a day later than the one before, and later
    than any watermark waits. With `between`, closing parts also follow each earlier part. The first row is `step_s`
    after `begin`.
    """
    chosen = upstream_of(project, tables)
    selects = [parsed.select for name in chosen if (parsed := project.tables[name].parsed) is not None]
    sources = sources_of(project, chosen)
    step, later = timedelta(seconds=step_s), timedelta(days=1 + int(2 * longest_delay_s(project, chosen) // DAY_S))
    closings = stateful_depth(project.tables, chosen)
    sizes = ([ROWS] + [_CLOSING] * (closings if between else 0)) * parts
    sizes = sizes[: len(sizes) - (closings if between else 0)] + [_CLOSING] * max(1, closings)
    if not any(sources.values()):
        sizes = [ROWS] * parts
    maker = _RowMaker(literals_in(selects), compared_columns(project, chosen))
    made: list[Part] = []
    last, moved = 0, timedelta()
    for size in sizes:
        moved += later if size == _CLOSING else timedelta()
        numbers = range(last + 1, last + size + 1)
        rows = {}
        for name, streamed in sources.items():
            table = project.tables[name]
            if streamed:
                rows[name] = tuple(maker.row(table, n, begin + step * n + moved, step) for n in numbers)
            elif not made:
                every = range(1, sum(sizes) + 1)
                rows[name] = tuple(maker.row(table, n, begin + step * n, EVER) for n in every)
        made.append(rows)
        last += size
    return tuple(made)


def inputs_around_midnight(project: Project, tables: Iterable[TableName], *, late_s: float) -> tuple[Part, ...]:
    """Generate parts whose first row may be almost `late_s` late, and belongs to windows that the others may close.

    Most windows end at midnight. The first row is a little before it, and the newest one of the part almost `late_s`
    after it: a watermark with a delay that is clearly shorter than `late_s` has passed midnight when the first row is
    late, so windows and other state that the row belongs to are gone.
    """
    step_s = LATE_SPAN * late_s / (ROWS - 1)
    begin = BEGIN - timedelta(seconds=(1 - LATE_SPAN) * late_s + step_s)
    return generated_parts(project, tables, begin=begin, step_s=step_s)


LATE_SPAN = 0.95
"""By how much the first row of a part is older than the last one, as a fraction of the permitted lateness."""


def longest_delay_s(project: Project, tables: Iterable[TableName]) -> float:
    """Return the longest delay of a watermark among tables, in seconds; 0 if there is none."""
    return max(delays_s(project, tables).values(), default=0.0)


def delays_s(project: Project, tables: Iterable[TableName]) -> dict[TableName, float]:
    """Return the longest delay of a watermark in each statement that has one, in seconds."""
    found: dict[TableName, float] = {}
    for name in tables:
        parsed = project.tables[name].parsed
        for read in parsed.reads if parsed is not None else ():
            if read.watermark is not None:
                found[name] = max(found.get(name, 0.0), interval_s(read.watermark.delay))
    return found


@dataclass(frozen=True, slots=True)
class _RowMaker:
    """Makes up rows of sources that match where statements compare them."""

    literals: Literals
    compared: ComparedColumns

    def row(self, table: Table, number: int, moment: datetime, lasts: timedelta) -> Row:
        """Return a row of a source; a change of a database is an insert, and every message can be read.

        Intervals begin at `moment`, like all other times of the row, and end after `lasts`.
        """
        columns, ddl = columns_of(table), table.parsed_ddl
        origins = {name: ColumnOrigin(table.name, name) for name, _ in columns}
        names = {name: first.column for name, at in origins.items() if (first := self.compared.joined.get(at))}
        row = made_up_row(named_alike(columns, names, self.literals), number, self.literals, moment)
        row = tuple(
            value + lasts if isinstance(value, date) and origins[name] in self.compared.ends else value
            for value, (name, _) in zip(row, columns, strict=True)
        )
        format = table_format(ddl.format)
        if format.has_files:
            return row
        fixed: dict[str, object] = {"_op": "c", "_corrupt": None}
        if format.topics and value_format(ddl) is not ValueFormat.RAW:
            fixed["_value"] = None
        fixed |= {name.lower(): None for name, _ in columns if is_assigned(ddl, name)}
        return tuple(fixed.get(name.lower(), value) for value, (name, _) in zip(row, columns, strict=True))


def stateful_depth(tables: Mapping[TableName, Table], chosen: Iterable[TableName]) -> int:
    """Return the most statements with state in any chain of the chosen tables, which come upstream first."""
    depth: dict[TableName, int] = {}
    for name in chosen:
        parsed = tables[name].parsed
        above = [depth.get(read.table, 0) for read in parsed.reads if read.streaming] if parsed else []
        depth[name] = max(above, default=0) + (parsed.stateful if parsed else 0)
    return max(depth.values(), default=0)


def sinks_of(project: Project, tables: Iterable[TableName]) -> tuple[TableName, ...]:
    """Return the statements among tables that no other of these reads, sorted by name."""
    chosen = {name for name in tables if name in project.tables and not project.tables[name].external}
    read = {each.table for name in chosen if (parsed := project.tables[name].parsed) for each in parsed.reads}
    return tuple(sorted(chosen - read))
