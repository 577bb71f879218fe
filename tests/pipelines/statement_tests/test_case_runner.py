"""Cases on real Spark: rows compared by type, watermarks over parts, upgrades from an old checkpoint, bounds."""

import itertools
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast
from unittest.mock import MagicMock

import pytest
import small_project

from core.model.errors import EngineRefused
from core.model.names import TableName
from core.project.model import Table
from core.project_reader.loader import read_project
from core.sql.statement_reader import read_any
from core.statement_tests.case import StatementCase
from core.statement_tests.case_reader import read_cases
from core.statement_tests.request import CaseOutcome, UpgradeVerdict, settings_of_meaning
from pipelines.demo.event_simulation import FOLDER
from pipelines.local_pool.connect_server import LocalPool
from pipelines.python_jobs.job_environments import JobEnvironments
from pipelines.spark_connect import call_deadlines
from pipelines.spark_connect.session import Session
from pipelines.statement_tests.case_runner import CaseRunner
from pipelines.statement_tests.stream_trial import TrialStatement
from tests.pipelines.python_jobs.test_job_environments import wheel

pytestmark = pytest.mark.spark

COLUMNS = "id BIGINT, kind STRING, price DECIMAL(5,2), share DOUBLE, at TIMESTAMP, tags ARRAY<STRUCT<k:STRING,n:INT>>"
COUNTED = "at TIMESTAMP, kind STRING, n BIGINT, price DECIMAL(15,2)"
COUNT = (
    "SELECT window.start AS at, kind, count(*) AS n, sum(price) AS price "
    "FROM STREAM landed WATERMARK at DELAY OF INTERVAL 10 SECONDS {where}GROUP BY window(at, '1 minute'), kind"
)
GIVEN_IN_PARTS = """
given:
  - landed:
      - {id: 1, kind: x, price: 1.50, at: 2026-01-01T00:00:01Z}
      - {id: 2, kind: y, price: 2.00, at: 2026-01-01T00:00:02Z}
  - landed:
      - {id: 3, kind: x, price: 0.25, at: 2026-01-01T00:00:30Z}
      - {id: 9, kind: z, price: 1.00, at: 2026-01-01T01:00:00Z}
"""
TWO_WINDOWS = (
    GIVEN_IN_PARTS
    + """
expect:
  - {at: 2026-01-01T00:00:00Z, kind: x, n: 2, price: 1.75}
  - {at: 2026-01-01T00:00:00Z, kind: y, n: 1, price: 2.00}
key: [kind]
"""
)


@pytest.fixture(scope="module")
def own_session(pool: LocalPool) -> Iterator[Session]:
    session = Session(pool.url, pool.token, str(uuid.uuid4()), conf=settings_of_meaning(()))
    session.attach()
    yield session
    session.release()


numbers = itertools.count(uuid.uuid4().int % 10**9 + 1)


def tables(select: str, columns: str = COLUMNS, partitioned: str = "") -> dict[TableName, Table]:
    texts = small_project.texts(a=select)
    texts["pipelines/sources/p/landed/sql-scripts/ddl.landed.sql"] = (
        f"CREATE TABLE landed ({COLUMNS}) USING json LOCATION 'landing';"
    )
    texts["pipelines/facts/p/a/sql-scripts/ddl.a.sql"] = f"CREATE TABLE a ({columns}) USING parquet {partitioned};"
    return dict(small_project.project({k: v for k, v in texts.items() if "/b/" not in k and "/c/" not in k}).tables)


def case_of(text: str, declared: dict[TableName, Table]) -> StatementCase:
    (case,), problems = read_cases({"pipelines/facts/p/a/tests/one.yml": text}, declared)
    assert problems == ()
    return case


def runner(session: Session, folder: Path, declared: dict[TableName, Table], case_s: float = 120) -> CaseRunner:
    return CaseRunner(session, folder, declared, case_s=case_s, numbers=numbers)


def text_of(select: str, columns: str = COLUMNS) -> TrialStatement:
    table = tables(select, columns)[TableName("a")]
    assert table.parsed
    return TrialStatement(table.parsed_ddl, table.parsed)


EVERY_TYPE = """
given:
  landed:
    - {id: 1, kind: "x, y", price: 1.5, share: 0.1, at: 2026-01-01T00:00:01.000001Z, tags: [{k: a, n: 1}, {k: b}]}
    - {}
expect:
  - {id: 1, kind: "x, y", price: 1.5, share: 0.1, at: 2026-01-01T00:00:01.000001Z, tags: [{k: a, n: 1}, {k: b}]}
  - {}
"""


