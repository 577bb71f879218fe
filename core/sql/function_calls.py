"""Replacement of calls of a project's SQL functions by the functions' bodies.

A body, its parameters and its result are cast as Spark casts them (4.2.0), so the expression has the value of the call.
Spark itself keeps the text of a body and resolves it again at every start, so that a statement would silently take the
newest body, or fail once a function that the body calls is gone. It also refuses such calls in lambdas and ORDER BY.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import Token, TokenType

from core.sql.tokens.lexer import SqlDiagnostic, closing_bracket, end_of, is_word
from core.text.escaping import quoted_name
from core.text.wording import counted, did_you_mean

MOST_CHARACTERS = 200_000
"""Maximum length of an expression that replaces a call; nested calls could otherwise grow without a bound."""

VOLATILE = frozenset(
    ("rand", "randn", "random", "randstr", "uniform", "uuid", "shuffle", "monotonically_increasing_id")
)
"""Functions of Spark 4.2.0 that return another value at each call, even for equal arguments."""

_NEVER_BEFORE_A_CALL = frozenset(
    {
        TokenType.VAR, TokenType.IDENTIFIER, TokenType.R_PAREN, TokenType.NUMBER, TokenType.DOT,
        TokenType.ALIAS, TokenType.INTO, TokenType.TABLE, TokenType.FROM, TokenType.JOIN, TokenType.LATERAL,
        TokenType.VIEW,
    }
)  # fmt: skip
"""Tokens after which a name with a bracket is an alias, a table or a member, but no call of a scalar function."""
_TABLE_CLAUSES = (TokenType.FROM, TokenType.JOIN, TokenType.LATERAL)
_VALUE_CLAUSES = (
    TokenType.SELECT,
    TokenType.WHERE,
    TokenType.GROUP_BY,
    TokenType.HAVING,
    TokenType.ON,
    TokenType.USING,
)
_TEXTS = (TokenType.STRING, TokenType.NUMBER)
_OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a function."""

    name: str
    """In lower case."""
    type: str
    default: str = ""
    """The expression after DEFAULT; empty if the argument must be given."""


@dataclass(frozen=True, slots=True)
class SqlFunction:
    """A function whose calls can be replaced."""

    name: str
    """In lower case."""
    parameters: tuple[Parameter, ...]
    returns: str
    pieces: tuple[str | int, ...]
    """The body, in which the number of a parameter stands for its value. Calls of other functions are replaced."""
    bound: frozenset[str] = frozenset()
    """Names of the variables of lambdas in the body, in lower case."""
    columns: tuple[str, ...] = ()
    """Columns of the rows that the function returns; empty if it returns a value."""

    @property
    def signature(self) -> str:
        """The name with the parameters and their types."""
        return f"{self.name}({', '.join(f'{each.name} {each.type}' for each in self.parameters)})"


@dataclass(slots=True)
class ReplacedCalls:
    """A text in which calls have been replaced, on the lines on which they stand."""

    text: str
    called: set[str] = field(default_factory=set)
    """Names of the functions that the text calls itself."""
    replaced: list[tuple[int, int, int, int]] = field(default_factory=list)
    """For each replacement, in order: its line and column in `text`, its length there, and its length before."""
    wrong: list[SqlDiagnostic] = field(default_factory=list)
    """Calls that cannot be replaced; their offsets are those before the replacement."""


def replace_calls(text: str, tokens: Sequence[Token], functions: Mapping[str, SqlFunction]) -> ReplacedCalls:
    """Replace all calls of `functions` in a text with these tokens; a call with a mistake stays as it is.

    Names are in lower case. The lines of everything outside of the calls stay the same.
    """
    found = ReplacedCalls(text)
    calls = _Calls(text, tokens, functions, found)
    done: list[str] = []
    at, line, column = 0, 1, 1
    for start, end, expression in calls.outermost():
        before = text[at:start]
        line, column = _moved(line, column, before)
        lines = text.count("\n", start, end)
        if lines:
            # What follows in the last line of the call keeps its line and its column.
            padded = "\n" * lines + " " * (end - text.rfind("\n", 0, end) - 1)
            written = end - start
        else:
            padded, written = "", end - start
        found.replaced.append((line, column, len(expression), written))
        done += (before, expression, padded)
        line, column = _moved(line, column, expression + padded)
        at = end
    found.text = "".join((*done, text[at:]))
    return found


def called_names(tokens: Sequence[Token], *, in_from: bool = False) -> Iterator[tuple[str, int]]:
    """Yield the name, in lower case, and the index of each call in tokens; qualified names are left out.

    With `in_from`, calls of table functions after FROM, JOIN and LATERAL are included.
    """
    for index in range(len(tokens) - 1):
        if _is_call(tokens, index, of_table=in_from):
            yield str(tokens[index].text).lower(), index


