"""`headgate pool` lists pools and shows one; `ls` and `logs` name them."""

import json
import os
import time
import uuid
from pathlib import Path

import pytest
from ledger_rows import deployment_row

from core.model.errors import AgentUnreachable
from core.observed.cluster_manager import ManagerWord
from core.observed.spark_work import Executor, WorkOfPool
from core.project.model import Pool
from core.project.resources import Amounts
from core.project.revision import RevisionTexts
from state.ledger import Ledger
from tui.agent_client import os_processes
from tui.agent_client.agent_commands import AgentCommands
from tui.command_line.exit_codes import run_command_line
from tui.project_folder.environment_selection import SelectedEnvironment

POOLS = [("small", Pool("small", capacity=Amounts(4))), ("large", Pool("large", "sc://big:15002/;x=1"))]


@pytest.fixture
def two(ledger: Ledger) -> Ledger:
    ledger.declare_pools(POOLS)
    ledger.put_pool("small", state="up", session_id="s1", generation=2)
    ledger.put_pool("large", state="silent", detail="no answer within 5 s")
    ledger.put_deployment(deployment_row("a", pool=POOLS[0][1]))
    ledger.put_deployment(deployment_row("b", pool=POOLS[1][1], state="failed"))
    return ledger


def printed(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert run_command_line(words) == 0
    return capsys.readouterr().out


def test_the_list_counts_what_runs_where(two: Ledger, capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(printed(["pool", "list", "--json"], capsys))
    found = document["pools"]
    assert "age_s" in document
    shown = [(pool["name"], pool["state"], pool["kind"], pool["address"]) for pool in found]
    assert shown == [("small", "up", "local", "local"), ("large", "silent", "remote", "sc://big:15002")]
    assert found[0]["statements"] == {"wanted": 1, "running": 1, "failed": 0, "most": 4}
    assert found[1]["statements"] == {"wanted": 1, "running": 0, "failed": 1, "most": None}
    assert run_command_line(["pool", "list"]) == 0
    assert "pool large silent: no answer within 5 s" in capsys.readouterr().err


def test_the_list_says_who_says_what_about_a_pool_that_does_not_answer(
    two: Ledger, capsys: pytest.CaptureFixture[str]
) -> None:
    two.put_pool("large", silent_since=1795900202.0)
    since = "pool large: the agent cannot use it since 2026-11-28 21:10:02 UTC"
    assert run_command_line(["pool", "list"]) == 0
    assert f"{since}, and no manager of its cluster is declared" in " ".join(capsys.readouterr().err.split())
    word = ManagerWord.RUNS.of(manager="the master spark://m:7077", application="app-1", state="RUNNING", kill="k")
    two.put_pool("large", application="app-1", manager_says=json.dumps(word.as_json()))
    assert run_command_line(["pool", "list"]) == 0
    says = "the master spark://m:7077 says that its application app-1 is RUNNING"
    assert f"{since}; {says}" in " ".join(capsys.readouterr().err.split())
    assert f"2026-11-28 21:10:02 UTC; {says}" in printed(["pool", "show", "large"], capsys)
    found = json.loads(printed(["pool", "show", "large", "--json"], capsys))
    assert (found["application"], found["lost"]["kind"], found["lost"]["word"]["kind"]) == (
        "app-1", "reported", "runs"
    )  # fmt: skip


def test_the_list_shows_what_is_used_of_each_capacity(ledger: Ledger, capsys: pytest.CaptureFixture[str]) -> None:
    small, large = Pool("small", capacity=Amounts(4, 1.5, 8192)), Pool("large", "sc://big:15002")
    ledger.declare_pools([("small", small), ("large", large)])
    texts = RevisionTexts(ddl="d", dml="q", yml="resources: {cores: 1}\n")
    ledger.put_deployment(deployment_row("a", pool=small, texts=texts, revision="r1"))
    ledger.put_deployment(deployment_row("b", pool=small, state="stopped", wanted="stopped"))
    text = printed(["pool", "list"], capsys)
    head, first, second = (line.split() for line in text.splitlines())
    assert head[6:9] == ["USED", "CORES", "MEMORY"] and first[6:9] == ["1/4", "1/1.5", "256m/8g"]
    assert second[-2:] == ["0", "sc://big:15002"]
    assert "capacity    1 of 1.5 cores  256m of 8g of memory  what statements need" in printed(
        ["pool", "show", "small"], capsys
    )
    found = json.loads(printed(["pool", "list", "--json"], capsys))["pools"]
    assert found[0]["capacity"]["cores"] == {"used": 1.0, "most": 1.5} and found[1]["capacity"] == {}


def test_an_edited_capacity_counts_at_once_as_in_plans(
    two: Ledger, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pools = "{small: {capacity: {statements: 9, cores: 3}}, large: {url: 'sc://big:15002/;x=1'}}"
    path = folder / "headgate.yml"
    path.write_text(path.read_text().replace("    data: data", f"    data: data\n    pools: {pools}", 1))
    found = json.loads(printed(["pool", "list", "--json"], capsys))["pools"]
    assert found[0]["statements"]["most"] == 9
    assert {name: each["most"] for name, each in found[0]["capacity"].items()} == {"statements": 9, "cores": 3}
    shown = printed(["pool", "show", "small"], capsys)
    assert "0.5 of 3 cores" in shown and "1 wanted running of at most 9" in shown
    path.write_text(path.read_text().replace("statements: 9", "statements: none"))
    assert json.loads(printed(["pool", "list", "--json"], capsys))["pools"][0]["statements"]["most"] == 4


def test_the_list_says_that_its_figures_are_old(two: Ledger, capsys: pytest.CaptureFixture[str]) -> None:
    two.put_agent(os.getpid(), time.time() - 3600)
    two.heartbeat(time.time() - 3600)
    said = {}
    for command in (["ls"], ["pool", "list"]):
        assert run_command_line(command) == 0
        said[command[0]] = " ".join(capsys.readouterr().err.split())
    assert "STALE: last update 1h ago, no agent is writing" in said["pool"]
    assert said["pool"].startswith(said["ls"])


def test_an_agent_that_runs_but_is_late_is_not_said_to_be_none(
    two: Ledger, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tui.services.environment_service.EnvironmentService.has_agent", lambda self: True)
    two.put_agent(os.getpid(), time.time() - 3600)
    two.heartbeat(time.time() - 3600)
    assert run_command_line(["pool", "list"]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "STALE: last update 1h ago, the agent is late" in said and "headgate up" not in said


def test_a_pool_is_shown_with_its_statements(two: Ledger, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(["pool", "show", "large"], capsys)
    assert "silent  no answer within 5 s" in text and "b@v1" in text and "a@v1" not in text
    assert "1 wanted running of at most 4" in printed(["pool", "show", "small"], capsys)
    assert run_command_line(["pool", "show", "larg"]) == 2
    assert "did you mean large?" in capsys.readouterr().err


def test_a_pool_that_an_agent_keeps_is_shown_with_what_it_really_does(
    two: Ledger, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    work = WorkOfPool((Executor("driver", "h", 2, 1, 60_000, 6_000, 800_000_000),))
    monkeypatch.setattr(AgentCommands, "pool_work", lambda self, pool: work)
    text = printed(["pool", "show", "small"], capsys)
    assert "the agent, whose last heartbeat is old: it has ended, or is very late" in text and "its server" not in text
    two.put_agent(os.getpid(), time.time())
    two.heartbeat(time.time())
    text = printed(["pool", "show", "small"], capsys)
    assert "says        the agent, whose calls it answers" in text
    assert "its server  1 of 2 cores busy  up for 1m  10.0% of it garbage collection" in text
    assert json.loads(printed(["pool", "show", "small", "--json"], capsys))["work"] == json.loads(
        json.dumps(work.as_json())
    )

    def lost(self: AgentCommands, pool: str) -> WorkOfPool:
        raise AgentUnreachable("the agent does not answer")

    monkeypatch.setattr(AgentCommands, "pool_work", lost)
    assert "not known: the agent does not answer" in printed(["pool", "show", "small"], capsys)


def test_a_server_that_headgate_started_is_shown_with_its_process_and_log(
    two: Ledger, place: SelectedEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    paths, mine = place.where.of_pool("small"), os_processes.identify(os.getpid())
    assert mine is not None
    Path(paths.record).parent.mkdir(parents=True)
    Path(paths.record).write_text(json.dumps({"marker": "m", "pid": mine.pid, "started": mine.started}))
    assert f"process     {mine.pid}\n  log         {paths.log}\n" in printed(["pool", "show", "small"], capsys)
    found = json.loads(printed(["pool", "show", "small", "--json"], capsys))
    assert (found["pid"], found["log"]) == (mine.pid, paths.log)
    Path(paths.record).unlink()
    assert f"process     none\n  log         {paths.log}\n" in printed(["pool", "show", "small"], capsys)
    found = json.loads(printed(["pool", "show", "large", "--json"], capsys))
    assert (found["pid"], found["log"]) == (None, None), "its server is not Headgate's"
    assert "process " not in printed(["pool", "show", "large"], capsys)


def test_no_line_is_wider_than_a_terminal(
    two: Ledger, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    far = Pool("small", master="spark://a-very-long-name-of-a-host.example.com:7077")
    two.declare_pools([("small", far), POOLS[1]])
    two.put_pool("small", state="up", session_id=str(uuid.uuid4()), generation=2, began_at=time.time())
    two.put_deployment(deployment_row("a_table_with_a_long_name" * 2, pool=far))
    monkeypatch.setattr("tui.commands.pool.stdout_width", lambda: 80)
    for words in (["pool", "list"], ["pool", "show", "small"]):
        text = printed(words, capsys)
        assert max(map(len, text.splitlines())) <= 80
    assert "  session 2 of this pool\n             since " in text, "a part of a fact stays in one piece"


def test_ls_shows_and_filters_the_pool_of_several(two: Ledger, capsys: pytest.CaptureFixture[str]) -> None:
    rows = json.loads(printed(["ls", "--json"], capsys))["statements"]
    assert {row["table"]: row["pool"] for row in rows if row["table"] in ("a", "b")} == {"a": "small", "b": "large"}
    only = json.loads(printed(["ls", "--pool", "large", "--json"], capsys))["statements"]
    assert [row["table"] for row in only] == ["b"]
    assert run_command_line(["ls", "--pool", "huge"]) == 2


def test_ls_says_who_does_not_know_whether_a_statement_runs_in_lines_of_80_columns(
    two: Ledger, capsys: pytest.CaptureFixture[str]
) -> None:
    why = "the master spark://h:7077 cannot be reached, and no batch has ended since: nobody says whether executors are"
    for name in ("b", "c", "d", "e"):
        row = deployment_row(name, pool=POOLS[1][1], state="unknown", state_since=1_700_000_000.0, error=f"{why} left")
        two.put_deployment(row)
    two.put_pool(
        "large", state="degraded", detail="the master spark://h:7077 cannot be reached: executors that are left"
    )
    assert run_command_line(["ls"]) == 0
    said = capsys.readouterr().err
    assert max(map(len, said.splitlines())) <= 80
    words = " ".join(said.split())
    assert "pool large degraded: the master spark://h:7077 cannot be reached" in words
    assert f": b, c, d and 1 more; {why} left" in words and "unknown since " in words


@pytest.mark.parametrize("kind", ["standalone", "yarn", "kubernetes"])
def test_a_recipe_needs_no_agent_and_has_the_settings_of_the_named_pool(
    kind: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head = (folder / "headgate.yml").read_text()
    pools = "pools: {one: {}, two: {conf: {spark.hadoop.x.token: '${env:X}', spark.y: z}}}"
    delta = "connectors: {delta: {jars: [jars]}}\n"
    (folder / "headgate.yml").write_text(head.replace("  dev:\n", f"  dev:\n    {pools}\n") + delta)
    assert run_command_line(["pool", "recipe", kind, "--pool", "two", "--name", "far"]) == 0
    said = capsys.readouterr()
    assert "# ---- headgate.yml, below environments: dev:" in said.out
    assert "in place of its pool:" in said.out and "# ---- save as " in said.out
    if kind != "standalone":
        assert f"{folder}/jars/*.jar" in said.out
        assert "spark.y=z" in said.out and "spark.hadoop.x.token=${env.X}" in said.out
    found = json.loads(printed(["pool", "recipe", kind, "--json"], capsys))
    assert found["entry"].startswith(f"pools:\n  {kind}:\n") and len(found["files"]) == (
        2 if kind == "kubernetes" else 1
    )
    assert run_command_line(["pool", "recipe", "yarrn"]) == 2 and "did you mean yarn?" in capsys.readouterr().err
    assert run_command_line(["pool", "recipe", kind, "--pool", "tow"]) == 2


def test_the_log_of_a_pool_is_named(two: Ledger, capsys: pytest.CaptureFixture[str]) -> None:
    log = Path(two.path).parent / "pools/large/pool.log"
    log.parent.mkdir(parents=True)
    log.write_text("of the large one\n")
    assert printed(["logs", "pool", "large"], capsys) == "of the large one\n"
    assert run_command_line(["logs", "agent", "large"]) == 2
