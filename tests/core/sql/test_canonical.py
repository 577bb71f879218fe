"""Canonical text over text pairs: equal where the meaning is equal, different wherever it might differ."""

from pathlib import Path

import pytest

from core.sql.canonical import normalise
from core.sql.from_clause import sources_in
from core.sql.lexing import open_source, tokens_of
from core.sql.naming import resolve
from core.sql.parsing import parse_query
from core.sql.parts import parts_of
from core.sql.streams import take_out

FIXTURES = Path(__file__).parents[2] / "fixtures" / "sql"


def pairs(name: str) -> list[tuple[str, str, str]]:
    """Read `title / left / == / right`, cases apart by `---`."""
    found = []
    for case in (FIXTURES / name).read_text(encoding="utf-8").split("\n---\n"):
        title, _, sides = case.partition("\n")
        left, right = sides.split("\n==\n")
        found.append((title, left.strip(), right.strip()))
    return found


def canonical(sql: str) -> str:
    """Write one query canonically, with its streaming clauses."""
    marks = take_out(tokens_of(open_source(sql, "q.sql")))
    query = parse_query(marks.tokens, sql)
    resolve(query, marks)
    query = normalise(query)
    return parts_of(query, sources_in(query), ()).canonical


@pytest.mark.parametrize(("title", "left", "right"), pairs("equal.txt"), ids=lambda value: value[:40])
def test_equal_meaning_has_one_text(title: str, left: str, right: str) -> None:
    assert canonical(left) == canonical(right), title


@pytest.mark.parametrize(("title", "left", "right"), pairs("different.txt"), ids=lambda value: value[:40])
def test_what_may_differ_has_two_texts(title: str, left: str, right: str) -> None:
    assert canonical(left) != canonical(right), title
