"""The head of headgate.yml, read as YAML once for each content: loading the reader would double the time of `ls`.

What was read is kept in a file of the user's own, under a digest of the reader's code, the text and the values: a file
that is damaged, is another user's or belongs to another text counts as absent. Whoever deletes it loses milliseconds.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import core.project_files
from core.ipc.environment_paths import manifest_cache_path
from core.model.errors import InvalidProject, UsageError
from core.project.manifest_head import ManifestHead

PROJECT_FILE = "headgate.yml"

_READERS = ("manifest.py", "yaml_reader.py")
"""Modules of `core.project_files` that a head depends on."""


def read_manifest_head(environ: Mapping[str, str], folder: str) -> ManifestHead:
    """Read a project's name, id and environments; raises InvalidProject with all Problems, or UsageError."""
    path = Path(folder, PROJECT_FILE)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{path} cannot be read: {error}", remedy="check that it is a text file that you can read"
        ) from error
    kept = manifest_cache_path(environ, os.getuid(), folder=folder)
    head = _load(kept, text)
    if head is None:
        head = _parse(folder, text)
        _save(kept, text, head)
    return head


def _parse(folder: str, text: str) -> ManifestHead:
    from core.model.problems import Problem
    from core.project_files.manifest import read_manifest_head
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


def _load(kept: str, text: str) -> ManifestHead | None:
    if not kept:
        return None
    try:
        with open(kept, encoding="utf-8") as file:
            if os.fstat(file.fileno()).st_uid != os.getuid():
                return None
            digest, _, body = file.read().partition("\n")
        return ManifestHead(**json.loads(body)) if digest == _digest(text, body) else None
    except (OSError, ValueError, TypeError):
        return None


def _save(kept: str, text: str, head: ManifestHead) -> None:
    """Keep a head, whole or not at all; where nothing can be written the next command reads the YAML again."""
    if not kept:
        return
    body = json.dumps(asdict(head))
    new = f"{kept}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(kept), mode=0o2750, exist_ok=True)
        with open(
            os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "w", encoding="utf-8"
        ) as file:
            file.write(f"{_digest(text, body)}\n{body}")
        os.replace(new, kept)
    except OSError:
        with suppress(OSError):
            os.unlink(new)


def _digest(text: str, body: str) -> str:
    """Return one digest of readers, text and values; raises OSError where a reader's code is not there to be read."""
    digest = hashlib.sha256()
    folder = Path(str(core.project_files.__file__)).parent
    parts = (*(Path(folder, name).read_bytes() for name in _READERS), text.encode(), body.encode())
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()
