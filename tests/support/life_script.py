"""The script of a life, drawn from a seed: a list of requests and faults that can be saved and shortened."""

import json
import random
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace

TABLES = ("a", "b", "c")
PLANS = (
    "rebuild", "rebuild", "rebuild held", "rebuild alone", "seam", "edit", "edit", "column", "rollback",
    "rollback alone", "delete", "undelete", "retire", "deploy", "carry over", "now",
)  # fmt: skip
NAMES = ("{t}", "{t}", "{t}", "{t}@new", "{t}@old")

FAULTS = (
    "kill", "pool dies", "pool is frozen", "ledger is locked", "ledger is full", "disk is full", "disk is away",
    "clock jumps", "query fails", "starts are late", "effects are late", "answers are lost", "effects repeat",
    "first batch is late", "a start is refused", "another hand", "stands still", "a start is late", "stops are early",
)  # fmt: skip
"""Kinds of faults. `a start is late` delays the next start of one version. While `stops are early`, stops are answered
before they take effect."""

LABELS = (
    "run sends start",
    "run effects start",
    "run sends stop",
    "run effects stop",
    "run sends point",
    "run effects point",
    "socket sends stop",
    "socket hears stop",
    "run hears stop",
    "run hears start",
    "run hears point",
    "reconcile hears list",
    "socket sends start",
    "reconcile sends start",
    "reconcile sends stop",
    "reconcile sends list",
    "run sends forget",
    "before # start running",
    "after # start gate",
    "after # restart running",
    "before # swap running",
    "after # swap running",
    "swap record",
    "swap commit",
    "effect # stop",
    "evidence # start",
    "effect # restart",
    "effect # tombstone",
    "after # catch_up gate",
    "after # hold gate",
    "before # swap done",
    "before # stop running",
    "before # catch_up done",
    "effect # swap",
    "socket wrote",
    "run wrote",
    "reconcile wrote",
    "effect # create",
)
"""Points at which events can be triggered instead of at a time; numbers are written as `#`."""


@dataclass(frozen=True)
class Event:
    """An event that happens once: at a second of the life, or when a point is passed for the nth time after that."""

    kind: str
    """An operator's request (`stop`, `plan rebuild`, `run pause`, …) or a fault."""
    at: float
    label: str = ""
    nth: int = 1
    by: str = ""
    """The operator; empty for a fault."""
    subject: str = ""
    lasts_s: float = 0.0
    stalls_s: float = 0.0
    """Seconds for which the thread that passes the point stalls there."""


@dataclass(frozen=True)
class Script:
    """The settings of one life, and its events."""

    seed: str
    events: tuple[Event, ...]
    world: str = "deployed"
    switches: float = 0.1
    stalls: float = 0.0
    stall_s: float = 1.0
    lasts_s: float = 60.0
    calms: bool = True
    """True if all faults stop at the end and the environment must settle."""

    def as_json(self) -> str:
        """Return the script as JSON lines: first the settings, then one event per line."""
        head = {name: value for name, value in asdict(self).items() if name != "events"}
        plain = asdict(Event("", 0.0))
        lines = [
            {k: v for k, v in asdict(event).items() if v != plain[k] or k in ("kind", "at")} for event in self.events
        ]
        return "\n".join([json.dumps(head), *map(json.dumps, lines)]) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Script":
        head, *lines = (json.loads(line) for line in text.splitlines() if line.strip() and not line.startswith("//"))
        return cls(events=tuple(Event(**line) for line in lines), **head)

    def without(self, gone: Iterable[Event]) -> "Script":
        left = tuple(event for event in self.events if event not in set(gone))
        return replace(self, events=left)


