"""Spark SQL queries that compare two versions of a table through two views; every query returns only a few rows.

For a comparison, the columns of a row that must be equal are encoded as JSON. NULL equals NULL, and floating-point
numbers are compared to nine digits, because a sum depends on the order of addition.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from core.sql.comparison.row_effects import RowEffect, RowSide
from core.text.escaping import quoted_name, quoted_string_literal

SAMPLED_ABOVE = 5_000_000
"""Number of rows above which only a sample is compared, chosen by key or, without a key, by whole rows."""

_INTEGERS = ("tinyint", "smallint", "int", "integer", "bigint", "byte", "short", "long")
_FLOATS = ("float", "double", "real")
_ORDERED = ("string", "date", "timestamp", "timestamp_ntz", "boolean", "char", "varchar")


@dataclass(frozen=True, slots=True)
class ComparedRows:
    """The parameters of a comparison: two view names, and the columns to compare as (name, type)."""

    old: str
    new: str
    columns: tuple[tuple[str, str], ...]
    """Columns that both versions have."""
    equal: frozenset[str]
    """Columns whose values must be equal, in lower case."""
    key: tuple[str, ...] = ()
    """Columns that identify rows, in lower case; empty if unknown."""
    own: tuple[tuple[str, str], ...] = ()
    """Columns, with types, that only the new version has and that help to identify rows of the new version."""
    sorted: frozenset[str] = frozenset()
    """Columns, in lower case, whose values are lists in arbitrary order."""
    distinct: bool = False
    """Whether duplicate rows count as one row."""
    one_in: int = 1
    """Sampling rate: one in this many keys is compared."""


def profile_query(rows: ComparedRows) -> str:
    """Return a query for row counts and column statistics, with one row per version.

    Its columns are `side`, `rows` and, for column i, the number of values that are not NULL (`filled_i`), the
    approximate number of distinct values (`distinct_i`), and minimum, maximum and sum as strings (`least_i`, `most_i`,
    `sum_i`). A statistic is NULL if the column's type does not support it.
    """
    return "\nUNION ALL\n".join(
        f"SELECT {quoted_string_literal(side)} AS side, count(*) AS rows, {_profiles(rows.columns)} FROM {view}"
        for side, view in ((RowSide.OLD, rows.old), (RowSide.NEW, rows.new))
    )


def duplicates_query(rows: ComparedRows) -> str:
    """Return a query that counts duplicates, with one row for each version that has duplicates.

    Its columns are `side`, the number of duplicate `keys`, the number of `excess` rows, and, as JSON, the first and
    last duplicate key (`least`, `most`). Without a key, rows are compared by the columns that both versions have. In
    the new version, such rows are duplicates only if their `own` columns are equal as well.
    """
    own = "''" if rows.key else f"md5({_fields(rows.own)})"
    sides = _sides(rows, f"{_key(rows)} AS k", {RowSide.OLD: ", '' AS w", RowSide.NEW: f", {own} AS w"})
    return f"""SELECT side, count(*) AS keys, sum(n - d) AS excess, min(k) AS least, max(k) AS most FROM (
SELECT side, k, count(*) AS n, count(DISTINCT w) AS d FROM ({sides}) GROUP BY side, k
) WHERE n > d GROUP BY side"""


def differences_query(rows: ComparedRows, effects: Sequence[RowEffect]) -> str:
    """Return a query with one row per kind of difference between the two versions.

    Its columns are `side`, the index of the `effect` that explains the difference (-1 if none does), the numbers of
    differing rows (`old_rows`, `new_rows`), and three examples (`old_1`, `new_1`, …), each a row as JSON or NULL. An
    old and a new row with the same key are paired as one changed row; without a key, no rows are paired.
    """
    inner = (
        f"md5({_json(rows, rows.equal)}) AS h, {_key(rows)} AS k, {_json(rows, rows.equal)} AS r, "
        f"{_explained(effects, RowSide.OLD)} AS eo, {_explained(effects, RowSide.NEW)} AS en"
    )
    changed = _last(effects, RowSide.CHANGED)
    examples = ", ".join(
        f"{pick}(struct(ro, rn)).ro AS old_{n}, {pick}(struct(ro, rn)).rn AS new_{n}"
        for n, pick in enumerate(("min", "max", "any_value"), 1)
    )
    old, new = quoted_string_literal(RowSide.OLD), quoted_string_literal(RowSide.NEW)
    return f"""WITH uneven AS (
SELECT h, any_value(k) AS k, any_value(r) AS r, any_value(eo) AS eo, any_value(en) AS en,
count_if(side = {old}) AS o, count_if(side = {new}) AS n
FROM ({_sides(rows, inner, distinct=rows.distinct)}) GROUP BY h HAVING count_if(side = {old}) <> count_if(side = {new})
), paired AS (
SELECT {"k" if rows.key else "h"} AS id, sum(greatest(o - n, 0)) AS o, sum(greatest(n - o, 0)) AS n,
min(r) FILTER (WHERE o > n) AS ro, min(r) FILTER (WHERE n > o) AS rn,
max(eo) FILTER (WHERE o > n) AS eo, max(en) FILTER (WHERE n > o) AS en
FROM uneven GROUP BY {"k" if rows.key else "h"}
), told AS (
SELECT CASE WHEN o > 0 AND n > 0 THEN {quoted_string_literal(RowSide.CHANGED)} WHEN o > 0 THEN {old} ELSE {new} END
AS side, CASE WHEN o > 0 AND n > 0 THEN {changed} WHEN o > 0 THEN eo ELSE en END AS effect, o, n, ro, rn FROM paired
)
SELECT side, effect, sum(o) AS old_rows, sum(n) AS new_rows, {examples} FROM told GROUP BY side, effect"""


def kept_rows_query(rows: ComparedRows) -> str:
    """Return a query that counts the old version's rows, and how many of them the new version lacks.

    It returns one row with `rows`, the number of distinct rows of the old version, and `gone`, the number of these rows
    that the new version lacks. If `one_in` is above 1, both numbers refer to a sample of the rows.
    """
    row = _json(rows, rows.equal)
    chosen = "" if rows.one_in == 1 else f" WHERE pmod(xxhash64({row}), {rows.one_in}) = 0"
    old, new = (f"SELECT DISTINCT md5({row}) AS h FROM {view}{chosen}" for view in (rows.old, rows.new))
    return f"SELECT count(*) AS rows, count_if(n.h IS NULL) AS gone FROM ({old}) o LEFT JOIN ({new}) n ON o.h = n.h"


def sampling(old_rows: int, new_rows: int) -> int:
    """Return the sampling rate n for two row counts; one in n keys is compared."""
    most = max(old_rows, new_rows)
    return 1 if most <= SAMPLED_ABOVE else -(-most // SAMPLED_ABOVE)


def summed(kind: str) -> bool:
    """True if columns of a type can be summed."""
    return _plain(kind) in (*_INTEGERS, *_FLOATS, "decimal")


def is_float(kind: str) -> bool:
    """True if a type is floating-point; the sum of such values depends on the order of addition."""
    return _plain(kind) in _FLOATS


def _profiles(columns: Iterable[tuple[str, str]]) -> str:
    parts = []
    for i, (name, kind) in enumerate(columns):
        column, plain = quoted_name(name), _plain(kind)
        simple = summed(kind) or plain in _ORDERED
        total = f"sum({column})" if plain in _FLOATS else f"try_sum(try_cast({column} AS DECIMAL(38, 9)))"
        parts += [
            f"count({column}) AS filled_{i}",
            f"{f'approx_count_distinct({column})' if simple else 'NULL'} AS distinct_{i}",
            f"{f'substring(CAST(min({column}) AS STRING), 1, 80)' if simple else 'NULL'} AS least_{i}",
            f"{f'substring(CAST(max({column}) AS STRING), 1, 80)' if simple else 'NULL'} AS most_{i}",
            f"CAST({total if summed(kind) else 'NULL'} AS STRING) AS sum_{i}",
        ]
    return ", ".join(parts)


def _sides(
    rows: ComparedRows, selected: str, more: Mapping[RowSide, str] = MappingProxyType({}), *, distinct: bool = False
) -> str:
    word = "SELECT DISTINCT" if distinct else "SELECT"
    chosen = "" if rows.one_in == 1 else f" WHERE pmod(xxhash64({_key(rows)}), {rows.one_in}) = 0"
    return " UNION ALL ".join(
        f"{word} {quoted_string_literal(side)} AS side, {selected}{more.get(side, '')} FROM {view}{chosen}"
        for side, view in ((RowSide.OLD, rows.old), (RowSide.NEW, rows.new))
    )


def _key(rows: ComparedRows) -> str:
    return _json(rows, frozenset(rows.key) if rows.key else rows.equal)


def _json(rows: ComparedRows, names: Collection[str]) -> str:
    """Return an SQL expression that encodes columns as JSON.

    Two rows have the same JSON if and only if these columns are equal.
    """
    return _fields(((name, kind) for name, kind in rows.columns if name.lower() in names), rows.sorted)


def _fields(columns: Iterable[tuple[str, str]], lists: Collection[str] = ()) -> str:
    fields = [
        f"{_normal(quoted_name(name), kind, name.lower() in lists)} AS {quoted_name(name)}" for name, kind in columns
    ]
    if not fields:
        return "'{}'"
    return f"to_json(struct({', '.join(fields)}), map('ignoreNullFields', 'false'))"


def _normal(column: str, kind: str, is_list: bool) -> str:
    if is_list:
        return f"sort_array({column})"
    return f"nullif(format_string('%.9e', {column} + 0D), 'null')" if _plain(kind) in _FLOATS else column


def _explained(effects: Sequence[RowEffect], side: RowSide) -> str:
    """Return an SQL expression for the index of the effect that explains a row.

    The result is the index of the first effect whose predicate matches the row. If no predicate matches, it is that of
    the first effect without a predicate, or -1 if there is no such effect.
    """
    whens = "".join(
        f" WHEN {effect.predicate} THEN {n}"
        for n, effect in enumerate(effects)
        if effect.side is side and effect.predicate
    )
    last = _last(effects, side)
    return f"CASE{whens} ELSE {last} END" if whens else f"{last}"


def _last(effects: Sequence[RowEffect], side: RowSide) -> int:
    return next((n for n, effect in enumerate(effects) if effect.side is side and not effect.predicate), -1)


def _plain(kind: str) -> str:
    return kind.partition("(")[0].strip().lower()
