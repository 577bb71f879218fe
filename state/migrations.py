"""The ledger's schema as a list of migrations in plain SQL. New migrations are appended; released ones never change."""

import sqlite3
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlite_utils import Database

APPLICATION_ID = 0x48474C31
"""`PRAGMA application_id` of a ledger, "HGL1"."""

FIRST_VERSION = 100
"""`PRAGMA user_version` after the first migration; a lower value means a ledger from before the first release."""

_REGISTRY = """
CREATE TABLE facts (
  one INTEGER PRIMARY KEY CHECK (one = 1), ledger_id TEXT NOT NULL, project_id TEXT NOT NULL, project TEXT NOT NULL,
  environment TEXT NOT NULL, protected INTEGER NOT NULL, agent_pid INTEGER, agent_started_at REAL, agent_seen_at REAL,
  pool TEXT NOT NULL, pool_state TEXT NOT NULL, pool_detail TEXT NOT NULL, pool_generation INTEGER NOT NULL,
  session_id TEXT NOT NULL, epoch INTEGER NOT NULL, mark INTEGER NOT NULL, doubt TEXT NOT NULL,
  served INTEGER NOT NULL);
CREATE TABLE clock_check (
  one INTEGER PRIMARY KEY CHECK (one = 1), wall REAL NOT NULL, boot TEXT NOT NULL, uptime_s REAL NOT NULL,
  debt_s REAL NOT NULL, hold_s REAL NOT NULL, moved_s REAL NOT NULL);
CREATE TABLE revision (revision TEXT PRIMARY KEY, texts TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE deployment (
  id INTEGER PRIMARY KEY, changed INTEGER NOT NULL, "table" TEXT NOT NULL, version INTEGER NOT NULL,
  product TEXT NOT NULL, layer TEXT NOT NULL, owner TEXT NOT NULL, revision TEXT NOT NULL REFERENCES revision,
  compiled TEXT NOT NULL, compiled_ddl TEXT NOT NULL, columns TEXT NOT NULL, format TEXT NOT NULL,
  folder TEXT NOT NULL, checkpoint TEXT NOT NULL, checkpoint_id TEXT NOT NULL, trigger TEXT NOT NULL,
  mode TEXT NOT NULL, stateful INTEGER NOT NULL, wanted TEXT NOT NULL, state TEXT NOT NULL, state_since REAL NOT NULL,
  active INTEGER NOT NULL, bindings TEXT NOT NULL, query_id TEXT NOT NULL, run_id TEXT NOT NULL,
  restarts INTEGER NOT NULL, error_class TEXT NOT NULL, error TEXT NOT NULL, started_at REAL,
  created_at REAL NOT NULL, plan_hash TEXT NOT NULL, drop_after REAL, trash TEXT NOT NULL, purged_at REAL,
  external INTEGER NOT NULL, checkpoint_ok INTEGER NOT NULL, lost TEXT NOT NULL,
  lost_kind TEXT NOT NULL, pool TEXT, engine TEXT NOT NULL,
  made_by TEXT NOT NULL, recorded INTEGER NOT NULL, served_at REAL, served_by TEXT NOT NULL, served_before INTEGER,
  stops_at REAL, begins_where TEXT NOT NULL, older_rows TEXT NOT NULL, begins_after TEXT NOT NULL,
  before_ddl TEXT NOT NULL, table_id TEXT NOT NULL, clone_of INTEGER NOT NULL, deleted_keys_id TEXT NOT NULL,
  deleted_keys_version INTEGER, deleted_keys_commit TEXT NOT NULL, deleted_keys_batch INTEGER,
  UNIQUE ("table", version));
CREATE UNIQUE INDEX deployment_active ON deployment ("table") WHERE active;
CREATE INDEX deployment_changed ON deployment (changed);
CREATE INDEX deployment_soaks ON deployment ("table") WHERE stops_at IS NOT NULL;
CREATE TABLE taken_version (
  "table" TEXT NOT NULL, version INTEGER NOT NULL, PRIMARY KEY ("table", version)) WITHOUT ROWID;
CREATE TABLE table_act (
  "table" TEXT PRIMARY KEY, serial INTEGER NOT NULL, what TEXT NOT NULL, at REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE word (
  subject TEXT PRIMARY KEY, wish TEXT NOT NULL, serial INTEGER NOT NULL, actor TEXT NOT NULL,
  at REAL NOT NULL) WITHOUT ROWID;
"""

