"""How long the position that a statement has committed in a source stays readable, and what limits that time.

A position counts as lost only if its source shows that, for example by a log that begins later. The end of the computed
time is no proof, because the clocks of servers differ and may be changed.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from core.text.sentence import Fact, FactKind, Sentence

DAY_S = 86400.0

SHORT_S = DAY_S
"""A position with fewer seconds left than this, or than half of the source's retention if that is less, is at risk."""

LEAST_GROWTH_S = 10.0
"""Seconds for which a source must have been observed before its growth is known."""

HELD_B = 64 << 20
"""Bytes of log that a database must keep for a version before this is reported; every slot makes it keep some."""

_OBSERVED_S, _EVERY_S = 3600.0, 60.0


class Left(StrEnum):
    """What is known about how long a position stays readable."""

    LIMITED = "limited"
    """The position stays readable for `TimeLeft.seconds`."""
    NEVER = "never"
    """The position is never lost, whatever happens in the source."""
    UNKNOWN = "unknown"
    LOST = "lost"


class Bound(FactKind):
    """What limits the time left, or why it is unknown; the remedy raises the limit."""

    # Limited.
    MESSAGE_AGE = (
        "Kafka deletes messages of {topic} {kept_s:duration} after their time",
        "raise its retention: {set} retention.ms={raised}",
    )  # fmt: skip
    TOPIC_SIZE = (
        "Kafka keeps {kept:size} in a partition of {topic}", "raise its retention: {set} retention.bytes={raised}",
    )  # fmt: skip
    COMMIT_AGE = (
        "the log of {table} keeps commits for {kept_s:duration}",
        "raise it in TBLPROPERTIES of {table}: 'delta.logRetentionDuration' = 'interval {raised} days'",
    )  # fmt: skip
    REPLACED_FILES = (
        "a VACUUM of {table} deletes replaced files after {kept_s:duration}",
        "raise it in TBLPROPERTIES of {table}: 'delta.deletedFileRetentionDuration' = 'interval {raised} days'",
    )  # fmt: skip
    SLOT_SIZE = (
        "the database keeps {kept:size} of its log for the slot {slot}",
        "raise it in the database: ALTER SYSTEM SET max_slot_wal_keep_size = '{raised}MB'; SELECT pg_reload_conf()",
    )  # fmt: skip
    SLOT_IDLE = (
        "the database invalidates the slot {slot} if nothing advances it for {kept_s:duration}",
        "raise it in the database: ALTER SYSTEM SET idle_replication_slot_timeout = '{raised}s'; "
        "SELECT pg_reload_conf()",
    )  # fmt: skip

    # Never.
    TOPIC_KEEPS_ALL = "Kafka keeps all messages of {topic}"
    COMPACTED = "Kafka compacts {topic} and deletes no message because of its age"
    LOG_KEEPS_ALL = "the log of {table} keeps all commits"
    SLOT_KEEPS_ALL = (
        "the database keeps all of its log for the slot {slot}, and its disk fills while the statement is stopped, "
        "unless max_slot_wal_keep_size is set",
    )  # fmt: skip
    OWN_TABLE = "no file of {table} is deleted while it is read"

    # Unknown.
    SETTINGS_UNREAD = (
        "the retention of {topic} cannot be read: {why}", "allow the user DescribeConfigs on the topic",
    )  # fmt: skip
    MESSAGE_UNREAD = "the next message of {topic} has not been read"
    GROWTH_UNKNOWN = "{free:size} more and {what} reaches its limit of {kept:size}; its growth is not known yet"
    NO_GROWTH = "{free:size} more and {what} reaches its limit of {kept:size}; it does not grow now"
    RETENTION_UNREADABLE = "the retention in the properties of {table} is not a number of days, hours or seconds"
    FILES_OF_OTHERS = "others write {table}, and when they delete files is not known"

    # Lost.
    MESSAGES_GONE = (
        "{messages:message} of {topics:and} {messages:was/were} deleted before {messages:it was/they were} read"
    )
    COMMITS_GONE = "the log of {table} no longer has the next commit"
    LOG_GONE = "the database has deleted log that the slot {slot} needed"
    SLOT_GONE = "the database has no slot {slot}"
    SLOT_MOVED = "the slot {slot} begins after the position"
    SOURCE_GONE = "{table} is gone or was replaced"


_ESTIMATED = frozenset({Bound.TOPIC_SIZE, Bound.SLOT_SIZE})
"""Limits on a size, for which the time left is estimated from the observed growth."""


