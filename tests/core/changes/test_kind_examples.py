"""The examples of the help are what the classifier says they are."""

import pytest
from revision_pairs import side

from core.changes.classification import classify
from core.changes.kind_examples import KIND_EXAMPLES
from core.changes.kinds import ChangeKind
from core.project.revision import Revision, RevisionTexts


def read(text: str) -> Revision:
    """Read a side, whose DDL has several lines, as `revision_pairs` does."""
    ddl, statement = text.split(";\n", 1)
    return side(f"{' '.join(ddl.splitlines())};\n{statement}", RevisionTexts())


@pytest.mark.parametrize("kind", KIND_EXAMPLES, ids=lambda kind: kind.name)
def test_an_example_is_classified_as_the_kind_that_it_explains(kind: ChangeKind) -> None:
    example = KIND_EXAMPLES[kind]
    found = classify(read(example.old), read(example.new))
    assert (found.kind, found.action) == (kind, kind.definition.action)
    assert found.classified


def test_every_kind_that_texts_can_express_has_an_example() -> None:
    assert {*ChangeKind} - {*KIND_EXAMPLES} == {ChangeKind.CHECKPOINT_LOST}


@pytest.mark.parametrize("kind", KIND_EXAMPLES, ids=lambda kind: kind.name)
def test_an_example_shows_its_edit_in_few_lines(kind: ChangeKind) -> None:
    lines = KIND_EXAMPLES[kind].lines
    assert (lines == ()) == (kind is ChangeKind.NONE) and len(lines) <= 4
