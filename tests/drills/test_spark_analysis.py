"""Spark analysis through a real agent: confirmed, cached, disagreed with, and unavailable without harm.

An unreviewed statement runs nothing, whichever way it reaches the agent.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tiny_project import DDL, DML, Tiny, tiny_that_runs, until

from core.model.errors import HeadgateError
from core.model.names import TableName
from core.plan.codec import request_as_json
from core.plan.request import PlanRequest
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
        yield found


def answered(tiny: Tiny, *words: str) -> dict[str, Any]:
    """Plan until Spark has answered for every new or changed statement; on a busy machine, this needs several attempts.

    If several plans have the same hash, `headgate review` shows the first one, whatever Spark has answered since.
    """
    plans: list[dict[str, Any]] = []

    def is_answered() -> bool:
        plans.append(tiny.plan(*words))
        asked = [node for node in plans[-1]["nodes"] if node["table"] in DML and node["action"] != "keep"]
        return all(node["confirmed_by_spark"] is not None for node in asked)

    until(is_answered, 180, "Spark has answered")
    return plans[-1]


def node(plan: dict[str, Any], table: str) -> dict[str, Any]:
    return next(node for node in plan["nodes"] if node["table"] == table)


def test_new_statements_are_confirmed_before_their_tables_exist(tiny: Tiny) -> None:
    plan = answered(tiny, "--all")
    assert {n["table"]: n["confirmed_by_spark"] for n in plan["nodes"]} == {
        "landed": None,
        "kept": True,
        "marked": True,
    }
    assert tiny.apply(plan).returncode == 0


def test_same_meaning_is_confirmed_by_spark(tiny: Tiny) -> None:
    tiny.write(marked="INSERT INTO marked\nselect k.id, upper(k.kind) as kind -- aloud\nfrom stream kept as k;")
    marked = node(answered(tiny, "marked"), "marked")
    assert (marked["row"], marked["confirmed_by_spark"]) == ("1", True)
    assert "confirmed" in [seen["kind"] for seen in marked["evidence"]]


def test_a_disagreement_with_spark_is_shown_and_makes_the_verdict_unknown(tiny: Tiny) -> None:
    tiny.write(marked="INSERT INTO marked SELECT id, upper(kind, kind) AS kind FROM STREAM kept;")
    plan = answered(tiny, "marked")
    marked = node(plan, "marked")
    assert (marked["row"], marked["action"], marked["classified"]) == ("6a", "rebuild", False)
    assert marked["confirmed_by_spark"] is False
    assert marked["evidence"][0]["sentence"].startswith(
        "Spark disagrees: it rejects the statement at line 1 of its SQL (WRONG_NUM_ARGS.WITHOUT_SUGGESTION): "
    )
    shown = " ".join(tiny.done("plan", "marked").split())
    assert "Spark disagrees" in shown and "so it is treated as the most severe change: marked" in shown


def test_without_an_agent_only_cached_answers_are_confirmed(tiny: Tiny) -> None:
    tiny.done("down", "--keep-pool")
    try:
        assert node(tiny.plan("marked"), "marked")["confirmed_by_spark"] is False
        tiny.write(marked=DML["marked"].replace("upper", "lower"))
        found = tiny.run("plan", "marked", "--json")
        marked = node(json.loads(found.stdout), "marked")
        assert (found.returncode, marked["classified"], marked["confirmed_by_spark"]) == (0, True, None)
        assert "SPARK       not confirmed by Spark: marked" in tiny.done("plan", "marked")
    finally:
        tiny.done("up")


@pytest.fixture(scope="module")
def unreviewed(tiny: Tiny) -> Tiny:
    tiny.write(kept=EVIL)
    return tiny


@pytest.fixture
def agent(unreviewed: Tiny) -> AgentClient:
    return AgentClient(json.loads(unreviewed.done("doctor", "--paths", "--json"))["socket"], ledger=SCHEMA_VERSION)


def made(tiny: Tiny) -> list[Path]:
    return list((tiny.home() / "pool/tmp").glob("headgate_reviewed*"))


def test_plan_and_diff_refuse_it_with_file_line_and_remedy(unreviewed: Tiny, tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    for folder, text in ((old, DML["kept"]), (new, EVIL)):
        folder.mkdir()
        (folder / "dml.kept.sql").write_text(text)
        (folder / "ddl.kept.sql").write_text(DDL["kept"])
    files = (str(old / "dml.kept.sql"), str(new / "dml.kept.sql"))
    for words in (("plan", "kept"), ("plan", "--all"), ("diff", *files), ("diff", *files, "--spark")):
        found = unreviewed.run(*words)
        assert found.returncode != 0 and SAID in found.stdout + found.stderr, (words, found)
        assert "dml.kept.sql:3" in found.stdout + found.stderr, (words, found)
    assert made(unreviewed) == []


def test_submitting_the_texts_is_refused(unreviewed: Tiny, agent: AgentClient) -> None:
    texts = {str(path.relative_to(unreviewed.folder)): path.read_text() for path in unreviewed.folder.rglob("*.sql")}
    texts["headgate.yml"] = (unreviewed.folder / "headgate.yml").read_text()
    request = request_as_json(PlanRequest(tables=(TableName("kept"),)))
    args = {
        "texts": texts,
        "environment": "dev",
        "request": request,
        "hash": "0" * 64,
        "folder": str(unreviewed.folder),
    }
    with pytest.raises(HeadgateError, match="this plan needs files of kept that have 1 problem"):
        agent.call("submit_plan", args)
    assert made(unreviewed) == []


def test_a_direct_request_over_the_socket_never_reaches_spark_and_is_audited(
    unreviewed: Tiny, agent: AgentClient
) -> None:
    select = EVIL.removeprefix("INSERT INTO kept\n").rstrip(";")
    question = {"new": {"select": select, "tables": {"landed": DDL["landed"]}}, "old": None}
    with LedgerReader(unreviewed.home() / "ledger.db") as reader:
        before = max((entry.id for entry in reader.audits(1)), default=0)
    assert agent.call("opinion", {"questions": [question]}) == {
        "answers": [None],
        "unanswered": f"Spark was not asked: {SAID}",
    }
    assert made(unreviewed) == []

    def is_audited() -> bool:
        with LedgerReader(unreviewed.home() / "ledger.db") as reader:
            later = [entry for entry in reader.audits() if entry.id > before]
        return ("opinion", "1 statement", "done") in [(each.action, each.subject, each.outcome) for each in later]

    # If recording takes longer than half a second, no answer waits for it, and entries of earlier requests may follow.
    until(is_audited, 60, "the request is audited")
