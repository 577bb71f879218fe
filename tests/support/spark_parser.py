"""Spark's own parser in a Java process without a server: what it makes of a query, in milliseconds.

Four seconds for the start, some 300 MB. The classes are those of the installed pyspark.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JJavaError

from pipelines.local_pool.bundled_java import bundled_java

_JARS = Path(pyspark.__file__).parent / "jars"
_OPTIONS = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
_PARSER = "org.apache.spark.sql.catalyst.parser"


class SparkParser:
    """A parser of Spark's SQL; plans have no numbers of expressions."""

    def __init__(self, jvm: Any) -> None:
        self._parser = getattr(jvm, f"{_PARSER}.CatalystSqlParser")()
        self._vocabulary = getattr(jvm, f"{_PARSER}.SqlBaseLexer").VOCABULARY

    def plan(self, text: str) -> str:
        """Return the plan of a query as Spark prints it; empty where it is no query of Spark."""
        try:
            return re.sub(r"#\d+L?", "", self._parser.parsePlan(text).toString())
        except Py4JJavaError:
            return ""

    def keywords(self) -> set[str]:
        """List the words of the lexer, in upper case."""
        names = (self._vocabulary.getLiteralName(at) for at in range(self._vocabulary.getMaxTokenType() + 1))
        words = {str(name).strip("'") for name in names}
        return {word for word in words if word.replace("_", "").isalpha() and word.isupper()} | {
            "RLIKE",
            "REGEXP",
            "TEMP",
        }


@contextmanager
def spark_parser() -> Iterator[SparkParser]:
    """Start a parser, and end its process."""
    java = bundled_java() or "java"
    gateway = JavaGateway.launch_gateway(classpath=f"{_JARS}/*", die_on_exit=True, javaopts=_OPTIONS, java_path=java)
    try:
        yield SparkParser(gateway.jvm)
    finally:
        gateway.shutdown()
