"""Spark's answers in a plan: what is asked, agreements, disagreements; a missing answer changes nothing."""

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest
import small_project as texts_of

from core.changes.spark_cross_check import disagreements
from core.changes.spark_questions_and_answers import (
    AnalysedColumn,
    AnalysedOperator,
    AnalysedRead,
    AnalysedStatement,
    AnalysisAnswer,
    AnalysisRefusal,
    answer_from_json,
    question_from_json,
)
from core.model.errors import UsageError
from core.model.names import TableName as T
from core.observed.planner_input import ObservedDeployment
from core.plan.codec import plan_as_json, plan_from_json
from core.plan.descriptions import node_why
from core.plan.model import Plan, PlanNode
from core.plan.rendering import plan_lines, spark_sentences
from core.plan.request import PlanRequest
from core.planner.planner import make_plan, questions_of
from core.project.model import Project
from core.sql.statement_reader import read_statements
from tests.support.domain_builders import actions, deployed, evidence_of

COLUMNS = (AnalysedColumn("id", "bigint", True), AnalysedColumn("kind", "string", True))
AGREES = AnalysedStatement(sources=(AnalysedRead("a", True),), columns=COLUMNS)
EVERYTHING = PlanRequest(everything=True, children="all")


def world(old: str, new: str) -> tuple[Project, dict[T, ObservedDeployment]]:
    """Return a project with a new text of b, over deployments of the old text."""
    before = texts_of.project(texts_of.texts(b=old))
    observed = {name: deployed(table, **({"version": 1} if table.dml else {})) for name, table in before.tables.items()}
    for name in ("a",):
        observed[T(name)] = replace(observed[T(name)], bindings=())
    return texts_of.project(texts_of.texts(b=new)), observed


def planned(declared: Project, observed: Mapping[T, ObservedDeployment], answer: AnalysisAnswer | None = None) -> Plan:
    request = PlanRequest(tables=(T("b"),))
    plan = make_plan(declared, "dev", observed, request)
    packed = {q.key: json.dumps(answer.as_json()) for q in questions_of(plan, declared, observed)} if answer else {}
    return make_plan(declared, "dev", observed, request, answers=packed)


def node(plan: Plan, name: str = "b") -> PlanNode:
    return next(node for node in plan.nodes if node.table == name)


FILTERED = ("SELECT id, kind FROM STREAM a", "SELECT id, kind FROM STREAM a WHERE id > 1")
COMMENTED = ("SELECT id, kind FROM STREAM a", "SELECT id, kind FROM STREAM a -- all of them")


def test_without_an_answer_the_change_stays_as_we_read_it() -> None:
    found = node(planned(*world(*FILTERED)))
    assert (found.row, found.classified, found.confirmed_by_spark) == ("3", True, None)


def test_agreement_confirms_and_changes_nothing_else() -> None:
    known = world(*FILTERED)
    plain, confirmed = planned(*known), planned(*known, AnalysisAnswer("4.2.0", AGREES, AGREES, same=False))
    assert node(confirmed) == replace(node(plain), confirmed_by_spark=True)
    assert confirmed.steps == plain.steps and confirmed.warnings == plain.warnings


@pytest.mark.parametrize("same, confirmed", [(True, True), (False, None)])
def test_same_meaning_is_confirmed_where_spark_sees_it(same: bool, confirmed: bool | None) -> None:
    found = node(planned(*world(*COMMENTED), AnalysisAnswer("4.2.0", AGREES, AGREES, same=same)))
    assert (found.row, found.action, found.confirmed_by_spark) == ("1", "record", confirmed)
    assert ("same meaning, confirmed by Spark" in evidence_of(found)) is same


