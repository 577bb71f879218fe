"""Checks of table settings: keys, streams of keyed tables, `schema_tracking`, `checks`, and settings about the outside.

A setting that Spark or Delta could not apply is reported as a Problem at its line in the yml file.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from core.model.names import TableName
from core.model.problems import Problem, Severity, Where
from core.model.table_formats import TABLE_FORMATS, table_format
from core.project.model import Table
from core.project_reader.table_yml import check_entries
from core.project_reader.yaml_reader import read_yaml
from core.sql.statement import TableRead, line_of, selects_star, with_change_feeds
from core.text.wording import did_you_mean

_UNORDERED = ("map<", "variant", "struct<", "array<")
_TEXT = ("string", "varchar(", "char(", "binary")
_INEXACT = ("float", "real", "double")
_OURS = "headgate_"
"""Prefix of the columns that Headgate temporarily adds to the rows of a batch while writing them."""
_FIRST_ONLY = ("skipchangecommits", "ignorechanges")
_SAYS = (*_FIRST_ONLY, "readchangefeed")
"""Options with which the SQL itself determines which changes a stream reads."""

_RECORDED = "TBLPROPERTIES ('delta.enableChangeDataFeed'='true') in its DDL, where its log says so"
"""What the DDL of an external table must declare so that a stream can read the table's changes."""

CHANGES, ROWS = "changes", "rows"
"""Values of `reads` that determine what STREAM reads from a keyed table."""


def check_keyed(tables: Mapping[TableName, Table], yml: Mapping[TableName, str], problems: list[Problem]) -> None:
    """Report keyed tables that cannot be written as declared, and streams of keyed tables that would fail in Spark.

    `yml` contains the path of each table's yml file.
    """
    for table in tables.values():
        if table.settings.upserts and not table.external:
            path = yml.get(table.name, "")
            for name, summary, remedy in _wrong_table(table):
                where = Where(path, _line_of(table.settings_text, name))
                problems.append(Problem(f"{table.name} {summary}", remedy, where, table.name))
            for name, summary, remedy in _doubtful_table(table):
                where = Where(path, _line_of(table.settings_text, name))
                problems.append(
                    Problem(f"{table.name} {summary}", remedy, where, table.name, severity=Severity.WARNING)
                )
        _check_streams(table, tables, yml.get(table.name, ""), problems)


def with_changes(tables: dict[TableName, Table], among: Mapping[TableName, Table]) -> dict[TableName, Table]:
    """Return the tables, each with `changes_of` set to the keyed tables whose changes its statement streams.

    A statement with `reads: rows` streams no changes. The changes of an external table, which may also be append-only,
    are streamed only with `reads: changes`. `among` contains the tables that the statements read.
    """
    return {name: _with_changes(table, among) for name, table in tables.items()}


def _with_changes(table: Table, among: Mapping[TableName, Table]) -> Table:
    if table.parsed is None:
        return table
    implied = {
        str(read.table)
        for read in table.parsed.reads
        if read.streaming and (parent := among.get(read.table)) is not None
        if _replaces(parent) or (parent.external and table.settings.reads == CHANGES and _records_changes(parent))
        if table.settings.reads != ROWS and not any(name.lower() in _SAYS for name, _ in read.options)
    }
    if not implied and not table.settings.changes_of:
        return table
    settings = replace(table.settings, changes_of=tuple(sorted(implied)))
    return replace(table, settings=settings, parsed=with_change_feeds(table.parsed, implied))


def _check_streams(table: Table, tables: Mapping[TableName, Table], yml: str, problems: list[Problem]) -> None:
    """Report each stream that would fail in Spark, at its line in the SQL or, if a setting is the cause, in the yml."""
    section = read_yaml(table.settings_text, yml, [])
    asked = section.lines if section is not None else {}
    if "changes_of" in asked:
        words = f"{table.name} says whose changes it takes, which follows from what it streams"
        problems.append(Problem(words, "leave out changes_of", Where(yml, asked["changes_of"]), table.name))
    if table.parsed is None or table.dml is None:
        return
    streams = [(read, tables[read.table]) for read in table.parsed.reads if read.streaming and read.table in tables]
    if asked.get("reads") and table.settings.reads == CHANGES and not any(read.takes_changes for read, _ in streams):
        words, remedy = (
            f"{table.name} takes changes, and nothing that it streams records any",
            "leave out reads: changes",
        )
        inputs = (parent for _, parent in streams if parent.external)
        if logged := [each.name for each in inputs if table_format(each.parsed_ddl.format).transaction_log]:
            remedy += f", or declare that {logged[0]} does: {_RECORDED}"
        problems.append(Problem(words, remedy, Where(yml, asked["reads"]), table.name))
    for read, parent in streams:
        if wrong := _wrong_stream(read, table, parent):
            place = Where(table.dml.path, line_of(table.dml.text, table.parsed, read.start))
            if table.settings.reads == ROWS and not read.takes_changes and asked.get("reads"):
                place = Where(yml, asked["reads"])
            problems.append(Problem(wrong[0], wrong[1], place, read.table))