def test_rows_of_every_type_come_back_as_they_were_given(own_session: Session, tmp_path: Path) -> None:
    declared = tables("SELECT * FROM STREAM landed", partitioned="PARTITIONED BY (kind)")
    found = runner(own_session, tmp_path, declared).run(case_of(EVERY_TYPE, declared))
    assert (found.outcome, found.summary, found.difference) == (CaseOutcome.PASSED, "2 rows", None)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.drill
def test_a_window_is_written_once_a_later_part_has_moved_the_watermark(own_session: Session, tmp_path: Path) -> None:
    declared = tables(COUNT.format(where=""), COUNTED)
    run = runner(own_session, tmp_path, declared).run
    assert run(case_of(TWO_WINDOWS, declared)).outcome is CaseOutcome.PASSED
    open_still = case_of(TWO_WINDOWS, declared)
    found = run(replace(open_still, parts=open_still.parts[:1]))
    assert (found.outcome, found.summary) == (CaseOutcome.FAILED, "it wrote 0 rows, 2 expected")


def test_rows_that_differ_are_shown_by_key_and_column(own_session: Session, tmp_path: Path) -> None:
    declared = tables("SELECT id, upper(kind) AS kind FROM STREAM landed WHERE id <> 2", "id BIGINT, kind STRING")
    text = "given: {landed: [{id: 1, kind: x}, {id: 2}]}\nexpect: [{id: 1, kind: x}, {id: 2}]\nkey: [id]"
    found = runner(own_session, tmp_path, declared).run(case_of(text, declared))
    assert (found.outcome, found.summary) == (CaseOutcome.FAILED, "it wrote 1 row, 2 expected")
    assert found.difference is not None
    assert [found.difference[kind] for kind in ("missing", "unexpected", "differing")] == [1, 0, 1]
    assert found.difference["differing_rows"][0]["columns"] == {"kind": ['"x"', '"X"']}
    assert found.difference["missing_rows"][0]["id"] == "2"


@pytest.mark.drill
def test_a_statement_over_delta_is_tried_on_a_server_without_it(own_session: Session, tmp_path: Path) -> None:
    declared = tables("SELECT id, upper(kind) AS kind FROM STREAM landed", "id BIGINT, kind STRING")
    a = declared[TableName("a")]
    declared[TableName("a")] = replace(a, parsed_ddl=replace(a.parsed_ddl, format="delta"))
    text = "given: {landed: [{id: 1, kind: x}]}\nexpect: [{id: 1, kind: X}]"
    found = runner(own_session, tmp_path, declared).run(case_of(text, declared))
    assert (found.outcome, found.summary) == (CaseOutcome.PASSED, "1 row")


@pytest.mark.drill
def test_another_type_than_declared_fails(own_session: Session, tmp_path: Path) -> None:
    declared = tables("SELECT CAST(id AS INT) AS id FROM STREAM landed", "id BIGINT")
    found = runner(own_session, tmp_path, declared).run(case_of("given: {landed: []}\nexpect: []", declared))
    assert (found.outcome, found.summary) == (
        CaseOutcome.FAILED,
        "id is declared as bigint, and the statement writes int",
    )


def test_a_first_case_that_takes_too_long_is_no_mistake_of_the_statement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def call(seconds: float, act: object) -> None:
        raise call_deadlines.MissedDeadline("too late")

    monkeypatch.setattr(call_deadlines, "call", call)
    declared = tables("SELECT id, kind FROM STREAM landed", "id BIGINT, kind STRING")
    case = case_of("given: {landed: [{id: 1, kind: x}]}\nexpect: []", declared)
    with pytest.raises(EngineRefused) as error:
        runner(cast(Session, MagicMock()), tmp_path, declared, case_s=5).record(case)
    assert error.value.sentence == "it did not end within 5 s: --timeout S allows more"


@pytest.mark.drill
def test_refused_and_endless_cases_do_not_affect_the_next_one(own_session: Session, tmp_path: Path) -> None:
    refused = tables("SELECT id, nowhere AS kind FROM STREAM landed", "id BIGINT, kind STRING")
    text = "given: {landed: [{id: 1, kind: x}]}\nexpect: [{id: 1, kind: x}]"
    found = runner(own_session, tmp_path, refused).run(case_of(text, refused))
    assert found.outcome is CaseOutcome.ERROR and "UNRESOLVED_COLUMN" in found.summary
    declared = tables(
        "SELECT id, kind FROM STREAM landed LATERAL VIEW explode(sequence(1, 10000)) AS one "
        "LATERAL VIEW explode(sequence(1, 10000)) AS two LATERAL VIEW explode(sequence(1, 10000)) AS three "
        "WHERE one + two * three < 0",
        "id BIGINT, kind STRING",
    )
    found = runner(own_session, tmp_path, declared, case_s=5).run(case_of(text, declared))
    assert (found.outcome, found.summary) == (CaseOutcome.ERROR, "it did not end within 5 s: --timeout S allows more")
    declared = tables("SELECT id, kind FROM STREAM landed", "id BIGINT, kind STRING")
    assert runner(own_session, tmp_path, declared).run(case_of(text, declared)).outcome is CaseOutcome.PASSED


