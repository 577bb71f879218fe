"""Restarts that replace a rebuild, checked against Spark's actual behavior on the old checkpoint."""

from dataclasses import replace

import pytest
from revision_pairs import Edit, edits

from core.changes.checkpoint_compatibility import why_not_from_checkpoint
from core.changes.classification import classify
from core.changes.kinds import CHANGE_KINDS, ChangeKind, CheckpointRefusal
from core.model.actions import Action
from core.project.model import Pool

NAMED = (
    ("spark.sql.streaming.queryEvolution.enableSourceEvolution", "true"),
    ("spark.sql.streaming.offsetLog.formatVersion", "2"),
)


def started(edit: Edit) -> Edit:
    """Return an edit with the configuration on which its old text was started."""
    if "evolving" not in edit.marks:
        return edit
    old, new = (replace(each, pool=Pool(conf=NAMED)) for each in (edit.old, edit.new))
    return replace(edit, old=old, new=new)


EDITS = [started(edit) for edit in edits("same_checkpoint.txt")]
REBUILDS = [edit for edit in EDITS if classify(edit.old, edit.new).action is Action.REBUILD]


@pytest.mark.parametrize("edit", REBUILDS, ids=lambda edit: " ".join((edit.name, *edit.marks)))
def test_only_edits_that_spark_was_seen_to_accept_may_continue(edit: Edit) -> None:
    if not why_not_from_checkpoint(edit.old, edit.new):
        assert edit.expected[0] in ("equal", "seam", "differs")


def test_which_edits_may_continue() -> None:
    assert [edit.name for edit in REBUILDS if not why_not_from_checkpoint(edit.old, edit.new)] == [
        "a named source added to an aggregate",
        "a filter before an aggregate",
        "a window's length",
        "HAVING on a key",
        "HAVING that sets an aggregate beside a key",
        "a filter before a dedup",
        "left becomes inner join",
    ]


def test_a_rebuilt_kind_without_a_rule_for_its_checkpoint_does_not_continue(monkeypatch: pytest.MonkeyPatch) -> None:
    edit = next(edit for edit in edits("changes.txt") if classify(edit.old, edit.new).kind is ChangeKind.TABLE_FORMAT)
    assert why_not_from_checkpoint(edit.old, edit.new) is CheckpointRefusal.TABLE_WRITTEN_DIFFERENTLY
    silent = tuple(replace(facts, breaks_checkpoint=None) for facts in CHANGE_KINDS)
    monkeypatch.setattr("core.changes.checkpoint_compatibility.CHANGE_KINDS", silent)
    assert why_not_from_checkpoint(edit.old, edit.new) is CheckpointRefusal.UNPROVEN


def test_named_sources_can_be_added_and_removed_without_state_if_tracked_from_the_first_start() -> None:
    found = [edit for edit in EDITS if classify(edit.old, edit.new).kind is ChangeKind.NAMED_SOURCES_CHANGED]
    assert {(edit.marks, classify(edit.old, edit.new).action) for edit in found} == {
        ((), Action.REBUILD), (("evolving",), Action.RESTART),
    }  # fmt: skip
    assert all(edit.expected[0] in ("equal", "seam") for edit in found if edit.marks)
