"""Parsing of headgate.yml: name, environments, defaults, connectors and policies; invalid values become Problems."""

import re
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from core.model.errors import UsageError
from core.model.names import TableName, is_environment_name
from core.model.problems import Problem, Where
from core.policy.freeze_windows import parse_freeze_window
from core.policy.roles_and_rules import (
    ALLOW,
    APPROVABLE,
    ASK,
    DENY,
    POLICY_KEYS,
    PROMOTION_RULES,
    ROLES,
    Policy,
)
from core.project.connectors import CONNECTORS, Connector, coordinate_fault, is_exclusion
from core.project.data_folder import data_folder_fault
from core.project.manifest_head import COLOURS, MANIFEST_PATH, PLACES, ManifestHead
from core.project.model import (
    Compatibility,
    Environment,
    Settings,
)
from core.project.naming import OWN, SHARED
from core.project.variables import REFERENCE, Variable
from core.project_reader.layout import ManifestLayout, read_layout
from core.project_reader.naming_section import read_naming, read_sources
from core.project_reader.paths import ScriptFolder, read_script_folders, unreadable_files
from core.project_reader.pool_sections import read_named_pools, read_pool
from core.project_reader.table_yml import read_compatibility, read_objective, read_settings, read_settings_section
from core.project_reader.variables import DeclaredVariable, read_declared_variables, read_values
from core.project_reader.yaml_reader import YamlSection, read_yaml
from core.text.wording import did_you_mean

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}\Z")
_ENVIRONMENT_KEYS = (
    "data", "protected", "colour", "naming", "sources", "pool", "pools", "placement", "objective", "policy",
    "variables",
)  # fmt: skip
_KEYS = (
    "project", "id", "default_env", "environments", "defaults", "products", "connectors", "variables",
    "layout", "manifests",
)  # fmt: skip
_MOVED = {"prefix": "naming.prefix"}

YEAR_D = 365


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of headgate.yml; a field whose value is invalid has its default."""

    name: str = ""
    id: str = ""
    default_env: str = ""
    environments: tuple[Environment, ...] = ()
    defaults: Settings = field(default_factory=Settings)
    lines: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """The line of each key of an environment, by environment; the key "" is the environment itself."""
    connectors: tuple[Connector, ...] = ()
    """Connectors that local pools load in addition to Spark's own jars, sorted by name."""
    variables: Mapping[str, DeclaredVariable] = field(default_factory=dict)
    """The declared variables by name; their values are in the environments."""
    products: Mapping[str, "DeclaredProduct"] = field(default_factory=dict)
    """The settings below `products`, by product; a product without settings is omitted."""
    layout: ManifestLayout | None = None
    """The files of a project of manifests; None for the layout of folders."""

    def place(self, environment: str, key: str) -> Where:
        """Return where headgate.yml sets a key of an environment; without that key, where the environment begins."""
        lines = self.lines.get(environment, {})
        return Where(MANIFEST_PATH, lines.get(key, lines.get("", 0)))

    @property
    def metadata_by_product(self) -> dict[str, bool]:
        """The values of `metadata` by product; products that do not set it are omitted."""
        return {name: each.metadata for name, each in self.products.items() if each.metadata is not None}

    def environment(self, name: str | None) -> Environment | None:
        """Return the environment of a name, or the default environment for None; None if it is not declared."""
        wanted = name or self.default_env
        return next((each for each in self.environments if each.name == wanted), None)

    def variables_of(self, environment: str | None) -> dict[str, Variable]:
        """Return the variables by name, with their values in an environment; None means the default environment."""
        found = self.environment(environment)
        return {variable.name: variable for variable in found.variables} if found else {}

    def has_only_spark(self, environment: str | None) -> bool:
        """True if the pool of an environment is local and has no extensions, so that it has only Spark's functions."""
        found = self.environment(environment)
        pools = found.pools if found is not None else ()
        return all(pool.url is None and "spark.sql.extensions" not in dict(pool.conf) for pool in pools)


