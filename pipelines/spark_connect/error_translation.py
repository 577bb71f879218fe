"""Translates Spark's errors into Headgate's, with an error class, one line about the cause, and whether to retry."""

import logging
import re
from functools import cache

import grpc
from pyspark.errors import PySparkException

from core.model.errors import JOB_ERRORS, EngineRefused, HeadgateError, PoolUnreachable, SparkFailure
from core.sql.avro_schemas import NEW_SCHEMA, POISON, UNREADABLE
from core.sql.postgres_changes import NEW_SLOT
from pipelines.postgres_changes.replication_slot import (
    COLUMN_GONE,
    LOST,
    NO_CLIENT,
    NO_FREE_SLOT,
    REPLACED,
    SLOT_AHEAD,
    SLOT_LOST,
    SLOT_MISSING,
    TRUNCATED,
    UNCHANGED_VALUE,
)
from pipelines.spark_connect.call_deadlines import MissedDeadline
from pipelines.spark_connect.function_in_worker import WITHOUT_VALUES, without_values

log = logging.getLogger(__name__)

_CLASS = re.compile(r"\[([A-Z][A-Z0-9_]*(?:\.[A-Z][A-Z0-9_]*)*)\]")
_WRAPPERS = frozenset({"STREAM_FAILED", "FAILED_EXECUTE_UDF", "TASK_WRITE_FAILED", "CONNECT_CLIENT_UNEXPECTED"})
_OURS = re.compile(
    r"(?:\[USER_RAISED_EXCEPTION\]|\.(?:ChangeStreamError|DatabaseLost|FunctionFailed):|^ValueError:) "
    r"\[(HEADGATE_[A-Z_]+)\] "
    r"(.*?)(?: SQLSTATE: .*)?$",
    re.MULTILINE,
)
"""Matches an error raised by Headgate's own code in the pool, but not a query plan that contains its text."""
_PLAN = re.compile(r"=== Streaming Query ===[\s\S]*?(?=JVM stacktrace:|\Z)")
"""Matches a query's plan in an error; the plan contains the messages of errors that the query could raise."""
_SESSION = re.compile(r"^\[session: [^\]]*\] \[userId: [^\]]*\] ")
"""Prefix of the error of a batch that failed in a Python process of the pool."""
_TRACEBACK = re.compile(r"[\s\S]*Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*(?=\S)")
"""Matches a batch error from its start to the end of the Python traceback."""
_NO_VALUES = frozenset(each.__name__ for each in WITHOUT_VALUES)
_JOB_FRAME = re.compile(
    r'^ *File "(?P<file>(?:[^"\n]*/)?job\.\w+\.py|[^"\n]+\.ya?ml)", line (?P<line>\d+), in ', re.MULTILINE
)
"""Matches a line of a traceback in the code of a job, which tests name by its path in the project."""
JOB_FAILED = f"{JOB_ERRORS}FAILED"
"""Error class of an exception that the code of a job raised in a Python process of the pool."""
_GONE = ("INVALID_HANDLE.SESSION_", "incorrect server side session identifier", "NO_ACTIVE_SESSION")
_STOPPED = ("stopped SparkContext", "SparkContext was shut down", "SparkContext has been shutdown")
_UNEXPLAINED = "Application error processing RPC"
"""The only message of a server with a stopped SparkContext, which cannot format the actual error (Spark 4.2.0)."""
NO_SPACE = "HEADGATE_NO_SPACE"
"""Error class of a failure caused by a full disk."""
_FULL = re.compile(r"(?:IOException[):]+|OSError: \[Errno \d+\]) (No space left on device|Disk quota exceeded)")
"""Matches the operating system's message about a full disk, wherever it appears among the causes."""
QUOTA = "HEADGATE_HDFS_QUOTA"
"""Error class of a failure caused by the quota of a folder in HDFS."""
_QUOTA = re.compile(
    r"QuotaExceededException[):]+ The (?P<kind>DiskSpace|NameSpace) quota (?:\(directories and files\) )?of "
    r"(?:directory )?(?P<folder>\S+) is exceeded: (?:quota = \d+ B = (?P<size>[^\n]+?) but|quota=(?P<count>\d+))"
)
"""HDFS's message about a quota, wherever it appears among the causes (Hadoop 3.4.2)."""
_KAFKA_LOGIN = re.compile(r"(?:Sasl|Ssl)AuthenticationException: (?P<why>[^\n]*)")
"""Kafka's message about refused credentials or certificates (kafka-clients 3.9.2)."""
REFUSED_LOGIN = "HEADGATE_KAFKA_LOGIN"
"""Error class used if Kafka brokers refuse Spark's credentials, if Spark refuses their certificate, or if Spark cannot
use a file with a certificate or key."""
_KAFKA_FILE = re.compile(
    r"InvalidConfigurationException: Failed to load PEM SSL (?P<kind>key|trust)store (?P<file>\S+)"
)
"""Kafka's message about a file of certificates or keys that its Java client cannot use (kafka-clients 3.9.2)."""
_KAFKA_FILE_REMEDIES = {
    "key": "Kafka's Java client reads a key only as PKCS#8, and one with a password only as openssl pkcs8 -topk8 -v1 "
    "PBE-SHA1-3DES writes it; the certificates follow in the same file",
    "trust": "write certificates only, as PEM",
}
BROKERS_LOST = "HEADGATE_BROKERS_LOST"
"""Error class used if Kafka brokers have stopped answering."""
_BROKERS = re.compile(
    r"Timed out waiting for a node assignment|Timed out waiting to send the call|Timeout of \d+ms expired before the "
    r"position|Topic \S+ not present in metadata after|Timeout expired while fetching topic metadata"
    r"|errors\.(?:TimeoutException|DisconnectException|NotLeaderOrFollowerException): "
)
"""Matches the messages of Kafka's Java client about brokers that do not answer (kafka-clients 3.9.2)."""
_RELOCATED = re.compile(r"\bheadgate\d+_[0-9a-f]{32}[./]")
"""Matches the package to which the classes of a jar are relocated (`core.sql.jar_relocation`)."""
_OF_JAR = re.compile(
    r"\[FAILED_EXECUTE_UDF\] User defined function \(`(?P<function>\w+)__jar_[0-9a-f]{8} [^\n]* failed due to: "
    r"(?P<name>[\w.$]+)(?:: (?P<said>[^\n]*))?"
)
"""Matches an exception of a function of a jar."""
_NOT_CONVERTED = re.compile(
    r"The value \(.*\) of the type \((?P<java>[\w.$\[\];]+)\) cannot be converted to the (?P<sql>.*) type"
)
_BY_JAVA = re.compile(r"ClassCastException|NullPointerException|\w*(?:NotFound|Linkage|Incompatible|NoSuch|NoClass)\w*")
"""Matches exceptions whose text names classes and methods alone."""
_NEWER_JAVA = re.compile(r"\(class file version (\d+)\.\d+\)[\s\S]*?class file versions up to (\d+)\.")
_CLASS_FILES = 44
"""Difference between the version of a class file and the version of Java that it needs."""
_WORKER = re.compile(r"Python worker (?:exited unexpectedly|failed to connect back)(?: \([a-z ]+\))?")
"""Matches the cause in a message about a Python process, before which Spark names tasks, and after it settings."""
_LONGEST = 600
_NO_MESSAGE = "no message"

