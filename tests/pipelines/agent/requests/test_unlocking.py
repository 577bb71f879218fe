"""A protected environment is read-only until its agent has recorded an unlock of the caller, who may always stop."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from ledger_rows import policy_row

from core.model.errors import ConfirmationNeeded, Refused, UsageError
from core.policy.roles_and_rules import Policy
from core.project.model import Environment
from pipelines.agent.context import AgentContext, Uptime
from pipelines.agent.measurements.table_statistics_collector import TableStatisticsCollector
from pipelines.agent.requests.caller_roles_and_policy import READ_ONLY, REQUIRED_ROLES
from pipelines.agent.requests.command_handler import CommandHandler
from pipelines.agent.requests.socket_server import Caller
from pipelines.agent.runs.run_driver import OpenRuns
from pipelines.agent.statements.statement_control import StatementControl
from pipelines.spark_connect.query_progress import PoolUtilization
from state.emergency_journal import EmergencyJournal

ALICE = Caller(pid=1, uid=70001, login_uid=None)
SUDO_ALICE = Caller(pid=2, uid=0, login_uid=70001)
BOB = Caller(pid=3, uid=70002, login_uid=None)
RUNS_ON = ("resume", "retry", "skip", "swap")
REFUSED = sorted({(op, "") for op in READ_ONLY - {"run"}} | {("run", act) for act in RUNS_ON})
FREE = sorted({(op, "") for op in REQUIRED_ROLES.keys() - READ_ONLY - {"exit", "opinion", "upgrade_shown"}}
              | {("stop", ""), ("unstage", "")} | {("run", act) for act in ("pause", "cancel", "ack")})  # fmt: skip


@dataclass
class Clocks:
    """The machine's clocks, of which `wall` can be set."""

    wall: float = 1_000_000.0
    up: float = 500.0
    boot: str = "first"

    def pass_by(self, seconds: float) -> None:
        self.wall += seconds
        self.up += seconds


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture
def prod(agent: AgentContext, clocks: Clocks) -> AgentContext:
    layout = replace(agent.layout, environment=Environment("prod", protected=True))
    uptime = lambda: Uptime(clocks.boot, clocks.up)  # noqa: E731  # A field of the context.
    return replace(agent, layout=layout, clock=lambda: clocks.wall, uptime=uptime)


@pytest.fixture
def begin(prod: AgentContext, tmp_path: Path) -> Callable[[], CommandHandler]:
    def begin() -> CommandHandler:
        acts = StatementControl(prod, EmergencyJournal(tmp_path / "e"))
        measured = TableStatisticsCollector(prod, PoolUtilization())
        return CommandHandler(prod, acts, OpenRuns(prod), measured, lambda _: None)

    return begin


def unlock(commands: CommandHandler, caller: Caller = ALICE, *, seconds: object = 1800.0, ticket: str = "OPS-1") -> Any:
    return commands.handle(caller, {"op": "unlock", "args": {"seconds": seconds, "ticket": ticket}})


def refusal(commands: CommandHandler, caller: Caller = ALICE, op: str = "stage", act: str = "") -> str:
    """Return the refusal of a request because the environment is read-only; empty if it has another answer."""
    args: dict[str, Any] = {"tables": ["a"], "act": act, "id": "7f3a", "hash": "7f3a"}
    try:
        commands.handle(caller, {"op": op, "args": args})
    except (UsageError, ConfirmationNeeded):
        return ""
    except Refused as error:
        return error.sentence if "read-only" in error.summary else ""
    return ""


@pytest.mark.parametrize(("op", "act"), REFUSED)
def test_what_changes_a_protected_environment_needs_an_unlock(
    op: str, act: str, begin: Callable[[], CommandHandler]
) -> None:
    commands = begin()
    refused = refusal(commands, op=op, act=act)
    assert refused.startswith(f"p PROD protected is read-only for {ALICE.name}: unlock it to ")
    assert refused.endswith("; headgate unlock 30m TICKET --env prod") and "\n" not in refused
    early = commands.handle(ALICE, {"op": "status", "args": {"op": op, "act": act}})["refused"]
    assert f"{early['summary']}; {early['remedy']}" == refused
    unlock(commands)
    assert refusal(commands, op=op, act=act) == ""
    assert commands.handle(ALICE, {"op": "status", "args": {"op": op, "act": act}})["refused"] is None


@pytest.mark.parametrize(("op", "act"), FREE)
def test_stopping_planning_and_approving_need_none(op: str, act: str, begin: Callable[[], CommandHandler]) -> None:
    assert refusal(begin(), op=op, act=act) == ""


