"""What a compiled DDL declares, how it is said to a catalog, and in what a table that is there is another one."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote

from core.model.errors import EngineRefused
from core.model.table_formats import is_wider, table_format
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
