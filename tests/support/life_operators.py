"""The operators of a life, who call the agent as if over its socket, and plan as a console does."""

from collections import Counter
from contextlib import suppress
from dataclasses import replace
from typing import Any

import small_project
from life_rules import OperatorRequest, Rules
from life_script import Event
from virtual_primitives import VirtualFuture
from virtual_threads import Baton, Killed, Process

from core.model.act_outcomes import ActOutcome
from core.model.errors import HeadgateError, NotTakenBack, TryAgain
from core.model.names import TableName, parse_statement_name, query_name
from core.plan.codec import plan_as_json
from core.plan.confirmation import (
    OF_A_RUN,
    confirmation_for_act,
    confirmation_for_adoption,
    confirmation_for_plan,
    confirmation_for_swap,
)
from core.plan.model import Plan
from core.plan.request import PlanRequest, StrategyChoice
from core.planner.planner import make_plan
from pipelines.agent.requests.socket_server import Caller
from state.planner_input_from_registry import observe

LEE, BOB = (Caller(pid=1, uid=uid, login_uid=None) for uid in (70001, 70002))
CALLERS = {"lee": LEE, "bob": BOB}
ASKS_S = 60.0
SELECTS = {
    "a": (
        "SELECT id, kind FROM STREAM landed",
        "SELECT id, kind FROM STREAM landed WHERE id > 1",
        "SELECT id, kind FROM STREAM landed WHERE id > 2",
    ),
    "b": (
        "SELECT id, kind FROM STREAM a",
        "SELECT id, kind FROM STREAM a WHERE id > 1",
        "SELECT id, kind FROM STREAM a WHERE id > 2",
    ),
    "c": ("SELECT id, kind FROM STREAM a",),
}
"""Texts of each statement, through which edits cycle."""


