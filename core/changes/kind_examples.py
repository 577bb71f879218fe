"""A short edit for each kind of change that texts can express: for the help, and to hold the classifier to it.

A side is a DDL up to its semicolon, then the statement by clauses; lines of `yml:`, `pool:` and `engine:` say what
belongs to it besides its SQL.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from core.changes.kinds import ChangeKind


@dataclass(frozen=True, slots=True)
class KindExample:
    """An edit, as the old and the new side of one table."""

    old: str
    new: str

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines that differ: old ones behind `-`, new ones behind `+`; empty where no text is edited."""
        old, new = self.old.splitlines(), self.new.splitlines()
        gone, come = [line for line in old if line not in new], [line for line in new if line not in old]
        return (*(f"- {line}" for line in gone), *(f"+ {line}" for line in come))


_FREE = """\
CREATE TABLE t (id BIGINT, v BIGINT)
USING parquet;
INSERT INTO t
SELECT id, v
FROM STREAM src"""
_SHORT = _FREE.replace("v BIGINT)\nUSING parquet", "v INT)\nUSING delta")
_COUNTS = """\
CREATE TABLE t (s TIMESTAMP, n BIGINT)
USING parquet;
INSERT INTO t
SELECT window.start AS s, sum(v) AS n
FROM STREAM src WATERMARK ts DELAY OF INTERVAL 5 MINUTES
GROUP BY window(ts, '10 minutes')"""
_JOINED = """\
CREATE TABLE t (id BIGINT, k STRING)
USING parquet;
INSERT INTO t
SELECT src.id, names.k
FROM STREAM src
JOIN names ON names.id = src.id"""
_NAMED = f"{_FREE} IDENTIFIED BY one"
_MORE = "UNION ALL SELECT id, v FROM STREAM other"


def _edit(text: str, was: str, now: str) -> KindExample:
    assert was in text
    return KindExample(text, text.replace(was, now))


KIND_EXAMPLES: Mapping[ChangeKind, KindExample] = {
    ChangeKind.NONE: KindExample(_FREE, _FREE),
    ChangeKind.COMMENT_OR_FORMAT: _edit(_FREE, "SELECT id, v", "select id, v -- one row for each order"),
    ChangeKind.DESCRIPTION: KindExample(f"{_FREE}\nyml: owner: lee", f"{_FREE}\nyml: owner: kim"),
    ChangeKind.FILTER_OR_PROJECTION: KindExample(_FREE, f"{_FREE}\nWHERE v > 10"),
    ChangeKind.COLUMN_ADDED: KindExample(
        _FREE, _FREE.replace("v BIGINT)", "v BIGINT, w BIGINT)").replace("SELECT id, v", "SELECT id, v, v * 2 AS w")
    ),
    ChangeKind.COLUMN_WIDENED: _edit(_SHORT, "v INT", "v BIGINT"),
    ChangeKind.COLUMNS_CHANGED: KindExample(
        _FREE, _FREE.replace("v BIGINT)", "v STRING)").replace("SELECT id, v", "SELECT id, CAST(v AS STRING) AS v")
    ),
    ChangeKind.STATE_CHANGED: _edit(_COUNTS, "sum(v)", "max(v)"),
    ChangeKind.CHANGE_BEFORE_STATE: _edit(_COUNTS, "GROUP BY", "WHERE v > 10\nGROUP BY"),
    ChangeKind.CHANGE_AFTER_STATE: KindExample(_COUNTS, f"{_COUNTS}\nHAVING sum(v) > 100"),
    ChangeKind.WATERMARK_DELAY: _edit(_COUNTS, "INTERVAL 5 MINUTES", "INTERVAL 10 MINUTES"),
    ChangeKind.SOURCES_CHANGED: KindExample(_FREE, f"{_FREE}\n{_MORE}"),
    ChangeKind.NAMED_SOURCES_CHANGED: KindExample(_NAMED, f"{_NAMED}\n{_MORE} IDENTIFIED BY two"),
    ChangeKind.SOURCE_REPLACED: _edit(_FREE, "STREAM src", "STREAM other"),
    ChangeKind.TABLE_FORMAT: _edit(_FREE, "USING parquet", "USING parquet PARTITIONED BY (id)"),
    ChangeKind.OUTPUT_MODE_OR_KEY: KindExample(f"{_FREE}\nyml: key: [id]", f"{_FREE}\nyml: key: [id, v]"),
    ChangeKind.TRIGGER_OR_RATE: KindExample(f"{_FREE}\nyml: trigger: 5 seconds", f"{_FREE}\nyml: trigger: 1 minute"),
    ChangeKind.SCHEMA_TRACKING: KindExample(_FREE, f"{_FREE}\nyml: schema_tracking: true"),
    ChangeKind.PINNED_CONFIGURATION: KindExample(
        f"{_COUNTS}\npool: spark.sql.shuffle.partitions=200", f"{_COUNTS}\npool: spark.sql.shuffle.partitions=400"
    ),
    ChangeKind.POOL: KindExample(f"{_FREE}\npool: small", f"{_FREE}\npool: large"),
    ChangeKind.ENGINE: KindExample(f"{_FREE}\nengine: 4.2.0", f"{_FREE}\nengine: 4.3.0"),
    ChangeKind.STATIC_SIDE: KindExample(_JOINED, _JOINED.replace("names", "new_names")),
}
"""All kinds but CHECKPOINT_LOST, which is found beside the texts."""