@pytest.mark.drill
def test_an_upgrade_that_changes_nothing_for_the_state_is_safe(own_session: Session, tmp_path: Path) -> None:
    declared = tables(COUNT.format(where=""), COUNTED)
    old = text_of(COUNT.format(where="").replace("kind, count", "/* sort */ kind, count"), COUNTED)
    found = runner(own_session, tmp_path, declared).upgrade(case_of(TWO_WINDOWS, declared), old)
    assert (found.outcome, found.verdict) == (CaseOutcome.PASSED, UpgradeVerdict.SAFE)


@pytest.mark.drill
def test_a_filter_below_an_aggregate_mixes_old_and_new(own_session: Session, tmp_path: Path) -> None:
    """Spark silently continues with the state of rows that the old filter accepted."""
    declared = tables(COUNT.format(where="WHERE id <> 1 "), COUNTED)
    found = runner(own_session, tmp_path, declared).upgrade(
        case_of(TWO_WINDOWS, declared), text_of(COUNT.format(where=""), COUNTED)
    )
    assert (found.outcome, found.verdict) == (CaseOutcome.FAILED, UpgradeVerdict.MIXED)
    assert found.difference is not None
    assert found.difference["differing_rows"][0]["columns"] == {"n": ["1", "2"], "price": ["0.25", "1.75"]}


@pytest.mark.drill
def test_a_filter_without_state_leaves_a_seam(own_session: Session, tmp_path: Path) -> None:
    declared = tables("SELECT id, kind FROM STREAM landed WHERE id <> 1", "id BIGINT, kind STRING")
    old = text_of("SELECT id, kind FROM STREAM landed", "id BIGINT, kind STRING")
    found = runner(own_session, tmp_path, declared).upgrade(case_of(f"{GIVEN_IN_PARTS}\nexpect: []", declared), old)
    assert (found.outcome, found.verdict) == (CaseOutcome.FAILED, UpgradeVerdict.SEAM)
    assert found.difference is not None and found.difference["unexpected_rows"] == [{"id": "1", "kind": '"x"'}]


@pytest.mark.drill
def test_another_key_is_refused_by_spark(own_session: Session, tmp_path: Path) -> None:
    declared = tables(COUNT.format(where=""), COUNTED)
    old = text_of(COUNT.format(where="").replace(", kind,", ", 'k' AS kind,").removesuffix(", kind"), COUNTED)
    found = runner(own_session, tmp_path, declared).upgrade(case_of(TWO_WINDOWS, declared), old)
    assert (found.outcome, found.verdict) == (CaseOutcome.FAILED, UpgradeVerdict.REFUSED)
    assert "STATE_STORE" in found.summary


def test_an_upgrade_needs_a_readable_old_text_and_two_parts(own_session: Session, tmp_path: Path) -> None:
    declared = tables("SELECT id, kind FROM STREAM landed", "id BIGINT, kind STRING")
    case = case_of("given: {landed: []}\nexpect: []", declared)
    upgrade = runner(own_session, tmp_path, declared).upgrade
    assert upgrade(case, None).summary == "the old text cannot be read by this version of Headgate"
    old = text_of("SELECT id, kind FROM STREAM landed", "id BIGINT, kind STRING")
    assert upgrade(case, old).summary == "it has one part; an upgrade is tried between two"
    reflected = replace(old, parsed=replace(old.parsed, select="SELECT reflect('java.lang.System', 'exit', 1) AS id"))
    assert "calls a Java method" in upgrade(case, reflected).summary


@pytest.mark.drill
def test_the_cases_of_the_sample_pass(own_session: Session, tmp_path: Path) -> None:
    found = (path for path in FOLDER.rglob("*") if path.suffix in (".sql", ".yml", ".csv"))
    texts = {path.relative_to(FOLDER).as_posix(): path.read_text() for path in found}
    tests = {path: text for path, text in texts.items() if "/tests/" in path and path.startswith("pipelines/")}
    project, problems = read_project({path: text for path, text in texts.items() if path not in tests})
    assert project is not None and problems == ()
    cases, problems = read_cases(tests, project.tables)
    assert len(cases) == 4 and problems == ()
    run = runner(own_session, tmp_path, dict(project.tables)).run
    assert [result.summary for result in map(run, cases) if result.outcome is not CaseOutcome.PASSED] == []


