"""What Review shows of Spark's analysis, approvals, guards and offers; test_presentation covers the rest."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from core.changes.kinds import ChangeKind
from core.model.actions import Action
from core.model.evidence import Edit, EditKind, Notice
from core.plan.model import Guard, Plan, PlanWarning, StrategyOffer
from core.plan.rendering import SECTIONS, column_widths
from core.project.revision import RevisionTexts
from state.row_types import ApprovalRow, PlanRow
from tests.terminal.in_memory_backend import FakeBackend, sample_plan
from tests.terminal.pizzeria_values import NOW
from tests.tui.console_harness import Console, in_console
from tui.presentation.screen_content.plan_review import (
    SECTION_TONES,
    heading,
    node_row,
    not_approvable,
    sections_below_rows,
    state_of_plan,
    waits_for,
    why,
)
from tui.presentation.styling.styled_text import plain
from tui.presentation.styling.theme import ASCII
from tui.screens.backend import PlanView


def test_the_review_shows_every_section_of_a_plan() -> None:
    assert set(SECTION_TONES) == set(SECTIONS)


@pytest.mark.parametrize(
    "confirmed, words",
    [
        (True, "confirmed by Spark"),
        (None, "not confirmed by Spark"),
        (False, "Spark analyses it differently, so it is treated as the most severe change"),
    ],
)
def test_the_review_shows_sparks_analysis_of_a_statement(confirmed: bool | None, words: str) -> None:
    node = next(node for node in sample_plan().nodes if node.action is Action.REBUILD)
    seen = replace(
        node,
        texts=replace(node.texts, dml="INSERT INTO t SELECT 2"),
        confirmed_by_spark=confirmed,
        classified=confirmed is not False,
        evidence=(Notice.SPARK_DISAGREES.of(reading="it reads a"),) if confirmed is False else (),
    )
    told = [plain(line).strip() for line in why(seen, 80, ASCII, full=False)]
    assert words in told
    assert ("Spark disagrees: it reads a" in told) is (confirmed is False)
    assert ("Spark disagrees" in plain(node_row(seen, column_widths((seen,), 100)))) is (confirmed is False)


def test_the_review_names_the_kind_of_change_with_the_code_beside_it() -> None:
    node = next(node for node in sample_plan().nodes if node.action is Action.REBUILD)
    told = " ".join(plain(line).strip() for line in why(node, 200, ASCII, full=False))
    assert f"{node.reason.words} (state no longer fits, 6a)" in told
    assert "6a" not in plain(node_row(node, column_widths((node,), 100)))
    for change in (None, ChangeKind.NONE):
        assert "(" not in plain(why(replace(node, change=change), 200, ASCII, full=False)[1])


ROW = PlanRow("7f3a" * 16, "{}", "lee", NOW - 60, NOW + 3600, "open", author_uid=1)
BOB = ApprovalRow(ROW.hash, 2, "bob", NOW - 10)
LEES_OWN = ApprovalRow(ROW.hash, 1, "lee", NOW - 10)


def waiting(approvals: int = 1) -> Plan:
    return replace(sample_plan(), approvals=approvals, guards=(Guard("approval", "approve", "a rebuild"),))


@pytest.mark.parametrize(
    ("given", "header", "waits"),
    [
        ((), "approvals 0 of 1", True),
        ((LEES_OWN,), "approvals 0 of 1", True),
        ((BOB,), "approvals 1 of 1 (bob)", False),
    ],
)
def test_review_counts_the_approvals_of_others(given: Sequence[ApprovalRow], header: str, waits: bool) -> None:
    told = " ".join(plain(line) for line in heading(waiting(), ROW, "dev", NOW, 100, approvals=given))
    assert header in told
    assert bool(waits_for(waiting(), ROW, given)) is waits
    assert "approvals" not in " ".join(plain(line) for line in heading(sample_plan(), ROW, "dev", NOW, 100))


@pytest.mark.parametrize(
    ("plan", "row", "given", "user", "against"),
    [
        (waiting(), ROW, (), "bob", None),
        (waiting(), ROW, (), "lee", "its author cannot approve it; another login must"),
        (waiting(), ROW, (BOB,), "bob", "you have already approved it"),
        (waiting(2), ROW, (BOB,), "eve", None),
        (waiting(0), ROW, (), "bob", "it needs no approval"),
        (waiting(), replace(ROW, status="applied", run_id="7f3a-1"), (), "bob", "already applied, run 7f3a-1"),
    ],
)
def test_the_logins_that_may_approve(
    plan: Plan, row: PlanRow, given: Sequence[ApprovalRow], user: str, against: str | None
) -> None:
    assert not_approvable(plan, row, given, user=user, now=NOW) == against


def test_review_shows_each_guard_with_its_verdict_the_worst_first() -> None:
    fine = tuple(Guard(name, "ok", "fine") for name in ("disk", "views", "rates"))
    plan = replace(sample_plan(), guards=(*fine, Guard("pool", "deny", "full")))
    told = [plain(line).strip() for line in sections_below_rows(plan, 100, ASCII)]
    at = next(number for number, line in enumerate(told) if line.startswith("GUARDS"))
    assert [line.split() for line in told[at : at + 2]] == [
        ["GUARDS", "deny", "pool:", "full"], ["ok", "disk:", "fine", "·", "views", "·", "rates"],
    ]  # fmt: skip


def test_the_review_shows_the_choices_of_a_row_and_unsupported_ones() -> None:
    node = next(node for node in sample_plan().nodes if node.action is Action.REBUILD)
    offers = (
        StrategyOffer("earliest", 81_000_000, 870.0),
        StrategyOffer("later", loses=("rows from before its start position",)),
    )
    seen = replace(node, strategy="earliest", offers=offers, lowered=True)
    short = " ".join(plain(line).strip() for line in why(seen, 80, ASCII, full=False))
    assert (
        "OPTION earliest (chosen)" in short and "1 option not executable yet: enter" in short and "later" not in short
    )
    told = " ".join(plain(line).strip() for line in why(seen, 80, ASCII, full=True))
    assert "OPTION earliest (chosen): replays 81 M rows; reading 14 m at best" in told
    assert "OPTION later (not executable yet): replays ? rows" in told
    assert "less severe than the default; needs an approval" in told
    edited = replace(
        seen, old=RevisionTexts("", "SELECT 1 AS old_text"), texts=RevisionTexts("", "SELECT 2 AS new_text")
    )
    told = " ".join(plain(line).strip() for line in why(edited, 80, ASCII, full=True))
    assert 0 < told.index("OPTION later") < told.index("new_text"), "a long diff would hide what enter asks for"


class Guarded(FakeBackend):
    """A pizzeria whose plan was computed by lee and awaits an approval."""

    given: tuple[ApprovalRow, ...] = ()

    def plan(self, hash_prefix: str) -> PlanView | None:
        return PlanView(waiting(), ROW, approvals=self.given)

    def approve(self, plan_hash: str, *, confirm: str) -> tuple[int, int]:
        self.given = (replace(BOB, login="alice"),)
        return super().approve(plan_hash, confirm=confirm)


def test_a_plan_is_approved_by_its_key_and_executed_only_then() -> None:
    async def scenario(console: Console) -> None:
        console.app.tab.open_screen("review", plan_hash="7f3a")
        await console.until(lambda: "approvals 0 of 1" in console.text(), "the review")
        await console.press("E")
        assert "approvals 0 of 1: press A as another login" in console.status()
        await console.press("A")
        assert "APPROVE plan 7f3a" in console.dialog() and "by lee" in console.dialog()
        await console.press("enter")
        assert console.backend.calls == []
        await console.press("A")
        expected = console.backend.confirmation("approve", ("7f3a" * 16,)).text
        await console.type(expected)
        await console.press("enter")
        await console.until(lambda: "approvals 1 of 1" in console.status(), "the approval")
        assert console.backend.calls == [("approve", "7f3a" * 16, expected)]
        await console.press("r")
        await console.until(lambda: "approvals 1 of 1 (alice)" in console.text(), "the header")
        now = console.screen.action_context()
        assert (now.not_executable, now.unapprovable) == (None, "you have already approved it")

    in_console(scenario, backend=Guarded(), size=(100, 30))


def test_a_superseded_plan_names_its_cause() -> None:
    row = replace(ROW, status="superseded", superseded_by="run 7f3a-1 of ana on a", superseded_at=NOW)
    told = " ".join(" ".join(plain(line) for line in heading(sample_plan(), row, "dev", NOW, 100)).split())
    assert "superseded by run 7f3a-1 of ana on a" in told
    assert state_of_plan(sample_plan(), row, NOW).startswith("superseded by run 7f3a-1 of ana on a")


def test_losses_and_warnings_are_shown_before_texts_and_undo() -> None:
    node = next(node for node in sample_plan().nodes if node.action is Action.REBUILD)
    filters = (Edit(EditKind.FILTER, after=text) for text in ("a > 1", "b > 2"))
    evidence = (Edit(EditKind.JOIN, after="JOIN d ON d.id > a.id"), *filters)
    bad = replace(node, loses=("state",), evidence=evidence)
    other = PlanWarning("other", "is far away")
    warnings = (PlanWarning(str(node.table), "may multiply rows: join added"), other)
    told = [plain(line).strip() for line in why(bad, 80, ASCII, full=False, warnings=warnings)]
    assert told[1].endswith(f"(join added, {node.row})")
    assert told[2:6] == [
        "LOSES state", "WARNING may multiply rows: join added", "join added: JOIN d ON d.id > a.id",
        "filter added (2): a > 1 · b > 2",
    ]  # fmt: skip
    assert "far away" not in " ".join(told)
    plan = replace(sample_plan(), nodes=(bad,), warnings=warnings)
    heads = [plain(line).split()[0] for line in sections_below_rows(plan, 80, ASCII) if plain(line).strip()]
    assert heads.index("LOSES") < heads.index("WARNINGS") < heads.index("UNDO")
    header = " ".join(plain(line) for line in heading(plan, ROW, "dev", NOW, 80))
    assert "loses data" in header and "2 warnings" in header
