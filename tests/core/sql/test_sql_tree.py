"""The shrinker of random statements ends at the smallest failing tree, after a bounded number of trials."""

from random import Random

from random_sql import statement
from sql_tree import Node, exchanged, nodes, shrunk


def test_a_failing_statement_shrinks_to_its_cause() -> None:
    tree = next(tree for tree in map(statement, map(Random, range(200))) if "session_window" in str(tree))
    small = shrunk(tree, lambda each: "session_window" in str(each), asks=5_000)
    assert "session_window" in str(small) and len(str(small)) < len(str(tree)) / 2
    assert " JOIN " not in str(small) and "UNION" not in str(small) and " WHERE " not in str(small)


def test_shrinking_asks_no_more_often_than_it_may() -> None:
    asked: list[str] = []

    def fails(tree: Node) -> bool:
        asked.append(str(tree))
        return False

    tree = max((statement(Random(number)) for number in range(20)), key=lambda each: len(str(each)))
    assert shrunk(tree, fails, asks=30) is tree
    assert len(asked) < 30 and len(set(asked)) == len(asked)


def test_a_subtree_is_replaced_wherever_an_equal_one_occurs() -> None:
    key = Node("string", ("a.k",))
    tree = Node("select", ("SELECT ", key, " FROM a GROUP BY ", key))
    assert str(exchanged(tree, key, Node("string", ("upper(a.k)",)))) == "SELECT upper(a.k) FROM a GROUP BY upper(a.k)"
    assert [node.sort for node in nodes(tree)] == ["select", "string", "string"]
