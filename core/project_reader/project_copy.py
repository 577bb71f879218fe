"""Serialization of a project that was read and checked, so that no other process has to read it again.

The bytes do not include the contents of the files; restoring a project requires contents with the same digest.
"""

import hashlib
import io
import pickle
from array import array
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from core.model.problems import Problem
from core.project.manifest_head import MANIFEST_PATH
from core.project.model import Project

ReadProject = tuple[Project, tuple[Problem, ...]]
"""A project, and the warnings found when it was read."""

_OURS = ("core.model.", "core.policy.", "core.project.", "core.sql.statement")
"""Prefixes of the modules whose classes a serialized project may contain; other classes are never instantiated."""

_BROKEN = (pickle.UnpicklingError, EOFError, ValueError, TypeError, LookupError, AttributeError, ImportError)
"""Errors that unpickling invalid bytes may raise."""


def digest_of(texts: Mapping[str, str], environment: str) -> bytes:
    """Return a digest of file contents by path and, if there are variables, of the environment that gives their values.

    It depends on the order of the files.
    """
    parts = [*texts, *texts.values(), *([environment] if "variables:" in texts.get(MANIFEST_PATH, "") else ())]
    digest = hashlib.sha256(array("Q", [len(texts), *map(len, parts)]))
    digest.update("".join(parts).encode("utf-8", "surrogatepass"))
    return digest.digest()


def pack_project(found: ReadProject, texts: Mapping[str, str]) -> bytes:
    """Serialize a project, with the warnings found when it was read from the file contents `texts`."""
    packed = io.BytesIO()
    _Packer(packed, texts).dump(found)
    return packed.getvalue()


def unpack_project(packed: bytes, texts: Mapping[str, str]) -> ReadProject | None:
    """Restore a project and its warnings; None if the bytes are invalid.

    The file contents must be the same as those that were passed to `pack_project`.
    """
    try:
        project, problems = _Unpacker(packed, texts).load()
    except _BROKEN:
        return None
    return (project, problems) if isinstance(project, Project) else None


class _Packer(pickle.Pickler):
    """A pickler that writes a dataclass as its class and field values, and a file's content as the file's number."""

    def __init__(self, packed: io.BytesIO, texts: Mapping[str, str]) -> None:
        super().__init__(packed, 5)
        self._numbers = {text: number for number, text in enumerate(texts.values()) if text}

    def persistent_id(self, obj: Any) -> int | None:
        return self._numbers.get(obj) if type(obj) is str else None

    def reducer_override(self, obj: Any) -> Any:
        if is_dataclass(obj) and not isinstance(obj, type):
            return type(obj), tuple(getattr(obj, field.name) for field in fields(obj))
        return NotImplemented


class _Unpacker(pickle.Unpickler):
    def __init__(self, packed: bytes, texts: Mapping[str, str]) -> None:
        super().__init__(io.BytesIO(packed))
        self._texts = tuple(texts.values())

    def persistent_load(self, pid: Any) -> str:
        found: str = self._texts[pid]
        return found

    def find_class(self, module_name: str, global_name: str) -> Any:
        found = super().find_class(module_name, global_name) if module_name.startswith(_OURS) else None
        if is_dataclass(found) or (isinstance(found, type) and issubclass(found, Enum)):
            return found
        raise pickle.UnpicklingError(f"{module_name}.{global_name}")