def draw(seed: int | str, theme: str = "") -> Script:
    """Draw the script of a life: one or two releases, requests about them and their neighbours, and some faults.

    Two scripts in three contain a sequence from `THEMES`, because its events would rarely coincide by chance. If
    `theme` names a sequence, the script contains it.
    """
    chance = random.Random(f"life {seed}")
    lasts = chance.choice((30.0, 60.0, 60.0, 100.0))
    if theme:
        events = next(each for each in THEMES if each.__name__ == f"_{theme}")(chance)
    else:
        events = chance.choice(THEMES)(chance) if chance.random() < 0.67 else [_plan(chance, 1.0)]
    for _ in range(chance.choice((0, 0, 1, 1, 2))):
        events.append(_plan(chance, chance.uniform(2.0, lasts)))
    for _ in range(chance.choice((0, 1, 2, 4, 8, 12))):
        events.append(_word(chance, lasts))
    kinds = chance.sample(FAULTS, k=chance.choice((0, 0, 1, 2, 4)))
    for kind in kinds:
        for _ in range(chance.choice((1, 1, 2))):
            events.append(_fault(chance, kind, lasts))
    held = [event for event in events if event.kind == "plan rebuild held" and not event.label]
    for n, event in enumerate(held):
        # The run is held only after its gates, which take half a minute.
        at = event.at + random.Random(f"word {seed} {n}").uniform(20.0, 45.0)
        events.append(Event("run swap", round(at, 2), by="lee"))
    lasts = max(lasts, *(min(event.at + event.lasts_s + 15.0, 110.0) for event in events))
    if any(event.kind == "another hand" for event in events):
        events.append(Event("adopt", round(lasts * 0.9, 1), by="lee"))
    return Script(
        seed=str(seed),
        # At equal times, events that wait for a point come first, so that they are armed before any thread passes it.
        events=tuple(sorted(events, key=lambda event: (event.at, not event.label))),
        world=chance.choice(WORLDS),
        switches=chance.choice((0.02, 0.1, 0.3)),
        stalls=chance.choice((0.0, 0.0, 0.003, 0.02)),
        stall_s=chance.choice((0.2, 2.0, 12.0)),
        lasts_s=lasts,
        calms=chance.random() < 0.6,
    )


def _words_after(chance: random.Random, at: float, *words: tuple[str, str], within: float = 4.0) -> list[Event]:
    """Return requests that follow each other after at most `within` seconds; requests of two operators may overlap."""
    found = []
    for kind, subject in words:
        at += chance.uniform(0.0, within)
        found.append(Event(kind, round(at, 2), by=chance.choice(("lee", "bob")), subject=subject))
    return found


def _stop_and_start(chance: random.Random) -> list[Event]:
    """Return events in which a statement is stopped and started while the ledger or the disk accepts no writes."""
    at, table = chance.uniform(1.0, 5.0), chance.choice(TABLES)
    kind = chance.choice(("ledger is locked", "ledger is locked", "ledger is full", "disk is full"))
    fault = Event(kind, round(at, 2), lasts_s=chance.choice((1.0, 3.0, 12.0)))
    verb = chance.choice(("start", "start", "restart"))
    words = _words_after(chance, at, ("stop", table), (verb, table), within=chance.choice((0.3, 0.8, 2.0, 8.0)))
    if chance.random() < 0.5:
        return [fault, *words]
    # The stop's result is recorded while the start is in progress.
    first = Event("stands still", 0.5, "socket hears stop", stalls_s=chance.choice((0.5, 1.0, 3.0)))
    second = Event("stands still", 0.5, "socket sends start", stalls_s=chance.choice((1.0, 3.0, 6.0)))
    return [first, second, *words]


def _skipped_gates(chance: random.Random) -> list[Event]:
    """Return events in which the new versions of a release are late, and an operator skips the gates."""
    table = chance.choice("aab")
    late = [Event("first batch is late", 0.5, subject=f"{each}@new", lasts_s=chance.choice((6.0, 25.0))) for each in
        chance.sample("abc", chance.choice((1, 2, 3)))]  # fmt: skip
    skips = [("run skip", "")] * chance.choice((2, 3, 5))
    plan = Event("plan rebuild", 1.0, by="lee", subject=table)
    return [*late, plan, *_words_after(chance, 2.0, *skips, within=3.0)]


