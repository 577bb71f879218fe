"""Functions of a project: who may call them, what changes with them, and one Problem for each mistake."""

import json
import re
from collections.abc import Mapping

import pytest

from core.changes.classification import classify
from core.changes.kinds import ChangeKind
from core.changes.spark_cross_check import question_of
from core.changes.spark_questions_and_answers import question_from_json
from core.model.actions import Action
from core.model.errors import UsageError
from core.model.evidence import EditKind
from core.model.names import TableName as T
from core.plan.descriptions import evidence_lines
from core.project.model import Project, Table
from core.project.revision import raising_functions, revision_hash, texts_as_json, texts_from_json, written_hash
from core.project.unreadable_file import UnreadableFile
from core.project_reader.functions import function_files
from core.project_reader.git_comparison import compare_with_commit
from core.project_reader.loader import read_project, read_sound_tables
from core.project_reader.manifest_layout import generated_texts
from core.project_reader.parse_cache import ParseCache
from core.project_reader.project_copy import pack_project, unpack_project
from core.project_reader.revision_reader import read_revision, revision_of
from core.sql.python_declarations import registered_functions
from tests.support.manifest_project import DEAR, files

HEAD = """project: shop
id: 12345678-1234-5678-1234-567812345678
default_env: dev
environments:
  dev: {data: dev}
  far: {data: far, pool: {url: "sc://far:15002"}}
"""
PLACE = "pipelines/facts/p/a"
DML = f"{PLACE}/sql-scripts/dml.a.sql"
VAT = "CREATE FUNCTION vat(amount DOUBLE)\nRETURNS DOUBLE\nRETURN amount * {rate};\n"
FUNCTIONS = {"functions/vat.sql": VAT.format(rate=0.2)}


def texts(
    select: str = "SELECT id, vat(amount) AS v FROM STREAM src",
    functions: Mapping[str, str] = FUNCTIONS,
    head: str = HEAD,
) -> dict[str, str]:
    return {
        "headgate.yml": head,
        "pipelines/sources/p/src/sql-scripts/ddl.src.sql": (
            "CREATE TABLE src (id BIGINT, amount DOUBLE, ts TIMESTAMP) USING json LOCATION 'in';"
        ),
        f"{PLACE}/sql-scripts/ddl.a.sql": "CREATE TABLE a (id BIGINT, v DOUBLE) USING parquet;",
        DML: f"INSERT INTO a\n{select};\n",
        **functions,
    }


def project(found: Mapping[str, str]) -> Project:
    read, problems = read_project(found)
    assert read is not None, problems
    return read


def table(found: Mapping[str, str]) -> Table:
    return project(found).tables[T("a")]


def problems(found: Mapping[str, str], environment: str = "dev") -> list[str]:
    every = read_project(found, environment=environment)[1]
    assert all(each.where and each.remedy for each in every)
    return [f"{each.severity} {each.where}: {each.summary} [{each.remedy}]" for each in every]


def test_a_statement_contains_the_bodies_and_its_revision_the_declarations() -> None:
    found = table(texts())
    assert found.dml is not None and found.dml.as_written == texts()[DML]
    assert "CAST(/* vat */ CAST(amount AS double) * 0.2 AS double) AS v" in found.dml.text
    revision = revision_of(found)
    assert dict(revision.texts.functions) == {"vat": FUNCTIONS["functions/vat.sql"]}
    assert texts_from_json(texts_as_json(revision.texts)) == revision.texts
    again = read_revision(T("a"), revision.texts, project(texts()).defaults)
    assert again is not None and again.hash == revision_hash(revision.texts) and again.parsed == revision.parsed


def test_a_project_without_functions_is_read_as_before() -> None:
    plain = revision_of(table(texts("SELECT id, amount AS v FROM STREAM src", {}))).texts
    assert (plain.functions, plain.written) == ((), None) and written_hash(plain) == revision_hash(plain)
    assert "functions" not in texts_as_json(plain)


