"""Jars of functions among the texts of a project: their descriptions, mistakes, and changes."""

import hashlib
import zipfile
from collections.abc import Mapping

import pytest
from java_class_files import FMT, STRING, archive, changed_entry, class_file, fmt_jar, jar

from core.changes.classification import classify
from core.changes.kinds import ChangeKind
from core.model.names import TableName as T
from core.project.model import Project
from core.project.revision import revision_hash, written_hash
from core.project.unreadable_file import UnreadableFile
from core.project_reader.functions import function_files
from core.project_reader.jar_files import classes_in, describe_jar, jar_of
from core.project_reader.loader import read_project, read_sound_tables
from core.project_reader.revision_reader import revision_of
from core.sql.python_declarations import registered_functions
from core.sql.registered_functions import JarClass

PLACE = "pipelines/facts/p/a"
ONE, TWO = fmt_jar("one "), fmt_jar("two ")
INT = "Ljava/lang/Integer;"


def texts(functions: Mapping[str, str | bytes], select: str = "SELECT fmt(v) AS v FROM STREAM src") -> dict[str, str]:
    """Return the texts of a project as its reader puts descriptions in place of jars."""
    found = {
        "headgate.yml": (
            "project: shop\nid: 12345678-1234-5678-1234-567812345678\ndefault_env: dev\nenvironments:\n"
            "  dev: {data: dev}\n"
        ),
        "pipelines/sources/p/src/sql-scripts/ddl.src.sql": (
            "CREATE TABLE src (v STRING, ts TIMESTAMP) USING json LOCATION 'in';"
        ),
        f"{PLACE}/sql-scripts/ddl.a.sql": "CREATE TABLE a (v STRING) USING parquet;",
        f"{PLACE}/sql-scripts/dml.a.sql": f"INSERT INTO a\n{select};\n",
        **{path: text for path, text in functions.items() if isinstance(text, str)},
    }
    for path, content in functions.items():
        if isinstance(content, bytes):
            found[path] = describe_jar(content, path.rpartition("/")[2], classes_in(found, path))
    return found


def of_jar(content: bytes, declared: str = FMT, file: str = "acme.jar") -> dict[str, str | bytes]:
    return {"functions/fmt.sql": declared.replace("acme.jar", file), f"functions/{file}": content}


def project(found: Mapping[str, str]) -> Project:
    read, problems = read_project(found)
    assert read is not None and not problems, problems
    return read


def test_a_statement_calls_a_name_with_the_hash_of_the_jar_and_its_revision_names_the_content() -> None:
    revision = revision_of(project(texts(of_jar(ONE))).tables[T("a")])
    sha256 = hashlib.sha256(ONE).hexdigest()
    (function,) = registered_functions(revision.texts.dml, revision.texts.functions)
    assert function.java == JarClass("com.acme.Fmt", "acme.jar", sha256) and function.returns == "string"
    assert f"CAST(/* fmt */ {function.name}(CAST(v AS string)) AS string)" in revision.texts.dml
    assert dict(revision.texts.functions) == {"fmt": FMT.replace("acme.jar", f"acme.jar#{sha256}")}


@pytest.mark.parametrize(
    ("select", "kind"),
    [
        ("SELECT fmt(v) AS v FROM STREAM src", ChangeKind.FILTER_OR_PROJECTION),
        ("SELECT v FROM STREAM src WHERE fmt(v) > 'a'", ChangeKind.FILTER_OR_PROJECTION),
        (
            "SELECT fmt(v) AS v FROM STREAM src WATERMARK ts DELAY OF INTERVAL 1 MINUTE GROUP BY fmt(v), ts",
            ChangeKind.STATE_CHANGED,
        ),
        ("SELECT v FROM STREAM src", ChangeKind.NONE),
    ],
)
def test_another_jar_is_a_change_of_each_user_with_the_kind_of_the_place(select: str, kind: ChangeKind) -> None:
    old, new = (revision_of(project(texts(of_jar(each), select)).tables[T("a")]) for each in (ONE, TWO))
    assert classify(old, new).kind is kind
    if kind is ChangeKind.NONE:
        return
    assert revision_hash(old.texts) != revision_hash(new.texts) and written_hash(old.texts) != written_hash(new.texts)
    evidence = [str(each) for each in classify(old, new).evidence]
    short = [hashlib.sha256(each).hexdigest()[:8] for each in (ONE, TWO)]
    assert any(all(f"acme.jar#{each}'" in line for each in short) for line in evidence), evidence


