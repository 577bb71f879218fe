"""Compiles a plan node into a deployment: physical names, compiled SQL and folders. No side effects."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from core.changes.pinned_settings import recorded_pool
from core.model.errors import InvalidProject, Refused
from core.model.names import TableName, physical_name
from core.model.problems import Problem
from core.model.states import State, WantedState
from core.model.table_formats import table_format
from core.observed.served_environment import ServedEnvironment
from core.observed.versions import Deployment
from core.plan.model import PlanNode
from core.ports.spark import NEWEST_WRITER, Upsert
from core.project.model import APPEND, UPSERT, Environment, Pool, Settings
from core.project.naming import Naming
from core.project.revision import RevisionTexts
from core.project_reader.table_yml import read_settings
from core.sql.compiler import compile_ddl, compile_select
from core.sql.ddl_reader import read_ddl
from core.sql.metadata_columns import metadata_values
from core.sql.python_declarations import registered_functions
from core.sql.python_jobs import is_python_job, python_job_of
from core.sql.registered_functions import RegisteredFunction, is_registered, jar_hash
from core.sql.statement import ParsedStatement, TableDdl, TableRead, read_log_start, with_change_feeds
from core.sql.statement_reader import read_any, read_statements
from core.sql.tokens.lexer import SqlDiagnostic
from core.sql.written_topics import with_topic_named

DELETED_KEYS = "deleted"
"""Subfolder of a keyed version's folder that contains the table of its deleted keys."""

StatementsRead = tuple[tuple[ParsedStatement, ...], tuple[Problem, ...]]


@dataclass(frozen=True, slots=True)
class EnvironmentLayout:
    """File paths and catalog names of an environment.

    Paths are absolute, and all names come from the environment's naming.
    """

    data: str
    environment: Environment
    sources_data: str = ""
    """The data folder in which relative locations of external tables lie; empty for `data`."""

    @property
    def naming(self) -> Naming:
        return self.environment.naming

    @property
    def served(self) -> ServedEnvironment:
        """Return what of the layout is recorded in the ledger."""
        declared = self.environment
        return ServedEnvironment(
            self.data,
            declared.naming,
            declared.sources,
            declared.pool.address,
            declared_data=declared.data,
            pools=tuple(pool.name for pool in declared.named_pools),
        )

    @property
    def databases(self) -> tuple[str, ...]:
        """Return the databases that the environment needs in the catalog, in addition to the server's default."""
        namings = (self.naming, self.environment.sources.naming or self.naming)
        return tuple(sorted({naming.namespace for naming in namings} - {""}))

    def catalog_name(self, table: TableName, version: int) -> str:
        return self.environment.catalog_name(table, version)

    def before_name(self, table: TableName, version: int) -> str:
        """Return the catalog name of a version's second table, which holds rows inherited from its predecessor."""
        return self.naming.before(table, version)

    def source_view(self, table: TableName) -> str:
        """Return the name of the temporary view of an external table without files."""
        return (self.environment.sources.naming or self.naming).source_view(table)

    def pointer_name(self, table: TableName) -> str:
        return self.naming.pointer(table)

    def table_folder(self, table: TableName, version: int) -> str:
        return f"{self.data}/tables/{self.naming.folder(table, version)}"

    def checkpoint_folder(self, table: TableName, version: int) -> str:
        return f"{self.data}/checkpoints/{self.naming.folder(table, version)}"

    def seam_folder(self, table: TableName, version: int, parent: tuple[TableName, int], batch: int) -> str:
        """Return the folder of the checkpoint that a version uses after it switches to `parent` at batch `batch`."""
        return f"{self.checkpoint_folder(table, version)}.{physical_name(*parent)}.{batch}"

    def rewrite_folder(self, table: TableName, version: int, run: str) -> str:
        """Return the folder of the checkpoint that a version uses once run `run` has rewritten its table."""
        return f"{self.checkpoint_folder(table, version)}.rewrite.{run}"

    def is_checkpoint(self, path: str, table: TableName, version: int) -> bool:
        """True if `path` is the version's first checkpoint, or one created by a switch of parent or a rewrite."""
        first = self.checkpoint_folder(table, version)
        return path == first or (path.startswith(f"{first}.") and "/" not in path[len(first) :])

    def trash_folder(self, table: TableName, version: int) -> str:
        """Return the trash folder for a version's files; it is unique, because version numbers are never reused."""
        return f"{self.data}/trash/{self.naming.folder(table, version)}"

    def external_location(self, ddl: TableDdl) -> str:
        """Return the absolute location of an external table.

        A relative location is resolved against the data folder.
        """
        return ddl.location_in(self.sources_data or self.data)


