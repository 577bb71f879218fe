"""Parsing of SQL functions, each of which is a `CREATE FUNCTION … RETURNS type RETURN expression` in its own file.

A body is one expression over the parameters, which reads no table. As in Spark 4.2.0, it contains no aggregate, window
or generator function.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import Token, TokenType, exp

from core.model.problems import Problem
from core.sql.comparison.builtin_functions import BUILTINS
from core.sql.function_calls import Parameter, SqlFunction, called_names, on_one_line, replace_calls
from core.sql.parsing.function_names import AGGREGATES, GENERATORS, LITERAL_FUNCTIONS, plain_function_name
from core.sql.parsing.parser import parse_expression
from core.sql.tokens.data_types import read_type
from core.sql.tokens.forbidden_functions import forbidden_calls
from core.sql.tokens.lexer import (
    SqlDiagnostic,
    SqlText,
    closing_bracket,
    end_of,
    is_word,
    open_sql,
    statements_of,
    tokens_of,
)
from core.text.wording import did_you_mean

_REMEDY = "write CREATE FUNCTION <name>(<parameter> <type>, …) RETURNS <type> RETURN <expression>"
_WORD = {"LANGUAGE": 2, "COMMENT": 2, "DETERMINISTIC": 1, "CONTAINS": 2}
"""Number of words of each clause between RETURNS and RETURN that changes nothing."""


@dataclass(frozen=True, slots=True)
class DraftFunction:
    """A function as written, before calls of other functions in its body are replaced."""

    source: SqlText
    name: str
    """In lower case."""
    at: Token
    """The token of the name."""
    parameters: tuple[Parameter, ...]
    returns: str
    body: tuple[Token, ...]
    calls: tuple[tuple[str, Token], ...]
    """Names, in lower case, and tokens of the functions that the body calls and that are not Spark's, in order."""

    def problem(self, diagnostic: SqlDiagnostic) -> Problem:
        """Return a Problem about the file; a diagnostic without a position is about the body."""
        if diagnostic.offset < 0:
            diagnostic.offset = int(self.body[0].start)
        return self.source.problem(diagnostic)

    @property
    def line(self) -> int:
        """The line of the name, counted from 1."""
        return self.source.line(int(self.at.start))


def read_function(text: str, path: str) -> tuple[DraftFunction | None, tuple[Problem, ...]]:
    """Parse the only CREATE FUNCTION in a file; return None and the Problems if it is invalid.

    Calls of functions that are not Spark's are not checked, because other files may declare them.
    """
    source = open_sql(text, path)
    try:
        statements = list(statements_of(tokens_of(source)))
        if not statements:
            raise SqlDiagnostic("the file contains no function", _REMEDY, 0)
        if len(statements) > 1:
            raise SqlDiagnostic(
                "a file contains one function", "put each function in its own file", statements[1][0].start
            )
        found = _read(statements[0], source)
        wrong = tuple(_body_faults(found))
        return (None if wrong else found), tuple(source.problem(each) for each in wrong)
    except SqlDiagnostic as diagnostic:
        return None, (source.problem(diagnostic),)
    except RecursionError:
        return None, (source.problem(SqlDiagnostic("the body is nested too deeply", "simplify it", 0)),)


def complete_function(draft: DraftFunction, known: Mapping[str, SqlFunction]) -> SqlFunction:
    """Return a function with the calls of the functions `known` replaced in its body.

    Raises SqlDiagnostic, at a position in the draft's file, if such a call has a mistake.
    """
    text = draft.source.text
    names = [each.name for each in draft.parameters]
    # The body is preceded by blanks, so that offsets are those of the file.
    start, end = int(draft.body[0].start), end_of(draft.body[-1])
    replaced = replace_calls(text[:end], draft.body, known)
    if replaced.wrong:
        raise replaced.wrong[0]
    body = _one_line(replaced.text[start:])
    tokens = tokens_of(open_sql(body, ""))
    expression, _ = parse_expression(tokens)
    pieces: list[str | int] = []
    at = used = 0
    for first, last, number in _uses(tokens, draft.name, names):
        pieces += (body[at : int(tokens[first].start)], number)
        at, used = end_of(tokens[last]), used + 1
    pieces.append(body[at:])
    bound = frozenset(_variables(expression))
    if used != sum(_names_parameter(column, draft.name, names) for column in expression.find_all(exp.Column)):
        clashing = next((name for name in names if name in bound), names[0] if names else "")
        raise SqlDiagnostic(
            f"a parameter of {draft.name} has a name that also means something else in its body",
            f"rename the parameter, for example to {clashing}_value",
            start,
        )
    return SqlFunction(draft.name, draft.parameters, draft.returns, tuple(each for each in pieces if each != ""), bound)


@dataclass(frozen=True, slots=True)
class FunctionHead:
    """The beginning of a CREATE FUNCTION, up to the closing bracket of its parameters."""

    name: str
    """In lower case."""
    at: Token
    """The token of the name."""
    parameters: tuple[Parameter, ...]
    after: int
    """Index of the token after the closing bracket."""


