"""The files that headgate.yml names make a project of manifests, in the folder or at a commit, and edits are seen."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from java_class_files import FMT, fmt_jar

from core.model.errors import UsageError
from core.project.manifest_head import PLACES
from core.project_reader.loader import read_project, read_sound_tables
from core.project_reader.manifest_layout import generated_texts
from core.statement_tests.case_reader import read_cases
from pipelines.declaring_files import texts_of_manifests
from tests.support.manifest_project import DEAR, HEADGATE, files
from tui.project_folder.declaring_files import read_files, read_test_files
from tui.project_folder.git_objects import texts_differing_from
from tui.project_folder.project_folder_reader import declared_columns, declared_tables, find_sql_file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path, {**files(), "notes.yml": "a: 1", "schemas/notes.txt": "x", "manifests/.git/a.yaml": "x"})
    write(tmp_path, {"manifests/dear/tests/one.yml": "given: {}"})
    return tmp_path


def write(folder: Path, texts: Mapping[str, str]) -> None:
    for path, text in texts.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


def git(folder: Path, *words: str) -> None:
    named = ("-c", "user.name=a", "-c", "user.email=a@b", *words)
    subprocess.run(["git", *named], cwd=folder, check=True, capture_output=True)


def test_only_the_files_that_headgate_yml_names_are_read(folder: Path) -> None:
    assert read_files(str(folder)).files == files()
    assert read_files(str(folder)).texts == generated_texts(files())
    assert texts_of_manifests(str(folder), HEADGATE) == generated_texts(files())


def test_templates_are_read_wherever_they_are_named(folder: Path) -> None:
    write(
        folder,
        {"manifests/dear.yml": DEAR + "template: t/a.yaml\n", "t/a.yaml": "template: b.yml\n", "b.yml": "owner: x"},
    )
    texts = read_files(str(folder)).texts
    project, problems = read_project(texts)
    assert project is not None and not problems
    assert {name: table.settings.owner for name, table in project.tables.items()}["dear"] == "x"


def test_unchanged_files_are_not_read_again_and_an_edited_one_is(folder: Path) -> None:
    first = read_files(str(folder))
    assert read_files(str(folder), first) is first
    write(folder, {"manifests/dear.yml": DEAR.replace("10", "20"), "job-template.yaml": "trigger: 7 seconds\n"})
    second = read_files(str(folder), first)
    assert second.files["schemas/out.sql"] is first.files["schemas/out.sql"]
    assert second.texts == generated_texts(files() | {
        "manifests/dear.yml": DEAR.replace("10", "20"), "job-template.yaml": "trigger: 7 seconds\n",
    })  # fmt: skip


def test_functions_in_python_and_of_jars_are_read_and_an_edited_jar_is_read_again(folder: Path) -> None:
    write(folder, {"functions/half.py": "# CREATE FUNCTION half(x INT) RETURNS INT\ndef half(x): return x\n"})
    (folder / "functions/acme.jar").write_bytes(b"PK\xff")
    write(folder, {"functions/fmt.sql": FMT})
    first = read_files(str(folder))
    project, (problem,) = read_sound_tables(first.texts)
    assert project is not None and [each.name for each in project.functions] == ["half"]
    assert (str(problem.where), problem.summary) == (
        "functions/acme.jar", "acme.jar cannot be read: it is not a jar",
    )  # fmt: skip
    (folder / "functions/acme.jar").write_bytes(fmt_jar("a"))
    second = read_files(str(folder), first)
    project, problems = read_sound_tables(second.texts)
    assert project is not None and not problems and [each.name for each in project.functions] == ["fmt", "half"]
    assert read_files(str(folder), second) is second


def test_a_manifest_that_is_not_utf_8_is_a_problem_and_the_others_are_read(folder: Path) -> None:
    (folder / "manifests/dear.yml").write_bytes(b"name: \xff\n")
    project, (problem,) = read_sound_tables(read_files(str(folder)).texts)
    assert (str(problem.where), problem.summary) == (
        "manifests/dear.yml", "dear.yml cannot be read: it is not UTF-8, because of byte 7",
    )  # fmt: skip
    assert project is not None and "cheap" in project.tables


def test_a_folder_that_cannot_be_listed_is_refused_instead_of_counting_as_empty(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(place: str) -> None:
        raise PermissionError(13, "Permission denied", place)

    monkeypatch.setattr("os.scandir", refuse)
    with pytest.raises(UsageError, match="manifests cannot be read: Permission denied"):
        read_files(str(folder))


def test_tables_and_columns_are_listed_and_a_table_leads_to_its_manifest(folder: Path) -> None:
    found = {entry.table: (entry.product, entry.external, entry.ddl) for entry in declared_tables(str(folder))}
    assert found == {
        "cheap": ("main", False, f"{folder}/schemas/out.sql"),
        "dear": ("main", False, f"{folder}/schemas/out.sql"),
        "orders": ("main", True, f"{folder}/schemas/in.sql"),
    }
    assert find_sql_file(str(folder), "dear") == f"{folder}/manifests/dear.yml"
    assert find_sql_file(str(folder), "orders") == f"{folder}/schemas/in.sql"
    with pytest.raises(UsageError, match="no file declares x") as refused:
        find_sql_file(str(folder), "x")
    assert "manifest" in refused.value.remedy
    assert declared_columns(str(folder), "dear") == ("id", "price")


def test_texts_that_differ_from_a_commit_are_found_although_they_are_generated(folder: Path) -> None:
    git(folder, "init", "-q")
    git(folder, "add", "-f", *files())
    git(folder, "commit", "-q", "-m", "a")
    texts = read_files(str(folder)).texts
    assert texts_differing_from(str(folder), "HEAD", texts) == {}
    write(folder, {"job-template.yaml": "trigger: 7 seconds\n", "manifests/dear.yml": DEAR.replace("10", "20")})
    then = texts_differing_from(str(folder), "HEAD", read_files(str(folder)).texts)
    dear = "pipelines/facts/main/dear_orders"
    assert {path for path in then if path != PLACES} == {
        f"{dear}/sql-scripts/dml.dear.sql", f"{dear}/dear.yml", "pipelines/facts/main/cheap_orders/cheap.yml",
    }  # fmt: skip
    assert then[f"{dear}/sql-scripts/dml.dear.sql"] == texts[f"{dear}/sql-scripts/dml.dear.sql"]


def test_a_commit_before_the_project_became_one_of_manifests_is_compared_as_well(folder: Path) -> None:
    head = HEADGATE.partition("layout")[0]
    write(folder, {"headgate.yml": head, "pipelines/facts/p/a/sql-scripts/ddl.a.sql": "x"})
    git(folder, "init", "-q")
    git(folder, "add", "headgate.yml", "pipelines")
    git(folder, "commit", "-q", "-m", "a")
    write(folder, {"headgate.yml": HEADGATE})
    texts = read_files(str(folder)).texts
    then = texts_differing_from(str(folder), "HEAD", texts)
    assert then["headgate.yml"] == head and then["pipelines/facts/p/a/sql-scripts/ddl.a.sql"] == "x"
    assert all(then[path] is None for path in texts if path != "headgate.yml")
    git(folder, "add", "-f", *files())
    git(folder, "commit", "-q", "-m", "b")
    write(folder, {"headgate.yml": head})
    back = texts_differing_from(str(folder), "HEAD", read_files(str(folder)).texts)
    assert back.keys() == {*texts, "pipelines/facts/p/a/sql-scripts/ddl.a.sql"}


def test_the_cases_of_a_manifest_are_in_the_folder_of_its_name(folder: Path) -> None:
    case = "given: {orders: [{id: 1, price: 20.0}]}\nexpect: [{id: 1, price: 20.0}]\n"
    write(folder, {"manifests/dear/tests/one.yml": case})
    project, _ = read_project(read_files(str(folder)).texts)
    assert project is not None
    tests = read_test_files(str(folder), (table.case_folder for table in project.tables.values()))
    cases, problems = read_cases(tests, project.tables)
    assert not problems and [(each.path, each.table) for each in cases] == [("manifests/dear/tests/one.yml", "dear")]
