"""`--changed-since`: differences between a git commit and the working tree, and messages if git cannot compare them."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from command_line import written

from tui.command_line import exit_codes

SQL = "pipelines/facts/p/b/sql-scripts/dml.b.sql"


def asked(words: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Run `headgate plan --offline` with these words, and return the request in the printed plan."""
    request: dict[str, Any] = written(["plan", *words, "--offline"], capsys)["request"]
    return request


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def cloned(folder: Path) -> Path:
    """The project in a repository's subfolder, committed once."""
    git(folder.parent, "init", "-q", "-b", "main")
    git(folder.parent, "add", "shop")
    git(folder.parent, "commit", "-q", "-m", "first")
    return folder


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_nothing_that_changed_is_an_empty_plan(cloned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = written(["plan", "--changed-since", "main", "--exit-code"], capsys)
    assert found["request"]["changed_since"] == "main" and found["request"]["tables"] == [] == found["steps"]


def test_edited_committed_and_new_files_are_found_and_the_checkout_is_unchanged(
    cloned: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(cloned / SQL, "SELECT id, kind", "SELECT id, upper(kind) AS kind")
    git(cloned, "commit", "-q", "-am", "second")
    edit(cloned / "pipelines/sources/p/a/sql-scripts/dml.a.sql", "SELECT", "SELECT /* all */")
    new = cloned / "pipelines/facts/p/neu/sql-scripts"
    new.mkdir(parents=True)
    (new / "ddl.neu.sql").write_text("CREATE TABLE neu (id BIGINT, kind STRING) USING parquet;")
    (new / "dml.neu.sql").write_text("INSERT INTO neu SELECT id, kind FROM STREAM b;")
    index = (cloned.parent / ".git/index").read_bytes(), os.stat(cloned.parent / ".git/index").st_mtime_ns
    before = git(cloned, "--no-optional-locks", "status", "--porcelain", "--", ".")
    assert asked(["--changed-since", "HEAD~1"], capsys)["tables"] == ["a", "b", "neu"]
    assert asked(["--changed-since", "HEAD"], capsys)["tables"] == ["a", "neu"]
    assert asked(["--changed-since", git(cloned, "rev-parse", "HEAD")[:8], "b"], capsys)["tables"] == ["a", "b", "neu"]
    assert git(cloned, "--no-optional-locks", "status", "--porcelain", "--", ".") == before
    assert ((cloned.parent / ".git/index").read_bytes(), os.stat(cloned.parent / ".git/index").st_mtime_ns) == index


@pytest.mark.parametrize("tables", [1, 40])
def test_git_is_called_three_times_however_many_files_differ(
    tables: int, cloned: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for n in range(tables):
        new = cloned / f"pipelines/facts/p/t{n}/sql-scripts"
        new.mkdir(parents=True)
        (new / f"ddl.t{n}.sql").write_text(f"CREATE TABLE t{n} (id BIGINT, kind STRING) USING parquet;")
        (new / f"dml.t{n}.sql").write_text(f"INSERT INTO t{n} SELECT id, kind FROM STREAM a;")
    git(cloned, "add", ".")
    git(cloned, "commit", "-q", "-m", "second")
    for n in range(tables):
        edit(cloned / f"pipelines/facts/p/t{n}/sql-scripts/dml.t{n}.sql", "id,", "id + 1 AS id,")
    said: list[str] = []
    run = subprocess.run
    monkeypatch.setattr(subprocess, "run", lambda words, **more: said.append(words[1]) or run(words, **more))
    assert len(asked(["--changed-since", "HEAD"], capsys)["tables"]) == tables
    assert said == ["rev-parse", "ls-tree", "cat-file"]


def test_defaults_change_the_tables_that_do_not_say_it_themselves(
    cloned: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (cloned / "pipelines/facts/p/b/b.yml").write_text("trigger: 1 minute\n")
    git(cloned, "add", ".")
    git(cloned, "commit", "-q", "-m", "second")
    with (cloned / "headgate.yml").open("a") as file:
        file.write("defaults:\n  trigger: 5 seconds\n")
    assert asked(["--changed-since", "HEAD"], capsys)["tables"] == ["a", "landed"]


def test_a_removed_table_is_reported_with_the_command_that_deletes_it(
    cloned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in (cloned / SQL).parent.iterdir():
        file.unlink()
    observed = tmp_path / "observed.yml"
    observed.write_text("tables: {landed: running, a: running, b: running}")
    found = written(["plan", "--changed-since", "main", "--observed", str(observed)], capsys)
    assert found["request"]["gone"] == ["b"] and found["steps"] == []
    (warning,) = found["warnings"]
    assert warning["table"] == "b"
    assert warning["summary"] == "was declared at main and no longer is; to delete it: headgate plan delete b"


def test_a_moved_table_is_found_once_and_is_not_gone(cloned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (cloned / "pipelines/facts/q").mkdir()
    (cloned / "pipelines/facts/p/b").rename(cloned / "pipelines/facts/q/b")
    request = asked(["--changed-since", "main"], capsys)
    assert request["tables"] == ["b"] and "gone" not in request


@pytest.mark.parametrize("name", ["ä ö", 'quo"te', "tab\tin", "line\nin", "-n"])
def test_paths_of_any_letters_are_compared(name: str, cloned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (cloned / "pipelines/facts" / name).mkdir()
    (cloned / "pipelines/facts/p/b").rename(cloned / "pipelines/facts" / name / "b")
    git(cloned, "add", "-A")
    git(cloned, "commit", "-q", "-m", "second")
    assert asked(["--changed-since", "HEAD"], capsys)["tables"] == []
    edit(cloned / "pipelines/facts" / name / "b/sql-scripts/dml.b.sql", "SELECT", "SELECT /* all */")
    assert asked(["--changed-since", "HEAD"], capsys)["tables"] == ["b"]


def test_line_endings_are_no_difference(cloned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = cloned / SQL
    path.write_bytes(path.read_bytes().replace(b" FROM", b"\n FROM"))
    git(cloned, "commit", "-q", "-am", "second")
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert asked(["--changed-since", "HEAD"], capsys)["tables"] == []


def test_a_mark_of_byte_order_is_no_difference(cloned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (cloned / SQL).write_text("\ufeff" + (cloned / SQL).read_text())
    assert asked(["--changed-since", "HEAD"], capsys)["tables"] == []
    git(cloned, "commit", "-q", "-am", "second")
    assert asked(["--changed-since", "HEAD"], capsys)["tables"] == []


LINKED = "pipelines/facts/p/b/shared.txt"


def test_a_linked_script_is_compared_by_its_target(cloned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (cloned / SQL).rename(cloned / LINKED)
    (cloned / SQL).symlink_to("../shared.txt")
    git(cloned, "add", "-A")
    git(cloned, "commit", "-q", "-m", "second")
    assert asked(["--changed-since", "HEAD"], capsys)["tables"] == []
    assert asked(["--changed-since", "HEAD~1"], capsys)["tables"] == []
    edit(cloned / LINKED, "SELECT", "SELECT /* all */")
    assert asked(["--changed-since", "HEAD"], capsys)["tables"] == ["b"]


@pytest.mark.parametrize("absolute", [True, False])
def test_a_link_out_of_the_repository_counts_by_its_target(
    absolute: bool, cloned: Path, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "one.sql").write_text((cloned / SQL).read_text())
    (outside / "two.sql").write_text((cloned / SQL).read_text())
    where = outside if absolute else Path(os.path.relpath(outside, (cloned / SQL).parent))
    (cloned / SQL).unlink()
    (cloned / SQL).symlink_to(where / "one.sql")
    git(cloned, "add", "-A")
    git(cloned, "commit", "-q", "-m", "second")
    assert asked(["--changed-since", "HEAD"], capsys)["tables"] == []
    (cloned / SQL).unlink()
    (cloned / SQL).symlink_to(where / "two.sql")
    assert asked(["--changed-since", "HEAD"], capsys)["tables"] == ["b"]


def test_a_filter_of_git_is_applied_before_texts_are_compared(cloned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # This filter works like git-lfs: the repository contains a pointer, and a checkout contains the text.
    kept = cloned.parent / ".git/kept"
    git(cloned, "config", "filter.lfs.clean", f"tee {kept} >/dev/null; echo oid 1234")
    git(cloned, "config", "filter.lfs.smudge", f"cat >/dev/null; cat {kept}")
    (cloned / ".gitattributes").write_text("dml.b.sql filter=lfs\n")
    git(cloned, "add", "--renormalize", ".")
    git(cloned, "add", "-A")
    git(cloned, "commit", "-q", "-m", "second")
    assert git(cloned, "show", f"HEAD:./{SQL}") == "oid 1234"
    assert asked(["--changed-since", "HEAD"], capsys)["tables"] == []
    edit(cloned / SQL, "SELECT", "SELECT /* all */")
    assert asked(["--changed-since", "HEAD"], capsys)["tables"] == ["b"]


def test_line_endings_and_encodings_that_git_converts_are_no_difference(
    cloned: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (cloned / ".gitattributes").write_text("*.sql text eol=crlf ident\n")
    edit(cloned / SQL, "SELECT", "-- $Id$\nSELECT")
    git(cloned, "add", "-A")
    git(cloned, "commit", "-q", "-m", "second")
    (cloned / SQL).unlink()
    git(cloned, "checkout", "--", SQL)
    assert b"$Id: " in (cloned / SQL).read_bytes() and b"\r\n" in (cloned / SQL).read_bytes()
    assert asked(["--changed-since", "HEAD"], capsys)["tables"] == []


@pytest.fixture
def with_submodule(cloned: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project with a product of one table in a submodule, committed; returns the submodule's folder."""
    other = tmp_path_factory.mktemp("other")
    (other / "t/sql-scripts").mkdir(parents=True)
    (other / "t/sql-scripts/ddl.t.sql").write_text("CREATE TABLE t (id BIGINT, kind STRING) USING parquet;")
    (other / "t/sql-scripts/dml.t.sql").write_text("INSERT INTO t SELECT id, kind FROM STREAM a;")
    git(other, "init", "-q", "-b", "main")
    git(other, "add", ".")
    git(other, "commit", "-q", "-m", "first")
    git(cloned, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(other), "pipelines/facts/sub")
    git(cloned, "commit", "-q", "-m", "second")
    return cloned / "pipelines/facts/sub"


def test_files_of_a_submodule_are_compared_with_its_commit(
    with_submodule: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert asked(["--changed-since", "HEAD"], capsys)["tables"] == []
    assert asked(["--changed-since", "HEAD~1"], capsys)["tables"] == ["t"]
    edit(with_submodule / "t/sql-scripts/dml.t.sql", "SELECT", "SELECT /* all */")
    assert asked(["--changed-since", "HEAD"], capsys)["tables"] == ["t"]


def test_a_submodule_without_the_commit_is_named(with_submodule: Path, capsys: pytest.CaptureFixture[str]) -> None:
    git(with_submodule.parents[2], "update-index", "--cacheinfo", f"160000,{'1' * 40},shop/pipelines/facts/sub")
    git(with_submodule.parents[2], "commit", "-q", "-m", "third")
    assert exit_codes.run_command_line(["plan", "--changed-since", "HEAD", "--offline"]) == 2
    assert "the submodule pipelines/facts/sub has no commit 111111111111" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["sha1", "sha256"])
def test_a_repository_names_its_objects_by_either_hash(
    kind: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    git(folder, "init", "-q", f"--object-format={kind}")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "first")
    assert asked(["--changed-since", "HEAD"], capsys)["tables"] == []
    edit(folder / SQL, "SELECT", "SELECT /* all */")
    assert asked(["--changed-since", "HEAD"], capsys)["tables"] == ["b"]


def test_a_hook_that_git_runs_compares_as_well(
    cloned: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GIT_DIR", ".git")
    monkeypatch.setenv("GIT_INDEX_FILE", ".git/index")
    assert asked(["--changed-since", "main"], capsys)["tables"] == []


def test_a_project_that_the_commit_does_not_have_is_new(cloned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    git(cloned, "checkout", "-q", "--orphan", "other")
    git(cloned.parent, "rm", "-q", "-r", "--cached", "shop")
    git(cloned, "commit", "-q", "--allow-empty", "-m", "empty")
    assert asked(["--changed-since", "HEAD"], capsys)["tables"] == ["a", "b", "landed"]


def test_an_older_text_that_cannot_be_read_is_another_text(cloned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = (cloned / SQL).read_text()
    (cloned / SQL).write_text("INSERT INTO b SELEKT")
    git(cloned, "commit", "-q", "-am", "broken")
    (cloned / SQL).write_text(good)
    assert asked(["--changed-since", "HEAD"], capsys)["tables"] == ["b"]


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("nope", "git knows no commit 'nope' here"),
        ("main..main", "git knows no commit 'main..main' here"),
        ("main:shop", "git knows no commit 'main:shop' here"),
        ("", "'' is not a git reference"),
        ("--all", "'--all' is not a git reference"),
    ],
)
def test_an_invalid_git_reference_is_a_usage_error(
    reference: str, said: str, cloned: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_codes.run_command_line(["plan", f"--changed-since={reference}"]) == 2
    assert said in capsys.readouterr().err


def test_a_missing_repository_or_git_is_reported(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    assert exit_codes.run_command_line(["plan", "--changed-since", "main"]) == 2
    assert "is not in a git repository" in capsys.readouterr().err
    monkeypatch.setenv("PATH", str(tmp_path))
    assert exit_codes.run_command_line(["plan", "--changed-since", "main"]) == 2
    assert "git is not installed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("entry", "row", "classified"),
    [
        ("running", "1", True),
        ("{state: running, revision: changed}", "1", True),
        ("{state: running, revision: same}", "0", True),
        ("{state: running, revision: 0123abcd}", "6a", False),
        ("{state: running, deployed: {ddl: '', dml: '', yml: ''}}", "6a", False),
    ],
)
def test_deployed_tables_without_texts_have_those_of_the_commit(
    entry: str, row: str, classified: bool, cloned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(cloned / SQL, "SELECT", "SELECT /* all */")
    observed = tmp_path / "observed.yml"
    observed.write_text(f"tables: {{landed: running, a: running, b: {entry}}}")
    found = written(["plan", "--changed-since", "main", "--observed", str(observed)], capsys)
    assert [(n["row"], n["classified"]) for n in found["nodes"] if n["table"] == "b"] == [(row, classified)]


def test_a_deployed_table_that_the_commit_does_not_have_is_not_classified(
    cloned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = cloned / "pipelines/facts/p/neu/sql-scripts"
    new.mkdir(parents=True)
    (new / "ddl.neu.sql").write_text("CREATE TABLE neu (id BIGINT, kind STRING) USING parquet;")
    (new / "dml.neu.sql").write_text("INSERT INTO neu SELECT id, kind FROM STREAM b;")
    observed = tmp_path / "observed.yml"
    observed.write_text("tables: {landed: running, a: running, b: running, neu: running}")
    found = written(["plan", "--changed-since", "main", "--observed", str(observed)], capsys)
    assert [(n["row"], n["classified"]) for n in found["nodes"] if n["table"] == "neu"] == [("6a", False)]


@pytest.mark.parametrize(
    ("state", "code", "said"), [("running", 10, "to delete it"), ("absent", 0, "no longer is; it is not deployed")]
)
def test_a_table_that_is_gone_and_still_runs_is_a_change(
    state: str, code: int, said: str, cloned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in sorted((cloned / SQL).parent.iterdir()):
        path.unlink()
    observed = tmp_path / "observed.yml"
    observed.write_text(f"tables: {{landed: running, a: running, b: {state}}}")
    words = ["plan", "--changed-since", "main", "--observed", str(observed), "--exit-code"]
    assert exit_codes.run_command_line(words) == code
    assert said in capsys.readouterr().out
    assert exit_codes.run_command_line(words[:-1]) == 0


def test_a_changed_pool_or_policy_is_reported_because_no_plan_applies_it(
    cloned: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = "    pool: {conf: {spark.x.value: hidden}}\n    policy: {freeze: Sat}\n"
    edit(cloned / "headgate.yml", "  dev:\n", f"  dev:\n{rules}")
    found = written(["plan", "--changed-since", "main"], capsys)
    assert [(w["table"], w["summary"]) for w in found["warnings"]] == [
        ("headgate.yml", "the policy of dev changed since main: freeze; no plan applies that: "
                         "record it (headgate policy apply)"),
        ("headgate.yml", "the pool of dev changed since main: conf.spark.x.value; no plan applies that: "
                         "restart the agent (headgate down, headgate up)"),
    ]  # fmt: skip
    assert "hidden" not in json.dumps(found)
