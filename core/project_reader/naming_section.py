"""Parsing of `naming` and `sources` in an environment of headgate.yml."""

import re
from collections.abc import Mapping
from dataclasses import replace

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


def read_sources(environment: YamlSection, name: str, environments: Mapping[str, Environment]) -> Sources:
    """Read where the environment `name` finds its external tables; an invalid value is reported and has its default."""
    of = environment.text("sources", OWN)
    own = environments[name]
    if of in (OWN, name):
        return OWN_SOURCES
    if of == SHARED:
        return Sources(replace(own.naming, prefix="", suffix=""), of=of)
    other = environments.get(of)
    if other is None:
        words = (OWN, SHARED, *(each for each in environments if each != name))
        expected = f"{OWN}, {SHARED} or another environment, not {of}"
        environment.wrong("sources", expected, did_you_mean(of, words) or f"one of {', '.join(words)}")
        return OWN_SOURCES
    return Sources(other.naming, other.data, of)


def _name(section: YamlSection, key: str, form: re.Pattern[str], example: str) -> str:
    found = section.text(key, "")
    if found and not form.match(found):
        section.wrong(key, _LETTERS, f"write {key}: {example}")
        return ""
    return found
