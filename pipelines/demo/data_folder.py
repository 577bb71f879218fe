"""The data folder of a demo: event files, and the settings, status, state and lock of the generator.

The event files can be in another store, next to the tables; everything else is local.
"""

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from core.model.errors import HeadgateError, Refused, UsageError
from core.model.names import whole_number
from pipelines.demo.event_simulation import FEEDS, FOLDER, GeneratorState, LinesByFeed, generator_state_from_json
from pipelines.storage.file_store import store_of
from pipelines.whole_files import write_whole


@dataclass(frozen=True, slots=True)
class DemoDataFolder:
    """Paths in the data folder of a demo's environment."""

    path: Path
    store: str = ""
    """The folder of the events and of the reference tables if it is in HDFS, as a URI; empty if it is `path`."""

    @property
    def control(self) -> Path:
        """`feeds.json`: the feed settings, edited by users and tests. The generator reads it every second."""
        return self.path / "feeds.json"

    @property
    def status(self) -> Path:
        """`generator.json`: the generator's current status, written every second."""
        return self.path / "generator.json"

    @property
    def log(self) -> Path:
        """`generator.log`: one line for each start, rate change and stop."""
        return self.path / "generator.log"

    @property
    def book(self) -> Path:
        """`generator.book.json`: the state from which a restarted generator resumes."""
        return self.path / "generator.book.json"

    def feed(self, feed: str) -> Path:
        """Return the folder of a feed's event files, if they are local."""
        return self.path / "landing" / feed

    def event_files(self, feed: str) -> list[Path]:
        """List a feed's event files in the order in which they were written, if they are local."""
        return sorted(self.feed(feed).glob("*.json"))


def open_folder(path: str | Path, store: str = "") -> DemoDataFolder:
    """Create the data folder and its landing folders if they are missing. Raises HeadgateError if that fails.

    A `store` that has no reference tables yet gets those of the sample.
    """
    folder = DemoDataFolder(Path(path).expanduser().absolute(), store)
    try:
        for feed in FEEDS:
            folder.feed(feed).mkdir(parents=True, exist_ok=True)
        if store:
            _fill_store(store)
    except OSError as error:
        raise HeadgateError(
            f"{store or folder.path} cannot be written: {error.strerror}", remedy="give another folder with --data"
        ) from error
    return folder


def _fill_store(store: str) -> None:
    files = store_of(store)
    for feed in FEEDS:
        files.make_folders(f"{store}/landing/{feed}")
    for source in sorted((FOLDER / "reference").rglob("*.*")):
        target = f"{store}/{source.relative_to(FOLDER)}"
        if not files.exists(target):
            files.make_folders(target.rpartition("/")[0])
            files.replace(target, source.read_bytes())


def write_events(folder: DemoDataFolder, book: GeneratorState, lines: LinesByFeed) -> dict[str, int]:
    """Write one second's events to the feeds' folders, and return the number of events per feed.

    The generator's state is saved first, so that no event id is ever used twice. Raises OSError.
    """
    save_events(folder, book, lines)
    return write_saved_events(folder, book, lines)


def save_events(folder: DemoDataFolder, book: GeneratorState, lines: LinesByFeed) -> None:
    """Save the generator's state after one second's events, which get the next file number. Raises OSError."""
    book.landed = {feed: count + len(lines[feed]) for feed, count in book.landed.items()}
    book.file += any(lines.values())
    write_whole(folder.book, json.dumps(book.as_json()))


def write_saved_events(folder: DemoDataFolder, book: GeneratorState, lines: LinesByFeed) -> dict[str, int]:
    """Write the files of the last second that was saved. This can be repeated after an OSError."""
    for feed, rows in lines.items():
        if rows:
            name, text = f"landing/{feed}/{feed}-{book.file:09d}.json", "\n".join(rows) + "\n"
            if folder.store:
                store_of(folder.store).replace(f"{folder.store}/{name}", text.encode())
            else:
                write_whole(folder.path / name, text)
    return {feed: len(rows) for feed, rows in lines.items()}


def read_generator_state(folder: DemoDataFolder) -> GeneratorState | None:
    """Return the state that the generator saved, or None if there is none. Raises UsageError if it is invalid."""
    if not folder.book.exists():
        return None
    try:
        return generator_state_from_json(json.loads(folder.book.read_text()))
    except (ValueError, TypeError, KeyError) as error:
        raise UsageError(f"{folder.book} cannot be read", remedy="remove it together with landing/") from error


@contextmanager
def exclusive_lock(folder: DemoDataFolder) -> Iterator[None]:
    """Lock the data folder for writing events. Raises Refused if another process has locked it."""
    with _lock_file(folder).open("a+") as lock:
        if not _taken_within(lock, _PATIENCE_S):
            lock.seek(0)
            raise Refused(
                f"process {lock.read().strip() or 'unknown'} is already writing events to {folder.path}",
                remedy="stop it first, or give another folder",
            )
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield
        lock.truncate(0)


def lock_holder(folder: DemoDataFolder) -> int | None:
    """Return the process id of the generator that has locked the data folder, or None if it is not locked."""
    if not _lock_file(folder).exists():
        return None
    with _lock_file(folder).open("r") as lock:
        if _taken_within(lock, 0.0):
            return None
        return whole_number(lock.read().strip())


_PATIENCE_S = 0.5
"""Longest wait for the lock, in seconds. Processes that only check the lock hold it for a shorter time."""


def _lock_file(folder: DemoDataFolder) -> Path:
    return folder.path / "generator.lock"


def _taken_within(lock: TextIO, seconds: float) -> bool:
    # Closing the file releases the lock.
    until = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
            time.sleep(0.02)
