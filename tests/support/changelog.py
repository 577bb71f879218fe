"""Folds the fragments of `.changes/` into the changelog: `python -m tests.support.changelog`.

A fragment is one entry, however many lines it has. Entries are listed under the day on which their file was committed,
newest first; sections that the changelog already contains, such as releases, are kept below them.
"""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ".changes"
CHANGELOG = ".github/CHANGELOG.md"
NEW = "Not committed yet"
"""The heading of uncommitted entries; in reverse alphabetical order, it precedes all days."""


def changelog(root: Path) -> str:
    """Return a clone's changelog including its fragments, as Markdown; raises CalledProcessError if git fails."""
    days: dict[str, list[str]] = {}
    for _, day, path in sorted((*added, path) for path, added in _fragments(root).items()):
        entry = " ".join((root / path).read_text(encoding="utf-8").split())
        days.setdefault(day, []).append(f"- {entry}")
    written = root / CHANGELOG
    for section in re.split(r"^## ", written.read_text(encoding="utf-8"), flags=re.M)[1:] if written.exists() else ():
        day, _, entries = section.partition("\n")
        days.setdefault(day, []).append(entries.strip("\n"))
    return "\n".join(["# Changes", *(f"\n## {day}\n\n" + "\n".join(days[day]) for day in sorted(days)[::-1])]) + "\n"


def fold(root: Path) -> None:
    """Write the fragments into the changelog, and delete their files."""
    text = changelog(root)
    (root / CHANGELOG).write_text(text, encoding="utf-8")
    for path in (root / FOLDER).glob("*.md"):
        path.unlink()


def _fragments(root: Path) -> dict[str, tuple[int, str]]:
    """Map each fragment to its commit's number (0 for the newest, -1 if not committed yet) and day."""
    added = dict(reversed(list(_added(root))))
    paths = (path.relative_to(root).as_posix() for path in (root / FOLDER).glob("*.md"))
    return {path: added.get(path, (-1, NEW)) for path in paths}


def _added(root: Path) -> Iterator[tuple[str, tuple[int, str]]]:
    """Yield each path added by a commit, with the commit's number (0 for the newest) and day, newest first."""
    command = ["git", "log", "--diff-filter=A", "--no-renames", "--format=%x00%as", "--name-only", "--", FOLDER]
    said = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    for number, commit in enumerate(said.split("\0")[1:]):
        day, *paths = commit.split()
        yield from ((path, (number, day)) for path in paths)


if __name__ == "__main__":
    fold(ROOT)
