"""A schema registry for tests: an HTTP server with responses as in the API reference of Confluent's Schema Registry.

No registry server can be installed here, so this server implements what the reference documents: subjects with versions
and schemas, soft deletion, compatibility modes, error codes, and Basic authentication.
"""

import json
import re
from typing import Any

from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

_VERSIONS = re.compile(r"/subjects/([^/]+)/versions(?:/(\d+))?\Z")


class PlayedRegistry:
    """Subjects with their versions; tests can change them while a client reads them."""

    def __init__(self, server: HTTPServer) -> None:
        self.server, self.url = server, server.url_for("").rstrip("/")
        self.modes: dict[str, str] = {}
        """Compatibility modes by subject; the mode of all other subjects is BACKWARD."""
        self.login = ""
        """The Authorization header that each request must have; if empty, none is needed."""
        self.requests: list[str] = []
        """Paths of all requests, without parameters."""
        self._subjects: dict[str, dict[int, tuple[int, str]]] = {}
        self._deleted: set[tuple[str, int]] = set()
        self._status: int | None = None
        self._text: str | None = None
        server.expect_request(re.compile("/.*")).respond_with_handler(self._answer)

    def add(self, subject: str, schema: Any, id: int) -> None:
        """Register a schema as the next version of a subject."""
        versions = self._subjects.setdefault(subject, {})
        versions[len(versions) + 1] = (id, json.dumps(schema))

    def delete(self, subject: str, version: int) -> None:
        """Soft-delete a version: messages with its schema can still be read."""
        self._deleted.add((subject, version))

    def forget(self, subject: str) -> None:
        """Delete a subject permanently."""
        del self._subjects[subject]

    def fails_with(self, status: int | None) -> None:
        """Answer all requests with an error status; None restores normal answers."""
        self._status = status

    def answers_with(self, text: str) -> None:
        """Answer all requests with a text, like a different server at the same address."""
        self._status, self._text = None, text

    def _answer(self, request: Request) -> Response:
        self.requests.append(request.path)
        if self._text is not None:
            return Response(self._text)
        if self._status is not None:
            return _json({"error_code": 50001, "message": "error in the backend"}, self._status)
        if self.login and request.headers.get("Authorization") != self.login:
            return _json({"error_code": 401, "message": "Unauthorized"}, 401)
        if found := _VERSIONS.match(request.path):
            return self._version(found[1], found[2], with_deleted=request.args.get("deleted") == "true")
        subject = request.path.removeprefix("/config/")
        return _json({"compatibilityLevel": self.modes.get(subject, "BACKWARD")})

    def _version(self, subject: str, version: str | None, *, with_deleted: bool) -> Response:
        there = {
            n: each
            for n, each in self._subjects.get(subject, {}).items()
            if with_deleted or (subject, n) not in self._deleted
        }
        if not there:
            return _json({"error_code": 40401, "message": f"Subject '{subject}' not found."}, 404)
        if version is None:
            return _json(list(there))
        id, text = there[int(version)]
        return _json({"subject": subject, "version": int(version), "id": id, "schema": text})


def _json(value: Any, status: int = 200) -> Response:
    return Response(json.dumps(value), status, content_type="application/vnd.schemaregistry.v1+json")
