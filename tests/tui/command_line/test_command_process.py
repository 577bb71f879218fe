"""The command as a process: its imports, its location, and its exit."""

import json
import os
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path
from typing import Any

import pytest

from core.ipc.framing import PROGRAM_VERSION
from tui import cli
from tui.command_line import exit_codes

ROOT = Path(__file__).parents[3]

HEAVY = ("textual", "sqlglot", "networkx", "yaml", "pyspark", "pandas", "pyarrow", "sqlite_utils")

LOADED = """
import sys
sys.argv = ["headgate", *{argv!r}]
from tui.cli import main
main()
print("\\n".join(sys.modules), file=sys.stderr)
"""


def command(*words: str, cwd: Path, **environ: str) -> "subprocess.CompletedProcess[str]":
    """Run the installed command, as a shell would."""
    script = Path(sysconfig.get_path("scripts"), "headgate")
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "HEADGATE_PROJECT", "HEADGATE_ENV")}
    return subprocess.run(
        [sys.executable, str(script), *words], cwd=cwd, env=clean | environ, capture_output=True, text=True, check=False
    )


def loaded(argv: list[str], cwd: Path) -> set[str]:
    """Run a command isolated and return the top-level modules that it loaded."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", LOADED.format(argv=argv)], cwd=cwd, capture_output=True, text=True, check=True
    )
    return {line.strip() for line in done.stderr.splitlines()}


def test_the_printed_version_is_that_of_the_package() -> None:
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == cli.VERSION == PROGRAM_VERSION


def test_the_version_loads_none_of_our_packages_and_nothing_heavy(tmp_path: Path) -> None:
    modules = loaded(["--version"], tmp_path)
    assert not modules & {
        *HEAVY,
        "argparse",
        "sqlite3",
        "core",
        "state",
        "pipelines",
        "tui.command_line",
        "tui.commands",
    }


@pytest.mark.parametrize("verb", ["ls", "health"])
def test_commands_that_only_read_the_ledger_load_neither_parser_nor_graph_nor_screens(
    verb: str, folder: Path, ledger: Any
) -> None:
    modules = loaded([verb], folder)
    assert "state.ledger" in modules
    assert not modules & set(HEAVY)


def test_a_plan_of_known_texts_loads_neither_parser_nor_ledger(folder: Path) -> None:
    modules = [loaded(["plan", "--all", "--offline"], folder) for _ in range(3)][-1]
    assert "core.planner.planner" in modules
    assert not modules & {"textual", "sqlglot", "networkx", "yaml", "state.ledger"}


def test_nothing_in_tui_state_or_core_loads_pyspark(tmp_path: Path) -> None:
    program = (
        "import importlib, pkgutil, sys, core, state, tui\n"
        "for package in (core, state, tui):\n"
        "    for found in pkgutil.walk_packages(package.__path__, package.__name__ + '.'):\n"
        "        importlib.import_module(found.name)\n"
        "print([name for name in ('pyspark', 'pipelines', 'grpc') if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_a_folder_with_packages_of_our_names_does_not_matter(tmp_path: Path) -> None:
    for name in ("core", "pipelines"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('somebody else')")
    done = command("--version", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"headgate {cli.VERSION}\n")


def test_a_pythonpath_with_packages_of_our_names_is_named_beside_ours(tmp_path: Path) -> None:
    (tmp_path / "core").mkdir()
    (tmp_path / "core" / "__init__.py").write_text("raise SystemExit('somebody else')")
    done = command("ls", cwd=tmp_path, PYTHONPATH=".")
    assert done.returncode == 2
    assert str(tmp_path / "core") in done.stderr and str(Path(cli.__file__).parents[1] / "core") in done.stderr


def test_a_closed_pipe_is_silent(folder: Path) -> None:
    script = Path(sysconfig.get_path("scripts"), "headgate")
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    for words in (["ls"], ["ls", "--json"], ["plan", "a", "--json", "--offline"], ["--help"], ["help", "plan"]):
        reading, writing = os.pipe()
        os.close(reading)
        with os.fdopen(writing, "wb") as closed:
            done = subprocess.run(
                [sys.executable, str(script), *words],
                cwd=folder,
                env=buffered,
                stdout=closed,
                stderr=subprocess.PIPE,
                text=True,
            )
        assert "Traceback" not in done.stderr and "BrokenPipe" not in done.stderr, words


@pytest.mark.parametrize(("typed", "meant"), [("lss", "ls"), ("aply", "apply"), ("dokter", "doctor")])
def test_an_unknown_command_names_the_nearest(typed: str, meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_codes.run_command_line([typed]) == 2
    assert f"did you mean `headgate {meant}`?" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["show"], ["plan"], ["wait", "--timeout", "soon"], ["logs", "spark"], ["ls", "--nope"]]
)
def test_a_wrong_line_is_usage(words: list[str], folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_codes.run_command_line(words) == 2
    assert capsys.readouterr().err.startswith("headgate: ")


def test_json_carries_the_error_and_nothing_else(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_codes.run_command_line(["show", "nothing", "--json"]) == 4
    said = capsys.readouterr()
    assert set(json.loads(said.out)["error"]) == {"class", "summary", "remedy"} and said.err == ""


def test_an_unexpected_error_is_one_sentence_and_a_file(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tui.commands import ls_lag_wait_health_peek as ls

    monkeypatch.setattr(ls, "ls", lambda context: 1 / 0)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert exit_codes.run_command_line(["ls"]) == 1
    said = capsys.readouterr().err
    assert "ZeroDivisionError" in said and "Traceback" not in said
    (written,) = tmp_path.glob("headgate-*-error.log")
    assert str(written) in said and "Traceback" in written.read_text()


def test_an_interrupt_ends_with_130(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tui.commands import ls_lag_wait_health_peek as ls

    def interrupt(context: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(ls, "ls", interrupt)
    assert exit_codes.run_command_line(["ls"]) == 130


def test_outside_of_a_project_the_remedy_names_the_demo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HEADGATE_PROJECT", raising=False)
    assert exit_codes.run_command_line(["ls"]) == 2
    assert "headgate demo" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [("stop", "caf\udce9"), ("ls", "--json", "--project", "/srv/caf\udce9"), ("caf\udce9",)]
)
def test_an_argument_that_is_not_utf_8_is_refused_in_one_sentence(
    words: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    assert exit_codes.run_command_line(list(words)) == 2
    said = "".join(capfd.readouterr())
    assert "caf\\xe9 is not UTF-8" in said.replace("\\\\", "\\") and "unexpectedly" not in said
