"""Facts parsed from EXPLAIN; the texts come from Spark 4.2.0 over Connect."""

from core.changes.spark_questions_and_answers import AnalysedOperator, AnalysedRead
from pipelines.spark_connect.explain_output import (
    exception_in,
    normalized_plan,
    plans_of_explain,
    refusal_of,
    stateful_operators_of,
    tables_read_by,
)

DATABASE = "headgate_analysis_1_0"
EXPLAINED = """== Parsed Logical Plan ==
~WithCTE

== Analyzed Logical Plan ==
i: bigint, c: bigint
~WithCTE
:- ~CTERelationDef 14, false
:  +- ~SubqueryAlias q
:     +- ~Project [i#606L, k#607]
:        +- ~SubqueryAlias spark_catalog.headgate_analysis_1_0.a
:           +- StreamingRelation FileSource[file:/w/a], [i#606L, k#607], name="first"
+- ~Project [i#606L, c#614L]
   +- ~Filter i#643L IN (list#642 [k#644])
      :  +- Project [i#648L]
      :     +- SubqueryAlias spark_catalog.headgate_analysis_1_0.dim
      :        +- Relation spark_catalog.headgate_analysis_1_0.dim[i#648L,k#649] json
      +- ~SubqueryAlias x
         +- ~SubqueryAlias spark_catalog.headgate_analysis_1_0.a
            +- StreamingRelation FileSource[file:/w/a], [i#7L, k#8], name=<Unassigned>

== Optimized Logical Plan ==
~Project [i#606L]
+- ~EventTimeWatermark 8f96e565-0d5d-4d5f-a8c6-637bbf0735b7, ts#608: timestamp, 1 minutes

== Physical Plan ==
*(8) Project [i#606L, c#614L]
+- StreamingSymmetricHashJoin [k#607], [k#613, ts#9-T60000ms], Inner, condition = [ leftOnly = null ], state info [ checkpoint = <unknown>, runId = 01b4, opId = 0, ver = 0, numPartitions = 2] stateStoreCkptIds = None, Append
   :- Exchange hashpartitioning(k#607, 2), REQUIRED_BY_STATEFUL_OPERATOR, [plan_id=168]
   :  +- *(2) Project [i#606L, k#607]
   +- *(7) HashAggregate(keys=[k#607, window#612-T60000ms], functions=[count(1)], output=[k#613, c#614L])
      +- StateStoreSave [k#607, window#612-T60000ms], state info [ checkpoint = <unknown>, opId = 1, numPartitions = 2] stateStoreCkptIds = None, Append, 2
         +- StateStoreRestore [k#607, window#612-T60000ms], state info [ checkpoint = <unknown>, opId = 1, numPartitions = 2] stateStoreCkptIds = None, 2
            +- StreamingGlobalLimit 3, state info [ checkpoint = <unknown>, opId = 0, numPartitions = 2] stateStoreCkptIds = None, Append
               +- Filter (k#1 = StateStoreSave [x], nothing kept)
                  +- OfALaterSpark [a#1], state info [ checkpoint = <unknown> ]
"""  # noqa: E501 - As Spark writes it.


def test_tables_are_those_under_an_alias_of_our_database_streamed_or_not() -> None:
    found = tables_read_by(plans_of_explain(EXPLAINED)["Analyzed"], DATABASE)
    assert found == (AnalysedRead("a", True, "first"), AnalysedRead("dim", False), AnalysedRead("a", True))


def test_operators_are_nodes_with_state_info_and_unknown_ones_keep_their_name() -> None:
    assert stateful_operators_of(plans_of_explain(EXPLAINED)["Physical"]) == (
        AnalysedOperator("StreamingSymmetricHashJoin", "stream_join", ("k", "k", "ts")),
        AnalysedOperator("StateStoreSave", "aggregate", ("k", "window")),
        AnalysedOperator("StreamingGlobalLimit", "limit"),
        AnalysedOperator("OfALaterSpark", "OfALaterSpark", ("a",)),
    )


def test_plan_without_ids_is_the_same_for_the_same_plan_alone() -> None:
    plan = plans_of_explain(EXPLAINED)["Optimized"]
    again = plan.replace("606", "77").replace("608", "79").replace("8f96e565", "00000000")
    assert normalized_plan(again) == normalized_plan(plan)
    assert normalized_plan(plan.replace("ts#608", "ts#606")) != normalized_plan(plan)


def test_an_exception_instead_of_a_plan_is_a_failure_and_a_plan_is_not() -> None:
    failed = "org.apache.spark.sql.AnalysisException: Stream-stream join without equality predicate;\nJoin Inner"
    assert exception_in(failed).startswith("Stream-stream join without equality")
    assert exception_in(plans_of_explain(EXPLAINED)["Physical"]) == ""


def test_places_in_a_refusal_are_those_of_the_statement() -> None:
    assert refusal_of("no column x.; line 3 pos 7", "C").message == "no column x, line 2 pos 7"
    assert refusal_of("near 'x' (line 2, pos 1)", "C").message == "near 'x' (line 1, pos 1)"
