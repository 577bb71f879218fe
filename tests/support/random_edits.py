"""Random pairs: a random statement over the tables of `random_sql`, and the same statement after one random edit.

Both texts parse without an error. Neither contains LIMIT or `first`, which may select different rows in each run.
Numeric columns are cast to the type that their table declares, because files of another type could not be read.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

from random_sql import fresh, query
from random_values import DDL_TYPES, FIXED, GROWING, SHAPE
from revision_pairs import YML, Edit
from sql_tree import Node, nodes, smaller
from text_rewrites import EVERYWHERE, OTHER, SAME, Rewrite, Rule, cased, moved, renamed, substituted

from core.changes.classification import classify
from core.model.actions import Action
from core.model.names import TableName
from core.project.model import Settings
from core.project.revision import Revision, RevisionTexts
from core.project_reader.revision_reader import read_revision
from core.sql.statement_reader import read_statements

Maker = Callable[[Random, Node], tuple[str, Node] | None]
"""Returns the kind of an edit and a tree with `edit` nodes, or None if the statement has no place for such an edit."""

OLD, NEW = 0, 1
REBUILT_SHARE = 0.25
"""Share of rebuilt pairs that are run. It is small, because no result of Spark can prove a rebuild wrong."""

PLAIN_SHARE = 0.15
"""Share of stateless statements over one table that are kept."""

LONGEST = 600
_PARENTS = {TableName(name): tuple(column for column, _ in SHAPE) for name in GROWING + FIXED}
_KINDS_BY_LETTER = {"x": "number", "e": "number"}
_NOT_DETERMINISTIC = re.compile(r"\bLIMIT\b|\bfirst\(|\bORDER BY\b", re.I)


@dataclass(frozen=True, slots=True)
class Pair:
    """An edit of a statement; nodes of sort `edit` in `tree` contain both the old and the new side."""

    kind: str
    tree: Node
    columns: tuple[tuple[str, str], ...]
    """Names and kinds of the statement's columns, if they cannot be derived from the select items."""
    rewrite: Rewrite = str
    """A further rewrite of the new side's text."""
    back: bool = False
    """True if old and new are exchanged."""

    @property
    def texts(self) -> tuple[RevisionTexts, ...] | None:
        """The old and the new texts; None if the kind of a column is unknown."""
        sides = (written(self.tree, OLD), self.rewrite(written(self.tree, NEW)))
        found = [_texts(each, self) for each in (sides[::-1] if self.back else sides)]
        known = tuple(each for each in found if each is not None)
        return known if len(known) == len(found) else None

    @property
    def edit(self) -> Edit | None:
        """The old and the new revision; None unless both can be used and their texts differ."""
        texts = self.texts
        if texts is None or texts[0] == texts[1]:
            return None
        if any(len(each.dml) > LONGEST or _NOT_DETERMINISTIC.search(each.dml) for each in texts):
            return None
        old, new = (read_revision(TableName("t"), each, Settings()) for each in texts)
        if old is None or new is None:
            return None
        return Edit(f"{self.kind}{', back' if self.back else ''}", (), _known(old), _known(new), ())


def pair(random: Random) -> tuple[Pair, Edit]:
    """Return a random edit of a random statement, and its revisions."""
    while True:
        made = query(random, random.choice((0, 1, 1, 1, 2)))
        tree = _with_having(random, _with_casts(made.node))
        if not made.streams or len(str(tree)) > LONGEST or _NOT_DETERMINISTIC.search(str(tree)):
            continue
        found = _edited(random, tree, tuple((each.name, each.kind) for each in made.columns))
        edit = found.edit if found is not None else None
        if found is None or edit is None:
            continue
        rebuilt = classify(edit.old, edit.new).action is Action.REBUILD
        if random.random() < (REBUILT_SHARE if rebuilt else PLAIN_SHARE if _plain(edit) else 1):
            return found, edit


def _plain(edit: Edit) -> bool:
    both = [each.parsed for each in (edit.old, edit.new) if each.parsed is not None]
    return not any(parsed.stateful or len(parsed.reads) > 1 for parsed in both)


def smaller_pairs(pair: Pair) -> Iterator[Pair]:
    """Yield smaller pairs that contain the same edit, smallest first."""
    for tree in smaller(pair.tree):
        yield replace(pair, tree=tree)


