"""Names of tables, versions, queries and environments, and parsers for whole numbers and trigger intervals.

A name is validated only once, when it is parsed.
"""

import re
from functools import lru_cache
from typing import NewType

from core.model.errors import BadName

TableName = NewType("TableName", str)
"""Name of a table: lower-case letters, digits and underscores, never ending in `__v<N>`.

Names are in lower case because Spark's catalog ignores case.
"""

_TABLE = re.compile(r"[a-z_][a-z0-9_]{0,119}\Z")
_VERSIONED = re.compile(r"(?P<table>.+)__v(?P<version>[1-9][0-9]*)\Z")
_QUERY = re.compile(rf"(?P<table>{_TABLE.pattern[:-2]})@v(?P<version>0|[1-9][0-9]{{0,17}})\Z")
_WHOLE = re.compile(r"0{0,40}[0-9]{1,18}\Z")
_UNIT_S = {"millisecond": 0.001, "second": 1.0, "minute": 60.0, "hour": 3600.0, "day": 86_400.0, "week": 604_800.0}
_INTERVAL_PART = re.compile(r"(\d+)'?\s*(millisecond|second|minute|hour|day|week)s?", re.IGNORECASE)
_INTERVAL = re.compile(r"\s*(?:interval\s+)?([0-9]{1,18})\s*(millisecond|second|minute|hour)s?\s*")


def whole_number(text: str) -> int | None:
    """Parse a string of at most 18 ASCII digits as a number; return None for any other string.

    Python's own functions are too lenient or raise: `isdigit` accepts `²`, which `int` refuses; `isdecimal` accepts
    `٣`; `int` refuses 4301 digits.
    """
    return int(text) if _WHOLE.match(text) else None


def parse_table_name(text: str) -> TableName:
    """Parse a table name as typed by a user; raise BadName, whose remedy states the naming rule, if it is invalid."""
    name = text.strip().strip("`").lower()
    if not _TABLE.match(name) or ("__v" in name and _VERSIONED.match(name)):
        raise BadName(
            f"{text!r} is not a table name",
            remedy="use at most 120 letters, digits and underscores; it must not end in __v and a number",
        )
    return TableName(name)


def physical_name(table: TableName, version: int) -> str:
    """Return the physical table name of a version (1, 2, …), such as `orders__v3`."""
    return f"{table}__v{version}"


_MOVED_SUFFIX = r"fork|empty|[0-9a-f]{8}|rewrite\.[\w-]+|\w+__v\d+\.\d+"
"""Pattern of the suffix of a version's folder that a move, fork, rewrite or history step created."""


def is_folder_of_version(folder: str, table: object, version: object) -> bool:
    """True if a folder name is that of a version, with any prefix, or of a copy that a step has made of it."""
    version_name = re.escape(f"{table}__v{version}")
    return re.fullmatch(rf"[\w.]*{version_name}(\.({_MOVED_SUFFIX}))?", folder) is not None


def query_name(table: TableName, version: int) -> str:
    """Return the name of a version's streaming query, such as `orders@v3`; it is unique on a pool."""
    return f"{table}@v{version}"


def parse_statement_name(text: str) -> str:
    """Parse the name of a table or of a version (`orders@v3`), as typed by a user; raise BadName if it is invalid."""
    table, mark, version = text.strip().strip("`").lower().rpartition("@v")
    if not mark:
        return parse_table_name(text)
    number = whole_number(version)
    if not number:
        raise BadName(f"{text!r} is not a version of a table", remedy="a version is written TABLE@vN, as in orders@v2")
    return query_name(parse_table_name(table), number)


_ENVIRONMENT = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}\Z")


def is_environment_name(name: str) -> bool:
    """True if an environment can have this name: letters, digits, `_` and `-`, beginning with a letter."""
    return _ENVIRONMENT.match(name) is not None


def environment_words(name: str, *, protected: bool, base: str = "") -> str:
    """Return an environment's name as displayed everywhere: `PROD protected`, `dev`, or `pr-1 over dev` with a base."""
    words = f"{name.upper()} protected" if protected else name
    return f"{words} over {base}" if base else words


def up_command(name: str, *, protected: bool) -> str:
    """Return the command that starts an environment's agent, which in a protected one does not start by itself."""
    return f"headgate up {'--foreground ' if protected else ''}--env {name}"


def split_physical(name: str) -> tuple[TableName, int] | None:
    """Split `orders__v3` into (`orders`, 3); return None if the string is not a physical name."""
    found = _VERSIONED.match(name)
    return (TableName(found["table"]), int(found["version"])) if found else None


def split_query(name: str) -> tuple[TableName, int] | None:
    """Split `orders@v3` into (`orders`, 3); return None if the string is not a query name.

    External tables have version 0: `landed@v0`.
    """
    found = _QUERY.match(name)
    return (TableName(found["table"]), int(found["version"])) if found else None


@lru_cache(maxsize=256)
def trigger_s(text: str) -> float:
    """Return the interval of a processing-time trigger in seconds; 10 if it cannot be parsed."""
    found = _INTERVAL.fullmatch(text.lower())
    return int(found[1]) * _UNIT_S[found[2]] if found else 10.0


def interval_s(text: str) -> float:
    """Return the seconds of an interval such as `'1 minute'` or `INTERVAL '30' SECONDS`; 0 if it has no unit."""
    return sum(int(number) * _UNIT_S[unit.lower()] for number, unit in _INTERVAL_PART.findall(text))
