"""A private copy of a ledger that only its owner could recover where it lies; made to be read, then removed."""

import shutil
import tempfile
from pathlib import Path

_PARTS = ("", "-wal", "-journal")


class LedgerCopy:
    """The ledger and its log as they are now, in a folder of our own, where SQLite may recover them."""

    def __init__(self, origin: Path) -> None:
        self._origin = origin
        self._stamps = self._stamped()
        self._folder = Path(tempfile.mkdtemp(prefix="headgate-ledger-"))
        self.path = self._folder / origin.name
        try:
            for part in _PARTS:
                if (source := Path(f"{origin}{part}")).exists():
                    shutil.copyfile(source, f"{self.path}{part}")
        except BaseException:
            self.remove()
            raise

    def fresh(self) -> bool:
        """Return whether the ledger has not changed since the copy was made."""
        return self._stamps == self._stamped()

    def remove(self) -> None:
        """Remove the copy."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _stamped(self) -> tuple[tuple[int, int] | None, ...]:
        return tuple(_stamp(Path(f"{self._origin}{part}")) for part in _PARTS)


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_mtime_ns, found.st_size
