"""The files of a Delta log by their names: commits, and whole checkpoints in parquet."""

import os

_COMMIT = ".json"


def commits_in(place: str) -> list[int]:
    """Return the versions whose commits are there; checkpoints and compacted commits have more in their names."""
    names = (name.removesuffix(_COMMIT) for name in os.listdir(place) if name.endswith(_COMMIT))
    return [int(version) for version in names if version.isdigit()]


def checkpoints_in(place: str) -> list[tuple[int, str]]:
    """List the whole checkpoints by version; one in several parts is there once its last part is."""
    found: dict[int, list[str]] = {}
    for name in os.listdir(place):
        if ".checkpoint." in name and name[0].isdigit() and name.endswith(".parquet"):
            found.setdefault(int(name.partition(".")[0]), []).append(name)
    return [(version, name) for version, parts in found.items() for name in sorted(parts) if _is_whole(parts)]


def _is_whole(parts: list[str]) -> bool:
    """Return whether a checkpoint is one file, or all of `N.checkpoint.<part>.<parts>.parquet`."""
    words = parts[0].split(".")
    return len(words) != 5 or len(parts) == int(words[3])
