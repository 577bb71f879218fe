"""A project with cyclic tables is refused with one Problem per cycle, which names its tables in order."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from core.project_reader.loader import read_project
from tests.support.random_worlds import times

HEAD = """project: p
id: 5b0e4a52-9df2-4a52-9c0c-0f6f8d1a2b3c
default_env: dev
environments:
  dev: {}
"""
Graph = dict[str, set[str]]
"""Parents by table; a table without parents is external."""


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Draw reads in any direction; many of these graphs have no cycle."""
    names = [f"t{number}" for number in range(draw(st.integers(2, 9)))]
    chance = random.Random(draw(st.integers(0, 2**32)))
    found: Graph = {}
    for place, name in enumerate(names):
        above = names[:place] if chance.random() < 0.6 else names
        found[name] = set(chance.sample(above, min(len(above), chance.randint(0, 2))))
    return found


def texts(graph: Graph) -> dict[str, str]:
    files = {"headgate.yml": HEAD}
    for name, parents in graph.items():
        folder = f"pipelines/facts/p/{name}/sql-scripts"
        where = "USING parquet" if parents else "USING json LOCATION 'landing'"
        files[f"{folder}/ddl.{name}.sql"] = f"CREATE TABLE {name} (id BIGINT) {where};"
        if parents:
            body = " UNION ALL ".join(f"SELECT id FROM STREAM {parent}" for parent in sorted(parents))
            files[f"{folder}/dml.{name}.sql"] = f"INSERT INTO {name} {body};"
    return files


def above(graph: Graph, name: str) -> set[str]:
    """Return all tables that a table reads, directly or indirectly; including itself if it is in a cycle."""
    found: set[str] = set()
    waiting = list(graph[name])
    while waiting:
        parent = waiting.pop()
        if parent not in found:
            found.add(parent)
            waiting.extend(graph[parent])
    return found


@given(graphs())
@settings(max_examples=times(3))
def test_every_knot_is_named_once_in_the_order_of_reading(graph: Graph) -> None:
    reach = {name: above(graph, name) for name in graph}
    knots = {frozenset(other for other in reach[name] if name in reach[other]) for name in graph if name in reach[name]}
    project, problems = read_project(texts(graph))
    cycles = [problem.detail.split(", ") for problem in problems if "form a cycle" in problem.summary]
    assert (project is None) == bool(knots)
    assert len(problems) == len(cycles) == len(knots)
    for cycle in cycles:
        assert cycle[0] == min(knot := next(knot for knot in knots if cycle[0] in knot)) and knot >= set(cycle)
        assert all(table in graph[reader] for table, reader in zip(cycle, [*cycle[1:], cycle[0]], strict=True))
    assert [problem.detail for problem in read_project(dict(reversed(texts(graph).items())))[1]] == [
        problem.detail for problem in problems
    ]