class Operators:
    """Two people who operate one environment from the same project folder."""

    def __init__(self, baton: Baton, rules: Rules) -> None:
        self.baton, self.rules = baton, rules
        self.agent: Any = None
        self.process: Process | None = None
        """The agent's process, or None while there is none."""
        self.asked: list[tuple[OperatorRequest, VirtualFuture]] = []
        self.selects = {table: 0 for table in SELECTS}
        self.columns: Counter[str] = Counter()
        self.nonces = 0
        self.notes: Counter[str] = Counter()

    def hang_up(self) -> None:
        """Make all pending requests fail, because the agent is gone."""
        for word, answer in self.asked:
            word.lost = True
            answer.set_exception(TryAgain("the agent does not answer"))
        self.asked.clear()

    def named(self, subject: str, *, to_come: bool = False) -> str:
        """Return the version to which `a@new`, `a@old` or `a` refers now; with `to_come`, `new` is the next version."""
        table, _, which = subject.partition("@")
        ledger = self.rules.ledger
        if ledger is None:
            return ""
        with ledger.looked_at():
            versions = ledger.versions(TableName(table))
        there = [one for one in versions if not one.deleted]
        if which == "new" and to_come:
            return query_name(TableName(table), max((one.version for one in versions), default=0) + 1)
        if not which:
            return table
        wanted = [one for one in there if one.active == (which == "old")] or there
        return query_name(TableName(table), wanted[0].version) if wanted else ""

    def ask(self, word: OperatorRequest, request: dict[str, Any]) -> dict[str, Any]:
        """Call the agent as if over its socket; raises its errors, or TryAgain if there is no agent."""
        agent, process = self.agent, self.process
        self.rules.call(word)
        if agent is None or process is None:
            word.refused, word.answered_at = "no agent", self.baton.now
            raise TryAgain("there is no agent")
        answer = VirtualFuture(self.baton)
        self.asked.append((word, answer))

        def handle() -> None:
            try:
                result = agent._commands.handle(CALLERS[word.by], request)
            except HeadgateError as error:
                word.refused = f"{type(error).__name__}: {error.summary}"
                word.stands = isinstance(error, NotTakenBack)
                self._answered(word)
                answer.set_exception(error)
                return
            except Killed:
                raise
            except Exception as error:
                self.rules.wrong("an unexpected exception", f"{word.act}: {error!r}")
                answer.set_exception(TryAgain("the agent failed"))
                return
            word.accepted = True
            for one in result.get("statements") or ():
                outcome = ActOutcome.from_json(one)
                if word.act == "stop" or outcome.succeeded:
                    word.outcomes[outcome.table, outcome.version] = outcome
            if "run" in result:
                word.run = str(result["run"])
            self._answered(word)
            answer.set_result(result)

        self.baton.spawn(handle, "socket", process=process, lane=f"socket {self.rules.words.index(word)}")
        answer.wait(ASKS_S)
        if not answer.done_now:
            self.notes["unanswered"] += 1
            raise TryAgain("no answer within a minute")
        return dict(answer.result())

    def _answered(self, word: OperatorRequest) -> None:
        self.asked = [(w, a) for w, a in self.asked if w is not word]
        if not word.lost:
            self.rules.answer(word)

    def say(self, event: Event) -> None:
        """Carry out an operator's request in that operator's thread."""
        first, _, rest = event.kind.partition(" ")
        with suppress(HeadgateError):
            if first == "plan":
                self.release(event, rest)
            elif first == "run":
                self.about_run(event, rest)
            elif first == "adopt":
                word = OperatorRequest(event.by, "adopt", (), self.baton.now)
                self.ask(word, {"op": "adopt", "args": {}, "confirm": confirmation_for_adoption("dev").text})
            elif name := self.named(event.subject):
                names = (str(parse_statement_name(name)),)
                confirm = confirmation_for_act(event.kind, names, False, environment="dev").text
                word = OperatorRequest(event.by, event.kind, names, self.baton.now)
                self.ask(word, {"op": event.kind, "args": {"tables": list(names)}, "confirm": confirm})

    def about_run(self, event: Event, act: str) -> None:
        """Carry out a request about the newest run that is not finished."""
        ledger = self.rules.ledger
        if ledger is None:
            return
        with ledger.looked_at():
            runs = [run for run in ledger.runs(5) if run.state not in ("done", "cancelled")]
        if not runs:
            return
        run = runs[0]
        steps = [s.n for s in run.steps if s.state in ("gate", "failed") and s.do in (
            "catch_up", "start", "resume", "restart", "validate")]  # fmt: skip
        waiting = [s.n for s in run.steps if s.state == "waits" and s.do in ("catch_up", "validate")]
        n = (steps or waiting or [0])[-1 if event.nth % 2 else 0]
        plan = self.rules.plans.get(run.plan_hash)
        tables = frozenset(str(step.table) for step in plan.steps) if plan else frozenset()
        word = OperatorRequest(event.by, act, (), self.baton.now, run=run.id, step=n, tables=tables)
        confirm = ""
        if act in OF_A_RUN:
            confirm = confirmation_for_act(act, (run.id,), False).text
        if act == "swap":
            confirm = confirmation_for_swap(run.id, environment="dev").text
        self.ask(word, {"op": "run", "args": {"id": run.id, "act": act, "step": n}, "confirm": confirm})

    def texts(self) -> dict[str, str]:
        """Return the project's files in their current, edited form."""
        files = small_project.texts(**{table: SELECTS[table][n] for table, n in self.selects.items()})
        for table, count in self.columns.items():
            more = "".join(f", extra{n} STRING" for n in range(1, count + 1))
            ddl = next(path for path in files if path.endswith(f"ddl.{table}.sql"))
            dml = next(path for path in files if path.endswith(f"dml.{table}.sql"))
            files[ddl] = files[ddl].replace(small_project.COLUMNS, small_project.COLUMNS[:-1] + more + ")")
            said = "".join(f", upper(kind) AS extra{n}" for n in range(1, count + 1))
            files[dml] = files[dml].replace("id, kind", f"id, kind{said}", 1)
        return files

    def release(self, event: Event, kind: str) -> None:
        """Plan a release, submit the plan, have it approved if necessary, and apply it."""
        table = TableName(event.subject)
        self.nonces += 1
        request = PlanRequest(tables=(table,), nonce=str(self.nonces), children="all")
        match kind:
            case "rebuild" | "rebuild held" | "rebuild alone":
                children = "product" if kind.endswith("alone") else "all"
                request = replace(request, rebuild=True, hold=kind.endswith("held"), children=children)
            case "seam":
                request = PlanRequest(tables=(TableName("a"),), rebuild=True, children="all", nonce=str(self.nonces),
                    choices=(StrategyChoice(TableName("b"), "seam"),))  # fmt: skip
            case "carry over":
                self.selects[event.subject] = (self.selects[event.subject] + 1) % len(SELECTS[event.subject])
                request = replace(request, choices=(StrategyChoice(table, "carry_over"),))
            case "now":
                request = replace(request, rebuild=True, start="now")
            case "edit":
                self.selects[event.subject] = (self.selects[event.subject] + 1) % len(SELECTS[event.subject])
            case "column":
                self.columns[event.subject] += 1
            case "rollback" | "rollback alone" | "undelete" | "retire" | "delete":
                verb, _, alone = kind.partition(" ")
                children = "product" if alone else "all" if kind == "delete" and table == "a" else ""
                request = PlanRequest(verb=verb, tables=(table,), nonce=str(self.nonces), children=children)
            case "deploy":
                request = PlanRequest(everything=True, nonce=str(self.nonces))
        plan = self.plan(request)
        if plan is None or plan.refusals or plan.empty:
            self.notes[f"{kind}: {'refused' if plan and plan.refusals else 'nothing to do'}"] += 1
            if plan and plan.refusals:
                self.rules.say(f"refused: {plan.refusals[0]}")
            return
        self.submit(event.by, plan, kind)

    def plan(self, request: PlanRequest) -> Plan | None:
        """Plan a request as a console does, from its own reading of the ledger; None if there is no ledger."""
        ledger = self.rules.ledger
        if ledger is None:
            return None
        project = small_project.project(self.texts())
        with ledger.looked_at():
            seen = observe(
                ledger.deployments(include_deleted=True), ledger.table_statistics(), ledger.taken_versions(),
                ledger.table_serials(), self.baton.now + self.baton.wall_offset, tickets=ledger.tickets(),
            )  # fmt: skip
            return make_plan(
                project, "dev", seen, request, answers=ledger.spark_analyses(), policy=ledger.recorded_policy(),
                headroom=ledger.headroom(), durations=ledger.step_durations(),
            )  # fmt: skip

    def submit(self, by: str, plan: Plan, kind: str) -> None:
        tables = frozenset(str(step.table) for step in plan.steps)
        args = {"texts": self.texts(), "request": plan_as_json(plan)["request"], "hash": plan.hash}
        handing = OperatorRequest(by, "submit", (kind,), self.baton.now)
        self.ask(handing, {"op": "submit_plan", "args": {**args, "planner": plan.planner}})
        for other in ("bob" if by == "lee" else "lee",) * bool(plan.approvals):
            approving = OperatorRequest(other, "approve", (kind,), self.baton.now)
            self.ask(approving, {"op": "approve", "args": {"hash": plan.hash}, "confirm": plan.hash[:4]})
        word = OperatorRequest(by, "apply", (kind,), self.baton.now, tables=tables)
        said = {"op": "apply", "args": {"hash": plan.hash}, "confirm": confirmation_for_plan(plan).text}
        self.rules.plans[plan.hash] = plan
        run = str(self.ask(word, said)["run"])
        self.notes[f"{kind}: applied"] += 1
        self.rules.say(f"run {run} of {kind}: " + ", ".join(f"{s.n} {s.do} {s.table}@{s.version}" for s in plan.steps))
