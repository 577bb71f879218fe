"""Plans of a statement that writes a topic: what they say, and what is refused because messages stay."""

from dataclasses import replace

import pytest
import small_project
from domain_builders import deployed, evidence_of

from core.model.names import TableName as T
from core.model.problems import Severity
from core.observed.planner_input import ObservedDeployment, OtherVersion
from core.observed.seen_inputs import SeenTopics, topics_key
from core.plan.model import Plan
from core.plan.request import PlanRequest, StrategyChoice
from core.planner.planner import make_plan, topics_of
from core.policy.roles_and_rules import Policy
from core.project.model import Project
from core.project_reader.loader import read_project
from core.project_reader.revision_reader import revision_of

A = "pipelines/facts/p/a/a.yml"
DDL = "pipelines/facts/p/a/sql-scripts/ddl.a.sql"
COLUMNS = "id BIGINT, kind STRING"
KEYED = {A: "key: [id]\n"}


def texts(
    columns: str = COLUMNS, options: str = "topic='t'", yml: dict[str, str] = KEYED, prefix: str = "", **selects: str
) -> dict[str, str]:
    files = {
        path: text for path, text in small_project.texts(**selects).items() if "/b/" not in path and "/c/" not in path
    }
    given = f"'kafka.bootstrap.servers'='h:9092', {options}"
    files[DDL] = f"CREATE TABLE a ({columns}) USING kafka OPTIONS ({given});"
    head = files["headgate.yml"].replace("dev: {}", f"dev: {{naming: {{prefix: '{prefix}'}}}}")
    return files | yml | {"headgate.yml": head + "connectors: {kafka: {}}\n"}


def on_topic(**changed: object) -> Project:
    return small_project.project(texts(**changed))  # type: ignore[arg-type]


def world(before: Project) -> dict[T, ObservedDeployment]:
    return {name: deployed(table, bindings={"landed": 0}) for name, table in before.tables.items()}


def plan(after: Project, before: Project | None = None, **request: object) -> Plan:
    asked: dict[str, object] = {"tables": (T("a"),), **request}
    return make_plan(after, "dev", world(before) if before else {}, PlanRequest(**asked))  # type: ignore[arg-type]


def said(found: Plan) -> list[str]:
    return [str(each.summary) for each in found.warnings if each.table == "a"]


def refused(found: Plan) -> list[str]:
    return [str(each.summary) for each in found.refusals]


def test_a_first_start_says_at_least_once_and_names_the_key() -> None:
    found = plan(on_topic())
    assert not found.refusals
    assert any("writes topic t at least once" in each and "deduplicate them by id" in each for each in said(found))
    assert [step.do for step in found.steps if step.table == "a"] == ["create", "start", "swap"]
    assert "topic" in str(found.steps[-1].why)


HERE = "kafka://h:9092/t"


@pytest.mark.parametrize(
    ("seen", "verdict", "summary"),
    [
        (SeenTopics(), "ok", "every topic that a started statement reads or writes exists"),
        (SeenTopics(("t",)), "deny", "a writes topic t, which does not exist at h:9092"),
        (
            SeenTopics(unread="no broker of h:9092 answers: no answer in time"),
            "unknown",
            "whether topic t of a exists is unknown: no broker of h:9092 answers: no answer in time",
        ),
        (None, "unknown", "whether topic t of a exists is unknown: no agent has looked"),
    ],
)
def test_a_start_is_denied_while_its_topic_does_not_exist(seen: SeenTopics | None, verdict: str, summary: str) -> None:
    answers = {} if seen is None else {topics_key(HERE): seen.as_text()}
    project, asked = on_topic(), PlanRequest(tables=(T("a"),))
    found = make_plan(project, "dev", {}, asked, answers=answers)
    (guard,) = [each for each in found.guards if each.name == "topics"]
    assert (guard.verdict, guard.summary) == (verdict, summary)
    remedies = [str(each.remedy) for each in found.refusals]
    command = "kafka-topics.sh --bootstrap-server h:9092 --create --topic t"
    assert remedies == [f"create it, for Headgate creates no topics: {command}"] * (verdict == "deny")
    assert topics_of(found, project) == (HERE,)
    if verdict != "deny":
        # Whether the agent has looked yet must not make another plan of it.
        assert found.hash == make_plan(project, "dev", {}, asked).hash


