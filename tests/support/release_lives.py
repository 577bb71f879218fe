"""Releases whose agent dies at chosen points while another actor works, and the resulting states."""

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from live_project import Impatient, until
from release_project import RELEASE, RELEASED, ROLLBACK, SEAM, Released, Rows, releases_of, rows_of

REQUESTS = {"release": RELEASE, "rollback": ROLLBACK, "seam": SEAM}
ENDS_S = 180.0
"""Longest time, in seconds, from the start of a new agent to the end of a run, on a busy machine."""
ROWS_S, LANDS_S = 60.0, 2.0

EVERY_STEP = (
    "before {n} {do} running", "after {n} {do} running", "effect {n} {do}", "evidence {n} {do}", "before {n} {do} done",
    "after {n} {do} done",
)  # fmt: skip
"""Points that every step passes."""
GATED = ("start", "resume", "catch_up", "validate", "hold", "seam")
INSIDE_A_SEAM = ("seam stop {table}", "seam seed {table}", "seam move {table}")
RECORD = ("swap record", "swap commit")


def points_of(plan: Mapping[str, Any]) -> list[str]:
    """Return the points that a run of this plan passes, in order, including those inside steps.

    Points with nothing between them are listed once: `after running` equals `effect`, `evidence` comes just before the
    next state, and `after done` just before the next step.
    """
    found = []
    for step in plan["steps"]:
        n, do, table = step["n"], step["do"], step["table"]
        inside: list[str] = []
        if do == "swap":
            inside = [*(f"swap {moved}" for moved in step.get("tables") or [table]), *RECORD]
        if do == "seam":
            inside = [*INSIDE_A_SEAM]
        gate = ["after {n} {do} gate", "before {n} {do} done"] if do in GATED else []
        here = ["before {n} {do} running", "effect {n} {do}", *inside, "evidence {n} {do}", *gate]
        found += [label.format(n=n, do=do, table=table) for label in here]
    return [*found, f"after {n} {do} done"]


def one_point_per_step(plan: Mapping[str, Any], seed: int) -> list[str]:
    """Choose one point for each step of a plan, depending on a seed; for a swap, a point inside it."""
    chosen = []
    for step in plan["steps"]:
        n, do = step["n"], step["do"]
        if do == "swap":
            inside = [*(f"swap {table}" for table in step.get("tables") or [step["table"]]), *RECORD]
            chosen.append(inside[seed % len(inside)])
        chosen.append(EVERY_STEP[(seed + n) % len(EVERY_STEP)].format(n=n, do=do))
    return chosen


def one_point_per_kind(plan: Mapping[str, Any], seed: int) -> list[str]:
    """Choose a point in one step of each kind in a plan, depending on a seed; for a swap, a point inside it."""
    steps = {step["do"]: [one for one in plan["steps"] if one["do"] == step["do"]] for step in plan["steps"]}
    return one_point_per_step({"steps": [same[seed % len(same)] for same in steps.values()]}, seed)


@dataclass(frozen=True)
class Life:
    """One run, the points at which its agent dies, and the actor that starts to work at the first death."""

    request: str
    points: tuple[str, ...]
    actor: str = ""


@dataclass
class Ending:
    """The result of a run whose agent died at some points."""

    state: str = ""
    """The release's state: done, rolled back or aborted. For a rollback: done."""
    died_at: list[str] = field(default_factory=list)
    not_met: list[str] = field(default_factory=list)
    """Points at which the agent should have died, but which the run did not pass."""
    seconds: float = 0.0
    wrong: list[str] = field(default_factory=list)
    rows: dict[str, Rows] = field(default_factory=dict)
    swap_ms: int | None = None
    took_s: float = 0.0
    """Seconds from the run's beginning to its end."""


class Others(threading.Thread):
    """Stops, starts and restarts the table `aside` until told to end; leaves it running."""

    def __init__(self, world: Released) -> None:
        super().__init__(daemon=True)
        self._world, self._over = world, threading.Event()
        self.acts = 0

    def run(self) -> None:
        while not self._over.is_set():
            for act in ("stop", "start", "restart"):
                self.acts += self._world.run(act, "aside", "--confirm", "yes").returncode == 0
                self._over.wait(3.0)

    def end(self) -> None:
        self._over.set()
        self.join(timeout=120)
        self._world.done("start", "aside", "--confirm", "yes")


