"""Texts of jobs in Python: what they contain, and that they are read, compiled and compared like statements."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.model.errors import InvalidProject
from core.model.names import TableName as T
from core.model.problems import Problem
from core.project.revision import RevisionTexts
from core.sql.compiler import compile_select, with_stream_options
from core.sql.lineage.statement_lineage import lineage_of
from core.sql.python_jobs import CodeFault, JobInput, PythonJob, code_meaning, job_text, python_job_of, read_signature
from core.sql.registered_functions import READING_PYTHON
from core.sql.statement import LogStart, ParsedStatement
from core.sql.statement_codec import decode_statements, encode_statements
from core.sql.statement_reader import read_statements

CODE = """from pyspark.sql import functions as F

def visits(clicks, customers):
    return clicks.join(customers, "id")
"""
STREAMED = JobInput("clicks", "STREAM clicks WATERMARK at DELAY OF INTERVAL 1 MINUTE")
JOB = PythonJob("visits", (STREAMED, JobInput("customers", "customers")), CODE, ("phonenumbers==8.13.0",))


def read(job: PythonJob) -> tuple[tuple[ParsedStatement, ...], tuple[Problem, ...]]:
    return read_statements(job_text("visits", job), "dml.visits.sql")


def parsed(job: PythonJob = JOB) -> ParsedStatement:
    (found,), problems = read(job)
    assert problems == ()
    return found


def test_the_inputs_are_reads_and_the_code_is_one_operator_with_unknown_state() -> None:
    found = parsed()
    assert [(each.table, each.streaming) for each in found.reads] == [("clicks", True), ("customers", False)]
    assert found.reads[0].watermark is not None and found.reads[0].watermark.delay == "1 minute"
    assert found.writes == "visits" and found.in_python and found.stateful
    lineage = lineage_of(found, {}.get)
    assert lineage.outputs == () and [each.name for each in lineage.unresolved] == ["*"]


TEXTS = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\r\ufeff"))


@given(code=TEXTS, name=st.sampled_from(["a", "b_1"]))
def test_a_text_contains_the_job_from_which_it_was_made(code: str, name: str) -> None:
    job = PythonJob(name, (JobInput("x", "STREAM x WITH ('a'='b, ''(' )"),), code, ("a[b]>=1, <2",))
    assert python_job_of(job_text("t", job)) == job


def test_a_compiled_text_still_contains_the_job() -> None:
    text = compile_select(
        parsed(),
        {T("clicks"): "db.clicks__v2", T("customers"): "customers__v1"},
        {T("clicks"): "id > 3"},
        {T("clicks"): LogStart(T("clicks"), "startingVersion", "7")},
    )
    job = python_job_of(with_stream_options(text, {0: (("maxFilesPerTrigger", "1"),)}))
    assert job is not None and job.code == CODE
    assert [each.parameter for each in job.inputs] == ["clicks", "customers"]
    stream, static = (each.sql for each in job.inputs)
    assert static == "customers__v1"
    assert stream == (
        "(SELECT * FROM STREAM db.clicks__v2 WITH ('maxFilesPerTrigger'='1', 'startingVersion'='7') "
        "WHERE id > 3) WATERMARK at DELAY OF INTERVAL 1 MINUTE"
    )


def test_a_cached_statement_is_that_which_was_read() -> None:
    text = job_text("visits", JOB)
    found, problems = read_statements(text, "dml.visits.sql")
    assert decode_statements(encode_statements(found, problems, text), text, "dml.visits.sql") == (found, problems)


@pytest.mark.parametrize(
    ("edit", "same"),
    [
        (("return", "# why\n    return"), True),
        (("    return clicks", '    """Says what."""\n    return  clicks'), True),
        (('"id")', '"id", "left")'), False),
        (("def visits", "def  visits"), True),
        (('"id"', "'id'"), True),
        (('"id"', '"customer"'), False),
    ],
)
def test_comments_and_formatting_have_no_meaning(edit: tuple[str, str], same: bool) -> None:
    assert (code_meaning(CODE.replace(*edit)) == code_meaning(CODE)) is same


FAULTS = {
    "def visits(a:\n    pass": f"the code is not valid Python {READING_PYTHON}",
    "x = 1\n": "the job defines no function visits",
    "async def visits(a):\n    return a\n": "visits is async",
    "def visits(a):\n    yield a\n": "visits is a generator",
    "def visits(a, *b):\n    return a\n": "visits must have plain parameters",
    "def visits(a=1):\n    return a\n": "visits must have plain parameters",
    "def visits(a):\n    return a\ndef each_batch(b):\n    return b\n": "each_batch must have two parameters",
    "(" * 2_000: f"the code is not valid Python {READING_PYTHON}",
}


@pytest.mark.parametrize("code", FAULTS)
def test_code_that_cannot_be_a_job_is_refused_without_being_executed(code: str) -> None:
    with pytest.raises(CodeFault, match=FAULTS[code]):
        read_signature(code, "visits")


def test_nested_generators_and_a_session_are_no_faults() -> None:
    code = "def visits(a, spark):\n    def rows():\n        yield 1\n    return a\n"
    assert read_signature(code, "visits").parameters == ("a",)
    assert PythonJob("visits", (), code).takes_spark and not JOB.takes_spark


@pytest.mark.parametrize(
    ("sql", "summary"),
    [
        ("(SELECT 1)", "the input clicks must be one table"),
        ("STREAM clicks o JOIN b ON true", "the input clicks must be one table"),
        ("clicks", "the job reads no stream"),
        ("STREAM clicks WITH ('x'='y')", "x is not an option of a streaming read"),
        ("STREAM a.b.clicks", "the table name cannot be qualified"),
    ],
)
def test_a_wrong_input_is_a_problem(sql: str, summary: str) -> None:
    found, problems = read(PythonJob("visits", (JobInput("clicks", sql),), CODE))
    assert found == () and problems[0].summary.startswith(summary)


def test_a_table_is_not_read_both_ways() -> None:
    inputs = (JobInput("clicks", "STREAM clicks"), JobInput("again", "clicks"))
    assert "both as a stream and as a table" in read(PythonJob("visits", inputs, CODE))[1][0].summary


@pytest.mark.parametrize("cut", ["-- code:\n", "-- function: visits\n", "-- |", '["phonenumbers==8.13.0"]'])
def test_a_damaged_text_is_refused(cut: str) -> None:
    text = job_text("visits", JOB).replace(cut, "", 1)
    with pytest.raises(InvalidProject):
        python_job_of(text)
    assert read_statements(text, "")[0] == ()


def test_people_see_the_code_and_its_inputs() -> None:
    shown = RevisionTexts(dml=job_text("visits", JOB)).shown["dml"]
    head = f"# inputs: clicks => {STREAMED.sql}, customers => customers\n# requirements: phonenumbers==8.13.0\n"
    assert shown == head + CODE
    damaged = job_text("visits", JOB).replace("-- code:", "--")
    assert RevisionTexts(dml=damaged).shown["dml"] == damaged
