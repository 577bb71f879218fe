"""Decides whether Spark may analyse a query without risk.

An analysis must neither run code nor read anything that the project does not declare.
"""

from collections.abc import Sequence

from sqlglot import Token, TokenType

from core.sql.statement import ParsedStatement, Verb
from core.sql.statement_reader import read_any
from core.sql.tokens.forbidden_functions import forbidden_calls
from core.sql.tokens.lexer import open_sql, tokens_of
from core.text.sentence import Fact, FactKind

_BUILTIN = (["builtin"], ["system", "builtin"])
"""Qualifiers that Spark accepts before the names of its own functions (tested on Spark 4.2.0)."""


class AnalysisRisk(FactKind):
    """A reason why Spark must not analyse a query."""

    UNREADABLE = "Headgate cannot read it: {problem}"
    NOT_ONE_QUERY = "it is not one query"
    OUTSIDE_THE_PROJECT = "{table} is a path or a table of another database"
    FORBIDDEN_CALL = "{problem}"
    IN_PYTHON = "it is a job in Python"
    CATALOG_FUNCTION = "{function} is a catalog function, and an analysis would load its code"


def unsafe_for_analysis(select: str) -> Fact[AnalysisRisk] | None:
    """Return why Spark must not analyse a query; None if the analysis is safe.

    A query that Headgate cannot parse is never safe.
    """
    found, problems = read_any(select, "")
    if not found:
        return AnalysisRisk.UNREADABLE.of(problem=problems[0].summary)
    if found[0].in_python:
        return AnalysisRisk.IN_PYTHON.of()
    if [each.verb for each in found] != [Verb.SELECT]:
        return AnalysisRisk.NOT_ONE_QUERY.of()
    for read in found[0].reads:
        if "." in read.table:
            return AnalysisRisk.OUTSIDE_THE_PROJECT.of(table=read.table)
    tokens = tokens_of(open_sql(select, ""))
    for misread in forbidden_calls(tokens):
        return AnalysisRisk.FORBIDDEN_CALL.of(problem=misread.summary)
    return _catalog_function(tokens)


def unsafe_for_tests(parsed: ParsedStatement) -> Fact[AnalysisRisk] | None:
    """Return why a test must not run a statement; None if it may.

    A test runs the code of a job in Python as a start does, in a confined process, because its caller asks for that.
    """
    return None if parsed.in_python else unsafe_for_analysis(parsed.select)


def _catalog_function(tokens: Sequence[Token]) -> Fact[AnalysisRisk] | None:
    for index in range(2, len(tokens) - 1):
        if tokens[index + 1].token_type is not TokenType.L_PAREN or tokens[index - 1].token_type is not TokenType.DOT:
            continue
        first = index
        while first >= 2 and tokens[first - 1].token_type is TokenType.DOT:
            first -= 2
        parts = [str(token.text).lower() for token in tokens[first : index + 1 : 2]]
        if parts[:-1] not in _BUILTIN:
            return AnalysisRisk.CATALOG_FUNCTION.of(function=".".join(parts))
    return None