def written(node: Node | str, side: int) -> str:
    """Return the SQL of the old or the new side of a tree that contains edits."""
    if isinstance(node, str):
        return node
    if node.sort == "edit":
        return written(node.pieces[side], side)
    texts = [written(each, side) for each in node.pieces]
    return node.between.join(filter(None, texts) if node.between else texts)


def _texts(select: str, pair: Pair) -> RevisionTexts | None:
    """Return the texts of a statement, whose table is declared with the columns that the statement writes."""
    found, problems = read_statements(f"INSERT INTO t {select}", "q.sql")
    if problems or len(found) != 1:
        return None
    kinds = dict(SHAPE) | dict(_item_kinds(pair.tree)) | dict(pair.columns)
    names = [each.name for each in found[0].columns]
    if any(each.expression.endswith("*") for each in found[0].columns):
        names = [name for name, _ in pair.columns]
    types = [kinds.get(name) or _KINDS_BY_LETTER.get(name[:1], "") for name in names]
    if "" in types or not names or len({*names}) < len(names):
        return None
    columns = ", ".join(f"{name} {DDL_TYPES[kind]}" for name, kind in zip(names, types, strict=True))
    return RevisionTexts(f"CREATE TABLE t ({columns}) USING parquet;", f"INSERT INTO t {select}", YML)


def _item_kinds(tree: Node) -> Iterator[tuple[str, str]]:
    for node in nodes(tree):
        if node.sort == "item" and len(node.pieces) > 1 and isinstance(node.pieces[0], Node):
            name, value = written(node.pieces[1], OLD).split()[-1], node.pieces[0]
            while value.sort == "edit":
                value = next(side for side in value.pieces if isinstance(side, Node))
            yield name, value.sort.split()[0]


def _known(revision: Revision) -> Revision:
    return replace(revision, parents=_PARENTS)


def _with_casts(tree: Node) -> Node:
    """Cast every numeric item of the outermost SELECT or, in a union, of each branch."""
    if tree.sort == "item":
        value = tree.pieces[0]
        if not isinstance(value, Node) or not value.sort.startswith("number"):
            return tree
        cast = Node("number cast", ("CAST(", value, " AS ", Node("type", ("BIGINT",)), ")"))
        return replace(tree, pieces=(cast, *tree.pieces[1:]))
    inside = ("query", "body", "branch", "select", "items")
    pieces = [_with_casts(each) if isinstance(each, Node) and each.sort in (*inside, "item") else each
              for each in tree.pieces]  # fmt: skip
    return replace(tree, pieces=tuple(pieces))


def _with_having(random: Random, tree: Node) -> Node:
    """Sometimes add a HAVING clause with two aggregates to a grouped statement that has none."""
    select = next((each for each in nodes(tree) if each.sort == "select" and _grouped(each) is not None), tree)
    group = _grouped(select)
    items = (each for each in select.pieces if isinstance(each, Node) and each.sort == "items")
    known = [each for listed in items for each in nodes(listed) if each.sort == "number aggregate"]
    if group is None or not known or " HAVING " in str(tree) or random.random() < 0.5:
        return tree
    one, two, three = (fresh(random, random.choice(known)) for _ in range(3))
    asked = (Node("condition", (one, " >= ", two)), Node("condition", (three, " > ", Node("literal", ("0",)))))
    having = Node("having", (" HAVING ", Node("condition", asked, " AND ")), optional=True)
    return _put(tree, group, replace(group, pieces=(*group.pieces, having)))


def _grouped(select: Node) -> Node | None:
    found = (each for each in select.pieces if isinstance(each, Node) and each.sort == "group")
    return next((each for each in found if len(each.pieces) > 1), None)


def _edited(random: Random, tree: Node, columns: tuple[tuple[str, str], ...]) -> Pair | None:
    """Return the tree after one random edit; None if the statement has no place for that edit."""
    back = random.random() < 0.5
    draw = random.random()
    if draw < 0.25:
        return _rewritten(random, tree, columns, SAME, "same", back=back)
    if draw < 0.37:
        return _rewritten(random, tree, columns, OTHER, "text", back=back)
    if draw < 0.42 and (extracted := _extracted(random, tree)) is not None:
        return Pair("subquery to WITH", extracted, columns, moved, back)
    makers = [_renewed, _renewed, _renewed, _renewed, _dropped, _dropped, _shorter, _swapped, _swapped,
              _bracketed, _sides, _branch, _cast, _delay, _column, _twice]  # fmt: skip
    for make in random.sample(makers, len(makers)):
        made = make(random, tree)
        if made is not None:
            return Pair(made[0], made[1], columns, str, back)
    return None


