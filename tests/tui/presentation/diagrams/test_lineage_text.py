"""Lineage as Mermaid and DOT: every name survives in its label, and never acts as a keyword."""

import html
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.lineage.column_lineage import ColumnLineage, LineageEdge, LineageNode
from core.model.names import TableName
from core.sql.lineage.model import ColumnOrigin, InputKind
from core.text.escaping import replace_control_characters
from tui.presentation.diagrams.lineage_text import ROWS, lineage_dot, lineage_mermaid

AWKWARD = (
    'a"b', "it's", "x]", "](y", "größe", "列", "🍕", "a\\", "\\l", "\\N", "#35;", "&lt;", "<b>", "a;b", "a->b",
    "a --> b", "%%{init}%%", "`x`", "{y}", "end", "graph", "subgraph", "digraph", "node", "edge", "strict", "style",
    "class", "rows", "a b", " ", "--", "/*", "//", "$1",
)  # fmt: skip
TABLES = ("end", "graph", "subgraph", "digraph", "node", "edge", "flowchart", "t0", "c0", "cluster_t0")

MERMAID = re.compile(
    r"""flowchart\ LR|\ \ subgraph\ t\d+\["[^"]*"\]|\ {4}c\d+(?:\["[^"]*"\]|\(\["[^"]*"\]\))|\ \ end
    |\ \ c\d+\ (?:-->|-\.->)\ c\d+|\ \ style\ [ct]\d+\ stroke-width:3px""",
    re.VERBOSE,
)
STRING = r'"(?:[^"\\]|\\.)*"'
DOT = re.compile(
    rf"""digraph\ \{{|\ \ rankdir=LR;|\ \ node\ \[shape=box\];
    |\ \ subgraph\ cluster_t\d+\ \{{\ label={STRING};(?:\ penwidth=3;)?
    |\ {{4}}c\d+\ \[label={STRING}(?:\ style=rounded)?(?:\ penwidth=3)?\];
    |\ \ \}}|\ \ c\d+\ ->\ c\d+(?:\ \[style=dashed\])?;|\}}""",
    re.VERBOSE,
)


def lineage(*ways: tuple[ColumnOrigin, ColumnOrigin], root: ColumnOrigin | None = None) -> ColumnLineage:
    edges = tuple(
        LineageEdge(s, t, InputKind.VALUE if t.column else InputKind.CONDITION, "SELECT", "x", (), (), "f", 1)
        for s, t in ways
    )
    nodes = tuple(LineageNode(end, "", landed=False) for end in dict.fromkeys(end for way in ways for end in way))
    return ColumnLineage(root or ways[-1][1], "up", nodes, edges, ())


def column(table: str, name: str = "") -> ColumnOrigin:
    return ColumnOrigin(TableName(table), name)


def mermaid_names(text: str) -> dict[str, str]:
    found = re.findall(r'(\w+)(?:\[|\(\[)"([^"]*)"', text)
    return {word: re.sub(r"#(\d+);", lambda code: chr(int(code[1])), label) for word, label in found}


def dot_names(text: str) -> dict[str, str]:
    found = re.findall(rf"(?:cluster_)?(\w+) (?:\[|\{{ )label=({STRING})", text)
    return {word: html.unescape(re.sub(r"\\(.)", r"\1", label[1:-1])) for word, label in found}


FORMS = pytest.mark.parametrize(
    ("write", "line", "names"), [(lineage_mermaid, MERMAID, mermaid_names), (lineage_dot, DOT, dot_names)],
    ids=["mermaid", "dot"],
)  # fmt: skip
Writer = Callable[[ColumnLineage], str]
Reader = Callable[[str], dict[str, str]]


@FORMS
def test_awkward_names_come_back_from_their_labels(write: Writer, line: re.Pattern[str], names: Reader) -> None:
    ways = [(column(table, name), column("zz", name)) for table in TABLES for name in AWKWARD]
    text = write(lineage(*ways, (column("t0"), column("zz"))))
    assert [each for each in text.splitlines() if not line.fullmatch(each)] == []
    found = names(text)
    assert set(found.values()) == {*AWKWARD, *TABLES, "zz", ROWS}
    assert all(re.fullmatch(r"[ct]\d+", word) for word in found)
    assert len(found) == len(TABLES) * (1 + len(AWKWARD)) + 1 + len(AWKWARD) + 2


@FORMS
@given(name=st.text(min_size=1))
def test_any_name_stays_one_label(write: Writer, line: re.Pattern[str], names: Reader, name: str) -> None:
    text = write(lineage((column("a", name), column("b", name))))
    assert [each for each in text.splitlines() if not line.fullmatch(each)] == []
    shown = "".join(char if char.isprintable() else " " if char.isspace() else "\ufffd" for char in name)
    assert set(names(text).values()) == {"a", "b", replace_control_characters(shown)}


@FORMS
def test_the_order_in_which_it_was_found_does_not_matter(write: Writer, line: re.Pattern[str], names: Reader) -> None:
    found = lineage(
        (column("a", "x"), column("b", "y")), (column("a"), column("b")), (column("b", "y"), column("c", "z"))
    )
    turned = replace(found, nodes=found.nodes[::-1], edges=found.edges[::-1] + found.edges[:1])
    assert write(found) == write(turned)


def test_a_flowchart_has_a_box_for_each_table_and_an_arrow_for_each_way() -> None:
    found = lineage((column("a"), column("b")), (column("a", "x"), column("b", "y")))
    assert lineage_mermaid(found) == (
        'flowchart LR\n  subgraph t0["a"]\n    c0(["rows"])\n    c1["x"]\n  end\n'
        '  subgraph t1["b"]\n    c2(["rows"])\n    c3["y"]\n  end\n'
        "  c0 -.-> c2\n  c1 --> c3\n  style c3 stroke-width:3px\n"
    )


def test_a_digraph_has_a_cluster_per_table_and_highlights_the_requested_column() -> None:
    found = lineage((column("a", "x"), column("b", "y")), root=column("b"))
    assert lineage_dot(found) == (
        "digraph {\n  rankdir=LR;\n  node [shape=box];\n"
        '  subgraph cluster_t0 { label="a";\n    c0 [label="x"];\n  }\n'
        '  subgraph cluster_t1 { label="b"; penwidth=3;\n    c1 [label="y"];\n  }\n  c0 -> c1;\n}\n'
    )
