"""Spark's own parser, in a Java process without a server; parsing a query takes milliseconds.

Starting it takes four seconds and about 300 MB. The classes come from the installed pyspark.
"""

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
from py4j.java_gateway import JavaGateway, get_field
from py4j.protocol import Py4JJavaError

from pipelines.local_pool.java_and_spark import bundled_java

_JARS = Path(pyspark.__file__).parent / "jars"
_OPTIONS = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
_RULE_EDGE = 3
"""`Transition.RULE` of ANTLR."""
_PARSER = "org.apache.spark.sql.catalyst.parser"


class SparkParser:
    """Parses Spark SQL; expression ids are removed from the plans that it returns."""

    def __init__(self, jvm: Any) -> None:
        self._parser = getattr(jvm, f"{_PARSER}.CatalystSqlParser")()
        self._jvm = jvm
        self._vocabulary = getattr(jvm, f"{_PARSER}.SqlBaseLexer").VOCABULARY

    def plan(self, text: str) -> str:
        """Return the plan of a query as printed by Spark; empty if Spark cannot parse the query."""
        try:
            return re.sub(r"#\d+L?", "", self._parser.parsePlan(text).toString())
        except Py4JJavaError:
            return ""

    def rules(self, text: str) -> set[str]:
        """Return the names of the grammar rules that are used to parse a query."""
        chars = self._jvm.org.antlr.v4.runtime.CharStreams.fromString(text)
        lexer = self._class("SqlBaseLexer")(self._class("UpperCaseCharStream")(chars))
        parser = self._class("SqlBaseParser")(self._jvm.org.antlr.v4.runtime.CommonTokenStream(lexer))
        return set(re.findall(r"\((\w+) ", parser.singleStatement().toStringTree(parser)))

    def rules_below(self, name: str, *, without: Collection[str]) -> set[str]:
        """Return the grammar rules that are reachable from a rule without passing through any rule in `without`."""
        parser = self._class("SqlBaseParser")
        names, atn = list(parser.ruleNames), parser._ATN
        leading: dict[int, set[int]] = {}
        for state in get_field(atn, "states"):
            if state is None:
                continue
            for at in range(state.getNumberOfTransitions()):
                edge = state.transition(at)
                if edge.getSerializationType() == _RULE_EDGE:
                    leading.setdefault(get_field(state, "ruleIndex"), set()).add(get_field(edge, "ruleIndex"))
        found, waiting = set(), [names.index(name)]
        while waiting:
            rule = waiting.pop()
            if rule not in found and names[rule] not in without:
                found.add(rule)
                waiting += leading.get(rule, ())
        return {names[rule] for rule in found}

    def _class(self, name: str) -> Any:
        return getattr(self._jvm, f"{_PARSER}.{name}")

    def keywords(self) -> set[str]:
        """Return the keywords of the lexer, in upper case."""
        names = (self._vocabulary.getLiteralName(at) for at in range(self._vocabulary.getMaxTokenType() + 1))
        words = {str(name).strip("'") for name in names}
        return {word for word in words if word.replace("_", "").isalpha() and word.isupper()} | {
            "RLIKE",
            "REGEXP",
            "TEMP",
        }


@contextmanager
def spark_parser() -> Iterator[SparkParser]:
    """Start a parser for the duration of the block."""
    java = bundled_java() or "java"
    gateway = JavaGateway.launch_gateway(classpath=f"{_JARS}/*", die_on_exit=True, javaopts=_OPTIONS, java_path=java)
    try:
        yield SparkParser(gateway.jvm)
    finally:
        gateway.shutdown()