@pytest.mark.parametrize(
    ("select", "kind", "action"),
    [
        ("SELECT id, vat(amount) AS v FROM STREAM src", ChangeKind.FILTER_OR_PROJECTION, Action.RESTART),
        (
            "SELECT id, amount AS v FROM STREAM src WHERE vat(amount) > 1",
            ChangeKind.FILTER_OR_PROJECTION,
            Action.RESTART,
        ),
        (
            "SELECT id, sum(vat(amount)) AS v FROM STREAM src WATERMARK ts DELAY OF INTERVAL 1 MINUTE "
            "GROUP BY id, window(ts, '1 minute')",
            ChangeKind.STATE_CHANGED,
            Action.REBUILD,
        ),
        (
            "SELECT id, vat(sum(amount)) AS v FROM STREAM src WATERMARK ts DELAY OF INTERVAL 1 MINUTE "
            "GROUP BY id, window(ts, '1 minute')",
            ChangeKind.CHANGE_AFTER_STATE,
            Action.RESTART,
        ),
        ("SELECT id, amount AS v FROM STREAM src", ChangeKind.NONE, Action.KEEP),
    ],
)  # fmt: skip
def test_another_body_is_a_change_of_each_user_with_the_kind_of_the_place_where_it_is_called(
    select: str, kind: ChangeKind, action: Action
) -> None:
    old, new = (revision_of(table(texts(select, {"functions/vat.sql": VAT.format(rate=r)}))) for r in (0.2, 0.25))
    change = classify(old, new)
    assert (change.kind, change.action) == (kind, action)
    if action is not Action.KEEP:
        assert evidence_lines(change.evidence)[-1] == "function vat: amount * 0.2 → amount * 0.25"
        assert old.hash != new.hash and written_hash(old.texts) != written_hash(new.texts)


PYTHON = """# CREATE FUNCTION vat(amount DOUBLE, rate DOUBLE DEFAULT 0.2)
# RETURNS DOUBLE


def vat(amount, rate):
    return amount * rate
"""
IN_PYTHON = {"functions/vat.py": PYTHON}


def test_a_function_in_python_is_called_by_a_name_with_its_hash_and_changes_like_one_in_sql() -> None:
    found = revision_of(table(texts(functions=IN_PYTHON)))
    called = re.search(r"vat__py_[0-9a-f]{8}", found.texts.dml)
    assert called is not None and problems(texts(functions=IN_PYTHON)) == []
    call = f"CAST(/* vat */ {called[0]}(CAST(amount AS double), CAST(0.2 AS double)) AS double) AS v"
    assert call in found.texts.dml and dict(found.texts.functions) == {"vat": PYTHON}
    (registered,) = registered_functions(found.texts.dml, found.texts.functions)
    assert (registered.name, registered.code) == (called[0], PYTHON)
    edited = {"functions/vat.py": PYTHON.replace("amount * rate", "amount * rate * 2  # Twice.")}
    change = classify(found, revision_of(table(texts(functions=edited))))
    assert (change.kind, change.action) == (ChangeKind.FILTER_OR_PROJECTION, Action.RESTART)
    assert evidence_lines(change.evidence)[-1] == (
        "function vat: return amount * rate → return amount * rate * 2  # Twice."
    )
    commented = {"functions/vat.py": PYTHON.replace("amount * rate", "amount * rate  # EU").replace("\n\n\n", "\n")}
    change = classify(found, revision_of(table(texts(functions=commented))))
    assert (change.kind, change.action) == (ChangeKind.COMMENT_OR_FORMAT, Action.RECORD)
    retyped = {"functions/vat.py": PYTHON.replace("RETURNS DOUBLE", "RETURNS FLOAT")}
    assert evidence_lines(classify(found, revision_of(table(texts(functions=retyped)))).evidence)[-1] == (
        "function vat: CREATE FUNCTION vat(amount DOUBLE, rate DOUBLE DEFAULT 0.2) RETURNS DOUBLE → "
        "CREATE FUNCTION vat(amount DOUBLE, rate DOUBLE DEFAULT 0.2) RETURNS FLOAT"
    )


