"""Which branches of the tree by product are closed: what a person chose, else what makes the tree fit its screen."""

from collections.abc import Collection
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

    Quiet layers are closed before quiet products; what has something to say is never closed.
    """
    quiet = quiet_branches(view)
    layers = frozenset(branch for branch in quiet if branch.startswith("layer:"))
    return next((closed for closed in (frozenset[str](), layers) if rows_of(view, closed) <= rows), quiet)


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
