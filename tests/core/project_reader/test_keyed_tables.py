"""Keyed tables in a project: their settings, Problems with their positions, and the statements that may stream them."""

import pytest

from core.changes.kinds import ChangeKind
from core.changes.revision_diff import revision_differences
from core.model.evidence import Edit, EditKind
from core.model.names import TableName as T
from core.model.problems import Problem, Severity
from core.project.model import Settings, Table
from core.project_reader.loader import read_project, read_settings, settings_as_text
from core.project_reader.parse_cache import ParseCache, wrong_columns
from core.project_reader.revision_reader import read_revision, revision_of
from core.sql.compiler import compile_select
from tests.core.project_reader.test_loader import MANIFEST, ddl

YML = "pipelines/facts/p/k/k.yml"
DML = "pipelines/facts/p/{}/sql-scripts/dml.{}.sql"
KEYED = "mode: upsert\nkey: [id]\nsequence: at\ndeletes: gone AND at IS NOT NULL\n"
COLUMNS = "id BIGINT, v STRING, at TIMESTAMP, gone BOOLEAN, m MAP<STRING, STRING>"


def project(yml: str = KEYED, child: str = "", form: str = "USING delta") -> dict[str, str]:
    found = {"headgate.yml": f"{MANIFEST}connectors: {{delta: {{}}}}\n", YML: yml}
    for name, select in (("src", ""), ("k", "SELECT * FROM STREAM src"), ("c", child)):
        if name == "c" and not child:
            continue
        place = f"pipelines/facts/p/{name}/sql-scripts"
        rest = form if select else "USING json LOCATION 'landing'"
        found[f"{place}/ddl.{name}.sql"] = ddl(name, COLUMNS if name != "c" else "id BIGINT, what STRING", rest)
        if select:
            found[f"{place}/dml.{name}.sql"] = f"INSERT INTO {name}\n{select};\n"
    return found


def problems(found: dict[str, str]) -> list[str]:
    every = read_project(found)[1]
    assert all(each.remedy for each in every)
    return [f"{each.where}: {each.summary}" for each in every if each.severity is Severity.ERROR]


def test_the_settings_of_a_keyed_table_survive_a_round_trip() -> None:
    cache = ParseCache()
    found, _ = read_project(project(), cache)
    assert found is not None
    settings = found.tables[T("k")].settings
    assert (settings.upserts, settings.key, settings.sequence) == (True, ("id",), "at")
    assert settings.deletes == "gone AND at IS NOT NULL"
    wrong: list[Problem] = []
    assert read_settings(settings_as_text(settings), "k.yml", Settings(), wrong) == settings and not wrong
    again, _ = read_project(project(), ParseCache(cache.take_fresh()))
    assert again is not None and again.tables[T("k")].settings == settings
    assert not Settings().upserts and "mode" not in settings_as_text(Settings())