def _wrong_table(table: Table) -> Iterator[tuple[str, str, str]]:
    """Yield each mistake in the settings of a keyed table as (yml key, summary, remedy)."""
    settings, ddl = table.settings, table.parsed_ddl
    if not table_format(ddl.format).keyed:
        able = " or ".join(name for name, each in TABLE_FORMATS.items() if each.keyed)
        yield "mode", f"is {ddl.format}, whose rows have no key", f"write USING {able}, or leave out mode: upsert"
    kinds = {column.name.lower(): column.type.lower() for column in ddl.columns}
    named = [("key", name) for name in settings.key] + [("sequence", settings.sequence)] * bool(settings.sequence)
    for where, name in named:
        kind = kinds.get(name.lower())
        if kind is None:
            near = did_you_mean(name, kinds) or f"columns: {', '.join(kinds)}"
            yield where, f"has no column {name}, which is its {where}", near
        elif kind.startswith("char("):
            words = f"has the {where} {name}, which is {kind}: Delta's MERGE cannot compare it"
            yield where, words, "declare it as STRING or VARCHAR"
        elif kind.startswith(_UNORDERED):
            words = f"has the {where} {name}, which is {kind} and cannot be compared"
            yield where, words, f"take a column of a plain type: {', '.join(_plain(kinds))}"
    for name in (name for name in kinds if name.startswith(_OURS)):
        yield "mode", f"has a column {name}: its writer takes names with {_OURS} itself", "give it another name"
    if settings.deletes and not settings.sequence:
        words = "deletes rows and has no sequence: a row that comes late would bring a deleted key back"
        yield "deletes", words, "name the column that orders the rows of a key: sequence: changed_at"
    if settings.deletes and settings.sequence.lower() in {name.lower() for name in settings.key}:
        words = f"has the sequence {settings.sequence}, which is in its key: all rows of a key have the same"
        yield "sequence", words, "name another column, which says which row of a key is newer"
    if len({name.lower() for name in settings.key}) < len(settings.key):
        yield "key", "names a column of its key twice", "name each column once"
    if settings.deletes:
        for summary, remedy in _wrong_condition(table):
            yield "deletes", f"has a wrong condition for deletes: {summary}", remedy


def _doubtful_table(table: Table) -> Iterator[tuple[str, str, str]]:
    """Yield each probable mistake in the settings of a keyed table as (yml key, summary, remedy)."""
    settings = table.settings
    kinds = {column.name.lower(): column.type.lower() for column in table.parsed_ddl.columns}
    if not settings.sequence:
        words = "has no sequence: two rows of a key in one batch, as a rebuild reads them, end it"
        yield "mode", words, "name the column that says which row is newer: sequence: changed_at"
    elif (kind := kinds.get(settings.sequence.lower(), "")).startswith(_TEXT):
        words = f"has the sequence {settings.sequence}, which is {kind}: '10' is older than '9' there"
        yield "sequence", words, "declare it as TIMESTAMP or BIGINT; only text of one length, as ISO dates are, will do"
    for name in settings.key:
        if (kind := kinds.get(name.lower(), "")) in _INEXACT:
            words = f"has the key {name}, which is {kind}: a value that is computed in two ways is two keys"
            yield "key", words, "take a whole number, DECIMAL or STRING, which are compared exactly"


def _plain(kinds: Mapping[str, str]) -> list[str]:
    return [name for name, kind in kinds.items() if not kind.startswith((*_UNORDERED, "char("))]


