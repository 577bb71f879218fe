"""What git has of texts at a commit: read from its objects alone, so that checkout and index stay untouched."""

import hashlib
import os
import subprocess
from collections.abc import Mapping

from core.model.errors import UsageError
from core.statement_tests.case import TESTS_FOLDER
from tui.project_folder.declaring_files import FOLDER, READ, SCRIPTS
from tui.project_folder.manifest_head import PROJECT_FILE

_GIT_S = 20.0

_OF_A_HOOK = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX")
"""Set for a hook, relative to another folder; the repository that is meant is the project's."""

_FILE_MODES = (b"100644", b"100755")


def texts_differing_from(folder: str, reference: str, texts: Mapping[str, str]) -> dict[str, str | None]:
    """Return, by path below the project folder, the text at a commit of every declaring file that differs from it.

    `texts` are the files as they are now, committed or not; None stands for a file that the commit does not have. Asks
    git three times, whatever the size; raises UsageError for a reference that is none, without git or a repository.
    """
    commit = _commit(folder, reference)
    then = _files(folder, commit)
    old = _contents(folder, {path: blob for path, blob in then.items() if not _is(texts.get(path), blob)})
    found: dict[str, str | None] = {path: text for path, text in old.items() if texts.get(path) != text}
    return found | {path: None for path in texts if path not in then}


def run_git(folder: str, command: str, *words: str, given: bytes = b"") -> tuple[int, bytes, str]:
    """Run git in a folder; returns its exit status, stdout and the first line of stderr. Raises UsageError."""
    environ = {name: value for name, value in os.environ.items() if name not in _OF_A_HOOK}
    try:
        done = subprocess.run(
            ["git", command, *words],
            cwd=folder,
            env={**environ, "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0"},
            input=given,
            capture_output=True,
            timeout=_GIT_S,
            check=False,
        )
    except FileNotFoundError as error:
        raise UsageError("git is not installed", remedy="install git, or work without a git reference") from error
    except subprocess.TimeoutExpired as error:
        raise UsageError(
            f"git did not answer within {_GIT_S:.0f} s", remedy="try again, or work without a git reference"
        ) from error
    said = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return done.returncode, done.stdout, said[0].removeprefix("fatal: ") if said else ""


def _commit(folder: str, reference: str) -> str:
    name = reference.strip()
    if not name or name.startswith("-"):
        raise UsageError(
            f"{reference!r} is not a git reference", remedy="name a commit, a branch or a tag: --changed-since main"
        )
    status, out, said = run_git(folder, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
    if status == 0:
        return out.decode("ascii", "replace").strip()
    if said.startswith("not a git repository"):
        raise UsageError(f"{folder} is not in a git repository", remedy="name the tables, or plan from a clone")
    why = f": {said}" if said else ""
    raise UsageError(
        f"git knows no commit {name!r} here{why}",
        remedy="run git fetch if it exists only on the server; git branch -a lists branches",
    )


def _files(folder: str, commit: str) -> dict[str, bytes]:
    """List the declaring files of a commit below the project folder, with their blobs."""
    out = _done(folder, "ls-tree", "-r", "-z", commit, "--", PROJECT_FILE, f"{FOLDER}/")
    found = {}
    for line in out.split(b"\0"):
        head, _, path = line.partition(b"\t")
        mode, _, rest = head.partition(b" ")
        name = os.fsdecode(path)
        if mode in _FILE_MODES and _declares(name):
            found[name] = rest.rpartition(b" ")[2]
    units = {path.rpartition(f"/{SCRIPTS}/")[0] for path in found}
    return {path: blob for path, blob in found.items() if path.rpartition(f"/{TESTS_FOLDER}/")[0] not in units - {""}}


def _declares(path: str) -> bool:
    """Return whether a path is one that reading the folder would find."""
    hidden = any(part.startswith(".") for part in path.split("/")[:-1])
    return path == PROJECT_FILE or (path.startswith(f"{FOLDER}/") and path.endswith(READ) and not hidden)


def _is(text: str | None, blob: bytes) -> bool:
    """Return whether a text is a blob's content byte by byte, by the hash that git names blobs with."""
    if text is None:
        return False
    data = text.encode("utf-8")
    kind = hashlib.sha1 if len(blob) == 40 else hashlib.sha256
    digest = kind(b"blob %d\0" % len(data), usedforsecurity=False)
    digest.update(data)
    return digest.hexdigest().encode() == blob


def _contents(folder: str, blobs: Mapping[str, bytes]) -> dict[str, str]:
    if not blobs:
        return {}
    out = _done(folder, "cat-file", "--batch", given=b"".join(blob + b"\n" for blob in blobs.values()))
    found, at = {}, 0
    for path in blobs:
        end = out.index(b"\n", at)
        kind, _, size = out[at:end].partition(b" ")[2].partition(b" ")
        if kind != b"blob":
            raise UsageError(f"git cannot find {path} of that commit", remedy="run git fsck for details")
        at = end + 1 + int(size)
        found[path] = out[end + 1 : at].decode("utf-8", "replace").removeprefix("\ufeff")
        at += 1
    return found


def _done(folder: str, command: str, *words: str, given: bytes = b"") -> bytes:
    status, out, said = run_git(folder, command, *words, given=given)
    if status:
        raise UsageError(f"git {command} failed: {said or 'no reason given'}", remedy="run git status for details")
    return out