def _paused_run(chance: random.Random) -> list[Event]:
    """Return events in which a run is paused at one of its points, or while a pool, ledger or disk does not respond."""
    kind = chance.choice(("pool is frozen", "pool dies", "disk is away", "ledger is locked", ""))
    label = chance.choice(RUN_LABELS)
    plan = Event(
        f"plan {chance.choice(('rebuild', 'rebuild', 'edit', 'rollback', 'seam'))}", 1.0, by="lee", subject="a"
    )
    events = [plan]
    if kind:
        events.append(Event(kind, 1.0, label, chance.choice((1, 2)), lasts_s=chance.choice((30.0, 60.0))))
    events.append(Event("run pause", 1.0, label, 1, "bob", stalls_s=chance.choice((0.0, 1.0))))
    return events


def _late_starts(chance: random.Random) -> list[Event]:
    """Return events in which starts take effect after their deadline, during edits, seams and stops."""
    table, verb = chance.choice("ab"), chance.choice(("edit", "edit", "edit", "seam", "column", "delete"))
    late = Event("starts are late", 0.5, lasts_s=chance.choice((6.0, 25.0, 40.0, 40.0)))
    before = _words_after(chance, 0.6, ("restart", table), within=2.0)
    plan = Event(f"plan {verb}", chance.choice((4.0, 20.0, 24.0)), by="lee", subject=table)
    acts = ("stop", "start", "restart", "run retry")
    after = _words_after(
        chance, plan.at, *[(chance.choice(acts), table) for _ in range(chance.choice((0, 0, 1, 2)))], within=12.0
    )
    return [late, *before, plan, *after]


def _overdue_start(chance: random.Random) -> list[Event]:
    """Return events in which a start takes effect late, after a step has found nothing to stop."""
    table, verb = chance.choice((("a", "edit"), ("b", "edit"), ("b", "seam"), ("b", "seam")))
    label = "before # seam running" if verb == "seam" else "before # restart running"
    plan = Event(f"plan {verb}", 1.0, by="lee", subject=table)
    restart = Event("restart", 1.0, label, 1, "bob", subject=table, stalls_s=chance.choice((0.5, 0.5, 1.0)))
    killed = chance.random() < 0.3
    first = chance.uniform(5.0, 16.0) if killed else chance.uniform(21.0, 34.0)
    late = [Event("a start is late", 0.5, subject=f"{table}@old", lasts_s=round(lasts_s, 1)) for lasts_s in
        (first, chance.uniform(8.0, 18.0), chance.uniform(8.0, 18.0))]  # fmt: skip
    kill = [Event("kill", 1.0, "socket sends start", 1)] * killed
    return [*late, plan, restart, *kill]


def _stopped_step(chance: random.Random) -> list[Event]:
    """Return events in which a statement is stopped during a step that changes its text, just before the reconciler."""
    table = chance.choice("ab")
    plan = Event(f"plan {chance.choice(('edit', 'edit', 'seam'))}", 1.0, by="lee", subject=table)
    label = chance.choice(("run sends stop", "run effects stop", "run wrote", "run sends start", "effect # restart",
        "reconcile sends list", "reconcile wrote"))  # fmt: skip
    stalls = chance.choice((0.0, 0.5, 3.0))
    stop = Event("stop", 1.0, label, chance.choice((1, 2, 3)), "bob", subject=table, stalls_s=stalls)
    return [plan, stop, *_words_after(chance, 3.0, (chance.choice(("start", "run retry", "run cancel")), table))]