_MEASUREMENTS = """
CREATE TABLE measurement (
  deployment INTEGER PRIMARY KEY REFERENCES deployment, changed INTEGER NOT NULL, at REAL NOT NULL,
  lag_rows INTEGER, lag_files INTEGER, lag_bytes INTEGER, exact INTEGER NOT NULL, behind_s REAL, data_age_s REAL,
  fault TEXT NOT NULL, fault_why TEXT NOT NULL, trend TEXT NOT NULL, rate_rows_s REAL, eta_s REAL, in_rows_s REAL,
  out_rows_s REAL, rows_total INTEGER, batch INTEGER, batch_ms INTEGER, durations TEXT NOT NULL,
  watermark TEXT NOT NULL, state_rows INTEGER, state_bytes INTEGER, dropped_by_watermark INTEGER, committed_at REAL,
  sources TEXT NOT NULL, fastest_rows_s REAL);
CREATE INDEX measurement_changed ON measurement (changed);
CREATE TABLE sample (
  place INTEGER PRIMARY KEY, lag_rows INTEGER, lag_files INTEGER, lag_bytes INTEGER, in_rows_s REAL, out_rows_s REAL,
  batch_ms INTEGER, produced_rows INTEGER, consumed_rows INTEGER);
CREATE TABLE sample_minute (
  place INTEGER PRIMARY KEY, lag_rows INTEGER, lag_files INTEGER, in_rows_s REAL, out_rows_s REAL, batch_ms INTEGER);
CREATE TABLE sample_quarter (
  place INTEGER PRIMARY KEY, lag_rows INTEGER, lag_files INTEGER, in_rows_s REAL, out_rows_s REAL, batch_ms INTEGER);
CREATE TABLE sample_round (slot INTEGER PRIMARY KEY);
CREATE TABLE folded_lag (key TEXT PRIMARY KEY, body TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE table_statistics (
  deployment INTEGER PRIMARY KEY REFERENCES deployment, at REAL NOT NULL, rows INTEGER, exact INTEGER NOT NULL,
  bytes INTEGER, files INTEGER, earliest REAL, gone INTEGER, small_files INTEGER, log_entries INTEGER,
  log_bytes INTEGER, log TEXT NOT NULL);
CREATE TABLE headroom (
  one INTEGER PRIMARY KEY CHECK (one = 1), at REAL NOT NULL, disk_free INTEGER, disk_total INTEGER, cores INTEGER,
  busy REAL, engine TEXT NOT NULL);
CREATE TABLE spark_analysis (key TEXT PRIMARY KEY, at REAL NOT NULL, answer TEXT NOT NULL) WITHOUT ROWID;
CREATE INDEX spark_analysis_at ON spark_analysis (at, key);
CREATE TABLE event (
  id INTEGER PRIMARY KEY, at REAL NOT NULL, "table" TEXT NOT NULL, version INTEGER NOT NULL, kind TEXT NOT NULL,
  summary TEXT NOT NULL, detail TEXT NOT NULL, fingerprint TEXT NOT NULL, count INTEGER NOT NULL,
  first_at REAL NOT NULL, before TEXT NOT NULL, state TEXT NOT NULL, cause TEXT NOT NULL, by TEXT NOT NULL);
CREATE INDEX event_at ON event (at);
CREATE INDEX event_of_table ON event ("table", at);
CREATE UNIQUE INDEX event_group ON event ("table", version, kind, fingerprint) WHERE fingerprint <> '';
"""

