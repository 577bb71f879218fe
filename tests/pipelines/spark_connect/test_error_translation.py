"""Facts parsed from Spark's messages, which were copied from Spark 4.2.0."""

import json
import re
import zipfile

import grpc
import pytest
from pyspark.errors import PySparkAssertionError
from pyspark.errors.exceptions.connect import SparkConnectGrpcException, SparkException

from core.model.errors import EngineRefused, HeadgateError, PoolUnreachable, SparkFailure
from pipelines.local_pool.java_and_spark import spark_home
from pipelines.spark_connect.call_deadlines import MissedDeadline
from pipelines.spark_connect.error_translation import (
    BROKERS_LOST,
    MaybeStopped,
    SessionLost,
    TokenRefused,
    error_class,
    failure_of,
    first_line,
    translate_error,
)

STREAM_FAILED = (
    "[STREAM_FAILED] Query [id = 1a, runId = 2b] terminated with exception: [DIVIDE_BY_ZERO] Division by zero. "
    "Use `try_divide` to tolerate divisor being 0 and return NULL instead. SQLSTATE: 22012\n== SQL (line 1) ==\n"
    "SELECT a / 0\n       ^^^^^\n SQLSTATE: XXKST\n=== Streaming Query ===\nIdentifier: t@v1\n"
)


@pytest.mark.parametrize(("said", "what"), [
    ("hdfs.protocol.DSQuotaExceededException: The DiskSpace quota of /shop is exceeded: quota = 52428800 B = 50 MB but "
     "diskspace consumed = 407978029 B = 389.08 MB", "50 MB"),
    ("ipc.RemoteException(org.apache.hadoop.hdfs.protocol.NSQuotaExceededException): The NameSpace quota (directories "
     "and files) of directory /shop is exceeded: quota=10 file count=11", "10 files and folders"),
])  # fmt: skip
def test_the_quota_of_a_folder_in_hdfs_is_named_wherever_it_is_among_the_causes(said: str, what: str) -> None:
    spark = "[CANNOT_WRITE_STATE_STORE.CANNOT_COMMIT] Error writing. SQLSTATE: 58030"
    ended = f"{spark}\n\tat a.b\nCaused by: org.apache.hadoop.{said}\n\tat c"
    words = f"the quota of /shop in HDFS is used up: {what}; raise it, or delete files there"
    assert (error_class(ended), first_line(ended)) == ("HEADGATE_HDFS_QUOTA", words)


def test_the_error_class_is_that_of_the_cause_and_not_of_its_wrapper() -> None:
    assert error_class(STREAM_FAILED) == "DIVIDE_BY_ZERO"
    assert error_class("[STREAM_FAILED] Query terminated with exception: Job aborted") == "STREAM_FAILED"
    assert error_class("[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column") == "UNRESOLVED_COLUMN.WITH_SUGGESTION"
    assert error_class("an [id = 3] and nothing else") == ""


def test_the_line_is_the_cause_without_class_and_state() -> None:
    assert first_line(STREAM_FAILED).endswith("to tolerate divisor being 0 and return NULL instead.")
    unresolved = "[UNRESOLVED_COLUMN] A column `x` cannot be resolved. SQLSTATE: 42703; line 1 pos 7;\n'Project ['x]"
    assert first_line(unresolved) == "A column `x` cannot be resolved.; line 1 pos 7"
    assert first_line("(org.apache.spark.SparkException) Job aborted\n\nJVM stacktrace:\n\tat a.b") == "Job aborted"
    assert first_line("") == "no message"
    assert len(first_line("x" * 5000)) == 600


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.UNAVAILABLE, PoolUnreachable),
        (grpc.StatusCode.DEADLINE_EXCEEDED, MissedDeadline),
        (grpc.StatusCode.UNAUTHENTICATED, TokenRefused),
        (grpc.StatusCode.INTERNAL, EngineRefused),
    ],
)
def test_a_status_of_the_connection_decides_whether_trying_again_can_help(
    code: grpc.StatusCode, kind: type[HeadgateError]
) -> None:
    assert type(translate_error(SparkConnectGrpcException("it went wrong", grpc_status_code=code))) is kind


