"""The console's requests on a real ledger: changes are read, and read errors are reported."""

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import manifest_project
import pytest

from core.model.act_outcomes import ActOutcome, ActResult
from core.model.errors import EngineRefused, Refused, Stale
from core.model.names import TableName
from core.project.revision import RevisionTexts
from core.project_reader.loader import read_project
from core.project_reader.manifest_layout import generated_texts
from state.row_types import EventRow, StagedRow
from tests.support.ledger_rows import plan_of, plan_row
from tests.terminal.ledger_under_load import figures_of, make, name_of, place_of, row_of, write
from tui.presentation.screen_content.changes import ChangeRow, detail
from tui.presentation.screen_content.plan_review import state_of_plan
from tui.presentation.screen_content.screen_frame import act_answer, unstage_answer
from tui.presentation.styling.styled_text import plain
from tui.presentation.styling.theme import UNICODE
from tui.presentation.view.ledger_view import freshness, make_ledger_view
from tui.project_folder.declaring_files import read_files
from tui.screens.audit_log_events import EventsScreen
from tui.screens.backend import ConsoleBackend, files_of
from tui.screens.runs import CONFIRMED_AS
from tui.services.environment_service import EnvironmentService


@pytest.fixture
def ledger(tmp_path: Path):
    with make(tmp_path, 50) as written:
        yield written


@pytest.fixture
def answers(ledger, tmp_path: Path):
    backend = EnvironmentService(place_of(tmp_path), {})
    yield ConsoleBackend(backend)
    backend.close()


def test_a_ledger_that_was_not_written_gives_the_same_object(answers: ConsoleBackend) -> None:
    first = answers.snapshot(None)
    assert answers.snapshot(first) is first


def test_new_figures_leave_every_other_line_the_same_object(answers: ConsoleBackend, ledger) -> None:
    first = answers.snapshot(None)
    ledger.put_measurements([figures_of(7, 5.0, 4321)])
    second = answers.snapshot(first)
    differ = [(old, new) for old, new in zip(first.statements, second.statements, strict=True) if old is not new]
    assert [(old.table, new.table, new.lag_rows) for old, new in differ] == [(name_of(7), name_of(7), 4321)]


def test_a_world_derived_from_another_equals_a_new_one(answers: ConsoleBackend, ledger) -> None:
    chance = random.Random(3)
    snapshot = answers.snapshot(None)
    view = make_ledger_view(snapshot)
    for turn in range(6):
        write(ledger, chance, 50, 9)
        if turn == 3:
            ledger.update_deployment(name_of(4), 1, state="failed", error_class="E", error="it failed")
        if turn == 4:
            ledger.stage([StagedRow("alice", "/p", name_of(2), "deploy", 1.0)])
        snapshot = answers.snapshot(snapshot)
        view = make_ledger_view(snapshot, view)
        assert view == make_ledger_view(snapshot)
    assert view.statements[name_of(4)].line.error == "it failed"
    assert view.statements[name_of(2)].staged


def test_a_new_version_and_a_delete_arrive(answers: ConsoleBackend, ledger) -> None:
    snapshot = answers.snapshot(None)
    ledger.put_deployment(row_of(77, 1.0))
    ledger.tombstone(name_of(5), 1, drop_after=9e9, trash="/trash")
    view = make_ledger_view(answers.snapshot(snapshot), make_ledger_view(snapshot))
    assert name_of(77) in view.statements
    assert name_of(5) not in view.statements


def test_without_a_ledger_the_remedy_is_shown_without_an_exception(tmp_path: Path) -> None:
    answers = ConsoleBackend(EnvironmentService(place_of(tmp_path / "nothing"), {}))
    snapshot = answers.snapshot(None)
    assert "never been started" in snapshot.problem
    assert "headgate up" in snapshot.remedy
    assert freshness(snapshot, 0.0).words == "NO LEDGER"
    assert answers.snapshot(snapshot) is snapshot


