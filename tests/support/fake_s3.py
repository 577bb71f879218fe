"""An S3 with one bucket in memory: answers what Arrow asks for when it reads, as the real one does."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

import pytest

from pipelines.storage.hadoop_settings import use_settings_of_pools
from pipelines.storage.object_files import object_files

KEY, SECRET = "HEADGATE_TEST_S3_KEY", "HEADGATE_TEST_S3_SECRET"
"""Environment variables to which the settings of a pool refer."""

ACCESS_DENIED = (403, "AccessDenied")
SLOW_DOWN = (503, "SlowDown")


class FakeS3:
    """The bucket `lake`, with contents by key."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}
        self.times: dict[str, float] = {}
        """Times of contents in epoch seconds, by key; the others have the time 1000000000."""
        self.fault: tuple[int, str] | None = None
        """Status and code with which every request is answered."""
        self.page = 1000
        """Most keys of a page of a listing."""
        self.answers = Event()
        """Cleared while no request is answered."""
        self.answers.set()
        self.requests: list[str] = []
        """Method and target of each request."""
        self.authorizations: list[str] = []
        handler = type("Handler", (_Handler,), {"s3": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        self.root = "s3a://lake"
        Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        self.answers.set()
        self._server.shutdown()
        self._server.server_close()


def conf_of(port: int) -> tuple[tuple[str, str], ...]:
    """Return the settings of a pool that reads an S3 at a port of this machine."""
    settings = {
        "endpoint": f"127.0.0.1:{port}",
        "endpoint.region": "eu-west-1",
        "connection.ssl.enabled": "false",
        "path.style.access": "true",
        "access.key": f"${{env:{KEY}}}",
        "secret.key": f"${{env:{SECRET}}}",
    }
    return tuple((f"spark.hadoop.fs.s3a.{name}", value) for name, value in settings.items())


@contextmanager
def fake_s3(patch: pytest.MonkeyPatch) -> Iterator[FakeS3]:
    """Serve a bucket, and have Headgate find it in the settings of a pool."""
    found = FakeS3()
    with patch.context() as environ:
        environ.setenv(KEY, "the-key")
        environ.setenv(SECRET, "the-secret")
        environ.setenv("AWS_EC2_METADATA_DISABLED", "true")
        use_settings_of_pools([conf_of(found.port)])
        object_files.cache_clear()
        try:
            yield found
        finally:
            found.stop()
            use_settings_of_pools(())
            object_files.cache_clear()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    s3: FakeS3

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self.s3.requests.append(f"{self.command} {self.path}")
        self.s3.authorizations.append(self.headers.get("Authorization", ""))
        self.s3.answers.wait()
        parts = urlsplit(self.path)
        bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
        query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        if self.s3.fault is not None:
            self._answer(self.s3.fault[0], _error(self.s3.fault[1]))
        elif bucket != "lake":
            self._answer(404, _error("NoSuchBucket"))
        elif not key:
            self._answer(200, self._listing(query) if self.command == "GET" else b"")
        elif key not in self.s3.contents:
            self._answer(404, _error("NoSuchKey"))
        else:
            self._content(key)

    do_HEAD = do_GET

    def _content(self, key: str) -> None:
        content, status = self.s3.contents[key], 200
        if wanted := self.headers.get("Range"):
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            content, status = content[int(first) : int(last) + 1], 206
        at = datetime.fromtimestamp(self._at(key), UTC)
        self._answer(status, content, {"Last-Modified": f"{at:%a, %d %b %Y %H:%M:%S} GMT", "ETag": '"e"'})

    def _listing(self, query: dict[str, str]) -> bytes:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        found: dict[str, str] = {}
        for key in sorted(self.s3.contents):
            if not key.startswith(prefix):
                continue
            inner = key[len(prefix) :]
            if delimiter and delimiter in inner:
                folder = prefix + inner.partition(delimiter)[0] + delimiter
                found[folder] = f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>"
                continue
            at = datetime.fromtimestamp(self._at(key), UTC)
            size = len(self.s3.contents[key])
            found[key] = (
                f"<Contents><Key>{escape(key)}</Key><Size>{size}</Size>"
                f"<LastModified>{at:%Y-%m-%dT%H:%M:%S}.000Z</LastModified></Contents>"
            )
        after = query.get("continuation-token", "")
        names = [name for name in found if name > after]
        page = names[: min(self.s3.page, int(query.get("max-keys", self.s3.page)))]
        more = len(names) > len(page)
        token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if more else ""
        body = "".join(found[name] for name in page)
        about = f"<Name>lake</Name><IsTruncated>{str(more).lower()}</IsTruncated><KeyCount>{len(page)}</KeyCount>"
        return f"<ListBucketResult>{about}{token}{body}</ListBucketResult>".encode()

    def _at(self, key: str) -> float:
        return self.s3.times.get(key, 1_000_000_000.0)

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)


def _error(code: str) -> bytes:
    return f"<Error><Code>{code}</Code><Message>no, because</Message></Error>".encode()
