"""Reading of `functions/<name>.py`, whose code is parsed and compared, but never run.

Two files with equal syntax trees are the same function: comments, docstrings and formatting do not count.
"""

import ast
import hashlib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

from core.model.problems import Problem, Where
from core.sql.function_calls import SqlFunction
from core.sql.python_declarations import PythonDeclaration, read_declaration
from core.sql.registered_functions import READING_PYTHON, PythonKind
from core.sql.tokens.lexer import SqlDiagnostic, open_sql
from core.text.wording import counted, did_you_mean

_TYPES = {
    "str": ("string", "char", "varchar"),
    "int": ("tinyint", "smallint", "int", "bigint"),
    "float": ("float", "double"),
    "bool": ("boolean",),
    "bytes": ("binary",),
    "bytearray": ("binary",),
    "Decimal": ("decimal",),
    "date": ("date",),
    "datetime": ("timestamp", "timestamp_ntz"),
    "list": ("array",),
    "dict": ("map", "struct"),
    "tuple": ("struct",),
}
"""SQL types whose values are of a Python type, as Spark passes them to a function and expects them (4.2.0)."""
_RETURNED = {**_TYPES, "int": (*_TYPES["int"], "float", "double", "decimal")}
"""Like `_TYPES` for results, of which whole numbers are converted."""


@dataclass(frozen=True, slots=True)
class PythonFunction:
    """A Python function without mistakes that can be found before it runs."""

    declaration: PythonDeclaration
    sql: SqlFunction
    """The function as its calls are replaced."""


def read_python_function(text: str, path: str) -> tuple[PythonFunction | None, tuple[Problem, ...]]:
    """Parse a file that declares and defines one function; return None and the Problems if it is invalid."""
    try:
        found = read_declaration(text, path)
    except SqlDiagnostic as diagnostic:
        return None, (open_sql(text, path).problem(diagnostic),)
    name = path.rpartition("/")[2].removesuffix(".py")
    if found.name != name:
        remedy = f"name the file {found.name}.py, or the function {name}"
        return None, (Problem(f"{name}.py declares {found.name}", remedy, Where(path, found.line), found.name),)
    try:
        tree = _compiled(text, path)
        problems = tuple(_faults(tree, found))
        digest = "" if problems else _digest(tree, found)
    except SyntaxError as error:
        remedy = "correct the line" if error.lineno else "correct the file"
        summary = f"{name}.py is not valid Python {READING_PYTHON}: {error.msg}"
        return None, (Problem(summary, remedy, Where(path, error.lineno or 0, error.offset or 0), name),)
    except (ValueError, RecursionError, MemoryError):
        summary = f"{name}.py cannot be parsed as Python"
        return None, (Problem(summary, "remove NUL characters and very deep nesting", Where(path), name),)
    return (None if problems else PythonFunction(found, found.called_as(digest))), problems


