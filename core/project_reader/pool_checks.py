"""Checks of statements, and of stores that they read, against the pools of an environment."""

from collections.abc import Iterable, Iterator, Mapping

from core.model.file_stores import GCS, HDFS, S3, store_kind
from core.model.names import TableName
from core.model.problems import Problem, Where
from core.project.manifest_head import MANIFEST_PATH
from core.project.model import Environment, Pool, Table
from core.project.resources import PoolClass, over_capacity
from core.project_reader.pool_sections import place_in_pool
from core.project_reader.yaml_reader import read_yaml
from core.text.wording import did_you_mean

_HADOOP = "spark.hadoop."


def check_pools(
    tables: Mapping[TableName, Table],
    yml: Mapping[TableName, str],
    environment: Environment,
    manifest: str,
    problems: list[Problem],
) -> None:
    """Report statements that no pool can take, and stores that different pools find at different addresses.

    A setting among the defaults is reported in `manifest`, the text of headgate.yml.
    """
    for table in tables.values():
        for key, summary, remedy in _faults(table, environment):
            section, subject = read_yaml(table.settings_text, yml.get(table.name, ""), []), str(table.name)
            if section is None or key not in section.nodes:
                top, subject = read_yaml(manifest, MANIFEST_PATH, []), "defaults"
                section = top.section("defaults") if top is not None else None
            where = section.at(key) if section is not None else Where(MANIFEST_PATH)
            problems.append(Problem(summary, remedy, where, subject))
    places = (environment.data, *(table.parsed_ddl.location for table in tables.values() if table.external))
    problems += _store_problems(environment, manifest, places)


def _faults(table: Table, environment: Environment) -> Iterator[tuple[str, str, str]]:
    """Yield the key, summary and remedy of each setting with which no pool takes the statement.

    A single pool takes every statement that it has room for, whatever pool that names.
    """
    wanted, pools = table.settings.pool, environment.named_pools
    if wanted and pools:
        of_class = isinstance(wanted, PoolClass)
        name = wanted.name if isinstance(wanted, PoolClass) else wanted
        known = {pool.of_class for pool in pools} - {""} if of_class else {pool.name for pool in pools}
        if name not in known:
            kind = f"{'classes' if of_class else 'pools'} of {environment.name}"
            all_of_them = f"{kind}: {', '.join(sorted(known))}" if known else f"declare class: {name} of a pool"
            summary = f"{environment.name} has no pool {'of class ' if of_class else ''}{name}"
            yield "pool", summary, did_you_mean(name, known) or all_of_them
            return
    if table.external:
        return
    choice = environment.pools_for(table.settings) or (environment.pool_of(table.settings),)
    over = [(pool, over_capacity(pool.capacity, table.settings.resources)) for pool in choice]
    if all(amounts for _, amounts in over):
        each = (f"{pool.name} ({' and '.join(map(str, amounts))})" for pool, amounts in over)
        remedy = "lower them, raise capacity: of a pool in headgate.yml, or name another pool"
        yield "resources", f"resources are more than the capacity of {', '.join(each)}", remedy


def _store_problems(environment: Environment, manifest: str, places: Iterable[str]) -> Iterator[Problem]:
    """Yield a problem for each pool in which a store has another address than in an earlier pool.

    Headgate itself reads each store at one address, so what it shows would hold for one of these pools only.
    """
    pools = [(pool, conf) for pool in environment.named_pools if (conf := _hadoop(pool))]
    roots = {"/".join(place.split("/", 3)[:3]) for place in places if "://" in place} if len(pools) > 1 else ()
    for root in sorted(roots):
        first: dict[str, tuple[Pool, str, str]] = {}
        for pool, conf in pools:
            for part, key in _address_keys(root, conf).items():
                before, key_before, value = first.setdefault(part, (pool, key, conf[key]))
                if value.rstrip("/") == conf[key].rstrip("/"):
                    continue
                there = place_in_pool(manifest, environment.name, before, "conf", _HADOOP + key_before)
                yield Problem(
                    f"pool {pool.name} finds {root} at another address than pool {before.name}",
                    f"write the same address as in line {there.line}: Headgate reads a store at one address",
                    place_in_pool(manifest, environment.name, pool, "conf", _HADOOP + key),
                    _HADOOP + key,
                )


def _hadoop(pool: Pool) -> dict[str, str]:
    return {key.removeprefix(_HADOOP): value for key, value in pool.conf if key.startswith(_HADOOP)}


def _address_keys(root: str, conf: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that determine where a store is, by what they determine.

    For S3, the setting of the bucket takes precedence over that of all buckets. The others have their account in the
    root, or one address for all.
    """
    kind, authority = store_kind(root), root.partition("://")[2]
    if kind is HDFS:
        return {key: key for key in conf if key.endswith(f".{authority}") or f".{authority}." in key}
    keys = {S3: (f"fs.s3a.bucket.{authority}.endpoint", "fs.s3a.endpoint"), GCS: ("fs.gs.storage.root.url",)}
    found = next((key for key in keys.get(kind, ()) if key in conf), None)
    return {"endpoint": found} if found is not None else {}
