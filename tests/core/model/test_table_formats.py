"""No code outside the table of formats compares the name of a format."""

import ast
from pathlib import Path

from core.model.table_formats import TABLE_FORMATS, TableFormat, table_format

ROOT = Path(__file__).parents[3]
OTHERS = [
    path
    for package in ("core", "state", "pipelines", "tui")
    for path in sorted((ROOT / package).rglob("*.py"))
    if path.name != "table_formats.py"
]


def test_format_that_is_not_in_the_table_is_neither_read_nor_written_nor_counted() -> None:
    assert table_format("avro") == TableFormat("avro")
    assert not TableFormat("avro").external_input and not TableFormat("avro").written


def _compared(tree: ast.AST) -> set[object]:
    """Return the constants used in comparisons, in `case` patterns and in frozensets."""
    found: set[object] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare | ast.MatchValue) or (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "frozenset"
        ):
            found |= {each.value for each in ast.walk(node) if isinstance(each, ast.Constant)}
    return found


def test_no_other_module_compares_the_name_of_a_format() -> None:
    named = {path.relative_to(ROOT).as_posix(): _compared(ast.parse(path.read_text())) for path in OTHERS}
    assert not {path: found for path, words in named.items() if (found := words & TABLE_FORMATS.keys())}
