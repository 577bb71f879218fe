"""Kinds of change: every row that is told apart, on real SQL, as text pairs in fixtures/plans."""

from collections import Counter
from dataclasses import replace

import pytest
from revision_pairs import YML, Edit, edits, revision

from core.changes.classification import Change, classify
from core.changes.kinds import ACTION_BY_ROW, CHANGE_BY_ROW, REASON_BY_ROW, ROWS_BY_SEVERITY
from core.model.actions import Action
from core.model.names import TableName
from core.project.model import Settings
from core.project.revision import RevisionTexts, removed_columns
from core.project_files.revision_reader import read_revision, revision_of
from tests.support.domain_builders import table

PAIRS = edits("changes.txt")
FILTERED = "CREATE TABLE t (id BIGINT) USING parquet;", "INSERT INTO t SELECT id FROM STREAM src WHERE id > 1"


@pytest.mark.parametrize("edit", PAIRS, ids=lambda edit: edit.name)
def test_a_change_has_its_row_and_evidence(edit: Edit) -> None:
    found = classify(edit.old, edit.new)
    assert [f"{found.row} {found.action}", *found.evidence] == list(edit.expected)
    assert found.classified


@pytest.mark.parametrize("edit", PAIRS, ids=lambda edit: edit.name)
def test_a_revision_beside_itself_is_kept(edit: Edit) -> None:
    assert classify(edit.old, edit.old) == classify(edit.new, edit.new) == Change("0", Action.KEEP)


@pytest.mark.parametrize("edit", PAIRS, ids=lambda edit: edit.name)
def test_what_is_kept_or_recorded_is_so_in_both_directions(edit: Edit) -> None:
    there, back = classify(edit.old, edit.new), classify(edit.new, edit.old)
    assert (there.action is Action.KEEP) == (back.action is Action.KEEP)
    assert (there.action is Action.RECORD) == (back.action is Action.RECORD)


def test_every_row_that_can_be_expressed_has_three_pairs() -> None:
    counted = Counter(edit.expected[0].split()[0] for edit in PAIRS)
    assert {row: counted[row] for row in ROWS_BY_SEVERITY if counted[row] < 3} == {}


def test_every_row_has_words_and_a_mild_action_is_a_deliberate_one() -> None:
    assert {*ROWS_BY_SEVERITY} - {"0"} <= {*REASON_BY_ROW} and {*ROWS_BY_SEVERITY} <= {*CHANGE_BY_ROW}
    assert {*ACTION_BY_ROW} <= {*ROWS_BY_SEVERITY}


def test_the_most_severe_row_wins_and_the_evidence_names_all() -> None:
    old = revision(RevisionTexts(FILTERED[0], "INSERT INTO t SELECT id FROM STREAM src", YML))
    new = revision(RevisionTexts(*FILTERED, YML))
    found = classify(old, replace(new, settings=Settings(trigger="5 seconds", owner="x")))
    evidence = ("filter added: 1 < id", "trigger: 10 seconds → 5 seconds", "owner changed")
    assert found == Change("3", Action.RESTART, evidence)


@pytest.mark.parametrize(
    ("settings", "row"),
    [
        (Settings(trigger="1 minute"), "11a"),
        (Settings(owner="x"), "2"),
        (Settings(tags=("x",)), "2"),
        (Settings(runbook="x"), "2"),
        (Settings(description="x"), "2"),
        (Settings(static_refresh=True), "2"),
        (Settings(reads="stream"), "2"),
        (Settings(readers=("bi (me)",)), "2"),
        (Settings(key=("id",)), "9"),
        (Settings(mode="upsert"), "9"),
    ],
)
def test_a_setting_has_its_row(settings: Settings, row: str) -> None:
    old = revision_of(table("t", "src"))
    assert classify(old, replace(old, settings=settings)).row == row


def test_what_a_revision_runs_on_is_compared_only_where_both_are_known() -> None:
    old = revision(RevisionTexts(*FILTERED, YML))
    assert classify(old, replace(old, engine="4.3.0")) == Change("0", Action.KEEP)
    assert classify(replace(old, engine="4.2.0"), replace(old, engine="4.3.0")).row == "13"


def test_a_setting_that_makes_a_table_a_stream_changes_the_sources() -> None:
    ddl = "CREATE TABLE t (id BIGINT) USING parquet"
    dml = "INSERT INTO t SELECT a.id FROM STREAM a JOIN b ON a.id = b.id"
    old, new = revision(RevisionTexts(ddl, dml, YML)), revision(RevisionTexts(ddl, dml, f"{YML}reads: stream\n"))
    assert classify(old, new).row == "6a"


def test_deployed_texts_that_cannot_be_read_give_no_revision() -> None:
    name = TableName("t")
    assert (
        read_revision(name, RevisionTexts("CREATE TABLE t (id BIGINT) USING parquet", "INSERT INTO"), Settings())
        is None
    )
    assert read_revision(name, RevisionTexts("nonsense", ""), Settings()) is None
    other = RevisionTexts("CREATE TABLE t (id BIGINT) USING parquet", "INSERT INTO u SELECT id FROM STREAM src")
    assert read_revision(name, other, Settings()) is None


def test_a_trigger_is_no_business_of_a_table_that_others_fill() -> None:
    old = revision(RevisionTexts("CREATE TABLE t (id BIGINT) USING parquet LOCATION 'landing'", "", YML))
    found = classify(old, replace(old, settings=Settings(trigger="5 seconds"), texts=replace(old.texts, yml="")))
    assert found == Change("2", Action.RECORD, ("trigger: 10 seconds → 5 seconds",))


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
