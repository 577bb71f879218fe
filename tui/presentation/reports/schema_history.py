"""The columns of a table in each of its versions, who reads them, and which compatibility modes allow the next ones."""

from dataclasses import dataclass
from typing import Any

from core.changes.schema_compatibility import TableColumns, allowing_modes, conflicts
from core.model.names import TableName
from core.project.model import Compatibility
from core.sql.statement import Column
from tui.presentation.styling.table_layout import format_table
from tui.presentation.styling.value_formatting import moment

SERVES, REPLACED, DELETED, NEVER_SERVED, ALTERED = "serves", "replaced", "deleted", "never served", "altered"
"""States of a schema; an altered one was replaced by another one of the same version."""


@dataclass(frozen=True, slots=True)
class TableSchema:
    """The columns of one version of a table; a version that was altered in place has several."""

    version: int
    """0 for the columns that the files declare and no version has."""
    columns: TableColumns
    since: float | None = None
    """When the version got these columns, in epoch seconds; None for declared columns."""
    state: str = ""
    """One of the states above; empty for declared columns."""
    readers: tuple[str, ...] = ()
    """The statements that are bound to the version, as `table@v1`, and the exposures that read it; sorted."""
    named: frozenset[str] = frozenset()
    """The columns, in lower case, that a later schema drops and that readers may name; exposures may name any."""

    @property
    def label(self) -> str:
        """The version as `v2`, or `next` for declared columns."""
        return f"v{self.version}" if self.version else "next"


@dataclass(frozen=True, slots=True)
class SchemaHistory:
    """The schemas of a table, oldest first; the declared one is last if it differs from the serving one."""

    table: TableName
    schemas: tuple[TableSchema, ...] = ()
    mode: Compatibility | None = None
    """The compatibility mode; None if no readable file declares the table."""
    missing: str = ""
    """Why there is no history, as a sentence; empty if there is one."""
    unreadable: tuple[int, ...] = ()
    """The versions with a DDL that cannot be parsed, so that schemas are missing; sorted."""

    def earlier(self, at: int) -> tuple[TableSchema, ...]:
        """Return the schemas with which the one at an index is compared, oldest first.

        A version was compared with all before it. Declared columns are compared, as in a plan, with the versions that
        still exist.
        """
        before = self.schemas[:at]
        return (
            before if self.schemas[at].version else tuple(each for each in before if each.state in (SERVES, REPLACED))
        )

    def allowing(self, at: int) -> tuple[Compatibility, ...]:
        """Return the modes that allow the schema at an index after those before it."""
        schema, before = self.schemas[at], self.earlier(at)
        if schema.version:
            compared = [(each.columns, each is before[-1], each.named) for each in before]
        else:
            compared = [(each.columns, each.state == SERVES or bool(each.readers), each.named) for each in before]
        return allowing_modes(compared, schema.columns)


def edited_columns(old: TableColumns, new: TableColumns) -> tuple[str, ...]:
    """Return what differs between two schemas: `+name type`, `-name`, and `name: type → type`."""
    before, after = ({column.name.lower(): column for column in each.columns} for each in (old, new))
    added = (f"+{_declaration(column)}" for name, column in after.items() if name not in before)
    dropped = (f"-{column.name}" for name, column in before.items() if name not in after)
    kept = ((before[name], column) for name, column in after.items() if name in before)
    changed = (f"{now.name}: {_type(was)} → {_type(now)}" for was, now in kept if _type(was) != _type(now))
    found = (*added, *dropped, *changed)
    common = [[name for name in each if name in before and name in after] for each in (before, after)]
    return (*found, "another order") if common[0] != common[1] else found


def _declaration(column: Column) -> str:
    return f"{column.name} {_type(column)}"


def _type(column: Column) -> str:
    return column.type if column.nullable else f"{column.type} NOT NULL"


