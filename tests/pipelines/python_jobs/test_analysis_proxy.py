"""What the process of a job can ask through the proxy, over real gRPC, with a pool that answers in this process."""

from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from pyspark.sql.connect.proto import base_pb2, relations_pb2

from core.sql.python_jobs import JobInput, PythonJob
from pipelines.python_jobs.analysis_proxy import SERVICE, TOKEN_HEADER, ProxyRecord, analysis_proxy
from pipelines.python_jobs.plan_checks import fault_of_nodes

JOB = PythonJob("a", (JobInput("b", "STREAM b"),), "")


class Pool:
    """A session whose channel keeps what is sent, and answers with `answer`."""

    session_id = "ours"

    def __init__(self) -> None:
        self.sent: list[tuple[str, bytes, Any]] = []
        self.answer: Callable[[bytes], bytes] = lambda request: b""
        self.spark = self.client = self._channel = self._builder = self

    def metadata(self) -> list[tuple[str, str]]:
        return [("authorization", "Bearer pool")]

    def unary_unary(self, method: str) -> Callable[..., bytes]:
        def send(request: bytes, metadata: Any) -> bytes:
            self.sent.append((method.removeprefix(SERVICE), request, metadata))
            return self.answer(request)

        return send


Asking = Callable[..., bytes]


@pytest.fixture
def pool() -> Pool:
    return Pool()


@pytest.fixture
def proxy(pool: Pool) -> Iterator[ProxyRecord]:
    with analysis_proxy(pool, lambda relation: fault_of_nodes(relation, JOB, "job.a.py")) as record:  # type: ignore[arg-type]  # A double.
        yield record


def ask(proxy: ProxyRecord, name: str, request: Any, token: str = "") -> bytes:
    with grpc.insecure_channel(f"127.0.0.1:{proxy.port}") as channel:
        metadata = ((TOKEN_HEADER, token or proxy.token),)
        if name in ("AnalyzePlan", "Config"):
            answer: bytes = channel.unary_unary(SERVICE + name)(
                request.SerializeToString(), metadata=metadata, timeout=10
            )
            return answer
        return b"".join(
            channel.unary_stream(SERVICE + name)(request.SerializeToString(), metadata=metadata, timeout=10)
        )


def schema_of(sql: str) -> base_pb2.AnalyzePlanRequest:
    plan = base_pb2.Plan(root=relations_pb2.Relation(sql=relations_pb2.SQL(query=sql)))
    return base_pb2.AnalyzePlanRequest(session_id="theirs", schema=base_pb2.AnalyzePlanRequest.Schema(plan=plan))


def config(**operation: Any) -> base_pb2.ConfigRequest:
    return base_pb2.ConfigRequest(operation=base_pb2.ConfigRequest.Operation(**operation))


def test_a_question_is_asked_in_the_operating_session_with_the_token_of_the_pool(
    pool: Pool, proxy: ProxyRecord
) -> None:
    pool.answer = lambda request: b"answered"
    assert ask(proxy, "AnalyzePlan", schema_of("SELECT * FROM STREAM b")) == b"answered"
    (name, request, metadata), sent = pool.sent[0], base_pb2.AnalyzePlanRequest.FromString(pool.sent[0][1])
    assert (name, sent.session_id, sent.user_context.user_id) == ("AnalyzePlan", "ours", "headgate") and request
    assert metadata == (("authorization", "Bearer pool"),)


@pytest.mark.parametrize(
    ("name", "request_", "said"),
    [
        ("ExecutePlan", base_pb2.ExecutePlanRequest(), "an action, spark.sql() or a registration"),
        ("ReleaseSession", base_pb2.ReleaseSessionRequest(), "ReleaseSession"),
        ("Interrupt", base_pb2.InterruptRequest(), "an interruption of operations"),
        ("AnalyzePlan", schema_of("DROP TABLE b"), "the plan of job.a.py contains sql"),
        ("AnalyzePlan", base_pb2.AnalyzePlanRequest(persist={}), "persist()"),
        ("AnalyzePlan", base_pb2.AnalyzePlanRequest(explain={}), "explain()"),
        ("Config", config(set={}), "a change of Spark's settings"),
        ("Config", config(get={"keys": ["spark.sql.x", "spark.hadoop.fs.s3a.secret.key"]}), "the setting spark.hadoop"),
        ("Config", config(get_all={}), "a list of all settings"),
    ],
)
def test_everything_else_is_refused_and_not_forwarded(
    pool: Pool, proxy: ProxyRecord, name: str, request_: Any, said: str
) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        ask(proxy, name, request_)
    assert refused.value.code() == grpc.StatusCode.PERMISSION_DENIED and said in refused.value.details()
    assert not pool.sent and said in proxy.refused[0]


def test_another_process_without_the_token_is_refused(pool: Pool, proxy: ProxyRecord) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        ask(proxy, "ExecutePlan", base_pb2.ExecutePlanRequest(), token="guessed")
    assert refused.value.code() == grpc.StatusCode.UNAUTHENTICATED and not proxy.refused


def test_a_pool_that_has_closed_the_connection_is_no_fault_of_the_job(pool: Pool, proxy: ProxyRecord) -> None:
    def closed(request: bytes) -> bytes:
        raise ValueError("Cannot invoke RPC on closed channel!")

    pool.answer = closed
    with pytest.raises(grpc.RpcError):
        ask(proxy, "AnalyzePlan", schema_of("SELECT * FROM STREAM b"))
    assert len(proxy.unreachable) == 1
