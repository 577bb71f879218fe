"""The folder of an environment's tables and checkpoints: a local path, or a URI in HDFS.

Headgate relies on atomic renames of folders, on their identity, and on durable replacements of files, so data in a
store without them is refused.
"""

import posixpath
import re
from collections.abc import Callable

from core.model.file_stores import LOCAL_FILES, OTHER, StoreAbility, store_kind
from core.text.secret_masking import mask_secrets
from core.text.sentence import Fact, FactKind

NEEDED = (StoreAbility.READ, StoreAbility.RENAME, StoreAbility.IDENTIFY, StoreAbility.REPLACE)
"""What the store of a data folder must be able to do: versions are put aside and brought back by renames."""

_HDFS = "hdfs://"
_FOLDER = re.compile(r"hdfs://[\w.-]+(:\d{1,5})?/(?!/)[^?#]*[^?#/]/?\Z")


class WrongDataFolder(FactKind):
    """A reason why a URI cannot be the data folder of an environment."""

    NO_FOLDER = (
        "{data} names no folder of an HDFS",
        "write data: hdfs://HOST:PORT/FOLDER, with the host and port of the name node or with a name service",
    )
    CREDENTIALS = "{data} has a user or a password in it", "remove it: HADOOP_USER_NAME names the user of HDFS"
    PATH = "{data} is the URI of a local folder", "write its path as data:"
    UNABLE = (
        "{data} is in {store}, which cannot {lacking:and}",
        "write a local folder or hdfs://HOST:PORT/FOLDER as data:; statements can read external tables in {store}",
    )
    UNKNOWN = (
        "{data} is in a store that Headgate does not know",
        "write a local folder or hdfs://HOST:PORT/FOLDER as data:",
    )


def is_in_hdfs(place: str) -> bool:
    """True if a folder, as declared or absolute, is in HDFS."""
    return place.startswith(_HDFS)


def data_folder_fault(declared: str) -> Fact[WrongDataFolder] | None:
    """Return why a data folder cannot be used as it is declared; None if it can, or if it is a local path."""
    shown = mask_secrets(declared)
    if is_in_hdfs(declared):
        if "@" in declared.split("/")[2]:
            return WrongDataFolder.CREDENTIALS.of(data=shown)
        wrong = not _FOLDER.match(declared) or "/../" in f"{declared}/" or "/./" in f"{declared}/"
        return WrongDataFolder.NO_FOLDER.of(data=shown) if wrong or "//" in declared[len(_HDFS) :] else None
    if "://" not in declared:
        return None
    kind = store_kind(declared)
    if kind is LOCAL_FILES:
        return WrongDataFolder.PATH.of(data=shown)
    if kind is OTHER:
        return WrongDataFolder.UNKNOWN.of(data=shown)
    lacking = tuple(each for each in NEEDED if each not in kind.abilities)
    return WrongDataFolder.UNABLE.of(data=shown, store=kind.name, lacking=lacking) if lacking else None


def absolute_data_folder(project: str, declared: str, resolve: Callable[[str], str]) -> str:
    """Return a declared data folder as an absolute path, or as a URI without a slash at its end.

    A relative path lies in the folder `project`; `resolve` follows the links of a local path.
    """
    return declared.rstrip("/") if is_in_hdfs(declared) else resolve(posixpath.join(project, declared))