def test_a_renamed_jar_with_the_same_content_keeps_the_name_that_is_called() -> None:
    old, new = (revision_of(project(texts(of_jar(ONE, file=each))).tables[T("a")]) for each in ("acme.jar", "b.jar"))
    assert old.texts.dml == new.texts.dml


def test_a_deployed_revision_is_read_again_without_its_jar() -> None:
    found = texts(of_jar(ONE))
    deployed = revision_of(project(found).tables[T("a")]).texts
    again = {path: text for path, text in found.items() if not path.startswith("functions/")}
    again |= dict(function_files(PLACE, deployed))
    assert revision_of(project(again).tables[T("a")]).texts == deployed


BAD: list[tuple[dict[str, str | bytes], list[str]]] = [
    ({"functions/fmt.sql": FMT},
     ["functions/fmt.sql:1:74: functions/acme.jar does not exist [put it beside fmt.sql]"]),
    ({**of_jar(ONE, file="acmee.jar"), "functions/fmt.sql": FMT},
     ["functions/acmee.jar: no function names acmee.jar [declare its functions, with USING JAR 'acmee.jar', or remove "
      "it]", "functions/fmt.sql:1:74: functions/acme.jar does not exist [did you mean acmee.jar?]"]),
    (of_jar(b"PK\xff"), ["functions/acme.jar: acme.jar cannot be read: it is not a jar [build it again]"]),
    (of_jar(ONE[:-30]), ["functions/acme.jar: acme.jar cannot be read: it is not a jar [build it again]"]),
    (of_jar(ONE, FMT.replace("acme.Fmt", "other.Fmt")),
     ["functions/fmt.sql:1:49: acme.jar does not contain the class com.other.Fmt [did you mean com.acme.Fmt?]"]),
    (of_jar(jar(Fmt=b"\xca\xfe")), ["functions/fmt.sql:1:49: com.acme.Fmt cannot be read: it is no class file"]),
    (of_jar(jar(Fmt=class_file("com.acme.Fmt", "a", interfaces=0))),
     ["functions/fmt.sql:1:49: com.acme.Fmt implements no interface UDF0 to UDF22 of Spark itself, with type"]),
    (of_jar(jar(Fmt=class_file("com.acme.Fmt", "a", interfaces=2))),
     ["functions/fmt.sql:1:49: com.acme.Fmt implements 2 of Spark's interfaces for functions"]),
    (of_jar(jar(Fmt=class_file("com.acme.Fmt", "a", access=0x20))),
     ["functions/fmt.sql:1:49: com.acme.Fmt is not a public class that can be created"]),
    (of_jar(jar(Fmt=class_file("com.acme.Fmt", "a", constructor="(I)V"))),
     ["functions/fmt.sql:1:49: com.acme.Fmt has no public constructor without parameters"]),
    (of_jar(ONE, FMT.replace("x STRING", "x STRING, n INT")),
     ["functions/fmt.sql:1:56: com.acme.Fmt takes 1 argument, and fmt declares 2 [declare as many parameters as the "
      "class takes]"]),
    (of_jar(jar(Fmt=class_file("com.acme.Fmt", "a", types=[INT, INT]))),
     ["functions/fmt.sql:1:49: com.acme.Fmt returns Integer, and fmt returns STRING [declare the type of the class, or "
      "use String in it]",
      "functions/fmt.sql:1:49: com.acme.Fmt takes Integer as argument 1, and x is STRING [declare the type of the "
      "class, or use String in it]"]),
    (of_jar(archive({"com/acme/Fmt.class": class_file("com.acme.Fmt", "a"), "org/apache/spark/A.class": b""})),
     ["functions/fmt.sql:1:74: acme.jar contains org.apache.spark.A, and functions need the"]),
    (of_jar(archive({"com/acme/Fmt.class": class_file("com.acme.Fmt", "a"), "Fmt.class": b""})),
     ["functions/fmt.sql:1:74: acme.jar contains the class Fmt, which is in no package [put it into a package]"]),
    (of_jar(archive({"com/acme/Fmt.class": class_file("com.acme.Fmt", "a"),
                     "META-INF/maven/com.acme/udfs_2.12/pom.xml": b""})),
     ["functions/fmt.sql:1:74: acme.jar has a name for Scala 2.12 [build it for Scala 2.13"]),
    (of_jar(changed_entry(ONE, 8, b"\x01")),
     ["functions/fmt.sql:1:74: acme.jar contains the encrypted file com/acme/Fmt.class [build it without encryption]"]),
    (of_jar(archive({"com/acme/Fmt.class": b"a"}, zipfile.ZIP_BZIP2)),
     ["functions/fmt.sql:1:74: acme.jar contains com/acme/Fmt.class in a compression that Java does not read [build"]),
    (of_jar(changed_entry(ONE, 24, (70 << 20).to_bytes(4, "little"))),
     ["functions/fmt.sql:1:74: acme.jar has 70 MB when it is unpacked, and may have 64 MB [build a smaller jar]"]),
    (of_jar(archive({"com/acme/Fmt.class": class_file("com.acme.Fmt", "a"),
                     "META-INF/versions/21/com/acme/Fmt.class": class_file("com.acme.Fmt", "b")})),
     ["functions/fmt.sql:1:74: acme.jar contains META-INF/versions/21/com/acme/Fmt.class, a class for some versions of "
      "Java only [build it without META-INF/versions, so that each class has one file]"]),
    (of_jar(changed_entry(ONE, 24, (1 << 20).to_bytes(4, "little"))),
     ["functions/fmt.sql:1:49: com.acme.Fmt cannot be unpacked"]),
    (of_jar(ONE, file="acme_2.12-1.0.jar"), ["functions/fmt.sql:1:74: acme_2.12-1.0.jar has a name for Scala 2.12"]),
    ({**of_jar(ONE), "functions/FMT2.sql": "", "functions/f.yml": "class: a.F"},
     ["functions/FMT2.sql: FMT2.sql is ignored", "functions/f.yml: f: a function is declared in SQL or Python"]),
    ({**of_jar(ONE), "functions/other.sql": FMT}, ["functions/other.sql:1: other.sql declares fmt"]),
]  # fmt: skip


