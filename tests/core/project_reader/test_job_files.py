"""Jobs in Python in a project: their files, mistakes in them, and what their edits change."""

from collections.abc import Mapping

import pytest

from core.changes.classification import Change, classify
from core.changes.kinds import ChangeKind
from core.model.actions import Action
from core.model.names import TableName as T
from core.plan.descriptions import evidence_lines
from core.project.model import Project, Settings, Table
from core.project.revision import revision_hash, texts_as_json, texts_from_json
from core.project_reader.loader import read_project, read_sound_tables, read_tables
from core.project_reader.parse_cache import ParseCache
from core.project_reader.revision_reader import read_revision, revision_of
from core.sql.python_jobs import FIRST_CODE_LINE, code_hash
from core.sql.registered_functions import READING_PYTHON

HEAD = """project: shop
id: 12345678-1234-5678-1234-567812345678
default_env: dev
environments:
  dev: {data: dev}
connectors: {delta: {}}
"""
PLACE = "pipelines/facts/p/visits"
JOB = f"{PLACE}/sql-scripts/job.visits.py"
YML = f"{PLACE}/visits.yml"
CODE = """from pyspark.sql import functions as F


def visits(clicks):
    return clicks.groupBy("id").agg(F.count("*").alias("n"))
"""
BATCHES = CODE + "\n\ndef each_batch(batch, batch_id):\n    return batch.dropDuplicates()\n"


def texts(code: str = CODE, yml: str = "", **more: str) -> dict[str, str]:
    found = {
        "headgate.yml": HEAD,
        "pipelines/sources/p/clicks/sql-scripts/ddl.clicks.sql": (
            "CREATE TABLE clicks (id BIGINT, at TIMESTAMP) USING json LOCATION 'in';"
        ),
        "pipelines/sources/p/customers/sql-scripts/ddl.customers.sql": (
            "CREATE TABLE customers (id BIGINT) USING json LOCATION 'customers';"
        ),
        f"{PLACE}/sql-scripts/ddl.visits.sql": "CREATE TABLE visits (id BIGINT, n BIGINT) USING parquet;",
        JOB: code,
        **({YML: yml} if yml else {}),
    }
    return found | {f"{PLACE}/sql-scripts/{name}": text for name, text in more.items()}


def project(found: Mapping[str, str]) -> Project:
    read, problems = read_project(found)
    assert read is not None, problems
    return read


def table(found: Mapping[str, str]) -> Table:
    return project(found).tables[T("visits")]


def change(old: Mapping[str, str], new: Mapping[str, str]) -> Change:
    return classify(revision_of(table(old)), revision_of(table(new)))


def test_a_job_is_a_statement_whose_lines_are_those_of_its_file() -> None:
    found = table(texts())
    assert found.parsed is not None and found.dml is not None
    assert [(read.table, read.streaming) for read in found.parsed.reads] == [("clicks", True)]
    assert str(found.dml.at(6)) == f"{JOB}:1" and str(found.dml.at(2)) == f"{JOB}:4"
    assert found.dml.file == JOB


def test_functions_of_the_project_and_calls_in_code_do_not_meet() -> None:
    functions = {
        "functions/vat.sql": "CREATE FUNCTION vat(a DOUBLE) RETURNS DOUBLE RETURN a * 2;",
        "pipelines/facts/p/b/sql-scripts/ddl.b.sql": "CREATE TABLE b (id BIGINT, v DOUBLE) USING parquet;",
        "pipelines/facts/p/b/sql-scripts/dml.b.sql": "INSERT INTO b SELECT id, vat(n) AS v FROM STREAM visits;",
    }
    code = CODE.replace('F.count("*")', "F.max(vat(1))").replace("F\n", "F\nvat = F.lit\n", 1)
    found = project({**texts(code), **functions}).tables
    assert found[T("visits")].parsed == table(texts(code)).parsed
    assert [name for name, _ in found[T("b")].functions] == ["vat"] and not found[T("visits")].functions
    stored = revision_of(found[T("visits")]).texts
    again = {**texts(), **functions, JOB: stored.dml}
    assert project(again).tables[T("visits")].parsed == found[T("visits")].parsed


def test_a_deployed_job_is_read_from_its_texts_alone_and_can_be_a_file_again() -> None:
    found = table(texts(yml="inputs: {clicks: STREAM clicks}\nrequirements: [numpy]\n"))
    revision = revision_of(found)
    stored = texts_from_json(texts_as_json(revision.texts))
    again = read_revision(T("visits"), stored, found.settings)
    assert again is not None and again.parsed == found.parsed and revision_hash(stored) == revision.hash
    assert classify(revision, again).kind is ChangeKind.NONE
    for name in (JOB, f"{PLACE}/sql-scripts/dml.visits.sql"):
        files = {path: text for path, text in texts().items() if path != JOB}
        written = table({**files, name: stored.dml, YML: stored.yml})
        assert written.parsed == found.parsed and revision_of(written).hash == revision.hash


def on_delta(files: Mapping[str, str]) -> dict[str, str]:
    return {path: text.replace("USING parquet", "USING delta") for path, text in files.items()}


