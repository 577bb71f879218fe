"""A statement as declared or as deployed: its texts, what they say, and what it runs on where that is known."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from core.facts import Facts
from core.fingerprint import revision_hash
from core.layouts.settings import settings_as_text
from core.names import TableName
from core.plan import Texts
from core.problems import Problem, Severity
from core.project import Pool, Settings, Table
from core.sql.values import Parsed, TableDdl


@dataclass(frozen=True, slots=True)
class Revision:
    """A statement as declared or as deployed; `parsed` None exactly when it is an external table."""

    table: TableName
    texts: Texts
    parsed: Parsed | None
    ddl: TableDdl
    settings: Settings = field(default_factory=Settings)
    pool: Pool | None = None
    """What it runs on, with its configuration; None where that is not known, and then nothing is said of it."""
    engine: str = ""
    """Version of Spark, `4.2.0`; empty where it is not known."""
    parents: Mapping[TableName, tuple[str, ...]] = field(default_factory=dict)
    """Columns of the tables that it reads, in lower case; a table that is not there is not known."""

    @property
    def hash(self) -> str:
        """Identity of the texts, line endings aside."""
        return revision_hash(self.texts)


def revision_of(table: Table) -> Revision:
    """Give a declared table's revision; its yml is the settings with the project's defaults filled in."""
    texts = Texts(table.ddl.text, table.dml.text if table.dml else "", settings_as_text(table.settings))
    return Revision(table.name, texts, table.facts, table.ddl_facts, table.settings)


def read_revision(table: TableName, texts: Texts, defaults: Settings, facts: Facts | None = None) -> Revision | None:
    """Read deployed texts again; None when they cannot be read. An older yml is read over today's defaults."""
    problems: list[Problem] = []
    facts = facts or Facts()
    if "trigger:" in texts.yml:
        # `settings_as_text` wrote it: it names the trigger always and `reads` only where every table streams.
        defaults = replace(defaults, reads=Settings().reads)
    settings = facts.settings(texts.yml, f"{table}.yml", defaults, problems)
    _, ddl, wrong = facts.ddl(texts.ddl, f"ddl.{table}.sql")
    if ddl is None or _has_error((*problems, *wrong)):
        return None
    if not texts.dml.strip():
        return Revision(table, texts, None, ddl, settings)
    statements, wrong = facts.statements(
        texts.dml, f"dml.{table}.sql", every_table_streams=settings.every_table_streams
    )
    parsed = next((statement for statement in statements if statement.writes == table), None)
    return None if parsed is None or _has_error(wrong) else Revision(table, texts, parsed, ddl, settings)


def removed_columns(old: Revision, new: Revision) -> tuple[str, ...]:
    """Give the columns that readers of the old revision could name and readers of the new one cannot."""
    kept = {column.name.lower() for column in new.ddl.columns}
    return tuple(column.name.lower() for column in old.ddl.columns if column.name.lower() not in kept)


def _has_error(problems: tuple[Problem, ...]) -> bool:
    return any(problem.severity is Severity.ERROR for problem in problems)