@pytest.mark.parametrize(
    "opinion, words",
    [
        (replace(AGREES, sources=(AnalysedRead("a", False),)), "it reads a, Headgate found STREAM a"),
        (replace(AGREES, columns=COLUMNS[:1]), "it returns 1 columns, Headgate found 2"),
        (replace(AGREES, columns=(COLUMNS[0], AnalysedColumn("sort", "string", True))),
         "it names a column sort, Headgate found kind"),
        (replace(AGREES, operators=(AnalysedOperator("StateStoreSave", "aggregate", ("id",)),)),
         "its state is aggregate, Headgate found nothing"),
        (AnalysedStatement(refused=AnalysisRefusal("X.Y", "no such thing")),
         "it rejects the statement (X.Y): no such thing"),
        (AnalysedStatement(refused=AnalysisRefusal("", "Sorting is not supported")),
         "it rejects the statement: Sorting is not supported"),
        (AnalysedStatement(refused=AnalysisRefusal("X.Y", "no column x, line 3 pos 7")),
         "it rejects the statement at line 3 of its SQL (X.Y): no column x"),
        (AnalysedStatement(refused=AnalysisRefusal("X.Y", f"{'near x' * 40} (line 1, pos 1)")),
         f"it rejects the statement at line 1 of its SQL (X.Y): {('near x' * 40)[:199]}…"),
    ],
)  # fmt: skip
def test_disagreement_is_the_worst_row_and_is_seen_everywhere(opinion: AnalysedStatement, words: str) -> None:
    plan = planned(*world(*FILTERED), AnalysisAnswer("4.2.0", opinion, AGREES, same=False))
    found = node(plan)
    assert (found.row, found.action, found.classified, found.confirmed_by_spark) == ("6a", "rebuild", False, False)
    assert evidence_of(found)[0] == f"Spark disagrees: {words}"
    assert any(warned.summary == evidence_of(found)[0] for warned in plan.warnings)
    drawn = " ".join(" ".join(plan_lines(plan, 100)).split())
    assert "Spark disagrees" in drawn and "it is treated as the most severe change: b" in drawn
    assert f"  evidence: {evidence_of(found)[0]}" in node_why(plan, T("b"))
    data = plan_as_json(plan)
    (entry,) = [entry for entry in data["nodes"] if entry["table"] == "b"]
    assert (entry["classified"], entry["confirmed_by_spark"]) == (False, False)
    assert plan_from_json(data) == plan


def test_agreement_on_an_unknown_change_confirms_nothing() -> None:
    declared, observed = world(*FILTERED)
    unknown = {**observed, T("b"): replace(observed[T("b")], deployed=None, revision="changed")}
    found = node(planned(declared, unknown, AnalysisAnswer("4.2.0", AGREES)))
    assert (found.row, found.classified, found.confirmed_by_spark) == ("6a", False, None)


def test_disagreement_on_the_deployed_text_counts_as_well() -> None:
    other = replace(AGREES, operators=(AnalysedOperator("StreamingGlobalLimit", "limit"),))
    found = node(planned(*world(*COMMENTED), AnalysisAnswer("4.2.0", AGREES, other, same=True)))
    assert (found.row, found.classified) == ("6a", False)
    assert evidence_of(found)[0].startswith("Spark disagrees on the deployed text: its state is limit")


def test_type_that_changes_under_an_unchanged_table_is_a_disagreement() -> None:
    widened = replace(AGREES, columns=(replace(COLUMNS[0], type="int"), COLUMNS[1]))
    found = node(planned(*world(*FILTERED), AnalysisAnswer("4.2.0", widened, AGREES, same=False)))
    assert (found.row, found.classified) == ("6a", False)
    assert (
        evidence_of(found)[0] == "Spark disagrees: the type of column id changed from bigint to int in the same table"
    )


def test_a_type_that_differs_from_the_declaration_is_reported() -> None:
    widened = replace(AGREES, columns=(replace(COLUMNS[0], type="int"), COLUMNS[1]))
    found = node(planned(*world(*FILTERED), AnalysisAnswer("4.2.0", widened, widened, same=False)))
    assert (found.row, found.confirmed_by_spark) == ("3", True)
    assert evidence_of(found)[-1] == "Spark reads column id as int, but the table declares bigint"


def test_a_new_statement_that_spark_refuses_is_reported_and_not_called_classified() -> None:
    declared, _ = world(*FILTERED)
    landed_and_a = {T("landed"), T("a")}
    plan = make_plan(declared, "dev", {}, EVERYTHING)
    refused = AnalysisAnswer("4.2.0", AnalysedStatement(refused=AnalysisRefusal("X", "no")))
    asked = [q for q in questions_of(plan, declared, {}) if dict(q.new.tables).keys() & landed_and_a == {T("a")}]
    packed = {question.key: json.dumps(refused.as_json()) for question in asked}
    found = make_plan(declared, "dev", {}, EVERYTHING, answers=packed)
    assert actions(found) == actions(plan)
    assert (node(found).action, node(found).classified, node(found).row) == ("start", False, "6a")
    assert "Spark disagrees: it rejects the statement (X): no" in {warned.summary for warned in found.warnings}


