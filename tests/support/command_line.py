"""The command line called in this process, as its `--json` says it."""

import json
from typing import Any

import pytest

from tui.command_line import exit_codes


def written(words: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> Any:
    """Run a command with `--json` that ends with `code`, and return what it wrote."""
    assert exit_codes.run_command_line([*words, "--json"]) == code
    return json.loads(capsys.readouterr().out)
