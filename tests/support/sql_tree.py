"""SQL as a tree of replaceable nodes, which can be written as text, shrunk, and edited in one place."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the tree; nodes of the same sort can replace each other."""

    sort: str
    pieces: tuple["Node | str", ...]
    between: str = ""
    """The text between pieces. If it is not empty, the node is a list that remains valid with a single piece."""
    optional: bool = False
    """True if the statement remains valid without this node."""
    scope: Any = field(default=(), compare=False)
    """The columns that can be referenced here."""

    def __str__(self) -> str:
        return self.between.join(str(piece) for piece in self.pieces)


def nodes(tree: Node) -> Iterator[Node]:
    """Yield all nodes of a tree, parents before children."""
    yield tree
    for piece in tree.pieces:
        if isinstance(piece, Node):
            yield from nodes(piece)


def exchanged(tree: Node, old: Node, new: Node) -> Node:
    """Replace a node and all nodes equal to it, such as a key in both GROUP BY and SELECT."""
    if tree == old:
        return new
    pieces = tuple(exchanged(each, old, new) if isinstance(each, Node) else each for each in tree.pieces)
    return replace(tree, pieces=pieces)


def smaller(tree: Node) -> Iterator[Node]:
    """Yield the trees that are one step smaller, smallest first."""
    yield from _in_its_place(tree)
    if tree.between and len(tree.pieces) > 1:
        for index in range(len(tree.pieces)):
            yield replace(tree, pieces=tree.pieces[:index] + tree.pieces[index + 1 :])
    for index, piece in enumerate(tree.pieces):
        if not isinstance(piece, Node):
            continue
        rest = ("",) if piece.optional else ()
        for new_piece in (*rest, *smaller(piece)):
            yield replace(tree, pieces=(*tree.pieces[:index], new_piece, *tree.pieces[index + 1 :]))


def _in_its_place(tree: Node) -> list[Node]:
    found = [node for node in nodes(tree) if node is not tree and node.sort == tree.sort]
    return sorted(found, key=lambda node: len(str(node)))


def shrunk(tree: Node, fails: Callable[[Node], bool], *, asks: int = 400) -> Node:
    """Shrink a failing tree as far as it still fails, in at most `asks` trials."""
    seen = {str(tree)}
    progress = True
    while progress:
        progress = False
        for candidate in smaller(tree):
            if str(candidate) in seen or len(str(candidate)) >= len(str(tree)):
                continue
            seen.add(str(candidate))
            if len(seen) > asks:
                return tree
            if fails(candidate):
                tree, progress = candidate, True
                break
    return tree
