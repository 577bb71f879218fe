"""Virtual environments of jobs, created by the real pip from a folder of wheels, or interrupted."""

import fcntl
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from live_project import until

from core.model.errors import Busy
from core.text.sentence import Fact
from pipelines.local_pool.java_and_spark import TOKEN
from pipelines.local_pool.process_locks import process_start
from pipelines.python_jobs.job_environments import JobEnvironments


def wheel(folder: Path, name: str = "shouting") -> Path:
    """Write a package with a function, and return its folder."""
    folder.mkdir(exist_ok=True)
    about = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as file:
        file.writestr(f"{name}.py", "def shout(text):\n    return text.upper() + '!'\n")
        file.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        file.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{about}/RECORD", "")
    return folder


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let pip find packages only in a folder."""
    folder = wheel(tmp_path / "wheels")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.mark.drill
@pytest.mark.long
def test_an_environment_is_created_once_and_sees_spark_s_client(tmp_path: Path, offline: Path) -> None:
    environments = JobEnvironments(tmp_path / "python")
    (tmp_path / "python").mkdir()
    python = environments.python_for(("shouting==1.0",), "job.a.py")
    assert isinstance(python, str)
    code = f"import os, pyspark.sql.connect.session, shouting; print(shouting.shout('a'), {TOKEN!r} in os.environ)"
    environment = {**os.environ, TOKEN: "secret"}
    done = subprocess.run([python, "-I", "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "A! False\n"
    # Nothing is resolved again: pip would find no package now.
    shutil.rmtree(offline)
    assert JobEnvironments(tmp_path / "python").python_for(("shouting==1.0",), "job.b.py") == python


@pytest.mark.drill
@pytest.mark.long
def test_an_environment_that_was_left_half_made_is_made_again(tmp_path: Path, offline: Path) -> None:
    environments = JobEnvironments(tmp_path / "python")
    python = environments.python_for(("shouting",), "job.a.py")
    assert isinstance(python, str)
    made = Path(python).parent.parent
    # A kill leaves the temporary folder, and no complete one.
    made.rename(made.with_name(f"{made.name}.new.killed"))
    assert environments.python_for(("shouting",), "job.a.py") == python and Path(python).exists()
    assert not made.with_name(f"{made.name}.new.killed").exists()


@pytest.mark.drill
@pytest.mark.long
def test_requirements_that_cannot_be_resolved_are_reported_with_the_words_of_pip(tmp_path: Path, offline: Path) -> None:
    found = JobEnvironments(tmp_path / "python").python_for(("shouting==2.0",), "job.a.py")
    assert isinstance(found, Fact)
    assert str(found) == (
        "the requirements of job.a.py cannot be installed: No matching distribution found for shouting==2.0"
    )
    assert not [each for each in (tmp_path / "python").iterdir() if each.suffix != ".lock"]


ENDLESS = """#!/bin/sh
sleep 600 &
echo "$$ $!" > "{pids}.part" && mv "{pids}.part" "{pids}"
wait
"""


def test_a_cancelled_installation_ends_its_programs_and_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, pids = tmp_path / "program", tmp_path / "pids"
    program.write_text(ENDLESS.format(pids=pids))
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    environments = JobEnvironments(tmp_path / "python")
    with pytest.raises(Busy, match=r"the installation of the packages of job\.a\.py was cancelled"):
        environments.python_for(("shouting",), "job.a.py", pids.exists)
    until(lambda: [process_start(int(pid)) for pid in pids.read_text().split()] == [None, None], 30, "both have ended")
    (lock,) = (tmp_path / "python").iterdir()
    # Another agent that installs the same packages does not make a stop wait.
    with open(lock, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(Busy):
            environments.python_for(("shouting",), "job.a.py", lambda: True)


def test_a_folder_that_cannot_be_written_is_a_fault_with_its_cause(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = JobEnvironments(tmp_path / "file/python").python_for(("shouting",), "job.a.py")
    said = f"the requirements of job.a.py cannot be installed in {tmp_path}/file/python: Not a directory"
    assert str(found) == said


def made(environments: JobEnvironments, requirement: str, *, at: float) -> Path:
    """Make an environment without packages, last used at a time in epoch seconds, with a Python that runs."""
    place = environments._place((requirement,))
    (place / "bin").mkdir(parents=True)
    (place / "bin/python-without-token").touch()
    (place / "bin/python").symlink_to(sys.executable)
    os.utime(place, (at, at))
    return place


@pytest.mark.skipif(sys.platform != "linux", reason="processes cannot be listed")
def test_only_environments_that_nobody_uses_are_removed(tmp_path: Path) -> None:
    environments = JobEnvironments(tmp_path / "python")
    used, recent, created, runs, unused = (
        made(environments, name, at=3000 if name == "recent" else 1000)
        for name in ("used", "recent", "created", "runs", "unused")
    )
    left = unused.with_name(f"{unused.name}.new.killed")
    left.mkdir()
    waits = [str(runs / "bin/python"), "-c", "print(flush=True); input()"]
    with (
        open(environments.folder / f"{created.name}.lock", "w") as lock,
        subprocess.Popen(waits, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process,
    ):
        assert process.stdin is not None and process.stdout is not None and process.stdout.readline()
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert environments.remove_unused([("used",)], 2000) == (unused.name,)
        process.stdin.close()
    assert [each.exists() for each in (used, recent, created, runs, unused, left)] == [True] * 4 + [False] * 2
    assert used.stat().st_mtime > 3000, "another agent sees that it is used"
    assert set(environments.remove_unused([], 2000)) == {created.name, runs.name}