_VALUES_IN = {
    "ARITHMETIC_OVERFLOW": "- {} cause overflow",
    "BINARY_ARITHMETIC_OVERFLOW": "{} caused overflow",
    "CANNOT_CONVERT_SQL_VALUE_TO_PROTOBUF_ENUM_TYPE": "Cannot convert SQL <> to Protobuf <> because {} is not",
    "CANNOT_DECODE_URL": "The provided URL cannot be decoded: {}. Please ensure",
    "CANNOT_PARSE_INTERVAL": "Unable to parse {}. Please ensure",
    "CANNOT_PARSE_JSON_FIELD": "Cannot parse the field name {} of the JSON token type <> to target Spark data type",
    "CANNOT_PARSE_TIME": "The input string {} cannot be parsed to a TIME value",
    "CANNOT_PARSE_TIMESTAMP": "{}. Use <> to tolerate invalid input string",
    "CAST_INVALID_INPUT": "The value {} of the type <> cannot be cast to",
    "CAST_OVERFLOW": "The value {} of the type <> cannot be cast to",
    "COMPARATOR_RETURNS_NULL": "The comparator has returned a NULL for a comparison between {}. It should return",
    "CONVERSION_INVALID_INPUT": "The value {} cannot be converted to <> because it is malformed",
    "DATETIME_FIELD_OUT_OF_BOUNDS": "Invalid {}",
    "DATETIME_OVERFLOW": "Datetime operation overflow: {}",
    "DUPLICATED_MAP_KEY": "Duplicate map key {} was found, please check",
    "EMITTING_ROWS_OLDER_THAN_WATERMARK_NOT_ALLOWED": "Previous node emitted a row with eventTime={} which is older",
    "FAILED_ROW_TO_JSON": "Failed to convert the row value {} of the class <> to the target SQL type",
    "ILLEGAL_DAY_OF_WEEK": "Illegal input for day of week: {}",
    "INVALID_ARRAY_INDEX": "The index {} is out of bounds",
    "INVALID_ARRAY_INDEX_IN_ELEMENT_AT": "The index {} is out of bounds",
    "INVALID_BITMAP_POSITION": "The 0-indexed bitmap position {} is out of bounds",
    "INVALID_BYTE_STRING": "The expected format is ByteString, but was {}",
    "INVALID_FORMAT.MISMATCH_INPUT": "The format is invalid: <>. The input <> {} does not match the format",
    "INVALID_FRACTION_OF_SECOND": "Valid range for seconds is [0, 60] (inclusive), but the provided value is {}. To",
    "INVALID_INTERVAL_FORMAT": "Error parsing {}",
    "INVALID_PARAMETER_VALUE.BIT_POSITION_RANGE": "The value of parameter(s) <> in <> is invalid: {}",
    "INVALID_PARAMETER_VALUE.CHARSET": "The value of parameter(s) <> in <> is invalid: {}",
    "INVALID_PARAMETER_VALUE.LENGTH": "The value of parameter(s) <> in <> is invalid: {}",
    "INVALID_PARAMETER_VALUE.PATTERN": "The value of parameter(s) <> in <> is invalid: {}",
    "INVALID_PARAMETER_VALUE.REGEX_GROUP_INDEX": "The value of parameter(s) <> in <> is invalid: {}",
    "INVALID_PARTITION_VALUE": "Failed to cast value {} to data type <> for partition column",
    "INVALID_REGEXP_REPLACE": "Could not perform regexp_replace for {}",
    "INVALID_TIMEZONE": "The timezone: {} is invalid. The timezone must be",
    "INVALID_URL": "The url is invalid: {}. Use",
    "INVALID_UTF8_STRING": "Invalid UTF8 byte sequence found in string: {}",
    "INVALID_VARIANT_CAST": "The variant value {} cannot be cast into",
    "INVALID_VARIANT_GET_PATH": "The path {} is not a valid variant extraction path in",
    "MALFORMED_CSV_RECORD": "Malformed CSV record: {}",
    "MALFORMED_RECORD_IN_PARSING": "Malformed records are detected in record parsing: {}",
    "NEGATIVE_VALUES_IN_FREQUENCY_EXPRESSION": "Found the negative value in <>: {}, but expected",
    "NUMERIC_OUT_OF_SUPPORTED_RANGE": "The value {} cannot be interpreted as a numeric",
    "NUMERIC_VALUE_OUT_OF_RANGE": "{} cannot be represented as Decimal",
    "STREAM_STREAM_JOIN_INCONSISTENT_STATE.RANGE_SCAN_TIMESTAMP_OUT_OF_RANGE": "Detected inconsistency in "
    "stream-stream join state. Range scan returned a row with timestamp {}",
    "ST_INVALID_SRID_VALUE": "Invalid or unsupported SRID (spatial reference identifier) value: {}",
    "VARIANT_DUPLICATE_KEY": "Failed to build variant because of a duplicate object key {}",
    "WKB_PARSE_ERROR": "Error parsing WKB: {}",
}
"""Beginnings of messages whose first line contains values of rows, by error class or its first part (Spark 4.2.0). {}
stands for values, which are removed, and <> for other parameters. A message that ends in {} is cut there.
"""

