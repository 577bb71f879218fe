"""Scopes and options on the command line: list files, folders, git references, and all that can be wrong with them."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import written

from tui.command_line import exit_codes

SQL = "pipelines/facts/p/b/sql-scripts/dml.b.sql"


def asked(words: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Return the request of a plan."""
    request: dict[str, Any] = written(["plan", *words, "--offline"], capsys)["request"]
    return request


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["a", "B", "a"], {"tables": ["a", "b"]}),
        (["deploy", "a"], {"verb": "deploy", "tables": ["a"], "children": "product"}),
        (["delete", "--all"], {"verb": "delete", "everything": True, "children": "none"}),
        (["--product", "p", "--product", "p"], {"products": ["p"]}),
        (["--layer", "facts", "--layer", "source"], {"layers": ["fact", "source"]}),
        (["--dir", "pipelines/facts"], {"folders": ["pipelines/facts"]}),
        (["--dir", "."], {"folders": ["."]}),
        (["--all"], {"everything": True}),
        (["a", "--children", "all"], {"children": "all"}),
        (["a", "--children", "p"], {"children": "p"}),
        (["a", "--exclude", "b,landed", "--exclude", "b"], {"exclude": ["b", "landed"]}),
        (["a", "--rebuild"], {"rebuild": True}),
        (["a", "--keep-table"], {"keep_table": True}),
        (["a", "--from", "2026-01-02"], {"start": "2026-01-02T00:00:00Z"}),
    ],
)
def test_every_option_is_in_the_request(
    words: list[str], part: dict[str, Any], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_codes.run_command_line(["plan", *words, "--offline", "--json"]) in (0, 3)
    request = json.loads(capsys.readouterr().out)["request"]
    assert {name: request.get(name) for name in part} == part


def test_the_order_of_the_words_makes_no_other_plan(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "tables.txt").write_text("b\na\n")
    orders = (
        ["a", "b", "--layer", "source", "--exclude", "landed"],
        ["--exclude", "landed,landed", "--layer", "sources", "b", "a", "b"],
        ["--list", "tables.txt", "--layer", "source", "--list", "tables.txt", "--exclude", "landed"],
    )
    said = []
    for words in orders:
        assert exit_codes.run_command_line(["plan", *words, "--json", "--offline"]) == 3
        said.append(capsys.readouterr().out)
    assert said[0] == said[1] == said[2]


# List files


def test_a_list_file_holds_names_comments_and_blank_lines(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "tables.txt").write_bytes("\ufeff# ours\r\n\r\nb # the facts\r\n  A\r\n#c\r\n".encode())
    assert asked(["--list", "tables.txt", "landed"], capsys)["tables"] == ["a", "b", "landed"]


def test_a_list_may_come_from_stdin(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"b\n")))
    assert asked(["--list", "-"], capsys)["tables"] == ["b"]


def test_a_name_that_stands_twice_in_a_list_is_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "tables.txt").write_text("b\na\nB\n")
    assert exit_codes.run_command_line(["plan", "a", "--list", "tables.txt", "--offline"]) == 0
    told = capsys.readouterr().err
    assert "tables.txt:3: b was already named by tables.txt:1" in told
    assert "tables.txt:2: a was already named by the command line" in told


