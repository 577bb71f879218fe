"""sql and diff: the facts of a text and of an edit, from files, git and stdin, for people and for programs."""

import io
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tui.command_line import exit_codes

SUM = (
    "INSERT INTO t SELECT k, sum(v) AS s FROM STREAM a WITH (maxFilesPerTrigger=1) IDENTIFIED BY src "
    "WATERMARK ts DELAY OF INTERVAL 10 MINUTES JOIN dim USING (k) GROUP BY k, window(ts, '5 minutes')"
)
ROWS = "INSERT INTO t SELECT id, v FROM STREAM a"
DDL = "CREATE TABLE t (id BIGINT, v BIGINT) USING parquet"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> Any:
    assert exit_codes.run_command_line([*words, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def write(folder: Path, **texts: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name}.sql").write_text(text)


def test_sql_says_what_a_statement_reads_keeps_and_writes(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(here, q=SUM)
    found = run(capsys, "sql", "q.sql")
    prints = found.pop("fingerprints")
    assert found == {
        "writes": ["t"],
        "reads": [
            {
                "table": "a",
                "streaming": True,
                "options": {"maxFilesPerTrigger": "1"},
                "source_name": "src",
                "watermark": {"column": "ts", "delay": "10 minute"},
            },
            {"table": "dim", "streaming": False, "options": {}, "source_name": None, "watermark": None},
        ],
        "stateful": True,
        "operators": [{"kind": "window", "keys": ["k", "window(ts, '5 minutes')"], "detail": "sum(v)"}],
        "columns": [{"name": "k", "expression": "k"}, {"name": "s", "expression": "sum(v)"}],
        "problems": [],
    }
    assert prints["sem"] and prints["state"] and (prints["sink"], prints["pool"]) == (None, None)


def test_sql_reads_stdin_and_takes_every_table_as_a_stream(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for reads, streaming in (("stream", True), ("batch", False)):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"INSERT INTO t SELECT id FROM a")))
        exit_codes.run_command_line(["sql", "-", "--reads", reads, "--json"])
        assert [read["streaming"] for read in json.loads(capsys.readouterr().out)["reads"]] == [streaming]


def test_sql_reads_tables_as_the_project_declares(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = folder / "pipelines/facts/p/b/sql-scripts/dml.b.sql"
    place.write_text("INSERT INTO b SELECT id, kind FROM a")
    (place.parents[1] / "b.yml").write_text("reads: stream\n")
    assert run(capsys, "sql", str(place))["reads"][0]["streaming"]
    assert not run(capsys, "sql", str(place), "--reads", "batch")["reads"][0]["streaming"]


def test_sql_of_several_statements_gives_them_together_and_one_by_one(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(here, q=f"{ROWS}; INSERT INTO u SELECT id FROM STREAM b")
    found = run(capsys, "sql", "q.sql")
    assert found["writes"] == ["t", "u"]
    assert [each["writes"] for each in found["statements"]] == [["t"], ["u"]]
    assert [read["table"] for read in found["reads"]] == ["a", "b"]


def test_unreadable_sql_is_a_problem_with_its_position(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(here, q="INSERT INTO t\nSELECT id FROM STREAM a WHERE (id")
    (problem,) = run(capsys, "sql", "q.sql", code=2)["problems"]
    assert (problem["file"], problem["line"]) == ("q.sql", 2)


@pytest.mark.parametrize(
    "call", ["java_method('a', 'b')", "reflect('a', 'b')", "xpath_string(x, 'a')", "from_xml(x, 'a INT', map())"]
)
def test_sql_refuses_what_reaches_out_as_a_plan_does(call: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(here, q=f"INSERT INTO t\nSELECT {call} AS id FROM STREAM a")
    (problem,) = run(capsys, "sql", "q.sql", code=2)["problems"]
    assert (problem["file"], problem["line"], problem["severity"]) == ("q.sql", 2, "error")
    assert problem["subject"] == call.partition("(")[0]


def test_an_unparsable_text_is_reported_once_with_its_line_and_a_remedy(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(here, old=ROWS, new=f"{ROWS}\nGRUOP BY id")
    assert exit_codes.run_command_line(["diff", "old.sql", "new.sql"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "new.sql:2:7: error: the SQL cannot be parsed: `BY` is not expected here",
        "    GRUOP BY id",
        "          ^",
        "    did you mean GROUP?",
        "headgate: new.sql has 1 problem",
        "  correct what is listed",
    ]


def test_fingerprints_cover_the_ddl_beside_the_statement(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(here / "t/sql-scripts", **{"dml.t": ROWS, "ddl.t": DDL})
    before = run(capsys, "sql", "t/sql-scripts/dml.t.sql")["fingerprints"]
    write(here / "t/sql-scripts", **{"ddl.t": DDL.replace("v BIGINT", "v STRING")})
    after = run(capsys, "sql", "t/sql-scripts/dml.t.sql")["fingerprints"]
    assert {name for name in before if before[name] != after[name]} == {"text", "schema"}


def sentences(found: dict[str, Any]) -> list[str]:
    return [seen["sentence"] for seen in found["evidence"]]


@pytest.mark.parametrize(
    ("new", "row", "action", "evidence"),
    [
        (ROWS, "0", "keep", []),
        (f"{ROWS} -- all", "1", "record", ["the text changed"]),
        (f"{ROWS} WHERE v > 1", "3", "restart", ["filter added: v > 1"]),
        (ROWS.replace("id, v", "id"), "5", "rebuild", ["column v was removed", "column removed: v"]),
        (
            ROWS.replace("id, v", "id, CAST(v AS STRING) AS v"),
            "5",
            "rebuild",
            [
                "column v: string is written, and the type of the table's column is unknown",
                "column v: v → CAST(v AS STRING)",
            ],
        ),
        (ROWS.replace("INTO t", "INTO u"), "8", "rebuild", ["table: t → u"]),
    ],
)
def test_diff_says_row_action_and_evidence(
    here: Path, capsys: pytest.CaptureFixture[str], new: str, row: str, action: str, evidence: list[str]
) -> None:
    write(here, old=ROWS, new=new)
    found = run(capsys, "diff", "old.sql", "new.sql")
    assert (found["row"], found["action"], sentences(found)) == (row, action, evidence)
    assert found["confirmed_by_spark"] is None and found["classified"]
    assert bool(found["diff"]) == (new != ROWS)


def test_diff_takes_ddl_settings_and_pool_from_beside_the_texts(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = "project: p\nid: 5b0e4a52-9df2-4a52-9c0c-0f6f8d1a2b3c\ndefault_env: dev\nenvironments: {dev: {}}\n"
    for side, pool, trigger in (("one", "small", "5 seconds"), ("two", "big", "1 minute")):
        write(here / side / "t/sql-scripts", **{"dml.t": ROWS, "ddl.t": DDL})
        (here / side / "t/t.yml").write_text(f"trigger: {trigger}\n")
        (here / side / "headgate.yml").write_text(manifest.replace("dev: {}", f"dev: {{pool: {{name: {pool}}}}}"))
    found = run(capsys, "diff", "one/t/sql-scripts/dml.t.sql", "two/t/sql-scripts/dml.t.sql")
    assert found["row"] == "12"
    assert sentences(found)[:2] == ["pool: small → big", "trigger: 5 seconds → 1 minute"]
    assert "+trigger: 1 minute" in found["diff"]


@pytest.mark.parametrize("edited", ["old", "new"])
def test_a_copy_without_its_ddl_and_settings_is_compared_by_its_sql_alone(
    edited: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = folder / "pipelines/facts/p/b/sql-scripts/dml.b.sql"
    place.write_text("INSERT INTO b SELECT id, kind FROM a")
    (place.parents[1] / "b.yml").write_text("reads: stream\ntrigger: 15 seconds\n")
    write(tmp_path / "elsewhere", copy=place.read_text(), edit=f"{place.read_text()} WHERE id > 1")
    copy, edit = (str(tmp_path / f"elsewhere/{name}.sql") for name in ("copy", "edit"))
    sides = (str(place), copy) if edited == "new" else (copy, str(place))
    found = run(capsys, "diff", *sides)
    assert (found["row"], found["evidence"], found["diff"]) == ("0", [], [])
    sides = (str(place), edit) if edited == "new" else (edit, str(place))
    found = run(capsys, "diff", *sides)
    assert (found["row"], sentences(found)) == ("3", [f"filter {'added' if edited == 'new' else 'removed'}: id > 1"])
    assert exit_codes.run_command_line(["diff", *sides]) == 0
    assert f"there is no DDL beside {edit}: both sides use the settings and pool of {place}" in capsys.readouterr().err


def test_diff_reads_a_text_of_another_revision_from_git(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def git(*words: str) -> None:
        subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x", *words], cwd=here, check=True)

    write(here / "t/sql-scripts", **{"dml.t": ROWS, "ddl.t": DDL})
    git("init", "-q", ".")
    git("add", ".")
    git("commit", "-qm", "one")
    ddl = DDL.replace("v BIGINT", "v BIGINT, k STRING")
    write(here / "t/sql-scripts", **{"dml.t": ROWS.replace("v FROM", "v, k FROM"), "ddl.t": ddl})
    for path in ("t/sql-scripts/dml.t.sql", "./t/sql-scripts/dml.t.sql"):
        found = run(capsys, "diff", f"HEAD:{path}", "t/sql-scripts/dml.t.sql")
        assert (found["row"], sentences(found)[0]) == ("4", "column k string is added")
    assert run(capsys, "diff", "HEAD:nowhere.sql", "t/sql-scripts/dml.t.sql", code=2)["error"]["class"] == "UsageError"


def test_a_text_from_git_is_what_a_checkout_would_write(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def git(*words: str) -> None:
        subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x", *words], cwd=here, check=True)

    (here / "link.sql").symlink_to("kept.sql")
    (here / "kept.sql").write_text("INSERT INTO t SELECT id FROM STREAM kept")
    (here / "lfs.sql").write_text("version 1")
    (here / ".gitattributes").write_text("lfs.sql filter=lfs\n")
    git("init", "-q", ".")
    git("add", ".")
    git("commit", "-qm", "one")
    git("config", "filter.lfs.smudge", "cat >/dev/null; echo INSERT INTO t SELECT id FROM STREAM smudged")
    assert run(capsys, "sql", "HEAD:./link.sql")["reads"][0]["table"] == "kept"
    assert run(capsys, "sql", "HEAD:lfs.sql")["reads"][0]["table"] == "smudged"


def test_diff_knows_the_columns_of_parents_that_the_project_declares(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = folder / "pipelines/facts/p/b/sql-scripts"
    old = "INSERT INTO b SELECT a.id, wide FROM STREAM a JOIN more ON a.id = more.id"
    write(place, old=old, new=old.replace("wide", "more.wide"))
    assert run(capsys, "diff", str(place / "old.sql"), str(place / "new.sql"))["row"] == "3"
    ddl = "CREATE TABLE more (id BIGINT, wide STRING) USING json LOCATION 'more'"
    write(folder / "pipelines/sources/p/more/sql-scripts", **{"ddl.more": ddl})
    assert run(capsys, "diff", str(place / "old.sql"), str(place / "new.sql"))["row"] == "1"


def test_diff_of_several_statements_names_the_worst_first(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = "INSERT INTO u SELECT id FROM STREAM b"
    write(here, old=f"{ROWS}; {other}", new=f"{ROWS} WHERE v > 1; {other.replace('STREAM b', 'STREAM c')}")
    found = run(capsys, "diff", "old.sql", "new.sql")
    assert (found["row"], found["writes"]) == ("7c", ["t", "u"])
    assert [words.split(":")[0] for words in sentences(found)] == ["u", "u", "t"]


def test_diff_treats_an_old_text_that_cannot_be_read_as_the_worst_and_refuses_a_new_one(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(here, good=ROWS, bad="INSERT INTO t SELECT FROM")
    found = run(capsys, "diff", "bad.sql", "good.sql")
    assert (found["row"], found["change"], found["action"]) == ("6a", "state_changed", "rebuild")
    assert found["classified"] is False
    assert run(capsys, "diff", "good.sql", "bad.sql", code=2)["problems"]


def test_people_read_both(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(here, old=SUM, new=SUM.replace("sum(v)", "max(v)"))
    assert exit_codes.run_command_line(["sql", "old.sql"]) == 0
    said = capsys.readouterr().out
    assert "keeps   window by k, window(ts, '5 minutes'): sum(v)" in said
    assert "reads   STREAM  a  (maxFilesPerTrigger=1, named src, watermark ts 10 minute)" in said
    assert exit_codes.run_command_line(["diff", "old.sql", "new.sql"]) == 0
    assert capsys.readouterr().out.startswith("rebuild: state no longer fits (6a)\n  aggregates: sum(v) → max(v)\n")


def answered(same: bool, **new: Any) -> dict[str, Any]:
    """Script the agent's answer to one question: Spark's analysis of `b`, equal for both texts unless `new` differs."""
    columns = [{"name": "id", "type": "bigint", "nullable": True}, {"name": "kind", "type": "string", "nullable": True}]
    source = {"table": "a", "streaming": True, "source_name": ""}
    side = {"sources": [source], "columns": columns, "operators": [], "refused": None}
    return {"answers": [{"engine": "4.2.0", "new": side | new, "old": side, "same": same}], "unanswered": ""}


@pytest.mark.parametrize(
    ("edit", "answer", "row", "confirmed"),
    [
        (("id, kind", "b.id, b.kind"), answered(True), "1", True),
        (("id, kind", "b.id, b.kind"), answered(False), "1", None),
        ((";", " WHERE id > 1;"), answered(False), "3", True),
        ((";", " WHERE id > 1;"), answered(False, sources=[]), "6a", False),
    ],
)
def test_sparks_analysis_can_only_make_a_diff_more_severe(
    folder: Path,
    agent: Any,
    capsys: pytest.CaptureFixture[str],
    edit: tuple[str, str],
    answer: dict[str, Any],
    row: str,
    confirmed: bool | None,
) -> None:
    agent.script["opinion"] = answer
    old = folder / "pipelines/facts/p/b/sql-scripts/dml.b.sql"
    text = old.read_text().replace("FROM STREAM a", "FROM STREAM a AS b")
    old.write_text(text)
    write(old.parent, new=text.replace(*edit))
    found = run(capsys, "diff", str(old), str(old.with_name("new.sql")), "--spark")
    assert (found["row"], found["confirmed_by_spark"]) == (row, confirmed)
    (asked,) = next(request["args"]["questions"] for request in agent.heard if request.get("op") == "opinion")
    assert sorted(asked["new"]["tables"]) == ["a"]


def test_sql_shows_where_spark_reads_a_statement_differently(
    folder: Path, agent: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    agent.script["opinion"] = answered(True, sources=[])
    (said,) = run(capsys, "sql", "pipelines/facts/p/b/sql-scripts/dml.b.sql", "--spark")["spark"]
    assert said["engine"] == "4.2.0" and said["disagreements"]


def test_without_an_agent_spark_cannot_be_asked(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = "pipelines/facts/p/b/sql-scripts/dml.b.sql"
    write(folder, new=(folder / path).read_text().replace(";", " WHERE id > 1;"))
    for words in (["sql", path], ["diff", path, "new.sql"]):
        assert run(capsys, *words, "--spark", code=4)["error"]["class"] == "AgentUnreachable"


VARIABLES = """project: shop
id: 12345678-1234-5678-1234-567812345678
default_env: dev
variables: {days: {type: int, default: 7}}
environments: {dev: {}, prod: {variables: {days: 30}}}
"""


def test_variables_have_the_values_of_the_environment(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(here / "one", **{"dml.t": f"{ROWS} WHERE v < ${{days}}", "ddl.t": DDL})
    write(here / "two", **{"dml.t": f"{ROWS} WHERE v < 30", "ddl.t": DDL})
    (here / "headgate.yml").write_text(VARIABLES)
    files = "one/dml.t.sql", "two/dml.t.sql"
    found = run(capsys, "diff", *files, "--env", "prod")
    assert (found["change"], found["diff"][-1][:1]) == ("comment_or_format", "+")
    found = run(capsys, "diff", *files)
    assert found["change"] == "filter_or_projection"
    assert [each["kind"] for each in found["evidence"]] == ["filter", "variable"]
    sems = {run(capsys, "sql", file, "--env", "prod")["fingerprints"]["sem"] for file in files}
    assert len(sems) == 1
    write(here / "two", **{"dml.t": f"{ROWS}\nWHERE v < ${{day}}"})
    (wrong,) = run(capsys, "sql", "two/dml.t.sql", code=2)["problems"]
    assert (wrong["line"], wrong["column"], wrong["remedy"]) == (2, 11, "did you mean days?")