def _put(tree: Node, old: Node, new: Node) -> Node:
    """Replace a particular node, even if equal ones exist; a key in both GROUP BY and SELECT is the same node."""
    if tree is old:
        return new
    pieces = tuple(_put(each, old, new) if isinstance(each, Node) else each for each in tree.pieces)
    same = all(one is other for one, other in zip(pieces, tree.pieces, strict=True))
    return tree if same else replace(tree, pieces=pieces)


def _both(old: Node | str, new: Node | str) -> Node:
    return Node("edit", (old, new))


def _one(random: Random, tree: Node, fits: Callable[[Node], bool]) -> Node | None:
    found = [each for each in nodes(tree) if fits(each)]
    return random.choice(found) if found else None


_RENEWED = frozenset(("literal", "letter", "interval", "condition", "join", "growing", "fixed", *DDL_TYPES))


def _renewed(random: Random, tree: Node) -> tuple[str, Node] | None:
    """Replace a value, condition, join or table with another of its sort."""
    sorts = sorted({each.sort for each in nodes(tree) if each.sort in _RENEWED or each.sort.endswith(" aggregate")})
    if not sorts:
        return None
    sort = random.choice(sorts)
    old = _one(random, tree, lambda node: node.sort == sort)
    if old is None or (not old.scope and sort in ("condition", *DDL_TYPES)):
        return None
    new = fresh(random, old)
    return None if str(new) == str(old) else (f"another {sort}", _put(tree, old, _both(old, new)))


def _dropped(random: Random, tree: Node) -> tuple[str, Node] | None:
    """Remove an optional clause; a part of WITH is removed only if nothing reads it."""
    old = _one(random, tree, lambda node: node.optional and node.sort not in ("part", "limit"))
    if old is None:
        return None
    if old.sort == "with":
        names = re.findall(r"(?:WITH|\),) (\w+)", str(old))
        if any(len(re.findall(rf"\b{name}\b", str(tree))) > 1 for name in names):
            return None
    return f"{old.sort} dropped", _put(tree, old, _both(old, ""))


def _shorter(random: Random, tree: Node) -> tuple[str, Node] | None:
    """Remove one item from a list."""
    listed = _one(random, tree, lambda node: bool(node.between) and len(node.pieces) > 1)
    if listed is None:
        return None
    index = random.randrange(len(listed.pieces))
    pieces = [_both(each, "") if at == index else each for at, each in enumerate(listed.pieces)]
    return f"one of {listed.sort} dropped", _put(tree, listed, replace(listed, pieces=tuple(pieces)))


def _swapped(random: Random, tree: Node) -> tuple[str, Node] | None:
    """Swap two neighbouring items in a list: terms of AND, keys, columns, or branches."""
    listed = _one(random, tree, lambda node: bool(node.between) and len(node.pieces) > 1)
    if listed is None:
        return None
    at = random.randrange(len(listed.pieces) - 1)
    one, other = listed.pieces[at : at + 2]
    pieces = (*listed.pieces[:at], _both(one, other), _both(other, one), *listed.pieces[at + 2 :])
    return f"two of {listed.sort} swapped", _put(tree, listed, replace(listed, pieces=pieces))


def _is_join(node: Node) -> bool:
    return node.sort == "relation" and any(isinstance(each, Node) and each.sort == "join" for each in node.pieces)


def _bracketed(random: Random, tree: Node) -> tuple[str, Node] | None:
    """Put brackets around a join or a condition."""
    old = _one(random, tree, lambda node: node.sort == "condition" or _is_join(node))
    if old is None:
        return None
    new = Node(old.sort, (_both("", "("), old, _both("", ")")))
    return f"brackets around a {'join' if old.sort == 'relation' else 'condition'}", _put(tree, old, new)


def _sides(random: Random, tree: Node) -> tuple[str, Node] | None:
    old = _one(random, tree, lambda node: _is_join(node) or (node.sort == "relation" and ", " in node.pieces))
    if old is None:
        return None
    places = [at for at, each in enumerate(old.pieces) if isinstance(each, Node) and each.sort == "relation"]
    if len(places) != 2:
        return None
    left, right = (old.pieces[at] for at in places)
    pieces = [_both(left, right) if at == places[0] else _both(right, left) if at == places[1] else each
              for at, each in enumerate(old.pieces)]  # fmt: skip
    return "sides of a join swapped", _put(tree, old, replace(old, pieces=tuple(pieces)))


