"""Random stars with EXCEPT: our expansion yields the same columns as Spark's analysis."""

import uuid
from collections.abc import Iterator
from random import Random

import pytest
from pyspark.errors import PySparkException

from core.model.names import TableName
from core.sql.ddl_reader import read_ddl
from core.sql.lineage.statement_lineage import lineage_of
from core.sql.statement import Column
from core.sql.statement_reader import read_statements
from pipelines.local_pool.connect_server import LocalPool
from pipelines.spark_connect.session import Session

STRUCT = "STRUCT<id: INT, x: INT, n: STRUCT<id: INT, y: INT>>"
DDLS = {
    "star_a": f"id INT, visit INT, st {STRUCT}, `odd name` INT",
    "star_b": f"id INT, visit INT, z INT, b {STRUCT}",
    "star_c": f"y INT, st {STRUCT}, c INT",
}
NAMES = (
    "id", "visit", "z", "y", "c", "b", "st", "`odd name`", "st.id", "st.n", "st.n.y", "st.x", "b.id", "b.n.y", "b.b.x",
)  # fmt: skip

JOINS = (" CROSS JOIN ", ", ", " NATURAL LEFT JOIN ", " NATURAL JOIN ")


@pytest.fixture(scope="module")
def session(pool: LocalPool) -> Iterator[Session]:
    """A session with the tables of `DDLS` as views."""
    made = Session(pool.url, pool.token, str(uuid.uuid4()))
    made.attach()
    for name, columns in DDLS.items():
        made.spark.createDataFrame([], columns.replace(": ", ":")).createOrReplaceTempView(name)
    yield made
    made.close()


def select(random: Random, depth: int = 1) -> str:
    """Return a SELECT of stars over one to three sources, some of which are such SELECTs themselves."""
    count = random.choice((1, 2, 2, 3))
    # A lone source whose alias equals the name of its own struct is ambiguous.
    aliases, sources = random.sample("abcs" if count > 1 else "acs", count), []
    for alias in aliases:
        nested = depth and random.random() < 0.25
        sources.append(f"{f'({select(random, depth - 1)})' if nested else random.choice([*DDLS])} AS {alias}")
    join = " CROSS JOIN " if any(source.startswith("(") for source in sources) else random.choice(JOINS)
    stars = ", ".join(star(random, aliases) for _ in range(random.choice((1, 1, 1, 2))))
    return f"SELECT {stars} FROM {join.join(sources)}"


def star(random: Random, aliases: list[str]) -> str:
    """Return `*`, `t.*` or `s.*`, usually with EXCEPT, which may name missing columns."""
    whole = random.choice(("*", "*", f"{random.choice(aliases)}.*", "st.*", f"{aliases[0]}.st.*", "st.n.*"))
    if random.random() < 0.15:
        return whole
    names = random.sample(NAMES, random.choice((1, 1, 2)))
    # For a lone source we drop the qualifier before the star is expanded; Spark refuses it before a field.
    may = len(aliases) > 1 or "st." not in whole
    listed = ", ".join(f"{random.choice(aliases)}.{name}" if may and random.random() < 0.4 else name for name in names)
    # Spark does not compare the names of one column if they differ only in case.
    return f"{whole} EXCEPT ({listed.upper() if random.random() < 0.2 else listed})"


def ours(text: str) -> list[str] | None:
    """Return a SELECT's columns according to our analysis, or None if one of its names cannot be resolved."""
    declared = {}
    for name, columns in DDLS.items():
        ddl, problems = read_ddl(f"CREATE TABLE {name} ({columns}) USING parquet", "ddl.sql")
        assert ddl is not None, problems
        declared[name] = ddl.columns

    def columns_of(name: TableName) -> tuple[Column, ...] | None:
        return declared.get(name)

    whole = f"INSERT INTO t SELECT made.* FROM STREAM one AS o CROSS JOIN ({text}) AS made"
    (statement,), problems = read_statements(whole, "q.sql")
    found = lineage_of(statement, columns_of)
    return None if found.unresolved else [output.name for output in found.outputs]


def sparks(session: Session, text: str) -> list[str] | None:
    """Return a SELECT's columns according to Spark, or None if Spark refuses it."""
    try:
        return [name.lower() for name in session.spark.sql(text).columns]
    except PySparkException:
        return None


@pytest.mark.sampled
@pytest.mark.spark
@pytest.mark.parametrize("seed", range(10))
def test_a_star_has_the_columns_of_sparks_analysis(session: Session, seed: int) -> None:
    for number in range(30):
        text = select(Random(f"{seed}/{number}"))
        assert ours(text) == sparks(session, text), text
