"""Jobs in Python: a statement whose query is a function that returns a streaming DataFrame, as text of a DML script.

The text names the inputs as SQL, and contains the code in comments, so whatever stores, compares or submits texts
treats a job like a statement. The code is never executed here.
"""

import ast
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from core.model.errors import InvalidProject
from core.sql.registered_functions import READING_PYTHON
from core.sql.statement import ParsedStatement
from core.sql.tokens.lexer import PIECES

FUNCTION = "python_job"
"""The table function by which a text refers to the code in its comments."""
EACH_BATCH = "each_batch"
"""Name of a job's function that turns each batch into the rows to be written; it is optional."""
SESSION = "spark"
"""Name of a parameter that gets the Spark session instead of an input."""

_CODE = "-- |"
_HEAD = re.compile(rf"\s*(?:INSERT INTO (?P<table>\S+)\s+)?SELECT \* FROM {FUNCTION}\(")
_NAMED = re.compile(r"\s*([A-Za-z_]\w*)\s*=>\s*", re.ASCII)
_LINE_BREAK = re.compile(r"\r\n?|\n")


@dataclass(frozen=True, slots=True)
class JobInput:
    """An input of a job."""

    parameter: str
    sql: str
    """The table with its streaming clauses, as after FROM: `STREAM orders`."""


@dataclass(frozen=True, slots=True)
class PythonJob:
    """A job, as its text declares it."""

    function: str
    """Name of the function that returns the streaming DataFrame."""
    inputs: tuple[JobInput, ...]
    """The inputs, in the order in which Spark must read the streams among them."""
    code: str
    requirements: tuple[str, ...] = ()
    """Packages that the code needs, in the form that pip reads."""

    @property
    def takes_spark(self) -> bool:
        """Whether the function has a parameter for the Spark session."""
        return SESSION in _parameters(self.code, self.function)

    @property
    def writes_batches(self) -> bool:
        """Whether the code has a function `each_batch`, whose rows are written instead of those of the DataFrame."""
        return any(each.name == EACH_BATCH for each in _functions(self.code))


class CodeFault(Exception):
    """Raised for code that cannot be a job; its line counts from 1."""

    def __init__(self, summary: str, remedy: str, line: int) -> None:
        super().__init__(summary)
        self.summary = summary
        self.remedy = remedy
        self.line = line


@dataclass(frozen=True, slots=True)
class JobSignature:
    """The signature of a job's function, found without executing the code."""

    parameters: tuple[str, ...]
    """The parameters without `spark`, in order."""
    line: int
    """Line of the code in which the function begins, counted from 1."""
    each_batch_line: int = 0
    """Line of the function `each_batch`; 0 if there is none."""


def is_python_job(text: str) -> bool:
    """True if the text of a statement, or of its SELECT, is that of a job in Python."""
    return FUNCTION in text and _HEAD.match(text.removeprefix("\ufeff")) is not None


def job_text(table: str, job: PythonJob) -> str:
    """Return the text of a DML script for a job that writes a table; `python_job_of` is the inverse."""
    inputs = ", ".join(f"{each.parameter} => {each.sql}" for each in job.inputs)
    lines = [
        f"INSERT INTO {table}",
        f"SELECT * FROM {FUNCTION}({inputs})",
        f"-- function: {job.function}",
        f"-- requirements: {json.dumps(job.requirements)}",
        "-- code:",
        *(f"{_CODE}{line}" for line in _LINE_BREAK.split(job.code.removeprefix("\ufeff"))),
    ]
    return "\n".join(lines) + "\n"


def job_as_written(text: str) -> str:
    """Return a job for people: its inputs and requirements as comments, and its code; other text is unchanged."""
    try:
        job = python_job_of(text)
    except InvalidProject:
        return text
    if job is None:
        return text
    head = [f"# inputs: {', '.join(f'{each.parameter} => {each.sql}' for each in job.inputs)}"]
    head += [f"# requirements: {', '.join(job.requirements)}"] if job.requirements else []
    return "\n".join((*head, job.code))


FIRST_CODE_LINE = 6
"""The line of a job's text in which its code begins, counted from 1."""


def python_job_of(text: str) -> PythonJob | None:
    """Read a job from the text of a statement or of its compiled SELECT; None if it is SQL.

    Raises InvalidProject if the text begins like a job and is damaged.
    """
    if not is_python_job(text):
        return None
    plain = text.removeprefix("\ufeff").replace("\r\n", "\n")
    head, found, code = plain.partition("\n-- code:\n")
    lines = code.removesuffix("\n").split("\n")
    function = re.search(r"^-- function: (\w+)$", head, re.MULTILINE)
    requirements = re.search(r"^-- requirements: (\[.*\])$", head, re.MULTILINE)
    if not found or function is None or requirements is None or not all(line.startswith(_CODE) for line in lines):
        raise InvalidProject("the text of this Python job is damaged", remedy="plan again from the project's files")
    try:
        packages = tuple(str(each) for each in json.loads(requirements[1]))
    except ValueError as error:
        raise InvalidProject("the requirements of this Python job are damaged", remedy="plan again") from error
    inputs = tuple(JobInput(name, plain[start:end].strip()) for name, start, end in input_places(plain))
    return PythonJob(function[1], inputs, "\n".join(line.removeprefix(_CODE) for line in lines), packages)


