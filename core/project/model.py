"""The declared project as frozen values, which `core.project_reader` creates from the project's files."""

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import urlsplit

from core.model.names import TableName
from core.model.problems import Problem, Where, in_reading_order
from core.model.secret_references import SecretReference
from core.model.table_formats import table_format
from core.policy.roles_and_rules import Policy
from core.project.naming import DECLARED, OWN_SOURCES, Naming, Sources
from core.project.resources import UNLIMITED, Amounts, PoolClass
from core.sql.statement import ParsedStatement, TableDdl
from core.text.secret_masking import mask_secrets

if TYPE_CHECKING:
    from core.project.variables import Variable


class Layer(StrEnum):
    """The layer of a table, which follows from the table's folder."""

    SOURCE = "source"
    INTERMEDIATE = "intermediate"
    DIMENSION = "dimension"
    FACT = "fact"
    VIEW = "view"


def layer_place(layer: str) -> tuple[int, str]:
    """Return a sort key that orders layers from sources to views; unknown layers follow, by name."""
    places = [str(one) for one in Layer]
    return (places.index(layer) if layer in places else len(places)), layer


LAYER_FOLDERS = {
    "sources": Layer.SOURCE,
    "intermediates": Layer.INTERMEDIATE,
    "dimensions": Layer.DIMENSION,
    "facts": Layer.FACT,
    "views": Layer.VIEW,
}
"""Maps each folder below `pipelines/` to its layer, in display order, which starts with the sources."""


@dataclass(frozen=True, slots=True)
class TextPart:
    """The lines of a generated text from one of them on, and the lines of a file from which they were generated."""

    line: int
    """First line of the part in the text, counted from 1; the part ends where the next one begins."""
    path: str
    """The file, relative to the project folder, with forward slashes."""
    file_line: int
    columns: int = 0
    """How many columns further to the right the file has the text."""
    follows: bool = True
    """Whether the lines of the file follow those of the text; otherwise, all of them are on `file_line`."""

    def at(self, line: int, column: int = 0) -> Where:
        """Return where the file has a position of the text."""
        if not self.follows:
            return Where(self.path, self.file_line)
        return Where(self.path, self.file_line + line - self.line, column + self.columns if column else 0)


def place_in_parts(parts: Sequence[TextPart], where: Where) -> Where:
    """Return where a position of a generated text was written; `parts` are in order, and not empty."""
    at = bisect_right(parts, where.line, key=lambda part: part.line)
    return parts[max(0, at - 1)].at(max(where.line, parts[0].line), where.column)


@dataclass(frozen=True, slots=True)
class Script:
    """A SQL file of the project, or SQL that was generated from parts of other files."""

    path: str
    """Path relative to the project folder, with forward slashes; a generated script has it only among the texts."""
    text: str
    """The content, in which values have replaced the variables, and bodies the calls of the project's functions.

    A DDL also has the metadata columns of the table.
    """
    written: str | None = None
    """The unchanged content; None if `text` is unchanged."""
    parts: tuple[TextPart, ...] = ()
    """Where the lines of a generated script were written; empty for a file."""

    def at(self, line: int) -> Where:
        """Return where a line of the script was written."""
        where = Where(self.path, line)
        return place_in_parts(self.parts, where) if self.parts else where

    @property
    def file(self) -> str:
        """Path of the file in which the script, or the last part of it, was written."""
        return self.parts[-1].path if self.parts else self.path

    @property
    def as_written(self) -> str:
        """The unchanged content."""
        return self.text if self.written is None else self.written


@dataclass(frozen=True, slots=True)
class DeclaredFunction:
    """A function that the statements of a project, or of one of its folders, can call."""

    name: str
    script: Script
    scope: str
    """The folder whose tables can call it; empty for all tables."""
    parameters: tuple[tuple[str, str], ...]
    """Names and types of the parameters, in order."""
    returns: str
    line: int
    """The line of the file that declares the name."""
    calls: tuple[str, ...] = ()
    """Paths of the functions that its body calls, directly or not, sorted."""
    columns: tuple[tuple[str, str], ...] = ()
    """Names and types of the columns of the rows that it returns; empty if it returns a value."""

    @property
    def signature(self) -> str:
        """The name with the parameters and their types, and the type of the result."""
        return f"{self.name}({', '.join(f'{name} {type}' for name, type in self.parameters)}) → {self.result}"

    @property
    def result(self) -> str:
        """The type of the result, which is `table (…)` with the columns if it returns rows."""
        if not self.columns:
            return self.returns
        return f"table ({', '.join(f'{name} {type}' for name, type in self.columns)})"