class Voice(threading.Thread):
    """An operator who works on a run until it ends: confirms the run if it is held, and calls `act`.

    If `lands`, new rows keep arriving; without new rows, there would be no batch at which a seam is possible.
    """

    def __init__(self, world: Released, run_id: str, act: "Callable[[Voice], None]", *, lands: bool) -> None:
        super().__init__(daemon=True)
        self.world, self.run_id, self._act, self._lands = world, run_id, act, lands
        self.acting, self.over = threading.Event(), threading.Event()
        self.acted, self.wrong = threading.Event(), ""

    def run(self) -> None:
        talking = threading.Thread(target=self._give_words, daemon=True)
        talking.start()
        try:
            while not self.acting.wait(0.2) and not self.over.is_set():
                pass
            if self.acting.is_set():
                self._act(self)
        except Exception as error:
            self.wrong = f"the other actor: {error}"
        self.acted.set()
        talking.join()

    def _give_words(self) -> None:
        held, landed = "SELECT 1 FROM step WHERE run_id = ? AND do = 'hold' AND state = 'gate'", monotonic()
        while not self.over.wait(0.5):
            if self._lands and monotonic() > landed + LANDS_S:
                self.world.land(2)
                landed = monotonic()
            if self.world.ledger(held, self.run_id):
                self.world.confirmed("release", "swap", self.run_id, "--detach")

    @property
    def state(self) -> str:
        return str(self.world.ledger("SELECT state FROM run WHERE id = ?", self.run_id)[0][0])

    def insists(self, *words: str) -> None:
        """Repeat a command until it succeeds; it may fail while the agent is dead or a step occupies the statement."""
        said = None
        ends = monotonic() + ENDS_S
        while said is None or said.returncode:
            if monotonic() > ends:
                raise Impatient(f"{' '.join(words)}: {said.stderr if said else ''}")
            said = self.world.confirmed(*words)
            self.over.wait(0.3)

    def carries_out(self, is_done: Callable[[], bool], *words: str) -> None:
        """Plan and apply a command, repeatedly until `is_done`, waiting while other runs are open."""
        ends = monotonic() + ENDS_S
        while not is_done():
            if monotonic() > ends:
                raise Impatient(f"not done: {' '.join(words)}")
            if self.world.open_runs() < 2:
                with suppress(AssertionError):
                    self.world.begin_run(self.world.plan(*words))
            self.over.wait(0.5)


def _does_nothing(voice: Voice) -> None:
    """Leave everything to the agent."""


def _stops_one(voice: Voice) -> None:
    """Stop a statement of the release and start it again; retry the run if the stop made it fail."""
    voice.insists("stop", "odd", "--confirm", "yes")
    voice.insists("start", "odd", "--confirm", "yes")
    ends = monotonic() + ENDS_S
    while voice.state != "done" and monotonic() < ends:
        if voice.state == "failed":
            voice.world.run("runs", "retry", voice.run_id)
        voice.over.wait(1.0)


def _restarts_one(voice: Voice) -> None:
    voice.insists("restart", "odd", "--confirm", "yes")


def _cancels(voice: Voice) -> None:
    while voice.state not in ("cancelled", "done"):
        voice.world.cancel(voice.run_id)
        voice.over.wait(0.3)


def _releases_beside(voice: Voice) -> None:
    before = voice.world.serving()["beside"][0]
    voice.carries_out(lambda: voice.world.serving()["beside"][0] > before, "beside", "--rebuild")


def _deletes_another(voice: Voice) -> None:
    voice.carries_out(lambda: "spare" not in voice.world.serving(), "delete", "spare")


ACTORS: Mapping[str, Callable[[Voice], None]] = {
    "": _does_nothing,
    "stop inside": _stops_one,
    "restart inside": _restarts_one,
    "cancel": _cancels,
    "release beside": _releases_beside,
    "delete beside": _deletes_another,
}
"""Actors by name. They act from the first death on, while `aside` is stopped and started and `broken` has failed."""

OTHERS_RUNS = {"release beside": ("beside", "--rebuild"), "delete beside": ("delete", "spare")}
"""Actors that have their own run; the points of that run have the same labels."""


