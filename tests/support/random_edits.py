"""Random pairs: a random statement over the tables of `random_sql`, and the same statement after one random edit.

Both texts are read without an error. Neither holds LIMIT or `first`, whose rows are another choice each time they run.
A numeric column is cast to the type that its table declares, as files of another type could not be read.
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
"""Returns the kind of an edit and a tree with nodes of sort `edit`; None where a statement has no place for it."""

OLD, NEW = 0, 1
REBUILT_SHARE = 0.25
"""Of the pairs that are rebuilt, how many are run: whatever Spark makes of one, it cannot show that we are wrong."""

PLAIN_SHARE = 0.15
"""Of the statements without state over one table, how many are taken."""

LONGEST = 600
_PARENTS = {TableName(name): tuple(column for column, _ in SHAPE) for name in GROWING + FIXED}
_KINDS_BY_LETTER = {"x": "number", "e": "number"}
_NOT_DETERMINISTIC = re.compile(r"\bLIMIT\b|\bfirst\(|\bORDER BY\b", re.I)


@dataclass(frozen=True, slots=True)
class Pair:
    """An edit in a statement; `tree` holds both sides of it in nodes of sort `edit`."""

    kind: str
    tree: Node
    columns: tuple[tuple[str, str], ...]
    """Names and kinds of the statement's columns, as far as its items do not tell them."""
    rewrite: Rewrite = str
    """What was done to the text of the new side besides."""
    back: bool = False
    """Whether the edit is made the other way round."""

    @property
    def texts(self) -> tuple[RevisionTexts, ...] | None:
        """The old and the new texts; None where the kind of a column is not known."""
        sides = (written(self.tree, OLD), self.rewrite(written(self.tree, NEW)))
        found = [_texts(each, self) for each in (sides[::-1] if self.back else sides)]
        known = tuple(each for each in found if each is not None)
        return known if len(known) == len(found) else None

    @property
    def edit(self) -> Edit | None:
        """Both revisions, when both are read without an error and differ."""
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
    """Return a random edit of a random statement."""
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
    """List the pairs that hold the same edit in less, those that lose most first."""
    for tree in smaller(pair.tree):
        yield replace(pair, tree=tree)


def written(node: Node | str, side: int) -> str:
    """Write one side of a tree with edits in it."""
    if isinstance(node, str):
        return node
    if node.sort == "edit":
        return written(node.pieces[side], side)
    texts = [written(each, side) for each in node.pieces]
    return node.between.join(filter(None, texts) if node.between else texts)


def _texts(select: str, pair: Pair) -> RevisionTexts | None:
    """Return the texts of a statement: its table has the columns that it writes."""
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
    """Cast every numeric item of the statement's own SELECTs, which are the branches of a union or one alone."""
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
    """Ask for two aggregates besides, in HAVING: where none is there, now and then."""
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
    """Make one edit, of a sort that the statement has a place for."""
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
    """Put a node in the place of that very one; a key that stands in GROUP BY and in SELECT is one node."""
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
    """Put another value, condition, join or table in the place of one."""
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
    """Take an optional clause away; a part of WITH only where nothing reads it."""
    old = _one(random, tree, lambda node: node.optional and node.sort not in ("part", "limit"))
    if old is None:
        return None
    if old.sort == "with":
        names = re.findall(r"(?:WITH|\),) (\w+)", str(old))
        if any(len(re.findall(rf"\b{name}\b", str(tree))) > 1 for name in names):
            return None
    return f"{old.sort} dropped", _put(tree, old, _both(old, ""))


def _shorter(random: Random, tree: Node) -> tuple[str, Node] | None:
    """Take one item away from a list."""
    listed = _one(random, tree, lambda node: bool(node.between) and len(node.pieces) > 1)
    if listed is None:
        return None
    index = random.randrange(len(listed.pieces))
    pieces = [_both(each, "") if at == index else each for at, each in enumerate(listed.pieces)]
    return f"one of {listed.sort} dropped", _put(tree, listed, replace(listed, pieces=tuple(pieces)))


def _swapped(random: Random, tree: Node) -> tuple[str, Node] | None:
    """Swap two neighbours of a list: terms of AND, keys, columns, branches."""
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
    """Put brackets around a join, or around a condition."""
    old = _one(random, tree, lambda node: node.sort == "condition" or _is_join(node))
    if old is None:
        return None
    new = Node(old.sort, (_both("", "("), old, _both("", ")")))
    return f"brackets around a {'join' if old.sort == 'relation' else 'condition'}", _put(tree, old, new)


def _sides(random: Random, tree: Node) -> tuple[str, Node] | None:
    """Swap the sides of a join."""
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
    """Add a branch to a union, or make one of a query."""
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
    """Return the list of the statement's own items; of a union, of its first branch."""
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
    """Change the delay of a watermark."""
    mark = _one(random, tree, lambda node: node.sort == "watermark")
    old = next((each for each in mark.pieces if isinstance(each, Node)), None) if mark is not None else None
    if old is None:
        return None
    return "another delay", _put(tree, old, _both(old, str(random.randint(31, 50))))


def _column(random: Random, tree: Node) -> tuple[str, Node] | None:
    """Add a column at the end of the statement's own."""
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
    """Write a condition twice, or one more at this level."""
    old = _one(random, tree, lambda node: node.sort == "condition" and bool(node.scope))
    if old is None:
        return None
    again = old if random.random() < 0.3 else fresh(random, old)
    both = Node("condition", (_both("", "("), old, _both("", f" AND {again})")))
    return f"condition {'twice' if again is old else 'added'}", _put(tree, old, both)


def _extracted(random: Random, tree: Node) -> Node | None:
    """Mark a subquery that goes to the front of the text."""
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
    """Edit the text of a statement at one place."""
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