@dataclass(frozen=True, slots=True)
class DeclaredProduct:
    """What headgate.yml sets for the tables of one product; None means not set."""

    where: Where
    compatibility: Compatibility | None
    metadata: bool | None


def read_manifest(text: str | None, problems: list[Problem]) -> Manifest:
    """Parse the content of headgate.yml; a missing file (`text` is None) is reported as a Problem."""
    if text is None:
        problems.append(
            Problem(
                "there is no headgate.yml",
                "run `headgate init`, or name the folder with --project",
                Where(MANIFEST_PATH),
            )
        )
        return Manifest()
    top = read_yaml(text, MANIFEST_PATH, problems)
    if top is None:
        return Manifest()
    top.only(_KEYS)
    below = top.section("defaults")
    if below is not None:
        _refuse_references(below)
    variables = read_declared_variables(top) if "variables" in top.nodes else {}
    environments = _environments(top, variables)
    return Manifest(
        name=_name(top),
        id=_identity(top),
        default_env=_default_env(top, environments),
        environments=environments,
        lines={name: {"": section.line, **section.lines} for name, section in _environment_sections(top).items()},
        defaults=read_settings_section(below, Settings()) if below else Settings(),
        connectors=read_connectors(top),
        variables=variables,
        products=dict(_products(top)),
        layout=read_layout(top),
    )


def _refuse_references(defaults: YamlSection) -> None:
    for key in defaults.nodes:
        if REFERENCE.search(str(defaults.value(key))):
            summary = f"defaults.{key} uses a variable, but the defaults are the same in every environment"
            remedy = "write the value, or use the variable in <table>.yml"
            defaults.problems.append(Problem(summary, remedy, defaults.at(key), key))


def read_manifest_head(text: str, problems: list[Problem]) -> ManifestHead:
    """Parse only the part of headgate.yml that identifies environments; `read_manifest` reports all other mistakes.

    The result must not be used if Problems were added, because it could show a protected environment as unprotected.
    """
    top = read_yaml(text, MANIFEST_PATH, problems)
    if top is None:
        return ManifestHead()
    sections = _environment_sections(top)
    for section in sections.values():
        section.only(_ENVIRONMENT_KEYS, moved=_MOVED)
    return ManifestHead(
        project=_name(top),
        id=_identity(top),
        default_env=_default_env_name(top),
        protected_by_name={name: section.flag("protected", False) for name, section in sections.items()},
        data_by_name={name: section.text("data", "data") for name, section in sections.items()},
        colour_by_name={name: _colour(section) for name, section in sections.items()},
    )


def _name(top: YamlSection) -> str:
    name = top.text("project", "")
    if not _NAME.match(name):
        top.wrong("project", "a name", "write project: and a name of letters, digits, _ and -")
    return name


def _identity(top: YamlSection) -> str:
    text = top.text("id", "")
    try:
        return str(uuid.UUID(text))
    except ValueError:
        top.wrong("id", "a UUID", "write the output of `uuidgen`; it identifies this project permanently")
        return ""


def _environments(top: YamlSection, variables: Mapping[str, DeclaredVariable]) -> tuple[Environment, ...]:
    sections = _environment_sections(top)
    found = {name: _environment(name, section, variables) for name, section in sorted(sections.items())}
    sources = read_sources(sections, found)
    return tuple(replace(each, sources=sources[name]) for name, each in found.items())


def _environment_sections(top: YamlSection) -> dict[str, YamlSection]:
    """Return the sections of headgate.yml by environment name, in file order; an empty entry is an empty section."""
    section = top.section("environments")
    if section is None or not section.nodes:
        if "environments" not in top.nodes or section is not None or _is_null(top):
            top.wrong("environments", "at least one environment", "write environments: {dev: {}}")
        return {}
    found: dict[str, YamlSection] = {}
    for name in section.nodes:
        if not is_environment_name(name):
            section.wrong(name, "named with letters, digits, _ and -", "give the environment another name")
            continue
        if name in (OWN, SHARED):
            expected = f"named otherwise than {OWN} and {SHARED}, which have a meaning after sources:"
            section.wrong(name, expected, "give the environment another name")
        if met := next((other for other in found if other.lower() == name.lower()), None):
            section.wrong(name, f"unlike {met} also in lower case", "give the environment another name")
        node = section.nodes[name]
        inner = section.section(name)
        if inner is None and node.tag.endswith(":null"):
            inner = YamlSection(
                section.path, f"environments.{name}", section.lines[name], nodes={}, lines={}, problems=section.problems
            )
        if inner is not None:
            found[name] = inner
    return found


