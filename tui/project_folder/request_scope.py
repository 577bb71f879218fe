"""Finds the tables that a request selects by list file or folder. Reports unknown and repeated names."""

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from core.lineage.selectors import is_selector
from core.model.errors import BadName, UsageError
from core.model.names import TableName, parse_table_name
from core.text.wording import counted
from tui.project_folder.user_named_files import read_text, refuse_long

if TYPE_CHECKING:
    from core.observed.planner_input import ObservedDeployment
    from core.plan.request import PlanRequest
    from core.project.model import Project

STDIN = "-"

_TOLD = 20
"""Maximum number of mistakes listed in an error. All others are only counted."""
_MOST_LIST_MB = 10
_LINES = "name a text file with one table per line"
_SHOWN = 80
"""Maximum number of characters shown of an invalid line."""


@dataclass(frozen=True, slots=True)
class ListedTable:
    """A table named or selected by a line of a list file."""

    table: TableName
    place: str
    """File and line, as `tables.txt:3`. Lines are counted from 1."""


def _named(words: Iterable[str]) -> tuple[TableName, ...]:
    return tuple(map(parse_table_name, words))


def read_lists(
    paths: Iterable[str], cwd: str, select: Callable[[Iterable[str]], tuple[TableName, ...]] = _named
) -> tuple[ListedTable, ...]:
    """Return the tables in list files, which have one table or selector per line.

    `select` resolves selectors. `#` starts a comment, and the path `-` means stdin. Raises UsageError with all
    mistakes.
    """
    found: list[ListedTable] = []
    wrong: list[str] = []
    for path in dict.fromkeys(paths):
        text = _read_stdin() if path == STDIN else _read(path, cwd)
        before = len(found)
        for number, line in enumerate(text.splitlines(), 1):
            word = line.partition("#")[0].strip()
            place = f"{'stdin' if path == STDIN else path}:{number}"
            try:
                names = select((word,)) if is_selector(word) else _named((word,) if word else ())
                found += [ListedTable(name, place) for name in names]
            except BadName:
                shown = word if len(word) <= _SHOWN else f"{word[: _SHOWN - 1]}…"
                wrong.append(f"{place}: {shown!r} is not a table name")
            except UsageError as error:
                wrong.append(f"{place}: {error.summary}")
        if len(found) == before and not wrong:
            raise UsageError(
                f"{'stdin' if path == STDIN else path} names no table",
                remedy="write one table per line; # starts a comment",
            )
    if wrong:
        raise UsageError("; ".join(_few(wrong)), remedy="write one table per line; # starts a comment")
    return tuple(found)


def repeated(typed: Iterable[TableName], named: Sequence[ListedTable]) -> tuple[str, ...]:
    """Return a message for each line whose table was already named on an earlier line or the command line."""
    first = dict.fromkeys(typed, "the command line")
    said = []
    for each in named:
        place = first.setdefault(each.table, each.place)
        if place != each.place:
            said.append(f"{each.place}: {each.table} was already named by {place}")
    return tuple(said)


def find_folder(given: str, cwd: str, project: str) -> str:
    """Return a folder's path relative to the project, `.` for the project itself.

    `given` is absolute, relative to `cwd` or, if no such folder exists, relative to the project. Raises UsageError if
    it is not a folder in the project.
    """
    root = os.path.realpath(project)
    places = [os.path.realpath(os.path.join(base, given)) for base in (cwd, root)] if given.strip() else []
    inside = [place for place in places if place == root or place.startswith(f"{root}{os.sep}")]
    for place in inside:
        if os.path.isdir(place):
            return os.path.relpath(place, root).replace(os.sep, "/")
    if inside or not places:
        raise UsageError(
            f"{given!r} is not a folder of the project", remedy=f"name one below {project} that contains tables"
        )
    raise UsageError(f"{given} is outside the project {project}", remedy="name a folder below it, or --project")


def refuse_unknown(
    project: "Project",
    observed: "Mapping[TableName, ObservedDeployment]",
    request: "PlanRequest",
    places: Mapping[TableName, str] = MappingProxyType({}),
) -> None:
    """Raise UsageError if a request names unknown tables.

    The error quotes the line that names each table, if `places` has it, and suggests similar table names.
    """
    from core.model.states import State
    from core.planner.scope import normal_request, request_mistakes

    known = {
        *project.tables,
        *project.broken,
        *(t for t, seen in observed.items() if seen.state != State.ABSENT or seen.in_trash),
    }
    wrong = tuple(request_mistakes(normal_request(request), project, known))
    if wrong:
        told = [
            f"{places[TableName(each.table)]}: {each.summary}" if each.table in places else str(each.summary)
            for each in wrong
        ]
        near = list(dict.fromkeys(str(each.remedy) for each in wrong))
        raise UsageError("; ".join(_few(told)), remedy="; ".join(_few(near)))


def _few(told: list[str]) -> list[str]:
    more = len(told) - _TOLD
    return [*told[:_TOLD], f"and {counted(more, 'more problem')}"] if more > 0 else told


def _read(path: str, cwd: str) -> str:
    return read_text(os.path.join(cwd, path), path, most_mb=_MOST_LIST_MB, remedy=_LINES)


def _read_stdin() -> str:
    try:
        data = sys.stdin.buffer.read(_MOST_LIST_MB * 1_000_000 + 1)
        refuse_long(len(data), "stdin", most_mb=_MOST_LIST_MB, remedy=_LINES)
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError("stdin is not UTF-8 text", remedy="write one table per line") from error
