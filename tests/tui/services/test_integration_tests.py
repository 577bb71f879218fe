"""headgate test --integration: selection, results, reports and exit codes, with an environment in memory."""

import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest
from command_line import written

from core.integration_tests.positions import Position, Unread
from core.integration_tests.scenarios import Disturbance, ScenarioInput, Shown
from core.model.act_outcomes import ActOutcome, ActResult
from core.model.errors import HeadgateError, Refused
from core.model.names import TableName as T
from core.project.ephemeral import Remains, Teardown
from core.project.model import Project, Table
from core.project_reader.ephemeral_project import EphemeralProject, upstream_of
from core.run.records import StepRow
from core.sql.statement import TableDdl
from core.statement_tests.case import Row
from core.statement_tests.request import CaseOutcome
from tui.command_line import exit_codes
from tui.project_folder.declaring_files import list_files, read_integration_files
from tui.project_folder.environment_selection import select_environment
from tui.services import ephemeral_teardown, integration_tests
from tui.services.environment_service import EnvironmentService
from tui.services.ephemeral_environment import (
    DeploymentFailed,
    EphemeralRequest,
    NotInTime,
    StatementFailed,
)
from tui.services.integration_scenarios import ScenarioRun, _copied_checkpoints, _started_with
from tui.services.integration_tests import TestBench
from tui.services.table_client import SparkServer

CASE = "given:\n  - landed: [{id: 1, kind: x}]\n  - landed: [{id: 2}]\nexpect:\n  b: [{id: 1, kind: x}, {id: 2}]\n"
PATH = "pipelines/facts/p/integration/one.yml"


@dataclass
class FakeEnvironment:
    """An environment whose tables all have the rows of `landed`, except for those in `wrong`."""

    tables: Mapping[T, Table]
    project: EphemeralProject
    server: SparkServer
    wrong: Mapping[str, tuple[Row, ...]]
    fails: dict[int, HeadgateError]
    did: list[str]
    landed: list[Row] = field(default_factory=list)
    parts: int = 0
    after_kill: Mapping[str, tuple[Row, ...]] = field(default_factory=dict)
    refuses: Mapping[str, HeadgateError] = field(default_factory=dict)
    drifts: Mapping[str, dict[str, str]] = field(default_factory=dict)
    has_batch: bool = True

    def write_rows(self, source: T, rows: Iterable[Row]) -> None:
        self.landed += rows
        self.did.append(f"write {source}")

    def deploy(self, progress: object, request: object = None) -> None:
        self.did.append("deploy")
        if request is not None and "redeploy" in self.refuses:
            raise self.refuses["redeploy"]

    def wait_until_read(self, progress: object, *, seconds: float, what: str) -> float:
        self.parts += 1
        self.did.append(f"read {what} within {seconds:g}")
        if self.parts in self.fails:
            raise self.fails[self.parts]
        return 1.5

    def rows(self, table: T) -> tuple[Row, ...]:
        return self.wrong.get(table, tuple(self.landed))

    def write_rows_as(self, ddl: TableDdl, rows: Iterable[Row]) -> None:
        self.landed += [row[:-1] for row in rows]
        self.did.append(f"write {len(ddl.columns)} columns")

    def declare(self, texts: Mapping[str, str]) -> None:
        self.did.append(f"declare {', '.join(texts)}")
        if "declare" in self.refuses:
            raise self.refuses["declare"]

    def declare_all(self, project: Project, texts: Mapping[str, str], tables: Iterable[T]) -> None:
        self.did.append(f"upgrade {' '.join(tables)}")
        self.wrong = {**self.wrong, **self.after_kill}

    def act(self, verb: str, tables: Iterable[T]) -> tuple[ActOutcome, ...]:
        self.did.append(verb)
        refused = self.refuses.get(verb)
        result = ActResult.NOT_RESTARTED if refused else ActResult.RESTARTED
        return tuple(ActOutcome(name, 1, result, None, 1.0, error=refused) for name in tables)

    def columns_in_files(self, table: T) -> dict[str, str]:
        return {"id": "bigint", **self.drifts.get(table, {})}

    def wait_for_batch(self, progress: object, *, seconds: float) -> bool:
        self.did.append("wait for a batch")
        return self.has_batch

    def kill_server(self, progress: object) -> None:
        self.did.append("kill")
        self.wrong = {**self.wrong, **self.after_kill}


