"""Schemas of Kafka messages, from a registry with Confluent's REST interface.

A version of a subject never changes, so it is requested once and kept as a copy. If the registry is unreachable,
statements start with these copies, unless the copies are known to be incomplete.
"""

import base64
import hashlib
import http.client
import io
import json
import logging
import os
import ssl
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from core.model.errors import HeadgateError, Refused, TryAgain
from core.model.states import TableFaultKind
from core.ports.storage import TableFault
from core.sql.avro_schemas import RegisteredSchema, SchemasByPart, readings
from core.sql.kafka_topics import RegistryPlace, avro_parts, avro_types, own_schemas, registry_of
from core.sql.statement import TableDdl
from pipelines.storage.kafka_clients import ANSWER_S, resolved

log = logging.getLogger(__name__)

PROTECTING = frozenset({"FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE"})
"""Compatibility modes in which a new schema cannot lack a field that readers of the previous schema need."""

_LARGEST = 16_000_000
"""Maximum size of an answer, in bytes."""
SILENT_S = 5.0
"""Seconds for which no request is sent to a registry that did not answer in time, so that other tables are not delayed.
"""
_CHECK = "check that it runs and can be reached"
_silent_until: dict[str, float] = {}
"""Monotonic time until which no request is sent to a registry, by URL."""
_writing = threading.Lock()


class SubjectMissing(Refused):
    """Raised if the registry has no such subject."""


@dataclass(frozen=True, slots=True)
class _Copies:
    """Copies of a subject's schemas, and the ids of schemas that are missing from them."""

    schemas: tuple[RegisteredSchema, ...] = ()
    asked: frozenset[int] = frozenset()
    """Schema ids found in messages, for which the registry has not been asked yet."""
    others: frozenset[int] = frozenset()
    """Schema ids found in messages that were not versions of the subject when the registry was asked."""


def registered_schemas(ddl: TableDdl, home: str) -> SchemasByPart:
    """Return the schemas of a table's messages, by part; empty if the table has no registry.

    If the registry is unreachable, the copies in the environment's `home` are used. Raises Refused or TryAgain if there
    are no copies, or if messages have schemas that are not among them.
    """
    if (place := registry_of(ddl)) is None:
        return {}
    with _connected(place) as registry:
        found = {}
        for part, subjects in avro_parts(ddl).items():
            copies = [_up_to_date(registry, subject, home) for subject in subjects]
            schemas = tuple(schema for each in copies for schema in each.schemas)
            others = {id for each in copies for id in each.others} - {schema.id for schema in schemas}
            unlisted = (RegisteredSchema(id, subject=" or ".join(subjects)) for id in sorted(others))
            found[part] = (*schemas, *unlisted)
        return found


def note_unknown_schema(ddl: TableDdl, home: str, id: int) -> None:
    """Record the id of a message's schema that is not among the copies, so that the registry is asked for it."""
    if (place := registry_of(ddl)) is None:
        return
    for subject in [subject for subjects in avro_parts(ddl).values() for subject in subjects]:
        copies = _read(home, place, subject)
        _write(home, place, subject, replace(copies, asked=copies.asked | {id}))


def fault_of_schemas(ddl: TableDdl, home: str = "") -> TableFault | None:
    """Explain all differences between a table's columns and the newest schemas of its subjects; None if there are none.

    Schemas are copied to the environment's `home`, unless that is empty. Raises Refused if a subject is missing or the
    registry refuses the credentials, and TryAgain if it does not answer.
    """
    if (place := registry_of(ddl)) is None:
        return None
    with _connected(place) as registry:
        types, unlike = avro_types(ddl), []
        for part, subjects in avro_parts(ddl).items():
            for subject in subjects if part in types else ():
                newest = max(registry.versions(subject))
                every = _up_to_date(registry, subject, home, strict=True).schemas
                found = [each for each in readings(types[part], every) if each.schema.version == newest][-1:]
                unlike += [f"{each.schema} {'; '.join(map(str, each.faults))}" for each in found if each.faults]
    if not unlike:
        return None
    remedy = f"declare the columns of {ddl.table} as they are there, or have that version deleted in the registry"
    why = f"{ddl.table} cannot be read as declared: {'; '.join(unlike)}"
    return TableFault(TableFaultKind.COLUMNS_CHANGED, why, remedy)


