"""Parses SQL files into statements, with a Problem for every mistake.

A mistake is something that Spark rejects, or that Spark accepts but a pipeline cannot run. `read_statements` returns
only statements that a pipeline can run; `read_any` returns all statements that can be parsed.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from sqlglot import Token, exp

from core.model.errors import BadName, InvalidProject
from core.model.names import TableName, parse_table_name
from core.model.problems import Problem, Severity
from core.sql.comparison.canonical_parts import CanonicalParts, canonical_parts_of
from core.sql.lineage.required_columns import required_columns
from core.sql.parsing.canonical_text import normalise, sql_of
from core.sql.parsing.from_clause import sources_in
from core.sql.parsing.function_names import GENERATORS
from core.sql.parsing.parser import parse_query, too_deep
from core.sql.parsing.star_expansion import is_star
from core.sql.parsing.stream_clauses import extract_stream_clauses
from core.sql.parsing.table_names import NamedRead, TableNames, resolve_table_names, unread_tables
from core.sql.python_jobs import (
    FIRST_CODE_LINE,
    FUNCTION,
    CodeFault,
    PythonJob,
    input_places,
    is_python_job,
    job_meaning,
    only_inputs,
    python_job_of,
)
from core.sql.statement import PYTHON, Column, Operator, ParsedStatement, TableRead, Verb, Watermark
from core.sql.streaming.relation_properties import StreamFindings
from core.sql.streaming.stateful_operators import relation_properties_of
from core.sql.tokens.forbidden_functions import forbidden_calls
from core.sql.tokens.lexer import SqlDiagnostic, SqlText, end_of, open_sql, statements_of, tokens_of
from core.sql.tokens.spark_syntax import check_comments, check_syntax, check_text, statement_set
from core.sql.tokens.statement_header import HEADER_REMEDY, PLACED_HEADER, StatementHeader, header_of


@dataclass(slots=True)
class _StatementDraft:
    start: int
    """Offset of the statement in the file."""
    parsed: ParsedStatement | None = None
    diagnostics: list[SqlDiagnostic] = field(default_factory=list)
    """Problems with parts that cannot be parsed, that Spark rejects, or that reach outside the query."""
    rules: list[SqlDiagnostic] = field(default_factory=list)
    """Problems with parts that Spark accepts but that a pipeline cannot run."""


def read_statements(
    text: str, path: str, *, every_table_streams: bool = False
) -> tuple[tuple[ParsedStatement, ...], tuple[Problem, ...]]:
    """Parse a DML file, and return the statements without errors and all Problems.

    With `every_table_streams`, a table is read as a stream even without STREAM (`defaults: {reads: stream}`).
    """
    source = open_sql(text, path)
    found: list[ParsedStatement] = []
    problems: list[Problem] = []
    for each in _readings(source, every_table_streams=every_table_streams):
        wrong = [*each.diagnostics, *each.rules]
        if each.parsed is not None and each.parsed.verb is Verb.SELECT:
            wrong.append(
                SqlDiagnostic("a dml file contains INSERT INTO … SELECT, not SELECT", HEADER_REMEDY, each.start)
            )
        if each.parsed is not None and not wrong:
            found.append(each.parsed)
        problems += [source.problem(_placed(diagnostic, each.start)) for diagnostic in wrong]
    return tuple(found), tuple(problems)


def read_any(
    text: str, path: str, *, every_table_streams: bool = False
) -> tuple[tuple[ParsedStatement, ...], tuple[Problem, ...]]:
    """Parse every statement of an SQL file, whether or not a pipeline could run it.

    Table names are in lower case, with database and catalog if written. A Problem is an error if Spark rejects the SQL
    or the SQL reaches outside the query, and a warning if only a pipeline rejects it. Statements that cannot be parsed
    are left out.
    """
    source = open_sql(text, path)
    found: list[ParsedStatement] = []
    problems: list[Problem] = []
    for each in _readings(source, every_table_streams=every_table_streams):
        if each.parsed is not None:
            found.append(each.parsed)
        problems += [source.problem(_placed(diagnostic, each.start)) for diagnostic in each.diagnostics]
        rules = [_placed(diagnostic, each.start) for diagnostic in each.rules]
        problems += [source.problem(diagnostic, severity=Severity.WARNING) for diagnostic in rules]
    return tuple(found), tuple(problems)


def _readings(source: SqlText, *, every_table_streams: bool) -> Iterator[_StatementDraft]:
    if is_python_job(source.text):
        yield _read_job(source, every_table_streams=every_table_streams)
        return
    try:
        check_text(source)
        tokens = tokens_of(source)
        check_comments(tokens, source)
    except SqlDiagnostic as failure:
        yield _StatementDraft(0, None, [failure])
        return
    if (diagnostic := statement_set(tokens)) is not None:
        yield _StatementDraft(diagnostic.offset, None, [diagnostic])
        return
    empty = True
    for statement in statements_of(tokens):
        empty = False
        reading = _StatementDraft(statement[0].start)
        try:
            reading.parsed = _read(statement, source, reading, every_table_streams=every_table_streams)
        except SqlDiagnostic as failure:
            reading.diagnostics.append(failure)
        except RecursionError:
            reading.diagnostics.append(too_deep(statement[0].start))
        yield reading
    if empty:
        yield _StatementDraft(0, None, [SqlDiagnostic("the file contains no statement", HEADER_REMEDY, 0)])


def _read_job(source: SqlText, *, every_table_streams: bool) -> _StatementDraft:
    """Read a job in Python: its inputs are parsed as SQL, and its code stands for one operator with unknown state."""
    draft = _StatementDraft(0)
    try:
        job = python_job_of(source.text)
        meaning = job_meaning(job) if job is not None else ""
    except InvalidProject as error:
        draft.diagnostics.append(SqlDiagnostic(error.summary, str(error.remedy), 0))
        return draft
    except CodeFault as fault:
        offset = _line_offset(source.text, FIRST_CODE_LINE + fault.line - 1)
        draft.diagnostics.append(SqlDiagnostic(fault.summary, fault.remedy, offset))
        return draft
    assert job is not None, "the text is that of a job"
    begin = source.text.index(f"SELECT * FROM {FUNCTION}(")
    select = source.text[begin:].rstrip()
    reads = tuple(_input_reads(select, begin, draft, every_table_streams=every_table_streams))
    if not draft.diagnostics and not any(read.streaming for read in reads) and "readStream" not in job.code:
        summary, remedy = "the job reads no stream", "stream one of its inputs, or use spark.readStream in the code"
        draft.rules.append(SqlDiagnostic(summary, remedy, begin))
    target = source.text[:begin].split()
    draft.parsed = ParsedStatement(
        writes=TableName(target[-1] if target else ""),
        select=select,
        reads=reads,
        columns=(Column("*", FUNCTION),),
        operators=(Operator(PYTHON, detail=meaning),),
        # No SQL, so that whatever parses canonical SQL finds nothing in it.
        canonical=f"{FUNCTION}:\n{meaning}\n{_inputs_meaning(job, reads)}",
        state=meaning,
        pre=_inputs_meaning(job, reads),
        post="",
        verb=Verb.INSERT if target else Verb.SELECT,
    )
    return draft


def _inputs_meaning(job: PythonJob, reads: tuple[TableRead, ...]) -> str:
    shown = (("STREAM " if read.streaming else "") + read.table for read in reads)
    return ", ".join(f"{each.parameter} => {read}" for each, read in zip(job.inputs, shown, strict=False))


def _input_reads(select: str, begin: int, draft: _StatementDraft, *, every_table_streams: bool) -> Iterator[TableRead]:
    streamed: dict[str, bool] = {}
    for name, start, _ in input_places(select):
        alone = open_sql(only_inputs(select, name), "")
        for each in _readings(alone, every_table_streams=every_table_streams):
            reads = each.parsed.reads if each.parsed is not None else ()
            wrong = [*each.diagnostics, *each.rules]
            if not wrong and (len(reads) != 1 or each.parsed is None or each.parsed.operators):
                summary = f"the input {name} must be one table"
                wrong.append(SqlDiagnostic(summary, f"write inputs: {{{name}: STREAM orders}}", start, subject=name))
            for read in reads[:1]:
                if streamed.setdefault(read.table, read.streaming) != read.streaming:
                    summary = f"{read.table} is read both as a stream and as a table by one job, which Spark mixes up"
                    wrong.append(SqlDiagnostic(summary, "read it one way", start, subject=read.table))
                yield replace(read, alias="", alias_at=None)
            draft.diagnostics += [_further(diagnostic, begin, start) for diagnostic in wrong]


def _further(diagnostic: SqlDiagnostic, begin: int, start: int) -> SqlDiagnostic:
    diagnostic.offset = begin + (diagnostic.offset if diagnostic.offset >= 0 else start)
    return diagnostic


def _line_offset(text: str, line: int) -> int:
    starts = [0, *(at + 1 for at, letter in enumerate(text) if letter == "\n")]
    return starts[min(line, len(starts)) - 1]


def _read(
    statement: list[Token], source: SqlText, reading: _StatementDraft, *, every_table_streams: bool
) -> ParsedStatement:
    check_syntax(statement, source)
    header = header_of(statement)
    reading.rules += header.rules
    reading.diagnostics += forbidden_calls(header.query)
    marks = extract_stream_clauses(header.query)
    reading.rules += marks.diagnostics
    query = parse_query(marks.tokens, source.text)
    names = resolve_table_names(query, marks, every_table_streams=every_table_streams)
    requires = required_columns(query) if header.verb is Verb.INSERT else None
    reads = tuple(_read_value(each, names, header, source) for each in names.reads)
    query = normalise(query)
    sources = sources_in(query)
    reading.diagnostics += unread_tables(sources, names, marks)
    outputs = _columns(query)
    _check_columns(header, outputs, reading.rules)
    found = StreamFindings(query, names.reads)
    flow = relation_properties_of(found)
    reading.diagnostics += found.diagnostics
    reading.rules += _rules(header, names)
    reading.diagnostics += _named_twice(names)
    reading.diagnostics += _read_both_ways(names)
    if header.verb is Verb.INSERT and not (flow.streaming or found.diagnostics or header.rules):
        reading.rules.append(_nothing_streams(statement, names))
    if header.verb not in (Verb.INSERT, Verb.SELECT) and any(read.streaming for read in reads):
        reading.diagnostics.append(_executed_as_batch(header, names))
    parts = canonical_parts_of(query, sources, flow.operators)
    if header.verb is Verb.MERGE:
        # The query only represents the reads; conditions and writes are compared by their text.
        words = " ".join(source.text[token.start : end_of(token)] for token in statement)
        outputs, parts = (), CanonicalParts(words, "", words, "")
    return ParsedStatement(
        writes=TableName(header.target.text if header.target else ""),
        select=header.text(source),
        reads=reads,
        columns=outputs,
        operators=flow.operators,
        canonical=parts.canonical,
        state=parts.state,
        pre=parts.pre,
        post=parts.post,
        line=source.line(statement[0].start),
        verb=header.verb,
        requires=requires,
    )


def _read_value(entry: NamedRead, names: TableNames, header: StatementHeader, source: SqlText) -> TableRead:
    if source.text[entry.start : entry.start + 1] in ("'", '"'):
        raise SqlDiagnostic("a string is not a table name", "write the table name without quotes", entry.start)
    mark = entry.mark
    watermark = Watermark(mark.watermark.text, mark.watermark.delay) if mark.watermark is not None else None
    return TableRead(
        TableName(entry.name.lower()),
        mark.streaming,
        alias=entry.alias,
        options=mark.options,
        source_name=mark.source_name,
        watermark=watermark,
        start=header.offset_in_query(entry.start),
        end=header.offset_in_query(entry.end),
        alias_at=header.offset_in_query(entry.alias_at) if entry.start in names.qualifying else None,
        implied=entry.implied,
    )


def _rules(header: StatementHeader, names: TableNames) -> Iterator[SqlDiagnostic]:
    if header.target is not None:
        yield from _name_rule(header.target.text, len(header.target.parts), header.target.start)
    for read in names.reads:
        yield from _name_rule(read.name, read.parts, read.start)


def _name_rule(name: str, parts: int, start: int) -> Iterator[SqlDiagnostic]:
    if parts > 1:
        yield SqlDiagnostic(
            "the table name cannot be qualified with a database or catalog", PLACED_HEADER, start, subject=name
        )
        return
    try:
        parse_table_name(name)
    except BadName as error:
        yield SqlDiagnostic(error.summary, error.remedy, start, subject=name)


def _executed_as_batch(header: StatementHeader, names: TableNames) -> SqlDiagnostic:
    streamed = next(read for read in names.reads if read.mark.streaming)
    summary = f"a stream cannot be read by {header.verb.upper()}, which Spark executes once as a batch"
    return SqlDiagnostic(summary, HEADER_REMEDY, streamed.start, subject=streamed.name)


def _columns(query: Any) -> tuple[Column, ...]:
    # A chain of set operations has the columns of its first operand.
    while not isinstance(query, exp.Select):
        if not isinstance(query, (exp.Subquery, exp.SetOperation)):
            return ()
        query = query.this
    found: list[Column] = []
    for each in query.expressions:
        inner = each.unalias() if isinstance(each, exp.Alias) else each
        text = sql_of(inner)
        if isinstance(each, exp.Aliases):
            found += [Column(alias.name, sql_of(each.this)) for alias in each.args.get("expressions") or []]
        elif is_star(inner):
            found.append(Column("*", text))
        else:
            found.append(Column(_output_name(each, text), text))
    return tuple(found)


def _output_name(node: Any, text: str) -> str:
    """Return the name that Spark gives to an output column.

    A generator without an alias has the name `*`, because its column names depend on its argument.
    """
    if _is_named(node):
        return str(node.alias_or_name)
    if isinstance(node, exp.Anonymous) and str(node.this) in GENERATORS:
        return "*"
    return text.lower()


def _is_named(node: Any) -> bool:
    return isinstance(node, (exp.Alias, exp.Column, exp.Dot)) and bool(node.alias_or_name)


def _check_columns(header: StatementHeader, outputs: tuple[Column, ...], rules: list[SqlDiagnostic]) -> None:
    """Report a column list after INSERT INTO that differs from the SELECT's names, because streams write by name."""
    if not header.columns or any(column.name == "*" for column in outputs):
        return
    listed = [str(token.text).lower() for token in header.columns]
    if listed != [column.name for column in outputs]:
        pairs = zip(header.columns, listed, outputs, strict=False)
        wrong = next((token for token, name, column in pairs if name != column.name), header.columns[-1])
        rules.append(
            SqlDiagnostic(
                "the column list differs from the output names of the SELECT, and a stream writes by name",
                f"name the outputs with AS: {', '.join(listed)}",
                wrong.start,
                subject=header.target.text if header.target else "",
            )
        )


