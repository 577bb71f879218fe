"""The audit log as a hash chain, and the archive files next to the ledger that contain its old entries.

Each entry contains the hash of the previous entry, and its own hash, which covers the previous hash and the columns in
`HASHED`. This module cannot detect an attacker who rewrites all hashes up to the recorded head: `headgate audit
--verify` therefore prints the head, to be compared with a copy kept elsewhere.

An archive is a file of JSON lines to which entries are only appended. Entries are synced to the archive before the
transaction that removes them from the ledger and records the new end of the archive. If the agent is killed before that
transaction, the next round finds these entries in the file and continues after them. If the file has other entries
there, because another ledger was restored in the meantime, the file is not changed, and a new archive is started.
"""

import hashlib
import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import count, takewhile
from pathlib import Path

from state.row_types import AuditArchiveRow, AuditRow

HASHED = ("at", "actor", "action", "subject", "plan_hash", "confirmation", "outcome")
"""Columns that the hash of an entry covers, in addition to the previous entry's hash."""

FIRST = ""
"""The hash before the first entry."""


@dataclass(frozen=True, slots=True)
class AuditHead:
    """Number and hash of an audit entry: the latest entry of the log, or the last entry of an archive."""

    entry: int
    hash: str


START = AuditHead(0, FIRST)
"""The position before the first entry."""


@dataclass(frozen=True, slots=True)
class AuditBreak:
    """A range of audit entries at which the hash chain is broken."""

    first: int
    """Number of the first affected entry; 0 if the record of the latest entry is affected."""
    last: int
    kind: str
    """One of changed, removed, inserted, missing (a whole archive) or, if the two look alike, "inserted or moved"."""
    file: str = ""
    """The affected archive; empty for the ledger."""

    @property
    def words(self) -> str:
        """The break as a sentence."""
        if not self.first:
            return f"the record of the newest entry was {self.kind}"
        if self.kind == "missing":
            return f"{self.file} with entries {self.first} to {self.last} is missing"
        many = f"entries {self.first} to {self.last} were" if self.last > self.first else f"entry {self.first} was"
        return f"{many} {self.kind}" + (f" in {self.file}" if self.file else "")


def entry_hash(previous: str, values: Sequence[object]) -> str:
    """Return the SHA-256 of an entry in hex. `values` are the columns in `HASHED`, in that order."""
    at, *words = values
    return hashlib.sha256(json.dumps([previous, float(str(at)), *words]).encode()).hexdigest()


def hash_of(entry: AuditRow, previous: str) -> str:
    """Return the hash that an audit entry must have, given the hash of the previous entry."""
    return entry_hash(previous, [getattr(entry, name) for name in HASHED])


def breaks_of(entries: Sequence[AuditRow], head: AuditHead | None, start: AuditHead = START) -> tuple[AuditBreak, ...]:
    """Return the breaks in the hash chain after entry `start`.

    `head` is the stored copy of the latest entry's number and hash, None if none was stored.
    """
    return tuple(dict.fromkeys(_breaks(entries, head, start)))


def _breaks(entries: Sequence[AuditRow], head: AuditHead | None, start: AuditHead) -> Iterator[AuditBreak]:
    number_by_hash = {start.hash: start.entry} | {entry.hash: entry.id for entry in reversed(entries)}
    number, newest = start.entry, start.hash
    for entry in entries:
        if head is not None and entry.id > head.entry:
            yield AuditBreak(entry.id, entries[-1].id, "inserted")
            return
        if entry.hash != hash_of(entry, entry.previous):
            yield AuditBreak(entry.id, entry.id, "changed")
        if entry.previous != newest:
            yield _break_before(entry, number, number_by_hash.get(entry.previous), start)
        number, newest = entry.id, entry.hash
    if head is None and number:
        yield AuditBreak(0, 0, "removed")
    elif head is not None and number < head.entry:
        yield AuditBreak(number + 1, head.entry, "removed")
    elif head is not None and newest != head.hash:
        yield AuditBreak(number, number, "inserted or moved" if head.hash in number_by_hash else "changed")


def _break_before(entry: AuditRow, before: int, wanted: int | None, start: AuditHead) -> AuditBreak:
    """Classify the break between an entry and the entry with number `before`, which precedes it in the log.

    `wanted` is the number of the entry that originally preceded `entry`; None if no entry has the hash that `entry`
    records.
    """
    if wanted is None and entry.id > before + 1:
        return AuditBreak(before + 1, entry.id - 1, "removed")
    if wanted is None:
        # No entry has the previous hash any more: the preceding entry was changed or, if there is none, this entry.
        changed = before if before > start.entry else entry.id
        return AuditBreak(changed, changed, "changed")
    first, last = (wanted + 1, before) if wanted < before else (entry.id, entry.id)
    return AuditBreak(first, last, "inserted or moved")


_FILE_MODE = 0o640


