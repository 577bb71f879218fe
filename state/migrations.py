"""The ledger's schema as migrations; they only append: a released one is never edited.

Each is plain SQL, or a function where SQL cannot fill what it adds, inside the transaction that sqlite-utils opens
around it, with the version number that readers check.
"""

import sqlite3
from collections.abc import Callable
from typing import TYPE_CHECKING

from state.audit_chain import FIRST, HASHED, entry_hash

if TYPE_CHECKING:
    from sqlite_utils import Database

APPLICATION_ID = 0x48474C31
"""`PRAGMA application_id` of a ledger, "HGL1"."""

_REGISTRY = """
CREATE TABLE facts (
  one INTEGER PRIMARY KEY CHECK (one = 1), ledger_id TEXT NOT NULL, project_id TEXT NOT NULL, project TEXT NOT NULL,
  environment TEXT NOT NULL, protected INTEGER NOT NULL, agent_pid INTEGER, agent_started_at REAL, agent_seen_at REAL,
  pool TEXT NOT NULL, pool_state TEXT NOT NULL, pool_detail TEXT NOT NULL, pool_generation INTEGER NOT NULL,
  session_id TEXT NOT NULL);
CREATE TABLE revision (revision TEXT PRIMARY KEY, texts TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE deployment (
  id INTEGER PRIMARY KEY, changed INTEGER NOT NULL, "table" TEXT NOT NULL, version INTEGER NOT NULL,
  product TEXT NOT NULL, layer TEXT NOT NULL, owner TEXT NOT NULL, revision TEXT NOT NULL REFERENCES revision,
  compiled TEXT NOT NULL, compiled_ddl TEXT NOT NULL, columns TEXT NOT NULL, format TEXT NOT NULL,
  folder TEXT NOT NULL, checkpoint TEXT NOT NULL, checkpoint_id TEXT NOT NULL, trigger TEXT NOT NULL,
  mode TEXT NOT NULL, stateful INTEGER NOT NULL, wanted TEXT NOT NULL, state TEXT NOT NULL, state_since REAL NOT NULL,
  active INTEGER NOT NULL, bindings TEXT NOT NULL, query_id TEXT NOT NULL, run_id TEXT NOT NULL,
  restarts INTEGER NOT NULL, error_class TEXT NOT NULL, error TEXT NOT NULL, started_at REAL,
  created_at REAL NOT NULL, plan_hash TEXT NOT NULL, drop_after REAL, trash TEXT NOT NULL, external INTEGER NOT NULL,
  purged_at REAL, checkpoint_ok INTEGER NOT NULL DEFAULT 1, UNIQUE ("table", version));
CREATE UNIQUE INDEX deployment_active ON deployment ("table") WHERE active;
CREATE INDEX deployment_changed ON deployment (changed);
"""

_MEASUREMENTS = """
CREATE TABLE measurement (
  deployment INTEGER PRIMARY KEY REFERENCES deployment, changed INTEGER NOT NULL, at REAL NOT NULL,
  lag_rows INTEGER, lag_files INTEGER, lag_bytes INTEGER, exact INTEGER NOT NULL, oldest_s REAL, trend TEXT NOT NULL,
  rate_rows_s REAL, eta_s REAL, in_rows_s REAL, out_rows_s REAL, rows_total INTEGER, batch INTEGER, batch_ms INTEGER,
  durations TEXT NOT NULL, watermark TEXT NOT NULL, state_rows INTEGER, state_bytes INTEGER,
  dropped_by_watermark INTEGER, committed_at REAL, sources TEXT NOT NULL);
CREATE INDEX measurement_changed ON measurement (changed);
CREATE TABLE sample (
  place INTEGER PRIMARY KEY, lag_rows INTEGER, lag_files INTEGER, in_rows_s REAL, out_rows_s REAL, batch_ms INTEGER,
  lag_bytes INTEGER, produced_rows INTEGER, consumed_rows INTEGER);
CREATE TABLE sample_minute (
  place INTEGER PRIMARY KEY, lag_rows INTEGER, lag_files INTEGER, in_rows_s REAL, out_rows_s REAL, batch_ms INTEGER);
CREATE TABLE sample_quarter (
  place INTEGER PRIMARY KEY, lag_rows INTEGER, lag_files INTEGER, in_rows_s REAL, out_rows_s REAL, batch_ms INTEGER);
CREATE TABLE sample_round (slot INTEGER PRIMARY KEY);
CREATE TABLE event (
  id INTEGER PRIMARY KEY, at REAL NOT NULL, "table" TEXT NOT NULL, version INTEGER NOT NULL, kind TEXT NOT NULL,
  summary TEXT NOT NULL, detail TEXT NOT NULL, fingerprint TEXT NOT NULL, count INTEGER NOT NULL,
  first_at REAL NOT NULL);
CREATE INDEX event_at ON event (at);
CREATE INDEX event_of_table ON event ("table", at);
CREATE UNIQUE INDEX event_group ON event ("table", version, kind, fingerprint) WHERE fingerprint <> '';
"""

