"""Style rules as tests: limits on functions and files, and constructs that must not occur."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from string import Formatter

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("core", "state", "pipelines", "tui")
FILES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
TOP_LEVEL = {"pyproject.toml", "tui", "core", "pipelines", "state", "tests", "README.md"}
FUNCTION_LINES = 60
FILE_LINES = 700
POSITIONAL = 5
FORBIDDEN_MODULES = {"utils", "helpers", "common", "manager", "base"}

LONGER_FUNCTIONS: dict[str, int] = {}
"""Exceptions to the limit by `path:function`, each with a comment that gives the reason."""


UNPACKED = 4
"""Maximum number of values that may be distinguished only by position."""

BY_POSITION = (
    "core/sql/parsing/", "core/sql/tokens/", "core/sql/statement_codec.py", "core/text/diff.py",
    "tui/command_line/command_table.py", "tui/presentation/", "tui/screens/backend.py",
)  # fmt: skip
"""Files exempt from the limit: tables of constructors, and the tokens and codec of SQL."""


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def test_files_keep_the_tripwires() -> None:
    assert [f"{relative(path)}: {fault}" for path in FILES for fault in beyond_the_tripwires(path)] == []


def beyond_the_tripwires(path: Path) -> Iterator[str]:
    lines = len(path.read_text().splitlines())
    if lines > FILE_LINES:
        yield f"{lines} lines: is a noun missing?"
    if path.stem in FORBIDDEN_MODULES:
        yield "name the noun"
    tree = parsed(path)
    if not ast.get_docstring(tree):
        yield "a module says in one sentence what it holds"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            bound = LONGER_FUNCTIONS.get(f"{relative(path)}:{node.name}", FUNCTION_LINES)
            if length > bound:
                yield f"{node.name} has {length} lines, at most {bound}"
            named = [a.arg for a in node.args.posonlyargs + node.args.args if a.arg not in ("self", "cls")]
            if len(named) > POSITIONAL:
                yield f"{node.name} takes {len(named)} positional parameters"


def test_values_are_distinguished_by_name() -> None:
    paths = [path for path in FILES if not relative(path).startswith(BY_POSITION)]
    assert [f"{relative(path)}:{fault}" for path in paths for fault in told_by_position(path)] == []


def told_by_position(path: Path) -> Iterator[str]:
    """Yield long unpackings and calls with many positional arguments, except the deadline and function of a `call`."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Call) and not any(isinstance(argument, ast.Starred) for argument in node.args):
            forwards = isinstance(node.func, ast.Attribute) and node.func.attr == "call"
            if len(node.args) - (2 if forwards else 0) > POSITIONAL:
                yield f"{node.lineno}: a call with {len(node.args)} positional arguments"
        elif isinstance(node, ast.Tuple) and isinstance(node.ctx, ast.Store) and len(node.elts) > UNPACKED:
            yield f"{node.lineno}: {len(node.elts)} values are unpacked by position"


def test_files_leave_nothing_undone_and_silence_nothing_without_a_reason() -> None:
    assert [f"{relative(path)}: {fault}" for path in FILES for fault in undone_or_silenced(path)] == []


def undone_or_silenced(path: Path) -> Iterator[str]:
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if re.search(r"\b(TODO|FIXME|XXX)\b", line):
            yield f"line {number}: undone"
        silenced = re.search(r"#\s*(type: ignore|noqa)(\[[^\]]*\]|: [A-Z0-9, ]+)?(?P<reason>.*)", line)
        if silenced and not silenced["reason"].strip(" #"):
            yield f"line {number}: say why the check is silenced"


def test_files_ask_no_text_whether_it_is_of_digits() -> None:
    found = [
        f"{relative(path)}:{node.lineno}"
        for path in FILES
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Attribute) and node.attr in ("isdigit", "isnumeric", "isdecimal")
    ]
    assert not found, "`²` is of digits, and int refuses it; use core.model.names.whole_number"


def test_a_refusal_is_a_fact_or_none_and_no_text() -> None:
    found = [
        f"{relative(path)}:{node.lineno} {node.name}"
        for path in FILES
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.FunctionDef) and re.match(r"_?(why|not)_(?!words)", node.name) and node.returns
        if ast.unparse(node.returns) in ("str", "str | None", "tuple[str, ...]")
    ]
    assert not found, "return a fact (core.text.sentence) or None: an empty text is no success"


FOR_PEOPLE = frozenset(
    {"summary", "remedy", "sentence", "detail", "note", "why", "error", "lost", "words", "doubt", "reason"}
)
"""Attributes that hold text for people."""

READS = frozenset(
    {"startswith", "endswith", "removeprefix", "removesuffix", "partition", "rpartition", "find", "index"}
)