APPEND, UPSERT = "append", "upsert"
"""Modes of a table, which determine how a statement writes its rows."""

SHOWN, HIDDEN = "shown", "hidden"
"""Values of `payload`."""


class Compatibility(StrEnum):
    """Which edits of a table's columns its readers allow, by the definitions of Confluent's Schema Registry."""

    NONE = "none"
    BACKWARD = "backward"
    FORWARD = "forward"
    FULL = "full"
    BACKWARD_TRANSITIVE = "backward_transitive"
    FORWARD_TRANSITIVE = "forward_transitive"
    FULL_TRANSITIVE = "full_transitive"

    @property
    def backward(self) -> bool:
        """True if readers that have the new columns must be able to read the rows written before."""
        return self.startswith((Compatibility.BACKWARD, Compatibility.FULL))

    @property
    def forward(self) -> bool:
        """True if readers that have the old columns must be able to read the rows written afterwards."""
        return self.startswith((Compatibility.FORWARD, Compatibility.FULL))

    @property
    def transitive(self) -> bool:
        """True if every existing version counts, and not only the serving one and those that have readers."""
        return self.endswith("_transitive")

    @property
    def readers_first(self) -> bool:
        """True if readers must have the new columns before rows with the new columns are written."""
        return self.backward and not self.forward


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings in `<table>.yml`; for settings that it omits, the project's defaults apply."""

    trigger: str = "10 seconds"
    """Processing-time interval of the trigger, as Spark writes it."""
    mode: str = "append"
    """`append`, or `upsert` if the last row of a key replaces earlier rows of that key."""
    key: tuple[str, ...] = ()
    sequence: str = ""
    """For upserts, the column that decides which of two rows with the same key is newer."""
    deletes: str = ""
    """For upserts, a condition over the columns; a row that satisfies it deletes its key."""
    owner: str = ""
    runbook: str = ""
    objective: str = ""
    """Maximum age of the oldest pending input, as a Spark interval; empty for the default in `core.lag.faults`."""
    description: str = ""
    tags: tuple[str, ...] = ()
    reads: str = "batch"
    """How tables are read: with `stream`, even a table without STREAM is streamed.

    From a keyed table, a stream reads the changes or, with `rows`, the table's rows.
    """
    changes_of: tuple[str, ...] = ()
    """Keyed tables whose change feed the statement streams implicitly; set by the loader, never read from a file."""
    schema_tracking: bool = False
    """Whether streams of Delta tables track the schema, and so continue after columns are renamed or dropped."""
    mirror_offsets: str = ""
    """Consumer group to which the agent commits the Kafka offsets that the statement has committed; empty for none."""
    connector: str = ""
    """URL of the connector of Kafka Connect that fills the topics of an external table; empty if none is declared."""
    silence: str = ""
    """Longest time without a message in the topics of an external table, as a Spark interval; empty for no limit."""
    payload: str = "shown"
    """`hidden` if a peek must show no values of messages or, for a database table, only the columns of `key`."""
    protect: bool = False
    """Whether deletes and rebuilds of the table need an approval, and changes in place are denied."""
    readers: tuple[str, ...] = ()
    """Exposures, as `name` or `name (owner)`, sorted: readers outside Headgate that are informed about changes."""

    checks: tuple[tuple[str, str], ...] = ()
    """Queries (name, SQL) over the table that must return no rows before a new version may serve."""
    compatibility: str = ""
    """A `Compatibility` mode; empty if this yml sets none. `Project.compatibility` returns the mode that applies."""
    metadata: bool = False
    """Whether the rows of the statement have the columns in `core.sql.metadata_columns`; False if it is external."""
    inputs: tuple[tuple[str, str], ...] = ()
    """For a job in Python, the (parameter, SQL) of inputs that are not the stream of the table of that name."""
    requirements: tuple[str, ...] = ()
    """For a job in Python, the packages that its code needs, in the form that pip reads."""
    state_compatible: str = ""
    """For a job in Python, the hash of older code whose state the code continues; empty if it continues none."""
    query_name: str = ""
    """Name of the query in the metadata columns, as its manifest gives it; empty for the name of the table."""
    pool: str | PoolClass = ""
    """Name or class of the pool in which the statement runs, in environments with several; empty if it names none."""
    resources: Amounts = UNLIMITED
    """The cores and memory that the statement declares to need; None for what `core.observed.pool_load` estimates."""

    @property
    def outside_readers(self) -> tuple[tuple[str, str], ...]:
        """The (name, owner) of each reader outside Headgate; the owner may be empty."""
        parts = (reader.rstrip(")").partition(" (") for reader in self.readers)
        return tuple((name, owner) for name, _, owner in parts)

    @property
    def upserts(self) -> bool:
        """True if a new row replaces an earlier row with the same key."""
        return self.mode == UPSERT

    @property
    def hides_payload(self) -> bool:
        """True if a peek must not show the values of messages or rows."""
        return self.payload == HIDDEN

    @property
    def every_table_streams(self) -> bool:
        """True if the statement streams its input tables even without STREAM."""
        return self.reads == "stream"


