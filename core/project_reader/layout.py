"""Which files declare a project: the folder `pipelines`, or with `layout: manifests` those that headgate.yml names.

This module reads only what names files, so that a caller can find them before it reads them.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from posixpath import normpath
from typing import Protocol

from core.model.problems import Problem, Where
from core.project.manifest_head import MANIFEST_PATH
from core.project_reader.paths import FUNCTIONS_FOLDER, INTEGRATION_FOLDER, JAR
from core.project_reader.yaml_reader import YamlSection, read_yaml
from core.text.wording import did_you_mean

FOLDERS, MANIFESTS = "folders", "manifests"
DEFAULT_FOLDER, DEFAULT_TEMPLATE = "manifests", "job-template.yaml"
YAML_ENDINGS = (".yml", ".yaml")
FUNCTION_ENDINGS = (*YAML_ENDINGS, ".sql", ".py", JAR)
TESTS = "tests"
"""Folders of this name, below that of the manifests, contain test cases."""
_CASES = (f"/{TESTS}/", f"/{INTEGRATION_FOLDER}/")

_SELECTED = re.compile(r"^\s*['\"]?layout['\"]?\s*:", re.MULTILINE)
_TEMPLATE = re.compile(r"^['\"]?template['\"]?\s*:", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ManifestLayout:
    """The files of a project of manifests, as headgate.yml names them; paths are relative to the project folder."""

    folder: str = DEFAULT_FOLDER
    """Folder of the manifests, at any depth."""
    template: str = DEFAULT_TEMPLATE
    tables: tuple[str, ...] = ()
    """SQL files that declare tables, each of them any number."""

    def is_manifest(self, path: str) -> bool:
        """True if a file is a manifest or a template, judged by its path."""
        below = path.startswith(f"{self.folder}/") and path.endswith(YAML_ENDINGS)
        return below and not any(cases in path.removeprefix(self.folder) for cases in _CASES)

    def is_function(self, path: str) -> bool:
        """True if a file declares a function, judged by its path."""
        declares = path.endswith(FUNCTION_ENDINGS) and f"/{TESTS}/" not in path
        return (
            path.startswith(f"{FUNCTIONS_FOLDER}/") and declares and not f"{self.folder}/".startswith(FUNCTIONS_FOLDER)
        )

    def is_settings(self, path: str) -> bool:
        """True if a file lies beside one with table definitions, and may hold the settings of an external table."""
        if not path.endswith(".yml") or path.startswith(f"{self.folder}/") or path == self.template:
            return False
        return path != MANIFEST_PATH and path.rpartition("/")[0] in self.definition_folders

    @property
    def definition_folders(self) -> frozenset[str]:
        """The folders of the files with table definitions; empty for the project folder itself."""
        return frozenset(path.rpartition("/")[0] for path in self.tables)


def read_layout(top: YamlSection) -> ManifestLayout | None:
    """Read `layout` and `manifests` in headgate.yml; None for the layout of folders, and if the keys are invalid."""
    layout = top.text("layout", FOLDERS)
    if layout not in (FOLDERS, MANIFESTS):
        remedy = did_you_mean(layout.lower(), (FOLDERS, MANIFESTS)) or f"write layout: {MANIFESTS}, or leave it out"
        top.wrong("layout", f"{FOLDERS} or {MANIFESTS}", remedy)
        return None
    section = top.section("manifests")
    if layout == FOLDERS:
        if "manifests" in top.nodes:
            top.wrong("manifests", f"left out without layout: {MANIFESTS}", f"write layout: {MANIFESTS} as well")
        return None
    example = "write manifests: {tables: [tables.sql]}, with the SQL files that declare the tables"
    if section is None:
        if not _reported(top):
            top.wrong("manifests", "a mapping that names the files of the project", example)
        return None
    section.only(("folder", "template", "tables"))
    before = len(section.problems)
    folder = _path(section, "folder", DEFAULT_FOLDER)
    template = _path(section, "template", DEFAULT_TEMPLATE)
    tables = tuple(dict.fromkeys(_paths(section, "tables")))
    if not tables and len(section.problems) == before:
        section.wrong("tables", "a list of SQL files", example)
    return ManifestLayout(folder, template, tables) if len(section.problems) == before else None


def missing_files(files: Mapping[str, str]) -> Iterator[Problem]:
    """Yield a Problem for each file that a valid headgate.yml names and that does not exist, at its line."""
    top = read_yaml(files[MANIFEST_PATH], MANIFEST_PATH, [])
    section = top.section("manifests") if top is not None else None
    for key in ("tables", "template") if section is not None else ():
        for path, line in section.entries(key) if section is not None else ():
            if normpath(path) not in files:
                where = Where(MANIFEST_PATH, line)
                yield Problem(f"{path} does not exist", "create it, or correct its name here", where, path)


def manifest_layout(text: str) -> ManifestLayout | None:
    """Return the layout that a headgate.yml selects; None for the layout of folders, and if the file is invalid."""
    if not _SELECTED.search(text):
        return None
    top = read_yaml(text, "", [])
    return read_layout(top) if top is not None else None


class ProjectFiles(Protocol):
    """The files of a project, in a folder or at a commit; paths are relative to the project folder."""

    def below(self, folder: str) -> Iterable[str]:
        """List the files below a folder at any depth, without those in hidden folders."""

    def within(self, folder: str) -> Iterable[str]:
        """List the files in a folder, which is empty for the project folder itself."""

    def read(self, path: str) -> str | None:
        """Return the content of a file; None if it does not exist."""

    def describe(self, jar: str, classes: tuple[str, ...]) -> str:
        """Return the text that stands for a jar, as `jar_files.describe_jar` makes it."""


def collect_files(headgate_yml: str, layout: ManifestLayout, source: ProjectFiles) -> dict[str, str]:
    """Return the contents of all files that declare a project of manifests, by path, sorted."""
    found = {MANIFEST_PATH: headgate_yml}
    waiting = {*layout.tables, *(path for path in source.below(layout.folder) if layout.is_manifest(path))}
    functions = [path for path in source.below(FUNCTIONS_FOLDER) if layout.is_function(path)]
    jars = [path for path in functions if path.endswith(JAR)]
    waiting.update(path for path in functions if not path.endswith(JAR))
    for folder in layout.definition_folders:
        waiting.update(path for path in source.within(folder) if layout.is_settings(path))
    while waiting := waiting - found.keys():
        read = {path: source.read(path) for path in sorted(waiting)}
        found.update((path, text) for path, text in read.items() if text is not None)
        # A template that does not exist is looked for once more at each level of templates.
        waiting = {path for path in template_references(found, layout) if path not in read}
    if jars:
        from core.project_reader.jar_files import classes_in

        found.update((path, source.describe(path, classes_in(found, path))) for path in jars)
    return dict(sorted(found.items()))


def template_references(files: Mapping[str, str], layout: ManifestLayout) -> frozenset[str]:
    """Return the paths of all templates that headgate.yml, manifests or templates name, whether or not they exist.

    A path that leads out of the project folder is left out.
    """
    found = {layout.template}
    for path, text in files.items():
        if path.endswith(YAML_ENDINGS) and path != MANIFEST_PATH and _TEMPLATE.search(text):
            section = read_yaml(text, path, [])
            named = section.text("template", "") if section is not None else ""
            if named and normpath(named) == named and not named.startswith(("/", "../")):
                found.add(named)
    return frozenset(found)


def _reported(top: YamlSection) -> bool:
    return any(problem.subject == "manifests" for problem in top.problems)


def _path(section: YamlSection, key: str, default: str) -> str:
    return next(iter(_checked(section, key, (section.text(key, default),))), default)


def _paths(section: YamlSection, key: str) -> Iterator[str]:
    return _checked(section, key, section.texts(key, ()))


def _checked(section: YamlSection, key: str, paths: Iterable[str]) -> Iterator[str]:
    for path in paths:
        plain = normpath(path)
        if path.startswith("/") or plain.split("/")[0] in ("..", "."):
            section.wrong(key, "a path below the project folder", f"write a path such as {key}: {DEFAULT_FOLDER}")
        elif plain.split("/")[0] == "pipelines":
            remedy = f"use another folder, such as {DEFAULT_FOLDER}"
            section.wrong(key, f"outside of pipelines, which belongs to layout: {FOLDERS}", remedy)
        else:
            yield plain
