"""Print the texts that users read, with file and line, for reviewers of wording.

Run: python tests/support/user_visible_strings.py [--words] [PATH ...]. It takes about two seconds and prints
`file:line: text`; an interpolated value appears as `{expression}`, a line break as `\\n`. PATH is a file or a folder
of core, state, pipelines or tui (all four by default). The texts are string constants of at least two words, without
docstrings, dictionary keys, subscripts, SQL, regular expressions and format codes, and the lines of tui/help/*.md;
`--words` adds strings of one word, such as labels and state words. To review a change of wording, compare the output
of two commits without the line numbers: `sed 's/:[0-9]*:/:/'`.
"""

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("core", "state", "pipelines", "tui")
# Calls whose arguments are patterns, SQL, field names or annotations.
_NOT_TEXT = {
    "compile",
    "execute",
    "executescript",
    "query",
    "TypeVar",
    "cast",
    "getattr",
    "setattr",
    "fullmatch",
    "match",
    "sub",
}
_SQL = re.compile(
    r"\s*(SELECT|INSERT|UPDATE|DELETE FROM|CREATE|ALTER|DROP|PRAGMA|WITH \w+ AS|BEGIN|FROM|WHERE|ORDER BY) ?\b"
)
_TWO_WORDS = re.compile(r"[A-Za-z'\"`)}][,.:;]? +[A-Za-z'\"`({]")
_WORD = re.compile(r"[A-Za-z]{3,}")


def strings_of(path: Path, *, words: bool = False) -> Iterator[tuple[int, str]]:
    """Yield the line number and text of each user-visible string in a Python file, in order of lines."""
    tree = ast.parse(path.read_text())
    found = sorted((node.lineno, node.col_offset, text) for node, text in _texts(tree))
    for line, _, text in found:
        if _SQL.match(text) or not (_TWO_WORDS.search(text) or (words and _WORD.search(text))):
            continue
        yield line, text.replace("\n", "\\n")


def _texts(node: ast.AST) -> Iterator[tuple[ast.expr, str]]:
    if isinstance(node, ast.JoinedStr):
        yield node, "".join(_part(value) for value in node.values)
        for value in node.values:
            if isinstance(value, ast.FormattedValue):
                yield from _texts(value.value)
        return
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node, node.value
        return
    for child in _children(node):
        yield from _texts(child)


def _part(value: ast.expr) -> str:
    if isinstance(value, ast.FormattedValue):
        return "{" + ast.unparse(value.value) + "}"
    return str(value.value) if isinstance(value, ast.Constant) else ""


def _children(node: ast.AST) -> Iterable[ast.AST]:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return ()  # a docstring, of a module or under a field
    if isinstance(node, ast.Dict):
        return [*filter(None, (key for key in node.keys if not isinstance(key, ast.Constant))), *node.values]
    if isinstance(node, ast.Subscript):
        return (node.value,)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
        return (node.func,) if name in _NOT_TEXT else ast.iter_child_nodes(node)
    return ast.iter_child_nodes(node)


def main(arguments: list[str]) -> int:
    """Print the strings of the files and folders in `arguments`; return the exit code."""
    words = "--words" in arguments
    paths = [Path(argument) for argument in arguments if argument != "--words"] or [ROOT / name for name in PACKAGES]
    total = 0
    for path in paths:
        for file in sorted([*path.rglob("*.py"), *path.rglob("*.md")]) if path.is_dir() else [path]:
            shown = file.resolve().relative_to(ROOT)
            found = (
                strings_of(file, words=words) if file.suffix == ".py" else enumerate(file.read_text().splitlines(), 1)
            )
            for line, text in found:
                if text.strip():
                    print(f"{shown}:{line}: {text}")
                    total += 1
    print(f"{total} strings", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