def _stale_round(chance: random.Random) -> list[Event]:
    """Return events in which a reconciler round stalls while a step changes a statement's text but cannot start it."""
    label = chance.choice(("reconcile sends list", "reconcile sends list", "reconcile wrote"))
    verb, table = chance.choice(("edit", "edit", "seam", "column")), chance.choice("ab")
    stalls = chance.choice((1.5, 3.0, 4.5))
    plan = Event(f"plan {verb}", 1.0, label, 1, "lee", subject=table)
    still = Event("stands still", 1.0, "reconcile sends list", 1, stalls_s=stalls)
    kind = chance.choice(("disk is away", "disk is away", "another hand", "ledger is locked", "pool is frozen"))
    where = chance.choice(("run effects stop", "run effects stop", "run wrote"))
    return [plan, still, Event(kind, 1.0, where, chance.choice((1, 1, 2)), lasts_s=chance.choice((0.3, 1.0, 2.0)))]


def _cancelled_delete(chance: random.Random) -> list[Event]:
    """Return events in which a delete is cancelled while a disk or the ledger accepts no writes."""
    table = chance.choice("bc")
    label = chance.choice(("run sends forget", "effect # tombstone", "run effects forget", "evidence # tombstone"))
    kind = chance.choice(("ledger is locked", "ledger is full", "disk is full", "disk is away", "kill"))
    fault = Event(kind, 1.0, label, 1, lasts_s=chance.choice((6.0, 25.0)))
    plan = Event("plan delete", 1.0, by="lee", subject=table)
    return [plan, fault, *_words_after(chance, 2.0, ("run cancel", ""), within=8.0)]


def _cancelled_way_back(chance: random.Random) -> list[Event]:
    """Return events in which a rollback or release is cancelled while a reader of its new versions is started."""
    kind = chance.choice(("rollback", "rollback alone", "rollback alone", "rebuild"))
    plan = Event(f"plan {kind}", 1.0, by="lee", subject=chance.choice("aab"))
    label = chance.choice(("after # start gate", "after # resume gate", "after # catch_up gate", "after # hold gate"))
    subject = chance.choice(("b@new", "c@new", "c", "c"))
    start = Event("start", 1.0, label, 1, "bob", subject=subject, stalls_s=chance.choice((0.0, 0.5)))
    return [plan, start, *_words_after(chance, 1.5, ("run cancel", ""), within=15.0)]


def _refused_restart(chance: random.Random) -> list[Event]:
    """Return events in which a statement is restarted under conditions that make a start fail."""
    kind = chance.choice(("disk is away", "disk is away", "another hand", "disk is full"))
    at = chance.uniform(1.0, 6.0)
    words = _words_after(chance, at + 0.1, ("restart", chance.choice(TABLES)), within=chance.choice((1.0, 15.0)))
    plan = [_plan(chance, 1.0)] if chance.random() < 0.3 else []
    return [Event(kind, round(at, 2), lasts_s=25.0), *words, *plan]


def _adopted_run(chance: random.Random) -> list[Event]:
    """Return events in which an adoption ends a run that is in progress, or that waits for gates before its swap."""
    if chance.random() < 0.6:
        table = chance.choice("ab")
        late = Event("first batch is late", 0.5, subject=f"{table}@new", lasts_s=chance.choice((6.0, 12.0, 20.0)))
        plan = Event(f"plan {chance.choice(('rebuild', 'rebuild', 'seam', 'column'))}", 1.0, by="lee", subject=table)
        label = chance.choice(("after # start gate", "after # start gate", "after # catch_up gate"))
        hand = Event("another hand", 1.0, label, chance.choice((1, 1, 2)))
        return [late, plan, hand, *_words_after(chance, 6.0, ("adopt", ""), ("adopt", ""), ("adopt", ""), within=9.0)]
    plan = Event(
        f"plan {chance.choice(('rebuild', 'rebuild held', 'edit'))}", 1.0, by="lee", subject=chance.choice("ab")
    )
    hand = Event("another hand", 1.0, chance.choice(RUN_LABELS), 1)
    after = _words_after(chance, 2.0, ("adopt", ""), (chance.choice(("run swap", "adopt")), ""), within=12.0)
    return [plan, hand, *after]


