"""Decides whether an action is possible now and, if not, explains why in the status line and the help."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from core.model.names import TableName
from core.model.states import stays_at_rest
from core.text.sentence import Sentence, sentence_of
from tui.presentation.interaction.keymap import ActionRequirement, ConfirmationLevel, ConsoleAction
from tui.presentation.view.ledger_view import Access, Freshness, LedgerView

_NO_RUN = Sentence("no run is shown")
NAMED = 3
"""Maximum number of readers that a refusal lists by name. All others are only counted."""


@dataclass(frozen=True, slots=True)
class ActionContext:
    """Facts about the targets, the user and the ledger that decide which actions are possible now."""

    targets: tuple[str, ...] = ()
    viewed: tuple[str, ...] = ()
    """Statements under the cursor, even if other statements are marked."""
    external: tuple[str, ...] = ()
    """The targets if all of them are external; otherwise empty."""
    vanished: Sentence | None = None
    """Why the row under the cursor has vanished; None if it has not."""
    stale: Sentence | None = None
    """Why the data is stale; None if it is live."""
    no_agent: Sentence | None = None
    """Why nothing can be sent to the agent; None if it may be running."""
    running: bool = False
    """True if all targets are running. External tables are ignored."""
    not_deletable: Sentence | None = None
    """Why the targets cannot be deleted; None if they can."""
    staged: int = 0
    mine: int = 0
    """Number of targets that this user has staged."""
    not_executable: Sentence | None = None
    """Why the plan cannot be executed; None if it can, or if there is no plan."""
    unapprovable: Sentence | None = None
    """Why this user cannot approve the plan; None if approval is possible, or if there is no plan."""
    has_plan: bool = False
    run_state: str = ""
    """State of the run on screen; empty if no run is on screen."""
    run_failed: bool = False
    """True if a step of the run on screen has failed."""
    held: bool = False
    """True if the run on screen is held before its swap."""
    frozen: Sentence | None = None
    """Why a freeze prevents the run on screen from continuing; None if no freeze is active."""
    not_swapped: Sentence | None = None
    """Why this user may not swap the held run; None if this user may."""
    not_skipped: Sentence | None = None
    """Why this user may not skip the first failed step; None if this user may."""
    not_back: Sentence | None = _NO_RUN
    """Why the run on screen cannot be rolled back; None if it can."""
    locked: Sentence | None = None
    """Why the environment is read-only for this user; None if it is not."""
    read_only: Sentence | None = None
    """Why the console is read-only. Stop and cancel remain possible."""
    several: bool = False
    """True if the console has several environments open."""


def action_context_of(
    view: LedgerView,
    targets: Sequence[str],
    *,
    viewed: Sequence[str],
    user: str,
    fresh: Freshness,
    access: Access,
    read_only: str = "",
) -> ActionContext:
    """Collect the facts about an action's targets; the screen adds the facts about its plan or run.

    `read_only` is the reason why the console may not change anything; empty if it may.
    """
    known = [found for name in targets if (found := view.statement(name)) is not None]
    external = tuple(str(found.table) for found in known if found.external)
    ours = [found for found in known if not found.external]
    return ActionContext(
        targets=tuple(targets),
        viewed=tuple(viewed),
        external=external if len(external) == len(targets) else (),
        stale=sentence_of(fresh.reason),
        no_agent=sentence_of(fresh.reason) if fresh.no_agent else None,
        running=bool(ours) and all(found.runs for found in ours),
        not_deletable=why_not_deletable(view, [name for name in targets if name not in external], user),
        staged=len(view.snapshot.staged),
        mine=len(staged_by_user(view, user, targets)),
        locked=access.locked,
        read_only=sentence_of(read_only),
    )


def _run(now: ActionContext, states: tuple[str, ...]) -> Sentence | None:
    if now.run_state in states:
        return None
    return Sentence(f"the run is {now.run_state}") if now.run_state else _NO_RUN


def _unless(holds: object, words: str) -> Sentence | None:
    return None if holds else Sentence(words)


_AGAINST: Mapping[ActionRequirement, Callable[[ActionContext], Sentence | None]] = {
    ActionRequirement.TARGET: lambda now: _unless(now.targets, "no statement under the cursor"),
    ActionRequirement.ONE: lambda now: _unless(len(now.viewed) == 1, "put the cursor on one statement"),
    ActionRequirement.OURS: lambda now: _unless(
        not now.external, f"{', '.join(now.external)} is external: Headgate only reads it"
    ),
    ActionRequirement.LIVE: lambda now: now.stale,
    ActionRequirement.UNLOCKED: lambda now: now.locked,
    ActionRequirement.IDLE: lambda now: _unless(not now.running, "it is already running; R restarts it"),
    ActionRequirement.UNREAD: lambda now: now.not_deletable,
    ActionRequirement.MINE: lambda now: _unless(now.mine, "you have not staged it"),
    ActionRequirement.STAGED: lambda now: _unless(now.staged, "nothing is staged: D stages a deploy, X a delete"),
    ActionRequirement.PLAN: lambda now: now.not_executable if now.has_plan else Sentence("no plan is shown"),
    ActionRequirement.APPROVAL: lambda now: now.unapprovable if now.has_plan else Sentence("no plan is shown"),
    ActionRequirement.RUN: lambda now: _run(now, ("running", "paused", "failed")),
    ActionRequirement.GOING: lambda now: (
        _run(now, ("running", "paused")) or (now.frozen or now.locked if now.run_state == "paused" else None)
    ),
    ActionRequirement.HELD: lambda now: (
        now.frozen or now.not_swapped if now.held else Sentence("the run is not held before its swap")
    ),
    ActionRequirement.SERVED: lambda now: now.not_back,
    ActionRequirement.BROKEN: lambda now: (
        _run(now, ("running", "failed")) or (now.frozen if now.run_failed else Sentence("no step has failed"))
    ),
    ActionRequirement.SKIPPABLE: lambda now: now.not_skipped,
    ActionRequirement.SEVERAL: lambda now: _unless(now.several, "no other environment is open: `:env NAME` opens one"),
}
"""Maps each requirement to a function that explains why it is not met, or returns None.

