"""Reads the project folder as strings and as a Project. Its files are never imported or executed."""

import os
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from core.ipc.environment_paths import parse_cache_path
from core.model.errors import InvalidProject, UsageError
from core.model.problems import Problem, Severity
from core.project.manifest_head import PLACES
from core.project.model import LAYER_FOLDERS, Layer
from tui.project_folder.declaring_files import (
    FOLDER,
    DeclaringFiles,
    generated_texts_in,
    read_files,
    read_text,
)
from tui.project_folder.environment_selection import (
    SelectedEnvironment,
    refuse_generated_project,
    refuse_undeclared,
)
from tui.project_folder.manifest_head_cache import PROJECT_FILE

if TYPE_CHECKING:
    from core.project.model import Environment, Project
    from core.project_reader.git_comparison import GitComparison
    from core.project_reader.parse_cache import ParseCache
    from core.project_reader.project_copy import ReadProject
    from state.parse_cache_file import ParseCacheFile


@dataclass(frozen=True, slots=True)
class DeclaredTable:
    """A declared table, as far as file names describe it."""

    table: str
    product: str
    layer: Layer
    external: bool
    ddl: str = field(default="", compare=False)
    """Path of the DDL file that declares the table."""


def parse(
    place: SelectedEnvironment, texts: Mapping[str, str], parse_cache: "ParseCache | None" = None
) -> "tuple[Project, tuple[Problem, ...]]":
    """Parse a project's files into a Project and its warnings. Raises InvalidProject with all Problems."""
    return _refuse_errors(place, parse_sound_tables(place, texts, parse_cache))


def parse_sound_tables(
    place: SelectedEnvironment, texts: Mapping[str, str], parse_cache: "ParseCache | None" = None
) -> "tuple[Project, tuple[Problem, ...]]":
    """Parse a project's files. Return a Project without the tables whose files have errors, and all Problems.

    Raises InvalidProject if headgate.yml has errors.
    """
    from core.project_reader.loader import read_sound_tables

    project, problems = read_sound_tables(texts, parse_cache, environment=place.environment)
    if project is None:
        raise _invalid(place, problems)
    _refuse_other_project(place, project)
    if (missing := _missing_folder(place, texts)) is not None:
        return replace(project, stray=(*project.stray, missing)), (*problems, missing)
    return project, problems


def _refuse_errors(place: SelectedEnvironment, found: "ReadProject") -> "ReadProject":
    project, problems = found
    if project.broken or project.stray:
        raise _invalid(place, problems)
    return found


def _invalid(place: SelectedEnvironment, problems: "tuple[Problem, ...]") -> InvalidProject:
    from core.text.wording import counted

    errors = sum(problem.severity.value == "error" for problem in problems)
    return InvalidProject(
        f"the project {place.folder} has {counted(errors, 'problem')}",
        remedy="correct what is listed; `headgate plan --all` checks again",
        problems=tuple(problem.as_json() for problem in problems),
    )


def _refuse_other_project(place: SelectedEnvironment, project: "Project") -> None:
    if project.id != place.project_id or place.environment not in project.environments:
        raise InvalidProject(
            f"{PROJECT_FILE} changed while it was read: it has another id, or no {place.environment} any more",
            remedy="run the command again",
        )


def _missing_certificates(place: SelectedEnvironment, declared: "ProjectDeclaration") -> "Iterator[Problem]":
    """Yield a warning for each file of trusted certificates that is not on this machine, where the agent runs."""
    pools = [pool for pool in declared.project.environments[place.environment].pools if pool.ca]
    missing = [pool for pool in pools if not os.path.isfile(pool.ca)]
    if not missing:
        return
    from core.model.problems import Problem, Severity
    from core.project_reader.pool_sections import place_in_pool

    for pool in missing:
        where = place_in_pool(declared.texts[PROJECT_FILE], place.environment, pool, "ca")
        remedy = f"correct the path, or put the certificates there: {pool.name} cannot be reached without them"
        yield Problem(f"the file {pool.ca} does not exist", remedy, where, "ca", severity=Severity.WARNING)


