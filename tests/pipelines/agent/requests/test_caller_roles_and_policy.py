"""The recorded policy and the roles against a real ledger: who may do what, and what changes a policy."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import small_project
from agent_scenarios import in_a_thread
from ledger_rows import policy_row

from core.model.errors import ConfirmationNeeded, InvalidProject, Refused, Stale, UsageError
from core.policy.roles_and_rules import Policy
from core.project_reader.manifest import declared_policy
from pipelines.agent.context import AgentContext
from pipelines.agent.measurements.table_statistics_collector import TableStatisticsCollector
from pipelines.agent.requests import socket_server
from pipelines.agent.requests.caller_roles_and_policy import REQUIRED_ROLES, record_first
from pipelines.agent.requests.command_handler import CommandHandler
from pipelines.agent.requests.command_log import STORED
from pipelines.agent.requests.socket_server import Caller
from pipelines.agent.runs.run_driver import OpenRuns
from pipelines.agent.statements.statement_control import StatementControl
from pipelines.spark_connect.query_progress import PoolUtilization
from state.emergency_journal import EmergencyJournal
from state.ledger import Ledger, create_or_open
from state.registry import IN_FORCE, WAITING
from state.row_types import PolicyRow

ALICE = Caller(pid=1, uid=70001, login_uid=None)
BOB = Caller(pid=2, uid=70002, login_uid=None)
OWNER = Caller(pid=3, uid=os.getuid(), login_uid=None)

RULES = """\
    policy:
      max_statements: 4
