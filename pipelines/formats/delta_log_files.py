"""The commits of a Delta log by the names of their files."""

import os

from core.model.names import whole_number

_COMMIT = ".json"


def commits_in(place: str) -> list[int]:
    """Return the versions whose commits are there; checkpoints and compacted commits have more in their names."""
    names = (whole_number(name.removesuffix(_COMMIT)) for name in os.listdir(place) if name.endswith(_COMMIT))
    return [version for version in names if version is not None]
