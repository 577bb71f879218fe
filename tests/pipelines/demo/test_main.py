"""The process's commands: one JSON object on stdout, and errors as objects with exit codes."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pipelines.demo.__main__ import main
from pipelines.demo.event_generator import ROUNDS


def call(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, dict[str, Any]]:
    code = main([str(argument) for argument in arguments])
    printed = capsys.readouterr()
    assert printed.err == ""
    return code, json.loads(printed.out)


@pytest.fixture
def project(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    code, result = call(capsys, "--copy", tmp_path / "demo")
    assert code == 0 and result["made"]
    return Path(result["folder"])


def test_a_copy_is_reported_with_its_folder_and_data(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, result = call(capsys, "--copy", project)
    assert (code, result["made"], result["data"]) == (0, False, str(project / "data"))


def test_a_change_is_announced_with_its_expected_effect(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, first = call(capsys, "--project", project, "--change", "filter")
    assert (code, first["table"], first["already_made"], len(first["written"])) == (0, "fct_kitchen_load", False, 1)
    assert call(capsys, "--project", project, "--change", "filter")[1]["already_made"]


def test_settling_lands_as_many_rounds_as_the_project_needs(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, result = call(capsys, "--data", project / "data", "--project", project, "--settle")
    assert code == 0
    assert [one["number"] for one in result["rounds"]] == list(range(1, ROUNDS + 1))
    assert result["closed_when_watermark_reaches"] < result["rounds"][0]["at"]


def test_settling_one_round_at_a_time_continues_the_count(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    numbers = [
        call(capsys, "--data", project / "data", "--settle", "--rounds", 1)[1]["rounds"][0]["number"] for _ in range(3)
    ]
    assert numbers == [1, 2, 3]


def test_a_generator_is_seen_and_stopped_by_its_folder_alone(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = project / "data"
    assert call(capsys, "--data", data, "--status") == (0, {"pid_alive": None, "last": None})
    generator = subprocess.Popen(
        [sys.executable, "-m", "pipelines.demo", "--data", str(data), "--rate", "2"],
        cwd=Path(__file__).parents[3], stdout=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        while not (data / "generator.json").exists():
            assert generator.poll() is None
        assert call(capsys, "--data", data, "--status")[1]["pid_alive"] == generator.pid
        assert call(capsys, "--data", data, "--stop") == (0, {"stopped": True})
        assert generator.wait(60) == 0
    finally:
        generator.kill()
        generator.wait()
    assert call(capsys, "--data", data, "--stop") == (0, {"stopped": False})
    assert call(capsys, "--data", data, "--status")[1]["last"]["state"] == "stopped"


@pytest.mark.parametrize(
    ("arguments", "code", "kind"),
    [
        ((), 2, "UsageError"),
        (("--surprise",), 2, "UsageError"),
        (("--change", "shuffle"), 2, "UsageError"),
        (("--change", "filter"), 2, "UsageError"),
        (("--settle",), 2, "UsageError"),
        (("--data", "/proc/nowhere"), 1, "HeadgateError"),
        (("--data", "{tmp}", "--rate", "-3"), 2, "UsageError"),
        (("--data", "{tmp}", "--settle", "--project", "{tmp}"), 2, "InvalidProject"),
    ],
)
def test_an_error_is_one_object_with_class_summary_remedy_and_exit_code(
    arguments: tuple[str, ...], code: int, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found, result = call(capsys, *(argument.replace("{tmp}", str(tmp_path)) for argument in arguments))
    assert (found, result["error"]["class"]) == (code, kind)
    assert result["error"]["summary"] and result["error"]["remedy"]


def test_the_generator_process_holds_neither_spark_nor_parser(tmp_path: Path) -> None:
    program = (
        "import sys; from pipelines.demo.__main__ import main; "
        f"main(['--data', {str(tmp_path)!r}, '--hours', '0']); "
        "print([name for name in ('pyspark', 'sqlglot', 'networkx', 'state', 'tui') if name in sys.modules])"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
