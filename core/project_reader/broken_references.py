"""References from files with errors to tables and tags, found by matching words because such files cannot be parsed.

An answer about tables without errors may depend on these files, because a file may read every table that it mentions.
"""

import re
from collections.abc import Collection, Mapping

from core.model.errors import InvalidProject
from core.model.names import TableName
from core.model.problems import Problem, in_reading_order
from core.project.model import Project
from core.project_reader.paths import table_folder, unreadable_files
from core.text.wording import counted

_WORD = re.compile(r"\w+")


class BrokenReferences:
    """Refuses questions whose answers depend on files with errors. Without such files, nothing is refused."""

    def __init__(self, project: Project, texts: Mapping[str, str]) -> None:
        self._project = project
        self._texts: dict[str, str | None] = {}
        """The texts of each broken table or stray file by its name; None if a text cannot be read."""
        if not (project.broken or project.stray):
            return
        strays = {problem.where.path for problem in project.stray if problem.where}
        folders: dict[str, list[str]] = {}
        for name, table in project.broken.items():
            folders.setdefault(table.folder, []).append(name)
        found: dict[str, list[str]] = {name: [] for name in (*project.broken, *strays)}
        for path, text in texts.items():
            for label in [path] if path in strays else folders.get(table_folder(path), ()):
                found[label].append(text.lower())
        unread = unreadable_files(texts).keys()
        hidden = {name for path in unread for name in folders.get(table_folder(path), (path,))}
        # The text of a stray file may be missing because it is a folder or a name that is not UTF-8.
        self._texts = {name: None if name in hidden or not parts else "\n".join(parts) for name, parts in found.items()}
        self._words = {
            name: None if text is None else frozenset(_WORD.findall(text)) for name, text in self._texts.items()
        }

    def refuse_readers(self, tables: Collection[TableName]) -> None:
        """Raise InvalidProject if files with errors mention one of the tables, which their statements may read."""
        if not self._texts:
            return
        wanted = frozenset(map(str, tables))
        found = sorted(name for name, words in self._words.items() if words is None or words & wanted)
        read = sorted(set().union(*(wanted & (self._words[name] or frozenset()) for name in found)))
        self._refuse(found, f"may read {', '.join(read[:3]) or 'any table'}{' …' if len(read) > 3 else ''}")

    def refuse_tagged(self, tag: str) -> None:
        """Raise InvalidProject if a table whose files have errors may have a tag."""
        everywhere = tag in self._project.defaults.tags
        found = (name for name, text in self._texts.items() if everywhere or text is None or tag.lower() in text)
        self._refuse(sorted(found), f"may have the tag {tag}")

    def refuse_broken(self, tables: Collection[TableName]) -> None:
        """Raise InvalidProject if files of one of the tables have errors."""
        self._refuse(sorted(name for name in tables if name in self._project.broken), "are needed for the answer")

    def _refuse(self, names: list[str], why: str) -> None:
        if not names:
            return
        problems: list[Problem] = []
        for name in names:
            table = self._project.broken.get(TableName(name))
            stray = (problem for problem in self._project.stray if problem.where and problem.where.path == name)
            problems += stray if table is None else table.problems
        raise InvalidProject(
            f"files of {', '.join(names)} {why}, but have {counted(len(problems), 'problem')}",
            remedy="correct what is listed, and ask again",
            problems=tuple(problem.as_json() for problem in in_reading_order(problems)),
        )