def test_a_server_that_forgot_the_session_asks_for_a_new_generation() -> None:
    closed = "[INVALID_HANDLE.SESSION_CLOSED] The handle 1 is invalid. Session was closed."
    assert isinstance(translate_error(SparkConnectGrpcException(closed)), SessionLost)
    changed = "Received incorrect server side session identifier for request. Please create a new Spark Session"
    assert isinstance(translate_error(PySparkAssertionError(changed)), SessionLost)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "(java.lang.IllegalStateException) Cannot call methods on a stopped SparkContext.\n"
            "This stopped SparkContext was created at:\n\n"
            "org.apache.spark.sql.connect.service.SparkConnectServer.main(SparkConnectServer.scala)",
            "Cannot call methods on a stopped SparkContext.",
        ),
        (
            "<_MultiThreadedRendezvous of RPC that terminated with:\n\tstatus = StatusCode.UNKNOWN\n"
            '\tdetails = "Application error processing RPC"\n'
            '\tdebug_error_string = "UNKNOWN:Application error processing RPC"\n>',
            "the pool failed in this call and did not say why",
        ),
    ],
)
def test_a_refusal_by_a_stopped_spark_context_is_recognised_and_explained(text: str, line: str) -> None:
    found = translate_error(SparkConnectGrpcException(text))
    assert (type(found), found.summary) == (MaybeStopped, line)


def test_a_refusal_by_the_writer_of_keyed_tables_is_reported_in_its_own_words() -> None:
    text = (
        "[STREAM_FAILED] Query [id = a, runId = b] terminated with exception: [FOREACH_BATCH_USER_FUNCTION_ERROR] An "
        "error occurred in the user provided function in foreach batch sink. Reason: Traceback (most recent call last):"
        '\n  File "worker.py", line 3\npyspark.errors.exceptions.connect.SparkRuntimeException: [USER_RAISED_EXCEPTION]'
        ' [HEADGATE_NULL_KEY] a row has no key: {"id":null} SQLSTATE: P0001\n\nJVM stacktrace:\nat x'
    )
    words = 'a row has no key: {"id":null}; filter such rows out in its statement, and deploy it; after a TRUNCATE'
    assert error_class(text) == "HEADGATE_NULL_KEY" and first_line(text).startswith(words)


@pytest.mark.parametrize(
    ("error", "name", "words"),
    [("pyspark.errors.exceptions.connect.AnalysisException: [UNRESOLVED_COLUMN] A column `x` cannot be resolved. "
      "SQLSTATE: 42703", "UNRESOLVED_COLUMN", "A column `x` cannot be resolved."),
     ("pyspark.errors.exceptions.connect.SparkException: (java.io.IOException) No space left on device",
      "HEADGATE_NO_SPACE", "No space left on device"),
     ("pyspark.errors.exceptions.connect.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows to file:/t"
      ".\n\nThe above exception was the direct cause of the following exception:\n\nTraceback (most recent call last):"
      "\n  File \"w.py\", line 9\nOSError: [Errno 28] No space left on device",
      "HEADGATE_NO_SPACE", "No space left on device"),
     ("pyspark.errors.exceptions.connect.SparkException: [DELTA_X] Said.\n\nDuring handling of the above exception, "
      "another exception occurred:\n\nTraceback (most recent call last):\n  File \"w.py\", line 9\nValueError: it",
      "PYTHON_EXCEPTION", "it")],
)  # fmt: skip
def test_a_failed_batch_of_a_keyed_table_gives_the_cause_and_no_python_traceback(
    error: str, name: str, words: str
) -> None:
    text = (
        "[STREAM_FAILED] Query [id = a, runId = b] terminated with exception: [PYTHON_EXCEPTION] [session: 4d] "
        "[userId: headgate] Found error inside foreachBatch Python process: Traceback (most recent call last):\n"
        f'  File "upsert_writers.py", line 67, in write\n    spark.sql(sql)\n    ^^^^^\n{error}\n'
        " SQLSTATE: 38000\n\tat org.apache.spark.A.b(A.scala:1)\n\nJVM stacktrace:\nat x"
    )
    assert (error_class(text), first_line(text)) == (name, words)