def _missing_folder(place: SelectedEnvironment, texts: Mapping[str, str]) -> "Problem | None":
    # An empty folder may be intended.
    folder, declaring = place.folder, FOLDER
    if PLACES in texts:
        from core.project_reader.layout import manifest_layout

        layout = manifest_layout(texts[PROJECT_FILE])
        declaring = layout.folder if layout is not None else FOLDER
    if os.path.isdir(os.path.join(folder, declaring)):
        return None
    from core.model.problems import Problem, Where

    return Problem(
        f"the folder {declaring} does not exist or is not a folder",
        f"restore it, or create it empty to declare no tables: mkdir {os.path.join(folder, declaring)}",
        Where(declaring),
        declaring,
    )


def declared_tables(folder: str) -> tuple[DeclaredTable, ...]:
    """List the declared tables, sorted, from file names alone: a few milliseconds, for completion and `ls`.

    The tables of a project of manifests are in these files, which are read for it.
    """
    if (texts := generated_texts_in(folder)) is not None:
        return _declared_by_manifests(folder, texts)
    found: dict[str, DeclaredTable] = {}
    for layer_folder, layer in LAYER_FOLDERS.items():
        for product in _entries(os.path.join(folder, FOLDER, layer_folder)):
            for unit in _entries(product.path):
                paths = {entry.name: entry.path for entry in _scripts(unit.path)}
                writes = any(name.startswith(("dml.", "job.")) for name in paths)
                for name, path in paths.items():
                    kind, _, rest = name.partition(".")
                    if kind == "ddl" and rest.endswith(".sql"):
                        table = rest[: -len(".sql")].lower()
                        found[table] = DeclaredTable(table, product.name, layer, not writes, path)
    return tuple(found[table] for table in sorted(found))


def _declared_by_manifests(folder: str, texts: Mapping[str, str]) -> tuple[DeclaredTable, ...]:
    from core.project_reader.paths import read_script_folders
    from core.project_reader.places import read_places

    parts = read_places(texts[PLACES]).parts
    found = [
        DeclaredTable(table, each.product, each.layer, table not in each.dml, os.path.join(folder, parts[ddl][0].path))
        for each in read_script_folders(texts, [])
        for table, ddl in each.ddl.items()
    ]
    return tuple(sorted(found, key=lambda entry: entry.table))


def find_sql_file(folder: str, table: str) -> str:
    """Find a table's DML file or, if it has none, its DDL file, even in a broken project.

    For a project of manifests, this is the manifest or the file of table definitions. Raises UsageError if no file
    declares the table.
    """
    texts = generated_texts_in(folder)
    found = next((entry for entry in declared_tables(folder) if entry.table == table), None)
    if found is None and texts is not None:
        raise UsageError(f"no file declares {table}", remedy="write a manifest; headgate help manifests has the form")
    if found is None:
        raise UsageError(f"no file declares {table}", remedy=f"headgate init table {table} writes them")
    if texts is not None:
        from core.project_reader.places import read_places

        places = read_places(texts[PLACES]).parts
        written = next((parts[0].path for path, parts in places.items() if path.endswith(f"/dml.{table}.sql")), "")
        return os.path.join(folder, written) if written else found.ddl
    scripts = (os.path.join(os.path.dirname(found.ddl), name) for name in (f"dml.{table}.sql", f"job.{table}.py"))
    return next(filter(os.path.exists, scripts), found.ddl)


def declared_columns(folder: str, table: str) -> tuple[str, ...]:
    """List a table's columns from its DDL alone. Empty if the table is not declared or its DDL is unreadable."""
    from core.sql.ddl_reader import read_ddl

    name = table.strip("`").lower()
    texts = generated_texts_in(folder) or {}
    for entry in declared_tables(folder):
        if entry.table == name:
            generated = next((text for path, text in texts.items() if path.endswith(f"/ddl.{name}.sql")), None)
            try:
                text = read_text(entry.ddl) if generated is None else generated
                ddl, _ = read_ddl(text, entry.ddl)
            except (OSError, UnicodeError):
                return ()
            return tuple(column.name for column in ddl.columns) if ddl is not None else ()
    return ()


@dataclass(frozen=True, slots=True)
class ProjectDeclaration:
    """A snapshot of a project as its files declare it, with their contents."""

    texts: Mapping[str, str]
    project: "Project"
    problems: "tuple[Problem, ...]"
    """All Problems. Tables with errors are not in the project."""


