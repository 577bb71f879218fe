"""Every command in the table has a function, and help that states its purpose."""

import inspect
from importlib import import_module

import pytest

from tui.command_line.command_table import COMMAND_SPECS, CommandSpec


@pytest.mark.parametrize("spec", COMMAND_SPECS, ids=lambda spec: spec.name)
def test_every_command_has_its_function_and_its_help(spec: CommandSpec) -> None:
    module, _, function = spec.runs.partition(":")
    found = getattr(import_module(f"tui.commands.{module}"), function)
    assert len(inspect.signature(found).parameters) == 1
    assert spec.summary.endswith(".")
    assert f"headgate {spec.name}" in spec.example


def test_no_command_is_in_the_table_twice() -> None:
    names = [spec.name for spec in COMMAND_SPECS]
    assert len(names) == len(set(names))
