"""Reading of YAML manifests: each declares the statements of one job, and is merged over its templates.

The nearest value wins: that of an entry of `statements`, of the manifest, of its template, of the template's template.
Mappings are merged key by key; any other value, a list as well, replaces the whole value. An empty value sets nothing.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import yaml

from core.model.errors import BadName
from core.model.names import TableName, parse_table_name
from core.model.problems import Problem, Where
from core.project.model import LAYER_FOLDERS, Environment, Layer, Pool, place_in_parts
from core.project_reader.job_files import JobCode
from core.project_reader.sql_in_yaml import SqlInYaml, sql_in_yaml
from core.project_reader.table_yml import KEYS
from core.project_reader.yaml_reader import YamlSection, read_yaml
from core.sql.tokens.lexer import PIECES
from core.text.wording import did_you_mean

NAMED = "query_name"
"""The key of `<table>.yml` that has the name of the manifest."""
SETTINGS = tuple(key for key in KEYS if key not in ("changes_of", NAMED))
"""Keys of `<table>.yml`, all of which a manifest may have."""

TARGET = "target-table"
OWN = ("name", TARGET, "sql", "code", "statements")
"""Keys that belong to a single manifest, so that no template may have them."""

OF_ONE_STATEMENT = ("mirror_offsets", "connector", "silence", "readers", "checks", "inputs", "state_compatible")
"""Settings that belong to a single table, so that no template may have them; headgate.yml has no defaults for them."""

PROPERTIES, OF_FLINK = "sparkProperties", "flinkProperties"
SHARED = ("template", "product", "layer", PROPERTIES, OF_FLINK)
MANIFEST_KEYS = (*OWN, *SHARED, *SETTINGS)
TEMPLATE_KEYS = (*SHARED, *(key for key in SETTINGS if key not in OF_ONE_STATEMENT))
STATEMENT_KEYS = (TARGET, "sql", *SETTINGS)

PRODUCT = "main"
"""The product of manifests that are in no folder of a product, and of external tables."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,99}\Z")
_PRODUCT = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}\Z")
_LINES = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
"""Line breaks of YAML."""
_NO_BREAK = re.compile(r"[^\n]")

_INSTEAD = {
    "execution.checkpointing.interval": "remove it: trigger: says how often a statement runs, and each run is recorded",
    "execution.checkpointing": "remove it: Spark records each batch in the checkpoint",
    "state.checkpoints": "remove it: Headgate chooses a checkpoint for each version of a table",
    "state.savepoints": "remove it: Headgate chooses a checkpoint for each version of a table",
    "state.backend": "set spark.sql.streaming.stateStore.providerClass in pool.conf of the environment instead",
    "restart-strategy": "remove it: headgate restart TABLE starts a failed statement again",
    "pipeline.name": "remove it: a query has the name of its table and version",
}
"""Remedies for settings of Flink, by their first words."""


@dataclass(frozen=True, slots=True)
class MergedSettings:
    """Values by key, merged from several files, and where each was set."""

    nodes: Mapping[str, yaml.Node]
    places: Mapping[str, Where]
    """Where the nearest file sets each key."""


@dataclass(frozen=True, slots=True)
class ManifestStatement:
    """A statement that a manifest declares."""

    target: TableName
    target_place: Where
    sql: SqlInYaml | None
    """None if a Problem was reported about it."""
    settings: MergedSettings
    code: JobCode | None = None
    """The code of a job in Python; None for SQL."""


@dataclass(frozen=True, slots=True)
class JobManifest:
    """A manifest; what it lacks because of a Problem is empty."""

    path: str
    problems: tuple[Problem, ...]
    """The errors in the manifest itself."""
    place: Where
    """Where it gives its name."""
    name: str = ""
    product: str = PRODUCT
    layer: Layer = Layer.FACT
    statements: tuple[ManifestStatement, ...] = ()
    templates: tuple[str, ...] = ()
    """Paths of the templates over which it is merged, the nearest first."""