def _words_in_a_release(chance: random.Random) -> list[Event]:
    """Return requests about one version of a release and about its table, in either order."""
    table = chance.choice("ab")
    plan = Event(f"plan {chance.choice(('rebuild', 'rebuild held'))}", 1.0, by="lee", subject=table)
    label, stalls = chance.choice(RUN_LABELS), chance.choice((0.0, 1.0, 3.0))
    first = chance.choice(("stop", "stop", "stop", "restart"))
    second = chance.choice(("restart", "restart", "start", "stop"))
    about = chance.choice((table, table, f"{table}@old"))
    words = [Event(first, 1.0, label, 1, "bob", subject=f"{table}@new", stalls_s=stalls)]
    if chance.random() < 0.6:
        words.append(Event(second, 1.0, label, 1, "lee", subject=about))
    else:
        words += _words_after(chance, 3.0, (second, about), within=9.0)
    last = (("run swap", ""), ("run retry", ""), ("run swap", ""))
    return [plan, *words, *_words_after(chance, 8.0, *last, within=9.0)]


RUN_LABELS = tuple(label for label in LABELS if "#" in label or label.startswith("run "))
THEMES = (
    _stop_and_start,
    _stale_round,
    _skipped_gates,
    _paused_run,
    _late_starts,
    _overdue_start,
    _stopped_step,
    _cancelled_delete,
    _cancelled_way_back,
    _refused_restart,
    _adopted_run,
    _words_in_a_release,
)
WORLDS = ("deployed", "released", "released", "deleted", "left behind")
"""How a life begins: everything at its first version; everything at its second with the first retained; `b` in the
trash; or `c` stopped at its first version, which reads the first version of `a` while the second serves.
"""


def _plan(chance: random.Random, at: float) -> Event:
    kind = chance.choice(PLANS)
    table = chance.choice("ab" if kind in ("edit", "column") else "aabc")
    return Event(f"plan {kind}", round(at, 2), by=chance.choice(("lee", "bob")), subject=table)


def _word(chance: random.Random, lasts: float) -> Event:
    """Draw a request about a statement or the newest run, at a time or at a point."""
    event = Event("", round(chance.uniform(1.5, lasts), 2), by=chance.choice(("lee", "bob")))
    if chance.random() < 0.6:
        event = replace(event, at=round(chance.choice((1.0, 1.0, event.at)), 2), label=chance.choice(LABELS))
        event = replace(event, nth=chance.choice((1, 1, 2, 3)), stalls_s=chance.choice((0.0, 0.5, 3.0, 25.0)))
    if chance.random() < 0.55:
        kind = chance.choice(("stop", "stop", "start", "restart", "restart"))
        return replace(event, kind=kind, subject=chance.choice(NAMES).format(t=chance.choice("aabc")))
    acts = ("pause", "resume", "cancel", "retry", "skip", "skip", "swap", "swap")
    return replace(event, kind=f"run {chance.choice(acts)}")


def _fault(chance: random.Random, kind: str, lasts: float) -> Event:
    event = Event(kind, round(chance.uniform(0.5, lasts * 0.8), 2), lasts_s=chance.choice((1.0, 6.0, 25.0)))
    if kind in ("query fails", "first batch is late", "a start is refused", "a start is late"):
        event = replace(event, subject=f"{chance.choice(TABLES)}@{chance.choice(('new', 'old'))}")
    if kind == "clock jumps":
        event = replace(event, lasts_s=chance.choice((-7200.0, -5.0, 30.0, 7200.0, 1e6)))
    if chance.random() < 0.4 or kind == "stands still":
        event = replace(event, stalls_s=chance.choice((1.0, 6.0, 25.0)) if kind == "stands still" else 0.0)
        event = replace(event, at=1.0, label=chance.choice(LABELS), nth=chance.choice((1, 1, 2)))
    return event