def lived(world: Released, life: Life) -> Ending:
    """Carry out one request while the agent dies at each of the given points, and return how the run ended."""
    found, began, left = Ending(), monotonic(), list(life.points)
    if "spare" not in world.serving():
        assert world.confirmed("undelete", "spare").returncode == 0
    world.renew_agent(life.points)
    world.done("up")
    until(lambda: world.all_run(*RELEASED, "beside"), 90, "the agent has found the running statements")
    plan, served = world.plan(*REQUESTS[life.request]), _serves(world)
    world.learn(plan)
    known = {str(id) for (id,) in world.ledger("SELECT id FROM run")}
    strays, dead = _strays(world), len(world.deaths())
    world.begin_run(plan)
    until(lambda: world.newest_run(other_than=known)[0], 10, "the run is there")
    run_id, _ = world.newest_run()
    voice = Voice(world, run_id, ACTORS[life.actor], lands=life.request == "seam")
    voice.start()
    world.land(4)
    while left and _dies(world, voice):
        deaths = world.deaths()
        if len(deaths) == dead:
            found.wrong.append(f"the agent has ended by itself: {(world.home() / 'agent.log').read_text()[-1500:]}")
            break
        dead, point = len(deaths), deaths[-1]
        left.remove(point)
        # Steps whose end is recorded by one write share a point; the agent died at the first of these steps.
        left = [other for other in left if other not in _ended(world, run_id)]
        found.died_at.append(point)
        voice.acting.set()
        world.renew_agent(left)
    found.not_met = left
    _look(world, voice, found)
    if (stray := _strays(world) - strays) and not (voice.state == "cancelled" and found.state == "done"):
        found.wrong.append(f"beside what serves are wanted: {stray}")
    if life.actor == "cancel" and found.state == "aborted" and (now := _serves(world)) != served:
        found.wrong.append(f"it served {served} and serves {now}")
    if found.state not in ("done", "aborted" if life.actor == "cancel" else "done"):
        notes = world.ledger("SELECT n, do, note FROM step WHERE state = 'failed' AND run_id = ?", run_id)
        found.wrong.append(f"the run ended {voice.state}, the release is {found.state}: {notes}")
    found.seconds = monotonic() - began
    return found


def _serves(world: Released) -> dict[str, tuple[int, str, str]]:
    """Return the serving version of every table except `aside`, which an operator keeps restarting."""
    return {table: found for table, found in world.serving().items() if table != "aside"}


def _strays(world: Released) -> set[object]:
    """Return the versions that should run although they do not serve, such as old ones after a cancelled swap."""
    return {*world.ledger(
        "SELECT \"table\", version FROM deployment WHERE active = 0 AND wanted = 'running' AND \"table\" <> 'broken'"
    )}  # fmt: skip


def _ended(world: Released, run_id: str) -> set[str]:
    """Return the points that follow steps recorded as done; a later agent does not pass them."""
    done = world.ledger("SELECT n, do FROM step WHERE run_id = ? AND state = 'done'", run_id)
    return {f"after {n} {do} done" for n, do in done}


def _dies(world: Released, voice: Voice) -> bool:
    """Wait until the agent dies at its point; return False if the run ends without that."""
    ends = monotonic() + ENDS_S
    while not world.is_dead():
        ended = voice.state in ("done", "cancelled") or (voice.state == "failed" and voice.acted.is_set())
        if ended or (voice.state == "failed" and not voice.acting.is_set()):
            with suppress(Impatient):
                # The agent may die at the very end of its run.
                until(world.is_dead, 1.0, "it is dead")
            return world.is_dead()
        if monotonic() > ends:
            return False
        with suppress(Impatient):
            until(world.is_dead, 0.5, "it is dead", every_s=0.05)
    return True


def _look(world: Released, voice: Voice, found: Ending) -> None:
    """Wait until all runs have ended, and record any faults."""
    try:
        until(lambda: voice.acted.is_set() or not voice.acting.is_set(), ENDS_S, "the other actor has done")
        until(lambda: not world.open_runs(), ENDS_S, "the runs end")
    except Impatient as error:
        found.wrong.append(str(error))
    voice.over.set()
    voice.join(timeout=60)
    found.wrong.extend([voice.wrong] if voice.wrong else [])
    try:
        until(lambda: world.all_run(*RELEASED, "beside"), 90, "what serves runs")
        until(lambda: _right(world, found), ROWS_S, "every row is there once", every_s=1.0)
    except Impatient as error:
        found.wrong.append(str(error))
    _judge(world, voice.run_id, found)


def _judge(world: Released, run_id: str, found: Ending) -> None:
    """Record how the release ended according to Headgate, and how long its run and its swap took."""
    states = releases_of(world)
    found.state = states.get(run_id, "no release")
    found.wrong.extend(f"run {run} is {state}" for run, state in states.items() if state in _OPEN)
    failed = world.ledger("SELECT state FROM deployment WHERE \"table\" = 'broken'")
    if failed != [("failed",)]:
        found.wrong.append(f"the neighbour is {failed}")
    ((began, ended),) = world.ledger("SELECT started_at, ended_at FROM run WHERE id = ?", run_id)
    found.took_s = float(str(ended or began)) - float(str(began))
    for (note,) in world.ledger("SELECT note FROM step WHERE do = 'swap' AND state = 'done' AND run_id = ?", run_id):
        if "within" in str(note):
            found.swap_ms = int(str(note).rsplit("within ", 1)[1].split(" ", 1)[0])


_OPEN = ("preparing", "hydrating", "validating", "ready", "held", "swapping", "observing", "retiring", "rolling back",
         "needs you")  # fmt: skip


def _right(world: Released, found: Ending) -> bool:
    found.rows = rows_of(world, *RELEASED, "beside")
    return all(rows.good for rows in found.rows.values())
