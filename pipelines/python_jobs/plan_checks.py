"""Checks of the plan that a job returns: its kinds of nodes, and its streams. The process of the job is not trusted."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from google.protobuf.message import DecodeError
from pyspark.sql.connect.proto import relations_pb2

from core.sql.python_jobs import JobInput, PythonJob
from core.sql.tokens.lexer import PIECES
from core.text.sentence import Fact
from pipelines.python_jobs.job_faults import JobFault

PLAN_BYTES = 16 << 20
"""Maximum size of a plan, in bytes."""

NODES = frozenset(
    [
        "read",
        "project",
        "filter",
        "join",
        "set_op",
        "sort",
        "limit",
        "aggregate",
        "sql",
        "local_relation",
        "sample",
        "offset",
        "deduplicate",
        "range",
        "subquery_alias",
        "repartition",
        "to_df",
        "with_columns_renamed",
        "drop",
        "with_columns",
        "hint",
        "unpivot",
        "to_schema",
        "repartition_by_expression",
        "map_partitions",
        "group_map",
        "co_group_map",
        "with_watermark",
        "apply_in_pandas_with_state",
        "common_inline_user_defined_table_function",
        "as_of_join",
        "with_relations",
        "unresolved_table_valued_function",
        "lateral_join",
        "nearest_by_join",
        "fill_na",
        "drop_na",
        "replace",
        "parse",
    ]
)
"""Kinds of nodes that a plan may contain. The others execute something when Spark analyses them, refer to what only one
session has, or contain what cannot be checked.
"""
_RELATION = relations_pb2.Relation.DESCRIPTOR.full_name
_ANY = "google.protobuf.Any"
_STREAM = re.compile(r"\bSTREAM\b", re.IGNORECASE)


def relation_sql(given: JobInput) -> str:
    """Return the SQL of the node by which the plan of a job reads one of its inputs."""
    return f"SELECT * FROM {given.sql}"


def is_streamed(given: JobInput) -> bool:
    """True if a job reads an input as a stream."""
    return _STREAM.search(PIECES.sub(lambda piece: "x" * len(piece[0]), given.sql)) is not None


def read_relation(relation: bytes, file: str) -> "Any | Fact[JobFault]":
    """Parse the plan of a job, or return why that is not possible."""
    if len(relation) > PLAN_BYTES:
        return JobFault.LARGE.of(file=file, limit=PLAN_BYTES)
    found = relations_pb2.Relation()
    try:
        found.ParseFromString(relation)
    except DecodeError:
        return JobFault.DEEP.of(file=file)
    return found


def fault_of_nodes(relation: Any, job: PythonJob, file: str) -> Fact[JobFault] | None:
    """Return why a plan must not be analysed; None if all of its nodes are allowed."""
    known = {relation_sql(each) for each in job.inputs}
    for message in _messages(relation):
        if message.DESCRIPTOR.full_name == _ANY:
            return JobFault.NODE.of(file=file, node="an extension")
        if message.DESCRIPTOR.full_name != _RELATION:
            continue
        node = message.WhichOneof("rel_type")
        if node not in NODES or (node == "sql" and not _is_known(message.sql, known)):
            return JobFault.NODE.of(file=file, node=str(node).replace("_", " "))
        if node == "read" and message.read.WhichOneof("read_type") == "named_table":
            table = message.read.named_table.unparsed_identifier
            return JobFault.TABLE.of(file=file, function=job.function, table=table[:200])
    return None


def fault_of_streams(relation: Any, job: PythonJob, file: str) -> Fact[JobFault] | None:
    """Return why the streams of a plan do not match the inputs; None if they do.

    Spark numbers the sources of a query in the order of the plan, children from left to right (4.2.0), and lag is
    measured by this number. So each streamed input must be read once, in the order of the parameters, and before any
    stream of the job's own.
    """
    streamed = [each for each in job.inputs if is_streamed(each)]
    expected = [relation_sql(each) for each in streamed]
    # An empty text is a stream of the job's own.
    read = [source for source in _sources(relation) if not source or source in expected]
    # Two parameters may be the same table, with the same SQL.
    used, given = Counter(read), Counter(expected)
    for each, source in zip(streamed, expected, strict=True):
        if used[source] < given[source]:
            return JobFault.UNUSED.of(file=file, function=job.function, parameter=each.parameter)
        if used[source] > given[source]:
            return JobFault.USED_TWICE.of(file=file, function=job.function, parameter=each.parameter)
    names: dict[str, list[str]] = {}
    for each, source in zip(streamed, expected, strict=True):
        names.setdefault(source, []).append(each.parameter)
    order = tuple(names[source].pop(0) if source else "" for source in read)
    wanted = tuple(each.parameter for each in streamed)
    if "" in order[: len(wanted)]:
        late = next(name for name in order[order.index("") :] if name)
        return JobFault.OWN_STREAM.of(file=file, function=job.function, parameter=late)
    order = order[: len(wanted)]
    if order != wanted:
        first, second = next(pair for pair in zip(order, wanted, strict=True) if pair[0] != pair[1])
        return JobFault.ORDER.of(file=file, function=job.function, first=first, second=second, order=order)
    return None


def keeps_processor_state(relation: Any) -> bool:
    """True if a plan contains transformWithState, which needs the state store RocksDB."""
    return any(
        message.DESCRIPTOR.full_name == _RELATION
        and message.WhichOneof("rel_type") == "group_map"
        and message.group_map.HasField("transform_with_state_info")
        for message in _messages(relation)
    )


def _is_known(sql: Any, known: set[str]) -> bool:
    given = (sql.args, sql.pos_args, sql.named_arguments, sql.pos_arguments)
    return sql.query in known and not any(map(len, given))


def _sources(relation: Any) -> Iterator[str]:
    """Yield the SQL of each input, and an empty text for each stream of the job's own, in the order of the plan."""
    for message in _messages(relation):
        if message.DESCRIPTOR.full_name == _RELATION:
            node = message.WhichOneof("rel_type")
            if node == "sql":
                yield message.sql.query
            elif node == "read" and message.read.is_streaming:
                yield ""


def _messages(message: Any) -> Iterator[Any]:
    """Yield a message and all messages in it, in the order of their field numbers."""
    waiting = [message]
    while waiting:
        message = waiting.pop()
        yield message
        inner: list[Any] = []
        for field, value in message.ListFields():
            if field.message_type is None:
                continue
            if field.message_type.GetOptions().map_entry:
                inner += value.values() if field.message_type.fields_by_name["value"].message_type else ()
            else:
                # Messages have a descriptor; repeated fields are sequences of them.
                inner += [value] if hasattr(value, "DESCRIPTOR") else value
        waiting += reversed(inner)