def compile_deployment(
    node: PlanNode,
    layout: EnvironmentLayout,
    *,
    now: float,
    plan_hash: str,
    views: Collection[TableName] = (),
) -> Deployment:
    """Compile a plan node into a deployment. Raises InvalidProject if the node's SQL is invalid.

    `views` are the parents without files, which the session reads through temporary views.
    """
    ddl = _ddl(node.texts, node.table)
    external = not node.texts.dml
    version = node.version
    folder = layout.external_location(ddl) if external else layout.table_folder(node.table, version)
    location = folder if external else table_format(ddl.format).place_in(folder)
    if table_format(ddl.format).database:
        from core.sql.jdbc_tables import refresh_s, with_copy

        copy = table_format("delta").place_in(layout.table_folder(node.table, version))
        ddl = with_copy(ddl, copy) if refresh_s(ddl) else ddl
    if not external and table_format(ddl.format).topics:
        ddl = with_topic_named(ddl, layout.naming.of)
        location = ddl.location
    statement = None if external else _statement(node.texts, node.table)
    settings = Settings() if external else _settings(node.texts, node.table)
    return Deployment(
        table=node.table,
        version=version,
        product=node.product,
        layer=node.layer,
        owner=node.owner,
        revision=node.revision,
        texts=node.texts,
        compiled=compile_statement(statement, node, layout, views) if statement else "",
        compiled_ddl=compile_ddl(_with_properties(ddl, settings), layout.catalog_name(node.table, version), location),
        columns=tuple(column.name for column in ddl.columns),
        format=ddl.format,
        folder=folder,
        checkpoint="" if external else layout.checkpoint_folder(node.table, version),
        checkpoint_id="",
        trigger=node.trigger,
        mode=f"{UPSERT}/{NEWEST_WRITER}" if settings.upserts else APPEND,
        stateful=node.stateful,
        wanted=WantedState.RUNNING,
        state=State.PENDING,
        state_since=now,
        active=external,
        bindings=node.bindings,
        created_at=now,
        plan_hash=plan_hash,
        external=external,
        begins_where=node.begins_where,
        # Among several pools, a version belongs to one from its creation on; a start adds the settings it has.
        pool=recorded_pool(_pool_of(node, layout.environment, settings)) if layout.environment.named_pools else None,
    )


def _pool_of(node: PlanNode, environment: Environment, settings: Settings) -> Pool:
    """Return the pool that the plan has chosen; plans of planner versions before 13 have left that to the settings."""
    return next((pool for pool in environment.named_pools if pool.name == node.pool), environment.pool_of(settings))


def compile_statement(
    statement: ParsedStatement, node: PlanNode, layout: EnvironmentLayout, views: Collection[TableName] = ()
) -> str:
    """Compile a statement into a SELECT from the physical versions of its parents, with the node's start conditions.

    Start conditions are a property of the version, so the declared SQL never contains them.
    """
    physical = {
        b.parent: layout.source_view(b.parent) if b.parent in views else layout.catalog_name(b.parent, b.version)
        for b in node.bindings
    }
    starts = {start.table: start for start in map(read_log_start, node.begins_where) if start is not None}
    conditions = (each.partition(".") for each in node.begins_where if read_log_start(each) is None)
    return compile_select(statement, physical, {TableName(table): where for table, _, where in conditions}, starts)


def compile_before(texts: RevisionTexts, table: TableName, name: str, folder: str) -> str:
    """Compile the DDL of a version's second table, which has the columns of `texts` and holds inherited rows."""
    return compile_ddl(_ddl(texts, table), name, folder)