def defaults_of(product: str, defaults: Settings, metadata_by_product: Mapping[str, bool]) -> Settings:
    """Return the defaults of a product: those of the project, except for `metadata` if the product sets it."""
    metadata = metadata_by_product.get(product, defaults.metadata)
    return defaults if metadata == defaults.metadata else replace(defaults, metadata=metadata)


@dataclass(frozen=True, slots=True)
class Table:
    """A declared table; without `dml`, it is external, that is, created and filled outside Headgate."""

    name: TableName
    product: str
    layer: Layer
    unit: TableName
    """The name of the table's folder; the statements in one folder are deployed, stopped and swapped together."""
    folder: str
    ddl: Script
    parsed_ddl: TableDdl
    dml: Script | None = None
    parsed: ParsedStatement | None = None
    """The parsed statement; None if, and only if, the table is external."""
    settings: Settings = field(default_factory=Settings)
    settings_text: str = ""
    """The unchanged content of the yml; empty if there is none."""
    variables: tuple[tuple[str, str], ...] = ()
    """Names and values of the variables that the table's files use, sorted by name."""
    written_settings: tuple[tuple[str, str], ...] = ()
    """The (key, line of yml) of each setting that uses variables, with `${name}` instead of the values."""
    manifest: str = ""
    """Path of the YAML manifest that declares the statement; empty if its folder declares it."""
    functions: tuple[tuple[str, Script], ...] = ()
    """Names and files of the functions that the statement uses, directly or through others, sorted by name."""

    @property
    def case_folder(self) -> str:
        """The folder whose folder `tests` contains the table's test cases."""
        return self.manifest.rpartition(".")[0] or self.folder

    @property
    def external(self) -> bool:
        """True if the table is created and filled outside Headgate."""
        return self.parsed is None

    def written_topic(self, naming: Naming = DECLARED) -> str:
        """Return the topic to which the statement writes in an environment with this naming; empty if there is none."""
        if self.external or not table_format(self.parsed_ddl.format).topics:
            return ""
        from core.sql.kafka_topics import topic_place

        return naming.of(topic_place(self.parsed_ddl.location).topics[0])


def writers_by_topic(tables: Mapping[TableName, Table]) -> dict[tuple[str, str], tuple[TableName, ...]]:
    """Return the statements that write each topic, by broker and declared name of the topic, sorted by table.

    A topic of a cluster with several brokers has several entries.
    """
    found: dict[tuple[str, str], tuple[TableName, ...]] = {}
    for name, table in sorted(tables.items()):
        if not table.external and table_format(table.parsed_ddl.format).topics:
            from core.sql.kafka_topics import topics_by_server

            for each in topics_by_server(table.parsed_ddl.location):
                found[each] = (*found.get(each, ()), name)
    return found


LOCAL, CLUSTER = "local", "cluster"
"""Names of pools that headgate.yml does not name: of a local server, and of one with a master."""

MASTER_SCHEME = "spark://"


