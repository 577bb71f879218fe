"""The table graph: order, reachability and cycles."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.lineage.table_graph import TableEdge, TableGraph, cycles, depths, distances, table_graph
from core.model.names import TableName as T
from tests.support.domain_builders import project


def graph(**reads: str) -> TableGraph:
    return TableGraph(
        (
            TableEdge(T(word.rstrip("!")), T(child), not word.endswith("!"))
            for child, words in reads.items()
            for word in words.split()
        ),
        map(T, reads),
    )


def test_parents_and_children_come_sorted_and_say_how_they_are_read() -> None:
    found = graph(a="", b="", c="b! a")
    assert found.parents(T("c")) == (TableEdge(T("a"), T("c"), True), TableEdge(T("b"), T("c"), False))
    assert found.children(T("a")) == (T("c"),)


def test_a_parent_read_both_ways_counts_as_streamed() -> None:
    assert graph(a="", b="a! a").parents(T("b")) == (TableEdge(T("a"), T("b"), True),)


def test_generations_put_every_table_behind_its_parents() -> None:
    assert graph(a="", b="a", c="a", d="b c").generations() == (("a",), ("b", "c"), ("d",))


def test_ancestors_and_descendants_leave_the_table_itself_out() -> None:
    found = graph(a="", b="a", c="b", x="")
    assert found.ancestors(T("c")) == {"a", "b"}
    assert found.descendants(T("a")) == {"b", "c"}


def test_a_cycle_names_its_tables_in_reading_order_from_the_first_name() -> None:
    assert cycles({T("b"): [T("a")], T("c"): [T("b")], T("a"): [T("c")]}) == (("a", "b", "c"),)


def test_a_table_that_reads_itself_is_a_cycle_of_one() -> None:
    assert graph(a="a", b="").cycles() == (("a",),)


def test_every_strongly_connected_component_has_one_cycle() -> None:
    assert graph(a="b", b="a", x="y", y="x", z="x").cycles() == (("a", "b"), ("x", "y"))


def test_generations_of_a_cycle_are_our_bug() -> None:
    with pytest.raises(AssertionError, match="a"):
        graph(a="b", b="a").generations()


def test_the_graph_of_a_project_has_every_table() -> None:
    assert table_graph(project(src="", a="src", alone="")).tables() == ("a", "alone", "src")


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=30))
def test_a_reported_cycle_is_one_and_its_absence_means_an_order(pairs: list[tuple[int, int]]) -> None:
    edges = [TableEdge(T(f"t{a}"), T(f"t{b}"), True) for a, b in pairs]
    found = TableGraph(edges)
    known = {(edge.parent, edge.child) for edge in edges}
    for cycle in found.cycles():
        assert all(pair in known for pair in zip(cycle, (*cycle[1:], cycle[0]), strict=True))
    if not found.cycles():
        level = {table: n for n, tables in enumerate(found.generations()) for table in tables}
        assert all(level[a] < level[b] for a, b in known)


def test_distances_are_those_of_the_nearest_start_and_nearest_first() -> None:
    readers = {"a": ("b", "c"), "b": ("d",), "c": ("d",), "d": ("a",), "x": ("d",)}
    below = {T(table): tuple(map(T, found)) for table, found in readers.items()}
    assert list(distances([T("a"), T("x")], below.__getitem__).items()) == [
        ("a", 0),
        ("x", 0),
        ("b", 1),
        ("c", 1),
        ("d", 1),
    ]
    assert distances([], below.__getitem__) == {}


def test_depths_follow_the_farthest_source_over_all_versions_and_cycles_are_last() -> None:
    versions = [("a", ["landed"]), ("b", ["a"]), ("b", ["landed"]), ("c", ["b", "landed"])]
    found = depths((T(table), map(T, parents)) for table, parents in versions)
    assert found == {"landed": 0, "a": 1, "b": 2, "c": 3}
    chain = [(T(f"t{n}"), [T(f"t{n - 1}")]) for n in range(1, 5000)]
    assert depths(chain)[T("t4999")] == 4999
    knotted = depths([*chain[:2], (T("p"), [T("q")]), (T("q"), [T("p")]), (T("r"), [T("q")])])
    assert knotted == {"t0": 0, "t1": 1, "t2": 2, "p": 3, "q": 3, "r": 3}