def column_types(texts: RevisionTexts, table: TableName) -> tuple[tuple[str, str], ...]:
    """Return the declared columns of a table as (name, Spark type), in declaration order."""
    return tuple((column.name, column.type) for column in _ddl(texts, table).columns)


def streamed_reads(deployment: Deployment) -> tuple[TableRead, ...]:
    """Return a deployment's streamed reads in SQL order.

    Spark numbers the folders `sources/<i>` in this order (seen on Spark 4.2.0). Validation rules that are newer than
    the deployment are not applied, because a running statement must be measured even if it violates them.
    """
    if deployment.external:
        return ()
    return tuple(read for read in parsed_statement(deployment).reads if read.streaming)


def parsed_statement(deployment: Deployment) -> ParsedStatement:
    """Parse a deployment's statement, without applying validation rules that are newer than the deployment."""
    return _read_again(deployment.texts, deployment.table)


@lru_cache(maxsize=2_000)
def _read_again(texts: RevisionTexts, table: TableName) -> ParsedStatement:
    return _statement(texts, table, read_any)


def parsed_ddl(deployment: Deployment) -> TableDdl:
    return _ddl(deployment.texts, deployment.table)


def topic_of(deployment: Deployment, layout: EnvironmentLayout) -> TableDdl | None:
    """Return the DDL of the topic to which a deployment writes in this environment; None if it writes to no topic."""
    if not deployment.writes_topic:
        return None
    return with_topic_named(parsed_ddl(deployment), layout.naming.of)


def declared_objective(deployment: Deployment) -> str:
    """Return the lag objective declared in a deployment's YAML, or an empty string if there is none."""
    return _settings(deployment.texts, deployment.table).objective


def mirror_group(deployment: Deployment, layout: EnvironmentLayout) -> str:
    """Return the consumer group to which a deployment's offsets are committed; empty if there is none."""
    if "mirror_offsets:" not in deployment.texts.yml:
        return ""
    group = _settings(deployment.texts, deployment.table).mirror_offsets
    return layout.naming.of(group) if group else ""


def connector_of(deployment: Deployment) -> str:
    """Return the URL of the connector that fills a table's topics; empty if none is declared."""
    if "connector:" not in deployment.texts.yml:
        return ""
    return _settings(deployment.texts, deployment.table).connector


def allowed_silence(deployment: Deployment) -> str:
    """Return the longest time without a message in a table's topics, as an interval; empty if there is no limit."""
    if "silence:" not in deployment.texts.yml:
        return ""
    return _settings(deployment.texts, deployment.table).silence


def hidden_except(deployment: Deployment) -> frozenset[str] | None:
    """Return the lower-case key columns if a peek must hide all other values; None if it shows all values."""
    if "payload:" not in deployment.texts.yml:
        return None
    settings = _settings(deployment.texts, deployment.table)
    return frozenset(name.lower() for name in settings.key) if settings.hides_payload else None


def upserts(deployment: Deployment) -> bool:
    """True if a deployment replaces rows by key, according to its recorded mode, not its YAML."""
    return deployment.mode.partition("/")[0] == UPSERT


def writes_in_python(deployment: Deployment) -> bool:
    """True if a Python process of the pool writes each batch, so that a batch may outlive its query."""
    if upserts(deployment):
        return True
    job = python_job_of(deployment.compiled) if is_python_job(deployment.compiled) else None
    return job is not None and job.writes_batches


def tracks_schemas(deployment: Deployment) -> bool:
    """True if the deployment's streams record the schemas that they read (setting `schema_tracking`)."""
    return "schema_tracking:" in deployment.texts.yml and _settings(deployment.texts, deployment.table).schema_tracking


def added_columns(deployment: Deployment) -> tuple[tuple[str, str], ...]:
    """Return the metadata columns of a deployment as (name, SQL expression); empty without `metadata: true`."""
    if "metadata:" not in deployment.texts.yml:
        return ()
    settings = _settings(deployment.texts, deployment.table)
    if not settings.metadata:
        return ()
    return metadata_values(
        settings.query_name or deployment.table,
        settings.description,
        id=deployment.version_id,
        version=deployment.version,
        created_at=deployment.created_at,
    )


