"""Reads files of a git commit from git's object store, without touching work tree or index.

File contents are compared as a checkout would write them: links are followed, submodules are entered, and filters (line
endings, LFS, encodings) are applied.
"""

import hashlib
import os
import secrets
import subprocess
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from core.model.errors import UsageError
from core.project.manifest_head import PLACES
from core.project_reader.paths import FUNCTIONS_FOLDER, INTEGRATION_FOLDER, TESTS_FOLDER, function_scope, is_jar
from tui.project_folder.declaring_files import FOLDER, FUNCTION_FILES, READ, SCRIPTS, is_job_file, read_text
from tui.project_folder.manifest_head_cache import PROJECT_FILE

_GIT_S = 20.0

_OF_A_HOOK = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX")
"""Variables that git sets for hooks. They are removed, so that git finds the project's own repository."""

_FILE_MODES = (b"100644", b"100755")
_LINK, _SUBMODULE = b"120000", b"160000"
_UNFOLLOWED = (b"symlink", b"dangling", b"loop", b"notdir")
"""Results of `cat-file --follow-symlinks` for links that lead out of the commit or to no file."""


@dataclass(frozen=True, slots=True)
class _Tree:
    folder: str
    commit: str
    prefix: str
    """Path of the folder relative to the top of the work tree. Empty, or ends with a slash."""


@dataclass(frozen=True, slots=True)
class _Blob:
    tree: _Tree
    path: str
    id: bytes


def texts_differing_from(folder: str, reference: str, texts: Mapping[str, str]) -> dict[str, str | None]:
    """Return, by path, the files that declare the project and whose content at a git reference differs from `texts`.

    The value is the content at the reference; None for a file that the commit does not contain. `texts` may include
    uncommitted edits. Runs git three times for any number of files, once more for links, and three times for each
    submodule. Raises UsageError if the reference is unknown, git is not installed, or the folder is in no repository.
    """
    tree = _commit(folder, reference)
    if PLACES in texts:
        return _differing(texts, _texts_at(tree))
    then = _declaring(_files(tree, PROJECT_FILE, f"{FOLDER}/", f"{FUNCTIONS_FOLDER}/"))
    jars = {path: blob for path, blob in then.items() if is_jar(path)}
    read = then.keys() - jars.keys()
    old = _contents({path: then[path] for path in then if path in read and not _is(texts.get(path), then[path].id)})
    if jars:
        old |= _descriptions(jars, {path: old[path] if path in old else texts[path] for path in read})
    found: dict[str, str | None] = {path: text for path, text in old.items() if texts.get(path) != text}
    if "layout" in (found.get(PROJECT_FILE) or ""):
        return _differing(texts, _texts_at(tree))
    return found | {path: None for path in texts if path not in then}


def _differing(now: Mapping[str, str], then: Mapping[str, str]) -> dict[str, str | None]:
    found: dict[str, str | None] = {path: text for path, text in then.items() if now.get(path) != text}
    return found | {path: None for path in now if path not in then}


def _texts_at(tree: _Tree) -> Mapping[str, str]:
    """Return all texts of a project at a commit; those of a project of manifests are generated from its files."""
    from core.project_reader.layout import collect_files, manifest_layout
    from core.project_reader.manifest_layout import generated_texts

    headgate_yml = _contents(_files(tree, PROJECT_FILE)).get(PROJECT_FILE, "")
    layout = manifest_layout(headgate_yml)
    if layout is None:
        found = _declaring(_files(tree, PROJECT_FILE, f"{FOLDER}/", f"{FUNCTIONS_FOLDER}/"))
        jars = {path: blob for path, blob in found.items() if is_jar(path)}
        texts = _contents({path: blob for path, blob in found.items() if path not in jars})
        return {**texts, **_descriptions(jars, texts)}
    return generated_texts(collect_files(headgate_yml, layout, _FilesAt(_files(tree, "."))))


@dataclass(frozen=True, slots=True)
class _FilesAt:
    """The files of a project at a commit."""

    blobs: Mapping[str, _Blob]

    def below(self, folder: str) -> list[str]:
        found = (path for path in self.blobs if path.startswith(f"{folder}/"))
        return [path for path in found if not any(part.startswith(".") for part in path.split("/")[:-1])]

    def within(self, folder: str) -> list[str]:
        return [path for path in self.blobs if path.rpartition("/")[0] == folder]

    def read(self, path: str) -> str | None:
        return _contents({path: self.blobs[path]})[path] if path in self.blobs else None

    def describe(self, jar: str, classes: tuple[str, ...]) -> str:
        return _description(self.blobs[jar], classes)


