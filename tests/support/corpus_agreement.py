"""Compares our analysis of the corpus with Spark's recorded verdicts."""

import re
from dataclasses import dataclass, replace

from sql_corpus import FOLDER, NO_MERGE, Case, Verdict, tables

from core.model.problems import Severity
from core.project_reader.table_consistency_checks import wrong_watermark
from core.sql.compiler import compile_select
from core.sql.ddl_reader import read_ddl
from core.sql.statement import ParsedStatement, Verb
from core.sql.statement_reader import read_any

BOUND = 0.02
"""Largest share of statements that may disagree."""

OPERATORS = {
    "aggregate": "stateStoreSave",
    "window": "stateStoreSave",
    "deduplicate": "stateStoreSave",
    "session_window": "sessionWindowStateStoreSaveExec",
    "stream_join": "symmetricHashJoin",
    "limit": "globalLimit",
}
"""Names of operators in Spark's progress, by our kind of operator; to Spark, DISTINCT and UNION are aggregates."""


@dataclass(frozen=True)
class Difference:
    """A point on which our analysis of a statement differs from Spark's."""

    key: str
    what: str
    ours: str
    spark: str
    unsafe: bool = False
    """True if we accept what Spark refuses, or find no state where Spark keeps some."""

    def __str__(self) -> str:
        return f"{'UNSAFE ' if self.unsafe else ''}{self.key}\n    {self.what}: we say {self.ours}; Spark {self.spark}"


def report(found: list[Case], recorded: dict[str, list[Verdict]]) -> int:
    """Print the agreement as `N of M`, and each difference with its reason; return 1 if there are too many, else 0."""
    reasons = disagreements()
    asked = [case for case in found if case.key in recorded]
    differences = [each for case in asked for each in compared(case, recorded[case.key])]
    for each in differences:
        print(f"{each}\n    because {reasons.get(each.key, 'NO REASON IS KNOWN')}")
    statements = sum(len(recorded[case.key]) for case in asked)
    refused = sum(bool(verdict.refused) for case in asked for verdict in recorded[case.key])
    disagreeing = len({each.key for each in differences})
    unsafe = sum(each.unsafe for each in differences)
    constructs = len({case.construct for case in found})
    print(
        f"{statements - disagreeing} of {statements} statements agree; {refused} are refused by Spark, {unsafe} unsafe"
    )
    print(f"{constructs} constructs, {len(found)} texts, {len(found) - len(asked)} not in the record")
    return int(unsafe > 0 or disagreeing > BOUND * statements)


def disagreements() -> dict[str, str]:
    """Return the known disagreements, as reasons by key; each line of their file is `key -- reason`."""
    lines = (FOLDER / "disagreements.list").read_text(encoding="utf-8").splitlines()
    return dict((key, reason) for key, _, reason in (line.partition(" -- ") for line in lines if line))


def whole(case: Case) -> tuple[list[ParsedStatement], list[ParsedStatement]]:
    """Return a case's statements parsed as one text, and parsed one by one; positions are removed."""
    streams = case.reads == "stream"
    together = read_any(case.text, "q.sql", every_table_streams=streams)[0]
    apart = [parsed for each in case.statements for parsed in read_any(each, "q.sql", every_table_streams=streams)[0]]
    return [_placeless(parsed) for parsed in together], [_placeless(parsed) for parsed in apart]


def _placeless(parsed: ParsedStatement) -> ParsedStatement:
    reads = tuple(replace(read, start=0, end=0, alias_at=None) for read in parsed.reads)
    return replace(parsed, reads=reads, line=1, select=" ".join(parsed.select.split()))


def compared(case: Case, spark: list[Verdict]) -> list[Difference]:
    """Compare our analysis of a case with Spark's verdicts, statement by statement."""
    found: list[Difference] = []
    for index, (one, other) in enumerate(zip(ours(case), spark, strict=True), 1):
        key = case.key if len(spark) == 1 else f"{case.key}, statement {index}"
        found += _differences(key, one, other)
    return found


def ours(case: Case) -> list[Verdict]:
    """Return our verdicts on a case, analyzed as `headgate sql` does, with the tables and views of the corpus."""
    if len(case.statements) == 1:
        return [_ours(case.text, case.reads)]
    return [_ours(each, case.reads) for each in case.statements]


def compiled(statement: str) -> str:
    """Compile a statement with STREAM in front of every table."""
    (parsed,), _ = read_any(statement, "q.sql", every_table_streams=True)
    return compile_select(parsed, {read.table: str(read.table) for read in parsed.reads})


