"""The changelog lists every fragment once, under its day, newest first."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.changelog import CHANGELOG, FOLDER, ROOT, changelog, fold


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    (tmp_path / FOLDER).mkdir()
    (tmp_path / CHANGELOG).parent.mkdir()
    git(tmp_path, "init", "-q")
    return tmp_path


def git(folder: Path, *words: str, day: str = "2026-01-01") -> None:
    date = f"{day}T12:00:00Z"
    who = {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date, "GIT_CONFIG_GLOBAL": os.devnull}
    named = ("-c", "user.name=ana", "-c", "user.email=ana@example.com")
    subprocess.run(["git", *named, *words], cwd=folder, env=os.environ | who, check=True, capture_output=True)


def commit(folder: Path, day: str, **fragments: str) -> None:
    for name, text in fragments.items():
        (folder / FOLDER / f"{name}.md").write_text(text)
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "add", day=day)


def test_entries_are_listed_under_the_day_of_their_commit_newest_first(clone: Path) -> None:
    commit(clone, "2026-01-01", b="The first,\non two lines.\n", a="Beside it.\n")
    commit(clone, "2026-01-03", z="Later.\n")
    commit(clone, "2026-01-05", b="The first,\ncorrected.\n")
    (clone / FOLDER / "new.md").write_text("Just written.\n")
    assert changelog(clone) == (
        "# Changes\n\n## Not committed yet\n\n- Just written.\n\n## 2026-01-03\n\n- Later.\n"
        "\n## 2026-01-01\n\n- Beside it.\n- The first, corrected.\n"
    )


def test_a_fragment_that_was_deleted_and_added_again_has_the_later_day(clone: Path) -> None:
    commit(clone, "2026-01-01", a="Once.\n", b="Stays.\n")
    (clone / FOLDER / "a.md").unlink()
    commit(clone, "2026-01-02")
    assert "Once" not in changelog(clone)
    commit(clone, "2026-01-03", a="Again.\n")
    assert changelog(clone).index("## 2026-01-03\n\n- Again.") < changelog(clone).index("- Stays.")


def test_folded_entries_stay_and_later_ones_are_listed_above_them(clone: Path) -> None:
    commit(clone, "2026-01-01", a="One.\n")
    commit(clone, "2026-01-03", b="Two,\nlines.\n")
    before = changelog(clone)
    fold(clone)
    assert not list((clone / FOLDER).glob("*")) and changelog(clone) == before
    git(clone, "add", "-A")
    git(clone, "commit", "-qm", "fold", day="2026-01-03")
    (clone / FOLDER).mkdir(exist_ok=True)
    commit(clone, "2026-01-03", c="The same day.\n")
    commit(clone, "2026-01-04", a="A later day.\n")
    assert changelog(clone) == (
        "# Changes\n\n## 2026-01-04\n\n- A later day.\n\n## 2026-01-03\n\n- The same day.\n- Two, lines.\n"
        "\n## 2026-01-01\n\n- One.\n"
    )


def test_the_section_of_a_release_is_kept_as_it_is_below_newer_entries(clone: Path) -> None:
    release = "## 0.1.0\n\nThe first release.\n\n### Console\n\n- An entry\n  on two lines.\n"
    (clone / CHANGELOG).write_text(f"# Changes\n\n{release}")
    commit(clone, "2026-01-01", a="One.\n")
    assert changelog(clone) == f"# Changes\n\n## 2026-01-01\n\n- One.\n\n{release}"


def test_every_fragment_of_this_project_is_an_entry() -> None:
    text = changelog(ROOT)
    for path in (ROOT / FOLDER).glob("*.md"):
        assert f"- {' '.join(path.read_text(encoding='utf-8').split())}\n" in text
    assert all(line in text for line in (ROOT / CHANGELOG).read_text(encoding="utf-8").splitlines())
