"""Calls of a project's Python functions, as the pool's Python processes run them, in which Headgate is not installed.

The module is pickled by value and uses only the standard library. The code of a function is passed as text, and is
compiled and executed here and nowhere else.
"""

import datetime
import decimal
import dis
import os
import re
import signal
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

LOADING_S = 20
"""Longest time, in seconds, for which the code of a module may run before a statement starts."""

FAILED = "HEADGATE_FUNCTION_FAILED"
"""Error class of a function that raised an error."""
NOT_LOADED = "HEADGATE_FUNCTION_NOT_LOADED"
"""Error class of a function whose module raised an error before the function was called."""
SLOW = "HEADGATE_FUNCTION_SLOW"
"""Error class of a function whose module did not end within `LOADING_S`."""
WRONG_RESULT = "HEADGATE_FUNCTION_RESULT"
"""Error class of a function that returned a value of another type than it declares."""


class FunctionFailed(Exception):
    """Raised instead of each error of a function; its message begins with an error class of Headgate."""


@dataclass(frozen=True)
class Code:
    """The code of a function."""

    name: str
    """The name that the code defines."""
    key: str
    """Name of the module that the code becomes; equal for equal code only."""
    text: str
    returns: str
    """The declared type of the result."""

    @property
    def file(self) -> str:
        """The name of the file, which errors mention."""
        return f"{self.name}.py"


def by_row(code: Code) -> Callable[..., object]:
    """Return a function that calls the code with the values of one row, and refuses a result of another type."""
    converted = _conversion(code, "", code.returns)

    def call(*values: object) -> object:
        result = _called(code, loaded(code), *values)
        return None if result is None else converted(result)

    return call


def by_series(code: Code) -> Callable[..., object]:
    """Return a function that calls the code with pandas Series. Spark itself converts the values of the result."""

    def call(*series: Any) -> object:
        result = _called(code, loaded(code), *series)
        if not hasattr(result, "iloc") or len(result) != len(series[0]):
            returned = (
                f"{len(result)} values" if hasattr(result, "iloc") else f"a value of type {type(result).__name__}"
            )
            summary = f"{code.name} returned {returned}, and it needs a Series of {len(series[0])}"
            raise FunctionFailed(f"[{WRONG_RESULT}] {code.file}: {summary}")
        return result

    return call


def by_table(code: Code, columns: Sequence[tuple[str, str]]) -> type:
    """Return a class whose `eval` and `terminate` yield the rows of those of the code's class."""
    conversions = [_conversion(code, name, kind) for name, kind in columns]
    names = [name for name, _ in columns]

    def converted(row: Any) -> tuple[object, ...]:
        values = [row.get(name) for name in names] if isinstance(row, dict) else row
        if not isinstance(values, (tuple, list)) or len(values) != len(names):
            returned = f"{code.name} returned a row of type {type(row).__name__}"
            summary = f"{returned}, and it needs a tuple of {', '.join(names)}"
            raise FunctionFailed(f"[{WRONG_RESULT}] {code.file}: {summary}")
        pairs = zip(values, conversions, strict=True)
        return tuple(None if value is None else convert(value) for value, convert in pairs)

    def rows(method: Callable[..., Any], values: Sequence[object]) -> Iterator[tuple[object, ...]]:
        made = _called(code, method, *values)
        found = iter(()) if made is None else _called(code, iter, made)
        done = object()
        while (row := _called(code, next, found, done)) is not done:
            yield converted(row)

    class CheckedRows:
        def __init__(self) -> None:
            self._made: Any = _called(code, loaded(code))

        def eval(self, *values: object) -> Iterator[tuple[object, ...]]:
            yield from rows(self._made.eval, values)

        def terminate(self) -> Iterator[tuple[object, ...]]:
            if hasattr(self._made, "terminate"):
                yield from rows(self._made.terminate, ())

    return CheckedRows


def _called(code: Code, function: Callable[..., Any], *values: object) -> Any:
    try:
        return function(*values)
    except FunctionFailed:
        raise
    except (Exception, SystemExit) as error:
        raise FunctionFailed(_message(FAILED, code, error)) from None


def loading(codes: Sequence[Code]) -> Callable[[object], str]:
    """Return a function of one row that executes the modules of some code, and returns the first error or nothing."""

    def look(_: object) -> str:
        for code in codes:
            try:
                with _limited(code):
                    loaded(code)
            except FunctionFailed as error:
                return str(error)
        return ""

    return look


def loaded(code: Code) -> Callable[..., Any]:
    """Return the function that the code defines; its module is executed once in each process."""
    module = sys.modules.get(code.key)
    if module is None:
        module = types.ModuleType(code.key)
        # Before it is executed, because dataclasses look up their module.
        sys.modules[code.key] = module
        try:
            exec(compile(code.text, code.file, "exec", dont_inherit=True), module.__dict__)
        except BaseException as error:
            del sys.modules[code.key]
            if isinstance(error, (Exception, SystemExit)) and not isinstance(error, FunctionFailed):
                raise FunctionFailed(_message(NOT_LOADED, code, error)) from None
            raise
    found: Callable[..., Any] = getattr(module, code.name)
    return found


