"""The commands `sql` and `diff`, which read only SQL files and need no agent, ledger or project.

With two environments, `diff` compares their ledgers instead (`environment_diff`).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from core.changes.classification import classify_set, most_severe, unproven_change
from core.model.errors import UsageError
from core.model.evidence import Notice
from core.model.names import TableName
from core.model.problems import Problem, Severity
from core.plan.descriptions import evidence_as_json, evidence_words
from core.project.revision import Revision
from core.sql.statement import ParsedStatement, TableRead
from core.text.diff import unified_diff
from tui.command_line.context import CommandContext
from tui.command_line.output import problem_line
from tui.presentation.styling.table_layout import format_table
from tui.project_folder import sql_sources
from tui.services.spark_cross_check_of_sql_files import analyse_statements, cross_check_changes

INVALID = 2


def sql(context: CommandContext) -> int:
    """Print inputs, outputs, state and columns of the statements in a SQL file.

    Returns 2 if a statement has an error.
    """
    args, output = context.args, context.output
    source = sql_sources.open_source(args.file, context.cwd)
    environment = getattr(args, "env", None)
    found, problems = sql_sources.parse_statements(source, args.reads, environment)
    prints = sql_sources.fingerprints(source, found, environment)
    answers = analyse_statements(context.operations, source, found) if args.spark else ()
    if output.as_json:
        body = _as_json(found, prints, problems)
        output.data(body | {"spark": [each.as_json() for each in answers]} if args.spark else body)
    else:
        for parsed, each in zip(found, prints, strict=True):
            output.print(_sheet(parsed, str(each["sem"])))
        for answer in answers:
            output.print([f"Spark {answer.engine} {words}" for words in answer.words])
        for problem in problems:
            output.say(problem_line(problem.as_json()))
    return INVALID if any(problem.severity is Severity.ERROR for problem in problems) else 0


def diff(context: CommandContext) -> int:
    """Print the classification of a change between two SQL files, and the effects of deploying it.

    With two environments, print which tables differ between them.
    """
    args, output = context.args, context.output
    if len(getattr(args, "environments", ())) > 1:
        from tui.commands.environment_diff import environment_diff

        return environment_diff(context)
    if len(args.names) != 2 or args.product or args.all:
        remedy = "headgate diff OLD NEW for files, or headgate diff --env E --env F for environments"
        raise UsageError("diff compares two files or two environments", remedy=remedy)
    environment = getattr(args, "env", None)
    before, after, alone = sql_sources.in_one_place(
        *(sql_sources.open_source(name, context.cwd) for name in args.names)
    )
    if alone is not None:
        other = after if alone.name == before.name else before
        output.say(f"there is no DDL beside {alone.name}: both sides use the settings and pool of {other.name}")
    old, wrong = sql_sources.read_revisions(before, environment)
    new, problems = sql_sources.read_revisions(after, environment)
    sql_sources.refuse_problems(after.name, problems)
    error = next((problem for problem in wrong if problem.severity is Severity.ERROR), None)
    if error is not None:
        change = unproven_change(Notice.FILE_UNREADABLE.of(file=before.name, problem=error.summary))
    else:
        old, new = sql_sources.with_comparable_columns(old, new, declared=alone is None)
        changes = classify_set(old, new)
        if args.spark:
            changes = cross_check_changes(context.operations, changes, old=old, new=new)
        change = most_severe(changes)
    lines = _edits(old, new) or list(unified_diff(before.text, after.text))
    facts = change.kind.definition
    body = {
        "row": facts.code,
        "change": str(change.kind),
        "action": str(change.action),
        "evidence": [evidence_as_json(seen) for seen in change.evidence],
        "confirmed_by_spark": change.confirmed,
        "classified": change.classified,
        "writes": sorted(new),
        "diff": lines,
    }
    confirmed = {True: ", confirmed by Spark", False: ", Spark disagrees", None: ""}[change.confirmed]
    evidence = [f"  {evidence_words(seen)}" for seen in change.evidence]
    head = f"{change.action}: {facts.label} ({facts.code}){confirmed}"
    output.answer(body, lines=[head, *evidence, *(["", *lines] if lines else ())])
    return 0


def _edits(old: Mapping[TableName, Revision], new: Mapping[TableName, Revision]) -> list[str]:
    sides = [(was.texts, now.texts) for was, now in zip(old.values(), new.values(), strict=False)]
    pairs = [each for was, now in sides for each in zip(was.shown.values(), now.shown.values(), strict=True)]
    return [line for before, after in dict.fromkeys(pairs) for line in unified_diff(before, after)]


def _as_json(
    found: Sequence[ParsedStatement], prints: Sequence[Mapping[str, str | None]], problems: Sequence[Problem]
) -> dict[str, Any]:
    each = [_statement(parsed, hashes) for parsed, hashes in zip(found, prints, strict=True)]
    body: dict[str, Any] = {
        key: [value for one in each for value in one[key]] for key in ("writes", "reads", "operators", "columns")
    }
    body["stateful"] = any(one["stateful"] for one in each)
    body["fingerprints"] = each[0]["fingerprints"] if len(each) == 1 else {}
    order = ("writes", "reads", "stateful", "operators", "columns", "fingerprints")
    body = {key: body[key] for key in order} | {"problems": [problem.as_json() for problem in problems]}
    return body if len(each) < 2 else body | {"statements": each}


def _statement(parsed: ParsedStatement, hashes: Mapping[str, str | None]) -> dict[str, Any]:
    return {
        "writes": [str(parsed.writes)] if parsed.writes else [],
        "reads": [_read(read) for read in parsed.reads],
        "stateful": parsed.stateful,
        "operators": [{"kind": o.kind, "keys": list(o.keys), "detail": o.detail} for o in parsed.operators],
        "columns": [{"name": column.name, "expression": column.expression} for column in parsed.columns],
        "fingerprints": dict(hashes),
    }


def _read(read: TableRead) -> dict[str, Any]:
    watermark = read.watermark
    return {
        "table": str(read.table),
        "streaming": read.streaming,
        "options": dict(read.options),
        "source_name": read.source_name or None,
        "watermark": {"column": watermark.column, "delay": watermark.delay} if watermark else None,
    }


def _sheet(parsed: ParsedStatement, meaning: str) -> list[str]:
    lines = [f"writes  {parsed.writes or 'nothing'}  ({'keeps state' if parsed.stateful else 'keeps no state'})"]
    for read in parsed.reads:
        notes = [f"{key}={value}" for key, value in read.options]
        notes += [f"named {read.source_name}"] if read.source_name else []
        notes += [f"watermark {read.watermark.column} {read.watermark.delay}"] if read.watermark else []
        how = "STREAM" if read.streaming else "static"
        lines.append(f"reads   {how}  {read.table}" + (f"  ({', '.join(notes)})" if notes else ""))
    for operator in parsed.operators:
        keys = f" by {', '.join(operator.keys)}" if operator.keys else ""
        lines.append(f"keeps   {operator.kind}{keys}" + (f": {operator.detail}" if operator.detail else ""))
    columns = format_table(("COLUMN", "EXPRESSION"), [(column.name, column.expression) for column in parsed.columns])
    return [*lines, *(f"  {line}" for line in columns), f"meaning {meaning[:16]}", ""]
