"""Which branches of the tree by product are closed: what a person chose, else what makes the tree fit its screen."""

from collections.abc import Collection, Mapping
from enum import StrEnum

from tui.presentation.view.ledger_view import LedgerView
from tui.presentation.view.statement_tree import branches


class FoldingMode(StrEnum):
    """What is closed where nobody chose, in the words that are shown for it."""

    FIT = "as many branches open as fit"
    QUIET = "quiet branches folded"
    NONE = "all branches open"


class TreeFolding:
    """Closed branches over time: a branch that has something to say opens by itself, unless a person closed it."""

    def __init__(self) -> None:
        self.mode = FoldingMode.FIT
        self.chosen: dict[str, bool] = {}
        """Whether a person closed or opened a branch, by its id; it stays so until the mode is changed."""
        self._folded: frozenset[str] = frozenset()
        self._made_for: tuple[object, ...] = ()

    def closed(self, view: LedgerView, rows: int, kept: Collection[str] = ()) -> frozenset[str]:
        """Return the closed branches where `rows` rows fit; those of `kept` hold the cursor and are not closed anew."""
        made_for = (self.mode, rows, rows_of(view, ()))
        if made_for != self._made_for:
            self._made_for = made_for
            self._folded = _folded(view, self.mode, rows).difference(kept)
        elif self._folded:
            self._folded &= quiet_branches(view)
        by_person = {branch for branch, is_closed in self.chosen.items() if is_closed}
        return frozenset((self._folded | by_person) - (self.chosen.keys() - by_person))

    def change_mode(self, view: LedgerView, rows: int) -> None:
        """Take the next mode that shows something else, and forget what was chosen."""
        now, modes = self.closed(view, rows), tuple(FoldingMode)
        self.chosen = {}
        at = modes.index(self.mode) + 1
        for mode in (*modes[at:], *modes[:at]):
            self.mode = mode
            if self.closed(view, rows) != now:
                return


def folded_to_fit(view: LedgerView, rows: int) -> frozenset[str]:
    """Return the branches that are closed so that the tree has at most `rows` rows, or as few as can be.

    What has something to say is never closed. Of what is quiet products open before layers, and small before large.
    """
    closed = quiet_branches(view)
    room = rows - rows_of(view, closed)
    for branch, added in (*_sorted(_layers_in(view)), *_sorted(_rows_in_layers(view))):
        if branch in closed and added <= room and _product_of(branch) not in closed - {branch}:
            closed, room = closed - {branch}, room - added
    return closed


def _layers_in(view: LedgerView) -> dict[str, int]:
    return {f"product:{product}": len(layers) for product, layers in view.families.items()}


def _rows_in_layers(view: LedgerView) -> dict[str, int]:
    return {
        f"layer:{product}/{layer}": sum(1 + len(view.others.get(name, ())) for name in names)
        for product, layers in view.families.items()
        for layer, names in layers.items()
    }


def _sorted(added: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(added.items(), key=lambda item: item[1])


def _product_of(branch: str) -> str:
    return f"product:{branch.split(':', 1)[1].split('/', 1)[0]}"


def quiet_branches(view: LedgerView) -> frozenset[str]:
    """Return the branches in which nothing is faulty or staged, and no version is beside the active one."""
    found = set(branches(view))
    for statement in view.statements.values():
        if statement.faulty or statement.staged or statement.table in view.others:
            found -= {f"product:{statement.product}", f"layer:{statement.product}/{statement.layer}"}
    return frozenset(found)


def rows_of(view: LedgerView, closed: Collection[str]) -> int:
    """Count the rows of the tree by product."""
    rows = len(view.families)
    for product, layers in view.families.items():
        for layer, names in layers.items() if f"product:{product}" not in closed else ():
            is_open = f"layer:{product}/{layer}" not in closed
            rows += 1 + (len(names) + sum(len(view.others.get(name, ())) for name in names) if is_open else 0)
    return rows


def _folded(view: LedgerView, mode: FoldingMode, rows: int) -> frozenset[str]:
    match mode:
        case FoldingMode.FIT:
            return folded_to_fit(view, rows)
        case FoldingMode.QUIET:
            return quiet_branches(view)
        case FoldingMode.NONE:
            return frozenset()
