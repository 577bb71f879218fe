"""Inlines WITH queries that are read once, and SELECTs that only project and filter.

Inlining changes neither the meaning of a query nor the layout of Spark's state: a plain SELECT below a join is kept,
because the state of a join depends on the column order of the join's inputs.
"""

from itertools import islice
from typing import Any

from sqlglot import exp

from core.sql.parsing.function_names import LITERAL_FUNCTIONS
from core.sql.parsing.star_expansion import is_star

# Scalar functions of Spark 4.2.0 whose value depends on their arguments alone; any other call stays where it is.
_NAMES = """
    abs array cast ceil char_length coalesce concat concat_ws date date_format date_trunc day dayofmonth element_at
    floor format_string from_unixtime get_json_object greatest hash hour if ifnull initcap instr isnotnull isnull least
    left length lower lpad ltrim map md5 minute mod month named_struct nullif nvl nvl2 quarter regexp_extract
    regexp_replace replace reverse right round rpad rtrim second sha1 sha2 size split struct substr substring
    timestamp_micros timestamp_millis timestamp_seconds to_date to_json to_timestamp translate trim trunc try_cast
    unix_millis unix_seconds upper xxhash64 year
"""
_PURE = frozenset(_NAMES.split())
_PLAIN = (
    exp.Column, exp.Identifier, exp.Literal, exp.Boolean, exp.Null, exp.Paren, exp.Binary, exp.Unary, exp.Between,
    exp.Cast, exp.TryCast, exp.DataType, exp.DataTypeParam, exp.ColumnDef, exp.Case, exp.If, exp.Interval, exp.Var,
    exp.Coalesce, exp.Bracket, exp.In,
)  # fmt: skip
LONGEST_INLINED = 40
"""Maximum number of nodes in an expression that is inlined."""
_INNER = frozenset(("expressions", "from_", "where"))
_OUTER = _INNER | {"group", "having", "distinct", "limit"}
_CLAUSES = {"with_": 0, "from_": 1, "joins": 2, "laterals": 3}


def inline_query_names(query: Any) -> None:
    """Inline the WITH queries and subqueries of a query, in place; its names must be resolved and normalised."""
    _inline(query)
    for select in reversed(list(query.find_all(exp.Select))):
        _merge(select)
    number_aliases(query)


def _inline(query: Any) -> None:
    withs = list(query.find_all(exp.With))
    readers: dict[str, list[Any]] = {}
    for table in query.find_all(exp.Table) if withs else ():
        if "cte" in table.meta:
            readers.setdefault(table.meta["cte"], []).append(table)
    for with_ in withs:
        for cte in list(with_.expressions):
            found = readers.get(cte.alias, [])
            if len(found) == 1 and _is_plain(found[0], {"this", "alias"}) and not cte.args["alias"].args.get("columns"):
                _place(cte, found[0])
        if not with_.expressions:
            with_.pop()


def _place(cte: Any, table: Any) -> None:
    inner = exp.Subquery(this=cte.this.pop(), alias=table.args["alias"].pop())
    if "mark" in table.meta:
        inner.meta["mark"] = table.meta["mark"]
    cte.pop()
    table.replace(inner)


def _merge(select: Any) -> None:
    """Merge `SELECT … FROM (SELECT columns FROM source WHERE …)` into one SELECT if its meaning does not change."""
    from_ = select.args.get("from_")
    source = from_.this if from_ is not None else None
    if not isinstance(source, exp.Subquery) or not _is_plain(source, {"this", "alias"}) or "mark" in source.meta:
        return
    inner = source.this
    if not isinstance(inner, exp.Select) or not _is_plain(inner, _INNER) or not _is_plain(select, _OUTER | {"with_"}):
        return
    base = inner.args["from_"].this if inner.args.get("from_") is not None else None
    if not isinstance(base, (exp.Table, exp.Subquery)) or not _is_plain(base, {"this", "alias"}):
        return
    stands_for = _outputs(inner)
    if stands_for is None or source.args["alias"].args.get("columns") or not _can_replace(select, stands_for):
        return
    for clause in ("expressions", "where", "group", "having"):
        _substitute(select, clause, stands_for)
    where, within = select.args.get("where"), inner.args.get("where")
    if within is not None:
        both = within.this if where is None else exp.And(this=exp.paren(within.this), expression=exp.paren(where.this))
        select.set("where", exp.Where(this=both))
    from_.set("this", base)


def _outputs(inner: Any) -> dict[str, Any] | None:
    """Return the expressions of a SELECT's outputs by name; None if any of them cannot be inlined.

    The mapping is empty for a SELECT whose only output is `*`.
    """
    if len(inner.expressions) == 1 and is_star(inner.expressions[0]):
        return {} if _is_whole(inner.expressions[0]) else None
    found: dict[str, Any] = {}
    for each in inner.expressions:
        value = each.this if isinstance(each, exp.Alias) else each
        if not isinstance(each, (exp.Alias, exp.Column)) or not is_pure(value) or _is_long(value):
            return None
        if each.alias_or_name in found or (isinstance(value, exp.Column) and value in found.values()):
            # A column with two names counts twice for Spark, which accepts only one watermarked column in state.
            return None
        found[each.alias_or_name] = value
    return found


def _is_whole(star: Any) -> bool:
    own = star.this if isinstance(star, exp.Column) and _is_plain(star, {"this"}) else star
    return isinstance(own, exp.Star) and _is_plain(own, frozenset())