@contextmanager
def _limited(code: Code) -> Iterator[None]:
    def end(*_: object) -> None:
        raise FunctionFailed(f"[{SLOW}] {code.file} was not loaded within {LOADING_S} s")

    try:
        before = signal.signal(signal.SIGALRM, end)
    except ValueError:
        # Not in the main thread.
        yield
        return
    signal.setitimer(signal.ITIMER_REAL, LOADING_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _message(error_class: str, code: Code, error: BaseException) -> str:
    """Return an error as one line: its class, the line of the file, the type of the exception and its text."""
    line, raised_there, at = 0, False, error.__traceback__
    while at is not None:
        if at.tb_frame.f_code.co_filename == code.file:
            line = at.tb_lineno
            raised_there = at.tb_next is None and _raises(at.tb_frame.f_code, at.tb_lasti)
        at = at.tb_next
    place = f"{code.file}, line {line}" if line else code.file
    return f"[{error_class}] {place}: {type(error).__name__}{_text(error, written=raised_there)}"


def _raises(code: types.CodeType, instruction: int) -> bool:
    return dis.opname[code.co_code[instruction]] == "RAISE_VARARGS"


def _text(error: BaseException, *, written: bool) -> str:
    """Return the text of an exception, without what may be a value of the row unless the file's author `written` it."""
    text = str(error).split("\n")[0]
    # A server that Headgate did not start may have its token in the environment of its processes.
    if token := os.environ.get("SPARK_CONNECT_AUTHENTICATE_TOKEN"):
        text = text.replace(token, "…")
    text = text[:300]
    if not written and not isinstance(error, WITHOUT_VALUES):
        text = without_values(text)
    return f": {text}" if text else ""


def without_values(text: str) -> str:
    """Replace all strings and numbers in an exception's text, because they may be values of a row."""
    return re.sub(r"""'[^']*'?|"[^"]*"?|b'[^']*'?|-?\d[\d.,:eE+-]*""", "…", text)


WITHOUT_VALUES = (TypeError, AttributeError, NameError, ImportError, SyntaxError, ZeroDivisionError, IndexError)
"""Exceptions of Python whose texts contain names and types, but no values."""

_WHOLE = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}


def _conversion(code: Code, column: str, declared: str) -> Callable[[Any], object]:
    """Return a function that checks a result, or the values of a column, and raises FunctionFailed.

    Spark would silently replace a value of another type by NULL (4.2.0).
    """
    kind = declared.partition("(")[0].partition("<")[0].split(" ")[0]

    def wrong(value: object, needed: str) -> FunctionFailed:
        returned = f"{code.name} returned a value of type {type(value).__name__}{f' as {column}' if column else ''}"
        return FunctionFailed(f"[{WRONG_RESULT}] {code.file}: {returned}, and {declared} needs {needed}")

    def number(value: Any) -> object:
        if isinstance(value, float):
            return value
        if isinstance(value, (bool, str)) or not hasattr(value, "__float__"):
            raise wrong(value, "a float")
        return float(value)

    def whole(value: Any) -> object:
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise wrong(value, "an int")
        found, bits = value.__index__(), _WHOLE[kind]
        if not -(2 ** (bits - 1)) <= found < 2 ** (bits - 1):
            raise wrong(value, f"one of {bits} bits")
        return found

    def exact(value: Any) -> object:
        if isinstance(value, decimal.Decimal):
            return value
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise wrong(value, "a decimal.Decimal")
        return decimal.Decimal(value.__index__())

    def truth(value: Any) -> object:
        if type(value).__name__ not in ("bool", "bool_"):
            raise wrong(value, "a bool")
        return bool(value)

    def of_type(types: tuple[type, ...], needed: str) -> Callable[[Any], object]:
        def same(value: Any) -> object:
            if not isinstance(value, types):
                raise wrong(value, needed)
            return value

        return same

    known: dict[str, Callable[[Any], object]] = {
        **dict.fromkeys(("float", "double"), number),
        **dict.fromkeys(_WHOLE, whole),
        "decimal": exact,
        "boolean": truth,
        **dict.fromkeys(("string", "char", "varchar"), of_type((str,), "a str")),
        "binary": of_type((bytes, bytearray), "bytes"),
        "date": of_type((datetime.date,), "a datetime.date"),
        **dict.fromkeys(("timestamp", "timestamp_ntz"), of_type((datetime.datetime,), "a datetime.datetime")),
        "array": of_type((list, tuple), "a list"),
        "map": of_type((dict,), "a dict"),
        "struct": of_type((dict, tuple, list), "a dict or a tuple"),
    }
    return known.get(kind, lambda value: value)