def _products(top: YamlSection) -> Iterator[tuple[str, DeclaredProduct]]:
    section = top.section("products")
    if section is None:
        return
    for name in section.nodes:
        product = section.section(name)
        if product is not None:
            product.only(("compatibility", "metadata"))
            mode = read_compatibility(product)
            metadata = product.flag("metadata", False) if "metadata" in product.nodes else None
            if mode or metadata is not None:
                yield name, DeclaredProduct(section.at(name), Compatibility(mode) if mode else None, metadata)


def _is_null(top: YamlSection) -> bool:
    return top.nodes["environments"].tag.endswith(":null")


def _environment(name: str, section: YamlSection, variables: Mapping[str, DeclaredVariable]) -> Environment:
    section.only(_ENVIRONMENT_KEYS, moved=_MOVED)
    policy, named = section.section("policy"), read_named_pools(section)
    if policy is not None:
        policy.only(("plan_expires_h", "drop_after_d", "gate_ends_h", "soak_min", "validate", *RULES))
    return Environment(
        name=name,
        protected=section.flag("protected", False),
        colour=_colour(section),
        data=_data(section),
        naming=read_naming(section),
        pool=named[0] if named else read_pool(section),
        named_pools=named,
        spreads=_spreads(section),
        plan_expires_h=policy.number("plan_expires_h", 24.0, most=YEAR_D * 24) if policy else 24.0,
        drop_after_d=policy.number("drop_after_d", 7.0, most=10 * YEAR_D) if policy else 7.0,
        gate_ends_h=policy.number("gate_ends_h", 24.0, most=YEAR_D * 24) if policy else 24.0,
        soak_min=(policy.bound("soak_min", most=YEAR_D * 1440, example="30") or 0.0) if policy else 0.0,
        validate=policy.flag("validate", True) if policy else True,
        objective=read_objective(section, ""),
        policy=read_policy_section(policy) if policy else Policy(),
        variables=read_values(variables, section, name) if variables or "variables" in section.nodes else (),
    )


def _data(section: YamlSection) -> str:
    data = section.text("data", "data")
    if (fault := data_folder_fault(data)) is not None:
        section.problems.append(Problem(str(fault), str(fault.remedy), section.at("data"), "data"))
        return "data"
    return data


def _spreads(section: YamlSection) -> bool:
    placement = section.text("placement", "default")
    if placement not in ("default", "spread"):
        section.wrong("placement", "default or spread", "write placement: spread, or leave it out")
    if placement == "spread" and "pools" not in section.nodes:
        section.wrong("placement", "left out without pools", "declare several pools, or remove it")
    return placement == "spread"


def _colour(section: YamlSection) -> str:
    colour = section.text("colour", "")
    if colour and colour not in COLOURS:
        section.wrong("colour", f"one of {', '.join(COLOURS)}", "write colour: green, or leave it out")
        return ""
    return colour


def _default_env_name(top: YamlSection) -> str:
    name = top.text("default_env", "")
    if not name:
        top.wrong("default_env", "the name of an environment", "write default_env: dev")
    return name


def _default_env(top: YamlSection, environments: tuple[Environment, ...]) -> str:
    name = _default_env_name(top)
    by_name = {environment.name: environment for environment in environments}
    if name and environments and name not in by_name:
        top.problems.append(
            Problem(
                f"default_env {name} is not an environment",
                did_you_mean(name, by_name) or f"environments: {', '.join(by_name)}",
                top.at("default_env"),
                name,
            )
        )
    elif name in by_name and by_name[name].protected:
        top.problems.append(
            Problem(
                f"default_env {name} is protected",
                "choose an unprotected one: a command without --env must never act on a protected environment",
                top.at("default_env"),
                name,
            )
        )
    return name


