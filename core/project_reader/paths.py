"""Assignment of a project's files to tables by path; a misplaced or misspelled file becomes a Problem."""

import posixpath
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from core.model.errors import BadName
from core.model.names import TableName, parse_table_name
from core.model.problems import Problem, Severity, Where
from core.project.model import LAYER_FOLDERS, Layer
from core.project.unreadable_file import UnreadableFile
from core.sql.registered_functions import named_jar
from core.text.wording import did_you_mean

TESTS_FOLDER = "tests"
"""Folder for test cases, next to a table's `sql-scripts`; files in it declare nothing."""

INTEGRATION_FOLDER = "integration"
"""Folder for integration tests, in the folder of a product, beside those of its tables; files in it declare nothing."""

FUNCTIONS_FOLDER = "functions"
"""Folder for functions, in the project folder or in any folder below `pipelines`; its tables can call them."""

JAR = ".jar"
LARGEST_JAR = 16 * 1024 * 1024
"""Maximum size of a jar of functions in bytes. It is sent to the server once for each session that needs it."""

_SCRIPT = re.compile(r"(?:(?P<kind>ddl|dml)\.(?P<name>[^/]+)\.sql|job\.(?P<job>[^/]+)\.py)\Z")


def unreadable_files(texts: Mapping[str, str]) -> dict[str, Problem]:
    """Return a Problem for each file that could not be read, by path."""
    return {
        path: Problem(f"{path.rpartition('/')[2]} cannot be read: {text.reason}", text.remedy, Where(path))
        for path, text in texts.items()
        if isinstance(text, UnreadableFile)
    }


@dataclass(slots=True)
class ScriptFolder:
    """The folder `pipelines/<layer>/[<product>/]<unit>` of one or more tables, with the files in it."""

    path: str
    layer: Layer
    product: str
    unit: TableName
    ddl: dict[TableName, str] = field(default_factory=dict)
    """Path of the DDL file of each table."""
    dml: dict[TableName, str] = field(default_factory=dict)
    yml: dict[TableName, str] = field(default_factory=dict)


def read_script_folders(paths: Iterable[str], problems: list[Problem]) -> tuple[ScriptFolder, ...]:
    """Group a project's scripts and yml files by script folder; return the folders sorted by path."""
    folders: dict[str, ScriptFolder] = {}
    settings: list[str] = []
    for path in sorted(paths):
        parts = tuple(path.split("/"))
        if len(parts) < 2 or parts[0] != "pipelines":
            continue
        if FUNCTIONS_FOLDER in parts and function_scope(path) is not None:
            continue
        ending = path.rpartition(".")[2]
        if parts[-2] == "sql-scripts" and ending.lower() in ("sql", "py"):
            _take_script(path, parts, folders, problems)
        elif ending.lower() in ("yml", "yaml"):
            settings.append(path)
        else:
            problems.append(_ignored(path, "move it to pipelines/<layer>/<product>/<table>/sql-scripts/"))
    for path in settings:
        _take_settings(path, folders, problems)
    return tuple(folders[path] for path in sorted(folders))


def table_folder(path: str) -> str:
    """Return the script folder to which a script or yml file belongs, derived from the file's path alone."""
    folder = path.rpartition("/")[0]
    return folder.removesuffix("/sql-scripts")


def function_scope(path: str) -> str | None:
    """Return the folder whose tables can call a function, derived from the path of its file; None for other files.

    The folder is empty for functions of the whole project. A path below a `functions` folder counts as well.
    """
    before, found, after = f"/{path}".partition(f"/{FUNCTIONS_FOLDER}/")
    scope = before[1:]
    if not found or (scope and scope.partition("/")[0] != "pipelines") or "/sql-scripts/" in f"/{after}":
        return None
    return scope


def is_jar(path: str) -> bool:
    """True if a file is a jar in a `functions` folder, judged by its path."""
    return path.endswith(JAR) and FUNCTIONS_FOLDER in path and function_scope(path) is not None


