"""How far a query has read its Delta sources: the offsets of a checkpoint's batch (Delta 4.4.0)."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class DeltaOffset:
    """Where the next batch begins to read."""

    table_id: str
    version: int
    index: int
    """The last file of the version that was read, from 0; below 0 where none of it was."""
    in_snapshot: bool
    """Whether the files are those of the version itself, which first batches read, not those that its commit added."""

    @property
    def files_read(self) -> int:
        """Return how many files of the version were read."""
        return max(0, self.index + 1)

    @property
    def mark(self) -> str:
        """Return a text that is equal where the same was read."""
        snapshot = "s" if self.in_snapshot else ""
        return f"{self.table_id}:{self.version}:{self.files_read}{snapshot}"

    @property
    def line(self) -> str:
        """Return it as it stands in an offsets file."""
        about = {"sourceVersion": 1, "reservoirId": self.table_id, "reservoirVersion": self.version}
        rest = {"index": self.index, "isStartingVersion": self.in_snapshot}
        return json.dumps(about | rest, separators=(",", ":"))


def read_offsets(checkpoint: str, batch: int) -> Mapping[int, DeltaOffset]:
    """Read the Delta sources of a batch by their ordinals; raises FileNotFoundError, ValueError for another layout."""
    lines = Path(f"{checkpoint}/offsets/{batch}").read_text("utf-8").split("\n")
    if lines[0] != "v1":
        raise ValueError(f"not an offset log that is known: {lines[0][:20]!r}")
    return {ordinal: offset for ordinal, line in enumerate(lines[2:]) if (offset := offset_of(line)) is not None}


def mark_of(line: str) -> str | None:
    """Return the mark of a source's line in an offsets file; None where it is not of a Delta table."""
    found = offset_of(line)
    return None if found is None else found.mark


def offset_of(line: str) -> DeltaOffset | None:
    """Read one line; None where it is of another source, or of none yet."""
    if not line.startswith("{"):
        return None
    value = json.loads(line)
    if not isinstance(value, dict) or "reservoirId" not in value:
        return None
    return DeltaOffset(
        str(value["reservoirId"]),
        int(value["reservoirVersion"]),
        int(value["index"]),
        bool(value.get("isStartingVersion")),
    )
