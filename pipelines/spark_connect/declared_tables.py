"""Compares declared tables with actual tables, as described by the catalog or a Delta log."""

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
"""Subfolder that never exists.

A partitioned table is created with this location, which is then replaced by the real one.
"""
_TRUNCATED = " more fields"
"""Suffix that DESCRIBE shows for a struct type with more than 25 fields."""
_SAID_OF_FIELD = re.compile(r""" not null\b| comment (?:'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")""")
"""Attributes of struct fields, in lower case, that a declaration contains but DESCRIBE omits (Spark 4.2.0)."""
_PHYSICAL_NAME = re.compile(r"^(\s*CREATE TABLE IF NOT EXISTS )(?:`[^`]+`|\w+)(?:\.(?:`[^`]+`|\w+))*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Described:
    """The result of DESCRIBE EXTENDED for a table or view."""

    columns: Mapping[str, str]
    """Column types by name."""
    about: Mapping[str, str]
    """All other details, by their label in the output."""

    @property
    def location(self) -> str:
        return path_of(self.about.get("Location", ""))

    @property
    def folder(self) -> str:
        """Return the folder of the table version, without the subfolder that some formats add for the table itself."""
        subfolder = table_format(self.about.get("Provider", "").lower()).subfolder
        return self.location.removesuffix(f"/{subfolder}") if subfolder else self.location


_COLUMN = re.compile(r"^ \|-- (.+): ([^:]+) \(nullable = (?:true|false)\)$", re.MULTILINE)
_TYPES = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}
"""SQL types by the names that SHOW TABLE EXTENDED shows for them. Most types have one name (Spark 4.2.0)."""


def described_in_listing(information: str) -> Described:
    """Convert what SHOW TABLE EXTENDED says about a table.

    It shows nested types without their fields, and VARCHAR as string, so such columns differ from every declaration.
    """
    columns = {name: _TYPES.get(kind, kind) for name, kind in _COLUMN.findall(information)}
    lines = (line.partition(": ") for line in information.splitlines() if not line.startswith(" "))
    return Described(columns, {label: value for label, _, value in lines})


def read_declared(ddl: str) -> TableDdl:
    """Parse a compiled DDL. Raises EngineRefused if it cannot be parsed.

    The physical table name is replaced by a placeholder, because declarations do not allow such names.
    """
    found, problems = read_ddl(_PHYSICAL_NAME.sub(r"\1declared", ddl, count=1), "compiled DDL")
    if found is None:
        raise EngineRefused(f"{problems[0].summary} in {ddl[:80]}", error_class="HEADGATE_UNREADABLE_DDL")
    return found


def without_files(ddl: str, declared: TableDdl) -> str:
    """Replace the location in the DDL of a partitioned table by a folder without files.

    If the location contains files, CREATE TABLE infers partition columns from their folders, reports them as
    overlapping, and creates a table without partition columns. Files written to that table would not be in partition
    folders, so readers would skip them, and a stream of the table would have no partition columns (Spark 4.2.0,
    `CreateDataSourceTableCommand`).
    """
    literal, nowhere = (quoted_string_literal(place) for place in (declared.location, declared.location + NO_FILES))
    return ddl.replace(f"LOCATION {literal}", f"LOCATION {nowhere}", 1)


def why_other_table(declared: TableDdl, found: Described) -> Sentence | None:
    """Explain how a table in the catalog differs from the declared one; None if it matches.

    Undeclared columns do not count as a difference.
    """
    if found.location != path_of(declared.location):
        return Sentence(f"is in the catalog at {found.location or 'no location'}, not at {path_of(declared.location)}")
    provider = found.about.get("Provider", "").lower()
    if provider != declared.format:
        return Sentence(f"is {provider or 'a view'} in the catalog, not {declared.format}")
    return why_other_columns(declared, found.columns)


def why_other_columns(declared: TableDdl, found: Mapping[str, str]) -> Sentence | None:
    """Explain which declared column is missing or has another type; None if all match.

    `found` maps the actual table's columns to their types. If the format can widen columns in place, a wider type also
    matches.
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
    """Remove quotes, comments and NOT NULL from a type, so that declarations compare equal to DESCRIBE."""
    return _SAID_OF_FIELD.sub("", kind.lower()).replace("`", "")


def path_of(location: str) -> str:
    """Convert a location to a path: `file:/a%20b` and `file:///a%20b` become `/a b`. Other schemes are kept."""
    if location.startswith("file:"):
        location = unquote("/" + location.removeprefix("file:").lstrip("/"))
    return os.path.normpath(location) if location.startswith("/") else location.rstrip("/")


def fault_of_topics(files: Checkpoints, ddl: TableDdl) -> TableFault | None:
    """Explain which Kafka topic of an external table does not exist; None if all exist.

    Raises TryAgain if no broker answers, and Refused if the client library is not installed.
    """
    found = files.source_fault("", ((0, ddl.table, ddl.location, ddl.format),))
    return found and TableFault(found[1].kind, f"{ddl.table} {found[1].why}", "create it, or correct subscribe")


def fault_where_missing(files: Checkpoints, ddl: TableDdl, folder: str, file: str) -> TableFault | None:
    """Explain why there is no external table with a log at its declared location; None if there is one.

    The remedy refers to `file`, the project file with the DDL. Raises TryAgain if the parent folder is not mounted or
    the log cannot be read. Writes nothing.
    """
    if (missing := missing_log(files, folder, ddl.format)) is None:
        return None
    remedy = f"correct LOCATION in {file}, or have its owner create the table: Headgate does not create external tables"
    if files.identity(folder, ddl.format):
        remedy = f"set LOCATION '{table_format(ddl.format).place_in(folder)}' in {file}"
    return TableFault(TableFaultKind.GONE, f"{ddl.table} has no table: {missing}", remedy)


def missing_log(files: Checkpoints, folder: str, format: str) -> str | None:
    """Explain why a folder contains no external table with a log; None if it contains one.

    Raises TryAgain if the parent folder is not mounted or the log cannot be read.
    """
    if files.identity(folder, format_of_others(format)):
        return None
    if not files.is_there(folder):
        return f"there is no folder {folder}"
    if files.identity(folder, format):
        return f"{folder} is the folder of one of Headgate's own versions, and contains no log"
    return f"{folder} has no _delta_log"


def fault_of_declaration(
    files: Checkpoints, ddl: TableDdl, folder: str, file: str, *, is_read: Callable[[str], bool] | None = None
) -> TableFault | None:
    """Explain which column or property of an existing table differs from its DDL; None if all match.

    Pass `is_read` when a statement starts. Only the columns that it reads are then compared, and a wider type that
    loses no digits is accepted, because Spark itself reports a type that it cannot continue with. Properties are always
    compared.
    """
    format = format_of_others(ddl.format)
    there = files.columns(folder, format)
    remedy = f"correct {file} to match the table, and plan {ddl.table}"
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
            has = "does not set it" if found is None else f"has {found}"
            why = f"{file} declares {name} = {value}, and the table at {folder} {has}"
            return TableFault(TableFaultKind.COLUMNS_CHANGED, why, remedy)
    return None


def _is_another(declared: str, there: str, *, at_start: bool) -> bool:
    kinds = (plain_type(there), plain_type(declared))
    if kinds[0] == kinds[1]:
        return False
    return not (at_start and is_wider(*kinds) and not rounds(*kinds))
