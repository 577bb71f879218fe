"""The declared project as frozen values, read from texts by `core.project_reader`."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from core.model.names import TableName
from core.policy.model import Policy
from core.sql.statement import ParsedStatement, TableDdl


class Layer(StrEnum):
    """The layer of a table, determined by its folder."""

    SOURCE = "source"
    INTERMEDIATE = "intermediate"
    DIMENSION = "dimension"
    FACT = "fact"
    VIEW = "view"


def layer_place(layer: str) -> tuple[int, str]:
    """Return a sort key from sources to views; unknown layers come last, by name."""
    places = [str(one) for one in Layer]
    return (places.index(layer) if layer in places else len(places)), layer


LAYER_FOLDERS = {
    "sources": Layer.SOURCE,
    "intermediates": Layer.INTERMEDIATE,
    "dimensions": Layer.DIMENSION,
    "facts": Layer.FACT,
    "views": Layer.VIEW,
}
"""Folder below `pipelines/` → layer, sources first, which is the display order."""


@dataclass(frozen=True, slots=True)
class Script:
    """A SQL text of the project, as in its file."""

    path: str
    """Relative to the project folder, with forward slashes."""
    text: str


APPEND, UPSERT = "append", "upsert"
"""Modes of a table: how a statement writes its rows."""


@dataclass(frozen=True, slots=True)
class Settings:
    """`<table>.yml`, with the project's defaults filled in."""

    trigger: str = "10 seconds"
    """Spark's processing-time interval."""
    mode: str = "append"
    """`append`, or `upsert`: the last row of each key replaces earlier ones."""
    key: tuple[str, ...] = ()
    sequence: str = ""
    """For upserts: the column that decides which of two rows with one key is newer."""
    deletes: str = ""
    """For upserts: a condition over the columns under which a row deletes its key."""
    owner: str = ""
    runbook: str = ""
    objective: str = ""
    """Maximum wait of its oldest input, as a Spark interval; empty for the default in `core.lag.faults`."""
    description: str = ""
    tags: tuple[str, ...] = ()
    reads: str = "batch"
    """`stream` reads tables without STREAM as streams too. Of a keyed table a stream reads the changes, or with `rows`
    its rows.
    """
    changes_of: tuple[str, ...] = ()
    """Keyed tables whose change feed the statement streams implicitly; set by the project's loader, never read from a
    file.
    """
    schema_tracking: bool = False
    """Whether streams of Delta tables track their schema, and continue after renames and drops."""
    protect: bool = False
    """Whether its deletes and rebuilds need an approval, and changes in place are denied."""
    readers: tuple[str, ...] = ()
    """Exposures, `name` or `name (owner)`, sorted: readers outside Headgate that are notified of changes."""

    checks: tuple[tuple[str, str], ...] = ()
    """Queries (name, SQL) over the table that must return no row before a new version serves."""

    @property
    def outside_readers(self) -> tuple[tuple[str, str], ...]:
        """Return each reader outside Headgate with its owner, which may be empty."""
        parts = (reader.rstrip(")").partition(" (") for reader in self.readers)
        return tuple((name, owner) for name, _, owner in parts)

    @property
    def upserts(self) -> bool:
        """Return whether rows replace others by their key."""
        return self.mode == UPSERT

    @property
    def every_table_streams(self) -> bool:
        """Return whether STREAM may be omitted."""
        return self.reads == "stream"


@dataclass(frozen=True, slots=True)
class Table:
    """A declared table; without `dml` it is external: created and filled outside Headgate."""

    name: TableName
    product: str
    layer: Layer
    unit: TableName
    """The folder's table: statements of one unit are deployed, stopped and swapped together."""
    folder: str
    ddl: Script
    parsed_ddl: TableDdl
    dml: Script | None = None
    parsed: ParsedStatement | None = None
    """The statement; None exactly if the table is external."""
    settings: Settings = field(default_factory=Settings)
    settings_text: str = ""
    """The yml as written; empty if there is none."""

    @property
    def external(self) -> bool:
        """Return whether the table exists outside Headgate."""
        return self.parsed is None


@dataclass(frozen=True, slots=True)
class Pool:
    """A Spark Connect server as declared; without `url` it is the local child process of the agent."""

    name: str = "local"
    url: str | None = None
    cores: int = 2
    memory: str = "2g"
    conf: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Environment:
    """One environment of the project."""

    name: str
    protected: bool = False
    data: str = "data"
    """Folder of tables, checkpoints and landed files; relative to the project folder, or absolute."""
    prefix: str = ""
    """Prefix of every name in the catalog, so that environments can share a server."""
    pool: Pool = field(default_factory=Pool)
    plan_expires_h: float = 24.0
    drop_after_d: float = 7.0
    gate_ends_h: float = 24.0
    """Hours that a step of a run waits for its gate before it fails and the run asks."""
    soak_min: float = 0.0
    """Minutes for which a replaced version keeps running, so that a rollback takes seconds."""
    validate: bool = True
    """Whether a rebuilt table is compared with the serving version before its pointer moves."""
    objective: str = ""
    """For statements without an objective of their own; an interval as in `Settings.objective`."""
    policy: Policy = field(default_factory=Policy)
    """Its rules as declared; rules recorded by an agent take precedence."""

    def declared_policy(self, protected: Iterable[TableName]) -> Policy:
        """Return the rules with everything protected: the environment, and tables by name."""
        return replace(self.policy, protected=self.protected, protected_tables=tuple(sorted(protected)))


@dataclass(frozen=True, slots=True)
class Project:
    """Everything that a project folder declares."""

    id: str
    """UUID from headgate.yml."""
    name: str
    default_env: str
    environments: Mapping[str, Environment]
    tables: Mapping[TableName, Table]
    """Sorted by name."""
    defaults: Settings = field(default_factory=Settings)
    """Settings in headgate.yml for tables that do not override them."""
