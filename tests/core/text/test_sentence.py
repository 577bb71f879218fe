"""Facts and sentences: kinds differ even if their words do not, and mypy prevents decisions based on words."""

from mypy import api

from core.text.sentence import Fact, FactKind


class Refused(FactKind):
    KEEPS_STATE = "it keeps state"
    COUNTS = "it keeps state"
    LEFT_BEHIND = "{tables} would be left behind: {why}"
    TOO_LARGE = (
        "{tables:few} {tables:needs/need} {bytes:size} for {rows:number} rows; {reasons:;}",
        "stop {tables:typed}",
    )


def test_two_kinds_with_the_same_sentence_differ() -> None:
    assert Refused.KEEPS_STATE is not Refused.COUNTS
    assert Refused.KEEPS_STATE.of() != Refused.COUNTS.of()
    assert str(Refused.KEEPS_STATE.of()) == str(Refused.COUNTS.of())


def test_a_fact_shows_its_values_and_writes_them_beside_its_sentence() -> None:
    fact = Refused.LEFT_BEHIND.of(tables=("a", "b"), why=Refused.COUNTS.of())
    assert str(fact) == fact.sentence == "a, b would be left behind: it keeps state"
    assert fact.as_json() == {
        "kind": "left_behind",
        "tables": ["a", "b"],
        "why": {"kind": "counts", "sentence": "it keeps state"},
        "sentence": "a, b would be left behind: it keeps state",
    }
    assert {fact: 1}[Fact(Refused.LEFT_BEHIND, fact.values)] == 1


def test_a_sentence_shows_numbers_and_lists_by_their_formats_and_has_a_remedy() -> None:
    reasons = (Refused.COUNTS.of(), "it is old")
    fact = Refused.TOO_LARGE.of(tables=("a", "b", "c", "d"), bytes=2_400_000, rows=41_000, reasons=reasons)
    assert str(fact) == "a, b, c and 1 more need 2.4 MB for 41k rows; it keeps state; it is old"
    assert (str(fact.remedy), Refused.COUNTS.of().remedy) == ("stop a b c d", None)
    assert fact.fields["reasons"] == [{"kind": "counts", "sentence": "it keeps state"}, "it is old"]
    one = Refused.TOO_LARGE.of(tables=("a",), bytes=1, rows=1, reasons=())
    assert str(one).startswith("a needs 1 B for 1 rows")


USES = (
    'shown == "x"', 'shown in ("x", "y")', '"x" in shown', 'shown.startswith("x")', 'shown + "x"', "len(shown)",
    'maybe == "x"', 're.match("x", shown)', "1 if shown else 2", "sorted([shown])", 'fact.startswith("x")',
    'fact == "x"', "1 if fact else 2",
)  # fmt: skip


def test_nothing_is_decided_from_a_sentence() -> None:
    head = "import re\nfrom core.text.sentence import Fact, FactKind, Sentence\n"
    parameters = "shown: Sentence, maybe: Sentence | None, fact: Fact[FactKind]"
    text = f"{head}def decide({parameters}) -> None:\n" + "".join(f"    print({use})\n" for use in USES)
    said, _, _ = api.run(["--strict", "--enable-error-code=truthy-bool", "--config-file=", "-c", text])
    refused = {int(line.split(":")[1]) for line in said.splitlines() if ": error: " in line}
    assert [use for line, use in enumerate(USES, 4) if line not in refused] == []