def declared_policy(texts: Mapping[str, str], environment: str, problems: list[Problem]) -> Policy | None:
    """Return the declared policy of an environment; None if the environment is not declared.

    `texts` are the project's file contents by path; the contents of SQL files may be empty. Mistakes are appended to
    `problems`.
    """
    problems += unreadable_files(texts).values()
    manifest = read_manifest(texts.get(MANIFEST_PATH), problems)
    declared = next((found for found in manifest.environments if found.name == environment), None)
    protected = protected_tables(texts, manifest, environment, problems)
    if PLACES in texts:
        from core.project_reader.places import read_places

        problems[:] = map(read_places(texts[PLACES]).of_file, problems)
    return declared.declared_policy(protected) if declared else None


def protected_tables(
    texts: Mapping[str, str], manifest: Manifest, environment: str, problems: list[Problem]
) -> tuple[TableName, ...]:
    """Return the tables to which `protect: true` applies in an environment, sorted.

    A table's settings come from its own yml file or, if it has none, from the folder's yml file. Settings that this
    file omits have the project's defaults.
    """
    found, variables = [], manifest.variables_of(environment)
    for folder in read_script_folders(texts, problems):
        known: dict[str, Settings] = {}
        for table in folder.ddl:
            path = _yml(folder, table)
            if path not in known:
                text = texts[path] if path else ""
                known[path] = read_settings(text, path, manifest.defaults, problems, variables)
            if known[path].protect:
                found.append(table)
    return tuple(sorted(found))


def _yml(folder: ScriptFolder, table: TableName) -> str:
    return folder.yml.get(table) or folder.yml.get(folder.unit, "")


def read_connectors(top: YamlSection) -> tuple[Connector, ...]:
    """Read the connectors of a project, sorted by name; an empty entry means the built-in connector of that name."""
    section = top.section("connectors")
    if section is None:
        return ()
    found = []
    for name in sorted(section.nodes):
        if name not in CONNECTORS:
            known = did_you_mean(name, CONNECTORS) or f"connectors: {', '.join(CONNECTORS)}"
            section.problems.append(
                Problem(f"{name} is not a connector that this version knows", known, section.at(name), name)
            )
            continue
        below = section.section(name)
        found.append(_connector(below, CONNECTORS[name]) if below is not None else CONNECTORS[name])
    return tuple(found)


def _connector(section: YamlSection, default: Connector) -> Connector:
    section.only(("coordinates", "exclude", "jars"))
    jars = section.texts("jars", ())
    return Connector(
        name=default.name,
        coordinates=_coordinates(section, () if jars else default.coordinates, default.coordinates[0]),
        exclude=_exclusions(section, default.exclude),
        jars=jars,
    )


def _coordinates(section: YamlSection, default: tuple[str, ...], example: str) -> tuple[str, ...]:
    given = section.texts("coordinates", default)
    lines = dict(section.entries("coordinates"))
    for coordinate in given:
        if wrong := coordinate_fault(coordinate):
            where = Where(section.path, lines.get(coordinate, section.line))
            section.problems.append(Problem(f"{coordinate} {wrong}", f"write {example}", where, coordinate))
    return given


def _exclusions(section: YamlSection, default: tuple[str, ...]) -> tuple[str, ...]:
    given = section.texts("exclude", default)
    if not all(map(is_exclusion, given)):
        section.wrong("exclude", "a list of group:artifact", 'write exclude: ["org.slf4j:*"]')
        return default
    return given


RULES = tuple(key for key in POLICY_KEYS if not key.startswith("protected"))
"""Keys below `policy`; protection is not among them, since the environment and the tables' own files declare it."""

_HOLDER = re.compile(r"@?[^\s@,:]{1,64}\Z")