@dataclass(frozen=True, slots=True)
class Pool:
    """A declared Spark Connect server; without a `url`, the agent starts a server as a child process.

    The executors of a server that the agent starts run in its own process or, with a `master`, on a cluster's workers.
    """

    RECORDED: ClassVar = ("name", "url", "cores", "memory", "conf", "master", "master_ui", "yarn_ui")
    """The fields that the ledger and documents record; the others say how connections are secured."""

    name: str = LOCAL
    url: str | None = None
    cores: int = 2
    memory: str = "2g"
    """Heap of a local server, or of each executor on a cluster."""
    conf: tuple[tuple[str, str], ...] = ()
    master: str | None = None
    """Address of the master of a standalone cluster, `spark://host:port`; None if the agent's server is local."""
    master_ui: str = ""
    """URL of the master's web interface; empty for port 8080 of the master's host.

    Beside a `url`, that of the master on whose cluster the server runs; empty if none is declared.
    """
    token: SecretReference | None = None
    """Where the agent finds the token of a server with a `url`; None if that needs none."""
    tls: bool = False
    """Whether connections to the `url` are encrypted, and its certificate is checked."""
    ca: str = ""
    """Absolute path of the certificates that are trusted, as PEM; empty for those that gRPC trusts by itself."""
    ui: str = ""
    """URL of Spark's web interface on a server with a `url`, as the agent reaches it; empty if it is not declared."""
    capacity: Amounts = UNLIMITED
    """The statements that may run in the pool at the same time, and the cores and memory that they may need."""
    of_class: str = ""
    """The class of the pool, which statements may name instead of the pool; empty if it has none."""
    yarn_ui: str = ""
    """Beside a `url`, URL of the ResourceManager of the YARN cluster on which the server runs; empty for none."""

    @property
    def address(self) -> str:
        """The address without parameters, which can be secrets; the master or `local` for a server of the agent's."""
        return mask_secrets(self.url.partition("/;")[0]) if self.url else self.master or LOCAL

    @property
    def sends_token_to_ui(self) -> bool:
        """True if the agent sends the token to Spark's web interface: only if that is encrypted, or on this machine."""
        return self.ui.startswith("https:") or is_loopback(self.ui)

    @property
    def master_page(self) -> str:
        """URL of the master's web interface without a final slash; empty if the pool is on no cluster of a master."""
        if self.master is None:
            return self.master_ui.rstrip("/")
        return self.master_ui.rstrip("/") or f"http://{self.master.removeprefix(MASTER_SCHEME).rpartition(':')[0]}:8080"


def is_loopback(url: str) -> bool:
    """True if the host of a URL is this machine, by one of its usual names."""
    return (urlsplit(url).hostname or "") in ("localhost", "127.0.0.1", "::1")


MOST_CORES = 1024
LEAST_MIB, MOST_MIB = 512, 4096 * 1024
"""Bounds of a heap in MiB; Spark refuses less than 450 MiB (`UnifiedMemoryManager.getMaxMemory`)."""

_MEMORY = re.compile(r"[1-9][0-9]{0,17}[mgMG]\Z")


def is_memory(text: str, least_mib: int = LEAST_MIB) -> bool:
    """True if a text is a size that a heap may have, such as `768m` or `2g`, or another one from `least_mib` on."""
    return bool(_MEMORY.match(text)) and least_mib <= mebibytes(text) <= MOST_MIB


def mebibytes(memory: str) -> int:
    """Return a size such as `768m` or `2g` in MiB."""
    return int(memory[:-1]) * (1024 if memory[-1] in "gG" else 1)


