"""Tables as their DDL declares them, compared with what the catalog or a Delta log has."""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import unquote

from core.model.errors import EngineRefused
from core.model.states import TableFaultKind
from core.model.table_formats import format_of_others, is_wider, rounds, table_format
from core.ports.storage import Checkpoints, TableFault
from core.sql.ddl_reader import read_ddl
from core.sql.statement import TableDdl
from core.text.escaping import quoted_string_literal
from core.text.sentence import Sentence

NO_FILES = "/_headgate_no_files"
"""Where a partitioned table is created, below its own place: a folder that is never made."""
_TRUNCATED = " more fields"
"""In the type of a struct with more than 25 fields, as DESCRIBE writes it."""
_SAID_OF_FIELD = re.compile(r""" not null\b| comment (?:'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")""")
"""What a declaration says of a field of a struct, in lower case; no description repeats it (4.2.0)."""
_PHYSICAL_NAME = re.compile(r"^(\s*CREATE TABLE IF NOT EXISTS )(`[^`]+`|\w+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Described:
    """A table or view of the catalog."""

    columns: Mapping[str, str]
    """Types by name."""
    about: Mapping[str, str]
    """Details by the words of DESCRIBE EXTENDED."""

    @property
    def location(self) -> str:
        return path_of(self.about.get("Location", ""))

    @property
    def folder(self) -> str:
        """Return the folder of the version: of some formats the table lies below it."""
        subfolder = table_format(self.about.get("Provider", "").lower()).subfolder
        return self.location.removesuffix(f"/{subfolder}") if subfolder else self.location


def read_declared(ddl: str) -> TableDdl:
    """Read a compiled DDL; a physical name is no name of a table, so that another stands in its place."""
    found, problems = read_ddl(_PHYSICAL_NAME.sub(r"\1declared", ddl, count=1), "compiled DDL")
    if found is None:
        raise EngineRefused(f"{problems[0].summary} in {ddl[:80]}", error_class="HEADGATE_UNREADABLE_DDL")
    return found


def without_files(ddl: str, declared: TableDdl) -> str:
    """Return the DDL of a partitioned table at a place where nothing is.

    Over files CREATE TABLE takes the columns of their folders for overlapping ones, and leaves the table without
    partition columns: what it writes then lies flat and is passed over by readers, and a stream of it has no other
    columns (Spark 4.2.0, `CreateDataSourceTableCommand`).
    """
    literal, nowhere = (quoted_string_literal(place) for place in (declared.location, declared.location + NO_FILES))
    return ddl.replace(f"LOCATION {literal}", f"LOCATION {nowhere}", 1)


def why_other_table(declared: TableDdl, found: Described) -> Sentence | None:
    """Describe in what a table of the catalog is not the declared one; a column more is one that was added since."""
    if found.location != path_of(declared.location):
        return Sentence(f"is in the catalog at {found.location or 'no location'}, not at {path_of(declared.location)}")
    provider = found.about.get("Provider", "").lower()
    if provider != declared.format:
        return Sentence(f"is {provider or 'a view'} in the catalog, not {declared.format}")
    return why_other_columns(declared, found.columns)


def why_other_columns(declared: TableDdl, found: Mapping[str, str]) -> Sentence | None:
    """Describe which declared column is not among those of a table, given as types by name.

    A wider type, where the format takes one in place, is one that it has taken since.
    """
    widens = table_format(declared.format).widening_property
    types = {column.lower(): kind for column, kind in found.items()}
    for column in declared.columns:
        there = types.get(column.name.lower())
        if there is None:
            return Sentence(f"has no {column.name} {column.type} in the catalog")
        kinds = (plain_type(there), plain_type(column.type))
        if _TRUNCATED not in there and kinds[0] != kinds[1] and not (widens and is_wider(*kinds)):
            return Sentence(f"has {column.name} {there} in the catalog, not {column.name} {column.type}")
    return None


def plain_type(kind: str) -> str:
    """Return a type as DESCRIBE and a declaration both write it: names of fields without quotes, and types alone."""
    return _SAID_OF_FIELD.sub("", kind.lower()).replace("`", "")


def path_of(location: str) -> str:
    """Return a location as a path: `file:/a%20b` and `file:///a%20b` are `/a b`; other schemes stay as they are."""
    if location.startswith("file:"):
        location = unquote("/" + location.removeprefix("file:").lstrip("/"))
    return os.path.normpath(location) if location.startswith("/") else location.rstrip("/")


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
