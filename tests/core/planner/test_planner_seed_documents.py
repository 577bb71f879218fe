"""The two graphs and all scenarios of the planner's design document, as texts in fixtures/seeds.

To regenerate the outcomes after a deliberate change: `python -m tests.core.planner.test_planner_seed_documents`.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from core.model.names import TableName as T
from core.observed.planner_input import ObservedDeployment
from core.plan.model import Plan
from core.plan.request import PlanRequest
from core.planner.planner import make_plan
from core.project.model import Project
from core.project_reader.loader import read_project
from tests.support.domain_builders import deployed

FOLDER = Path(__file__).parents[2] / "fixtures" / "seeds"
GRAPHS = ("orders", "topology")


@dataclass(frozen=True)
class Scenario:
    """A title, the situation, the request, and the expected plan."""

    graph: str
    title: str
    head: tuple[str, ...]
    expected: tuple[str, ...]

    def given(self, word: str) -> list[str]:
        return [line.partition(": ")[2] for line in self.head if line.startswith(f"{word}: ")]


def scenarios(graph: str) -> Iterator[Scenario]:
    """Read a file of scenarios: the situation and request before `->`, the outcome after it."""
    for part in (FOLDER / f"{graph}.txt").read_text().split("\n## ")[1:]:
        title, *lines = part.strip().splitlines()
        cut = next(place for place, line in enumerate(lines) if line.startswith("plan: ")) + 1
        yield Scenario(graph, title, tuple(lines[:cut]), tuple(lines[cut:]))


def texts_of(graph: str) -> dict[str, str]:
    """Return a project's files."""
    folder = FOLDER / graph
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


def project_of(texts: dict[str, str]) -> Project:
    project, problems = read_project(texts)
    assert project is not None, [problem.as_json() for problem in problems]
    return project


def edited(scenario: Scenario) -> Project:
    texts = texts_of(scenario.graph)
    for kind, word in (("dml", "edit"), ("ddl", "edit-ddl")):
        for edit in scenario.given(word):
            table, _, change = edit.partition(" ")
            before, after = change.split(" -> ")
            (path,) = (path for path in texts if path.endswith(f"/{kind}.{table}.sql"))
            assert before in texts[path], (before, texts[path])
            texts[path] = texts[path].replace(before, after)
    return project_of(texts)


def observed(scenario: Scenario, project: Project) -> dict[T, ObservedDeployment]:
    names = scenario.given("runs")[0].split()
    if names[0] == "everything":
        names = [name for name in project.tables if name not in names[2:]]
    found = {}
    for name in names if names != ["nothing"] else ():
        made = project.tables[T(name)]
        externals = (
            {read.table: 0 for read in made.parsed.reads if project.tables[read.table].external} if made.parsed else {}
        )
        found[T(name)] = deployed(made, bindings={**{str(t): 1 for t in project.tables}, **externals})
    for state in ("failed", "stopped"):
        for name in (name for line in scenario.given(state) for name in line.split()):
            found[T(name)] = replace(found[T(name)], state=state, wanted="stopped" if state == "stopped" else "running")
    return found


def request_of(words: str) -> PlanRequest:
    """Parse a request as written on a command line."""
    found, rest = PlanRequest(), iter(words.split())
    for word in rest:
        match word:
            case "delete":
                found = replace(found, verb="delete")
            case "--pipeline":
                found = replace(found, pipelines=(*found.pipelines, T(next(rest))))
            case "--children":
                found = replace(found, children=next(rest))
            case "--exclude":
                found = replace(found, exclude=(T(next(rest)),))
            case "--rebuild" | "--keep-table":
                found = replace(found, **{word[2:].replace("-", "_"): True})
            case _:
                found = replace(found, tables=(*found.tables, T(word)))
    return found


def outcome(plan: Plan) -> Iterator[str]:
    """Yield what a plan does, table by table in order, then the tables left behind, then the steps."""
    kept = [node.table for node in plan.nodes if node.action == "keep"]
    for node in plan.nodes:
        if node.action != "keep":
            version = (
                f"v{node.version}" if node.from_version == node.version else f"v{node.from_version}→v{node.version}"
            )
            because = f", because of {', '.join(node.because_of)}" if node.because_of else ""
            yield f"{node.action} {node.table} {version}: {node.reason}{because}"
    if kept:
        yield f"keeps {' '.join(kept)}"
    yield from (f"leaves {found.table} on {found.reads}, {found.depth} deep" for found in plan.left_behind)
    yield from (f"warns {found.table}: {found.summary}" for found in plan.warnings)
    yield from (f"refuses {found.summary}" for found in plan.refusals)
    steps = [f"{s.do} {'+'.join(s.tables) or f'{s.table}@{s.version}'}" for s in plan.steps]
    if steps:
        yield f"steps {', '.join(steps)}"
    if not steps and not plan.refusals:
        yield "nothing to do"


