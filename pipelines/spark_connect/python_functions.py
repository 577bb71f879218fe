"""Registers functions of a project in a session. Nothing here imports, compiles or executes their code."""

import hashlib
import threading
from collections.abc import Sequence
from typing import Any, cast

from pyspark import cloudpickle
from pyspark.sql.connect.functions.builtin import col
from pyspark.sql.connect.udf import UserDefinedFunction
from pyspark.sql.connect.udtf import UserDefinedTableFunction
from pyspark.sql.types import DataType, StringType, StructType
from pyspark.util import PythonEvalType

from core.sql.jar_relocation import relocated_package
from core.sql.registered_functions import PythonKind, RegisteredFunction
from core.sql.tokens.data_types import fields_of
from pipelines.spark_connect import function_in_worker
from pipelines.spark_connect.function_in_worker import Code
from pipelines.spark_connect.session import Session

_by_value: Any = cloudpickle.register_pickle_by_value
_by_value(function_in_worker)

_CALLERS: Any = {
    PythonKind.VALUES: (PythonEvalType.SQL_BATCHED_UDF, function_in_worker.by_row),
    PythonKind.SERIES: (PythonEvalType.SQL_SCALAR_PANDAS_UDF, function_in_worker.by_series),
}


class PythonFunctions:
    """The functions of one session. Thread-safe: a repeated registration changes nothing."""

    def __init__(self, session: Session) -> None:
        """Use one session, in which nothing may be registered yet."""
        self._session = session
        self._registered: set[str] = set()
        self._loaded: set[str] = set()
        self._loading = threading.Lock()
        self._types: dict[str, DataType] = {}

    def register(self, functions: Sequence[RegisteredFunction]) -> None:
        """Register functions that are not registered yet; one without code fails if it is called.

        The session must have the relocated jar of a function of a jar. A running query keeps the function that it began
        with (Spark 4.2.0).
        """
        for each in functions:
            if each.name in self._registered:
                continue
            if each.java is not None:
                # Spark creates an object of the class, whose code may fail.
                moved = f"{relocated_package(each.java.sha256)}.{each.java.name}"
                self._session.spark.udf.registerJavaFunction(each.name, moved, self._type(each.returns))
            elif each.kind is PythonKind.TABLE:
                self._register_table(each)
            else:
                self._register_value(each)
            self._registered.add(each.name)

    def _register_value(self, function: RegisteredFunction) -> None:
        kind, caller = _CALLERS[function.kind]
        called = caller(_code(function)) if function.code else _stub(function.name)
        about: Any = {"name": function.name, "evalType": kind, "deterministic": function.deterministic}
        made = UserDefinedFunction(called, self._type(function.returns), **about)
        self._session.spark.udf.register(function.name, made)

    def _register_table(self, function: RegisteredFunction) -> None:
        columns, returns = fields_of(function.returns), cast(StructType, self._type(function.returns))
        called: Any = function_in_worker.by_table(_code(function), columns) if function.code else _stub_of_rows()
        made = UserDefinedTableFunction(called, returns, name=function.name, deterministic=function.deterministic)
        self._session.spark.udtf.register(function.name, made)

    def load(self, functions: Sequence[RegisteredFunction]) -> str:
        """Execute the modules of functions in the pool, each once, and return the first error or nothing.

        Runs a Spark job if there are any that have not been loaded. The error begins with its class.
        """
        # One at a time, because statements that start together often call the same functions.
        with self._loading:
            new = [each for each in functions if each.name not in self._loaded]
            if not new:
                return ""
            look = function_in_worker.loading([_code(each) for each in new])
            found = self._session.spark.range(1).select(UserDefinedFunction(look, StringType())(col("id"))).collect()
            if not found[0][0]:
                self._loaded.update(each.name for each in new)
            return str(found[0][0])

    def _type(self, kind: str) -> DataType:
        # PySpark parses types in a default session only, and there is none.
        if kind not in self._types:
            self._types[kind] = self._session.spark.sql(f"SELECT CAST(NULL AS {kind}) AS c").schema.fields[0].dataType
        return self._types[kind]


def _code(function: RegisteredFunction) -> Code:
    # Files that differ only in comments have one name, but other lines.
    digest = hashlib.sha256(function.code.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    text = function.code.removeprefix("\ufeff")
    return Code(function.function, f"headgate_{function.name}_{digest}", text, function.returns)


def _stub_of_rows() -> type:
    class Refusing:
        def eval(self, *_: object) -> None:
            raise RuntimeError("this function is only analysed")

    return Refusing


def _stub(name: str) -> Any:
    def refuse(*_: object) -> None:
        raise RuntimeError(f"{name} is only analysed")

    return refuse