def test_an_agreeing_answer_keeps_the_plan_and_a_disagreeing_one_changes_it() -> None:
    known = world(*FILTERED)
    agrees, refuses = (
        AnalysisAnswer("4.2.0", said, AGREES, same=False)
        for said in (AGREES, AnalysedStatement(refused=AnalysisRefusal("X", "no")))
    )
    assert planned(*known, agrees).hash == planned(*known).hash != planned(*known, refuses).hash
    assert planned(*known, refuses).hash == planned(*known, refuses).hash


def test_damaged_answer_counts_as_none() -> None:
    declared, observed = world(*FILTERED)
    plan = planned(declared, observed)
    (question,) = questions_of(plan, declared, observed)
    for packed in ("{", "{}", "[1]", json.dumps({"engine": "4", "new": {}, "old": None, "same": None})):
        answers = {question.key: packed}
        assert make_plan(declared, "dev", observed, plan.request, answers=answers) == plan


def test_question_holds_both_sides_with_the_tables_they_read() -> None:
    declared, observed = world(*FILTERED)
    (question,) = questions_of(planned(declared, observed), declared, observed)
    ddl = declared.tables[T("a")].ddl.text
    assert question.new.select == "SELECT id, kind FROM STREAM a WHERE id > 1"
    assert question.old is not None and question.old.select == "SELECT id, kind FROM STREAM a"
    assert question.new.tables == question.old.tables == ((T("a"), ddl),)
    assert question_from_json(json.loads(json.dumps(question.as_json()))) == question


def test_of_many_statements_only_the_first_are_named() -> None:
    files = texts_of.texts(**{f"t{n:02}": "SELECT id, kind FROM STREAM landed" for n in range(20)})
    plan = make_plan(texts_of.project(files), "dev", {}, EVERYTHING)
    (sentence,) = spark_sentences(plan)
    assert sentence == "not confirmed by Spark: a, t00, t01, t02, t03, t04, t05, t06 and 15 more"


def test_nothing_is_asked_where_only_the_settings_changed() -> None:
    files = texts_of.texts()
    declared = texts_of.project(files)
    observed = {name: deployed(table) for name, table in declared.tables.items()}
    folder = "pipelines/facts/p/b"
    changed = texts_of.project({**files, f"{folder}/b.yml": "owner: lee\n"})
    plan = make_plan(changed, "dev", observed, PlanRequest(tables=(T("b"),)))
    assert node(plan).row == "2"
    assert questions_of(plan, changed, observed) == ()


@pytest.mark.parametrize(
    "data", [None, [], {}, {"new": {"select": "x"}}, {"new": {"select": "x", "tables": {"a b": ""}}}]
)
def test_an_invalid_question_is_a_usage_error(data: object) -> None:
    with pytest.raises(UsageError, match="not a valid Spark analysis request"):
        question_from_json(data)


def test_answer_survives_a_round_trip() -> None:
    operators = (AnalysedOperator("StreamingSymmetricHashJoin", "stream_join", ("i", "i")),)
    full = replace(AGREES, operators=operators, refused=AnalysisRefusal("C", "m"))
    answer = AnalysisAnswer("4.2.0", full, AGREES, same=True)
    assert answer_from_json(json.loads(json.dumps(answer.as_json()))) == answer


def test_stream_that_is_not_written_is_written_for_spark() -> None:
    files = texts_of.texts(b="SELECT a.id, x.kind FROM a JOIN landed AS x ON a.id = x.id")
    files["headgate.yml"] += "defaults: {reads: stream}\n"
    declared = texts_of.project(files)
    plan = make_plan(declared, "dev", {}, EVERYTHING)
    selects = [question.new.select for question in questions_of(plan, declared, {})]
    assert "SELECT a.id, x.kind FROM STREAM a JOIN STREAM landed AS x ON a.id = x.id" in selects


def test_our_kinds_and_unnamed_columns_are_compared_as_spark_names_them() -> None:
    select = (
        "SELECT k, count(*) AS c, max(id) FROM STREAM s WATERMARK ts DELAY OF INTERVAL 1 MINUTE "
        "GROUP BY k, window(ts, '1 minute')"
    )
    ((parsed,), problems) = read_statements(f"INSERT INTO t {select}", "dml.t.sql")
    assert problems == ()
    said = AnalysedStatement(
        sources=(AnalysedRead("s", True),),
        columns=(
            AnalysedColumn("K", "string", True),
            AnalysedColumn("c", "bigint", False),
            AnalysedColumn("max(id)#1", "bigint", True),
        ),
        operators=(AnalysedOperator("StateStoreSave", "aggregate", ("k", "window")),),
    )
    assert disagreements(parsed, said, parsed.select) == ()
