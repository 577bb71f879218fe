"""Jars of connectors: downloaded once, used as given, and refused with the name of a missing one."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from core.model.errors import PoolUnreachable
from core.project.connectors import DELTA, Connector
from core.project.model import Pool
from pipelines.local_pool.connect_server import LocalPool
from pipelines.local_pool.connector_jars import ConnectorJars
from pipelines.local_pool.java_and_spark import find_java, spark_home

JARS = ("io.delta_delta-spark_4.2_2.13-4.4.0.jar", "io.delta_delta-storage-4.4.0.jar")
WHOLE = b"PK\x05\x06" + bytes(18)
"""A jar without entries: only the end record of a zip file."""


def spark(folder: Path, does: str) -> Path:
    """Create a fake Spark whose `spark-submit` runs the shell line `does`, with the ivy folder as $ivy."""
    program = folder / "spark" / "bin" / "spark-submit"
    program.parent.mkdir(parents=True, exist_ok=True)
    finds = "for word; do case $word in spark.jars.ivy=*) ivy=${word#*=} ;; esac; done"
    program.write_text(f'#!/bin/sh\n{finds}\necho "$@" >>{folder}/calls\n{does}\n')
    program.chmod(0o755)
    return folder / "spark"


def jars(folder: Path, connector: Connector = DELTA, **conf: str) -> ConnectorJars:
    return ConnectorJars(folder / "home", folder, (connector,), conf)


FETCHES = 'mkdir -p "$ivy/jars"; for jar in ' + " ".join(JARS) + '; do echo jar >"$ivy/jars/$jar"; done'


def test_jars_are_downloaded_once_after_an_announcement(tmp_path: Path) -> None:
    said: list[str] = []
    program = spark(tmp_path, FETCHES)
    found = jars(tmp_path).obtain(program, "", said.append)
    assert [Path(jar).name for jar in found] == sorted(JARS)
    assert said == [f"the jars of delta are being fetched once, into {jars(tmp_path).folder}"]
    assert jars(tmp_path).obtain(program, "", said.append) == found
    calls = (tmp_path / "calls").read_text().splitlines()
    assert len(calls) == 1 and len(said) == 1
    assert "--packages io.delta:delta-spark_4.2_2.13:4.4.0" in calls[0] and "org.apache.hadoop:*" in calls[0]


def test_an_incomplete_jar_is_downloaded_again(tmp_path: Path) -> None:
    program = spark(tmp_path, FETCHES)
    found = jars(tmp_path).obtain(program, "", print)
    Path(found[0]).write_text("")
    assert jars(tmp_path).fetched() is None
    jars(tmp_path).obtain(program, "", print)
    assert len((tmp_path / "calls").read_text().splitlines()) == 2


def test_a_fetch_that_fails_names_the_artifact_and_leaves_nothing(tmp_path: Path) -> None:
    program = spark(
        tmp_path,
        "echo ':: unresolved dependency: io.delta#delta-spark_4.2_2.13;9.9.9: not found' >&2; exit 1",
    )
    with pytest.raises(PoolUnreachable) as refused:
        jars(tmp_path).obtain(program, "", print)
    assert refused.value.summary == (
        "the pool cannot start without the connector delta: io.delta:delta-spark_4.2_2.13:9.9.9 cannot be fetched"
    )
    assert "jars: [folder]" in refused.value.remedy
    assert list((tmp_path / "home" / "connectors").iterdir()) == []


def test_a_folder_of_jars_is_used_unchanged(tmp_path: Path) -> None:
    folder = tmp_path / "lib"
    folder.mkdir()
    for jar in JARS:
        (folder / jar.removeprefix("io.delta_")).write_bytes(WHOLE)
    given = replace(DELTA, coordinates=(), jars=("lib",))
    program = spark(tmp_path, "exit 1")
    assert len(jars(tmp_path, given).obtain(program, "", print)) == 2
    assert not (tmp_path / "calls").exists()


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("names", "why"),
    [
        (None, "lib does not exist"),
        ((), "lib has no jar in it"),
        (JARS[:1], "delta-storage is missing from the given jars"),
        (("delta-spark_4.0_2.13-4.0.0.jar", "delta-storage-4.0.0.jar"), "delta-spark_4.0_2.13 is Delta for Spark 4.0"),
        ((JARS[0], "delta-storage-4.3.0.jar"), "different versions: delta-spark_4.2_2.13 4.4.0, delta-storage 4.3.0"),
    ],
)
def test_jars_that_cannot_do_are_named_before_the_pool_starts(
    tmp_path: Path, names: tuple[str, ...] | None, why: str
) -> None:
    if names is not None:
        (tmp_path / "lib").mkdir()
        for name in names:
            (tmp_path / "lib" / name).write_bytes(WHOLE)
    pool = LocalPool(
        tmp_path / "home", Pool(), connectors=(replace(DELTA, coordinates=(), jars=("lib",)),), project=tmp_path
    )
    (tmp_path / "home").mkdir()
    with pytest.raises(PoolUnreachable, match="the pool cannot start without the connector delta: ") as refused:
        pool.start()
    assert why in refused.value.summary and refused.value.remedy
    assert not pool.alive()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 and then the copy was cut off"], ids=["empty", "cut off"])
def test_a_truncated_jar_is_named_before_the_pool_starts(tmp_path: Path, content: bytes) -> None:
    for name in JARS:
        (tmp_path / name).write_bytes(WHOLE)
    (tmp_path / JARS[1]).write_bytes(content)
    with pytest.raises(
        PoolUnreachable, match=rf"storage-4.4.0.jar is not a complete jar \({len(content)} bytes\)"
    ) as refused:
        jars(tmp_path, replace(DELTA, coordinates=(), jars=(".",))).given()
    assert refused.value.remedy


def test_required_server_settings_are_set_and_the_pools_own_take_precedence() -> None:
    here = Path("/nowhere")
    found = ConnectorJars(here, here, (DELTA,), {"spark.sql.extensions": "a.B", "spark.x": "1"}).settings()
    assert found == {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension,a.B",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
        "spark.x": "1",
    }
    more = {"spark.databricks.delta.snapshotPartitions": "4"}
    assert ConnectorJars(here, here, (DELTA,), more).settings()["spark.databricks.delta.snapshotPartitions"] == "4"
    assert ConnectorJars(here, here, (), {"spark.sql.extensions": "a.B"}).settings() == {"spark.sql.extensions": "a.B"}


@pytest.mark.drill
def test_ivy_names_what_it_does_not_find(tmp_path: Path) -> None:
    wrong = replace(DELTA, coordinates=("io.delta:delta-spark_4.2_2.13:9.9.9",))
    with pytest.raises(PoolUnreachable, match=r"io\.delta:delta-spark_4\.2_2\.13:9\.9\.9 cannot be fetched"):
        jars(tmp_path, wrong).obtain(spark_home(), find_java().home, print)


@pytest.mark.drill
def test_ivy_fetches_what_spark_lacks_and_no_more(tmp_path: Path) -> None:
    found = jars(tmp_path).obtain(spark_home(), find_java().home, print)
    sizes = json.loads((jars(tmp_path).folder / "resolved.json").read_text())
    assert len(found) == len(sizes) and sum(sizes.values()) < 15e6
    ours = {jar.name.rpartition("-")[0] for jar in (spark_home() / "jars").glob("*.jar")}
    assert not {name.partition("_")[2].rpartition("-")[0] for name in sizes} & ours
