"""Calls the command line within this process, and decodes its `--json` output."""

import json
from typing import Any

import pytest

from tui.command_line import exit_codes


def written(words: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> Any:
    """Run a command with `--json`, assert that it exits with `code`, and return the decoded output."""
    assert exit_codes.run_command_line([*words, "--json"]) == code
    return json.loads(capsys.readouterr().out)