def _wrong_condition(table: Table) -> Iterator[tuple[str, str]]:
    # The parser is loaded only where a project has such a condition.
    from core.sql.analysis_safety import unsafe_for_analysis
    from core.sql.expression_properties import condition_fault
    from core.sql.lineage.statement_lineage import lineage_of
    from core.sql.statement_reader import read_any

    sql = f"SELECT * FROM {table.name} WHERE ({table.settings.deletes}\n)"
    found, problems = read_any(sql, "")
    if found and (unsafe := unsafe_for_analysis(sql)) is not None:
        yield str(unsafe), "write a condition over the columns"
    elif problems:
        yield _at_its_end(problems[0], sql)
    elif not _closes(table.settings.deletes):
        yield "its brackets do not close", "write a condition over the columns"
    elif [read.table for read in found[0].reads] != [table.name]:
        yield "it reads a table", "write a condition over the columns"
    elif no_condition := condition_fault(
        table.settings.deletes, {column.name.lower(): column.type.lower() for column in table.parsed_ddl.columns}
    ):
        yield str(no_condition), "write a comparison, for example name IS NULL"
    else:
        for each in lineage_of(found[0], lambda name: table.parsed_ddl.columns).unresolved:
            if each.lacking:
                near = did_you_mean(each.name, each.known) or f"columns: {', '.join(each.known)}"
                yield f"{each.name} is no column", near


def _at_its_end(problem: Problem, sql: str) -> tuple[str, str]:
    if problem.where is not None and problem.where.line > sql.count("\n"):
        summary = problem.summary.replace("at `)`", "at its end")
        return summary, "complete the condition"
    return problem.summary, problem.remedy.replace("what starts here", "it")


def _closes(condition: str) -> bool:
    """True if the brackets of a condition are balanced, so that it can be embedded in SQL."""
    from core.sql.tokens.lexer import open_sql, tokens_of

    depth = 0
    for token in tokens_of(open_sql(condition, "")):
        depth += (token.text == "(") - (token.text == ")")
        if depth < 0:
            return False
    return depth == 0


def _wrong_stream(read: TableRead, table: Table, parent: Table) -> tuple[str, str] | None:
    if read.takes_changes and not _records_changes(parent):
        summary = f"{table.name} streams the changes of {read.table}, which records none"
        if parent.external:
            return summary, f"leave out readChangeFeed, or declare that it does: {_RECORDED}"
        return summary, f"leave out readChangeFeed, or have {read.table} record them: mode: upsert"
    if not _replaces(parent) and not (parent.external and read.takes_changes):
        return None
    if any(name.lower() in _FIRST_ONLY for name, _ in read.options):
        return None
    if not read.takes_changes:
        return (
            f"{table.name} streams the rows of {read.table}, which replaces rows by key: Spark ends it at an update",
            f"take its changes: leave out {_rows_by(table)}, and choose by _change_type",
        )
    if table.parsed is not None and "_change_type" not in table.parsed.select.lower():
        return (
            f"{table.name} streams the changes of {read.table} and does not say which",
            "choose by _change_type: insert, update_preimage, update_postimage or delete",
        )
    return None


def _replaces(parent: Table) -> bool:
    """True if rows of a table are replaced by key; an external table also has to record its changes."""
    return parent.settings.upserts and (not parent.external or _records_changes(parent))


def _rows_by(table: Table) -> str:
    return "reads: rows" if table.settings.reads == ROWS else "readChangeFeed"


def _records_changes(parent: Table) -> bool:
    recorded = table_format(parent.parsed_ddl.format).keyed_properties
    said = {name.lower(): value.lower() for name, value in parent.parsed_ddl.properties}
    itself = "true" if parent.settings.upserts and not parent.external else ""
    return bool(recorded) and all(said.get(name.lower(), itself) == value for name, value in recorded)


def _line_of(text: str, name: str) -> int:
    section = read_yaml(text, "", [])
    return section.lines.get(name, 1) if section is not None else 1


_WRONG = {
    "no stream": (
        "tracks columns, and streams no table on Delta: no other format has a log of them",
        "leave out schema_tracking",
    ),
    "twice": (
        "tracks columns and streams {table} twice, which Spark refuses",
        "stream it once, or leave out schema_tracking",
    ),
    "one place": (
        "tracks columns and streams one table twice, as {table}, which Spark refuses",
        "stream it under one name, once, or leave out schema_tracking",
    ),
    "star": (
        "tracks columns and says *: one that is dropped from what it streams would be NULL from then on",
        "name its columns, or leave out schema_tracking",
    ),
}
"""Why schema tracking is impossible: summary (to follow the table's name) and remedy (Delta 4.4.0).

A WITH query that is used several times is allowed, because Spark reads its streams only once.
"""

_FILE = re.compile("^file:/+")
"""Matches the URI prefix of a path."""