def _moved(line: int, column: int, text: str) -> tuple[int, int]:
    lines = text.count("\n")
    return line + lines, len(text) - text.rfind("\n") if lines else column + len(text)


def _is_call(tokens: Sequence[Token], index: int, *, of_table: bool = False) -> bool:
    token = tokens[index]
    if tokens[index + 1].token_type is not TokenType.L_PAREN or token.token_type in _TEXTS:
        return False
    before = tokens[index - 1] if index else None
    if of_table and before is not None and before.token_type in _TABLE_CLAUSES:
        return True
    if before is not None and (before.token_type in _NEVER_BEFORE_A_CALL or is_word(before, "WITH", "STREAM")):
        return False
    if before is not None and before.token_type is TokenType.COMMA:
        # `WITH a AS (…), name (columns) AS (`
        end = closing_bracket(tokens, index + 1)
        return not (end + 2 < len(tokens) and is_word(tokens[end + 1], "AS") and tokens[end + 2].token_type in _OPENING)
    return True


def _is_in_from(tokens: Sequence[Token], index: int) -> bool:
    """True if a call stands where a table may: directly in a FROM, and not in a SELECT, a condition or an argument."""
    depth = 0
    for token in reversed(tokens[:index]):
        depth += {TokenType.R_PAREN: 1, TokenType.L_PAREN: -1}.get(token.token_type, 0)
        if depth < 0:
            return False
        if depth == 0 and token.token_type in _TABLE_CLAUSES:
            return True
        if depth == 0 and token.token_type in _VALUE_CLAUSES:
            return False
    return False


