"""The values of headgate.yml that identify an environment. This module loads fast, because every command needs it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

MANIFEST_PATH = "headgate.yml"

PLACES = "headgate.places.json"
"""Path among the generated texts of a project of manifests of a JSON object: where each of their lines was written."""

COLOURS = ("red", "amber", "green", "blue")
"""Colours that an environment may declare for its name, which is shown beside every colour."""


@dataclass(frozen=True, slots=True)
class ManifestHead:
    """Name, id, environments and default environment of a project, as read from headgate.yml."""

    project: str = ""
    id: str = ""
    """The project's UUID in canonical form."""
    default_env: str = ""
    protected_by_name: Mapping[str, bool] = field(default_factory=dict)
    """Whether each declared environment is protected, by name and in file order."""
    data_by_name: Mapping[str, str] = field(default_factory=dict)
    """The data folder of each declared environment, as declared or, if omitted, the default."""
    colour_by_name: Mapping[str, str] = field(default_factory=dict)
    """The declared colour of each environment, one of `COLOURS`; empty for the default."""
