"""Lets the process of a job ask Spark about plans, and nothing else: no actions, and no settings that hold secrets."""

import secrets
import threading
from collections.abc import Callable, Collection, Iterator
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.rpc import code_pb2, status_pb2
from grpc_status import rpc_status
from pyspark.sql.connect.proto import base_pb2

from core.model.errors import PoolUnreachable
from core.text.sentence import Fact
from pipelines.python_jobs.job_faults import JobFault
from pipelines.spark_connect.error_translation import MaybeStopped, translate_error
from pipelines.spark_connect.session import USER, Session

SERVICE = "/spark.connect.SparkConnectService/"
TOKEN_HEADER = "headgate-job"
MESSAGE_BYTES = 32 << 20
"""Maximum size of a request or answer, in bytes."""
SETTINGS = ("spark.sql.", "spark.python.sql.", "spark.connect.session.")
"""Prefixes of the settings that a job may read; others may hold secrets of the server."""

_QUESTIONS = frozenset({"schema", "is_streaming", "is_local", "spark_version", "ddl_parse", "json_to_ddl"})
"""What a job may ask about a plan. Answering any of them executes nothing (Spark 4.2.0); EXPLAIN could."""
_READS = frozenset({"get", "get_with_default", "get_option", "is_modifiable"})
_CALLS = {
    "ExecutePlan": "an action, spark.sql() or a registration",
    "AddArtifacts": "an upload to the server, for example of a large local table",
    "Interrupt": "an interruption of operations",
}
"""How an error names the calls that a job is most likely to make."""

PlanCheck = Callable[[Any], "Fact[JobFault] | None"]
"""Returns why a relation must not be analysed; None if it may be."""


@dataclass(slots=True)
class ProxyRecord:
    """What happened at the proxy of one job."""

    port: int
    token: str
    refused: list[str] = field(default_factory=list)
    """Calls that were refused, as shown in an error."""
    faults: list[Fact[JobFault]] = field(default_factory=list)
    """Faults of plans that the job asked about."""
    unreachable: list[Exception] = field(default_factory=list)
    """Errors of a pool that did not answer."""


@contextmanager
def analysis_proxy(session: Session, check: PlanCheck) -> Iterator[ProxyRecord]:
    """Serve one job on a port of this machine, with a token of its own, until the end of the block.

    All requests are made in the operating session, so that a job sees its temporary views; they only read.
    """
    record = ProxyRecord(0, secrets.token_hex(16))
    workers = futures.ThreadPoolExecutor(4, thread_name_prefix="job-analysis")
    options = (
        ("grpc.max_receive_message_length", MESSAGE_BYTES),
        ("grpc.max_send_message_length", MESSAGE_BYTES),
        ("grpc.so_reuseport", 0),
    )
    server = grpc.server(workers, options=options)
    server.add_generic_rpc_handlers((_Calls(session, check, record),))
    record.port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield record
    finally:
        server.stop(0)
        workers.shutdown(wait=False, cancel_futures=True)


class _Calls(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no stubs for us to see.
    def __init__(self, session: Session, check: PlanCheck, record: ProxyRecord) -> None:
        self._session, self._check, self._record = session, check, record
        self._lock = threading.Lock()
        client = session.spark.client
        self._forwarded = {
            "AnalyzePlan": (base_pb2.AnalyzePlanRequest, _sender(client, "AnalyzePlan"), self._forbidden_question),
            "Config": (base_pb2.ConfigRequest, _sender(client, "Config"), self._forbidden_setting),
            "FetchErrorDetails": (
                base_pb2.FetchErrorDetailsRequest, _sender(client, "FetchErrorDetails"), lambda _: "",
            ),
        }  # fmt: skip

    def service(self, details: Any) -> Any:
        name = details.method.removeprefix(SERVICE)
        metadata = dict(details.invocation_metadata)
        if not secrets.compare_digest(str(metadata.get(TOKEN_HEADER, "")), self._record.token):
            return grpc.unary_stream_rpc_method_handler(_unauthenticated)
        if name in self._forwarded:
            return grpc.unary_unary_rpc_method_handler(lambda request, context: self._forward(name, request, context))
        called = _CALLS.get(name, name)

        def refuse(_: Any, context: Any) -> Iterator[bytes]:
            self._refuse(called, context)
            yield b""

        make = grpc.stream_stream_rpc_method_handler if name == "AddArtifacts" else grpc.unary_stream_rpc_method_handler
        return make(refuse)

    def _forward(self, name: str, sent: bytes, context: Any) -> bytes:
        kind, send, forbidden = self._forwarded[name]
        request = kind()
        try:
            request.ParseFromString(sent)
        except Exception:
            self._refuse("an analysis of a plan with more than 49 steps in a row", context)
        if why := forbidden(request):
            self._refuse(why, context)
        request.session_id = self._session.session_id
        request.user_context.user_id = USER
        request.user_context.ClearField("extensions")
        try:
            answer: bytes = send(request.SerializeToString())
        except ValueError as error:
            # The agent has closed this connection, because it has opened another.
            self._unreachable(error)
            context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        except grpc.RpcError as error:
            if isinstance(translate_error(error), PoolUnreachable | MaybeStopped):
                self._unreachable(error)
            if (known := rpc_status.from_call(error)) is not None:
                context.abort_with_status(rpc_status.to_status(known))
            context.abort(error.code(), error.details())
        return answer

    def _unreachable(self, error: Exception) -> None:
        with self._lock:
            self._record.unreachable.append(error)

    def _refuse(self, called: str, context: Any) -> None:
        with self._lock:
            self._record.refused.append(called)
        status = status_pb2.Status(code=code_pb2.PERMISSION_DENIED, message=f"a job cannot make this call: {called}")
        context.abort_with_status(rpc_status.to_status(status))

    def _forbidden_question(self, request: Any) -> str:
        asked = request.WhichOneof("analyze")
        if asked not in _QUESTIONS:
            return {"persist": "persist()", "explain": "explain()"}.get(asked or "", f"{asked}()")
        if asked in ("schema", "is_streaming", "is_local"):
            plan = getattr(request, asked).plan
            if plan.WhichOneof("op_type") != "root":
                return "an analysis of a command"
            if (fault := self._check(plan.root)) is not None:
                with self._lock:
                    self._record.faults.append(fault)
                return str(fault)
        return ""

    def _forbidden_setting(self, request: Any) -> str:
        asked = request.operation.WhichOneof("op_type")
        if asked not in _READS:
            return "a change of Spark's settings" if asked != "get_all" else "a list of all settings"
        read: Any = getattr(request.operation, asked)
        keys: Collection[str] = [pair.key for pair in read.pairs] if asked == "get_with_default" else list(read.keys)
        hidden = next((key for key in keys if not key.startswith(SETTINGS)), "")
        return f"the setting {hidden}" if hidden else ""


def _sender(client: Any, name: str) -> Callable[[bytes], bytes]:
    send, metadata = client._channel.unary_unary(SERVICE + name), tuple(client._builder.metadata())

    def with_token(request: bytes) -> bytes:
        answer: bytes = send(request, metadata=metadata)
        return answer

    return with_token


def _unauthenticated(_: Any, context: Any) -> Iterator[bytes]:
    context.abort(grpc.StatusCode.UNAUTHENTICATED, "unknown token")
    yield b""
