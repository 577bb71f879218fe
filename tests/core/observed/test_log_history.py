"""The versions in a table's log: rows since a position are known only if the log holds them."""

from core.observed.table_statistics import LogHistory, history_of

LOG = LogHistory(3, 30.0, ((5, 50.0, 10), (6, 60.0, None), (7, 70.0, 4), (8, 80.0, 2)))


def test_rows_are_known_where_each_commit_says_them() -> None:
    assert (LOG.last, LOG.last_at) == (8, 80.0)
    assert [LOG.rows_from(version) for version in (4, 5, 7, 8, 9)] == [None, None, 6, 2, 0]
    assert [LOG.rows_since(moment) for moment in (49.0, 60.5, 70.0, 90.0)] == [None, 6, 6, 0]
    assert LogHistory(0, 1.0, ((0, 1.0, 0), (1, 2.0, 5))).rows_since(0.5) == 5, "nothing came before the first version"


def test_it_reads_what_it_writes_and_nothing_else() -> None:
    assert history_of(LOG.as_text()) == LOG
    for text in ("", "{}", "[]", '{"first":[1,2],"commits":[]}', '{"first":[],"commits":[[1,2,3]]}', "nonsense"):
        assert history_of(text) is None