_WORK = """
CREATE TABLE plan (
  hash TEXT PRIMARY KEY, body TEXT NOT NULL, author TEXT NOT NULL, created_at REAL NOT NULL, expires_at REAL NOT NULL,
  status TEXT NOT NULL, run_id TEXT NOT NULL, texts TEXT NOT NULL);
CREATE TABLE run (
  id TEXT PRIMARY KEY, plan_hash TEXT NOT NULL, actor TEXT NOT NULL, state TEXT NOT NULL, started_at REAL NOT NULL,
  ended_at REAL);
CREATE INDEX run_open ON run (started_at) WHERE ended_at IS NULL;
CREATE TABLE step (
  run_id TEXT NOT NULL REFERENCES run, n INTEGER NOT NULL, "do" TEXT NOT NULL, "table" TEXT NOT NULL,
  version INTEGER NOT NULL, state TEXT NOT NULL, tries INTEGER NOT NULL, note TEXT NOT NULL, started_at REAL,
  ended_at REAL, intent_at REAL, evidence TEXT NOT NULL, PRIMARY KEY (run_id, n)) WITHOUT ROWID;
CREATE TABLE run_table (
  run_id TEXT NOT NULL REFERENCES run, "table" TEXT NOT NULL, PRIMARY KEY (run_id, "table")) WITHOUT ROWID;
CREATE TABLE staged (
  actor TEXT NOT NULL, folder TEXT NOT NULL, "table" TEXT NOT NULL, verb TEXT NOT NULL, at REAL NOT NULL,
  PRIMARY KEY (actor, folder, "table")) WITHOUT ROWID;
"""

_AUDIT = """
CREATE TABLE command (
  id INTEGER PRIMARY KEY, at REAL NOT NULL, actor TEXT NOT NULL, op TEXT NOT NULL, subject TEXT NOT NULL,
  line TEXT NOT NULL, outcome TEXT NOT NULL, detail TEXT NOT NULL, ended_at REAL, took_ms INTEGER);
CREATE TABLE audit (
  id INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, actor TEXT NOT NULL, action TEXT NOT NULL,
  subject TEXT NOT NULL, plan_hash TEXT NOT NULL, confirmation TEXT NOT NULL, outcome TEXT NOT NULL);
CREATE TRIGGER audit_is_not_changed BEFORE UPDATE ON audit
  BEGIN SELECT RAISE(ABORT, 'the audit is append-only'); END;
CREATE TRIGGER audit_is_not_replaced BEFORE INSERT ON audit WHEN EXISTS (SELECT 1 FROM audit WHERE id = NEW.id)
  BEGIN SELECT RAISE(ABORT, 'the audit is append-only'); END;
CREATE TRIGGER audit_is_not_deleted BEFORE DELETE ON audit
  BEGIN SELECT RAISE(ABORT, 'the audit is append-only'); END;
"""

