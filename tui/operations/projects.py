"""The project folder as texts, and as a Project: files are read as text, never imported or executed."""

import os
import threading
from dataclasses import dataclass

from core.errors import InvalidProject, UsageError
from core.project import Project
from core.vocabulary import LAYER_FOLDERS, Layer
from tui.operations.environments import PROJECT_FILE, Place

READ = (".sql", ".yml", ".yaml")
"""Endings of the files that declare something."""

_LARGEST = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Declared:
    """A table as its files' names say, without reading them."""

    table: str
    product: str
    layer: Layer
    external: bool


def read_texts(folder: str) -> dict[str, str]:
    """Read every declaring file of the folder, by its path with forward slashes; raises UsageError."""
    texts: dict[str, str] = {}
    unreadable: list[str] = []
    for path in _files(folder):
        try:
            with open(os.path.join(folder, path), encoding="utf-8-sig", newline="") as file:
                texts[path] = file.read(_LARGEST)
        except (OSError, UnicodeDecodeError) as error:
            unreadable.append(f"{path} ({error})")
    if PROJECT_FILE not in texts and not unreadable:
        raise UsageError(f"{folder} has no {PROJECT_FILE}", remedy="has the folder been moved? name it with --project")
    if unreadable:
        raise UsageError(
            f"{len(unreadable)} files of the project cannot be read: {'; '.join(unreadable[:5])}",
            remedy="make them readable, as UTF-8 text",
        )
    return texts


def parse(place: Place, texts: dict[str, str]) -> Project:
    """Read the texts as a Project; raises InvalidProject with all Problems, warnings included."""
    from core.layouts import read_project

    project, problems = read_project(texts)
    errors = [problem for problem in problems if problem.severity.value == "error"]
    if project is None or errors:
        many = "1 problem" if len(errors) == 1 else f"{len(errors)} problems"
        raise InvalidProject(
            f"the project {place.folder} has {many}",
            remedy="correct what is listed; `headgate plan` checks again",
            problems=tuple(problem.as_json() for problem in problems),
        )
    if project.id != place.project_id or place.environment not in project.environments:
        raise InvalidProject(
            f"{PROJECT_FILE} changed while it was read, or has its id or environments in a form that is not read",
            remedy="write `id:` and the environments' names in block style, one on each line, and try again",
        )
    return project


def warnings(texts: dict[str, str]) -> tuple[dict[str, object], ...]:
    """List what the project's reading warns of, as JSON objects."""
    from core.layouts import read_project

    return tuple(problem.as_json() for problem in read_project(texts)[1])


def declared(folder: str) -> tuple[Declared, ...]:
    """List tables by the names of their files alone, sorted: what completion and `ls` need, some milliseconds."""
    found: dict[str, Declared] = {}
    for layer_folder, layer in LAYER_FOLDERS.items():
        for product in _entries(os.path.join(folder, "pipelines", layer_folder)):
            for unit in _entries(product.path):
                names = {entry.name for entry in _scripts(unit.path)}
                writes = any(name.startswith("dml.") for name in names)
                for name in names:
                    kind, _, rest = name.partition(".")
                    if kind == "ddl" and rest.endswith(".sql"):
                        table = rest[: -len(".sql")].lower()
                        found[table] = Declared(table, product.name, layer, external=not writes)
    return tuple(found[table] for table in sorted(found))


class ProjectReader:
    """Reads the project again only when a file changed; safe to share between threads."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._lock = threading.Lock()
        self._stamp: tuple[tuple[str, int, int], ...] = ()
        self._kept: tuple[dict[str, str], Project] | None = None

    def read(self) -> tuple[dict[str, str], Project]:
        """Give texts and Project; raises InvalidProject or UsageError as `read_texts` and `parse`."""
        with self._lock:
            stamp = self._stamped()
            if self._kept is None or stamp != self._stamp:
                texts = read_texts(self._place.folder)
                self._kept = (texts, parse(self._place, texts))
                self._stamp = stamp
            return self._kept

    def _stamped(self) -> tuple[tuple[str, int, int], ...]:
        stamps = []
        for path in _files(self._place.folder):
            try:
                found = os.stat(os.path.join(self._place.folder, path))
            except OSError:
                stamps.append((path, 0, 0))
            else:
                stamps.append((path, found.st_mtime_ns, found.st_size))
        return tuple(stamps)


def _files(folder: str) -> list[str]:
    """List headgate.yml and what lies below `pipelines`, sorted; data folders are never walked."""
    if not os.path.isdir(folder):
        raise UsageError(f"the project folder {folder} is gone or cannot be read", remedy="name it with --project DIR")
    found = [PROJECT_FILE] if os.path.exists(os.path.join(folder, PROJECT_FILE)) else []
    root = os.path.join(folder, "pipelines")
    for where, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        relative = os.path.relpath(where, folder).replace(os.sep, "/")
        found.extend(f"{relative}/{name}" for name in sorted(names) if name.endswith(READ))
    return found


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted((e for e in entries if e.is_dir() and not e.name.startswith(".")), key=lambda e: e.name)
    except OSError:
        return []


def _scripts(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(os.path.join(folder, "sql-scripts")) as entries:
            return [entry for entry in entries if entry.is_file()]
    except OSError:
        return []