WRONG = {
    "syntax": (
        texts(CODE.replace("):", ":")),
        f"{JOB}:4: the code is not valid Python {READING_PYTHON}: '(' was never closed",
    ),
    "name": (texts(CODE.replace("visits", "visit")), f"{JOB}:4: the job defines no function visits"),
    "input": (texts(CODE.replace("clicks", "clikcs")), f"{JOB}:4: visits reads clikcs, which no DDL declares"),
    "parameter": (texts(yml="owner: me\ninputs: {click: clicks}\n"), f"{YML}:2: inputs has click, which is no"),
    "two tables": (texts(yml="inputs: {clicks: 'STREAM clicks, x'}\n"), f"{YML}:1: the input clicks must be one"),
    "a comment": (texts(yml="inputs: {clicks: STREAM clicks --}\n"), f"{YML}:1: the input clicks must be one"),
    "no mapping": (texts(yml="inputs: [clicks]\n"), f"{YML}:1: inputs must be a mapping"),
    "a URL": (texts(yml="requirements: ['git+https://u:p@host/x']\n"), f"{YML}:1: requirements must be a list"),
    "an option": (texts(yml="requirements: ['-r x']\n"), f"{YML}:1: requirements must be a list"),
    "yes": (texts(yml="state_compatible: true\n"), f"{YML}:1: state_compatible must be"),
    "no stream": (texts(yml="inputs: {clicks: clicks}\n"), f"{JOB}:4: the job reads no stream"),
    "batches in Parquet": (texts(BATCHES), f"{JOB}:8: visits is parquet, and each_batch needs a Delta table"),
    "batches with metadata": (
        on_delta(texts(BATCHES, "metadata: true\n")),
        f"{JOB}:8: visits has metadata: true, with which each_batch cannot write",
    ),
    "keyed batches": (
        on_delta(texts(BATCHES, "mode: upsert\nkey: [id]\n")),
        f"{JOB}:8: visits has mode: upsert, with which each_batch cannot write",
    ),
    "two statements": (
        texts(**{"dml.visits.sql": "INSERT INTO visits SELECT id, id AS n FROM STREAM clicks;"}),
        f"{JOB}: visits has a job in Python and a dml script",
    ),
    "no job": (
        {**{p: t for p, t in texts(yml="requirements: [numpy]\n").items() if p != JOB},
         f"{PLACE}/sql-scripts/dml.visits.sql": "INSERT INTO visits SELECT id, id AS n FROM STREAM clicks;"},
        f"{YML}: visits has requirements, and no job in Python",
    ),
    "defaults": (
        texts() | {"headgate.yml": HEAD + "defaults: {requirements: [numpy]}\n"},
        "headgate.yml:7: defaults.requirements must be in the yml of a job",
    ),
    "upper case": (
        {**texts(), JOB.replace("job", "Job"): CODE},
        f"{JOB.replace('job', 'Job')}: Job.visits.py is ignored",
    ),
}  # fmt: skip
"""Files, each with the position and the first words of the Problem that they give."""


@pytest.mark.parametrize("case", WRONG)
def test_a_mistake_is_a_problem_at_its_line(case: str) -> None:
    found, expected = WRONG[case]
    _, problems = read_sound_tables(found)
    shown = [f"{problem.where}: {problem.summary}" for problem in problems]
    assert any(line.startswith(expected) for line in shown), shown
    assert all(problem.remedy for problem in problems)


def test_another_table_stays_readable_beside_a_broken_job() -> None:
    read, _ = read_sound_tables(texts("def visits("))
    assert read is not None and T("clicks") in read.tables and T("visits") in read.broken


def test_changed_code_is_rebuilt_and_the_plan_names_the_edit_and_the_way_to_continue() -> None:
    found = change(texts(), texts(CODE.replace('"*"', '"at"')))
    assert (found.kind, found.action) == (ChangeKind.STATE_CHANGED, Action.REBUILD)
    first, second = evidence_lines(found.evidence)
    assert first.startswith("code changed: return clicks.groupBy") and "F.count('at')" in first
    parsed = table(texts()).parsed
    assert parsed is not None and f"state_compatible: {code_hash(parsed)}" in second


def test_code_that_says_whose_state_it_continues_is_restarted_once() -> None:
    parsed = table(texts()).parsed
    assert parsed is not None
    edited, yml = CODE.replace('"*"', '"at"'), f"state_compatible: {code_hash(parsed)}\n"
    assert change(texts(), texts(edited, yml)).action is Action.RESTART
    later = texts(edited.replace("count", "max"), yml)
    assert change(texts(edited, yml), later).action is Action.REBUILD


@pytest.mark.parametrize(
    ("new", "kind"),
    [
        (texts(CODE + "# why\n"), ChangeKind.COMMENT_OR_FORMAT),
        (texts(CODE.replace("\n", "\r\n")), ChangeKind.NONE),
        (texts(yml="owner: me\n"), ChangeKind.DESCRIPTION),
        (texts(yml="requirements: [numpy]\n"), ChangeKind.STATE_CHANGED),
        (texts(yml="inputs: {clicks: STREAM customers}\n"), ChangeKind.STATE_CHANGED),
        (
            {**{path: text for path, text in texts().items() if path != JOB},
             f"{PLACE}/sql-scripts/dml.visits.sql": "INSERT INTO visits SELECT id, id AS n FROM STREAM clicks;"},
            ChangeKind.STATE_CHANGED,
        ),
    ],
)  # fmt: skip
def test_edits_have_kinds(new: Mapping[str, str], kind: ChangeKind) -> None:
    found = change(texts(), new)
    assert found.kind is kind or (kind is ChangeKind.STATE_CHANGED and found.action is Action.REBUILD)


def test_tables_that_are_read_for_tests_have_the_lines_of_the_job_s_file() -> None:
    dml = read_tables(texts(), Settings(), ParseCache(), {}, {})[T("visits")].dml
    assert dml is not None and str(dml.at(FIRST_CODE_LINE + 4)) == f"{JOB}:5"
