"""The sections `pool` and `pools` of an environment in headgate.yml."""

import re
from dataclasses import replace

import yaml

from core.model.names import is_environment_name
from core.model.problems import Problem, Where
from core.model.secret_references import secret_reference
from core.project.manifest_head import MANIFEST_PATH
from core.project.model import (
    CLUSTER,
    LEAST_MIB,
    LOCAL,
    MASTER_SCHEME,
    MOST_CORES,
    MOST_MIB,
    Pool,
    is_loopback,
    is_memory,
)
from core.project.resources import UNLIMITED, Amounts
from core.project.server_settings import is_exposed_secret
from core.project_reader.table_yml import read_amounts
from core.project_reader.yaml_reader import YamlSection, read_yaml

_MASTER = re.compile(rf"{MASTER_SCHEME}(\[[0-9A-Fa-f:]+\]|[A-Za-z0-9._-]+):[1-9][0-9]{{0,4}}\Z")
_UI = re.compile(r"https?://[^\s@?#]+\Z")
_PAGE = re.compile(r"https?://[^/\s@?#]+/?\Z")


def read_pool(section: YamlSection) -> Pool:
    """Read the only pool of an environment; a local one if none is declared."""
    below = section.section("pool")
    if below is None:
        return Pool()
    below.only(("name", *_POOL_KEYS), elsewhere={"placement": section.name})
    return _pool(below, below.text("name", CLUSTER if below.text("master", "") else LOCAL))


def read_named_pools(section: YamlSection) -> tuple[Pool, ...]:
    """Read the pools of an environment that has several, in their order; empty if it has only one."""
    node, below = section.nodes.get("pools"), section.section("pools")
    if below is None:
        if node is not None and node.tag.endswith(":null"):
            section.wrong("pools", "a mapping of pools by name", "write pools: {small: {cores: 2}, large: {cores: 8}}")
        return ()
    if "pool" in section.nodes:
        section.wrong("pools", "left out beside pool", "move what pool declares below pools, under a name")
    if not below.nodes:
        section.wrong("pools", "at least one pool", "write pools: {small: {cores: 2}}, or leave it out")
    found: dict[str, Pool] = {}
    for name, node in below.nodes.items():
        # The name is that of a folder, and of a lock in the data folder.
        if not is_environment_name(name):
            below.wrong(name, "named with letters, digits, _ and -", "give the pool another name")
            continue
        if met := next((other for other in found if other.lower() == name.lower()), None):
            below.wrong(name, f"unlike {met} also in lower case", "give the pool another name")
        inner = below.section(name)
        if inner is not None:
            inner.only(_POOL_KEYS, elsewhere={"placement": section.name})
            found[name] = _pool(inner, name)
        elif node.tag.endswith(":null"):
            found[name] = Pool(name)
    return tuple(found.values())


def place_in_pool(manifest: str, environment: str, pool: Pool, *keys: str) -> Where:
    """Return where the text of headgate.yml has a key of a pool, or one below it; without it, where the pool begins."""
    top = read_yaml(manifest, MANIFEST_PATH, [])
    here = top.section("environments") if top is not None else None
    here = here.section(environment) if here is not None else None
    several = here.section("pools") if here is not None else None
    below = several.section(pool.name) if several is not None else here.section("pool") if here is not None else None
    for key in keys[:-1]:
        below = inner if below is not None and (inner := below.section(key)) is not None else below
    return below.at(keys[-1]) if below is not None else Where(MANIFEST_PATH)


def problems_of_pools(manifest: str, environment: str) -> tuple[Problem, ...]:
    """Return what is wrong with the pools of an environment in the text of headgate.yml."""
    problems: list[Problem] = []
    top = read_yaml(manifest, MANIFEST_PATH, [])
    here = top.section("environments") if top is not None else None
    here = here.section(environment) if here is not None else None
    if here is not None:
        here = replace(here, problems=problems)
        read_pool(here)
        read_named_pools(here)
    return tuple(problems)


_POOL_KEYS = (
    "url", "token", "tls", "ca", "master", "master_ui", "cores", "memory", "conf", "statements", "ui",
    "capacity", "class", "yarn_ui",
)  # fmt: skip


def _pool(section: YamlSection, name: str) -> Pool:
    cores = section.number("cores", 2, most=MOST_CORES)
    if cores != int(cores):
        section.wrong("cores", "a whole number", "write cores: 2")
    memory = section.text("memory", "2g")
    if not is_memory(memory):
        section.wrong("memory", f"a size from {LEAST_MIB}m to {MOST_MIB // 1024}g", "write memory: 2g")
        memory = "2g"
    url = section.text("url", "")
    if url and not url.startswith("sc://"):
        section.wrong("url", "a Spark Connect address", "write url: sc://host:port")
        url = ""
    master, page = _master(section)
    conf = section.pairs("conf")
    for key in (key for key, value in conf if is_exposed_secret(key, value)):
        # The value is a secret, and must not be in a problem.
        if (inner := section.section("conf")) is not None:
            inner.wrong(key, "a reference to a secret", "write ${env:NAME}, a variable where headgate up runs")
    pool = Pool(
        name=name,
        url=url or None,
        cores=int(cores),
        memory=memory,
        conf=conf,
        master=master,
        master_ui=page,
        capacity=_capacity(section),
        of_class=_class(section),
    )
    return _secured(section, replace(pool, yarn_ui=_yarn(section, pool)))