def read_head(tokens: Sequence[Token], source: SqlText, remedy: str) -> FunctionHead:
    """Parse the beginning of a CREATE FUNCTION; `remedy` shows its form. Raises SqlDiagnostic if it has mistakes."""
    index = 0
    if not is_word(tokens[0], "CREATE"):
        raise SqlDiagnostic("the file does not begin with CREATE FUNCTION", remedy, tokens[0].start)
    index += 1
    if follow(tokens, index, "OR", "REPLACE"):
        index += 2
    index += index < len(tokens) and is_word(tokens[index], "TEMPORARY", "TEMP")
    if index >= len(tokens) or not is_word(tokens[index], "FUNCTION"):
        raise SqlDiagnostic("this is not CREATE FUNCTION", remedy, tokens[min(index, len(tokens) - 1)].start)
    index += 1
    index += 3 * follow(tokens, index, "IF", "NOT", "EXISTS")
    if index + 1 >= len(tokens) or tokens[index].token_type in (TokenType.STRING, TokenType.NUMBER):
        raise SqlDiagnostic("the function has no name", remedy, tokens[-1].start)
    at, opened = tokens[index], index + 1
    name = str(at.text).lower()
    if tokens[opened].token_type is TokenType.DOT:
        raise SqlDiagnostic(
            "the name of a function cannot be qualified", "write the plain name", at.start, subject=name
        )
    if is_word(tokens[opened], "AS"):
        form = f"write CREATE FUNCTION {name}(<parameter> <type>, …) RETURNS <type> AS '<class>' USING JAR '<file>.jar'"
        raise SqlDiagnostic(f"{name} declares no parameters and no result", form, at.start, subject=name)
    if tokens[opened].token_type is not TokenType.L_PAREN:
        raise SqlDiagnostic(f"{name} has no parameters in brackets", remedy, at.start, subject=name)
    closed = closing_bracket(tokens, opened)
    return FunctionHead(name, at, tuple(_parameters(tokens[opened + 1 : closed], source, remedy)), closed + 1)


def _read(tokens: list[Token], source: SqlText) -> DraftFunction:
    head = read_head(tokens, source, _REMEDY)
    returns, body = _result(tokens, head.after, head.name)
    calls = tuple((called, body[n]) for called, n in called_names(body) if called not in BUILTINS and called != "cast")
    return DraftFunction(
        source=source,
        name=head.name,
        at=head.at,
        parameters=head.parameters,
        returns=returns,
        body=tuple(body),
        calls=calls,
    )


def follow(tokens: Sequence[Token], index: int, *words: str) -> bool:
    """True if the tokens from `index` on are these words."""
    return len(tokens) >= index + len(words) and all(is_word(tokens[index + n], word) for n, word in enumerate(words))


def _parameters(tokens: Sequence[Token], source: SqlText, remedy: str) -> Iterator[Parameter]:
    index, seen = 0, set[str]()
    while index < len(tokens):
        token = tokens[index]
        name = str(token.text).lower()
        if token.token_type in (TokenType.STRING, TokenType.NUMBER, TokenType.COMMA):
            raise SqlDiagnostic("the name of a parameter is missing here", remedy, token.start)
        if name in seen:
            raise SqlDiagnostic(f"the parameter {name} is declared twice", "rename one of them", token.start)
        seen.add(name)
        if index + 1 >= len(tokens):
            raise SqlDiagnostic(f"the parameter {name} has no type", "write its type after its name", token.start)
        kind, index = read_type(tokens, index + 1)
        default = ""
        if index < len(tokens) and is_word(tokens[index], "DEFAULT"):
            end = index + 1
            while end < len(tokens) and tokens[end].token_type is not TokenType.COMMA:
                opens = tokens[end].token_type in (TokenType.L_PAREN, TokenType.L_BRACKET)
                end = closing_bracket(tokens, end) + 1 if opens else end + 1
            if end == index + 1:
                raise SqlDiagnostic(f"{name} has no default", "write a value after DEFAULT", tokens[index].start)
            default = _one_line(source.text[tokens[index + 1].start : end_of(tokens[end - 1])])
            index = end
        if index + 1 < len(tokens) and is_word(tokens[index], "COMMENT"):
            index += 2
        if index < len(tokens):
            if tokens[index].token_type is not TokenType.COMMA or index + 1 == len(tokens):
                raise SqlDiagnostic("the parameters cannot be parsed", remedy, tokens[index].start)
            index += 1
        yield Parameter(name, kind, default)


