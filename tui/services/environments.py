"""All environments of a project at once: each ledger is read on its own, so that none hides the others."""

import threading
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from core.model.errors import HeadgateError, TryAgain
from core.model.states import State
from core.observed.served_environment import EnvironmentEdit, ServedEnvironment, environment_edits
from core.policy.freeze_windows import frozen_until
from core.policy.unlocking import Unlock
from core.project.manifest_head import MANIFEST_PATH
from core.project.model import Environment
from core.project.overlay import Overlay
from core.project_reader.manifest import read_manifest
from core.text.sentence import Fact
from state.ledger_snapshot import LedgerSnapshot
from tui.agent_client.os_processes import boot_id, lock_holder
from tui.presentation.view.ledger_view import freshness, make_ledger_view
from tui.project_folder.environment_selection import SelectedEnvironment, has_ledger, select_environment
from tui.services.environment_service import EnvironmentService

if TYPE_CHECKING:
    from tui.services.overlays import ReplacedInput

DEADLINE_S = 3.0
"""Seconds after which an environment whose ledger has not been read is reported as such."""

LIVE, STALE, NONE = "live", "stale", "none"
"""States of an agent; a stale one has written nothing for too long."""


@dataclass(frozen=True, slots=True)
class EnvironmentState:
    """An environment as declared, and what its ledger says of it; None stands for unknown.

    Unless `observed`, the state of the pool, `running` and `faults` are those last recorded, which may be wrong by now.
    """

    name: str
    protected: bool
    declared: Environment | None = None
    """None if headgate.yml does not declare the environment, or has errors that hide the declaration."""
    data: str = ""
    """Absolute path of the declared data folder."""
    started: bool = False
    """True if the environment has a ledger on this machine."""
    pool_state: str | None = None
    agent: str | None = None
    """LIVE, STALE or NONE."""
    age_s: float | None = None
    """Seconds since the agent's last heartbeat."""
    statements: int | None = None
    """Number of serving statements, without external tables."""
    running: int | None = None
    faults: int | None = None
    frozen: str | None = None
    """The end of the current freeze, as a sentence; None outside a freeze."""
    changed_at: float | None = None
    """When an operator or a run last changed a table, in epoch seconds."""
    read_only: bool = False
    """True if the policy makes the environment read-only for everybody."""
    unlocks: tuple[Unlock, ...] = ()
    """Unlocks of the machine's current boot that have not ended by the wall clock."""
    overlay: Overlay | None = None
    """What the environment overlays; None for a declared environment."""
    error: HeadgateError | None = None
    """Why the ledger could not be read; None if it was, or if there is none."""
    undeclared: bool = False
    """True if headgate.yml no longer declares the environment."""
    served: ServedEnvironment | None = None
    """What the newest agent serves or has served; None if no agent has recorded it."""
    replaced: "tuple[ReplacedInput, ...]" = ()
    """What an overlay reads although its base has replaced it; empty if the ledger of the base cannot be read."""

    @property
    def observed(self) -> bool:
        """True if an agent keeps the ledger up to date."""
        return self.agent == LIVE

    @property
    def pool_address(self) -> str:
        """The address of the pool that is in use, or else of the declared one; `?` if neither is known."""
        if self.served is not None:
            return self.served.pool
        return self.declared.pool.address if self.declared is not None else "?"

    @property
    def edits(self) -> tuple[Fact[EnvironmentEdit], ...]:
        """How headgate.yml differs from what the agent serves; empty if no agent is running."""
        if self.served is None or self.declared is None or self.agent == NONE:
            return ()
        return tuple(environment_edits(self.served, self.declared, self.data))


def read_environments(
    environ: Mapping[str, str], folder: str, names: Sequence[str], *, deadline_s: float = DEADLINE_S
) -> tuple[EnvironmentState, ...]:
    """Read the environments `names` of a project at the same time, each in a thread and within `deadline_s`."""
    declared = _declared(folder)
    readings = [_Reading(environ, folder, name, declared.get(name)) for name in names]
    for reading in readings:
        threading.Thread(target=reading.read, name=f"read {reading.name}", daemon=True).start()
    ends_at = time.monotonic() + deadline_s
    for reading in readings:
        reading.done.wait(max(0.0, ends_at - time.monotonic()))
    return tuple(reading.found_after(deadline_s) for reading in readings)