def test_a_full_disk_is_recognised_by_the_causes_of_an_error_with_an_empty_message() -> None:
    causes = "org.apache.spark.SparkException\n\tat a.b\nCaused by: java.io.IOException: No space left on device"
    found = translate_error(SparkException("Exception thrown in awaitResult:", server_stacktrace=causes))
    assert isinstance(found, EngineRefused)
    assert (found.error_class, found.summary) == ("HEADGATE_NO_SPACE", "No space left on device")
    ended = (
        f"[STREAM_FAILED] [TASK_WRITE_FAILED] Task failed while writing rows to file:/t.\n\nJVM stacktrace:\n{causes}"
    )
    assert (error_class(ended), first_line(ended)) == ("HEADGATE_NO_SPACE", "No space left on device")
    said = "[STREAM_FAILED] [USER_RAISED_EXCEPTION] No space left on device, says the row."
    assert error_class(said) == "USER_RAISED_EXCEPTION"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[DELTA_SCHEMA_CHANGED_WITH_VERSION] Detected schema change in version 2:\nstreaming source schema: root",
         "columns of its input were changed by hand (version 2): a start continues from its checkpoint"),
        ("[DELTA_SOURCE_TABLE_IGNORE_CHANGES] Detected a data update (for example UPDATE (Map())) in the source table "
         "at version 3. This is currently not supported.",
         "rows of its input were changed by hand (version 3): a rebuild reads everything again"),
        ("[DELTA_SOURCE_IGNORE_DELETE] Detected deleted data (for example x) from streaming source at version 4.",
         "rows of its input were deleted by hand (version 4): a rebuild reads the remaining rows"),
        ("[DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE] The streaming query was reading from an unexpected table",
         "its input was created again: restore it, or rebuild"),
    ],
)  # fmt: skip
def test_the_end_of_a_delta_stream_is_explained_with_a_remedy(text: str, words: str) -> None:
    failed = f"[STREAM_FAILED] Query [id = a, runId = b] terminated with exception: {text} SQLSTATE: KD002"
    assert first_line(failed) == words


def test_an_error_that_explain_would_raise_is_not_the_cause() -> None:
    text = (
        "[STREAM_FAILED] Query terminated with exception: [INVALID_WHERE_CONDITION] The WHERE condition holds invalid "
        "expressions: count(1).\nProject [CASE WHEN isnull(id#5) THEN cast(raise_error(USER_RAISED_EXCEPTION, map("
        "errorMessage, concat([HEADGATE_NULL_KEY] a row has no key: , to_json(struct(id)))), NullType) as boolean)]"
    )
    assert error_class(text) == "INVALID_WHERE_CONDITION"
    assert first_line(text).endswith("The WHERE condition holds invalid expressions: count(1).")


def test_refused_credentials_of_kafka_are_the_cause_and_not_what_the_plan_would_raise() -> None:
    why = "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-512"
    plan = "\n=== Streaming Query ===\nraise_error(concat([HEADGATE_POISON_MESSAGE] the message at offset , offset))"
    raised = f"[STREAM_FAILED] Query [id = a] terminated with exception: org.apache.kafka.common.errors.Sasl{{}}{plan}"
    text = raised.format(f"AuthenticationException: {why}")
    assert error_class(text) == "HEADGATE_KAFKA_LOGIN"
    assert first_line(text).startswith(f"the Kafka brokers cannot be connected to: {why}; correct what")
    assert error_class(f"[STREAM_FAILED] terminated{plan}") == "STREAM_FAILED"


def test_brokers_that_stop_answering_are_the_cause_and_not_what_the_plan_would_raise() -> None:
    plan = "\n: : +- ~Project [raise_error(concat([HEADGATE_POISON_MESSAGE] the message at offset , offset))]"
    failed = "[STREAM_FAILED] Query [id = a] terminated with exception: Job aborted due to stage failure: Task 0 failed"
    kafka = "org.apache.kafka.common.errors.TimeoutException: Timeout of 60000ms expired before the position for t-0"
    text = f"{failed}\n=== Streaming Query ==={plan}\n\nJVM stacktrace:\n\tat a.b\nCaused by: {kafka} is known"
    assert (error_class(text), failure_of(text)) == (BROKERS_LOST, SparkFailure.BROKERS_LOST)
    assert first_line(text).startswith("the Kafka brokers stopped answering during a batch")
    assert first_line(f"{failed}{plan}") == failed.removeprefix("[STREAM_FAILED] ")
    named = f"{failed}\n=== Streaming Query ===\nconcat([MY_ERROR] {kafka})"
    assert (error_class(named), failure_of(named)) == ("STREAM_FAILED", None)


