"""Functions on real Spark: their cases, changed bodies through plan, release, swap and rollback, and restarts."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest
from java_class_files import class_file, jar
from tiny_project import DDL, Tiny, committed, tiny_that_runs, until

pytestmark = [pytest.mark.spark, pytest.mark.drill, pytest.mark.long]

DML = {
    "kept": "INSERT INTO kept SELECT id, label(kind) AS kind\nFROM STREAM landed\nWHERE id > 0;",
    "marked": "INSERT INTO marked SELECT id, upper(kind) AS kind FROM STREAM kept;",
}
BODY = "CREATE FUNCTION label(kind STRING)\nRETURNS STRING\nRETURN concat(dash(kind), {end});\n"
DASH = "CREATE FUNCTION dash(s STRING) RETURNS STRING RETURN concat(s, '-')"
CASES = "cases:\n- {args: [a], expect: a-1}\n- {args: [null], expect: null}\n"


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Tiny]:
    functions = tmp_path / "tiny/functions"
    (functions / "tests").mkdir(parents=True)
    (functions / "dash.sql").write_text(DASH)
    (functions / "tests/label.yml").write_text(CASES)
    (functions / "label.sql").write_text(BODY.format(end="'1'"))
    with tiny_that_runs(tmp_path, landed=4, ddl=DDL, dml=DML) as found:
        yield found


def body(tiny: Tiny, end: str) -> None:
    (tiny.folder / "functions/label.sql").write_text(BODY.format(end=end))


def kinds(tiny: Tiny, table: str, version: int) -> dict[int, str]:
    """Return the kind of each id in a version's table; each id is there once."""
    found: dict[int, str] = {}
    for file in committed(tiny.folder / f"data/tables/{table}__v{version}"):
        read = parquet.read_table(file, columns=["id", "kind"]).to_pydict()
        for id, kind in zip(read["id"], read["kind"], strict=True):
            assert id not in found
            found[id] = kind
    return found


def expected(*ends: tuple[int, str]) -> dict[int, str]:
    """Return the kinds of all ids up to each of the given ids, with the end of the body at that time."""
    found: dict[int, str] = {}
    for last, end in ends:
        found |= {n: f"{'ab'[n % 2]}-{end}" for n in range(len(found) + 1, last + 1)}
    return found


def land(tiny: Tiny, table: str, version: int, ends: tuple[tuple[int, str], ...]) -> None:
    """Land rows up to the last id, and wait until the version contains what is expected of it."""
    tiny.land(ends[-1][0] - tiny.landed)
    until(lambda: len(kinds(tiny, table, version)) == ends[-1][0], 60, f"{table} v{version} has all rows")
    assert kinds(tiny, table, version) == expected(*ends)


