"""Checks that the ledger and data folder belong to the same environment, before any start and while the agent runs.

If that is uncertain, nothing starts until an operator runs `headgate adopt`. Statements can always be stopped.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import replace

from core.model.errors import Busy, NotAdopted, TryAgain
from core.model.events import EventKind
from pipelines.agent.context import event_row
from pipelines.storage.data_folder_records import EnvironmentMark, read_mark, write_mark
from state.ledger import Ledger

log = logging.getLogger(__name__)

MARK_S = 10.0
"""Seconds between increments of the counter in the ledger and in the data folder's mark file.

A backup has a lower count than the original.
"""


class EnvironmentIdentity:
    """Detects that the ledger and the data folder do not belong together.

    The data folder's mark file identifies its ledger and contains a counter that the ledger also keeps.
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        data: str,
        home: str,
        machine: str,
        clock: Callable[[], float],
        may_move: Callable[[], bool] = lambda: False,
    ) -> None:
        """Read the expected mark from the ledger.

        `may_move` returns True if the environment may move to another machine.
        """
        self._ledger = ledger
        self._may_move = may_move
        self._data = data
        self._clock = clock
        facts = ledger.facts()
        self._next = EnvironmentMark(facts.ledger_id, facts.epoch, machine, home, facts.mark)
        """The mark to write next; its count equals the ledger's count."""
        self._written: EnvironmentMark | None = None
        """The mark that this agent wrote last; None before the first comparison."""
        self._fault: TryAgain | None = None
        self._in_reach = False
        self._is_compared = False
        self._doubt = ""
        self._recorded = facts.doubt
        self._looking = threading.Lock()
        """Serializes comparisons and adoptions."""

    def refuse_other_environment(self) -> None:
        """Raise NotAdopted if the ledger and data folder may not match, or Busy if they have not been compared yet."""
        if self._doubt:
            raise NotAdopted(f"nothing is started: {self._doubt}", remedy="headgate adopt")
        if not self._is_compared:
            raise self._not_compared()

    def refuse_doubt(self) -> None:
        """Raise NotAdopted or Busy unless the ledger and the data folder are known to match.

        Also raise Busy if the counter could not be written, for example because the disk is full.
        """
        self.refuse_other_environment()
        if not self._in_reach:
            raise self._not_compared()

    def _not_compared(self) -> Busy:
        if (fault := self._fault) is not None:
            return Busy(fault.summary, remedy=fault.remedy)
        return Busy(f"{self._data} could not be compared with the ledger yet", remedy="headgate logs agent")

    @property
    def fault(self) -> TryAgain | None:
        """Return why the last attempt to read or write the data folder failed; None if it succeeded."""
        return self._fault

    @property
    def doubt(self) -> str:
        """Return why the ledger and data folder may belong to different environments; empty if there is no doubt."""
        return self._doubt

    def keep(self) -> None:
        """Compare the ledger with the data folder, and increment the counter in both if they match.

        Does nothing once a mismatch has been found. Raises TryAgain if the data folder cannot be reached.
        """
        with self._looking:
            if not self._doubt:
                try:
                    self._keep()
                    self._fault = None
                except TryAgain as error:
                    self._fault = error
                    raise

    def adopt(self, take_over: Callable[[int], object]) -> int:
        """Resolve a mismatch: write a new epoch to the ledger, then to the data folder's mark, and return the epoch.

        `take_over` is called with the new epoch before these writes, so an interrupted adoption leaves the mismatch in
        place.
        """
        with self._looking:
            found = read_mark(self._data)
            count = max(self._next.count, found.count if found else 0) + 1
            self._next = replace(self._next, epoch=max(self._next.epoch, found.epoch if found else 0) + 1, count=count)
            # Until the adoption ends, some owner files have the old epoch and some the new one, and nothing may start.
            self._doubt = self._doubt or "it is being adopted"
            take_over(self._next.epoch)
            self._ledger.adopt(epoch=self._next.epoch, mark=count)
            write_mark(self._data, self._next)
            self._written, self._in_reach, self._doubt, self._recorded = self._next, True, "", ""
            return self._next.epoch

    def _keep(self) -> None:
        try:
            found = read_mark(self._data)
            if found is None and self._written is not None:
                raise TryAgain(f"the mark is gone from {self._data}", remedy="mount or restore it")
        except TryAgain:
            self._in_reach = self._is_compared = False
            raise
        if self._written is None:
            self._doubt = self._compared(found)
        elif found != self._written and found is not None:
            self._doubt = rewritten(self._written, found)
        self._is_compared = True
        if self._doubt != self._recorded:
            self._record()
        if not self._doubt:
            self._count_on(found)
            self._in_reach = True

    def _compared(self, found: EnvironmentMark | None) -> str:
        """Return how the mark differs from the expected one; empty if it does not.

        A move to another machine that the policy allows is recorded as an event and is not a difference.
        """
        if found is None or found.machine in ("", self._next.machine) or not self._next.machine or not self._may_move():
            return difference(self._next, found)
        if not (doubt := difference(self._next, replace(found, machine=self._next.machine))):
            moved = f"moved from machine {found.machine} to {self._next.machine}, as the policy allows"
            self._ledger.add_event(event_row(self._clock(), EventKind.WORLD, moved))
        return doubt

    def _count_on(self, found: EnvironmentMark | None) -> None:
        # If the mark lacks the last increment, only the mark is written.
        if not self._next.count or (found is not None and found.count == self._next.count):
            counted = replace(self._next, count=self._next.count + 1)
            self._ledger.put_mark(counted.count)
            self._next = counted
        write_mark(self._data, self._next)
        self._written = self._next

    def _record(self) -> None:
        self._ledger.put_doubt(self._doubt)
        self._recorded = self._doubt
        if self._doubt:
            log.error("nothing is started: %s", self._doubt)
            doubt, remedy = self._doubt, "headgate adopt"
            self._ledger.add_event(event_row(self._clock(), EventKind.WORLD, doubt, detail=remedy, fingerprint=doubt))