_WORK = """
CREATE TABLE plan (
  hash TEXT PRIMARY KEY, body TEXT NOT NULL, author TEXT NOT NULL, author_uid INTEGER, author_process_uid INTEGER,
  created_at REAL NOT NULL, expires_at REAL NOT NULL, status TEXT NOT NULL, run_id TEXT NOT NULL,
  texts TEXT NOT NULL, folder TEXT NOT NULL, superseded_by TEXT NOT NULL, superseded_at REAL);
CREATE TABLE plan_table (
  plan_hash TEXT NOT NULL, "table" TEXT NOT NULL, serial INTEGER NOT NULL, acts INTEGER NOT NULL, says TEXT NOT NULL,
  PRIMARY KEY (plan_hash, "table")) WITHOUT ROWID;
CREATE INDEX plan_table_of_table ON plan_table ("table");
CREATE TABLE approval (
  plan_hash TEXT NOT NULL, uid INTEGER NOT NULL, login TEXT NOT NULL, at REAL NOT NULL, process_uid INTEGER,
  PRIMARY KEY (plan_hash, uid)) WITHOUT ROWID;
CREATE TABLE policy (
  id INTEGER PRIMARY KEY, at REAL NOT NULL, actor TEXT NOT NULL, actor_uid INTEGER, actor_process_uid INTEGER,
  digest TEXT NOT NULL, body TEXT NOT NULL, status TEXT NOT NULL, approver TEXT NOT NULL, in_force_at REAL);
CREATE UNIQUE INDEX policy_that_counts ON policy (status) WHERE status <> 'replaced';
CREATE TABLE staged (
  actor TEXT NOT NULL, folder TEXT NOT NULL, "table" TEXT NOT NULL, verb TEXT NOT NULL, at REAL NOT NULL,
  PRIMARY KEY (actor, folder, "table")) WITHOUT ROWID;
CREATE TABLE run (
  id TEXT PRIMARY KEY, plan_hash TEXT NOT NULL, actor TEXT NOT NULL, state TEXT NOT NULL, started_at REAL NOT NULL,
  ended_at REAL, continues TEXT NOT NULL, serial INTEGER NOT NULL, acknowledged_by TEXT NOT NULL,
  predicted_low_s REAL, predicted_high_s REAL);
CREATE INDEX run_open ON run (started_at) WHERE ended_at IS NULL;
CREATE INDEX run_continues ON run (continues);
CREATE TABLE step (
  run_id TEXT NOT NULL REFERENCES run, n INTEGER NOT NULL, "do" TEXT NOT NULL, "table" TEXT NOT NULL,
  version INTEGER NOT NULL, state TEXT NOT NULL, tries INTEGER NOT NULL, note TEXT NOT NULL, started_at REAL,
  ended_at REAL, intent_at REAL, evidence TEXT NOT NULL, predicted_low_s REAL, predicted_high_s REAL,
  PRIMARY KEY (run_id, n)) WITHOUT ROWID;
CREATE TABLE run_table (
  run_id TEXT NOT NULL REFERENCES run, "table" TEXT NOT NULL, reads INTEGER NOT NULL,
  PRIMARY KEY (run_id, "table")) WITHOUT ROWID;
CREATE TABLE run_word (
  serial INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, act TEXT NOT NULL, step INTEGER NOT NULL,
  actor TEXT NOT NULL, at REAL NOT NULL, statement_serial INTEGER NOT NULL);
CREATE TABLE check_result (
  run_id TEXT NOT NULL, "table" TEXT NOT NULL, n INTEGER NOT NULL, at REAL NOT NULL, old_version INTEGER NOT NULL,
  new_version INTEGER NOT NULL, old_batch INTEGER, new_batch INTEGER, "check" TEXT NOT NULL, verdict TEXT NOT NULL,
  summary TEXT NOT NULL, counts TEXT NOT NULL, examples TEXT NOT NULL, PRIMARY KEY (run_id, "table", n));
CREATE TABLE migration_ticket (
  run_id TEXT NOT NULL, "table" TEXT NOT NULL, reader TEXT NOT NULL, product TEXT NOT NULL, owner TEXT NOT NULL,
  is_statement INTEGER NOT NULL, old TEXT NOT NULL, new TEXT NOT NULL, cut_batch INTEGER, cut_at REAL NOT NULL,
  deadline REAL NOT NULL, closed_at REAL, closed_by TEXT NOT NULL, PRIMARY KEY (run_id, old, reader));
"""

_AUDIT = """
CREATE TABLE command (
  id INTEGER PRIMARY KEY, at REAL NOT NULL, actor TEXT NOT NULL, op TEXT NOT NULL, subject TEXT NOT NULL,
  line TEXT NOT NULL, outcome TEXT NOT NULL, detail TEXT NOT NULL, ended_at REAL, took_ms INTEGER);
CREATE TABLE audit (
  id INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, actor TEXT NOT NULL, action TEXT NOT NULL,
  subject TEXT NOT NULL, plan_hash TEXT NOT NULL, confirmation TEXT NOT NULL, outcome TEXT NOT NULL,
  previous TEXT NOT NULL, hash TEXT NOT NULL);
CREATE TABLE audit_head (one INTEGER PRIMARY KEY CHECK (one = 1), entry INTEGER NOT NULL, hash TEXT NOT NULL);
CREATE TABLE audit_archive (
  file TEXT PRIMARY KEY, year INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, hash TEXT NOT NULL,
  bytes INTEGER NOT NULL) WITHOUT ROWID;
CREATE TRIGGER audit_is_not_changed BEFORE UPDATE ON audit
  BEGIN SELECT RAISE(ABORT, 'the audit is append-only'); END;
CREATE TRIGGER audit_is_not_replaced BEFORE INSERT ON audit WHEN EXISTS (SELECT 1 FROM audit WHERE id = NEW.id)
  BEGIN SELECT RAISE(ABORT, 'the audit is append-only'); END;
CREATE TRIGGER audit_is_not_deleted BEFORE DELETE ON audit
  WHEN OLD.id > (SELECT coalesce(max(last), 0) FROM audit_archive)
  BEGIN SELECT RAISE(ABORT, 'the audit is append-only'); END;
"""

_START_BATCH = """
ALTER TABLE deployment ADD COLUMN begins_after_version INTEGER NOT NULL DEFAULT 0;
ALTER TABLE deployment ADD COLUMN begins_after_batch INTEGER;
"""

_TIME_LEFT = "ALTER TABLE measurement ADD COLUMN time_left TEXT NOT NULL DEFAULT '';\n"

