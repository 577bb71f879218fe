"""Plans as lines: within the width, complete, and the reasons in words."""

import pytest

from core.explain import change_words, left_behind_sentences, node_why, plan_lines, request_words, step_words
from core.layouts import read_project
from core.names import TableName as T
from core.plan import Do, Observed, Request, Step, Texts
from core.planner import make_plan
from core.project import Project, Settings
from core.reasons import BY_ROW, CHANGE_BY_ROW
from tests.core.declaring import plan, project, running, table
from tests.core.test_layouts import MANIFEST, ddl, texts

OLD = "SELECT id FROM STREAM src"


def changed(select: str = f"{OLD} WHERE id > 1") -> tuple[Project, dict[T, Observed]]:
    files = texts(src="", a=select, b="SELECT id FROM STREAM a", c="SELECT id FROM STREAM a")
    found, problems = read_project(files)
    assert found is not None, problems
    place = "pipelines/facts/p/a/sql-scripts"
    old = Texts(files[f"{place}/ddl.a.sql"], f"INSERT INTO a\n{OLD};\n", "trigger: 10 seconds\n")
    return found, {
        T("src"): Observed("running"), T("a"): Observed("running", deployed=old),
        T("b"): Observed("running"), T("c"): Observed("running"),
    }  # fmt: skip


@pytest.mark.parametrize("width", [60, 80, 100, 120, 160, 200])
def test_no_line_is_wider_than_asked_or_ends_in_a_space(width: int) -> None:
    declared = project(
        table("src"), table("a" * 40, "src"), table("b" * 30, "a" * 40, product="q", settings=Settings(owner="o" * 50))
    )
    for found in (
        plan(declared, running(declared), "a" * 40, rebuild=True),
        plan(declared, {}),
        plan(declared, {}, "zz"),
    ):
        for line in plan_lines(found, width):
            assert len(line) <= width and line == line.rstrip()


def test_a_wide_plan_says_why_beside_each_table() -> None:
    declared, observed = changed()
    found = make_plan(declared, "dev", observed, Request(tables=(T("a"),)))
    assert any("filter or projection" in line and "filter added: 1 < id" in line for line in plan_lines(found, 160))
    assert not any("filter added" in line for line in plan_lines(found, 80))


def test_why_gives_reason_evidence_and_diff() -> None:
    declared, observed = changed()
    found = make_plan(declared, "dev", observed, Request(tables=(T("a"),)))
    assert node_why(found, T("a")) == (
        "a: restart",
        "  because it keeps no state, so the new text may go on from the checkpoint",
        "  saw: filter added: 1 < id",
        "  not confirmed by Spark",
        "  undo until: any time: plan the old text",
        "  dml.a",
        "  @@ -1,2 +1,2 @@",
        "   INSERT INTO a",
        "  -SELECT id FROM STREAM src;",
        "  +SELECT id FROM STREAM src WHERE id > 1;",
    )
    assert node_why(found, T("zz")) == ("zz is not in this plan",)


def test_a_renamed_column_is_refused_naming_each_reader_and_line() -> None:
    files = texts(src="", b="SELECT id\nFROM STREAM a", c="SELECT a.id FROM STREAM a")
    place = "pipelines/facts/p/a/sql-scripts"
    files[f"{place}/ddl.a.sql"] = ddl("a", "ref BIGINT")
    files[f"{place}/dml.a.sql"] = "INSERT INTO a SELECT id AS ref FROM STREAM src"
    old = Texts(ddl("a"), "INSERT INTO a SELECT id FROM STREAM src")
    observed = {T("a"): Observed("running", deployed=old), T("b"): Observed("running"), T("c"): Observed("running")}
    found, _ = read_project(files)
    assert found is not None
    made = make_plan(found, "dev", observed, Request(tables=(T("a"),), children="none"))
    assert [r.summary for r in made.refusals] == [
        "a loses column id, which b reads at dml.b.sql:2", "a loses column id, which c reads at dml.c.sql:2",
    ]  # fmt: skip
    assert made.empty


def test_a_renamed_column_is_rebuilt_once_its_readers_name_the_new_one() -> None:
    files = texts(src="", b="SELECT ref AS id FROM STREAM a")
    place = "pipelines/facts/p/a/sql-scripts"
    files[f"{place}/ddl.a.sql"] = ddl("a", "ref BIGINT")
    files[f"{place}/dml.a.sql"] = "INSERT INTO a SELECT id AS ref FROM STREAM src"
    observed = {
        T("a"): Observed("running", deployed=Texts(ddl("a"), "INSERT INTO a SELECT id FROM STREAM src")),
        T("b"): Observed("running", deployed=Texts(ddl("b"), "INSERT INTO b SELECT id FROM STREAM a")),
    }
    found, _ = read_project(files)
    assert found is not None
    made = make_plan(found, "dev", observed, Request(tables=(T("a"),)))
    assert not made.refusals and [(n.table, n.action, n.row) for n in made.nodes] == [
        ("src", "keep", "0"), ("a", "rebuild", "5"), ("b", "rebuild", "3"),
    ]  # fmt: skip


def test_every_row_has_a_reason_and_words() -> None:
    assert set(BY_ROW) <= set(CHANGE_BY_ROW)


def test_left_behind_names_product_owner_and_version() -> None:
    declared = project(table("src"), table("a", "src"), table("b", "a", product="q", settings=Settings(owner="team")))
    assert left_behind_sentences(plan(declared, running(declared), "a", rebuild=True)) == (
        "b (product q, owner team) stays on a__v1; v1 goes on running while it does",
    )


def test_a_request_reads_like_the_command_line() -> None:
    declared = project(src="", a="src")
    found = plan(declared, {}, "a", children="all", exclude=(T("src"),))
    assert request_words(found) == "deploy a --children all --exclude src"


@pytest.mark.parametrize(
    ("do", "version", "words"),
    [
        (Do.CREATE, 2, "create a__v2"), (Do.START, 2, "start a@v2"), (Do.CATCH_UP, 2, "catch up a@v2"),
        (Do.REGISTER, 0, "register a"), (Do.ALTER, 0, "alter a"), (Do.ALTER, 1, "alter a__v1"),
        (Do.RECORD, 1, "record a"), (Do.UNPOINT, 1, "unpoint a"), (Do.TOMBSTONE, 1, "tombstone a__v1"),
    ],
)  # fmt: skip
def test_a_step_names_what_it_acts_on(do: Do, version: int, words: str) -> None:
    assert step_words(Step(1, do, T("a"), version, (), "", "")) == words


def test_a_child_says_that_its_parent_is_re_created() -> None:
    declared = project(src="", a="src", b="a")
    found = plan(declared, running(declared), "a", rebuild=True)
    assert [change_words(node) for node in found.nodes] == ["none", "rebuild asked for", "parent re-created"]


def test_the_manifest_of_these_tests_is_read() -> None:
    assert read_project({"headgate.yml": MANIFEST})[1] == ()
