"""The picture of a lineage: well-formed for any names, without overlapping boxes, drawn from left to right."""

import re
import xml.etree.ElementTree as ElementTree
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from core.lineage.column_lineage import ColumnLineage, LineageEdge, LineageGap, LineageNode
from core.model.names import TableName
from core.sql.lineage.model import ColumnOrigin, InputKind
from core.text.escaping import has_control_characters
from tui.presentation.diagrams.box_layout import lay_out_boxes
from tui.presentation.diagrams.lineage_svg import lineage_html, lineage_svg, safe
from tui.presentation.diagrams.lineage_text import _plain

NASTY = "a<b>&\"'\x00\x1b]]>--"


def at(words: str) -> ColumnOrigin:
    table, _, column = words.partition(".")
    return ColumnOrigin(TableName(table), column)


def lineage(*ways: str, word: str = "x") -> ColumnLineage:
    """Return a lineage with an edge for each pair, written as `a.x b.y`."""
    pairs = [tuple(at(end) for end in way.split()) for way in ways]
    edges = tuple(
        LineageEdge(s, t, InputKind.VALUE if t.column else InputKind.CONDITION, "SELECT", word, (), (), "f", 1)
        for s, t in pairs
    )
    ends = dict.fromkeys(end for pair in pairs for end in pair)
    nodes = tuple(LineageNode(end, word, landed=False, expression=word) for end in ends)
    return ColumnLineage(pairs[-1][1], "up", nodes, edges, (LineageGap(pairs[0][0], word, word, "f", 1),))


def test_the_picture_is_well_formed_for_any_sql_and_shows_it() -> None:
    found = lineage("a.x b.y", word=NASTY)
    root = ElementTree.fromstring(lineage_svg(found))
    texts = [each.text or "" for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert any("a<b>&\"'��]]>--" in text for text in texts)
    assert "<b>" not in lineage_html(found).replace("</b>", "")


def test_every_table_and_column_on_the_path_exists() -> None:
    texts = re.findall(r"<text[^>]*>([^<]*)", lineage_svg(lineage("a.x b.y", "b.y c.z", "a.q c.")))
    assert {"a", "b", "c", "x", "q", "y", "z"} <= set(texts)


ENDS = st.integers(0, 9)


@given(st.lists(st.tuples(ENDS, ENDS).filter(lambda pair: pair[0] < pair[1]), min_size=1, max_size=30))
def test_boxes_and_slots_do_not_overlap_and_edges_lead_to_the_right(pairs: list[tuple[int, int]]) -> None:
    ways = [(f"t{a}", f"t{b}") for a, b in pairs]
    names = sorted({name for way in ways for name in way})
    sizes = {name: (100.0, 30.0 + 10 * len(name)) for name in names}
    found = lay_out_boxes(sizes, ways, 50.0)
    for source, target in ways:
        assert found.layer_of[source] < found.layer_of[target]
        assert len(found.slots(source, target)) == found.layer_of[target] - found.layer_of[source] - 1
    for layer in range(max(found.layer_of.values()) + 1):
        spans = sorted(
            (top, top + (sizes[key[0]][1] if len(key) == 1 else 8.0))
            for key, top in found.top.items()
            if (int(key[2]) if len(key) == 3 else found.layer_of[key[0]]) == layer
        )
        for (_, end), (start, _) in pairwise(spans):
            assert end <= start + 1e-6


def test_no_character_that_acts_on_a_reader_is_in_a_diagram() -> None:
    text = "".join(char for char in map(chr, range(0x110000)) if has_control_characters(char))
    for written in (safe(text), _plain(text)):
        assert written and not has_control_characters(written)
