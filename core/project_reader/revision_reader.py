"""Creation of a statement's revision, from a declared table or by parsing deployed SQL and YAML."""

from dataclasses import replace

from core.model.names import TableName
from core.model.problems import Problem, Severity
from core.project.model import Settings, Table
from core.project.revision import Revision, RevisionTexts
from core.project_reader.parse_cache import ParseCache
from core.project_reader.table_yml import settings_as_text
from core.sql.statement import with_change_feeds


def revision_of(table: Table) -> Revision:
    """Return a declared table's revision; its yml contains all settings, completed by the project's defaults."""
    texts = RevisionTexts(table.ddl.text, table.dml.text if table.dml else "", settings_as_text(table.settings))
    if table.variables or table.functions:
        written = RevisionTexts(
            table.ddl.as_written,
            table.dml.as_written if table.dml else "",
            settings_as_text(table.settings, table.written_settings),
            functions=tuple((name, script.as_written) for name, script in table.functions),
        )
        functions = tuple((name, script.text) for name, script in table.functions)
        texts = replace(texts, variables=table.variables, written=written, functions=functions)
    return Revision(table.name, texts, table.parsed, table.parsed_ddl, table.settings)


def read_revision(
    table: TableName, texts: RevisionTexts, defaults: Settings, parse_cache: ParseCache | None = None
) -> Revision | None:
    """Parse deployed SQL and YAML into a revision; return None if they are invalid.

    A yml without a trigger was written by an older version; the settings that it lacks have the current defaults.
    """
    problems: list[Problem] = []
    parse_cache = parse_cache or ParseCache()
    if "trigger:" in texts.yml:
        # This yml was written by `settings_as_text`, which omits these settings if they have Headgate's own defaults.
        own = Settings()
        defaults = replace(defaults, reads=own.reads, payload=own.payload, metadata=own.metadata)
    settings = parse_cache.settings(texts.yml, f"{table}.yml", defaults, problems)
    _, ddl, wrong = parse_cache.ddl(texts.ddl, f"ddl.{table}.sql")
    if ddl is None or _has_error((*problems, *wrong)):
        return None
    if not texts.dml.strip():
        return Revision(table, texts, None, ddl, settings)
    statements, wrong = parse_cache.statements(
        texts.dml, f"dml.{table}.sql", every_table_streams=settings.every_table_streams
    )
    parsed = next((statement for statement in statements if statement.writes == table), None)
    if parsed is None or _has_error(wrong):
        return None
    return Revision(table, texts, with_change_feeds(parsed, settings.changes_of), ddl, settings)


def _has_error(problems: tuple[Problem, ...]) -> bool:
    return any(problem.severity is Severity.ERROR for problem in problems)