_BY_HAND = {
    "DELTA_SCHEMA_CHANGED": "columns of its input were changed by hand{at}: a start continues from its checkpoint",
    "DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS": "columns of its static side were changed by hand: a start reads them as "
    "they are now",
    "DELTA_STREAMING_INCOMPATIBLE_SCHEMA_CHANGE": "a column of its input was renamed or dropped by hand{at}: a "
    "start continues past that with schema_tracking: true in its yml, and a rebuild reads everything again",
    "DELTA_STREAMING_METADATA_EVOLUTION": "columns of its input have changed: a start continues past that",
    "DELTA_STREAMING_SCHEMA_LOCATION_CONFLICT": "it streams one Delta table twice, which Spark does not support with "
    "schema_tracking: remove that from its yml",
    "DELTA_SOURCE_TABLE_IGNORE_CHANGES": "rows of its input were changed by hand{at}: a rebuild reads everything again",
    "DELTA_SOURCE_IGNORE_DELETE": "rows of its input were deleted by hand{at}: a rebuild reads the remaining rows",
    "DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE": "its input was created again: restore it, or rebuild",
    "DELTA_MISSING_FILES_UNEXPECTED_VERSION": "the log of its input was cleaned up before it was read{at}: rebuild",
}
"""Explanations of why a Delta stream ended, by the prefix of Spark's error class (Delta 4.4.0). They replace Spark's
own advice.
"""
_REMEDIES = {
    POISON: "correct what writes the topic; or, to keep such values, declare the topic under another name with a "
    "column _corrupt STRING",
    UNREADABLE: "declare such columns as that schema has them, in a table under another name, and read that; or, to "
    "keep such values, declare a column _corrupt STRING there",
    NEW_SCHEMA: "headgate start continues with what the registry has then",
    "HEADGATE_NULL_KEY": "filter such rows out in its statement, and deploy it; after a TRUNCATE (_op = 't') rebuild "
    "the table instead, because a filter keeps the rows that were truncated",
    "HEADGATE_NULL_SEQUENCE": "filter such rows out in its statement, and deploy it",
    "HEADGATE_TWO_ROWS_PER_KEY": "name a column as sequence: in its yml, or make its statement return one row per key",
    "HEADGATE_JOB_BATCH_ROWS": "correct the function, or the DDL of its table",
    UNCHANGED_VALUE: "ALTER TABLE … REPLICA IDENTITY FULL prevents this from now on; to get past this change, remove "
    "the column from the DDL, or delete the readers of the table and deploy them again: they begin after it",
    COLUMN_GONE: "declare the columns that the table has now under another name, and move its readers there",
    TRUNCATED: "declare the column _op STRING to read a TRUNCATE as a row whose other values are NULL, or rebuild what "
    "reads the table",
    NO_FREE_SLOT: "raise max_replication_slots by one for each reader and restart the database, or try again later",
    NO_CLIENT: "pip install 'psycopg[binary]' where the pool runs",
    SLOT_MISSING: NEW_SLOT,
    SLOT_LOST: f"{NEW_SLOT}; max_slot_wal_keep_size of the database limits how much log it keeps",
    SLOT_AHEAD: NEW_SLOT,
    REPLACED: "rebuild what reads the table, with --from earliest unless it has a snapshot",
}
"""Remedies, by error class, for rows that a keyed table's writer refused, messages that cannot be parsed, and changes
of a database that cannot be read.
"""
_LOST_FILE = re.compile(
    r"\[FAILED_READ_FILE\.FILE_NOT_EXIST\][^\n]*? file (?:file:/*(?=/))?(\S+?)\.? File does not exist"
)
"""Matches the error about a missing data file of a table (Spark 4.2.0)."""
_DATABASE = re.compile(r"\borg\.postgresql\.util\.PSQLException: ([^\n]+)")
"""Matches an error of a PostgreSQL database that a batch reads (driver 42.7.8)."""
_DATABASE_LOST = re.compile(
    r"Connection to \S+ refused|The connection attempt failed|This connection has been closed|I/O error occurred"
    r"|FATAL: (?:terminating connection|the database system is|sorry, too many clients)"
)
"""Matches a database error after which a later attempt may succeed without any other change."""
_SCHEMA = re.compile(r"schema (\d+) ")
_VERSION = re.compile(r"\bversion:? (\d+)")

