"""Python functions in sessions of real Spark: their values, versions and errors, and an analysis without their code."""

import json
import uuid
from pathlib import Path
from typing import Any

import pytest

from core.changes.spark_questions_and_answers import AnalysedColumn, AnalysedRevision, AnalysisQuestion
from core.model.errors import EngineRefused
from core.model.names import TableName
from core.ports.spark import FunctionFault, QueryStart
from core.sql.registered_functions import PythonKind, RegisteredFunction
from pipelines.spark_connect.analysis_over_empty_tables import SparkAnalysis
from pipelines.spark_connect.error_translation import error_class, first_line
from pipelines.spark_connect.python_functions import PythonFunctions
from pipelines.spark_connect.session import Session, spark_errors

pytestmark = pytest.mark.spark


def function(body: str, returns: str = "double", kind: PythonKind = PythonKind.VALUES) -> RegisteredFunction:
    text = f"import math\ndef score(a):\n    {body}\n"
    return RegisteredFunction(f"score__py_{uuid.uuid4().hex[:8]}", returns, kind, code=text)


@pytest.mark.drill
@pytest.mark.long
def test_values_and_errors_of_functions(session: Session, ground: Any) -> None:
    functions, rows = PythonFunctions(session), session.spark.range(3)
    one, two = (
        function("return a * 2"),
        function("return {'n': a, 's': [str(a)]}", "struct<n: bigint, s: array<string>>"),
    )
    series = function("return a * 2 + a.max()", "bigint", PythonKind.SERIES)
    bad = function("return 1 / (a - 2)")
    text = "class score:\n    def eval(self, a):\n        for n in range(a): yield n, str(a)\n"
    table = RegisteredFunction("score__py_0a0a0a0a", "struct<n:bigint,s:string>", PythonKind.TABLE, code=text)
    functions.register([one, two, series, bad, table])
    assert [
        tuple(row)
        for row in session.spark.sql(
            f"SELECT id, w.n, s FROM range(3), LATERAL {table.name}(CAST(id AS INT)) AS w(n, s) ORDER BY ALL"
        ).collect()
    ] == [(1, 0, "1"), (2, 0, "2"), (2, 1, "2")]
    found = rows.selectExpr(f"{one.name}(id) x", f"{two.name}(id) y", f"{series.name}(id) z").collect()
    assert [(row.x, row.y.n, row.y.s) for row in found] == [(0.0, 0, ["0"]), (2.0, 1, ["1"]), (4.0, 2, ["2"])]
    assert [row.z for row in found][-1] == 6
    with pytest.raises(EngineRefused) as error, spark_errors():
        rows.selectExpr(f"{bad.name}(id)").collect()
    assert (error.value.error_class, error.value.summary) == (
        "HEADGATE_FUNCTION_FAILED", "score.py, line 3: ZeroDivisionError: division by zero",
    )  # fmt: skip
    assert ground.queries.load_functions([one, two]) is None
    missing = RegisteredFunction("score__py_00000000", "int", code="import nowhere\ndef score(a): return a\n")
    fault = ground.queries.load_functions([one, missing])
    assert fault.kind is FunctionFault.NOT_LOADED
    assert str(fault) == "score.py, line 1: ModuleNotFoundError: No module named 'nowhere'"


def test_a_file_that_ends_its_process_while_it_is_loaded_is_named(ground: Any) -> None:
    ends = RegisteredFunction("ends__py_00000000", "int", code="import os\nos._exit(3)\ndef ends(a): return a\n")
    fault = ground.queries.load_functions([function("return a"), ends])
    assert fault == FunctionFault.ENDED.of(file="ends.py")
    assert str(fault) == "ends.py ended its Python process while it was loaded"


