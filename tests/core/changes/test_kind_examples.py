"""The examples on the help page are classified as the page says."""

import pytest
from revision_pairs import side

from core.changes.classification import classify
from core.changes.kinds import KIND_EXAMPLES, ChangeKind, example_lines
from core.project.revision import Revision, RevisionTexts


def read(text: str) -> Revision:
    """Read one side of an example, whose DDL has several lines, as `revision_pairs` does."""
    ddl, statement = text.split(";\n", 1)
    return side(f"{' '.join(ddl.splitlines())};\n{statement}", RevisionTexts())


@pytest.mark.parametrize("kind", KIND_EXAMPLES, ids=lambda kind: kind.name)
def test_an_example_is_classified_as_the_kind_that_it_explains(kind: ChangeKind) -> None:
    found = classify(*map(read, KIND_EXAMPLES[kind]))
    assert (found.kind, found.action) == (kind, kind.definition.action)
    assert found.classified


def test_every_kind_that_texts_can_express_has_an_example() -> None:
    assert {*ChangeKind} - {*KIND_EXAMPLES} == {ChangeKind.CHECKPOINT_LOST}


@pytest.mark.parametrize("kind", KIND_EXAMPLES, ids=lambda kind: kind.name)
def test_an_example_shows_its_edit_in_few_lines(kind: ChangeKind) -> None:
    lines = example_lines(kind)
    assert (lines == ()) == (kind is ChangeKind.NONE) and len(lines) <= 4
