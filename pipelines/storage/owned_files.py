"""Lists and deletes what an environment has in its data folder in HDFS: `python -m pipelines.storage.owned_files`.

Command line and console, which do not read HDFS, run this for `headgate down --purge`. Only what is certain to belong
to the ledger is listed, and it is checked again before it is deleted.
"""

import argparse
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress

from core.model.errors import HeadgateError
from core.model.names import is_folder_of_version
from pipelines.storage.checkpoint_logs import OWNER_FILE
from pipelines.storage.data_folder_records import MARK_FILE, RECORDS_FOLDER
from pipelines.storage.file_sources import TABLE_NOTE_FILE
from pipelines.storage.file_store import FileStore, store_of
from pipelines.storage.file_system import reachable, read_json, remove_folder


def main() -> int:
    """List the paths of a ledger in a data folder or, with `--delete`, delete those that are given; print JSON."""
    parser = argparse.ArgumentParser(prog="headgate-owned-files")
    parser.add_argument("--data", required=True)
    parser.add_argument("--ledger", default="")
    parser.add_argument("--home", required=True)
    parser.add_argument("--delete", nargs="*")
    given = parser.parse_args()
    data = str(given.data)
    found: dict[str, object]
    try:
        with reachable(data):
            mark = _object(f"{data}/{MARK_FILE}")
            ledger = given.ledger or (str(mark.get("ledger", "")) if mark.get("home") == given.home else "")
            if given.delete is None:
                found = {
                    "places": list(_owned(data, ledger)),
                    "marked": _is_of(data, MARK_FILE, ledger),
                }
            else:
                found = {"deleted": _deleted(data, ledger, given.delete)}
    except HeadgateError as error:
        found = {"error": error.as_json()}
    print(json.dumps(found))
    return 0


def _owned(data: str, ledger: str) -> Iterator[str]:
    """Yield the folders of versions and the records that a ledger has in a data folder."""
    files = store_of(data)
    tops = [folder for kind in ("tables", "checkpoints") for folder in _paths_in(files, f"{data}/{kind}")]
    for version in _paths_in(files, f"{data}/trash"):
        for kind in _paths_in(files, version):
            for folder in _paths_in(files, kind):
                tops += [folder, *_paths_in(files, folder)]
    yield from (folder for folder in tops if _is_version(folder, ledger))
    yield from (path for path in _paths_in(files, f"{data}/{RECORDS_FOLDER}") if _object(path).get("ledger") == ledger)


def _deleted(data: str, ledger: str, places: Sequence[str]) -> list[str]:
    """Delete those of the places that still belong to a ledger, and the folders above that are then empty."""
    files = store_of(data)
    for place in places:
        if _is_version(place, ledger):
            remove_folder(place, last=OWNER_FILE)
        elif place.startswith(f"{data}/") and ledger and _object(place).get("ledger") == ledger:
            files.unlink(place)
        above = os.path.dirname(place)
        with suppress(OSError):
            while above.startswith(data):
                files.rmdir(above)
                above = os.path.dirname(above)
    return [place for place in places if not files.exists(place)]


def _is_version(folder: str, ledger: str) -> bool:
    """True if a folder is a version that the ledger owns, judging by its owner file, its note and its name."""
    if not _is_of(folder, OWNER_FILE, ledger):
        return False
    note = _object(f"{folder}/{TABLE_NOTE_FILE}")
    return is_folder_of_version(os.path.basename(folder), note.get("table"), note.get("version"))


def _is_of(folder: str, file: str, ledger: str) -> bool:
    return bool(ledger) and _object(f"{folder}/{file}").get("ledger") == ledger


def _object(path: str) -> dict[str, object]:
    try:
        return read_json(path)
    except (ValueError, IsADirectoryError):
        return {}


def _paths_in(files: FileStore, folder: str) -> list[str]:
    try:
        return sorted(entry.path for entry in files.entries(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


if __name__ == "__main__":
    raise SystemExit(main())