def test_an_unlock_is_of_one_person_and_written_down(begin: Callable[[], CommandHandler], prod: AgentContext) -> None:
    commands = begin()
    answer = unlock(commands, ticket=" OPS-1: till stuck ")
    assert answer == {"unlocked": True, "actor": ALICE.name, "ticket": "OPS-1: till stuck", "seconds": 1800.0,
                      "until": 1_001_800.0}  # fmt: skip
    assert refusal(commands, BOB).startswith(f"p PROD protected is read-only for {BOB.name}: unlock it to stage")
    assert refusal(commands, SUDO_ALICE) == ""
    (entry, *_) = [one for one in prod.ledger.audits() if one.action == "unlock"]
    assert (entry.actor, entry.outcome) == (ALICE.name, "done")
    assert entry.subject == "OPS-1: till stuck: for 30m, until 1970-01-12 14:16:40 UTC"


def test_it_ends_by_time_whatever_the_wall_clock_says(
    begin: Callable[[], CommandHandler], prod: AgentContext, clocks: Clocks
) -> None:
    commands = begin()
    refusal(commands, op="apply")
    unlock(commands)
    clocks.pass_by(1799)
    assert refusal(commands) == ""
    clocks.wall -= 86_400.0
    assert refusal(commands) == ""
    clocks.pass_by(1)
    assert "whose unlock of 30m has ended: unlock it" in refusal(commands)
    unlock(commands)
    clocks.wall += 86_400.0
    clocks.pass_by(1799)
    assert refusal(commands) == ""
    clocks.pass_by(1)
    assert refusal(commands)


def test_an_end_that_is_shown_follows_a_clock_that_was_set(
    begin: Callable[[], CommandHandler], prod: AgentContext, clocks: Clocks
) -> None:
    commands = begin()
    unlock(commands)
    clocks.wall -= 7200.0
    assert refusal(commands) == ""
    (shown,) = prod.ledger.unlocks()
    assert shown.until - clocks.wall == 1800.0


def test_it_survives_the_agent_but_not_the_machine(
    begin: Callable[[], CommandHandler], prod: AgentContext, clocks: Clocks
) -> None:
    unlock(begin())
    clocks.pass_by(60)
    assert refusal(begin()) == ""
    clocks.boot, clocks.up = "second", 20.0
    assert "read-only" in refusal(begin())
    assert prod.ledger.unlocks() == ()


def test_lock_ends_it(begin: Callable[[], CommandHandler]) -> None:
    commands = begin()
    unlock(commands)
    assert commands.handle(BOB, {"op": "lock"}) == {"unlocked": False, "changed": False, "protected": True}
    assert refusal(commands) == ""
    assert commands.handle(ALICE, {"op": "lock"}) == {"unlocked": False, "changed": True, "protected": True}
    assert "read-only" in refusal(commands)


@pytest.mark.parametrize(
    ("seconds", "ticket"),
    [(59, "a"), (8 * 3600 + 1, "a"), ("1800", "a"), (None, "a"), (True, "a"), (float("nan"), "a"),
     (1800, ""), (1800, "  "), (1800, "a\nb"), (1800, "a" * 201)],
)  # fmt: skip
def test_no_caller_can_ask_for_more(
    seconds: object, ticket: str, begin: Callable[[], CommandHandler], prod: AgentContext
) -> None:
    with pytest.raises(UsageError):
        unlock(begin(), seconds=seconds, ticket=ticket)
    assert prod.ledger.unlocks() == ()


def test_an_open_environment_needs_none(begin: Callable[[], CommandHandler], prod: AgentContext) -> None:
    prod.layout = replace(prod.layout, environment=Environment("dev"))
    commands = begin()
    assert refusal(commands) == ""
    assert unlock(commands) == {"unlocked": False, "changed": False}
    assert prod.ledger.unlocks() == ()


@pytest.mark.parametrize("protected", [False, True])
def test_a_policy_that_is_read_only_wins_over_every_unlock(
    begin: Callable[[], CommandHandler], prod: AgentContext, *, protected: bool
) -> None:
    unlock(begin())
    prod.ledger.put_policy(policy_row(Policy(read_only=True, protected=protected)))
    prod.layout = replace(prod.layout, environment=Environment("prod", protected=protected))
    commands = begin()
    name = "PROD protected" if protected else "prod"
    for op, act in REFUSED:
        assert refusal(commands, op=op, act=act).startswith(f"p {name} is read-only by its policy: nobody may ")
    with pytest.raises(Refused, match="unlocking changes nothing"):
        unlock(commands)
    for op, act in FREE:
        assert refusal(commands, op=op, act=act) == ""


def test_somebody_who_may_not_operate_cannot_unlock(begin: Callable[[], CommandHandler], prod: AgentContext) -> None:
    prod.ledger.put_policy(policy_row(Policy(roles=(("operate", ("somebody-else",)),), protected=True)))
    with pytest.raises(Refused, match="may not unlock the environment"):
        unlock(begin())