def test_a_start_is_denied_while_a_topic_that_it_reads_does_not_exist() -> None:
    files = small_project.texts(a="SELECT id, kind FROM STREAM landed")
    secured = "'kafka.security.protocol'='SSL', subscribe='s,t'"
    files["pipelines/sources/p/landed/sql-scripts/ddl.landed.sql"] = (
        f"CREATE TABLE landed ({COLUMNS}) USING kafka OPTIONS ('kafka.bootstrap.servers'='h:9092', {secured});"
    )
    project = small_project.project(files | {"headgate.yml": files["headgate.yml"] + "connectors: {kafka: {}}\n"})
    (place,) = topics_of(make_plan(project, "dev", {}, PlanRequest(tables=(T("a"),))), project)
    found = make_plan(
        project, "dev", {}, PlanRequest(tables=(T("a"),)), answers={topics_key(place): SeenTopics(("s", "t")).as_text()}
    )
    assert refused(found) == ["a reads landed, and there is no topic s and t at h:9092"]
    command = "kafka-topics.sh --bootstrap-server h:9092 --command-config client.properties --create --topic"
    assert str(found.refusals[0].remedy).endswith(f"topics: {command} s; {command} t")


def test_a_restart_of_a_statement_without_topics_and_a_stop_ask_for_none() -> None:
    found = make_plan(small_project.project(small_project.texts()), "dev", {}, PlanRequest(everything=True))
    assert all(guard.name != "topics" for guard in found.guards)
    deleted = make_plan(on_topic(), "dev", world(on_topic()), PlanRequest(verb="delete", tables=(T("a"),)))
    assert all(guard.name != "topics" for guard in deleted.guards)


def test_the_topic_has_the_prefix_of_the_environment() -> None:
    project = on_topic(prefix="dev_")
    assert any("writes topic dev_t at least once" in each for each in said(plan(project)))
    assert topics_of(plan(project), project) == ("kafka://h:9092/dev_t",)


@pytest.mark.parametrize(
    ("servers", "topics", "loop"), [("g:1,h:9092", "s,t", True), ("h:9092", "s", False), ("g:9092", "t", False)]
)
def test_messages_that_return_to_their_topic_are_a_warning(servers: str, topics: str, loop: bool) -> None:
    files = texts(a="SELECT id, kind FROM STREAM through")
    columns = "(id BIGINT, kind STRING)"
    options = f"'kafka.bootstrap.servers'='{servers}', subscribe='{topics}'"
    for path, text in {
        "sources/p/back/sql-scripts/ddl.back.sql": f"CREATE TABLE back {columns} USING kafka OPTIONS ({options})",
        "facts/p/through/sql-scripts/ddl.through.sql": f"CREATE TABLE through {columns} USING parquet",
        "facts/p/through/sql-scripts/dml.through.sql": "INSERT INTO through SELECT id, kind FROM STREAM back",
    }.items():
        files[f"pipelines/{path}"] = text
    project, problems = read_project(files)
    assert project is not None
    summary = "a writes topic t, whose messages it gets back: a → back → through → a"
    assert [(each.summary, each.severity) for each in problems] == [(summary, Severity.WARNING)] * loop


@pytest.mark.parametrize(
    ("servers", "topic", "shared"),
    [("h:9092", "t", True), ("g:1,h:9092", "t", True), ("h:9092", "u", False), ("g:9092", "t", False)],
)
def test_statements_that_write_one_topic_are_a_warning_in_files_and_plans(
    servers: str, topic: str, shared: bool
) -> None:
    files = texts()
    options = f"'kafka.bootstrap.servers'='{servers}', topic='{topic}'"
    for path, text in {
        "ddl.again.sql": f"CREATE TABLE again ({COLUMNS}) USING kafka OPTIONS ({options})",
        "dml.again.sql": "INSERT INTO again SELECT id, kind FROM STREAM landed",
    }.items():
        files[f"pipelines/facts/q/again/sql-scripts/{path}"] = text
    files["pipelines/facts/q/again/again.yml"] = "key: [id]\n"
    project, problems = read_project(files)
    assert project is not None
    said_of_files = [(each.summary, each.subject, each.severity) for each in problems]
    assert said_of_files == [("a and again write one topic, t", "again", Severity.WARNING)] * shared
    found = make_plan(project, "dev", {}, PlanRequest(everything=True))
    words = "writes topic t as well: readers cannot deduplicate by `key` across statements"
    warned = {(each.table, str(each.summary)) for each in found.warnings if "as well" in str(each.summary)}
    assert warned == ({("a", f"again {words}"), ("again", f"a {words}")} if shared else set())


