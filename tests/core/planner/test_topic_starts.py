"""Where a new version of a statement over Kafka topics starts, and what its plan says about that."""

from dataclasses import replace

import pytest
import small_project
from domain_builders import deployed, evidence_of

from core.model.names import TableName as T
from core.plan.model import Plan, PlanNode
from core.plan.request import PlanRequest, StrategyChoice, parse_start
from core.planner.planner import make_plan
from core.project.model import Project

EDITED = {"a": "SELECT id, kind FROM STREAM landed WHERE id > 7"}
COUNTED = {
    "a": "SELECT max(id) AS id, kind FROM STREAM landed WATERMARK _timestamp DELAY OF INTERVAL 1 MINUTE "
    "GROUP BY kind, window(_timestamp, '1 minute')"
}


COLUMNS = "id BIGINT, kind STRING, _timestamp TIMESTAMP"


def on_topics(options: str = "", columns: str = COLUMNS, topic: str = "t", **selects: str) -> Project:
    files = small_project.texts(**selects)
    (path,) = [path for path in files if path.endswith("ddl.landed.sql")]
    given = f"'kafka.bootstrap.servers'='h:9092', subscribe='{topic}'{options}"
    files[path] = f"CREATE TABLE landed ({columns}) USING kafka OPTIONS ({given});"
    files["headgate.yml"] += "connectors: {kafka: {}}\n"
    return small_project.project(files)


def planned(strategy: str = "", at: str = "", start: str = "", options: str = "", **selects: str) -> Plan:
    before, after = on_topics(options), on_topics(options, **(selects or EDITED))
    world = {name: deployed(table, bindings={"landed": 0, "a": 1}) for name, table in before.tables.items()}
    choices = (StrategyChoice(T("a"), strategy, at),) if strategy else ()
    return make_plan(after, "dev", world, replace(PlanRequest(tables=(T("a"),), choices=choices), start=start))


def of_a(found: Plan) -> PlanNode:
    assert not found.refusals, [refusal.summary for refusal in found.refusals]
    return next(node for node in found.nodes if node.table == "a")


@pytest.mark.parametrize("selects", [EDITED, COUNTED])
def test_a_version_starts_now_or_with_the_messages_of_a_time_also_with_state(selects: dict[str, str]) -> None:
    now = of_a(planned("seeded", "now", **selects))
    assert (now.strategy, now.at, now.begins_where) == ("seeded", "now", ())
    at = of_a(planned("seeded", "committed:2026-01-02T00:00:00Z", **selects))
    assert (at.strategy, at.at, at.begins_where) == ("seeded", "committed:2026-01-02T00:00:00Z", ())
    assert evidence_of(at)[-1] == "starts with messages from 2026-01-02T00:00:00Z on: earlier ones are not read"


def test_from_a_time_of_commits_means_messages_where_all_streams_are_topics() -> None:
    node = of_a(planned(start=parse_start("committed:2026-01-02"), **COUNTED))
    assert (node.strategy, node.at) == ("seeded", "committed:2026-01-02T00:00:00Z")


@pytest.mark.parametrize(
    ("strategy", "at", "why"),
    [
        ("partial", "committed:2026-01-02T00:00:00Z", "seeded@committed:2026-01-02T00:00:00Z starts at the messages"),
        ("partial", "12", "landed has no versions to start at: its format is kafka"),
        ("seeded", "committed:soon", "soon is not a time"),
    ],
)
def test_a_start_that_topics_do_not_have_is_refused(strategy: str, at: str, why: str) -> None:
    (refusal,) = planned(strategy, at).refusals
    assert why in str(refusal.summary)


def test_only_topics_have_messages_of_a_time() -> None:
    before, after = small_project.project(small_project.texts()), small_project.project(small_project.texts(**EDITED))
    world = {name: deployed(table, bindings={"landed": 0, "a": 1}) for name, table in before.tables.items()}
    choices = (StrategyChoice(T("a"), "seeded", "committed:2026-01-02T00:00:00Z"),)
    (refusal,) = make_plan(after, "dev", world, PlanRequest(tables=(T("a"),), choices=choices)).refusals
    assert "only topics have messages of a time: partial@committed:2026-01-02T00:00:00Z" in str(refusal.summary)


def test_a_table_that_skips_lost_messages_is_a_warning_in_every_plan_that_starts_a_reader() -> None:
    option = ", failOnDataLoss='false'"
    for found in (planned(options=option), planned("seeded", "now", options=option)):
        said = [str(each.summary) for each in found.warnings]
        assert "skips messages of landed that are deleted unread: its OPTIONS set failOnDataLoss = false" in said
    assert not any("deleted unread" in str(each.summary) for each in planned().warnings)


def edited(options: str, columns: str = COLUMNS, topic: str = "t") -> Plan:
    before, after = on_topics(), on_topics(options, columns=columns, topic=topic)
    world = {name: deployed(table, bindings={"landed": 0, "a": 1}) for name, table in before.tables.items()}
    return make_plan(after, "dev", world, PlanRequest(tables=(T("landed"),)))


@pytest.mark.parametrize(
    "edit",
    [
        {"options": ", maxOffsetsPerTrigger='10'"},
        {"options": ", 'kafka.sasl.username'='u'"},
        {"options": ", startingOffsets='latest'"},
        {"options": "", "columns": "id BIGINT, kind STRING, _timestamp TIMESTAMP, more INT"},
    ],
)
def test_an_edit_that_keeps_topics_and_rows_registers_the_table_again(edit: dict[str, str]) -> None:
    found = edited(**edit)
    assert not found.refusals and [step.do for step in found.steps] == ["register"]
    assert [str(each.summary) for each in found.warnings] == [
        "gives its new OPTIONS and columns to a running reader when that is restarted: a"
    ]


@pytest.mark.parametrize(
    "edit",
    [
        {"options": "", "topic": "u"},
        {"options": ", 'value.format'='raw'", "columns": "_value STRING"},
        {"options": ", 'kafka.isolation.level'='read_committed'"},
        {"options": "", "columns": "id INT, kind STRING, _timestamp TIMESTAMP"},
    ],
)
def test_an_edit_of_topics_or_rows_is_refused(edit: dict[str, str]) -> None:
    assert [refusal.table for refusal in edited(**edit).refusals if refusal.table == "landed"] == ["landed"]


def test_a_start_in_the_options_of_the_table_is_a_warning_unless_the_plan_starts_elsewhere() -> None:
    def warned(**choice: str) -> list[str]:
        found = planned(options=", startingOffsets='latest'", **choice).warnings
        return [str(each.summary) for each in found if "earliest message" in str(each.summary)]

    assert warned(strategy="earliest") == [
        "does not read landed from its earliest message: its OPTIONS set startingOffsets = latest"
    ]
    assert warned(strategy="seeded", at="now") == warned(strategy="carry_over") == []