@dataclass
class World:
    """What the environments of a command do, and what they did."""

    wrong: dict[str, tuple[Row, ...]] = field(default_factory=dict)
    fails: dict[int, HeadgateError] = field(default_factory=dict)
    left: tuple[Any, ...] = ()
    refuses: dict[str, HeadgateError] = field(default_factory=dict)
    after_kill: dict[str, tuple[Row, ...]] = field(default_factory=dict)
    drifts: dict[str, dict[str, str]] = field(default_factory=dict)
    did: list[str] = field(default_factory=list)
    asked: list[EphemeralRequest] = field(default_factory=list)
    right: int = 0
    """Number of environments before the first one that has the rows in `wrong`."""
    has_batch: bool = True


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    found = World()

    @contextmanager
    def environment(
        operations: EnvironmentService,
        request: EphemeralRequest,
        progress: object,
        *,
        ended: Callable[[Teardown], None],
    ) -> Iterator[FakeEnvironment]:
        found.asked.append(request)
        project = operations.project()
        built = tuple(name for name in upstream_of(project, request.tables) if not project.tables[name].external)
        generated = EphemeralProject({}, built, {T("landed"): "/landing"})
        server = SparkServer("sc://host:1", "")
        yield FakeEnvironment(
            project.tables, generated, server,
            found.wrong if len(found.asked) > found.right else {},
            found.fails, found.did,
            after_kill=found.after_kill, refuses=found.refuses, has_batch=found.has_batch,
            drifts=found.drifts,
        )  # fmt: skip
        ended(Teardown("it_1", (), "/e/it_1", left=found.left))

    monkeypatch.setattr(integration_tests, "ephemeral_environment", environment)
    monkeypatch.setattr(ephemeral_teardown, "end_abandoned", lambda environ, progress: ())
    return found


def put(folder: Path, text: str = CASE, path: str = PATH) -> None:
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_text(text)