def _is_long(value: Any) -> bool:
    """True if an expression is too long to inline; nested inlining could double its length at each level."""
    return len(list(islice(value.walk(), LONGEST_INLINED + 1))) > LONGEST_INLINED


def _can_replace(select: Any, stands_for: dict[str, Any]) -> bool:
    outputs = {each.alias for each in select.expressions if isinstance(each, exp.Alias)}
    for clause in ("expressions", "where", "group", "having", "distinct", "limit"):
        value = select.args.get(clause)
        for part in value if isinstance(value, list) else [value]:
            if part is None:
                continue
            if part.find(exp.Query) is not None:
                return False
            for column in part.find_all(exp.Column):
                name = column.parts[0].name
                value = stands_for.get(name)
                if is_star(column):
                    if column.args.get("table") is not None or clause != "expressions":
                        return False
                elif not stands_for:
                    continue
                elif value is None or (clause == "having" and name in outputs) or not _fits(value, column):
                    return False
    return all(_keeps_its_name(each, stands_for) for each in select.expressions)


def _fits(value: Any, column: Any) -> bool:
    # A reference to a struct field needs a column with the struct's name.
    return len(column.parts) == 1 or _is_same(value, column.parts[0].name)


def _keeps_its_name(output: Any, stands_for: dict[str, Any]) -> bool:
    """True if an output keeps its name after merging; without an alias, the name is the SQL of the expression."""
    if is_star(output):
        return _is_whole(output)
    if isinstance(output, (exp.Alias, exp.Column)):
        return True
    return all(_is_same(stands_for[c.name], c.name) for c in output.find_all(exp.Column) if c.name in stands_for)


def _substitute(select: Any, clause: str, stands_for: dict[str, Any]) -> None:
    if not stands_for or select.args.get(clause) is None:
        return
    if clause != "expressions":
        _replace_columns(select.args[clause], stands_for)
        return
    found: list[Any] = []
    for each in select.expressions:
        if is_star(each):
            found += [_named(name, value.copy()) for name, value in stands_for.items()]
        elif isinstance(each, exp.Column):
            value = stands_for[each.parts[0].name]
            found.append(each if _is_same(value, each.parts[0].name) else _named(each.name, value.copy()))
        else:
            _replace_columns(each, stands_for)
            found.append(each)
    select.set("expressions", found)


def _named(name: str, value: Any) -> Any:
    return value if _is_same(value, name) else exp.alias_(value, name)


def _replace_columns(node: Any, stands_for: dict[str, Any]) -> None:
    for column in list(node.find_all(exp.Column)):
        value = stands_for.get(column.parts[0].name)
        if value is not None and not _is_same(value, column.parts[0].name):
            column.replace(value.copy() if isinstance(value, exp.Column) else exp.paren(value.copy()))


def number_aliases(query: Any) -> None:
    """Renumber the canonical aliases of sources and WITH queries in text order."""
    new: dict[str, str] = {}
    aliases = [alias for alias in _aliases(query) if alias.this is not None]
    for kind in ("_t", "_c"):
        names = dict.fromkeys(alias.name for alias in aliases if isinstance(alias.parent, exp.CTE) == (kind == "_c"))
        new |= {name: f"{kind}{number}" for number, name in enumerate(names, 1)}
    if all(name == number for name, number in new.items()):
        return
    for alias in aliases:
        alias.set("this", exp.to_identifier(new[alias.name]))
    for column in query.find_all(exp.Column):
        for key in ("table", "db", "catalog"):
            part = column.args.get(key)
            if part is not None and part.name in new:
                column.set(key, exp.to_identifier(new[part.name]))
    for table in query.find_all(exp.Table):
        if table.meta.get("cte") in new:
            table.meta["cte"] = new[table.meta["cte"]]
            table.set("this", exp.to_identifier(table.meta["cte"]))


def _aliases(query: Any) -> list[Any]:
    """Return all table aliases in text order, which differs from sqlglot's order in a rewritten SELECT."""
    found: list[Any] = []
    waiting = [query]
    while waiting:
        node = waiting.pop()
        if isinstance(node, (exp.Column, exp.Identifier, exp.Literal)):
            continue
        if isinstance(node, exp.TableAlias):
            found.append(node)
        children = list(node.iter_expressions())
        if isinstance(node, exp.Select):
            children.sort(key=lambda child: (_CLAUSES.get(child.arg_key, len(_CLAUSES)), child.arg_key))
        elif node.args.get("joins"):
            children.sort(key=lambda child: child.arg_key == "joins")
        waiting.extend(reversed(children))
    return found


def _is_plain(node: Any, keys: frozenset[str] | set[str]) -> bool:
    return all(key in keys or value is None or value is False or value == [] for key, value in node.args.items())


def is_pure(value: Any) -> bool:
    """True if an expression is certain to depend only on its columns, and to yield exactly one value per row."""
    for each in value.walk():
        if isinstance(each, exp.Anonymous):
            if str(each.this).lower() not in _PURE:
                return False
        elif isinstance(each, exp.Column):
            if each.name in LITERAL_FUNCTIONS and not each.table:
                return False
        elif not isinstance(each, _PLAIN) or isinstance(each, exp.Query):
            return False
    return not is_star(value)


def _is_same(value: Any, name: str) -> bool:
    return isinstance(value, exp.Column) and len(value.parts) == 1 and value.name == name
