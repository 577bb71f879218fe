"""Extremely large texts: long, wide, of a megabyte, or nested thousands of times; each must be parsed or refused."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

MEGABYTE = 1_000_000


@dataclass(frozen=True, slots=True)
class Text:
    """One text and what it demonstrates."""

    what: str
    kind: str
    """`dml` or `ddl`."""
    text: str


def wide_texts() -> Iterator[Text]:
    """Yield statements as large as people and generators write them."""
    yield Text("2,000 lines", "dml", two_thousand_lines())
    yield Text("10,000 columns", "dml", select(fill(lambda n: f"\n  c_{n}", ",", pieces=10_000)))
    computed = fill(lambda n: f"\n  upper(trim(c_{n})) AS c_{n}", ",", pieces=10_000)
    yield Text("10,000 computed columns", "dml", select(computed))
    yield Text("10,000 aggregates", "dml", _aggregates(10_000))
    yield Text("10,000 columns, ddl", "ddl", ddl(fill(lambda n: f"\n  c_{n} STRING", ",", pieces=10_000)))


def megabytes() -> Iterator[Text]:
    """Yield texts of about 1 MB, each repeating one construct."""
    for what, text in (
        ("plain columns", select(fill(lambda n: f"kind AS a_name_of_some_length_{n:06d}", ", "))),
        ("computed columns", select(fill(lambda n: f"upper(trim(kind)) || '{n}' AS name_{n:06d}", ", "))),
        ("AND of brackets", where(fill(lambda n: f"(a{n} = b{n} OR c{n} > {n})", " AND "))),
        ("OR of equalities", where(fill(lambda n: f"kind = 'value {n}'", " OR "))),
        ("AND and OR by turns", where(fill(lambda n: f"a{n} = 1 AND b{n} = 2", " OR "))),
        ("IN", where(f"kind IN ({fill(str, ', ')})")),
        ("sum of terms", select(f"{fill(lambda n: f'c{n}', ' + ')} AS total")),
        ("texts joined by ||", select(f"{fill(lambda n: f'c{n}', ' || ')} AS total")),
        ("CASE of many WHEN", select(f"CASE {fill(lambda n: f'WHEN kind = {n} THEN {n}', ' ')} END AS kind")),
        ("call of many arguments", select(f"concat({fill(lambda n: f'c{n}', ', ')}) AS total")),
        ("UNION ALL", f"INSERT INTO t {fill(lambda n: f'SELECT id FROM STREAM s{n}', ' UNION ALL ')}"),
        ("WITH of many parts", _with_parts()),
        ("joins with tables", select("a.id") + fill(lambda n: f" JOIN d{n} AS d{n} ON d{n}.id = a.id", "")),
        ("subqueries in WHERE", where(fill(lambda n: f"id IN (SELECT id FROM d{n})", " AND "))),
        ("aggregates", _aggregates(37_000)),
        ("VALUES", f"{select('id')} JOIN (VALUES {fill(lambda n: f'({n})', ', ')}) AS v(x) ON v.x = a.id"),
        ("one string", select(f"'{'x' * MEGABYTE}' AS kind")),
        ("strings side by side", select("'a'" * (MEGABYTE // 3) + " AS kind")),
        ("one name", select("x" * MEGABYTE)),
        ("one number", select("1" * MEGABYTE)),
        ("one comment", f"/* {'x' * MEGABYTE} */ {select('id')}"),
        ("many comments", select(fill(lambda n: f"-- column {n}\n  c{n}", ",\n"))),
        ("many statements", fill(lambda n: f"INSERT INTO t{n} SELECT id FROM STREAM a", ";\n")),
        ("many wrong statements", fill(lambda n: f"INSERT INTO t{n} SELECT id FROM", ";\n")),
        ("many refusals", where(fill(lambda n: f"id IN (SELECT id FROM STREAM d{n})", " AND "))),
        ("semicolons", ";" * MEGABYTE),
        ("no SQL at all", "lorem ipsum " * (MEGABYTE // 12)),
        ("an open string", select("'") + "x\n" * (MEGABYTE // 2)),
        ("backslashes", select(f"'{chr(92) * MEGABYTE}' AS kind")),
        ("stream words", "INSERT INTO t SELECT id FROM " + "STREAM " * (MEGABYTE // 7)),
        ("watermark words", select("id") + " WATERMARK" * (MEGABYTE // 10)),
    ):
        yield Text(f"1 MB: {what}", "dml", text)
    nested = fill(lambda n: f"\n  c_{n} STRUCT<a: INT, b: ARRAY<STRING>> COMMENT 'number {n}'", ",")
    yield Text("1 MB: columns, ddl", "ddl", ddl(nested))
    properties = fill(lambda n: f"'key {n}' = 'value {n}'", ", ")
    yield Text("1 MB: properties, ddl", "ddl", f"{ddl('id INT')} TBLPROPERTIES ({properties})")


def nested(deep: int) -> Iterator[Text]:
    """Yield texts in which a construct is nested `deep` times."""
    for what, text in (
        ("brackets", select("(" * deep + "id" + ")" * deep)),
        ("open brackets", select("(" * deep)),
        ("brackets around tables", f"INSERT INTO t SELECT id FROM {'(' * deep}STREAM a{')' * deep}"),
        ("brackets around the query", f"INSERT INTO t {'(' * deep}{select('id')[14:]}{')' * deep}"),
        ("CASE in THEN", select("CASE WHEN a THEN " * deep + "1" + " ELSE 2 END" * deep)),
        ("CASE in ELSE", select("CASE WHEN a THEN 1 ELSE " * deep + "1" + " END" * deep)),
        ("CASE in WHEN", select("CASE WHEN " * deep + "a" + " THEN 1 END" * deep)),
        ("CASE in CASE", select("CASE " * deep + "a" + " WHEN 1 THEN 1 END" * deep)),
        ("open CASE", select("CASE " * deep)),
        ("functions", select("upper(" * deep + "kind" + ")" * deep)),
        ("casts", select("CAST(" * deep + "id" + " AS INT)" * deep)),
        ("casts by ::", select("id" + "::INT" * deep)),
        ("subqueries", "INSERT INTO t " + "SELECT * FROM (" * deep + select("id")[14:] + ")" * deep),
        ("scalar subqueries", select("(SELECT " * deep + "1" + ")" * deep)),
        ("WITH in WITH", "INSERT INTO t " + "WITH x AS (" * deep + select("id")[14:] + ") SELECT * FROM x" * deep),
        ("WITH after WITH", "INSERT INTO t " + "WITH " * deep),
        ("unions", "INSERT INTO t " + " UNION ALL ".join([select("id")[14:]] * deep)),
        ("set operations of all kinds", _set_operations(deep)),
        ("unions in brackets", _bracketed_unions(deep)),
        ("NOT", where("NOT " * deep + "a")),
        ("minus", select("- " * deep + "1 AS x")),
        ("plus", select("+ " * deep + "1 AS x")),
        ("tilde", select("~" * deep + "1 AS x")),
        ("dots", select("a" + ".b" * deep)),
        ("indexes", select("a" + "[0]" * deep)),
        ("indexes in indexes", select("a[" * deep + "0" + "]" * deep)),
        ("colons", select("a" + ":b" * deep)),
        ("LIKE", where("a LIKE " * deep + "b")),
        ("BETWEEN", where("a BETWEEN b AND " * deep + "b")),
        ("equalities", where("a = " * deep + "b")),
        ("comparisons", where("a < " * deep + "b")),
        ("sums", select("a + " * deep + "b AS x")),
        ("powers", select("a ** " * deep + "b AS x")),
        ("concatenations", select("a || " * deep + "b AS x")),
        ("IS NULL", where("a" + " IS NULL" * deep)),
        ("AND in OR", where("a = 1 AND (b = 2 OR " * deep + "c = 3" + ")" * deep)),
        ("IN", where("a IN (SELECT b FROM x WHERE " * deep + "c = 3" + ")" * deep)),
        ("EXISTS", where("EXISTS (SELECT b FROM x WHERE " * deep + "c = 3" + ")" * deep)),
        ("lambdas", select("transform(x, y -> " * deep + "y" + ")" * deep)),
        ("arrows", select("transform(x, " + "y -> " * deep + "y)")),
        ("INTERVAL", select("INTERVAL " * deep + "1 DAY")),
        ("DISTINCT", select("DISTINCT " * deep + "id")),
        ("PRIOR", select("PRIOR " * deep + "id")),
        ("names", select("a " * deep)),
        ("INSERT", "INSERT INTO t " * deep),
        ("SELECT", "INSERT INTO t " + "SELECT " * deep),
        ("FROM", "INSERT INTO t SELECT id " + "FROM a " * deep),
        ("joins without ON", select("a.id") + " JOIN d" * deep),
        ("joins by comma", select("a.id") + ", d" * deep),
        ("joins in brackets", f"INSERT INTO t SELECT id FROM {'(' * deep}STREAM a{' JOIN b ON 1 = 1)' * deep}"),
        ("joins to the right", select("id") + " JOIN (b" * deep + " ON 1 = 1)" * deep),
        ("LATERAL VIEW", select("a.id") + " LATERAL VIEW explode(x) v AS y" * deep),
        ("LATERAL subqueries", select("a.id") + ", LATERAL (SELECT 1 FROM b" * deep + ")" * deep),
        ("OVER", select("sum(" * deep + "x" + ") OVER (PARTITION BY y)" * deep)),
        ("FILTER", select("sum(x) FILTER (WHERE " * deep + "a" + ")" * deep)),
        ("PIVOT", select("id") + " PIVOT (sum(x) FOR y IN (1))" * deep),
        ("hints", "INSERT INTO t SELECT " + "/*+ BROADCAST(a) */ " * deep + "id FROM STREAM a"),
        ("casts to arrays", select(f"CAST(id AS {'ARRAY<' * deep}INT{'>' * deep})")),
        ("casts to arrays behind", select(f"CAST(id AS INT{'[]' * deep})")),
        ("braces", select("{" * deep + "}" * deep)),
    ):
        yield Text(f"{deep:,} deep: {what}", "dml", text)
    yield Text(f"{deep:,} deep: arrays, ddl", "ddl", ddl(f"c {'ARRAY<' * deep}INT{'>' * deep}"))
    yield Text(f"{deep:,} deep: structs, ddl", "ddl", ddl(f"c {'STRUCT<a: ' * deep}INT{'>' * deep}"))


def select(columns: str) -> str:
    """Return a stateless statement; its query begins at the 14th character."""
    return f"INSERT INTO t SELECT {columns} FROM STREAM a"


def where(condition: str) -> str:
    """Return a stateless statement with a filter."""
    return f"{select('id')} WHERE {condition}"


def ddl(columns: str) -> str:
    """Return the DDL of a table."""
    return f"CREATE TABLE t ({columns}) USING parquet"


def fill(piece: Callable[[int], str], between: str, pieces: int = 0) -> str:
    """Return numbered pieces, joined: `pieces` of them, or enough for a megabyte."""
    found: list[str] = []
    length = 0
    while len(found) < pieces if pieces else length < MEGABYTE:
        found.append(piece(len(found)))
        length += len(found[-1]) + len(between)
    return between.join(found)


def two_thousand_lines() -> str:
    """Return a stateful statement of 2,000 lines as a person might write it: joins, CASE, functions, filters."""
    dimensions = range(30)
    lines = ["INSERT INTO t", "WITH base AS (", "  SELECT * FROM STREAM a WATERMARK at DELAY OF INTERVAL 1 MINUTE", ")"]
    lines.append("SELECT window.start AS window_start, b.kind, count(*) AS events")
    for number in range(400):
        lines.append(f"  , sum(CASE WHEN b.kind = 'kind {number}' AND b.amount > {number} -- number {number}")
        lines.append(f"    THEN coalesce(b.amount, 0) * {number} + length(trim(b.note))")
        lines.append(f"    WHEN b.place.city IN ('x', 'y', 'z') OR b.id BETWEEN {number} AND {number + 9} THEN 1")
        lines.append(f"    ELSE CAST(d_{number % len(dimensions)}.amount AS DECIMAL(12, 2)) END) AS amount_{number}")
    lines.append("FROM base AS b")
    for number in dimensions:
        lines += [f"LEFT JOIN dim_{number} AS d_{number}", f"  ON d_{number}.id = b.id AND d_{number}.kind <> 'void'"]
    lines.append("WHERE b.id IS NOT NULL")
    lines += [f"  AND (b.note NOT LIKE '%{n}%' OR b.amount + {n} > b.id)" for n in range(1_999 - len(lines))]
    lines.append("GROUP BY window(b.at, '1 minute'), b.kind")
    return "\n".join(lines)


def _aggregates(calls: int) -> str:
    columns = fill(lambda n: f"sum(c_{n}) AS amount_{n:06d}", ", ", pieces=calls)
    watermark = "WATERMARK at DELAY OF INTERVAL 1 MINUTE"
    return f"INSERT INTO t SELECT {columns} FROM STREAM a {watermark} GROUP BY window(at, '1 minute')"


def _with_parts() -> str:
    parts = fill(lambda n: f"x{n + 1} AS (SELECT id FROM {f'x{n}' if n else 'STREAM a'})", ", ")
    return f"INSERT INTO t WITH {parts} SELECT id FROM x1"


def _set_operations(deep: int) -> str:
    words = ("UNION", "EXCEPT", "INTERSECT", "UNION ALL", "MINUS")
    return select("id") + "".join(f" {words[n % len(words)]} {select('id')[14:]}" for n in range(deep))


def _bracketed_unions(deep: int) -> str:
    one = select("id")[14:]
    return f"INSERT INTO t {'(' * deep}{one}{f' UNION ALL {one})' * deep}"
