"""An environment for all drills of Kafka topics, with a broker, agent and pool of their own."""

from collections.abc import Iterator

import pytest
from kafka_broker import PASSWORD, Broker
from tiny_project import Tiny, tiny_that_runs


@pytest.fixture(scope="session")
def on_topics(tmp_path_factory: pytest.TempPathFactory, broker: Broker) -> Iterator[Tiny]:
    """An environment with Kafka's connector and a password as a variable. Tests add tables with distinct names."""
    broker.create("unread")
    options = f"OPTIONS ('kafka.bootstrap.servers'='{broker.servers}', subscribe='unread')"
    ddl = {"unread": f"CREATE TABLE unread (id BIGINT) USING kafka {options};"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KAFKA_TEST_PASSWORD", PASSWORD)
        with tiny_that_runs(tmp_path_factory.mktemp("topics"), landed=0, ddl=ddl, dml={}) as found:
            yield found