_FAILURES = {
    "Python worker exited unexpectedly": SparkFailure.WORKER_DIED,
    "Python worker failed to connect back": SparkFailure.WORKER_LATE,
    "Async progress tracking cannot be used with Once trigger": SparkFailure.EXCLUSIVE_OPTIONS,
}
"""Kinds of failure, by a phrase in the one line of Spark's message that states the cause (Spark 4.2.0)."""
_OUR_FAILURES = {
    LOST: SparkFailure.DATABASE_LOST,
    NEW_SCHEMA: SparkFailure.NEW_SCHEMA,
    BROKERS_LOST: SparkFailure.BROKERS_LOST,
}
"""Kinds of failure, by Headgate's own error class."""
_WRITTEN_MEANWHILE = ("DELTA_CONCURRENT_", "DELTA_METADATA_CHANGED", "DELTA_PROTOCOL_CHANGED")
"""Prefixes of the error classes with which Delta 4.4.0 rejects a commit after a concurrent change to the table."""


class SessionLost(PoolUnreachable):
    """Raised if the server no longer knows the session. A new session generation must then be opened."""


class TokenRefused(PoolUnreachable):
    """Raised if the server refuses the token of a call, or a call without one."""


class EngineStopped(PoolUnreachable):
    """Raised if the server answers but its SparkContext has stopped, so it can run nothing until restarted."""


