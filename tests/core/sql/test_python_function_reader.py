"""Reading of Python functions: equal code, and one Problem for each mistake, without running the code."""

import pytest

from core.sql.python_declarations import is_type, registered_functions
from core.sql.python_function_reader import PythonFunction, read_python_function
from core.sql.registered_functions import READING_PYTHON, PythonKind, is_python, is_registered_name

SCORE = '''# CREATE FUNCTION score(amount DOUBLE, country STRING DEFAULT 'de')
# RETURNS DECIMAL(10, 2)

from decimal import Decimal


def score(amount: float, country: str | None) -> "Decimal":
    """Return the score."""
    return Decimal(amount)  # A comment.
'''
PATH = "functions/score.py"


def read(text: str) -> PythonFunction:
    found, problems = read_python_function(text, PATH)
    assert found is not None, problems
    return found


def wrong(text: str) -> list[str]:
    found, problems = read_python_function(text, PATH)
    assert found is None and all(each.where and each.where.path == PATH and each.remedy for each in problems)
    return [f"{each.where.line if each.where else 0}: {each.summary}" for each in problems]


def called(text: str) -> str:
    return str(read(text).sql.pieces[0])


def test_a_call_becomes_a_call_of_a_name_with_a_hash_of_the_code() -> None:
    found = read(SCORE)
    name = str(found.sql.pieces[0]).removesuffix("(")
    assert found.sql.pieces == (f"{name}(", 0, ", ", 1, ")") and found.sql.returns == "decimal(10,2)"
    assert is_registered_name(name) and name.startswith("score__py_") and not is_registered_name("score")
    (registered,) = registered_functions(f"SELECT {name}(1, 'x')", (("score", SCORE), ("vat", "CREATE FUNCTION vat()")))
    assert (registered.name, registered.function, registered.code) == (name, "score", SCORE)
    assert registered.kind is PythonKind.VALUES and registered.deterministic
    assert is_python(SCORE) and is_python("\ufeff\n# CREATE") and not is_python("-- CREATE FUNCTION")


def test_comments_docstrings_and_format_are_no_other_function() -> None:
    for same in (
        SCORE.replace("  # A comment.", ""),
        SCORE.replace('    """Return the score."""\n', ""),
        SCORE.replace("Decimal(amount)", "Decimal(\n        amount,\n    )"),
        SCORE.replace("# RETURNS", "# LANGUAGE PYTHON RETURNS").replace("LANGUAGE PYTHON ", ""),
        f"#!/usr/bin/env python3\n# Create no scores of customers, don't edit.\n\n{SCORE}",
        SCORE.replace("\n", "\r\n"),
        SCORE.replace("amount DOUBLE", "value DOUBLE").replace("DEFAULT 'de'", "DEFAULT 'fr'"),
    ):
        assert called(same) == called(SCORE), same
    others = (
        SCORE.replace("Decimal(amount)", "Decimal(amount + 1)"),
        SCORE.replace("amount DOUBLE", "amount FLOAT"),
        SCORE.replace("DECIMAL(10, 2)", "DECIMAL(10, 3)"),
        SCORE.replace("DECIMAL(10, 2)", "DECIMAL(10, 2) NOT DETERMINISTIC"),
        SCORE.replace("DECIMAL(10, 2)", "DECIMAL(10, 2) PARAMETER STYLE PANDAS"),
        SCORE.replace("Decimal(amount)", "Decimal(0)"),
        SCORE.replace("Decimal(amount)", "Decimal(None)"),
        SCORE.replace("Decimal(amount)", "Decimal()"),
        SCORE.replace("Decimal(amount)", "Decimal(score.__doc__)"),
        SCORE.replace("Decimal(amount)", "Decimal(score.__doc__)").replace("the score", "a score"),
    )
    assert len({called(each) for each in (SCORE, *others)}) == len(others) + 1
    # The hash is part of deployed texts: it must not depend on the version of Python or of Headgate.
    assert called("# CREATE FUNCTION score(a INT) RETURNS INT\ndef score(a):\n    return -a or 0x10\n") == (
        "score__py_f227fda3("
    )


def test_a_class_returns_rows() -> None:
    text = "# CREATE FUNCTION score(a INT) RETURNS TABLE (b INT, `c d` ARRAY<STRING>)\nclass score:\n"
    found = read(f"{text}    def eval(self, a):\n        yield a, ['x']\n")
    assert found.declaration.columns == (("b", "int"), ("c d", "array<string>"))
    assert found.declaration.returns == "struct<b:int,`c d`:array<string>>" and found.sql.columns == ("b", "c d")
    assert is_type(found.declaration.returns)


