"""The functions of a project with the statements that use them, and what a new body of a function would change."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from core.changes.classification import classify
from core.changes.kinds import ChangeKind
from core.lineage.table_graph import edges_of, reach
from core.model.actions import Action
from core.model.names import TableName
from core.project.model import DeclaredFunction, Project
from core.project.revision import RevisionTexts
from core.project_reader.loader import read_sound_tables
from core.project_reader.parse_cache import ParseCache
from core.project_reader.revision_reader import revision_of
from core.sql.registered_functions import is_of_jar, with_jar_hash


@dataclass(frozen=True, slots=True)
class FunctionUses:
    """A function with its users."""

    function: DeclaredFunction
    tables: tuple[TableName, ...]
    """Tables whose statements use it, directly or through other functions, sorted."""
    functions: tuple[str, ...]
    """Names of the functions whose bodies use it, directly or not, sorted."""
    older: tuple[TableName, ...] = ()
    """Tables whose deployed statement has another declaration of it, sorted."""


@dataclass(frozen=True, slots=True)
class FunctionUser:
    """A statement that uses a function, and the kind of change that another body is for it."""

    table: TableName
    through: tuple[str, ...]
    """Functions that the statement uses and whose bodies use the function, sorted."""
    kind: ChangeKind
    action: Action


@dataclass(frozen=True, slots=True)
class FunctionImpact:
    """The effects of a new body of a function."""

    uses: FunctionUses
    users: tuple[FunctionUser, ...]
    """Sorted by table."""
    downstream: tuple[TableName, ...]
    """Other tables downstream of the users, sorted."""


def function_uses(project: Project, deployed: Mapping[TableName, RevisionTexts]) -> tuple[FunctionUses, ...]:
    """Return the valid functions with their users, sorted by name. `deployed` are the serving revisions."""
    tables: dict[str, list[TableName]] = {}
    older: dict[str, list[TableName]] = {}
    for name, table in project.tables.items():
        there = dict(deployed[name].as_written.functions) if name in deployed else {}
        for function, script in table.functions:
            tables.setdefault(script.path, []).append(name)
            if function in there and there[function] != script.as_written:
                older.setdefault(script.path, []).append(name)
    callers: dict[str, set[str]] = {}
    for each in project.functions:
        for path in each.calls:
            callers.setdefault(path, set()).add(each.name)
    found = (
        FunctionUses(
            each,
            tuple(tables.get(each.script.path, ())),
            tuple(sorted(callers.get(each.script.path, ()))),
            tuple(older.get(each.script.path, ())),
        )
        for each in project.functions
    )
    return tuple(sorted(found, key=lambda uses: (uses.function.name, uses.function.scope)))


def function_impact(
    project: Project, texts: Mapping[str, str], uses: FunctionUses, environment: str, parse_cache: ParseCache
) -> FunctionImpact:
    """Return what another body of a function would change. `texts` are the project's files.

    Each user is compared with itself, once the body is another one: so the kinds are those of an edited body.
    """
    path = uses.function.script.path
    edited = {**texts, path: _with_another_body(path, texts[path])}
    other, _ = read_sound_tables(edited, parse_cache, environment=environment)
    callers = {each.name for each in project.functions if path in each.calls}
    users = []
    for name in uses.tables:
        changed = other.tables.get(name) if other is not None else None
        table = project.tables[name]
        if changed is not None:
            change = classify(revision_of(table), revision_of(changed))
            through = tuple(function for function, _ in table.functions if function in callers)
            users.append(FunctionUser(name, through, change.kind, change.action))
    return FunctionImpact(uses, tuple(users), _downstream(project, uses.tables))


def _with_another_body(path: str, text: str) -> str:
    if path.endswith(".py"):
        return f"{text}\n...\n"
    if is_of_jar(text):
        return with_jar_hash(text, "0" * 64)
    return _RETURN.sub("RETURN CAST(NULL AS STRING)", _without_comments(text), count=1)


_RETURN = re.compile(r"\bRETURN\b(?!S).*\Z", re.IGNORECASE | re.DOTALL)
_PIECES = re.compile(r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|--[^\n]*|/\*.*?\*/""", re.DOTALL)


def _without_comments(text: str) -> str:
    return _PIECES.sub(lambda found: found[1] or " ", text)


def _downstream(project: Project, tables: Sequence[TableName]) -> tuple[TableName, ...]:
    children: dict[TableName, list[TableName]] = {}
    for name, table in project.tables.items():
        for edge in edges_of(table) if table.parsed is not None else ():
            children.setdefault(edge.parent, []).append(name)
    found = reach(tuple(tables), lambda name: children.get(name, ()))
    return tuple(sorted(set(found) - set(tables)))
