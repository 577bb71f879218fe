"""An overlay: an environment for one branch, which reads from another environment all tables that it does not build.

`headgate up --env pr-123 --from dev` writes it to a file in the home of the environment. The file is never changed
afterwards, except that a table can be added to `inherited`.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from core.model.errors import UsageError
from core.model.names import TableName, is_environment_name

OVERLAY_FILE = "overlay.json"
"""Name of the file in the home of the environment."""

LOCK_FILE = "overlay.lock"
"""Name of the file that a process locks while it generates the project."""

PROJECT_FOLDER = "project"
"""Folder in the home with the project of the overlay, which `headgate up` generates from the branch."""

DEFAULT_LIFETIME_S = 2 * 86_400.0
"""How long an overlay exists unless `--expires` says otherwise, in seconds."""

SHORTEST_S, LONGEST_S = 60.0, 60 * 86_400.0
"""Bounds of `--expires` and `--since`, in seconds."""

_PERIOD = re.compile(r"([1-9][0-9]{0,4})([mhd])\Z")
_UNIT_S = {"m": 60.0, "h": 3600.0, "d": 86_400.0}
_LONGEST_PREFIX = 40


@dataclass(frozen=True, slots=True)
class Overlay:
    """An overlay as it was created; times are in epoch seconds."""

    base: str
    """The environment whose tables are read."""
    base_home: str
    """Absolute path of the base's home folder, which contains its ledger."""
    base_data: str
    """Absolute path of the base's data folder."""
    branch: str
    """Absolute path of the project folder from which the overlay was generated."""
    created_at: float
    created_by: str
    """Login of the user who created the overlay."""
    expires_at: float
    """When the agent deletes the environment with everything that it has made."""
    since: float | None = None
    """The time from which sources are read; None for their beginning."""
    inherited: Mapping[TableName, int] = field(default_factory=dict)
    """The version of each table that is read from the base; in the overlay, these are external tables."""


def parse_period(text: str, option: str) -> float:
    """Parse the value of an option, such as `90m`, `12h` or `2d`, to seconds. Raises UsageError for any other text."""
    found = _PERIOD.match(text)
    seconds = float(found[1]) * _UNIT_S[found[2]] if found else 0.0
    if not SHORTEST_S <= seconds <= LONGEST_S:
        raise UsageError(f"{option} {text!r} is not a time from 1m to 60d", remedy=f"write {option} 12h or {option} 2d")
    return seconds


def overlay_prefix(environment: str) -> str:
    """Return the prefix of all names that an overlay creates. Raises UsageError if its name allows none."""
    prefix = f"{environment.lower().replace('-', '_')}_"
    if not is_environment_name(environment) or len(prefix) > _LONGEST_PREFIX:
        words = f"{environment!r} cannot name an overlay"
        raise UsageError(words, remedy="use up to 39 letters, digits, _ and -, such as --env pr-123")
    return prefix


def overlay_as_text(overlay: Overlay) -> str:
    """Return the content of the overlay's file."""
    return json.dumps(asdict(overlay), indent=1, sort_keys=True)


def overlay_from_text(text: str) -> Overlay:
    """Read the content of an overlay's file, in which later versions may add values. Raises ValueError if damaged."""
    try:
        found = json.loads(text)
        since = found.get("since")
        words = {key: _text(found[key]) for key in ("base", "base_home", "base_data", "branch", "created_by")}
        return Overlay(
            **words,
            created_at=float(found["created_at"]),
            expires_at=float(found["expires_at"]),
            since=float(since) if since is not None else None,
            inherited={TableName(_text(name)): int(version) for name, version in found["inherited"].items()},
        )
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"the file of an overlay is damaged: {error}") from error


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value