def _branch(random: Random, tree: Node) -> tuple[str, Node] | None:
    """Add a branch to a union, or turn a query into a union."""
    kinds = [kind for _, kind in _item_kinds(_first_items(tree))]
    if not kinds or len(kinds) != len(_first_items(tree).pieces):
        return None
    added = query(random, 0, kinds, first=60).node
    body = tree.pieces[-1]
    if not isinstance(body, Node):
        return None
    if body.sort == "body":
        return "branch added", _put(tree, body, replace(body, pieces=(*body.pieces, _both("", added))))
    return "branch added", _put(tree, body, Node("body", (body, _both("", added)), " UNION ALL "))


def _first_items(tree: Node) -> Node:
    """Return the item list of the outermost SELECT or, in a union, of the first branch."""
    while tree.sort in ("query", "body", "branch", "select"):
        inside = [each for each in tree.pieces if isinstance(each, Node)]
        own = [each for each in inside if each.sort in ("query", "body", "branch", "select", "items")]
        if not own:
            return Node("items", ())
        tree = own[-1] if tree.sort == "query" else own[0]
    return tree


def _cast(random: Random, tree: Node) -> tuple[str, Node] | None:
    """Cast a column to another type."""
    old = _one(random, tree, lambda node: node.sort == "type")
    kind = random.choice(("INT", "STRING", "DOUBLE"))
    return None if old is None else ("another cast", _put(tree, old, _both(old, kind)))


def _delay(random: Random, tree: Node) -> tuple[str, Node] | None:
    mark = _one(random, tree, lambda node: node.sort == "watermark")
    old = next((each for each in mark.pieces if isinstance(each, Node)), None) if mark is not None else None
    if old is None:
        return None
    return "another delay", _put(tree, old, _both(old, str(random.randint(31, 50))))


def _column(random: Random, tree: Node) -> tuple[str, Node] | None:
    """Append a column to the outermost SELECT."""
    items = _first_items(tree)
    values = [each for node in items.pieces if isinstance(node, Node) for each in nodes(node) if each.scope]
    if not values or "UNION" in str(tree):
        return None
    value = fresh(random, random.choice(values))
    if value.sort.startswith("number"):
        value = Node("number cast", ("CAST(", value, " AS BIGINT)"))
    if value.sort.split()[0] not in DDL_TYPES:
        return None
    item = Node("item", (value, " AS c99"))
    return "column added", _put(tree, items, replace(items, pieces=(*items.pieces, _both("", item))))


def _twice(random: Random, tree: Node) -> tuple[str, Node] | None:
    """Repeat a condition, or combine it with another one."""
    old = _one(random, tree, lambda node: node.sort == "condition" and bool(node.scope))
    if old is None:
        return None
    again = old if random.random() < 0.3 else fresh(random, old)
    both = Node("condition", (_both("", "("), old, _both("", f" AND {again})")))
    return f"condition {'twice' if again is old else 'added'}", _put(tree, old, both)


def _extracted(random: Random, tree: Node) -> Node | None:
    """Mark a subquery that is to be moved into WITH."""
    old = _one(random, tree, lambda node: node.sort == "relation" and node.pieces[0] == "(" and _is_query(node))
    if old is None:
        return None
    return _put(tree, old, replace(old, pieces=(_both("(", "\1"), old.pieces[1], _both(")", "\2"), *old.pieces[3:])))


def _is_query(node: Node) -> bool:
    return isinstance(node.pieces[1], Node) and node.pieces[1].sort == "query" and node.pieces[2] == ")"


def _rewritten(
    random: Random,
    tree: Node,
    columns: tuple[tuple[str, str], ...],
    rules: Sequence[Rule],
    word: str,
    *,
    back: bool,
) -> Pair | None:
    """Edit the statement's text in one place, by one of the rules."""
    text = str(tree)
    if word == "same" and random.random() < 0.12:
        upper = random.random() < 0.5
        return Pair("same: case", tree, columns, lambda text: cased(text, upper=upper), back)
    found = [each for each in rules if re.search(each[1], text)]
    if not found:
        return None
    name, pattern, into = random.choice(found)
    place = random.randrange(len(re.findall(pattern, text)))
    kinds = {new: kind for new, kind in renamed(columns, pattern, into)}
    rewrite = substituted(pattern, into, place, everywhere=name in EVERYWHERE)
    return Pair(f"{word}: {name}", tree, (*columns, *kinds.items()), rewrite, back)