def test_a_topic_without_a_key_is_a_warning_and_a_key_must_be_a_column() -> None:
    project, problems = read_project(texts(yml={}))
    assert project is not None
    assert [str(each.summary) for each in problems] == [
        "a writes a topic at least once, and names no key by which readers can deduplicate"
    ]
    (wrong,) = read_project(texts(yml={A: "key: [ident]\n"}))[1]
    assert (
        wrong.summary == "a has no column ident, which is its key" and wrong.where is not None and wrong.where.line == 1
    )


@pytest.mark.parametrize(
    ("files", "summary"),
    [
        (texts(options="subscribe='t'"), "a is written by a statement, and subscribes to topics in subscribe"),
        (texts(yml={A: "key: [id]\nmode: upsert\n"}), "a is kafka, whose rows have no key"),
        (texts(yml={A: "key: [id]\nchecks: [{name: c, sql: SELECT * FROM a WHERE id < 0}]\n"}),
         "a has checks, and a topic cannot be queried"),
    ],
)  # fmt: skip
def test_what_a_topic_cannot_have_is_a_problem(files: dict[str, str], summary: str) -> None:
    assert summary in [str(each.summary) for each in read_project(files)[1]]


def test_a_statement_cannot_read_the_table_but_another_one_over_the_topic() -> None:
    files = texts()
    files |= {path: text for path, text in small_project.texts().items() if "/b/" in path}
    (problem,) = [each for each in read_project(files)[1] if each.summary.startswith("b ")]
    assert problem.summary == "b reads a, which a statement writes to a topic"
    assert "declare the topic as an external table of another name" in problem.remedy


@pytest.mark.parametrize(
    "edit",
    [
        {"a": "SELECT id, kind FROM STREAM landed WHERE id > 7"},
        {"columns": "id BIGINT", "a": "SELECT id FROM STREAM landed"},
        {"columns": "id STRING, kind STRING"},
        {"columns": "id BIGINT, KIND STRING"},
        {"columns": "id BIGINT, kind STRING, n INT", "a": "SELECT id, kind, 1 AS n FROM STREAM landed"},
        {"options": "topic='t', 'kafka.compression.type'='zstd'"},
    ],
)
def test_an_edit_of_columns_or_options_restarts_the_statement_on_its_checkpoint(edit: dict[str, str]) -> None:
    found = plan(on_topic(**edit), on_topic())
    assert not found.refusals
    assert [step.do for step in found.steps] == ["restart"]


def test_a_field_in_capitals_is_another_field_of_the_messages() -> None:
    before = on_topic(columns="id BIGINT, kind STRING NOT NULL", yml={A: "compatibility: full\n"})
    found = plan(on_topic(columns="id BIGINT, KIND STRING NOT NULL", yml={A: "compatibility: full\n"}), before)
    assert [(r.fields["direction"], r.fields["conflict"]["kind"]) for r in found.refusals] == [  # type: ignore[index]
        ("backward", "added_not_null"),
        ("forward", "dropped_not_null"),
    ]
    free = plan(on_topic(columns="id BIGINT, KIND STRING"), on_topic())
    assert "column kind: the field of a message is KIND, and no longer kind" in evidence_of(free.nodes[-1])


def test_another_key_for_readers_is_recorded_while_the_statement_runs() -> None:
    found = plan(on_topic(yml={A: "key: [id, kind]\n"}), on_topic())
    assert [step.do for step in found.steps] == ["record"]


def test_a_rebuild_says_that_messages_are_written_again_and_compares_no_rows() -> None:
    found = plan(on_topic(), on_topic(), rebuild=True)
    assert not found.refusals
    assert any("writes all messages to topic t again" in each for each in said(found))
    assert [step.do for step in found.steps if step.table == "a"] == ["create", "start", "catch_up", "swap", "stop"]
    assert all(undo.act != "rollback" for undo in found.undo)
    assert [guard.kind for guard in found.guards if guard.name == "disk"] == ["nothing_twice"]


def approval(found: Plan) -> list[str]:
    which = [guard for guard in found.guards if guard.verdict == "approve"]
    assert found.approvals == len(which)
    return [str(guard.summary) for guard in which]