def test_a_declaration_says_whether_results_differ_and_how_values_are_passed() -> None:
    text = "# CREATE FUNCTION score(a INT) RETURNS INT NOT DETERMINISTIC PARAMETER STYLE PANDAS COMMENT 'it''s'\n"
    found = read(f"{text}\ndef score(a): return a\n").declaration
    assert found.kind is PythonKind.SERIES and not found.deterministic
    assert "__py_volatile_" in called(f"{text}\ndef score(a): return a\n")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("def score(a): return a\n", "1: the file does not begin with the declaration of a function"),
        ("", "1: the file does not declare a function"),
        ("# CREATE FUNCTION score(a INT) RETURNS INT\nreturn 1\n",
         f"2: score.py is not valid Python {READING_PYTHON}: 'return' outside function"),
        ("# CREATE FUNCTION score(a INT) RETURNS INT\ndef score(a):\nreturn a\n",
         f"3: score.py is not valid Python {READING_PYTHON}: "
         "expected an indented block after function definition on line 2"),
        ("# CREATE FUNCTION other(a INT) RETURNS INT\ndef other(a): return a\n", "1: score.py declares other"),
        ("# CREATE FUNCTION score(a INT) RETURNS INT\ndef scores(a): return a\n",
         "2: score.py does not define score"),
        ("# CREATE FUNCTION score(a INT) RETURNS INT\nclass score: pass\n",
         "2: score is a class, and a function is expected"),
        ("# CREATE FUNCTION score(a INT) RETURNS INT\nasync def score(a): return a\n",
         "2: score is an async def, which Spark does not await"),
        ("# CREATE FUNCTION score(a INT) RETURNS INT\ndef score(a):\n    yield a\n",
         "2: score contains yield, and returns a generator instead of a value"),
        ("# CREATE FUNCTION score(a INT) RETURNS INT\ndef score(a, b): return a\n",
         "2: score is declared with 1 parameter, and its def has 2 parameters"),
        ("# CREATE FUNCTION score(a INT, b INT) RETURNS INT\n\n\ndef score(a): return a\n",
         "4: score is declared with 2 parameters, and its def has 1 parameter"),
        ("# CREATE FUNCTION score(a INT) RETURNS INT\ndef score(*, a): return a\n",
         "2: a of score can only be given by name, and Spark gives values by position"),
        ("# CREATE FUNCTION score(a INT) RETURNS DOUBLE\ndef score(a: int) -> str: return a\n",
         "2: score is declared to return double, and annotated with str"),
        ("# CREATE FUNCTION score(a DOUBLE) RETURNS DOUBLE\ndef score(a: int) -> int: return a\n",
         "2: a of score is declared as double, and annotated as int"),
        ("# CREATE FUNCTION score(a DUBLE) RETURNS INT\ndef score(a): return a\n", "1: DUBLE is not a Spark type"),
        ("# CREATE FUNCTION score(a INT)\ndef score(a): return a\n", "1: score does not declare its result"),
        ("# CREATE FUNCTION score(a INT) RETURNS INT\n# This is prose.\ndef score(a): return a\n",
         "2: This is not expected here"),
        ("# CREATE FUNCTION score(a INT) RETURNS INT\n@F.udf('int')\ndef score(a): return a\n",
         "2: score has the decorator @udf, and Headgate itself registers it"),
        ("# CREATE FUNCTION score() RETURNS INT PARAMETER STYLE PANDAS\ndef score(): return 1\n",
         "1: score has no parameter, and pandas functions need one"),
        ("# CREATE FUNCTION score(a INT) RETURNS TABLE (b INT)\ndef score(a): return a\n",
         "2: score returns a table, and is not a class with a method eval"),
        ("# CREATE FUNCTION score(a INT) RETURNS TABLE (b INT)\nclass score:\n    def evaluate(self, a): pass\n",
         "2: score returns a table, and is not a class with a method eval"),
        ("# CREATE FUNCTION score(a INT) RETURNS TABLE (b INT)\nclass score:\n    def eval(self): yield 1,\n",
         "3: score is declared with 1 parameter, and its eval has 1 parameter"),
        ("# CREATE FUNCTION score(a INT) RETURNS TABLE (b INT)\nclass score:\n    async def eval(self, a): yield 1,\n",
         "3: score is an async def, which Spark does not await"),
        ("# CREATE FUNCTION score(a INT) RETURNS TABLE (b INT, B INT)\n", "1: the column B is declared twice"),
        ("# CREATE FUNCTION score(a INT) RETURNS TABLE ()\n", "1: the table has no columns"),
        ("# CREATE FUNCTION score(a INT) RETURNS TABLE<b: INT>\n", "1: the columns of the table are missing"),
        ("# CREATE FUNCTION score(a INT) RETURNS TABLE (b INT) PARAMETER STYLE PANDAS\n",
         "1: PARAMETER is not expected here"),
        ("# CREATE FUNCTION score(a INT) RETURNS INT\nfrom .other import f\ndef score(a): return a\n",
         "2: score imports a file beside it, and only its own file is sent to the pool"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_problem(text: str, expected: str) -> None:
    assert wrong(text) == [expected]


def test_a_def_may_have_more_parameters_with_defaults_and_inner_generators() -> None:
    head = "# CREATE FUNCTION score(a INT) RETURNS INT\n"
    for body in ("a, b=2", "*all", "a, /", "a, *, b=3"):
        assert read(f"{head}def score({body}): return sum(n for n in (1, 2))\n")
    assert read(f"{head}def score(a):\n    def inner():\n        yield 1\n    return list(inner())[0]\n")
    assert read(f"{head}def score(a: 'whatever') -> Optional[int]: return a\n")


def test_reading_runs_no_code() -> None:
    assert read("# CREATE FUNCTION score(a INT) RETURNS INT\nraise SystemExit(3)\ndef score(a): return a\n")


def test_a_file_that_python_cannot_parse_is_one_problem() -> None:
    head = "# CREATE FUNCTION score(a INT) RETURNS INT\n"
    for text in ("\0", f"def score(a): return {'(' * 300}", f"def score(a): return {'-' * 100_000}a", "\ud800"):
        assert len(wrong(head + text)) == 1


def test_a_type_is_nothing_else() -> None:
    assert is_type("STRUCT<a: INT, b: ARRAY<STRING>>") and is_type("decimal(10,2)")
    for each in ("", "INT) AS c, (SELECT 1", "INT x", "nothing", "'"):
        assert not is_type(each)