class ProjectReader:
    """Reads a project repeatedly: rereads only changed files and parses only new contents. Thread-safe."""

    def __init__(self, place: SelectedEnvironment, environ: Mapping[str, str]) -> None:
        self._place = place
        self._facts_path = parse_cache_path(environ, project=place.project, project_id=place.project_id)
        self._lock = threading.Lock()
        self._files: DeclaringFiles | None = None
        self._kept: ProjectDeclaration | None = None

    def texts(self) -> Mapping[str, str]:
        """Return the current contents of the project's files by path, unparsed."""
        return read_files(self._place.folder, self._files).texts

    def declared_environment(self) -> "Environment | None":
        """Return the environment as headgate.yml declares it now; None if the file cannot be read or has errors."""
        from core.project_reader.manifest import read_manifest

        problems = list[Problem]()
        try:
            text = Path(self._place.folder, PROJECT_FILE).read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError):
            return None
        found = read_manifest(text, problems).environment(self._place.environment)
        return None if any(each.severity is Severity.ERROR for each in problems) else found

    def read(self) -> ProjectDeclaration:
        """Return the project as its files declare it now. Raises InvalidProject with all Problems."""
        found = self.read_sound_tables()
        _refuse_errors(self._place, (found.project, found.problems))
        return found

    def read_sound_tables(self) -> ProjectDeclaration:
        """Return the project as its files declare it now, without the tables whose files have errors.

        Raises InvalidProject if headgate.yml has errors, and UsageError if it does not declare the environment.
        """
        refuse_undeclared(self._place)
        refuse_generated_project(self._place.folder, self._place.environment)
        with self._lock:
            files = read_files(self._place.folder, self._files)
            if self._kept is None or files is not self._files:
                self._files = files
                first, self._kept = self._kept is None, None
                self._kept = ProjectDeclaration(files.texts, *self._read(files.texts, first=first))
            found = self._kept
        # Not kept, because the file may appear without an edit of the project.
        missing = tuple(_missing_certificates(self._place, found))
        return replace(found, problems=(*found.problems, *missing)) if missing else found

    def since(self, reference: str) -> "GitComparison":
        """Compare the project's files with a git commit.

        Raises UsageError for an unknown reference, and InvalidProject if a file outside the folder of any table has
        errors and has changed, because it may declare a table.
        """
        from core.project_reader.git_comparison import compare_with_commit
        from tui.project_folder.git_objects import texts_differing_from

        declared = self.read_sound_tables()
        then = texts_differing_from(self._place.folder, reference, declared.texts)
        outside = [problem.where.path if problem.where else "" for problem in declared.project.stray]
        if any(path in then or path not in declared.texts for path in outside):
            raise _invalid(self._place, declared.problems)
        environment = self._place.environment
        found = compare_with_commit(
            reference, declared.project, declared.texts, then, self.parse_cache, environment=environment
        )
        self.save_parse_cache()
        return found

    def _read(self, texts: Mapping[str, str], *, first: bool) -> "ReadProject":
        """Parse a project. With `first`, reuse the result that another process stored for the same files.

        The result is stored for the next process only if all files had been parsed before, because files that were just
        edited are likely to change again.
        """
        if first:
            known = (
                self._cache.load_project(texts, self._place.environment)
                if _missing_folder(self._place, texts) is None
                else None
            )
            if known:
                _refuse_other_project(self._place, known[0])
                return known
            from tui.project_folder.parsing_performance import parse_in_two_processes

            parse_in_two_processes(texts, self.parse_cache, self._place.environment)
        try:
            found = parse_sound_tables(self._place, texts, self.parse_cache)
        finally:
            new = self._cache.save(self.parse_cache)
        if first and not (new or found[0].broken or found[0].stray):
            self._cache.save_project(texts, self._place.environment, found)
        return found

    @cached_property
    def parse_cache(self) -> "ParseCache":
        """The cache of parsed SQL, from the project's files and from deployed revisions."""
        return self._cache.load()

    def save_parse_cache(self) -> bool:
        """Save newly parsed SQL for the next process. Returns False if there was nothing to save."""
        return self._cache.save(self.parse_cache, whole=False)

    @cached_property
    def _cache(self) -> "ParseCacheFile":
        from state.parse_cache_file import ParseCacheFile

        return ParseCacheFile(self._facts_path)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(
                (e for e in entries if e.is_dir(follow_symlinks=False) and not e.name.startswith(".")),
                key=lambda e: e.name,
            )
    except OSError:
        return []


def _scripts(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(os.path.join(folder, "sql-scripts")) as entries:
            return [entry for entry in entries if entry.is_file()]
    except OSError:
        return []