_CONTINUED = """
ALTER TABLE run ADD COLUMN continues TEXT NOT NULL DEFAULT '';
CREATE INDEX run_continues ON run (continues);
"""

_OPINIONS = """
CREATE TABLE opinion (key TEXT PRIMARY KEY, at REAL NOT NULL, answer TEXT NOT NULL) WITHOUT ROWID;
CREATE INDEX opinion_at ON opinion (at, key);
"""

_FIGURES = """
CREATE TABLE figure (
  deployment INTEGER PRIMARY KEY REFERENCES deployment, at REAL NOT NULL, rows INTEGER, exact INTEGER NOT NULL,
  bytes INTEGER, files INTEGER, earliest REAL, gone INTEGER);
CREATE TABLE room (
  one INTEGER PRIMARY KEY CHECK (one = 1), at REAL NOT NULL, disk_free INTEGER, disk_total INTEGER, cores INTEGER,
  busy REAL, engine TEXT NOT NULL);
ALTER TABLE measurement ADD COLUMN fastest_rows_s REAL;
ALTER TABLE deployment ADD COLUMN pool TEXT;
ALTER TABLE deployment ADD COLUMN engine TEXT NOT NULL DEFAULT '';
"""

_APPROVALS = """
ALTER TABLE plan ADD COLUMN author_uid INTEGER;
CREATE TABLE approval (
  plan_hash TEXT NOT NULL, uid INTEGER NOT NULL, login TEXT NOT NULL, at REAL NOT NULL,
  PRIMARY KEY (plan_hash, uid)) WITHOUT ROWID;
"""

_POLICY = """
CREATE TABLE policy (
  id INTEGER PRIMARY KEY, at REAL NOT NULL, actor TEXT NOT NULL, actor_uid INTEGER, digest TEXT NOT NULL,
  body TEXT NOT NULL, status TEXT NOT NULL, approver TEXT NOT NULL, in_force_at REAL);
CREATE UNIQUE INDEX policy_that_counts ON policy (status) WHERE status <> 'replaced';
"""

_EXCLUSION = """
ALTER TABLE deployment ADD COLUMN stop_serial INTEGER NOT NULL DEFAULT 0;
ALTER TABLE run ADD COLUMN serial INTEGER NOT NULL DEFAULT 0;
ALTER TABLE run_table ADD COLUMN reads INTEGER NOT NULL DEFAULT 0;
"""

_FAULTS = """
ALTER TABLE measurement RENAME COLUMN oldest_s TO behind_s;
ALTER TABLE measurement ADD COLUMN data_age_s REAL;
ALTER TABLE measurement ADD COLUMN fault TEXT NOT NULL DEFAULT '';
ALTER TABLE measurement ADD COLUMN fault_why TEXT NOT NULL DEFAULT '';
"""

_PREDICTIONS = """
ALTER TABLE run ADD COLUMN predicted_low_s REAL;
ALTER TABLE run ADD COLUMN predicted_high_s REAL;
ALTER TABLE step ADD COLUMN predicted_low_s REAL;
ALTER TABLE step ADD COLUMN predicted_high_s REAL;
"""

_CLOCK = """
CREATE TABLE clock_check (
  one INTEGER PRIMARY KEY CHECK (one = 1), wall REAL NOT NULL, boot TEXT NOT NULL, uptime_s REAL NOT NULL,
  debt_s REAL NOT NULL, hold_s REAL NOT NULL);
"""

_FOLDED_LAG = """
CREATE TABLE folded_lag (key TEXT PRIMARY KEY, body TEXT NOT NULL) WITHOUT ROWID;
"""

_RECORDS = """
ALTER TABLE deployment ADD COLUMN recorded INTEGER NOT NULL DEFAULT 0;
ALTER TABLE facts ADD COLUMN served INTEGER NOT NULL DEFAULT 0;
"""

