"""Tables with a log that others write: there, and with the columns and properties that their declaration expects."""

from collections.abc import Callable

from core.model.states import TableFaultKind
from core.model.table_formats import format_of_others, is_wider, rounds, table_format
from core.ports.storage import Checkpoints, TableFault
from core.sql.statement import TableDdl
from pipelines.spark.declared_tables import plain_type


def fault_where_missing(files: Checkpoints, ddl: TableDdl, folder: str, file: str) -> TableFault | None:
    """Return why a declared table with a log is not where it is said to be, `file` being its DDL's; None where it is.

    Raises TryAgain where the folder around it is not mounted, or its log cannot be read. Nothing is made in it.
    """
    if (missing := missing_log(files, folder, ddl.format)) is None:
        return None
    remedy = f"correct LOCATION in {file}, or have it written first: Headgate makes no table of others"
    if files.identity(folder, ddl.format):
        remedy = f"say LOCATION '{table_format(ddl.format).place_in(folder)}' in {file}"
    return TableFault(TableFaultKind.GONE, f"{ddl.table} has no table: {missing}", remedy)


def missing_log(files: Checkpoints, folder: str, format: str) -> str | None:
    """Explain why no table with a log that others write lies in a folder; None where one does. Raises as above."""
    if files.identity(folder, format_of_others(format)):
        return None
    if not files.is_there(folder):
        return f"there is no folder {folder}"
    if files.identity(folder, format):
        return f"{folder} is the folder of a version of Headgate's own, with no log in it"
    return f"{folder} has no _delta_log"


def fault_of_declaration(
    files: Checkpoints, ddl: TableDdl, folder: str, file: str, *, is_read: Callable[[str], bool] | None = None
) -> TableFault | None:
    """Return in what a table that is there has other columns or properties than its DDL says; None where it has not.

    For the start of a statement only columns count that it reads, and no wider type that rounds nothing: what that may
    end says so itself.
    """
    format = format_of_others(ddl.format)
    there = files.columns(folder, format)
    remedy = f"declare in {file} what is there, and plan {ddl.table}"
    if there is not None:
        types = {name.lower(): kind for name, kind in there.items()}
        for column in ddl.columns:
            kind = types.get(column.name.lower())
            other = kind is None or _is_another(column.type, kind, at_start=is_read is not None)
            if not other or (is_read is not None and not is_read(column.name)):
                continue
            has = f"has no such column: it has {', '.join(there)}" if kind is None else f"has it as {kind}"
            why = f"{file} declares {column.name} {column.type}, and the table at {folder} {has}"
            return TableFault(TableFaultKind.COLUMNS_CHANGED, why, remedy)
    said = {name.lower(): value for name, value in files.properties(folder, format).items()}
    for name, value in ddl.properties:
        found = said.get(name.lower())
        if (found or "").lower() != value.lower():
            has = "does not say it" if found is None else f"says {found}"
            why = f"{file} declares {name} = {value}, and the table at {folder} {has}"
            return TableFault(TableFaultKind.COLUMNS_CHANGED, why, remedy)
    return None


def _is_another(declared: str, there: str, *, at_start: bool) -> bool:
    kinds = (plain_type(there), plain_type(declared))
    if kinds[0] == kinds[1]:
        return False
    return not (at_start and is_wider(*kinds) and not rounds(*kinds))
