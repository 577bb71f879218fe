"""Jobs built in a real confined process and run by real Spark: what they may do, and how each fault is reported."""

from pathlib import Path

import pytest

from core.model.errors import EngineRefused
from core.ports.spark import QueryStart
from core.sql.python_jobs import JobInput, PythonJob
from pipelines.python_jobs.job_builder import JobBuilder, JobLimits
from pipelines.python_jobs.job_environments import JobEnvironments
from tests.pipelines.python_jobs.test_job_environments import wheel
from tests.pipelines.spark_connect.conftest import Field, ground

__all__ = ["ground"]

pytestmark = [pytest.mark.spark, pytest.mark.drill, pytest.mark.long]

COLUMNS = (("b", "STRING"), ("n", "BIGINT"))
COUNTS = """
from pyspark.sql.functions import col, udf
from pyspark.sql.streaming import StatefulProcessor

class Counts(StatefulProcessor):
    def init(self, handle):
        self.n = handle.getValueState("n", "n bigint")

    def handleInputRows(self, key, rows, timers):
        import pandas

        n = (self.n.get()[0] if self.n.exists() else 0) + sum(map(len, rows))
        self.n.update((n,))
        yield pandas.DataFrame({"b": [key[0]], "n": [n]})

def counts(rows):
    upper = udf(lambda text: text.upper(), "string")
    named = rows.select(upper(col("b")).alias("b"))
    return named.groupBy("b").transformWithStateInPandas(Counts(), "b string, n bigint", "append", "none")
"""


def built(ground: Field, code: str, *, seconds: float = 20, function: str = "counts") -> QueryStart:
    """Build a job over the rows of the ground, and return the start of its query."""
    job = PythonJob(function, (JobInput("rows", f"STREAM `{ground.source}`"),), code)
    builder = JobBuilder(ground.session, ground.folder / "jobs", None, JobLimits(seconds=seconds))
    made = builder.build(job, name=ground.query("counts"), table="counts", columns=COLUMNS)
    ground.files.prepare(ground.checkpoint("counts"), {"table": "counts"})
    return QueryStart(
        ground.query("counts"), "", f"counts_{ground.mark}__v1", "parquet", ground.checkpoint("counts"), "0 seconds",
        job=made,
    )  # fmt: skip


def rows(ground: Field) -> list[tuple[object, ...]]:
    physical = f"counts_{ground.mark}__v1"
    return sorted(ground.tables.read(f"SELECT b, n FROM {physical}", 100)[1])


def test_a_job_with_state_and_functions_continues_after_a_restart_with_a_plan_built_again(ground: Field) -> None:
    ground.table("counts", "b STRING, n BIGINT")
    ground.land(3)
    ground.queries.start(built(ground, COUNTS))
    ground.until(lambda: len(rows(ground)) == 3, 120)
    ground.queries.stop(ground.query("counts"))
    ground.land(6)
    start = built(ground, COUNTS + "\n# An edit.\n")
    ground.queries.start(start)
    ground.until(lambda: len(rows(ground)) == 6, 120)
    assert rows(ground) == [("B0", 1), ("B0", 3), ("B1", 1), ("B1", 3), ("B2", 1), ("B2", 3)]
    assert ground.queries.start(start).run_id == ground.mine()[start.name].run_id, "an equal start finds the query"
    (lag,) = ground.lag("counts", (ground.source, f"{ground.folder}/landing", "json"))
    assert lag.files == 0


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("return rows.groupBy('b').count()", "counts in job.counts.py returns no column n, which the DDL declares"),
        ("return rows.selectExpr('b', 'a AS n', 'ts')", "returns a column ts, which the DDL does not declare"),
        ("return rows.selectExpr('b', 'b AS n')", "returns n as string, and the DDL declares bigint"),
        (
            "return rows.sparkSession.range(3)",
            "counts in job.counts.py does not use rows; remove this parameter, or use it",
        ),
        ("return None", "counts in job.counts.py returns NoneType; return one streaming DataFrame"),
        ("rows.count()", "job.counts.py, line 2: the job asks Spark for an action, spark.sql() or a registration"),
        ("rows.explain()", "job.counts.py, line 2: the job asks Spark for explain()"),
        ("return rows.sparkSession.table('other')", "counts in job.counts.py reads other, which is not one of its"),
        ("rows.sparkSession.conf.set('spark.sql.x', '1')", "line 2: the job asks Spark for a change of Spark's"),
        ("rows.sparkSession.conf.get('spark.connect.authenticate.token')", "line 2: the job asks Spark for the set"),
        ("import nowhere", "job.counts.py, line 2: there is no module nowhere; add its package to requirements:"),
        ("return rows.select('c')", "job.counts.py: "),
        ("1 / 0", "job.counts.py, line 2: ZeroDivisionError: division by zero; correct the code"),
        ("x = 'x' * (1 << 31)", "job.counts.py needs more than 1.1 GB of memory while its plan is built"),
        ("import os; os._exit(3)", "job.counts.py ended its process (exit code 3) before its function returned"),
        ("import time; time.sleep(60)", "job.counts.py has not returned within 6s"),
        ("open('/tmp/x', 'w')", "job.counts.py, line 2: PermissionError: [Errno 13] Permission denied: '/tmp/x'"),
    ],
)
def test_a_wrong_job_is_refused_in_one_sentence(ground: Field, line: str, said: str) -> None:
    with pytest.raises(EngineRefused) as refused:
        built(ground, f"def counts(rows):\n    {line}\n", seconds=6)
    assert said in refused.value.sentence and "\n" not in refused.value.sentence


