"""Overlays as files: generated from a branch and the ledger of the base, generated again, and refused."""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from ledger_rows import environment_row

from core.model.errors import Refused, UsageError
from core.model.names import TableName as T
from core.project_reader.loader import read_project
from core.project_reader.revision_reader import revision_of
from state.ledger import Ledger, create_or_open
from tests.support.submission_desk import deployed
from tui.command_line import exit_codes
from tui.commands import console_up_down
from tui.project_folder.declaring_files import read_files
from tui.project_folder.environment_selection import select_environment
from tui.services import teardown
from tui.services.environment_service import EnvironmentService
from tui.services.overlays import CreatedOverlay, create_overlay

B = "pipelines/facts/p/b/sql-scripts/dml.b.sql"
A = "pipelines/sources/p/a/sql-scripts/dml.a.sql"


@dataclass
class Branch:
    folder: Path
    environ: dict[str, str]
    base: Ledger

    def up(self, **more: Any) -> CreatedOverlay | None:
        given: dict[str, Any] = {"environment": "pr-1", "base": "dev", "expires_s": 3600.0, "since_s": None}
        return create_overlay(self.environ, str(self.folder), project=None, now=1_000.0, **{**given, **more})

    def edit(self, path: str, text: str) -> None:
        (self.folder / path).write_text(text)

    def ledger_of(self, created: CreatedOverlay) -> Ledger:
        place = created.place
        row = environment_row(
            ledger_id="pr", project_id=place.project_id, project=place.project, environment=place.environment
        )
        return create_or_open(Path(place.where.ledger), row)


@pytest.fixture
def branch(folder: Path, tmp_path: Path) -> Iterator[Branch]:
    environ = {"HEADGATE_HOME": str(tmp_path / "home")}
    place = select_environment(environ, str(folder), environment="dev")
    row = environment_row(ledger_id="dev", project_id=place.project_id, project=place.project, environment="dev")
    with create_or_open(Path(place.where.ledger), row) as ledger:
        project, problems = read_project(read_files(str(folder)).texts)
        assert project is not None, problems
        for name, parent in (("landed", ""), ("a", "landed"), ("b", "a")):
            ledger.put_deployment(deployed(name, parent, revision_of(project.tables[T(name)])))
        yield Branch(folder, environ, ledger)


FILTERED = "INSERT INTO b SELECT id, kind FROM STREAM a WHERE id > 0;"


def test_an_overlay_is_selected_from_the_branch_and_declares_what_it_builds_and_reads(branch: Branch) -> None:
    assert branch.up() is None and not Path(branch.environ["HEADGATE_HOME"]).joinpath("shop/pr-1").exists()
    branch.edit(B, FILTERED)
    found = branch.up()
    assert found is not None
    assert (found.project.built, dict(found.overlay.inherited)) == (("b",), {"a": 1})
    assert (found.overlay.base, found.overlay.expires_at, found.behind) == ("dev", 4_600.0, {})
    place = select_environment(branch.environ, str(branch.folder), environment="pr-1")
    assert place == found.place and place.overlay == found.overlay and not place.protected
    assert place.data.endswith("data.pr-1") and place.folder == f"{place.where.home}/project"
    project, problems = read_project(read_files(place.folder).texts, environment="pr-1")
    assert project is not None, problems
    assert project.tables[T("a")].external and project.tables[T("a")].parsed_ddl.location == "/t/a"
    assert place.start == ""
    with pytest.raises(Refused, match="pr-1 exists, and its statements keep the positions at which they began"):
        branch.up(since_s=600.0)


def test_new_statements_of_an_overlay_begin_at_its_window(branch: Branch) -> None:
    branch.edit(B, FILTERED)
    found = branch.up(since_s=600.0)
    assert found is not None and found.place.start == "since:1970-01-01T00:06:40Z"


def test_the_versions_that_are_read_stay_until_the_base_deletes_them(branch: Branch) -> None:
    branch.edit(B, FILTERED)
    assert branch.up() is not None
    old = branch.base.deployment(T("a"), 1)
    assert old is not None
    newer = replace(old, version=2, folder="/t/a2")
    branch.base.put_deployment(newer)
    again = branch.up(expires_s=None)
    assert again is not None and dict(again.overlay.inherited) == {"a": 1} and again.behind == {"a": 2}
    assert again.overlay.expires_at == 4_600.0
    branch.base.update_deployment(T("a"), 1, drop_after=5.0)
    with pytest.raises(Refused, match="dev has deleted a@v1, which pr-1 reads"):
        branch.up()
    branch.edit(A, "INSERT INTO a SELECT id, lower(kind) AS kind FROM STREAM landed;")
    with pytest.raises(Refused, match="dev has deleted a@v1, which pr-1 reads"):
        branch.up()


