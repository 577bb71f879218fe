"""Our bundled JAVA_HOME: the arguments that its `java` forwards to a test program, and the real runtime."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pipelines.local_pool.java_and_spark import bundled_java, write_java_home

VECTOR = "jdk.incubator.vector"


@pytest.mark.parametrize(
    ("given", "passed_on"),
    [
        ([f"--add-modules={VECTOR}", "-Xmx1g", "Main"], ["-Xmx1g", "Main"]),
        (["-Xmx1g", "--add-modules", VECTOR, "Main"], ["-Xmx1g", "Main"]),
        ([f"--add-modules={VECTOR},java.se", "Main"], ["--add-modules=java.se", "Main"]),
        (["--add-modules", f"java.sql,{VECTOR},java.se", "Main"], ["--add-modules=java.sql,java.se", "Main"]),
        (["--add-modules=java.se", "--add-opens=java.base/java.nio=ALL-UNNAMED"],) * 2,
        (["Main", "--add-modules"], ["Main"]),
        (["-Da=with blanks", "", "*", "$HOME", "`id`", "a \"b\" 'c'", "two\nlines", "-n"],) * 2,
        ([f"-Da=--add-modules={VECTOR}", f"x{VECTOR}"],) * 2,
        ([], []),
    ],
)
def test_one_module_is_dropped_and_every_other_argument_is_forwarded(
    given: list[str], passed_on: list[str], tmp_path: Path
) -> None:
    home = write_java_home(tmp_path / "java's home", _echo(tmp_path))
    done = subprocess.run([home / "bin/java", *given], env={"PATH": ""}, capture_output=True, text=True, check=True)
    assert done.stdout.split("\0")[:-1] == passed_on


def test_the_program_replaces_the_script(tmp_path: Path) -> None:
    program = tmp_path / "pid"
    program.write_text(f"#!{sys.executable}\nimport os\nprint(os.getpid())\n")
    program.chmod(0o755)
    home = write_java_home(tmp_path / "home", str(program))
    child = subprocess.Popen([home / "bin/java"], stdout=subprocess.PIPE, text=True)
    assert int(child.communicate()[0]) == child.pid


def test_many_starters_at_once_never_meet_half_a_script(tmp_path: Path) -> None:
    program, home = _echo(tmp_path), tmp_path / "home"
    write_java_home(home, program)
    writing = threading.Event()

    def write() -> None:
        while not writing.is_set():
            write_java_home(home, program)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(50):
            done = subprocess.run([home / "bin/java", "a"], capture_output=True, text=True, check=True)
            assert done.stdout == "a\0"
    finally:
        writing.set()
        writer.join(60)
    assert [path.name for path in (home / "bin").iterdir()] == ["java"]


def test_the_bundled_java_starts_with_the_arguments_of_sparks_launcher(tmp_path: Path) -> None:
    words = [f"--add-modules={VECTOR}", "--add-opens=java.base/java.nio=ALL-UNNAMED", "-version"]
    alone = subprocess.run([bundled_java(), *words], capture_output=True, text=True, check=False)
    assert alone.returncode != 0 and f"Module {VECTOR} not found" in alone.stdout + alone.stderr
    home = write_java_home(tmp_path / "home", bundled_java())
    done = subprocess.run([home / "bin/java", *words], env={"PATH": ""}, capture_output=True, text=True, check=True)
    assert 'version "21.' in done.stderr


def _echo(folder: Path) -> str:
    """Write a program that prints its arguments, each followed by NUL."""
    program = folder / "it's a program"
    program.write_text('#!/bin/sh\nfor word in "$@"; do printf "%s\\0" "$word"; done\n', "utf-8")
    program.chmod(0o755)
    return str(program)
