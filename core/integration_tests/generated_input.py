"""Rows for the sources of tables, generated from their declarations, with later rows that close every window."""

from collections.abc import Iterable, Mapping
from datetime import timedelta

from core.integration_tests.case_reader import sources_of
from core.model.names import TableName
from core.project.model import Project, Table
from core.project_reader.ephemeral_project import upstream_of
from core.statement_tests.case import Part
from core.statement_tests.case_writer import BEGIN, literals_in, made_up_row
from core.statement_tests.fixture_rows import columns_of

PARTS = 2
ROWS = 4
"""Number of rows of each source in each part."""

STEP_S = 5.0
"""Seconds between the times of two rows of a source."""


def generated_parts(
    project: Project, tables: Iterable[TableName], *, parts: int = PARTS, step_s: float = STEP_S
) -> tuple[Part, ...]:
    """Generate `parts` parts of input for tables and everything upstream, then parts that close their windows.

    Rows are numbered in the same way in all sources, so that joins by id find matches. A statement with state that
    writes a row only once the watermark has passed it also keeps the row that closes windows downstream, so there is
    one closing part for each such statement in a chain; each is a day later than the one before.
    """
    chosen = upstream_of(project, tables)
    selects = [parsed.select for name in chosen if (parsed := project.tables[name].parsed) is not None]
    literals, sources = literals_in(selects), sources_of(project, chosen)
    step = timedelta(seconds=step_s)
    closings = max(1, stateful_depth(project.tables, chosen)) if any(sources.values()) else 0
    made: list[Part] = []
    for part in range(parts + closings):
        closing = part - parts + 1
        numbers = range(part * ROWS + 1, (part + 1) * ROWS + 1) if closing <= 0 else (parts * ROWS + closing,)
        rows = {}
        for name, streamed in sources.items():
            columns = columns_of(project.tables[name])
            if streamed:
                rows[name] = tuple(
                    made_up_row(columns, n, literals, BEGIN + step * n + timedelta(days=max(0, closing)))
                    for n in numbers
                )
            elif part == 0:
                every = range(1, parts * ROWS + closings + 1)
                rows[name] = tuple(made_up_row(columns, n, literals, BEGIN + timedelta(seconds=n)) for n in every)
        made.append(rows)
    return tuple(made)


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
