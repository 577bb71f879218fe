"""Our action for each edit, checked against Spark's actual behavior on the old checkpoint."""

import pytest
from revision_pairs import Edit, edits

from core.changes.classification import classify
from core.model.actions import Action


@pytest.mark.parametrize("edit", edits("same_checkpoint.txt"), ids=lambda edit: " ".join((edit.name, *edit.marks)))
def test_the_recorded_behaviour_of_spark_allows_our_action(edit: Edit) -> None:
    """The outcomes were recorded on 4.2.0; `tests/drills/edited_statement_on_old_checkpoint.py` reproduces them."""
    outcome, row_and_action = edit.expected
    found = classify(edit.old, edit.new)
    assert f"{found.kind.definition.code} {found.action}" == row_and_action
    if found.action in (Action.KEEP, Action.RECORD):
        assert outcome == "equal"
    elif found.action is Action.RESTART:
        assert outcome in ("equal", "seam")
    else:
        assert found.evidence