_IDENTITY = """
ALTER TABLE deployment ADD COLUMN made_by TEXT NOT NULL DEFAULT '';
ALTER TABLE facts ADD COLUMN epoch INTEGER NOT NULL DEFAULT 1;
ALTER TABLE facts ADD COLUMN mark INTEGER NOT NULL DEFAULT 0;
ALTER TABLE facts ADD COLUMN doubt TEXT NOT NULL DEFAULT '';
CREATE TABLE taken_version (
  "table" TEXT NOT NULL, version INTEGER NOT NULL, PRIMARY KEY ("table", version)) WITHOUT ROWID;
"""

_AUDIT_CHAIN = """
DROP TRIGGER audit_is_not_changed;
ALTER TABLE audit ADD COLUMN previous TEXT NOT NULL DEFAULT '';
ALTER TABLE audit ADD COLUMN hash TEXT NOT NULL DEFAULT '';
CREATE TABLE audit_head (one INTEGER PRIMARY KEY CHECK (one = 1), entry INTEGER NOT NULL, hash TEXT NOT NULL);
"""

_AUDIT_NOT_CHANGED = """
CREATE TRIGGER audit_is_not_changed BEFORE UPDATE ON audit
  BEGIN SELECT RAISE(ABORT, 'the audit is append-only'); END;
"""

_AUDIT_ARCHIVE = """
CREATE TABLE audit_archive (
  file TEXT PRIMARY KEY, year INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, hash TEXT NOT NULL,
  bytes INTEGER NOT NULL) WITHOUT ROWID;
DROP TRIGGER audit_is_not_deleted;
CREATE TRIGGER audit_is_not_deleted BEFORE DELETE ON audit
  WHEN OLD.id > (SELECT coalesce(max(last), 0) FROM audit_archive)
  BEGIN SELECT RAISE(ABORT, 'the audit is append-only'); END;
"""

_TABLE_ACTS = """
CREATE TABLE table_act (
  "table" TEXT PRIMARY KEY, serial INTEGER NOT NULL, what TEXT NOT NULL, at REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE plan_table (
  plan_hash TEXT NOT NULL, "table" TEXT NOT NULL, serial INTEGER NOT NULL, acts INTEGER NOT NULL, says TEXT NOT NULL,
  PRIMARY KEY (plan_hash, "table")) WITHOUT ROWID;
CREATE INDEX plan_table_of_table ON plan_table ("table");
ALTER TABLE plan ADD COLUMN superseded_by TEXT NOT NULL DEFAULT '';
ALTER TABLE plan ADD COLUMN superseded_at REAL;
"""

_ACKNOWLEDGED_RUNS = """
ALTER TABLE run ADD COLUMN acknowledged_by TEXT NOT NULL DEFAULT '';
UPDATE run SET acknowledged_by = actor WHERE ended_at IS NOT NULL;
"""

_SERVED = """
ALTER TABLE deployment ADD COLUMN served_at REAL;
ALTER TABLE deployment ADD COLUMN served_by TEXT NOT NULL DEFAULT '';
ALTER TABLE deployment ADD COLUMN served_before INTEGER;
UPDATE deployment SET served_at = coalesce(started_at, created_at), served_by = made_by
  WHERE NOT external AND (active OR version < (SELECT later.version FROM deployment later
    WHERE later."table" = deployment."table" AND later.active));
UPDATE deployment SET served_before = (SELECT max(older.version) FROM deployment older
    WHERE older."table" = deployment."table" AND older.version < deployment.version AND older.drop_after IS NULL)
  WHERE active AND NOT external;
"""

_SOAKS = """
ALTER TABLE deployment ADD COLUMN stops_at REAL;
"""

_ROWS_BEFORE = """
ALTER TABLE deployment ADD COLUMN begins_after TEXT NOT NULL DEFAULT '';
ALTER TABLE deployment ADD COLUMN before_ddl TEXT NOT NULL DEFAULT '';
"""

_STARTING_CONDITIONS = """
ALTER TABLE deployment ADD COLUMN begins_where TEXT NOT NULL DEFAULT '[]';
"""

_OLDER_ROWS = """
ALTER TABLE deployment ADD COLUMN older_rows TEXT NOT NULL DEFAULT '';
"""