SHOUTED = """
from pyspark.sql.functions import udf
from shouting import shout

def counts(rows):
    return rows.select(udf(shout, "string")("b").alias("b"), rows.a.alias("n"))
"""


def test_the_pool_s_python_has_the_requirements_of_a_job_after_its_start_too(
    ground: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel(ground.folder / "wheels")))
    builder = JobBuilder(ground.session, ground.folder / "jobs", JobEnvironments(ground.folder / "python"))
    job = PythonJob("counts", (JobInput("rows", f"STREAM `{ground.source}`"),), SHOUTED, ("shouting",))
    made = builder.build(job, name=ground.query("counts"), table="counts", columns=COLUMNS)
    assert [name for name, _ in made.settings] == ["spark.sql.execution.pyspark.python"]
    ground.table("counts", "b STRING, n BIGINT")
    ground.files.prepare(ground.checkpoint("counts"), {"table": "counts"})
    physical = f"counts_{ground.mark}__v1"
    place = ground.checkpoint("counts")
    ground.queries.start(QueryStart(ground.query("counts"), "", physical, "parquet", place, "0 seconds", job=made))
    for landed in (1, 2):
        ground.land(1)
        ground.until(lambda landed=landed: len(rows(ground)) == landed, 120)
    assert rows(ground) == [("B0!", 1), ("B0!", 1)]
    assert ground.session.spark.conf.get("spark.sql.execution.pyspark.python", "none") == "none"
    remote = JobBuilder(ground.session, ground.folder / "jobs", None)
    with pytest.raises(EngineRefused, match="runs elsewhere, where its requirements"):
        remote.build(job, name=ground.query("counts"), table="counts", columns=COLUMNS)


def test_what_a_job_prints_is_in_the_log_of_its_statement(ground: Field) -> None:
    code = (
        "import os\n\ndef counts(rows):\n    print(rows.columns, os.getcwd())\n"
        "    return rows.selectExpr('b', 'a AS n')\n"
    )
    built(ground, code)
    (place,) = (ground.folder / "jobs").iterdir()
    assert f"{ground.folder}/job-builds/" in Path(place).read_text(), "a build has its files in the environment's home"
    assert [*(ground.folder / "job-builds").iterdir()] == []
    assert (ground.folder / "job-builds").stat().st_mode & 0o777 == 0o700
    assert place.name == f"{ground.query('counts')}.log" and "['a', 'b', 'ts']" in Path(place).read_text()


RAISES = """
from pyspark.sql.functions import udf
from pyspark.sql.streaming import StatefulProcessor

def checked(text):
    raise ValueError("SECRETROW " + text)

class Raising(StatefulProcessor):
    def init(self, handle):
        self.n = handle.getValueState("n", "n bigint")

    def handleInputRows(self, key, rows, timers):
        yield {}["SECRETROW"]

def counts(rows):
    if %s:
        return rows.select(udf(checked, "string")("b").alias("b"), rows.a.alias("n"))
    return rows.groupBy("b").transformWithStateInPandas(Raising(), "b string, n bigint", "append", "none")
"""


@pytest.mark.parametrize(
    ("by_function", "said"),
    [
        (True, "job.counts.py, line 6: ValueError: SECRETROW b…"),
        (False, "job.counts.py, line 13: KeyError: …"),
    ],
)
def test_an_exception_for_a_row_is_reported_with_its_line_and_class(
    ground: Field, by_function: bool, said: str
) -> None:
    ground.table("counts", "b STRING, n BIGINT")
    ground.land(1)
    ground.queries.start(built(ground, RAISES % by_function))
    ground.until(lambda: ground.query("counts") not in ground.mine(), 120)
    (found,) = (each for each in ground.queries.ended() if each.name == ground.query("counts"))
    assert (found.error_class, found.error) == ("HEADGATE_JOB_FAILED", f"{said}; correct the code")