"""
SHUT = "    protected: true\n"
OVERTAKEN_S = 0.3
"""Seconds given to another actor in the middle of an operation; an actor that must wait for its end acts later."""


def texts(rules: str = RULES, **ymls: str) -> dict[str, str]:
    """Return the files of a project with this policy: the head, with an environment besides the default one."""
    head = small_project.HEAD + f"  prod:\n    data: data\n{rules}"
    files = {path: "" if path.endswith(".sql") else text for path, text in small_project.texts().items()}
    files["headgate.yml"] = head
    return files | {f"pipelines/facts/p/{table}/{table}.yml": yml for table, yml in ymls.items()}


def digest(files: dict[str, str]) -> str:
    policy = declared_policy(files, "prod", [])
    assert policy is not None
    return policy.digest


@pytest.fixture
def prod(agent: AgentContext, tmp_path: Path) -> AgentContext:
    """The scripted agent as the environment prod of a project on disk, which has recorded its first policy."""
    for path, text in texts().items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    record_first(agent.ledger, str(tmp_path), "prod", 1.0)
    environment = replace(agent.layout.environment, name="prod")
    project_id = small_project.project(small_project.texts()).id
    return replace(agent, layout=replace(agent.layout, environment=environment), project_id=project_id)


@pytest.fixture
def handler(prod: AgentContext, tmp_path: Path) -> Callable[[], CommandHandler]:
    def begin() -> CommandHandler:
        acts = StatementControl(prod, EmergencyJournal(tmp_path / "e"))
        return CommandHandler(
            prod, acts, OpenRuns(prod), TableStatisticsCollector(prod, PoolUtilization()), lambda **asked: None
        )

    return begin


def record(commands: CommandHandler, caller: Caller, files: dict[str, str], confirm: str = "yes") -> dict[str, Any]:
    args = {"texts": files, "id": digest(files)}
    return commands.handle(caller, {"op": "policy_apply", "args": args, "confirm": confirm})


def approve(commands: CommandHandler, caller: Caller, wanted: str, confirm: str = "") -> dict[str, Any]:
    confirm = confirm or f"prod {wanted[:4]}"
    return commands.handle(caller, {"op": "policy_approve", "args": {"id": wanted}, "confirm": confirm})


def test_the_first_start_records_what_is_declared_and_no_later_one(prod: AgentContext, tmp_path: Path) -> None:
    assert prod.ledger.recorded_policy() == Policy(max_statements=4)
    assert [(a.actor, a.action, a.outcome) for a in prod.ledger.audits()] == [("agent", "policy_apply", "done")]
    (tmp_path / "headgate.yml").write_text(texts(SHUT)["headgate.yml"])
    record_first(prod.ledger, str(tmp_path), "prod", 2.0)
    assert prod.ledger.recorded_policy() == Policy(max_statements=4)


def test_the_first_start_records_protected_tables_and_keeps_what_an_older_agent_protected(
    agent: AgentContext, tmp_path: Path
) -> None:
    for path, text in texts("", a="protect: true\n", b="trigger: soon\n").items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    agent.ledger.put_policy(_row(Policy(protected=True)))
    with agent.ledger._transaction() as connection:
        connection.execute("DELETE FROM policy")
    record_first(agent.ledger, str(tmp_path), "prod", 1.0)
    recorded = agent.ledger.recorded_policy()
    assert recorded is not None and (recorded.protected, recorded.protected_tables) == (True, ("a",))


def test_protection_that_a_file_adds_is_recorded_by_the_next_start_and_stays(
    prod: AgentContext, tmp_path: Path
) -> None:
    facts = replace(prod.ledger.facts(), protected=True)
    prod.ledger.close()
    for known in (facts, replace(facts, protected=False)):
        with create_or_open(tmp_path / "home" / "ledger.db", known) as ledger:
            record_first(ledger, str(tmp_path), "prod", 2.0)
            assert ledger.recorded_policy() == Policy(max_statements=4, protected=True)
            assert ledger.facts().protected
            assert len(ledger.audits()) == 2


def _row(policy: Policy) -> Any:

    return policy_row(policy, actor="alice")


def test_a_wrong_policy_is_not_recorded_by_the_first_start(agent: AgentContext, tmp_path: Path) -> None:
    (tmp_path / "headgate.yml").write_text(texts("    policy: {max_statement: 4}\n")["headgate.yml"])
    with pytest.raises(
        InvalidProject, match=r"headgate.yml:\d+: environments.prod.policy.max_statement is not a known"
    ):
        record_first(agent.ledger, str(tmp_path), "prod", 1.0)
    assert agent.ledger.recorded_policy() is None


@pytest.mark.drill
def test_an_agent_does_not_begin_on_a_wrong_policy(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p/headgate.yml").write_text(texts("    policy: {freeze: [Fryday]}\n")["headgate.yml"])
    done = subprocess.run(
        [sys.executable, "-I", "-m", "pipelines.agent", "--project", str(tmp_path / "p"), "--env", "prod"],
        env={"HEADGATE_HOME": str(tmp_path / "home")}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "environments.prod.policy.freeze: 'Fryday' is not a day of the week; days: Mon, Tue" in done.stderr


def test_an_open_environment_takes_a_policy_at_once(handler: Callable[[], CommandHandler], prod: AgentContext) -> None:
    files = texts("    policy: {approve: [delete]}\n", a="protect: true\n")
    answer = record(handler(), ALICE, files)
    assert answer == {"policy": digest(files), "state": IN_FORCE, "changed": True}
    assert prod.ledger.recorded_policy() == Policy(approve=("delete",), protected_tables=("a",))  # type: ignore[arg-type]
    row = prod.ledger.policy_in_force()
    assert row is not None and (row.actor, row.actor_uid) == (ALICE.name, ALICE.uid)
    assert prod.layout.environment.policy.approve == ("delete",)
    assert record(handler(), BOB, files, confirm="")["changed"] is False


def test_a_policy_needs_its_confirmation(handler: Callable[[], CommandHandler], prod: AgentContext) -> None:
    commands = handler()
    with pytest.raises(ConfirmationNeeded, match="'yes'"):
        record(commands, ALICE, texts(""), confirm="")
    # The console requires what the file declares, which is stricter than the recorded policy.
    with pytest.raises(ConfirmationNeeded, match="'prod'"):
        record(commands, ALICE, texts(SHUT), confirm="yes")
    assert record(commands, ALICE, texts(SHUT), confirm="prod")["state"] == IN_FORCE
    with pytest.raises(ConfirmationNeeded, match="'prod'"):
        record(commands, ALICE, texts())
    assert prod.ledger.policy_awaiting_approval() is None


def test_in_a_protected_environment_a_policy_waits_for_another_login(
    handler: Callable[[], CommandHandler], prod: AgentContext
) -> None:
    commands = handler()
    record(commands, ALICE, texts(SHUT), "prod")
    assert prod.layout.environment.protected and prod.ledger.facts().protected
    files = texts("", a="protect: true\n")
    assert record(commands, ALICE, files, "prod") == {"policy": digest(files), "state": WAITING, "changed": True}
    assert prod.layout.environment.protected and prod.ledger.recorded_policy() == Policy(protected=True)
    with pytest.raises(Refused, match=f"was recorded by {ALICE.name}, who cannot approve it"):
        approve(commands, ALICE, digest(files))
    with pytest.raises(Refused, match="cannot approve it"):
        approve(commands, Caller(pid=1, uid=0, login_uid=ALICE.uid), digest(files))
    with pytest.raises(ConfirmationNeeded):
        approve(commands, BOB, digest(files), "prod")
    with pytest.raises(Refused, match="no policy 0123 is waiting"):
        approve(commands, BOB, "0123")
    assert approve(commands, BOB, digest(files))["state"] == IN_FORCE
    assert not prod.layout.environment.protected and not prod.ledger.facts().protected
    row = prod.ledger.policy_in_force()
    assert row is not None and (row.actor, row.approver) == (ALICE.name, BOB.name)
    with pytest.raises(Refused, match="no policy is waiting"):
        approve(commands, BOB, digest(files))


def test_nobody_approves_a_policy_of_his_own_that_he_records_at_the_same_time(
    handler: Callable[[], CommandHandler], prod: AgentContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands, mine = handler(), texts()
    record(commands, ALICE, texts(SHUT), "prod")
    record(commands, ALICE, texts("", a="protect: true\n"), "prod")
    look, recording = Ledger.policy_awaiting_approval, list[threading.Thread]()

    def look_and_be_overtaken(ledger: Ledger) -> PolicyRow | None:
        found = look(ledger)
        if not recording:
            recording.append(in_a_thread(lambda: record(commands, BOB, mine, "prod")))
            recording[0].join(OVERTAKEN_S)
        return found

    monkeypatch.setattr(Ledger, "policy_awaiting_approval", look_and_be_overtaken)
    with pytest.raises(Refused):
        approve(commands, BOB, digest(mine))
    recording[0].join()
    waiting = prod.ledger.policy_awaiting_approval()
    assert waiting is not None and waiting.actor == BOB.name
    assert prod.ledger.recorded_policy() == Policy(protected=True)


def test_of_two_policies_recorded_at_once_the_agent_follows_the_one_in_the_ledger(
    handler: Callable[[], CommandHandler], prod: AgentContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands, put, recording = handler(), Ledger.put_policy, list[threading.Thread]()

    def put_and_be_overtaken(ledger: Ledger, row: PolicyRow) -> None:
        put(ledger, row)
        if not recording:
            recording.append(in_a_thread(lambda: record(commands, BOB, texts(SHUT + RULES), "prod")))
            recording[0].join(OVERTAKEN_S)

    monkeypatch.setattr(Ledger, "put_policy", put_and_be_overtaken)
    record(commands, ALICE, texts(""))
    recording[0].join()
    assert prod.ledger.recorded_policy() == prod.layout.environment.policy == Policy(max_statements=4, protected=True)


def test_the_next_agent_keeps_the_policy_that_is_recorded(
    handler: Callable[[], CommandHandler], prod: AgentContext
) -> None:
    record(handler(), ALICE, texts(SHUT + RULES), "prod")
    prod.layout = replace(prod.layout, environment=replace(prod.layout.environment, protected=False, policy=Policy()))
    handler()
    assert prod.layout.environment.protected
    assert prod.layout.environment.policy == Policy(max_statements=4, protected=True)


@pytest.mark.parametrize(("given", "taken"), [("yes", True), ("a", True), ("b", False), ("", False)])
def test_a_stop_is_taken_with_the_text_of_a_protected_environment_too(
    given: str, taken: bool, handler: Callable[[], CommandHandler]
) -> None:
    with pytest.raises(UsageError if taken else ConfirmationNeeded, match="a is not deployed" if taken else "'yes'"):
        handler().handle(ALICE, {"op": "stop", "args": {"tables": ["a"]}, "confirm": given})


def test_an_invalid_policy_is_refused(handler: Callable[[], CommandHandler]) -> None:
    commands, files = handler(), texts()
    with pytest.raises(UsageError, match="texts"):
        commands.handle(ALICE, {"op": "policy_apply", "args": {"id": "x"}, "confirm": "yes"})
    with pytest.raises(Stale, match="changed while they were being read"):
        commands.handle(ALICE, {"op": "policy_apply", "args": {"texts": files, "id": "x"}, "confirm": "yes"})
    with pytest.raises(InvalidProject, match="trigger must be an interval"):
        record(commands, ALICE, texts(a="trigger: soon\n"))
    other = texts(SHUT)
    other["headgate.yml"] = other["headgate.yml"].replace("5b0e4a52", "00000000")
    with pytest.raises(Refused, match="to another project"):
        record(commands, ALICE, other)
    with pytest.raises(Refused, match=f"takes operate away from {ALICE.name}"):
        record(commands, ALICE, texts("    policy: {roles: {operate: [nobody]}}\n"))


ROLES = "    policy:\n      roles: {view: [vera], operate: [alice, '@sre'], approve: [bob]}\n"
REQUESTS: dict[str, dict[str, Any]] = {
    "run": {"id": "7f3a", "act": "retry"},
    "stop": {"tables": ["a"]},
    "unstage": {"tables": ["a"]},
}


def named(monkeypatch: pytest.MonkeyPatch, names: dict[int, str], groups: dict[int, str] | None = None) -> None:
    monkeypatch.setattr(Caller, "name", property(lambda caller: names.get(caller.uid, "eve")))
    monkeypatch.setattr(Caller, "groups", property(lambda caller: frozenset({(groups or {}).get(caller.uid, "staff")})))


@pytest.fixture
def roles(handler: Callable[[], CommandHandler], monkeypatch: pytest.MonkeyPatch) -> CommandHandler:
    named(
        monkeypatch, {70001: "alice", 70002: "bob", 70003: "carol", 70005: "vera", os.getuid(): "svc"}, {70003: "sre"}
    )
    commands = handler()
    record(commands, ALICE, texts(ROLES))
    return commands


def refused_for_a_role(commands: CommandHandler, caller: Caller, op: str, args: dict[str, Any]) -> bool:
    try:
        commands.handle(caller, {"op": op, "args": args, "confirm": ""})
    except Refused as error:
        return "the policy grants" in error.summary
    except (UsageError, ConfirmationNeeded):
        return False
    return False


@pytest.mark.parametrize("op", sorted(REQUIRED_ROLES))
def test_a_command_is_refused_without_its_role(roles: CommandHandler, op: str) -> None:
    role = REQUIRED_ROLES[op][0]
    may = {"view": {70001, 70002, 70003, 70005}, "operate": {70001, 70003}, "approve": {70002}}[role]
    for uid in (70001, 70002, 70003, 70004, 70005):
        found = refused_for_a_role(roles, Caller(1, uid, None), op, REQUESTS.get(op, {}))
        assert found is (uid not in may), (op, uid)


def test_a_refusal_names_the_holders_of_the_role_and_is_recorded(roles: CommandHandler, prod: AgentContext) -> None:
    with pytest.raises(Refused) as caught:
        roles.handle(Caller(1, 70004, None), {"op": "apply", "args": {"hash": "7f3a"}, "confirm": "dev 7f3a"})
    assert caught.value.summary == "eve may not apply plans: the policy grants operate to @sre, alice"
    assert [(c.actor, c.op, c.outcome) for c in prod.ledger.commands(1)] == [("eve", "apply", "refused")]


@pytest.mark.parametrize(
    ("op", "args"),
    [("stop", {"tables": ["a"]}), ("run", {"id": "7f3a", "act": "cancel"}), ("run", {"id": "7f3a", "act": "pause"}),
     ("unstage", {"tables": ["a"]}), ("status", {}), ("measure", {"tables": []})],
)  # fmt: skip
def test_everybody_may_stop_and_see_everything_but_rows(roles: CommandHandler, op: str, args: dict[str, Any]) -> None:
    assert not refused_for_a_role(roles, Caller(1, 70004, None), op, args)


def test_the_agents_own_user_can_have_a_policy_recorded_that_names_somebody_else(roles: CommandHandler) -> None:
    assert not refused_for_a_role(roles, OWNER, "policy_apply", {})
    assert refused_for_a_role(roles, OWNER, "apply", {})


def test_the_agent_says_which_roles_a_caller_has(roles: CommandHandler) -> None:
    uids = (70001, 70002, 70003, 70004, 70005)
    found = {uid: roles.handle(Caller(1, uid, None), {"op": "status"})["roles"] for uid in uids}
    operator = ["view", "operate"]
    assert found == {70001: operator, 70002: ["view", "approve"], 70003: operator, 70004: [], 70005: ["view"]}


def test_everybody_may_view_without_a_policy(handler: Callable[[], CommandHandler]) -> None:
    commands = handler()
    assert commands.handle(Caller(1, 70004, None), {"op": "status"})["roles"] == ["view", "operate", "approve"]
    assert not refused_for_a_role(commands, Caller(1, 70004, None), "peek", {"table": "a"})


def test_an_analysis_is_recorded_with_the_caller_and_whether_it_was_allowed(
    roles: CommandHandler, prod: AgentContext
) -> None:
    questions = [{"new": {"select": "SELECT 1 AS i", "tables": {}}}] * 2
    roles.handle(ALICE, {"op": "opinion", "args": {"questions": questions}})
    assert refused_for_a_role(roles, Caller(1, 70005, None), "opinion", {"questions": questions})
    assert [(a.actor, a.action, a.subject, a.outcome) for a in prod.ledger.audits(2)] == [
        ("vera", "opinion", "2 statements", "refused"),
        ("alice", "opinion", "2 statements", "done"),
    ]


def test_a_refused_peek_is_recorded_and_counted_like_other_refusals(roles: CommandHandler, prod: AgentContext) -> None:
    before = len(prod.ledger.audits())
    for _ in range(STORED + 5):
        assert refused_for_a_role(roles, Caller(1, 70004, None), "peek", {"table": "a"})
    audits = prod.ledger.audits()[: len(prod.ledger.audits()) - before]
    assert {(a.actor, a.action, a.subject, a.outcome) for a in audits} == {("eve", "peek", "a", "refused")}
    assert len(audits) == STORED


CALL = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.recv(1)"


# The second caller has more groups than Python's first request for groups allows; that request fails with ERANGE.
@pytest.mark.parametrize("groups", [(4, 20), tuple(range(1000, 1300))], ids=["few", "many"])
def test_groups_of_a_caller_come_from_the_kernel(groups: tuple[int, ...], tmp_path: Path) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "s"))
    listener.listen()
    # Only root can give a process other groups than its own.
    given = {"extra_groups": groups} if os.getuid() == 0 else {}
    child = subprocess.Popen([sys.executable, "-c", CALL, str(tmp_path / "s")], **given)  # type: ignore[call-overload]
    connection, _ = listener.accept()
    caller = socket_server._caller(connection)
    assert (caller.pid, caller.uid) == (child.pid, os.getuid())
    assert set(caller.gids) == {os.getgid(), *(groups if given else os.getgroups())}
    assert len(caller.groups) == len(set(caller.gids))
    connection.close()
    assert child.wait(60) == 0
