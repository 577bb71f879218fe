"""The Python of a pool, which runs the writers of keyed tables: compared with ours before one is sent there."""

import json
import sys
from collections.abc import Sequence
from typing import Any

from pyspark.sql.connect.functions.builtin import col
from pyspark.sql.connect.udf import UserDefinedFunction
from pyspark.sql.types import StringType

from core.model.errors import EngineRefused
from core.text.sentence import Sentence
from pipelines.spark.session import Session, spark_errors

NEEDED = ("pandas", "pyarrow", "grpc", "grpc_status", "google")
"""Packages that PySpark's own process for a writer imports (4.2.0)."""

_MISMATCH = "PYTHON_VERSION_MISMATCH"


def why_other_python(session: Session) -> Sentence | None:
    """Explain why the pool's Python cannot run a writer; None where it can. It takes a job on the pool."""
    needed = NEEDED

    def look(_: Any) -> str:
        import importlib.util

        missing = [name for name in needed if importlib.util.find_spec(name) is None]
        return json.dumps([*sys.version_info[:2], missing])

    try:
        with spark_errors():
            rows = session.spark.range(1).select(UserDefinedFunction(look, StringType())(col("id"))).collect()
    except EngineRefused as error:
        if error.error_class == _MISMATCH:
            return Sentence(error.summary)
        raise
    major, minor, missing = json.loads(rows[0][0])
    return other_python((major, minor), missing)


def other_python(version: tuple[int, int], missing: Sequence[str]) -> Sentence | None:
    """Explain in words in what a Python differs from ours; None where it does not matter."""
    ours = sys.version_info[:2]
    if version != ours:
        return Sentence(f"the pool runs Python {version[0]}.{version[1]}, and Headgate {ours[0]}.{ours[1]}")
    return Sentence(f"the pool's Python has no {', '.join(missing)}") if missing else None
