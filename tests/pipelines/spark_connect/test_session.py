"""Sessions on real Spark: the operating configuration, the idle limit, and a separate session for reads."""

import os

import pytest

from core.model.errors import EngineRefused, PoolUnreachable
from pipelines.local_pool.connect_server import LocalPool
from pipelines.spark_connect.call_deadlines import CircuitState, MissedDeadline
from pipelines.spark_connect.session import Session, _seconds

pytestmark = pytest.mark.spark


def test_an_attached_session_has_the_fence_and_a_bounded_stop(session: Session) -> None:
    assert session.spark.conf.get("spark.sql.streaming.stopActiveRunOnRestart") == "false"
    assert session.spark.conf.get("spark.sql.streaming.stopTimeout") == "15s"


def test_our_pool_has_no_limit_on_idle_sessions(session: Session) -> None:
    assert session.idle_limit_s() is None
    assert [_seconds(text) for text in ("60m", "3600s", "1h", "500ms", "90000")] == [3600, 3600, 3600, 0.5, 90]


def test_the_token_cannot_be_read_by_a_client(session: Session, pool: LocalPool) -> None:
    assert session.spark.conf.get("spark.connect.authenticate.token", None) is None
    rows = session.spark.sql("SET -v").collect()
    assert pool.token not in str(rows)


def test_a_token_in_the_environment_does_not_force_tls(
    pool: LocalPool, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(os.environ, "SPARK_CONNECT_AUTHENTICATE_TOKEN", "of another server")
    other = Session(pool.url, pool.token, session.session_id)
    other.call(20, other.ping)
    other.close()


def test_reading_has_a_session_of_its_own_that_is_the_same_next_time(session: Session) -> None:
    first, second = session.reader(), session.reader()
    assert first.session_id == second.session_id != session.session_id
    first.close()
    second.close()


def test_a_missing_server_is_reported_at_once_and_opens_no_circuit() -> None:
    session = Session("sc://127.0.0.1:9", "token", "00000000-0000-4000-8000-000000000000")
    with pytest.raises(PoolUnreachable) as raised:
        session.call(5, session.attach)
    assert not isinstance(raised.value, MissedDeadline)
    assert session.breaker.state == CircuitState.CLOSED
    session.close()


def test_spark_errors_keep_their_class_through_a_call(session: Session) -> None:
    with pytest.raises(EngineRefused) as raised:
        session.call(20, session.spark.sql, "SELECT * FROM no_such_table_at_all")
    assert raised.value.error_class == "TABLE_OR_VIEW_NOT_FOUND"


def test_texts_mean_what_they_say(session: Session) -> None:
    said = session.spark.sql("SELECT '${spark.sql.shuffle.partitions} ${env:HOME} ${x}'").collect()[0][0]
    assert said == "${spark.sql.shuffle.partitions} ${env:HOME} ${x}"
