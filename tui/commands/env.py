"""The command `env`, which lists the environments of a project."""

import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

from core.model.errors import InvalidProject
from core.model.names import environment_words, query_name
from core.project.naming import OWN_SOURCES
from core.project.overlay import Overlay
from core.text.secret_masking import mask_secrets
from core.text.wording import counted, long_duration
from state.overlay_files import overlays_beside
from tui.command_line.context import CommandContext
from tui.presentation.styling.table_layout import format_table
from tui.presentation.styling.value_formatting import clock, short_duration
from tui.project_folder.environment_selection import find_folder, select_environment
from tui.project_folder.manifest_head_cache import last_manifest_head, read_manifest_head
from tui.services.environments import NONE, EnvironmentState, others_with_agent, read_environments

if TYPE_CHECKING:
    from tui.services.overlays import ReplacedInput

HEAD = ("ENV", "AGENT", "AGE", "POOL", "RUNNING", "FAULTS", "CHANGED", "NAMES")


def env(context: CommandContext) -> int:
    """List all environments of the project, or that of `--env`. Returns 1 if the ledger of one cannot be read."""
    output, only = context.output, getattr(context.args, "env", None)
    folder = find_folder(context.environ, context.cwd, project=getattr(context.args, "project", None))
    try:
        head = read_manifest_head(context.environ, folder)
    except InvalidProject as error:
        last = last_manifest_head(context.environ, folder)
        if last is None:
            raise
        head = last
        output.say(f"{error.summary}: until it is corrected, every environment counts as protected")
    declared = tuple(head.protected_by_name)
    place = (
        select_environment(context.environ, context.cwd, project=folder, environment=declared[0]) if declared else None
    )
    overlays = overlays_beside(place.where.home) if place is not None else ()
    listed_names = (*declared, *(each for each in overlays if each not in declared))
    names = listed_names if only is None else (context.place.environment,)
    undeclared = others_with_agent(place, listed_names) if place is not None and only is None else ()
    found = read_environments(context.environ, folder, (*names, *undeclared))
    if output.as_json:
        listed = [_as_json(one, default=one.name == head.default_env) for one in found]
        output.data(
            {
                "format": "headgate.env/1",
                "project": head.project,
                "environments": listed,
                "undeclared": list(undeclared),
            }
        )
    else:
        now = time.time()
        output.print(format_table(HEAD, [_row(one, now) for one in found], right=("AGE", "FAULTS", "CHANGED")))
        for one in found:
            for words in _below(one, now):
                output.print([f"{_words(one)}: {words}"])
        output.say(f"{head.project}: {folder}")
    return int(any(one.error is not None for one in found))


def _words(one: EnvironmentState) -> str:
    return environment_words(one.name, protected=one.protected)


def _row(one: EnvironmentState, now: float) -> tuple[str, ...]:
    known = one.served or one.declared
    naming = known.naming.pattern if known is not None else "?"
    pool = _pool_names(one)
    if one.error is not None or not one.started:
        return (_words(one), "?" if one.error else "never", "", pool, "", "", "", naming)
    changed = short_duration(max(0.0, now - one.changed_at)) if one.changed_at is not None else ""
    age = short_duration(one.age_s) if one.age_s is not None else ""
    running, faults, state = (one.running, one.faults, one.pool_state) if one.observed else ("?", "?", "?")
    counts = f"{running} of {one.statements}", str(faults)
    return (_words(one), one.agent or "?", age, f"{pool} {state}", *counts, changed, naming)


