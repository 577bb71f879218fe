"""Reads the files that declare a project (headgate.yml, SQL, settings) as strings. Data folders are never read."""

import hashlib
import os
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from core.model.errors import Refused, UsageError
from core.project.unreadable_file import UnreadableFile
from core.project_reader.paths import FUNCTIONS_FOLDER, INTEGRATION_FOLDER, JAR, LARGEST_JAR, TESTS_FOLDER, is_jar
from tui.project_folder.manifest_head_cache import PROJECT_FILE

if TYPE_CHECKING:
    from core.project_reader.layout import ManifestLayout

FOLDER = "pipelines"
"""The folder within a project that contains every declaring file except headgate.yml and the project's functions."""

READ = (".sql", ".yml", ".yaml")
"""Suffixes of declaring files. Their case is ignored, so that a file in upper case is reported instead of skipped."""

FUNCTION_FILES = (*READ, ".py", JAR)
"""Suffixes of declaring files in `functions` folders."""

SCRIPTS = "sql-scripts"
"""Name of the folders with the tables' SQL. Files in a `tests` folder at the same level declare nothing."""

_TESTS = (".yml", ".yaml", ".csv")

_LARGEST = 4 * 1024 * 1024

FileStamp = tuple[int, int, int, int, int]
"""Device, inode, size, mtime and ctime of a file, which change when the file is written."""
_NO_STAMP: FileStamp = (0, 0, 0, 0, 0)
"""The stamp of a file that cannot be read, so that every call tries to read the file again."""


@dataclass(frozen=True, slots=True)
class DeclaringFiles:
    """A snapshot of a project's declaring files: contents and stamps by path, sorted, with forward slashes."""

    texts: Mapping[str, str] = field(default_factory=dict)
    """The contents or, for `layout: manifests`, the texts that were generated from them."""
    stamps: Mapping[str, FileStamp] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    """The contents themselves."""


def read_files(folder: str, before: DeclaringFiles | None = None) -> DeclaringFiles:
    """Read all declaring files of a project.

    The content of a file or folder that cannot be read is replaced by text that the project's readers report as an
    error. Files whose stamp is unchanged are taken from `before`, which is returned itself if no file has changed.
    Raises UsageError if there is no headgate.yml.
    """
    known = before or DeclaringFiles()
    reading = _Reading(folder, known)
    headgate_yml = reading.read(PROJECT_FILE)
    layout = _manifest_layout(headgate_yml) if headgate_yml is not None else None
    if layout is not None and headgate_yml is not None:
        from core.project_reader.layout import collect_files

        files = collect_files(headgate_yml, layout, reading)
    else:
        files = reading.all(headgate_yml)
    if PROJECT_FILE not in files:
        raise UsageError(f"{folder} has no {PROJECT_FILE}", remedy="if the folder was moved, name it with --project")
    if before is not None and reading.stamps == before.stamps and files.keys() == before.files.keys():
        return before
    if layout is None:
        return DeclaringFiles(files, reading.stamps, files)
    from core.project_reader.manifest_layout import generated_texts

    return DeclaringFiles(generated_texts(files), reading.stamps, files)


def generated_texts_in(folder: str) -> Mapping[str, str] | None:
    """Return the texts generated from a project of manifests; None for other projects, whose files are not read."""
    try:
        headgate_yml = read_text(os.path.join(folder, PROJECT_FILE))
    except (OSError, UnicodeDecodeError):
        return None
    return read_files(folder).texts if _manifest_layout(headgate_yml) is not None else None


def _manifest_layout(headgate_yml: str) -> "ManifestLayout | None":
    # Loading the YAML reader would slow down every command for other projects.
    if "layout" not in headgate_yml:
        return None
    from core.project_reader.layout import manifest_layout

    return manifest_layout(headgate_yml)


