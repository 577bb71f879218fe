"""`--observed` documents: their contents, and every error that they can have."""

import json
import re
from typing import Any

import pytest
from example_counts import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.model.errors import InvalidProject, UsageError
from core.model.names import TableName
from core.model.states import State, WantedState
from core.observed.cluster_manager import ManagerWord
from core.observed.document import planner_input_as_document, planner_input_from_text
from core.observed.document_entries import FIELD_BY_KEY
from core.observed.planner_input import (
    ObservedDeployment,
    ObservedPool,
    OpenTicket,
    OtherVersion,
    PlannerInput,
    Seconds,
)
from core.observed.table_statistics import Headroom, TableStatistics
from core.observed.versions import Binding
from core.policy.roles_and_rules import Policy
from core.project.model import Pool
from core.project.revision import RevisionTexts
from core.text.yaml_writer import as_yaml, as_yaml_with_blocks


def known_of(document: Any, environment: str = "") -> PlannerInput:
    """Read an `--observed` document that is given as Python values."""
    return planner_input_from_text(as_yaml(document), "o.yml", environment)


def test_a_document_needs_only_names_and_states() -> None:
    found = known_of({"tables": {"A": {"state": "running"}, "b": "stopped"}})
    assert found.observed == {
        "a": ObservedDeployment("running", revision=""), "b": ObservedDeployment("stopped", revision=""),
    }  # fmt: skip


def test_an_empty_document_observes_nothing() -> None:
    documents: list[dict[str, Any]] = [{}, {"tables": {}}, {"tables": None}]
    for nothing in documents:
        assert known_of(nothing) == PlannerInput()


def test_a_document_may_be_as_exact_as_the_ledger() -> None:
    entry = {
        "state": "failed", "revision": "abc", "deployed": {"dml": "x", "ddl": "y"}, "since": "2026-01-01", "version": 3,
        "highest_version": 4, "bindings": [{"parent": "p", "version": 2, "streamed": True}], "checkpoint_id": "c",
        "checkpoint_ok": False, "pointer": "a__v3", "table_id": "t", "wanted": "stopped", "retained": [2, 1],
    }  # fmt: skip
    assert known_of({"tables": {"a": entry}}).observed[TableName("a")] == ObservedDeployment(
        state="failed", revision="abc", deployed=RevisionTexts("y", "x", ""), since="2026-01-01", version=3,
        highest_version=4, bindings=(Binding("p", 2, True),),  # type: ignore[arg-type]  # A plain name.
        checkpoint_id="c", checkpoint_ok=False, pointer="a__v3", table_id="t", wanted="stopped", retained=(1, 2),
    )  # fmt: skip


