"""Edits of a declared table, one per kind of change, made without the parser: facts and texts change together."""

from collections.abc import Callable
from dataclasses import replace

from core.project.model import Script, Settings, Table
from core.sql.statement import Column, TableDdl, TableRead, Watermark


def edited(made: Table, *, mark: str, ddl: TableDdl | None = None, **facts: object) -> Table:
    """Return a table with changed facts; `mark` makes its texts differ as well."""
    assert made.dml is not None and made.parsed is not None
    changed = replace(made.parsed, **facts)  # type: ignore[arg-type]  # Fields by name.
    return replace(
        made,
        ddl=Script(made.ddl.path, f"{made.ddl.text} -- {mark}") if ddl else made.ddl,
        parsed_ddl=ddl or made.parsed_ddl,
        dml=Script(made.dml.path, f"{made.dml.text} -- {mark}"),
        parsed=changed,
    )


def _comment(made: Table) -> Table:
    return edited(made, mark="comment")


def _owner(made: Table) -> Table:
    return replace(made, settings=replace(made.settings, owner="before"))


def _trigger(made: Table) -> Table:
    return replace(made, settings=Settings(trigger="7 seconds", owner=made.settings.owner))


def _filter(made: Table) -> Table:
    return edited(made, mark="filter", pre="pre AND id > 0", canonical="pre AND id > 0")


def _after(made: Table) -> Table:
    return edited(made, mark="after", post="other" if made.parsed and made.parsed.stateful else "", canonical="after")


def _delay(made: Table) -> Table:
    assert made.parsed is not None
    waits = Watermark("id", "9 minutes")
    reads = tuple(replace(read, watermark=waits if read.watermark else None) for read in made.parsed.reads)
    return edited(made, mark="delay", reads=reads, canonical="delay")


def _aggregate(made: Table) -> Table:
    assert made.parsed is not None
    operators = tuple(replace(operator, detail="max") for operator in made.parsed.operators)
    return edited(made, mark="state", operators=operators, state="max" if operators else "", canonical="state")


def _fewer_columns(made: Table) -> Table:
    """Return the table as it was before its columns were added."""
    return edited(made, mark="fewer", ddl=replace(made.parsed_ddl, columns=()))


def _more_columns(made: Table) -> Table:
    """Return the table as it was before a column was dropped."""
    return edited(made, mark="more", ddl=replace(made.parsed_ddl, columns=(*made.parsed_ddl.columns, Column("x", ""))))


def _format(made: Table) -> Table:
    return edited(made, mark="format", ddl=replace(made.parsed_ddl, format="orc"))


def _source(made: Table) -> Table:
    """Return the table as it was when it read its first parent twice."""
    assert made.parsed is not None
    first = made.parsed.reads[0]
    return edited(
        made, mark="source", reads=(*made.parsed.reads, TableRead(first.table, streaming=True)), canonical="source"
    )


EDITS: tuple[Callable[[Table], Table], ...] = (
    _comment, _owner, _trigger, _filter, _after, _delay, _aggregate, _fewer_columns, _more_columns, _format, _source,
)  # fmt: skip
"""Functions that return the table as deployed before an edit: rows 1, 2, 11a, 3, 6b, 6c, 6d, 6a, 4, 5, 8 and 7a."""
