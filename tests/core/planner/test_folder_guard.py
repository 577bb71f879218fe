"""The guard `folders`: a reader is not planned on external files whose folder is known to be missing."""

import small_project
from domain_builders import deployed

from core.model.names import TableName as T
from core.observed.seen_inputs import folder_key
from core.plan.model import Plan
from core.plan.request import PlanRequest
from core.planner.planner import folders_of, make_plan

PROJECT = small_project.project(small_project.texts())
LOCATION = PROJECT.tables[T("landed")].parsed_ddl.location
MISSING = {folder_key(LOCATION): "/lake/dev/in it"}


def plan(answers: dict[str, str], *, serving: bool = False, **request: object) -> Plan:
    world = {name: deployed(table, bindings={"landed": 0}) for name, table in PROJECT.tables.items()}
    asked: dict[str, object] = {"everything": True, **request}
    return make_plan(PROJECT, "dev", world if serving else {}, PlanRequest(**asked), answers=answers)  # type: ignore[arg-type]


def test_a_missing_folder_denies_the_start_of_its_readers_and_names_the_command() -> None:
    found = plan(MISSING)
    (refusal,) = [each for each in found.refusals if each.guard == "folders"]
    assert "read landed, and there is no folder /lake/dev/in it" in str(refusal.summary).replace("reads", "read")
    assert str(refusal.remedy) == "create it, an empty folder is enough: mkdir -p '/lake/dev/in it'"
    assert folders_of(found, PROJECT) == (LOCATION,)
    (refusal,) = plan({folder_key(LOCATION): "s3a://lake/in"}).refusals
    assert str(refusal.remedy).endswith(": hadoop fs -mkdir -p s3a://lake/in")


def test_a_folder_that_exists_or_was_not_looked_for_leaves_no_trace_in_a_plan() -> None:
    plans = [plan({}), plan({folder_key(LOCATION): ""})]
    assert plans[0].hash == plans[1].hash and plans[0].refusals == ()
    assert all(guard.name != "folders" for each in plans for guard in each.guards)


def test_what_keeps_running_needs_no_folder() -> None:
    found = plan(MISSING, serving=True)
    assert found.refusals == () and folders_of(found, PROJECT) == ()
    assert plan(MISSING, serving=True, rebuild=True).refusals != ()
