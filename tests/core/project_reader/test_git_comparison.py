"""A project compared with an older one: changed tables, removed tables, and their old texts."""

import small_project
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from core.model.names import TableName
from core.observed.planner_input import ObservedDeployment
from core.project.revision import RevisionTexts
from core.project_reader.git_comparison import GitComparison, compare_with_commit, with_texts_of_commit
from core.project_reader.parse_cache import ParseCache
from core.project_reader.revision_reader import revision_of

A, B, C = TableName("a"), TableName("b"), TableName("c")
PLACE = "pipelines/facts/p"


def since(old: dict[str, str], new: dict[str, str]) -> GitComparison:
    then = {path: old.get(path) for path in {*old, *new} if old.get(path) != new.get(path)}
    return compare_with_commit("main", small_project.project(new), new, then, ParseCache(), environment="dev")


def test_only_what_differs_is_found_with_its_older_texts() -> None:
    old, new = small_project.texts(), small_project.texts(b="SELECT id, 'x' AS kind FROM STREAM a")
    found = since(old, new)
    assert found.changed == (B,) and found.gone == ()
    assert found.before == {B: revision_of(small_project.project(old).tables[B]).texts}


def test_the_same_texts_differ_in_nothing() -> None:
    assert since(small_project.texts(), small_project.texts()) == GitComparison("main")


def test_settings_are_those_of_the_table_of_its_unit_or_of_the_project() -> None:
    old = small_project.texts()
    for path, changed in ((f"{PLACE}/b/b.yml", (B,)), ("pipelines/facts/other/c/c.yml", (C,))):
        assert since(old, old | {path: "trigger: 1 minute\n"}).changed == changed
        assert since(old | {path: "trigger: 1 minute\n"}, old).changed == changed
        assert since(old | {path: "trigger: 1 minute\n"}, old | {path: "trigger: 2 minutes\n"}).changed == changed


def test_a_default_changes_the_tables_that_inherit_it() -> None:
    old = small_project.texts() | {f"{PLACE}/b/b.yml": "trigger: 1 minute\n"}
    new = old | {"headgate.yml": small_project.HEAD + "defaults: {trigger: 5 seconds}\n"}
    found = since(old, new)
    assert found.changed == (A, C, "landed") and "10 seconds" in found.before[A].yml
    other = old | {"headgate.yml": small_project.HEAD.replace("dev: {}", "dev: {data: elsewhere}")}
    assert since(old, other).changed == ()


def test_differences_of_the_environment_are_reported_by_key_only() -> None:
    old = small_project.texts()
    pool = "pool: {memory: 1g, conf: {spark.sql.shuffle.partitions: 7, spark.x.value: hidden}}"
    env = f"dev: {{data: d, {pool}, policy: {{freeze: Sat, drop_after_d: 3, gate_ends_h: 9}}}}"
    new = old | {"headgate.yml": small_project.HEAD.replace("dev: {}", env)}
    keys = ("place.data", "policy.drop_after_d", "policy.freeze", "policy.gate_ends_h",
            "pool.conf.spark.sql.shuffle.partitions", "pool.conf.spark.x.value", "pool.memory")  # fmt: skip
    assert since(old, new).settings == since(new, old).settings == keys
    other = old | {"headgate.yml": small_project.HEAD + "  prod: {data: d}\n"}
    assert since(old, other).settings == since(old, old).settings == ()


def test_a_file_of_several_statements_changes_all_that_it_writes() -> None:
    files = small_project.texts()
    folder = f"{PLACE}/a/sql-scripts"
    both = files[f"{folder}/dml.a.sql"] + "\nINSERT INTO a2 SELECT id, kind FROM STREAM landed;"
    ddl = {f"{folder}/ddl.a2.sql": f"CREATE TABLE a2 {small_project.COLUMNS} USING parquet;"}
    old = files | ddl | {f"{folder}/dml.a.sql": both}
    assert since(old, old | {f"{folder}/dml.a.sql": both.replace("STREAM landed;", "STREAM landed WHERE id > 0;", 1)}
                 ).changed == (A, "a2")  # fmt: skip


