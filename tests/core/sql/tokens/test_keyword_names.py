"""Every keyword in every position of a name: we accept it as a name, as if in backticks, if and only if Spark does."""

from pathlib import Path
from typing import NamedTuple

import pytest
from spark_parser import spark_parser

from core.model.problems import Severity
from core.sql.statement_reader import read_any

_HEAD, _WORDS, *_PLACES = (
    (Path(__file__).parents[3] / "fixtures/sql/names.txt").read_text(encoding="utf-8").split("\n\n")
)
WORDS = _WORDS.split()
EVERY = 7
"""Outside the drill, every seventh word is tried in each position."""
# Words that we accept as names only in some positions; elsewhere they are more likely an error, or part of the grammar.
_REFUSED = """
    ALL AND ANTI ARRAY AS ASOF BETWEEN BY CASE COLLATE CROSS DELETE DISTINCT DIV ESCAPE EXCEPT FROM FULL GROUP HAVING IF
    ILIKE IN INNER INSERT INTERSECT IS JOIN LATERAL LEFT LIKE MERGE MINUS NATURAL NOT ON OR ORDER OVER QUALIFY REGEXP
    RIGHT RLIKE SELECT SEMI STREAM TABLE UNION UPDATE USING VALUES WATERMARK WHERE WITH
"""
REFUSED = frozenset(_REFUSED.split())
# The first word is a function if no column has its name; before the other words, Spark treats WHERE as an alias.
READ_AS_NAME = frozenset(("CURRENT_PATH", "LIMIT", "OFFSET"))
# Spark takes these words for a column if one exists, else for a function; we always take them for the function.
CALLED = frozenset(("CURRENT_DATE", "CURRENT_TIMESTAMP", "CURRENT_USER", "SESSION_USER"))


class Place(NamedTuple):
    """A position at which a name is allowed."""

    name: str
    text: str
    refused: frozenset[str]
    other: frozenset[str]


def place(block: str) -> Place:
    """Parse one block of the fixture."""
    head, *lines = block.strip().split("\n")
    name, _, text = head.partition(": ")
    lists = {kind: frozenset(words.split()) for kind, _, words in (line.partition(": ") for line in lines)}
    return Place(name, text, lists.get("refused", frozenset()), lists.get("other", frozenset()))


PLACES = [place(block) for block in _PLACES]


def reading(text: str) -> object:
    """Return our analysis of a text, or None if we refuse it."""
    parsed, problems = read_any(text, "q.sql")
    if any(problem.severity is Severity.ERROR for problem in problems):
        return None
    reads = tuple((read.table, read.streaming, read.alias, read.watermark) for read in parsed[0].reads)
    return parsed[0].canonical, reads, parsed[0].columns


def wrong(place: Place, words: list[str]) -> list[str]:
    """Return the words that we treat differently from Spark in a position."""
    found = []
    for word in words:
        ours, quoted = (reading(place.text.format(w=w)) for w in (word.lower(), f"`{word.lower()}`"))
        if word in place.refused:
            agrees = ours is None
        elif word in place.other:
            agrees = ours is None or ours != quoted or word in READ_AS_NAME
        else:
            agrees = ours == quoted or (ours is None and word in REFUSED) or (ours is not None and word in CALLED)
        found += [] if agrees else [word]
    return found


@pytest.mark.sampled
@pytest.mark.parametrize("at", range(len(PLACES)), ids=[each.name for each in PLACES])
def test_a_keyword_is_read_as_a_name_where_spark_reads_one(at: int) -> None:
    assert wrong(PLACES[at], WORDS[at % EVERY :: EVERY]) == []


@pytest.mark.drill
@pytest.mark.long
@pytest.mark.parametrize("place", PLACES, ids=[each.name for each in PLACES])
def test_every_keyword_is_read_as_a_name_where_spark_reads_one(place: Place) -> None:
    assert wrong(place, WORDS) == []


@pytest.mark.parametrize(
    ("text", "summary"),
    [
        ("SELECT a AS, b FROM STREAM s", "nothing follows AS"),
        ("SELECT a IN FROM STREAM s", "nothing follows IN"),
        ("SELECT a FROM STREAM s AS inner", "INNER cannot be the alias of a table"),
    ],
)
def test_a_keyword_that_is_not_a_name_keeps_its_meaning(text: str, summary: str) -> None:
    _, problems = read_any(text, "q.sql")
    assert problems[0].summary == summary and problems[0].remedy


@pytest.mark.parametrize("word", ["LIKE", "ILIKE", "RLIKE", "REGEXP"])
@pytest.mark.parametrize(
    "operand", ["b", "s.b", "concat(b, '%')", "CAST(b AS STRING)", "b || 'x'", "'x'", "ANY ('x', b)"]
)
def test_an_operator_behind_not_is_no_name(word: str, operand: str) -> None:
    text = "SELECT a FROM STREAM s WHERE a {not_}{word} {operand}"
    if operand.startswith("ANY") and word in ("RLIKE", "REGEXP"):
        return
    negated, plain = (reading(text.format(not_=each, word=word, operand=operand)) for each in ("NOT ", ""))
    assert plain is not None and negated is not None and negated != plain


def test_a_function_without_brackets_is_the_function() -> None:
    for word in sorted(CALLED):
        bare, quoted = (reading(f"SELECT {each} AS d, a FROM STREAM s") for each in (word.lower(), f"`{word.lower()}`"))
        assert bare is not None and bare != quoted, word


def test_a_reserved_word_as_a_name_asks_for_backticks() -> None:
    _, problems = read_any("SELECT a like, b FROM STREAM s", "q.sql")
    assert "`like` needs backticks as a name" in problems[0].remedy


@pytest.mark.spark
@pytest.mark.drill
@pytest.mark.long
def test_spark_reads_each_keyword_as_recorded() -> None:
    with spark_parser() as spark:
        assert spark.keywords() - set(WORDS) == set()
        for each in PLACES:
            plain = spark.plan(each.text.format(w="zzz"))
            plans = {word: spark.plan(each.text.format(w=word.lower())) for word in WORDS}
            same = {word for word, plan in plans.items() if plan == plain.replace("zzz", word.lower())}
            assert plain and {word for word, plan in plans.items() if not plan} == each.refused, each.name
            assert set(WORDS) - same - each.refused == each.other, each.name
