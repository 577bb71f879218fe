"""The few values of headgate.yml that identify an environment; a light module, because every command needs it first."""

from collections.abc import Mapping
from dataclasses import dataclass, field

MANIFEST_PATH = "headgate.yml"


@dataclass(frozen=True, slots=True)
class ManifestHead:
    """Project, id, default and environments; the rest of headgate.yml is in `core.project.model`."""

    project: str = ""
    id: str = ""
    """UUID in canonical form."""
    default_env: str = ""
    protected_by_name: Mapping[str, bool] = field(default_factory=dict)
    """Declared environments, in file order."""
    data_by_name: Mapping[str, str] = field(default_factory=dict)
    """Their data folders, as written or by default."""