def unprotected_subjects(ddl: TableDdl) -> dict[str, str]:
    """Return the subjects, with their compatibility modes, whose new schemas may lack fields that readers need.

    Raises the same errors as `fault_of_schemas`.
    """
    if (place := registry_of(ddl)) is None:
        return {}
    with _connected(place) as registry:
        modes = {subject: registry.mode(subject) for subjects in avro_parts(ddl).values() for subject in subjects}
    return {subject: mode for subject, mode in modes.items() if mode not in PROTECTING}


class AvroText:
    """Decodes a table's messages to JSON, with the schemas with which they were written."""

    def __init__(self, ddl: TableDdl, home: str) -> None:
        self._own = own_schemas(ddl)
        self._schemas = registered_schemas(ddl, home)
        self._parsed: dict[int, Any] = {}

    def decoded(self, part: str, message: bytes) -> str | None:
        """Return a key or value as JSON; None if it is not Avro or its schema is unknown."""
        own, known = self._own, {each.id: each for each in self._schemas.get(part, ())}
        if part == "value" and own:
            return self._json(own[0], message)
        if len(message) < 5 or message[0] != 0:
            return None
        schema = known.get(struct.unpack(">I", message[1:5])[0])
        return self._json(schema, message[5:]) if schema and schema.text else None

    def _json(self, schema: RegisteredSchema, body: bytes) -> str | None:
        try:
            from fastavro import parse_schema, schemaless_reader
            from fastavro.schema import SchemaParseException
        except ImportError as error:
            summary, remedy = "the package fastavro is not installed", "pip install 'headgate[kafka]'"
            raise Refused(summary, remedy=f"{remedy}, then headgate down --keep-pool and headgate up") from error
        try:
            if schema.id not in self._parsed:
                self._parsed[schema.id] = parse_schema(json.loads(schema.text))
            value = schemaless_reader(io.BytesIO(body), self._parsed[schema.id], None)
        except (ArithmeticError, EOFError, LookupError, MemoryError, SchemaParseException, TypeError, ValueError):
            return None
        return json.dumps(value, default=_shown, ensure_ascii=False)


class _Registry:
    """A connection to a registry whose responses follow Confluent's API reference."""

    def __init__(self, place: RegistryPlace) -> None:
        url = urlsplit(place.url)
        self.place, self._host, self._path = place, url.netloc, url.path.rstrip("/")
        self._headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if place.user or place.password:
            login = ":".join(resolved(each, for_java=False) for each in (place.user, place.password))
            self._headers["Authorization"] = f"Basic {base64.b64encode(login.encode()).decode()}"
        try:
            secured = ssl.create_default_context(cafile=place.trusted or None) if url.scheme == "https" else None
        except OSError as error:
            remedy = "correct schema.registry.ssl.truststore.location: a PEM file of the authority"
            raise Refused(f"{place.trusted} cannot be read: {error}", remedy=remedy) from error
        open_https = http.client.HTTPSConnection
        self._http = (
            http.client.HTTPConnection(url.netloc, timeout=ANSWER_S)
            if secured is None
            else open_https(url.netloc, timeout=ANSWER_S, context=secured)
        )

    def close(self) -> None:
        self._http.close()

    def versions(self, subject: str, *, deleted: bool = False) -> list[int]:
        """Return the version numbers of a subject; with `deleted`, including versions that were soft-deleted."""
        also = "?deleted=true" if deleted else ""
        with self._understood():
            return sorted(map(int, self._get(f"/subjects/{quote(subject, safe='')}/versions{also}", subject)))

    def schema(self, subject: str, version: int) -> RegisteredSchema:
        """Return a version of a subject, with references to other schemas replaced by those schemas."""
        path = f"/subjects/{quote(subject, safe='')}/versions/{version}?deleted=true&format=resolved"
        with self._understood():
            found = self._get(path, subject)
            kind = found.get("schemaType", "AVRO")
            return RegisteredSchema(int(found["id"]), str(found["schema"]), subject, version, kind)

    def mode(self, subject: str) -> str:
        """Return the compatibility mode of a subject."""
        with self._understood():
            found = self._get(f"/config/{quote(subject, safe='')}?defaultToGlobal=true", subject)
            return str(found["compatibilityLevel"])

    @contextmanager
    def _understood(self) -> Iterator[None]:
        """Raise Refused if an answer does not have the form that a registry returns."""
        try:
            yield
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise self._other(200) from error

    def _get(self, path: str, subject: str) -> Any:
        """Send a request and return the decoded answer."""
        about = f"the schema registry {self.place.url}"
        if time.monotonic() < _silent_until.get(self.place.url, 0.0):
            raise TryAgain(f"{about} did not answer a moment ago", remedy=_CHECK)
        try:
            self._http.request("GET", self._path + path, headers=self._headers)
            answer = self._http.getresponse()
            status, body = answer.status, answer.read(_LARGEST)
        except ssl.SSLError as error:
            remedy = "check schema.registry.ssl.truststore.location: a PEM file of the authority that signed its own"
            raise Refused(f"TLS with {about} fails: {error.reason}", remedy=remedy) from error
        except (OSError, http.client.HTTPException) as error:
            self._http.close()
            if isinstance(error, TimeoutError):
                _silent_until[self.place.url] = time.monotonic() + SILENT_S
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise TryAgain(f"{about} does not answer: {why}", remedy=_CHECK) from error
        if status in (401, 403):
            remedy = "correct schema.registry.username and what schema.registry.password refers to"
            raise Refused(f"{about} refuses the credentials (status {status})", remedy=remedy)
        if status == 429 or status >= 500:
            raise TryAgain(f"{about} answers with status {status}", remedy="try again in a moment")
        try:
            found = json.loads(body)
        except ValueError as error:
            raise self._other(status) from error
        if status == 404 and isinstance(found, dict) and "error_code" in found:
            remedy = "correct schema.subject in OPTIONS, or have a producer register its schema there first"
            raise SubjectMissing(f"{about} has no subject {subject}", remedy=remedy)
        if status != 200:
            raise self._other(status)
        return found

    def _other(self, status: int) -> Refused:
        why = f"{self.place.url} does not answer as a schema registry does (status {status})"
        return Refused(why, remedy="correct schema.registry in OPTIONS")