@pytest.mark.parametrize(
    ("yml", "expected"),
    [
        ("mode: upsert\n", "1: mode is upsert and there is no key: nothing tells one row from another"),
        ("mode: upsert\nsequence: at\nkey: []\n", "3: mode is upsert and there is no key"),
        ("key: [id]\nsequence: at\n", "2: sequence must be left out without mode: upsert"),
        ("deletes: gone\n", "1: deletes must be left out without mode: upsert"),
        ("mode: merge\n", "1: mode must be append or upsert, not merge"),
        ("mode: upsert\nkey: [id]\nsequence: at\ndeletes: gone =\n",
         "4: k has a wrong condition for deletes: the SQL cannot be parsed: an operand is missing at its end"),
        ("mode: upsert\nkey: [id]\nsequence: at\ndeletes: gone AND AND\n",
         "4: k has a wrong condition for deletes: the SQL cannot be parsed: an operand is missing at `AND`"),
        ("mode: upsert\nkey: [idd]\n", "2: k has no column idd, which is its key"),
        ("mode: upsert\nkey: [id, ID]\n", "2: k names a column of its key twice"),
        ("mode: upsert\nkey: [m]\n", "2: k has the key m, which is map<string,string> and cannot be compared"),
        ("mode: upsert\nkey: [id]\n\nsequence: when\n", "4: k has no column when, which is its sequence"),
        ("mode: upsert\nkey: [id, at]\nsequence: AT\ndeletes: gone\n", "3: k has the sequence AT, which is in its key"),
        ("mode: upsert\nkey: [id]\ndeletes: gone\n", "3: k deletes rows and has no sequence: "),
        ("mode: upsert\nkey: [id]\nsequence: at\ndeletes: goner\n",
         "4: k has a wrong condition for deletes: goner is no column"),
        ("mode: upsert\nkey: [id]\nsequence: at\ndeletes: gone -- x\n", ""),
        ("mode: upsert\nkey: [id]\nsequence: at\ndeletes: gone AND (NOT gone OR v IS NULL)\n", ""),
        ("mode: upsert\nkey: [id]\nsequence: at\ndeletes: coalesce(gone, false)\n", ""),
        ("mode: upsert\nkey: [id]\nsequence: at\ndeletes: v IS\n",
         "4: k has a wrong condition for deletes: IS is an alias and compares nothing"),
        ("mode: upsert\nkey: [id]\nsequence: at\ndeletes: gone AND NOT V\n",
         "4: k has a wrong condition for deletes: V is string, which is neither true nor false"),
        ("mode: upsert\nkey: [id]\nsequence: at\ndeletes: gone, v\n",
         "4: k has a wrong condition for deletes: it is several expressions"),
        ("mode: upsert\nkey: [id]\nsequence: at\ndeletes: \"1\"\n",
         "4: k has a wrong condition for deletes: 1 is neither true nor false"),
        ("reads: change\nmode: upsert\nkey: [id]\nsequence: at\n",
         "1: reads must be stream, batch, changes or rows"),
        ("mode: upsert\nkey: [id]\nsequence: at\ndeletes: count(*) > 1\n",
         "4: k has a wrong condition for deletes: count() aggregates many rows, but the condition is"),
        ("mode: upsert\nkey: [id]\nsequence: at\ndeletes: gone OR max(v) = 'x'\n",
         "4: k has a wrong condition for deletes: max() aggregates many rows"),
        ("mode: upsert\nkey: [id]\nsequence: at\ndeletes: row_number() OVER (ORDER BY id) > 1\n",
         "4: k has a wrong condition for deletes: row_number() OVER compares rows"),
        ("mode: upsert\nkey: [id]\nsequence: at\ndeletes: explode(split(v, ',')) = 'x'\n",
         "4: k has a wrong condition for deletes: explode() turns one row into many"),
        ("mode: upsert\nkey: [id]\nsequence: at\ndeletes: rand() < 0.5\n",
         "4: k has a wrong condition for deletes: rand() returns a different value each time"),
        ("mode: upsert\nkey: [id]\nsequence: at\ndeletes: uuid() = v\n",
         "4: k has a wrong condition for deletes: uuid() returns a different value each time"),
        ("mode: upsert\nkey: [id]\nsequence: at\ndeletes: array_max(array(id, 2)) > 1 AND greatest(id, 3) > 3\n", ""),
        ("mode: upsert\nkey: [id]\nsequence: at\ndeletes: gone) OR (\n",
         "4: k has a wrong condition for deletes: its brackets"),
        ("mode: upsert\nkey: [id]\nsequence: at\ndeletes: id IN (SELECT id FROM src)\n",
         "4: k has a wrong condition for deletes: it reads a table"),
        ("mode: upsert\nkey: [id]\nsequence: at\ndeletes: java_method('java.lang.System', 'exit', 1) IS NULL\n",
         "4: k has a wrong condition for deletes: "),
    ],
)  # fmt: skip
def test_mistakes_have_their_line_in_the_yml(yml: str, expected: str) -> None:
    found = problems(project(yml))
    assert (found == []) is (expected == ""), found
    assert all(each.startswith(f"{YML}:{expected}") for each in found), found


@pytest.mark.parametrize(
    ("was", "now", "expected"),
    [("id BIGINT", "id CHAR(5)", "2: k has the key id, which is char(5): Delta's MERGE cannot compare it"),
     ("id BIGINT", "id VARCHAR(5)", ""),
     ("v STRING", "Headgate_Gone STRING", "1: k has a column headgate_gone: its writer takes names with headgate_ "),
     ("v STRING", "headgate STRING", "")],
)  # fmt: skip
def test_columns_that_a_writer_cannot_have_are_refused(was: str, now: str, expected: str) -> None:
    found = project("mode: upsert\nkey: [id]\nsequence: at\n")
    table = "pipelines/facts/p/k/sql-scripts/ddl.k.sql"
    assert was in found[table]
    found[table] = found[table].replace(was, now)
    said = [each for each in problems(found) if each.startswith(YML)]
    assert (len(said) == 1 and said[0].startswith(f"{YML}:{expected}")) if expected else said == []


