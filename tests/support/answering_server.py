"""A web server on loopback whose answers a test gives."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextmanager
def answering_server(answer: Callable[[str, str], tuple[int, bytes]]) -> Iterator[int]:
    """Yield the port of a server that answers each GET with the status and the body which `answer` returns.

    `answer` is called with the path and the header Authorization, in a thread for each request.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = answer(self.path, self.headers.get("Authorization", ""))
            self.send_response(status)
            self.end_headers()
            # A caller that has given up has closed the connection.
            with suppress(BrokenPipeError):
                self.wfile.write(body)

        def log_message(self, *words: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