@dataclass(frozen=True, slots=True)
class AuditCheck:
    """The result of verifying the whole audit log, in archives and ledger."""

    head: AuditHead | None
    """The latest entry of the log, according to the ledger; None if the log is empty."""
    breaks: tuple[AuditBreak, ...]
    beyond: tuple[tuple[str, int], ...]
    """Archives with entries after their recorded end, as (file, number of such entries).

    Such entries are left behind if the agent was killed or the ledger was replaced.
    """


def append_part(folder: Path, archives: Sequence[AuditArchiveRow], entries: Sequence[AuditRow]) -> AuditArchiveRow:
    """Append the entries of the earliest year to that year's archive, and return the new row of the archive.

    The entries are synced to disk. A repeated call adds nothing. Raises OSError if the file cannot be written.
    """
    newest = archives[-1] if archives else None
    # Even if the clock was set back, entries never go to an earlier file: files are in the order of their entries.
    year = max(_year(entries[0]), newest.year if newest else 0)
    part = list(takewhile(lambda entry: _year(entry) <= year, entries))
    body = "".join(f"{json.dumps(asdict(entry))}\n" for entry in part).encode()
    places = _places(year, archives)
    record = next(place for place in places if _append(folder / place.file, place.bytes, body))
    return replace(
        record, first=record.first or part[0].id, last=part[-1].id, hash=part[-1].hash, bytes=record.bytes + len(body)
    )


def check_audit(
    folder: Path, archives: Sequence[AuditArchiveRow], entries: Sequence[AuditRow], head: AuditHead | None
) -> AuditCheck:
    """Verify all archives, then the entries in the ledger. Raises OSError if a file cannot be read."""
    breaks: list[AuditBreak] = []
    beyond: list[tuple[str, int]] = []
    start = START
    for archive in archives:
        end = AuditHead(archive.last, archive.hash)
        try:
            found = _read(folder / archive.file, start)
        except FileNotFoundError:
            breaks.append(AuditBreak(archive.first, archive.last, "missing", archive.file))
        else:
            length = next((n for n, entry in enumerate(found) if entry.id > end.entry), len(found))
            counted, after = found[:length], found[length:]
            breaks += [replace(each, file=archive.file) for each in breaks_of(counted, end, start)]
            if after and breaks_of(after, AuditHead(after[-1].id, after[-1].hash), end):
                breaks.append(AuditBreak(after[0].id, after[-1].id, "inserted", archive.file))
            elif after:
                beyond.append((archive.file, len(after)))
        start = end
    return AuditCheck(head, (*breaks, *breaks_of(entries, head, start)), tuple(beyond))


def _year(entry: AuditRow) -> int:
    return time.gmtime(entry.at).tm_year


def _places(year: int, archives: Sequence[AuditArchiveRow]) -> Iterator[AuditArchiveRow]:
    """Yield the archives to which entries of a year may be appended.

    The latest archive comes first if it is of that year; new archives with unused file names follow.
    """
    if archives and archives[-1].year == year:
        yield archives[-1]
    taken = {archive.file for archive in archives}
    for n in count(1):
        file = f"audit-{year}.jsonl" if n == 1 else f"audit-{year}.{n}.jsonl"
        if file not in taken:
            yield AuditArchiveRow(file, year, first=0, last=0, hash="", bytes=0)


def _append(path: Path, end: int, body: bytes) -> bool:
    """Append `body` to a file at offset `end` and sync the file; return False if its content does not allow this.

    The file must reach up to `end`, and after that may contain only the beginning of `body`, which is then completed.
    """
    is_new = not path.exists()
    if is_new and end:
        return False
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, _FILE_MODE)
    try:
        there = os.pread(descriptor, len(body), end)
        if os.fstat(descriptor).st_size < end or not body.startswith(there):
            return False
        if is_new:
            os.fchmod(descriptor, _FILE_MODE)
        rest = body[len(there) :]
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    sync_to_disk(path.parent)
    return True


def sync_to_disk(path: Path) -> None:
    """Sync a file, or the directory entries of a folder, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read(path: Path, before: AuditHead) -> list[AuditRow]:
    """Read the entries of an archive, ignoring an incomplete last line.

    `before` is the entry before the file's first one. An unreadable line becomes an entry with an invalid hash.
    """
    lines = path.read_bytes().split(b"\n")
    torn = lines.pop()
    entries: list[AuditRow] = []
    for line in lines:
        # An unreadable entry keeps its place in the chain, with a hash that does not match.
        entry = _entry(line) or AuditRow(before.entry + 1, 0.0, "", "", "", previous=before.hash, hash="unreadable")
        entries.append(entry)
        before = AuditHead(entry.id, entry.hash)
    last = _entry(torn)
    return [*entries, last] if last else entries


def _entry(line: bytes) -> AuditRow | None:
    try:
        entry = AuditRow(**json.loads(line))
    except (ValueError, TypeError):
        return None
    numbers = type(entry.id) is int and type(entry.at) in (int, float)
    words = (entry.actor, entry.action, entry.subject, entry.plan_hash, entry.confirmation, entry.outcome)
    return entry if numbers and all(isinstance(word, str) for word in (*words, entry.previous, entry.hash)) else None
