"""Plays lives that begin with everything deployed, and shrinks the scripts of failing ones."""

import logging
import os
import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from drawn_life import Life, LifeEnd, Unexpected
from life_script import Event, Script, draw
from virtual_modules import lived

DAYS = {
    "deployed": Script("first day", (Event("plan deploy", 8.0, by="lee"),), switches=0.0, lasts_s=50.0),
    "released": Script(
        "second day", (Event("plan rebuild", 1.0, by="lee", subject="a"),), "deployed", switches=0.0, lasts_s=80.0
    ),
    "deleted": Script(
        "third day", (Event("plan delete", 1.0, by="lee", subject="b"),), "released", switches=0.0, lasts_s=40.0
    ),
    "left behind": Script(
        "another day",
        (
            Event("plan rebuild alone", 1.0, by="lee", subject="a"),
            Event("stop", 60.0, by="bob", subject="c"),
            Event("stop", 65.0, by="bob", subject="a@new"),
        ),
        "deployed",
        switches=0.0,
        lasts_s=80.0,
    ),
}
"""The scripts that produce the initial environments, each from the previous one and without faults."""


@dataclass
class Base:
    """An environment at rest, from which lives begin: its folder, the modelled disk, and the server's queries."""

    kept: Path
    disk: dict[str, Any]
    server: dict[str, Any]
    now: float


class Lives:
    """Plays every script from the same initial environments, in one folder per process, in memory if possible."""

    def __init__(self) -> None:
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self._folder = tempfile.TemporaryDirectory(prefix="headgate-lives-", dir=memory)
        self.root = Path(self._folder.name) / "world"
        self._bases: dict[str, Base] = {}

    def close(self) -> None:
        self._folder.cleanup()

    def live(self, script: Script) -> LifeEnd:
        """Play the life of a script."""
        return self._lived(self._life(script, self._base(script.world)))

    def _life(self, script: Script, base: Base) -> Life:
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(base.kept, self.root)
        life, found = Life(script, self.root), deepcopy(base)
        vars(life.disk).update(found.disk)
        vars(life.server).update(found.server)
        life.baton.now = found.now
        return life

    def _base(self, world: str) -> Base:
        if world not in self._bases:
            self._bases[world] = self._made(world, DAYS[world])
        return self._bases[world]

    def _made(self, world: str, day: Script) -> Base:
        """Play a day without faults, and keep the resulting environment as a base for other lives."""
        if world == "deployed":
            shutil.rmtree(self.root, ignore_errors=True)
            (self.root / "home").mkdir(parents=True)
            (self.root / "data").mkdir()
            life = Life(day, self.root)
            life.disk.tables[str(self.root / "data/landing")] = ""
        else:
            life = self._life(day, self._base(day.world))
        end = self._lived(life)
        assert not end.violations and any(note.endswith(": applied") for note in end.notes), "\n".join(end.trace)
        kept = Path(self._folder.name) / world
        shutil.copytree(self.root, kept)
        disk = {name: vars(life.disk)[name] for name in ("checkpoints", "tables", "sink", "aside", "ids")}
        names = ("generation", "alive", "session_id", "queries", "gone", "tables", "views", "runs_begun")
        server = {name: vars(life.server)[name] for name in names}
        return Base(kept, deepcopy(disk), deepcopy(server), life.baton.now)

    def _lived(self, life: Life) -> LifeEnd:
        log, heard = logging.getLogger("pipelines"), Unexpected(life.rules)
        before = log.propagate, log.level
        log.addHandler(heard)
        log.propagate = False
        log.setLevel(logging.INFO)
        stack = threading.stack_size(512 * 1024)
        try:
            with lived(life.modules, life.server, life.disk, life.world_changes):
                return life.live()
        finally:
            threading.stack_size(stack)
            log.removeHandler(heard)
            log.propagate = before[0]
            log.setLevel(before[1])

    def shrink(self, script: Script, rule: str, *, most: int = 200) -> Script:
        """Return the script, reduced as far as it still breaks the rule, after at most `most` trials."""
        tried = 0

        def fails(candidate: Script) -> bool:
            nonlocal tried
            tried += 1
            return tried <= most and any(found.rule == rule for found in self.live(candidate).violations)

        size = max(1, len(script.events) // 2)
        while size:
            n = 0
            while n < len(script.events):
                candidate = script.without(script.events[n : n + size])
                if fails(candidate):
                    script = candidate
                else:
                    n += size
            size //= 2
        for plainer in ({"stalls": 0.0}, {"switches": 0.02}, {"switches": 0.0}, {"calms": False}):
            candidate = replace(script, **plainer)  # type: ignore[arg-type]  # Fields by name.
            if candidate != script and fails(candidate):
                script = candidate
        return script


@dataclass
class Report:
    """The combined results of many lives."""

    lives: int = 0
    failed: dict[str, list[Script]] = field(default_factory=dict)
    """Failing scripts by rule."""
    details: dict[str, str] = field(default_factory=dict)
    drawn: Counter[str] = field(default_factory=Counter)
    """Events of the scripts, by kind."""
    came: Counter[str] = field(default_factory=Counter)
    """Events that happened, by kind; others waited for a point that was never passed, or came after the life's end."""
    met: Counter[str] = field(default_factory=Counter)
    """Requests, calls and threads affected by a fault, by its kind."""
    passed: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)
    virtual_s: float = 0.0

    def take(self, script: Script, end: LifeEnd) -> None:
        self.lives += 1
        self.drawn.update(event.kind for event in script.events)
        self.came += end.came
        self.met += end.met
        self.passed += end.passed
        self.notes += end.notes
        self.virtual_s += end.virtual_s
        if end.violations:
            self.failed.setdefault(end.rule, []).append(script)
            self.details.setdefault(end.rule, end.violations[0].detail)


def live_many(lives: Lives, seeds: Iterable[int]) -> Report:
    """Draw and play one life per seed."""
    report = Report()
    for seed in seeds:
        script = draw(seed)
        report.take(script, lives.live(script))
    return report
