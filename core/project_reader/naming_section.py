"""Parsing of `naming` in an environment of headgate.yml."""

import re

from core.project.naming import Naming
from core.project_reader.yaml_reader import YamlSection

_AFFIX = re.compile(r"[a-z0-9_]{0,40}\Z")


def read_naming(environment: YamlSection) -> Naming:
    """Read the naming of an environment; invalid values are reported and have their default."""
    section = environment.section("naming")
    if section is None:
        return Naming()
    section.only(("prefix", "suffix"))
    return Naming(prefix=_affix(section, "prefix", "dev_"), suffix=_affix(section, "suffix", "_dev"))


def _affix(section: YamlSection, key: str, example: str) -> str:
    found = section.text(key, "")
    if not _AFFIX.match(found):
        section.wrong(key, "lower-case letters, digits and _", f"write {key}: {example}")
        return ""
    return found