@dataclass(slots=True)
class Templates:
    """The templates of a project, each of which is read and checked once."""

    files: Mapping[str, str]
    environments: Sequence[Environment]
    problems: list[Problem]
    read: dict[str, YamlSection | None] = field(default_factory=dict)

    def chain(self, path: str, named_at: Where, problems: list[Problem]) -> dict[str, YamlSection | None]:
        """Return a template and those above it by path, the nearest first; None for one that is not valid YAML.

        A template that is missing or that is above itself is reported in `problems`, at the line that names it.
        """
        seen: dict[str, YamlSection | None] = {}
        while path:
            if path in seen:
                circle = " → ".join((*list(seen)[list(seen).index(path) :], path))
                remedy = "remove template: from one of these files"
                problems.append(Problem(f"the templates form a circle: {circle}", remedy, named_at, path))
                break
            if path not in self.files:
                near = did_you_mean(path, (each for each in self.files if each.endswith((".yml", ".yaml"))))
                remedy = near or "create it, or write the path of a template below the project folder"
                problems.append(Problem(f"the template {path} does not exist", remedy, named_at, path))
                break
            section = seen[path] = self._section(path)
            if section is None:
                break
            path, named_at = section.text("template", ""), section.at("template")
        return seen

    def _section(self, path: str) -> YamlSection | None:
        if path not in self.read:
            section = read_yaml(self.files[path], path, self.problems)
            self.read[path] = section
            if section is not None:
                for key in [key for key in (*OWN, *OF_ONE_STATEMENT) if key in section.nodes]:
                    section.wrong(key, "in a manifest, because it belongs to one job", f"move {key}: to the manifest")
                _only(section, (*TEMPLATE_KEYS, *OWN, *OF_ONE_STATEMENT))
                _check_properties(section, self.environments)
        return self.read[path]


def read_job_manifest(text: str, path: str, folder: str, default_template: str, templates: Templates) -> JobManifest:
    """Read a manifest in a folder of manifests; `default_template` may be empty. Problems are in the result."""
    problems: list[Problem] = []
    top = read_yaml(text, path, problems)
    below = path.removeprefix(f"{folder}/").split("/")
    product = below[0] if len(below) > 1 else PRODUCT
    if top is None:
        return JobManifest(path, problems=tuple(problems), place=Where(path, 1), product=product)
    _only(top, MANIFEST_KEYS)
    _check_properties(top, templates.environments)
    named = top.text("template", "")
    chain = templates.chain(named or default_template, top.at("template"), problems)
    parts = [*(section for section in reversed(chain.values()) if section is not None), top]
    head = merge_settings(parts, problems)
    name = _name(top)
    lines = _LINES.split(text)
    statements = tuple(_statements(top, parts, lines))
    product, layer = _product(head, problems) or product, _layer(head, problems)
    return JobManifest(
        path,
        problems=tuple(problems),
        place=top.at("name"),
        name=name,
        product=product,
        layer=layer,
        statements=statements,
        templates=tuple(chain),
    )


def merge_settings(parts: Iterable[YamlSection], problems: list[Problem]) -> MergedSettings:
    """Merge sections, the nearest last.

    A value that is a mapping in one section and none in another is reported, because either would lose something.
    """
    nodes: dict[str, yaml.Node] = {}
    places: dict[str, Where] = {}
    for part in parts:
        for key, node in part.nodes.items():
            if node.tag.endswith(":null") or part.value(key) is None:
                continue
            if key in nodes and isinstance(nodes[key], yaml.MappingNode) != isinstance(node, yaml.MappingNode):
                kinds = ("a mapping", "one value")
                now, before = kinds if isinstance(node, yaml.MappingNode) else kinds[::-1]
                summary = f"{key} is {now} here and {before} in {places[key]}"
                problems.append(Problem(summary, "write both in the same form", part.at(key), key))
            nodes[key] = _merged(nodes[key], node) if key in nodes else node
            places[key] = part.at(key)
    return MergedSettings(nodes, places)


def _merged(far: yaml.Node, near: yaml.Node) -> yaml.Node:
    if not isinstance(far, yaml.MappingNode) or not isinstance(near, yaml.MappingNode):
        return near
    entries = {str(key.value): (key, value) for key, value in far.value}
    for key, value in near.value:
        word = str(key.value)
        if not value.tag.endswith(":null"):
            entries[word] = (key, _merged(entries[word][1], value) if word in entries else value)
        else:
            entries.setdefault(word, (key, value))
    return yaml.MappingNode(near.tag, list(entries.values()), near.start_mark, near.end_mark, flow_style=True)


def _only(section: YamlSection, known: Sequence[str]) -> None:
    section.only(known, moved={"target_table": TARGET, "extends": "template", "properties": PROPERTIES})


