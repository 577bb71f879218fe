"""The pages about packages must match the code: their tables list existing names in order, and their links resolve."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from core.lag.liveness import PATIENT_S, SILENT_S
from core.model.states import Trend
from core.planner.decision_model import DownstreamOutcome

ROOT = Path(__file__).parents[1]
ROOMS = ("core", "pipelines", "state", "tui")
READMES = sorted(path for room in ROOMS for path in (ROOT / room).rglob("README.md") if "samples" not in path.parts)


def first_cells(path: Path) -> list[str]:
    """Return the code names that open the rows of a page's tables, in order."""
    return re.findall(r"^\| `(\w+)`", path.read_text(), re.M)


def test_the_page_on_planning_has_every_outcome_in_order() -> None:
    assert first_cells(ROOT / "core/planner/README.md") == [outcome.name for outcome in sorted(DownstreamOutcome)]


def test_the_page_on_lag_has_every_trend() -> None:
    assert sorted(first_cells(ROOT / "core/lag/README.md")) == sorted(Trend)


def test_the_page_on_lag_gives_the_bounds_of_silence() -> None:
    page = (ROOT / "core/lag/README.md").read_text()
    assert f"{SILENT_S:.0f} s and three triggers" in page
    assert f"at least {PATIENT_S / 60:.0f} min" in page


@pytest.mark.parametrize("page", READMES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text()
    for name in {*re.findall(r"\]\(([^)#]+)\)", text), *re.findall(r"`([\w./]+\.(?:py|md|txt))`", text)}:
        assert (page.parent / name).exists() or (ROOT / name).exists(), name


def test_every_test_that_a_page_names_exists() -> None:
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    named = {name for page in READMES for name in re.findall(r"`(test_\w+)`", page.read_text())}
    assert len(named) > 20
    assert sorted(name for name in named if f"def {name}(" not in tests) == []


def test_the_map_links_every_page() -> None:
    text = (ROOT / ".github/ARCHITECTURE.md").read_text()
    assert all(f"(../{page.relative_to(ROOT)})" in text for page in READMES)


def test_the_picture_is_what_the_console_draws() -> None:
    command = [sys.executable, "-m", "tests.support.readme_picture"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    drawn, shown = _texts_of(done.stdout), _texts_of((ROOT / ".github/console.svg").read_text())
    assert any(text == "orders_paid" for *_, text in drawn)
    assert shown == drawn, f"it is older than the console: {' '.join(command[1:])} > .github/console.svg"


def _texts_of(svg: str) -> list[tuple[str, str, str, str]]:
    """Return each text as (x, y, style, text), without the frame, which another release may draw differently."""
    styles = dict(re.findall(r"\.(terminal-\d+-r\d+) \{ ([^}]*) \}", svg))
    found = re.findall(r'<text class="([^"]+)" x="([\d.]+)" y="([\d.]+)"[^>]*>([^<]*)</text>', svg)
    return [(x, y, styles.get(name, ""), text.replace("&#160;", " ").strip()) for name, x, y, text in found]