TEXT = st.text(st.characters(codec="utf-8"), max_size=40)
LINES = st.lists(
    st.sampled_from(["SELECT 1", "  -- ä: x ", "", "\t'a'", "#", "- b: |", "\r", "\u2028", "\x85", "\ufeff"])
)
SQL = LINES.map("\n".join) | TEXT
NAMES = st.sampled_from(["a", "b", "fct_orders", "on", "null"]).map(TableName)
NUMBERS = st.integers(0, 9)
BINDINGS = st.lists(st.builds(Binding, NAMES, NUMBERS, st.booleans()), max_size=2, unique=True).map(
    lambda found: tuple(sorted(found, key=lambda b: (b.parent, b.version, not b.streamed)))
)
VERSIONS = st.lists(st.integers(1, 9), unique=True).map(lambda found: tuple(sorted(found)))
SPARES = st.lists(
    st.builds(OtherVersion, st.integers(1, 9), TEXT, BINDINGS, st.booleans(), st.booleans(), st.booleans()),
    max_size=2, unique_by=lambda spare: spare.version,
).map(lambda found: tuple(sorted(found, key=lambda spare: -spare.version)))  # fmt: skip
TICKETS = st.lists(st.builds(OpenTicket, st.just("BI"), st.integers(1, 9), TEXT), max_size=2).map(tuple)
REPLACED = st.lists(
    st.builds(OtherVersion, st.integers(1, 9), bindings=BINDINGS),
    max_size=2,
    unique_by=lambda replaced: replaced.version,
).map(lambda found: tuple(sorted(found, key=lambda replaced: -replaced.version)))
MAYBE = st.none() | NUMBERS
REAL = st.none() | st.floats(0, 1e300, allow_nan=False)
FIGURES = st.builds(TableStatistics, REAL, MAYBE, st.booleans(), MAYBE, MAYBE, REAL, MAYBE, REAL, MAYBE, MAYBE)
CONF = st.dictionaries(TEXT, TEXT, max_size=2).map(lambda pairs: tuple(sorted(pairs.items())))
POOLS = st.builds(Pool, TEXT, st.none() | st.just("sc://host:1"), NUMBERS, TEXT, CONF)
TEXTS = st.builds(RevisionTexts, SQL, SQL, SQL)
WITH_VARIABLES = st.builds(RevisionTexts, SQL, SQL, SQL, st.builds(lambda value: (("v", value),), TEXT), TEXTS)
SEEN = st.builds(
    ObservedDeployment, state=st.sampled_from(State).map(str), revision=TEXT,
    deployed=st.none() | TEXTS | WITH_VARIABLES, since=TEXT, version=NUMBERS,
    highest_version=NUMBERS, bindings=BINDINGS, checkpoint_id=TEXT,
    checkpoint_ok=st.booleans(), pointer=TEXT, table_id=TEXT, wanted=st.sampled_from(WantedState).map(str),
    serial=NUMBERS, retained=VERSIONS, kept=VERSIONS, orphan_versions=SPARES, runs_on=REPLACED, tickets=TICKETS,
    begun=st.booleans(),
    pool=st.none() | POOLS, engine=TEXT, statistics=st.none() | FIGURES,
    replaced_ddl=st.lists(st.tuples(st.integers(1, 9), SQL), max_size=2).map(lambda found: tuple(sorted(found))),
    overlays=st.lists(st.tuples(TEXT, st.integers(1, 9)), max_size=2).map(lambda found: tuple(sorted(found))),
)  # fmt: skip
POLICIES = st.builds(
    Policy, max_replay_rows=MAYBE, max_replay_h=REAL, disk_factor=REAL, freeze=st.tuples(TEXT), approve=st.tuples(TEXT),
    roles=st.sampled_from([(), (("operate", ("me", "@us")),)]), protected=st.booleans(),
    protected_tables=st.tuples(NAMES),
)  # fmt: skip
SECONDS = st.floats(0.0, 1e6)
ROOMS = st.builds(Headroom, REAL, MAYBE, MAYBE, MAYBE, REAL, TEXT)
SAID = st.none() | st.builds(lambda id: ManagerWord.UNKNOWN.of(application=id, manager="m"), TEXT)
WORLDS = st.builds(
    PlannerInput, st.dictionaries(NAMES, SEEN, max_size=3), st.dictionaries(TEXT, TEXT, max_size=2), st.none() | ROOMS,
    st.none() | POLICIES, st.dictionaries(TEXT, st.builds(Seconds, SECONDS, SECONDS), max_size=2),
    pools=st.dictionaries(TEXT, st.builds(ObservedPool, st.booleans(), TEXT, TEXT, SAID), max_size=2),
)  # fmt: skip


