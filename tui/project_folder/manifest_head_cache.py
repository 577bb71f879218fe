"""Reads the head of headgate.yml, and caches it because loading the YAML reader would double the time of `ls`.

The cache is a file per user that contains the values and a digest of these values, headgate.yml and the reader's code.
A cache that is damaged or belongs to another user is ignored. Deleting it costs a few milliseconds at the next read; if
headgate.yml is broken at that time, there is no last valid head to use instead.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

import core.project_reader
from core.ipc.environment_paths import manifest_cache_path
from core.model.errors import InvalidProject, UsageError
from core.project.manifest_head import ManifestHead

PROJECT_FILE = "headgate.yml"

_READERS = ("manifest.py", "yaml_reader.py")
"""Modules of `core.project_reader` whose code determines the head."""


def read_manifest_head(environ: Mapping[str, str], folder: str) -> ManifestHead:
    """Read a project's name, id and environments.

    Raises UsageError if headgate.yml cannot be read, and InvalidProject with all Problems if it is invalid.
    """
    path = Path(folder, PROJECT_FILE)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{path} cannot be read: {error}", remedy="check that it is a text file that you can read"
        ) from error
    kept = manifest_cache_path(environ, os.getuid(), folder=folder)
    before = _load(kept)
    if before is not None and before[0] == _hash(text):
        return before[1]
    head = _parse(folder, text)
    _save(kept, text, head)
    return head


def last_manifest_head(environ: Mapping[str, str], folder: str) -> ManifestHead | None:
    """Return the head of the last valid headgate.yml, with every environment protected; None if there is none.

    While the file is broken, commands that need nothing else from it, such as a stop, use this head.
    """
    before = _load(manifest_cache_path(environ, os.getuid(), folder=folder))
    if before is None:
        return None
    return replace(before[1], protected_by_name=dict.fromkeys(before[1].protected_by_name, True))


def _parse(folder: str, text: str) -> ManifestHead:
    from core.model.problems import Problem
    from core.project_reader.manifest import read_manifest_head
    from core.text.wording import counted

    problems: list[Problem] = []
    head = read_manifest_head(text, problems)
    if problems:
        raise InvalidProject(
            f"{PROJECT_FILE} in {folder} has {counted(len(problems), 'problem')}",
            remedy="correct what is listed",
            problems=tuple(problem.as_json() for problem in problems),
        )
    return head


def _load(kept: str) -> tuple[str, ManifestHead] | None:
    if not kept:
        return None
    try:
        with open(kept, encoding="utf-8") as file:
            if os.fstat(file.fileno()).st_uid != os.getuid():
                return None
            mark, _, body = file.read().partition("\n")
        text_hash, _, digest = mark.partition(" ")
        return (text_hash, ManifestHead(**json.loads(body))) if digest == _digest(text_hash, body) else None
    except (OSError, ValueError, TypeError):
        return None


def _save(kept: str, text: str, head: ManifestHead) -> None:
    # If this fails, the next command reads the YAML again.
    if not kept:
        return
    body = json.dumps(asdict(head))
    new = f"{kept}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(kept), mode=0o2750, exist_ok=True)
        with open(
            os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "w", encoding="utf-8"
        ) as file:
            file.write(f"{_hash(text)} {_digest(_hash(text), body)}\n{body}")
        os.replace(new, kept)
    except OSError:
        with suppress(OSError):
            os.unlink(new)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _digest(text_hash: str, body: str) -> str:
    """Return a digest of the reader's code, headgate.yml's hash and the values.

    Raises OSError if the reader's code cannot be read.
    """
    digest = hashlib.sha256()
    folder = Path(str(core.project_reader.__file__)).parent
    parts = (*(Path(folder, name).read_bytes() for name in _READERS), text_hash.encode(), body.encode())
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()
