"""Whatever stdin, stdout and stderr are connected to, operations are sent, and no traceback appears."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from core.model.errors import UsageError
from core.text.escaping import has_control_characters
from tui.agent_client.agent_process import WaitProgress
from tui.command_line import exit_codes
from tui.command_line.output import CommandOutput, problem_line


@pytest.mark.sampled
@pytest.mark.parametrize("redirected", [">/dev/full", ">&-", "<&-", "2>/dev/full", "2>&1 | true", "<&- >&- 2>&-"])
def test_an_act_is_sent_wherever_the_shell_points_its_streams(redirected: str, folder: Path, agent: Any) -> None:
    program = Path(sys.executable).with_name("headgate")
    line = f"{shlex.quote(str(program))} stop a --confirm yes {redirected}"
    done = subprocess.run(["/bin/sh", "-c", line], cwd=folder, capture_output=True, text=True)
    assert [request["op"] for request in agent.heard] == ["stop"]
    assert "Traceback" not in done.stderr and "should not" not in done.stderr


@pytest.mark.parametrize("words", ["ls", "ls --json"])
def test_a_full_stdout_is_reported_in_one_sentence(words: str, folder: Path) -> None:
    program = Path(sys.executable).with_name("headgate")
    line = f"{shlex.quote(str(program))} {words} >/dev/full"
    done = subprocess.run(["/bin/sh", "-c", line], cwd=folder, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert "stdout cannot be written: No space left on device" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.sampled
@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_output_is_written_in_any_encoding(encoding: str, folder: Path) -> None:
    for words in (["--help"], ["help", "plans"], ["plan", "l\N{LATIN SMALL LETTER E WITH ACUTE}", "--json"]):
        done = subprocess.run(
            [sys.executable, "-m", "tui.cli", *words],
            env={**os.environ, "PYTHONIOENCODING": encoding},
            capture_output=True,
            cwd=folder,
        )
        assert done.returncode == (2 if "--json" in words else 0), done.stderr
        said = done.stdout.decode(encoding)
        assert "--json" not in words or "l\N{LATIN SMALL LETTER E WITH ACUTE}" in json.loads(said)["error"]["summary"]


@pytest.mark.sampled
@pytest.mark.parametrize(
    "words",
    ["ls", "ls --json", "plan --all", "--help", "help plans", "doctor", "inventory", "report a --yaml", "impact a"],
)
def test_a_closed_output_pipe_is_no_failure(words: str, folder: Path) -> None:
    line = f"{shlex.quote(sys.executable)} -m tui.cli {words} | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, cwd=folder)
    code = done.stdout.splitlines()[-1]
    assert code in ("0", "1" if words == "doctor" else "0") and "Traceback" not in done.stderr


HOSTILE = "k\x1b]0;gone\x07\x9b31m\x7f\nheadgate: all is well"


@pytest.mark.parametrize(
    "words",
    [
        "plan b --observed observed.yml --markdown",
        "review plan.json",
        "lineage b",
        "diff old.sql {sql}",
    ],
)
def test_control_characters_of_a_text_never_reach_the_terminal(
    words: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sql = folder / "pipelines/facts/p/b/sql-scripts/dml.b.sql"
    old = sql.read_text()
    (folder / "old.sql").write_text(old)
    named = f"SELECT id, upper(`{HOSTILE}`) AS kind FROM (SELECT id, kind AS `{HOSTILE}` FROM STREAM a)"
    sql.write_text(f"INSERT INTO b {named} WHERE `{HOSTILE}` <> '';")
    texts = {"ddl": (sql.parent / "ddl.b.sql").read_text(), "dml": old, "yml": ""}
    observed = {"landed": "running", "a": "running", "b": {"state": "running", "deployed": texts}}
    (folder / "observed.yml").write_text(json.dumps({"tables": observed}))
    exit_codes.run_command_line(["plan", "b", "--observed", "observed.yml", "--save", "plan.json"])
    capsys.readouterr()
    monkeypatch.setenv("COLUMNS", "160")
    assert exit_codes.run_command_line(shlex.split(words.format(sql=sql))) in (0, 2, 3)
    said = capsys.readouterr()
    both = (said.out + said.err).split("\n")
    assert all(char == "\t" or not (ord(char) < 32 or 127 <= ord(char) < 160) for line in both for char in line)
    assert not any(line.startswith("headgate: all is well") for line in both)
    assert "\\x1b]0;" in said.out + said.err


def test_narrated_text_keeps_its_line_breaks_and_no_other_control_character(capsys: pytest.CaptureFixture[str]) -> None:
    output = CommandOutput(as_json=False)
    output.say("one\ttab\r\ntwo\x1b[2J")
    output.fail(UsageError("no \x1b[A\nsuch", remedy="do\n\x9bthis"))
    output.print(["a\nb", "ä → 'x'"])
    said = capsys.readouterr()
    assert said.err == "one\ttab\\x0d\ntwo\\x1b[2J\nheadgate: no \\x1b[A\\x0asuch\n  do\\x0a\\x9bthis\n"
    assert said.out == "a\\x0ab\nä → 'x'\n"


def test_json_preserves_the_text_and_is_harmless_to_its_reader(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = "x\u202ey\u2066 \U000e0041"
    CommandOutput(as_json=True).data({"text": text})
    said = capsys.readouterr().out
    assert json.loads(said) == {"text": text} and not has_control_characters(said)


def test_a_long_sentence_is_wrapped_between_words_only_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    output = CommandOutput(as_json=False)
    sentence = "  the generator is running: new orders arrive every second, for two hours or until `headgate down`"
    monkeypatch.setenv("COLUMNS", "80")
    output.say(sentence)
    assert capsys.readouterr().err == f"{sentence}\n"
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    output.say(f"short\n{sentence}")
    short, *folded = capsys.readouterr().err.splitlines()
    assert short == "short" and len(folded) == 2 and all(len(line) <= 80 for line in folded)
    assert " ".join(line.strip() for line in folded) == sentence.strip()
    assert [len(line) - len(line.lstrip()) for line in folded] == [2, 4]


def test_a_progress_line_that_does_not_fit_is_visibly_cut(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    output = CommandOutput(as_json=False)
    output.progress(WaitProgress("pool", 8.0, 15.0, "a server takes 6 to 10 s, or 20"))
    assert capsys.readouterr().err.endswith("  pool: 8 s of about 15 s  a server takes 6 to 10 s, or 20")
    output.progress(WaitProgress("pool", 8.0, 15.0, "a Spark Connect server takes 6 to 10 s"))
    assert capsys.readouterr().err.endswith("  pool: 8 s of about 15 s  a Spark Connect server takes 6 …")


def test_a_problem_keeps_its_summary_whatever_the_name_of_its_file() -> None:
    problem = {"file": "p/b.yml", "line": 2, "column": 6, "severity": "error", "summary": "p/b.yml is new"}
    assert problem_line(problem) == "p/b.yml:2:6: error: p/b.yml is new"