def rewritten(left: EnvironmentMark, found: EnvironmentMark) -> str:
    """Describe how another process has replaced `left`, the mark that this agent last wrote to the data folder."""
    if replace(found, count=left.count) == left:
        stands = f"its count is {found.count}, and was {left.count}"
        return f"the mark of the data folder was replaced while this agent was running: {stands}"
    machine = f" on machine {found.machine}" if found.machine not in ("", left.machine) else ""
    who = f"ledger {found.ledger} of {found.home}{machine}, epoch {found.epoch}"
    return f"while this agent was running, the data folder was taken over by {who}"


def difference(ours: EnvironmentMark, found: EnvironmentMark | None) -> str:
    """Return how the data folder's mark `found` differs from the ledger's mark `ours`; empty if they match.

    A new ledger and a folder without a mark match, because they form a new environment.
    """
    if found is None:
        return (
            "the data folder no longer has a mark: it was emptied, or is a different folder" if ours.count > 1 else ""
        )
    if found.ledger != ours.ledger:
        return f"the data folder belongs to ledger {found.ledger} of {found.home}, and this is ledger {ours.ledger}"
    if found.machine and ours.machine and found.machine != ours.machine:
        return f"this is machine {ours.machine}, and the data folder was last used from machine {found.machine}"
    if found.home != ours.home:
        return f"this home is {ours.home}, and the data folder was last used from {found.home}"
    if found.epoch != ours.epoch:
        return f"the ledger has epoch {ours.epoch}, but the data folder has epoch {found.epoch}"
    if ours.count < found.count:
        return f"the ledger is an older copy: its mark is {ours.count}, and the data folder's is {found.count}"
    if ours.count > found.count + 1:
        return f"the data folder is an older copy: its mark is {found.count}, and the ledger's is {ours.count}"
    return ""