def _name(top: YamlSection) -> str:
    stem = top.path.rpartition("/")[2].rpartition(".")[0]
    name = top.text("name", "")
    if not name and not _wrong_already(top, "name"):
        top.problems.append(Problem("the manifest has no name", f"write name: {stem}", top.at(), "name"))
    elif name and not _NAME.match(name):
        form = "a name of letters, digits, _, - and ., beginning with a letter"
        top.wrong("name", form, "give the job such a name, of at most 100 characters")
        return ""
    return name


def _wrong_already(section: YamlSection, key: str) -> bool:
    return any(problem.where == section.at(key) and problem.subject == key for problem in section.problems)


def _product(head: MergedSettings, problems: list[Problem]) -> str:
    node = head.nodes.get("product")
    if node is None:
        return ""
    product = str(node.value)
    if not isinstance(node, yaml.ScalarNode) or not _PRODUCT.match(product):
        remedy = "write product: payments, of small letters, digits, - and _"
        problems.append(Problem("product must be a name", remedy, head.places["product"], "product"))
        return ""
    return product


def _layer(head: MergedSettings, problems: list[Problem]) -> Layer:
    node = head.nodes.get("layer")
    word = str(node.value) if isinstance(node, yaml.ScalarNode) else ""
    if node is None or word in tuple(Layer):
        return Layer(word) if word else Layer.FACT
    if word in LAYER_FOLDERS:
        return LAYER_FOLDERS[word]
    remedy = did_you_mean(word, Layer) or f"write layer: {Layer.INTERMEDIATE}, or leave it out"
    problems.append(Problem(f"layer must be one of {', '.join(Layer)}", remedy, head.places["layer"], "layer"))
    return Layer.FACT


def _statements(top: YamlSection, parts: Sequence[YamlSection], lines: Sequence[str]) -> Iterable[ManifestStatement]:
    given = [key for key in ("sql", "code", "statements") if key in top.nodes and not _is_null(top.nodes[key])]
    if len(given) > 1:
        both = " and ".join(given)
        place = max((top.at(key) for key in given), key=lambda where: where.line)
        top.problems.append(Problem(f"the manifest has {both}", "keep one of them", place, given[-1]))
    if not given:
        remedy = "write sql: | and below it the SELECT of the job, or code: | and a function in Python"
        top.problems.append(Problem("the manifest has neither sql nor code", remedy, top.at(), "sql"))
    if given == ["statements"]:
        yield from _entries(top, parts, lines)
        return
    settings = merge_settings(parts, top.problems)
    if (target := _target(top, needed=True)) is not None:
        sql = _sql(top, lines) if given == ["sql"] else None
        code = _code(top, target) if given == ["code"] else None
        yield ManifestStatement(target, top.at(TARGET), sql, settings, code)


def _code(top: YamlSection, target: TableName) -> JobCode | None:
    node = top.nodes["code"]
    text = top.text("code", "")
    first = node.start_mark.line + 1
    remedy = f"write code: | and below it def {target}(…):, which returns a streaming DataFrame"
    if not isinstance(node, yaml.ScalarNode) or not text.strip():
        if not _wrong_already(top, "code"):
            top.wrong("code", "the text of a Python module", remedy)
        return None
    if node.style != "|" and node.end_mark.line > first:
        summary = "YAML joins the lines of this code, because it is a folded value"
        top.problems.append(Problem(summary, "write code: | instead", top.at("code"), "code"))
        return None
    block = node.style == "|"
    return JobCode(target, str(node.value), top.path, first + 1 if block else first, follows=block)


def _entries(top: YamlSection, parts: Sequence[YamlSection], lines: Sequence[str]) -> Iterable[ManifestStatement]:
    if TARGET in top.nodes:
        top.wrong(TARGET, "in each of the statements", f"move {TARGET}: below statements:")
    for section in top.sections("statements", f"- {TARGET}: …, with sql: in each"):
        _only(section, STATEMENT_KEYS)
        if section.value("sql") is None and "sql" not in section.nodes:
            remedy = "write sql: | and below it a SELECT"
            top.problems.append(Problem("this statement has no sql", remedy, section.at(), "sql"))
        settings = merge_settings([*parts, section], top.problems)
        if (target := _target(section, needed=True)) is not None:
            yield ManifestStatement(target, section.at(TARGET), _sql(section, lines), settings)