def test_spark_is_asked_about_a_statement_without_the_code_of_its_functions() -> None:
    declared = {"functions/vat.py": PYTHON.replace("RETURNS DOUBLE", "RETURNS DOUBLE NOT DETERMINISTIC")}
    found = revision_of(table(texts(functions=declared)))
    ddl = "CREATE TABLE src (id BIGINT, amount DOUBLE) USING json"
    before = revision_of(table(texts()))
    question = question_of(found, before, declared=lambda _: ddl, deployed=lambda _: ddl)
    assert question is not None and question.old is not None and question.old.functions == ()
    (function,) = question.new.functions
    assert (function.code, function.returns, function.deterministic) == ("", "double", False)
    assert question_from_json(json.loads(json.dumps(question.as_json()))) == question
    damaged = question.as_json()
    damaged["new"]["functions"] = {"abs": ["double", "values", True]}
    with pytest.raises(UsageError):
        question_from_json(damaged)
    assert "functions" not in question.as_json()["old"]


WORDS = """# CREATE FUNCTION words(line STRING, least INT DEFAULT 1)
# RETURNS TABLE (word STRING, size INT)
class words:
    def eval(self, line, least):
        for word in (line or "").split():
            yield word, len(word)
"""


@pytest.mark.parametrize(
    ("source", "columns", "written"),
    [
        ("LATERAL words(CAST(amount AS STRING))", "size, word", "AS words(word, size)"),
        ("LATERAL words(CAST(amount AS STRING)) AS w", "w.size, w.word", "AS w(word, size)"),
        ("LATERAL words(CAST(amount AS STRING), 2) w", "w.size, word", "AS w(word, size)"),
        ("LATERAL words(CAST(amount AS STRING)) AS w(a, b)", "w.b, a", "AS w(a, b)"),
        ("LATERAL words(least => 2, line => 'x') w(a, b) WHERE a > ''", "w.b, a", "w(a, b)"),
    ],
)  # fmt: skip
def test_a_table_function_has_its_columns_and_their_lineage(source: str, columns: str, written: str) -> None:
    select = f"SELECT id, {columns.split(', ')[0]} AS v FROM STREAM src, {source}"
    found = texts(select, {"functions/words.py": WORDS})
    assert problems(found) == []
    read = table(found)
    assert read.dml is not None and re.search(r"LATERAL words__py_[0-9a-f]{8}\(CAST\(", read.dml.text)
    assert written in read.dml.text and read.parsed is not None
    (function,) = project(found).functions
    assert function.signature == "words(line string, least int) → table (word string, size int)"
    (registered,) = registered_functions(read.dml.text, revision_of(read).texts.functions)
    assert registered.returns == "struct<word:string,size:int>"


def test_a_table_function_is_called_in_from_only_and_a_mistake_in_it_breaks_its_users() -> None:
    words = {"functions/words.py": WORDS}
    assert problems(texts("SELECT id, words('x') AS v FROM STREAM src", words)) == [
        f"error {DML}:2:12: words returns rows, and cannot be called as a value "
        "[write FROM …, LATERAL words(…), and select its columns: word, size]"
    ]
    assert "takes 1 to 2 arguments, and this call has 3" in problems(
        texts("SELECT id, size AS v FROM STREAM src, LATERAL words('x', 1, 2)", words)
    )[0]  # fmt: skip
    broken = {"functions/words.py": WORDS.replace("eval", "evaluate")}
    read, every = read_sound_tables(texts("SELECT id, size AS v FROM STREAM src, LATERAL words('x')", broken))
    assert read is not None and len(every) == 1 and read.broken[T("a")].problems == every


def test_a_registered_name_without_its_code_is_a_problem() -> None:
    called = "SELECT id, vat__py_01234567(amount, 1) AS v FROM STREAM src"
    (problem,) = problems(texts(called, IN_PYTHON))
    assert "vat__py_01234567 is neither a function of Spark nor one of functions/" in problem


def test_functions_in_python_are_called_by_functions_in_sql_and_are_files_again() -> None:
    functions = {**IN_PYTHON, "functions/net.sql": "CREATE FUNCTION net(x DOUBLE) RETURNS DOUBLE RETURN x - vat(x)"}
    select = "SELECT id, net(amount) AS v FROM STREAM src"
    old = revision_of(table(texts(select, functions))).texts
    assert "vat__py_" in old.dml and [name for name, _ in old.functions] == ["net", "vat"]
    then = dict(function_files(PLACE, old.as_written))
    assert sorted(then) == [f"{PLACE}/functions/net.sql", f"{PLACE}/functions/vat.py"]
    now = {**texts(select, {**functions, "functions/vat.py": PYTHON.replace("rate\n", "rate + 1\n")}), **then}
    assert revision_of(table(now)).hash == revision_hash(old)
    (net, vat) = project(texts(select, functions)).functions
    assert net.calls == ("functions/vat.py",)
    assert vat.signature == "vat(amount double, rate double) → double" and vat.line == 1