_PLAN_FOLDERS = "ALTER TABLE plan ADD COLUMN folder TEXT NOT NULL DEFAULT '';"

_CHECK_RESULTS = """
CREATE TABLE check_result (
  run_id TEXT NOT NULL,
  "table" TEXT NOT NULL,
  n INTEGER NOT NULL,
  at REAL NOT NULL,
  old_version INTEGER NOT NULL,
  new_version INTEGER NOT NULL,
  old_batch INTEGER,
  new_batch INTEGER,
  "check" TEXT NOT NULL,
  verdict TEXT NOT NULL,
  summary TEXT NOT NULL,
  counts TEXT NOT NULL,
  examples TEXT NOT NULL,
  PRIMARY KEY (run_id, "table", n)
);
"""

_TICKETS = """
CREATE TABLE migration_ticket (
  run_id TEXT NOT NULL, "table" TEXT NOT NULL, reader TEXT NOT NULL, product TEXT NOT NULL, owner TEXT NOT NULL,
  is_statement INTEGER NOT NULL, old TEXT NOT NULL, new TEXT NOT NULL, cut_batch INTEGER, cut_at REAL NOT NULL,
  deadline REAL NOT NULL, closed_at REAL, closed_by TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (run_id, old, reader)
);
CREATE INDEX deployment_soaks ON deployment ("table") WHERE stops_at IS NOT NULL;
"""

_TABLE_IDS = "ALTER TABLE deployment ADD COLUMN table_id TEXT NOT NULL DEFAULT '';"

_CLONES = "ALTER TABLE deployment ADD COLUMN clone_of INTEGER NOT NULL DEFAULT 0;"

_DELETED_KEYS = """
ALTER TABLE deployment ADD COLUMN deleted_keys_id TEXT NOT NULL DEFAULT '';
ALTER TABLE deployment ADD COLUMN deleted_keys_version INTEGER;
ALTER TABLE deployment ADD COLUMN deleted_keys_commit TEXT NOT NULL DEFAULT '';
ALTER TABLE deployment ADD COLUMN deleted_keys_batch INTEGER;
"""

_LOG_HISTORIES = "ALTER TABLE figure ADD COLUMN log TEXT NOT NULL DEFAULT '';"

_FILE_SIZES = """
ALTER TABLE figure ADD COLUMN small_files INTEGER;
ALTER TABLE figure ADD COLUMN log_entries INTEGER;
ALTER TABLE figure ADD COLUMN log_bytes INTEGER;
"""

_LOST = "ALTER TABLE deployment ADD COLUMN lost TEXT NOT NULL DEFAULT '';"

_WORDS = """
CREATE TABLE word (
  subject TEXT PRIMARY KEY, wish TEXT NOT NULL, serial INTEGER NOT NULL, actor TEXT NOT NULL, at REAL NOT NULL
) WITHOUT ROWID;
INSERT INTO word SELECT "table" || '@v' || version, 'stop', stop_serial, 'an operator', 0
  FROM deployment WHERE stop_serial > 0;
ALTER TABLE deployment DROP COLUMN stop_serial;
"""

_RUN_WORDS = """
CREATE TABLE run_word (
  serial INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, act TEXT NOT NULL, step INTEGER NOT NULL,
  actor TEXT NOT NULL, at REAL NOT NULL
);
"""

_STATEMENT_SERIALS = """
ALTER TABLE run_word ADD COLUMN statement_serial INTEGER NOT NULL DEFAULT 0;
UPDATE run_word SET statement_serial =
  max((SELECT coalesce(max(serial), 0) FROM word), (SELECT coalesce(max(serial), 0) FROM run));
"""

Migration = str | Callable[[sqlite3.Connection], None]


