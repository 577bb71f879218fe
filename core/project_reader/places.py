"""Where generated texts of a project were written, as one of these texts, and Problems with places in the files."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from core.model.names import TableName
from core.model.problems import Problem, Severity, Where, in_reading_order
from core.project.model import BrokenTable, Project, Script, Table, TextPart, place_in_parts


@dataclass(frozen=True, slots=True)
class Places:
    """Where generated texts were written, and what is wrong with the files from which they were generated."""

    parts: Mapping[str, tuple[TextPart, ...]] = field(default_factory=dict)
    """The parts of each generated text, by its path."""
    problems: tuple[tuple[tuple[str, ...], Problem], ...] = ()
    """Each Problem of the files with the folders of the tables that it concerns; none if they are unknown."""
    unread: frozenset[str] = frozenset()
    """Paths of generated texts that must not be read, because the files behind them have errors."""
    manifests: Mapping[str, str] = field(default_factory=dict)
    """The manifest behind each generated folder, by the folder's path."""

    def of_file(self, problem: Problem) -> Problem:
        """Return a Problem about a generated text with its position in the file that people edit."""
        where = problem.where
        parts = self.parts.get(where.path) if where else None
        return replace(problem, where=place_in_parts(parts, where)) if where and parts else problem

    def of_files(self, project: Project) -> Project:
        """Return a project in which scripts and Problems have their places in the files that people edit."""
        tables = self.of_tables(project.tables)
        broken = {name: self._broken(table) for name, table in project.broken.items()}
        return replace(project, tables=tables, broken=broken, stray=tuple(map(self.of_file, project.stray)))

    def of_tables(self, tables: Mapping[TableName, Table]) -> dict[TableName, Table]:
        """Return tables whose scripts have their places in the files that people edit."""
        return {name: self._table(table) for name, table in tables.items()}

    def _table(self, table: Table) -> Table:
        ddl = self._script(table.ddl)
        return replace(table, ddl=ddl, dml=self._script(table.dml) if table.dml else None)

    def _script(self, script: Script) -> Script:
        return replace(script, parts=self.parts.get(script.path, ()))

    def _broken(self, table: BrokenTable) -> BrokenTable:
        problems = in_reading_order(tuple(map(self.of_file, table.problems)))
        return replace(table, problems=problems, manifest=self.manifests.get(table.folder, ""))


def read_places(text: str) -> Places:
    """Parse the places that `written_places` wrote; damaged places are left out, as they decide nothing."""
    try:
        data = json.loads(text)
        return Places(
            {path: tuple(TextPart(*part) for part in parts) for path, parts in data["parts"].items()},
            tuple((tuple(folders), _problem(given)) for folders, given in data["problems"]),
            frozenset(data["unread"]),
            dict(data["manifests"]),
        )
    except (ValueError, TypeError, LookupError, AttributeError):
        return Places()


def written_places(
    parts: Mapping[str, Iterable[TextPart]],
    problems: Sequence[tuple[Sequence[str], Problem]],
    unread: Collection[str],
    manifests: Mapping[str, str],
) -> str:
    """Return the text from which `read_places` makes Places with these fields."""
    data = {
        "parts": {path: [_fields(part) for part in found] for path, found in parts.items()},
        "problems": [(folders, problem.as_json()) for folders, problem in problems],
        "unread": sorted(unread),
        "manifests": dict(manifests),
    }
    return json.dumps(data)


def _fields(part: TextPart) -> tuple[int, str, int, int, bool]:
    # `astuple` copies each value, which takes ten times as long.
    return part.line, part.path, part.file_line, part.columns, part.follows


def _problem(given: Mapping[str, Any]) -> Problem:
    where = Where(given["file"], given["line"] or 0, given["column"] or 0) if given["file"] else None
    about = {"subject": given["subject"], "detail": given["detail"]}
    return Problem(given["summary"], given["remedy"], where, severity=Severity(given["severity"]), **about)