def test_a_comment_in_a_function_changes_the_text_only() -> None:
    commented = {"functions/vat.sql": VAT.format(rate="0.2 -- of the EU\n")}
    change = classify(revision_of(table(texts())), revision_of(table(texts(functions=commented))))
    assert (change.kind, change.action) == (ChangeKind.COMMENT_OR_FORMAT, Action.RECORD)


def test_calls_moved_into_a_function_name_the_function() -> None:
    old = revision_of(table(texts("SELECT id, amount * 0.2 AS v FROM STREAM src", {})))
    change = classify(old, revision_of(table(texts())))
    assert [each.kind for each in change.evidence if hasattr(each, "of") and each.of == "vat"] == [EditKind.FUNCTION]  # type: ignore[union-attr]  # Only edits have it.
    assert "it uses the function vat" in evidence_lines(change.evidence)


def test_the_nearest_function_applies_and_functions_call_functions() -> None:
    functions = {
        **FUNCTIONS,
        f"{PLACE}/functions/vat.sql": VAT.format(rate=0.5),
        "functions/net.sql": "CREATE FUNCTION net(x DOUBLE) RETURNS DOUBLE RETURN x - vat(x)",
    }
    assert "* 0.5" in table(texts(functions=functions)).dml.text  # type: ignore[union-attr]  # It is a statement.
    used = table(texts("SELECT id, net(amount) AS v FROM STREAM src", functions))
    assert [(name, script.path) for name, script in used.functions] == [
        ("net", "functions/net.sql"), ("vat", "functions/vat.sql"),
    ]  # fmt: skip
    assert [(each.name, each.scope, each.calls) for each in project(texts(functions=functions)).functions] == [
        ("net", "", ("functions/vat.sql",)), ("vat", "", ()), ("vat", PLACE, ()),
    ]  # fmt: skip
    both = "SELECT id, net(amount) + vat(amount) AS v FROM STREAM src"
    assert problems(texts(both, functions)) == [
        f"error {DML}: two functions named vat are used here: {PLACE}/functions/vat.sql and functions/vat.sql "
        "[rename one of them]"
    ]


def test_the_functions_of_a_revision_are_files_that_give_the_revision_again() -> None:
    old = revision_of(table(texts())).texts
    now = texts(functions={"functions/vat.sql": VAT.format(rate=0.9)})
    restored = {**now, **dict(function_files(PLACE, old.as_written))}
    assert revision_of(table(restored)).hash == revision_hash(old)


def test_variables_in_functions_have_the_values_of_the_environment() -> None:
    head = HEAD.replace("environments:", "variables:\n  rate: {type: decimal, default: 0.2}\nenvironments:").replace(
        "{data: dev}", "{data: dev, variables: {rate: 0.3}}"
    )
    functions = {"functions/vat.sql": VAT.format(rate="${rate}")}
    dev = table(texts(functions=functions, head=head))
    assert dev.variables == (("rate", "0.3"),) and "* 0.3" in dev.dml.text  # type: ignore[union-attr]
    far, _ = read_project(texts(functions=functions, head=head), environment="far")
    assert far is not None
    both = [revision_of(each).texts for each in (dev, far.tables[T("a")])]
    assert written_hash(both[0]) == written_hash(both[1]) and revision_hash(both[0]) != revision_hash(both[1])