@dataclass(slots=True)
class _Reading:
    """Reads files of a project once each, and takes those from `known` whose stamps are unchanged."""

    folder: str
    known: DeclaringFiles
    stamps: dict[str, FileStamp] = field(default_factory=dict)

    def all(self, headgate_yml: str | None) -> dict[str, str]:
        """Return the contents of headgate.yml, which was read before, and of the declaring files below `pipelines`."""
        paths, texts = list_files(self.folder)
        self.stamps |= dict.fromkeys(texts, _NO_STAMP)
        jars = []
        for path in paths:
            if is_jar(path):
                jars.append(path)
                continue
            text = headgate_yml if path == PROJECT_FILE else self.read(path)
            if text is not None:
                texts[path] = text
        if jars:
            from core.project_reader.jar_files import classes_in

            texts.update((path, self.describe(path, classes_in(texts, path))) for path in jars)
        return texts

    def read(self, path: str) -> str | None:
        place = os.path.join(self.folder, "") + path
        try:
            if path in self.known.stamps and _stamp(os.stat(place)) == self.known.stamps[path]:
                self.stamps[path] = self.known.stamps[path]
                return self.known.files[path]
            text, self.stamps[path] = _read(place)
            return text
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            self.stamps[path] = _NO_STAMP
            return content_unless_read(error)

    def describe(self, jar: str, classes: tuple[str, ...]) -> str:
        """Return the text that stands for a jar. A jar that has not changed is not read again for the same classes."""
        from core.project_reader.jar_files import describe_jar, jar_of

        place = os.path.join(self.folder, jar)
        try:
            if _stamp(os.stat(place)) == self.known.stamps.get(jar):
                before = jar_of(self.known.files[jar])
                if before is not None and before.asked == classes:
                    self.stamps[jar] = self.known.stamps[jar]
                    return self.known.files[jar]
            content, self.stamps[jar] = read_jar(place)
            return describe_jar(content, os.path.basename(jar), classes)
        except OSError as error:
            self.stamps[jar] = _NO_STAMP
            return content_unless_read(error, LARGEST_JAR)

    def below(self, folder: str) -> list[str]:
        found: list[str] = []
        for place, folders, names in os.walk(os.path.join(self.folder, folder), onerror=_refuse_unreadable):
            folders[:] = [name for name in folders if not name.startswith(".")]
            found += (os.path.relpath(os.path.join(place, name), self.folder) for name in names)
        return found

    def within(self, folder: str) -> list[str]:
        with suppress(OSError), os.scandir(os.path.join(self.folder, folder)) as entries:
            return [os.path.join(folder, entry.name) for entry in entries if entry.is_file()]
        return []


_READABLE = "make it a readable UTF-8 text file"


class _TooLarge(OSError):
    """Raised for a file that is larger than files of its kind may be."""


def content_unless_read(error: OSError | UnicodeDecodeError, largest: int = _LARGEST) -> UnreadableFile:
    """Return the placeholder that `read_files` uses as the content of a file that cannot be read because of `error`.

    A file may have at most `largest` bytes.
    """
    if isinstance(error, OSError):
        reason = error.strerror or str(error)
    else:
        reason = f"it is not UTF-8, because of byte {error.start + 1}"
    readable = _READABLE if largest == _LARGEST else "make it readable"
    remedy = f"make it smaller than {largest >> 20} MB" if isinstance(error, _TooLarge) else readable
    return UnreadableFile(reason, remedy)


def list_files(folder: str) -> tuple[list[str], dict[str, str]]:
    """List headgate.yml and the declaring files below `pipelines` and `functions`, sorted.

    The second value maps the paths of unreadable folders, and of links to folders or to nothing, to placeholder
    contents; such links are not followed. Raises UsageError if `folder` does not exist.
    """
    if not os.path.isdir(folder):
        raise UsageError(
            f"the project folder {folder} does not exist or cannot be read", remedy="name it with --project DIR"
        )
    found = [PROJECT_FILE] if os.path.exists(os.path.join(folder, PROJECT_FILE)) else []
    waiting = [below for below in (FOLDER, FUNCTIONS_FOLDER) if os.path.isdir(os.path.join(folder, below))]
    unread: dict[str, str] = {}
    inside = os.path.join(folder, "")
    while waiting:
        below = waiting.pop()
        folders = []
        of_functions = below.rpartition("/")[2] == FUNCTIONS_FOLDER
        suffixes = FUNCTION_FILES if of_functions else READ
        try:
            with os.scandir(inside + below) as entries:
                for entry in entries:
                    name = entry.name
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(name)
                    elif name.lower().endswith(suffixes) or is_job_file(below, name):
                        found.append(f"{below}/{name}")
                    elif entry.is_symlink() and not entry.is_file() and not name.startswith("."):
                        unread[f"{below}/{name}"] = _UNFOLLOWED
        except OSError as error:
            unread[below] = UnreadableFile(error.strerror or str(error), "make it readable")
        tested = of_functions or SCRIPTS in folders
        waiting += [
            f"{below}/{name}"
            for name in folders
            if not (name.startswith(".") or (tested and name == TESTS_FOLDER) or _has_cases(inside + below, name))
        ]
    return sorted(found), dict(sorted(unread.items()))