def others_with_agent(place: SelectedEnvironment, known: Collection[str]) -> tuple[str, ...]:
    """Return the environments of a project that have an agent and are not among the `known` ones; sorted.

    `place` is any environment of the project. Environments that headgate.yml does not declare are found as well.
    """
    homes = Path(place.where.home).parent
    locks = sorted(homes.glob("*/agent.lock")) if homes.is_dir() else []
    names = ((lock.parent.name, lock) for lock in locks)
    return tuple(name for name, lock in names if name not in known and lock_holder(str(lock)) is not None)


def _declared(folder: str) -> dict[str, Environment]:
    # An error in headgate.yml is reported by whoever reads its head; here, it must not hide what is running.
    with suppress(OSError, UnicodeDecodeError):
        manifest = read_manifest(Path(folder, MANIFEST_PATH).read_text(encoding="utf-8-sig"), [])
        return {one.name: one for one in manifest.environments}
    return {}


@dataclass(slots=True)
class _Reading:
    environ: Mapping[str, str]
    folder: str
    name: str
    declared: Environment | None
    done: threading.Event = field(default_factory=threading.Event)
    found: EnvironmentState | None = None

    def read(self) -> None:
        base = self._unread()
        try:
            place = select_environment(self.environ, self.folder, project=self.folder, environment=self.name)
            declared = base.declared or _declared(place.folder).get(self.name)
            base = replace(base, protected=place.protected, data=place.data, overlay=place.overlay, declared=declared)
            base = replace(base, undeclared=not place.declared, replaced=_replaced(place))
            self.found = self._of_ledger(base, place) if has_ledger(place) else base
        except HeadgateError as error:
            self.found = replace(base, started=True, error=error)
        except Exception as error:
            words = f"the ledger cannot be read: {type(error).__name__}: {error}"
            self.found = replace(base, started=True, error=HeadgateError(words, remedy="headgate doctor"))
        finally:
            self.done.set()

    def found_after(self, seconds: float) -> EnvironmentState:
        """Return what was read, or that nothing was read within the deadline."""
        if self.found is not None:
            return self.found
        late = TryAgain(f"the ledger was not read within {seconds:g} s", remedy="check the disk that holds it")
        return replace(self._unread(), started=True, error=late)

    def _unread(self) -> EnvironmentState:
        return EnvironmentState(self.name, self.declared is None or self.declared.protected, self.declared)

    def _of_ledger(self, base: EnvironmentState, place: SelectedEnvironment) -> EnvironmentState:
        operations = EnvironmentService(place, self.environ)
        try:
            snapshot = operations.snapshot()
            reader = operations.reader
            policy = reader.recorded_policy() or (self.declared.policy if self.declared is not None else None)
            acts = reader.table_acts().values()
        finally:
            operations.close()
        now, boot = time.time(), boot_id()
        ours = [line for line in snapshot.serving if not line.external]
        return replace(
            base,
            started=True,
            pool_state=snapshot.pool_state,
            agent=_agent(snapshot, now),
            age_s=freshness(snapshot, now).age_s,
            statements=len(ours),
            running=sum(line.state == State.RUNNING for line in ours),
            faults=make_ledger_view(snapshot).faults,
            frozen=frozen_until(policy.freeze, now) if policy is not None else None,
            changed_at=max((act.at for act in acts), default=None),
            read_only=snapshot.read_only,
            served=snapshot.facts.serves if snapshot.facts is not None else None,
            unlocks=tuple(one for one in snapshot.unlocks if one.until > now and one.boot == boot),
        )


def _replaced(place: SelectedEnvironment) -> "tuple[ReplacedInput, ...]":
    if place.overlay is None:
        return ()
    from tui.services.overlays import replaced_inputs

    try:
        return replaced_inputs(place.overlay, place.project_id)
    except HeadgateError:
        return ()


def _agent(snapshot: LedgerSnapshot, now: float) -> str:
    fresh = freshness(snapshot, now)
    return NONE if fresh.no_agent else STALE if fresh.stale else LIVE