def _nothing_streams(statement: list[Token], names: TableNames) -> SqlDiagnostic:
    first = names.reads[0].name if names.reads else "t"
    return SqlDiagnostic(
        "the statement reads no stream",
        f"write FROM STREAM {first} for the table whose new rows it processes",
        statement[0].start,
        subject=first,
    )


def _read_both_ways(names: TableNames) -> Iterator[SqlDiagnostic]:
    """Yield a diagnostic for the first table that is read both as a stream and as a batch table.

    Spark 4.2.0 turned `STREAM t … JOIN t` into a join of two streams, but not `t JOIN STREAM t` (observed; the cause is
    unknown).
    """
    streamed = {read.name.lower() for read in names.reads if read.mark.streaming}
    for read in names.reads:
        if not read.mark.streaming and read.name.lower() in streamed:
            summary = f"{read.name} is read both as a stream and as a table in one statement, which Spark mixes up"
            remedy = "read it one way: with STREAM on both sides, or from two tables"
            yield SqlDiagnostic(summary, remedy, read.start, subject=read.name)
            return


def _named_twice(names: TableNames) -> Iterator[SqlDiagnostic]:
    seen: set[str] = set()
    for read in names.reads:
        if read.mark.source_name and read.mark.source_name in seen:
            summary = f"two sources are named {read.mark.source_name}"
            condition = "STREAMING_QUERY_EVOLUTION_ERROR.DUPLICATE_SOURCE_NAMES"
            remedy = "give each IDENTIFIED BY a unique name"
            yield SqlDiagnostic(summary, remedy, read.start, subject=read.mark.source_name, condition=condition)
        seen.add(read.mark.source_name)


def _placed(diagnostic: SqlDiagnostic, start: int) -> SqlDiagnostic:
    if diagnostic.offset < 0:
        diagnostic.offset = start
    return diagnostic