def with_schema_tracking(tables: dict[TableName, Table], among: Mapping[TableName, Table]) -> dict[TableName, Table]:
    """Return the tables, with schema tracking turned off if their statements do not support it.

    A project's default thus applies only to statements that can track schemas. `among` contains the tables that the
    statements read.
    """
    return {
        name: replace(table, settings=replace(table.settings, schema_tracking=False))
        if table.settings.schema_tracking and _in_the_way(table, among)[0]
        else table
        for name, table in tables.items()
    }


def check_schema_tracking(
    tables: Mapping[TableName, Table], yml: Mapping[TableName, str], problems: list[Problem]
) -> None:
    """Report each table whose yml requests schema tracking although its statement does not support it."""
    for table in tables.values():
        if "schema_tracking" not in table.settings_text:
            continue
        path = yml.get(table.name, "")
        section = read_yaml(table.settings_text, path, [])
        if section is None or not section.flag("schema_tracking", default=False):
            continue
        what, about = _in_the_way(table, tables)
        if what:
            summary, remedy = _WRONG[what]
            where = Where(path, section.lines["schema_tracking"])
            problems.append(Problem(f"{table.name} {summary.format(table=about)}", remedy, where, table.name))


def _in_the_way(table: Table, among: Mapping[TableName, Table]) -> tuple[str, str]:
    """Return why a statement cannot track schemas, as a key of `_WRONG` (empty if it can), and the table concerned."""
    if table.parsed is None:
        return "no stream", table.name
    streams = [
        read.table
        for read in table.parsed.reads
        if read.streaming and (parent := among.get(read.table)) is not None
        if table_format(parent.parsed_ddl.format).transaction_log
    ]
    if not streams:
        return "no stream", table.name
    if twice := [name for name in streams if streams.count(name) > 1]:
        return "twice", twice[0]
    names: dict[str, list[str]] = {}
    for name in streams:
        if place := _FILE.sub("/", among[name].parsed_ddl.location).rstrip("/"):
            names.setdefault(place, []).append(name)
    if one := [each for each in names.values() if len(each) > 1]:
        return "one place", " and ".join(one[0])
    return ("star" if selects_star(table.parsed) else "", table.name)


def check_queries(tables: Mapping[TableName, Table], yml: Mapping[TableName, str], problems: list[Problem]) -> None:
    """Report each query in `checks:` that could not run on the declared tables.

    `yml` contains the path of each table's yml file.
    """
    seen: set[str] = set()
    for table in tables.values():
        path = yml.get(table.name, "")
        if not table.settings.checks or path in seen:
            continue
        seen.add(path)
        unit = {each.name for each in tables.values() if yml.get(each.name) == path}
        for name, sql in table.settings.checks:
            for summary, remedy in _wrong_query(sql, unit, tables):
                where = Where(path, _line_of_check(table.settings_text, name))
                problems.append(Problem(f"check {name} of {table.name}: {summary}", remedy, where, table.name))


def _wrong_query(sql: str, unit: set[TableName], tables: Mapping[TableName, Table]) -> Iterator[tuple[str, str]]:
    # The parser is loaded only where a project has checks.
    from core.sql.analysis_safety import unsafe_for_analysis
    from core.sql.lineage.statement_lineage import lineage_of
    from core.sql.statement_reader import read_any

    found, problems = read_any(sql, "")
    if found and (unsafe := unsafe_for_analysis(sql)) is not None:
        yield str(unsafe), "write one SELECT over the table"
        return
    if problems:
        yield problems[0].summary, problems[0].remedy
        return
    reads = found[0].reads
    if any(read.streaming for read in reads):
        yield "it streams", "leave out STREAM: a check is a batch query"
    if not unit & {read.table for read in reads}:
        yield f"it does not read {', '.join(sorted(unit))}", "select from the table whose yml it is in"
    unknown = sorted({read.table for read in reads} - tables.keys())
    for name in unknown:
        yield f"it reads {name}, which no DDL declares", did_you_mean(name, tables) or "read declared tables"
    if not unknown:
        for each in lineage_of(found[0], lambda name: tables[name].parsed_ddl.columns).unresolved:
            if each.lacking:
                near = did_you_mean(each.name, each.known) or f"columns: {', '.join(each.known)}"
                yield f"{each.name} is no column of {', '.join(each.lacking)}", near


def _line_of_check(text: str, name: str) -> int:
    section = read_yaml(text, "", [])
    entries = check_entries(section.value("checks")) if section is not None else ()
    return next((line for found, _, line in entries if found == name), 1)


