"""Kinds of change on real SQL, one text pair per kind in fixtures/plans."""

from collections import Counter
from dataclasses import replace

import pytest
from revision_pairs import YML, Edit, edits, revision

from core.changes.classification import Change, classify
from core.changes.kinds import CHANGE_KINDS, ChangeKind
from core.model.actions import Action
from core.model.names import TableName
from core.project.model import Settings
from core.project.revision import RevisionTexts, removed_columns
from core.project_reader.revision_reader import read_revision, revision_of
from tests.support.domain_builders import evidence_of, table

PAIRS = edits("changes.txt")
FILTERED = "CREATE TABLE t (id BIGINT) USING parquet;", "INSERT INTO t SELECT id FROM STREAM src WHERE id > 1"


@pytest.mark.parametrize("edit", PAIRS, ids=lambda edit: edit.name)
def test_a_change_has_its_kind_and_evidence(edit: Edit) -> None:
    found = classify(edit.old, edit.new)
    assert [f"{found.kind.definition.code} {found.action}", *evidence_of(found)] == list(edit.expected)
    assert found.classified


@pytest.mark.parametrize("edit", PAIRS, ids=lambda edit: edit.name)
def test_an_unchanged_revision_is_kept(edit: Edit) -> None:
    assert classify(edit.old, edit.old) == classify(edit.new, edit.new) == Change(ChangeKind.NONE, Action.KEEP)


@pytest.mark.parametrize("edit", PAIRS, ids=lambda edit: edit.name)
def test_kept_and_recorded_changes_are_so_in_both_directions(edit: Edit) -> None:
    there, back = classify(edit.old, edit.new), classify(edit.new, edit.old)
    assert (there.action is Action.KEEP) == (back.action is Action.KEEP)
    assert (there.action is Action.RECORD) == (back.action is Action.RECORD)


def test_every_kind_that_texts_can_express_has_three_pairs() -> None:
    counted = Counter(edit.expected[0].split()[0] for edit in PAIRS)
    told = [facts for facts in CHANGE_KINDS if facts.kind is not ChangeKind.CHECKPOINT_LOST]
    assert {facts.kind: counted[facts.code] for facts in told if counted[facts.code] < 3} == {}


def test_the_most_severe_kind_wins_and_the_evidence_names_all() -> None:
    old = revision(RevisionTexts(FILTERED[0], "INSERT INTO t SELECT id FROM STREAM src", YML))
    new = revision(RevisionTexts(*FILTERED, YML))
    found = classify(old, replace(new, settings=Settings(trigger="5 seconds", owner="x")))
    assert (found.kind, found.action) == (ChangeKind.FILTER_OR_PROJECTION, Action.RESTART)
    assert evidence_of(found) == ("filter added: id > 1", "trigger: 10 seconds → 5 seconds", "owner changed")


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        (Settings(trigger="1 minute"), ChangeKind.TRIGGER_OR_RATE),
        (Settings(owner="x"), ChangeKind.DESCRIPTION),
        (Settings(tags=("x",)), ChangeKind.DESCRIPTION),
        (Settings(runbook="x"), ChangeKind.DESCRIPTION),
        (Settings(description="x"), ChangeKind.DESCRIPTION),
        (Settings(reads="stream"), ChangeKind.DESCRIPTION),
        (Settings(readers=("bi (me)",)), ChangeKind.DESCRIPTION),
        (Settings(key=("id",)), ChangeKind.OUTPUT_MODE_OR_KEY),
        (Settings(mode="upsert"), ChangeKind.OUTPUT_MODE_OR_KEY),
        (Settings(sequence="id"), ChangeKind.OUTPUT_MODE_OR_KEY),
        (Settings(deletes="id < 0"), ChangeKind.OUTPUT_MODE_OR_KEY),
    ],
)
def test_a_setting_has_its_kind(settings: Settings, kind: ChangeKind) -> None:
    old = revision_of(table("t", "src"))
    assert classify(old, replace(old, settings=settings)).kind is kind


def test_pool_and_engine_are_compared_only_if_both_are_known() -> None:
    old = revision(RevisionTexts(*FILTERED, YML))
    assert classify(old, replace(old, engine="4.3.0")) == Change(ChangeKind.NONE, Action.KEEP)
    assert classify(replace(old, engine="4.2.0"), replace(old, engine="4.3.0")).kind is ChangeKind.ENGINE


def test_a_setting_that_makes_a_table_a_stream_changes_the_sources() -> None:
    ddl = "CREATE TABLE t (id BIGINT) USING parquet"
    dml = "INSERT INTO t SELECT a.id FROM STREAM a JOIN b ON a.id = b.id"
    old, new = revision(RevisionTexts(ddl, dml, YML)), revision(RevisionTexts(ddl, dml, f"{YML}reads: stream\n"))
    assert classify(old, new).kind is ChangeKind.STATE_CHANGED


def test_deployed_texts_that_cannot_be_read_give_no_revision() -> None:
    name = TableName("t")
    assert (
        read_revision(name, RevisionTexts("CREATE TABLE t (id BIGINT) USING parquet", "INSERT INTO"), Settings())
        is None
    )
    assert read_revision(name, RevisionTexts("nonsense", ""), Settings()) is None
    other = RevisionTexts("CREATE TABLE t (id BIGINT) USING parquet", "INSERT INTO u SELECT id FROM STREAM src")
    assert read_revision(name, other, Settings()) is None


def test_an_external_table_has_no_trigger() -> None:
    old = revision(RevisionTexts("CREATE TABLE t (id BIGINT) USING parquet LOCATION 'landing'", "", YML))
    found = classify(old, replace(old, settings=Settings(trigger="5 seconds"), texts=replace(old.texts, yml="")))
    assert (found.kind, found.action) == (ChangeKind.DESCRIPTION, Action.RECORD)
    assert evidence_of(found) == ("trigger: 10 seconds → 5 seconds",)


def test_a_deployed_yml_without_trigger_is_read_over_the_projects_defaults() -> None:
    texts = RevisionTexts("CREATE TABLE t (id BIGINT) USING parquet", "", "owner: me")
    found = read_revision(TableName("t"), texts, Settings(trigger="3 seconds"))
    assert found is not None and found.settings == Settings(trigger="3 seconds", owner="me")


def test_removed_columns_ignore_case() -> None:
    old = revision(
        RevisionTexts("CREATE TABLE t (Id BIGINT, V INT) USING parquet", "INSERT INTO t SELECT id, v FROM STREAM src")
    )
    new = revision(RevisionTexts("CREATE TABLE t (ID BIGINT) USING parquet", "INSERT INTO t SELECT id FROM STREAM src"))
    assert removed_columns(old, new) == ("v",)