class MaybeStopped(EngineRefused):
    """A refusal that may be due to a stopped SparkContext. Only another statement can show whether it has stopped."""


_UNDERLINED = re.compile(r"== SQL \([^)\n]*\) ==\n(?:[^\n]*\n)*?(?P<sql>[^\n]*)\n(?P<carets> *\^+)")
_BODY = re.compile(r"CAST\(/\* ([a-z_][a-z0-9_]*) \*/")
_BRACKETS = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`|[()]""")


_TLS = {
    "CERTIFICATE_VERIFY_FAILED": (
        "the certificate of the pool is not trusted",
        "set ca: in headgate.yml to the certificate of its authority",
    ),
    "WRONG_VERSION_NUMBER": ("the pool does not encrypt connections", "set tls: false in headgate.yml"),
    "Hostname Verification Check failed": (
        "the certificate of the pool is for another host",
        "correct the host in url, or the certificate",
    ),
}
"""Summary and remedy by what gRPC says if the handshake of TLS fails (grpcio 1.85)."""


def translate_error(error: BaseException) -> HeadgateError:
    """Convert an error of PySpark or gRPC into the matching Headgate error."""
    if isinstance(error, HeadgateError):
        return error
    text = str(error)
    if any(mark in text for mark in _GONE):
        return SessionLost("the pool has lost our session", remedy="a new session is opened and statements resume")
    code = _status(error)
    if code == grpc.StatusCode.UNAVAILABLE and (
        words := next((say for mark, say in _TLS.items() if mark in text), None)
    ):
        return PoolUnreachable(words[0], remedy=words[1])
    if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
        return PoolUnreachable("the pool cannot be reached", remedy="the agent restarts it if it is a local pool")
    if code == grpc.StatusCode.DEADLINE_EXCEEDED:
        return MissedDeadline("the pool did not answer in time", remedy="the call is retried; see the pool's log")
    if code == grpc.StatusCode.UNAUTHENTICATED:
        return TokenRefused("the pool refuses our token, or needs one", remedy="set token: in headgate.yml")
    if not isinstance(error, PySparkException | grpc.RpcError):
        return _failed_here(error)
    if _UNEXPLAINED in text:
        return MaybeStopped("the pool failed in this call and did not say why", remedy="see the pool's log")
    if any(mark in text for mark in _STOPPED):
        return MaybeStopped(first_line(text), error_class=error_class(text))
    if full := _FULL.search(f"{text}\n{_causes(error)}"):
        return EngineRefused(full[1], error_class=NO_SPACE)
    if quota := _quota_error(f"{text}\n{_causes(error)}"):
        return EngineRefused(quota, error_class=QUOTA)
    named = error.getCondition() if isinstance(error, PySparkException) else None
    return EngineRefused(first_line(text), error_class=error_class(text) or named or "", failure=failure_of(text))


def _failed_here(error: BaseException) -> PoolUnreachable:
    # Its message may be empty or obscure, so the traceback is logged.
    log.warning("the client of the pool failed", exc_info=error)
    said = first_line(str(error))
    words = f": {said}" if said != _NO_MESSAGE else " in this call and did not say why"
    return PoolUnreachable(f"the client of the pool failed{words}", remedy="headgate logs agent shows where")


def error_class(text: str) -> str:
    """Return the error class in a Spark message; empty if there is none.

    A class that only wraps a cause is returned only if there is no other class.
    """
    if ours := _OURS.search(text):
        return ours[1]
    if _FULL.search(text):
        return NO_SPACE
    if _QUOTA.search(text):
        return QUOTA
    if _KAFKA_LOGIN.search(text) or _KAFKA_FILE.search(text):
        return REFUSED_LOGIN
    text = _PLAN.sub("", text)
    if _BROKERS.search(text):
        return BROKERS_LOST
    if _job_error(text):
        return JOB_FAILED
    found = _classes(_TRACEBACK.sub("", text)) or _classes(text)
    return next((name for name in found if name not in _WRAPPERS), found[0] if found else "")


def failure_of(text: str) -> SparkFailure | None:
    """Return the kind of failure that a Spark message reports; None for an unknown kind."""
    if (ours := error_class(text)) in _OUR_FAILURES:
        return _OUR_FAILURES[ours]
    if database := _DATABASE.search(text):
        return SparkFailure.DATABASE_LOST if _DATABASE_LOST.search(database[1]) else None
    line = first_line(text)
    found = next((failure for part, failure in _FAILURES.items() if part in line), None)
    return SparkFailure.WRITTEN_MEANWHILE if not found and error_class(text).startswith(_WRITTEN_MEANWHILE) else found


def newer_java(error: BaseException | None) -> tuple[int, int] | None:
    """Return the version of Java that a class needs and that of the pool; None unless the pool's is too old."""
    found = _NEWER_JAVA.search(str(error))
    return (int(found[1]) - _CLASS_FILES, int(found[2]) - _CLASS_FILES) if found else None


def schema_of(text: str) -> int | None:
    """Return the id of a schema that a running statement did not know, from Spark's message; None for other errors."""
    ours = _OURS.search(text)
    found = _SCHEMA.match(ours[2]) if ours and ours[1] == NEW_SCHEMA else None
    return int(found[1]) if found else None


def first_line(text: str) -> str:
    """Return the cause of an error as one line, without wrapper, error class and stack trace.

    If Headgate can explain the error itself, that explanation is returned instead. Values of rows are replaced by `…`.
    """
    text = _RELOCATED.sub("", _without_values(text))
    if ours := _OURS.search(text):
        remedy = _REMEDIES.get(ours[1], "")
        return ours[2][:_LONGEST] + (f"; {remedy}" if remedy else "")
    if full := _FULL.search(text):
        return full[1]
    if quota := _quota_error(text):
        return quota
    if database := _DATABASE.search(text):
        return f"a database that it reads: {database[1]}"[:_LONGEST]
    if unusable := _KAFKA_FILE.search(text):
        return f"Spark cannot use {unusable['file']}; {_KAFKA_FILE_REMEDIES[unusable['kind']]}"
    if login := _KAFKA_LOGIN.search(text):
        remedy = "correct what kafka.sasl.password refers to, or kafka.ssl.* in OPTIONS, and start it again"
        return f"the Kafka brokers cannot be connected to: {login['why']}; {remedy}"
    text = _PLAN.sub("", text)
    if _BROKERS.search(text):
        return "the Kafka brokers stopped answering during a batch, which is repeated; headgate doctor names them"
    if of_jar := _OF_JAR.search(text):
        return _jar_error(of_jar)
    if raised := _job_error(text):
        return f"{raised[:_LONGEST]}; correct the code"
    body = _TRACEBACK.sub("", text.split("JVM stacktrace:")[0])
    call = _call_of_function(body)
    if words := _by_hand(body):
        return _with_call(words, call)
    if lost := _LOST_FILE.search(body):
        return f"{lost[1]} is missing, but its table lists it: restore the file, or rebuild that table"
    lines = [line.strip() for line in body.splitlines()]
    lines = [line for line in lines if line and not line.startswith(("at ", "== SQL", "=== ", "+- ", "'", "--"))]
    useful = next((line for line in lines if _useful(line)), lines[0] if lines else _NO_MESSAGE)
    if process := _WORKER.search(useful):
        return process[0]
    useful = _SESSION.sub("", useful)
    useful = re.sub(r"^(?:\([\w.$]+\) |[\w.$]+(?:Exception|Error): )+", "", useful)
    useful = re.sub(r"^\[[A-Z][A-Z0-9_.]*\] ?", "", useful)
    useful = re.sub(r" ?SQLSTATE: \w+(; line \d+ pos \d+;?)?$", r"\1", useful).rstrip(";")
    return _with_call(useful[: _LONGEST - 1] + "…" if len(useful) > _LONGEST else useful, call)


def _quota_error(text: str) -> str:
    found = _QUOTA.search(text)
    if found is None:
        return ""
    what = found["size"] or f"{found['count']} files and folders"
    return f"the quota of {found['folder']} in HDFS is used up: {what}; raise it, or delete files there"


def _job_error(text: str) -> str:
    """Return the exception that the code of a job raised, with the innermost line of that code; empty if none did.

    Spark's text does not show who wrote the exception's text, so all strings and numbers in it are replaced.
    """
    frame = _JOB_FRAME.search(text)
    if frame is None:
        return ""
    for line in text[frame.start() :].splitlines():
        if inner := _JOB_FRAME.match(line):
            frame = inner
        elif line.strip() and not line.startswith(" "):
            name, colon, said = line.strip().partition(":")
            said = said if name in _NO_VALUES else without_values(said)
            return f"{frame['file']}, line {frame['line']}: {name}{colon}{said}"
    return ""


def _jar_error(found: re.Match[str]) -> str:
    """Return the exception of a function of a jar. Its text may have values of rows, unless Java itself wrote it."""
    function, name, said = found["function"], found["name"].rpartition(".")[2], found["said"] or ""
    if other := _NOT_CONVERTED.match(said):
        return f"{function} returned a {other['java']}, and declares {other['sql']}; correct what it returns"
    if not _BY_JAVA.fullmatch(name):
        said = "…"
    said = re.sub(r" \([^()]* in (?:unnamed )?module [^()]*\)", "", re.sub(r" ?SQLSTATE: \w+.*", "", said)).rstrip(".")
    return f"{function}: {name}: {said}"[:_LONGEST] if said else f"{function}: {name}"


def _with_call(sentence: str, function: str) -> str:
    return f"{sentence.rstrip('.')}, in a call of {function}" if function else sentence


def _call_of_function(text: str) -> str:
    """Return the project's function whose body Spark underlines in a message; empty if there is none.

    The bodies in a compiled statement are marked (`core.sql.function_calls`). If one is in another, the inner is named.
    """
    shown = _UNDERLINED.search(text)
    if shown is None:
        return ""
    line, at, inner = shown["sql"], shown["carets"].index("^"), ""
    for body in _BODY.finditer(line):
        if body.start() > at:
            break
        depth = 0
        for piece in _BRACKETS.finditer(line, body.start(), at):
            depth += {"(": 1, ")": -1}.get(piece[0], 0)
            if depth == 0:
                break
        else:
            # Spark may cut off the end of the line.
            inner = body[1]
    return inner


def _without_values(text: str) -> str:
    """Replace row values in Spark's error messages. A value may span lines, or look like a message."""
    for name in set(_CLASS.findall(text)):
        beginning = _VALUES_IN.get(name) or _VALUES_IN.get(name.partition(".")[0])
        if beginning is not None:
            text = _message(name, beginning).sub(_emptied, text, count=1)
    return text


@cache
def _message(name: str, beginning: str) -> re.Pattern[str]:
    words = re.escape(beginning).replace(r"\ ", r"\s+")
    words = words.replace("<>", r"[^\n]*?").replace(r"\{\}", ")[\\s\\S]*(")
    return re.compile(rf"(\[{re.escape(name)}\] {words})")


def _emptied(found: re.Match[str]) -> str:
    return f"{found[1]}…{found[2]}"


def _by_hand(text: str) -> str:
    name = error_class(text)
    words = next((words for begin, words in _BY_HAND.items() if name.startswith(begin)), "")
    at = _VERSION.search(text)
    return words.format(at=f" (version {at[1]})" if at else "")


def _useful(line: str) -> bool:
    return any(name not in _WRAPPERS for name in _classes(line))


def _classes(text: str) -> list[str]:
    """Return Spark's error classes in a text, without those of Headgate, which a query plan may contain."""
    return [name for name in _CLASS.findall(text) if not name.startswith("HEADGATE_")]


def _causes(error: BaseException) -> str:
    return str(getattr(error, "_stacktrace", None) or "")


def _status(error: BaseException) -> grpc.StatusCode | None:
    if isinstance(error, grpc.Call):
        return error.code()
    read = getattr(error, "getGrpcStatusCode", None)
    code = read() if read is not None else None
    return code if isinstance(code, grpc.StatusCode) else None