@dataclass(frozen=True, slots=True)
class Environment:
    """An environment that headgate.yml declares."""

    name: str
    protected: bool = False
    data: str = "data"
    """Folder for tables, checkpoints and landed files; absolute, or relative to the project folder."""
    naming: Naming = DECLARED
    """The names of everything that the environment creates, which allow several environments to share a server."""
    pool: Pool = field(default_factory=Pool)
    plan_expires_h: float = 24.0
    drop_after_d: float = 7.0
    gate_ends_h: float = 24.0
    """Number of hours after which a step fails if its gate has not opened; the run then asks an operator."""
    soak_min: float = 0.0
    """Number of minutes for which a replaced version keeps running, so that a rollback takes only seconds."""
    validate: bool = True
    """Whether a rebuilt table is compared with the serving version before the pointer moves."""
    objective: str = ""
    """The lag objective of statements that set none, as an interval like `Settings.objective`."""
    policy: Policy = field(default_factory=Policy)
    """The environment's rules as declared; rules that an agent has recorded take precedence."""
    variables: "tuple[Variable, ...]" = ()
    """The variables with their values in this environment, sorted by name."""
    sources: Sources = OWN_SOURCES
    colour: str = ""
    """Colour of the environment's name, one of `COLOURS`; empty for amber if protected, and no ground otherwise."""
    named_pools: tuple[Pool, ...] = ()
    """The pools that `pools` declares, in order, of which `pool` is the first; empty for one pool without a choice."""
    spreads: bool = False
    """Whether statements that name no pool are placed by the planner; otherwise, they run in the default pool."""

    @property
    def pools(self) -> tuple[Pool, ...]:
        """Every pool of the environment; the first is the default."""
        return self.named_pools or (self.pool,)

    def pool_of(self, settings: Settings) -> Pool:
        """Return the pool in which a statement with these settings runs unless a plan places it elsewhere.

        In an environment with one pool, this is that pool, whatever the settings name.
        """
        wanted = settings.pool
        if isinstance(wanted, PoolClass):
            return next((pool for pool in self.named_pools if pool.of_class == wanted.name), self.pool)
        return next((pool for pool in self.named_pools if pool.name == wanted), self.pool)

    def pools_for(self, settings: Settings) -> tuple[Pool, ...]:
        """Return the pools among which the planner places a statement with these settings, in order.

        Empty if there is no choice: it names its pool, or names none and the environment does not spread statements.
        """
        wanted = settings.pool
        if isinstance(wanted, PoolClass):
            return tuple(pool for pool in self.named_pools if pool.of_class == wanted.name)
        return self.named_pools if self.spreads and not wanted else ()

    def pool_holding(self, recorded: Pool | None) -> Pool:
        """Return the pool in which a version is that was last started in the pool `recorded`; None if unknown.

        That is the pool of this name among several. A version of a pool that is no longer declared, which its agent has
        proved at its start to be gone, is in the default pool.
        """
        name = recorded.name if recorded is not None else ""
        return next((pool for pool in self.named_pools if pool.name == name), self.pool)

    def place_of(self, pool: Pool) -> str:
        """Return where a pool has its files: its name, below the home; empty for the home itself, of the one pool."""
        return pool.name if self.named_pools else ""

    def catalog_name(self, table: TableName, version: int) -> str:
        """Return the catalog name of a table's version. Version 0 is an external table, named without a version."""
        if version:
            return self.naming.version(table, version)
        return (self.sources.naming or self.naming).pointer(table)

    def declared_policy(self, protected: Iterable[TableName]) -> Policy:
        """Return the declared policy, with the protection of the environment and of the tables `protected`."""
        return replace(self.policy, protected=self.protected, protected_tables=tuple(sorted(protected)))


@dataclass(frozen=True, slots=True)
class BrokenTable:
    """A table whose folder has files with errors, with the properties that follow from its path alone."""

    name: TableName
    product: str
    layer: Layer
    unit: TableName
    folder: str
    problems: tuple[Problem, ...]
    """The errors in the folder's files."""
    manifest: str = ""
    """Path of the YAML manifest that declares the statement; empty if its folder declares it."""

    @property
    def case_folder(self) -> str:
        """The folder whose folder `tests` contains the table's test cases."""
        return self.manifest.rpartition(".")[0] or self.folder


@dataclass(frozen=True, slots=True)
class Project:
    """Everything that a project folder declares."""

    id: str
    """The UUID in headgate.yml."""
    name: str
    default_env: str
    environments: Mapping[str, Environment]
    tables: Mapping[TableName, Table]
    """The declared tables, sorted by name."""
    defaults: Settings = field(default_factory=Settings)
    """Settings in headgate.yml that apply to every table that does not override them."""
    compatibility_by_product: Mapping[str, Compatibility] = field(default_factory=dict)
    """The modes that `products` in headgate.yml sets."""
    broken: Mapping[TableName, BrokenTable] = field(default_factory=dict)
    """Tables that `tables` lacks because of errors in the files of their folders."""
    stray: tuple[Problem, ...] = ()
    """Errors in files outside the folder of any table; such a file may declare a table that `tables` lacks."""
    functions: tuple[DeclaredFunction, ...] = ()
    """The valid functions, sorted by path."""
    metadata_by_product: Mapping[str, bool] = field(default_factory=dict)
    """The values of `metadata` that `products` in headgate.yml sets."""

    def defaults_of(self, product: str) -> Settings:
        """Return the settings that apply to every table of a product that does not override them."""
        return defaults_of(product, self.defaults, self.metadata_by_product)

    def compatibility(self, table: Table) -> Compatibility:
        """Return the mode of a table: its own, that of its product, or that of the project; the nearest wins."""
        product = self.compatibility_by_product.get(table.product, "")
        return Compatibility(table.settings.compatibility or product or self.defaults.compatibility or "none")

    def errors(self, names: Iterable[TableName] | None = None) -> tuple[Problem, ...]:
        """Return the errors in the files of the broken tables `names` or, if that is None, in all files."""
        chosen = self.broken if names is None else names
        found = (problem for name in chosen for problem in self.broken[name].problems)
        return in_reading_order((*found, *(self.stray if names is None else ())))