def _target(section: YamlSection, *, needed: bool) -> TableName | None:
    written = section.text(TARGET, "")
    if not written:
        if needed and not _wrong_already(section, TARGET):
            remedy = f"write {TARGET}: and the name of the table that the job writes"
            section.problems.append(Problem("there is no target-table", remedy, section.at(), TARGET))
        return None
    bare = written.rpartition(".")[2].strip().strip("`")
    if "." in written:
        alone = re.sub(r"\W", "_", bare).lower()
        remedy = f"write {TARGET}: {alone}, and declare the table by this name: Headgate chooses the database"
        summary = f"{TARGET} {written} cannot be qualified with a database"
        section.problems.append(Problem(summary, remedy, section.at(TARGET), TARGET))
        return None
    try:
        return parse_table_name(written)
    except BadName as error:
        section.problems.append(Problem(error.summary, error.remedy, section.at(TARGET), TARGET))
        return None


def _sql(section: YamlSection, lines: Sequence[str]) -> SqlInYaml | None:
    node = section.nodes.get("sql")
    if node is None:
        return None
    text = section.text("sql", "")
    if not isinstance(node, yaml.ScalarNode) or not text.strip():
        if not _wrong_already(section, "sql"):
            section.wrong("sql", "a SELECT", "write sql: | and below it the SELECT of the job")
        return None
    found = sql_in_yaml(node, lines, section.path)
    if found.cut_line:
        summary = "this comment hides the rest of the query, because YAML joins the lines of a folded value"
        where = Where(section.path, found.cut_line)
        section.problems.append(Problem(summary, "write sql: | instead of sql: >", where, "sql"))
        return None
    return found if _is_one_query(found, section) else None


def _is_one_query(found: SqlInYaml, section: YamlSection) -> bool:
    """True if SQL may follow INSERT INTO; otherwise, a Problem is reported. It is not parsed here."""
    plain = PIECES.sub(lambda piece: _NO_BREAK.sub(" ", piece[0]), found.text)
    query = plain.rstrip().removesuffix(";")
    at = len(query) - len(query.lstrip())
    word = query.split(maxsplit=1)[0].upper() if query.split() else ""
    remedy = f"write one SELECT: {TARGET} gives the table that it writes"
    if ";" in query:
        at = query.index(";")
        remedy = "keep one SELECT; a manifest with several has statements: instead of sql:"
        summary = "sql contains several statements"
    elif not word:
        summary = "sql contains no query"
    elif not word.startswith(("SELECT", "WITH", "(")):
        summary = f"sql begins with {word[:30]}"
    else:
        return True
    line = found.text.count("\n", 0, at) + 1
    section.problems.append(Problem(summary, remedy, place_in_parts(found.parts, Where("", line)), "sql"))
    return False


def _is_null(node: yaml.Node) -> bool:
    return node.tag.endswith(":null")


def _pools(section: YamlSection, environment: Environment) -> tuple[Pool, ...]:
    """Return the pools in which a statement may run."""
    value = section.value("pool")
    name = (value.text or "") if value is not None else ""
    classes = [each.text or "" for _, each in value.pairs or ()] if value is not None else []
    return tuple(pool for pool in environment.named_pools if name == pool.name or pool.of_class in classes) or (
        environment.pools
    )


def _check_properties(section: YamlSection, environments: Sequence[Environment]) -> None:
    """Report each property that has no effect: all statements of a pool share its settings."""
    flink = section.section(OF_FLINK)
    for key in flink.nodes if flink is not None else ():
        remedy = next((text for words, text in _INSTEAD.items() if key.startswith(words)), "")
        remedy = remedy or "remove it, or set what Spark has for it in pool.conf of the environment"
        where = flink.at(key) if flink is not None else section.at(OF_FLINK)
        section.problems.append(Problem(f"{key} is a setting of Flink", remedy, where, key))
    spark = section.section(PROPERTIES)
    if spark is None:
        return
    for key, value in section.pairs(PROPERTIES):
        for each in environments:
            pools = _pools(section, each)
            if lacking := next((pool for pool in pools if dict(pool.conf).get(key) != value), None):
                of, path = (f"pool {lacking.name}", f"pools.{lacking.name}") if each.named_pools else ("pool", "pool")
                # The values may be secret.
                summary = (
                    f"the {of} of {each.name} does not set {key} as it is here, and its statements share all settings"
                )
                remedy = f"set it to the same value in environments.{each.name}.{path}.conf in headgate.yml"
                section.problems.append(Problem(summary, remedy, spark.at(key), key))
                break