def test_unknown_names_of_a_list_are_all_told_with_their_lines(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "tables.txt").write_text("# ours\nlunded\na\nzzzz\n")
    assert exit_codes.run_command_line(["plan", "--list", "tables.txt", "--offline"]) == 2
    told = capsys.readouterr().err
    assert "tables.txt:2: there is no table lunded; tables.txt:4: there is no table zzzz" in told
    assert "did you mean landed?" in told


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"a-b\nc d\n", "tables.txt:1: 'a-b' is not a table name; tables.txt:2: 'c d' is not a table name"),
        (b"# nothing\n\n", "tables.txt names no table"),
        (b"\xff\xfe", "tables.txt cannot be read: it is not UTF-8 text"),
        (None, "tables.txt cannot be read: No such file or directory"),
    ],
)
def test_a_list_that_is_wrong_is_a_bad_command(
    text: bytes | None, said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if text is not None:
        (folder / "tables.txt").write_bytes(text)
    assert exit_codes.run_command_line(["plan", "a", "--list", "tables.txt"]) == 2
    assert said in capsys.readouterr().err


def test_of_many_mistakes_the_first_are_told_and_the_rest_are_counted(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "tables.txt").write_text("".join(f"none_{n}\n" for n in range(500)))
    assert exit_codes.run_command_line(["plan", "--list", "tables.txt"]) == 2
    told = capsys.readouterr().err
    assert told.count("there is no table none_") == 20 and "; and 480 more problems" in told


# Folders


@pytest.mark.parametrize(
    ("cwd", "given"),
    [
        (".", "pipelines/facts/"),
        (".", "./pipelines/sources/../facts"),
        ("pipelines", "facts"),
        ("pipelines/facts", "."),
        ("pipelines/sources", "pipelines/facts"),
        (".", "{root}/pipelines/facts"),
        (".", "link"),
    ],
)
def test_a_folder_is_found_from_here_or_from_the_project(
    cwd: str, given: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "link").symlink_to(folder / "pipelines/facts")
    monkeypatch.chdir(folder / cwd)
    assert asked(["--dir", given.format(root=folder)], capsys)["folders"] == ["pipelines/facts"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("..", "is outside the project"),
        ("/", "is outside the project"),
        ("pipelines/fact", "is not a folder of the project"),
        ("headgate.yml", "is not a folder of the project"),
        ("", "is not a folder of the project"),
        ("empty", "there is no table in empty"),
    ],
)
def test_a_folder_that_is_none_of_the_project_is_a_bad_command(
    given: str, said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "empty").mkdir()
    assert exit_codes.run_command_line(["plan", "--dir", given]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--layer", "fcts"], "did you mean fact?"),
        (["--layer", "view"], "there is no table of layer view"),
        (["--product", ""], "--product is empty"),
        (["a", "--children", "slaes"], "there is no product slaes"),
        (["a", "--children", "none,p"], "--children none cannot be combined with other values"),
        (["a", "--from", "erliest"], "did you mean earliest?"),
        (["a", "--strategy", "a=seem"], "did you mean seam?"),
        (["a", "--strategy", "b"], "'b' is not a valid --strategy"),
        (["a", "--strategy", "zz=seam"], "there is no table zz"),
        (["a", "--rebuild", "--keep-table"], "a rebuild creates a new table"),
        (["--pipeline", "b"], "--pipeline is only for a delete"),
        (["delete", "a", "--rebuild"], "--rebuild does not apply to a delete"),
        (["delete"], "the request is empty"),
        (["--exclude", "a"], "the request is empty"),
    ],
)
def test_what_means_nothing_is_a_bad_command(
    words: list[str], said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_codes.run_command_line(["plan", *words]) == 2
    assert said in capsys.readouterr().err


# Git references


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


def test_what_is_edited_committed_or_new_is_found_and_the_checkout_stays(
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
def test_git_is_asked_three_times_whatever_differs(
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


def test_a_table_that_is_gone_is_told_with_how_to_delete_it(
    cloned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in (cloned / SQL).parent.iterdir():
        file.unlink()
    observed = tmp_path / "observed.yml"
    observed.write_text("tables: {landed: running, a: running, b: running}")
    found = written(["plan", "--changed-since", "main", "--observed", str(observed)], capsys)
    assert found["request"]["gone"] == ["b"] and found["steps"] == []
    assert found["warnings"] == [
        {"table": "b", "summary": "was declared at main and no longer is: to delete it, headgate plan delete b"}
    ]


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
def test_a_reference_that_is_none_is_a_bad_command(
    reference: str, said: str, cloned: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_codes.run_command_line(["plan", f"--changed-since={reference}"]) == 2
    assert said in capsys.readouterr().err


def test_without_a_repository_or_without_git_it_is_said(
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
def test_what_is_deployed_says_what_the_commit_says(
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


@pytest.mark.parametrize(("state", "code", "said"), [("running", 10, "to delete it"), ("absent", 0, "no longer is")])
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


def test_a_changed_pool_or_policy_is_told_since_no_plan_carries_it(
    cloned: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = "    pool: {conf: {spark.x.token: hidden}}\n    policy: {freeze: Sat}\n"
    edit(cloned / "headgate.yml", "  dev:\n", f"  dev:\n{rules}")
    found = written(["plan", "--changed-since", "main"], capsys)
    assert [(w["table"], w["summary"]) for w in found["warnings"]] == [
        ("headgate.yml", "the policy of dev changed since main: freeze: not part of this plan: record it "
                         "(headgate policy apply)"),
        ("headgate.yml", "the pool of dev changed since main: conf.spark.x.token: not part of this plan: "
                         "restart the agent (headgate down, headgate up)"),
    ]  # fmt: skip
    assert "hidden" not in json.dumps(found)


# Deletes


def test_a_delete_takes_the_same_scopes(
    ledger: Any, agent: Any, deployed: Any, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger.put_deployment(deployed("a"))
    ledger.put_deployment(deployed("b", reads="a"))
    (folder / "tables.txt").write_text("lunded\n")
    assert exit_codes.run_command_line(["delete", "--list", "tables.txt"]) == 2
    assert "tables.txt:1: there is no table lunded" in capsys.readouterr().err
    assert exit_codes.run_command_line(["delete"]) == 2
    found = written(["plan", "delete", "--pipeline", "b", "--offline"], capsys)
    assert [node["table"] for node in found["nodes"] if node["action"] == "delete"] == ["b", "a"]
