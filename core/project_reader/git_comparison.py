"""Differences between the current project and an earlier commit: changed tables, with the contents at that commit."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace

from core.model.names import TableName
from core.model.states import State
from core.observed.planner_input import ObservedDeployment
from core.policy.roles_and_rules import Policy
from core.project.manifest_head import MANIFEST_PATH as MANIFEST
from core.project.model import Environment, Pool, Project, Table
from core.project.revision import RevisionTexts, revision_hash
from core.project_reader.loader import read_tables
from core.project_reader.manifest import Manifest, read_manifest
from core.project_reader.parse_cache import ParseCache
from core.project_reader.paths import FUNCTIONS_FOLDER, function_scope, table_folder
from core.project_reader.revision_reader import revision_of
from core.project_reader.settings_checks import with_changes, with_schema_tracking


@dataclass(frozen=True, slots=True)
class GitComparison:
    """The differences between the project now and at a git reference."""

    reference: str
    changed: tuple[TableName, ...] = ()
    """Tables that are declared now and are new or differ in SQL, DDL, settings or folder; sorted."""
    gone: tuple[TableName, ...] = ()
    """Tables that were declared at the commit but are no longer declared; sorted."""
    before: Mapping[TableName, RevisionTexts] = field(default_factory=dict)
    """SQL and YAML at the commit of each table in `changed` and `gone` that had readable files there."""
    settings: tuple[str, ...] = ()
    """Keys of the environment's section in headgate.yml that differ, such as `policy.freeze`; sorted."""


def compare_with_commit(
    reference: str,
    project: Project,
    now: Mapping[str, str],
    then: Mapping[str, str | None],
    parse_cache: ParseCache,
    *,
    environment: str,
) -> GitComparison:
    """Compare the project's current files, `now`, with those at a commit.

    `then` maps each differing path to its content at the commit, or to None if the commit lacks the path. Only the
    folders of these paths are read, or all folders if the defaults in headgate.yml differ. A table with invalid files
    at the commit counts as changed, and so does a broken table of the project if a file in its folder differs.
    """
    manifest = _manifest_then(then)
    defaults = manifest.defaults if manifest else project.defaults
    older = {found.name: found for found in manifest.environments} if manifest else {}
    was, is_now = older.get(environment), project.environments.get(environment)
    variables = is_now.variables if is_now and not manifest else was.variables if was else ()
    folders = {table_folder(path) for path in then}
    functions = {path for path in (*now, *then) if FUNCTIONS_FOLDER in path and function_scope(path) is not None}
    if functions & then.keys():
        # A table that called a function then and no longer does has itself changed.
        folders |= {table.folder for table in project.tables.values() if table.functions}
        folders |= {table.folder for table in project.broken.values()}
    if is_now and variables != is_now.variables:
        folders |= {table_folder(path) for path, text in now.items() if "${" in text}
    metadata = manifest.metadata_by_product if manifest else project.metadata_by_product
    whole = defaults != project.defaults or metadata != project.metadata_by_product
    needed = (path for path in now if whole or table_folder(path) in folders or path in functions)
    texts = {path: now[path] for path in needed if path not in then}
    texts |= {path: text for path, text in then.items() if text is not None and path != MANIFEST}
    old = read_tables(texts, defaults, parse_cache, {each.name: each for each in variables}, metadata)
    among = {**project.tables, **old}
    old = with_schema_tracking(with_changes(old, among), among)
    near = {name: table for name, table in project.tables.items() if whole or table.folder in folders}
    changed = [name for name, table in near.items() if name not in old or _identity(table) != _identity(old[name])]
    changed += [name for name, table in project.broken.items() if table.folder in folders]
    gone = [name for name in old if name not in project.tables and name not in project.broken]
    before = {name: revision_of(old[name]).texts for name in (*changed, *gone) if name in old}
    differing = _differing(was, is_now) if was and is_now else ()
    return GitComparison(reference, tuple(sorted(changed)), tuple(sorted(gone)), before, tuple(sorted(differing)))


def with_texts_of_commit(
    since: GitComparison, observed: Mapping[TableName, ObservedDeployment]
) -> dict[TableName, ObservedDeployment]:
    """Add the SQL and YAML at a commit to observations without deployed texts, as if the commit were deployed.

    Observations with the revision `same`, or with the hash of another revision, stay unchanged. An observation without
    a revision gets the revision `changed` if its table has changed since the commit and has no readable files there.
    """
    return {table: _with_texts_of(since, table, seen) for table, seen in observed.items()}


def _with_texts_of(since: GitComparison, table: TableName, seen: ObservedDeployment) -> ObservedDeployment:
    if seen.deployed is not None or seen.state == State.ABSENT:
        return seen
    texts = since.before.get(table)
    if texts is None:
        return replace(seen, revision="changed") if not seen.revision and table in since.changed else seen
    if seen.revision in ("", "changed") or seen.revision == revision_hash(texts):
        return replace(seen, deployed=texts)
    return seen


def _manifest_then(then: Mapping[str, str | None]) -> Manifest | None:
    """Read headgate.yml as of the commit; None if the file is unchanged or did not exist."""
    text = then.get(MANIFEST)
    return read_manifest(text, []) if text is not None else None


def _differing_pools(was: Environment, now: Environment) -> Iterator[str]:
    before, after = ({pool.name: pool for pool in each.named_pools} for each in (was, now))
    yield from (f"pools.{name}" for name in {**before, **after} if name not in before or name not in after)
    for name in [name for name in before if name in after]:
        yield from _differing_in_pool(f"pools.{name}", before[name], after[name])
    if bool(before) != bool(after):
        yield "pool"


def _differing_in_pool(path: str, was: Pool, now: Pool) -> Iterator[str]:
    conf = dict(was.conf), dict(now.conf)
    yield from (f"{path}.conf.{key}" for key in {**conf[0], **conf[1]} if conf[0].get(key) != conf[1].get(key))
    yield from (f"{path}.{key}" for key in ("name", "url", "cores", "memory", "capacity") if _differ(was, now, key))
    if was.of_class != now.of_class:
        yield f"{path}.class"


def _differing(was: Environment, now: Environment) -> Iterator[str]:
    """Yield the keys of an environment's settings that differ, without their values, which may be secret."""
    if was.named_pools or now.named_pools:
        yield from _differing_pools(was, now)
    else:
        yield from _differing_in_pool("pool", was.pool, now.pool)
    values = {each.name: each for each in was.variables}, {each.name: each for each in now.variables}
    changed = (name for name in {**values[0], **values[1]} if values[0].get(name) != values[1].get(name))
    yield from (f"variables.{name}" for name in changed)
    yield from (f"place.{key}" for key in ("data", "naming", "sources") if _differ(was, now, key))
    settings = ("protected", "plan_expires_h", "drop_after_d", "gate_ends_h", "soak_min", "validate")
    yield from (f"policy.{key}" for key in settings if _differ(was, now, key))
    rules = (each.name for each in fields(Policy) if not each.name.startswith("protected"))
    yield from (f"policy.{key}" for key in rules if _differ(was.policy, now.policy, key))


def _differ(was: object, now: object, key: str) -> bool:
    return bool(getattr(was, key) != getattr(now, key))


def _identity(table: Table) -> tuple[str, ...]:
    texts = revision_of(table).texts
    lines = (_unix(text) for text in (texts.ddl, texts.dml, texts.yml, table.settings_text))
    return (*lines, table.product, table.layer, table.unit)


def _unix(text: str) -> str:
    return text.replace("\r\n", "\n")