def check_topics_written(
    tables: Mapping[TableName, Table], yml: Mapping[TableName, str], problems: list[Problem]
) -> None:
    """Report settings that a written topic cannot have, and warn of a topic without a declared key."""
    for table in tables.values():
        if not table.written_topic():
            continue
        path, kinds = yml.get(table.name, ""), {column.name.lower() for column in table.parsed_ddl.columns}
        for name in table.settings.key:
            if name.lower() not in kinds:
                near = did_you_mean(name, kinds) or f"columns: {', '.join(sorted(kinds))}"
                where = Where(path, _line_of(table.settings_text, "key"))
                problems.append(
                    Problem(f"{table.name} has no column {name}, which is its key", near, where, table.name)
                )
        if table.settings.checks:
            where = Where(path, _line_of(table.settings_text, "checks"))
            problems.append(
                Problem(
                    f"{table.name} has checks, and a topic cannot be queried", "leave out checks", where, table.name
                )
            )
        if not table.settings.key:
            summary = f"{table.name} writes a topic at least once, and names no key by which readers can deduplicate"
            remedy, where = "name its columns in the yml: key: [id]", Where(table.ddl.path, table.parsed_ddl.line)
            problems.append(Problem(summary, remedy, where, table.name, severity=Severity.WARNING))


def check_outside_settings(
    tables: Mapping[TableName, Table], yml: Mapping[TableName, str], problems: list[Problem]
) -> None:
    """Report settings about topics and databases that have no effect, and statements that share a consumer group.

    `yml` contains the path of each table's yml file, which several tables of a folder may share.
    """
    keys = ("payload", "mirror_offsets", "connector", "silence", "compatibility", "metadata")
    lines = {
        table.name: section.lines
        for table in tables.values()
        if any(key in table.settings_text for key in keys)
        if (section := read_yaml(table.settings_text, "", [])) is not None
    }
    units: dict[str, list[Table]] = {}
    for table in tables.values() if lines else ():
        units.setdefault(yml.get(table.name, ""), []).append(table)
    topics = {name: streamed_topics(tables[name], tables) for name in lines if tables[name].settings.mirror_offsets}
    first: dict[tuple[str, str, str], TableName] = {}
    for name, at in lines.items():
        path = yml.get(name, "")
        unit = units[path]
        if "payload" in at and all(_has_files(each) for each in unit):
            summary = f"payload: {name} has neither messages nor rows of a database that could be hidden"
            problems.append(Problem(summary, "leave out payload", Where(path, at["payload"]), name))
        for key in ("connector", "silence"):
            if key in at and not any(each.external and _over_topics(each) for each in unit):
                summary = f"{key}: {name} is no external table over topics"
                problems.append(Problem(summary, f"leave out {key}", Where(path, at[key]), name))
        if "compatibility" in at and all(each.external for each in unit):
            summary = f"compatibility: {name} is external, and Headgate does not edit its columns"
            problems.append(Problem(summary, "leave out compatibility", Where(path, at["compatibility"]), name))
        if "metadata" in at and all(each.external for each in unit):
            summary = f"metadata: {name} is external, and no statement here writes its rows"
            problems.append(Problem(summary, "leave out metadata", Where(path, at["metadata"]), name))
        if name not in topics:
            continue
        group, where = tables[name].settings.mirror_offsets, Where(path, at.get("mirror_offsets", 1))
        if not any(topics.get(each.name) for each in unit):
            problems.append(
                Problem(f"mirror_offsets: {name} streams no topic", "leave out mirror_offsets", where, name)
            )
        for server, topic in topics[name]:
            other = first.setdefault((group, server, topic), name)
            if other != name:
                summary = f"mirror_offsets: {name} and {other} commit offsets of topic {topic} to one group, {group}"
                problems.append(Problem(summary, "give each statement a group of its own", where, name))


def _has_files(table: Table) -> bool:
    return table_format(table.parsed_ddl.format).has_files


def _over_topics(table: Table) -> bool:
    return table_format(table.parsed_ddl.format).topics


def streamed_topics(table: Table, tables: Mapping[TableName, Table]) -> list[tuple[str, str]]:
    """Return each topic that a statement streams as (broker, topic), once for each broker, sorted."""
    from core.sql.kafka_topics import topics_by_server

    reads = table.parsed.reads if table.parsed is not None else ()
    parents = [tables[read.table].parsed_ddl for read in reads if read.streaming and read.table in tables]
    locations = [ddl.location for ddl in parents if table_format(ddl.format).topics and ddl.location]
    return sorted({each for location in locations for each in topics_by_server(location)})
