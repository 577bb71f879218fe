"""Tables of a database: what a declaration may say, its location and its connection."""

import pytest

from core.sql.ddl_reader import read_ddl
from core.sql.jdbc_tables import (
    JdbcFault,
    connection_parameters,
    copy_of,
    jdbc_columns,
    jdbc_fault,
    jdbc_options,
    jdbc_options_of,
    qualified_table,
    refresh_s,
    with_copy,
)  # fmt: skip
from core.sql.statement import TableDdl

URL = "url 'jdbc:postgresql://db:5433/shop'"
WHOLE = f"{URL}, user 'reader', dbtable 'products'"


def declared(options: str = WHOLE, more: str = "") -> TableDdl:
    ddl, problems = read_ddl(f"CREATE TABLE p (id BIGINT, name STRING) USING jdbc OPTIONS ({options}) {more}", "d.sql")
    assert ddl is not None, problems
    return ddl


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        (WHOLE, None),
        (f"{URL}, User 'reader', DbTable 'public.v_1', fetchsize '100'", None),
        ("url 'jdbc:postgresql://[::1]/shop?sslmode=require', user 'r', dbtable 't'", None),
        ("user 'reader', dbtable 'products'", JdbcFault.NO_URL),
        ("url 'jdbc:mysql://db/shop', user 'reader', dbtable 'products'", JdbcFault.BAD_URL),
        ("url 'jdbc:postgresql://a,b/shop', user 'reader', dbtable 'products'", JdbcFault.BAD_URL),
        ("url 'jdbc:postgresql://u:geheim@db/shop', user 'reader', dbtable 'products'", JdbcFault.BAD_URL),
        ("url 'u:geheim@db/shop', user 'reader', dbtable 'products'", JdbcFault.BAD_URL),
        ("url 'jdbc:postgresql://db/shop?password=geheim', user 'r', dbtable 't'", JdbcFault.SECRET),
        (f"{WHOLE}, password 'geheim'", JdbcFault.SECRET),
        (f"{URL}, dbtable 'products'", JdbcFault.NO_USER),
        (f"{URL}, user 'reader'", JdbcFault.NO_TABLE),
        (f"{URL}, user 'reader', dbtable '(SELECT 1) AS t'", JdbcFault.BAD_TABLE),
        (f"{URL}, user 'reader', dbtable 'Products'", JdbcFault.BAD_TABLE),
        (f"{URL}, user 'reader', query 'SELECT 1'", JdbcFault.UNKNOWN_OPTION),
        (f"{WHOLE}, copy '/tmp'", JdbcFault.UNKNOWN_OPTION),
        (f"{WHOLE}, refresh '5 minutes'", None),
        (f"{WHOLE}, refresh '9 seconds'", JdbcFault.BAD_REFRESH),
        (f"{WHOLE}, refresh '0 hours'", JdbcFault.BAD_REFRESH),
        (f"{WHOLE}, refresh 'daily'", JdbcFault.BAD_REFRESH),
        (f"{WHOLE}, refresh ''", JdbcFault.BAD_REFRESH),
    ],
)
def test_a_declaration_that_spark_could_not_read_is_refused(options: str, fault: JdbcFault | None) -> None:
    found = jdbc_fault(declared(options))
    assert (found.kind if found else None) is fault
    assert found is None or (found.remedy and "geheim" not in f"{found}{found.remedy}")


def test_a_refresh_is_an_interval_and_no_option_of_spark() -> None:
    assert [refresh_s(declared(f"{WHOLE}, Refresh '{every}'")) for every in ("1 day", "90 seconds")] == [86400, 90]
    assert refresh_s(declared()) is None and copy_of(declared()) == ""
    copied = with_copy(declared(f"{WHOLE}, refresh '1 hour'"), "/data/p")
    assert copy_of(copied) == "/data/p" and jdbc_options(copied) == jdbc_options(declared())


def test_partitions_are_not_declared() -> None:
    found = jdbc_fault(declared(more="PARTITIONED BY (id)"))
    assert found is not None and found.kind is JdbcFault.PARTITIONED


def test_the_location_is_the_same_however_the_table_is_written() -> None:
    other = "url 'jdbc:postgresql://DB:5433/shop?sslmode=require', user 'other', dbtable 'public.products'"
    assert declared().location == declared(other).location == "jdbc:postgresql://db:5433/shop#public.products"
    assert declared("url 'jdbc:postgresql://db/shop', user 'r', dbtable 'a.b'").location.endswith("db:5432/shop#a.b")


def test_a_location_beside_the_options_is_refused() -> None:
    ddl, problems = read_ddl(f"CREATE TABLE p (id INT) USING jdbc OPTIONS ({WHOLE}) LOCATION 'x'", "d.sql")
    assert ddl is None and "has no LOCATION" in problems[0].summary


def test_spark_and_the_client_library_are_given_the_same_connection() -> None:
    ddl = declared("URL 'jdbc:postgresql://[::1]/shop?sslmode=require&a=b', user 'r', dbtable 't', FetchSize '7'")
    assert jdbc_options(ddl) == {
        "url": "jdbc:postgresql://[::1]/shop?sslmode=require&a=b",
        "user": "r",
        "dbtable": "t",
        "fetchsize": "7",
        "driver": "org.postgresql.Driver",
    }
    expected = {"host": "::1", "port": "5432", "dbname": "shop", "user": "r", "sslmode": "require"}
    assert connection_parameters(ddl) == expected
    assert qualified_table(ddl) == "public.t"


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("postgresql://r@db/shop/products", ("jdbc:postgresql://db/shop", "r", "public.products")),
        ("postgres://r@[::1]:5433/shop/a.b", ("jdbc:postgresql://[::1]:5433/shop", "r", "a.b")),
        ("postgresql://r:geheim@db/shop/products", None),
        ("postgresql://db/shop/products", None),
        ("postgresql://r@db/shop/Products", None),
        ("postgresql://r@a,b/shop/products", None),
    ],
)
def test_a_uri_gives_the_options_of_its_table(uri: str, expected: tuple[str, str, str] | None) -> None:
    found = jdbc_options_of(uri)
    assert (found and (found["url"], found["user"], found["dbtable"])) == expected


def test_the_columns_are_cast_to_their_declared_types() -> None:
    assert jdbc_columns(declared()) == ("CAST(id AS bigint) AS id", "CAST(name AS string) AS name")
