"""Whether the columns that statements read are there: each that is not is a Problem at its own line.

A statement is read a second time for it, and once for its text and the columns declared: so not with every project that
is read, but where something is done with the statement.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from core.model.names import TableName
from core.model.problems import Problem, Where, in_reading_order
from core.project.model import Project, Table
from core.project_reader.parse_cache import ParseCache
from core.sql.statement import Column, ParsedStatement, line_of
from core.text.wording import did_you_mean

if TYPE_CHECKING:
    from core.sql.lineage.model import UnresolvedName

Reading = tuple[ParsedStatement, Mapping[TableName, tuple[Column, ...]]]
"""A statement and the declared columns of what it reads."""


def wrong_columns(
    project: Project,
    tables: Iterable[TableName],
    parse_cache: ParseCache,
    read_ahead: Callable[[Sequence[Reading], ParseCache], None] = lambda *_: None,
) -> tuple[Problem, ...]:
    """Return a Problem for each column that a statement of these tables names and nothing in its FROM has.

    `read_ahead` may fill the cache with what is not known yet.
    """
    declared = {name: table.parsed_ddl.columns for name, table in project.tables.items()}
    found: list[Problem] = []
    unknown: list[tuple[Table, ParsedStatement]] = []
    for name in tables:
        table = project.tables.get(name)
        if table is not None and table.parsed is not None:
            known = parse_cache.known_wrong_columns(table.parsed, declared)
            if known is None:
                unknown.append((table, table.parsed))
            else:
                found += _problems(table, known)
    read_ahead(
        [(parsed, {r.table: declared.get(r.table, ()) for r in parsed.reads}) for _, parsed in unknown], parse_cache
    )
    for table, parsed in unknown:
        found += _problems(table, parse_cache.wrong_columns(parsed, declared))
    return in_reading_order(found)


def _problems(table: Table, wrong: "Iterable[UnresolvedName]") -> Iterator[Problem]:
    assert table.parsed is not None and table.dml is not None, f"{table.name} is external"
    for each in wrong:
        several = len(each.lacking) > 1
        lack = f"none of {', '.join(each.lacking)} has" if several else f"{each.lacking[0]} does not have"
        yield Problem(
            f"{table.name} reads {each.name}, a column that {lack}",
            did_you_mean(each.name.rpartition(".")[2].lower(), each.known) or f"columns: {', '.join(each.known)}",
            Where(table.dml.path, line_of(table.dml.text, table.parsed, each.offset)),
            table.name,
        )
