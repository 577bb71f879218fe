"""The command `cluster`: a standalone cluster on this machine, for trying out, tests and small sites."""

import argparse
from collections.abc import Iterator, Mapping
from typing import Any

from core.ipc.environment_paths import cluster_root
from core.model.errors import UsageError
from core.project.model import LEAST_MIB, MOST_CORES, MOST_MIB, is_memory
from core.text.wording import counted
from tui.agent_client.spark_side_process import last_answer
from tui.command_line.context import CommandContext
from tui.presentation.styling.table_layout import format_table

MODULE = "pipelines.local_pool.standalone_cluster"

MOST_WORKERS = 16
HELP = "headgate help clusters"

WAITS_S = 600.0
"""Longest wait, in seconds, for master and workers; each takes 3 to 5 s on two idle cores."""


def cluster(context: CommandContext) -> int:
    """Start, end or show the cluster. Without a subcommand, show it."""
    action = context.args.subcommand or "status"
    _check(context.args)
    words = [cluster_root(context.environ), action]
    for name in ("workers", "cores", "memory"):
        if (value := getattr(context.args, name, None)) is not None:
            words += [f"--{name}", str(value)]
    progress = context.output.progress if action == "up" else None
    found = last_answer(MODULE, words, context.environ, task="the cluster", seconds=WAITS_S, progress=progress)
    if action == "down":
        context.output.answer(found, *_ended(found))
        return 0
    if found["size"] is None:
        context.output.answer(found, "there is no cluster: headgate cluster up starts one")
        return 1
    if action == "up":
        lines = ["    pool:", *(f"      {key}: {value}" for key, value in _pool(found).items())]
        started = f"started {', '.join(found['started'])}" if found["started"] else "everything was already running"
        context.output.answer(
            {**found, "pool": _pool(found)}, f"{started}; write these lines below an environment of headgate.yml",
            lines=lines,
        )  # fmt: skip
        return 0
    context.output.answer(found, lines=_lines(found))
    return 0 if all(each["pid"] and each["master_says"] == "ALIVE" for each in found["processes"]) else 1


def _check(args: argparse.Namespace) -> None:
    for name, most in (("workers", MOST_WORKERS), ("cores", MOST_CORES)):
        if (getattr(args, name, None) or 0) > most:
            raise UsageError(f"--{name} is at most {most}", remedy=f"for more than one machine: {HELP}")
    if (memory := getattr(args, "memory", None)) is not None and not is_memory(memory):
        bounds = f"from {LEAST_MIB}m to {MOST_MIB // 1024}g"
        raise UsageError(f"--memory {memory} is not a size {bounds}", remedy="write a size such as 2g")


def _pool(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return a pool that uses all of a cluster."""
    size = found["size"]
    pool = {"master": found["master"], "master_ui": found["master_ui"]}
    return {**pool, "cores": size["workers"] * size["cores"], "memory": size["memory"]}


def _ended(found: Mapping[str, Any]) -> Iterator[str]:
    yield f"ended {', '.join(found['ended'])}" if found["ended"] else "nothing was running"
    if used := found["applications"]:
        verb = "waits" if len(used) == 1 else "wait"
        yield f"{counted(len(used), 'application')} {verb} for its workers: headgate cluster up brings them back"


def _lines(found: Mapping[str, Any]) -> Iterator[str]:
    rows = []
    for each in found["processes"]:
        state = "running" if each["pid"] else "not running"
        rows.append((each["name"], str(each["pid"] or ""), state, each["master_says"] or "?", each["page"]))
    yield from format_table(("PROCESS", "PID", "STATE", "MASTER SAYS", "WEB INTERFACE"), rows, right=("PID",))
    size = found["size"]
    yield f"{found['master']}: each worker has {counted(size['cores'], 'core')} and {size['memory']}"
    if found["applications"] is None:
        yield "the master does not answer: headgate cluster up starts what is not running"
    for each in found["applications"] or ():
        yield f"application {each['id']} ({each['name']}): {each['state']}, {counted(each['cores'], 'core')}"