def test_a_keyed_table_without_a_sequence_causes_a_warning_about_rebuilds() -> None:
    read, every = read_project(project("mode: upsert\nkey: [id]\n"))
    assert read is not None
    assert [(each.severity, str(each.where), each.summary) for each in every] == [
        (
            Severity.WARNING,
            f"{YML}:1",
            "k has no sequence: two rows of a key in one batch, as a rebuild reads them, end it",
        )
    ]
    assert read_project(project())[1] == ()


def test_a_misspelt_mode_is_guessed_and_other_mistakes_are_reported_under_that_guess() -> None:
    yml = "mode: upsrt\nkey: [idd, m]\nsequence: v\ndeletes: gone AND AND\n"
    found = read_project(project(yml, form="USING parquet"))[1]
    assert [f"{each.where}: {each.severity}: {each.summary} → {each.remedy}" for each in found] == [
        f"{YML}:1: error: k is parquet, whose rows have no key → write USING delta, or leave out mode: upsert",
        f"{YML}:1: error: mode must be append or upsert, not upsrt → did you mean upsert?",
        f"{YML}:2: error: k has no column idd, which is its key → did you mean id?",
        f"{YML}:2: error: k has the key m, which is map<string,string> and cannot be compared → "
        "take a column of a plain type: id, v, at, gone",
        f"{YML}:3: warning: k has the sequence v, which is string: '10' is older than '9' there → "
        "declare it as TIMESTAMP or BIGINT; only text of one length, as ISO dates are, will do",
        f"{YML}:4: error: k has a wrong condition for deletes: the SQL cannot be parsed: an operand is missing at `AND`"
        " → a comma, an operator, a bracket or a keyword is missing or misspelt at `AND` or before it",
    ]


@pytest.mark.parametrize(
    ("yml", "line", "said"),
    [
        ("mode: upsert\nkey: [id]\nsequence: v\n", 3, "k has the sequence v, which is string: '10' is older than '9'"),
        ("mode: upsert\nsequence: at\nkey: [f]\n", 3, "k has the key f, which is double: a value that is computed"),
        ("mode: upsert\nsequence: at\nkey: [id]\n", 0, ""),
    ],
)
def test_doubtful_keys_and_sequences_cause_a_warning_with_their_line(yml: str, line: int, said: str) -> None:
    texts = {name: text.replace("v STRING", "v STRING, f DOUBLE") for name, text in project(yml).items()}
    found = read_project(texts)[1]
    assert [(each.severity, each.where.line if each.where else 0) for each in found] == (
        [(Severity.WARNING, line)] if line else []
    )
    assert all(each.summary.startswith(said) and each.remedy for each in found)


def test_a_format_without_keys_is_refused_and_may_append() -> None:
    assert problems(project(form="USING parquet")) == [f"{YML}:1: k is parquet, whose rows have no key"]
    assert problems(project("key: [id]\n", form="USING parquet")) == []


def test_a_stream_of_changes_needs_a_table_that_records_them() -> None:
    child = "SELECT id, _change_type AS what FROM STREAM {} WITH ('readChangeFeed'='true')"
    records_none = f"{DML.format('c', 'c')}:2: c streams the changes of {{}}, which records none"
    assert problems(project(child=child.format("src"))) == [records_none.format("src")]
    assert problems(project("", child=child.format("k"))) == [records_none.format("k")]
    said = "USING delta TBLPROPERTIES ('delta.enableChangeDataFeed'='{}')"
    assert problems(project("", child=child.format("k"), form=said.format("true"))) == []
    assert problems(project(child=child.format("k"), form=said.format("false"))) == [records_none.format("k")]


@pytest.mark.parametrize(
    ("child", "expected"),
    [
        ("SELECT id, v AS what FROM STREAM k", "c streams the changes of k and does not say which"),
        ("SELECT id, v AS what FROM STREAM k WITH ('readChangeFeed'='false')",
         "c streams the rows of k, which replaces rows by key: Spark ends it at an update"),
        ("SELECT id, _change_type AS what FROM STREAM k", ""),
        ("SELECT id, v AS what FROM STREAM k WITH ('readChangeFeed'='true')",
         "c streams the changes of k and does not say which"),
        ("SELECT id, _change_type AS what FROM STREAM k WITH ('readChangeFeed'='true')", ""),
        ("SELECT id, v AS what FROM STREAM k WITH ('readChangeFeed'='true') WHERE _change_type = 'insert'", ""),
        ("SELECT id, v AS what FROM STREAM k WITH ('skipChangeCommits'='true')", ""),
    ],
)  # fmt: skip
def test_a_stream_of_a_keyed_table_shows_whether_it_reads_rows_or_changes(child: str, expected: str) -> None:
    found = project(child=child)
    assert problems(found) == ([f"{DML.format('c', 'c')}:2: {expected}"] if expected else [])
    if not expected:
        read, _ = read_project(found)
        assert read is not None and not wrong_columns(read, [T("c")], ParseCache())


