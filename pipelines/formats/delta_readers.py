"""Whether a stream of a Delta table can go on from where it stands: what its log says since, looked at once.

Who is far behind a table that goes on is asked about in every round, and may have thousands of commits to read.
"""

import os
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from core.model.states import TableFaultKind
from core.ports.storage import TableFault
from pipelines.formats.delta_log import CommitsGone, DataFile, DeltaLog
from pipelines.formats.delta_offsets import DeltaOffset
from pipelines.formats.delta_schemas import lost_column

LOOKED_AT = 200
"""Versions that wait, and files of one, that are looked for before a start."""

KEPT = 10_000
"""Readers that are remembered; what waits for those that were asked for longest ago is looked at again."""


@dataclass(slots=True)
class _Looked:
    """What was found in the commits behind an offset, up to a version in a life of its log: nothing to stop at."""

    life: int
    upto: int
    replaced: bool = False


class DeltaReaders:
    """Remembers of each reader how far the commits that it has to read were looked at."""

    def __init__(self) -> None:
        """Nothing was looked at yet."""
        self._looked: OrderedDict[tuple[str, DeltaOffset, bool, bool], _Looked] = OrderedDict()

    def fault_behind(
        self, log: DeltaLog, offset: DeltaOffset, *, takes_changes: bool, tracked: bool
    ) -> TableFault | None:
        """Return why a query at an offset cannot go on with a table as its log was read last; None where it can.

        A stream of rows ends at a commit that took rows out (4.4.0), one that `takes_changes` does not; none goes on
        over a column that was renamed or dropped, except those that are `tracked`.
        That fault comes last: it is the only one that tracking helps against.
        """
        if log.id != offset.table_id:
            why = f"was re-created: its id is {log.id}, and what was read had {offset.table_id}"
            return TableFault(TableFaultKind.REPLACED, why)
        if offset.version > log.head + 1:
            why = f"is an older copy: it ends with version {log.head}, and version {offset.version - 1} was read"
            return TableFault(TableFaultKind.REPLACED, why)
        first = offset.version + int(offset.in_snapshot)
        try:
            log.require(first)
            key = (log.folder, offset, takes_changes, tracked)
            looked = self._looked.get(key)
            if looked is None or looked.life != log.life:
                looked = _Looked(log.life, first - 1)
            waits = list(log.since(looked.upto + 1))
            took_out = next((commit for commit in waits if commit.took_out and not takes_changes), None)
            if took_out is not None:
                how = f"{took_out.took_out} in version {took_out.version}, which it has not read"
                why = f"was changed by {how}: a stream of rows does not go on over that"
                return TableFault(TableFaultKind.ROWS_CHANGED, why)
            lost = None if tracked else lost_column(log, waits)
            replaced = looked.replaced or any(commit.replaced for commit in waits)
            if lost is None:
                self._keep(key, _Looked(log.life, log.head, replaced))
            if replaced and (version := first_without_files(log, offset)) is not None:
                why = f"lacks files of version {version}, which is to be read next: VACUUM has deleted them"
                return TableFault(TableFaultKind.FILES_GONE, why)
            if lost is not None:
                only = "only with schema_tracking does a stream go on over that, also where it is taken back"
                why = f"is another one since version {lost[0]}: its {lost[1]}, and {only}"
                return TableFault(TableFaultKind.STREAM_COLUMNS_CHANGED, why)
        except CommitsGone:
            why = f"has no version {first} in its log any more, which is to be read next"
            return TableFault(TableFaultKind.LOG_GONE, why)
        return None

    def _keep(self, key: tuple[str, DeltaOffset, bool, bool], looked: _Looked) -> None:
        self._looked[key] = looked
        self._looked.move_to_end(key)
        if len(self._looked) > KEPT:
            self._looked.popitem(last=False)


def first_without_files(log: DeltaLog, offset: DeltaOffset) -> int | None:
    """Return the first version to be read whose files are not there; of many versions only the first are looked at.

    Raises CommitsGone where the log begins later.
    """
    if offset.in_snapshot and not _are_there(log, log.files_at(offset.version)[offset.files_read :]):
        return offset.version
    for commit in islice(log.since(offset.version + int(offset.in_snapshot)), LOOKED_AT):
        first = offset.files_read if commit.version == offset.version else 0
        if commit.files and not _are_there(log, log.added_in(commit.version)[first:]):
            return commit.version
    return None


def _are_there(log: DeltaLog, files: Sequence[DataFile]) -> bool:
    return all(os.path.exists(log.place_of(file)) for file in files[:LOOKED_AT])
