"""The verdict on Java, against programs that only say what a Java would say."""

from pathlib import Path

import pytest

from pipelines.local_pool.java_check import find_java


def test_a_machine_without_java_is_told_how_to_get_one(tmp_path: Path) -> None:
    java = find_java({"PATH": str(tmp_path)})
    assert not java.works and java.path == ""
    assert java.summary == "no Java found: no java on PATH"
    assert "openjdk-17" in java.remedy


def test_an_old_java_is_refused_by_its_version(tmp_path: Path) -> None:
    java = find_java({"PATH": _java(tmp_path, 'openjdk version "1.8.0_402"')})
    assert not java.works and java.version == 8
    assert java.summary == f"Java 8 at {tmp_path}/java is too old for Spark 4"


def test_a_java_without_the_vector_module_is_refused_by_name(tmp_path: Path) -> None:
    java = find_java({"PATH": _java(tmp_path, 'openjdk version "21.0.2" 2024-01-16', "java.base@21.0.2")})
    assert not java.works and java.version == 21
    assert "lacks the module jdk.incubator.vector" in java.summary and "PyPI" in java.remedy


def test_a_full_java_works(tmp_path: Path) -> None:
    java = find_java({"PATH": _java(tmp_path, 'openjdk version "17.0.15"', "jdk.incubator.vector@17.0.15")})
    assert java.works and java.version == 17 and java.path == f"{tmp_path}/java"


def test_java_home_wins_over_the_path_even_when_it_is_wrong(tmp_path: Path) -> None:
    good = tmp_path / "good"
    good.mkdir()
    java = find_java(
        {"JAVA_HOME": "/nowhere", "PATH": _java(good, 'openjdk version "17.0.15"', "jdk.incubator.vector@17")}
    )
    assert not java.works and "JAVA_HOME=/nowhere" in java.summary


def test_a_program_that_is_no_java_is_quoted(tmp_path: Path) -> None:
    java = find_java({"PATH": _java(tmp_path, "command not installed")})
    assert not java.works and "command not installed" in java.summary


def _java(folder: Path, version: str, modules: str = "") -> str:
    program = folder / "java"
    program.write_text(
        f"#!/bin/sh\nif [ \"$1\" = -version ]; then echo '{version}' >&2; else echo '{modules}'; fi\n", "utf-8"
    )
    program.chmod(0o755)
    return str(folder)


def test_a_java_that_hangs_is_given_up_and_said_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.local_pool.java_check.ANSWERS_S", 0.2)
    program = tmp_path / "java"
    program.write_text("#!/bin/sh\nexec sleep 600\n", "utf-8")
    program.chmod(0o755)
    java = find_java({"PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert not java.works and java.summary == f"{program} did not answer within 0 s"
    assert "java -version" in java.remedy