def test_a_vanished_ledger_leaves_the_last_known_state_and_may_return(
    answers: ConsoleBackend, ledger, tmp_path: Path
) -> None:
    first = answers.snapshot(None)
    (tmp_path / "ledger.db").rename(tmp_path / "away.db")
    gone = answers.snapshot(first)
    if gone is not first:
        assert gone.problem
        assert gone.statements == first.statements
        again = answers.snapshot(gone)
        assert again.problem
        assert again.statements == first.statements
    (tmp_path / "away.db").rename(tmp_path / "ledger.db")
    back = answers.snapshot(gone)
    assert not back.problem
    assert back.statements == first.statements


def test_a_missing_plan_or_run_is_none(answers: ConsoleBackend) -> None:
    assert answers.plan("ffff") is None
    assert answers.run("ffff") is None


def test_detail_of_a_statement_is_equal_until_something_changes(answers: ConsoleBackend, ledger) -> None:
    first = answers.detail(name_of(3))
    assert answers.detail(name_of(3)) == first
    ledger.put_measurements([figures_of(3, 6.0, 1)])
    assert answers.detail(name_of(3)) != first
    assert answers.detail(TableName("unknown_table")).versions == ()


def test_the_requested_confirmation_is_that_of_the_agent(answers: ConsoleBackend) -> None:
    asked = answers.agent.confirmation
    assert asked("stop", ["a"]).text == "yes"
    assert asked("stop", ["a", "b"]).text == "2"
    assert asked(CONFIRMED_AS["cancel"], ["7f3a-01c2f"]).text == "7f3a"
    many = asked("stop", [f"t{n}" for n in range(30)])
    assert (many.level, many.text.split()[0]) == ("C3", "dev")


def test_the_answer_of_the_agent_is_one_line() -> None:
    done = (
        ActOutcome(TableName("a"), 1, ActResult.STOPPED, 1.0, 210.0),
        ActOutcome(TableName("b"), 1, ActResult.NOT_STOPPED, 1.0, 5.0, error=EngineRefused("the session is closed")),
    )
    assert act_answer("stop", done) == "stop: a stopped in 0.2 s, b not stopped: the session is closed"
    assert act_answer("stop", ()) == "stop: sent"
    assert unstage_answer(("a", "b")) == "2 tables off the stage: a, b"
    assert unstage_answer(()) == "0 tables off the stage: nothing changed: it was staged from another project folder"


def test_events_are_those_of_the_tables_that_are_asked_for(answers: ConsoleBackend, ledger) -> None:
    for n, table in enumerate((name_of(1), name_of(2), name_of(3), "")):
        ledger.add_event(EventRow(0, float(n), table, 1, "state", f"event {n}"))
    state = SimpleNamespace(backend=answers)

    def shown(*tables: str) -> list[str]:
        asked: Any = SimpleNamespace(state=state, tables=tables)
        return [event.summary for event in EventsScreen.fetch(asked)]  # type: ignore[attr-defined]  # A tuple of events.

    assert shown() == ["event 3", "event 2", "event 1", "event 0"]
    assert shown(name_of(2)) == ["event 1"]
    assert shown(name_of(3), name_of(1)) == ["event 2", "event 0"]
    assert [event.summary for event in answers.snapshot(None).events] == shown()


