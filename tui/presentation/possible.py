"""Whether an action is possible now, and if not, why: one sentence for the flash line and for the help."""

from dataclasses import dataclass

from tui.actions import Action, Level, Need


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What decides whether an action is possible now."""

    targets: tuple[str, ...] = ()
    external: tuple[str, ...] = ()
    """Those of the targets that are filled by others."""
    ghost: bool = False
    stale: str = ""
    """Why the data is stale; empty when it is live."""
    staged: int = 0
    plan_open: str = ""
    """Why the plan cannot be executed; empty when it can or when there is none."""
    has_plan: bool = False
    run_state: str = ""
    """State of the run on screen; empty elsewhere."""
    read_only: str = ""
    """Why the console may look but not act; stop and cancel stay possible."""


def reason_against(action: Action, now: Circumstances) -> str:
    """Say in one sentence why an action is not possible now; empty when it is."""
    if now.ghost and Need.TARGET in action.needs:
        return "this statement is gone; its row stays for five seconds so that no key hits another one"
    if Need.TARGET in action.needs and not now.targets:
        return "no statement under the cursor"
    if Need.OURS in action.needs and now.external:
        return f"{', '.join(now.external)} is external: others fill it, we never touch it"
    if now.read_only and action.level is not Level.LOOK and action.id not in ("stop", "cancel"):
        return now.read_only
    if Need.LIVE in action.needs and now.stale:
        return now.stale
    if Need.STAGED in action.needs and not now.staged:
        return "nothing is staged: D stages a deploy, X a delete"
    if Need.PLAN in action.needs:
        return "no plan on screen" if not now.has_plan else now.plan_open
    if Need.RUN in action.needs and now.run_state not in ("running", "paused", "failed"):
        return f"the run is {now.run_state}" if now.run_state else "no run on screen"
    return ""