def _compiled(text: str, path: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = ast.parse(text.removeprefix("\ufeff"), path)
        # The compiler finds more mistakes than the parser, such as a return outside of a function. It runs nothing.
        compile(tree, path, "exec", dont_inherit=True)
    return tree


def _faults(tree: ast.Module, declared: PythonDeclaration) -> Iterator[Problem]:
    name, path = declared.name, declared.source.path
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            summary = f"{name} imports a file beside it, and only its own file is sent to the pool"
            yield Problem(summary, "write what it needs into its file", _where(path, node), name)
    defined = {node.name: node for node in tree.body if isinstance(node, _NAMED)}
    body = defined.get(name)
    of_table = declared.kind is PythonKind.TABLE
    if declared.kind is PythonKind.SERIES and not declared.parameters:
        yield Problem(f"{name} has no parameter, and pandas functions need one", "remove PARAMETER STYLE PANDAS",
                      Where(path, declared.line), name)  # fmt: skip
    form = f"class {name}, with def eval(" if of_table else f"def {name}("
    form = f"define it: {form}{', '.join(('self', *_names(declared)) if of_table else _names(declared))})"
    for decorator in body.decorator_list if body is not None else ():
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        if _annotated(called) in ("udf", "pandas_udf", "arrow_udf", "udtf", "arrow_udtf"):
            summary = f"{name} has the decorator @{_annotated(called)}, and Headgate itself registers it"
            yield Problem(summary, "remove the decorator: the declaration has its types", _where(path, decorator), name)
    if body is None:
        remedy = did_you_mean(name, defined) or form
        where = _where(path, *defined.values()) if len(defined) == 1 else Where(path, declared.line)
        yield Problem(f"{name}.py does not define {name}", remedy, where, name)
        return
    if of_table:
        body = _eval(body) if isinstance(body, ast.ClassDef) else None
        if body is None:
            summary = f"{name} returns a table, and is not a class with a method eval"
            yield Problem(summary, form, _where(path, defined[name]), name)
            return
    if isinstance(body, ast.ClassDef):
        yield Problem(f"{name} is a class, and a function is expected", form, _where(path, body), name)
        return
    if isinstance(body, ast.AsyncFunctionDef):
        yield Problem(f"{name} is an async def, which Spark does not await", "write def", _where(path, body), name)
        return
    if not of_table and any(map(_is_yield, _own_nodes(body))):
        summary = f"{name} contains yield, and returns a generator instead of a value"
        yield Problem(summary, "return one value", _where(path, body), name)
    yield from _arity(body, declared)
    yield from _annotations(body, declared)


def _eval(body: ast.ClassDef) -> "ast.FunctionDef | ast.AsyncFunctionDef | None":
    methods = (each for each in body.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
    return next((each for each in methods if each.name == "eval"), None)


_NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_NESTED = (*_NAMED, ast.Lambda)


def _own_nodes(body: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function, without those of functions in it."""
    for node in ast.iter_child_nodes(body):
        yield node
        if not isinstance(node, _NESTED):
            yield from _own_nodes(node)


def _is_yield(node: ast.AST) -> bool:
    return isinstance(node, ast.Yield | ast.YieldFrom)


def _arity(body: ast.FunctionDef, declared: PythonDeclaration) -> Iterator[Problem]:
    takes = body.args
    positional = len(takes.posonlyargs) + len(takes.args)
    least, most = positional - len(takes.defaults), None if takes.vararg else positional
    named = [each.arg for each, default in zip(takes.kwonlyargs, takes.kw_defaults, strict=True) if default is None]
    # The first parameter of a method is the object.
    given = len(declared.parameters) + (declared.kind is PythonKind.TABLE)
    where = _where(declared.source.path, body)
    if named:
        summary = f"{named[0]} of {declared.name} can only be given by name, and Spark gives values by position"
        yield Problem(summary, f"remove the * before {named[0]}", where, declared.name)
    elif given < least or (most is not None and given > most):
        takes_count = counted(positional, "parameter") if least == most else f"at least {counted(least, 'parameter')}"
        summary = f"{declared.name} is declared with {counted(len(declared.parameters), 'parameter')}, and its"
        summary = f"{summary} {'eval' if declared.kind is PythonKind.TABLE else 'def'} has {takes_count}"
        names = ("self", *_names(declared)) if declared.kind is PythonKind.TABLE else _names(declared)
        remedy = f"write def {body.name}({', '.join(names)}), or correct the declaration"
        yield Problem(summary, remedy, where, declared.name)


def _annotations(body: ast.FunctionDef, declared: PythonDeclaration) -> Iterator[Problem]:
    """Yield a Problem for each annotation that names another type than the declaration."""
    if declared.kind is not PythonKind.VALUES:
        return
    path, name = declared.source.path, declared.name
    arguments = (*body.args.posonlyargs, *body.args.args)
    for parameter, argument in zip(declared.parameters, arguments, strict=False):
        kinds = _TYPES.get(_annotated(argument.annotation))
        if kinds is not None and _plain(parameter.type) not in kinds:
            summary = f"{parameter.name} of {name} is declared as {parameter.type}, and annotated as"
            summary = f"{summary} {_annotated(argument.annotation)}"
            yield Problem(summary, "correct one of them, or remove the annotation", _where(path, argument), name)
    kinds = _RETURNED.get(_annotated(body.returns))
    if body.returns is not None and kinds is not None and _plain(declared.returns) not in kinds:
        summary = f"{name} is declared to return {declared.returns}, and annotated with {_annotated(body.returns)}"
        yield Problem(summary, "correct one of them, or remove the annotation", _where(path, body.returns), name)


def _annotated(annotation: ast.expr | None) -> str:
    """Return the name of an annotated type without its arguments and without None; empty if it has no one name."""
    match annotation:
        case ast.Name(id=name):
            return name
        case ast.Attribute(attr=name):
            return name
        case ast.Subscript(value=ast.Name(id="Optional") | ast.Attribute(attr="Optional"), slice=inner):
            return _annotated(inner)
        case ast.Subscript(value=outer):
            return _annotated(outer)
        case ast.BinOp(op=ast.BitOr(), left=left, right=ast.Constant(value=None)):
            return _annotated(left)
        case ast.BinOp(op=ast.BitOr(), left=ast.Constant(value=None), right=right):
            return _annotated(right)
    return ""


def _plain(kind: str) -> str:
    return kind.partition("<")[0].partition("(")[0].split(" ")[0]


def _names(declared: PythonDeclaration) -> Iterator[str]:
    return (each.name for each in declared.parameters)


def _where(path: str, node: "ast.stmt | ast.expr | ast.arg") -> Where:
    return Where(path, node.lineno, node.col_offset + 1)


def _digest(tree: ast.Module, declared: PythonDeclaration) -> str:
    """Return a hash that is equal for functions with the same code and the same types, in every version of Python."""
    types = ", ".join(each.type for each in declared.parameters)
    documented = "__doc__" in declared.source.text
    text = f"{types} {declared.returns} {declared.kind} {declared.deterministic} {_normal(tree, documented)}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _normal(node: object, documented: bool) -> str:
    # `ast.dump` is not used, because its output differs between versions of Python.
    if isinstance(node, ast.AST):
        parts = [type(node).__name__]
        for field in node._fields:
            value = getattr(node, field, None)
            if field == "body" and isinstance(value, list) and not documented and _begins_with_text(node, value):
                value = value[1:]
            if field not in _IGNORED and value is not None and value != []:
                parts.append(f"{field}={_normal(value, documented)}")
        return f"({' '.join(parts)})"
    if isinstance(node, list):
        return f"[{' '.join(_normal(each, documented) for each in node)}]"
    return f"{type(node).__name__}:{node!r}"


_IGNORED = ("ctx", "type_comment", "type_ignores", "kind")


def _begins_with_text(node: ast.AST, body: list[ast.stmt]) -> bool:
    if not isinstance(node, (*_NAMED, ast.Module)) or not body:
        return False
    return isinstance(body[0], ast.Expr) and isinstance(getattr(body[0].value, "value", None), str)