JOB = """from pyspark.sql import functions as F


def a(landed):
    return landed.select("id", {kind}.alias("kind"))
"""
ID_AND_KIND = "id BIGINT, kind STRING"


def job_tables(code: str, columns: str = ID_AND_KIND, form: str = "parquet") -> dict[TableName, Table]:
    """Return the tables with a job as the statement of table a."""
    texts = small_project.texts()
    folder = "pipelines/facts/p/a/sql-scripts"
    del texts[f"{folder}/dml.a.sql"]
    texts |= {
        "pipelines/sources/p/landed/sql-scripts/ddl.landed.sql": (
            f"CREATE TABLE landed ({COLUMNS}) USING json LOCATION 'landing';"
        ),
        f"{folder}/ddl.a.sql": f"CREATE TABLE a ({columns}) USING {form};",
        f"{folder}/job.a.py": code,
        "headgate.yml": small_project.HEAD + ("connectors: {delta: {}}\n" if "delta" in form else ""),
    }
    return dict(small_project.project({k: v for k, v in texts.items() if "/b/" not in k and "/c/" not in k}).tables)


def job_text(code: str, columns: str = ID_AND_KIND) -> TrialStatement:
    table = job_tables(code, columns)[TableName("a")]
    assert table.parsed
    return TrialStatement(table.parsed_ddl, table.parsed)


ONE_ROW = "given: {landed: [{id: 1, kind: x}]}\nexpect: [{id: 1, kind: X}]"


def test_a_job_in_python_is_run_like_a_statement(own_session: Session, tmp_path: Path) -> None:
    declared = job_tables(JOB.format(kind="F.upper('kind')"))
    found = runner(own_session, tmp_path, declared).run(case_of(ONE_ROW, declared))
    assert (found.outcome, found.summary) == (CaseOutcome.PASSED, "1 row")


AT = "pipelines/facts/p/a/sql-scripts/job.a.py"
WRONG = {
    "a module that is missing": (
        JOB.replace("F\n", "F\nimport nowhere\n"),
        f"{AT}, line 2: there is no module nowhere",
    ),
    "a compile error": (JOB + "return 1\n", f"{AT}, line 6: the code does not compile: 'return' outside function"),
    "nothing": ("def a(landed):\n    landed\n", f"a in {AT} returns NoneType; return one streaming DataFrame"),
    "other columns": (
        "def a(landed):\n    return landed\n",
        f"a in {AT} returns a column price, which the DDL does not",
    ),
    "a batch": (
        "def a(landed, spark):\n    return spark.createDataFrame([(1, 'x')], 'id bigint, kind string')\n",
        f"a in {AT} does not use landed",
    ),
    "an action": ("def a(landed):\n    landed.count()\n", f"{AT}, line 2: the job asks Spark for an action"),
    "prints for ever": ("def a(landed):\n    while True:\n        print('x' * 999)\n", f"{AT} prints more than 262 kB"),
    "the end of its process": (
        "import os\nos._exit(3)\ndef a(landed): pass\n",
        f"{AT} ended its process (exit code 3)",
    ),
    "a function that raises": (
        JOB.format(kind="F.udf(lambda text: text + 1)('kind')"),
        f'{AT}, line 5: TypeError: can only concatenate str (not "int") to str; correct the code',
    ),
}


@pytest.mark.drill
@pytest.mark.long
def test_each_fault_of_a_job_is_one_sentence_and_the_next_case_runs(own_session: Session, tmp_path: Path) -> None:
    for fault, (code, words) in WRONG.items():
        declared = job_tables(code)
        found = runner(own_session, tmp_path, declared).run(case_of(ONE_ROW, declared))
        assert found.outcome is CaseOutcome.ERROR and words in found.summary and "\n" not in found.summary, (
            fault,
            found,
        )
    declared = job_tables("import time\n\ndef a(landed):\n    time.sleep(999)\n")
    found = runner(own_session, tmp_path, declared, case_s=5).run(case_of(ONE_ROW, declared))
    assert (found.outcome, found.summary) == (CaseOutcome.ERROR, "it did not end within 5 s: --timeout S allows more")
    declared = job_tables(JOB.format(kind="F.upper('kind')"))
    assert runner(own_session, tmp_path, declared).run(case_of(ONE_ROW, declared)).outcome is CaseOutcome.PASSED


