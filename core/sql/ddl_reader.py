"""Parses DDL files, each of which contains one `CREATE TABLE`.

The names of columns and fields keep their case, because JSON readers match fields by case. Types are in lower case.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from sqlglot import Token, TokenType

from core.model.errors import BadName
from core.model.names import parse_table_name
from core.model.problems import Problem
from core.model.table_formats import table_format
from core.sql.statement import Column, TableDdl
from core.sql.tokens.data_types import element_type, fields_of, key_type, read_type
from core.sql.tokens.lexer import (
    SqlDiagnostic,
    SqlText,
    closing_bracket,
    is_word,
    key_values,
    open_sql,
    statements_of,
    tokens_of,
)

_REMEDY = "write CREATE TABLE <table> (<column> <type>, …) USING <format>"


@dataclass(slots=True)
class _Clauses:
    format: str = ""
    partitioning: tuple[str, ...] = ()
    location: str = ""
    properties: tuple[tuple[str, str], ...] = ()
    options: tuple[tuple[str, str], ...] = ()
    comment: str = ""
    seen: set[str] = field(default_factory=set)


def read_ddl(text: str, path: str) -> tuple[TableDdl | None, tuple[Problem, ...]]:
    """Parse the only CREATE TABLE in a DDL file; if that fails, return None and the Problem.

    `path` is the file's name in problems.
    """
    source = open_sql(text, path)
    try:
        statements = list(statements_of(tokens_of(source)))
        if not statements:
            raise SqlDiagnostic("the file contains no statement", _REMEDY, 0)
        if len(statements) > 1:
            remedy = "put each table in its own ddl file"
            raise SqlDiagnostic("a ddl file contains one CREATE TABLE", remedy, statements[1][0].start)
        return _read(statements[0], source), ()
    except SqlDiagnostic as diagnostic:
        return None, (source.problem(diagnostic),)
    except RecursionError:
        return None, (source.problem(SqlDiagnostic("a type is nested too deeply to be read safely", "flatten it", 0)),)


def column_line(text: str, column: str) -> int:
    """Return the line, counted from 1, on which a valid DDL file declares a column.

    If it does not declare the column, the line of CREATE TABLE is returned.
    """
    source = open_sql(text, "")
    tokens = next(iter(statements_of(tokens_of(source))))
    at = next(n for n, token in enumerate(tokens) if token.token_type is TokenType.L_PAREN)
    end, start = closing_bracket(tokens, at), at + 1
    while start < end:
        if str(tokens[start].text).lower() == column.lower():
            return source.line(tokens[start].start)
        _, start = _column(tokens[:end], start)
        start += 1
    return source.line(tokens[0].start)


def _read(tokens: list[Token], source: SqlText) -> TableDdl:
    at = _name_at(tokens)
    try:
        table = parse_table_name(str(tokens[at].text))
    except BadName as error:
        raise SqlDiagnostic(error.summary, error.remedy, tokens[at].start, subject=str(tokens[at].text)) from error
    at += 1
    if at < len(tokens) and tokens[at].token_type is TokenType.DOT:
        remedy = "write the table name alone: Headgate chooses the database"
        raise SqlDiagnostic(
            "the table name cannot be qualified with a database", remedy, tokens[at - 1].start, subject=table
        )
    if at >= len(tokens) or tokens[at].token_type is not TokenType.L_PAREN:
        place = tokens[min(at, len(tokens) - 1)].start
        raise SqlDiagnostic("the table has no columns", _REMEDY, place, subject=table)
    end = closing_bracket(tokens, at)
    columns = _columns(tokens[at + 1 : end], tokens[at])
    clauses = _Clauses()
    index = end + 1
    while index < len(tokens):
        index = _clause(tokens, index, clauses)
    if not clauses.format:
        remedy = "add USING parquet (or its actual format) after the columns"
        raise SqlDiagnostic("the table has no format", remedy, tokens[end].start, subject=table)
    _take_path(clauses, tokens[0])
    _take_source(clauses, tokens[0])
    names = [column.name.lower() for column in columns]
    for name in clauses.partitioning:
        if name.lower() not in names:
            remedy = f"partition by one of its columns: {', '.join(names)}"
            raise SqlDiagnostic(f"{name} is not a column of the table", remedy, tokens[end].start, subject=name)
    return TableDdl(
        table,
        columns,
        format=clauses.format,
        partitioning=clauses.partitioning,
        location=clauses.location,
        properties=clauses.properties,
        options=clauses.options,
        comment=clauses.comment,
        line=source.line(tokens[0].start),
    )


def _name_at(tokens: list[Token]) -> int:
    """Return the index of the table name, after CREATE [EXTERNAL] TABLE [IF NOT EXISTS]."""
    words = [str(token.text).upper() for token in tokens[:8]]
    at = 1
    if words[0] != "CREATE":
        raise SqlDiagnostic(f"a ddl file contains CREATE TABLE, not {tokens[0].text[:30]}", _REMEDY, tokens[0].start)
    if words[at : at + 1] == ["EXTERNAL"]:
        at += 1
    if words[at : at + 1] != ["TABLE"]:
        found = " ".join(words[:3])[:40]
        raise SqlDiagnostic(f"a ddl file contains CREATE TABLE, not {found}", _REMEDY, tokens[0].start)
    at += 1
    if words[at : at + 3] == ["IF", "NOT", "EXISTS"]:
        at += 3
    if at >= len(tokens):
        raise SqlDiagnostic("the table name is missing", _REMEDY, tokens[0].start)
    return at


def _columns(tokens: Sequence[Token], opened: Token) -> tuple[Column, ...]:
    found: list[Column] = []
    names: set[str] = set()
    index = 0
    while index < len(tokens):
        column, index = _column(tokens, index)
        if column.name.lower() in names:
            remedy = "give each column a unique name"
            raise SqlDiagnostic(f"column {column.name} is declared twice", remedy, tokens[index - 1].start)
        names.add(column.name.lower())
        found.append(column)
        if index < len(tokens):
            if tokens[index].token_type is not TokenType.COMMA or index + 1 == len(tokens):
                remedy = "separate columns with commas; allowed after a type: NOT NULL, COMMENT '…'"
                raise SqlDiagnostic(f"{tokens[index].text} is not allowed here", remedy, tokens[index].start)
            index += 1
    if not found:
        raise SqlDiagnostic("the table has no columns", _REMEDY, opened.start)
    return tuple(found)


def _column(tokens: Sequence[Token], index: int) -> tuple[Column, int]:
    token = tokens[index]
    if token.token_type in (TokenType.STRING, TokenType.NUMBER, TokenType.COMMA):
        raise SqlDiagnostic("a column name is missing here", "write <column> <type>", token.start)
    kind, index = read_type(tokens, index + 1) if index + 1 < len(tokens) else _no_type(token)
    if twice := _field_named_twice(kind):
        remedy = "give each field of a struct a unique name: case does not tell them apart"
        raise SqlDiagnostic(f"field {twice} of {token.text} is declared twice", remedy, token.start)
    nullable, comment = True, ""
    while index < len(tokens) and tokens[index].token_type is not TokenType.COMMA:
        if is_word(tokens[index], "NOT") and index + 1 < len(tokens) and is_word(tokens[index + 1], "NULL"):
            nullable, index = False, index + 2
        elif is_word(tokens[index], "COMMENT") and index + 1 < len(tokens):
            comment, index = str(tokens[index + 1].text), index + 2
        else:
            remedy = "allowed after a type: NOT NULL, COMMENT '…'"
            raise SqlDiagnostic(f"{tokens[index].text} is not allowed here", remedy, tokens[index].start)
    return Column(str(token.text), "", kind, nullable, comment), index


def _field_named_twice(kind: str) -> str:
    """Return a field name that occurs twice in a struct, at any depth and in any case; empty if there is none."""
    inner = [key_type(kind)] if kind.startswith("map<") else []
    inner += [element_type(kind)] if kind.startswith(("array<", "map<")) else []
    names: set[str] = set()
    for name, each in fields_of(kind):
        if name.lower() in names:
            return name
        names.add(name.lower())
        inner.append(each)
    return next((found for each in inner if (found := _field_named_twice(each))), "")


def _no_type(token: Token) -> tuple[str, int]:
    raise SqlDiagnostic(f"column {token.text} has no type", "write <column> <type>", token.start)


def _clause(tokens: Sequence[Token], index: int, clauses: _Clauses) -> int:
    """Store the clause at `index` in `clauses`; return the index of the token after it."""
    token = tokens[index]
    word, length = str(token.text).upper(), 1
    if word == "PARTITIONED" and index + 1 < len(tokens) and is_word(tokens[index + 1], "BY"):
        word, length = "PARTITIONED BY", 2
    if word in clauses.seen:
        raise SqlDiagnostic(f"{word} appears twice", "write it once", token.start)
    clauses.seen.add(word)
    if index + length >= len(tokens):
        raise SqlDiagnostic(f"nothing follows {word}", _REMEDY, token.start)
    value = tokens[index + length]
    text = str(value.text)
    match word:
        case "USING":
            clauses.format = text.lower()
        case "LOCATION" | "COMMENT" if value.token_type is TokenType.STRING:
            setattr(clauses, word.lower(), text)
        case "OPTIONS" | "TBLPROPERTIES" if value.token_type is TokenType.L_PAREN:
            end = closing_bracket(tokens, index + length)
            listed = key_values(tokens[index + length + 1 : end], "key")
            pairs = tuple(_each_once(listed, any_case=word == "OPTIONS"))
            setattr(clauses, "options" if word == "OPTIONS" else "properties", pairs)
            return end + 1
        case "PARTITIONED BY" if value.token_type is TokenType.L_PAREN:
            end = closing_bracket(tokens, index + length)
            clauses.partitioning = _names(tokens[index + length + 1 : end])
            return end + 1
        case "AS" | "SELECT":
            raise SqlDiagnostic(
                "CREATE TABLE … AS SELECT is not a stream", "write columns here, INSERT in dml", token.start
            )
        case _:
            remedy = "allowed: USING, OPTIONS, PARTITIONED BY, LOCATION, COMMENT, TBLPROPERTIES"
            raise SqlDiagnostic(f"{word[:30]} cannot be read here", remedy, token.start, subject=word[:30])
    return index + length + 1


def _each_once(listed: Iterable[tuple[Token, str, Token]], *, any_case: bool) -> Iterator[tuple[str, str]]:
    """Yield each key with its value; raise SqlDiagnostic for a key that occurs twice.

    Spark ignores the case of keys in OPTIONS, but refuses duplicates only if their case is equal as well (4.2.0).
    """
    seen = set()
    for token, key, value in listed:
        name = key.lower() if any_case else key
        if name in seen:
            raise SqlDiagnostic(f"{key} appears twice", "write it once", token.start, subject=key)
        seen.add(name)
        yield key, str(value.text)


def _take_path(clauses: _Clauses, first: Token) -> None:
    """Convert `OPTIONS (path '…')` to LOCATION, as Spark does (AstBuilder.cleanTableOptions in Spark 4.2.0).

    Raises SqlDiagnostic if the location is given twice.
    """
    paths = [value for key, value in clauses.options if key.lower() == "path"]
    if not paths:
        return
    if clauses.location or len(paths) > 1:
        remedy = "write LOCATION alone"
        raise SqlDiagnostic(
            "the table's location is given twice: the second is path in OPTIONS", remedy, first.start, subject="path"
        )
    clauses.location = paths[0]
    clauses.options = tuple(pair for pair in clauses.options if pair[0].lower() != "path")


def _take_source(clauses: _Clauses, first: Token) -> None:
    """Derive the location of a table without files from its OPTIONS.

    Raises SqlDiagnostic if the DDL has a LOCATION that differs from the derived one.
    """
    format, options = table_format(clauses.format), dict(clauses.options)
    if format.has_files:
        return
    if format.topics:
        from core.sql.kafka_topics import kafka_location

        derived, what = kafka_location(options), "the brokers and the topics"
    elif format.database:
        from core.sql.jdbc_tables import jdbc_location

        derived, what = jdbc_location(options), "the database and the table in it"
    else:
        from core.sql.postgres_changes import changes_location

        derived, what = changes_location(options), "the database and what is read from it"
    if clauses.location not in ("", derived):
        remedy = f"remove LOCATION: OPTIONS name {what}"
        raise SqlDiagnostic(f"a table USING {format.name} has no LOCATION", remedy, first.start, subject="LOCATION")
    clauses.location = derived


def _names(tokens: Sequence[Token]) -> tuple[str, ...]:
    found: list[str] = []
    for index, token in enumerate(tokens):
        if index % 2:
            if token.token_type is not TokenType.COMMA:
                raise SqlDiagnostic("a table can be partitioned by columns only", "name columns", token.start)
        else:
            found.append(str(token.text))
    return tuple(found)