BAD = [
    ({"functions/vat.sql": "CREATE FUNCTION wat(x DOUBLE) RETURNS DOUBLE RETURN x"},
     "error functions/vat.sql:1: vat.sql declares wat [name the file wat.sql, or the function vat]"),
    ({"functions/upper.sql": "CREATE FUNCTION upper(x STRING) RETURNS STRING RETURN x"},
     "error functions/upper.sql: Spark has a function upper, which would be called instead "
     "[rename the function and its file]"),
    ({"functions/Big.sql": "CREATE FUNCTION big(x INT) RETURNS INT RETURN x"},
     "error functions/Big.sql: Big.sql is ignored [rename it to functions/big.sql]"),
    ({"functions/a-b.sql": "x"},
     "error functions/a-b.sql: 'a-b' is not the name of a function [use letters, digits and underscores]"),
    ({"functions/old/x.sql": "x"},
     "error functions/old/x.sql: this file is in a folder below functions [move it to functions/]"),
    ({"functions/p.py": "def p(x): return x"},
     "error functions/p.py:1:1: the file does not begin with the declaration of a function "
     "[begin the file with # CREATE FUNCTION <name>(<parameter> <type>, …) RETURNS <type>]"),
    ({"functions/p.py": "# CREATE FUNCTION p(x INT) RETURNS INT\ndef q(x): return x"},
     "error functions/p.py:2:1: p.py does not define p [define it: def p(x)]"),
    ({"functions/vat.py": "# CREATE FUNCTION vat(x INT) RETURNS INT\ndef vat(x): return x"},
     "error functions/vat.sql: vat is declared twice [keep one: the other is functions/vat.py]"),
    ({"functions/upper.py": "# CREATE FUNCTION upper(x INT) RETURNS INT\ndef upper(x): return x"},
     "error functions/upper.py: Spark has a function upper, which would be called instead "
     "[rename the function and its file]"),
    ({"functions/j.yml": "class: com.acme.J"},
     "error functions/j.yml: j: a function is declared in SQL or Python [write j.sql]"),
    ({"functions/t.sql": "CREATE FUNCTION t(x DOUBLE) RETURNS DOUBLE RETURN rate(x)"},
     "error functions/t.sql:1:51: t: it calls rate, which is neither a function of Spark nor one of functions/ "
     "[write functions/rate.sql: headgate init function rate]"),
    ({"functions/t.sql": "CREATE FUNCTION t(x DOUBLE) RETURNS DOUBLE RETURN u(x)",
      "functions/u.sql": "CREATE FUNCTION u(x DOUBLE) RETURNS DOUBLE\nRETURN 1 + t(x)"},
     "error functions/t.sql:1:51: t: its body contains itself: t → u → t [remove one of these calls]"),
    ({"functions/t.sql": "CREATE FUNCTION t(x DOUBLE) RETURNS DOUBLE RETURN vat(x, 2)"},
     "error functions/t.sql:1:51: vat takes 1 argument, and this call has 2 [call vat(amount double)]"),
]  # fmt: skip


@pytest.mark.parametrize(("files", "said"), BAD)
def test_a_mistake_in_a_function_has_one_problem_and_tables_that_do_not_call_it_are_sound(
    files: dict[str, str], said: str
) -> None:
    found = texts("SELECT id, amount AS v FROM STREAM src", {**FUNCTIONS, **files})
    assert problems(found) == [said]
    read, _ = read_sound_tables(found)
    assert read is not None and not read.broken and len(read.stray) == 1


def test_a_table_that_calls_an_invalid_function_has_its_problem() -> None:
    found = texts(functions={
        "functions/vat.sql": "CREATE FUNCTION vat(x DOUBLE) RETURNS DOUBLE RETURN inner_part(x)",
        "functions/inner_part.sql": "CREATE FUNCTION inner_part(x DOUBLE) RETURNS DOUBLE RETURN y",
    })  # fmt: skip
    read, every = read_sound_tables(found)
    assert read is not None and [each.summary for each in every] == ["y is not a parameter of inner_part"]
    assert read.broken[T("a")].problems == every


@pytest.mark.parametrize(
    ("select", "said"),
    [
        ("SELECT id,\n  vatt(amount) AS v FROM STREAM src",
         f"error {DML}:3: vatt is neither a function of Spark nor one of functions/ [did you mean vat?]"),
        ("SELECT id,\n vat(amount, 1) AS v FROM STREAM src",
         f"error {DML}:3:2: vat takes 1 argument, and this call has 2 [call vat(amount double)]"),
        ("SELECT vat(\n amount) AS v, id FROM STREAM nowhere",
         f"error {DML}:3: a reads nowhere, which no DDL declares "
         "[declare it: headgate init table nowhere]"),
    ],
)  # fmt: skip
def test_a_wrong_call_is_a_problem_with_its_line(select: str, said: str) -> None:
    assert problems(texts(select)) == [said]