def _result(tokens: list[Token], index: int, name: str) -> tuple[str, list[Token]]:
    last = tokens[-1].start
    if index >= len(tokens) or not is_word(tokens[index], "RETURNS"):
        at = tokens[index].start if index < len(tokens) else last
        raise SqlDiagnostic(f"{name} does not declare its result", "write RETURNS <type> before RETURN", at)
    if index + 1 < len(tokens) and is_word(tokens[index + 1], "TABLE"):
        summary = f"{name} returns a table, and only functions that return a value are supported in SQL"
        raise SqlDiagnostic(summary, "write its query as a WITH query in the statement", tokens[index].start)
    returns, index = read_type(tokens, index + 1)
    while index < len(tokens) and not is_word(tokens[index], "RETURN"):
        if is_word(tokens[index], "LANGUAGE") and not follow(tokens, index + 1, "SQL"):
            raise SqlDiagnostic(
                f"{name} is not written in SQL",
                f"write LANGUAGE SQL, or leave it out; a function in Python is a file {name}.py",
                tokens[index].start,
            )
        if is_word(tokens[index], "AS"):
            summary, remedy = f"{name} does not name its jar", "write USING JAR '<file>.jar' after the class"
            raise SqlDiagnostic(summary, remedy, tokens[index].start)
        words = _WORD.get(str(tokens[index].text).upper())
        if words is None:
            raise SqlDiagnostic(f"{tokens[index].text} is not expected before RETURN", "remove it", tokens[index].start)
        index += words
    if index + 1 >= len(tokens):
        raise SqlDiagnostic(f"{name} has no body", "write RETURN <expression> at its end", last)
    return returns, tokens[index + 1 :]


def _body_faults(draft: DraftFunction) -> Iterator[SqlDiagnostic]:
    yield from forbidden_calls(draft.body)
    if is_word(draft.body[0], "SELECT", "WITH") or any(is_word(token, "SELECT") for token in draft.body):
        at = next(token for token in draft.body if is_word(token, "SELECT", "WITH"))
        yield SqlDiagnostic(f"{draft.name} reads tables", "read them in the statement, and pass values", at.start)
        return
    expression, alias = parse_expression(draft.body)
    if alias:
        yield SqlDiagnostic(f"the body of {draft.name} has an alias", "remove it", draft.body[-1].start)
    if any(expression.find_all(exp.Window)):
        yield _over_rows(draft, "a window function")
    for name, index in called_names(draft.body):
        if name in AGGREGATES or name in GENERATORS:
            token = draft.body[index]
            # Some aggregate functions have the names of others: `any` of LIKE ANY is no call.
            if any(_is_named(call, name) for call in expression.find_all(exp.Anonymous)):
                yield _over_rows(draft, f"{name}()", token)
    names = [each.name for each in draft.parameters]
    for column in expression.find_all(exp.Column):
        first = column.parts[0]
        if not _names_parameter(column, draft.name, names) and not _is_literal_function(column):
            place = int(first.meta.get("start", draft.body[0].start))
            near = did_you_mean(first.name.lower(), names) or f"parameters: {', '.join(names) or 'none'}"
            yield SqlDiagnostic(f"{first.name} is not a parameter of {draft.name}", near, place, subject=first.name)


def _over_rows(draft: DraftFunction, what: str, at: Token | None = None) -> SqlDiagnostic:
    summary = f"{draft.name} is computed for one row, and {what} is not"
    return SqlDiagnostic(summary, "use it in the statement", (at or draft.body[0]).start)


def _is_named(call: Any, name: str) -> bool:
    return plain_function_name(str(call.this)) == name


def _is_literal_function(column: Any) -> bool:
    return not column.table and column.name.lower() in LITERAL_FUNCTIONS


def _names_parameter(column: Any, function: str, names: Sequence[str]) -> bool:
    parts = [each.name.lower() for each in column.parts]
    return parts[0] in names or (len(parts) > 1 and parts[0] == function and parts[1] in names)


def _uses(tokens: Sequence[Token], function: str, names: Sequence[str]) -> Iterator[tuple[int, int, int]]:
    """Yield the indexes of the first and last token of each use of a parameter, and the number of the parameter."""
    index = 0
    while index < len(tokens):
        first, word = index, str(tokens[index].text).lower()
        index += 1
        if tokens[first].token_type in (TokenType.STRING, TokenType.NUMBER) or _follows(tokens, first, TokenType.DOT):
            continue
        dotted = index + 1 < len(tokens) and tokens[index].token_type is TokenType.DOT
        if word == function and word not in names and dotted and str(tokens[index + 1].text).lower() in names:
            yield first, first + 2, names.index(str(tokens[index + 1].text).lower())
            index += 2
        elif word in names and not (index < len(tokens) and tokens[index].token_type is TokenType.L_PAREN):
            yield first, first, names.index(word)


def _follows(tokens: Sequence[Token], index: int, kind: TokenType) -> bool:
    return index > 0 and tokens[index - 1].token_type is kind


def _variables(expression: Any) -> Iterator[str]:
    for each in expression.find_all(exp.Lambda):
        yield from (str(variable.name).lower() for variable in each.expressions)


def _one_line(sql: str) -> str:
    """Return an expression on one line, without comments except those that name a replaced function."""
    tokens = tokens_of(open_sql(sql, ""))
    parts: list[str] = []
    for index, token in enumerate(tokens):
        if index and int(token.start) > end_of(tokens[index - 1]):
            gap = sql[end_of(tokens[index - 1]) : int(token.start)].strip()
            parts.append(
                f"{gap} " if gap.startswith("/* ") and gap.endswith(" */") and gap[3:-3].isidentifier() else " "
            )
        parts.append(on_one_line(sql, token))
    return "".join(parts)
