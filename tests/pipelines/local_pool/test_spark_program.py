"""The copy of Spark for our servers: programs and jars, but no Python code that each process would compile."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.local_pool.java_and_spark import write_python, write_spark_home


def installed(folder: Path) -> Path:
    """Create the files of an installed PySpark."""
    for name in ("bin/spark-submit", "jars/spark-core.jar", "python/lib/pyspark.zip"):
        file = folder / "pyspark" / name
        file.parent.mkdir(parents=True)
        file.write_text(name)
    return folder / "pyspark"


def test_processes_of_the_server_take_the_installed_package_and_not_its_zip(tmp_path: Path) -> None:
    home = write_spark_home(tmp_path / "home", installed(tmp_path / "a"))
    assert (home / "bin/spark-submit").read_text() == "bin/spark-submit"
    assert os.listdir(home / "jars") == ["spark-core.jar"]
    assert not (home / "python").exists()


def test_a_spark_that_was_installed_elsewhere_since_is_found(tmp_path: Path) -> None:
    write_spark_home(tmp_path / "home", tmp_path / "gone/pyspark")
    home = write_spark_home(tmp_path / "home", installed(tmp_path / "b"))
    assert sorted(os.listdir(home)) == ["bin", "jars"]
    assert (home / "jars/spark-core.jar").exists()


def test_a_package_found_only_by_our_own_variable_keeps_its_zip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark = installed(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"/elsewhere{os.pathsep}{tmp_path}")
    assert write_spark_home(tmp_path / "home", spark) == spark


def test_a_script_runs_python_without_the_token_and_passes_everything_else(tmp_path: Path) -> None:
    script = write_python(tmp_path / "a folder", sys.executable)
    code = (
        "import os, sys; print(os.environ.get('SPARK_CONNECT_AUTHENTICATE_TOKEN'), os.environ['OTHER'], sys.argv[1:])"
    )
    given = {"SPARK_CONNECT_AUTHENTICATE_TOKEN": "secret", "OTHER": "kept"}
    done = subprocess.run([script, "-c", code, "a b"], env=given, capture_output=True, text=True, check=True)
    assert done.stdout == "None kept ['a b']\n"
