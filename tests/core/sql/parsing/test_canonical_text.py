"""Canonical text over text pairs: equal if the meaning is equal, different wherever it might differ."""

from pathlib import Path

import pytest

from core.sql.comparison.canonical_parts import canonical_parts_of
from core.sql.parsing.canonical_text import normalise
from core.sql.parsing.from_clause import sources_in
from core.sql.parsing.parser import parse_query
from core.sql.parsing.stream_clauses import extract_stream_clauses
from core.sql.parsing.table_names import resolve_table_names
from core.sql.tokens.lexer import open_sql, tokens_of

FIXTURES = Path(__file__).parents[3] / "fixtures" / "sql"


def pairs(name: str) -> list[tuple[str, str, str]]:
    """Return (title, left, right) for cases written as `title / left / == / right`, separated by `---`."""
    found = []
    for case in (FIXTURES / name).read_text(encoding="utf-8").split("\n---\n"):
        title, _, sides = case.partition("\n")
        left, right = sides.split("\n==\n")
        found.append((title, left.strip(), right.strip()))
    return found


def canonical(sql: str) -> str:
    """Return the canonical text of one query, with its streaming clauses."""
    marks = extract_stream_clauses(tokens_of(open_sql(sql, "q.sql")))
    query = parse_query(marks.tokens, sql)
    resolve_table_names(query, marks)
    query = normalise(query)
    return canonical_parts_of(query, sources_in(query), ()).canonical


@pytest.mark.parametrize(("title", "left", "right"), pairs("equal.txt"), ids=lambda value: value[:40])
def test_equivalent_queries_have_one_text(title: str, left: str, right: str) -> None:
    assert canonical(left) == canonical(right), title


@pytest.mark.parametrize(("title", "left", "right"), pairs("different.txt"), ids=lambda value: value[:40])
def test_queries_that_may_differ_have_different_texts(title: str, left: str, right: str) -> None:
    assert canonical(left) != canonical(right), title
