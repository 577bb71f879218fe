"""Settings of Hadoop's clients, as Spark finds them: in the files of HADOOP_CONF_DIR, and in the conf of the pools."""

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from xml.etree import ElementTree

_PREFIX = "spark.hadoop."
_VARIABLE = re.compile(r"\$\{env[.:](?P<name>[^{}\s]+)\}\Z")
"""Matches a reference to an environment variable, as headgate.yml or as Hadoop writes it."""

_of_pools: dict[str, str] = {}


class NoSecret(Exception):
    """Raised with the reference if an environment variable is not set."""


def use_settings_of_pools(confs: Iterable[Iterable[tuple[str, str]]]) -> None:
    """Let the `spark.hadoop.*` of the pools take precedence over files, from now on in this process.

    Of several pools that have a setting, the first one counts.
    """
    _of_pools.clear()
    for conf in confs:
        for key, value in conf:
            if key.startswith(_PREFIX):
                _of_pools.setdefault(key.removeprefix(_PREFIX), value)


def hadoop_settings() -> Mapping[str, str]:
    """Return the settings, with references in place of secrets. A file that is missing or damaged has none."""
    found: dict[str, str] = {}
    folder = os.environ.get("HADOOP_CONF_DIR", "")
    for name in ("core-site.xml", "hdfs-site.xml") if folder else ():
        with suppress(OSError, ElementTree.ParseError):
            for each in ElementTree.fromstring(Path(folder, name).read_text("utf-8")).iter("property"):
                found[each.findtext("name", "").strip()] = each.findtext("value", "").strip()
    return found | _of_pools


def resolved(value: str) -> str:
    """Return a value, or that of the environment variable that it refers to. Raises NoSecret if that is not set."""
    found = _VARIABLE.match(value)
    if found is None:
        return value
    if not (secret := os.environ.get(found["name"], "")):
        raise NoSecret(value)
    return secret