def _has_cases(place: str, name: str) -> bool:
    """True if a folder contains integration tests; one of this name with scripts is that of a table."""
    return name == INTEGRATION_FOLDER and not os.path.isdir(os.path.join(place, name, SCRIPTS))


def is_job_file(folder: str, name: str) -> bool:
    """True if a file of this name in a folder is a job in Python; case is ignored, as for `READ`."""
    name = name.lower()
    return name.endswith(".py") and name.startswith("job.") and folder.rpartition("/")[2] == SCRIPTS


def _refuse_unreadable(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        # Without this, the tables in the folder would seem to be declared no longer.
        raise UsageError(f"{error.filename} cannot be read: {error.strerror}", remedy="make it readable") from error


_UNFOLLOWED = UnreadableFile(
    "it is a link to a folder, or to nothing, and links to folders are not followed",
    "put the folder itself there, or move the link out of pipelines",
)


def read_test_files(folder: str, units: Iterable[str]) -> dict[str, str]:
    """Return the files in the `tests` folders of table folders, by path. Raises UsageError if a file is unreadable.

    These files declare nothing: no plan contains them or depends on them.
    """
    return _read_beside(folder, {f"{unit}/{TESTS_FOLDER}" for unit in units})


def read_integration_files(folder: str, below: str) -> dict[str, str]:
    """Return the files in all folders of integration tests below a folder of the project, by path.

    Raises UsageError if a file is unreadable.
    """
    found = set()
    for place, folders, _ in os.walk(os.path.join(folder, below)):
        if any(_has_cases(place, name) for name in folders):
            found.add(os.path.relpath(os.path.join(place, INTEGRATION_FOLDER), folder))
        folders[:] = [name for name in folders if not name.startswith(".") and name not in (SCRIPTS, TESTS_FOLDER)]
    return _read_beside(folder, found)


def _read_beside(folder: str, places: Iterable[str]) -> dict[str, str]:
    found = {}
    for below in sorted(places):
        try:
            with os.scandir(os.path.join(folder, below)) as entries:
                names = sorted(e.name for e in entries if e.name.lower().endswith(_TESTS) and e.name[0] != ".")
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise UsageError(f"{below} cannot be read: {error.strerror}", remedy="make it readable") from error
        for name in names:
            try:
                found[f"{below}/{name}"] = read_text(os.path.join(folder, below, name))
            except (OSError, UnicodeDecodeError) as error:
                what = f"{below}/{name} cannot be read: {error}"
                raise UsageError(what, remedy=content_unless_read(error).remedy) from error
    return found


def read_text(place: str) -> str:
    """Return a file's content as `read_files` reads it. Raises OSError or UnicodeDecodeError."""
    return _read(place)[0]


def read_jar(place: str) -> tuple[bytes, FileStamp]:
    """Return the content and the stamp of a jar. Raises OSError, also for one of more than LARGEST_JAR bytes."""
    return _content(place, LARGEST_JAR)


def copy_jar(place: Path, described: str, target: Path) -> None:
    """Copy a jar. Raises OSError, and Refused if its content is not the one that a text of the project describes."""
    from core.project_reader.jar_files import jar_of

    content, jar = read_jar(str(place))[0], jar_of(described)
    if jar is None or jar.sha256 != hashlib.sha256(content).hexdigest():
        raise Refused(f"{place} is not the jar that the texts of the project name", remedy="restore it, and try again")
    target.write_bytes(content)


def _read(place: str) -> tuple[str, FileStamp]:
    content, stamp = _content(place, _LARGEST)
    text = content.decode("utf-8")
    if "\0" in text:
        raise OSError("it contains a NUL character")
    return text.removeprefix("\ufeff"), stamp


def _content(place: str, largest: int) -> tuple[bytes, FileStamp]:
    # Without O_NONBLOCK, opening a named pipe with the name of a script would block.
    file = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            raise OSError("not a file")
        if found.st_size > largest:
            raise _TooLarge(f"larger than {largest >> 20} MB")
        parts = []
        left = found.st_size
        while left > 0 and (part := os.read(file, left)):
            parts.append(part)
            left -= len(part)
    finally:
        os.close(file)
    return b"".join(parts), _stamp(found)


def _stamp(found: os.stat_result) -> FileStamp:
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