Requirements are checked in this order.
"""

_OF_ROWS = frozenset({ActionRequirement.TARGET, ActionRequirement.ONE})


def why_not_possible(action: ConsoleAction, now: ActionContext) -> Sentence | None:
    """Explain why an action is not possible now; None if it is possible."""
    if now.vanished and action.needs & _OF_ROWS:
        return Sentence(f"{now.vanished}; its row stays for five seconds so that no key acts on another row")
    if now.read_only and action.level is not ConfirmationLevel.LOOK and action.id not in ("stop", "cancel"):
        return now.read_only
    if now.no_agent and action.level is not ConfirmationLevel.LOOK:
        return now.no_agent
    reasons = (against(now) for need, against in _AGAINST.items() if need in action.needs)
    return next((reason for reason in reasons if reason is not None), None)


def action_label(action: ConsoleAction, now: ActionContext) -> str:
    """Return an action's label for footer and help. `pause` is labelled `go on` while the run is paused."""
    return "go on" if action.id == "pause" and now.run_state == "paused" else action.label


def why_not_deletable(view: LedgerView, targets: Sequence[str], user: str) -> Sentence | None:
    """Explain why the targets cannot be deleted; None if they can. The planner applies the same rule.

    Every target must be deployed. It must not have a running reader, unless that reader is also a target or this user
    has staged the reader's deletion.
    """
    going = {*targets, *(mark.table for mark in view.snapshot.staged if (mark.actor, mark.verb) == (user, "delete"))}
    for name in targets:
        statement = view.statement(name)
        if statement is None:
            return Sentence(f"{name} is not deployed; there is nothing to delete")
        live = [reader for reader in statement.readers if reader not in going and _goes_on(view, reader)]
        if live:
            more = f" and {len(live) - NAMED} more" if len(live) > NAMED else ""
            return Sentence(
                f"{name} is read by {', '.join(live[:NAMED])}{more}: stage their delete first, or mark them all"
            )
    return None


def staged_by_user(view: LedgerView, user: str, tables: Sequence[str]) -> tuple[str, ...]:
    """Return which of `tables` a user has staged, sorted by name."""
    asked = frozenset(tables)
    marks = view.snapshot.staged
    return tuple(sorted({str(mark.table) for mark in marks if mark.actor == user and mark.table in asked}))


def _goes_on(view: LedgerView, reader: TableName) -> bool:
    found = view.statements[reader]
    return not stays_at_rest(found.state, found.line.wanted)
