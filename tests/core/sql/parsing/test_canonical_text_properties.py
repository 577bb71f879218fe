"""Properties of canonical text over the whole corpus: it is its own canonical text, and ignores formatting."""

from functools import cache

import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from sql_corpus import Case, cases
from sqlglot import Token, TokenType
from sqlglot.dialects.spark import Spark

from core.changes.classification import Change, classify
from core.changes.kinds import ChangeKind
from core.model.actions import Action
from core.project.revision import Revision, RevisionTexts
from core.sql.statement import ParsedStatement, TableDdl, Verb
from core.sql.statement_reader import read_any

KEPT = frozenset({TokenType.VAR, TokenType.IDENTIFIER, TokenType.STRING, TokenType.TRUE, TokenType.FALSE})
"""Token types whose spelling is kept: names, and values of options."""
WORDS = frozenset(("STREAM", "WATERMARK", "DELAY", "OF", "INTERVAL", "IDENTIFIED"))
"""Keywords of Spark that sqlglot's tokenizer treats as names."""
SPACES = (" ", "\n", "\r\n\t", " /* STREAM ; ' */ ", " -- FROM STREAM x ' \n")
UNWRITABLE = frozenset(("pivot: of a static side with an alias", "window_functions: QUALIFY"))
"""Cases that cannot be written back: a pivot has two aliases, and sqlglot writes QUALIFY as a subquery. None can
stream."""


@cache
def read(text: str, reads: str) -> tuple[ParsedStatement, ...]:
    return read_any(text, "f.sql", every_table_streams=reads == "stream")[0]


@cache
def readable() -> tuple[Case, ...]:
    # MERGE, which no pipeline uses, has its original words as canonical text.
    return tuple(case for case in cases() if {p.verb for p in read(case.text, case.reads)} - {Verb.MERGE})


# Hundreds of statements are parsed when a test draws the first one, and not by each worker that collects the tests.
READABLE = st.deferred(lambda: st.sampled_from(readable()))


def meaning(text: str, reads: str) -> list[tuple[object, ...]]:
    """Return the parts of a statement's analysis that must not depend on how the statement is written."""
    return [(p.writes, p.canonical, p.state, p.pre, p.post, p.operators) for p in read(text, reads)]


def words(text: str) -> list[Token]:
    """Split a text into tokens; `0.5D`, three tokens to sqlglot at one position, is one word."""
    found: list[Token] = []
    for token in Spark().tokenize(text.removeprefix("\ufeff")):
        if not found or token.start > found[-1].end:
            found.append(token)
    return found


def written(plain: str, token: Token, *, upper: bool) -> str:
    """Return one token, keywords in another case."""
    kept = token.token_type in KEPT and plain.upper() not in WORDS
    return plain if kept or any(mark in plain for mark in "'\"`") else plain.upper() if upper else plain.lower()


def rewritten(text: str, spaces: list[str], cased: list[bool]) -> str:
    """Return a text with different space, comments and case of keywords; the lists are used in turn."""
    text, pieces, end = text.removeprefix("\ufeff"), [""], 0
    for n, token in enumerate(words(text)):
        # Spark may treat adjacent tokens as one: `'it''s'`, `x'1F'`, the words of a hint.
        pieces.append(spaces[n % len(spaces)] if token.start > end else "")
        pieces.append(written(text[token.start : token.end + 1], token, upper=cased[n % len(cased)]))
        end = token.end + 1
    return "".join(pieces)


def test_canonical_text_is_its_own_canonical_text() -> None:
    others = [
        (case.key, parsed.canonical, again)
        for case in readable()
        if case.key not in UNWRITABLE
        for parsed in read(case.text, case.reads)
        if (again := [each.canonical for each in read(parsed.canonical, "batch")]) != [parsed.canonical]
    ]
    assert others == []


@pytest.mark.parametrize(
    ("spaces", "cased"), [(list(SPACES), [True, False]), (["\n"], [True]), ([" /* x */\t"], [False])]
)
def test_white_space_comments_and_keyword_case_mean_nothing(spaces: list[str], cased: list[bool]) -> None:
    others = [
        case.key
        for case in readable()
        if meaning(rewritten(case.text, spaces, cased), case.reads) != meaning(case.text, case.reads)
    ]
    assert others == []


@settings(max_examples=examples(300))
@given(READABLE, st.lists(st.sampled_from(SPACES), min_size=1), st.lists(st.booleans(), min_size=1))
def test_no_way_of_writing_means_anything(case: Case, spaces: list[str], cased: list[bool]) -> None:
    assert meaning(rewritten(case.text, spaces, cased), case.reads) == meaning(case.text, case.reads)


def revisions(case: Case, text: str) -> list[Revision]:
    return [
        Revision(parsed.writes, RevisionTexts(dml=text), parsed, TableDdl(parsed.writes, (), "parquet"))
        for parsed in read(text, case.reads)
    ]


def test_an_unchanged_statement_is_kept_and_a_reformatted_one_recorded() -> None:
    others = []
    for case in readable():
        again = revisions(case, rewritten(case.text, ["\n"], [True]))
        for old, new in zip(revisions(case, case.text), again, strict=True):
            kept = classify(old, old) == Change(ChangeKind.NONE, Action.KEEP)
            if not kept or classify(old, new).action not in (Action.KEEP, Action.RECORD):
                others.append(case.key)
    assert others == []


@settings(max_examples=examples(300))
@given(READABLE, READABLE)
def test_two_statements_that_differ_are_never_recorded(one: Case, other: Case) -> None:
    for old in revisions(one, one.text):
        for new in revisions(other, other.text):
            found = classify(old, new)
            same = (old.table, old.parsed and old.parsed.canonical) == (new.table, new.parsed and new.parsed.canonical)
            assert (found.action in (Action.KEEP, Action.RECORD)) == same
            assert found.evidence or found.kind is ChangeKind.NONE