def functions_of(deployment: Deployment) -> tuple[RegisteredFunction, ...]:
    """Return the functions in Python and of a jar that the statement calls, as it was deployed with them."""
    if not any(is_registered(text) for _, text in deployment.texts.functions):
        return ()
    try:
        return registered_functions(deployment.texts.dml, deployment.texts.functions)
    except SqlDiagnostic as error:
        name = f"{deployment.table}@v{deployment.version}"
        summary = f"a function of {name} cannot be read by this version of Headgate: {error.summary}"
        raise Refused(summary, remedy=f"deploy {deployment.table} again") from error


def jar_of(deployment: Deployment) -> str:
    """Return the hash of the jar whose functions a statement calls; empty if it calls none."""
    return next(filter(None, (jar_hash(text) for _, text in deployment.texts.functions)), "")


def upsert_of(deployment: Deployment) -> Upsert | None:
    """Return the settings for replacing rows by key, or None if the deployment only appends rows.

    The writer version is the one recorded with the deployment.
    """
    if not upserts(deployment):
        return None
    writer = deployment.mode.partition("/")[2]
    settings = _settings(deployment.texts, deployment.table)
    return Upsert(
        place=table_format(deployment.format).place_in(deployment.folder),
        deleted=f"{deployment.folder}/{DELETED_KEYS}",
        checkpoint=deployment.checkpoint,
        # The declared columns of this deployment; a column added to the table later is written from the next version
        # on.
        columns=tuple(name for name, _ in column_types(deployment.texts, deployment.table)),
        key=settings.key,
        sequence=settings.sequence,
        deletes=settings.deletes,
        writer=int(writer),
        uncompared=tuple(name for name, _ in added_columns(deployment)),
    )


def streamed_sources(
    deployment: Deployment, reads: tuple[TableRead, ...], by_version: Mapping[tuple[TableName, int], Deployment]
) -> tuple[tuple[int, TableName, str, str], ...]:
    """Return the streamed sources of a deployment as (ordinal, table, folder, format).

    The ordinal is the position in `reads`. Folder and format are empty if the parent version is missing.
    """
    version_by_parent = {binding.parent: binding.version for binding in deployment.bindings if binding.streamed}
    sources = []
    for ordinal, read in enumerate(reads):
        found = by_version.get((read.table, version_by_parent.get(read.table, 0)))
        sources.append((ordinal, read.table, found.folder if found else "", found.stored_as if found else ""))
    return tuple(sources)


def _settings(texts: RevisionTexts, table: TableName) -> Settings:
    return read_settings(texts.yml, f"{table}.yml", Settings(), [])


def _with_properties(ddl: TableDdl, settings: Settings) -> TableDdl:
    given = {name.lower() for name, _ in ddl.properties}
    added = table_format(ddl.format).keyed_properties if settings.upserts else ()
    return replace(ddl, properties=(*ddl.properties, *(each for each in added if each[0].lower() not in given)))


def _ddl(texts: RevisionTexts, table: TableName) -> TableDdl:
    ddl, problems = read_ddl(texts.ddl, f"ddl.{table}.sql")
    if ddl is None:
        raise _invalid(table, problems)
    return ddl


def _statement(
    texts: RevisionTexts, table: TableName, read: Callable[..., StatementsRead] = read_statements
) -> ParsedStatement:
    # The yml of a revision contains only settings that differ from the defaults.
    says = "reads:" in texts.yml or "changes_of:" in texts.yml
    settings = _settings(texts, table) if says else Settings()
    statements, problems = read(texts.dml, f"dml.{table}.sql", every_table_streams=settings.every_table_streams)
    found = next((statement for statement in statements if statement.writes == table), None)
    if found is None:
        raise _invalid(table, problems)
    return with_change_feeds(found, settings.changes_of)


def _invalid(table: TableName, problems: tuple[Problem, ...]) -> InvalidProject:
    first = problems[0].summary if problems else "it has no statement"
    return InvalidProject(
        f"{table} cannot be compiled: {first}",
        remedy="correct the file and plan again",
        problems=tuple(problem.as_json() for problem in problems),
    )
