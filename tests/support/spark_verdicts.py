"""Spark's verdict on a statement, from its printed plans and, for a stream, from a run over one row (4.2.0)."""

import json
import re
import shutil
import tempfile
import uuid
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql.connect.session import SparkSession
from sql_corpus import NO_MERGE, Verdict, tables

ROW = {
    "orders": "1, 'x', 2.0, 'paid', TIMESTAMP'2024-01-01 00:00:00', array(struct('s', 1)), array('t'), map('k', 'v'), "
    "struct('c', struct(1.0, 2.0))",
    "payments": "1, 1, 2.0, 'card', TIMESTAMP'2024-01-01 00:00:00'",
    "refunds": "1, 1, 2.0, 'bad', TIMESTAMP'2024-01-01 00:00:00'",
    "customers": "'x', 'n', 'de', TIMESTAMP'2024-01-01 00:00:00'",
    "products": "'s', 't', 1.0, 'c'",
    "rates": "'de', 1.0, TIMESTAMP'2024-01-01 00:00:00'",
    "stream": "1, 's', 'w', 'd', TIMESTAMP'2024-01-01 00:00:00'",
    "`2024_orders`": "1, 2.0, TIMESTAMP'2024-01-01 00:00:00'",
    "`select`": "1, 'f', 'w', TIMESTAMP'2024-01-01 00:00:00'",
    "totals": "1, 2.0",
}
"""One row per table: without rows, no batch runs, and Spark never plans one."""

OPERATORS = {
    "StateStoreSave": "stateStoreSave",
    "SessionWindowStateStoreSave": "sessionWindowStateStoreSaveExec",
    "StreamingSymmetricHashJoin": "symmetricHashJoin",
    "StreamingDeduplicate": "dedupe",
    "StreamingGlobalLimit": "globalLimit",
}
"""Stateful operators: the names in a query's progress, by the names in EXPLAIN."""

_HEADER = re.compile(
    r"INSERT\s+INTO\s+(?:TABLE\s+)?(?P<table>[`\w.]+)\s*(?:\((?!\s*(?:SELECT|WITH|\())[^)]*\)\s*)?(?:BY\s+NAME\s+)?(?=SELECT|WITH|\(|VALUES)",
    re.I,
)
_TURN_S, _TURNS = 10, 6


class Unanswered(Exception):
    """Raised if Spark gave no answer: a deadline passed, or the server is gone."""


def prepare(spark: SparkSession) -> None:
    """Create the tables of the corpus in the session's database, each with one row."""
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    for statement in tables():
        spark.sql(statement)
    for name, row in ROW.items():
        spark.sql(f"INSERT INTO {name} SELECT {row}")


def verdict(spark: SparkSession, statement: str, scratch: Path) -> Verdict:
    """Return Spark's verdict on one statement; a streaming query is started once, with a new checkpoint."""
    header = _HEADER.search(statement)
    whole = _explained(spark, statement) if _is_command(statement) else None
    if isinstance(whole, Verdict):
        return whole
    select = statement
    if whole is not None:
        if header is None or not _reads(whole, "Analyzed") or not any(read[1] for read in _reads(whole, "Analyzed")):
            return _refused_if_streaming(statement, whole)
        select = statement[: header.start()] + statement[header.end() :]
    try:
        frame = spark.sql(select)
        columns = tuple(str(name).lower() for name in frame.columns)
        plan = frame._explain_string(extended=True)
    except Exception as error:
        return Verdict(refused=_reason(error))
    facts = _facts(plan, columns, _writes(statement))
    if not frame.isStreaming:
        return facts
    return _started(frame, facts, plan, scratch)


def _is_command(statement: str) -> bool:
    return (
        re.match(r"(?:WITH\b.*\b(?:INSERT|MERGE)|INSERT|MERGE|CREATE|FROM|EXECUTE|BEGIN)\b", statement, re.I | re.S)
        is not None
    )


def _explained(spark: SparkSession, statement: str) -> str | Verdict:
    try:
        text: str = spark.sql(f"EXPLAIN EXTENDED {statement}").collect()[0][0]
    except Exception as error:
        return Verdict(refused=_reason(error))
    if text.startswith("Error occurred during query planning"):
        return _executed(spark, statement)
    return text


def _executed(spark: SparkSession, statement: str) -> Verdict:
    """Execute a statement to learn its error, because EXPLAIN only reports that there is one."""
    try:
        spark.sql(statement).collect()
    except Exception as error:
        reason = _reason(error)
        # The parser accepted the statement; it is irrelevant here that parquet does not support MERGE.
        return Verdict(note=NO_MERGE) if reason == "UNSUPPORTED_FEATURE.TABLE_OPERATION" else Verdict(refused=reason)
    return Verdict(note="EXPLAIN fails, the statement does not")


def _refused_if_streaming(statement: str, plan: str) -> Verdict:
    facts = _facts(plan, (), _writes(statement))
    if any(streaming for _, streaming, _ in facts.reads):
        return Verdict(refused="Queries with streaming sources must be executed with writeStream.start()")
    return facts


