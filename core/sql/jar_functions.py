"""Reading of the declaration of a function of a jar, which names its class and the jar as in Spark.

The declaration of a revision also has the hash of the jar: `USING JAR 'acme.jar#<sha256>'`. Project readers add it, so
a changed jar is a changed declaration, and a deployed statement names the content that it runs.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import Token, TokenType

from core.model.problems import Problem
from core.sql.function_calls import Parameter, SqlFunction
from core.sql.function_reader import follow, read_head
from core.sql.registered_functions import jar_function_name
from core.sql.tokens.data_types import read_type
from core.sql.tokens.lexer import SqlDiagnostic, SqlText, is_word, open_sql, statements_of, tokens_of

_REMEDY = "write CREATE FUNCTION <name>(<parameter> <type>, …) RETURNS <type> AS '<class>' USING JAR '<file>.jar'"
_CLASS = re.compile(r"[A-Za-z_$][\w$]*(\.[A-Za-z_$][\w$]*)*\Z")
_FILE = re.compile(r"(?P<file>[^/\\#]+\.jar)(?:#(?P<sha256>[0-9a-f]{64}))?\Z")


@dataclass(frozen=True, slots=True)
class JarDeclaration:
    """The declaration of a function of a jar."""

    source: SqlText
    name: str
    """In lower case."""
    at: Token
    """The token of the name."""
    parameters: tuple[Parameter, ...]
    returns: str
    class_name: str
    """The name in Java, such as `com.acme.Fmt`, or `com.acme.Fmt$Inner` for a class within another."""
    class_at: int
    """Offset of the class in the file."""
    jar: str
    """Name of the jar, which lies in the folder of the declaration."""
    sha256: str
    """The hash of the jar in hexadecimal; empty if there is no such file."""
    jar_at: int
    """Offset of the jar in the file."""

    @property
    def line(self) -> int:
        """The line of the name, counted from 1."""
        return self.source.line(int(self.at.start))

    @property
    def registered(self) -> str:
        """The name under which Spark knows the function, which contains a hash of class and jar."""
        digest = hashlib.sha256(f"{self.class_name}\n{self.sha256}".encode()).hexdigest()
        return jar_function_name(self.name, digest)

    def called(self) -> SqlFunction:
        """Return the function as one whose calls are replaced by calls of its registered name."""
        pieces: list[str | int] = [f"{self.registered}("]
        for number in range(len(self.parameters)):
            pieces += (number, ", ") if number + 1 < len(self.parameters) else (number,)
        return SqlFunction(self.name, self.parameters, self.returns, (*pieces, ")"))


def read_jar_function(text: str, path: str) -> tuple[JarDeclaration | None, tuple[Problem, ...]]:
    """Parse a file that declares one function of a jar; return None and the Problem if it is invalid."""
    source = open_sql(text, path)
    try:
        return read_jar_declaration(text, path), ()
    except SqlDiagnostic as diagnostic:
        return None, (source.problem(diagnostic),)
    except RecursionError:
        return None, (source.problem(SqlDiagnostic("its types are nested too deeply", "simplify them", 0)),)


def read_jar_declaration(text: str, path: str) -> JarDeclaration:
    """Parse the declaration of a function of a jar. Raises SqlDiagnostic, at a position in the file."""
    source = open_sql(text, path)
    statements = list(statements_of(tokens_of(source)))
    if len(statements) != 1:
        at = statements[1][0].start if statements else 0
        raise SqlDiagnostic("a file contains one function", "put each function in its own file", at)
    tokens = statements[0]
    head = read_head(tokens, source, _REMEDY)
    if len(head.parameters) > MOST_PARAMETERS:
        summary = f"{head.name} has {len(head.parameters)} parameters, and Spark has interfaces for {MOST_PARAMETERS}"
        raise SqlDiagnostic(summary, "pass a STRUCT", head.at.start)
    if head.after >= len(tokens) or not is_word(tokens[head.after], "RETURNS"):
        at = tokens[min(head.after, len(tokens) - 1)].start
        raise SqlDiagnostic(f"{head.name} does not declare its result", "write RETURNS <type> before AS", at)
    if follow(tokens, head.after + 1, "TABLE"):
        raise SqlDiagnostic(
            f"{head.name} returns a table, and a function of a jar returns one value",
            "return an ARRAY of STRUCT, and use inline() in the statement",
            tokens[head.after + 1].start,
        )
    returns, index = read_type(tokens, head.after + 1)
    index = _after_clauses(tokens, index, head.name)
    class_name, class_at = _quoted(tokens, index + 1, "the class is missing after AS")
    if not _CLASS.match(class_name):
        summary = f"{class_name!r} is not the name of a class"
        raise SqlDiagnostic(summary, "write its name with the package: AS 'com.acme.Fmt'", class_at)
    if not follow(tokens, index + 2, "USING", "JAR"):
        at = tokens[min(index + 2, len(tokens) - 1)].start
        raise SqlDiagnostic(f"{head.name} does not name its jar", "write USING JAR '<file>.jar' after the class", at)
    named, jar_at = _quoted(tokens, index + 4, "the jar is missing after USING JAR")
    found = _FILE.match(named)
    if found is None:
        remedy = f"put the jar beside {path.rpartition('/')[2]}, and write its name: USING JAR 'acme.jar'"
        raise SqlDiagnostic(f"{named!r} is not the name of a jar in this folder", remedy, jar_at)
    if len(tokens) > index + 5:
        summary, remedy = f"{tokens[index + 5].text} is not expected after the jar", "remove it"
        if tokens[index + 5].token_type is TokenType.COMMA:
            summary, remedy = "a function has one jar", "build one jar that contains what its class needs"
        raise SqlDiagnostic(summary, remedy, tokens[index + 5].start)
    return JarDeclaration(
        source, head.name, head.at, head.parameters, returns,
        class_name=class_name, class_at=class_at, jar=found["file"], sha256=found["sha256"] or "", jar_at=jar_at,
    )  # fmt: skip


MOST_PARAMETERS = 22
"""Maximum number of arguments of a function of a jar (Spark 4.2.0)."""


def _after_clauses(tokens: Sequence[Token], index: int, name: str) -> int:
    """Return the index of AS."""
    while index < len(tokens) and not is_word(tokens[index], "AS"):
        if follow(tokens, index, "NOT", "DETERMINISTIC"):
            remedy = "write it in Python, with NOT DETERMINISTIC, or pass what differs as an argument"
            summary = f"{name} is not deterministic, and Spark assumes that functions of jars are"
            raise SqlDiagnostic(summary, remedy, tokens[index].start)
        words = 1 if is_word(tokens[index], "DETERMINISTIC") else 0
        words = 2 if follow(tokens, index, "LANGUAGE", "JAVA") or is_word(tokens[index], "COMMENT") else words
        if not words:
            summary, remedy = f"{tokens[index].text} is not expected before AS", "remove it"
            raise SqlDiagnostic(summary, remedy, tokens[index].start)
        index += words
    return index


def _quoted(tokens: Sequence[Token], index: int, missing: str) -> tuple[str, int]:
    if index >= len(tokens) or tokens[index].token_type is not TokenType.STRING:
        raise SqlDiagnostic(missing, _REMEDY, tokens[min(index, len(tokens) - 1)].start)
    return str(tokens[index].text), int(tokens[index].start)
