"""Old entries of the audit as files beside the ledger: lines of JSON that are only added to, and the chain in them.

A part is on the disk before its rows leave the ledger, in the transaction that records where the archive ends then.
After a kill in between, the next round finds there what it is about to write, and goes on behind it. A file that goes
on otherwise, because another ledger was restored meanwhile, is left as it is, and a new one begun.
"""

import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import count, takewhile
from pathlib import Path

from state.audit_chain import START, AuditBreak, AuditHead, breaks_of
from state.row_types import AuditArchiveRow, AuditRow

_FILE_MODE = 0o640


@dataclass(frozen=True, slots=True)
class AuditCheck:
    """What was found in the whole audit, archives and ledger."""

    head: AuditHead | None
    """What is recorded as the newest entry."""
    breaks: tuple[AuditBreak, ...]
    beyond: tuple[tuple[str, int], ...]
    """Archives with entries after their recorded end, and how many: of a kill, or of a ledger that was replaced."""


def append_part(folder: Path, archives: Sequence[AuditArchiveRow], entries: Sequence[AuditRow]) -> AuditArchiveRow:
    """Write entries of one year, the first of those given, behind what is archived; returns the record of their file.

    They are on the disk then. To write the same once more adds nothing. Raises OSError.
    """
    newest = archives[-1] if archives else None
    # A clock that was set back leads into no earlier file: files follow each other as entries do.
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
    """Check all archives and, behind them, the entries of the ledger. Raises OSError where a file cannot be read."""
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
    """List where a part may be written, first the newest archive: files with their recorded ends."""
    if archives and archives[-1].year == year:
        yield archives[-1]
    taken = {archive.file for archive in archives}
    for n in count(1):
        file = f"audit-{year}.jsonl" if n == 1 else f"audit-{year}.{n}.jsonl"
        if file not in taken:
            yield AuditArchiveRow(file, year, first=0, last=0, hash="", bytes=0)


def _append(path: Path, end: int, body: bytes) -> bool:
    """Have a file go on with `body` after `end` bytes, on the disk; False where it goes on otherwise."""
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
    _sync_folder(path.parent)
    return True


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read(path: Path, before: AuditHead) -> list[AuditRow]:
    """Read the entries of a file behind the entry `before`, without a last line that was not written to its end."""
    lines = path.read_bytes().split(b"\n")
    torn = lines.pop()
    entries: list[AuditRow] = []
    for line in lines:
        # What is no entry any more keeps its place in the chain, with a hash that does not fit.
        entry = _entry(line) or AuditRow(before.entry + 1, 0.0, "", "", "", previous=before.hash, hash="unreadable")
        entries.append(entry)
        before = AuditHead(entry.id, entry.hash)
    last = _entry(torn)
    return [*entries, last] if last else entries


def _entry(line: bytes) -> AuditRow | None:
    """Read a line; None where it is no entry."""
    try:
        entry = AuditRow(**json.loads(line))
    except (ValueError, TypeError):
        return None
    numbers = type(entry.id) is int and type(entry.at) in (int, float)
    words = (entry.actor, entry.action, entry.subject, entry.plan_hash, entry.confirmation, entry.outcome)
    return entry if numbers and all(isinstance(word, str) for word in (*words, entry.previous, entry.hash)) else None
