"""Where a new version starts by the time at which rows have arrived, and what its plan says about that."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest
import small_project
from domain_builders import deployed, evidence_of

from core.model.names import TableName as T
from core.observed.table_statistics import LogHistory, TableStatistics
from core.observed.time_left import Bound, Left, TimeLeft, lost
from core.plan.codec import plan_as_json, plan_from_json, plan_hash
from core.plan.diff import compare_plans
from core.plan.model import Plan, PlanNode
from core.plan.request import PlanRequest, StrategyChoice, command_words, parse_start
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
    assert evidence_of(at)[-1] == "starts with what has arrived since 2026-01-02T00:00:00Z: nothing earlier is read"


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


def test_files_are_read_from_a_time_on_without_a_log_and_by_commits_with_one() -> None:
    at = "committed:2026-01-02T00:00:00Z"

    def over(format: str, strategy: str) -> Plan:
        def texts(**selects: str) -> dict[str, str]:
            found = small_project.on_delta(small_project.texts(**selects))
            return {path: text.replace("USING json", f"USING {format}") for path, text in found.items()}

        before, after = small_project.project(texts()), small_project.project(texts(**EDITED))
        world = {name: deployed(table, bindings={"landed": 0, "a": 1}) for name, table in before.tables.items()}
        return make_plan(
            after, "dev", world, PlanRequest(tables=(T("a"),), choices=(StrategyChoice(T("a"), strategy, at),))
        )

    node = of_a(over("json", "seeded"))
    assert (node.strategy, node.at) == ("seeded", at)
    (refusal,) = over("json", "partial").refusals
    assert f"landed has no log: seeded@{at} starts with the files written since then" in str(refusal.summary)
    (refusal,) = over("delta", "seeded").refusals
    assert f"in which a time of commits is found: partial@{at}" in str(refusal.summary)


SINCE = "2026-01-01T00:29:00Z"
AT = f"committed:{SINCE}"
BOTH = "SELECT id, kind FROM STREAM a UNION ALL SELECT id, kind FROM STREAM landed"


def since(
    *names: str,
    runs: str = "",
    log: str = "",
    at: str = SINCE,
    strategy: tuple[str, str] | None = None,
    rebuild: bool = False,
    **selects: str,
) -> Plan:
    """Plan the named tables from `since:`; those in `runs` serve, and a table whose log is given is on Delta."""
    files = small_project.on_delta(small_project.texts()) if log else small_project.texts()
    before = small_project.project(files)
    after = small_project.project(files | {p: t for p, t in small_project.texts(**selects).items() if "/dml." in p})
    world = {T(name): deployed(before.tables[T(name)], bindings={"landed": 0, "a": 1}) for name in runs.split()}
    if log:
        world[T("a")] = replace(world[T("a")], statistics=TableStatistics(log=log))
    choices = (StrategyChoice(T("a"), *strategy),) if strategy else ()
    request = PlanRequest(tables=tuple(map(T, names)), everything=not names, rebuild=rebuild, choices=choices)
    found = make_plan(after, "dev", world, replace(request, start=parse_start(f"since:{at}")))
    assert not found.refusals, [refusal.summary for refusal in found.refusals]
    return found


def begun(found: Plan) -> dict[str, tuple[str, str]]:
    return {str(node.table): (node.strategy, node.at) for node in found.nodes if node.strategy}


def not_since(found: Plan) -> dict[str, str]:
    said = f"does not start with what has arrived since {SINCE}, but at the default position: "
    return {
        str(each.table): str(each.summary).removeprefix(said)
        for each in found.warnings
        if str(each.summary).startswith(said)
    }


def test_a_start_since_a_time_is_that_of_every_new_statement_over_existing_tables() -> None:
    found = since()
    assert begun(found) == {"a": ("seeded", AT), "b": ("first", ""), "c": ("first", "")}
    assert evidence_of(next(node for node in found.nodes if node.table == "a"))[-1] == (
        f"starts with what has arrived since {SINCE}: nothing earlier is read"
    )
    assert not found.warnings
    assert begun(since("b")) == {"a": ("seeded", AT), "b": ("first", "")}, "a was not requested, and starts for b"
    assert begun(since("b", runs="landed a")) == {"b": ("seeded", AT)}, "a serves already"


def test_a_start_since_a_time_is_a_warning_for_a_statement_over_new_and_existing_tables() -> None:
    found = since(b=BOTH)
    assert begun(found) == {"a": ("seeded", AT), "b": ("first", ""), "c": ("first", "")}
    assert not_since(found) == {
        "b": "a gets a new version in this plan, and other tables that it streams do not: no start position applies to "
        "both"
    }
    assert [str(each.table) for each in found.warnings] == ["b"]


LOG = LogHistory(0, 1_767_225_600.0, ((30, 1_767_227_400.0, 5),)).as_text()
"""The newest commit is of 2026-01-01T00:30Z."""


def test_a_start_since_a_time_is_found_in_the_log_of_a_table_unless_nothing_was_committed() -> None:
    found = since("b", runs="landed a", log=LOG)
    assert begun(found) == {"b": ("partial", AT)} and not not_since(found)
    late = since("b", runs="landed a", log=LOG, at="2026-01-01T00:30:01Z")
    assert begun(late) == {"b": ("first", "")}
    (warning,) = late.warnings
    assert "since 2026-01-01T00:30:01Z, but" in str(warning.summary)
    assert "nothing was committed to a since 2026-01-01 00:30:00 UTC" in str(warning.summary)
    both = since("b", runs="landed a", log=LOG, b=BOTH)
    assert begun(both) == {"b": ("first", "")}
    assert not_since(both) == {"b": "a has a log and landed has none: no start position applies to both"}


def test_a_start_since_a_time_leaves_choices_and_rebuilds_as_they_are() -> None:
    assert begun(since("a", strategy=("seeded", "now"))) == {"a": ("seeded", "now")}
    assert begun(since("a", strategy=("earliest", ""))) == {"a": ("first", "")}
    assert not since("a", strategy=("earliest", "")).warnings
    restarted, rebuilt = since("a", runs="landed a", **EDITED), since("a", runs="landed a", rebuild=True)
    assert begun(restarted) == {"a": ("in_place", "")} and not not_since(restarted)
    assert begun(rebuilt) == {"a": ("earliest", "")} and not not_since(rebuilt)


def test_a_version_that_never_ran_has_no_sequences_that_a_later_start_would_forget() -> None:
    yml = {"pipelines/facts/p/b/b.yml": "mode: upsert\nkey: [kind]\nsequence: id\n"}
    before, after = (
        small_project.project(small_project.on_delta(small_project.texts(b=select)) | yml)
        for select in ("SELECT id, kind FROM STREAM landed", "SELECT id + 1 AS id, kind FROM STREAM landed")
    )
    world = {T(name): deployed(before.tables[T(name)], bindings={"landed": 0}) for name in ("landed", "b")}

    def planned(strategy: str = "", **known: bool) -> Plan:
        seen = world | {T("b"): replace(world[T("b")], **known)}
        choices = (StrategyChoice(T("b"), strategy, "now"),) if strategy else ()
        request = PlanRequest(tables=(T("b"),), start=f"since:{SINCE}", choices=choices)
        return make_plan(after, "dev", seen, request)

    anew = planned(begun=False)
    assert begun(anew)["b"] == ("seeded", AT) and not not_since(anew)
    (refusal,) = planned("seeded", begun=True).refusals
    assert "does not know the id of earlier rows" in str(refusal.summary)


def test_the_command_of_a_plan_that_starts_since_a_time_asks_for_the_same() -> None:
    request = since("a").request
    words = command_words(request)
    assert words[-2:] == ["--from", f"since:{SINCE}"] and parse_start(words[-1]) == request.start


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


NOW, HOUR_S = 1_790_000_000.0, 3600.0
BY_AGE = Bound.MESSAGE_AGE.of(topic="t", kept_s=168 * HOUR_S, set="alter", raised=9)
GONE = lost(Bound.MESSAGES_GONE, messages=3, topics=("t",))


def left(hours: float) -> TimeLeft:
    return TimeLeft(Left.LIMITED, BY_AGE, hours * HOUR_S, 168 * HOUR_S, at=NOW)


@pytest.mark.parametrize(("topics", "verdict"), [(True, "unknown"), (False, "ok")])
def test_a_rebuild_promises_no_messages_that_retention_may_have_deleted(topics: bool, verdict: str) -> None:
    declared = on_topics() if topics else small_project.project(small_project.texts())
    world = {name: deployed(table, bindings={"landed": 0, "a": 1}) for name, table in declared.tables.items()}
    world[T("a")] = replace(world[T("a")], statistics=TableStatistics(gone=0))
    found = make_plan(declared, "dev", world, PlanRequest(tables=(T("a"),), rebuild=True))
    (history,) = (guard for guard in found.guards if guard.name == "history")
    assert history.verdict == verdict, history


def warned(found: TimeLeft, strategy: str = "", at: str = "", *, state: str = "running", keep: bool = False) -> Plan:
    before, after = on_topics(), on_topics(**({} if keep else EDITED))
    world = {name: deployed(table, bindings={"landed": 0, "a": 1}) for name, table in before.tables.items()}
    wanted = "stopped" if state == "stopped" else "running"
    statistics = TableStatistics(time_left=found.as_text())
    world[T("a")] = replace(world[T("a")], state=state, wanted=wanted, statistics=statistics)
    choices = (StrategyChoice(T("a"), strategy, at),) if strategy else ()
    request = PlanRequest(everything=True) if keep else PlanRequest(tables=(T("a"),), choices=choices)
    return make_plan(after, "dev", world, request)


def of_position(found: Plan) -> list[str]:
    return [str(each.summary) for each in found.warnings if each.table == "a" and each.drifts]


EXPIRES = "its position stays readable for at least 5h: Kafka deletes messages of t 7d after their time; "
RAISE = "raise its retention: alter retention.ms=9"
LOST = (
    "cannot continue from its position: 3 messages of t were deleted before they were read; "
    "headgate plan a --rebuild reads what is left"
)


def test_a_statement_that_a_plan_leaves_stopped_or_continues_names_the_danger_to_its_position() -> None:
    for shape in ({"keep": True, "state": "stopped"}, {"strategy": "carry_over"}, {"state": "failed"}):
        assert of_position(warned(left(5), **shape)) == [EXPIRES + RAISE], shape  # type: ignore[arg-type]  # Words and a flag.
        assert of_position(warned(GONE, **shape)) == [LOST], shape  # type: ignore[arg-type]
        assert of_position(warned(left(160), **shape)) == [], shape  # type: ignore[arg-type]
    assert of_position(warned(GONE, keep=True)) == [], "a statement that runs is none of the plan's business"
    assert of_position(warned(GONE, "earliest")) == [], "a rebuild from the beginning needs no position"


def test_a_version_that_begins_before_the_retention_lacks_messages() -> None:
    before, within = (datetime.fromtimestamp(NOW - 3600 * h, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") for h in (170, 160))
    assert of_position(warned(left(160), "seeded", f"committed:{before}")) == [
        "lacks the messages of landed from before: Kafka deletes them after 7d"
    ]
    assert of_position(warned(left(160), "seeded", f"committed:{within}")) == []
    assert of_position(warned(left(160), "seeded", "now")) == []


def test_a_warning_that_drifts_changes_neither_the_hash_of_a_plan_nor_its_comparison() -> None:
    first, later = (warned(left(hours), "carry_over") for hours in (5, 4))
    assert first.warnings != later.warnings and first.hash == later.hash == warned(GONE, "carry_over").hash
    assert compare_plans(first, later) == ()
    restored = plan_from_json(json.loads(json.dumps(plan_as_json(first))))
    assert restored.warnings == first.warnings and plan_hash(restored) == first.hash