def jar_path(path: str, text: str) -> str:
    """Return the path of the jar that a declaration at a path names; empty if it names none."""
    file = named_jar(text)
    return posixpath.join(posixpath.dirname(path), file) if file else ""


def _take_script(path: str, parts: tuple[str, ...], folders: dict[str, ScriptFolder], problems: list[Problem]) -> None:
    found = _SCRIPT.match(parts[-1])
    if found is None and (wanted := _SCRIPT.match(parts[-1].lower())):
        right = f"{wanted['kind']}.{parts[-1][4:-4]}.sql" if wanted["kind"] else f"job.{parts[-1][4:-3]}.py"
        problems.append(Problem(f"{parts[-1]} is ignored", f"rename it to {right}", Where(path)))
        return
    if found is None:
        problems.append(
            Problem(
                f"{parts[-1]} is neither a ddl nor a dml script, nor a job",
                "name it ddl.<table>.sql, dml.<table>.sql or job.<table>.py",
                Where(path),
                severity=Severity.WARNING,
            )
        )
        return
    folder = _folder(parts, path, folders, problems)
    name = _name(found["name"] or found["job"], path, problems)
    if folder is None or name is None:
        return
    if found["kind"] != "ddl" and name in folder.dml:
        remedy = f"keep one: the other is {folder.dml[name]}"
        problems.append(Problem(f"{name} has a job in Python and a dml script", remedy, Where(path), name))
        return
    (folder.ddl if found["kind"] == "ddl" else folder.dml)[name] = path


def _folder(
    parts: tuple[str, ...], path: str, folders: dict[str, ScriptFolder], problems: list[Problem]
) -> ScriptFolder | None:
    place = "/".join(parts[:-2])
    if place in folders:
        return folders[place]
    if len(parts) not in (5, 6):
        problems.append(
            Problem(
                "this file is in the wrong folder",
                "move it to pipelines/<layer>/<product>/<table>/sql-scripts/",
                Where(path),
            )
        )
        return None
    layer = LAYER_FOLDERS.get(parts[1])
    if layer is None:
        problems.append(
            Problem(
                f"{parts[1]} is not a layer",
                did_you_mean(parts[1], LAYER_FOLDERS) or f"layers: {', '.join(LAYER_FOLDERS)}",
                Where(path),
                parts[1],
            )
        )
        return None
    unit = _name(parts[-3], path, problems)
    if unit is None:
        return None
    folders[place] = ScriptFolder(place, layer, parts[2] if len(parts) == 6 else "", unit)
    return folders[place]


def _take_settings(path: str, folders: dict[str, ScriptFolder], problems: list[Problem]) -> None:
    """Assign `<folder>/<table>.yml` to the table of that name in the folder; files of test cases are ignored."""
    place, _, file = path.rpartition("/")
    folder = folders.get(place)
    if folder is None:
        if place.removesuffix(f"/{TESTS_FOLDER}") in folders or place.endswith(f"/{INTEGRATION_FOLDER}"):
            return
        problems.append(
            _ignored(path, "put it beside the folder sql-scripts of its table, or move it out of pipelines")
        )
        return
    stem, _, ending = file.rpartition(".")
    known = {*folder.ddl, *folder.dml, folder.unit}
    if ending != "yml":
        problems.append(Problem(f"{file} is ignored", f"rename it to {stem}.yml", Where(path)))
    elif stem.lower() not in known:
        problems.append(
            Problem(
                f"{file} matches no table in its folder",
                did_you_mean(stem, known) or f"name it {folder.unit}.yml",
                Where(path),
                stem,
            )
        )
    else:
        folder.yml[TableName(stem.lower())] = path


def _ignored(path: str, remedy: str) -> Problem:
    summary = f"{path.rpartition('/')[2]} declares nothing where it lies, and is ignored"
    return Problem(summary, remedy, Where(path), severity=Severity.WARNING)


def _name(text: str, path: str, problems: list[Problem]) -> TableName | None:
    try:
        return parse_table_name(text)
    except BadName as error:
        problems.append(Problem(error.summary, error.remedy, Where(path), text))
        return None
