"""Selectors of tables, against paths found by networkx in generated graphs."""

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.lineage.selectors import SelectableTables, Selector, is_selector, parse_selector, select_tables
from core.lineage.table_graph import TableEdge, TableGraph
from core.model.errors import HeadgateError
from core.model.names import TableName

NAMES = [TableName(f"t{n}") for n in range(9)]
READINGS = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)), max_size=24)
TAGS = st.dictionaries(st.sampled_from(("nightly", "core")), st.sets(st.sampled_from(NAMES), min_size=1), min_size=1)
DEPTHS = st.one_of(st.none(), st.just(""), st.integers(0, 5).map(str))
"""Depths of a selector: no `+`, a `+` without a number, or a `+` with a number."""
WORDS = st.tuples(DEPTHS, st.sampled_from(NAMES), DEPTHS)


def over(readings: list[tuple[TableName, TableName]], tags: dict[str, set[TableName]]) -> SelectableTables:
    graph = TableGraph((TableEdge(parent, child, True) for parent, child in readings), NAMES)
    parents, nothing = lambda t: (edge.parent for edge in graph.parents(t)), lambda tag: None
    return SelectableTables(parents, graph.children, lambda: tags, nothing)


def typed(up: str | None, what: str, down: str | None) -> str:
    return ("" if up is None else f"{up}+") + what + ("" if down is None else f"+{down}")


def within(graph: nx.DiGraph, start: set[TableName], depth: str | None) -> set[TableName]:
    """Return the nodes within `depth` edges of a node in `start`, by all-pairs shortest paths."""
    most = 0 if depth is None else int(depth) if depth else len(NAMES)
    far = dict(nx.all_pairs_shortest_path_length(graph))
    return {node for one in start for node, length in far[one].items() if length <= most}


@given(readings=READINGS, tags=TAGS, words=st.lists(WORDS, min_size=1, max_size=3), by_tag=st.booleans())
def test_a_selector_means_the_paths_of_its_graph(readings, tags, words, by_tag) -> None:
    graph = nx.DiGraph()
    graph.add_nodes_from(NAMES)
    graph.add_edges_from(readings)
    expected: set[TableName] = set()
    asked = []
    for up, name, down in words:
        tag = sorted(tags)[0]
        start = tags[tag] if by_tag else {name}
        asked.append(typed(up, f"tag:{tag}" if by_tag else name, down))
        expected |= within(graph.reverse(), start, up) | within(graph, start, down)
    found = select_tables(asked, over(readings, tags))
    assert set(found) == expected
    assert len(found) == len(set(found))


@given(up=DEPTHS, name=st.sampled_from(NAMES), down=DEPTHS)
def test_a_selector_is_read_as_written(up: str | None, name: TableName, down: str | None) -> None:
    depth = {None: 0, "": None}
    word = typed(up, name, down)
    expected = Selector((name,), up=depth.get(up, up and int(up)), down=depth.get(down, down and int(down)))
    assert parse_selector(word) == expected
    assert is_selector(word) == (up is not None or down is not None)


@given(st.text(alphabet="+0123456789abtg:_ ,`", max_size=12))
def test_any_argument_is_a_selector_or_a_mistake_with_a_remedy(word: str) -> None:
    try:
        parse_selector(word)
    except HeadgateError as error:
        assert error.remedy


@pytest.mark.parametrize("word", ["", "+", "++a", "a++", "a+b", "1+", "+a+3b", "tag:", "layer:fact", "x-y+"])
def test_an_invalid_selector_is_refused(word: str) -> None:
    with pytest.raises(HeadgateError):
        parse_selector(word)


def test_a_tag_that_no_table_has_names_the_nearest() -> None:
    with pytest.raises(HeadgateError, match="no table has the tag 'nightlyy'") as caught:
        select_tables(["tag:nightlyy+"], over([], {"nightly": {NAMES[0]}}))
    assert caught.value.remedy == "did you mean nightly?"