@dataclass(frozen=True, slots=True)
class TimeLeft:
    """How long a committed position stays readable, as of a measurement."""

    kind: Left
    bound: Fact[Bound]
    seconds: float | None = None
    """Seconds left if the kind is LIMITED, by the source's clock if it has one; 0 if the time has passed."""
    full_s: float | None = None
    """Seconds left for a position at the newest input; None if unlimited or unknown."""
    held_bytes: int | None = None
    """Bytes of a database's log that are kept for the slot; None for other sources."""
    held_by: str = ""
    """Table of the version for which the log is kept although its query does not run; empty if a running query needs
    the log."""
    held_version: int = 0
    at: float = 0.0
    """When the time left was measured, in epoch seconds by the agent's clock."""

    @property
    def is_short(self) -> bool:
        """True if the position will soon be lost unless somebody acts."""
        bound_s = SHORT_S if self.full_s is None else min(SHORT_S, self.full_s / 2)
        return self.seconds is not None and self.seconds < bound_s

    @property
    def is_lost(self) -> bool:
        """True if the position can no longer be read."""
        return self.kind is Left.LOST

    @property
    def at_risk(self) -> bool:
        """True if the position is lost, or soon will be unless somebody acts."""
        return self.is_lost or self.is_short

    @property
    def by_message_age(self) -> bool:
        """True if the age of messages is the limit: Kafka deletes a message `full_s` seconds after its timestamp."""
        return self.bound.kind is Bound.MESSAGE_AGE

    @property
    def is_held(self) -> bool:
        """True if a database keeps much of its log for a version whose query does not run."""
        return bool(self.held_by) and (self.held_bytes or 0) >= HELD_B

    @property
    def words(self) -> Sentence:
        """The time left and what limits it, such as `at least 3d 4h: …`."""
        return Sentence(f"{self.amount}: {self.bound}")

    @property
    def amount(self) -> Sentence:
        """Only the time left: `at least 3d 4h`, `about 2h 5m`, `any moment now`, `never lost`, `unknown` or `lost`."""
        if self.seconds is None:
            return Sentence("never lost" if self.kind is Left.NEVER else str(self.kind))
        if self.seconds < 1:
            return Sentence("any moment now")
        from core.text.wording import long_duration

        how = "about" if self.bound.kind in _ESTIMATED else "at least"
        return Sentence(f"{how} {long_duration(self.seconds)}")

    @property
    def advice(self) -> Sentence | None:
        """What limits a position at risk, and the remedy, as the end of a sentence; None if there is no risk."""
        if not self.at_risk:
            return None
        return Sentence(f"{self.bound}; {self.bound.remedy}" if self.bound.remedy else str(self.bound))

    def as_of(self, now: float) -> "TimeLeft":
        """Return the time left at a later time, in epoch seconds; time alone never makes a position lost."""
        if self.seconds is None:
            return self
        return replace(self, seconds=max(0.0, self.seconds - max(0.0, now - self.at)))

    def as_json(self) -> dict[str, Any]:
        """Return the value as a JSON object, from which `time_left_from_json` restores it."""
        found: dict[str, Any] = {"kind": str(self.kind), "seconds": self.seconds, "bound": self.bound.as_json()}
        found |= {"remedy": self.bound.remedy, "at": self.at}
        if self.full_s is not None:
            found["full_s"] = self.full_s
        if self.held_bytes is not None:
            found |= {"held_bytes": self.held_bytes, "held_by": self.held_by, "held_version": self.held_version}
        return found

    def as_text(self) -> str:
        """Return the value as a string, from which `time_left_of` restores it."""
        return json.dumps(self.as_json(), separators=(",", ":"))


def time_left_from_json(value: object) -> TimeLeft | None:
    """Restore a value from the output of `as_json`; None for any other object, such as that of a newer Headgate."""
    if not isinstance(value, dict):
        return None
    try:
        given = {name: tuple(part) if isinstance(part, list) else part for name, part in value["bound"].items()}
        kind, seconds, full_s = Bound[str(given.pop("kind")).upper()], value["seconds"], value.get("full_s")
        del given["sentence"]
        found = TimeLeft(
            Left(value["kind"]),
            kind.of(**given),
            seconds=None if seconds is None else float(seconds),
            full_s=None if full_s is None else float(full_s),
            held_bytes=value.get("held_bytes"),
            held_by=str(value.get("held_by", "")),
            held_version=int(value.get("held_version", 0)),
            at=float(value["at"]),
        )
        # This raises an error if the sentence lacks a value.
        _ = found.words, found.bound.remedy
        return found
    except (KeyError, TypeError, ValueError, AttributeError, AssertionError):
        return None


def time_left_of(text: str | None) -> TimeLeft | None:
    """Restore a value from the output of `as_text`; None for any other string."""
    try:
        return time_left_from_json(json.loads(text)) if text else None
    except ValueError:
        return None


_ORDER = (Left.LOST, Left.LIMITED, Left.UNKNOWN, Left.NEVER)


