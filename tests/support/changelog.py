"""Writes a changelog from `.changes/`: `python -m tests.support.changelog > .github/CHANGELOG.md`.

A fragment is one entry, whatever its lines. Entries stand under the day on which git got their file, the newest first.
"""

import subprocess
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ".changes"
NEW = "Not committed yet"


def changelog(root: Path) -> str:
    """Return the changelog of a clone as Markdown; raises CalledProcessError where git does not answer."""
    added = dict(reversed(list(_added(root))))
    paths = sorted(path.relative_to(root).as_posix() for path in (root / FOLDER).glob("*.md"))
    entries = sorted((*added.get(path, (-1, NEW)), path) for path in paths)
    lines = ["# Changes"]
    for day, of_day in groupby(entries, key=lambda entry: entry[1]):
        lines += ["", f"## {day}", ""]
        lines += [f"- {' '.join((root / path).read_text(encoding='utf-8').split())}" for *_, path in of_day]
    return "\n".join(lines) + "\n"


def _added(root: Path) -> Iterator[tuple[str, tuple[int, str]]]:
    """Yield each path that a commit added, with the commit's place, 0 for the newest, and its day; the newest first."""
    command = ["git", "log", "--diff-filter=A", "--no-renames", "--format=%x00%as", "--name-only", "--", FOLDER]
    said = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    for number, commit in enumerate(said.split("\0")[1:]):
        day, *paths = commit.split()
        yield from ((path, (number, day)) for path in paths)


if __name__ == "__main__":
    sys.stdout.write(changelog(ROOT))
