"""Projects, statements, processes and teardown: the services behind both front ends."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from live_project import until

from core.model.errors import InvalidProject, LedgerUnavailable, Refused, UsageError
from core.model.names import TableName
from core.project.model import Layer
from core.project_reader.paths import unreadable_files
from tui.agent_client import agent_process, os_processes
from tui.project_folder import project_folder_reader
from tui.project_folder.declaring_files import read_files
from tui.project_folder.environment_selection import SelectedEnvironment
from tui.project_folder.project_folder_reader import DeclaredTable
from tui.services import demo_project, deployed_statements, teardown
from tui.services.environment_service import EnvironmentService

SLEEP = "import time; time.sleep(60)"


def test_declared_tables_are_known_from_the_names_of_their_files(folder: Path) -> None:
    assert project_folder_reader.declared_tables(str(folder)) == (
        DeclaredTable("a", "p", Layer.SOURCE, external=False),
        DeclaredTable("b", "p", Layer.FACT, external=False),
        DeclaredTable("landed", "p", Layer.SOURCE, external=True),
    )


def test_names_of_files_and_the_real_reading_agree(place: SelectedEnvironment) -> None:
    project = project_folder_reader.parse(place, read_files(place.folder).texts)[0]
    found = project_folder_reader.declared_tables(place.folder)
    assert [(entry.table, entry.product, entry.layer, entry.external) for entry in found] == [
        (table.name, table.product, table.layer, table.external) for table in project.tables.values()
    ]


def test_texts_are_those_of_headgate_yml_and_of_pipelines_alone(folder: Path) -> None:
    (folder / "data" / "tables").mkdir(parents=True)
    (folder / "data" / "tables" / "x.sql").write_text("no")
    (folder / "notes.sql").write_text("no")
    (folder / "pipelines" / "notes.txt").write_text("no")
    assert all(path == "headgate.yml" or path.startswith("pipelines/") for path in read_files(str(folder)).texts)
    assert not any("notes" in path for path in read_files(str(folder)).texts)


def test_an_unreadable_file_is_named(folder: Path) -> None:
    (folder / "pipelines/facts/p/b/b.yml").write_bytes(b"\xff\xfe\x00")
    (problem,) = unreadable_files(read_files(str(folder)).texts).values()
    assert problem.where is not None and problem.where.path == "pipelines/facts/p/b/b.yml"
    assert problem.summary == "b.yml cannot be read: it is not UTF-8, because of byte 1"


def test_a_missing_project_is_reported(folder: Path, place: SelectedEnvironment) -> None:
    folder.rename(folder.parent / "elsewhere")
    with pytest.raises(UsageError) as refused:
        read_files(place.folder)
    assert "does not exist" in refused.value.summary


def test_a_project_is_read_again_only_when_a_file_changed(folder: Path, place: SelectedEnvironment) -> None:
    reader = project_folder_reader.ProjectReader(place, {})
    first = reader.read().project
    assert reader.read().project is first
    (folder / "pipelines/facts/p/b/sql-scripts/dml.b.sql").write_text(
        "INSERT INTO b SELECT id, kind FROM STREAM a; -- x"
    )
    assert reader.read().project is not first


def test_problems_come_all_at_once(folder: Path, place: SelectedEnvironment) -> None:
    (folder / "pipelines/facts/p/b/sql-scripts/dml.b.sql").write_text("INSERT INTO b SELECT id FROM STREAM nowhere")
    (folder / "pipelines/facts/p/b/b.yml").write_text("triger: 5 seconds")
    with pytest.raises(InvalidProject) as refused:
        project_folder_reader.parse(place, read_files(place.folder).texts)
    assert len(refused.value.problems) >= 2


def test_an_environment_never_started_says_how_to_start_it(place: SelectedEnvironment) -> None:
    with pytest.raises(LedgerUnavailable) as refused:
        EnvironmentService(place, {}).snapshot()
    assert refused.value.remedy == "start it: headgate up --env dev"


def test_drift_is_detected_by_revision(folder: Path, place: SelectedEnvironment, ledger: Any, deployed: Any) -> None:
    from core.project.revision import revision_hash
    from core.project_reader.revision_reader import revision_of

    operations = EnvironmentService(place, {})
    texts = revision_of(operations.project().tables[TableName("a")]).texts
    ledger.put_deployment(deployed("a", revision=revision_hash(texts)))
    ledger.put_deployment(deployed("gone"))
    assert operations.drift() == deployed_statements.ProjectDrift(
        changed=(), new=(TableName("b"),), gone=(TableName("gone"),)
    )
    (folder / "pipelines/sources/p/a/sql-scripts/dml.a.sql").write_text(
        "INSERT INTO a SELECT id, kind FROM STREAM landed -- x"
    )
    assert operations.drift().changed == ("a",)


def test_a_deleted_table_is_no_difference_until_its_files_change(
    folder: Path, place: SelectedEnvironment, ledger: Any, deployed: Any
) -> None:
    from core.project.revision import revision_hash
    from core.project_reader.revision_reader import revision_of

    operations = EnvironmentService(place, {})
    texts = revision_of(operations.project().tables[TableName("b")]).texts
    for version, revision in ((1, "older"), (2, revision_hash(texts))):
        ledger.put_deployment(deployed("b", version=version, revision=revision, active=version == 2))
        ledger.tombstone(TableName("b"), version, drop_after=9e9, trash="/trash")
    assert (operations.drift().new, operations.drift().deleted) == (("a",), ("b",))
    assert operations.snapshot().deleted == ("b",)
    (folder / "pipelines/facts/p/b/sql-scripts/dml.b.sql").write_text(
        "INSERT INTO b SELECT id, kind FROM STREAM a WHERE id > 0;"
    )
    assert (operations.drift().new, operations.drift().deleted) == (("a", "b"), ())


def test_staging_is_recorded_as_it_would_be_typed_and_unstage_names_what_was_staged(
    place: SelectedEnvironment, agent: Any
) -> None:
    agent.script["unstage"] = {"unstaged": ["b"]}
    operations = EnvironmentService(place, {})
    operations.agent.stage([TableName("b"), TableName("a")], verb="delete")
    assert operations.agent.unstage([TableName("a"), TableName("b")]) == ("b",)
    assert [request["line"] for request in agent.heard] == [":delete a b", ":unstage a b"]


def test_a_table_has_one_line_for_its_serving_version(ledger: Any, deployed: Any, place: SelectedEnvironment) -> None:
    ledger.put_deployment(deployed("a", version=1, active=True))
    ledger.put_deployment(deployed("a", version=2, active=False, state="starting"))
    snapshot = EnvironmentService(place, {}).snapshot()
    assert [(line.table, line.version) for line in snapshot.serving] == [("a", 1)]
    assert len(snapshot.statements) == 2


def test_a_child_is_started_isolated_in_a_session_of_its_own(tmp_path: Path) -> None:
    log = tmp_path / "log"
    program = (
        "import json, os, sys; print(json.dumps([os.getcwd(), os.getsid(0) == os.getpid(), sys.flags.isolated, "
        "os.umask(0), os.environ.get('PYTHONPATH'), sorted(os.listdir('/dev/fd'))[:3]]))"
    )
    inherited = os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(inherited, True)
    child = os_processes.start_detached([sys.executable, "-I", "-c", program], {"PYTHONPATH": "."}, str(log))
    child.wait(60)
    os.close(inherited)
    assert json.loads(log.read_text()) == ["/", True, 1, os_processes.UMASK, None, ["0", "1", "2"]]


def test_a_process_is_known_by_pid_and_start_and_can_be_ended() -> None:
    child = subprocess.Popen([sys.executable, "-c", SLEEP])
    found = os_processes.identify(child.pid)
    assert found and found.alive
    assert not os_processes.OsProcess(child.pid, "another start").alive
    assert os_processes.end_process(found, patience_s=10.0) and not found.alive
    assert os_processes.identify(child.pid) is None


def test_a_foreign_process_is_not_mistaken_for_the_agent(place: SelectedEnvironment) -> None:
    child = subprocess.Popen([sys.executable, "-c", SLEEP])
    Path(place.where.home).mkdir(parents=True)
    Path(place.where.lock).write_text(str(child.pid))
    Path(place.data).mkdir()
    Path(place.data, "generator.lock").write_text(str(child.pid))
    Path(place.where.pool_file).write_text(json.dumps({"pid": child.pid, "marker": "feed"}))
    try:
        assert agent_process.find_agent_process(place) is None
        assert teardown.still_running(place) == []
    finally:
        child.kill()
        child.wait()


def test_the_pool_of_a_copied_home_is_not_used_by_the_copy(place: SelectedEnvironment) -> None:
    child = subprocess.Popen([sys.executable, "-c", SLEEP, "-Dheadgate.pool=feed"])
    Path(place.where.home).mkdir(parents=True)
    record = {"pid": child.pid, "marker": "feed"}
    try:
        Path(place.where.pool_file).write_text(json.dumps(record | {"home": place.where.home}))
        # For a moment after a start, the kernel shows no command line.
        until(lambda: agent_process.find_pool_process(place) is not None, 10, "the process is found")
        found = agent_process.find_pool_process(place)
        assert found and found.pid == child.pid
        Path(place.where.pool_file).write_text(json.dumps(record | {"home": f"{place.where.home}-copied-from"}))
        assert agent_process.find_pool_process(place) is None
    finally:
        child.kill()
        child.wait()


def test_the_agent_of_a_protected_environment_is_never_started(folder: Path, tmp_path: Path) -> None:
    from tui.agent_client.socket_client import AgentClient
    from tui.project_folder.environment_selection import select_environment

    prod = select_environment({"HEADGATE_HOME": str(tmp_path / "home")}, str(folder), environment="prod")
    with pytest.raises(Refused):
        agent_process.ensure_running(prod, AgentClient(prod.where.socket, ledger=1), {}, progress=lambda wait: None)
    assert not Path(prod.where.home).exists()


def test_an_agent_that_ends_at_once_is_quoted(place: SelectedEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    from tui.agent_client.socket_client import AgentClient

    program = "import sys; print('the lock is held', file=sys.stderr); sys.exit(3)"
    monkeypatch.setattr(agent_process, "agent_command", lambda place: [sys.executable, "-I", "-c", program])
    with pytest.raises(Refused) as refused:
        agent_process.ensure_running(place, AgentClient(place.where.socket, ledger=1), {}, progress=lambda wait: None)
    assert "the lock is held" in refused.value.summary


def test_the_demos_folder_is_never_inside_the_clone(tmp_path: Path) -> None:
    clone = Path(demo_project.__file__).resolve().parents[2]
    assert demo_project.default_folder(str(tmp_path)) == str(tmp_path / "headgate-demo")
    assert demo_project.default_folder(str(clone)) == str(clone.parent / "headgate-demo")
    assert demo_project.default_folder(str(clone / "tests")) == str(clone.parent / "headgate-demo")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5 seconds", 5.0), ("1 minute", 60.0), ("INTERVAL 2 SECONDS", 2.0), ("500 milliseconds", 0.5)],
)
def test_triggers_are_read_as_seconds(text: str, seconds: float) -> None:
    assert demo_project.trigger_s(text) == seconds


def test_the_rounds_of_the_sample_are_those_of_its_own_process(tmp_path: Path) -> None:
    from pipelines.demo.event_generator import how_many_rounds
    from tui.project_folder.environment_selection import select_environment

    made = demo_project.copy_sample(str(tmp_path / "demo"), os.environ)
    place = select_environment({"HEADGATE_HOME": str(tmp_path / "home")}, made["folder"])
    project = project_folder_reader.parse(place, read_files(place.folder).texts)[0]
    assert demo_project.rounds_of(project) == how_many_rounds(project)


def test_a_ledger_that_still_says_up_is_not_believed_while_the_pool_is_gone(
    place: SelectedEnvironment, ledger: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path(place.where.pool_file).write_text(json.dumps({"pid": 999_999_999, "marker": "feed"}))
    waits: list[agent_process.WaitProgress] = []

    def look(wait: agent_process.WaitProgress) -> None:
        waits.append(wait)
        Path(place.where.pool_file).unlink(missing_ok=True)

    agent_process.wait_for_pool(place, look, seconds=5.0)
    assert len(waits) == 1


def test_a_broken_file_leaves_the_other_tables_compared(folder: Path, place: SelectedEnvironment, ledger: Any) -> None:
    (folder / "pipelines/facts/p/b/sql-scripts/dml.b.sql").write_text("INSERT INTO b SELCT id FORM")
    from tui.screens.backend import ConsoleBackend

    service = EnvironmentService(place, {})
    backend = ConsoleBackend(service)
    found = backend.project()
    assert [(row.table, row.change, row.would) for row in found.drift] == [
        ("a", "new", "start + 1"), ("b", "1 problem in its files", "refused"),
    ]  # fmt: skip
    assert len(found.problems) == backend.problems_in_files == 1 and not found.missing and "b" in found.declared
    assert "dml.b.sql:1" in backend.declared("b").missing and "FROM STREAM landed" in backend.declared("a").dml
    (folder / "headgate.yml").write_text("project: shop\n")
    backend.check_files()
    assert backend.problems_in_files > 1
    service.close()


def test_an_agent_that_was_killed_is_no_agent(place: SelectedEnvironment, ledger: Any) -> None:
    service = EnvironmentService(place, {})
    ledger.heartbeat(time.time())
    facts = service.snapshot().facts
    assert facts is not None and facts.agent_pid == 1
    ledger.heartbeat(time.time() - 60)
    found = service.snapshot()
    assert found.facts is not None and found.facts.agent_pid is None
    assert service.snapshot() is found, "the console redraws nothing until the ledger changes"


def test_an_agent_that_answers_or_holds_its_lock_is_stale(
    place: SelectedEnvironment, ledger: Any, agent: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.heartbeat(time.time() - 60)
    facts = EnvironmentService(place, {}).snapshot().facts
    assert facts is not None and facts.agent_pid == 1
    monkeypatch.setattr(agent_process, "is_listening", lambda client: False)
    monkeypatch.setattr(agent_process, "find_agent_process", lambda place: object())
    facts = EnvironmentService(place, {}).snapshot().facts
    assert facts is not None and facts.agent_pid == 1
