"""What a Delta table asks of those who read its log; where that is not known here, nothing is said of the table."""

from collections.abc import Mapping
from typing import Any

_NEWEST_READER = 3
_KNOWN = frozenset(
    {
        "columnMapping", "deletionVectors", "timestampNtz", "typeWidening", "typeWidening-preview", "v2Checkpoint",
        "vacuumProtocolCheck", "variantType", "variantType-preview", "variantShredding", "variantShredding-preview",
    }
)  # fmt: skip
"""Features for readers that change nothing in how versions, files and rows are read of a log, or are read."""
_ELSEWHERE = ("catalogManaged", "catalogOwned", "coordinatedCommits")
"""How features begin with which the newest commits may not lie in the log."""


def why_unreadable(protocol: Mapping[str, Any]) -> str:
    """Explain what a table asks for that is not read here; empty where all is."""
    reader = int(protocol.get("minReaderVersion") or 1)
    if reader > _NEWEST_READER:
        return f"it asks for readers of version {reader}"
    readers, writers = (set(protocol.get(name) or ()) for name in ("readerFeatures", "writerFeatures"))
    unknown = sorted(readers - _KNOWN) or sorted(each for each in writers if each.startswith(_ELSEWHERE))
    return f"it asks for {', '.join(unknown)}, which is not read here" if unknown else ""
