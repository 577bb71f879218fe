"""The audit as a chain: each entry carries the hash of the entry before it and its own, over both.

Who rewrites every hash up to the recorded head leaves no trace here: `headgate audit --verify` says the head, to be
compared with one that was kept elsewhere.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from state.row_types import AuditRow

HASHED = ("at", "actor", "action", "subject", "plan_hash", "confirmation", "outcome")
"""Columns that the hash of an entry covers, beside the hash of the entry before it."""

FIRST = ""
"""Stands for the hash before the first entry."""


@dataclass(frozen=True, slots=True)
class AuditHead:
    """The newest entry, as it is recorded beside the audit, or the last one of an archive."""

    entry: int
    hash: str


START = AuditHead(0, FIRST)
"""Stands for the entry before the first."""


@dataclass(frozen=True, slots=True)
class AuditBreak:
    """One place where the chain does not hold."""

    first: int
    """Number of the first entry that it is about; 0 where the record of the newest one is."""
    last: int
    kind: str
    """changed, removed, inserted, "inserted or moved" where the two look alike, or missing, of a whole archive."""
    file: str = ""
    """The archive that it is in; empty for the ledger."""

    @property
    def words(self) -> str:
        """For people."""
        if not self.first:
            return f"the record of the newest entry was {self.kind}"
        if self.kind == "missing":
            return f"{self.file} with entries {self.first} to {self.last} is missing"
        many = f"entries {self.first} to {self.last} were" if self.last > self.first else f"entry {self.first} was"
        return f"{many} {self.kind}" + (f" in {self.file}" if self.file else "")


def entry_hash(previous: str, values: Sequence[object]) -> str:
    """Return SHA-256 in hex of an entry, its values in the order of HASHED."""
    at, *words = values
    return hashlib.sha256(json.dumps([previous, float(str(at)), *words]).encode()).hexdigest()


def hash_of(entry: AuditRow, previous: str) -> str:
    """Return the hash that an entry has behind another one."""
    return entry_hash(previous, [getattr(entry, name) for name in HASHED])


def breaks_of(entries: Sequence[AuditRow], head: AuditHead | None, start: AuditHead = START) -> tuple[AuditBreak, ...]:
    """List where the chain behind `start` does not hold, entries in the order that they have; empty where it is whole.

    Without any entry nothing is recorded as the newest.
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
    """Describe what lies between an entry and the one it was written behind, by number; None where that is gone."""
    if wanted is None and entry.id > before + 1:
        return AuditBreak(before + 1, entry.id - 1, "removed")
    if wanted is None:
        # What it was written behind is not there any more: it has another hash now. What is before all is as it was.
        changed = before if before > start.entry else entry.id
        return AuditBreak(changed, changed, "changed")
    first, last = (wanted + 1, before) if wanted < before else (entry.id, entry.id)
    return AuditBreak(first, last, "inserted or moved")