def _descriptions(jars: Mapping[str, _Blob], texts: Mapping[str, str]) -> dict[str, str]:
    """Return the texts that stand for jars at a commit; `texts` are the other files there."""
    from core.project_reader.jar_files import classes_in

    return {path: _description(blob, classes_in(texts, path)) for path, blob in jars.items()}


def _description(jar: _Blob, classes: tuple[str, ...]) -> str:
    from core.project_reader.jar_files import describe_jar

    content = _done(jar.tree.folder, "cat-file", "blob", jar.id.decode("ascii"))
    return describe_jar(content, jar.path.rpartition("/")[2], classes)


def file_at(cwd: str, revision: str, path: str) -> bytes:
    """Return the content that a checkout would give the file `revision:path`, following links.

    The path is relative to the top of the repository or, if it starts with `./`, to `cwd`. Raises UsageError if git
    finds no such file.
    """
    name = f"{revision}:{path}"
    status, out, said = run_git(cwd, "cat-file", "--filters", "--end-of-options", name)
    if status:
        remedy = "REV:path is relative to the top of the repository, REV:./path to the current folder"
        raise UsageError(f"{name} is neither a file nor in git: {said or 'git gave no reason'}", remedy=remedy)
    if b"\n" in out or "\n" in name:
        return out
    # A file with a single line may be a link that contains the path of its target.
    line = os.fsencode(name) + b"\n"
    found = run_git(cwd, "cat-file", "--batch-check", "--follow-symlinks", given=line)[1].split(b" ")
    if found[1:2] != [b"blob"]:
        return out
    status, followed, _ = run_git(cwd, "cat-file", "--filters", f"--path={path}", found[0].decode("ascii"))
    return out if status else followed


def run_git(folder: str, command: str, *words: str, given: bytes = b"") -> tuple[int, bytes, str]:
    """Run git in a folder. Returns its exit status, its stdout and the first line of its stderr.

    Raises UsageError if git is not installed or does not answer.
    """
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


def _commit(folder: str, reference: str) -> _Tree:
    name = reference.strip()
    if not name or name.startswith("-"):
        raise UsageError(
            f"{reference!r} is not a git reference", remedy="name a commit, a branch or a tag: --changed-since main"
        )
    words = ("--show-prefix", "--verify", "--quiet", f"{name}^{{commit}}")
    status, out, said = run_git(folder, "rev-parse", *words)
    if status == 0:
        prefix, commit = os.fsdecode(out).rstrip("\n").rsplit("\n", 1)
        return _Tree(folder, commit, prefix)
    if said.startswith("not a git repository"):
        raise UsageError(f"{folder} is not in a git repository", remedy="name the tables, or plan from a clone")
    why = f": {said}" if said else ""
    raise UsageError(
        f"git knows no commit {name!r} here{why}",
        remedy="run git fetch if it exists only on the server; git branch -a lists branches",
    )


def _files(tree: _Tree, *below: str) -> dict[str, _Blob]:
    found: dict[str, _Blob] = {}
    links: dict[str, bytes] = {}
    for line in _done(tree.folder, "ls-tree", "-r", "-z", tree.commit, "--", *below).split(b"\0"):
        head, _, name = line.partition(b"\t")
        mode, _, rest = head.partition(b" ")
        path, id = os.fsdecode(name), rest.rpartition(b" ")[2]
        if mode in _FILE_MODES:
            found[path] = _Blob(tree, path, id)
        elif mode == _LINK and path.lower().endswith(READ):
            links[path] = id
        elif mode == _SUBMODULE:
            found |= _files_of_submodule(os.path.join(tree.folder, path), path, id.decode("ascii"))
    return found | _followed(tree, links)


def _files_of_submodule(folder: str, place: str, commit: str) -> dict[str, _Blob]:
    if not os.path.exists(os.path.join(folder, ".git")):
        return {}
    if run_git(folder, "cat-file", "-e", f"{commit}^{{commit}}")[0]:
        raise UsageError(
            f"the submodule {place} has no commit {commit[:12]}, which that reference names",
            remedy=f"fetch it: git -C {place} fetch",
        )
    return {f"{place}/{path}": blob for path, blob in _files(_Tree(folder, commit, "")).items()}


