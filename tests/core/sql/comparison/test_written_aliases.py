"""The aliases that the author of a statement wrote, for the sources in its canonical text."""

from core.sql.comparison.query_edits import aliases_of_both, written_aliases
from core.sql.statement_reader import read_any

TEXT = """WITH c AS (SELECT a, count(*) AS n FROM first AS u GROUP BY a)
SELECT m.a FROM STREAM t WATERMARK ts DELAY OF INTERVAL 1 MINUTE AS m
JOIN c ON c.a = m.a JOIN plain ON plain.a = m.a JOIN c AS again ON again.a = m.a LATERAL VIEW explode(m.l) items AS x"""


def test_each_alias_of_a_canonical_text_is_known() -> None:
    (parsed,), _ = read_any(TEXT, "")
    names = written_aliases(parsed.select)
    assert sorted(names.values()) == ["again", "c", "c", "items", "m", "plain", "u"]
    for alias, name in names.items():
        assert (
            f" AS {alias}" in parsed.canonical
            or f") {alias} AS" in parsed.canonical
            or f"{alias} AS (" in (parsed.canonical)
        ), (alias, name)
    assert f"STREAM t WATERMARK ts DELAY OF INTERVAL 1 minute AS {next(a for a, n in names.items() if n == 'm')}" in (
        parsed.canonical
    )


def test_nothing_is_known_of_an_unreadable_text() -> None:
    assert written_aliases("SELECT FROM WHERE") == {}


def test_texts_that_differ_in_aliases_alone_are_called_alike() -> None:
    (old,), _ = read_any("SELECT a.x FROM STREAM t AS a JOIN d AS b ON a.x = b.x", "")
    (new,), _ = read_any("SELECT p.x FROM STREAM t AS p JOIN d AS q ON p.x = q.x", "")
    before, after = aliases_of_both(old, new)
    assert before == after == {"_t1": "p", "_t2": "q"}