@settings(max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(WORLDS)
def test_a_written_value_is_read_back_alike_from_json_and_yaml(known: PlannerInput) -> None:
    document = planner_input_as_document(known, "dev")
    assert planner_input_from_text(json.dumps(document), "x.json", "dev") == known
    assert planner_input_from_text(as_yaml_with_blocks(document), "x.yml", "dev") == known


def test_sql_is_written_line_by_line_in_yaml() -> None:
    sql = "INSERT INTO a\nSELECT id -- ä\nFROM STREAM b;\n"
    known = PlannerInput({TableName("a"): ObservedDeployment("running", "r", RevisionTexts("", sql, ""), version=1)})
    assert as_yaml_with_blocks(planner_input_as_document(known, "dev")) == (
        "format: headgate.observed/1\nenvironment: dev\ntables:\n  a:\n    state: running\n    revision: r\n"
        "    deployed:\n      dml: |\n        INSERT INTO a\n        SELECT id -- ä\n        FROM STREAM b;\n"
        "    version: 1\n"
    )


def test_every_value_of_a_table_has_its_key() -> None:
    assert " ".join(FIELD_BY_KEY) == (
        "state revision deployed since version highest_version bindings checkpoint_id checkpoint_ok lost"
        " lost_kind pointer table_id wanted serial retained kept spare served_by former runs_on in_trash tickets begun"
        " begins_where pool engine begins_after clones rows_before figures replaced_ddl overlays trigger"
    )


@pytest.mark.parametrize(
    ("document", "summary"),
    [
        ([], "the document must be {tables: {name: {state: …}}}"),
        ({"tables": []}, "the document must be {tables: {name: {state: …}}}"),
        ({"tabels": {}}, "tabels is not a known key"),
        ({"tables": {"a": 3}}, "a must be a mapping"),
        ({"tables": {"a-b": "running"}}, "'a-b' is not a table name"),
        ({"tables": {"a": "runing"}}, "a: runing is not a state"),
        ({"tables": {"a": {"stat": "running"}}}, "a: stat is not a known key"),
        ({"tables": {"a": {"state": "running", "deployed": {"sql": ""}}}},
         "a: deployed must contain the texts ddl, dml and yml"),
        ({"tables": {"a": {"state": "running", "version": "one"}}}, "a: version must be a whole number"),
        ({"tables": {"a": {"state": "running", "bindings": [1]}}},
         "a: bindings must be a list of the upstream tables that are read"),
        ({"tables": {"a": {"bindings": [{"parent": "p", "version": float("inf"), "streamed": True}]}}},
         "a: binding 1: version must be a whole number"),
        ({"tables": {"a": {"bindings": [{"parent": "p", "version": -1, "streamed": True}]}}},
         "a: binding 1: version must be a whole number"),
        ({"tables": {"a": {"bindings": [{"parent": "p", "version": 1, "streamed": "false"}]}}},
         "a: binding 1: streamed must be true or false"),
        ({"tables": {"a": {"bindings": [{"parent": "p-", "version": 1, "streamed": True}]}}},
         "'p-' is not a table name"),
        ({"tables": {"a": {"bindings": {"parent": "p"}}}},
         "a: bindings must be a list of the upstream tables that are read"),
        ({"tables": {"a": {"since": 3}}}, "a: since must be a string"),
        ({"tables": {"a": {"clones": [[2, "1"]]}}}, "a: clones must be a list of pairs of versions"),
        ({"tables": {"a": {"clones": 2}}}, "a: clones must be a list of pairs of versions"),
        ({"tables": {"a": {"version": 2**63}}}, "a: version must be a whole number"),
        ({"tables": {"a": {"figures": {"rows": 2**63}}}},
         "a: figures: rows must be a whole number, 0 or greater"),
        ({"tables": {"a": {"state": 10**90}}}, f"a: 1{'0' * 78}… is not a state"),
        ({"tables": {"a": {"state": ["x"] * 9999}}}, "a: a list is not a state"),
        ({"tables": {"a": {"state": "x" * 9999}}}, f"a: {'x' * 79}… is not a state"),
        ({"tables": {"a": {"x" * 9999: 1}}}, f"a: {'x' * 79}… is not a known key"),
        ({"tables": {"x" * 9999: "running"}}, f"'{'x' * 79}…' is not a table name"),
        ({"x" * 9999: 1}, f"{'x' * 79}… is not a known key"),
        ({"tables": {"a": "running", "B": "running", "A": "stopped"}}, "a appears twice"),
        ({"tables": {"a": {"state": "running", "checkpoint_ok": "no"}}}, "a: checkpoint_ok must be true or false"),
        ({"tables": {"a": {"state": "running", "retained": [0]}}}, "a: retained must be a list of versions"),
        ({"tables": {"a": {"state": "running", "revision": 3}}}, "a: revision must be a string"),
        ({"tables": {"a": {"figures": 3}}}, "a: figures must be a mapping of numbers"),
        ({"tables": {"a": {"figures": {"rows": 1.5}}}}, "a: figures: rows must be a whole number, 0 or greater"),
        ({"tables": {"a": {"figures": {"earliest": -1}}}}, "a: figures: earliest must be a number, 0 or greater"),
        ({"tables": {"a": {"figures": {"row": 1}}}}, "a: figures: row is not a known key"),
        ({"tables": {"a": {"pool": {"cores": "two"}}}}, "a: pool: cores must be a whole number"),
        ({"tables": {"a": {"pool": {"conf": {"x": 1}}}}}, "a: pool: conf must be a mapping of strings"),
        ({"tables": {"a": {"spare": [{}]}}}, "a: spare must be a list of orphan versions"),
        ({"tables": {"a": {"spare": [{"version": 2, "runs": True}]}}}, "a: spare 1: runs is not a known key"),
        ({"tables": {"a": {"begun": 1}}}, "a: begun must be true or false"),
        ({"room": {"disk_free": "much"}}, "the document: room: disk_free must be a whole number, 0 or greater"),
        ({"room": []}, "the document: room must be a mapping of numbers"),
        ({"durations": {"start": [1.0]}}, "the document: durations: start must be a pair of seconds"),
        ({"durations": {"start": [1.0, "long"]}}, "the document: durations: start must be a pair of seconds"),
        ({"durations": 3}, "the document: durations must be a mapping of pairs of numbers"),
        ({"policy": {"freeze": 3}}, "the document: policy is not in the form that `headgate export observed` writes"),
        ({"policy": {"approve_rows": "many"}},
         "the document: policy is not in the form that `headgate export observed` writes"),
        ({"policy": {"roles": 3}}, "the document: policy is not in the form that `headgate export observed` writes"),
        ({"pools": {"large": {"manager_says": {"kind": "runs"}}}},
         "the document: pools: large must have only cordoned, engine, unfit, manager_says"),
        ({"answers": {"k": 3}}, "the document: answers must be a mapping of strings"),
        ({"environment": "prod"}, "the document: it was observed in prod, but the plan is for dev"),
        ({"format": "headgate.observed/2"}, "the document: its format is not headgate.observed/1"),
    ],
)  # fmt: skip
def test_an_invalid_document_is_reported_with_the_reason(document: Any, summary: str) -> None:
    with pytest.raises(InvalidProject) as caught:
        known_of(document, "dev")
    assert [problem["summary"] for problem in caught.value.problems] == [summary]
    assert caught.value.remedy


@pytest.mark.parametrize(
    "text",
    ["tables: {", "tables: {a: {since: 2026-02-30}}", "[" * 5000, '{"tables": ' * 5000,
     f"tables: {{a: {{version: {'9' * 5000}}}}}", "tables: {a: !!python/name:os.system {}}", "a: &a [*a]", "\x00"],
)  # fmt: skip
def test_an_invalid_document_is_reported_in_one_sentence(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        planner_input_from_text(text, "x.yml")
    assert "\n" not in caught.value.summary and caught.value.remedy


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[" * 200_000, "line 1 is nested deeper than 100 levels"),
        ("- " * 200_000, "line 1 is nested deeper than 100 levels"),
        ('{"a":' * 200_000, "line 1 is nested deeper than 100 levels"),
        ('{"a":' * 101 + "1" + "}" * 101, "line 1 is nested deeper than 100 levels"),
        ("a: &a [1]\nb: *a", "line 2 has a YAML alias (*)"),
        ("a: &a {b: 1}\nc: {<<: *a}", "line 2 has a YAML alias (*)"),
        (f"a: 1{':59' * 100_000}", "line 1 has a number of more than 100 digits"),
        (f"a: 1{':59' * 100_000}.5", "line 1 has a number of more than 100 digits"),
        (f"a: !!int {'x' * 99}", "x.yml cannot be read"),
        (f"a: !{'x' * 9999} 1", "x.yml cannot be read"),
    ],
)
def test_texts_that_would_crash_or_block_the_program_are_refused(text: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        planner_input_from_text(text, "x.yml")
    assert says in caught.value.summary and len(caught.value.summary) < 400


def test_brackets_in_texts_nest_nothing() -> None:
    sql = '[{"' * 500
    document = planner_input_as_document(
        PlannerInput({TableName("a"): ObservedDeployment("running", deployed=RevisionTexts(dml=sql))}), "dev"
    )
    for text in (json.dumps(document), as_yaml_with_blocks(document)):
        assert planner_input_from_text(text, "x").observed[TableName("a")].deployed == RevisionTexts(dml=sql)
    with pytest.raises(InvalidProject) as caught:
        planner_input_from_text("{'a" + "[" * 500 + "': 1}", "x")
    assert re.match(r"a\[\[\[.*… is not a known key", str(caught.value.problems[0]["summary"]))


@pytest.mark.parametrize(
    ("text", "remedy", "line"),
    [
        ("tables:\n  a: {state: running}\n  b: running\n  a: {state: stopped}\n", "keep one of lines 2 and 4", 4),
        ("tables:\n  a:\n    state: running\n    state: stopped\n", "keep one of lines 3 and 4", 4),
        ('{"tables": {"a": "running", "a": "stopped"}}', "keep one of them", None),
    ],
)
def test_a_key_that_is_written_twice_is_a_problem(text: str, remedy: str, line: int | None) -> None:
    with pytest.raises(InvalidProject) as caught:
        planner_input_from_text(text, "x.yml")
    (problem,) = caught.value.problems
    assert (str(problem["summary"]).endswith("appears twice"), problem["remedy"]) == (True, remedy)
    assert (problem["file"], problem["line"]) == ("x.yml", line)


def test_all_mistakes_come_at_once() -> None:
    with pytest.raises(InvalidProject) as caught:
        known_of({"tables": {"a": "x", "b": {"y": 1}}, "z": 1})
    assert len(caught.value.problems) == 3


def test_a_time_needs_no_quotes() -> None:
    document = "tables: {a: {state: failed, since: 2026-01-01}, b: {state: failed, since: 2026-01-01T02:03:04Z}}"
    found = planner_input_from_text(document, "o.yml", "dev").observed
    assert [each.since for each in found.values()] == ["2026-01-01", "2026-01-01T02:03:04+00:00"]
