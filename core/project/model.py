"""What is declared: the project as frozen values, read from texts by `core.project_reader`."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from core.model.names import TableName
from core.policy.model import Policy
from core.sql.statement import ParsedStatement, TableDdl


class Layer(StrEnum):
    """The kind of a table, by the folder it lies in."""

    SOURCE = "source"
    INTERMEDIATE = "intermediate"
    DIMENSION = "dimension"
    FACT = "fact"
    VIEW = "view"


def layer_place(layer: str) -> tuple[int, str]:
    """Return the key that sorts layers from sources to views; one that is none comes last, by name."""
    places = [str(one) for one in Layer]
    return (places.index(layer) if layer in places else len(places)), layer


LAYER_FOLDERS = {
    "sources": Layer.SOURCE,
    "intermediates": Layer.INTERMEDIATE,
    "dimensions": Layer.DIMENSION,
    "facts": Layer.FACT,
    "views": Layer.VIEW,
}
"""Folder below `pipelines/` to layer, sources first: the order in which people read them."""


@dataclass(frozen=True, slots=True)
class Script:
    """A SQL text of the project, as it stands in its file."""

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
    """`append`, or `upsert`: the last row of each key replaces the ones before."""
    key: tuple[str, ...] = ()
    sequence: str = ""
    """Of rows that are upserted: the column that says which of two rows of a key is newer."""
    deletes: str = ""
    """Of rows that are upserted: a condition over the columns, where a row deletes its key."""
    owner: str = ""
    runbook: str = ""
    objective: str = ""
    """How long its oldest input may wait, as Spark writes an interval; empty where `core.lag.faults` has the bound."""
    description: str = ""
    tags: tuple[str, ...] = ()
    reads: str = "batch"
    """`stream`: a table without STREAM is read as a stream too; else only STREAM is: of a keyed table its changes, or,
    with `rows`, its rows."""
    changes_of: tuple[str, ...] = ()
    """Keyed tables whose changes the statement streams without saying so; found by the project's loader, never read of
    a project's file."""
    schema_tracking: bool = False
    """Whether streams of tables on Delta keep the columns that they have read, and go on over other names and drops."""
    protect: bool = False
    """Whether its deletes and rebuilds need an approval, and changes in place are denied."""
    readers: tuple[str, ...] = ()
    """Who reads the table outside of Headgate, `name` or `name (owner)`, sorted: they are told what changes."""

    checks: tuple[tuple[str, str], ...] = ()
    """Queries (name, SQL) over the table that must give no row before a new version of it serves."""

    @property
    def outside_readers(self) -> tuple[tuple[str, str], ...]:
        """Return each reader outside of Headgate with its owner, empty where none is named."""
        parts = (reader.rstrip(")").partition(" (") for reader in self.readers)
        return tuple((name, owner) for name, _, owner in parts)

    @property
    def upserts(self) -> bool:
        """Return whether rows replace others by their key."""
        return self.mode == UPSERT

    @property
    def every_table_streams(self) -> bool:
        """Return whether STREAM need not be written."""
        return self.reads == "stream"


@dataclass(frozen=True, slots=True)
class Table:
    """A declared table; without `dml` it is external: made and filled by others."""

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
    """What the statement reads, writes and keeps; None exactly when the table is external."""
    settings: Settings = field(default_factory=Settings)
    settings_text: str = ""
    """The yml as written, empty when there is none."""

    @property
    def external(self) -> bool:
        """Return whether the table exists without us."""
        return self.parsed is None


@dataclass(frozen=True, slots=True)
class Pool:
    """A Spark Connect server as declared: `url` None is the local child that the agent owns."""

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
    """Folder that holds tables, checkpoints and landed files; relative to the project folder, or absolute."""
    prefix: str = ""
    """Put before every name in the catalog, so that environments can share a server."""
    pool: Pool = field(default_factory=Pool)
    plan_expires_h: float = 24.0
    drop_after_d: float = 7.0
    gate_ends_h: float = 24.0
    """How long a step of a run waits for its gate, then it fails and the run asks."""
    soak_min: float = 0.0
    """Minutes for which a version goes on after another one has replaced it, so that a rollback takes seconds."""
    validate: bool = True
    """Whether a rebuilt table is compared with what serves before its pointer moves."""
    objective: str = ""
    """Of statements whose own settings declare none; an interval as in `Settings.objective`."""
    policy: Policy = field(default_factory=Policy)
    """Its rules as declared; what an agent has recorded is in force instead."""

    def declared_policy(self, protected: Iterable[TableName]) -> Policy:
        """Return the rules with what is protected: the environment, and tables by name."""
        return replace(self.policy, protected=self.protected, protected_tables=tuple(sorted(protected)))


@dataclass(frozen=True, slots=True)
class Project:
    """All that a folder declares."""

    id: str
    """UUID from headgate.yml."""
    name: str
    default_env: str
    environments: Mapping[str, Environment]
    tables: Mapping[TableName, Table]
    """Sorted by name."""
    defaults: Settings = field(default_factory=Settings)
    """What headgate.yml says for every table that does not say it itself."""