def test_a_changed_body_is_released_rolled_back_and_never_taken_by_a_restart(tiny: Tiny) -> None:
    told = json.loads(tiny.done("test", "label()", "--json"))
    assert told["passed"] and [each["table"] for each in told["cases"]] == ["label()"]
    done = tiny.apply(tiny.plan("--all"))
    assert done.returncode == 0, done.stdout + done.stderr
    land(tiny, "kept", 1, ((6, "1"),))

    # The file has another body, but nothing is deployed: neither a new agent nor a new server takes it.
    body(tiny, "'2'")
    os.kill(tiny.agent_pid(), signal.SIGKILL)
    tiny.done("up")
    tiny.replace_pool()
    until(lambda: tiny.statements()["kept"]["state"] == "running", 120, "kept runs again")
    land(tiny, "kept", 1, ((8, "1"),))
    inventory = {each["function"]: each for each in json.loads(tiny.done("inventory", "--json"))["functions"]}
    assert inventory["label"]["other_body_in"] == ["kept"] and inventory["dash"]["used_by_functions"] == ["label"]

    plan = tiny.plan("kept", "--rebuild", "--children", "all")
    (node,) = (each for each in plan["nodes"] if each["table"] == "kept")
    assert node["change"] == "filter_or_projection"
    assert node["evidence"][-1]["sentence"] == "function label: concat(dash(kind), '1') → concat(dash(kind), '2')"
    done = tiny.apply(plan)
    assert done.returncode == 0, done.stdout + done.stderr
    land(tiny, "kept", 2, ((10, "2"),))
    shown = json.loads(tiny.done("show", "kept", "--json"))
    assert shown["functions"]["label"] == BODY.format(end="'2'")

    done = tiny.apply(tiny.plan("rollback", "kept"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert tiny.statements()["kept"]["version"] == 1
    land(tiny, "kept", 1, ((12, "1"),))

    # In place: rows from now on have the new body.
    done = tiny.apply(tiny.plan("kept"))
    assert done.returncode == 0, done.stdout + done.stderr
    land(tiny, "kept", 1, ((12, "1"), (14, "2")))

    # A body that fails ends the statement with a sentence that names the function.
    body(tiny, "if(kind = 'a', raise_error('no a'), '3')")
    done = tiny.apply(tiny.plan("kept"))
    tiny.land(2)
    until(lambda: tiny.statements()["kept"]["state"] == "failed", 60, "kept has failed")
    ((error,),) = tiny.ledger("SELECT error FROM deployment WHERE \"table\" = 'kept' AND version = 1")
    assert str(error).endswith("raised in label")


PYTHON = """# CREATE FUNCTION tag(id BIGINT, kind STRING) RETURNS STRING


def tag(id: int, kind: str | None) -> str | None:
    return kind and f"{{kind}}-{end}"
"""
PYTHON_DML = {
    **DML,
    "kept": "INSERT INTO kept SELECT id, tag(id, kind) AS kind\nFROM STREAM landed\nWHERE tag(id, kind) <> 'x';",
}


@pytest.fixture
def in_python(tmp_path: Path) -> Iterator[Tiny]:
    functions = tmp_path / "tiny/functions"
    (functions / "tests").mkdir(parents=True)
    (functions / "tests/tag.yml").write_text(
        "cases:\n- {args: [1, a], expect: a-1}\n- {args: [1, null], expect: null}\n"
    )
    (functions / "tag.py").write_text(PYTHON.format(end="1"))
    with tiny_that_runs(tmp_path, landed=4, ddl=DDL, dml=PYTHON_DML) as found:
        yield found


def python_body(tiny: Tiny, end: str) -> None:
    (tiny.folder / "functions/tag.py").write_text(PYTHON.format(end=end))


def test_a_changed_python_function_is_released_and_rolled_back_and_survives_kills(in_python: Tiny) -> None:
    tiny = in_python
    told = json.loads(tiny.done("test", "tag()", "--json"))
    assert told["passed"] and [each["table"] for each in told["cases"]] == ["tag()"]
    done = tiny.apply(tiny.plan("--all"))
    assert done.returncode == 0, done.stdout + done.stderr
    land(tiny, "kept", 1, ((6, "1"),))

    # The new version runs beside the old one in one session, and each has its own body.
    python_body(tiny, "2")
    assert not json.loads(tiny.run("test", "tag()", "--json").stdout)["passed"]
    plan = tiny.plan("kept", "--rebuild", "--children", "all")
    (node,) = (each for each in plan["nodes"] if each["table"] == "kept")
    assert node["change"] == "filter_or_projection"
    assert node["evidence"][-1]["sentence"] == 'function tag: return kind and f"{kind}-1" → return kind and f"{kind}-2"'
    done = tiny.apply(plan)
    assert done.returncode == 0, done.stdout + done.stderr
    land(tiny, "kept", 2, ((8, "2"),))

    # A server that is killed, and an agent, start the deployed body again, whatever the file says now.
    python_body(tiny, "3")
    os.kill(tiny.agent_pid(), signal.SIGKILL)
    tiny.done("up")
    tiny.replace_pool()
    until(lambda: tiny.statements()["kept"]["state"] == "running", 180, "kept runs again")
    land(tiny, "kept", 2, ((10, "2"),))

    done = tiny.apply(tiny.plan("rollback", "kept"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert tiny.statements()["kept"]["version"] == 1
    land(tiny, "kept", 1, ((12, "1"),))

    # A module that is missing in the pool is found before the running query is stopped for the new body.
    (tiny.folder / "functions/tag.py").write_text(PYTHON.format(end="3").replace("\n\n\n", "\nimport nowhere\n\n\n", 1))
    done = tiny.apply(tiny.plan("kept"))
    assert done.returncode != 0
    assert "tag.py, line 2: ModuleNotFoundError: No module named 'nowhere'" in done.stdout + done.stderr

    # An error of the function ends the statement with its line.
    python_body(tiny, "{1 // (id - 14)}")
    done = tiny.apply(tiny.plan("kept"))
    tiny.land(2)
    until(lambda: tiny.statements()["kept"]["state"] == "failed", 90, "kept has failed")
    ((error,),) = tiny.ledger("SELECT error FROM deployment WHERE \"table\" = 'kept' AND version = 1")
    assert error == "tag.py, line 5: ZeroDivisionError: integer division or modulo by zero"


TAG = "CREATE FUNCTION tag(kind STRING) RETURNS STRING\nAS 'com.acme.Tag' USING JAR 'acme.jar';\n"
JAR_DML = {**DML, "kept": "INSERT INTO kept SELECT id, tag(kind) AS kind\nFROM STREAM landed\nWHERE tag(kind) <> 'x';"}


@pytest.fixture
def of_jar(tmp_path: Path) -> Iterator[Tiny]:
    functions = tmp_path / "tiny/functions"
    (functions / "tests").mkdir(parents=True)
    (functions / "tests/tag.yml").write_text("cases:\n- {args: [a], expect: 1-a}\n- {args: [null], expect: 1-null}\n")
    (functions / "tag.sql").write_text(TAG)
    (functions / "acme.jar").write_bytes(tag_jar("1-"))
    with tiny_that_runs(tmp_path, landed=4, ddl=DDL, dml=JAR_DML) as found:
        yield found


def tag_jar(says: str, **about: Any) -> bytes:
    return jar(Tag=class_file("com.acme.Tag", says, **about))


def land_tagged(tiny: Tiny, version: int, *tags: tuple[int, str]) -> None:
    """Land rows up to the last id, and wait until a version has them, each with the tag of its time."""
    tiny.land(tags[-1][0] - tiny.landed)
    found: dict[int, str] = {}
    for last, tag in tags:
        found |= {n: f"{tag}{'ab'[n % 2]}" for n in range(len(found) + 1, last + 1)}
    until(lambda: len(kinds(tiny, "kept", version)) == len(found), 90, f"v{version} has all rows")
    assert kinds(tiny, "kept", version) == found


def run_id(tiny: Tiny, version: int) -> object:
    ((found,),) = tiny.ledger('SELECT run_id FROM deployment WHERE "table" = ? AND version = ?', "kept", version)
    return found


def test_a_changed_jar_is_released_and_rolled_back_and_survives_kills_and_deletion(of_jar: Tiny) -> None:
    tiny, file = of_jar, of_jar.folder / "functions/acme.jar"
    told = json.loads(tiny.done("test", "tag()", "--json"))
    assert told["passed"] and [each["table"] for each in told["cases"]] == ["tag()"]
    done = tiny.apply(tiny.plan("--all"))
    assert done.returncode == 0, done.stdout + done.stderr
    land_tagged(tiny, 1, (6, "1-"))

    # The new version catches up beside the old one, and each has the code of its jar.
    file.write_bytes(tag_jar("2-"))
    plan = tiny.plan("kept", "--rebuild", "--children", "all")
    (node,) = (each for each in plan["nodes"] if each["table"] == "kept")
    assert node["change"] == "filter_or_projection"
    done = tiny.apply(plan)
    assert done.returncode == 0, done.stdout + done.stderr
    land_tagged(tiny, 2, (8, "2-"))

    # A new agent finds the query in its session, without the file of the project, and so does a new server.
    file.unlink()
    before = run_id(tiny, 2)
    os.kill(tiny.agent_pid(), signal.SIGKILL)
    tiny.done("up")
    until(lambda: tiny.statements()["kept"]["state"] == "running", 60, "kept is known to run")
    land_tagged(tiny, 2, (10, "2-"))
    assert run_id(tiny, 2) == before
    tiny.replace_pool()
    until(lambda: tiny.statements()["kept"]["state"] == "running", 180, "kept runs again")
    land_tagged(tiny, 2, (12, "2-"))

    done = tiny.apply(tiny.plan("rollback", "kept"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert tiny.statements()["kept"]["version"] == 1
    land_tagged(tiny, 1, (14, "1-"))

    # In place: rows from now on have the new code, and after the undo the old one again.
    file.write_bytes(tag_jar("3-"))
    plan = tiny.plan("kept")
    done = tiny.apply(plan)
    assert done.returncode == 0, done.stdout + done.stderr
    land_tagged(tiny, 1, (14, "1-"), (16, "3-"))
    done = tiny.apply(tiny.plan("undo", plan["hash"][:12]))
    assert done.returncode == 0, done.stdout + done.stderr
    land_tagged(tiny, 1, (14, "1-"), (16, "3-"), (18, "1-"))

    # A plan deploys the jar with which it was submitted, whatever the file contains later.
    file.write_bytes(tag_jar("4-"))
    tiny.done("plan", "kept", "--save", "saved.json")
    file.write_bytes(tag_jar("5-"))
    tiny.done("apply", "saved.json", "--confirm", "yes")
    land_tagged(tiny, 1, (14, "1-"), (16, "3-"), (18, "1-"), (20, "4-"))

    # Classes for a newer Java are found before the running query is stopped.
    before = run_id(tiny, 1)
    file.write_bytes(tag_jar("6-", java=99))
    done = tiny.apply(tiny.plan("kept"))
    assert done.returncode != 0
    said = " ".join((done.stdout + done.stderr).split())
    assert "com.acme.Tag of acme.jar is compiled for Java 99, and the pool runs Java" in said
    assert run_id(tiny, 1) == before

    # An error of the class ends the statement with a sentence that names the function.
    file.write_bytes(tag_jar(""))
    tiny.apply(tiny.plan("kept"))
    tiny.land(2)
    until(lambda: tiny.statements()["kept"]["state"] == "failed", 90, "kept has failed")
    ((error,),) = tiny.ledger("SELECT error FROM deployment WHERE \"table\" = 'kept' AND version = 1")
    assert error == "tag: ClassCastException: class java.lang.String cannot be cast to class java.lang.Throwable"