def schema_lines(found: SchemaHistory, now: float) -> tuple[str, ...]:
    """Format the schemas as lines, each below the one before, and then the conflicts of the last with all others."""
    if found.missing:
        return (found.missing,)
    versions = []
    for at, schema in enumerate(found.schemas):
        before = found.schemas[at - 1].columns if at else None
        edits = edited_columns(before, schema.columns) if before else tuple(map(_declaration, schema.columns.columns))
        since = moment(schema.since, now) if schema.since is not None else "in the files"
        versions.append((schema.label, since, schema.state or "-", ", ".join(edits) or "no difference"))
    lines = [f"{found.table}  compatibility: {found.mode or 'unknown'}", ""]
    lines += format_table(("VERSION", "SINCE", "STATE", "COLUMNS"), versions)
    readers = [(schema.label, ", ".join(schema.readers)) for schema in found.schemas if schema.readers]
    if readers:
        lines += ["", *format_table(("VERSION", "READ BY"), readers)]
    elif not found.unreadable:
        lines += ["", "no known reader"]
    if len(found.schemas) > 1:
        allowed = [(schema.label, ", ".join(found.allowing(at))) for at, schema in enumerate(found.schemas) if at]
        lines += ["", *format_table(("VERSION", "ALLOWED BY"), allowed)]
        if rows := _conflict_rows(found):
            lines += ["", *format_table(("VERSION", "AFTER", "NOT", "BECAUSE IT"), rows)]
    if found.unreadable:
        versions_named = ", ".join(f"v{version}" for version in found.unreadable)
        lines += ["", f"the DDL of {versions_named} cannot be parsed: its columns are unknown, and nothing is compared"]
    return tuple(lines)


def _conflict_rows(found: SchemaHistory) -> list[tuple[str, str, str, str]]:
    rows: dict[tuple[str, str, str], dict[str, None]] = {}
    for at, schema in enumerate(found.schemas):
        for before in found.earlier(at):
            for conflict in conflicts(before.columns, schema.columns):
                allowed = "" if conflict.concerns(before.named) else "; allowed, as no known reader names it"
                key = schema.label, str(conflict.direction), f"{conflict.why}{allowed}"
                rows.setdefault(key, {})[before.label] = None
    return [(label, ", ".join(before), direction, words) for (label, direction, words), before in rows.items()]


def schema_as_json(found: SchemaHistory) -> dict[str, Any]:
    """Return a `headgate.schema/1` document; fields may be added, but never changed.

    `{"format", "table", "mode", "missing", "schemas": [{"version", "since", "state", "columns": [{"name", "type",
    "nullable"}], "partitioning": [name], "readers": [name], "edits": [text], "allowed_by": [mode], "conflicts":
    [{"after": version, "column", "direction", "kind", "sentence", "allowed"}]}], "unreadable": [version]}`. The version
    of declared columns is null. A conflict is allowed if it only affects readers that name a column, and none does.
    """
    return {
        "format": "headgate.schema/1",
        "table": found.table,
        "mode": found.mode,
        "missing": found.missing or None,
        "schemas": [_schema_as_json(found, at) for at in range(len(found.schemas))],
        "unreadable": list(found.unreadable),
    }


def _schema_as_json(found: SchemaHistory, at: int) -> dict[str, Any]:
    schema, earlier = found.schemas[at], found.schemas[:at]
    return {
        "version": schema.version or None,
        "since": schema.since,
        "state": schema.state or None,
        "columns": [{"name": c.name, "type": c.type, "nullable": c.nullable} for c in schema.columns.columns],
        "partitioning": list(schema.columns.partitioning),
        "readers": list(schema.readers),
        "edits": list(edited_columns(earlier[-1].columns, schema.columns)) if earlier else [],
        "allowed_by": list(found.allowing(at)),
        "conflicts": [
            {
                "after": before.version or None,
                "column": conflict.column or None,
                "direction": conflict.direction,
                "kind": conflict.why.kind.code,
                "sentence": str(conflict.why),
                "allowed": not conflict.concerns(before.named),
            }
            for before in found.earlier(at)
            for conflict in conflicts(before.columns, schema.columns)
        ],
    }