def shortest(found: Iterable[TimeLeft | None]) -> TimeLeft | None:
    """Return the most urgent value: lost, then the shortest limited, unknown, never; None if there is none."""
    return min((each for each in found if each is not None), key=_urgency, default=None)


def _urgency(left: TimeLeft) -> tuple[int, float]:
    return _ORDER.index(left.kind), left.seconds or 0.0


def _of_source(found: Iterable[TimeLeft], otherwise: Fact[Bound]) -> TimeLeft:
    """Return the shortest time that a source's limits leave; NEVER, with the fact `otherwise`, if it has no limit.

    If a limit is not known yet, the result is UNKNOWN unless another limit leaves only a short time.
    """
    bounds = tuple(found)
    if not bounds:
        return TimeLeft(Left.NEVER, otherwise)
    least = min(bounds, key=_urgency)
    open_ones = [each for each in bounds if each.kind is Left.UNKNOWN and each.bound.kind is not Bound.NO_GROWTH]
    return least if least.is_short or not open_ones else open_ones[0]


@dataclass(slots=True)
class Growth:
    """The growth of a counter, such as the end of a log, over at most the last hour."""

    _seen: list[tuple[float, int]] = field(default_factory=list)

    def add(self, at: float, value: int) -> float | None:
        """Add the value at a time in seconds; return the growth per second, or None if it is not known yet.

        If the time or the value decreases, a new series begins.
        """
        if self._seen and (at < self._seen[-1][0] or value < self._seen[-1][1]):
            self._seen.clear()
        if not self._seen or at - self._seen[-1][0] >= _EVERY_S:
            self._seen = [each for each in self._seen if at - each[0] <= _OBSERVED_S]
            self._seen.append((at, value))
        since, before = self._seen[0]
        return (value - before) / (at - since) if at - since >= LEAST_GROWTH_S else None


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """The settings of a topic that determine what Kafka deletes."""

    topic: str
    servers: str
    deletes: bool = True
    """Whether the topic's cleanup.policy contains `delete`."""
    kept_s: float | None = None
    """The topic's retention.ms in seconds; None without limit."""
    kept: int | None = None
    """The topic's retention.bytes, which applies to each partition; None without limit."""

    @property
    def command(self) -> str:
        """The start of the command that changes a setting of the topic; the caller appends the setting."""
        where = f"kafka-configs.sh --bootstrap-server {self.servers} --alter --entity-type topics"
        return f"{where} --entity-name {self.topic} --add-config"


@dataclass(frozen=True, slots=True)
class PartitionPosition:
    """A position in a partition of a topic whose messages from there on Kafka has not deleted."""

    pending: int
    """Messages after the position."""
    before: int
    """Messages before the position that still exist."""
    next_at: float | None = None
    """Time of the next message, in epoch seconds; None if there is none, or if it was not read."""
    per_s: float | None = None
    """Messages written per second; None if unknown."""


def time_left_in_topic(
    settings: TopicSettings, partitions: Iterable[PartitionPosition], *, message: float | None, now: float
) -> TimeLeft:
    """Return the time left for positions in the partitions of a topic.

    `message` is the average size of a message in bytes, None if unknown, and `now` is in epoch seconds. Kafka deletes
    only whole segments, once all of their messages are too old. So a position limited by age stays readable for at
    least the time returned.
    """
    topic, kept_s, kept = settings.topic, settings.kept_s, settings.kept
    if not settings.deletes:
        return TimeLeft(Left.NEVER, Bound.COMPACTED.of(topic=topic))
    found: list[TimeLeft] = []
    for each in partitions:
        if kept_s is not None:
            found.append(_by_age(settings, each, kept_s, now))
        if kept is not None:
            found.append(_by_size(settings, each, kept, message))
    return _of_source(found, Bound.TOPIC_KEEPS_ALL.of(topic=topic))


def _by_age(settings: TopicSettings, each: PartitionPosition, kept_s: float, now: float) -> TimeLeft:
    if each.pending and each.next_at is None:
        return TimeLeft(Left.UNKNOWN, Bound.MESSAGE_UNREAD.of(topic=settings.topic))
    age_s = 0.0 if each.next_at is None else now - each.next_at
    raised = int(2 * kept_s * 1000)
    bound = Bound.MESSAGE_AGE.of(topic=settings.topic, kept_s=kept_s, set=settings.command, raised=raised)
    return TimeLeft(Left.LIMITED, bound, max(0.0, kept_s - age_s), kept_s)


