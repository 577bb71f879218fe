"""The client of a schema registry: which schemas it returns, and its error messages when it cannot.

No registry is installed here. An HTTP server plays its endpoints, with responses as documented in the API reference of
Confluent's Schema Registry.
"""

import base64
import json
import socket
import struct
from pathlib import Path
from typing import Any

import pytest
from kafka_broker import free_port
from pytest_httpserver import HTTPServer
from schema_registry_server import PlayedRegistry

from core.model.errors import Refused, TryAgain
from core.sql.avro_schemas import RegisteredSchema
from core.sql.ddl_reader import read_ddl
from core.sql.statement import TableDdl
from pipelines.storage import schema_registry
from pipelines.storage.schema_registry import (
    AvroText,
    SubjectMissing,
    fault_of_schemas,
    note_unknown_schema,
    registered_schemas,
    unprotected_subjects,
)


def record(*fields: tuple[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "T", "fields": [{"name": name, "type": kind} for name, kind in fields]}


ID, WITH_TOTAL = record(("id", "int")), record(("id", "int"), ("total", "string"))


@pytest.fixture
def registry(httpserver: HTTPServer) -> PlayedRegistry:
    return PlayedRegistry(httpserver)


def table(registry: PlayedRegistry, columns: str = "id INT", more: str = "") -> TableDdl:
    options = f"'kafka.bootstrap.servers'='a:9092', subscribe='t', 'value.format'='avro' {more}"
    text = f"CREATE TABLE k ({columns}) USING kafka OPTIONS ({options}, 'schema.registry'='{registry.url}')"
    ddl, problems = read_ddl(text, "ddl.k.sql")
    assert ddl is not None, problems
    return ddl


def ids(ddl: TableDdl, home: Path, part: str = "value") -> list[tuple[int, bool]]:
    """Return the ids of a part's schemas, and whether each has a schema."""
    return [(each.id, bool(each.text)) for each in registered_schemas(ddl, str(home))[part]]


def test_versions_of_all_subjects_are_read_in_order_and_each_only_once(
    registry: PlayedRegistry, tmp_path: Path
) -> None:
    registry.add("t-value", ID, id=4)
    registry.add("t-value", WITH_TOTAL, id=7)
    registry.add("t-key", "long", id=5)
    ddl = table(registry, "id INT, _key BIGINT", ", 'key.format'='avro'")
    assert (ids(ddl, tmp_path), ids(ddl, tmp_path, "key")) == ([(4, True), (7, True)], [(5, True)])
    registry.requests.clear()
    registry.delete("t-value", 1)
    assert ids(ddl, tmp_path) == [(4, True), (7, True)]
    assert registry.requests == ["/subjects/t-value/versions", "/subjects/t-key/versions"]
    other = table(registry, more=", 'schema.subject'='t-key, t-value'")
    assert ids(other, tmp_path) == [(5, True), (4, True), (7, True)]


def test_copies_serve_while_the_registry_is_down_unless_a_message_has_another_schema(
    registry: PlayedRegistry, tmp_path: Path
) -> None:
    registry.add("t-value", ID, id=4)
    ddl = table(registry)
    assert ids(ddl, tmp_path) == [(4, True)]
    registry.fails_with(503)
    assert ids(ddl, tmp_path) == [(4, True)]
    note_unknown_schema(ddl, str(tmp_path), 9)
    with pytest.raises(TryAgain, match="answers with status 503"):
        registered_schemas(ddl, str(tmp_path))
    registry.fails_with(None)
    assert ids(ddl, tmp_path) == [(4, True), (9, False)]
    registry.add("t-value", WITH_TOTAL, id=9)
    registry.fails_with(503)
    assert ids(ddl, tmp_path) == [(4, True), (9, False)], "the registry has said that 9 is none"
    registry.fails_with(None)
    assert ids(ddl, tmp_path) == [(4, True), (9, True)]


def test_a_subject_that_was_created_again_keeps_the_schemas_of_its_older_messages(
    registry: PlayedRegistry, tmp_path: Path
) -> None:
    registry.add("t-value", ID, id=4)
    ddl = table(registry)
    assert ids(ddl, tmp_path) == [(4, True)]
    registry.forget("t-value")
    assert ids(ddl, tmp_path) == [(4, True)]
    registry.add("t-value", WITH_TOTAL, id=8)
    note_unknown_schema(ddl, str(tmp_path), 8)
    assert ids(ddl, tmp_path) == [(4, True), (8, True)]


def test_damaged_copies_are_read_again(registry: PlayedRegistry, tmp_path: Path) -> None:
    registry.add("t-value", ID, id=4)
    assert ids(table(registry), tmp_path) == [(4, True)]
    (copy,) = (tmp_path / "schemas").iterdir()
    copy.write_text("{")
    assert ids(table(registry), tmp_path) == [(4, True)]
    assert json.loads(copy.read_text())["schemas"][0]["id"] == 4


def test_what_cannot_be_asked_is_said_with_its_remedy(registry: PlayedRegistry, tmp_path: Path) -> None:
    ddl = table(registry)
    with pytest.raises(SubjectMissing, match=f"{registry.url} has no subject t-value"):
        registered_schemas(ddl, str(tmp_path))
    registry.fails_with(500)
    with pytest.raises(TryAgain, match="status 500"):
        registered_schemas(ddl, str(tmp_path))
    registry.answers_with("<html>It works</html>")
    with pytest.raises(Refused, match="does not answer as a schema registry does"):
        registered_schemas(ddl, str(tmp_path))
    registry.answers_with('{"versions": 1}')
    with pytest.raises(Refused, match="does not answer as a schema registry does"):
        registered_schemas(ddl, str(tmp_path))
    registry.url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(TryAgain, match="does not answer: Connection refused"):
        registered_schemas(table(registry), str(tmp_path))


def test_a_registry_that_is_silent_is_not_asked_again_at_once(
    registry: PlayedRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema_registry, "ANSWER_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        registry.url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        for said in ("does not answer: timed out", "did not answer a moment ago"):
            with pytest.raises(TryAgain, match=said):
                registered_schemas(table(registry), str(tmp_path))


def test_the_password_is_what_its_reference_leads_to_and_a_wrong_one_is_refused(
    registry: PlayedRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.add("t-value", ID, id=4)
    registry.login = "Basic " + base64.b64encode(b'headgate:a "secret"').decode()
    user = ", 'schema.registry.username'='headgate', 'schema.registry.password'='${env:REGISTRY_PASSWORD}'"
    with pytest.raises(Refused, match="REGISTRY_PASSWORD, which OPTIONS refer to, is not set"):
        registered_schemas(table(registry, more=user), str(tmp_path))
    monkeypatch.setenv("REGISTRY_PASSWORD", "another")
    with pytest.raises(Refused, match=r"refuses the credentials \(status 401\)") as refused:
        registered_schemas(table(registry, more=user), str(tmp_path))
    assert "another" not in str(refused.value)
    monkeypatch.setenv("REGISTRY_PASSWORD", 'a "secret"')
    assert ids(table(registry, more=user), tmp_path) == [(4, True)]
    assert "secret" not in "".join(path.read_text() for path in (tmp_path / "schemas").iterdir())


def test_all_differences_from_the_newest_version_are_listed_at_once(registry: PlayedRegistry) -> None:
    registry.add("t-value", ID, id=4)
    registry.add("t-value", WITH_TOTAL, id=7)
    ddl = table(registry, "id BIGINT, total DECIMAL(8,2), note STRING")
    fault = fault_of_schemas(ddl)
    assert fault is not None
    assert fault.why == (
        "k cannot be read as declared: schema 7 (version 2 of t-value) has total as string, not DECIMAL(8,2); has no "
        "field note, nor a default for it"
    )
    assert fault_of_schemas(table(registry, "id INT, total STRING")) is None
    registry.delete("t-value", 2)
    assert fault_of_schemas(table(registry)) is None, "a version that was deleted is not the newest"


def test_subjects_that_do_not_protect_their_readers_are_named_with_their_mode(registry: PlayedRegistry) -> None:
    registry.add("t-value", ID, id=4)
    assert unprotected_subjects(table(registry)) == {"t-value": "BACKWARD"}
    registry.modes["t-value"] = "FULL_TRANSITIVE"
    assert unprotected_subjects(table(registry)) == {}


def test_messages_are_shown_as_json_if_their_schema_is_known(registry: PlayedRegistry, tmp_path: Path) -> None:
    money = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}
    registry.add("t-value", record(("id", "int"), ("total", money), ("raw", "bytes")), id=4)
    registry.add("t-key", "string", id=5)
    shown = AvroText(table(registry, "id INT, _key STRING", ", 'key.format'='avro'"), str(tmp_path))
    value = struct.pack(">bI", 0, 4) + b"\x06\x04\x04\xe2\x02\xff"
    assert shown.decoded("value", value) == '{"id": 3, "total": "12.50", "raw": "0xff"}'
    assert shown.decoded("key", struct.pack(">bI", 0, 5) + b"\x02a") == '"a"'
    for wrong in (value[:7], struct.pack(">bI", 0, 6) + b"\x06", b"{}", b""):
        assert shown.decoded("value", wrong) is None


def test_a_schema_in_the_options_needs_no_registry(tmp_path: Path) -> None:
    options = (
        f"'kafka.bootstrap.servers'='a:9092', subscribe='t', 'value.format'='avro', 'avro.schema'='{json.dumps(ID)}'"
    )
    ddl, _ = read_ddl(f"CREATE TABLE k (id INT) USING kafka OPTIONS ({options})", "ddl.k.sql")
    assert ddl is not None
    assert (registered_schemas(ddl, str(tmp_path)), fault_of_schemas(ddl)) == ({}, None)
    assert AvroText(ddl, str(tmp_path)).decoded("value", b"\x06") == '{"id": 3}'
    assert RegisteredSchema(4, "{}", "t-value", 2).version == 2
