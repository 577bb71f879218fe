"""The agent as a program: what it refuses before it has made anything."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.agent.__main__ import LogLines
from tests.core.project_files.test_loader import MANIFEST


@pytest.mark.parametrize(
    ("folder", "data", "said"),
    [("a%20b", "data", "%20"), ("plain", "../moved%2Faway", "%2F"), ("${x}", "data", "{")],
    ids=["of the project", "named in headgate.yml", "braces"],
)
def test_a_data_folder_that_spark_would_read_as_another_one_is_refused(
    folder: str, data: str, said: str, tmp_path: Path
) -> None:
    project = tmp_path / folder
    project.mkdir()
    (project / "headgate.yml").write_text(MANIFEST.replace("dev: {}", f"dev: {{data: '{data}'}}"))
    command = [sys.executable, "-m", "pipelines.agent", "--project", str(project), "--env", "dev"]
    home = tmp_path / "home"
    environ = {**os.environ, "HEADGATE_HOME": str(home)}
    found = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60)
    assert found.returncode != 0 and "which Spark takes for something else; move the project" in found.stderr
    assert f"has {said} in its name" in found.stderr
    assert not home.exists()


def test_a_text_of_others_writes_no_second_line_of_the_log() -> None:
    try:
        raise ValueError("two\n\x1b[2J")
    except ValueError:
        failed = sys.exc_info()
    record = logging.LogRecord("a", logging.INFO, "", 0, "%s", ("one\nINFO all is well\u202e\udce9",), failed)
    first, *below = LogLines("%(levelname)s %(message)s").format(record).split("\n")
    assert first == r"INFO one\x0aINFO all is well\u202e\xe9"
    assert below[0] == "Traceback (most recent call last):" and below[-1] == r"\x1b[2J"