@contextmanager
def _connected(place: RegistryPlace) -> Iterator[_Registry]:
    registry = _Registry(place)
    try:
        yield registry
    finally:
        registry.close()


def _up_to_date(registry: _Registry, subject: str, home: str, *, strict: bool = False) -> _Copies:
    """Add the registry's new schemas to the copies of a subject, and return the copies.

    If the registry cannot be asked, return the copies unchanged. With `strict`, or if the copies are missing or known
    to be incomplete, raise the error instead.
    """
    copies = _read(home, registry.place, subject)
    try:
        numbers = registry.versions(subject, deleted=True)
        have = {each.version for each in copies.schemas}
        # A subject that was deleted permanently and recreated has other schemas under the same version numbers.
        is_other = copies.asked or not have <= set(numbers)
        added = [registry.schema(subject, n) for n in numbers if is_other or n not in have]
    except HeadgateError as error:
        if strict or copies.asked or not copies.schemas:
            raise
        log.warning("the schemas of %s are those copied before: %s", subject, error.summary)
        return copies
    new = {each.id for each in added}
    schemas = (*(each for each in copies.schemas if each.id not in new), *added)
    found = _Copies(schemas, others=(copies.asked | copies.others) - {each.id for each in schemas})
    if found != copies:
        _write(home, registry.place, subject, found)
    return found


def _place(home: str, place: RegistryPlace, subject: str) -> Path:
    digest = hashlib.sha256(json.dumps([place.url, subject]).encode()).hexdigest()
    return Path(home) / "schemas" / f"{digest[:16]}.json"


def _read(home: str, place: RegistryPlace, subject: str) -> _Copies:
    """Return the copies of a subject's schemas; empty if the copies cannot be read."""
    with suppress(OSError, ValueError, TypeError, KeyError):
        if not home:
            return _Copies()
        found = json.loads(_place(home, place, subject).read_text("utf-8"))
        schemas = tuple(RegisteredSchema(**each) for each in found["schemas"])
        asked, others = (frozenset(map(int, found[name])) for name in ("asked", "others"))
        return _Copies(schemas, asked, others)
    return _Copies()


def _write(home: str, place: RegistryPlace, subject: str, copies: _Copies) -> None:
    path = _place(home, place, subject)
    ids = {"asked": sorted(copies.asked), "others": sorted(copies.others)}
    text = {"subject": subject, "schemas": [*map(asdict, copies.schemas)], **ids}
    if not home:
        return
    with _writing:
        path.parent.mkdir(mode=0o750, exist_ok=True)
        hidden = path.with_suffix(".part")
        hidden.write_text(json.dumps(text), "utf-8")
        os.replace(hidden, path)


def _shown(value: Any) -> str:
    return f"0x{value.hex()}" if isinstance(value, bytes) else str(value)