def test_a_key_that_kafkas_java_client_cannot_read_is_named() -> None:
    cause = "org.apache.kafka.common.errors.InvalidConfigurationException: Failed to load PEM SSL keystore /c.pem"
    ended = "[STREAM_FAILED] Query ended: Failed to create new KafkaAdminClient\n\nJVM stacktrace:\n\tat a.b\n"
    text = f"{ended}Caused by: {cause}\nCaused by: java.security.NoSuchAlgorithmException: PBES2 not available"
    assert error_class(text) == "HEADGATE_KAFKA_LOGIN"
    assert first_line(text).startswith("Spark cannot use /c.pem; Kafka's Java client reads a key only as PKCS#8")


def test_a_missing_data_file_of_a_table_is_reported_with_a_remedy() -> None:
    text = (
        "[FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error while reading file "
        "file:///lake/tables/t__v1/delta/part-00000-7c.c000.snappy.parquet. File does not exist. It is possible the "
        "underlying files have been updated.\nYou can explicitly invalidate the cache in Spark by running 'REFRESH'"
    )
    assert first_line(text) == (
        "/lake/tables/t__v1/delta/part-00000-7c.c000.snappy.parquet is missing, but its table lists it: restore "
        "the file, or rebuild that table"
    )


@pytest.mark.parametrize(
    ("text", "failure"),
    [
        ("[session: fc] [userId: headgate] Python worker exited unexpectedly (crashed)", SparkFailure.WORKER_DIED),
        ("[STREAM_FAILED] Query ended: Python worker failed to connect back.", SparkFailure.WORKER_LATE),
        ("[DELTA_CONCURRENT_DELETE_READ] Transaction conflict detected.", SparkFailure.WRITTEN_MEANWHILE),
        ("[STREAM_FAILED] Query ended: [DELTA_METADATA_CHANGED] It was changed.", SparkFailure.WRITTEN_MEANWHILE),
        ("Async progress tracking cannot be used with Once trigger", SparkFailure.EXCLUSIVE_OPTIONS),
        (STREAM_FAILED, None),
    ],
)
def test_failures_that_decisions_depend_on_have_a_kind(text: str, failure: SparkFailure | None) -> None:
    assert failure_of(text) is failure
    error = translate_error(SparkConnectGrpcException(text))
    assert isinstance(error, EngineRefused) and error.failure is failure


def test_the_session_of_a_process_that_died_is_not_what_a_person_needs() -> None:
    died = "Python worker exited unexpectedly (crashed)"
    assert first_line(f"[session: fc67924f-d449] [userId: headgate] {died}") == died


