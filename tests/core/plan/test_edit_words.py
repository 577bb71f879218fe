"""Evidence in words: every kind of edit has its line, similar edits share one, and all survive JSON."""

import json

import pytest

from core.model.evidence import Edit, EditKind, EditPlace, Evidence, Notice, evidence_from_json, in_statement
from core.model.names import TableName
from core.plan.descriptions import edit_of_rows, evidence_as_json, evidence_lines, evidence_words


@pytest.mark.parametrize("kind", EditKind)
def test_every_kind_of_edit_has_a_line_and_survives_a_round_trip_through_json(kind: EditKind) -> None:
    edit = Edit(kind, "x", "y", "t", ("c",), EditPlace.AFTER_STATE, "s")
    assert evidence_words(edit).startswith("s: after the state: ")
    written = json.loads(json.dumps(evidence_as_json(edit)))
    assert written["sentence"] == evidence_words(edit) and evidence_from_json(written) == edit


def test_a_notice_and_the_one_inside_it_survive_a_round_trip_through_json() -> None:
    notice = in_statement(
        TableName("t"), Notice.SPARK_DISAGREES.of(reading=Notice.SPARK_KEEPS.of(theirs=("limit",), ours=()))
    )
    assert evidence_words(notice) == "t: Spark disagrees: its state is limit, Headgate found "
    assert evidence_from_json(json.loads(json.dumps(evidence_as_json(notice)))) == notice


def test_no_edit_and_no_notice_have_one_name_in_json() -> None:
    assert not {kind.value for kind in EditKind} & {notice.code for notice in Notice}


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        ((Edit(EditKind.JOIN, after="JOIN d"),), "join added"),
        ((Edit(EditKind.JOIN_TYPE, "LEFT", "INNER", "d"),), "join changed"),
        ((Edit(EditKind.JOIN_CONDITION, after="d.id > 1", of="d"),), "join changed"),
        ((Edit(EditKind.OPERATOR, "a", "b", "stream_join"),), "join changed"),
        ((Edit(EditKind.OPERATOR, "a", "b", "aggregate"), Edit(EditKind.DISTINCT, "DISTINCT")), "DISTINCT removed"),
        ((Edit(EditKind.UNION_BRANCH, "SELECT 1"),), "UNION branch removed"),
        ((Edit(EditKind.SOURCE, "a", "b"), Edit(EditKind.LIMIT, "1", "2")), ""),
        ((Edit(EditKind.FILTER, after="a > 1"), Notice.CONFIRMED.of()), ""),
    ],
)
def test_an_edit_that_may_change_the_number_of_rows_is_named_in_two_words(
    seen: tuple[Evidence, ...], words: str
) -> None:
    assert edit_of_rows(seen) == words


def test_edits_of_one_sort_are_one_line_and_long_ones_are_cut() -> None:
    filters = (Edit(EditKind.FILTER, after="a > 1"), Notice.CONFIRMED.of(), Edit(EditKind.FILTER, after="b" * 200))
    assert evidence_lines(filters) == (
        f"filter added (2): a > 1 · {'b' * 89}…", "same meaning, confirmed by Spark",
    )  # fmt: skip


def test_json_holds_no_more_of_an_expression_than_its_sentence() -> None:
    edit = Edit(EditKind.EXPRESSION, after=f"'{'x' * 200}'", columns=("secret",))
    written = evidence_as_json(edit)
    assert written["after"] == f"'{'x' * 88}…" and written["sentence"] == evidence_words(edit)
    assert evidence_words(evidence_from_json(written)) == evidence_words(edit)