@pytest.mark.parametrize(("functions", "said"), BAD)
def test_mistakes_are_reported_together_with_their_places(functions: dict[str, str | bytes], said: list[str]) -> None:
    found, problems = read_sound_tables(texts(functions, "SELECT v FROM STREAM src"))
    assert found is not None and T("a") in found.tables and all(each.remedy for each in problems)
    lines = sorted(f"{each.where}: {each.summary} [{each.remedy}]" for each in problems)
    assert [line[: len(begin)] for line, begin in zip(lines, said, strict=True)] == said


def test_a_table_whose_function_is_invalid_is_broken_for_that_reason() -> None:
    found, _ = read_sound_tables(texts(of_jar(b"no jar")))
    assert found is not None
    assert [each.summary for each in found.broken[T("a")].problems] == ["acme.jar cannot be read: it is not a jar"]


def test_a_statement_calls_functions_of_one_jar() -> None:
    functions = {
        **of_jar(ONE),
        "functions/other.sql": FMT.replace("fmt", "other").replace("acme.jar", "b.jar"),
        "functions/b.jar": TWO,
        "functions/both.sql": "CREATE FUNCTION both(x STRING) RETURNS STRING RETURN fmt(x) || other(x)",
    }
    _, (problem,) = read_project(texts(functions, "SELECT both(v) AS v FROM STREAM src"))
    assert problem.summary == "functions of 2 jars are used here: functions/acme.jar and functions/b.jar"
    assert project(texts({**functions, "functions/b.jar": ONE}, "SELECT both(v) AS v FROM STREAM src"))


def test_a_type_that_may_fit_is_accepted() -> None:
    kinds = [
        ("DECIMAL(10, 2)", "Ljava/math/BigDecimal;"), ("DATE", "Ljava/time/LocalDate;"), ("BINARY", "[B"),
        ("ARRAY<INT>", "Lscala/collection/Seq<Ljava/lang/Object;>;"), ("BIGINT", "Ljava/lang/Number;"), ("INT", "TT;"),
    ]  # fmt: skip
    content = jar(Fmt=class_file("com.acme.Fmt", "a", types=[*(java for _, java in kinds), STRING]))
    parameters = ", ".join(f"p{n} {sql}" for n, (sql, _) in enumerate(kinds))
    project(texts(of_jar(content, FMT.replace("x STRING", parameters)), "SELECT v FROM STREAM src"))


def test_a_description_is_a_text_that_is_read_again_and_of_the_same_content_the_same() -> None:
    text = describe_jar(ONE, "acme.jar", ("com.acme.Fmt", "a.B"))
    found = jar_of(text)
    assert (
        found is not None
        and found.sha256 == hashlib.sha256(ONE).hexdigest()
        and list(found.classes) == ["com.acme.Fmt"]
    )
    assert describe_jar(ONE, "acme.jar", ("com.acme.Fmt", "a.B")) == text and jar_of(text[:-1]) is None
    assert isinstance(describe_jar(b"", "acme.jar", ()), UnreadableFile)
    assert len(describe_jar(ONE, "acme.jar", ("com.acme.Fmt",))) < 500
