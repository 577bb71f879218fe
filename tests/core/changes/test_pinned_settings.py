"""Pinned settings of a pool: all settings that can change rows or state, but no secrets."""

from core.changes.pinned_settings import pool_at_start, recorded_pool
from core.project.model import Pool

STATE = "spark.sql.streaming.stateStore.providerClass"
DECLARED = Pool(
    "prod", "sc://host:15002/;token=hunter2;user_id=ana", 8, "16g",
    ((STATE, "RocksDB"), ("spark.sql.ansi.enabled", "true"), ("spark.sql.catalog.pg.password", "hunter2"),
     ("spark.hadoop.fs.s3a.access.key", "AKIA"), ("spark.executor.memory", "4g")),
)  # fmt: skip


def test_neither_url_nor_settings_of_a_record_hold_a_secret() -> None:
    kept = recorded_pool(DECLARED)
    assert kept == Pool("prod", "sc://host:15002", 8, "16g", (("spark.sql.ansi.enabled", "true"), (STATE, "RocksDB")))
    assert recorded_pool(kept) == kept
    assert recorded_pool(Pool()) == Pool()


def test_a_restart_on_another_pool_takes_its_settings_except_pinned_ones() -> None:
    first = pool_at_start(DECLARED, None)
    other = Pool("other", None, 2, "2g", ((STATE, "HDFSBacked"), ("spark.sql.ansi.enabled", "false")))
    again = pool_at_start(other, first)
    assert again == Pool("other", None, 2, "2g", (("spark.sql.ansi.enabled", "false"), (STATE, "RocksDB")))
    assert pool_at_start(Pool("bare"), first).conf == ((STATE, "RocksDB"),)
    assert pool_at_start(other, pool_at_start(Pool("bare"), None)).conf == (("spark.sql.ansi.enabled", "false"),)
