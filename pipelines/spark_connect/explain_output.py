"""Parses EXPLAIN output: the tables of the analysed plan and the stateful operators of the physical plan.

The format was checked on Spark 4.2.0. EXPLAIN EXTENDED has four parts: Parsed, Analyzed, Optimized and Physical, each
with a heading such as `== Parsed Logical Plan ==`. A part that failed contains the exception's class and message
instead of a plan. Each line is a node, preceded by `:- `, `+- ` and bars. In logical plans `~` marks a streaming node;
in physical plans `*(2) ` is a codegen stage.

The analysed plan shows each table as `SubqueryAlias <catalog>.<database>.<table>` over `StreamingRelation …,
name="<IDENTIFIED BY>"` (or `name=<Unassigned>`), or over `Relation …` for a batch read. Subqueries and all parts of
WITH are included. In the physical plan a stateful operator contains `state info [ `; a StateStoreRestore or similar
node belongs to the Save above it.
"""

import re
from collections.abc import Iterator

from core.changes.spark_questions_and_answers import AnalysedOperator, AnalysedRead, AnalysisRefusal

_PART = re.compile(r"^== (\w+) (?:Logical |Physical )?Plan ==$", re.MULTILINE)
_NODE = re.compile(r"^(?P<tree>[ :|]*(?:[:+]- )?)(?:~|\*\(\d+\) |\* )?(?P<node>\w.*)$")
_FAILED = re.compile(r"^(?:[a-z]\w*\.)+[A-Z]\w*(?:Exception|Error): ")
_NAMED = re.compile(r'name="(?P<name>[^"]*)"$')
_KEYS = re.compile(r"\[([^\[\]]*)\]")
_ID = re.compile(r"#\d+L?(?:-T\d+ms)?")
_UUID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")

_KINDS = {
    "StateStoreSave": "aggregate",
    "SessionWindowStateStoreSave": "session_window",
    "StreamingDeduplicate": "deduplicate",
    "StreamingDeduplicateWithinWatermark": "deduplicate",
    "StreamingSymmetricHashJoin": "stream_join",
    "StreamingGlobalLimit": "limit",
}


def plans_of_explain(explained: str) -> dict[str, str]:
    """Split the output of EXPLAIN EXTENDED into plans, keyed by the first word of the heading (`Analyzed`, …)."""
    heads = list(_PART.finditer(explained))
    ends = [head.start() for head in heads[1:]] + [len(explained)]
    return {head[1]: explained[head.end() : end].strip("\n") for head, end in zip(heads, ends, strict=True)}


def exception_in(part: str) -> str:
    """Return the exception message in one part of the EXPLAIN output; empty if the part is a plan."""
    found = _FAILED.match(part)
    return part[found.end() :].strip() if found else ""


def tables_read_by(analysed: str, database: str) -> tuple[AnalysedRead, ...]:
    """List the tables of `database` that an analysed plan reads, in plan order."""
    return tuple(_sources(analysed, re.compile(rf"SubqueryAlias (?:\S+\.)?`?{re.escape(database)}`?\.`?(\w+)`?$")))


def stateful_operators_of(physical: str) -> tuple[AnalysedOperator, ...]:
    """List the stateful operators of a physical plan, from top to bottom."""
    return tuple(_operators(physical))


def normalized_plan(plan: str) -> str:
    """Renumber expression and watermark ids by first appearance, so that equal plans become equal strings.

    Spark numbers expressions anew in every analysis and gives every watermark a random UUID (seen on Spark 4.2.0).
    """
    numbers: dict[str, str] = {}

    def number(found: re.Match[str]) -> str:
        return f"#{numbers.setdefault(found[0], str(len(numbers)))}"

    return re.sub(r"#\d+|" + _UUID.pattern, number, plan)


def refusal_of(message: str, error_class: str) -> AnalysisRefusal:
    """Return Spark's refusal with line numbers reduced by 1, because Headgate sends one line above the statement."""
    words = re.sub(r"\.?; (?=line \d)", ", ", message)
    return AnalysisRefusal(
        error_class, re.sub(r"\bline (\d+)", lambda found: f"line {max(1, int(found[1]) - 1)}", words)
    )


def _nodes(plan: str) -> Iterator[str]:
    for line in plan.splitlines():
        found = _NODE.match(line)
        if found:
            yield found["node"].rstrip()


def _sources(analysed: str, alias: re.Pattern[str]) -> Iterator[AnalysedRead]:
    table = ""
    for node in _nodes(analysed):
        if table:
            streaming = node.startswith("StreamingRelation")
            name = _NAMED.search(node) if streaming else None
            yield AnalysedRead(table, streaming, name["name"] if name else "")
        found = alias.match(node)
        table = found[1] if found else ""


def _operators(physical: str) -> Iterator[AnalysedOperator]:
    for node in _nodes(physical):
        name, _, rest = node.partition(" ")
        if "state info [ " not in rest or name.endswith("Restore"):
            continue
        text = rest.partition("state info [ ")[0]
        lists = 2 if name == "StreamingSymmetricHashJoin" else 1
        keys = [key for found in _KEYS.findall(text)[:lists] for key in found.split(", ") if key]
        yield AnalysedOperator(name, _KINDS.get(name, name), tuple(_ID.sub("", key) for key in keys))
