"""The help on kinds of change agrees with the table of kinds, and shows its examples."""

import pytest

from core.changes.kinds import CHANGE_KINDS, KIND_EXAMPLES, ChangeKindDefinition, example_lines
from core.model.actions import EXECUTABLE, Strategy
from tui.presentation.interaction.help_text import changes_topic


def block(facts: ChangeKindDefinition) -> list[str]:
    """Return the lines of one kind without their indent."""
    blocks = [part.splitlines() for part in changes_topic().split("\n\n")]
    (found,) = [rows for rows in blocks if rows[0] == f"    {facts.label} ({facts.code})"]
    return [row.removeprefix("    ") for row in found]


@pytest.mark.parametrize("facts", CHANGE_KINDS, ids=lambda facts: facts.kind.name)
def test_a_kind_lists_action_reason_losses_and_an_example(facts: ChangeKindDefinition) -> None:
    rows = block(facts)
    said = " ".join(" ".join(rows).split())
    for words in (
        f"by default {facts.action} because {facts.why} loses {facts.loss_words} instead ",
        *([facts.note.of().sentence] if facts.note else []),
    ):
        assert words in said
    for line in example_lines(facts.kind) if facts.kind in KIND_EXAMPLES else ():
        assert any(row.endswith(f" {line}") for row in rows)


@pytest.mark.parametrize("facts", CHANGE_KINDS, ids=lambda facts: facts.kind.name)
def test_choices_are_named_as_they_are_typed_with_unsupported_ones_apart(
    facts: ChangeKindDefinition,
) -> None:
    (said,) = [row.removeprefix("  instead").strip() for row in block(facts) if row.startswith("  instead")]
    able, _, planned = said.partition("not yet: ")
    named = [[word for word in part.strip("; ").split(", ") if word] for part in (able, planned)]
    typed = {strategy: strategy.replace("_", "-") for strategy in facts.instead}
    assert named[0] == [typed[each] for each in facts.instead if each in EXECUTABLE]
    assert named[1] == [typed[each] for each in facts.instead if each not in EXECUTABLE]


def test_every_strategy_that_a_kind_offers_is_explained_above() -> None:
    introduction = changes_topic().split(" (0)")[0]
    for strategy in sorted({strategy for facts in CHANGE_KINDS for strategy in facts.instead}):
        assert f"\n    {Strategy(strategy).replace('_', '-')} " in introduction
