"""Options that a start adds to the streams of a bound statement."""

import pytest

from core.sql.compiler import tracking_options, with_stream_options
from core.sql.statement_reader import read_any


@pytest.mark.parametrize(
    ("select", "expected"),
    [
        ("SELECT * FROM STREAM `p__v1`", "SELECT * FROM STREAM `p__v1` WITH ('k'='v')"),
        ("SELECT * FROM STREAM(`p__v1`) x", "SELECT * FROM STREAM(`p__v1`) WITH ('k'='v') x"),
        ("SELECT * FROM STREAM `p` IDENTIFIED BY one", "SELECT * FROM STREAM `p` WITH ('k'='v') IDENTIFIED BY one"),
        ("SELECT * FROM STREAM `p__v1` with ('a'='b') p", "SELECT * FROM STREAM `p__v1` with ('k'='v', 'a'='b') p"),
        (
            "SELECT * FROM STREAM `p` WATERMARK ts DELAY OF INTERVAL 1 MINUTE AS x",
            "SELECT * FROM STREAM `p` WITH ('k'='v') WATERMARK ts DELAY OF INTERVAL 1 MINUTE AS x",
        ),
        ("SELECT 'STREAM x' FROM STREAM p -- STREAM y", "SELECT 'STREAM x' FROM STREAM p WITH ('k'='v') -- STREAM y"),
        (
            "SELECT * FROM (SELECT * FROM STREAM `p` WITH ('a'='b') WHERE id > 1) AS p",
            "SELECT * FROM (SELECT * FROM STREAM `p` WITH ('k'='v', 'a'='b') WHERE id > 1) AS p",
        ),
    ],
)  # fmt: skip
def test_added_options_are_first_among_those_of_a_stream(select: str, expected: str) -> None:
    written = with_stream_options(select, {0: (("k", "v"),)})
    assert written == expected
    (found,), _ = read_any(written, "")
    assert ("k", "v") in next(read for read in found.reads if read.streaming).options


def test_each_source_has_options_of_its_own_and_a_static_side_none() -> None:
    select = "SELECT * FROM s JOIN STREAM a ON true JOIN STREAM(b) WITH ('x'='y') ON true JOIN t"
    written = with_stream_options(select, {0: (("k", "1"),), 1: (("k", "2"),)})
    assert written == (
        "SELECT * FROM s JOIN STREAM a WITH ('k'='1') ON true JOIN STREAM(b) WITH ('k'='2', 'x'='y') ON true JOIN t"
    )
    assert with_stream_options(select, {1: (("k", "2"),)}).count("'k'") == 1
    assert with_stream_options(select, {}) == select


def test_a_position_is_written_unchanged() -> None:
    options = tracking_options("/data/it's here", 2)
    assert options[0] == ("schemaTrackingLocation", "/data/it's here/schemas/2")
    written = with_stream_options("SELECT * FROM STREAM a", {0: options})
    (found,), _ = read_any(written, "")
    assert dict(found.reads[0].options)["schemaTrackingLocation"] == "/data/it's here/schemas/2"
