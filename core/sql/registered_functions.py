"""Functions in Python and of jars, as statements call them: by names that contain a hash of the code.

They are registered in each session that runs a statement which calls them. A session can have several bodies of one
function in Python, so a running or restarted statement keeps the one with which it was deployed. The values here can be
used without a parser.
"""

import re
import sys
from dataclasses import dataclass
from enum import StrEnum

READING_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
"""Version of Python that parses functions and jobs, so they cannot use newer syntax."""
_DIGITS = 8
REGISTERED = re.compile(r"\b(?P<function>[a-z_][a-z0-9_]*)__(?P<language>py_(?:volatile_)?|jar_)[0-9a-f]{8}\b")
"""Matches the name under which a function in Python or of a jar is registered."""
_OF_A_JAR = re.compile(
    r"\bUSING\s+JAR\s+(?P<quote>['\"])(?P<file>[^'\"#]*)(?P<hash>#[0-9a-f]{64})?(?P=quote)", re.IGNORECASE
)


class PythonKind(StrEnum):
    """What a Python function receives and returns."""

    VALUES = "values"
    """A def that is called with the values of one row, and returns one value."""
    SERIES = "series"
    """A def that is called with pandas Series of many rows, and returns a Series of the same length."""
    TABLE = "table"
    """A class whose `eval` is called with the values of one row, and yields any number of rows."""


@dataclass(frozen=True, slots=True)
class JarClass:
    """The class of a function of a jar."""

    name: str
    """Its name in Java, such as `com.acme.Fmt`."""
    jar: str
    """Name of the jar's file when it was deployed."""
    sha256: str
    """The hash of the jar, in hexadecimal."""


@dataclass(frozen=True, slots=True)
class RegisteredFunction:
    """A function in Python or of a jar as a statement calls it, for registration in a session."""

    name: str
    """The name that contains a hash of the code, such as `score__py_0123abcd`."""
    returns: str
    kind: PythonKind = PythonKind.VALUES
    deterministic: bool = True
    code: str = ""
    """The Python file; empty if the function is only analysed, for which Spark needs no code."""
    java: JarClass | None = None
    """The class of a function of a jar; None for Python, and if the function is only analysed."""

    @property
    def function(self) -> str:
        """The name that the file declares."""
        return function_of(self.name)


def registered_name(function: str, digest: str, *, deterministic: bool) -> str:
    """Return the name under which a function is registered; `digest` identifies its code."""
    return f"{function}__py_{'' if deterministic else 'volatile_'}{digest[:_DIGITS]}"


def jar_function_name(function: str, digest: str) -> str:
    """Return the name under which a function of a jar is registered; `digest` identifies its class and jar."""
    return f"{function}__jar_{digest[:_DIGITS]}"


def function_of(registered: str) -> str:
    """Return the name that the file of a function declares; empty if the argument is no registered name."""
    found = REGISTERED.fullmatch(registered)
    return found["function"] if found else ""


def is_of_jar(text: str) -> bool:
    """True if the declaration of a function names a jar."""
    return _jar_in(text) is not None


def named_jar(text: str) -> str:
    """Return the name of the jar that the declaration of a function names; empty if there is none."""
    found = _jar_in(text)
    return found["file"] if found else ""


def jar_hash(text: str) -> str:
    """Return the hash of the jar in the declaration of a function; empty if it has none."""
    found = _jar_in(text)
    return found["hash"].removeprefix("#") if found and found["hash"] else ""


def with_jar_hash(text: str, sha256: str) -> str:
    """Return a declaration in which the jar has a hash, unless it has one already or there is no jar."""
    found = _jar_in(text)
    if found is None or found["hash"]:
        return text
    end = found.end("file")
    return f"{text[:end]}#{sha256}{text[end:]}"


def _jar_in(text: str) -> re.Match[str] | None:
    return None if is_python(text) else _OF_A_JAR.search(text)


def is_registered(text: str) -> bool:
    """True if a function is registered in sessions, so that its body does not replace its calls."""
    return is_python(text) or is_of_jar(text)


def is_python(text: str) -> bool:
    """True if the declaration of a function is a Python file, which begins with a comment that SQL does not have."""
    return text.removeprefix("\ufeff").lstrip().startswith("#")


def is_registered_name(name: str) -> bool:
    """True if a called name is one under which a function in Python or of a jar is registered."""
    return REGISTERED.fullmatch(name) is not None
