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
    """The newest entry, as it is recorded beside the audit."""

    entry: int
    hash: str


@dataclass(frozen=True, slots=True)
class AuditBreak:
    """One place where the chain does not hold."""

    first: int
    """Number of the first entry that it is about; 0 where the record of the newest one is."""
    last: int
    kind: str
    """changed, removed, inserted, or "inserted or moved" where the two look alike."""

    @property
    def words(self) -> str:
        """For people."""
        if not self.first:
            return f"the record of the newest entry was {self.kind}"
        many = f"entries {self.first} to {self.last} were" if self.last > self.first else f"entry {self.first} was"
        return f"{many} {self.kind}"


def entry_hash(previous: str, values: Sequence[object]) -> str:
    """Return SHA-256 in hex of an entry, its values in the order of HASHED."""
    at, *words = values
    return hashlib.sha256(json.dumps([previous, float(str(at)), *words]).encode()).hexdigest()


def hash_of(entry: AuditRow, previous: str) -> str:
    """Return the hash that an entry has behind another one."""
    return entry_hash(previous, [getattr(entry, name) for name in HASHED])


def breaks_of(entries: Sequence[AuditRow], head: AuditHead | None) -> tuple[AuditBreak, ...]:
    """List where the chain does not hold, entries in the order of their numbers; empty where it is whole.

    Without entries nothing is recorded as the newest.
    """
    return tuple(dict.fromkeys(_breaks(entries, head)))


def _breaks(entries: Sequence[AuditRow], head: AuditHead | None) -> Iterator[AuditBreak]:
    number_by_hash = {FIRST: 0} | {entry.hash: entry.id for entry in reversed(entries)}
    number, newest = 0, FIRST
    for entry in entries:
        if head is not None and entry.id > head.entry:
            yield AuditBreak(entry.id, entries[-1].id, "inserted")
            return
        if entry.hash != hash_of(entry, entry.previous):
            yield AuditBreak(entry.id, entry.id, "changed")
        if entry.previous != newest:
            yield _break_before(entry, number, number_by_hash.get(entry.previous))
        number, newest = entry.id, entry.hash
    if head is None and entries:
        yield AuditBreak(0, 0, "removed")
    elif head is not None and number < head.entry:
        yield AuditBreak(number + 1, head.entry, "removed")
    elif head is not None and newest != head.hash:
        yield AuditBreak(number, number, "inserted or moved" if head.hash in number_by_hash else "changed")


def _break_before(entry: AuditRow, before: int, wanted: int | None) -> AuditBreak:
    """Describe what lies between an entry and the one it was written behind, by number; None where that is gone."""
    if wanted is None and entry.id > before + 1:
        return AuditBreak(before + 1, entry.id - 1, "removed")
    if wanted is None:
        # What it was written behind is not there any more: it has another hash now.
        return AuditBreak(before or entry.id, before or entry.id, "changed")
    first, last = (wanted + 1, before) if wanted < before else (entry.id, entry.id)
    return AuditBreak(first, last, "inserted or moved")
