"""Pairs of an old and a new revision from fixtures/plans: `## name`, old, ----, new, ====, expected.

A side is the DDL on one line, followed by the DML; `…` stands for the old side's text. Lines beginning with `yml:`,
`pool:` (a name, or key=value of its configuration), `engine:` and `parent:` (a table and its columns) are not SQL.
"""

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from core.model.names import TableName
from core.project.model import Pool, Settings
from core.project.revision import Revision, RevisionTexts
from core.project_reader.loader import settings_as_text
from core.project_reader.revision_reader import read_revision

PLANS = Path(__file__).parents[1] / "fixtures" / "plans"
WORDS = ("yml: ", "pool: ", "engine: ", "parent: ")
YML = settings_as_text(Settings())


@dataclass(frozen=True)
class Edit:
    """An edit as a pair of revisions; `marks` are the words after `|` in the pair's name."""

    name: str
    marks: tuple[str, ...]
    old: Revision
    new: Revision
    expected: tuple[str, ...]
    """The lines after ====."""


@cache
def edits(file: str) -> tuple[Edit, ...]:
    """Read the pairs in a file of fixtures/plans; their texts must be valid."""
    found = []
    for block in (PLANS / file).read_text(encoding="utf-8").split("\n## ")[1:]:
        head, _, body = block.partition("\n")
        before, _, rest = body.partition("\n----\n")
        after, _, expected = rest.partition("\n====\n")
        name, *marks = head.split(" | ")
        old = side(before, RevisionTexts())
        lines = tuple(expected.strip().splitlines())
        found.append(Edit(name, tuple(marks), old, side(after, old.texts), lines))
    return tuple(found)


@cache
def revision(texts: RevisionTexts) -> Revision:
    """Parse a revision from texts, which must be valid."""
    found = read_revision(TableName("t"), texts, Settings())
    assert found is not None, texts
    return found


def side(text: str, before: RevisionTexts) -> Revision:
    """Parse one side of a pair, whose texts must be valid; `before` are the texts of the old side."""
    lines = text.strip().splitlines()
    told = [tuple(line.split(": ", 1)) for line in lines if line.startswith(WORDS)]
    ddl, *dml = [line for line in lines if not line.startswith(WORDS)]
    yml = "\n".join(text for word, text in told if word == "yml")
    texts = RevisionTexts(
        before.ddl if ddl == "…" else ddl, before.dml if dml == ["…"] else "\n".join(dml), f"{yml}\n" if yml else YML
    )
    pools = [text for word, text in told if word == "pool"]
    conf = tuple((key, value) for key, equals, value in (text.partition("=") for text in pools) if equals)
    name = next((text for text in pools if "=" not in text), "local")
    engine = next((text for word, text in told if word == "engine"), "")
    parents = {TableName(text.split()[0]): tuple(text.split()[1:]) for word, text in told if word == "parent"}
    return replace(revision(texts), pool=Pool(name=name, conf=conf), engine=engine, parents=parents)