def test_a_process_that_died_in_a_task_is_reported_without_tasks_and_settings_of_spark() -> None:
    text = (
        "[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted due to stage failure: Task 1 in stage "
        "143.0 failed 1 times, most recent failure: Lost task 1.0 in stage 143.0 (TID 1) (localhost executor driver): "
        "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed). Consider setting "
        "'spark.sql.execution.pyspark.udf.faulthandler.enabled' or'spark.python.worker.faulthandler.enabled' "
        "configuration to 'true' for the better Python traceback.\n\tat org.apache.spark.api.python.BasePythonRunner"
    )
    assert first_line(text) == "Python worker exited unexpectedly (crashed)"
    assert failure_of(text) is SparkFailure.WORKER_DIED


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (KeyError("headgate-4d0e"), "the client of the pool failed in this call and did not say why"),
        (AssertionError(), "the client of the pool failed in this call and did not say why"),
        (ValueError("invalid literal"), "the client of the pool failed: invalid literal"),
    ],
)
def test_a_client_failure_is_reported_without_the_python_class_which_only_the_log_names(
    error: Exception, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    found = translate_error(error)
    assert (type(found), found.summary, found.remedy) == (PoolUnreachable, words, "headgate logs agent shows where")
    assert type(error).__name__ in caplog.text


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[CAST_INVALID_INPUT] The value 'a secret\nof the type \"X\" cannot be cast to' of the type \"STRING\" cannot "
         "be cast to \"INT\" because it is malformed. Use `try_cast`. SQLSTATE: 22018\n== SQL ==\nCAST(a AS INT)",
         'The value … of the type "STRING" cannot be cast to "INT" because it is malformed. Use `try_cast`.'),
        ("[ARITHMETIC_OVERFLOW] - -9223372036854775808 cause overflow. Use `try_subtract`. SQLSTATE: 22003",
         "- … cause overflow. Use `try_subtract`."),
        ("[ARITHMETIC_OVERFLOW] long overflow. Use `try_add`. SQLSTATE: 22003", "long overflow. Use `try_add`."),
        ("[DATETIME_FIELD_OUT_OF_BOUNDS.WITH_SUGGESTION] Invalid date 'FEBRUARY 30'. If necessary SQLSTATE: 22023",
         "Invalid …"),
    ],
)  # fmt: skip
def test_values_of_rows_are_left_out_of_the_message(text: str, line: str) -> None:
    assert first_line(f"[STREAM_FAILED] Query [id = a] terminated with exception: {text}").endswith(line)


HARMLESS = """
actual actualFamily actualLength actualValue alg allowed alternative ansiConfig argName argValue arraySize
attributesLength avroPath avroType batchId bitmapNumBits bitmapNumBytes boundary bucketingMaxBuckets c caseSensitivity
charset class columnName confName confOptions confRequirement confType confValue config constraintName crs
currentWatermark dataType degree detailMessage docroot endOffset endTimestamp endianness enumString expected
expectedFamily failFastMode field format frequencyExpression func function functionName id identifier index inputType
intMaxValue intMinValue interval invalidFormat invalidFunctionCallProperty invalidStatement invalidType jsonSchema
jsonType k keyColumn keyColumnName left leftDim limit longMaxValue longMinValue max maxItemsTracked maxPrecision
maxSeconds maxTimestamp maxValue min minBatchDuration minTimestamp minValue mode name nameParts nullCount nullKeyCounts
numBuckets obj offset option ordinal paramName parameter pattern precision protobufColumn rampUpTimeSeconds raw
rawStrippedQualifier reason requestedMetadata right rightDim rowsPerSecond ruleName scale schema serdeClass serdeOp
sizeLimit sourceType sqlColumn sqlPath sqlType startOffset startTimestamp suggestion tableName targetType typeName
udtClass validModes varName
"""
"""Parameters of errors that are never values of rows: names, types, limits, and arguments that must be constant."""
CONSTANT = {
    "ARITHMETIC_OVERFLOW": "message", "DATETIME_FIELD_OUT_OF_BOUNDS": "rangeMessage", "HLL_INVALID_LG_K": "value",
    "AUTOCDC_NON_COLUMN_IDENTIFIER": "expression", "CHECK_CONSTRAINT_VIOLATION": "expression",
    "INVALID_BOUNDARY": "invalidValue", "INVALID_PARAMETER_VALUE": "invalidValue",
    "NEW_CHECK_CONSTRAINT_VIOLATION": "expression", "SKETCH_INVALID_LG_NOM_ENTRIES": "value",
}  # fmt: skip
"""Parameters that are values of rows only in other errors, or that contain Java messages, which the test above covers.
"""
BEYOND = {"MALFORMED_CSV_RECORD", "INVALID_PARTITION_VALUE", "EMITTING_ROWS_OLDER_THAN_WATERMARK_NOT_ALLOWED",
          "CANNOT_CONVERT_SQL_VALUE_TO_PROTOBUF_ENUM_TYPE"}  # fmt: skip
"""Errors with values of rows whose SQLSTATE is not that of a data exception or of a violated constraint."""


