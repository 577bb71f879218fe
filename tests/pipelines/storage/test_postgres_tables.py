"""Tables of a real PostgreSQL server: which faults of a declared table are detected."""

from collections.abc import Iterator

import pytest
from kafka_broker import free_port
from postgres_server import PASSWORD, READER, PostgresServer, running_postgres

from core.model.errors import TryAgain
from core.model.states import TableFaultKind
from core.sql.ddl_reader import read_ddl
from core.sql.statement import TableDdl
from pipelines.storage.postgres_tables import columns_in_database, database_fault, rows_in_database


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    with running_postgres() as found:
        found.run(
            "CREATE TABLE products (id int, name varchar(20), cost numeric)",
            "CREATE VIEW names AS SELECT id, name FROM products",
            f"CREATE ROLE {READER} LOGIN PASSWORD '{PASSWORD}'",
            f"GRANT SELECT (id, name) ON products TO {READER}",
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PGPASSFILE", str(found.password_file(tmp_path_factory.mktemp("postgres"))))
            yield found


def declared(
    server: PostgresServer, table: str = "products", *, user: str = READER, columns: str = "ID BIGINT, name STRING"
) -> TableDdl:
    options = f"url 'jdbc:postgresql://127.0.0.1:{server.port}/postgres', user '{user}', dbtable '{table}'"
    ddl, problems = read_ddl(f"CREATE TABLE p ({columns}) USING jdbc OPTIONS ({options})", "ddl.p.sql")
    assert ddl is not None, problems
    return ddl


def fault(ddl: TableDdl) -> tuple[TableFaultKind, str] | None:
    found = database_fault(ddl)
    return found and (found.kind, found.why)


def test_a_table_whose_columns_may_be_read_has_no_fault(server: PostgresServer) -> None:
    assert fault(declared(server)) is None


def test_a_view_can_be_read_like_a_table(server: PostgresServer) -> None:
    assert fault(declared(server, "public.names", user="postgres")) is None


def test_columns_have_the_types_in_which_spark_reads_them(server: PostgresServer) -> None:
    server.run(
        "CREATE TABLE kinds (a smallint, b numeric(6,2), c numeric, d numeric(50,2), e varchar(9), f text[], g jsonb,"
        ' h timestamptz, i timestamp(3), j time, k time with time zone[], "L m" uuid, n bytea, o numeric(2,-3))',
        f"GRANT SELECT ON kinds TO {READER}",
    )
    assert columns_in_database(declared(server, "kinds")) == (
        ("a", "SMALLINT"), ("b", "DECIMAL(6,2)"), ("c", "DECIMAL(38,18)"), ("d", "DECIMAL(38,18)"), ("e", "STRING"),
        ("f", "ARRAY<STRING>"), ("g", "STRING"), ("h", "TIMESTAMP"), ("i", "TIMESTAMP"), ("j", ""), ("k", ""),
        ("L m", "STRING"), ("n", "BINARY"), ("o", "STRING"),
    )  # fmt: skip
    assert columns_in_database(declared(server)) == (("id", "INT"), ("name", "STRING"))
    assert columns_in_database(declared(server, "absent")) == ()


def test_rows_are_read_by_declared_columns(server: PostgresServer) -> None:
    server.run("TRUNCATE products", "INSERT INTO products VALUES (1, 'a', 2.5), (2, NULL, 3)")
    ddl = declared(server, columns="NAME STRING, id BIGINT")
    assert sorted(rows_in_database(ddl, 10), key=str) == [("a", 1), (None, 2)]
    assert len(rows_in_database(ddl, 1)) == 1


def test_names_in_upper_case_and_dates_that_python_lacks_are_read(server: PostgresServer) -> None:
    server.run(
        'CREATE TABLE odd ("Id" int, day date, at timestamp)',
        "INSERT INTO odd VALUES (1, '0044-03-15 BC', 'infinity')",
        f"GRANT SELECT ON odd TO {READER}",
    )
    ddl = declared(server, "odd", columns="id INT, day DATE, at TIMESTAMP")
    assert rows_in_database(ddl, 10) == [(1, "0044-03-15 BC", "infinity")]


def test_a_missing_table_and_a_missing_column_are_named(server: PostgresServer) -> None:
    gone = (TableFaultKind.GONE, "p reads public.absent, and the database has no such table")
    assert fault(declared(server, "absent")) == gone
    lacks = (TableFaultKind.COLUMNS_CHANGED, "p: public.products has no column size")
    assert fault(declared(server, columns="id BIGINT, size INT")) == lacks


def test_a_column_that_the_user_may_not_read_is_named_with_the_grant(server: PostgresServer) -> None:
    found = database_fault(declared(server, columns="id BIGINT, cost DECIMAL(6,2)"))
    assert found is not None and found.why == "p: reader may not read cost of public.products"
    assert found.remedy == "GRANT SELECT ON public.products TO reader"


def test_an_unknown_user_a_missing_password_and_a_server_that_is_down_are_tried_again(server: PostgresServer) -> None:
    with pytest.raises(TryAgain, match='role "nobody" does not exist'):
        database_fault(declared(server, user="nobody"))
    with pytest.MonkeyPatch.context() as patch, pytest.raises(TryAgain, match="password") as failure:
        patch.setenv("PGPASSFILE", "/dev/null")
        database_fault(declared(server))
    assert "pgpass" in str(failure.value.remedy)
    closed = PostgresServer.__new__(PostgresServer)
    closed.port = free_port()
    with pytest.raises(TryAgain, match=r"p: the database does not answer: .*refused"):
        database_fault(declared(closed))