def test_env_lists_the_versions_that_the_base_has_replaced_or_deleted(
    branch: Branch, capsys: pytest.CaptureFixture[str]
) -> None:
    branch.edit(B, FILTERED)
    assert branch.up() is not None

    def said() -> list[str]:
        assert exit_codes.run_command_line(["env"]) == 0
        return [line for line in capsys.readouterr().out.splitlines() if "pr-1 still reads" in line]

    assert said() == []
    old = branch.base.deployment(T("a"), 1)
    assert old is not None
    branch.base.put_deployment(replace(old, version=2, folder="/t/a2"))
    again = "to read what serves: headgate down --env pr-1 --purge, then headgate up --env pr-1 --from dev"
    assert said() == [f"pr-1: dev now serves a@v2, and pr-1 still reads a@v1; {again}"]
    branch.base.update_deployment(T("a"), 1, wanted="stopped")
    assert said() == [f"pr-1: dev now serves a@v2, and pr-1 still reads a@v1, which gets no more rows; {again}"]
    for version in (1, 2):
        branch.base.update_deployment(T("a"), version, drop_after=5.0)
    assert said() == [f"pr-1: dev has deleted a, and pr-1 still reads a@v1, which gets no more rows; {again}"]


def test_a_table_that_was_read_is_not_built_later_and_a_built_one_stays_built(branch: Branch) -> None:
    branch.edit(B, FILTERED)
    created = branch.up()
    assert created is not None
    text = (branch.folder / A).read_text()
    branch.edit(A, "INSERT INTO a SELECT id, lower(kind) AS kind FROM STREAM landed;")
    with pytest.raises(Refused, match="pr-1 reads a of dev, and now has to build it"):
        branch.up()
    branch.edit(A, text)
    with branch.ledger_of(created) as ledger:
        project, _ = read_project(read_files(created.place.folder).texts, environment="pr-1")
        assert project is not None
        ledger.put_deployment(deployed("b", "a", revision_of(project.tables[T("b")])))
    branch.edit(B, "INSERT INTO b SELECT id, kind FROM STREAM a;")
    again = branch.up()
    assert again is not None and again.project.built == ("b",)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"environment": "dev"}, "dev is declared in headgate.yml"),
        ({"environment": "../x"}, "cannot name an overlay"),
        ({"environment": "DEV"}, "differs from dev only in case"),
        ({"base": "nowhere"}, "declares no environment 'nowhere'"),
        ({"base": "pr-1", "environment": "pr-2"}, "pr-1 overlays dev itself"),
    ],
)
def test_what_cannot_be_an_overlay_is_refused_and_nothing_is_created(
    branch: Branch, given: dict[str, str], why: str
) -> None:
    branch.edit(B, FILTERED)
    assert branch.up() is not None
    homes = set(os.listdir(Path(branch.base.path).parent.parent))
    with pytest.raises(UsageError, match=why):
        branch.up(**given)
    assert set(os.listdir(Path(branch.base.path).parent.parent)) == homes


def test_a_purge_deletes_the_overlay_with_its_project_and_is_refused_while_it_is_read(
    branch: Branch, capsys: pytest.CaptureFixture[str]
) -> None:
    branch.edit(B, FILTERED)
    created = branch.up()
    assert created is not None
    dev = select_environment(branch.environ, str(branch.folder), environment="dev")
    assert exit_codes.run_command_line(["down", "--purge", "--env", "dev", "--confirm", "shop"]) == 3
    assert "pr-1 reads a of dev" in capsys.readouterr().err, "even before its agent has run"
    with branch.ledger_of(created) as ledger:
        external = deployed("a", "", _revision(created, "a"))
        ledger.put_deployment(replace(external, folder=f"{dev.data}/tables/a__v1"))
    assert exit_codes.run_command_line(["down", "--purge", "--env", "dev", "--confirm", "shop"]) == 3
    assert "pr-1 reads a of dev" in capsys.readouterr().err
    data = Path(created.place.data)
    data.mkdir()
    (data / teardown.WORLD_FILE).write_text('{"ledger": "pr"}')
    assert exit_codes.run_command_line(["down", "--purge", "--env", "pr-1", "--confirm", "shop"]) == 0
    assert not Path(created.place.where.home).exists() and not data.exists()


