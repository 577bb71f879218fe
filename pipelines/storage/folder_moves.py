"""Whole folders moved, also to another file system, and deleted so that what is left still carries its proof."""

import errno
import os
import shutil
from contextlib import suppress
from pathlib import Path

from pipelines.storage.json_files import sync_folder


def move_folder(place: Path, target: Path) -> None:
    """Rename a folder, or copy and delete it where the target is on another file system."""
    try:
        os.rename(place, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        copy = target.with_name(f"{target.name}.copy")
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(place, copy, symlinks=True)
        os.rename(copy, target)
        sync_folder(target.parent)
        shutil.rmtree(place)
    sync_folder(place.parent)


def remove_folder(place: Path, *, last: str) -> None:
    """Delete a folder with all below it, the file `last` once nothing else is left; what cannot be deleted stays."""
    for entry in place.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        elif entry.name != last:
            with suppress(OSError):
                entry.unlink()
    if [entry.name for entry in place.iterdir()] == [last]:
        (place / last).unlink()
        place.rmdir()
