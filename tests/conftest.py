"""One Spark Connect server for the whole run, started when the first test asks for it and ended by its process id."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from core.project.model import Pool
from pipelines.local_pool.connect_server import LocalPool
from pipelines.spark.session import Session

# The same examples on every machine, and no clock: a busy machine is not a failure.
settings.register_profile("headgate", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("long", settings.get_profile("headgate"), max_examples=2_000)
settings.load_profile("headgate")


@pytest.fixture(scope="session")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalPool]:
    """A running local pool in a home of its own."""
    home: Path = tmp_path_factory.mktemp("pool-home")
    pool = LocalPool(home, Pool(cores=2, memory="1g"))
    pool.start()
    try:
        pool.ready()
        yield pool
    finally:
        pool.end()


@pytest.fixture(scope="session")
def session(pool: LocalPool) -> Iterator[Session]:
    """An attached session on the shared pool; tests name their tables and queries apart."""
    session = Session(pool.url, pool.token, str(uuid.uuid4()))
    session.attach()
    yield session
    session.close()
