"""`checks:` of a table's yml: queries over the table that must give no row before a new version of it serves."""

import re
from collections.abc import Iterator, Mapping

from core.model.names import TableName
from core.model.problems import Problem, Where
from core.project.model import Table
from core.project_reader.yaml_reader import YamlSection, YamlValue, read_yaml
from core.text.wording import did_you_mean

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_ .-]{0,79}\Z")
_FORM = 'write checks: [{name: no_negative_amounts, sql: "SELECT * FROM orders WHERE amount < 0"}]'
MOST_CHECKS = 50


def read_checks(section: YamlSection) -> tuple[tuple[str, str], ...]:
    """Read the checks as (name, query), in their order; what is not of their form is a Problem and left out."""
    found: dict[str, str] = {}
    for name, sql, line in _entries(section.value("checks")):
        if not name or not sql or not _NAME.match(name):
            _wrong(section, "a list of checks, each with a name and a query", line)
        elif name in found:
            _wrong(section, f"a list that names {name} once", line)
        else:
            found[name] = sql
    if section.name and "checks" in section.nodes:
        section.wrong("checks", "in the yml of the table that they check", "write checks: in <table>.yml")
        return ()
    if len(found) > MOST_CHECKS:
        section.wrong("checks", f"at most {MOST_CHECKS}", "put several conditions into one query")
    return tuple(found.items())


def check_queries(tables: Mapping[TableName, Table], yml: Mapping[TableName, str], problems: list[Problem]) -> None:
    """Report every check whose query cannot be run over its table and other declared tables; `yml` are the paths."""
    seen: set[str] = set()
    for table in tables.values():
        path = yml.get(table.name, "")
        if not table.settings.checks or path in seen:
            continue
        seen.add(path)
        unit = {each.name for each in tables.values() if yml.get(each.name) == path}
        for name, sql in table.settings.checks:
            for summary, remedy in _wrong_query(sql, unit, tables):
                where = Where(path, _line_of(table.settings_text, name))
                problems.append(Problem(f"check {name} of {table.name}: {summary}", remedy, where, table.name))


def checked_tables(sql: str) -> frozenset[TableName]:
    """Return the tables that a check reads."""
    from core.sql.statement_reader import read_any

    found, _ = read_any(sql, "")
    return frozenset(read.table for each in found for read in each.reads)


def _wrong_query(sql: str, unit: set[TableName], tables: Mapping[TableName, Table]) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a query, as summary and remedy."""
    # The parser is loaded only where a project has checks.
    from core.sql.analysis_safety import unsafe_for_analysis
    from core.sql.lineage.statement_lineage import lineage_of
    from core.sql.statement_reader import read_any

    found, problems = read_any(sql, "")
    if found and (unsafe := unsafe_for_analysis(sql)):
        yield unsafe, "write one SELECT over the table"
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


def _line_of(text: str, name: str) -> int:
    section = read_yaml(text, "", [])
    entries = _entries(section.value("checks")) if section is not None else ()
    return next((line for found, _, line in entries if found == name), 1)


def _entries(value: YamlValue | None) -> Iterator[tuple[str, str, int]]:
    """Yield name, query and line of each entry; empty texts where it has another form."""
    if value is None or (value.text is None and value.items is None and value.pairs is None):
        return
    for item in value.items if value.items is not None else (value,):
        pairs = {str(key.text): each for key, each in item.pairs or ()}
        name, sql = (pairs[key].text or "" if key in pairs else "" for key in ("name", "sql"))
        line = pairs["sql"].line if "sql" in pairs else item.line
        yield (name, sql, line) if set(pairs) == {"name", "sql"} else ("", "", item.line)


def _wrong(section: YamlSection, expected: str, line: int) -> None:
    section.problems.append(Problem(f"checks must be {expected}", _FORM, Where(section.path, line), "checks"))
