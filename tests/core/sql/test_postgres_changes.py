"""Changes of a database: what a declaration may say, its location and address, and the columns of its rows."""

from dataclasses import replace

import pytest

from core.sql.ddl_reader import read_ddl
from core.sql.jdbc_tables import JdbcFault
from core.sql.postgres_changes import (
    ChangeAddress,
    ChangesFault,
    change_address,
    changes_fault,
    read_address,
    row_columns,
    slot_name,
    source_options,
    source_schema,
    with_slot,
)
from core.sql.statement import TableDdl

URL = "url 'jdbc:postgresql://DB:5433/shop', user 'reader'"
TABLE = f"{URL}, dbtable 'orders', publication 'headgate'"
MESSAGES = f"{URL}, messages 'app.audit', publication 'headgate'"


def declared(options: str = TABLE, columns: str = "id BIGINT, _op STRING", more: str = "") -> TableDdl:
    text = f"CREATE TABLE p ({columns}) USING postgres_changes OPTIONS ({options}) {more}"
    ddl, problems = read_ddl(text, "d.sql")
    assert ddl is not None, problems
    return ddl


@pytest.mark.parametrize(
    ("ddl", "fault"),
    [
        (declared(), None),
        (declared(f"{TABLE}, maxChanges '500'"), None),
        (declared(f"{TABLE}, snapshot 'initial'"), None),
        (declared(f"{TABLE}, snapshot 'always'"), ChangesFault.BAD_SNAPSHOT),
        (declared(f"{TABLE}, failover 'true'"), None),
        (declared(f"{TABLE}, failover 'yes'"), ChangesFault.BAD_FAILOVER),
        (declared(f"{MESSAGES}, snapshot 'initial'", "_content STRING"), ChangesFault.BAD_SNAPSHOT),
        (declared(MESSAGES, "_prefix STRING, _content BINARY, _lsn BIGINT"), None),
        (declared(MESSAGES, "_content STRING, _committed_at TIMESTAMP"), None),
        (declared("user 'reader', dbtable 'orders', publication 'headgate'"), JdbcFault.NO_URL),
        (declared(f"{URL}, publication 'headgate'"), JdbcFault.NO_TABLE),
        (declared(f"{TABLE}, password 'geheim'"), JdbcFault.SECRET),
        (declared(TABLE.replace("/shop", "/shop?password=geheim")), JdbcFault.SECRET),
        (declared(f"{TABLE}, fetchsize '5'"), ChangesFault.UNKNOWN_OPTION),
        (declared(f"{TABLE}, slot 'mine'"), ChangesFault.UNKNOWN_OPTION),
        (declared(f"{TABLE}, messages 'x'"), ChangesFault.BOTH),
        (declared(f"{URL}, messages 'a b', publication 'headgate'"), ChangesFault.BAD_MESSAGES),
        (declared(f"{URL}, dbtable 'orders'"), ChangesFault.NO_PUBLICATION),
        (declared(f"{URL}, dbtable 'orders', publication 'Head Gate'"), ChangesFault.BAD_PUBLICATION),
        (declared(f"{TABLE}, maxChanges '0'"), ChangesFault.BAD_LIMIT),
        (declared(columns="id BIGINT, _key STRING"), ChangesFault.UNDERSCORE),
        (declared(columns="id BIGINT, _content BINARY"), ChangesFault.UNDERSCORE),
        (declared(columns="id BIGINT, _lsn STRING"), ChangesFault.TYPE),
        (declared(MESSAGES, "_content BIGINT"), ChangesFault.TYPE),
        (declared(MESSAGES, "id BIGINT, _content STRING"), ChangesFault.NO_CONTENT),
        (declared(columns="_op STRING"), ChangesFault.NO_COLUMNS),
        (declared(columns="id BIGINT, tags ARRAY<STRING>"), ChangesFault.TEXT_ONLY),
        (declared(more="PARTITIONED BY (id)"), ChangesFault.PARTITIONED),
    ],
)
def test_a_declaration_is_valid_or_has_one_fault(ddl: TableDdl, fault: object) -> None:
    found = changes_fault(ddl)
    assert (found and found.kind) is fault
    assert "geheim" not in str(found)


def test_the_location_is_what_is_read_and_not_by_whom() -> None:
    assert declared().location == "postgresql://db:5433/shop#public.orders"
    assert declared(MESSAGES).location == "postgresql://db:5433/shop#messages:app.audit"
    assert declared(TABLE.replace("reader", "other")).location == declared().location


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (TABLE, ChangeAddress("postgresql://reader@DB:5433/shop", "s", "headgate", "public.orders")),
        (MESSAGES, ChangeAddress("postgresql://reader@DB:5433/shop", "s", "headgate", prefix="app.audit")),
        (
            f"{TABLE}, snapshot 'initial', failover 'true'",
            ChangeAddress(
                "postgresql://reader@DB:5433/shop", "s", "headgate", "public.orders", snapshot=True, failover=True
            ),
        ),
        (
            TABLE.replace("DB:5433/shop", "[::1]/shop?sslmode=verify-full").replace("reader", "r@a:b"),
            ChangeAddress(
                "postgresql://r%40a%3Ab@[::1]:5432/shop?sslmode=verify-full", "s", "headgate", "public.orders"
            ),
        ),
    ],
)
def test_an_address_is_read_back_as_it_was_made(options: str, expected: ChangeAddress) -> None:
    assert read_address(change_address(with_slot(declared(options), "s"))) == expected


def test_the_name_of_a_slot_is_valid_and_belongs_to_one_environment() -> None:
    assert slot_name("5b0e4a52-9df2", "orders_in") == "headgate_5b0e4a52_orders_in"
    assert slot_name("5b0e4a52-9df2", "a") != slot_name("6b0e4a52-9df2", "a")
    long = [slot_name("5b0e4a52", "t" * 80 + end) for end in "ab"]
    assert long[0] != long[1] and max(map(len, long)) <= 63


def test_values_are_cast_from_the_text_of_the_database() -> None:
    ddl = declared(columns="Id BIGINT, raw BINARY, day DATE, _op STRING, _lsn BIGINT, _committed_at TIMESTAMP")
    assert source_schema(ddl) == "id string, raw string, day string, _op string, _lsn bigint, _committed_us bigint"
    assert row_columns(ddl) == (
        "CAST(id AS bigint) AS Id",
        "IF(raw IS NULL, NULL, unhex(IF(startswith(raw, concat(chr(92), 'x')), substring(raw, 3), "
        "raise_error('raw is no bytea, and is declared BINARY')))) AS raw",
        "CAST(IF(day LIKE '%-%-%' AND day NOT LIKE '% BC', day, concat('? ', day)) AS date) AS day",
        "CAST(_op AS string) AS _op",
        "CAST(_lsn AS bigint) AS _lsn",
        "timestamp_micros(_committed_us) AS _committed_at",
    )


def test_the_source_gets_what_it_needs_and_no_password() -> None:
    options = source_options(with_slot(declared(f"{TABLE}, maxChanges '7'"), "s"))
    assert options == {
        "dsn": "postgresql://reader@DB:5433/shop", "slot": "s", "publication": "headgate", "table": "public.orders",
        "maxchanges": "7",
    }  # fmt: skip
    assert source_options(with_slot(replace(declared(MESSAGES)), "s"))["prefix"] == "app.audit"
    assert source_options(with_slot(declared(f"{TABLE}, snapshot 'initial'"), "s"))["snapshot"] == "initial"