def _started(frame: Any, facts: Verdict, plan: str, scratch: Path) -> Verdict:
    """Start a query, so that Spark checks it as a stream, and read its stateful operators from its explained plan.

    EXPLAIN shows no physical plan for a stream inside WITH; such a query is run to its end instead.
    """
    physical = plan.partition("== Physical Plan ==")[2]
    explained = "must be executed with writeStream.start()" not in physical
    if explained and (failed := re.search(r"^\s*(?:org\.apache\S*|java\S*)Exception: (.*)", physical)) is not None:
        return Verdict(refused=_first_sentence(failed[1]))
    folder = Path(tempfile.mkdtemp(dir=scratch))
    query = None
    try:
        writer = frame.writeStream.format("noop").outputMode("append").queryName(f"q{uuid.uuid4().hex}")
        query = writer.option("checkpointLocation", str(folder)).trigger(availableNow=True).start()
        if plan.partition("== Physical Plan ==")[0].count("EventTimeWatermark") > 1:
            # Spark refuses a watermark over another watermark only in the first batch.
            _run(query)
        if explained:
            kept = [OPERATORS[name] for name in re.findall(rf"\b(?:{'|'.join(OPERATORS)})\b", physical)]
        else:
            kept = _run(query)
        return replace(facts, operators=tuple(sorted(kept)))
    except Unanswered:
        raise
    except Exception as error:
        return Verdict(refused=_reason(error))
    finally:
        if query is not None:
            # On a busy machine, planning a batch may exceed the server's time limit; the verdict is valid anyway.
            with suppress(Exception):
                query.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _run(query: Any) -> list[str]:
    for _ in range(_TURNS):
        if query.awaitTermination(_TURN_S):
            progress = query.lastProgress
            return [str(each["operatorName"]) for each in json.loads(progress.json)["stateOperators"]]
    raise Unanswered("the query does not end")


def _facts(plan: str, columns: tuple[str, ...], writes: tuple[str, ...]) -> Verdict:
    return Verdict(
        writes=writes,
        reads=tuple(sorted(_reads(plan, "Analyzed"))),
        options=tuple(sorted(_options(_section(plan, "Parsed")))),
        watermarks=tuple(sorted(_watermarks(_section(plan, "Analyzed")))),
        columns=columns,
    )


def _writes(statement: str) -> tuple[str, ...]:
    found = re.search(
        r"\b(?:INSERT\s+(?:INTO|OVERWRITE)(?:\s+TABLE)?|CREATE\s+TABLE(?:\s+IF\s+NOT\s+EXISTS)?)\s+([`\w.]+)",
        statement,
        re.I,
    )
    return (_plain(found[1]),) if found else ()


def _section(plan: str, name: str) -> str:
    """Return the logical plan of this name from the output of EXPLAIN EXTENDED."""
    return plan.partition(f"== {name} Logical Plan ==\n")[2].partition("\n== ")[0]


def _reads(plan: str, section: str) -> list[tuple[str, bool, str]]:
    """Return the tables read by an analyzed plan; a view is listed itself, instead of the tables that it reads."""
    found: list[tuple[str, bool, str]] = []
    alias, view_depth = "", -1
    for line in _section(plan, section).splitlines():
        depth = len(line) - len(line.lstrip(" :+-~"))
        if 0 <= view_depth < depth:
            continue
        view_depth = -1
        text = line.lstrip(" :+-~'")
        if text.startswith("SubqueryAlias "):
            alias = alias if alias.startswith("spark_catalog") and "." not in text else text.split(" ", 1)[1]
        elif text.startswith("View ("):
            view_depth = depth
            found.append((_plain(text.partition("(")[2].partition(", ")[0]), False, ""))
        elif text.startswith("StreamingRelation"):
            name = re.search(r'name="([^"]*)"', text)
            found.append((_plain(_table(text, alias)), True, name[1] if name else ""))
        elif (relation := re.match(r"Relation ([^\[]+)\[", text)) is not None:
            found.append((_plain(relation[1]), False, ""))
    return found


def _table(text: str, alias: str) -> str:
    folder = re.search(r"FileSource\[([^\]]*)\]", text)
    return folder[1].rpartition("/")[2] if folder else alias


def _plain(name: str) -> str:
    """Return a lower-case name without its catalog, database and backticks."""
    return re.sub(r"^(?:spark_catalog\.)?(?:(?:default|corpus)\.)?", "", name.replace("`", "").lower())


def _options(plan: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for relation in re.finditer(r"UnresolvedRelation \[[^\]]*\], \[([^\]]+)\]", plan):
        for pair in relation[1].split(", "):
            key, _, value = pair.partition("=")
            if not key.startswith("__"):
                found.append((key, value))
    return found


def _watermarks(plan: str) -> list[tuple[str, str]]:
    found = re.findall(r"EventTimeWatermark [0-9a-f-]+, (.+?)#\d+(?:-T\d+ms)?: \w+, (.+)", plan)
    return [(str(column).lower(), re.sub(r"s\b", "", str(delay))) for column, delay in found]


def _reason(error: Exception) -> str:
    """Return the error class of Spark's error, or the first sentence of its message if it has none."""
    text = str(error).partition("terminated with exception: ")[2] or str(error)
    if re.search(r"StatusCode|_MultiThreadedRendezvous|stopped SparkContext|UNAVAILABLE", text):
        raise Unanswered(text[:200]) from error
    found = re.match(r"\s*\[([A-Z][A-Z0-9_.]+)\]", text)
    if found is not None and found[1] != "INTERNAL_ERROR":
        return found[1]
    condition = getattr(error, "getCondition", lambda: None)() or ""
    first = _first_sentence(text)
    return f"{condition}: {first}" if condition and condition not in first else first


def _first_sentence(text: str) -> str:
    return re.split(r"[;\n]", text)[0][:160]
