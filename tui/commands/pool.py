"""The command `pool`: lists the pools of an environment, or shows one of them."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from core.model.errors import HeadgateError, Refused, UsageError
from core.model.names import is_environment_name
from core.observed.spark_work import WorkOfPool
from core.observed.versions import StatementLine, heartbeat_age_s, is_stale
from core.project.resources import DIMENSIONS
from core.text.wording import did_you_mean
from state.ledger_snapshot import LedgerSnapshot
from tui.agent_client import agent_process
from tui.command_line.context import CommandContext
from tui.command_line.output import stdout_width
from tui.command_line.statement_output import data_age_line
from tui.presentation.styling.table_layout import format_table
from tui.presentation.view.pools import PoolUse, pool_named, pools_with_loads
from tui.project_folder.environment_selection import has_ledger


def pool(context: CommandContext) -> int:
    """List the pools as last recorded in the ledger, show, cordon or uncordon one of them, or plan to drain it."""
    if context.args.subcommand == "recipe":
        return _recipe(context)
    if not has_ledger(context.place):
        raise Refused(f"{context.place.title} was never started here", remedy=f"start it: {context.place.up}")
    snapshot = context.operations.snapshot()
    if snapshot.facts is None:
        raise Refused(snapshot.problem, remedy=snapshot.remedy)
    if context.args.subcommand == "drain":
        from tui.commands.plan import drain

        return drain(context)
    if context.args.subcommand in ("cordon", "uncordon"):
        return _cordon(context, pool_named(snapshot.facts, context.args.name).name)
    declared = context.operations.projects.declared_environment()
    uses = pools_with_loads(context.operations.reader, snapshot.facts, snapshot.statements, declared=declared)
    if context.args.subcommand == "show":
        named = pool_named(snapshot.facts, context.args.name)
        return _show(context, next(use for use in uses if use.row is named), snapshot)
    return _list(context, uses, snapshot)


def _recipe(context: CommandContext) -> int:
    from core.project.manifest_head import MANIFEST_PATH
    from core.project.pool_recipe import RecipeInput, RecipeKind, recipe
    from core.project_reader.manifest import read_manifest

    args, place, declared = context.args, context.place, context.operations.projects.read_sound_tables()
    environment = declared.project.environments[place.environment]
    names = [each.name for each in environment.pools]
    if args.pool is not None and args.pool not in names:
        remedy = did_you_mean(args.pool, names) or f"pools: {', '.join(names)}"
        raise UsageError(f"there is no pool {args.pool}", remedy=remedy)
    name = args.name or args.kind
    if not is_environment_name(name):
        raise UsageError(f"{name!r} is no name of a pool", remedy="use letters, digits, _ and -")
    like = next(each for each in environment.pools if each.name == (args.pool or environment.pool.name))
    project = Path(place.folder)
    connectors = (
        replace(each, jars=tuple(str(project / Path(jar).expanduser()) for jar in each.jars))
        for each in read_manifest(declared.texts[MANIFEST_PATH], []).connectors
    )
    found = recipe(
        RecipeKind(args.kind),
        RecipeInput(
            replace(like, name=name),
            data=place.data,
            home=place.where.home,
            python=sys.executable,
            connectors=tuple(connectors),
        ),
    )
    if context.output.as_json:
        context.document(
            "headgate.recipe/1", notes=list(found.notes), files=dict(found.files), entry=found.entry,
        )  # fmt: skip
        return 0
    lines = [f"# {note}" for note in found.notes]
    parts = {f"save as {file}": text for file, text in found.files.items()}
    below = f"headgate.yml, below environments: {place.environment}:"
    parts[f"{below} in place of its pool:, or added to its pools:"] = found.entry
    for title, text in parts.items():
        lines += ["", f"# ---- {title}", *text.splitlines()]
    context.output.print(lines)
    return 0


def _cordon(context: CommandContext, name: str) -> int:
    cordons = context.args.subcommand == "cordon"
    changed = context.operations.agent.cordon_pool(name, cordons=cordons)
    now = "takes no new statements" if cordons else "takes new statements"
    words = f"{name} {now}" if changed else f"{name} {now} already"
    context.answer({"pool": name, "cordoned": cordons, "changed": changed}, words)
    return 0


def _list(context: CommandContext, uses: tuple[PoolUse, ...], snapshot: LedgerSnapshot) -> int:
    if context.output.as_json:
        context.document("headgate.pools/1", age_s=snapshot.age_s, pools=[_as_json(use) for use in uses])
        return 0
    # Columns of what no pool limits are left out.
    limited = [name for name in DIMENSIONS if any(use.used(name) for use in uses)]
    right = ("WANTED", "RUNNING", "FAILED", *(_USED[name] for name in limited))
    head, width = ("POOL", "STATE", "KIND", *right, "ADDRESS"), stdout_width()
    rows = [
        (
            use.row.name, use.state, use.kind, str(use.wanted), str(use.running), str(use.failed),
            *map(use.used, limited), use.address,
        )
        for use in uses
    ]  # fmt: skip
    printed = format_table(head, rows, right=right)
    if width is not None and max(map(len, printed)) > width:
        printed = format_table(head[:-1], [row[:-1] for row in rows], right=right)
    context.output.print(printed)
    context.output.say(data_age_line(context, snapshot, snapshot.statements))
    if len(uses) > 1:
        default = uses[0].row.name
        words = f"default: {default}, unless the yml of a statement or placement: spread leads to another one"
        context.output.say(words)
    return 0


_USED = {"statements": "USED", "cores": "CORES", "mib": "MEMORY"}
"""Titles of the columns with what is used of the capacity, by dimension."""


def _show(context: CommandContext, use: PoolUse, snapshot: LedgerSnapshot) -> int:
    from tui.presentation.screen_content.pools import pool_facts
    from tui.presentation.screen_content.statement_rows import RowContext
    from tui.presentation.screen_content.statement_sheet import sheet_lines, sheet_text
    from tui.presentation.styling.styled_text import plain
    from tui.presentation.styling.theme import WORDS_ALONE

    facts = snapshot.facts
    assert facts is not None, "its pools were read"
    no_agent = is_stale(heartbeat_age_s(facts.agent_seen_at, snapshot.read_at), facts.agent_pid)
    work = None if no_agent else _work(context, use)
    declared, log = use.row.declared, context.place.where.of_pool(use.row.place).log
    if declared is None or declared.url:
        log = ""
    process = agent_process.find_pool_process(context.place, use.row.place) if log else None
    pid = process.pid if process is not None else None
    if context.output.as_json:
        runs = [_query(line) for line in use.statements]
        context.document(
            "headgate.pool/1", **_as_json(use), runs=runs, work=work.as_json() if work is not None else None,
            pid=pid, log=log or None,
        )  # fmt: skip
        return 0
    look = RowContext(WORDS_ALONE, snapshot.read_at)
    sheet, width = pool_facts(use, look, no_agent=no_agent, work=work, log=log, pid=pid), stdout_width()
    context.output.print([f"POOL {use.row.name} of {context.place.title}"])
    if width is None:
        context.output.print(f"  {text}" for text in sheet_text(sheet))
    else:
        # One column less for the margin.
        context.output.print(f" {plain(line)}" for line in sheet_lines(sheet, look, width - 1))
    context.output.print([f"  {_query(line)['statement']:<40} {line.state}" for line in use.statements])
    return 0


def _work(context: CommandContext, use: PoolUse) -> WorkOfPool:
    try:
        return context.operations.agent.pool_work(use.row.name)
    except HeadgateError as error:
        return WorkOfPool(unread=error.summary)


def _query(line: StatementLine) -> dict[str, Any]:
    return {"statement": f"{line.table}@v{line.version}", "state": line.state, "wanted": line.wanted}


def _as_json(use: PoolUse) -> dict[str, Any]:
    row, declared = use.row, use.row.declared
    return {
        "name": row.name,
        "default": row.n == 0,
        "state": row.state,
        "detail": row.detail,
        "cordoned_at": row.cordoned_at,
        "cordoned_by": row.cordoned_by or None,
        "spark": row.engine or None,
        "kind": use.kind,
        "address": use.address,
        "cores": declared.cores if declared is not None and not declared.url else None,
        "memory": declared.memory if declared is not None and not declared.url else None,
        "class": declared.of_class or None if declared is not None else None,
        "capacity": {
            name: {"used": getattr(use.load, name), "most": most}
            for name, most in zip(DIMENSIONS, use.capacity, strict=True)
            if most is not None
        },
        "statements": {
            "wanted": use.wanted,
            "running": use.running,
            "failed": use.failed,
            "most": use.capacity.statements,
        },
        "generation": row.generation,
        "began_at": row.began_at,
        "session_id": row.session_id or None,
        "application": row.application or None,
        "silent_since": row.silent_since,
        "lost": row.loss.as_json() if row.loss is not None else None,
    }