def code_hash(parsed: ParsedStatement) -> str:
    """Return the hash that identifies what the code of a parsed job does; the inputs do not count."""
    return hashlib.sha256(parsed.state.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def input_places(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield the parameter and the place of the SQL of each input, as offsets in the text of a job."""
    head = _HEAD.match(text)
    if head is None:
        return
    plain = PIECES.sub(lambda piece: "x" * len(piece[0]), text)
    at = begin = head.end()
    depth, name = 1, _NAMED.match(plain, at)
    while at < len(plain) and depth:
        letter = plain[at]
        depth += (letter == "(") - (letter == ")")
        if not depth or (depth == 1 and letter == ","):
            if name is not None and name.end() <= at:
                yield name[1], name.end(), at
            begin = at + 1
            name = _NAMED.match(plain, begin)
        at += 1


def read_signature(code: str, function: str) -> JobSignature:
    """Return the signature of the function that a job must define; raises CodeFault if the code cannot be a job.

    The code is parsed by the Python that runs Headgate, and not executed.
    """
    module = _module(code)
    found = [each for each in module.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
    mine = next((each for each in reversed(found) if each.name == function), None)
    if mine is None:
        remedy = f"write def {function}(…): that returns a streaming DataFrame; its parameters name the inputs"
        raise CodeFault(f"the job defines no function {function}", remedy, found[-1].lineno if found else 1)
    _check_form(mine, f"write def {function}(…): and return one streaming DataFrame")
    batch = next((each for each in reversed(found) if each.name == EACH_BATCH), None)
    if batch is not None and function != EACH_BATCH:
        remedy = f"write def {EACH_BATCH}(batch, batch_id): and return the rows to be written as a DataFrame"
        _check_form(batch, remedy)
        if len(_names(batch)) != 2:
            raise CodeFault(f"{EACH_BATCH} must have two parameters", remedy, batch.lineno)
    parameters = tuple(name for name in _names(mine) if name != SESSION)
    return JobSignature(parameters, mine.lineno, batch.lineno if batch is not None else 0)


def code_meaning(code: str) -> str:
    """Return code without comments, docstrings and formatting; equal results do the same."""
    module = _module(code)
    for node in ast.walk(module):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and len(node.body) > 1:
                node.body = node.body[1:] if isinstance(first.value.value, str) else node.body
    return ast.unparse(module)


def job_meaning(job: PythonJob) -> str:
    """Return what a job does, without the form of its code; the inputs are compared separately."""
    requirements = [f"requirements: {', '.join(sorted(job.requirements))}"] if job.requirements else []
    return "\n".join((*requirements, code_meaning(job.code)))


def only_inputs(text: str, parameter: str = "") -> str:
    """Return SQL of the same length as a job's SELECT, with only its inputs, or one of them, after FROM."""
    head = _HEAD.match(text)
    if head is None:
        return text
    done = text[: head.end()].replace(f"{FUNCTION}(", " " * (len(FUNCTION) + 1))
    for name, start, end in input_places(text):
        if parameter in ("", name):
            comma = "," if parameter == "" and len(done) > head.end() else ""
            done += comma + _blank(text[len(done) + len(comma) : start]) + text[start:end]
    return done + _blank(text[len(done) :])


def _blank(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)


def _module(code: str) -> ast.Module:
    try:
        return ast.parse(code)
    except SyntaxError as error:
        remedy = "correct the Python code"
        summary = f"the code is not valid Python {READING_PYTHON}: {error.msg}"
        raise CodeFault(summary, remedy, error.lineno or 1) from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise CodeFault("the code cannot be parsed as Python", "simplify the Python code", 1) from error


def _check_form(function: ast.FunctionDef | ast.AsyncFunctionDef, remedy: str) -> None:
    name, given = function.name, function.args
    if isinstance(function, ast.AsyncFunctionDef):
        raise CodeFault(f"{name} is async, and must be an ordinary function", remedy, function.lineno)
    if any(isinstance(each, ast.Yield | ast.YieldFrom) for each in _own_nodes(function.body)):
        raise CodeFault(f"{name} is a generator, and must return a DataFrame", remedy, function.lineno)
    if given.vararg or given.kwarg or given.kwonlyargs or given.posonlyargs or given.defaults:
        summary = f"{name} must have plain parameters, without *, / and default values"
        raise CodeFault(summary, remedy, function.lineno)


def _own_nodes(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield the nodes of a function's body without those of functions and classes in it."""
    waiting = list(body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            waiting += ast.iter_child_nodes(node)


def _names(function: ast.FunctionDef | ast.AsyncFunctionDef) -> tuple[str, ...]:
    return tuple(each.arg for each in function.args.args)


def _functions(code: str) -> Sequence[ast.FunctionDef]:
    try:
        return [each for each in _module(code).body if isinstance(each, ast.FunctionDef)]
    except CodeFault:
        return ()


def _parameters(code: str, function: str) -> tuple[str, ...]:
    return next((_names(each) for each in reversed(_functions(code)) if each.name == function), ())
