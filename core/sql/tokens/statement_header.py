"""Splits a statement into its verb, its target table, and the tokens of its query.

Every statement that reads tables has a header. The header's `rules` are the reasons why a pipeline cannot run the
statement.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import Token, TokenType

from core.sql.statement import Verb
from core.sql.tokens.lexer import SqlDiagnostic, SqlText, closing_bracket, end_of, is_word
from core.sql.tokens.table_name_tokens import FROM_FIRST, SELECT_ALL, WrittenName, is_name, name_at, word_at

HEADER_REMEDY = "write INSERT INTO <table> SELECT …"
PLACED_HEADER = "write the table name alone: Headgate chooses the database"
_OPENING = ("SELECT", "WITH", "VALUES")
_QUERIES = ("SELECT", "FROM", "TABLE")
"""Words that reveal a query inside a skipped clause."""


_CREATING = tuple(
    f"{words} TABLE{exists}"
    for exists in (" IF NOT EXISTS", "")
    for words in ("CREATE", "CREATE OR REPLACE", "REPLACE", "CREATE EXTERNAL")
)


@dataclass(frozen=True, slots=True)
class StatementHeader:
    """A statement split into its header and its query, as tokens."""

    verb: Verb
    target: WrittenName | None
    """The target table; None for a statement that writes nothing."""
    columns: tuple[Token, ...]
    query: list[Token]
    """Tokens of the query, including a WITH before the verb; for MERGE, of a query that reads the same tables."""
    pieces: tuple[tuple[int, int], ...]
    """Spans of the file (start, end) that make up the SQL of the query."""
    rules: tuple[SqlDiagnostic, ...]
    """Reasons, other than the query, why a pipeline cannot run the statement."""

    def text(self, source: SqlText) -> str:
        """Return the SQL of the query as written in the file."""
        return "".join(source.text[start:end] for start, end in self.pieces)

    def offset_in_query(self, offset: int) -> int:
        """Convert an offset in the file to an offset in the SQL of the query."""
        before = 0
        for start, end in self.pieces:
            if start <= offset <= end and (offset < end or end == self.pieces[-1][1]):
                return before + offset - start
            before += end - start
        return before


def header_of(tokens: list[Token]) -> StatementHeader:
    """Split a statement into its header and its query; raises SqlDiagnostic if there is no query."""
    at = _verb_at(tokens)
    first = tokens[at]
    if is_word(first, "INSERT"):
        return _insert(tokens, at)
    if is_word(first, "MERGE"):
        return _merge(tokens, at)
    if is_word(first, "CREATE", "REPLACE"):
        return _create(tokens, at)
    if _opens_query(tokens, at):
        return StatementHeader(Verb.SELECT, None, (), _selecting(tokens), ((tokens[0].start, end_of(tokens[-1])),), ())
    word = str(first.text).upper()
    if word == "FROM":
        raise SqlDiagnostic(*FROM_FIRST, first.start, subject="FROM")
    not_streaming = f"{word} is not a streaming statement"
    summary = (
        not_streaming
        if word in ("UPDATE", "DELETE")
        else (f"a dml file contains INSERT INTO … SELECT, not {short(first)}")
    )
    raise SqlDiagnostic(summary, HEADER_REMEDY, first.start, subject=word[:40])


def short(token: Token) -> str:
    """Return a token as a string, truncated to 30 characters."""
    text = str(token.text)
    return text if len(text) <= 30 else f"{text[:30]}…"


def _verb_at(tokens: list[Token]) -> int:
    # The verb may follow a WITH clause.
    if not is_word(tokens[0], "WITH"):
        return 0
    depth = 0
    for index, token in enumerate(tokens):
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        if depth == 0 and is_word(token, "INSERT", "MERGE", "UPDATE", "DELETE"):
            return index
        if depth == 0 and is_word(token, "SELECT"):
            return 0
    return 0


def _insert(tokens: list[Token], at: int) -> StatementHeader:
    """Split `[WITH …] INSERT INTO|OVERWRITE [TABLE] t [PARTITION (…)] [(columns)] [BY NAME] query` into its parts."""
    first, after, rules = tokens[at], at + 1, []
    verb = Verb.INSERT
    if after < len(tokens) and is_word(tokens[after], "OVERWRITE"):
        verb = Verb.OVERWRITE
        remedy = "write INSERT INTO: a stream only appends"
        summary = "INSERT OVERWRITE is not a streaming statement"
        rules.append(SqlDiagnostic(summary, remedy, first.start, subject="INSERT OVERWRITE"))
    elif after >= len(tokens) or not is_word(tokens[after], "INTO"):
        raise SqlDiagnostic("INTO is missing after INSERT", HEADER_REMEDY, first.start)
    after += 1
    if after + 1 < len(tokens) and is_word(tokens[after], "TABLE") and not _opens_query(tokens, after + 1):
        after += 1
    if after >= len(tokens):
        raise SqlDiagnostic("the table name is missing after INSERT INTO", HEADER_REMEDY, first.start)
    target, after = name_at(tokens, after)
    columns, after = _column_list(tokens, after)
    if after < len(tokens) and is_word(tokens[after], "BY", "PARTITION", "REPLACE"):
        remedy = "remove it: a stream writes columns by name and takes partitioning from the DDL"
        rule = SqlDiagnostic(f"{short(tokens[after])} is not allowed after INSERT INTO t", remedy, tokens[after].start)
        skipped = after
        while after < len(tokens) and not _opens_query(tokens, after):
            after = closing_bracket(tokens, after) + 1 if tokens[after].token_type is TokenType.L_PAREN else after + 1
        if is_word(tokens[skipped], "REPLACE") or any(is_word(each, *_QUERIES) for each in tokens[skipped:after]):
            # A condition may read tables.
            raise rule
        if is_word(tokens[skipped], "BY") and not (after == skipped + 2 and is_word(tokens[skipped + 1], "NAME")):
            raise SqlDiagnostic(
                "NAME is missing after BY", remedy, tokens[skipped].start, condition="PARSE_SYNTAX_ERROR"
            )
        rules.append(rule)
    if after >= len(tokens) or not _opens_query(tokens, after):
        raise _no_query(tokens, after, target)
    if is_word(tokens[after], "VALUES"):
        rules.append(
            SqlDiagnostic(
                "SELECT is missing after INSERT INTO", HEADER_REMEDY, tokens[after].start, subject=target.text
            )
        )
    query = tokens[:at] + _selecting(tokens[after:])
    return StatementHeader(verb, target, columns, query, _pieces(tokens, at, after), tuple(rules))


def _no_query(tokens: Sequence[Token], after: int, target: WrittenName) -> SqlDiagnostic:
    place = tokens[min(after, len(tokens) - 1)]
    named = tokens[after + 1 : after + (3 if is_word(tokens[min(after + 1, len(tokens) - 1)], "STREAM") else 2)]
    read = " ".join(str(token.text) for token in named) or "<table>"
    if is_word(place, "TABLE"):
        remedy = f"write INSERT INTO {target.text} SELECT * FROM {read}"
        return SqlDiagnostic("TABLE in place of a SELECT is not supported", remedy, place.start, subject=target.text)
    if is_word(place, "FROM"):
        remedy = f"write INSERT INTO {target.text} SELECT … FROM {read}"
        return SqlDiagnostic(FROM_FIRST[0], remedy, place.start, subject=target.text)
    return SqlDiagnostic("SELECT is missing after INSERT INTO", HEADER_REMEDY, place.start, subject=target.text)


def _create(tokens: list[Token], at: int) -> StatementHeader:
    """Split `CREATE [OR REPLACE] TABLE [IF NOT EXISTS] t … [AS] query` into its parts."""
    rule = SqlDiagnostic("CREATE belongs in the ddl file", HEADER_REMEDY, tokens[at].start, subject="CREATE")
    words = " ".join(str(token.text).upper() for token in tokens[at : at + 7])
    opening = next((each for each in _CREATING if f"{words} ".startswith(f"{each} ")), "")
    after = at + len(opening.split())
    if not opening or after >= len(tokens):
        raise rule
    target, after = name_at(tokens, after)
    skipped = after
    while after < len(tokens):
        if is_word(tokens[after], "AS") or _opens_query(tokens, after):
            break
        after = closing_bracket(tokens, after) + 1 if tokens[after].token_type is TokenType.L_PAREN else after + 1
    held = any(is_word(each, *_QUERIES) for each in tokens[skipped:after])
    if after < len(tokens) and is_word(tokens[after], "AS"):
        after += 1
    columns = skipped < len(tokens) and tokens[skipped].token_type is TokenType.L_PAREN
    if held or columns or after >= len(tokens) or not _opens_query(tokens, after):
        raise rule
    query = _selecting(tokens[after:])
    return StatementHeader(Verb.CREATE, target, (), query, ((tokens[after].start, end_of(tokens[-1])),), (rule,))


def _merge(tokens: list[Token], at: int) -> StatementHeader:
    target, query = merge_query(tokens, at)
    rule = SqlDiagnostic("MERGE is not a streaming statement", HEADER_REMEDY, tokens[at].start, subject="MERGE")
    return StatementHeader(Verb.MERGE, target, (), query, ((tokens[0].start, end_of(tokens[-1])),), (rule,))


def _selecting(tokens: list[Token]) -> list[Token]:
    if not is_word(tokens[0], "VALUES"):
        return tokens
    return [*(word_at(kind, text, tokens[0]) for kind, text in SELECT_ALL), *tokens]


def _column_list(tokens: list[Token], after: int) -> tuple[tuple[Token, ...], int]:
    """Parse the column list `(a, b)` after the target table; a bracket that belongs to the query is not a list.

    Returns the tokens of the columns and the index after the list.
    """
    if after >= len(tokens) or tokens[after].token_type is not TokenType.L_PAREN:
        return (), after
    inside = after
    while inside < len(tokens) and tokens[inside].token_type is TokenType.L_PAREN:
        inside += 1
    if inside < len(tokens) and is_word(tokens[inside], *_OPENING):
        return (), after
    end = closing_bracket(tokens, after)
    listed = [token for token in tokens[after + 1 : end] if token.token_type is not TokenType.COMMA]
    return tuple(listed), end + 1


def _opens_query(tokens: Sequence[Token], at: int) -> bool:
    while at < len(tokens) and tokens[at].token_type is TokenType.L_PAREN:
        at += 1
    return at < len(tokens) and is_word(tokens[at], *_OPENING)


def _pieces(tokens: list[Token], at: int, after: int) -> tuple[tuple[int, int], ...]:
    last = (tokens[after].start, end_of(tokens[-1]))
    return ((tokens[0].start, tokens[at].start), last) if at else (last,)


_MERGE_REMEDY = "write MERGE INTO <table> USING <table or query> ON … WHEN [NOT] MATCHED THEN …"
_SOURCE_QUERIES = ("SELECT", "WITH", "VALUES", "FROM", "TABLE")


def merge_query(tokens: list[Token], at: int) -> tuple[WrittenName, list[Token]]:
    """Rewrite MERGE as a query that reads the same tables; return the target table and the query.

    `[WITH …] MERGE INTO t USING s ON c WHEN …` becomes `[WITH …] SELECT 1 FROM s WHERE (c) AND EXISTS (…)`, with one
    EXISTS for each query in an action. Spark 4.2.0 executes MERGE once, as a batch (`dmlStatementNoWith`). Raises
    SqlDiagnostic for a malformed statement.
    """
    first = tokens[at]
    into = next((index for index in range(at, min(at + 5, len(tokens))) if is_word(tokens[index], "INTO")), 0)
    if not into or into + 1 >= len(tokens):
        raise SqlDiagnostic("INTO is missing after MERGE", _MERGE_REMEDY, first.start, subject="MERGE")
    target, after = name_at(tokens, into + 1)
    using = _find(tokens, after, "USING")
    on = _find(tokens, using + 1, "ON")
    when = _find(tokens, on + 1, "WHEN")
    if not (after <= using < on < when < len(tokens)) or on == using + 1 or when == on + 1:
        raise SqlDiagnostic(
            "MERGE cannot be parsed: USING, ON or WHEN is missing", _MERGE_REMEDY, first.start, subject="MERGE"
        )
    _check_source(tokens[using + 1 : on])
    _check_actions(tokens, when)
    words = ((TokenType.SELECT, "SELECT"), (TokenType.NUMBER, "1"), (TokenType.FROM, "FROM"))
    query = [*tokens[:at], *(word_at(kind, text, first) for kind, text in words), *tokens[using + 1 : on]]
    query += [word_at(TokenType.WHERE, "WHERE", first), word_at(TokenType.L_PAREN, "(", first), *tokens[on + 1 : when]]
    query.append(word_at(TokenType.R_PAREN, ")", first))
    index = when
    while index < len(tokens):
        if tokens[index].token_type is TokenType.L_PAREN and is_word(tokens[index + 1], *_SOURCE_QUERIES):
            end = closing_bracket(tokens, index)
            query += [word_at(TokenType.AND, "AND", first), word_at(TokenType.EXISTS, "EXISTS", first)]
            query += tokens[index : end + 1]
            index = end
        index += 1
    return target, query


def _check_source(tokens: Sequence[Token]) -> None:
    first = tokens[0]
    if first.token_type is TokenType.L_PAREN:
        after = closing_bracket(tokens, 0) + 1
        reads = is_word(tokens[1], *_SOURCE_QUERIES) or tokens[1].token_type is TokenType.L_PAREN
    else:
        reads = is_name(first) and not (is_word(first, "STREAM") and len(tokens) > 1 and is_name(tokens[1]))
        after = name_at(tokens, 0)[1] if reads else 0
    alias = tokens[after + 1 :] if is_word(tokens[after] if after < len(tokens) else None, "AS") else tokens[after:]
    if not reads or len(alias) > 1 or (alias and not is_name(alias[0])):
        raise SqlDiagnostic(
            "MERGE reads one table, or one query in parentheses", _MERGE_REMEDY, first.start, subject="USING"
        )


def _check_actions(tokens: Sequence[Token], when: int) -> None:
    while when < len(tokens):
        following, then = _find(tokens, when + 1, "WHEN"), _find(tokens, when + 1, "THEN")
        matched = when + (2 if is_word(tokens[min(when + 1, len(tokens) - 1)], "NOT") else 1)
        if not matched < then < following or not is_word(tokens[matched], "MATCHED"):
            raise SqlDiagnostic("a MERGE action cannot be parsed", _MERGE_REMEDY, tokens[when].start, subject="WHEN")
        when = following


def _find(tokens: Sequence[Token], start: int, word: str) -> int:
    """Return the index of the first occurrence of a word outside brackets and CASE.

    Returns the number of tokens if the word does not occur.
    """
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
