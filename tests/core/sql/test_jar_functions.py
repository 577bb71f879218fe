"""Declarations of functions of jars."""

import pytest

from core.sql.jar_functions import read_jar_function
from core.sql.python_declarations import registered_functions
from core.sql.registered_functions import JarClass, RegisteredFunction, is_of_jar, jar_hash, named_jar, with_jar_hash

HASH = "0123456789abcdef" * 4
TEXT = (
    "-- Formats.\nCREATE FUNCTION Fmt(x STRING, n INT DEFAULT 1) RETURNS DECIMAL(10, 2)\nCOMMENT 'AS' AS 'com.acme.Fmt'"
)


def test_a_declaration_is_read_and_called_by_a_name_with_a_hash_of_class_and_jar() -> None:
    text = with_jar_hash(f"{TEXT}\nUSING JAR 'acme.jar';", HASH)
    found, problems = read_jar_function(text, "functions/fmt.sql")
    assert found is not None and not problems
    assert (found.name, found.line, found.class_name, found.jar, found.sha256) == (
        "fmt", 2, "com.acme.Fmt", "acme.jar", HASH,
    )  # fmt: skip
    assert found.registered.startswith("fmt__jar_") and found.called().pieces == (
        f"{found.registered}(",
        0,
        ", ",
        1,
        ")",
    )
    for other in (text.replace(HASH, HASH[::-1]), text.replace("acme.Fmt", "acme.Other")):
        changed, _ = read_jar_function(other, "functions/fmt.sql")
        assert changed is not None and changed.registered != found.registered
    about = JarClass("com.acme.Fmt", "acme.jar", HASH)
    expected = RegisteredFunction(found.registered, "decimal(10,2)", java=about)
    assert registered_functions(f"SELECT {found.registered}(a, 1)", [("fmt", text)]) == (expected,)
    assert registered_functions("SELECT fmt__jar_00000000(a, 1)", [("fmt", text)]) == ()


def test_a_hash_is_added_once_and_only_to_declarations_of_jars() -> None:
    text = f'{TEXT} using  jar "acme.jar"'
    assert is_of_jar(text) and named_jar(text) == "acme.jar" and jar_hash(text) == ""
    pinned = with_jar_hash(text, HASH)
    assert jar_hash(pinned) == HASH and with_jar_hash(pinned, "f" * 64) == pinned and named_jar(pinned) == "acme.jar"
    for other in ("CREATE FUNCTION f(x INT) RETURNS INT RETURN x", "# USING JAR 'a.jar'\ndef f(): pass"):
        assert (
            not is_of_jar(other) and with_jar_hash(other, HASH) == other and named_jar(other) == jar_hash(other) == ""
        )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("CREATE FUNCTION f AS 'a.F' USING JAR 'f.jar'", "1:17 f declares no parameters and no result"),
        ("CREATE FUNCTION f() AS 'a.F' USING JAR 'f.jar'", "1:21 f does not declare its result"),
        ("CREATE FUNCTION f() RETURNS TABLE (a INT) AS 'a.F' USING JAR 'f.jar'", "1:29 f returns a table, and"),
        ("CREATE FUNCTION f() RETURNS INT NOT DETERMINISTIC AS 'a.F' USING JAR 'f.jar'", "1:33 f is not deterministic"),
        ("CREATE FUNCTION f() RETURNS INT LANGUAGE SQL AS 'a.F' USING JAR 'f.jar'", "1:33 LANGUAGE is not expected"),
        ("CREATE FUNCTION f() RETURNS INT AS 'a b' USING JAR 'f.jar'", "1:36 'a b' is not the name of a class"),
        ("CREATE FUNCTION f() RETURNS INT AS 'a.F' USING JAR 'x/f.jar'", "1:52 'x/f.jar' is not the name of a jar in"),
        ("CREATE FUNCTION f() RETURNS INT AS 'a.F' USING JAR 'f.zip'", "1:52 'f.zip' is not the name of a jar in"),
        ("CREATE FUNCTION f() RETURNS INT AS 'a.F' USING JAR 'f.jar', JAR 'g.jar'", "1:59 a function has one jar"),
        ("CREATE FUNCTION f() RETURNS INT AS 'a.F' USING JAR 'f.jar' x", "1:60 x is not expected after the jar"),
        ("CREATE FUNCTION f() RETURNS INT AS 'a.F' USING JAR 'f.jar'; SELECT 1", "1:61 a file contains one function"),
        (
            f"CREATE FUNCTION f({', '.join(f'a{n} INT' for n in range(23))}) RETURNS INT AS 'a.F' USING JAR 'f.jar'",
            "1:17 f has 23 parameters, and Spark has interfaces for 22",
        ),
    ],
)
def test_a_mistake_in_a_declaration_is_a_problem_with_its_place(text: str, said: str) -> None:
    found, (problem,) = read_jar_function(text, "functions/f.sql")
    assert found is None and problem.remedy
    where = problem.where
    assert where is not None
    assert f"{where.line}:{where.column} {problem.summary}".startswith(said)