def _below(one: EnvironmentState, now: float) -> Iterator[str]:
    if one.undeclared:
        yield f"headgate.yml no longer declares it; to end it: headgate down --env {one.name}"
    if one.error is not None:
        yield one.error.sentence
    elif one.started and not one.observed:
        yield _last_known(one)
    if one.frozen:
        yield one.frozen
    if one.read_only:
        yield "read-only by its policy"
    for unlock in one.unlocks:
        yield f"unlocked for {unlock.actor} until {clock(unlock.until)}: {unlock.ticket}"
    for edit in one.edits:
        yield f"{edit}; {edit.remedy}"
    if (overlay := one.overlay) is not None:
        left = overlay.expires_at - now
        ends = f"expires in {long_duration(left)}" if left > 0 else f"expired {long_duration(-left)} ago"
        yield f"overlay of {overlay.base} by {overlay.created_by}, {ends}, branch {overlay.branch}"
        for each in one.replaced:
            yield _replaced(one.name, overlay, each)
    known = one.served or one.declared
    sources = f", sources: {known.sources.of}" if known is not None and known.sources.of != OWN_SOURCES.of else ""
    pools = "pools" if one.declared is not None and one.declared.named_pools else "pool"
    yield f"{pools} {_pool(one)}, data {_data(one) or '?'}{sources}"


def _replaced(name: str, overlay: Overlay, each: "ReplacedInput") -> str:
    now = f"now serves {query_name(each.table, each.serving)}" if each.serving else f"has deleted {each.table}"
    ends = "" if each.gets_rows else ", which gets no more rows"
    again = f"headgate down --env {name} --purge, then headgate up --env {name} --from {overlay.base}"
    still = f"{name} still reads {query_name(each.table, each.version)}{ends}"
    return f"{overlay.base} {now}, and {still}; to read what serves: {again}"


def _pool_names(one: EnvironmentState) -> str:
    return ", ".join(pool.name for pool in one.declared.pools) if one.declared is not None else "?"


def _pool(one: EnvironmentState) -> str:
    if one.declared is not None and one.declared.named_pools:
        return ", ".join(f"{pool.name} ({pool.address})" for pool in one.declared.named_pools)
    declared = one.declared.pool if one.declared is not None else None
    if declared is None or declared.address != one.pool_address or declared.name == declared.address:
        return one.pool_address
    return f"{declared.name} ({declared.address})"


def _data(one: EnvironmentState) -> str:
    # An invalid folder is shown, too.
    return one.served.data if one.served is not None else mask_secrets(one.data)


def _last_known(one: EnvironmentState) -> str:
    if one.age_s is None:
        return "no agent has run here yet"
    why = "no agent is running" if one.agent == NONE else "the agent does not write"
    words = f"pool {one.pool_state}, {one.running} of {one.statements} running, {counted(one.faults or 0, 'fault')}"
    return f"{why}; {short_duration(one.age_s)} ago: {words}"


def _as_json(one: EnvironmentState, *, default: bool) -> dict[str, object]:
    declared, known = one.declared, one.served or one.declared
    counts = {"pool_state": one.pool_state, "running": one.running, "faults": one.faults}
    now = counts if one.observed else dict.fromkeys(counts)
    return {
        "environment": one.name,
        "default": default,
        "declared": not one.undeclared,
        "protected": one.protected,
        "colour": declared.colour or None if declared is not None else None,
        "read_only": one.read_only,
        "started": one.started,
        "pool": {
            "name": declared.pool.name if declared is not None else None,
            "address": one.pool_address,
            "state": now["pool_state"],
        },
        **({"pools": [pool.name for pool in declared.named_pools]} if declared and declared.named_pools else {}),
        "agent": one.agent,
        "age_s": one.age_s,
        "statements": one.statements,
        "running": now["running"],
        "faults": now["faults"],
        "last_known": counts if one.agent is not None and not one.observed else None,
        "frozen": one.frozen,
        "changed_at": one.changed_at,
        "unlocks": [{"actor": each.actor, "until": each.until, "ticket": each.ticket} for each in one.unlocks],
        "data": _data(one) or None,
        "naming": asdict(known.naming) if known is not None else None,
        "sources": known.sources.of if known is not None else None,
        "edits": [edit.as_json() for edit in one.edits],
        "overlay": asdict(one.overlay) if one.overlay is not None else None,
        "replaced": [asdict(each) for each in one.replaced],
        "error": one.error.as_json() if one.error is not None else None,
    }