def test_a_plan_whose_file_was_edited_is_refused_with_the_reason(
    answers: ConsoleBackend, ledger, tmp_path: Path
) -> None:
    place, path = place_of(tmp_path), "pipelines/facts/p/t/sql-scripts/dml.t.sql"
    ddl = path.replace("dml.", "ddl.")
    plan = plan_of(TableName("t"))
    texts = {ddl: "CREATE TABLE t", path: "INSERT INTO t"}
    for name, text in ({"headgate.yml": "project: x"} | texts).items():
        (Path(place.folder) / name).parent.mkdir(parents=True, exist_ok=True)
        (Path(place.folder) / name).write_text(text)
    now = time.time()
    ledger.put_plan(plan_row(plan, expires_at=now + 600, texts=json.dumps(texts), folder=place.folder))
    found = answers.plan("7f3a")
    assert found is not None and state_of_plan(found.plan, found.row, now) == "nothing to do: it changes nothing"
    (Path(place.folder) / path).write_text("INSERT INTO t -- otherwise")
    edited = answers.plan("7f3a")
    assert edited is not None
    assert state_of_plan(edited.plan, edited.row, now).startswith(f"superseded by an edit of {path}, ")
    with pytest.raises(Stale, match=f"superseded by an edit of {path}"):
        answers.apply(plan.hash, confirm="")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("manifests/dear.yml", "# A note.\n" + manifest_project.DEAR.replace("10", "20")),
        ("job-template.yaml", "trigger: 1 minute\n"),
        ("schemas/out.sql", manifest_project.OUT.replace("-- in EUR", "-- in USD")),
        ("headgate.yml", manifest_project.HEADGATE.replace("layout: manifests", "layout: folders")),
        ("manifests/dear.yml", None),
        ("job-template.yaml", None),
    ],
)
def test_a_plan_whose_manifest_template_or_definition_was_edited_is_refused_by_its_name(
    path: str, text: str | None, answers: ConsoleBackend, ledger, tmp_path: Path
) -> None:
    place, now = place_of(tmp_path), time.time()
    for name, content in {**manifest_project.files(), "job-template.yaml": "trigger: 2 minutes\n"}.items():
        (Path(place.folder) / name).parent.mkdir(parents=True, exist_ok=True)
        (Path(place.folder) / name).write_text(content)
        os.utime(Path(place.folder) / name, (now - 60, now - 60))
    texts = json.dumps(dict(read_files(place.folder).texts))
    ledger.put_plan(plan_row(plan_of(TableName("dear")), expires_at=now + 600, texts=texts, folder=place.folder))
    manifest = Path(place.folder) / "manifests/dear.yml"
    manifest.write_text("\n" + manifest.read_text())
    found = answers.plan("7f3a")
    assert found is not None and found.row.status == "open", "lines that have moved are no edit"
    os.utime(manifest, (now - 60, now - 60))
    if text is None:
        (Path(place.folder) / path).unlink()
    else:
        (Path(place.folder) / path).write_text(text)
    edited = answers.plan("7f3a")
    assert edited is not None
    assert state_of_plan(edited.plan, edited.row, now).startswith(f"superseded by an edit of {path}")


def test_the_diff_of_a_manifest_names_its_files(tmp_path: Path) -> None:
    project, _ = read_project(generated_texts(manifest_project.files()))
    assert project is not None
    files = files_of(project.tables[TableName("dear")])
    row = ChangeRow("dear", "new", "start", new=RevisionTexts("CREATE", "INSERT", "owner: a"), files=files)
    lines = [
        text.strip()
        for text in map(plain, detail(row, 80, UNICODE, full=True))
        if "manifests" in text or "schemas" in text
    ]
    assert lines == ["manifests/dear.yml", "schemas/out.sql", "manifests/dear.yml and its templates"]


@pytest.mark.parametrize(
    ("verbs", "asked"),
    [(("deploy",), ("deploy", False)), (("hold",), ("deploy", True)), (("deploy", "hold"), ("deploy", True)),
     (("delete",), ("delete", False)), (("delete", "hold"), None), (("delete", "deploy"), None)],
)  # fmt: skip
def test_a_table_staged_as_held_makes_the_plan_hold(
    verbs: tuple[str, ...], asked: tuple[str, bool] | None, answers: ConsoleBackend, ledger, monkeypatch, tmp_path: Path
) -> None:
    folder = place_of(tmp_path).folder
    for number, verb in enumerate(verbs):
        ledger.stage([StagedRow("ana", folder, TableName(name_of(number)), verb, 1.0)])
    requests: list[Any] = []

    def submit(service: Any, request: Any) -> Any:
        requests.append((request.verb, request.hold))
        return SimpleNamespace(plan=SimpleNamespace(empty=False, hash="7f3a"))

    monkeypatch.setattr(EnvironmentService, "submit", submit)
    if asked is None:
        with pytest.raises(Refused, match="both deploys and deletes are staged"):
            answers.submit("ana")
    else:
        assert answers.submit("ana") == "7f3a" and requests == [asked]


def test_nothing_that_only_later_screens_need_is_imported_before_the_first_frame() -> None:
    program = (
        "import sys\n"
        "import tui.commands.console_up_down, tui.screens.startup, tui.presentation.view.ledger_view\n"
        "import state.ledger_snapshot, tui.terminal.first_frame\n"
        "print(sorted({'textual', 'tui.screens.backend', 'tui.services.teardown', 'sqlglot'} & sys.modules.keys()))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