MOST_H = 10 * 365 * 24
MOST_FACTOR = 1000
MOST_BUSY = 1000


def read_policy_section(section: YamlSection) -> Policy:
    """Read the `policy` section of an environment."""
    return Policy(
        max_replay_rows=section.count("max_replay_rows", example="100M"),
        max_replay_h=section.bound("max_replay_h", most=MOST_H, example="6"),
        disk_factor=section.bound("disk_factor", most=MOST_FACTOR, example="1.3"),
        max_statements=section.count("max_statements", example="40"),
        max_busy_percent=section.bound("max_busy_percent", most=MOST_BUSY, example="80"),
        max_stopped_percent=section.bound("max_stopped_percent", most=100, example="20"),
        freeze=_windows(section),
        approve=_approvable(section),
        approve_rows=section.count("approve_rows", example="10M"),
        roles=_roles(section),
        hold=section.flag("hold", False),
        read_only=section.flag("read_only", False),
        machine_moves=_machine_moves(section),
        promote=_promotion_rules(section),
    )


def _machine_moves(section: YamlSection) -> str:
    """Read whether an agent may continue on another machine: ALLOW, or empty for the default, ASK."""
    found = section.text("machine_moves", ASK)
    if found not in (ALLOW, ASK):
        section.wrong("machine_moves", f"{ALLOW} or {ASK}", f"write machine_moves: {ALLOW}, or leave it out")
    return ALLOW if found == ALLOW else ""


def _promotion_rules(section: YamlSection) -> tuple[tuple[str, str], ...]:
    """Read what the policy decides about promotions by the condition of their source, sorted, without defaults."""
    below = section.section("promote")
    if below is None:
        return ()
    below.only(tuple(PROMOTION_RULES))
    found = []
    for condition in sorted(below.nodes.keys() & PROMOTION_RULES.keys()):
        decision = below.text(condition, PROMOTION_RULES[condition])
        if decision not in (ALLOW, ASK, DENY):
            near = did_you_mean(decision.lower(), (ALLOW, ASK, DENY))
            below.wrong(condition, f"{ALLOW}, {ASK} or {DENY}", near or f"write {condition}: {ASK}")
        elif decision != PROMOTION_RULES[condition]:
            found.append((condition, decision))
    return tuple(found)


def _windows(section: YamlSection) -> tuple[str, ...]:
    found = []
    for text, line in section.entries("freeze"):
        try:
            found.append(parse_freeze_window(text).text)
        except UsageError as error:
            _report(section, f"{section.name}.freeze: {error.summary}", error.remedy, line)
    return tuple(sorted(set(found)))


def _approvable(section: YamlSection) -> tuple[str, ...]:
    found = section.entries("approve")
    for word, line in found:
        if word not in APPROVABLE:
            remedy = did_you_mean(word, APPROVABLE) or f"one or more of {', '.join(APPROVABLE)}"
            _report(section, f"{section.name}.approve: {word} is not something that can require approval", remedy, line)
    return tuple(sorted({word for word, _ in found}))


def _roles(section: YamlSection) -> tuple[tuple[str, tuple[str, ...]], ...]:
    roles = section.section("roles")
    if roles is None:
        return ()
    roles.only(ROLES)
    found = []
    for role in sorted(set(roles.nodes) & set(ROLES)):
        holders = roles.entries(role)
        if not holders:
            roles.wrong(
                role,
                "a list of logins and @groups",
                f'write {role}: [alice, "@sre"], or leave it out to allow everybody',
            )
        for holder, line in holders:
            if not _HOLDER.match(holder):
                _report(
                    section,
                    f"{roles.name}.{role}: {holder!r} is not a login",
                    'write alice, or "@sre" for a group',
                    line,
                )
        found.append((role, tuple(sorted({holder for holder, _ in holders}))))
    return tuple(found)


def _report(section: YamlSection, summary: str, remedy: str, line: int) -> None:
    section.problems.append(Problem(summary, remedy, Where(section.path, line), section.name))
