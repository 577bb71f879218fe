"""The guard `folders`: denies a plan that would start a statement on an external table whose folder does not exist.

Spark refuses to stream such a table, and the step that starts its reader would be one of the last of the run. An empty
folder is enough. Only the agent knows which folders exist; a folder at which it has not looked is not denied.
"""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence

from core.model.file_stores import is_remote
from core.model.names import TableName
from core.model.table_formats import table_format
from core.observed.seen_inputs import missing_folder
from core.plan.model import Guard, PlanNode
from core.planner.context import DeclaredTables
from core.planner.topic_guard import BEGINS_READING
from core.planner.warning_and_refusal_kinds import GuardFinding


def read_folders(declared: DeclaredTables, nodes: Iterable[PlanNode]) -> Iterator[tuple[TableName, TableName, str]]:
    """Yield (statement, external table, declared location) for each folder of files that a plan begins to stream."""
    for node in nodes:
        if node.action in BEGINS_READING and node.version:
            for parent in (each.parent for each in node.bindings if each.streamed and not each.version):
                source = declared.tables.get(parent)
                if source is not None and source.external:
                    format = table_format(source.parsed_ddl.format)
                    if format.has_files and not format.transaction_log:
                        yield node.table, parent, source.parsed_ddl.location


def judge_folders(declared: DeclaredTables, nodes: Sequence[PlanNode], answers: Mapping[str, str]) -> Guard | None:
    """Return the guard `folders`; None if no folder is known to be missing. `answers` has the agent's observations."""
    readers: dict[tuple[TableName, str], dict[TableName, None]] = {}
    for table, parent, location in read_folders(declared, nodes):
        if folder := missing_folder(answers, location):
            readers.setdefault((parent, folder), {})[table] = None
    if not readers:
        return None
    missing = tuple(
        GuardFinding.READ_FOLDER_MISSING.of(tables=(*tables,), parent=parent, folder=folder)
        for (parent, folder), tables in readers.items()
    )
    commands = dict.fromkeys(_creating(folder) for _, folder in readers)
    return Guard.of("folders", "deny", GuardFinding.FOLDERS_MISSING.of(missing=missing, commands=(*commands,)))


def _creating(folder: str) -> str:
    return f"{'hadoop fs -mkdir' if is_remote(folder) else 'mkdir'} -p {shlex.quote(folder)}"