@dataclass(slots=True)
class _Calls:
    text: str
    tokens: Sequence[Token]
    functions: Mapping[str, SqlFunction]
    found: ReplacedCalls

    def outermost(self) -> Iterator[tuple[int, int, str]]:
        """Yield the start, the end and the replacement of each call that is not an argument of another one."""
        index = 0
        while index < len(self.tokens) - 1:
            replaced = self._replaced(index)
            if replaced is None:
                index += 1
                continue
            end, expression = replaced
            yield int(self.tokens[index].start), end_of(self.tokens[end]), expression
            index = end + 1

    def _replaced(self, index: int) -> tuple[int, str] | None:
        """Return the index of the last token of a call and its replacement; None if no replaceable call is here."""
        function = self.functions.get(str(self.tokens[index].text).lower())
        if function is None or not _is_call(self.tokens, index, of_table=bool(function.columns)):
            return None
        self.found.called.add(function.name)
        end = closing_bracket(self.tokens, index + 1)
        try:
            if function.columns:
                return self._table(function, index, end)
            return end, self._expression(function, index, end)
        except SqlDiagnostic as wrong:
            if wrong.offset < 0:
                wrong.offset = int(self.tokens[index].start)
            self.found.wrong.append(wrong)
            return None

    def _table(self, function: SqlFunction, index: int, end: int) -> tuple[int, str]:
        """Return the index of the last token of a table function's call, and the call with its columns as aliases."""
        if not _is_in_from(self.tokens, index):
            remedy = f"write FROM …, LATERAL {function.name}(…), and select its columns: {', '.join(function.columns)}"
            raise _wrong(f"{function.name} returns rows, and cannot be called as a value", remedy)
        call = self._filled(function, *self._given(function, index, end))
        after = end + 1 + (end + 1 < len(self.tokens) and is_word(self.tokens[end + 1], "AS"))
        alias = self.tokens[after] if after < len(self.tokens) else None
        columns = f"({', '.join(map(quoted_name, function.columns))})"
        if alias is None or (after == end + 1 and alias.token_type not in (TokenType.VAR, TokenType.IDENTIFIER)):
            return end, f"{call} AS {function.name}{columns}"
        if self.tokens[after + 1 : after + 2] and self.tokens[after + 1].token_type is TokenType.L_PAREN:
            return end, call
        return after, f"{call} AS {on_one_line(self.text, alias)}{columns}"

    def _expression(self, function: SqlFunction, index: int, end: int) -> str:
        after = self.tokens[end + 1 : end + 2]
        if after and is_word(after[0], "OVER", "FILTER", "WITHIN"):
            raise _wrong(f"{function.name} is computed for one row, and has no {after[0].text.upper()}", "remove it")
        body = self._filled(function, *self._given(function, index, end))
        return f"CAST(/* {function.name} */ {body} AS {function.returns})"

    def _given(self, function: SqlFunction, index: int, end: int) -> tuple[list[str | None], int]:
        """Return the expression of each parameter, None for one that is left out, and the number of arguments."""
        given: list[str | None] = [None] * len(function.parameters)
        places = list(_split(self.tokens, index + 2, end))
        if len(places) > len(given):
            raise _arity(function, len(places))
        for number, (first, last) in enumerate(places):
            position = number
            if last - first > 1 and self.tokens[first + 1].token_type is TokenType.FARROW:
                position = self._named(function, first)
                first += 2
            if given[position] is not None:
                name = function.parameters[position].name
                raise _wrong(f"{name} is given twice to {function.name}", "give each argument once")
            given[position] = self._argument(function, position, (first, last))
        return given, len(places)

    def _named(self, function: SqlFunction, first: int) -> int:
        names = [each.name for each in function.parameters]
        name = str(self.tokens[first].text).lower()
        if name not in names:
            raise _wrong(f"{function.name} has no parameter {name}", did_you_mean(name, names) or _see(function))
        return names.index(name)

    def _argument(self, function: SqlFunction, position: int, place: tuple[int, int]) -> str:
        tokens = self.tokens[slice(*place)]
        name, parameter = function.name, function.parameters[position].name
        if not tokens or tokens[0].token_type is TokenType.STAR or is_word(tokens[0], "DISTINCT", "ALL"):
            raise _wrong(f"{parameter} of {name} is not one value", _see(function))
        words = {str(token.text).lower() for token in tokens if token.token_type not in _TEXTS}
        if TokenType.ARROW in {token.token_type for token in tokens[:2]}:
            raise _wrong(f"{parameter} of {name} is a lambda, and functions have no such values", _see(function))
        if caught := sorted(words & function.bound):
            remedy = f"rename the variable in functions/{name}.sql"
            raise _wrong(f"{caught[0]} is also a variable of a lambda in {name}", remedy)
        random = next((each for each, _ in called_names(tokens) if each in VOLATILE), "")
        if random and function.pieces.count(position) > 1:
            what = f"{random}() is given to {name}, which uses {parameter} more than once"
            raise _wrong(what, f"compute {random}() in a WITH query or a subquery, and give its column to {name}")
        return self._flat(*place)

    def _flat(self, first: int, last: int) -> str:
        """Return the tokens of an argument on one line, without comments, and with its own calls replaced."""
        parts: list[str] = []
        index = first
        while index < last:
            replaced = self._replaced(index) if index + 1 < last else None
            start = int(self.tokens[index].start)
            if parts and start > end_of(self.tokens[index - 1]):
                parts.append(" ")
            if replaced is None:
                parts.append(on_one_line(self.text, self.tokens[index]))
                index += 1
            else:
                parts.append(replaced[1])
                index = replaced[0] + 1
        return "".join(parts)

    def _filled(self, function: SqlFunction, given: Sequence[str | None], count: int) -> str:
        values = []
        for parameter, value in zip(function.parameters, given, strict=True):
            if value is None and not parameter.default:
                raise _arity(function, count)
            values.append(f"CAST({value if value is not None else parameter.default} AS {parameter.type})")
        body = "".join(values[piece] if isinstance(piece, int) else piece for piece in function.pieces)
        if len(body) > MOST_CHARACTERS:
            summary = f"this call of {function.name} becomes an expression of {len(body):,} characters"
            raise _wrong(summary, "compute its parts in WITH queries")
        return body


def on_one_line(text: str, token: Token) -> str:
    """Return a token as written. Raises SqlDiagnostic if it contains a line break, which is possible in a string."""
    written = text[int(token.start) : end_of(token)]
    if "\n" in written:
        raise SqlDiagnostic(
            "this string contains a line break", "write \\n in a string without the prefix r", token.start
        )
    return written


def _split(tokens: Sequence[Token], first: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the first index of each argument and the index after it."""
    start = index = first
    while index < end:
        if tokens[index].token_type in _OPENING:
            index = closing_bracket(tokens, index)
        elif tokens[index].token_type is TokenType.COMMA:
            yield start, index
            start = index + 1
        index += 1
    if end > first:
        yield start, end


def _arity(function: SqlFunction, count: int) -> SqlDiagnostic:
    least = sum(not each.default for each in function.parameters)
    most = len(function.parameters)
    takes = counted(most, "argument") if least == most else f"{least} to {most} arguments"
    return _wrong(f"{function.name} takes {takes}, and this call has {count}", _see(function))


def _see(function: SqlFunction) -> str:
    return f"call {function.signature}"


def _wrong(summary: str, remedy: str) -> SqlDiagnostic:
    return SqlDiagnostic(summary, remedy, -1)


def calls_one_of(names: Sequence[str]) -> re.Pattern[str]:
    """Return a pattern that finds any of the names in a text, which is much faster than reading its tokens."""
    return re.compile(rf"\b(?:{'|'.join(map(re.escape, names))})\b", re.IGNORECASE)
