"""Python functions as the pool's processes call them: results, errors in one line, and no values of rows in them."""

import datetime
import decimal
import sys

import pandas
import pytest

from pipelines.spark_connect.function_in_worker import Code, FunctionFailed, by_row, by_series, by_table, loading


def code(text: str, returns: str = "double", key: str = "") -> Code:
    return Code("score", key or f"test_function_{abs(hash(text))}", text, returns)


def failure(text: str, *values: object, returns: str = "double") -> str:
    with pytest.raises(FunctionFailed) as error:
        by_row(code(text, returns))(*values)
    return str(error.value)


def test_a_module_is_executed_once_in_a_process() -> None:
    text = "import dataclasses\ncount = 0\n@dataclasses.dataclass\nclass Row:\n    n: 'int'\ncount += 1\n"
    one = code(f"{text}def score(a):\n    return Row(a).n + count\n")
    assert [by_row(one)(1), by_row(one)(2)] == [2.0, 3.0]
    assert one.key in sys.modules


def test_a_pandas_function_returns_a_series_of_the_same_length() -> None:
    values = pandas.Series([1, 2, 3])
    assert list(by_series(code("def score(a): return a + 1\n"))(values)) == [2, 3, 4]
    for wrong, said in (
        ("a.head(1)", "1 values, and it needs a Series of 3"),
        ("1.5", "a value of type float, and it"),
    ):
        with pytest.raises(FunctionFailed, match=f"HEADGATE_FUNCTION_RESULT.*score returned {said}"):
            by_series(code(f"def score(a): return {wrong}\n"))(values)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("raise ValueError('no amount of ' + str(a))", "ValueError: no amount of 7"),
        ("return {}[a]", "KeyError: …"),
        ("return int('secret')", "ValueError: invalid literal for int() with base … …"),
        ("return a / 0", "ZeroDivisionError: division by zero"),
        ("return a.upper()", "AttributeError: 'int' object has no attribute 'upper'"),
        ("raise ValueError('one\\ntwo')", "ValueError: one"),
        ("raise SystemExit", "SystemExit"),
        ("import json; return json.loads('{\"card\": 4711')",
         "JSONDecodeError: Expecting …"),
    ],
)  # fmt: skip
def test_an_error_is_one_line_without_values_of_the_row(body: str, expected: str) -> None:
    found = failure(f"def score(a):\n    {body}\n", 7)
    assert found.startswith(f"[HEADGATE_FUNCTION_FAILED] score.py, line 2: {expected.removesuffix('…')}")
    assert "4711" not in found and "secret" not in found


def test_a_module_that_cannot_be_loaded_is_reported_with_its_line_each_time() -> None:
    text = "import nowhere\ndef score(a): return a\n"
    expected = "[HEADGATE_FUNCTION_NOT_LOADED] score.py, line 1: ModuleNotFoundError: No module named 'nowhere'"
    assert [failure(text, 1), failure(text, 1)] == [expected, expected]
    assert loading([code("def score(a): return a\n"), code(text)])(0) == expected
    assert loading([code("def score(a): return a\n")])(0) == ""


def test_a_class_yields_rows_of_the_declared_types() -> None:
    columns = (("n", "double"), ("s", "string"))
    text = (
        "class score:\n    def __init__(self): self.calls = 0\n    def eval(self, a):\n        self.calls += 1\n"
        "        yield a, 'x'\n        yield {'s': None, 'n': 2}\n        if a < 0: raise ValueError('end')\n"
        "    def terminate(self): return [[self.calls, 'end']]\n"
    )
    made = by_table(code(text), columns)()
    assert list(made.eval(1)) == [(1.0, "x"), (2.0, None)] and list(made.terminate()) == [(1.0, "end")]
    with pytest.raises(FunctionFailed, match=r"^\[HEADGATE_FUNCTION_FAILED\] score\.py, line 7: ValueError: end$"):
        list(made.eval(-1))
    for wrong, said in (("'ab'", "a row of type str"), ("(1,)", "a row of type tuple"), ("(1, 2)", "type int as s")):
        text = f"class score:\n    def eval(self, a):\n        return [{wrong}]\n"
        with pytest.raises(FunctionFailed, match=rf"^\[HEADGATE_FUNCTION_RESULT\] .*{said}"):
            list(by_table(code(text), columns)().eval(1))
    silent = by_table(code("class score:\n    def eval(self, a): pass\n"), columns)()
    assert list(silent.eval(1)) == [] and list(silent.terminate()) == []


def test_an_error_that_contains_the_environment_does_not_show_the_token_of_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPARK_CONNECT_AUTHENTICATE_TOKEN", "0123abcd")
    raising = "raise ValueError(os.environ['SPARK_CONNECT_AUTHENTICATE_TOKEN'])"
    found = loading([code(f"import os\n{raising}\n")])(0)
    assert found == "[HEADGATE_FUNCTION_NOT_LOADED] score.py, line 2: ValueError: …"
    with pytest.raises(FunctionFailed, match=r"line 3: ValueError: …$"):
        by_row(code(f"import os\ndef score(a):\n    {raising}\n"))(1)


def test_a_module_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.spark_connect.function_in_worker.LOADING_S", 0.05)
    found = loading([code("while True:\n    pass\n")])(0)
    assert found == "[HEADGATE_FUNCTION_SLOW] score.py was not loaded within 0.05 s"


ZONED = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("returns", "result", "expected"),
    [
        ("double", "5", 5.0),
        ("double", "__import__('decimal').Decimal('1.5')", 1.5),
        ("bigint", "True", None),
        ("tinyint", "128", None),
        ("tinyint", "-128", -128),
        ("int", "1.0", None),
        ("decimal(10,2)", "3", decimal.Decimal(3)),
        ("decimal(10,2)", "1.5", None),
        ("string", "5", None),
        ("string", "'5'", "5"),
        ("boolean", "1", None),
        ("boolean", "False", False),
        ("date", "__import__('datetime').date(2026, 1, 2)", datetime.date(2026, 1, 2)),
        ("timestamp", "'2026-01-02'", None),
        ("array<int>", "[1]", [1]),
        ("struct<a:int>", "'x'", None),
        ("double", "'x'", None),
        ("int", "None", ...),
        ("variant", "'x'", "x"),
    ],
)
def test_a_result_of_another_type_is_an_error_instead_of_null(returns: str, result: str, expected: object) -> None:
    text = f"def score():\n    return {result}\n"
    if expected is None:
        assert "[HEADGATE_FUNCTION_RESULT] score.py: score returned a value of type " in failure(text, returns=returns)
    else:
        assert by_row(code(text, returns))() == (None if expected is ... else expected)
