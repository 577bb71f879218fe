"""Plans at the agent: accepted only if the agent makes the same plan, applied once, and every refusal."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import small_project
from java_class_files import FMT, fmt_jar
from ledger_rows import plan_row
from submission_desk import BOB, LEE, NOW, REBUILD_A, Desk, T, move

from core.changes.spark_cross_check import proof_key
from core.model.errors import ConfirmationNeeded, InvalidProject, LedgerUnavailable, Refused, Stale, UsageError
from core.plan.codec import canonical_text, plan_as_json, plan_from_json, plan_hash
from core.plan.model import Guard, Plan
from core.plan.request import PlanRequest
from core.project_reader.jar_files import describe_jar
from core.project_reader.revision_reader import revision_of
from core.sql.python_jobs import code_hash
from pipelines.agent.housekeeping import UnusedJars
from pipelines.agent.requests.command_handler import CommandHandler
from state.ledger import Ledger
from state.row_types import StagedRow


@pytest.mark.parametrize(
    "asked",
    [
        PlanRequest(layers=("fact",), rebuild=True, nonce="n"),
        PlanRequest(folders=("pipelines/facts/other",), tables=(T("a"),), rebuild=True, children="other", nonce="n"),
        PlanRequest(products=("p",), rebuild=True, exclude=(T("b"),), children="none", nonce="n"),
        PlanRequest(changed_since="main", tables=(T("a"),), gone=(T("x"),), rebuild=True, nonce="n"),
        PlanRequest(verb="delete", pipelines=(T("b"),), nonce="n"),
        PlanRequest(verb="delete", tables=(T("a"),), children="all", nonce="n"),
    ],
    ids=lambda asked: next(name for name in ("folders", "layers", "products", "gone", "pipelines", "tables")
                             if getattr(asked, name)),
)  # fmt: skip
def test_a_plan_of_any_scope_is_planned_the_same_here(desk: Desk, asked: PlanRequest) -> None:
    plan = desk.plan(asked)
    assert plan.steps and not plan.refusals
    desk.hand_over(plan)
    row = desk.agent.ledger.plan(plan.hash)
    assert row is not None and plan_from_json(json.loads(row.body)).request == plan.request


@pytest.mark.parametrize("request_", [{"tables": ["a"]}, {"verb": "deploy", "tables": 1}, ["a"]])
def test_a_request_that_is_none_is_refused_in_one_sentence(desk: Desk, request_: object) -> None:
    with pytest.raises(UsageError, match="this request for a plan cannot be read"):
        desk.hand_over(desk.plan(), request=request_)


def test_a_submitted_project_with_errors_is_refused_with_its_problems(desk: Desk) -> None:
    with pytest.raises(InvalidProject, match="the project has 4 problems") as refused:
        desk.hand_over(desk.plan(), texts={**small_project.texts(), "headgate.yml": "project: shop\nflavour: mint\n"})
    assert [problem["file"] for problem in refused.value.problems] == ["headgate.yml"] * 4
    assert {problem["severity"] for problem in refused.value.problems} == {"error"}


def test_a_plan_is_applied_once(desk: Desk) -> None:
    plan = desk.plan()
    desk.hand_over(plan)
    run_id = desk.apply(plan)
    assert desk.runs.driven == [run_id]
    with pytest.raises(Refused, match=f"already applied by run {run_id}"):
        desk.apply(plan)
    with pytest.raises(Refused, match=f"already applied by run {run_id}"):
        desk.hand_over_file(plan)
    with pytest.raises(Refused, match="already applied"):
        desk.approve(plan)
    assert desk.runs.driven == [run_id]


@pytest.mark.parametrize("locked", ["staged", "unstage"])
def test_a_run_that_is_written_is_driven_although_its_tables_cannot_be_unstaged(
    locked: str, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise LedgerUnavailable("the ledger is locked by another program")

    made = desk.plan()
    desk.hand_over(made)
    desk.agent.ledger.stage([StagedRow(LEE.name, "/p", T("a"), "deploy", NOW)])
    with monkeypatch.context() as patched:
        patched.setattr(Ledger, locked, refuse)
        run = desk.apply(made)
    assert desk.runs.driven == [run] == [row.id for row in desk.agent.ledger.open_runs()]


def test_a_file_is_taken_with_its_own_time_and_keeps_its_first_author(desk: Desk) -> None:
    plan = desk.plan()
    desk.now = NOW + 3600.0
    said = desk.hand_over_file(plan)
    assert said["expires_at"] == NOW + 24 * 3600.0
    desk.hand_over_file(plan, BOB)
    row = desk.agent.ledger.plan(plan.hash)
    assert row is not None and (row.author, row.author_uid) == ("70001", 70001)
    assert desk.apply(plan, BOB) in desk.runs.driven


# The environment changes between the planning of a file and its apply.


OUTSIDE: dict[str, Callable[[Desk], None]] = {
    "what is left behind is stopped": lambda desk: move(desk, "c", wanted="stopped", state="stopped"),
    "what is left behind is restarted elsewhere": lambda desk: move(desk, "c", checkpoint_id="new"),
    "a table comes elsewhere": lambda desk: desk.agent.ledger.put_deployment(
        replace(desk.agent.ledger.deployments()[0], table=T("z"), version=1, bindings=(), active=True)
    ),
}
INSIDE: dict[str, tuple[Callable[[Desk], None], str]] = {
    "it is restarted on another checkpoint": (
        lambda desk: move(desk, "a", checkpoint_id="new"), "a: checkpoint_id was a, now new",
    ),
    "a child is stopped": (lambda desk: move(desk, "b", wanted="stopped"), "b: wanted was running, now stopped"),
    "a reader comes": (
        lambda desk: desk.agent.ledger.put_deployment(replace(desk.agent.ledger.versions(T("b"))[0], table=T("z"))),
        "a: its readers were b v1, c v1, now b v1, c v1, z v1",
    ),
}  # fmt: skip


@pytest.mark.parametrize("by_file", [False, True])
@pytest.mark.parametrize("change", OUTSIDE.values(), ids=OUTSIDE)
def test_a_world_that_changes_outside_of_a_plan_does_not_make_it_stale(
    change: Callable[[Desk], None], by_file: bool, desk: Desk
) -> None:
    plan = desk.plan()
    if not by_file:
        desk.hand_over(plan)
    change(desk)
    if by_file:
        desk.hand_over_file(plan)
    assert desk.apply(plan) in desk.runs.driven


def test_a_transient_state_does_not_make_a_plan_stale(desk: Desk) -> None:
    plan = desk.plan()
    desk.hand_over(plan)
    move(desk, "b", state="degraded")
    assert desk.apply(plan) in desk.runs.driven


@pytest.mark.parametrize("change, said", INSIDE.values(), ids=INSIDE)
def test_a_change_in_the_scope_of_a_plan_makes_it_stale_and_is_named(
    change: Callable[[Desk], None], said: str, desk: Desk
) -> None:
    submitted, saved = desk.plan(), desk.plan(replace(REBUILD_A, nonce="file"))
    desk.hand_over(submitted)
    change(desk)
    with pytest.raises(Stale, match="the plan is stale") as refused:
        desk.hand_over_file(saved)
    assert said in refused.value.summary
    with pytest.raises(Stale, match="the plan is stale") as refused:
        desk.apply(submitted)
    assert said in refused.value.summary
    assert desk.runs.driven == []


# Refusals, each with its own sentence.


def edited(plan: Plan, **parts: Any) -> Plan:
    """Change a plan and recompute its hash, as a forger would."""
    other = replace(plan, **parts)
    return replace(other, hash=plan_hash(other))


def test_a_verdict_that_was_edited_is_refused_whether_its_hash_fits_or_not(desk: Desk) -> None:
    plan = desk.plan()
    others = tuple(replace(guard, verdict="warn") for guard in plan.guards[:1]) + plan.guards[1:]
    with pytest.raises(Refused, match="the plan was edited: its hash does not match its content"):
        desk.hand_over_file(replace(plan, guards=others))
    name = plan.guards[0].name
    with pytest.raises(Stale, match=f"differs from what this agent plans: verdict {name}: warn → ok"):
        desk.hand_over_file(edited(plan, guards=others))
    with pytest.raises(Stale, match="approvals: 7 → 0"):
        desk.hand_over_file(edited(plan, approvals=7))
    assert desk.agent.ledger.plans() == ()


def test_steps_that_were_edited_are_refused(desk: Desk) -> None:
    plan = desk.plan()
    with pytest.raises(Stale, match="differs from what this agent plans: step"):
        desk.hand_over_file(edited(plan, steps=plan.steps[:-1]))


def test_texts_that_were_edited_are_refused(desk: Desk) -> None:
    files = small_project.texts(a="SELECT id, kind FROM STREAM landed WHERE id > 1")
    with pytest.raises(
        Stale, match=r"differs from what this agent plans: node a change: none \(0\) → filter or projection"
    ):
        desk.hand_over_file(desk.plan(), texts=files)


def test_a_secret_in_a_file_with_errors_is_not_stored_with_the_plan(desk: Desk) -> None:
    files = small_project.texts()
    path, servers = "pipelines/sources/q/k/sql-scripts/ddl.k.sql", "'kafka.bootstrap.servers'='h:9092', subscribe='t'"
    wrong = f"CREATE TABLE k (id INT)\nUSING kafka OPTIONS ({servers},\n'kafka.sasl.password'='hunter2')"
    made = desk.plan()
    desk.hand_over(made, texts={**files, path: wrong})
    row = desk.agent.ledger.plan(made.hash)
    assert row is not None and json.loads(row.texts) == {**files, path: wrong.replace("hunter2", "*****")}


def test_another_planner_is_named_with_this_one(desk: Desk) -> None:
    plan = desk.plan()
    old = edited(plan, planner="2")
    for hand_over in (desk.hand_over, desk.hand_over_file):
        with pytest.raises(
            Refused, match=f"planned by planner version 2; this agent has version {plan.planner}"
        ) as refused:
            hand_over(old)
        assert refused.value.remedy == "plan again"
    desk.agent.ledger.put_plan(plan_row(old, author="lee", created_at=NOW))
    with pytest.raises(Refused, match=f"planned by planner version 2; this agent has version {plan.planner}"):
        desk.apply(old)


def test_a_plan_of_another_environment_or_project_is_refused(desk: Desk) -> None:
    plan = desk.plan()
    with pytest.raises(Refused, match="made for prod, but this agent serves dev"):
        desk.hand_over_file(edited(plan, environment="prod"))
    files = {**small_project.texts(), "headgate.yml": small_project.HEAD.replace("5b0e4a52", "00000000")}
    with pytest.raises(Refused, match="to another project"):
        desk.hand_over_file(plan, texts=files)


@pytest.mark.parametrize("damage", [{"plan": {"format": "x"}}, {"plan": {}}, {"created_at": "x"}, {"created_at": None}])
def test_a_damaged_file_is_a_bad_command(damage: dict[str, Any], desk: Desk) -> None:
    plan = desk.plan()
    with pytest.raises(UsageError):
        desk.hand_over(plan, **{"plan": plan_as_json(plan), "created_at": NOW, **damage})


def test_an_expired_plan_is_refused_even_from_a_file(desk: Desk) -> None:
    plan, saved = desk.plan(), desk.plan(replace(REBUILD_A, nonce="file"))
    desk.hand_over(plan)
    desk.now = NOW + 24 * 3600.0
    with pytest.raises(Refused, match="has expired"):
        desk.apply(plan)
    with pytest.raises(Refused, match="has expired"):
        desk.hand_over_file(saved)
    with pytest.raises(Refused, match="in the future"):
        desk.hand_over_file(saved, made_at=desk.now + 3600.0)


def test_a_policy_that_changed_since_makes_a_plan_stale(desk: Desk) -> None:
    plan, saved = desk.plan(), desk.plan(replace(REBUILD_A, nonce="file"))
    desk.hand_over(plan)
    desk.rule(max_replay_h=5.0)
    for act in (lambda: desk.apply(plan), lambda: desk.hand_over_file(saved)):
        with pytest.raises(Stale, match="the policy of dev has changed since this plan was made"):
            act()


def test_nothing_is_applied_in_a_freeze_window(desk: Desk) -> None:
    desk.rule(freeze=("1970-01-12 - 1970-01-13",))
    plan = desk.plan()
    desk.hand_over(plan)
    with pytest.raises(Refused, match=r"dev is frozen until Wed 1970-01-14 00:00 UTC \(1970-01-12 - 1970-01-13\)"):
        desk.apply(plan)
    desk.now += 86400.0 * 3
    with pytest.raises(Refused, match="has expired"):
        desk.apply(plan)


def test_an_unsupported_strategy_is_refused_by_name(desk: Desk) -> None:
    plan = desk.plan()
    nodes = tuple(replace(node, strategy="later") if node.table == "a" else node for node in plan.nodes)
    later = edited(plan, nodes=nodes)
    desk.agent.ledger.put_plan(plan_row(later, author="lee", created_at=NOW))
    with pytest.raises(Refused, match="the plan uses later for a, which this version cannot execute yet"):
        desk.apply(later)


def test_a_plan_is_confirmed_by_its_own_name_last(desk: Desk) -> None:
    plan = desk.plan()
    desk.hand_over(plan)
    with pytest.raises(ConfirmationNeeded, match=f"'dev {plan.hash[:4]}'"):
        desk.apply(plan, confirm="")
    with pytest.raises(UsageError, match="there is no plan ''"):
        desk.apply(replace(plan, hash=""))
    with pytest.raises(UsageError, match="there is no plan"):
        desk.apply(replace(plan, hash=plan.hash[:12]))


def test_an_actor_without_the_role_is_refused(desk: Desk) -> None:
    plan = desk.plan()
    desk.hand_over(plan)
    desk.rule(approve=("rebuild",), roles=(("approve", ("70009",)), ("operate", ("70001",))))
    commands = CommandHandler(desk.agent, *desk.parts)
    for op, who, role in (("apply", BOB, "operate"), ("approve", BOB, "approve"), ("submit_plan", BOB, "operate")):
        with pytest.raises(Refused, match=f"the policy grants {role} to"):
            commands.handle(who, {"op": op, "args": {"hash": plan.hash}, "confirm": plan.hash[:4]})
    assert desk.runs.driven == [] and desk.agent.ledger.approvals(plan.hash) == ()


def test_a_row_that_does_not_match_its_hash_is_refused(desk: Desk) -> None:
    plan = desk.plan()
    body = json.loads(canonical_text(plan_as_json(replace(plan, guards=(Guard("pool", "ok", ""),)))))
    desk.agent.ledger.put_plan(plan_row(plan, body=json.dumps(body), author="lee", created_at=NOW))
    with pytest.raises(Refused, match="its hash does not match"):
        desk.apply(plan)


def test_the_run_has_the_steps_that_were_reviewed(desk: Desk) -> None:
    plan = desk.plan()
    desk.hand_over(plan)
    run = desk.agent.ledger.run(desk.apply(plan))
    assert run is not None and len(run.steps) > 1
    assert [(s.do, s.table, s.version) for s in run.steps] == [(s.do, s.table, s.version) for s in plan.steps]


def test_tables_that_the_pool_was_not_given_the_connector_for_are_refused_before_a_run(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {path: text.replace("USING parquet", "USING delta") for path, text in small_project.texts().items()}
    files["headgate.yml"] += "connectors: {delta: {}}\n"
    plan = desk.plan(files=files)
    monkeypatch.setattr(type(desk.agent.pools.default.client), "connectors", lambda pool: ())
    with pytest.raises(Refused, match="a is delta, and the pool was started without the connector delta") as refused:
        desk.hand_over(plan, texts=files)
    assert "headgate up" in refused.value.remedy
    monkeypatch.setattr(type(desk.agent.pools.default.client), "connectors", lambda pool: ("delta",))
    desk.hand_over(plan, texts=files)


def test_a_pool_that_was_started_before_the_connector_of_a_store_was_named_is_refused(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {
        path: re.sub("LOCATION '[^']*'", "LOCATION 's3a://lake/e'", text)
        for path, text in small_project.texts().items()
    }
    files["headgate.yml"] += "connectors: {s3: {}}\n"
    plan = desk.plan(files=files)
    monkeypatch.setattr(type(desk.agent.pools.default.client), "connectors", lambda pool: ("delta",))
    with pytest.raises(Refused, match="is in S3, and the pool was started without the connector s3"):
        desk.hand_over(plan, texts=files)
    monkeypatch.setattr(type(desk.agent.pools.default.client), "connectors", lambda pool: ("s3",))
    desk.hand_over(plan, texts=files)


JOB = "from os import environ\n\n\ndef a(landed):\n    return landed.where({})\n"


def with_job(condition: str, yml: str = "") -> dict[str, str]:
    """Return the files of the project in which a is a job in Python."""
    found = {path: text for path, text in small_project.texts().items() if not path.endswith("dml.a.sql")}
    found["pipelines/facts/p/a/sql-scripts/job.a.py"] = JOB.format(condition)
    return found | ({"pipelines/facts/p/a/a.yml": yml} if yml else {})


def test_a_declaration_that_code_continues_a_state_is_audited_with_its_author(desk: Desk) -> None:
    before = revision_of(small_project.project(with_job("'id > 1'")).tables[T("a")])
    assert before.parsed is not None
    move(desk, "a", texts=before.texts, revision=before.hash, stateful=True)
    files = with_job("'id > 2'", f"state_compatible: {code_hash(before.parsed)}\n")
    plan = desk.plan(PlanRequest(tables=(T("a"),), nonce="n"), files)
    assert [str(node.action) for node in plan.nodes if node.table == "a"] == ["restart"]
    desk.hand_over(plan, texts=files)
    desk.apply(plan, confirm="yes")
    found = [
        (e.actor, e.subject, e.outcome, e.plan_hash)
        for e in desk.agent.ledger.audits()
        if e.action == "state_compatible"
    ]
    assert found == [("70001", "a", f"continues the state of the code {code_hash(before.parsed)}", plan.hash)]


def test_a_declaration_that_an_upgrade_test_has_disproved_rebuilds_and_is_not_audited(desk: Desk) -> None:
    before = revision_of(small_project.project(with_job("'id > 1'")).tables[T("a")])
    assert before.parsed is not None
    move(desk, "a", texts=before.texts, revision=before.hash, stateful=True)
    files = with_job("'id > 2'", f"state_compatible: {code_hash(before.parsed)}\n")
    after = revision_of(small_project.project(files).tables[T("a")])
    desk.agent.ledger.put_spark_analysis(proof_key(before.hash, after.hash), "case one: rows are wrong", at=1.0)
    plan = desk.plan(PlanRequest(tables=(T("a"),), nonce="n"), files)
    (node,) = (node for node in plan.nodes if node.table == "a")
    assert str(node.action) == "rebuild" and any("case one: rows are wrong" in str(each) for each in node.evidence)
    desk.hand_over(plan, texts=files)
    desk.apply(plan)
    assert [e for e in desk.agent.ledger.audits() if e.action == "state_compatible"] == []


def test_a_jar_is_stored_when_its_plan_is_submitted_and_refused_once_it_has_changed(desk: Desk, tmp_path: Path) -> None:
    place, stored = tmp_path / "functions/acme.jar", Path(desk.agent.places.home, "jars")
    place.parent.mkdir()
    files = small_project.texts(a="SELECT id, fmt(kind) AS kind FROM STREAM landed") | {
        "functions/fmt.sql": FMT,
        "functions/acme.jar": describe_jar(fmt_jar("one"), "acme.jar", ("com.acme.Fmt",)),
    }
    plan = desk.plan(files=files)
    for content in (b"", fmt_jar("two")):
        place.write_bytes(content)
        with pytest.raises(Refused, match=r"functions/acme\.jar has changed or cannot be read"):
            desk.hand_over(plan, texts=files, folder=str(tmp_path))
    assert desk.agent.ledger.plan(plan.hash) is None and not stored.exists()
    place.write_bytes(fmt_jar("one"))
    desk.hand_over(plan, texts=files, folder=str(tmp_path))
    assert [each.read_bytes() for each in stored.iterdir()] == [fmt_jar("one")]
    # From now on, the agent needs no file of the project.
    place.unlink()
    desk.hand_over(plan, texts=files, folder=str(tmp_path))
    desk.apply(plan)


def test_a_jar_that_nothing_deployed_and_no_plan_names_is_removed_in_the_second_round(desk: Desk) -> None:
    house, folder = UnusedJars(desk.agent), Path(desk.agent.places.home, "jars")
    house.remove()
    folder.mkdir()
    names = {name: f"{digit * 64}.jar" for name, digit in (("deployed", "a"), ("planned", "b"), ("unused", "c"))}
    for name in names.values():
        (folder / name).write_bytes(b"")
    version = desk.agent.ledger.deployment(T("a"), 1)
    assert version is not None
    function = FMT.replace("acme.jar", f"acme.jar#{'a' * 64}")
    move(desk, "a", texts=replace(version.texts, functions=(("fmt", function),)), revision="with a jar")
    desk.agent.ledger.put_plan(plan_row(desk.plan(), texts=f'{{"functions/acme.jar": "{"b" * 64}"}}'))
    house.remove()
    assert {each.name for each in folder.iterdir()} == set(names.values())
    house.remove()
    assert {each.name for each in folder.iterdir()} == {names["deployed"], names["planned"]}
