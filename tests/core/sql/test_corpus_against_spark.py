"""A sample of the corpus, asked again: Spark still gives the recorded answers."""

import re
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from spark_verdicts import prepare, verdict
from sql_corpus import Case, Verdict, cases, load

from pipelines.local_pool.connect_server import LocalPool
from pipelines.spark_connect.session import Session

pytestmark = pytest.mark.spark

ASKED = [case for case in cases() if case.reads == "batch" and case.construct not in ("part_names", "quoted_names")][
    ::40
]
"""Every fortieth case; each takes about half a second."""


@pytest.fixture(scope="module")
def corpus(pool: LocalPool) -> Iterator[Session]:
    """A new session, with the tables of the corpus in a database of its own."""
    session = Session(pool.url, pool.token, str(uuid.uuid4()))
    session.attach()
    session.spark.sql("CREATE DATABASE IF NOT EXISTS corpus")
    session.spark.sql("USE corpus")
    prepare(session.spark)
    yield session
    session.close()


@pytest.mark.sampled
@pytest.mark.parametrize("case", ASKED, ids=lambda case: case.key)
def test_spark_still_gives_the_recorded_answers(corpus: Session, tmp_path: Path, case: Case) -> None:
    said = [verdict(corpus.spark, each, tmp_path) for each in case.statements]
    assert [classless(each) for each in said] == [classless(each) for each in load()[case.key]]


def classless(said: Verdict) -> Verdict:
    """Return a verdict without an error class that has no name of its own."""
    return replace(said, refused=re.sub(r"^_LEGACY_ERROR_TEMP_\d+: ", "", said.refused)[:100])