def test_a_table_that_is_gone_has_its_older_texts() -> None:
    old = small_project.texts()
    new = {path: text for path, text in old.items() if "/c/" not in path}
    found = since(old, new)
    assert found.changed == () and found.gone == (C,) and "INSERT INTO c" in found.before[C].dml


def test_an_older_ddl_that_cannot_be_read_leaves_a_changed_table_without_texts() -> None:
    new = small_project.texts()
    found = since(new | {f"{PLACE}/b/sql-scripts/ddl.b.sql": "CREATE"}, new)
    assert found.changed == (B,) and found.before == {}


def test_an_unreadable_older_headgate_yml_has_no_defaults() -> None:
    new = small_project.texts()
    assert since(new | {"headgate.yml": ": ["}, new).changed == ()


def test_observed_tables_without_texts_use_those_of_the_commit() -> None:
    texts = RevisionTexts("d", "m", "y")
    found = GitComparison("main", (A, B), (C,), {A: texts, C: texts})
    ours = RevisionTexts("x", "x", "x")
    observed = {
        A: ObservedDeployment("running", revision=""),
        B: ObservedDeployment("running", revision=""),
        C: ObservedDeployment("stopped", revision=""),
        TableName("d"): ObservedDeployment("running", revision=""),
    }
    seen = with_texts_of_commit(found, observed)
    assert seen[A].deployed == texts == seen[C].deployed
    assert seen[B].deployed is None and seen[B].revision == "changed"
    assert seen[TableName("d")] == observed[TableName("d")]
    for told in (
        ObservedDeployment("running", deployed=ours),
        ObservedDeployment("running", "same"),
        ObservedDeployment("running", "0" * 64),
        ObservedDeployment(),
    ):
        assert with_texts_of_commit(found, {A: told}) == {A: told}


FOLDERS = {"a": f"{PLACE}/a", "b": f"{PLACE}/b", "c": "pipelines/facts/other/c"}
EDITS = st.sets(
    st.sampled_from(
        [(table, what) for table in FOLDERS for what in ("select", "ddl", "yml", "place")]
        + [("", "defaults"), ("c", "gone"), ("b", "gone")]
    ),
    max_size=5,
)


def edited(edits: set[tuple[str, str]]) -> dict[str, str]:
    """Return the project's texts with some edits."""
    files = small_project.texts()
    for table, what in sorted(edits):
        folder = FOLDERS.get(table, "")
        ddl, dml = (f"{folder}/sql-scripts/{kind}.{table}.sql" for kind in ("ddl", "dml"))
        if what == "defaults":
            files["headgate.yml"] += "defaults: {trigger: 5 seconds}\n"
        elif what == "gone":
            files = {path: text for path, text in files.items() if not path.startswith(f"{folder}/")}
        elif what == "yml":
            files[f"{folder}/{table}.yml"] = "trigger: 7 seconds\n"
        elif what == "place":
            files = {
                path.replace(f"{folder}/", f"pipelines/views/moved/{table}/"): text for path, text in files.items()
            }
        elif ddl in files:
            files[ddl if what == "ddl" else dml] += f" -- {what}"
    return files


@settings(max_examples=examples(200), deadline=None)
@given(EDITS, EDITS)
def test_reading_only_the_changed_folders_gives_the_same_result_as_reading_all(
    before: set[tuple[str, str]], after: set[tuple[str, str]]
) -> None:
    old, new = edited(before), edited(after)
    then, now = small_project.project(old).tables, small_project.project(new).tables
    changed = {
        name
        for name, table in now.items()
        if name not in then
        or (revision_of(table).texts, table.settings_text, table.folder)
        != (revision_of(then[name]).texts, then[name].settings_text, then[name].folder)
    }
    found = since(old, new)
    assert set(found.changed) == changed and set(found.gone) == set(then) - set(now)
    assert found.before == {
        name: revision_of(then[name]).texts for name in (*found.changed, *found.gone) if name in then
    }