def test_no_data_exception_of_spark_shows_a_value_of_a_row() -> None:
    """If a later version of Spark adds a parameter, this test fails until somebody has classified it."""
    (jar,) = (spark_home() / "jars").glob("spark-common-utils_*.jar")
    conditions = json.loads(zipfile.ZipFile(jar).read("error/error-conditions.json"))
    shown, seen = set(), 0
    for name, condition in conditions.items():
        if condition.get("sqlState", "")[:2] not in ("22", "23") and name not in BEYOND:
            continue
        for part, more in condition.get("subClass", {"": {"message": []}}).items():
            message = "\n".join(condition["message"]) + " " + "\n".join(more["message"])
            marked = re.sub(r"<(\w+)>", r"⟦\1⟧", message)
            line = first_line(f"[STREAM_FAILED] Query ended: [{name}{'.' if part else ''}{part}] {marked}")
            shown |= {(name, found) for found in re.findall(r"⟦(\w+)⟧", line) if CONSTANT.get(name) != found}
            seen += 1
    assert seen > 150
    assert sorted(each for each in shown if each[1] not in HARMLESS.split()) == []


def test_errors_of_ours_pass_unchanged() -> None:
    ours = EngineRefused("no", error_class="X")
    assert translate_error(ours) is ours


@pytest.mark.parametrize(
    ("underlined", "named"),
    [
        ("CAST(1 AS int) / CAST(a AS int)", "vat"),
        ("CAST(/* net */ 1 / 0 AS int)", "net"),
        ("a / ')'", ""),
    ],
)
def test_an_error_in_the_body_of_a_function_names_the_innermost_function(underlined: str, named: str) -> None:
    line = "SELECT CAST(/* vat */ CAST(1 AS int) / CAST(a AS int) + CAST(/* net */ 1 / 0 AS int) AS int), a / ')' AS b"
    carets = " " * line.index(underlined) + "^" * len(underlined)
    text = STREAM_FAILED.replace("SELECT a / 0\n       ^^^^^", f"{line}\n{carets}")
    expected = "Use `try_divide` to tolerate divisor being 0 and return NULL instead"
    assert first_line(text).endswith(f"{expected}, in a call of {named}" if named else f"{expected}.")


IN_A_JOB = """(STREAM_FAILED) [PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):
  File "job.j.py", line 6, in f
  File "job.j.py", line 4, in inner
  File "/usr/lib/python3.11/decimal.py", line 9, in divide
ZeroDivisionError: division by zero
 SQLSTATE: 38000
=== Streaming Query ===
Identifier: q [id = 1b7bbb80, runId = f7cd743f]
Logical Plan:
~WriteToMicroBatchDataSourceV1 [checkpointLocation=/cp, queryName=q], Append

JVM stacktrace:
org.apache.spark.sql.streaming.StreamingQueryException: [PYTHON_EXCEPTION] An exception was thrown
"""  # noqa: E501  # As Spark 4.2.0 wrote it.


def test_an_exception_in_a_job_is_reported_with_the_innermost_line_of_its_code() -> None:
    remedy = "; correct the code"
    assert first_line(IN_A_JOB) == f"job.j.py, line 4: ZeroDivisionError: division by zero{remedy}"
    value = IN_A_JOB.replace("ZeroDivisionError: division by zero", "ValueError: not a number with base 10: 'secret'")
    assert first_line(value) == f"job.j.py, line 4: ValueError: not a number with base … …{remedy}"
    assert error_class(IN_A_JOB) == "HEADGATE_JOB_FAILED"


@pytest.mark.parametrize("file", ["pipelines/facts/p/j/sql-scripts/job.j.py", "manifests/j.yaml"])
def test_an_exception_in_a_tested_job_names_the_file_of_the_project(file: str) -> None:
    text = IN_A_JOB.replace("job.j.py", file)
    assert first_line(text) == f"{file}, line 4: ZeroDivisionError: division by zero; correct the code"


def test_wrong_rows_of_a_batch_are_reported_in_our_words() -> None:
    text = 'Traceback (most recent call last):\n  File "x.py", line 1, in write\nValueError: [HEADGATE_JOB_BATCH_ROWS] '
    text += "each_batch returns int, and must return a DataFrame\n"
    assert first_line(text) == (
        "each_batch returns int, and must return a DataFrame; correct the function, or the DDL of its table"
    )
    assert error_class(text) == "HEADGATE_JOB_BATCH_ROWS"