def _by_size(settings: TopicSettings, each: PartitionPosition, kept: int, message: float | None) -> TimeLeft:
    pending = None if message is None else int(each.pending * message)
    free = kept if pending is None else max(0, kept - pending)
    if message is None or not each.per_s:
        kind = Bound.NO_GROWTH if message is not None and each.per_s is not None else Bound.GROWTH_UNKNOWN
        return TimeLeft(Left.UNKNOWN, kind.of(free=free, what=settings.topic, kept=kept))
    # Compressed messages take less space, so the log may begin well before the position.
    left_s = max(free / (each.per_s * message), each.before / each.per_s)
    bound = Bound.TOPIC_SIZE.of(topic=settings.topic, kept=kept, set=settings.command, raised=2 * kept)
    return TimeLeft(Left.LIMITED, bound, left_s, max(left_s, kept / (each.per_s * message)))


def time_left_in_log(
    table: str,
    *,
    next_at: float | None,
    replaced_at: float | None,
    log_kept_s: float | None,
    files_kept_s: float | None,
    now: float,
) -> TimeLeft:
    """Return the time left for a position in the log of a Delta table.

    `next_at` is the time of the next commit, None if there is none. `replaced_at` is when files that the position may
    need were first replaced; None if none were replaced, or if nobody vacuums the table. The retention of log and files
    is in seconds: infinite if they are never deleted, None if it cannot be read. Delta deletes commits only when it
    writes a checkpoint, and only whole days of them.
    """
    if log_kept_s is None or (replaced_at is not None and files_kept_s is None):
        return TimeLeft(Left.UNKNOWN, Bound.RETENTION_UNREADABLE.of(table=table))
    found: list[TimeLeft] = []
    for kind, since, kept_s in (
        (Bound.COMMIT_AGE, now if next_at is None else next_at, log_kept_s),
        (Bound.REPLACED_FILES, replaced_at, files_kept_s),
    ):
        if since is not None and kept_s is not None and kept_s != float("inf"):
            bound = kind.of(table=table, kept_s=kept_s, raised=max(1, round(2 * kept_s / DAY_S)))
            found.append(TimeLeft(Left.LIMITED, bound, max(0.0, since + kept_s - now), kept_s))
    return _of_source(found, Bound.LOG_KEEPS_ALL.of(table=table))


@dataclass(frozen=True, slots=True)
class SlotState:
    """A replication slot as the database describes it."""

    slot: str
    now: float
    """Time of the database's clock, in epoch seconds."""
    end: int
    """End of the database's log, as a position in bytes."""
    begins: int
    """Start of the log that the database keeps for the slot, as a position in bytes."""
    kept: int | None = None
    """max_slot_wal_keep_size in bytes; None without limit."""
    free: int | None = None
    """safe_wal_size: bytes of log until the slot may be lost; None without limit."""
    idle_limit_s: float = 0.0
    """idle_replication_slot_timeout in seconds; 0 without limit."""
    idle_since: float | None = None
    """When the slot was last advanced, in epoch seconds; None if the database does not say."""


def time_left_in_slot(state: SlotState, per_s: float | None) -> TimeLeft:
    """Return the time left for all positions in a slot; `per_s` is the growth of the log in bytes per second."""
    found: list[TimeLeft] = []
    if state.idle_limit_s and state.idle_since is not None:
        raised = int(2 * state.idle_limit_s)
        bound = Bound.SLOT_IDLE.of(slot=state.slot, kept_s=state.idle_limit_s, raised=raised)
        left_s = state.idle_since + state.idle_limit_s - state.now
        found.append(TimeLeft(Left.LIMITED, bound, max(0.0, left_s), state.idle_limit_s))
    if state.kept is not None:
        free = max(0, state.free or 0)
        if free and not per_s:
            kind = Bound.GROWTH_UNKNOWN if per_s is None else Bound.NO_GROWTH
            bound = kind.of(free=free, what=f"the log for the slot {state.slot}", kept=state.kept)
            found.append(TimeLeft(Left.UNKNOWN, bound))
        else:
            bound = Bound.SLOT_SIZE.of(slot=state.slot, kept=state.kept, raised=max(1, 2 * state.kept >> 20))
            full_s = state.kept / per_s if per_s else None
            found.append(TimeLeft(Left.LIMITED, bound, free / per_s if per_s else 0.0, full_s))
    left = _of_source(found, Bound.SLOT_KEEPS_ALL.of(slot=state.slot))
    return replace(left, held_bytes=max(0, state.end - state.begins))


def time_left_in_files(table: str, *, external: bool) -> TimeLeft:
    """Return the time left for a position in a folder of files."""
    if external:
        return TimeLeft(Left.UNKNOWN, Bound.FILES_OF_OTHERS.of(table=table))
    return TimeLeft(Left.NEVER, Bound.OWN_TABLE.of(table=table))


def lost(kind: Bound, **values: object) -> TimeLeft:
    """Return the TimeLeft of a lost position."""
    return TimeLeft(Left.LOST, kind.of(**values))