def _followed(tree: _Tree, links: Mapping[str, bytes]) -> dict[str, _Blob]:
    """Resolve links that stay within the commit. `_unfollowed_id` handles all other links."""
    if not links:
        return {}
    asked = [path for path in links if "\n" not in path]
    given = b"".join(os.fsencode(f"{tree.commit}:./{path}\n") for path in asked)
    out = _done(tree.folder, "cat-file", "--batch-check", "--follow-symlinks", given=given)
    found: dict[str, _Blob] = {}
    at = 0
    for path in asked:
        end = out.index(b"\n", at)
        first, kind, *_ = out[at:end].split(b" ")
        at = end + 1
        if kind == b"blob":
            found[path] = _Blob(tree, path, first)
        elif first in _UNFOLLOWED:
            at += int(kind) + 1
            found[path] = _Blob(tree, path, _unfollowed_id(os.path.join(tree.folder, path), links[path]))
    return found


def _unfollowed_id(place: str, link: bytes) -> bytes:
    """Return the id of the content to which a link points now, or the link's own id if the link has changed."""
    try:
        same = _hash(os.fsencode(os.readlink(place)), link) == link
        return _hash(read_text(place).encode("utf-8"), link) if same else link
    except (OSError, UnicodeDecodeError):
        return link


def _declaring(files: Mapping[str, _Blob]) -> dict[str, _Blob]:
    found = {path: blob for path, blob in files.items() if _declares(path)}
    units = {path.rpartition(f"/{SCRIPTS}/")[0] for path in found} - {""}
    return {path: blob for path, blob in found.items() if not _is_test(path, units)}


def _is_test(path: str, units: Collection[str]) -> bool:
    folder = path.rpartition("/")[0]
    if folder.endswith(f"/{INTEGRATION_FOLDER}") and folder not in units:
        return True
    beside, tests, _ = path.rpartition(f"/{TESTS_FOLDER}/")
    return bool(tests) and (beside in units or f"/{beside}".endswith(f"/{FUNCTIONS_FOLDER}"))


def _declares(path: str) -> bool:
    if path == PROJECT_FILE:
        return True
    hidden = any(part.startswith(".") for part in path.split("/")[:-1])
    in_functions = FUNCTIONS_FOLDER in path and function_scope(path) is not None
    inside = path.startswith(f"{FOLDER}/") or in_functions
    folder, _, name = path.rpartition("/")
    declares = path.lower().endswith(FUNCTION_FILES if in_functions else READ) or is_job_file(folder, name)
    return inside and declares and not hidden


def _is(text: str | None, blob: bytes) -> bool:
    return text is not None and _hash(text.encode("utf-8"), blob) == blob


def _hash(data: bytes, like: bytes) -> bytes:
    """Return git's id for a blob with this content, computed with the hash function behind the id `like`."""
    kind = hashlib.sha1 if len(like) == 40 else hashlib.sha256
    digest = kind(b"blob %d\0" % len(data), usedforsecurity=False)
    digest.update(data)
    return digest.hexdigest().encode()


def _contents(blobs: Mapping[str, _Blob]) -> dict[str, str]:
    found: dict[str, str] = {}
    for tree in dict.fromkeys(blob.tree for blob in blobs.values()):
        found |= _contents_of(tree, {path: blob for path, blob in blobs.items() if blob.tree == tree})
    return found


def _contents_of(tree: _Tree, blobs: Mapping[str, _Blob]) -> dict[str, str]:
    # Git prints the size before filtering, so contents are separated by a random mark instead.
    mark = secrets.token_hex(16)
    lines = (b"%s %s\n" % (blob.id, os.fsencode(_one_line(tree.prefix + blob.path))) for blob in blobs.values())
    out = _done(tree.folder, "cat-file", "--filters", f"--batch={mark}", given=b"".join(lines))
    contents = out.split(mark.encode() + b"\n")[1:]
    if len(contents) != len(blobs):
        raise UsageError("git cannot find every file of that commit", remedy="run git fsck for details")
    return {
        path: content[:-1].decode("utf-8", "replace").removeprefix("\ufeff")
        for path, content in zip(blobs, contents, strict=True)
    }


def _one_line(path: str) -> str:
    # Git takes the path on one line, to look up the attributes of the file.
    return path.replace("\n", " ")


def _done(folder: str, command: str, *words: str, given: bytes = b"") -> bytes:
    status, out, said = run_git(folder, command, *words, given=given)
    if status:
        raise UsageError(f"git {command} failed: {said or 'no reason given'}", remedy="run git status for details")
    return out