def test_an_unknown_function_is_a_warning_if_the_pool_may_have_it() -> None:
    found = texts("SELECT id, st_area(amount) AS v, vat(1) AS w FROM STREAM src")
    found[f"{PLACE}/sql-scripts/ddl.a.sql"] = "CREATE TABLE a (id BIGINT, v DOUBLE, w DOUBLE) USING parquet;"
    assert [each.partition(" ")[0] for each in problems(found, "far")] == ["warning"]
    assert [each.partition(" ")[0] for each in problems(found)] == ["error"]
    extended = HEAD.replace("{data: dev}", "{data: dev, pool: {conf: {spark.sql.extensions: org.acme.Ext}}}")
    assert [each.partition(" ")[0] for each in problems({**found, "headgate.yml": extended})] == ["warning"]


def test_settings_cannot_call_functions() -> None:
    found = texts() | {f"{PLACE}/a.yml": "checks:\n- {name: low, sql: SELECT * FROM a WHERE vat(v) < 0}\n"}
    assert problems(found) == [
        f"error {PLACE}/a.yml: checks calls vat, and only statements can call functions of the project "
        "[write the expression of vat there]"
    ]


def test_a_commit_that_changes_a_function_changes_its_users() -> None:
    now, cache = texts(), ParseCache()
    then: dict[str, str | None] = {"functions/vat.sql": VAT.format(rate=0.1)}
    found = compare_with_commit("main", project(now), now, then, cache, environment="dev")
    assert found.changed == ("a",) and "* 0.1" in found.before[T("a")].dml
    unused: dict[str, str | None] = {"functions/other.sql": "CREATE FUNCTION other() RETURNS INT RETURN 1"}
    assert compare_with_commit("main", project(now), now, unused, cache, environment="dev").changed == ()


def test_a_project_with_functions_survives_its_serialization() -> None:
    found = texts()
    read, warnings = read_project(found)
    assert read is not None and unpack_project(pack_project((read, warnings), found), found) == (read, warnings)


def test_an_error_raised_by_a_function_names_it_unless_the_statement_raises_errors_itself() -> None:
    functions = {"functions/vat.sql": VAT.format(rate="if(amount < 0, raise_error('below'), 1)")}
    assert raising_functions(revision_of(table(texts(functions=functions))).texts) == ("vat",)
    own = "SELECT id, vat(amount) AS v FROM STREAM src WHERE assert_true(id > 0) IS NULL"
    assert raising_functions(revision_of(table(texts(own, functions))).texts) == ()


def test_manifests_call_functions_and_wrong_calls_have_their_line_in_the_manifest() -> None:
    declared = {"functions/half.sql": "CREATE FUNCTION half(x DOUBLE) RETURNS DOUBLE RETURN x / 2"}
    job = DEAR.replace("id, price", "id, half(\n    price) AS price", 1)
    read, wrong = read_project(generated_texts({**files(), "manifests/dear.yml": job, **declared}))
    assert read is not None and wrong == ()
    dear = read.tables[T("dear")]
    assert [name for name, _ in dear.functions] == ["half"]
    assert dear.dml is not None and "/* half */" in dear.dml.text
    late = job.replace("half(", "half(1, ")
    (problem,) = read_project(generated_texts({**files(), "manifests/dear.yml": late, **declared}))[1]
    assert str(problem.where) == "manifests/dear.yml:4:14"


def test_a_function_file_that_cannot_be_read_is_one_problem() -> None:
    unread = UnreadableFile("larger than 4 MB", "make it smaller than 4 MB")
    read, problems = read_sound_tables(texts(functions={"functions/vat.py": unread}))
    assert read is not None and read.broken[T("a")].problems == problems
    assert [str(each.summary) for each in problems] == ["vat.py cannot be read: larger than 4 MB"]
