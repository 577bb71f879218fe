"""Kinds of change: every row that is told apart, on real SQL, as text pairs in fixtures/plans/changes.txt."""

from dataclasses import replace
from pathlib import Path

import pytest

from core.changes import Change, Revision, classify, read_revision, removed_columns, revision_of
from core.layouts import settings_as_text
from core.names import TableName
from core.plan import Action, Texts
from core.project import Settings
from tests.core.declaring import table

FIXTURE = Path(__file__).parents[1] / "fixtures" / "plans" / "changes.txt"
YML = settings_as_text(Settings())


def cases() -> list[tuple[str, str, str, str]]:
    found = []
    for block in FIXTURE.read_text().split("\n## ")[1:]:
        name, _, body = block.partition("\n")
        old, _, rest = body.partition("\n----\n")
        new, _, expected = rest.partition("\n====\n")
        found.append((name, old, new, expected.strip()))
    return found


def revision(text: str, before: str = "") -> Revision:
    ddl, _, dml = text.strip().partition("\n")
    old_ddl, _, old_dml = before.strip().partition("\n")
    texts = Texts(old_ddl if ddl == "…" else ddl, old_dml if dml == "…" else dml, YML)
    found = read_revision(TableName("t"), texts, Settings())
    assert found is not None, text
    return found


@pytest.mark.parametrize(("name", "old", "new", "expected"), cases(), ids=lambda text: text.split("\n")[0][:40])
def test_a_change_has_its_row_and_evidence(name: str, old: str, new: str, expected: str) -> None:
    found = classify(revision(old), revision(new, old))
    head, *evidence = expected.splitlines()
    assert f"{found.row} {found.action}" == head
    assert found.classified
    if evidence:
        assert list(found.evidence) == evidence
    else:
        assert found.evidence or found.row == "0"


def test_the_most_severe_row_wins_and_the_evidence_names_all() -> None:
    old = revision("CREATE TABLE t (id BIGINT) USING parquet;\nINSERT INTO t SELECT id FROM STREAM src")
    new = revision("CREATE TABLE t (id BIGINT) USING parquet;\nINSERT INTO t SELECT id FROM STREAM src WHERE id > 1")
    found = classify(old, replace(new, settings=Settings(trigger="5 seconds", owner="x")))
    assert found == Change("3", Action.RESTART, ("+ WHERE 1 < id", "trigger: 10 seconds → 5 seconds", "owner changed"))


@pytest.mark.parametrize(
    ("settings", "row"),
    [
        (Settings(trigger="1 minute"), "11a"),
        (Settings(owner="x"), "2"),
        (Settings(tags=("x",)), "2"),
        (Settings(runbook="x"), "2"),
        (Settings(description="x"), "2"),
        (Settings(static_refresh=True), "2"),
        (Settings(key=("id",)), "9"),
        (Settings(mode="upsert"), "9"),
    ],
)
def test_a_setting_has_its_row(settings: Settings, row: str) -> None:
    old = revision_of(table("t", "src"))
    assert classify(old, replace(old, settings=settings)).row == row


def test_deployed_texts_that_cannot_be_read_give_no_revision() -> None:
    name = TableName("t")
    assert read_revision(name, Texts("CREATE TABLE t (id BIGINT) USING parquet", "INSERT INTO"), Settings()) is None
    assert read_revision(name, Texts("nonsense", ""), Settings()) is None
    other = Texts("CREATE TABLE t (id BIGINT) USING parquet", "INSERT INTO u SELECT id FROM STREAM src")
    assert read_revision(name, other, Settings()) is None


def test_a_deployed_yml_without_trigger_is_read_over_the_projects_defaults() -> None:
    texts = Texts("CREATE TABLE t (id BIGINT) USING parquet", "", "owner: me")
    found = read_revision(TableName("t"), texts, Settings(trigger="3 seconds"))
    assert found is not None and found.settings == Settings(trigger="3 seconds", owner="me")


def test_removed_columns_ignore_case() -> None:
    old = revision("CREATE TABLE t (Id BIGINT, V INT) USING parquet;\nINSERT INTO t SELECT id, v FROM STREAM src")
    new = revision("CREATE TABLE t (ID BIGINT) USING parquet;\nINSERT INTO t SELECT id FROM STREAM src")
    assert removed_columns(old, new) == ("v",)
