"""Reads the files that declare a project in its folder, for processes that have no command line around them."""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from core.model.errors import InvalidProject
from core.project.manifest_head import MANIFEST_PATH
from core.project_reader.layout import collect_files, manifest_layout
from core.project_reader.manifest_layout import generated_texts

_LARGEST = 1024 * 1024


def texts_without_sql(folder: str) -> Mapping[str, str]:
    """Return the texts of a project by path, in which SQL files have no content. Raises InvalidProject if one fails."""
    headgate_yml = _text(os.path.join(folder, MANIFEST_PATH))
    generated = texts_of_manifests(folder, headgate_yml)
    return generated or {MANIFEST_PATH: headgate_yml, **dict(_below_pipelines(folder))}


def texts_of_manifests(folder: str, headgate_yml: str) -> Mapping[str, str]:
    """Return the texts that a project of manifests stands for; empty for a project of the usual layout.

    Raises InvalidProject if a file cannot be read.
    """
    layout = manifest_layout(headgate_yml)
    if layout is None:
        return {}
    return generated_texts(collect_files(headgate_yml, layout, _Folder(folder)))


def _below_pipelines(folder: str) -> Iterator[tuple[str, str]]:
    for place, folders, names in os.walk(os.path.join(folder, "pipelines")):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            path = os.path.join(place, name)
            if name.endswith((".sql", ".yml", ".yaml")) and os.path.isfile(path):
                yield os.path.relpath(path, folder), "" if name.endswith(".sql") else _text(path)


class _Folder:
    """The files of a project of manifests."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def below(self, folder: str) -> Iterable[str]:
        for place, folders, names in os.walk(os.path.join(self._folder, folder)):
            folders[:] = [name for name in folders if not name.startswith(".")]
            yield from (os.path.relpath(os.path.join(place, name), self._folder) for name in names)

    def within(self, folder: str) -> Iterable[str]:
        with suppress(OSError):
            for name in sorted(os.listdir(os.path.join(self._folder, folder))):
                yield os.path.join(folder, name)

    def read(self, path: str) -> str | None:
        place = os.path.join(self._folder, path)
        return _text(place) if os.path.isfile(place) else None

    def describe(self, jar: str, classes: tuple[str, ...]) -> str:
        # These processes need no functions, and a declaration without a description of its jar is not checked.
        return ""


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8-sig") as file:
            return file.read(_LARGEST)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidProject(f"{path} cannot be read: {error}", remedy="make it a readable UTF-8 text file") from error