NUMBERS = """from pyspark.sql.streaming import StatefulProcessor


class Numbers(StatefulProcessor):
    def init(self, handle):
        self.n = handle.getValueState("n", "n bigint")

    def handleInputRows(self, key, rows, timers):
        n = self.n.get()[0] if self.n.exists() else 0
        for frame in rows:
            frame = frame.sort_values("id")
            frame = frame.assign(n=range(n + 1, n + 1 + len(frame)))
            n += len(frame)
            yield frame[["id", "kind", "n"]]
        self.n.update((n,))


def a(landed):
    return landed.groupBy("kind").transformWithStateInPandas(
        Numbers(), "id bigint, kind string, n bigint", "append", "none"
    )
"""
NUMBERED = "id BIGINT, kind STRING, n BIGINT"
NUMBERED_IN_PARTS = """
given:
  - landed: [{id: 1, kind: x}, {id: 2, kind: x}, {id: 3, kind: y}]
  - landed: [{id: 4, kind: x}]
expect: [{id: 1, kind: x, n: 1}, {id: 2, kind: x, n: 2}, {id: 3, kind: y, n: 1}, {id: 4, kind: x, n: 3}]
"""


@pytest.mark.drill
@pytest.mark.long
@pytest.mark.parametrize(
    ("old", "verdict"),
    [
        (NUMBERS.replace("n += len(frame)", "n = n + len(frame)"), UpgradeVerdict.SAFE),
        (NUMBERS.replace("range(n + 1, n + 1", "range(n + 2, n + 2"), UpgradeVerdict.SEAM),
        (NUMBERS.replace("self.n.update((n,))", "self.n.update((n + 5,))"), UpgradeVerdict.MIXED),
        (NUMBERS.replace('n bigint")', 'n string")').replace("(n,)", "(str(n),)"), UpgradeVerdict.REFUSED),
    ],
)
def test_an_upgrade_shows_whether_new_code_continues_the_state_of_the_old_code(
    own_session: Session, tmp_path: Path, old: str, verdict: UpgradeVerdict
) -> None:
    declared = job_tables(NUMBERS, NUMBERED)
    case = case_of(NUMBERED_IN_PARTS, declared)
    run = runner(own_session, tmp_path, declared)
    assert run.run(case).outcome is CaseOutcome.PASSED
    found = run.upgrade(case, job_text(old, NUMBERED))
    assert found.verdict == verdict, found


@pytest.mark.drill
@pytest.mark.long
def test_each_batch_of_a_delta_table_is_tried_over_partitioned_files(own_session: Session, tmp_path: Path) -> None:
    code = JOB.format(kind="F.upper('kind')") + "\n\ndef each_batch(batch, number):\n    return {}\n"
    declared = job_tables(code.format("batch.dropDuplicates(['kind'])"), form="delta PARTITIONED BY (kind)")
    text = "given: [{landed: [{id: 1, kind: x}]}, {landed: [{id: 1, kind: x}, {id: 1, kind: x}]}]\n"
    case = case_of(f"{text}expect: [{{id: 1, kind: X}}, {{id: 1, kind: X}}]", declared)
    found = runner(own_session, tmp_path, declared).run(case)
    assert (found.outcome, found.summary) == (CaseOutcome.PASSED, "2 rows")
    declared = job_tables(code.format("number"), form="delta")
    found = runner(own_session, tmp_path, declared).run(case_of(ONE_ROW, declared))
    assert found.outcome is CaseOutcome.ERROR and "each_batch returns int, and must return a DataFrame" in found.summary


@pytest.mark.drill
@pytest.mark.long
def test_a_job_in_tests_has_its_packages(own_session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel(tmp_path / "wheels")))
    code = JOB.format(kind="F.udf(shout)('kind')").replace("\n\n\n", "\nfrom shouting import shout\n\n\n", 1)
    declared = job_tables(code)
    table = declared[TableName("a")]
    assert table.dml is not None
    text = table.dml.text.replace("-- requirements: []", '-- requirements: ["shouting"]')
    (parsed,) = read_any(text, "")[0]
    declared[TableName("a")] = replace(table, parsed=parsed)
    case = case_of(ONE_ROW.replace("kind: X", 'kind: "X!"'), declared)
    packages = JobEnvironments(tmp_path / "python")
    run = CaseRunner(own_session, tmp_path / "run", declared, case_s=300, numbers=numbers, packages=packages).run
    assert run(case).outcome is CaseOutcome.PASSED
    elsewhere = runner(own_session, tmp_path / "run", declared).run(case)
    assert elsewhere.outcome is CaseOutcome.ERROR and "runs elsewhere" in elsewhere.summary
