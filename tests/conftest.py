"""Configuration of the whole test run: Spark servers that all workers share, and the assignment of tests to workers."""

import fcntl
import gc
import os
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from sqlite3 import Connection

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings
from kafka_broker import Broker, running_broker
from pool_jars import delta_jars, kafka_jars
from tiny_project import FIRST_COMPILER
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

# A fork while a thread calls gRPC would otherwise kill one child in four before it runs its program. Popen forks if it
# is given a user, and gRPC reads this when it is imported.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "false"

from core.project.connectors import Connector
from core.project.model import Pool
from pipelines.local_pool.connect_server import LocalPool
from pipelines.spark_connect.session import Session
from state import ledger

# The same examples on every machine and no deadline: a busy machine is no failure.
settings.register_profile(
    "drill", deadline=None, derandomize=True, max_examples=40, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("headgate", settings.get_profile("drill"), max_examples=20)
settings.register_profile("long", settings.get_profile("drill"), max_examples=10_000)
settings.load_profile("headgate")

CONF = (("spark.driver.extraJavaOptions", FIRST_COMPILER),)
SERVER = Pool(cores=2, memory="1g", conf=CONF)
DELTA_SERVER = Pool(cores=2, memory="1500m", conf=CONF)
EVERY = 5
"""By default, only every fifth case of a `sampled` test runs. With the drills, all cases run."""
FIRST = ("spark", "terminal")
"""Marks of files whose tests mostly wait, so that other tests can run at the same time; these files run first."""
DRILLS = "tests/drills"
"""Folder of tests that start environments, each with an agent and a server. Two workers run them, before anything else.
"""
SECOND_HALF = f"{DRILLS}/test_n"
"""The first drill, in order of names, of the second group. Both groups take about equally long."""


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return 3 if the whole set runs, so that two cores stay busy while one worker waits for Spark or a process.

    Return 0 if files are named, because each worker would have to collect all tests again.
    """
    return 0 if config.option.file_or_dir else 3


class TwoEnvironmentsAtATime(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types.
    """Gives each file to one worker, and the drills to two of them."""

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(f"{DRILLS}/"):
            return SECOND_HALF if nodeid >= SECOND_HALF else DRILLS
        return str(super()._split_scope(nodeid))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
    return TwoEnvironmentsAtATime(config, log) if config.option.dist == "loadfile" else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    seen = Counter[str]()
    for item in items:
        if is_hypothesis_test(getattr(item, "function", None)):
            item.add_marker("generated")
        if item.get_closest_marker("sampled"):
            function = item.nodeid.partition("[")[0]
            if seen[function] % EVERY:
                item.add_marker("drill")
            seen[function] += 1
    items.sort(key=_turn)


def pytest_collection_finish() -> None:
    """Exempt the 450,000 objects of a collection, which live until the end, from garbage collection."""
    gc.freeze()


def _turn(item: pytest.Item) -> int:
    if any(item.get_closest_marker(name) for name in FIRST):
        return 0 if item.nodeid.startswith(f"{DRILLS}/") else 1
    return 2


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """End the run's servers, in the process that started the workers and after they have ended."""
    if not hasattr(session.config, "workerinput"):
        run = session.config._tmp_path_factory.getbasetemp()
        LocalPool(_server_home(run), SERVER).end()
        LocalPool(_server_home(run, "delta-server"), DELTA_SERVER).end()


def _server_home(run: Path, name: str = "spark-server") -> Path:
    return run / name


@pytest.fixture(scope="session", autouse=True)
def no_wait_for_the_disk() -> Iterator[None]:
    """Let this process write ledgers, records and checkpoints without waiting for the disk: no test cuts the power."""

    def migrated(connection: Connection) -> None:
        connection.execute("PRAGMA synchronous = OFF")
        migrate(connection)

    def prepared(connection: Connection) -> None:
        connection.execute("PRAGMA synchronous = OFF")
        prepare(connection)
        connection.execute("PRAGMA synchronous = OFF")

    with pytest.MonkeyPatch.context() as patch:
        migrate, prepare = ledger.migrate, ledger._prepare
        patch.setattr(os, "fsync", lambda _: None)
        patch.setattr(ledger, "migrate", migrated)
        patch.setattr(ledger, "_prepare", prepared)
        yield


@pytest.fixture(scope="session")
def pool(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> LocalPool:
    """The run's server, which all workers share through one home. It is ended with the run, not with a worker."""
    return _started(LocalPool, tmp_path_factory, pytestconfig, "spark-server", SERVER)


@pytest.fixture(scope="session")
def delta_pool(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> LocalPool:
    """The run's server with Delta and the reader of Avro, shared by all tests that need these."""
    jars = {"delta": delta_jars(), "kafka": kafka_jars()}
    with_delta = partial(LocalPool, connectors=tuple(Connector(name, jars=(str(of),)) for name, of in jars.items()))
    return _started(with_delta, tmp_path_factory, pytestconfig, "delta-server", DELTA_SERVER)


def _started(
    local_pool: Callable[..., LocalPool],
    tmp_path_factory: pytest.TempPathFactory,
    pytestconfig: pytest.Config,
    name: str,
    settings: Pool,
) -> LocalPool:
    base = tmp_path_factory.getbasetemp()
    # A worker's folder lies inside the run's folder.
    home = _server_home(base.parent if hasattr(pytestconfig, "workerinput") else base, name)
    home.mkdir(exist_ok=True)
    pool = local_pool(home, settings)
    with open(home / "starting", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        pool.start()
    pool.ready()
    return pool


@pytest.fixture(scope="session")
def session(pool: LocalPool) -> Iterator[Session]:
    """An attached session on the shared pool; tests must use distinct names for tables and queries."""
    session = Session(pool.url, pool.token, str(uuid.uuid4()))
    session.attach()
    yield session
    session.close()


@pytest.fixture(scope="session")
def delta_session(delta_pool: LocalPool) -> Iterator[Session]:
    """An attached session on the shared server with Delta and the reader of Avro."""
    session = Session(delta_pool.url, delta_pool.token, str(uuid.uuid4()))
    session.attach()
    yield session
    session.close()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """The Kafka broker of this process, shared by all its tests, which must use distinct topics."""
    with running_broker(tmp_path_factory.mktemp("kafka")) as found:
        yield found