def test_env_lists_an_overlay_with_its_base_and_its_end(branch: Branch, capsys: pytest.CaptureFixture[str]) -> None:
    branch.edit(B, FILTERED)
    assert create_overlay(
        branch.environ, str(branch.folder), project=None, environment="pr-1", base="dev", expires_s=7200.0,
        since_s=None, now=time.time(),
    )  # fmt: skip
    assert exit_codes.run_command_line(["env"]) == 0
    said = capsys.readouterr().out
    assert "pr-1: overlay of dev by " in said and "expires in 1h 59m" in said, said
    place = select_environment(branch.environ, str(branch.folder), environment="pr-1")
    identity = console_up_down._identity(EnvironmentService(place, branch.environ))
    assert (place.title, identity.title) == ("shop pr-1 over dev", "shop pr-1 over dev")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["up", "--expires", "2d"], "--expires and --since belong to an overlay"),
        (["up", "--from", "dev"], "an overlay needs a name"),
        (["up", "--from", "dev", "--env", "pr-1", "--since", "2"], "--since '2' is not a time"),
    ],
)
def test_a_bad_request_for_an_overlay_is_one_sentence(
    branch: Branch, words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_codes.run_command_line(words) == 2
    assert why in capsys.readouterr().err


def test_a_damaged_file_of_an_overlay_is_written_again_and_prevents_no_purge(branch: Branch) -> None:
    branch.edit(B, FILTERED)
    created = branch.up()
    assert created is not None
    file = Path(created.place.where.home, "overlay.json")
    file.write_text("{")
    place = select_environment(branch.environ, str(branch.folder), environment="pr-1")
    assert place.overlay is None and place.folder == created.place.folder
    assert branch.up() == created
    file.write_text("")
    assert exit_codes.run_command_line(["down", "--purge", "--env", "pr-1", "--confirm", "shop"]) == 0


def test_an_overlay_whose_agent_never_started_is_purged_whole(branch: Branch) -> None:
    branch.edit(B, FILTERED)
    created = branch.up()
    assert created is not None
    assert exit_codes.run_command_line(["down", "--purge", "--env", "pr-1", "--confirm", "shop"]) == 0
    assert not Path(created.place.where.home).exists()


def test_an_environment_with_a_ledger_of_its_own_never_becomes_an_overlay(branch: Branch) -> None:
    branch.edit(B, FILTERED)
    created = branch.up()
    assert created is not None
    homes = Path(created.place.where.home).parent
    row = environment_row(project_id=created.place.project_id, project="shop", environment="qa")
    create_or_open(homes / "qa" / "ledger.db", row).close()
    with pytest.raises(Refused, match="qa is an environment of its own, with a ledger"):
        branch.up(environment="qa")
    assert os.listdir(homes / "qa") == ["ledger.db"] or "overlay.json" not in os.listdir(homes / "qa")
    (homes / "link").symlink_to(homes / "dev")
    with pytest.raises(Refused, match="is a link"):
        branch.up(environment="link")
    with pytest.raises(UsageError, match="PR_1 and pr-1 would have the same names"):
        branch.up(environment="PR_1")


def test_the_generated_project_stands_for_no_other_environment(
    branch: Branch, capsys: pytest.CaptureFixture[str]
) -> None:
    branch.edit(B, FILTERED)
    created = branch.up()
    assert created is not None
    where = ["--project", created.place.folder]
    assert exit_codes.run_command_line(["plan", "--all", "--env", "dev", *where]) == 2
    assert "is the generated project of the overlay pr-1, and of no other environment" in capsys.readouterr().err
    assert exit_codes.run_command_line(["up", "--env", "pr-2", "--from", "dev", *where]) == 2
    assert exit_codes.run_command_line(["ls", *where]) == 0
    assert "pr-1" in capsys.readouterr().err


def test_a_headgate_yml_that_only_its_owner_may_read_is_copied_as_such(branch: Branch) -> None:
    (branch.folder / "headgate.yml").chmod(0o600)
    branch.edit(B, FILTERED)
    created = branch.up()
    assert created is not None
    assert Path(created.place.folder, "headgate.yml").stat().st_mode & 0o777 == 0o600


def _revision(created: CreatedOverlay, table: str) -> Any:
    project, problems = read_project(read_files(created.place.folder).texts, environment="pr-1")
    assert project is not None, problems
    return revision_of(project.tables[T(table)])


@pytest.mark.parametrize(
    "words",
    [
        ["promote", "b", "--from", "pr-1", "--to", "dev"],
        ["promote", "b", "--from", "dev", "--to", "pr-1"],
        ["diff", "--env", "dev", "--env", "pr-1"],
    ],
)
def test_an_overlay_is_neither_promoted_nor_compared_as_a_whole(
    branch: Branch, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    branch.edit(B, FILTERED)
    created = branch.up()
    assert created is not None
    branch.ledger_of(created).close()
    assert exit_codes.run_command_line(words) == 2
    assert "pr-1 overlays dev, and has only the tables that its branch builds" in capsys.readouterr().err