def test_an_analysis_knows_the_type_of_a_function_and_never_has_its_code(session: Session, tmp_path: Path) -> None:
    mark = tmp_path / "executed"
    one = function(f"return open({str(mark)!r}, 'w').write('x')", "decimal(10,2)")
    analysis = SparkAnalysis(session)
    try:
        tables = ((TableName("t"), "CREATE TABLE t (i DOUBLE, k ARRAY<DOUBLE>) USING parquet"),)
        select = f"SELECT {one.name}(i) AS x, {one.name}(1) AS y FROM STREAM t WHERE {one.name}(2) > 1"
        side = AnalysedRevision(select, tables, (one,))
        answer = analysis.ask(AnalysisQuestion(side, side))
        assert answer.new.refused is None and answer.new.columns == (
            AnalysedColumn("x", "decimal(10,2)", True), AnalysedColumn("y", "decimal(10,2)", True),
        )  # fmt: skip
        assert answer.same
        rows = RegisteredFunction("score__py_0b0b0b0b", "struct<n:int,s:string>", PythonKind.TABLE)
        from_rows = AnalysedRevision(f"SELECT i, w.n FROM STREAM t, LATERAL {rows.name}(i) AS w(n, s)", tables, (rows,))
        assert analysis.ask(AnalysisQuestion(from_rows)).new.columns[1] == AnalysedColumn("n", "int", True)
        # Spark refuses functions in Python where it accepts others.
        inside = AnalysedRevision(f"SELECT transform(k, x -> {one.name}(x)) AS x FROM STREAM t", tables, (one,))
        refused = analysis.ask(AnalysisQuestion(inside)).new.refused
        assert refused is not None and refused.error_class == "UNSUPPORTED_FEATURE.LAMBDA_FUNCTION_WITH_PYTHON_UDF"
    finally:
        analysis.clear()
    assert not mark.exists()


@pytest.mark.drill
@pytest.mark.long
def test_a_running_query_keeps_its_function_and_an_error_ends_it_in_one_line(ground: Any) -> None:
    one = function("return a + 0.5")

    def start(each: RegisteredFunction) -> None:
        ground.files.prepare(ground.checkpoint("t"), {"table": "t"})
        select = f"SELECT {each.name}(a) AS a, b FROM STREAM {ground.source}"
        about = (ground.query("t"), select, f"t_{ground.mark}__v1", "parquet", ground.checkpoint("t"), "0 seconds")
        ground.queries.start(QueryStart(*about, functions=(each,)))

    def values() -> set[float]:
        found = ground.tables.read(f"SELECT to_json(collect_set(a)) FROM t_{ground.mark}__v1", 1)[1]
        return set(json.loads(str(found[0][0])))

    ground.table("t", "a DOUBLE, b STRING")
    ground.land(2, a=1)
    start(one)
    ground.until(lambda: values() == {1.5})
    # Another body under the same name, in the same session.
    other = RegisteredFunction(one.name, "double", code="def score(a):\n    return a + 0.25\n")
    PythonFunctions(ground.session).register([other])
    ground.land(2, a=2)
    ground.until(lambda: values() == {1.5, 2.5})
    ground.queries.stop(ground.query("t"))
    start(function("return math.sqrt(a - 10)"))
    ground.land(2, a=3)
    ground.until(lambda: ground.query("t") not in ground.mine())
    (ended,) = [each for each in ground.queries.ended() if each.name == ground.query("t")]
    assert ended.error_class == "HEADGATE_FUNCTION_FAILED"
    assert ended.error.startswith("score.py, line 3: ValueError: ") and "\n" not in ended.error


def test_the_cause_is_found_in_the_error_of_a_stream() -> None:
    text = (
        "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: [PYTHON_EXCEPTION] An exception was "
        'thrown from the Python worker: Traceback (most recent call last):\n  File "x.py", line 9, in call\n'
        "pipelines.spark_connect.function_in_worker.FunctionFailed: [HEADGATE_FUNCTION_FAILED] score.py, line 3: "
        "ValueError: no [X] SQLSTATE: 38000\n"
    )
    assert (
        error_class(text) == "HEADGATE_FUNCTION_FAILED" and first_line(text) == "score.py, line 3: ValueError: no [X]"
    )
