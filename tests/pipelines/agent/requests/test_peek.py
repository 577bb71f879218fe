"""Answers to a request for a table's rows when there are none to show."""

import datetime
import json
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from agent_scenarios import fast_lane
from ledger_rows import deployment_row, external_row
from pyspark.sql import Row

from core.model.errors import EngineRefused, Refused, UsageError
from core.ports.storage import FolderContents
from core.project.revision import RevisionTexts
from pipelines.agent.requests.command_handler import CommandHandler
from pipelines.agent.requests.socket_server import Caller
from pipelines.agent.tables import external_inputs

HERE = Caller(1, 0, None)


@pytest.fixture
def commands(agent: Any) -> CommandHandler:
    unused: Any = None
    return CommandHandler(agent, fast_lane(agent), unused, unused, unused)


def reads(agent: Any, monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    """Make the pool return a value for each read, or raise it if it is an error."""

    def read(self: object, sql: str, limit: int) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(type(agent.pools.default.connection().tables), "read", read)


@pytest.mark.parametrize("format", ["delta", "parquet"])
@pytest.mark.parametrize("there", [False, True], ids=["no folder", "a folder without a log"])
def test_a_table_without_its_folder_is_reported_as_gone(
    format: str, there: bool, agent: Any, commands: CommandHandler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "t__v1"
    if there:
        folder.mkdir()
    agent.ledger.put_deployment(deployment_row("t", format=format, folder=str(folder)))
    refused = EngineRefused(f"file:{folder} doesn't exist", error_class="DELTA_PATH_DOES_NOT_EXIST")
    reads(agent, monkeypatch, refused if format == "delta" else (("id",), ()))
    with pytest.raises(Refused) as found:
        commands.handle(HERE, {"op": "peek", "args": {"table": "t"}})
    where = f"{folder} has no log" if there else f"there is no folder {folder}"
    assert found.value.summary == f"the table of t@v1 is gone: {where}"
    assert found.value.remedy == "headgate plan t --rebuild, or restore its folder from a backup"


def test_a_refusal_by_spark_over_an_existing_table_is_reported_unchanged(
    agent: Any, commands: CommandHandler, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent.ledger.put_deployment(deployment_row("t"))
    agent.files.held = FolderContents(1, 1, 1, True, 0.0)
    reads(agent, monkeypatch, EngineRefused("no"))
    with pytest.raises(EngineRefused, match=r"\Ano\Z"):
        commands.handle(HERE, {"op": "peek", "args": {"table": "t"}})


def test_an_existing_table_may_be_empty(agent: Any, commands: CommandHandler, monkeypatch: pytest.MonkeyPatch) -> None:
    agent.ledger.put_deployment(deployment_row("t"))
    agent.files.held = FolderContents(0, 0, 0, True, None)
    reads(agent, monkeypatch, (("id",), ()))
    assert commands.handle(HERE, {"op": "peek", "args": {"table": "t"}})["rows"] == []


def test_values_are_json_and_not_python(agent: Any, commands: CommandHandler, monkeypatch: pytest.MonkeyPatch) -> None:
    agent.ledger.put_deployment(deployment_row("t"))
    agent.files.held = FolderContents(1, 1, 1, True, 0.0)
    pizzas = [Row(pizza="Diavola", price=Decimal("9.75")), None]
    day, at = datetime.date(2026, 2, 28), datetime.datetime(2026, 2, 28, 9, 30, 0, 5000)
    reads(
        agent,
        monkeypatch,
        (("p", "m", "b", "d", "t", "n"), ((pizzas, {1: at}, bytearray(b"\x00a"), day, at, math.nan),)),
    )
    (row,) = commands.handle(HERE, {"op": "peek", "args": {"table": "t"}})["rows"]
    nested = [{"pizza": "Diavola", "price": "9.75"}, None]
    assert row == [nested, {"1": str(at)}, "0x0061", "2026-02-28", "2026-02-28 09:30:00.005000", "nan"]
    assert json.loads(json.dumps(row)) == row


def test_the_time_of_a_message_is_a_time(agent: Any, commands: CommandHandler, monkeypatch: pytest.MonkeyPatch) -> None:
    ddl = "CREATE TABLE t (id INT) USING kafka OPTIONS (kafka.bootstrap.servers 'h:1', subscribe 'u');"
    agent.ledger.put_deployment(external_row("t", texts=RevisionTexts(ddl, "", ""), format="kafka"))
    rows = [("u", 0, 7, 1_795_781_532_510, "k", {"a": "b"}, "{}"), ("u", 0, 6, -1, None, {}, None)]
    monkeypatch.setattr(external_inputs, "newest_messages", lambda *given, **more: rows)
    found = commands.handle(HERE, {"op": "peek", "args": {"table": "t"}})["rows"]
    assert found == [["u", 0, 7, "2026-11-27 12:12:12.510", "k", {"a": "b"}, "{}"], ["u", 0, 6, None, None, {}, None]]


def test_a_missing_version_is_reported_in_our_words_not_sparks(
    agent: Any, commands: CommandHandler, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent.ledger.put_deployment(deployment_row("t"))
    reads(agent, monkeypatch, EngineRefused("The table or view `t__v9` cannot be found."))
    with pytest.raises(UsageError) as found:
        commands.handle(HERE, {"op": "peek", "args": {"table": "t", "version": 9}})
    assert (found.value.summary, found.value.remedy) == (
        "t has no version 9",
        "headgate show t lists the versions it has",
    )


JDBC = "CREATE TABLE t (id INT, secret STRING) USING jdbc OPTIONS (url 'jdbc:postgresql://h/d', dbtable 'u');"


@pytest.mark.parametrize(
    ("yml", "columns"),
    [("", ["id", "secret"]), ("payload: hidden\nkey: [ID]\n", ["id"]), ("payload: hidden\n", None)],
)
def test_of_a_table_in_a_database_only_the_key_is_read_if_its_yml_hides_the_rest(
    yml: str, columns: list[str] | None, agent: Any, commands: CommandHandler, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rows(ddl: Any, limit: int) -> list[tuple[str, ...]]:
        return [tuple(column.name for column in ddl.columns)]

    monkeypatch.setattr(external_inputs, "rows_in_database", rows)
    agent.ledger.put_deployment(external_row("t", texts=RevisionTexts(JDBC, "", yml), format="jdbc"))
    if columns is None:
        with pytest.raises(Refused, match="the yml of t hides its values"):
            commands.handle(HERE, {"op": "peek", "args": {"table": "t"}})
        return
    found = commands.handle(HERE, {"op": "peek", "args": {"table": "t"}})
    assert (found["columns"], found["rows"]) == (columns, [columns])
