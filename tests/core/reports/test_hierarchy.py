"""The hierarchy of a table: each shared table is expanded once, where it is nearest, and omissions are shown."""

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from core.lineage.table_graph import table_graph
from core.model.names import TableName
from core.project.model import Project
from core.reports.inventory import DOWNSTREAM, UPSTREAM, InventoryEntry, hierarchy, inventory_of
from tests.core.reports.test_inventory import serving
from tests.support.domain_builders import T, project
from tui.presentation.diagrams.hierarchy_svg import hierarchy_svg


def entries(declared: Project) -> Mapping[TableName, InventoryEntry]:
    return {entry.table: entry for entry in inventory_of(declared, {})}


def shown(declared: Project, root: str, direction: str, *, depth: int | None = None) -> list[str]:
    """Return each row with its indent; ! a static side, * expanded elsewhere, +n hidden."""
    return [
        "  " * row.depth
        + row.table
        + ("" if row.streamed else "!")
        + ("*" if row.again else "")
        + (f"+{row.hidden}" if row.hidden else "")
        for row in hierarchy(entries(declared), T(root), direction, depth=depth)
    ]


def test_a_chain_is_one_way_up_and_one_way_down() -> None:
    declared = project(src="", side="", a="src", b="a side!")
    assert shown(declared, "b", UPSTREAM) == ["b", "  a", "    src", "  side!"]
    assert shown(declared, "src", DOWNSTREAM) == ["src", "  a", "    b"]
    assert shown(declared, "side", DOWNSTREAM) == ["side", "  b!"]


def test_a_diamond_expands_its_top_once() -> None:
    declared = project(src="", top="src", left="top", right="top", end="left right")
    assert shown(declared, "end", UPSTREAM) == ["end", "  left", "    top", "      src", "  right", "    top*"]


def test_a_table_that_is_met_deep_first_is_expanded_where_it_is_nearest() -> None:
    declared = project(src="", shared="src", deep="shared", end="deep shared")
    assert shown(declared, "end", UPSTREAM) == ["end", "  deep", "    shared*", "  shared", "    src"]


def test_a_depth_says_how_much_it_hides() -> None:
    declared = project(src="", side="", a="src side!", b="a")
    assert shown(declared, "b", UPSTREAM, depth=1) == ["b", "  a+2"]
    assert shown(declared, "b", UPSTREAM, depth=2) == ["b", "  a", "    side!", "    src"]


def test_a_chain_may_be_longer_than_python_recurses() -> None:
    names = [f"t{number:04d}" for number in range(3000)]
    declared = project(**{name: above for above, name in zip(["", *names], names, strict=False)})
    rows = hierarchy(entries(declared), T(names[-1]), UPSTREAM)
    assert [row.depth for row in rows] == list(range(3000))


def test_a_deployment_that_contradicts_the_files_causes_no_endless_loop() -> None:
    declared = project(src="", a="src", b="a")
    found = {entry.table: entry for entry in inventory_of(declared, {T("a"): serving("b"), T("b"): serving("a")})}
    rows = hierarchy(found, T("a"), DOWNSTREAM)
    assert [(row.table, row.depth, row.again) for row in rows] == [("a", 0, False), ("b", 1, False), ("a", 2, True)]
    assert hierarchy_svg([(UPSTREAM, hierarchy(found, T("a"), UPSTREAM)), (DOWNSTREAM, rows)]).count('class="box"') == 3


@given(
    st.lists(st.sets(st.integers(0, 11), max_size=4), min_size=1, max_size=12), st.sampled_from([UPSTREAM, DOWNSTREAM])
)
def test_every_table_on_the_way_is_expanded_exactly_once_and_every_reading_is_one_row(
    reads: list[set[int]], direction: str
) -> None:
    names = [f"t{at:02d}" for at in range(len(reads))]
    above = ({f"t{parent:02d}" for parent in parents if parent < at} for at, parents in enumerate(reads))
    declared = project(**{name: " ".join(parents) for name, parents in zip(names, above, strict=True)})
    root, graph = T(names[0] if direction == DOWNSTREAM else names[-1]), table_graph(declared)
    rows = hierarchy(entries(declared), root, direction)
    reached = {root, *(graph.ancestors(root) if direction == UPSTREAM else graph.descendants(root))}
    assert {row.table for row in rows if not row.again} == reached
    beside = {t: len(graph.parents(t)) if direction == UPSTREAM else len(graph.children(t)) for t in reached}
    assert len(rows) == 1 + sum(beside.values())
    inner = [row.table for row in rows if not row.again and beside[row.table]]
    assert len(inner) == len(set(inner))