def is_read(node: ast.AST) -> bool:
    """Return whether a text for people is compared with words, searched, or matched."""

    def is_text(found: ast.AST) -> bool:
        return isinstance(found, ast.Attribute) and found.attr in FOR_PEOPLE

    match node:
        case ast.Compare(left, [ast.Eq() | ast.NotEq()], [right]):
            words = (ast.Constant, ast.JoinedStr)
            return (is_text(left) and isinstance(right, words)) or (is_text(right) and isinstance(left, words))
        case ast.Compare(_, [ast.In() | ast.NotIn()], [right]):
            return is_text(right)
        case ast.Call(ast.Attribute(ast.Name("re"), _), arguments):
            return any(map(is_text, arguments))
        case ast.Call(ast.Attribute(value, method), _):
            return method in READS and is_text(value)
    return False


def test_no_decision_rests_on_text_for_people() -> None:
    found: dict[str, list[int]] = {}
    for path in FILES:
        for node in ast.walk(parsed(path)):
            if is_read(node):
                found.setdefault(relative(path), []).append(node.lineno)  # type: ignore[attr-defined]  # A place.
    assert not found, "give the value a kind, and decide by that"


ABOUT_A_TABLE = frozenset({"PlanRefusalKind", "PlanWarningKind"})
"""Kinds whose sentence may name the table that the remark is about, without being given it."""


def kinds_of_facts() -> dict[str, dict[str, set[str]]]:
    """Return the members of every class of fact kinds, and the values that each member's sentence names."""
    classes = [node for path in FILES for node in ast.walk(parsed(path)) if isinstance(node, ast.ClassDef)]
    return {
        node.name: {
            part.targets[0].id: named_values(part.value)
            for part in node.body
            if isinstance(part, ast.Assign) and isinstance(part.targets[0], ast.Name)
        }
        for node in classes
        if any(isinstance(base, ast.Name) and base.id == "FactKind" for base in node.bases)
    }


def named_values(sentence: ast.expr) -> set[str]:
    texts = sentence.elts if isinstance(sentence, ast.Tuple) else (sentence,)
    parts = (Formatter().parse(ast.literal_eval(each)) for each in texts if isinstance(each, ast.Constant))
    return {name for found in parts for _, name, _, _ in found if name}


def test_every_fact_has_the_values_that_its_sentence_names() -> None:
    kinds, wrong, made = kinds_of_facts(), [], set()
    for path in FILES:
        for node in ast.walk(parsed(path)):
            match node:
                case ast.Call(ast.Attribute(ast.Attribute(ast.Name(kind), member), "of"), _, keywords) if kind in kinds:
                    about = {"table"} if kind in ABOUT_A_TABLE else set()
                    if {each.arg for each in keywords} != kinds[kind].get(member, set()) - about:
                        wrong.append(f"{relative(path)}:{node.lineno} {kind}.{member}")
                case ast.Attribute(ast.Name(kind), member) if kind in kinds:
                    made.add((kind, member))
    assert not wrong
    assert {(kind, member) for kind, members in kinds.items() for member in members} <= made, "a kind that nobody uses"


def test_top_level_holds_nothing_else() -> None:
    import subprocess

    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    top = {line.split("/")[0] for line in listed.splitlines()}
    assert {name for name in top if not name.startswith(".")} <= TOP_LEVEL


RECORDED = re.compile(
    r"^`python -m tests\.bench\.(\w+)[^`]*`, \d{4}-\d\d-\d\d( \d\d:\d\d UTC)?, revision ([0-9a-f]{7}), (\d+ cores, .+)$"
)


@pytest.mark.parametrize("path", sorted((ROOT / "tests/bench").glob("*.md")), ids=relative)
def test_a_benchmark_keeps_its_newest_run_alone_with_date_revision_and_machine(path: Path) -> None:
    lines = path.read_text().splitlines()
    runs = [found for line in lines if (found := RECORDED.match(line))]
    assert len(runs) == 1, "one run: its command, date, revision and machine on a line of their own"
    assert runs[0][1] == path.stem and path.with_suffix(".py").exists(), "the record is named like its benchmark"
    assert sum(line.startswith("#") for line in lines) == 1, "another heading is another run"
    assert sum("python -m" in line or "revision" in line for line in lines) == 1, "another revision is another run"


def test_tests_are_no_packages() -> None:
    assert not list((ROOT / "tests").rglob("__init__.py"))


def test_the_map_names_every_package_by_its_docstring() -> None:
    listed = dict(
        re.findall(r"^\| `([\w.]+)` \| (.+) \|$", (ROOT / ".github/ARCHITECTURE.md").read_text(), re.MULTILINE)
    )
    found = {}
    for path in FILES:
        name = relative(path.parent).replace("/", ".")
        if path.name == "__init__.py" and name not in ("core", "pipelines", "tui"):
            whole = ast.get_docstring(parsed(path)) or ""
            found[name] = " ".join(whole.split("\n\n")[0].split())
    assert listed == found


def test_no_two_classes_have_one_name() -> None:
    seen: dict[str, list[str]] = {}
    for path in FILES:
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                seen.setdefault(node.name, []).append(relative(path))
    assert {name: paths for name, paths in seen.items() if len(paths) > 1} == {}
