"""Functions of jars on real Spark: two contents of one class side by side, restarts, a new agent, and mistakes."""

import hashlib
import uuid
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from java_class_files import archive, changed_entry, class_file, jar

from core.model.errors import EngineRefused
from core.ports.spark import AnotherQuery, FunctionFault, QueryStart
from core.sql.registered_functions import JarClass, RegisteredFunction
from pipelines.spark_connect.error_translation import SessionLost
from pipelines.spark_connect.jar_sessions import StatementQueries

pytestmark = pytest.mark.spark


@dataclass
class Record:
    """The ids of sessions, as an agent's home has them."""

    ids: dict[str, str] = field(default_factory=dict)

    def read(self) -> dict[str, str]:
        return dict(self.ids)

    def write(self, ids: Any) -> None:
        self.ids = dict(ids)


@dataclass
class Ground:
    """Statements that write the value of `com.acme.Fmt` of a jar."""

    field: Any
    folder: Path
    record: Record = field(default_factory=Record)

    def __post_init__(self) -> None:
        self.queries = self.agent()

    def agent(self) -> StatementQueries:
        return StatementQueries(self.field.session, jars=self, record=self.record)

    def path(self, sha256: str, name: str) -> str:
        place = self.folder / f"{sha256}.jar"
        if not place.exists():
            raise EngineRefused(f"{name} is missing or damaged: its copy is {place}")
        return str(place)

    def function(self, says: str, name: str = "com.acme.Fmt", **about: Any) -> RegisteredFunction:
        content = jar(**{name.rpartition(".")[2]: class_file(name, says, **about)})
        sha256 = hashlib.sha256(content).hexdigest()
        (self.folder / f"{sha256}.jar").write_bytes(content)
        return RegisteredFunction(f"fmt__jar_{sha256[:8]}", "string", java=JarClass(name, "acme.jar", sha256))

    def start(self, table: str, function: RegisteredFunction, run_id: str = "", queries: Any = None) -> Any:
        self.field.files.prepare(self.field.checkpoint(table), {"table": table})
        start = QueryStart(
            name=f"{table}_{self.field.mark}@v1",
            select=f"SELECT {function.name}(b) AS b FROM STREAM {self.field.source}",
            target=f"{table}_{self.field.mark}__v1",
            format="parquet",
            checkpoint=self.field.checkpoint(table),
            trigger="0 seconds",
            functions=(function,),
        )
        return (queries or self.queries).start(start, run_id)

    def values(self, table: str, count: int) -> list[str]:
        rows: list[str] = []

        def written() -> bool:
            with suppress(Exception):
                found = self.field.session.spark.read.schema("b STRING").parquet(str(self.field.place(table))).collect()
                rows[:] = sorted(row.b for row in found)
            return len(rows) >= count

        self.field.until(written)
        return rows


@pytest.fixture
def jars(ground: Any, tmp_path: Path) -> Iterator[Ground]:
    made = Ground(ground, tmp_path)
    yield made
    with suppress(SessionLost):
        for query in made.queries.active():
            made.queries.stop(query.name)


def test_two_contents_of_a_class_run_side_by_side_and_a_new_agent_finds_and_rolls_back(jars: Ground) -> None:
    one, two = jars.function("one "), jars.function("two ")
    for table in ("p", "q"):
        jars.field.table(table, "b STRING")
    jars.field.land(1)
    assert jars.queries.load_functions([one, two]) is None
    first, second = jars.start("p", one), jars.start("q", two)
    assert (jars.values("p", 1), jars.values("q", 1)) == (["one b0"], ["two b0"])
    assert len(set(jars.record.ids.values())) == 2
    # A new agent finds both, and stops each where it runs.
    agent = jars.agent()
    assert one.java is not None
    agent.register_running(first.name, first.id, first.run_id, one.java.sha256)
    assert {(each.name, each.run_id) for each in agent.active()} == {
        (first.name, first.run_id), (second.name, second.run_id),
    }  # fmt: skip
    assert agent.refresh(first).progress is not None
    # A start with the functions of another jar does not find the query to be its own.
    with pytest.raises(AnotherQuery, match="is running with functions of another jar"):
        jars.start("p", two, first.run_id, agent)
    assert jars.start("p", one, first.run_id, agent).run_id == first.run_id
    agent.stop(first.name)
    assert [each.name for each in agent.active()] == [second.name] and agent.ended() == ()
    third = jars.start("p", two, queries=agent)
    assert third.id == first.id
    jars.field.land(1)
    assert jars.values("p", 2) == ["one b0", "two b0"] and jars.values("q", 2) == ["two b0", "two b0"]


