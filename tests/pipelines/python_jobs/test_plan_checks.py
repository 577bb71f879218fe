"""Plans of jobs that are refused, and the order of their streams, on messages as a job's process could write them."""

from typing import Any

import pytest
from pyspark.sql.connect.proto import relations_pb2

from core.sql.python_jobs import JobInput, PythonJob
from pipelines.python_jobs.plan_checks import (
    fault_of_nodes,
    fault_of_streams,
    is_streamed,
    keeps_processor_state,
    read_relation,
    relation_sql,
)

ORDERS, VISITS = JobInput("orders", "STREAM `orders__v2`"), JobInput("visits", "(SELECT * FROM STREAM `v__v1` WHERE a)")
CUSTOMERS = JobInput("customers", "`a STREAM b`")
JOB = PythonJob("r", (ORDERS, VISITS, CUSTOMERS), "")


def read(of: JobInput) -> Any:
    return relations_pb2.Relation(sql=relations_pb2.SQL(query=relation_sql(of)))


def own_stream() -> Any:
    source = relations_pb2.Read.DataSource(format="rate")
    return relations_pb2.Relation(read=relations_pb2.Read(data_source=source, is_streaming=True))


def joined(left: Any, *others: Any) -> Any:
    for right in others:
        left = relations_pb2.Relation(join=relations_pb2.Join(left=left, right=right))
    return left


def test_an_input_streams_if_its_sql_says_so_outside_of_names() -> None:
    assert [*map(is_streamed, JOB.inputs)] == [True, True, False]


@pytest.mark.parametrize(
    ("relation", "kind"),
    [
        (joined(read(ORDERS), read(CUSTOMERS), read(VISITS), own_stream(), read(CUSTOMERS)), ""),
        (joined(read(VISITS), read(ORDERS)), "r in job.r.py reads visits before orders"),
        (joined(read(ORDERS), read(ORDERS), read(VISITS)), "r in job.r.py uses orders twice"),
        (joined(read(ORDERS), read(CUSTOMERS)), "r in job.r.py does not use visits"),
        (joined(read(VISITS), read(CUSTOMERS)), "r in job.r.py does not use orders"),
        (joined(read(ORDERS), own_stream(), read(VISITS)), "r in job.r.py reads a stream of its own before visits"),
    ],
)
def test_each_stream_is_read_once_in_the_order_of_the_parameters(relation: Any, kind: str) -> None:
    assert str(fault_of_streams(relation, JOB, "job.r.py") or "") == kind


def test_two_parameters_may_be_streams_of_one_table() -> None:
    twice = PythonJob("r", (JobInput("new", ORDERS.sql), VISITS, JobInput("old", ORDERS.sql)), "")
    assert fault_of_streams(joined(read(ORDERS), read(VISITS), read(ORDERS)), twice, "f") is None
    found = fault_of_streams(joined(read(ORDERS), read(ORDERS), read(VISITS)), twice, "f")
    assert found is not None and str(found.remedy) == "list its parameters in the order of new and old and visits"
    assert str(fault_of_streams(joined(read(ORDERS), read(VISITS)), twice, "f")) == "r in f does not use new"


def test_an_order_that_lag_could_not_follow_is_refused_with_the_order_to_use() -> None:
    found = fault_of_streams(joined(read(VISITS), read(ORDERS)), JOB, "job.r.py")
    assert found is not None and str(found.remedy) == "list its parameters in the order of visits and orders"


@pytest.mark.parametrize(
    ("relation", "kind"),
    [
        (joined(read(ORDERS), read(CUSTOMERS), own_stream()), ""),
        (relations_pb2.Relation(sql=relations_pb2.SQL(query="DROP TABLE x")), "sql"),
        (relations_pb2.Relation(catalog={"drop_temp_view": {"view_name": "x"}}), "catalog"),
        (relations_pb2.Relation(cached_local_relation={"hash": "x"}), "cached local relation"),
        (relations_pb2.Relation(extension={"type_url": "x"}), "extension"),
        (relations_pb2.Relation(transpose={"input": read(ORDERS)}), "transpose"),
        (relations_pb2.Relation(), "None"),
    ],
)
def test_only_nodes_that_execute_nothing_are_analysed(relation: Any, kind: str) -> None:
    found = fault_of_nodes(joined(read(ORDERS), relation), JOB, "job.r.py")
    assert (str(dict(found.values)["node"]) if found else "") == kind


def test_a_parameter_of_sql_and_an_undeclared_table_are_refused() -> None:
    named = read(ORDERS)
    named.sql.named_arguments["a"].literal.integer = 1
    assert fault_of_nodes(named, JOB, "f") is not None
    table = relations_pb2.Relation(read={"named_table": {"unparsed_identifier": "other"}})
    assert str(fault_of_nodes(table, JOB, "f")) == "r in f reads other, which is not one of its parameters"


def test_a_plan_that_cannot_be_read_is_refused() -> None:
    assert str(read_relation(b"\xff\xff", "job.r.py")) == "the plan of job.r.py has more than 49 steps in a row"
    deep = read(ORDERS)
    for _ in range(48):
        deep = relations_pb2.Relation(filter=relations_pb2.Filter(input=deep))
    found = read_relation(deep.SerializeToString(), "f")
    assert fault_of_nodes(found, JOB, "f") is None and not keeps_processor_state(found)
    nested = b""
    for _ in range(5_000):
        # Fields `filter` of a relation and `input` of a filter.
        nested = _field(4, _field(1, nested))
    assert str(read_relation(nested, "f")) == "the plan of f has more than 49 steps in a row"
    assert keeps_processor_state(relations_pb2.Relation(group_map={"transform_with_state_info": {}}))


def _field(number: int, value: bytes) -> bytes:
    """Encode a field that contains a message."""
    encoded, length = bytearray([number << 3 | 2]), len(value)
    while length > 0x7F:
        encoded.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes([*encoded, length]) + value
