"""Parsing of `naming` and `sources` in an environment of headgate.yml."""

import re
from collections.abc import Mapping
from dataclasses import replace

from core.model.problems import Problem
from core.project.model import Environment
from core.project.naming import OWN, OWN_SOURCES, SHARED, Naming, Sources
from core.project_reader.yaml_reader import YamlSection
from core.text.wording import did_you_mean

_AFFIX = re.compile(r"[a-z0-9_]{0,40}\Z")
_DATABASE = re.compile(r"[a-z_][a-z0-9_]{0,119}\Z")
_LETTERS = "lower-case letters, digits and _"


def read_naming(environment: YamlSection) -> Naming:
    """Read the naming of an environment; invalid values are reported and have their default."""
    section = environment.section("naming")
    if section is None:
        return Naming()
    section.only(("prefix", "suffix", "catalog", "database"))
    found = Naming(
        prefix=_name(section, "prefix", _AFFIX, "dev_"),
        suffix=_name(section, "suffix", _AFFIX, "_dev"),
        catalog=_name(section, "catalog", _DATABASE, "spark_catalog"),
        database=_name(section, "database", _DATABASE, "dev"),
    )
    if found.catalog and not found.database:
        section.wrong("catalog", "given with a database", "write database: as well, such as database: default")
        return replace(found, catalog="")
    return found


def read_sources(sections: Mapping[str, YamlSection], environments: Mapping[str, Environment]) -> dict[str, Sources]:
    """Read where each environment finds its external tables; an invalid value is reported and has its default.

    The external tables of an environment that reads those of another one are followed to the environment that owns or
    shares them.
    """
    of = {name: _source(sections[name], name, environments) for name in environments}
    return {name: _followed(name, of, sections[name], environments) for name in environments}


def _followed(
    name: str, of: Mapping[str, str], section: YamlSection, environments: Mapping[str, Environment]
) -> Sources:
    path = [name]
    while (last := of[path[-1]]) not in (OWN, SHARED):
        if last in path:
            cycle = path[path.index(last) :]
            if name == min(cycle):
                summary = f"environments read the external tables of each other: {' → '.join((*cycle, last))}"
                section.problems.append(Problem(summary, "leave out one sources:", section.at("sources"), name))
            return OWN_SOURCES
        path.append(last)
    owner = environments[path[-1]]
    naming = owner.naming if last == OWN else replace(owner.naming, prefix="", suffix="")
    if len(path) > 1:
        return Sources(naming, owner.data, of[name])
    return OWN_SOURCES if last == OWN else Sources(naming, of=SHARED)


def _source(environment: YamlSection, name: str, environments: Mapping[str, Environment]) -> str:
    """Return `own`, `shared` or the name of another environment."""
    of = environment.text("sources", OWN)
    if of == name:
        return OWN
    if of not in (OWN, SHARED, *environments):
        words = (OWN, SHARED, *(each for each in environments if each != name))
        expected = f"{OWN}, {SHARED} or another environment, not {of}"
        environment.wrong("sources", expected, did_you_mean(of, words) or f"one of {', '.join(words)}")
        return OWN
    return of


def _name(section: YamlSection, key: str, form: re.Pattern[str], example: str) -> str:
    found = section.text(key, "")
    if found and not form.match(found):
        section.wrong(key, _LETTERS, f"write {key}: {example}")
        return ""
    return found
