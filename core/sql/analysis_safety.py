"""Whether Spark may be asked to analyse a query.

An analysis must not run code, and must not read anything that the project does not declare.
"""

from collections.abc import Sequence

from sqlglot import Token, TokenType

from core.sql.statement import Verb
from core.sql.statement_reader import read_any
from core.sql.tokens.forbidden_functions import forbidden_calls
from core.sql.tokens.lexer import open_sql, tokens_of

_BUILTIN = (["builtin"], ["system", "builtin"])
"""Qualifiers under which Spark's own functions may be called (run on 4.2.0)."""


def unsafe_for_analysis(select: str) -> str:
    """Explain why Spark must not analyse a query; empty if it may.

    A query that Headgate cannot read is never safe, since it may do anything.
    """
    found, problems = read_any(select, "")
    if not found:
        return f"Headgate cannot read it: {problems[0].summary}"
    if [each.verb for each in found] != [Verb.SELECT]:
        return "it is not one query"
    qualified = next((read.table for read in found[0].reads if "." in read.table), "")
    if qualified:
        return f"{qualified} is a path or a table of another database"
    tokens = tokens_of(open_sql(select, ""))
    refused = next((misread.summary for misread in forbidden_calls(tokens)), "")
    return refused or _foreign_function(tokens)


def _foreign_function(tokens: Sequence[Token]) -> str:
    """Return the objection to calling a function of a catalog, whose code Spark loads during analysis; empty if none is
    called.
    """
    for index in range(2, len(tokens) - 1):
        if tokens[index + 1].token_type is not TokenType.L_PAREN or tokens[index - 1].token_type is not TokenType.DOT:
            continue
        first = index
        while first >= 2 and tokens[first - 1].token_type is TokenType.DOT:
            first -= 2
        parts = [str(token.text).lower() for token in tokens[first : index + 1 : 2]]
        if parts[:-1] not in _BUILTIN:
            return f"{'.'.join(parts)} is a catalog function, and an analysis would load its code"
    return ""