def _chain_audit(connection: sqlite3.Connection) -> None:
    """Chain the entries that are there."""
    _run(connection, _AUDIT_CHAIN)
    entry, previous = 0, FIRST
    for entry, *values in connection.execute(f"SELECT id, {', '.join(HASHED)} FROM audit ORDER BY id").fetchall():
        newest = entry_hash(previous, values)
        connection.execute("UPDATE audit SET previous = ?, hash = ? WHERE id = ?", (previous, newest, entry))
        previous = newest
    if entry:
        connection.execute("INSERT INTO audit_head VALUES (1, ?, ?)", (entry, previous))
    _run(connection, _AUDIT_NOT_CHANGED)


def _run(connection: sqlite3.Connection, script: str) -> None:
    for statement in _statements(script):
        connection.execute(statement)


def _statements(script: str) -> list[str]:
    found, pending = [], ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            found.append(pending.strip())
            pending = ""
    assert not pending.strip(), f"a migration ends in the middle of a statement: {pending!r}"
    return found


_PROCESS_UIDS = """
ALTER TABLE plan ADD COLUMN author_process_uid INTEGER;
ALTER TABLE approval ADD COLUMN process_uid INTEGER;
ALTER TABLE policy ADD COLUMN actor_process_uid INTEGER;
"""

_MOVED_DEADLINES = """
ALTER TABLE clock_check ADD COLUMN moved_s REAL NOT NULL DEFAULT 0;
UPDATE clock_check SET moved_s = debt_s WHERE hold_s > 0;
UPDATE deployment SET drop_after = drop_after + (SELECT moved_s FROM clock_check),
  stops_at = stops_at + (SELECT moved_s FROM clock_check) WHERE EXISTS (SELECT 1 FROM clock_check);
UPDATE migration_ticket SET deadline = deadline + (SELECT moved_s FROM clock_check)
  WHERE EXISTS (SELECT 1 FROM clock_check);
"""

MIGRATIONS: tuple[Migration, ...] = (
    _REGISTRY + _MEASUREMENTS + _WORK + _AUDIT,
    _CONTINUED,
    _OPINIONS,
    _FIGURES,
    _APPROVALS,
    _POLICY,
    _EXCLUSION,
    _chain_audit,
    _IDENTITY,
    _FOLDED_LAG,
    _CLOCK,
    _AUDIT_ARCHIVE,
    _RECORDS,
    _TABLE_ACTS,
    _ACKNOWLEDGED_RUNS,
    _FAULTS,
    _PREDICTIONS,
    _SERVED,
    _PLAN_FOLDERS,
    _SOAKS,
    _STARTING_CONDITIONS,
    _CHECK_RESULTS,
    _TICKETS,
    _OLDER_ROWS,
    _ROWS_BEFORE,
    _TABLE_IDS,
    _CLONES,
    _LOG_HISTORIES,
    _FILE_SIZES,
    _LOST,
    _DELETED_KEYS,
    _PROCESS_UIDS,
    _WORDS,
    _MOVED_DEADLINES,
    _RUN_WORDS,
    _STATEMENT_SERIALS,
)
"""Migration N takes a ledger from `user_version` N to N + 1."""

SCHEMA_VERSION = len(MIGRATIONS)
"""`PRAGMA user_version` of a ledger that this program writes."""


def migrate(connection: sqlite3.Connection, migrations: tuple[Migration, ...] = MIGRATIONS) -> None:
    """Migrate a ledger to the newest schema, each migration in one transaction with its version number.

    The connection is in autocommit (`isolation_level=None`); a migration that fails or is killed leaves no trace.
    """
    # Only the writer pays for the import; a reader is refused by `user_version` and needs none of it.
    from sqlite_utils import Database, Migrations

    known = Migrations("ledger")
    for number, migration in enumerate(migrations, 1):
        known(name=f"{number:04}")(_step(number, migration))
    known.apply(Database(connection))


def _step(number: int, migration: Migration) -> "Callable[[Database], None]":
    def migrate_to(database: "Database") -> None:
        if isinstance(migration, str):
            _run(database.conn, migration)
        else:
            migration(database.conn)
        database.conn.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        database.conn.execute(f"PRAGMA user_version = {number}")

    return migrate_to
