"""Python functions as statements call them: by names that contain a hash of the code, registered in each session.

A session can have several bodies of one function, so a running or restarted statement keeps the one with which it was
deployed. The values here can be used without a parser.
"""

import re
import sys
from dataclasses import dataclass
from enum import StrEnum

READING_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
"""Version of Python that parses functions and jobs, so they cannot use newer syntax."""
_DIGITS = 8
REGISTERED = re.compile(r"\b(?P<function>[a-z_][a-z0-9_]*)__py_(?:volatile_)?[0-9a-f]{8}\b")
"""Matches the name under which a Python function is registered."""


class PythonKind(StrEnum):
    """What a Python function receives and returns."""

    VALUES = "values"
    """A def that is called with the values of one row, and returns one value."""
    SERIES = "series"
    """A def that is called with pandas Series of many rows, and returns a Series of the same length."""
    TABLE = "table"
    """A class whose `eval` is called with the values of one row, and yields any number of rows."""


@dataclass(frozen=True, slots=True)
class RegisteredFunction:
    """A Python function as a statement calls it, for registration in a session."""

    name: str
    """The name that contains a hash of the code, such as `score__py_0123abcd`."""
    returns: str
    kind: PythonKind = PythonKind.VALUES
    deterministic: bool = True
    code: str = ""
    """The file; empty if the function is only analysed, for which Spark needs no code."""

    @property
    def function(self) -> str:
        """The name that the file declares."""
        return self.name.rpartition("__py_")[0]


def registered_name(function: str, digest: str, *, deterministic: bool) -> str:
    """Return the name under which a function is registered; `digest` identifies its code."""
    return f"{function}__py_{'' if deterministic else 'volatile_'}{digest[:_DIGITS]}"


def is_python(text: str) -> bool:
    """True if the declaration of a function is a Python file, which begins with a comment that SQL does not have."""
    return text.removeprefix("\ufeff").lstrip().startswith("#")


def is_registered_name(name: str) -> bool:
    """True if a called name is one under which a Python function is registered."""
    return REGISTERED.fullmatch(name) is not None