def test_a_case_is_written_part_by_part_and_compared(
    folder: Path, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    put(folder)
    found = written(["test", "--integration", "--json"], capsys)
    assert (found["passed"], [each["outcome"] for each in found["results"]]) == (True, ["passed"])
    assert world.did == [
        "write landed", "deploy", "read part 1 of 2 within 60", "write landed", "read part 2 of 2 within 60",
    ]  # fmt: skip
    assert [request.tables for request in world.asked] == [("b",)]


def test_a_difference_fails_and_is_written_to_both_reports(
    folder: Path, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    put(folder, CASE + "  a: [{id: 1, kind: x}, {id: 2}]\n")
    world.wrong = {"a": ((1, "x"),), "b": ()}
    words = ["--junit", str(folder / "r.xml"), "--markdown", str(folder / "r.md")]
    assert exit_codes.run_command_line(["test", "--integration", *words]) == 1
    said = capsys.readouterr()
    assert "FAIL  p/one: a differs: 1 missing, 0 unexpected, 0 with other values" in said.out
    assert "missing    {id: 2}" in said.out and "it_1 is gone" in said.err
    (suite,) = ElementTree.fromstring((folder / "r.xml").read_text())
    assert suite.get("failures") == "1" and "1 of 1 test failed" in (folder / "r.md").read_text()


@pytest.mark.parametrize(
    ("error", "outcome", "words"),
    [
        (StatementFailed("a failed (X): no", table=T("a")), "failed", "after part 2, a failed (X): no"),
        (NotInTime(5, (Unread.PENDING.of(table="a", files=2),)), "failed",
         "part 2 was not read everywhere within 5 s: a has 2 files to read"),
        (HeadgateError("the pool is gone", remedy="look"), "error", "the pool is gone; look"),
    ],
)  # fmt: skip
def test_a_statement_that_fails_or_is_slow_and_a_lost_server_are_told_apart(
    folder: Path, world: World, capsys: pytest.CaptureFixture[str], error: HeadgateError, outcome: str, words: str
) -> None:
    put(folder, CASE + "within: 5\n")
    world.fails = {2: error}
    (result,) = written(["test", "--integration", "--json"], capsys, 1)["results"]
    assert (result["outcome"], result["fact"]["sentence"]) == (outcome, words)


def test_something_that_is_left_fails_the_command(
    folder: Path, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    put(folder)
    world.left = (Remains.FOLDER.of(folder="/e/it_1"),)
    found = written(["test", "--integration", "--json"], capsys, 1)
    assert not found["passed"] and found["environments"][0]["left"][0]["kind"] == "folder"


def test_several_cases_share_one_server_and_are_chosen_by_their_tables(folder: Path, world: World) -> None:
    put(folder)
    put(folder, CASE.replace("  b:", "  a:"), PATH.replace("one", "two"))
    assert exit_codes.run_command_line(["test", "--integration"]) == 0
    assert [(request.tables, request.server is not None) for request in world.asked] == [
        (("b",), False), (("b",), True), (("a",), True),
    ]  # fmt: skip
    world.asked.clear()
    assert exit_codes.run_command_line(["test", "--integration", "a"]) == 0
    assert [request.tables for request in world.asked] == [("a",)]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--integration"], "there is no integration test"),
        (["--integration", "--product", "q"], "'q' is not a product"),
        (["--integration", "nope"], "nope is not declared"),
        (["--lateness", "5"], "--lateness is about integration tests"),
        (["--integration", "--lateness", "5"], "--lateness is about late rows"),
        (["--integration", "--scenario", "replay,schema", "--lateness", "5"], "--lateness is about late rows"),
        (["--integration", "--upgrade"], "--upgrade is about cases of one statement"),
        (["--pool", "dev"], "--pool is about integration tests"),
        (["--junit", "x.xml"], "--junit and --markdown are about integration tests"),
    ],
)
def test_wrong_words_are_refused_before_anything_starts(
    folder: Path, world: World, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert exit_codes.run_command_line(["test", *words]) == 2
    assert said in capsys.readouterr().err and not world.asked


def test_all_mistakes_of_cases_are_listed_and_nothing_runs(
    folder: Path, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    put(folder, "given: {landed: [{id: x}]}\nexpect: {b: []}\n")
    put(folder, CASE.replace("kind: x", "kynd: x"), PATH.replace("one", "two"))
    assert exit_codes.run_command_line(["test", "--integration"]) == 2
    said = capsys.readouterr().err
    assert f"{PATH}:1" in said and f"{PATH.replace('one', 'two')}:2" in said and not world.asked


def test_plans_ignore_cases_but_not_a_table_called_integration(folder: Path) -> None:
    put(folder)
    put(folder, "id\n1\n", PATH.replace("one.yml", "rows.csv"))
    assert not any("/integration/" in path for path in list_files(str(folder))[0])
    assert set(read_integration_files(str(folder), "pipelines")) == {PATH, PATH.replace("one.yml", "rows.csv")}
    put(folder, "CREATE TABLE integration (id INT) USING parquet;", PATH.replace("one.yml", "sql-scripts/ddl.x.sql"))
    assert PATH in list_files(str(folder))[0] and read_integration_files(str(folder), "pipelines") == {}


def test_a_first_case_is_recorded_and_never_overwritten(
    folder: Path, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(["test", "init", "--integration", "b", "--json"], capsys)["written"]
    assert path.endswith("/integration/b_recorded.yml")
    text = (folder / path).read_text()
    assert text.startswith("# A first case") and "expect:\n  b:\n    - {id: 1" in text
    assert exit_codes.run_command_line(["test", "init", "--integration", "b"]) == 3
    assert (folder / path).read_text() == text
    assert exit_codes.run_command_line(["test", "--integration", "b"]) == 0, "it passes as recorded"
    world.fails = {1: StatementFailed("a failed", table=T("a"))}
    (folder / path).unlink()
    capsys.readouterr()
    assert exit_codes.run_command_line(["test", "init", "--integration", "b"]) == 1
    assert "correct the statement" in capsys.readouterr().err and not (folder / path).exists()
    world.fails = {1: NotInTime(5, (Unread.PENDING.of(table="a", files=2),))}
    assert exit_codes.run_command_line(["test", "init", "--integration", "b", "--timeout", "5"]) == 1
    assert "give more time: --timeout S" in capsys.readouterr().err and "within 5" in world.did[-1]


def test_a_restart_kills_a_server_of_its_own_in_the_middle_and_the_rows_are_compared_with_an_undisturbed_run(
    folder: Path, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    put(folder)
    words = ["test", "--integration", "--scenario", "restart", "a", "b", "--json"]
    (result,) = written(words, capsys)["results"]
    assert result["name"] == "restart: a b" and result["outcome"] == "passed"
    assert result["notes"][-1]["sentence"] == f"input: 2 parts of {PATH}"
    assert [(request.tables, request.server) for request in world.asked] == [(("a", "b"), None)] * 2
    assert world.did[-4:] == ["write landed", "wait for a batch", "kill", "read part 2 of 2 within 60"]
    world.after_kill = {"b": ((1, "x"), (1, "x"), (2, None))}
    (result,) = written(words, capsys, 1)["results"]
    assert (result["fact"]["kind"], result["table"]) == ("different", "b")
    assert result["fact"]["sentence"].startswith("b differs after the server was killed when a batch had begun: 0 mi")


def test_a_rebuild_over_the_same_rows_whose_validation_fails_is_a_difference(
    folder: Path, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    put(folder)
    words = ["test", "--integration", "--scenario", "replay", "b", "--json"]
    assert written(words, capsys)["results"][0]["outcome"] == "passed"
    step = StepRow(5, "validate", "b", 2, "failed", note="rows 9 → 1")
    world.refuses = {"redeploy": DeploymentFailed(step)}
    (result,) = written(words, capsys, 1)["results"]
    assert (result["outcome"], result["fact"]["kind"], result["table"]) == ("failed", "not_valid", "b")
    assert result["fact"]["sentence"].endswith("in a version that has read the same input again: rows 9 → 1")
    world.refuses = {"redeploy": DeploymentFailed(replace(step, do="start"))}
    assert written(words, capsys, 1)["results"][0]["outcome"] == "error"


def test_a_restart_without_a_batch_says_so(folder: Path, world: World, capsys: pytest.CaptureFixture[str]) -> None:
    put(folder)
    world.has_batch = False
    (result,) = written(["test", "--integration", "--scenario", "restart", "b", "--json"], capsys)["results"]
    assert result["fact"]["sentence"].endswith("after the server was killed between batches (none began in 60 s)")


def test_scenarios_run_for_each_product_with_generated_rows_unless_there_is_a_case(
    folder: Path, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    found = written(["test", "--integration", "--scenario", "restart", "--json"], capsys)["results"]
    assert [each["name"] for each in found] == ["restart: p"]
    assert found[0]["notes"][-1]["sentence"] == "input: 3 parts generated"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--integration", "--scenario", "nope"], "there is no scenario 'nope'"),
        (["--scenario", "restart"], "--scenario is about integration tests"),
    ],
)
def test_an_unknown_scenario_is_refused(
    folder: Path, world: World, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert exit_codes.run_command_line(["test", *words]) == 2
    assert said in capsys.readouterr().err and not world.asked


THREE = CASE.replace("expect:", "  - landed: [{id: 3}]\nexpect:").replace("{id: 2}]\n", "{id: 2}, {id: 3}]\n", 1)


def test_late_rows_are_written_in_another_order_and_nothing_else_is_different(
    folder: Path, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["test", "--integration", "--scenario", "late", "b", "--json"]
    put(folder, CASE.replace("[{id: 2}]", "[{id: 2}, {id: 3}]", 1))
    (result,) = written(words, capsys)["results"]
    assert result["fact"]["sentence"].endswith("are the same with 2 rows in another order")
    assert len(world.asked) == 2 and world.did.count("deploy") == 2


def test_rows_are_as_late_as_the_command_says_and_a_failure_shows_shorter_delays(
    folder: Path, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = "(id BIGINT, kind STRING, ts TIMESTAMP)"
    for ddl in folder.rglob("ddl.*.sql"):
        ddl.write_text(ddl.read_text().replace("(id BIGINT, kind STRING)", columns))
    for table, parent, delay in (("a", "landed", 20), ("b", "a", 4)):
        (dml,) = folder.rglob(f"dml.{table}.sql")
        watermark = f"WATERMARK ts DELAY OF INTERVAL {delay} SECONDS"
        dml.write_text(f"INSERT INTO {table} SELECT id, kind, ts FROM STREAM {parent} {watermark};")
    words = ["test", "--integration", "--scenario", "late", "b", "--json"]
    (result,) = written(words, capsys)["results"]
    assert result["fact"]["sentence"].endswith("with 7 rows in another order and 3 rows up to 10 s late")
    assert result["notes"][0]["kind"] == "half_delay"
    (result,) = written([*words, "--lateness", "60"], capsys)["results"]
    assert result["fact"]["sentence"].endswith("and 3 rows up to 60 s late") and len(world.asked) == 4
    assert [note["kind"] for note in result["notes"]] == ["input"]
    world.wrong, world.right = {"b": ()}, len(world.asked) + 1
    (result,) = written([*words, "--lateness", "10"], capsys, 1)["results"]
    assert result["notes"][0]["sentence"] == "the watermark of b has a delay of 4 s only"
    world.wrong = {}
    times = ("2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z")
    rows = [f"{{id: {n}, kind: x, ts: {at}}}" for n, at in enumerate(times)]
    put(folder, f"given:\n  - landed: [{', '.join(rows)}]\n  - landed: [{rows[1]}]\nexpect: {{b: [{rows[0]}]}}\n")
    (result,) = written([*words, "--lateness", "10"], capsys)["results"]
    assert result["notes"][0]["sentence"] == (
        "no row was late: no two rows of a stream in part 1 are at most 10 s apart"
    )


def test_the_scenario_late_is_skipped_if_no_row_can_be_late_or_in_another_order(
    folder: Path, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    put(folder, CASE)
    (result,) = written(["test", "--integration", "--scenario", "late", "b", "--json"], capsys)["results"]
    assert (result["outcome"], result["fact"]["kind"]) == ("skipped", "not_late")


def test_a_source_has_the_column_in_its_rows_first_and_then_in_its_declaration(
    folder: Path, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    put(folder, THREE)
    words = ["test", "--integration", "--scenario", "schema", "b", "--json"]
    (result,) = written(words, capsys)["results"]
    assert result["outcome"] == "passed"
    tail = [each for each in world.did if not each.startswith("read")][-6:]
    assert tail == [
        "deploy", "write 3 columns", "declare pipelines/sources/p/landed/sql-scripts/ddl.landed.sql", "deploy",
        "restart", "write 3 columns",
    ]  # fmt: skip
    world.refuses = {"restart": Refused("too many columns", remedy="")}
    (result,) = written(words, capsys, 1)["results"]
    assert (result["outcome"], result["fact"]["kind"], result["table"]) == ("failed", "not_taken", "a")
    assert result["fact"]["sentence"].endswith("when landed get a column: a does not start: too many columns")
    world.refuses = {"declare": HeadgateError("a reads all columns", remedy="")}
    (result,) = written(words, capsys, 1)["results"]
    assert (result["outcome"], result["fact"]["kind"]) == ("failed", "not_taken")
    assert "do not go on when landed get a column: a reads all columns" in result["fact"]["sentence"]


@pytest.mark.parametrize("drift", [{"added_by_test": "string"}, {"s": "struct<id:bigint,added_by_test:string>"}])
def test_a_statement_that_writes_the_column_of_its_source_without_declaring_it_fails(
    folder: Path, world: World, capsys: pytest.CaptureFixture[str], drift: dict[str, str]
) -> None:
    put(folder, THREE)
    world.drifts = {"b": drift}
    (result,) = written(["test", "--integration", "--scenario", "schema", "b", "--json"], capsys, 1)["results"]
    assert (result["outcome"], result["table"]) == ("failed", "b")
    (column,) = drift
    assert result["fact"]["sentence"] == f"b gets the column of its sources in {column}, which it does not declare"


def test_with_two_parts_the_column_is_declared_before_the_second(
    folder: Path, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    put(folder)
    (result,) = written(["test", "--integration", "--scenario", "schema", "b", "--json"], capsys)["results"]
    assert result["fact"]["sentence"].endswith("when sources get a column in their declaration, then in rows")
    declared = "declare pipelines/sources/p/landed/sql-scripts/ddl.landed.sql"
    assert [each for each in world.did if not each.startswith("read")][-5:] == [
        "deploy", declared, "deploy", "restart", "write 3 columns",
    ]  # fmt: skip


def test_a_source_without_later_rows_gets_no_column_and_nothing_is_shown(
    folder: Path, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    put(folder, CASE.replace("[{id: 2}]", "[]", 1).replace(", {id: 2}", ""))
    (result,) = written(["test", "--integration", "--scenario", "schema", "b", "--json"], capsys)["results"]
    assert (result["outcome"], result["fact"]["kind"]) == ("skipped", "no_later_row")


@pytest.mark.parametrize("scenario", [each for each in Disturbance if each is not Disturbance.REPLAY])
def test_one_part_has_no_middle_to_disturb(folder: Path, world: World, scenario: Disturbance) -> None:
    operations = EnvironmentService(select_environment({}, str(folder), environment="dev"), {})
    bench = TestBench(operations, None, 60.0, lambda progress: None, lambda end: None)
    one = ScenarioInput(({T("landed"): ((1, "x"), (2, "x"))},), "given", middle=2)
    result = ScenarioRun(bench, "b", (T("b"),), one, one).run(scenario)
    assert (result.outcome, result.fact.kind) == (CaseOutcome.SKIPPED, Shown.NO_MIDDLE) and not world.asked


def git(folder: Path, *words: str) -> None:
    subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=folder, check=True, capture_output=True
    )


def test_an_upgrade_goes_on_from_the_old_statements_and_what_the_plan_announces_is_no_failure(
    folder: Path, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    put(folder, THREE)
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "one")):
        git(folder, *words)
    words = ["test", "--integration", "--scenario", "upgrade", "--since", "HEAD", "b", "--json"]
    (result,) = written(words, capsys)["results"]
    assert (result["outcome"], result["fact"]["kind"]) == ("skipped", "no_change")
    dml = folder / "pipelines/facts/p/b/sql-scripts/dml.b.sql"
    dml.write_text(dml.read_text().replace("SELECT id, kind", "SELECT id, upper(kind) AS kind"))
    (result,) = written(words, capsys)["results"]
    assert (result["outcome"], result["fact"]["kind"]) == ("passed", "same")
    assert "upgrade b" in world.did
    assert world.asked[-1].texts is not None and world.asked[-1].texts[str(dml.relative_to(folder))] != dml.read_text()
    assert [note["kind"] for note in result["notes"]] == ["input"]
    world.wrong, world.right = {"b": ()}, len(world.asked) + 1
    (result,) = written(words, capsys)["results"]
    assert result["notes"][0]["sentence"] == "b had written no row before the upgrade"
    world.wrong = {}
    world.after_kill = {"b": ((1, "X"),)}
    (result,) = written(words, capsys)["results"]
    assert (result["outcome"], result["fact"]["kind"]) == ("passed", "announced")
    world.after_kill = {"a": ((1, "X"),)}
    (result,) = written(words, capsys, 1)["results"]
    assert (result["outcome"], result["table"]) == ("failed", "a")


def test_old_statements_need_a_place(folder: Path, world: World, capsys: pytest.CaptureFixture[str]) -> None:
    put(folder, THREE)
    assert exit_codes.run_command_line(["test", "--integration", "--since", "HEAD"]) == 2
    assert "add --scenario upgrade" in capsys.readouterr().err
    assert exit_codes.run_command_line(["test", "--integration", "--scenario", "upgrade", "b"]) == 2
    assert "nothing was ever deployed" in capsys.readouterr().err


@dataclass
class Checkpoints:
    """An environment in which `a` has begun batch 1 when checkpoints are copied, and all have ended it in the end."""

    folder: Path
    begun: int
    project: EphemeralProject = field(init=False)
    started: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.project = EphemeralProject({}, (T("a"), T("b")), {}, {T("b"): None})  # type: ignore[dict-item] # not read

    def positions(self, *, stopped: bool) -> dict[T, Position]:
        ends = (1, 1) if self.started else (0, self.begun)
        kept = {"pending": 0, "watermark_ms": 0, "next_watermark_ms": 0, "stateful": False}
        return {name: Position(name, 1, *ends, **kept) for name in self.project.built}  # type: ignore[arg-type] # one dict

    @property
    def operations(self) -> Any:
        rows = [
            SimpleNamespace(active=True, table=name, checkpoint=str(self.folder / name)) for name in self.project.built
        ]
        return SimpleNamespace(reader=SimpleNamespace(deployments=lambda: rows))

    def act(self, verb: str, tables: Iterable[T]) -> tuple[Any, ...]:
        self.started += tables if verb == "start" else ()
        return tuple(SimpleNamespace(error=Refused("older")) for _ in tables)


@pytest.mark.parametrize(("begun", "refused"), [(0, ["a"]), (1, [])])
def test_older_checkpoints_must_be_refused_unless_their_batch_had_begun_or_a_topic_is_written(
    tmp_path: Path, begun: int, refused: list[str]
) -> None:
    found = Checkpoints(tmp_path, begun)
    for name in found.project.built:
        (tmp_path / name).mkdir()
    older = _copied_checkpoints(found)  # type: ignore[arg-type] # the methods that are used
    assert [each.table for each in older] == ["a"]
    assert _started_with(found, older) == (refused, [])  # type: ignore[arg-type] # the methods that are used


def over_a_topic(folder: Path, columns: str = "", options: str = "") -> None:
    ddl = folder / "pipelines/sources/p/landed/sql-scripts/ddl.landed.sql"
    options = f"OPTIONS ('kafka.bootstrap.servers'='b:9092', subscribe='landed'{options})"
    ddl.write_text(f"CREATE TABLE landed (id BIGINT, kind STRING{columns}) USING kafka {options};")
    manifest = folder / "headgate.yml"
    manifest.write_text(manifest.read_text() + "connectors: {kafka: {}, postgres: {}}\n")


def test_topics_that_cannot_be_replaced_are_refused_before_anything_starts(
    folder: Path, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    over_a_topic(folder, options=", 'value.format'='avro', 'schema.registry'='http://r:8081'")
    put(folder)
    for words in ([], ["--scenario", "all"]):
        assert exit_codes.run_command_line(["test", "--integration", *words]) == 3
        assert "a reads landed, whose messages are Avro" in capsys.readouterr().err
    assert not world.asked


def test_a_case_gives_no_value_to_what_the_broker_assigns(
    folder: Path, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    over_a_topic(folder, ", _offset BIGINT")
    put(folder, CASE.replace("kind: x}", "kind: x, _offset: 7}", 1))
    assert exit_codes.run_command_line(["test", "--integration"]) == 2
    assert "landed has values of _offset, which the broker gives to each message" in capsys.readouterr().err
    assert not world.asked


def test_a_result_says_that_the_connection_to_a_database_was_not_tested(
    folder: Path, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    over_a_topic(folder)
    ddl = folder / "pipelines/sources/p/landed/sql-scripts/ddl.landed.sql"
    database = "url 'jdbc:postgresql://db:5432/shop', user 'reader', dbtable 'public.x', publication 'p'"
    ddl.write_text(f"CREATE TABLE landed (id BIGINT, kind STRING) USING postgres_changes OPTIONS ({database});")
    put(folder)
    (result,) = written(["test", "--integration", "--json"], capsys)["results"]
    assert [note["kind"] for note in result["notes"]] == ["stand_in"]
    assert result["notes"][0]["sentence"] == (
        "files stood for landed, so the connection to the database was not tested"
    )