CHILD_YML = "pipelines/facts/p/c/c.yml"


def declared_child(child: str, yml: str = "") -> Table:
    found, wrong = read_project(project(child=child) | ({CHILD_YML: yml} if yml else {}))
    assert found is not None, wrong
    return found.tables[T("c")]


@pytest.mark.parametrize(
    ("written", "sent"),
    [("STREAM k", "STREAM k__v1 WITH ('readChangeFeed'='true')"),
     ("STREAM(k) x", "STREAM(k__v1) WITH ('readChangeFeed'='true') x"),
     ("STREAM k IDENTIFIED BY one x", "STREAM k__v1 WITH ('readChangeFeed'='true') IDENTIFIED BY one x"),
     ("STREAM k WITH ('maxFilesPerTrigger'='1') x",
      "STREAM k__v1 WITH ('readChangeFeed'='true', 'maxFilesPerTrigger'='1') x"),
     ("STREAM k WITH ('readChangeFeed'='true')", "STREAM k__v1 WITH ('readChangeFeed'='true')"),
     ("STREAM k WITH ('skipChangeCommits'='true')", "STREAM k__v1 WITH ('skipChangeCommits'='true')")],
)  # fmt: skip
def test_a_child_of_a_keyed_table_takes_its_changes_without_saying_so(written: str, sent: str) -> None:
    child = f"SELECT id, '_change_type' AS what FROM {written}"
    table = declared_child(child)
    assert table.parsed is not None
    select = compile_select(table.parsed, {T("k"): "k__v1"})
    assert select == child.replace(written, sent).rstrip()
    revision = revision_of(table)
    again = read_revision(T("c"), revision.texts, Settings())
    assert again is not None and again.parsed is not None and again.hash == revision.hash
    assert compile_select(again.parsed, {T("k"): "k__v1"}) == select


def test_a_condition_of_a_version_is_written_around_a_stream_of_changes() -> None:
    table = declared_child("SELECT id, _change_type AS what FROM STREAM k AS x")
    assert table.parsed is not None
    select = compile_select(table.parsed, {T("k"): "k__v1"}, {T("k"): "at >= '2026-01-01'"})
    assert "(SELECT * FROM STREAM k__v1 WITH ('readChangeFeed'='true') WHERE at >= '2026-01-01') AS x" in select


@pytest.mark.parametrize(
    ("child", "yml", "expected"),
    [
        ("SELECT id, v AS what FROM STREAM k", "trigger: 1 second\nreads: rows\n",
         "c.yml:2: c streams the rows of k, which replaces rows by key: Spark ends it at an update"),
        ("SELECT id, v AS what FROM STREAM k WITH ('skipChangeCommits'='true')", "reads: rows\n", ""),
        ("SELECT id, _change_type AS what FROM STREAM k", "reads: changes\n", ""),
        ("SELECT id, v AS what FROM STREAM src", "\nreads: changes\n",
         "c.yml:2: c takes changes, and nothing that it streams records any"),
        ("SELECT id, v AS what FROM STREAM src", "reads: rows\n", ""),
        ("SELECT id, v AS what FROM STREAM src", "reads: row\n",
         "c.yml:1: reads must be stream, batch, changes or rows"),
        ("SELECT id, v AS what FROM STREAM src", "changes_of: [k]\n",
         "c.yml:1: c says whose changes it takes, which follows from what it streams"),
    ],
)  # fmt: skip
def test_what_a_child_reads_is_declared_in_its_yml_and_refused_there(child: str, yml: str, expected: str) -> None:
    found = problems(project(child=child) | {CHILD_YML: yml})
    assert found == ([CHILD_YML.removesuffix("c.yml") + expected] if expected else [])


def test_a_table_that_becomes_keyed_changes_what_its_child_reads() -> None:
    child = "SELECT id, '_change_type' AS what FROM STREAM k"
    before, _ = read_project(project("", child=child))
    assert before is not None
    old, new = revision_of(before.tables[T("c")]), revision_of(declared_child(child))
    assert list(revision_differences(old, new)) == [
        (ChangeKind.SOURCE_REPLACED, Edit(EditKind.READ_OPTION, after="true", of="readChangeFeed of k")),
    ]