def test_the_end_of_a_query_is_reported_with_the_function_and_without_values(jars: Ground) -> None:
    bad = jars.function("")
    jars.field.table("p", "b STRING")
    jars.field.land(1)
    assert jars.queries.load_functions([bad]) is None
    query = jars.start("p", bad)
    ended: list[Any] = []

    def is_reported() -> bool:
        jars.queries.active()
        ended.extend(jars.queries.ended())
        return bool(ended)

    jars.field.until(is_reported)
    assert (ended[0].run_id, ended[0].error_class) == (query.run_id, "FAILED_EXECUTE_UDF")
    assert ended[0].error == (
        "fmt: ClassCastException: class java.lang.String cannot be cast to class java.lang.Throwable"
    )


def test_what_the_pool_cannot_load_is_a_fault_before_anything_starts(jars: Ground) -> None:
    fine, newer = jars.function("a "), jars.function("b ", java=99)
    fault = jars.queries.load_functions([fine, newer])
    assert fault is not None and fault.kind is FunctionFault.NEWER_JAVA
    assert str(fault).startswith("com.acme.Fmt of acme.jar is compiled for Java 99, and the pool runs Java ")
    abstract = jars.queries.load_functions([jars.function("c ", access=0x421)])
    assert abstract is not None and abstract.kind is FunctionFault.CLASS_NOT_LOADED
    assert str(abstract).startswith("com.acme.Fmt of acme.jar cannot be loaded: ") and "headgate" not in str(abstract)
    assert fine.java is not None
    (jars.folder / f"{fine.java.sha256}.jar").unlink()
    fault = jars.agent().load_functions([fine])
    assert fault is not None and fault.kind is FunctionFault.JAR_MISSING and fine.java.sha256 in str(fault.remedy)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            changed_entry(jar(Fmt=class_file("com.acme.Fmt", "a")), 8, b"\x01"),
            "acme.jar contains the encrypted file com/acme/Fmt.class",
        ),
        (
            archive({"com/acme/Fmt.class": b"a" * 99}, zipfile.ZIP_DEFLATED).replace(b"\x4b\x4c", b"\xff\xff"),
            "acme.jar contains com/acme/Fmt.class, which cannot be unpacked",
        ),
    ],
)
def test_a_jar_that_cannot_be_unpacked_is_a_fault_and_never_reaches_the_pool(
    tmp_path: Path, content: bytes, said: str
) -> None:
    (tmp_path / "a.jar").write_bytes(content)
    spark = SimpleNamespace(streams=None)
    session: Any = SimpleNamespace(spark=spark, attach=lambda: None, another_session=lambda id: session)
    stored: Any = SimpleNamespace(path=lambda sha256, name: str(tmp_path / "a.jar"))
    sha256 = hashlib.sha256(content).hexdigest()
    function = RegisteredFunction("fmt__jar_1", "string", java=JarClass("com.acme.Fmt", "acme.jar", sha256))
    fault = StatementQueries(session, jars=stored).load_functions([function])
    assert fault is not None and fault.kind is FunctionFault.CLASS_NOT_LOADED
    assert str(fault).startswith(f"com.acme.Fmt of acme.jar cannot be loaded: {said}")


@pytest.mark.drill
@pytest.mark.long
def test_a_session_that_the_server_has_closed_gets_another_id(jars: Ground) -> None:
    one = jars.function("one ")
    jars.field.table("p", "b STRING")
    jars.queries.load_functions([one])
    (lost,) = jars.record.ids.values()
    jars.field.session.another_session(lost).release()
    with pytest.raises(SessionLost):
        jars.queries.active()
    assert jars.record.ids == {} and jars.queries.active() == ()
    jars.field.land(1)
    jars.start("p", one)
    assert jars.values("p", 1) == ["one b0"] and lost not in jars.record.ids.values()


@pytest.mark.drill
@pytest.mark.long
def test_an_idle_session_is_released_unless_a_query_runs_in_it(jars: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = jars.function("one "), jars.function("two ")
    jars.field.table("p", "b STRING")
    jars.queries.load_functions([one, two])
    query = jars.start("p", one)
    assert len(jars.record.ids) == 2
    monkeypatch.setattr("pipelines.spark_connect.jar_sessions.IDLE_S", 0.0)
    assert [each.run_id for each in jars.queries.active()] == [query.run_id]
    assert one.java is not None and list(jars.record.ids) == [one.java.sha256]
    assert [each.run_id for each in jars.agent().active()] == [query.run_id]


@pytest.mark.drill
@pytest.mark.long
def test_statements_without_functions_of_jars_open_no_session(jars: Ground) -> None:
    jars.field.table("p", "b STRING")
    jars.field.land(1)
    plain = RegisteredFunction("upper", "string")
    start = QueryStart(
        name=f"p_{jars.field.mark}@v1",
        select=f"SELECT {plain.name}(b) AS b FROM STREAM {jars.field.source}",
        target=f"p_{jars.field.mark}__v1",
        format="parquet",
        checkpoint=jars.field.checkpoint("p"),
        trigger="0 seconds",
    )
    query = jars.queries.start(start)
    assert [each.run_id for each in jars.queries.active()] == [query.run_id] and jars.record.ids == {}
    assert uuid.UUID(query.run_id)
