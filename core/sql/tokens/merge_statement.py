"""MERGE, read for what it reads: Spark executes it once, as a batch (`dmlStatementNoWith` in its grammar, 4.2.0)."""

from collections.abc import Sequence

from sqlglot import Token, TokenType

from core.sql.tokens.lexer import SqlDiagnostic, closing_bracket, is_word
from core.sql.tokens.table_name_tokens import WrittenName, is_name, name_at, word_at

_REMEDY = "write MERGE INTO <table> USING <table or query> ON … WHEN [NOT] MATCHED THEN …"
_QUERIES = ("SELECT", "WITH", "VALUES", "FROM", "TABLE")


def merge_query(tokens: list[Token], at: int) -> tuple[WrittenName, list[Token]]:
    """Rewrite `[WITH …] MERGE INTO t USING s ON c WHEN …` into t and `[WITH …] SELECT 1 FROM s WHERE (c) AND EXISTS
    (…)`.

    Each query that stands in an action becomes an EXISTS; raise SqlDiagnostic for what cannot be read.
    """
    first = tokens[at]
    into = next((index for index in range(at, min(at + 5, len(tokens))) if is_word(tokens[index], "INTO")), 0)
    if not into or into + 1 >= len(tokens):
        raise SqlDiagnostic("INTO is missing after MERGE", _REMEDY, first.start, subject="MERGE")
    target, after = name_at(tokens, into + 1)
    using = _find(tokens, after, "USING")
    on = _find(tokens, using + 1, "ON")
    when = _find(tokens, on + 1, "WHEN")
    if not (after <= using < on < when < len(tokens)) or on == using + 1 or when == on + 1:
        raise SqlDiagnostic(
            "MERGE cannot be parsed: USING, ON or WHEN is missing", _REMEDY, first.start, subject="MERGE"
        )
    _check_source(tokens[using + 1 : on])
    _check_actions(tokens, when)
    words = ((TokenType.SELECT, "SELECT"), (TokenType.NUMBER, "1"), (TokenType.FROM, "FROM"))
    query = [*tokens[:at], *(word_at(kind, text, first) for kind, text in words), *tokens[using + 1 : on]]
    query += [word_at(TokenType.WHERE, "WHERE", first), word_at(TokenType.L_PAREN, "(", first), *tokens[on + 1 : when]]
    query.append(word_at(TokenType.R_PAREN, ")", first))
    index = when
    while index < len(tokens):
        if tokens[index].token_type is TokenType.L_PAREN and is_word(tokens[index + 1], *_QUERIES):
            end = closing_bracket(tokens, index)
            query += [word_at(TokenType.AND, "AND", first), word_at(TokenType.EXISTS, "EXISTS", first)]
            query += tokens[index : end + 1]
            index = end
        index += 1
    return target, query


def _check_source(tokens: Sequence[Token]) -> None:
    """Raise SqlDiagnostic where neither a table nor a query in brackets stands behind USING, perhaps with an alias."""
    first = tokens[0]
    if first.token_type is TokenType.L_PAREN:
        after = closing_bracket(tokens, 0) + 1
        reads = is_word(tokens[1], *_QUERIES) or tokens[1].token_type is TokenType.L_PAREN
    else:
        reads = is_name(first) and not (is_word(first, "STREAM") and len(tokens) > 1 and is_name(tokens[1]))
        after = name_at(tokens, 0)[1] if reads else 0
    alias = tokens[after + 1 :] if is_word(tokens[after] if after < len(tokens) else None, "AS") else tokens[after:]
    if not reads or len(alias) > 1 or (alias and not is_name(alias[0])):
        raise SqlDiagnostic("MERGE reads one table, or one query in parentheses", _REMEDY, first.start, subject="USING")


def _check_actions(tokens: Sequence[Token], when: int) -> None:
    while when < len(tokens):
        following, then = _find(tokens, when + 1, "WHEN"), _find(tokens, when + 1, "THEN")
        matched = when + (2 if is_word(tokens[min(when + 1, len(tokens) - 1)], "NOT") else 1)
        if not matched < then < following or not is_word(tokens[matched], "MATCHED"):
            raise SqlDiagnostic("a MERGE action cannot be parsed", _REMEDY, tokens[when].start, subject="WHEN")
        when = following


def _find(tokens: Sequence[Token], start: int, word: str) -> int:
    """Find a word outside of brackets and of CASE; the number of tokens when it is not there."""
    index = start
    cases = 0
    while index < len(tokens):
        if cases == 0 and is_word(tokens[index], word):
            return index
        if tokens[index].token_type is TokenType.L_PAREN:
            index = closing_bracket(tokens, index)
        cases += is_word(tokens[index], "CASE") - (cases > 0 and is_word(tokens[index], "END"))
        index += 1
    return len(tokens)