def _capacity(section: YamlSection) -> Amounts:
    """Read `capacity`, or `statements` as its short form."""
    if "capacity" not in section.nodes:
        return Amounts(section.count("statements", example="40"))
    if "statements" in section.nodes:
        section.wrong("statements", "left out beside capacity", "write it into capacity: {statements: 40}")
    return read_amounts(section, "capacity", UNLIMITED, with_statements=True)


def _class(section: YamlSection) -> str:
    name, written = section.text("class", ""), section.value("class")
    if written is not None and written.text == name and not is_environment_name(name):
        section.wrong("class", "named with letters, digits, _ and -", "write another name, or leave it out")
        return ""
    return name


_SECURITY_PARAMETERS = {
    "token": "keep the token elsewhere: token: ${env:NAME}, ${file:/path} or ${command:program argument}",
    "authorization": "keep the token elsewhere: token: ${env:NAME}, ${file:/path} or ${command:program argument}",
    "use_ssl": "write tls: true instead",
}
"""Parameters of an address that have keys of their own, with the remedy, by name."""


def _secured(section: YamlSection, pool: Pool) -> Pool:
    """Read how connections to a pool with a `url` are secured."""
    parameters = {each.partition("=")[0].strip().lower() for each in (pool.url or "").split(";")[1:]}
    for name in sorted(parameters & _SECURITY_PARAMETERS.keys()):
        section.wrong("url", f"an address without {name}", _SECURITY_PARAMETERS[name])
    if pool.url is None:
        remedy = "remove it" if pool.master else "write url: sc://host:port, or remove it"
        for key in ("token", "tls", "ca", "ui"):
            if key in section.nodes:
                section.wrong(key, "left out without url", remedy)
        return pool
    ui = section.text("ui", "")
    if ui and not _UI.match(ui):
        section.wrong("ui", "the URL of Spark's web interface", "write ui: https://host:4040")
        ui = ""
    ca, node = section.text("ca", ""), section.nodes.get("token")
    # A value that is no reference is a secret, and must not be in a problem.
    token = secret_reference(node.value) if isinstance(node, yaml.ScalarNode) else None
    if node is not None and token is None:
        remedy = "write token: ${env:NAME}, ${file:/path} or ${command:program argument}"
        section.wrong("token", "a reference to a secret", remedy)
    if ca and not ca.startswith("/"):
        section.wrong("ca", "an absolute path", "write the path of a PEM file where the agent runs")
    tls = section.flag("tls", bool(ca))
    if ca and not tls:
        section.wrong("tls", "true beside ca", "write tls: true, or remove ca")
    if token is not None and "tls" not in section.nodes and not tls and not is_loopback(pool.url):
        remedy = "write tls: true or, if the network is trusted, tls: false"
        section.wrong("token", "encrypted on its way to another machine", remedy)
    return replace(pool, token=token, tls=tls, ca=ca, ui=ui)


def _master(section: YamlSection) -> tuple[str | None, str]:
    """Return the address of a standalone cluster's master, and the URL of its web interface."""
    master, page, has_url = section.text("master", ""), section.text("master_ui", ""), "url" in section.nodes
    if master and has_url:
        remedy = "remove url to let the agent start a server on that cluster, or master to use the server at url"
        section.wrong("master", "left out beside url", remedy)
        return None, ""
    if master and not _MASTER.match(master):
        section.wrong("master", "the address of a standalone cluster's master", _instead_of(master))
        return None, ""
    if page and not master and not has_url:
        section.wrong("master_ui", "left out without master or url", "write master: spark://host:7077")
        return None, ""
    if page and not _PAGE.match(page):
        section.wrong("master_ui", "the URL of the master's web interface", "write master_ui: http://host:8080")
        page = ""
    return master or None, page


def _yarn(section: YamlSection, pool: Pool) -> str:
    """Return the URL of YARN's ResourceManager."""
    page = section.text("yarn_ui", "")
    if page and pool.url is None:
        section.wrong("yarn_ui", "left out without url", "write url: sc://host:port, or remove it")
    elif page and pool.master_ui:
        section.wrong("yarn_ui", "left out beside master_ui", "keep the one on whose cluster the server runs")
    elif page and not _PAGE.match(page):
        section.wrong("yarn_ui", "the URL of the ResourceManager's web interface", "write yarn_ui: http://host:8088")
    else:
        return page
    return ""


def _instead_of(master: str) -> str:
    if master.startswith("local"):
        return "remove it: without master, the agent starts a local server with that many cores"
    if master.partition(":")[0] in ("yarn", "k8s"):
        return "start a Connect server there, and write its address: url: sc://host:15002"
    if "," in master:
        return f"write one of the masters: master: {master.partition(',')[0]}"
    return "write master: spark://host:7077, as the master's web interface shows it"
