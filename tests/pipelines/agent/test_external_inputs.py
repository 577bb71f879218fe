"""External Delta tables in the agent: registered where their log is, compared with their DDL, and never changed."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import small_project
from agent_scenarios import read_before
from ledger_rows import external_row
from pytest_httpserver import HTTPServer

from core.model.errors import Refused, TryAgain
from core.model.names import TableName as T
from core.model.states import State, TableFaultKind
from core.plan.request import PlanRequest
from core.planner.planner import make_plan
from core.ports.storage import TableFault
from core.project.overlay import OVERLAY_FILE, Overlay, overlay_as_text
from core.project.revision import RevisionTexts
from pipelines.agent.context import AgentContext
from pipelines.agent.pool.pool_catalog import register_together
from pipelines.agent.reconciler import BeforeRound, Reconciler
from pipelines.agent.runs import pointer_steps, run_driver, step_executor
from pipelines.agent.statements.changed_tables import ChangedTables
from pipelines.agent.statements.deployment_lifecycle import check_checkpoint
from pipelines.agent.tables.external_inputs import refuse_unlike_inputs
from state.emergency_journal import EmergencyJournal
from tests.pipelines.agent.runs import test_fork_steps as forks
from tests.pipelines.agent.runs import test_run_driver as lane

LAKE = "/lake/orders"
DDL = f"CREATE TABLE landed (id BIGINT, kind STRING) USING delta LOCATION '{LAKE}';"
ALL = PlanRequest(everything=True, children="all")


def files(ddl: str = DDL, **selects: str) -> dict[str, str]:
    """Return a project whose input is an external Delta table."""
    found = small_project.texts(**selects)
    place = next(path for path in found if path.endswith("ddl.landed.sql"))
    return found | {place: ddl, "headgate.yml": found["headgate.yml"] + "connectors: {delta: {}}\n"}


@pytest.fixture(autouse=True)
def open_gates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_executor, "CatchUpGate", lane.OpenGate)
    monkeypatch.setattr(pointer_steps, "CatchUpGate", lane.OpenGate)
    monkeypatch.setattr(run_driver, "POLL_S", 0.001)


@pytest.fixture
def lake(agent: Any) -> Any:
    """An environment in which the external table exists, with one more column than declared."""
    agent.files.ids[LAKE] = "id-1"
    agent.files.types[LAKE] = {"id": "bigint", "Kind": "string", "more": "int"}
    return agent


@pytest.fixture
def deployed(lake: Any, pool: Any) -> Any:
    forks.applied(lake, pool, files(), ALL)
    return lake


def landed(agent: AgentContext) -> Any:
    return agent.ledger.deployment(T("landed"), 0)


def test_an_input_registered_again_during_its_check_keeps_the_new_record(deployed: Any) -> None:
    deployed.files.ids[LAKE] = "id-2"

    def registered() -> None:
        deployed.ledger.update_deployment(T("landed"), 0, table_id="id-3")

    ChangedTables(read_before(deployed, "deployments", registered)).round()
    assert landed(deployed).table_id == "id-3"


def a(agent: AgentContext) -> Any:
    return agent.ledger.deployment(T("a"), 1)


def register_step(agent: AgentContext, pool: Any, texts: dict[str, str]) -> tuple[str, str]:
    """Apply a plan for everything, and return the state and the note of its first step."""
    run = lane.submit(agent, lane.plan(agent, texts, ALL))
    lane.drive(agent, run)
    steps = agent.ledger.run(run).steps  # type: ignore[union-attr]
    return next((step.state, step.note) for step in steps if step.do == "register")


def test_it_is_registered_as_its_log_has_it_and_its_id_is_recorded(deployed: Any, pool: Any) -> None:
    assert pool.tables["landed"].endswith(f"USING delta LOCATION '{LAKE}'")
    assert (landed(deployed).table_id, landed(deployed).folder) == ("id-1", LAKE)
    assert a(deployed).state == State.RUNNING
    assert LAKE not in deployed.files.folders, "nothing is prepared there"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda found: found.ids.clear(), f"landed has no table: {LAKE} has no _delta_log"),
        (lambda found: (found.ids.clear(), found.removed.add(LAKE)), f"landed has no table: there is no folder {LAKE}"),
        (lambda found: found.types.update({LAKE: {"id": "int", "kind": "string"}}),
         f"ddl.landed.sql declares id bigint, and the table at {LAKE} has it as int"),
        (lambda found: found.types.update({LAKE: {"id": "bigint", "sort": "string"}}),
         f"ddl.landed.sql declares kind string, and the table at {LAKE} has no such column: it has id, sort"),
    ],
    ids=["no log", "no folder", "another type", "a column less"],
)  # fmt: skip
def test_an_external_table_that_contradicts_its_ddl_is_not_registered(
    change: Any, words: str, lake: Any, pool: Any
) -> None:
    change(lake.files)
    state, note = register_step(lake, pool, files())
    assert state == "failed" and words in note, note
    assert "landed" not in pool.tables and landed(lake) is None


def test_a_declared_property_must_be_in_the_log(lake: Any, pool: Any) -> None:
    ddl = DDL.replace(";", " TBLPROPERTIES ('delta.enableChangeDataFeed'='true');")
    state, note = register_step(lake, pool, files(ddl))
    expected = f"ddl.landed.sql declares delta.enableChangeDataFeed = true, and the table at {LAKE} does not set it"
    assert state == "failed" and expected in note
    lake.files.said[LAKE] = {"delta.enablechangedatafeed": "TRUE"}
    forks.applied(lake, pool, files(ddl), PlanRequest(everything=True, children="all", nonce="n"))


def test_a_new_declaration_of_an_external_table_is_compared_and_nothing_is_altered(deployed: Any, pool: Any) -> None:
    wider = files(DDL.replace("kind STRING", "kind STRING, more INT"))
    plan, _ = forks.applied(deployed, pool, wider, PlanRequest(tables=(T("landed"),)))
    assert [(step.do, step.table) for step in plan.steps] == [("register", "landed")]
    assert landed(deployed).columns == ("id", "kind", "more") and " + " not in pool.tables["landed"]
    assert LAKE not in deployed.files.folders


def test_a_new_catalog_gets_it_only_where_its_log_is(deployed: Any, pool: Any, tmp_path: Path) -> None:
    reconciler = Reconciler(deployed, EmergencyJournal(tmp_path / "emergency"))
    pool.tables.clear()
    pool.views.clear()
    del deployed.files.ids[LAKE]
    reconciler.restore(pool.connection())
    assert "landed" not in pool.tables
    assert landed(deployed).error == (
        f"its table is not in the pool's catalog: landed has no table: {LAKE} has no _delta_log"
    )
    deployed.files.ids[LAKE] = "id-1"
    deployed.files.types[LAKE] = {"id": "bigint"}
    reconciler.restore(pool.connection())
    assert "landed" in pool.tables, "what a reader lacks is said to the reader alone"
    assert (landed(deployed).error, landed(deployed).error_class) == ("", "")
    deployed.monotonic = lambda: 1e9
    reconciler.round(BeforeRound.of(deployed), pool.connection().queries.active(), ())
    assert register_together(deployed, pool.connection(), ()) == set()


@pytest.mark.parametrize(
    ("why", "remedy", "said"),
    [
        ("was re-created: its id is y, and what was read had x",
         "headgate plan a --rebuild reads what is there now, or have the owner of the table put back what was there",
         TableFaultKind.REPLACED),
        ("was changed by DELETE in version 3, which it has not read: a stream of rows cannot continue past that",
         "headgate plan a --rebuild reads what is there now; with ('skipChangeCommits'='true') on its STREAM it skips "
         "such versions", TableFaultKind.ROWS_CHANGED),
        ("is gone: there is no _delta_log",
         "have the owner of the table put it back: Headgate never creates external tables", TableFaultKind.GONE),
    ],
    ids=["re-created", "changed", "gone"],
)  # fmt: skip
def test_changes_by_the_owner_are_reported_to_readers_with_a_remedy_of_ours(
    why: str, remedy: str, said: TableFaultKind, deployed: Any
) -> None:
    deployed.files.others[a(deployed).checkpoint] = (T("landed"), TableFault(said, why))
    with pytest.raises(Refused) as refused:
        check_checkpoint(deployed, a(deployed))
    assert (refused.value.summary, refused.value.remedy) == (f"landed, which a@v1 reads, {why}", remedy)
    ChangedTables(deployed).round()
    assert (a(deployed).state, a(deployed).error_class) == (State.FAILED, said)
    assert a(deployed).error == f"landed, which a@v1 reads, {why}; {remedy}"


def test_a_lost_column_is_reported_only_to_the_readers_that_read_it(deployed: Any, pool: Any) -> None:
    forks.applied(deployed, pool, files(a="SELECT id, 'x' AS kind FROM STREAM landed"), ALL)
    deployed.files.types[LAKE] = {"id": "bigint"}
    check_checkpoint(deployed, a(deployed))
    deployed.files.types[LAKE] = {"key": "bigint", "kind": "string"}
    words = f"a@v1 reads landed: ddl.landed.sql declares id bigint, and the table at {LAKE} has no such column"
    with pytest.raises(Refused, match=words):
        check_checkpoint(deployed, a(deployed))
    ChangedTables(deployed).round()
    assert (a(deployed).state, a(deployed).error_class) == (State.FAILED, TableFaultKind.COLUMNS_CHANGED)


@pytest.mark.parametrize(("there", "goes_on"), [("decimal(38,0)", False), ("int", False), ("bigint", True)])
def test_a_changed_type_of_an_input_is_reported_before_a_start(there: str, goes_on: bool, deployed: Any) -> None:
    deployed.files.types[LAKE] = {"id": there, "kind": "string"}
    if goes_on:
        check_checkpoint(deployed, a(deployed))
        return
    with pytest.raises(Refused, match=f"has it as {there.partition('(')[0]}"):
        check_checkpoint(deployed, a(deployed))


def test_a_wider_type_that_fits_without_rounding_is_left_to_spark_at_a_start_and_declared_in_a_plan(
    lake: Any, pool: Any
) -> None:
    narrow = files(DDL.replace("BIGINT", "INT"), a="SELECT id * 1L AS id, kind FROM STREAM landed")
    lake.files.types[LAKE] = {"id": "int", "kind": "string"}
    forks.applied(lake, pool, narrow, ALL)
    lake.files.types[LAKE] = {"id": "bigint", "kind": "string"}
    check_checkpoint(lake, a(lake))
    wide = files(DDL, a="SELECT id * 1L AS id, kind FROM STREAM landed")
    plan, _ = forks.applied(lake, pool, wide, PlanRequest(tables=(T("landed"),)))
    assert [step.do for step in plan.steps] == ["register"]


def said(agent: AgentContext, table: str = "landed") -> list[tuple[str, str]]:
    return [(event.summary, event.detail) for event in agent.ledger.events_of(T(table), "exception")]


def test_a_fault_of_an_external_table_is_reported_once_and_withdrawn(deployed: Any) -> None:
    rounds, gone = ChangedTables(deployed), f"landed has no table: {LAKE} has no _delta_log"
    rounds.round()
    assert (landed(deployed).error, said(deployed)) == ("", [])
    del deployed.files.ids[LAKE]
    for _ in range(2):
        rounds.round()
    assert landed(deployed).error == (
        f"{gone}; have its owner put it back: Headgate never creates external tables; if it was moved, "
        "declare the new location under a new name and move its readers there"
    ), "a plan with another LOCATION is refused once it is registered"
    assert [summary for summary, _ in said(deployed)] == [TableFaultKind.GONE]
    deployed.files.ids[LAKE] = "id-1"
    rounds.round()
    assert landed(deployed).error == "" and len(said(deployed)) == 1
    deployed.files.types[LAKE] = {"id": "bigint"}
    rounds.round()
    assert "ddl.landed.sql declares kind string" in landed(deployed).error


def test_a_recreated_external_table_is_reported_once_with_both_ids(deployed: Any) -> None:
    deployed.files.ids[LAKE] = "id-2"
    for _ in range(2):
        ChangedTables(deployed).round()
    ((summary, detail),) = said(deployed)
    assert summary == TableFaultKind.REPLACED and detail.startswith(
        "landed was re-created: its id is id-2 and was id-1; "
    )
    assert (landed(deployed).table_id, landed(deployed).error) == ("id-2", "")


def test_a_refusal_by_the_catalog_stays_visible_in_its_words(deployed: Any) -> None:
    words = "its table is not in the pool's catalog: landed has no table"
    deployed.ledger.update_deployment(T("landed"), 0, error=words, error_class=TableFaultKind.NOT_IN_CATALOG)
    del deployed.files.ids[LAKE]
    ChangedTables(deployed).round()
    assert landed(deployed).error == words


def test_if_spark_ends_a_reader_first_the_change_is_still_explained_in_our_words(
    deployed: Any, pool: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    why = "was changed by RESTORE in version 7, which it has not read: a stream of rows cannot continue past that"
    reconciler = Reconciler(deployed, EmergencyJournal(tmp_path / "emergency"))

    def ended() -> None:
        query = pool.connection().queries._query("a@v1")
        over = replace(query, active=False, error="Spark's words", error_class="DELTA_SOURCE_IGNORE_DELETE")
        deployed.ledger.update_deployment(T("a"), 1, state=State.RUNNING, run_id=over.run_id, query_id=over.id)
        pool.running.pop("a@v1", None)
        reconciler.round(BeforeRound.of(deployed), pool.connection().queries.active(), (over,))

    ended()
    assert (a(deployed).error_class, a(deployed).error) == ("DELTA_SOURCE_IGNORE_DELETE", "Spark's words")
    deployed.files.others[a(deployed).checkpoint] = (T("landed"), TableFault(TableFaultKind.ROWS_CHANGED, why))
    ended()
    assert (a(deployed).error_class, a(deployed).state) == (TableFaultKind.ROWS_CHANGED, State.FAILED)
    assert a(deployed).error.startswith(f"landed, which a@v1 reads, {why}; headgate plan a --rebuild")


def test_a_column_that_an_input_of_files_gets_is_noted_in_the_ledger_and_not_in_its_folder(
    agent: Any, pool: Any
) -> None:
    forks.applied(agent, pool, small_project.texts(), ALL)
    place = next(path for path in small_project.texts() if path.endswith("ddl.landed.sql"))
    wider = small_project.texts() | {
        place: "CREATE TABLE landed (id BIGINT, kind STRING, more INT) USING json LOCATION 'landing';"
    }
    forks.applied(agent, pool, wider, PlanRequest(tables=(T("landed"),)))
    assert landed(agent).columns == ("id", "kind", "more") and " + " in pool.tables["landed"]
    assert landed(agent).folder not in agent.files.folders


def test_a_plan_over_an_input_that_contradicts_its_ddl_is_refused_with_the_file(agent: Any) -> None:
    lake = agent.files
    project = small_project.project(files())

    def refused(*tables: str) -> str:
        observed: Any = {}
        plan = make_plan(project, "dev", observed, PlanRequest(tables=tuple(map(T, tables))))
        try:
            refuse_unlike_inputs(agent, project, plan)
        except Refused as error:
            return error.summary
        return ""

    assert refused("a") == f"landed has no table: {LAKE} has no _delta_log"
    lake.ids[LAKE], lake.types[LAKE] = "id-1", {"id": "bigint", "kind": "int"}
    file = "pipelines/sources/p/landed/sql-scripts/ddl.landed.sql"
    assert refused("a") == f"{file} declares kind string, and the table at {LAKE} has it as int"
    lake.types[LAKE] = {"id": "bigint", "kind": "string"}
    assert refused("a") == ""


@pytest.mark.parametrize(
    "summary",
    [f"the log of {LAKE} cannot be read: it requires newFeature, which Headgate does not support", "/lake is not there",
     f"{LAKE} cannot be reached: Permission denied", f"the disk under {LAKE} is full: No space left on device"],
)  # fmt: skip
def test_the_reason_for_missing_figures_of_an_external_table_is_shown_until_they_are_known(
    summary: str, deployed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def identity(folder: str, format: str) -> str:
        raise TryAgain(summary, remedy="mount it")

    with monkeypatch.context() as unread:
        unread.setattr(deployed.files, "identity", identity)
        for _ in range(2):
            ChangedTables(deployed).round()
        assert landed(deployed).error == f"{summary}; mount it"
        assert said(deployed) == [(TableFaultKind.UNREAD, f"{summary}; mount it")]
    ChangedTables(deployed).round()
    assert (landed(deployed).error, landed(deployed).table_id) == ("", "id-1")


def test_a_connector_that_does_not_run_is_a_fault_of_all_tables_that_it_fills(
    agent: Any, httpserver: HTTPServer
) -> None:
    answers = [{"state": "FAILED", "trace": "no login\n\tat X"}, {"state": "RUNNING"}]
    for task in answers:
        whole = {"connector": {"state": "RUNNING"}, "tasks": [{"id": 0, **task}]}
        httpserver.expect_ordered_request("/connectors/orders/status").respond_with_json(whole)
    url = httpserver.url_for("/connectors/orders")
    for name in ("t", "u"):
        ddl = f"CREATE TABLE {name} (id INT) USING kafka OPTIONS ('kafka.bootstrap.servers'='h:9', subscribe='{name}');"
        texts = RevisionTexts(ddl, "", f"connector: {url}\n")
        place = {"format": "kafka", "folder": f"kafka://h:9/{name}", "compiled_ddl": ddl}
        agent.ledger.put_deployment(external_row(name, texts=texts, **place))
    rounds = ChangedTables(agent)

    def faults() -> list[tuple[str, str]]:
        rounds.round()
        rows = (agent.ledger.deployment(T(name), 0) for name in ("t", "u"))
        return [(row.error_class, row.error.partition(";")[0]) for row in rows]

    words = f"task 0 of connector orders at {httpserver.host}:{httpserver.port} is FAILED: no login"
    assert faults() == [("HEADGATE_INPUT_NOT_FILLED", words)] * 2
    assert faults() == [("", "")] * 2
    httpserver.check()
    assert len(httpserver.log) == 2, "one request in each round, however many tables"


def test_topics_without_a_message_for_longer_than_their_yml_allows_are_a_fault(
    agent: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ddl = "CREATE TABLE t (id INT) USING kafka OPTIONS ('kafka.bootstrap.servers'='h:9', subscribe='t');"
    place = {"format": "kafka", "folder": "kafka://h:9/t", "compiled_ddl": ddl}
    agent.ledger.put_deployment(external_row("t", texts=RevisionTexts(ddl, "", "silence: 1 minute\n"), **place))
    now = 1_767_225_600.0
    monkeypatch.setattr(agent, "clock", lambda: now)

    def looks(at_s: float, end: int, newest_s: float | None, rounds: ChangedTables) -> str:
        """Look at the topic `at_s` after the first look; its newest message has the timestamp `newest_s`."""
        nonlocal now
        now = 1_767_225_600.0 + at_s
        agent.files.newest["kafka://h:9/t"] = (end, None if newest_s is None else 1_767_225_600.0 + newest_s)
        rounds.round()
        return str(agent.ledger.deployment(T("t"), 0).error)

    words = "t has had no new message since {}, which is longer than the 1 minute that its yml allows"
    rounds = ChangedTables(agent)
    assert looks(0, 7, -20, rounds) == "" and looks(30, 7, -20, rounds) == ""
    fault = looks(60, 7, -20, rounds)
    assert fault.startswith(words.format("2025-12-31 23:59:40 UTC")) and looks(90, 7, -20, rounds) == fault
    assert len([each for each in agent.ledger.events() if each.summary == "HEADGATE_INPUT_NOT_FILLED"]) == 1
    assert looks(120, 8, 100, rounds) == "", "a message has arrived"
    assert looks(180, 8, -5000, rounds) == "", "it arrived at 120 s, whatever its timestamp is"
    assert looks(210, 8, -5000, rounds).startswith(words.format("2026-01-01 00:02:00 UTC"))
    again = ChangedTables(agent)
    assert looks(300, 0, None, again) == "" and looks(360, 0, None, again) == ""
    assert looks(390, 0, None, again).startswith(words.format("2026-01-01 00:05:00 UTC")), "it never had a message"


def test_a_setting_in_its_yml_is_recorded(deployed: Any, pool: Any) -> None:
    again = PlanRequest(tables=(T("landed"),), nonce="again")
    forks.applied(deployed, pool, files() | {"pipelines/sources/p/landed/landed.yml": "owner: ana\n"}, again)
    assert "owner: ana\n" in landed(deployed).texts.yml


@pytest.mark.parametrize("format", ["json", "delta"])
def test_a_statement_of_an_overlay_is_refused_and_stopped_when_its_base_is_gone(
    agent: Any, pool: Any, format: str
) -> None:
    agent.files.ids[LAKE], agent.files.types[LAKE] = "id-1", {"id": "bigint", "kind": "string"}
    forks.applied(agent, pool, files(DDL.replace("delta", format)), ALL)
    read = {T("landed"): 3}
    overlay = Overlay("dev", "/home/dev", "/data", "/branch", 1.0, "ana", 9e9, inherited=read)
    Path(agent.places.home, OVERLAY_FILE).write_text(overlay_as_text(overlay))
    check_checkpoint(agent, a(agent))
    agent.files.removed.add(LAKE)
    with pytest.raises(Refused) as refused:
        check_checkpoint(agent, a(agent))
    assert refused.value.summary == f"a@v1 reads landed@v3 of dev, which is gone: it is no longer in {LAKE}"
    assert "headgate undelete landed --env dev" in refused.value.remedy
    here = agent.layout.environment.name
    assert f"headgate down --env {here} --purge, then headgate up --env {here} --from dev" in refused.value.remedy
    ChangedTables(agent).round()
    assert a(agent).state == State.FAILED and a(agent).error_class == TableFaultKind.GONE
    assert a(agent).error.startswith("a@v1 reads landed@v3 of dev, which is gone")
    if format == "delta":
        assert landed(agent).error.startswith("landed is landed@v3 of dev, which is gone: it is no longer in")


def test_a_base_whose_disk_is_not_mounted_is_not_taken_for_deleted(agent: Any, pool: Any) -> None:
    forks.applied(agent, pool, files(DDL.replace("delta", "json")), ALL)
    overlay = Overlay("dev", "/home/dev", "/data", "/branch", 1.0, "ana", 9e9, inherited={T("landed"): 3})
    Path(agent.places.home, OVERLAY_FILE).write_text(overlay_as_text(overlay))
    agent.files.removed |= {LAKE, "/data/tables"}
    check_checkpoint(agent, a(agent))
