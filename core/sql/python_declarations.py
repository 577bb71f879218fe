"""Reading of the declaration of a Python function, which is the first comment of its file.

The comment is a CREATE FUNCTION without a body, so parameters, types and defaults are those of a function in SQL.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlglot import Token, TokenType

from core.sql.function_calls import Parameter, SqlFunction
from core.sql.function_reader import follow, read_head
from core.sql.jar_functions import read_jar_declaration
from core.sql.registered_functions import (
    REGISTERED,
    JarClass,
    PythonKind,
    RegisteredFunction,
    is_of_jar,
    is_python,
    registered_name,
)
from core.sql.tokens.data_types import fields_of, read_type
from core.sql.tokens.lexer import SqlDiagnostic, SqlText, closing_bracket, is_word, open_sql, statements_of, tokens_of
from core.text.escaping import quoted_name

_REMEDY = "begin the file with # CREATE FUNCTION <name>(<parameter> <type>, …) RETURNS <type>"
_HEAD = re.compile(r"#\s*CREATE\s+(?:OR\s+REPLACE\s+)?(?:TEMP(?:ORARY)?\s+)?FUNCTION\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class PythonDeclaration:
    """The declaration of a Python function."""

    source: SqlText
    """The whole file."""
    at: Token
    """The token of the name."""
    name: str
    """In lower case."""
    parameters: tuple[Parameter, ...]
    returns: str
    """The type of the result; that of a row if the function returns a table."""
    kind: PythonKind = PythonKind.VALUES
    deterministic: bool = True

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        """Names and types of the columns of a table function; empty for others."""
        return fields_of(self.returns) if self.kind is PythonKind.TABLE else ()

    @property
    def line(self) -> int:
        """The line of the name, counted from 1."""
        return self.source.line(int(self.at.start))

    def called_as(self, digest: str) -> SqlFunction:
        """Return the function as one whose calls are replaced by calls of its registered name."""
        pieces: list[str | int] = [f"{registered_name(self.name, digest, deterministic=self.deterministic)}("]
        for number in range(len(self.parameters)):
            pieces += (number, ", ") if number + 1 < len(self.parameters) else (number,)
        columns = tuple(name for name, _ in self.columns)
        return SqlFunction(self.name, self.parameters, self.returns, (*pieces, ")"), columns=columns)


def registered_functions(sql: str, declared: Iterable[tuple[str, str]]) -> tuple[RegisteredFunction, ...]:
    """Return the functions in Python and of jars that a statement calls, sorted by name.

    `sql` has the calls of registered names, `declared` the names and declarations of all functions that it uses. Raises
    SqlDiagnostic if a declaration cannot be read.
    """
    found = []
    for name, text in declared:
        if is_of_jar(text):
            jar = read_jar_declaration(text, f"{name}.sql")
            if jar.registered in sql:
                about = JarClass(jar.class_name, jar.jar, jar.sha256)
                found.append(RegisteredFunction(jar.registered, jar.returns, java=about))
            continue
        if not is_python(text):
            continue
        read = read_declaration(text, f"{name}.py")
        for called in sorted({each[0] for each in REGISTERED.finditer(sql) if each["function"] == name}):
            found.append(RegisteredFunction(called, read.returns, read.kind, read.deterministic, text))
    return tuple(sorted(found, key=lambda each: each.name))


def is_type(text: str) -> bool:
    """True if a text is one type of Spark and nothing else."""
    try:
        tokens = tokens_of(open_sql(text, ""))
        return bool(tokens) and read_type(tokens, 0)[1] == len(tokens)
    except (SqlDiagnostic, RecursionError):
        return False


def read_declaration(text: str, path: str) -> PythonDeclaration:
    """Parse the declaration at the beginning of a Python file. Raises SqlDiagnostic, at a position in the file."""
    source = open_sql(text, path)
    found = list(statements_of(tokens_of(SqlText(path, _comment(source.text)))))
    if not found:
        raise SqlDiagnostic("the file does not declare a function", _REMEDY, 0)
    tokens = found[0]
    head = read_head(tokens, source, _REMEDY)
    returns, kind, deterministic = _clauses(tokens, head.after, head.name)
    return PythonDeclaration(
        source=source,
        at=head.at,
        name=head.name,
        parameters=head.parameters,
        returns=returns,
        kind=kind,
        deterministic=deterministic,
    )


def _comment(text: str) -> str:
    """Return the comment that declares the function, at its offsets in the file; everything before it is blank."""
    lines = text.splitlines(keepends=True)
    first = 0
    while first < len(lines) and not _HEAD.match(lines[first]):
        if lines[first].strip() and not lines[first].startswith("#"):
            raise SqlDiagnostic("the file does not begin with the declaration of a function", _REMEDY, 0)
        first += 1
    last = first
    while last < len(lines) and lines[last].startswith("#") and lines[last].strip("# \t\r\n"):
        last += 1
    blank = "".join(re.sub(r"[^\n]", " ", line) for line in lines[:first])
    return blank + "".join(f" {line[1:]}" for line in lines[first:last])


def _clauses(tokens: Sequence[Token], index: int, name: str) -> tuple[str, PythonKind, bool]:
    """Return the type of the result, the kind of the function, and whether it is deterministic."""
    if index >= len(tokens) or not is_word(tokens[index], "RETURNS"):
        at = tokens[min(index, len(tokens) - 1)].start
        raise SqlDiagnostic(f"{name} does not declare its result", "write RETURNS <type> after its parameters", at)
    kind, deterministic = PythonKind.VALUES, True
    if index + 1 < len(tokens) and is_word(tokens[index + 1], "TABLE"):
        kind = PythonKind.TABLE
        returns, index = _row(tokens, index + 2)
    else:
        returns, index = read_type(tokens, index + 1)
    while index < len(tokens):
        if follow(tokens, index, "LANGUAGE", "PYTHON"):
            index += 2
        elif follow(tokens, index, "PARAMETER", "STYLE", "PANDAS") and kind is not PythonKind.TABLE:
            kind, index = PythonKind.SERIES, index + 3
        elif follow(tokens, index, "NOT", "DETERMINISTIC"):
            deterministic, index = False, index + 2
        elif is_word(tokens[index], "DETERMINISTIC"):
            index += 1
        elif follow(tokens, index, "COMMENT") and tokens[index + 1 : index + 2] and _is_string(tokens[index + 1]):
            index += 2
        else:
            remedy = "write an empty line after the declaration, or one of LANGUAGE PYTHON, PARAMETER STYLE PANDAS, "
            remedy += "NOT DETERMINISTIC and COMMENT '…'"
            raise SqlDiagnostic(f"{tokens[index].text} is not expected here", remedy, tokens[index].start)
    return returns, kind, deterministic


def _row(tokens: Sequence[Token], opened: int) -> tuple[str, int]:
    """Return the type of the rows of a table function, and the index after the bracket that closes its columns."""
    at = tokens[min(opened, len(tokens) - 1)].start
    if opened >= len(tokens) or tokens[opened].token_type is not TokenType.L_PAREN:
        raise SqlDiagnostic("the columns of the table are missing", "write RETURNS TABLE (<column> <type>, …)", at)
    end, index, found = closing_bracket(tokens, opened), opened + 1, dict[str, str]()
    while index < end:
        name = str(tokens[index].text)
        if name.lower() in map(str.lower, found):
            raise SqlDiagnostic(f"the column {name} is declared twice", "rename one of them", tokens[index].start)
        found[name], index = read_type(tokens, index + 1)
        if index < end and tokens[index].token_type is not TokenType.COMMA:
            raise SqlDiagnostic("the columns cannot be parsed", "write <column> <type>, …", tokens[index].start)
        index += 1
    if not found:
        raise SqlDiagnostic("the table has no columns", "write RETURNS TABLE (<column> <type>, …)", at)
    return f"struct<{','.join(f'{quoted_name(name)}:{kind}' for name, kind in found.items())}>", end + 1


def _is_string(token: Token) -> bool:
    return token.token_type is TokenType.STRING
