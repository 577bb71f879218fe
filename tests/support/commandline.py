"""The command line called in this process, as its `--json` says it."""

import json
from typing import Any

import pytest

from tui.commands import edge


def written(words: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> Any:
    """Run a command with `--json` that ends with `code`, and give what it wrote."""
    assert edge.run([*words, "--json"]) == code
    return json.loads(capsys.readouterr().out)