def plan_of(scenario: Scenario) -> Plan:
    before = project_of(texts_of(scenario.graph))
    return make_plan(edited(scenario), "dev", observed(scenario, before), request_of(scenario.given("plan")[0]))


@pytest.mark.parametrize(
    "scenario", [s for graph in GRAPHS for s in scenarios(graph)], ids=lambda s: f"{s.graph}: {s.title[:50]}"
)
def test_a_scenario_of_the_document(scenario: Scenario) -> None:
    assert tuple(outcome(plan_of(scenario))) == scenario.expected


@pytest.mark.parametrize("graph", GRAPHS)
def test_the_order_of_files_makes_no_difference(graph: str) -> None:
    texts, chance = texts_of(graph), random.Random(graph)
    hashes = set()
    for _ in range(20):
        shuffled = dict(chance.sample(sorted(texts.items()), len(texts)))
        hashes.add(make_plan(project_of(shuffled), "dev", {}, PlanRequest(everything=True)).hash)
    assert len(hashes) == 1


def test_the_scenarios_exist() -> None:
    assert [len(list(scenarios(graph))) for graph in GRAPHS] == [14, 13]


TREE = """
new job                                          | z | absent  |                | start first
running, nothing changed                         | z | running |                | nothing
running, configuration changed, query not        | z | running | trigger        | restart in_place
running, query changed, with state               | x | running | sum(-> max(    | rebuild earliest
running, query changed, without state            | y | running | > 0 -> > 1     | restart in_place
not running, nothing changed, state found        | z | failed  |                | resume in_place
not running, nothing changed, state not found    | z | failed  | lost           | refused
not running, configuration changed, query not    | z | failed  | trigger        | restart in_place
not running, configuration changed, state gone   | z | failed  | trigger lost   | refused
not running, query changed, with state           | x | failed  | sum(-> max(    | rebuild earliest
not running, query changed, state not found      | x | failed  | sum(-> max( lost | rebuild earliest
not running, query changed, without state        | y | failed  | > 0 -> > 1     | restart in_place
"""
"""The decision tree of the job runner's documentation; each branch is followed by what Headgate does.

The job runner starts every changed query with empty state, which repeats rows in the same table. Here, a stateless
query continues from its checkpoint, and a stateful one starts with empty state in a new table.
"""


@pytest.mark.parametrize("line", TREE.strip().splitlines(), ids=lambda line: line.partition("  ")[0])
def test_a_branch_of_the_decision_tree(line: str) -> None:
    _, name, state, changed, expected = (part.strip() for part in line.split("|"))
    texts, table = texts_of("topology"), T(name)
    before = project_of(texts)
    there = {n: deployed(made, bindings=dict.fromkeys(map(str, before.tables), 1)) for n, made in before.tables.items()}
    for n, made in before.tables.items():
        bindings = tuple(replace(b, version=0 if b.parent.startswith("topic") else 1) for b in there[n].bindings)
        there[n] = replace(there[n], bindings=bindings) if made.parsed else there[n]
    if state == "absent":
        there = {n: seen for n, seen in there.items() if before.tables[n].external}
    else:
        there[table] = replace(there[table], state=state, checkpoint_ok="lost" not in changed)
    (path,) = (path for path in texts if path.endswith(f"/dml.{name}.sql"))
    if "->" in changed:
        old, new = (word.strip() for word in changed.removesuffix("lost").split("->"))
        texts[path] = texts[path].replace(old, new)
    if "trigger" in changed:
        texts[f"{path.rpartition('/sql-scripts/')[0]}/{name}.yml"] = "trigger: 3 seconds\n"
    plan = make_plan(project_of(texts), "dev", there, PlanRequest(tables=(table,)))
    node = next(node for node in plan.nodes if node.table == table)
    done = "refused" if plan.refusals else f"{node.action} {node.strategy}" if plan.steps else "nothing"
    assert done == expected


if __name__ == "__main__":
    for graph in GRAPHS:
        place = FOLDER / f"{graph}.txt"
        parts = [place.read_text().split("\n## ")[0].rstrip() + "\n"]
        for scenario in scenarios(graph):
            parts.append("\n".join((f"## {scenario.title}", *scenario.head, *outcome(plan_of(scenario)), "")))
        place.write_text("\n".join(parts))
