"""The JSON contract of a plan: keys, canonical bytes, hash, round trip, damaged input."""

import hashlib
import json
from dataclasses import replace

import pytest

from core.changes.kinds import ChangeKind
from core.model.errors import UsageError
from core.model.names import TableName
from core.plan.codec import canonical_text, plan_as_json, plan_from_json, plan_hash
from core.plan.model import Plan
from tests.support.domain_builders import plan, project, running, table


def one() -> Plan:
    declared = project(table("src"), table("a", "src"), table("b", "a", product="q"))
    return plan(declared, running(declared), "a", rebuild=True)


def test_a_plan_survives_a_round_trip_through_text() -> None:
    assert plan_from_json(json.loads(json.dumps(plan_as_json(one())))) == one()


def test_the_documented_keys_exist() -> None:
    data = plan_as_json(one())
    assert data["format"] == "headgate.plan/1"
    assert {
        "format", "hash", "request", "nodes", "order", "steps", "left_behind", "guards", "refusals", "warnings",
    } <= set(data)  # fmt: skip
    assert {
        "table", "product", "layer", "stateful", "action", "row", "change", "evidence", "classified",
        "strategy", "reason", "because_of", "level", "loses", "replay_rows", "eta_s", "retention", "undo",
    } <= set(data["nodes"][0])  # fmt: skip
    assert {"n", "do", "table", "version", "after", "why"} <= set(data["steps"][0])
    assert data["left_behind"] == [
        {"table": "b", "product": "q", "reads": "a__v1", "owner": "", "through": "a", "depth": 1}
    ]
    assert data["order"] == ["a"]


def test_warnings_refusals_and_guards_have_their_kind_and_fields_beside_the_sentence() -> None:
    declared = project(table("src"), table("a", "src"), table("b", "a"))
    refused = plan_as_json(plan(declared, {}, "b", exclude=(TableName("a"),)))["refusals"]
    assert [{**each, "remedy": ""} for each in refused] == [
        {
            "table": "b", "summary": "b has nothing to read: a is excluded and not deployed", "remedy": "", "guard": "",
            "kind": "nothing_to_read", "fields": {"parent": "a"},
        }
    ]  # fmt: skip
    data = plan_as_json(plan(declared, running(declared, b="failed"), "b"))
    assert [(each["kind"], each["fields"]) for each in data["warnings"]] == [("resumes", {"state": "failed"})]
    assert {"disk": "nothing_twice", "pool": "pool_grows"}.items() <= {
        g["name"]: g["kind"] for g in data["guards"]
    }.items()


def test_a_plan_from_before_there_were_kinds_is_still_read() -> None:
    data = plan_as_json(one())
    for each in (*data["warnings"], *data["refusals"], *data["guards"]):
        del each["kind"], each["fields"]
    found = plan_from_json(data)
    assert plan_hash(found) == found.hash == one().hash and {guard.kind for guard in found.guards} == {""}


def test_a_change_is_written_by_its_code_and_by_its_name() -> None:
    found = replace(one(), nodes=tuple(replace(n, change=ChangeKind.WATERMARK_DELAY) for n in one().nodes))
    assert {(n["row"], n["change"]) for n in plan_as_json(found)["nodes"]} == {("6d", "watermark_delay")}
    nothing = replace(one(), nodes=tuple(replace(n, change=None) for n in one().nodes))
    assert {(n["row"], n["change"]) for n in plan_as_json(nothing)["nodes"]} == {("", None)}
    assert plan_from_json(plan_as_json(nothing)) == nothing


def test_a_plan_with_a_change_of_no_kind_is_damaged() -> None:
    data = plan_as_json(one())
    data["nodes"][0]["change"] = "ten"
    with pytest.raises(UsageError, match="this plan is damaged: ValueError 'ten' is not a valid ChangeKind"):
        plan_from_json(data)


def test_the_hash_covers_the_code_and_not_the_name_so_that_saved_plans_keep_theirs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found, hashed, sha256 = one(), list[bytes](), hashlib.sha256
    monkeypatch.setattr("core.plan.codec.hashlib.sha256", lambda text: hashed.append(text) or sha256(text))
    plan_hash(found)
    nodes = json.loads(hashed[0])["nodes"]
    assert [node["row"] for node in nodes] == [node.row for node in found.nodes] and "change" not in nodes[0]


def test_unknown_numbers_are_null() -> None:
    node = plan_as_json(one())["nodes"][0]
    assert node["replay_rows"] is None and node["eta_s"] is None and node["retention"] is None


def test_every_value_is_plain_json() -> None:
    def plain(value: object) -> bool:
        if isinstance(value, dict):
            return all(type(key) is str and plain(item) for key, item in value.items())
        if isinstance(value, list):
            return all(plain(item) for item in value)
        return value is None or type(value) in (str, int, float, bool)

    assert plain(plan_as_json(one()))


def test_the_canonical_text_has_sorted_keys_and_no_spaces() -> None:
    assert canonical_text({"b": [1, None], "a": "ä"}) == '{"a":"\\u00e4","b":[1,null]}'


def test_the_hash_covers_everything_but_itself() -> None:
    found = one()
    assert found.hash == plan_hash(found) == plan_hash(replace(found, hash="x"))
    assert plan_hash(replace(found, protected=True)) != found.hash
    assert plan_hash(replace(found, steps=found.steps[:-1])) != found.hash
    assert plan_hash(replace(found, guards=())) != found.hash


@pytest.mark.parametrize(
    "damage", [{"format": "x"}, {"nodes": [{}]}, {"steps": None}, {"request": {}}, {"guards": [{"x": 1}]}]
)
def test_a_damaged_plan_is_a_usage_error(damage: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        plan_from_json({**plan_as_json(one()), **damage})
