"""Random statements, and earlier findings of random ones: our analysis against Spark's, and against an actual start."""

import uuid
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from random_sql import statement
from spark_comparison import STRICTER, UNSAFE, Asked, read, reason

from core.sql.statement_reader import read_statements
from pipelines.local_pool.connect_server import LocalPool
from pipelines.spark_connect.session import Session

LISTED = Path(__file__).parents[2] / "fixtures" / "sql" / "beside_spark.txt"
FOUND = [line.split(maxsplit=1) for line in LISTED.read_text().splitlines() if line and not line.startswith("#")]


@pytest.fixture(scope="module")
def asked(pool: LocalPool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    """Spark's answers, through a new session."""
    session = Session(pool.url, pool.token, str(uuid.uuid4()))
    session.attach()
    yield Asked(session, tmp_path_factory.mktemp("started"))
    session.close()


@pytest.mark.parametrize(("expected", "text"), FOUND)
def test_findings_of_random_statements_are_refused_or_accepted_as_by_spark(expected: str, text: str) -> None:
    _, problems = read_statements(f"INSERT INTO t {text}", "q.sql")
    assert bool(problems) is (expected == "refused"), problems


@pytest.mark.sampled
@pytest.mark.spark
@pytest.mark.parametrize(("expected", "text"), FOUND)
def test_spark_refuses_and_accepts_as_listed(asked: Asked, expected: str, text: str) -> None:
    failure, _ = asked.start(text)
    assert bool(failure) is (expected == "refused"), failure


@pytest.mark.sampled
@pytest.mark.spark
@pytest.mark.parametrize("number", range(12))
def test_a_random_statement_loses_no_relation_and_no_state(asked: Asked, number: int) -> None:
    random = Random(f"tests/{number}")
    text = str(statement(random))
    finding = read(asked, text, start=random.random() < 0.2)
    assert finding.outcome != UNSAFE, f"{finding.words}\n{text}"
    assert finding.outcome != STRICTER or reason(finding), f"{finding.words}\n{text}"


def test_a_seed_gives_the_same_statement_each_time() -> None:
    assert str(statement(Random("1/7"))) == str(statement(Random("1/7")))


@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(20))
def test_every_random_statement_is_read_or_refused(seed: int) -> None:
    for number in range(50):
        found, problems = read_statements(f"INSERT INTO t {statement(Random(f'{seed}/{number}'))}", "q.sql")
        assert bool(found) is not bool(problems)
