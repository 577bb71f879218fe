"""Which file system a path lies on; SQLite's locks do not hold over a network, so such a place is refused."""

from collections.abc import Iterable
from pathlib import Path

from core.model.errors import LedgerUnavailable

_NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "lustre", "gpfs", "beegfs", "glusterfs"}
)
_MOUNTS = Path("/proc/self/mounts")


def refuse_network(path: Path) -> None:
    """Raise LedgerUnavailable when the path lies on a network file system; unknown outside Linux, and then allowed."""
    try:
        lines = _MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    kind = file_system(path.resolve(), lines)
    if is_network(kind):
        raise LedgerUnavailable(
            f"{path} is on a network file system ({kind}), where SQLite locking is unreliable",
            remedy="set HEADGATE_HOME to a folder on a local disk",
        )


def file_system(path: Path, mounts: Iterable[str]) -> str:
    """Return the file system type of an absolute path, from the lines of /proc/mounts; empty when none matches."""
    best, kind = -1, ""
    for line in mounts:
        parts = line.split(" ")
        if len(parts) > 2 and path.is_relative_to(place := _unescaped(parts[1])) and len(place) >= best:
            best, kind = len(place), parts[2]
    return kind


def is_network(kind: str) -> bool:
    """Return whether a file system type is served over a network; FUSE counts unless it is known to be local."""
    name = kind.removeprefix("fuse.")
    return name in _NETWORK or (
        kind.startswith("fuse.") and name not in {"fuse-overlayfs", "ntfs-3g", "bindfs", "lxcfs"}
    )


def _unescaped(place: str) -> str:
    # The kernel writes space, tab, newline and backslash as octal.
    for code, character in ((r"\040", " "), (r"\011", "\t"), (r"\012", "\n"), (r"\134", "\\")):
        place = place.replace(code, character)
    return place
