"""The table of change kinds: one row per kind, and no unverified checkpoint is reused."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from core.changes.kinds import CHANGE_KINDS, ChangeKind, ChangeKindDefinition, CheckpointRefusal
from core.model.actions import Action

LABEL = 24
"""Width of the column CHANGE on a wide screen."""

IDS = [definition.kind.name for definition in CHANGE_KINDS]


def test_every_kind_has_one_row_and_no_other() -> None:
    assert Counter(definition.kind for definition in CHANGE_KINDS) == Counter(ChangeKind)
    assert all(definition.kind.definition is definition for definition in CHANGE_KINDS)


@pytest.mark.parametrize("name", ["code", "label", "severity"])
def test_no_two_kinds_share_a_code_a_label_or_a_severity(name: str) -> None:
    counted = Counter(getattr(definition, name) for definition in CHANGE_KINDS)
    assert [value for value, count in counted.items() if count > 1] == []


def test_codes_of_kinds_never_change_because_saved_plans_hold_them() -> None:
    assert {definition.kind.name: definition.code for definition in CHANGE_KINDS} == {
        "NONE": "0", "CHECKPOINT_LOST": "0b", "COMMENT_OR_FORMAT": "1", "DESCRIPTION": "2",
        "FILTER_OR_PROJECTION": "3", "COLUMN_ADDED": "4", "COLUMN_WIDENED": "4b", "COLUMNS_CHANGED": "5",
        "STATE_CHANGED": "6a",
        "CHANGE_BEFORE_STATE": "6b", "CHANGE_AFTER_STATE": "6c", "WATERMARK_DELAY": "6d", "SOURCES_CHANGED": "7a",
        "NAMED_SOURCES_CHANGED": "7b", "SOURCE_REPLACED": "7c", "TABLE_FORMAT": "8", "OUTPUT_MODE_OR_KEY": "9",
        "TRIGGER_OR_RATE": "11a", "PINNED_CONFIGURATION": "11b", "SCHEMA_TRACKING": "11c", "POOL": "12",
        "ENGINE": "13", "STATIC_SIDE": "14",
    }  # fmt: skip


@pytest.mark.parametrize("definition", CHANGE_KINDS, ids=IDS)
def test_a_row_states_everything_in_words(definition: ChangeKindDefinition) -> None:
    assert 0 < len(definition.label) <= LABEL and definition.why and definition.loss_words


def test_every_rebuilt_kind_is_more_severe_than_kinds_that_keep_the_table() -> None:
    rebuilt = {definition.severity for definition in CHANGE_KINDS if definition.action is Action.REBUILD}
    kept = {definition.severity for definition in CHANGE_KINDS if definition.action is not Action.REBUILD}
    assert max(kept) < min(rebuilt)


@pytest.mark.parametrize("definition", CHANGE_KINDS, ids=IDS)
def test_a_rebuilt_kind_gives_a_reason_to_end_its_checkpoint_or_leaves_it_to_the_state(
    definition: ChangeKindDefinition,
) -> None:
    if definition.action is Action.REBUILD:
        assert definition.judged_by_state or definition.breaks_checkpoint


def test_a_rebuilt_kind_without_a_rule_for_its_checkpoint_does_not_continue_from_it() -> None:
    silent = replace(ChangeKind.TABLE_FORMAT.definition, breaks_checkpoint=None)
    assert silent.why_not_from_checkpoint is CheckpointRefusal.UNPROVEN
    assert replace(silent, action=Action.RESTART).why_not_from_checkpoint is None


def test_a_restart_decided_by_the_state_is_not_refused_by_its_kind() -> None:
    by_state = {definition.kind for definition in CHANGE_KINDS if definition.judged_by_state}
    assert by_state == {ChangeKind.STATE_CHANGED, ChangeKind.CHANGE_BEFORE_STATE}
    assert {definition.why_not_from_checkpoint for definition in CHANGE_KINDS if definition.judged_by_state} == {None}


def test_the_table_of_the_page_is_the_table_of_the_code() -> None:
    page = Path(__file__).parents[3] / "core" / "changes" / "README.md"
    rows = [line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    assert rows[2:] == [_row(definition) for definition in CHANGE_KINDS]


def _row(definition: ChangeKindDefinition) -> str:
    refused = definition.why_not_from_checkpoint
    restart = "if the state allows it" if definition.judged_by_state else f"no: {refused.of()}" if refused else "yes"
    parts = (
        definition.code,
        f"`{definition.kind.name}`",
        definition.label,
        str(definition.severity),
        definition.action,
        restart,
    )
    return f"| {' | '.join(parts)} |"
