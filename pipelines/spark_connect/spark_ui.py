"""The web interface of a pool's server: its executors, its heap, and how the tasks of a query's latest batches ran.

Answers are read as JSON, with a deadline for each; no redirect is followed, and no proxy is used. A token is only in a
header, and never in a message.
"""

import base64
import hashlib
import hmac
import json
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

from core.model.errors import PoolUnreachable
from core.observed.spark_work import (
    Executor,
    ServerHeap,
    StageTimes,
    executors_of,
    heap_of,
    stage_times,
    stages_by_batch,
)
from pipelines.spark_connect.call_deadlines import MissedDeadline, call, remaining

ANSWERS_S = 8.0
"""Longest wait, in seconds, for one answer. The first one takes seconds on a busy machine (4.2.0)."""

LARGEST = 16 << 20
"""Largest answer, in bytes."""

_API = "/api/v1"

T = TypeVar("T")

LATEST, MOST_STAGES = 2, 12
"""Number of latest batches of a query whose stages are read, and most stages that are read at once."""


class SparkUi:
    """Reads the REST API below a URL such as `http://host:4040`. Not thread-safe.

    Every method raises PoolUnreachable if the answer is late, refused, or not that of Spark.
    """

    def __init__(self, url: str, bearer: Callable[[], str] = lambda: "", *, ca: str = "") -> None:
        """Read from `url`. `bearer` returns the token to send; empty for none.

        `ca` is the path of the certificates that are trusted; empty for those of this machine.
        """
        self._place = urlsplit(url.rstrip("/"))
        self._bearer = bearer
        self._ca = ca
        self._application = ""

    def executors(self) -> tuple[Executor, ...]:
        """Return the executors that are alive, with those of most cores first."""
        return self._parsed(executors_of, self._of_application("/executors"))

    def stages(self, run_id: str) -> tuple[StageTimes, ...]:
        """Return the stages of the latest finished batches of a query's run, as far as Spark still has them.

        This takes one request, and one for each of at most `MOST_STAGES` stages.
        """
        jobs = self._parsed(
            lambda found: stages_by_batch(found, run_id), self._of_application("/jobs?status=succeeded")
        )
        wanted = [(batch, stage) for batch in [*jobs][:LATEST] for stage in jobs[batch]]
        found: list[StageTimes] = []
        for batch, stage in wanted[:MOST_STAGES]:
            path = f"/stages/{stage}?details=false&withSummaries=true&quantiles=1.0"
            # Spark has forgotten a stage that it does not find.
            if document := self._of_application(path, missing=[]):
                times = self._parsed(partial(stage_times, batch=batch), document)
                found += [times] if times is not None else []
        return tuple(found)

    def heap(self) -> ServerHeap | None:
        """Return the heap of the server; None if it was started without a source of it."""
        # A server without metrics, or an older one, has no such page.
        return self._parsed(heap_of, self._get("/metrics/json/", missing={"gauges": {}}))

    def _of_application(self, path: str, *, missing: Any = None) -> Any:
        """Return the answer to a path of the application; `missing` if that is not None and Spark has no such thing."""
        if not self._application:
            self._application = self._parsed(lambda found: str(found[0]["id"]), self._get(f"{_API}/applications"))
        return self._get(f"{_API}/applications/{quote(self._application)}{path}", missing=missing)

    def _get(self, path: str, *, missing: Any = None) -> Any:
        # Until an answer is usable: another server may have taken the place of the one that was asked before.
        known, self._application = self._application, ""
        left_s = remaining()
        waits_s = ANSWERS_S if left_s is None else min(ANSWERS_S, left_s)
        try:
            status, body = call(waits_s, self._answer, path)
            found = json.loads(body) if status == HTTPStatus.OK else missing
        except (MissedDeadline, TimeoutError) as error:
            raise PoolUnreachable(f"{self._shown} gave no answer within {waits_s:.2g} s") from error
        except (OSError, HTTPException, ValueError) as error:
            raise PoolUnreachable(f"{self._shown} cannot be read: {type(error).__name__}") from error
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            raise PoolUnreachable(f"the REST API of Spark at {self._shown} refuses the agent")
        if found is None or status not in (HTTPStatus.OK, HTTPStatus.NOT_FOUND):
            raise PoolUnreachable(f"the REST API of Spark at {self._shown} answers with status {status}")
        self._application = known
        return found

    def _answer(self, path: str) -> tuple[int, bytes]:
        if self._place.scheme == "https":
            # Imported here, because few pools need it.
            import ssl

            context = ssl.create_default_context(cafile=self._ca or None)
            connection: HTTPConnection = HTTPSConnection(self._place.netloc, timeout=ANSWERS_S, context=context)
        else:
            connection = HTTPConnection(self._place.netloc, timeout=ANSWERS_S)
        token = self._bearer()
        try:
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            connection.request("GET", f"{self._place.path}{path}", headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read(LARGEST)
        finally:
            connection.close()

    def _parsed(self, parse: Callable[[Any], T], document: Any) -> T:
        try:
            return parse(document)
        except (ValueError, KeyError, IndexError, TypeError) as error:
            self._application = ""
            raise PoolUnreachable(f"{self._shown} is not the REST API of Spark") from error

    @property
    def _shown(self) -> str:
        return f"{self._place.scheme}://{self._place.netloc}"


def ui_key(token: str) -> bytes:
    """Return the key with which tokens for the UI of a local server are signed, derived from the server's own token."""
    return hashlib.sha256(f"ui {token}".encode()).digest()


def signed_token(key: bytes) -> str:
    """Return a token that Spark's JWSFilter accepts, which knows the same key (Spark 4.2.0, `JWSFilter.scala`)."""
    head, claims = (_base64url(json.dumps(each).encode()) for each in ({"alg": "HS256"}, {"sub": "headgate"}))
    signature = hmac.new(key, f"{head}.{claims}".encode(), hashlib.sha256).digest()
    return f"{head}.{claims}.{_base64url(signature)}"


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