def _ours(text: str, reads: str) -> Verdict:
    statements, problems = read_any(text, "q.sql", every_table_streams=reads == "stream")
    errors = [problem.summary for problem in problems if problem.severity is Severity.ERROR]
    if len(statements) != 1:
        return Verdict(refused=errors[0] if errors else "it is not one statement")
    parsed = statements[0]
    refused = errors[0] if errors else _unknown(parsed)
    return Verdict(
        refused=refused,
        writes=(_plain(parsed.writes),) if parsed.writes else (),
        reads=tuple(sorted((_plain(read.table), read.streaming, read.source_name) for read in parsed.reads)),
        options=tuple(sorted(option for read in parsed.reads for option in read.options)),
        watermarks=tuple(sorted(_watermarks(parsed))),
        columns=tuple(column.name for column in parsed.columns) if parsed.verb in (Verb.INSERT, Verb.SELECT) else (),
        operators=tuple(sorted(OPERATORS[operator.kind] for operator in parsed.operators)),
    )


def _watermarks(parsed: ParsedStatement) -> list[tuple[str, str]]:
    """Return the WATERMARK clauses as (column, delay), from the canonical text, since subqueries can have them too."""
    units = "microsecond|millisecond|second|minute|hour|day|week|month|year"
    clauses = re.findall(
        rf"WATERMARK (.+?) DELAY OF (?:INTERVAL )?((?:\S+ (?:{units})(?: to \w+)? ?)+)", parsed.canonical
    )
    return [(text.rpartition(" AS ")[2], delay.strip()) for text, delay in clauses]


def _unknown(parsed: ParsedStatement) -> str:
    """Return the problem that a project's checks would find in the tables read; empty if there is none."""
    streamed = {_plain(read.table) for read in parsed.reads if read.streaming}
    for read in parsed.reads:
        if read.table.rpartition(".")[0] not in ("", "default", "spark_catalog.default") and read.table not in VIEWS:
            return f"{read.table} is declared by no DDL"
        if _plain(read.table) not in TABLES | VIEWS:
            return f"{read.table} is declared by no DDL"
        if read.streaming and read.table == parsed.writes:
            return f"{read.table} feeds itself"
        if not read.streaming and streamed & BELOW.get(_plain(read.table), frozenset()):
            return f"{read.table} is a view of what is streamed beside it, which Spark confuses"
        if read.streaming and _plain(read.table) in VIEWS:
            return f"{read.table} is a view, which nothing can stream"
        if read.table in DDLS and (wrong := wrong_watermark(read, DDLS[read.table])) is not None:
            return wrong[0]
    return ""


def _plain(name: str) -> str:
    return re.sub(r"^(?:spark_catalog\.)?(?:default\.)?", "", name)


def _names(word: str) -> set[str]:
    found = (re.match(rf"CREATE (?:TEMPORARY )?{word} (`[^`]+`|\w+)", text) for text in tables())
    return {each[1].strip("`").lower() for each in found if each is not None}


TABLES, VIEWS = _names("TABLE"), _names("VIEW")
BELOW = {
    found[1].strip("`"): frozenset(
        str(read.table) for parsed in read_any(found[2], "v.sql")[0] for read in parsed.reads
    )
    for text in tables()
    if (found := re.match(r"CREATE (?:TEMPORARY )?VIEW (`[^`]+`|\w+) AS (.*)", text)) is not None
}
"""The tables that each view reads; a project declares no views."""
DDLS = {ddl.table: ddl for text in tables() if (ddl := read_ddl(text, "ddl.sql")[0]) is not None}


def _differences(key: str, one: Verdict, other: Verdict) -> list[Difference]:
    if other.note == NO_MERGE:
        return [] if one.reads or not one.refused else [Difference(key, "read", one.refused, "parses it")]
    if bool(one.refused) != bool(other.refused):
        if one.refused:
            return [Difference(key, "refused", f"refused: {one.refused}", f"accepts it, {list(other.operators)}")]
        return [Difference(key, "refused", "accepted", f"refuses: {other.refused}", unsafe=True)]
    if one.refused:
        return []
    found = []
    for what in ("operators", "reads", "options", "watermarks", "writes", "columns"):
        left, right = getattr(one, what), getattr(other, what)
        if what == "columns" and ("*" in left or not left or not right):
            continue
        if left != right:
            unsafe = what == "operators" and not left
            found.append(Difference(key, what, f"{list(left)}", f"{list(right)}", unsafe))
    return found