_OBJECTIVE = "ALTER TABLE measurement ADD COLUMN objective_s REAL;\n"

_VARIABLES = ""
"""Older programs cannot read `revision.texts` with the members `variables` and `written`; the schema is the same."""

_UNLOCK = """
CREATE TABLE unlock (
  uid INTEGER PRIMARY KEY, actor TEXT NOT NULL, ticket TEXT NOT NULL, at REAL NOT NULL, until REAL NOT NULL,
  boot TEXT NOT NULL, uptime_s REAL NOT NULL, seconds REAL NOT NULL);
"""

_SERVES = "ALTER TABLE facts ADD COLUMN serves TEXT;\n"

_HEX = "lower(hex(randomblob({})))".format
_VERSION_ID = f"""
ALTER TABLE deployment ADD COLUMN version_id TEXT NOT NULL DEFAULT '';
UPDATE deployment SET version_id = {_HEX(4)} || '-' || {_HEX(2)} || '-4' || substr({_HEX(2)}, 2) || '-a'
  || substr({_HEX(2)}, 2) || '-' || {_HEX(6)} WHERE NOT external;
"""

_FUNCTIONS = ""
"""Older programs cannot read `revision.texts` with the member `functions`; the schema is the same."""

_POOLS = """
CREATE TABLE pool (
  place TEXT PRIMARY KEY, n INTEGER NOT NULL, name TEXT NOT NULL, state TEXT NOT NULL, detail TEXT NOT NULL,
  generation INTEGER NOT NULL, session_id TEXT NOT NULL, began_at REAL, declared TEXT, most INTEGER) WITHOUT ROWID;
INSERT INTO pool SELECT '', 0, pool, pool_state, pool_detail, pool_generation, session_id, NULL, NULL, NULL FROM facts;
ALTER TABLE facts DROP COLUMN pool;
ALTER TABLE facts DROP COLUMN pool_state;
ALTER TABLE facts DROP COLUMN pool_detail;
ALTER TABLE facts DROP COLUMN pool_generation;
ALTER TABLE facts DROP COLUMN session_id;
"""

_SLOW = "ALTER TABLE measurement ADD COLUMN slow TEXT NOT NULL DEFAULT '';\n"

_CORDON = """
ALTER TABLE pool ADD COLUMN engine TEXT NOT NULL DEFAULT '';
ALTER TABLE pool ADD COLUMN cordoned_at REAL;
ALTER TABLE pool ADD COLUMN cordoned_by TEXT NOT NULL DEFAULT '';
"""

_LOST_POOL = """
ALTER TABLE pool ADD COLUMN application TEXT NOT NULL DEFAULT '';
ALTER TABLE pool ADD COLUMN silent_since REAL;
ALTER TABLE pool ADD COLUMN manager_says TEXT;
"""

MIGRATIONS = (
    _REGISTRY + _MEASUREMENTS + _WORK + _AUDIT,
    _START_BATCH,
    _TIME_LEFT,
    _OBJECTIVE,
    _VARIABLES,
    _UNLOCK,
    _SERVES,
    _VERSION_ID,
    _FUNCTIONS,
    _POOLS,
    _SLOW,
    _CORDON,
    _LOST_POOL,
)
"""The migrations.

The first migration turns an empty file into a ledger of `FIRST_VERSION`; each later migration adds 1 to the version.
"""

SCHEMA_VERSION = FIRST_VERSION + len(MIGRATIONS) - 1
"""`PRAGMA user_version` of a ledger that this program writes."""


def migrate(connection: sqlite3.Connection, migrations: tuple[str, ...] = MIGRATIONS) -> None:
    """Migrate a ledger to the latest schema, with one transaction per migration and its version number.

    The connection must be in autocommit mode (`isolation_level=None`). A failed or killed migration leaves no trace.
    """
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version == FIRST_VERSION + len(migrations) - 1:
        return
    # The import takes 0.1 s, so it happens only if the ledger is new or older.
    from sqlite_utils import Database, Migrations

    known = Migrations("ledger")
    for number, script in enumerate(migrations, FIRST_VERSION):
        known(name=f"{number:04}")(_step(number, script))
    known.apply(Database(connection))


def _step(version: int, script: str) -> "Callable[[Database], None]":
    """Return a function that runs a migration in sqlite-utils' transaction, which `executescript` would commit."""

    def migrate_to(database: "Database") -> None:
        pending = ""
        for line in script.splitlines(keepends=True):
            pending += line
            if sqlite3.complete_statement(pending):
                database.conn.execute(pending)
                pending = ""
        assert not pending.strip(), f"a migration ends in the middle of a statement: {pending!r}"
        database.conn.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        database.conn.execute(f"PRAGMA user_version = {version}")

    return migrate_to
