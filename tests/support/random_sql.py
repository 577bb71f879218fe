"""Random streaming statements over the five tables of `random_values`.

Spark accepts most of them, and refuses the others because of limits of streaming, such as an aggregate without a
watermark. Every referenced column exists and has the required type.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from random_values import DDL_TYPES, FIXED, GROWING, SHAPE, Column, Pieces, Scope, Values
from sql_tree import Node

_JOINS = (
    *("JOIN",) * 6, "INNER JOIN", "LEFT JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN",
    "LEFT ANTI JOIN",
)  # fmt: skip
_ITEM_KINDS = (*("number", "string", "time") * 3, "struct")


@dataclass(frozen=True, slots=True)
class Piece:
    """A query or a relation of the statement, with its columns."""

    node: Node
    columns: Scope
    streams: bool


def statement(random: Random) -> Node:
    """Return a random statement that reads at least one stream."""
    while True:
        made = _Statement(random).query(random.choice((1, 2, 2, 3)))
        if made.streams:
            return made.node


def query(random: Random, depth: int, kinds: Sequence[str] = (), *, first: int = 0) -> Piece:
    """Return a random query with its columns, of the given kinds if any; aliases are numbered from `first`."""
    return _Statement(random, first=first).query(depth, kinds)


def fresh(random: Random, node: Node) -> Node:
    """Return another random node of the same sort, with the same columns in scope."""
    return _Statement(random, first=50).again(node)


class _Statement(Values):
    """A statement under construction, with its parts of WITH and the aliases used so far."""

    def __init__(self, random: Random, *, first: int = 0) -> None:
        super().__init__(random, first=first)
        self._parts: dict[str, Piece] = {}

    def query(self, depth: int, kinds: Sequence[str] = ()) -> Piece:
        """Return a random query, possibly with a WITH clause."""
        before, parts, streams = dict(self._parts), [], False
        if depth and self._chance(0.15):
            for _ in range(self._one_of((1, 1, 2))):
                inner = self.query(depth - 1)
                name = self._one_of(GROWING + FIXED) if self._chance(0.08) else self._alias("p")
                columns, listed = inner.columns, ""
                if self._chance(0.2):
                    columns = tuple(Column("", self._alias("n"), each.kind) for each in columns)
                    listed = f" ({', '.join(each.name for each in columns)})"
                parts.append(Node("part", (f"{name}{listed} AS (", inner.node, ")"), optional=True))
                self._parts[name] = Piece(inner.node, columns, inner.streams)
                # Spark also reads the streams of a part of WITH that nothing uses.
                streams = streams or inner.streams
        body = self._body(depth, kinds)
        self._parts = before
        head = (Node("with", ("WITH ", Node("parts", tuple(parts), ", "), " "), optional=True),) if parts else ()
        return Piece(Node("query", (*head, body.node)), body.columns, body.streams or streams)

    def _body(self, depth: int, kinds: Sequence[str]) -> Piece:
        first = self._select(depth, kinds)
        if not depth or not self._chance(0.18):
            return first
        pieces = [first]
        for _ in range(self._one_of((1, 1, 2))):
            pieces.append(self._select(depth - 1, [each.kind for each in first.columns]))
        word = "UNION ALL" if self._chance(0.8) else self._one_of(("UNION", "UNION DISTINCT", "EXCEPT", "INTERSECT"))
        written = [self._branch(each.node) for each in pieces]
        node = Node("body", tuple(written), f" {word} ")
        return Piece(node, first.columns, any(each.streams for each in pieces))

    def _branch(self, query: Node) -> Node:
        """Return a query as branch of a set operation, in brackets if it ends with ORDER BY or LIMIT."""
        ends = any(isinstance(each, Node) and each.sort in ("order", "limit") for each in query.pieces)
        return Node("branch", ("(", query, ")")) if ends or self._chance(0.1) else query

    def _select(self, depth: int, kinds: Sequence[str]) -> Piece:
        source = self._from(depth)
        scope = source.columns
        where: tuple[Node, ...] = ()
        if self._chance(0.4):
            where = (Node("where", (" WHERE ", self._condition(scope, depth)), optional=True),)
        tail: list[Node] = []
        if self._chance(0.3):
            items, columns, group = self._grouped(scope, kinds)
            tail.append(group)
        else:
            items, columns = self._listed(scope, kinds)
        distinct = (Node("distinct", ("DISTINCT ",), optional=True),) if self._chance(0.07) else ()
        if self._chance(0.01):
            tail.append(Node("order", (f" ORDER BY {self._random.randint(1, len(columns))}",), optional=True))
        if self._chance(0.04):
            tail.append(Node("limit", (" LIMIT ", self._literal(1, 9)), optional=True))
        star = ""
        structs = any(each.kind == "struct" for each in scope)
        if not kinds and not tail and self._chance(0.5 if structs else 0.12):
            star, kept = self._star(scope)
            columns = tuple(Column("", each.name, each.kind) for each in kept) if star else columns
        listed = star or Node("items", tuple(items), ", ")
        node = Node("select", ("SELECT ", *distinct, listed, " FROM ", source.node, *where, *tail))
        return Piece(node, columns, source.streams)

    def _star(self, scope: Scope) -> tuple[str, Scope]:
        """Return a random `*`, `a.*`, `st.*` or `* EXCEPT (…)` and its columns; empty if none has distinct names."""
        stars: list[tuple[str, Scope]] = [("*", scope)]
        for struct in [each for each in scope if each.kind == "struct"]:
            fields = self._fields(struct, scope)
            stars += [(f"{fields[0].qualifier}.*", fields)] * 3
        aliases = dict.fromkeys(each.qualifier for each in scope)
        if "" not in aliases:
            # `a.*` includes columns merged by USING, which no alias in the scope has.
            stars += [(f"{alias}.*", tuple(each for each in scope if each.qualifier == alias)) for alias in aliases]
            stars.append((", ".join(f"{alias}.*" for alias in aliases), scope))
        for star, columns in list(stars):
            gone = self._one_of(columns)
            same = sum(each.name == gone.name for each in columns) > 1
            if len(columns) > 1 and star.count("*") == 1 and not (same and not gone.qualifier):
                # Spark does not find a struct's field if EXCEPT qualifies it with the name of the struct.
                qualified = gone.qualifier in aliases and (same or (gone.qualifier and self._chance(0.5)))
                name = f"{gone.qualifier}.{gone.name}" if qualified else gone.name
                stars.append((f"{star} EXCEPT ({name})", tuple(each for each in columns if each is not gone)))
        named = [each for each in stars if self._distinct_names(each[1])]
        return self._one_of(named) if named else ("", ())

    def _distinct_names(self, scope: Scope) -> bool:
        return len({each.name for each in scope}) == len(scope)

    def _listed(self, scope: Scope, kinds: Sequence[str]) -> tuple[list[Node], Scope]:
        """Return the select items of a query without aggregates; they usually include the row's time."""
        items, columns = [], []
        wanted = kinds or [self._one_of(_ITEM_KINDS) for _ in range(self._random.randint(1, 3))]
        times = [each for each in scope if each.kind == "time"]
        for kind in wanted:
            if kind == "time" and times and self._chance(0.9):
                value = Node("time", (self._named(self._one_of(times), scope),), scope=scope)
            elif self._chance(0.01):
                value = Node(kind, (self._over(kind, scope),))
            else:
                value = self._value(kind, scope, 2)
            self._item(value, kind, items, columns)
        if not kinds and times and not any(each.kind == "time" for each in columns) and self._chance(0.7):
            column = self._one_of(times)
            items.append(Node("item", (self._named(column, scope),)))
            name = column.name if all(each.name != column.name for each in columns) else ""
            if name:
                columns.append(Column("", name, "time"))
            else:
                items.pop()
        return items, tuple(columns)

    def _item(self, value: Node, kind: str, items: list[Node], columns: list[Column]) -> None:
        name = self._alias("c")
        word = self._one_of((" AS ", " AS ", " "))
        items.append(Node("item", (value, f"{word}{name}")))
        columns.append(Column("", name, kind))

    def _grouped(self, scope: Scope, kinds: Sequence[str]) -> tuple[list[Node], Scope, Node]:
        """Return the select items and GROUP BY of an aggregating query, usually over a window, as streams require."""
        keys: list[tuple[Node, str, Node]] = []
        times = [each for each in scope if each.kind == "time"]
        if times and self._chance(0.7):
            time = Node("time", (self._named(self._one_of(times), scope),), scope=scope)
            word, output = self._one_of(
                (
                    ("window", "window.start"),
                    ("window", "window.end"),
                    ("session_window", "session_window.start"),
                    ("", ""),
                )
            )
            if word:
                keys.append(
                    (Node("key", (f"{word}(", time, ", '", self._interval(), "')")), "time", Node("time", (output,)))
                )
            else:
                keys.append((time, "time", time))
        for kind in self._random.sample(("string", "number"), self._random.randint(0 if keys else 1, 2)):
            value = self._value(kind, scope, self._one_of((0, 0, 1)))
            if not str(value)[:1].isdigit() and not str(value).startswith("'"):
                keys.append((value, kind, value))
        items: list[Node] = []
        columns: list[Column] = []
        wanted = kinds or [*(kind for _, kind, _ in keys if self._chance(0.8)), "number"]
        left = list(keys)
        for kind in wanted:
            found = next((each for each in left if each[1] == kind), None)
            if found is not None:
                left.remove(found)
                value = found[2]
            else:
                value = self._aggregate(kind, scope)
            self._item(value, kind, items, columns)
        if not keys:
            return items, tuple(columns), Node("group", ("",))
        listed = Node("keys", tuple(each[0] for each in keys), ", ")
        word = self._one_of((*("",) * 12, "ROLLUP ", "CUBE "))
        group: Pieces = (f" GROUP BY {word}{'(' if word else ''}", listed, ")" if word else "")
        if self._chance(0.2):
            number = self._aggregate("number", scope)
            group = (
                *group,
                Node("having", (" HAVING ", Node("condition", (number, " > ", self._literal()))), optional=True),
            )
        return items, tuple(columns), Node("group", group)

    def _from(self, depth: int) -> Piece:
        source = self._relation(depth)
        if self._chance(0.08):
            source = self._exploded(source)
        if depth and self._chance(0.05):
            right = self._relation(depth - 1)
            node = Node("relation", (source.node, ", ", right.node))
            source = Piece(node, source.columns + right.columns, source.streams or right.streams)
        return source

    def _relation(self, depth: int) -> Piece:
        """Return a random relation for FROM: a table, a part of WITH, a subquery, or a join."""
        if not depth:
            return self._table()
        make = self._random.choices(
            (self._table, self._subquery, self._join, self._bracketed, self._pivot, self._inline),
            (40, 14, 26, 16, 2, 2),
        )[0]
        return make(depth - 1)

    def _table(self, _depth: int = 0) -> Piece:
        if self._parts and self._chance(0.6):
            name = self._one_of(tuple(self._parts))
            part, alias = self._parts[name], self._alias("r")
            columns = tuple(Column(alias, each.name, each.kind) for each in part.columns)
            return Piece(Node("relation", (f"{name} AS {alias}",)), columns, part.streams)
        streams = self._chance(0.72)
        tables = [each for each in (GROWING if streams or self._chance(0.2) else FIXED) if each not in self._parts]
        if not tables:
            return self._inline()
        name, alias = self._one_of(tables), self._alias("r")
        columns = tuple(Column(alias, column, kind) for column, kind in SHAPE)
        table = Node("growing" if streams else "fixed", (name,))
        if not streams:
            return Piece(Node("relation", (table, self._one_of((" ", " AS ")), alias)), columns, False)
        written = ("STREAM(", table, ")") if self._chance(0.15) else ("STREAM ", table)
        options = " WITH ('maxFilesPerTrigger' = '7')" if self._chance(0.05) else ""
        mark = (self._watermark("ts"),) if self._chance(0.7) else ()
        return Piece(Node("relation", (*written, options, *mark, f" AS {alias}")), columns, True)

    def _watermark(self, column: str) -> Node:
        return Node(
            "watermark", (f" WATERMARK {column} DELAY OF INTERVAL ", self._literal(1, 30), " MINUTES"), optional=True
        )

    def _subquery(self, depth: int) -> Piece:
        inner, alias = self.query(depth), self._alias("r")
        columns = tuple(Column(alias, each.name, each.kind) for each in inner.columns)
        times = [each.name for each in columns if each.kind == "time"]
        mark = (self._watermark(self._one_of(times)),) if inner.streams and times and self._chance(0.1) else ()
        return Piece(Node("relation", ("(", inner.node, ")", *mark, f" AS {alias}")), columns, inner.streams)

    def _join(self, depth: int) -> Piece:
        left, right = self._relation(depth), self._relation(depth)
        text = str(right.node)
        if " JOIN " in text and not text.startswith("(") and not self._chance(0.03):
            # A join as the right side of a join needs brackets, as a subquery does.
            right = Piece(Node("relation", ("(", right.node, ")")), right.columns, right.streams)
        streams = left.streams or right.streams
        draw = self._random.random()
        if draw < 0.06:
            node = Node("relation", (left.node, " CROSS JOIN ", right.node))
            return Piece(node, left.columns + right.columns, streams)
        kind = Node("join", (self._one_of(_JOINS),))
        both = left.columns + right.columns
        shared = self._shared(left.columns, right.columns)
        if shared and draw < 0.2:
            word = self._one_of(shared)
            node = Node("relation", (left.node, " ", kind, " ", right.node, f" USING ({word})"))
            merged = next(each for each in left.columns if each.name == word)
            both = (Column("", word, merged.kind), *(each for each in both if each.name != word))
        else:
            node = Node("relation", (left.node, " ", kind, " ", right.node, " ON ", self._matching(left, right)))
        if "SEMI" in str(kind) or "ANTI" in str(kind):
            both = left.columns
        return Piece(node, both, streams)

    def _shared(self, left: Scope, right: Scope) -> list[str]:
        """Return the names of columns that occur exactly once on each side, with the same kind."""
        names = []
        for each in left:
            others = [other for other in right if other.name == each.name]
            if sum(other.name == each.name for other in left) == 1 and len(others) == 1 and others[0].kind == each.kind:
                names.append(each.name)
        return names

    def _matching(self, left: Piece, right: Piece) -> Node:
        both = left.columns + right.columns
        terms: list[Node] = []
        for kind in self._random.sample(("string", "number", "time"), self._random.randint(1, 3)):
            one = [each for each in left.columns if each.kind == kind]
            other = [each for each in right.columns if each.kind == kind]
            if not one or not other:
                continue
            first = self._named(self._one_of(one), both)
            second = self._named(self._one_of(other), both)
            if kind == "time" and self._chance(0.6):
                terms.append(
                    Node(
                        "condition",
                        (f"{first} BETWEEN {second} AND {second} + INTERVAL ", self._literal(1, 9), " MINUTES"),
                    )
                )
            else:
                terms.append(Node("condition", (f"{first} = {second}",)))
        if self._chance(0.15) or not terms:
            terms.append(self._condition(both))
        return Node("condition", tuple(terms), " AND ")

    def _bracketed(self, depth: int) -> Piece:
        inner = self._join(depth) if self._chance(0.8) else self._relation(depth)
        if not self._chance(0.45):
            return Piece(Node("relation", ("(", inner.node, ")")), inner.columns, inner.streams)
        alias = self._alias("r")
        # A name that several columns share cannot be read, and no star over these columns has distinct names.
        names = [each.name for each in inner.columns]
        if all(names.count(name) > 1 for name in names):
            return Piece(Node("relation", ("(", inner.node, ")")), inner.columns, inner.streams)
        kinds = [each.kind if names.count(each.name) == 1 else "ambiguous" for each in inner.columns]
        columns = tuple(Column(alias, name, kind) for name, kind in zip(names, kinds, strict=True))
        return Piece(Node("relation", ("(", inner.node, f") AS {alias}")), columns, inner.streams)

    def _exploded(self, source: Piece) -> Piece:
        table, name = self._alias("l"), self._alias("e")
        number = self._value("number", source.columns, 0)
        outer = self._one_of(("", "", "OUTER "))
        view = Node(
            "view", (f" LATERAL VIEW {outer}explode(array(", number, f", 1)) {table} AS {name}"), optional=False
        )
        node = Node("relation", (source.node, view))
        return Piece(node, (*source.columns, Column(table, name, "number")), source.streams)

    def _pivot(self, depth: int) -> Piece:
        inner = self._relation(depth)
        strings = [each for each in inner.columns if each.kind == "string"]
        numbers = [each for each in inner.columns if each.kind == "number"]
        times = [each for each in inner.columns if each.kind == "time"]
        if not (strings and numbers and times):
            return inner
        key, number, time = (self._named(self._one_of(each), inner.columns) for each in (strings, numbers, times))
        alias, first, second = self._alias("r"), self._alias("x"), self._alias("x")
        text = f" PIVOT (sum(n) FOR s IN ('x' AS {first}, 'y' AS {second}))"
        select = Node("query", (f"SELECT {key} AS s, {number} AS n, {time} AS ts FROM ", inner.node))
        node = Node("relation", ("(SELECT * FROM (", select, f"){text}) AS {alias}"))
        columns = (Column(alias, "ts", "time"), Column(alias, first, "number"), Column(alias, second, "number"))
        return Piece(node, columns, inner.streams)

    def _inline(self, _depth: int = 0) -> Piece:
        alias = self._alias("r")
        if self._chance(0.5):
            return Piece(Node("relation", (f"range(3) AS {alias}",)), (Column(alias, "id", "number"),), False)
        node = Node("relation", (f"(VALUES (1, 'x'), (2, 'y')) AS {alias}(id, k)",))
        return Piece(node, (Column(alias, "id", "number"), Column(alias, "k", "string")), False)

    def _condition(self, scope: Scope, depth: int = 0) -> Node:
        """Return a random condition over the columns in scope; if `depth` is above 0, it may contain a subquery."""
        draw = self._random.random()
        if depth and draw < 0.12:
            return self._asked(scope)
        return self._plain_condition(scope, draw)

    def _asked(self, scope: Scope) -> Node:
        """Return a random condition that contains a subquery."""
        streams = self._chance(0.06)
        table, alias = self._one_of(GROWING if streams else FIXED), self._alias("s")
        if table in self._parts:
            return self._comparison(scope, 0)
        string = self._value("string", scope, 0)
        negated = self._one_of(("", "", "NOT "))
        columns = tuple(Column(alias, column, kind) for column, kind in SHAPE)
        if not streams and self._chance(0.15):
            inner = self._bracketed(0)
            strings = [each for each in inner.columns if each.kind == "string"]
            if strings:
                name = self._named(strings[0], inner.columns)
                return Node("condition", (string, f" {negated}IN (SELECT {name} FROM ", inner.node, ")"), scope=scope)
        where = Node("where", (" WHERE ", self._condition(columns)), optional=True)
        source = (
            f"FROM {'STREAM ' if streams else ''}",
            Node("growing" if streams else "fixed", (table,)),
            f" AS {alias}",
        )
        number = self._value("number", scope, 0)
        made: Pieces = self._one_of(
            (
                (string, f" {negated}IN (SELECT {alias}.k ", *source, where, ")"),
                (f"{negated}EXISTS (SELECT 1 ", *source, f" WHERE {alias}.k = ", string, ")"),
                (number, f" > (SELECT max({alias}.v) ", *source, where, ")"),
            )
        )
        return Node("condition", made, scope=scope)

    def again(self, node: Node) -> Node:
        """Return another random node of a node's sort, over the columns in its scope."""
        if node.sort == "condition":
            return self._condition(node.scope)
        if node.sort in DDL_TYPES:
            return self._value(node.sort, node.scope, 2)
        if node.sort.endswith(" aggregate"):
            return self._aggregate(node.sort.removesuffix(" aggregate"), node.scope)
        words = {"join": _JOINS, "growing": GROWING, "fixed": FIXED, "letter": tuple("wxyz")}
        if node.sort == "interval":
            return self._interval()
        return Node(node.sort, (self._one_of(words[node.sort]),)) if node.sort in words else self._literal()