@pytest.mark.parametrize("protected", [True, False])
def test_messages_of_a_protected_environment_are_written_again_only_with_an_approval(protected: bool) -> None:
    files = texts()
    files |= {path: text for path, text in small_project.texts().items() if "/b/" in path}
    files["pipelines/facts/p/a/sql-scripts/dml.a.sql"] = "INSERT INTO a SELECT id, kind FROM STREAM b;"
    files["pipelines/facts/p/b/sql-scripts/dml.b.sql"] = "INSERT INTO b SELECT id, kind FROM STREAM landed;"
    both = small_project.project(files)
    seen = {name: deployed(table, bindings={"b": 1} if name == "a" else {"landed": 0})
            for name, table in both.tables.items()}  # fmt: skip
    policy = Policy(protected=protected)
    asked = PlanRequest(tables=(T("b"),), rebuild=True, children="all")
    upstream = make_plan(both, "dev", seen, asked, policy=policy)
    again = "another login must approve it: messages that cannot be taken back are written again: a"
    assert not upstream.refusals and approval(upstream) == ([again] if protected else [])
    kept = make_plan(both, "dev", seen, replace(asked, children="none"), policy=policy)
    assert approval(kept) == []
    alone = make_plan(on_topic(), "dev", world(on_topic()), PlanRequest(tables=(T("a"),), rebuild=True), policy=policy)
    assert approval(alone) == ([again] if protected else [])


@pytest.mark.parametrize("way", ["first", "continued", "elsewhere", "restarted"])
def test_a_plan_that_writes_no_message_again_needs_no_approval(way: str) -> None:
    now = on_topic()

    def plan(after: Project, before: Project | None = None, **request: object) -> Plan:
        asked: dict[str, object] = {"tables": (T("a"),), **request}
        given = PlanRequest(**asked)  # type: ignore[arg-type]  # The request of each case.
        return make_plan(after, "dev", world(before) if before else {}, given, policy=Policy(protected=True))

    found = {
        "first": lambda: plan(now),
        "continued": lambda: plan(now, now, choices=(StrategyChoice(T("a"), "carry_over"),)),
        "elsewhere": lambda: plan(on_topic(options="topic='u'"), now),
        "restarted": lambda: plan(on_topic(a="SELECT id, kind FROM STREAM landed WHERE id > 7"), now),
    }[way]()
    assert found.steps and approval(found) == []
    assert any("writes all messages to topic u: those of v1 stay in the topic" in each for each in said(found)) is (
        way == "elsewhere"
    )


def test_a_version_that_continues_the_old_one_says_which_messages_are_there_twice() -> None:
    choice = StrategyChoice(T("a"), "carry_over")
    found = plan(on_topic(), on_topic(), choices=(choice,))
    assert not found.refusals
    assert any("messages in between are there twice" in each for each in said(found))


@pytest.mark.parametrize("strategy", ["chain", "seam"])
def test_strategies_that_need_a_record_of_batches_are_refused(strategy: str) -> None:
    found = plan(on_topic(options="topic='u'"), on_topic(), choices=(StrategyChoice(T("a"), strategy),))
    assert found.refusals


def test_a_rebuild_cannot_be_held_and_not_be_rolled_back() -> None:
    held = plan(on_topic(), on_topic(), rebuild=True, hold=True)
    assert refused(held) == ["a cannot be held: readers of its topic see each message at once"]
    now = world(on_topic())
    table = on_topic().tables[T("a")]
    bindings = now[T("a")].bindings
    second = replace(
        deployed(table, bindings={"landed": 0}, version=2),
        served_by="r9",
        former=OtherVersion(1, "old", bindings, texts=revision_of(table).texts),
        kept=(1,),
    )
    back = make_plan(on_topic(), "dev", now | {T("a"): second}, PlanRequest(verb="rollback", tables=(T("a"),)))
    assert "a writes a topic, and messages cannot be taken back" in refused(back)


def test_a_table_does_not_become_a_topic_and_a_delete_keeps_the_topic() -> None:
    files = texts()
    files[DDL] = f"CREATE TABLE a ({COLUMNS}) USING parquet;"
    found = plan(on_topic(), small_project.project(files))
    assert refused(found) == [
        "a changes from parquet to kafka: a topic has no pointer that could lead to the new version"
    ]
    deleted = make_plan(on_topic(), "dev", world(on_topic()), PlanRequest(verb="delete", tables=(T("a"),)))
    assert "topic t and its messages stay: Headgate deletes no topics" in said(deleted)


def test_readers_outside_of_headgate_keep_reading_the_topic() -> None:
    yml = {A: "key: [id]\nreaders: [report]\n"}
    assert plan(on_topic(yml=yml), on_topic(yml=yml), rebuild=True).readers == ()
    assert replace(plan(on_topic()), warnings=()).readers == ()
