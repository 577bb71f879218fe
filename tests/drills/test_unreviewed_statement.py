"""An unreviewed statement runs nothing, whichever way it reaches a real agent and pool."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny_project import DDL, DML, Tiny, tiny_that_runs

from core.model.errors import HeadgateError
from state.ledger import LedgerReader
from state.migrations import SCHEMA_VERSION
from tui.agent_client.socket_client import AgentClient

pytestmark = [pytest.mark.spark, pytest.mark.drill]

CALL = "java_method('java.io.File', 'createTempFile', 'headgate_reviewed', 'x')"
EVIL = f"INSERT INTO kept\nSELECT id, b.kind FROM STREAM landed\nJOIN (SELECT {CALL} AS kind FROM VALUES (1)) AS b;"
SAID = "java_method calls a Java method, which no statement may do"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiny]:
    with tiny_that_runs(tmp_path_factory.mktemp("headgate"), landed=5) as found:
        assert found.apply(found.plan("--all")).returncode == 0
        found.write(kept=EVIL)
        yield found


@pytest.fixture
def agent(tiny: Tiny) -> AgentClient:
    return AgentClient(json.loads(tiny.done("doctor", "--paths", "--json"))["socket"], ledger=SCHEMA_VERSION)


def made(tiny: Tiny) -> list[Path]:
    return list((tiny.home() / "pool/tmp").glob("headgate_reviewed*"))


def test_plan_and_diff_refuse_it_with_file_line_and_remedy(tiny: Tiny, tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    for folder, text in ((old, DML["kept"]), (new, EVIL)):
        folder.mkdir()
        (folder / "dml.kept.sql").write_text(text)
        (folder / "ddl.kept.sql").write_text(DDL["kept"])
    files = (str(old / "dml.kept.sql"), str(new / "dml.kept.sql"))
    for words in (("plan", "kept"), ("plan", "--all"), ("diff", *files), ("diff", *files, "--spark")):
        found = tiny.run(*words)
        assert found.returncode != 0 and SAID in found.stdout + found.stderr, (words, found)
        assert "dml.kept.sql:3" in found.stdout + found.stderr, (words, found)
    assert made(tiny) == []


def test_submitting_the_texts_is_refused(tiny: Tiny, agent: AgentClient) -> None:
    texts = {str(path.relative_to(tiny.folder)): path.read_text() for path in tiny.folder.rglob("*.sql")}
    texts["headgate.yml"] = (tiny.folder / "headgate.yml").read_text()
    request = {"tables": ["kept"]}
    args = {"texts": texts, "environment": "dev", "request": request, "hash": "0" * 64, "folder": str(tiny.folder)}
    with pytest.raises(HeadgateError, match="java_method calls a Java method"):
        agent.call("submit_plan", args)
    assert made(tiny) == []


def test_a_direct_request_over_the_socket_never_reaches_spark_and_is_audited(tiny: Tiny, agent: AgentClient) -> None:
    select = EVIL.removeprefix("INSERT INTO kept\n").rstrip(";")
    question = {"new": {"select": select, "tables": {"landed": DDL["landed"]}}, "old": None}
    assert agent.call("opinion", {"questions": [question]}) == {
        "answers": [None],
        "unanswered": f"Spark was not asked: {SAID}",
    }
    assert made(tiny) == []
    with LedgerReader(tiny.home() / "ledger.db") as reader:
        (last,) = reader.audits(1)
    assert (last.action, last.subject, last.outcome) == ("opinion", "1 statement", "done")
